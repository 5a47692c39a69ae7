// SPDX-License-Identifier: BSL-1.0
//
// What tests of ranks that are late or lost ask again and again.
#pragma once

#include <chrono>       // std::chrono::steady_clock
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <thread>       // std::this_thread

namespace gradus_test {

/// Whether the condition holds within twenty seconds.
template <class Condition>
bool comes_true(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (!condition() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return condition();
}

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace gradus_test
