// SPDX-License-Identifier: BSL-1.0
//
// Training on several GPUs, one a rank, over NCCL: as on one; on up to 4, as many as there are.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/data/cuda_loader.cuh"
#include "gradus/kernels/cuda.cuh"
#include "gradus/optim/cuda_passes.cuh"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/train/captured_network.cuh"
#include "nccl_ranks.hpp"
#include "training_runs.hpp"

namespace {

namespace comm = gradus::comm;
using gradus_test::training_result;

training_result on_one_card() {
  gradus::cuda device;
  comm::self self;
  return gradus_test::run_training_on<gradus::nhwc, float>(device, self);
}

/// Calls check(ranks) for as many ranks as there are cards.
template <class Check>
void for_each_number(const Check& check) {
  for (int ranks = 1; ranks <= std::min(4, gradus::cuda_device_count()); ++ranks) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      check(ranks);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(training_on_several_gpus)

BOOST_AUTO_TEST_CASE(cards_train_as_one) {
  const training_result one = on_one_card();
  for_each_number([&](int ranks) {
    const auto results = on_cards(ranks, [](gradus::cuda& device, comm::nccl& cards) {
      return gradus_test::run_training_on<gradus::nhwc, float>(device, cards);
    });
    for (const training_result& each : results) {
      BOOST_CHECK_SMALL(gradus_test::largest_difference(each.weights, one.weights), 1e-2);
      BOOST_CHECK_SMALL(gradus_test::largest_difference(each.losses, one.losses), 1e-3);
      BOOST_CHECK(each.weights == results.front().weights);
    }
  });
}

BOOST_AUTO_TEST_CASE(sharded_updates_train_as_one) {
  const training_result one = on_one_card();
  for_each_number([&](int ranks) {
    const auto results = on_cards(ranks, [](gradus::cuda& device, comm::nccl& cards) {
      return gradus_test::run_training_on<gradus::nhwc, float>(device, cards, gradus_test::training_setup{},
                                                               gradus::parallel::sharded_update{},
                                                               {.rank = cards.rank(), .ranks = cards.size()});
    });
    for (const training_result& each : results) {
      BOOST_CHECK_SMALL(gradus_test::largest_difference(each.weights, one.weights), 1e-2);
      BOOST_CHECK(each.weights == results.front().weights);
    }
  });
}

BOOST_AUTO_TEST_CASE(captured_steps_have_the_same_bits) {
  for_each_number([](int ranks) {
    const auto run = [&](const auto& wrap) {
      return on_cards(ranks, [&](gradus::cuda& device, comm::nccl& cards) {
        return gradus_test::run_training_on<gradus::nhwc, float>(
            device, cards, gradus_test::training_setup{}, gradus::parallel::all_reduce{},
            {.rank = cards.rank(), .ranks = cards.size()}, gradus_test::ignore_trainer{}, wrap);
      });
    };
    const auto plain = run(gradus_test::as_it_is{});
    const auto launched = run([](auto& net) { return gradus::train::captured_network{net}; });
    for (std::size_t rank = 0; rank < plain.size(); ++rank) {
      BOOST_CHECK(launched[rank].weights == plain[rank].weights);
      BOOST_CHECK(launched[rank].losses == plain[rank].losses);
    }
  });
}

// A gradient that is not finite on one card is one for all of them.
BOOST_AUTO_TEST_CASE(cards_scale_their_loss_alike) {
  for_each_number([](int ranks) {
    gradus_test::training_setup_with<gradus::optim::update<gradus::optim::sgd>> setup;
    setup.rule = {.rule = gradus_test::training_setup{}.rule, .loss_scaling = {.initial = 0x1p22}};
    const auto results = on_cards(ranks, [&](gradus::cuda& device, comm::nccl& cards) {
      return gradus_test::run_training_on<gradus::nhwc, gradus::float16>(device, cards, setup);
    });
    for (const training_result& each : results) {
      BOOST_CHECK(each.weights == results.front().weights);
      BOOST_CHECK_LT(each.losses.back(), 0.9 * each.losses.front());
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()
