// SPDX-License-Identifier: BSL-1.0
//
// The file of a timeline, read back by a JSON library: names, times, rows, arrows and properties are as they were.
#include <boost/test/unit_test.hpp>

#include <cstdint>      // std::int64_t, std::uint8_t
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "../../support/trace_checks.hpp"  // first_complaint, spans_of
#include "gradus/comm/self.hpp"
#include "gradus/trace/chrome.hpp"

namespace {

namespace trace = gradus::trace;
using gradus::comm::call_kind;
using trace::category;
using trace::track;

class string_sink final : public trace::text_sink {
 public:
  void write(std::string_view part) override { text.append(part); }
  std::string text;
};

nlohmann::json written(const trace::timeline& all, const trace::program_properties& properties = {}) {
  string_sink out;
  trace::write_chrome(out, all, properties);
  return nlohmann::json::parse(out.text);
}

trace::span transfer(call_kind kind, std::int64_t begin, std::int64_t end) {
  return {.begin = begin,
          .end = end,
          .title = trace::name::of(kind),
          .bytes = 64,
          .step = 2,
          .what = category::communicate,
          .where = track::communicate,
          .operation = static_cast<std::uint8_t>(kind)};
}

trace::span message(call_kind kind, int peer, std::uint32_t sequence, std::int64_t begin, std::int64_t end) {
  trace::span one = transfer(kind, begin, end);
  one.peer = peer;
  one.tag = 5;
  one.sequence = sequence;
  return one;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_chrome)

BOOST_AUTO_TEST_CASE(hostile_names_come_back) {
  trace::recorder names;
  const std::string hostile = "\"}],\\ \n\t\x01\x7f </script> \u00e9\U0001F600";
  const trace::timeline all{{{.host = hostile,
                              .spans = {{.begin = 5,
                                         .end = 1'234'567,
                                         .title = names.intern(hostile),
                                         .subject = names.intern("bad \xff\xc0\x80\xed\xa0\x80 bytes"),
                                         .bytes = 9,
                                         .what = category::forward,
                                         .where = track::compute}},
                              .dropped = 3,
                              .clock_error = 1500}}};
  const auto have = written(all, {.model = hostile, .batch_size_per_rank = 4, .threads = 2});
  const auto& properties = have.at("otherData");
  BOOST_TEST(properties.at("model").get<std::string>() == hostile);
  BOOST_TEST(properties.at("hosts").at(0).get<std::string>() == hostile);
  BOOST_TEST(properties.at("batch_size").get<int>() == 4);
  BOOST_TEST(properties.at("threads").get<int>() == 2);
  BOOST_TEST(properties.at("dropped").at(0).get<int>() == 3);
  BOOST_TEST(properties.at("clock_error_us").at(0).get<double>() == 1.5);
  const auto spans = gradus_test::spans_of(have);
  BOOST_TEST_REQUIRE((spans.size() == 1 && spans.begin()->first == std::pair{0, 1}));
  const auto& one = spans.begin()->second.front();
  BOOST_TEST(one.name == hostile);
  BOOST_TEST(one.begin == 0.0);
  BOOST_TEST(one.end == 1234.562, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(one.args.at("layer").get<std::string>() == "bad \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd bytes");
  BOOST_TEST(one.args.at("bytes").get<int>() == 9);
}

BOOST_AUTO_TEST_CASE(arrows_join_what_belongs_together) {
  // Two messages with one tag, of which the later one's receive was begun first in the list; one without a partner.
  const trace::timeline all{
      {{.host = "a",
        .spans = {message(call_kind::send, 1, 0, 100, 300), message(call_kind::send, 1, 1, 400, 500),
                  message(call_kind::send, 1, 2, 600, 700)}},
       {.host = "b",
        .spans = {message(call_kind::receive, 0, 0, 50, 350), message(call_kind::receive, 0, 1, 380, 600)}}}};
  const auto have = written(all);
  BOOST_TEST(gradus_test::first_complaint(have) == "");
  std::map<int, std::pair<double, double>> arrows;
  for (const auto& event : have.at("traceEvents")) {
    if (event.at("ph") == "s") {
      arrows[event.at("id").get<int>()].first = event.at("ts").get<double>();
    } else if (event.at("ph") == "f") {
      BOOST_TEST(event.at("bp").get<std::string>() == "e");
      arrows[event.at("id").get<int>()].second = event.at("ts").get<double>();
    }
  }
  BOOST_TEST_REQUIRE(arrows.size() == 2U);
  BOOST_TEST((arrows.begin()->second == std::pair{0.050, 0.299}));
  BOOST_TEST((arrows.rbegin()->second == std::pair{0.350, 0.549}));
  const auto spans = gradus_test::spans_of(have);
  const auto& receive = spans.at({1, 2}).front();
  BOOST_TEST(receive.args.at("peer").get<int>() == 0);
  BOOST_TEST(receive.args.at("operation").get<std::string>() == "receive");
  BOOST_TEST(receive.args.at("step").get<int>() == 2);
}

BOOST_AUTO_TEST_CASE(transfers_that_overlap_get_rows_of_their_own) {
  trace::recorder names;
  auto first = transfer(call_kind::all_reduce, 0, 100);
  first.subject = names.intern("gradients 0");
  auto second = transfer(call_kind::all_reduce, 50, 150);
  second.sequence = 1;
  auto third = transfer(call_kind::all_reduce, 120, 130);
  third.sequence = 2;
  const trace::timeline all{{{.host = "a", .spans = {first, second, third}}}};
  const auto have = written(all);
  BOOST_TEST(gradus_test::first_complaint(have) == "");
  const auto spans = gradus_test::spans_of(have);
  BOOST_TEST(spans.at({0, 2}).size() == 2U);
  BOOST_TEST(spans.at({0, 10}).size() == 1U);
  const auto& named = spans.at({0, 2}).front();
  BOOST_TEST(named.name == "all_reduce gradients 0");
  BOOST_TEST(named.args.at("bucket").get<std::string>() == "gradients 0");
  BOOST_TEST(named.args.at("all_arrived_us").get<double>() == 0.0);
  BOOST_TEST(named.args.at("last_rank").get<int>() == 0);
  std::map<std::pair<int, int>, std::string> threads;
  for (const auto& event : have.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      threads[{event.at("pid").get<int>(), event.at("tid").get<int>()}] =
          event.at("args").at("name").get<std::string>();
    }
  }
  BOOST_TEST(threads.at({0, 2}) == "communicate");
  BOOST_TEST(threads.at({0, 10}) == "communicate 2");
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_made_is_named) {
  trace::recorder recorder;
  gradus::comm::self alone;
  BOOST_CHECK_EXCEPTION(trace::write("/nonexistent/trace.json", recorder, alone), gradus::format_error,
                        [](const gradus::format_error& failure) {
                          return std::string_view{failure.what()}.find("/nonexistent/trace.json") !=
                                 std::string_view::npos;
                        });
}

BOOST_AUTO_TEST_CASE(a_name_that_promises_compression_is_refused) {
  trace::recorder recorder;
  gradus::comm::self alone;
  BOOST_CHECK_EXCEPTION(trace::write("trace.json.gz", recorder, alone), gradus::configuration_error,
                        [](const gradus::configuration_error& failure) {
                          return std::string_view{failure.what()}.find("write_gzip") != std::string_view::npos;
                        });
}

BOOST_AUTO_TEST_SUITE_END()
