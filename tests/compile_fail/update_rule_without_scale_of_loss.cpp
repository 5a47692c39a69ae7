// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: the update rule scales the loss: give its state scale
#include "gradus/optim/update_rule.hpp"

struct rule {
  static constexpr std::string_view name = "mine";
#ifdef GRADUS_TEST_GOOD_TWIN
  static constexpr bool scales_loss = false;
#else
  static constexpr bool scales_loss = true;
#endif
  void check() const {}
  std::string description() const;
  template <class Element, class Device>
  struct state {
    state(Device&, const rule&, gradus::index_t) {}
    void update(Device&, std::span<const gradus::optim::segment>, Element*, const Element*,
                const gradus::optim::update_step&) {}
    template <class Visitor>
    void visit_buffers(Visitor&&) {}
  };
};
static_assert(gradus::optim::explain_update_rule<rule>());
