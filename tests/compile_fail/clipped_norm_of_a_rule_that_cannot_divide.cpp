// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: clipped_norm: give the rule's state void update
#include <span>
#include <string_view>

#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/optim/clipped_norm.hpp"
#include "gradus/optim/segment.hpp"

struct step_rule {
  static constexpr std::string_view name = "step";
  void check() const {}
  std::string description() const;
  template <class Element, class Device>
  struct state {
    state(Device&, const step_rule&, gradus::index_t) {}
    void update(Device&, std::span<const gradus::optim::segment>, Element*, const Element*,
                const gradus::optim::update_step&
#ifdef GRADUS_TEST_GOOD_TWIN
                ,
                const gradus::loss_scale& = {}
#endif
    ) {
    }
    template <class Visitor>
    void visit_buffers(Visitor&&) {}
  };
};

void check(gradus::cpu& device) {
  const gradus::optim::clipped_norm<step_rule>::state<float> state{device, {}, 3};
}
