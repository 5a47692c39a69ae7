// SPDX-License-Identifier: BSL-1.0
//
// The ranks of a training as a group that saves and reads checkpoints together.
#pragma once

#include <algorithm>        // std::copy_n
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint8_t
#include <source_location>  // std::source_location
#include <span>             // std::span

#include "gradus/comm/link.hpp"
#include "gradus/core/dynamic_array.hpp"

namespace gradus::train::detail {

/// The ranks that train, all of which take part in a checkpoint. Where they train independently of each other (servers
/// that do not wait for all workers), sums and broadcasts of the group of the training do nothing: here they are real.
class blocking_communicator final : public comm::forwarding_link {
 public:
  /// Called by all ranks. @param training  the group of the training, which outlives it
  explicit blocking_communicator(comm::link& training) : forwarding_link{training} {
    double ranks[] = {1};
    training.sum(ranks);
    independent_ = ranks[0] != static_cast<double>(training.size());
  }

  /// Whether the ranks do not wait for each other in a step.
  [[nodiscard]] bool independent() const noexcept { return independent_; }

  void broadcast(std::span<std::byte> bytes, int root,
                 std::source_location where = std::source_location::current()) override {
    if (!independent_) {
      inner().broadcast(bytes, root, where);
      return;
    }
    auto* const data = reinterpret_cast<std::uint8_t*>(bytes.data());
    dynamic_array<std::uint8_t> all(bytes.size() * static_cast<std::size_t>(size()));
    inner().all_gather({data, bytes.size()}, {all.data(), all.size()}, where);
    std::copy_n(all.data() + bytes.size() * static_cast<std::size_t>(root), bytes.size(), data);
  }
  void sum(std::span<double> values, std::source_location where = std::source_location::current()) override {
    if (!independent_) {
      inner().sum(values, where);
      return;
    }
    dynamic_array<double> all(values.size() * static_cast<std::size_t>(size()));
    inner().all_gather({reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()},
                       {reinterpret_cast<std::uint8_t*>(all.data()), all.size() * sizeof(double)}, where);
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[k] = 0;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(size()); ++rank) {
        values[k] += all[rank * values.size() + k];
      }
    }
  }

 private:
  bool independent_ = false;
};

}  // namespace gradus::train::detail
