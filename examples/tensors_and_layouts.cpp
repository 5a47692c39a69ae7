// SPDX-License-Identifier: BSL-1.0
//
// A tour of tensors: shapes, layouts, expressions, reductions, products, gradients. Ends with 0 if all is as it says.
#include <cmath>
#include <cstdio>
#include <string>

#include "gradus/gradus.hpp"

namespace {

bool all_right = true;

void check(const char* what, bool holds) {
  std::printf("%-62s %s\n", what, holds ? "yes" : "NO");
  all_right = all_right && holds;
}

// An expression is a value: it can be stored and returned, and is computed when it is assigned.
auto softmax_of_rows(const gradus::tensor<double, 2>& scores) {
  auto weights = exp(scores - per_row(max<1>(scores)));
  return weights / per_row(sum<1>(weights));
}

}  // namespace

int main() {
  using gradus::axis;
  gradus::cpu device;

  // The layout is a part of the type; coordinates are n, c, h, w in every layout.
  gradus::image_tensor<float, gradus::nchw> planes{device, {2, 3, 4, 5}};
  planes(1, 2, 0, 0) = 7;
  gradus::image_tensor<float, gradus::nhwc> pixels = gradus::layout_cast<gradus::nhwc>(planes);
  check("the same coordinates in another layout", pixels(1, 2, 0, 0) == 7);
  check("nchw: image 1, channel 2 begins at offset 100", planes.data()[100] == 7);
  check("nhwc: image 1 begins at offset 60, its channel 2 is next but one", pixels.data()[62] == 7);

  // One pass over memory computes the whole right-hand side. Values per channel adapt to the images.
  gradus::tensor<float, 1> bias{device, {3}};
  bias(2) = 1;
  pixels = maximum(pixels * 2 - 3, 0) + per_channel(bias);
  check("2 * 7 - 3, at least 0, plus the bias", pixels(1, 2, 0, 0) == 12);
  check("everything else in channel 2 is the bias", pixels(0, 2, 3, 4) == 1);

  // Reductions over all axes, or over the ones that are named.
  const gradus::tensor<float, 2> averages = mean<axis::h, axis::w>(pixels);  // (images, channels)
  check("the mean of a plane", averages(0, 2) == 1 && averages(0, 0) == 0);
  check("the sum of everything", sum(pixels).value() == 40 + 11);

  // Matrices.
  gradus::tensor<double, 2> scores{device, {2, 3}};
  scores(0, 1) = 2;
  const gradus::tensor<double, 2> weights = softmax_of_rows(scores);
  check("equal scores have equal weights", std::abs(weights(1, 0) - 1.0 / 3) < 1e-12);
  const gradus::tensor<double, 2> products = matmul(weights, transpose(weights));  // (2, 2)
  check("products of rows", std::abs(products(1, 1) - 1.0 / 3) < 1e-12);

  // Shapes that do not fit are an error that names them.
  std::string message;
  try {
    scores = scores + products;
  } catch (const gradus::shape_error& e) {
    message = e.message();
  }
  check(message.c_str(), message.find("(2, 3) and (2, 2)") != std::string::npos);

  // The derivative of a scalar expression by the tensors in it.
  const auto [by_scores] = gradients(sum(square(scores)), scores);
  check("the derivative of x * x is 2 x", by_scores(0, 1) == 4);
  return gradus::close_output("tensors_and_layouts", all_right ? 0 : 1);
}
