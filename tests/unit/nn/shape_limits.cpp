// SPDX-License-Identifier: BSL-1.0
//
// Options so large that products of extents do not fit 64 bits, or that planning would not end, are refused.
#include <boost/test/unit_test.hpp>

#include <string>

#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/shaping.hpp"
#include "gradus/nn/network.hpp"

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
  require_refused(nn::conv2d{.out_channels = huge, .kernel = three}, "an output of 1 to");
  require_refused(nn::conv2d{.out_channels = index_t{1} << 44U, .kernel = three}, "a parameter 'weight' of at most");
  require_refused(nn::dense{.out_features = huge}, "an output of 1 to");
  require_refused(nn::pad2d{.padding = nn::padding::explicit_padding(huge + 16384, 0, 0, 0)}, "a padding of at most");
  require_refused(nn::pad2d{.padding = all_sides}, "a padding of at most");
  require_refused(nn::pad_channels{.before = huge, .after = huge}, "more channels");
  require_refused(nn::upsample2d{.scale = far}, "a number of elements that fits 64 bits");
  require_refused(nn::upsample2d{.size = far}, "an output of 1 to");
  require_refused(nn::max_pool2d{.kernel = three, .stride = far}, "a stride of at most");
  require_refused(nn::average_pool2d{.kernel = three, .stride = far}, "a stride of at most");
  require_refused(nn::conv_transpose2d{.out_channels = 2, .kernel = three, .stride = far}, "a stride of at most");
  require_refused(nn::conv_transpose2d{.out_channels = 2, .kernel = three, .padding = all_sides},
                  "a padding of at most");
}

BOOST_AUTO_TEST_CASE(strides_whose_planning_would_not_end_are_refused) {
  const nn::size2d far{1000000, 1000000};
  const nn::size2d some{40, 50};
  require_refused(nn::conv_transpose2d{.out_channels = 2, .kernel = {3, 3}, .stride = far},
                  "a stride of at most 65536 rows times columns, got 1000000 x 1000000");
  require_refused(nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .stride = far}, "rows times columns");
  BOOST_TEST(refusal(nn::conv_transpose2d{.out_channels = 2, .kernel = {3, 3}, .stride = some}) == "compiled");
  BOOST_TEST(refusal(nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .stride = some}) == "compiled");
}

BOOST_AUTO_TEST_CASE(a_batch_of_more_elements_than_memory_is_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  limited_network net{device, {4, 6, 6}};
  (void)net.add("layer", nn::relu{}, net.input());
  BOOST_CHECK_THROW(net.compile({.max_batch_size = huge}), gradus::configuration_error);
  net.compile({.max_batch_size = 2});
}

BOOST_AUTO_TEST_SUITE_END()
