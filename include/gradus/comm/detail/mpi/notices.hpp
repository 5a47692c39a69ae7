// SPDX-License-Identifier: BSL-1.0
//
// Short notices between the processes of an MPI job, on an MPI communicator of their own.
#pragma once

#include <mpi.h>

#include <algorithm>    // std::min
#include <atomic>       // std::atomic
#include <chrono>       // std::chrono::milliseconds
#include <cstddef>      // offsetof, std::size_t
#include <cstdint>      // std::int32_t, std::int64_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <mutex>        // std::mutex, std::recursive_mutex, std::scoped_lock, std::try_to_lock, std::unique_lock
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi/poll_mpi.hpp"
#include "gradus/comm/detail/request/poll.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"

namespace gradus::comm::detail {

/// What a notice reports or asks.
enum class mpi_notice_kind : std::int32_t { failed, question, answer, ended, left };

/// A short message from one process of the job to another. Sent as bytes.
struct mpi_notice {
  mpi_notice_kind kind;
  std::int32_t sender;
  std::int32_t failed_rank;  // of a notice of the kind `failed`
  std::int32_t length;
  char text[500];  // only the first `length` bytes are sent
};

/// Which threads may call MPI.
enum class mpi_threads {
  any,         ///< MPI_THREAD_MULTIPLE
  in_turn,     ///< any, one at a time: MPI_THREAD_SERIALIZED, where only the library calls MPI
  of_program,  ///< those of the program that call the library: the program calls MPI too
};

/// Sends and receives notices. Any thread that may call MPI may call it.
class mpi_notices {
 public:
  /// Called by all ranks of `base`, which is the world of the notices.
  /// @param guest  the program has begun MPI, and calls it too: no thread of the library may
  /// @param limit  how long it waits for the others
  mpi_notices(MPI_Comm base, bool guest, std::chrono::milliseconds limit) : start_limit_{limit}, guest_{guest} {
    MPI_Query_thread(&level_);
    threads_ = level_ == MPI_THREAD_MULTIPLE                ? mpi_threads::any
               : level_ == MPI_THREAD_SERIALIZED && !guest_ ? mpi_threads::in_turn
                                                            : mpi_threads::of_program;
    MPI_Comm_rank(base, &rank_);
    MPI_Comm_size(base, &size_);
    communicator_ = call_at_start<MPI_Comm>(
        "MPI_Comm_idup", [base](MPI_Comm& own, MPI_Request* request) { return MPI_Comm_idup(base, &own, request); });
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    sent_ = dynamic_array<std::int64_t>(static_cast<std::size_t>(size_));
  }

  mpi_notices(const mpi_notices&) = delete;
  mpi_notices& operator=(const mpi_notices&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The communicator of the notices: all ranks of its world. MPI_COMM_NULL after free().
  [[nodiscard]] MPI_Comm communicator() const noexcept { return communicator_; }

  /// Which threads may call MPI.
  [[nodiscard]] mpi_threads threads() const noexcept { return threads_; }
  /// True if the calling thread may call MPI: below MPI_THREAD_SERIALIZED only the one that has begun MPI.
  [[nodiscard]] bool allows_this_thread() const noexcept {
    if (level_ >= MPI_THREAD_SERIALIZED) {
      return true;
    }
    int main = 0;
    return MPI_Is_thread_main(&main) == MPI_SUCCESS && main != 0;
  }

  /// A nonblocking collective, when notices cannot be polled yet. See poll_mpi.
  template <class Result, class Begin>
  Result call_at_start(std::string_view function, const Begin& begin, Result result = {}) {
    return poll_mpi<Result>(
        guest_ ? "comm::mpi" : "mpi_environment", function, begin, [](const auto& call) { return call(); },
        [this, deadline = clock::now() + start_limit_] {
          if (clock::now() >= deadline && guest_) {
            gradus::raise<communication_error>(
                "comm::mpi", {},
                {"not complete within ", seconds_text(start_limit_), ": not all of the ", size_,
                 " ranks of the MPI communicator have constructed one"},
                "every rank of the MPI communicator constructs it, and no other rank; mpi_options::time_limit allows "
                "longer waits");
          }
          if (clock::now() >= deadline) {
            gradus::raise<communication_error>(
                "mpi_environment", {},
                {"not complete within ", seconds_text(start_limit_), ": not all of the ", size_,
                 " processes of MPI_COMM_WORLD have constructed one"},
                "every process of the job constructs an mpi_environment, also one that does not train; "
                "comm::mpi{ranks} needs only those of an MPI communicator, and no environment. "
                "mpi_options::time_limit allows longer waits");
          }
        },
        std::move(result));
  }

  /// Calls MPI, from one thread at a time if the MPI library requires that.
  template <class Function>
  auto enter(Function&& function) {
    const turn mine{*this};
    return function();
  }

  void post(int to, mpi_notice_kind kind, std::string_view text, int failed_rank = -1) {
    const std::scoped_lock lock{mutex_};
    auto made = std::make_unique<letter>();
    made->next = std::move(outbox_);
    outbox_ = std::move(made);
    letter& fresh = *outbox_;
    fresh.content.kind = kind;
    fresh.content.sender = rank_;
    fresh.content.failed_rank = failed_rank;
    const std::size_t length = std::min(text.size(), sizeof(fresh.content.text));
    fresh.content.length = static_cast<std::int32_t>(length);
    text.copy(fresh.content.text, length);
    ++sent_[static_cast<std::size_t>(to)];
    enter([&, this] {
      return MPI_Isend(&fresh.content, static_cast<int>(offsetof(mpi_notice, text) + length), MPI_BYTE, to, tag,
                       communicator_, &fresh.sending);
    });
  }

  /// Posts a notice to every other rank.
  void post_to_others(mpi_notice_kind kind, std::string_view text = {}, int failed_rank = -1) {
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) {
        post(other, kind, text, failed_rank);
      }
    }
  }

  /// Removes notices that are sent. True if none is left.
  bool sweep() {
    const std::scoped_lock lock{mutex_};
    for (std::unique_ptr<letter>* slot = &outbox_; *slot != nullptr;) {
      int sent = 0;
      enter([&] { return MPI_Test(&(*slot)->sending, &sent, MPI_STATUS_IGNORE); });
      if (sent != 0) {
        *slot = std::unique_ptr<letter>{std::move((*slot)->next)};
      } else {
        slot = &(*slot)->next;
      }
    }
    return outbox_ == nullptr;
  }

  /// Waits until all notices are sent, at most for `limit`.
  void flush(std::chrono::milliseconds limit) {
    poll_for(limit, [this] { return sweep(); });
  }

  /// True once a millisecond: then poll() is due.
  [[nodiscard]] bool due() noexcept {
    const clock::rep now = clock::now().time_since_epoch().count();
    clock::rep last = last_look_.load(std::memory_order_relaxed);
    return now - last >= clock::duration{std::chrono::milliseconds{1}}.count() &&
           last_look_.compare_exchange_strong(last, now, std::memory_order_relaxed);
  }

  /// Calls take(notice) for each notice that has arrived, unless another thread does so now.
  template <class Take>
  void poll(const Take& take) {
    const std::unique_lock lock{looking_, std::try_to_lock};
    if (!lock.owns_lock()) {
      return;
    }
    // The first probe may only make MPI progress and report nothing yet.
    for (int misses = 0; misses < 2;) {
      int present = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      mpi_notice incoming{};
      const bool received = enter([&, this] {
        if (MPI_Improbe(MPI_ANY_SOURCE, tag, communicator_, &present, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
            present == 0) {
          return false;
        }
        return MPI_Mrecv(&incoming, static_cast<int>(sizeof(incoming)), MPI_BYTE, &message, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS;
      });
      if (received) {
        taken_.fetch_add(1);
        take(incoming);
      } else {
        ++misses;
      }
    }
    sweep();
  }

  /// Numbers of notices posted to each rank.
  [[nodiscard]] dynamic_array<std::int64_t> sent() {
    const std::scoped_lock lock{mutex_};
    return sent_;
  }
  /// Number of notices received.
  [[nodiscard]] std::int64_t taken() const noexcept { return taken_.load(); }

  /// Frees the communicator. @pre no notice is under way
  void free() noexcept {
    if (communicator_ != MPI_COMM_NULL) {
      MPI_Comm_free(&communicator_);
    }
  }

 private:
  struct letter {
    mpi_notice content{};
    MPI_Request sending = MPI_REQUEST_NULL;
    std::unique_ptr<letter> next;
  };

  static constexpr int tag = 1;

  /// While it exists, no other thread calls MPI, if the MPI library requires that.
  class turn {
   public:
    explicit turn(mpi_notices& notices) : notices_{notices} {
      if (notices.threads_ == mpi_threads::in_turn) {
        notices.entering_.lock();
      }
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    GRADUS_NEVER_INLINE ~turn() {
      if (notices_.threads_ == mpi_threads::in_turn) {
        notices_.entering_.unlock();
      }
    }

   private:
    mpi_notices& notices_;
  };

  std::chrono::milliseconds start_limit_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool guest_;
  int level_ = MPI_THREAD_SINGLE;
  mpi_threads threads_ = mpi_threads::any;
  std::recursive_mutex entering_;
  std::mutex looking_;
  std::mutex mutex_;                // protects the outbox and sent_
  std::unique_ptr<letter> outbox_;  // notices that MPI may still be sending
  dynamic_array<std::int64_t> sent_;
  std::atomic<std::int64_t> taken_{0};
  std::atomic<clock::rep> last_look_{0};
};

}  // namespace gradus::comm::detail
