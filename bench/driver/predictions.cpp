// SPDX-License-Identifier: BSL-1.0
//
// Strategies of gradus_bench as the simulator replays them.
#include "predictions.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>

#include "gradus/comm/all_reduce_rule.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/pipeline/rule.hpp"
#include "gradus/sim/data_parallel.hpp"
#include "gradus/sim/pipeline_training.hpp"
#include "gradus/sim/server_training.hpp"
#include "transfer_plan.hpp"

namespace driver {

namespace {

namespace comm = gradus::comm;
namespace parallel = gradus::parallel;
namespace sim = gradus::sim;

constexpr int most_ranks = 65536;
// How far the times of layers may be off where the profile has other micro-batches: ResNet-50 takes 2.3 times as long
// for four times 2 images of 64 x 64 pixels as for 8.
constexpr double other_micro_batches = 1;

int number_of(const std::string& text, const std::string& word) {
  const auto refuse = [&] {
    throw std::invalid_argument{"--ranks: expected numbers from 1 to " + std::to_string(most_ranks) +
                                ", as 4..128 or 4,8,16, got '" + gradus::printable(text) + "'"};
  };
  if (word.empty() || word.size() > 6 || word.find_first_not_of("0123456789") != std::string::npos) {
    refuse();
  }
  const int number = std::stoi(word);
  if (number < 1 || number > most_ranks) {
    refuse();
  }
  return number;
}

/// The plan that a training with these options would make.
transfer_plan transfers_of(const prediction_inputs& given, bool servers, int ranks) {
  parallel::step_profile profile;
  for (const sim::layer_times& each : given.source.work.layers) {
    profile.layers.push_back({.forward = each.forward, .backward = each.backward});
  }
  profile.link.bytes_per_second = given.chosen.link_bytes_per_second;
  return transfer_plan_of(given.chosen, given.forecast->trained->structure(), profile, servers, ranks);
}

sim::data_parallel all_reduce_of(const prediction_inputs& given, comm::all_reduce_algorithm algorithm, int ranks) {
  return {.gradients = transfers_of(given, false, ranks).gradients, .rules = {{.algorithm = algorithm}}};
}

sim::server_training servers_of(const prediction_inputs& given, int ranks) {
  const settings& chosen = given.chosen;
  sim::server_training how{.servers = chosen.servers,
                           .colocate = chosen.colocate_servers,
                           .placed = {.parts_per_server = chosen.parts_per_server},
                           .window = chosen.messages_under_way,
                           .overlap_forward = chosen.order != transfer_order::none,
                           .pull_priorities = transfers_of(given, true, ranks).pull_priorities};
  for (const auto policy : {parallel::placement_policy::round_robin, parallel::placement_policy::greedy,
                            parallel::placement_policy::longest_first, parallel::placement_policy::partitioned}) {
    how.placed.policy = chosen.placement == name_of(policy) ? policy : how.placed.policy;
  }
  for (const auto mode : {parallel::server_mode::asynchronous, parallel::server_mode::compat}) {
    how.mode = chosen.server_mode == name_of(mode) ? mode : how.mode;
  }
  return how;
}

/// The stages with the times of the profile.
sim::pipeline_training pipeline_of(const prediction_inputs& given, const sim::workload& work, int ranks) {
  const settings& chosen = given.chosen;
  const parallel::pipeline_rule& rule = parallel::pipeline_rule_of(chosen.schedule);
  sim::pipeline_training how{.schedule = rule.make(chosen.stages, chosen.micro_batches, chosen.stages_per_rank),
                             .replicas = ranks / chosen.stages,
                             .gradients = transfers_of(given, false, 1).gradients};
  how.variation = work.variation;
  const double of_layers = work.seconds() - work.update - work.other;
  const double and_other = of_layers > 0 ? 1 + work.other / of_layers : 1.0;
  for (const parallel::pipeline_stage& each : given.stages->cut.stages.stages) {
    sim::stage_work stage{.sent_bytes = static_cast<double>(each.sent_bytes)};
    double forward = 0;
    double backward = 0;
    for (std::size_t layer = each.first; layer < each.end && layer < work.layers.size(); ++layer) {
      forward += work.layers[layer].forward;
      backward += work.layers[layer].backward;
      stage.elements += given.layer_elements[layer];
    }
    const double of_part = and_other / chosen.micro_batches;
    stage.costs = {.forward = forward * of_part,
                   .input_gradients = 0.5 * backward * of_part,
                   .weight_gradients = 0.5 * backward * of_part};
    stage.update =
        work.elements > 0 ? work.update * static_cast<double>(stage.elements) / static_cast<double>(work.elements) : 0;
    how.stages.push_back(stage);
  }
  return how;
}

}  // namespace

sim::described_network network_of(const settings& chosen) {
  if (chosen.network.empty()) {
    throw std::invalid_argument{
        "--network: expected bandwidth and latency, for example \"10Gbit/s 25us\", or a file with them, got nothing"};
  }
  std::string text = chosen.network;
  if (text.find(' ') == std::string::npos || text.find('/') == 0) {
    if (std::ifstream file{chosen.network, std::ios::binary}; file) {
      text.assign(std::istreambuf_iterator<char>{file}, {});
      if (text.size() > 65536) {
        throw std::invalid_argument{"--network: expected a file of a few lines, got " + std::to_string(text.size()) +
                                    " bytes"};
      }
    }
  }
  try {
    sim::described_network found = sim::read_network(text, {.ranks_per_host = chosen.ranks_per_host});
    return found;
  } catch (const gradus::error& failure) {
    throw std::invalid_argument{std::string{"--network: "} + failure.what()};
  }
}

std::vector<int> rank_numbers(const std::string& text) {
  std::vector<int> numbers;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const int first = number_of(text, text.substr(0, dots));
    const int last = number_of(text, text.substr(dots + 2));
    for (int ranks = first; ranks <= last; ranks *= 2) {
      numbers.push_back(ranks);
    }
    if (!numbers.empty() && numbers.back() != last) {
      numbers.push_back(last);
    }
  } else {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      numbers.push_back(number_of(text, text.substr(begin, end - begin)));
      begin = end + 1;
    }
  }
  if (numbers.empty()) {
    throw std::invalid_argument{"--ranks: expected a range that ascends, got '" + gradus::printable(text) + "'"};
  }
  return numbers;
}

std::optional<comm::all_reduce_algorithm> all_reduce_algorithm_of(const std::string& strategy) {
  const auto first = comm::all_reduce_algorithm_names.begin();
  const auto end = comm::all_reduce_algorithm_names.end();
  const auto found = std::find(first + 1, end, std::string_view{strategy});  // but native, which the library has not
  if (found == end) {
    return {};
  }
  return static_cast<comm::all_reduce_algorithm>(found - first);
}

std::vector<std::string> strategies_of(const settings& chosen) {
  std::vector<std::string> names = chosen.strategies;
  if (names.empty()) {
    names = {"ring", "halving_doubling"};
    if (chosen.ranks_per_host > 1) {
      names.emplace_back("hierarchical_ring");
    }
    if (uses_servers(chosen.update)) {
      names.emplace_back("parameter_server");
    }
    if (chosen.stages > 0) {
      names.emplace_back("pipeline");
    }
  }
  for (const std::string& each : names) {
    if (!all_reduce_algorithm_of(each) && each != "parameter_server" && each != "pipeline") {
      std::string all = "parameter_server, pipeline";
      for (const std::string_view name : comm::all_reduce_algorithm_names) {
        all += name == "native" ? "" : ", " + std::string{name};
      }
      throw std::invalid_argument{"--strategy: expected some of " + all + ", got '" + gradus::printable(each) + "'"};
    }
    if (each == "pipeline" && chosen.stages == 0) {
      throw std::invalid_argument{"--strategy: pipeline needs --stages"};
    }
  }
  return names;
}

std::string obstacle(const prediction_inputs& given, const std::string& strategy, int ranks) {
  const settings& chosen = given.chosen;
  if (strategy == "parameter_server" && chosen.servers > (chosen.colocate_servers ? ranks : ranks - 1)) {
    return std::to_string(chosen.servers) + " servers need more ranks";
  }
  if (strategy == "pipeline" && ranks % chosen.stages != 0) {
    return "no multiple of " + std::to_string(chosen.stages) + " stages";
  }
  return {};
}

sim::prediction predict_one(const prediction_inputs& given, const std::string& strategy, int ranks, bool spans) {
  const settings& chosen = given.chosen;
  sim::uncertainties unsure{.bandwidth = given.network.uncertainty,
                            .latency = 2 * given.network.uncertainty,
                            .compute = given.source.uncertainty,
                            .calibrated_ranks = std::max(1, given.source.ranks)};
  if (given.source.ranks > 0 && given.source.micro_batches != chosen.micro_batches) {
    unsure.compute = std::max(unsure.compute, other_micro_batches);
  }
  const auto images = static_cast<double>(chosen.batch_size_per_rank);
  // Where the variation of ranks counts, one step says little.
  sim::replay_options options{.steps = given.source.work.variation.empty() ? 2 : 5, .spans = spans};
  if (strategy == "parameter_server") {
    const sim::server_training how = servers_of(given, ranks);
    const int workers = how.colocate ? ranks : ranks - how.servers;
    if (ranks > 512) {
      options.steps = 2;
    }
    return sim::predict(ranks, workers, images * workers, given.network.description, given.source.work, unsure,
                        [&](const sim::cluster& of, const sim::workload& work) {
                          return sim::replay_servers(of, work, how, ranks, options);
                        });
  }
  if (strategy == "pipeline") {
    return sim::predict(ranks, ranks, images * (ranks / chosen.stages), given.network.description, given.source.work,
                        unsure, [&](const sim::cluster& of, const sim::workload& work) {
                          return sim::replay_pipeline(of, pipeline_of(given, work, ranks), options);
                        });
  }
  const sim::data_parallel_model model{given.network.description, given.source.work,
                                       all_reduce_of(given, *all_reduce_algorithm_of(strategy), ranks), ranks, options};
  if (model.messages() > 1e6 && model.simulated_ranks() == ranks) {
    options.steps = 2;
  }
  return sim::predict(
      ranks, ranks, images * ranks, given.network.description, given.source.work, unsure,
      [&](const sim::cluster& of, const sim::workload& work) { return model.replay(of, work, options); });
}

}  // namespace driver
