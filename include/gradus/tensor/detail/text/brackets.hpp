// SPDX-License-Identifier: BSL-1.0
//
// Texts of elements in nested brackets, by the rules of numpy.array2string.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <span>       // std::span
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"

namespace gradus::detail {

/// The coordinates that are printed along an axis: all, or `edge` from each end.
struct printed_axis {
  index_t extent;
  index_t edge;  // half of the printed coordinates, or -1 for all
  [[nodiscard]] index_t count() const noexcept { return edge < 0 ? extent : 2 * edge; }
  [[nodiscard]] index_t coordinate(index_t i) const noexcept { return edge < 0 || i < edge ? i : extent - count() + i; }
};

/// Writes brackets, line breaks and dots around the texts of the printed elements, which are in row-major order.
class bracket_writer {
 public:
  bracket_writer(std::span<const printed_axis> axes, const std::vector<std::string>& texts, int line_width)
      : axes_{axes}, texts_{texts}, line_width_{line_width} {}

  [[nodiscard]] std::string write() { return write(0, " "); }

 private:
  [[nodiscard]] std::string write(std::size_t depth, const std::string& indent) {
    if (depth == axes_.size()) {
      return texts_[next_++];
    }
    const printed_axis& axis = axes_[depth];
    std::string text = depth + 1 == axes_.size() ? row(axis, depth, indent) : lines(axis, depth, indent);
    return "[" + text.substr(indent.size()) + "]";
  }

  /// The entries of the last axis in lines of at most line_width_ characters.
  [[nodiscard]] std::string row(const printed_axis& axis, std::size_t depth, const std::string& indent) {
    const int width = line_width_ - static_cast<int>(depth) - 1;  // each closing bracket takes a character
    std::string text;
    std::string line = indent;
    const auto extend = [&](const std::string& word) {
      if (static_cast<int>(line.size() + word.size()) > width && line.size() > indent.size()) {
        line.erase(line.find_last_not_of(' ') + 1);
        text.append(line).append("\n");
        line = indent;
      }
      line += word;
    };
    for (index_t i = 0; i < axis.count(); ++i) {
      if (i > 0) {
        line += " ";
      }
      if (i == axis.edge) {
        extend("...");
        line += " ";
      }
      extend(texts_[next_++]);
    }
    return text + line;
  }

  /// The entries of another axis, each on lines of its own.
  [[nodiscard]] std::string lines(const printed_axis& axis, std::size_t depth, const std::string& indent) {
    const std::string between(axes_.size() - depth - 1, '\n');
    std::string text;
    for (index_t i = 0; i < axis.count(); ++i) {
      if (i > 0) {
        text += between;
      }
      if (i == axis.edge) {
        text.append(indent).append("...").append(between);
      }
      text.append(indent).append(write(depth + 1, indent + " "));
    }
    return text;
  }

  std::span<const printed_axis> axes_;
  const std::vector<std::string>& texts_;
  int line_width_;
  std::size_t next_ = 0;
};

}  // namespace gradus::detail
