// SPDX-License-Identifier: BSL-1.0
//
// Reads ONNX files as networks in both layouts and compares their scores with those beside the files:
//
//   read_models FOLDER   of all NAME.onnx with NAME.input.npy and NAME.output.npy
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "gradus/data/npy_array.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/io/onnx_import.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

using gradus::index_t;

constexpr double tolerance = 1e-4;  // of the largest score

/// The distance of the network's scores from the expected ones, over the largest of them.
template <class Layout>
[[nodiscard]] double distance(const std::filesystem::path& path, const gradus::data::npy_array& images,
                              const gradus::data::npy_array& expected) {
  gradus::cpu device;
  const index_t batch = images.extents()[0];
  auto net = gradus::io::load_onnx<float, Layout>(device, path, {.max_batch_size = batch});
  const gradus::nn::value_shape in = net.shape(net.input());
  gradus::tensor<float, 4, Layout> batch_of_images{device, in.batch(batch)};
  const std::span<const float> pixels = images.elements<float>();
  const std::span<const float> numbers = expected.elements<float>();
  std::size_t k = 0;
  for (index_t n = 0; n < batch; ++n) {
    for (index_t c = 0; c < in.channels; ++c) {
      for (index_t h = 0; h < in.height; ++h) {
        for (index_t w = 0; w < in.width; ++w) {
          batch_of_images(n, c, h, w) = pixels[k++];
        }
      }
    }
  }
  const auto scores = net.forward(batch_of_images.view());
  double largest = 1e-30;
  double worst = static_cast<std::size_t>(scores.size()) == numbers.size() ? 0 : INFINITY;
  k = 0;
  for (index_t n = 0; n < batch && worst == worst && worst < INFINITY; ++n) {
    for (index_t c = 0; c < scores.extent(1); ++c) {
      for (index_t h = 0; h < scores.extent(2); ++h) {
        for (index_t w = 0; w < scores.extent(3); ++w) {
          const auto number = static_cast<double>(numbers[k++]);
          largest = std::max(largest, std::abs(number));
          const double apart = std::abs(static_cast<double>(scores(n, c, h, w)) - number);
          worst = apart <= worst ? worst : apart;
        }
      }
    }
  }
  return worst / largest;
}

}  // namespace

int main(int argc, char** argv) {
  int models = 0;
  int wrong = 0;
  double worst = 0;
  for (const auto& each : std::filesystem::directory_iterator{argc > 1 ? argv[1] : "."}) {
    if (each.path().extension() != ".onnx") {
      continue;
    }
    ++models;
    try {
      std::filesystem::path images = each.path();
      std::filesystem::path expected = each.path();
      const gradus::data::npy_array from{images.replace_extension(".input.npy").string()};
      const gradus::data::npy_array to{expected.replace_extension(".output.npy").string()};
      const double apart =
          std::max(distance<gradus::nchw>(each.path(), from, to), distance<gradus::nhwc>(each.path(), from, to));
      worst = std::max(worst, apart);
      if (!(apart <= tolerance)) {
        ++wrong;
        std::cerr << each.path().filename().string() << ": " << apart << '\n';
      }
    } catch (const std::exception& failure) {
      ++wrong;
      std::cerr << each.path().filename().string() << ": " << failure.what() << '\n';
    }
  }
  std::cout << models << " models read, largest relative distance " << worst << '\n';
  return models == 0 || wrong > 0 ? 1 : 0;
}
