// SPDX-License-Identifier: BSL-1.0
//
// Batches that are computed in parts: the same gradients, loss and evaluation, with less memory.
#include <boost/test/unit_test.hpp>

#include <cmath>   // std::abs
#include <string>  // std::string
#include <vector>  // std::vector

#include "../../support/network_checks.hpp"
#include "../../support/training_runs.hpp"

namespace {

namespace nn = gradus::nn;
using network = nn::network<double, gradus::nhwc>;

struct listener final : nn::step_hooks {
  void before_layer(std::size_t, gradus::nn::phase which) override {
    forward += which == gradus::nn::phase::forward ? 1 : 0;
  }
  void gradients_ready(std::size_t first, std::size_t count) override { ready.push_back(first + count); }

  int forward = 0;
  std::vector<std::size_t> ready;
};

network make(gradus::cpu& device, gradus::index_t micro_batch_size) {
  network net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 4, .micro_batch_size = micro_batch_size});
  return net;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(micro_batches)

BOOST_AUTO_TEST_CASE(parts_give_the_gradients_of_the_batch) {
  gradus::cpu device;
  network whole = make(device, 0);
  const gradus_test::random_batch<double, gradus::nhwc> batch{device, {8, 2, 9, 8}, 4};
  const auto want = whole.train_step(batch.images, batch.labels, {.step = 3, .first_example = 40});
  const auto want_of_evaluation = whole.evaluate(batch.images, batch.labels);
  for (const gradus::index_t size : {1, 3, 4, 7, 8, 100}) {
    network parts = make(device, size);
    listener heard;
    const auto have = parts.train_step(batch.images, batch.labels, {.step = 3, .first_example = 40}, &heard);
    BOOST_TEST_CONTEXT("parts of " << size) {
      BOOST_TEST(std::abs(have.loss - want.loss) < 1e-12);
      BOOST_TEST(have.correct == want.correct);
      double difference = 0;
      for (std::size_t i = 0; i < whole.gradients().size(); ++i) {
        difference = std::max(difference, std::abs(parts.gradients()[i] - whole.gradients()[i]));
      }
      BOOST_TEST(difference < 1e-13);
      BOOST_TEST((heard.ready == std::vector<std::size_t>{2, 4, 6}));  // once a step
      const auto evaluated = parts.evaluate(batch.images, batch.labels);
      BOOST_TEST(std::abs(evaluated.loss - want_of_evaluation.loss) < 1e-12);
      BOOST_TEST(evaluated.correct == want_of_evaluation.correct);
    }
  }
}

BOOST_AUTO_TEST_CASE(parts_need_the_memory_of_one) {
  gradus::cpu device;
  const std::size_t whole = make(device, 0).plan().arena_bytes;
  const std::size_t parts = make(device, 2).plan().arena_bytes;
  BOOST_TEST(parts < whole / 3);
}

BOOST_AUTO_TEST_CASE(forward_takes_one_part) {
  gradus::cpu device;
  network parts = make(device, 3);
  const gradus_test::random_batch<double, gradus::nhwc> batch{device, {8, 2, 9, 8}, 4};
  BOOST_TEST(parts.forward(batch.images.view().slice(0, 3)).extent(0) == 3);
  std::string message;
  try {
    static_cast<void>(parts.forward(batch.images));
  } catch (const gradus::shape_error& failure) {
    message = failure.what();
  }
  BOOST_TEST(message.find("with n at most 3") != std::string::npos, message);
  network unfrozen{device, {2, 9, 8}};
  gradus_test::build_training_network(unfrozen);
  BOOST_CHECK_THROW(unfrozen.compile({.max_batch_size = 8, .micro_batch_size = -1}), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
