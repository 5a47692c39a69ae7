// SPDX-License-Identifier: BSL-1.0
//
// The command line of gradus_run.
#include "settings.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>    // std::any_of, std::find_if
#include <charconv>     // std::from_chars
#include <stdexcept>    // std::invalid_argument
#include <string_view>  // std::string_view

#include "gradus/core/text.hpp"

namespace supervisor {

namespace {

constexpr std::string_view ranks_word = "{ranks}";
constexpr int most_ranks = 1 << 20;

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
  const bool replaced = std::any_of(chosen.command.begin(), chosen.command.end(),
                                    [](const std::string& word) { return word.find(ranks_word) != std::string::npos; });
  if (replaced != ranks) {
    throw std::invalid_argument{replaced ? "--ranks: expected the number that replaces {ranks} in the command, got none"
                                         : "--ranks: expected {ranks} in the command, got none"};
  }
  if (fewer && !ranks) {
    throw std::invalid_argument{"--fewer: expected --ranks and {ranks} in the command, got none"};
  }
}

}  // namespace

std::string read_settings(int argc, char** argv, settings& chosen) {
  CLI::App app{
      "Starts a job, and starts it again from its newest checkpoint when it dies: gradus_run [options] -- command",
      "gradus_run"};
  app.footer(
      "Example:\n  gradus_run --ranks 8 --fewer 4,2 --checkpoints saved -- mpiexec -n {ranks} ./train_mnist "
      "--checkpoint-dir saved --resume\n\n"
      "Exit status: that of the job (0: complete; 75: interrupted, to be started again later), 128 and the signal that "
      "killed it,\n2 for a wrong command line.");
  int ranks = 0;
  std::string fewer;
  CLI::Option* const number = app.add_option("--ranks", ranks, "replaces {ranks} in the command");
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
  require_command_that_fits(chosen, number->count() > 0, smaller->count() > 0);
  chosen.allowed.ranks = {ranks};
  if (smaller->count() > 0) {
    read_fewer(fewer, chosen.allowed.ranks);
  }
  return {};
}

std::vector<std::string> command_on(const std::vector<std::string>& command, int ranks) {
  const std::string digits = std::to_string(ranks);
  std::vector<std::string> words = command;
  for (std::string& word : words) {
    for (std::size_t at = word.find(ranks_word); at != std::string::npos;
         at = word.find(ranks_word, at + digits.size())) {
      word.replace(at, ranks_word.size(), digits);
    }
  }
  return words;
}

}  // namespace supervisor
