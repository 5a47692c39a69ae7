// SPDX-License-Identifier: BSL-1.0
//
// Ranks without examples: with fewer examples than ranks every strategy computes what one process computes.
#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <initializer_list>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "../../support/hybrid_training.hpp"
#include "../../support/synchronized_training.hpp"
#include "../../support/training_runs.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/synchronized_statistics.hpp"
#include "gradus/parameter_server/distributed_replicated.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/pipeline/strategy.hpp"
#include "gradus/train/reproducible.hpp"

namespace ranks_without_examples {

namespace parallel = gradus::parallel;
using gradus_test::largest_difference;
using gradus_test::training_result;
using gradus_test::training_setup;
using parallel::all_reduce;
using parallel::parameter_server;

constexpr int most_ranks = 7;

/// 53 examples: the last batch has one.
training_setup batches_of(gradus::index_t size, double learning_rate = training_setup{}.learning_rate) {
  return {.batch_size = size, .epochs = 1, .learning_rate = learning_rate};
}

const training_result& one_process(gradus::index_t size, double learning_rate = training_setup{}.learning_rate) {
  static std::map<std::pair<gradus::index_t, double>, training_result> known;
  const std::pair key{size, learning_rate};
  if (!known.contains(key)) {
    gradus::comm::self alone;
    known[key] = gradus_test::run_training<gradus::nhwc>(alone, batches_of(size, learning_rate));
  }
  return known[key];
}

/// Calls function(world) on each rank, none of which waits for long.
template <class Function>
auto on_ranks(int ranks, const Function& function) {
  return gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
    world.set_time_limit(std::chrono::seconds{20});
    return function(world);
  });
}

template <class Strategy>
inline constexpr bool has_virtual_workers = requires(const Strategy& strategy) {
  strategy.virtual_workers;
};

/// @param ranks  a server has no weights
void require(const std::vector<training_result>& ranks, const training_result& want, double tolerance) {
  for (const training_result& result : ranks) {
    if (!result.weights.empty()) {
      BOOST_TEST(largest_difference(result.weights, want.weights) < tolerance);
      BOOST_TEST(largest_difference(result.losses, want.losses) < tolerance);
    }
  }
}

/// On ranks that train, in batches of 2 and of 4 examples.
template <class Strategy>
void check(const Strategy& strategy, std::string_view what, std::initializer_list<int> counts = {1, 2, 3, 4, 5, 6, 7},
           double tolerance = 1e-8, double learning_rate = training_setup{}.learning_rate) {
  for (const gradus::index_t size : {2, 4}) {
    for (const int ranks : counts) {
      BOOST_TEST_CONTEXT(what << ", " << ranks << " ranks, batches of " << size) {
        const auto train = [&](gradus::comm::threads& world) {
          return gradus_test::run_training_with<gradus::nhwc>(
              world, batches_of(size, learning_rate), strategy,
              {.rank = world.rank(), .ranks = world.size(), .nested = has_virtual_workers<Strategy>});
        };
        require(on_ranks(ranks, train), one_process(size, learning_rate), tolerance);
      }
    }
  }
}

/// On 1 to 7 ranks, workers and servers. @param servers  has the roles
template <class Servers, class Strategy>
void check_servers(const Servers& servers, const Strategy& strategy, std::initializer_list<int> counts,
                   std::string_view what) {
  for (const int ranks : counts) {
    BOOST_TEST_CONTEXT(what << ", " << ranks << " ranks") {
      const auto train = [&](gradus::comm::threads& world) -> training_result {
        const training_setup setup = batches_of(2);
        if (strategy.is_server_only(world)) {
          parallel::serve<double>(world, setup.rule, strategy);
          return {};
        }
        const parallel::roles who = servers.roles_among(world.size());
        return gradus_test::run_training_with<gradus::nhwc>(world, setup, strategy,
                                                            {.rank = who.worker_index(world.rank()),
                                                             .ranks = static_cast<int>(who.workers.size()),
                                                             .nested = has_virtual_workers<Strategy>});
      };
      require(on_ranks(ranks, train), one_process(2), 1e-8);
    }
  }
}

BOOST_AUTO_TEST_SUITE(ranks_without_examples_suite)

BOOST_AUTO_TEST_CASE(all_reduce_with_every_option) {
  const all_reduce small{.bucket_bytes = 1, .first_bucket_bytes = 1};
  for (const bool late : {false, true}) {
    for (const bool overlap : {false, true}) {
      all_reduce plan{.overlap = overlap, .overlap_forward = late};
      check(plan, "large buckets");
      plan.bucket_bytes = plan.first_bucket_bytes = 1;
      check(plan, "small buckets");
      plan.partition_bytes = 333;
      plan.credit_bytes = 500;
      check(plan, "parts", {3, 7});
    }
    all_reduce ordered = small;
    ordered.overlap_forward = late;
    ordered.order = {5, 0, 1, 4, 3, 2};
    check(ordered, "an order", {3, 7});
  }
}

BOOST_AUTO_TEST_CASE(updates_of_parts_averages_and_rounded_gradients) {
  check(parallel::sharded_update{}, "sharded_update");
  check(parallel::model_averaging{.synchronous_steps = 1000}, "model_averaging");
  for (const bool late : {false, true}) {
    parallel::compressed_all_reduce<float> rounded;
    rounded.overlap_forward = late;
    rounded.bucket_bytes = rounded.first_bucket_bytes = 1;
    check(rounded, "compressed_all_reduce", {1, 2, 3, 4, 5, 6, 7}, 1e-3);
    parallel::compressed_all_reduce<parallel::int8_blocks> in_8_bits;
    in_8_bits.overlap_forward = late;
    check(in_8_bits, "int8_blocks", {1, 2, 5, 7}, 1e-2, 0.001);
  }
}

BOOST_AUTO_TEST_CASE(messages_around_a_ring) {
  for (const int ranks : {3, 7}) {
    const auto by_messages = [&](const auto& strategy) {
      return on_ranks(ranks, [&](gradus::comm::threads& world) {
        gradus::comm::collectives around{world.duplicate(),
                                         {.all_reduce = gradus::comm::parse_all_reduce_spec("ring")}};
        return gradus_test::run_training_with<gradus::nhwc>(around, batches_of(2), strategy,
                                                            {.rank = world.rank(), .ranks = world.size()});
      });
    };
    require(by_messages(parallel::sharded_update{.bucket_bytes = 1000, .first_bucket_bytes = 100}), one_process(2),
            1e-8);
    require(by_messages(all_reduce{.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap_forward = true}),
            one_process(2), 1e-8);
  }
}

BOOST_AUTO_TEST_CASE(parameter_servers) {
  for (const bool late : {false, true}) {
    const parameter_server apart{.servers = 2, .overlap_forward = late};
    check_servers(apart, apart, {3, 4, 5, 6, 7}, "servers");
    const parameter_server together{.servers = 0, .colocate = true, .overlap_forward = late};
    check_servers(together, together, {1, 2, 3, 4, 5, 6, 7}, "colocated servers");
  }
  const parallel::distributed_replicated nodes{.master = {.servers = 1}, .ranks_per_node = 2};
  check_servers(nodes, nodes, {2, 3, 4, 5, 6, 7}, "nodes");
}

BOOST_AUTO_TEST_CASE(virtual_workers) {
  for (const bool late : {false, true}) {
    const all_reduce gradients{.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap_forward = late};
    check(parallel::reproducible{gradients}, "reproducible", {1, 2, 4});
    const parameter_server servers{.servers = 3, .overlap_forward = late};
    check_servers(servers, parallel::reproducible{servers}, {4, 5, 7}, "reproducible servers");
  }
}

BOOST_AUTO_TEST_CASE(pipelines) {
  const auto build = [](auto& net) { gradus_test::build_training_network(net); };
  constexpr gradus::optim::sgd momentum{.momentum = 0.9};
  const gradus_test::hybrid_setup how{.batch_size = 2, .compile = {.max_batch_size = 2, .seed = 3}, .epochs = 1};
  const auto train = [&](auto& world, const auto& strategy, const gradus_test::hybrid_setup& setup) {
    return gradus_test::train_on_rank<gradus::nhwc, double>(world, momentum, strategy, setup,
                                                            gradus_test::dataset_for_pipelines(), build);
  };
  const auto want = gradus_test::train_alone(train, how, 1);
  for (const bool late : {false, true}) {
    for (const auto& [ranks, stages, of_rank] : {std::array{3, 1, 1}, {5, 1, 2}, {6, 2, 1}, {6, 2, 2}, {6, 3, 1}}) {
      const parallel::hybrid options{
          .stages = stages,
          .micro_batches = 2,
          .stages_per_rank = of_rank,
          .gradients = {.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap_forward = late}};
      BOOST_TEST_CONTEXT(ranks << " ranks, " << stages << " stages, " << of_rank << " of a rank, late " << late) {
        for (const auto& rank :
             on_ranks(ranks, [&](gradus::comm::threads& world) { return train(world, options, how); })) {
          for (const auto& [name, values] : rank.values) {
            BOOST_TEST(largest_difference(values, want.values.at(name)) < 1e-8, name);
          }
        }
      }
    }
  }
}

// A rank without examples takes part in the sums of statistics, between the layers whose updates it waits for.
BOOST_AUTO_TEST_CASE(synchronized_statistics) {
  namespace synchronized = gradus_test::synchronized;
  const synchronized::way how{.global_batch = 2};
  const auto want = synchronized::one_process<gradus::nhwc>(how);
  for (const bool overlap : {false, true}) {
    for (const int ranks : {2, 3, 7}) {
      const all_reduce late{
          .bucket_bytes = 400, .first_bucket_bytes = 100, .overlap = overlap, .overlap_forward = true};
      const auto results = on_ranks(ranks, [&](gradus::comm::threads& world) {
        parallel::synchronized_statistics statistics{world};
        return synchronized::train<gradus::nhwc>(world, gradus::nn::synchronized_batch_norm{.group = &statistics}, how,
                                                 late);
      });
      for (const auto& result : results) {
        BOOST_TEST_CONTEXT(ranks << " ranks, overlap " << overlap) {
          BOOST_TEST(largest_difference(result.weights, want.weights) < 1e-7);
          BOOST_TEST(largest_difference(result.statistics, want.statistics) < 1e-7);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace ranks_without_examples
