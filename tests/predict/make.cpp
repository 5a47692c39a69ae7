// SPDX-License-Identifier: BSL-1.0
//
// What the example `predict` is compared with, for compare.py:
//
//   make FOLDER
//
// writes weights.safetensors, a ResNet-18 of ten classes with the names of torchvision; own.safetensors, the same with
// those of gradus; photograph.jpg; expected.txt, the scores of the network as it trains, where batch normalizations are
// layers.
#include <turbojpeg.h>  // tjCompress2

#include <cmath>      // std::lround, std::sin
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint8_t
#include <cstdio>     // std::fopen, std::fprintf
#include <exception>  // std::exception
#include <fstream>    // std::ofstream
#include <span>       // std::span
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/core/random.hpp"
#include "gradus/data/jpeg.hpp"
#include "gradus/data/resize.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "gradus/io/torchvision.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

using gradus::index_t;

constexpr index_t classes = 10;

/// A photograph of 300 x 260 pixels: waves.
std::vector<std::uint8_t> photograph() {
  constexpr int width = 300;
  constexpr int height = 260;
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        pixels.push_back(static_cast<std::uint8_t>(std::lround(127.5 + 70 * std::sin(0.05 * x * (c + 1)) +
                                                               50 * std::sin(0.001 * y * (y + 40 * c) + 0.02 * x))));
      }
    }
  }
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  const tjhandle handle = tjInitCompress();
  if (tjCompress2(handle, pixels.data(), width, 0, height, TJPF_RGB, &memory, &size, TJSAMP_420, 90, 0) != 0) {
    throw std::runtime_error{"the photograph cannot be encoded"};
  }
  std::vector<std::uint8_t> result(memory, memory + size);
  tjFree(memory);
  tjDestroy(handle);
  return result;
}

/// The names of the tensors of torchvision's resnet18.
std::vector<std::string> names_of_torchvision() {
  std::vector<std::string> convolutions{"conv1"};
  std::vector<std::string> norms{"bn1"};
  for (int stage = 1; stage <= 4; ++stage) {
    for (int block = 0; block < 2; ++block) {
      const std::string begin = "layer" + std::to_string(stage) + "." + std::to_string(block) + ".";
      for (const char* number : {"1", "2"}) {
        convolutions.push_back(begin + "conv" + number);
        norms.push_back(begin + "bn" + number);
      }
      if (stage > 1 && block == 0) {
        convolutions.push_back(begin + "downsample.0");
        norms.push_back(begin + "downsample.1");
      }
    }
  }
  std::vector<std::string> names{"fc.weight", "fc.bias"};
  for (const std::string& each : convolutions) {
    names.push_back(each + ".weight");
  }
  for (const std::string& each : norms) {
    for (const char* tensor : {".weight", ".bias", ".running_mean", ".running_var"}) {
      names.push_back(each + tensor);
    }
  }
  return names;
}

void make(const std::string& folder) {
  namespace data = gradus::data;
  namespace io = gradus::io;
  gradus::cpu device;
  gradus::nn::network<float, gradus::nchw> net{device, {.channels = 3, .height = 224, .width = 224}};
  gradus::models::resnet(net, 18, {.classes = classes, .symmetric_pooling = true});
  net.compile({.max_batch_size = 1, .seed = 5});
  // Scales, shifts and statistics that are not those of a new network.
  const gradus::random_stream random{5, "make"};
  std::uint64_t drawn = 0;
  for (const auto& each : net.parameters()) {
    const std::string name = each.name();
    if (name.ends_with("_norm.scale") || name.ends_with(".bias") || name.ends_with("_norm.weight")) {
      std::vector<float> values = each.copy_values();
      for (float& value : values) {
        value = static_cast<float>(random.uniform(0, drawn++) + (name.ends_with(".bias") ? -0.5 : 0.5));
      }
      each.assign_values(values);
    }
  }
  for (const auto& each : net.buffers()) {
    for (float& value : std::span{each.elements.data(), static_cast<std::size_t>(each.elements.size())}) {
      value = static_cast<float>(each.name.ends_with("mean") ? random.uniform(1, drawn++) - 0.5
                                                             : 0.5 + 1.5 * random.uniform(1, drawn++));
    }
  }
  io::save_weights(net, folder + "/own.safetensors");

  const io::safetensors_file own{folder + "/own.safetensors"};
  const io::name_map names = io::torchvision_names("resnet18");
  std::vector<std::vector<float>> tensors;
  io::safetensors_writer writer;
  for (const std::string& theirs : names_of_torchvision()) {
    std::string ours = names(theirs);
    if (ours.ends_with("running_variance")) {
      ours.resize(ours.size() - std::string{"iance"}.size());  // as save_weights writes it
    }
    const io::safetensors_entry* const entry = own.find(ours);
    if (entry == nullptr) {
      throw std::runtime_error{"no weight '" + ours + "'"};
    }
    writer.add(theirs, tensors.emplace_back(own.read<float>(ours)), entry->shape);
  }
  writer.write(folder + "/weights.safetensors");

  const std::vector<std::uint8_t> encoded = photograph();
  std::ofstream{folder + "/photograph.jpg", std::ios::binary}.write(reinterpret_cast<const char*>(encoded.data()),
                                                                    static_cast<std::streamsize>(encoded.size()));
  data::jpeg_decoder decoder;
  const data::pixel_image image = decoder.decode(encoded, "photograph.jpg");
  const std::vector<std::uint8_t> pixels =
      data::resize_antialiased(image, {295, 256}, {.left = 36, .top = 16, .width = 224, .height = 224});
  gradus::image_tensor<float, gradus::nchw> batch{device, {1, 3, 224, 224}};
  const float mean[] = {0.485F, 0.456F, 0.406F};
  const float deviation[] = {0.229F, 0.224F, 0.225F};
  for (index_t i = 0; i < 224 * 224 * 3; ++i) {
    const index_t c = i % 3;
    batch(0, c, i / 3 / 224, i / 3 % 224) =
        (static_cast<float>(pixels[static_cast<std::size_t>(i)]) / 255.0F - mean[c]) / deviation[c];
  }
  const auto scores = net.forward(batch.view());
  std::FILE* const file = std::fopen((folder + "/expected.txt").c_str(), "w");
  for (index_t k = 0; k < classes; ++k) {
    std::fprintf(file, "%.9g\n", static_cast<double>(scores(0, k, 0, 0)));
  }
  std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "make FOLDER\n");
    return 2;
  }
  try {
    make(argv[1]);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
  return 0;
}
