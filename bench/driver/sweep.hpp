// SPDX-License-Identifier: BSL-1.0
//
// Several measurements, each in processes of its own.
#pragma once

#include <string>
#include <vector>

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
  double real = 0;       // images a second
  double synthetic = 0;  // likewise; 0: not measured
  double step_ms = 0;    // the median step with real images

  /// What reading images takes of the speed: (synthetic - real) / synthetic.
  [[nodiscard]] double overhead() const noexcept { return synthetic > 0 ? (synthetic - real) / synthetic : 0; }
};

/// Runs this program once more, on so many ranks, with other options at the end, and reads what it found.
class runner {
 public:
  runner(const settings& chosen, int argc, char** argv);

  /// @param synthetic  without --data-dir
  /// @throws std::runtime_error with what the program said when it failed
  [[nodiscard]] result measure(int ranks, const std::vector<std::string>& options, bool synthetic = false) const;

  /// Measures with real and with synthetic images in turn, so that what else the machine does hits both alike: twice,
  /// or as often as --repeats says. Medians.
  [[nodiscard]] input_comparison compare_input(int ranks, std::vector<std::string> options) const;

  /// The options of the command line for one measurement, as a shell reads them.
  [[nodiscard]] std::string options_text() const;

 private:
  std::string launcher_;
  int nodes_;
  int repeats_;
  std::string program_;
  std::vector<std::string> options_;        // without those of the sweep
  std::vector<std::string> input_options_;  // --data-dir and --data-name
};

/// What starts so many processes, as many on each node.
[[nodiscard]] std::vector<std::string> mpiexec_words(int ranks, int nodes);

/// A line of a table of results.
struct row {
  int ranks = 0;
  double images_per_second = 0;
  double step_ms = 0;
  double efficiency = 0;  // images a second of a rank, over those of a rank of the first row
  input_comparison input{};
};

/// The curve of `rows` and the ideal line, as SVG. @throws std::invalid_argument when the file cannot be written
void write_svg(const std::string& path, const std::string& title, const std::vector<row>& rows);

/// A bar of a drawing.
struct bar {
  std::string label;
  double images_per_second = 0;
};

/// The bars one below the other, as SVG. @throws std::invalid_argument when the file cannot be written
void write_svg(const std::string& path, const std::string& title, const std::vector<bar>& bars);

/// @throws std::invalid_argument when the file cannot be written
void write_text(const char* option, const std::string& path, const std::string& text);

}  // namespace driver
