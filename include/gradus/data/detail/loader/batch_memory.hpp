// SPDX-License-Identifier: BSL-1.0
//
// The memory of a loader's batches and the conversion of images into it; independent of the layout.
#pragma once

#include <algorithm>    // std::max
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
#include "gradus/data/detail/loader/loader_base.hpp"
#include "gradus/data/detail/loader/source.hpp"
#include "gradus/data/sampler.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/tensor/instances.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::data::detail {

/// Computes the strides of a dense batch (n, c, h, w) in a layout, in elements.
using batch_strides = std::array<index_t, 4> (*)(const extents<4>&) noexcept;

/// A prepared batch, in the order of the layout.
template <class Element>
struct filled_batch {
  using number = parameter_element_t<Element>;

  const Element* images = nullptr;
  image_extents shape;
  std::span<const std::int32_t> labels;
  const number* targets = nullptr;  // null: the set has no real targets
  image_extents target_shape;
  std::span<const number> weights;
  std::uint64_t first_example = 0;
  index_t global_examples = 0;
};

/// A loader of one element type.
template <class Element>
class batch_memory : public loader_base {
 protected:
  using plane_element = parameter_element_t<Element>;  // the element type that data sets write

  /// @throws device_error if there is not enough memory
  template <class Dataset>
  batch_memory(cpu& device, const Dataset& set, const loader_options& options, batch_strides strides)
      : batch_memory{device, properties_of<plane_element>(set), source_of<plane_element>(set, options.augment), options,
                     strides} {
    planes_ = dynamic_array<plane_element>(plane_elements());
    start(
        [](loader_base& loader, std::size_t number, const sample& mine) {
          auto& self = static_cast<batch_memory&>(loader);
          if constexpr (requires { set.watch_batch(); }) {
            const auto watch = static_cast<const Dataset*>(self.source_.set)->watch_batch();
            self.fill(number, mine);
          } else {
            self.fill(number, mine);
          }
        },
        device.flush_denormals());
  }

  /// A loader that does not start: the derived class does.
  batch_memory(cpu& device, const dataset_properties& set, const set_source<plane_element>& source,
               const loader_options& options, batch_strides strides)
      : loader_base{set, options},
        source_{source},
        strides_{strides},
        images_{device, {static_cast<index_t>(slots()), aligned<Element>(largest_batch() * example().size())}},
        labels_(slots() * labels_of_slot()),
        targets_{device, {static_cast<index_t>(slots()), aligned<plane_element>(largest_batch() * target().size())}},
        weights_(set.weighted ? slots() * static_cast<std::size_t>(largest_batch()) : 0),
        filled_(slots()) {}

  GRADUS_COLD ~batch_memory() { stop(); }

  [[nodiscard]] cpu& device() const noexcept { return images_.device(); }

  /// The memory of all batches, for devices that prepare to copy it.
  [[nodiscard]] std::span<Element> images_memory() noexcept {
    return {images_.data(), static_cast<std::size_t>(images_.size())};
  }
  /// Bytes of the labels, of the real targets and of the weights of the largest batch.
  [[nodiscard]] std::size_t label_bytes() const noexcept { return labels_of_slot() * sizeof(std::int32_t); }
  [[nodiscard]] std::size_t target_bytes() const noexcept {
    return static_cast<std::size_t>(largest_batch() * target().size()) * sizeof(plane_element);
  }
  [[nodiscard]] std::size_t weight_bytes() const noexcept {
    return properties().weighted ? static_cast<std::size_t>(largest_batch()) * sizeof(plane_element) : 0;
  }

  /// The next batch of the epoch, or nullptr after the last.
  [[nodiscard]] const filled_batch<Element>* next_filled() {
    const std::size_t number = next_slot();
    return number == slots() ? nullptr : std::addressof(filled_[number]);
  }

  /// Elements that fill_example needs for the planes of an example.
  [[nodiscard]] std::size_t plane_elements() const {
    return static_cast<std::size_t>(std::max(example().size(), target().size()));
  }

  /// Writes example `chosen` of the data set as number k of the batch in a slot. Any number of threads may call it, for
  /// different k.
  /// @param planes  plane_elements() elements that nothing else uses meanwhile
  /// @throws format_error if a label is out of range or a weight is not a number of at least 0
  void fill_example(std::size_t number, const sample& mine, std::size_t k, std::uint64_t epoch, plane_element* planes) {
    const auto count = static_cast<index_t>(mine.examples.size());
    const index_t chosen = mine.examples[k];
    target_memory<plane_element> to;
    if (properties().labels > 0) {
      to.labels = labels_.data() + number * labels_of_slot() + k * static_cast<std::size_t>(properties().labels);
    }
    plane_element weight = 1;
    to.weight = &weight;
    const image_batch_order order{example(), strides_(batch_of(example(), count))};
    Element* const image = images_at(number) + static_cast<index_t>(k) * order.strides[0];
    if (std::is_same_v<Element, plane_element> && order.is_planes()) {
      source_.read(source_.set, chosen, epoch, reinterpret_cast<plane_element*>(image));
    } else {
      source_.read(source_.set, chosen, epoch, planes);
      order.scatter(planes, image);
    }
    if (target().c == 0) {
      source_.read_targets(source_.set, chosen, epoch, to);
    } else {
      const image_batch_order target_order{target(), strides_(batch_of(target(), count))};
      plane_element* const values = targets_at(number) + static_cast<index_t>(k) * target_order.strides[0];
      to.values = target_order.is_planes() ? values : planes;
      source_.read_targets(source_.set, chosen, epoch, to);
      if (to.values == planes) {
        target_order.scatter(planes, values);
      }
    }
    for (index_t i = 0; i < properties().labels; ++i) {
      check_label(to.labels[i], chosen);
    }
    if (properties().weighted) {
      check_weight(static_cast<double>(weight), chosen);
      weights_[number * static_cast<std::size_t>(largest_batch()) + k] = weight;
    }
  }

  /// Describes the batch of a slot when all its examples have been written.
  void describe_slot(std::size_t number, const sample& mine) {
    const std::size_t count = mine.examples.size();
    const auto examples = static_cast<index_t>(count);
    filled_[number] = {
        .images = images_at(number),
        .shape = batch_of(example(), examples),
        .labels = {labels_.data() + number * labels_of_slot(), count * static_cast<std::size_t>(properties().labels)},
        .targets = target().c > 0 ? targets_at(number) : nullptr,
        .target_shape = target().c > 0 ? batch_of(target(), examples) : image_extents{},
        .weights = {weights_.data() + (properties().weighted ? number * static_cast<std::size_t>(largest_batch()) : 0),
                    properties().weighted ? count : 0},
        .first_example = mine.first_example,
        .global_examples = mine.global_examples};
  }

 private:
  /// The order in which the images of a batch are stored.
  struct image_batch_order {
    const image_extents& one;
    std::array<index_t, 4> strides;  // of n, c, h, w

    /// True if an image has the order in which a data set writes it.
    [[nodiscard]] bool is_planes() const noexcept {
      return (one.w == 1 || strides[3] == 1) && (one.h == 1 || strides[2] == one.w) &&
             (one.c == 1 || strides[1] == one.h * one.w);
    }

    /// Writes planes to the image in the order of the layout.
    template <class To>
    void scatter(const plane_element* from, To* image) const noexcept {
      for (index_t c = 0; c < one.c; ++c) {
        for (index_t h = 0; h < one.h; ++h) {
          To* const to = image + c * strides[1] + h * strides[2];
          for (index_t w = 0; w < one.w; ++w) {
            to[w * strides[3]] = static_cast<To>(*from++);
          }
        }
      }
    }
  };

  static image_extents batch_of(const image_extents& one, index_t count) noexcept {
    return {count, one.c, one.h, one.w};
  }

  /// Every slot begins at the device's alignment.
  template <class Any>
  [[nodiscard]] static index_t aligned(index_t elements) noexcept {
    constexpr auto unit = static_cast<index_t>(cpu::alignment / sizeof(Any));
    return (elements + unit - 1) / unit * unit;
  }

  [[nodiscard]] std::size_t labels_of_slot() const noexcept {
    return static_cast<std::size_t>(largest_batch() * properties().labels);
  }
  [[nodiscard]] Element* images_at(std::size_t number) noexcept {
    return images_.data() + static_cast<index_t>(number) * images_.extent(1);
  }
  [[nodiscard]] plane_element* targets_at(std::size_t number) noexcept {
    return targets_.data() + static_cast<index_t>(number) * targets_.extent(1);
  }

  void fill(std::size_t number, const sample& mine) {
    for (std::size_t k = 0; k < mine.examples.size(); ++k) {
      fill_example(number, mine, k, epoch_of_fill(), planes_.data());
    }
    describe_slot(number, mine);
  }

 protected:
  set_source<plane_element> source_;

 private:
  batch_strides strides_;
  tensor<Element, 2> images_;             // (slots, elements of the largest batch and padding)
  std::vector<std::int32_t> labels_;      // slot after slot
  tensor<plane_element, 2> targets_;      // (slots, elements of the largest batch and padding)
  dynamic_array<plane_element> weights_;  // slot after slot
  dynamic_array<filled_batch<Element>> filled_;
  dynamic_array<plane_element> planes_;  // used by the producer: one example, before it is reordered or rounded
};

}  // namespace gradus::data::detail

GRADUS_COMPILED_CLASS_OF_ELEMENT(::gradus::data::detail::batch_memory)
