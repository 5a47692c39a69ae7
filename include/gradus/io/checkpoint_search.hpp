// SPDX-License-Identifier: BSL-1.0
//
// Finds the newest valid checkpoint, and reads it on all ranks.
#pragma once

#include <algorithm>    // std::copy_n, std::max, std::min, std::sort
#include <cerrno>       // ENOENT
#include <cstddef>      // std::byte, std::ptrdiff_t, std::size_t
#include <cstdint>      // std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t
#include <exception>    // std::exception
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/any_communicator.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/checkpoint_reader.hpp"
#include "gradus/io/detail/checkpoint/exchange.hpp"
#include "gradus/io/detail/checkpoint/folder.hpp"
#include "gradus/io/detail/checkpoint/names.hpp"
#include "gradus/io/file_system.hpp"
#include "gradus/io/safetensors.hpp"

namespace gradus::io {

/// A file that a search did not take.
struct skipped_checkpoint {
  std::string path;    ///< of the file, or of a folder that cannot be read
  std::string reason;  ///< what is wrong with it
};

/// What a search has found.
struct checkpoint_report {
  std::string path = {};                         ///< of the newest valid checkpoint; empty if there is none
  std::int64_t step = -1;                        ///< of it; -1 if there is none
  std::vector<skipped_checkpoint> skipped = {};  ///< newer files that are not valid, the newest first

  /// True if there is a valid checkpoint.
  [[nodiscard]] bool found() const noexcept { return !path.empty(); }
};

/// A report as text, a line for each file.
[[nodiscard]] inline std::string to_string(const checkpoint_report& report) {
  std::string text = report.found() ? join({"the newest valid checkpoint is '", report.path, "'"})
                                    : std::string{"there is no valid checkpoint"};
  for (const skipped_checkpoint& each : report.skipped) {
    append_text(text, {"\nskipped: '", each.path, "': ", each.reason});
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

/// The files with the name of a checkpoint, the newest first; of the same step, those of the first folder first. A
/// folder that does not exist has none; one that cannot be read is noted in the report.
[[nodiscard]] inline std::vector<std::string> checkpoint_candidates(std::span<const std::string> folders,
                                                                    file_system& files, checkpoint_report& report) {
  struct candidate {
    std::int64_t step;
    std::size_t turn;  // in which it was found
    std::string path;
  };
  std::vector<candidate> found;
  for (const std::string& folder : folders) {
    std::vector<std::string> names;
    const int failed = uninterrupted([&] { return files.list(folder, names); });
    if (failed != 0 && failed != -ENOENT) {
      report.skipped.push_back({.path = folder, .reason = join({"the folder cannot be read: ", errno_text(-failed)})});
    }
    for (const std::string& name : names) {
      if (const auto step = step_of_name(name)) {
        found.push_back({.step = *step, .turn = found.size(), .path = path_in(folder, name)});
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const candidate& a, const candidate& b) {
    return a.step != b.step ? a.step > b.step : a.turn < b.turn;
  });
  std::vector<std::string> paths;
  for (candidate& each : found) {
    paths.push_back(std::move(each.path));
  }
  return paths;
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

}  // namespace detail

/// Finds the newest valid checkpoint of some folders, in one process. The checksums of all its bytes are compared.
/// @throws nothing for files that are not valid: the report names them
[[nodiscard]] inline checkpoint_report find_newest(std::span<const std::string> folders,
                                                   file_system& files = operating_system()) {
  checkpoint_report report;
  for (const std::string& path : detail::checkpoint_candidates(folders, files, report)) {
    try {
      const auto reader = detail::open_candidate(path, files);
      reader->compare_checksums();
      report.path = path;
      report.step = reader->step();
      return report;
    } catch (const format_error& failure) {
      report.skipped.push_back({.path = path, .reason = std::string{failure.message()}});
    }
  }
  return report;
}

/// The same for one folder.
[[nodiscard]] inline checkpoint_report find_newest(const std::string& folder, file_system& files = operating_system()) {
  return find_newest(std::span{&folder, 1}, files);
}

/// Bytes of a tensor that a rank needs.
struct checkpoint_fetch {
  std::string_view tensor;    ///< its name
  std::uint64_t begin = 0;    ///< offset of the first byte in the tensor
  std::span<std::byte> into;  ///< host memory for them
};

/// The newest valid checkpoint of some folders, read by all ranks together. Their number may differ from that of the
/// ranks that wrote it. Each rank compares the checksums of a share of the bytes, and reads what it needs. Where a rank
/// does not see the file, rank 0 reads and broadcasts it.
class shared_checkpoint {
 public:
  /// Looks for it. All ranks call it, and get the same report. The folders are those of rank 0.
  /// @param group  must outlive the object
  /// @throws communication_error if a rank fails or does not call it in time
  shared_checkpoint(comm::any_communicator& group, std::span<const std::string> folders,
                    file_system& files = operating_system(), error_location where = error_location::current())
      : group_{group} {
    at_call(where, [&] { search(folders, files); });
  }

  /// What was found and skipped.
  [[nodiscard]] const checkpoint_report& report() const noexcept { return report_; }
  /// True if there is a valid checkpoint.
  [[nodiscard]] bool found() const noexcept { return report_.found(); }
  /// Its metadata and tensors. Empty unless found().
  [[nodiscard]] const safetensors_header& header() const noexcept { return header_; }
  /// True if each rank reads the file itself.
  [[nodiscard]] bool all_ranks_read() const noexcept { return all_read_; }

  /// Reads ranges of tensors, others on each rank. All ranks call it, also those that need nothing.
  /// @throws configuration_error on all ranks if a tensor or a range of it does not exist
  /// @throws format_error on all ranks if a rank cannot read
  /// @throws communication_error if a rank fails or does not call it in time
  void fetch(std::span<const checkpoint_fetch> ranges, error_location where = error_location::current()) const {
    at_call(where, [&] {
      const std::string wrong = detail::first_of(detail::gather_texts(group_, what_is_wrong(ranges)));
      if (!wrong.empty()) {
        raise<configuration_error>("checkpoint fetch", {}, wrong);
      }
      std::string failed;
      if (all_read_) {
        failed = error_in([&] {
          for (const checkpoint_fetch& each : ranges) {
            file_->read(*header_.find(each.tensor), each.begin, each.into);
          }
        });
      } else {
        failed = broadcast(ranges);
      }
      const std::string error = detail::first_of(detail::gather_texts(group_, failed));
      if (!error.empty()) {
        raise<format_error>("checkpoint fetch", {}, error);
      }
    });
  }

 private:
  static constexpr std::uint64_t chunk_bytes = std::uint64_t{4} << 20U;

  template <class Step>
  static std::string error_in(const Step& step) {
    try {
      step();
      return {};
    } catch (const std::exception& failure) {
      return detail::reason_of(failure);
    }
  }

  void search(std::span<const std::string> folders, file_system& files) {
    const bool first = group_.rank() == 0;
    checkpoint_report listed;
    std::vector<std::string> paths;
    std::string failed;
    if (first) {
      failed = error_in([&] { paths = detail::checkpoint_candidates(folders, files, listed); });
    }
    std::string packed =
        failed.empty() ? "" : join({"s", "folders", std::string_view{"\0", 1}, failed, std::string_view{"\0", 1}});
    const auto pack = [&packed](std::string_view text) { packed.append(text).append(1, '\0'); };
    for (const skipped_checkpoint& each : listed.skipped) {
      pack(join({"s", each.path}));
      pack(each.reason);
    }
    for (const std::string& each : paths) {
      pack(join({"p", each}));
    }
    const std::string candidates = detail::text_of_first(group_, packed);
    std::string_view left = candidates;
    const auto next = [&left] {
      const std::size_t end = left.find('\0');
      const std::string_view text = left.substr(0, end);
      left.remove_prefix(end + 1);
      return text;
    };
    while (!left.empty()) {
      const std::string_view text = next();
      const std::string path{text.substr(1)};
      if (text[0] == 's') {
        report_.skipped.push_back({.path = path, .reason = std::string{next()}});
        continue;
      }
      if (const std::string reason = try_file(path, files); !reason.empty()) {
        report_.skipped.push_back({.path = path, .reason = reason});
        file_ = {};
        header_ = {};
        continue;
      }
      report_.path = path;
      const auto step = detail::step_of_name(std::string_view{path}.substr(path.rfind('/') + 1));
      report_.step = step.value_or(-1);
      return;
    }
  }

  /// Opens and verifies a file, on all ranks. Returns why it is not valid.
  std::string try_file(const std::string& path, file_system& files) {
    const bool first = group_.rank() == 0;
    const std::string failed = error_in([&] { file_ = detail::open_candidate(path, files); });
    // Ranks on other machines may see another file of this name, or none.
    const std::string identity =
        failed.empty() ? join({"K", file_->header().file_size(), " ", file_->header_checksum()}) : join({"E", failed});
    const std::vector<std::string> seen = detail::gather_texts(group_, identity);
    if (seen[0][0] == 'E') {
      return seen[0].substr(1);
    }
    all_read_ = true;
    for (const std::string& each : seen) {
      all_read_ = all_read_ && each == seen[0];
    }
    if (!all_read_) {
      std::string wrong = detail::text_of_first(group_, first ? error_in([&] { file_->compare_checksums(); }) : "");
      if (wrong.empty()) {
        take_header_of_first(path);
      }
      return wrong;
    }
    header_ = file_->header();
    return verify_together();
  }

  std::string verify_together() const {
    const std::uint64_t size = header_.buffer_size();
    const auto ranks = static_cast<std::uint64_t>(group_.size());
    const auto cut = [&](int rank) {
      const auto r = static_cast<std::uint64_t>(rank);
      return size / ranks * r + size % ranks * r / ranks;
    };
    std::string sums{"K"};
    const std::string failed = error_in([&] {
      for (const range_checksum& each : file_->checksums(cut(group_.rank()), cut(group_.rank() + 1))) {
        detail::append_number(sums, each.tensor);
        detail::append_number(sums, each.bytes);
        detail::append_number(sums, each.checksum);
      }
    });
    std::vector<range_checksum> all;
    for (const std::string& each : detail::gather_texts(group_, failed.empty() ? sums : join({"E", failed}))) {
      if (each[0] == 'E') {
        return each.substr(1);
      }
      for (std::string_view left = std::string_view{each}.substr(1); !left.empty();) {
        range_checksum sum;
        sum.tensor = detail::take_number(left);
        sum.bytes = detail::take_number(left);
        sum.checksum = static_cast<std::uint32_t>(detail::take_number(left));
        all.push_back(sum);
      }
    }
    return error_in([&] { file_->compare_checksums(all); });
  }

  void take_header_of_first(const std::string& path) {
    std::string head;
    if (group_.rank() == 0) {
      head = file_->head();
    } else {
      file_ = {};
    }
    head = detail::text_of_first(group_, head);
    std::string size;
    detail::append_number(size, group_.rank() == 0 ? file_->header().file_size() : 0);
    size = detail::text_of_first(group_, size);
    std::string_view bytes = size;
    header_ = read_safetensors_header(join({"read '", path, "'"}),
                                      {reinterpret_cast<const std::uint8_t*>(head.data()), head.size()},
                                      detail::take_number(bytes));
  }

  [[nodiscard]] std::string what_is_wrong(std::span<const checkpoint_fetch> ranges) const {
    if (!found()) {
      return "no checkpoint was found";
    }
    for (const checkpoint_fetch& each : ranges) {
      const safetensors_entry* const entry = header_.find(each.tensor);
      if (entry == nullptr) {
        return join({"'", report_.path, "' has no tensor '", each.tensor, "'"});
      }
      const std::uint64_t size = entry->end - entry->begin;
      if (each.begin > size || each.into.size() > size - each.begin) {
        return join({each.into.size(), " bytes from byte ", each.begin, " are not in the ", size, " bytes of '",
                     each.tensor, "'"});
      }
    }
    return {};
  }

  /// Rank 0 reads the buffer in chunks, and every rank takes what it needs. All ranks go through all chunks, also after
  /// a failure.
  std::string broadcast(std::span<const checkpoint_fetch> ranges) const {
    std::string failed;
    std::vector<std::byte> chunk;
    for (const safetensors_entry& tensor : header_.tensors) {
      const std::uint64_t size = tensor.end - tensor.begin;
      for (std::uint64_t at = 0; at < size; at += chunk.size()) {
        chunk.resize(static_cast<std::size_t>(std::min(size - at, chunk_bytes)));
        if (group_.rank() == 0 && failed.empty()) {
          failed = error_in([&] { file_->read(tensor, at, chunk); });
        }
        group_.broadcast(chunk, 0);
        for (const checkpoint_fetch& each : ranges) {
          if (each.tensor != tensor.name) {
            continue;
          }
          const std::uint64_t begin = std::max(at, each.begin);
          const std::uint64_t end = std::min<std::uint64_t>(at + chunk.size(), each.begin + each.into.size());
          if (begin < end) {
            std::copy_n(chunk.begin() + static_cast<std::ptrdiff_t>(begin - at), end - begin,
                        each.into.begin() + static_cast<std::ptrdiff_t>(begin - each.begin));
          }
        }
      }
    }
    return failed;
  }

  comm::any_communicator& group_;
  checkpoint_report report_;
  safetensors_header header_;
  std::unique_ptr<checkpoint_reader> file_;
  bool all_read_ = false;
};

}  // namespace gradus::io
