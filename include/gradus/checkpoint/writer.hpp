// SPDX-License-Identifier: BSL-1.0
//
// Writes checkpoints from all ranks, behind the steps that follow.
#pragma once

#include <atomic>  // std::atomic
#include <cerrno>  // EINTR, EIO
#include <chrono>  // std::chrono::duration, std::chrono::minutes, std::chrono::seconds, std::chrono::steady_clock
#include <condition_variable>  // std::condition_variable
#include <cstddef>             // std::byte, std::size_t
#include <cstdint>             // std::int64_t, std::uint64_t
#include <exception>           // std::exception
#include <memory>              // std::unique_ptr
#include <mutex>               // std::mutex, std::scoped_lock, std::unique_lock
#include <optional>            // std::optional
#include <random>              // std::random_device
#include <span>                // std::as_bytes, std::as_writable_bytes, std::span
#include <string>              // std::string
#include <string_view>         // std::string_view
#include <thread>              // std::thread
#include <utility>             // std::exchange, std::move
#include <vector>              // std::vector

#include "gradus/checkpoint/content.hpp"
#include "gradus/checkpoint/detail/file/save.hpp"
#include "gradus/comm/agreement.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/streamed_copy.hpp"
#include "gradus/core/text.hpp"
#include "gradus/core/thread.hpp"
#include "gradus/io/stored_array.hpp"

namespace gradus::io {

/// A folder for checkpoints, and its rule.
struct checkpoint_folder {
  std::string path = {};  ///< made if it is missing
  int keep_newest = 3;    ///< how many of the newest checkpoints of this job are kept; at least 1
  bool keep_best = true;  ///< the newest checkpoint that was saved as the best is kept too
  int every = 1;          ///< each n-th save goes to this folder
  /// For folders in the memory of machines: each node, which is the ranks that see one folder, gets a whole file of
  /// its own, by broadcasts in pieces of 4 MiB. A node that cannot write its file does not harm the others. The path
  /// may differ between nodes.
  bool on_each_node = false;
};

/// How checkpoints are written. The same on all ranks, except for the paths of folders with on_each_node.
struct checkpoint_writer_options {
  /// Usually one folder on a file system that survives the job. A second one in /dev/shm, with `every = 1` and
  /// on_each_node, gets the saves in between. Without on_each_node, a folder that ranks do not share is that of rank 0.
  std::vector<checkpoint_folder> folders = {};
  /// What checkpoint_family gives for the checkpoint that this job was resumed from: its files are this job's too, to
  /// replace and to delete. Empty for a job that begins.
  std::string resumed_from = {};
  /// How long a rank waits for another one during a save, which may have a slow disk. The constructor waits as long as
  /// the communicator does. wait_for lets a program notice sooner that a rank has stopped.
  std::chrono::milliseconds time_limit{std::chrono::minutes{30}};
  /// Where a file system has no locks, a file that a dead job has left is removed when it has not changed for so long.
  /// With locks, it is removed when its lock is free: after a minute, or at once if this job was resumed from that one.
  std::chrono::seconds stale_after{3600};
};

/// How a save ended; the same on all ranks.
struct checkpoint_save_report {
  std::int64_t step = 0;                ///< of the save
  std::vector<std::string> paths = {};  ///< the checkpoints that are complete and durable, on some node at least
  std::string error = {};               ///< what failed, with the path and the free space; empty if nothing did
  std::string warnings = {};            ///< old checkpoints that could not be deleted
  std::uint64_t bytes = 0;              ///< of each file
  double seconds = 0;                   ///< from the copy of the content, or the call of save, until it ended
};

/// Writes checkpoints from all ranks, in the background. A checkpoint is one file, `step-000012000.safetensors`, which
/// other programs read as any file of safetensors. It has its name only when it is complete and durable.
///
/// @code
///   io::checkpoint_writer writer{world, {.folders = {{.path = "checkpoints"}}}};
///   // in the loop, every so many steps:
///   writer.start(content);  // copies this rank's share; a thread writes
///   if (const auto error = writer.take_error()) { log(*error); }  // of an earlier save
/// @endcode
///
/// A save that fails leaves older checkpoints as they are, and no file behind. All ranks learn of it. Several jobs may
/// use one folder: none deletes or replaces what another has written.
class checkpoint_writer {
 public:
  /// Makes the folders and finds out whether all ranks see what one writes there. All ranks call it. The communicator
  /// is duplicated.
  /// @throws configuration_error on all ranks if the options differ or a folder cannot be written
  template <comm::communicator Communicator>
  checkpoint_writer(Communicator& world, checkpoint_writer_options options, file_system& files = operating_system(),
                    error_location where = error_location::current())
      : checkpoint_writer{std::make_unique<comm::owned_link<Communicator>>(world.duplicate()), nullptr,
                          std::move(options), files, where} {}
  /// The same on the ranks of a link, which outlives the writer and is used for nothing else while a save is under way.
  checkpoint_writer(comm::link& group, checkpoint_writer_options options, file_system& files = operating_system(),
                    error_location where = error_location::current())
      : checkpoint_writer{nullptr, &group, std::move(options), files, where} {}

  checkpoint_writer(const checkpoint_writer&) = delete;
  checkpoint_writer& operator=(const checkpoint_writer&) = delete;

  ~checkpoint_writer() { wait(); }

  /// The identity of this job: 16 hexadecimal digits.
  [[nodiscard]] const std::string& job() const noexcept { return family_.job; }

  /// Begins a save and returns when this rank's share is copied; a thread writes it. All ranks call it at the same
  /// step. It waits for the save before. Over a communicator that only threads of the program may use
  /// (mpi::one_thread) it returns when the save has ended.
  /// @param everywhere  also to folders whose turn it is not, e.g. at the end of a job
  void start(const checkpoint_content& content, bool everywhere = false) {
    wait();
    if (prepare(content, everywhere)) {
      keep_copies();
      begin();
    }
  }

  /// As start, but copies nothing: the memory of the arrays is read until the save has ended (wait).
  void start_in_place(const checkpoint_content& content, bool everywhere = false) {
    wait();
    if (prepare(content, everywhere)) {
      begin();
    }
  }
  /// Saves, and returns when the checkpoint is durable on all ranks, or has failed. All ranks call it.
  /// @throws communication_error if a rank fails or does not call it in time
  checkpoint_save_report save(const checkpoint_content& content, bool everywhere = false) {
    wait();
    began_ = std::chrono::steady_clock::now();
    report_ = {.step = content.step};
    if (prepare(content, everywhere)) {
      write();
    }
    take_time();
    return report_;
  }

  /// True if no save is under way. Ranks may see it at different steps.
  [[nodiscard]] bool finished() const noexcept { return done_.load(std::memory_order_acquire); }

  /// Waits for the save that is under way.
  void wait() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  /// The same for at most this time; true if no save is under way any more.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock{mutex_};
    return ended_.wait_for(lock, time, [this] { return finished(); });
  }

  /// How the last save ended. @pre finished()
  [[nodiscard]] const checkpoint_save_report& report() const noexcept { return report_; }

  /// The error of a save in the background that has failed since the last call; nothing if none has, or while a save is
  /// under way. Training goes on, and older checkpoints stay.
  [[nodiscard]] std::optional<std::string> take_error() {
    if (!finished() || error_.empty()) {
      return {};
    }
    return std::exchange(error_, {});
  }

 private:
  /// @param own    null: the ranks are those of `group`
  checkpoint_writer(std::unique_ptr<comm::link> own, comm::link* group, checkpoint_writer_options options,
                    file_system& files, error_location where)
      : own_{std::move(own)}, group_{own_ == nullptr ? *group : *own_}, files_{files}, options_{std::move(options)} {
    at_call(where, [&, this] {
      check_options();
      family_.job = detail::text_of_first(group_, new_id());
      take_family(options_.resumed_from);
      for (const checkpoint_folder& each : options_.folders) {
        std::vector<int> leaders{0};
        shared_.push_back(each.on_each_node ? probe_nodes(each.path, leaders) : probe(each.path));
        leaders_.push_back(std::move(leaders));
      }
    });
    if (own_ != nullptr) {
      own_->set_time_limit(options_.time_limit);
    }
  }

  void begin() {
    plans_[0].behind = plans_[1].behind = true;
    began_ = std::chrono::steady_clock::now();
    done_.store(false, std::memory_order_relaxed);
    if (group_.properties().one_thread) {
      work();
      return;
    }
    try {
      thread_ = start_thread(
          "checkpoint", [](void* self) { static_cast<checkpoint_writer*>(self)->work(); }, this);
    } catch (const device_error&) {  // the other ranks have begun
      work();
    }
  }

  struct copy_of_arrays {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size = 0;
  };

  void check_options() const {
    constexpr std::string_view what = "checkpoint_writer";
    std::vector<comm::property> properties;
    if (options_.folders.empty()) {
      raise<configuration_error>(what, "at least one folder", "none");
    }
    for (const checkpoint_folder& each : options_.folders) {
      if (each.path.empty() || each.keep_newest < 1 || each.every < 1) {
        raise<configuration_error>(what, "a path, keep_newest of at least 1 and every of at least 1",
                                   {"'", each.path, "', ", each.keep_newest, " and ", each.every});
      }
      properties.push_back(
          {.name = "folder of checkpoints",
           .value = join({each.on_each_node ? "on each node" : each.path, ", keep_newest = ", each.keep_newest,
                          ", keep_best = ", each.keep_best ? "true" : "false", ", every = ", each.every})});
    }
    properties.push_back({.name = "resumed_from", .value = options_.resumed_from});
    comm::require_agreement(group_, what, properties);
  }

  void take_family(std::string_view jobs) {
    while (!jobs.empty()) {
      const std::size_t end = jobs.find(' ');
      if (const std::string_view job = jobs.substr(0, end);
          detail::is_id(job) && family_.ancestors.size() < most_ancestors) {
        family_.ancestors.emplace_back(job);
      }
      jobs.remove_prefix(end == std::string_view::npos ? jobs.size() : end + 1);
    }
  }

  static std::string new_id() {
    std::random_device random;
    return detail::id_text(std::uint64_t{random()} << 32U | random());
  }

  /// Makes the folder. Returns true if all ranks see what rank 0 writes there.
  bool probe(const std::string& folder) {
    const std::string content = join({family_.job, " ", new_id()});
    const std::string path = path_in(folder, detail::temporary_name(0, family_.job));
    const std::string failed = group_.rank() == 0 ? make_probe(folder, path, content) : std::string{};
    const std::string there =
        detail::text_of_first(group_, failed.empty() ? join({"K", content}) : join({"E", failed}));
    if (there[0] == 'E') {
      raise<configuration_error>("checkpoint_writer", {"a folder that can be written: '", folder, "'"},
                                 std::string_view{there}.substr(1));
    }
    bool shared = true;
    for (const std::string& each :
         detail::gather_texts(group_, sees(path, std::string_view{there}.substr(1)) ? "y" : "n")) {
      shared = shared && each == "y";
    }
    if (group_.rank() == 0) {
      (void)uninterrupted([&, this] { return files_.remove(path); });
    }
    return shared;
  }

  /// Makes the folder on all ranks, and writes a file of each rank. Returns true if all ranks see that of rank 0.
  /// @param leaders  becomes the first rank of each node: of the ranks that see one folder
  bool probe_nodes(const std::string& folder, std::vector<int>& leaders) {
    const auto path_of = [&, this](int rank) { return path_in(folder, detail::temporary_name(rank, family_.job)); };
    const std::string own = path_of(group_.rank());
    const std::string content = join({family_.job, " ", new_id()});
    const std::string failed = make_probe(folder, own, content);
    const std::vector<std::string> there =
        detail::gather_texts(group_, failed.empty() ? join({"K", content}) : join({"E", failed}));
    std::string error;
    int first = group_.rank();
    for (int rank = 0; rank < group_.size(); ++rank) {
      const std::string_view of_rank = there[static_cast<std::size_t>(rank)];
      if (of_rank[0] == 'E' && error.empty()) {
        error = join({"rank ", rank, ": ", of_rank.substr(1)});
      }
      if (rank < first && sees(path_of(rank), of_rank.substr(1))) {
        first = rank;
      }
    }
    const std::vector<std::string> first_of_rank =
        detail::gather_texts(group_, join({first}));  // and no rank reads any more
    (void)uninterrupted([&, this] { return files_.remove(own); });
    if (!error.empty()) {
      raise<configuration_error>("checkpoint_writer", {"a folder that can be written on each node: '", folder, "'"},
                                 error);
    }
    leaders.clear();
    bool shared = true;
    for (int rank = 0; rank < group_.size(); ++rank) {
      const std::string& of_rank = first_of_rank[static_cast<std::size_t>(rank)];
      if (of_rank == join({rank})) {
        leaders.push_back(rank);
      }
      shared = shared && of_rank == "0";
    }
    return shared;
  }

  /// Makes the folder and a file in it. Returns what fails.
  std::string make_probe(const std::string& folder, const std::string& path, const std::string& content) {
    if (const int made = uninterrupted([&, this] { return files_.make_folder(folder); }); made != 0) {
      return detail::call_error(files_, "mkdir", folder, made, folder);
    }
    open_file file{files_, path, open_mode::create};
    const int written =
        file.error() != 0 ? file.error() : write_all(files_, file.number(), std::as_bytes(std::span{content}), 0);
    if (const int closed = file.close(); written != 0 || (closed != 0 && closed != -EINTR)) {
      std::string failed = detail::call_error(files_, "create", path, written == 0 ? -EIO : written, folder);
      (void)uninterrupted([&, this] { return files_.remove(path); });
      return failed;
    }
    return {};
  }
  /// True if a file is there with this content.
  [[nodiscard]] bool sees(const std::string& path, std::string_view content) {
    std::string seen(content.size(), ' ');
    const open_file file{files_, path, open_mode::read};
    return file.error() == 0 && read_all(files_, file.number(), std::as_writable_bytes(std::span{seen}), 0) == 0 &&
           seen == content;
  }

  /// Chooses the folders and makes the plans. False if there is nothing to do.
  bool prepare(const checkpoint_content& content, bool everywhere) {
    ++saves_;
    due_.clear();
    for (std::size_t i = 0; i < options_.folders.size(); ++i) {
      if (everywhere || saves_ % options_.folders[i].every == 0) {
        due_.push_back(i);
      }
    }
    for (const bool shared : {false, true}) {
      detail::save_plan& plan = plans_[shared ? 1 : 0];
      plan = {};
      plan.step = content.step;
      if (!uses(shared)) {
        continue;
      }
      try {
        std::string ancestors;
        for (const std::string& each : family_.ancestors) {
          append_text(ancestors, {ancestors.empty() ? "" : " ", each});
        }
        plan.layout = detail::lay_out_checkpoint(content, family_.job, ancestors);
        plan.arrays = detail::own_arrays(content, group_.rank(), shared ? group_.size() : 1);
      } catch (const std::exception& failure) {
        plan.error = detail::reason_of(failure);
      }
    }
    return !due_.empty();
  }

  [[nodiscard]] bool uses(bool shared) const {
    for (const std::size_t i : due_) {
      if (shared_[i] == shared) {
        return true;
      }
    }
    return false;
  }

  /// What this rank writes, from the caller's memory to this object's, which it keeps for the next save.
  void keep_copies() {
    for (int which = 0; which < 2; ++which) {
      detail::save_plan& plan = plans_[which];
      copy_of_arrays& copy = copies_[which];
      std::size_t total = 0;
      for (const stored_array& each : plan.arrays) {
        total += each.memory.size();
      }
      try {
        if (copy.size < total) {
          copy = {};
          copy.memory = std::unique_ptr<std::byte[]>{new std::byte[total]};
          copy.size = total;
        }
      } catch (const std::exception&) {
        plan.error = join({"no memory for a copy of ", total, " bytes"});
        continue;
      }
      std::byte* to = copy.memory.get();
      for (stored_array& each : plan.arrays) {
        if (!each.memory.empty()) {
          streamed_copy(to, each.memory.data(), each.memory.size());
          each.memory = {to, each.memory.size()};
          to += each.memory.size();
        }
      }
    }
  }

  /// The thread of a save.
  void work() noexcept {
    report_ = {.step = plans_[0].step};
    try {
      write();
    } catch (const communication_error& failure) {
      report_.error = detail::reason_of(failure);
    } catch (const std::exception& failure) {  // no memory: the others must not wait
      report_.error = detail::reason_of(failure);
      group_.fail(report_.error);
    }
    take_time();
    if (!report_.error.empty()) {
      error_ = join({"the checkpoint of step ", report_.step, " is not saved: ", report_.error});
    }
    {
      const std::scoped_lock lock{mutex_};
      done_.store(true, std::memory_order_release);
    }
    ended_.notify_all();
  }

  void take_time() noexcept {
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

  void write() {
    for (const std::size_t i : due_) {
      const checkpoint_folder& folder = options_.folders[i];
      const detail::save_target target{.folder = folder.path,
                                       .shared = shared_[i],
                                       .leaders = leaders_[i],
                                       .keep_newest = folder.keep_newest,
                                       .keep_best = folder.keep_best,
                                       .stale_after = options_.stale_after.count()};
      const detail::save_outcome outcome =
          detail::checkpoint_save{group_, files_, target, family_, plans_[shared_[i] ? 1 : 0]}.run();
      if (!outcome.path.empty()) {
        report_.paths.push_back(outcome.path);
        report_.bytes = outcome.bytes;
      }
      if (!outcome.error.empty()) {
        append_text(report_.error, {report_.error.empty() ? "" : "; ", outcome.error});
      }
      if (!outcome.warnings.empty()) {
        append_text(report_.warnings, {report_.warnings.empty() ? "" : "; ", outcome.warnings});
      }
    }
  }

  static constexpr std::size_t most_ancestors = 256;  // the header stays small in a job that is resumed daily

  std::unique_ptr<comm::link> own_;
  comm::link& group_;
  file_system& files_;
  checkpoint_writer_options options_;
  detail::job_family family_;
  std::vector<bool> shared_;               // of each folder
  std::vector<std::vector<int>> leaders_;  // of each folder: the ranks that write whole files if it is not shared
  std::int64_t saves_ = 0;
  std::vector<std::size_t> due_;  // folders of this save
  detail::save_plan plans_[2];    // leaders write for all; all ranks write
  copy_of_arrays copies_[2];
  checkpoint_save_report report_;
  std::string error_;
  std::chrono::steady_clock::time_point began_;
  std::atomic<bool> done_ = true;
  std::mutex mutex_;  // held while done_ becomes true
  std::condition_variable ended_;
  std::thread thread_;
};

}  // namespace gradus::io
