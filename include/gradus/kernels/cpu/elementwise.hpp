// SPDX-License-Identifier: BSL-1.0
//
// Element-wise kernels on the CPU.
#pragma once

#include <cstddef>  // std::size_t
#include <cstring>  // std::memmove

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/elementwise/activation.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/elementwise.hpp"

namespace gradus::kernels {

namespace detail {

/// Elements of one task: large compared with the cost of a task, small compared with a cache.
inline constexpr index_t elementwise_grain = index_t{1} << 14U;

/// Calls body(packet, i) for all elements, on all threads.
template <class Element, class Body>
void for_each_element(cpu& device, index_t count, const Body& body) {
  device.parallel_for(count, elementwise_grain,
                      [&body](index_t begin, index_t end) { for_each_packet<Element>(begin, end, body); });
}

}  // namespace detail

/// See has_relu_forward.
template <network_element Element>
GRADUS_NEVER_INLINE void relu_forward(cpu& device, index_t count, const Element* x, Element* y,
                                      const activation& function = activation::relu) {
  const detail::held_activation<detail::computed<Element>> act{function};
  detail::for_each_element<Element>(device, count, [=]<class Packet>(Packet, index_t i) {
    Packet::store(y + i, act.template of<Packet>(Packet::load(x + i)));
  });
}

/// See has_relu_backward.
template <network_element Element>
void relu_backward(cpu& device, index_t count, const Element* dy, const Element* y, Element* dx, bool accumulate,
                   const activation& function = activation::relu) {
  const detail::held_derivative<detail::computed<Element>> derivative{function};
  detail::for_each_element<Element>(device, count, [=]<class Packet>(Packet, index_t i) {
    auto value = derivative.template times<Packet>(Packet::load(y + i), Packet::load(dy + i));
    if (accumulate) {
      value += Packet::load(dx + i);
    }
    Packet::store(dx + i, value);
  });
}

/// See has_add_forward.
template <network_element Element>
void add_forward(cpu& device, index_t count, const Element* a, const Element* b, Element* y,
                 const activation& function) {
  const detail::held_activation<detail::computed<Element>> act{function};
  if (act.any()) {
    detail::for_each_element<Element>(device, count, [=]<class Packet>(Packet, index_t i) {
      const auto sum = Packet::load(a + i) + Packet::load(b + i);
      Packet::store(y + i, act.other ? act.bent(sum) : Packet::relu(sum));
    });
  } else {
    detail::for_each_element<Element>(device, count, [=]<class Packet>(Packet, index_t i) {
      Packet::store(y + i, Packet::load(a + i) + Packet::load(b + i));
    });
  }
}

/// See has_copy_or_add.
template <network_element Element>
void copy_or_add(cpu& device, index_t count, const Element* source, Element* destination, bool accumulate) {
  if (accumulate) {
    detail::for_each_element<Element>(device, count, [=]<class Packet>(Packet, index_t i) {
      Packet::store(destination + i, Packet::load(destination + i) + Packet::load(source + i));
    });
    return;
  }
  device.parallel_for(count, detail::elementwise_grain, [=](index_t begin, index_t end) {
    std::memmove(destination + begin, source + begin, static_cast<std::size_t>(end - begin) * sizeof(Element));
  });
}

}  // namespace gradus::kernels
