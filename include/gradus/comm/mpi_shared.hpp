// SPDX-License-Identifier: BSL-1.0
//
// A communicator of MPI ranks on one node, with collectives through shared memory. Component gradus::mpi.
#pragma once

#include <mpi.h>

#include <algorithm>        // std::max
#include <array>            // std::array
#include <chrono>           // std::chrono::milliseconds
#include <concepts>         // std::same_as
#include <cstddef>          // std::byte, std::size_t
#include <cstdint>          // std::int64_t
#include <memory>           // std::make_shared, std::make_unique, std::shared_ptr, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/mpi/blocking_calls.hpp"
#include "gradus/comm/detail/mpi/check.hpp"
#include "gradus/comm/detail/mpi/process.hpp"
#include "gradus/comm/detail/mpi/registered_memory.hpp"
#include "gradus/comm/detail/mpi_shared/channel.hpp"
#include "gradus/comm/detail/mpi_shared/memory.hpp"
#include "gradus/comm/detail/mpi_shared/steps.hpp"
#include "gradus/comm/mpi.hpp"
#include "gradus/comm/mpi_environment.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/comm/wait.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"

namespace gradus::comm {

/// Options of `mpi_shared`.
struct mpi_shared_options {
  /// Arrays pass through shared memory in pieces of this many bytes, which stay in the caches. The same on all ranks;
  /// results do not depend on it. Rounded up so that each rank has a part of at least 64 bytes.
  index_t segment_bytes = 512 * 1024;
};

/// A rank among the processes of an MPI job that run on one node. Collectives use memory that the ranks share (an MPI-3
/// shared window), at the speed of memory; messages are those of `mpi`.
///
/// A rank copies a piece of its array into its part of the shared window and sets a flag next to it. Each rank reduces
/// a part of the piece, in the order of the ranks, so all ranks get the same bits for every piece size. Then each rank
/// copies the parts of the others. Meanwhile the next piece is under way. Small arrays are exchanged at once and
/// reduced by every rank.
///
/// The ranks run collectives themselves, in the order in which they were begun: a collective makes progress while a
/// rank waits for or tests a request of this communicator, but not while it waits for another communicator.
///
/// Failures are handled as in `mpi`: every wait has a time limit, and a rank that fails makes the others fail with its
/// reason. Ranks that begin different collectives get communication_error with both calls.
///
/// An array that is reduced repeatedly can be registered. Then all ranks can access it, and a large all_reduce of it
/// copies nothing. parallel::all_reduce registers the gradients. parallel::sharded_update, the default of trainers
/// here, also registers the parameters and the state of the update rule.
///
/// Each communicator uses (4 * segment_bytes + 8 KiB) of shared memory per rank, and as much again as the memory that
/// is registered. Duplicates reuse the memory that others have released; the process keeps all of it until MPI is
/// finalized.
class mpi_shared : public typed_operations<mpi_shared> {
 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "mpi_shared";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>;

  /// All ranks of the job, which must run on one node. Called by all ranks.
  /// @throws configuration_error with the ranks on other nodes, or if options are out of range or differ
  explicit mpi_shared(mpi_environment& environment, mpi_shared_options options = {},
                      std::source_location where = std::source_location::current())
      : mpi_shared{environment, MPI_COMM_WORLD, options, where} {}

  /// The ranks of `ranks`, which must run on one node. Called by all its ranks; the MPI communicator is duplicated.
  /// @throws configuration_error with the ranks on other nodes, or if options are out of range or differ
  mpi_shared(mpi_environment& environment, MPI_Comm ranks, mpi_shared_options options = {},
             std::source_location where = std::source_location::current())
      : channel_{open(mpi{environment, ranks}, options, where)}, limit_{environment.options_.time_limit} {}

  /// The ranks of `ranks`, which must run on one node, in a program that begins MPI itself: see mpi. Shared memory
  /// stays until MPI_Finalize, so make one and keep it.
  /// @throws configuration_error with the ranks on other nodes, or if options are out of range or differ
  explicit mpi_shared(MPI_Comm ranks, mpi_shared_options options = {}, mpi_options of_guest = {},
                      std::source_location where = std::source_location::current())
      : channel_{open(mpi{ranks, of_guest, where}, options, where)}, limit_{of_guest.time_limit} {}

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, mpi_shared&> mpi_shared(Argument&& world) : mpi_shared{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// The ranks of a job, split by node; see split_by_node.
  struct split;

  /// Splits the ranks of `ranks` by the nodes on which they run. Called by all its ranks.
  [[nodiscard]] static split split_by_node(mpi_environment& environment, MPI_Comm ranks = MPI_COMM_WORLD,
                                           mpi_shared_options options = {});

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return channel_ == nullptr ? 0 : channel_->rank(); }
  /// The number of ranks; 0 after a move.
  [[nodiscard]] int size() const noexcept { return channel_ == nullptr ? 0 : channel_->size(); }

  /// True if one thread makes all calls, as mpi::one_thread.
  [[nodiscard]] bool one_thread() const noexcept { return channel_ != nullptr && channel_->messages().one_thread(); }

  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return limit_; }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    require_time_limit(name, limit);
    limit_ = limit;
    if (channel_ != nullptr) {
      channel_->messages().set_time_limit(limit);
    }
  }

  /// Makes room for more messages at a time; see comm::reserve_messages.
  void reserve_messages(std::size_t count) {
    detail::require_open(detail::caller{*this}, "reserve_messages", std::source_location::current());
    channel_->reserve_messages(count);
  }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    if (one.what.kind == call_kind::send || one.what.kind == call_kind::receive) {
      return channel_->begin_message(one.what, limit_, [&, this] { return channel_->messages().begin(one); });
    }
    return channel_->begin({.what = one.what,
                            .input = static_cast<const std::byte*>(one.input),
                            .output = static_cast<std::byte*>(one.output),
                            .element = one.element},
                           limit_);
  }

  /// A handle of registered memory. When the last handle is gone, the memory is private to this rank again. The
  /// destructor waits for collectives of the memory that are under way.
  class registration {
   public:
    registration() noexcept = default;
    /// Takes over the handle; the other one is empty afterwards.
    registration(registration&&) noexcept = default;
    /// Releases this handle, then takes over the other.
    registration& operator=(registration&& other) noexcept {
      end();
      of_channel_ = std::move(other.of_channel_);
      return *this;
    }
    ~registration() { end(); }

    /// True if the ranks can access each other's memory. Otherwise elements pass through shared memory in pieces, as
    /// for other arrays. This happens if the system does not allow it or has too little shared memory (in a container
    /// /dev/shm often has 64 MB), for arrays shorter than a page, with pieces shorter than two pages, and for parts of
    /// registered arrays and of arrays that other ranks share.
    [[nodiscard]] bool active() const noexcept { return of_channel_ != nullptr; }

   private:
    friend class mpi_shared;
    template <class Element>
    friend class window;
    explicit registration(std::shared_ptr<detail::mpi_registration> of_channel) noexcept
        : of_channel_{std::move(of_channel)} {}

    [[nodiscard]] const detail::mpi_registered_memory* memory() const noexcept {
      return active() ? of_channel_->memory() : nullptr;
    }

    void end() noexcept {
      if (of_channel_ != nullptr) {
        of_channel_->end();
      }
    }

    std::shared_ptr<detail::mpi_registration> of_channel_;
  };

  /// Called by all ranks, each with an array of the same size, which keeps its address and contents; its whole pages
  /// are replaced by shared ones (Linux: mremap of an MPI-3 window). From then on, an all_reduce of the array or a part
  /// of it, the same elements on all ranks, with more than 16 KiB (of all ranks together), runs in place: every rank
  /// reads and writes the arrays of the others. Duplicates may register the same array. After a failure other ranks may
  /// still write to it until they learn of the failure.
  /// @pre no thread uses the array during the call, and the array outlives the handle
  /// @throws communication_error if the ranks' sizes differ
  template <transferable Element>
  [[nodiscard]] registration register_memory(std::span<Element> data) {
    detail::require_open(detail::caller{*this}, "register_memory", std::source_location::current());
    if (size() == 1) {
      return {};
    }
    return registration{channel_->register_memory(reinterpret_cast<std::byte*>(data.data()),
                                                  static_cast<index_t>(data.size_bytes()), limit_)};
  }

  /// The parts of the ranks' arrays that all ranks can access.
  template <class Element>
  class window {
   public:
    /// Index of the first accessible element: the first whole page on all ranks begins there.
    [[nodiscard]] index_t first() const noexcept { return first_; }
    /// The accessible part of a rank's array, which begins at its element first(); empty if registered memory is not
    /// active. The ranks must agree when each reads or writes, e.g. by barriers.
    [[nodiscard]] std::span<Element> of(int rank) const noexcept { return arrays_[static_cast<std::size_t>(rank)]; }

    /// Always true: shared pages stay valid until MPI is finalized.
    [[nodiscard]] static constexpr bool use() noexcept { return true; }

   private:
    friend class mpi_shared;
    window(registration memory, std::span<Element> data, int ranks)
        : memory_{std::move(memory)}, arrays_(static_cast<std::size_t>(ranks), std::span<Element>{}) {
      if (ranks == 1) {
        arrays_[0] = data;
      } else if (const detail::mpi_registered_memory* const shared = memory_.memory()) {
        constexpr auto bytes = static_cast<index_t>(sizeof(Element));
        first_ = (shared->first() + bytes - 1) / bytes;
        const index_t last = shared->last() / bytes;
        for (int rank = 0; rank < ranks; ++rank) {
          arrays_[static_cast<std::size_t>(rank)] = {reinterpret_cast<Element*>(shared->origin(rank)) + first_,
                                                     static_cast<std::size_t>(std::max<index_t>(last - first_, 0))};
        }
      }
    }

    registration memory_;
    index_t first_ = 0;
    dynamic_array<std::span<Element>> arrays_;  // one per rank
  };

  /// Called by all ranks, each with an array of the same size. The array stays registered for the lifetime of the
  /// window; see register_memory.
  /// @throws communication_error if the ranks' sizes differ
  template <transferable Element>
  [[nodiscard]] window<Element> make_window(std::span<Element> data) {
    return {register_memory(data), data, size()};
  }

  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] mpi_shared duplicate() {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    // MPI's call that makes windows returns only after all ranks have called it, so synchronize first, with a time
    // limit.
    const call_description what{.kind = call_kind::duplicate};
    channel_->begin({.what = what}, limit_).wait();
    const detail::mpi_blocking_calls call{channel_->process(), what, limit_, channel_->world()};
    mpi_shared copy;
    copy.channel_ = std::make_unique<detail::mpi_shared_channel>(channel_->messages().duplicate(), channel_->process(),
                                                                 channel_->world(), channel_->segment_bytes(),
                                                                 channel_->pool(), call);
    copy.limit_ = limit_;
    return copy;
  }

  /// Reports to all other ranks that this one has failed, and why.
  void fail(std::string_view reason) noexcept {
    if (channel_ != nullptr) {
      channel_->process().fail(reason);
    }
  }

  /// Asks the other ranks what they wait for, as mpi::ask_others.
  [[nodiscard]] std::string ask_others(const call_description& waiting_for) {
    detail::require_open(detail::caller{*this}, "ask_others", std::source_location::current());
    return channel_->process().ask_others(waiting_for);
  }

  /// The ranks that do not answer, as mpi::silent_ranks.
  [[nodiscard]] dynamic_array<int> silent_ranks(std::string_view waiting_for,
                                                const std::source_location& where = std::source_location::current()) {
    detail::require_open(detail::caller{*this}, "silent_ranks", where);
    return channel_->messages().silent_ranks(waiting_for, where);
  }

 private:
  mpi_shared() noexcept = default;

  static std::unique_ptr<detail::mpi_shared_channel> open(mpi messages, const mpi_shared_options& options,
                                                          const std::source_location& where) {
    const int size = messages.size();
    detail::mpi_process& process = messages.channel_->process();
    const bool world = messages.channel_->world();
    const detail::mpi_blocking_calls call{process, std::string_view{"comm::mpi_shared"}, messages.time_limit(), world,
                                          where};
    require_one_node(messages, call, where);
    const auto range = std::array{std::int64_t{options.segment_bytes}, std::int64_t{-options.segment_bytes}};
    const auto extremes = call([ranks = messages.native(), all = range]() mutable {
      detail::check_mpi(MPI_Allreduce(MPI_IN_PLACE, all.data(), 2, MPI_INT64_T, MPI_MAX, ranks), name, "MPI_Allreduce");
      return all;
    });
    if (extremes[0] != -extremes[1]) {
      raise<configuration_error>(name, "the same segment_bytes on all ranks",
                                 {"sizes from ", -extremes[1], " to ", extremes[0]}, {}, where);
    }
    if (options.segment_bytes < 1 || options.segment_bytes > (index_t{1} << 30)) {
      raise<configuration_error>(name, "segment_bytes from 1 to 2^30", {options.segment_bytes}, {}, where);
    }
    const auto unit = static_cast<std::size_t>(size) * 64;
    const std::size_t bytes = (static_cast<std::size_t>(options.segment_bytes) + unit - 1) / unit * unit;
    return std::make_unique<detail::mpi_shared_channel>(std::move(messages), process, world, bytes,
                                                        std::make_shared<detail::mpi_shared_pool>(), call);
  }

  static void require_one_node(const mpi& messages, const detail::mpi_blocking_calls& call,
                               const std::source_location& where) {
    const auto size = static_cast<std::size_t>(messages.size());
    const dynamic_array<int> nodes = call([ranks = messages.native(), rank = messages.rank(), size] {
      MPI_Comm node = MPI_COMM_NULL;
      detail::check_mpi(MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), name,
                        "MPI_Comm_split_type");
      int own = rank;
      // The first rank of a node gives the node its number.
      detail::check_mpi(MPI_Bcast(&own, 1, MPI_INT, 0, node), name, "MPI_Bcast");
      MPI_Comm_free(&node);
      dynamic_array<int> all(size);
      detail::check_mpi(MPI_Allgather(&own, 1, MPI_INT, all.data(), 1, MPI_INT, ranks), name, "MPI_Allgather");
      return all;
    });
    const int own = nodes[static_cast<std::size_t>(messages.rank())];
    dynamic_array<int> elsewhere;
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (nodes[rank] != own) {
        elsewhere.push_back(static_cast<int>(rank));
      }
    }
    if (!elsewhere.empty()) {
      raise<configuration_error>(name, "ranks on one node",
                                 {ranks_text(elsewhere), " on other nodes than rank ", messages.rank()},
                                 "split the ranks by mpi_shared::split_by_node", where);
    }
  }

  std::unique_ptr<detail::mpi_shared_channel> channel_;
  std::chrono::milliseconds limit_ = default_time_limit;
};
static_assert(communicator<mpi_shared>);

/// The communicators of a rank after a job is split by node.
struct mpi_shared::split {
  mpi_shared local;  ///< the ranks of this node, in the order of the whole
  mpi across;        ///< the ranks of all nodes with the same rank in `local`, in the order of the nodes
  int node;          ///< index of this rank's node, in the order of the nodes' first ranks
  int nodes;         ///< number of nodes
};

inline mpi_shared::split mpi_shared::split_by_node(mpi_environment& environment, MPI_Comm ranks,
                                                   mpi_shared_options options) {
  constexpr std::string_view operation = "comm::mpi_shared::split_by_node";
  struct split_ranks {
    MPI_Comm local = MPI_COMM_NULL;
    MPI_Comm across = MPI_COMM_NULL;
    int node = 0;   // number of nodes whose first rank is at most this one
    int nodes = 0;  // number of all nodes
  };
  const detail::mpi_blocking_calls call{*environment.process_, operation, environment.options_.time_limit,
                                        ranks == MPI_COMM_WORLD};
  split_ranks made = call([ranks, operation] {
    const auto check = [operation](int code, std::string_view function) {
      detail::check_mpi(code, operation, function);
    };
    split_ranks of;
    int rank = 0;
    check(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank");
    check(MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &of.local), "MPI_Comm_split_type");
    int local_rank = 0;
    check(MPI_Comm_rank(of.local, &local_rank), "MPI_Comm_rank");
    const int first = local_rank == 0 ? 1 : 0;
    check(MPI_Scan(&first, &of.node, 1, MPI_INT, MPI_SUM, ranks), "MPI_Scan");
    check(MPI_Allreduce(&first, &of.nodes, 1, MPI_INT, MPI_SUM, ranks), "MPI_Allreduce");
    check(MPI_Bcast(&of.node, 1, MPI_INT, 0, of.local), "MPI_Bcast");
    check(MPI_Comm_split(ranks, local_rank, of.node, &of.across), "MPI_Comm_split");
    return of;
  });
  split result{mpi_shared{environment, made.local, options}, mpi{environment, made.across}, made.node - 1, made.nodes};
  MPI_Comm_free(&made.across);
  MPI_Comm_free(&made.local);
  return result;
}

}  // namespace gradus::comm
