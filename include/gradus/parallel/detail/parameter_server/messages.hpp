// SPDX-License-Identifier: BSL-1.0
//
// What workers and servers say to each other: kinds of messages, their tags and headers, and a server's summary.
// Module: parallel. Depends on: core.
#pragma once

#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t, std::uint8_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"  // GRADUS_COLD
#include "gradus/core/text.hpp"    // append, text

namespace gradus::parallel {

/// Bins of a histogram of staleness; the last one counts all that is older.
inline constexpr std::size_t staleness_bins = 64;

/// What a server has done. Bytes are those of gradients and values, its own rank's worker included.
struct server_summary {
  std::uint64_t variable_bytes = 0;  ///< of the values that live on it
  std::uint64_t received_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t updates = 0;       ///< optimizer steps of single parts
  std::uint64_t dropped = 0;       ///< whole pushes that came too late, or were left unfinished
  std::uint64_t lost_workers = 0;  ///< silent for longer than the time limit
  std::uint64_t left_workers = 0;  ///< ended their training
  /// Pushes of parts by the number of updates that their values had missed.
  std::uint64_t staleness[staleness_bins] = {};

  friend bool operator==(const server_summary&, const server_summary&) = default;
};

/// "13 bytes of variables, 26 received, 39 sent, 6 updates; pushes of parts by staleness: 0: 4, 1: 2", and what was
/// dropped or lost.
[[nodiscard]] GRADUS_COLD inline std::string describe(const server_summary& done) {
  std::string text =
      gradus::detail::text({done.variable_bytes, " bytes of variables, ", done.received_bytes, " received, ",
                            done.sent_bytes, " sent, ", done.updates, " updates; pushes of parts by staleness"});
  std::string_view before = ": ";
  for (std::size_t bin = 0; bin < staleness_bins; ++bin) {
    if (done.staleness[bin] != 0) {
      gradus::detail::append(text, {before, bin, bin + 1 == staleness_bins ? " or more: " : ": ", done.staleness[bin]});
      before = ", ";
    }
  }
  if (done.dropped != 0) {
    gradus::detail::append(text, {"; pushes dropped: ", done.dropped});
  }
  if (done.lost_workers != 0) {
    gradus::detail::append(text, {"; workers lost: ", done.lost_workers});
  }
  return text;
}

namespace detail {

/// A round is what a worker begins: header, parts, end of the round; then the server's values come.
enum class round_kind : std::uint64_t {
  push,     ///< gradients, for values
  initial,  ///< the first values of all, for the same
  join,     ///< nothing, for the first values
  summary,  ///< nothing, for a server_summary
  leave     ///< nothing for nothing: the worker ends
};

/// A worker's first message of a round.
struct round_header {
  round_kind kind = round_kind::push;
  std::uint64_t lag = 0;  ///< pulls that came after the one with whose values the gradients were computed
};

/// A worker's last message of a round.
struct round_end {
  double learning_rate = 0;
  std::uint64_t valid = 1;  ///< 0: an exception came between, nothing of the round counts
};

/// Tags: two for each kind of message, up to the server and down to the worker.
namespace message_tag {
inline constexpr int header = 0;
inline constexpr int end = 2;
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

}  // namespace detail
}  // namespace gradus::parallel
