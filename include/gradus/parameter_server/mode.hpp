// SPDX-License-Identifier: BSL-1.0
//
// When parameter servers apply gradients and hand out values.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::parallel {

/// When servers apply gradients and hand out values.
enum class server_mode : unsigned char {
  /// One optimizer step with the mean over the workers: the update that one process would make of the whole batch.
  synchronous,
  /// Each push is applied at once, as a step of its own with the mean over the worker's own examples; no rank waits for
  /// others. The result depends on the order in which pushes come.
  asynchronous,
  /// As asynchronous, but a worker waits while it is more than `staleness_bound` steps ahead of the slowest one (the
  /// stale synchronous parallel model: Ho et al., 2013).
  bounded_staleness,
  /// What tf_cnn_benchmarks does in its mode parameter_server with cross_replica_sync: one optimizer step for each
  /// worker's mean, one after the other (here in the order of the workers), then a barrier. NOT the update of one
  /// process: the sum over the workers for plain gradient descent, and momentum and weight decay are applied as often
  /// as there are workers. For comparison with such runs only.
  compat
};

/// The name of the enumerator, as in "bounded_staleness".
[[nodiscard]] constexpr std::string_view name_of(server_mode mode) noexcept {
  switch (mode) {
    case server_mode::synchronous:
      return "synchronous";
    case server_mode::asynchronous:
      return "asynchronous";
    case server_mode::bounded_staleness:
      return "bounded_staleness";
    case server_mode::compat:
      return "compat";
  }
  return "unknown mode";
}

/// How the servers of a training work; the same on all ranks. The options are those of parameter_server.
struct server_settings {
  server_mode mode = server_mode::synchronous;  ///< when servers apply gradients and hand out values
  int backup_workers = 0;                       ///< workers whose gradients a synchronous step does not wait for
  int staleness_bound = 0;                      ///< steps that a worker may be ahead of the slowest one
  bool scale_by_staleness = false;              ///< the learning rate of a push is divided by 1 + its staleness
  int window = 4;  ///< in-flight limit: parts between a worker and a server, in each direction

  /// A worker that is lost costs only its own work.
  [[nodiscard]] bool survives_lost_workers() const noexcept {
    return backup_workers > 0 || mode == server_mode::asynchronous || mode == server_mode::bounded_staleness;
  }

  /// A step is that of all workers, whoever comes first.
  [[nodiscard]] bool sums_all_workers() const noexcept {
    return mode == server_mode::synchronous && backup_workers == 0;
  }

  /// @throws configuration_error when options make no sense
  void check(int workers) const {
    if (backup_workers < 0 || backup_workers >= workers || (backup_workers > 0 && mode != server_mode::synchronous)) {
      raise<configuration_error>("parallel::parameter_server",
                                 {"0 to ", workers - 1, " backup_workers, and 0 unless the mode is synchronous"},
                                 {backup_workers, " in mode ", name_of(mode)});
    }
    if (staleness_bound < 0 || (staleness_bound > 0 && mode != server_mode::bounded_staleness)) {
      raise<configuration_error>("parallel::parameter_server",
                                 "a staleness_bound of at least 0, and 0 unless the mode is bounded_staleness",
                                 {staleness_bound, " in mode ", name_of(mode)});
    }
    if (window < 1) {
      raise<configuration_error>("parallel::parameter_server", "a window of at least 1", {window});
    }
  }

  /// The mode and its options in words. Ranks compare this text.
  [[nodiscard]] std::string describe() const {
    std::string text{name_of(mode)};
    if (backup_workers > 0) {
      append_text(text, {" with ", backup_workers, " backup workers"});
    }
    if (mode == server_mode::bounded_staleness) {
      append_text(text, {", at most ", staleness_bound, " steps ahead"});
    }
    if (mode == server_mode::compat) {
      text += " (as tf_cnn_benchmarks: a step for each worker, not the update of one process)";
    }
    if (scale_by_staleness) {
      text += ", learning rate / (1 + staleness)";
    }
    append_text(text, {", parts under way: ", window});
    return text;
  }
};

}  // namespace gradus::parallel
