// SPDX-License-Identifier: BSL-1.0
//
// Layers on a GPU against the same layers on the CPU in double precision: losses, gradients, running statistics.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "gradus/conformance/layer.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cuda.cuh"
#include "gradus/kernels/cuda/cosine.cuh"
#include "gradus/kernels/cuda/formula.cuh"
#include "gradus/kernels/cuda/group_norm.cuh"
#include "gradus/kernels/cuda/synchronized_batch_norm.cuh"
#include "gradus/nn/layers/adaptive_pool2d.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/tensor/copy.hpp"
#include "layer_outcomes.hpp"

namespace {

namespace nn = gradus::nn;
using gpu_layers::outcome;
using gradus::index_t;

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) {
    result = std::max(result, std::abs(value));
  }
  return result;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double result = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    result = std::max(result, std::abs(a[i] - b[i]));
  }
  return result;
}

template <class Layout>
void agrees(const outcome& expected, bool last_batch_smaller) {
  gradus::cuda device;
  const outcome computed = gpu_layers::train<float, Layout>(device, last_batch_smaller);
  BOOST_CHECK_SMALL(computed.loss - expected.loss, 1e-4 * expected.loss);
  BOOST_CHECK_SMALL(computed.evaluated - expected.evaluated, 1e-4 * expected.evaluated);
  BOOST_CHECK_EQUAL(computed.correct, expected.correct);
  BOOST_REQUIRE_EQUAL(computed.gradients.size(), expected.gradients.size());
  for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
    BOOST_TEST_CONTEXT("parameter " << k) {
      BOOST_CHECK_SMALL(distance(computed.gradients[k], expected.gradients[k]),
                        2e-4 * largest(expected.gradients[k]) + 1e-6);
    }
  }
  BOOST_CHECK_SMALL(distance(computed.statistics, expected.statistics), 1e-4 * largest(expected.statistics));
}

double euclidean_norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) {
    squares += value * value;
  }
  return std::sqrt(squares);
}

/// In float16 results are as far off as those of the CPU are, with room for sums in another order: a maximum and a ReLU
/// here and there differ.
template <class Layout>
void agrees_in_float16(const outcome& expected, const outcome& on_cpu) {
  constexpr double room = 1.25;
  gradus::cuda device;
  const outcome computed = gpu_layers::train<gradus::float16, Layout>(device, false);
  BOOST_CHECK_SMALL(computed.loss - expected.loss, room * std::abs(on_cpu.loss - expected.loss) + 1e-3 * expected.loss);
  BOOST_CHECK_SMALL(computed.evaluated - expected.evaluated,
                    room * std::abs(on_cpu.evaluated - expected.evaluated) + 1e-3 * expected.evaluated);
  BOOST_REQUIRE_EQUAL(computed.gradients.size(), expected.gradients.size());
  for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
    const auto norm_of_error = [&](const outcome& of) {
      std::vector<double> apart = of.gradients[k];
      BOOST_REQUIRE_EQUAL(apart.size(), expected.gradients[k].size());
      for (std::size_t i = 0; i < apart.size(); ++i) {
        apart[i] -= expected.gradients[k][i];
      }
      return euclidean_norm(apart);
    };
    BOOST_TEST_CONTEXT("parameter " << k) {
      BOOST_CHECK_SMALL(norm_of_error(computed),
                        room * norm_of_error(on_cpu) + 0.05 * euclidean_norm(expected.gradients[k]) + 1e-3);
    }
  }
  BOOST_CHECK_SMALL(distance(computed.statistics, expected.statistics),
                    room * distance(on_cpu.statistics, expected.statistics) + 1e-3 * largest(expected.statistics));
}

template <class Element>
using numbers_on_gpu = gradus::tensor<Element, 1, gradus::row_major, gradus::cuda>;

template <class Element>
numbers_on_gpu<Element> on_gpu(gradus::cuda& device, const std::vector<Element>& values) {
  numbers_on_gpu<Element> result{device, {static_cast<index_t>(values.size())}};
  device.copy_from_host(result.data(), values.data(), values.size() * sizeof(Element));
  return result;
}

template <class Element>
std::vector<Element> on_host(gradus::cuda& device, const numbers_on_gpu<Element>& values) {
  std::vector<Element> result(static_cast<std::size_t>(values.size()));
  device.copy_to_host(result.data(), values.data(), result.size() * sizeof(Element));
  return result;
}

/// What a step of batch normalization in training writes.
template <class Element>
struct normalized {
  std::vector<Element> y, dx;
  std::vector<float> inverse, variance, dgamma;
};

/// gamma is 1.7F and beta 0.5 in all channels, epsilon 1e-5; the running variance was 2.
template <class Element, class Layout>
normalized<Element> batch_norm_step(const gradus::image_extents& shape, const std::vector<Element>& x,
                                    const std::vector<Element>& dy) {
  gradus::cuda device;
  const auto channels = static_cast<std::size_t>(shape.c);
  const auto values = on_gpu(device, x);
  const auto slopes = on_gpu(device, dy);
  auto y = on_gpu(device, std::vector<Element>(x.size()));
  auto dx = on_gpu(device, std::vector<Element>(x.size()));
  const auto gamma = on_gpu(device, std::vector<float>(channels, 1.7F));
  const auto beta = on_gpu(device, std::vector<float>(channels, 0.5F));
  auto mean = on_gpu(device, std::vector<float>(channels));
  auto inverse = on_gpu(device, std::vector<float>(channels));
  auto running_mean = on_gpu(device, std::vector<float>(channels));
  auto running_variance = on_gpu(device, std::vector<float>(channels, 2.0F));
  auto dgamma = on_gpu(device, std::vector<float>(channels));
  const auto bytes = gradus::kernels::batch_norm_workspace_bytes<Element, Layout>(device, shape);
  auto memory = on_gpu(device, std::vector<std::uint8_t>(bytes));
  const std::span<std::byte> workspace{reinterpret_cast<std::byte*>(memory.data()), bytes};
  using in = gradus::image_view<const Element, Layout, gradus::cuda>;
  using out = gradus::image_view<Element, Layout, gradus::cuda>;
  const gradus::kernels::batch_norm_affine<float> affine{gamma.data(), beta.data()};
  const gradus::kernels::batch_norm_saved<float> saved{mean.data(), inverse.data(), nullptr};
  gradus::kernels::batch_norm_forward_training(device, in{device, values.data(), shape}, out{device, y.data(), shape},
                                               affine, 1e-5, {running_mean.data(), running_variance.data(), 0.25},
                                               saved, {}, workspace);
  gradus::kernels::batch_norm_backward(
      device, in{device, values.data(), shape}, in{device, y.data(), shape}, in{device, slopes.data(), shape},
      out{device, dx.data(), shape}, affine, saved, gradus::kernels::activation::identity,
      {.gamma = dgamma.data(), .beta = nullptr, .residual = nullptr, .accumulate_residual = false}, {}, workspace);
  return {on_host(device, y), on_host(device, dx), on_host(device, inverse), on_host(device, running_variance),
          on_host(device, dgamma)};
}

/// With one value a channel x is its mean, whatever it is: nothing depends on it.
template <class Element, class Layout>
void one_value_a_channel() {
  for (const index_t channels : {1, 7, 64}) {
    std::vector<Element> x;
    std::vector<Element> dy;
    for (index_t c = 0; c < channels; ++c) {
      x.push_back(static_cast<Element>(static_cast<float>(c * c % 23) / 3));
      dy.push_back(static_cast<Element>(static_cast<float>(c * 5 % 17 - 8) / 7));
    }
    const auto result = batch_norm_step<Element, Layout>({1, channels, 1, 1}, x, dy);
    for (std::size_t c = 0; c < x.size(); ++c) {
      BOOST_CHECK_EQUAL(static_cast<float>(result.y[c]), 0.5F);
      BOOST_CHECK_EQUAL(static_cast<float>(result.dx[c]), 0.0F);
      BOOST_CHECK_EQUAL(result.dgamma[c], 0.0F);
      BOOST_CHECK_EQUAL(result.variance[c], 1.5F);  // the variance of one value is 0
      BOOST_CHECK_CLOSE(result.inverse[c], 1 / std::sqrt(1e-5F), 1e-4F);
    }
  }
}

/// Channels far from 0: one of deviation 1 and one that holds a single number.
template <class Layout>
void values_far_from_zero() {
  const gradus::image_extents shape{5, 2, 3, 7};
  const gradus::dense_mapping<Layout> at{shape};
  const auto value = [](index_t c, index_t i) {
    return c == 1 ? 1000000.0625 : 10000 + static_cast<double>(i * 37 % 29 - 14) / 8;
  };
  std::vector<float> x(static_cast<std::size_t>(shape.size()));
  const auto for_each = [&](const auto& body) {
    for (index_t n = 0, i = 0; n < shape.n; ++n) {
      for (index_t h = 0; h < shape.h; ++h) {
        for (index_t w = 0; w < shape.w; ++w, ++i) {
          body(0, i, static_cast<std::size_t>(at(n, 0, h, w)));
          body(1, i, static_cast<std::size_t>(at(n, 1, h, w)));
        }
      }
    }
  };
  for_each([&](index_t c, index_t i, std::size_t offset) { x[offset] = static_cast<float>(value(c, i)); });
  const auto result = batch_norm_step<float, Layout>(shape, x, x);
  const double count = 5 * 3 * 7;
  double mean = 0;
  double squares = 0;
  for (index_t i = 0; i < static_cast<index_t>(count); ++i) {
    mean += (value(0, i) - 10000) / count;
    squares += (value(0, i) - 10000) * (value(0, i) - 10000) / count;
  }
  const double inverse = 1 / std::sqrt(squares - mean * mean + 1e-5);
  BOOST_CHECK_SMALL(result.inverse[0] - inverse, 1e-6);
  BOOST_CHECK_CLOSE(result.inverse[1], 1 / std::sqrt(1e-5F), 1e-4F);
  for_each([&](index_t c, index_t i, std::size_t offset) {
    const double expected = c == 1 ? 0.5 : (value(0, i) - 10000 - mean) * inverse * static_cast<double>(1.7F) + 0.5;
    BOOST_CHECK_SMALL(static_cast<double>(result.y[offset]) - expected, 5e-6);
  });
}

/// Compares a loss of loss_outcomes with that of the host in double precision.
template <class Element, class Layout>
void loss_agrees(gpu_layers::loss_kind kind, double tolerance) {
  gradus::cuda device;
  const gpu_layers::loss_outcome expected = gpu_layers::expected_loss(kind, std::is_same_v<Layout, gradus::nhwc>);
  const gpu_layers::loss_outcome computed = gpu_layers::loss_of_kind<Element, Layout>(device, kind);
  BOOST_CHECK_SMALL(computed.loss - expected.loss, tolerance * (1 + expected.loss));
  BOOST_CHECK_EQUAL(computed.labels, expected.labels);
  if (sizeof(Element) == 4) {
    BOOST_CHECK_EQUAL(computed.correct, expected.correct);
  }
  BOOST_CHECK_SMALL(distance(computed.gradient, expected.gradient), tolerance * largest(expected.gradient));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layers_on_a_gpu)

BOOST_AUTO_TEST_CASE(nhwc_agrees_with_double_on_the_cpu) {
  agrees<gradus::nhwc>(gpu_layers::on_cpu_nhwc(false), false);
}
BOOST_AUTO_TEST_CASE(nchw_agrees_with_double_on_the_cpu) {
  agrees<gradus::nchw>(gpu_layers::on_cpu_nchw(false), false);
}
BOOST_AUTO_TEST_CASE(a_smaller_batch_than_planned_agrees) {
  agrees<gradus::nhwc>(gpu_layers::on_cpu_nhwc(true), true);
}

BOOST_AUTO_TEST_CASE(nhwc_in_float16_is_close_to_double_on_the_cpu) {
  agrees_in_float16<gradus::nhwc>(gpu_layers::on_cpu_nhwc(false), gpu_layers::on_cpu_in_float16(true));
}
BOOST_AUTO_TEST_CASE(nchw_in_float16_is_close_to_double_on_the_cpu) {
  agrees_in_float16<gradus::nchw>(gpu_layers::on_cpu_nchw(false), gpu_layers::on_cpu_in_float16(false));
}

BOOST_AUTO_TEST_CASE(layers_from_functions_keep_their_contract) {
  gradus::cuda device;
  const auto check = [&]<class Element, class Layout>(Element, Layout) {
    const auto require = [&](const auto& layer, const std::vector<nn::value_shape>& shapes) {
      BOOST_CHECK_NO_THROW((gradus::conformance::require_layer_contract<Element, Layout>(device, layer, shapes)));
    };
    const auto slopes = [](auto x, auto a, auto b) { return where(x > 0, b * x, a * x); };
    for (const nn::value_shape& shape :
         {nn::value_shape{4, 5, 7}, nn::value_shape{19, 1, 1}, nn::value_shape{8, 4, 4}}) {
      require(nn::gelu{}, {shape});
      require(nn::sigmoid{}, {shape});
      require(nn::elementwise([](auto a, auto b) { return a * max(b, 0.5); }), {shape, shape});
      require(nn::elementwise(slopes, {nn::per_channel("a", nn::ones()), nn::per_layer("b", nn::ones())}), {shape});
    }
  };
  check(double{}, gradus::nchw{});  // finite differences too
  check(float{}, gradus::nhwc{});
  check(gradus::float16{}, gradus::nhwc{});
}

BOOST_AUTO_TEST_CASE(padding_and_transposed_convolutions_keep_their_contract) {
  gradus::cuda device;
  const auto check = [&]<class Element, class Layout>(Element, Layout) {
    const auto require = [&](const auto& layer, const nn::value_shape& shape) {
      BOOST_CHECK_NO_THROW((gradus::conformance::require_layer_contract<Element, Layout>(device, layer, {shape})));
    };
    const auto uneven = nn::padding::explicit_padding(2, 1, 0, 3);
    for (const nn::padding_mode mode : {nn::padding_mode::zeros, nn::padding_mode::reflect, nn::padding_mode::replicate,
                                        nn::padding_mode::circular}) {
      require(nn::pad2d{.padding = uneven, .mode = mode, .value = 0.5}, {3, 5, 4});
      require(
          nn::conv2d{.out_channels = 4, .kernel = {3, 2}, .padding = uneven, .padding_mode = mode, .dilation = {1, 2}},
          {3, 5, 4});
    }
    require(nn::conv_transpose2d{.out_channels = 4,
                                 .kernel = {3, 2},
                                 .stride = {2, 3},
                                 .padding = uneven,
                                 .output_padding = {1, 2},
                                 .dilation = {2, 1},
                                 .groups = 2},
            {6, 4, 5});
    require(nn::conv_transpose2d{.out_channels = 3, .kernel = {2, 2}, .stride = {2, 2}, .bias = false}, {2, 3, 4});
  };
  check(double{}, gradus::nchw{});
  check(double{}, gradus::nhwc{});
  check(float{}, gradus::nchw{});
}

// In float: gpu_graphs.cu. The suite also checks leaky ReLU and a ReLU with a cap, fused and as masks.
BOOST_AUTO_TEST_CASE(layers_that_fuse_activations_keep_their_contract_in_16_bits) {
  gradus::cuda device;
  const auto require = [&](const auto& layer, const std::vector<nn::value_shape>& shapes) {
    BOOST_CHECK_NO_THROW(
        (gradus::conformance::require_layer_contract<gradus::bfloat16, gradus::nhwc>(device, layer, shapes)));
  };
  const nn::value_shape image{4, 5, 7};
  require(nn::relu6{}, {image});
  require(nn::leaky_relu{.negative_slope = 0.25}, {image});
  require(nn::add{}, {image, image});
  require(nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .padding = nn::padding::same()}, {image});
  require(nn::batch_norm{}, {image});
  require(nn::dense{.out_features = 9}, {image});
  require(nn::average_pool2d{.kernel = {3, 2}, .stride = {2, 1}}, {image});
  require(nn::adaptive_average_pool2d{.output = {3, 4}}, {image});
  require(nn::adaptive_max_pool2d{.output = {3, 4}}, {image});
  require(
      nn::average_pool2d{.kernel = {3, 2}, .stride = {3, 2}, .padding = 1, .count_padding = true, .ceil_mode = true},
      {image});
  require(nn::max_pool2d{.kernel = {2, 3}, .stride = 2, .padding = 1, .dilation = {3, 2}, .ceil_mode = true}, {image});
}

BOOST_AUTO_TEST_CASE(norms_of_examples_keep_their_contract) {
  gradus::cuda device;
  const auto check = [&]<class Element, class Layout>(Element, Layout) {
    const auto require = [&](const auto& layer, const nn::value_shape& shape) {  // one value is refused in training
      const gradus::index_t least_batch = shape.channels * shape.height * shape.width == 1 ? 2 : 1;
      BOOST_CHECK_NO_THROW(
          (gradus::conformance::require_layer_contract<Element, Layout>(device, layer, {shape}, least_batch)));
    };
    for (const nn::value_shape& shape :
         {nn::value_shape{4, 5, 7}, nn::value_shape{20, 1, 1}, nn::value_shape{1, 1, 1}, nn::value_shape{8, 24, 25}}) {
      require(nn::group_norm{.groups = shape.channels % 2 == 0 ? 2 : 1}, shape);
      if (shape.height * shape.width > 1) {
        require(nn::instance_norm{.scale = true}, shape);
      }
      require(nn::layer_norm{}, shape);
      require(nn::layer_norm{.axes = nn::norm_axes::channels}, shape);
    }
  };
  check(double{}, gradus::nchw{});  // finite differences too
  check(double{}, gradus::nhwc{});
  check(float{}, gradus::nhwc{});
  check(gradus::float16{}, gradus::nhwc{});
  check(gradus::bfloat16{}, gradus::nchw{});
}

// The network's passes on one rank; what ranks add is the same code as on the CPU.
BOOST_AUTO_TEST_CASE(synchronized_batch_norm_keeps_its_contract) {
  struct one_member final : nn::statistics_group {
    struct same final : nn::statistics_sum {
      void sum(std::span<double> /*values*/) override {}
    };
    std::unique_ptr<nn::statistics_sum> make_sum() override { return std::make_unique<same>(); }
  } group;
  gradus::cuda device;
  const auto check = [&]<class Element, class Layout>(Element, Layout) {
    for (const nn::value_shape& shape : {nn::value_shape{4, 5, 7}, nn::value_shape{20, 1, 1}}) {
      const nn::synchronized_batch_norm layer{.group = &group};
      BOOST_CHECK_NO_THROW((gradus::conformance::require_layer_contract<Element, Layout>(
          device, layer, {shape}, shape.height * shape.width == 1 ? 2 : 1)));
    }
  };
  check(double{}, gradus::nchw{});  // finite differences too
  check(double{}, gradus::nhwc{});
  check(float{}, gradus::nhwc{});
  check(gradus::float16{}, gradus::nchw{});
}

BOOST_AUTO_TEST_CASE(batch_norm_of_one_value_a_channel_has_no_gradient) {
  one_value_a_channel<float, gradus::nchw>();
  one_value_a_channel<float, gradus::nhwc>();
  one_value_a_channel<gradus::float16, gradus::nchw>();
  one_value_a_channel<gradus::float16, gradus::nhwc>();
}
BOOST_AUTO_TEST_CASE(batch_norm_keeps_digits_far_from_zero) {
  values_far_from_zero<gradus::nchw>();
  values_far_from_zero<gradus::nhwc>();
}

// The scale is stored on the device. It multiplies the gradient of the scores and nothing else.
BOOST_AUTO_TEST_CASE(a_loss_scale_on_the_device_multiplies_gradients) {
  gradus::cuda device;
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> scores{device, {4}};
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> slopes{device, {4}};
  gradus::tensor<std::int32_t, 1, gradus::row_major, gradus::cuda> labels{device, {1}};
  gradus::tensor<double, 1, gradus::row_major, gradus::cuda> numbers{device, {4}};
  const float of_scores[4] = {1, -2, 3, 0.5};
  const std::int32_t label = 2;
  const double scale[4] = {64, 0, 0, 0};
  device.copy_from_host(scores.data(), of_scores, sizeof(of_scores));
  device.copy_from_host(labels.data(), &label, sizeof(label));
  device.copy_from_host(numbers.data(), scale, sizeof(scale));
  const auto run = [&](const gradus::loss_scale& used) {
    use_loss_scale(device, used);
    softmax_cross_entropy_loss(device, 1, 4, scores.view().data(), labels.view().data(), 0.5, slopes.data());
    std::vector<float> result(4);
    device.copy_to_host(result.data(), slopes.data(), 4 * sizeof(float));
    result.push_back(static_cast<float>(take_loss_sums(device).loss));
    return result;
  };
  const std::vector<float> plain = run({});
  const std::vector<float> scaled = run({.factor = 1, .numbers = numbers.data()});
  for (std::size_t i = 0; i < 4; ++i) {
    BOOST_CHECK_NE(plain[i], 0.0F);
    BOOST_CHECK_EQUAL(scaled[i], 64 * plain[i]);
  }
  BOOST_CHECK_EQUAL(scaled[4], plain[4]);
  BOOST_CHECK(run({}) == plain);
}

BOOST_AUTO_TEST_CASE(a_label_that_is_no_class_has_no_finite_loss) {
  gradus::cuda device;
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> scores{device, {4}};
  gradus::tensor<std::int32_t, 1, gradus::row_major, gradus::cuda> labels{device, {1}};
  const std::int32_t wrong = 4;
  device.copy_from_host(labels.data(), &wrong, sizeof(wrong));
  softmax_cross_entropy_loss(device, 1, 4, scores.view().data(), labels.view().data(), 1.0,
                             static_cast<float*>(nullptr));
  BOOST_CHECK(std::isnan(take_loss_sums(device).loss));
}

BOOST_AUTO_TEST_CASE(losses_with_weights_agree_with_the_host) {
  using gpu_layers::loss_kind;
  loss_agrees<float, gradus::nchw>(loss_kind::smoothed, 1e-5);
  loss_agrees<float, gradus::nhwc>(loss_kind::smoothed, 1e-5);
  loss_agrees<gradus::float16, gradus::nhwc>(loss_kind::smoothed, 5e-3);
  loss_agrees<float, gradus::nchw>(loss_kind::ignored, 1e-5);
  loss_agrees<float, gradus::nchw>(loss_kind::squared, 1e-5);
  loss_agrees<float, gradus::nhwc>(loss_kind::huber, 1e-5);
  loss_agrees<gradus::float16, gradus::nchw>(loss_kind::binary, 5e-3);
  loss_agrees<float, gradus::nchw>(loss_kind::positive, 1e-5);
  loss_agrees<float, gradus::nhwc>(loss_kind::positive, 1e-5);
  loss_agrees<float, gradus::nhwc>(loss_kind::summed, 1e-5);
  loss_agrees<float, gradus::nchw>(loss_kind::cosine, 1e-5);
  loss_agrees<float, gradus::nhwc>(loss_kind::cosine, 1e-5);
  loss_agrees<gradus::float16, gradus::nhwc>(loss_kind::cosine, 5e-3);
}

// A block of threads shares the numbers of a vector. The first vector of scores is 0.
BOOST_AUTO_TEST_CASE(the_cosine_of_long_vectors_is_its_definition) {
  gradus::cuda device;
  constexpr index_t examples = 3;
  constexpr index_t channels = 300;
  const gradus::random_stream stream{4, "cosine"};
  std::vector<float> y(examples * channels);
  std::vector<float> t(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = i < channels ? 0.0F : static_cast<float>(stream.normal(i));
    t[i] = static_cast<float>(stream.normal(1000 + i));
  }
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> scores{device, {examples * channels}};
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> targets{device, {examples * channels}};
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> slopes{device, {examples * channels}};
  device.copy_from_host(scores.data(), y.data(), y.size() * sizeof(float));
  device.copy_from_host(targets.data(), t.data(), t.size() * sizeof(float));
  gradus::kernels::cosine_vectors<float> shape;
  shape.examples = examples;
  shape.channels = channels;
  shape.epsilon = 0.5;
  gradus::kernels::loss_sums sums = cosine_loss(device, shape, static_cast<const float*>(scores.data()),
                                                static_cast<const float*>(targets.data()), 2.0, slopes.data());
  sums += take_loss_sums(device);
  std::vector<float> computed(y.size());
  device.copy_to_host(computed.data(), slopes.data(), computed.size() * sizeof(float));
  double loss = 0;
  for (index_t n = 0; n < examples; ++n) {
    const auto at = [&](index_t c) { return static_cast<std::size_t>(n * channels + c); };
    double product = 0;
    double own = 0;
    double other = 0;
    for (index_t c = 0; c < channels; ++c) {
      product += static_cast<double>(y[at(c)]) * static_cast<double>(t[at(c)]);
      own += static_cast<double>(y[at(c)]) * static_cast<double>(y[at(c)]);
      other += static_cast<double>(t[at(c)]) * static_cast<double>(t[at(c)]);
    }
    const double norm = std::max(std::sqrt(own), 0.5);
    const double cosine = product / (norm * std::sqrt(other));
    loss += 1 - cosine;
    for (index_t c = 0; c < channels; ++c) {
      const double slope = -2 * (static_cast<double>(t[at(c)]) / (norm * std::sqrt(other)) -
                                 cosine * static_cast<double>(y[at(c)]) / (norm * norm));
      BOOST_CHECK_SMALL(static_cast<double>(computed[at(c)]) - slope, 1e-6);
    }
  }
  BOOST_CHECK_SMALL(sums.loss - loss, 1e-9);
}

// Images of the host and of the device have the same scores, and metrics read them from the device.
BOOST_AUTO_TEST_CASE(predictions_and_metrics_read_scores_of_the_device) {
  gradus::cuda device;
  gradus::cpu host;
  nn::network<float, gradus::nhwc, gradus::cuda> net{device, nn::value_shape{3, 2, 2}};
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, net.input()));
  net.compile({.max_batch_size = 4, .seed = 1});
  const gradus::random_stream stream{6, "images"};
  gradus::image_tensor<float, gradus::nhwc> images{host, {10, 3, 2, 2}};
  for (index_t i = 0; i < images.size(); ++i) {
    images.data()[i] = static_cast<float>(stream.normal(static_cast<std::uint64_t>(i)));
  }
  const auto on_device = gradus::to(device, images);
  const auto scores = nn::predict(net, images);
  const auto device_scores = nn::predict(net, on_device);
  const auto copied = gradus::to(host, device_scores);
  const std::vector<std::int32_t> labels = nn::predicted_labels(scores);
  BOOST_CHECK(nn::predicted_labels(device_scores) == labels);
  BOOST_REQUIRE_EQUAL(labels.size(), 10U);
  for (index_t n = 0; n < 10; ++n) {
    for (index_t k = 0; k < 5; ++k) {
      BOOST_CHECK_EQUAL(scores(n, k, 0, 0), copied(n, k, 0, 0));
      BOOST_CHECK_LE(scores(n, k, 0, 0), scores(n, labels[static_cast<std::size_t>(n)], 0, 0));
    }
  }
  std::vector<std::int32_t> other = labels;
  other[3] = (other[3] + 1) % 5;
  gradus::tensor<std::int32_t, 1, gradus::row_major, gradus::cuda> classes{device, {10}};
  device.copy_from_host(classes.data(), other.data(), other.size() * sizeof(std::int32_t));
  gradus::metrics::meter<gradus::metrics::accuracy> accuracy{gradus::metrics::accuracy{}};
  const nn::targets<float, gradus::cuda> compared{std::span<const std::int32_t>{classes.data(), 10}};
  accuracy.update(device_scores.view(), compared);
  BOOST_CHECK_EQUAL(accuracy.compute(), 0.9);
}

BOOST_AUTO_TEST_SUITE_END()
