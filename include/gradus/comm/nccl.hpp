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
#include "gradus/comm/request.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"

namespace gradus::comm {

namespace detail {

template <class Element>
inline constexpr ncclDataType_t nccl_type = std::same_as<Element, float>          ? ncclFloat32
                                            : std::same_as<Element, double>       ? ncclFloat64
                                            : std::same_as<Element, std::int32_t> ? ncclInt32
                                            : std::same_as<Element, std::int64_t> ? ncclInt64
                                            : std::same_as<Element, bfloat16>     ? ncclBfloat16
                                            : std::same_as<Element, float16>      ? ncclFloat16
                                                                                  : ncclUint8;

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
class nccl {
 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "nccl";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>;
  /// See comm::matches_tags.
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

  /// Begins to send to another rank; see comm::send.
  template <transferable Element>
  [[nodiscard]] request send(int peer, std::span<const Element> data, int tag) {
    return begin_message({.kind = call_kind::send, .peer = peer, .tag = tag, .element = element_name<Element>},
                         data.data(), data.size(), sizeof(Element), detail::nccl_type<Element>);
  }

  /// Begins to receive from another rank; see comm::receive.
  template <transferable Element>
  [[nodiscard]] request receive(int peer, std::span<Element> data, int tag) {
    return begin_message({.kind = call_kind::receive, .peer = peer, .tag = tag, .element = element_name<Element>},
                         data.data(), data.size(), sizeof(Element), detail::nccl_type<Element>);
  }

  /// Begins an all-reduce; see comm::all_reduce.
  template <transferable Element>
  [[nodiscard]] request all_reduce(std::span<Element> data, reduction operation) {
    return begin_all_reduce({.kind = call_kind::all_reduce, .operation = operation, .element = element_name<Element>},
                            data.data(), data.size(), sizeof(Element), detail::nccl_type<Element>);
  }

  /// Begins a broadcast; see comm::broadcast.
  template <transferable Element>
  [[nodiscard]] request broadcast(std::span<Element> data, int root) {
    return begin_broadcast({.kind = call_kind::broadcast, .peer = root, .element = element_name<Element>}, data.data(),
                           data.size(), sizeof(Element), detail::nccl_type<Element>);
  }

  /// Begins a reduce-scatter; see comm::reduce_scatter.
  template <transferable Element>
  [[nodiscard]] request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction operation) {
    return begin_reduce_scatter(
        {.kind = call_kind::reduce_scatter, .operation = operation, .element = element_name<Element>}, input.data(),
        output.data(), output.size(), sizeof(Element), detail::nccl_type<Element>);
  }

  /// Begins an all-gather; see comm::all_gather.
  template <transferable Element>
  [[nodiscard]] request all_gather(std::span<const Element> input, std::span<Element> output) {
    return begin_all_gather({.kind = call_kind::all_gather, .element = element_name<Element>}, input.data(),
                            output.data(), input.size(), sizeof(Element), detail::nccl_type<Element>);
  }

  /// Begins a barrier; see comm::barrier.
  [[nodiscard]] request barrier() {
    return begin({.kind = call_kind::barrier}, [this](detail::nccl_operation& operation) {
      void* const one = channel_->lend(operation, &barrier_byte_, 1, true, false);
      return [this, one] {
        return ncclAllReduce(one, one, 1, ncclUint8, ncclMax, channel_->communicator(), channel_->stream());
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
    const int place = detail::position_of(rank(), ranks);
    const int color = ranks.empty() ? NCCL_SPLIT_NOCOLOR : ranks.front();
    for (int& each : ranks) {
      each = channel_->name_of(each);
    }
    constexpr call_description what{.kind = call_kind::duplicate};
    ncclComm_t made = split_by_color(color, place, what);
    return part(made, what, place, std::move(ranks));
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
  ncclComm_t split_by_color(int color, int place, const call_description& what) {
    channel_->give_back(channel_->fresh(what, limit_));  // throws where a rank has failed
    channel_->launch_messages();
    device().activate();
    ncclConfig_t config = options();
    ncclComm_t made = nullptr;
    channel_->settle(ncclCommSplit(channel_->communicator(), color, place, &made, &config), what, limit_,
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
  [[nodiscard]] request begin(const call_description& what, const Prepare& prepare) {
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

  request begin_message(call_description what, const void* data, std::size_t count, std::size_t bytes,
                        ncclDataType_t type) {
    what.count = static_cast<index_t>(count);
    const int peer = what.peer;
    what.peer = channel_->name_of(peer);
    detail::nccl_operation& operation = channel_->fresh(what, limit_);
    const bool sends = what.kind == call_kind::send;
    try {
      channel_->enter();
      channel_->lend(operation, data, count * bytes, sends, !sends);
      channel_->add_message({&operation, sends, peer, type});
    } catch (...) {
      channel_->give_back(operation);
      throw;
    }
    return request{operation};
  }

  request begin_all_reduce(call_description what, void* data, std::size_t count, std::size_t bytes,
                           ncclDataType_t type) {
    what.count = static_cast<index_t>(count);
    return begin(what, [&, this](detail::nccl_operation& operation) {
      void* const at = channel_->lend(operation, data, count * bytes, true, true);
      return [=, this] {
        return ncclAllReduce(at, at, count, type, detail::nccl_operation_of(what.operation), native(),
                             channel_->stream());
      };
    });
  }

  request begin_broadcast(call_description what, void* data, std::size_t count, std::size_t bytes,
                          ncclDataType_t type) {
    what.count = static_cast<index_t>(count);
    const int root = what.peer;
    what.peer = channel_->name_of(root);
    return begin(what, [&, this](detail::nccl_operation& operation) {
      void* const at = channel_->lend(operation, data, count * bytes, rank() == root, true);
      return [=, this] { return ncclBroadcast(at, at, count, type, root, native(), channel_->stream()); };
    });
  }

  /// @param count  elements per rank
  request begin_reduce_scatter(call_description what, const void* input, void* output, std::size_t count,
                               std::size_t bytes, ncclDataType_t type) {
    what.count = static_cast<index_t>(count);
    return begin(what, [&, this](detail::nccl_operation& operation) {
      const auto blocks = static_cast<std::size_t>(size());
      void* const from = channel_->lend(operation, input, blocks * count * bytes, true, false);
      void* const to = channel_->lend(operation, output, count * bytes, false, true);
      return [=, this] {
        return ncclReduceScatter(from, to, count, type, detail::nccl_operation_of(what.operation), native(),
                                 channel_->stream());
      };
    });
  }

  /// @param count  elements per rank
  request begin_all_gather(call_description what, const void* input, void* output, std::size_t count, std::size_t bytes,
                           ncclDataType_t type) {
    what.count = static_cast<index_t>(count);
    return begin(what, [&, this](detail::nccl_operation& operation) {
      const auto blocks = static_cast<std::size_t>(size());
      void* const from = channel_->lend(operation, input, count * bytes, true, false);
      void* const to = channel_->lend(operation, output, blocks * count * bytes, false, true);
      return [=, this] { return ncclAllGather(from, to, count, type, native(), channel_->stream()); };
    });
  }

  std::unique_ptr<detail::nccl_channel> channel_;
  std::chrono::milliseconds limit_ = default_time_limit;
  std::uint8_t barrier_byte_ = 0;
};
static_assert(communicator<nccl>);

}  // namespace gradus::comm
