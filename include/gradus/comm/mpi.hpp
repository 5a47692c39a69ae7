// SPDX-License-Identifier: BSL-1.0
//
// Ranks that are processes started by mpiexec. Component gradus::mpi.
// Module: comm. Depends on: core, MPI.
#pragma once

#include <mpi.h>

#include <algorithm>    // std::min
#include <chrono>       // std::chrono::milliseconds
#include <climits>      // INT_MAX
#include <cstring>      // std::memcpy
#include <exception>    // std::exception
#include <memory>       // std::make_unique, std::unique_ptr
#include <span>         // std::span
#include <string>       // std::to_string
#include <string_view>  // std::string_view
#include <utility>      // std::forward, std::move

#include "gradus/comm/communicator.hpp"     // communicator, reduction, request
#include "gradus/comm/detail/call.hpp"      // call
#include "gradus/comm/mpi_environment.hpp"  // mpi_environment
#include "gradus/comm/mpi_operation.hpp"    // mpi_channel, mpi_operation
#include "gradus/core/error.hpp"            // configuration_error

namespace gradus::comm {

/// A rank among the processes of an MPI job. The collectives are the MPI library's own.
///
/// Every wait polls MPI, so that it has a time limit and ends when another rank fails; an error code of MPI becomes a
/// communication_error with MPI's words. When the time limit is over the message says what the other ranks wait for and
/// which do not answer. MPI cannot take back a collective or a send that has begun: after a failure the process makes
/// no more MPI calls on its communicators, and ends by MPI_Abort (see mpi_environment).
///
/// Whether all ranks get the same bits is up to the MPI library: MPICH and Open MPI give the same bits on all ranks for
/// the reductions of this class.
class mpi {
 public:
  static constexpr std::string_view name = "mpi";
  template <class Element>
  static constexpr bool supports = transferable<Element>;

  /// All ranks of the job, on a channel of its own. Called by all ranks.
  explicit mpi(mpi_environment& environment) : mpi{environment, MPI_COMM_WORLD} {}

  /// The ranks of `ranks`, on a channel of its own: the MPI communicator is duplicated, not taken over. Called by all
  /// its ranks.
  mpi(mpi_environment& environment, MPI_Comm ranks) {
    MPI_Comm own = MPI_COMM_NULL;
    detail::check_mpi(environment.process_->enter([&] { return MPI_Comm_dup(ranks, &own); }), "comm::mpi",
                      "MPI_Comm_dup");
    channel_ = std::make_unique<detail::mpi_channel>(environment.process_, own);
  }

  mpi(mpi&&) noexcept = default;
  mpi& operator=(mpi&& other) noexcept {
    if (this != &other) {
      leave();
      channel_ = std::move(other.channel_);
      limit_ = other.limit_;
      largest_count_ = other.largest_count_;
    }
    return *this;
  }
  ~mpi() { leave(); }

  [[nodiscard]] int rank() const noexcept { return channel_ == nullptr ? 0 : channel_->rank(); }
  [[nodiscard]] int size() const noexcept { return channel_ == nullptr ? 0 : channel_->size(); }

  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return limit_; }
  void set_time_limit(std::chrono::milliseconds limit) {
    detail::require_time_limit(name, limit);
    limit_ = limit;
  }

  /// MPI counts with int: longer arrays go in parts of at most so many elements. For tests of that.
  void set_largest_count(int elements) {
    if (elements < 1) {
      throw configuration_error{"comm::mpi.set_largest_count", "at least 1", std::to_string(elements)};
    }
    largest_count_ = elements;
  }

  /// The MPI communicator, for calls that this class does not offer. It stays owned by this object.
  [[nodiscard]] MPI_Comm native() const noexcept {
    return channel_ == nullptr ? MPI_COMM_NULL : channel_->communicator();
  }

  template <transferable Element>
  [[nodiscard]] request send(int peer, std::span<const Element> data, int tag) {
    detail::mpi_operation& operation =
        fresh<Element>({.kind = detail::call_kind::send, .peer = peer, .tag = tag}, data);
    request pending{operation};
    for_each_part(data.size(), [&](std::size_t begin, int count) {
      operation.add("MPI_Isend", [&](MPI_Request* handle) {
        return MPI_Isend(data.data() + begin, count, detail::mpi_type<Element>(), peer, tag, native(), handle);
      });
    });
    return pending;
  }

  template <transferable Element>
  [[nodiscard]] request receive(int peer, std::span<Element> data, int tag) {
    detail::mpi_operation& operation =
        fresh<Element>({.kind = detail::call_kind::receive, .peer = peer, .tag = tag}, data);
    request pending{operation};
    for_each_part(data.size(), [&](std::size_t begin, int count) {
      operation.add(
          "MPI_Irecv",
          [&](MPI_Request* handle) {
            return MPI_Irecv(data.data() + begin, count, detail::mpi_type<Element>(), peer, tag, native(), handle);
          },
          count);
    });
    return pending;
  }

  template <transferable Element>
  [[nodiscard]] request all_reduce(std::span<Element> data, reduction operation) {
    detail::mpi_operation& under_way =
        fresh<Element>({.kind = detail::call_kind::all_reduce, .operation = operation}, data);
    request pending{under_way};
    for_each_part(data.size(), [&](std::size_t begin, int count) {
      under_way.add("MPI_Iallreduce", [&](MPI_Request* handle) {
        return MPI_Iallreduce(MPI_IN_PLACE, data.data() + begin, count, detail::mpi_type<Element>(),
                              detail::mpi_operation_of(operation), native(), handle);
      });
    });
    return pending;
  }

  template <transferable Element>
  [[nodiscard]] request broadcast(std::span<Element> data, int root) {
    detail::mpi_operation& operation = fresh<Element>({.kind = detail::call_kind::broadcast, .peer = root}, data);
    request pending{operation};
    for_each_part(data.size(), [&](std::size_t begin, int count) {
      operation.add("MPI_Ibcast", [&](MPI_Request* handle) {
        return MPI_Ibcast(data.data() + begin, count, detail::mpi_type<Element>(), root, native(), handle);
      });
    });
    return pending;
  }

  template <transferable Element>
  [[nodiscard]] request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction operation) {
    detail::mpi_operation& under_way =
        fresh<Element>({.kind = detail::call_kind::reduce_scatter, .operation = operation}, output);
    request pending{under_way};
    // MPI's buffers may not overlap, ours may: then the result goes through memory of the operation's own.
    const Element* const own_block = input.data() + static_cast<std::size_t>(rank()) * output.size();
    Element* target = output.data();
    if (target == own_block) {
      target = reinterpret_cast<Element*>(under_way.staging(output.size_bytes()));
      under_way.copy_out(output.data(), output.size_bytes());
    }
    if (output.size() <= static_cast<std::size_t>(largest_count_)) {
      under_way.add("MPI_Ireduce_scatter_block", [&](MPI_Request* handle) {
        return MPI_Ireduce_scatter_block(input.data(), target, static_cast<int>(output.size()),
                                         detail::mpi_type<Element>(), detail::mpi_operation_of(operation), native(),
                                         handle);
      });
      return pending;
    }
    for (int owner = 0; owner < size(); ++owner) {
      const Element* const block = input.data() + static_cast<std::size_t>(owner) * output.size();
      for_each_part(output.size(), [&](std::size_t begin, int count) {
        under_way.add("MPI_Ireduce", [&](MPI_Request* handle) {
          return MPI_Ireduce(block + begin, target + begin, count, detail::mpi_type<Element>(),
                             detail::mpi_operation_of(operation), owner, native(), handle);
        });
      });
    }
    return pending;
  }

  template <transferable Element>
  [[nodiscard]] request all_gather(std::span<const Element> input, std::span<Element> output) {
    detail::mpi_operation& operation = fresh<Element>({.kind = detail::call_kind::all_gather}, input);
    request pending{operation};
    const MPI_Datatype type = detail::mpi_type<Element>();
    // MPI wants all ranks to do it in place or none, ours may differ: so put the own block into its place first.
    Element* const own_block = output.data() + static_cast<std::size_t>(rank()) * input.size();
    if (!input.empty() && input.data() != own_block) {
      std::memcpy(own_block, input.data(), input.size_bytes());
    }
    if (input.size() <= static_cast<std::size_t>(largest_count_)) {
      operation.add("MPI_Iallgather", [&](MPI_Request* handle) {
        return MPI_Iallgather(MPI_IN_PLACE, 0, type, output.data(), static_cast<int>(input.size()), type, native(),
                              handle);
      });
      return pending;
    }
    for_each_part(input.size(), [&](std::size_t begin, int count) {
      operation.add("MPI_Iallgather", [&](MPI_Request* handle) {
        // `count` elements of every block, the blocks being input.size() elements apart
        MPI_Datatype part = MPI_DATATYPE_NULL;
        MPI_Datatype spaced = MPI_DATATYPE_NULL;
        MPI_Type_contiguous(count, type, &part);
        MPI_Type_create_resized(part, 0, static_cast<MPI_Aint>(input.size_bytes()), &spaced);
        MPI_Type_commit(&spaced);
        const int code = MPI_Iallgather(MPI_IN_PLACE, 0, type, output.data() + begin, 1, spaced, native(), handle);
        MPI_Type_free(&spaced);
        MPI_Type_free(&part);
        return code;
      });
    });
    return pending;
  }

  [[nodiscard]] request barrier() {
    detail::mpi_operation& operation = channel_->fresh({.kind = detail::call_kind::barrier}, limit_);
    request pending{operation};
    operation.add("MPI_Ibarrier", [&](MPI_Request* handle) { return MPI_Ibarrier(native(), handle); });
    return pending;
  }

  [[nodiscard]] mpi duplicate() {
    detail::require_open(*this, "duplicate", std::source_location::current());
    detail::mpi_operation& operation = channel_->fresh({.kind = detail::call_kind::duplicate}, limit_);
    request pending{operation};
    operation.add("MPI_Comm_idup",
                  [&](MPI_Request* handle) { return MPI_Comm_idup(native(), &operation.new_communicator(), handle); });
    pending.wait();
    mpi copy;
    copy.channel_ = std::make_unique<detail::mpi_channel>(channel_->shared_process(), operation.new_communicator());
    copy.limit_ = limit_;
    copy.largest_count_ = largest_count_;
    return copy;
  }

  void fail(std::string_view reason) noexcept {
    if (channel_ != nullptr) {
      channel_->process().fail(reason);
    }
  }

 private:
  mpi() noexcept = default;

  template <class Element, class Span>
  detail::mpi_operation& fresh(detail::call what, Span data) {
    what.count = static_cast<index_t>(data.size());
    what.element = element_name<Element>;
    detail::mpi_operation& operation = channel_->fresh(what, limit_);
    operation.element_type(detail::mpi_type<Element>());
    return operation;
  }

  void leave() noexcept {
    if (channel_ != nullptr && channel_->process().failed()) {
      // MPI may still hold memory of unfinished operations: it stays until the process ends, which is soon.
      static_cast<void>(channel_.release());
    }
    channel_.reset();
  }

  /// Calls part(begin, count) for parts that MPI can count; once for an empty array.
  template <class Part>
  void for_each_part(std::size_t size, Part&& part) const {
    const auto largest = static_cast<std::size_t>(largest_count_);
    std::size_t begin = 0;
    do {
      const std::size_t count = std::min(largest, size - begin);
      part(begin, static_cast<int>(count));
      begin += count;
    } while (begin < size);
  }

  std::unique_ptr<detail::mpi_channel> channel_;
  std::chrono::milliseconds limit_ = default_time_limit;
  int largest_count_ = INT_MAX;
};
static_assert(communicator<mpi>);

template <class Function>
decltype(auto) mpi_environment::run(Function&& function) {
  try {
    mpi world{*this};
    return std::forward<Function>(function)(world);
  } catch (const std::exception& failure) {
    fail(failure.what());
    throw;
  } catch (...) {
    fail("an exception that is not a std::exception");
    throw;
  }
}

}  // namespace gradus::comm
