// SPDX-License-Identifier: BSL-1.0
//
// A communicator of processes started by mpiexec. Component gradus::mpi.
#pragma once

#include <mpi.h>

#include <algorithm>        // std::find, std::min
#include <chrono>           // std::chrono::milliseconds
#include <climits>          // INT_MAX
#include <concepts>         // std::same_as
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::uint64_t
#include <cstring>          // std::memcpy
#include <exception>        // std::exception
#include <memory>           // std::make_unique, std::shared_ptr, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::forward, std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/mpi/blocking_calls.hpp"
#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi/element.hpp"
#include "gradus/comm/detail/mpi/guests.hpp"
#include "gradus/comm/detail/mpi/notices.hpp"
#include "gradus/comm/detail/mpi/operation.hpp"
#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/mpi_environment.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#ifdef GRADUS_HAS_INSTANCES
#include "gradus/comm/link_of.hpp"
#endif

namespace gradus::comm {

class mpi;

namespace detail {

class mpi_shared_channel;

/// MPI counts with int, so longer arrays are sent in parts of at most `elements` elements. Tests choose fewer than
/// INT_MAX. @pre elements >= 1
inline void send_in_parts_of(int elements, mpi& world) noexcept;

}  // namespace detail

/// A rank among the processes of an MPI job. The collectives are those of the MPI library.
///
/// In a program that begins MPI itself, the ranks of any MPI communicator make one, and no others:
///
/// @code
///   MPI_Comm trainers;  // some ranks of the job
///   MPI_Comm_split(MPI_COMM_WORLD, color, 0, &trainers);
///   comm::mpi world{trainers};
/// @endcode
///
/// Destructors of such objects wait for no other rank. When MPI_Finalize begins, those that still exist end, and
/// MPI_Finalize waits for the ranks of their communicators, as it always may. Destructors that run later do nothing.
/// With MPI_THREAD_MULTIPLE threads of the library call MPI; below it only threads of the program do, within its calls
/// of the library, and below MPI_THREAD_SERIALIZED only the thread that has begun MPI: one_thread() is true then.
///
/// Every wait polls MPI, so that it has a time limit and ends when another rank fails. An MPI error code becomes a
/// communication_error with MPI's message. When the time limit is over, the message shows what the other ranks wait for
/// and which ranks do not answer. A rank that waits for one whose communicator has been destroyed gets
/// communication_error with that rank. MPI cannot withdraw a collective or a send that has begun: after a failure the
/// process makes no more MPI calls on its communicators, and ends by MPI_Abort (see mpi_environment).
///
/// The MPI library decides whether all ranks get the same bits: MPICH and Open MPI give the same bits on all ranks for
/// the reductions of this class.
class mpi : public typed_operations<mpi> {
 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "mpi";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>;

  /// All ranks of the job, with separate messages. Called by all ranks.
  explicit mpi(mpi_environment& environment) : mpi{environment, MPI_COMM_WORLD} {}

  /// The ranks of `ranks`, with separate messages: the MPI communicator is duplicated, not taken over. Called by all
  /// its ranks.
  /// @throws communication_error if a rank fails or does not call it within mpi_options::time_limit
  mpi(mpi_environment& environment, MPI_Comm ranks)
      : mpi{environment.process_, ranks, environment.options_.time_limit, ranks == MPI_COMM_WORLD} {}

  /// The ranks of `ranks`, with separate messages, in a program that begins MPI itself: the MPI communicator is
  /// duplicated, not taken over, and may be freed. Called by all its ranks; no other rank of the job has to call
  /// anything. Messages about failures count the ranks of `ranks`.
  /// @param options  the time limit; `grace` and `exit_code` are those of an environment
  /// @throws configuration_error if MPI has not begun or is over, or `ranks` is MPI_COMM_NULL
  /// @throws communication_error if a rank fails or does not call it within the time limit
  explicit mpi(MPI_Comm ranks, mpi_options options = {},
               const std::source_location& where = std::source_location::current())
      : mpi{detail::mpi_guests::of_process().add(ranks, options.time_limit, where), ranks, options.time_limit, true} {}

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, mpi&> mpi(Argument&& world) : mpi{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// Takes over a rank; the other object has size() 0 afterwards.
  mpi(mpi&&) noexcept = default;
  /// Ends this communicator as the destructor does, then takes over the other.
  mpi& operator=(mpi&& other) noexcept {
    if (this != &other) {
      leave();
      channel_ = std::move(other.channel_);
      limit_ = other.limit_;
      largest_count_ = other.largest_count_;
    }
    return *this;
  }
  GRADUS_COLD ~mpi() { leave(); }

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return channel_ == nullptr ? 0 : channel_->rank(); }
  /// The number of ranks; 0 after a move.
  [[nodiscard]] int size() const noexcept { return channel_ == nullptr ? 0 : channel_->size(); }

  /// True if only threads of the program may use the communicator, within its own calls of the library: below
  /// MPI_THREAD_MULTIPLE (in an mpi_environment below MPI_THREAD_SERIALIZED). Strategies then send between the layers
  /// of a backward pass in place of behind them.
  [[nodiscard]] bool one_thread() const noexcept {
    return channel_ != nullptr && channel_->process().threads() == detail::mpi_threads::of_program;
  }

  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return limit_; }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    require_time_limit(name, limit);
    limit_ = limit;
  }

  /// The MPI communicator, for calls that this class does not offer. This object still owns it.
  [[nodiscard]] MPI_Comm native() const noexcept {
    return channel_ == nullptr ? MPI_COMM_NULL : channel_->communicator();
  }

  /// Makes room for more messages at a time; see comm::reserve_messages. MPI allocates what it needs itself.
  void reserve_messages(std::size_t count) {
    detail::require_open(detail::caller{*this}, "reserve_messages", std::source_location::current());
    channel_->reserve(count);
  }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    detail::mpi_operation& operation = channel_->fresh(one.what, limit_);
    request pending{operation};
    const MPI_Datatype type = detail::mpi_type_of(one.element->kind);
    operation.element_type(type);
    switch (one.what.kind) {
      case call_kind::send:
        begin_send(operation, one, type);
        break;
      case call_kind::receive:
        begin_receive(operation, one, type);
        break;
      case call_kind::all_reduce:
        begin_all_reduce(operation, one, type);
        break;
      case call_kind::broadcast:
        begin_broadcast(operation, one, type);
        break;
      case call_kind::reduce_scatter:
        begin_reduce_scatter(operation, one, type);
        break;
      case call_kind::all_gather:
        begin_all_gather(operation, one, type);
        break;
      case call_kind::barrier:
      case call_kind::duplicate:
      case call_kind::register_memory:
        operation.add("MPI_Ibarrier", [&, this](MPI_Request* handle) { return MPI_Ibarrier(native(), handle); });
        break;
    }
    return pending;
  }

  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] mpi duplicate() {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    detail::mpi_operation& operation = channel_->fresh({.kind = call_kind::duplicate}, limit_);
    request pending{operation};
    // Before any rank can leave the duplicate.
    auto membership = channel_->process().join(channel_->membership().channel_of_duplicate(), rank(), size());
    operation.add("MPI_Comm_idup", [&, this](MPI_Request* handle) {
      return MPI_Comm_idup(native(), &operation.new_communicator(), handle);
    });
    pending.wait();
    mpi copy;
    copy.channel_ = std::make_unique<detail::mpi_channel>(channel_->shared_process(), operation.new_communicator(),
                                                          std::move(membership));
    copy.limit_ = limit_;
    copy.largest_count_ = largest_count_;
    return copy;
  }

  /// Reports to all other ranks that this one has failed, and why.
  void fail(std::string_view reason) noexcept {
    if (channel_ != nullptr) {
      channel_->process().fail(reason);
    }
  }

  /// What the other ranks of the job wait for and which do not answer within half a second, as text that follows the
  /// message of a time limit: "; rank 2 is at barrier; no answer from rank 1".
  /// @param waiting_for  the call of this rank, for ranks that ask it meanwhile
  [[nodiscard]] std::string ask_others(const call_description& waiting_for) {
    detail::require_open(detail::caller{*this}, "ask_others", std::source_location::current());
    return channel_->process().ask_others(waiting_for);
  }

  /// Asks the other ranks of the job, and returns those of this communicator that do not answer within half a second:
  /// they are dead, stopped, or busy outside of the library for so long.
  /// @param waiting_for  the activity of this rank, for ranks that ask it meanwhile
  /// @throws communication_error if another rank has failed
  [[nodiscard]] dynamic_array<int> silent_ranks(std::string_view waiting_for,
                                                const std::source_location& where = std::source_location::current()) {
    detail::require_open(detail::caller{*this}, "silent_ranks", where);
    detail::mpi_process& process = channel_->process();
    const dynamic_array<int> silent = process.silent_ranks(waiting_for);
    if (process.failed()) {
      process.raise(waiting_for, channel_->world(), where);
    }
    dynamic_array<int> own;
    if (!silent.empty()) {
      const dynamic_array<int> of_world = process.ranks_in_world(native(), size());
      for (int rank = 0; rank < size(); ++rank) {
        if (std::find(silent.begin(), silent.end(), of_world[static_cast<std::size_t>(rank)]) != silent.end()) {
          own.push_back(rank);
        }
      }
    }
    return own;
  }

 private:
  friend class mpi_shared;
  friend class detail::mpi_shared_channel;
  friend void detail::send_in_parts_of(int elements, mpi& world) noexcept;

  mpi() noexcept = default;

  mpi(const std::shared_ptr<detail::mpi_process>& process, MPI_Comm ranks, std::chrono::milliseconds limit, bool world)
      : limit_{limit} {
    const detail::mpi_blocking_calls call{*process, std::string_view{"comm::mpi"}, limit, world};
    const std::uint64_t number = process->number_channel(ranks, call);
    int rank = 0;
    int size = 1;
    if (ranks != MPI_COMM_NULL) {
      MPI_Comm_rank(ranks, &rank);
      MPI_Comm_size(ranks, &size);
    }
    // Before MPI_Comm_idup completes on any rank, which could then leave.
    auto membership = process->join(number, rank, size);
    const auto own = call.poll<MPI_Comm>("MPI_Comm_idup", [ranks](MPI_Comm& made, MPI_Request* request) {
      return MPI_Comm_idup(ranks, &made, request);
    });
    channel_ = std::make_unique<detail::mpi_channel>(process, own, std::move(membership));
  }

  void begin_send(detail::mpi_operation& operation, const transfer& one, MPI_Datatype type) {
    for_each_part(one.what.count, [&, this](index_t begin, int part) {
      operation.add("MPI_Isend", [&, this](MPI_Request* handle) {
        return MPI_Isend(at(one.input, begin, one), part, type, one.what.peer, one.what.tag, native(), handle);
      });
    });
  }

  void begin_receive(detail::mpi_operation& operation, const transfer& one, MPI_Datatype type) {
    for_each_part(one.what.count, [&, this](index_t begin, int part) {
      operation.add(
          "MPI_Irecv",
          [&, this](MPI_Request* handle) {
            return MPI_Irecv(at(one.output, begin, one), part, type, one.what.peer, one.what.tag, native(), handle);
          },
          part);
    });
  }

  void begin_all_reduce(detail::mpi_operation& operation, const transfer& one, MPI_Datatype type) {
    const MPI_Op combine = detail::mpi_operation_of(*one.element, one.what.operation);
    for_each_part(one.what.count, [&, this](index_t begin, int part) {
      operation.add("MPI_Iallreduce", [&, this](MPI_Request* handle) {
        return MPI_Iallreduce(MPI_IN_PLACE, at(one.output, begin, one), part, type, combine, native(), handle);
      });
    });
  }

  void begin_broadcast(detail::mpi_operation& operation, const transfer& one, MPI_Datatype type) {
    for_each_part(one.what.count, [&, this](index_t begin, int part) {
      operation.add("MPI_Ibcast", [&, this](MPI_Request* handle) {
        return MPI_Ibcast(at(one.output, begin, one), part, type, one.what.peer, native(), handle);
      });
    });
  }

  void begin_reduce_scatter(detail::mpi_operation& operation, const transfer& one, MPI_Datatype type) {
    const index_t count = one.what.count;  // of a rank
    const MPI_Op combine = detail::mpi_operation_of(*one.element, one.what.operation);
    // MPI's buffers must not overlap, but ours may: then the result passes through a buffer of the operation.
    void* target = one.output;
    if (target == at(one.input, rank() * count, one)) {
      target = operation.staging(one.bytes(count));
      operation.copy_out(one.output, one.bytes(count));
    }
    if (count <= largest_count_) {
      operation.add("MPI_Ireduce_scatter_block", [&, this](MPI_Request* handle) {
        return MPI_Ireduce_scatter_block(one.input, target, static_cast<int>(count), type, combine, native(), handle);
      });
      return;
    }
    for (int owner = 0; owner < size(); ++owner) {
      for_each_part(count, [&, this](index_t begin, int part) {
        operation.add("MPI_Ireduce", [&, this](MPI_Request* handle) {
          return MPI_Ireduce(at(one.input, owner * count + begin, one), at(target, begin, one), part, type, combine,
                             owner, native(), handle);
        });
      });
    }
  }

  void begin_all_gather(detail::mpi_operation& operation, const transfer& one, MPI_Datatype type) {
    const index_t count = one.what.count;  // of a rank
    // MPI requires that all ranks work in place or none. Ours may differ, so copy the own contribution into the output
    // first.
    void* const own_block = at(one.output, rank() * count, one);
    if (count != 0 && one.input != own_block) {
      std::memcpy(own_block, one.input, one.bytes(count));
    }
    if (count <= largest_count_) {
      operation.add("MPI_Iallgather", [&, this](MPI_Request* handle) {
        return MPI_Iallgather(MPI_IN_PLACE, 0, type, one.output, static_cast<int>(count), type, native(), handle);
      });
      return;
    }
    for_each_part(count, [&, this](index_t begin, int part) {
      operation.add("MPI_Iallgather", [&, this](MPI_Request* handle) {
        // `part` elements of each rank's contribution; contributions are `count` elements apart
        MPI_Datatype contiguous = MPI_DATATYPE_NULL;
        MPI_Datatype spaced = MPI_DATATYPE_NULL;
        MPI_Type_contiguous(part, type, &contiguous);
        MPI_Type_create_resized(contiguous, 0, static_cast<MPI_Aint>(one.bytes(count)), &spaced);
        MPI_Type_commit(&spaced);
        const int code = MPI_Iallgather(MPI_IN_PLACE, 0, type, at(one.output, begin, one), 1, spaced, native(), handle);
        MPI_Type_free(&spaced);
        MPI_Type_free(&contiguous);
        return code;
      });
    });
  }

  /// The address of element `i` of an array.
  static const void* at(const void* data, index_t i, const transfer& one) noexcept {
    return static_cast<const std::byte*>(data) + one.bytes(i);
  }
  static void* at(void* data, index_t i, const transfer& one) noexcept {
    return static_cast<std::byte*>(data) + one.bytes(i);
  }

  void leave() noexcept {
    if (channel_ != nullptr && channel_->process().failed()) {
      // MPI may still use memory of unfinished operations. It is kept until the process ends, which is soon.
      static_cast<void>(channel_.release());
    }
    channel_.reset();
  }

  /// Calls part(begin, count) for parts that MPI can count; once for an empty array.
  template <class Part>
  void for_each_part(index_t count, const Part& part) const {
    index_t begin = 0;
    do {
      const index_t some = std::min<index_t>(largest_count_, count - begin);
      part(begin, static_cast<int>(some));
      begin += some;
    } while (begin < count);
  }

  std::unique_ptr<detail::mpi_channel> channel_;
  std::chrono::milliseconds limit_ = default_time_limit;
  int largest_count_ = INT_MAX;
};
static_assert(communicator<mpi>);

inline void detail::send_in_parts_of(int elements, mpi& world) noexcept {
  world.largest_count_ = elements;
}

template <class Function>
decltype(auto) mpi_environment::run(Function&& function) {
  of_all_ranks_ = false;
  try {
    mpi world{*this};
    return std::forward<Function>(function)(world);
  } catch (const error_of_all_ranks&) {
    of_all_ranks_ = true;
    throw;
  } catch (const std::exception& failure) {
    fail_by_exception(failure.what());
    throw;
  } catch (...) {
    fail_by_exception("an exception that is not a std::exception");
    throw;
  }
}

}  // namespace gradus::comm

#if defined(GRADUS_COMPILED_MPI) && defined(GRADUS_COMPILES_MPI)
template class gradus::comm::link_of<::gradus::comm::mpi>;
template class gradus::comm::owned_link<::gradus::comm::mpi>;
#elif defined(GRADUS_COMPILED_MPI) && defined(GRADUS_HAS_INSTANCES)
extern template class gradus::comm::link_of<::gradus::comm::mpi>;
extern template class gradus::comm::owned_link<::gradus::comm::mpi>;
#endif
