// SPDX-License-Identifier: BSL-1.0
//
// The table of a network's layers for people. Compiled once for all element types, layouts and devices.
#pragma once

#include <algorithm>    // std::max
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn::detail {

/// What a summary says of a compiled network.
struct summary_memory {
  const execution_plan* plan = nullptr;  // null: not compiled
  std::size_t element_bytes = 0;         // of values
  std::size_t total = 0;                 // of the network, in bytes
};

/// "3,274,634"
[[nodiscard]] std::string with_commas(index_t number);

/// "512 B", "6.2 kB", "13.1 MB": powers of 1000.
[[nodiscard]] std::string bytes_as_text(std::size_t bytes);

/// The cells of the table: row 0 has the titles, row 1 the input, row i + 2 layer i, and the last one the totals.
class summary_table {
 public:
  summary_table(const graph& net, const summary_memory& memory) : net_{net}, memory_{memory} {}

  [[nodiscard]] std::string text() const;

 private:
  static constexpr std::array<std::string_view, 6> titles{"layer",      "kind",          "output",
                                                          "parameters", "multiply-adds", "memory"};

  [[nodiscard]] std::string cell(std::size_t row, std::size_t column) const;

  [[nodiscard]] std::string total(std::size_t column) const {
    return with_commas(column == 3 ? net_.parameter_count() : net_.multiply_adds());
  }

  [[nodiscard]] std::string values() const;

  /// Where layers are frozen, a line with the parameters that are trained and those that are not.
  void append_frozen(std::string& text) const;

  /// False for a value in the memory of an earlier one: a flattened image, a ReLU in place.
  [[nodiscard]] bool has_own_memory(std::size_t value) const {
    return memory_.plan->slots[memory_.plan->slot_of_value[value]].producer == value - 1;
  }

  /// The values of a layer for the examples that are computed at once.
  [[nodiscard]] std::size_t bytes(std::size_t value) const {
    return static_cast<std::size_t>(net_.shape(value).batch(net_.examples_at_once()).size()) * memory_.element_bytes;
  }

  const graph& net_;
  summary_memory memory_;
};

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE std::string with_commas(index_t number) {
  std::string text = gradus::join({number});
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

GRADUS_INLINE std::string bytes_as_text(std::size_t bytes) {
  constexpr std::array<const char*, 5> units{"B", "kB", "MB", "GB", "TB"};
  if (bytes < 1000) {
    return gradus::join({bytes, " B"});
  }
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 999.95 && unit + 1 < units.size()) {
    number /= 1000;
    ++unit;
  }
  char text[32];
  format_text(text, sizeof(text), "%.1f %s", number, units[unit]);
  return text;
}

GRADUS_INLINE std::string summary_table::text() const {
  const std::size_t columns = memory_.plan == nullptr ? titles.size() - 1 : titles.size();
  const std::size_t rows = net_.nodes().size() + 3;
  std::array<std::size_t, titles.size()> widths{};
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      widths[column] = std::max(widths[column], cell(row, column).size());
    }
  }
  std::size_t width = 2 * (columns - 1);
  for (const std::size_t each : widths) {
    width += each;
  }
  std::string text;
  for (std::size_t row = 0; row < rows; ++row) {
    if (row == 1 || row + 1 == rows) {
      text.append(width, '-').append("\n");
    }
    for (std::size_t column = 0; column < columns; ++column) {
      text.append(column == 0 ? 0 : 2, ' ');
      if (column < 3) {
        append_left(text, cell(row, column), widths[column]);
      } else {
        append_right(text, cell(row, column), widths[column]);
      }
    }
    if (row > 1 && row + 1 < rows) {
      const graph::node& node = net_.nodes()[row - 2];
      text += node.evaluates ? "  frozen, evaluates" : node.frozen ? "  frozen" : "";
    }
    text.erase(text.find_last_not_of(' ') + 1).append("\n");
  }
  append_frozen(text);
  if (memory_.plan != nullptr) {
    append_text(text, {"memory for batches of ", net_.options().max_batch_size, ": ", bytes_as_text(memory_.total),
                       net_.inference() ? " (values " : " (values and their gradients ",
                       bytes_as_text(memory_.plan->arena_bytes), ")\n"});
  }
  return text;
}

GRADUS_INLINE std::string summary_table::cell(std::size_t row, std::size_t column) const {
  if (row == 0) {
    return std::string{titles[column]};
  }
  if (row == net_.nodes().size() + 2) {
    return column == 0 ? "total" : column < 3 ? "" : column == 5 ? values() : total(column);
  }
  const std::size_t value = row - 1;
  if (column == 2) {
    return to_string(net_.shape(value));
  }
  if (value == 0) {
    return column == 0 ? "input" : "";
  }
  const graph::node& node = net_.nodes()[value - 1];
  switch (column) {
    case 0:
      return node.name;
    case 1:
      return std::string{node.layer->kind()};
    case 3:
      return with_commas(net_.parameter_count(value - 1));
    case 4:
      return with_commas(node.layer->multiply_adds());
    default:
      return has_own_memory(value) ? bytes_as_text(bytes(value)) : "shared";
  }
}

GRADUS_INLINE std::string summary_table::values() const {
  std::size_t sum = 0;
  for (std::size_t value = 1; value <= net_.nodes().size(); ++value) {
    sum += has_own_memory(value) ? bytes(value) : 0;
  }
  return bytes_as_text(sum);
}

GRADUS_INLINE void summary_table::append_frozen(std::string& text) const {
  bool any = false;
  index_t frozen = 0;
  for (std::size_t i = 0; i < net_.nodes().size(); ++i) {
    any = any || net_.nodes()[i].frozen;
    frozen += net_.nodes()[i].frozen ? net_.parameter_count(i) : 0;
  }
  if (any) {
    append_text(text, {"parameters: ", with_commas(net_.parameter_count() - frozen), " trained, ", with_commas(frozen),
                       " frozen\n"});
  }
}

}  // namespace gradus::nn::detail
#endif
