// SPDX-License-Identifier: BSL-1.0
//
// The options of a network's layers and of its loss as a text, which ranks compare.
#pragma once

#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/attribute_visitor.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/tensor/formula_step.hpp"

namespace gradus::nn::detail {

/// A line for each option: "layer 'drop' (dropout): rate = 0.1".
class option_text final : public attribute_visitor {
 public:
  /// The options of all layers.
  explicit option_text(std::span<const graph_node> nodes);

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

GRADUS_INLINE_CONSTRUCTOR option_text::option_text(std::span<const graph_node> nodes) {
  for (const graph_node& each : nodes) {
    of_ = gradus::join({"layer '", each.name, "' (", each.layer->kind(), "): "});
    each.layer->attributes(*this);
  }
}

GRADUS_INLINE void option_text::begin_loss(std::string_view kind) {
  append_text(lines_, {"loss: ", kind, "\n"});
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
