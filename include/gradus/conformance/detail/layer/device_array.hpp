// SPDX-License-Identifier: BSL-1.0
//
// Device memory that the host fills and reads.
#pragma once

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint8_t
#include <vector>   // std::vector

#include "gradus/core/index.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::conformance::detail {

/// Device memory that the host fills and reads.
template <class Element, class Device>
class device_array {
 public:
  /// Allocates memory on the device and fills it. The device must outlive the array. @throws device_error
  device_array(Device& device, const std::vector<Element>& elements)
      : device_{&device}, memory_{device, {static_cast<index_t>(elements.size() * sizeof(Element))}} {
    set(elements);
  }

  /// Replaces the elements. @pre the number of elements is that of the constructor
  void set(const std::vector<Element>& elements) {
    if (!elements.empty()) {  // a device need not take null pointers
      device_->copy_from_host(memory_.data(), elements.data(), elements.size() * sizeof(Element));
    }
  }
  /// The first element, in the memory of the device.
  [[nodiscard]] Element* data() { return reinterpret_cast<Element*>(memory_.data()); }
  /// Copies the elements to the host, after earlier work of the device.
  [[nodiscard]] std::vector<Element> get() const {
    std::vector<Element> elements(static_cast<std::size_t>(memory_.size()) / sizeof(Element));
    if (!elements.empty()) {
      device_->copy_to_host(elements.data(), memory_.data(), elements.size() * sizeof(Element));
    }
    return elements;
  }

 private:
  Device* device_;
  gradus::tensor<std::uint8_t, 1, gradus::row_major, Device> memory_;
};

}  // namespace gradus::conformance::detail
