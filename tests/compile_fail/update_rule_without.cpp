// SPDX-License-Identifier: BSL-1.0
//
// An update rule without one of the required members.
// EXPECT_ERROR(name): not an update rule: give it a name
// EXPECT_ERROR(check): not an update rule: give it void check
// EXPECT_ERROR(description): not an update rule: give it std::string description
// EXPECT_ERROR(state): not an update rule: give it template <class Element, class Device> class state
// EXPECT_ERROR(update): not an update rule: give its state void update
// EXPECT_ERROR(buffers): not an update rule: give its state template <class Visitor> void visit_buffers
#include "gradus/optim/update_rule.hpp"

struct rule {
#ifndef GRADUS_TEST_CASE_NAME
  static constexpr std::string_view name = "mine";
#endif
#ifndef GRADUS_TEST_CASE_CHECK
  void check() const {}
#endif
#ifndef GRADUS_TEST_CASE_DESCRIPTION
  std::string description() const;
#endif
#ifndef GRADUS_TEST_CASE_STATE
  template <class Element, class Device>
  struct state {
    state(Device&, const rule&, gradus::index_t) {}
#ifndef GRADUS_TEST_CASE_UPDATE
    void update(Device&, std::span<const gradus::optim::segment>, Element*, const Element*,
                const gradus::optim::update_step&) {}
#endif
#ifndef GRADUS_TEST_CASE_BUFFERS
    template <class Visitor>
    void visit_buffers(Visitor&&) {}
#endif
  };
#endif
};
static_assert(gradus::optim::explain_update_rule<rule>());
