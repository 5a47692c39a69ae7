// SPDX-License-Identifier: BSL-1.0
//
// The figures of ranks, steps, links, transfers and layers.
#include "analysis.hpp"

#include <algorithm>  // std::sort, std::max
#include <map>        // std::map
#include <tuple>      // std::tuple
#include <utility>    // std::move

#include "../program/statistics.hpp"

namespace gradus::report {
namespace {

void find_steps(const trace& from, const std::vector<activity_line>& lines, analysis& result) {
  std::vector<double> all;
  for (int rank = 0; rank < from.ranks; ++rank) {
    rank_figures& figures = result.ranks[static_cast<std::size_t>(rank)];
    double end_of_last = 0;
    for (const span& each : from.track(rank, tracks::step)) {
      if (from.labels[each.label].what != category::step || each.start < end_of_last) {
        continue;  // a step inside a step would count twice
      }
      end_of_last = each.end();
      result.steps.push_back({rank, each.step >= 0 ? each.step : figures.steps, each.start, each.end()});
      ++figures.steps;
      figures.step_time += each.duration;
      const times inside = lines[static_cast<std::size_t>(rank)].between(each.start, each.end());
      for (std::size_t i = 0; i < activity_count; ++i) {
        figures.in_steps[i] += inside[i];
      }
      all.push_back(each.duration);
    }
    figures.in_run = lines[static_cast<std::size_t>(rank)].between(0, from.end);
  }
  result.step_time = distribution_of(std::move(all));
}

/// The ranks of a pipeline work on the same batch.
void find_speed(const trace& from, analysis& result) {
  const int batches = result.pipeline.empty() ? from.ranks : result.pipeline.replicas;
  if (result.step_time.median > 0) {
    result.images_per_second =
        static_cast<double>(from.batch_size) * static_cast<double>(batches) / (result.step_time.median * 1e-6);
  }
}

void add_up_rank(const trace& from, int rank, const activity_line& line, rank_figures& figures) {
  const intervals transfers = spans_of(from, rank, category::communicate);
  const intervals compute = line.when({activity::forward, activity::backward, activity::update, activity::evaluate});
  figures.communicate = length(transfers);
  figures.hidden = length(intersect(transfers, compute));
  figures.exposed = figures.communicate - figures.hidden;
  figures.copies = length(spans_of(from, rank, category::copy));
  figures.loads = length(spans_of(from, rank, category::input, tracks::step));
  double end_of_evaluation = -1;
  for (auto track = from.tracks.lower_bound({rank, 0}); track != from.tracks.end() && track->first.first == rank;
       ++track) {
    for (const span& each : track->second) {
      const label& kind = from.labels[each.label];
      if (kind.what == category::copy) {
        figures.copied_bytes += std::max<std::int64_t>(kind.bytes, 0);
      } else if (kind.what == category::communicate && !kind.point_to_point()) {
        figures.collective_bytes += std::max<std::int64_t>(kind.bytes, 0);
      } else if (kind.what == category::evaluate && track->first.second == tracks::step &&
                 each.start >= end_of_evaluation) {
        ++figures.evaluations;
        end_of_evaluation = each.end();
      }
    }
  }
}

/// Both sides may have recorded a message: the figures of a link are those of the side that recorded more bytes.
void add_up_links(const trace& from, analysis& result) {
  struct side {
    std::int64_t messages = 0, bytes = 0;
    intervals busy;
  };
  std::map<std::pair<int, int>, std::array<side, 2>> links;
  for (const auto& [track, spans] : from.tracks) {
    for (const span& each : spans) {
      const label& kind = from.labels[each.label];
      if (!kind.point_to_point()) {
        continue;
      }
      const bool incoming = kind.incoming();
      const auto link = incoming ? std::pair{kind.peer, track.first} : std::pair{track.first, kind.peer};
      side& its = links[link][incoming ? 1 : 0];
      ++its.messages;
      its.bytes += std::max<std::int64_t>(kind.bytes, 0);
      its.busy.push_back({each.start, each.end()});
    }
  }
  for (auto& [link, sides] : links) {
    side& its = sides[0].bytes >= sides[1].bytes ? sides[0] : sides[1];
    result.links.push_back({link.first, link.second, its.messages, its.bytes, length(unite(std::move(its.busy)))});
    result.ranks[static_cast<std::size_t>(link.first)].sent_bytes += its.bytes;
    result.ranks[static_cast<std::size_t>(link.second)].received_bytes += its.bytes;
  }
  std::stable_sort(result.links.begin(), result.links.end(),
                   [](const link_figures& a, const link_figures& b) { return a.bytes > b.bytes; });
}

void add_up_transfers(const trace& from, const detail::arrivals& arrivals, analysis& result) {
  std::map<std::tuple<std::string, std::string, std::string>, transfer_figures> kinds;
  for (int rank = 0; rank < from.ranks; ++rank) {
    const std::vector<span>& spans = from.track(rank, tracks::communicate);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const label& kind = from.labels[spans[i].label];
      if (kind.what != category::communicate) {
        continue;
      }
      transfer_figures& its = kinds[{kind.name, kind.operation, kind.bucket}];
      its.name = kind.name;
      its.operation = kind.operation;
      its.bucket = kind.bucket;
      ++its.count;
      its.bytes += std::max<std::int64_t>(kind.bytes, 0);
      const detail::arrival& arrived = arrivals[static_cast<std::size_t>(rank)][i];
      double waiting = 0;
      if (arrived.last_rank >= 0) {
        waiting = std::clamp(arrived.time - spans[i].start, 0.0, spans[i].duration);
        its.told = true;
      }
      its.waiting += waiting;
      its.transferring += spans[i].duration - waiting;
    }
  }
  for (auto& [name, its] : kinds) {
    result.transfers.push_back(std::move(its));
  }
  std::stable_sort(result.transfers.begin(), result.transfers.end(),
                   [](const transfer_figures& a, const transfer_figures& b) {
                     return a.waiting + a.transferring > b.waiting + b.transferring;
                   });
}

void add_up_layers(const trace& from, analysis& result) {
  std::map<std::string, layer_figures> layers;
  for (int rank = 0; rank < from.ranks; ++rank) {
    for (const span& each : from.track(rank, tracks::compute)) {
      const label& kind = from.labels[each.label];
      layer_figures& its = layers[kind.layer.empty() ? kind.name : kind.layer];
      (kind.what == category::backward ? its.backward
       : kind.what == category::update ? its.update
                                       : its.forward) += each.duration;
    }
  }
  for (auto& [name, its] : layers) {
    its.name = name;
    result.layers.push_back(std::move(its));
  }
  std::stable_sort(result.layers.begin(), result.layers.end(), [](const layer_figures& a, const layer_figures& b) {
    return a.forward + a.backward + a.update > b.forward + b.backward + b.update;
  });
}

}  // namespace

distribution distribution_of(std::vector<double> values) {
  distribution result;
  if (values.empty()) {
    return result;
  }
  std::sort(values.begin(), values.end());
  result.count = values.size();
  for (const double each : values) {
    result.mean += each / static_cast<double>(values.size());
  }
  result.median = program::quantile(values, 0.5);
  result.p5 = program::quantile(values, 0.05);
  result.p95 = program::quantile(values, 0.95);
  result.least = values.front();
  result.greatest = values.back();
  result.jitter = program::jitter(std::move(values));
  return result;
}

double analysis::sum(double rank_figures::*which) const {
  double total = 0;
  for (const rank_figures& each : ranks) {
    total += each.*which;
  }
  return total;
}

double analysis::sum_in_steps(activity which) const {
  double total = 0;
  for (const rank_figures& each : ranks) {
    total += of(each.in_steps, which);
  }
  return total;
}

double analysis::sum_in_run(activity which) const {
  double total = 0;
  for (const rank_figures& each : ranks) {
    total += of(each.in_run, which);
  }
  return total;
}

analysis analyse(const trace& from) {
  analysis result;
  result.run = from.end;
  result.ranks.resize(static_cast<std::size_t>(from.ranks));
  std::vector<activity_line> lines;
  for (int rank = 0; rank < from.ranks; ++rank) {
    lines.emplace_back(from, rank);
    add_up_rank(from, rank, lines.back(), result.ranks[static_cast<std::size_t>(rank)]);
  }
  find_steps(from, lines, result);
  add_up_links(from, result);
  const detail::arrivals arrived = detail::find_arrivals(from, result.arrivals_inferred);
  add_up_transfers(from, arrived, result);
  add_up_layers(from, result);
  const detail::stage_waits for_stages = detail::find_pipeline(from, lines, arrived, result);
  find_speed(from, result);
  detail::attribute_waiting(from, lines, arrived, for_stages, result);
  detail::judge(from, lines, result);
  return result;
}

}  // namespace gradus::report
