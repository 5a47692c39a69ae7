// SPDX-License-Identifier: BSL-1.0
//
// The state of an elementwise update rule: its buffers, and the step in one pass.
#pragma once

#include <array>        // std::array, std::tuple_size_v
#include <cstddef>      // std::size_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <string_view>  // std::string_view
#include <utility>      // std::index_sequence, std::make_index_sequence

#include "gradus/core/element.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_rule.hpp"
#include "gradus/optim/update_step.hpp"
#include "gradus/tensor/tensor.hpp"

namespace gradus::optim::detail {

/// @throws configuration_error unless the decay rate of a mean is in [0, 1)
inline void require_decay_rate(std::string_view rule, std::string_view option, double value, std::string_view hint) {
  require_in_range(rule, option, value, 0.0, 1.0, "a decay rate in [0, 1)", hint);
}

/// @throws configuration_error unless a divisor that contains epsilon is above 0 in float too
inline void require_epsilon(std::string_view rule, double epsilon, std::string_view hint) {
  require_in_range(rule, "epsilon", epsilon, static_cast<double>(std::numeric_limits<float>::min()),
                   std::numeric_limits<double>::infinity(), "a finite epsilon above 0", hint);
}

/// @throws configuration_error if the weight decay is negative or not finite
inline void require_weight_decay(std::string_view rule, double weight_decay) {
  require_in_range(rule, "weight_decay", weight_decay, 0.0, std::numeric_limits<double>::infinity(),
                   "a finite weight_decay of at least 0", "0.01 is usual, 0 turns it off");
}

/// A buffer of a pass.
struct pass_buffer {
  std::string_view name;
  double initial = 0;  ///< value of all elements before the first step
};

/// The buffers of a rule, one element for each parameter, and its step. rule.with_pass(body) calls body(pass), where
/// pass.buffers() is an array of pass_buffer and the pass writes values, then the buffers, and reads gradients.
template <class Rule, class Element, class Device>
class elementwise_state {
  static_assert(explain_real_element<Element>());
  static constexpr std::size_t most_buffers = 3;

 public:
  /// @param parameters  number of elements of the flat buffers of values and gradients
  /// @throws configuration_error as check() does
  elementwise_state(Device& device, const Rule& rule, index_t parameters)
      : rule_{(rule.check(), rule)},
        parameters_{parameters},
        buffers_{make_buffer(device, 0), make_buffer(device, 1), make_buffer(device, 2)} {
    rule_.with_pass([&, this](const auto& pass) {
      const auto described = pass.buffers();
      static_assert(std::tuple_size_v<decltype(described)> <= most_buffers);
      for (std::size_t i = 0; i < described.size(); ++i) {
        if (described[i].initial != 0.0) {
          fill_elements(device, parameters, static_cast<Element>(described[i].initial), buffers_[i].data());
        }
      }
    });
  }

  /// Runs one step for the parameters of `segments`, in one pass over memory. Call it at most once per step for each
  /// parameter.
  /// @param scale  the factor by which the gradients have been multiplied; see optim::update
  /// @throws configuration_error if the learning rate is negative or not finite
  /// @throws shape_error if a segment is outside the buffers
  void update(Device& device, std::span<const segment> segments, Element* values, const Element* gradients,
              const update_step& step, const loss_scale& scale = {}) {
    const floating_point_scope arithmetic{flushes_denormals_on(device)};
    require_learning_rate(Rule::name, step.learning_rate);
    require_inside(Rule::name, segments, parameters_);
    rule_.with_pass([&, this]<class Pass>(const Pass& pass) {
      [&, this ]<std::size_t... Index>(std::index_sequence<Index...>) {
        apply_pass(device, segments, pass, step, scale,
                   pass_arrays<Element, 1 + sizeof...(Index)>{values, buffers_[Index].data()...},
                   pass_arrays<const Element, 1>{gradients});
      }
      (std::make_index_sequence<std::tuple_size_v<decltype(pass.buffers())>>{});
    });
  }

  /// Calls visitor(name, data, count) for each buffer, in device memory.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    rule_.with_pass([&, this](const auto& pass) {
      const auto described = pass.buffers();
      for (std::size_t i = 0; i < described.size(); ++i) {
        visitor(described[i].name, buffers_[i].data(), buffers_[i].size());
      }
    });
  }

  /// The hyper-parameters.
  [[nodiscard]] const Rule& rule() const noexcept { return rule_; }

 private:
  using buffer = tensor<Element, 1, row_major, Device>;

  [[nodiscard]] buffer make_buffer(Device& device, std::size_t index) const {
    bool needed = false;
    rule_.with_pass([&](const auto& pass) { needed = index < pass.buffers().size(); });
    return buffer{device, {needed ? parameters_ : index_t{0}}};
  }

  Rule rule_;
  index_t parameters_;
  std::array<buffer, most_buffers> buffers_;  // (parameters), or empty
};

}  // namespace gradus::optim::detail
