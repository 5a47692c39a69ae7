// SPDX-License-Identifier: BSL-1.0
//
// What the layers of a network compute, as a text that is compared with that of another network.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/formula.hpp"

namespace gradus::nn::detail {

/// Writes options as text: ", rate = 0.5, kernel = 3 3".
class attribute_text final : public attribute_visitor {
 public:
  /// @param text  appended to; it outlives this object
  explicit attribute_text(std::string& text) noexcept : text_{&text} {}

  void operation(std::string_view name) override { append_text(*text_, {", ", name}); }
  void integer(std::string_view name, index_t value) override { append_text(*text_, {", ", name, " = ", value}); }
  void integers(std::string_view name, std::span<const index_t> values) override {
    append_text(*text_, {", ", name, " ="});
    for (const index_t each : values) {
      append_text(*text_, {" ", each});
    }
  }
  void real(std::string_view name, double value) override { append_text(*text_, {", ", name, " = ", value}); }
  void text(std::string_view name, std::string_view value) override { append_text(*text_, {", ", name, " = ", value}); }
  void formula(std::span<const formula_step> steps) override;

 private:
  std::string* text_;
};

/// A line for each layer: its name, kind, output shape, inputs and, in braces, its options. Which parameters are
/// trained is not in it.
/// @param shapes  of the input and the output of each layer
[[nodiscard]] std::string computation_text(std::span<const graph_node> nodes, std::span<const value_shape> shapes);

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_COLD GRADUS_INLINE void attribute_text::formula(std::span<const formula_step> steps) {
  append_text(*text_, {", formula ="});
  for (const formula_step& each : steps) {
    append_text(*text_, {" ", static_cast<int>(each.operation)});
    for (const int operand : each.operands) {
      if (operand >= 0) {
        append_text(*text_, {".", operand});
      }
    }
    if (each.operation == formula_operation::number) {
      append_text(*text_, {":", each.number});
    }
  }
}

GRADUS_COLD GRADUS_INLINE std::string computation_text(std::span<const graph_node> nodes,
                                                       std::span<const value_shape> shapes) {
  std::string text = gradus::join({"input ", to_string(shapes.front()), "\n"});
  attribute_text options{text};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const graph_node& n = nodes[i];
    append_text(text, {n.name, " ", n.layer->kind(), " ", to_string(shapes[i + 1]), " of"});
    for (const std::size_t input : n.inputs) {
      append_text(text, {" ", input == 0 ? std::string_view{"input"} : std::string_view{nodes[input - 1].name}});
    }
    text += " {options";
    n.layer->attributes(options);
    n.layer->training_attributes(options);
    text += "}\n";
  }
  return text;
}

}  // namespace gradus::nn::detail
#endif
