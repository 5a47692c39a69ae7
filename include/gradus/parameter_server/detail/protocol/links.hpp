// SPDX-License-Identifier: BSL-1.0
//
// Messages of bytes between workers and servers; a worker and a server of one rank exchange them too.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <cstring>  // std::memcpy
#include <span>     // std::span

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"

namespace gradus::parallel::detail {

/// One message under way, or none. It is tested, never waited for: a rank that does not answer must not stop the
/// others.
class transfer {
 public:
  transfer() = default;
  transfer(transfer&&) noexcept = default;
  transfer& operator=(transfer&&) noexcept = default;
  ~transfer() { cancel(); }

  [[nodiscard]] bool active() const noexcept { return active_; }

  /// Takes the message back.
  void cancel() noexcept {
    if (active_) {
      request_.cancel();
      active_ = false;
    }
  }

 private:
  friend class server_links;

  comm::request request_;
  bool active_ = false;
  int local_tag_ = -1;  // of a message to this rank itself
};

/// Begins and tests messages. A message from a rank to itself is copied; of one tag there is one at a time.
/// One thread at a time uses it.
class server_links {
 public:
  /// @param tags  tags are below
  server_links(comm::link& channel, std::size_t tags) : channel_{&channel}, local_(tags) {
    if (tags > static_cast<std::size_t>(comm::largest_tag) + 1) {
      raise<configuration_error>("parallel::parameter_server", {"at most ", comm::largest_tag + 1, " tags of messages"},
                                 {tags}, "place in fewer parts: a larger least_part_bytes");
    }
  }

  [[nodiscard]] comm::link& channel() noexcept { return *channel_; }

  /// Makes room for `count` more transfers at a time to or from a rank, so that no step allocates messages.
  void reserve(int peer, std::size_t count) {
    if (peer != channel_->rank()) {
      channel_->reserve_messages(count);
    }
  }

  void send(transfer& under_way, int peer, std::span<const std::uint8_t> data, int tag) {
    under_way.active_ = true;
    under_way.local_tag_ = -1;
    if (peer == channel_->rank()) {
      under_way.local_tag_ = tag;
      local_message& message = local_[static_cast<std::size_t>(tag)];
      message.from = data.data();
      message.bytes = data.size();
      message.sent = true;
      deliver(message);
    } else {
      under_way.request_ = channel_->send(peer, data, tag);
    }
  }

  void receive(transfer& under_way, int peer, std::span<std::uint8_t> data, int tag) {
    under_way.active_ = true;
    under_way.local_tag_ = -1;
    if (peer == channel_->rank()) {
      under_way.local_tag_ = tag;
      local_message& message = local_[static_cast<std::size_t>(tag)];
      message.to = data.data();
      message.awaited = true;
      deliver(message);
    } else {
      under_way.request_ = channel_->receive(peer, data, tag);
    }
  }

  /// True once for each message: when it has just been completed.
  bool arrived(transfer& under_way) {
    if (!under_way.active_) {
      return false;
    }
    if (under_way.local_tag_ < 0) {
      under_way.active_ = !under_way.request_.test();
    } else {
      const local_message& message = local_[static_cast<std::size_t>(under_way.local_tag_)];
      under_way.active_ = message.sent || message.awaited;
    }
    return !under_way.active_;
  }

 private:
  struct local_message {
    const std::uint8_t* from = nullptr;
    std::uint8_t* to = nullptr;
    std::size_t bytes = 0;
    bool sent = false;
    bool awaited = false;
  };

  static void deliver(local_message& message) noexcept {
    if (message.sent && message.awaited) {
      if (message.bytes != 0) {
        std::memcpy(message.to, message.from, message.bytes);
      }
      message.sent = false;
      message.awaited = false;
    }
  }

  comm::link* channel_;
  dynamic_array<local_message> local_;  // by tag
};

}  // namespace gradus::parallel::detail
