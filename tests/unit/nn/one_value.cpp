// SPDX-License-Identifier: BSL-1.0
//
// Normalization needs several values: one less the mean of itself is 0.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradus/comm/threads.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/parallel/synchronized_statistics.hpp"

namespace {

namespace nn = gradus::nn;

/// What a network of one normalization answers in a training step with a batch of images of 3 channels; empty if it
/// trains.
template <class Layer>
std::string answer_of(const Layer& layer, gradus::index_t examples, gradus::index_t pixels) {
  gradus::cpu device{{.intra_op_threads = 1}};
  try {
    nn::network<float, gradus::nhwc> net{device, {.channels = 3, .height = 1, .width = pixels}};
    nn::value x = net.add("norm", layer, net.input());
    x = net.add("flatten", nn::flatten{}, x);
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 2}, x));
    net.compile({.max_batch_size = 4, .seed = 1});
    gradus::tensor<float, 4, gradus::nhwc> images{device, {examples, 3, 1, pixels}};
    const std::vector<std::int32_t> labels(static_cast<std::size_t>(examples), 1);
    (void)net.train_step(images, std::span<const std::int32_t>{labels}, {});
    (void)net.forward(images);  // outside training one value is enough
  } catch (const gradus::shape_error& failure) {
    return failure.what();
  }
  return {};
}

bool has(const std::string& answer, const std::string& words) {
  return answer.find(words) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(one_value)

BOOST_AUTO_TEST_CASE(batch_norm_trains_with_several_values_of_a_channel) {
  BOOST_TEST(answer_of(nn::batch_norm{}, 2, 1).empty());
  BOOST_TEST(answer_of(nn::batch_norm{}, 1, 2).empty());
  const std::string answer = answer_of(nn::batch_norm{}, 1, 1);
  BOOST_TEST_CONTEXT(answer) {
    BOOST_TEST(has(answer, "batch_norm: expected more than 1 value of each channel in training"));
    BOOST_TEST(has(answer, ".drop_last = true"));
  }
}

BOOST_AUTO_TEST_CASE(a_group_has_several_values) {
  BOOST_TEST(answer_of(nn::instance_norm{}, 1, 2).empty());
  BOOST_TEST(has(answer_of(nn::instance_norm{}, 4, 1), "instance_norm: expected several values in each group"));
  BOOST_TEST(answer_of(nn::group_norm{.groups = 1}, 1, 1).empty());
  BOOST_TEST(has(answer_of(nn::group_norm{.groups = 3}, 4, 1), "group_norm: expected several values in each group"));
  BOOST_TEST(answer_of(nn::layer_norm{}, 1, 1).empty());
}

BOOST_AUTO_TEST_CASE(synchronized_batch_norm_counts_all_ranks) {
  for (const int ranks : {1, 2}) {
    std::vector<std::string> answers(static_cast<std::size_t>(ranks));
    gradus::comm::run_ranks(ranks, [&](gradus::comm::threads& world) {
      gradus::parallel::synchronized_statistics statistics{world};
      answers[static_cast<std::size_t>(world.rank())] =
          answer_of(nn::synchronized_batch_norm{.group = &statistics}, 1, 1);
    });
    for (const std::string& answer : answers) {
      BOOST_TEST(answer.empty() == (ranks == 2), answer);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
