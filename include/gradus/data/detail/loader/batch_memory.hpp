// SPDX-License-Identifier: BSL-1.0
//
// The memory of a loader's batches and the conversion of images into it; independent of the layout.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::int32_t, std::uint64_t
#include <memory>       // std::addressof
#include <span>         // std::span
#include <type_traits>  // std::is_same_v
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/dataset.hpp"
#include "gradus/data/detail/loader/loader_base.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::data::detail {

/// Computes the strides of a dense batch (n, c, h, w) in a layout, in elements.
using batch_strides = std::array<index_t, 4> (*)(const extents<4>&) noexcept;

/// A prepared batch, in the order of the layout.
template <class Element>
struct filled_batch {
  const Element* images = nullptr;
  image_extents shape;
  std::span<const std::int32_t> labels;
  std::uint64_t first_example = 0;
  index_t global_examples = 0;
};

template <class Element>
class parallel_batches;

/// A loader of one element type.
template <class Element>
class batch_memory : public loader_base {
  using plane_element = parameter_element_t<Element>;  // the element type that data sets write
  friend class parallel_batches<Element>;

 protected:
  /// @throws device_error if there is not enough memory
  template <class Dataset>
  GRADUS_COLD batch_memory(cpu& device, const Dataset& set, const loader_options& options, batch_strides strides)
      : loader_base{facts_of(set), options},
        source_{source_of(set)},
        strides_{strides},
        images_{device, {static_cast<index_t>(slots()), slot_elements()}},
        labels_(slots() * static_cast<std::size_t>(largest_batch())),
        filled_(slots()),
        planes_(static_cast<std::size_t>(example().size())) {
    start([](loader_base& loader, std::size_t number, const sample& mine) {
      auto& self = static_cast<batch_memory&>(loader);
      if constexpr (requires { set.watch_batch(); }) {
        const auto watch = static_cast<const Dataset*>(self.source_.set)->watch_batch();
        self.fill(number, mine);
      } else {
        self.fill(number, mine);
      }
    });
  }

  /// The same, but another function fills the slots. It is called after an epoch has been started.
  batch_memory(cpu& device, const void* set, const set_facts& facts, const loader_options& options,
               batch_strides strides, fill_function how)
      : loader_base{facts, options},
        source_{.set = set, .read = nullptr, .label = nullptr},
        strides_{strides},
        images_{device, {static_cast<index_t>(slots()), slot_elements()}},
        labels_(slots() * static_cast<std::size_t>(largest_batch())),
        filled_(slots()) {
    start(how);
  }

  GRADUS_COLD ~batch_memory() { stop(); }

  [[nodiscard]] cpu& device() const noexcept { return images_.device(); }

  /// The memory of all batches, for devices that prepare to copy it.
  [[nodiscard]] std::span<Element> images_memory() noexcept {
    return {images_.data(), static_cast<std::size_t>(images_.size())};
  }
  [[nodiscard]] std::span<std::int32_t> labels_memory() noexcept { return labels_; }

  /// The next batch of the epoch, or nullptr after the last.
  [[nodiscard]] const filled_batch<Element>* next_filled() {
    const std::size_t number = next_slot();
    return number == slots() ? nullptr : std::addressof(filled_[number]);
  }

 private:
  /// The type-erased data set.
  struct source {
    const void* set;
    void (*read)(const void* set, index_t i, plane_element* planes);
    std::int32_t (*label)(const void* set, index_t i);
  };

  template <class Dataset>
  static source source_of(const Dataset& set) {
    return {.set = std::addressof(set),
            .read = [](const void* erased, index_t i,
                       plane_element* planes) { static_cast<const Dataset*>(erased)->read(i, planes); },
            .label = [](const void* erased, index_t i) -> std::int32_t {
              return static_cast<const Dataset*>(erased)->label(i);
            }};
  }

  template <class Dataset>
  static set_facts facts_of(const Dataset& set) {
    static_assert(explain_dataset<Dataset, plane_element>());
    return {.size = static_cast<index_t>(set.size()),
            .example = set.example(),
            .classes = set.classes(),
            .hash = static_cast<std::uint64_t>(set.hash())};
  }

  /// Every slot begins at the device's alignment.
  [[nodiscard]] index_t slot_elements() const {
    constexpr auto unit = static_cast<index_t>(cpu::alignment / sizeof(Element));
    const image_extents& one = example();
    return (image_extents{largest_batch(), one.c, one.h, one.w}.size() + unit - 1) / unit * unit;
  }

  void fill(std::size_t number, const sample& mine) {
    const image_extents& one = example();
    const image_extents shape{static_cast<index_t>(mine.examples.size()), one.c, one.h, one.w};
    const auto strides = strides_(shape);  // strides of n, c, h, w
    const bool as_planes = holds_planes(strides);
    Element* const images = images_.data() + static_cast<index_t>(number) * images_.extent(1);
    std::int32_t* const labels = labels_.data() + static_cast<index_t>(number) * largest_batch();
    for (std::size_t i = 0; i < mine.examples.size(); ++i) {
      const index_t chosen = mine.examples[i];
      labels[i] = source_.label(source_.set, chosen);
      check_label(labels[i], chosen);
      Element* const image = images + static_cast<index_t>(i) * strides[0];
      if constexpr (std::is_same_v<Element, plane_element>) {
        source_.read(source_.set, chosen, as_planes ? image : planes_.data());
        if (as_planes) {
          continue;
        }
      } else {
        source_.read(source_.set, chosen, planes_.data());
      }
      scatter(strides, planes_.data(), image);
    }
    filled_[number] = {.images = images,
                       .shape = shape,
                       .labels = {labels, mine.examples.size()},
                       .first_example = mine.first_example,
                       .global_examples = mine.global_examples};
  }

  /// True if images of the layout have the order in which a data set writes them.
  [[nodiscard]] bool holds_planes(const std::array<index_t, 4>& strides) const noexcept {
    const image_extents& one = example();
    return (one.w == 1 || strides[3] == 1) && (one.h == 1 || strides[2] == one.w) &&
           (one.c == 1 || strides[1] == one.h * one.w);
  }

  /// Writes planes to the image in the order of the layout.
  void scatter(const std::array<index_t, 4>& strides, const plane_element* from, Element* image) const noexcept {
    const image_extents& one = example();
    for (index_t c = 0; c < one.c; ++c) {
      for (index_t h = 0; h < one.h; ++h) {
        Element* const to = image + c * strides[1] + h * strides[2];
        for (index_t w = 0; w < one.w; ++w) {
          to[w * strides[3]] = static_cast<Element>(*from++);
        }
      }
    }
  }

  source source_;
  batch_strides strides_;
  tensor<Element, 2> images_;         // (slots, elements of the largest batch and padding)
  std::vector<std::int32_t> labels_;  // slot after slot
  dynamic_array<filled_batch<Element>> filled_;
  dynamic_array<plane_element> planes_;  // used by the producer: one image, before it is reordered or rounded
};

}  // namespace gradus::data::detail
