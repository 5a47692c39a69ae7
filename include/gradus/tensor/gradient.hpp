// SPDX-License-Identifier: BSL-1.0
//
// Derivatives of expressions by reverse-mode differentiation: gradients(loss, w, b).
//
// The loss is an expression whose nodes own their operands. The adjoint of a node (the derivative of the loss by the
// node's value) is an expression too. It is passed from the loss to the leaves, and evaluated where it is used more
// than once: at products, and where it has become long.
#pragma once

#include <array>        // std::array
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <tuple>        // std::tuple, std::get
#include <type_traits>  // std::remove_cvref_t
#include <utility>      // std::index_sequence, std::move, std::index_sequence_for

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/tensor/assign.hpp"
#include "gradus/tensor/broadcast.hpp"
#include "gradus/tensor/detail/expression/map.hpp"
#include "gradus/tensor/functions.hpp"
#include "gradus/tensor/matrix.hpp"
#include "gradus/tensor/reduction.hpp"

namespace gradus::detail {

/// The leaf type of a tensor or view in an expression.
template <class Tensor>
using leaf_of =
    leaf<typename Tensor::value_type, Tensor::rank, typename Tensor::layout_type, typename Tensor::device_type>;
template <class Tensor>
using gradient_of =
    tensor<typename Tensor::value_type, Tensor::rank, typename Tensor::layout_type, typename Tensor::device_type>;

[[noreturn]] inline void refuse_unread(std::size_t position, std::size_t count) {
  raise<configuration_error>("gradients", "tensors that the loss depends on",
                             {"a loss that has no derivative by tensor ", position + 1, " of ", count},
                             "pass the object that the loss reads: a tensor is recognized by its memory, and a copy "
                             "has other memory; conditions of where() have no derivative");
}

/// The tensors to differentiate by, and the adjoints that have reached each of them.
template <class... Tensors>
class gradient_sink {
 public:
  explicit gradient_sink(const Tensors&... by)
      : by_{by.data()...}, gradients_{gradient_of<Tensors>{by.device(), by.extents()}...} {}

  /// True if the node's type allows it to depend on one of the tensors.
  template <class Node>
  static constexpr bool reachable = (Node::template has_leaf<leaf_of<Tensors>> || ...);

  /// True if the node depends on one of the tensors.
  template <class Node>
  [[nodiscard]] bool reaches(const Node& node) const noexcept {
    if constexpr (reachable<Node>) {
      for (const void* data : by_) {
        if (node.reads(data)) {
          return true;
        }
      }
    }
    return false;
  }

  /// Adds the adjoint of a leaf to the gradients of the tensors in the same memory.
  template <class Leaf, class Adjoint>
  void add(const Leaf& node, const Adjoint& adjoint) {
    using gradient_type = gradient_of<Leaf>;
    [&, this ]<std::size_t... Index>(std::index_sequence<Index...>) {
      const auto offer = [&, this]<std::size_t Position>(std::integral_constant<std::size_t, Position>) {
        if constexpr (std::same_as<Leaf, leaf_of<typename nth<Position, Tensors...>::type>>) {
          if (node.data() == by_[Position]) {
            // A second adjoint is evaluated before it is added, so that one loop is compiled for each adjoint, not two.
            gradient_type& gradient = std::get<Position>(gradients_);
            add_to(gradient, arrived_[Position], adjoint);
            arrived_[Position] = true;
          }
        }
      };
      (offer(std::integral_constant<std::size_t, Index>{}), ...);
    }
    (std::index_sequence_for<Tensors...>{});
  }

  /// @throws configuration_error if no adjoint has reached one of the tensors
  void require_all() const {
    for (std::size_t k = 0; k < sizeof...(Tensors); ++k) {
      if (!arrived_[k]) {
        refuse_unread(k, sizeof...(Tensors));
      }
    }
  }

  [[nodiscard]] std::tuple<gradient_of<Tensors>...> take() && { return std::move(gradients_); }

 private:
  template <class Gradient, class Adjoint>
  static void add_to(Gradient& gradient, bool arrived, const Adjoint& adjoint) {
    if (arrived) {
      const leaf_of<Gradient> before{gradient.device(), gradient.data(), gradient.extents()};
      gradient = before + evaluated(adjoint);
    } else {
      assign_node(gradient.view(), adjoint);
    }
  }

  template <class Adjoint>
  static auto evaluated(const Adjoint& adjoint) {
    if constexpr (Adjoint::stored) {
      return adjoint.detached();
    } else {
      return evaluate_stored(adjoint);
    }
  }

  std::array<const void*, sizeof...(Tensors)> by_;
  std::array<bool, sizeof...(Tensors)> arrived_{};
  std::tuple<gradient_of<Tensors>...> gradients_;
};

inline constexpr int longest_adjoint = 12;  // nodes

/// Evaluates an adjoint that is used more than once or has become long.
template <bool Reused, class Adjoint>
[[nodiscard]] auto settled(const Adjoint& adjoint) {
  if constexpr (!Adjoint::stored && (Reused || Adjoint::complexity > longest_adjoint)) {
    return evaluate_stored(adjoint);
  } else {
    return adjoint.detached();
  }
}

template <class Node, class Adjoint, class Sink>
void propagate(const Node& node, const Adjoint& adjoint, Sink& sink);

// Leaves and constants.
template <class Element, int Rank, class Layout, class Device, class Adjoint, class Sink>
void backward(const leaf<Element, Rank, Layout, Device>& node, const Adjoint& adjoint, Sink& sink) {
  sink.add(node, adjoint);
}

/// True if every evaluation of the node gives the same bits. Arithmetic may round differently within other expressions,
/// where the compiler contracts a product and a sum, and functions differ where there are no packets.
template <class Node>
inline constexpr bool exact = true;
template <class Operation, class... Children>
inline constexpr bool exact<map<Operation, Children...>> = Operation::exact && (exact<Children> && ...);

/// A condition as 1 and 0, in packets if it has them.
template <class Node>
[[nodiscard]] auto indicator(const Node& condition) {
  using element = typename Node::packet_element;
  if constexpr (real_element<element>) {
    using number = constant<element, Node::rank, typename Node::layout_type, typename Node::device_type>;
    return map<where_operation, Node, number, number>{condition, number{1}, number{0}};
  } else {
    return cast<float>(condition);
  }
}

/// Evaluates the operand of a comparison once. Adjoints are passed to several operands and tensors, each in its own
/// pass, and all must agree on the operand that an element came from.
template <bool Compared, class Node>
[[nodiscard]] auto comparable(const Node& node) {
  if constexpr (!Compared || exact<Node>) {
    return node.detached();
  } else if constexpr (std::same_as<typename Node::value_type, bool>) {
    return evaluate_stored(indicator(node.detached())) != 0;
  } else {
    return evaluate_stored(node.detached());
  }
}

template <class Operation, class... Children, class Adjoint, class Sink>
void backward(const map<Operation, Children...>& node, const Adjoint& adjoint, Sink& sink) {
  constexpr int dependent = (0 + ... + (Sink::template reachable<Children> ? 1 : 0));
  constexpr bool heavy = ((Sink::template reachable<Children> && Children::complexity > 1) || ...);
  const auto settled_adjoint = settled<(dependent > 1 && heavy)>(adjoint);
  [&]<std::size_t... Indices>(std::index_sequence<Indices...>) {
    const auto self = [&]<class... Detached>(Detached... children) {
      return map<Operation, Detached...>{std::move(children)...};
    }(comparable<(static_cast<int>(Indices) < Operation::compared)>(node.template child<Indices>())...);
    const auto one = [&]<std::size_t Index>(std::integral_constant<std::size_t, Index>) {
      using child = typename nth<Index, Children...>::type;
      // The condition of where() has no derivative.
      constexpr bool differentiable = !std::same_as<typename child::value_type, bool>;
      if constexpr (Sink::template reachable<child> && (differentiable || !std::same_as<Operation, where_operation>)) {
        static_assert(!std::same_as<typename map<Operation, Children...>::value_type, bool>,
                      "gradus::gradients: comparisons are not differentiable: use them as the condition of where()");
        if (sink.reaches(node.template child<Index>())) {
          propagate(node.template child<Index>(),
                    Operation::template derivative<static_cast<int>(Index)>(settled_adjoint, self,
                                                                            self.template child<Indices>()...),
                    sink);
        }
      }
    };
    (one(std::integral_constant<std::size_t, Indices>{}), ...);
  }
  (std::index_sequence_for<Children...>{});
}

template <class Value, int Rank, class Layout, unsigned Mask, class Adjoint, class Sink>
void backward(const broadcast<Value, Rank, Layout, Mask>& node, const Adjoint& adjoint, Sink& sink) {
  constexpr unsigned repeated = all_axes<Rank> & ~Mask;
  if constexpr (repeated == 0) {
    static_assert(std::same_as<Layout, row_major>, "gradus::gradients: along<> over all axes of images");
    propagate(node.value(), adjoint, sink);
  } else {
    propagate(node.value(), reduce<sum_kind<typename Adjoint::value_type>, repeated>(node.device(), adjoint), sink);
  }
}

template <class Child, class Adjoint, class Sink>
void backward(const stored_node<Child>& node, const Adjoint& adjoint, Sink& sink) {
  propagate(node.child(), adjoint, sink);
}

/// An adjoint of the kept axes, repeated along the reduced axes of the child.
template <unsigned Kept, class Child, class Adjoint>
[[nodiscard]] auto repeated(const Child& child, const Adjoint& adjoint) {
  auto values = detail::stored(adjoint).detached();
  return broadcast<decltype(values), Child::rank, typename Child::layout_type, Kept>{std::move(values),
                                                                                     child.extents()};
}

template <class Kind, unsigned Reduced, class Child, class Adjoint, class Sink>
void backward(const reduction_node<Kind, Reduced, Child>& node, const Adjoint& adjoint, Sink& sink) {
  using element = typename Child::value_type;
  constexpr unsigned kept = all_axes<Child::rank> & ~Reduced;
  const Child& child = node.child();
  if constexpr (std::same_as<Kind, sum_kind<element>>) {
    propagate(child, repeated<kept>(child, adjoint), sink);
  } else if constexpr (std::same_as<Kind, mean_kind<element>>) {
    const double count = static_cast<double>(extents_of<Reduced>(child.extents()).size());
    propagate(child, repeated<kept>(child, adjoint * (1.0 / count)), sink);
  } else if constexpr (std::same_as<Kind, max_kind<element>> || std::same_as<Kind, min_kind<element>>) {
    // Finds the elements that equal their extreme: the child's values are read from memory, or evaluated once more.
    const auto values = detail::stored(child.detached());
    const auto best = [&] {
      if constexpr (Child::stored) {
        return node.detached();
      } else {
        return reduce<Kind, Reduced>(child.device(), values);
      }
    }();
    const auto extreme = values == repeated<kept>(child, best) || values != values;  // a NaN is the extreme
    const auto ties = reduce<sum_kind<element>, Reduced>(child.device(), indicator(extreme));
    propagate(child, where(extreme, repeated<kept>(child, adjoint / ties), 0), sink);
  } else {
    static_assert(!std::same_as<Kind, Kind>, "gradus::gradients: argmax and argmin are not differentiable");
  }
}

template <class Left, class Right, class Adjoint, class Sink>
void backward(const product_node<Left, Right>& node, const Adjoint& adjoint, Sink& sink) {
  const auto g = detail::stored(adjoint).detached();
  using stored_adjoint = std::remove_cvref_t<decltype(g)>;
  const factor<stored_adjoint, false> plain{g};
  const factor<stored_adjoint, true> transposed{g};
  const auto& left = node.left();
  const auto& right = node.right();
  using left_leaf = std::remove_cvref_t<decltype(left.child.detached())>;
  using right_leaf = std::remove_cvref_t<decltype(right.child.detached())>;
  if constexpr (Sink::template reachable<typename Left::child_type>) {
    if (sink.reaches(left.child)) {
      // L R = P: dL = g R^T, and for L = A^T dA = R g^T.
      if constexpr (Left::transposed) {
        propagate(left.child, multiply(factor<right_leaf, Right::transposed>{right.child.detached()}, transposed),
                  sink);
      } else {
        propagate(left.child, multiply(plain, factor<right_leaf, !Right::transposed>{right.child.detached()}), sink);
      }
    }
  }
  if constexpr (Sink::template reachable<typename Right::child_type>) {
    if (sink.reaches(right.child)) {
      if constexpr (Right::transposed) {
        propagate(right.child, multiply(transposed, factor<left_leaf, Left::transposed>{left.child.detached()}), sink);
      } else {
        propagate(right.child, multiply(factor<left_leaf, !Left::transposed>{left.child.detached()}, plain), sink);
      }
    }
  }
}

template <class Child, class Adjoint, class Sink>
void backward(const transposed_node<Child>& node, const Adjoint& adjoint, Sink& sink) {
  const auto values = detail::stored(adjoint);
  propagate(node.child(), reordered<row_major>(values, {1, 0}), sink);
}

template <class Layout, class Child, class Adjoint, class Sink>
void backward(const layout_cast_node<Layout, Child>& node, const Adjoint& adjoint, Sink& sink) {
  const auto values = detail::stored(adjoint);
  propagate(node.child(), reordered<typename Child::layout_type>(values, {0, 1, 2, 3}), sink);
}

template <class Node, class Adjoint, class Sink>
void propagate(const Node& node, const Adjoint& adjoint, Sink& sink) {
  if constexpr (Sink::template reachable<Node>) {
    if (sink.reaches(node)) {
      backward(node, adjoint, sink);
    }
  }
}

}  // namespace gradus::detail

namespace gradus {

/// A loss and its derivatives, as value_and_gradients returns them.
template <class Element, class... Gradients>
struct differentiated {
  Element value;                       ///< the loss
  std::tuple<Gradients...> gradients;  ///< one tensor for each argument, of its shape, in the order of the arguments
};

/// The derivatives of an expression of rank 0 by tensors or views that it reads, each of its tensor's shape:
///
///   auto [gradient, offset] = gradients(mean(square(x * w + b - y)), w, b);
///
/// A tensor is recognized by its memory: pass the objects that the loss reads, and do not change them in between.
/// @throws configuration_error if the loss does not read one of the tensors, or reads it only in conditions of where()
template <expression Loss, tensor_operand... Tensors>
requires(sizeof...(Tensors) > 0) [[nodiscard]] auto gradients(const Loss& loss, const Tensors&... by) {
  static_assert(Loss::rank == 0, "gradus::gradients: the loss has rank 0: reduce it with sum or mean");
  static_assert(real_element<typename Loss::value_type>, "gradus::gradients: the loss is float or double");
  static_assert((real_element<typename Tensors::value_type> && ...),
                "gradus::gradients: derivatives by tensors of float or double");
  using element = typename Loss::value_type;
  using device_type = typename Loss::device_type;
  detail::gradient_sink<Tensors...> sink{by...};
  detail::temporary<element, 0, row_major, device_type> one{loss.device(), extents<0>{}};
  const element value{1};
  loss.device().copy_from_host(one.data(), &value, sizeof(value));
  detail::propagate(loss, std::move(one).done(), sink);
  sink.require_all();
  return std::move(sink).take();
}

/// The loss with its derivatives: `const auto [loss, gradients] = value_and_gradients(mean(square(e)), w, b);`
template <expression Loss, tensor_operand... Tensors>
[[nodiscard]] auto value_and_gradients(const Loss& loss, const Tensors&... by) {
  return differentiated<typename Loss::value_type, detail::gradient_of<Tensors>...>{scalar_of(loss),
                                                                                    gradients(loss, by...)};
}

}  // namespace gradus
