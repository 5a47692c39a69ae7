// SPDX-License-Identifier: BSL-1.0
//
// A small program that uses gradus: one step of training on one image.
#include <cstdint>
#include <gradus/gradus.hpp>
#include <iostream>
#include <vector>

int main() {
  gradus::cpu device;
  gradus::image_tensor<float, gradus::nhwc> image{device, {1, 1, 2, 2}};
  image(0, 0, 1, 1) = 1.0F;

  gradus::nn::network<float, gradus::nhwc> net{device, {1, 2, 2}};
  const auto scores = net.add("scores", gradus::nn::dense{.out_features = 2}, net.input());
  net.loss(gradus::nn::softmax_cross_entropy{}, scores);
  net.compile({.max_batch_size = 1, .seed = 1});
  const std::vector<std::int32_t> labels{1};
  const auto result = net.train_step(image, labels);

  std::cout << "gradus " << gradus::version << ": the loss of " << image.extents() << " is " << result.loss << '\n';
  return result.loss > 0 && std::cout.flush() ? 0 : 1;
}
