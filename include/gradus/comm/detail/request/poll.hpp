// SPDX-License-Identifier: BSL-1.0
//
// The loops that poll an operation until it is complete.
#pragma once

#include <chrono>  // std::chrono::milliseconds

#include "gradus/comm/wait.hpp"

namespace gradus::comm::detail {

/// What a poll found: the operation is not complete, has made progress, or is complete.
enum class poll_result : unsigned char { nothing, progress, complete };

/// Polls until the operation is complete, with the pauses of `backoff`, which begin again after progress.
/// @param spins  polls that follow each other at once
/// @param poll   polls once and returns a poll_result. An operation that has failed throws
/// @param check  check(n) is called after every 16th poll; n is the number of polls. For costlier tests, such as for
///               failures of other ranks
/// @param late   called when the time limit is over; throws. The limit begins at the first check: most waits end before
///               that and never read the clock
template <class Poll, class Check, class Late>
void poll_until_complete(int spins, std::chrono::milliseconds limit, const Poll& poll, const Check& check,
                         const Late& late) {
  constexpr unsigned polls_per_check = 16;
  backoff rest{spins};
  clock::time_point deadline{};
  for (unsigned polls = 1;; ++polls) {
    const poll_result found = poll();
    if (found == poll_result::complete) {
      return;
    }
    if (polls % polls_per_check == 0) {
      check(polls);
      const clock::time_point now = clock::now();
      if (deadline == clock::time_point{}) {
        deadline = now + limit;
      }
      if (now >= deadline) {
        late();
      }
    }
    if (found == poll_result::progress) {
      rest = backoff{spins};
    } else {
      rest.pause();
    }
  }
}

/// Polls until done() is true, at most for `limit`, with the pauses of `backoff`. Returns the last done().
template <class Done>
bool poll_for(std::chrono::milliseconds limit, const Done& done, int spins = 0) {
  backoff rest{spins};
  const clock::time_point deadline = clock::now() + limit;
  for (;;) {
    if (done()) {
      return true;
    }
    if (clock::now() >= deadline) {
      return false;
    }
    rest.pause();
  }
}

}  // namespace gradus::comm::detail
