// SPDX-License-Identifier: BSL-1.0
//
// Random graphs as the planner gets them: layers with the traits of those of the library, and layers with any traits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gradus/core/index.hpp"
#include "gradus/kernels/activation.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "reference/random_graphs.hpp"

namespace gradus_test {

/// A graph, and the kinds of its layers for messages.
struct named_description {
  nn::graph_description graph;
  std::vector<std::string> kinds;
};

/// Skips of every length, sums, concatenations, activations, aliases, frozen layers, late readers of the input.
class description_generator {
  using node = nn::graph_description::node;
  using activation = gradus::kernels::activation;

 public:
  description_generator(draws& draw, index_t most_layers) : draw_{draw}, most_layers_{most_layers} {}

  [[nodiscard]] named_description generate() {
    result_.graph.input_bytes = some_bytes();
    result_.graph.has_loss = true;
    const index_t frozen = draw_.chance(25) ? draw_.between(1, most_layers_) : 0;
    others_frozen_ = draw_.chance(30) ? 25 : 0;
    long_skips_ = static_cast<int>(draw_.one_of({10, 30, 60}));
    const index_t layers = draw_.between(1, most_layers_);
    for (index_t i = 0; i < layers; ++i) {
      first_layers_frozen_ = i < frozen;
      add_random();
    }
    first_layers_frozen_ = false;
    join_ends();
    result_.graph.scores = count();
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::size_t count() const { return result_.graph.nodes.size(); }
  [[nodiscard]] std::size_t bytes_of(std::size_t value) const {
    return value == 0 ? result_.graph.input_bytes : result_.graph.nodes[value - 1].output_bytes;
  }
  /// Few sizes, so that sums find their terms; not all are multiples of the alignment.
  [[nodiscard]] std::size_t some_bytes() {
    return static_cast<std::size_t>(draw_.one_of({40, 64, 128, 128, 128, 180, 320}));
  }
  [[nodiscard]] std::size_t any_value() {
    return draw_.chance(long_skips_) ? static_cast<std::size_t>(draw_.between(0, static_cast<index_t>(count())))
                                     : count();
  }
  [[nodiscard]] activation any_activation() {
    switch (draw_.between(0, 5)) {
      case 0:
        return activation::relu6;
      case 1:
        return activation::leaky_relu(0.0625);
      default:
        return activation::relu;
    }
  }

  node& add(std::string kind, const nn::layer_traits& traits, const std::vector<std::size_t>& inputs,
            std::size_t bytes) {
    node& made = result_.graph.nodes.emplace_back();
    for (const std::size_t value : inputs) {
      made.inputs.push_back(value);
    }
    made.traits = traits;
    made.output_bytes = bytes;
    result_.kinds.push_back(std::move(kind));
    return made;
  }
  void train(node& made, bool multiplies) {
    made.trains = !first_layers_frozen_ && !draw_.chance(others_frozen_);
    made.multiplies = multiplies;
  }

  void add_convolution(std::size_t value) {
    node& made = add("conv",
                     {.backward_reads_output = false,
                      .fuses_activation = true,
                      .fuses_residual = true,
                      .masks_input_gradients = true,
                      .any_activation = true,
                      .skips_parameter_gradients = true},
                     {value}, draw_.chance(65) ? bytes_of(value) : some_bytes());
    made.state_bytes = draw_.chance(15) ? 100 : 0;
    train(made, true);
  }
  void add_dense(std::size_t value) {
    node& made = add("dense",
                     {.backward_reads_output = false,
                      .fuses_activation = true,
                      .masks_input_gradients = true,
                      .any_activation = true,
                      .skips_parameter_gradients = true},
                     {value}, some_bytes());
    train(made, true);
  }
  void add_norm(std::size_t value) {
    node& made = add("norm",
                     {.backward_reads_output = false,
                      .fuses_activation = true,
                      .fuses_residual = true,
                      .masks_input_gradients = true,
                      .any_activation = true,
                      .writes_residual_gradient = draw_.chance(70),
                      .skips_parameter_gradients = true,
                      .recomputable = true},
                     {value}, bytes_of(value));
    made.state_bytes = 64;
    train(made, false);
    made.trains = made.trains && draw_.chance(80);
  }
  void add_activation(std::size_t value) {
    if (draw_.chance(10)) {  // one whose derivative does not follow from its output
      add("activation of inputs", {.backward_reads_output = false, .recomputable = true}, {value}, bytes_of(value));
      return;
    }
    const activation act = any_activation();
    add(act == activation::relu ? "relu" : "activation",
        {.backward_reads_inputs = false, .recomputable = true, .is_activation = act}, {value}, bytes_of(value));
  }
  void add_sum(std::size_t value) {
    std::vector<std::size_t> others;
    for (std::size_t v = 0; v <= count(); ++v) {
      if (bytes_of(v) == bytes_of(value) && (v != value || draw_.chance(10))) {
        others.push_back(v);
      }
    }
    if (others.empty()) {
      return;
    }
    const std::size_t other =
        others[static_cast<std::size_t>(draw_.between(0, static_cast<index_t>(others.size()) - 1))];
    const nn::layer_traits traits{.backward_reads_inputs = false,
                                  .backward_reads_output = false,
                                  .fuses_activation = true,
                                  .is_sum = true,
                                  .any_activation = true,
                                  .recomputable = true};
    add("add", traits, draw_.chance(50) ? std::vector{value, other} : std::vector{other, value}, bytes_of(value));
  }
  /// A residual block, which plans fuse.
  void add_block(std::size_t value) {
    const std::size_t shortcut = value;
    if (draw_.chance(50)) {
      add_activation(value);
    }
    add_convolution(count());
    result_.graph.nodes.back().output_bytes = bytes_of(shortcut);
    if (draw_.chance(60)) {
      add_norm(count());
    }
    const nn::layer_traits traits{.backward_reads_inputs = false,
                                  .backward_reads_output = false,
                                  .fuses_activation = true,
                                  .is_sum = true,
                                  .any_activation = true,
                                  .recomputable = true};
    if (bytes_of(count()) == bytes_of(shortcut)) {
      add("add", traits, {count(), shortcut}, bytes_of(shortcut));
    }
    if (draw_.chance(60)) {
      add_activation(count());
    }
  }
  void add_concatenation(const std::vector<std::size_t>& values) {
    std::size_t bytes = 0;
    for (const std::size_t value : values) {
      bytes += bytes_of(value);
    }
    add("concat", {.backward_reads_inputs = false, .backward_reads_output = false, .recomputable = true}, values,
        bytes);
  }
  /// A layer as a program of its own might have one.
  void add_other(std::size_t value) {
    const auto flip = [&] { return draw_.chance(50); };
    std::vector<std::size_t> inputs{value};
    while (draw_.chance(30)) {
      inputs.push_back(any_value());
    }
    node& made = add("other",
                     {.backward_reads_inputs = flip(),
                      .backward_reads_output = flip(),
                      .fuses_activation = flip(),
                      .fuses_residual = flip(),
                      .masks_input_gradients = flip(),
                      .any_activation = flip(),
                      .writes_residual_gradient = flip(),
                      .skips_parameter_gradients = flip(),
                      .recomputable = flip()},
                     inputs, flip() ? bytes_of(value) : some_bytes());
    made.state_bytes = flip() ? static_cast<std::size_t>(draw_.between(1, 150)) : 0;
    if (flip()) {
      train(made, flip());
    }
  }

  void add_random() {
    const std::size_t value = any_value();
    switch (draw_.between(0, 20)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return add_convolution(value);
      case 4:
      case 5:
        return add_norm(value);
      case 6:
      case 7:
      case 8:
        return add_activation(value);
      case 9:
      case 10:
        return add_sum(value);
      case 11:
      case 12:
        return add_block(value);
      case 13:
        return add_concatenation({value, any_value()});
      case 14: {
        node& made =
            add("dropout", {.backward_reads_inputs = false, .backward_reads_output = false, .recomputable = true},
                {value}, bytes_of(value));
        made.state_bytes = (bytes_of(value) + 3) / 4;
        return;
      }
      case 15: {
        node& made = add("pool",
                         {.backward_reads_inputs = false,
                          .backward_reads_output = false,
                          .masks_input_gradients = true,
                          .recomputable = true},
                         {value}, some_bytes());
        made.state_bytes = draw_.chance(50) ? 32 : 0;
        return;
      }
      case 16:
        add("flatten", {.backward_reads_inputs = false, .backward_reads_output = false, .aliases_input = true}, {value},
            bytes_of(value));
        return;
      case 17:
        return add_dense(value);
      case 18:
        add("softmax", {.backward_reads_inputs = false, .recomputable = true}, {value}, bytes_of(value));
        return;
      case 19: {
        const std::size_t other = any_value();
        if (bytes_of(other) == bytes_of(value)) {
          add("multiply", {.backward_reads_output = false, .recomputable = true}, {value, other}, bytes_of(value));
        }
        return;
      }
      default:
        return add_other(value);
    }
  }

  /// Every value but the last has a reader.
  void join_ends() {
    std::vector<bool> used(count() + 1);
    for (const node& each : result_.graph.nodes) {
      for (const std::size_t value : each.inputs) {
        used[value] = true;
      }
    }
    std::vector<std::size_t> ends;
    for (std::size_t v = 1; v <= count(); ++v) {
      if (!used[v]) {
        ends.push_back(v);
      }
    }
    if (ends.empty()) {
      ends.push_back(0);
    }
    if (draw_.chance(20)) {
      ends.push_back(0);
    }
    if (ends.size() > 1) {
      add_concatenation(ends);
    }
    if (draw_.chance(80) || count() == 0) {
      add_dense(count());
    }
    if (draw_.chance(15)) {
      add_activation(count());
    }
    if (draw_.chance(10)) {
      add("flatten", {.backward_reads_inputs = false, .backward_reads_output = false, .aliases_input = true}, {count()},
          bytes_of(count()));
    }
  }

  draws& draw_;
  index_t most_layers_;
  bool first_layers_frozen_ = false;
  int others_frozen_ = 0;
  int long_skips_ = 0;
  named_description result_;
};

/// A line for each layer.
[[nodiscard]] inline std::string to_string(const named_description& described) {
  std::ostringstream out;
  for (std::size_t i = 0; i < described.kinds.size(); ++i) {
    const nn::graph_description::node& node = described.graph.nodes[i];
    out << "layer " << i << ", " << described.kinds[i] << (node.trains ? ", trained" : "") << ", " << node.output_bytes
        << " bytes, of values";
    for (const std::size_t value : node.inputs) {
      out << ' ' << value;
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace gradus_test
