// SPDX-License-Identifier: BSL-1.0
//
// What a rank's program does at every moment: its phases without the time of what they contain, in one sequence.
#pragma once

#include <array>        // std::array
#include <cstdint>      // std::int32_t
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "trace.hpp"

namespace gradus::report {

/// A piece of time, microseconds.
struct interval {
  double begin = 0, end = 0;
};
/// Sorted and disjoint.
using intervals = std::vector<interval>;

/// The union. @param pieces  in any order
intervals unite(intervals pieces);
/// What is in both.
intervals intersect(const intervals& a, const intervals& b);
/// What is in `a` and not in `b`.
intervals subtract(const intervals& a, const intervals& b);
/// The sum of the lengths, microseconds.
double length(const intervals& pieces);

/// What a rank's program does; every moment counts for one of them.
enum class activity : std::uint8_t {
  forward,
  backward,
  exchange,  ///< the program's thread begins transfers, adds up and copies for them
  update,
  communicate,  ///< stands still during a transfer that no wait was recorded for
  wait,
  input,
  copy,
  evaluate,
  log,
  other,  ///< within a step, and nothing else was recorded
  idle    ///< outside the steps, and nothing else was recorded
};
inline constexpr std::size_t activity_count = 12;
inline constexpr std::array<std::string_view, activity_count> activity_names{
    "forward", "backward", "exchange", "update", "communicate", "wait",
    "input",   "copy",     "evaluate", "log",    "other",       "idle"};

/// Microseconds by activity.
using times = std::array<double, activity_count>;
inline double& of(times& all, activity which) {
  return all[static_cast<std::size_t>(which)];
}
inline double of(const times& all, activity which) {
  return all[static_cast<std::size_t>(which)];
}

/// The program of one rank over the whole trace.
class activity_line {
 public:
  struct piece {
    double begin, end;
    activity what;
  };

  activity_line() = default;
  /// The innermost span of the step's track decides, but all that is inside an evaluation is evaluation, and all that
  /// is inside a log and is neither evaluation nor copy is log. Where that track tells no more than "step" or nothing,
  /// a transfer makes it `communicate`. A copy on a track of its own counts where no layer computes at the same time
  /// and the program does not stand in a wait or in input.
  activity_line(const trace& from, int rank);

  /// Disjoint, sorted, without gaps from the begin to the end of the trace.
  const std::vector<piece>& pieces() const { return pieces_; }
  /// When the rank does one of these.
  intervals when(std::initializer_list<activity> which) const;
  /// Microseconds by activity between two times. Cost: the logarithm of the number of pieces.
  times between(double begin, double end) const;

 private:
  times until(double time) const;

  std::vector<piece> pieces_;
  std::vector<times> before_;  // by piece: the time of each activity before its begin
};

/// The union of the spans of a category over the tracks of a rank but the given one (-1: over all tracks).
intervals spans_of(const trace& from, int rank, category which, int except_track = -1);

}  // namespace gradus::report
