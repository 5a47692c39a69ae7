// SPDX-License-Identifier: BSL-1.0
//
// Waiting: the default time limit, pauses between polls, and texts for ranks and durations.
#pragma once

#include <chrono>       // std::chrono
#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <thread>       // std::this_thread

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/spin.hpp"
#include "gradus/core/text.hpp"

namespace gradus::comm {

/// How long an operation waits for other ranks before it raises communication_error; set_time_limit changes it. It is
/// longer than steps, evaluations and the writing of checkpoints take. A rank that does longer work by itself while the
/// others wait needs a longer limit. It is also the time until the death of a host is noticed, because MPI does not
/// report that (see docs/design/communication.md).
inline constexpr std::chrono::milliseconds default_time_limit = std::chrono::minutes{2};

/// The clock of time limits.
using clock = std::chrono::steady_clock;

/// After an exception on a rank, its unfinished communications are withdrawn before the other ranks know the reason;
/// they wait this long for the reason.
inline constexpr std::chrono::milliseconds reason_grace{1000};

/// Pauses between polls of a value that another rank changes. First it pauses briefly, then yields the processor, and
/// after some milliseconds it sleeps, so that a long wait leaves the processor to ranks that compute.
class backoff {
 public:
  /// @param spins  polls that follow each other at once; choose few if ranks share processors
  explicit backoff(int spins) noexcept : spins_{spins} {}

  /// Waits until the next poll.
  void pause();

 private:
  static constexpr int yields = 20000;
  int spins_;
  int looks_ = 0;
};

/// Checks the argument of a communicator's set_time_limit. @throws configuration_error unless it is above zero
inline void require_time_limit(std::string_view communicator, std::chrono::milliseconds limit) {
  if (limit <= std::chrono::milliseconds::zero()) {
    raise<configuration_error>({communicator, ".set_time_limit"}, "a time above zero",
                               {static_cast<long long>(limit.count()), " ms"});
  }
}

/// A duration as text: "0.25 s", "600 s".
[[nodiscard]] std::string seconds_text(std::chrono::milliseconds time);

/// Ranks as text: "rank 3", "ranks 0, 2-5". @pre the ranks ascend
[[nodiscard]] std::string ranks_text(const dynamic_array<int>& ranks);

}  // namespace gradus::comm

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::comm {

GRADUS_INLINE void backoff::pause() {
  if (looks_ < spins_) {
    ++looks_;
    pause_processor();
  } else if (looks_ < spins_ + yields) {
    ++looks_;
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

GRADUS_INLINE std::string seconds_text(std::chrono::milliseconds time) {
  const auto milliseconds = static_cast<long long>(time.count());
  char digits[32];
  int size = format_text(digits, sizeof(digits), "%lld.%03lld", milliseconds / 1000, milliseconds % 1000);
  while (digits[size - 1] == '0') {
    --size;
  }
  size -= digits[size - 1] == '.' ? 1 : 0;
  return gradus::join({std::string_view{digits, static_cast<std::size_t>(size)}, " s"});
}

GRADUS_INLINE std::string ranks_text(const dynamic_array<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    append_text(text, {i == 0 ? "" : ", ", ranks[i]});
    if (last > i) {
      append_text(text, {last == i + 1 ? ", " : "-", ranks[last]});
    }
    i = last + 1;
  }
  return text;
}

}  // namespace gradus::comm
#endif
