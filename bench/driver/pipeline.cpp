// SPDX-License-Identifier: BSL-1.0
//
// Trainings in stages: their options, and what a dry run says of them.
#include "pipeline.hpp"

#include <unistd.h>  // sysconf

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "gradus/core/format.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/pipeline/simulated_schedule.hpp"

namespace driver {

namespace {

namespace parallel = gradus::parallel;

double mebibytes_of(std::size_t bytes) {
  return static_cast<double>(bytes) / 1048576.0;
}

/// The step in seconds, with transfers that take time.
parallel::simulated_pipeline simulated_step(const settings& chosen, const parallel::pipeline_stages& cut) {
  std::vector<parallel::pipeline_costs> costs;
  for (const parallel::pipeline_stage& each : cut.stages) {
    const double rate = chosen.multiply_adds_per_second;
    costs.push_back({.forward = each.costs.forward / rate,
                     .input_gradients = each.costs.input_gradients / rate,
                     .weight_gradients = each.costs.weight_gradients / rate,
                     .transfer = static_cast<double>(each.sent_bytes) / chosen.link_bytes_per_second});
  }
  const parallel::pipeline_rule& rule = parallel::pipeline_rule_of(chosen.schedule);
  return simulate_schedule(rule.make(static_cast<int>(cut.stages.size()) / chosen.stages_per_rank, chosen.micro_batches,
                                     chosen.stages_per_rank),
                           costs);
}

}  // namespace

parallel::hybrid pipeline_options(const settings& chosen) {
  parallel::hybrid options{.stages = std::max(1, chosen.stages),
                           .micro_batches = chosen.micro_batches,
                           .schedule = parallel::pipeline_rule_of(chosen.schedule),
                           .stages_per_rank = chosen.stages_per_rank,
                           .first_layers = chosen.stage_cuts};
  if (chosen.memory_limit > 0) {
    options.memory_limit = chosen.memory_limit;
  }
  return options;
}

void require_supported_pipeline(const settings& chosen) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument{why}; };
  if (chosen.capture_step) {
    refuse("--capture-step: a step in stages waits for other ranks between its passes: leave out --stages or this");
  }
  if (chosen.order != transfer_order::none) {
    refuse("--order: with --stages gradients travel in the order of the backward pass: leave it out");
  }
  if (!chosen.all_reduce_spec.empty() && chosen.all_reduce_spec != levels_spec && chosen.device == "cpu") {
    refuse("--all-reduce-spec: with --stages expected " + std::string{levels_spec} + " or none, got " +
           chosen.all_reduce_spec);
  }
  if (chosen.stages_per_rank > 1 && chosen.schedule != "one_f_one_b") {
    refuse("--stages-per-rank: only --schedule one_f_one_b interleaves stages of a rank, got --schedule " +
           chosen.schedule);
  }
  const int cuts = chosen.stages * chosen.stages_per_rank - 1;
  if (!chosen.stage_cuts.empty() && static_cast<int>(chosen.stage_cuts.size()) != cuts) {
    refuse("--stage-cuts: expected " + std::to_string(cuts) + " layers, the first ones of all stages but the first, " +
           "got " + std::to_string(chosen.stage_cuts.size()) + ": see --stages and --stages-per-rank");
  }
}

void require_whole_replicas(const settings& chosen, int ranks) {
  if (ranks % chosen.stages != 0) {
    throw std::invalid_argument{"--stages: expected a divisor of the number of ranks, " + std::to_string(ranks) +
                                ", got " + std::to_string(chosen.stages) + ": start more ranks (--ranks, mpiexec -n)"};
  }
}

std::size_t memory_for_measuring(const settings& chosen) {
  const auto half =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) / 2 * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return chosen.memory_limit > 0 ? std::min(chosen.memory_limit, half) : half;
}

pipeline_properties properties_of(const settings& chosen, double bubble) {
  return {.stages = chosen.stages,
          .stages_per_rank = chosen.stages_per_rank,
          .micro_batches = chosen.micro_batches,
          .schedule = chosen.schedule,
          .bubble = bubble};
}

void print_stages(const settings& chosen, const gradus::nn::graph& network, const pipeline_forecast& found,
                  int replicas) {
  const auto& stages = found.cut.stages.stages;
  const std::size_t ranks = stages.size() / static_cast<std::size_t>(chosen.stages_per_rank);
  std::printf("pipeline:    %zu stages on %zu ranks, %d micro-batches of %td images, %s; %d replica%s\n", stages.size(),
              ranks, chosen.micro_batches, (chosen.batch_size_per_rank - 1) / chosen.micro_batches + 1,
              chosen.schedule.c_str(), replicas, replicas == 1 ? "" : "s");
  std::printf("%5s %5s %7s %11s %13s %13s %12s %14s  %s\n", "stage", "rank", "layers", "parameters", "memory [MiB]",
              "micro-batches", "sends [MiB]", "computes [ms]", "first and last layer");
  std::vector<std::size_t> of_rank(ranks);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const parallel::pipeline_stage& each = stages[s];
    gradus::index_t parameters = 0;
    for (std::size_t i = each.first; i < each.end; ++i) {
      parameters += network.nodes()[i].parameter_count();
    }
    of_rank[s % ranks] += found.memory[s].total();
    gradus::print_text(
        stdout, "%5zu %5zu %7zu %11td %13.1f %13d %12.3f %14.1f  %s, %s\n", s, s % ranks, each.end - each.first,
        parameters, mebibytes_of(found.memory[s].total()), each.stored, mebibytes_of(each.sent_bytes),
        1e3 * (each.costs.of(parallel::pipeline_pass::forward) + each.costs.of(parallel::pipeline_pass::backward)) /
            chosen.multiply_adds_per_second,
        network.name(each.first).c_str(), network.name(each.end - 1).c_str());
  }
  gradus::print_text(
      stdout,
      "memory:      %.1f MiB on the fullest rank, with the values of as many micro-batches as the table says; the "
      "update rule's and the input's are not counted\n",
      mebibytes_of(*std::max_element(of_rank.begin(), of_rank.end())));
  const parallel::simulated_pipeline step = simulated_step(chosen, found.cut.stages);
  gradus::print_text(
      stdout,
      "step:        %.1f ms, of which ranks wait %.1f %% (bubble; %.1f %% if transfers took no time), at %.3g "
      "multiply-adds and %.3g bytes a second: at most %.1f images/sec on all ranks\n",
      1e3 * step.makespan, 100 * step.bubble, 100 * found.cut.stages.step.bubble, chosen.multiply_adds_per_second,
      chosen.link_bytes_per_second, static_cast<double>(chosen.batch_size_per_rank) * replicas / step.makespan);
}

}  // namespace driver
