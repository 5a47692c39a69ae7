// SPDX-License-Identifier: BSL-1.0
//
// A communicator without one of the required members.
// EXPECT_ERROR(name): not a communicator: give it a name
// EXPECT_ERROR(ranks): not a communicator: give it int rank
// EXPECT_ERROR(supports): not a communicator: declare which elements it sends
// EXPECT_ERROR(messages): not a communicator: give it messages
// EXPECT_ERROR(all_reduce): not a communicator: give it all_reduce: template
// EXPECT_ERROR(broadcast): not a communicator: give it broadcast: template
// EXPECT_ERROR(blocks): not a communicator: give it reduce_scatter and all_gather: template
// EXPECT_ERROR(barrier): not a communicator: give it gradus::comm::request barrier
// EXPECT_ERROR(duplicate): not a communicator: give it duplicate() that returns a communicator of the same type
// EXPECT_ERROR(time_limit): not a communicator: give it std::chrono::milliseconds time_limit
// EXPECT_ERROR(fail): not a communicator: give it void fail
#include "gradus/comm/communicator.hpp"

namespace comm = gradus::comm;

struct my_communicator {
#ifndef GRADUS_TEST_CASE_NAME
  static constexpr std::string_view name = "mine";
#endif
#ifndef GRADUS_TEST_CASE_RANKS
  int rank() const noexcept {
    return 0;
  }
  int size() const noexcept {
    return 1;
  }
#endif
#ifndef GRADUS_TEST_CASE_SUPPORTS
  template <class Element>
  static constexpr bool supports = comm::transferable<Element>;
#endif
#ifndef GRADUS_TEST_CASE_MESSAGES
  template <class Element>
  comm::request send(int, std::span<const Element>, int) {
    return {};
  }
  template <class Element>
  comm::request receive(int, std::span<Element>, int) {
    return {};
  }
#endif
#ifndef GRADUS_TEST_CASE_ALL_REDUCE
  template <class Element>
  comm::request all_reduce(std::span<Element>, comm::reduction) {
    return {};
  }
#endif
#ifndef GRADUS_TEST_CASE_BROADCAST
  template <class Element>
  comm::request broadcast(std::span<Element>, int) {
    return {};
  }
#endif
#ifndef GRADUS_TEST_CASE_BLOCKS
  template <class Element>
  comm::request reduce_scatter(std::span<const Element>, std::span<Element>, comm::reduction) {
    return {};
  }
  template <class Element>
  comm::request all_gather(std::span<const Element>, std::span<Element>) {
    return {};
  }
#endif
#ifndef GRADUS_TEST_CASE_BARRIER
  comm::request barrier() {
    return {};
  }
#endif
#ifndef GRADUS_TEST_CASE_DUPLICATE
  my_communicator duplicate() {
    return {};
  }
#endif
#ifndef GRADUS_TEST_CASE_TIME_LIMIT
  std::chrono::milliseconds time_limit() const {
    return comm::default_time_limit;
  }
  void set_time_limit(std::chrono::milliseconds) {}
#endif
#ifndef GRADUS_TEST_CASE_FAIL
  void fail(std::string_view) noexcept {}
#endif
};

void synchronize(my_communicator& world) {
  comm::barrier(world).wait();
}
