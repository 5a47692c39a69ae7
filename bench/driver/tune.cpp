// SPDX-License-Identifier: BSL-1.0
//
// gradus_bench tune: processes, threads and images of a process for one effective batch.
#include <algorithm>
#include <cstdio>
#include <locale>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/thread_pool.hpp"
#include "plan.hpp"
#include "sweep.hpp"

namespace driver {

namespace {

/// Ranks of a machine, threads of each, and what came of it.
struct candidate {
  int processes = 1;
  int threads = 1;
  index_t batch_size = 1;
  std::string spec;              // of the all-reduce; empty: the communicator's own
  double images_per_second = 0;  // 0: not measured, or it failed
  input_comparison input{};      // of the fastest, with --data-dir
};

/// Processes that share the batch evenly, with all processors or, where two of these share a core, with half of them.
/// @param effective  images of a step on all machines
/// @param stages     of a pipeline, whose replicas share the batch; else 1
std::vector<candidate> candidates_of(int processors, int nodes, index_t effective, int stages) {
  std::vector<candidate> all;
  for (int processes = 1; processes <= processors; ++processes) {
    const int copies = processes * nodes / stages;
    if (copies == 0 || copies * stages != processes * nodes || effective % copies != 0 || processors % processes != 0) {
      continue;
    }
    const int most = processors / processes;
    for (const int threads : {most, most / 2}) {
      if (threads >= 1) {
        all.push_back({.processes = processes, .threads = threads, .batch_size = effective / copies, .spec = {}});
      }
    }
  }
  return all;
}

std::vector<std::string> options_of(const candidate& one) {
  std::vector<std::string> options{"--batch-size", std::to_string(one.batch_size), "--threads",
                                   std::to_string(one.threads)};
  if (!one.spec.empty()) {
    options.insert(options.end(), {"--all-reduce-spec", one.spec});
  }
  return options;
}

/// A candidate that fails is no reason to end: machines run out of shared memory, say, with some of them.
/// @param failure  the first of all, for a sweep in which all fail
void measure_one(const runner& programs, int nodes, candidate& one, std::string& failure) {
  std::printf("%9d %8d %6td %-24s ", one.processes, one.threads, one.batch_size,
              one.spec.empty() ? "(default)" : one.spec.c_str());
  std::fflush(stdout);
  try {
    one.images_per_second = programs.measure(one.processes * nodes, options_of(one)).images_per_second;
    gradus::print_text(stdout, "%10.2f\n", one.images_per_second);
  } catch (const std::runtime_error& failed) {
    std::printf("%10s\n", "failed");
    std::fflush(stdout);
    std::fprintf(stderr, "gradus_bench: %s\n", failed.what());
    failure = failure.empty() ? failed.what() : failure;
  }
  std::fflush(stdout);
}

std::string csv_of(const std::vector<candidate>& all) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << "processes,threads,batch_size,all_reduce_spec,images_per_second,real_images_per_second,"
          "synthetic_images_per_second,input_overhead\n";
  for (const candidate& each : all) {
    text << each.processes << ',' << each.threads << ',' << each.batch_size << ',' << each.spec << ',';
    if (each.images_per_second > 0) {
      text << each.images_per_second;
    }
    text << ',';
    if (each.input.synthetic > 0) {
      text << each.input.real << ',' << each.input.synthetic << ',' << each.input.overhead();
    } else {
      text << ",,";
    }
    text << '\n';
  }
  return text.str();
}

nlohmann::ordered_json json_of(const candidate& each) {
  nlohmann::ordered_json one{{"processes", each.processes},
                             {"threads", each.threads},
                             {"batch_size", each.batch_size},
                             {"all_reduce_spec", each.spec}};
  if (each.images_per_second > 0) {
    one["images_per_second"] = each.images_per_second;
  } else {
    one["failed"] = true;
  }
  if (each.input.synthetic > 0) {
    one["real_images_per_second"] = each.input.real;
    one["synthetic_images_per_second"] = each.input.synthetic;
    one["input_overhead"] = each.input.overhead();
  }
  return one;
}

std::string drawing_of(const settings& chosen, const std::vector<candidate>& all) {
  std::vector<bar> bars;
  for (const candidate& each : all) {
    bars.push_back({std::to_string(each.processes) + " x " + std::to_string(each.threads) + " threads, batch " +
                        std::to_string(each.batch_size) + (each.spec.empty() ? "" : ", " + each.spec),
                    each.images_per_second});
  }
  return svg_of(chosen.model + ", processes x threads of a node", bars);
}

/// The lines that start the fastest candidate, under mpiexec and under Slurm.
struct start_lines {
  std::string mpiexec;
  std::string srun;
};

start_lines start_lines_of(const candidate& best, int nodes, const runner& programs) {
  std::string arguments = "gradus_bench" + programs.options_text();
  for (const std::string& each : options_of(best)) {
    arguments += ' ' + each;
  }
  start_lines lines;
  for (const std::string& word : mpiexec_words(best.processes * nodes, nodes)) {
    lines.mpiexec += word + ' ';
  }
  lines.mpiexec += arguments;
  lines.srun = "srun --nodes=" + std::to_string(nodes) + " --ntasks-per-node=" + std::to_string(best.processes) +
               " --cpus-per-task=" + std::to_string(best.threads) + ' ' + arguments;
  return lines;
}

}  // namespace

void tune(const settings& given, int argc, char** argv) {
  const settings chosen = completed(given);
  if (chosen.dry_run) {
    throw std::invalid_argument{"tune: a dry run measures nothing: leave out --dry-run"};
  }
  if (chosen.nodes > 1 && chosen.launcher == "threads") {
    throw std::invalid_argument{"tune: several nodes need --launcher mpiexec"};
  }
  const int processors = chosen.processors > 0 ? chosen.processors : gradus::available_processors();
  const index_t effective =
      chosen.effective_batch > 0 ? chosen.effective_batch : chosen.batch_size_per_rank * chosen.nodes;
  if (effective % chosen.nodes != 0) {
    throw std::invalid_argument{"--effective-batch: expected a multiple of the number of nodes, " +
                                std::to_string(chosen.nodes) + ", got " + std::to_string(effective)};
  }
  sweep_files files{chosen};
  const runner programs{chosen, argc, argv};
  std::printf("%s, %td images a step on %d node%s of %d processors\n%9s %8s %6s %-24s %10s\n", chosen.model.c_str(),
              effective, chosen.nodes, chosen.nodes == 1 ? "" : "s", processors, "processes", "threads", "batch",
              "all-reduce", "images/s");
  std::vector<candidate> all = candidates_of(processors, chosen.nodes, effective, std::max(1, chosen.stages));
  if (all.empty()) {
    throw std::invalid_argument{"--stages: expected at most as many as processors of all nodes, got " +
                                std::to_string(chosen.stages) + ": see --processors and --nodes"};
  }
  std::size_t measured = 0;  // of them, in their order
  std::string failure;
  const auto fastest = [&all] {
    return std::max_element(all.begin(), all.end(), [](const candidate& a, const candidate& b) {
      return a.images_per_second < b.images_per_second;
    });
  };
  const auto measure_next = [&] {
    measure_one(programs, chosen.nodes, all[measured], failure);
    ++measured;
  };
  const auto measure = [&] {
    while (measured < all.size()) {
      measure_next();
    }
    if (all.empty() || !(fastest()->images_per_second > 0)) {
      throw std::runtime_error{"tune: every measurement failed, the first because:\n" + failure};
    }
    const candidate own = *fastest();
    const bool reduces = chosen.update == variable_update::all_reduce || chosen.update == variable_update::replicated;
    if (reduces && own.processes * chosen.nodes > 1 && chosen.all_reduce_spec.empty()) {
      for (const char* spec : {"ring", "halving_doubling", "recursive_doubling:4K:ring", levels_spec}) {
        if (spec == levels_spec && chosen.launcher == "threads") {
          continue;
        }
        all.push_back(own);
        all.back().spec = spec;
        all.back().images_per_second = 0;
        measure_next();
      }
    }
    candidate& best = *fastest();
    if (!chosen.data_dir.empty()) {
      best.input = programs.compare_input(best.processes * chosen.nodes, options_of(best));
    }
    const start_lines lines = start_lines_of(best, chosen.nodes, programs);
    gradus::print_text(stdout, "fastest: %d processes of %d threads on a node, %td images each: %.2f images/s\n",
                       best.processes, best.threads, best.batch_size, best.images_per_second);
    if (best.input.synthetic > 0) {
      gradus::print_text(
          stdout, "input: %.2f images/s from %s, %.2f with synthetic images, measured in turn: overhead %.1f%%\n",
          best.input.real, gradus::printable(chosen.data_dir).c_str(), best.input.synthetic,
          100 * best.input.overhead());
    }
    std::printf("%s\n%s\n", lines.mpiexec.c_str(), lines.srun.c_str());
  };
  run_sweep(files, measure, [&](bool ended_early) {
    all.resize(std::min(measured, all.size()));
    if (all.empty()) {
      return false;
    }
    const candidate& best = *fastest();
    const start_lines lines = start_lines_of(best, chosen.nodes, programs);
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const candidate& each : all) {
      list.push_back(json_of(each));
    }
    nlohmann::ordered_json found{{"model", chosen.model},  {"effective_batch", effective}, {"nodes", chosen.nodes},
                                 {"best", json_of(best)},  {"mpiexec", lines.mpiexec},     {"srun", lines.srun},
                                 {"rows", std::move(list)}};
    if (ended_early) {
      found["ended_early"] = true;
    }
    files.write(csv_of(all), found.dump(2) + '\n', drawing_of(chosen, all));
    return true;
  });
}

}  // namespace driver
