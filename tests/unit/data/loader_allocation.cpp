// SPDX-License-Identifier: BSL-1.0
//
// After construction a loader allocates nothing: this program counts the calls of operator new.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "gradus/data/loader.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/layout/layouts.hpp"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
std::atomic<long> allocations{0};
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {  // inlined, GCC takes the pair below for a mistake
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) {
    return memory;
  }
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

BOOST_AUTO_TEST_SUITE(loader_allocation)

BOOST_AUTO_TEST_CASE(the_counter_counts) {
  const long before = allocations;
  const auto something = std::make_unique<long>(before);
  BOOST_TEST(*something == before);
  BOOST_TEST(allocations > before);
}

BOOST_AUTO_TEST_CASE(epochs_allocate_nothing) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto images = gradus::data::make_synthetic({.examples = 90, .channels = 3, .height = 5, .width = 5});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.batch_size = 16, .seed = 1}};
  const long before = allocations;
  long batches = 0;
  for (const unsigned epoch : {0U, 1U, 2U, 3U}) {
    loader.start_epoch(epoch);
    while (loader.next() != nullptr) {
      ++batches;
    }
  }
  const long after = allocations;
  BOOST_TEST(batches == 24);
  BOOST_TEST(after - before == 0);
}

BOOST_AUTO_TEST_SUITE_END()

#endif
