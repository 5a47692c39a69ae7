// SPDX-License-Identifier: BSL-1.0
//
// Steps of a frozen network allocate nothing: this program counts the calls of operator new.
#include <boost/test/unit_test.hpp>

#include <atomic>   // std::atomic
#include <cstddef>  // std::size_t
#include <cstdlib>  // std::free, std::malloc
#include <memory>   // std::make_unique
#include <new>      // std::bad_alloc
#include <tuple>    // std::tuple
#include <utility>  // std::pair

#include "../../support/branching_networks.hpp"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
std::atomic<long> allocations{0};
}

// Not inlined, or the compiler compares them with the ones of the library.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes); memory != nullptr) {
    return memory;
  }
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace nn = gradus::nn;
using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

BOOST_AUTO_TEST_SUITE(nn_allocation)

BOOST_AUTO_TEST_CASE(the_counter_counts) {
  const long before = allocations;
  const auto something = std::make_unique<long>(before);
  BOOST_TEST(*something == before);
  BOOST_TEST(allocations > before);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(steps_allocate_nothing, Layout, layouts) {
  for (const auto& [recompute, lanes] :
       {std::pair{false, 1}, std::pair{true, 1}, std::pair{false, 2}, std::pair{true, 3}}) {
    gradus::cpu device{{.intra_op_threads = 2, .inter_op_threads = lanes}};
    nn::network<float, Layout> net{device, {3, 13, 11}};
    gradus_test::build_branching(net);
    net.freeze({.batch_size = 6, .seed = 1, .recompute = recompute});
    const gradus_test::random_batch<float, Layout> batch{device, {6, 3, 13, 11}, 5};
    const long before = allocations;
    for (int step = 0; step < 3; ++step) {
      (void)net.train_step(batch.images, batch.labels);
      (void)net.evaluate(batch.images, batch.labels);
    }
    BOOST_TEST(allocations - before == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()

#endif
