// SPDX-License-Identifier: BSL-1.0
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "second.hpp"

namespace {

template <class Element>
void train(const char* name) {
  namespace nn = gradus::nn;
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<Element> net{device, {3, 6, 6}};
  nn::value x = net.input();
  x = net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 3}}, x);
  x = net.add("norm", nn::batch_norm{}, x);
  x = net.add("relu", nn::relu{}, x);
  x = net.add("scores", nn::dense{.out_features = 10}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
  net.compile({.max_batch_size = 16, .seed = 5});
  const auto images =
      gradus::data::make_synthetic({.examples = 64, .channels = 3, .height = 6, .width = 6, .classes = 10});
  gradus::data::loader<Element, gradus::nchw> loader{device, images, {.global_batch_size = 16}};
  gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 0.9}};
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05});
  const double loss = trainer.evaluate(loader).loss;
  std::printf("%s: loss %016" PRIx64 ", parameters %016" PRIx64 "\n", name, bits(loss), hash_of(net));
}

}  // namespace

void other_elements() {
  train<double>("double");
  train<gradus::bfloat16>("bfloat16");
  train<gradus::float16>("float16");
}
