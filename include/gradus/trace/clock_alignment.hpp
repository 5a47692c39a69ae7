// SPDX-License-Identifier: BSL-1.0
//
// Measures the differences between the ranks' clocks with messages.
#pragma once

#include <algorithm>  // std::max
#include <cmath>      // std::abs
#include <cstdint>    // std::int64_t
#include <span>       // std::span

#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/trace/detail/recorder/clock.hpp"

namespace gradus::trace {

/// The offset of a clock to that of rank 0 at one moment, in nanoseconds.
struct clock_offset {
  std::int64_t at = 0;  ///< time of the measurement on the clock itself
  double ahead = 0;     ///< how far the clock is ahead of rank 0
  double error = 0;     ///< upper bound: half of the time of the fastest message and its answer
};

/// Compares the clocks of all ranks with that of rank 0 and returns the offset of the calling rank. All ranks call it.
///
/// Each rank in turn receives `rounds` messages from rank 0 and answers each. In the fastest round, rank 0 sent at time
/// t0 and received at t3, and the other rank answered at t1 of its clock. Then that clock is ahead by ((t1 - t0) + (t1
/// - t3)) / 2, with an error of at most (t3 - t0) / 2 (D. Mills, RFC 5905, section 8).
///
/// @param now  returns the nanoseconds of this rank's clock
/// @throws communication_error if a rank fails or does not call it in time
template <class Clock>
[[nodiscard]] clock_offset measure_clock(comm::any_communicator communicator, const Clock& now, int rounds = 24) {
  constexpr int tag = 1;
  clock_offset own{.at = now()};
  comm::barrier(communicator).wait();
  for (int peer = 1; peer < communicator.size(); ++peer) {
    if (communicator.rank() == 0) {
      for (int round = 0; round < rounds; ++round) {
        // The other rank computes the offset, so rank 0 sends it the time at which its answer arrived.
        std::int64_t sent[1] = {now()};
        comm::send(communicator, peer, std::span{sent}, tag).wait();
        std::int64_t answer[1] = {};
        comm::receive(communicator, peer, std::span{answer}, tag).wait();
        const std::int64_t received[1] = {now()};
        comm::send(communicator, peer, std::span{received}, tag).wait();
      }
    } else if (communicator.rank() == peer) {
      own.error = -1;
      for (int round = 0; round < rounds; ++round) {
        std::int64_t sent[1] = {};
        comm::receive(communicator, 0, std::span{sent}, tag).wait();
        const std::int64_t answered[1] = {now()};
        comm::send(communicator, 0, std::span{answered}, tag).wait();
        std::int64_t received[1] = {};
        comm::receive(communicator, 0, std::span{received}, tag).wait();
        const auto there = static_cast<double>(answered[0] - sent[0]);
        const auto back = static_cast<double>(answered[0] - received[0]);
        const double error = (there - back) / 2;  // half of received - sent
        if (own.error < 0 || error < own.error) {
          own = {.at = answered[0], .ahead = (there + back) / 2, .error = error};
        }
      }
    }
  }
  comm::barrier(communicator).wait();
  return own;
}

/// Converts times of a rank's clock to times of rank 0, from the offsets at two moments. Assumes a constant drift
/// between them.
class clock_alignment {
 public:
  clock_alignment() = default;

  /// Offsets that are 0 within their error count as 0, because most ranks of one machine share a clock.
  clock_alignment(const clock_offset& first, const clock_offset& last) noexcept
      : error_{std::max(first.error, last.error)} {
    if (std::abs(first.ahead) > first.error || std::abs(last.ahead) > last.error) {
      start_ = first.at;
      ahead_ = first.ahead;
      drift_ = last.at > first.at ? (last.ahead - first.ahead) / static_cast<double>(last.at - first.at) : 0;
    }
  }

  /// The time of rank 0 for a time of this clock, in nanoseconds.
  [[nodiscard]] std::int64_t of_rank_0(std::int64_t time) const noexcept {
    return time - static_cast<std::int64_t>(ahead_ + drift_ * static_cast<double>(time - start_));
  }

  /// Largest possible error of a converted time, in nanoseconds.
  [[nodiscard]] double error() const noexcept { return error_; }

 private:
  std::int64_t start_ = 0;
  double ahead_ = 0;
  double drift_ = 0;  // nanoseconds per nanosecond
  double error_ = 0;
};

}  // namespace gradus::trace
