// SPDX-License-Identifier: BSL-1.0
//
// Several measurements, each in processes of its own.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "../program/output_file.hpp"
#include "../program/signals.hpp"
#include "gradus/core/text.hpp"
#include "result.hpp"
#include "settings.hpp"

namespace driver {

/// One measurement on all numbers of ranks: a table of images a second and efficiency.
/// @param argc, argv  of this program: what is measured gets the same options
void scale(const settings& chosen, int argc, char** argv);

/// Finds processes, threads and images of a process for one effective batch, and prints the line that starts them.
void tune(const settings& chosen, int argc, char** argv);

/// The same training with the images of --data-dir and with synthetic ones, which cost nothing.
struct input_comparison {
  double real = 0;                                // images a second
  double synthetic = 0;                           // likewise; 0: not measured
  double step_ms = 0;                             // the median step with real images
  std::optional<pipeline_properties> pipeline{};  // of the training with real images

  /// What reading images takes of the speed: (synthetic - real) / synthetic.
  [[nodiscard]] double overhead() const noexcept { return synthetic > 0 ? (synthetic - real) / synthetic : 0; }
};

/// Runs this program once more, on the given number of ranks, with other options at the end, and reads its results.
class runner {
 public:
  runner(const settings& chosen, int argc, char** argv);

  /// @param synthetic  without --data-dir
  /// @throws std::runtime_error with what the program said when it failed
  /// @throws program::interrupted when a signal came; the program, and what it has started, have ended then
  [[nodiscard]] result measure(int ranks, const std::vector<std::string>& options, bool synthetic = false) const;

  /// Measures with real and with synthetic images in turn, so that what else the machine does hits both alike: twice,
  /// or as often as --repeats says. Medians.
  [[nodiscard]] input_comparison compare_input(int ranks, std::vector<std::string> options) const;

  /// The options of the command line for one measurement, as a shell reads them.
  [[nodiscard]] std::string options_text() const;

 private:
  program::held_signals signals_;
  std::string launcher_;
  int nodes_;
  int repeats_;
  std::string program_;
  std::vector<std::string> options_;        // without those of the sweep
  std::vector<std::string> input_options_;  // --data-dir and --data-name
};

/// The words that start `ranks` processes, the same number on each node.
[[nodiscard]] std::vector<std::string> mpiexec_words(int ranks, int nodes);

/// A line of a table of results.
struct row {
  int ranks = 0;
  double images_per_second = 0;
  double step_ms = 0;
  double efficiency = 0;  // images a second of a rank, over those of a rank of the first row
  input_comparison input{};
  std::optional<pipeline_properties> pipeline{};  // of a training in stages
};

/// The curve of `rows` and the ideal line, as SVG. @pre not empty
[[nodiscard]] std::string svg_of(const std::string& title, const std::vector<row>& rows);

/// A bar of a drawing.
struct bar {
  std::string label;
  double images_per_second = 0;
};

/// The bars one below the other, as SVG.
[[nodiscard]] std::string svg_of(const std::string& title, const std::vector<bar>& bars);

/// The files of a sweep, opened before its first measurement.
class sweep_files {
 public:
  /// @throws std::invalid_argument when one cannot be written, or is part of the input
  explicit sweep_files(const settings& chosen);

  /// Writes those that were asked for. @throws std::invalid_argument
  void write(const std::string& csv, const std::string& json, const std::string& svg);
  /// "written: 'a.csv', 'a.json'", or that nothing was.
  [[nodiscard]] std::string saved() const;

 private:
  program::output_file csv_;
  program::output_file json_;
  program::output_file svg_;
  std::string saved_;
};

/// Measures, and in the end saves what was measured: also when a signal or a failure has ended it early, which goes on
/// as an exception after a message that says what was saved.
/// @param measure  ()
/// @param save     (whether the sweep was ended early), which returns whether there was something to write
template <class Measure, class Save>
void run_sweep(const sweep_files& files, const Measure& measure, const Save& save) {
  try {
    measure();
  } catch (...) {
    const bool some = save(true);
    std::fprintf(stderr, "gradus_bench: the sweep ended early; %s\n",
                 some ? gradus::printable(files.saved()).c_str() : "nothing was measured, nothing is written");
    throw;
  }
  save(false);
}

}  // namespace driver
