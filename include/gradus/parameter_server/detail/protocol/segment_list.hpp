// SPDX-License-Identifier: BSL-1.0
//
// The parameters of a network as bytes: servers learn from worker 0 what they have to keep.
#pragma once

#include <bit>           // std::bit_cast
#include <charconv>      // std::from_chars
#include <cstddef>       // std::size_t
#include <span>          // std::as_writable_bytes, std::span
#include <string>        // std::string
#include <string_view>   // std::string_view
#include <system_error>  // std::errc
#include <utility>       // std::move
#include <vector>        // std::vector

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::parallel::detail {

/// Parameters, the priorities of their pulls if there are any, and how the workers compute.
struct segment_list {
  dynamic_array<optim::segment> segments;
  dynamic_array<std::size_t> pull_priorities;
  bool flush_denormals = false;
};

/// Whether denormals are flushed. Then a line each: offset, size, decay, bits of the learning rate's factor, priority,
/// name.
[[nodiscard]] inline std::string pack(std::span<const optim::segment> segments,
                                      std::span<const std::size_t> pull_priorities, bool flush_denormals = false) {
  std::string text = flush_denormals ? "1 " : "0 ";
  for (std::size_t i = 0; i < segments.size(); ++i) {
    append_text(text, {segments[i].offset, " ", segments[i].size, " ", segments[i].decay ? 1 : 0, " "});
    append_text(text, {std::bit_cast<long long>(segments[i].learning_rate_factor), " "});
    append_text(text, {i < pull_priorities.size() ? static_cast<long long>(pull_priorities[i]) : -1LL, " ",
                       segments[i].name, "\n"});
  }
  return text;
}

/// @throws format_error when it is not what pack made
[[nodiscard]] inline segment_list unpack_segments(std::string_view text) {
  segment_list result;
  const auto refuse = [] {
    raise<format_error>("parameter_server.serve", "the parameters of a network from worker 0", "something else",
                        "start all ranks with the same program");
  };
  const auto number = [&] {
    long long value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{} || end == text.data() + text.size() || *end != ' ') {
      refuse();
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
    return value;
  };
  result.flush_denormals = number() != 0;
  while (!text.empty()) {
    optim::segment each;
    each.offset = static_cast<index_t>(number());
    each.size = static_cast<index_t>(number());
    each.decay = number() != 0;
    each.learning_rate_factor = std::bit_cast<double>(number());
    const long long priority = number();
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos || each.offset < 0 || each.size < 0) {
      refuse();
    }
    each.name = text.substr(0, end);
    text.remove_prefix(end + 1);
    result.segments.push_back(std::move(each));
    if (priority >= 0) {
      result.pull_priorities.push_back(static_cast<std::size_t>(priority));
    }
  }
  return result;
}

/// Worker 0's text on all ranks of the communicator.
[[nodiscard]] inline std::string broadcast_text(comm::link& ranks, std::string text, int root) {
  std::size_t size[] = {text.size()};
  ranks.broadcast(std::as_writable_bytes(std::span{size}), root);
  text.resize(size[0]);
  ranks.broadcast(std::as_writable_bytes(std::span{text}), root);
  return text;
}

}  // namespace gradus::parallel::detail
