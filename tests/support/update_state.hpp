// SPDX-License-Identifier: BSL-1.0
//
// The state of a rule, or of an optim::update, called as the state of a rule is.
#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <string_view>

#include "gradus/core/element.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update.hpp"
#include "gradus/optim/update_step.hpp"

namespace gradus_test {

template <class Element, class Device = gradus::cpu>
class update_state {
 public:
  template <class Update>
  update_state(Device& device, const Update& update, gradus::index_t elements)
      : made_{gradus::optim::make_parameter_update<Element>(device, update, elements)} {}

  /// A whole step.
  void update(Device& /*device*/, std::span<const gradus::optim::segment> segments, Element* values,
              const Element* gradients, const gradus::optim::update_step& step) {
    made_->run_step(segments, values, gradients, step);
  }

  /// Calls visitor(name, data, count) for the buffers of whose elements it takes.
  template <class Visitor>
  void visit_buffers(Visitor&& visitor) {
    for (const gradus::optim::state_buffer& each : made_->buffers()) {
      const auto visit = [&]<class Buffer>(Buffer* data) {
        if constexpr (std::invocable<Visitor&, std::string_view, Buffer*, gradus::index_t>) {
          visitor(std::string_view{each.name}, data, each.elements);
        }
      };
      if (each.element == gradus::element_name<Element>) {
        visit(reinterpret_cast<Element*>(each.bytes.data()));
      } else {
        visit(reinterpret_cast<double*>(each.bytes.data()));
      }
    }
  }

  [[nodiscard]] gradus::optim::parameter_update<Element>* operator->() const noexcept { return made_.get(); }
  [[nodiscard]] gradus::optim::parameter_update<Element>& operator*() const noexcept { return *made_; }

 private:
  std::unique_ptr<gradus::optim::parameter_update<Element>> made_;
};

/// The combinations of what is done around a rule: with_parts takes numbers below this.
inline constexpr int all_combinations = 16;

/// The update without those of its four parts that the number does not choose.
template <class Rule>
[[nodiscard]] gradus::optim::update<Rule> with_parts(gradus::optim::update<Rule> update, int chosen) {
  const gradus::optim::update<Rule> none{};
  update.max_norm = (chosen & 1) != 0 ? update.max_norm : none.max_norm;
  update.clip_value = (chosen & 2) != 0 ? update.clip_value : none.clip_value;
  update.loss_scaling = (chosen & 4) != 0 ? update.loss_scaling : none.loss_scaling;
  update.average = (chosen & 8) != 0 ? update.average : none.average;
  return update;
}

}  // namespace gradus_test
