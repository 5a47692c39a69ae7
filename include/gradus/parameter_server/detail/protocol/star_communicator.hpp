// SPDX-License-Identifier: BSL-1.0
//
// The workers among the ranks of a communicator, for checks and sums of a few numbers.
#pragma once

#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <cstring>          // std::memcpy
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view

#include "gradus/comm/link.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/parameter_server/roles.hpp"

namespace gradus::parallel::detail {

/// A star around worker 0: for few bytes, seldom. Sums are added in the order of the workers.
class star_communicator final : public comm::forwarding_link {
 public:
  /// @pre the channel outlives it and has no other user
  star_communicator(comm::link& channel, const roles& who)
      : forwarding_link{channel, who.worker_index(channel.rank()), static_cast<int>(who.workers.size())} {
    for (const int each : who.workers) {
      ranks_.push_back(each);
    }
  }

  /// From now on sums are a worker's own, nothing is taken over from others, and a worker that fails does not stop
  /// them.
  void set_independent() noexcept { independent_ = true; }

  void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                  std::source_location where) override {
    const std::size_t own = static_cast<std::size_t>(rank()) * input.size();
    if (!input.empty() && output.data() + own != input.data()) {
      std::memcpy(output.data() + own, input.data(), input.size());
    }
    if (rank() == 0) {
      for (std::size_t i = 1; i < ranks_.size(); ++i) {
        inner().receive(ranks_[i], output.subspan(i * input.size(), input.size()), 0).wait(where);
      }
    } else {
      inner().send(ranks_[0], input, 0).wait(where);
    }
    distribute(output, 0, where);
  }

  void broadcast(std::span<std::byte> bytes, int root, std::source_location where) override {
    if (!independent_) {
      distribute({reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()}, root, where);
    }
  }

  void sum(std::span<double> values, std::source_location where) override {
    if (independent_) {
      return;
    }
    const std::size_t bytes = values.size_bytes();
    if (rank() == 0) {
      dynamic_array<double> other(values.size());
      for (std::size_t i = 1; i < ranks_.size(); ++i) {
        inner().receive(ranks_[i], {reinterpret_cast<std::uint8_t*>(other.data()), bytes}, 0).wait(where);
        for (std::size_t k = 0; k < values.size(); ++k) {
          values[k] += other[k];
        }
      }
    } else {
      inner().send(ranks_[0], {reinterpret_cast<const std::uint8_t*>(values.data()), bytes}, 0).wait(where);
    }
    distribute({reinterpret_cast<std::uint8_t*>(values.data()), bytes}, 0, where);
  }

  [[nodiscard]] comm::request send(int peer, std::span<const std::uint8_t> bytes, int tag) override {
    return inner().send(ranks_[static_cast<std::size_t>(peer)], bytes, tag);
  }
  [[nodiscard]] comm::request receive(int peer, std::span<std::uint8_t> bytes, int tag) override {
    return inner().receive(ranks_[static_cast<std::size_t>(peer)], bytes, tag);
  }

  void fail(std::string_view reason) noexcept override {
    if (!independent_) {
      inner().fail(reason);
    }
  }

 private:
  void distribute(std::span<std::uint8_t> bytes, int root, const std::source_location& where) {
    if (rank() != root) {
      inner().receive(ranks_[static_cast<std::size_t>(root)], bytes, 1).wait(where);
      return;
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (static_cast<int>(i) != root) {
        inner().send(ranks_[i], bytes, 1).wait(where);
      }
    }
  }

  dynamic_array<int> ranks_;
  bool independent_ = false;
};

}  // namespace gradus::parallel::detail
