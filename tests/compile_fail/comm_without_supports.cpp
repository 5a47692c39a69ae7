// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: not a communicator: declare which elements it sends
#include "gradus/comm/communicator.hpp"

namespace comm = gradus::comm;

struct my_communicator {
  static constexpr std::string_view name = "mine";
  int rank() const noexcept { return 0; }
  int size() const noexcept { return 1; }
#ifdef GRADUS_TEST_GOOD_TWIN
  template <class Element>
  static constexpr bool supports = comm::transferable<Element>;
#endif
  template <class Element>
  comm::request send(int, std::span<const Element>, int) {
    return {};
  }
  template <class Element>
  comm::request receive(int, std::span<Element>, int) {
    return {};
  }
  template <class Element>
  comm::request all_reduce(std::span<Element>, comm::reduction) {
    return {};
  }
  template <class Element>
  comm::request broadcast(std::span<Element>, int) {
    return {};
  }
  template <class Element>
  comm::request reduce_scatter(std::span<const Element>, std::span<Element>, comm::reduction) {
    return {};
  }
  template <class Element>
  comm::request all_gather(std::span<const Element>, std::span<Element>) {
    return {};
  }
  comm::request barrier() {
    return {};
  }
  my_communicator duplicate() {
    return {};
  }
  std::chrono::milliseconds time_limit() const {
    return comm::default_time_limit;
  }
  void set_time_limit(std::chrono::milliseconds) {}
  void fail(std::string_view) noexcept {}
};

void synchronise(my_communicator& world) {
  comm::barrier(world).wait();
}
