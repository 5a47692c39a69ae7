// SPDX-License-Identifier: BSL-1.0
//
// The names and shapes of models of torchvision and timm (tests/golden/torchvision_names.py) are those of the networks
// of gradus/models. tests/torchvision compares the scores.
#include "gradus/io/torchvision.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/io/detail/weights/match.hpp"
#include "gradus/io/timm.hpp"
#include "gradus/models/alexnet.hpp"
#include "gradus/models/googlenet.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/mobilenet_v2.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/nn/network.hpp"
#include "source_directory.hpp"

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
      {"mobilenet_v2", [](torchvision_network& net) { models::mobilenet_v2(net); }},
      {"googlenet",
       [](torchvision_network& net) {
         models::googlenet(net, {.classes = 1000, .version = models::googlenet_version::torchvision});
       }},
      {"inception_v3",
       [](torchvision_network& net) {
         models::inception3(net, {.classes = 1000, .version = models::inception3_version::torchvision});
       }},
      {"timm/resnet18", resnet(18)},
      {"timm/mobilenetv2_100", [](torchvision_network& net) { models::mobilenet_v2(net); }},
      {"timm/mobilenetv2_035", [](torchvision_network& net) { models::mobilenet_v2(net, {.width = 0.35}); }}};
  std::map<std::string, std::vector<gradus::io::safetensors_entry>> golden;
  std::ifstream in{path_in_tests("golden/torchvision_names.txt")};
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
    const gradus::io::name_map names =
        name.starts_with("timm/") ? gradus::io::timm_names(name.substr(5)) : gradus::io::torchvision_names(name);
    const auto matches = gradus::io::detail::match_weights("load", slots, tensors, gradus::io::name_patterns{}, names);
    BOOST_TEST(matches.report.differences().empty(), name << ": " << matches.report.differences());
    BOOST_TEST(matches.report.loaded.size() == slots.size());
    // Only auxiliary classifiers are ignored, and every weight has the name in the file from which it comes.
    for (const std::string& each : matches.report.ignored) {
      BOOST_TEST((each.starts_with("aux1.") || each.starts_with("aux2.") || each.starts_with("AuxLogits.")), each);
    }
    const bool has_auxiliary = name == "googlenet" || name == "inception_v3";
    BOOST_TEST(matches.report.ignored.empty() != has_auxiliary, name);
    for (const auto& slot : slots) {
      const std::string in_file = names.name_in_file(slot.name);
      BOOST_TEST(std::ranges::any_of(tensors, [&](const auto& each) { return each.name == in_file; }),
                 name << ": '" << slot.name << "' would be saved as '" << in_file << "'");
    }
  }
}

BOOST_AUTO_TEST_CASE(timm_has_other_names_for_the_head_of_vgg) {
  const gradus::io::name_map names = gradus::io::timm_names("vgg16_bn");
  BOOST_TEST(names("features.1.running_var") == "block1_1_norm.running_variance");
  BOOST_TEST(names("pre_logits.fc1.weight") == "head1_dense.weight");
  BOOST_TEST(names("pre_logits.fc2.bias") == "head3_dense.bias");
  BOOST_TEST(names.name_in_file("scores.weight") == "head.fc.weight");
}

BOOST_AUTO_TEST_CASE(another_model_is_refused_with_the_names_of_all) {
  BOOST_CHECK_EXCEPTION((void)gradus::io::torchvision_names("resnext50"), gradus::configuration_error,
                        [](const gradus::configuration_error& failure) {
                          return std::string{failure.what()}.find("inception_v3, got 'resnext50'") != std::string::npos;
                        });
  BOOST_CHECK_EXCEPTION((void)gradus::io::timm_names("mobilenetv2_110d"), gradus::configuration_error,
                        [](const gradus::configuration_error& failure) {
                          return std::string{failure.what()}.find("140, got 'mobilenetv2_110d'") != std::string::npos;
                        });
  BOOST_CHECK_THROW((void)gradus::io::torchvision_names("_bn"), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
