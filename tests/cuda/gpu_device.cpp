// SPDX-License-Identifier: BSL-1.0
//
// A GPU as a device: the conformance suite, asynchronous copies, libraries, errors, and the loader.
#include "gradus/device/cuda.cuh"

#define GRADUS_TEST_DEVICES gradus::cuda
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "../conformance/device/device_policy.cpp"
#include "example_sets.hpp"
#include "gradus/data/cuda_loader.cuh"
#include "gradus/tensor/copy.hpp"

BOOST_AUTO_TEST_SUITE(gpu)

BOOST_AUTO_TEST_CASE(pinned_memory_is_copied_while_the_host_goes_on) {
  gradus::cuda device;
  constexpr std::size_t count = std::size_t{1} << 20U;
  const gradus::pinned_memory from{count * sizeof(int)};
  const gradus::pinned_memory back{count * sizeof(int)};
  auto* const values = static_cast<int*>(from.data());
  std::iota(values, values + count, 1);
  void* const memory = device.allocate(from.size());
  device.copy_from_host(memory, values, from.size());
  device.copy_to_host_async(back.data(), memory, from.size());
  gradus::cuda_event done{true};
  done.record(device.stream());
  done.synchronize();
  BOOST_TEST(std::equal(values, values + count, static_cast<const int*>(back.data())));
  device.deallocate(memory, from.size());
}

BOOST_AUTO_TEST_CASE(tensors_go_from_device_to_device) {
  gradus::cpu host;
  gradus::cuda one;
  gradus::cuda two = std::move(one);
  gradus::cuda three;
  gradus::tensor<float, 2> x{host, {3, 5}};
  for (gradus::index_t i = 0; i < x.size(); ++i) {
    x.data()[i] = static_cast<float>(i);
  }
  const auto back = gradus::to(host, gradus::to(three, gradus::to(two, x)));
  BOOST_TEST(std::equal(x.data(), x.data() + x.size(), back.data()));
}

struct library {
  explicit library(const gradus::cuda& device) : stream{device.stream()} { ++made(); }
  ~library() { --made(); }
  library(const library&) = delete;
  library& operator=(const library&) = delete;
  static int& made() {
    static int count = 0;
    return count;
  }
  cudaStream_t stream;
};

BOOST_AUTO_TEST_CASE(a_context_is_made_once_and_dies_with_the_device) {
  {
    gradus::cuda device;
    BOOST_TEST(&device.context<library>() == &device.context<library>());
    BOOST_TEST(device.context<library>().stream == device.stream());
    BOOST_TEST(library::made() == 1);
  }
  BOOST_TEST(library::made() == 0);
}

BOOST_AUTO_TEST_CASE(too_much_memory_is_refused_and_the_device_goes_on) {
  gradus::cuda device;
  BOOST_CHECK_THROW(static_cast<void>(device.allocate(std::size_t{1} << 46U)), gradus::device_error);
  void* const memory = device.allocate(64);
  device.fill_zero(memory, 64);
  device.synchronize();
  device.deallocate(memory, 64);
}

BOOST_AUTO_TEST_CASE(the_most_memory_is_counted) {
  gradus::cuda device;
  constexpr std::size_t bytes = std::size_t{1} << 24U;
  device.deallocate(device.allocate(bytes), bytes);
  device.synchronize();
  BOOST_TEST(device.peak_memory_bytes() >= bytes);
  BOOST_TEST(device.peak_memory_bytes() < 4 * bytes);
}

// Every batch that the GPU gets is that of the loader of the host, also when the device is behind, and after an epoch
// that was not finished.
using loaders = std::tuple<gradus::data::loader<float, gradus::nchw, gradus::cuda>,
                           gradus::data::parallel_loader<float, gradus::nchw, gradus::cuda>>;
BOOST_AUTO_TEST_CASE_TEMPLATE(loader_gives_the_batches_of_the_host, Loader, loaders) {
  gradus::cpu host;
  gradus::cuda device;
  const example_sets::numbered_set set{37, {1, 2, 3, 5}, 7};
  const gradus::data::loader_options options{.global_batch_size = 8, .seed = 3};
  gradus::data::loader<float, gradus::nchw> expected{host, set, options};
  Loader loader{device, set, options};
  BOOST_TEST(loader.steps_per_epoch() == expected.steps_per_epoch());
  for (const int give_up_after : {2, 100, 1, 100}) {
    expected.start_epoch(static_cast<std::uint64_t>(give_up_after));
    loader.start_epoch(static_cast<std::uint64_t>(give_up_after));
    const auto big = gradus::tensor<float, 1, gradus::row_major, gradus::cuda>{device, {1 << 24}};
    gradus::tensor<float, 1, gradus::row_major, gradus::cuda> copy{device, {1 << 24}};
    for (int step = 0; step < give_up_after; ++step) {
      const auto* const wanted = expected.next();
      const auto* const batch = loader.next();
      BOOST_REQUIRE((wanted == nullptr) == (batch == nullptr));
      if (batch == nullptr) {
        break;
      }
      gradus::copy(copy, big);  // the device is behind
      BOOST_TEST(batch->first_example == wanted->first_example);
      BOOST_TEST(batch->global_examples == wanted->global_examples);
      const auto images = gradus::to(host, batch->images);
      BOOST_TEST(images.extents() == wanted->images.extents());
      BOOST_TEST(std::equal(images.data(), images.data() + images.size(), wanted->images.data()));
      std::vector<std::int32_t> labels(batch->labels.size());
      device.copy_to_host(labels.data(), batch->labels.data(), batch->labels.size_bytes());
      BOOST_TEST(std::ranges::equal(labels, wanted->labels));
    }
  }
}

// An epoch that begins at a later batch gives the rest of it.
BOOST_AUTO_TEST_CASE_TEMPLATE(an_epoch_can_begin_at_any_batch, Loader, loaders) {
  gradus::cpu host;
  gradus::cuda device;
  const example_sets::numbered_set set{37, {1, 2, 3, 5}, 7};
  const gradus::data::loader_options options{.global_batch_size = 8, .seed = 3};
  gradus::data::loader<float, gradus::nchw> expected{host, set, options};
  Loader loader{device, set, options};
  for (gradus::index_t first = 0; first <= expected.steps_per_epoch(); ++first) {
    expected.start_epoch(2, first);
    loader.start_epoch(1);
    static_cast<void>(loader.next());
    loader.start_epoch(2, first);
    while (const auto* const wanted = expected.next()) {
      const auto* const batch = loader.next();
      BOOST_REQUIRE(batch != nullptr);
      BOOST_TEST(batch->first_example == wanted->first_example);
      const auto images = gradus::to(host, batch->images);
      BOOST_TEST(std::equal(images.data(), images.data() + images.size(), wanted->images.data()));
    }
    BOOST_TEST(loader.next() == nullptr);
  }
}

// The device is behind with all batches of an epoch: the next ones wait for it before they take their place.
BOOST_AUTO_TEST_CASE_TEMPLATE(batches_stay_until_the_device_has_read_them, Loader, loaders) {
  gradus::cpu host;
  gradus::cuda device;
  const example_sets::numbered_set set{37, {1, 2, 3, 5}, 7};
  const gradus::data::loader_options options{.global_batch_size = 8, .seed = 3};
  gradus::data::loader<float, gradus::nchw> expected{host, set, options};
  Loader loader{device, set, options};
  expected.start_epoch(0);
  loader.start_epoch(0);
  const auto big = gradus::tensor<float, 1, gradus::row_major, gradus::cuda>{device, {1 << 24}};
  gradus::tensor<float, 1, gradus::row_major, gradus::cuda> copy{device, {1 << 24}};
  std::vector<gradus::tensor<float, 4, gradus::nchw, gradus::cuda>> kept;
  while (const auto* const batch = loader.next()) {
    gradus::copy(copy, big);
    kept.emplace_back(device, batch->images.extents());
    gradus::copy(kept.back(), batch->images);
  }
  for (const auto& images : kept) {
    const auto* const wanted = expected.next();
    BOOST_REQUIRE(wanted != nullptr);
    const auto back = gradus::to(host, images);
    BOOST_TEST(std::equal(back.data(), back.data() + back.size(), wanted->images.data()));
  }
  BOOST_TEST(kept.size() == 5U);
}

BOOST_AUTO_TEST_SUITE_END()
