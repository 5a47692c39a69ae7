// SPDX-License-Identifier: BSL-1.0
//
// Small trainings of a network with skip connections, in one process and in pipelines.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradus/comm/self.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/pipeline/hybrid.hpp"
#include "gradus/pipeline/strategy.hpp"
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
  std::vector<double> norms;       // of the steps, on the CPU
  std::vector<double> mean_norms;  // of the epochs
  gradus::index_t skipped_steps = 0;
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
  double learning_rate = 0.05;
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

/// Builds the network above.
struct network_with_skips {
  const hybrid_setup* how;

  template <class Network>
  void operator()(Network& net) const {
    build_network_with_skips(net);
    if (how->freezes) {
      net.freeze("norm");
      net.freeze("block0_*");
    }
  }
};

struct no_callback {
  void operator()(const gradus::train::step_report& /*step*/) const {}
};

/// Trains on one rank. @param build  adds the layers and the loss to a network
template <class Layout, class Element = float, class Device, class Communicator, class Rule, class Strategy,
          class Build, class Callback = no_callback>
auto train_on_device(Device& device, Communicator& world, const Rule& rule, const Strategy& strategy,
                     const hybrid_setup& how, const gradus::data::image_dataset& dataset, const Build& build,
                     const Callback& callback = {}, gradus::train::training_state* state = nullptr) {
  namespace nn = gradus::nn;
  namespace train = gradus::train;
  using network = nn::network<Element, Layout, Device>;
  using parameter = typename network::parameter_element_type;
  hybrid_outcome<parameter> result;
  gradus::data::loader<Element, Layout, Device> loader{
      device, dataset, {.global_batch_size = how.batch_size, .seed = 11}};
  gradus::data::loader<Element, Layout, Device> test{
      device, dataset, {.global_batch_size = how.batch_size, .shuffle = false}};
  network net{device, {dataset.shape().c, dataset.shape().h, dataset.shape().w}};
  build(net);
  if (how.compiled_before) {
    net.compile(how.compile);
  }
  train::trainer trainer{net, rule, world, strategy};
  struct recorder {
    hybrid_outcome<parameter>* result;
    void on_step(const train::step_report& step) {
      if (step.gradient_norm) {
        result->norms.push_back(*step.gradient_norm);
      }
    }
    void on_epoch(const train::epoch_report& epoch) {
      result->losses.push_back(epoch.loss);
      if (epoch.gradient_norm) {
        result->mean_norms.push_back(epoch.gradient_norm->mean);
      }
      if (epoch.loss_scale) {
        result->skipped_steps = epoch.loss_scale->skipped_steps;
      }
    }
  };
  if (how.from != nullptr) {
    train::restore(trainer, *how.from);
  }
  trainer.fit(loader, {.epochs = how.epochs, .learning_rate = how.learning_rate}, recorder{&result}, callback,
              state_taker{state, how.capture_after});
  const train::evaluation_report report = trainer.evaluate(test);
  result.evaluation_loss = report.loss;
  result.evaluation_accuracy = report.accuracy;
  result.evaluated = report.examples;
  const auto copy = [&](const parameter* from, std::size_t count) {
    std::vector<parameter> to(count);
    device.copy_to_host(to.data(), from, count * sizeof(parameter));
    return to;
  };
  for (const auto& each : net.parameters()) {
    const auto values = each.value();
    result.values[std::string{each.name()}] = copy(values.data(), static_cast<std::size_t>(values.size()));
  }
  for (const auto& each : net.buffers()) {
    result.values[each.name] = copy(each.elements.data(), static_cast<std::size_t>(each.elements.size()));
  }
  for (std::size_t i = 0; i < net.layers(); ++i) {
    if (net.structure().nodes()[i].here) {
      result.stages += net.layer_name(i) + " ";
    }
  }
  return result;
}

/// The same on one thread of the CPU.
template <class Layout, class Element = float, class Communicator, class Rule, class Strategy, class Build,
          class Callback = no_callback>
hybrid_outcome<Element> train_on_rank(Communicator& world, const Rule& rule, const Strategy& strategy,
                                      const hybrid_setup& how, const gradus::data::image_dataset& dataset,
                                      const Build& build, const Callback& callback = {},
                                      gradus::train::training_state* state = nullptr) {
  gradus::cpu device{{.intra_op_threads = 1}};
  return train_on_device<Layout, Element>(device, world, rule, strategy, how, dataset, build, callback, state);
}

/// The same with the network above.
template <class Layout, class Element = float, class Communicator, class Rule, class Strategy,
          class Callback = no_callback>
hybrid_outcome<Element> train_with_skips(Communicator& world, const Rule& rule, const Strategy& strategy,
                                         const hybrid_setup& how, const Callback& callback = {},
                                         gradus::train::training_state* state = nullptr) {
  return train_on_rank<Layout, Element>(world, rule, strategy, how, dataset_for_pipelines(), network_with_skips{&how},
                                        callback, state);
}

/// The same steps in one process, with the micro-batches of a pipeline. @param train  as train_with_skips
template <class Train>
auto train_alone(const Train& train, const hybrid_setup& how, int micro_batches) {
  hybrid_setup whole = how;
  whole.compile.micro_batch_size = (how.compile.max_batch_size - 1) / micro_batches + 1;
  whole.compiled_before = true;
  gradus::comm::self process;
  return train(process, gradus::parallel::all_reduce{}, whole);
}

/// The values of all ranks; those of replicas are the same.
template <class Element>
std::map<std::string, std::vector<Element>> values_of_ranks(const std::vector<hybrid_outcome<Element>>& ranks) {
  std::map<std::string, std::vector<Element>> all;
  for (const auto& rank : ranks) {
    all.insert(rank.values.begin(), rank.values.end());
  }
  return all;
}

}  // namespace gradus_test
