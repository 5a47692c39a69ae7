// SPDX-License-Identifier: BSL-1.0
//
// Records the last communications of a rank and writes them to a file when one fails.
#pragma once

#include <chrono>       // std::chrono
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <cstdio>       // std::FILE, std::fopen
#include <mutex>        // std::mutex, std::scoped_lock
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include "gradus/comm/call.hpp"
#include "gradus/comm/communicator.hpp"
#include "gradus/comm/recorded.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// The last communications of one rank. After a failure, the files of all ranks together show what each rank was doing.
/// Thread-safe.
class flight_recorder {
 public:
  /// @param file      path to which the operations are written when one fails; empty: not written
  /// @param capacity  number of operations to keep
  explicit flight_recorder(std::string file = {}, std::size_t capacity = 256)
      : file_{std::move(file)}, entries_(capacity) {
    if (capacity == 0) {
      raise<configuration_error>("flight_recorder", "a capacity of at least 1", "0");
    }
  }

  /// The state for a communicator, see recorded.
  using channel = int;  // the recorder's state for a communicator, see recorded
  /// The state for an operation, see recorded.
  using entry = std::uint64_t;  // the recorder's state for an operation, see recorded

  /// Records the begin of an operation. @return its number, counted from 0
  std::uint64_t begin(int duplicate, const call_description& what,
                      std::span<const std::byte> /*memory*/ = {}) noexcept {
    const std::scoped_lock lock{mutex_};
    entries_[next_ % entries_.size()] = {
        .number = next_, .channel = duplicate, .what = what, .began = now(), .ended = 0, .state = progress::under_way};
    return next_++;
  }

  /// Records that an operation has completed.
  void end(std::uint64_t number) noexcept {
    const std::scoped_lock lock{mutex_};
    finish(number, progress::complete);
  }

  /// Records that an operation has failed; at the first failure writes the file.
  void fail(std::uint64_t number, std::string_view reason) noexcept;

  /// The operations as text, one per line, oldest first:
  ///
  ///   number  channel  state  began[s]  took[s]  operation
  ///
  /// Times count from the construction of the recorder; for operations that are under way or have failed, `took` is the
  /// time until now.
  [[nodiscard]] std::string text() const {
    const std::scoped_lock lock{mutex_};
    return lines();
  }

 private:
  enum class progress : unsigned char { under_way, complete, failed };

  struct operation {
    std::uint64_t number = 0;
    int channel = 0;
    call_description what{};
    double began = 0;
    double ended = 0;
    progress state = progress::complete;
  };

  [[nodiscard]] double now() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  void finish(std::uint64_t number, progress how) noexcept;

  [[nodiscard]] std::string lines() const;

  void write(std::string_view reason) const;

  std::string file_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  dynamic_array<operation> entries_;
  std::uint64_t next_ = 0;
  bool written_ = false;
};

static_assert(communicator<recorded<self>>);

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE void flight_recorder::fail(std::uint64_t number, std::string_view reason) noexcept {
  const std::scoped_lock lock{mutex_};
  finish(number, progress::failed);
  if (!written_ && !file_.empty()) {
    written_ = true;
    try {
      write(reason);
    } catch (...) {
      // The failure itself is being reported and matters more than its file
    }
  }
}

GRADUS_INLINE void flight_recorder::finish(std::uint64_t number, progress how) noexcept {
  operation& one = entries_[number % entries_.size()];
  if (one.number == number && one.state == progress::under_way) {
    one.state = how;
    one.ended = now();
  }
}

GRADUS_INLINE std::string flight_recorder::lines() const {
  std::string text = "number\tchannel\tstate\tbegan[s]\ttook[s]\toperation\n";
  const std::uint64_t count = next_ < entries_.size() ? next_ : entries_.size();
  const double time = now();
  for (std::uint64_t i = next_ - count; i < next_; ++i) {
    const operation& one = entries_[i % entries_.size()];
    const bool under_way = one.state == progress::under_way;
    char times[64];
    format_text(times, sizeof(times), "%.6f\t%.6f", one.began, (under_way ? time : one.ended) - one.began);
    append_text(text, {one.number, "\t", one.channel, "\t",
                       under_way                       ? "under way"
                       : one.state == progress::failed ? "failed"
                                                       : "complete",
                       "\t", std::string_view{times}, "\t", one.what.describe(), "\n"});
  }
  return text;
}

GRADUS_INLINE void flight_recorder::write(std::string_view reason) const {
  std::string text{"# "};
  text.append(reason).append("\n").append(lines());
  if (std::FILE* const out = std::fopen(file_.c_str(), "w"); out != nullptr) {
    std::fwrite(text.data(), 1, text.size(), out);
    std::fclose(out);
  }
}

}  // namespace gradus::comm
#endif
