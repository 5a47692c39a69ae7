// SPDX-License-Identifier: BSL-1.0
//
// What the command line of gradus_bench asks for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradus/comm/wait.hpp"
#include "gradus/core/index.hpp"

namespace driver {

using gradus::index_t;

/// What the program does.
enum class command { measure, scale, tune, pack, predict, network };
[[nodiscard]] const char* name_of(command what) noexcept;

/// How the ranks keep their parameters the same.
enum class variable_update {
  independent,             ///< they do not
  replicated,              ///< ranks in the threads of one process sum their gradients in shared memory
  parameter_server,        ///< servers hold the parameters
  distributed_replicated,  ///< servers hold the parameters, and every rank a copy that it computes with
  all_reduce,              ///< gradients are summed over the ranks
  sharded_update,          ///< gradients are summed and parameters updated in blocks, one a rank
  model_averaging,         ///< parameters are averaged at intervals
  compressed_all_reduce,   ///< gradients are summed over the ranks in 16 or 8 bits
  hybrid                   ///< ranks have stages of the network, and gradients are summed over replicas of the stages
};
[[nodiscard]] const char* name_of(variable_update mode) noexcept;

[[nodiscard]] constexpr bool uses_servers(variable_update mode) noexcept {
  return mode == variable_update::parameter_server || mode == variable_update::distributed_replicated;
}

/// In which order gradients travel.
enum class transfer_order { none, tic, tac, random };
[[nodiscard]] const char* name_of(transfer_order order) noexcept;

/// The --all-reduce-spec that means NCCL, on GPUs.
inline constexpr const char* nccl_spec = "nccl";
/// The one that means shared memory inside each machine and MPI between them.
inline constexpr const char* levels_spec = "hierarchical";

struct settings {
  command what = command::measure;
  // The training
  std::string model = "trivial";
  index_t image_size = 0;           // rows and columns of an image; 0: the model's
  index_t batch_size_per_rank = 0;  // in a pipeline of a replica; 0: the model's
  bool nhwc = false;
  variable_update update = variable_update::all_reduce;
  std::string all_reduce_spec;  // empty: what the communicator does itself
  transfer_order order = transfer_order::none;
  int servers = 1;
  bool colocate_servers = false;
  std::string server_mode = "synchronous";
  std::string placement = "partitioned";
  int parts_per_server = 8;              // of placement partitioned
  int backup_workers = 0;                // of server mode synchronous: whose gradients a step does not wait for
  int staleness_bound = 0;               // of server mode bounded_staleness: steps ahead of the slowest worker
  bool staged = false;                   // values travel behind the step that computes with those before them
  int messages_under_way = 4;            // between a worker and a server
  int average_every = 10;                // steps between two averages of the parameters
  std::string outer_optimizer = "none";  // of model_averaging
  double outer_learning_rate = 0.7;
  double outer_momentum = 0.9;
  std::string compression = "bfloat16";  // of compressed_all_reduce
  int stages = 0;                        // ranks of a replica of the pipeline; 0: not asked for
  int micro_batches = 0;                 // of a rank or replica; 0: of a pipeline 4 a stage, else 1
  std::string schedule = "one_f_one_b";
  int stages_per_rank = 1;
  std::string layer_times = "measured";
  std::vector<std::string> stage_cuts;  // first layers of all stages but the first; empty: chosen
  std::size_t memory_limit = 0;         // of a rank, in bytes; 0: none
  std::string optimizer = "sgd";
  double momentum = 0.9;
  double weight_decay = 4e-5;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  std::optional<double> adam_epsilon;  // none: the rule's
  std::optional<double> rms_prop_decay;
  std::optional<double> rms_prop_momentum;
  std::optional<double> rms_prop_epsilon;
  std::optional<double> clip_norm;  // none: gradients are not clipped
  std::optional<double> clip_value;
  double learning_rate = 0.005;
  std::string learning_rate_schedule = "constant";
  std::vector<double> piecewise_rates;       // of piecewise: one more than boundaries
  std::vector<double> piecewise_boundaries;  // in epochs of the data
  double warmup_epochs = 0;                  // of the data, from 0 to the schedule's rate
  double epochs_per_decay = 0;               // of exponential, in epochs of the data
  double decay_factor = 0.94;                // likewise
  double minimum_rate = 0;                   // likewise
  int bucket_kilobytes = 25 * 1024;
  std::uint64_t seed = 1234;
  // The measurement
  int warmup_batches = 10;
  int batches = 100;
  double epochs = 0;                  // of the data, in place of batches; 0: not asked for
  bool forward_only = false;          // measures inference
  bool eval = false;                  // evaluates checkpoints
  double eval_interval = 0;           // seconds between two of them; 0: one evaluation
  index_t eval_batch_size = 0;        // of a rank; 0: as in a training
  int eval_batches = 0;               // 0: as eval_epochs says
  double eval_epochs = 0;             // of the data; 0: not asked for
  bool repeat_cached_sample = false;  // the same batch of --data-dir in every step
  int repeats = 1;
  int display_every = 10;
  // Where it runs
  int ranks = 1;  // in threads of this process
  double time_limit = std::chrono::duration<double>{gradus::comm::default_time_limit}.count();  // seconds
  int threads = 0;                 // of a rank; 0: the processors divided by the ranks of this machine
  std::string device = "cpu";      // or cuda
  std::string precision = "fp32";  // of the values between layers and of products: also tf32, bf16 or fp16
  bool winograd = true;            // convolutions by Winograd where that is faster
  bool flush_denormals = false;    // numbers below the smallest normal one are 0
  bool capture_step = false;       // forward, loss and backward are launched as one graph
  // Input and output
  std::string data_dir;   // empty: synthetic images
  std::string data_name;  // empty: what the folder looks like
  int reader_threads = 4;
  bool skip_corrupt = false;
  std::string json;
  std::string trace_file;
  std::string checkpoint_dir;          // empty: no checkpoints
  std::uint64_t checkpoint_every = 0;  // steps; 0: after each repeat
  bool resume = false;
  bool dry_run = false;
  bool memory_traffic = false;             // show the bytes of a step instead
  double multiply_adds_per_second = 2e10;  // of a rank, for the bounds of a dry run
  double link_bytes_per_second = 117e6;    // likewise
  // Sweeps
  std::vector<int> rank_counts;
  std::string launcher = "threads";  // or mpiexec
  index_t effective_batch = 0;       // of tune: examples of a step over all ranks
  int processors = 0;                // of tune: of each machine; 0: those of this one
  int nodes = 1;                     // of tune: machines in the line that it prints
  std::string csv;
  std::string svg;
  std::string output;  // of pack and network
  // Predictions: of predict, and of tune with --predict
  bool predicts = false;                // of tune: propose, measure nothing
  std::string predicted_ranks;          // "4..128" or "4,8,16"
  std::string profile;                  // a trace file
  std::string network;                  // a description such as "10Gbit/s 25us", or a file with one
  std::vector<std::string> strategies;  // empty: ring, and what the options of the training say
  int ranks_per_host = 1;
  std::string calibrate;           // a file of measured rows
  std::string predicted_trace;     // the trace of a simulated step
  std::vector<std::string> notes;  // flags of tf_cnn_benchmarks without effect
};

/// Reads the command line.
/// @return  the help when it was asked for, else nothing
/// @throws std::invalid_argument that says which option is wrong, what it expects and what came
[[nodiscard]] std::string read_settings(int argc, char** argv, settings& chosen);

}  // namespace driver
