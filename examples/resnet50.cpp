// SPDX-License-Identifier: BSL-1.0
//
// Trains ResNet-50 on made-up images and shows its size and its speed:
//   resnet50 [BATCH [STEPS [PIXELS]]]      16 images a step, 10 steps, images of 224 x 224 pixels
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "gradus/core/text.hpp"
#include "gradus/gradus.hpp"
#include "gradus/models/resnet.hpp"

namespace {

void train(gradus::index_t batch_size, gradus::index_t steps, gradus::index_t pixels) {
  gradus::cpu device;
  const auto images = gradus::data::make_synthetic(
      {.examples = batch_size * steps, .channels = 3, .height = pixels, .width = pixels, .classes = 100});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = batch_size, .seed = 1}};

  gradus::nn::network<float, gradus::nhwc> net{device, {.channels = 3, .height = pixels, .width = pixels}};
  gradus::models::resnet(net, 50, {.classes = 1000});
  net.compile({.max_batch_size = batch_size, .seed = 1});
  std::printf("ResNet-50: %td parameters, %.2f G multiply-adds an image, %.0f MB for a batch of %td\n",
              net.parameter_count(), 1e-9 * static_cast<double>(net.multiply_adds()),
              1e-6 * static_cast<double>(net.memory_bytes()), batch_size);

  gradus::comm::self alone;
  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9, .weight_decay = 1e-4}, alone};
  trainer.fit(loader, {.epochs = 1, .learning_rate = 0.01}, gradus::train::progress{{.lines_every_seconds = 5}});
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, long usual) { return i < argc ? std::atol(argv[i]) : usual; };
  try {
    train(argument(1, 16), argument(2, 10), argument(3, 224));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "resnet50: %s\nusage: resnet50 [BATCH [STEPS [PIXELS]]], whole numbers above 0\n",
                 gradus::printable(failure.what()).c_str());
    return 1;
  }
  return gradus::close_output("resnet50", 0);
}
