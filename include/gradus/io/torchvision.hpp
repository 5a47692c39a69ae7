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
  /// Pairs a convolution and its normalization with NAME_conv and NAME_norm.
  void add_normalized(std::string_view convolution, std::string_view norm, const std::string& ours) {
    add(convolution, ours + "_conv");
    add(norm, ours + "_norm");
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

  void add_vgg(const std::array<int, 5>& repeats, bool has_norms) {
    int layer = 0;  // of their sequence, which counts ReLU and pooling too
    for (std::size_t block = 0; block < repeats.size(); ++block) {
      for (int i = 1; i <= repeats[block]; ++i) {
        const std::string ours = join({"block", block + 1, "_", i});
        add(join({"features.", layer}), ours + "_conv");
        if (has_norms) {
          add(join({"features.", layer + 1}), ours + "_norm");
        }
        layer += has_norms ? 3 : 2;
      }
      ++layer;
    }
    add("classifier.0", "head1_dense");
    add("classifier.3", "head3_dense");
    add("classifier.6", "scores");
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

  /// The names. The pairs are empty afterwards.
  [[nodiscard]] name_map names() { return name_map{std::move(pairs_)}; }

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
};

}  // namespace detail

/// The names of a model of torchvision, for load_weights:
///
///   # Python: save_file(torchvision.models.resnet50(weights="DEFAULT").state_dict(), "resnet50.safetensors")
///   models::resnet(net, 50, {.classes = 1000, .symmetric_pooling = true});
///   net.compile({.max_batch_size = 32});
///   io::load_weights(net, "resnet50.safetensors", {.rename = io::torchvision_names("resnet50")});
///
///   model                                      | network of gradus/models
///   resnet18, 34, 50, 101, 152                 | resnet(net, 50, {.classes = 1000, .symmetric_pooling = true})
///   vgg11, vgg16, vgg19                        | vgg(net, 16, 1000)
///   vgg11_bn, vgg16_bn, vgg19_bn               | vgg(net, 16, {.classes = 1000, .batch_norm = true})
///   alexnet                                    | alexnet(net, {.classes = 1000, .first_padding = 2,
///                                              |               .fourth_channels = 256})
///   mobilenet_v2                               | mobilenet_v2(net)
///
/// All for images of 224 x 224. The weights of convolutions and dense layers have the same order in both libraries,
/// also those of a dense layer behind flattened images: (c, h, w).
///
/// @throws configuration_error for another model, with the names of all
[[nodiscard]] inline name_map torchvision_names(std::string_view model,
                                                error_location where = error_location::current()) {
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
  struct vgg {
    std::string_view name;
    std::array<int, 5> repeats;
  };
  constexpr vgg vggs[] = {{"vgg11", {1, 1, 2, 2, 2}}, {"vgg16", {2, 2, 3, 3, 3}}, {"vgg19", {2, 2, 4, 4, 4}}};
  detail::torchvision_pairs pairs;
  for (const resnet& each : resnets) {
    if (model == each.name) {
      pairs.add_resnet(each.blocks, each.has_bottlenecks);
      return pairs.names();
    }
  }
  const bool has_norms = model.ends_with("_bn");
  for (const vgg& each : vggs) {
    if (model.substr(0, model.size() - (has_norms ? 3 : 0)) == each.name) {
      pairs.add_vgg(each.repeats, has_norms);
      return pairs.names();
    }
  }
  if (model == "alexnet") {
    pairs.add_alexnet();
  } else if (model == "mobilenet_v2") {
    pairs.add_mobilenet_v2();
  } else {
    raise<configuration_error>("torchvision_names",
                               "resnet18, 34, 50, 101 or 152, vgg11, 16 or 19 with or without _bn, alexnet or "
                               "mobilenet_v2",
                               {"'", model, "'"}, "give pairs of names to .rename for other models", where);
  }
  return pairs.names();
}

}  // namespace gradus::io
