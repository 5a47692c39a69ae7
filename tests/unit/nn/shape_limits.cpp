// SPDX-License-Identifier: BSL-1.0
//
// Options so large that products of extents do not fit 64 bits, or that planning would not end, are refused.
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/crop2d.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/shaping.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/network/stage_forecast.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;
using limited_network = nn::network<float, gradus::nchw>;

constexpr index_t huge = index_t{1} << 62U;
constexpr index_t half = index_t{1} << 32U;

/// The message of a network with one layer.
template <class Options>
std::string refusal(const Options& options) {
  gradus::cpu device{{.intra_op_threads = 1}};
  limited_network net{device, {4, 6, 6}};
  try {
    (void)net.add("layer", options, net.input());
    net.compile({.max_batch_size = 2});
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "compiled";
}

template <class Options>
void require_refused(const Options& options, const std::string& part) {
  const std::string message = refusal(options);
  BOOST_TEST(message.find(part) != std::string::npos, message);
  BOOST_TEST(message.find("layer 'layer' on (4, 6, 6)") != std::string::npos, message);
}

/// A layer that asks for a given amount of memory.
struct greedy_layer {
  gradus::nn::layer_memory wanted = {};
  index_t buffer = 0;

  template <class Element, class Layout, class Device>
  class layer final : public gradus::nn::layer<Element, Layout, Device> {
    using base = gradus::nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const greedy_layer& options) : wanted_{options.wanted}, buffer_{options.buffer} {}
    std::string_view kind() const noexcept override { return "greedy"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    nn::layer_memory memory(Device& /*device*/, index_t /*batch*/) const override { return wanted_; }
    std::vector<nn::buffer_description> buffers() const override { return {{.name = "statistics", .size = buffer_}}; }
    void forward(const typename base::forward_call& /*call*/) override {}
    void backward(const typename base::backward_call& /*call*/) override {}

   private:
    nn::layer_memory wanted_;
    index_t buffer_;
  };
};

/// The message for some equal layers, one behind the other.
template <class Options>
std::string refusal_of_several(const nn::value_shape& in, int layers, const Options& options, index_t batch) {
  gradus::cpu device{{.intra_op_threads = 1}};
  limited_network net{device, in};
  nn::value last = net.input();
  try {
    for (int i = 0; i < layers; ++i) {
      last = net.add("layer" + std::to_string(i), options, last);
    }
    (void)net.forecast({.max_batch_size = batch});
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "planned";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(shape_limits)

BOOST_AUTO_TEST_CASE(products_of_extents_that_do_not_fit_are_refused) {
  const nn::size2d three{3, 3};
  const nn::size2d far{huge, huge};
  const auto all_sides = nn::padding::explicit_padding(huge);
  require_refused(nn::pixel_shuffle{.factor = half}, "a factor of at most");
  require_refused(nn::pixel_unshuffle{.factor = half}, "a factor of at most");
  require_refused(nn::reshape{.channels = half, .height = half, .width = -1}, "a number of elements that fits 64 bits");
  require_refused(nn::conv2d{.out_channels = 2, .kernel = three, .stride = far}, "a stride of at most");
  require_refused(nn::conv2d{.out_channels = 2, .kernel = far}, "a kernel of at most");
  require_refused(nn::conv2d{.out_channels = 2, .kernel = three, .padding = all_sides}, "a padding of at most");
  require_refused(nn::conv2d{.out_channels = 2, .kernel = three, .padding = nn::padding::same(), .dilation = far},
                  "a dilation of at most");
  require_refused(nn::conv2d{.out_channels = huge, .kernel = three}, "padding and steps of at most");
  require_refused(nn::conv2d{.out_channels = index_t{1} << 44U, .kernel = three}, "a parameter 'weight' of at most");
  require_refused(nn::dense{.out_features = index_t{1} << 44U}, "a parameter 'weight' of at most");
  require_refused(nn::dense{.out_features = huge}, "an output of 1 to");
  require_refused(nn::pad2d{.padding = nn::padding::explicit_padding(huge + 16384, 0, 0, 0)}, "a padding of at most");
  require_refused(nn::pad2d{.padding = all_sides}, "a padding of at most");
  require_refused(nn::pad_channels{.before = huge, .after = huge}, "more channels");
  require_refused(nn::upsample2d{.scale = far}, "a number of elements that fits 64 bits");
  require_refused(nn::upsample2d{.size = far}, "an output of 1 to");
  require_refused(nn::max_pool2d{.kernel = three, .stride = far}, "a stride of at most");
  require_refused(nn::max_pool2d{.kernel = far, .padding = nn::padding::same()}, "a kernel of at most");
  require_refused(nn::average_pool2d{.kernel = {huge, 1}, .stride = 1, .padding = nn::padding::same()},
                  "a kernel of at most");
  require_refused(nn::average_pool2d{.kernel = three, .stride = far}, "a stride of at most");
  require_refused(nn::conv_transpose2d{.out_channels = 2, .kernel = three, .stride = far}, "a stride of at most");
  require_refused(nn::conv_transpose2d{.out_channels = 2, .kernel = three, .padding = all_sides},
                  "a padding of at most");
}

BOOST_AUTO_TEST_CASE(crops_behind_the_image_are_refused) {
  constexpr index_t most = std::numeric_limits<index_t>::max();
  require_refused(nn::crop2d{.left = most, .size = {4, 4}}, "an image of at least 4 x 9223372036854775807 pixels");
  require_refused(nn::crop2d{.top = most - 3, .size = {4, 4}}, "an image of at least 9223372036854775807 x 4 pixels");
  require_refused(nn::crop2d{.top = 1, .size = {most, most}}, "9223372036854775807 x 9223372036854775807 pixels");
  require_refused(nn::crop2d{.top = 3, .size = {4, 4}}, "an image of at least 7 x 4 pixels");
  require_refused(nn::slice{.rows = {most, most}}, "rows within [0, 6)");
  BOOST_TEST(refusal(nn::crop2d{.top = 2, .left = 2, .size = {4, 4}}) == "compiled");
}

BOOST_AUTO_TEST_CASE(an_input_of_more_elements_than_memory_is_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  for (const nn::value_shape& in : {nn::value_shape{huge, 1, 1}, nn::value_shape{half, half, half}}) {
    try {
      const limited_network net{device, in};
      BOOST_ERROR("no exception");
    } catch (const gradus::shape_error& failure) {
      BOOST_TEST(std::string{failure.what()}.find("an input of at most 281474976710656 elements") != std::string::npos,
                 failure.what());
    }
  }
}

BOOST_AUTO_TEST_CASE(divisors_of_many_channels_are_not_all_listed) {
  gradus::cpu device{{.intra_op_threads = 1}};
  limited_network net{device, {index_t{1} << 48U, 1, 1}};
  try {
    (void)net.add("norm", nn::group_norm{.groups = 3}, net.input());
    BOOST_ERROR("no exception");
  } catch (const gradus::shape_error& failure) {
    BOOST_TEST(std::string{failure.what()}.find(
                   "one of 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, ...") != std::string::npos,
               failure.what());
  }
}

BOOST_AUTO_TEST_CASE(strides_whose_planning_would_not_end_are_refused) {
  const nn::size2d far{1000000, 1000000};
  const nn::size2d some{40, 50};
  require_refused(nn::conv_transpose2d{.out_channels = 2, .kernel = {3, 3}, .stride = far},
                  "a stride of at most 65536 rows times columns, got 1000000 x 1000000");
  require_refused(nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .stride = far}, "rows times columns");
  BOOST_TEST(refusal(nn::conv_transpose2d{.out_channels = 2, .kernel = {3, 3}, .stride = some}) == "compiled");
  BOOST_TEST(refusal(nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .stride = some}) == "compiled");
  // Poolings are not planned so.
  gradus::cpu device{{.intra_op_threads = 1}};
  limited_network net{device, {1, 512, 384}};
  const nn::value pooled = net.add("mean", nn::global_average_pool2d{}, net.input());
  BOOST_TEST((net.shape(pooled) == nn::value_shape{1, 1, 1}));
}

BOOST_AUTO_TEST_CASE(a_batch_of_more_elements_than_memory_is_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  limited_network net{device, {4, 6, 6}};
  (void)net.add("layer", nn::relu{}, net.input());
  BOOST_CHECK_THROW(net.compile({.max_batch_size = huge}), gradus::configuration_error);
  net.compile({.max_batch_size = 2});
}

// Bytes of values that fit 64 bits one by one, and not together: the plan of 128 of them would be small.
BOOST_AUTO_TEST_CASE(values_that_do_not_fit_together_are_refused) {
  const nn::value_shape wide{1, index_t{1} << 24U, index_t{1} << 24U};
  const auto message = [&](int layers) { return refusal_of_several(wide, layers, nn::softmax{}, index_t{1} << 7U); };
  BOOST_TEST(message(128).find("expected values of at most") != std::string::npos, message(128));
  BOOST_TEST(refusal_of_several(wide, 64, nn::softmax{}, 1) == "planned");
}

BOOST_AUTO_TEST_CASE(memory_of_layers_that_does_not_fit_together_is_refused) {
  constexpr std::size_t large = std::size_t{1} << 59U;
  const auto require = [](const greedy_layer& options, const std::string& part) {
    const std::string message = refusal_of_several({4, 6, 6}, 8, options, 2);
    BOOST_TEST(message.find(part) != std::string::npos, message);
  };
  require({.wanted = {.state = large, .workspace = 0}}, "bytes of state");
  require({.wanted = {.state = 8 * large, .workspace = 0}}, "bytes of state");
  require({.wanted = {.state = 0, .workspace = 4 * large}}, "of workspace");
  require({.wanted = {.state = 0, .workspace = std::numeric_limits<std::size_t>::max()}}, "of workspace");
  require({.buffer = huge}, "parameters and buffers of 0 to");
  require({.buffer = -1}, "parameters and buffers of 0 to");
  require({.wanted = {.state = large / 1024, .workspace = large}, .buffer = half}, "planned");
}

BOOST_AUTO_TEST_CASE(copies_of_a_stage_that_do_not_fit_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  limited_network net{device, {4, 6, 6}};
  nn::value last = net.add("first", nn::conv2d{.out_channels = 4, .kernel = {3, 3}}, net.input());
  last = net.add("second", nn::dense{.out_features = 4}, last);
  net.loss(nn::softmax_cross_entropy{}, last);
  nn::stage_forecast forecasts{net, nn::compile_options{.max_batch_size = 2}};
  nn::stage_cuts cuts;
  cuts.first_layers.push_back(0);
  cuts.first_layers.push_back(1);
  const auto forecast = [&](std::size_t stored) {
    const std::vector<nn::stage_depth> depths(2, {.stored = stored});
    return forecasts.memory(cuts, depths)[1].arena;
  };
  BOOST_TEST(forecast(4) > 0);
  BOOST_CHECK_THROW(static_cast<void>(forecast(std::size_t{1} << 58U)), gradus::configuration_error);
}

// The kernels choose their ways before there is memory. UBSan tells of products that do not fit.
BOOST_AUTO_TEST_CASE(planning_of_the_largest_extents_has_defined_results) {
  constexpr index_t most = index_t{1} << 20U;
  gradus::cpu device{{.intra_op_threads = 1}};
  int planned = 0;
  int refused = 0;
  const auto forecast = [&](const nn::value_shape& in, const auto& options, index_t batch) {
    limited_network net{device, in};
    try {
      (void)net.add("layer", options, net.input());
      BOOST_TEST(net.multiply_adds() >= 0);
      BOOST_TEST(!net.describe().empty());
      BOOST_TEST(net.forecast({.max_batch_size = batch}).workspace <= nn::most_bytes);
      BOOST_TEST(net.forecast_for_inference({.max_batch_size = batch}).workspace <= nn::most_bytes);
      ++planned;
    } catch (const gradus::error&) {
      ++refused;
    }
  };
  const auto same = nn::padding::same();
  const nn::value_shape shapes[]{{1, index_t{1} << 24U, index_t{1} << 24U},
                                 {index_t{1} << 24U, index_t{1} << 23U, 1},
                                 {index_t{1} << 24U, 1, index_t{1} << 23U},
                                 {32, index_t{1} << 42U, 1}};
  for (const nn::value_shape& in : shapes) {
    for (const index_t batch : {index_t{1}, most}) {
      for (const index_t channels : {index_t{1}, index_t{32}, index_t{1} << 24U}) {
        for (const nn::size2d kernel : {nn::size2d{3, 3}, nn::size2d{1, 7}, nn::size2d{most, 1}, nn::size2d{1, most}}) {
          forecast(in, nn::conv2d{.out_channels = channels, .kernel = kernel, .padding = same}, batch);
          forecast(in, nn::conv_transpose2d{.out_channels = channels, .kernel = kernel, .stride = {2, 2}}, batch);
        }
        forecast(in, nn::dense{.out_features = channels}, batch);
      }
      forecast(in, nn::batch_norm{}, batch);
      forecast(in, nn::layer_norm{}, batch);
      forecast(in, nn::dropout{}, batch);
      forecast(in, nn::max_pool2d{.kernel = {16, 16}, .stride = {1, 1}, .padding = same}, batch);
    }
  }
  BOOST_TEST(planned > 0);
  BOOST_TEST(refused > 0);
  limited_network net{device, shapes[0]};
  (void)net.add("layer", nn::conv2d{.out_channels = 1, .kernel = {most, most}, .padding = same}, net.input());
  BOOST_TEST(net.multiply_adds() == std::numeric_limits<index_t>::max());
}

BOOST_AUTO_TEST_SUITE_END()
