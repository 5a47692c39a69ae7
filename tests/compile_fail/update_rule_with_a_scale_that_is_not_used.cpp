// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: the scale of the update rule's state would never be asked for
#include "gradus/optim/update_rule.hpp"

struct rule {
  static constexpr std::string_view name = "mine";
#ifdef GRADUS_TEST_GOOD_TWIN
  static constexpr bool scales_loss = true;
#else
  static constexpr bool scale_loss = true;
#endif
  void check() const {}
  std::string description() const;
  template <class Element, class Device>
  struct state {
    state(Device&, const rule&, gradus::index_t) {}
    void update(Device&, std::span<const gradus::optim::segment>, Element*, const Element*,
                const gradus::optim::update_step&) {}
    gradus::loss_scale scale() const { return {}; }
    void test(Device&, std::span<const gradus::optim::segment>, const Element*) {}
    void finish(Device&, std::span<const gradus::optim::segment>, Element*, const Element*,
                const gradus::optim::update_step&) {}
    gradus::optim::loss_scale_report report() { return {}; }
    template <class Visitor>
    void visit_buffers(Visitor&&) {}
  };
};
static_assert(gradus::optim::explain_update_rule<rule>());
