// SPDX-License-Identifier: BSL-1.0
//
// The layers of a network and its loss with their options as a text, which ranks and checkpoints compare.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/attribute_visitor.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/tensor/formula_step.hpp"

namespace gradus::nn::detail {

/// A line for each layer, "'drop' is dropout of 'relu', (3, 8, 8)", and for each option: "layer 'drop' (dropout): rate
/// = 0.1".
class option_text final : public attribute_visitor {
 public:
  /// All layers. @param shapes  of the input and the output of each layer
  option_text(std::span<const graph_node> nodes, std::span<const value_shape> shapes);

  /// What follows are the options of the loss.
  void begin_loss(std::string_view kind);

  void operation(std::string_view name) override;
  void integer(std::string_view name, index_t value) override;
  void integers(std::string_view name, std::span<const index_t> values) override;
  void real(std::string_view name, double value) override;
  void text(std::string_view name, std::string_view value) override;
  void formula(std::span<const formula_step> steps) override;

  /// All lines.
  [[nodiscard]] std::string text() const { return lines_; }

 private:
  std::string of_;  // "layer 'drop' (dropout): "
  std::string lines_;
};

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE_CONSTRUCTOR option_text::option_text(std::span<const graph_node> nodes,
                                                   std::span<const value_shape> shapes) {
  append_text(lines_, {"'input' is ", to_string(shapes.front()), "\n"});
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const graph_node& layer = nodes[i];
    append_text(lines_, {"'", layer.name, "' is ", layer.layer->kind(), " of "});
    for (const std::size_t input : layer.inputs) {
      append_text(lines_,
                  {"'", input == 0 ? std::string_view{"input"} : std::string_view{nodes[input - 1].name}, "', "});
    }
    append_text(lines_, {to_string(shapes[i + 1]), "\n"});
    of_ = gradus::join({"layer '", layer.name, "' (", layer.layer->kind(), "): "});
    layer.layer->attributes(*this);
  }
}

GRADUS_INLINE void option_text::begin_loss(std::string_view kind) {
  append_text(lines_, {"loss is ", kind, "\n"});
  of_ = gradus::join({"loss (", kind, "): "});
}

GRADUS_INLINE void option_text::operation(std::string_view name) {
  text("operation", name);
}

GRADUS_INLINE void option_text::integer(std::string_view name, index_t value) {
  append_text(lines_, {of_, name, " = ", value, "\n"});
}

GRADUS_INLINE void option_text::integers(std::string_view name, std::span<const index_t> values) {
  append_text(lines_, {of_, name, " = {"});
  for (const index_t& value : values) {
    append_text(lines_, {&value == values.data() ? "" : ", ", value});
  }
  lines_ += "}\n";
}

GRADUS_INLINE void option_text::real(std::string_view name, double value) {
  append_text(lines_, {of_, name, " = ", value, "\n"});
}

GRADUS_INLINE void option_text::text(std::string_view name, std::string_view value) {
  append_text(lines_, {of_, name, " = ", value, "\n"});
}

GRADUS_INLINE void option_text::formula(std::span<const formula_step> steps) {
  for (const formula_step& step : steps) {
    if (step.operation == formula_operation::number) {
      append_text(lines_, {of_, "number of the function = ", step.number, "\n"});
    } else {
      append_text(lines_, {of_, "step of the function = ", static_cast<int>(step.operation), " of ", step.operands[0],
                           ", ", step.operands[1], ", ", step.operands[2], "\n"});
    }
  }
}

}  // namespace gradus::nn::detail
#endif
