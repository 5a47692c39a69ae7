// SPDX-License-Identifier: BSL-1.0
//
// Intervals, and the sequence of activities of a rank.
#include "activity.hpp"

#include <algorithm>  // std::sort, std::max, std::min, std::upper_bound

namespace gradus::report {
namespace {

using piece = activity_line::piece;

activity activity_of(category what) {
  switch (what) {
    case category::forward:
      return activity::forward;
    case category::backward:
      return activity::backward;
    case category::exchange:
      return activity::exchange;
    case category::update:
      return activity::update;
    case category::communicate:
      return activity::communicate;
    case category::wait:
      return activity::wait;
    case category::input:
      return activity::input;
    case category::copy:
      return activity::copy;
    case category::evaluate:
      return activity::evaluate;
    case category::log:
      return activity::log;
    case category::step:
    case category::other:
      break;
  }
  return activity::other;
}

/// The innermost span at every moment; where spans overlap without being nested, the later one counts.
std::vector<piece> innermost(const std::vector<span>& spans, const std::vector<label>& labels, double end) {
  std::vector<piece> result;
  struct open_span {
    double end;
    activity what;
  };
  std::vector<open_span> open;
  double now = 0;
  const auto advance = [&](double to, activity what) {
    if (to > now) {
      if (!result.empty() && result.back().what == what) {
        result.back().end = to;
      } else {
        result.push_back({now, to, what});
      }
      now = to;
    }
  };
  const auto close = [&](double time) {
    while (!open.empty() && open.back().end <= time) {
      advance(open.back().end, open.back().what);
      open.pop_back();
    }
    advance(time, open.empty() ? activity::idle : open.back().what);
  };
  for (const span& each : spans) {
    close(each.start);
    activity what = activity_of(labels[each.label].what);
    const bool own_right = what == activity::evaluate || what == activity::copy;
    if (!open.empty() &&
        (open.back().what == activity::evaluate || (open.back().what == activity::log && !own_right))) {
      what = open.back().what;
    }
    open.push_back({each.end(), what});
  }
  close(end);
  return result;
}

/// Moments inside `where` become `what` if `applies` to what they were.
template <class Applies>
std::vector<piece> overlay(const std::vector<piece>& pieces, const intervals& where, activity what, Applies applies) {
  std::vector<piece> result;
  const auto add = [&](double begin, double end, activity each) {
    if (end <= begin) {
      return;
    }
    if (!result.empty() && result.back().what == each) {
      result.back().end = end;
    } else {
      result.push_back({begin, end, each});
    }
  };
  std::size_t next = 0;
  for (const piece& each : pieces) {
    double now = each.begin;
    while (next < where.size() && where[next].end <= now) {
      ++next;
    }
    if (applies(each.what)) {
      for (std::size_t i = next; i < where.size() && where[i].begin < each.end; ++i) {
        add(now, where[i].begin, each.what);
        add(std::max(now, where[i].begin), std::min(each.end, where[i].end), what);
        now = std::min(each.end, where[i].end);
      }
    }
    add(now, each.end, each.what);
  }
  return result;
}

}  // namespace

intervals unite(intervals pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const interval& a, const interval& b) { return a.begin < b.begin; });
  intervals result;
  for (const interval& each : pieces) {
    if (each.end <= each.begin) {
      continue;
    }
    if (!result.empty() && each.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, each.end);
    } else {
      result.push_back(each);
    }
  }
  return result;
}

intervals intersect(const intervals& a, const intervals& b) {
  intervals result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double begin = std::max(a[i].begin, b[j].begin);
    const double end = std::min(a[i].end, b[j].end);
    if (begin < end) {
      result.push_back({begin, end});
    }
    ++(a[i].end < b[j].end ? i : j);
  }
  return result;
}

intervals subtract(const intervals& a, const intervals& b) {
  intervals result;
  std::size_t j = 0;
  for (const interval& each : a) {
    double now = each.begin;
    while (j < b.size() && b[j].end <= now) {
      ++j;
    }
    for (std::size_t i = j; i < b.size() && b[i].begin < each.end; ++i) {
      if (b[i].begin > now) {
        result.push_back({now, b[i].begin});
      }
      now = std::max(now, b[i].end);
    }
    if (now < each.end) {
      result.push_back({now, each.end});
    }
  }
  return result;
}

double length(const intervals& pieces) {
  double sum = 0;
  for (const interval& each : pieces) {
    sum += each.end - each.begin;
  }
  return sum;
}

intervals spans_of(const trace& from, int rank, category which, int except_track) {
  intervals pieces;
  for (auto track = from.tracks.lower_bound({rank, 0}); track != from.tracks.end() && track->first.first == rank;
       ++track) {
    if (track->first.second == except_track) {
      continue;
    }
    for (const span& each : track->second) {
      if (from.labels[each.label].what == which) {
        pieces.push_back({each.start, each.end()});
      }
    }
  }
  return unite(std::move(pieces));
}

activity_line::activity_line(const trace& from, int rank) {
  pieces_ = innermost(from.track(rank, tracks::step), from.labels, from.end);

  intervals layers;
  for (const span& each : from.track(rank, tracks::compute)) {
    layers.push_back({each.start, each.end()});
  }
  const intervals copies = subtract(spans_of(from, rank, category::copy, tracks::step), unite(std::move(layers)));
  pieces_ = overlay(pieces_, copies, activity::copy, [](activity what) {
    return what == activity::forward || what == activity::backward || what == activity::exchange ||
           what == activity::update || what == activity::other || what == activity::idle;
  });
  pieces_ = overlay(pieces_, spans_of(from, rank, category::communicate, tracks::step), activity::communicate,
                    [](activity what) { return what == activity::other || what == activity::idle; });

  times sum{};
  for (const piece& each : pieces_) {
    before_.push_back(sum);
    of(sum, each.what) += each.end - each.begin;
  }
}

intervals activity_line::when(std::initializer_list<activity> which) const {
  intervals result;
  for (const piece& each : pieces_) {
    if (std::find(which.begin(), which.end(), each.what) != which.end()) {
      if (!result.empty() && result.back().end == each.begin) {
        result.back().end = each.end;
      } else {
        result.push_back({each.begin, each.end});
      }
    }
  }
  return result;
}

times activity_line::until(double time) const {
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), time,
                                      [](double when, const piece& each) { return when < each.begin; });
  if (after == pieces_.begin()) {
    return {};
  }
  const auto index = static_cast<std::size_t>(after - pieces_.begin()) - 1;
  times sum = before_[index];
  of(sum, pieces_[index].what) += std::min(time, pieces_[index].end) - pieces_[index].begin;
  return sum;
}

times activity_line::between(double begin, double end) const {
  times result = until(std::max(begin, end));
  const times before = until(begin);
  for (std::size_t i = 0; i < activity_count; ++i) {
    result[i] -= before[i];
  }
  return result;
}

}  // namespace gradus::report
