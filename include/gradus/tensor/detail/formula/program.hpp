// SPDX-License-Identifier: BSL-1.0
//
// Formulas and their derivatives as lists of steps, made by the compiler.
//
// Each step computes one number from the numbers of earlier steps. Equal steps of a list are one step, so that what a
// derivative shares with the formula or with another derivative is computed once. (Two numbers of a formula, as in
// 2 * x + 2 * y, are different: the compiler knows their values only when the program runs.)
#pragma once

#include <array>        // std::array
#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <type_traits>  // std::integral_constant, std::type_identity
#include <utility>      // std::index_sequence, std::make_index_sequence

#include "gradus/tensor/detail/formula/nodes.hpp"

namespace gradus::detail {

template <class... Operations>
struct operation_list {
  static constexpr int size = sizeof...(Operations);
  template <int Number>
  using at = typename nth<static_cast<std::size_t>(Number), Operations...>::type;
  /// The position of an operation, or -1.
  template <class Operation>
  static consteval int number() {
    constexpr std::array<bool, sizeof...(Operations)> is_it{std::same_as<Operation, Operations>...};
    for (int k = 0; k < size; ++k) {
      if (is_it[static_cast<std::size_t>(k)]) {
        return k;
      }
    }
    return -1;
  }
};

/// The operations of formulas.
using formula_operations =
    operation_list<add_operation, subtract_operation, multiply_operation, divide_operation, negate_operation,
                   minimum_operation, maximum_operation, clamp_operation, exp_operation, log_operation, sqrt_operation,
                   tanh_operation, sigmoid_operation, erf_operation, softplus_operation, relu_operation, abs_operation,
                   square_operation, pow_operation, where_operation, masked_operation, equal_operation,
                   not_equal_operation, less_operation, less_equal_operation, and_operation, or_operation,
                   not_operation>;

template <class Operation>
consteval int number_of_operation() {
  constexpr int number = formula_operations::number<Operation>();
  static_assert(number >= 0, "gradus: this function cannot be part of a formula: cast<...>() is not differentiable");
  return number;
}

template <class Operation>
consteval int count_operands() {
  if constexpr (requires { Operation::scalar(1.0); }) {
    return 1;
  } else if constexpr (requires { Operation::scalar(1.0, 1.0); }) {
    return 2;
  } else {
    return 3;
  }
}

/// Operand K of an operation in its derivative: a variable, where 0 is the adjoint and 1 the result. The exponent of
/// pow is a number, and the first operand of where a condition.
template <class Operation, std::size_t Index>
struct operand_in_derivative {
  using type = variable<static_cast<int>(Index) + 2>;
};
template <>
struct operand_in_derivative<pow_operation, 1> {
  using type = formula_number;
};
template <class Operation>
requires std::same_as<Operation, where_operation> || std::same_as<Operation, masked_operation>
struct operand_in_derivative<Operation, 0> {
  using type = variable<2, bool>;
};

/// True if operand K may have a derivative.
template <class Operation, int Index>
inline constexpr bool has_derivative =
    !std::same_as<typename Operation::template result<double, double, double>::type, bool> &&
    !(std::same_as<Operation, pow_operation> && Index == 1) &&
    !(Index == 0 && std::same_as<typename operand_in_derivative<Operation, 0>::type, variable<2, bool>>);

/// The adjoint of operand K as a formula of the adjoint, the result and the operands.
template <class Operation, int Index>
[[nodiscard]] auto derivative_formula(double exponent) {
  const auto operand = [&]<class Type>(std::type_identity<Type>) {
    if constexpr (std::same_as<Type, formula_number>) {
      return formula_number{exponent};
    } else {
      return Type{};
    }
  };
  return [&]<std::size_t... Operand>(std::index_sequence<Operand...>) {
    return Operation::template derivative<Index>(
        variable<0>{}, variable<1>{},
        operand(std::type_identity<typename operand_in_derivative<Operation, Operand>::type>{})...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(count_operands<Operation>())>{});
}

/// One step of a program.
struct program_step {
  static constexpr int load = -1;      // operands[0] is the number of a variable
  static constexpr int constant = -2;  // operands[0] is the number of a constant
  int operation = load;                // or an operation of formula_operations
  std::array<int, 3> operands{-1, -1, -1};

  friend constexpr bool operator==(const program_step&, const program_step&) = default;
};

/// A derivative of a step by one of its operands.
struct formula_derivative {
  int operation = 0;
  int operand = 0;
  int exponent = 0;  // for pow, the number of the constant
};

/// A list of steps. `Results` are the numbers of the steps that it is run for.
template <int Results>
struct formula_program {
  static constexpr int most_steps = 400;
  std::array<program_step, most_steps> steps{};
  std::array<bool, most_steps> live{};  // a result depends on it
  std::array<int, static_cast<std::size_t>(Results)> results{};
  std::array<formula_derivative, most_steps> derivatives{};  // in the order in which their constants are numbered
  int count = 0;
  int constants = 0;
  int derivative_count = 0;

  constexpr int add(const program_step& step) {
    if (step.operation != program_step::constant) {
      for (int k = 0; k < count; ++k) {
        if (steps[at(k)] == step) {
          return k;
        }
      }
    }
    steps[at(count)] = step;  // a longer formula than `most_steps` ends the compilation here
    return count++;
  }
  constexpr int load(int variable) { return add({program_step::load, {variable, -1, -1}}); }
  constexpr int constant() { return add({program_step::constant, {constants++, -1, -1}}); }

  constexpr void mark(int step) {
    if (step >= 0 && !live[at(step)]) {
      live[at(step)] = true;
      if (steps[at(step)].operation >= 0) {
        for (const int operand : steps[at(step)].operands) {
          mark(operand);
        }
      }
    }
  }
  constexpr void mark_results() {
    live.fill(false);
    for (const int result : results) {
      mark(result);
    }
  }
  /// True if a result depends on a variable in [first, last).
  [[nodiscard]] constexpr bool reads(int first, int last) const {
    for (int k = 0; k < count; ++k) {
      const program_step& step = steps[at(k)];
      if (live[at(k)] && step.operation == program_step::load && first <= step.operands[0] && step.operands[0] < last) {
        return true;
      }
    }
    return false;
  }

  /// The number of live steps that compute something.
  [[nodiscard]] constexpr int operation_count() const {
    int result = 0;
    for (int k = 0; k < count; ++k) {
      result += live[at(k)] && steps[at(k)].operation >= 0 ? 1 : 0;
    }
    return result;
  }

  static constexpr std::size_t at(int k) { return static_cast<std::size_t>(k); }
};

/// Adds the steps of a node. `slots[k]` is the step of variable k. Constants are numbered in the order of
/// collect_constants.
template <class Node>
struct formula_appender;
template <int Index, class Value>
struct formula_appender<variable<Index, Value>> {
  template <class Program>
  static constexpr int append(Program& /*program*/, const int* slots) {
    return slots[Index];
  }
};
template <>
struct formula_appender<formula_number> {
  template <class Program>
  static constexpr int append(Program& program, const int* /*slots*/) {
    return program.constant();
  }
};
template <class Operation, class... Children>
struct formula_appender<formula_node<Operation, Children...>> {
  template <class Program>
  static constexpr int append(Program& program, const int* slots) {
    // Braces evaluate from left to right.
    const std::array<int, sizeof...(Children)> children{formula_appender<Children>::append(program, slots)...};
    program_step step{number_of_operation<Operation>(), {-1, -1, -1}};
    for (std::size_t k = 0; k < children.size(); ++k) {
      step.operands[k] = children[k];
    }
    return program.add(step);
  }
};

template <int Index, class Value, class Numbers>
void collect_constants(const variable<Index, Value>& /*node*/, Numbers& /*numbers*/) {}
template <class Numbers>
void collect_constants(const formula_number& node, Numbers& numbers) {
  numbers.add(node.value());
}
template <class Operation, class... Children, class Numbers>
void collect_constants(const formula_node<Operation, Children...>& node, Numbers& numbers) {
  [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    (collect_constants(child_of<Index>(node), numbers), ...);
  }
  (std::index_sequence_for<Children...>{});
}

/// Adds the derivatives of a step by its operands to their adjoints.
template <class Program>
struct formula_differentiation {
  Program& program;
  std::array<int, Program::most_steps> adjoints{};
  std::array<bool, Program::most_steps> varies{};  // depends on a variable that is differentiated

  constexpr void add_adjoint(int step, int adjoint) {
    int& sum = adjoints[Program::at(step)];
    sum = sum < 0 ? adjoint : program.add({formula_operations::number<add_operation>(), {sum, adjoint, -1}});
  }

  template <class Operation, int Index>
  constexpr void by_operand(int step) {
    const program_step current = program.steps[Program::at(step)];
    const int operand = current.operands[static_cast<std::size_t>(Index)];
    if constexpr (has_derivative<Operation, Index>) {
      if (varies[Program::at(operand)]) {
        using node = decltype(derivative_formula<Operation, Index>(0.0));
        const int slots[]{adjoints[Program::at(step)], step, current.operands[0], current.operands[1],
                          current.operands[2]};
        const int exponent =
            std::same_as<Operation, pow_operation> ? program.steps[Program::at(current.operands[1])].operands[0] : 0;
        program.derivatives[Program::at(program.derivative_count++)] = {current.operation, Index, exponent};
        add_adjoint(operand, formula_appender<node>::append(program, slots));
      }
    }
  }
  template <class Operation>
  static constexpr void of_step(formula_differentiation& all, int step) {
    all.template by_operand<Operation, 0>(step);
    if constexpr (count_operands<Operation>() > 1) {
      all.template by_operand<Operation, 1>(step);
    }
    if constexpr (count_operands<Operation>() > 2) {
      all.template by_operand<Operation, 2>(step);
    }
  }

  /// Fills `adjoints` from `root` down to the variables in [0, inputs).
  constexpr void run(int root, int adjoint, int inputs) {
    using rule = void (*)(formula_differentiation&, int);
    constexpr auto rules = []<std::size_t... Index>(std::index_sequence<Index...>) {
      return std::array<rule, sizeof...(Index)>{&of_step<formula_operations::at<static_cast<int>(Index)>>...};
    }
    (std::make_index_sequence<static_cast<std::size_t>(formula_operations::size)>{});
    adjoints.fill(-1);
    for (int k = 0; k <= root; ++k) {
      const program_step& step = program.steps[Program::at(k)];
      if (step.operation == program_step::load) {
        varies[Program::at(k)] = step.operands[0] < inputs;
      } else if (step.operation >= 0) {
        for (const int operand : step.operands) {
          varies[Program::at(k)] = varies[Program::at(k)] || (operand >= 0 && varies[Program::at(operand)]);
        }
      }
    }
    adjoints[Program::at(root)] = adjoint;
    for (int k = root; k >= 0; --k) {
      const int operation = program.steps[Program::at(k)].operation;
      if (operation >= 0 && varies[Program::at(k)] && adjoints[Program::at(k)] >= 0) {
        rules[Program::at(operation)](*this, k);
      }
    }
  }
};

/// The value of a formula of `Inputs` variables.
template <class Node, int Inputs>
struct value_program {
  using node = Node;
  static constexpr int results = 1;
  static constexpr auto program = [] {
    formula_program<1> result;
    std::array<int, static_cast<std::size_t>(Inputs)> slots{};
    for (int k = 0; k < Inputs; ++k) {
      slots[static_cast<std::size_t>(k)] = result.load(k);
    }
    result.results[0] = formula_appender<Node>::append(result, slots.data());
    result.mark_results();
    return result;
  }();
};

/// The derivatives of a formula by its first `Differentiated` variables, times the adjoint, which is variable number
/// Inputs. With `FromResult`, the value of the formula is variable number Inputs + 1 and is not computed. With
/// `WithValue`, the value is the last result.
template <class Node, int Inputs, int Differentiated, bool FromResult, bool WithValue = false>
struct gradient_program {
  using node = Node;
  static constexpr int results = Differentiated + (WithValue ? 1 : 0);
  static constexpr auto program = [] {
    using program_type = formula_program<results>;
    program_type result;
    std::array<int, static_cast<std::size_t>(Inputs)> slots{};
    for (int k = 0; k < Inputs; ++k) {
      slots[static_cast<std::size_t>(k)] = result.load(k);
    }
    const int root = formula_appender<Node>::append(result, slots.data());
    const int adjoint = result.load(Inputs);
    formula_differentiation<program_type> differentiation{result};
    differentiation.run(root, adjoint, Differentiated);
    for (int k = 0; k < Differentiated; ++k) {
      const int gradient = differentiation.adjoints[program_type::at(slots[program_type::at(k)])];
      result.results[program_type::at(k)] = gradient < 0 ? result.constant() : gradient;  // 0 for an unused variable
    }
    if (WithValue) {
      result.results[program_type::at(Differentiated)] = root;
    }
    if (FromResult && result.steps[program_type::at(root)].operation >= 0) {
      result.steps[program_type::at(root)] = {program_step::load, {Inputs + 1, -1, -1}};
    }
    result.mark_results();
    return result;
  }();
};

/// The numbers of a program's constants.
template <int Count>
struct constant_list {
  std::array<double, Count == 0 ? 1 : static_cast<std::size_t>(Count)> numbers{};
  int used = 0;
  void add(double value) noexcept { numbers[static_cast<std::size_t>(used++)] = value; }
};

/// The constants of a program for a formula: those of the formula, then those of its derivatives; the rest is 0.
template <class Source>
[[nodiscard]] constant_list<Source::program.constants> constants_of(const typename Source::node& node) {
  constant_list<Source::program.constants> list;
  collect_constants(node, list);
  [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    [[maybe_unused]] const auto one = [&]<std::size_t Position>(std::integral_constant<std::size_t, Position>) {
      constexpr formula_derivative derivative = Source::program.derivatives[Position];
      using operation = formula_operations::at<derivative.operation>;
      const double exponent = list.numbers[static_cast<std::size_t>(derivative.exponent)];
      collect_constants(derivative_formula<operation, derivative.operand>(exponent), list);
    };
    (one(std::integral_constant<std::size_t, Index>{}), ...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(Source::program.derivative_count)>{});
  return list;
}

}  // namespace gradus::detail
