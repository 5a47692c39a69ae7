// SPDX-License-Identifier: BSL-1.0
//
// EXPECT_ERROR: would never be used: write template <class Network> using execution
#include "gradus/comm/self.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/train/trainer.hpp"

using network = gradus::nn::network<float>;

struct divided : gradus::parallel::all_reduce {
  template <class Network>
  struct own_execution : gradus::train::execution<Network> {
    explicit own_execution(const divided&) {}
  };
#ifdef GRADUS_TEST_GOOD_TWIN
  template <class Network>
  using execution = own_execution<Network>;
#else
  using execution = own_execution<network>;
#endif
};

void check(network& net, gradus::comm::self& alone) {
  const gradus::train::trainer trainer{net, gradus::optim::sgd{}, alone, divided{}};
}
