// SPDX-License-Identifier: BSL-1.0
//
// gradus_bench predict, and tune --predict.
#include "predict.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <locale>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "../program/output_file.hpp"
#include "curves.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/sim/timeline.hpp"
#include "input.hpp"
#include "plan.hpp"
#include "predictions.hpp"
#include "training.hpp"
#include "write_trace.hpp"

namespace driver {

namespace {

namespace sim = gradus::sim;

/// A prediction of one strategy.
struct predicted_row {
  std::string strategy;
  sim::prediction found;
};

/// The network, without its memory, and what predictions need of it.
/// @param source_only  no network between hosts is needed
prediction_inputs inputs_of(const settings& given, bool source_only = false) {
  prediction_inputs inputs;
  inputs.chosen = completed(given);
  const settings& chosen = inputs.chosen;
  if (chosen.device != "cpu") {
    throw std::invalid_argument{
        "--device: a prediction takes the times of --profile, which any device may have "
        "measured: leave it out"};
  }
  if (!source_only) {
    inputs.network = network_of(chosen);
  }
  const batches plan{.of_rank = chosen.batch_size_per_rank, .rank = 0, .ranks = 1, .steps = 1};
  const auto made = std::make_shared<forecast_network>();
  made->images = open_input(chosen, model_of(chosen), plan.global());
  made->trained = make_training(chosen, made->device, *made->images, plan, made->unused);
  static_cast<void>(made->trained->forecast());
  inputs.forecast = made;
  const gradus::nn::graph& network = made->trained->structure();
  for (const auto& each : network.nodes()) {
    inputs.layer_elements.push_back(each.parameter_count());
  }
  inputs.source = step_source_of(chosen, network);
  if (chosen.stages > 0) {
    gradus::parallel::hybrid options = pipeline_options(chosen);
    if (chosen.layer_times == "measured" && chosen.stage_cuts.empty() && inputs.source.ranks > 0) {
      for (const sim::layer_times& each : inputs.source.work.layers) {  // as a training cuts it
        options.layer_times.push_back({.forward = each.forward, .backward = each.backward});
      }
    }
    inputs.stages = made->trained->forecast_stages(options);
  }
  return inputs;
}

void print_row(const predicted_row& row) {
  const sim::prediction& found = row.found;
  const sim::step_shares& shares = found.step.shares;
  const double computing = shares.forward + shares.backward + shares.update;
  gradus::print_text(stdout, "%6d %-29s %11.1f  %9.1f to %-9.1f %9.2f %9.1f%% %9.2f %9.2f %9.2f\n", found.ranks,
                     row.strategy.c_str(), found.images_per_second, found.least, found.most, 1e3 * found.step.seconds,
                     100 * found.efficiency, 1e3 * (computing + shares.stolen), 1e3 * shares.straggler,
                     1e3 * shares.exposed);
}

nlohmann::ordered_json json_of(const predicted_row& row) {
  const sim::prediction& found = row.found;
  nlohmann::ordered_json one{{"ranks", found.ranks},
                             {"strategy", row.strategy},
                             {"images_per_second", found.images_per_second},
                             {"least", found.least},
                             {"most", found.most},
                             {"step_ms", 1e3 * found.step.seconds},
                             {"efficiency", found.efficiency},
                             {"beyond_calibrated_range", found.beyond},
                             {"simulated_ranks", found.step.simulated_ranks},
                             {"sent_bytes", found.step.sent_bytes}};
  const sim::step_shares& shares = found.step.shares;
  one["where_ms"] = {{"forward", 1e3 * shares.forward},      {"backward", 1e3 * shares.backward},
                     {"update", 1e3 * shares.update},        {"carrying_transfers", 1e3 * shares.stolen},
                     {"stragglers", 1e3 * shares.straggler}, {"exposed_transfers", 1e3 * shares.exposed}};
  if (found.step.busiest_in > 0) {
    one["busiest_server_bytes"] = found.step.busiest_in;
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const sim::influence& each : found.influences) {
    list.push_back({{"input", each.input}, {"step_ms", 1e3 * each.seconds}, {"measure", each.measurement}});
  }
  one["uncertain"] = std::move(list);
  return one;
}

std::string csv_of(const std::vector<predicted_row>& rows) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << "ranks,strategy,images_per_second,least,most,step_ms,efficiency\n";
  for (const predicted_row& each : rows) {
    text << each.found.ranks << ',' << each.strategy << ',' << each.found.images_per_second << ',' << each.found.least
         << ',' << each.found.most << ',' << 1e3 * each.found.step.seconds << ',' << each.found.efficiency << '\n';
  }
  return text.str();
}

std::string drawing_of(const prediction_inputs& inputs, const std::vector<std::string>& strategies,
                       const std::vector<predicted_row>& rows) {
  std::vector<curve> curves;
  for (const std::string& strategy : strategies) {
    curve one{.label = strategy, .points = {}};
    for (const predicted_row& each : rows) {
      if (each.strategy == strategy) {
        one.points.push_back({each.found.ranks, each.found.images_per_second, each.found.least, each.found.most});
      }
    }
    if (!one.points.empty()) {
      curves.push_back(std::move(one));
    }
  }
  return svg_of(inputs.chosen.model + ", predicted", curves,
                static_cast<double>(inputs.chosen.batch_size_per_rank) / inputs.source.work.seconds());
}

void print_inputs(const prediction_inputs& inputs) {
  const sim::cluster& of = inputs.network.description;
  std::printf("%s, %td images a rank; %s\n", inputs.chosen.model.c_str(), inputs.chosen.batch_size_per_rank,
              inputs.source.description.c_str());
  if (inputs.source.ranks > 0 && inputs.source.micro_batches != inputs.chosen.micro_batches) {
    std::printf(
        "the profile computes a batch in %d part%s, this training in %d: profile with --micro-batches %d, because "
        "small parts take longer an image\n",
        inputs.source.micro_batches, inputs.source.micro_batches == 1 ? "" : "s", inputs.chosen.micro_batches,
        inputs.chosen.micro_batches);
  }
  gradus::print_text(stdout,
                     "network: %.4g MB/s and %.4g us a link, %d rank%s a host on %d rail%s; gradients %.1f MB in %zu "
                     "tensors\n",
                     1e-6 * of.network.bytes_per_second, 1e6 * of.network.latency, of.ranks_per_host,
                     of.ranks_per_host == 1 ? "" : "s", of.rails, of.rails == 1 ? "" : "s",
                     1e-6 * inputs.source.work.bytes(), inputs.source.work.segments.size());
}

void print_certainty(const prediction_inputs& inputs, const predicted_row& row) {
  if (row.found.beyond) {
    std::printf(
        "beyond the calibrated range: the profile has %d rank%s; no measurement of this system confirms more, "
        "and intervals widen with each doubling\n",
        inputs.source.ranks, inputs.source.ranks == 1 ? "" : "s");
  }
  if (!row.found.influences.empty()) {
    const sim::influence& first = row.found.influences.front();
    gradus::print_text(stdout,
                       "most uncertain at %d ranks (%s): %s, worth %.2f ms of a step; to narrow the interval measure "
                       "%s\n",
                       row.found.ranks, row.strategy.c_str(), std::string{first.input}.c_str(), 1e3 * first.seconds,
                       std::string{first.measurement}.c_str());
  }
}

}  // namespace

void predict(const settings& given) {
  if (!given.calibrate.empty()) {
    const prediction_inputs inputs = inputs_of(given, true);
    calibrate(inputs.chosen, inputs.source.work);
    return;
  }
  if (given.predicted_ranks.empty()) {
    throw std::invalid_argument{"predict: expected --ranks, for example --ranks 4..128, or --calibrate, got neither"};
  }
  const std::vector<int> numbers = rank_numbers(given.predicted_ranks);
  const std::vector<std::string> strategies = strategies_of(given);
  program::output_file json = open_output("--json", given.json, given);
  program::output_file csv = open_output("--csv", given.csv, given);
  program::output_file svg = open_output("--svg", given.svg, given);
  program::output_file trace = open_output("--predicted-trace", given.predicted_trace, given);
  for (const program::output_file* const each : {&json, &csv, &svg, &trace}) {
    if (!given.profile.empty()) {
      each->require_not(given.profile);
    }
  }
  const prediction_inputs inputs = inputs_of(given);
  print_inputs(inputs);
  std::printf("%6s %-29s %11s  %-22s %9s %10s %9s %9s %9s\n", "ranks", "strategy", "images/s", "interval", "step [ms]",
              "efficiency", "computes", "slower", "exposed");
  std::vector<predicted_row> rows;
  for (const int ranks : numbers) {
    for (const std::string& strategy : strategies) {
      if (const std::string why = obstacle(inputs, strategy, ranks); !why.empty()) {
        std::printf("%6d %-29s  left out: %s\n", ranks, strategy.c_str(), why.c_str());
        continue;
      }
      rows.push_back({strategy, predict_one(inputs, strategy, ranks)});
      print_row(rows.back());
      std::fflush(stdout);
    }
  }
  if (rows.empty()) {
    throw std::invalid_argument{"predict: no number of ranks fits a strategy"};
  }
  print_certainty(inputs, rows.back());
  if (!given.predicted_trace.empty()) {
    const sim::prediction last = predict_one(inputs, rows.back().strategy, rows.back().found.ranks, true);
    write_trace(trace, sim::timeline_of(last.step, inputs.network.description),
                {.model = inputs.chosen.model, .batch_size_per_rank = inputs.chosen.batch_size_per_rank, .threads = 1});
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const predicted_row& each : rows) {
    list.push_back(json_of(each));
  }
  const nlohmann::ordered_json all{{"model", inputs.chosen.model},
                                   {"batch_size", inputs.chosen.batch_size_per_rank},
                                   {"profile", inputs.source.description},
                                   {"rows", std::move(list)}};
  json.write(all.dump(2) + '\n');
  csv.write(csv_of(rows));
  svg.write(drawing_of(inputs, strategies, rows));
}

void propose(const settings& given) {
  prediction_inputs inputs = inputs_of(given);
  const transfer_order order = given.order == transfer_order::none ? transfer_order::tic : given.order;
  inputs.chosen.order = transfer_order::none;
  const settings common = inputs.chosen;
  const int ranks = given.nodes * given.ranks_per_host;
  print_inputs(inputs);
  struct proposal {
    settings chosen;
    std::string strategy;
    std::string options;
    sim::prediction found;
  };
  const auto faster = [](const proposal& a, const proposal& b) {
    return a.found.images_per_second > b.found.images_per_second;
  };
  std::vector<proposal> all;
  const auto consider = [&](const std::string& strategy, const std::string& options) {
    if (obstacle(inputs, strategy, ranks).empty()) {
      all.push_back({inputs.chosen, strategy, options, predict_one(inputs, strategy, ranks)});
    }
  };
  for (const int kilobytes : {1024, 4096, 25 * 1024}) {
    inputs.chosen.bucket_kilobytes = kilobytes;
    for (const char* const spec : {"ring", "halving_doubling", "hierarchical_ring", "hierarchical_halving_doubling"}) {
      if (std::string{spec}.rfind("hierarchical", 0) != 0 || given.ranks_per_host > 1) {
        consider(spec, std::string{"--all-reduce-spec "} + spec + " --bucket-kilobytes " + std::to_string(kilobytes));
      }
    }
  }
  inputs.chosen = common;
  const std::size_t reduced = all.size();
  for (int servers = 1; servers <= ranks; servers *= 2) {
    inputs.chosen.servers = servers;
    inputs.chosen.colocate_servers = true;
    consider("parameter_server", "--variable-update parameter_server --colocate-servers --servers " +
                                     std::to_string(servers) + " --placement " + given.placement);
  }
  // The best of each kind, in an order too.
  const auto order_best_of = [&](std::size_t begin, std::size_t end) {
    if (begin < end) {
      const auto first = all.begin();
      const proposal best = *std::min_element(first + static_cast<std::ptrdiff_t>(begin),
                                              first + static_cast<std::ptrdiff_t>(end), faster);
      inputs.chosen = best.chosen;
      inputs.chosen.order = order;
      consider(best.strategy, best.options + " --order " + name_of(order));
      inputs.chosen = common;
    }
  };
  const std::size_t with_servers = all.size();
  order_best_of(0, reduced);
  order_best_of(reduced, with_servers);
  if (given.stages > 0) {
    consider("pipeline", "--stages " + std::to_string(given.stages) + " --micro-batches " +
                             std::to_string(inputs.chosen.micro_batches) + " --schedule " + given.schedule);
  }
  if (all.empty()) {
    throw std::invalid_argument{"tune --predict: no strategy fits " + std::to_string(ranks) + " ranks"};
  }
  std::stable_sort(all.begin(), all.end(), faster);
  std::printf("%11s  %-22s %10s  %s\n", "images/s", "interval", "efficiency", "options");
  for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 8); ++i) {
    const sim::prediction& each = all[i].found;
    gradus::print_text(stdout, "%11.1f  %9.1f to %-9.1f %9.1f%%  %s\n", each.images_per_second, each.least, each.most,
                       100 * each.efficiency, all[i].options.c_str());
  }
  // As good as the first: their intervals overlap by more than their centers differ.
  std::size_t equal = 1;
  while (equal < all.size() && all[equal].found.images_per_second > all[0].found.least) {
    ++equal;
  }
  std::printf("proposed for %d nodes of %d ranks: %s\n", given.nodes, given.ranks_per_host, all[0].options.c_str());
  if (equal > 1) {
    std::printf("how sure: %zu proposals are within its interval; gradus_bench tune measures them on the nodes\n",
                equal);
  } else {
    gradus::print_text(stdout, "how sure: the next one is %.0f %% slower, outside the interval\n",
                       100 * (1 - all[std::min<std::size_t>(1, all.size() - 1)].found.images_per_second /
                                      all[0].found.images_per_second));
  }
  print_certainty(inputs, {all[0].options, all[0].found});
  program::output_file json = open_output("--json", given.json, given);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const proposal& each : all) {
    list.push_back(json_of(predicted_row{each.options, each.found}));
  }
  json.write(
      nlohmann::ordered_json{
          {"model", inputs.chosen.model}, {"ranks", ranks}, {"within_interval", equal}, {"proposals", std::move(list)}}
          .dump(2) +
      '\n');
}

}  // namespace driver
