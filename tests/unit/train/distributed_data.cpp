// SPDX-License-Identifier: BSL-1.0
//
// Examples that are spread over ranks in any way make the training of one process that has all of them.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/data/distributed.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/metrics.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"

BOOST_AUTO_TEST_SUITE(distributed_data)

namespace {

namespace comm = gradus::comm;
namespace data = gradus::data;
namespace nn = gradus::nn;
namespace train = gradus::train;
using gradus::index_t;

constexpr index_t all_examples = 37;

/// Examples [first, first + count) of (2, 3, 4) with targets of (1, 3, 4), or a class.
struct examples {
  std::vector<double> inputs;
  std::vector<double> fields;
  std::vector<int> labels;
  std::vector<double> weights;

  examples(index_t first, index_t count) {
    for (index_t i = first; i < first + count; ++i) {
      for (index_t k = 0; k < 24; ++k) {
        inputs.push_back(std::sin(static_cast<double>(i * 24 + k)));
      }
      for (index_t k = 0; k < 12; ++k) {
        fields.push_back(std::cos(static_cast<double>(i * 7 + k * 3)));
      }
      labels.push_back(static_cast<int>(i % 3));
      weights.push_back(0.5 + static_cast<double>(i % 4));
    }
  }
  [[nodiscard]] auto x() const { return data::examples_of(inputs, {1, 2, 3, 4}); }
  [[nodiscard]] auto y() const { return data::examples_of(fields, {1, 1, 3, 4}); }
};

struct result_of_data {
  std::vector<double> weights;
  std::vector<double> numbers;  // losses of epochs, of an evaluation, metrics
};

/// @param spread  makes the set: spread(world, inputs, targets)
template <class Communicator, class Set, class Strategy>
result_of_data train_on(Communicator& world, const Set& set, const Strategy& strategy, bool classes) {
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<double, gradus::nhwc> loader{device, set, {.global_batch_size = 8, .seed = 4}};
  nn::network<double, gradus::nhwc> net{device, {2, 3, 4}};
  nn::value x =
      net.add("conv", nn::conv2d{.out_channels = 3, .kernel = {3, 3}, .padding = nn::padding::same()}, net.input());
  x = net.add("tanh", nn::tanh{}, x);
  if (classes) {
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, x));
  } else {
    net.loss(nn::mean_squared_error{}, net.add("field", nn::conv2d{.out_channels = 1, .kernel = {1, 1}}, x));
  }
  net.compile({.max_batch_size = 8, .seed = 2});
  train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world, strategy};
  result_of_data result;
  trainer.fit(loader, {.epochs = 3, .learning_rate = 0.1}, [&](const train::epoch_report& epoch) {
    result.numbers.push_back(epoch.loss);
    result.numbers.push_back(static_cast<double>(epoch.examples));
  });
  if (classes) {
    const auto [report, top] = trainer.evaluate(loader, gradus::metrics::top_k{2});
    result.numbers.insert(result.numbers.end(),
                          {report.loss, report.accuracy, static_cast<double>(report.labels), top});
  } else {
    const auto [report, r2] = trainer.evaluate(loader, gradus::metrics::r2{});
    result.numbers.insert(result.numbers.end(), {report.loss, static_cast<double>(report.examples), r2.mean});
  }
  result.weights.assign(net.values().begin(), net.values().end());
  return result;
}

void require_close(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  bool close = a.size() == b.size();
  for (std::size_t i = 0; close && i < a.size(); ++i) {
    close = std::fabs(a[i] - b[i]) <= 1e-11 * (1 + std::fabs(b[i]));
  }
  if (!close) {
    throw std::runtime_error{what + " differ from those of one process"};
  }
}

/// Shares of all examples.
const std::vector<std::vector<index_t>> shares_of_ranks{
    {37}, {20, 17}, {37, 0}, {0, 37}, {12, 0, 25}, {1, 35, 1}, {0, 0, 37}, {9, 9, 10, 9}, {30, 0, 7, 0}, {1, 1, 1, 34}};

template <class Strategy>
void require_one_meaning(const Strategy& strategy, const std::string& name) {
  for (const bool classes : {false, true}) {
    const examples whole{0, all_examples};
    comm::self one;
    const data::in_memory_options weights{.weights = whole.weights};
    const result_of_data want =
        classes ? train_on(one, data::in_memory(whole.x(), whole.labels, weights), gradus::parallel::all_reduce{}, true)
                : train_on(one, data::in_memory(whole.x(), whole.y(), weights), gradus::parallel::all_reduce{}, false);
    for (const std::vector<index_t>& shares : shares_of_ranks) {
      comm::run_ranks(static_cast<int>(shares.size()), [&](comm::threads& world) {
        index_t first = 0;
        for (int rank = 0; rank < world.rank(); ++rank) {
          first += shares[static_cast<std::size_t>(rank)];
        }
        const examples own{first, shares[static_cast<std::size_t>(world.rank())]};
        const data::in_memory_options own_weights{.weights = own.weights};
        const result_of_data have =
            classes ? train_on(world, data::distributed(world, own.x(), own.labels, own_weights), strategy, true)
                    : train_on(world, data::distributed(world, own.x(), own.y(), own_weights), strategy, false);
        require_close(have.weights, want.weights, name + ": weights");
        require_close(have.numbers, want.numbers, name + ": losses and metrics");
      });
    }
  }
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

void require_contained(const std::string& text, const std::string& part) {
  if (text.find(part) == std::string::npos) {
    throw std::runtime_error{"expected '" + part + "' in '" + text + "'"};
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_reduce_of_spread_examples) {
  require_one_meaning(gradus::parallel::all_reduce{}, "all_reduce");
}

BOOST_AUTO_TEST_CASE(sharded_update_of_spread_examples) {
  require_one_meaning(gradus::parallel::sharded_update{}, "sharded_update");
}

BOOST_AUTO_TEST_CASE(servers_of_spread_examples) {
  require_one_meaning(gradus::parallel::parameter_server{.servers = 0, .colocate = true}, "parameter_server");
}

// Half of a training on three ranks, and the rest on two that share the same examples in another way.
BOOST_AUTO_TEST_CASE(a_state_goes_on_with_other_shares) {
  const examples whole{0, all_examples};
  train::training_state state;
  std::vector<double> want;
  const auto run = [&](comm::threads& world, const std::vector<index_t>& shares, int part) {
    index_t first = 0;
    for (int rank = 0; rank < world.rank(); ++rank) {
      first += shares[static_cast<std::size_t>(rank)];
    }
    const examples own{first, shares[static_cast<std::size_t>(world.rank())]};
    const auto set = data::distributed(world, own.x(), own.y());
    gradus::cpu device{{.intra_op_threads = 1}};
    data::loader<double, gradus::nhwc> loader{device, set, {.global_batch_size = 8, .seed = 4}};
    nn::network<double, gradus::nhwc> net{device, {2, 3, 4}};
    net.loss(nn::mean_squared_error{}, net.add("field", nn::conv2d{.out_channels = 1, .kernel = {1, 1}}, net.input()));
    net.compile({.max_batch_size = 8, .seed = 2});
    train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world, gradus::parallel::all_reduce{}};
    train::training_state own_state;
    if (part == 1) {
      train::restore(trainer, state);
    }
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.1}, [&](const train::step_report& step) {
      if (part == 0 && step.step == 6) {  // within the second epoch
        train::capture(trainer, world.rank() == 0 ? state : own_state);
      }
    });
    const std::vector<double> weights{net.values().begin(), net.values().end()};
    if (part == 1) {
      require_close(weights, want, "weights");
    } else if (world.rank() == 0) {
      want = weights;
    }
  };
  comm::run_ranks(1, [&](comm::threads& world) { run(world, {37}, 0); });
  comm::run_ranks(3, [&](comm::threads& world) { run(world, {5, 0, 32}, 1); });
  comm::run_ranks(2, [&](comm::threads& world) { run(world, {20, 17}, 1); });
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_fit_together_get_errors) {
  comm::run_ranks(2, [](comm::threads& world) {
    const examples own{0, 4};
    const std::vector<double> other(24, 1.0);
    require_contained(message_of([&] {
                        static_cast<void>(data::distributed(
                            world, world.rank() == 0 ? own.x() : data::examples_of(own.inputs, {1, 4, 3, 2}), own.y()));
                      }),
                      "data::distributed: expected inputs and targets of one shape");
    const std::string refused = message_of([&] {
      const std::vector<double>& few = world.rank() == 0 ? own.fields : other;
      static_cast<void>(data::distributed(world, own.x(), data::examples_of(few, {1, 1, 3, 4})));
    });
    require_contained(refused, world.rank() == 0 ? "data::distributed: expected examples of each rank that fit together"
                                                 : "in_memory: expected a target for each of 4 examples");
    const examples none{0, 0};
    require_contained(message_of([&] { static_cast<void>(data::distributed(world, none.x(), none.y())); }),
                      "no examples on any rank");
    const auto set = data::distributed(world, own.x(), own.labels);
    gradus::cpu device{{.intra_op_threads = 1}};
    comm::self alone;
    require_contained(message_of([&] { train_on(alone, set, gradus::parallel::one_process{}, true); }),
                      "expected the ranks of the distributed data set");
  });
}

BOOST_AUTO_TEST_SUITE_END()
