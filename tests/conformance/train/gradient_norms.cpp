// SPDX-License-Identifier: BSL-1.0
//
// Norms of gradients under every strategy, against what plain gradient descent has made of the weights, and against one
// process.
#include "gradus/train/gradient_norms.hpp"
#include "gradus/comm/any_communicator.hpp"

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/training_runs.hpp"
#include "../../support/waiting.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/trainer.hpp"

namespace gradient_norm_tests {

namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;
using gradus_test::contains;

constexpr optim::sgd plain{};
constexpr optim::sgd momentum{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
constexpr optim::update<optim::sgd> clipped{.rule = momentum, .max_norm = 0.5};
constexpr double rate = 0.1;

struct outcome {
  std::vector<train::gradient_norms_report> reports;
  std::vector<std::vector<std::vector<double>>> weights;  // before the first step and after each, by parameter
  std::vector<double> of_rule;                            // step_report::gradient_norm
  bool trains = true;
};

struct setup {
  std::uint64_t every = 1;
  double learning_rate = rate;
  gradus::index_t max_batch_size = 8;
  gradus::index_t micro_batch_size = 0;
};

template <class Network>
std::vector<std::vector<double>> weights_of(Network& net) {
  std::vector<std::vector<double>> all;
  for (const auto& each : net.parameters()) {
    const auto values = each.copy_values();
    all.emplace_back(values.begin(), values.end());
  }
  return all;
}

template <class Element = double, class Communicator, class Strategy, class Rule = optim::sgd>
outcome run(Communicator& world, const Strategy& strategy, const Rule& rule = plain, const setup& how = {}) {
  namespace nn = gradus::nn;
  outcome result;
  if constexpr (requires { strategy.is_server_only(world); }) {
    if (strategy.is_server_only(world)) {
      static_cast<void>(parallel::serve<gradus::parameter_element_t<Element>>(world, rule, strategy));
      result.trains = false;
      return result;
    }
  }
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<Element, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  nn::network<Element, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = how.max_batch_size, .seed = 11, .micro_batch_size = how.micro_batch_size});
  train::trainer trainer{net, rule, world, strategy};
  result.weights.push_back(weights_of(net));
  train::gradient_norms norms{{.every = how.every, .on_measured = [&](const train::gradient_norms_report& report) {
                                 result.reports.push_back(report);
                               }}};
  trainer.fit(loader, {.epochs = 2, .learning_rate = how.learning_rate}, norms, [&](const train::step_report& step) {
    if (step.gradient_norm) {
      result.of_rule.push_back(*step.gradient_norm);
    }
    result.weights.push_back(weights_of(net));
  });
  return result;
}

template <class Rule = optim::sgd>
outcome run_alone(const Rule& rule = plain, const setup& how = {}) {
  gradus::comm::self alone;
  return run(alone, parallel::all_reduce{}, rule, how);
}

bool close(double have, double want, double tolerance) {
  return std::abs(have - want) <= tolerance * std::abs(want);
}

/// Whether the norms are those of (w before the step - w after it) / rate: plain gradient descent.
bool fits_weights(const train::gradient_norms_report& report, const outcome& ran, double tolerance) {
  const auto& before = ran.weights.at(static_cast<std::size_t>(report.step));
  const auto& after = ran.weights.at(static_cast<std::size_t>(report.step) + 1);
  bool right = report.parameters.size() == before.size();
  double all = 0;
  for (std::size_t k = 0; right && k < before.size(); ++k) {
    double squares = 0;
    for (std::size_t i = 0; i < before[k].size(); ++i) {
      const double gradient = (before[k][i] - after[k][i]) / rate;
      squares += gradient * gradient;
    }
    right = close(report.parameters[k].norm, std::sqrt(squares), tolerance);
    all += squares;
  }
  return right && report.all > 0 && close(report.all, std::sqrt(all), tolerance);
}

bool same(const std::vector<train::gradient_norms_report>& have, const std::vector<train::gradient_norms_report>& want,
          double tolerance) {
  bool right = have.size() == want.size() && !want.empty();
  for (std::size_t r = 0; right && r < have.size(); ++r) {
    right = have[r].step == want[r].step && have[r].parameters.size() == want[r].parameters.size() &&
            close(have[r].all, want[r].all, tolerance);
    for (std::size_t k = 0; right && k < have[r].parameters.size(); ++k) {
      right = have[r].parameters[k].name == want[r].parameters[k].name &&
              close(have[r].parameters[k].norm, want[r].parameters[k].norm, tolerance);
    }
  }
  return right;
}

/// All ranks that train have these norms, the same bits on all of them.
void require_same(const std::vector<outcome>& ranks, const outcome& want, std::string_view name,
                  double tolerance = 1e-8) {
  BOOST_TEST_CONTEXT(name << " on " << ranks.size() << " ranks") {
    for (const outcome& rank : ranks) {
      if (rank.trains) {
        BOOST_TEST(same(rank.reports, want.reports, tolerance));
        BOOST_TEST(same(rank.reports, ranks.front().reports, 0));
      }
    }
  }
}

template <class Rule>
void check_strategies(const Rule& rule) {
  using parallel::parameter_server;
  const outcome want = run_alone(rule, {.every = 3});
  const auto check = [&](int count, const auto& strategy, std::string_view name) {
    require_same(gradus::comm::run_ranks(count, [&](auto& world) { return run(world, strategy, rule, {.every = 3}); }),
                 want, name);
  };
  for (const int count : {2, 3}) {
    check(count, parallel::all_reduce{}, "all_reduce");
    check(count, parallel::all_reduce{.bucket_bytes = 64, .first_bucket_bytes = 64, .overlap_forward = true},
          "all_reduce behind forward");
    check(count, parallel::sharded_update{}, "sharded_update in memory");
    require_same(gradus::comm::run_ranks(
                     count,
                     [&](gradus::comm::threads& world) {
                       gradus::comm::collectives around{world.duplicate()};
                       return run(around, parallel::sharded_update{.bucket_bytes = 500, .first_bucket_bytes = 500},
                                  rule, {.every = 3});
                     }),
                 want, "sharded_update by messages");
  }
  check(1, parameter_server{.colocate = true}, "a server beside its worker");
  check(3, parameter_server{.servers = 1}, "one server");
  check(5, parameter_server{.servers = 2, .placed = {.policy = parallel::placement_policy::greedy}}, "two servers");
  check(3, parameter_server{.servers = 0, .colocate = true, .overlap_forward = true}, "pulls behind forward");
  check(6, parallel::distributed_replicated{.master = {.servers = 2}, .ranks_per_node = 2}, "distributed_replicated");
  check(3, parallel::model_averaging{.synchronous_steps = 1000}, "model_averaging, synchronous");
}

BOOST_AUTO_TEST_SUITE(gradient_norms)

BOOST_AUTO_TEST_CASE(are_those_of_the_gradients_that_plain_descent_subtracts) {
  for (const std::uint64_t every : {1U, 2U, 5U}) {
    const outcome one = run_alone(plain, {.every = every});
    BOOST_TEST(one.reports.size() == 14 / every);
    for (std::size_t r = 0; r < one.reports.size(); ++r) {
      BOOST_TEST(one.reports[r].step == (r + 1) * every - 1);
      BOOST_TEST(fits_weights(one.reports[r], one, 1e-9), "step " << one.reports[r].step);
    }
  }
}

BOOST_AUTO_TEST_CASE(change_nothing_in_the_training) {
  BOOST_TEST((run_alone(momentum, {.every = 1}).weights == run_alone(momentum, {.every = 1000}).weights));
  BOOST_TEST(run_alone(momentum, {.every = 1000}).reports.empty());
  const auto weights = [](std::uint64_t every) {
    return gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
      gradus::comm::collectives around{world.duplicate()};
      return run(around, parallel::sharded_update{}, momentum, {.every = every}).weights;
    });
  };
  BOOST_TEST((weights(1) == weights(1000)));
}

// The rule may clip, or not: with a clipping one they are the norms that it reports, before they were clipped.
BOOST_AUTO_TEST_CASE(on_ranks_and_servers_are_those_of_one_process) {
  check_strategies(plain);
  check_strategies(momentum);
  check_strategies(clipped);
  const outcome one = run_alone(clipped);
  BOOST_TEST(one.of_rule.size() == one.reports.size());
  for (std::size_t r = 0; r < one.reports.size(); ++r) {
    BOOST_TEST(close(one.reports[r].all, one.of_rule[r], 1e-12));
  }
}

// Of a network in stages all ranks have those of all stages, frozen layers and layers without parameters left out.
BOOST_AUTO_TEST_CASE(of_stages_are_those_of_one_process) {
  const auto check = [](const auto& rule) {
    const outcome want = run_alone(rule, {.every = 2, .micro_batch_size = 2});
    const auto ranks_of = [&](int count, const parallel::hybrid& options) {
      return gradus::comm::run_ranks(count, [&](auto& world) {
        return run(world, options, rule, {.every = 2, .max_batch_size = 8 * options.stages / count});
      });
    };
    for (const int stages : {1, 2, 3}) {
      require_same(ranks_of(stages, {.stages = stages, .micro_batches = 4}), want, "a pipeline", 0);
      require_same(ranks_of(2 * stages, {.stages = stages, .micro_batches = 2}), want, "two replicas");
    }
    require_same(ranks_of(2, {.stages = 2, .micro_batches = 4, .schedule = parallel::zero_bubble}), want, "split", 0);
  };
  check(plain);
  check(momentum);
  check(clipped);
  require_same(gradus::comm::run_ranks(2,
                                       [&](auto& world) {
                                         return run(world,
                                                    parallel::hybrid{.stages = 2,
                                                                     .micro_batches = 4,
                                                                     .schedule = parallel::one_f_one_b,
                                                                     .stages_per_rank = 2},
                                                    plain, {.every = 2});
                                       }),
               run_alone(plain, {.every = 2, .micro_batch_size = 2}), "interleaved", 0);
}

BOOST_AUTO_TEST_CASE(of_staged_servers_are_those_of_the_update) {
  const auto ranks = gradus::comm::run_ranks(
      3, [&](auto& world) { return run(world, parallel::parameter_server{.servers = 1, .staged = true}); });
  require_same(ranks, ranks.front(), "staged", 0);
  for (const train::gradient_norms_report& each : ranks[0].reports) {  // measured each step, the values are the newest
    BOOST_TEST(fits_weights(each, ranks[0], 1e-8), "step " << each.step);
  }
}

// Of the sums as they travelled: their update is what the weights show.
BOOST_AUTO_TEST_CASE(of_rounded_gradients_are_those_of_the_update) {
  const auto ranks = gradus::comm::run_ranks(
      3, [](auto& world) { return run(world, parallel::compressed_all_reduce<gradus::bfloat16>{}); });
  require_same(ranks, ranks.front(), "compressed_all_reduce", 0);
  for (const train::gradient_norms_report& each : ranks[0].reports) {
    BOOST_TEST(fits_weights(each, ranks[0], 1e-9), "step " << each.step);
  }
  BOOST_TEST(same(ranks[0].reports, run_alone().reports, 0.1));
  BOOST_TEST(!same(ranks[0].reports, run_alone().reports, 1e-8));
}

BOOST_AUTO_TEST_CASE(with_model_averaging_are_those_of_the_own_gradient) {
  const auto ranks = gradus::comm::run_ranks(2, [](auto& world) { return run(world, parallel::model_averaging{}); });
  for (const outcome& rank : ranks) {
    BOOST_TEST(rank.reports.size() == 14U);
    for (const train::gradient_norms_report& each : rank.reports) {
      if (each.step != 7) {  // the end of the first epoch has averaged the weights before it
        BOOST_TEST(fits_weights(each, rank, 1e-8), "step " << each.step);
      }
    }
  }
  BOOST_TEST(!same(ranks[0].reports, ranks[1].reports, 0.01));
}

// At a rate of 0 the weights stay, and each worker has the gradients of model_averaging on as many ranks.
BOOST_AUTO_TEST_CASE(of_servers_that_do_not_wait_are_those_of_the_own_push) {
  using parallel::parameter_server;
  using parallel::server_mode;
  const setup still{.learning_rate = 0};
  const auto want =
      gradus::comm::run_ranks(2, [&](auto& world) { return run(world, parallel::model_averaging{}, plain, still); });
  BOOST_TEST(!same(want[0].reports, want[1].reports, 0.01));
  for (const parameter_server& servers : {parameter_server{.servers = 1, .mode = server_mode::asynchronous},
                                          parameter_server{.servers = 1, .mode = server_mode::bounded_staleness},
                                          parameter_server{.servers = 1, .mode = server_mode::compat},
                                          parameter_server{.servers = 1, .backup_workers = 1}}) {
    const auto ranks = gradus::comm::run_ranks(3, [&](auto& world) { return run(world, servers, plain, still); });
    for (const std::size_t rank : {0U, 1U}) {
      BOOST_TEST(same(ranks[rank].reports, want[rank].reports, 1e-9), servers.settings().describe());
    }
  }
  const auto nodes = gradus::comm::run_ranks(5, [&](auto& world) {
    return run(world,
               parallel::distributed_replicated{.master = {.servers = 1, .mode = server_mode::asynchronous},
                                                .ranks_per_node = 2},
               plain, still);
  });
  for (const std::size_t rank : {0U, 1U, 2U, 3U}) {
    BOOST_TEST(same(nodes[rank].reports, want[rank / 2].reports, 1e-9), "worker " << rank << " of two nodes");
  }
}

BOOST_AUTO_TEST_CASE(of_reproducible_training_are_the_same_bits_on_any_number_of_ranks) {
  using parallel::reproducible;
  const setup how{.every = 2, .max_batch_size = 1};
  gradus::comm::self alone;
  const outcome want = run<float>(alone, reproducible{parallel::all_reduce{}}, momentum, how);
  const auto check = [&](int count, const auto& strategy, std::string_view name) {
    require_same(gradus::comm::run_ranks(
                     count, [&](auto& world) { return run<float>(world, reproducible{strategy}, momentum, how); }),
                 want, name, 0);
  };
  for (const int count : {2, 4}) {
    check(count, parallel::all_reduce{}, "all_reduce");
    check(count, parallel::sharded_update{}, "sharded_update");
    require_same(gradus::comm::run_ranks(count,
                                         [&](gradus::comm::threads& world) {
                                           gradus::comm::collectives around{world.duplicate()};
                                           return run<float>(around,
                                                             reproducible{parallel::sharded_update{
                                                                 .bucket_bytes = 500, .first_bucket_bytes = 500}},
                                                             momentum, how);
                                         }),
                 want, "sharded_update by messages", 0);
    check(count + 1, parallel::parameter_server{.servers = 1}, "a server");
  }
}

// The gradients are multiplied by the scale of their step, which changes here: the norms are those of the rule.
BOOST_AUTO_TEST_CASE(of_scaled_losses_are_divided_by_the_scale_of_their_step) {
  const auto rule_of = [](double initial) {
    return optim::update<optim::sgd>{.rule = plain,
                                     .max_norm = std::numeric_limits<double>::infinity(),
                                     .loss_scaling = {.initial = initial, .growth_interval = 2}};
  };
  gradus::comm::self alone;
  const outcome one = run<gradus::float16>(alone, parallel::all_reduce{}, rule_of(2));
  BOOST_TEST(one.reports.size() == 13U);  // not the step that begins the fit
  BOOST_TEST(one.of_rule.size() == 14U);
  for (std::size_t r = 0; r < one.reports.size(); ++r) {
    BOOST_TEST(one.reports[r].step == r + 1);
    BOOST_TEST(close(one.reports[r].all, one.of_rule[r + 1], 1e-12));
  }
  const outcome skips = run<gradus::float16>(alone, parallel::all_reduce{}, rule_of(0x1p20));
  BOOST_TEST(skips.of_rule.size() < 13U);
  BOOST_TEST(!std::isfinite(skips.reports.front().all));
}

BOOST_AUTO_TEST_CASE(are_text) {
  train::gradient_norms_report report{.step = 99, .all = 4, .parameters = {}};
  report.parameters.push_back({.name = "conv1.weight", .norm = 0.25});
  BOOST_TEST(train::to_string(report) ==
             "gradient norm 4.00e+00  step 99\n"
             "  gradient norm 2.50e-01  conv1.weight\n");
}

BOOST_AUTO_TEST_CASE(keep_the_last_report) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  gradus::nn::network<float, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  train::trainer trainer{net, plain};
  train::gradient_norms norms{{.every = 5}};
  BOOST_TEST(norms.last() == nullptr);
  trainer.fit(loader, {.epochs = 1, .learning_rate = rate}, norms);
  BOOST_TEST_REQUIRE(norms.last() != nullptr);
  BOOST_TEST(norms.last()->step == 4U);
}

template <class Base, class Element>
class own_strategy_state : public Base {
 public:
  template <class Options>
  own_strategy_state(const Options&, const gradus::comm::any_communicator&,
                     const parallel::flat_parameters<Element>& parameters)
      : parameters_{parameters} {}
  [[nodiscard]] std::string describe() const override { return "a strategy of the program\nwith a plan"; }
  void start() override {}
  void finish(const parallel::update_call& update) override { update(parameters_.segments); }

 protected:
  parallel::flat_parameters<Element> parameters_;
};

/// A strategy whose ranks update parts, and which does not say how gradients are gathered.
struct own_parts {
  static constexpr std::string_view name = "own_parts";

  template <class Element>
  class state final : public own_strategy_state<parallel::partial_strategy<Element>, Element> {
   public:
    using own_strategy_state<parallel::partial_strategy<Element>, Element>::own_strategy_state;
    void gather_state() override {}
  };
};

BOOST_AUTO_TEST_CASE(of_a_strategy_that_does_not_give_the_gradients_are_refused) {
  gradus::comm::self alone;
  BOOST_CHECK_EXCEPTION(run(alone, own_parts{}), gradus::configuration_error, [](const auto& failure) {
    return contains(failure.what(),
                    "a strategy that gives the gradients of the last update, got a strategy of the "
                    "program.") &&
           contains(failure.what(), "override gather_gradients") && contains(failure.what(), "gradient_norms.cpp");
  });
}

BOOST_AUTO_TEST_CASE(refuse_options_that_make_no_sense) {
  BOOST_CHECK_EXCEPTION(train::gradient_norms{{.every = 0}}, gradus::configuration_error, [](const auto& failure) {
    return contains(failure.what(), "gradient_norms: expected every of at least 1 step, got 0");
  });
  std::string message;
  try {
    gradus::comm::run_ranks(2, [](auto& world) {
      return run(world, parallel::all_reduce{}, plain, {.every = world.rank() == 0 ? 2U : 3U});
    });
  } catch (const gradus::configuration_error& failure) {
    message = failure.what();
  }
  BOOST_TEST(contains(message, "every"), message);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace gradient_norm_tests
