// SPDX-License-Identifier: BSL-1.0
//
// Trainings in stages whose bubbles and causes follow from arithmetic.
#include <boost/test/unit_test.hpp>

#include <algorithm>  // std::any_of, std::find_if
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "figures.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"
#include "page.hpp"
#include "trace_text.hpp"

namespace {

using namespace gradus::report;
namespace parallel = gradus::parallel;
namespace utf = boost::unit_test;
using parallel::pipeline_costs;
using parallel::pipeline_pass;

/// A training whose ranks follow a schedule to the millisecond. What a rank waits it waits for a message.
struct training {
  parallel::pipeline_schedule schedule;
  std::vector<pipeline_costs> costs;  // of each stage, milliseconds
  int replicas = 1;
  int steps = 2;
  double update = 0;  // after the passes, milliseconds

  void write(trace_text& text, double begin = 0, int first_step = 0, int first_rank = 0) const;
  trace_text text() const {
    trace_text result{schedule.ranks() * replicas};
    write(result);
    return result;
  }
};

std::string step_args(int step) {
  return R"("step":)" + std::to_string(step);
}

void write_pass(trace_text& text, int rank, int step, const parallel::pipeline_action& what, double begin, double end) {
  const char* const names[] = {"forward", "backward", "gradients of inputs", "gradients of weights"};
  text.span(rank, 0, what.pass == pipeline_pass::forward ? "forward" : "backward",
            names[static_cast<std::size_t>(what.pass)], begin, end,
            R"("stage":)" + std::to_string(what.stage) + R"(,"micro_batch":)" + std::to_string(what.micro_batch) + "," +
                step_args(step));
}

/// A message of a stage's result to its neighbour, from the end of its pass on.
void write_message(trace_text& text, int from, int to, int step, bool gradients, double sent, double taken) {
  static int arrows = 0;
  const std::string name = gradients ? "gradients of 'cut'" : "values of 'cut'";
  const std::string common = R"("bytes":1000000,"bucket":")" + name + "\"," + step_args(step) + R"(,"operation":)";
  text.span(from, 2, "communicate", ("send " + name).c_str(), sent, sent + taken,
            common + R"("send","peer":)" + std::to_string(to));
  text.span(to, 2, "communicate", ("receive " + name).c_str(), sent - 0.25, sent + taken,
            common + R"("receive","peer":)" + std::to_string(from));
  text.arrow(++arrows, from, sent, to, sent + taken - 0.001);
}

void training::write(trace_text& text, double begin, int first_step, int first_rank) const {
  const parallel::simulated_pipeline done = parallel::simulate_schedule(schedule, costs);
  for (int step = 0; step < steps; ++step) {
    for (int replica = 0; replica < replicas; ++replica) {
      const int first = first_rank + replica * schedule.ranks();
      const double start = begin + step * (done.makespan + update), end = start + done.makespan;
      for (int position = 0; position < schedule.ranks(); ++position) {
        const int rank = first + position;
        text.span(rank, 0, "step", "step", start, end + update, step_args(first_step + step));
        double now = start;
        const auto wait = [&](double until, const char* name) {
          if (until > now) {
            text.span(rank, 0, "exchange", "exchange", now, until);
            text.span(rank, 0, "wait", name, now, until, R"("for":")" + std::string{name} + "\"");
          }
        };
        for (const parallel::pipeline_span& each : done.ranks[static_cast<std::size_t>(position)]) {
          const int stage = each.action.stage;
          const bool forward = each.action.pass == pipeline_pass::forward;
          wait(start + each.begin, forward ? "values of 'cut'" : "gradients of 'cut'");
          now = start + each.end;
          write_pass(text, rank, first_step + step, each.action, start + each.begin, now);
          const int next = forward ? stage + 1 : stage - 1;
          if (each.action.pass != pipeline_pass::weight_gradients && next >= 0 && next < schedule.stages()) {
            write_message(text, rank, first + schedule.rank_of(next), first_step + step, !forward, now,
                          costs[static_cast<std::size_t>(forward ? stage : next)].transfer);
          }
        }
        wait(end, position > 0 ? "values of 'cut'" : "gradients of 'cut'");
        if (update > 0) {
          text.span(rank, 0, "update", "update", end, end + update);
        }
      }
    }
  }
}

training equal_stages(parallel::pipeline_schedule schedule) {
  const auto stages = static_cast<std::size_t>(schedule.stages());
  return {std::move(schedule), std::vector<pipeline_costs>(stages, {.forward = 1, .weight_gradients = 1})};
}

const verdict& bubble_of(const analysis& figures) {
  const auto found = std::find_if(figures.verdicts.begin(), figures.verdicts.end(),
                                  [](const verdict& each) { return each.kind == "bubble"; });
  BOOST_REQUIRE(found != figures.verdicts.end());
  return *found;
}
bool has_verdict(const analysis& figures, const std::string& kind) {
  return std::any_of(figures.verdicts.begin(), figures.verdicts.end(),
                     [&](const verdict& each) { return each.kind == kind; });
}

void check_bubble(const bubble_figures& found, double filling, double unequal, double rest) {
  BOOST_TEST(found.all == filling + unequal + rest);
  BOOST_TEST(found.filling == filling);
  BOOST_TEST(found.unequal == unequal);
  BOOST_TEST(found.rest == rest);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(report_pipeline)

BOOST_AUTO_TEST_CASE(equal_stages_wait_while_the_pipeline_fills_and_drains, *utf::tolerance(1e-9)) {
  for (const int stages : {2, 3, 4}) {
    for (const int micro_batches : {4, 8}) {
      for (const bool gpipe : {true, false}) {
        BOOST_TEST_CONTEXT(stages << " stages, " << micro_batches << " micro-batches, gpipe " << gpipe) {
          const analysis figures = equal_stages(gpipe ? parallel::gpipe_schedule(stages, micro_batches)
                                                      : parallel::one_f_one_b_schedule(stages, micro_batches))
                                       .text()
                                       .analysis();
          const pipeline_figures& found = figures.pipeline;
          BOOST_TEST(found.stages.size() == static_cast<std::size_t>(stages));
          BOOST_TEST(found.ranks_of_replica == stages);
          BOOST_TEST(found.replicas == 1);
          BOOST_TEST(found.stages_per_rank == 1);
          BOOST_TEST(found.micro_batches == micro_batches);
          BOOST_TEST(found.schedule == (gpipe ? "gpipe" : "one_f_one_b"));
          BOOST_TEST(!found.splits_backward);
          BOOST_TEST(found.steps == 2);
          const double all = micro_batches + stages - 1, bubble = (stages - 1) / all;
          for (const stage_figures& each : found.stages) {
            BOOST_TEST(each.forward == 1e3);
            BOOST_TEST(each.backward == 2e3);
            BOOST_TEST(each.computes == micro_batches / all);
            check_bubble(each.bubble, bubble, 0, 0);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_weights_fill_gaps, *utf::tolerance(1e-9)) {
  const analysis figures = equal_stages(parallel::zero_bubble_schedule(3, 8)).text().analysis();
  const pipeline_figures& found = figures.pipeline;
  BOOST_TEST(found.schedule == "zero_bubble");
  BOOST_TEST(found.splits_backward);
  BOOST_TEST(found.stages[1].input_gradients == 1e3);
  BOOST_TEST(found.stages[1].weight_gradients == 1e3);
  BOOST_TEST(found.stages[1].backward == 2e3);
  for (const stage_figures& each : found.stages) {
    check_bubble(each.bubble, 2.0 / (3 * 8 + 2), 0, 0);  // a third of 2 * 3
  }
}

BOOST_AUTO_TEST_CASE(interleaved_stages_divide_the_bubble, *utf::tolerance(1e-9)) {
  const analysis figures = equal_stages(parallel::interleaved_schedule(2, 4, 2)).text().analysis();
  const pipeline_figures& found = figures.pipeline;
  BOOST_TEST(found.stages.size() == 4U);
  BOOST_TEST(found.ranks_of_replica == 2);
  BOOST_TEST(found.stages_per_rank == 2);
  BOOST_TEST(found.schedule == "interleaved");
  BOOST_TEST((found.ranks[1].stages == std::vector<int>{1, 3}));
  BOOST_TEST((found.stages[2].ranks == std::vector<int>{0}));
  BOOST_TEST(found.stages[2].computes == 12.0 / 27);
  BOOST_TEST(found.ranks[0].computes == 24.0 / 27);
  for (const stage_figures& each : found.stages) {
    check_bubble(each.bubble, 3.0 / 27, 0, 0);
  }
  BOOST_TEST(bubble_of(figures).sentence ==
             "11 % of rank 0 with stages 0 and 2 is bubble, most of it filling and draining the pipeline: "
             "8 micro-batches would make it 5.9 %");
}

BOOST_AUTO_TEST_CASE(a_longer_stage_lets_the_others_wait, *utf::tolerance(1e-9)) {
  // Stage 1 begins after 1 ms and takes 4 times 6; then stage 0 has 2 left. With equal stages of 4.5 ms each would wait
  // for one of them.
  training slow = equal_stages(parallel::one_f_one_b_schedule(2, 4));
  slow.costs[1] = {.forward = 2, .input_gradients = 2, .weight_gradients = 2};
  const analysis figures = slow.text().analysis();
  check_bubble(figures.pipeline.stages[0].bubble, 4.5 / 27, 10.5 / 27, 0);
  check_bubble(figures.pipeline.stages[1].bubble, 3.0 / 27, 0, 0);  // less than with equal stages
  const verdict& found = bubble_of(figures);
  BOOST_TEST(
      found.sentence ==
      "56 % of stage 0 is bubble, most of it waiting for longer stages: stage 1 takes 33 % longer than the mean");
  BOOST_TEST(found.advice.find("layer_times") != std::string::npos);
  BOOST_TEST(found.rank == 0);
  BOOST_TEST(found.end - found.begin == 27e3);
  BOOST_TEST(found.share == 18.0 / 54);  // of both ranks' run
  BOOST_TEST(!has_verdict(figures, "slow_rank"));
}

BOOST_AUTO_TEST_CASE(transfers_are_what_the_simulation_does_not_explain, *utf::tolerance(1e-9)) {
  // Values come after 5, 6 ms, gradients go back after 9, 11 and come after 13, 15; the last backward ends at 17.
  training far = equal_stages(parallel::gpipe_schedule(2, 2));
  far.costs[0].transfer = 4;
  const analysis figures = far.text().analysis();
  for (const stage_figures& each : figures.pipeline.stages) {
    check_bubble(each.bubble, 3.0 / 17, 0, 8.0 / 17);
  }
  BOOST_REQUIRE(figures.pipeline.cuts.size() == 1U);
  const cut_figures& cut = figures.pipeline.cuts[0];
  BOOST_TEST(cut.first == 0);
  BOOST_TEST(cut.second == 1);
  BOOST_TEST(cut.messages == 4.0);
  BOOST_TEST(cut.bytes == 4e6);
  BOOST_TEST(cut.time == 16e3);
  BOOST_TEST(bubble_of(figures).sentence ==
             "65 % of stage 0 is bubble, most of it transfers and other delays: 4.00 MB a step cross the cut between "
             "stages 0 and 1 in 16.0 ms");
  BOOST_TEST(!has_verdict(figures, "transfer"));
}

BOOST_AUTO_TEST_CASE(all_causes_at_once, *utf::tolerance(1e-9)) {
  // Stage 1 works from 2 to 8 ms, and stage 0 again from 9 to 11. Without transfers that would be 9 ms, and with equal
  // stages each would wait for 4.5 ms.
  training both = equal_stages(parallel::one_f_one_b_schedule(2, 1));
  both.costs = {{.forward = 1, .input_gradients = 1, .weight_gradients = 1, .transfer = 1},
                {.forward = 2, .input_gradients = 2, .weight_gradients = 2}};
  const analysis figures = both.text().analysis();
  check_bubble(figures.pipeline.stages[0].bubble, 4.5 / 11, 1.5 / 11, 2.0 / 11);
  check_bubble(figures.pipeline.stages[1].bubble, 3.0 / 11, 0, 2.0 / 11);
}

BOOST_AUTO_TEST_CASE(unequal_stages_are_named_where_they_are_the_second_cause) {
  // Stage 0 waits 6 of 9 ms: for 4.5 if both took 4.5 ms.
  training slow = equal_stages(parallel::one_f_one_b_schedule(2, 1));
  slow.costs[1] = {.forward = 2, .input_gradients = 2, .weight_gradients = 2};
  const analysis figures = slow.text().analysis();
  BOOST_TEST(bubble_of(figures).sentence.find("67 % of stage 0 is bubble, most of it filling and draining") == 0U);
  BOOST_TEST(bubble_of(figures).advice.find(" Other cuts help, too: stage 1 takes 33 % longer than the mean.") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(more_micro_batches_are_predicted, *utf::tolerance(1e-9)) {
  trace_text text = equal_stages(parallel::one_f_one_b_schedule(2, 2)).text();
  const analysis figures = text.analysis();
  BOOST_TEST(bubble_of(figures).sentence ==
             "33 % of stage 0 is bubble, most of it filling and draining the pipeline: 8 micro-batches would make it "
             "11 %");
  BOOST_REQUIRE(figures.pipeline.predictions.size() == 2U);  // 8 are enough
  BOOST_TEST(figures.pipeline.predictions[0].micro_batches == 4);
  BOOST_TEST(figures.pipeline.predictions[0].bubble == 1.0 / 5);
  BOOST_TEST(figures.pipeline.predictions[1].bubble == 1.0 / 9);
  // No micro-batch without an image
  BOOST_TEST(trace_text{text}.other(R"("batch_size":7)").analysis().pipeline.predictions.size() == 1U);
  const analysis small = text.other(R"("batch_size":3)").analysis();
  BOOST_TEST(bubble_of(small).sentence == "33 % of stage 0 is bubble, most of it filling and draining the pipeline");
  BOOST_TEST(bubble_of(small).advice.find("A larger batch can be cut into more micro-batches.") == 0U);
  // Of 4 stages 3/19, with the largest number that is tried
  BOOST_TEST(bubble_of(equal_stages(parallel::gpipe_schedule(4, 2)).text().analysis()).sentence ==
             "60 % of stage 0 is bubble, most of it filling and draining the pipeline: 16 micro-batches would make it "
             "16 %");
}

BOOST_AUTO_TEST_CASE(other_work_of_a_step_is_no_bubble, *utf::tolerance(1e-9)) {
  training some = equal_stages(parallel::one_f_one_b_schedule(2, 2));
  some.update = 3;
  const analysis figures = some.text().analysis();
  check_bubble(figures.pipeline.stages[0].bubble, 3.0 / 12, 0, 0);
  BOOST_TEST(figures.pipeline.stages[0].computes == 6.0 / 12);
  BOOST_TEST(figures.pipeline.predictions[0].bubble == 1.5 / 10.5);  // the update stays
}

BOOST_AUTO_TEST_CASE(exchange_inside_a_pass_does_not_compute, *utf::tolerance(1e-9)) {
  // Of the last backward passes, which end at 9 and at 7 ms, half a millisecond is the sum of gradients over replicas.
  // So backward takes 1.75 ms in the mean, and each stage would wait for 2.75 of 8.25 ms.
  training some = equal_stages(parallel::one_f_one_b_schedule(2, 2));
  some.steps = 1;
  trace_text text = some.text();
  text.span(0, 0, "exchange", "exchange", 8, 8.5).span(1, 0, "exchange", "exchange", 6.5, 7);
  const analysis figures = text.analysis();
  for (const int rank : {0, 1}) {
    const stage_figures& stage = figures.pipeline.stages.at(static_cast<std::size_t>(rank));
    BOOST_TEST(stage.backward == 1.75e3);
    BOOST_TEST(stage.computes == 5.5 / 9);
    check_bubble(stage.bubble, 2.75 / 9, 0, 0.25 / 9);
    const rank_figures& its = figures.ranks.at(static_cast<std::size_t>(rank));
    BOOST_TEST(figures.pipeline.ranks.at(static_cast<std::size_t>(rank)).computes * its.step_time ==
               of(its.in_steps, activity::forward) + of(its.in_steps, activity::backward));
  }
}

BOOST_AUTO_TEST_CASE(replicas_share_stages_and_no_wait_counts_twice, *utf::tolerance(1e-9)) {
  // Ranks 0 and 1 are a replica, and 2 and 3. Then rank 3 comes 6 ms late to the sum of its gradients.
  training two = equal_stages(parallel::one_f_one_b_schedule(2, 2));
  two.replicas = 2;
  two.steps = 1;
  trace_text text{4};
  two.write(text);
  const std::string sum = R"("operation":"all_reduce","bytes":8,"bucket":"g","all_arrived_us":15000,"last_rank":3)";
  text.span(1, 0, "step", "step", 9, 18, step_args(1))
      .span(1, 0, "wait", "wait g", 9, 18, R"("for":"g")")
      .span(1, 2, "communicate", "all_reduce g", 9, 18, sum)
      .span(3, 0, "step", "step", 9, 18, step_args(1))
      .span(3, 0, "backward", "backward", 9, 15)
      .span(3, 0, "wait", "wait g", 15, 18, R"("for":"g")")
      .span(3, 2, "communicate", "all_reduce g", 15, 18, sum);
  const analysis figures = text.other(R"("batch_size":100)").analysis();
  BOOST_TEST(figures.pipeline.replicas == 2);
  BOOST_TEST(figures.pipeline.ranks_of_replica == 2);
  BOOST_TEST((figures.pipeline.stages[1].ranks == std::vector<int>{1, 3}));
  BOOST_TEST(figures.pipeline.ranks[2].replica == 1);
  check_bubble(figures.pipeline.stages[1].bubble, 3.0 / 9, 0, 0);
  BOOST_TEST(figures.images_per_second == 200 / 9e-3);  // two batches in a step
  for (const rank_figures& each : figures.ranks) {
    BOOST_TEST(each.waits_for_stages == 3e3);
    BOOST_TEST(each.waits_for_stages + each.waits_for_rank + each.waits_for_data ==
               of(each.in_steps, activity::wait) + of(each.in_steps, activity::communicate));
  }
  BOOST_TEST(figures.ranks[1].waits_for_rank == 6e3);
  BOOST_TEST(figures.ranks[1].waits_for_data == 3e3);
  BOOST_REQUIRE(figures.blames.size() == 1U);  // for the sum of gradients only
  BOOST_TEST(figures.blames[0].rank == 3);
  BOOST_TEST(figures.blames[0].total == 6e3);
  BOOST_TEST(!has_verdict(figures, "wait"));
}

BOOST_AUTO_TEST_CASE(replicas_of_different_speed_are_explained_apart, *utf::tolerance(1e-9)) {
  trace_text text{4};
  training one = equal_stages(parallel::one_f_one_b_schedule(2, 2));
  one.write(text);
  one.costs.assign(2, {.forward = 2, .input_gradients = 2, .weight_gradients = 2});
  one.write(text, 0, 0, 2);
  const analysis figures = text.analysis();
  BOOST_TEST(figures.pipeline.replicas == 2);
  BOOST_TEST(figures.pipeline.stages[0].forward == 1.5e3);
  for (const stage_rank_figures& each : figures.pipeline.ranks) {
    check_bubble(each.bubble, 1.0 / 3, 0, 0);
  }
}

BOOST_AUTO_TEST_CASE(steps_with_fewer_micro_batches_do_not_count, *utf::tolerance(1e-9)) {
  training usual = equal_stages(parallel::one_f_one_b_schedule(2, 4));
  trace_text text = usual.text();
  training last = equal_stages(parallel::one_f_one_b_schedule(2, 1));
  last.steps = 1;
  last.write(text, 30, 2);
  const analysis figures = text.analysis();
  BOOST_TEST(figures.pipeline.micro_batches == 4);
  BOOST_TEST(figures.pipeline.steps == 2);
  BOOST_TEST(figures.pipeline.left_out == 2);
  check_bubble(figures.pipeline.stages[0].bubble, 3.0 / 15, 0, 0);
  BOOST_TEST(figures.ranks[0].waits_for_stages == 9e3);  // those of the last step, too: they are in no other figure
}

BOOST_AUTO_TEST_CASE(an_order_of_ones_own_is_simulated, *utf::tolerance(1e-9)) {
  // As gpipe, but backward begins with the last micro-batch.
  std::vector<std::vector<parallel::pipeline_action>> actions;
  for (const int rank : {0, 1}) {
    actions.push_back({{pipeline_pass::forward, rank, 0},
                       {pipeline_pass::forward, rank, 1},
                       {pipeline_pass::backward, rank, 1},
                       {pipeline_pass::backward, rank, 0}});
  }
  const analysis figures = equal_stages({"mine", 2, 2, std::move(actions)}).text().analysis();
  BOOST_TEST(figures.pipeline.schedule == "recorded");
  check_bubble(figures.pipeline.stages[0].bubble, 3.0 / 9, 0, 0);
  BOOST_TEST(figures.pipeline.predictions.empty());
  BOOST_TEST(bubble_of(figures).sentence == "33 % of stage 0 is bubble, most of it filling and draining the pipeline");
}

BOOST_AUTO_TEST_CASE(passes_that_fit_no_pipeline_have_no_causes, *utf::tolerance(1e-9)) {
  const auto one_step = [](trace_text& text, int rank, double end) -> trace_text& {
    return text.span(rank, 0, "step", "step", 0, end, step_args(0));
  };
  {  // Ranks that would wait for each other forever: backward of stage 0 comes before that of stage 1
    trace_text text{1};
    one_step(text, 0, 4);
    write_pass(text, 0, 0, {pipeline_pass::forward, 0, 0}, 0, 1);
    write_pass(text, 0, 0, {pipeline_pass::backward, 0, 0}, 1, 2);
    write_pass(text, 0, 0, {pipeline_pass::forward, 1, 0}, 2, 3);
    write_pass(text, 0, 0, {pipeline_pass::backward, 1, 0}, 3, 4);
    const analysis figures = text.analysis();
    BOOST_TEST(!figures.pipeline.empty());
    BOOST_TEST(!figures.pipeline.explained());
    BOOST_REQUIRE(figures.cautions.size() == 1U);
    BOOST_TEST(figures.cautions[0].find("The causes of bubbles are not known") == 0U);
  }
  {  // The same micro-batch twice, and stages that no rank runs
    trace_text text{1};
    one_step(text, 0, 9);
    for (const int time : {0, 2}) {
      write_pass(text, 0, 0, {pipeline_pass::forward, 65535, 5}, time, time + 1);
      write_pass(text, 0, 0, {pipeline_pass::backward, 65535, 5}, time + 4, time + 5);
    }
    const analysis figures = text.analysis();
    BOOST_TEST(figures.pipeline.stages.size() == 1U);
    BOOST_TEST(!figures.pipeline.explained());
  }
  {  // Two ranks run stage 1, and one runs stage 0
    trace_text text{3};
    for (const int rank : {0, 1, 2}) {
      one_step(text, rank, 9);
      write_pass(text, rank, 0, {pipeline_pass::forward, rank == 0 ? 0 : 1, 0}, rank, rank + 1);
      write_pass(text, rank, 0, {pipeline_pass::backward, rank == 0 ? 0 : 1, 0}, 8 - rank, 9 - rank);
    }
    const analysis figures = text.other(R"("batch_size":9)").analysis();
    BOOST_TEST((figures.pipeline.stages.at(1).ranks == std::vector<int>{1, 2}));
    BOOST_TEST(!figures.pipeline.explained());
    BOOST_TEST(figures.images_per_second == 1000.0);  // one replica at least
  }
  {  // No step has all its passes, or there is no step
    trace_text text{2};
    one_step(text, 0, 4);
    write_pass(text, 0, 0, {pipeline_pass::forward, 0, 0}, 0, 1);
    write_pass(text, 1, 0, {pipeline_pass::forward, 1, 0}, 0, 1);
    const trace recorded = text.trace();
    const analysis figures = analyse(recorded);
    BOOST_TEST(figures.pipeline.empty());
    BOOST_TEST(figures.pipeline.left_out == 1);
    BOOST_TEST(figures.cautions.at(0) == "Of 1 step in stages none has all its passes: bubbles are not counted.");
    BOOST_TEST(!figures_json(recorded, figures).contains("pipeline"));
    BOOST_TEST(figures_csv(recorded, figures).find("\nstage,") == std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(waits_without_names_belong_to_the_messages_under_way, *utf::tolerance(1e-9)) {
  // Rank 1 stands still for a message from 2 to 4, and in nothing that was recorded until 5.
  trace_text text{2};
  for (const int rank : {0, 1}) {
    text.span(rank, 0, "step", "step", 0, 10);
    write_pass(text, rank, 0, {pipeline_pass::forward, rank, 0}, 5.0 * rank, 5.0 * rank + 1);
    write_pass(text, rank, 0, {pipeline_pass::backward, rank, 0}, 8.0 - rank, 9.0 - rank);
  }
  write_message(text, 0, 1, 0, false, 2.25, 1.75);
  const analysis figures = text.span(1, 0, "wait", "wait", 1, 3).analysis();
  BOOST_TEST(figures.ranks[1].waits_for_stages == 2e3);
  BOOST_TEST(figures.ranks[0].waits_for_stages == 1.75e3);  // its send
  BOOST_TEST(figures.pipeline.stages[1].bubble.all == 0.2);
}

BOOST_AUTO_TEST_CASE(figures_of_stages_are_written, *utf::tolerance(1e-9)) {
  trace_text text = equal_stages(parallel::one_f_one_b_schedule(2, 2)).text();
  text.span(1, 1, "forward", "conv2", 1, 1.4, R"("layer":"conv2")")
      .span(1, 1, "forward", "scores", 1.4, 2, R"("layer":"scores")")
      .span(1, 1, "backward", "scores", 2, 3, R"("layer":"scores")");
  const trace recorded = text.trace();
  const analysis figures = analyse(recorded);
  const auto json = nlohmann::json::parse(json_text(figures_json(recorded, figures)))["pipeline"];
  BOOST_TEST(json["schedule"].get<std::string>() == "one_f_one_b");
  BOOST_TEST(json["micro_batches"].get<int>() == 2);
  BOOST_TEST(json["stages"][1]["layers"].get<int>() == 2);
  BOOST_TEST(json["stages"][1]["first_layer"].get<std::string>() == "conv2");
  BOOST_TEST(json["stages"][1]["last_layer"].get<std::string>() == "scores");
  BOOST_TEST(!json["stages"][0].contains("first_layer"));
  BOOST_TEST(json["stages"][0]["backward_ms"].get<double>() == 2.0);
  BOOST_TEST(json["stages"][0]["bubble"]["filling"].get<double>() == 1.0 / 3);
  BOOST_TEST(json["ranks"][1]["bubble"]["all"].get<double>() == 1.0 / 3);
  BOOST_TEST(json["cuts"][0]["bytes"].get<double>() == 4e6);
  BOOST_TEST(json["predictions"][1]["bubble"].get<double>() == 1.0 / 9);
  const std::string csv = figures_csv(recorded, figures);
  for (const char* const line : {"pipeline,,one_f_one_b,micro-batches,2,", "stage,,1,forward,1,ms a micro-batch",
                                 "stage,,1,layers,2,", "stage,,0,filling and draining,0.333333333,part of the step",
                                 "stage_rank,1,,bubble,0.333333333,part of the step",
                                 "cut,,0 and 1,bytes,4000000,bytes a step", "rank,1,,waits for stages,3,ms a step"}) {
    BOOST_TEST(csv.find(std::string{"\n"} + line + "\n") != std::string::npos, line);
  }
  BOOST_TEST(page(recorded, figures, "t.json").find("\"micro_batch\":1") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
