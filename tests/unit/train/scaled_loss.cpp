// SPDX-License-Identifier: BSL-1.0
//
// Training with a scaled loss: float16 learns, ranks skip the same steps, and a scale changes no result.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/training_runs.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/comm/threads.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/parallel/compressed_all_reduce.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/model_averaging.hpp"
#include "gradus/train/progress.hpp"

namespace {

namespace nn = gradus::nn;
namespace train = gradus::train;
using gradus::float16;
using gradus::optim::sgd;
using gradus::optim::update;
using gradus_test::largest_difference;
using gradus_test::run_training;
using gradus_test::training_result;
using gradus_test::training_setup;
using scaled_setup = gradus_test::training_setup_with<update<sgd>>;

const sgd plain_rule{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01};

scaled_setup scaled(double initial, int growth_interval = 2000) {
  return {.rule = {.rule = plain_rule, .loss_scaling = {.initial = initial, .growth_interval = growth_interval}}};
}

/// Softmax cross-entropy whose gradient overflows in one step, counted from 0.
struct overflowing_loss {
  int step = -1;

  template <class Element, class Layout, class Device>
  class loss final : public nn::loss_function<Element, Layout, Device> {
   public:
    explicit loss(const overflowing_loss& options) : step_{options.step}, inner_{nn::softmax_cross_entropy{}} {}
    [[nodiscard]] std::string_view kind() const noexcept override { return inner_.kind(); }
    void infer(const nn::value_shape& scores) override { inner_.infer(scores); }
    gradus::kernels::loss_sums compute(const nn::image_batch<const Element, Device>& scores,
                                       const nn::targets<Element, Device>& targets, double scale,
                                       const nn::image_batch<Element, Device>& gradient) override {
      const auto sums = inner_.compute(scores, targets, scale, gradient);
      if (gradient.data() != nullptr && steps_++ == step_) {
        gradient.data()[1] = Element{70000.0F};
      }
      return sums;
    }

   private:
    int step_;
    int steps_ = 0;
    nn::softmax_cross_entropy::loss<Element, Layout, Device> inner_;
  };
};

/// What a rank has after each step.
struct step_record {
  std::vector<float> values;
  double scale = 0;
  gradus::index_t skipped = 0;
};
struct rank_record {
  std::vector<step_record> steps;
  std::vector<float> velocities;
  train::epoch_report epoch;
};

/// One epoch of 7 steps in float16, in which the gradient of rank `bad_rank` overflows in step 2.
template <class Communicator, class Strategy>
rank_record train_with_overflow(Communicator& world, int bad_rank, const Strategy& strategy) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<float16, gradus::nhwc> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 3, .shard = {world.rank(), world.size()}}};
  nn::network<float16, gradus::nhwc> net{device, {2, 9, 8}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 5, .kernel = {3, 3}}, net.input());
  x = net.add("relu", nn::relu{}, x);
  net.loss(overflowing_loss{.step = world.rank() == bad_rank ? 2 : -1},
           net.add("scores", nn::dense{.out_features = 4}, x));
  net.compile({.max_batch_size = 8, .seed = 5});
  const update<sgd> rule{.rule = {.momentum = 0.9}, .loss_scaling = {.initial = 1024}};
  train::trainer trainer{net, rule, world, strategy};
  rank_record result;
  struct recorder {
    rank_record* result;
    nn::network<float16, gradus::nhwc>* net;
    decltype(trainer)* trained;
    void on_step(const train::step_report&) {
      const auto now = *trained->rule().report();
      result->steps.push_back({{net->values().begin(), net->values().end()}, now.scale, now.skipped_steps});
    }
    void on_epoch(const train::epoch_report& epoch) { result->epoch = epoch; }
  };
  trainer.fit(loader, {.epochs = 1, .learning_rate = 0.05}, recorder{&result, &net, &trainer});
  trainer.template update_state<sgd>().visit_buffers([&](std::string_view, const float* data, gradus::index_t count) {
    result.velocities.assign(data, data + count);
  });
  return result;
}

template <class Strategy>
void check_that_all_skip(const Strategy& strategy) {
  for (const int bad_rank : {0, 1, 2}) {
    const auto ranks =
        gradus::comm::run_ranks(3, [&](auto& world) { return train_with_overflow(world, bad_rank, strategy); });
    for (const rank_record& rank : ranks) {
      BOOST_REQUIRE(rank.steps.size() == 7U);
      for (std::size_t i = 0; i < 7; ++i) {
        BOOST_TEST((rank.steps[i].values == ranks[0].steps[i].values), "step " << i);  // the same bits
        BOOST_TEST(rank.steps[i].scale == (i < 2 ? 1024.0 : 512.0));
        BOOST_TEST(rank.steps[i].skipped == (i < 2 ? 0 : 1));
        if (i > 0) {
          BOOST_TEST((rank.steps[i].values == rank.steps[i - 1].values) == (i == 2), "step " << i);
        }
      }
      BOOST_TEST((rank.velocities == ranks[0].velocities));
      BOOST_TEST(std::isfinite(rank.velocities[0]));
      BOOST_REQUIRE(rank.epoch.loss_scale.has_value());
      BOOST_TEST(rank.epoch.loss_scale->scale == 512.0);
      BOOST_TEST(rank.epoch.loss_scale->skipped_steps == 1);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(scaled_losses)

BOOST_AUTO_TEST_CASE(an_overflow_on_one_rank_skips_the_step_on_all) {
  check_that_all_skip(gradus::parallel::all_reduce{});
  check_that_all_skip(gradus::parallel::all_reduce{.bucket_bytes = 64, .first_bucket_bytes = 64});
  check_that_all_skip(
      gradus::parallel::all_reduce{.bucket_bytes = 64, .first_bucket_bytes = 64, .overlap_forward = true});
  check_that_all_skip(gradus::parallel::compressed_all_reduce<float16>{});
  check_that_all_skip(gradus::parallel::compressed_all_reduce<gradus::parallel::int8_blocks>{});
  check_that_all_skip(gradus::parallel::model_averaging{.synchronous_steps = 100});
  check_that_all_skip(gradus::parallel::sharded_update{});
}

// A rank decides by itself about its own steps; the average is that of the ranks as they are.
BOOST_AUTO_TEST_CASE(with_model_averaging_a_rank_skips_its_own_step) {
  const auto ranks = gradus::comm::run_ranks(
      2, [](auto& world) { return train_with_overflow(world, 1, gradus::parallel::model_averaging{}); });
  for (std::size_t i = 0; i < 7; ++i) {
    BOOST_TEST(ranks[0].steps[i].skipped == 0);
    BOOST_TEST(ranks[1].steps[i].skipped == (i < 2 ? 0 : 1));
    for (const float value : ranks[1].steps[i].values) {
      BOOST_REQUIRE(std::isfinite(value));
    }
  }
  BOOST_TEST((ranks[1].steps[2].values == ranks[1].steps[1].values));
  BOOST_TEST((ranks[0].steps[2].values != ranks[0].steps[1].values));
}

// The scale grows while it trains, and no bit changes: it is a power of two.
BOOST_AUTO_TEST_CASE(a_scale_changes_no_bit_of_a_training_in_double_precision) {
  gradus::comm::self alone;
  const training_setup plain{.rule = plain_rule};
  const training_result expected = run_training<gradus::nhwc>(alone, plain);
  const training_result result = run_training<gradus::nhwc>(alone, scaled(1024, 3));
  BOOST_TEST((result.weights == expected.weights));
  BOOST_TEST((result.losses == expected.losses));
}

BOOST_AUTO_TEST_CASE(ranks_with_a_scale_reach_the_weights_of_one_process) {
  gradus::comm::self alone;
  const training_result one = run_training<gradus::nhwc>(alone, scaled(1024, 3));
  for (const bool overlap_forward : {false, true}) {
    scaled_setup setup = scaled(1024, 3);
    setup.strategy = {.bucket_bytes = 1000, .first_bucket_bytes = 200, .overlap_forward = overlap_forward};
    const auto ranks =
        gradus::comm::run_ranks(2, [&](auto& world) { return run_training<gradus::nhwc>(world, setup); });
    for (const training_result& rank : ranks) {
      BOOST_TEST(largest_difference(rank.weights, one.weights) < 1e-9);
      BOOST_TEST(largest_difference(rank.losses, one.losses) < 1e-10);
      BOOST_TEST((rank.weights == ranks[0].weights));
    }
  }
}

// In steps in parts the scale is that of every part.
BOOST_AUTO_TEST_CASE(a_step_in_parts_is_scaled_once) {
  gradus::comm::self alone;
  scaled_setup setup = scaled(1024, 3);
  const training_result whole = run_training<gradus::nhwc>(alone, setup);
  setup.micro_batch_size = 3;
  const training_result parts = run_training<gradus::nhwc>(alone, setup);
  BOOST_TEST(largest_difference(parts.weights, whole.weights) < 1e-9);
}

// A scale that is too large for the first steps is found by itself; then float16 learns as float does.
BOOST_AUTO_TEST_CASE(float16_learns_from_a_scale_that_is_too_large) {
  gradus::comm::self alone;
  const training_setup plain{.rule = plain_rule};
  const training_result wide = run_training<gradus::nhwc, float>(alone, plain);
  gradus::optim::loss_scale_report report;
  const training_result narrow = gradus_test::run_training_with<gradus::nhwc, float16>(
      alone, scaled(0x1p22), gradus::parallel::all_reduce{}, {.rank = 0, .ranks = 1},
      [&](auto& trainer) { report = *trainer.rule().report(); });
  BOOST_TEST(report.skipped_steps >= 2);
  BOOST_TEST(report.skipped_steps <= 10);
  BOOST_TEST(report.scale == std::ldexp(0x1p22, -static_cast<int>(report.skipped_steps)));
  BOOST_TEST(narrow.losses.back() < 0.9 * narrow.losses.front());
  BOOST_TEST(std::abs(narrow.losses.back() - wide.losses.back()) < 0.2 * wide.losses.back());
}

BOOST_AUTO_TEST_CASE(ranks_of_float16_stay_close_to_one_process) {
  scaled_setup setup = scaled(1024);
  setup.epochs = 1;
  gradus::comm::self alone;
  const training_result one = run_training<gradus::nhwc, float16>(alone, setup);
  const auto ranks =
      gradus::comm::run_ranks(2, [&](auto& world) { return run_training<gradus::nhwc, float16>(world, setup); });
  for (const training_result& rank : ranks) {
    BOOST_TEST(largest_difference(rank.weights, one.weights) < 1e-3);
    BOOST_TEST((rank.weights == ranks[0].weights));
  }
}

// Gradients far below the smallest number of float16 are lost without a scale, and kept with one.
BOOST_AUTO_TEST_CASE(small_gradients_survive_with_a_scale) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float16, gradus::nhwc> net{device, {2, 9, 8}};
  gradus_test::build_training_network(net);
  net.compile({.max_batch_size = 8, .seed = 2});
  gradus::data::loader<float16, gradus::nhwc> loader{device, gradus_test::small_dataset(), {.global_batch_size = 8}};
  loader.start_epoch(0);
  const auto* const batch = loader.next();
  const auto largest_gradient = [&](double factor) {
    // As a part of so many examples that each weighs 1e-9.
    (void)net.train_step(batch->images, batch->labels,
                         {.global_examples = 1000000000, .loss_scale = {.factor = factor}});
    float largest = 0;
    for (const float each : net.gradients()) {
      largest = std::max(largest, std::abs(each));
    }
    return largest;
  };
  BOOST_TEST(largest_gradient(1) == 0.0F);
  BOOST_TEST(largest_gradient(0x1p24) > 1e-3F);
  BOOST_TEST(largest_gradient(0x1p24) < 1.0F);
}

BOOST_AUTO_TEST_CASE(progress_shows_scale_and_skipped_steps) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::tmpfile(), &std::fclose};
  train::progress shown{{.output = file.get(), .terminal = false}};
  shown.on_start({.epochs = 1});
  train::epoch_report epoch{.epochs = 1};
  shown.on_epoch(epoch);
  epoch.loss_scale = {.scale = 512, .skipped_steps = 3};
  shown.on_epoch(epoch);
  std::rewind(file.get());
  std::string text(500, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  const std::size_t said = text.find("; loss scale 512, 3 steps skipped\n");
  BOOST_TEST(said != std::string::npos);
  BOOST_TEST(text.find("loss scale") == said + 2);
}

BOOST_AUTO_TEST_SUITE_END()
