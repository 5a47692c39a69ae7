// SPDX-License-Identifier: BSL-1.0
//
// A batch of images without the type of its layout, as a network passes it to its layers.
#pragma once

#include <concepts>  // std::same_as

#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/tensor/tensor_view.hpp"

namespace gradus::nn {

/// A dense batch of images (n, c, h, w) in the memory of a device, in the memory order of the network's layout. The
/// layout is not part of the type, so that networks of all layouts share the code that runs their layers. A layer that
/// needs it makes a view: `base::view(call.inputs[0])`. With `const Element` the images are read-only.
template <class Element, class Device>
class image_batch {
 public:
  /// No images and no memory.
  image_batch() = default;
  /// @param data  the first element, or null where there is no memory
  image_batch(Device& device, Element* data, const gradus::extents<4>& shape) noexcept
      : device_{&device}, data_{data}, extents_{shape} {}
  /// The images of a view.
  template <class Other, class Layout>
  requires(std::same_as<Element, Other> || std::same_as<Element, const Other>)
      image_batch(const image_view<Other, Layout, Device>& view)
  noexcept : device_{&view.device()}, data_{view.data()}, extents_{view.extents()} {}
  /// Converts writable images to read-only ones.
  template <class Other>
  requires(std::same_as<Element, const Other>) image_batch(const image_batch<Other, Device>& other)
  noexcept : image_batch{other.device(), other.data(), other.extents()} {}

  /// The device that holds the memory. @pre not default-constructed
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  /// The first element, in the memory of the device; null where there is no memory.
  [[nodiscard]] Element* data() const noexcept { return data_; }
  /// (n, c, h, w), whatever the memory order.
  [[nodiscard]] const gradus::extents<4>& extents() const noexcept { return extents_; }
  /// The extent of one axis. @pre 0 <= axis < 4
  [[nodiscard]] index_t extent(int axis) const noexcept { return extents_[axis]; }
  /// The number of images.
  [[nodiscard]] index_t examples() const noexcept { return extents_[0]; }
  /// The number of elements.
  [[nodiscard]] index_t size() const { return extents_.size(); }

 private:
  Device* device_ = nullptr;
  Element* data_ = nullptr;
  gradus::extents<4> extents_{};
};

}  // namespace gradus::nn
