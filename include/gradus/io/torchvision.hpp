// SPDX-License-Identifier: BSL-1.0
//
// The names that torchvision's models have for the weights of the networks in gradus/models.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move, std::pair
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/weight_names.hpp"

namespace gradus::io {

namespace detail {

/// Pairs of a layer of torchvision and one of gradus/models.
class torchvision_pairs {
 public:
  /// Pairs all weights of a layer.
  void add(std::string_view theirs, std::string_view ours) {
    pairs_.emplace_back(join({theirs, ".*"}), join({ours, ".*"}));
  }
  /// Pairs all weights and statistics of a normalization. The variance has a pair of its own: files have another name.
  void add_norm(std::string_view theirs, std::string_view ours) {
    pairs_.emplace_back(join({theirs, ".running_var"}), join({ours, ".running_variance"}));
    add(theirs, ours);
  }
  /// Pairs a convolution and its normalization with NAME_conv and NAME_norm.
  void add_normalized(std::string_view convolution, std::string_view norm, const std::string& ours) {
    add(convolution, ours + "_conv");
    add_norm(norm, ours + "_norm");
  }
  /// The same for torchvision's BasicConv2d.
  void add_basic(const std::string& theirs, const std::string& ours) {
    add_normalized(theirs + ".conv", theirs + ".bn", ours);
  }
  /// Leaves out all weights of an auxiliary classifier.
  void ignore(std::string_view theirs) { pairs_.emplace_back(join({theirs, ".*"}), ""); }

  /// Adds a residual network, if the model is one. Returns whether it is.
  bool add_resnet(std::string_view model) {
    struct resnet {
      std::string_view name;
      std::array<int, 4> blocks;
      bool has_bottlenecks;
    };
    constexpr resnet resnets[] = {{"resnet18", {2, 2, 2, 2}, false},
                                  {"resnet34", {3, 4, 6, 3}, false},
                                  {"resnet50", {3, 4, 6, 3}, true},
                                  {"resnet101", {3, 4, 23, 3}, true},
                                  {"resnet152", {3, 8, 36, 3}, true}};
    for (const resnet& each : resnets) {
      if (model == each.name) {
        add_resnet(each.blocks, each.has_bottlenecks);
        return true;
      }
    }
    return false;
  }
  void add_resnet(const std::array<int, 4>& blocks, bool has_bottlenecks) {
    add_normalized("conv1", "bn1", "stem1");
    for (std::size_t stage = 1; stage <= blocks.size(); ++stage) {
      for (int block = 0; block < blocks[stage - 1]; ++block) {
        const std::string theirs = join({"layer", stage, ".", block, "."});
        const std::string ours = join({"stage", stage, "_block", block + 1, "_"});
        int number = 0;
        if (block == 0 && (has_bottlenecks || stage > 1)) {
          add_normalized(theirs + "downsample.0", theirs + "downsample.1", join({ours, ++number}));
        }
        for (int i = 1; i <= (has_bottlenecks ? 3 : 2); ++i) {
          add_normalized(join({theirs, "conv", i}), join({theirs, "bn", i}), join({ours, ++number}));
        }
      }
    }
    add("fc", "scores");
  }

  /// Adds the convolutions of a VGG network, if the model is one. Returns whether it is.
  bool add_vgg(std::string_view model) {
    struct vgg {
      std::string_view name;
      std::array<int, 5> repeats;
    };
    constexpr vgg vggs[] = {{"vgg11", {1, 1, 2, 2, 2}}, {"vgg16", {2, 2, 3, 3, 3}}, {"vgg19", {2, 2, 4, 4, 4}}};
    const bool has_norms = model.ends_with("_bn");
    for (const vgg& each : vggs) {
      if (model.substr(0, model.size() - (has_norms ? 3 : 0)) == each.name) {
        add_vgg(each.repeats, has_norms);
        return true;
      }
    }
    return false;
  }
  void add_vgg(const std::array<int, 5>& repeats, bool has_norms) {
    int layer = 0;  // of their sequence, which counts ReLU and pooling too
    for (std::size_t block = 0; block < repeats.size(); ++block) {
      for (int i = 1; i <= repeats[block]; ++i) {
        const std::string ours = join({"block", block + 1, "_", i});
        add(join({"features.", layer}), ours + "_conv");
        if (has_norms) {
          add_norm(join({"features.", layer + 1}), ours + "_norm");
        }
        layer += has_norms ? 3 : 2;
      }
      ++layer;
    }
  }

  void add_alexnet() {
    add("features.0", "layer1_conv");
    add("features.3", "layer3_conv");
    add("features.6", "layer5_conv");
    add("features.8", "layer6_conv");
    add("features.10", "layer7_conv");
    add("classifier.1", "layer9_dense");
    add("classifier.4", "layer11_dense");
    add("classifier.6", "scores");
  }

  void add_mobilenet_v2() {
    add_normalized("features.0.0", "features.0.1", "stem");
    for (int block = 1; block <= 17; ++block) {
      const std::string theirs = join({"features.", block, ".conv."});
      const std::string ours = join({"block", block});
      int part = 0;
      if (block > 1) {
        add_normalized(theirs + "0.0", theirs + "0.1", ours + "_expand");
        part = 1;
      }
      add_normalized(join({theirs, part, ".0"}), join({theirs, part, ".1"}), ours + "_depthwise");
      add_normalized(join({theirs, part + 1}), join({theirs, part + 2}), ours + "_project");
    }
    add_normalized("features.18.0", "features.18.1", "head");
    add("classifier.1", "scores");
  }

  void add_googlenet() {
    add_basic("conv1", "layer1");
    add_basic("conv2", "layer3");
    add_basic("conv3", "layer4");
    for (const std::string module : {"3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"}) {
      const std::string theirs = join({"inception", module, ".branch"});
      const std::string ours = join({"inception", module, "_"});
      add_basic(theirs + "1", ours + "1");
      add_basic(theirs + "2.0", ours + "2");
      add_basic(theirs + "2.1", ours + "3");
      add_basic(theirs + "3.0", ours + "4");
      add_basic(theirs + "3.1", ours + "5");
      add_basic(theirs + "4.1", ours + "7");
    }
    add("fc", "scores");
    ignore("aux1");
    ignore("aux2");
  }

  void add_inception_v3() {
    add_basic("Conv2d_1a_3x3", "stem1");
    add_basic("Conv2d_2a_3x3", "stem2");
    add_basic("Conv2d_2b_3x3", "stem3");
    add_basic("Conv2d_3b_1x1", "stem5");
    add_basic("Conv2d_4a_3x3", "stem6");
    // The numbers that a module's convolutions have in gradus/models; a pooling has the number between.
    using branches = std::vector<std::pair<std::string_view, int>>;
    const auto add_module = [&, this](std::string_view theirs, std::string_view ours, const branches& convolutions) {
      for (const auto& [branch, number] : convolutions) {
        add_basic(join({"Mixed_", theirs, ".branch", branch}), join({ours, "_", number}));
      }
    };
    const branches a{{"1x1", 1},      {"5x5_1", 2},    {"5x5_2", 3}, {"3x3dbl_1", 4},
                     {"3x3dbl_2", 5}, {"3x3dbl_3", 6}, {"_pool", 8}};
    const branches c{{"1x1", 1},      {"7x7_1", 2},    {"7x7_2", 3},    {"7x7_3", 4},    {"7x7dbl_1", 5},
                     {"7x7dbl_2", 6}, {"7x7dbl_3", 7}, {"7x7dbl_4", 8}, {"7x7dbl_5", 9}, {"_pool", 11}};
    const branches e{{"1x1", 1},      {"3x3_1", 2},     {"3x3_2a", 3},    {"3x3_2b", 4}, {"3x3dbl_1", 5},
                     {"3x3dbl_2", 6}, {"3x3dbl_3a", 7}, {"3x3dbl_3b", 8}, {"_pool", 10}};
    add_module("5b", "a1", a);
    add_module("5c", "a2", a);
    add_module("5d", "a3", a);
    add_module("6a", "b1", {{"3x3", 1}, {"3x3dbl_1", 2}, {"3x3dbl_2", 3}, {"3x3dbl_3", 4}});
    add_module("6b", "c1", c);
    add_module("6c", "c2", c);
    add_module("6d", "c3", c);
    add_module("6e", "c4", c);
    add_module("7a", "d1",
               {{"3x3_1", 1}, {"3x3_2", 2}, {"7x7x3_1", 3}, {"7x7x3_2", 4}, {"7x7x3_3", 5}, {"7x7x3_4", 6}});
    add_module("7b", "e1", e);
    add_module("7c", "e2", e);
    add("fc", "scores");
    ignore("AuxLogits");
  }

  /// The names. The pairs are empty afterwards.
  [[nodiscard]] name_map names() { return name_map{std::move(pairs_)}; }

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
};

}  // namespace detail

/// The names of a model of torchvision, for load_weights and save_weights:
///
///   # Python: save_file(torchvision.models.resnet50(weights="DEFAULT").state_dict(), "resnet50.safetensors")
///   models::resnet(net, 50, {.classes = 1000, .symmetric_pooling = true});
///   net.compile({.max_batch_size = 32});
///   io::load_weights(net, "resnet50.safetensors", {.rename = io::torchvision_names("resnet50")});
///   io::save_weights(net, "trained.safetensors", {.rename = io::torchvision_names("resnet50")});
///   # Python: torchvision.models.resnet50().load_state_dict(load_file("trained.safetensors"))
///
///   model                                      | network of gradus/models
///   resnet18, 34, 50, 101, 152                 | resnet(net, 50, {.classes = 1000, .symmetric_pooling = true})
///   vgg11, vgg16, vgg19                        | vgg(net, 16, 1000)
///   vgg11_bn, vgg16_bn, vgg19_bn               | vgg(net, 16, {.classes = 1000, .batch_norm = true})
///   alexnet                                    | alexnet(net, {.classes = 1000, .first_padding = 2,
///                                              |               .fourth_channels = 256})
///   mobilenet_v2                               | mobilenet_v2(net)
///   googlenet                                  | googlenet(net, {.classes = 1000,
///                                              |                 .version = googlenet_version::torchvision})
///   inception_v3                               | inception3(net, {.classes = 1000,
///                                              |                  .version = inception3_version::torchvision})
///
/// All for images of 224 x 224, inception_v3 for 299 x 299. The networks have no auxiliary classifiers: load_weights
/// ignores those of a file ("aux1.*" and "aux2.*" of googlenet, "AuxLogits.*" of inception_v3;
/// load_weights_report::ignored has their names), and Python reads a file of save_weights into a model with aux_logits
/// = False. The published weights of these two models expect images as (x / 255 - 0.5) / 0.5: their transform_input
/// takes what other models get to that, and the networks do without it. The weights of convolutions and dense layers
/// have the same order in both libraries, also those of a dense layer behind flattened images: (c, h, w).
///
/// @throws configuration_error for another model, with the names of all
[[nodiscard]] inline name_map torchvision_names(std::string_view model,
                                                error_location where = error_location::current()) {
  detail::torchvision_pairs pairs;
  if (pairs.add_resnet(model)) {
    return pairs.names();
  }
  if (pairs.add_vgg(model)) {
    pairs.add("classifier.0", "head1_dense");
    pairs.add("classifier.3", "head3_dense");
    pairs.add("classifier.6", "scores");
    return pairs.names();
  }
  if (model == "alexnet") {
    pairs.add_alexnet();
  } else if (model == "mobilenet_v2") {
    pairs.add_mobilenet_v2();
  } else if (model == "googlenet") {
    pairs.add_googlenet();
  } else if (model == "inception_v3") {
    pairs.add_inception_v3();
  } else {
    raise<configuration_error>("torchvision_names",
                               "resnet18, 34, 50, 101 or 152, vgg11, 16 or 19 with or without _bn, alexnet, "
                               "mobilenet_v2, googlenet or inception_v3",
                               {"'", model, "'"}, "give pairs of names to .rename for other models", where);
  }
  return pairs.names();
}

}  // namespace gradus::io
