// SPDX-License-Identifier: BSL-1.0
//
// The parts of a training step's time, from recorded spans.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/trace/span.hpp"
#include "gradus/trace/timeline.hpp"

namespace gradus::trace {

/// The parts of a step, in milliseconds, averaged over the time from the begin of the first step.
///
/// Each moment of the rank's own thread belongs to its innermost span. So `total` is the sum of all parts except
/// `communicate`: transfers overlap with computation, and their cost for the step is `exchange` and `wait`.
struct breakdown {
  double forward = 0;      ///< forward passes
  double backward = 0;     ///< backward passes
  double exchange = 0;     ///< beginning transfers, summing and copying for them, on the rank's own thread
  double update = 0;       ///< the update rule
  double communicate = 0;  ///< at least one transfer was under way
  double wait = 0;         ///< waiting for a transfer
  double input = 0;        ///< waiting for a batch
  double copy = 0;         ///< copies of data
  double evaluate = 0;     ///< evaluation
  double log = 0;          ///< callbacks
  double other = 0;        ///< outside of all spans above
  double total = 0;        ///< the sum

  double wait_for_ranks = 0;   ///< time in which this rank waited in a collective for a rank that had not arrived
  double made_ranks_wait = 0;  ///< for collectives at which this rank arrived last: time that all others waited for it
  std::int64_t steps = 0;      ///< number of steps in the recording
};

namespace detail {

inline double& part_of(breakdown& result, category what) noexcept {
  switch (what) {
    case category::forward:
      return result.forward;
    case category::backward:
      return result.backward;
    case category::exchange:
      return result.exchange;
    case category::update:
      return result.update;
    case category::communicate:
      return result.communicate;
    case category::wait:
      return result.wait;
    case category::input:
      return result.input;
    case category::copy:
      return result.copy;
    case category::evaluate:
      return result.evaluate;
    case category::log:
      return result.log;
    case category::step:
      break;
  }
  return result.other;
}

/// Assigns each moment to the innermost of nested spans, which come in the order of their begin.
class innermost {
 public:
  innermost(breakdown& result, std::int64_t begin) noexcept : result_{result}, at_{begin} {}

  void add(const span& one) {
    go_to(one.begin);
    open_.push_back({one.what, one.end});
  }

  /// Handles the time until all spans have ended.
  void finish() {
    while (!open_.empty()) {
      go_to(open_.back().end);
    }
  }

  [[nodiscard]] std::int64_t at() const noexcept { return at_; }

 private:
  struct around {
    category what;
    std::int64_t end;
  };

  void go_to(std::int64_t time) {
    while (!open_.empty() && open_.back().end <= time) {
      spend(open_.back().what, open_.back().end);
      open_.pop_back();
    }
    spend(open_.empty() ? category::step : open_.back().what, time);
  }

  void spend(category what, std::int64_t until) {
    if (until > at_) {
      part_of(result_, what) += static_cast<double>(until - at_);
      at_ = until;
    }
  }

  breakdown& result_;
  std::int64_t at_;
  std::vector<around> open_;
};

}  // namespace detail

/// The breakdown of one rank's spans (recording::spans, rank_timeline::spans). All zero without a step.
[[nodiscard]] inline breakdown breakdown_of(std::span<const span> spans) {
  breakdown result;
  const auto is_step = [](const span& one) { return one.what == category::step && one.where == track::step; };
  std::int64_t begin = 0;
  for (const span& one : spans) {
    begin = is_step(one) && result.steps++ == 0 ? one.begin : begin;
  }
  if (result.steps == 0) {
    return result;
  }
  detail::innermost own{result, begin};
  std::int64_t transferred = begin;
  double communicate = 0;
  for (const span& one : spans) {
    if (one.where == track::step && one.begin >= begin) {
      own.add(one);
    }
    if (one.what == category::communicate && one.end > transferred) {
      communicate += static_cast<double>(one.end - std::max(one.begin, transferred));
      transferred = one.end;
    }
  }
  own.finish();
  result.communicate = communicate;
  result.total = static_cast<double>(own.at() - begin);
  const double to_ms = 1e-6 / static_cast<double>(result.steps);
  for (double* const each :
       {&result.forward, &result.backward, &result.exchange, &result.update, &result.communicate, &result.wait,
        &result.input, &result.copy, &result.evaluate, &result.log, &result.other, &result.total}) {
    *each *= to_ms;
  }
  return result;
}

/// The breakdown of each rank, with the waits between ranks in collectives.
[[nodiscard]] inline std::vector<breakdown> breakdown_of(const timeline& all) {
  std::vector<breakdown> result;
  for (const rank_timeline& rank : all.ranks()) {
    result.push_back(breakdown_of(std::span<const span>{rank.spans}));
  }
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    std::int64_t counted = 0;  // end of the time counted so far; transfers may overlap
    for (const span& one : all.ranks()[rank].spans) {
      const std::optional<arrival> last = all.all_arrived(one);
      const std::int64_t from = std::max(counted, one.begin);
      if (!last || one.step < 0 || last->time <= from || result[rank].steps == 0) {
        continue;
      }
      const double waited = 1e-6 * static_cast<double>(last->time - from) / static_cast<double>(result[rank].steps);
      counted = last->time;
      result[rank].wait_for_ranks += waited;
      result[static_cast<std::size_t>(last->rank)].made_ranks_wait += waited;
    }
  }
  return result;
}

}  // namespace gradus::trace
