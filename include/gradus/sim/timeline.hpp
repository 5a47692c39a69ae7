// SPDX-License-Identifier: BSL-1.0
//
// A simulated step as a timeline that trace::write_chrome writes and gradus_report opens.
#pragma once

#include <algorithm>  // std::max, std::sort
#include <cmath>      // std::llround
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int64_t, std::uint32_t, std::uint8_t
#include <memory>     // std::make_shared
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/core/text.hpp"
#include "gradus/sim/cluster.hpp"
#include "gradus/sim/replayed_step.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/span.hpp"
#include "gradus/trace/timeline.hpp"

namespace gradus::sim {

/// The spans of a replay as those of a training. Ranks that stand for others are shown once, as rank 0 and so on.
/// @param step  made with replay_options::spans
[[nodiscard]] inline trace::timeline timeline_of(const replayed_step& step, const cluster& of) {
  const auto names = std::make_shared<trace::recorder>(trace::recorder_options{.capacity = 1, .enabled = false});
  std::vector<trace::rank_timeline> ranks(static_cast<std::size_t>(std::max(1, step.simulated_ranks)));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].host = join({"simulated host ", of.host_of(static_cast<int>(rank))});
  }
  int parts = 1;
  for (const activity_span& each : step.spans) {
    parts = std::max(parts, each.item + 1);
  }
  for (const activity_span& each : step.spans) {
    trace::span one{.begin = std::llround(each.begin * 1e9),
                    .end = std::llround(each.end * 1e9),
                    .step = each.step,
                    .where = trace::track::step};
    switch (each.what) {
      case activity::step:
        one.title = "step";
        one.what = trace::category::step;
        break;
      case activity::forward:
      case activity::backward: {
        const bool forward = each.what == activity::forward;
        one.title = forward ? trace::name{"forward"} : trace::name{"backward"};
        one.what = forward ? trace::category::forward : trace::category::backward;
        if (each.stage >= 0) {
          one.operation = trace::span::stage_pass;
          one.tag = each.stage;
          one.sequence = static_cast<std::uint32_t>(std::max(each.item, 0));
        }
        break;
      }
      case activity::update:
        one.title = "update";
        one.what = trace::category::update;
        break;
      case activity::serve:
        one.title = "update";
        one.what = trace::category::update;
        break;
      case activity::wait:
        one.title = "wait";
        one.what = trace::category::wait;
        one.subject = each.item < 0 ? trace::name{"messages"} : names->intern(join({"gradients ", each.item}));
        break;
      case activity::transfer:
        one.title = trace::name::of(comm::call_kind::all_reduce);
        one.subject = names->intern(join({"gradients ", each.item}));
        one.what = trace::category::communicate;
        one.where = trace::track::communicate;
        one.operation = static_cast<std::uint8_t>(comm::call_kind::all_reduce);
        one.bytes = static_cast<std::int64_t>(each.bytes);
        one.sequence = static_cast<std::uint32_t>(each.step * parts + each.item);
        break;
    }
    ranks[static_cast<std::size_t>(each.rank)].spans.push_back(one);
  }
  for (trace::rank_timeline& each : ranks) {
    std::sort(each.spans.begin(), each.spans.end(), [](const trace::span& a, const trace::span& b) {
      if (a.begin != b.begin) {
        return a.begin < b.begin;
      }
      return a.end != b.end ? a.end > b.end : a.sequence < b.sequence;
    });
  }
  return trace::timeline{std::move(ranks), names};
}

}  // namespace gradus::sim
