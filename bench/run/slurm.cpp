// SPDX-License-Identifier: BSL-1.0
//
// A job in Slurm: its script, checked against the nodes that Slurm has.
#include "slurm.hpp"

#include <algorithm>  // std::all_of, std::max
#include <charconv>   // std::from_chars
#include <stdexcept>  // std::invalid_argument

#include "gradus/core/text.hpp"
#include "gradus/train/interrupted.hpp"

namespace supervisor {

namespace {

/// Takes the number at the beginning of a text, -1 if there is none.
int take_number(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  int number = -1;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{}) {
    return -1;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

[[noreturn]] void refuse(const char* option, const char* expected, std::string_view got) {
  throw std::invalid_argument{gradus::join({option, ": expected ", expected, ", got '", got, "'"})};
}

void require_word(const char* option, const std::string& value) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!value.empty() && (value.front() == '-' || value.find_first_not_of(allowed) != std::string::npos)) {
    refuse(option, "letters, digits and %+,-./:=@_, and no dash in front", value);
  }
}

}  // namespace

word_list nodes_command(const slurm_job& job) {
  word_list all{"sinfo", "--noheader", "--format=%D %c"};
  if (!job.partition.empty()) {
    all.push_back("--partition=" + job.partition);
  }
  return all;
}

std::vector<node_kind> read_nodes(std::string_view text) {
  std::vector<node_kind> kinds;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    node_kind each;
    each.nodes = take_number(line);
    each.processors = take_number(line);  // "16+" where the nodes of a line differ: at least 16
    if (each.nodes > 0 && each.processors > 0) {
      kinds.push_back(each);
    }
  }
  return kinds;
}

void fit_to_nodes(launch& how, const std::vector<node_kind>& kinds) {
  slurm_job& job = how.slurm;
  const int given = job.processors_of_node;
  const std::vector<node_kind> all =
      given > 0 ? std::vector<node_kind>{{.nodes = job.nodes, .processors = given}} : kinds;
  if (all.empty()) {
    if (job.threads == 0) {
      throw std::invalid_argument{
          "--slurm: expected --threads, or --processors-of-node to divide them, because there is no sinfo to ask"};
    }
    return;
  }
  const auto nodes_with = [&](int processors) {
    int nodes = 0;
    for (const node_kind& each : all) {
      nodes += each.processors >= processors ? each.nodes : 0;
    }
    return nodes;
  };
  std::string list;
  int most = 0;  // the processors that enough nodes have
  for (const node_kind& each : all) {
    gradus::append_text(list, {list.empty() ? "" : ", ", each.nodes, each.nodes == 1 ? " node of " : " nodes of ",
                               each.processors, " processors"});
    if (nodes_with(each.processors) >= job.nodes) {
      most = std::max(most, each.processors);
    }
  }
  if (job.threads == 0) {
    job.threads = std::max(1, most / job.ranks_per_node);
  }
  if (nodes_with(job.ranks_per_node * job.threads) < job.nodes) {
    throw std::invalid_argument{
        gradus::join({"--slurm: expected ", job.nodes, job.nodes == 1 ? " node" : " nodes", " with ",
                      job.ranks_per_node, " x ", job.threads, " processors (--ranks-per-node x --threads), got ", list,
                      job.partition.empty() ? "" : " in partition ", job.partition})};
  }
}

std::string mpi_of_program(std::string_view content) {
  const auto has = [&](std::string_view name) { return content.find(name) != std::string_view::npos; };
  // libmpi.so.12 is the common name of MPICH and its descendants.
  if (has("libmpi.so.40") || has("libmpi.so.20") || has("libopen-rte.so")) {
    return "pmix";
  }
  return "pmi2";
}

word_list srun_command(const launch& how, const word_list& program) {
  const slurm_job& job = how.slurm;
  word_list all{"srun", "--ntasks={ranks}", "--mpi=" + job.mpi, gradus::join({"--cpus-per-task=", job.threads}),
                "--kill-on-bad-exit=1"};
  if (!how.bind.empty()) {
    all.push_back(gradus::join({"--cpu-bind=", how.bind == "core"     ? "cores"
                                               : how.bind == "socket" ? "sockets"
                                               : how.bind == "numa"   ? "ldoms"
                                                                      : "none"}));
  }
  const word_list program_words = announced(how, program);
  all.insert(all.end(), program_words.begin(), program_words.end());
  return all;
}

std::string slurm_script(const launch& how, const word_list& supervised) {
  const slurm_job& job = how.slurm;
  std::string text = "#!/bin/bash\n";
  const auto line = [&](std::initializer_list<gradus::text_piece> pieces) {
    gradus::append_text(text, {"#SBATCH ", gradus::join(pieces), "\n"});
  };
  if (!job.name.empty()) {
    line({"--job-name=", job.name});
  }
  if (!job.partition.empty()) {
    line({"--partition=", job.partition});
  }
  if (!job.account.empty()) {
    line({"--account=", job.account});
  }
  line({"--nodes=", job.nodes});
  line({"--ntasks-per-node=", job.ranks_per_node});
  line({"--cpus-per-task=", job.threads});
  if (!job.time.empty()) {
    line({"--time=", job.time});
  }
  line({"--signal=B:USR1@", job.signal_before});
  line({"--requeue"});
  line({"--open-mode=append"});
  if (!job.output.empty()) {
    line({"--output=", job.output});
  }
  for (const std::string& each : job.lines) {
    line({each});
  }
  gradus::append_text(
      text,
      {"# USR1 comes before the time limit: the job saves, and is queued again. TERM comes when "
       "the job is canceled or\n"
       "# taken off its nodes: the job saves too, and Slurm decides what follows.\n"
       "job=\nasked=no\nagain=no\n"
       "pass() { asked=yes; [ -z \"$job\" ] || kill -s USR1 \"$job\"; }\n"
       "trap 'again=yes; pass' USR1\n"
       "trap pass TERM\n",
       shell_line(supervised), " &\njob=$!\n[ \"$asked\" = no ] || pass  # came before the number of the job\n",
       "while kill -0 \"$job\" 2>/dev/null; do wait \"$job\"; done  # a signal ends a wait\n"
       "wait \"$job\"\nstatus=$?\n"
       "if [ \"$status\" = ",
       gradus::train::interrupted::exit_code, " ] && [ \"$again\" = yes ] && [ \"${SLURM_RESTART_COUNT:-0}\" -lt ",
       job.requeues, " ]; then\n  scontrol requeue \"$SLURM_JOB_ID\"\nfi\nexit \"$status\"\n"});
  return text;
}

void require_slurm_values(const slurm_job& job) {
  require_word("--job-name", job.name);
  require_word("--partition", job.partition);
  require_word("--account", job.account);
  require_word("--output", job.output);
  require_word("--mpi-type", job.mpi);
  if (job.time.find_first_not_of("0123456789:-") != std::string::npos ||
      (!job.time.empty() && (job.time.front() == '-' || job.time.front() == ':'))) {
    refuse("--time", "Slurm's form of minutes, hours:minutes:seconds or days-hours", job.time);
  }
  for (const std::string& each : job.lines) {
    const bool one_line = std::all_of(each.begin(), each.end(), [](char c) { return c >= ' ' && c != 127; });
    if (!each.starts_with("--") || !one_line) {
      refuse("--sbatch", "an option of sbatch in one line, such as --sbatch=--mem=4G", each);
    }
  }
}

}  // namespace supervisor
