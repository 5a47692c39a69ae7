// SPDX-License-Identifier: BSL-1.0
//
// The ratio of updates to weights, against its definition in double, and on ranks against one process.
#include "gradus/train/update_ratio.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/training_runs.hpp"
#include "../../support/waiting.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/train/trainer.hpp"

namespace update_ratio_tests {

namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
namespace train = gradus::train;
using gradus_test::contains;

constexpr optim::sgd momentum{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

/// The weights after each step, as this test copies them.
struct recorded_weights {
  std::vector<std::vector<double>>* weights;

  template <class Trainer>
  void on_step(Trainer& trainer, const train::step_report& /*step*/) {
    std::vector<double>& all = weights->emplace_back();
    for (const auto& each : trainer.network().parameters()) {
      const auto values = each.copy_values();
      all.insert(all.end(), values.begin(), values.end());
    }
  }
};

struct parameter_range {
  std::string name;
  std::size_t size;
};

struct outcome {
  std::vector<train::update_ratio_report> reports;
  std::vector<std::vector<double>> weights;  // after each step
  std::vector<parameter_range> parameters;   // in the order of network::parameters()
  std::vector<double> norms;                 // of the gradients
  bool trains = true;
};

template <class Element = double, class Communicator, class Strategy, class Rule = optim::sgd>
outcome run(Communicator& world, const Strategy& strategy, std::uint64_t every, const Rule& rule = momentum,
            int fits = 1) {
  namespace nn = gradus::nn;
  outcome result;
  if constexpr (requires { strategy.is_server_only(world); }) {
    if (strategy.is_server_only(world)) {
      static_cast<void>(parallel::serve<double>(world, rule, strategy));
      result.trains = false;
      return result;
    }
  }
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<Element, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
  nn::network<Element, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 11});
  for (const auto& each : net.parameters()) {
    result.parameters.push_back({each.name(), each.copy_values().size()});
  }
  train::trainer trainer{net, rule, world, strategy};
  train::update_ratio ratios{{.every = every, .on_measured = [&](const train::update_ratio_report& report) {
                                result.reports.push_back(report);
                              }}};
  for (int fit = 0; fit < fits; ++fit) {
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.1}, ratios, recorded_weights{&result.weights},
                [&](const train::step_report& step) {
                  if (step.gradient_norm) {
                    result.norms.push_back(*step.gradient_norm);
                  }
                });
    for (auto& value : net.trained_values()) {  // between fits the program may write weights
      value += 1;
    }
  }
  return result;
}

template <class Strategy = parallel::all_reduce>
outcome run_alone(std::uint64_t every, int fits = 1) {
  gradus::comm::self alone;
  return run(alone, Strategy{}, every, momentum, fits);
}

bool close(double have, double want, double tolerance = 1e-9) {
  return have == want || std::abs(have - want) <= tolerance * std::abs(want);
}

/// Whether a report has the norms of the weights that a run has copied before and after the step.
bool fits_definition(const train::update_ratio_report& report, const outcome& ran) {
  const std::vector<double>& before = ran.weights[static_cast<std::size_t>(report.step) - 1];
  const std::vector<double>& after = ran.weights[static_cast<std::size_t>(report.step)];
  bool right = report.parameters.size() == ran.parameters.size();
  long double all_weights = 0;
  long double all_updates = 0;
  std::size_t i = 0;
  for (std::size_t k = 0; right && k < ran.parameters.size(); ++k) {
    long double weight = 0;
    long double update = 0;
    for (const std::size_t end = i + ran.parameters[k].size; i < end; ++i) {
      weight += static_cast<long double>(before[i]) * before[i];
      update += static_cast<long double>(after[i] - before[i]) * (after[i] - before[i]);
    }
    const train::update_norms& have = report.parameters[k];
    right = have.name == ran.parameters[k].name && close(have.weight, std::sqrt(static_cast<double>(weight))) &&
            close(have.update, std::sqrt(static_cast<double>(update))) &&
            close(have.ratio(), std::sqrt(static_cast<double>(update / weight)));
    all_weights += weight;
    all_updates += update;
  }
  return right && i == before.size() && close(report.all.weight, std::sqrt(static_cast<double>(all_weights))) &&
         close(report.all.update, std::sqrt(static_cast<double>(all_updates))) &&
         close(report.all.ratio(), std::sqrt(static_cast<double>(all_updates / all_weights)));
}

bool same(const std::vector<train::update_ratio_report>& have, const std::vector<train::update_ratio_report>& want,
          double tolerance) {
  bool right = have.size() == want.size();
  for (std::size_t r = 0; right && r < have.size(); ++r) {
    right = have[r].step == want[r].step && have[r].parameters.size() == want[r].parameters.size() &&
            close(have[r].all.ratio(), want[r].all.ratio(), tolerance);
    for (std::size_t k = 0; right && k < have[r].parameters.size(); ++k) {
      right = have[r].parameters[k].name == want[r].parameters[k].name &&
              close(have[r].parameters[k].update, want[r].parameters[k].update, tolerance) &&
              close(have[r].parameters[k].weight, want[r].parameters[k].weight, tolerance);
    }
  }
  return right;
}

template <class Strategy>
void check(int count, const Strategy& strategy, std::string_view name, const outcome& want) {
  const auto ranks = gradus::comm::run_ranks(count, [&](auto& world) { return run(world, strategy, 3); });
  BOOST_TEST_CONTEXT(name << " on " << count << " ranks") {
    for (const outcome& rank : ranks) {
      if (rank.trains) {
        BOOST_TEST(same(rank.reports, want.reports, 1e-8));
        BOOST_TEST(same(rank.reports, ranks.front().reports, 0));  // the same bits on all ranks
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE(update_ratios)

BOOST_AUTO_TEST_CASE(are_those_of_the_definition) {
  for (const std::uint64_t every : {1U, 2U, 3U, 5U}) {
    const outcome one = run_alone(every);
    BOOST_TEST(one.weights.size() == 14U);
    std::vector<std::uint64_t> steps;
    for (std::uint64_t step = 1; step < 14; ++step) {  // nothing is copied before step 0
      if ((step + 1) % every == 0) {
        steps.push_back(step);
      }
    }
    BOOST_TEST(one.reports.size() == steps.size());
    for (std::size_t r = 0; r < one.reports.size() && r < steps.size(); ++r) {
      BOOST_TEST(one.reports[r].step == steps[r]);
      BOOST_TEST(fits_definition(one.reports[r], one), "step " << steps[r]);
      BOOST_TEST(one.reports[r].all.ratio() > 1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(of_16_bits_are_those_of_the_float_weights) {
  gradus::comm::self alone;
  const outcome one = run<gradus::bfloat16>(alone, parallel::all_reduce{}, 2);
  BOOST_TEST(one.reports.size() == 7U);
  for (const train::update_ratio_report& each : one.reports) {
    BOOST_TEST(fits_definition(each, one));
  }
}

BOOST_AUTO_TEST_CASE(change_nothing_in_the_training) {
  BOOST_TEST((run_alone(1).weights == run_alone(1000).weights));
  BOOST_TEST(run_alone(1000).reports.empty());
}

BOOST_AUTO_TEST_CASE(do_not_count_what_the_program_writes_between_fits) {
  const outcome twice = run_alone(1, 2);
  BOOST_TEST(twice.reports.size() == 26U);  // not the first step of a fit
  BOOST_TEST(twice.reports[13].step == 15U);
  for (const train::update_ratio_report& each : twice.reports) {
    BOOST_TEST(fits_definition(each, twice));
  }
}

BOOST_AUTO_TEST_CASE(on_ranks_are_those_of_one_process) {
  const outcome want = run_alone(3);
  for (const int count : {2, 3}) {
    check(count, parallel::all_reduce{}, "all_reduce", want);
    check(count, parallel::all_reduce{.bucket_bytes = 64, .first_bucket_bytes = 64, .overlap_forward = true},
          "all_reduce behind forward", want);
    check(count, parallel::sharded_update{}, "sharded_update in memory", want);
    const auto ranks = gradus::comm::run_ranks(count, [&](gradus::comm::threads& world) {
      gradus::comm::collectives around{world.duplicate()};
      return run(around, parallel::sharded_update{.bucket_bytes = 500, .first_bucket_bytes = 500}, 3);
    });
    for (const outcome& rank : ranks) {
      BOOST_TEST(same(rank.reports, want.reports, 1e-8), "sharded_update by messages");
      BOOST_TEST(same(rank.reports, ranks.front().reports, 0));
    }
  }
  check(2, parallel::parameter_server{.servers = 1}, "one server", want);
  check(4, parallel::parameter_server{.servers = 2}, "two servers", want);
  check(3, parallel::parameter_server{.servers = 0, .colocate = true, .overlap_forward = true}, "pulls behind forward",
        want);
  check(3, parallel::model_averaging{.synchronous_steps = 1000}, "model_averaging, synchronous", want);
  for (const int stages : {1, 2, 3}) {
    check(stages, parallel::hybrid{.stages = stages, .micro_batches = 4}, "a pipeline", want);
    check(2 * stages, parallel::hybrid{.stages = stages, .micro_batches = 4}, "two replicas of a pipeline", want);
  }
}

BOOST_AUTO_TEST_CASE(of_weights_that_are_all_zero_are_infinite_or_zero) {
  BOOST_TEST((train::update_norms{.name = {}, .weight = 0, .update = 0}.ratio()) == 0);
  BOOST_TEST((train::update_norms{.name = {}, .weight = 2, .update = 0}.ratio()) == 0);
  BOOST_TEST((train::update_norms{.name = {}, .weight = 0, .update = 1}.ratio()) ==
             std::numeric_limits<double>::infinity());
}

BOOST_AUTO_TEST_CASE(are_text) {
  train::update_ratio_report report{.step = 99, .all = {.name = {}, .weight = 4, .update = 0.002}, .parameters = {}};
  report.parameters.push_back({.name = "conv1.weight", .weight = 2, .update = 0.001});
  BOOST_TEST(train::to_string(report) ==
             "ratio 5.00e-04 = 2.00e-03 / 4.00e+00  step 99\n"
             "  ratio 5.00e-04 = 1.00e-03 / 2.00e+00  conv1.weight\n");
}

BOOST_AUTO_TEST_CASE(refuse_options_that_make_no_sense) {
  BOOST_CHECK_EXCEPTION(train::update_ratio{{.every = 0}}, gradus::configuration_error, [](const auto& failure) {
    return contains(failure.what(), "update_ratio: expected every of at least 1 step, got 0");
  });
  std::string message;
  try {
    gradus::comm::run_ranks(2,
                            [](auto& world) { return run(world, parallel::all_reduce{}, world.rank() == 0 ? 2 : 3); });
  } catch (const gradus::configuration_error& failure) {
    message = failure.what();
  }
  BOOST_TEST(contains(message, "every"), message);
}

// An infinite limit is the bare rule, and every step has the norm.
BOOST_AUTO_TEST_CASE(watched_norms_change_nothing_in_the_training) {
  gradus::comm::self alone;
  const outcome bare = run_alone(1000);
  const outcome watched = run(alone, parallel::all_reduce{}, 1000,
                              optim::update{.rule = momentum, .max_norm = std::numeric_limits<double>::infinity()});
  BOOST_TEST((bare.weights == watched.weights));
  BOOST_TEST(bare.norms.empty());
  BOOST_TEST(watched.norms.size() == 14U);
  BOOST_TEST(watched.norms.front() > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace update_ratio_tests
