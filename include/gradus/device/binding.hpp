// SPDX-License-Identifier: BSL-1.0
//
// Says which processors a process may use, and with how many others it shares them.
#pragma once

#include <cstddef>  // std::size_t
#include <string>   // std::string

#if defined(__linux__)
#include <sched.h>  // cpu_set_t, sched_getaffinity
#endif

#include "gradus/core/config.hpp"
#include "gradus/core/text.hpp"
#include "gradus/device/processor_share.hpp"
#include "gradus/device/thread_pool.hpp"

namespace gradus {

namespace detail {

/// "0-3,8" for processors 0, 1, 2, 3 and 8.
/// @param has   has(i): whether processor i, from 0 on, is one of them
/// @param size  the number of processors that it may be called for
template <class Has>
[[nodiscard]] std::string ranges_text(const Has& has, int size) {
  std::string text;
  for (int i = 0; i < size; ++i) {
    if (!has(i)) {
      continue;
    }
    const int first = i;
    while (i + 1 < size && has(i + 1)) {
      ++i;
    }
    append_text(text, {text.empty() ? "" : ",", first});
    if (i > first) {
      append_text(text, {"-", i});
    }
  }
  return text;
}

/// The line of describe_binding.
/// @param processors  the text of the processors that a process may use; empty if the system does not tell
[[nodiscard]] inline std::string binding_text(int available, int all, int processes, const std::string& processors) {
  const std::string which = processors.empty() ? std::string{} : gradus::join({" (", processors, ")"});
  if (available < all) {
    return gradus::join({"bound to ", available, " of ", all, " processors", which});
  }
  if (processes == 1) {
    return gradus::join({"not bound: ", all, all == 1 ? " processor" : " processors", which});
  }
  return gradus::join({"not bound: ", processes, " processes of this machine share ", all,
                       all == 1 ? " processor" : " processors", which,
                       processes > all ? ", which is more than one a processor" : ""});
}

}  // namespace detail

/// One line for the log of a job: whether the launcher has bound this process to processors of its machine, and with
/// how many processes of the job it shares them. "bound to 4 of 8 processors (0-3)", "not bound: 2 processes of this
/// machine share 8 processors (0-7)".
[[nodiscard]] inline std::string describe_binding() {
  std::string processors;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    processors = detail::ranges_text([&](int i) { return CPU_ISSET(static_cast<std::size_t>(i), &set); }, CPU_SETSIZE);
  }
#endif
  return detail::binding_text(available_processors(), processors_of_job(), detail::processes_on_machine(), processors);
}

}  // namespace gradus
