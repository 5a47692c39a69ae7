// SPDX-License-Identifier: BSL-1.0
//
// Figures and verdicts of traces whose answers are known.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::count_if, std::find_if

#include "figures.hpp"
#include "page.hpp"
#include "trace_text.hpp"

namespace {

using namespace gradus::report;
namespace utf = boost::unit_test;

double ms(double microseconds) {
  return microseconds / 1e3;
}

/// The verdict of a kind; fails the test if there is none.
const verdict& verdict_of(const analysis& figures, const std::string& kind) {
  const auto found = std::find_if(figures.verdicts.begin(), figures.verdicts.end(),
                                  [&](const verdict& each) { return each.kind == kind; });
  BOOST_REQUIRE_MESSAGE(found != figures.verdicts.end(), "no verdict of the kind " << kind);
  return *found;
}

/// Two ranks; the second waits 41 ms for its batch, and the first then for the second.
trace_text slow_input(bool told) {
  const std::string args = R"("operation":"all_reduce","bytes":1000,"bucket":"g","step":0)";
  return trace_text{2}
      .span(0, 0, "step", "step", 0, 100, R"("step":0)")
      .span(0, 0, "forward", "forward", 0, 20)
      .span(0, 0, "backward", "backward", 20, 59)
      .span(0, 0, "wait", "wait g", 59, 100, R"("for":"g")")
      .span(0, 2, "communicate", "all_reduce g", 59, 100,
            args + (told ? R"(,"all_arrived_us":100000,"last_rank":1)" : ""))
      .span(1, 0, "step", "step", 0, 100, R"("step":0)")
      .span(1, 0, "input", "input", 0, 41)
      .span(1, 0, "forward", "forward", 41, 61)
      .span(1, 0, "backward", "backward", 61, 100)
      .span(1, 2, "communicate", "all_reduce g", 100, 100,
            args + (told ? R"(,"all_arrived_us":100000,"last_rank":1)" : ""));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(report_analysis)

BOOST_AUTO_TEST_CASE(every_moment_counts_once, *utf::tolerance(1e-9)) {
  const auto figures = trace_text{1}
                           .span(0, 0, "step", "step", 10, 60)
                           .span(0, 0, "forward", "forward", 10, 30)
                           .span(0, 0, "wait", "inside", 12, 15)
                           .span(0, 0, "backward", "backward", 30, 50)
                           .span(0, 1, "backward", "conv", 36, 40)
                           .span(0, 4, "copy", "copy", 32, 38, R"("bytes":64)")
                           .span(0, 0, "log", "on_epoch", 60, 91)
                           .span(0, 0, "evaluate", "evaluate", 60, 90)
                           .span(0, 0, "forward", "forward", 60, 80)
                           .span(0, 2, "communicate", "broadcast", 92, 95)
                           .span(0, 0, "log", "log", 99, 100)
                           .span(0, 0, "copy", "inside", 99, 99.5)
                           .span(0, 0, "wait", "inside", 99.5, 99.75)
                           .analysis();
  const rank_figures& rank = figures.ranks[0];
  BOOST_TEST(figures.run == 90e3);  // times count from the first span on
  BOOST_TEST(ms(of(rank.in_run, activity::forward)) == 17.0);
  BOOST_TEST(ms(of(rank.in_run, activity::wait)) == 3.0);
  BOOST_TEST(ms(of(rank.in_run, activity::copy)) == 4.5);  // two of the first one's six ms run beside a layer
  BOOST_TEST(ms(of(rank.in_run, activity::backward)) == 16.0);
  BOOST_TEST(ms(of(rank.in_run, activity::other)) == 10.0);
  BOOST_TEST(ms(of(rank.in_run, activity::evaluate)) == 30.0);  // with all that is in it
  BOOST_TEST(ms(of(rank.in_run, activity::communicate)) == 3.0);
  BOOST_TEST(ms(of(rank.in_run, activity::log)) == 1.5);  // with all that is in it but evaluation and copies
  BOOST_TEST(ms(of(rank.in_run, activity::idle)) == 5.0);
  double sum = 0;
  for (const double each : rank.in_run) {
    sum += each;
  }
  BOOST_TEST(sum == figures.run);
  BOOST_TEST(ms(rank.step_time) == 50.0);
  BOOST_TEST(ms(of(rank.in_steps, activity::evaluate)) == 0.0);
  BOOST_TEST(ms(rank.copies) == 6.5);
  BOOST_TEST(rank.copied_bytes == 64);
  BOOST_TEST(rank.evaluations == 1);
}

BOOST_AUTO_TEST_CASE(communication_behind_compute_is_hidden, *utf::tolerance(1e-9)) {
  const auto figures = trace_text{1}
                           .span(0, 0, "step", "step", 0, 20)
                           .span(0, 0, "backward", "backward", 0, 10)
                           .span(0, 0, "wait", "wait", 10, 14)
                           .span(0, 0, "update", "update", 14, 20)
                           .span(0, 2, "communicate", "a", 4, 12, R"("operation":"all_reduce","bytes":8)")
                           .span(0, 2, "communicate", "b", 8, 16, R"("operation":"all_reduce","bytes":8)")
                           .analysis();
  BOOST_TEST(ms(figures.ranks[0].communicate) == 12.0);  // from 4 to 16, and not twice where two are under way
  BOOST_TEST(ms(figures.ranks[0].hidden) == 8.0);
  BOOST_TEST(ms(figures.ranks[0].exposed) == 4.0);
  BOOST_TEST(ms(figures.ranks[0].waits_for_data) == 4.0);  // one rank waits for no other
  BOOST_TEST(ms(figures.ranks[0].waits_for_rank) == 0.0);
  BOOST_TEST(figures.ranks[0].collective_bytes == 16);
}

BOOST_AUTO_TEST_CASE(waiting_for_a_rank_in_its_input, *utf::tolerance(1e-9)) {
  for (const bool told : {true, false}) {
    const analysis figures = slow_input(told).analysis();
    BOOST_TEST(figures.arrivals_inferred == !told);
    BOOST_TEST(ms(figures.ranks[0].waits_for_rank) == 41.0);
    BOOST_TEST(ms(figures.ranks[0].waits_for_data) == 0.0);
    BOOST_TEST(ms(figures.ranks[1].waits_for_rank) == 0.0);
    BOOST_TEST(ms(figures.ranks[1].makes_wait) == 41.0);
    BOOST_TEST(figures.ranks[1].was_last == 1);
    const verdict& found = verdict_of(figures, "wait_for_rank");
    BOOST_TEST(found.sentence == "41 % of the step is waiting for rank 1 in input");
    BOOST_TEST(found.share == 0.41 / 2);  // of both ranks' run
    BOOST_TEST(found.rank == 0);
    BOOST_TEST(ms(found.end) == 100.0);
    BOOST_TEST(found.figures.at(0).value == 41.0);
    BOOST_TEST(verdict_of(figures, "input").sentence == "20 % of the step is waiting for input, on rank 1 41 %");
  }
}

BOOST_AUTO_TEST_CASE(a_broadcast_waits_only_for_its_root, *utf::tolerance(1e-9)) {
  // Rank 2 comes when all is over. Rank 0 waits for the root, rank 1, from 1 to 3.
  const auto figures = [](const char* arrived) {
    const std::string root = R"("operation":"broadcast","peer":1)";
    const std::string told = *arrived != 0 ? root + R"(,"last_rank":1,"all_arrived_us":)" + arrived : root;
    return trace_text{3}
        .span(0, 0, "step", "step", 0, 10)
        .span(0, 0, "wait", "wait", 1, 4)
        .span(0, 2, "communicate", "broadcast", 1, 4, told)
        .span(1, 0, "step", "step", 0, 10)
        .span(1, 2, "communicate", "broadcast", 3, 5, *arrived != 0 ? told : root)
        .span(2, 0, "step", "step", 0, 10)
        .span(2, 2, "communicate", "broadcast", 8, 9, root)
        .analysis();
  };
  const analysis told = figures("3000");
  BOOST_TEST(ms(told.ranks[0].waits_for_rank) == 2.0);
  BOOST_TEST(ms(told.ranks[0].waits_for_data) == 1.0);
  BOOST_TEST(told.ranks[1].was_last == 0);
  const analysis untold = figures("");
  BOOST_TEST(!untold.arrivals_inferred);
  BOOST_TEST(ms(untold.ranks[0].waits_for_rank) == 0.0);  // rank 2 is not who it waited for
  BOOST_TEST(untold.ranks[2].was_last == 0);
}

BOOST_AUTO_TEST_CASE(ranks_that_take_turns_are_not_blamed_alone) {
  trace_text text{2};
  for (int step = 0; step < 4; ++step) {
    for (const int rank : {0, 1}) {
      const double t = 100.0 * step, end = t + (step % 2 == rank ? 100 : 70);
      const std::string args = R"("operation":"all_reduce","step":)" + std::to_string(step);
      text.span(rank, 0, "step", "step", t, t + 100, R"("step":)" + std::to_string(step))
          .span(rank, 0, "backward", "backward", t, end)
          .span(rank, 0, "wait", "wait", end, t + 100)
          .span(rank, 2 + 8 * rank, "communicate", "a", end, t + 100, args);
    }
  }
  const analysis figures = text.analysis();
  BOOST_TEST(figures.blames.size() == 2U);
  BOOST_TEST(figures.verdicts.at(0).sentence ==
             "15 % of the step is waiting for ranks that arrive later, now one and now another");
}

BOOST_AUTO_TEST_CASE(a_late_rank_delays_all_transfers_after_it, *utf::tolerance(1e-9)) {
  // Rank 1 is 10 ms late for the first; the second, for which it is not, follows the first at once. Had rank 1 been
  // there at 10, the first would have ended at 15 and the second at 25, which is 5 ms of waiting for data.
  trace_text text{2};
  for (const int rank : {0, 1}) {
    const double late = 10.0 * rank;
    text.span(rank, 0, "step", "step", 0, 40, R"("step":0)")
        .span(rank, 0, "backward", "backward", 0, 20 + late)
        .span(rank, 0, "wait", "wait", 20 + late, 35)
        .span(rank, 2, "communicate", "a", 10 + late, 25,
              R"("operation":"all_reduce","all_arrived_us":20000,"last_rank":1)")
        .span(rank, 2, "communicate", "b", 12 + late, 35,
              R"("operation":"all_reduce","all_arrived_us":12000,"last_rank":0)");
  }
  const analysis figures = text.analysis();
  BOOST_TEST(ms(figures.ranks[0].waits_for_rank) == 10.0);
  BOOST_TEST(ms(figures.ranks[0].waits_for_data) == 5.0);
  BOOST_TEST(ms(figures.ranks[1].waits_for_rank) == 0.0);
  BOOST_TEST(ms(figures.ranks[1].waits_for_data) == 5.0);
  BOOST_REQUIRE(figures.transfers.size() == 2U);
  BOOST_TEST(figures.transfers[0].name == "b");
  BOOST_TEST(ms(figures.transfers[0].transferring) == 36.0);
  BOOST_TEST(ms(figures.transfers[1].waiting) == 10.0);
  BOOST_TEST(ms(figures.transfers[1].transferring) == 10.0);
}

BOOST_AUTO_TEST_CASE(messages_count_once_and_receives_wait_for_the_sender, *utf::tolerance(1e-9)) {
  const analysis figures =
      trace_text{3}
          .span(0, 2, "communicate", "send", 8, 10, R"("operation":"send","bytes":500,"peer":1)")
          .span(1, 0, "step", "step", 0, 12)
          .span(1, 0, "wait", "wait", 2, 10)
          .span(1, 2, "communicate", "receive", 2, 10, R"("operation":"receive","bytes":500,"peer":0)")
          .span(2, 2, "communicate", "receive", 2, 11, R"("operation":"receive","bytes":20,"peer":0)")
          .arrow(7, 0, 8, 1, 9.5)
          .analysis();
  BOOST_REQUIRE(figures.links.size() == 2U);
  BOOST_TEST(figures.links[0].from == 0);
  BOOST_TEST(figures.links[0].to == 1);
  BOOST_TEST(figures.links[0].messages == 1);
  BOOST_TEST(figures.links[0].bytes == 500);
  BOOST_TEST(figures.links[1].bytes == 20);
  BOOST_TEST(figures.ranks[0].sent_bytes == 520);
  BOOST_TEST(figures.ranks[1].received_bytes == 500);
  BOOST_TEST(ms(figures.ranks[1].waits_for_rank) == 6.0);
  BOOST_TEST(ms(figures.ranks[1].waits_for_data) == 2.0);
  BOOST_TEST(verdict_of(figures, "wait_for_rank").sentence ==
             "50 % of the step is waiting for rank 0, which serves others");
  BOOST_TEST(verdict_of(figures, "busy_server").sentence ==
             "Rank 0 sends or receives 100 % of all bytes between pairs of ranks");
}

BOOST_AUTO_TEST_CASE(receives_that_begin_together_belong_to_the_arrows_that_end_with_them, *utf::tolerance(1e-9)) {
  const auto args = [](const char* bucket) {
    return R"("operation":"receive","bytes":5,"peer":0,"bucket":")" + std::string{bucket} + "\"";
  };
  const analysis figures = trace_text{2}
                               .span(1, 2, "communicate", "a", 0, 4, args("a"))
                               .span(1, 2, "communicate", "b", 0, 9, args("b"))
                               .span(1, 2, "communicate", "c", 1, 6, args("c"))
                               .arrow(1, 0, 3, 1, 4)
                               .arrow(2, 0, 8, 1, 9)
                               .arrow(3, 0, 4, 1, 6)
                               .analysis();
  BOOST_REQUIRE(figures.transfers.size() == 3U);
  for (const transfer_figures& each : figures.transfers) {
    BOOST_TEST(ms(each.transferring) == (each.name == "c" ? 2.0 : 1.0), each.name);
  }
}

BOOST_AUTO_TEST_CASE(evaluating_and_copying_too_much_is_named) {
  trace_text text{1};
  for (int step = 0; step < 3; ++step) {
    const double t = 21.0 * step;
    text.span(0, 0, "step", "step", t, t + 21)
        .span(0, 0, "forward", "forward", t, t + 21)
        .span(0, 4, "copy", "copy", t + 5, t + 7.1, R"("bytes":3000000000)");
  }
  const analysis figures = text.span(0, 0, "evaluate", "evaluate", 63, 100).analysis();
  BOOST_TEST(verdict_of(figures, "evaluate").sentence ==
             "Evaluation takes 37 % of the run (1 evaluation of 37.0 ms, as long as 1.76 steps): evaluate less often");
  BOOST_TEST(verdict_of(figures, "copy").sentence == "Copies of 3.00 GB a step take 10 % of the step");
  BOOST_TEST(figures.verdicts[0].kind == "evaluate");  // what costs most comes first
  BOOST_TEST(figures.verdicts.size() == 2U);
}

BOOST_AUTO_TEST_CASE(steps_that_take_longer_are_explained) {
  trace_text text{1};
  double t = 0;
  for (int step = 0; step < 40; ++step) {
    const double wait = step % 10 == 9 ? 8 : 0, first = step == 0 ? 90 : 0;
    text.span(0, 0, "step", "step", t, t + 10 + wait + first)
        .span(0, 0, "input", "input", t, t + wait)
        .span(0, 0, "forward", "forward", t + wait, t + wait + 10 + first);
    t += 10 + wait + first;
  }
  const analysis figures = text.analysis();
  BOOST_TEST(verdict_of(figures, "first_step").sentence == "The first step takes 10.0 times the median step");
  BOOST_TEST(verdict_of(figures, "slow_steps").sentence ==
             "1 step in 20 takes 1.80 times the median or more; most of its extra time is input");
  BOOST_TEST(figures.step_time.count == 40U);
}

BOOST_AUTO_TEST_CASE(what_is_uncertain_is_said) {
  const analysis fine =
      trace_text{1}.span(0, 0, "step", "step", 0, 10).span(0, 0, "forward", "forward", 0, 10).analysis();
  BOOST_TEST(fine.verdicts.at(0).sentence == "Nothing stands out: 100 % of the step is compute");
  BOOST_TEST(fine.cautions.empty());

  const analysis doubtful = trace_text{2}
                                .span(0, 0, "step", "step", 0, 10)
                                .span(0, 0, "sleep", "x", 0, 1)
                                .event(R"({"ph":"C","pid":0,"name":"counter","ts":1})")
                                .event(R"({"ph":"s","pid":0,"tid":2,"id":"lonely","ts":1})")
                                .other(R"("dropped":[0,12],"clock_error_us":[0,500.5])")
                                .analysis();
  BOOST_REQUIRE(doubtful.cautions.size() == 6U);
  BOOST_TEST(doubtful.cautions[0].find("Rank 1 lost 12 spans") == 0U);
  BOOST_TEST(doubtful.cautions[1].find("agree to 500 us only, 5.0 % of a step") != std::string::npos);
  BOOST_TEST(doubtful.cautions[2] == "Of 1 rank there is no span at all.");
  BOOST_TEST(doubtful.cautions[3].find("(ph 'C' for one)") != std::string::npos);
  BOOST_TEST(doubtful.cautions[4].find("('sleep' for one)") != std::string::npos);
  BOOST_TEST(doubtful.cautions[5].find("1 arrows have only one end") == 0U);
}

BOOST_AUTO_TEST_CASE(distribution_of_known_times, *utf::tolerance(1e-9)) {
  const distribution known = distribution_of({4, 1, 3, 2, 10});
  BOOST_TEST(known.mean == 4.0);
  BOOST_TEST(known.median == 3.0);
  BOOST_TEST(known.p5 == 1.2);
  BOOST_TEST(known.p95 == 8.8);
  BOOST_TEST(known.least == 1.0);
  BOOST_TEST(known.greatest == 10.0);
  BOOST_TEST(known.jitter == 1.4826);  // distances 0 1 1 2 7
  BOOST_TEST(distribution_of({}).median == 0.0);
}

BOOST_AUTO_TEST_CASE(spans_of_a_row_do_not_overlap) {
  const trace recorded = trace_text{1}
                             .span(0, 0, "step", "step", 0, 10)
                             .span(0, 0, "forward", "forward", 0, 5)
                             .span(0, 0, "backward", "backward", 5, 10)
                             .span(0, 2, "communicate", "a", 0, 4)
                             .span(0, 2, "communicate", "b", 2, 6)
                             .span(0, 2, "communicate", "c", 4, 8)
                             .trace();
  std::size_t hidden = 0;
  const std::vector<row> rows = rows_of(recorded, hidden);
  BOOST_REQUIRE(rows.size() == 4U);
  BOOST_TEST(rows[0].spans.size() == 1U);
  BOOST_TEST(rows[1].spans.size() == 2U);
  BOOST_TEST(rows[2].spans.size() == 2U);  // a and c
  BOOST_TEST(rows[3].spans.size() == 1U);
  BOOST_TEST(hidden == 0U);

  trace_text crowd{1};
  for (int i = 0; i < 40; ++i) {
    crowd.span(0, 2, "communicate", "m", i, 100);
  }
  BOOST_TEST(rows_of(crowd.trace(), hidden).size() == std::size_t{most_rows});
  BOOST_TEST(hidden == 8U);
}

BOOST_AUTO_TEST_CASE(figures_are_written_for_other_programs, *utf::tolerance(1e-9)) {
  const trace recorded = slow_input(true)
                             .span(0, 1, "forward", "=1+1,\\\"x\\\"", 0, 1)
                             .other(R"("model":"resnet\nfifty","batch_size":64,"hosts":["a","b"])")
                             .trace();
  const analysis figures = analyse(recorded);
  const auto json = nlohmann::json::parse(json_text(figures_json(recorded, figures)));
  BOOST_TEST(json["step_ms"]["median"].get<double>() == 100.0);
  BOOST_TEST(json["breakdown_ms"]["wait"].get<double>() == 20.5);
  BOOST_TEST(json["images_per_second"].get<double>() == 1280.0);
  BOOST_TEST(json["by_rank"][1]["host"].get<std::string>() == "b");
  BOOST_TEST(json["verdicts"][0]["sentence"].get<std::string>() == "41 % of the step is waiting for rank 1 in input");
  BOOST_TEST(json["waiting"][0]["cause"].get<std::string>() == "input");

  const std::string csv = figures_csv(recorded, figures);
  BOOST_TEST(csv.find("table,rank,item,figure,value,unit\n") == 0U);
  BOOST_TEST(csv.find("\nrank,0,wait,in steps,41,ms a step\n") != std::string::npos);
  BOOST_TEST(csv.find("\nlayer,,\"'=1+1,\"\"x\"\"\",forward,1,ms\n") != std::string::npos);
  BOOST_TEST(csv.find("\nrun,,\"resnet\nfifty\",ranks,2,\n") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
