// SPDX-License-Identifier: BSL-1.0
//
// The names and shapes of torchvision's models (tests/golden/torchvision_names.py) are those of the networks of
// gradus/models. tests/torchvision compares the scores.
#include "gradus/io/torchvision.hpp"

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/io/detail/weights/match.hpp"
#include "gradus/models/alexnet.hpp"
#include "gradus/models/mobilenet_v2.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/nn/network.hpp"

namespace {

using torchvision_network = gradus::nn::network<float, gradus::nchw, gradus::cpu>;

/// The parameters and buffers of a network that is not compiled.
std::vector<gradus::io::detail::weight_slot> slots_of(torchvision_network& net) {
  (void)net.forecast({.max_batch_size = 1});
  std::vector<gradus::io::detail::weight_slot> slots;
  for (const auto& node : net.structure().nodes()) {
    for (const auto& each : node.parameters) {
      slots.push_back({each.name, gradus::io::detail::shape_in_files(each)});
    }
    for (const auto& each : node.buffers) {
      slots.push_back({each.name, {each.size}});
    }
  }
  return slots;
}

BOOST_AUTO_TEST_SUITE(torchvision_models)

BOOST_AUTO_TEST_CASE(all_names_and_shapes_agree) {
  namespace models = gradus::models;
  const auto resnet = [](int depth) {
    return
        [depth](torchvision_network& net) { models::resnet(net, depth, {.classes = 1000, .symmetric_pooling = true}); };
  };
  const auto vgg = [](int depth, bool batch_norm) {
    return [=](torchvision_network& net) { models::vgg(net, depth, {.classes = 1000, .batch_norm = batch_norm}); };
  };
  const std::map<std::string, std::function<void(torchvision_network&)>> builders{
      {"resnet18", resnet(18)},
      {"resnet34", resnet(34)},
      {"resnet50", resnet(50)},
      {"vgg11", vgg(11, false)},
      {"vgg16", vgg(16, false)},
      {"vgg16_bn", vgg(16, true)},
      {"vgg19_bn", vgg(19, true)},
      {"alexnet",
       [](torchvision_network& net) {
         models::alexnet(net, {.classes = 1000, .first_padding = 2, .fourth_channels = 256});
       }},
      {"mobilenet_v2", [](torchvision_network& net) { models::mobilenet_v2(net); }}};
  std::map<std::string, std::vector<gradus::io::safetensors_entry>> golden;
  std::ifstream in{GRADUS_TEST_SOURCE_DIR "/golden/torchvision_names.txt"};
  std::string line;
  std::string model;
  while (std::getline(in, line)) {
    std::istringstream words{line};
    std::string name;
    words >> name;
    if (name == "#") {
      continue;
    }
    if (name == "model") {
      words >> model;
      continue;
    }
    gradus::io::safetensors_entry entry{.name = name};
    for (gradus::index_t extent = 0; words >> extent;) {
      entry.shape.push_back(extent);
    }
    golden[model].push_back(entry);
  }
  BOOST_REQUIRE(golden.size() == builders.size());
  gradus::cpu device;
  for (const auto& [name, tensors] : golden) {
    torchvision_network net{device, {3, 224, 224}};
    builders.at(name)(net);
    const auto slots = slots_of(net);
    const auto matches = gradus::io::detail::match_weights("load", slots, tensors, gradus::io::name_patterns{},
                                                           gradus::io::torchvision_names(name));
    BOOST_TEST(matches.report.differences().empty(), name << ": " << matches.report.differences());
    BOOST_TEST(matches.report.loaded.size() == slots.size());
  }
}

BOOST_AUTO_TEST_CASE(another_model_is_refused_with_the_names_of_all) {
  BOOST_CHECK_EXCEPTION((void)gradus::io::torchvision_names("resnext50"), gradus::configuration_error,
                        [](const gradus::configuration_error& failure) {
                          return std::string{failure.what()}.find("mobilenet_v2, got 'resnext50'") != std::string::npos;
                        });
  BOOST_CHECK_THROW((void)gradus::io::torchvision_names("_bn"), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
