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

/// Runs this program once more, on so many ranks, with other options at the end, and reads what it found.
class runner {
 public:
  runner(const settings& chosen, int argc, char** argv);

  /// @param synthetic  without --data-dir
  /// @throws std::runtime_error with what the program said when it failed
  [[nodiscard]] result measure(int ranks, const std::vector<std::string>& options, bool synthetic = false) const;

  /// The options of the command line for one measurement.
  [[nodiscard]] std::string options_text() const;

 private:
  std::string launcher_;
  int nodes_;
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
  double synthetic = 0;   // images a second without input; 0: not measured

  /// (synthetic - real) / synthetic
  [[nodiscard]] double input_overhead() const noexcept {
    return synthetic > 0 ? (synthetic - images_per_second) / synthetic : 0;
  }
};

/// The curve of `rows` and the ideal line, as SVG. @throws std::invalid_argument when the file cannot be written
void write_svg(const std::string& path, const std::string& title, const std::vector<row>& rows);

/// @throws std::invalid_argument when the file cannot be written
void write_text(const char* option, const std::string& path, const std::string& text);

}  // namespace driver
