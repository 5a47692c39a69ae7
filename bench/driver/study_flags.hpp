// SPDX-License-Identifier: BSL-1.0
//
// The flags of tf_cnn_benchmarks that gradus_bench has no option of the same name for.
#pragma once

#include <string>
#include <vector>

namespace driver {

/// A command line of tf_cnn_benchmarks as one of gradus_bench.
struct study_line {
  std::vector<std::string> arguments = {};  ///< in order, without the program
  std::vector<std::string> notes = {};      ///< one for each flag that has no effect here, and why
};

/// Translates the flags of tf_cnn_benchmarks; what has another name passes. The words of each option have dashes
/// already.
/// @param arguments  without the program, in order
/// @throws std::invalid_argument for a flag that cannot be followed: it says what to write instead. For a task of a job
/// (--job_name, --worker_hosts, ...) this is the line that starts all tasks.
[[nodiscard]] study_line translate_study_flags(const std::vector<std::string>& arguments);

/// The names of all flags that are translated or refused, with dashes.
[[nodiscard]] std::vector<std::string> study_flag_names();

}  // namespace driver
