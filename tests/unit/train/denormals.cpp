// SPDX-License-Identifier: BSL-1.0
//
// Trainings whose gradients are near the smallest normal number: on the threads of strategies and servers denormal
// numbers are kept or flushed as the device says, whatever each rank's thread does outside.
#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/random.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/parallel/sharded_update.hpp"
#include "gradus/parameter_server/parameter_server.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/trainer.hpp"

namespace {

using gradus::index_t;

/// 24 examples of 12 pixels near 2^-119 in 4 classes.
struct faint_images {
  [[nodiscard]] index_t size() const { return 24; }
  [[nodiscard]] gradus::image_extents example() const { return {1, 3, 2, 2}; }
  [[nodiscard]] int classes() const { return 4; }
  [[nodiscard]] std::uint64_t hash() const { return 1; }
  void read(index_t i, float* planes) const {
    const gradus::random_stream stream{7, "pixels"};
    for (std::uint64_t e = 0; e < 12; ++e) {
      planes[e] = static_cast<float>(std::ldexp(stream.normal(static_cast<std::uint64_t>(i) * 12 + e), -119));
    }
  }
  [[nodiscard]] std::int32_t label(index_t i) const { return static_cast<std::int32_t>(i % 4); }
};

/// What the thread of a rank does outside: 0 nothing, 1 flushes denormal numbers, 2 rounds up.
class outside_of_rank {
 public:
  explicit outside_of_rank(int kind) : numbers_{kind == 1} { std::fesetround(kind == 2 ? FE_UPWARD : FE_TONEAREST); }
  outside_of_rank(const outside_of_rank&) = delete;
  outside_of_rank& operator=(const outside_of_rank&) = delete;
  ~outside_of_rank() { std::fesetround(FE_TONEAREST); }

 private:
  gradus::floating_point_scope numbers_;
};

/// The weights of a rank after four steps.
template <class Strategy>
[[nodiscard]] std::vector<float> train_faintly(gradus::comm::threads& world, const Strategy& strategy, bool flush,
                                               int outside) {
  const outside_of_rank numbers{outside};
  gradus::cpu device{{.intra_op_threads = 1 + world.rank() % 2, .flush_denormals = flush}};
  const faint_images set;
  gradus::data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = 12, .seed = 3}};
  gradus::nn::network<float, gradus::nhwc> net{device, {3, 2, 2}};
  // Without a bias the scores are nearly 0, and many gradients near 2^-126. The weights are long enough for ranks to
  // add them up in chunks, each on the thread that comes first.
  const auto hidden = net.add("hidden", gradus::nn::dense{.out_features = 1200, .bias = false}, net.input());
  net.loss(gradus::nn::softmax_cross_entropy{},
           net.add("scores", gradus::nn::dense{.out_features = 4, .bias = false}, hidden));
  net.compile({.max_batch_size = 12, .seed = 11});
  // A weight of 0 takes up the smallest gradients; one of 1 does not change by them.
  for (const auto& parameter : net.parameters()) {
    if (parameter.name() == "hidden.weight") {
      parameter.assign_values(std::vector<float>(static_cast<std::size_t>(parameter.shape().size())));
    }
  }
  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9, .weight_decay = 0}, world, strategy};
  const auto as_before = [&] {  // Boost.Test is for one thread at a time
    if (gradus::flushes_denormals() != (outside == 1) ||
        std::fegetround() != (outside == 2 ? FE_UPWARD : FE_TONEAREST)) {
      throw std::logic_error{"the thread of the program is not as the program has set it"};
    }
  };
  as_before();
  trainer.fit(loader, {.epochs = 2, .learning_rate = 1},
              [&](const gradus::train::step_report& /*step*/) { as_before(); });
  as_before();
  return {net.values().begin(), net.values().end()};
}

/// The bits of all ranks.
[[nodiscard]] std::vector<std::uint32_t> bits_of(const std::vector<std::vector<float>>& ranks) {
  std::vector<std::uint32_t> bits;
  for (const std::vector<float>& rank : ranks) {
    for (const float each : rank) {
      bits.push_back(std::bit_cast<std::uint32_t>(each));
    }
  }
  return bits;
}

template <class Strategy>
void check_ranks(const Strategy& strategy, const std::string& what) {
  std::array<std::vector<std::uint32_t>, 2> results;
  for (const bool flush : {false, true}) {
    std::vector<std::uint32_t>& expected = results[flush ? 1 : 0];
    for (int repeat = 0; repeat < 4; ++repeat) {
      const auto own = gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
        return train_faintly(world, strategy, flush, repeat == 0 ? 0 : (repeat + world.rank()) % 3);
      });
      if (repeat == 0) {
        expected = bits_of(own);
        std::size_t denormals = 0;
        for (const float each : own[0]) {
          denormals += std::fpclassify(each) == FP_SUBNORMAL ? 1U : 0U;
        }
        BOOST_TEST((denormals > 0) == !flush, what << ": denormal weights: " << denormals);
      } else {
        BOOST_TEST((bits_of(own) == expected), what << (flush ? ", flushed" : ", kept") << ", repeat " << repeat);
      }
    }
  }
  BOOST_TEST((results[0] != results[1]), what);
}

[[nodiscard]] boost::test_tools::assertion_result flushing_is_known(boost::unit_test::test_unit_id /*id*/) {
  return gradus::can_flush_denormals;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(denormals_of_ranks, *boost::unit_test::precondition(flushing_is_known))

BOOST_AUTO_TEST_CASE(buckets) {
  check_ranks(gradus::parallel::all_reduce{.bucket_bytes = 64}, "all_reduce");
  check_ranks(gradus::parallel::all_reduce{.bucket_bytes = 64, .overlap_forward = true}, "behind forward");
}

BOOST_AUTO_TEST_CASE(parts_of_parameters) {
  check_ranks(gradus::parallel::sharded_update{}, "sharded_update");
}

BOOST_AUTO_TEST_CASE(servers) {
  check_ranks(gradus::parallel::parameter_server{.servers = 0, .colocate = true}, "colocated servers");
}

BOOST_AUTO_TEST_CASE(a_server_of_its_own_does_as_its_workers) {
  for (const bool flush : {false, true}) {
    const gradus::parallel::parameter_server servers{.servers = 1};
    const auto train = [&](int outside) {
      return bits_of(gradus::comm::run_ranks(3, [&](gradus::comm::threads& world) {
        if (servers.is_server_only(world)) {
          const outside_of_rank numbers{outside};
          static_cast<void>(
              gradus::parallel::serve<float>(world, gradus::optim::sgd{.momentum = 0.9, .weight_decay = 0}, servers));
          return std::vector<float>{};
        }
        return train_faintly(world, servers, flush, 0);
      }));
    };
    const auto expected = train(0);
    BOOST_TEST((train(1) == expected));
    BOOST_TEST((train(2) == expected));
  }
}

BOOST_AUTO_TEST_CASE(reproducible_training_has_the_same_bits_on_any_number_of_ranks) {
  for (const bool flush : {false, true}) {
    const gradus::parallel::reproducible<> eight{.virtual_workers = 8};
    std::vector<std::uint32_t> expected;
    for (const int ranks : {1, 2, 4}) {
      const auto own = gradus::comm::run_ranks(
          ranks, [&](gradus::comm::threads& world) { return train_faintly(world, eight, flush, world.rank() % 3); });
      expected = ranks == 1 ? bits_of({own[0]}) : expected;
      BOOST_TEST((bits_of({own[0]}) == expected), ranks << (flush ? " ranks, flushed" : " ranks, kept"));
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_differ_are_refused) {
  const auto names_option = [](const gradus::configuration_error& failure) {
    return std::string{failure.what()}.find("flush_denormals of the device") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(gradus::comm::run_ranks(2,
                                                [&](gradus::comm::threads& world) {
                                                  return train_faintly(world, gradus::parallel::all_reduce{},
                                                                       world.rank() == 1, 0);
                                                }),
                        gradus::configuration_error, names_option);
}

BOOST_AUTO_TEST_SUITE_END()
