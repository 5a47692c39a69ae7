// SPDX-License-Identifier: BSL-1.0
//
// Update rules on a GPU against those on the CPU: all options, parameters of several pieces, skipped steps of a loss
// scale, captured steps.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../support/update_state.hpp"
#include "gradus/data/cuda_loader.cuh"
#include "gradus/kernels/cuda.cuh"
#include "gradus/optim/cuda_passes.cuh"
#include "gradus/optim/update.hpp"
#include "gradus/tensor/cuda.cuh"
#include "gradus/train/captured_step.cuh"
#include "optimizer_cases.hpp"
#include "training_runs.hpp"

namespace {

namespace optim = gradus::optim;
using gradus::index_t;
using optim::segment;
using card_state = gradus_test::update_state<float, gradus::cuda>;

/// Parameters of no piece, one piece and several pieces of 8192 elements; a gap, some without decay, and some with a
/// learning rate of their own.
const std::vector<segment> segments{{"a", 0, 1, true},
                                    {"b", 1, 20000, true, 0.5},
                                    {"c", 20005, 8192, false, 3},
                                    {"d", 28197, 0, true},
                                    {"e", 28197, 33, true}};
constexpr index_t size = 28230;

std::vector<float> numbers(int seed, float factor) {
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = factor * static_cast<float>((static_cast<int>(i) * 7919 + seed * 1047) % 2001 - 990) / 1024;
  }
  return values;
}

/// An array on a GPU.
struct array {
  array(gradus::cuda& device, const std::vector<float>& values) : elements{device, {size}} { *this = values; }
  array& operator=(const std::vector<float>& values) {
    elements.device().copy_from_host(elements.data(), values.data(), values.size() * sizeof(float));
    return *this;
  }
  [[nodiscard]] std::vector<float> on_host() {
    std::vector<float> values(static_cast<std::size_t>(size));
    elements.device().copy_to_host(values.data(), elements.data(), values.size() * sizeof(float));
    return values;
  }
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> elements;
};

double largest_difference(const std::vector<float>& have, const std::vector<float>& want) {
  double worst = 0;
  for (std::size_t i = 0; i < have.size(); ++i) {
    const double difference = std::abs(static_cast<double>(have[i]) - static_cast<double>(want[i]));
    worst = std::max(worst, std::isnan(difference) ? 1e300 : difference / (0.01 + std::abs(want[i])));
  }
  return worst;
}

/// Some steps of the rule on both devices.
template <class Rule>
void check_steps(std::string_view name, const Rule& rule) {
  gradus::cuda gpu;
  gradus::cpu cpu{{.intra_op_threads = 1}};
  card_state state{gpu, rule, size};
  gradus_test::update_state<float> reference{cpu, rule, size};
  std::vector<float> want = numbers(1, 1);
  array values{gpu, want};
  array gradients{gpu, want};
  for (std::uint64_t step = 0; step < 4; ++step) {
    const std::vector<float> now = numbers(static_cast<int>(step) + 2, 0.25F);
    gradients = now;
    state.update(gpu, segments, values.elements.data(), gradients.elements.data(), {0.05, step});
    reference.update(cpu, segments, want.data(), now.data(), {0.05, step});
  }
  BOOST_TEST(largest_difference(values.on_host(), want) < 2e-5, name);
}

/// Steps 1 and 3 have a gradient that is not finite, in the first and the last piece. They are no steps.
template <class Rule>
void check_skipped_steps(std::string_view name, const Rule& rule) {
  gradus::cuda gpu;
  optim::update<optim::rule_of<Rule>> around{};
  if constexpr (std::is_same_v<optim::rule_of<Rule>, Rule>) {
    around.rule = rule;
  } else {
    around = rule;
  }
  around.loss_scaling = {.initial = 8};
  card_state scaled{gpu, around, size};
  card_state plain{gpu, rule, size};
  array values{gpu, numbers(1, 1)};
  array others{gpu, numbers(1, 1)};
  array gradients{gpu, numbers(1, 1)};
  std::uint64_t made = 0;
  float scale = 8;
  for (std::uint64_t step = 0; step < 6; ++step) {
    std::vector<float> now = numbers(static_cast<int>(step), scale);
    if (step == 1 || step == 3) {
      now[step == 1 ? 0 : static_cast<std::size_t>(size) - 1] = std::numeric_limits<float>::infinity();
    } else {
      gradients = numbers(static_cast<int>(step), 1);
      plain.update(gpu, segments, others.elements.data(), gradients.elements.data(), {0.05, made++});
    }
    gradients = now;
    scaled.update(gpu, segments, values.elements.data(), gradients.elements.data(), {0.05, step});
    scale = step == 1 || step == 3 ? scale / 2 : scale;
    BOOST_TEST((values.on_host() == others.on_host()), name << ", step " << step);
  }
  BOOST_TEST(scaled->report()->skipped_steps == 2);
}

/// A captured step reads its number and its learning rate from memory.
template <class Rule>
void check_captured(std::string_view name, const Rule& rule) {
  using network = gradus::nn::network<float, gradus::nhwc, gradus::cuda>;
  gradus::cuda device;
  gradus::data::loader<float, gradus::nhwc, gradus::cuda> loader{
      device, gradus_test::small_dataset(), {.global_batch_size = 8, .seed = 5}};
  network plain{device, {2, 9, 8}};
  network captured{device, {2, 9, 8}};
  for (network* const each : {&plain, &captured}) {
    gradus_test::build_training_network(*each);
    each->compile({.max_batch_size = 8, .seed = 11});
  }
  const auto parameters = gradus::train::trained_parameters_of(plain);
  card_state state{device, rule, static_cast<index_t>(plain.values().size())};
  gradus::train::captured_step step{captured, rule};
  std::uint64_t number = 0;
  loader.start_epoch(0);
  while (const auto* batch = loader.next()) {
    const double rate = 0.01 / static_cast<double>(1 + number);
    const gradus::nn::step_options options{
        .step = number, .first_example = batch->first_example, .global_examples = batch->global_examples};
    (void)plain.train_step(batch->images, batch->labels, options);
    state.update(device, {parameters.segments.data(), parameters.segments.size()}, plain.values().data(),
                 plain.gradients().data(), {rate, number});
    (void)step(batch->images, batch->labels, rate, options);
    ++number;
  }
  BOOST_TEST(step.recorded());
  const auto values_of = [&](network& net) {
    std::vector<float> values(net.values().size());
    device.copy_to_host(values.data(), net.values().data(), net.values().size_bytes());
    return values;
  };
  BOOST_TEST((values_of(plain) == values_of(captured)), name);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rules_on_a_gpu)

BOOST_AUTO_TEST_CASE(rules_make_the_steps_of_the_cpu) {
  gradus_test::for_each_optimizer([](std::string_view name, const auto& rule) { check_steps(name, rule); });
  check_steps("averaged sgd", gradus_test::averaged_sgd());
  check_steps("sgd clipped by norm", gradus_test::norm_clipped_sgd());
  check_steps("adam clipped by norm", gradus_test::norm_clipped_adam());
  check_steps("sgd clipped by value", gradus_test::value_clipped_sgd());
  check_steps("lamb clipped by norm", optim::update<optim::lamb>{.max_norm = 2});
}

// The norm is summed over the pieces of all calls, is in the report, and stays on the device until then.
BOOST_AUTO_TEST_CASE(norms_are_those_of_the_cpu) {
  gradus::cuda gpu;
  gradus::cpu cpu{{.intra_op_threads = 1}};
  const optim::update<optim::sgd> rule{.max_norm = 20};
  card_state state{gpu, rule, size};
  gradus_test::update_state<float> reference{cpu, rule, size};
  std::vector<float> want = numbers(1, 1);
  array values{gpu, want};
  array gradients{gpu, want};
  const std::span<const optim::segment> all{segments};
  for (std::uint64_t step = 0; step < 4; ++step) {
    const std::vector<float> now = numbers(static_cast<int>(step) + 2, step == 2 ? 0.1F : 0.5F);
    gradients = now;
    state->test(all.first(2), gradients.elements.data());
    state->test(all.subspan(2), gradients.elements.data());
    state->use_totals();
    state->update(all.subspan(2), values.elements.data(), gradients.elements.data(), {0.05, step});
    state->update(all.first(2), values.elements.data(), gradients.elements.data(), {0.05, step});
    reference.update(cpu, all, want.data(), now.data(), {0.05, step});
    BOOST_TEST(!state->gradient_norm().has_value());
  }
  BOOST_TEST(largest_difference(values.on_host(), want) < 2e-5);
  const optim::gradient_norm_report have = *state->take_norm_report();
  const optim::gradient_norm_report expected = *reference->take_norm_report();
  BOOST_TEST(have.steps == 4);
  BOOST_TEST(have.clipped_steps == 3);
  BOOST_TEST(have.clipped_steps == expected.clipped_steps);
  BOOST_TEST(have.last == expected.last, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(have.mean == expected.mean, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(have.largest == expected.largest, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(state->take_norm_report()->steps == 0);
}

BOOST_AUTO_TEST_CASE(skipped_steps_do_not_count) {
  check_skipped_steps("adam", optim::adam{.weight_decay = 0.1, .amsgrad = true});
  check_skipped_steps("adagrad", optim::adagrad{.lr_decay = 0.5});
  check_skipped_steps("lamb", optim::lamb{.weight_decay = 0.1});
  check_skipped_steps("averaged sgd", gradus_test::averaged_sgd());
  check_skipped_steps("sgd clipped by norm", gradus_test::norm_clipped_sgd());
  check_skipped_steps("adam clipped by norm", gradus_test::norm_clipped_adam());
  check_skipped_steps("sgd clipped by value", gradus_test::value_clipped_sgd());
}

BOOST_AUTO_TEST_CASE(captured_steps_have_their_own_number) {
  check_captured("adam", optim::adam{});
  check_captured("lamb", optim::lamb{});
  check_captured("adam clipped by norm", gradus_test::norm_clipped_adam());
  check_captured("sgd clipped by value", gradus_test::value_clipped_sgd());
}

BOOST_AUTO_TEST_CASE(averages_are_swapped_with_the_values) {
  gradus::cuda gpu;
  card_state state{gpu, optim::update<optim::sgd>{.average = 0.5}, size};
  array values{gpu, numbers(1, 1)};
  array gradients{gpu, numbers(2, 1)};
  for (std::uint64_t step = 0; step < 2; ++step) {
    state.update(gpu, segments, values.elements.data(), gradients.elements.data(), {1.0, step});
  }
  const std::vector<float> trained = values.on_host();
  const std::span<float> all{values.elements.data(), static_cast<std::size_t>(size)};
  state->swap_average(all);
  const std::vector<float> averages = values.on_host();
  const float last = static_cast<float>(segments[1].learning_rate_factor) * numbers(2, 1)[5];
  BOOST_TEST(averages[5] == 0.5F * ((trained[5] + last) + trained[5]), boost::test_tools::tolerance(1e-5F));
  state->swap_average(all);
  BOOST_TEST((values.on_host() == trained));
}

BOOST_AUTO_TEST_SUITE_END()
