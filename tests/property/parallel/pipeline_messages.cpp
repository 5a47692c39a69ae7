// SPDX-License-Identifier: BSL-1.0
//
// Plans of stages and the messages between them, on random graphs, cuts and schedules, without computing.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <exception>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gradus/core/error.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/nn/plan/plan_execution.hpp"
#include "gradus/nn/plan/plan_stage.hpp"
#include "gradus/nn/plan/recompute.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"
#include "gradus/nn/plan/stage_layer.hpp"
#include "gradus/nn/plan/stage_plan.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/schedule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"
#include "pipeline/message_checker.hpp"
#include "pipeline/random_descriptions.hpp"
#include "sweep.hpp"

namespace pipeline_messages {

using namespace gradus_test;
namespace parallel = gradus::parallel;
using index = gradus::index_t;

/// A pipeline of one case.
struct pipeline_case {
  named_description described;
  nn::execution_plan whole;
  nn::stage_cuts cuts;
  parallel::pipeline_rule rule;
  int ranks = 1;
  int stages_per_rank = 1;
  int most = 1;  // micro-batches
  nn::plan_options planning;
};

nn::plan_options draw_planning(sweep_case& random) {
  nn::plan_options planning;
  if (random.flip("optimizations", 3)) {
    planning.optimizations = {.fuse_activations = random.flip("fuse_activations"),
                              .relu_in_place = random.flip("relu_in_place"),
                              .fuse_sums = random.flip("fuse_sums"),
                              .share_gradients = random.flip("share_gradients"),
                              .reuse_memory = random.flip("reuse_memory")};
  }
  planning.recompute = nn::recomputation{random.flip("recompute")}.choose;
  return planning;
}

pipeline_case draw_pipeline(sweep_case& random, draws& draw) {
  pipeline_case result;
  result.described = description_generator{draw, draw.one_of({3, 8, 8, 16, 24})}.generate();
  result.planning = draw_planning(random);
  nn::plan_options of_whole = result.planning;
  of_whole.recompute = nullptr;
  result.whole = nn::plan_execution(result.described.graph, of_whole);
  const auto allowed = nn::cuts_allowed(result.whole);
  std::vector<std::size_t> firsts;
  for (std::size_t i = 1; i < allowed.size(); ++i) {
    if (allowed[i] != 0) {
      firsts.push_back(i);
    }
  }
  const auto most = static_cast<index>(firsts.size() + 1);
  result.ranks = static_cast<int>(random.between("ranks", 1, std::min<index>(most, 6)));
  result.rule = parallel::pipeline_rules[static_cast<std::size_t>(random.between("schedule", 0, 2))];
  if (result.rule == parallel::one_f_one_b && random.flip("interleaved")) {
    result.stages_per_rank =
        static_cast<int>(random.between("stages_per_rank", 1, std::min<index>(most / result.ranks, 4)));
  }
  result.most = static_cast<int>(random.one_of("micro_batches", {1, 2, 3, 4, 5, 7, 10}));
  while (firsts.size() + 1 > static_cast<std::size_t>(result.ranks * result.stages_per_rank)) {
    firsts.erase(firsts.begin() + draw.between(0, static_cast<index>(firsts.size()) - 1));
  }
  result.cuts.first_layers.push_back(0);
  for (const std::size_t first : firsts) {
    random.note("first_layer", static_cast<index>(first));
    result.cuts.first_layers.push_back(first);
  }
  return result;
}

/// The schedules of 1 to `most` micro-batches, which simulate_schedule has checked, and what stages store.
struct checked_schedules {
  std::vector<parallel::pipeline_schedule> schedules;
  std::vector<std::size_t> stored;
};

checked_schedules schedules_of(const pipeline_case& what) {
  checked_schedules result;
  const auto stages = static_cast<std::size_t>(what.ranks * what.stages_per_rank);
  result.stored.assign(stages, 0);
  for (int count = 1; count <= what.most; ++count) {
    result.schedules.push_back(what.rule.make(what.ranks, count, what.stages_per_rank));
    const std::vector<int> stored = simulate_schedule(result.schedules.back()).stored;
    for (std::size_t s = 0; s < stages; ++s) {
      result.stored[s] = std::max(result.stored[s], static_cast<std::size_t>(stored[s]));
      const int bound = what.rule == parallel::gpipe         ? count
                        : what.rule == parallel::zero_bubble ? std::min(count, what.ranks)
                                                             : std::min(count, what.ranks - static_cast<int>(s));
      if (stored[s] > bound && what.stages_per_rank == 1) {
        throw pipeline_mistake("a schedule that stores more than its paper says");
      }
    }
  }
  return result;
}

/// A cut that is not allowed is refused.
void require_refusal(const pipeline_case& what, draws& draw) {
  const auto allowed = nn::cuts_allowed(what.whole);
  const auto layer = static_cast<std::size_t>(draw.between(0, static_cast<index>(allowed.size()) - 1));
  if (allowed[layer] != 0) {
    return;
  }
  try {
    static_cast<void>(nn::plan_stage(what.described.graph, what.whole, {.first_layers = {0, layer}, .own = {}}, 0, {}));
  } catch (const gradus::configuration_error&) {
    return;
  }
  throw pipeline_mistake("a cut before layer " + std::to_string(layer) + " is not refused");
}

void check_pipeline(const pipeline_case& what, draws& draw) {
  require_refusal(what, draw);
  const checked_schedules made = schedules_of(what);
  const std::size_t stages = made.stored.size();
  std::vector<nn::stage_depth> depths(stages);
  std::vector<nn::stage_plan> plans;
  for (std::size_t s = 0; s < stages; ++s) {
    depths[s] = {.stored = made.stored[s], .splits_backward = what.rule.splits_backward};
    for (std::size_t other = s % static_cast<std::size_t>(what.ranks); what.stages_per_rank > 1 && other < stages;
         other += static_cast<std::size_t>(what.ranks)) {
      depths[s].gradients = std::max(depths[s].gradients, made.stored[other] + 1);
    }
    plans.push_back(nn::plan_stage(what.described.graph, what.whole, what.cuts, s, depths[s], what.planning));
  }
  message_checker checker{what.described.graph, what.whole, plans, depths, what.ranks, draw};
  std::vector<checked_step> steps;
  for (index number = draw.between(1, 3); number > 0; --number) {
    const int count = draw.chance(50) ? what.most : static_cast<int>(draw.between(1, what.most));
    steps.push_back({draw.chance(20) ? nullptr : &made.schedules[static_cast<std::size_t>(count) - 1], count});
  }
  checker.run(steps);
  for (std::size_t s = 0; s < stages; ++s) {
    if (checker.most_stored(s) > static_cast<int>(made.stored[s])) {
      throw pipeline_mistake("stage " + std::to_string(s) + " stores more than the schedule says");
    }
  }
}

BOOST_AUTO_TEST_SUITE(pipelines)

// GRADUS_SWEEP_CASES=150000 checks more graphs; see sweep.hpp.
BOOST_AUTO_TEST_CASE(of_random_graphs_find_what_one_process_finds) {
  sweep("of_random_graphs_find_what_one_process_finds", 10000, [](sweep_case& random) {
    draws draw{random.bits()};
    pipeline_case what;
    try {
      what = draw_pipeline(random, draw);
      check_pipeline(what, draw);
    } catch (const std::exception& failure) {
      random.fail(std::string{failure.what()} + "\n" + to_string(what.described));
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace pipeline_messages
