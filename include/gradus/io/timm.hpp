// SPDX-License-Identifier: BSL-1.0
//
// The names that models of timm (PyTorch Image Models) have for the weights of the networks in gradus/models.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/torchvision.hpp"
#include "gradus/io/weight_names.hpp"

namespace gradus::io {

namespace detail {

/// Pairs of timm's MobileNetV2, whose blocks have a number in their stage.
inline void add_timm_mobilenet_v2(torchvision_pairs& pairs) {
  constexpr int blocks_of_stages[] = {1, 2, 3, 4, 3, 3, 1};
  pairs.add_normalized("conv_stem", "bn1", "stem");
  int number = 0;
  int stage = 0;
  for (const int blocks : blocks_of_stages) {
    for (int block = 0; block < blocks; ++block) {
      const std::string theirs = join({"blocks.", stage, ".", block, "."});
      const std::string ours = join({"block", ++number});
      if (stage == 0) {  // without an expansion
        pairs.add_normalized(theirs + "conv_dw", theirs + "bn1", ours + "_depthwise");
        pairs.add_normalized(theirs + "conv_pw", theirs + "bn2", ours + "_project");
      } else {
        pairs.add_normalized(theirs + "conv_pw", theirs + "bn1", ours + "_expand");
        pairs.add_normalized(theirs + "conv_dw", theirs + "bn2", ours + "_depthwise");
        pairs.add_normalized(theirs + "conv_pwl", theirs + "bn3", ours + "_project");
      }
    }
    ++stage;
  }
  pairs.add_normalized("conv_head", "bn2", "head");
  pairs.add("classifier", "scores");
}

}  // namespace detail

/// The names of a model of timm, for load_weights and save_weights:
///
///   # Python: save_file(timm.create_model("mobilenetv2_100", pretrained=True).state_dict(), "mobilenet.safetensors")
///   models::mobilenet_v2(net);
///   net.compile({.max_batch_size = 32});
///   io::load_weights(net, "mobilenet.safetensors", {.rename = io::timm_names("mobilenetv2_100")});
///
///   model                                      | network of gradus/models
///   resnet18, 34, 50, 101, 152                 | that of torchvision_names, with the same names
///   inception_v3                               | that of torchvision_names, with the same names
///   vgg11, vgg16, vgg19, with or without _bn   | that of torchvision_names, see below
///   mobilenetv2_035, 050, 075, 100, 140        | mobilenet_v2(net, {.width = 0.35}), ...
///
/// In timm the first two dense layers of VGG are convolutions with the same weights. Save them in Python as (o, i):
///
///   weights = {name: each.flatten(1) if name.startswith("pre_logits") and each.dim() == 4 else each
///              for name, each in model.state_dict().items()}
///
/// @throws configuration_error for another model, with the names of all
[[nodiscard]] inline name_map timm_names(std::string_view model, error_location where = error_location::current()) {
  detail::torchvision_pairs pairs;
  if (pairs.add_resnet(model)) {
    return pairs.names();
  }
  if (pairs.add_vgg(model)) {
    pairs.add("pre_logits.fc1", "head1_dense");
    pairs.add("pre_logits.fc2", "head3_dense");
    pairs.add("head.fc", "scores");
    return pairs.names();
  }
  if (model == "inception_v3") {
    pairs.add_inception_v3();
    return pairs.names();
  }
  for (const std::string_view each : {"035", "050", "075", "100", "140"}) {
    if (model == join({"mobilenetv2_", each})) {
      detail::add_timm_mobilenet_v2(pairs);
      return pairs.names();
    }
  }
  raise<configuration_error>("timm_names",
                             "resnet18, 34, 50, 101 or 152, vgg11, 16 or 19 with or without _bn, inception_v3, or "
                             "mobilenetv2_035, 050, 075, 100 or 140",
                             {"'", model, "'"}, "give pairs of names to .rename for other models", where);
}

}  // namespace gradus::io
