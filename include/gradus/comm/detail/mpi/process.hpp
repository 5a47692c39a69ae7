// SPDX-License-Identifier: BSL-1.0
//
// State that all MPI communicators of a process share: the first failure, and its notices.
#pragma once

#include <mpi.h>

#include <algorithm>        // std::count, std::max, std::min
#include <atomic>           // std::atomic
#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::size_t
#include <cstdint>          // std::int64_t, std::uint64_t
#include <cstdio>           // std::fflush, std::fprintf
#include <cstdlib>          // std::abort
#include <memory>           // std::make_unique, std::shared_ptr, std::weak_ptr
#include <mutex>            // std::mutex, std::scoped_lock, std::unique_lock
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <thread>           // std::this_thread, std::thread
#include <utility>          // std::forward, std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/mpi/departures.hpp"
#include "gradus/comm/detail/mpi/membership.hpp"
#include "gradus/comm/detail/mpi/notices.hpp"
#include "gradus/comm/detail/request/poll.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// What a rank is doing: a call, or a phase of its end.
class activity {
 public:
  activity(const call_description& what) noexcept : call_{&what} {}
  activity(std::string_view text) noexcept : text_{text} {}

  [[nodiscard]] std::string describe() const { return call_ == nullptr ? std::string{text_} : call_->describe(); }

 private:
  const call_description* call_ = nullptr;
  std::string_view text_;
};

/// The failure of a job as known to one of its processes. `mpi_notices` carries notices about it, `mpi_departures`
/// those of ranks that leave.
///
/// A rank that waits polls for notices about once a millisecond. After the first failure no operation of the process
/// calls MPI any more, except for notices and the end of the job, and buffers that MPI may still use are not written.
class mpi_process {
 public:
  /// Called by all ranks of `base`, which is the world of this process. See mpi_notices.
  /// @param limit  how long it waits for the other ranks
  mpi_process(MPI_Comm base, bool guest, std::chrono::milliseconds limit)
      : limit_{limit}, notices_{base, guest, limit} {
    spins_ = static_cast<unsigned>(ranks_on_node()) <= std::thread::hardware_concurrency() ? 2000 : 20;
    answers_ = dynamic_array<std::string>(static_cast<std::size_t>(size()));
    ended_ = dynamic_array<int>(static_cast<std::size_t>(size()));
  }

  mpi_process(const mpi_process&) = delete;
  mpi_process& operator=(const mpi_process&) = delete;

  [[nodiscard]] int rank() const noexcept { return notices_.rank(); }
  [[nodiscard]] int size() const noexcept { return notices_.size(); }
  /// Number of polls that follow each other at once before a waiting rank yields its processor.
  [[nodiscard]] int spins() const noexcept { return spins_; }
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool over() const noexcept { return over_.load(std::memory_order_acquire); }

  /// Which threads may call MPI.
  [[nodiscard]] mpi_threads threads() const noexcept { return notices_.threads(); }
  /// The notices of this process.
  [[nodiscard]] mpi_notices& notices() noexcept { return notices_; }
  /// Calls MPI, from one thread at a time if the MPI library requires that.
  template <class Function>
  auto enter(Function&& function) {
    return notices_.enter(std::forward<Function>(function));
  }

  /// This rank has failed: notifies all others, once.
  void fail(std::string_view reason) noexcept { fail(reason, rank()); }
  /// A rank of the world has failed, as this rank knows: notifies all others, once.
  void fail(std::string_view reason, int failed_rank) noexcept {
    if (!record(failed_rank, reason)) {
      return;
    }
    if (over()) {
      return;
    }
    try {
      notices_.post_to_others(mpi_notice_kind::failed, reason, failed_rank);
      notices_.flush(std::chrono::milliseconds{1000});
    } catch (...) {
      // Without memory or MPI, the others learn of the failure when the job is aborted.
    }
  }

  /// An exception has left a communication unfinished that MPI cannot withdraw. The reason follows by fail(). If the
  /// program continues instead, this is the failure.
  void leave_unfinished(const call_description& what) noexcept {
    const std::scoped_lock lock{mutex_};
    try {
      unfinished_ = gradus::join({"it left ", what.describe(), " unfinished because of an exception"});
    } catch (...) {
      unfinished_ = "?";
    }
    has_unfinished_.store(true, std::memory_order_release);
  }

  /// Calls mpi_departures::number_channel.
  template <class Call>
  [[nodiscard]] std::uint64_t number_channel(MPI_Comm ranks, const Call& call) {
    return departures_.number_channel(ranks, call);
  }

  /// Calls mpi_departures::join.
  [[nodiscard]] std::shared_ptr<mpi_membership> join(std::uint64_t channel, int rank, int size) {
    return departures_.join(channel, rank, size);
  }

  /// Ends this rank's operations on the channel: notifies the channel's other ranks, once.
  void leave(mpi_membership& mine, bool unwinding) noexcept { departures_.leave(mine, unwinding, over() || failed()); }

  /// Fails if a rank has left and the operation cannot complete without it.
  /// @param number  the number of the operation, see mpi_membership::begin
  void look_for_departures(const mpi_membership& mine, const call_description& what, std::uint64_t number,
                           bool ranks_of_world) {
    if (mine.some_left() && !failed()) {
      look_who_left(mine, what, number, ranks_of_world);
    }
  }

  /// The end of a program without a failure: waits until all ranks have arrived here and no notice is under way, as MPI
  /// requires before a communicator is freed. Ranks that still work are waited for as long as they answer. Ends early
  /// if a rank fails. When nothing has come from a rank for the time limit, this is the failure, which is written to
  /// the standard error output: a destructor cannot throw it.
  void meet_at_end() noexcept {
    struct counting {
      dynamic_array<std::int64_t> sent;
      std::int64_t expected = 0;
      MPI_Request request = MPI_REQUEST_NULL;
    };
    try {
      leave_all();
      auto counts = std::make_unique<counting>();
      const bool arrived = poll_at_end(
          *counts, [&, this] { return MPI_Ibarrier(notices_.communicator(), &counts->request); }, [] { return true; },
          true);
      stop_answering();  // and no rank asks: what is counted is all that comes
      if (arrived) {
        counts->sent = notices_.sent();
        poll_at_end(
            *counts,
            [&, this] {
              return MPI_Ireduce_scatter_block(counts->sent.data(), &counts->expected, 1, MPI_INT64_T, MPI_SUM,
                                               notices_.communicator(), &counts->request);
            },
            [&, this] { return notices_.taken() >= counts->expected && notices_.sweep(); }, false);
      }
      if (failed()) {
        static_cast<void>(counts.release());  // MPI may still write to it
      }
    } catch (...) {
      // Without memory, rely on MPI_Finalize, which waits for the others too.
    }
  }

  /// The program has called MPI_Finalize, and MPI still works: the end of a program whose environment lives. From now
  /// on objects of the library do nothing, and operations throw.
  void finalize() noexcept {
    if (over()) {
      return;
    }
    look_for_notices(std::string_view{"MPI_Finalize"});
    if (!failed()) {
      meet_at_end();
    }
    if (failed()) {
      abandon();
    } else {
      end();
    }
  }
  /// Ends a process that has failed: MPI may still use the communicator.
  void abandon() noexcept { over_.store(true, std::memory_order_release); }

  /// Turns an unfinished communication into a failure.
  void look_at_unfinished() noexcept {
    if (has_unfinished_.load(std::memory_order_acquire) && !failed()) {
      std::unique_lock lock{mutex_};
      const std::string reason = std::move(unfinished_);
      has_unfinished_.store(false, std::memory_order_release);
      lock.unlock();
      fail(reason);
    }
  }

  /// Polls for notices if the last poll was at least a millisecond ago.
  void glance_at_notices(const activity& waiting_for) noexcept {
    if (notices_.due()) {
      look_for_notices(waiting_for);
    }
  }

  /// Polls for notices. `waiting_for` is the activity of this rank; it is sent to ranks that ask.
  void look_for_notices(const activity& waiting_for) noexcept {
    if (over()) {
      return;
    }
    try {
      notices_.poll([&, this](const mpi_notice& incoming) { take(incoming, waiting_for); });
    } catch (...) {
      // Out of memory: poll again later.
    }
  }

  [[noreturn]] void raise(const activity& what, bool ranks_of_world, const std::source_location& where) {
    std::unique_lock lock{mutex_};
    const std::string reason =
        gradus::join({ranks_of_world ? "rank " : "world rank ", failed_rank_, " failed: ", failure_});
    lock.unlock();
    gradus::raise<communication_error>(what.describe(), {}, reason, hint_of_failed, where);
  }

  /// Handles the end of a time limit: asks the others what they are doing, notifies them of the failure, and throws.
  [[noreturn]] void raise_time_out(const activity& what, std::chrono::milliseconds limit,
                                   const std::source_location& where,
                                   std::string_view hint = "set_time_limit allows longer waits") {
    std::string reason = gradus::join({"not complete within ", seconds_text(limit)});
    try {
      reason.append(ask_others(what));
    } catch (...) {
      // The plain reason is enough.
    }
    if (failed()) {
      raise(what, true, where);  // another rank reported a failure first
    }
    fail(gradus::join({what.describe(), ": ", reason}));
    gradus::raise<communication_error>(what.describe(), {}, reason, hint, where);
  }

  /// Asks the other ranks and returns their answers as text: "; rank 2 is at barrier; no answer from ranks 1, 3".
  std::string ask_others(const activity& waiting_for) {
    const dynamic_array<int> silent = silent_ranks(waiting_for);
    const std::scoped_lock lock{mutex_};
    std::string text;
    for (int other = 0; other < size(); ++other) {
      if (const std::string& answer = answers_[static_cast<std::size_t>(other)]; !answer.empty()) {
        append_text(text, {"; rank ", other, " is at ", answer});
      }
    }
    if (!silent.empty()) {
      append_text(text, {"; no answer from ", ranks_text(silent)});
    }
    return text;
  }

  /// Asks the other ranks, and returns those that do not answer within half a second: ranks of the world. Ends early if
  /// a rank fails.
  [[nodiscard]] dynamic_array<int> silent_ranks(const activity& waiting_for) {
    constexpr std::chrono::milliseconds patience{500};
    const std::scoped_lock one_at_a_time{asking_};
    {
      const std::scoped_lock lock{mutex_};
      for (std::string& each : answers_) {
        each.clear();
      }
    }
    notices_.post_to_others(mpi_notice_kind::question);
    dynamic_array<int> silent;
    const auto all_answered = [&, this] {
      look_for_notices(waiting_for);
      const std::scoped_lock lock{mutex_};
      silent.clear();
      for (int other = 0; other < size(); ++other) {
        if (other != rank() && answers_[static_cast<std::size_t>(other)].empty()) {
          silent.push_back(other);
        }
      }
      return silent.empty();
    };
    poll_for(
        patience, [&, this] { return all_answered() || failed(); }, spins_);
    return silent;
  }

  /// The ranks of a communicator as ranks of the world.
  [[nodiscard]] dynamic_array<int> ranks_in_world(MPI_Comm communicator, int size) {
    return departures_.ranks_in_world(communicator, size);
  }

  /// Ends a failed job: gives the other ranks time to print their messages, then ends all processes.
  [[noreturn]] void abort_job(std::chrono::milliseconds grace, int exit_code) noexcept {
    try {
      notices_.post_to_others(mpi_notice_kind::ended);
      const clock::time_point deadline = clock::now() + grace;
      while (clock::now() < deadline && !others_ended()) {
        look_for_notices(std::string_view{"its end after a failure"});
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      notices_.flush(std::min(grace, std::chrono::milliseconds{100}));
    } catch (...) {
      // Then end at once.
    }
    std::fflush(nullptr);
    // mpiexec and its proxies forward the output, and drop what they have not yet read when the job is aborted.
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::abort();
  }

  /// Leaves all channels of this process.
  void leave_all() {
    for (const std::weak_ptr<mpi_membership>& each : departures_.memberships()) {
      if (const std::shared_ptr<mpi_membership> mine = each.lock(); mine != nullptr) {
        leave(*mine, false);
      }
    }
  }
  /// From here on this process answers no questions.
  void stop_answering() noexcept { at_end_.store(true, std::memory_order_release); }

  /// Called before MPI is finalized, or when its owner has finalized it.
  void end() noexcept {
    if (!over_.exchange(true)) {
      notices_.free();
    }
  }

 private:
  /// The ranks whose processors have the name of this one's. At 1 to all that fail to say it.
  [[nodiscard]] int ranks_on_node() {
    char text[MPI_MAX_PROCESSOR_NAME + 1] = {};
    int length = 0;
    MPI_Get_processor_name(text, &length);
    const std::uint64_t own = gradus::detail::hash_text({text, static_cast<std::size_t>(length)});
    dynamic_array<std::uint64_t> names(static_cast<std::size_t>(size()));
    names[static_cast<std::size_t>(rank())] = own;
    names = notices_.call_at_start<dynamic_array<std::uint64_t>>(
        "MPI_Iallgather",
        [this](dynamic_array<std::uint64_t>& all, MPI_Request* request) {
          return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, notices_.communicator(),
                                request);
        },
        std::move(names));
    return static_cast<int>(std::count(names.begin(), names.end(), own));
  }

  static constexpr std::string_view end_of_program = "the end of its program";

  /// Begins a collective at the end of the program, and polls until it is complete and settled() is true. False if the
  /// job has failed.
  /// @param asks  whether ranks are asked whether they live
  template <class Counting, class Begin, class Settled>
  bool poll_at_end(Counting& counts, const Begin& begin, const Settled& settled, bool asks) {
    const clock::time_point began = clock::now();
    {
      const std::scoped_lock lock{mutex_};
      heard_ = dynamic_array<clock::time_point>(static_cast<std::size_t>(size()), began);
    }
    clock::time_point asked = began;
    const auto between_questions = std::max<clock::duration>(limit_ / 8, std::chrono::milliseconds{100});
    backoff rest{spins_};
    int done = 0;
    for (int code = enter(begin); code == MPI_SUCCESS && (done == 0 || !settled()); rest.pause()) {
      look_for_notices(end_of_program);
      const clock::time_point now = clock::now();
      if (!failed() && asks && now >= asked + between_questions) {
        notices_.post_to_others(mpi_notice_kind::question);
        asked = now;
      }
      if (!failed() && now >= last_heard_of_all() + limit_) {
        report_time_out();
      }
      if (failed()) {
        return false;
      }
      if (done == 0) {
        code = enter([&] { return MPI_Test(&counts.request, &done, MPI_STATUS_IGNORE); });
      }
    }
    return !failed();
  }

  /// When the rank was heard of from which nothing has come for longest.
  [[nodiscard]] clock::time_point last_heard_of_all() {
    const std::scoped_lock lock{mutex_};
    clock::time_point last = clock::now();
    for (int other = 0; other < size(); ++other) {
      last = other == rank() ? last : std::min(last, heard_[static_cast<std::size_t>(other)]);
    }
    return last;
  }

  /// Fails, with a message on the standard error output, unless another rank does so first.
  void report_time_out() {
    const std::string_view what = end_of_program;
    const std::string reason = gradus::join({"not complete within ", seconds_text(limit_), ask_others(what)});
    if (!failed()) {
      std::fprintf(stderr, "gradus: rank %d is at %s: %s\n", rank(), std::string{what}.c_str(), reason.c_str());
      fail(gradus::join({what, ": ", reason}));
    }
  }

  bool record(int rank, std::string_view reason) noexcept {
    const std::scoped_lock lock{mutex_};
    if (failed()) {
      return false;
    }
    failed_rank_ = rank;
    try {
      failure_ = reason;
    } catch (...) {
      failure_.clear();
    }
    failed_.store(true, std::memory_order_release);
    return true;
  }

  void look_who_left(const mpi_membership& mine, const call_description& what, std::uint64_t number,
                     bool ranks_of_world) {
    const std::string who = gradus::join({ranks_of_world ? "rank " : "world rank ", rank()});
    if (const auto absence = mine.absence_from(what, number, who)) {
      fail(absence->reason, absence->world_rank);
    }
  }

  GRADUS_COLD void take(const mpi_notice& incoming, const activity& waiting_for) {
    const std::string_view text{incoming.text, static_cast<std::size_t>(incoming.length)};
    const auto sender = static_cast<std::size_t>(incoming.sender);
    switch (incoming.kind) {
      case mpi_notice_kind::failed:
        record(incoming.failed_rank, text);
        break;
      case mpi_notice_kind::question:
        if (at_end_.load(std::memory_order_acquire)) {
          break;
        }
        notices_.post(incoming.sender, mpi_notice_kind::answer, waiting_for.describe());
        break;
      case mpi_notice_kind::left:
        departures_.hear(incoming);
        break;
      case mpi_notice_kind::answer: {
        const std::scoped_lock lock{mutex_};
        answers_[sender] = text;
        if (!heard_.empty()) {
          heard_[sender] = clock::now();
        }
        break;
      }
      case mpi_notice_kind::ended: {
        const std::scoped_lock lock{mutex_};
        ended_[sender] = 1;
        break;
      }
    }
  }

  bool others_ended() {
    const std::scoped_lock lock{mutex_};
    for (int other = 0; other < size(); ++other) {
      if (other != rank() && ended_[static_cast<std::size_t>(other)] == 0) {
        return false;
      }
    }
    return true;
  }

  std::chrono::milliseconds limit_;
  mpi_notices notices_;
  mpi_departures departures_{notices_};
  int spins_ = 0;
  std::mutex asking_;
  std::mutex mutex_;  // protects the members below
  std::string failure_;
  int failed_rank_ = -1;
  std::string unfinished_;
  dynamic_array<std::string> answers_;
  dynamic_array<int> ended_;                // 1 for each rank that has ended
  dynamic_array<clock::time_point> heard_;  // at the end of the program: when each rank has answered
  std::atomic<bool> at_end_{false};         // all ranks are at the end of their programs
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_unfinished_{false};
  std::atomic<bool> over_{false};
};

}  // namespace gradus::comm::detail
