// SPDX-License-Identifier: BSL-1.0
//
// A function that may never return, run on a thread that can be left behind.
#pragma once

#include <chrono>   // std::chrono::milliseconds
#include <future>   // std::future, std::future_status, std::packaged_task
#include <memory>   // std::make_unique
#include <thread>   // std::thread
#include <utility>  // std::move

#include "gradus/core/config.hpp"

namespace gradus::comm::detail {

/// Returns function(), which another thread runs, and calls check() every millisecond meanwhile. If check() throws, the
/// thread stays behind until the process ends. The function and its result then stay too: they must own what they use,
/// or refer to what outlives them.
template <class Function, class Check>
auto run_on_thread(Function function, const Check& check) {
  using result = decltype(function());
  std::packaged_task<result()> task{std::move(function)};
  auto outcome = std::make_unique<std::future<result>>(task.get_future());
  std::thread thread{std::move(task)};
  try {
    while (outcome->wait_for(std::chrono::milliseconds{1}) != std::future_status::ready) {
      check();
    }
  } catch (...) {
    thread.detach();
    static_cast<void>(outcome.release());
    throw;
  }
  thread.join();
  return outcome->get();
}

}  // namespace gradus::comm::detail
