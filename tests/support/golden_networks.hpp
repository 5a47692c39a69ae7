// SPDX-License-Identifier: BSL-1.0
//
// The networks whose losses and gradients are recorded from libtorch: what the recorder and the test must agree on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradus/models/alexnet.hpp"
#include "gradus/models/googlenet.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/lenet.hpp"
#include "gradus/models/mnist.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/vgg.hpp"

namespace gradus_test {

inline constexpr std::uint64_t golden_seed = 17;
inline constexpr std::int32_t golden_classes = 10;
inline constexpr double golden_learning_rate = 0.02;
inline constexpr int golden_steps = 3;

/// One recorded case: a name, the batch, and how the network is built (in any class with nn::network's add).
struct golden_case {
  std::string name;
  gradus::index_t batch;
  gradus::nn::value_shape input;
};

inline std::vector<golden_case> golden_cases() {
  return {{"mnist", 4, {1, 28, 28}},         {"lenet", 3, {3, 28, 28}},       {"alexnet", 2, {3, 67, 67}},
          {"vgg11", 2, {3, 32, 32}},         {"googlenet", 1, {3, 224, 224}}, {"resnet50_v1", 2, {3, 64, 64}},
          {"resnet50_v1_5", 2, {3, 64, 64}}, {"resnet50_v2", 2, {3, 64, 64}}, {"cifar_resnet20", 4, {3, 32, 32}},
          {"inception3", 2, {3, 299, 299}},  {"inception4", 2, {3, 107, 107}}};
}

template <class Network>
void build_golden(Network& net, const std::string& name) {
  namespace models = gradus::models;
  using enum models::resnet_version;
  if (name == "mnist") {
    models::mnist(net);
  } else if (name == "lenet") {
    models::lenet(net, golden_classes);
  } else if (name == "alexnet") {
    models::alexnet(net, golden_classes);
  } else if (name == "vgg11") {
    models::vgg(net, 11, golden_classes);
  } else if (name == "googlenet") {
    models::googlenet(net, golden_classes);
  } else if (name == "resnet50_v1") {
    models::resnet(net, 50, {.classes = golden_classes, .version = v1});
  } else if (name == "resnet50_v1_5") {
    models::resnet(net, 50, {.classes = golden_classes, .version = v1_5});
  } else if (name == "resnet50_v2") {
    models::resnet(net, 50, {.classes = golden_classes, .version = v2});
  } else if (name == "cifar_resnet20") {
    models::cifar_resnet(net, 20, {.classes = golden_classes, .version = v1});
  } else if (name == "inception3") {
    models::inception3(net, golden_classes);
  } else if (name == "inception4") {
    models::inception4(net, golden_classes);
  }
}

}  // namespace gradus_test
