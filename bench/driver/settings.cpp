// SPDX-License-Identifier: BSL-1.0
//
// The command line of gradus_bench.
#include "settings.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "one_of.hpp"
#include "study_flags.hpp"
#include "zoo.hpp"

namespace driver {

namespace {

// The names of tf_cnn_benchmarks mean the same: the gradients of all ranks come together.
const names<variable_update> update_names{{"independent", variable_update::independent},
                                          {"replicated", variable_update::replicated},
                                          {"parameter_server", variable_update::parameter_server},
                                          {"distributed_replicated", variable_update::distributed_replicated},
                                          {"all_reduce", variable_update::all_reduce},
                                          {"distributed_all_reduce", variable_update::all_reduce},
                                          {"collective_all_reduce", variable_update::all_reduce},
                                          {"horovod", variable_update::all_reduce},
                                          {"sharded_update", variable_update::sharded_update},
                                          {"model_averaging", variable_update::model_averaging},
                                          {"compressed_all_reduce", variable_update::compressed_all_reduce},
                                          {"hybrid", variable_update::hybrid}};
const names<transfer_order> order_names{{"none", transfer_order::none},
                                        {"tic", transfer_order::tic},
                                        {"tac", transfer_order::tac},
                                        {"random", transfer_order::random}};

template <class Value>
const char* key_of(const names<Value>& all, Value value, std::initializer_list<const char*> aliases = {}) {
  for (const auto& [name, named] : all) {
    if (named == value && std::none_of(aliases.begin(), aliases.end(), [&](const char* a) { return name == a; })) {
      return name.c_str();
    }
  }
  return "?";
}

/// Reads "0.1;30;0.01": rates, and between them the epochs at which they change.
void read_piecewise(const std::string& text, settings& chosen) {
  chosen.piecewise_rates.clear();
  chosen.piecewise_boundaries.clear();
  std::string_view rest = text;
  for (bool rate = true;; rate = !rate) {
    const std::string_view word = rest.substr(0, rest.find(';'));
    double number = -1;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool last = word.size() == rest.size();
    std::vector<double>& boundaries = chosen.piecewise_boundaries;
    const bool increases = rate || boundaries.empty() || number > boundaries.back();
    if (failed != std::errc{} || end != word.data() + word.size() || !(number >= 0 && number < 1e9) || !increases ||
        (last && !rate)) {
      throw std::invalid_argument{
          "--piecewise-learning-rate-schedule: expected rates, and between them epochs that increase, such as "
          "0.1;30;0.01;60;0.001, got '" +
          text + "'"};
    }
    (rate ? chosen.piecewise_rates : boundaries).push_back(number);
    if (last) {
      return;
    }
    rest.remove_prefix(word.size() + 1);
  }
}

/// @throws std::invalid_argument for options that exclude each other, or need another one
void require_options_that_fit(const CLI::App& app, const settings& chosen) {
  const bool shaped = chosen.learning_rate_schedule != "constant";
  const bool steps = !chosen.piecewise_rates.empty();
  const bool decays = chosen.epochs_per_decay > 0;
  if (int{shaped} + int{steps} + int{decays} > 1) {
    throw std::invalid_argument{
        "expected one of --learning-rate-schedule, --piecewise-learning-rate-schedule and --num-epochs-per-decay, got "
        "several"};
  }
  if (chosen.warmup_epochs > 0 && chosen.learning_rate_schedule == "one_cycle") {
    throw std::invalid_argument{
        "--num-learning-rate-warmup-epochs: one_cycle has a rise of its own: leave one of them out"};
  }
  for (const char* const each : {"--learning-rate-decay-factor", "--minimum-learning-rate"}) {
    if (app.count(each) != 0 && !decays) {
      throw std::invalid_argument{std::string{each} + ": expected --num-epochs-per-decay, got none"};
    }
  }
  for (const char* const each :
       {"--staleness-bound", "--backup-workers", "--staged", "--messages-under-way", "--parts-per-server"}) {
    if (app.count(each) != 0 && !uses_servers(chosen.update)) {
      throw std::invalid_argument{std::string{each} + ": expected a --variable-update with servers, got " +
                                  name_of(chosen.update)};
    }
  }
  if (app.count("--staleness-bound") != 0 && chosen.server_mode != "bounded_staleness") {
    throw std::invalid_argument{"--staleness-bound: expected --server-mode bounded_staleness, got " +
                                chosen.server_mode};
  }
  if (chosen.backup_workers > 0 && chosen.server_mode != "synchronous") {
    throw std::invalid_argument{"--backup-workers: expected --server-mode synchronous, got " + chosen.server_mode};
  }
  if (app.count("--parts-per-server") != 0 && chosen.placement != "partitioned") {
    throw std::invalid_argument{"--parts-per-server: expected --placement partitioned, got " + chosen.placement};
  }
  if (chosen.repeat_cached_sample && chosen.data_dir.empty()) {
    throw std::invalid_argument{"--repeat-cached-sample: expected --data-dir, got none"};
  }
}

/// What an evaluation takes of the options of the training that has saved the checkpoints.
void choose_evaluation(const CLI::App& app, settings& chosen) {
  if (!chosen.eval) {
    for (std::string each : {"--eval-interval-secs", "--eval-batch-size", "--num-eval-batches", "--num-eval-epochs"}) {
      if (app.count(each) != 0) {
        std::replace(each.begin() + 2, each.end(), '-', '_');
        chosen.notes.push_back(each + ": nothing is evaluated without --eval");
      }
    }
    return;
  }
  if (app.count("--num-eval-batches") + app.count("--num-eval-epochs") == 0) {
    chosen.eval_epochs = chosen.epochs;
    chosen.eval_batches = app.count("--num-batches") != 0 ? chosen.batches : 0;
  }
  if (chosen.eval_batch_size > 0) {
    chosen.batch_size_per_rank = chosen.eval_batch_size;
  }
  // Each rank has the whole network, whatever divided it in the training.
  chosen.update = variable_update::all_reduce;
  chosen.all_reduce_spec.clear();
  chosen.order = transfer_order::none;
  chosen.stages = 0;
  chosen.micro_batches = 1;
  chosen.epochs = 0;
}

void add_optimizer(CLI::App& app, settings& chosen) {
  app.option_defaults()->group("Update rule");
  app.add_option(
         "--optimizer", chosen.optimizer,
         "the update rule; rms_prop is TensorFlow's, as Inception networks use it, and rms_prop_torch PyTorch's")
      ->transform(one_of(names<std::string>{{"sgd", "sgd"},
                                            {"momentum", "momentum"},
                                            {"nesterov", "nesterov"},
                                            {"lars", "lars"},
                                            {"adam", "adam"},
                                            {"adam_w", "adam_w"},
                                            {"rms_prop", "rms_prop"},
                                            {"rmsprop", "rms_prop"},
                                            {"rms_prop_torch", "rms_prop_torch"},
                                            {"adagrad", "adagrad"},
                                            {"lamb", "lamb"}}))
      ->capture_default_str();
  app.add_option("--momentum", chosen.momentum, "of momentum, nesterov and lars")->capture_default_str();
  app.add_option("--weight-decay", chosen.weight_decay,
                 "what of a parameter is added to its gradient; of adam_w, taken off it")
      ->capture_default_str();
  app.add_option("--adam-beta1", chosen.adam_beta1, "of adam, adam_w and lamb")->capture_default_str();
  app.add_option("--adam-beta2", chosen.adam_beta2, "of adam, adam_w and lamb")->capture_default_str();
  app.add_option("--adam-epsilon", chosen.adam_epsilon, "of adam, adam_w (default: 1e-8) and lamb (default: 1e-6)");
  app.add_option("--rms-prop-decay,--rmsprop-decay", chosen.rms_prop_decay,
                 "of rms_prop (default: 0.9) and rms_prop_torch (default: 0.99)");
  app.add_option("--rms-prop-momentum,--rmsprop-momentum", chosen.rms_prop_momentum,
                 "of rms_prop (default: 0.9) and rms_prop_torch (default: 0)");
  app.add_option("--rms-prop-epsilon,--rmsprop-epsilon", chosen.rms_prop_epsilon,
                 "of rms_prop (default: 1) and rms_prop_torch (default: 1e-8)");
  CLI::Option* const norm =
      app.add_option("--gradient-clip-norm", chosen.clip_norm, "clip gradients by their norm over all parameters");
  app.add_option("--gradient-clip-value,--gradient-clip", chosen.clip_value, "clip each element of the gradients")
      ->excludes(norm);
  app.option_defaults()->group("Learning rate");
  app.add_option("--init-learning-rate,--learning-rate", chosen.learning_rate,
                 "the learning rate, or where it begins; of one_cycle the largest")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--learning-rate-schedule", chosen.learning_rate_schedule,
                 "how the learning rate falls to 0 until the last step: all steps of all repeats count")
      ->check(CLI::IsMember({"constant", "linear", "polynomial", "cosine", "one_cycle"}))
      ->capture_default_str();
  app.add_option_function<std::string>(
      "--piecewise-learning-rate-schedule", [&](const std::string& text) { read_piecewise(text, chosen); },
      "rates, and between them the epochs of the data at which they change: 0.1;30;0.01;60;0.001");
  app.add_option("--num-learning-rate-warmup-epochs", chosen.warmup_epochs,
                 "epochs of the data in which the learning rate rises from 0 in a straight line")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--num-epochs-per-decay", chosen.epochs_per_decay,
                 "epochs of the data after each of which the learning rate is multiplied by "
                 "--learning-rate-decay-factor")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--learning-rate-decay-factor", chosen.decay_factor, "of --num-epochs-per-decay")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--minimum-learning-rate", chosen.minimum_rate, "of --num-epochs-per-decay")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_pipeline(CLI::App& app, settings& chosen) {
  constexpr int most = 1 << 15;
  app.option_defaults()->group("Pipelines");
  app.add_option("--stages", chosen.stages,
                 "pipelines: cut the network into stages on this many ranks; further ranks are replicas of them")
      ->check(CLI::Range(1, most));
  app.add_option("--micro-batches", chosen.micro_batches,
                 "compute the images of a step in this many parts whose gradients add up (default: in a pipeline 4 a "
                 "stage if there are as many images, else 1)")
      ->check(CLI::Range(1, most));
  app.add_option("--schedule", chosen.schedule, "of a pipeline: the order of passes")
      ->check(CLI::IsMember({"gpipe", "one_f_one_b", "zero_bubble"}))
      ->capture_default_str();
  app.add_option("--stages-per-rank", chosen.stages_per_rank, "of a pipeline with one_f_one_b: interleaved stages")
      ->check(CLI::Range(1, most))
      ->capture_default_str();
  app.add_option("--stage-cuts", chosen.stage_cuts,
                 "of a pipeline: the first layers of all stages but the first, for example conv3,conv6 (default: the "
                 "cuts with the shortest stages)")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--layer-times", chosen.layer_times,
                 "of a pipeline: choose the cuts by the times of the layers on rank 0, in a step of the whole network "
                 "before the training, or by estimates, also where that network does not fit the memory; a dry run "
                 "estimates")
      ->check(CLI::IsMember({"measured", "estimated"}))
      ->capture_default_str();
  app.add_option("--memory-limit", chosen.memory_limit,
                 "what a rank of a pipeline may take, for example 8GB or 512MiB; with --dry-run and without --stages: "
                 "find the fewest stages that fit")
      ->transform(CLI::AsSizeValue{true});
}

void add_servers(CLI::App& app, settings& chosen) {
  app.option_defaults()->group("Parameter servers");
  app.add_option("--servers", chosen.servers, "parameter servers")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_flag("--colocate-servers", chosen.colocate_servers, "servers beside the first ranks, not on the last ones");
  app.add_option("--server-mode", chosen.server_mode,
                 "when servers apply gradients: synchronous, of all workers together; asynchronous, of each worker as "
                 "they come; compat, of each worker one after another when all have come, as TensorFlow did")
      ->check(CLI::IsMember({"synchronous", "asynchronous", "bounded_staleness", "compat"}))
      ->capture_default_str();
  app.add_option("--staleness-bound", chosen.staleness_bound,
                 "of bounded_staleness: steps that a worker may be ahead of the slowest one")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--backup-workers", chosen.backup_workers,
                 "of synchronous: a step takes the gradients of all workers but this number, the first that come")
      ->check(CLI::Range(0, 4095))
      ->capture_default_str();
  app.add_flag("--staged", chosen.staged,
               "compute a step with the values from before the last one while the new ones travel (--staged_vars)");
  app.add_option("--messages-under-way", chosen.messages_under_way,
                 "between a worker and a server, in each direction: a small number keeps --order")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--parts-per-server", chosen.parts_per_server,
                 "of placement partitioned: how many parts of the parameters a server has, about")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--placement", chosen.placement, "how parameters are spread over servers")
      ->check(CLI::IsMember({"round_robin", "greedy", "longest_first", "partitioned"}))
      ->capture_default_str();
}

void add_ranks(CLI::App& app, settings& chosen) {
  app.option_defaults()->group("Ranks and what they exchange");
  app.add_option("--ranks", chosen.ranks, "ranks in threads of this process; under mpiexec leave it at 1")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--variable-update", chosen.update, "how the ranks keep their parameters the same")
      ->transform(one_of(update_names))
      ->default_str("all_reduce");
  app.add_option(
      "--all-reduce-spec", chosen.all_reduce_spec,
      "which algorithm reduces arrays of which size, for example halving_doubling:64K:xring#2 (default: "
      "what MPI or the shared memory of threads does); under mpiexec also hierarchical: through shared memory inside "
      "each machine, by MPI between them. On GPUs: nccl (default: through the host's memory)");
  app.add_option("--order", chosen.order,
                 "in which order gradients travel: tic by the graph only, tac also by measured times, of layers that "
                 "the next step needs first")
      ->transform(one_of(order_names))
      ->default_str("none");
  app.add_option("--bucket-kilobytes", chosen.bucket_kilobytes, "gradients that travel together")
      ->check(CLI::Range(1, 1 << 21))
      ->capture_default_str();
  app.add_option("--compression", chosen.compression,
                 "of compressed_all_reduce: as what gradients travel; int8 is in blocks with a scale, and what it "
                 "loses is added in the next step")
      ->check(CLI::IsMember({"bfloat16", "float16", "int8"}))
      ->capture_default_str();
  app.add_option("--average-every", chosen.average_every, "of model_averaging: steps between two averages")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()))
      ->capture_default_str();
  app.add_option("--outer-optimizer", chosen.outer_optimizer,
                 "of model_averaging: what moves the parameters of the last average by the mean of what the ranks have "
                 "changed; nesterov is that of DiLoCo, which averages every 500 steps")
      ->check(CLI::IsMember({"none", "sgd", "momentum", "nesterov", "adam"}))
      ->capture_default_str();
  app.add_option("--outer-learning-rate", chosen.outer_learning_rate, "of --outer-optimizer")
      ->check(CLI::Range(1e-9, 1e3))
      ->capture_default_str();
  app.add_option("--outer-momentum", chosen.outer_momentum, "of --outer-optimizer momentum and nesterov")
      ->check(CLI::Range(0.0, 0.9999))
      ->capture_default_str();
  app.add_option("--time-limit", chosen.time_limit,
                 "seconds that a rank waits for the others before it says who is missing and ends the job")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
}

void add_training(CLI::App& app, settings& chosen) {
  app.option_defaults()->group("Training");
  app.add_option("--model", chosen.model, "the network")->check(CLI::IsMember(model_names()))->capture_default_str();
  app.add_option("--image-size", chosen.image_size, "rows and columns of an image (default: the model's)")
      ->check(CLI::Range(index_t{1}, index_t{1} << 14));
  app.add_option("--batch-size-per-rank,--batch-size", chosen.batch_size_per_rank,
                 "images of a step on one rank, or of one replica of a pipeline (default: the model's)")
      ->check(CLI::Range(index_t{1}, index_t{1} << 24));
  app.add_option_function<std::string>(
         "--data-format", [&](const std::string& name) { chosen.nhwc = name == "NHWC"; }, "memory order of images")
      ->transform(CLI::IsMember({"NCHW", "NHWC"}, CLI::ignore_case))
      ->default_str("NCHW");
  app.add_option("--seed,--tf-random-seed", chosen.seed, "of weights, images and orders")->capture_default_str();
}

void add_measurement(CLI::App& app, settings& chosen) {
  constexpr int most = 1 << 24;
  app.option_defaults()->group("Measurement");
  app.add_option("--num-warmup-batches", chosen.warmup_batches, "steps before the measured ones")
      ->check(CLI::Range(0, most))
      ->capture_default_str();
  CLI::Option* const steps = app.add_option("--num-batches", chosen.batches, "measured steps");
  steps->check(CLI::Range(1, most))->capture_default_str();
  app.add_option("--num-epochs", chosen.epochs, "measured steps, as epochs of the data, in place of --num-batches")
      ->check(CLI::Range(1e-6, 1e6))
      ->excludes(steps);
  app.add_flag("--forward-only", chosen.forward_only,
               "measure inference, each rank by itself: images a second, and how long a batch takes");
  app.add_option("--repeats", chosen.repeats, "number of times that the whole measurement runs")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--display-every", chosen.display_every, "steps between two lines of output")
      ->check(CLI::Range(1, most))
      ->capture_default_str();
  app.option_defaults()->group("Evaluation");
  app.add_flag("--eval", chosen.eval,
               "evaluate the newest checkpoint of --checkpoint-dir instead of a training: top-1 and top-5 accuracy on "
               "the test images of --data-dir, or on synthetic ones, and images a second");
  app.add_option("--eval-interval-secs", chosen.eval_interval,
                 "of --eval: go on with newer checkpoints, looked for at this interval, until the program is ended")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--eval-batch-size", chosen.eval_batch_size,
                 "of --eval: images of a batch on one rank (default: as in a training)")
      ->check(CLI::Range(index_t{1}, index_t{1} << 24));
  CLI::Option* const evaluated = app.add_option("--num-eval-batches", chosen.eval_batches,
                                                "of --eval: batches (default: --num-batches; without it, all images)");
  evaluated->check(CLI::Range(1, most));
  app.add_option("--num-eval-epochs", chosen.eval_epochs, "of --eval: batches as epochs of the data")
      ->check(CLI::Range(1e-6, 1e6))
      ->excludes(evaluated);
  app.option_defaults()->group("What computes");
  app.add_option(
         "--threads,--num-intra-threads", chosen.threads,
         "threads of a rank; 0: the processors to which the launcher has bound it, or those of the machine divided by "
         "its ranks")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--device", chosen.device, "what computes; of several GPUs a rank takes the one of its local number")
      ->transform(one_of(names<std::string>{{"cpu", "cpu"}, {"cuda", "cuda"}, {"gpu", "cuda"}}))
      ->capture_default_str();
  app.add_option(
         "--precision", chosen.precision,
         "fp32, bf16 (values between layers stored in 16 bits, parameters in 32) or, of cuda, fp16 (the same, with "
         "a scale of the loss that is found while training) and tf32 (factors of products rounded to 10 bits)")
      ->check(CLI::IsMember({"fp32", "tf32", "bf16", "fp16"}))
      ->capture_default_str();
  app.add_option("--winograd,--winograd-nonfused", chosen.winograd,
                 "Winograd convolutions where they are faster; false: direct convolutions only")
      ->capture_default_str();
  app.add_flag("--flush-denormals", chosen.flush_denormals,
               "of cpu: numbers below 1.2e-38 are 0, which makes steps faster that have many of them");
  app.add_flag("--capture-step", chosen.capture_step,
               "of cuda: launch forward, loss and backward as one graph; their time is then that of forward");
  app.option_defaults()->group("Images");
  app.add_option("--data-dir", chosen.data_dir, "a folder of images, or a record file (default: synthetic images)");
  app.add_option("--data-name", chosen.data_name, "what is in it (default: what it looks like)")
      ->check(CLI::IsMember({"imagenet", "records", "cifar10", "cifar100", "mnist"}));
  app.add_option("--reader-threads", chosen.reader_threads, "threads of a rank that decode images")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_flag("--repeat-cached-sample", chosen.repeat_cached_sample,
               "read one batch of --data-dir and take it in every step: what reading costs is the difference");
  app.add_flag("--skip-corrupt-images", chosen.skip_corrupt, "name images that cannot be decoded and go on");
  app.option_defaults()->group("Results");
  app.add_option("--json", chosen.json, "write the result to this file");
  app.add_option("--trace-file", chosen.trace_file,
                 "write what every rank does when to this file; compressed if its name ends in .gz");
  app.option_defaults()->group("Checkpoints");
  CLI::Option* const folder =
      app.add_option("--checkpoint-dir", chosen.checkpoint_dir,
                     "save the state of the training in this folder; what that costs is in the measured time")
          ->check([](const std::string& name) { return std::string{name.empty() ? "expected a folder, got ''" : ""}; });
  app.add_option("--checkpoint-every", chosen.checkpoint_every,
                 "steps from one checkpoint to the next, warm-up included; 0: one after each repeat")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
      ->needs(folder)
      ->capture_default_str();
  app.add_flag("--resume", chosen.resume,
               "go on from the newest checkpoint in that folder: the interrupted repeat, or one more")
      ->needs(folder);
  app.option_defaults()->group("A plan without a training");
  app.add_flag("--dry-run", chosen.dry_run, "show the plan, its memory, bytes and bounds of a step; train nothing");
  app.add_flag("--memory-traffic", chosen.memory_traffic,
               "show the bytes that each layer of a step reads and writes, their lower bound, and how fast it does "
               "that compared with a copy, instead of a training; with --dry-run without times");
  app.add_option("--multiply-adds-per-second", chosen.multiply_adds_per_second, "of a rank, for --dry-run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--link-bytes-per-second", chosen.link_bytes_per_second,
                 "of a rank's network, for --dry-run and order")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_sweep(CLI::App& sweep, settings& chosen) {
  sweep.fallthrough();
  sweep.add_option("--launcher", chosen.launcher, "what ranks are: threads of one process, or processes")
      ->check(CLI::IsMember({"threads", "mpiexec"}))
      ->capture_default_str();
  sweep.add_option("--csv", chosen.csv, "write the table to this file");
  sweep.add_option("--svg", chosen.svg, "draw the result into this file");
}

/// What a prediction is made of.
void add_prediction(CLI::App& app, settings& chosen) {
  app.add_option("--profile", chosen.profile,
                 "a trace of one or two hosts (--trace-file): the times of the layers and how they vary");
  app.add_option("--network", chosen.network,
                 "bandwidth and latency, for example \"10Gbit/s 25us\", or a file with such a line; further words: "
                 "message 2us, adding 4GB/s, rails 2, inside \"5GB/s 1us\", switch 16 hosts, oversubscription 4, "
                 "carried 3GB/s, stolen 0.5, poll 200us, uncertain 10%")
      ->capture_default_str();
  app.add_option("--strategy", chosen.strategies,
                 "all_reduce algorithms (ring, halving_doubling, binary_blocks, recursive_doubling, tree, "
                 "hierarchical_ring, hierarchical_halving_doubling), parameter_server or pipeline, with commas "
                 "(default: ring and halving_doubling; parameter_server with --servers, pipeline with --stages)")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--ranks-per-host", chosen.ranks_per_host, "ranks that share the network interfaces of a host")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
}

/// --stages is a way of updating variables of its own.
/// @throws std::invalid_argument for options of pipelines without one
void choose_pipeline(const CLI::App& app, settings& chosen) {
  const bool given_update = app.count("--variable-update") != 0;
  if (chosen.stages > 0 && !given_update) {
    chosen.update = variable_update::hybrid;
  }
  const bool pipeline = chosen.update == variable_update::hybrid;
  const bool searches = chosen.dry_run && chosen.memory_limit > 0 && chosen.stages == 0;
  if (chosen.stages > 0 && !pipeline) {
    throw std::invalid_argument{std::string{"--stages: --variable-update "} + name_of(chosen.update) +
                                " trains whole networks: leave one of them out"};
  }
  if (pipeline && chosen.stages == 0 && !searches) {
    throw std::invalid_argument{
        "--variable-update: hybrid is for networks in stages: give --stages, or --dry-run and "
        "--memory-limit to find how many"};
  }
  for (const char* const each :
       {"--schedule", "--stages-per-rank", "--stage-cuts", "--layer-times", "--memory-limit"}) {
    const bool of_search = std::string{each} == "--schedule" || std::string{each} == "--memory-limit";
    if (app.count(each) != 0 && chosen.stages == 0 && !(searches && of_search)) {
      throw std::invalid_argument{std::string{each} + ": expected --stages, got none" +
                                  (of_search ? "; to find how many, give --dry-run and --memory-limit" : "")};
    }
  }
}

/// The part of the help that has one group of options: with a name such as "servers" after --help.
/// @return  the text; empty if --help is not followed by words
/// @throws std::invalid_argument with the groups, if none has these words
std::string help_of_group(const CLI::App& app, const std::vector<std::string>& arguments) {
  const auto asked = std::find(arguments.begin(), arguments.end(), "--help");
  if (asked == arguments.end() || asked + 1 == arguments.end() || asked[1].rfind("--", 0) == 0) {
    return {};
  }
  const auto small_letters = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return text;
  };
  std::string names;
  for (const std::string& group : app.get_groups()) {
    const std::vector<const CLI::Option*> options =
        app.get_options([&](const CLI::Option* option) { return option->get_group() == group; });
    if (group.empty() || options.empty()) {
      continue;
    }
    if (small_letters(group).find(small_letters(asked[1])) != std::string::npos) {
      return CLI::Formatter{}.make_group(group, false, options);
    }
    names += (names.empty() ? "'" : ", '") + group + "'";
  }
  throw std::invalid_argument{"--help: expected words of a group of options, one of " + names + ", got '" + asked[1] +
                              "'"};
}

/// The name of a long option may be written with underscores.
std::vector<std::string> with_dashes(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.rfind("--", 0) == 0) {
      const std::size_t end = std::min(argument.find('='), argument.size());
      std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
    }
    arguments.push_back(argument);
  }
  return arguments;
}

}  // namespace

const char* name_of(command what) noexcept {
  constexpr const char* names[] = {"measure", "scale", "tune", "pack", "predict", "network"};
  return names[static_cast<std::size_t>(what)];
}
const char* name_of(variable_update mode) noexcept {
  return key_of(update_names, mode, {"distributed_all_reduce", "collective_all_reduce", "horovod"});
}
const char* name_of(transfer_order order) noexcept {
  return key_of(order_names, order);
}

std::string read_settings(int argc, char** argv, settings& chosen) {
  CLI::App app{
      "Measures the training of a network: images a second, where the time of a step goes, and how both change with "
      "the number of ranks. Names of options may be written with underscores.",
      "gradus_bench"};
  app.require_subcommand(0, 1);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // sweeps add theirs at the end
  add_training(app, chosen);
  add_ranks(app, chosen);
  add_servers(app, chosen);
  add_pipeline(app, chosen);
  add_optimizer(app, chosen);
  add_measurement(app, chosen);
  app.footer(
      "--help servers (or another word of a group's name) shows one group of options.\n"
      "Output:\n"
      "  The lines before the first step are those of tf_cnn_benchmarks, whose scripts read them. Three are always "
      "the\n"
      "  same: Mode is training, SingleSess is False (each rank is a program of its own), and NUMA bind is False (the\n"
      "  system places threads and memory).\n"
      "  images/sec: the mean up to this step, +/- its uncertainty, and the jitter, which is the spread of single "
      "steps.\n"
      "  With --trace-file and several ranks, overlap tells how far transfers are hidden behind computing: E is 1 if "
      "all\n"
      "  of what can be hidden is, and 0 if nothing is; S is the share of the shortest step that perfect overlap "
      "gains\n"
      "  over none.");

  CLI::App& scale = *app.add_subcommand("scale", "measures one training on several numbers of ranks");
  add_sweep(scale, chosen);
  scale.add_option("--ranks", chosen.rank_counts, "the numbers, for example 1,2,4")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::Range(1, 4096))
      ->required();
  CLI::App& tune = *app.add_subcommand(
      "tune", "finds the processes, threads and images of a process that are fastest here, for one effective batch");
  add_sweep(tune, chosen);
  tune.add_option("--effective-batch", chosen.effective_batch,
                  "images of a step on one machine, over all its ranks (default: the model's batch)")
      ->check(CLI::Range(index_t{1}, index_t{1} << 24));
  tune.add_option("--processors", chosen.processors, "of a machine (default: those of this one)")
      ->check(CLI::Range(1, 4096));
  tune.add_option("--nodes", chosen.nodes, "machines in the line to use")->check(CLI::Range(1, 1 << 20));
  tune.add_flag("--predict", chosen.predicts,
                "propose a strategy, servers, buckets and stages for --nodes machines by predictions; measure nothing");
  add_prediction(tune, chosen);
  CLI::App& predict = *app.add_subcommand(
      "predict", "predicts images a second on numbers of ranks that you do not have, from a profile and a network");
  add_sweep(predict, chosen);
  add_prediction(predict, chosen);
  predict.add_option("--ranks", chosen.predicted_ranks,
                     "the numbers: 4..128 (powers of two times the first), or 4,8,16");
  predict.add_option("--calibrate", chosen.calibrate,
                     "measured rows of a system (JSON): fits its constants, and predicts rows that were not measured");
  predict.add_option("--predicted-trace", chosen.predicted_trace,
                     "write what the ranks do in a simulated step, of the last number of ranks, for gradus_report");
  CLI::App& pack =
      *app.add_subcommand("pack", "packs the images of --data-dir, a folder for each class, into one file");
  pack.fallthrough();
  pack.add_option("--output", chosen.output, "the record file to write")->required();
  CLI::App& network = *app.add_subcommand(
      "network", "measures the network between the ranks of mpiexec, one or more on each host: what predict asks for");
  network.fallthrough();
  network.add_option("--output", chosen.output, "write the description, for --network of predict");

  const std::vector<std::string> given = with_dashes(argc, argv);
  if (std::string help = help_of_group(app, given); !help.empty()) {
    return help;
  }
  study_line line = translate_study_flags(given);
  chosen.notes = std::move(line.notes);
  std::reverse(line.arguments.begin(), line.arguments.end());  // as CLI11 takes them
  try {
    app.parse(std::move(line.arguments));
  } catch (const CLI::CallForHelp&) {
    const CLI::App* asked = &app;
    for (const CLI::App* each : {&scale, &tune, &pack, &predict, &network}) {
      asked = each->parsed() ? each : asked;
    }
    return asked->help();
  } catch (const CLI::ParseError& failure) {
    throw std::invalid_argument{failure.what()};
  }
  choose_pipeline(app, chosen);
  require_options_that_fit(app, chosen);
  choose_evaluation(app, chosen);
  if (scale.parsed()) {
    chosen.what = command::scale;
  } else if (tune.parsed()) {
    chosen.what = command::tune;
  } else if (pack.parsed()) {
    chosen.what = command::pack;
  } else if (predict.parsed()) {
    chosen.what = command::predict;
  } else if (network.parsed()) {
    chosen.what = command::network;
  }
  return {};
}

}  // namespace driver
