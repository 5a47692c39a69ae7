// SPDX-License-Identifier: BSL-1.0
//
// A strategy that a user writes, a rule of the user's that wraps another one, and a trainer of parts that are chosen
// when the program runs.
#include <boost/test/unit_test.hpp>

#include <algorithm>    // std::copy
#include <atomic>       // std::atomic
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <stdexcept>    // std::runtime_error
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move, std::pair
#include <vector>       // std::vector

#include "../../support/training_runs.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/lars.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace comm = gradus::comm;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;

/// All gradients at once, after backward.
struct plain_all_reduce {
  static constexpr std::string_view name = "plain_all_reduce";

  template <class Element>
  class state final : public parallel::strategy<Element> {
   public:
    state(const plain_all_reduce&, comm::any_communicator world, const parallel::flat_parameters<Element>& parameters)
        : channel_{world.duplicate()}, parameters_{parameters} {}
    [[nodiscard]] std::string describe() const override { return std::string{name}; }
    void start() override { comm::broadcast(channel_, parameters_.values, 0).wait(); }
    void finish(const parallel::update_call& update) override {
      comm::all_reduce(channel_, parameters_.gradients).wait();
      update(parameters_.segments);
    }

   private:
    comm::any_communicator channel_;
    parallel::flat_parameters<Element> parameters_;
  };
};
static_assert(parallel::gradient_strategy<plain_all_reduce>);

template <class Network>
class halves_execution;

/// A rank computes its part of a batch in two halves.
struct in_halves {
  static constexpr std::string_view name = "in_halves";
  template <class Element>
  using state = plain_all_reduce::state<Element>;
  template <class Element>
  [[nodiscard]] static std::unique_ptr<state<Element>> make(const in_halves& /*options*/, comm::any_communicator ranks,
                                                            const parallel::flat_parameters<Element>& parameters) {
    return std::make_unique<state<Element>>(plain_all_reduce{}, std::move(ranks), parameters);
  }
  template <class Network>
  using execution = halves_execution<Network>;
};
static_assert(parallel::gradient_strategy<in_halves>);

template <class Network>
class halves_batches final : public train::batch_execution<Network> {
 public:
  using train::batch_execution<Network>::batch_execution;

  gradus::kernels::loss_sums train_step(const gradus::nn::step_options& options,
                                        gradus::nn::step_hooks& hooks) override {
    Network& net = this->network();
    const auto& images = this->batch().images;
    gradus::kernels::loss_sums total;
    gradients_.assign(net.gradients().size(), 0);
    const gradus::index_t half = images.extent(0) / 2;
    ready_when_summed last;
    for (const bool second : {false, true}) {
      const gradus::index_t first = second ? half : 0;
      const gradus::index_t count = second ? images.extent(0) - half : half;
      if (count == 0 && !second) {
        continue;
      }
      gradus::nn::step_options own = options;
      own.first_example += static_cast<std::uint64_t>(first);
      own.global_examples = this->batch().global_examples;
      const gradus::extents<4> shape{count, images.extent(1), images.extent(2), images.extent(3)};
      const gradus::index_t example = images.extent(1) * images.extent(2) * images.extent(3);
      last.ready.clear();
      total += net.train_step(
          {net.device(), images.data() + first * example, shape},
          gradus::nn::part_of_targets(this->batch().targets, net.target_description(), first, count), own, &last);
      for (std::size_t i = 0; i < gradients_.size(); ++i) {
        gradients_[i] += net.gradients()[i];
      }
    }
    std::copy(gradients_.begin(), gradients_.end(), net.gradients().begin());
    for (const auto& [first, count] : last.ready) {
      hooks.gradients_ready(first, count);
    }
    return total;
  }

 private:
  struct ready_when_summed final : gradus::nn::step_hooks {
    void gradients_ready(std::size_t first, std::size_t count) override { ready.emplace_back(first, count); }
    std::vector<std::pair<std::size_t, std::size_t>> ready;
  };

  std::vector<gradus::parameter_element_t<typename Network::element_type>> gradients_;
};

template <class Network>
class halves_execution final : public train::execution<Network> {
 public:
  explicit halves_execution(const in_halves& /*options*/) {}

  [[nodiscard]] std::unique_ptr<train::batch_execution<Network>> training(
      comm::link& /*group*/, Network& net, train::batch_source<Network>& source) override {
    ++trainings;
    return std::make_unique<halves_batches<Network>>(net, source, nullptr);
  }
  [[nodiscard]] std::string describe() const override { return "in halves"; }

  static inline std::atomic<int> trainings{0};
};

/// A check on a rank: Boost.Test is for one thread at a time.
void require(bool holds) {
  if (!holds) {
    throw std::runtime_error{"a check on a rank"};
  }
}

template <class Function>
std::string refusal(const Function& function) {
  try {
    function();
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "no exception";
}

using network = gradus::nn::network<float, gradus::nhwc>;

/// Makes the end of a step of a rule and a strategy that do not go together.
template <class Strategy, class Rule>
std::string end_of(const Strategy& options, const Rule& rule, gradus::index_t elements) {
  return refusal([&] {
    comm::self alone;
    gradus::cpu device{{.intra_op_threads = 1}};
    network net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 1});
    const auto parameters = train::trained_parameters_of(net);
    const auto updates = optim::make_parameter_update<float>(
        device, rule, elements < 0 ? static_cast<gradus::index_t>(parameters.values.size()) : elements);
    const auto strategy = parallel::make_strategy<float>(options, alone, parameters.flat());
    comm::link_of all{alone};
    const train::optimizer_step_of<float> end{parameters, *updates, *strategy, all};
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(user_strategy)

BOOST_AUTO_TEST_CASE(a_strategy_of_a_user_reaches_the_weights_of_one_process) {
  comm::self alone;
  const auto want = gradus_test::run_training<gradus::nhwc>(alone);
  for (const int ranks : {1, 2, 3}) {
    const auto results = comm::run_ranks(ranks, [](comm::threads& world) {
      return gradus_test::run_training_with<gradus::nhwc>(
          world, gradus_test::training_setup{}, plain_all_reduce{}, {.rank = world.rank(), .ranks = world.size()},
          [](auto& trainer) { require(trainer.strategy().describe() == "plain_all_reduce"); });
    });
    for (const auto& each : results) {
      BOOST_TEST_CONTEXT(ranks << " ranks") {
        BOOST_TEST(gradus_test::largest_difference(each.weights, want.weights) < 1e-9);
        BOOST_TEST((each.weights == results.front().weights));
      }
    }
  }
}

// The parts of a trainer behind their base classes: every strategy gives the weights of the trainer that knows it.
BOOST_AUTO_TEST_CASE(parts_that_are_chosen_at_run_time_train_as_a_trainer_does) {
  const auto weights_of = [](comm::threads& world, const auto& train_it) {
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<float, gradus::nhwc> loader{device, gradus_test::small_dataset(), {.global_batch_size = 8}};
    network net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 1});
    train_it(world, device, net, loader);
    return std::vector<float>{net.values().begin(), net.values().end()};
  };
  const train::fit_options options{.epochs = 2, .learning_rate = 0.05};
  const auto want = comm::run_ranks(2, [&](comm::threads& world) {
    return weights_of(world, [&](auto& ranks, auto&, auto& net, auto& loader) {
      train::trainer trainer{net, optim::sgd{.momentum = 0.9}, ranks};
      trainer.fit(loader, options);
    });
  });
  for (const bool sharded : {false, true}) {
    const auto have = comm::run_ranks(2, [&](comm::threads& world) {
      return weights_of(world, [&](comm::threads& ranks, auto& device, auto& net, auto& loader) {
        const auto parameters = train::trained_parameters_of(net);
        const std::unique_ptr<optim::parameter_update<float>> rule =
            std::make_unique<optim::parameter_update_of<optim::sgd, float>>(
                device, optim::sgd{.momentum = 0.9}, static_cast<gradus::index_t>(parameters.values.size()));
        std::unique_ptr<parallel::strategy<float>> strategy;
        if (sharded) {
          strategy = parallel::make_strategy<float>(parallel::sharded_update{}, ranks, parameters.flat());
        } else {
          strategy = std::make_unique<plain_all_reduce::state<float>>(plain_all_reduce{}, ranks, parameters.flat());
        }
        comm::link_of all{ranks};
        train::optimizer_step_of<float> end{parameters, *rule, *strategy, all};
        end.start();
        train::trainer trainer{net, end, end.group()};
        int epochs = 0;
        trainer.fit(loader, options, [&](const train::epoch_report&) { ++epochs; });
        require(epochs == 2);
        require(trainer.evaluate(loader).examples == 53);
        require(trainer.steps() == 14U);
      });
    });
    BOOST_TEST((have == want));
  }
}

BOOST_AUTO_TEST_CASE(a_strategy_of_a_user_divides_the_computation) {
  comm::self alone;
  const auto want = gradus_test::run_training<gradus::nhwc>(alone);
  for (const int ranks : {1, 2, 3}) {
    const auto have = comm::run_ranks(ranks, [&](comm::threads& world) {
      return gradus_test::run_training_with<gradus::nhwc>(world, gradus_test::training_setup{}, in_halves{},
                                                          {.rank = world.rank(), .ranks = world.size()});
    });
    for (const auto& each : have) {
      BOOST_TEST(gradus_test::largest_difference(each.weights, want.weights) < 1e-9);
      BOOST_TEST((each.weights == have.front().weights));
    }
  }
  BOOST_TEST((halves_execution<gradus::nn::network<double, gradus::nhwc>>::trainings) == 6);
}

BOOST_AUTO_TEST_CASE(rules_and_strategies_that_do_not_go_together_are_refused_at_run_time_too) {
  const auto contains = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  const std::string parts = end_of(parallel::sharded_update{}, optim::lars{}, -1);
  BOOST_TEST(contains(parts, "an elementwise rule for ranks that update parts of parameters"), parts);
  BOOST_TEST(contains(parts, "'lars'"), parts);
  const std::string servers =
      end_of(parallel::parameter_server{.colocate = true}, optim::update<optim::sgd>{.loss_scaling = {}}, 0);
  BOOST_TEST(contains(servers, "which scales the loss"), servers);
  BOOST_TEST(end_of(parallel::sharded_update{}, optim::sgd{}, -1) == "no exception");
}

BOOST_AUTO_TEST_SUITE_END()
