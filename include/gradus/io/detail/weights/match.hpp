// SPDX-License-Identifier: BSL-1.0
//
// Which tensor of a file is which parameter or buffer of a network.
#pragma once

#include <algorithm>    // std::find, std::equal
#include <cstddef>      // std::size_t
#include <map>          // std::map
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/weight_names.hpp"
#include "gradus/io/weights_report.hpp"
#include "gradus/nn/parameter.hpp"

namespace gradus::io::detail {

/// A parameter or a buffer of a network.
struct weight_slot {
  std::string name;
  std::vector<index_t> shape;
};

/// The shape in files: (o, i, r, s), (o, i) or (o), as the description's rank says.
[[nodiscard]] inline std::vector<index_t> shape_in_files(const nn::parameter_description& described) {
  const auto& [o, i, r, s] = described.shape;
  switch (described.rank) {
    case 1:
      return {o * i * r * s};
    case 2:
      return {o, i * r * s};
    default:
      return {o, i, r, s};
  }
}

/// True if the shapes are equal but for extents of 1 before the others: PyTorch's normalizations have none.
[[nodiscard]] inline bool same_shape(std::span<const index_t> a, std::span<const index_t> b) noexcept {
  const auto without_ones = [](std::span<const index_t> shape) {
    while (!shape.empty() && shape.front() == 1) {
      shape = shape.subspan(1);
    }
    return shape;
  };
  const auto left = without_ones(a);
  const auto right = without_ones(b);
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

/// For each slot the tensor of the file that it gets, or null.
struct weight_matches {
  std::vector<const safetensors_entry*> tensors;
  load_weights_report report;
};

/// The slot of a name, also under the name that PyTorch has for it; slots.size() if there is none.
[[nodiscard]] inline std::size_t find_slot(const std::map<std::string_view, std::size_t>& slots,
                                           std::string_view name) {
  auto at = slots.find(name);
  if (constexpr std::string_view theirs{".running_var"}; at == slots.end() && name.ends_with(theirs)) {
    const std::string ours = join({name, "iance"});
    at = slots.find(ours);
  }
  return at == slots.end() ? slots.size() : at->second;
}

/// Finds the tensors of slots whose names fit `only`.
/// @param elsewhere  slots of other ranks, whose tensors are left out
/// @param checkpoint  whether the file is a checkpoint: what it has of the trainer and of the update rule is left out
/// @throws configuration_error if `only` fits no slot, or two tensors of the file are for the same slot
[[nodiscard]] inline weight_matches match_weights(std::string_view operation, std::span<const weight_slot> slots,
                                                  std::span<const safetensors_entry> file, const name_patterns& only,
                                                  const name_map& rename, std::span<const weight_slot> elsewhere = {},
                                                  bool checkpoint = false) {
  weight_matches result;
  result.tensors.resize(slots.size());
  std::map<std::string_view, std::size_t> by_name;
  bool any = false;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    by_name.emplace(slots[i].name, i);
    any = any || only.fits(slots[i].name);
  }
  std::map<std::string_view, std::size_t> by_name_elsewhere;
  for (std::size_t i = 0; i < elsewhere.size(); ++i) {
    by_name_elsewhere.emplace(elsewhere[i].name, i);
    any = any || only.fits(elsewhere[i].name);
  }
  if (!any && !slots.empty()) {
    std::string names;
    for (const weight_slot& each : slots) {
      append_text(names, {names.empty() ? "" : ", ", each.name});
    }
    raise<configuration_error>(operation, {"patterns of weights, which are ", names},
                               {"'", only.patterns().front(), "', which fits none of them"},
                               "* stands for any characters and ? for one");
  }
  std::vector<bool> mismatched(slots.size());
  for (const safetensors_entry& each : file) {
    const std::string name = rename(each.name);
    if (name.empty()) {
      result.report.ignored.push_back(each.name);
      continue;
    }
    if (name.ends_with(".num_batches_tracked")) {
      continue;
    }
    const std::size_t i = find_slot(by_name, name);
    const bool known = i < by_name.size();
    if (!known && find_slot(by_name_elsewhere, name) < by_name_elsewhere.size()) {
      continue;
    }
    if (!only.fits(known ? std::string_view{slots[i].name} : std::string_view{name})) {
      continue;
    }
    if (!known && checkpoint && (each.name.starts_with("trainer.") || each.name.starts_with("optimizer."))) {
      continue;
    }
    if (!known) {
      result.report.unexpected.push_back(each.name);
    } else if (result.tensors[i] != nullptr || mismatched[i]) {
      raise<configuration_error>(operation, {"one tensor for '", slots[i].name, "'"},
                                 {"'", each.name, "' and another one"}, "let .rename return an empty name for one");
    } else if (!same_shape(slots[i].shape, each.shape)) {
      mismatched[i] = true;
      result.report.mismatched.push_back({slots[i].name, slots[i].shape, each.shape});
    } else {
      result.tensors[i] = &each;
    }
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (result.tensors[i] != nullptr) {
      result.report.loaded.push_back(slots[i].name);
    } else if (only.fits(slots[i].name) && !mismatched[i]) {
      result.report.missing.push_back(slots[i].name);
    }
  }
  return result;
}

/// @param elsewhere  whether other ranks have weights: then this one may load nothing
/// @throws format_error with all names if there is a difference and `strict` is set, or if nothing is loaded
inline void require_loaded(std::string_view operation, const load_weights_report& report, bool strict,
                           bool elsewhere = false) {
  if (strict && !report.complete()) {
    raise<format_error>(operation, {"the weights of the network"}, report.differences(),
                        "{.strict = false} loads what fits, {.only = ...} a part, and {.rename = ...} gives names of "
                        "the network to the tensors of the file");
  }
  if (report.loaded.empty() && !elsewhere) {
    raise<format_error>(operation, "weights of the network",
                        report.complete() ? std::string{"a network without weights"} : report.differences(),
                        "{.rename = ...} gives names of the network to the tensors of the file");
  }
}

}  // namespace gradus::io::detail
