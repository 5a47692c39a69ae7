// SPDX-License-Identifier: BSL-1.0
//
// The parameters of a convolution that cuDNN receives, as far as the host decides them.
#include <boost/test/unit_test.hpp>

#include <array>
#include <limits>

#include "gradus/kernels/cuda/detail/conv2d/convolution_plan.cuh"
#include "gradus/nn/layers/padding.hpp"

namespace {

namespace kernels = gradus::kernels;
namespace nn = gradus::nn;
using gradus::index_t;
using ints = std::array<int, 4>;

kernels::conv2d_geometry geometry(nn::size2d image, nn::size2d kernel, nn::size2d stride, nn::padding pad,
                                  nn::size2d dilation = {1, 1}) {
  const auto window =
      nn::detail::slide("test", image, nn::detail::dilated_kernel("test", kernel, dilation), stride, pad);
  return {.in_channels = 3,
          .in_height = image.height,
          .in_width = image.width,
          .out_channels = 4,
          .out_height = window.out_height,
          .out_width = window.out_width,
          .kernel_height = kernel.height,
          .kernel_width = kernel.width,
          .stride_height = stride.height,
          .stride_width = stride.width,
          .pad_top = window.pad_top,
          .pad_left = window.pad_left,
          .dilation_height = dilation.height,
          .dilation_width = dilation.width};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_convolution)

BOOST_AUTO_TEST_CASE(strides_are_those_of_the_layout) {
  const gradus::image_extents shape{2, 3, 5, 7};
  BOOST_CHECK((kernels::detail::cudnn_shape_of<gradus::nchw>(shape).strides == ints{105, 35, 7, 1}));
  BOOST_CHECK((kernels::detail::cudnn_shape_of<gradus::nhwc>(shape).strides == ints{105, 1, 21, 3}));
  BOOST_CHECK((kernels::detail::cudnn_shape_of<gradus::nhwc>(shape).extents == ints{2, 3, 5, 7}));
  const index_t large = index_t{1} << 16U;
  BOOST_CHECK_THROW(static_cast<void>(kernels::detail::cudnn_shape_of<gradus::nchw>({1, large, large, 2})),
                    gradus::shape_error);
}

BOOST_AUTO_TEST_CASE(images_are_padded_before_where_cudnn_cannot) {
  const auto same = nn::padding::same();
  struct expectation {
    kernels::conv2d_geometry shape;
    bool by_cudnn;
  };
  const expectation expected[] = {
      {geometry({28, 28}, {5, 5}, {1, 1}, same), true},
      {geometry({9, 9}, {3, 3}, {2, 2}, same), true},   // one row on each side
      {geometry({8, 8}, {3, 3}, {2, 2}, same), false},  // one row below only
      {geometry({8, 9}, {2, 3}, {1, 1}, same), false},  // one row below only, columns on both sides
      {geometry({224, 224}, {7, 7}, {2, 2}, nn::padding::explicit_padding(3)), true},
      {geometry({8, 8}, {3, 3}, {1, 1}, nn::padding::explicit_padding(2, 0, 1, 1)), false},
      {geometry({5, 5}, {5, 5}, {1, 1}, nn::padding::valid()), true},
      {geometry({8, 8}, {3, 3}, {1, 1}, same, {2, 3}), true},
      {geometry({8, 8}, {2, 3}, {1, 1}, same, {3, 1}), false},  // three rows
  };
  for (const expectation& each : expected) {
    const kernels::conv2d_geometry& g = each.shape;
    BOOST_TEST_CONTEXT(to_string(g.input(1)) << " by " << to_string(g.weights())) {
      BOOST_TEST(kernels::detail::pads_like_cudnn(g) == each.by_cudnn);
      const gradus::image_extents padded = kernels::detail::padded_input(g, 2);
      BOOST_TEST((padded.h - g.reach_height()) / g.stride_height + 1 == g.out_height);
      BOOST_TEST((padded.w - g.reach_width()) % g.stride_width == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_number_of_a_call_makes_another_plan) {
  const kernels::detail::convolution_call call{geometry({8, 8}, {3, 3}, {2, 2}, nn::padding::same()), 2};
  auto other = call;
  other.batch = 3;
  BOOST_CHECK(other.key() != call.key());
  other = call;
  other.which = kernels::pass::backward_data;
  BOOST_CHECK(other.key() != call.key());
  other = call;
  other.type = CUDNN_DATA_BFLOAT16;
  BOOST_CHECK(other.key() != call.key());
  other = call;
  other.format = CUDNN_TENSOR_NHWC;
  BOOST_CHECK(other.key() != call.key());
  other = call;
  other.geometry.groups = 3;
  BOOST_CHECK(other.key() != call.key());
  other = call;
  other.geometry.dilation_height = 2;
  BOOST_CHECK(other.key() != call.key());
  other = call;
  other.geometry.dilation_width = 2;
  BOOST_CHECK(other.key() != call.key());
  other = call;
  other.geometry.algorithm = kernels::convolution_algorithm::direct;
  BOOST_CHECK(other.key() != call.key());
  BOOST_CHECK(kernels::detail::convolution_call{call}.key() == call.key());
}

BOOST_AUTO_TEST_CASE(direct_algorithms_add_up_terms) {
  using kernels::detail::is_direct;
  BOOST_CHECK(is_direct(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM));
  BOOST_CHECK(is_direct(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1));
  BOOST_CHECK(is_direct(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1));
  BOOST_CHECK(!is_direct(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED));
  BOOST_CHECK(!is_direct(CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING));
  BOOST_CHECK(!is_direct(CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD));
  BOOST_CHECK(!is_direct(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED));
  BOOST_CHECK(!is_direct(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING));
}

BOOST_AUTO_TEST_CASE(errors_of_cudnn_name_the_call_and_the_reason) {
  try {
    kernels::detail::check_cudnn(CUDNN_STATUS_BAD_PARAM, "cudnnConvolutionForward");
    BOOST_ERROR("no exception");
  } catch (const gradus::device_error& failure) {
    const std::string_view message = failure.message();
    BOOST_TEST(message.find("cudnnConvolutionForward: expected CUDNN_STATUS_SUCCESS, got CUDNN_STATUS_BAD_PARAM") ==
               0U);
    BOOST_TEST(message.find("CUDNN_LOGLEVEL_DBG") != std::string_view::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()
