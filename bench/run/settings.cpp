// SPDX-License-Identifier: BSL-1.0
//
// The command line of gradus_run.
#include "settings.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>         // std::find_if
#include <charconv>          // std::from_chars
#include <initializer_list>  // std::initializer_list
#include <stdexcept>         // std::invalid_argument
#include <string_view>       // std::string_view
#include <utility>           // std::pair

#include "gradus/core/text.hpp"
#include "slurm.hpp"
#include "words.hpp"

namespace supervisor {

namespace {

/// Appends the numbers of "4,2", each smaller than the one before.
void read_fewer(std::string_view text, std::vector<int>& ranks) {
  const std::string whole{text};
  while (true) {
    const std::string_view word = text.substr(0, text.find(','));
    int number = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (failed != std::errc{} || end != word.data() + word.size() || number < 1 || number >= ranks.back()) {
      throw std::invalid_argument{
          gradus::join({"--fewer: expected numbers from 1 on, each smaller than the one before and than --ranks ",
                        ranks.front(), ", such as 4,2, got '", whole, "'"})};
    }
    ranks.push_back(number);
    if (word.size() == text.size()) {
      return;
    }
    text.remove_prefix(word.size() + 1);
  }
}

void require_command_that_fits(const settings& chosen, bool ranks, bool fewer) {
  if (chosen.command.empty() || chosen.command.front().empty()) {
    throw std::invalid_argument{"expected -- and the command of the job after the options, got none"};
  }
  if (chosen.how.by != launching::none) {
    return;
  }
  const bool replaced = has_number(chosen.command, "ranks");
  if (replaced != ranks) {
    throw std::invalid_argument{
        replaced ? "--ranks: expected the number that replaces {ranks} in the command, got none"
                 : "--ranks: expected {ranks} in the command, or --mpiexec to start as many, got none"};
  }
  if (fewer && !ranks) {
    throw std::invalid_argument{"--fewer: expected --ranks and {ranks} in the command, got none"};
  }
}

struct launch_flags {
  bool mpiexec = false, slurm = false;
  std::string hosts = {};
};

void add_launch(CLI::App& app, settings& chosen, launch_flags& flags) {
  launch& how = chosen.how;
  app.option_defaults()->group("Who starts the ranks of the command");
  app.add_flag("--mpiexec", flags.mpiexec, "mpiexec, --ranks of them on this machine");
  app.add_option("--hosts", flags.hosts,
                 "mpiexec, on these machines by ssh: the addresses that they have for each other, with their ranks, "
                 "such as 10.0.0.1:4,10.0.0.2:4");
  app.add_flag("--slurm", flags.slurm, "Slurm, in a job that is queued by sbatch");
  app.add_flag("--print", how.print, "print the script of the job, or the line, and start nothing");
  app.add_option("--bind", how.bind,
                 "what a rank is bound to; each rank then says on which processors it runs: core (--threads of them), "
                 "socket, numa or none (default: as the launcher does)")
      ->check(CLI::IsMember({"none", "core", "socket", "numa"}));
  app.add_option("--threads", how.threads, "processors of a rank, replaces {threads} in the command")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--servers", how.servers, "how many of the ranks are servers, replaces {servers} in the command")
      ->check(CLI::Range(1, most_ranks));
  app.add_option("--mpiexec-program", how.mpiexec, "the program mpiexec")->capture_default_str();
  app.option_defaults()->group("Machines by ssh");
  app.add_option(
      "--login", how.login,
      "the address by which this machine reaches the first of --hosts, such as a public one: [USER@]ADDRESS; "
      "mpiexec runs there (default: here)");
  app.add_option("--ssh-config", how.ssh_config, "a file of options of ssh: keys, ports, users")
      ->check(CLI::ExistingFile);
  app.option_defaults()->group("Slurm");
  slurm_job& job = how.slurm;
  app.add_option("--nodes", job.nodes, "machines of the job, replaces {nodes} in the command")
      ->check(CLI::Range(1, most_ranks));
  app.add_option("--ranks-per-node", job.ranks_per_node, "ranks of a machine")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--processors-of-node", job.processors_of_node,
                 "check against this number (default: against the nodes of sinfo)")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--time", job.time, "limit of one start, in Slurm's form: hours:minutes:seconds");
  app.add_option("--signal-before", job.signal_before,
                 "seconds before that limit the job gets SIGUSR1, saves, and is queued again")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  app.add_option("--requeues", job.requeues, "starts after the first, by the time limit")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--job-name", job.name, "of the job (default: the command's)");
  app.add_option("--partition", job.partition, "of Slurm's nodes");
  app.add_option("--account", job.account, "that pays");
  app.add_option("--output", job.output, "file of the job's output");
  app.add_option("--mpi-type", job.mpi, "of srun --mpi (default: pmix if the program has Open MPI, otherwise pmi2)");
  app.add_option("--sbatch", job.lines, "one more option of sbatch, such as --sbatch=--mem=4G")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void require_only_with(const CLI::App& app, bool allowed, std::initializer_list<const char*> options,
                       const char* with) {
  for (const char* const each : options) {
    if (!allowed && app.count(each) != 0) {
      throw std::invalid_argument{gradus::join({each, ": expected ", with, ", got none"})};
    }
  }
}

/// Who starts the ranks, and how many there are.
void choose_launch(const CLI::App& app, const launch_flags& flags, settings& chosen, int& ranks) {
  launch& how = chosen.how;
  const bool by_hosts = app.count("--hosts") != 0;
  if (int{flags.mpiexec} + int{flags.slurm} + int{by_hosts} > 1) {
    throw std::invalid_argument{"expected one of --mpiexec, --hosts and --slurm, got several"};
  }
  how.by = flags.mpiexec ? launching::mpiexec
           : by_hosts    ? launching::hosts
           : flags.slurm ? launching::slurm
                         : launching::none;
  require_only_with(app, how.by != launching::none, {"--print", "--bind", "--threads", "--servers"},
                    "--mpiexec, --hosts or --slurm");
  require_only_with(app, by_hosts, {"--login", "--ssh-config"}, "--hosts");
  require_only_with(app, flags.mpiexec || by_hosts, {"--mpiexec-program"}, "--mpiexec or --hosts");
  require_only_with(app, flags.slurm,
                    {"--nodes", "--ranks-per-node", "--processors-of-node", "--time", "--signal-before", "--requeues",
                     "--job-name", "--partition", "--account", "--output", "--mpi-type", "--sbatch"},
                    "--slurm");
  const bool given = app.count("--ranks") != 0;
  if (flags.mpiexec && !given) {
    throw std::invalid_argument{"--mpiexec: expected --ranks, got none"};
  }
  if (by_hosts) {
    how.hosts = read_hosts(flags.hosts);
    int all = 0;
    for (const host& each : how.hosts) {
      all += each.ranks;
    }
    if (given && ranks > all) {
      throw std::invalid_argument{
          gradus::join({"--ranks: expected at most the ", all, " ranks of --hosts, got ", ranks})};
    }
    ranks = given ? ranks : all;
    if (!how.login.empty() && !is_address(how.login, true)) {
      throw std::invalid_argument{
          gradus::join({"--login: expected [USER@]ADDRESS of the first host, got '", how.login, "'"})};
    }
    if (how.ssh_config.find_first_of(" \t\n'\"\\") != std::string::npos) {
      throw std::invalid_argument{gradus::join(
          {"--ssh-config: expected a name without blanks and quotes, which mpiexec does not pass on, got '",
           how.ssh_config, "'"})};
    }
  }
  if (flags.slurm) {
    slurm_job& job = how.slurm;
    if (job.nodes == 0) {
      throw std::invalid_argument{"--slurm: expected --nodes, got none"};
    }
    if (given) {
      throw std::invalid_argument{"--ranks: expected --nodes and --ranks-per-node with --slurm, got --ranks"};
    }
    if (job.ranks_per_node > most_ranks / job.nodes) {
      throw std::invalid_argument{gradus::join(
          {"--nodes: expected at most ", most_ranks, " ranks in all, got ", job.nodes, " x ", job.ranks_per_node})};
    }
    ranks = job.nodes * job.ranks_per_node;
    job.threads = how.threads;
    require_slurm_values(job);
  }
  if (how.servers >= ranks && how.servers > 0) {
    throw std::invalid_argument{
        gradus::join({"--servers: expected fewer than the ", ranks, " ranks, so that some train, got ", how.servers})};
  }
  for (const auto& [option, name] :
       {std::pair{"--servers", "servers"}, {"--threads", "threads"}, {"--nodes", "nodes"}}) {
    if (how.by != launching::none && app.count(option) == 0 && has_number(chosen.command, name) &&
        !(flags.slurm && std::string_view{name} == "threads")) {
      throw std::invalid_argument{
          gradus::join({option, ": expected the number that replaces {", name, "} in the command, got none"})};
    }
  }
  if (how.servers > 0 && !has_number(chosen.command, "servers")) {
    throw std::invalid_argument{"--servers: expected {servers} in the command, such as --servers {servers}, got none"};
  }
  how.ranks = ranks;
  how.grace = chosen.grace;
}

/// The options of supervision as they were given.
word_list options_given(const CLI::App& app) {
  word_list all;
  for (const char* const each : {"--fewer", "--restarts", "--useless-starts", "--checkpoints", "--time-limit",
                                 "--silent-for", "--pause", "--grace"}) {
    if (app.count(each) != 0) {
      for (const std::string& value : app.get_option(each)->results()) {
        all.push_back(gradus::join({each, "=", value}));
      }
    }
  }
  return all;
}

}  // namespace

std::string read_settings(int argc, char** argv, settings& chosen) {
  CLI::App app{
      "Starts a job on this machine, on several, or in Slurm, and starts it again from its newest checkpoint when it "
      "dies: gradus_run [options] -- command",
      "gradus_run"};
  app.footer(
      "Examples:\n"
      "  gradus_run --mpiexec --ranks 8 --fewer 4,2 --checkpoints saved -- ./train --checkpoint-dir saved --resume\n"
      "  gradus_run --hosts 10.0.0.1:8,10.0.0.2:8 --login me@198.51.100.7 -- ./train\n"
      "  gradus_run --slurm --nodes 4 --ranks-per-node 8 --bind core --time 4:00:00 --print -- ./train --resume\n"
      "  gradus_run --ranks 8 -- my_launcher -n {ranks} ./train\n\n"
      "Exit status: that of the job (0: complete; 75: interrupted, to be started again later), 128 and the signal that "
      "killed it,\n2 for a wrong command line.");
  int ranks = 0;
  std::string fewer;
  launch_flags flags;
  CLI::Option* const number = app.add_option("--ranks", ranks, "ranks of the job, replaces {ranks} in the command");
  number->check(CLI::Range(1, most_ranks));
  CLI::Option* const smaller =
      app.add_option("--fewer", fewer, "smaller numbers of ranks, such as 4,2: each after a start without progress");
  app.add_option("--restarts", chosen.allowed.restarts, "starts after the first, in all")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--useless-starts", chosen.allowed.useless_starts,
                 "starts in a row without progress, on the smallest number of ranks, after which none follows")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--checkpoints", chosen.checkpoints,
                 "the job's folders of checkpoints, that in memory too: a start makes progress if a whole one comes "
                 "that is newer than the newest whole one before (without: if it lasts 60 seconds)");
  app.add_option("--time-limit", chosen.time_limit, "seconds of all starts together, after which the job gets SIGTERM")
      ->check(CLI::Range(0.001, 1e9));
  app.add_option("--silent-for", chosen.silent_for,
                 "seconds without output and without another checkpoint after which the job is killed")
      ->check(CLI::Range(0.001, 1e9));
  app.add_option("--pause", chosen.allowed.first_pause,
                 "seconds before a start; doubled after each start without progress, up to 60")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--grace", chosen.grace,
                 "seconds from a signal to SIGKILL: after --time-limit, and for processes that "
                 "outlive the command")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();

  app.add_flag("--announce", chosen.announce)->group("");  // how ranks call this program
  add_launch(app, chosen, flags);

  // The words of the command are not CLI11's to interpret.
  char** const end = std::find_if(argv, argv + argc, [](const char* word) { return std::string_view{word} == "--"; });
  if (end != argv + argc) {
    chosen.command.assign(end + 1, argv + argc);
  }
  try {
    app.parse(static_cast<int>(end - argv), argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& failure) {
    throw std::invalid_argument{failure.what()};
  }
  choose_launch(app, flags, chosen, ranks);
  require_command_that_fits(chosen, number->count() > 0, smaller->count() > 0);
  chosen.passed_on = options_given(app);
  chosen.allowed.ranks = {ranks};
  if (smaller->count() > 0) {
    read_fewer(fewer, chosen.allowed.ranks);
  }
  return {};
}

std::vector<std::string> command_on(const std::vector<std::string>& command, int ranks) {
  return with_number(command, "ranks", ranks);
}

}  // namespace supervisor
