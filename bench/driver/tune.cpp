// SPDX-License-Identifier: BSL-1.0
//
// gradus_bench tune: processes, threads and images of a process for one effective batch.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

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
  std::string spec;  // of the all-reduce; empty: the communicator's own
  double images_per_second = 0;
  input_comparison input{};  // of the fastest, with --data-dir
};

/// Processes that share the batch evenly, with all processors or, where two of these share a core, with half of them.
std::vector<candidate> candidates_of(int processors, index_t batch_of_machine) {
  std::vector<candidate> all;
  for (int processes = 1; processes <= processors; ++processes) {
    if (batch_of_machine % processes != 0 || processors % processes != 0) {
      continue;
    }
    const int most = processors / processes;
    for (const int threads : {most, most / 2}) {
      if (threads >= 1) {
        all.push_back(
            {.processes = processes, .threads = threads, .batch_size = batch_of_machine / processes, .spec = {}});
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

void measure_one(const runner& programs, int nodes, candidate& one) {
  one.images_per_second = programs.measure(one.processes * nodes, options_of(one)).images_per_second;
  std::printf("%9d %8d %6td %-24s %10.2f\n", one.processes, one.threads, one.batch_size,
              one.spec.empty() ? "(default)" : one.spec.c_str(), one.images_per_second);
  std::fflush(stdout);
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
  const index_t effective = chosen.effective_batch > 0 ? chosen.effective_batch : chosen.batch_size * chosen.nodes;
  if (effective % chosen.nodes != 0) {
    throw std::invalid_argument{"--effective-batch: expected a multiple of the number of nodes, " +
                                std::to_string(chosen.nodes) + ", got " + std::to_string(effective)};
  }
  const runner programs{chosen, argc, argv};
  std::printf("%s, %td images a step on %d node%s of %d processors\n%9s %8s %6s %-24s %10s\n", chosen.model.c_str(),
              effective, chosen.nodes, chosen.nodes == 1 ? "" : "s", processors, "processes", "threads", "batch",
              "all-reduce", "images/s");
  std::vector<candidate> all = candidates_of(processors, effective / chosen.nodes);
  for (candidate& each : all) {
    measure_one(programs, chosen.nodes, each);
  }
  const auto slower = [](const candidate& a, const candidate& b) { return a.images_per_second < b.images_per_second; };
  auto best = std::max_element(all.begin(), all.end(), slower);
  const bool reduces = chosen.update == variable_update::all_reduce || chosen.update == variable_update::replicated;
  if (reduces && best->processes * chosen.nodes > 1 && chosen.all_reduce_spec.empty()) {
    const candidate own = *best;
    for (const char* spec : {"ring", "halving_doubling", "recursive_doubling:4K:ring", levels_spec}) {
      if (spec == levels_spec && chosen.launcher == "threads") {
        continue;
      }
      all.push_back(own);
      all.back().spec = spec;
      measure_one(programs, chosen.nodes, all.back());
    }
    best = std::max_element(all.begin(), all.end(), slower);
  }
  if (!chosen.data_dir.empty()) {
    best->input = programs.compare_input(best->processes * chosen.nodes, options_of(*best));
  }
  std::string arguments = "gradus_bench" + programs.options_text();
  for (const std::string& each : options_of(*best)) {
    arguments += ' ' + each;
  }
  std::string mpiexec;
  for (const std::string& word : mpiexec_words(best->processes * chosen.nodes, chosen.nodes)) {
    mpiexec += word + ' ';
  }
  mpiexec += arguments;
  const std::string srun = "srun --nodes=" + std::to_string(chosen.nodes) +
                           " --ntasks-per-node=" + std::to_string(best->processes) +
                           " --cpus-per-task=" + std::to_string(best->threads) + ' ' + arguments;
  std::printf("fastest: %d processes of %d threads on a node, %td images each: %.2f images/s\n", best->processes,
              best->threads, best->batch_size, best->images_per_second);
  if (best->input.synthetic > 0) {
    std::printf("input: %.2f images/s from %s, %.2f with synthetic images, measured in turn: overhead %.1f%%\n",
                best->input.real, chosen.data_dir.c_str(), best->input.synthetic, 100 * best->input.overhead());
  }
  std::printf("%s\n%s\n", mpiexec.c_str(), srun.c_str());
  if (!chosen.csv.empty()) {
    std::ostringstream text;
    text << "processes,threads,batch_size,all_reduce_spec,images_per_second,real_images_per_second,"
            "synthetic_images_per_second,input_overhead\n";
    for (const candidate& each : all) {
      text << each.processes << ',' << each.threads << ',' << each.batch_size << ',' << each.spec << ','
           << each.images_per_second << ',';
      if (each.input.synthetic > 0) {
        text << each.input.real << ',' << each.input.synthetic << ',' << each.input.overhead();
      } else {
        text << ",,";
      }
      text << '\n';
    }
    write_text("--csv", chosen.csv, text.str());
  }
  if (!chosen.json.empty()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    const auto as_json = [](const candidate& each) {
      nlohmann::ordered_json one{{"processes", each.processes},
                                 {"threads", each.threads},
                                 {"batch_size", each.batch_size},
                                 {"all_reduce_spec", each.spec},
                                 {"images_per_second", each.images_per_second}};
      if (each.input.synthetic > 0) {
        one["real_images_per_second"] = each.input.real;
        one["synthetic_images_per_second"] = each.input.synthetic;
        one["input_overhead"] = each.input.overhead();
      }
      return one;
    };
    for (const candidate& each : all) {
      list.push_back(as_json(each));
    }
    const nlohmann::ordered_json result{{"model", chosen.model}, {"effective_batch", effective},
                                        {"nodes", chosen.nodes}, {"best", as_json(*best)},
                                        {"mpiexec", mpiexec},    {"srun", srun},
                                        {"rows", list}};
    write_text("--json", chosen.json, result.dump(2) + '\n');
  }
  if (!chosen.svg.empty()) {
    std::vector<bar> bars;
    for (const candidate& each : all) {
      bars.push_back({std::to_string(each.processes) + " x " + std::to_string(each.threads) + " threads, batch " +
                          std::to_string(each.batch_size) + (each.spec.empty() ? "" : ", " + each.spec),
                      each.images_per_second});
    }
    write_svg(chosen.svg, chosen.model + ", processes x threads of a node", bars);
  }
}

}  // namespace driver
