// SPDX-License-Identifier: BSL-1.0
//
// What a layer tells of itself by layer_base::attributes, for the ONNX export to ask for.
#pragma once

#include <algorithm>    // std::ranges::copy, std::ranges::find
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <variant>      // std::get_if, std::variant
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/layers/padding.hpp"
#include "gradus/tensor/formula.hpp"

namespace gradus::io::detail {

/// An operation and its attributes.
class described_layer final : public nn::attribute_visitor {
 public:
  /// An attribute: a name and a value.
  struct attribute {
    std::string name;
    std::variant<index_t, std::vector<index_t>, double, std::string> value;
  };

  explicit described_layer(std::string_view layer = {}) : layer_{layer} {}

  void operation(std::string_view name) override { operation_ = name; }
  void integer(std::string_view name, index_t value) override { add(name, value); }
  void integers(std::string_view name, std::span<const index_t> values) override {
    add(name, std::vector<index_t>(values.begin(), values.end()));
  }
  void real(std::string_view name, double value) override { add(name, value); }
  void text(std::string_view name, std::string_view value) override { add(name, std::string{value}); }
  void formula(std::span<const formula_step> steps) override { steps_.assign(steps.begin(), steps.end()); }

  [[nodiscard]] const std::string& operation() const noexcept { return operation_; }
  [[nodiscard]] std::span<const formula_step> steps() const noexcept { return steps_; }
  [[nodiscard]] std::span<const attribute> attributes() const noexcept { return attributes_; }

  /// @throws configuration_error, as the others, when the layer told no such attribute
  [[nodiscard]] index_t integer(std::string_view name) const { return get<index_t>(name); }
  [[nodiscard]] double real(std::string_view name) const { return get<double>(name); }
  [[nodiscard]] const std::string& text(std::string_view name) const { return get<std::string>(name); }
  template <std::size_t Count>
  [[nodiscard]] std::array<index_t, Count> integers(std::string_view name) const {
    const auto& values = get<std::vector<index_t>>(name);
    std::array<index_t, Count> result{};
    if (values.size() != Count) {
      refuse(name);
    }
    std::ranges::copy(values, result.begin());
    return result;
  }
  [[nodiscard]] nn::size2d size(std::string_view name) const {
    const auto [height, width] = integers<2>(name);
    return {height, width};
  }
  [[nodiscard]] nn::padding padding(std::string_view name) const {
    const auto* const rule = find<std::string>(name);
    if (rule != nullptr && *rule == "same") {
      return nn::padding::same();
    }
    const auto [top, left, bottom, right] = integers<4>(name);
    return nn::padding::explicit_padding(top, bottom, left, right);
  }

 private:
  template <class Value>
  void add(std::string_view name, Value value) {
    attributes_.push_back({std::string{name}, std::move(value)});
  }
  template <class Value>
  [[nodiscard]] const Value* find(std::string_view name) const {
    const auto found = std::ranges::find(attributes_, name, &attribute::name);
    return found == attributes_.end() ? nullptr : std::get_if<Value>(&found->value);
  }
  template <class Value>
  [[nodiscard]] const Value& get(std::string_view name) const {
    const Value* const found = find<Value>(name);
    if (found == nullptr) {
      refuse(name);
    }
    return *found;
  }
  [[noreturn]] void refuse(std::string_view name) const {
    raise<configuration_error>({"io::save_onnx: layer '", layer_, "'"},
                               {"the attribute '", name, "' of the operation ", operation_},
                               "none, or one of another type");
  }

  std::string layer_;
  std::string operation_;
  std::vector<attribute> attributes_;
  std::vector<formula_step> steps_;
};

}  // namespace gradus::io::detail
