// SPDX-License-Identifier: BSL-1.0
//
// Rounds of a worker that asks for the state of a server, or gives one.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <cstring>  // std::memcpy
#include <span>     // std::span

#include "gradus/parameter_server/detail/protocol/client.hpp"
#include "gradus/parameter_server/detail/protocol/links.hpp"
#include "gradus/parameter_server/detail/protocol/messages.hpp"
#include "gradus/parameter_server/detail/protocol/variable_store.hpp"

namespace gradus::parallel::detail {

/// Begins to send the buffer that a worker asks for.
/// @param part_numbers  of this server's parts, in the plan
inline void send_state(server_links& links, variable_store& store, server_client& to,
                       std::span<const std::size_t> part_numbers) {
  for (std::size_t part = 0; part < part_numbers.size(); ++part) {
    links.send(to.outgoing[part], to.rank, store.buffer(to.header.buffer, part),
               message_tag::values(part_numbers[part]));
  }
  to.stage = server_client::phase::state;
}

/// Whether all of it has been sent; true once.
inline bool state_is_sent(server_links& links, server_client& to) {
  if (to.stage != server_client::phase::state) {
    return false;
  }
  for (transfer& each : to.outgoing) {
    to.sent += links.arrived(each) ? 1U : 0U;
  }
  if (to.sent != to.outgoing.size()) {
    return false;
  }
  to.sent = 0;
  return true;
}

/// What a worker has sent becomes a buffer of the server: the values, or one of the rule.
inline void keep_state(variable_store& store, server_client& from) {
  for (std::size_t part = 0; part < from.incoming.size(); ++part) {
    const std::span<const std::uint8_t> came = store.incoming(from.index, part);
    if (!came.empty()) {
      std::memcpy(store.buffer(from.header.buffer, part).data(), came.data(), came.size());
    }
  }
  from.forget_gradients();
  if (from.header.kind == round_kind::store) {
    store.set_updates(from.header.updates);
  }
}

}  // namespace gradus::parallel::detail
