// SPDX-License-Identifier: BSL-1.0
//
// What workers and servers say to each other: kinds of messages, their tags and headers, and a server's summary.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t, std::uint8_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parameter_server/summary.hpp"

namespace gradus::parallel::detail {

/// A round is what a worker begins: header, parts, end of the round; then the server's values come.
enum class round_kind : std::uint64_t {
  push,     ///< gradients, for values
  initial,  ///< the first values of all, for the same
  join,     ///< nothing, for the first values
  summary,  ///< nothing, for a server_summary
  fetch,    ///< nothing, for a buffer of the server's state
  store,    ///< such a buffer, for nothing
  leave     ///< nothing for nothing: the worker ends
};

/// A worker's first message of a round.
struct round_header {
  round_kind kind = round_kind::push;
  std::uint64_t lag = 0;      ///< pulls that came after the one with whose values the gradients were computed
  std::uint64_t buffer = 0;   ///< of fetch and store: 0 the values, then the buffers of the rule
  std::uint64_t updates = 0;  ///< of store: that the server has made of each variable
};

/// A worker's last message of a round.
struct round_end {
  double learning_rate = 0;
  std::uint64_t valid = 1;  ///< 0: an exception came between, nothing of the round counts
};

/// Tags: two for each kind of message, up to the server and down to the worker; one between servers.
namespace message_tag {
inline constexpr int header = 0;
inline constexpr int end = 2;
inline constexpr int totals = 4;
inline constexpr int summary = 5;
inline constexpr int first_part = 6;
[[nodiscard]] constexpr int gradients(std::size_t part) noexcept {
  return first_part + 2 * static_cast<int>(part);
}
[[nodiscard]] constexpr int values(std::size_t part) noexcept {
  return gradients(part) + 1;
}
[[nodiscard]] constexpr std::size_t count(std::size_t parts) noexcept {
  return first_part + 2 * parts;
}
}  // namespace message_tag

template <class Message>
[[nodiscard]] std::span<const std::uint8_t> bytes_to_send(const Message& message) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(&message), sizeof(message)};
}
template <class Message>
[[nodiscard]] std::span<std::uint8_t> bytes_to_receive(Message& message) noexcept {
  return {reinterpret_cast<std::uint8_t*>(&message), sizeof(message)};
}

}  // namespace gradus::parallel::detail
