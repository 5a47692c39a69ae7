// SPDX-License-Identifier: BSL-1.0
//
// Statistics and the JSON form of a measurement.
#include "result.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "../program/statistics.hpp"

namespace driver {

namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

step_statistics statistics_of(std::vector<double> seconds) {
  if (seconds.empty()) {
    return {};
  }
  std::sort(seconds.begin(), seconds.end());
  return {.median = program::quantile(seconds, 0.5),
          .mean = mean_of(seconds),
          .p5 = program::quantile(seconds, 0.05),
          .p95 = program::quantile(seconds, 0.95),
          .jitter = program::jitter(seconds)};
}

speed speed_of(index_t batch, const std::vector<double>& seconds) {
  std::vector<double> speeds;
  for (const double each : seconds) {
    speeds.push_back(static_cast<double>(batch) / each);
  }
  const double middle = mean_of(speeds);
  double squares = 0;
  for (const double each : speeds) {
    squares += (each - middle) * (each - middle);
  }
  const auto count = static_cast<double>(speeds.size());
  return {.mean = static_cast<double>(batch) / mean_of(seconds),
          .uncertainty = std::sqrt(squares / count) / std::sqrt(count),
          .jitter = program::jitter(std::move(speeds))};
}

nlohmann::ordered_json json_of(const pipeline_properties& pipeline) {
  return {{"stages", pipeline.stages},
          {"stages_per_rank", pipeline.stages_per_rank},
          {"micro_batches", pipeline.micro_batches},
          {"schedule", pipeline.schedule},
          {"bubble", pipeline.bubble},
          {"measured_bubble", pipeline.measured_bubble}};
}

latency_statistics latency_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(seconds.size()) - 1e-9));
    return seconds[std::clamp<std::size_t>(rank, 1, seconds.size()) - 1];
  };
  return {.median = at(0.5), .p90 = at(0.9), .p95 = at(0.95), .p99 = at(0.99), .largest = seconds.back()};
}

std::string json_text(const result& found) {
  nlohmann::ordered_json phases;
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    phases[phase_names[i]] = 1e3 * found.phases[i];
  }
  nlohmann::ordered_json all{{"model", found.model},
                             {"batch_size", found.batch_size},
                             {"ranks", found.ranks},
                             {"threads", found.threads},
                             {"device", found.device},
                             {"precision", found.precision},
                             {"winograd", found.winograd},
                             {"flush_denormals", found.flush_denormals},
                             {"data_format", found.data_format},
                             {"variable_update", found.variable_update},
                             {"micro_batches", found.micro_batches},
                             {"dataset", found.dataset},
                             {"optimizer", found.optimizer},
                             {"images_per_second", found.images_per_second},
                             {"repeats", found.repeats},
                             {"step_ms",
                              {{"median", 1e3 * found.step.median},
                               {"mean", 1e3 * found.step.mean},
                               {"p5", 1e3 * found.step.p5},
                               {"p95", 1e3 * found.step.p95},
                               {"jitter", 1e3 * found.step.jitter}}},
                             {"breakdown_ms", phases},
                             {"peak_memory_bytes", found.peak_memory_bytes},
                             {"peak_device_memory_bytes", found.peak_device_memory_bytes},
                             {"loss", found.loss}};
  if (found.latency) {
    all["mode"] = "forward-only";
    all["latency_ms"] = {{"median", 1e3 * found.latency->median},
                         {"p90", 1e3 * found.latency->p90},
                         {"p95", 1e3 * found.latency->p95},
                         {"p99", 1e3 * found.latency->p99},
                         {"largest", 1e3 * found.latency->largest}};
  }
  if (found.evaluation) {
    const evaluation_result& of = *found.evaluation;
    all["mode"] = "evaluation";
    all["evaluation"] = {{"checkpoint", of.checkpoint},
                         {"step", of.step},
                         {"examples", of.examples},
                         {"loss", of.loss},
                         {"top_1_accuracy", of.top_1}};
    if (of.top_5) {
      all["evaluation"]["top_5_accuracy"] = *of.top_5;
    }
    if (of.mean_iou) {
      all["evaluation"]["mean_intersection_over_union"] = *of.mean_iou;
    }
  }
  if (found.pipeline) {
    all["pipeline"] = json_of(*found.pipeline);
  }
  if (found.loss_scale) {
    all["loss_scale"] = {{"scale", found.loss_scale->scale}, {"skipped_steps", found.loss_scale->skipped_steps}};
  }
  if (found.gradient_norm) {
    all["gradient_norm"] = {{"mean", found.gradient_norm->mean},
                            {"largest", found.gradient_norm->largest},
                            {"clipped_steps", found.gradient_norm->clipped_steps},
                            {"steps", found.gradient_norm->steps}};
  }
  if (found.saves) {
    all["checkpoints"] = {{"saves", found.saves->count},
                          {"failed", found.saves->failed},
                          {"bytes", found.saves->bytes},
                          {"snapshot_ms", 1e3 * found.saves->snapshot.median},
                          {"wait_ms", 1e3 * found.saves->wait.median},
                          {"save_ms", 1e3 * found.saves->save.median}};
  }
  return all.dump(2) + '\n';
}

result read_json(const std::string& path) {
  std::ifstream file{path};
  try {
    const nlohmann::json all = nlohmann::json::parse(file);
    result found;
    found.ranks = all.at("ranks").get<int>();
    found.threads = all.at("threads").get<int>();
    found.batch_size = all.at("batch_size").get<index_t>();
    found.images_per_second = all.at("images_per_second").get<double>();
    found.step.median = all.at("step_ms").at("median").get<double>() / 1e3;
    if (all.contains("pipeline")) {
      const nlohmann::json& stages = all.at("pipeline");
      found.pipeline = {.stages = stages.at("stages").get<int>(),
                        .stages_per_rank = stages.at("stages_per_rank").get<int>(),
                        .micro_batches = stages.at("micro_batches").get<int>(),
                        .schedule = stages.at("schedule").get<std::string>(),
                        .bubble = stages.at("bubble").get<double>(),
                        .measured_bubble = stages.at("measured_bubble").get<double>()};
    }
    found.peak_memory_bytes = all.at("peak_memory_bytes").get<std::uint64_t>();
    for (std::size_t i = 0; i < phase_names.size(); ++i) {
      found.phases[i] = all.at("breakdown_ms").at(phase_names[i]).get<double>() / 1e3;
    }
    return found;
  } catch (const nlohmann::json::exception& failure) {
    throw std::invalid_argument{"'" + path + "' is no result of gradus_bench: " + failure.what()};
  }
}

}  // namespace driver
