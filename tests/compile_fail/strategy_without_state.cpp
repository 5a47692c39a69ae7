// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: not a strategy: give it template <class Element> class state
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/parallel/strategy.hpp"

struct mine {
  static constexpr std::string_view name = "mine";
  template <class Element>
  struct state final : gradus::parallel::strategy<Element> {
#ifdef GRADUS_TEST_GOOD_TWIN
    state(const mine&, gradus::comm::any_communicator, const gradus::parallel::flat_parameters<Element>&) {}
#else
    state(const mine&, const gradus::parallel::flat_parameters<Element>&) {}
#endif
    void start() override {}
    void finish(const gradus::parallel::update_call&) override {}
    std::string describe() const override {
      return "mine";
    }
  };
};
static_assert(gradus::parallel::explain_strategy<mine>());
