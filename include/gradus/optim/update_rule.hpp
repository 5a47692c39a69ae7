// SPDX-License-Identifier: BSL-1.0
//
// The concept of an optimizer: hyper-parameters as a value, and the state that applies them.
#pragma once

#include <concepts>     // std::constructible_from, std::convertible_to, std::copyable, std::same_as
#include <memory>       // std::unique_ptr
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::bool_constant

#include "gradus/core/compiled.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/instances.hpp"

namespace gradus::optim {

template <class Element>
class parameter_update;
template <class Element, class Update, class Device>
std::unique_ptr<parameter_update<Element>> make_parameter_update(Device& device, const Update& update,
                                                                 index_t elements);

namespace detail {

/// A visitor for every kind of buffer, for the concepts below.
struct any_buffer_visitor {
  template <class Element>
  void operator()(std::string_view, Element*, index_t) const {}
};

/// @throws configuration_error unless minimum <= value < limit; NaN is refused
inline void require_in_range(std::string_view rule, std::string_view option, double value, double minimum, double limit,
                             std::string_view expected, std::string_view hint) {
  if (!(value >= minimum && value < limit)) {
    raise<configuration_error>(rule, expected, {option, " = ", value}, hint);
  }
}

/// @throws configuration_error if the rate is negative, infinite or NaN
void require_learning_rate(std::string_view rule, double learning_rate);

/// @throws shape_error if a segment is not inside [0, parameters)
void require_inside(std::string_view rule, std::span<const segment> segments, index_t parameters);

}  // namespace detail

/// A requirement of `update_rule`: Rule has `Rule::name`, a constant string.
template <class Rule>
concept has_update_rule_name = requires {
  { Rule::name } -> std::convertible_to<std::string_view>;
};

/// A requirement of `update_rule`: Rule has check().
template <class Rule>
concept has_update_rule_check = requires(const Rule& rule) {
  rule.check();
};

/// A requirement of `update_rule`: Rule has description().
template <class Rule>
concept has_update_rule_description = requires(const Rule& rule) {
  { rule.description() } -> std::convertible_to<std::string>;
};

/// A rule that declares that its update of an element depends only on that element, its gradient and its state. Only
/// such a rule may update parts of parameters.
template <class Rule>
concept elementwise_update_rule = requires {
  requires bool{Rule::elementwise};
};

/// A requirement of `update_rule`: Rule has `state<Element, Device>`.
template <class Rule, class Element, class Device>
concept has_update_rule_state = requires {
  typename Rule::template state<Element, Device>;
  requires std::constructible_from<typename Rule::template state<Element, Device>, Device&, const Rule&, index_t>;
};

/// A requirement of `update_rule`: Rule has a state with update(...).
template <class Rule, class Element, class Device>
concept has_update_rule_update = has_update_rule_state<Rule, Element, Device> &&
    requires(typename Rule::template state<Element, Device>& state, Device& device, std::span<const segment> segments,
             Element* values, const Element* gradients, const update_step& step) {
  state.update(device, segments, values, gradients, step);
};

/// A state that divides gradients by a scale in its loop over them: optim::update needs it to clip or to scale.
template <class State, class Element, class Device>
concept divides_gradients = requires(State& state, Device& device, std::span<const segment> segments, Element* values,
                                     const Element* gradients, const update_step& step, const loss_scale& scale) {
  state.update(device, segments, values, gradients, step, scale);
};

/// True if Rule has a data member `elementwise`, of any type.
template <class Rule>
concept names_elementwise = requires {
  Rule::elementwise;
};
/// True if Rule::elementwise is a constant that converts to bool. explain_update_rule requires it of a rule with the
/// member.
template <class Rule>
concept has_constant_elementwise = requires {
  typename std::bool_constant<Rule::elementwise>;
};
/// A requirement of `update_rule`: Rule has a state with visit_buffers(visitor).
template <class Rule, class Element, class Device>
concept has_update_rule_buffers = has_update_rule_state<Rule, Element, Device> &&
    requires(typename Rule::template state<Element, Device>& state) {
  state.visit_buffers(detail::any_buffer_visitor{});
};

/// A rule that updates parameters from gradients.
///
/// Parameters are stored in one flat buffer, gradients in another at the same offsets; a `segment` is the range of one
/// parameter. A type Rule models `update_rule` for an element type and a device if it is copyable and, for a
/// `const Rule& rule`,
///   1. `Rule::name` is a constant string used in messages and files;
///   2. `rule.check()` throws configuration_error if a hyper-parameter is invalid;
///   3. `rule.description()` is a text that identifies its hyper-parameters: ranks compare it;
///   4. `Rule::state<Element, Device>` is constructible from (Device&, rule, number of elements of the flat buffer);
///      the constructor calls check() and allocates the memory;
///   5. `state.update(device, segments, values, gradients, step)` runs the step for the parameters in `segments`, any
///      subset of all. It may be called several times per step, each time for other parameters and with the same
///      update_step. It allocates nothing. The learning rate of a segment is step.learning_rate times its
///      learning_rate_factor;
///   6. `state.visit_buffers(visitor)` calls visitor(name, data, count) for each buffer that a checkpoint must store.
/// With `static constexpr bool elementwise = true` a rule declares that the update of an element depends only on that
/// element, its gradient and its state. Then ranks may update different parts of one parameter, and parameter servers
/// may store parts of it. Without it, each segment is a whole parameter. If `update` takes a `const loss_scale&` as one
/// more argument and divides gradients by it, an optim::update of the rule can clip gradients and scale the loss. A
/// rule that counts its updates uses update_step::number, which is the same in all calls of a step and, on servers,
/// counted for each parameter. Semantics (tests/property/optim): the update of a parameter depends neither on the other
/// parameters in the call nor on the number of threads.
template <class Rule, class Element = float, class Device = cpu>
concept update_rule = std::copyable<Rule> && has_update_rule_name<Rule> && has_update_rule_check<Rule> &&
    has_update_rule_description<Rule> && has_update_rule_update<Rule, Element, Device> &&
    has_update_rule_buffers<Rule, Element, Device>;

namespace detail {
template <class Update>
struct rule_of {
  using type = Update;
};
template <class Update>
requires requires {
  typename Update::rule_type;
}
struct rule_of<Update> {
  using type = typename Update::rule_type;
};
}  // namespace detail

/// The rule that makes the steps: of an optim::update that within, of a rule itself.
template <class Update>
using rule_of = typename detail::rule_of<Update>::type;

/// Reports at compile time which requirement of `update_rule` the type Rule does not meet. Returns true if it compiles.
template <class Rule, class Element = float, class Device = cpu>
consteval bool explain_update_rule() {
  static_assert(std::copyable<Rule>, "gradus: not an update rule: it must be copyable");
  static_assert(has_update_rule_name<Rule>,
                "gradus: not an update rule: give it a name, e.g. "
                "static constexpr std::string_view name = \"sgd\";");
  static_assert(has_update_rule_check<Rule>,
                "gradus: not an update rule: give it void check() const; that throws gradus::configuration_error for "
                "invalid values");
  static_assert(
      has_update_rule_description<Rule>,
      "gradus: not an update rule: give it std::string description() const; with all hyper-parameters, so that "
      "ranks with different ones are detected");
  static_assert(has_update_rule_state<Rule, Element, Device>,
                "gradus: not an update rule: give it template <class Element, class Device> class state with a "
                "constructor state(Device&, const rule&, gradus::index_t parameters)");
  static_assert(has_update_rule_update<Rule, Element, Device>,
                "gradus: not an update rule: give its state void update(Device&, std::span<const "
                "gradus::optim::segment>, Element* values, const Element* gradients, const "
                "gradus::optim::update_step&);");
  static_assert(has_update_rule_buffers<Rule, Element, Device>,
                "gradus: not an update rule: give its state template <class Visitor> void visit_buffers(Visitor&&); "
                "that calls visitor(name, data, count) for every buffer");
  static_assert(!names_elementwise<Rule> || has_constant_elementwise<Rule>,
                "gradus: elementwise of the update rule is not a constant: write static constexpr bool elementwise = "
                "true;");
  return true;
}

}  // namespace gradus::optim

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::optim::detail {

GRADUS_INLINE void require_learning_rate(std::string_view rule, double learning_rate) {
  if (!(learning_rate >= 0.0) || !is_finite(learning_rate)) {
    raise<configuration_error>(
        rule, "a finite learning rate of at least 0", {learning_rate},
        "check the learning-rate schedule at this epoch; rates between 0.0001 and 1 are usual for sgd");
  }
}

GRADUS_INLINE void require_inside(std::string_view rule, std::span<const segment> segments, index_t parameters) {
  for (const segment& part : segments) {
    if (part.offset < 0 || part.size < 0 || part.size > parameters - part.offset) {
      raise<shape_error>(rule, {"segments inside the ", parameters, " elements of the state"},
                         {"'", part.name, "' of ", part.size, " elements at ", part.offset},
                         "make the state for the whole buffer of parameters");
    }
  }
}

}  // namespace gradus::optim::detail
#endif

// An update rule of the library, for each type of parameters on the CPU. Does nothing without separate compilation.
#ifdef GRADUS_HAS_INSTANCES
#define GRADUS_COMPILED_RULE(rule) GRADUS_EACH_PARAMETER_ELEMENT(GRADUS_DETAIL_RULE, rule)
#define GRADUS_DETAIL_RULE(instance, element, rule)                                                                   \
  instance(std::unique_ptr<::gradus::optim::parameter_update<element>> gradus::optim::make_parameter_update<element>( \
      ::gradus::cpu&, const rule&, ::gradus::index_t))
#else
#define GRADUS_COMPILED_RULE(rule)
#endif
