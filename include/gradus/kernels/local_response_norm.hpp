// SPDX-License-Identifier: BSL-1.0
//
// The contract of local response normalization kernels: its parameters and the functions that every device overloads.
#pragma once

#include "gradus/core/index.hpp"

namespace gradus::kernels {

/// The parameters of local response normalization (Krizhevsky, Sutskever, Hinton 2012, section 3.3):
///
///   y(c) = x(c) / d(c)^beta,   d(c) = k + alpha * sum of x(j)^2 over |j - c| <= radius, 0 <= j < C
///
/// at every pixel. The paper uses radius 2, alpha 1e-4, beta 0.75, k 2. `alpha` is that of TensorFlow; the alpha of
/// PyTorch and Caffe is (2 * radius + 1) times this one.
struct local_response_norm_parameters {
  index_t radius = 2;  ///< at least 0
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 2;  ///< above 0
};

// Every device D in the library overloads, for network elements E and layouts L (views are image_view<E, L, D>):
//
//   void local_response_norm_forward(D&, x, y, const local_response_norm_parameters&);
//   void local_response_norm_backward(D&, x, dy, dx, const local_response_norm_parameters&,
//                                     const backward_epilogue<E>&);
//
//   dx(j) = dy(j) * d(j)^-beta
//           - 2 * alpha * beta * x(j) * sum of dy(c) * x(c) * d(c)^(-beta - 1) over |j - c| <= radius
//
// Outputs must not overlap inputs. Results are bitwise the same for any number of threads.

}  // namespace gradus::kernels
