// SPDX-License-Identifier: BSL-1.0
//
// Pipelines of several GPUs, one a rank: as on one, over NCCL and through the memory of the host; on up to 4, as many
// as there are.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gradus/comm/cuda_staging.cuh"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/data/cuda_loader.cuh"
#include "gradus/kernels/cuda.cuh"
#include "gradus/optim/cuda_passes.cuh"
#include "gradus/optim/update.hpp"
#include "gradus/trace/timeline.hpp"
#include "gradus/trace/transfers.hpp"
#include "gradus/train/traced.hpp"
#include "hybrid_training.hpp"
#include "nccl_ranks.hpp"

namespace {

namespace comm = gradus::comm;
namespace optim = gradus::optim;
namespace parallel = gradus::parallel;
using gradus_test::hybrid_setup;
using outcome = gradus_test::hybrid_outcome<float>;

constexpr optim::sgd momentum{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

int cards() {
  return std::min(4, gradus::cuda_device_count());
}

template <class Element, class Communicator, class Rule, class Strategy>
outcome train(gradus::cuda& device, Communicator& world, const Rule& rule, const Strategy& strategy,
              const hybrid_setup& how) {
  return gradus_test::train_on_device<gradus::nhwc, Element>(
      device, world, rule, strategy, how, gradus_test::dataset_for_pipelines(), gradus_test::network_with_skips{&how});
}

/// As on_cards, through the memory of the host.
template <class Body>
auto over_hosts(int ranks, const Body& body) {
  return comm::run_ranks(ranks, [&](comm::threads& hosts) {
    gradus::cuda device{{.device = hosts.rank()}};
    comm::staged_on_cuda<comm::threads> world{hosts.duplicate(), device};
    return body(device, world);
  });
}

/// Compares the ranks of a pipeline with one card that computes the same micro-batches.
void require_near(const std::vector<outcome>& ranks, const outcome& want, double tolerance) {
  const auto got = gradus_test::values_of_ranks(ranks);
  BOOST_TEST_REQUIRE(got.size() == want.values.size());
  for (const auto& [name, values] : want.values) {
    const auto found = got.find(name);
    BOOST_TEST_REQUIRE((found != got.end() && found->second.size() == values.size()), name);
    double most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(static_cast<double>(values[i]) - static_cast<double>(found->second[i]));
      most = difference <= most ? most : difference;  // also NaN
    }
    BOOST_TEST(most < tolerance, name);
  }
  for (const outcome& each : ranks) {
    BOOST_TEST(each.skipped_steps == want.skipped_steps);
    BOOST_TEST(each.evaluated == want.evaluated);
    BOOST_TEST(std::abs(each.evaluation_loss - want.evaluation_loss) < 10 * tolerance);
    BOOST_TEST_REQUIRE(each.losses.size() == want.losses.size());
    BOOST_TEST(std::abs(each.losses.back() - want.losses.back()) < 10 * tolerance);
    BOOST_TEST_REQUIRE(each.mean_norms.size() == want.mean_norms.size());
    for (std::size_t i = 0; i < want.mean_norms.size(); ++i) {
      BOOST_TEST(std::abs(each.mean_norms[i] - want.mean_norms[i]) < 10 * tolerance);
    }
  }
}

template <class Element = float, class Rule>
void require_as_one_card(const parallel::hybrid& options, const Rule& rule, int replicas, double tolerance) {
  const int ranks = options.stages * replicas;
  if (ranks > cards()) {
    return;
  }
  BOOST_TEST_CONTEXT(options.stages << " ranks, " << options.stages_per_rank << " stages each, " << replicas
                                    << " replicas, " << options.micro_batches << " micro-batches, "
                                    << options.schedule.name) {
    const hybrid_setup how{.batch_size = 12, .compile = {.max_batch_size = 12 / replicas, .seed = 3}};
    hybrid_setup whole = how;
    whole.compile.max_batch_size = 12;
    whole.compile.micro_batch_size = (how.compile.max_batch_size - 1) / options.micro_batches + 1;
    gradus::cuda device;
    comm::self one;
    const outcome want = train<Element>(device, one, rule, parallel::all_reduce{}, whole);
    const auto on_ranks = [&](gradus::cuda& own, auto& world) {
      return train<Element>(own, world, rule, options, how);
    };
    require_near(on_cards(ranks, on_ranks), want, tolerance);
    require_near(over_hosts(ranks, on_ranks), want, tolerance);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pipelines_on_several_gpus)

BOOST_AUTO_TEST_CASE(every_schedule_trains_as_one_card) {
  for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
    require_as_one_card({.stages = 1, .micro_batches = 3, .schedule = rule}, momentum, 1, 1e-3);
    require_as_one_card({.stages = 2, .micro_batches = 4, .schedule = rule}, momentum, 1, 1e-3);
    require_as_one_card({.stages = 3, .micro_batches = 2, .schedule = rule}, momentum, 1, 1e-3);
    require_as_one_card({.stages = 4, .micro_batches = 6, .schedule = rule}, momentum, 1, 1e-3);
  }
}

BOOST_AUTO_TEST_CASE(interleaved_stages_and_values_that_skip_stages_train_as_one_card) {
  require_as_one_card({.stages = 2, .micro_batches = 4, .stages_per_rank = 3}, momentum, 1, 1e-3);
  require_as_one_card({.stages = 3, .micro_batches = 5, .stages_per_rank = 2}, momentum, 1, 1e-3);
  require_as_one_card({.stages = 4, .micro_batches = 4, .first_layers = {"block0_conv1", "block0_sum", "concat"}},
                      momentum, 1, 1e-3);
}

// Replicas have statistics of their own micro-batches, as data parallelism has: compared with these below.
BOOST_AUTO_TEST_CASE(replicas_train_as_cards_with_all_layers) {
  if (cards() < 4) {
    return;
  }
  const hybrid_setup how{.batch_size = 12, .compile = {.max_batch_size = 6, .seed = 3}};
  hybrid_setup data = how;
  data.compile.micro_batch_size = 2;
  const auto want = on_cards(2, [&](gradus::cuda& device, comm::nccl& world) {
    return train<float>(device, world, momentum, parallel::all_reduce{}, data);
  });
  for (const parallel::pipeline_rule& rule : parallel::pipeline_rules) {
    const parallel::hybrid options{.stages = 2, .micro_batches = 3, .schedule = rule};
    const auto on_ranks = [&](gradus::cuda& device, auto& world) {
      return train<float>(device, world, momentum, options, how);
    };
    require_near(on_cards(4, on_ranks), want.front(), 1e-3);
    require_near(over_hosts(4, on_ranks), want.front(), 1e-3);
  }
}

BOOST_AUTO_TEST_CASE(rules_that_need_all_gradients_train_as_on_one_card) {
  const optim::update<optim::sgd> clipped{.rule = momentum, .max_norm = 0.5};
  const optim::loss_scaling overflows{.initial = 0x1p30, .growth_interval = 1000};
  for (const parallel::hybrid& options : {parallel::hybrid{.stages = 2, .micro_batches = 3},
                                          parallel::hybrid{.stages = 2, .micro_batches = 3, .stages_per_rank = 2}}) {
    require_as_one_card(options, clipped, 1, 1e-3);
    require_as_one_card<gradus::float16>(
        options, optim::update<optim::sgd>{.rule = momentum, .loss_scaling = overflows}, 1, 2e-2);
    require_as_one_card<gradus::float16>(
        options, optim::update<optim::sgd>{.rule = momentum, .max_norm = 0.5, .loss_scaling = overflows}, 1, 2e-2);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_ends_the_others) {
  if (cards() < 2) {
    return;
  }
  const hybrid_setup how{.batch_size = 12, .compile = {.max_batch_size = 12, .seed = 3}};
  std::vector<std::string> messages(2);
  BOOST_CHECK_THROW(on_cards(2,
                             [&](gradus::cuda& device, comm::nccl& world) {
                               world.set_time_limit(std::chrono::seconds{60});
                               const auto fails = [&](const gradus::train::step_report& step) {
                                 if (world.rank() == 1 && step.step == 2) {
                                   throw std::runtime_error{"the disk is full"};
                                 }
                               };
                               try {
                                 return gradus_test::train_on_device<gradus::nhwc, float>(
                                     device, world, momentum, parallel::hybrid{.stages = 2, .micro_batches = 3}, how,
                                     gradus_test::dataset_for_pipelines(), gradus_test::network_with_skips{&how},
                                     fails);
                               } catch (const std::exception& failure) {
                                 messages[static_cast<std::size_t>(world.rank())] = failure.what();
                                 throw;
                               }
                             }),
                    std::exception);
  BOOST_TEST(messages[0].find("the disk is full") != std::string::npos, messages[0]);
  BOOST_TEST(messages[0].find("rank 1") != std::string::npos, messages[0]);
}

// The parts of a transfer are matched: each message by its ranks, each all-reduce of replicas by its group.
BOOST_AUTO_TEST_CASE(transfers_of_traced_ranks_are_matched) {
  if (cards() < 4) {
    return;
  }
  const hybrid_setup how{.batch_size = 12, .compile = {.max_batch_size = 6, .seed = 3}, .epochs = 1};
  const parallel::hybrid options{.stages = 2, .micro_batches = 3};
  comm::run_ranks(4, [&](comm::threads& hosts) {
    gradus::cuda device{{.device = hosts.rank()}};
    gradus::trace::recorder recorder;
    auto world = gradus::trace::traced(comm::nccl{hosts.duplicate(), device}, recorder, hosts);
    train<float>(device, world, momentum, options, how);
    const gradus::trace::timeline all = gradus::trace::collect(recorder, hosts);
    comm::barrier(hosts).wait();
    if (hosts.rank() != 0) {
      return;
    }
    std::map<std::string, std::vector<int>> messages;  // ranks that have recorded a part
    std::size_t reduced = 0;
    for (std::size_t rank = 0; rank < all.ranks().size(); ++rank) {
      for (const gradus::trace::span& one : all.ranks()[rank].spans) {
        if (one.is_message()) {
          const int peer = one.peer;
          const auto own = static_cast<int>(rank);
          BOOST_TEST(peer / 2 == own / 2);  // of its replica
          const bool sends = one.kind() == comm::call_kind::send;
          messages[std::to_string(one.channel) + " " + std::to_string(sends ? own : peer) + " " +
                   std::to_string(sends ? peer : own) + " " + std::to_string(one.tag) + " " +
                   std::to_string(one.sequence)]
              .push_back(own);
        } else if (one.is_collective() && one.kind() == comm::call_kind::all_reduce && one.tag != 0) {
          BOOST_TEST(all.all_arrived(one).has_value());
          ++reduced;
        }
      }
    }
    BOOST_TEST(!messages.empty());
    BOOST_TEST(reduced > 0U);
    for (const auto& [name, parts] : messages) {
      BOOST_TEST(parts.size() == 2U, name);
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()
