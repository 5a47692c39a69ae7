// SPDX-License-Identifier: BSL-1.0
//
// The state of the import of a model, and what an operator says.
#pragma once

#include <array>             // std::array
#include <cctype>            // std::isalnum
#include <cstddef>           // std::size_t
#include <functional>        // std::less
#include <initializer_list>  // std::initializer_list
#include <limits>            // std::numeric_limits
#include <map>               // std::map
#include <optional>          // std::optional
#include <set>               // std::set
#include <span>              // std::span
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <utility>           // std::move
#include <vector>            // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"
#include "gradus/onnx/operators.hpp"

namespace gradus::io::detail {

/// A network under construction, of any element type, layout and device.
class onnx_target {
 public:
  onnx_target() = default;
  onnx_target(const onnx_target&) = delete;
  onnx_target& operator=(const onnx_target&) = delete;

  [[nodiscard]] virtual nn::value add(const std::string& name, const imported_options& options,
                                      std::span<const nn::value> inputs) = 0;
  /// Excludes a layer from training: its weights are no parameters of the model.
  virtual void freeze(const std::string& name) = 0;
  [[nodiscard]] virtual const nn::value_shape& shape(nn::value v) const = 0;
  /// The layers so far.
  [[nodiscard]] virtual std::span<const nn::graph_node> layers() const = 0;
  /// The operators that functions of the program translate: "company::Rotate, Gelu".
  [[nodiscard]] virtual std::string custom_names() const = 0;
  /// Whether there is such a function.
  [[nodiscard]] virtual bool has_custom(std::string_view name) const = 0;
  /// Calls it. @pre has_custom(name)
  [[nodiscard]] virtual custom_result translate_custom(std::string_view name, custom_operator& op) = 0;

 protected:
  ~onnx_target() = default;
};

/// Numbers of a parameter or running statistic, in the logical order.
struct imported_weight {
  std::string name;  // "conv1.weight"
  std::vector<float> values;
};

/// One model on its way into a network: the operator that is translated, and what was computed before it.
class onnx_context {
 public:
  onnx_context(const onnx_content& model, onnx_target& net) : model_{model}, net_{net} {}

  [[nodiscard]] std::vector<imported_weight> take_weights() { return std::move(weights_); }

 protected:
  /// The extent of the batch in shapes that are computed by the model; no file has this number.
  static constexpr index_t any_batch = std::numeric_limits<index_t>::min() + 7;

  struct imported {
    nn::value value;
    int rank = 4;                                         // of the tensor in the model, the batch included
    std::array<axis, 3> axes{axis::c, axis::h, axis::w};  // of `value`, for those of the tensor behind the batch
    // Of a tensor of more than 4 axes, without the batch; its elements are those of `value` in the same order.
    std::vector<index_t> extents = {};
  };

  // ---- what the model says

  [[noreturn]] void refuse(message_part expected, message_part actual, message_part hint = {}) const {
    raise<configuration_error>({"ONNX operator ", op_->op_type, " '", op_->name, "'"}, expected, actual, hint);
  }

  /// Extents, axes or sizes in messages: "(2, 3)". The extent of the batch is "n".
  [[nodiscard]] static std::string listed(std::span<const index_t> numbers) {
    std::string text{"("};
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      append_text(text, {k == 0 ? "" : ", "});
      if (numbers[k] == any_batch) {
        text += 'n';
      } else {
        append_text(text, {numbers[k]});
      }
    }
    return text.append(")");
  }

  [[nodiscard]] imported* find(std::string_view name) {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool has_input(std::size_t k) const { return k < op_->inputs.size() && !op_->inputs[k].empty(); }
  /// Input k as it is kept: its axes may be those of another value in another order.
  [[nodiscard]] imported& kept(std::size_t k = 0) {
    imported* const found = has_input(k) ? find(op_->inputs[k]) : nullptr;
    if (found == nullptr) {
      refuse({"a value as input ", k},
             has_input(k) ? constant(k) != nullptr ? "a constant" : "nothing that was computed before" : "none");
    }
    return *found;
  }
  /// Input k with its axes in order.
  [[nodiscard]] const imported& value(std::size_t k = 0) {
    imported& found = kept(k);
    if (!found.extents.empty()) {
      refuse({"a value of at most 4 axes as input ", k}, "more axes");
    }
    (void)laid_out(found);
    return found;
  }
  [[nodiscard]] const nn::value_shape& shape(std::size_t k = 0) { return net_.shape(value(k).value); }
  [[nodiscard]] const onnx_constant* constant(std::size_t k) const {
    return has_input(k) ? constant_named(op_->inputs[k]) : nullptr;
  }
  [[nodiscard]] const onnx_constant* constant_named(std::string_view name) const {
    if (const auto found = computed_.find(name); found != computed_.end()) {
      return &found->second;
    }
    const auto found = model_.constants.find(name);
    return found == model_.constants.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const onnx_constant& needed(std::size_t k, std::string_view what) const {
    const onnx_constant* const found = constant(k);
    if (found == nullptr) {
      refuse({"a constant as its ", what}, has_input(k) ? "a value that the model computes" : "none");
    }
    return *found;
  }
  /// The integers of a constant input, or of an attribute of older versions.
  [[nodiscard]] std::vector<index_t> integers(std::size_t k, std::string_view name) const {
    return has_input(k) ? needed(k, name).integers : attribute_integers(name, {});
  }

  [[nodiscard]] const onnx_attribute* attribute(std::string_view name) const {
    const auto found = op_->attributes.find(name);
    if (found == op_->attributes.end()) {
      return nullptr;
    }
    read_.insert(found->first);
    return &found->second;
  }
  /// Attributes that change nothing here.
  void ignore(std::initializer_list<std::string_view> names) const {
    for (const std::string_view each : names) {
      (void)attribute(each);
    }
  }
  /// An attribute that the translation of the operator did not look at may change the result.
  void refuse_unread_attributes() const {
    for (const auto& each : op_->attributes) {
      if (!read_.contains(each.first)) {
        refuse("attributes that the layers of gradus have", {"the attribute ", each.first},
               "docs/onnx.md lists the operators");
      }
    }
  }
  [[nodiscard]] index_t integer(std::string_view name, index_t otherwise) const {
    const onnx_attribute* const found = attribute(name);
    return found == nullptr ? otherwise : found->integer;
  }
  [[nodiscard]] double real(std::string_view name, double otherwise) const {
    const onnx_attribute* const found = attribute(name);
    return found == nullptr ? otherwise : found->real;
  }
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise) const {
    const onnx_attribute* const found = attribute(name);
    return std::string{found == nullptr ? otherwise : std::string_view{found->text}};
  }
  [[nodiscard]] std::vector<index_t> attribute_integers(std::string_view name, std::vector<index_t> otherwise) const {
    const onnx_attribute* const found = attribute(name);
    if (found == nullptr) {
      return otherwise;
    }
    if (!otherwise.empty() && found->integers.size() != otherwise.size()) {
      refuse({otherwise.size(), " numbers as ", name}, {found->integers.size()});
    }
    return found->integers;
  }
  void require_integer(std::string_view name, index_t expected) const {
    if (integer(name, expected) != expected) {
      refuse({name, " = ", expected}, {integer(name, expected)});
    }
  }
  /// Rows and columns; of a value of 3 axes, whose columns are one, rows.
  [[nodiscard]] nn::size2d pair(std::string_view name, nn::size2d otherwise) {
    if (value().rank == 3) {
      return {attribute_integers(name, {otherwise.height})[0], otherwise.width};
    }
    const std::vector<index_t> found = attribute_integers(name, {otherwise.height, otherwise.width});
    return {found[0], found[1]};
  }

  /// The number of a constant with one element.
  [[nodiscard]] static std::optional<double> scalar(const onnx_constant& number) {
    if (number.size() != 1) {
      return {};
    }
    return number.numbers.empty() ? static_cast<double>(number.integers[0]) : static_cast<double>(number.numbers[0]);
  }

  // ---- layers

  /// A name for a layer: that of its weight, of the operator, or of its output.
  [[nodiscard]] std::string layer_name(std::size_t weight_input = 0) {
    std::string name;
    if (weight_input > 0 && has_input(weight_input) && op_->inputs[weight_input].ends_with(".weight")) {
      name = op_->inputs[weight_input].substr(0, op_->inputs[weight_input].size() - 7);
    } else {
      name = !op_->name.empty() ? op_->name : op_->outputs.empty() ? op_->op_type : op_->outputs.front();
      if (name.starts_with('/')) {
        name.erase(0, 1);
      }
      for (char& each : name) {
        const bool plain = std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '_' || each == '.';
        each = plain || each == '/' ? each : '_';
      }
    }
    if (name.empty()) {
      name = "layer";
    }
    std::string unique = name;
    for (int k = 2; !names_.insert(unique).second; ++k) {
      unique = gradus::join({name, "_", k});
    }
    return unique;
  }

  nn::value add(const std::string& name, const imported_options& options, std::span<const nn::value> inputs) {
    return net_.add(name, options, inputs);
  }
  nn::value add(const imported_options& options, nn::value input) {
    return add(layer_name(), options, std::array{input});
  }
  void give(nn::value made, int rank) {
    if (op_->outputs.empty() || op_->outputs.front().empty()) {
      refuse("an output with a name", "none");
    }
    for (std::size_t k = 1; k < op_->outputs.size(); ++k) {
      if (!op_->outputs[k].empty() && used_.contains(op_->outputs[k])) {
        refuse("one output that is used", {op_->outputs.size()});
      }
    }
    give(imported{made, rank});
  }
  /// A layer that reads value 0 and keeps its rank.
  void give_layer(const imported_options& options) { give(add(options, value().value), value().rank); }

  void keep(const std::string& layer, std::string_view name, std::vector<float> values, std::size_t expected) {
    if (values.size() != expected) {
      refuse({expected, " numbers as the ", name}, {values.size()});
    }
    weights_.push_back({gradus::join({layer, ".", name}), std::move(values)});
  }
  void keep_channels(const std::string& layer, std::string_view name, std::size_t k) {
    const nn::value_shape& in = shape();
    keep(layer, name, needed(k, name).numbers, static_cast<std::size_t>(in.flattened ? in.size() : in.channels));
  }

  /// The value as features (C, 1, 1): an image that was flattened has them in the order (c, h, w).
  [[nodiscard]] nn::value plain(nn::value v) {
    const nn::value_shape& in = net_.shape(v);
    return in.flattened ? add(nn::reshape{.channels = in.size()}, v) : v;
  }

  void require_image() {
    if (value().rank != 3 && value().rank != 4) {
      refuse("a tensor of 3 or 4 axes", {value().rank, " axes"});
    }
  }
  /// Extents of value k behind the batch, as many as it has axes.
  [[nodiscard]] std::vector<index_t> extents_of(const imported& from) const {
    if (!from.extents.empty()) {
      return from.extents;
    }
    const nn::value_shape& in = net_.shape(from.value);
    if (from.rank == 2) {
      return {in.size()};
    }
    return from.rank == 3 ? std::vector<index_t>{in.channels, in.height}
                          : std::vector<index_t>{in.channels, in.height, in.width};
  }
  static constexpr index_t most_pixels = index_t{1} << 24;  // of an axis that an operator makes longer

  /// Products of extents stay far from the largest integer.
  void require_size(index_t channels, index_t height, index_t width) const {
    if (!(static_cast<double>(channels) * static_cast<double>(height) * static_cast<double>(width) < 0x1p32)) {
      refuse("a result of fewer than 2^32 elements", {channels, ", ", height, " and ", width});
    }
  }
  /// The value repeated along axes of extent 1.
  [[nodiscard]] nn::value broadcast(nn::value v, const nn::value_shape& to) {
    v = plain(v);
    nn::value_shape in = net_.shape(v);
    const auto fits = [](index_t from, index_t extent) { return from == extent || from == 1; };
    if (!fits(in.channels, to.channels) || !fits(in.height, to.height) || !fits(in.width, to.width)) {
      refuse({"a value that can be repeated to ", nn::describe(to)}, nn::describe(in));
    }
    require_size(to.channels, to.height, to.width);
    if (in.height != to.height || in.width != to.width) {
      v = add(nn::upsample2d{.size = {to.height, to.width}}, v);
    }
    if (in.channels != to.channels) {
      const nn::permute exchange{{axis::h, axis::c, axis::w}};
      v = add(exchange, v);
      v = add(nn::upsample2d{.size = {to.channels, to.width}}, v);
      v = add(exchange, v);
    }
    return v;
  }

  void require_rank(int expected) {
    if (value().rank != expected) {
      refuse({"a tensor of ", expected, " axes"}, {value().rank, " axes"});
    }
  }

  [[nodiscard]] index_t axis_of(index_t number, int rank) const {
    const index_t result = number < 0 ? number + rank : number;
    if (result < 0 || result >= rank) {
      refuse({"an axis of the ", rank, " of the tensor"}, {number});
    }
    return result;
  }

  /// The value whose axes are these ones of another. No layer computes it before it is read in this order.
  [[nodiscard]] static imported permuted(imported v, const std::array<axis, 3>& axes) {
    const std::array<axis, 3> before = v.axes;
    for (std::size_t k = 0; k < 3; ++k) {
      v.axes[k] = before[static_cast<std::size_t>(axes[k]) - 1];
    }
    return v;
  }
  nn::value laid_out(imported& v) {
    if (v.axes != imported{}.axes) {
      v.value = add(nn::permute{v.axes}, v.value);
      v.axes = imported{}.axes;
    }
    return v.value;
  }
  /// Keeps a value under the name of the output.
  void give(const imported& made) { values_.insert_or_assign(op_->outputs.front(), made); }
  /// The value whose axis `which` (1 to 3) is that of the channels, and what turns a result back.
  struct turned_axes {
    nn::value value;
    std::array<axis, 3> back;
  };
  [[nodiscard]] turned_axes with_channels_at(std::size_t k, index_t which) {
    // Exchanging two axes twice leaves them as they are.
    const std::array<axis, 3> exchanged = which == 1   ? imported{}.axes
                                          : which == 2 ? std::array{axis::h, axis::c, axis::w}
                                                       : std::array{axis::w, axis::h, axis::c};
    imported turned = which == 1 ? value(k) : permuted(value(k), exchanged);
    return {laid_out(turned), exchanged};
  }

  const onnx_content& model_;
  onnx_target& net_;
  const onnx_operator* op_ = nullptr;        // the one that is translated
  mutable std::set<std::string_view> read_;  // attributes of the operator
  std::set<std::string_view> used_;          // names that the output depends on
  std::map<std::string, imported, std::less<>> values_;
  std::map<std::string, onnx_constant, std::less<>> computed_;  // lists of integers and what Constant holds
  std::set<std::string> names_;
  std::vector<imported_weight> weights_;
};

}  // namespace gradus::io::detail
