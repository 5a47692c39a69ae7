// SPDX-License-Identifier: BSL-1.0
//
// The state of an update rule without its type.
#pragma once

#include <memory>
#include <span>

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/optim/loss_scale_report.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"
#include "settings.hpp"

namespace driver {

/// The optimizer's state without its type.
template <class Device>
class rule_state {
 public:
  rule_state() = default;
  rule_state(const rule_state&) = delete;
  rule_state& operator=(const rule_state&) = delete;
  virtual ~rule_state() = default;
  virtual void update(Device& device, std::span<const gradus::optim::segment> segments, float* values,
                      const float* gradients, const gradus::optim::update_step& step) = 0;
};

/// The same with a scale of the loss; see optim::scaled_loss.
template <class Device>
class scaled_rule_state : public rule_state<Device> {
 public:
  [[nodiscard]] virtual gradus::loss_scale scale() const = 0;
  virtual void test(Device& device, std::span<const gradus::optim::segment> segments, const float* gradients) = 0;
  virtual void finish(Device& device, std::span<const gradus::optim::segment> segments, float* values,
                      const float* gradients, const gradus::optim::update_step& step) = 0;
  [[nodiscard]] virtual gradus::optim::loss_scale_report report() = 0;
};

/// What is defined in rules_on.hpp.
/// @throws gradus::configuration_error when a hyper-parameter makes no sense
template <class Device>
[[nodiscard]] std::unique_ptr<rule_state<Device>> make_rule_state(const settings& chosen, Device& device,
                                                                  index_t parameters);
template <class Device>
[[nodiscard]] std::unique_ptr<scaled_rule_state<Device>> make_scaled_rule_state(const settings& chosen, Device& device,
                                                                                index_t parameters);

}  // namespace driver
