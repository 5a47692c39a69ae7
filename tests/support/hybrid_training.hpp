// SPDX-License-Identifier: BSL-1.0
//
// Small trainings of a network with skip connections, in one process and in pipelines.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/hybrid.hpp"
#include "gradus/train/hybrid.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/trainer.hpp"
#include "gradus/train/training_state.hpp"

namespace gradus_test {

/// Batch normalization, dropout, sums and a concatenation: values that skip one and several layers, also the input.
template <class Network>
void build_network_with_skips(Network& net) {
  namespace nn = gradus::nn;
  const nn::conv2d same{.out_channels = 6, .kernel = {3, 3}, .padding = nn::padding::same()};
  const nn::value input = net.input();
  nn::value x = net.add("conv", same, input);
  x = net.add("norm", nn::batch_norm{}, x);
  x = net.add("relu", nn::relu{}, x);
  const nn::value stem = x;
  for (int block = 0; block < 3; ++block) {
    const std::string at = "block" + std::to_string(block) + "_";
    nn::value y = net.add(at + "conv1", same, x);
    y = net.add(at + "norm1", nn::batch_norm{}, y);
    y = net.add(at + "relu1", nn::relu{}, y);
    y = net.add(at + "conv2", same, y);
    y = net.add(at + "norm2", nn::batch_norm{}, y);
    x = net.add(at + "sum", nn::add{}, {y, x});
    x = net.add(at + "relu2", nn::relu{}, x);
  }
  x = net.add("concat", nn::concat{}, {x, stem, input});
  x = net.add("dropout", nn::dropout{.rate = 0.3}, x);
  x = net.add("last_conv", nn::conv2d{.out_channels = 5, .kernel = {3, 3}}, x);
  x = net.add("last_relu", nn::relu{}, x);
  x = net.add("pool", nn::max_pool2d{}, x);
  x = net.add("hidden", nn::dense{.out_features = 8}, x);
  x = net.add("hidden_relu", nn::relu{}, x);
  x = net.add("scores", nn::dense{.out_features = 4}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
}

/// 53 examples of (2, 9, 8) in 4 classes.
inline const gradus::data::image_dataset& dataset_for_pipelines() {
  static const auto dataset =
      gradus::data::make_synthetic({.examples = 53, .channels = 2, .height = 9, .width = 8, .classes = 4, .seed = 5});
  return dataset;
}

/// What a rank has at the end: parameters and buffers by name, and the reports.
template <class Element>
struct hybrid_outcome {
  std::map<std::string, std::vector<Element>> values;
  std::vector<double> losses;
  std::vector<double> norms;
  double evaluation_loss = 0;
  double evaluation_accuracy = 0;
  gradus::index_t evaluated = 0;
  std::string stages;  // the names of this rank's layers
};

struct hybrid_setup {
  gradus::index_t batch_size = 12;  // over all ranks
  gradus::nn::compile_options compile{};
  bool compiled_before = true;
  int epochs = 2;
  bool freezes = false;
  std::uint64_t capture_after = 0;                    // steps; 0: never
  const gradus::train::state_source* from = nullptr;  // goes on from it
};

/// Takes the state of a training.
struct state_taker {
  gradus::train::training_state* to = nullptr;
  std::uint64_t after = 0;

  template <class Trainer>
  void on_step(Trainer& trainer, const gradus::train::step_report& step) const {
    if (to != nullptr && step.step + 1 == after) {
      gradus::train::capture(trainer, *to);
    }
  }
};

struct no_callback {
  void operator()(const gradus::train::step_report& /*step*/) const {}
};

template <class Layout, class Element = float, class Communicator, class Rule, class Strategy,
          class Callback = no_callback>
hybrid_outcome<Element> train_with_skips(Communicator& world, const Rule& rule, const Strategy& strategy,
                                         const hybrid_setup& how, const Callback& callback = {},
                                         gradus::train::training_state* state = nullptr) {
  namespace nn = gradus::nn;
  namespace train = gradus::train;
  hybrid_outcome<Element> result;
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::data::loader<Element, Layout> loader{
      device, dataset_for_pipelines(), {.global_batch_size = how.batch_size, .seed = 11}};
  gradus::data::loader<Element, Layout> test{
      device, dataset_for_pipelines(), {.global_batch_size = how.batch_size, .shuffle = false}};
  nn::network<Element, Layout> net{device, {2, 9, 8}};
  build_network_with_skips(net);
  if (how.freezes) {
    net.freeze("norm");
    net.freeze("block0_*");
  }
  if (how.compiled_before) {
    net.compile(how.compile);
  }
  train::trainer trainer{net, rule, world, strategy};
  struct recorder {
    hybrid_outcome<Element>* result;
    void on_step(const train::step_report& step) {
      if (step.gradient_norm) {
        result->norms.push_back(*step.gradient_norm);
      }
    }
    void on_epoch(const train::epoch_report& epoch) { result->losses.push_back(epoch.loss); }
  };
  if (how.from != nullptr) {
    train::restore(trainer, *how.from);
  }
  trainer.fit(loader, {.epochs = how.epochs, .learning_rate = 0.05}, recorder{&result}, callback,
              state_taker{state, how.capture_after});
  const train::evaluation_report report = trainer.evaluate(test);
  result.evaluation_loss = report.loss;
  result.evaluation_accuracy = report.accuracy;
  result.evaluated = report.examples;
  for (const auto& each : net.parameters()) {
    const auto values = each.value();
    result.values[std::string{each.name()}].assign(values.data(), values.data() + values.size());
  }
  for (const auto& each : net.buffers()) {
    result.values[each.name].assign(each.elements.data(), each.elements.data() + each.elements.size());
  }
  for (std::size_t i = 0; i < net.layers(); ++i) {
    if (net.structure().nodes()[i].here) {
      result.stages += net.layer_name(i) + " ";
    }
  }
  return result;
}

}  // namespace gradus_test
