// SPDX-License-Identifier: BSL-1.0
//
// Finds the newest valid checkpoint in one process, and says what was skipped.
#pragma once

#include <unistd.h>  // geteuid

#include <algorithm>    // std::sort
#include <cerrno>       // ENOENT
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/checkpoint/detail/file/names.hpp"
#include "gradus/checkpoint/reader.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"

namespace gradus::io {

/// A file that a search did not take.
struct skipped_checkpoint {
  std::string path;       ///< of the file, or of a folder that cannot be read
  std::string reason;     ///< what is wrong with it
  std::string node = {};  ///< "rank 2 on 'host'": who sees that; empty if all ranks do
};

/// What a search has found.
struct checkpoint_report {
  std::string path = {};                         ///< of the newest valid checkpoint; empty if there is none
  std::int64_t step = -1;                        ///< of it; -1 if there is none
  std::string node = {};                         ///< "rank 2 on 'host'": who reads it; empty if all ranks do
  std::vector<skipped_checkpoint> skipped = {};  ///< newer or equally new files that are not valid, the newest first
  /// "the file belongs to user 1001, not to user 1000, who reads it": who else may have made or changed what is read.
  /// Empty if the file and its folder are of the user who reads, or of the system's administrator.
  std::string owner = {};

  /// True if there is a valid checkpoint.
  [[nodiscard]] bool found() const noexcept { return !path.empty(); }
};

/// A report as text, a line for each file.
[[nodiscard]] inline std::string to_string(const checkpoint_report& report) {
  const auto of_node = [](const std::string& node) { return node.empty() ? node : join({" of ", node}); };
  std::string text = report.found() ? join({"the newest valid checkpoint is '", report.path, "'", of_node(report.node)})
                                    : std::string{"there is no valid checkpoint"};
  if (!report.owner.empty()) {
    append_text(text, {"\nwarning: ", report.owner});
  }
  for (const skipped_checkpoint& each : report.skipped) {
    append_text(text, {"\nskipped: '", each.path, "'", of_node(each.node), ": ", each.reason});
  }
  return text;
}

/// The jobs whose files a job that resumes from this checkpoint may replace and delete; see
/// checkpoint_writer_options::resumed_from.
[[nodiscard]] inline std::string checkpoint_family(const safetensors_header& header) {
  std::string family;
  for (const std::string_view key : {detail::job_key, detail::ancestors_key}) {
    if (const auto found = header.metadata.find(key); found != header.metadata.end() && !found->second.empty()) {
      append_text(family, {family.empty() ? "" : " ", found->second});
    }
  }
  return family;
}

namespace detail {

/// A file with the name of a checkpoint.
struct checkpoint_candidate {
  std::int64_t step = 0;   ///< in its name
  std::size_t folder = 0;  ///< index into the folders

  [[nodiscard]] bool operator==(const checkpoint_candidate&) const = default;
  [[nodiscard]] std::string path_among(std::span<const std::string> folders) const {
    return path_in(folders[folder], name_of_step(step));
  }
};

/// Puts the newest first; of the same step, those of the first folder.
inline void sort_candidates(std::vector<checkpoint_candidate>& candidates) {
  std::sort(candidates.begin(), candidates.end(), [](const checkpoint_candidate& a, const checkpoint_candidate& b) {
    return a.step != b.step ? a.step > b.step : a.folder < b.folder;
  });
}

/// The files with the name of a checkpoint, sorted. A folder that does not exist has none; one that cannot be read is
/// noted in the report.
[[nodiscard]] inline std::vector<checkpoint_candidate> checkpoint_candidates(std::span<const std::string> folders,
                                                                             file_system& files,
                                                                             checkpoint_report& report) {
  std::vector<checkpoint_candidate> found;
  for (std::size_t folder = 0; folder < folders.size(); ++folder) {
    std::vector<std::string> names;
    const int failed = uninterrupted([&] { return files.list(folders[folder], names); });
    if (failed != 0 && failed != -ENOENT) {
      report.skipped.push_back(
          {.path = folders[folder], .reason = join({"the folder cannot be read: ", errno_text(-failed)})});
    }
    for (const std::string& name : names) {
      if (const auto step = step_of_name(name)) {
        found.push_back({.step = *step, .folder = folder});
      }
    }
  }
  sort_candidates(found);
  return found;
}

/// Opens a checkpoint; its name says its step. @throws format_error if it is not valid
[[nodiscard]] inline std::unique_ptr<checkpoint_reader> open_candidate(const std::string& path, file_system& files) {
  auto reader = std::make_unique<checkpoint_reader>(path, files);
  const std::size_t slash = path.rfind('/');
  const std::string_view name = std::string_view{path}.substr(slash == std::string::npos ? 0 : slash + 1);
  if (step_of_name(name) != reader->step()) {
    raise<format_error>({"read '", path, "'"}, {"the checkpoint of the step in its name"},
                        {"that of step ", reader->step()}, "give it its own name again");
  }
  return reader;
}

/// The owner for checkpoint_report::owner; empty where the files belong to this user.
[[nodiscard]] inline std::string other_owner_of(const checkpoint_reader& file, file_system& files) {
  const std::string& path = file.path();
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash == 0 ? 1 : slash);
  file_status of_folder;
  if (uninterrupted([&] { return files.status(folder, of_folder); }) != 0 || of_folder.link) {
    of_folder = {};  // who owns what a link leads to is not asked for
  }
  const std::int64_t user = static_cast<std::int64_t>(::geteuid());
  for (const bool of_file : {false, true}) {
    const std::int64_t owner = of_file ? file.status().owner : of_folder.owner;
    if (owner > 0 && owner != user) {
      return join({of_file ? "the file" : "the folder", " '", of_file ? path : folder, "' belongs to user ", owner,
                   ", not to user ", user, ", who reads it: go on from it only if you trust that user"});
    }
  }
  return {};
}

/// Finds the newest valid checkpoint of some folders that `takes` wants.
[[nodiscard]] inline checkpoint_report find_checkpoint(std::span<const std::string> folders, file_system& files,
                                                       bool (*takes)(const checkpoint_reader& reader)) {
  checkpoint_report report;
  for (const checkpoint_candidate& each : checkpoint_candidates(folders, files, report)) {
    const std::string path = each.path_among(folders);
    try {
      const auto reader = open_candidate(path, files);
      if (!takes(*reader)) {
        continue;
      }
      reader->compare_checksums();
      report.path = path;
      report.step = reader->step();
      report.owner = other_owner_of(*reader, files);
      return report;
    } catch (const format_error& failure) {
      report.skipped.push_back({.path = path, .reason = std::string{failure.message()}});
    }
  }
  return report;
}

}  // namespace detail

/// Finds the newest valid checkpoint of some folders, in one process. The checksums of all its bytes are compared.
/// @throws nothing for files that are not valid: the report names them
[[nodiscard]] inline checkpoint_report find_newest(std::span<const std::string> folders,
                                                   file_system& files = operating_system()) {
  return detail::find_checkpoint(folders, files, [](const checkpoint_reader& /*any*/) { return true; });
}
/// The same for one folder.
[[nodiscard]] inline checkpoint_report find_newest(const std::string& folder, file_system& files = operating_system()) {
  return find_newest(std::span{&folder, 1}, files);
}

/// Finds the best checkpoint of some folders, in one process: of the valid ones that were saved as the best so far (see
/// train::checkpoint_options::best) the newest.
///
///   io::load_weights(net, io::find_best("checkpoints").path);
/// @throws nothing for files that are not valid: the report names them, and has no path if no file was saved as the
/// best
[[nodiscard]] inline checkpoint_report find_best(std::span<const std::string> folders,
                                                 file_system& files = operating_system()) {
  return detail::find_checkpoint(folders, files, [](const checkpoint_reader& reader) { return reader.best(); });
}

/// The same for one folder.
[[nodiscard]] inline checkpoint_report find_best(const std::string& folder, file_system& files = operating_system()) {
  return find_best(std::span{&folder, 1}, files);
}

}  // namespace gradus::io
