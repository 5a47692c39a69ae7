// SPDX-License-Identifier: BSL-1.0
//
// model_averaging with an outer optimizer, compared with the algorithm written out for all ranks in one loop.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/core/error.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/model_averaging.hpp"

namespace outer_optimizer {

namespace comm = gradus::comm;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using gradus::index_t;

/// Two parameters with a gap between them; the first has a learning rate of its own.
const std::vector<optim::segment>& two_segments() {
  static const std::vector<optim::segment> segments{
      {.name = "a", .offset = 0, .size = 37, .learning_rate_factor = 0.25},
      {.name = "b", .offset = 48, .size = 20, .decay = false}};
  return segments;
}
constexpr std::size_t elements = 68;
constexpr double inner_rate = 0.1;

/// The gradient of a rank: parts of a mean over the ranks, as a trainer computes them.
double gradient_of(int rank, int ranks, int step, std::size_t i, double value) {
  return (value + std::sin(static_cast<double>(i) + 3.0 * rank + 0.7 * step)) / ranks;
}

/// The values of each rank after some steps of plain gradient descent.
template <class Element>
std::vector<std::vector<Element>> train(int ranks, int steps, const parallel::model_averaging& options) {
  return comm::run_ranks(ranks, [&](comm::threads& world) {
    std::vector<Element> values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      values[i] = static_cast<Element>(world.rank() == 0 ? std::cos(static_cast<double>(i)) : 7.0);
    }
    std::vector<Element> gradients(elements);
    const auto state = parallel::make_strategy<Element>(
        options, world, parallel::flat_parameters<Element>{values, gradients, two_segments()});
    state->start();
    for (int step = 0; step < steps; ++step) {
      for (const optim::segment& each : two_segments()) {
        for (auto i = static_cast<std::size_t>(each.offset); i < static_cast<std::size_t>(each.offset + each.size);
             ++i) {
          gradients[i] =
              static_cast<Element>(gradient_of(world.rank(), world.size(), step, i, static_cast<double>(values[i])));
        }
      }
      state->end_of_step(inner_rate);
      state->finish([&](std::span<const optim::segment> ready) {
        for (const optim::segment& each : ready) {
          for (auto i = static_cast<std::size_t>(each.offset); i < static_cast<std::size_t>(each.offset + each.size);
               ++i) {
            values[i] -= static_cast<Element>(inner_rate * each.learning_rate_factor) * gradients[i];
          }
        }
      });
    }
    state->complete();
    return values;
  });
}

/// Algorithm 1 of the paper in double, with the formula of an outer rule.
template <class Outer>
std::vector<double> reference(int ranks, int steps, int every, int synchronous, Outer outer_step) {
  std::vector<double> last(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    last[i] = std::cos(static_cast<double>(i));
  }
  std::vector<std::vector<double>> values(static_cast<std::size_t>(ranks), last);
  int exchanges = 0;
  const auto exchange = [&] {
    for (const optim::segment& each : two_segments()) {
      for (auto i = static_cast<std::size_t>(each.offset); i < static_cast<std::size_t>(each.offset + each.size); ++i) {
        double change = 0;
        for (const auto& of_rank : values) {
          change += (last[i] - of_rank[i]) / ranks;
        }
        outer_step(i, last[i], change, exchanges);
      }
    }
    ++exchanges;
    values.assign(values.size(), last);
  };
  bool apart = false;
  for (int step = 0; step < steps; ++step) {
    const auto before = values;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const optim::segment& each : two_segments()) {
        for (auto i = static_cast<std::size_t>(each.offset); i < static_cast<std::size_t>(each.offset + each.size);
             ++i) {
          double gradient = ranks * gradient_of(rank, ranks, step, i, before[static_cast<std::size_t>(rank)][i]);
          if (step < synchronous) {
            gradient = 0;
            for (int other = 0; other < ranks; ++other) {
              gradient += gradient_of(other, ranks, step, i, before[static_cast<std::size_t>(other)][i]);
            }
          }
          values[static_cast<std::size_t>(rank)][i] -= inner_rate * each.learning_rate_factor * gradient;
        }
      }
    }
    if (step < synchronous) {
      last = values[0];
      continue;
    }
    apart = true;
    if (every > 0 && (step + 1 - synchronous) % every == 0) {
      exchange();
      apart = false;
    }
  }
  if (apart) {
    exchange();
  }
  return last;
}

/// SGD with momentum, as torch.optim.SGD.
struct sgd_formula {
  double rate;
  double momentum;
  bool nesterov;
  double weight_decay = 0;
  std::vector<double> velocity = std::vector<double>(elements);

  void operator()(std::size_t i, double& value, double gradient, int /*step*/) {
    gradient += i < 48 ? weight_decay * value : 0;
    velocity[i] = momentum * velocity[i] + gradient;
    value -= rate * (nesterov ? gradient + momentum * velocity[i] : velocity[i]);
  }
};

struct adam_formula {
  double rate;
  std::vector<double> first = std::vector<double>(elements);
  std::vector<double> second = std::vector<double>(elements);

  void operator()(std::size_t i, double& value, double gradient, int step) {
    first[i] = 0.9 * first[i] + 0.1 * gradient;
    second[i] = 0.999 * second[i] + 0.001 * gradient * gradient;
    value -= rate * first[i] / (1 - std::pow(0.9, step + 1)) /
             (std::sqrt(second[i] / (1 - std::pow(0.999, step + 1))) + 1e-8);
  }
};

void check(const std::vector<std::vector<double>>& ranks, const std::vector<double>& want, double tolerance) {
  for (const auto& values : ranks) {
    BOOST_TEST((values == ranks[0]));
  }
  double largest = 0;
  for (const optim::segment& each : two_segments()) {
    for (auto i = static_cast<std::size_t>(each.offset); i < static_cast<std::size_t>(each.offset + each.size); ++i) {
      largest = std::max(largest, std::abs(ranks[0][i] - want[i]));
    }
  }
  BOOST_TEST(largest < tolerance);
}

void check_message(const parallel::model_averaging& options, std::string_view part) {
  try {
    (void)train<float>(1, 1, options);
    BOOST_ERROR("no error with " << part);
  } catch (const gradus::configuration_error& failure) {
    BOOST_CHECK_MESSAGE(std::string_view{failure.what()}.find(part) != std::string_view::npos,
                        failure.what() << " has no " << part);
  }
}

BOOST_AUTO_TEST_SUITE(parallel_outer_optimizer)

BOOST_AUTO_TEST_CASE(is_the_algorithm_of_the_paper) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const int every : {1, 4, 0}) {
      for (const int synchronous : {0, 3}) {
        BOOST_TEST_CONTEXT(ranks << " ranks, every " << every << ", " << synchronous << " synchronous") {
          const auto with = [&](const parallel::outer_optimizer& outer, double rate) {
            return train<double>(
                ranks, 14,
                {.every_steps = every, .synchronous_steps = synchronous, .outer = outer, .outer_learning_rate = rate});
          };
          check(with(optim::sgd{.momentum = 0.9, .nesterov = true}, 0.7),
                reference(ranks, 14, every, synchronous, sgd_formula{0.7, 0.9, true}), 1e-12);
          check(with(optim::sgd{.momentum = 0.5, .weight_decay = 0.01}, 0.3),
                reference(ranks, 14, every, synchronous, sgd_formula{0.3, 0.5, false, 0.01}), 1e-12);
          check(with(optim::adam{}, 0.05), reference(ranks, 14, every, synchronous, adam_formula{0.05}), 1e-9);
        }
      }
    }
  }
}

// A step of sgd at a rate of 1 is p - (p - mean), which is the mean but for the rounding of two differences.
BOOST_AUTO_TEST_CASE(of_sgd_at_rate_1_is_the_mean_to_rounding) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const int every : {1, 4, 0}) {
      const parallel::model_averaging plain{.every_steps = every, .synchronous_steps = 2};
      parallel::model_averaging outer = plain;
      outer.outer = optim::sgd{};
      outer.outer_learning_rate = 1;
      const auto want = train<float>(ranks, 14, plain);
      const auto found = train<float>(ranks, 14, outer);
      for (std::size_t i = 0; i < elements; ++i) {
        BOOST_TEST(std::abs(found[0][i] - want[0][i]) <= 14 * 2 * std::numeric_limits<float>::epsilon());
        BOOST_TEST(found.back()[i] == found[0][i]);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(clips_the_change_of_all_ranks) {
  const optim::update<optim::sgd> clipped{.max_norm = 0.01};
  const auto values = train<double>(3, 4, {.every_steps = 4, .outer = clipped, .outer_learning_rate = 1});
  double squares = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const double moved = values[0][i] - std::cos(static_cast<double>(i));
    squares += moved * moved;
  }
  BOOST_TEST(std::abs(std::sqrt(squares) - 0.01) < 1e-5);
}

BOOST_AUTO_TEST_CASE(refuses_what_makes_no_sense) {
  check_message({.outer = optim::sgd{}, .outer_learning_rate = 0}, "outer_learning_rate above 0");
  check_message({.outer = optim::sgd{}, .outer_learning_rate = std::numeric_limits<double>::infinity()},
                "outer_learning_rate above 0");
  check_message({.outer_learning_rate = 0.5}, "an outer optimizer for outer_learning_rate");
  check_message({.outer = optim::sgd{.nesterov = true}}, "momentum above 0 with nesterov");
  check_message({.outer = optim::update{.rule = optim::sgd{}, .loss_scaling = {}}}, "does not scale a loss");
}

BOOST_AUTO_TEST_CASE(ranks_compare_it) {
  const auto all = comm::run_ranks(1, [](comm::threads& world) {
    std::vector<float> values(elements);
    std::vector<float> gradients(elements);
    const parallel::flat_parameters<float> flat{values, gradients, two_segments()};
    return std::vector<std::string>{
        parallel::make_strategy<float>(parallel::model_averaging{.outer = optim::sgd{.momentum = 0.9}}, world, flat)
            ->describe(),
        parallel::make_strategy<float>(parallel::model_averaging{}, world, flat)->describe()};
  });
  const std::vector<std::string>& texts = all[0];
  BOOST_TEST(
      texts[0].find(", outer " + optim::sgd{.momentum = 0.9}.description() + " at rate 0.7") != std::string::npos,
      texts[0]);
  BOOST_TEST(texts[1].find("outer") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace outer_optimizer
