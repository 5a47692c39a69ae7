// SPDX-License-Identifier: BSL-1.0
//
// What a measurement finds, and the statistics in it.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/loss_scale_report.hpp"
#include "settings.hpp"

namespace driver {

/// Where the time of a step goes, in seconds. On ranks of several threads these are times of the thread that trains; on
/// a GPU forward, backward and update are the GPU's, with what it waits for transfers in backward.
enum class phase { forward, backward, update, communicate, wait, input, copy };
inline constexpr std::array<const char*, 7> phase_names{"forward", "backward", "update", "communicate",
                                                        "wait",    "input",    "copy"};
using breakdown = std::array<double, phase_names.size()>;

/// Of the steps of a rank, in seconds.
struct step_statistics {
  double median = 0;
  double mean = 0;
  double p5 = 0;
  double p95 = 0;
  double jitter = 0;  ///< 1.4826 times the median deviation from the median
};
[[nodiscard]] step_statistics statistics_of(std::vector<double> seconds);

/// A line of tf_cnn_benchmarks' output: the speed so far.
struct speed {
  double mean = 0;         ///< images a second: batch / mean time
  double uncertainty = 0;  ///< standard deviation of the speeds / sqrt(steps)
  double jitter = 0;       ///< 1.4826 times the median deviation from the median speed
};
[[nodiscard]] speed speed_of(index_t batch, const std::vector<double>& seconds);

/// What the checkpoints of a measurement cost rank 0, in seconds.
struct save_statistics {
  int count = 0;             ///< saves that have ended, those of the warm-up too
  int failed = 0;            ///< among them
  std::uint64_t bytes = 0;   ///< of a file
  step_statistics snapshot;  ///< a step waited for the copy of the state
  step_statistics wait;      ///< and for the save before
  step_statistics save;      ///< until the file was durable
};

/// How long a batch takes in inference, in seconds, over all batches of all ranks.
struct latency_statistics {
  double median = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double largest = 0;
};
/// The shortest time that a share of the batches does not exceed. @pre there is one
[[nodiscard]] latency_statistics latency_of(std::vector<double> seconds);

/// The pipeline of a training in stages.
struct pipeline_properties {
  int stages = 1;           // ranks of a replica
  int stages_per_rank = 1;  // each of them has
  int micro_batches = 1;
  std::string schedule;
  double bubble = 0;           // the share of the predicted step in which ranks wait
  double measured_bubble = 0;  // of the measured steps, the mean over all ranks
};

/// What an evaluation has found, over all ranks.
struct evaluation_result {
  std::string checkpoint;  ///< the file
  std::int64_t step = -1;  ///< of the training, when it was saved
  index_t examples = 0;
  double loss = 0;                   ///< the mean
  double top_1 = 0;                  ///< the share of labels whose class has the largest score
  std::optional<double> top_5{};     ///< or one of the five largest; of more than five classes
  std::optional<double> mean_iou{};  ///< intersection over union, the mean over the classes; of labels for each pixel
};

struct result {
  std::string model;
  index_t batch_size = 0;  // of a rank
  int ranks = 1;
  int threads = 1;
  std::string device;
  std::string precision;
  bool winograd = true;
  bool flush_denormals = false;
  std::string data_format;
  std::string variable_update;
  int micro_batches = 1;                        // of a rank or replica
  std::optional<pipeline_properties> pipeline;  // of a training in stages
  std::string dataset;
  std::string optimizer;
  double images_per_second = 0;                                // of all ranks; of several repeats the median
  std::vector<double> repeats;                                 // likewise, of each
  step_statistics step;                                        // of all ranks
  breakdown phases{};                                          // of a step, the mean over all ranks and measured steps
  std::uint64_t peak_memory_bytes = 0;                         // of the largest process
  std::uint64_t peak_device_memory_bytes = 0;                  // of the fullest GPU, as far as its pool gave it
  double loss = 0;                                             // of the last step, on rank 0 or the first replica
  std::optional<gradus::optim::loss_scale_report> loss_scale;  // of training in float16
  std::optional<gradus::optim::gradient_norm_report> gradient_norm;  // of the last repeat, where it is clipped
  std::optional<latency_statistics> latency;                         // of inference
  std::optional<evaluation_result> evaluation;                       // of a checkpoint
  std::optional<save_statistics> saves;                              // of a measurement with checkpoints
};

/// As --json writes it.
[[nodiscard]] nlohmann::ordered_json json_of(const pipeline_properties& pipeline);
/// What --json writes.
[[nodiscard]] std::string json_text(const result& found);
/// Reads a file of json_text. @throws std::invalid_argument when it is something else
[[nodiscard]] result read_json(const std::string& path);

}  // namespace driver
