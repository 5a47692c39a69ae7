// SPDX-License-Identifier: BSL-1.0
//
// The flags of tf_cnn_benchmarks that gradus_bench has no option of the same name for.
#include "study_flags.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace driver {

namespace {

/// What becomes of a flag.
enum class fate : unsigned char {
  renamed,  // `text` is the option of gradus_bench, which takes the same value
  ignored,  // `text` says why it has no effect; with `values`, only these have none
  refused,  // `text` is what to write instead; with `values`, these are accepted in silence
  asked     // translate_together looks at it
};

struct flag {
  const char* name;
  fate what;
  const char* text = "";
  const char* values = "";  // separated by commas; "*" for any
  bool boolean = false;     // may stand without a value, and as --noNAME
};

constexpr bool yes_or_no = true;
constexpr const char* beside_the_training =
    "--checkpoint-dir DIR --checkpoint-every STEPS, and start beside it: gradus_bench --eval --checkpoint-dir DIR "
    "--eval-interval-secs 10, with the model and the data; it evaluates each checkpoint";

// Of tf_cnn_benchmarks of 2017 to 2019, without those that have options of the same name.
constexpr flag flags[] = {
    // Roles and machines
    {"job-name", fate::asked},
    {"task-index", fate::asked},
    {"ps-hosts", fate::asked},
    {"worker-hosts", fate::asked},
    {"controller-host", fate::asked},
    {"num-gpus", fate::asked},
    {"local-parameter-device", fate::asked},
    {"server-protocol", fate::ignored, "ranks exchange messages by MPI, or in the memory of a process", "*"},
    {"horovod-device", fate::refused, "--all-reduce-spec nccl, for sums on GPUs", ",cpu"},
    {"gpu-indices", fate::refused, "CUDA_VISIBLE_DEVICES=... in the environment", ""},
    {"use-nccl", fate::refused, "--all-reduce-spec nccl, for sums on GPUs", "false", yes_or_no},
    {"hierarchical-copy", fate::refused, "--all-reduce-spec hierarchical", "false", yes_or_no},
    {"network-topology", fate::ignored, "it is for copies between GPUs that --hierarchical_copy makes", "*"},
    // What ranks exchange
    {"cross-replica-sync", fate::asked, "", "", yes_or_no},
    {"staged-vars", fate::renamed, "--staged", "", yes_or_no},
    {"variable-consistency", fate::refused, "--server-mode asynchronous, for values that may be old", "strong"},
    {"gradient-repacking", fate::refused, "--bucket-kilobytes, the size of what travels together", "0"},
    {"agg-small-grads-max-bytes", fate::refused, "--bucket-kilobytes, the size of what travels together", "0"},
    {"agg-small-grads-max-group", fate::ignored, "--bucket-kilobytes says which gradients travel together", "*"},
    {"allreduce-merge-scope", fate::ignored, "--bucket-kilobytes says which gradients travel together", "*"},
    {"compact-gradient-transfer", fate::ignored, "gradients travel in 32 bits", "*", yes_or_no},
    // Learning rate and loss
    {"fp16-loss-scale", fate::refused, "--precision fp16 alone: it finds the scale while training", ""},
    {"fp16-vars", fate::refused, "--precision fp16: parameters have 32 bits", "false", yes_or_no},
    {"fp16-enable-auto-loss-scale", fate::ignored, "--precision fp16 always finds the scale of the loss", "true",
     yes_or_no},
    {"fp16-inc-loss-scale-every-n", fate::ignored, "the scale of the loss grows after 2000 steps", "*"},
    {"use-fp16", fate::asked, "", "", yes_or_no},
    {"loss-type-to-report", fate::refused, "nothing: the loss is that of the examples, base_loss", "base_loss"},
    {"single-l2-loss-op", fate::ignored, "weight decay is part of the update rule", "*", yes_or_no},
    {"resnet-base-lr", fate::refused, "--init-learning-rate", ""},
    {"compute-lr-on-cpu", fate::ignored, "the host computes the learning rate", "*", yes_or_no},
    // Measurement
    {"print-training-accuracy", fate::ignored, "lines have the loss", "*", yes_or_no},
    {"display-perf-ewma", fate::refused, "nothing: lines have the mean", "false", yes_or_no},
    {"datasets-repeat-cached-sample", fate::renamed, "--repeat-cached-sample", "", yes_or_no},
    {"freeze-when-forward-only", fate::ignored, "--forward-only always computes with constant weights", "*", yes_or_no},
    {"eval", fate::renamed, "--eval", "", yes_or_no},
    {"autotune-threshold", fate::ignored, "algorithms are chosen before the first step", "*"},
    {"sync-on-finish", fate::ignored, "a measurement ends when all ranks have ended it", "*", yes_or_no},
    {"summary-verbosity", fate::refused, "--json FILE, and --trace-file FILE for what each rank does", "0"},
    {"save-summaries-steps", fate::refused, "--json FILE", "0"},
    {"tfprof-file", fate::refused, "--trace-file FILE", ""},
    {"graph-file", fate::refused, "--dry-run, which shows the plan of a step", ""},
    {"partitioned-graph-file-prefix", fate::refused, "--dry-run, which shows the plan of a step", ""},
    {"use-chrome-trace-format", fate::ignored, "--trace-file always writes Chrome's format", "true", yes_or_no},
    {"benchmark-log-dir", fate::refused, "--json FILE", ""},
    {"benchmark-test-id", fate::ignored, "it names an entry of TensorFlow's own record", "*"},
    {"result-storage", fate::refused, "--json FILE", ""},
    {"debugger", fate::refused, "nothing: a debugger can be attached to any rank", ""},
    {"ml-perf", fate::refused, "nothing: it changes the rules of another benchmark", "false", yes_or_no},
    {"ml-perf-compliance-logging", fate::refused, "--json FILE", "false", yes_or_no},
    // Input
    {"distortions", fate::ignored, "photographs are prepared in one way, which the seed decides", "*", yes_or_no},
    {"resize-method", fate::ignored, "photographs are prepared in one way", "*"},
    {"distort-color-in-yiq", fate::ignored, "photographs are prepared in one way", "*", yes_or_no},
    {"fuse-decode-and-crop", fate::ignored, "photographs are prepared in one way", "*", yes_or_no},
    {"input-preprocessor", fate::refused, "--data-name", "default"},
    {"use-datasets", fate::ignored, "there is one way of reading", "*", yes_or_no},
    {"use-synthetic-gpu-images", fate::ignored, "synthetic images are made once", "*", yes_or_no},
    {"batch-group-size", fate::ignored, "two batches are read ahead", "*"},
    {"datasets-use-prefetch", fate::ignored, "two batches are read ahead", "*", yes_or_no},
    {"datasets-prefetch-buffer-size", fate::ignored, "two batches are read ahead", "*"},
    {"datasets-num-private-threads", fate::renamed, "--reader-threads"},
    {"datasets-use-caching", fate::ignored, "the system keeps files that were read", "*", yes_or_no},
    {"datasets-parallel-interleave-cycle-length", fate::ignored, "each thread reads images of its own", "*"},
    {"datasets-parallel-interleave-prefetch", fate::ignored, "each thread reads images of its own", "*"},
    {"datasets-sloppy-parallel-interleave", fate::ignored, "the order of images is that of the seed", "*", yes_or_no},
    {"use-multi-device-iterator", fate::ignored, "each rank reads its own images", "*", yes_or_no},
    {"multi-device-iterator-max-buffer-size", fate::ignored, "each rank reads its own images", "*"},
    // Checkpoints and evaluation
    {"train-dir", fate::renamed, "--checkpoint-dir"},
    {"save-model-steps", fate::renamed, "--checkpoint-every"},
    {"save-model-secs", fate::refused, "--checkpoint-every STEPS", "0"},
    {"max-ckpts-to-keep", fate::ignored, "the newest checkpoints are kept", "*"},
    {"eval-dir", fate::ignored, "an evaluation prints its results, and --json writes them", "*"},
    {"collect-eval-results-async", fate::ignored, "an evaluation has ended before the next one begins", "*", yes_or_no},
    {"eval-during-training-every-n-steps", fate::refused, beside_the_training, ""},
    {"eval-during-training-every-n-epochs", fate::refused, beside_the_training, ""},
    {"eval-during-training-at-specified-steps", fate::refused, beside_the_training, ""},
    {"eval-during-training-at-specified-epochs", fate::refused, beside_the_training, ""},
    {"stop-at-top-1-accuracy", fate::refused, "a program with train::early_stopping", ""},
    {"backbone-model-path", fate::refused, "a program with io::load_weights", ""},
    {"pretrain-dir", fate::refused, "a program with io::load_weights", ""},
    // The machine that computes
    {"mkl", fate::ignored, "kernels are gradus' own", "*", yes_or_no},
    {"kmp-blocktime", fate::ignored, "threads are gradus' own, not OpenMP's", "*"},
    {"kmp-affinity", fate::ignored, "threads are gradus' own; gradus_run --bind binds ranks", "*"},
    {"num-inter-threads", fate::ignored, "the layers of a network run one after another, each on all threads", "*"},
    {"kmp-settings", fate::ignored, "threads are gradus' own, not OpenMP's", "*"},
    {"use-numa-affinity", fate::refused, "gradus_run --bind numa", "false", yes_or_no},
    {"gpu-thread-mode", fate::ignored, "each rank has one thread that launches kernels", "*"},
    {"per-gpu-thread-count", fate::ignored, "each rank has one thread that launches kernels", "*"},
    {"gpu-memory-frac-for-testing", fate::ignored, "a GPU gives as much memory as the plan needs", "*"},
    {"use-unified-memory", fate::refused, "nothing: memory of a GPU is the GPU's", "false", yes_or_no},
    {"allow-growth", fate::ignored, "a GPU gives as much memory as the plan needs", "*", yes_or_no},
    {"force-gpu-compatible", fate::ignored, "copies to GPUs come from pinned memory", "*", yes_or_no},
    {"batchnorm-persistent", fate::ignored, "cuDNN's kernel is chosen by its plan", "*", yes_or_no},
    {"use-tf-layers", fate::ignored, "layers are gradus'", "*", yes_or_no},
    {"use-resource-vars", fate::ignored, "parameters are arrays", "*", yes_or_no},
    {"use-python32-barrier", fate::ignored, "there is no Python", "*", yes_or_no},
    {"enable-layout-optimizer", fate::ignored, "--data-format says the layout", "*", yes_or_no},
    {"enable-optimizations", fate::ignored, "the plan of a step is always optimized", "*", yes_or_no},
    {"rewriter-config", fate::ignored, "the plan of a step is always optimized", "*"},
    {"xla", fate::ignored, "the plan of a step is always optimized", "*", yes_or_no},
    {"xla-compile", fate::ignored, "the plan of a step is always optimized", "*", yes_or_no},
    {"trt-mode", fate::refused, "--forward-only, with which normalization is folded into convolutions", ""},
    {"trt-max-workspace-size-bytes", fate::ignored, "it is for --trt_mode", "*"},
};

using given_flags = std::map<std::string, std::string>;

bool is_in(std::string_view value, std::string_view list) {
  if (list == "*") {
    return true;
  }
  while (true) {
    const std::string_view each = list.substr(0, list.find(','));
    if (each == value) {
      return true;
    }
    if (each.size() == list.size()) {
      return false;
    }
    list.remove_prefix(each.size() + 1);
  }
}

/// "true" or "false" for the spellings of absl.
std::optional<std::string> truth_of(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (is_in(value, "true,t,1,yes,y")) {
    return "true";
  }
  if (is_in(value, "false,f,0,no,n")) {
    return "false";
  }
  return {};
}

const flag* find_flag(std::string_view name) {
  for (const flag& each : flags) {
    if (name == each.name) {
      return &each;
    }
  }
  return nullptr;
}

/// As in a command line of tf_cnn_benchmarks.
std::string shown(const flag& of) {
  std::string name = of.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return "--" + name;
}

/// A word as a shell reads it.
std::string shell_word(const std::string& word) {
  constexpr const char* harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!word.empty() && word.find_first_not_of(harmless) == std::string::npos) {
    return word;
  }
  std::string text = "'";
  for (const char each : word) {
    text += each == '\'' ? std::string{"'\\''"} : std::string{each};
  }
  return text + "'";
}

int count_of(const std::string& name, const std::string& text) {
  int count = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed != std::errc{} || end != text.data() + text.size() || count < 0 || count > 4096) {
    throw std::invalid_argument{name + ": expected a number from 0 to 4096, got '" + text + "'"};
  }
  return count;
}

/// The addresses of "a:2222,b:2222", without ports.
std::vector<std::string> machines_of(const std::string& name, const std::string& text) {
  std::vector<std::string> all;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    const std::string_view machine = word.substr(0, word.find(':'));
    if (machine.empty()) {
      throw std::invalid_argument{name + ": expected machines such as a:2222,b:2222, got '" + text + "'"};
    }
    all.emplace_back(machine);
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return all;
}

/// The value of an option in a line of gradus_bench: the last one counts.
std::optional<std::string> option_in(const std::vector<std::string>& arguments, const std::string& name) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == name && i + 1 < arguments.size()) {
      value = arguments[i + 1];
    } else if (arguments[i].rfind(name + "=", 0) == 0) {
      value = arguments[i].substr(name.size() + 1);
    }
  }
  return value;
}

/// Takes an option and its value out of a line.
void take_out(std::vector<std::string>& arguments, const std::string& name) {
  for (std::size_t i = 0; i < arguments.size();) {
    const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    if (arguments[i] == name && i + 1 < arguments.size()) {
      arguments.erase(at, at + 2);
    } else if (arguments[i].rfind(name + "=", 0) == 0) {
      arguments.erase(at);
    } else {
      ++i;
    }
  }
}

struct translation {
  study_line line = {};
  given_flags asked = {};

  [[nodiscard]] std::string value(const char* name) const {
    const auto found = asked.find(name);
    return found == asked.end() ? std::string{} : found->second;
  }
  void add(std::string option, std::string value) {
    line.arguments.push_back(std::move(option));
    line.arguments.push_back(std::move(value));
  }

  void update_by(const std::string& name) {
    take_out(line.arguments, "--variable-update");
    add("--variable-update", name);
  }

  /// --num_gpus is the number of ranks of a machine, and says that GPUs compute.
  /// @return  the number of ranks
  int choose_device() {
    const int gpus = asked.count("num-gpus") == 0 ? 1 : std::max(1, count_of("--num_gpus", value("num-gpus")));
    const std::optional<std::string> device = option_in(line.arguments, "--device");
    if (asked.count("num-gpus") != 0 && !device) {
      add("--device", "cuda");
    }
    const bool on_gpu = option_in(line.arguments, "--device").value_or("cpu") != "cpu";
    const std::string where = value("local-parameter-device");
    if (!where.empty() && where != "cpu" && where != "gpu") {
      throw std::invalid_argument{"--local_parameter_device: expected cpu or gpu, got '" + where + "'"};
    }
    if (where == "gpu" && !on_gpu) {
      throw std::invalid_argument{
          "--local_parameter_device: expected cpu with --device cpu, got gpu: parameters are where ranks compute"};
    }
    if (where == "cpu" && on_gpu) {
      line.notes.emplace_back(
          "--local_parameter_device=cpu: parameters are on the GPUs that compute with them; gradients are summed "
          "through "
          "the memory of the host");
    }
    if (where == "gpu" && gpus > 1 && !option_in(line.arguments, "--all-reduce-spec")) {
      add("--all-reduce-spec", "nccl");
    }
    return gpus;
  }

  /// @throws std::invalid_argument with the line that starts all tasks
  [[noreturn]] void refuse_task(const std::vector<std::string>& workers, const std::vector<std::string>& servers,
                                int ranks_of_worker) {
    const bool on_gpu = option_in(line.arguments, "--device").value_or("cpu") != "cpu";
    std::vector<std::string> machines = workers;
    bool beside = !servers.empty();
    for (const std::string& each : servers) {
      beside = beside && std::count(workers.begin(), workers.end(), each) != 0;
    }
    std::string text;
    if (!servers.empty() && on_gpu) {
      text = "servers are for CPUs, and a sum over the ranks computes the same: ";
      update_by("all_reduce");
    } else if (!servers.empty()) {
      add("--servers", std::to_string(servers.size()));
      if (beside) {  // servers are beside the first workers
        line.arguments.emplace_back("--colocate-servers");
        std::stable_partition(machines.begin(), machines.end(), [&](const std::string& each) {
          return std::count(servers.begin(), servers.end(), each) != 0;
        });
      } else {
        for (const std::string& each : servers) {
          if (std::count(workers.begin(), workers.end(), each) != 0) {
            throw std::invalid_argument{
                "--ps_hosts: expected servers that are all on machines of workers, or all on others; got '" + each +
                "' of workers, and others"};
          }
        }
        machines.insert(machines.end(), servers.begin(), servers.end());  // servers are the last ranks
      }
    }
    std::string hosts;
    for (std::size_t i = 0; i < machines.size();) {
      const std::size_t first = i;
      int ranks = 0;
      for (; i < machines.size() && machines[i] == machines[first]; ++i) {
        const bool server = !beside && i >= workers.size();
        ranks += server ? 1 : ranks_of_worker;
      }
      hosts += (hosts.empty() ? "" : ",") + machines[first] + (ranks == 1 ? "" : ":" + std::to_string(ranks));
    }
    std::string command = "gradus_run --hosts " + shell_word(hosts) + " -- gradus_bench";
    for (const std::string& each : line.arguments) {
      command += " " + shell_word(each);
    }
    throw std::invalid_argument{
        "--job_name, --ps_hosts, --worker_hosts: one command starts all tasks and tells them their roles; " + text +
        "instead of each task start, once: " + command};
  }

  void translate_together() {
    const std::string half = value("use-fp16");
    if (half == "true") {
      add("--precision", "fp16");
    }
    const std::string together = value("cross-replica-sync");
    if (!together.empty()) {
      add("--server-mode", together == "true" ? "synchronous" : "asynchronous");
    }
    const bool of_study =
        asked.count("num-gpus") + asked.count("local-parameter-device") + asked.count("job-name") != 0;
    const int ranks = choose_device();
    const std::vector<std::string> workers = machines_of("--worker_hosts", value("worker-hosts"));
    const std::vector<std::string> servers = machines_of("--ps_hosts", value("ps-hosts"));
    const std::string role = value("job-name");
    if (!role.empty() && !is_in(role, "ps,worker,controller")) {
      throw std::invalid_argument{"--job_name: expected ps, worker or controller, got '" + role + "'"};
    }
    if (!role.empty() || !servers.empty() || workers.size() > 1) {
      if (workers.empty()) {
        throw std::invalid_argument{"--worker_hosts: expected the machines of all workers, got none"};
      }
      refuse_task(workers, servers, ranks);
    }
    if (ranks > 1) {
      add("--ranks", std::to_string(ranks));
    }
    const bool has_servers = option_in(line.arguments, "--servers").has_value();
    const std::optional<std::string> update = option_in(line.arguments, "--variable-update");
    if (of_study && !has_servers && update && is_in(*update, "parameter_server,distributed_replicated")) {
      line.notes.push_back("--variable_update=" + *update +
                           ": without --ps_hosts, one process applies the sum of all gradients, as replicated does");
      update_by("all_reduce");
    }
  }
};

}  // namespace

std::vector<std::string> study_flag_names() {
  std::vector<std::string> names;
  for (const flag& each : flags) {
    names.emplace_back(each.name);
  }
  return names;
}

study_line translate_study_flags(const std::vector<std::string>& arguments) {
  translation all;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::size_t equals = std::min(word.find('='), word.size());
    const flag* found = nullptr;
    std::optional<std::string> value;
    if (word.rfind("--", 0) == 0) {
      const std::string name = word.substr(2, equals - 2);
      found = find_flag(name);
      if (found == nullptr && name.rfind("no", 0) == 0 && equals == word.size()) {
        const flag* const opposite = find_flag(name.substr(2));
        if (opposite != nullptr && opposite->boolean) {
          found = opposite;
          value = "false";
        }
      }
    }
    if (found == nullptr) {
      all.line.arguments.push_back(word);
      continue;
    }
    if (!value && equals < word.size()) {
      value = word.substr(equals + 1);
    }
    if (!value && found->boolean) {
      value = "true";
    }
    if (!value) {
      if (i + 1 == arguments.size()) {
        throw std::invalid_argument{shown(*found) + ": expected a value, got none"};
      }
      value = arguments[++i];
    }
    if (found->boolean) {
      const std::optional<std::string> truth = truth_of(*value);
      if (!truth) {
        throw std::invalid_argument{shown(*found) + ": expected true or false, got '" + *value + "'"};
      }
      value = truth;
    }
    switch (found->what) {
      case fate::renamed:
        if (!found->boolean) {
          all.add(found->text, *value);
        } else if (*value == "true") {
          all.line.arguments.emplace_back(found->text);
        }
        break;
      case fate::ignored:
        if (!is_in(*value, found->values)) {
          throw std::invalid_argument{shown(*found) + ": expected " + found->values + ", got '" + *value +
                                      "': " + found->text};
        }
        all.line.notes.push_back(shown(*found) + ": " + found->text);
        break;
      case fate::refused:
        if (!is_in(*value, found->values)) {
          const std::string_view text = found->text;
          constexpr std::string_view leave_out = "nothing: ";
          throw std::invalid_argument{shown(*found) + ": gradus_bench has no such flag; " +
                                      (text.starts_with(leave_out)
                                           ? "leave it out: " + std::string{text.substr(leave_out.size())}
                                           : "write instead: " + std::string{text})};
        }
        break;
      case fate::asked:
        all.asked[found->name] = *value;
        break;
    }
  }
  if (!all.asked.empty()) {
    all.translate_together();
  }
  return std::move(all.line);
}

}  // namespace driver
