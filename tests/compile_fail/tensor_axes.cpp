// SPDX-License-Identifier: BSL-1.0
// EXPECT_ERROR(permute_twice): gradus::permute: each axis of the tensor once, numbered from 0
// EXPECT_ERROR(permute_few): gradus::permute: one axis for each axis of the tensor
// EXPECT_ERROR(swap): gradus::swap_axes: an axis that the tensor does not have
// EXPECT_ERROR(slice): gradus: an axis that the tensor does not have: axes are numbered from 0 in logical order
// EXPECT_ERROR(softmax): gradus::softmax: an axis that the tensor does not have
// EXPECT_ERROR(concat_layout): gradus: operands of different layouts in one expression: use layout_cast
// EXPECT_ERROR(concat_rank): gradus: concat and stack join tensors of the same rank
// EXPECT_ERROR(list): gradus::from_list: nested lists of rank 1 to 4: use from_span
// EXPECT_ERROR(random): gradus: arithmetic needs float or double
#include "gradus/tensor/activations.hpp"
#include "gradus/tensor/concat.hpp"
#include "gradus/tensor/factories.hpp"
#include "gradus/tensor/permute.hpp"
#include "gradus/tensor/random.hpp"
#include "gradus/tensor/slice.hpp"

void use(gradus::cpu& device, const gradus::tensor<float, 3>& x, const gradus::image_tensor<float, gradus::nchw>& a,
         const gradus::image_tensor<float, gradus::nhwc>& b) {
  static_cast<void>(gradus::permute<2, 0, 1>(x));
  static_cast<void>(device);
#if defined(GRADUS_TEST_CASE_PERMUTE_TWICE)
  static_cast<void>(gradus::permute<2, 0, 2>(x));
#elif defined(GRADUS_TEST_CASE_PERMUTE_FEW)
  static_cast<void>(gradus::permute<1, 0>(x));
#elif defined(GRADUS_TEST_CASE_SWAP)
  static_cast<void>(gradus::swap_axes<1, 3>(x));
#elif defined(GRADUS_TEST_CASE_SLICE)
  static_cast<void>(gradus::slice<3>(x, {.begin = 1}));
#elif defined(GRADUS_TEST_CASE_SOFTMAX)
  static_cast<void>(gradus::softmax<-1>(x));
#elif defined(GRADUS_TEST_CASE_CONCAT_LAYOUT)
  static_cast<void>(gradus::concat<0>(a, b));
#elif defined(GRADUS_TEST_CASE_CONCAT_RANK)
  static_cast<void>(gradus::concat<0>(x, gradus::tensor<float, 2>{device, {1, 1}}));
#elif defined(GRADUS_TEST_CASE_LIST)
  static_cast<void>(gradus::from_list<float, 5>(device, {{{{{1}}}}}));
#elif defined(GRADUS_TEST_CASE_RANDOM)
  static_cast<void>(gradus::random_normal<int>(device, {2}, gradus::random_stream{1}));
#else
  static_cast<void>(a);
  static_cast<void>(b);
#endif
}
