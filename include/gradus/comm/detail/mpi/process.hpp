// SPDX-License-Identifier: BSL-1.0
//
// State that all MPI communicators of a process share: the first failure, ranks that leave, and notices about both.
#pragma once

#include <mpi.h>

#include <algorithm>        // std::min
#include <atomic>           // std::atomic
#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // offsetof, std::size_t
#include <cstdint>          // std::int32_t, std::int64_t, std::uint64_t
#include <cstdio>           // std::fflush
#include <cstdlib>          // std::abort
#include <cstring>          // std::memcpy
#include <memory>           // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr, std::weak_ptr
#include <mutex>            // std::mutex, std::recursive_mutex, std::scoped_lock, std::unique_lock, std::try_to_lock
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <thread>           // std::this_thread
#include <utility>          // std::exchange, std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/mpi/membership.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

/// MPI's message for an error code.
[[nodiscard]] GRADUS_COLD inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
    return gradus::join({"error code ", code});
  }
  return {text, static_cast<std::size_t>(length)};
}

/// @throws communication_error with MPI's message unless the code is success
GRADUS_COLD inline void check_mpi(int code, std::string_view operation, std::string_view function,
                                  std::source_location where = std::source_location::current()) {
  if (code != MPI_SUCCESS) {
    gradus::raise<communication_error>(operation, {}, {function, ": ", mpi_error_text(code)}, {}, where);
  }
}

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

/// The failure of a job as known to one of its processes, and a separate MPI communicator for short notices about it.
///
/// A rank that waits polls for notices about once a millisecond. After the first failure no operation of the process
/// calls MPI any more, except for notices and the end of the job, and buffers that MPI may still use are not written.
///
/// A rank that leaves a channel sends to every other rank of it the number of collectives in which it took part, and of
/// the messages exchanged with that rank. A rank that waits for more than that fails and names the rank that left.
class mpi_process {
 public:
  GRADUS_COLD mpi_process() {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &notices_), "mpi_environment", "MPI_Comm_dup");
    MPI_Comm_set_errhandler(notices_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(notices_, &rank_);
    MPI_Comm_size(notices_, &size_);
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    one_thread_at_a_time_ = level != MPI_THREAD_MULTIPLE;
    MPI_Comm node = MPI_COMM_NULL;
    int ranks_on_node = 1;
    if (MPI_Comm_split_type(notices_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node) == MPI_SUCCESS) {
      MPI_Comm_size(node, &ranks_on_node);
      MPI_Comm_free(&node);
    }
    spins_ = static_cast<unsigned>(ranks_on_node) <= std::thread::hardware_concurrency() ? 2000 : 20;
    answers_ = dynamic_array<std::string>(static_cast<std::size_t>(size_));
    ended_ = dynamic_array<int>(static_cast<std::size_t>(size_));
    notices_sent_ = dynamic_array<std::int64_t>(static_cast<std::size_t>(size_));
  }

  mpi_process(const mpi_process&) = delete;
  mpi_process& operator=(const mpi_process&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Number of polls that follow each other at once before a waiting rank yields its processor.
  [[nodiscard]] int spins() const noexcept { return spins_; }
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool over() const noexcept { return over_.load(std::memory_order_acquire); }

  /// Calls MPI, from one thread at a time if the MPI library requires that.
  template <class Function>
  auto enter(Function&& function) {
    const turn mine{*this};
    return function();
  }

  /// This rank has failed: notifies all others, once.
  GRADUS_COLD void fail(std::string_view reason) noexcept { fail(reason, rank_); }
  /// A rank of the world has failed, as this rank knows: notifies all others, once.
  GRADUS_COLD void fail(std::string_view reason, int failed_rank) noexcept {
    if (!record(failed_rank, reason)) {
      return;
    }
    if (over()) {
      return;
    }
    try {
      for (int other = 0; other < size_; ++other) {
        if (other != rank_) {
          post(other, kind::failed, reason, failed_rank);
        }
      }
      flush(std::chrono::milliseconds{1000});
    } catch (...) {
      // Without memory or MPI, the others learn of the failure when the job is aborted.
    }
  }

  /// An exception has left a communication unfinished that MPI cannot withdraw. The reason follows by fail(). If the
  /// program continues instead, this is the failure.
  GRADUS_COLD void leave_unfinished(const call_description& what) noexcept {
    const std::scoped_lock lock{mutex_};
    try {
      unfinished_ = gradus::join({"it left ", what.describe(), " unfinished because of an exception"});
    } catch (...) {
      unfinished_ = "?";
    }
    has_unfinished_.store(true, std::memory_order_release);
  }

  /// Returns a number for a channel of `ranks` that is about to be created. Called by all its ranks.
  [[nodiscard]] GRADUS_COLD std::uint64_t number_channel(MPI_Comm ranks) {
    if (ranks == MPI_COMM_NULL) {
      return 0;
    }
    int rank = 0;
    MPI_Comm_rank(ranks, &rank);
    std::uint64_t number = 0;
    if (rank == 0) {
      number = static_cast<std::uint64_t>(rank_ + 1) << 40U | ++channels_;
    }
    check_mpi(enter([&] { return MPI_Bcast(&number, 1, MPI_UINT64_T, 0, ranks); }), "comm::mpi", "MPI_Bcast");
    return number;
  }

  /// Adds this rank to a channel. Called before any rank can have left the channel. Notices of departures from channels
  /// without this rank are old and are dropped.
  [[nodiscard]] GRADUS_COLD std::shared_ptr<mpi_membership> join(std::uint64_t channel, int rank, int size) {
    auto joined = std::make_shared<mpi_membership>(channel, rank, size);
    const std::scoped_lock lock{mutex_};
    std::size_t i = 0;
    while (i < memberships_.size() && !memberships_[i].expired()) {
      ++i;
    }
    if (i == memberships_.size()) {
      memberships_.push_back(joined);
    } else {
      memberships_[i] = joined;
    }
    return joined;
  }

  /// Ends this rank's operations on the channel: notifies the channel's other ranks, once.
  GRADUS_COLD void leave(mpi_membership& mine, bool unwinding) noexcept {
    const MPI_Comm communicator = std::exchange(mine.communicator, MPI_COMM_NULL);
    if (communicator == MPI_COMM_NULL || mine.size() == 1 || over() || failed()) {
      return;
    }
    try {
      const dynamic_array<int> world_ranks = ranks_in_world(communicator, mine.size());
      for (int peer = 0; peer < mine.size(); ++peer) {
        const int other = world_ranks[static_cast<std::size_t>(peer)];
        if (peer != mine.rank() && other != MPI_UNDEFINED) {
          const departure_notice last = mine.departure(peer, unwinding);
          post(other, kind::left, {reinterpret_cast<const char*>(&last), sizeof(last)});
        }
      }
    } catch (...) {
      // Without memory the others wait until their time limit.
    }
  }

  /// Fails if a rank has left and the operation cannot complete without it.
  /// @param number  the number of the operation, see mpi_membership::begin
  void look_for_departures(const mpi_membership& mine, const call_description& what, std::uint64_t number,
                           bool ranks_of_world) {
    if (mine.some_left() && !failed()) {
      look_who_left(mine, what, number, ranks_of_world);
    }
  }

  /// The end of a program without a failure: waits until all ranks have arrived here and no notice is under way, as MPI
  /// requires before a communicator is freed. Ends early if a rank fails.
  GRADUS_COLD void meet_at_end() noexcept {
    struct counting {
      dynamic_array<std::int64_t> sent;
      std::int64_t expected = 0;
      MPI_Request request = MPI_REQUEST_NULL;
    };
    try {
      dynamic_array<std::weak_ptr<mpi_membership>> open;
      {
        const std::scoped_lock lock{mutex_};
        open = memberships_;
      }
      for (const std::weak_ptr<mpi_membership>& each : open) {
        if (const std::shared_ptr<mpi_membership> mine = each.lock(); mine != nullptr) {
          leave(*mine, false);
        }
      }
      auto notices = std::make_unique<counting>();
      {
        const std::scoped_lock lock{mutex_};
        notices->sent = notices_sent_;
      }
      int counted = 0;
      int code = enter([&] {
        return MPI_Ireduce_scatter_block(notices->sent.data(), &notices->expected, 1, MPI_INT64_T, MPI_SUM, notices_,
                                         &notices->request);
      });
      backoff rest{spins_};
      while (code == MPI_SUCCESS && (counted == 0 || notices_taken_.load() < notices->expected || !sweep())) {
        look_for_notices(std::string_view{"the end of its program"});
        if (failed()) {
          static_cast<void>(notices.release());  // MPI may still write to it
          return;
        }
        if (counted == 0) {
          code = enter([&] { return MPI_Test(&notices->request, &counted, MPI_STATUS_IGNORE); });
        }
        rest.pause();
      }
    } catch (...) {
      // Without memory, rely on MPI_Finalize, which waits for the others too.
    }
  }

  /// Turns an unfinished communication into a failure.
  GRADUS_COLD void look_at_unfinished() noexcept {
    if (has_unfinished_.load(std::memory_order_acquire) && !failed()) {
      std::unique_lock lock{mutex_};
      const std::string reason = std::move(unfinished_);
      has_unfinished_.store(false, std::memory_order_release);
      lock.unlock();
      fail(reason);
    }
  }

  /// Polls for notices if the last poll was at least a millisecond ago.
  void glance_at_notices(const call_description& waiting_for) noexcept {
    const clock::rep now = clock::now().time_since_epoch().count();
    clock::rep last = last_look_.load(std::memory_order_relaxed);
    if (now - last >= clock::duration{std::chrono::milliseconds{1}}.count() &&
        last_look_.compare_exchange_strong(last, now, std::memory_order_relaxed)) {
      look_for_notices(waiting_for);
    }
  }

  /// Polls for notices. `waiting_for` is the activity of this rank; it is sent to ranks that ask.
  GRADUS_COLD void look_for_notices(const activity& waiting_for) noexcept {
    if (over()) {
      return;
    }
    try {
      const std::unique_lock lock{looking_, std::try_to_lock};
      if (!lock.owns_lock()) {
        return;
      }
      // The first probe may only make MPI progress and report nothing yet.
      for (int misses = 0; misses < 2;) {
        int present = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        notice incoming{};
        const bool received = enter([&] {
          if (MPI_Improbe(MPI_ANY_SOURCE, notice_tag, notices_, &present, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
              present == 0) {
            return false;
          }
          return MPI_Mrecv(&incoming, static_cast<int>(sizeof(incoming)), MPI_BYTE, &message, MPI_STATUS_IGNORE) ==
                 MPI_SUCCESS;
        });
        if (received) {
          notices_taken_.fetch_add(1);
          take(incoming, waiting_for);
        } else {
          ++misses;
        }
      }
      sweep();
    } catch (...) {
      // Out of memory: poll again later.
    }
  }

  [[noreturn]] GRADUS_COLD void raise(const call_description& what, bool ranks_of_world,
                                      const std::source_location& where) {
    std::unique_lock lock{mutex_};
    const std::string reason =
        gradus::join({ranks_of_world ? "rank " : "world rank ", failed_rank_, " failed: ", failure_});
    lock.unlock();
    gradus::raise<communication_error>(what.describe(), {}, reason, {}, where);
  }

  /// Handles the end of a time limit: asks the others what they are doing, notifies them of the failure, and throws.
  [[noreturn]] GRADUS_COLD void raise_time_out(const call_description& what, std::chrono::milliseconds limit,
                                               const std::source_location& where) {
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
    gradus::raise<communication_error>(what.describe(), {}, reason, "set_time_limit allows longer waits", where);
  }

  /// Ends a failed job: gives the other ranks time to print their messages, then ends all processes.
  [[noreturn]] GRADUS_COLD void abort_job(std::chrono::milliseconds grace, int exit_code) noexcept {
    try {
      for (int other = 0; other < size_; ++other) {
        if (other != rank_) {
          post(other, kind::ended, {});
        }
      }
      const clock::time_point deadline = clock::now() + grace;
      while (clock::now() < deadline && !others_ended()) {
        look_for_notices(std::string_view{"its end after a failure"});
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      flush(std::min(grace, std::chrono::milliseconds{100}));
    } catch (...) {
      // Then end at once.
    }
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::abort();
  }

  /// Called before MPI is finalized, or when its owner has finalized it.
  void end() noexcept {
    if (!over_.exchange(true) && notices_ != MPI_COMM_NULL) {
      MPI_Comm_free(&notices_);
    }
  }

 private:
  friend class mpi_shared_channel;

  enum class kind : std::int32_t { failed, question, answer, ended, left };

  struct notice {
    kind what;
    std::int32_t sender;
    std::int32_t failed_rank;
    std::int32_t length;
    char text[500];  // only the first `length` bytes are sent
  };
  static_assert(sizeof(departure_notice) <= sizeof(notice::text));

  struct letter {
    notice content{};
    MPI_Request sending = MPI_REQUEST_NULL;
    std::unique_ptr<letter> next;
  };

  static constexpr int notice_tag = 1;

  /// While it exists, no other thread calls MPI, if the MPI library requires that.
  class turn {
   public:
    GRADUS_NEVER_INLINE explicit turn(mpi_process& process) : process_{process} {
      if (process.one_thread_at_a_time_) {
        process.entering_.lock();
      }
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    GRADUS_NEVER_INLINE ~turn() {
      if (process_.one_thread_at_a_time_) {
        process_.entering_.unlock();
      }
    }

   private:
    mpi_process& process_;
  };

  GRADUS_COLD bool record(int rank, std::string_view reason) noexcept {
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

  GRADUS_COLD void look_who_left(const mpi_membership& mine, const call_description& what, std::uint64_t number,
                                 bool ranks_of_world) {
    const std::string who = gradus::join({ranks_of_world ? "rank " : "world rank ", rank_});
    if (const auto absence = mine.absence_from(what, number, who)) {
      fail(absence->reason, absence->world_rank);
    }
  }

  /// The ranks of a communicator as ranks of the world.
  [[nodiscard]] GRADUS_COLD dynamic_array<int> ranks_in_world(MPI_Comm communicator, int size) {
    dynamic_array<int> own(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      own[static_cast<std::size_t>(rank)] = rank;
    }
    dynamic_array<int> of_world(own.size(), MPI_UNDEFINED);
    enter([&] {
      MPI_Group from = MPI_GROUP_NULL;
      MPI_Group to = MPI_GROUP_NULL;
      MPI_Comm_group(communicator, &from);
      MPI_Comm_group(notices_, &to);
      MPI_Group_translate_ranks(from, size, own.data(), to, of_world.data());
      MPI_Group_free(&to);
      return MPI_Group_free(&from);
    });
    return of_world;
  }

  GRADUS_COLD void post(int to, kind what, std::string_view text, int failed_rank = -1) {
    const std::scoped_lock lock{mutex_};
    auto made = std::make_unique<letter>();
    made->next = std::move(outbox_);
    outbox_ = std::move(made);
    letter& fresh = *outbox_;
    fresh.content.what = what;
    fresh.content.sender = rank_;
    fresh.content.failed_rank = failed_rank;
    const std::size_t length = std::min(text.size(), sizeof(fresh.content.text));
    fresh.content.length = static_cast<std::int32_t>(length);
    text.copy(fresh.content.text, length);
    ++notices_sent_[static_cast<std::size_t>(to)];
    enter([&] {
      return MPI_Isend(&fresh.content, static_cast<int>(offsetof(notice, text) + length), MPI_BYTE, to, notice_tag,
                       notices_, &fresh.sending);
    });
  }

  /// Removes notices that are sent. True if none is left.
  GRADUS_COLD bool sweep() {
    const std::scoped_lock lock{mutex_};
    for (std::unique_ptr<letter>* place = &outbox_; *place != nullptr;) {
      int sent = 0;
      enter([&] { return MPI_Test(&(*place)->sending, &sent, MPI_STATUS_IGNORE); });
      if (sent != 0) {
        *place = std::unique_ptr<letter>{std::move((*place)->next)};
      } else {
        place = &(*place)->next;
      }
    }
    return outbox_ == nullptr;
  }

  GRADUS_COLD void flush(std::chrono::milliseconds limit) {
    const clock::time_point deadline = clock::now() + limit;
    while (!sweep() && clock::now() < deadline) {
      std::this_thread::yield();
    }
  }

  GRADUS_COLD void take(const notice& incoming, const activity& waiting_for) {
    const std::string_view text{incoming.text, static_cast<std::size_t>(incoming.length)};
    const auto sender = static_cast<std::size_t>(incoming.sender);
    switch (incoming.what) {
      case kind::failed:
        record(incoming.failed_rank, text);
        break;
      case kind::question:
        post(incoming.sender, kind::answer, waiting_for.describe());
        break;
      case kind::left: {
        departure_notice last{};
        std::memcpy(&last, incoming.text, sizeof(last));
        const std::scoped_lock lock{mutex_};
        for (const std::weak_ptr<mpi_membership>& each : memberships_) {
          if (const auto mine = each.lock(); mine != nullptr && mine->channel() == last.channel) {
            mine->hear(last, incoming.sender);
          }
        }
        break;
      }
      case kind::answer: {
        const std::scoped_lock lock{mutex_};
        answers_[sender] = text;
        break;
      }
      case kind::ended: {
        const std::scoped_lock lock{mutex_};
        ended_[sender] = 1;
        break;
      }
    }
  }

  /// Asks the other ranks and returns their answers as text: "; rank 2 is at barrier; no answer from ranks 1, 3".
  GRADUS_COLD std::string ask_others(const call_description& waiting_for) {
    constexpr std::chrono::milliseconds patience{500};
    {
      const std::scoped_lock lock{mutex_};
      for (std::string& each : answers_) {
        each.clear();
      }
    }
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) {
        post(other, kind::question, {});
      }
    }
    const clock::time_point deadline = clock::now() + patience;
    dynamic_array<int> silent;
    do {
      look_for_notices(waiting_for);
      const std::scoped_lock lock{mutex_};
      silent.clear();
      for (int other = 0; other < size_; ++other) {
        if (other != rank_ && answers_[static_cast<std::size_t>(other)].empty()) {
          silent.push_back(other);
        }
      }
    } while (!silent.empty() && clock::now() < deadline && !failed());
    const std::scoped_lock lock{mutex_};
    std::string text;
    for (int other = 0; other < size_; ++other) {
      if (const std::string& answer = answers_[static_cast<std::size_t>(other)]; !answer.empty()) {
        append_text(text, {"; rank ", other, " is at ", answer});
      }
    }
    if (!silent.empty()) {
      append_text(text, {"; no answer from ", ranks_text(silent)});
    }
    return text;
  }

  GRADUS_COLD bool others_ended() {
    const std::scoped_lock lock{mutex_};
    for (int other = 0; other < size_; ++other) {
      if (other != rank_ && ended_[static_cast<std::size_t>(other)] == 0) {
        return false;
      }
    }
    return true;
  }

  MPI_Comm notices_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int spins_ = 0;
  bool one_thread_at_a_time_ = false;
  std::recursive_mutex entering_;
  std::mutex looking_;
  std::mutex mutex_;  // protects the members below
  std::string failure_;
  int failed_rank_ = -1;
  std::string unfinished_;
  std::unique_ptr<letter> outbox_;  // notices that MPI may still be sending
  dynamic_array<std::string> answers_;
  dynamic_array<int> ended_;                  // 1 for each rank that has ended
  dynamic_array<std::int64_t> notices_sent_;  // to each rank
  dynamic_array<std::weak_ptr<mpi_membership>> memberships_;
  std::atomic<std::uint64_t> channels_{0};  // number of channels in which this rank is the first
  std::atomic<std::int64_t> notices_taken_{0};
  std::atomic<clock::rep> last_look_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_unfinished_{false};
  std::atomic<bool> over_{false};
};

}  // namespace gradus::comm::detail
