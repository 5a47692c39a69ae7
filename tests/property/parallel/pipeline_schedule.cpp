// SPDX-License-Identifier: BSL-1.0
//
// Schedules of pipelines against the formulas of the papers, and against a plain simulation of all their sizes.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradus/core/error.hpp"
#include "gradus/core/random.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"

namespace {

namespace pipeline = gradus::parallel;
using pipeline::pipeline_action;
using pipeline::pipeline_costs;
using pipeline::pipeline_pass;
using pipeline::pipeline_schedule;

/// The makespan by definition: times of actions grow until they all hold, from none. The schedule must end.
double makespan_by_relaxation(const pipeline_schedule& schedule, const pipeline_costs& costs) {
  using key = std::tuple<int, int, int>;
  std::map<key, double> ends;
  const auto end_of = [&](pipeline_pass pass, int stage, int micro_batch) {
    return ends[{static_cast<int>(pass), stage, micro_batch}];
  };
  double makespan = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      double time = 0;
      for (const auto& [pass, stage, micro_batch] : schedule.of_rank(rank)) {
        if (pass == pipeline_pass::forward && stage > 0) {
          time = std::max(time, end_of(pass, stage - 1, micro_batch) + costs.transfer);
        }
        if ((pass == pipeline_pass::backward || pass == pipeline_pass::input_gradients) &&
            stage + 1 < schedule.stages()) {
          time = std::max(time, end_of(pass, stage + 1, micro_batch) + costs.transfer);
        }
        time += costs.of(pass);
        double& end = ends[{static_cast<int>(pass), stage, micro_batch}];
        changed = changed || end != time;
        end = time;
        makespan = std::max(makespan, time);
      }
    }
  }
  return makespan;
}

std::string pipeline_message(const pipeline_schedule& schedule) {
  try {
    simulate_schedule(schedule);
  } catch (const gradus::configuration_error& failure) {
    return failure.what();
  }
  return "no error";
}

bool pipeline_says(const std::string& message, std::string_view words) {
  BOOST_TEST_INFO(message);
  return message.find(words) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pipeline_schedules)

BOOST_AUTO_TEST_CASE(have_the_bubbles_and_the_memory_of_their_papers) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 24; ++micro_batches) {
      BOOST_TEST_CONTEXT(ranks << " ranks, " << micro_batches << " micro-batches") {
        const auto gpipe = simulate_schedule(pipeline::gpipe_schedule(ranks, micro_batches));
        const auto alternating = simulate_schedule(pipeline::one_f_one_b_schedule(ranks, micro_batches));
        const auto zero_bubble = simulate_schedule(pipeline::zero_bubble_schedule(ranks, micro_batches));
        BOOST_TEST(gpipe.makespan == 3.0 * (micro_batches + ranks - 1));
        BOOST_TEST(alternating.makespan == 3.0 * (micro_batches + ranks - 1));
        BOOST_TEST(alternating.bubble == (ranks - 1.0) / (micro_batches + ranks - 1.0),
                   boost::test_tools::tolerance(1e-12));
        BOOST_TEST(zero_bubble.makespan <= alternating.makespan);
        if (micro_batches >= ranks) {
          BOOST_TEST(zero_bubble.makespan == 3.0 * micro_batches + ranks - 1);
        }
        for (int stage = 0; stage < ranks; ++stage) {
          const auto at = static_cast<std::size_t>(stage);
          BOOST_TEST(gpipe.stored[at] == micro_batches);
          BOOST_TEST(alternating.stored[at] == std::min(micro_batches, ranks - stage));
          BOOST_TEST(zero_bubble.stored[at] <= std::min(micro_batches, ranks));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(interleaved_divide_the_bubble) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int micro_batches = 1; micro_batches <= 24; ++micro_batches) {
        BOOST_TEST_CONTEXT(ranks << " ranks with " << chunks << " stages, " << micro_batches << " micro-batches") {
          const auto found = simulate_schedule(pipeline::interleaved_schedule(ranks, micro_batches, chunks));
          const double busy = 3.0 * micro_batches * chunks;
          if (micro_batches % ranks == 0) {
            BOOST_TEST(found.makespan == busy + 3.0 * (ranks - 1));
          } else {
            BOOST_TEST(found.makespan >= busy + 3.0 * (ranks - 1));
            BOOST_TEST(found.makespan <= chunks * 3.0 * (micro_batches + ranks - 1));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(take_as_long_as_their_dependencies) {
  const gradus::random_stream stream{5, "pipeline"};
  std::uint64_t next = 0;
  const auto below = [&](std::uint64_t bound) { return static_cast<int>(stream.below(bound, next++)); };
  for (int i = 0; i < 300; ++i) {
    const int ranks = 1 + below(7);
    const int micro_batches = 1 + below(12);
    const pipeline_costs costs{.forward = 0.5 + below(8),
                               .input_gradients = 0.25 * below(9),
                               .weight_gradients = 0.25 * below(9),
                               .transfer = 0.125 * below(9)};
    for (const pipeline_schedule& schedule :
         {pipeline::gpipe_schedule(ranks, micro_batches), pipeline::one_f_one_b_schedule(ranks, micro_batches),
          pipeline::interleaved_schedule(ranks, micro_batches, 1 + below(3)),
          pipeline::zero_bubble_schedule(ranks, micro_batches)}) {
      BOOST_TEST_CONTEXT(schedule.name() << ", " << ranks << " ranks, " << micro_batches << " micro-batches") {
        BOOST_TEST(simulate_schedule(schedule, costs).makespan == makespan_by_relaxation(schedule, costs));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(that_are_wrong_are_refused) {
  using pass = pipeline_pass;
  using actions = std::vector<std::vector<pipeline_action>>;
  // Backward of micro-batch 1 first on rank 1, of micro-batch 0 first on rank 0, which holds back what the other needs.
  const actions crossed{{{pass::forward, 0, 0}, {pass::backward, 0, 0}, {pass::forward, 0, 1}, {pass::backward, 0, 1}},
                        {{pass::forward, 1, 1}, {pass::backward, 1, 1}, {pass::forward, 1, 0}, {pass::backward, 1, 0}}};
  const std::string message = pipeline_message({"crossed", 2, 2, crossed});
  BOOST_TEST(pipeline_says(message, "rank 0 waiting at backward of micro-batch 0 in stage 0"));
  BOOST_TEST(pipeline_says(message, "for backward of micro-batch 0 in stage 1 on rank 1"));

  const actions whole{{{pass::forward, 0, 0}, {pass::input_gradients, 0, 0}, {pass::weight_gradients, 0, 0}}};
  BOOST_TEST(pipeline_message({"whole", 1, 1, whole}) == "no error");
  for (std::size_t left_out = 0; left_out < 3; ++left_out) {
    actions less = whole;
    less[0].erase(less[0].begin() + static_cast<std::ptrdiff_t>(left_out));
    BOOST_TEST(pipeline_message({"less", 1, 1, less}) != "no error");
    actions more = whole;
    more[0].push_back(whole[0][left_out]);
    BOOST_TEST(pipeline_says(pipeline_message({"more", 1, 1, more}), "twice"));
  }
  actions both = whole;
  both[0].push_back({pass::backward, 0, 0});
  BOOST_TEST(pipeline_says(pipeline_message({"both", 1, 1, both}), "twice"));
  BOOST_TEST(pipeline_says(pipeline_message({"elsewhere", 2, 1, {{{pass::forward, 1, 0}}, {}}}), "on rank 0"));
  BOOST_TEST(pipeline_says(pipeline_message({"outside", 1, 1, {{{pass::forward, 0, 1}}}}), "micro-batches 0 to 0"));
  BOOST_CHECK_THROW(pipeline::one_f_one_b_schedule(0, 4), gradus::configuration_error);
  BOOST_CHECK_THROW(pipeline::interleaved_schedule(4, 4, 0), gradus::configuration_error);
  BOOST_CHECK_THROW(simulate_schedule(pipeline::gpipe_schedule(2, 2), {.forward = -1}), gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(can_be_drawn) {
  BOOST_TEST(schedule_picture(simulate_schedule(pipeline::one_f_one_b_schedule(2, 2))) ==
             "rank 0 F0F1....B0B0..B1B1\n"
             "rank 1 ..F0B0B0F1B1B1....\n");
}

BOOST_AUTO_TEST_SUITE_END()
