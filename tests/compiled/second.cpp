// SPDX-License-Identifier: BSL-1.0
#include "second.hpp"

#include <cstdio>
#include <filesystem>
#include <string>

namespace {

// The loss after `epochs` epochs, of which a checkpoint may have been kept.
void train_until(int epochs, const std::string& folder) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::nn::network<float> net{device, {1, 8, 8}};
  gradus::nn::value x = net.input();
  x = net.add("hidden", gradus::nn::dense{.out_features = 16}, net.add("flatten", gradus::nn::flatten{}, x));
  x = net.add("scores", gradus::nn::dense{.out_features = 10}, net.add("relu", gradus::nn::relu{}, x));
  net.loss(gradus::nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = 16, .seed = 3});
  const auto images =
      gradus::data::make_synthetic({.examples = 64, .channels = 1, .height = 8, .width = 8, .classes = 10});
  gradus::data::loader<float, gradus::nchw> loader{device, images, {.global_batch_size = 16}};
  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}};
  const auto found = trainer.resume(folder);
  std::printf("resumed: %s\n", found.found() ? "yes" : "no");
  trainer.fit(loader, {.epochs = epochs, .learning_rate = 0.05}, gradus::train::checkpoints{folder, {}},
              [](const gradus::train::epoch_report& epoch) { std::printf("epoch %d: %a\n", epoch.epoch, epoch.loss); });
}

}  // namespace

void second_file(const std::string& folder) {
  std::filesystem::remove_all(folder);
  train_until(1, folder);
  train_until(2, folder);
  std::filesystem::remove_all(folder);
}
