// SPDX-License-Identifier: BSL-1.0
//
// The names of checkpoints and of the files that become checkpoints.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t, std::uint64_t
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"

namespace gradus::io::detail {

inline constexpr std::string_view checkpoint_prefix = "step-";
inline constexpr std::string_view checkpoint_suffix = ".safetensors";
inline constexpr std::string_view temporary_suffix = ".partial";

/// "step-000012000": nine digits, more for larger numbers.
[[nodiscard]] inline std::string stem_of_step(std::int64_t step) {
  char digits[32];
  format_text(digits, sizeof(digits), "%09lld", static_cast<long long>(step));
  return join({checkpoint_prefix, digits});
}

/// "step-000012000.safetensors".
[[nodiscard]] inline std::string name_of_step(std::int64_t step) {
  return stem_of_step(step).append(checkpoint_suffix);
}

/// The number of "step-000012000"; nothing for every text that stem_of_step does not write.
[[nodiscard]] inline std::optional<std::int64_t> step_of_stem(std::string_view stem) {
  if (!stem.starts_with(checkpoint_prefix)) {
    return {};
  }
  const std::string_view digits = stem.substr(checkpoint_prefix.size());
  if (digits.size() < 9 || digits.size() > 18 || (digits.size() > 9 && digits[0] == '0')) {
    return {};
  }
  std::int64_t step = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') {
      return {};
    }
    step = step * 10 + (digit - '0');
  }
  return step;
}

/// The step of a checkpoint's name; nothing for every other name.
[[nodiscard]] inline std::optional<std::int64_t> step_of_name(std::string_view name) {
  if (!name.ends_with(checkpoint_suffix)) {
    return {};
  }
  name.remove_suffix(checkpoint_suffix.size());
  return step_of_stem(name);
}

inline constexpr std::size_t id_digits = 16;  ///< of a job, in hexadecimal digits

/// True for 16 hexadecimal digits in lower case.
[[nodiscard]] inline bool is_id(std::string_view text) noexcept {
  return text.size() == id_digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// 64 bits in hexadecimal digits.
[[nodiscard]] inline std::string id_text(std::uint64_t bits) {
  char digits[24];
  format_text(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(bits));
  return digits;
}

/// "step-000012000.0123456789abcdef.partial": what the job of this id writes.
[[nodiscard]] inline std::string temporary_name(std::int64_t step, std::string_view job) {
  return join({stem_of_step(step), ".", job, temporary_suffix});
}

/// The job of a temporary name; empty for every other name.
[[nodiscard]] inline std::string_view job_of_temporary(std::string_view name) {
  if (!name.ends_with(temporary_suffix)) {
    return {};
  }
  name.remove_suffix(temporary_suffix.size());
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || !step_of_stem(name.substr(0, dot)) || !is_id(name.substr(dot + 1))) {
    return {};
  }
  return name.substr(dot + 1);
}

}  // namespace gradus::io::detail
