// SPDX-License-Identifier: BSL-1.0
//
// Pipelines and their replicas on thread ranks: one meaning with one process that computes the same micro-batches.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "../../support/hybrid_training.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/clipped_norm.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/parallel/hybrid.hpp"
#include "gradus/parallel/pipeline/rule.hpp"

namespace hybrid_training {

namespace nn = gradus::nn;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using gradus_test::hybrid_setup;
using gradus_test::train_with_skips;
using gradus_test::values_of_ranks;

constexpr optim::sgd momentum{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

template <class Layout, class Rule>
void require_bits_of_one_process(const Rule& rule, const parallel::hybrid& options, const hybrid_setup& how) {
  BOOST_TEST_CONTEXT(options.stages << " ranks, " << options.stages_per_rank << " stages each, "
                                    << options.micro_batches << " micro-batches, " << options.schedule.name) {
    const auto want = gradus_test::train_alone(
        [&](auto& world, const auto& strategy, const hybrid_setup& whole) {
          return train_with_skips<Layout>(world, rule, strategy, whole);
        },
        how, options.micro_batches);
    const auto ranks = gradus::comm::run_ranks(
        options.stages, [&](auto& world) { return train_with_skips<Layout>(world, rule, options, how); });
    BOOST_TEST((values_of_ranks(ranks) == want.values));
    for (const auto& rank : ranks) {
      BOOST_TEST(rank.losses == want.losses, boost::test_tools::per_element());
      BOOST_TEST(rank.norms == want.norms, boost::test_tools::per_element());
      BOOST_TEST(rank.evaluation_loss == want.evaluation_loss);
      BOOST_TEST(rank.evaluation_accuracy == want.evaluation_accuracy);
      BOOST_TEST(rank.evaluated == want.evaluated);
      BOOST_TEST(rank.values.size() < (options.stages > 1 ? want.values.size() : want.values.size() + 1));
    }
  }
}

BOOST_AUTO_TEST_SUITE(hybrid)

BOOST_AUTO_TEST_CASE(a_pipeline_has_the_bits_of_one_process) {
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  for (const int stages : {1, 2, 3, 4, 8}) {
    for (const int micro_batches : {1, 2, 5, 12}) {
      const auto& rule = parallel::pipeline_rules[static_cast<std::size_t>(stages + micro_batches) % 3];
      require_bits_of_one_process<gradus::nhwc>(
          momentum, {.stages = stages, .micro_batches = micro_batches, .schedule = rule}, how);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_schedule_has_the_bits_of_one_process) {
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
    require_bits_of_one_process<gradus::nchw>(momentum, {.stages = 3, .micro_batches = 6, .schedule = rule}, how);
  }
  require_bits_of_one_process<gradus::nchw>(momentum, {.stages = 2, .micro_batches = 6, .stages_per_rank = 3}, how);
  require_bits_of_one_process<gradus::nhwc>(momentum, {.stages = 3, .micro_batches = 4, .stages_per_rank = 2}, how);
}

BOOST_AUTO_TEST_CASE(rules_that_need_all_gradients_have_the_bits_of_one_process) {
  const hybrid_setup how{.compile = {.max_batch_size = 12, .seed = 3}};
  const parallel::hybrid options{.stages = 4, .micro_batches = 4};
  require_bits_of_one_process<gradus::nhwc>(optim::clipped_norm<optim::sgd>{.rule = momentum, .max_norm = 0.5}, options,
                                            how);
  require_bits_of_one_process<gradus::nhwc>(optim::adam{}, options, how);
  require_bits_of_one_process<gradus::nchw>(optim::lamb{}, options, how);
}

BOOST_AUTO_TEST_CASE(recomputed_and_frozen_layers_have_the_bits_of_one_process) {
  for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
    const parallel::hybrid options{.stages = 3, .micro_batches = 4, .schedule = rule};
    require_bits_of_one_process<gradus::nhwc>(momentum, options,
                                              {.compile = {.max_batch_size = 12, .seed = 3, .recompute = true}});
    require_bits_of_one_process<gradus::nhwc>(momentum, options,
                                              {.compile = {.max_batch_size = 12, .seed = 3}, .freezes = true});
  }
}

BOOST_AUTO_TEST_CASE(a_network_that_was_not_compiled_takes_the_options_of_the_strategy) {
  const nn::compile_options compile{.max_batch_size = 12, .seed = 3};
  require_bits_of_one_process<gradus::nhwc>(momentum, {.stages = 4, .micro_batches = 3, .compile = compile},
                                            {.compile = compile, .compiled_before = false});
}

BOOST_AUTO_TEST_CASE(replicas_of_pipelines_equal_one_process_up_to_rounding) {
  for (const int replicas : {2, 3}) {
    for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
      const parallel::hybrid options{.stages = 2, .micro_batches = 2, .schedule = rule};
      hybrid_setup how{.batch_size = 12, .compile = {.max_batch_size = 12 / replicas, .seed = 3}};
      const auto ranks = gradus::comm::run_ranks(
          2 * replicas, [&](auto& world) { return train_with_skips<gradus::nhwc>(world, momentum, options, how); });
      // One process with replicas only: data parallelism of the same micro-batches.
      hybrid_setup data = how;
      data.compile.micro_batch_size = (data.compile.max_batch_size - 1) / 2 + 1;
      const auto want = gradus::comm::run_ranks(replicas, [&](auto& world) {
        return train_with_skips<gradus::nhwc>(world, momentum, parallel::all_reduce{}, data);
      });
      const auto got = values_of_ranks(ranks);
      for (const auto& [name, values] : want.front().values) {
        const auto found = got.find(name);
        BOOST_TEST_REQUIRE((found != got.end()));
        double most = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          most = std::max(most, static_cast<double>(std::abs(values[i] - found->second[i])));
        }
        BOOST_TEST(most < 2e-5, name);
      }
      BOOST_TEST(std::abs(ranks.front().evaluation_loss - want.front().evaluation_loss) < 1e-4);
      BOOST_TEST(ranks.front().evaluated == 53);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace hybrid_training
