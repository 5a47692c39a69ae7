// SPDX-License-Identifier: BSL-1.0
//
// Writes networks as ONNX files, with images and the scores that the network computes from them:
//
//   write_models FOLDER graphs FIRST COUNT   random graphs of the seeds from FIRST on
//   write_models FOLDER layers               layers that the random graphs do not have
//   write_models FOLDER NAME                 a network of the zoo
//
// NAME.onnx, NAME.input.npy, NAME.output.npy; check_models.py runs the models by onnxruntime.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/core/random.hpp"
#include "gradus/data/npy_array.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/models/alexnet.hpp"
#include "gradus/models/autoencoder.hpp"
#include "gradus/models/deeplab.hpp"
#include "gradus/models/googlenet.hpp"
#include "gradus/models/inception.hpp"
#include "gradus/models/lenet.hpp"
#include "gradus/models/mlp.hpp"
#include "gradus/models/mobilenet_v2.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/resnet_regression.hpp"
#include "gradus/models/unet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/onnx/export.hpp"
#include "gradus/tensor/tensor.hpp"
#include "reference/random_graphs.hpp"

namespace {

using gradus::index_t;
namespace io = gradus::io;
namespace models = gradus::models;
namespace nn = gradus::nn;

std::string folder;

/// Gives every parameter and running statistic numbers that are not those of a new network, and writes the files.
template <class Layout>
void write(gradus::cpu& device, nn::network<float, Layout>& net, const std::string& name, index_t batch,
           bool external = false) {
  net.compile({.max_batch_size = batch, .seed = 3});
  for (const auto& each : net.parameters()) {
    const gradus::random_stream stream{17, each.name()};
    std::vector<float> values = each.copy_values();
    for (std::size_t k = 0; k < values.size() && each.description().rank == 1; ++k) {
      values[k] += 0.2F * static_cast<float>(stream.normal(k));
    }
    each.assign_values(values);
  }
  for (const auto& each : net.buffers()) {
    const gradus::random_stream stream{19, each.name};
    for (index_t k = 0; k < each.elements.size(); ++k) {
      const auto normal = static_cast<float>(stream.normal(static_cast<std::uint64_t>(k)));
      each.elements.data()[k] = each.name.ends_with("variance") ? 0.5F + normal * normal : 0.3F * normal;
    }
  }
  const nn::value_shape& in = net.shape(net.input());
  gradus::tensor<float, 4, Layout> images{device, in.batch(batch)};
  std::vector<float> logical;
  const gradus::random_stream stream{23, name};
  for (index_t n = 0; n < batch; ++n) {
    for (index_t c = 0; c < in.channels; ++c) {
      for (index_t h = 0; h < in.height; ++h) {
        for (index_t w = 0; w < in.width; ++w) {
          logical.push_back(static_cast<float>(stream.normal(logical.size())));
          images(n, c, h, w) = logical.back();
        }
      }
    }
  }
  const std::string path = folder + "/" + name;
  gradus::data::write_npy(path + ".input.npy", logical, {batch, in.channels, in.height, in.width});
  const auto scores = net.forward(images.view());
  logical.clear();
  for (index_t n = 0; n < batch; ++n) {
    for (index_t c = 0; c < scores.extent(1); ++c) {
      for (index_t h = 0; h < scores.extent(2); ++h) {
        for (index_t w = 0; w < scores.extent(3); ++w) {
          logical.push_back(scores(n, c, h, w));
        }
      }
    }
  }
  gradus::data::write_npy(path + ".output.npy", logical, {batch, scores.extent(1), scores.extent(2), scores.extent(3)});
  io::save_onnx(net, path + ".onnx", {.external_data = external});
}

template <class Layout>
void write_graph(std::uint64_t seed, const std::string& name) {
  gradus_test::draws draw{seed * 2654435761U};
  const gradus_test::graph_spec spec = gradus_test::graph_generator{seed, draw.between(2, 16)}.generate();
  gradus::cpu device;
  nn::network<float, Layout> net{device, spec.input};
  gradus_test::build(net, spec);
  write(device, net, name, draw.between(1, 4));
}

void write_graphs(std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    write_graph<gradus::nchw>(seed, "graph" + std::to_string(seed) + "_nchw");
    write_graph<gradus::nhwc>(seed, "graph" + std::to_string(seed) + "_nhwc");
  }
}

/// A network of one layer that ends as an image, and the same on a vector where `vectors`.
template <class Options>
void write_layer(const std::string& name, const Options& options, bool vectors = false) {
  gradus::cpu device;
  nn::network<float, gradus::nchw> first{device, {8, 6, 4}};
  first.add(name, options, first.input());
  write(device, first, name + "_nchw", 2);
  nn::network<float, gradus::nhwc> last{device, {8, 6, 4}};
  last.add(name, options, last.input());
  write(device, last, name + "_nhwc", 2);
  if (vectors) {
    nn::network<float, gradus::nhwc> flat{device, {3, 5, 4}};
    const nn::value hidden = flat.add("hidden", nn::dense{.out_features = 7}, flat.input());
    flat.add(name, options, hidden);
    write(device, flat, name + "_vector", 3);
  }
}

void write_layers() {
  write_layer("leaky_relu", nn::leaky_relu{.negative_slope = 0.2}, true);
  write_layer("relu6", nn::relu6{}, true);
  write_layer("elu", nn::elu{.alpha = 0.7}, true);
  write_layer("gelu", nn::gelu{}, true);
  write_layer("gelu_tanh", nn::gelu_tanh{}, true);
  write_layer("silu", nn::silu{}, true);
  write_layer("tanh", nn::tanh{}, true);
  write_layer("sigmoid", nn::sigmoid{}, true);
  write_layer("softplus", nn::softplus{.beta = 2, .threshold = 1.5}, true);
  write_layer("hard_swish", nn::hard_swish{}, true);
  write_layer("prelu", nn::prelu{}, true);
  write_layer("prelu_one", nn::prelu{.per_channel = false}, true);
  write_layer("log_softmax", nn::log_softmax{}, true);
  write_layer("instance_norm", nn::instance_norm{});
  write_layer("instance_norm_scaled", nn::instance_norm{.epsilon = 1e-3, .scale = true, .shift = true});
  write_layer("layer_norm_plain", nn::layer_norm{.scale = false, .shift = false});
  write_layer("layer_norm_pixels", nn::layer_norm{.axes = nn::norm_axes::channels});
  write_layer("layer_norm_scale", nn::layer_norm{.axes = nn::norm_axes::channels, .shift = false});
  write_layer("batch_norm_plain", nn::batch_norm{.scale = false, .shift = false}, true);
  write_layer("pixel_unshuffle", nn::pixel_unshuffle{.factor = 2});
  write_layer("slice", nn::slice{.channels = {1, 5}, .rows = {2, -1}, .columns = {0, 3}});
  write_layer("pad", nn::pad2d{.padding = nn::padding::explicit_padding(1, 2, 3, 0), .value = -1.5});
  write_layer("circular",
              nn::pad2d{.padding = nn::padding::explicit_padding(1, 2, 3, 4), .mode = nn::padding_mode::circular});
  write_layer("bilinear", nn::upsample2d{.size = {9, 7}, .mode = nn::interpolation::bilinear});
  write_layer("corners", nn::upsample2d{.size = {5, 11}, .mode = nn::interpolation::bilinear, .align_corners = true});
  write_layer("nearest", nn::upsample2d{.size = {4, 13}});
  write_layer("logic", nn::elementwise([](auto x) {
                return where((x > 0.5 && !(x >= 2)) || x == 0 || x != x, sqrt(abs(x)) + pow(x, 2),
                             clamp(-x, -1, 1) / (1 + exp(min(x, 3)))) +
                       where(max(x, 0) <= 1, log(1 + square(x)), erf(x));
              }));
  gradus::cpu device;
  nn::network<float, gradus::nhwc> gate{device, {4, 5, 3}};
  const nn::value a = gate.add("a", nn::conv2d{.out_channels = 6, .kernel = {3, 3}}, gate.input());
  const nn::value b = gate.add("b", nn::conv2d{.out_channels = 6, .kernel = {3, 3}}, gate.input());
  gate.add("gate",
           nn::elementwise([](auto x, auto y, auto scale) { return scale * x * sigmoid(y); },
                           {nn::per_channel("scale", nn::constant(1.5))}),
           {a, b});
  write(device, gate, "gate", 2, true);
}

using build_model = void (*)(nn::network<float, gradus::nhwc>&);

struct model {
  std::string_view name;
  nn::value_shape input;
  build_model build;
};

constexpr nn::value_shape photograph{3, 224, 224};

const model zoo[] = {
    {"lenet", {3, 28, 28}, [](auto& net) { models::lenet(net, 10); }},
    {"alexnet", photograph, [](auto& net) { models::alexnet(net); }},
    {"vgg11", photograph, [](auto& net) { models::vgg(net, 11); }},
    {"vgg16", photograph, [](auto& net) { models::vgg(net, 16); }},
    {"vgg19", photograph, [](auto& net) { models::vgg(net, 19); }},
    {"googlenet", photograph, [](auto& net) { models::googlenet(net); }},
    {"inception3", {3, 299, 299}, [](auto& net) { models::inception3(net); }},
    {"inception4", {3, 299, 299}, [](auto& net) { models::inception4(net); }},
    {"resnet50", photograph, [](auto& net) { models::resnet(net, 50); }},
    {"resnet110", {3, 32, 32}, [](auto& net) { models::cifar_resnet(net, 110); }},
    {"mobilenet_v2", photograph, [](auto& net) { models::mobilenet_v2(net); }},
    {"unet", {1, 188, 188}, [](auto& net) { models::unet(net, {.base_channels = 8, .padded = false}); }},
    {"deeplab", {3, 129, 129}, [](auto& net) { models::deeplab_v3_plus(net); }},
    {"mlp",
     {1, 28, 28},
     [](auto& net) { models::mlp(net, models::mlp_options<nn::tanh>{.hidden = {100}, .outputs = 10}); }},
};

}  // namespace

int main(int argc, char** argv) {
  try {
    folder = argc > 1 ? argv[1] : ".";
    const std::string_view what = argc > 2 ? argv[2] : "";
    if (what == "graphs" && argc == 5) {
      write_graphs(std::strtoull(argv[3], nullptr, 10), std::strtoull(argv[4], nullptr, 10));
      return 0;
    }
    if (what == "layers") {
      write_layers();
      return 0;
    }
    for (const model& each : zoo) {
      if (each.name == what) {
        gradus::cpu device;
        nn::network<float, gradus::nhwc> net{device, each.input};
        each.build(net);
        write(device, net, std::string{each.name}, 2);
        return 0;
      }
    }
    std::cerr << "write_models FOLDER graphs FIRST COUNT | layers | the name of a network\n";
    return 2;
  } catch (const std::exception& failure) {
    std::cerr << failure.what() << '\n';
    return 1;
  }
}
