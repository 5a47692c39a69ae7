// SPDX-License-Identifier: BSL-1.0
//
// The loader: batches of a data set, prepared ahead by a thread of its own.
// Module: data. Depends on: tensor.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::int32_t, std::uint64_t
#include <memory>   // std::addressof
#include <span>     // std::span
#include <utility>  // std::move
#include <vector>   // std::vector

#include "gradus/core/element.hpp"             // explain_real_element
#include "gradus/core/extents.hpp"             // image_extents, extents
#include "gradus/core/index.hpp"               // index_t
#include "gradus/data/dataset.hpp"             // explain_dataset
#include "gradus/data/detail/loader_base.hpp"  // loader_base, loader_options, set_facts
#include "gradus/data/sampler.hpp"             // sample
#include "gradus/device/cpu.hpp"               // cpu
#include "gradus/layout/layout_policy.hpp"     // explain_layout_policy, axis
#include "gradus/layout/mapping.hpp"           // dense_mapping
#include "gradus/tensor/tensor.hpp"            // image_tensor
#include "gradus/tensor/tensor_view.hpp"       // image_view

namespace gradus::data {

/// One rank's part of a batch. The memory belongs to the loader.
template <class Element, class Layout>
struct batch {
  image_view<const Element, Layout, cpu> images;  ///< (n, c, h, w); n may be 0
  std::span<const std::int32_t> labels = {};      ///< n of them, in [0, classes)
  std::uint64_t first_example = 0;                ///< position of the first image in the order of the epoch
  index_t global_examples = 0;                    ///< of the batch, over all ranks
};

/// Gives the examples of a data set in batches of floating-point images, epoch after epoch.
///
///   data::loader<float, nhwc> loader{device, images, {.batch_size = 64, .seed = 1}};
///   loader.start_epoch(0);
///   while (const auto* batch = loader.next()) { ... batch->images, batch->labels ... }
///
/// A thread of its own shuffles, converts and normalises ahead; nothing is allocated after construction. Which examples
/// come when, and which of them are ours, is said at `sampler`. A loader is used by one thread at a time. The device
/// and the data set must outlive it.
template <class Element, class Layout>
class loader final : public detail::loader_base {
  static_assert(explain_real_element<Element>());
  static_assert(explain_layout_policy<Layout>());

 public:
  using element_type = Element;
  using layout_type = Layout;
  using batch_type = data::batch<Element, Layout>;

  /// @throws configuration_error when the set is empty or options make no sense
  /// @throws device_error when there is not enough memory
  template <class Dataset>
  loader(cpu& device, const Dataset& set, const loader_options& options)
      : loader_base{facts_of(set), options}, source_{source_of(set)} {
    make_slots(device);
    start();
  }
  /// The data set must outlive the loader: give it a name.
  template <class Dataset>
  loader(cpu& device, const Dataset&& set, const loader_options& options) = delete;

  ~loader() { stop(); }

  /// The next batch of the epoch, or nullptr after the last. It is valid until the next call of next or start_epoch.
  /// @throws configuration_error when no epoch was started
  /// @throws format_error when the data set gives a label that is out of range
  /// @throws what the data set threw when it was read; again in every call, until an epoch is started
  [[nodiscard]] const batch_type* next() {
    const std::size_t number = next_slot();
    return number == slots() ? nullptr : std::addressof(slots_[number].contents);
  }

 private:
  /// The data set without its type.
  struct source {
    const void* set;
    void (*read)(const void* set, index_t i, Element* planes);
    std::int32_t (*label)(const void* set, index_t i);
  };

  /// The memory of one batch.
  struct slot {
    image_tensor<Element, Layout, cpu> images;  // (local_batch_size, c, h, w)
    std::vector<std::int32_t> labels;
    batch_type contents;
  };

  template <class Dataset>
  static source source_of(const Dataset& set) {
    return {.set = std::addressof(set),
            .read = [](const void* erased, index_t i,
                       Element* planes) { static_cast<const Dataset*>(erased)->read(i, planes); },
            .label = [](const void* erased, index_t i) -> std::int32_t {
              return static_cast<const Dataset*>(erased)->label(i);
            }};
  }

  template <class Dataset>
  static detail::set_facts facts_of(const Dataset& set) {
    static_assert(explain_dataset<Dataset, Element>());
    return {.size = static_cast<index_t>(set.size()),
            .example = set.example(),
            .classes = set.classes(),
            .hash = static_cast<std::uint64_t>(set.hash())};
  }

  void make_slots(cpu& device) {
    const image_extents& one = example();
    const extents<4> all{local_batch_size(), one.c, one.h, one.w};
    slots_.reserve(slots());
    for (std::size_t i = 0; i < slots(); ++i) {
      image_tensor<Element, Layout, cpu> images{device, all};
      const image_view<const Element, Layout, cpu> view{images};
      slots_.push_back({std::move(images), std::vector<std::int32_t>(static_cast<std::size_t>(all[0])), {view}});
    }
    planes_.resize(static_cast<std::size_t>(one.c * one.h * one.w));
  }

  void fill(std::size_t number, const sample& mine) override {
    slot& into = slots_[number];
    const image_extents& one = example();
    const auto count = static_cast<index_t>(mine.examples.size());
    const image_extents shape{count, one.c, one.h, one.w};
    const dense_mapping<Layout> place{shape};
    const bool as_planes = (one.w == 1 || place.stride(axis::w) == 1) &&
                           (one.h == 1 || place.stride(axis::h) == one.w) &&
                           (one.c == 1 || place.stride(axis::c) == one.h * one.w);
    Element* image = into.images.data();
    for (std::size_t i = 0; i < mine.examples.size(); ++i) {
      const index_t chosen = mine.examples[i];
      into.labels[i] = source_.label(source_.set, chosen);
      check_label(into.labels[i], chosen);
      if (as_planes) {
        source_.read(source_.set, chosen, image);
      } else {
        source_.read(source_.set, chosen, planes_.data());
        scatter(place, image);
      }
      image += place.stride(axis::n);
    }
    into.contents = {.images = {into.images.device(), into.images.data(), shape},
                     .labels = std::span{into.labels}.first(mine.examples.size()),
                     .first_example = mine.first_example,
                     .global_examples = mine.global_examples};
  }

  /// Writes planes_ to the image in the order of the layout.
  void scatter(const dense_mapping<Layout>& place, Element* image) const noexcept {
    const image_extents& shape = place.extents();
    const index_t step = place.stride(axis::w);
    const Element* from = planes_.data();
    for (index_t c = 0; c < shape.c; ++c) {
      for (index_t h = 0; h < shape.h; ++h) {
        Element* to = image + c * place.stride(axis::c) + h * place.stride(axis::h);
        for (index_t w = 0; w < shape.w; ++w) {
          to[w * step] = *from++;
        }
      }
    }
  }

  source source_;
  std::vector<slot> slots_;
  std::vector<Element> planes_;  // the producer's: one image, before its elements are reordered
};

}  // namespace gradus::data
