// SPDX-License-Identifier: BSL-1.0
//
// Output shapes, multiply-adds and messages of dilated and transposed convolutions and of padding.
#include <boost/test/unit_test.hpp>

#include <string>
#include <string_view>

#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers/adaptive_pool2d.hpp"
#include "gradus/nn/layers/conv2d.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/crop2d.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/pool2d.hpp"
#include "gradus/nn/layers/upsample2d.hpp"

namespace {

namespace nn = gradus::nn;
using nn::padding_mode;

template <class Options>
struct inferred_layer {
  typename Options::template layer<float, gradus::nchw, gradus::cpu> layer;
  nn::value_shape shape;

  inferred_layer(const Options& options, const nn::value_shape& in) : layer{options} {
    const nn::value_shape inputs[] = {in};
    shape = layer.infer(inputs);
  }
};

template <class Options>
nn::value_shape shape_of(const Options& options, const nn::value_shape& in) {
  return inferred_layer<Options>{options, in}.shape;
}

/// The message of the error for options.
template <class Error, class Options>
std::string refusal(const Options& options, const nn::value_shape& in) {
  try {
    static_cast<void>(shape_of(options, in));
  } catch (const Error& failure) {
    return std::string{failure.message()};
  }
  return "no error";
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_geometry_shapes)

BOOST_AUTO_TEST_CASE(outputs_have_the_extents_of_pytorch) {
  const auto same = nn::padding::same();
  const auto by = [](gradus::index_t all) { return nn::padding::explicit_padding(all); };
  BOOST_CHECK((shape_of(nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .padding = same, .dilation = {6, 2}},
                        {3, 33, 9}) == nn::value_shape{2, 33, 9}));
  BOOST_CHECK((shape_of(nn::conv2d{.out_channels = 2, .kernel = {3, 2}, .stride = {2, 1}, .dilation = {2, 3}},
                        {3, 10, 9}) == nn::value_shape{2, 3, 6}));
  BOOST_CHECK((shape_of(nn::conv2d{.out_channels = 2,
                                   .kernel = {3, 3},
                                   .stride = {2, 2},
                                   .padding = same,
                                   .padding_mode = padding_mode::circular},
                        {3, 10, 9}) == nn::value_shape{2, 5, 5}));
  BOOST_CHECK((shape_of(nn::conv_transpose2d{.out_channels = 2, .kernel = {2, 2}, .stride = {2, 2}}, {3, 5, 4}) ==
               nn::value_shape{2, 10, 8}));
  BOOST_CHECK((shape_of(nn::conv_transpose2d{.out_channels = 2,
                                             .kernel = {3, 4},
                                             .stride = {2, 3},
                                             .padding = by(1),
                                             .output_padding = {1, 2},
                                             .dilation = {2, 1}},
                        {3, 5, 4}) == nn::value_shape{2, 12, 13}));
  BOOST_CHECK((shape_of(nn::pad2d{.padding = nn::padding::explicit_padding(1, 2, 3, 4)}, {3, 5, 4}) ==
               nn::value_shape{3, 8, 11}));
}

// As in PyTorch: kernel_size=3 is 3 x 3.
BOOST_AUTO_TEST_CASE(one_number_means_both_extents) {
  const nn::value_shape image{4, 17, 13};
  const auto same = [&](const auto& with_one, const auto& with_two) {
    const nn::value_shape two = shape_of(with_two, image);
    BOOST_TEST_CONTEXT("the shape " << two.channels << " x " << two.height << " x " << two.width) {
      BOOST_CHECK((shape_of(with_one, image) == two));
    }
  };
  same(nn::conv2d{.out_channels = 2, .kernel = 3}, nn::conv2d{.out_channels = 2, .kernel = {3, 3}});
  same(nn::conv2d{.out_channels = 2, .kernel = {3}}, nn::conv2d{.out_channels = 2, .kernel = {3, 3}});
  same(nn::conv2d{2, 3, 2}, nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .stride = {2, 2}});
  same(nn::conv2d{.out_channels = 2, .kernel = 3, .stride = 2, .dilation = 2},
       nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .stride = {2, 2}, .dilation = {2, 2}});
  same(nn::conv2d{.out_channels = 2, .kernel = 3, .padding = 1},
       nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .padding = nn::padding::explicit_padding(1)});
  same(nn::conv2d{.out_channels = 2, .kernel = 3, .padding = {2, 1}},
       nn::conv2d{.out_channels = 2, .kernel = {3, 3}, .padding = nn::padding::explicit_padding(2, 2, 1, 1)});
  same(nn::conv_transpose2d{.out_channels = 2, .kernel = 3, .stride = 2, .output_padding = 1, .dilation = 3},
       nn::conv_transpose2d{
           .out_channels = 2, .kernel = {3, 3}, .stride = {2, 2}, .output_padding = {1, 1}, .dilation = {3, 3}});
  same(nn::max_pool2d{.kernel = 3, .stride = 2}, nn::max_pool2d{.kernel = {3, 3}, .stride = {2, 2}});
  same(nn::max_pool2d{.kernel = 3, .dilation = 2}, nn::max_pool2d{.kernel = {3, 3}, .dilation = {2, 2}});
  same(nn::average_pool2d{.kernel = 3, .stride = 2}, nn::average_pool2d{.kernel = {3, 3}, .stride = {2, 2}});
  same(nn::upsample2d{.scale = 3}, nn::upsample2d{.scale = {3, 3}});
  same(nn::upsample2d{.size = 5}, nn::upsample2d{.size = {5, 5}});
  same(nn::crop2d{.size = 5}, nn::crop2d{.size = {5, 5}});
  same(nn::pad2d{.padding = 2}, nn::pad2d{.padding = nn::padding::explicit_padding(2)});
  const std::size_t three = 3;
  same(nn::conv2d{.out_channels = 2, .kernel = three}, nn::conv2d{.out_channels = 2, .kernel = {3, 3}});
}

BOOST_AUTO_TEST_CASE(a_pooling_without_a_stride_takes_its_kernel_s) {
  const nn::value_shape image{4, 17, 13};
  BOOST_CHECK((shape_of(nn::max_pool2d{.kernel = 3}, image) == nn::value_shape{4, 5, 4}));
  BOOST_CHECK((shape_of(nn::average_pool2d{.kernel = {5, 4}}, image) == nn::value_shape{4, 3, 3}));
  BOOST_CHECK((shape_of(nn::max_pool2d{}, image) == nn::value_shape{4, 8, 6}));
  BOOST_CHECK((shape_of(nn::max_pool2d{.kernel = {5, 4}}, image) == nn::value_shape{4, 3, 3}));
  const std::string none = refusal<gradus::configuration_error>(nn::max_pool2d{.kernel = 3, .stride = 0}, image);
  BOOST_TEST(contains(none, "a stride of at least 1 x 1"), none);
}

// The shapes that torch.nn.MaxPool2d and AvgPool2d have with ceil_mode and dilation.
BOOST_AUTO_TEST_CASE(poolings_round_up_as_in_pytorch) {
  const auto outputs = [](gradus::index_t input, gradus::index_t kernel, gradus::index_t stride, gradus::index_t pad,
                          gradus::index_t dilation) {
    const nn::value_shape largest = shape_of(nn::max_pool2d{.kernel = {kernel, 1},
                                                            .stride = {stride, 1},
                                                            .padding = {pad, 0},
                                                            .dilation = {dilation, 1},
                                                            .ceil_mode = true},
                                             nn::value_shape{4, input, 5});
    if (dilation == 1) {
      const nn::average_pool2d mean{
          .kernel = {kernel, 1}, .stride = {stride, 1}, .padding = {pad, 0}, .ceil_mode = true};
      BOOST_CHECK((shape_of(mean, nn::value_shape{4, input, 5}) == largest));
    }
    BOOST_TEST(largest.width == 5);
    return largest.height;
  };
  BOOST_TEST(outputs(112, 3, 2, 0, 1) == 56);  // the first pooling of SqueezeNet
  BOOST_TEST(outputs(113, 3, 2, 0, 1) == 56);
  BOOST_TEST(outputs(6, 3, 2, 0, 1) == 3);
  BOOST_TEST(outputs(6, 3, 2, 1, 1) == 4);
  BOOST_TEST(outputs(5, 2, 2, 1, 1) == 3);  // a fourth window would begin behind the image
  BOOST_TEST(outputs(4, 1, 3, 0, 1) == 2);
  BOOST_TEST(outputs(5, 1, 3, 0, 1) == 2);  // a third one too
  BOOST_TEST(outputs(9, 3, 2, 1, 2) == 4);
  BOOST_TEST(outputs(10, 3, 2, 1, 2) == 5);
  const nn::value_shape image{4, 17, 13};
  BOOST_CHECK((shape_of(nn::max_pool2d{.kernel = 3, .stride = 1, .dilation = 2}, image) == nn::value_shape{4, 13, 9}));
  BOOST_CHECK((shape_of(nn::max_pool2d{.kernel = 3, .stride = 2, .padding = nn::padding::same(), .dilation = {3, 1}},
                        image) == nn::value_shape{4, 9, 7}));
  const std::string none = refusal<gradus::configuration_error>(nn::max_pool2d{.kernel = 3, .dilation = 0}, image);
  BOOST_TEST(contains(none, "a dilation of at least 1 x 1"), none);
  const std::string empty = refusal<gradus::configuration_error>(
      nn::max_pool2d{.kernel = 2, .stride = 1, .padding = 1, .dilation = 2}, nn::value_shape{4, 1, 9});
  BOOST_TEST(contains(empty, "each cover at least one element"), empty);
}

BOOST_AUTO_TEST_CASE(adaptive_poolings_have_the_output_that_is_asked_for) {
  const nn::value_shape image{4, 17, 13};
  BOOST_CHECK((shape_of(nn::adaptive_average_pool2d{}, image) == nn::value_shape{4, 1, 1}));
  BOOST_CHECK((shape_of(nn::adaptive_average_pool2d{.output = 7}, image) == nn::value_shape{4, 7, 7}));
  BOOST_CHECK((shape_of(nn::adaptive_max_pool2d{.output = {20, 3}}, image) == nn::value_shape{4, 20, 3}));
  const std::string none = refusal<gradus::configuration_error>(nn::adaptive_average_pool2d{.output = {3, 0}}, image);
  BOOST_TEST(contains(none, "an output of at least 1 x 1, got 3 x 0"), none);
  const std::string large =
      refusal<gradus::configuration_error>(nn::adaptive_max_pool2d{.output = {1, 1}}, nn::value_shape{1, 16, 17});
  BOOST_TEST(contains(large, "windows of at most 256 elements, got 16 x 17"), large);
}

BOOST_AUTO_TEST_CASE(multiply_adds_count_the_taps) {
  const auto count = [](const auto& options) {
    return inferred_layer{options, nn::value_shape{4, 9, 9}}.layer.multiply_adds();
  };
  const auto same = nn::padding::same();
  BOOST_TEST(count(nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .padding = same, .dilation = {2, 2}, .groups = 2}) ==
             9 * 9 * 6 * 2 * 9);
  BOOST_TEST(count(nn::conv_transpose2d{.out_channels = 6, .kernel = {2, 2}, .stride = {2, 2}, .groups = 2}) ==
             9 * 9 * 4 * 3 * 4);
}

BOOST_AUTO_TEST_CASE(bias_of_a_transposed_convolution_has_the_outputs) {
  const inferred_layer made{nn::conv_transpose2d{.out_channels = 6, .kernel = {2, 3}, .groups = 2},
                            nn::value_shape{4, 5, 5}};
  const auto parameters = made.layer.parameters();
  BOOST_REQUIRE(parameters.size() == 2U);
  BOOST_CHECK((parameters[0].shape == gradus::image_extents{4, 3, 2, 3}));
  BOOST_CHECK((parameters[1].shape == gradus::image_extents{6, 1, 1, 1}));
}

// The pointers that they hold compile the code; a program that sets neither has null pointers.
BOOST_AUTO_TEST_CASE(dilations_and_padding_modes_hold_their_code_once_they_are_set) {
  nn::conv2d options;
  BOOST_TEST(options.dilation.height.passes() == nullptr);
  BOOST_TEST(options.dilation.width.passes() == nullptr);
  BOOST_TEST(options.padding_mode.passes() == nullptr);
  options.dilation.width = 2;
  BOOST_TEST(options.dilation.height.passes() == nullptr);
  BOOST_TEST(options.dilation.width.passes() != nullptr);
  options.padding_mode = padding_mode::circular;
  BOOST_TEST(options.padding_mode.passes() != nullptr);
  BOOST_TEST((nn::conv2d{.dilation = {3, 1}}.dilation.height.passes() != nullptr));
  BOOST_TEST(gradus::kernels::pad2d_geometry{}.mode.passes() != nullptr);
}

BOOST_AUTO_TEST_CASE(dilations_and_padding_modes_convert_as_numbers_do) {
  const nn::size2d two_by_three{2, 3};
  nn::conv2d options{.padding_mode = padding_mode::reflect, .dilation = two_by_three};
  const nn::size2d dilation = options.dilation;
  BOOST_TEST((dilation == two_by_three));
  BOOST_TEST((options.dilation == two_by_three));
  options.dilation = {4, 5};
  BOOST_TEST((options.dilation != two_by_three));
  BOOST_TEST(options.dilation.height * 10 + options.dilation.width == 45);
  options.dilation.height = 1;
  BOOST_TEST((options.dilation.height == 1));
  options.dilation = {6, 7};
  BOOST_TEST(static_cast<int>(options.dilation.width) == 7);
  BOOST_TEST((options.padding_mode == padding_mode::reflect));
  BOOST_TEST(static_cast<int>(options.padding_mode) == static_cast<int>(padding_mode::reflect));
  constexpr gradus::kernels::conv2d_geometry geometry{.kernel_height = 3, .dilation_height = 2};
  static_assert(geometry.reach_height() == 5 && geometry == geometry && geometry.dilation_width == 1);
}

BOOST_AUTO_TEST_CASE(a_dilation_of_one_tap_is_none) {
  using gradus::kernels::detail::passes_of;
  gradus::kernels::conv2d_geometry geometry{.kernel_width = 3};
  BOOST_TEST(passes_of(geometry) == nullptr);
  geometry.dilation_height = 2;
  BOOST_TEST(passes_of(geometry) == nullptr);
  geometry.dilation_width = 2;
  BOOST_TEST(passes_of(geometry) != nullptr);
}

BOOST_AUTO_TEST_CASE(impossible_options_are_refused) {
  using gradus::configuration_error;
  using gradus::shape_error;
  const nn::value_shape image{4, 5, 6};
  const auto by = [](gradus::index_t all) { return nn::padding::explicit_padding(all); };
  const auto conv = [&](nn::conv2d options) {
    options.out_channels = 4;
    return options;
  };
  BOOST_TEST(contains(refusal<configuration_error>(conv({.dilation = {0, 1}}), image), "dilation of at least 1 x 1"));
  BOOST_TEST(contains(refusal<shape_error>(conv({.kernel = {3, 3}, .dilation = {3, 1}}), image),
                      "padded input of at least 7"));
  BOOST_TEST(contains(refusal<shape_error>(conv({.padding = by(5), .padding_mode = padding_mode::reflect}), image),
                      "padding of less than 5 (the extent), as the mode is reflect, got 5"));
  BOOST_TEST(contains(refusal<shape_error>(conv({.padding = by(6), .padding_mode = padding_mode::circular}), image),
                      "padding of at most 5 (the extent), as the mode is circular, got 6"));
  BOOST_TEST(contains(
      refusal<shape_error>(
          nn::pad2d{.padding = nn::padding::explicit_padding(0, 0, 6, 0), .mode = padding_mode::reflect}, image),
      "padding of less than 6"));
  BOOST_TEST(contains(refusal<configuration_error>(nn::pad2d{.padding = by(-1)}, image), "padding of at least 0"));
  BOOST_TEST(contains(refusal<configuration_error>(nn::pad2d{.padding = nn::padding::same()}, image),
                      "padding::explicit_padding"));
  const auto transposed = [&](nn::conv_transpose2d options) {
    options.out_channels = 4;
    return options;
  };
  BOOST_TEST(contains(refusal<configuration_error>(transposed({.stride = {2, 2}, .output_padding = {2, 0}}), image),
                      "output_padding from 0 to 1"));
  BOOST_TEST(
      contains(refusal<configuration_error>(transposed({.padding = nn::padding::same()}), image), "no unique extent"));
  BOOST_TEST(contains(refusal<configuration_error>(transposed({.stride = {0, 1}}), image), "stride of at least 1"));
  BOOST_TEST(contains(refusal<configuration_error>(transposed({.dilation = {1, 0}}), image), "dilation"));
  BOOST_TEST(contains(refusal<configuration_error>(transposed({.kernel = {0, 1}}), image), "rows of the kernel"));
  BOOST_TEST(contains(refusal<shape_error>(transposed({.padding = by(3)}), image), "at least 1 row and column"));
  BOOST_TEST(contains(refusal<shape_error>(transposed({.groups = 3}), image), "groups that divide 4 input"));
  BOOST_CHECK_THROW(static_cast<void>(shape_of(nn::pad2d{}, {4, 1, 1, true})), shape_error);
}

BOOST_AUTO_TEST_SUITE_END()
