// SPDX-License-Identifier: BSL-1.0
//
// What a program that uses gradus may look like: it trains on two ranks that are threads. Its compilation shows whether
// the flags of others' projects find warnings in the headers; with EVERY_HEADER, a file that includes them, in all.
#include <cstdio>
#include <gradus/gradus.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef EVERY_HEADER
#include EVERY_HEADER
#endif

namespace {

namespace nn = gradus::nn;

/// Trains two epochs on made-up images, and returns the accuracy.
double train(gradus::comm::threads& world) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto images = gradus::data::make_synthetic({.examples = 128, .height = 12, .width = 12, .classes = 4});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 16, .seed = 1}};

  nn::network<float, gradus::nhwc> net{device, {.channels = 1, .height = 12, .width = 12}};
  nn::value x = net.input();
  x = net.add("conv", nn::conv2d{.out_channels = 8, .kernel = {3, 3}}, x);
  x = net.add("relu", nn::relu{}, x);
  x = net.add("pool", nn::max_pool2d{.kernel = {2, 2}, .stride = {2, 2}}, x);
  x = net.add("flatten", nn::flatten{}, x);
  x = net.add("scores", nn::dense{.out_features = 4}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = 16, .seed = 1});

  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world};
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05}, gradus::train::progress{});
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.01}, gradus::train::progress{});
  return trainer.evaluate(loader).accuracy;
}

/// Some steps of gradient descent with expressions: y = slope * x.
float fitted_slope() {
  gradus::cpu device;
  gradus::tensor<float, 2> x{device, {8, 8}};
  gradus::tensor<float, 0> slope{device, {}};  // starts at 0
  for (gradus::index_t i = 0; i < 64; ++i) {
    x(i / 8, i % 8) = 0.1F * static_cast<float>(i % 7);
  }
  const auto temporary = exp(matmul(x, x)) * 0.01F;
  const auto copy = temporary;
  gradus::tensor<float, 2> y{device, {8, 8}};
  y = 3.0F * x + 0.0F * (temporary + copy);
  for (int step = 0; step < 200; ++step) {
    const auto [gradient] = gradients(mean(square(slope * x - y)), slope);
    slope -= 0.5 * gradient;
  }
  return slope.value();
}

gradus::tensor<float, 2> unit(gradus::cpu& device) {
  gradus::tensor<float, 2> result{device, {8, 8}};
  result(0, 0) = 1;
  return result;
}

/// Expressions that own tensors and intermediate results, copied, moved and assigned: several owners of one memory.
float shared_intermediates(bool first) {
  gradus::cpu device;
  gradus::tensor<float, 2> x = unit(device);
  auto product = first ? matmul(x, x) : matmul(x, unit(device));
  product = matmul(x, x);
  const auto doubled = unit(device) * 2.0F;
  auto sum_of_all = doubled + product;
  const auto moved = std::move(sum_of_all);
  std::vector<std::decay_t<decltype(product)>> products{product, product};
  products.push_back(product);
  for (int i = 0; i < 2; ++i) {
    x = matmul(x, products.back()) * moved + sum(matmul(x, x));
  }
  x = exp(unit(device)) + unit(device) * moved;
  return x(1, 1);
}

}  // namespace

int main() {
  double accuracy = 0;
  gradus::comm::run_ranks(2, [&](gradus::comm::threads& world) {
    const double found = train(world);
    if (world.rank() == 0) {
      accuracy = found;
    }
  });
  const auto slope = static_cast<double>(fitted_slope());
  const float ones = shared_intermediates(true) + shared_intermediates(false);
  std::printf("accuracy %.2f, slope %.2f\n", accuracy, slope);
  return gradus::close_output("train", accuracy > 0.5 && slope > 2.9 && slope < 3.1 && ones == 2 ? 0 : 1);
}
