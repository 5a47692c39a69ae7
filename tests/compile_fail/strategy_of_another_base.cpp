// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: derive its state publicly from gradus::parallel::strategy<Element>
#include "gradus/comm/any_communicator.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/trainer.hpp"

#ifdef GRADUS_TEST_GOOD_TWIN
template <class Element>
using base = gradus::parallel::strategy<Element>;
#else
template <class Element>
struct base {
  virtual ~base() = default;
  virtual void start() = 0;
  virtual void finish(const gradus::parallel::update_call& update) = 0;
  virtual std::string describe() const = 0;
};
#endif

struct mine {
  static constexpr std::string_view name = "mine";
  template <class Element>
  struct state final : base<Element> {
    state(const mine&, gradus::comm::any_communicator, const gradus::parallel::flat_parameters<Element>& all)
        : parameters{all} {}
    void start() override {}
    void finish(const gradus::parallel::update_call& update) override { update(parameters.segments); }
    std::string describe() const override { return "mine"; }
    gradus::parallel::flat_parameters<Element> parameters;
  };
};

void check(gradus::nn::network<float>& net, gradus::comm::self& alone) {
  const gradus::train::trainer trainer{net, gradus::optim::sgd{}, alone, mine{}};
}
