// SPDX-License-Identifier: BSL-1.0
//
// One worker as a parameter server sees it: where its round stands, and what is to be sent to it.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint64_t, std::uint8_t
#include <span>     // std::span

#include "gradus/comm/wait.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/summary.hpp"

namespace gradus::parallel::detail {

struct server_client {
  enum class phase : unsigned char {
    idle,      ///< a header may come
    incoming,  ///< parts and the end of the round come
    waiting,   ///< all has come; it waits for other workers
    outgoing,  ///< values go out
    report,    ///< the summary goes out
    state,     ///< a buffer goes out
    left
  };

  std::size_t index = 0;  ///< among the workers
  int rank = 0;
  phase stage = phase::idle;
  bool lost = false;  ///< silent for too long; until it is heard of again
  comm::clock::time_point heard{};

  // What comes.
  transfer header_transfer;
  transfer end_transfer;
  round_header header;
  round_end end;
  bool ended = false;                ///< the end of the round has come
  std::size_t arrived = 0;           ///< parts of the round
  dynamic_array<transfer> incoming;  ///< by part
  dynamic_array<std::uint8_t> has;   ///< by part: a gradient that has not been applied
  std::size_t unused = 0;            ///< such parts
  std::uint64_t pushes = 0;          ///< that were taken

  // What goes out.
  transfer summary_transfer;
  server_summary report;
  dynamic_array<transfer> outgoing;           ///< by part
  dynamic_array<std::uint8_t> due;            ///< by part: to be sent
  dynamic_array<std::size_t> queue;           ///< parts in the order in which they became due
  std::size_t queued = 0;                     ///< of this round
  std::size_t begun = 0;                      ///< sends of this round
  std::size_t sent = 0;                       ///< sends that are complete
  dynamic_array<std::uint64_t> given;         ///< by part: version last sent
  dynamic_array<std::uint64_t> given_before;  ///< and the one before that
  std::uint64_t round = 0;                    ///< the server's steps when values were last made due

  void set_parts(std::size_t parts) {
    incoming = dynamic_array<transfer>(parts);
    has = dynamic_array<std::uint8_t>(parts);
    outgoing = dynamic_array<transfer>(parts);
    due = dynamic_array<std::uint8_t>(parts);
    queue = dynamic_array<std::size_t>(parts);
    given = dynamic_array<std::uint64_t>(parts);
    given_before = dynamic_array<std::uint64_t>(parts);
  }

  /// A round has begun and its values are not all there yet.
  [[nodiscard]] bool in_round() const noexcept {
    return stage == phase::incoming || stage == phase::waiting || stage == phase::outgoing;
  }
  [[nodiscard]] bool is_pushing() const noexcept { return in_round() && header.kind == round_kind::push; }

  /// A whole push has come and waits.
  [[nodiscard]] bool waits_with_push() const noexcept {
    return stage == phase::waiting && header.kind == round_kind::push;
  }

  void forget_gradients() noexcept {
    for (std::uint8_t& each : has) {
      each = 0;
    }
    unused = 0;
  }

  void use_up(std::size_t part) noexcept {
    has[part] = 0;
    --unused;
  }

  /// The next part to send: of those that are due the first in `order`. One that is not due yet holds up no other: the
  /// link would stand still. Without an order: as they became due. @pre one is due
  [[nodiscard]] std::size_t next_due(std::span<const std::size_t> order) const noexcept {
    if (order.empty()) {
      return queue[begun];
    }
    std::size_t k = 0;
    while (due[order[k]] == 0) {
      ++k;
    }
    return order[k];
  }

  void make_due(std::size_t part, std::uint64_t step) noexcept {
    due[part] = 1;
    queue[queued++] = part;
    round = step;
  }
};

}  // namespace gradus::parallel::detail
