// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: marked .*override.*does not override
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/parallel/strategy.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
#define FINISH_UNTIL finish_until
#else
#define FINISH_UNTIL finish_untill
#endif

struct mine {
  static constexpr std::string_view name = "mine";
  template <class Element>
  struct state final : gradus::parallel::strategy<Element> {
    state(const mine&, gradus::comm::any_communicator, const gradus::parallel::flat_parameters<Element>& all)
        : parameters{all} {}
    void start() override {}
    void finish(const gradus::parallel::update_call& update) override { update(parameters.segments); }
    bool has_deferred_update() const noexcept override { return true; }
    bool FINISH_UNTIL(std::size_t, std::size_t, const gradus::parallel::update_call& update) override {
      update(parameters.segments);
      return true;
    }
    std::string describe() const override { return "mine"; }
    gradus::parallel::flat_parameters<Element> parameters;
  };
};
static_assert(gradus::parallel::explain_strategy<mine>());
