// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: derive it from gradus::train::execution<Network>
#include "gradus/comm/self.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/train/trainer.hpp"

struct divided : gradus::parallel::all_reduce {
  template <class Network>
  struct own_execution
#ifdef GRADUS_TEST_GOOD_TWIN
      : gradus::train::execution<Network>
#endif
  {
    explicit own_execution(const divided&) {}
  };
  template <class Network>
  using execution = own_execution<Network>;
};

void check(gradus::nn::network<float>& net, gradus::comm::self& alone) {
  const gradus::train::trainer trainer{net, gradus::optim::sgd{}, alone, divided{}};
}
