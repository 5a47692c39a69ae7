// SPDX-License-Identifier: BSL-1.0
//
// What a program that uses gradus may look like: it includes every header and trains on two ranks that are threads. Its
// compilation shows whether the flags of others' projects find warnings in the headers.
#include <cstdio>
#include <gradus/gradus.hpp>

#include "every_header.hpp"

namespace {

namespace nn = gradus::nn;

/// Trains one epoch, and returns the accuracy.
double train(gradus::comm::threads& world) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto images = gradus::data::make_synthetic({.examples = 256});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.batch_size = 32, .seed = 1}};

  nn::network<float, gradus::nhwc> net{device, {.channels = 1, .height = 28, .width = 28}};
  gradus::models::mnist(net);
  net.freeze({.batch_size = 32, .seed = 1});

  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}, world};
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.02}, gradus::train::progress{});
  return trainer.evaluate(loader).accuracy;
}

/// An expression and its gradient.
float slope() {
  gradus::cpu device;
  gradus::tensor<float, 1> x{device, {100}};
  gradus::tensor<float, 0> factor{device, {}};
  x = x + 0.5F;
  const auto [gradient] = gradients(mean(square(factor * x - 1)), factor);
  factor -= 0.1 * gradient;
  return factor.value();
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
  std::printf("accuracy: %.2f\n", accuracy);
  return gradus::close_output("train", accuracy > 0.5 && slope() > 0 ? 0 : 1);
}
