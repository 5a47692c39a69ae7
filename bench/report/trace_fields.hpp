// SPDX-License-Identifier: BSL-1.0
//
// What the reader of trace files looks for: names of fields, their values as they came, and what is too much.
#pragma once

#include <array>    // std::array
#include <cstdint>  // std::int64_t, std::uint8_t
#include <cstdio>   // std::snprintf
#include <string>   // std::string

#include "gradus/core/format.hpp"
#include "trace.hpp"

namespace gradus::report {

inline constexpr double longest_time =
    1e15;  // microseconds, 31 years: sums of such times are still exact to a microsecond
inline constexpr std::int64_t most_ranks = 65536;
inline constexpr std::size_t silent_ranks = 1024;  // that may have no event
inline constexpr int most_threads = 1 << 20;
inline constexpr std::int64_t most_stages = 65536;
inline constexpr std::int64_t most_micro_batches = 32768;  // of a step: schedules have no more
inline constexpr std::size_t longest_name = 200;           // bytes
inline constexpr std::size_t deepest = 64;

/// The fields that are read, of an event, of its "args" and of "otherData".
enum class field : std::uint8_t {
  phase,
  rank,
  track,
  time,
  duration,
  category,
  name,
  id,
  step,
  layer,
  operation,
  bytes,
  bucket,
  peer,
  waits_for,
  all_arrived,
  last_rank,
  stage,
  micro_batch,
  named,  // "args": {"name": ...} of metadata
  count
};
struct field_name {
  const char* text;
  bool in_args;
};
inline constexpr std::array<field_name, static_cast<std::size_t>(field::count)> field_names{
    {{"ph", false},       {"pid", false},  {"tid", false},        {"ts", false},
     {"dur", false},      {"cat", false},  {"name", false},       {"id", false},
     {"step", true},      {"layer", true}, {"operation", true},   {"bytes", true},
     {"bucket", true},    {"peer", true},  {"for", true},         {"all_arrived_us", true},
     {"last_rank", true}, {"stage", true}, {"micro_batch", true}, {"name", true}}};

/// One value of the file, as it came.
struct value {
  enum class kind : std::uint8_t { absent, null, boolean, number, text, list, object } what = kind::absent;
  double number = 0;
  std::string text;

  std::string describe() const {
    switch (what) {
      case kind::absent:
        return "nothing";
      case kind::null:
        return "null";
      case kind::boolean:
        return number != 0 ? "true" : "false";
      case kind::number: {
        char digits[32];
        gradus::format_text(digits, sizeof digits, "%.15g", number);
        return digits;
      }
      case kind::text:
        return "the text " + in_quotes(text);
      case kind::list:
        return "a list";
      case kind::object:
        return "an object";
    }
    return "";
  }
};

/// Cuts a name at a boundary of UTF-8 characters.
inline std::string shortened(std::string text) {
  if (text.size() > longest_name) {
    std::size_t end = longest_name;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
      --end;
    }
    text.resize(end);
    text += "\u2026";
  }
  return text;
}

}  // namespace gradus::report
