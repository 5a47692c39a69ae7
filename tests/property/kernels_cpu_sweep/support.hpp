// SPDX-License-Identifier: BSL-1.0
//
// What the sweeps of kernels share: elements, layouts, devices and instruction sets that a case draws, arrays of images
// between guarded pages, and how results are compared.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/activation.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/simd/isa.hpp"
#include "gradus/tensor/tensor_view.hpp"
#include "image_coordinates.hpp"
#include "sweep.hpp"

namespace kernel_sweep {

using gradus::cpu;
using gradus::image_extents;
using gradus::image_view;
using gradus::index_t;
using gradus::nchw;
using gradus::nhwc;
using gradus::parameter_element_t;
using gradus::kernels::activation;
using gradus_test::chwn;
using gradus_test::for_each_coordinate;
using gradus_test::guarded_array;
using gradus_test::sweep_case;

/// While it lives, an instruction set that the case draws is in use.
class drawn_instructions {
 public:
  explicit drawn_instructions(sweep_case& test) : before_{gradus::kernels::current_instruction_set()} {
    gradus::kernels::instruction_set which{};
    do {
      constexpr auto& all = gradus::kernels::detail::all_instruction_sets;
      which = all[test.below(std::size(all))];
    } while (!gradus::kernels::is_available(which));
    test.note(gradus::kernels::name_of(which));
    gradus::kernels::set_instruction_set(which);
  }
  ~drawn_instructions() { gradus::kernels::set_instruction_set(before_); }
  drawn_instructions(const drawn_instructions&) = delete;
  drawn_instructions& operator=(const drawn_instructions&) = delete;

 private:
  gradus::kernels::instruction_set before_;
};

/// Calls body(an element of the type) with a type and an instruction set that the case draws.
template <class Body>
void with_element(sweep_case& test, const Body& body) {
  const drawn_instructions instructions{test};
  const auto call = [&]<class Element>(Element) {
    test.note(gradus::element_name<Element>);
    body(Element{});
  };
  switch (test.below(4)) {
    case 0:
      return call(float{});
    case 1:
      return call(double{});
    case 2:
      return call(gradus::bfloat16{});
    default:
      return call(gradus::float16{});
  }
}

/// Calls body(layout) with a layout that the case draws.
template <class... Layouts, class Body>
void with_layout(sweep_case& test, const Body& body) {
  index_t which = test.below(sizeof...(Layouts));
  const auto call = [&](auto layout) {
    if (which-- == 0) {
      test.note(layout.name);
      body(layout);
    }
  };
  (call(Layouts{}), ...);
}

/// A device of 1 to 3 threads: most cases have too little to do for more than one.
[[nodiscard]] inline cpu& device_of(sweep_case& test) {
  static std::array<cpu, 3> devices{cpu{{.intra_op_threads = 1}}, cpu{{.intra_op_threads = 2}},
                                    cpu{{.intra_op_threads = 3}}};
  const index_t threads = test.note("threads", test.once_in(4) ? 2 + test.below(2) : 1);
  return devices[static_cast<std::size_t>(threads - 1)];
}

/// Rounded once.
template <class Element>
[[nodiscard]] Element stored(double value) {
  return static_cast<Element>(static_cast<parameter_element_t<Element>>(value));
}

/// Half the distance of neighbours, in proportion to the smaller one.
template <class Element>
inline constexpr double rounding = sizeof(Element) == 8                        ? 0x1p-53
                                   : sizeof(Element) == 4                      ? 0x1p-24
                                   : std::is_same_v<Element, gradus::bfloat16> ? 0x1p-8
                                                                               : 0x1p-11;

/// How far a number may be from what it is stored as.
template <class Element>
[[nodiscard]] double rounding_of(double value) {
  constexpr double below_normal = std::is_same_v<Element, gradus::float16> ? 0x1p-25 : 0.0;
  return 1.01 * rounding<Element> * std::abs(value) + below_normal;
}

/// Fills an array with numbers that sweep_case::value draws; once in `special` times with a NaN, an infinity or -0 (0:
/// never).
template <class Element>
void fill(sweep_case& test, const guarded_array<Element>& array, index_t special = 0) {
  for (Element& element : array.elements()) {
    double value = test.value();
    if (special > 0 && test.once_in(special)) {
      constexpr double infinity = std::numeric_limits<double>::infinity();
      const double numbers[] = {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity, -0.0};
      value = numbers[test.below(4)];
    }
    element = stored<Element>(value);
  }
}

/// An array that is filled.
template <class Element>
[[nodiscard]] guarded_array<Element> filled(sweep_case& test, index_t size, index_t special = 0) {
  guarded_array<Element> array = test.array<Element>(size);
  fill(test, array, special);
  return array;
}

template <class Element>
[[nodiscard]] std::vector<double> doubles(const guarded_array<Element>& array) {
  std::vector<double> values;
  values.reserve(array.size());
  for (const Element element : array.elements()) {
    values.push_back(static_cast<double>(element));
  }
  return values;
}

/// An activation; the identity only if it may be.
inline activation draw_activation(sweep_case& test, std::string_view what, bool identity = true) {
  switch (test.between(what, identity ? 0 : 1, 4)) {
    case 0:
      return activation::identity;
    case 1:
      return activation::leaky_relu(0.25);
    case 2:
      return {.slope = 0, .cap = 1.5};
    default:
      return activation::relu;
  }
}
/// The function by its definition.
inline double activated(const activation& act, double x) {
  const double low = act.slope == 0 ? 0.0 : act.slope * x;
  return x < 0 ? low : x > act.cap ? act.cap : x;
}
/// `value` times the derivative where the function is y.
inline double times_derivative(const activation& act, double y, double value) {
  const double low = act.slope == 0 ? 0.0 : act.slope * value;
  return !(y > 0) ? low : std::isfinite(act.cap) && y >= act.cap ? 0.0 : value;
}

/// The case fails unless got is expected, or differs by at most `allowed`; where a NaN is expected there must be one.
template <class Element>
bool agrees(sweep_case& test, std::string_view what, index_t index, Element got, double expected, double allowed = 0) {
  const auto value = static_cast<double>(got);
  const bool fine =
      value == expected || std::abs(value - expected) <= allowed || (std::isnan(value) && std::isnan(expected));
  if (!fine) {
    std::ostringstream text;
    text.precision(17);
    text << what << "[" << index << "] is " << value << ", not " << expected << " within " << allowed;
    test.fail(text.str());
  }
  return fine;
}

/// The same for all elements; allowed(i) of each. Nothing outside the array may have been written.
template <class Element, class Allowed>
void all_agree(sweep_case& test, std::string_view what, const guarded_array<Element>& got,
               const std::vector<double>& expected, const Allowed& allowed) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!agrees(test, what, static_cast<index_t>(i), got[i], expected[i], allowed(i))) {
      return;
    }
  }
  if (!got.intact()) {
    test.fail(std::string{what} + ": something was written beside the array");
  }
}

/// The same without a tolerance: expected is what the elements hold.
template <class Element>
void all_equal(sweep_case& test, std::string_view what, const guarded_array<Element>& got,
               const std::vector<double>& expected) {
  all_agree(test, what, got, expected, [](std::size_t) { return 0.0; });
}

}  // namespace kernel_sweep
