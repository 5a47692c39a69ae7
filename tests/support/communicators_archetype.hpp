// SPDX-License-Identifier: BSL-1.0
//
// A communicator with the required members and nothing else: generic code that compiles with it asks for no more.
#pragma once

#include <algorithm>    // std::copy
#include <chrono>       // std::chrono::milliseconds
#include <span>         // std::span
#include <string_view>  // std::string_view

#include "gradus/comm/communicator.hpp"

namespace communicator_tests {

/// One rank that sends floats and bytes and 64-bit integers.
class minimal_communicator {
 public:
  static constexpr std::string_view name = "minimal";
  template <class Element>
  static constexpr bool supports = gradus::comm::transferable<Element>;

  minimal_communicator() = default;
  minimal_communicator(minimal_communicator&&) = default;
  minimal_communicator& operator=(minimal_communicator&&) = default;
  minimal_communicator(const minimal_communicator&) = delete;
  minimal_communicator& operator=(const minimal_communicator&) = delete;
  ~minimal_communicator() = default;

  int rank() const noexcept { return 0; }
  int size() const noexcept { return 1; }
  template <class Element>
  gradus::comm::request send(int, std::span<const Element>, int) {
    return {};
  }
  template <class Element>
  gradus::comm::request receive(int, std::span<Element>, int) {
    return {};
  }
  template <class Element>
  gradus::comm::request all_reduce(std::span<Element>, gradus::comm::reduction) {
    return {};
  }
  template <class Element>
  gradus::comm::request broadcast(std::span<Element>, int) {
    return {};
  }
  template <class Element>
  gradus::comm::request reduce_scatter(std::span<const Element> input, std::span<Element> output,
                                       gradus::comm::reduction) {
    return all_gather(input, output);
  }
  template <class Element>
  gradus::comm::request all_gather(std::span<const Element> input, std::span<Element> output) {
    std::copy(input.begin(), input.end(), output.begin());
    return {};
  }
  gradus::comm::request barrier() { return {}; }
  minimal_communicator duplicate() { return {}; }
  std::chrono::milliseconds time_limit() const { return gradus::comm::default_time_limit; }
  void set_time_limit(std::chrono::milliseconds) {}
  void fail(std::string_view) noexcept {}
};
static_assert(gradus::comm::communicator<minimal_communicator>);

}  // namespace communicator_tests
