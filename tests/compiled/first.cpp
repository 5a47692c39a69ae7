// SPDX-License-Identifier: BSL-1.0
//
// Prints what trainings compute, bit by bit, and what mistakes are answered with. It is compiled with headers only and
// against networks that were compiled once: both print the same.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "second.hpp"

namespace {

template <class Layout>
void build(gradus::nn::network<float, Layout>& net) {
  namespace nn = gradus::nn;
  nn::value x = net.input();
  x = net.add("conv1", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  x = net.add("norm1", nn::batch_norm{}, x);
  x = net.add("relu1", nn::relu{}, x);
  const nn::value before = x;
  x = net.add("conv2", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  x = net.add("sum", nn::add{}, {x, before});
  x = net.add("pool", nn::max_pool2d{}, x);
  x = net.add("drop", nn::dropout{.rate = 0.2}, x);
  x = net.add("mean", nn::global_average_pool2d{}, x);
  x = net.add("scores", nn::dense{.out_features = 10}, x);
  net.loss(nn::softmax_cross_entropy{.label_smoothing = 0.1}, x);
  net.compile({.max_batch_size = 32, .seed = 7});
}

template <class Layout, class Communicator, class Rule, class... Strategy>
void train(const char* name, Communicator& world, const Rule& rule, const Strategy&... strategy) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::nn::network<float, Layout> net{device, {3, 12, 12}};
  build(net);
  const auto images =
      gradus::data::make_synthetic({.examples = 96, .channels = 3, .height = 12, .width = 12, .classes = 10});
  gradus::train::trainer trainer{net, rule, world, strategy...};
  gradus::data::loader<float, Layout> loader{device, images, {.global_batch_size = 32}};
  double loss = 0;
  trainer.fit(loader, {.epochs = 2, .learning_rate = 0.05},
              [&loss](const gradus::train::epoch_report& epoch) { loss = epoch.loss; });
  const auto report = trainer.evaluate(loader);
  if (world.rank() == 0) {
    std::printf("%s %s: loss %016llx, evaluation %016llx, parameters %016llx\n", name, Layout::name.data(),
                static_cast<unsigned long long>(bits(loss)), static_cast<unsigned long long>(bits(report.loss)),
                static_cast<unsigned long long>(hash_of(net)));
  }
}

template <class Function>
void fail(const char* name, const Function& function) {
  try {
    function();
    std::printf("%s: no error\n", name);
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", name, error.what());
  }
}

template <class Layout>
void train_in_all_ways() {
  namespace optim = gradus::optim;
  namespace parallel = gradus::parallel;
  gradus::comm::self alone;
  train<Layout>("sgd", alone, optim::sgd{.momentum = 0.9, .weight_decay = 1e-4});
  train<Layout>("adam", alone, optim::adam{});
  train<Layout>("lamb", alone, optim::lamb{});
  gradus::comm::run_ranks(2, [](gradus::comm::threads& world) {
    train<Layout>("all_reduce", world, optim::sgd{.momentum = 0.9}, parallel::all_reduce{});
    train<Layout>("sharded_update", world, optim::adam_w{}, parallel::sharded_update{});
  });
}

}  // namespace

int main(int argc, char** argv) {
  train_in_all_ways<gradus::nchw>();
  train_in_all_ways<gradus::nhwc>();
  other_elements();
  second_file(argc > 1 ? argv[1] : "checkpoints");
  fail("a layer", [] {
    gradus::cpu device;
    gradus::nn::network<float> net{device, {3, 8, 8}};
    (void)net.add("conv", gradus::nn::conv2d{.out_channels = 4, .kernel = {9, 9}}, net.input());
  });
  fail("a rule", [] {
    gradus::cpu device;
    gradus::nn::network<float> net{device, {3, 12, 12}};
    build(net);
    const gradus::train::trainer trainer{net, gradus::optim::sgd{.momentum = 2}};
  });
  fail("a loss", [] {
    gradus::cpu device;
    gradus::nn::network<float> net{device, {3, 8, 8}};
    net.loss(gradus::nn::softmax_cross_entropy{.class_weights = {1, 2}}, net.input());
  });
}
