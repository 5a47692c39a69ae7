// SPDX-License-Identifier: BSL-1.0
//
// A name of another header, mistyped options and copies of what has the memory: the compiler shows the line to write.
// EXPECT_ERROR(rule): #include <gradus/optim/adam.hpp>
// EXPECT_ERROR(loss): #include <gradus/nn/losses.hpp>
// EXPECT_ERROR(layers): #include <gradus/nn/sequential.hpp>
// EXPECT_ERROR(compile): .max_batch_size = 64, .seed = 1
// EXPECT_ERROR(move): std::make_unique<train::trainer<network>>(net, rule)
// EXPECT_ERROR(copy): one network has the memory: pass network& to functions
#include <utility>  // std::move

#include "gradus/gradus.hpp"

namespace nn = gradus::nn;
using network = nn::network<float, gradus::nhwc>;

struct model {  // a trainer is a member
  gradus::cpu device;
  network net{device, {.channels = 1, .height = 28, .width = 28}};
  gradus::train::trainer<network> trainer{net, gradus::optim::sgd{}};
};

void use(network& net, nn::value scores) {
  static_cast<void>(scores);
  net.compile({.max_batch_size = 64});
#if defined(GRADUS_TEST_CASE_RULE)
  gradus::train::trainer trainer{net, gradus::optim::adam{}};
#elif defined(GRADUS_TEST_CASE_LOSS)
  net.loss(nn::mean_squared_error{}, scores);
#elif defined(GRADUS_TEST_CASE_LAYERS)
  nn::sequential(net, nn::relu{});
#elif defined(GRADUS_TEST_CASE_COMPILE)
  net.compile({.batch_size = 64});
#elif defined(GRADUS_TEST_CASE_MOVE)
  gradus::train::trainer trainer{net, gradus::optim::sgd{}};
  auto other = std::move(trainer);
#elif defined(GRADUS_TEST_CASE_COPY)
  network other = net;
#endif
}
