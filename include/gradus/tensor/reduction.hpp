// SPDX-License-Identifier: BSL-1.0
//
// Reductions: sum, mean, max, min, argmax, argmin and norms over all or some axes.
//
// sum(x) reduces all axes to rank 0. sum<axis::h, axis::w>(x) and sum<0>(x) reduce the given axes and return a
// row_major tensor of the other axes in logical order. A reduction is evaluated immediately, in one pass over its
// operand. Sums of float accumulate in double. The result is bitwise the same for any number of threads.
#pragma once

#include <bit>          // std::popcount
#include <concepts>     // std::same_as
#include <cstdint>      // std::int64_t
#include <limits>       // std::numeric_limits
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::conditional_t
#include <utility>      // std::forward, std::move

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/tensor/detail/cpu/reduce.hpp"
#include "gradus/tensor/detail/expression/evaluate.hpp"
#include "gradus/tensor/functions.hpp"

namespace gradus::detail {

template <class Element>
struct sum_kind {
  static constexpr std::string_view name = "sum";
  static constexpr bool of_empty = true;
  using element_type = Element;
  using result_type = Element;
  using state = std::conditional_t<real_element<Element>, double, std::int64_t>;
  GRADUS_HOST_DEVICE static state initial() noexcept { return 0; }
  GRADUS_HOST_DEVICE static void add(state& total, Element value, index_t) noexcept {
    total += static_cast<state>(value);
  }
  GRADUS_HOST_DEVICE static void merge(state& total, const state& other) noexcept { total += other; }
  GRADUS_HOST_DEVICE static Element finish(const state& total, index_t) noexcept { return static_cast<Element>(total); }
};

template <class Element>
struct mean_kind : sum_kind<Element> {
  static_assert(real_element<Element>, "gradus::mean: float or double: use cast<float>(x)");
  static constexpr std::string_view name = "mean";
  static constexpr bool of_empty = false;
  GRADUS_HOST_DEVICE static Element finish(double total, index_t count) noexcept {
    return static_cast<Element>(total / static_cast<double>(count));
  }
};

/// True if `value` replaces `best`. NaN replaces every number, so that it reaches the result.
template <bool Largest, class Element>
[[nodiscard]] GRADUS_HOST_DEVICE bool beats(Element value, Element best) noexcept {
  if constexpr (real_element<Element>) {
    if (value != value) {
      return best == best;
    }
  }
  return Largest ? best < value : value < best;
}

template <class Element, bool Largest>
struct extreme_kind {
  static constexpr std::string_view name = Largest ? "max" : "min";
  static constexpr bool of_empty = false;
  using element_type = Element;
  using result_type = Element;
  using state = Element;
  GRADUS_HOST_DEVICE static state initial() noexcept {
    using limits = std::numeric_limits<Element>;
    if constexpr (limits::has_infinity) {
      return Largest ? -limits::infinity() : limits::infinity();
    } else {
      return Largest ? limits::lowest() : limits::max();
    }
  }
  GRADUS_HOST_DEVICE static void add(state& best, Element value, index_t) noexcept {
    best = beats<Largest>(value, best) ? value : best;
  }
  GRADUS_HOST_DEVICE static void merge(state& best, const state& other) noexcept { add(best, other, 0); }
  GRADUS_HOST_DEVICE static Element finish(const state& best, index_t) noexcept { return best; }
};

template <class Element, bool Largest>
struct index_kind {
  static constexpr std::string_view name = Largest ? "argmax" : "argmin";
  static constexpr bool of_empty = false;
  using element_type = Element;
  using result_type = std::int64_t;
  struct state {
    Element value;
    std::int64_t index;
  };
  static constexpr std::int64_t nowhere = std::numeric_limits<std::int64_t>::max();
  GRADUS_HOST_DEVICE static state initial() noexcept { return {extreme_kind<Element, Largest>::initial(), nowhere}; }
  GRADUS_HOST_DEVICE static void add(state& best, Element value, index_t index) noexcept {
    merge(best, state{value, index});
  }
  GRADUS_HOST_DEVICE static void merge(state& best, const state& other) noexcept {
    if (beats<Largest>(other.value, best.value) ||
        (!beats<Largest>(best.value, other.value) && other.index < best.index)) {
      best = other;
    }
  }
  GRADUS_HOST_DEVICE static std::int64_t finish(const state& best, index_t) noexcept { return best.index; }
};

/// A device that reduces the axes in `Reduced` of a node: sum, mean and the others ask for it.
template <class Device, class Kind, unsigned Reduced, class Node>
concept has_reduce = requires(Device& device, const Node& node) {
  reduce<Kind, Reduced>(device, node);
};

/// Says which overload of reduction.hpp the device misses. Always true when it compiles.
template <class Device, class Kind, unsigned Reduced, class Node>
consteval bool explain_reduce() {
  static_assert(has_reduce<Device, Kind, Reduced, Node>,
                "gradus: the device lacks an overload for expressions: template <class Kind, unsigned Reduced, class "
                "Node> auto reduce(Device&, const Node&), which returns a leaf; for gradus::cuda include "
                "gradus/tensor/cuda.cuh");
  return true;
}

/// The result of a reduction over the axes in `Reduced`, and the reduced expression.
template <class Kind, unsigned Reduced, class Child>
class reduction_node : public leaf<typename Kind::result_type, Child::rank - std::popcount(Reduced), row_major,
                                   typename Child::device_type> {
  // Here, the compiler says it before what follows from it.
  static_assert(require_computable<Child>() && explain_reduce<typename Child::device_type, Kind, Reduced, Child>());

 public:
  using base_type =
      leaf<typename Kind::result_type, Child::rank - std::popcount(Reduced), row_major, typename Child::device_type>;
  using kind_type = Kind;
  static constexpr int complexity = 1 + Child::complexity;
  static constexpr unsigned reduced = Reduced;

  explicit reduction_node(Child child, error_location where = error_location::current())
      : base_type{reduce<Kind, Reduced>(child.device(), checked(child, where))}, child_{std::move(child)} {}

  [[nodiscard]] const Child& child() const noexcept { return child_; }
  [[nodiscard]] bool reads(const void* data) const noexcept { return child_.reads(data); }
  template <class Leaf>
  static constexpr bool has_leaf = Child::template has_leaf<Leaf>;

 private:
  static const Child& checked(const Child& child, [[maybe_unused]] error_location where) {
    if constexpr (!Kind::of_empty) {
      if (extents_of<Reduced>(child.extents()).size() == 0) {
        raise<shape_error>(Kind::name, "at least one element", to_string(child.extents()), {}, where);
      }
    }
    return child;
  }

  Child child_;
};

template <template <class> class Kind, unsigned Mask, class Operand>
[[nodiscard]] auto make_reduction(Operand&& operand, error_location where = error_location::current()) {
  auto node = as_node(std::forward<Operand>(operand));
  using type = decltype(node);
  static_assert(Mask <= all_axes<type::rank>, "gradus: a reduction over an axis that the tensor does not have");
  constexpr unsigned reduced = Mask == 0 ? all_axes<type::rank> : Mask;
  return reduction_node<Kind<typename type::value_type>, reduced, type>{std::move(node), where};
}

template <class Element>
using max_kind = extreme_kind<Element, true>;
template <class Element>
using min_kind = extreme_kind<Element, false>;
template <class Element>
using argmax_kind = index_kind<Element, true>;
template <class Element>
using argmin_kind = index_kind<Element, false>;

}  // namespace gradus::detail

namespace gradus {

/// The sum of the elements; 0 if there are none.
template <auto... Axes, operand Operand>
[[nodiscard]] auto sum(Operand&& x) {
  return detail::make_reduction<detail::sum_kind, detail::axis_mask<Axes...>>(std::forward<Operand>(x));
}
/// The mean of the elements.
/// @throws shape_error when there is no element
template <auto... Axes, operand Operand>
[[nodiscard]] auto mean(Operand&& x, error_location where = error_location::current()) {
  return detail::make_reduction<detail::mean_kind, detail::axis_mask<Axes...>>(std::forward<Operand>(x), where);
}
/// The largest element; NaN if one is NaN. Equal maxima, or all NaN, share the adjoint evenly. For this, gradients
/// evaluates the operand once more if it is an expression.
/// @throws shape_error when there is no element
template <auto... Axes, operand Operand>
[[nodiscard]] auto max(Operand&& x, error_location where = error_location::current()) {
  return detail::make_reduction<detail::max_kind, detail::axis_mask<Axes...>>(std::forward<Operand>(x), where);
}
/// The smallest element; NaN if one is NaN. Equal minima share the adjoint as maxima do.
/// @throws shape_error when there is no element
template <auto... Axes, operand Operand>
[[nodiscard]] auto min(Operand&& x, error_location where = error_location::current()) {
  return detail::make_reduction<detail::min_kind, detail::axis_mask<Axes...>>(std::forward<Operand>(x), where);
}
/// The index of the largest element (the first of equals, or the first NaN), as std::int64_t: the coordinate along the
/// reduced axis, or the row-major index over several reduced axes in logical order.
/// @throws shape_error when there is no element
template <auto... Axes, operand Operand>
[[nodiscard]] auto argmax(Operand&& x, error_location where = error_location::current()) {
  return detail::make_reduction<detail::argmax_kind, detail::axis_mask<Axes...>>(std::forward<Operand>(x), where);
}
/// The index of the smallest element (the first of equals, or the first NaN), as argmax gives that of the largest.
/// @throws shape_error when there is no element
template <auto... Axes, operand Operand>
[[nodiscard]] auto argmin(Operand&& x, error_location where = error_location::current()) {
  return detail::make_reduction<detail::argmin_kind, detail::axis_mask<Axes...>>(std::forward<Operand>(x), where);
}
/// The sum of the absolute values. The derivative by an element that is 0 is 0.
template <auto... Axes, operand Operand>
[[nodiscard]] auto norm_l1(Operand&& x) {
  return sum<Axes...>(abs(std::forward<Operand>(x)));
}
/// The square root of the sum of the squares. Where it is 0, its derivatives are 0.
template <auto... Axes, operand Operand>
[[nodiscard]] auto norm_l2(Operand&& x) {
  return detail::make_map<detail::norm_operation>(sum<Axes...>(square(std::forward<Operand>(x))));
}

}  // namespace gradus
