// SPDX-License-Identifier: BSL-1.0
//
// Times of layers from the spans of a trace: medians over steps and ranks.
#include "profile.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "../program/statistics.hpp"
#include "../report/trace.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/parallel/network_segments.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"

namespace driver {

namespace {

namespace report = gradus::report;
using program::median;

/// What one step of one rank has taken, in seconds.
struct traced_step {
  double seconds = 0;
  double waits = 0;  // and what its thread does for transfers
  double update = 0;
  double input = 0;
  std::map<std::string, double> forward;   // by layer
  std::map<std::string, int> passes;       // forward, by layer
  std::map<std::string, double> backward;  // by layer
};

/// The steps of a rank by number, without the first, which takes longer than others.
std::map<int, traced_step> steps_of(const report::trace& from, int rank) {
  std::map<int, traced_step> steps;
  for (const report::span& one : from.track(rank, report::tracks::step)) {
    const report::label& kind = from.labels[one.label];
    if (one.step < 0) {
      continue;
    }
    traced_step& own = steps[one.step];
    const double seconds = 1e-6 * one.duration;
    switch (kind.what) {
      case report::category::step:
        own.seconds += seconds;
        break;
      case report::category::wait:
      case report::category::exchange:
        own.waits += seconds;
        break;
      case report::category::update:
        own.update += seconds;
        break;
      case report::category::input:
        own.input += seconds;
        break;
      default:
        break;
    }
  }
  for (const report::span& one : from.track(rank, report::tracks::compute)) {
    const report::label& kind = from.labels[one.label];
    if (one.step < 0 || kind.layer.empty()) {
      continue;
    }
    traced_step& own = steps[one.step];
    if (kind.what == report::category::forward) {
      own.forward[kind.layer] += 1e-6 * one.duration;
      ++own.passes[kind.layer];
    } else if (kind.what == report::category::backward) {
      own.backward[kind.layer] += 1e-6 * one.duration;
    }
  }
  std::erase_if(steps, [](const auto& each) { return !(each.second.seconds > 0); });
  if (steps.size() > 2) {
    steps.erase(steps.begin());
  }
  return steps;
}

/// The parameters, in the order in which backward completes their gradients.
void add_parameters(gradus::sim::workload& work, const gradus::nn::graph& network) {
  for (const auto& each : gradus::parallel::segments_of(network)) {
    work.segments.push_back(each);
  }
  for (std::size_t layer = network.nodes().size(); layer-- > 0;) {
    for (std::size_t i = 0; i < network.nodes()[layer].trained().size(); ++i) {
      work.layer_of_segment.push_back(layer);
    }
  }
  work.elements = network.trained_elements();
}

step_source estimated(const settings& chosen, gradus::sim::workload work, const gradus::nn::graph& network) {
  const auto times =
      gradus::parallel::estimated_profile(network, chosen.batch_size_per_rank, chosen.multiply_adds_per_second);
  for (std::size_t i = 0; i < times.layers.size(); ++i) {
    work.layers[i].forward = times.layers[i].forward;
    work.layers[i].backward = times.layers[i].backward;
  }
  char text[160];
  gradus::format_text(text, sizeof(text),
                      "no profile: layers are estimated at %.3g multiply-adds a second (--multiply-adds-per-second)",
                      chosen.multiply_adds_per_second);
  return {.work = std::move(work), .uncertainty = 0.3, .description = text};
}

}  // namespace

step_source step_source_of(const settings& chosen, const gradus::nn::graph& network) {
  gradus::sim::workload work;
  work.model = chosen.model;
  work.batch_size_per_rank = chosen.batch_size_per_rank;
  for (std::size_t i = 0; i < network.nodes().size(); ++i) {
    work.layers.push_back({network.name(i), 0, 0});
  }
  add_parameters(work, network);
  if (chosen.profile.empty()) {
    return estimated(chosen, std::move(work), network);
  }
  report::trace from;
  try {
    from = report::read_trace_file(chosen.profile);
  } catch (const std::exception& failure) {
    throw std::invalid_argument{std::string{"--profile: "} + failure.what()};
  }
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument{"--profile: '" + gradus::printable(chosen.profile) + "': " + why};
  };
  if (!from.model.empty() && from.model != chosen.model) {
    refuse("expected a trace of --model " + chosen.model + ", got one of " + gradus::printable(from.model));
  }
  if (from.batch_size > 0 && from.batch_size != chosen.batch_size_per_rank) {
    refuse("expected " + std::to_string(chosen.batch_size_per_rank) + " images a rank, got " +
           std::to_string(from.batch_size) + ": give --batch-size " + std::to_string(from.batch_size));
  }
  std::vector<traced_step> steps;
  std::vector<double> of_rank;  // median computing seconds of each rank
  for (int rank = 0; rank < from.ranks; ++rank) {
    std::vector<double> seconds;
    for (auto& each : steps_of(from, rank)) {
      if (!each.second.forward.empty()) {
        seconds.push_back(each.second.seconds - each.second.waits - each.second.input);
        steps.push_back(std::move(each.second));
      }
    }
    if (!seconds.empty()) {
      of_rank.push_back(median(seconds));
    }
  }
  if (steps.empty()) {
    refuse("expected steps with layers, as gradus_bench --trace-file records them, got none");
  }
  std::vector<double> computing;
  std::vector<double> others;
  std::vector<double> updates;
  std::vector<double> passes;
  double layers = 0;
  std::size_t known = 0;
  for (gradus::sim::layer_times& each : work.layers) {
    std::vector<double> forward;
    std::vector<double> backward;
    for (const traced_step& one : steps) {
      const auto f = one.forward.find(each.name);
      const auto b = one.backward.find(each.name);
      forward.push_back(f == one.forward.end() ? 0 : f->second);
      backward.push_back(b == one.backward.end() ? 0 : b->second);
      if (const auto found = one.passes.find(each.name); found != one.passes.end()) {
        passes.push_back(found->second);
      }
    }
    each.forward = median(std::move(forward));
    each.backward = median(std::move(backward));
    layers += each.forward + each.backward;
    known += each.forward > 0 ? 1 : 0;
  }
  if (known == 0) {
    refuse("expected layers of " + chosen.model + " such as '" + work.layers.front().name + "', got none of them");
  }
  for (const traced_step& one : steps) {
    computing.push_back(one.seconds - one.waits - one.input);
    updates.push_back(one.update);
  }
  const double middle = median(computing);
  work.update = median(updates);
  work.other = std::max(0.0, middle - layers - work.update);
  for (const double each : computing) {
    work.variation.push_back(std::clamp(each / middle, 0.5, 3.0));
  }
  double squares = 0;
  for (const double each : work.variation) {
    squares += (each - 1) * (each - 1);
  }
  const auto count = static_cast<double>(computing.size());
  const auto micro_batches = static_cast<int>(median(std::move(passes)));
  char text[280];
  gradus::format_text(text, sizeof(text),
                      "profile: %zu steps of %zu rank%s, %.2f ms of computing, which varies by %.1f %%, update %.2f ms",
                      computing.size(), of_rank.size(), of_rank.size() == 1 ? "" : "s", 1e3 * middle,
                      100 * std::sqrt(squares / count), 1e3 * work.update);
  return {.work = std::move(work),
          .ranks = from.ranks,
          .steps = static_cast<int>(computing.size()),
          .micro_batches = micro_batches,
          .uncertainty = std::max(0.01, 1.25 * std::sqrt(squares) / count),
          .description = text};
}

}  // namespace driver
