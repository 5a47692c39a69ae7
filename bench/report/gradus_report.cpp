// SPDX-License-Identifier: BSL-1.0
//
// gradus_report TRACE: where the time of a recorded training run goes, as a page for the browser, in words, JSON and
// CSV.
#include <algorithm>    // std::max
#include <cstdint>      // std::int64_t, std::uint64_t
#include <cstdio>       // std::fprintf, std::fwrite
#include <cstdlib>      // EXIT_FAILURE
#include <sstream>      // std::ostringstream
#include <string>       // std::string
#include <string_view>  // std::string_view

#include <CLI/CLI.hpp>

#include "../program/failure.hpp"
#include "../program/output_file.hpp"
#include "../program/signals.hpp"
#include "analysis.hpp"
#include "figures.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "page.hpp"
#include "trace.hpp"

namespace {

using gradus::printable;

/// A file to write, or the terminal. Opened before the work; not the trace, by whatever name.
class target {
 public:
  target(const char* option, const std::string& path, const std::string& trace) : to_terminal_{path == "-"} {
    if (!to_terminal_) {
      file_ = program::output_file{option, path};
      file_.require_not(trace);
    }
  }

  [[nodiscard]] bool asked_for() const noexcept { return to_terminal_ || file_; }

  void write(const std::string& text) {
    if (to_terminal_) {
      std::fwrite(text.data(), 1, text.size(), stdout);  // what fails, the end of main says
    } else {
      file_.write(text);
    }
  }

 private:
  bool to_terminal_;
  program::output_file file_;
};

void print_verdicts(const gradus::report::trace& from, const gradus::report::analysis& figures) {
  std::int64_t steps = 0;  // of the rank that has most: all take the same ones
  for (const gradus::report::rank_figures& each : figures.ranks) {
    steps = std::max(steps, each.steps);
  }
  gradus::print_text(stdout, "%d ranks, %lld steps, median %.2f ms", from.ranks, static_cast<long long>(steps),
                     figures.step_time.median / 1e3);
  if (figures.images_per_second > 0) {
    gradus::print_text(stdout, ", %.1f images/s", figures.images_per_second);
  }
  std::printf("\n");
  for (const gradus::report::verdict& each : figures.verdicts) {
    std::printf("* %s. %s\n", printable(each.sentence).c_str(), each.advice.c_str());
  }
  for (const std::string& each : figures.cautions) {
    std::printf("! %s\n", printable(each).c_str());
  }
}

int run(int count, char** arguments) {
  CLI::App app{"Tells where the time of a recorded training run goes: an HTML page with a timeline, and verdicts."};
  std::string path, output, csv, json;
  app.add_option("trace", path, "Trace file of all ranks, as gradus records it, as text or compressed by gzip")
      ->required();
  app.add_option("-o,--output", output,
                 "The page; default: the name of the trace with .html. - writes to the terminal");
  app.add_option("--csv", csv, "Write the figures as CSV too");
  app.add_option("--json", json, "Write the figures and verdicts as JSON too");
  std::uint64_t largest = gradus::report::usual_largest_bytes >> 20U;
  app.add_option(
         "--largest-mebibytes", largest,
         "Refuse traces whose text is longer, inflated if they are compressed: a small file may inflate to more "
         "than the memory holds")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40U))
      ->capture_default_str();
  bool quiet = false;
  app.add_flag("-q,--quiet", quiet, "Do not print the verdicts");
  try {
    app.parse(count, arguments);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& failure) {
    std::ostringstream text;
    const int status = app.exit(failure, text, text);
    std::fprintf(stderr, "%s", printable(text.str()).c_str());
    return status;
  }
  try {
    if (output.empty()) {
      output = path;
      for (const std::string_view ending : {".gz", ".json"}) {
        if (std::string_view{output}.ends_with(ending)) {
          output.resize(output.size() - ending.size());
        }
      }
      output += ".html";
    }
    target page{"--output", output, path};
    target table{"--csv", csv, path};
    target figures_file{"--json", json, path};
    const gradus::report::trace recorded = gradus::report::read_trace_file(path, largest << 20U);
    const gradus::report::analysis figures = gradus::report::analyse(recorded);
    const std::size_t slash = path.find_last_of('/');
    page.write(gradus::report::page(recorded, figures, slash == std::string::npos ? path : path.substr(slash + 1)));
    if (table.asked_for()) {
      table.write(gradus::report::figures_csv(recorded, figures));
    }
    if (figures_file.asked_for()) {
      figures_file.write(gradus::report::json_text(gradus::report::figures_json(recorded, figures), 1) + "\n");
    }
    if (!quiet && output != "-" && csv != "-" && json != "-") {
      print_verdicts(recorded, figures);
      std::printf("Written: %s\n", printable(output).c_str());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradus_report: %s\n", program::describe(error).c_str());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments) {
  program::end_on_signals("gradus_report");
  return gradus::close_output("gradus_report", run(count, arguments));
}
