// SPDX-License-Identifier: BSL-1.0
//
// A loader that reads examples with several threads, for images that have to be decoded.
#pragma once

#include <algorithm>    // std::min
#include <atomic>       // std::atomic
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <memory>       // std::addressof
#include <type_traits>  // std::is_same_v

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/detail/loader/batch_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/thread_pool.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/layout/mapping.hpp"

namespace gradus::data {

/// Options for the reading threads of a parallel_loader.
struct reader_options {
  int threads = 4;      ///< threads that read examples of one batch at the same time; 1 to 256
  bool augment = true;  ///< read another variant of each example in each epoch, if the data set has them
};

/// A data set with examples that vary from epoch to epoch, such as random crops. In addition to `dataset` it has
/// `d.read(i, epoch, planes)`, which depends only on its arguments and may be called by any number of threads.
template <class D, class Element>
concept augmenting_dataset = dataset<D, Element> &&
    requires(const D& set, index_t i, std::uint64_t epoch, Element* planes) {
  set.read(i, epoch, planes);
};

namespace detail {

/// The type-erased data set, and the threads that read it.
template <class Element>
struct parallel_source {
  using plane_element = parameter_element_t<Element>;

  const void* set;
  void (*read)(const void* set, index_t i, std::uint64_t epoch, plane_element* planes);
  std::int32_t (*label)(const void* set, index_t i);
  gradus::detail::thread_pool pool;
  std::size_t plane_elements;           // elements of one example
  dynamic_array<plane_element> planes;  // one example per thread
  std::atomic<std::uint64_t> epoch{0};
};

template <class Element>
struct has_parallel_source {
  parallel_source<Element> from;
};

/// A loader of one element type that fills its slots with several threads. The source is the first base, so that it
/// outlives the thread of batch_memory.
template <class Element>
class parallel_batches : private has_parallel_source<Element>, public batch_memory<Element> {
  using source = parallel_source<Element>;
  using memory = batch_memory<Element>;
  using plane_element = parameter_element_t<Element>;

 public:
  /// The same as loader::start_epoch.
  void start_epoch(std::uint64_t epoch) {
    this->from.epoch.store(epoch);
    memory::start_epoch(epoch);
  }

 protected:
  template <class Dataset>
  parallel_batches(cpu& device, const Dataset& set, const loader_options& options, batch_strides strides,
                   const reader_options& reading)
      : has_parallel_source<Element>{{.set = std::addressof(set),
                                      .read = reading.augment ? &read_augmented<Dataset> : &read_plain<Dataset>,
                                      .label = [](const void* erased, index_t i) -> std::int32_t {
                                        return static_cast<const Dataset*>(erased)->label(i);
                                      },
                                      .pool = gradus::detail::thread_pool{checked(reading.threads)},
                                      .plane_elements = static_cast<std::size_t>(set.example().size()),
                                      .planes = dynamic_array<plane_element>(
                                          static_cast<std::size_t>(reading.threads) *
                                          static_cast<std::size_t>(set.example().size()))}},
        memory{device, &this->from, memory::facts_of(set), options, strides, filler_of<Dataset>()} {}

 private:
  static int checked(int threads) {
    if (threads < 1 || threads > 256) {
      gradus::raise<configuration_error>("parallel_loader", "threads from 1 to 256", {threads});
    }
    return threads;
  }

  template <class Dataset>
  static void read_plain(const void* set, index_t i, std::uint64_t /*epoch*/, plane_element* planes) {
    static_cast<const Dataset*>(set)->read(i, planes);
  }
  template <class Dataset>
  static void read_augmented(const void* set, index_t i, [[maybe_unused]] std::uint64_t epoch, plane_element* planes) {
    if constexpr (augmenting_dataset<Dataset, plane_element>) {
      static_cast<const Dataset*>(set)->read(i, epoch, planes);
    } else {
      static_cast<const Dataset*>(set)->read(i, planes);
    }
  }

  /// For data sets without watch_batch: reports nothing.
  struct unwatched {
    [[nodiscard]] static int batch(const source& /*input*/) noexcept { return 0; }
    [[nodiscard]] static int reader(const source& /*input*/) noexcept { return 0; }
  };
  /// For data sets with watch_batch: calls it.
  template <class Dataset>
  struct watched {
    [[nodiscard]] static auto batch(const source& input) {
      return static_cast<const Dataset*>(input.set)->watch_batch();
    }
    [[nodiscard]] static auto reader(const source& input) {
      return static_cast<const Dataset*>(input.set)->watch_reader();
    }
  };
  template <class Dataset>
  static loader_base::fill_function filler_of() noexcept {
    if constexpr (requires(const Dataset& set) { set.watch_reader(); }) {
      return &fill_slot<watched<Dataset>>;
    } else {
      return &fill_slot<unwatched>;
    }
  }

  template <class Watch>
  static void fill_slot(loader_base& loader, std::size_t number, const sample& mine) {
    auto& own = static_cast<memory&>(loader);
    source& input = *static_cast<source*>(const_cast<void*>(own.source_.set));
    [[maybe_unused]] const auto whole = Watch::batch(input);
    const std::uint64_t epoch = input.epoch.load();
    const image_extents& one = own.example();
    const auto count = static_cast<index_t>(mine.examples.size());
    const image_extents shape{count, one.c, one.h, one.w};
    const auto strides = own.strides_(shape);  // strides of n, c, h, w
    const bool direct = std::is_same_v<Element, plane_element> && own.holds_planes(strides);
    Element* const images = own.images_.data() + static_cast<index_t>(number) * own.images_.extent(1);
    std::int32_t* const labels = own.labels_.data() + static_cast<index_t>(number) * own.largest_batch();
    const index_t readers = std::min<index_t>(input.pool.threads(), count);
    const auto read_some = [&](index_t reader) {
      [[maybe_unused]] const auto part = Watch::reader(input);
      plane_element* const planes = input.planes.data() + static_cast<std::size_t>(reader) * input.plane_elements;
      for (index_t k = reader; k < count; k += readers) {
        const index_t chosen = mine.examples[static_cast<std::size_t>(k)];
        labels[k] = input.label(input.set, chosen);
        own.check_label(labels[k], chosen);
        Element* const image = images + k * strides[0];
        if constexpr (std::is_same_v<Element, plane_element>) {
          input.read(input.set, chosen, epoch, direct ? image : planes);
        } else {
          input.read(input.set, chosen, epoch, planes);
        }
        if (!direct) {
          own.scatter(strides, planes, image);
        }
      }
    };
    input.pool.run(readers, read_some);
    own.filled_[number] = {.images = images,
                           .shape = shape,
                           .labels = {labels, mine.examples.size()},
                           .first_example = mine.first_example,
                           .global_examples = mine.global_examples};
  }
};

}  // namespace detail

/// The same as loader, but several threads read the examples of a batch, and each epoch may use another variant of each
/// example (see augmenting_dataset). The batches are the same for any number of threads.
///
///   data::parallel_loader<float, nhwc> loader{device, photographs, {.global_batch_size = 64}, {.threads = 8}};
template <class Element, class Layout, class Device = cpu>
class parallel_loader final : public detail::laid_out<Element, Layout, detail::parallel_batches<Element>> {
  static_assert(
      std::is_same_v<Device, cpu>,
      "gradus: a parallel_loader yields batches on a gradus::cpu, or on a gradus::cuda of gradus/data/cuda_loader.cuh");

 public:
  /// @throws configuration_error if the set is empty or options are invalid
  /// @throws device_error if there is not enough memory
  template <class Dataset>
  parallel_loader(cpu& device, const Dataset& set, const loader_options& options, const reader_options& reading = {},
                  error_location where = error_location::current()) try
      : detail
    ::laid_out<Element, Layout, detail::parallel_batches<Element>>{device, set, options, &dense_strides<Layout, 4>,
                                                                   reading} {
      static_assert(explain_dataset<Dataset, parameter_element_t<Element>>());
    }
  catch (error& failure) {
    failure.location_at_call(where);
  }
  /// Refuses temporaries at compile time: the device and the data set must outlive the loader.
  template <class Argument, class Dataset>
  requires detail::not_kept_by_loader<Argument, Dataset, cpu> parallel_loader(Argument&& device, Dataset&& set,
                                                                              const loader_options& options,
                                                                              const reader_options& reading = {})
      : parallel_loader{const_cast<cpu&>(device), set, options, reading} {
    static_assert(detail::explain_kept_by_loader<Argument, Dataset>());
  }
};

}  // namespace gradus::data
