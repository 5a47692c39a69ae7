// SPDX-License-Identifier: BSL-1.0
//
// gradus_bench scale: one training on several numbers of ranks, as a table, CSV, JSON and a drawing.
#include <cmath>
#include <cstdio>
#include <locale>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "gradus/core/format.hpp"
#include "pipeline.hpp"
#include "sweep.hpp"

namespace driver {

namespace {

std::string csv_of(const std::vector<row>& rows) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << "ranks,images_per_second,step_ms,efficiency,synthetic_images_per_second,input_overhead"
       << (rows[0].pipeline ? ",stages,stages_per_rank,micro_batches,schedule,bubble,measured_bubble\n" : "\n");
  for (const row& each : rows) {
    text << each.ranks << ',' << each.images_per_second << ',' << each.step_ms << ',' << each.efficiency << ',';
    if (each.input.synthetic > 0) {
      text << each.input.synthetic << ',' << each.input.overhead();
    } else {
      text << ',';
    }
    if (each.pipeline) {
      const pipeline_properties& of = *each.pipeline;
      text << ',' << of.stages << ',' << of.stages_per_rank << ',' << of.micro_batches << ',' << of.schedule << ','
           << of.bubble << ',' << of.measured_bubble;
    }
    text << '\n';
  }
  return text.str();
}

std::string json_of(const settings& chosen, const std::vector<row>& rows, bool ended_early) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const row& each : rows) {
    list.push_back({{"ranks", each.ranks},
                    {"images_per_second", each.images_per_second},
                    {"step_ms", each.step_ms},
                    {"efficiency", each.efficiency}});
    if (each.input.synthetic > 0) {
      list.back()["synthetic_images_per_second"] = each.input.synthetic;
      list.back()["input_overhead"] = each.input.overhead();
    }
    if (each.pipeline) {
      list.back()["pipeline"] = json_of(*each.pipeline);
    }
  }
  nlohmann::ordered_json all{{"model", chosen.model}, {"launcher", chosen.launcher}, {"rows", list}};
  if (ended_early) {
    all["ended_early"] = true;
  }
  return all.dump(2) + '\n';
}

}  // namespace

void scale(const settings& chosen, int argc, char** argv) {
  if (chosen.dry_run) {
    throw std::invalid_argument{"scale: a dry run measures nothing: leave out --dry-run"};
  }
  for (const int ranks : chosen.rank_counts) {
    if (chosen.stages > 0) {
      require_whole_replicas(chosen, ranks);
    }
  }
  sweep_files files{chosen};
  const runner programs{chosen, argc, argv};
  const bool real = !chosen.data_dir.empty();
  std::printf("%6s %12s %10s %11s%s\n", "ranks", "images/s", "step [ms]", "efficiency",
              real ? "  synthetic  input overhead" : "");
  std::fflush(stdout);
  std::vector<row> rows;
  const auto measure = [&] {
    for (const int ranks : chosen.rank_counts) {
      row made{.ranks = ranks};
      if (real) {
        made.input = programs.compare_input(ranks, {});
        made.images_per_second = made.input.real;
        made.step_ms = made.input.step_ms;
        made.pipeline = made.input.pipeline;
      } else {
        const result found = programs.measure(ranks, {});
        made.images_per_second = found.images_per_second;
        made.step_ms = 1e3 * found.step.median;
        made.pipeline = found.pipeline;
      }
      const row& first = rows.empty() ? made : rows.front();
      made.efficiency = made.images_per_second / ranks / (first.images_per_second / first.ranks);
      gradus::print_text(stdout, "%6d %12.2f %10.2f %10.1f%%", ranks, made.images_per_second, made.step_ms,
                         100 * made.efficiency);
      if (real) {
        gradus::print_text(stdout, " %10.2f %14.1f%%", made.input.synthetic, 100 * made.input.overhead());
      }
      std::printf("\n");
      std::fflush(stdout);
      rows.push_back(made);
    }
  };
  run_sweep(files, measure, [&](bool ended_early) {
    if (rows.empty()) {
      return false;
    }
    const std::string title = chosen.model + ", ranks in " + (chosen.launcher == "threads" ? "threads" : "processes");
    files.write(csv_of(rows), json_of(chosen, rows, ended_early), svg_of(title, rows));
    return true;
  });
}

}  // namespace driver
