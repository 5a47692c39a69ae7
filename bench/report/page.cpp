// SPDX-License-Identifier: BSL-1.0
//
// The page: the parts of page/ put together, with the spans in compact lists.
#include "page.hpp"

#include <algorithm>  // std::lower_bound, std::upper_bound
#include <cmath>      // std::llround
#include <map>        // std::map

#include "figures.hpp"
#include "page_parts.hpp"  // made by embed.cmake from page/

namespace gradus::report {
namespace {

using nlohmann::ordered_json;

/// Tenths of microseconds: whole numbers are short in JSON.
std::int64_t tenths(double microseconds) {
  return std::llround(microseconds * 10);
}

void append(std::string& list, std::int64_t number) {
  list += list.back() == '[' ? "" : ",";
  list += std::to_string(number);
}

/// Where an arrow ends: in which row, at what time.
class row_finder {
 public:
  row_finder(const trace& from, const std::vector<row>& rows) : from_{from}, rows_{rows} {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      by_track_[{rows[i].rank, rows[i].track}].push_back(i);
    }
  }
  /// The row of the span around a time on a track; -1 if the track has none there.
  std::int64_t find(const flow::end_point& end) const {
    const auto track = by_track_.find({end.rank, end.track});
    if (track == by_track_.end()) {
      return -1;
    }
    const std::vector<span>& spans = from_.track(end.rank, end.track);
    // The innermost span is the one to bind to, and its row is the last.
    for (auto each = track->second.rbegin(); each != track->second.rend(); ++each) {
      const std::vector<std::uint32_t>& members = rows_[*each].spans;
      const auto after = std::upper_bound(members.begin(), members.end(), end.time,
                                          [&](double time, std::uint32_t i) { return time < spans[i].start; });
      if (after != members.begin() && spans[*(after - 1)].end() >= end.time) {
        return static_cast<std::int64_t>(*each);
      }
    }
    return -1;
  }

 private:
  const trace& from_;
  const std::vector<row>& rows_;
  std::map<std::pair<int, int>, std::vector<std::size_t>> by_track_;
};

ordered_json label_json(const label& its) {
  ordered_json result = {{"name", its.name}, {"category", static_cast<int>(its.what)}};
  const auto add = [&](const char* key, const std::string& text) {
    if (!text.empty()) {
      result[key] = text;
    }
  };
  add("operation", its.operation);
  add("bucket", its.bucket);
  add("layer", its.layer);
  add("for", its.waits_for);
  if (its.bytes >= 0) {
    result["bytes"] = its.bytes;
  }
  if (its.peer >= 0) {
    result["peer"] = its.peer;
  }
  if (its.is_pass()) {
    result["stage"] = its.stage;
    result["micro_batch"] = its.micro_batch;
  }
  return result;
}

/// Spans as lists of numbers, by row: gap to the span before, duration, label; and where told [index, how long after
/// the begin all had arrived, who was last].
std::string timeline_json(const trace& from, const std::vector<row>& rows, std::size_t hidden) {
  ordered_json names = ordered_json::array();
  for (const std::string_view each : category_names) {
    names.push_back(each);
  }
  ordered_json labels = ordered_json::array();
  for (const label& each : from.labels) {
    labels.push_back(label_json(each));
  }
  ordered_json track_names = ordered_json::array();
  for (const auto& [track, name] : from.track_names) {
    track_names.push_back({track.first, track.second, name});
  }
  std::string result = "{\"end\":" + std::to_string(tenths(from.end)) + ",\"hidden\":" + std::to_string(hidden) +
                       ",\"categories\":" + json_text(names) + ",\"labels\":" + json_text(labels) +
                       ",\"track_names\":" + json_text(track_names) + ",\"rows\":[";
  for (const row& each : rows) {
    const std::vector<span>& spans = from.track(each.rank, each.track);
    std::string gaps = "[", durations = "[", kinds = "[", arrivals = "[";
    std::int64_t end = 0;
    for (std::size_t i = 0; i < each.spans.size(); ++i) {
      const span& its = spans[each.spans[i]];
      const std::int64_t start = std::max(end, tenths(its.start)), stop = std::max(start, tenths(its.end()));
      append(gaps, start - end);
      append(durations, stop - start);
      append(kinds, its.label);
      end = stop;
      if (its.last_rank >= 0 && its.all_arrived > its.start) {
        append(arrivals, static_cast<std::int64_t>(i));
        append(arrivals, tenths(std::min(its.all_arrived, its.end())) - start);
        append(arrivals, its.last_rank);
      }
    }
    if (&each != rows.data()) {
      result += ",";
    }
    result += "{\"rank\":" + std::to_string(each.rank) + ",\"track\":" + std::to_string(each.track) +
              ",\"depth\":" + std::to_string(each.depth) + ",\"gaps\":" + gaps + "],\"durations\":" + durations +
              "],\"labels\":" + kinds + "],\"arrivals\":" + arrivals + "]}\n";
  }
  std::string flows = "[";
  const row_finder find{from, rows};
  for (const flow& each : from.flows) {
    const std::int64_t begin = find.find(each.from), end = find.find(each.to);
    if (begin >= 0 && end >= 0) {
      append(flows, begin);
      append(flows, tenths(each.from.time));
      append(flows, end);
      append(flows, tenths(each.to.time));
    }
  }
  return result + "],\"flows\":" + flows + "]}";
}

/// JSON inside a script element: what could end the element or begin another is written as \u003c.
std::string in_script(const std::string& json) {
  std::string result;
  result.reserve(json.size() + json.size() / 16);
  for (const char c : json) {
    switch (c) {
      case '<':
        result += "\\u003c";
        break;
      case '>':
        result += "\\u003e";
        break;
      case '&':
        result += "\\u0026";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace

std::vector<row> rows_of(const trace& from, std::size_t& hidden) {
  constexpr double rounding = 0.05;  // microseconds by which a span may begin before the one before it has ended
  std::vector<row> result;
  hidden = 0;
  for (const auto& [track, spans] : from.tracks) {
    const std::size_t first = result.size();
    std::vector<double> ends;  // of the rows of this track
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      std::size_t depth = 0;
      while (depth < ends.size() && ends[depth] > spans[i].start + rounding) {
        ++depth;
      }
      if (depth == static_cast<std::size_t>(most_rows)) {
        ++hidden;
        continue;
      }
      if (depth == ends.size()) {
        ends.push_back(0);
        result.push_back({track.first, track.second, static_cast<int>(depth), {}});
      }
      ends[depth] = spans[i].end();
      result[first + depth].spans.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return result;
}

std::string page(const trace& from, const analysis& figures, const std::string& name) {
  std::size_t hidden = 0;
  const std::vector<row> rows = rows_of(from, hidden);
  ordered_json all = figures_json(from, figures);
  all["file"] = name;
  const std::map<std::string, std::string, std::less<>> parts{
      {"style", std::string{page_parts::style}},
      {"script", std::string{page_parts::script}},
      {"figures", in_script(json_text(all))},
      {"timeline", in_script(timeline_json(from, rows, hidden))}};
  // The frame has marks {{name}} where the parts go; it is read once, so that marks inside the parts mean nothing.
  std::string result;
  std::string_view frame = page_parts::frame;
  for (std::size_t mark = frame.find("{{"); mark != std::string_view::npos; mark = frame.find("{{")) {
    const std::size_t end = frame.find("}}", mark);
    result += frame.substr(0, mark);
    result += parts.at(std::string{frame.substr(mark + 2, end - mark - 2)});
    frame.remove_prefix(end + 2);
  }
  return result += frame;
}

}  // namespace gradus::report
