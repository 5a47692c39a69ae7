// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: not an update rule: give it template <class Element, class Device> class state
#include "gradus/optim/update_rule.hpp"

struct rule {
  static constexpr std::string_view name = "mine";
  void check() const {}
  std::string description() const;
#ifdef GRADUS_TEST_GOOD_TWIN
  template <class Element, class Device>
  struct state {
    state(Device&, const rule&, gradus::index_t) {}
    void update(Device&, std::span<const gradus::optim::segment>, Element*, const Element*,
                const gradus::optim::update_step&) {}
    template <class Visitor>
    void visit_buffers(Visitor&&) {}
  };
#endif
};
static_assert(gradus::optim::explain_update_rule<rule>());
