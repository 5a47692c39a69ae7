// SPDX-License-Identifier: BSL-1.0
//
// A communicator of threads of one process: parallel training without MPI.
#pragma once

#include <atomic>     // std::atomic
#include <chrono>     // std::chrono::milliseconds
#include <concepts>   // std::same_as
#include <cstddef>    // std::size_t
#include <exception>  // std::current_exception, std::exception_ptr, std::rethrow_exception, std::uncaught_exceptions
#include <memory>     // std::addressof, std::make_shared, std::shared_ptr
#include <optional>   // std::optional
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view
#include <thread>           // std::thread
#include <type_traits>      // std::invoke_result_t, std::is_invocable_v, std::is_void_v, std::remove_reference_t
#include <utility>          // std::exchange, std::move
#include <vector>           // std::vector

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/detail/threads/channel.hpp"
#include "gradus/comm/reduction.hpp"
#include "gradus/comm/request.hpp"
#include "gradus/comm/thread_window.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/thread.hpp"
#include "gradus/device/processor_share.hpp"
#ifdef GRADUS_HAS_INSTANCES
#include "gradus/comm/link_of.hpp"
#endif

namespace gradus::comm {

namespace detail {
class rank_threads;
}  // namespace detail

/// A rank among threads of one process. Made by `run_ranks` or `threads::create`.
///
/// Collectives work in place on the ranks' buffers: contributions are combined in the order of the ranks, and waiting
/// ranks share the work. A send is complete when the receiver has the data. When the handle of a rank is destroyed,
/// other ranks that wait for it throw communication_error.
class threads : public typed_operations<threads> {
 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = "threads";
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = transferable<Element>;

  /// The communicators of a new group, the i-th for rank i; each is used by its own thread.
  /// @throws configuration_error unless 1 <= size <= 32767
  [[nodiscard]] static std::vector<threads> create(int size,
                                                   std::source_location where = std::source_location::current());

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, threads&> threads(Argument&& world) : threads{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// Takes over a rank; the other object has size() 0 afterwards.
  threads(threads&& other) noexcept
      : channel_{std::move(other.channel_)}, rank_{std::exchange(other.rank_, 0)}, limit_{other.limit_} {}

  /// Ends this communicator as the destructor does, then takes over the other.
  threads& operator=(threads&& other) noexcept;

  GRADUS_COLD ~threads() { leave(); }

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The number of ranks; 0 after a move.
  [[nodiscard]] int size() const noexcept { return channel_ == nullptr ? 0 : channel_->world().size(); }

  /// How long a wait takes at most.
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return limit_; }
  /// Sets the time limit of later waits. @throws configuration_error unless it is above 0
  void set_time_limit(std::chrono::milliseconds limit) {
    require_time_limit(name, limit);
    limit_ = limit;
  }

  /// Makes room for more messages at a time; see comm::reserve_messages.
  void reserve_messages(std::size_t count) {
    detail::require_open(detail::caller{*this}, "reserve_messages", std::source_location::current());
    channel_->reserve_messages(count);
  }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one);

  /// Called by all ranks: from now on each rank can read and write the arrays of the others, which may differ in size.
  template <transferable Element>
  [[nodiscard]] thread_window<Element> make_window(std::span<Element> data) {
    detail::require_open(detail::caller{*this}, "make_window", std::source_location::current());
    thread_window<Element> window{channel_->next_window(rank_), rank_, data};
    barrier().wait();
    return window;
  }

  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] threads duplicate() {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    return threads{channel_->duplicate(rank_, limit_), rank_, limit_};
  }

  /// Reports to all other ranks that this one has failed, and why.
  void fail(std::string_view reason) noexcept {
    if (channel_ != nullptr) {
      channel_->world().fail(rank_, reason);
    }
  }

  /// The first rank in the group that failed, or -1.
  [[nodiscard]] int failed_rank() const { return channel_ == nullptr ? -1 : channel_->world().failed_rank(); }

 private:
  friend class detail::rank_threads;

  static std::shared_ptr<detail::thread_channel> meet(int size, const std::source_location& where) {
    if (size < 1 || size > 32767) {
      raise<configuration_error>("comm::threads", "1 to 32767 ranks", {size}, {}, where);
    }
    return std::make_shared<detail::thread_channel>(std::make_shared<detail::thread_world>(size));
  }

  threads(std::shared_ptr<detail::thread_channel> channel, int rank, std::chrono::milliseconds limit)
      : channel_{std::move(channel)}, rank_{rank}, limit_{limit} {}

  request collective(const transfer& one, detail::thread_collective::kernel work, index_t elements,
                     index_t element_bytes) {
    return channel_->collective(rank_, one, work, elements, element_bytes, limit_);
  }

  void leave() noexcept;

  std::shared_ptr<detail::thread_channel> channel_;
  int rank_;
  std::chrono::milliseconds limit_;
};
static_assert(communicator<threads>);

namespace detail {

/// Reports the current exception to the other ranks as the reason why this one ends. Call it in a catch clause.
template <class Communicator>
void fail_with_current_exception(Communicator& communicator) noexcept {
  try {
    throw;
  } catch (const std::exception& failure) {
    communicator.fail(failure.what());
  } catch (...) {
    communicator.fail("an exception that is not a std::exception");
  }
}

/// run_ranks independent of the type of its function.
class rank_threads {
 public:
  using function = void (*)(void* object, threads& world);

  rank_threads(int size, const std::source_location& where)
      : channel_{threads::meet(size, where)},
        failures_(static_cast<std::size_t>(size)),
        ranks_in_process_{size * gradus::detail::ranks_in_process()} {}

  /// Calls body(object, communicator) on each rank.
  void run(function body, void* object);

 private:
  void run_rank(int rank) noexcept;

  std::shared_ptr<thread_channel> channel_;
  dynamic_array<std::exception_ptr> failures_;  // one per rank
  int ranks_in_process_;  // ranks of this run, times the ranks of the run in which the calling thread is one
  function body_ = nullptr;
  void* object_ = nullptr;
  std::atomic<int> next_rank_{1};
  std::atomic<int> first_failed_{-1};
};

/// run_ranks for a function object.
template <class Function>
auto call_on_ranks(int size, Function& function, std::source_location where) {
  using result = std::invoke_result_t<Function&, threads&>;
  rank_threads ranks{size, where};
  const auto run = [&ranks](auto& body) {
    using type = std::remove_reference_t<decltype(body)>;
    ranks.run([](void* object, threads& world) { (*static_cast<type*>(object))(world); },
              const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  };
  if constexpr (std::is_void_v<result>) {
    run(function);
  } else {
    dynamic_array<std::optional<result>> results(static_cast<std::size_t>(size));
    const auto keep = [&](threads& world) { results[static_cast<std::size_t>(world.rank())].emplace(function(world)); };
    run(keep);
    std::vector<result> values;
    values.reserve(results.size());
    for (std::optional<result>& each : results) {
      values.push_back(std::move(*each));
    }
    return values;
  }
}

}  // namespace detail

/// Calls function(communicator) on `size` ranks, each on its own thread; the calling thread is rank 0.
///
/// @code
///   comm::run_ranks(4, [](comm::threads& world) {
///     std::vector<float> values(1000, static_cast<float>(world.rank()));
///     comm::all_reduce(world, values).wait();
///   });
/// @endcode
///
/// @return  nothing if the function returns nothing, otherwise a std::vector of the results in the order of the ranks
/// @throws  the exception of the first rank that failed. Pending and later operations of the other ranks throw
/// communication_error with this rank and the reason, so that all of them end.
template <class Function>
auto run_ranks(int size, Function&& function, std::source_location where = std::source_location::current()) {
  static_assert(std::is_invocable_v<Function&, threads&>,
                "gradus: run_ranks calls function(world) with a comm::threads&: write comm::run_ranks(4, "
                "[&](gradus::comm::threads& world) { ... });");
  if constexpr (std::is_invocable_v<Function&, threads&>) {
    return detail::call_on_ranks(size, function, where);
  }
}

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE std::vector<threads> threads::create(int size, std::source_location where) {
  const auto channel = meet(size, where);
  std::vector<threads> ranks;
  ranks.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(threads{channel, rank, default_time_limit});
  }
  return ranks;
}

GRADUS_INLINE threads& threads::operator=(threads&& other) noexcept {
  if (this != &other) {
    leave();
    channel_ = std::move(other.channel_);
    rank_ = std::exchange(other.rank_, 0);
    limit_ = other.limit_;
  }
  return *this;
}

GRADUS_INLINE request threads::begin(const transfer& one) {
  const call_description& what = one.what;
  switch (what.kind) {
    case call_kind::send:
      return channel_->message(rank_, what, one.input, one.bytes(what.count), limit_);
    case call_kind::receive:
      return channel_->message(rank_, what, one.output, one.bytes(what.count), limit_);
    case call_kind::all_reduce:
      return collective(one, &detail::all_reduce_chunk, what.count, one.element->bytes);
    case call_kind::reduce_scatter:
      return collective(one, &detail::reduce_scatter_chunk, one.input_count(size()), one.element->bytes);
    case call_kind::broadcast:
      return collective(one, &detail::broadcast_chunk, what.count * one.element->bytes, 1);
    case call_kind::all_gather:
      return collective(one, &detail::all_gather_chunk, one.output_count(size()) * one.element->bytes, 1);
    case call_kind::barrier:
    case call_kind::duplicate:
    case call_kind::register_memory:
      break;
  }
  return collective(one, nullptr, 0, 1);
}

GRADUS_INLINE void threads::leave() noexcept {
  if (channel_ != nullptr) {
    if (std::uncaught_exceptions() > 0) {
      channel_->world().suspect(rank_, "it left the group because of an exception");  // the reason follows
    } else {
      channel_->depart(rank_);
    }
    channel_.reset();
  }
}

}  // namespace gradus::comm

namespace gradus::comm::detail {

GRADUS_INLINE void rank_threads::run(function body, void* object) {
  body_ = body;
  object_ = object;
  {
    struct joining_threads {
      dynamic_array<std::thread> list;
      ~joining_threads() {
        for (std::thread& each : list) {
          each.join();
        }
      }
    } others;
    others.list.reserve(failures_.size());
    try {
      for (std::size_t rank = 1; rank < failures_.size(); ++rank) {
        others.list.push_back(start_thread(
            "gradus rank",
            [](void* self) {
              auto& all = *static_cast<rank_threads*>(self);
              all.run_rank(all.next_rank_.fetch_add(1));
            },
            this));
      }
    } catch (const std::exception& failure) {
      channel_->world().fail(0, failure.what());
      throw;
    }
    run_rank(0);
  }
  if (first_failed_ >= 0) {
    std::exception_ptr first = failures_[static_cast<std::size_t>(first_failed_)];
    for (std::size_t rank = 0; first == nullptr; ++rank) {  // the first rank to fail threw nothing: it left too early
      first = failures_[rank];
    }
    std::rethrow_exception(first);
  }
}

GRADUS_INLINE void rank_threads::run_rank(int rank) noexcept {
  threads world{channel_, rank, default_time_limit};
  // Devices that are made here share the processors. The thread of rank 0 continues afterwards.
  const int before = std::exchange(gradus::detail::ranks_in_process(), ranks_in_process_);
  try {
    body_(object_, world);
  } catch (...) {
    failures_[static_cast<std::size_t>(rank)] = std::current_exception();
    threads own{channel_, rank, default_time_limit};  // the body may have moved from `world`
    fail_with_current_exception(own);
    first_failed_ = own.failed_rank();
  }
  gradus::detail::ranks_in_process() = before;
}

}  // namespace gradus::comm::detail
#endif

GRADUS_INSTANCE(class gradus::comm::link_of<::gradus::comm::threads>)
GRADUS_INSTANCE(class gradus::comm::owned_link<::gradus::comm::threads>)
