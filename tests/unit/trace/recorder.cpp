// SPDX-License-Identifier: BSL-1.0
//
// The recorder keeps the newest spans of every thread, clocks are aligned, and a step's time is told apart.
#include <boost/test/unit_test.hpp>

#include <atomic>   // std::atomic
#include <chrono>   // std::chrono
#include <cmath>    // std::abs
#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::int64_t
#include <cstdlib>  // std::free, std::malloc
#include <cstring>  // std::memcpy
#include <string>   // std::string
#include <thread>   // std::this_thread, std::thread
#include <vector>   // std::vector

#include "gradus/comm/threads.hpp"
#include "gradus/trace/breakdown.hpp"
#include "gradus/trace/clock_alignment.hpp"
#include "gradus/trace/recorder.hpp"
#include "gradus/trace/rule_watch.hpp"
#include "gradus/trace/staging.hpp"

namespace {

namespace comm = gradus::comm;
namespace trace = gradus::trace;
using trace::category;
using trace::track;

trace::span numbered(std::int64_t number) {
  return {.begin = number * 1'000'000,
          .end = number * 1'000'000 + 1,
          .bytes = number,
          .step = static_cast<std::int32_t>(number)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_recorder)

BOOST_AUTO_TEST_CASE(a_full_ring_keeps_the_newest_and_counts_the_rest) {
  trace::recorder recorder{{.capacity = 6}};  // becomes 8
  for (int i = 0; i < 21; ++i) {
    trace::span one = numbered(i);
    recorder.push(one);
  }
  const trace::recording have = recorder.read();
  BOOST_TEST(have.dropped == 13U);
  BOOST_TEST_REQUIRE(have.spans.size() == 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    BOOST_TEST(have.spans[i].bytes == static_cast<std::int64_t>(13 + i));
  }
  BOOST_CHECK_THROW(trace::recorder{{.capacity = 0}}, gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(scopes_know_time_thread_step_and_bytes) {
  trace::recorder recorder;
  recorder.set_step(7);
  const std::string text = "made at run time";
  const trace::name made = recorder.intern(text);
  BOOST_TEST(made.text() == recorder.intern(text).text());  // the same pointer
  {
    trace::scope outer{recorder, category::evaluate, made, "subject"};
    outer.bytes(12);
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  recorder.enable(false);
  { const trace::scope unseen{recorder, category::log, "unseen"}; }
  recorder.enable(true);
  recorder.set_step(-1);
  std::thread{[&] { const trace::scope elsewhere{recorder, category::copy, "elsewhere"}; }}.join();
  const auto spans = recorder.read().spans;
  BOOST_TEST_REQUIRE(spans.size() == 2U);
  BOOST_TEST(spans[0].title.text() == text);
  BOOST_TEST(spans[0].subject.text() == std::string{"subject"});
  BOOST_TEST(spans[0].bytes == 12);
  BOOST_TEST(spans[0].step == 7);
  BOOST_TEST((spans[0].where == track::step && spans[0].what == category::evaluate && spans[0].thread == 0));
  const std::int64_t took = spans[0].end - spans[0].begin;
  BOOST_TEST(took >= 1'900'000);  // nanoseconds, whatever the clock's ticks are
  BOOST_TEST(took < 1'000'000'000);
  BOOST_TEST((spans[1].where == track::other && spans[1].thread == 1 && spans[1].step == -1));
  BOOST_TEST(spans[1].begin >= spans[0].end);
}

BOOST_AUTO_TEST_CASE(staged_copies_are_seen) {
  struct stand_in {
    bool on_device(const void* /*memory*/) const { return true; }
    void* allocate(std::size_t bytes) const { return std::malloc(bytes); }
    void deallocate(void* memory, std::size_t /*bytes*/) const noexcept { std::free(memory); }
    void to_host(void* host, const void* device, std::size_t bytes) const { std::memcpy(host, device, bytes); }
    void to_device(void* device, const void* host, std::size_t bytes) const { std::memcpy(device, host, bytes); }
  };
  trace::recorder recorder;
  trace::traced_staging staging{recorder, stand_in{}};
  static_assert(comm::staging<decltype(staging)>);
  const std::int64_t from = 7;
  std::int64_t to = 0;
  staging.to_host(&to, &from, sizeof(to));
  staging.to_device(&to, &from, 4);
  BOOST_TEST(to == 7);
  const auto have = recorder.read();
  BOOST_TEST_REQUIRE(have.spans.size() == 2U);
  BOOST_TEST((have.spans[0].what == category::copy && have.spans[0].bytes == 8));
  BOOST_TEST((have.spans[1].what == category::copy && have.spans[1].bytes == 4));
}

BOOST_AUTO_TEST_CASE(parts_of_named_memory_have_its_name) {
  trace::recorder recorder;
  const std::byte memory[64]{};
  recorder.name_memory({memory, 32}, "first");
  recorder.name_memory({memory + 32, 32}, "second");
  BOOST_TEST((recorder.memory_name(memory, 32).text() == std::string{"first"}));
  BOOST_TEST((recorder.memory_name(memory + 40, 24).text() == std::string{"second"}));
  BOOST_TEST(recorder.memory_name(memory + 16, 32).empty());
  BOOST_TEST(recorder.memory_name(memory, 0).empty());
}

BOOST_AUTO_TEST_CASE(two_recorders_on_one_thread_do_not_mix) {
  trace::recorder first;
  trace::recorder second;
  for (int i = 0; i < 3; ++i) {
    { const trace::scope one{first, category::log, "first"}; }
    { const trace::scope one{second, category::log, "second"}; }
  }
  for (const auto& one : first.read().spans) {
    BOOST_TEST(one.title.text() == std::string{"first"});
  }
  BOOST_TEST(second.read().spans.size() == 3U);
}

BOOST_AUTO_TEST_CASE(reading_while_threads_record_gives_whole_spans) {
  trace::recorder recorder{{.capacity = 64}};
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&] {
      for (std::int64_t i = 0; !stop; ++i) {
        trace::span one = numbered(i % 1000);
        recorder.push(one);
      }
    });
  }
  int torn = 0;
  std::size_t seen = 0;
  for (int i = 0; i < 2000 || seen < 1000; ++i) {
    for (const trace::span& one : recorder.read().spans) {
      torn += one.bytes != one.step ? 1 : 0;
      ++seen;
    }
  }
  stop = true;
  for (std::thread& each : writers) {
    each.join();
  }
  BOOST_TEST(torn == 0);
  BOOST_TEST(recorder.read().spans.size() > 0U);
}

BOOST_AUTO_TEST_CASE(clocks_that_differ_are_aligned) {
  // Rank r's clock is r * 1000 s ahead and r per mille too fast: in 50 ms it drifts by r * 50 us.
  struct seen {
    trace::clock_offset first;
    trace::clock_offset last;
    std::int64_t true_time;
    std::int64_t own_time;
  };
  std::vector<seen> ranks(3);
  const std::int64_t start = trace::detail::steady_nanoseconds();
  comm::run_ranks(3, [&](comm::threads& world) {
    const auto own = [&](std::int64_t time) {
      return time + world.rank() * (std::int64_t{1'000'000'000'000} + (time - start) / 1000);
    };
    const auto clock = [&] { return own(trace::detail::steady_nanoseconds()); };
    seen& mine = ranks[static_cast<std::size_t>(world.rank())];
    mine.first = trace::measure_clock(world, clock);
    std::this_thread::sleep_for(std::chrono::milliseconds{25});
    mine.true_time = trace::detail::steady_nanoseconds();
    mine.own_time = own(mine.true_time);
    std::this_thread::sleep_for(std::chrono::milliseconds{25});
    mine.last = trace::measure_clock(world, clock);
  });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const seen& mine = ranks[rank];
    const trace::clock_alignment clock{mine.first, mine.last};
    const auto off = static_cast<double>(std::abs(clock.of_rank_0(mine.own_time) - mine.true_time));
    BOOST_TEST(off <= clock.error() + 100, "rank " << rank << " is off by " << off << " of " << clock.error());
    BOOST_TEST((rank == 0) == (clock.error() == 0));
    BOOST_TEST(clock.error() < 5e6);
  }
  // A single offset, extrapolated, would be off by the drift.
  BOOST_TEST(ranks[2].last.ahead - ranks[2].first.ahead > 80e3 - ranks[2].first.error - ranks[2].last.error);
}

BOOST_AUTO_TEST_CASE(clocks_that_cannot_be_told_apart_are_one) {
  const trace::clock_alignment clock{{.at = 0, .ahead = 400, .error = 500}, {.at = 1000, .ahead = -300, .error = 600}};
  BOOST_TEST(clock.of_rank_0(123456) == 123456);
  BOOST_TEST(clock.error() == 600);
}

BOOST_AUTO_TEST_CASE(pieces_of_a_pass_are_one_update_as_long_as_they_are) {
  trace::recorder recorder;
  trace::rule_watch watch{recorder};
  const auto rule = [] { std::this_thread::sleep_for(std::chrono::milliseconds{1}); };
  watch.run(rule);
  watch.run(rule);
  {
    const auto pass = watch.pass();
    for (int piece = 0; piece < 3; ++piece) {
      watch.run(rule);
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
    }
  }
  { const auto pass = watch.pass(); }  // of nothing
  recorder.enable(false);
  watch.run(rule);
  const trace::recording have = recorder.read();
  BOOST_TEST_REQUIRE(have.spans.size() == 3);
  for (const trace::span& each : have.spans) {
    BOOST_TEST((each.what == category::update && each.where == track::step));
  }
  BOOST_TEST(have.spans[2].end - have.spans[2].begin >= 3'000'000);
  BOOST_TEST(have.spans[2].begin - have.spans[1].end >= 80'000'000);  // at the end, not from the first piece on
}

BOOST_AUTO_TEST_CASE(a_moment_belongs_to_the_innermost_span) {
  const auto ms = [](double begin, double end, category what, track where = track::step) {
    return trace::span{.begin = static_cast<std::int64_t>(begin * 1e6),
                       .end = static_cast<std::int64_t>(end * 1e6),
                       .what = what,
                       .where = where};
  };
  const std::vector<trace::span> spans{ms(0, 5, category::wait),  // before the first step: not counted
                                       ms(10, 30, category::step),
                                       ms(10, 11, category::input),
                                       ms(11, 15, category::forward),
                                       ms(11, 14, category::forward, track::compute),
                                       ms(12, 13, category::copy),
                                       ms(15, 24, category::backward),
                                       ms(16, 22, category::communicate, track::communicate),
                                       ms(18, 28, category::communicate, track::communicate),
                                       ms(24, 29, category::exchange),
                                       ms(24, 25, category::update),
                                       ms(25, 28, category::wait),
                                       ms(29, 29.5, category::log),
                                       ms(30, 40, category::step),
                                       ms(31, 32, category::input),
                                       ms(31, 35, category::input, track::input),
                                       ms(40, 46, category::evaluate)};
  const trace::breakdown have = trace::breakdown_of(spans);
  BOOST_TEST(have.steps == 2);
  const auto close = boost::test_tools::tolerance(1e-12);
  BOOST_TEST(have.total == 18.0, close);
  BOOST_TEST(have.forward == 1.5, close);
  BOOST_TEST(have.copy == 0.5, close);
  BOOST_TEST(have.backward == 4.5, close);
  BOOST_TEST(have.exchange == 0.5, close);
  BOOST_TEST(have.update == 0.5, close);
  BOOST_TEST(have.wait == 1.5, close);
  BOOST_TEST(have.input == 1.0, close);
  BOOST_TEST(have.log == 0.25, close);
  BOOST_TEST(have.evaluate == 3.0, close);
  BOOST_TEST(have.communicate == 6.0, close);
  BOOST_TEST(have.other == 4.75, close);
  BOOST_TEST(trace::breakdown_of(std::vector<trace::span>{}).total == 0);
}

BOOST_AUTO_TEST_CASE(who_comes_last_makes_the_others_wait) {
  const auto part = [](std::int64_t begin, std::int64_t end) {
    return trace::span{.begin = begin,
                       .end = end,
                       .step = 0,
                       .what = category::communicate,
                       .where = track::communicate,
                       .operation = static_cast<std::uint8_t>(comm::call_kind::all_reduce)};
  };
  const trace::span step{.begin = 100, .end = 9'000'000, .step = 0};
  const trace::timeline all{{{.host = "a", .spans = {step, part(1'000'100, 6'000'000)}},
                             {.host = "b", .spans = {step, part(4'000'100, 6'000'000)}},
                             {.host = "c", .spans = {step, part(3'000'100, 6'000'000)}}}};
  const auto last = all.all_arrived(all.ranks()[0].spans[1]);
  BOOST_TEST_REQUIRE(last.has_value());
  BOOST_TEST(last->rank == 1);
  BOOST_TEST(last->time == 4'000'000);
  const auto have = trace::breakdown_of(all);
  BOOST_TEST(have[0].wait_for_ranks == 3.0, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(have[1].wait_for_ranks == 0.0);
  BOOST_TEST(have[1].made_ranks_wait == 4.0, boost::test_tools::tolerance(1e-9));
  const trace::timeline some{
      {{.host = "a", .spans = {part(1, 2)}}, {.host = "b", .spans = {}}}};  // one rank has lost it
  BOOST_TEST(!some.all_arrived(some.ranks()[0].spans[0]).has_value());
}

BOOST_AUTO_TEST_CASE(a_timeline_can_begin_with_its_steps) {
  const auto span = [](std::int64_t begin, std::int64_t end, category what) {
    return trace::span{.begin = begin, .end = end, .what = what};
  };
  trace::timeline all{{{.host = "worker", .spans = {span(100, 200, category::step)}},
                       {.host = "server",
                        .spans = {span(10, 20, category::communicate), span(90, 110, category::communicate),
                                  span(150, 160, category::communicate)}}}};
  all.begin_with_steps();
  BOOST_TEST_REQUIRE(all.ranks()[1].spans.size() == 2U);
  BOOST_TEST(all.ranks()[1].spans[0].begin == 0);
  BOOST_TEST(all.ranks()[0].spans[0].begin == 10);
}

BOOST_AUTO_TEST_CASE(a_broadcast_waits_only_for_its_root) {
  const auto part = [](std::int64_t begin, std::int64_t end) {
    return trace::span{.begin = begin,
                       .end = end,
                       .peer = 1,
                       .what = category::communicate,
                       .where = track::communicate,
                       .operation = static_cast<std::uint8_t>(comm::call_kind::broadcast)};
  };
  const trace::timeline all{{{.host = "early", .spans = {part(0, 60)}},
                             {.host = "root", .spans = {part(40, 50)}},
                             {.host = "late", .spans = {part(90, 95)}}}};
  const auto arrived = [&](std::size_t rank) { return all.all_arrived(all.ranks()[rank].spans[0]); };
  BOOST_TEST_REQUIRE((arrived(0).has_value() && arrived(1).has_value() && arrived(2).has_value()));
  BOOST_TEST(arrived(0)->time == 40);
  BOOST_TEST(arrived(0)->rank == 1);
  BOOST_TEST(arrived(1)->time == 40);
  BOOST_TEST(arrived(2)->time == 90);  // it did not wait at all
  const trace::timeline lost{{{.host = "early", .spans = {part(0, 60)}}, {.host = "root", .spans = {}}}};
  BOOST_TEST(!lost.all_arrived(lost.ranks()[0].spans[0]).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
