// SPDX-License-Identifier: BSL-1.0
//
// Random trees of all functions of expressions: chosen by the compiler from a seed, and what a reference makes of them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trees {

enum class op : std::uint8_t {
  leaf_x,  // two tensors of the tree's shape, of which y is a slice of a larger one
  leaf_y,
  leaf_v,  // values along some axes
  leaf_s,  // of rank 0
  negate,  // of one operand
  exp,
  log,
  sqrt,
  tanh,
  sigmoid,
  abs,
  square,
  power,
  cast,
  clamp_numbers,
  with_number,
  other_layout,  // rank 4
  transposed,    // rank 2
  add,           // of two
  subtract,
  multiply,
  divide,
  maximum,
  minimum,
  where_two,
  clamp,  // of three
  where_three,
  products,  // rank 2
  sum,       // over some axes or all
  mean,
  largest,
  smallest,
  norm_l1,
  norm_l2,
  count
};

inline constexpr std::array exponents{0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 1.5, -2.0};
inline constexpr int number_variants = 9;
inline constexpr int where_variants = 4;

struct instruction {
  op what;
  std::array<int, 3> of;  // earlier instructions
  unsigned mask;          // the axes of the result: all, or those that a reduction left
  int variant;
};

[[nodiscard]] constexpr std::size_t number_of_operands(op what) {
  return what <= op::leaf_s ? 0 : what < op::add || what >= op::sum ? 1 : what <= op::where_two ? 2 : 3;
}

/// Does operand number k stand in the condition of a where and nowhere else?
[[nodiscard]] constexpr bool only_in_condition(const instruction& n, std::size_t k) {
  const auto variant = static_cast<std::size_t>(n.variant);
  constexpr std::size_t none = 3;
  if (n.what == op::where_two) {
    return std::array<std::size_t, where_variants>{none, 0, 1, none}[variant] == k;
  }
  return n.what == op::where_three && std::array<std::size_t, where_variants>{1, 2, 0, 1}[variant] == k;
}

/// A tree as instructions of which each stands after its operands; the last is the root.
struct tree {
  static constexpr int most = 24;
  int rank = 1;
  unsigned vector_mask = 0;  // the axes of v
  int count = 0;
  std::array<instruction, most> nodes{};

  [[nodiscard]] constexpr unsigned all() const { return (1U << static_cast<unsigned>(rank)) - 1U; }
  /// Whether the root has a derivative by a leaf: it is read outside the conditions of where().
  [[nodiscard]] constexpr bool differentiable_by(op leaf) const {
    std::array<bool, most> reached{};
    reached[static_cast<std::size_t>(count - 1)] = true;
    for (int i = count - 1; i >= 0; --i) {
      const instruction& n = nodes[static_cast<std::size_t>(i)];
      if (!reached[static_cast<std::size_t>(i)]) {
        continue;
      }
      if (n.what == leaf) {
        return true;
      }
      for (std::size_t k = 0; k < number_of_operands(n.what); ++k) {
        if (!only_in_condition(n, k)) {
          reached[static_cast<std::size_t>(n.of[k])] = true;
        }
      }
    }
    return false;
  }
  [[nodiscard]] constexpr bool has(op what) const {
    for (int i = 0; i < count; ++i) {
      if (nodes[static_cast<std::size_t>(i)].what == what) {
        return true;
      }
    }
    return false;
  }
};

/// Grows a tree: the root is given, all else is drawn.
class grower {
 public:
  constexpr grower(std::uint64_t seed, int rank) : state_{seed} {
    tree_.rank = rank;
    tree_.vector_mask = rank == 1 ? 0U : 1U + draw_unsigned(tree_.all() - 1U);
  }

  [[nodiscard]] constexpr tree grow(op root, int depth) {
    if (root >= op::sum) {  // beside what it reduces, so that it has a gradient of its own at every element
      const int wide = node(tree_.all(), depth - 1);
      const int narrow = reduction(root, drawn_mask(), depth - 1);
      emit({op::multiply, {wide, narrow, 0}, tree_.all(), 0});
    } else {
      apply(root, tree_.all(), depth);
    }
    return tree_;
  }

 private:
  constexpr std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  constexpr int draw(int below) { return static_cast<int>(bits() % static_cast<std::uint64_t>(below)); }
  constexpr unsigned draw_unsigned(unsigned below) { return static_cast<unsigned>(bits() % below); }

  constexpr unsigned drawn_mask() {
    const int kind = draw(3);
    return kind == 0 ? 0U : kind == 1 ? tree_.vector_mask : draw_unsigned(tree_.all());
  }

  constexpr int emit(const instruction& next) {
    tree_.nodes[static_cast<std::size_t>(tree_.count)] = next;
    return tree_.count++;
  }
  constexpr int leaf(unsigned mask) {
    if (mask == tree_.all()) {
      return emit({draw(2) == 0 ? op::leaf_x : op::leaf_y, {}, mask, 0});
    }
    if (mask == 0) {
      return emit({op::leaf_s, {}, mask, 0});
    }
    if (mask == tree_.vector_mask) {
      return emit({op::leaf_v, {}, mask, 0});
    }
    return reduction(op::sum, mask, 0);
  }
  /// Extremes mostly of functions that packets approximate.
  constexpr int reduction(op what, unsigned mask, int depth) {
    const bool approximated = (what == op::largest || what == op::smallest) && depth > 0 && draw(3) > 0;
    const int of = approximated ? apply(drawn(op::exp, op::sigmoid), tree_.all(), depth) : node(tree_.all(), depth);
    return emit({what, {of, 0, 0}, mask, 0});
  }
  constexpr op drawn(op first, op last) {
    return static_cast<op>(static_cast<int>(first) + draw(static_cast<int>(last) - static_cast<int>(first) + 1));
  }

  /// A node with the axes of `mask`.
  constexpr int node(unsigned mask, int depth) {
    if (depth <= 0 || tree_.count > 8) {
      return leaf(mask);
    }
    const int kind = draw(100);
    if (mask != tree_.all() && kind < 50) {
      return reduction(drawn(op::sum, op::norm_l2), mask, depth - 1);
    }
    if (kind < 45) {
      return apply(drawn(op::negate, op::transposed), mask, depth);
    }
    if (kind < 90 || mask != tree_.all()) {
      return apply(drawn(op::add, op::minimum), mask, depth);
    }
    return apply(drawn(op::where_two, op::products), mask, depth);
  }

  constexpr int apply(op what, unsigned mask, int depth) {
    const int whole_rank = mask == tree_.all() ? tree_.rank : 0;
    if (what == op::products && whole_rank != 2) {
      what = op::maximum;
    }
    if ((what == op::other_layout && whole_rank != 4) || (what == op::transposed && whole_rank != 2)) {
      what = op::power;
    }
    if (what < op::add) {
      const int of = node(mask, depth - 1);
      const int variants = what == op::power ? static_cast<int>(exponents.size()) : number_variants;
      return emit({what, {of, 0, 0}, mask, draw(variants)});
    }
    if (what <= op::minimum) {
      const bool wide = mask == tree_.all();
      const int shape = draw(4);  // operands of one shape, or one of fewer axes
      const unsigned narrow = wide ? drawn_mask() : 0U;
      const int first = node(shape == 2 ? narrow : mask, depth - 1);
      const int second = node(shape == 3 ? narrow : mask, depth - 1);
      return emit({what, {first, second, 0}, mask, draw(2)});
    }
    const int first = node(mask, depth - 1);
    const int second = node(what != op::products && draw(3) == 0 ? 0U : mask, depth - 1);
    const int third = what == op::where_two ? 0 : node(mask, depth - 1);
    return emit({what, {first, second, third}, mask, draw(where_variants)});
  }

  std::uint64_t state_;
  tree tree_;
};

/// Tree number `Index`: every function is a root, in every rank.
[[nodiscard]] constexpr tree make_tree(int index) {
  constexpr int first = static_cast<int>(op::negate);
  constexpr int roots = static_cast<int>(op::count) - first;
  const int rank = 1 + index / 2 % 4;
  return grower{static_cast<std::uint64_t>(index) + 1, rank}.grow(static_cast<op>(first + index * 7 % roots), 3);
}

/// The tree as text, for messages.
[[nodiscard]] std::string text_of(const tree& shown);

/// The leaves of a tree: elements in logical order, and the weights of the root's elements in the loss.
struct leaves {
  bool is_float = false;  // else double
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> v;
  std::vector<double> s;
  std::vector<double> weights;
};

/// What is compared: the root's elements, and the gradients of sum(root * weights).
struct outcome {
  std::vector<double> root;
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> v;
  std::vector<double> s;
};
inline constexpr std::array outcome_parts{&outcome::root, &outcome::x, &outcome::y, &outcome::v, &outcome::s};
inline constexpr std::array<const char*, 5> outcome_names{"value", "gradient by x", "gradient by y", "gradient by v",
                                                          "gradient by s"};

/// The tree evaluated by the definitions of its functions, one node after the other. Trial 0 rounds every result to the
/// element type; other trials move each result that is rounded by some units in the last place, the same for the same
/// function of the same operands, so that ties remain.
[[nodiscard]] outcome reference(const tree& which, const leaves& of, int trial);

/// Leaves of data set number `set`: shapes about the widths of packets, elements of which many are equal or borders.
/// A `large` one has more elements than a task of a thread.
[[nodiscard]] leaves draw_leaves(const tree& which, bool is_float, int index, int set, bool large);

/// Compares what a device computed with the reference; more trials are made where a few do not explain a difference.
struct comparison {
  std::int64_t compared = 0;
  std::int64_t tight = 0;      // with a tolerance below a thousandth of the value
  std::int64_t escalated = 0;  // results that took more trials
  std::string failure;         // of the first difference
};
void compare(const tree& which, const leaves& of, const outcome& computed, comparison& result);

/// The number in a variable of the environment.
[[nodiscard]] int from_environment(const char* name, int otherwise);

}  // namespace trees
