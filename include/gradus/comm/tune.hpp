// SPDX-License-Identifier: BSL-1.0
//
// Measures which all-reduce algorithm is fastest for each size on this machine.
#pragma once

#include <algorithm>  // std::nth_element
#include <chrono>     // std::chrono::steady_clock
#include <cstddef>    // std::ptrdiff_t, std::size_t
#include <span>       // std::span
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/collectives.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

/// Options of tune_all_reduce.
struct tune_options {
  index_t smallest_bytes = 1024;             ///< smallest array
  index_t largest_bytes = 64 * 1024 * 1024;  ///< largest array
  int repeats = 9;                           ///< repetitions of each measurement; the median is used
  std::vector<int> node_of_rank{};  ///< see collectives_options; if empty, hierarchical algorithms are left out
};

/// The result of a tuning: the measurements, and the rules derived from them.
struct tuning {
  /// Times for one size.
  struct row {
    index_t bytes = 0;  ///< size of the array
    /// Time of the slowest rank, one for each entry of `algorithms`.
    std::vector<double> seconds;
    std::size_t best = 0;  ///< index of the fastest algorithm
  };

  std::vector<all_reduce_algorithm> algorithms;  ///< the measured algorithms
  std::vector<row> rows;                         ///< in ascending sizes, each 4 times the one before
  std::vector<all_reduce_rule> rules;            ///< the fastest algorithm for each range of sizes
};

/// Times all-reduce of float arrays with each algorithm and picks the fastest for each size. Between two sizes the
/// algorithm changes at their geometric mean. Called by all ranks of a communicator that is not used otherwise; all get
/// the same result.
///
/// @code
///   const comm::tuning measured = comm::tune_all_reduce(world);
///   comm::collectives fast{world.duplicate(), {.all_reduce = measured.rules}};
/// @endcode
[[nodiscard]] tuning tune_all_reduce(any_communicator communicator, const tune_options& options = {});

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE tuning tune_all_reduce(any_communicator communicator, const tune_options& options) {
  if (options.smallest_bytes < 4 || options.largest_bytes < options.smallest_bytes || options.repeats < 1) {
    raise<configuration_error>("tune_all_reduce", "4 <= smallest_bytes <= largest_bytes and at least 1 repeat",
                               {options.smallest_bytes, ", ", options.largest_bytes, " and ", options.repeats});
  }
  tuning result;
  std::vector<collectives<any_communicator>> candidates;
  for (std::size_t i = 0; i < all_reduce_algorithm_names.size(); ++i) {
    const auto algorithm = static_cast<all_reduce_algorithm>(i);
    if (!is_hierarchical(algorithm) || !options.node_of_rank.empty()) {
      result.algorithms.push_back(algorithm);
      candidates.emplace_back(communicator.duplicate(), collectives_options{.all_reduce = {{.algorithm = algorithm}},
                                                                            .node_of_rank = options.node_of_rank});
    }
  }
  std::vector<float> values(static_cast<std::size_t>(options.largest_bytes) / sizeof(float));
  for (index_t bytes = options.smallest_bytes; bytes <= options.largest_bytes; bytes *= 4) {
    const std::span array{values.data(), static_cast<std::size_t>(bytes) / sizeof(float)};
    std::vector<std::vector<double>> times(candidates.size());
    // Interleave the repetitions, so that a slow moment of the machine affects all algorithms.
    for (int repeat = -1; repeat < options.repeats; ++repeat) {
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        comm::barrier(communicator).wait();
        const auto began = std::chrono::steady_clock::now();
        comm::all_reduce(candidates[i], array, reduction::maximum).wait();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
        if (repeat >= 0) {
          times[i].push_back(taken.count());
        }
      }
    }
    tuning::row row{.bytes = bytes, .seconds = {}};
    for (std::vector<double>& each : times) {
      const auto middle = each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2);
      std::nth_element(each.begin(), middle, each.end());
      row.seconds.push_back(*middle);
    }
    comm::all_reduce(communicator, row.seconds, reduction::maximum).wait();
    for (std::size_t i = 1; i < row.seconds.size(); ++i) {
      row.best = row.seconds[i] < row.seconds[row.best] ? i : row.best;
    }
    result.rows.push_back(std::move(row));
  }
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const all_reduce_algorithm best = result.algorithms[result.rows[i].best];
    if (!result.rules.empty() && result.rules.back().algorithm == best) {
      result.rules.pop_back();
    }
    result.rules.push_back({.algorithm = best, .largest_bytes = 2 * result.rows[i].bytes});
  }
  result.rules.back().largest_bytes = all_reduce_rule::no_limit;
  return result;
}

}  // namespace gradus::comm
#endif
