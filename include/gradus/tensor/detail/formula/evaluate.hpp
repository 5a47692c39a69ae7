// SPDX-License-Identifier: BSL-1.0
//
// Programs of formulas run on single elements and on vectors.
#pragma once

#include <concepts>     // std::same_as
#include <cstddef>      // std::size_t
#include <type_traits>  // std::integral_constant
#include <utility>      // std::index_sequence, std::make_index_sequence

#include "gradus/core/config.hpp"
#include "gradus/tensor/detail/formula/program.hpp"

namespace gradus::detail {

/// Computes steps on single elements; conditions are 1 and 0.
template <class Real>
struct element_arithmetic {
  using value = Real;
  GRADUS_HOST_DEVICE static value constant(Real number) noexcept { return number; }
  template <class Operation, class... Values>
  GRADUS_HOST_DEVICE static value apply(Values... values) noexcept {
    if constexpr (std::same_as<Operation, where_operation> || std::same_as<Operation, masked_operation>) {
      return choose(values...);
    } else if constexpr (Operation::takes_masks) {
      return Operation::scalar((values != Real{0})...) ? Real{1} : Real{0};
    } else if constexpr (std::same_as<decltype(Operation::scalar(values...)), bool>) {
      return Operation::scalar(values...) ? Real{1} : Real{0};
    } else {
      return Operation::scalar(values...);
    }
  }

 private:
  GRADUS_HOST_DEVICE static value choose(Real condition, Real yes, Real no = Real{0}) noexcept {
    return condition != Real{0} ? yes : no;
  }
};

/// Computes steps on vectors, simd::TARGET::numbers; conditions are masks. Operations that have no packets run lane by
/// lane.
template <class Numbers>
struct vector_arithmetic {
  using value = Numbers;
  static value constant(typename Numbers::real number) noexcept { return number; }
  template <class Operation, class... Values>
  GRADUS_FLATTENED static value apply(const Values&... values) noexcept {
    if constexpr (Operation::template vectorizable<typename Numbers::real>) {
      return Operation::packet(values...);
    } else {
      return lane_by_lane([](auto... lanes) { return Operation::scalar(lanes...); }, values...);
    }
  }
};

/// A program with its constants, for one kind of values. It owns nothing: a GPU kernel takes it by value.
template <class Source, class Arithmetic>
struct formula_evaluator {
  using value = typename Arithmetic::value;
  static constexpr int constant_count = Source::program.constants;
  /// The steps that compute something.
  static constexpr int operation_count = Source::program.operation_count();
  /// True if variable Index is loaded.
  template <int Index>
  static constexpr bool reads = Source::program.reads(Index, Index + 1);
  value constants[constant_count == 0 ? 1 : static_cast<std::size_t>(constant_count)];

  /// Calls load(k) for each variable k that the program reads, and store(r, value) for each result r; both get an
  /// integral constant.
  template <class Load, class Store>
  GRADUS_FLATTENED GRADUS_HOST_DEVICE void operator()(const Load& load, const Store& store) const noexcept {
    run(load, store, std::make_index_sequence<static_cast<std::size_t>(Source::program.count)>{},
        std::make_index_sequence<static_cast<std::size_t>(Source::results)>{});
  }

 private:
  template <class Load, class Store, std::size_t... Step, std::size_t... Result>
  GRADUS_FLATTENED GRADUS_HOST_DEVICE void run(const Load& load, const Store& store, std::index_sequence<Step...>,
                                               std::index_sequence<Result...>) const noexcept {
    value values[sizeof...(Step)];
    (compute<Step>(load, values), ...);
    (store(std::integral_constant<int, static_cast<int>(Result)>{},
           values[static_cast<std::size_t>(Source::program.results[Result])]),
     ...);
  }

  template <std::size_t Step, class Load>
  GRADUS_FLATTENED GRADUS_HOST_DEVICE void compute(const Load& load, value* values) const noexcept {
    if constexpr (Source::program.live[Step]) {
      constexpr program_step step = Source::program.steps[Step];
      constexpr auto first = static_cast<std::size_t>(step.operands[0]);
      if constexpr (step.operation == program_step::load) {
        values[Step] = load(std::integral_constant<int, step.operands[0]>{});
      } else if constexpr (step.operation == program_step::constant) {
        values[Step] = constants[first];
      } else {
        using operation = formula_operations::at<step.operation>;
        const value a = values[first];  // copies: the address of an element would keep all of them in memory
        if constexpr (step.operands[1] < 0) {
          values[Step] = Arithmetic::template apply<operation>(a);
        } else {
          const value b = values[static_cast<std::size_t>(step.operands[1])];
          if constexpr (step.operands[2] < 0) {
            values[Step] = Arithmetic::template apply<operation>(a, b);
          } else {
            const value c = values[static_cast<std::size_t>(step.operands[2])];
            values[Step] = Arithmetic::template apply<operation>(a, b, c);
          }
        }
      }
    }
  }
};

/// Converts the constants of a program.
template <class Source, class Arithmetic, class Real>
[[nodiscard]] formula_evaluator<Source, Arithmetic> make_evaluator(const double* constants) noexcept {
  formula_evaluator<Source, Arithmetic> result{};
  for (int k = 0; k < Source::program.constants; ++k) {
    result.constants[static_cast<std::size_t>(k)] = Arithmetic::constant(static_cast<Real>(constants[k]));
  }
  return result;
}

}  // namespace gradus::detail
