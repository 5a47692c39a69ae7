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
        all.push_back({processes, threads, batch_of_machine / processes, {}, 0});
      }
    }
  }
  return all;
}

void measure_one(const runner& programs, int nodes, candidate& one) {
  std::vector<std::string> options{"--batch-size", std::to_string(one.batch_size), "--threads",
                                   std::to_string(one.threads)};
  if (!one.spec.empty()) {
    options.insert(options.end(), {"--all-reduce-spec", one.spec});
  }
  one.images_per_second = programs.measure(one.processes * nodes, options).images_per_second;
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
  if (!chosen.svg.empty()) {
    throw std::invalid_argument{"--svg: expected scale, whose result is a curve, got tune: use --csv or --json"};
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
  candidate best = *std::max_element(all.begin(), all.end(), slower);
  if (best.processes * chosen.nodes > 1 && chosen.all_reduce_spec.empty()) {
    for (const char* spec : {"ring", "halving_doubling", "recursive_doubling:4K:ring"}) {
      candidate other = best;
      other.spec = spec;
      measure_one(programs, chosen.nodes, other);
      all.push_back(other);
    }
    best = *std::max_element(all.begin(), all.end(), slower);
  }
  std::string arguments = "gradus_bench" + programs.options_text() + " --batch-size " +
                          std::to_string(best.batch_size) + " --threads " + std::to_string(best.threads);
  arguments += best.spec.empty() ? "" : " --all-reduce-spec " + best.spec;
  std::string mpiexec;
  for (const std::string& word : mpiexec_words(best.processes * chosen.nodes, chosen.nodes)) {
    mpiexec += word + ' ';
  }
  mpiexec += arguments;
  const std::string srun = "srun --nodes=" + std::to_string(chosen.nodes) +
                           " --ntasks-per-node=" + std::to_string(best.processes) +
                           " --cpus-per-task=" + std::to_string(best.threads) + ' ' + arguments;
  std::printf("fastest: %d processes of %d threads on a node, %td images each: %.2f images/s\n%s\n%s\n", best.processes,
              best.threads, best.batch_size, best.images_per_second, mpiexec.c_str(), srun.c_str());
  if (!chosen.csv.empty()) {
    std::ostringstream text;
    text << "processes,threads,batch_size,all_reduce_spec,images_per_second\n";
    for (const candidate& each : all) {
      text << each.processes << ',' << each.threads << ',' << each.batch_size << ',' << each.spec << ','
           << each.images_per_second << '\n';
    }
    write_text("--csv", chosen.csv, text.str());
  }
  if (!chosen.json.empty()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    const auto as_json = [](const candidate& each) {
      return nlohmann::ordered_json{{"processes", each.processes},
                                    {"threads", each.threads},
                                    {"batch_size", each.batch_size},
                                    {"all_reduce_spec", each.spec},
                                    {"images_per_second", each.images_per_second}};
    };
    for (const candidate& each : all) {
      list.push_back(as_json(each));
    }
    const nlohmann::ordered_json result{{"model", chosen.model}, {"effective_batch", effective},
                                        {"nodes", chosen.nodes}, {"best", as_json(best)},
                                        {"mpiexec", mpiexec},    {"srun", srun},
                                        {"rows", list}};
    write_text("--json", chosen.json, result.dump(2) + '\n');
  }
}

}  // namespace driver
