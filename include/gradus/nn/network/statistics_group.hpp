// SPDX-License-Identifier: BSL-1.0
//
// Sums of statistics over the processes that train together, for layers: nn does not know communicators.
#pragma once

#include <memory>  // std::unique_ptr
#include <span>    // std::span

#include "gradus/core/config.hpp"

namespace gradus::nn {

/// Sums numbers of one layer over all members of a group. One thread at a time uses it.
class statistics_sum {
 public:
  statistics_sum() = default;
  statistics_sum(const statistics_sum&) = delete;
  statistics_sum& operator=(const statistics_sum&) = delete;
  virtual ~statistics_sum() = default;

  /// Replaces `values`, on the host, by their sums over the members, and returns when they are there. All members call
  /// it with the same number of values and get the same bits. @throws when a member fails
  virtual void sum(std::span<double> values) = 0;
};

/// Processes that share statistics: parallel::synchronized_statistics makes it of a communicator. It must outlive the
/// networks that use it.
class statistics_group {
 public:
  /// Makes the sums of one layer. All members call it in the same order. The sums of two objects are independent: their
  /// order may differ between the members.
  [[nodiscard]] virtual std::unique_ptr<statistics_sum> make_sum() = 0;

 protected:
  ~statistics_group() = default;
};

}  // namespace gradus::nn
