// SPDX-License-Identifier: BSL-1.0
//
// The loops of formulas, for one instruction set.
//
// The evaluators of formulas are compiled for none: they see numbers, not vectors, and are inlined here.

// No `#pragma once`: for_each_target.hpp says what to compile. A sum adds element i of a row to chain i % 16, whatever
// the size of a vector: all instruction sets have the same bits.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

/// Calls body(packet, i) as for_each_packet. Not always_inline: GCC flattens a function after the functions that it
/// calls, but does not follow calls by always_inline functions there.
template <class Element, class Body>
void for_each_vector(index_t begin, index_t end, const Body& body) noexcept {
  constexpr index_t lanes = packet<Element>::lanes;
  index_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    body(packet<Element>{}, i);
  }
  if (i < end) {
    body(packet<Element>{end - i}, i);
  }
}

/// Evaluates a formula for rows begin, begin + step, ... before `end`, and calls store(packet, element, its index in
/// the row, number of the result, result).
template <class Element, int Inputs, int Parameters, class Evaluator, class Store>
void evaluate_rows(const formula_rows& rows, index_t begin, index_t end, index_t step, const Evaluator& given,
                   const formula_arguments<Element, Inputs, Parameters>& arguments, const Element* dy, const Element* y,
                   const Store& store) noexcept {
  using number = simd::GRADUS_TARGET::numbers<computed<Element>>;
  const Evaluator evaluate = given;  // copies: a store of elements could change what is not local
  for (index_t row = begin; row < end; row += step) {
    const index_t first = row * rows.length;
    formula_arguments<Element, Inputs, Parameters> from = arguments;
    for (std::size_t k = 0; k < from.parameters.size(); ++k) {
      if (from.per_channel[k] && !rows.adjacent) {
        from.parameters[k] += row % rows.channels;
        from.per_channel[k] = false;
      }
    }
    const index_t length = rows.elements - first < rows.length ? rows.elements - first : rows.length;
    for_each_vector<Element>(0, length, [&](packet<Element> p, index_t i) {
      const auto load = [&]<int Index>(std::integral_constant<int, Index> /*variable*/) {
        constexpr auto k = static_cast<std::size_t>(Index);
        if constexpr (Index < Inputs) {
          return number::of(p.load(from.inputs[k] + first + i));
        } else if constexpr (Index < Inputs + Parameters) {
          const auto* const values = from.parameters[k - std::size_t{Inputs}];
          return from.per_channel[k - std::size_t{Inputs}] ? number::of(p.load(values + i)) : number{*values};
        } else {
          return number::of(p.load((Index == Inputs + Parameters ? dy : y) + first + i));
        }
      };
      evaluate(load, [&](auto which, const number& result) { store(p, first + i, i, which, result); });
    });
  }
}

/// y = f(inputs, parameters), for rows [begin, end).
template <class Formula, class Element, int Inputs, int Parameters>
[[gnu::flatten]] void evaluate_formula(target /*of*/, const formula_rows& rows, index_t begin, index_t end,
                                       const Formula& function,
                                       const formula_arguments<Element, Inputs, Parameters>& arguments,
                                       Element* y) noexcept {
  const Element* const none = nullptr;
  evaluate_rows(rows, begin, end, 1,
                function.template value_of_vectors<simd::GRADUS_TARGET::numbers<computed<Element>>>(), arguments, none,
                none, [y](packet<Element> p, index_t at, index_t /*index*/, auto /*which*/, const auto& result) {
                  p.store(y + at, result.value);
                });
}

/// The gradients of the inputs, for rows begin, begin + step, ... before `end`. Adds those of the parameters to `sums`:
/// of each channel where the channels are adjacent, else 16 chains.
template <class Formula, class Element, int Inputs, int Parameters>
[[gnu::flatten]] void differentiate_formula(target /*of*/, const formula_rows& rows, index_t begin, index_t end,
                                            index_t step, const Formula& function,
                                            const formula_arguments<Element, Inputs, Parameters>& arguments,
                                            const Element* dy, const Element* y,
                                            const formula_gradients<Element, Inputs, Parameters>& gradients,
                                            [[maybe_unused]] double* sums) noexcept {
  const formula_gradients<Element, Inputs, Parameters> to = gradients;
  [[maybe_unused]] const index_t stride = rows.adjacent ? rows.channels : formula_chains;
  [[maybe_unused]] const index_t mask = rows.adjacent ? ~index_t{0} : formula_chains - 1;
  evaluate_rows(rows, begin, end, step,
                function.template gradient_of_vectors<simd::GRADUS_TARGET::numbers<computed<Element>>>(), arguments, dy,
                y,
                [&]<int Result>(packet<Element> p, index_t at, index_t i, std::integral_constant<int, Result> /*which*/,
                                const auto& result) {
                  constexpr auto k = static_cast<std::size_t>(Result);
                  if constexpr (Result >= Inputs) {
                    p.add_to(sums + (Result - Inputs) * stride + (i & mask), result.value);
                  } else if (Inputs + Parameters == 1 || to.inputs[k] != nullptr) {
                    Element* const dx = to.inputs[k] + at;
                    p.store(dx, to.accumulate[k] ? p.load(dx) + result.value : result.value);
                  }
                });
}

/// The sum of the terms of a loss for elements [begin, end). Writes `scale` times their derivatives unless `gradient`
/// is null.
template <class Loss, class Element>
[[gnu::flatten, nodiscard]] double evaluate_loss(target /*of*/, index_t begin, index_t end, const Loss& loss,
                                                 const Element* scores, const computed<Element>* targets,
                                                 computed<Element> scale, Element* gradient) noexcept {
  using number = simd::GRADUS_TARGET::numbers<computed<Element>>;
  const auto evaluate = loss.template terms_of_vectors<number>();
  double terms[std::size_t{formula_chains}] = {};
  for_each_vector<Element>(begin, end, [&](packet<Element> p, index_t i) {
    const auto load = [&]<int Index>(std::integral_constant<int, Index> /*variable*/) {
      if constexpr (Index == 0) {
        return number::of(p.load(scores + i));
      } else if constexpr (Index == 1) {
        return number::of(p.load(targets + i));
      } else {
        return number{scale};
      }
    };
    evaluate(load, [&]<int Result>(std::integral_constant<int, Result> /*which*/, const number& result) {
      if constexpr (Result == 1) {
        p.add_to(terms + (i - begin) % formula_chains, result.value);
      } else if (gradient != nullptr) {
        p.store(gradient + i, result.value);
      }
    });
  });
  double sum = 0;
  for (const double term : terms) {
    sum += term;
  }
  return sum;
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
