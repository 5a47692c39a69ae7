// SPDX-License-Identifier: BSL-1.0
//
// What is known of a measurement before its first step: its header, its plan, memory, bytes and bounds.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/core/unoptimized.hpp"
#include "gradus/device/binding.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/parallel/int8_blocks.hpp"
#include "gradus/parallel/outer_optimizer.hpp"
#include "gradus/parallel/transfer_order/bucket_order.hpp"
#include "gradus/parallel/transfer_order/simulated_step.hpp"
#include "gradus/parallel/transfer_order/step_graph.hpp"
#include "gradus/parameter_server/placement.hpp"
#include "gradus/simd/isa.hpp"
#include "pipeline.hpp"
#include "plan.hpp"
#include "rules.hpp"
#include "training.hpp"
#include "update.hpp"
#ifdef GRADUS_BENCH_WITH_CUDA
#include "cuda.hpp"
#endif

namespace driver {

namespace {

namespace parallel = gradus::parallel;

double mebibytes(std::size_t bytes) {
  return static_cast<double>(bytes) / 1048576.0;
}

/// What a rank sends and receives in a step, each.
/// @param computation  seconds of a step
double print_bytes(const settings& chosen, const gradus::nn::graph& network, int ranks, double computation) {
  const auto bytes = static_cast<double>(network.parameter_elements()) * sizeof(float);
  std::printf("parameters:  %td in %zu tensors\n", network.parameter_count(), network.parameters().size());
  if (chosen.update == variable_update::independent || ranks == 1) {
    std::printf("bytes:       nothing is sent\n");
    return 0;
  }
  if (uses_servers(chosen.update)) {
    std::vector<parallel::variable> variables;
    for (const auto* const p : network.parameters()) {
      const index_t rows = p->shape.n;
      variables.push_back(
          {.name = p->name, .rows = rows, .row_bytes = p->shape.size() / rows * index_t{sizeof(float)}});
    }
    const auto placed = parallel::place(variables, chosen.servers, {.policy = placement_of(chosen.placement)});
    gradus::print_text(stdout, "bytes:       a rank sends and receives %.0f a step\n%s", bytes,
                       parallel::describe(placed, ranks, chosen.link_bytes_per_second).c_str());
    const auto advice =
        parallel::plan_servers(variables, ranks, computation, chosen.link_bytes_per_second,
                               std::max(ranks, chosen.servers), {.policy = placement_of(chosen.placement)});
    const parallel::server_count& enough = advice.counts[static_cast<std::size_t>(advice.recommended - 1)];
    gradus::print_text(
        stdout,
        "servers:     %d for %d workers, more gain less than 5 %%: communication of at least %.1f ms beside "
        "computation of "
        "%.1f ms a step\n",
        advice.recommended, ranks, 1e3 * enough.communication_seconds, 1e3 * computation);
    return placed.step_seconds(ranks, chosen.link_bytes_per_second) * chosen.link_bytes_per_second;
  }
  const double share = 2.0 * (ranks - 1) / ranks;
  if (chosen.update == variable_update::model_averaging) {
    gradus::print_text(stdout, "bytes:       a rank sends and receives %.0f every %d steps (a ring)\n", share * bytes,
                       chosen.average_every);
    return share * bytes / chosen.average_every;
  }
  if (chosen.update == variable_update::compressed_all_reduce) {
    const auto elements = static_cast<index_t>(network.parameter_elements());
    const auto encoded =
        static_cast<double>(chosen.compression == "int8" ? parallel::int8_blocks::bytes(elements) : 2 * elements);
    gradus::print_text(stdout, "bytes:       a rank sends and receives %.0f a step, in %s\n", share * encoded,
                       chosen.compression.c_str());
    return share * encoded;
  }
  const index_t bucket = index_t{1024} * chosen.bucket_kilobytes;
  const auto buckets = parallel::buckets_of(
      {.bucket_bytes = bucket, .first_bucket_bytes = std::min<index_t>(bucket, 1 << 20)}, network, sizeof(float));
  gradus::print_text(stdout, "bytes:       a rank sends and receives %.0f a step (a ring), in %zu buckets\n",
                     share * bytes, buckets.size());
  return share * bytes;
}

/// The bytes of a checkpoint: of tensors, without the header.
void print_checkpoint(const settings& chosen, const gradus::nn::graph& network, int ranks) {
  const bool alone = chosen.update == variable_update::independent;
  const int replicas = chosen.update == variable_update::hybrid ? ranks / chosen.stages : ranks;
  const int copies = chosen.update == variable_update::model_averaging ? ranks : 1;
  const int with_statistics = alone                                                     ? 1
                              : uses_servers(chosen.update) && !chosen.colocate_servers ? ranks - chosen.servers
                                                                                        : replicas;
  gradus::cpu device{{.intra_op_threads = 1}};
  index_t of_parameter = sizeof(float);  // with the state of the update rule
  constexpr index_t sample = 61;         // parameters: no other buffer of a rule has that size
  const auto bytes_of_state = [](rule& updates) {
    index_t bytes = 0;
    for (const gradus::optim::state_buffer& each : updates.buffers()) {
      bytes += each.elements == sample ? static_cast<index_t>(each.bytes.size()) / sample : 0;
    }
    return bytes;
  };
  of_parameter += bytes_of_state(*make_rule(chosen, device, sample));
  index_t of_strategy = 0;  // what it keeps of a parameter, on all ranks together
  if (chosen.update == variable_update::compressed_all_reduce && chosen.compression == "int8" && ranks > 1) {
    of_strategy = ranks * index_t{sizeof(float)};
  }
  if (const parallel::outer_optimizer outer = averaging_of(chosen).outer;
      chosen.update == variable_update::model_averaging && outer) {
    of_strategy = index_t{sizeof(float)} + bytes_of_state(*outer.make<float>(device, sample));
  }
  const index_t weights = copies * network.parameter_count() * index_t{sizeof(float)};
  const index_t state = copies * network.parameter_count() * (of_parameter - index_t{sizeof(float)});
  const index_t kept = of_strategy * network.parameter_count();
  const index_t statistics = with_statistics * network.buffer_elements() * index_t{sizeof(float)};
  std::printf("checkpoint:  %td bytes%s: parameters %td, update rule %td, running statistics %td",
              weights + state + statistics + kept, alone && ranks > 1 ? " a rank" : "", weights, state, statistics);
  if (kept != 0) {
    std::printf(", strategy %td", kept);
  }
  std::printf("; and a header\n");
  if (!chosen.checkpoint_dir.empty()) {
    const std::uint64_t steps =
        static_cast<std::uint64_t>(chosen.warmup_batches + chosen.batches) * static_cast<std::uint64_t>(chosen.repeats);
    const std::uint64_t saves =
        chosen.checkpoint_every == 0 ? static_cast<std::uint64_t>(chosen.repeats) : steps / chosen.checkpoint_every;
    std::printf("             %llu in '%s', of which the newest 3 are kept\n", static_cast<unsigned long long>(saves),
                gradus::printable(chosen.checkpoint_dir).c_str());
  }
}

void print_what_is_planned(const settings& chosen, const gradus::nn::graph& network, int ranks) {
  std::printf("%s\n", network.describe().c_str());
  std::printf("dry run:     %s, %td images a %s, %d ranks, %s, %s\n", chosen.model.c_str(), chosen.batch_size_per_rank,
              chosen.update == variable_update::hybrid ? "replica" : "rank", ranks, chosen.nhwc ? "NHWC" : "NCHW",
              name_of(chosen.update));
}

/// The lines of a dry run in stages.
void print_pipeline(const settings& chosen, int ranks, training& trained) {
  const pipeline_forecast found = trained.forecast_stages(pipeline_options(chosen));
  const gradus::nn::graph& network = trained.structure();
  const int replicas = ranks / chosen.stages;
  print_what_is_planned(chosen, network, ranks);
  std::printf("parameters:  %td in all stages\n", network.parameter_count());
  print_stages(chosen, network, found, replicas);
  if (replicas > 1) {
    double most = 0;
    for (int rank = 0; rank < chosen.stages; ++rank) {
      double bytes = 0;
      for (auto s = static_cast<std::size_t>(rank); s < found.memory.size();
           s += static_cast<std::size_t>(chosen.stages)) {
        bytes += static_cast<double>(found.memory[s].parameters);
      }
      most = std::max(most, bytes);
    }
    gradus::print_text(stdout, "gradients:   a rank sends and receives at most %.0f bytes of them a step (a ring)\n",
                       2.0 * (replicas - 1) / replicas * most);
  }
  print_checkpoint(chosen, network, ranks);
}

/// The line of a dry run that finds how many stages fit.
void print_fewest_stages(const settings& given, training& trained) {
  settings chosen = given;
  const std::optional<pipeline_forecast> found = trained.fewest_stages(pipeline_options(chosen));
  if (!found) {
    gradus::print_text(stdout, "stages:      no 256 stages with %d micro-batches of %s keep within %.1f MiB a rank\n",
                       chosen.micro_batches, chosen.schedule.c_str(), mebibytes(chosen.memory_limit));
    return;
  }
  chosen.stages = static_cast<int>(found->memory.size());
  gradus::print_text(
      stdout,
      "stages:      %d are the fewest that keep within %.1f MiB a rank: --stages %d --micro-batches %d --schedule "
      "%s --memory-limit %zu\n",
      chosen.stages, mebibytes(chosen.memory_limit), chosen.stages, chosen.micro_batches, chosen.schedule.c_str(),
      chosen.memory_limit);
  print_stages(chosen, trained.structure(), *found, 1);
}

/// The lines of a dry run.
void print_plan(const settings& chosen, int ranks, training& trained) {
  if (chosen.stages > 0) {
    print_pipeline(chosen, ranks, trained);
    return;
  }
  const gradus::nn::memory_forecast memory = trained.forecast();
  const gradus::nn::graph& network = trained.structure();
  print_what_is_planned(chosen, network, ranks);
  gradus::print_text(
      stdout,
      "memory:      %.1f MiB a rank: values and their gradients %.1f (%.1f without sharing), workspace %.1f, "
      "parameters %.1f, gradients %.1f, buffers %.1f; the update rule's and the input's are not counted\n",
      mebibytes(memory.total()), mebibytes(memory.arena), mebibytes(memory.plan.unshared_bytes),
      mebibytes(memory.workspace), mebibytes(memory.parameters), mebibytes(memory.gradients),
      mebibytes(memory.buffers));
  double computation = 0;
  for (const auto& layer :
       parallel::estimated_profile(network, chosen.batch_size_per_rank, chosen.multiply_adds_per_second).layers) {
    computation += layer.forward + layer.backward;
  }
  const double sent = print_bytes(chosen, network, ranks, computation);
  print_checkpoint(chosen, network, ranks);

  parallel::step_graph step;
  step.add_computation("step", {}, computation);
  step.add_transfer("gradients", sent / chosen.link_bytes_per_second);
  const parallel::step_bounds limits = parallel::bounds(step);
  gradus::print_text(
      stdout,
      "bounds:      a step takes from %.1f ms (perfect overlap) to %.1f ms (none), at %.3g multiply-adds and %.3g "
      "bytes a second: at most %.1f images/sec on all ranks; overlap can gain %.0f %%\n",
      1e3 * limits.lower, 1e3 * limits.upper, chosen.multiply_adds_per_second, chosen.link_bytes_per_second,
      static_cast<double>(chosen.batch_size_per_rank) * ranks / limits.lower,
      100 * parallel::possible_speed_up(limits));
  if (chosen.memory_limit > 0) {
    print_fewest_stages(chosen, trained);
  }
}

/// Of --memory-traffic, which counts the bytes of one step of one rank.
/// @throws std::invalid_argument for anything else
void require_one_step(const settings& chosen) {
  const std::string begin = "--memory-traffic: expected ";
  if (chosen.device != "cpu") {
    throw std::invalid_argument{begin + "--device cpu, got --device " + chosen.device};
  }
  if (chosen.what != command::measure) {
    throw std::invalid_argument{begin + "no sub-command, got " + name_of(chosen.what)};
  }
  if (chosen.update == variable_update::hybrid || chosen.ranks != 1 || chosen.micro_batches > 1) {
    throw std::invalid_argument{begin +
                                "one rank without stages and micro-batches: leave out --ranks, --stages and "
                                "--micro-batches"};
  }
}

#ifndef GRADUS_BENCH_WITH_CUDA
[[noreturn]] void require_supported_on_cuda(const settings& /*chosen*/) {
  throw std::invalid_argument{
      "--device: this gradus_bench was built for the CPU only, got 'cuda'; where CMake finds the CUDA toolkit with "
      "nvcc and cuDNN (component gradus::cuda) it is built with it"};
}
#endif

}  // namespace

settings completed(settings chosen) {
  if (chosen.batch_size_per_rank == 0) {
    chosen.batch_size_per_rank = find_model(chosen.model).batch_size;
  }
  if (chosen.micro_batches == 0) {
    const bool searches = chosen.memory_limit > 0 && chosen.stages == 0;  // images one by one need the least memory
    const index_t most = searches ? chosen.batch_size_per_rank : index_t{4} * chosen.stages;
    // The pyramid of deeplab normalizes the mean of each image: of two at least.
    const index_t images = find_model(chosen.model).family == family::deeplab ? 2 : 1;
    chosen.micro_batches =
        static_cast<int>(std::clamp<index_t>(most, 1, std::max<index_t>(1, chosen.batch_size_per_rank / images)));
  }
  return chosen;
}

model_properties model_of(const settings& chosen) {
  model_properties model = find_model(chosen.model);
  if (chosen.image_size > 0) {
    model.image.height = model.image.width = chosen.image_size;
  }
  return model;
}

void require_supported(const settings& chosen) {
  if (chosen.device == "cuda" && chosen.flush_denormals) {
    throw std::invalid_argument{"--flush-denormals: expected --device cpu, got --device cuda, whose kernels keep them"};
  }
  if (chosen.device == "cuda") {
    require_supported_on_cuda(chosen);
  } else if (chosen.precision == "tf32" || chosen.precision == "fp16") {
    throw std::invalid_argument{"--precision: expected fp32 or bf16 with --device cpu, got " + chosen.precision +
                                ", which is of cuda"};
  } else if (chosen.capture_step) {
    throw std::invalid_argument{
        "--capture-step: expected --device cuda, got --device cpu, which takes steps as they come"};
  }
  if (chosen.update == variable_update::hybrid) {
    require_supported_pipeline(chosen);
  }
  if (chosen.memory_traffic) {
    require_one_step(chosen);
  }
  if (chosen.eval) {
    const char* const given = chosen.forward_only               ? "--forward-only"
                              : chosen.resume                   ? "--resume"
                              : !chosen.trace_file.empty()      ? "--trace-file"
                              : chosen.capture_step             ? "--capture-step"
                              : chosen.dry_run                  ? "--dry-run"
                              : chosen.memory_traffic           ? "--memory-traffic"
                              : chosen.repeat_cached_sample     ? "--repeat-cached-sample"
                              : chosen.what != command::measure ? name_of(chosen.what)
                                                                : nullptr;
    if (given != nullptr) {
      throw std::invalid_argument{std::string{"--eval: an evaluation of checkpoints, without "} + given +
                                  ": leave it out"};
    }
    if (chosen.checkpoint_dir.empty()) {
      throw std::invalid_argument{
          "--eval: expected --checkpoint-dir (--train_dir of tf_cnn_benchmarks), the folder of a training, got none"};
    }
  }
  if (chosen.forward_only) {
    const bool gathers = chosen.update == variable_update::hybrid || uses_servers(chosen.update);
    const char* const given = gathers                           ? "--variable-update"
                              : !chosen.checkpoint_dir.empty()  ? "--checkpoint-dir"
                              : !chosen.trace_file.empty()      ? "--trace-file"
                              : chosen.capture_step             ? "--capture-step"
                              : chosen.micro_batches > 1        ? "--micro-batches"
                              : chosen.dry_run                  ? "--dry-run"
                              : chosen.memory_traffic           ? "--memory-traffic"
                              : chosen.what != command::measure ? name_of(chosen.what)
                                                                : nullptr;
    if (given != nullptr) {
      throw std::invalid_argument{std::string{"--forward-only: each rank computes by itself, without "} + given +
                                  ": leave it out"};
    }
  }
  if (chosen.epochs > 0 && (chosen.what != command::measure || chosen.dry_run)) {
    throw std::invalid_argument{"--num-epochs: expected one measurement; give --num-batches instead"};
  }
  if (chosen.update == variable_update::compressed_all_reduce &&
      (!chosen.all_reduce_spec.empty() || chosen.order != transfer_order::none)) {
    throw std::invalid_argument{std::string{chosen.order != transfer_order::none ? "--order" : "--all-reduce-spec"} +
                                ": with --variable-update compressed_all_reduce gradients travel in one way: leave it "
                                "out"};
  }
  if (chosen.update != variable_update::compressed_all_reduce && chosen.compression != settings{}.compression) {
    throw std::invalid_argument{"--compression: expected --variable-update compressed_all_reduce, got " +
                                std::string{name_of(chosen.update)}};
  }
  if (chosen.update != variable_update::model_averaging && chosen.outer_optimizer != settings{}.outer_optimizer) {
    throw std::invalid_argument{"--outer-optimizer: expected --variable-update model_averaging, got " +
                                std::string{name_of(chosen.update)}};
  }
  const index_t images =
      chosen.batch_size_per_rank > 0 ? chosen.batch_size_per_rank : find_model(chosen.model).batch_size;
  if (chosen.what != command::tune && chosen.micro_batches > images) {
    throw std::invalid_argument{"--micro-batches: expected at most --batch-size-per-rank, " + std::to_string(images) +
                                ", got " + std::to_string(chosen.micro_batches)};
  }
  if (!chosen.checkpoint_dir.empty() && chosen.what != command::measure) {
    throw std::invalid_argument{std::string{"--checkpoint-dir: expected one measurement, got "} + name_of(chosen.what) +
                                (chosen.what == command::pack ? "" : ", whose measurements would share a folder") +
                                ": leave it out"};
  }
#ifndef GRADUS_BENCH_WITH_GZIP
  if (chosen.trace_file.ends_with(".gz")) {
    throw std::invalid_argument{
        "--trace-file: a compressed trace needs zlib, which this gradus_bench was built without"};
  }
#endif
  if (chosen.update == variable_update::independent || chosen.update == variable_update::model_averaging) {
    const char* const given = chosen.order != transfer_order::none ? "--order" : "--all-reduce-spec";
    if (chosen.order != transfer_order::none || !chosen.all_reduce_spec.empty()) {
      throw std::invalid_argument{std::string{given} + ": with --variable-update " + name_of(chosen.update) +
                                  " no gradients travel: leave it out"};
    }
  } else if (uses_servers(chosen.update) && !chosen.all_reduce_spec.empty()) {
    throw std::invalid_argument{"--all-reduce-spec: servers reduce nothing over all ranks: leave it out"};
  }
  if (chosen.all_reduce_spec == levels_spec && chosen.ranks > 1) {
    throw std::invalid_argument{
        "--all-reduce-spec: hierarchical is for processes of mpiexec; the threads of --ranks share memory: leave it "
        "out"};
  }
  const bool whole_parameters = chosen.optimizer == "lars" || chosen.optimizer == "lamb";
  if (uses_servers(chosen.update) && whole_parameters && chosen.placement == "partitioned") {
    throw std::invalid_argument{"--placement: " + chosen.optimizer +
                                " needs whole parameters on a server: take another than partitioned"};
  }
  if (uses_servers(chosen.update) && chosen.clip_norm && chosen.server_mode != "synchronous") {
    throw std::invalid_argument{
        "--gradient-clip-norm: servers that are not synchronous never have all gradients of a "
        "step: take --gradient-clip-value"};
  }
  if (chosen.update == variable_update::sharded_update) {
    const bool by_algorithm =
        chosen.device == "cpu" && !chosen.all_reduce_spec.empty() && chosen.all_reduce_spec != levels_spec;
    if (chosen.order != transfer_order::none || by_algorithm) {
      throw std::invalid_argument{std::string{chosen.order != transfer_order::none ? "--order" : "--all-reduce-spec"} +
                                  ": with --variable-update sharded_update blocks of gradients and of parameters "
                                  "travel: leave it out"};
    }
    if (whole_parameters) {
      throw std::invalid_argument{"--optimizer: " + chosen.optimizer +
                                  " needs whole parameters, of which --variable-update sharded_update makes blocks: "
                                  "take all_reduce"};
    }
  }
}

double examples_of_epoch(const settings& chosen, index_t examples_of_set) {
  struct known_set {
    const char* name;
    double training;
    double evaluation;
  };
  constexpr known_set sets[] = {{"imagenet", 1281167, 50000},
                                {"cifar10", 50000, 10000},
                                {"mnist", 60000, 10000},
                                {"isbi2012", 30, 30},
                                {"voc2012", 10582, 1449}};  // with the additional annotations that DeepLab trains on
  if (chosen.data_dir.empty()) {
    const std::string dataset = find_model(chosen.model).dataset;
    for (const known_set& each : sets) {
      if (dataset == each.name) {
        return chosen.eval ? each.evaluation : each.training;
      }
    }
  }
  return static_cast<double>(examples_of_set);
}

void print_header(const settings& chosen, const result& about, index_t examples_of_set) {
  const int replicas = about.pipeline ? about.ranks / about.pipeline->stages : about.ranks;
  const index_t global = chosen.batch_size_per_rank * replicas;
  const double set = examples_of_epoch(chosen, examples_of_set);
  std::printf("Model:       %s\n", chosen.model.c_str());
  std::printf("Dataset:     %s\n", gradus::printable(about.dataset).c_str());
  std::printf("Mode:        %s\n", chosen.eval ? "evaluation" : chosen.forward_only ? "forward-only" : "training");
  std::printf("SingleSess:  False\n");
  std::printf("Batch size:  %td global\n             %td per %s\n", global, chosen.batch_size_per_rank,
              about.pipeline ? "replica" : "device");
  std::printf("Num batches: %d\n", chosen.batches);
  gradus::print_text(stdout, "Num epochs:  %.2f\n", static_cast<double>(global) * chosen.batches / set);
  std::printf("Devices:     [");
  for (int i = 0; i < (chosen.ranks > 1 ? chosen.ranks : 1); ++i) {
    std::printf("%s'/%s:%d'", i == 0 ? "" : ", ", chosen.device == "cuda" ? "gpu" : "cpu", i);
  }
  std::printf("]\nNUMA bind:   False\n");
  std::printf("Processors:  %s\n", gradus::describe_binding().c_str());
  std::printf("Data format: %s\n", about.data_format.c_str());
  std::printf("Optimizer:   %s\n", chosen.optimizer.c_str());
  if (chosen.clip_norm || chosen.clip_value) {
    gradus::print_text(stdout, "Clipping:    by %s, %g\n", chosen.clip_norm ? "norm" : "value",
                       chosen.clip_norm ? *chosen.clip_norm : *chosen.clip_value);
  }
  for (const std::string& note : chosen.notes) {
    std::printf("No effect:   %s\n", gradus::printable(note).c_str());
  }
  if (chosen.learning_rate_schedule != "constant") {
    std::printf("Schedule:    %s\n", chosen.learning_rate_schedule.c_str());
  }
  std::printf("Variables:   %s\n", about.variable_update.c_str());
  if (about.pipeline) {
    gradus::print_text(stdout, "Pipeline:    %d ranks of %d stage%s, %d micro-batches, %s, predicted bubble %.1f %%\n",
                       chosen.stages, chosen.stages_per_rank, chosen.stages_per_rank == 1 ? "" : "s",
                       chosen.micro_batches, chosen.schedule.c_str(), 100 * about.pipeline->bubble);
  } else if (chosen.micro_batches > 1) {
    std::printf("Parts:       %d micro-batches\n", chosen.micro_batches);
  }
  if (!chosen.all_reduce_spec.empty()) {
    std::printf("AllReduce:   %s\n", chosen.all_reduce_spec.c_str());
  }
  if (chosen.order != transfer_order::none) {
    std::printf("Order:       %s\n", name_of(chosen.order));
  }
  if (!chosen.checkpoint_dir.empty()) {
    std::string when = chosen.checkpoint_every == 0 ? std::string{"after each repeat"}
                                                    : "every " + std::to_string(chosen.checkpoint_every) + " steps";
    if (chosen.eval) {
      when = chosen.eval_interval > 0 ? gradus::join({"the newest, every ", chosen.eval_interval, " s"}) : "the newest";
    }
    std::printf("Checkpoints: '%s', %s\n", gradus::printable(chosen.checkpoint_dir).c_str(), when.c_str());
  }
  std::printf("Ranks:       %d\nThreads:     %d per rank\n", about.ranks, about.threads);
  if (chosen.device != "cuda") {
    std::printf("Kernels:     %s\n", std::string{name_of(gradus::kernels::current_instruction_set())}.c_str());
  }
  if (const char* const note = gradus::note_of_unoptimized(); note != nullptr && chosen.device != "cuda") {
    std::printf("Note:        %s\n", note);
  }
  std::printf("==========\n");
  std::fflush(stdout);
}

void dry_run(const settings& given, int all_ranks) {
  const settings chosen = completed(given);
  const int ranks = all_ranks == 1 ? std::max(1, chosen.stages) : all_ranks;
  if (chosen.stages > 0) {
    require_whole_replicas(chosen, ranks);
  }
  const batches plan{
      .of_rank = chosen.batch_size_per_rank, .rank = 0, .ranks = ranks / std::max(1, chosen.stages), .steps = 1};
  const std::unique_ptr<input_set> input = open_input(chosen, model_of(chosen), plan.global());
#ifdef GRADUS_BENCH_WITH_CUDA
  if (chosen.device == "cuda" && cuda_devices() > 0) {
    with_cuda_training(chosen, *input, plan, [&](training& trained) { print_plan(chosen, ranks, trained); });
    return;
  }
#endif
  gradus::cpu device{{.intra_op_threads = std::max(1, chosen.threads)}};
  gradus::trace::recorder unused{{.capacity = 1, .enabled = false}};
  print_plan(chosen, ranks, *make_training(chosen, device, *input, plan, unused));
  if (chosen.device == "cuda") {
    std::printf(
        "device:      there is no CUDA device here: memory is that of an fp32 network on a CPU, without what cuDNN "
        "works in\n");
  }
}

}  // namespace driver
