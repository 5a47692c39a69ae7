// SPDX-License-Identifier: BSL-1.0
//
// Trace files that are broken or mean harm: a clear error, or a page in which they are text.
#include <boost/test/unit_test.hpp>

#include <sys/stat.h>  // mkfifo

#include <cstdint>     // std::uint64_t
#include <cstdio>      // std::snprintf
#include <filesystem>  // std::filesystem
#include <fstream>     // std::ofstream
#include <string>      // std::string

#include "figures.hpp"
#include "page.hpp"
#include "trace_text.hpp"
#ifdef GRADUS_REPORT_WITH_GZIP
#include "gradus/trace/gzip.hpp"
#endif

namespace {

using namespace gradus::report;

std::string error_of(const std::string& text) {
  try {
    analyse(read_trace(text, "t.json"));
  } catch (const report_error& error) {
    return error.what();
  }
  return "no error";
}

/// The error of a trace with one good span and one event.
std::string error_of_event(const std::string& event) {
  return error_of(trace_text{2}.span(0, 0, "step", "step", 0, 1).event(event).text());
}

/// A span, in which a part of the text is replaced.
std::string span_with(const std::string& part, const std::string& by) {
  std::string text =
      R"({"ph":"X","pid":1,"tid":2,"cat":"communicate","name":"conv1","ts":5.5,"dur":2.5,"args":{"bytes":8,"peer":0}})";
  const std::size_t position = text.find(part);
  BOOST_REQUIRE(position != std::string::npos);
  return text.replace(position, part.size(), by);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(report_hostile)

BOOST_AUTO_TEST_CASE(what_is_no_trace_is_refused) {
  BOOST_TEST(error_of("") == "t.json: the file is empty");
  BOOST_TEST(error_of("[]").find("t.json: expected an object with traceEvents") == 0U);
  BOOST_TEST(error_of("3").find("expected an object with traceEvents and otherData, came 3") != std::string::npos);
  BOOST_TEST(error_of("{}").find("has no list traceEvents") != std::string::npos);
  BOOST_TEST(error_of("\x89PNG").find("is not valid JSON at byte 1") != std::string::npos);
  BOOST_TEST(error_of(R"({"traceEvents":[]})").find("has no otherData.gradus") != std::string::npos);
  BOOST_TEST(error_of(R"({"traceEvents":{}})").find("traceEvents: expected a list, came an object") !=
             std::string::npos);
  BOOST_TEST(error_of(R"({"traceEvents":[],"otherData":7})").find("otherData: expected an object, came 7") !=
             std::string::npos);
  BOOST_TEST(error_of(R"({"traceEvents":[],"otherData":{"gradus":"9"}})")
                 .find("version \"1\" of the format, came the text '9'") != std::string::npos);
  BOOST_TEST(error_of(trace_text{2}.text()).find("has no spans") != std::string::npos);
  BOOST_TEST(error_of(std::string(100000, '[')).find("came a list") != std::string::npos);
  BOOST_TEST(error_of(R"({"a":)" + std::string(100000, '[')).find("nested more than 64 deep") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(only_regular_files_up_to_a_size_are_read) {
  const auto error_of_file = [](const std::string& path, std::uint64_t largest = 1000) -> std::string {
    try {
      read_trace_file(path, largest);
    } catch (const report_error& error) {
      return error.what();
    }
    return "no error";
  };
  BOOST_TEST(error_of_file("/nowhere/trace.json").find("open '/nowhere/trace.json': expected a file, got no such") ==
             0U);
  BOOST_TEST(error_of_file("/").find("open '/': expected a file, got a directory") == 0U);
  BOOST_TEST(error_of_file("/dev/zero").find("expected a regular file, got a device") != std::string::npos);
  const std::string pipe = "report_hostile_pipe.json";
  std::filesystem::remove(pipe);
  BOOST_REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  BOOST_TEST(error_of_file(pipe).find("expected a regular file, got a device, a pipe") != std::string::npos);
  std::filesystem::remove(pipe);

  const std::string path = "report_hostile_long.json";
  std::string text = trace_text{2}.span(0, 0, "step", "step", 0, 1).text();
  text.resize(200000, ' ');
  std::ofstream{path} << text;
  BOOST_TEST(error_of_file(path, 200000) == "no error");
  BOOST_TEST(error_of_file(path, 199999).find(path + ": it has more than 0 MiB. If it is a trace") == 0U);
  BOOST_TEST(error_of_file(path, 0).find("raise --largest-mebibytes") != std::string::npos);
  std::filesystem::remove(path);
}

#ifdef GRADUS_REPORT_WITH_GZIP
BOOST_AUTO_TEST_CASE(compressed_files_are_read_and_bombs_are_not) {
  const std::string path = "report_hostile_test.json.gz";
  const auto write = [&](const std::string& text) {
    gradus::trace::gzip_sink out{path};
    out.write(text);
    out.close();
  };
  const auto error_of_file = [&]() -> std::string {
    try {
      read_trace_file(path, std::uint64_t{10} << 20U);
    } catch (const report_error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string text = trace_text{2}.span(0, 0, "step", "step", 0, 1).text();
  write(text);
  BOOST_TEST(read_trace_file(path).track(0, 0).size() == 1U);
  write(text + std::string((std::size_t{10} << 20) - text.size(), ' '));
  BOOST_TEST(read_trace_file(path).track(0, 0).size() == 1U);
  BOOST_TEST(error_of_file() == "no error");
  write(text + std::string((std::size_t{10} << 20) - text.size() + 1, ' '));
  BOOST_TEST(error_of_file().find(path + ": it inflates to more than 10 MiB") == 0U);
  std::filesystem::resize_file(path, 2000);
  BOOST_TEST(error_of_file().find("a file that ends early") != std::string::npos);
  std::filesystem::remove(path);
}
#endif

BOOST_AUTO_TEST_CASE(a_file_that_is_cut_short_says_where) {
  const std::string text = trace_text{1}.span(0, 0, "step", "step", 0, 1).span(0, 0, "forward", "f", 0, 1).text();
  BOOST_TEST(error_of(text) == "no error");
  const std::string after_first = text.substr(0, text.find("forward"));
  BOOST_TEST(error_of(after_first).find("t.json: the file ends in the middle of the JSON text, after ") == 0U);
  BOOST_TEST(error_of(after_first).find(" and 1 events") != std::string::npos);
  for (std::size_t length = 0; length < text.size(); ++length) {
    BOOST_REQUIRE(error_of(text.substr(0, length)) != "no error");
  }
}

BOOST_AUTO_TEST_CASE(wrong_values_are_named) {
  struct wrong {
    const char *part, *by, *message;
  };
  for (const wrong& each : {
           wrong{"2.5", "-3", "dur: expected a number from 0 to 1e+15, came -3"},
           wrong{"2.5", "null", "dur: expected a number from 0 to 1e+15, came null"},
           wrong{"2.5", "1e308", "dur: expected a number from 0 to 1e+15, came 1e+308"},
           wrong{",\"dur\":2.5", "", "dur: expected a number from 0 to 1e+15, came nothing"},
           wrong{"5.5", "-1e300", "ts: expected a number from -1e+15 to 1e+15, came -1e+300"},
           wrong{"5.5", "\"soon\"", "ts: expected a number from -1e+15 to 1e+15, came the text 'soon'"},
           wrong{"5.5", "[1]", "ts: expected a number from -1e+15 to 1e+15, came a list"},
           wrong{"\"pid\":1", "\"pid\":-1", "pid: expected a whole number from 0 to 65535, came -1"},
           wrong{"\"pid\":1", "\"pid\":1e9", "pid: expected a whole number from 0 to 65535, came 1000000000"},
           wrong{"\"pid\":1", "\"pid\":true", "pid: expected a whole number from 0 to 65535, came true"},
           wrong{"\"tid\":2", "\"tid\":0.5", "tid: expected a whole number from 0 to 1048575, came 0.5"},
           wrong{"\"communicate\"", "{}", "cat: expected a text, came an object"},
           wrong{"\"X\"", "4", "ph: expected a text, came 4"},
           wrong{"\"bytes\":8", "\"bytes\":-8", "bytes: expected a whole number from 0 to 9007199254740992, came -8"},
           wrong{"\"bytes\":8", "\"layer\":8", "layer: expected a text, came 8"},
           wrong{"\"bytes\":8", "\"step\":1.5", "step: expected a whole number from 0 to 2147483647, came 1.5"},
           wrong{"\"bytes\":8", "\"all_arrived_us\":\"x\"", "all_arrived_us: expected a number from"},
           wrong{"\"bytes\":8", "\"last_rank\":-2", "last_rank: expected a whole number from 0 to 65535, came -2"},
           wrong{"\"bytes\":8", "\"stage\":-1", "stage: expected a whole number from 0 to 65535, came -1"},
           wrong{"\"bytes\":8", "\"stage\":65536", "stage: expected a whole number from 0 to 65535, came 65536"},
           wrong{"\"bytes\":8", "\"stage\":\"1\"", "stage: expected a whole number from 0 to 65535, came the text '1'"},
           wrong{"\"bytes\":8", "\"micro_batch\":0.5",
                 "micro_batch: expected a whole number from 0 to 32767, came 0.5"},
           wrong{"\"bytes\":8", "\"micro_batch\":32768",
                 "micro_batch: expected a whole number from 0 to 32767, came 32768"},
       }) {
    BOOST_TEST_CONTEXT(each.by) {
      BOOST_TEST(error_of_event(span_with(each.part, each.by))
                     .find(std::string{"t.json: event 1 ('conv1'): "} + each.message) == 0U);
    }
  }
  BOOST_TEST(error_of_event(span_with("\"conv1\"", "7")) == "t.json: event 1: name: expected a text, came 7");
  BOOST_TEST(
      error_of_event(span_with("{\"bytes\":8,\"peer\":0}", "3")).find("event 1: args: expected an object, came 3") !=
      std::string::npos);
  BOOST_TEST(error_of_event("7").find("event 1: expected an object, came 7") != std::string::npos);
  BOOST_TEST(error_of_event(span_with("2.5", "NaN")).find("is not valid JSON at byte") != std::string::npos);
  BOOST_TEST(error_of_event(span_with("2.5", "1e999")).find("is not valid JSON at byte") != std::string::npos);
  BOOST_TEST(error_of_event(span_with("conv1", "\xff")).find("is not valid JSON at byte") != std::string::npos);
  BOOST_TEST(error_of_event(span_with("\"pid\":1", "\"pid\":2")) ==
             "t.json: an event names rank 2, but otherData.ranks is 2");
  BOOST_TEST(error_of_event(span_with("\"peer\":0", "\"peer\":40")).find("names rank 40") != std::string::npos);
  BOOST_TEST(error_of_event(R"({"ph":"s","pid":0,"tid":0,"ts":0,"id":[]})") ==
             "t.json: event 1: id: expected a text or a number, came a list");

  const auto with_other = [](const char* other) {
    return error_of(trace_text{2}.span(0, 0, "step", "step", 0, 1).other(other).text());
  };
  BOOST_TEST(with_other(R"("ranks":0)") == "t.json: otherData: ranks: expected a whole number from 1 to 65536, came 0");
  BOOST_TEST(with_other(R"("ranks":[])") ==
             "t.json: otherData: ranks: expected a whole number from 1 to 65536, came a list");
  BOOST_TEST(with_other(R"("ranks":1025)") == "no error");
  BOOST_TEST(with_other(R"("ranks":65536)").find("t.json: otherData.ranks is 65536, but there are only 1 events") ==
             0U);
  BOOST_TEST(with_other(R"("hosts":["a"])") == "t.json: otherData: hosts: expected 2 entries, one a rank, came 1");
  BOOST_TEST(with_other(R"("hosts":["a",4])") == "t.json: otherData: hosts: expected a text, came 4");
  BOOST_TEST(with_other(R"("dropped":3)") ==
             "t.json: otherData: dropped: expected a list with one entry a rank, came 3");
  BOOST_TEST(with_other(R"("model":{})").find("otherData: model: expected a text, came an object") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(extreme_values_give_finite_figures) {
  // The longest times, spans that overlap without being nested, arrivals long before and after, steps inside steps.
  const trace recorded = trace_text{2}
                             .event(R"({"ph":"X","pid":0,"tid":0,"cat":"step","name":"step","ts":-1e15,"dur":1e15})")
                             .event(R"({"ph":"X","pid":0,"tid":0,"cat":"step","name":"step","ts":-5e14,"dur":1e15})")
                             .event(R"({"ph":"X","pid":0,"tid":0,"cat":"wait","name":"w","ts":-4e14,"dur":9e14})")
                             .event(R"({"ph":"X","pid":1,"tid":0,"cat":"step","name":"step","ts":1e15,"dur":0})")
                             .event(R"({"ph":"X","pid":0,"tid":2,"cat":"communicate","name":"c","ts":-4e14,"dur":1e15,)"
                                    R"("args":{"bytes":9007199254740992,"all_arrived_us":1e15,"last_rank":1}})")
                             .event(R"({"ph":"X","pid":1,"tid":2,"cat":"communicate","name":"c","ts":0,"dur":0,)"
                                    R"("args":{"all_arrived_us":-1e15,"last_rank":0}})")
                             .trace();
  const analysis figures = analyse(recorded);
  const std::string json = json_text(figures_json(recorded, figures));
  BOOST_TEST(json.find("null") == json.find("\"waiting_ms\":null"));  // nlohmann writes what is not finite as null
  BOOST_TEST(figures.ranks[0].waits_for_rank <= 1e15);
  BOOST_TEST(page(recorded, figures, "t.json").size() > json.size());
  double sum = 0;
  for (const double each : figures.ranks[0].in_run) {
    BOOST_TEST(each >= 0.0);
    sum += each;
  }
  BOOST_TEST(sum == figures.run, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(extreme_pipelines_give_finite_figures) {
  // Passes of the longest time, of none, one inside another, and stages with numbers far apart.
  trace_text text{2};
  const auto pass = [&](int rank, const char* category, double begin, double duration, int stage, int micro_batch) {
    char event[300];
    std::snprintf(event, sizeof event,
                  R"({"ph":"X","pid":%d,"tid":0,"cat":"%s","name":"x","ts":%g,"dur":%g,)"
                  R"("args":{"stage":%d,"micro_batch":%d}})",
                  rank, category, begin, duration, stage, micro_batch);
    text.event(event);
  };
  for (const int rank : {0, 1}) {
    text.event(R"({"ph":"X","pid":)" + std::to_string(rank) +
               R"(,"tid":0,"cat":"step","name":"step","ts":-1e15,"dur":1e15})");
    pass(rank, "forward", -1e15, 5e14, rank, 0);
    pass(rank, "forward", -9e14, 1e14, 65535, 32767);
    pass(rank, "backward", -1, 0, rank, 0);
  }
  const trace recorded = text.trace();
  const analysis figures = analyse(recorded);
  BOOST_TEST(figures.pipeline.stages.size() == 2U);
  BOOST_TEST(figures.pipeline.explained());
  BOOST_TEST(json_text(figures_json(recorded, figures)).find("null") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(large_pipelines_are_not_simulated) {
  // Their simulation would take the square of the number of ranks.
  trace_text text{600};
  for (int rank = 0; rank < 600; ++rank) {
    text.span(rank, 0, "step", "step", 0, 100);
    for (int micro_batch = 0; micro_batch < 50; ++micro_batch) {
      const std::string args =
          R"("stage":)" + std::to_string(rank) + R"(,"micro_batch":)" + std::to_string(micro_batch);
      text.span(rank, 0, "forward", "forward", micro_batch, micro_batch + 1, args);
      text.span(rank, 0, "backward", "backward", 50 + micro_batch, 51 + micro_batch, args);
    }
  }
  const analysis figures = text.analysis();
  BOOST_TEST(figures.pipeline.stages.size() == 600U);
  BOOST_TEST(!figures.pipeline.explained());
}

BOOST_AUTO_TEST_CASE(names_stay_text) {
  const trace recorded = trace_text{1}
                             .span(0, 0, "step", "</script><script>alert(1)</script>", 0, 1)
                             .span(0, 0, "forward", "<!--<script>", 0, 1, R"("layer":"]]>&lt;\u2028")")
                             .other(R"("model":"</title><img src=x onerror=alert(1)>")")
                             .trace();
  const std::string text = page(recorded, analyse(recorded), "</script>{{script}}.json");
  const auto count = [&](const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  BOOST_TEST(count("</script>") == 3U);  // those of the page
  BOOST_TEST(count("<script") == 3U);
  BOOST_TEST(count("<img") == 0U);
  BOOST_TEST(count("{{script}}") == 1U);
  BOOST_TEST(count("\\u003c/script\\u003e") >= 2U);
  // Nothing is loaded: the one address is the name of the language of drawings.
  BOOST_TEST(count("http") == 2U + count("http-equiv") - 1U);
  BOOST_TEST(count("@import") + count("url(") == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
