// SPDX-License-Identifier: BSL-1.0
//
// What makes a training step distributed: the policy that brings the ranks' gradients together.
#pragma once

#include <concepts>     // std::convertible_to
#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/comm/self.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::parallel {

/// The flat buffers of a network and the parameters in them, in the order in which backward completes their gradients.
template <class Element>
struct flat_parameters {
  std::span<Element> values;
  std::span<Element> gradients;
  std::span<const optim::segment> segments;
};

namespace detail {

struct ignore_update {
  void operator()(std::span<const optim::segment> /*segments*/) const {}
};

}  // namespace detail

template <class S>
concept has_strategy_name = requires {
  { S::name } -> std::convertible_to<std::string_view>;
};

template <class S>
concept has_strategy_state = requires(S options, comm::self& communicator, const flat_parameters<float>& parameters,
                                      typename S::template state<float, comm::self> state, std::size_t index,
                                      detail::ignore_update update) {
  typename S::template state<float, comm::self>;
  state.start();
  state.gradients_ready(index, index);
  state.finish(update);
  { state.describe() } -> std::convertible_to<std::string>;
};

/// A way of computing, on several ranks, the update that one process would compute on the batches of all.
///
/// A type S models `strategy` when
///   1. `S::name` is a constant string used in messages, and an object of S is an aggregate of options;
///   2. `S::state<Element, Communicator>` is constructed from (S options, Communicator&, flat_parameters<Element>);
///   3. `state.start()` makes the parameters' values those of rank 0 on every rank;
///   4. `state.gradients_ready(first, count)` is called during backward when those segments' gradients are complete;
///   each
///      rank calls in the same order, last layer first, and every segment once a step;
///   5. `state.finish(update)` brings the gradients' sum over the ranks to where the update is made, calls
///      update(segments) for parts that have arrived, and returns when the values are those of the next step;
///   6. `state.describe()` returns the plan as text; ranks whose texts differ cannot work together.
/// It may offer more: `may_be_late()` and `finish_until(first, count, update)` to finish behind the next forward pass;
/// `use_rule(rule)` and `end_of_step(learning_rate)` when it updates elsewhere, so that update(segments) is never
/// called; `group()`, the ranks that train, as comm::any_communicator; `complete()`, called before evaluation and at
/// the end of epochs; `updates_parts`, a constant, where each rank updates other parts of the parameters, with
/// `gather_state(rule's state)`, called by all ranks at the end of epochs, and where ranks reach each other's state
/// `share_state(rule's state)`, called by all before the first step, and `fetch_state()`, called by one at any time
/// between steps. `update.device()` is the device on which update(segments) works.
/// Gradients are those of (sum of local losses) / (examples of the step over all ranks), so the sum over ranks is the
/// gradient of the mean loss over the global batch. Semantics: tests/conformance/parallel.
template <class S>
concept strategy = has_strategy_name<S> && has_strategy_state<S>;

/// Says which requirement of `strategy` the type S misses. Always true when it compiles.
template <class S>
consteval bool explain_strategy() {
  static_assert(has_strategy_name<S>,
                "gradus: not a strategy: give it a name, e.g. "
                "static constexpr std::string_view name = \"all_reduce\";");
  static_assert(has_strategy_state<S>,
                "gradus: not a strategy: give it template <class Element, class Communicator> class state with "
                "start(), gradients_ready(first, count), finish(update) and describe()");
  return true;
}

}  // namespace gradus::parallel
