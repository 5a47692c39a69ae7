// SPDX-License-Identifier: BSL-1.0
//
// What load_weights did.
#pragma once

#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"

namespace gradus::io {

/// A weight that has another shape in the file than in the network.
struct weight_mismatch {
  std::string name;               ///< in the network
  std::vector<index_t> expected;  ///< the shape in the network
  std::vector<index_t> found;     ///< the shape in the file
};

/// What load_weights did.
struct load_weights_report {
  std::vector<std::string> loaded;          ///< names in the network, of what was loaded
  std::vector<std::string> missing;         ///< names in the network, of what the file does not have
  std::vector<std::string> unexpected;      ///< names in the file, of what the network does not have
  std::vector<weight_mismatch> mismatched;  ///< what has another shape and was not loaded
  std::vector<std::string> ignored;         ///< names in the file, of what .rename leaves out; no difference
  std::vector<std::string> class_names;     ///< save_weights_options::class_names of the file

  /// True if the file and the network have the same names and shapes.
  [[nodiscard]] bool complete() const noexcept { return missing.empty() && unexpected.empty() && mismatched.empty(); }

  /// A text with all differences: "missing 'a', 'b'; unexpected 'c'; 'd' with the shape [2] instead of [3]"; empty if
  /// there are none.
  [[nodiscard]] std::string differences() const {
    std::string text;
    const auto append_all = [&](std::string_view what, const std::vector<std::string>& names) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        append_text(text, {i > 0          ? ", '"
                           : text.empty() ? ""
                                          : "; ",
                           i == 0 ? what : "", i == 0 ? " '" : "", names[i], "'"});
      }
    };
    append_all("missing", missing);
    append_all("unexpected", unexpected);
    for (const weight_mismatch& each : mismatched) {
      append_text(text, {text.empty() ? "'" : "; '", each.name, "' with the shape ", detail::shape_text(each.found),
                         " instead of ", detail::shape_text(each.expected)});
    }
    return text;
  }
};

}  // namespace gradus::io
