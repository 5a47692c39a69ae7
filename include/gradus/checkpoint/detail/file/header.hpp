// SPDX-License-Identifier: BSL-1.0
//
// The header of a checkpoint: a header of safetensors with checksums of fixed width.
#pragma once

#include <charconv>       // std::from_chars
#include <cstddef>        // std::byte, std::size_t
#include <cstdint>        // std::uint32_t
#include <optional>       // std::optional
#include <span>           // std::span
#include <string>         // std::string
#include <string_view>    // std::string_view
#include <unordered_map>  // std::unordered_map
#include <utility>        // std::move
#include <vector>         // std::vector

#include "gradus/checkpoint/content.hpp"
#include "gradus/checkpoint/crc32c.hpp"
#include "gradus/checkpoint/detail/file/names.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/stored_array.hpp"

namespace gradus::io::detail {

inline constexpr std::string_view own_keys = "gradus.";
inline constexpr std::string_view step_key = "gradus.step";
inline constexpr std::string_view best_key = "gradus.best";
inline constexpr std::string_view job_key = "gradus.job";
inline constexpr std::string_view ancestors_key = "gradus.ancestors";
inline constexpr std::string_view header_checksum_key = "gradus.header_crc32c";
inline constexpr std::string_view checksum_keys = "gradus.crc32c.";

inline constexpr int newest_format = 1;  ///< what this library writes; it reads all up to this

/// The positions of the arrays of a checkpoint in its file.
struct checkpoint_layout {
  safetensors_header header;         ///< with checksums of zeros
  std::vector<std::size_t> entries;  ///< of each array of the content: the index among header.tensors

  /// What the file says of an array of the content.
  [[nodiscard]] const safetensors_entry& entry(std::size_t array) const { return header.tensors[entries[array]]; }
};

/// Eight hexadecimal digits.
[[nodiscard]] inline std::string checksum_text(std::uint32_t sum) {
  char digits[16];
  format_text(digits, sizeof(digits), "%08x", sum);
  return digits;
}

/// The inverse of checksum_text; nothing for every other text.
[[nodiscard]] inline std::optional<std::uint32_t> checksum_of_text(std::string_view text) {
  std::uint32_t sum = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), sum, 16);
  if (text.size() != 8 || end != text.data() + 8 || checksum_text(sum) != text) {
    return {};
  }
  return sum;
}

/// The position of the header's own checksum, which is not part of what it sums; npos unless it is there once.
[[nodiscard]] inline std::size_t header_checksum_position(std::string_view head) {
  // A quote inside of a text of JSON has a backslash before it: only a key or a whole text can look like this.
  const std::string before = join({"\"", header_checksum_key, "\":\""});
  const std::size_t at = head.find(before);
  if (at == std::string_view::npos || head.find(before, at + 1) != std::string_view::npos ||
      at + before.size() + 8 > head.size()) {
    return std::string_view::npos;
  }
  return at + before.size();
}

/// The checksum of the header, from the first byte of the file to the last byte before the tensors, with zeros for the
/// eight digits at `position`.
[[nodiscard]] inline std::uint32_t header_checksum(std::string_view head, std::size_t position) {
  const auto bytes = [](std::string_view text) {
    return std::span{reinterpret_cast<const std::byte*>(text.data()), text.size()};
  };
  std::uint32_t sum = crc32c(bytes(head.substr(0, position)));
  sum = crc32c(bytes("00000000"), sum);
  return crc32c(bytes(head.substr(position + 8)), sum);
}

/// What the content, the job and its ancestors make of a file. The same on all ranks.
/// @throws configuration_error if names, shapes, ranges or metadata cannot be written
[[nodiscard]] inline checkpoint_layout lay_out_checkpoint(const checkpoint_content& content, std::string_view job,
                                                          std::string_view ancestors) {
  constexpr std::string_view what = "checkpoint";
  if (content.step < 0) {
    raise<configuration_error>(what, "a step of at least 0", {content.step});
  }
  auto metadata = content.metadata;
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(own_keys)) {
      raise<configuration_error>(what, {"metadata with keys that do not begin with '", own_keys, "'"}, {"'", key, "'"});
    }
  }
  metadata.emplace(checkpoint_key, join({newest_format}));
  metadata.emplace(step_key, join({content.step}));
  metadata.emplace(best_key, content.best ? "1" : "0");
  metadata.emplace(job_key, job);
  metadata.emplace(ancestors_key, ancestors);
  metadata.emplace(header_checksum_key, checksum_text(0));
  std::vector<safetensors_entry> entries;
  entries.reserve(content.arrays.size());
  for (const stored_array& each : content.arrays) {
    metadata.emplace(join({checksum_keys, each.name}), checksum_text(0));
    entries.push_back({.name = each.name, .type = each.type, .shape = each.shape});
  }
  checkpoint_layout layout;
  layout.header = lay_out_safetensors(std::move(entries), std::move(metadata));

  std::unordered_map<std::string_view, std::size_t> of_name;
  for (std::size_t k = 0; k < layout.header.tensors.size(); ++k) {
    of_name.emplace(layout.header.tensors[k].name, k);
  }
  for (const stored_array& each : content.arrays) {
    layout.entries.push_back(of_name.at(each.name));
    const index_t all = each.elements();
    const element_range held = each.replicated ? element_range{0, all} : each.held;
    if (held.begin < 0 || held.end < held.begin || held.end > all) {
      raise<configuration_error>(what, {"a range of the ", all, " elements of '", each.name, "'"},
                                 {"elements ", held.begin, " to ", held.end});
    }
    if (!each.in_order() && each.axes.size() != all) {
      raise<configuration_error>(what, {"axes with the ", all, " elements of '", each.name, "'"}, {each.axes.size()});
    }
    const auto bytes = static_cast<std::size_t>(each.covered(held).size() * each.element_bytes());
    if (each.memory.size() != bytes) {
      raise<configuration_error>(
          what, {"memory of ", bytes, " bytes for elements ", held.begin, " to ", held.end, " of '", each.name, "'"},
          {each.memory.size(), " bytes"});
    }
  }
  return layout;
}

/// The begin of the file, with the checksum of each tensor and of the header.
/// @param sums  in the order of the content
[[nodiscard]] inline std::string head_of_checkpoint(const checkpoint_layout& layout,
                                                    std::span<const std::uint32_t> sums) {
  safetensors_header header = layout.header;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    header.metadata.find(join({checksum_keys, layout.entry(i).name}))->second = checksum_text(sums[i]);
  }
  std::string head = safetensors_head(header);
  const std::size_t position = header_checksum_position(head);
  const std::string sum = checksum_text(header_checksum(head, position));
  return head.replace(position, sum.size(), sum);
}

}  // namespace gradus::io::detail
