// SPDX-License-Identifier: BSL-1.0
//
// Random trees as expressions of tensors on a device, against the reference.
#pragma once

#include <boost/test/unit_test.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gradus/tensor/copy.hpp"
#include "gradus/tensor/expressions.hpp"
#include "trees.hpp"

namespace trees {

/// Everything about tree number `Index` that the compiler must know.
template <int Index>
struct chosen {
  static constexpr tree value = make_tree(Index);
  using element = std::conditional_t<Index % 2 == 0, float, double>;
  using images = std::conditional_t<Index / 8 % 3 == 0, gradus::nchw,
                                    std::conditional_t<Index / 8 % 3 == 1, gradus::nhwc, gradus::row_major>>;
  using layout = std::conditional_t<value.rank == 4, images, gradus::row_major>;
  using other_layout = std::conditional_t<std::is_same_v<layout, gradus::nhwc>, gradus::nchw, gradus::nhwc>;
};

/// The leaves on a device.
template <class X, class Y, class V, class S>
struct operands {
  const X& x;
  const Y& y;
  const V& v;
  const S& s;
};

/// Calls function with the axes of the mask as template arguments.
template <unsigned Mask, class Function>
auto with_axes(const Function& function) {
  constexpr auto axes = [] {
    std::array<int, static_cast<std::size_t>(std::popcount(Mask))> found{};
    std::size_t count = 0;
    for (int axis = 0; axis < 4; ++axis) {
      if ((Mask >> static_cast<unsigned>(axis) & 1U) != 0) {
        found[count++] = axis;
      }
    }
    return found;
  }();
  return [&]<std::size_t... K>(std::index_sequence<K...>) {
    return function.template operator()<axes[K]...>();
  }
  (std::make_index_sequence<axes.size()>{});
}

template <class Tree, int At, class Operands>
decltype(auto) express(const Operands& of);

/// An operand in an expression whose result has the axes `Mask`.
template <class Tree, int At, unsigned Mask, class Operands>
decltype(auto) express_operand(const Operands& of) {
  constexpr instruction n = Tree::value.nodes[At];
  constexpr int rank = Tree::value.rank;
  if constexpr (n.mask == Mask || n.mask == 0) {
    return express<Tree, At>(of);
  } else if constexpr (rank == 2 && At % 2 == 0) {
    if constexpr (n.mask == 1U) {
      return per_row(express<Tree, At>(of));
    } else {
      return per_column(express<Tree, At>(of));
    }
  } else if constexpr (rank == 4 && n.mask == 2U && At % 2 == 0) {
    return per_channel(express<Tree, At>(of));
  } else {
    return with_axes<n.mask>([&]<int... Axes>() { return gradus::along<Axes...>(express<Tree, At>(of)); });
  }
}

template <class Tree, op What, int Variant, class Child>
auto express_of_one(const Child& a) {
  if constexpr (What == op::negate) {
    return -a;
  } else if constexpr (What == op::exp) {
    return exp(a);
  } else if constexpr (What == op::log) {
    return log(a);
  } else if constexpr (What == op::sqrt) {
    return sqrt(a);
  } else if constexpr (What == op::tanh) {
    return tanh(a);
  } else if constexpr (What == op::sigmoid) {
    return sigmoid(a);
  } else if constexpr (What == op::abs) {
    return abs(a);
  } else if constexpr (What == op::square) {
    return square(a);
  } else if constexpr (What == op::power) {
    return pow(a, exponents[Variant]);
  } else if constexpr (What == op::cast) {
    using element = typename Tree::element;
    using other = std::conditional_t<std::is_same_v<element, float>, double, float>;
    return gradus::cast<element>(gradus::cast<other>(a) * 1.5);
  } else if constexpr (What == op::clamp_numbers) {
    return clamp(a, -0.5, 1);
  } else if constexpr (What == op::other_layout) {
    return gradus::layout_cast<typename Tree::layout>(gradus::layout_cast<typename Tree::other_layout>(a) * 2);
  } else if constexpr (What == op::transposed) {
    return transpose(transpose(a) * 2);
  } else if constexpr (Variant == 0) {
    return a + 2;
  } else if constexpr (Variant == 1) {
    return 2 - a;
  } else if constexpr (Variant == 2) {
    return a * -1.5;
  } else if constexpr (Variant == 3) {
    return 3 / a;
  } else if constexpr (Variant == 4) {
    return a / 4;
  } else if constexpr (Variant == 5) {
    return maximum(a, 0);
  } else if constexpr (Variant == 6) {
    return minimum(1, a);
  } else if constexpr (Variant == 7) {
    return where(a > 0.5, a, 0);
  } else {
    return where(a <= 0, 0.25, a);
  }
}

template <op What, int Variant, class First, class Second>
auto express_of_two(const First& a, const Second& b) {
  if constexpr (What == op::add) {
    return a + b;
  } else if constexpr (What == op::subtract) {
    return a - b;
  } else if constexpr (What == op::multiply) {
    return a * b;
  } else if constexpr (What == op::divide) {
    return a / b;
  } else if constexpr (What == op::maximum) {
    return maximum(a, b);
  } else if constexpr (What == op::minimum) {
    return minimum(a, b);
  } else if constexpr (Variant == 0) {
    return where(a > b, a, b);
  } else if constexpr (Variant == 1) {
    return where(a <= b, b, 0.5);
  } else if constexpr (Variant == 2) {
    return where(a == b, 2, a);
  } else {
    return where(a < 0.5 || b > 1, a, b);
  }
}

template <op What, int Variant, class First, class Second, class Third>
auto express_of_three(const First& a, const Second& b, const Third& c) {
  if constexpr (What == op::clamp) {
    return clamp(a, b, c);
  } else if constexpr (What == op::products) {
    if constexpr (Variant % 2 == 0) {
      return matmul(matmul(a, transpose(b)), c);
    } else {
      return matmul(a, matmul(transpose(b), c));
    }
  } else if constexpr (Variant == 0) {
    return where(a < b, c, a);
  } else if constexpr (Variant == 1) {
    return where(a >= b && c > 0, a, b);
  } else if constexpr (Variant == 2) {
    return where(!(a == b) || c <= 0.5, c, b);
  } else {
    return where(a != b, a, c);
  }
}

template <op What, int... Axes, class Child>
auto express_reduction(const Child& a) {
  if constexpr (What == op::sum) {
    return gradus::sum<Axes...>(a);
  } else if constexpr (What == op::mean) {
    return gradus::mean<Axes...>(a);
  } else if constexpr (What == op::largest) {
    return gradus::max<Axes...>(a);
  } else if constexpr (What == op::smallest) {
    return gradus::min<Axes...>(a);
  } else if constexpr (What == op::norm_l1) {
    return gradus::norm_l1<Axes...>(a);
  } else {
    return gradus::norm_l2<Axes...>(a);
  }
}

template <class Tree, int At, class Operands>
decltype(auto) express(const Operands& of) {
  constexpr instruction n = Tree::value.nodes[At];
  if constexpr (n.what == op::leaf_x) {
    return (of.x);
  } else if constexpr (n.what == op::leaf_y) {
    return (of.y);
  } else if constexpr (n.what == op::leaf_v) {
    return (of.v);
  } else if constexpr (n.what == op::leaf_s) {
    return (of.s);
  } else if constexpr (n.what < op::add) {
    return express_of_one<Tree, n.what, n.variant>(express<Tree, n.of[0]>(of));
  } else if constexpr (n.what <= op::where_two) {
    return express_of_two<n.what, n.variant>(express_operand<Tree, n.of[0], n.mask>(of),
                                             express_operand<Tree, n.of[1], n.mask>(of));
  } else if constexpr (n.what < op::sum) {
    return express_of_three<n.what, n.variant>(express<Tree, n.of[0]>(of), express<Tree, n.of[1]>(of),
                                               express<Tree, n.of[2]>(of));
  } else if constexpr (n.mask == 0) {
    return express_reduction<n.what>(express<Tree, n.of[0]>(of));
  } else {
    return with_axes<(Tree::value.all() & ~n.mask)>([&]<int... Axes>() {
      return express_reduction<n.what, Axes...>(express<Tree, n.of[0]>(of));
    });
  }
}

/// A tensor on the host of elements in logical order.
template <class Element, int Rank, class Layout>
gradus::tensor<Element, Rank, Layout> tensor_of(gradus::cpu& host, const gradus::extents<Rank>& shape,
                                                const std::vector<double>& elements) {
  gradus::tensor<Element, Rank, Layout> result{host, shape};
  const auto strides = gradus::dense_strides<Layout, Rank>(shape);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    auto rest = static_cast<gradus::index_t>(i);
    gradus::index_t offset = 0;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * strides[static_cast<std::size_t>(axis)];
      rest /= shape[axis];
    }
    result.data()[offset] = static_cast<Element>(elements[i]);
  }
  return result;
}

/// The elements of a tensor in logical order.
template <class Tensor>
std::vector<double> elements_of(gradus::cpu& host, const Tensor& from) {
  const auto values = gradus::to(host, from);
  constexpr int rank = Tensor::rank;
  const auto& shape = values.extents();
  const auto strides = gradus::dense_strides<typename Tensor::layout_type, rank>(shape);
  std::vector<double> result(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    auto rest = static_cast<gradus::index_t>(i);
    gradus::index_t offset = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * strides[static_cast<std::size_t>(axis)];
      rest /= shape[axis];
    }
    result[i] = static_cast<double>(values.data()[offset]);
  }
  return result;
}

/// A tuple of one pair of references, or of none.
template <bool Wanted, class First, class Second>
auto pair_if(const First& first, Second& second) {
  if constexpr (Wanted) {
    return std::make_tuple(std::pair<const First&, Second&>{first, second});
  } else {
    return std::tuple{};
  }
}

/// Tree number `Index` on a device: its value, and its gradients by all leaves.
template <int Index, class Device>
outcome compute(gradus::cpu& host, Device& device, const leaves& of) {
  using which = chosen<Index>;
  using element = typename which::element;
  using layout = typename which::layout;
  constexpr int rank = which::value.rank;
  constexpr unsigned vector_mask = which::value.vector_mask;
  std::array<gradus::index_t, static_cast<std::size_t>(rank)> extents{};
  std::array<gradus::index_t, static_cast<std::size_t>(std::popcount(vector_mask))> vector_extents{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    extents[i] = of.shape[i];
    if ((vector_mask >> i & 1U) != 0) {
      vector_extents[count++] = extents[i];
    }
  }
  const gradus::extents<rank> shape{extents};
  const auto x = gradus::to(device, tensor_of<element, rank, layout>(host, shape, of.x));
  const auto weights = gradus::to(device, tensor_of<element, rank, layout>(host, shape, of.weights));
  const auto v = gradus::to(device, tensor_of<element, std::popcount(vector_mask), gradus::row_major>(
                                        host, gradus::extents<std::popcount(vector_mask)>{vector_extents}, of.v));
  const auto s = gradus::to(device, tensor_of<element, 0, gradus::row_major>(host, gradus::extents<0>{}, of.s));
  // y is a part of a larger tensor, after an entry of the slowest axis.
  constexpr auto slowest = static_cast<std::size_t>(gradus::memory_order<layout, rank>[0]);
  auto longer = extents;
  longer[slowest] += 1;
  gradus::tensor<element, rank, layout> longer_y{host, gradus::extents<rank>{longer}};
  longer_y.view().slice(1, extents[slowest]).assign(tensor_of<element, rank, layout>(host, shape, of.y));
  const auto larger = gradus::to(device, longer_y);
  const auto y = larger.view().slice(1, extents[slowest]);

  const operands<decltype(x), decltype(y), decltype(v), decltype(s)> all{x, y, v, s};
  const auto as_tensor = [](const auto& node) { return gradus::evaluate(node); };
  outcome result;
  const auto root = express<which, which::value.count - 1>(all);
  result.root = elements_of(host, as_tensor(root));
  // Of a leaf without a derivative the reference gives zeros.
  result.x.assign(of.x.size(), 0.0);
  result.y.assign(of.y.size(), 0.0);
  result.v.assign(of.v.size(), 0.0);
  result.s.assign(of.s.size(), 0.0);
  const auto leaves_with_derivatives = std::tuple_cat(pair_if<which::value.differentiable_by(op::leaf_x)>(x, result.x),
                                                      pair_if<which::value.differentiable_by(op::leaf_y)>(y, result.y),
                                                      pair_if<which::value.differentiable_by(op::leaf_v)>(v, result.v),
                                                      pair_if<which::value.differentiable_by(op::leaf_s)>(s, result.s));
  std::apply(
      [&](const auto&... by) {
        if constexpr (sizeof...(by) > 0) {
          const auto found = gradients(sum(root * weights), by.first...);
          std::apply([&](const auto&... gradient) { ((by.second = elements_of(host, gradient)), ...); }, found);
        }
      },
      leaves_with_derivatives);
  return result;
}

/// Checks tree number `Index` on data sets; GRADUS_TREE and GRADUS_TREE_SET name one of each.
template <int Index, class Device>
void check_tree(gradus::cpu& host, Device& device, int sets, comparison& total) {
  constexpr tree which = chosen<Index>::value;
  constexpr bool is_float = std::is_same_v<typename chosen<Index>::element, float>;
  const int only_tree = from_environment("GRADUS_TREE", -1);
  const int only_set = from_environment("GRADUS_TREE_SET", -1);
  if (only_tree >= 0 && only_tree != Index) {
    return;
  }
  for (int set = only_set >= 0 ? only_set : 0; set < (only_set >= 0 ? only_set + 1 : sets); ++set) {
    const leaves of = draw_leaves(which, is_float, Index, set, set + 1 == sets || set % 64 == 63);
    comparison one;
    compare(which, of, compute<Index>(host, device, of), one);
    total.compared += one.compared;
    total.tight += one.tight;
    total.escalated += one.escalated;
    if (!one.failure.empty()) {
      BOOST_TEST(false, "tree " << Index << ", data set " << set << (is_float ? ", float" : ", double") << ": "
                                << text_of(which) << ": " << one.failure);
      return;
    }
  }
}

inline void report(const comparison& total) {
  BOOST_TEST_MESSAGE(total.compared << " comparisons, " << total.tight << " of them within a thousandth of the value, "
                                    << total.escalated << " results that took more trials");
  BOOST_TEST(10 * total.tight >= 9 * total.compared);
}

/// A device with matrix products.
template <class Device>
concept multiplies = requires(Device& device, float* out, const gradus::detail::matrix_reference<float>& factor) {
  multiply_matrices(device, out, factor, factor);
};

/// `Count` trees from number `First` on, on a device.
template <int First, int Count, class Device>
void check_trees_on(gradus::cpu& host, Device& device, int sets) {
  comparison total;
  [&]<int... K>(std::integer_sequence<int, K...>) {
    const auto check = [&]<int Index>(std::integral_constant<int, Index>) {
      if constexpr (multiplies<Device> || !chosen<Index>::value.has(op::products)) {
        check_tree<Index>(host, device, sets, total);
      }
    };
    (check(std::integral_constant<int, First + K>{}), ...);
  }
  (std::make_integer_sequence<int, Count>{});
  report(total);
}

/// The same on CPUs of one to three threads.
template <int First, int Count>
void check_trees() {
  comparison total;
  const int sets = from_environment("GRADUS_TREE_SETS", 20);
  [&]<int... K>(std::integer_sequence<int, K...>) {
    const auto check = [&]<int Index>(std::integral_constant<int, Index>) {
      gradus::cpu host{{.intra_op_threads = 1 + Index % 3}};
      check_tree<Index>(host, host, sets, total);
    };
    (check(std::integral_constant<int, First + K>{}), ...);
  }
  (std::make_integer_sequence<int, Count>{});
  report(total);
}

}  // namespace trees
