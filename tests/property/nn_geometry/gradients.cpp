// SPDX-License-Identifier: BSL-1.0
//
// Dilated and transposed convolutions, padding modes and pad2d: their contract, which includes finite differences in
// double precision, and networks in which they are fused with activations and shortcuts.
#include <boost/test/unit_test.hpp>

#include <tuple>
#include <vector>

#include "../../support/network_checks.hpp"
#include "gradus/conformance/layer.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/pad2d.hpp"

namespace {

namespace nn = gradus::nn;
using nn::padding_mode;

// Odd sizes, one channel, few pixels.
const std::vector<nn::value_shape> geometry_shapes{{4, 5, 7}, {2, 9, 4}, {1, 3, 3}};
const nn::value_shape one_pixel{3, 1, 1};
constexpr padding_mode modes[] = {padding_mode::zeros, padding_mode::reflect, padding_mode::replicate,
                                  padding_mode::circular};

template <class Options>
void check_contract(const Options& options, const nn::value_shape& shape) {
  for (const gradus::conformance::result& each : gradus::conformance::check_layer("layer", options, {shape})) {
    BOOST_TEST(each.failure == "", each.name << ", " << describe(shape) << ": " << each.failure);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_geometry_gradients)

BOOST_AUTO_TEST_CASE(dilated_convolutions) {
  const auto check = [](const nn::conv2d& options) {
    for (const nn::value_shape& shape : geometry_shapes) {
      check_contract(options, shape);
    }
    check_contract(options, one_pixel);
  };
  const auto same = nn::padding::same();
  check({.out_channels = 3, .kernel = {3, 3}, .padding = same, .dilation = {2, 2}});
  check({.out_channels = 4, .kernel = {2, 4}, .stride = {2, 1}, .padding = same, .dilation = {4, 3}, .bias = false});
  check({.out_channels = 2, .kernel = {3, 3}, .stride = {2, 2}, .padding = same, .dilation = {2, 4}});
  check_contract(nn::conv2d{.out_channels = 4, .kernel = {3, 3}, .padding = same, .dilation = {2, 1}, .groups = 4},
                 {4, 6, 5});
  check_contract(nn::conv2d{.out_channels = 32, .kernel = {3, 3}, .padding = same, .dilation = {2, 2}}, {32, 8, 9});
}

BOOST_AUTO_TEST_CASE(padding_modes) {
  for (const padding_mode mode : modes) {
    for (const nn::value_shape& shape : geometry_shapes) {
      check_contract(nn::pad2d{.padding = nn::padding::explicit_padding(2, 1, 0, 2), .mode = mode}, shape);
      check_contract(nn::conv2d{.out_channels = 3,
                                .kernel = {3, 2},
                                .stride = {1, 2},
                                .padding = nn::padding::same(),
                                .padding_mode = mode,
                                .dilation = {2, 1}},
                     shape);
    }
  }
  check_contract(nn::pad2d{.mode = padding_mode::circular}, one_pixel);
  check_contract(nn::pad2d{.mode = padding_mode::replicate}, one_pixel);
}

BOOST_AUTO_TEST_CASE(transposed_convolutions) {
  const auto check = [](const nn::conv_transpose2d& options) {
    for (const nn::value_shape& shape : geometry_shapes) {
      check_contract(options, shape);
    }
  };
  check({.out_channels = 3, .kernel = {3, 3}, .stride = {2, 2}, .padding = nn::padding::explicit_padding(1)});
  check({.out_channels = 2, .kernel = {2, 2}, .stride = {2, 2}});
  check({.out_channels = 4,
         .kernel = {3, 2},
         .stride = {2, 3},
         .padding = nn::padding::explicit_padding(2, 0, 1, 2),
         .output_padding = {2, 2},
         .dilation = {3, 1},
         .bias = false});
  check({.out_channels = 2, .kernel = {1, 1}, .stride = {3, 2}, .output_padding = {1, 0}});
  check_contract(nn::conv_transpose2d{.out_channels = 6, .kernel = {3, 3}, .stride = {2, 1}, .groups = 2}, {4, 3, 4});
  check_contract(nn::conv_transpose2d{.out_channels = 4, .kernel = {3, 3}, .stride = {2, 2}, .groups = 4}, {4, 3, 4});
  check_contract(nn::conv_transpose2d{.out_channels = 3, .kernel = {2, 3}}, one_pixel);
}

using geometry_layouts = std::tuple<gradus::nchw, gradus::nhwc>;

BOOST_AUTO_TEST_CASE_TEMPLATE(networks_with_shortcuts, Layout, geometry_layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<double, Layout> net{device, {3, 5, 4}};
  nn::value x = net.add("first", nn::conv2d{.out_channels = 4}, net.input());
  x = net.add("relu1", nn::relu{}, x);
  nn::value y = net.add(
      "ring",
      nn::conv2d{
          .out_channels = 4, .kernel = {3, 3}, .padding = nn::padding::same(), .padding_mode = padding_mode::circular},
      x);
  x = net.add("relu2", nn::relu{}, net.add("sum1", nn::add{}, {y, x}));
  y = net.add("up1",
              nn::conv_transpose2d{
                  .out_channels = 3, .kernel = {4, 4}, .stride = {2, 2}, .padding = nn::padding::explicit_padding(1)},
              x);
  nn::value z = net.add("up2", nn::conv_transpose2d{.out_channels = 3, .kernel = {2, 2}, .stride = {2, 2}}, x);
  x = net.add("relu3", nn::relu{}, net.add("sum2", nn::add{}, {y, z}));
  y = net.add("dilated",
              nn::conv2d{.out_channels = 3, .kernel = {3, 3}, .padding = nn::padding::same(), .dilation = {3, 2}}, x);
  x = net.add("relu4", nn::relu{}, net.add("sum3", nn::add{}, {y, x}));
  x = net.add("mirrored", nn::pad2d{.mode = padding_mode::reflect}, x);
  x = net.add("scores", nn::dense{.out_features = 3}, net.add("pool", nn::global_average_pool2d{}, x));
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = 3, .seed = 5});
  const gradus_test::random_batch<double, Layout> batch{device, {2, 3, 5, 4}, 3};
  const auto worst = gradus_test::check_gradients(net, batch);
  BOOST_TEST(worst.relative < 1e-5, "relative difference " << worst.relative << " at " << worst.where);
}

BOOST_AUTO_TEST_SUITE_END()
