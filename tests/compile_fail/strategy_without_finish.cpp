// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: its state must override std::string describe
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/parallel/strategy.hpp"

struct mine {
  static constexpr std::string_view name = "mine";
  template <class Element>
  struct state final : gradus::parallel::strategy<Element> {
    state(const mine&, gradus::comm::any_communicator, const gradus::parallel::flat_parameters<Element>&) {}
    void start() override {}
#ifdef GRADUS_TEST_GOOD_TWIN
    void finish(const gradus::parallel::update_call&) override {}
#endif
    std::string describe() const override {
      return "mine";
    }
  };
};
static_assert(gradus::parallel::explain_strategy<mine>());
