// SPDX-License-Identifier: BSL-1.0
//
// Keeps the last communications of a rank and writes them out when one fails.
// Module: comm. Depends on: core.
#pragma once

#include <chrono>           // std::chrono
#include <cstddef>          // std::size_t
#include <cstdint>          // std::uint64_t
#include <cstdio>           // std::FILE, std::fopen, std::snprintf
#include <exception>        // std::exception
#include <memory>           // std::make_unique, std::shared_ptr, std::unique_ptr
#include <mutex>            // std::mutex, std::scoped_lock
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string>           // std::string
#include <string_view>      // std::string_view
#include <utility>          // std::move

#include "gradus/comm/communicator.hpp"           // communicator, reduction, request
#include "gradus/comm/detail/call.hpp"            // call
#include "gradus/comm/detail/checks.hpp"          // require_open
#include "gradus/comm/detail/operation_pool.hpp"  // operation_pool
#include "gradus/comm/self.hpp"                   // self
#include "gradus/core/error.hpp"                  // configuration_error
#include "gradus/core/index.hpp"                  // index_t
#include "gradus/core/text.hpp"                   // append
#include "gradus/core/vector.hpp"                 // vector

namespace gradus::comm {

/// The last communications of one rank, as black boxes keep the last minutes of a flight: after a failure the files of
/// all ranks side by side show which rank was where. Safe for several threads.
class flight_recorder {
 public:
  /// @param file      where the operations are written when one fails; empty: nowhere
  /// @param capacity  operations to keep
  explicit flight_recorder(std::string file = {}, std::size_t capacity = 256)
      : file_{std::move(file)}, entries_(capacity) {
    if (capacity == 0) {
      raise<configuration_error>("flight_recorder", "a capacity of at least 1", "0");
    }
  }

  /// An operation begins. @return its number, counted from 0
  std::uint64_t begin(int channel, const detail::call& what) noexcept {
    const std::scoped_lock lock{mutex_};
    entries_[next_ % entries_.size()] = {
        .number = next_, .channel = channel, .what = what, .began = now(), .ended = 0, .state = progress::under_way};
    return next_++;
  }

  void end(std::uint64_t number) noexcept {
    const std::scoped_lock lock{mutex_};
    finish(number, progress::complete);
  }

  /// An operation has failed: notes it, and writes the file at the first failure.
  void fail(std::uint64_t number, std::string_view reason) noexcept {
    const std::scoped_lock lock{mutex_};
    finish(number, progress::failed);
    if (!written_ && !file_.empty()) {
      written_ = true;
      try {
        write(reason);
      } catch (...) {
        // The failure itself is on its way to the user and matters more than its file.
      }
    }
  }

  /// One line an operation, the oldest first:
  ///
  ///   number  channel  state  began[s]  took[s]  operation
  ///
  /// Times count from the construction of the recorder; of what is under way or failed, `took` is the time so far.
  [[nodiscard]] std::string text() const {
    const std::scoped_lock lock{mutex_};
    return lines();
  }

 private:
  enum class progress : unsigned char { under_way, complete, failed };

  struct entry {
    std::uint64_t number = 0;
    int channel = 0;
    detail::call what{};
    double began = 0;
    double ended = 0;
    progress state = progress::complete;
  };

  [[nodiscard]] double now() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  void finish(std::uint64_t number, progress how) noexcept {
    entry& one = entries_[number % entries_.size()];
    if (one.number == number && one.state == progress::under_way) {
      one.state = how;
      one.ended = now();
    }
  }

  [[nodiscard]] std::string lines() const {
    std::string text = "number\tchannel\tstate\tbegan[s]\ttook[s]\toperation\n";
    const std::uint64_t count = next_ < entries_.size() ? next_ : entries_.size();
    const double time = now();
    for (std::uint64_t i = next_ - count; i < next_; ++i) {
      const entry& one = entries_[i % entries_.size()];
      const bool under_way = one.state == progress::under_way;
      char times[64];
      std::snprintf(times, sizeof(times), "%.6f\t%.6f", one.began, (under_way ? time : one.ended) - one.began);
      gradus::detail::append(text, {one.number, "\t", one.channel, "\t",
                                    under_way                       ? "under way"
                                    : one.state == progress::failed ? "failed"
                                                                    : "complete",
                                    "\t", std::string_view{times}, "\t", one.what.describe(), "\n"});
    }
    return text;
  }

  void write(std::string_view reason) const {
    std::string text{"# "};
    text.append(reason).append("\n").append(lines());
    if (std::FILE* const out = std::fopen(file_.c_str(), "w"); out != nullptr) {
      std::fwrite(text.data(), 1, text.size(), out);
      std::fclose(out);
    }
  }

  std::string file_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  gradus::detail::vector<entry> entries_;
  std::uint64_t next_ = 0;
  bool written_ = false;
};

namespace detail {

/// An operation of another communicator, watched.
class recorded_operation final : public operation {
 public:
  using pool = operation_pool<recorded_operation>;

  recorded_operation(flight_recorder& recorder, pool& home) noexcept : recorder_{&recorder}, home_{&home} {}

  request begin(std::uint64_t number, request&& inner) noexcept {
    number_ = number;
    inner_ = std::move(inner);
    return request{*this};
  }

  bool test(const std::source_location& where) override {
    return watched([&] { return inner_.test(where); });
  }
  void wait(const std::source_location& where) override {
    watched([&] {
      inner_.wait(where);
      return true;
    });
  }
  void abandon(bool unwinding) noexcept override {
    if (unwinding) {
      inner_.cancel();
      recorder_->fail(number_, "taken back because of an exception");
    } else {
      inner_ = {};
      recorder_->end(number_);
    }
  }
  void release() noexcept override { home_->put_back(*this); }

 private:
  template <class Function>
  bool watched(const Function& function) {
    try {
      const bool over = function();
      if (over) {
        recorder_->end(number_);
      }
      return over;
    } catch (const std::exception& failure) {
      recorder_->fail(number_, failure.what());
      throw;
    }
  }

  flight_recorder* recorder_;
  pool* home_;
  std::uint64_t number_ = 0;
  request inner_;
};

}  // namespace detail

/// A communicator whose operations, and those of its duplicates, are kept by a flight_recorder.
///
/// @code
///   auto recorder = std::make_shared<comm::flight_recorder>("flight_" + std::to_string(rank) + ".tsv");
///   comm::recorded world{comm::mpi{environment}, recorder};
/// @endcode
template <class Communicator>
class recorded {
  static_assert(explain_communicator<Communicator>());

 public:
  static constexpr std::string_view name = Communicator::name;
  template <class Element>
  static constexpr bool supports = Communicator::template supports<Element>;

  explicit recorded(Communicator base, std::shared_ptr<flight_recorder> recorder = std::make_shared<flight_recorder>())
      : recorded{std::move(base), std::move(recorder), std::make_shared<int>(0)} {}

  [[nodiscard]] flight_recorder& recorder() noexcept { return *recorder_; }

  [[nodiscard]] int rank() const noexcept { return base_.rank(); }
  [[nodiscard]] int size() const noexcept { return base_.size(); }
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept { return base_.time_limit(); }
  void set_time_limit(std::chrono::milliseconds limit) { base_.set_time_limit(limit); }

  template <transferable Element>
  [[nodiscard]] request send(int peer, std::span<const Element> data, int tag) {
    return watch<Element>(
        {.kind = detail::call_kind::send, .peer = peer, .tag = tag, .count = static_cast<index_t>(data.size())},
        [&] { return base_.send(peer, data, tag); });
  }
  template <transferable Element>
  [[nodiscard]] request receive(int peer, std::span<Element> data, int tag) {
    return watch<Element>(
        {.kind = detail::call_kind::receive, .peer = peer, .tag = tag, .count = static_cast<index_t>(data.size())},
        [&] { return base_.receive(peer, data, tag); });
  }
  template <transferable Element>
  [[nodiscard]] request all_reduce(std::span<Element> data, reduction operation) {
    return watch<Element>(
        {.kind = detail::call_kind::all_reduce, .operation = operation, .count = static_cast<index_t>(data.size())},
        [&] { return base_.all_reduce(data, operation); });
  }
  template <transferable Element>
  [[nodiscard]] request broadcast(std::span<Element> data, int root) {
    return watch<Element>(
        {.kind = detail::call_kind::broadcast, .peer = root, .count = static_cast<index_t>(data.size())},
        [&] { return base_.broadcast(data, root); });
  }
  template <transferable Element>
  [[nodiscard]] request reduce_scatter(std::span<const Element> input, std::span<Element> output, reduction operation) {
    return watch<Element>({.kind = detail::call_kind::reduce_scatter,
                           .operation = operation,
                           .count = static_cast<index_t>(output.size())},
                          [&] { return base_.reduce_scatter(input, output, operation); });
  }
  template <transferable Element>
  [[nodiscard]] request all_gather(std::span<const Element> input, std::span<Element> output) {
    return watch<Element>({.kind = detail::call_kind::all_gather, .count = static_cast<index_t>(input.size())},
                          [&] { return base_.all_gather(input, output); });
  }
  [[nodiscard]] request barrier() {
    return watch<std::uint8_t>({.kind = detail::call_kind::barrier}, [&] { return base_.barrier(); });
  }
  [[nodiscard]] recorded duplicate() {
    detail::require_open(detail::caller{*this}, "duplicate", std::source_location::current());
    const std::uint64_t number = recorder_->begin(channel_, {.kind = detail::call_kind::duplicate});
    try {
      recorded copy{base_.duplicate(), recorder_, channels_};
      recorder_->end(number);
      return copy;
    } catch (const std::exception& failure) {
      recorder_->fail(number, failure.what());
      throw;
    }
  }
  void fail(std::string_view reason) noexcept { base_.fail(reason); }

 private:
  recorded(Communicator base, std::shared_ptr<flight_recorder> recorder, std::shared_ptr<int> channels)
      : base_{std::move(base)},
        recorder_{std::move(recorder)},
        channels_{std::move(channels)},
        channel_{(*channels_)++},
        operations_{std::make_unique<detail::recorded_operation::pool>()} {}

  template <class Element, class Begin>
  request watch(detail::call what, const Begin& begin) {
    what.element = element_name<Element>;
    detail::recorded_operation& under_way = operations_->idle(*recorder_, *operations_);
    const std::uint64_t number = recorder_->begin(channel_, what);
    try {
      request inner = begin();
      operations_->take();
      return under_way.begin(number, std::move(inner));
    } catch (const std::exception& failure) {
      recorder_->fail(number, failure.what());
      throw;
    }
  }

  Communicator base_;
  std::shared_ptr<flight_recorder> recorder_;
  std::shared_ptr<int> channels_;  // made so far
  int channel_;
  std::unique_ptr<detail::recorded_operation::pool> operations_;
};
static_assert(communicator<recorded<self>>);

}  // namespace gradus::comm
