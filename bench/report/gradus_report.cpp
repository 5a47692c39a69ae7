// SPDX-License-Identifier: BSL-1.0
//
// gradus_report TRACE: where the time of a recorded training run goes, as a page for the browser, in words, JSON and
// CSV.
#include <cstdint>      // std::uint64_t
#include <cstdio>       // std::fprintf, std::fopen
#include <cstdlib>      // EXIT_FAILURE
#include <memory>       // std::unique_ptr
#include <string_view>  // std::string_view

#include <CLI/CLI.hpp>

#include "analysis.hpp"
#include "figures.hpp"
#include "gradus/core/text.hpp"  // printable
#include "page.hpp"
#include "trace.hpp"

namespace {

using gradus::detail::printable;
using gradus::report::report_error;

void write(const std::string& path, const std::string& text) {
  std::FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    throw report_error{path + ": cannot be written: " + std::strerror(errno)};
  }
  const bool complete = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int error = errno;
  if (path != "-") {
    std::fclose(file);
  }
  if (!complete) {
    throw report_error{path + ": cannot be written completely: " + std::strerror(error)};
  }
}

void print_verdicts(const gradus::report::trace& from, const gradus::report::analysis& figures) {
  std::printf("%d ranks, %zu steps, median %.2f ms", from.ranks, figures.step_time.count,
              figures.step_time.median / 1e3);
  if (figures.images_per_second > 0) {
    std::printf(", %.1f images/s", figures.images_per_second);
  }
  std::printf("\n");
  for (const gradus::report::verdict& each : figures.verdicts) {
    std::printf("* %s. %s\n", printable(each.sentence).c_str(), each.advice.c_str());
  }
  for (const std::string& each : figures.cautions) {
    std::printf("! %s\n", printable(each).c_str());
  }
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App program{"Tells where the time of a recorded training run goes: an HTML page with a timeline, and verdicts."};
  std::string path, output, csv, json;
  program.add_option("trace", path, "Trace file of all ranks, as gradus records it, as text or compressed by gzip")
      ->required();
  program.add_option("-o,--output", output,
                     "The page; default: the name of the trace with .html. - writes to the terminal");
  program.add_option("--csv", csv, "Write the figures as CSV too");
  program.add_option("--json", json, "Write the figures and verdicts as JSON too");
  std::uint64_t largest = gradus::report::usual_largest_bytes >> 20U;
  program
      .add_option("--largest-mebibytes", largest,
                  "Refuse traces whose text is longer, inflated if they are compressed: a small file may inflate to "
                  "more than the memory holds")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40U))
      ->capture_default_str();
  bool quiet = false;
  program.add_flag("-q,--quiet", quiet, "Do not print the verdicts");
  CLI11_PARSE(program, count, arguments);
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
    for (const std::string& each : {output, csv, json}) {
      if (each == path) {
        throw report_error{path + ": is the trace, and would be overwritten. Choose another name for what is written."};
      }
    }
    const gradus::report::trace recorded = gradus::report::read_trace_file(path, largest << 20U);
    const gradus::report::analysis figures = gradus::report::analyse(recorded);
    const std::size_t slash = path.find_last_of('/');
    write(output, gradus::report::page(recorded, figures, slash == std::string::npos ? path : path.substr(slash + 1)));
    if (!csv.empty()) {
      write(csv, gradus::report::figures_csv(recorded, figures));
    }
    if (!json.empty()) {
      write(json, gradus::report::json_text(gradus::report::figures_json(recorded, figures), 1) + "\n");
    }
    if (!quiet && output != "-" && csv != "-" && json != "-") {
      print_verdicts(recorded, figures);
      std::printf("Written: %s\n", printable(output).c_str());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradus_report: %s\n", printable(error.what()).c_str());
    return EXIT_FAILURE;
  }
}
