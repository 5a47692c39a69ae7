// SPDX-License-Identifier: BSL-1.0
//
// An update rule with its state and its device, without their types: what gradient strategies work with.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <memory>       // std::make_unique, std::unique_ptr
#include <optional>     // std::nullopt, std::optional
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::is_same_v

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/gradient_norm_report.hpp"
#include "gradus/optim/loss_scale_report.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/instances.hpp"

namespace gradus::optim {

/// A buffer of a rule's state, in the memory of the device.
struct state_buffer {
  std::string name;            ///< of the rule's choice: "velocity"
  std::span<std::byte> bytes;  ///< its memory
  index_t elements = 0;        ///< number of elements in `bytes`
  std::string_view element{};  ///< the element_name of its elements, such as "float32"
};

/// An update rule with its state for the parameters of a flat buffer. Its functions are called a few times a step,
/// never once an element.
///
/// parameter_update_of makes one of any update rule. Derive from it to write one by hand, for example to pass calls on
/// to another one and count them.
/// @tparam Element  of values and gradients
template <class Element>
class parameter_update {
 public:
  parameter_update() = default;
  parameter_update(const parameter_update&) = delete;
  parameter_update& operator=(const parameter_update&) = delete;
  virtual ~parameter_update() = default;

  /// The name of the rule.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// The rule's name and hyperparameters: ranks compare it.
  [[nodiscard]] virtual std::string description() const = 0;
  /// Whether the rule takes parts of parameters: see update_rule.
  [[nodiscard]] virtual bool elementwise() const noexcept = 0;

  /// The step for the parameters of `segments`, any subset of all. It allocates nothing.
  /// @param values  the flat buffer, in the memory of the device; so is `gradients`
  virtual void update(std::span<const segment> segments, Element* values, const Element* gradients,
                      const update_step& step) = 0;

  /// The buffers of the state that a checkpoint must hold.
  [[nodiscard]] virtual dynamic_array<state_buffer> buffers() = 0;

  /// The same rule with a new state for `elements` parameters on another device, which must outlive it.
  [[nodiscard]] virtual std::unique_ptr<parameter_update> with_state_on(cpu& device, index_t elements) const = 0;

  /// Whether the rule can divide gradients as it reads them: then there is update_divided().
  [[nodiscard]] virtual bool divides_gradients() const noexcept { return false; }
  /// As update, with gradients that are divided by `scale`; nothing where its numbers say that the step is skipped.
  virtual void update_divided(std::span<const segment> segments, Element* values, const Element* gradients,
                              const update_step& step, const loss_scale& /*scale*/) {
    update(segments, values, gradients, step);
  }

  /// Whether a step depends on all gradients, as clipping by their norm does and the scale of a loss. Then it is test()
  /// of all segments, in parts; the sum of totals() over the ranks that have tested different parts; use_totals(); and
  /// update() in parts. run_step() is all of this on one rank.
  [[nodiscard]] virtual bool needs_all_gradients() const noexcept { return false; }
  /// Adds what a step needs of the gradients of `segments` to totals().
  virtual void test(std::span<const segment> /*segments*/, const Element* /*gradients*/) {}
  /// What test() has found so far, in the memory of the device. Ranks that test different parts add them up.
  [[nodiscard]] virtual std::span<double> totals() noexcept { return {}; }
  /// The totals are those of all gradients: decides what update() does until they are used again, and sets them to 0.
  virtual void use_totals() {}

  /// Whether the loss of a step is to be multiplied by scale().
  [[nodiscard]] virtual bool scales_loss() const noexcept { return false; }
  /// What the loss of the next step is to be multiplied by.
  [[nodiscard]] virtual loss_scale scale() const noexcept { return {}; }
  /// What is known of the scale, if the loss is scaled. On a GPU it waits for the device.
  [[nodiscard]] virtual std::optional<loss_scale_report> report() { return std::nullopt; }

  /// Whether the norm of all gradients is measured, and gradients are clipped by it.
  [[nodiscard]] virtual bool clips_norm() const noexcept { return false; }
  /// The norm of the gradients of the last step, where it is in host memory.
  [[nodiscard]] virtual std::optional<double> gradient_norm() const noexcept { return std::nullopt; }
  /// The norms since the last call, if the norm is measured. On a GPU it waits for the device.
  [[nodiscard]] virtual std::optional<gradient_norm_report> take_norm_report() { return std::nullopt; }

  /// Exchanges the exponential moving average of the values with them. Before the first step the average is 0.
  /// @param values  all that are trained, in the memory of the device
  /// @throws configuration_error if there is no average
  /// @throws shape_error if there are more or fewer values than averages
  virtual void swap_average([[maybe_unused]] std::span<Element> values) {
    raise<configuration_error>("swap_average", "an update with an average", {"the update rule '", name(), "' alone"},
                               "write optim::update{.rule = ..., .average = 0.999}");
  }

  /// The rule that makes the steps: this one, unless something is done around another.
  [[nodiscard]] virtual parameter_update& innermost() noexcept { return *this; }

  /// A whole step; `segments` are all parameters.
  void run_step(std::span<const segment> segments, Element* values, const Element* gradients, const update_step& step) {
    if (needs_all_gradients()) {
      test(segments, gradients);
      use_totals();
    }
    update(segments, values, gradients, step);
  }

  /// Threads of the device that share the work of parallel_for.
  [[nodiscard]] virtual int threads() const { return 1; }

  /// Calls body(begin, end) on consecutive pieces of [0, count) of `grain` indices, on the threads of the device.
  /// @pre grain > 0
  template <class Body>
  void parallel_for(index_t count, index_t grain, const Body& body) {
    run_pieces(count, grain, &body,
               [](const void* erased, index_t begin, index_t end) { (*static_cast<const Body*>(erased))(begin, end); });
  }

 protected:
  /// A function and the object that it is called with.
  using piece_function = void (*)(const void* body, index_t begin, index_t end);

  /// What parallel_for does. Override it together with threads().
  virtual void run_pieces(index_t count, index_t /*grain*/, const void* body, piece_function call) {
    if (count > 0) {
      call(body, 0, count);
    }
  }
};

/// The names of the buffers that have an element for each element of the parameters, in the order of buffers(). The
/// others have as many elements for any number of parameters.
template <class Element>
[[nodiscard]] dynamic_array<std::string> buffers_of_parameters(const parameter_update<Element>& rule) {
  constexpr index_t few = 61;  // of parameters; a buffer of another kind does not have this size
  cpu device{{.intra_op_threads = 1}};
  const std::unique_ptr<parameter_update<Element>> sample = rule.with_state_on(device, few);
  dynamic_array<std::string> names;
  for (const state_buffer& each : sample->buffers()) {
    if (each.elements == few) {
      names.push_back(each.name);
    }
  }
  return names;
}

/// An update rule of a known type.
template <class Rule, class Element, class Device = cpu>
class parameter_update_of final : public parameter_update<Element> {
  static_assert(std::is_same_v<rule_of<Rule>, Rule>,
                "gradus: parameter_update_of is of a rule: of an optim::update there is "
                "make_parameter_update<Element>(device, update, elements)");
  static_assert(explain_update_rule<rule_of<Rule>, Element, Device>());

 public:
  /// The rule's state for this element type and device.
  using state_type = typename Rule::template state<Element, Device>;

  /// @param device    outlives it
  /// @param elements  of the flat buffers
  /// @throws configuration_error when a hyperparameter makes no sense
  parameter_update_of(Device& device, const Rule& rule, index_t elements)
      : device_{&device}, rule_{rule}, state_{device, rule, elements} {}

  /// The rule's state.
  [[nodiscard]] state_type& state() noexcept { return state_; }

  [[nodiscard]] std::string_view name() const noexcept override { return Rule::name; }
  [[nodiscard]] std::string description() const override { return std::string{rule_.description()}; }
  [[nodiscard]] bool elementwise() const noexcept override { return elementwise_update_rule<Rule>; }

  void update(std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step) override {
    state_.update(*device_, segments, values, gradients, step);
  }

  [[nodiscard]] dynamic_array<state_buffer> buffers() override {
    dynamic_array<state_buffer> result;
    state_.visit_buffers([&]<class Buffer>(std::string_view name, Buffer* data, index_t count) {
      result.push_back({.name = std::string{name},
                        .bytes = std::as_writable_bytes(std::span{data, static_cast<std::size_t>(count)}),
                        .elements = count,
                        .element = element_name<Buffer>});
    });
    return result;
  }

  [[nodiscard]] std::unique_ptr<parameter_update<Element>> with_state_on(cpu& device, index_t elements) const override {
    return std::make_unique<parameter_update_of<Rule, Element, cpu>>(device, rule_, elements);
  }

  [[nodiscard]] bool divides_gradients() const noexcept override {
    return optim::divides_gradients<state_type, Element, Device>;
  }
  void update_divided(std::span<const segment> segments, Element* values, const Element* gradients,
                      const update_step& step, [[maybe_unused]] const loss_scale& scale) override {
    if constexpr (optim::divides_gradients<state_type, Element, Device>) {
      state_.update(*device_, segments, values, gradients, step, scale);
    } else {
      update(segments, values, gradients, step);
    }
  }

  [[nodiscard]] int threads() const override {
    if constexpr (std::is_same_v<Device, cpu>) {
      return device_->threads();
    } else {
      return 1;
    }
  }

 private:
  using typename parameter_update<Element>::piece_function;

  void run_pieces(index_t count, index_t grain, const void* body, piece_function call) override {
    if constexpr (std::is_same_v<Device, cpu>) {
      device_->parallel_for(count, grain, [=](index_t begin, index_t end) { call(body, begin, end); });
    } else {
      parameter_update<Element>::run_pieces(count, grain, body, call);
    }
  }

  Device* device_;
  Rule rule_;
  state_type state_;
};

/// The update of a rule, or of what is done around one (optim::update), whose type is known.
/// @param device    outlives the result
/// @param elements  of the flat buffers
/// @throws configuration_error when a hyperparameter makes no sense
template <class Element, class Update, class Device>
[[nodiscard]] std::unique_ptr<parameter_update<Element>> make_parameter_update(Device& device, const Update& update,
                                                                               index_t elements) {
  if constexpr (requires { update.template make<Element>(device, elements); }) {
    return update.template make<Element>(device, elements);
  } else {
    return std::make_unique<parameter_update_of<Update, Element, Device>>(device, update, elements);
  }
}

}  // namespace gradus::optim

GRADUS_COMPILED_CLASS_OF_PARAMETERS(::gradus::optim::parameter_update)
