// SPDX-License-Identifier: BSL-1.0
//
// Random graphs of layers: shortcuts, long skips, values that several layers read, branches without parameters, sums of
// a value and itself, odd shapes, decoders that enlarge images again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "graph_spec.hpp"

namespace gradus_test {

/// Random numbers that are the same with every standard library.
class draws {
 public:
  explicit draws(std::uint64_t seed) : random_{seed} {}

  [[nodiscard]] std::uint64_t bits() { return random_(); }
  /// In [least, most].
  [[nodiscard]] index_t between(index_t least, index_t most) {
    return least + static_cast<index_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  [[nodiscard]] bool chance(int percent) { return between(0, 99) < percent; }
  [[nodiscard]] index_t one_of(std::initializer_list<index_t> numbers) {
    return numbers.begin()[between(0, static_cast<index_t>(numbers.size()) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

class graph_generator {
 public:
  /// @param most_layers  before those that join the ends
  graph_generator(std::uint64_t seed, index_t most_layers) : draw_{seed}, most_layers_{most_layers} {}

  [[nodiscard]] graph_spec generate() {
    spec_ = {};
    spec_.input = {draw_.one_of({1, 2, 3, 4, 8}), draw_.between(1, 9), draw_.between(1, 9)};
    if (draw_.chance(20)) {
      spec_.input.height = 1;
    }
    shapes_ = {spec_.input};
    const index_t layers = draw_.between(2, most_layers_);
    for (index_t i = 0; i < layers; ++i) {
      add_random();
    }
    join_ends();
    choose_trained();
    return std::move(spec_);
  }

 private:
  /// Appends a layer if it can read these values. @return whether it did
  bool add(const layer_options& options, std::vector<std::size_t> inputs) {
    std::vector<nn::value_shape> shapes;
    for (const std::size_t value : inputs) {
      shapes.push_back(shapes_[value]);
    }
    const auto out = std::visit(shape_rule{shapes}, options);
    if (!out || out->size() > 2000) {
      return false;
    }
    shapes_.push_back(*out);
    spec_.layers.push_back({options, std::move(inputs)});
    return true;
  }

  [[nodiscard]] std::size_t last() const { return shapes_.size() - 1; }
  /// The newest value, or any: skips of every length.
  [[nodiscard]] std::size_t any_value() {
    return draw_.chance(60) ? last() : static_cast<std::size_t>(draw_.between(0, static_cast<index_t>(last())));
  }

  [[nodiscard]] nn::padding padding(nn::size2d kernel) {
    switch (draw_.between(0, 3)) {
      case 0:
        return nn::padding::valid();
      case 1:
        return nn::padding::explicit_padding(draw_.between(0, kernel.height - 1), draw_.between(0, kernel.height - 1),
                                             draw_.between(0, kernel.width - 1), draw_.between(0, kernel.width - 1));
      default:
        return nn::padding::same();
    }
  }
  [[nodiscard]] nn::size2d kernel() { return {draw_.one_of({1, 1, 2, 3, 3, 5}), draw_.one_of({1, 1, 2, 3, 3, 5})}; }
  [[nodiscard]] nn::size2d stride() { return {draw_.one_of({1, 1, 1, 2, 3}), draw_.one_of({1, 1, 1, 2, 3})}; }

  /// A convolution, which keeps the shape more often than not, so that sums find their terms.
  [[nodiscard]] nn::conv2d convolution(std::size_t value) {
    nn::conv2d options;
    const index_t in = shapes_[value].channels;
    options.out_channels = draw_.chance(60) ? in : draw_.one_of({1, 2, 3, 4, 6, 8, 16, 16, 32});
    options.bias = draw_.chance(70);
    if (draw_.chance(70)) {
      options.kernel = {draw_.one_of({1, 3}), draw_.one_of({1, 3})};
      options.padding = nn::padding::same();
    } else {
      options.kernel = kernel();
      options.stride = stride();
      options.padding = padding(options.kernel);
    }
    if (draw_.chance(20)) {
      options.dilation = {draw_.between(1, 3), draw_.between(1, 2)};
    }
    if (draw_.chance(20)) {
      options.padding_mode = padding_mode();
    }
    options.groups = groups(in, options.out_channels);
    return options;
  }

  [[nodiscard]] index_t groups(index_t in, index_t out) {
    const index_t result = !draw_.chance(25) ? 1 : draw_.chance(50) ? in : 2;
    return in % result == 0 && out % result == 0 ? result : 1;
  }

  [[nodiscard]] nn::padding_mode padding_mode() { return static_cast<nn::padding_mode>(draw_.between(0, 3)); }

  [[nodiscard]] nn::padding amounts(index_t rows, index_t columns) {
    return nn::padding::explicit_padding(draw_.between(0, rows), draw_.between(0, rows), draw_.between(0, columns),
                                         draw_.between(0, columns));
  }

  /// A transposed convolution that keeps the shape, as sums need, or that enlarges images in most cases.
  [[nodiscard]] nn::conv_transpose2d transposed_convolution(std::size_t value) {
    nn::conv_transpose2d options;
    const index_t in = shapes_[value].channels;
    options.bias = draw_.chance(70);
    if (draw_.chance(40)) {
      options = same_transposed_convolution(value);
    } else {
      options.out_channels = draw_.chance(50) ? in : draw_.one_of({1, 2, 3, 4, 8, 16});
      options.kernel = kernel();
      options.stride = stride();
      options.dilation = draw_.chance(25) ? nn::size2d{draw_.between(1, 3), draw_.between(1, 2)} : nn::size2d{1, 1};
      options.padding = amounts(options.kernel.height - 1, options.kernel.width - 1);
      if (draw_.chance(50)) {
        options.output_padding = {draw_.between(0, std::max(options.stride.height, options.dilation.height) - 1),
                                  draw_.between(0, std::max(options.stride.width, options.dilation.width) - 1)};
      }
    }
    options.groups = groups(in, options.out_channels);
    return options;
  }
  [[nodiscard]] nn::conv_transpose2d same_transposed_convolution(std::size_t value) {
    nn::conv_transpose2d options{.out_channels = shapes_[value].channels};
    const index_t rows = draw_.between(0, 1);
    const index_t columns = draw_.between(0, 1);
    options.kernel = {1 + 2 * rows, 1 + 2 * columns};
    options.dilation = {draw_.one_of({1, 1, 2}), draw_.one_of({1, 1, 2})};
    const index_t above = rows * options.dilation.height;
    const index_t left = columns * options.dilation.width;
    options.padding = nn::padding::explicit_padding(above, above, left, left);
    options.bias = draw_.chance(70);
    return options;
  }

  /// The value, or an activation of it: the next layer then masks its gradient.
  [[nodiscard]] std::size_t maybe_relu(std::size_t value) {
    return draw_.chance(30) && add(activation(), {value}) ? last() : value;
  }

  /// ReLU or one of the layers like it.
  [[nodiscard]] layer_options activation() {
    switch (draw_.between(0, 4)) {
      case 0:
        return nn::relu6{};
      case 1:
        // 0.0625 is exact in every type. A layer with a slope of -0.5 is not fused.
        return nn::leaky_relu{.negative_slope = draw_.chance(80) ? 0.0625 : -0.5};
      default:
        return nn::relu{};
    }
  }

  /// A transposed convolution, often with what plans fuse: a sum and a ReLU.
  bool add_transposed_convolution(std::size_t value) {
    value = maybe_relu(value);
    if (!add(transposed_convolution(value), {value})) {
      return false;
    }
    if (draw_.chance(40)) {
      add_sum(last());
    }
    return !draw_.chance(50) || add(activation(), {last()});
  }

  /// Images of another size, with it given by options or by another value.
  bool add_resized(std::size_t value) {
    const nn::value_shape& shape = shapes_[value];
    if (draw_.chance(50)) {
      nn::upsample2d options;
      if (draw_.chance(50)) {
        options.mode = nn::interpolation::bilinear;
        options.align_corners = draw_.chance(40);
      }
      const std::size_t other = static_cast<std::size_t>(draw_.between(0, static_cast<index_t>(last())));
      if (draw_.chance(20) && other != value) {
        return add(options, {value, other});
      }
      if (draw_.chance(50)) {
        options.scale = {draw_.between(1, 3), draw_.between(1, 2)};
      } else {
        options.size = {draw_.between(1, 9), draw_.between(1, 9)};
      }
      return add(options, {value});
    }
    for (std::size_t other = 0; other < shapes_.size(); ++other) {
      const bool fits = shapes_[other].height <= shape.height && shapes_[other].width <= shape.width;
      if (fits && other != value && shapes_[other] != shape && draw_.chance(30)) {
        return add(nn::crop2d{}, {value, other});
      }
    }
    nn::crop2d options{.top = draw_.between(0, shape.height - 1), .left = draw_.between(0, shape.width - 1)};
    options.size = {draw_.between(1, shape.height - options.top), draw_.between(1, shape.width - options.left)};
    return add(options, {value});
  }

  /// The elements in other extents: a whole divisor for the channels and the rows, or the rest where one is -1.
  bool add_reshape(std::size_t value) {
    const index_t size = shapes_[value].size();
    const auto divisor = [&](index_t number) {
      index_t result = draw_.chance(40) ? shapes_[value].channels : draw_.between(1, 12);
      while (number % result != 0) {
        --result;
      }
      return result;
    };
    nn::reshape options{.channels = divisor(size)};
    options.height = divisor(size / options.channels);
    options.width = size / options.channels / options.height;
    switch (draw_.between(0, 5)) {
      case 0:
        options.channels = -1;
        break;
      case 1:
        options.height = -1;
        break;
      case 2:
        options.width = -1;
        break;
      default:
        break;
    }
    return add(options, {value});
  }

  bool add_permute(std::size_t value) {
    std::array<gradus::axis, 3> axes{gradus::axis::c, gradus::axis::h, gradus::axis::w};
    std::swap(axes[0], axes[static_cast<std::size_t>(draw_.between(0, 2))]);
    std::swap(axes[1], axes[static_cast<std::size_t>(draw_.between(1, 2))]);
    return add(nn::permute{.axes = axes}, {value});
  }

  /// A product with a value of the same shape, or with a gate of each channel.
  bool add_product(std::size_t value) {
    std::vector<std::size_t> others;
    for (std::size_t v = 0; v < shapes_.size(); ++v) {
      if (std::visit(shape_rule{{shapes_[value], shapes_[v]}}, layer_options{nn::multiply{}}) &&
          (v != value || draw_.chance(10))) {
        others.push_back(v);
      }
    }
    std::size_t other = value;
    if (!others.empty() && draw_.chance(60)) {
      other = others[static_cast<std::size_t>(draw_.between(0, static_cast<index_t>(others.size()) - 1))];
    } else if (add(nn::global_average_pool2d{}, {value})) {
      if (draw_.chance(50)) {
        add(nn::dense{.out_features = shapes_[value].channels}, {last()});
      }
      if (draw_.chance(50)) {
        add(nn::softmax{}, {last()});
      }
      other = last();
    }
    return draw_.chance(50) ? add(nn::multiply{}, {value, other}) : add(nn::multiply{}, {other, value});
  }

  /// Layers that move or combine elements.
  bool add_shaping(std::size_t value) {
    value = maybe_relu(value);
    switch (draw_.between(0, 9)) {
      case 0: {
        const index_t rows = draw_.between(0, 2);
        nn::pad2d options{.padding = amounts(rows, draw_.between(0, 2)), .mode = padding_mode()};
        options.value = options.mode == nn::padding_mode::zeros && draw_.chance(50) ? 0.5 : 0;
        return add(options, {value});
      }
      case 1:
      case 2:
      case 3:
        return add_resized(value);
      case 4: {
        const index_t channels = shapes_[value].channels;
        return add(nn::pixel_shuffle{.factor = channels % 9 == 0 ? 3 : channels % 4 == 0 ? 2 : 1}, {value});
      }
      case 5:
        return add_reshape(value);
      case 6:
        return add_permute(value);
      case 7:
      case 8:
        return add_product(value);
      default:
        return add(nn::softmax{}, {value});
    }
  }

  /// Of images of several pixels: a batch or micro-batch of one example has one value per channel of one pixel.
  bool add_batch_norm(std::size_t value) {
    nn::batch_norm options{.momentum = draw_.chance(50) ? 0.1 : 0.75, .epsilon = 1e-3};
    options.scale = draw_.chance(75);
    options.shift = draw_.chance(75);
    return has_pixels(value) && add(options, {value});
  }

  [[nodiscard]] bool has_pixels(std::size_t value) const { return shapes_[value].height * shapes_[value].width > 1; }

  /// Statistics of examples: of groups of channels, of the whole image or of pixels.
  bool add_norm_of_examples(std::size_t value) {
    const bool scale = draw_.chance(75);
    const bool shift = draw_.chance(75);
    if (draw_.chance(50)) {
      const index_t groups = draw_.chance(30) ? shapes_[value].channels : draw_.between(1, 3);
      return has_pixels(value) &&
             add(nn::group_norm{.groups = groups, .epsilon = 1e-3, .scale = scale, .shift = shift}, {value});
    }
    const auto axes = draw_.chance(50) ? nn::norm_axes::image : nn::norm_axes::channels;
    return add(nn::layer_norm{.axes = axes, .epsilon = 1e-3, .scale = scale, .shift = shift}, {value});
  }

  bool add_random() {
    const std::size_t value = any_value();
    switch (draw_.between(0, 28)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return add(convolution(value), {value});
      case 4:
      case 5:
      case 6:
        return add(activation(), {value});
      case 7:
      case 8:
        return add_batch_norm(value);
      case 9:
      case 10:
        return add_sum(value);
      case 19:
        return add_norm_of_examples(value);
      case 11:
      case 12:
        return add_shortcut(value);
      case 13:
        return add_concatenation(value);
      case 14: {
        nn::max_pool2d options{.kernel = kernel(), .stride = stride()};
        options.padding = padding(options.kernel);
        options.dilation = draw_.chance(75) ? nn::size2d{1, 1} : nn::size2d{draw_.between(1, 3), draw_.between(1, 3)};
        options.ceil_mode = draw_.chance(30);
        return add(options, {value});
      }
      case 15: {
        nn::average_pool2d options{.kernel = kernel(), .stride = stride()};
        options.padding = padding(options.kernel);
        options.count_padding = draw_.chance(50);
        options.ceil_mode = draw_.chance(30);
        return add(options, {value});
      }
      case 16:
        return add(nn::local_response_norm{.radius = draw_.between(0, 3), .alpha = 0.1, .beta = 0.75, .k = 2}, {value});
      case 17:
        return add(nn::dropout{.rate = 0.25}, {value});
      case 20:
      case 21:
      case 22:
        return add_transposed_convolution(value);
      case 23:
      case 24:
      case 25:
      case 26:
      case 27:
        return add_shaping(value);
      case 18:
        return add(nn::pad_channels{.before = draw_.between(0, 2), .after = draw_.between(0, 2)}, {value});
      default:
        return draw_.chance(40)
                   ? add(nn::global_average_pool2d{}, {value})
                   : (draw_.chance(30)
                          ? add(nn::flatten{}, {value})
                          : add(nn::dense{.out_features = draw_.between(1, 9), .bias = draw_.chance(70)}, {value}));
    }
  }

  /// The sum of a value and another of its shape, or itself.
  bool add_sum(std::size_t value) {
    std::vector<std::size_t> others;
    for (std::size_t v = 0; v < shapes_.size(); ++v) {
      if (shapes_[v] == shapes_[value] && (v != value || draw_.chance(10))) {
        others.push_back(v);
      }
    }
    if (others.empty()) {
      return false;
    }
    const std::size_t other =
        others[static_cast<std::size_t>(draw_.between(0, static_cast<index_t>(others.size()) - 1))];
    return draw_.chance(50) ? add(nn::add{}, {value, other}) : add(nn::add{}, {other, value});
  }

  /// A residual block of one or two layers: what plans fuse. Its value may be read by later layers.
  bool add_shortcut(std::size_t value) {
    nn::conv2d options{.out_channels = shapes_[value].channels, .kernel = {3, 3}, .padding = nn::padding::same()};
    options.bias = draw_.chance(70);
    const std::size_t shortcut = value;
    if (draw_.chance(50) && add(activation(), {value})) {
      value = last();
    }
    if (draw_.chance(40) ? !add(same_transposed_convolution(value), {value}) : !add(options, {value})) {
      return false;
    }
    if (draw_.chance(50)) {
      add_batch_norm(last());
    }
    const std::size_t branch = last();
    const std::size_t source = draw_.chance(80) ? shortcut : value;
    if (!(draw_.chance(50) ? add(nn::add{}, {branch, source}) : add(nn::add{}, {source, branch}))) {
      return false;
    }
    return draw_.chance(50) ? add(activation(), {last()}) : true;
  }

  bool add_concatenation(std::size_t value) {
    std::vector<std::size_t> inputs{value};
    for (std::size_t v = 0; v < shapes_.size() && inputs.size() < 4; ++v) {
      if (!shapes_[v].flattened && shapes_[v].height == shapes_[value].height &&
          shapes_[v].width == shapes_[value].width && draw_.chance(50)) {
        inputs.insert(draw_.chance(50) ? inputs.begin() : inputs.end(), v);
      }
    }
    return add(nn::concat{}, std::move(inputs));
  }

  /// Joins all values that no layer reads, and ends with scores.
  void join_ends() {
    std::vector<bool> used(shapes_.size());
    for (const layer_spec& layer : spec_.layers) {
      for (const std::size_t value : layer.inputs) {
        used[value] = true;
      }
    }
    std::vector<std::size_t> ends;
    for (std::size_t v = spec_.layers.empty() ? 0 : 1; v < used.size(); ++v) {
      if (used[v]) {
        continue;
      }
      std::size_t end = v;
      if (shapes_[v].height != 1 || shapes_[v].width != 1 || shapes_[v].flattened) {
        const bool pooled = !shapes_[v].flattened && draw_.chance(50);
        pooled ? add(nn::global_average_pool2d{}, {v}) : add(nn::dense{.out_features = draw_.between(1, 5)}, {v});
        end = last();
      }
      ends.push_back(end);
    }
    if (ends.size() > 1) {
      add(nn::concat{}, ends);
      ends = {last()};
    }
    if (draw_.chance(30)) {
      add(activation(), {ends[0]});
      ends = {last()};
    }
    // Mostly scores of a layer of their own, sometimes those of a sum or a ReLU.
    if (draw_.chance(85) || shapes_[ends[0]].channels < 2 || spec_.layers.empty()) {
      add(nn::dense{.out_features = draw_.between(2, 5)}, {ends[0]});
    }
  }

  /// Freezes no layers, the first ones or any, and gives some of the others learning rates of their own.
  void choose_trained() {
    const graph_spec all = spec_;
    const auto count = static_cast<index_t>(spec_.layers.size());
    const index_t first = draw_.chance(25) ? draw_.between(1, count) : 0;
    const int others = draw_.chance(35) ? 30 : 0;
    const bool evaluate = draw_.chance(50);
    for (index_t i = 0; i < count; ++i) {
      layer_spec& layer = spec_.layers[static_cast<std::size_t>(i)];
      layer.frozen = i < first || draw_.chance(others);
      layer.evaluates = layer.frozen && evaluate && draw_.chance(80);
      layer.learning_rate_factor = draw_.chance(20) ? 0.5 : draw_.chance(20) ? 3 : 1;
    }
    if (!trains_something(spec_)) {
      spec_ = all;
    }
  }

  draws draw_;
  index_t most_layers_;
  graph_spec spec_;
  std::vector<nn::value_shape> shapes_;
};

/// Calls body(options) for a convolution or a transposed one.
template <class Body>
void if_convolution(layer_options& layer, const Body& body) {
  if (auto* const convolution = std::get_if<nn::conv2d>(&layer)) {
    body(*convolution);
  } else if (auto* const transposed = std::get_if<nn::conv_transpose2d>(&layer)) {
    body(*transposed);
  }
}

/// Smaller graphs and simpler layers that a failure may have in common with a graph, the most promising first.
[[nodiscard]] inline std::vector<graph_spec> smaller_graphs(const graph_spec& spec) {
  std::vector<graph_spec> result;
  const auto keep = [&](graph_spec candidate) {
    if (shapes_of(candidate) && trains_something(candidate)) {
      result.push_back(std::move(candidate));
    }
  };
  // Without frozen layers, and with fewer.
  for (std::size_t i = 0; i <= spec.layers.size(); ++i) {
    graph_spec candidate = spec;
    bool changed = false;
    for (std::size_t k = 0; k < spec.layers.size(); ++k) {
      layer_spec& layer = candidate.layers[k];
      if ((i == spec.layers.size() || k == i) && (layer.frozen || layer.learning_rate_factor != 1)) {
        layer = {.options = layer.options, .inputs = layer.inputs};
        changed = true;
      }
    }
    if (changed) {
      keep(std::move(candidate));
    }
  }
  // Without layer i: its readers read one of its inputs. What then has no reader goes, too.
  for (std::size_t i = spec.layers.size(); i-- > 0;) {
    for (const std::size_t instead : spec.layers[i].inputs) {
      graph_spec candidate = spec;
      candidate.layers.erase(candidate.layers.begin() + static_cast<std::ptrdiff_t>(i));
      for (layer_spec& layer : candidate.layers) {
        for (std::size_t& value : layer.inputs) {
          value = value == i + 1 ? instead : value > i + 1 ? value - 1 : value;
        }
      }
      for (std::size_t v = candidate.layers.size(); v-- > 1;) {  // values but the last
        bool used = false;
        for (const layer_spec& layer : candidate.layers) {
          used = used || std::find(layer.inputs.begin(), layer.inputs.end(), v) != layer.inputs.end();
        }
        if (!used) {
          candidate.layers.erase(candidate.layers.begin() + static_cast<std::ptrdiff_t>(v - 1));
          for (layer_spec& layer : candidate.layers) {
            for (std::size_t& value : layer.inputs) {
              value -= value > v ? 1 : 0;
            }
          }
        }
      }
      keep(std::move(candidate));
    }
  }
  // One input less of a concatenation.
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    for (std::size_t k = 0; std::holds_alternative<nn::concat>(spec.layers[i].options) &&
                            spec.layers[i].inputs.size() > 2 && k < spec.layers[i].inputs.size();
         ++k) {
      graph_spec candidate = spec;
      auto& inputs = candidate.layers[i].inputs;
      inputs.erase(inputs.begin() + static_cast<std::ptrdiff_t>(k));
      keep(std::move(candidate));
    }
  }
  // Smaller images, fewer channels everywhere.
  for (index_t nn::value_shape::*extent : {&nn::value_shape::height, &nn::value_shape::width}) {
    for (const index_t less : {index_t{1}, spec.input.*extent - 1}) {
      graph_spec candidate = spec;
      if (less >= 1 && less < spec.input.*extent) {
        candidate.input.*extent = less;
        keep(std::move(candidate));
      }
    }
  }
  for (const index_t channels : {1, 2, 4}) {
    graph_spec candidate = spec;
    bool changed = candidate.input.channels > channels;
    candidate.input.channels = std::min(candidate.input.channels, channels);
    for (layer_spec& layer : candidate.layers) {
      if_convolution(layer.options, [&](auto& convolution) {
        changed = changed || convolution.out_channels > channels;
        convolution.out_channels = std::min(convolution.out_channels, channels);
        convolution.groups = 1;
      });
    }
    if (changed) {
      keep(std::move(candidate));
    }
  }
  // Simpler options.
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    graph_spec candidate = spec;
    if_convolution(candidate.layers[i].options, [&](auto& convolution) {
      const auto before = convolution;
      const nn::size2d one{1, 1};
      if (before.kernel != one || before.stride != one) {
        convolution = {.out_channels = before.out_channels, .groups = before.groups, .bias = before.bias};
        keep(candidate);
      }
      if (before.dilation != one) {
        convolution = before;
        convolution.dilation = one;
        keep(candidate);
      }
      if (before.groups != 1) {
        convolution = before;
        convolution.groups = 1;
        keep(candidate);
      }
      if (before.bias) {
        convolution = before;
        convolution.bias = false;
        keep(candidate);
      }
    });
  }
  return result;
}

/// The smallest graph on the way from `spec` that still fails.
template <class Fails>
[[nodiscard]] graph_spec shrink_graph(graph_spec spec, const Fails& fails) {
  for (bool again = true; again;) {
    again = false;
    for (const graph_spec& candidate : smaller_graphs(spec)) {
      if (fails(candidate)) {
        spec = candidate;
        again = true;
        break;
      }
    }
  }
  return spec;
}

}  // namespace gradus_test
