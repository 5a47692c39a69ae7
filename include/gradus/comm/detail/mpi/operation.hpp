// SPDX-License-Identifier: BSL-1.0
//
// One communication of an MPI communicator: a few MPI requests that complete together.
#pragma once

#include <mpi.h>

#include <chrono>           // std::chrono::milliseconds
#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint64_t, std::uint8_t
#include <cstring>          // std::memcpy
#include <exception>        // std::uncaught_exceptions
#include <memory>           // std::shared_ptr
#include <mutex>            // std::mutex, std::scoped_lock
#include <source_location>  // std::source_location
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move
#include <vector>           // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi/membership.hpp"
#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/detail/request/operation_pool.hpp"
#include "gradus/comm/detail/request/poll.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm::detail {

class mpi_channel;

/// Waits by MPI_Testall, so that every wait has a time limit and detects failures of other ranks.
class mpi_operation final : public operation {
 public:
  /// With room for one part, as messages have.
  explicit mpi_operation(mpi_channel& channel) : channel_{&channel}, statuses_(1) {
    requests_.reserve(1);
    expected_.reserve(1);
  }

  /// @param number  the result of mpi_membership::begin for it
  void open(const call_description& what, std::chrono::milliseconds limit, std::uint64_t number) {
    what_ = what;
    limit_ = limit;
    number_ = number;
    requests_.clear();
    expected_.clear();
    copy_to_ = nullptr;
  }

  /// Begins one part: begin(MPI_Request*) returns an MPI error code. `expected` is the number of elements of a receive.
  template <class Begin>
  void add(std::string_view function, const Begin& begin, int expected = -1);

  /// A buffer of the operation with at least `bytes` bytes.
  std::uint8_t* staging(std::size_t bytes) {
    if (staging_.size() < bytes) {
      staging_ = std::vector<std::uint8_t>(bytes);
    }
    return staging_.data();
  }
  /// Copies from the staging buffer when the operation completes.
  void copy_out(void* to, std::size_t bytes) noexcept {
    copy_to_ = to;
    copy_bytes_ = bytes;
  }

  void element_type(MPI_Datatype type) noexcept { type_ = type; }
  /// The result of MPI_Comm_idup.
  [[nodiscard]] MPI_Comm& new_communicator() noexcept { return new_communicator_; }

  bool test(const std::source_location& where) override;
  void wait(const std::source_location& where) override;
  void abandon(bool unwinding) noexcept override;
  void release() noexcept override;

 private:
  MPI_Request* next_request(int expected);
  void refuse(std::string_view function, int code);
  bool complete(const std::source_location& where);
  bool look(const std::source_location& where);
  void look_for_notices();
  bool settle(std::chrono::milliseconds patience) noexcept;
  [[noreturn]] void raise_mpi_error(int code, const std::source_location& where);

  mpi_channel* channel_;
  call_description what_{};
  std::chrono::milliseconds limit_{};
  std::uint64_t number_ = 0;
  dynamic_array<MPI_Request> requests_;
  dynamic_array<MPI_Status> statuses_;
  dynamic_array<int> expected_;  // for receives: elements of each part
  MPI_Datatype type_ = MPI_BYTE;
  MPI_Comm new_communicator_ = MPI_COMM_NULL;
  std::vector<std::uint8_t> staging_;
  void* copy_to_ = nullptr;
  std::size_t copy_bytes_ = 0;
};

/// An MPI communicator that the library owns, and the operations under way on it.
class mpi_channel {
 public:
  /// Takes over the communicator.
  mpi_channel(std::shared_ptr<mpi_process> process, MPI_Comm communicator, std::shared_ptr<mpi_membership> membership)
      : process_{std::move(process)},
        communicator_{communicator},
        membership_{std::move(membership)},
        rank_{membership_->rank()},
        size_{membership_->size()} {
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    membership_->communicator = communicator_;
    int relation = MPI_UNEQUAL;
    MPI_Comm_compare(communicator_, process_->notices().communicator(), &relation);
    world_ = relation == MPI_CONGRUENT || relation == MPI_IDENT;
  }

  mpi_channel(const mpi_channel&) = delete;
  mpi_channel& operator=(const mpi_channel&) = delete;

  ~mpi_channel() {
    const bool unwinding = std::uncaught_exceptions() != 0;
    process_->leave(*membership_, unwinding);
    // After a failure MPI may still use requests of this communicator; the job is about to end.
    if (!process_->over() && !process_->failed() && !unwinding) {
      process_->enter([this] { return MPI_Comm_free(&communicator_); });
    }
  }

  [[nodiscard]] mpi_process& process() const noexcept { return *process_; }
  [[nodiscard]] const std::shared_ptr<mpi_process>& shared_process() const noexcept { return process_; }
  [[nodiscard]] mpi_membership& membership() const noexcept { return *membership_; }
  [[nodiscard]] MPI_Comm communicator() const noexcept { return communicator_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool world() const noexcept { return world_; }

  /// An operation without parts. Nothing is allocated if one is idle.
  mpi_operation& fresh(const call_description& what, std::chrono::milliseconds limit) {
    process_->look_at_unfinished();
    process_->glance_at_notices(what);
    if (process_->failed()) {
      process_->raise(what, world_, std::source_location::current());
    }
    if (process_->over()) {
      gradus::raise<communication_error>(what.describe(), "a running MPI", "an MPI that has been finalized",
                                         "keep the mpi_environment until the end of main");
    }
    if (!process_->notices().allows_this_thread()) {
      gradus::raise<communication_error>(
          what.describe(), "the thread that has begun MPI", "another thread",
          "MPI below MPI_THREAD_SERIALIZED is called by one thread only: train in that one, or begin MPI by "
          "MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided)");
    }
    const std::scoped_lock lock{mutex_};
    mpi_operation& operation = operations_.idle(*this);
    operation.open(what, limit, membership_->begin(what));
    operations_.take();
    return operation;
  }

  /// Makes `count` more operations.
  void reserve(std::size_t count) {
    const std::scoped_lock lock{mutex_};
    operations_.reserve(count, *this);
  }

  void put_back(mpi_operation& operation) noexcept {
    const std::scoped_lock lock{mutex_};
    operations_.put_back(operation);
  }

 private:
  std::shared_ptr<mpi_process> process_;
  MPI_Comm communicator_;
  std::shared_ptr<mpi_membership> membership_;
  int rank_;
  int size_;
  bool world_ = false;
  std::mutex mutex_;
  operation_pool<mpi_operation> operations_;
};

template <class Begin>
void mpi_operation::add(std::string_view function, const Begin& begin, int expected) {
  MPI_Request* const handle = next_request(expected);
  if (const int code = channel_->process().enter([&] { return begin(handle); }); code != MPI_SUCCESS) {
    refuse(function, code);
  }
}

/// Adds a request for one more part.
inline MPI_Request* mpi_operation::next_request(int expected) {
  requests_.push_back(MPI_REQUEST_NULL);
  if (expected >= 0) {
    expected_.push_back(expected);
  }
  return &requests_.back();
}

/// Handles a part that could not begin.
inline void mpi_operation::refuse(std::string_view function, int code) {
  requests_.back() = MPI_REQUEST_NULL;
  channel_->process().fail(gradus::join({what_.describe(), ": ", function, ": ", mpi_error_text(code)}));
  check_mpi(code, what_.describe(), function);
}

/// Tests if all parts are complete; if so, finishes the operation.
inline bool mpi_operation::complete(const std::source_location& where) {
  if (channel_->process().over()) {
    gradus::raise<communication_error>(what_.describe(), "a running MPI", "an MPI that has been finalized",
                                       "wait for all operations before MPI_Finalize", where);
  }
  int flag = 0;
  if (statuses_.size() < requests_.size()) {
    statuses_ = dynamic_array<MPI_Status>(requests_.size());
  }
  const int code = channel_->process().enter(
      [&, this] { return MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag, statuses_.data()); });
  if (code != MPI_SUCCESS) {
    raise_mpi_error(code, where);
  }
  if (flag == 0) {
    return false;
  }
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    int count = 0;
    MPI_Get_count(&statuses_[i], type_, &count);
    if (count != expected_[i]) {
      const std::string reason = gradus::join({"ranks disagree about a message: rank ", channel_->rank(), " calls ",
                                               what_.describe(), ", but ", count, " elements came"});
      channel_->process().fail(reason);
      gradus::raise<communication_error>(what_.describe(), {}, reason, {}, where);
    }
  }
  if (copy_to_ != nullptr && copy_bytes_ != 0) {
    std::memcpy(copy_to_, staging_.data(), copy_bytes_);
  }
  if (what_.kind == call_kind::receive) {
    channel_->membership().received(what_);
  }
  return true;
}

inline void mpi_operation::raise_mpi_error(int code, const std::source_location& where) {
  if (int error_class = MPI_ERR_OTHER;
      MPI_Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& each : statuses_) {
      if (each.MPI_ERROR != MPI_SUCCESS && each.MPI_ERROR != MPI_ERR_PENDING) {
        code = each.MPI_ERROR;
        break;
      }
    }
  }
  const std::string reason = gradus::join({"MPI reports: ", mpi_error_text(code)});
  channel_->process().fail(gradus::join({what_.describe(), ": ", reason}));
  settle(std::chrono::milliseconds{100});
  gradus::raise<communication_error>(what_.describe(), {}, reason, {}, where);
}

/// Polls once: true if complete; throws if failed; otherwise false.
inline bool mpi_operation::look(const std::source_location& where) {
  if (complete(where)) {
    return true;
  }
  if (channel_->process().failed()) {
    if (settle(std::chrono::milliseconds{50})) {
      return true;
    }
    channel_->process().raise(what_, channel_->world(), where);
  }
  return false;
}

inline bool mpi_operation::test(const std::source_location& where) {
  if (look(where)) {
    return true;
  }
  look_for_notices();
  return false;
}

/// Polls for notices. Afterwards the process may have failed.
inline void mpi_operation::look_for_notices() {
  mpi_process& process = channel_->process();
  process.glance_at_notices(what_);
  process.look_for_departures(channel_->membership(), what_, number_, channel_->world());
}

inline void mpi_operation::wait(const std::source_location& where) {
  mpi_process& process = channel_->process();
  poll_until_complete(
      process.spins(), limit_, [&, this] { return look(where) ? poll_result::complete : poll_result::nothing; },
      [&, this](unsigned) { look_for_notices(); },
      [&, this] {
        try {
          process.raise_time_out(what_, limit_, where);
        } catch (...) {
          settle(std::chrono::milliseconds{50});
          throw;
        }
      });
}

/// Gets back from MPI the buffers that it releases. True if the operation is complete.
inline bool mpi_operation::settle(std::chrono::milliseconds patience) noexcept {
  try {
    mpi_process& process = channel_->process();
    const bool cancels = what_.kind == call_kind::receive;
    int done = 0;
    const auto test_all = [&, this] {
      return process.enter([&, this] {
        return MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
      });
    };
    if (cancels) {
      process.enter([&, this] {
        for (MPI_Request& each : requests_) {
          if (each != MPI_REQUEST_NULL) {
            MPI_Cancel(&each);
          }
        }
        return MPI_SUCCESS;
      });
    }
    poll_for(patience, [&] { return test_all() != MPI_SUCCESS || done != 0; });
    return done != 0 && !cancels && copy_to_ == nullptr;
  } catch (...) {
    return false;
  }
}

inline void mpi_operation::abandon(bool unwinding) noexcept {
  mpi_process& process = channel_->process();
  if (process.over()) {
    return;
  }
  if (unwinding || process.failed()) {
    settle(std::chrono::milliseconds{process.failed() ? 50 : 1000});
    bool held = false;
    for (const MPI_Request each : requests_) {
      held = held || each != MPI_REQUEST_NULL;
    }
    if (held || what_.kind == call_kind::receive) {
      if (what_.kind != call_kind::receive && what_.kind != call_kind::send) {
        channel_->membership().give_up(number_);
      }
      process.leave_unfinished(what_);
    }
    return;
  }
  try {
    wait(std::source_location::current());
  } catch (...) {
    // The process has failed; the next operation reports it.
  }
}

inline void mpi_operation::release() noexcept {
  channel_->put_back(*this);
}

}  // namespace gradus::comm::detail
