// SPDX-License-Identifier: BSL-1.0
//
// Waiting between ranks: when all ranks had arrived at a transfer, and what the last one did while the others waited.
#include <algorithm>  // std::sort, std::max, std::min, std::upper_bound
#include <cmath>      // std::isnan
#include <map>        // std::map
#include <tuple>      // std::tuple

#include "analysis.hpp"

namespace gradus::report::detail {
namespace {

/// The begins of steps of one rank, by time and by number.
class step_finder {
 public:
  explicit step_finder(int ranks) : by_time_(static_cast<std::size_t>(ranks)), by_step_(by_time_.size()) {}

  void add(const step_figures& step) {
    by_time_[static_cast<std::size_t>(step.rank)].push_back(&step);
    by_step_[static_cast<std::size_t>(step.rank)].emplace(step.step, &step);
  }
  /// The step of a rank at a time; null outside of steps.
  const step_figures* at(int rank, double time) const {
    const auto& all = by_time_[static_cast<std::size_t>(rank)];
    const auto after = std::upper_bound(all.begin(), all.end(), time,
                                        [](double when, const step_figures* each) { return when < each->begin; });
    return after == all.begin() || (*(after - 1))->end < time ? nullptr : *(after - 1);
  }
  const step_figures* number(int rank, std::int64_t step) const {
    const auto& all = by_step_[static_cast<std::size_t>(rank)];
    const auto found = all.find(step);
    return found == all.end() ? nullptr : found->second;
  }

 private:
  std::vector<std::vector<const step_figures*>> by_time_;
  std::vector<std::map<std::int64_t, const step_figures*>> by_step_;
};

/// How late a transfer ended because of ranks that came later than this one, and the transfer whose last rank is the
/// cause.
struct delay {
  double time = 0;
  std::size_t cause = 0;
};

/// Transfers run in order, so a rank that is late for the first collective delays all that follow. The delay is the
/// difference from the same transfers if all ranks had arrived when this one did: each then begins when the one before
/// is done, and takes as long as it took once all had arrived. A receive waits only for its own message.
std::vector<delay> find_delays(const trace& from, const std::vector<span>& spans, const std::vector<arrival>& arrived) {
  std::vector<delay> result(spans.size());
  double last_end = 0, last_end_if = 0;  // of the collective before: as it was, and if no rank had been late
  delay last;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const label& kind = from.labels[spans[i].label];
    const double start = spans[i].start, end = spans[i].end();
    const double all_there = arrived[i].last_rank >= 0 ? std::clamp(arrived[i].time, start, end) : start;
    if (kind.what != category::communicate || kind.point_to_point()) {
      result[i] = {all_there - start, i};
      continue;
    }
    const bool follows = last_end <= end;  // otherwise both were under way at the same time
    const bool held_up = follows && last_end > all_there;
    const double duration = end - (held_up ? last_end : all_there);
    const double end_if = (follows ? std::max(last_end_if, start) : start) + duration;
    result[i].time = std::max(0.0, end - end_if);
    result[i].cause = held_up ? last.cause : i;
    if (follows) {
      last_end = end;
      last_end_if = std::min(end, end_if);
      last = result[i];
    }
  }
  return result;
}

/// By receiving and sending rank, the arrows in the order of their ends.
using incoming_arrows = std::map<std::pair<int, int>, std::vector<const flow*>>;

/// When the messages were sent that a rank receives, by its spans. Several receives may be begun together, so arrows
/// belong to them in the order in which they end.
std::vector<arrival> find_sends(const trace& from, int rank, const incoming_arrows& incoming) {
  const std::vector<span>& spans = from.track(rank, tracks::communicate);
  std::vector<arrival> result(spans.size());
  std::vector<std::size_t> receives;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const label& its = from.labels[spans[i].label];
    if (its.incoming() && its.peer != rank) {
      receives.push_back(i);
    }
  }
  std::stable_sort(receives.begin(), receives.end(),
                   [&](std::size_t a, std::size_t b) { return spans[a].end() < spans[b].end(); });
  std::map<int, std::size_t> used;  // by peer: arrows that belong to earlier receives
  for (const std::size_t i : receives) {
    const int peer = from.labels[spans[i].label].peer;
    const auto flows = incoming.find({rank, peer});
    if (flows == incoming.end()) {
      continue;
    }
    std::size_t& next = used[peer];
    while (next < flows->second.size() && flows->second[next]->to.time < spans[i].start) {
      ++next;
    }
    if (next < flows->second.size() && flows->second[next]->to.time <= spans[i].end()) {
      result[i] = {flows->second[next++]->from.time, peer};
    }
  }
  return result;
}

/// A moment in which a rank stands still, and the first transfer that is not done then.
struct standstill {
  double begin, end;
  std::size_t transfer;
};

/// Cuts what a rank stands still for by transfers; what no transfer covers is left out. Parts that follow each other
/// without a gap and belong to collectives become one, which belongs to the last of them: it is what the rank waited
/// for.
std::vector<standstill> cut(const trace& from, const std::vector<span>& spans, const intervals& still) {
  std::vector<standstill> result;
  double counted = 0;
  std::size_t next = 0;
  const auto is_collective = [&](std::size_t i) { return !from.labels[spans[i].label].point_to_point(); };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (from.labels[spans[i].label].what != category::communicate) {
      continue;
    }
    const double begin = std::max(spans[i].start, counted), end = spans[i].end();
    counted = std::max(counted, end);
    while (next < still.size() && still[next].end <= begin) {
      ++next;
    }
    for (std::size_t j = next; j < still.size() && still[j].begin < end; ++j) {
      const standstill part{std::max(begin, still[j].begin), std::min(end, still[j].end), i};
      if (part.end <= part.begin) {
        continue;
      }
      if (!result.empty() && result.back().end == part.begin && is_collective(i) &&
          is_collective(result.back().transfer)) {
        result.back().end = part.end;
        result.back().transfer = i;
      } else {
        result.push_back(part);
      }
    }
  }
  return result;
}

/// What the last rank spent more time on than the one that waits for it, as parts of 1. Both are looked at from the
/// begin of the step until the last one arrived, because a rank that was held up in its input is late in everything
/// that follows. Where nothing took it longer, what it did during the wait is what counts.
times causes(const activity_line& last, const activity_line& waiting, double since, double until,
             const interval& wait) {
  times result{};
  double sum = 0;
  const times its = last.between(since, until), others = waiting.between(since, until);
  for (std::size_t i = 0; i < activity_count; ++i) {
    const auto what = static_cast<activity>(i);
    if (what != activity::wait && what != activity::communicate) {
      result[i] = std::max(0.0, its[i] - others[i]);
      sum += result[i];
    }
  }
  if (sum <= 0) {
    result = last.between(wait.begin, wait.end);
    sum = wait.end - wait.begin;
  }
  for (double& each : result) {
    each /= sum;
  }
  return result;
}

}  // namespace

arrivals find_arrivals(const trace& from, bool& inferred) {
  arrivals result(static_cast<std::size_t>(from.ranks));
  // Where arrivals are not told: the n-th collective of this name in this step is the same on all ranks.
  struct meeting {
    int ranks = 0;
    arrival last;
  };
  using kind = std::tuple<std::string, std::string, std::string>;
  std::map<kind, int> kinds;
  std::vector<int> kind_of(from.labels.size());
  for (std::size_t i = 0; i < from.labels.size(); ++i) {
    const label& each = from.labels[i];
    kind_of[i] =
        kinds.try_emplace({each.name, each.operation, each.bucket}, static_cast<int>(kinds.size())).first->second;
  }
  // kind, step, number of the calls that the rank had in the step
  using call_number = std::tuple<int, std::int32_t, std::int64_t>;
  std::map<call_number, meeting> meetings;
  std::vector<std::vector<call_number>> call_numbers(result.size());
  for (int rank = 0; rank < from.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::map<std::pair<int, std::int32_t>, std::int64_t> counts;
    for (const span& each : from.track(rank, tracks::communicate)) {
      const int its_kind = kind_of[each.label];
      const call_number where{its_kind, each.step, counts[{its_kind, each.step}]++};
      call_numbers[r].push_back(where);
      if (from.labels[each.label].what == category::communicate && !from.labels[each.label].point_to_point()) {
        meeting& its = meetings[where];
        ++its.ranks;
        if (its.last.last_rank < 0 || each.start > its.last.time) {
          its.last = {each.start, rank};
        }
      }
    }
  }
  // Receives wait until the other rank sends: the begin of their arrow.
  incoming_arrows incoming;
  for (const flow& each : from.flows) {
    incoming[{each.to.rank, each.from.rank}].push_back(&each);
  }
  for (auto& [pair, flows] : incoming) {
    std::stable_sort(flows.begin(), flows.end(), [](const flow* a, const flow* b) { return a->to.time < b->to.time; });
  }
  for (int rank = 0; rank < from.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::vector<span>& spans = from.track(rank, tracks::communicate);
    result[r] = find_sends(from, rank, incoming);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const label& its = from.labels[spans[i].label];
      arrival& found = result[r][i];
      if (!its.point_to_point() && its.what == category::communicate && from.ranks > 1) {
        const meeting& all = meetings[call_numbers[r][i]];
        if (all.ranks == from.ranks && its.operation != "broadcast") {  // a broadcast waits only for its root
          found = all.last;
        }
        if (!std::isnan(spans[i].all_arrived)) {
          found = {spans[i].all_arrived, spans[i].last_rank >= 0 ? spans[i].last_rank : found.last_rank};
        } else if (found.last_rank >= 0) {
          inferred = true;
        }
      }
    }
  }
  return result;
}

void attribute_waiting(const trace& from, const std::vector<activity_line>& lines, const arrivals& arrived_at,
                       const stage_waits& for_stages, analysis& result) {
  step_finder steps{from.ranks};
  std::vector<intervals> in_steps(lines.size());
  for (const step_figures& each : result.steps) {
    steps.add(each);
    in_steps[static_cast<std::size_t>(each.rank)].push_back({each.begin, each.end});
  }
  std::map<std::pair<int, activity>, blame> blames;
  std::map<std::pair<int, activity>, double> longest;
  for (int rank = 0; rank < from.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    intervals still = intersect(lines[r].when({activity::wait, activity::communicate}), unite(std::move(in_steps[r])));
    if (!for_stages.empty()) {
      still = subtract(still, for_stages[r]);
    }
    const std::vector<span>& spans = from.track(rank, tracks::communicate);
    const std::vector<delay> delays = find_delays(from, spans, arrived_at[r]);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (arrived_at[r][i].last_rank == rank && from.labels[spans[i].label].operation != "broadcast") {
        ++result.ranks[r].was_last;
      }
    }
    for (const standstill& each : cut(from, spans, still)) {
      const delay& late = delays[each.transfer];
      const arrival& arrived = arrived_at[r][late.cause];
      const double waiting =
          arrived.last_rank >= 0 && arrived.last_rank != rank ? std::min(late.time, each.end - each.begin) : 0;
      result.ranks[r].waits_for_rank += waiting;
      result.ranks[r].waits_for_data += each.end - each.begin - waiting;
      if (waiting <= 0) {
        continue;
      }
      const int last = arrived.last_rank;
      const interval wait{each.begin, each.begin + waiting};
      const step_figures* mine = steps.at(rank, wait.begin);
      const step_figures* its = mine != nullptr ? steps.number(last, mine->step) : nullptr;
      const double since =
          std::min({wait.begin, mine != nullptr ? mine->begin : wait.begin, its != nullptr ? its->begin : wait.begin});
      times parts{};
      if (result.ranks[static_cast<std::size_t>(last)].steps == 0) {
        of(parts, activity::communicate) = 1;  // a server does nothing else
      } else {
        parts = causes(lines[static_cast<std::size_t>(last)], lines[r], since, std::max(since, arrived.time), wait);
      }
      for (std::size_t k = 0; k < activity_count; ++k) {
        if (parts[k] <= 0) {
          continue;
        }
        const std::pair<int, activity> key{last, static_cast<activity>(k)};
        blame& its_blame = blames[key];
        const double time = parts[k] * waiting;
        its_blame.total += time;
        if (time > longest[key]) {
          longest[key] = time;
          its_blame.example_rank = rank;
          its_blame.example_begin = since;
          its_blame.example_end = each.end;
        }
      }
    }
  }
  const double all_steps = result.sum(&rank_figures::step_time);
  for (auto& [key, its] : blames) {
    its.rank = key.first;
    its.cause = key.second;
    const double others = all_steps - result.ranks[static_cast<std::size_t>(its.rank)].step_time;
    its.share = others > 0 ? its.total / others : 0;
    result.ranks[static_cast<std::size_t>(its.rank)].makes_wait += its.total / std::max(1, from.ranks - 1);
    result.blames.push_back(its);
  }
  std::stable_sort(result.blames.begin(), result.blames.end(),
                   [](const blame& a, const blame& b) { return a.total > b.total; });
}

}  // namespace gradus::report::detail
