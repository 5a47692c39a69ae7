// SPDX-License-Identifier: BSL-1.0
//
// A communicator of GPUs, connected by NCCL. Component gradus::nccl.
#pragma once

#include <nccl.h>  // ncclAllReduce

#include <chrono>           // std::chrono::milliseconds
#include <concepts>         // std::same_as
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::int32_t, std::int64_t, std::uint8_t
#include <cstdio>           // std::remove
#include <memory>           // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::as_writable_bytes, std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move
#include <vector>           // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/nccl/host_link.hpp"
#include "gradus/comm/detail/nccl/id_file.hpp"
#include "gradus/comm/detail/nccl/operation.hpp"
#include "gradus/comm/detail/request/checks.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/comm/link_of.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"

namespace gradus::comm {

namespace detail {

[[nodiscard]] constexpr ncclDataType_t nccl_type_of(element_kind kind) noexcept {
  switch (kind) {
    case element_kind::float32:
      return ncclFloat32;
    case element_kind::float64:
      return ncclFloat64;
    case element_kind::int32:
      return ncclInt32;
    case element_kind::int64:
      return ncclInt64;
    case element_kind::bfloat16:
      return ncclBfloat16;
    case element_kind::float16:
      return ncclFloat16;
    case element_kind::uint8:
      break;
  }
  return ncclUint8;
}

[[nodiscard]] constexpr ncclRedOp_t nccl_operation_of(reduction operation) noexcept {
  switch (operation) {
    case reduction::sum:
      return ncclSum;
    case reduction::product:
      return ncclProd;
    case reduction::minimum:
      return ncclMin;
    case reduction::maximum:
      return ncclMax;
  }
  return ncclSum;
}

}  // namespace detail

/// A rank among GPUs, one GPU per rank, in one process or in many.
///
///   cuda device{{.device = local_rank}};
///   comm::nccl gpus{mpi.duplicate(), device};  // or of comm::threads: any communicator of the same ranks
///   train::trainer trainer{net, rule, gpus};
///
/// Buffers are spans of elements in GPU memory. Spans of host memory are copied to the GPU and back; use them for a few
/// numbers only. Communications run on a stream of their own. Each begins after the work that was submitted to the
/// device before it. After a wait, the host and all later work of the device see the result.
///
/// A wait checks NCCL's asynchronous errors and the host communicator. A failure becomes communication_error with the
/// rank and the reason, ncclCommAbort ends the communications under way, and the communicator and its duplicates can no
/// longer be used. Without a host communicator (ranks that met through a file), a rank learns of another rank's failure
/// from NCCL or by the time limit.
///
/// Differences from other communicators: messages that are begun before a wait travel together, and tags are matched
/// only among these (matches_tags is false); some ranks of it have a communicator by comm::split, not a comm::subset;
/// two communicators on one GPU begin their collectives in the same order on all ranks; and sizes that differ between
/// two ranks are not detected.
class nccl : public typed_operations<nccl> {
 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "nccl";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>;
  /// Messages are matched by their order: comm::matches_tags is false.
  static constexpr bool matches_tags = false;

  /// The ranks of a host communicator, which this one owns from now on: pass a duplicate. Called by all ranks, each
  /// with its own GPU.
  /// @throws device_error, communication_error if NCCL cannot connect them
  template <class Communicator>
  nccl(Communicator hosts, cuda& device) : limit_{hosts.time_limit()} {
    static_assert(explain_communicator<Communicator>());
    detail::require_open(detail::caller{hosts}, "comm::nccl", std::source_location::current());
    const int rank = hosts.rank();
    const int size = hosts.size();
    auto notices = std::make_shared<detail::host_link>(
        rank, std::make_unique<detail::host_ranks>(std::make_unique<owned_link<Communicator>>(std::move(hosts))));
    ncclUniqueId id{};
    if (rank == 0) {
      make_id(id);
    }
    notices->broadcast(std::as_writable_bytes(std::span{&id, 1}));
    connect(device, std::move(notices), id, rank, size);
  }

  /// Ranks that share only a directory: rank 0 writes NCCL's id to the file, which must not exist, and removes it when
  /// all ranks are connected.
  /// @param limit  how long the ranks wait for each other, now and later
  /// @throws configuration_error, format_error, communication_error if they do not find each other
  nccl(const std::string& path, int rank, int size, cuda& device, std::chrono::milliseconds limit = default_time_limit)
      : limit_{limit} {
    require_time_limit("comm::nccl", limit);
    if (size < 1 || rank < 0 || rank >= size) {
      gradus::raise<configuration_error>("comm::nccl", {"a rank from 0 to ", size - 1, " of at least 1"}, {rank});
    }
    ncclUniqueId id{};
    const auto bytes = std::as_writable_bytes(std::span{&id, 1});
    if (rank == 0) {
      make_id(id);
      detail::write_id_file(path, size, bytes);
    } else {
      detail::read_id_file(path, size, bytes, limit);
    }
    connect(device, std::make_shared<detail::host_link>(rank, nullptr), id, rank, size);
    if (rank == 0) {
      std::remove(path.c_str());
    }
  }

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return channel_ == nullptr ? 0 : channel_->rank(); }
  /// The number of ranks; 0 after a move.
  [[nodiscard]] int size() const noexcept { return channel_ == nullptr ? 0 : channel_->size(); }

  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return limit_; }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    require_time_limit(name, limit);
    limit_ = limit;
  }

  /// The NCCL communicator, for calls that this class does not offer; null after a failure. This object still owns it.
  [[nodiscard]] ncclComm_t native() const noexcept { return channel_ == nullptr ? nullptr : channel_->communicator(); }
  /// The GPU of this rank.
  [[nodiscard]] cuda& device() const noexcept { return channel_->device(); }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    switch (one.what.kind) {
      case call_kind::send:
      case call_kind::receive:
        return begin_message(one);
      case call_kind::all_reduce:
        return begin_all_reduce(one);
      case call_kind::broadcast:
        return begin_broadcast(one);
      case call_kind::reduce_scatter:
        return begin_reduce_scatter(one);
      case call_kind::all_gather:
        return begin_all_gather(one);
      case call_kind::barrier:
      case call_kind::duplicate:
      case call_kind::register_memory:
        break;
    }
    return begin_collective({.kind = call_kind::barrier}, [this](detail::nccl_operation& operation) {
      void* const byte = channel_->lend(operation, &barrier_byte_, 1, true, false);
      return [this, byte] {
        return ncclAllReduce(byte, byte, 1, ncclUint8, ncclMax, channel_->communicator(), channel_->stream());
      };
    });
  }

  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] nccl duplicate() {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    constexpr call_description what{.kind = call_kind::duplicate};
    ncclComm_t made = split_by_color(0, rank(), what);
    return part(made, what, rank(), channel_->names());
  }

  /// A communicator of some ranks with separate messages; see comm::split. Called by all ranks. Errors name the ranks
  /// of this communicator.
  [[nodiscard]] nccl split(std::vector<int> ranks,
                           const std::source_location& where = std::source_location::current()) {
    detail::require_open(detail::caller{*this}, "split", where);
    {
      link_of<nccl> group{*this};
      detail::require_lists(group, ranks, false, where);
    }
    const int position = detail::position_of(rank(), ranks);
    const int color = ranks.empty() ? NCCL_SPLIT_NOCOLOR : ranks.front();
    for (int& each : ranks) {
      each = channel_->name_of(each);
    }
    constexpr call_description what{.kind = call_kind::duplicate};
    ncclComm_t made = split_by_color(color, position, what);
    return part(made, what, position, std::move(ranks));
  }

  /// Reports to all other ranks that this one has failed, and why.
  void fail(std::string_view reason) noexcept {
    if (channel_ != nullptr) {
      channel_->give_up(reason);
    }
  }

 private:
  nccl() noexcept = default;

  [[nodiscard]] static ncclConfig_t options() noexcept {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // so that every wait has a time limit
    return config;
  }

  /// @param color  the same on the ranks of one part
  ncclComm_t split_by_color(int color, int position, const call_description& what) {
    channel_->give_back(channel_->fresh(what, limit_));  // throws where a rank has failed
    channel_->launch_messages();
    device().activate();
    ncclConfig_t config = options();
    ncclComm_t made = nullptr;
    channel_->settle(ncclCommSplit(channel_->communicator(), color, position, &made, &config), what, limit_,
                     std::source_location::current());
    return made;
  }

  /// The ranks that have got `made`, which may still be connecting; null on a rank of no part.
  /// @param names  of the ranks in errors
  [[nodiscard]] nccl part(ncclComm_t made, const call_description& what, int rank, std::vector<int> names) {
    nccl result;
    result.limit_ = limit_;
    if (made != nullptr) {
      result.channel_ =
          std::make_unique<detail::nccl_channel>(device(), channel_->notices(), made, rank, std::move(names));
      result.channel_->settle(ncclInProgress, what, limit_, std::source_location::current());
    }
    return result;
  }

  static void make_id(ncclUniqueId& id) {
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
      gradus::raise<communication_error>("comm::nccl", {}, {"NCCL: ", ncclGetErrorString(result)},
                                         "set NCCL_DEBUG=INFO in the environment for details from NCCL");
    }
  }

  void connect(cuda& device, std::shared_ptr<detail::host_link> notices, const ncclUniqueId& id, int rank, int size) {
    device.activate();
    ncclConfig_t config = options();
    ncclComm_t made = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&made, size, id, rank, &config);
    std::vector<int> names;
    for (int each = 0; each < size; ++each) {
      names.push_back(each);
    }
    channel_ = std::make_unique<detail::nccl_channel>(device, std::move(notices), made, rank, std::move(names));
    channel_->settle(result, {.kind = call_kind::duplicate}, limit_, std::source_location::current());
    barrier().wait();  // connects the ranks
  }

  /// Begins a collective: prepare(operation) maps its buffers and returns the function that submits the work to NCCL.
  template <class Prepare>
  [[nodiscard]] request begin_collective(const call_description& what, const Prepare& prepare) {
    detail::nccl_operation& operation = channel_->fresh(what, limit_);
    try {
      channel_->launch_messages();
      channel_->enter();
      channel_->launch(operation, prepare(operation));
    } catch (...) {
      channel_->give_back(operation);
      throw;
    }
    return request{operation};
  }

  [[nodiscard]] request begin_message(const transfer& one) {
    call_description what = one.what;
    what.peer = channel_->name_of(one.what.peer);
    detail::nccl_operation& operation = channel_->fresh(what, limit_);
    const bool sends = what.kind == call_kind::send;
    try {
      channel_->enter();
      channel_->lend(operation, sends ? one.input : one.output, one.bytes(what.count), sends, !sends);
      channel_->add_message({&operation, sends, one.what.peer, detail::nccl_type_of(one.element->kind)});
    } catch (...) {
      channel_->give_back(operation);
      throw;
    }
    return request{operation};
  }

  [[nodiscard]] request begin_all_reduce(const transfer& one) {
    return begin_collective(one.what, [&, this](detail::nccl_operation& operation) {
      void* const at = channel_->lend(operation, one.output, one.bytes(one.what.count), true, true);
      return [=, this] {
        return ncclAllReduce(at, at, static_cast<std::size_t>(one.what.count), detail::nccl_type_of(one.element->kind),
                             detail::nccl_operation_of(one.what.operation), native(), channel_->stream());
      };
    });
  }

  [[nodiscard]] request begin_broadcast(const transfer& one) {
    call_description what = one.what;
    what.peer = channel_->name_of(one.what.peer);
    return begin_collective(what, [&, this](detail::nccl_operation& operation) {
      const bool is_root = rank() == one.what.peer;
      void* const at = channel_->lend(operation, one.output, one.bytes(one.what.count), is_root, true);
      return [=, this] {
        return ncclBroadcast(at, at, static_cast<std::size_t>(one.what.count), detail::nccl_type_of(one.element->kind),
                             one.what.peer, native(), channel_->stream());
      };
    });
  }

  [[nodiscard]] request begin_reduce_scatter(const transfer& one) {
    return begin_collective(one.what, [&, this](detail::nccl_operation& operation) {
      void* const from = channel_->lend(operation, one.input, one.bytes(one.input_count(size())), true, false);
      void* const to = channel_->lend(operation, one.output, one.bytes(one.what.count), false, true);
      return [=, this] {
        return ncclReduceScatter(from, to, static_cast<std::size_t>(one.what.count),
                                 detail::nccl_type_of(one.element->kind), detail::nccl_operation_of(one.what.operation),
                                 native(), channel_->stream());
      };
    });
  }

  [[nodiscard]] request begin_all_gather(const transfer& one) {
    return begin_collective(one.what, [&, this](detail::nccl_operation& operation) {
      void* const from = channel_->lend(operation, one.input, one.bytes(one.what.count), true, false);
      void* const to = channel_->lend(operation, one.output, one.bytes(one.output_count(size())), false, true);
      return [=, this] {
        return ncclAllGather(from, to, static_cast<std::size_t>(one.what.count),
                             detail::nccl_type_of(one.element->kind), native(), channel_->stream());
      };
    });
  }

  std::unique_ptr<detail::nccl_channel> channel_;
  std::chrono::milliseconds limit_ = default_time_limit;
  std::uint8_t barrier_byte_ = 0;
};
static_assert(communicator<nccl>);

}  // namespace gradus::comm
