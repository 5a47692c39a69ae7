// SPDX-License-Identifier: BSL-1.0
//
// Element-wise functions, given as function objects and differentiated by the compiler.
//
// formula_of<2>([](auto a, auto b) { return a * sigmoid(b); }) calls the function once, with variables in place of
// tensors. The operators and functions of tensors then give a formula: a type that says what is computed. From the type
// the compiler makes lists of steps for the value and, by reverse-mode differentiation, for all derivatives at once. A
// kernel runs such a list on vectors or single elements, in one pass over memory.
//
// Numbers in the function are double and are converted to the type of the arithmetic. The derivatives of the functions
// are those of tensor/functions.hpp.
#pragma once

#include <array>        // std::array
#include <concepts>     // std::derived_from
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <type_traits>  // std::conditional_t, std::is_invocable_v, std::remove_cvref_t
#include <utility>      // std::index_sequence, std::make_index_sequence
#include <vector>       // std::vector

#include "gradus/core/element.hpp"
#include "gradus/tensor/detail/formula/evaluate.hpp"
#include "gradus/tensor/detail/formula/nodes.hpp"
#include "gradus/tensor/detail/formula/program.hpp"
#include "gradus/tensor/formula_step.hpp"
#include "gradus/tensor/operand.hpp"

namespace gradus {

namespace detail {

static_assert(static_cast<int>(formula_operation::softplus) == formula_operations::number<softplus_operation>() &&
              static_cast<int>(formula_operation::masked) == formula_operations::number<masked_operation>() &&
              static_cast<int>(formula_operation::logical_not) == formula_operations::number<not_operation>());

/// The steps of a program that its result depends on. The number of a constant is its position.
template <class Source>
[[nodiscard]] consteval auto live_steps() {
  constexpr const auto& program = Source::program;
  constexpr auto count = static_cast<std::size_t>(program.count);
  constexpr std::size_t live = [] {
    std::size_t result = 0;
    for (std::size_t k = 0; k < count; ++k) {
      result += program.live[k] ? 1U : 0U;
    }
    return result;
  }();
  std::array<gradus::formula_step, live> list{};
  std::array<int, count> position{};
  std::size_t used = 0;
  for (std::size_t k = 0; k < count; ++k) {
    if (!program.live[k]) {
      continue;
    }
    const program_step& step = program.steps[k];
    gradus::formula_step& made = list[used];
    position[k] = static_cast<int>(used++);
    if (step.operation == program_step::load) {
      made = {formula_operation::variable, {step.operands[0], -1, -1}, 0};
    } else if (step.operation == program_step::constant) {
      made = {formula_operation::number, {-1, -1, -1}, static_cast<double>(step.operands[0])};
    } else {
      made.operation = static_cast<formula_operation>(step.operation);
      for (std::size_t i = 0; i < made.operands.size(); ++i) {
        made.operands[i] = step.operands[i] < 0 ? -1 : position[static_cast<std::size_t>(step.operands[i])];
      }
    }
  }
  return list;
}

}  // namespace detail

/// An element-wise function of `Inputs` numbers with its derivatives. It holds the numbers of the function.
///
/// A kernel asks for an evaluator of the type of arithmetic, float or double, and calls it for each vector or element:
/// evaluator(load, store). `load(k)` returns variable k and `store(r, value)` takes result r; k and r are
/// std::integral_constant<int, ...>. `load` is called for what the list of steps reads only.
///
/// Evaluators of single elements run on a GPU. Their type depends on the formula, not on the function object.
template <class Node, int Inputs>
class formula {
  static_assert(Inputs > 0);
  using value_source = detail::value_program<Node, Inputs>;
  using from_result = detail::gradient_program<Node, Inputs, Inputs, true>;
  using from_inputs = detail::gradient_program<Node, Inputs, Inputs, false>;
  static constexpr bool inputs_are_needed = from_result::program.reads(0, Inputs);
  using gradient_source = std::conditional_t<inputs_are_needed, from_inputs, from_result>;

 public:
  /// What the function returned for variables.
  using node_type = Node;
  /// The number of variables.
  static constexpr int inputs = Inputs;
  /// True if the derivatives are computed from the variables.
  static constexpr bool gradient_reads_inputs = inputs_are_needed;
  /// True if the derivatives are computed from the value of the function, without the variables, as for sigmoid.
  static constexpr bool gradient_reads_value = gradient_source::program.reads(Inputs + 1, Inputs + 2);

  /// Computes the value: result 0 from the variables 0 to Inputs - 1.
  template <class Arithmetic>
  using value_evaluator = detail::formula_evaluator<value_source, Arithmetic>;
  /// Computes the adjoint of each variable: the results 0 to Inputs - 1, from the variables, the adjoint of the value
  /// (variable Inputs) and the value (variable Inputs + 1).
  template <class Arithmetic>
  using gradient_evaluator = detail::formula_evaluator<gradient_source, Arithmetic>;

  /// Takes the numbers of a formula.
  explicit formula(const Node& node)
      : value_constants_{detail::constants_of<value_source>(node)},
        gradient_constants_{detail::constants_of<gradient_source>(node)} {}

  /// The steps that compute the value; the last one is the value.
  [[nodiscard]] std::vector<formula_step> steps() const {
    static constexpr auto list = detail::live_steps<value_source>();
    std::vector<formula_step> result(list.begin(), list.end());
    for (formula_step& each : result) {
      if (each.operation == formula_operation::number) {
        each.number = value_constants_.numbers[static_cast<std::size_t>(each.number)];
      }
    }
    return result;
  }

  /// The evaluator of the value, a vector at a time: of the numbers of an instruction set (simd/functions.hpp).
  template <class Numbers>
  [[nodiscard]] auto value_of_vectors() const noexcept {
    return detail::make_evaluator<value_source, detail::vector_arithmetic<Numbers>, typename Numbers::real>(
        value_constants_.numbers.data());
  }
  /// The evaluator of the derivatives, a vector at a time.
  template <class Numbers>
  [[nodiscard]] auto gradient_of_vectors() const noexcept {
    return detail::make_evaluator<gradient_source, detail::vector_arithmetic<Numbers>, typename Numbers::real>(
        gradient_constants_.numbers.data());
  }
  /// The evaluator of the value, one element at a time.
  template <real_element Real>
  [[nodiscard]] auto value_of_elements() const noexcept {
    return detail::make_evaluator<value_source, detail::element_arithmetic<Real>, Real>(
        value_constants_.numbers.data());
  }
  /// The evaluator of the derivatives, one element at a time.
  template <real_element Real>
  [[nodiscard]] auto gradient_of_elements() const noexcept {
    return detail::make_evaluator<gradient_source, detail::element_arithmetic<Real>, Real>(
        gradient_constants_.numbers.data());
  }

 private:
  detail::constant_list<value_source::program.constants> value_constants_;
  detail::constant_list<gradient_source::program.constants> gradient_constants_;
};

namespace detail {

/// Calls a function with variables.
template <class Function, std::size_t... Index>
[[nodiscard]] auto call_with_variables(const Function& function, std::index_sequence<Index...>) {
  return function(variable<static_cast<int>(Index)>{}...);
}

template <class Function, class Indices>
inline constexpr bool takes_variables = false;
template <class Function, std::size_t... Index>
inline constexpr bool takes_variables<Function, std::index_sequence<Index...>> =
    std::is_invocable_v<const Function&, variable<static_cast<int>(Index)>...>;

inline constexpr int most_formula_inputs = 8;

}  // namespace detail

/// The number of arguments from 1 to 8 that a function object takes; 0 if there is none.
template <class Function>
inline constexpr int formula_inputs = [] {
  int result = 0;
  [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    ((result == 0 && detail::takes_variables<Function, std::make_index_sequence<Index + 1>>
          ? void(result = static_cast<int>(Index) + 1)
          : void()),
     ...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(detail::most_formula_inputs)>{});
  return result;
}();

/// Says why a function object is not the formula of one element. Always true when it compiles.
template <class Node>
consteval bool explain_formula() {
  static_assert(std::derived_from<Node, formula_base>,
                "gradus: the function returns no formula of its arguments: give it arguments of type auto and return "
                "an expression of them, [](auto x) { return x * sigmoid(x); }");
  if constexpr (std::derived_from<Node, formula_base>) {
    static_assert(!detail::is_reduced_formula<Node>,
                  "gradus: an element-wise function has no reduction: sum and mean end a loss");
    static_assert(!detail::is_condition<Node>,
                  "gradus: the function returns a comparison, which is not differentiable: return where(condition, 1, "
                  "0)");
  }
  return true;
}

/// Calls a function with `Inputs` variables and compiles the formula that it returns.
template <int Inputs, class Function>
[[nodiscard]] auto formula_of(const Function& function) {
  using node = decltype(detail::call_with_variables(function, std::make_index_sequence<std::size_t{Inputs}>{}));
  static_assert(explain_formula<node>());
  return formula<node, Inputs>{detail::call_with_variables(function, std::make_index_sequence<std::size_t{Inputs}>{})};
}

/// A loss of scores y and targets t that is a sum or mean over all elements: its value and its derivatives by the
/// scores. It holds the numbers of the loss.
///
/// The evaluator computes result 0, the derivative of the term of one element by its score times variable 2, and result
/// 1, the term, from the score (variable 0) and the target (variable 1).
template <class Node, bool Mean>
class loss_formula {
  using source = detail::gradient_program<Node, 2, 1, false, true>;

 public:
  /// True if the loss is the mean over the elements, false if it is their sum.
  static constexpr bool is_mean = Mean;

  /// Takes the numbers of a formula.
  explicit loss_formula(const Node& node) : constants_{detail::constants_of<source>(node)} {}

  /// The numbers of the formula.
  [[nodiscard]] std::span<const double> numbers() const noexcept {
    return {constants_.numbers.data(), static_cast<std::size_t>(constants_.used)};
  }

  /// The evaluator, a vector at a time: of the numbers of an instruction set.
  template <class Numbers>
  [[nodiscard]] auto terms_of_vectors() const noexcept {
    return detail::make_evaluator<source, detail::vector_arithmetic<Numbers>, typename Numbers::real>(
        constants_.numbers.data());
  }
  /// The evaluator, one element at a time.
  template <real_element Real>
  [[nodiscard]] auto terms_of_elements() const noexcept {
    return detail::make_evaluator<source, detail::element_arithmetic<Real>, Real>(constants_.numbers.data());
  }

 private:
  detail::constant_list<source::program.constants> constants_;
};

namespace detail {
template <class Node, bool Mean>
[[nodiscard]] loss_formula<Node, Mean> loss_of_reduced(const reduced_formula<Node, Mean>& reduced) {
  return loss_formula<Node, Mean>{reduced.terms};
}
}  // namespace detail

/// Calls a function of scores and targets, [](auto y, auto t) { return mean(square(y - t)); }, with variables and
/// compiles the formula that it returns.
template <class Function>
[[nodiscard]] auto loss_formula_of(const Function& function) {
  static_assert(
      formula_inputs<Function> == 2,
      "gradus: a loss is a function of two arguments, the scores and the targets: [](auto y, auto t) { return "
      "mean(square(y - t)); }");
  const auto reduced = function(detail::variable<0>{}, detail::variable<1>{});
  static_assert(detail::is_reduced_formula<std::remove_cvref_t<decltype(reduced)>>,
                "gradus: a loss ends with a mean or sum over all elements: return mean(square(y - t))");
  return detail::loss_of_reduced(reduced);
}

/// The sum of a formula over all elements, in a loss.
template <auto... Axes, std::derived_from<formula_base> Node>
[[nodiscard]] auto sum(const Node& terms) {
  static_assert(sizeof...(Axes) == 0, "gradus: a loss sums over all elements: write sum(x)");
  return detail::reduced_formula<Node, false>{terms};
}
/// The mean of a formula over all elements, in a loss.
template <auto... Axes, std::derived_from<formula_base> Node>
[[nodiscard]] auto mean(const Node& terms) {
  static_assert(sizeof...(Axes) == 0, "gradus: a loss is a mean over all elements: write mean(x)");
  return detail::reduced_formula<Node, true>{terms};
}

}  // namespace gradus
