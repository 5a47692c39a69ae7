// SPDX-License-Identifier: BSL-1.0
//
// Figures as JSON and CSV.
#include "figures.hpp"

#include <cstdio>  // std::snprintf

#include "gradus/core/format.hpp"

namespace gradus::report {
namespace {

using nlohmann::ordered_json;

double milliseconds(double microseconds) {
  return microseconds / 1e3;
}

/// @param divide  how many steps the times are spread over
ordered_json activities(const times& all, double divide) {
  ordered_json result = ordered_json::object();
  for (std::size_t i = 0; i < activity_count; ++i) {
    result[std::string{activity_names[i]}] = milliseconds(all[i]) / divide;
  }
  return result;
}

double part(double of_it, double whole) {
  return whole > 0 ? of_it / whole : 0;
}

ordered_json rank_json(const trace& from, std::size_t rank, const rank_figures& its) {
  const double steps = its.steps > 0 ? static_cast<double>(its.steps) : 1;
  ordered_json result;
  result["rank"] = rank;
  result["host"] = rank < from.hosts.size() ? from.hosts[rank] : std::string{};
  result["steps"] = its.steps;
  result["step_ms"] = milliseconds(its.step_time) / steps;
  result["breakdown_ms"] = activities(its.in_steps, steps);
  result["run_ms"] = activities(its.in_run, 1);
  result["communicate_ms"] = {{"total", milliseconds(its.communicate)},
                              {"hidden", milliseconds(its.hidden)},
                              {"exposed", milliseconds(its.exposed)}};
  result["overlap"] = part(its.hidden, its.communicate);
  result["waits_for_rank_ms"] = milliseconds(its.waits_for_rank) / steps;
  result["waits_for_data_ms"] = milliseconds(its.waits_for_data) / steps;
  result["waits_for_stages_ms"] = milliseconds(its.waits_for_stages) / steps;
  result["makes_wait_ms"] = milliseconds(its.makes_wait) / steps;
  result["was_last"] = its.was_last;
  result["copies_ms"] = milliseconds(its.copies) / steps;
  result["copied_bytes"] = its.copied_bytes;
  result["sent_bytes"] = its.sent_bytes;
  result["received_bytes"] = its.received_bytes;
  result["collective_bytes"] = its.collective_bytes;
  result["evaluations"] = its.evaluations;
  result["loader_ms"] = milliseconds(its.loads) / steps;
  return result;
}

ordered_json bubble_json(const pipeline_figures& from, const bubble_figures& its) {
  ordered_json result = {{"all", its.all}};
  if (from.explained()) {
    result["filling"] = its.filling;
    result["unequal"] = its.unequal;
    result["rest"] = its.rest;
  }
  return result;
}

ordered_json pipeline_json(const pipeline_figures& its) {
  ordered_json result = {{"ranks_of_replica", its.ranks_of_replica},
                         {"replicas", its.replicas},
                         {"stages_per_rank", its.stages_per_rank},
                         {"micro_batches", its.micro_batches},
                         {"schedule", its.schedule},
                         {"splits_backward", its.splits_backward},
                         {"steps", its.steps},
                         {"steps_left_out", its.left_out}};
  ordered_json& stages = result["stages"] = ordered_json::array();
  for (const stage_figures& each : its.stages) {
    ordered_json next = {{"stage", each.stage}, {"ranks", each.ranks}, {"layers", each.layers}};
    if (each.layers > 0) {
      next["first_layer"] = each.first_layer;
      next["last_layer"] = each.last_layer;
    }
    next["forward_ms"] = milliseconds(each.forward);
    next["backward_ms"] = milliseconds(each.backward);
    if (its.splits_backward) {
      next["input_gradients_ms"] = milliseconds(each.input_gradients);
      next["weight_gradients_ms"] = milliseconds(each.weight_gradients);
    }
    next["computes"] = each.computes;
    next["bubble"] = bubble_json(its, each.bubble);
    stages.push_back(std::move(next));
  }
  ordered_json& ranks = result["ranks"] = ordered_json::array();
  for (const stage_rank_figures& each : its.ranks) {
    ranks.push_back({{"rank", each.rank},
                     {"replica", each.replica},
                     {"stages", each.stages},
                     {"steps", each.steps},
                     {"computes", each.computes},
                     {"bubble", bubble_json(its, each.bubble)}});
  }
  ordered_json& cuts = result["cuts"] = ordered_json::array();
  for (const cut_figures& each : its.cuts) {
    cuts.push_back({{"between", {each.first, each.second}},
                    {"messages", each.messages},
                    {"bytes", each.bytes},
                    {"under_way_ms", milliseconds(each.time)}});
  }
  ordered_json& predictions = result["predictions"] = ordered_json::array();
  for (const pipeline_figures::prediction& each : its.predictions) {
    predictions.push_back({{"micro_batches", each.micro_batches}, {"bubble", each.bubble}});
  }
  return result;
}

/// Cells of one line, quoted where they have to be.
std::string cell(const std::string& text) {
  std::string result = text;
  if (!result.empty() && std::string{"=+-@\t\r"}.find(result[0]) != std::string::npos) {
    result.insert(0, "'");
  }
  if (result.find_first_of(",\"\r\n") == std::string::npos) {
    return result;
  }
  std::string all = "\"";
  for (const char c : result) {
    all += c;
    if (c == '"') {
      all += c;
    }
  }
  return all + "\"";
}

class csv_lines {
 public:
  void add(const char* table, int rank, const std::string& item, const std::string& figure, double value,
           const char* unit) {
    char digits[40];
    gradus::format_text(digits, sizeof digits, "%.9g", value);
    text += std::string{table} + "," + (rank >= 0 ? std::to_string(rank) : "") + "," + cell(item) + "," + cell(figure) +
            "," + digits + "," + unit + "\n";
  }
  std::string text = "table,rank,item,figure,value,unit\n";
};

void add_pipeline(csv_lines& lines, const pipeline_figures& its) {
  if (its.empty()) {
    return;
  }
  const char* const step = "part of the step";
  const auto bubble = [&](const char* table, int rank, const std::string& item, const bubble_figures& all) {
    lines.add(table, rank, item, "bubble", all.all, step);
    if (its.explained()) {
      lines.add(table, rank, item, "filling and draining", all.filling, step);
      lines.add(table, rank, item, "unequal stages", all.unequal, step);
      lines.add(table, rank, item, "transfers and the rest", all.rest, step);
    }
  };
  lines.add("pipeline", -1, its.schedule, "ranks of a replica", its.ranks_of_replica, "");
  lines.add("pipeline", -1, its.schedule, "replicas", its.replicas, "");
  lines.add("pipeline", -1, its.schedule, "stages of a rank", its.stages_per_rank, "");
  lines.add("pipeline", -1, its.schedule, "micro-batches", its.micro_batches, "");
  lines.add("pipeline", -1, its.schedule, "steps", static_cast<double>(its.steps), "");
  for (const pipeline_figures::prediction& each : its.predictions) {
    lines.add("pipeline", -1, its.schedule, "bubble with " + std::to_string(each.micro_batches) + " micro-batches",
              each.bubble, step);
  }
  for (const stage_figures& each : its.stages) {
    const std::string stage = std::to_string(each.stage);
    lines.add("stage", -1, stage, "layers", static_cast<double>(each.layers), "");
    lines.add("stage", -1, stage, "forward", milliseconds(each.forward), "ms a micro-batch");
    lines.add("stage", -1, stage, "backward", milliseconds(each.backward), "ms a micro-batch");
    if (its.splits_backward) {
      lines.add("stage", -1, stage, "gradients of inputs", milliseconds(each.input_gradients), "ms a micro-batch");
      lines.add("stage", -1, stage, "gradients of weights", milliseconds(each.weight_gradients), "ms a micro-batch");
    }
    lines.add("stage", -1, stage, "computes", each.computes, step);
    bubble("stage", -1, stage, each.bubble);
  }
  for (const stage_rank_figures& each : its.ranks) {
    lines.add("stage_rank", each.rank, "", "replica", each.replica, "");
    lines.add("stage_rank", each.rank, "", "computes", each.computes, step);
    bubble("stage_rank", each.rank, "", each.bubble);
  }
  for (const cut_figures& each : its.cuts) {
    const std::string ends = std::to_string(each.first) + " and " + std::to_string(each.second);
    lines.add("cut", -1, ends, "messages", each.messages, "a step");
    lines.add("cut", -1, ends, "bytes", each.bytes, "bytes a step");
    lines.add("cut", -1, ends, "under way", milliseconds(each.time), "ms a step");
  }
}

}  // namespace

std::string json_text(const ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json figures_json(const trace& from, const analysis& figures) {
  ordered_json result;
  double steps = 0;
  times in_steps{};
  for (const rank_figures& each : figures.ranks) {
    steps += static_cast<double>(each.steps);
    for (std::size_t i = 0; i < activity_count; ++i) {
      in_steps[i] += each.in_steps[i];
    }
  }
  const double all_steps = steps > 0 ? steps : 1;
  const double step_time = figures.sum(&rank_figures::step_time);
  result["model"] = from.model;
  result["ranks"] = from.ranks;
  result["threads"] = from.threads;
  result["batch_size"] = from.batch_size;
  result["run_ms"] = milliseconds(figures.run);
  result["images_per_second"] = figures.images_per_second;
  const distribution& step = figures.step_time;
  result["step_ms"] = {{"count", step.count},
                       {"median", milliseconds(step.median)},
                       {"mean", milliseconds(step.mean)},
                       {"p5", milliseconds(step.p5)},
                       {"p95", milliseconds(step.p95)},
                       {"least", milliseconds(step.least)},
                       {"greatest", milliseconds(step.greatest)},
                       {"jitter", milliseconds(step.jitter)}};
  result["breakdown_ms"] = activities(in_steps, all_steps);
  const double communicate = figures.sum(&rank_figures::communicate);
  result["communicate_ms"] = {{"total", milliseconds(communicate) / all_steps},
                              {"hidden", milliseconds(figures.sum(&rank_figures::hidden)) / all_steps},
                              {"exposed", milliseconds(figures.sum(&rank_figures::exposed)) / all_steps}};
  result["overlap"] = part(figures.sum(&rank_figures::hidden), communicate);
  result["waits_for_rank"] = part(figures.sum(&rank_figures::waits_for_rank), step_time);
  result["waits_for_data"] = part(figures.sum(&rank_figures::waits_for_data), step_time);

  ordered_json& verdicts = result["verdicts"] = ordered_json::array();
  for (const verdict& each : figures.verdicts) {
    ordered_json its = {
        {"kind", each.kind}, {"share", each.share}, {"sentence", each.sentence}, {"advice", each.advice}};
    ordered_json& list = its["figures"] = ordered_json::array();
    for (const verdict::figure& figure : each.figures) {
      list.push_back({{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}});
    }
    if (each.end > each.begin) {
      its["example"] = {
          {"rank", each.rank}, {"begin_ms", milliseconds(each.begin)}, {"end_ms", milliseconds(each.end)}};
    }
    verdicts.push_back(std::move(its));
  }
  result["cautions"] = figures.cautions;

  if (!figures.pipeline.empty()) {
    result["pipeline"] = pipeline_json(figures.pipeline);
  }
  ordered_json& ranks = result["by_rank"] = ordered_json::array();
  for (std::size_t rank = 0; rank < figures.ranks.size(); ++rank) {
    ranks.push_back(rank_json(from, rank, figures.ranks[rank]));
  }
  ordered_json& waiting = result["waiting"] = ordered_json::array();
  for (const blame& each : figures.blames) {
    waiting.push_back({{"rank", each.rank},
                       {"cause", activity_names[static_cast<std::size_t>(each.cause)]},
                       {"total_ms", milliseconds(each.total)},
                       {"share", each.share}});
  }
  ordered_json& links = result["links"] = ordered_json::array();
  for (const link_figures& each : figures.links) {
    links.push_back({{"from", each.from},
                     {"to", each.to},
                     {"messages", each.messages},
                     {"bytes", each.bytes},
                     {"busy_ms", milliseconds(each.busy)}});
  }
  ordered_json& transfers = result["transfers"] = ordered_json::array();
  for (const transfer_figures& each : figures.transfers) {
    transfers.push_back({{"name", each.name},
                         {"operation", each.operation},
                         {"bucket", each.bucket},
                         {"count", each.count},
                         {"bytes", each.bytes},
                         {"waiting_ms", each.told ? ordered_json(milliseconds(each.waiting)) : ordered_json{}},
                         {"transferring_ms", milliseconds(each.transferring)}});
  }
  ordered_json& layers = result["layers"] = ordered_json::array();
  for (const layer_figures& each : figures.layers) {
    layers.push_back({{"name", each.name},
                      {"forward_ms", milliseconds(each.forward) / all_steps},
                      {"backward_ms", milliseconds(each.backward) / all_steps},
                      {"update_ms", milliseconds(each.update) / all_steps}});
  }
  ordered_json& times_of_steps = result["steps"] = ordered_json::array();
  for (const step_figures& each : figures.steps) {
    times_of_steps.push_back({each.rank, each.step, milliseconds(each.begin), milliseconds(each.end - each.begin)});
  }
  return result;
}

std::string figures_csv(const trace& from, const analysis& figures) {
  csv_lines lines;
  const auto ms = milliseconds;
  lines.add("run", -1, from.model, "ranks", from.ranks, "");
  lines.add("run", -1, from.model, "run", ms(figures.run), "ms");
  lines.add("run", -1, from.model, "images_per_second", figures.images_per_second, "images/s");
  lines.add("run", -1, from.model, "overlap",
            part(figures.sum(&rank_figures::hidden), figures.sum(&rank_figures::communicate)), "part of 1");
  const distribution& step = figures.step_time;
  for (const auto& [name, value] : {std::pair{"median", step.median},
                                    {"mean", step.mean},
                                    {"p5", step.p5},
                                    {"p95", step.p95},
                                    {"least", step.least},
                                    {"greatest", step.greatest},
                                    {"jitter", step.jitter}}) {
    lines.add("step", -1, "", name, ms(value), "ms");
  }
  for (const verdict& each : figures.verdicts) {
    lines.add("verdict", -1, each.sentence, each.kind, each.share, "part of the run");
    for (const verdict::figure& figure : each.figures) {
      lines.add("verdict", -1, each.sentence, figure.name, figure.value, figure.unit.c_str());
    }
  }
  for (std::size_t i = 0; i < figures.ranks.size(); ++i) {
    const rank_figures& its = figures.ranks[i];
    const auto rank = static_cast<int>(i);
    const double steps = its.steps > 0 ? static_cast<double>(its.steps) : 1;
    lines.add("rank", rank, "", "steps", static_cast<double>(its.steps), "");
    lines.add("rank", rank, "", "step", ms(its.step_time) / steps, "ms a step");
    for (std::size_t k = 0; k < activity_count; ++k) {
      lines.add("rank", rank, std::string{activity_names[k]}, "in steps", ms(its.in_steps[k]) / steps, "ms a step");
    }
    for (std::size_t k = 0; k < activity_count; ++k) {
      lines.add("rank", rank, std::string{activity_names[k]}, "in the run", ms(its.in_run[k]), "ms");
    }
    lines.add("rank", rank, "communicate", "total", ms(its.communicate), "ms");
    lines.add("rank", rank, "communicate", "hidden", ms(its.hidden), "ms");
    lines.add("rank", rank, "communicate", "exposed", ms(its.exposed), "ms");
    lines.add("rank", rank, "", "waits for rank", ms(its.waits_for_rank) / steps, "ms a step");
    lines.add("rank", rank, "", "waits for data", ms(its.waits_for_data) / steps, "ms a step");
    lines.add("rank", rank, "", "waits for stages", ms(its.waits_for_stages) / steps, "ms a step");
    lines.add("rank", rank, "", "makes wait", ms(its.makes_wait) / steps, "ms a step");
    lines.add("rank", rank, "", "was last", static_cast<double>(its.was_last), "collectives");
    lines.add("rank", rank, "", "copied", static_cast<double>(its.copied_bytes), "bytes");
    lines.add("rank", rank, "", "sent", static_cast<double>(its.sent_bytes), "bytes");
    lines.add("rank", rank, "", "received", static_cast<double>(its.received_bytes), "bytes");
    lines.add("rank", rank, "", "collective buffers", static_cast<double>(its.collective_bytes), "bytes");
    lines.add("rank", rank, "", "evaluations", static_cast<double>(its.evaluations), "");
  }
  add_pipeline(lines, figures.pipeline);
  for (const blame& each : figures.blames) {
    const std::string cause{activity_names[static_cast<std::size_t>(each.cause)]};
    lines.add("waiting", each.rank, cause, "the others wait", ms(each.total), "ms");
    lines.add("waiting", each.rank, cause, "share of the others' steps", each.share, "part of 1");
  }
  for (const link_figures& each : figures.links) {
    const std::string to = "to rank " + std::to_string(each.to);
    lines.add("link", each.from, to, "messages", static_cast<double>(each.messages), "");
    lines.add("link", each.from, to, "bytes", static_cast<double>(each.bytes), "bytes");
    lines.add("link", each.from, to, "busy", ms(each.busy), "ms");
  }
  for (const transfer_figures& each : figures.transfers) {
    lines.add("transfer", -1, each.name, "count", static_cast<double>(each.count), "");
    lines.add("transfer", -1, each.name, "bytes", static_cast<double>(each.bytes), "bytes");
    if (each.told) {
      lines.add("transfer", -1, each.name, "waiting", ms(each.waiting), "ms");
    }
    lines.add("transfer", -1, each.name, "transferring", ms(each.transferring), "ms");
  }
  for (const layer_figures& each : figures.layers) {
    lines.add("layer", -1, each.name, "forward", ms(each.forward), "ms");
    lines.add("layer", -1, each.name, "backward", ms(each.backward), "ms");
    lines.add("layer", -1, each.name, "update", ms(each.update), "ms");
  }
  for (const step_figures& each : figures.steps) {
    lines.add("step_time", each.rank, std::to_string(each.step), "step", ms(each.end - each.begin), "ms");
  }
  return lines.text;
}

}  // namespace gradus::report
