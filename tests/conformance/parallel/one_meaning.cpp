// SPDX-License-Identifier: BSL-1.0
//
// Every way of spreading a step computes what one process computes. Ranks in threads; tests/distributed has MPI.
#include <boost/test/unit_test.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../../support/training_runs.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/lamb.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/sharded_update.hpp"

namespace {

using gradus_test::largest_difference;
using gradus_test::run_training;
using gradus_test::training_result;
using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

template <class Layout>
const training_result& one_process() {
  static const training_result result = [] {
    gradus::comm::self alone;
    return run_training<Layout>(alone);
  }();
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(one_meaning)

BOOST_AUTO_TEST_CASE(training_learns) {
  const auto& result = one_process<gradus::nhwc>();
  BOOST_TEST(result.losses.size() == 5U);
  BOOST_TEST(result.losses.back() < 0.9 * result.losses.front());
}

BOOST_AUTO_TEST_CASE(layouts_reach_the_same_loss) {
  for (std::size_t i = 0; i < 5; ++i) {
    BOOST_TEST(std::abs(one_process<gradus::nchw>().losses[i] - one_process<gradus::nhwc>().losses[i]) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_reach_the_weights_of_one_process, Layout, layouts) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto results = gradus::comm::run_ranks(ranks, [](auto& world) { return run_training<Layout>(world); });
    for (const training_result& result : results) {
      BOOST_TEST_CONTEXT(ranks << " ranks, " << Layout::name) {
        BOOST_TEST(largest_difference(result.weights, one_process<Layout>().weights) < 1e-9);
        BOOST_TEST(largest_difference(result.losses, one_process<Layout>().losses) < 1e-10);
        BOOST_TEST(result.accuracy == one_process<Layout>().accuracy);
        BOOST_TEST((result.weights == results.front().weights));  // the same bits on all ranks
      }
    }
  }
}

// A sum that is rounded differently in float may round an activation to its other neighbour in bfloat16, and so on: few
// steps, and a tolerance between the two precisions.
BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_of_bfloat16_stay_close_to_one_process, Layout, layouts) {
  using gradus::bfloat16;
  const gradus_test::training_setup setup{.epochs = 1};
  gradus::comm::self alone;
  const training_result one = run_training<Layout, bfloat16>(alone, setup);
  for (const int ranks : {1, 2}) {
    const auto results =
        gradus::comm::run_ranks(ranks, [&](auto& world) { return run_training<Layout, bfloat16>(world, setup); });
    for (const training_result& result : results) {
      BOOST_TEST_CONTEXT(ranks << " ranks, " << Layout::name) {
        BOOST_TEST(largest_difference(result.weights, one.weights) < (ranks == 1 ? 0.0 : 1e-3) + 1e-12);
        BOOST_TEST(largest_difference(result.losses, one.losses) < 1e-4);
        BOOST_TEST((result.weights == results.front().weights));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_ring_reaches_the_weights_of_one_process) {
  for (const int ranks : {2, 3}) {
    const auto results = gradus::comm::run_ranks(ranks, [](gradus::comm::threads& world) {
      gradus::comm::collectives around{world.duplicate(), {.all_reduce = gradus::comm::parse_all_reduce_spec("ring")}};
      return run_training<gradus::nhwc>(around);
    });
    for (const training_result& result : results) {
      BOOST_TEST(largest_difference(result.weights, one_process<gradus::nhwc>().weights) < 1e-9);
      BOOST_TEST((result.weights == results.front().weights));
    }
  }
}

BOOST_AUTO_TEST_CASE(every_plan_reaches_the_weights_of_one_process) {
  using gradus::parallel::all_reduce;
  const std::vector<all_reduce> plans{
      {.bucket_bytes = 0},
      {.bucket_bytes = 1, .first_bucket_bytes = 1},
      {.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap = false},
      {.bucket_bytes = 1, .first_bucket_bytes = 1, .credit_bytes = 0},
      {.bucket_bytes = 1, .first_bucket_bytes = 1, .credit_bytes = 500},
      {.bucket_bytes = 0, .partition_bytes = 1000, .credit_bytes = 2000},
      {.bucket_bytes = 1, .first_bucket_bytes = 1, .partition_bytes = 333, .overlap_forward = true},
      {.bucket_bytes = 1, .first_bucket_bytes = 1, .order = {5, 0, 1, 4, 3, 2}},
      {.bucket_bytes = 1000, .first_bucket_bytes = 100, .order = {1, 2, 0}},
      {.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap_forward = true},
      {.bucket_bytes = 1, .first_bucket_bytes = 1, .overlap_forward = true, .order = {5, 0, 1, 4, 3, 2}},
      {.overlap = false, .overlap_forward = true},
  };
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto results = gradus::comm::run_ranks(
        3, [&](gradus::comm::threads& world) { return run_training<gradus::nhwc>(world, {.strategy = plans[i]}); });
    for (const training_result& result : results) {
      BOOST_TEST_CONTEXT("plan " << i) {
        BOOST_TEST(largest_difference(result.weights, one_process<gradus::nhwc>().weights) < 1e-9);
        BOOST_TEST((result.weights == results.front().weights));
      }
    }
  }
}

// Ranks that update parts make the sums and steps of all_reduce: in shared memory bit by bit.
BOOST_AUTO_TEST_CASE_TEMPLATE(sharded_updates_reach_the_weights_of_all_reduce, Layout, layouts) {
  const gradus_test::training_setup setup{.epochs = 3};
  const auto train = [&](auto& world) {
    return gradus_test::run_training_with<Layout>(world, setup, gradus::parallel::sharded_update{},
                                                  {.rank = world.rank(), .ranks = world.size()});
  };
  for (const int ranks : {1, 2, 3, 4}) {
    const auto want = gradus::comm::run_ranks(ranks, [&](auto& world) { return run_training<Layout>(world, setup); });
    const auto in_memory = gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) { return train(world); });
    const auto by_messages = gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
      gradus::comm::collectives around{world.duplicate()};
      return train(around);
    });
    for (std::size_t rank = 0; rank < want.size(); ++rank) {
      BOOST_TEST_CONTEXT(ranks << " ranks, " << Layout::name) {
        BOOST_TEST((in_memory[rank].weights == want.front().weights));
        BOOST_TEST(in_memory[rank].accuracy == want.front().accuracy);
        BOOST_TEST(largest_difference(by_messages[rank].weights, want.front().weights) < 1e-9);
        BOOST_TEST((by_messages[rank].weights == by_messages.front().weights));
      }
    }
  }
}

// Rules that count their steps: every rank has the count of one process, also for parts of parameters.
template <class Rule>
void check_rule_on_ranks(const Rule& rule) {
  const gradus_test::training_setup_with<Rule> setup{.epochs = 2, .learning_rate = 0.01, .rule = rule};
  gradus::comm::self alone;
  const training_result want = run_training<gradus::nhwc>(alone, setup);
  const auto check = [&](const std::vector<training_result>& results, std::string_view strategy) {
    for (const training_result& result : results) {
      BOOST_TEST(largest_difference(result.weights, want.weights) < 1e-8, Rule::name << " by " << strategy);
      BOOST_TEST((result.weights == results.front().weights));
    }
  };
  check(gradus::comm::run_ranks(3, [&](auto& world) { return run_training<gradus::nhwc>(world, setup); }),
        "all_reduce");
  if constexpr (gradus::optim::elementwise_update_rule<Rule>) {
    check(gradus::comm::run_ranks(3,
                                  [&](auto& world) {
                                    return gradus_test::run_training_with<gradus::nhwc>(
                                        world, setup, gradus::parallel::sharded_update{},
                                        {.rank = world.rank(), .ranks = world.size()});
                                  }),
          "sharded_update");
  }
}

BOOST_AUTO_TEST_CASE(rules_that_count_steps_reach_the_weights_of_one_process) {
  check_rule_on_ranks(gradus::optim::adam{.weight_decay = 0.01, .amsgrad = true});
  check_rule_on_ranks(gradus::optim::lamb{});
}

// Averages of parts come together at the end of an epoch; swapped, they are what all ranks evaluate.
BOOST_AUTO_TEST_CASE(averaged_weights_are_those_of_one_process) {
  using rule = gradus::optim::update<gradus::optim::adam>;
  const gradus_test::training_setup_with<rule> setup{.epochs = 2, .learning_rate = 0.01, .rule = {.average = 0.9}};
  const auto averages_after = [&](auto& world, const auto& strategy) {
    std::vector<double> averages;
    gradus_test::run_training_with<gradus::nhwc>(
        world, setup, strategy, {.rank = world.rank(), .ranks = world.size()}, [&](auto& trainer) {
          for (const gradus::optim::state_buffer& each : trainer.rule().buffers()) {
            const auto* const data = reinterpret_cast<const double*>(each.bytes.data());
            averages.assign(data, data + each.elements);  // the last buffer
          }
        });
    return averages;
  };
  gradus::comm::self alone;
  const auto want = averages_after(alone, gradus::parallel::all_reduce{});
  BOOST_TEST(!want.empty());
  for (const auto& have : gradus::comm::run_ranks(
           3, [&](auto& world) { return averages_after(world, gradus::parallel::sharded_update{}); })) {
    BOOST_TEST(largest_difference(have, want) < 1e-8);
  }
}

BOOST_AUTO_TEST_CASE(a_trainer_evaluates_the_averages_and_goes_on_with_the_weights) {
  const auto results = gradus::comm::run_ranks(2, [](auto& world) {
    gradus::cpu device{{.intra_op_threads = 1}};
    gradus::data::loader<double, gradus::nhwc> loader{
        device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 11}};
    gradus::nn::network<double, gradus::nhwc> net{device, {2, 9, 8}};
    gradus_test::build_training_network(net);
    net.compile({.max_batch_size = 8, .seed = 11});
    gradus::train::trainer trainer{
        net, gradus::optim::update<gradus::optim::sgd>{.rule = {.momentum = 0.9}, .average = 0.9}, world};
    std::vector<double> losses;
    trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05});
    const std::vector<double> before(net.values().begin(), net.values().end());
    losses.push_back(trainer.evaluate(loader).loss);
    trainer.swap_average();
    losses.push_back(trainer.evaluate(loader).loss);
    trainer.swap_average();
    losses.push_back(trainer.evaluate(loader).loss);
    losses.push_back(before == std::vector<double>(net.values().begin(), net.values().end()) ? 1.0 : 0.0);
    return losses;
  });
  for (const std::vector<double>& losses : results) {
    BOOST_TEST((losses == results.front()));
    BOOST_TEST(losses[0] == losses[2]);
    BOOST_TEST(losses[0] != losses[1]);
    BOOST_TEST(losses[3] == 1.0);
  }
}

/// The velocities of a trainer.
std::vector<double> velocities_after(gradus::comm::threads& world, const gradus_test::training_setup& setup,
                                     const auto& strategy) {
  std::vector<double> velocities;
  gradus_test::run_training_with<gradus::nhwc>(
      world, setup, strategy, {.rank = world.rank(), .ranks = world.size()}, [&](auto& trainer) {
        for (const gradus::optim::state_buffer& each : trainer.rule().buffers()) {
          const auto* const data = reinterpret_cast<const double*>(each.bytes.data());
          velocities.assign(data, data + each.elements);
        }
      });
  return velocities;
}

BOOST_AUTO_TEST_CASE(after_an_epoch_all_ranks_have_the_whole_state_of_the_rule) {
  const gradus_test::training_setup setup{.epochs = 2};
  const auto want = gradus::comm::run_ranks(
      3, [&](auto& world) { return velocities_after(world, setup, gradus::parallel::all_reduce{}); });
  const auto have = gradus::comm::run_ranks(
      3, [&](auto& world) { return velocities_after(world, setup, gradus::parallel::sharded_update{}); });
  BOOST_TEST(!want.front().empty());
  for (const auto& each : have) {
    BOOST_TEST((each == want.front()));
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_parts_add_up_to_those_of_the_batch) {
  gradus::comm::self alone;
  const auto parts = run_training<gradus::nchw>(alone, {.micro_batch_size = 3});
  BOOST_TEST(largest_difference(parts.weights, one_process<gradus::nchw>().weights) < 1e-9);
  BOOST_TEST(largest_difference(parts.losses, one_process<gradus::nchw>().losses) < 1e-10);
  BOOST_TEST(parts.accuracy == one_process<gradus::nchw>().accuracy);
  const auto results = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    return run_training<gradus::nchw>(
        world, {.strategy = {.bucket_bytes = 1, .first_bucket_bytes = 1}, .micro_batch_size = 1});
  });
  for (const training_result& result : results) {
    BOOST_TEST(largest_difference(result.weights, one_process<gradus::nchw>().weights) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(ranks_with_different_buckets_get_an_error_that_names_them) {
  std::string message;
  try {
    gradus::comm::run_ranks(2, [](gradus::comm::threads& world) {
      run_training<gradus::nhwc>(
          world, {.strategy = {.bucket_bytes = world.rank() == 0 ? 4000 : 3000, .first_bucket_bytes = 100}});
    });
  } catch (const gradus::configuration_error& failure) {
    message = failure.what();
  }
  BOOST_TEST(message.find("the same strategy on all ranks") != std::string::npos, message);
  BOOST_TEST(message.find("bucket 1: ") != std::string::npos, message);
  BOOST_TEST(message.find("bucket 0: ") == std::string::npos, message);
}

BOOST_AUTO_TEST_CASE(more_ranks_than_examples_in_a_step) {
  const gradus_test::training_setup setup{.batch_size = 2, .epochs = 1};
  gradus::comm::self alone;
  const auto want = run_training<gradus::nchw>(alone, setup);
  const auto results =
      gradus::comm::run_ranks(3, [&](auto& world) { return run_training<gradus::nchw>(world, setup); });
  for (const training_result& result : results) {
    BOOST_TEST(largest_difference(result.weights, want.weights) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(another_seed_is_another_training) {
  gradus::comm::self alone;
  const auto other = run_training<gradus::nhwc>(alone, {.seed = 12});
  BOOST_TEST(largest_difference(other.weights, one_process<gradus::nhwc>().weights) > 1e-3);
}

BOOST_AUTO_TEST_SUITE_END()
