// SPDX-License-Identifier: BSL-1.0
//
// The reference of random trees: loops in double over one node at a time, forwards and backwards.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "trees.hpp"

namespace trees {

namespace {

using numbers = std::vector<double>;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

std::uint64_t bits_of(double value) {
  return std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value);
}

/// A sum, and whether every order of its terms gives it without rounding.
struct sum_of_terms {
  long double value = 0;
  double magnitude = 0;
  double above = 0;       // sum of the positive terms
  double below = 0;       // sum of the negative terms
  double finest = 1e300;  // a power of two that all terms are multiples of

  void add(long double term) {
    value += term;
    magnitude += static_cast<double>(std::abs(term));
    (term > 0 ? above : below) += static_cast<double>(term);
    if (term != 0 && std::isfinite(term)) {
      int exponent = 0;
      long double part = std::frexp(term, &exponent);
      while (part != std::trunc(part)) {
        part *= 2;
        --exponent;
      }
      finest = std::min(finest, std::ldexp(1.0, exponent));
    }
  }
  [[nodiscard]] bool exact(double limit = 0x1p22) const { return magnitude / finest < limit; }
};

/// Results in the element type, moved a little in all trials but the first.
class arithmetic {
 public:
  arithmetic(bool is_float, int trial)
      : is_float_{is_float},
        trial_{static_cast<std::uint64_t>(trial)},
        epsilon_{is_float ? static_cast<double>(std::numeric_limits<float>::epsilon())
                          : std::numeric_limits<double>::epsilon()},
        smallest_{is_float ? static_cast<double>(std::numeric_limits<float>::denorm_min())
                           : std::numeric_limits<double>::denorm_min()},
        smallest_normal_{is_float ? static_cast<double>(std::numeric_limits<float>::min())
                                  : std::numeric_limits<double>::min()},
        largest_{is_float ? static_cast<double>(std::numeric_limits<float>::max())
                          : std::numeric_limits<double>::max()} {}

  [[nodiscard]] double rounded(double value) const {
    return is_float_ ? static_cast<double>(static_cast<float>(value)) : value;
  }
  /// In the element type that is not the tree's.
  [[nodiscard]] double rounded_otherwise(double value) const {
    return is_float_ ? value : static_cast<double>(static_cast<float>(value));
  }
  [[nodiscard]] bool is_float() const { return is_float_; }
  [[nodiscard]] double smallest_normal() const { return smallest_normal_; }

  /// A number of [-1, 1] that belongs to a function and its operands.
  [[nodiscard]] double noise(std::uint64_t what, double a, double b = 0) const {
    const std::uint64_t z = mix(mix(mix(what * 0x9e3779b97f4a7c15U + trial_) ^ bits_of(a)) + bits_of(b));
    return static_cast<double>(z >> 11U) * 0x1p-52 - 1.0;
  }
  [[nodiscard]] bool coin(std::uint64_t what, double a) const { return trial_ != 0 && noise(what, a) < 0; }

  /// A result that is off by at most `units` of the last place and `more`.
  [[nodiscard]] double moved(double value, double units, std::uint64_t what, double a, double b = 0,
                             double more = 0) const {
    const double result = rounded(value);
    if (trial_ == 0 || !std::isfinite(value)) {
      return result;
    }
    return rounded(value + noise(what, a, b) * (units * (epsilon_ * std::abs(value) + smallest_) + more));
  }
  [[nodiscard]] double plus(double a, double b) const {
    const double value = a + b;
    const double back = value - a;
    const bool exact = ((a - (value - back)) + (b - back)) == 0 && rounded(value) == value;
    return exact ? value : moved(value, 1, 1, std::min(a, b), std::max(a, b));
  }
  [[nodiscard]] double times(double a, double b) const {
    const double value = a * b;
    const bool exact = std::fma(a, b, -value) == 0 && rounded(value) == value && std::abs(value) > smallest_normal_;
    return exact || a == 0 || b == 0 ? value : moved(value, 1, 2, std::min(a, b), std::max(a, b));
  }
  [[nodiscard]] double over(double a, double b) const {
    const double value = a / b;
    const bool exact = std::fma(value, b, -a) == 0 && rounded(value) == value && std::abs(value) > smallest_normal_;
    return exact || a == 0 ? value : moved(value, 1, 3, a, b);
  }
  [[nodiscard]] double root(double a) const {
    const double value = std::sqrt(a);
    return std::fma(value, value, -a) == 0 && rounded(value) == value ? value : moved(value, 1, 4, a);
  }
  /// A sum of terms in any order, with an error of at most `unit` times the sum of their absolute values. Where the
  /// error may be larger than the sum, some trials give 0 and some a small number: large terms absorb small ones before
  /// they cancel, or cancel before the small ones are added. Where a part of the terms overflows, some trials overflow.
  [[nodiscard]] double result_of(const sum_of_terms& sum, double unit) const {
    const auto value = static_cast<double>(sum.value);
    if (sum.exact() && rounded(value) == value) {
      return value;
    }
    const double error = unit * sum.magnitude;
    const bool to_infinity = sum.above > largest_;
    const bool to_minus_infinity = sum.below < -largest_;
    if (trial_ != 0 && (to_infinity || to_minus_infinity)) {
      const double infinity = std::numeric_limits<double>::infinity();
      const double chance = noise(14, sum.above, sum.below);
      return chance < 0                         ? rounded(value)
             : to_infinity && to_minus_infinity ? std::numeric_limits<double>::quiet_NaN()
             : to_infinity                      ? infinity
                                                : -infinity;
    }
    if (trial_ != 0 && std::abs(value) <= error) {
      if (const double chance = noise(7, value, sum.magnitude); chance > 0) {
        return chance > 0.5 ? 0.0 : cancelled(error, value);
      }
    }
    return moved(value, 1, 5, value, sum.magnitude, error);
  }
  /// A sum whose large terms cancel exactly: what its small terms leave has any magnitude up to the error.
  [[nodiscard]] double cancelled(double error, double value) const {
    const double largest = std::log(std::min(error, largest_));
    const double least = std::log(smallest_normal_);
    const double magnitude = std::exp(least + std::abs(noise(8, value, error)) * std::max(0.0, largest - least));
    return rounded(noise(9, value, error) < 0 ? -magnitude : magnitude);
  }
  [[nodiscard]] double power(double a, double exponent) const {
    if (is_float_) {
      const double value = static_cast<double>(std::pow(static_cast<float>(a), static_cast<float>(exponent)));
      return exponent == 0 || exponent == 1 ? value : moved(value, 2, 6, a, exponent);
    }
    return exponent == 0 || exponent == 1 ? std::pow(a, exponent) : moved(std::pow(a, exponent), 2, 6, a, exponent);
  }
  [[nodiscard]] double epsilon() const { return epsilon_; }

 private:
  bool is_float_;
  std::uint64_t trial_;
  double epsilon_;
  double smallest_;
  double smallest_normal_;
  double largest_;
};

double larger_of(double a, double b) {
  return a != a ? a : b != b ? b : a < b ? b : a;
}
double smaller_of(double a, double b) {
  return a != a ? a : b != b ? b : b < a ? b : a;
}

class evaluation {
 public:
  evaluation(const tree& which, const leaves& of, int trial) : tree_{which}, of_{of}, in_{of.is_float, trial} {
    std::int64_t size = 1;
    for (int i = 0; i < tree_.rank; ++i) {
      size *= of.shape[static_cast<std::size_t>(i)];
    }
    full_ = static_cast<std::size_t>(size);
    values_.resize(static_cast<std::size_t>(tree_.count));
    adjoints_.resize(values_.size());
    inner_.resize(values_.size());
  }

  outcome run() {
    for (int i = 0; i < tree_.count; ++i) {
      forward(i);
    }
    outcome result;
    result.root = values_.back();
    result.x.assign(of_.x.size(), 0.0);
    result.y.assign(of_.y.size(), 0.0);
    result.v.assign(of_.v.size(), 0.0);
    result.s.assign(1, 0.0);
    adjoints_.back() = of_.weights;
    for (int i = tree_.count - 1; i >= 0; --i) {
      backward(i, result);
    }
    return result;
  }

 private:
  [[nodiscard]] const instruction& node(int i) const { return tree_.nodes[static_cast<std::size_t>(i)]; }
  numbers& value(int i) { return values_[static_cast<std::size_t>(i)]; }
  numbers& adjoint(int i) { return adjoints_[static_cast<std::size_t>(i)]; }

  /// For every element of all axes, its number among the elements of the axes in `mask`.
  const std::vector<std::size_t>& positions(unsigned mask) {
    auto& found = positions_[mask];
    if (found.empty()) {
      found.resize(full_);
      for (std::size_t i = 0; i < full_; ++i) {
        std::size_t rest = i;
        std::size_t stride = 1;
        std::size_t position = 0;
        for (int axis = tree_.rank - 1; axis >= 0; --axis) {
          const auto extent = static_cast<std::size_t>(of_.shape[static_cast<std::size_t>(axis)]);
          if ((mask >> static_cast<unsigned>(axis) & 1U) != 0) {
            position += rest % extent * stride;
            stride *= extent;
          }
          rest /= extent;
        }
        found[i] = position;
      }
    }
    return found;
  }
  [[nodiscard]] std::size_t elements(unsigned mask) const {
    std::size_t result = 1;
    for (int axis = 0; axis < tree_.rank; ++axis) {
      result *= (mask >> static_cast<unsigned>(axis) & 1U) != 0
                    ? static_cast<std::size_t>(of_.shape[static_cast<std::size_t>(axis)])
                    : 1;
    }
    return result;
  }

  /// Element i of an operand, in the shape of its user.
  double operand(int of, unsigned mask, std::size_t i) {
    if (node(of).mask == mask) {
      return value(of)[i];
    }
    return node(of).mask == 0 ? value(of)[0] : value(of)[positions(node(of).mask)[i]];
  }
  /// Passes an adjoint in the shape of the user on to an operand.
  void pass(int to, unsigned mask, const numbers& adjoint_of_user) {
    if (node(to).mask == mask) {
      adjoint(to) = adjoint_of_user;
      return;
    }
    const std::size_t count = elements(node(to).mask);
    std::vector<sum_of_terms> totals(count);
    for (std::size_t i = 0; i < adjoint_of_user.size(); ++i) {
      totals[node(to).mask == 0 ? 0 : positions(node(to).mask)[i]].add(adjoint_of_user[i]);
    }
    adjoint(to).resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      adjoint(to)[i] = in_.result_of(totals[i], unit_of_sums);
    }
  }

  double function(op what, int variant, double a) {
    switch (what) {
      case op::negate:
        return -a;
      case op::exp:
        return a == 0 ? 1.0 : in_.moved(std::exp(a), 4, 10, a);
      case op::log:
        return a == 1 ? 0.0 : in_.moved(std::log(a), 4, 11, a);
      case op::sqrt:
        return in_.root(a);
      case op::tanh:
        return a == 0 || std::abs(a) > (in_.is_float() ? 10 : 20) ? in_.rounded(std::tanh(a))
                                                                  : in_.moved(std::tanh(a), 12, 12, a);
      case op::sigmoid: {
        const double e = in_.rounded(std::exp(-a));
        const double result = 1.0 / in_.rounded(1.0 + e);
        return a == 0 ? 0.5
                      : in_.moved(result, 6, 13, a, 0, result < 4 * in_.smallest_normal() ? in_.smallest_normal() : 0);
      }
      case op::abs:
        return std::abs(a);
      case op::square:
        return in_.times(a, a);
      case op::power:
        return in_.power(a, exponents[static_cast<std::size_t>(variant)]);
      case op::cast:
        return in_.rounded(in_.rounded_otherwise(in_.rounded_otherwise(a) * 1.5));
      case op::clamp_numbers:
        return smaller_of(larger_of(a, -0.5), 1.0);
      case op::other_layout:
      case op::transposed:
        return in_.rounded(a * 2);
      case op::with_number:
        break;
      default:
        std::abort();
    }
    switch (variant) {
      case 0:
        return in_.plus(a, 2);
      case 1:
        return in_.plus(2, -a);
      case 2:
        return in_.times(a, -1.5);
      case 3:
        return in_.over(3, a);
      case 4:
        return in_.over(a, 4);
      case 5:
        return larger_of(a, 0);
      case 6:
        return smaller_of(1, a);
      case 7:
        return a > 0.5 ? a : 0.0;
      default:
        return a <= 0 ? 0.25 : a;
    }
  }

  double derivative(op what, int variant, double g, double a, double r) {
    switch (what) {
      case op::negate:
        return -g;
      case op::exp:
        return in_.times(g, r);
      case op::log:
        return in_.over(g, a);
      case op::sqrt:
        return in_.over(in_.times(g, 0.5), r);
      case op::tanh:
        return in_.times(g, in_.plus(1, -in_.times(r, r)));
      case op::sigmoid:
        return in_.times(in_.times(g, r), in_.plus(1, -r));
      case op::abs:
        return a < 0 ? -g : a == 0 ? 0.0 : g;
      case op::square:
        return in_.times(g, in_.times(2, a));
      case op::power: {
        const double exponent = exponents[static_cast<std::size_t>(variant)];
        return exponent == 0 ? in_.times(g, 0) : in_.times(g, in_.times(exponent, in_.power(a, exponent - 1)));
      }
      case op::cast:
        return in_.rounded(in_.rounded_otherwise(in_.rounded_otherwise(g) * 1.5));
      case op::clamp_numbers:
        return a < -0.5 || 1.0 < a ? 0.0 : g;
      case op::other_layout:
      case op::transposed:
        return in_.rounded(g * 2);
      case op::with_number:
        break;
      default:
        std::abort();
    }
    switch (variant) {
      case 0:
        return g;
      case 1:
        return -g;
      case 2:
        return in_.times(g, -1.5);
      case 3:
        return -in_.over(in_.times(g, r), a);
      case 4:
        return in_.over(g, 4);
      case 5:
        return a == 0 ? in_.times(g, 0.5) : a < 0 ? 0.0 : g;
      case 6:
        return a == 1 ? in_.times(g, 0.5) : 1 < a ? 0.0 : g;
      case 7:
        return a > 0.5 ? g : 0.0;
      default:
        return a <= 0 ? 0.0 : g;
    }
  }

  double function_of_two(op what, int variant, double a, double b) {
    switch (what) {
      case op::add:
        return in_.plus(a, b);
      case op::subtract:
        return in_.plus(a, -b);
      case op::multiply:
        return in_.times(a, b);
      case op::divide:
        return in_.over(a, b);
      case op::maximum:
        return larger_of(a, b);
      case op::minimum:
        return smaller_of(a, b);
      default:
        break;
    }
    switch (variant) {
      case 0:
        return a > b ? a : b;
      case 1:
        return a <= b ? b : 0.5;
      case 2:
        return a == b ? 2.0 : a;
      default:
        return a < 0.5 || b > 1 ? a : b;
    }
  }

  std::array<double, 2> derivatives_of_two(op what, int variant, double g, double a, double b, double r) {
    const double half = in_.times(g, 0.5);
    switch (what) {
      case op::add:
        return {g, g};
      case op::subtract:
        return {g, -g};
      case op::multiply:
        return {in_.times(g, b), in_.times(g, a)};
      case op::divide:
        return {in_.over(g, b), -in_.over(in_.times(g, r), b)};
      case op::maximum:
        return {a == b ? half : a < b ? 0.0 : g, a == b ? half : b < a ? 0.0 : g};
      case op::minimum:
        return {a == b ? half : b < a ? 0.0 : g, a == b ? half : a < b ? 0.0 : g};
      default:
        break;
    }
    switch (variant) {
      case 0:
        return a > b ? std::array{g, 0.0} : std::array{0.0, g};
      case 1:
        return {0.0, a <= b ? g : 0.0};
      case 2:
        return {a == b ? 0.0 : g, 0.0};
      default:
        return a < 0.5 || b > 1 ? std::array{g, 0.0} : std::array{0.0, g};
    }
  }

  /// Which of three operands the result is.
  static int chosen(op what, int variant, double a, double b, double c) {
    if (what == op::clamp) {
      return b != b && a == a ? 1 : a != a ? 0 : c != c ? 2 : c < b || c < a ? 2 : a < b ? 1 : 0;
    }
    switch (variant) {
      case 0:
        return a < b ? 2 : 0;
      case 1:
        return a >= b && c > 0 ? 0 : 1;
      case 2:
        return !(a == b) || c <= 0.5 ? 2 : 1;
      default:
        return a != b ? 0 : 2;
    }
  }

  void forward(int at) {
    const instruction& n = node(at);
    numbers& out = value(at);
    if (n.what <= op::leaf_s) {
      out = n.what == op::leaf_x ? of_.x : n.what == op::leaf_y ? of_.y : n.what == op::leaf_v ? of_.v : of_.s;
      return;
    }
    if (n.what >= op::sum) {
      reduce(at);
      return;
    }
    if (n.what == op::products) {
      multiply_three(at);
      return;
    }
    out.resize(elements(n.mask));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double a = operand(n.of[0], n.mask, i);
      if (n.what < op::add) {
        out[i] = function(n.what, n.variant, a);
        continue;
      }
      const double b = operand(n.of[1], n.mask, i);
      if (n.what <= op::where_two) {
        out[i] = function_of_two(n.what, n.variant, a, b);
        continue;
      }
      const double c = operand(n.of[2], n.mask, i);
      out[i] = std::array{a, b, c}[static_cast<std::size_t>(chosen(n.what, n.variant, a, b, c))];
    }
  }

  void reduce(int at) {
    const instruction& n = node(at);
    const numbers& from = value(n.of[0]);
    const auto& position = positions(n.mask);
    const std::size_t count = elements(n.mask);
    const auto folded = static_cast<double>(full_ / count);
    numbers& out = value(at);
    out.assign(count, 0.0);
    if (n.what == op::largest || n.what == op::smallest) {
      std::vector<bool> begun(count, false);
      std::vector<unsigned> zeros(count, 0U);
      for (std::size_t i = 0; i < full_; ++i) {
        double& best = out[position[i]];
        best = !begun[position[i]]     ? from[i]
               : n.what == op::largest ? larger_of(best, from[i])
                                       : smaller_of(best, from[i]);
        begun[position[i]] = true;
        zeros[position[i]] |= from[i] == 0 ? std::signbit(from[i]) ? 2U : 1U : 0U;
      }
      for (std::size_t k = 0; k < count; ++k) {
        if (out[k] == 0 && zeros[k] == 3U) {  // 0 or -0, whichever came first
          out[k] = in_.coin(20 + static_cast<std::uint64_t>(at), static_cast<double>(k)) ? -0.0 : 0.0;
        }
      }
      return;
    }
    std::vector<sum_of_terms> totals(count);
    for (std::size_t i = 0; i < full_; ++i) {
      const double term = n.what == op::norm_l1   ? std::abs(from[i])
                          : n.what == op::norm_l2 ? in_.times(from[i], from[i])
                                                  : from[i];
      totals[position[i]].add(term);
    }
    for (std::size_t k = 0; k < count; ++k) {
      if (n.what == op::mean) {
        sum_of_terms& sum = totals[k];
        sum.value /= folded;
        sum.magnitude /= folded;
      }
      out[k] = in_.result_of(totals[k], unit_of_sums);
      if (n.what == op::norm_l2) {
        out[k] = in_.root(out[k]);
      }
    }
  }

  /// (rows, columns) of a product of two matrices, of which the left or the right one is read as its transpose.
  numbers product(const numbers& left, const numbers& right, std::size_t rows, std::size_t inner, std::size_t columns,
                  bool left_transposed, bool right_transposed) {
    numbers out(rows * columns);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        sum_of_terms sum;
        for (std::size_t k = 0; k < inner; ++k) {
          const double a = left_transposed ? left[k * rows + i] : left[i * inner + k];
          const double b = right_transposed ? right[j * inner + k] : right[k * columns + j];
          sum.add(static_cast<long double>(a) * static_cast<long double>(b));
        }
        out[i * columns + j] = in_.result_of(sum, in_.epsilon() * static_cast<double>(inner + 1));
      }
    }
    return out;
  }

  // (a b^T) c, or a (b^T c): a, b and c are (m, n).
  void multiply_three(int at) {
    const instruction& n = node(at);
    const auto rows = static_cast<std::size_t>(of_.shape[0]);
    const auto columns = static_cast<std::size_t>(of_.shape[1]);
    numbers& inner = inner_[static_cast<std::size_t>(at)];
    const numbers& a = value(n.of[0]);
    const numbers& b = value(n.of[1]);
    const numbers& c = value(n.of[2]);
    if (n.variant % 2 == 0) {
      inner = product(a, b, rows, columns, rows, false, true);
      value(at) = product(inner, c, rows, rows, columns, false, false);
    } else {
      inner = product(b, c, columns, rows, columns, true, false);
      value(at) = product(a, inner, rows, columns, columns, false, false);
    }
  }

  void backward(int at, outcome& result) {
    const instruction& n = node(at);
    const numbers& g = adjoint(at);
    if (g.empty()) {
      return;  // it stands in a condition, which has no derivative
    }
    if (n.what <= op::leaf_s) {
      numbers& gradient = n.what == op::leaf_x   ? result.x
                          : n.what == op::leaf_y ? result.y
                          : n.what == op::leaf_v ? result.v
                                                 : result.s;
      for (std::size_t i = 0; i < g.size(); ++i) {
        gradient[i] =
            in_.plus(gradient[i], in_.moved(g[i], 1, 30 + static_cast<std::uint64_t>(at), static_cast<double>(i)));
      }
      return;
    }
    if (n.what >= op::sum) {
      reduce_backward(at);
      return;
    }
    if (n.what == op::products) {
      multiply_three_backward(at);
      return;
    }
    const numbers& r = value(at);
    const std::size_t count = number_of_operands(n.what);
    std::array<numbers, 3> to;
    for (std::size_t k = 0; k < count; ++k) {
      to[k].resize(g.size());
    }
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double a = operand(n.of[0], n.mask, i);
      if (count == 1) {
        to[0][i] = derivative(n.what, n.variant, g[i], a, r[i]);
        continue;
      }
      const double b = operand(n.of[1], n.mask, i);
      if (count == 2) {
        const auto both = derivatives_of_two(n.what, n.variant, g[i], a, b, r[i]);
        to[0][i] = both[0];
        to[1][i] = both[1];
        continue;
      }
      const double c = operand(n.of[2], n.mask, i);
      const auto mine = static_cast<std::size_t>(chosen(n.what, n.variant, a, b, c));
      for (std::size_t k = 0; k < 3; ++k) {
        to[k][i] = k == mine ? g[i] : 0.0;
      }
      if (n.what == op::clamp && r[i] != r[i]) {  // not a number beside x or a bound: comparisons fail
        to[0][i] = a < b || c < a ? 0.0 : g[i];
        to[1][i] = a < b && !(c < b) ? g[i] : 0.0;
        to[2][i] = c < a || c < b ? g[i] : 0.0;
      }
    }
    for (std::size_t k = 0; k < count; ++k) {
      if (!only_in_condition(n, k)) {
        pass(n.of[k], n.mask, to[k]);
      }
    }
  }

  void reduce_backward(int at) {
    const instruction& n = node(at);
    const numbers& g = adjoint(at);
    const numbers& r = value(at);
    const numbers& from = value(n.of[0]);
    const auto& position = positions(n.mask);
    const std::size_t count = elements(n.mask);
    const auto folded = static_cast<double>(full_ / count);
    numbers ties(count, 0.0);
    const auto is_extreme = [&](std::size_t i) { return from[i] == r[position[i]] || from[i] != from[i]; };
    if (n.what == op::largest || n.what == op::smallest) {
      for (std::size_t i = 0; i < full_; ++i) {
        ties[position[i]] += is_extreme(i) ? 1 : 0;
      }
    }
    numbers to(full_);
    for (std::size_t i = 0; i < full_; ++i) {
      const double mine = g[position[i]];
      switch (n.what) {
        case op::sum:
          to[i] = mine;
          break;
        case op::mean:
          to[i] = in_.times(mine, in_.rounded(1.0 / folded));
          break;
        case op::norm_l1:
          to[i] = from[i] < 0 ? -mine : from[i] == 0 ? 0.0 : mine;
          break;
        case op::norm_l2:
          to[i] = in_.times(r[position[i]] == 0 ? 0.0 : in_.over(in_.times(mine, 0.5), r[position[i]]),
                            in_.times(2, from[i]));
          break;
        default:
          to[i] = is_extreme(i) ? in_.over(mine, ties[position[i]]) : 0.0;
      }
    }
    pass(n.of[0], tree_.all(), to);
  }

  void multiply_three_backward(int at) {
    const instruction& n = node(at);
    const auto rows = static_cast<std::size_t>(of_.shape[0]);
    const auto columns = static_cast<std::size_t>(of_.shape[1]);
    const numbers& inner = inner_[static_cast<std::size_t>(at)];
    const numbers& a = value(n.of[0]);
    const numbers& b = value(n.of[1]);
    const numbers& c = value(n.of[2]);
    const numbers g = adjoint(at);
    if (n.variant % 2 == 0) {
      const numbers to_inner = product(g, c, rows, columns, rows, false, true);
      pass(n.of[0], n.mask, product(to_inner, b, rows, rows, columns, false, false));
      pass(n.of[1], n.mask, product(to_inner, a, rows, rows, columns, true, false));
      pass(n.of[2], n.mask, product(inner, g, rows, rows, columns, true, false));
    } else {
      const numbers to_inner = product(a, g, columns, rows, columns, true, false);
      pass(n.of[0], n.mask, product(g, inner, rows, columns, columns, false, true));
      pass(n.of[1], n.mask, product(c, to_inner, rows, columns, columns, false, true));
      pass(n.of[2], n.mask, product(b, to_inner, rows, columns, columns, false, false));
    }
  }

  static constexpr double unit_of_sums = 64 * std::numeric_limits<double>::epsilon();

  const tree& tree_;
  const leaves& of_;
  arithmetic in_;
  std::size_t full_ = 1;
  std::vector<numbers> values_;
  std::vector<numbers> adjoints_;
  std::vector<numbers> inner_;  // the first of two products
  std::array<std::vector<std::size_t>, 16> positions_;
};

}  // namespace

outcome reference(const tree& which, const leaves& of, int trial) {
  return evaluation{which, of, trial}.run();
}

leaves draw_leaves(const tree& which, bool is_float, int index, int set, bool large) {
  std::uint64_t state = mix(static_cast<std::uint64_t>(index) * 1'000'003U + static_cast<std::uint64_t>(set) + 77U);
  const auto bits = [&] { return mix(state += 0x9e3779b97f4a7c15U); };
  const auto draw = [&](std::uint64_t below) { return bits() % below; };
  const auto uniform = [&] { return static_cast<double>(bits() >> 11U) * 0x1p-53; };
  leaves result;
  result.is_float = is_float;
  static constexpr std::array lengths{31, 32, 33, 63, 64, 65, 127, 130};
  for (int i = 0; i < which.rank; ++i) {
    auto& extent = result.shape[static_cast<std::size_t>(i)];
    extent = static_cast<std::int64_t>(1 + draw(which.rank == 1 ? 17 : which.rank == 2 ? 9 : 5));
    if (i + 1 == which.rank && draw(3) == 0) {
      extent = which.rank > 2 ? 1 + static_cast<std::int64_t>(draw(18)) : lengths[draw(lengths.size())];
    }
  }
  if (large) {
    result.shape = which.rank == 1 ? std::array<std::int64_t, 4>{33'000 + static_cast<std::int64_t>(draw(17)), 1, 1, 1}
                   : which.rank == 2 ? std::array<std::int64_t, 4>{5, 6'700, 1, 1}
                   : which.rank == 3 ? std::array<std::int64_t, 4>{3, 31, 370, 1}
                                     : std::array<std::int64_t, 4>{2, 5, 61, 57};
    if (which.has(op::products)) {
      result.shape = {37, 61, 1, 1};
    }
  }
  const std::uint64_t mode = draw(6);
  const double one_value = static_cast<double>(draw(7)) * 0.5 - 1;
  const auto element = [&]() -> double {
    static constexpr std::array few{-2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.0, 2.0, 3.0};
    static constexpr std::array extremes{0.0,   -0.0, 1e-30, -1e-30, 1e30, -1e30, 1.0,  -1.0, 88.5,
                                         -88.5, 0.5,  2.0,   -87.5,  100., -100., 20.0, 1e-40};
    switch (mode) {
      case 0:
      case 1:
        return few[draw(few.size())];
      case 2:
        return 0.1 + 2 * uniform();
      case 3:
        return 4 * uniform() - 2;
      case 4:
        return draw(8) == 0 ? 0.25 : one_value;
      default: {
        const std::uint64_t kind = draw(24);
        return kind == 0   ? std::numeric_limits<double>::infinity()
               : kind == 1 ? std::numeric_limits<double>::quiet_NaN()
               : kind < 10 ? extremes[draw(extremes.size())]
                           : 4 * uniform() - 2;
      }
    }
  };
  const auto fill = [&](numbers& to, unsigned mask) {
    std::size_t count = 1;
    for (int axis = 0; axis < which.rank; ++axis) {
      count *= (mask >> static_cast<unsigned>(axis) & 1U) != 0
                   ? static_cast<std::size_t>(result.shape[static_cast<std::size_t>(axis)])
                   : 1;
    }
    to.resize(count);
    for (double& value : to) {
      value = element();
      value = is_float ? static_cast<double>(static_cast<float>(value)) : value;
    }
  };
  fill(result.x, which.all());
  fill(result.y, which.all());
  fill(result.v, which.vector_mask);
  fill(result.s, 0);
  result.weights.resize(result.x.size());
  for (double& weight : result.weights) {
    weight = static_cast<double>(1 + draw(4)) * (draw(2) == 0 ? 0.5 : -0.75);
  }
  return result;
}

namespace {

/// All that trials gave for one result.
struct expected_range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool nan = false;
  bool above = false;  // infinity
  bool below = false;

  void add(double value) {
    nan = nan || value != value;
    above = above || value == std::numeric_limits<double>::infinity();
    below = below || value == -std::numeric_limits<double>::infinity();
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  [[nodiscard]] double tolerance(bool is_float) const {
    const double epsilon =
        is_float ? static_cast<double>(std::numeric_limits<float>::epsilon()) : std::numeric_limits<double>::epsilon();
    const double smallest = is_float ? static_cast<double>(std::numeric_limits<float>::denorm_min())
                                     : std::numeric_limits<double>::denorm_min();
    return 2 * (high - low) + 2 * epsilon * std::max(std::abs(low), std::abs(high)) + 4 * smallest;
  }
  [[nodiscard]] bool holds(double value, bool is_float) const {
    if (value != value) {
      return nan;
    }
    if (std::isinf(value)) {
      return value > 0 ? above : below;
    }
    const double off = tolerance(is_float);
    return low - off <= value && value <= high + off;
  }
};

}  // namespace

void compare(const tree& which, const leaves& of, const outcome& computed, comparison& result) {
  std::array<std::vector<expected_range>, outcome_parts.size()> ranges;
  int trials = 0;
  const auto make_trials = [&](int until) {
    for (; trials < until; ++trials) {
      const outcome expected = reference(which, of, trials);
      for (std::size_t part = 0; part < ranges.size(); ++part) {
        const numbers& values = expected.*outcome_parts[part];
        ranges[part].resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
          ranges[part][i].add(values[i]);
        }
      }
    }
  };
  const auto all_hold = [&] {
    for (std::size_t part = 0; part < ranges.size(); ++part) {
      for (std::size_t i = 0; i < ranges[part].size(); ++i) {
        if (!ranges[part][i].holds((computed.*outcome_parts[part])[i], of.is_float)) {
          return false;
        }
      }
    }
    return true;
  };
  make_trials(5);
  for (const int until : {25, 200, 1'600}) {
    if (all_hold()) {
      break;
    }
    ++result.escalated;
    make_trials(until);
  }
  for (std::size_t part = 0; part < ranges.size(); ++part) {
    for (std::size_t i = 0; i < ranges[part].size(); ++i) {
      const expected_range& range = ranges[part][i];
      const double value = (computed.*outcome_parts[part])[i];
      ++result.compared;
      const bool one_kind =
          (range.nan ? 1 : 0) + (range.above ? 1 : 0) + (range.below ? 1 : 0) + (range.low <= range.high ? 1 : 0) == 1;
      result.tight += one_kind && !(range.low <= range.high &&
                                    range.tolerance(of.is_float) >
                                        1e-3 * std::max(std::abs(range.low), std::abs(range.high)) + 1e-30)
                          ? 1
                          : 0;
      if (result.failure.empty() && !range.holds(value, of.is_float)) {
        const auto text = [](double number) {
          std::array<char, 40> buffer{};
          std::snprintf(buffer.data(), buffer.size(), "%.17g", number);
          return std::string{buffer.data()};
        };
        result.failure = std::string{outcome_names[part]} + ", element " + std::to_string(i) + " of " +
                         std::to_string(ranges[part].size()) + ": " + text(value) + ", expected " + text(range.low) +
                         " to " + text(range.high) + (range.nan ? " or NaN" : "") + (range.above ? " or inf" : "") +
                         (range.below ? " or -inf" : "") + "; shape";
        for (int axis = 0; axis < which.rank; ++axis) {
          result.failure += " " + std::to_string(of.shape[static_cast<std::size_t>(axis)]);
        }
      }
    }
  }
}

std::string text_of(const tree& shown) {
  static constexpr std::array<const char*, static_cast<std::size_t>(op::count)> names{
      "x",        "y",        "v",        "s",      "negate",  "exp",     "log",    "sqrt",   "tanh",
      "sigmoid",  "abs",      "square",   "pow",    "cast",    "clamp01", "number", "layout", "transposed",
      "add",      "subtract", "multiply", "divide", "maximum", "minimum", "where2", "clamp",  "where3",
      "products", "sum",      "mean",     "max",    "min",     "norm_l1", "norm_l2"};
  std::vector<std::string> texts;
  for (int i = 0; i < shown.count; ++i) {
    const instruction& n = shown.nodes[static_cast<std::size_t>(i)];
    std::string text = names[static_cast<std::size_t>(n.what)];
    const auto operands = static_cast<int>(number_of_operands(n.what));
    if (operands > 0) {
      if (n.what == op::power || n.what == op::with_number || n.what == op::where_two || n.what == op::where_three) {
        text += "#" + std::to_string(n.variant);
      }
      if (n.what >= op::sum) {
        text += "<keeps " + std::to_string(n.mask) + ">";
      }
      text += "(";
      for (int k = 0; k < operands; ++k) {
        text += (k == 0 ? "" : ", ") + texts[static_cast<std::size_t>(n.of[static_cast<std::size_t>(k)])];
      }
      text += ")";
    }
    texts.push_back(text);
  }
  return texts.back();
}

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace trees
