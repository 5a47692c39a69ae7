// SPDX-License-Identifier: BSL-1.0
//
// The protocol by which all ranks together write a checkpoint. docs/design/checkpoints.md says why each step is there.
#pragma once

#include <algorithm>    // std::find, std::min
#include <cerrno>       // EEXIST, EINTR, EWOULDBLOCK
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int64_t, std::uint32_t, std::uint64_t
#include <exception>    // std::exception
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::exchange, std::move
#include <vector>       // std::erase, std::vector

#include "gradus/checkpoint/crc32c.hpp"
#include "gradus/checkpoint/detail/file/exchange.hpp"
#include "gradus/checkpoint/detail/file/folder.hpp"
#include "gradus/checkpoint/detail/file/header.hpp"
#include "gradus/checkpoint/detail/file/low_priority.hpp"
#include "gradus/checkpoint/detail/file/machine.hpp"
#include "gradus/checkpoint/detail/file/names.hpp"
#include "gradus/checkpoint/detail/file/plan.hpp"
#include "gradus/checkpoint/reader.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/host_name.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/stored_array.hpp"

namespace gradus::io::detail {

/// Where and how a checkpoint is written.
struct save_target {
  std::string folder;
  bool shared = true;              ///< all ranks see the folder
  std::vector<int> leaders = {0};  ///< otherwise each of these writes a whole file in its own folder
  int keep_newest = 1;
  bool keep_best = true;
  std::int64_t stale_after = 0;  ///< seconds
};

/// What this rank brings to a save.
struct save_plan {
  std::string error;  ///< what is wrong with the content of this rank; empty if nothing is
  std::int64_t step = 0;
  checkpoint_layout layout;
  std::vector<stored_array> arrays;  ///< with what this rank writes; their memory stays until the save is complete
  bool behind = false;               ///< the file is written at a low priority: threads that train go first
};

/// How a save ended; the same on all ranks.
struct save_outcome {
  std::string path;      ///< of the checkpoint; empty if no file of it is complete and durable
  std::string error;     ///< empty if all files of it are
  std::string warnings;  ///< what else failed
  std::uint64_t bytes = 0;
};

/// A save in one folder. All ranks make one and call run().
class checkpoint_save {
 public:
  checkpoint_save(comm::link& group, file_system& files, const save_target& target, const job_family& family,
                  const save_plan& plan)
      : group_{group}, files_{files}, target_{target}, family_{family}, plan_{plan} {}
  checkpoint_save(const checkpoint_save&) = delete;
  checkpoint_save& operator=(const checkpoint_save&) = delete;
  ~checkpoint_save() { remove_temporary(); }

  /// @throws communication_error if a rank fails or does not call it in time
  [[nodiscard]] save_outcome run() {
    save_outcome outcome;
    outcome.error = agree();
    if (!outcome.error.empty()) {
      return outcome;
    }
    final_ = path_in(target_.folder, name_of_step(plan_.step));
    temporary_ = path_in(target_.folder, temporary_name(plan_.step, family_.job));
    outcome.bytes = plan_.layout.header.file_size();
    const bool complete =
        on_leaders([&, this] { create(); }) && write_and_sync() && on_leaders([&, this] { publish(); });
    outcome.error = error_;
    if (!complete) {
      remove_temporary();
      return outcome;
    }
    if (!error_.empty()) {
      append_text(outcome.error,
                  {"; the copies of ", whole_.size(), " of ", target_.leaders.size(), " nodes are complete"});
    }
    std::string warnings;
    if (leads()) {
      file_ = {};  // unlocks
      try {
        warnings = delete_old(files_, target_.folder, family_, plan_.step, target_.keep_newest, target_.keep_best);
      } catch (const std::exception& failure) {
        warnings = reason_of(failure);
      }
    }
    for (const std::string& each : gather_texts(group_, warnings)) {
      if (!each.empty()) {
        append_text(outcome.warnings, {outcome.warnings.empty() ? "" : "; ", each});
      }
    }
    // The folders of nodes may have different paths.
    outcome.path = copies() ? gather_texts(group_, final_)[static_cast<std::size_t>(whole_[0])] : final_;
    return outcome;
  }

 private:
  [[nodiscard]] bool first() const noexcept { return group_.rank() == 0; }
  /// True if several nodes write a file each.
  [[nodiscard]] bool copies() const noexcept { return target_.leaders.size() > 1; }
  /// True if this rank writes a whole file, and nothing has failed there.
  [[nodiscard]] bool leads() const noexcept {
    return std::find(whole_.begin(), whole_.end(), group_.rank()) != whole_.end();
  }

  /// Runs a step on the leaders. One that fails leads no more; the files of the others are not harmed. Returns true on
  /// all ranks if one of them is left.
  template <class Step>
  bool on_leaders(const Step& step) {
    std::string failed;
    if (leads()) {
      failed = error_in(step);
      if (!failed.empty()) {
        remove_temporary();
        if (copies()) {
          failed = join({node_text(group_.rank(), host_name()), ": ", failed});
        }
      }
    }
    const std::vector<std::string> of_rank = gather_texts(group_, failed);
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      if (!of_rank[rank].empty()) {
        append_text(error_, {error_.empty() ? "" : "; ", of_rank[rank]});
        std::erase(whole_, static_cast<int>(rank));
      }
    }
    return !whole_.empty();
  }

  template <class Step>
  std::string error_in(const Step& step) {
    try {
      step();
      return {};
    } catch (const call_failure& failure) {
      return failure.text;
    } catch (const std::exception& failure) {
      return reason_of(failure);
    }
  }

  struct call_failure {
    std::string text;
  };
  void require(int result, message_part call, const std::string& path) {
    if (result < 0) {
      throw call_failure{call_error(files_, call, path, result, target_.folder)};
    }
  }

  /// Compares what the ranks describe. Returns what is wrong.
  std::string agree() {
    std::string own;
    if (!plan_.error.empty()) {
      own = join({"E", plan_.error});
    } else {
      own = "K";
      append_number(own, digest());
      own += pack_ranges(plan_.arrays);
    }
    const std::vector<std::string> of_rank = gather_texts(group_, own);
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      if (of_rank[rank][0] == 'E') {
        return join({"rank ", rank, ": ", std::string_view{of_rank[rank]}.substr(1)});
      }
    }
    const std::string_view of_first = of_rank[0];
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      std::string_view text = of_rank[rank];
      if (text.substr(0, 9) != of_first.substr(0, 9)) {
        return join({"rank ", rank,
                     " describes another checkpoint than rank 0: names, types, shapes, metadata, the "
                     "step and the order of the tensors are the same on all ranks"});
      }
      text.remove_prefix(9);
      ranges_of_rank_.push_back(ranges_of_rank(plan_.arrays, static_cast<int>(rank), writers(), text));
    }
    return coverage_error(plan_.arrays, in_order(ranges_of_rank_));
  }

  [[nodiscard]] int writers() const noexcept { return target_.shared ? group_.size() : 1; }

  [[nodiscard]] std::uint64_t digest() const {
    std::string text = safetensors_head(plan_.layout.header);
    for (std::size_t i = 0; i < plan_.arrays.size(); ++i) {
      append_text(text, {plan_.arrays[i].replicated ? "=" : "/", plan_.layout.entries[i], " "});
    }
    return gradus::detail::hash_text(text);
  }

  /// On a leader: makes the file, locks it, and removes what dead jobs left.
  void create() {
    created_ = true;  // also if the call says that it failed
    file_ = open_file{files_, temporary_, open_mode::create};
    if (file_.error() == -EEXIST) {  // an earlier save of this job could not remove it
      require(uninterrupted([&, this] { return files_.remove(temporary_); }), "unlink", temporary_);
      file_ = open_file{files_, temporary_, open_mode::create};
    }
    require(file_.error(), "create", temporary_);
    if (const int locked = uninterrupted([&, this] { return files_.lock(file_.number()); }); locked == -EWOULDBLOCK) {
      require(locked, "flock", temporary_);
    }  // some file systems have no locks: then age alone protects the file
    require(uninterrupted([&, this] { return files_.resize(file_.number(), plan_.layout.header.file_size()); }),
            {"ftruncate to ", plan_.layout.header.file_size(), " bytes"}, temporary_);
    file_status status;
    if (uninterrupted([&, this] { return files_.status(file_.number(), status); }) == 0) {
      remove_left_over(files_, target_.folder, temporary_, family_, status.modified, target_.stale_after);
    }
  }

  void write(std::span<const std::byte> bytes, std::uint64_t offset) {
    require(write_all(files_, file_.number(), bytes, offset), {"pwrite of ", bytes.size(), " bytes at ", offset, " of"},
            temporary_);
  }

  /// Calls body(elements) for pieces of a range, each of at most `bytes` in the file.
  template <class Body>
  void for_each_chunk(std::size_t array, const element_range& range, index_t bytes, const Body& body) const {
    const index_t most = bytes / plan_.arrays[array].element_bytes();
    for (index_t first = range.begin; first < range.end; first += most) {
      body(element_range{first, std::min(first + most, range.end)});
    }
  }
  /// The position of an element in the file.
  [[nodiscard]] std::uint64_t position(std::size_t array, index_t element) const {
    return plan_.layout.header.buffer_begin + plan_.layout.entry(array).begin +
           static_cast<std::uint64_t>(element * plan_.arrays[array].element_bytes());
  }

  /// Writes this rank's range of an array; each chunk is ordered and summed while it is in the cache.
  std::uint32_t write_array(std::size_t array) {
    std::uint32_t sum = 0;
    for_each_chunk(array, plan_.arrays[array].held, index_t{1} << 20U, [&, this](const element_range& chunk) {
      const std::span<const std::byte> bytes = plan_.arrays[array].view(chunk, buffer_);
      sum = crc32c(bytes, sum);
      write(bytes, position(array, chunk.begin));
    });
    return sum;
  }

  /// The bytes of all ranks become durable, in the file or in those of the leaders. Returns true on all ranks if there
  /// is such a file.
  bool write_and_sync() {
    std::string sums;  // of this rank's ranges
    std::string failed;
    if (target_.shared) {
      failed = error_in([&, this] {
        if (!first()) {
          file_ = open_file{files_, temporary_, open_mode::write};
          require(file_.error(), "open", temporary_);
        }
        const auto write_own = [&, this] {
          for (const written_range& each : ranges_of_rank_[static_cast<std::size_t>(group_.rank())]) {
            append_number(sums, write_array(each.array));
          }
          sync();
        };
        if (plan_.behind) {
          run_at_low_priority(write_own);
        } else {
          write_own();
        }
      });
    } else {
      sums = collect();
    }
    if (target_.shared && !first()) {
      const int closed = file_.close();  // a network file system may report a failed write now
      if (closed < 0 && closed != -EINTR && failed.empty()) {
        failed = call_error(files_, "close", temporary_, closed, target_.folder);
      }
    }
    const std::vector<std::string> of_rank =
        gather_texts(group_, failed.empty() ? join({"K", sums}) : join({"E", failed}));
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      if (of_rank[rank][0] == 'E') {
        error_ = join({"rank ", rank, ": ", std::string_view{of_rank[rank]}.substr(1)});
        return false;
      }
    }
    std::string changed;
    std::size_t next = 0;  // among those that a leader has received
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      std::string_view left = std::string_view{of_rank[rank]}.substr(1);
      for (written_range& each : ranges_of_rank_[rank]) {
        each.checksum = static_cast<std::uint32_t>(take_number(left));
        if (leads() && !target_.shared && received_[next++] != each.checksum && changed.empty()) {
          changed = join({"bytes of '", plan_.arrays[each.array].name, "' have changed on the way from rank ", rank});
        }
      }
    }
    sums_ = array_checksums(plan_.arrays, in_order(ranges_of_rank_));
    return target_.shared || on_leaders([&, this] {
             if (!failed_write_.empty() || !changed.empty()) {
               throw call_failure{failed_write_.empty() ? changed : failed_write_};
             }
             sync();
           });
  }

  void sync() {
    require(uninterrupted([&, this] { return files_.sync(file_.number()); }), "fsync", temporary_);
  }

  /// The leaders write the ranges of all ranks. Each range is broadcast by its rank, in chunks: communicators that are
  /// type-erased have no messages. All ranks go through all ranges, also after a failure. Returns the checksums of this
  /// rank's ranges.
  std::string collect() {
    std::string sums;
    for (std::size_t rank = 0; rank < ranges_of_rank_.size(); ++rank) {
      const bool mine = static_cast<int>(rank) == group_.rank();
      const bool sent = copies() || static_cast<int>(rank) != target_.leaders[0];
      for (const written_range& each : ranges_of_rank_[rank]) {
        const stored_array& array = plan_.arrays[each.array];
        std::uint32_t sum = 0;
        const auto pass_on = [&, this](const element_range& chunk) {
          std::span<const std::byte> bytes;
          if (sent) {
            buffer_.resize(static_cast<std::size_t>(chunk.size() * array.element_bytes()));
            if (mine) {
              array.read(chunk.begin, buffer_);
            }
            group_.broadcast(buffer_, static_cast<int>(rank));
            bytes = buffer_;
          } else {
            bytes = array.view(chunk, buffer_);
          }
          if (mine || leads()) {
            sum = crc32c(bytes, sum);
          }
          if (leads() && failed_write_.empty()) {
            failed_write_ = error_in([&, this] { write(bytes, position(each.array, chunk.begin)); });
          }
        };
        if (sent || mine) {
          for_each_chunk(each.array, each.elements, index_t{sent ? 4 : 1} << 20U, pass_on);
        }
        if (mine) {
          append_number(sums, sum);
        }
        if (leads()) {
          received_.push_back(sum);
        }
      }
    }
    return sums;
  }

  /// On a leader, after all bytes are durable: the header makes the file complete, the name makes it a checkpoint.
  void publish() {
    const std::string head = head_of_checkpoint(plan_.layout, sums_);
    write(std::as_bytes(std::span{head}), 0);
    sync();
    int renamed = uninterrupted([&, this] { return files_.rename(temporary_, final_, false); });
    if (renamed == -EEXIST) {
      require_own(final_);
      renamed = uninterrupted([&, this] { return files_.rename(temporary_, final_, true); });
    }
    require(renamed, {"rename '", temporary_, "' to"}, final_);
    created_ = false;
    if (const int synced = uninterrupted([&, this] { return files_.sync_folder(target_.folder); }); synced != 0) {
      throw call_failure{join({call_error(files_, "fsync of the folder", target_.folder, synced, target_.folder), "; '",
                               final_, "' is complete, but may be gone after a crash of the system"})};
    }
  }

  /// Refuses to replace a checkpoint of a job that this one was not resumed from.
  void require_own(const std::string& path) {
    constexpr std::string_view hint =
        "each job needs a folder of its own, or resumes from what is there; move the file away to save this step";
    std::string whose;
    file_status status;
    try {
      const checkpoint_reader there{path, files_};
      if (uninterrupted([&, this] { return files_.status(path, status); }) == 0 && status.regular &&
          family_.has(there.job())) {
        return;
      }
      whose = join({"is of another job, ", there.job()});
    } catch (const format_error& failure) {
      whose = join({"is there and is of an unknown job: ", reason_of(failure)});
    }
    throw call_failure{join({"'", path, "' ", whose, ". Hint: ", hint})};
  }

  void remove_temporary() noexcept {
    if (std::exchange(created_, false)) {
      try {
        (void)uninterrupted([&, this] { return files_.remove(temporary_); });  // while it is locked
      } catch (const std::exception&) {                                        // the next save removes it
      }
    }
    file_ = {};
  }

  comm::link& group_;
  file_system& files_;
  const save_target& target_;
  const job_family& family_;
  const save_plan& plan_;
  std::string final_;
  std::string temporary_;
  open_file file_;
  bool created_ = false;                      // on a leader: the temporary file is there
  std::vector<int> whole_ = target_.leaders;  // those for whom nothing has failed
  std::string error_;                         // of all leaders
  std::string failed_write_;                  // on a leader: the first write that has failed
  std::vector<std::uint32_t> received_;       // on a leader: checksums of the ranges of all ranks
  std::vector<std::vector<written_range>> ranges_of_rank_;
  std::vector<std::uint32_t> sums_;  // of the arrays, in the order of the content
  std::vector<std::byte> buffer_;    // of a chunk
};

}  // namespace gradus::io::detail
