// SPDX-License-Identifier: BSL-1.0
//
// The files of a folder of checkpoints: what left-over files are removed, and which checkpoints are kept.
#pragma once

#include <algorithm>    // std::find, std::find_if, std::min, std::sort
#include <cerrno>       // EWOULDBLOCK
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int64_t
#include <exception>    // std::exception
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/checkpoint/detail/file/names.hpp"
#include "gradus/checkpoint/reader.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/text.hpp"

namespace gradus::io::detail {

/// "fsync of 'x': No space left on device (errno 28); 1024 bytes are free in 'folder'".
[[nodiscard]] inline std::string call_error(file_system& files, message_part call, const std::string& path, int failed,
                                            const std::string& folder) {
  std::string text;
  call.append_to(text);
  append_text(text, {" '", path, "': ", errno_text(-failed), " (errno ", -failed, ")"});
  if (const std::int64_t free = files.free_bytes(folder); free >= 0) {
    append_text(text, {"; ", free, " bytes are free in '", folder, "'"});
  }
  return text;
}

/// What a reader or a writer of a checkpoint says on failure, without the location in the source.
[[nodiscard]] inline std::string reason_of(const std::exception& failure) {
  const auto* const known = dynamic_cast<const error*>(&failure);
  return known != nullptr ? std::string{known->message()} : std::string{failure.what()};
}

/// The jobs whose files this job may replace and delete: its own, and those that it was resumed from.
struct job_family {
  std::string job;
  std::vector<std::string> ancestors;

  [[nodiscard]] bool has(std::string_view other) const {
    return other == job || std::find(ancestors.begin(), ancestors.end(), other) != ancestors.end();
  }
};

/// Seconds for which a file whose lock is free stays, because a job makes its file before it locks it: that of a job
/// from which this one was resumed, and that of another one.
inline constexpr std::int64_t ancestor_stays = 2;
inline constexpr std::int64_t stranger_stays = 60;

/// Removes what dead jobs left in the folder. Files of living jobs are locked by them, or young.
/// @param own  the file that this job writes now
/// @param now  the time of the file system's clock
/// @param stale_after  seconds since the last change, after which a file may be removed where there are no locks
inline void remove_left_over(file_system& files, const std::string& folder, const std::string& own,
                             const job_family& family, std::int64_t now, std::int64_t stale_after) {
  std::vector<std::string> names;
  if (uninterrupted([&] { return files.list(folder, names); }) != 0) {
    return;  // the next save tries again
  }
  for (const std::string& name : names) {
    const std::string path = path_in(folder, name);
    const std::string_view other = job_of_temporary(name);
    file_status status;
    if (other.empty() || path == own || uninterrupted([&] { return files.status(path, status); }) != 0 ||
        !status.regular) {
      continue;
    }
    if (other == family.job) {
      (void)uninterrupted([&] { return files.remove(path); });
      continue;
    }
    const std::int64_t age = now - status.modified;
    const std::int64_t stays = family.has(other) ? ancestor_stays : stranger_stays;
    if (age < std::min(stays, stale_after)) {
      continue;
    }
    const open_file file{files, path, open_mode::write};
    if (file.error() != 0) {
      continue;
    }
    const int locked = uninterrupted([&] { return files.lock(file.number()); });
    if (locked == 0 || (locked != -EWOULDBLOCK && age >= stale_after)) {  // where there are no locks, age decides
      (void)uninterrupted([&] { return files.remove(path); });            // while it is locked
    }
  }
}

/// Deletes old checkpoints of the family after a new one is durable. Others are not touched.
/// @param step  of the new checkpoint, which stays; later ones stay too, and do not count
/// @return what could not be deleted, as warnings
[[nodiscard]] inline std::string delete_old(file_system& files, const std::string& folder, const job_family& family,
                                            std::int64_t step, int keep_newest, bool keep_best) {
  struct candidate {
    std::int64_t step;
    bool best;
    std::string path;
  };
  std::vector<candidate> found;
  std::vector<std::string> names;
  if (const int failed = uninterrupted([&] { return files.list(folder, names); })) {
    return call_error(files, "list", folder, failed, folder);
  }
  for (const std::string& name : names) {
    const auto number = step_of_name(name);
    file_status status;
    std::string path = path_in(folder, name);
    if (!number || *number > step || uninterrupted([&] { return files.status(path, status); }) != 0 ||
        !status.regular) {
      continue;
    }
    try {
      const checkpoint_reader reader{path, files};
      if (family.has(reader.job())) {
        found.push_back({.step = *number, .best = reader.best(), .path = std::move(path)});
      }
    } catch (const format_error&) {  // whose it is is not known
    }
  }
  std::sort(found.begin(), found.end(), [](const candidate& a, const candidate& b) { return a.step > b.step; });
  const auto best = std::find_if(found.begin(), found.end(), [](const candidate& each) { return each.best; });
  std::string warnings;
  for (std::size_t i = found.size(); i-- > 0;) {  // the oldest first
    const bool newest = i < static_cast<std::size_t>(keep_newest) || found[i].step == step;
    const bool kept_as_best = keep_best && best != found.end() && &found[i] == &*best;
    if (newest || kept_as_best) {
      continue;
    }
    if (const int failed = uninterrupted([&] { return files.remove(found[i].path); }); failed != 0) {
      append_text(warnings, {warnings.empty() ? "" : "; ", call_error(files, "unlink", found[i].path, failed, folder)});
    }
  }
  return warnings;
}

}  // namespace gradus::io::detail
