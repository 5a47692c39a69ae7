// SPDX-License-Identifier: BSL-1.0
//
// With synchronized batch normalization, ranks compute what one process computes with the whole batch.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/synchronized_training.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/conformance/layer.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parallel/synchronized_statistics.hpp"

namespace {

namespace synchronized {

namespace nn = gradus::nn;
using gradus_test::largest_difference;
using gradus_test::synchronized::on_ranks;
using gradus_test::synchronized::one_process;
using gradus_test::synchronized::outcome;
using gradus_test::synchronized::train;
using gradus_test::synchronized::way;
using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

void require_same(const std::vector<outcome>& have, const outcome& want, double tolerance) {
  for (const outcome& each : have) {
    BOOST_TEST(largest_difference(each.weights, want.weights) < tolerance);
    BOOST_TEST(largest_difference(each.statistics, want.statistics) < tolerance);
    BOOST_TEST(largest_difference(each.losses, want.losses) < tolerance);
    BOOST_TEST(std::abs(each.evaluated - want.evaluated) < tolerance);
    BOOST_TEST((each.statistics == have.front().statistics));  // the same bits on all ranks
    BOOST_TEST((each.weights == have.front().weights));
  }
}

/// A group of one member that counts its sums.
struct counted_group final : nn::statistics_group {
  int sums = 0;

  struct one final : nn::statistics_sum {
    counted_group* group;
    explicit one(counted_group* of) : group{of} {}
    void sum(std::span<double> /*values*/) override { ++group->sums; }
  };
  std::unique_ptr<nn::statistics_sum> make_sum() override { return std::make_unique<one>(this); }
};

template <class Element, class Layout>
struct kind {
  using element = Element;
  using layout = Layout;
};
using kinds =
    std::tuple<kind<double, gradus::nchw>, kind<double, gradus::nhwc>, kind<float, gradus::nchw>,
               kind<float, gradus::nhwc>, kind<gradus::bfloat16, gradus::nhwc>, kind<gradus::float16, gradus::nchw>>;

}  // namespace synchronized

}  // namespace

BOOST_AUTO_TEST_SUITE(synchronized_batch_norm)

BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_have_the_statistics_of_the_whole_batch, Layout, synchronized::layouts) {
  const synchronized::outcome want = synchronized::one_process<Layout>();
  BOOST_TEST(want.losses.back() < want.losses.front());
  for (const int ranks : {1, 2, 3, 4}) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      synchronized::require_same(synchronized::on_ranks<Layout>(ranks), want, 1e-9);
    }
  }
  // What it is for: without it, ranks compute something else.
  const auto apart = gradus::comm::run_ranks(
      2, [&](gradus::comm::threads& world) { return synchronized::train<Layout>(world, gradus::nn::batch_norm{}); });
  BOOST_TEST(synchronized::largest_difference(apart[0].weights, want.weights) > 1e-3);
}

BOOST_AUTO_TEST_CASE(ranks_without_examples_take_part) {
  const synchronized::way how{.global_batch = 4};
  const auto want = synchronized::one_process<gradus::nhwc>(how);
  for (const int ranks : {3, 4, 5}) {
    BOOST_TEST_CONTEXT(ranks << " ranks") {
      synchronized::require_same(synchronized::on_ranks<gradus::nhwc>(ranks, how), want, 1e-9);
    }
  }
}

BOOST_AUTO_TEST_CASE(strategies_do_not_get_in_the_way) {
  const auto want = synchronized::one_process<gradus::nhwc>();
  const gradus::parallel::all_reduce small{.bucket_bytes = 400, .first_bucket_bytes = 100};
  gradus::parallel::all_reduce late = small;
  late.overlap_forward = true;
  gradus::parallel::all_reduce behind = small;
  behind.overlap = false;
  for (const auto& strategy : {small, late, behind}) {
    synchronized::require_same(synchronized::on_ranks<gradus::nhwc>(3, {}, strategy), want, 1e-9);
  }
  synchronized::require_same(
      synchronized::on_ranks<gradus::nhwc>(
          3, {}, gradus::parallel::sharded_update{.bucket_bytes = 1000, .first_bucket_bytes = 100}),
      want, 1e-9);
  // Over a ring, whose ranks wait for messages of their neighbors.
  const auto ring = gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
    gradus::comm::collectives around{world.duplicate(), {.all_reduce = gradus::comm::parse_all_reduce_spec("ring")}};
    gradus::parallel::synchronized_statistics statistics{around};
    return synchronized::train<gradus::nhwc>(around, gradus::nn::synchronized_batch_norm{.group = &statistics}, {},
                                             small);
  });
  synchronized::require_same(ring, want, 1e-9);
}

BOOST_AUTO_TEST_CASE(recomputed_layers_and_parallel_branches_agree) {
  const auto want = synchronized::one_process<gradus::nchw>();
  for (const auto& [recompute, branches] : {std::pair{true, false}, {false, true}, {true, true}}) {
    const synchronized::way how{.recompute = recompute, .branches = branches};
    BOOST_TEST_CONTEXT("recompute " << recompute << " branches " << branches) {
      synchronized::require_same(synchronized::on_ranks<gradus::nchw>(3, how), want, 1e-9);
    }
  }
}

BOOST_AUTO_TEST_CASE(floats_agree) {
  const auto want = synchronized::one_process<gradus::nhwc, float>();
  synchronized::require_same(synchronized::on_ranks<gradus::nhwc, float>(3), want, 5e-3);
}

BOOST_AUTO_TEST_CASE(groups_of_ranks_have_statistics_of_their_own) {
  const auto want = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    return synchronized::train<gradus::nhwc>(world, gradus::nn::batch_norm{});
  });
  const auto have = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    gradus::comm::self alone;
    gradus::parallel::synchronized_statistics statistics{alone};
    return synchronized::train<gradus::nhwc>(world, gradus::nn::synchronized_batch_norm{.group = &statistics});
  });
  BOOST_TEST(synchronized::largest_difference(have[1].weights, want[1].weights) < 1e-9);
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_does_not_leave_the_others_waiting) {
  const auto texts = gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) -> std::string {
    try {
      gradus::parallel::synchronized_statistics statistics{world};
      synchronized::train<gradus::nhwc>(world, gradus::nn::synchronized_batch_norm{.group = &statistics}, {},
                                        gradus::parallel::all_reduce{}, [&](const gradus::train::step_report& step) {
                                          if (world.rank() == 1 && step.step == 2) {
                                            throw std::runtime_error{"the disk is full"};
                                          }
                                        });
    } catch (const std::exception& failure) {
      return failure.what();
    }
    return {};
  });
  for (const std::string& text : texts) {
    BOOST_TEST(text.find("the disk is full") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_layer_keeps_its_contract, Kind, synchronized::kinds) {
  using element = typename Kind::element;
  gradus::cpu device{{.intra_op_threads = 2}};
  synchronized::counted_group group;
  for (const gradus::nn::value_shape& image : {gradus::nn::value_shape{4, 5, 7}, {19, 1, 1}, {1, 6, 4}}) {
    for (const bool affine : {true, false}) {
      gradus::conformance::contract_check<element, typename Kind::layout, gradus::cpu> check{
          device, gradus::nn::synchronized_batch_norm{.group = &group, .scale = affine, .shift = affine}, {image}, 3};
      BOOST_CHECK_NO_THROW(check.run());
      if constexpr (sizeof(element) == 8) {
        BOOST_CHECK_NO_THROW(check.check_gradients());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(only_training_communicates) {
  gradus::cpu device{{.intra_op_threads = 1}};
  synchronized::counted_group group;
  gradus::nn::network<float, gradus::nhwc> net{device, {2, 3, 3}};
  net.loss(gradus::nn::softmax_cross_entropy{},
           net.add("scores", gradus::nn::dense{.out_features = 2},
                   net.add("norm", gradus::nn::synchronized_batch_norm{.group = &group},
                           net.add("conv", gradus::nn::conv2d{.out_channels = 3}, net.input()))));
  net.compile({.max_batch_size = 2});
  gradus::image_tensor<float, gradus::nhwc> images{device, {2, 2, 3, 3}};
  std::fill_n(images.data(), images.size(), 0.5F);
  const std::vector<std::int32_t> labels{0, 1};
  (void)net.evaluate(images, labels);
  (void)net.find_non_finite(images, gradus::nn::step_options{});
  BOOST_TEST(group.sums == 0);
  (void)net.train_step(images, labels);
  BOOST_TEST(group.sums == 2);
}

// Values are counted over all ranks: one example on each of two ranks trains, and a single one is refused on both.
BOOST_AUTO_TEST_CASE(one_value_per_channel_over_all_ranks_is_refused) {
  for (const gradus::index_t examples : {2, 1}) {
    const auto refused = gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
      gradus::parallel::synchronized_statistics statistics{world};
      gradus::cpu device{{.intra_op_threads = 1}};
      gradus::nn::network<float, gradus::nhwc> net{device, {3, 1, 1}};
      net.loss(gradus::nn::softmax_cross_entropy{},
               net.add("scores", gradus::nn::dense{.out_features = 2},
                       net.add("norm", gradus::nn::synchronized_batch_norm{.group = &statistics}, net.input())));
      net.compile({.max_batch_size = 1});
      const gradus::index_t own = world.rank() < examples ? 1 : 0;
      gradus::image_tensor<float, gradus::nhwc> images{device, {own, 3, 1, 1}};
      std::fill_n(images.data(), images.size(), 0.5F);
      const std::vector<std::int32_t> labels(static_cast<std::size_t>(own), 1);
      try {
        (void)net.train_step(images, labels);
      } catch (const gradus::shape_error& error) {
        return std::string{error.what()};
      }
      return std::string{};
    });
    for (const std::string& message : refused) {
      BOOST_TEST((message.find("more than 1 value per channel in training, over all ranks") != std::string::npos) ==
                     (examples == 1),
                 "'" << message << "'");
    }
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_work_is_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  synchronized::counted_group group;
  const auto compile = [&](gradus::nn::statistics_group* of, gradus::index_t micro_batch) {
    gradus::nn::network<float, gradus::nhwc> net{device, {2, 3, 3}};
    net.loss(gradus::nn::softmax_cross_entropy{},
             net.add("scores", gradus::nn::dense{.out_features = 2},
                     net.add("norm", gradus::nn::synchronized_batch_norm{.group = of}, net.input())));
    net.compile({.max_batch_size = 4, .micro_batch_size = micro_batch});
  };
  compile(&group, 0);
  compile(&group, 4);
  BOOST_CHECK_THROW(compile(&group, 2), gradus::configuration_error);
  BOOST_CHECK_THROW(compile(nullptr, 0), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
