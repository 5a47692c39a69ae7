// SPDX-License-Identifier: BSL-1.0
//
// Traces that tests write by hand: times in milliseconds.
#pragma once

#include <cstdio>  // std::snprintf
#include <string>  // std::string

#include "analysis.hpp"
#include "trace.hpp"

/// Puts the text of a trace file together.
class trace_text {
 public:
  explicit trace_text(int ranks) : other_{R"("gradus":"1","ranks":)" + std::to_string(ranks)} {}

  trace_text& span(int rank, int track, const char* category, const char* name, double begin, double end,
                   const std::string& args = "") {
    char text[200];
    std::snprintf(text, sizeof text, R"({"ph":"X","pid":%d,"tid":%d,"cat":"%s","name":"%s","ts":%.3f,"dur":%.3f,)",
                  rank, track, category, name, begin * 1e3, (end - begin) * 1e3);
    return event(text + (R"("args":{)" + args + "}}"));
  }
  /// An arrow on the tracks of transfers.
  trace_text& arrow(int id, int from, double sent, int to, double received) {
    const auto end = [&](const char* phase, int rank, double time) {
      char text[200];
      std::snprintf(text, sizeof text,
                    R"({"ph":"%s","pid":%d,"tid":2,"cat":"flow","name":"m","id":%d,"ts":%.3f,"bp":"e"})", phase, rank,
                    id, time * 1e3);
      event(text);
    };
    end("s", from, sent);
    end("f", to, received);
    return *this;
  }
  trace_text& event(const std::string& text) {
    events_ += (events_.empty() ? "" : ",") + text;
    return *this;
  }
  trace_text& other(const std::string& text) {
    other_ += "," + text;
    return *this;
  }

  std::string text() const { return R"({"traceEvents":[)" + events_ + R"(],"otherData":{)" + other_ + "}}"; }
  gradus::report::trace trace() const { return gradus::report::read_trace(text(), "trace.json"); }
  gradus::report::analysis analysis() const { return gradus::report::analyse(trace()); }

 private:
  std::string events_, other_;
};
