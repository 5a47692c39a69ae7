// SPDX-License-Identifier: BSL-1.0
//
// Schedules of pipelines by name: what an option of a training chooses.
#pragma once

#include <array>        // std::array
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/pipeline/schedule.hpp"

namespace gradus::parallel {

/// A way of making the schedule of a step.
struct pipeline_rule {
  std::string_view name;  ///< "one_f_one_b"
  /// Makes the schedule of some ranks, micro-batches, and stages of each rank.
  pipeline_schedule (*make)(int ranks, int micro_batches, int stages_per_rank) = nullptr;
  bool splits_backward = false;  ///< it has input_gradients and weight_gradients in place of backward

  /// Rules with the same name.
  friend constexpr bool operator==(const pipeline_rule& a, const pipeline_rule& b) noexcept { return a.name == b.name; }
};

namespace detail {

inline void require_one_stage(std::string_view name, int stages_per_rank) {
  if (stages_per_rank != 1) {
    raise<configuration_error>({"parallel::", name}, "1 stage of each rank", {stages_per_rank},
                               "parallel::one_f_one_b interleaves several stages of a rank");
  }
}

}  // namespace detail

/// As gpipe_schedule.
inline constexpr pipeline_rule gpipe{.name = "gpipe", .make = [](int ranks, int micro_batches, int stages_per_rank) {
                                       detail::require_one_stage("gpipe", stages_per_rank);
                                       return gpipe_schedule(ranks, micro_batches);
                                     }};
/// As one_f_one_b_schedule; with several stages of a rank as interleaved_schedule.
inline constexpr pipeline_rule one_f_one_b{
    .name = "one_f_one_b", .make = [](int ranks, int micro_batches, int stages_per_rank) {
      return stages_per_rank == 1 ? one_f_one_b_schedule(ranks, micro_batches)
                                  : interleaved_schedule(ranks, micro_batches, stages_per_rank);
    }};
/// As zero_bubble_schedule.
inline constexpr pipeline_rule zero_bubble{.name = "zero_bubble",
                                           .make =
                                               [](int ranks, int micro_batches, int stages_per_rank) {
                                                 detail::require_one_stage("zero_bubble", stages_per_rank);
                                                 return zero_bubble_schedule(ranks, micro_batches);
                                               },
                                           .splits_backward = true};

/// All rules.
inline constexpr std::array pipeline_rules{gpipe, one_f_one_b, zero_bubble};

/// The rule of a name, such as "one_f_one_b".
/// @throws configuration_error when there is none
[[nodiscard]] inline const pipeline_rule& pipeline_rule_of(std::string_view name) {
  std::string names;
  for (const pipeline_rule& each : pipeline_rules) {
    if (each.name == name) {
      return each;
    }
    append_text(names, {names.empty() ? "" : ", ", each.name});
  }
  raise<configuration_error>("parallel::pipeline_rule_of", {"a schedule of a pipeline: ", names},
                             {"'", printable(name), "'"});
}

}  // namespace gradus::parallel
