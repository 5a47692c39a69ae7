// SPDX-License-Identifier: BSL-1.0
//
// The loops of element-wise kernels, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// y = act(x), for elements in [begin, end)
template <class Element>
void activate(target /*of*/, index_t begin, index_t end, const Element* x, Element* y,
              const held_activation<computed<Element>>& given) noexcept {
  const held_activation<computed<Element>> act = given;
  if (!act.other) {
    for_each_packet<Element>(begin, end, [=](packet<Element> p, index_t i) { p.store(y + i, p.relu(p.load(x + i))); });
    return;
  }
  for_each_packet<Element>(begin, end,
                           [=](packet<Element> p, index_t i) { p.store(y + i, p.activated(act, p.load(x + i))); });
}

/// dx (+)= dy * derivative(y)
template <class Element>
void activate_backward(target /*of*/, index_t begin, index_t end, const Element* dy, const Element* y, Element* dx,
                       bool accumulate, const held_derivative<computed<Element>>& given) noexcept {
  const held_derivative<computed<Element>> derivative = given;
  for_each_packet<Element>(begin, end, [=](packet<Element> p, index_t i) {
    auto value = p.times(derivative, p.load(y + i), p.load(dy + i));
    if (accumulate) {
      value += p.load(dx + i);
    }
    p.store(dx + i, value);
  });
}

/// y = act(a + b)
template <class Element>
void add(target /*of*/, index_t begin, index_t end, const Element* a, const Element* b, Element* y,
         const held_activation<computed<Element>>& given) noexcept {
  const held_activation<computed<Element>> act = given;
  if (!act.any()) {
    for_each_packet<Element>(begin, end,
                             [=](packet<Element> p, index_t i) { p.store(y + i, p.load(a + i) + p.load(b + i)); });
    return;
  }
  for_each_packet<Element>(begin, end, [=](packet<Element> p, index_t i) {
    p.store(y + i, p.activated(act, p.load(a + i) + p.load(b + i)));
  });
}

/// y (+)= x * kept * scale, where `kept` holds 0 or 1 for each element
template <class Element>
void keep(target /*of*/, index_t begin, index_t end, const Element* x, const std::uint8_t* kept,
          computed<Element> scale, Element* y, bool accumulate) noexcept {
  for_each_packet<Element>(begin, end, [=](packet<Element> p, index_t i) {
    const auto factor = __builtin_convertvector(p.load_bytes(kept + i), typename packet<Element>::type) * scale;
    const auto value = p.load(x + i) * factor;
    p.store(y + i, accumulate ? p.load(y + i) + value : value);
  });
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
