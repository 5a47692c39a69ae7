// SPDX-License-Identifier: BSL-1.0
//
// Checkpoints of a training: a callback that saves, and resuming.
#pragma once

#include <chrono>       // std::chrono::milliseconds, std::chrono::minutes, std::chrono::seconds
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint64_t
#include <cstdio>       // std::fprintf
#include <functional>   // std::function
#include <limits>       // std::numeric_limits
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::optional
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_convertible_v, std::remove_reference_t
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/checkpoint/detail/training/blocking_communicator.hpp"
#include "gradus/checkpoint/detail/training/signals.hpp"
#include "gradus/checkpoint/detail/training/state_file.hpp"
#include "gradus/checkpoint/search.hpp"
#include "gradus/checkpoint/shared_checkpoint.hpp"
#include "gradus/checkpoint/writer.hpp"
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/file_system.hpp"
#include "gradus/core/text.hpp"
#include "gradus/tensor/instances.hpp"
#include "gradus/train/callback_state.hpp"
#include "gradus/train/detail/state/access.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/interrupted.hpp"
#include "gradus/train/report.hpp"
#include "gradus/train/state.hpp"
#include "gradus/train/training_state.hpp"

namespace gradus::train {

/// Which epoch's checkpoint is kept as the best.
enum class best_epoch : unsigned char {
  none,     ///< no checkpoint is
  loss,     ///< the one of the smallest loss: of the evaluation of the epoch, or without one of the training
  accuracy  ///< the one of the largest accuracy, likewise
};

/// What a save of train::checkpoints cost this rank, and how it ended. Times are in seconds.
struct checkpoint_cost {
  double wait = 0;                       ///< the step waited for the save before
  double snapshot = 0;                   ///< then it waited for the copy of the state, or, between steps, for the save
  io::checkpoint_save_report save = {};  ///< how it ended, and how long it took behind the steps
};

/// Options of train::checkpoints. The same on all ranks, except for memory_folder: fit compares those that decide when
/// ranks save before its first step.
struct checkpoint_options {
  std::uint64_t every = 0;             ///< steps from one save to the next; 0: at the end of each epoch
  int keep = 3;                        ///< the newest checkpoints that are kept; at least 1
  best_epoch best = best_epoch::none;  ///< the best one is kept too; it is saved at the end of its epoch
  /// A second folder in memory, such as "/dev/shm/my_job", with saves in between. Give both to trainer.resume. Each
  /// node, which is the ranks that see one folder, holds a whole copy, so a training goes on as long as one of the
  /// nodes is left. The path may differ between nodes. Copies travel over the network behind the steps.
  std::string memory_folder = {};
  std::uint64_t memory_every = 0;  ///< steps from one save in memory to the next; it divides `every`
  /// SIGTERM and SIGUSR1 make all ranks save after the same step, and then throw train::interrupted. Ranks compare
  /// whether a signal has come after each step and each epoch; with servers that do not wait for all workers, where
  /// they save. From the first step on to the end of the training these signals do not reach the handlers of the
  /// program, which get them again at the end, with their flags and masks; also one that has come after the last epoch.
  bool signals = true;
  /// Called with the text of a save that has failed; null: rank 0 writes it to stderr. The training goes on.
  std::function<void(const std::string&)> on_error = {};
  /// Called on each rank for each save that has ended, by the thread that trains: after one of the next steps.
  std::function<void(const checkpoint_cost&)> on_save = {};
  /// How long a save waits for the disk of another rank. A rank that has stopped is noticed sooner: where the training
  /// waits for a save, its ranks meet every so often, within the time limit of their communicator; workers that end at
  /// different times ask each other instead.
  std::chrono::milliseconds time_limit{std::chrono::minutes{30}};
};

namespace detail {

/// The signal that has come on some rank; the same on all ranks. If ranks have got different ones, as from a scheduler
/// that sends USR1 to one and TERM to all, it is the first of end_signals::numbers. Called by all ranks.
/// @param own  what has come on this rank; 0 for nothing
[[nodiscard]] inline int agreed_signal(comm::link& group, int own) {
  if (group.size() == 1) {
    return own;
  }
  double ranks[end_signals::count] = {};  // that have got each of them
  for (int k = 0; k < end_signals::count; ++k) {
    ranks[k] = own == end_signals::numbers[k] ? 1.0 : 0.0;
  }
  group.sum(ranks);
  for (int k = 0; k < end_signals::count; ++k) {
    if (ranks[k] > 0) {
      return end_signals::numbers[k];
    }
  }
  return 0;
}

}  // namespace detail

/// A callback that saves the whole state of a training to files, from all ranks together and behind the steps.
///
/// @code
///   trainer.resume("checkpoints");
///   trainer.fit(loader, {.epochs = 90}, train::checkpoints{"checkpoints", {.every = 1000, .keep = 3}});
/// @endcode
///
/// A file, `step-000012000.safetensors`, has its name only when it is complete and durable. A save holds a step up for
/// the time of one copy of the state, and longer only if the save before has not ended. A save that fails is reported
/// after a later step; the training goes on and older files stay. Give it as the last callback: what callbacks behind
/// it do at the end of an epoch is not in the file. Any program that reads safetensors reads the weights.
///
/// When fit ends it waits for the save that is under way.
class checkpoints {
 public:
  /// @param folder  made if it is missing; with an empty name nothing is saved
  /// @throws configuration_error (in the first step) on all ranks when options make no sense or the folder cannot be
  ///         written
  explicit checkpoints(std::string folder, checkpoint_options options = {},
                       error_location where = error_location::current())
      : folder_{std::move(folder)}, options_{std::move(options)}, where_{where} {
    const bool memory = !options_.memory_folder.empty();
    if (options_.keep < 1 || memory != (options_.memory_every != 0) ||
        (memory && (options_.every == 0 || options_.every % options_.memory_every != 0))) {
      raise<configuration_error>("checkpoints",
                                 "keep of at least 1, and a memory_folder with a memory_every that divides every",
                                 {"keep = ", options_.keep, ", memory_folder = '", options_.memory_folder,
                                  "', memory_every = ", options_.memory_every, ", every = ", options_.every},
                                 {}, where);
    }
  }

  /// What decides whether a rank takes part in a save; fit compares it between ranks.
  [[nodiscard]] std::string agreement() const {
    if (folder_.empty()) {
      return {};
    }
    constexpr std::string_view best[] = {"none", "loss", "accuracy"};
    return gradus::join({"checkpoints{'", folder_, "', {.every = ", options_.every, ", .keep = ", options_.keep,
                         ", .best = ", best[static_cast<std::size_t>(options_.best)], ", .memory_every = ",
                         options_.memory_every, ", .signals = ", options_.signals ? "true" : "false", "}}"});
  }

  /// From here to on_finish, signals are noted.
  void on_start(const run_information& /*run*/) { listen(); }

  /// Saves when it is time, and after a signal.
  /// @throws interrupted after a signal
  template <class Trainer>
  void on_step(Trainer& trainer, const step_report& step) {
    if (folder_.empty()) {
      return;
    }
    open(trainer);
    report_saves();
    const std::uint64_t done = step.step + 1;
    const std::uint64_t every = options_.memory_every != 0 ? options_.memory_every : options_.every;
    const bool due = every != 0 && done % every == 0;
    // Independent ranks meet only where they save.
    const int number = options_.signals && (due || !group_->independent()) ? agreed_signal() : 0;
    if (number != 0) {
      save(trainer, false, true);
      end_by_signal(number, done);
    }
    if (due) {
      // By the step, not by the number of saves: that begins again when a training goes on from memory.
      save(trainer, false, options_.every != 0 && done % options_.every == 0);
    }
  }

  /// Saves at the end of an epoch, if there is no `every`, or if it is the best, and after a signal.
  /// @throws interrupted after a signal
  template <class Trainer>
  void on_epoch(Trainer& trainer, epoch_report& report) {
    if (folder_.empty()) {
      return;
    }
    open(trainer);
    report_saves();
    const bool better = take_metric(report);
    const bool due = options_.every == 0 || better;
    const int number = options_.signals && (due || !group_->independent()) ? agreed_signal() : 0;
    if (due || number != 0) {
      save(trainer, better, true);
    }
    if (number != 0) {
      end_by_signal(number, static_cast<std::uint64_t>(trainer.steps()));
    }
  }

  /// Waits for the save that is under way, and gives the signals back to the handlers that they had before. A signal
  /// that has come since the last on_epoch comes again, for these handlers. Called by all ranks, unless they train
  /// independently of each other.
  void on_finish() {
    if (writer_ != nullptr) {
      if (group_->independent()) {
        wait_for_independent_ranks();
      } else {
        wait_for_save();
      }
      report_saves();
    }
    signals_.reset();
  }

  /// Lets a trainer that is made with an optimizer_step write behind the steps, on a duplicate of this communicator. It
  /// has the ranks that train; else, and without this call, saves are between the steps. A trainer that makes its
  /// strategy gives its own communicator. Called by all ranks, before fit.
  /// @param communicator  what it refers to outlives this object
  void write_behind(comm::any_communicator communicator) {
    behind_ = std::make_unique<comm::any_communicator>(std::move(communicator));
  }

  /// True while a save is under way behind the steps. Ranks may see its end at different steps.
  [[nodiscard]] bool saving() const noexcept { return writer_ != nullptr && !writer_->finished(); }

  /// The best metric so far, for the checkpoint.
  void save_state(callback_state& state) const {
    if (best_) {
      const double numbers[] = {*best_};
      state.put("checkpoints", numbers);
    }
  }
  /// The best metric so far, from a checkpoint.
  void load_state(callback_state& state) {
    if (const auto numbers = state.take("checkpoints"); numbers.size() == 1) {
      best_ = numbers[0];
    }
  }

 private:
  void listen() {
    if (signals_ == nullptr && options_.signals && !folder_.empty()) {
      signals_ = std::make_unique<detail::end_signals>();
    }
  }

  /// Waits for the save of the last step. @throws interrupted
  [[noreturn]] void end_by_signal(int number, std::uint64_t steps) {
    wait_for_save();
    report_saves();
    detail::end_signals::heed();
    throw interrupted{number, steps, where_};
  }

  template <class Trainer>
  void open(Trainer& trainer) {
    listen();
    if (writer_ != nullptr) {
      return;
    }
    const auto training = detail::trainer_access::parts_of(trainer);
    group_ = std::make_unique<detail::blocking_communicator>(*training.group);
    io::checkpoint_writer_options options{.resumed_from = training.progress->resumed_from,
                                          .time_limit = options_.time_limit};
    int every = 1;
    if (!options_.memory_folder.empty()) {
      options.folders.push_back(
          {.path = options_.memory_folder, .keep_newest = 2, .keep_best = false, .on_each_node = true});
      every = std::numeric_limits<int>::max();  // only the saves that go everywhere
    }
    options.folders.push_back({.path = folder_, .keep_newest = options_.keep, .every = every});
    at_call(where_, [&, this] {
      comm::any_communicator* const own = detail::trainer_access::communicator_of(trainer);
      comm::any_communicator* const all = own != nullptr ? own : behind_.get();
      if (all != nullptr && all->size() == group_->size()) {
        world_ = &all->link();
        writer_ = std::make_unique<io::checkpoint_writer>(*all, options);
      } else {  // not all ranks of the communicator train
        writer_ = std::make_unique<io::checkpoint_writer>(*group_, options);
      }
    });
  }

  /// Whether saves go on behind the steps.
  [[nodiscard]] bool in_background() const noexcept { return world_ != nullptr; }

  template <class Trainer>
  void save(Trainer& trainer, bool best, bool everywhere) {
    const auto began = detail::clock::now();
    wait_for_save();  // it reads the state
    report_saves();
    cost_.wait = detail::seconds_since(began);
    const auto free = detail::clock::now();
    capture(trainer, state_, where_);
    content_.describe(state_, *group_, best);
    content_.content().step = static_cast<std::int64_t>(trainer.steps());
    if (in_background()) {
      writer_->start_in_place(content_.content(), everywhere);
    } else {
      const io::checkpoint_save_report saved = writer_->save(content_.content(), everywhere);
      if (!saved.error.empty()) {
        tell(gradus::join({"the checkpoint of step ", saved.step, " is not saved: ", saved.error}));
      }
    }
    cost_.snapshot = detail::seconds_since(free);
    reported_ = false;
  }

  /// Waits until the save that is under way has ended on all ranks. Meanwhile the threads that train meet: a rank that
  /// has stopped does not come, and the others throw after the time limit of the training. A rank whose disk is slow
  /// comes, and is waited for.
  void wait_for_save() {
    if (in_background() && group_->size() > 1) {
      double busy[] = {1};
      while (busy[0] > 0) {
        busy[0] = writer_->wait_for(between_meetings) ? 0.0 : 1.0;
        group_->sum(busy);
      }
    }
    writer_->wait();
  }

  /// As wait_for_save, for ranks that end at different times and so cannot meet: a rank that has stopped does not
  /// answer.
  void wait_for_independent_ranks() {
    constexpr std::chrono::seconds between_questions{1};
    constexpr int unanswered_questions = 3;  // of one rank, for a machine that is busy
    dynamic_array<int> silent;
    std::chrono::milliseconds pause = group_->time_limit();
    for (int asked = 0; in_background() && !writer_->wait_for(pause);) {
      silent = group_->silent_ranks("checkpoints, the end of a save");
      asked = silent.empty() ? 0 : asked + 1;
      if (asked == unanswered_questions && !writer_->finished()) {
        const std::string reason =
            gradus::join({"the save is not complete within ", comm::seconds_text(group_->time_limit()),
                          "; no answer from ", comm::ranks_text(silent)});
        world_->fail(reason);
        raise<communication_error>("checkpoints", {}, reason, "set_time_limit allows longer waits", where_);
      }
      pause = between_questions;
    }
    writer_->wait();
  }

  /// The signal that has come on some rank; the same on all ranks.
  [[nodiscard]] int agreed_signal() const { return detail::agreed_signal(*group_, detail::end_signals::last()); }

  /// Whether the epoch is the best so far.
  [[nodiscard]] bool take_metric(const epoch_report& report) {
    if (options_.best == best_epoch::none) {
      return false;
    }
    const bool by_loss = options_.best == best_epoch::loss;
    double metric = report.evaluation ? (by_loss ? report.evaluation->loss : report.evaluation->accuracy)
                                      : (by_loss ? report.loss : report.accuracy);
    if (group_->independent()) {  // the reports are each rank's own
      group_->broadcast(std::as_writable_bytes(std::span{&metric, 1}), 0);
    }
    if (best_ && !(by_loss ? metric < *best_ : metric > *best_)) {
      return false;
    }
    best_ = metric;
    return true;
  }

  void report_saves() {
    if (!reported_ && writer_->finished()) {
      reported_ = true;
      cost_.save = writer_->report();
      if (options_.on_save) {
        options_.on_save(cost_);
      }
    }
    if (const std::optional<std::string> failure = writer_->take_error()) {
      tell(*failure);
    }
  }
  void tell(const std::string& text) const {
    if (options_.on_error) {
      options_.on_error(text);
    } else if (group_->rank() == 0) {
      std::fprintf(stderr, "%s\n", text.c_str());
    }
  }

  static constexpr std::chrono::milliseconds between_meetings{100};

  std::string folder_;
  checkpoint_options options_;
  error_location where_;
  std::unique_ptr<detail::end_signals> signals_;  // while a training goes on
  std::unique_ptr<detail::blocking_communicator> group_;
  training_state state_;
  detail::state_content content_;
  std::optional<double> best_;
  checkpoint_cost cost_;                            // of the last save
  bool reported_ = true;                            // it is
  std::unique_ptr<comm::any_communicator> behind_;  // see write_behind
  comm::link* world_ = nullptr;                     // null: saves are between the steps
  std::unique_ptr<io::checkpoint_writer> writer_;   // ends before what it reads
};

namespace detail {

/// As resume_training.
template <class Trainer>
io::checkpoint_report resume_from(Trainer& trainer, const std::vector<std::string>& folders, error_location where) {
  return at_call(where, [&] {
    const auto training = trainer_access::parts_of(trainer);
    blocking_communicator group{*training.group};
    const io::shared_checkpoint newest{group, folders};
    if (newest.found()) {
      restore(trainer, state_of_checkpoint{newest}, {}, where);
      training.progress->resumed_from = io::checkpoint_family(newest.header());
    }
    if (!newest.report().owner.empty() && group.rank() == 0) {
      std::fprintf(stderr, "trainer.resume: warning: %s\n", gradus::printable(newest.report().owner).c_str());
    }
    return newest.report();
  });
}

}  // namespace detail

/// Makes a trainer go on from the newest valid checkpoint of a folder, or of a list of folders. Without one nothing
/// changes. Called by all ranks that train, before fit; trainer.resume(folder) calls it.
///
/// The number of ranks, the layout, the device and the strategy may differ from those that saved: train::restore says
/// what follows then.
/// If it belongs to another user, rank 0 says so on the standard error output.
/// @return  the file that was taken, and newer files that were skipped with the reasons
/// @throws configuration_error, shape_error, format_error as train::restore; nothing has changed then
template <class Trainer, class Folders>
io::checkpoint_report resume_training(Trainer& trainer, const Folders& folders,
                                      error_location where = error_location::current()) {
  std::vector<std::string> paths;
  if constexpr (std::is_convertible_v<const Folders&, std::string>) {
    paths.push_back(folders);
  } else {
    for (const auto& each : folders) {
      paths.push_back(each);
    }
  }
  return detail::resume_from(trainer, paths, where);
}

}  // namespace gradus::train

#ifdef GRADUS_HAS_INSTANCES
#define GRADUS_DETAIL_RESUME(instance, layout, element, name)                                        \
  instance(::gradus::io::checkpoint_report gradus::train::detail::resume_from(                       \
      name<::gradus::nn::network<element, layout, ::gradus::cpu>>&, const std::vector<std::string>&, \
      ::gradus::error_location))
GRADUS_EACH_LAYOUT(GRADUS_DETAIL_RESUME, ::gradus::train::trainer)
#endif
