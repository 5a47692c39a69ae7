// SPDX-License-Identifier: BSL-1.0
//
// What every trace file must fulfil, whatever was traced.
#pragma once

#include <algorithm>          // std::max
#include <map>                // std::map
#include <nlohmann/json.hpp>  // nlohmann::json
#include <set>                // std::set
#include <string>             // std::string
#include <utility>            // std::pair
#include <vector>             // std::vector

namespace gradus_test {

struct traced_span {
  std::string name;
  std::string category;
  double begin = 0;
  double end = 0;
  nlohmann::json args;
};

/// The spans of a file by (rank, thread), in the order of the file.
using traced_spans = std::map<std::pair<int, int>, std::vector<traced_span>>;

inline traced_spans spans_of(const nlohmann::json& trace) {
  traced_spans result;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") {
      const double begin = event.at("ts").get<double>();
      result[{event.at("pid").get<int>(), event.at("tid").get<int>()}].push_back(
          {event.at("name").get<std::string>(), event.at("cat").get<std::string>(), begin,
           begin + event.at("dur").get<double>(), event.at("args")});
    }
  }
  return result;
}

/// How many spans of a rank have this category and name; an empty name: any.
inline int count_spans(const traced_spans& spans, int rank, const std::string& category, const std::string& name = {}) {
  int count = 0;
  for (const auto& [track, of_track] : spans) {
    for (const traced_span& one : of_track) {
      count += track.first == rank && one.category == category && (name.empty() || one.name == name) ? 1 : 0;
    }
  }
  return count;
}

/// What is wrong with a trace; empty: nothing. Spans last at least 0 and are nested within a thread, steps hold their
/// phases, every arrow has both ends inside of spans, and a message is not received before it was sent, as far as the
/// clocks can tell.
inline std::string first_complaint(const nlohmann::json& trace) {
  constexpr double rounding = 0.0011;  // microseconds: times have three digits
  const std::set<std::string> categories{"step", "forward", "backward", "exchange", "update", "communicate",
                                         "wait", "input",   "copy",     "evaluate", "log"};
  const int ranks = trace.at("otherData").at("ranks").get<int>();
  const auto errors = trace.at("otherData").at("clock_error_us").get<std::vector<double>>();
  if (static_cast<int>(errors.size()) != ranks || static_cast<int>(trace.at("otherData").at("hosts").size()) != ranks ||
      static_cast<int>(trace.at("otherData").at("dropped").size()) != ranks) {
    return "the properties of the ranks are not as many as the ranks";
  }
  traced_spans spans = spans_of(trace);
  for (auto& [track, of_track] : spans) {
    if (track.first < 0 || track.first >= ranks || track.second % 8 > 4) {
      return "a span of rank " + std::to_string(track.first) + " in thread " + std::to_string(track.second);
    }
    std::vector<traced_span> open;
    for (const traced_span& one : of_track) {
      const std::string what = one.category + " '" + one.name + "' of rank " + std::to_string(track.first) + " at " +
                               std::to_string(one.begin);
      if (!(one.end >= one.begin) || one.begin < 0) {
        return what + " lasts " + std::to_string(one.end - one.begin);
      }
      if (categories.count(one.category) == 0) {
        return what + " has an unknown category";
      }
      while (!open.empty() && open.back().end <= one.begin + rounding) {
        open.pop_back();
      }
      if (!open.empty() && one.end > open.back().end + rounding) {
        return what + " is not nested in '" + open.back().name + "'";
      }
      const bool phase = one.category == "forward" || one.category == "backward";
      if (track.second == 0 && phase && (open.empty() || open.back().name != "step")) {
        return what + " is not in a step";
      }
      if (one.args.contains("all_arrived_us")) {
        const double arrived = one.args.at("all_arrived_us").get<double>();
        const double error = 2 * *std::max_element(errors.begin(), errors.end());
        if (arrived + rounding < one.begin || arrived > one.end + rounding + error) {
          return what + " has all ranks at " + std::to_string(arrived);
        }
      }
      open.push_back(one);
    }
  }
  struct arrow {
    int sent = 0;
    int received = 0;
    double from = 0;
    double to = 0;
    double error = 0;
  };
  std::map<long, arrow> arrows;
  for (const auto& event : trace.at("traceEvents")) {
    const auto phase = event.at("ph").get<std::string>();
    if (phase != "s" && phase != "f") {
      continue;
    }
    const int rank = event.at("pid").get<int>();
    const double time = event.at("ts").get<double>();
    bool inside = false;
    for (const traced_span& one : spans[{rank, event.at("tid").get<int>()}]) {
      inside = inside || (one.begin <= time && time <= one.end + rounding);
    }
    if (!inside) {
      return "an arrow ends outside of spans at " + std::to_string(time);
    }
    arrow& one = arrows[event.at("id").get<long>()];
    ++(phase == "s" ? one.sent : one.received);
    (phase == "s" ? one.from : one.to) = time;
    one.error += errors.at(static_cast<std::size_t>(rank));
  }
  for (const auto& [number, one] : arrows) {
    if (one.sent != 1 || one.received != 1) {
      return "arrow " + std::to_string(number) + " has not two ends";
    }
    if (one.to + one.error + rounding < one.from) {
      return "message " + std::to_string(number) + " was received before it was sent";
    }
  }
  return {};
}

}  // namespace gradus_test
