// SPDX-License-Identifier: BSL-1.0
//
// A loader that reads examples with several threads, for images that have to be decoded.
#pragma once

#include <algorithm>    // std::min
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <memory>       // std::addressof
#include <type_traits>  // std::is_same_v

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/reference.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/detail/loader/batch_memory.hpp"
#include "gradus/data/detail/loader/loader_base.hpp"
#include "gradus/data/detail/loader/source.hpp"
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
  bool augment = true;  ///< false: the same as loader_options::augment = false
};

/// A data set with examples that vary from epoch to epoch, such as random crops. In addition to `dataset` it has
/// `d.read(i, epoch, planes)`, which depends only on its arguments and may be called by any number of threads, and such
/// a member for targets that belong to pixels or are numbers.
template <class Set, class Element>
concept augmenting_dataset = dataset<Set, Element> && detail::varies_pixels<Set, Element> &&
    detail::varies_label_maps_too<Set, Element> && detail::varies_real_targets_too<Set, Element>;

namespace detail {

/// The threads that read examples, and their memory.
template <class Plane>
struct reading_threads {
  gradus::detail::thread_pool pool;
  dynamic_array<Plane> planes = {};  // one example per thread
};

/// A base class that is constructed before the loader and destroyed after it.
template <class Plane>
struct has_reading_threads {
  reading_threads<Plane> threads;
};

/// A loader of one element type that fills its slots with several threads. The threads are the first base, so that they
/// outlive the thread of batch_memory.
template <class Element>
class parallel_batches : private has_reading_threads<parameter_element_t<Element>>, public batch_memory<Element> {
  using memory = batch_memory<Element>;
  using typename memory::plane_element;
  using has_threads = has_reading_threads<plane_element>;

 protected:
  template <class Dataset>
  parallel_batches(cpu& device, const Dataset& set, const loader_options& options, batch_strides strides,
                   const reader_options& reading)
      : has_threads{{.pool = gradus::detail::thread_pool{checked(reading.threads), false, device.flush_denormals()}}},
        memory{device, properties_of<plane_element>(set),
               source_of<plane_element>(set, options.augment && reading.augment), options, strides} {
    this->threads.planes =
        dynamic_array<plane_element>(static_cast<std::size_t>(reading.threads) * this->plane_elements());
    this->start(filler_of<Dataset>(), device.flush_denormals());
  }

 private:
  static int checked(int count) {
    if (count < 1 || count > 256) {
      gradus::raise<configuration_error>("parallel_loader", "threads from 1 to 256", {count});
    }
    return count;
  }

  /// For data sets without watch_batch: reports nothing.
  struct unwatched {
    [[nodiscard]] static int batch(const void* /*set*/) noexcept { return 0; }
    [[nodiscard]] static int reader(const void* /*set*/) noexcept { return 0; }
  };
  /// For data sets with watch_batch: calls it.
  template <class Dataset>
  struct watched {
    [[nodiscard]] static auto batch(const void* set) { return static_cast<const Dataset*>(set)->watch_batch(); }
    [[nodiscard]] static auto reader(const void* set) { return static_cast<const Dataset*>(set)->watch_reader(); }
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
    auto& own = static_cast<parallel_batches&>(loader);
    [[maybe_unused]] const auto whole = Watch::batch(own.source_.set);
    const std::uint64_t epoch = own.epoch_of_fill();
    const auto count = static_cast<index_t>(mine.examples.size());
    const index_t readers = std::min<index_t>(own.threads.pool.threads(), count);
    const auto read_some = [&](index_t reader) {
      [[maybe_unused]] const auto part = Watch::reader(own.source_.set);
      plane_element* const planes = own.threads.planes.data() + static_cast<std::size_t>(reader) * own.plane_elements();
      for (index_t k = reader; k < count; k += readers) {
        own.fill_example(number, mine, static_cast<std::size_t>(k), epoch, planes);
      }
    };
    own.threads.pool.run(readers, read_some);
    own.describe_slot(number, mine);
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
  parallel_loader(borrowed<cpu> device, const Dataset& set, const loader_options& options,
                  const reader_options& reading = {}, error_location where = error_location::current()) try
      : detail
    ::laid_out<Element, Layout, detail::parallel_batches<Element>>{device, set, options, &dense_strides<Layout, 4>,
                                                                   reading} {
      static_assert(explain_dataset<Dataset, parameter_element_t<Element>>());
    }
  catch (error& failure) {
    failure.location_at_call(where);
  }
  template <class Dataset>
  parallel_loader(borrowed<cpu>, const Dataset&&,  // gradus: a temporary data set: name it on the line before
                  const loader_options&, const reader_options& = {}) = delete;
};

}  // namespace gradus::data
