// SPDX-License-Identifier: BSL-1.0
//
// Scores of a network of gradus/models with the weights of a model of torchvision or timm, for compare.py:
//
//   logits MODEL LAYOUT WEIGHTS.safetensors IMAGES.npy SCORES.npy SAVED.safetensors
//
// MODEL is "resnet50" of torchvision, or "timm/resnet50". The weights are saved again under the names of MODEL. The
// names of weights that were ignored are printed.
#include <cstddef>      // std::size_t
#include <cstdio>       // std::fprintf, std::printf
#include <cstdlib>      // std::atoi
#include <exception>    // std::exception
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/data/npy_array.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/io/timm.hpp"
#include "gradus/io/torchvision.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/models/alexnet.hpp"
#include "gradus/models/googlenet.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/mobilenet_v2.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

using gradus::index_t;

template <class Network>
void build(Network& net, std::string_view model) {
  namespace models = gradus::models;
  const auto depth = [&](std::size_t letters) { return std::atoi(std::string{model.substr(letters)}.c_str()); };
  if (model.starts_with("resnet")) {
    models::resnet(net, depth(6), {.classes = 1000, .symmetric_pooling = true});
  } else if (model.starts_with("vgg")) {
    models::vgg(net, depth(3), {.classes = 1000, .batch_norm = model.ends_with("_bn")});
  } else if (model == "alexnet") {
    models::alexnet(net, {.classes = 1000, .first_padding = 2, .fourth_channels = 256});
  } else if (model == "googlenet") {
    models::googlenet(net, {.classes = 1000, .version = models::googlenet_version::torchvision});
  } else if (model == "inception_v3") {
    models::inception3(net, {.classes = 1000, .version = models::inception3_version::torchvision});
  } else if (model.starts_with("mobilenetv2_")) {
    models::mobilenet_v2(net, {.width = depth(12) * 0.01});
  } else {
    models::mobilenet_v2(net);
  }
}

template <class Layout>
void write_scores(std::string_view model, const std::string& weights, const std::string& images,
                  const std::string& scores, const std::string& saved) {
  const bool of_timm = model.starts_with("timm/");
  if (of_timm) {
    model.remove_prefix(5);
  }
  const gradus::io::name_map names = of_timm ? gradus::io::timm_names(model) : gradus::io::torchvision_names(model);
  gradus::cpu device;
  const gradus::data::npy_array array{images};
  const index_t count = array.extents()[0];
  const index_t size = array.size() / count;
  gradus::nn::network<float, Layout> net{device,
                                         {.channels = 3, .height = array.extents()[2], .width = array.extents()[3]}};
  build(net, model);
  net.compile({.max_batch_size = count});
  const auto report = gradus::io::load_weights(net, weights, {.rename = names});
  for (const std::string& each : report.ignored) {
    std::printf("%s\n", each.c_str());
  }
  gradus::io::save_weights(net, saved, {.rename = names});
  std::vector<float> planes(static_cast<std::size_t>(count * size));
  array.read(0, array.size(), planes.data());
  gradus::image_tensor<float, Layout, gradus::cpu> batch{
      device, gradus::image_extents{count, 3, array.extents()[2], array.extents()[3]}};
  std::size_t i = 0;
  for (index_t n = 0; n < count; ++n) {
    for (index_t c = 0; c < 3; ++c) {
      for (index_t h = 0; h < array.extents()[2]; ++h) {
        for (index_t w = 0; w < array.extents()[3]; ++w) {
          batch(n, c, h, w) = planes[i++];
        }
      }
    }
  }
  const auto result = net.forward(batch.view());
  std::vector<float> numbers;
  for (index_t n = 0; n < count; ++n) {
    for (index_t k = 0; k < 1000; ++k) {
      numbers.push_back(result(n, k, 0, 0));
    }
  }
  gradus::data::write_npy(scores, numbers, {count, 1000});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "logits MODEL nchw|nhwc WEIGHTS.safetensors IMAGES.npy SCORES.npy SAVED.safetensors\n");
    return 2;
  }
  try {
    if (std::string_view{argv[2]} == "nhwc") {
      write_scores<gradus::nhwc>(argv[1], argv[3], argv[4], argv[5], argv[6]);
    } else {
      write_scores<gradus::nchw>(argv[1], argv[3], argv[4], argv[5], argv[6]);
    }
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
  return 0;
}
