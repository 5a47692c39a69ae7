// SPDX-License-Identifier: BSL-1.0
//
// Reads ONNX files as networks in both layouts and compares their scores with those beside the files:
//
//   read_models FOLDER             of all NAME.onnx with NAME.input.npy and NAME.output.npy
//   read_models --results FOLDER   prints for each NAME the distance, or "refused" and why
//   read_models --one FOLDER       as --results, each in one layout only: NAME_script in the order (N, C, H, W)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/data/npy_array.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/onnx/import.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

using gradus::index_t;

constexpr double tolerance = 1e-4;  // of the largest score

/// Whether scores have the extents of a file, whose axes behind the last one are of extent 1; of two axes, (N, C).
template <class Scores>
[[nodiscard]] bool same_extents(const Scores& scores, std::span<const index_t> expected) {
  if (expected.size() == 2) {
    return scores.extent(0) == expected[0] && scores.size() == expected[0] * expected[1];
  }
  for (int k = 0; k < 4; ++k) {
    const auto at = static_cast<std::size_t>(k);
    if (scores.extent(k) != (at < expected.size() ? expected[at] : 1)) {
      return false;
    }
  }
  return expected.size() > 1 && expected.size() <= 4;
}

/// The distance of two numbers; 0 for equal infinities and two NaNs.
[[nodiscard]] double apart(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) ? 0 : std::abs(a - b);
}

/// The distance of the network's scores from the expected ones, over the largest of them.
template <class Layout>
[[nodiscard]] double distance(const std::filesystem::path& path, const gradus::data::npy_array& images,
                              const gradus::data::npy_array& expected) {
  gradus::cpu device;
  const index_t batch = images.extents()[0];
  std::array<index_t, 4> extents{};  // of the images, for models that leave them open
  std::copy_n(images.extents().begin(), std::min<std::size_t>(images.extents().size(), 4), extents.begin());
  auto net = gradus::io::load_onnx<float, Layout>(device, path, {.max_batch_size = batch},
                                                  {extents[1], extents[2], extents[3]});
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
  double worst = same_extents(scores, expected.extents()) ? 0 : INFINITY;
  k = 0;
  for (index_t n = 0; n < batch && worst == worst && worst < INFINITY; ++n) {
    for (index_t c = 0; c < scores.extent(1); ++c) {
      for (index_t h = 0; h < scores.extent(2); ++h) {
        for (index_t w = 0; w < scores.extent(3); ++w) {
          const auto number = static_cast<double>(numbers[k++]);
          largest = std::isfinite(number) ? std::max(largest, std::abs(number)) : largest;
          const double each = apart(static_cast<double>(scores(n, c, h, w)), number);
          worst = each <= worst ? worst : each;
        }
      }
    }
  }
  return worst / largest;
}

/// The larger distance of both layouts, or that of one.
[[nodiscard]] double distance_of(const std::filesystem::path& path, bool one_layout = false) {
  std::filesystem::path images = path;
  std::filesystem::path expected = path;
  const gradus::data::npy_array from{images.replace_extension(".input.npy").string()};
  const gradus::data::npy_array to{expected.replace_extension(".output.npy").string()};
  const bool first = path.stem().string().ends_with("_script");
  const double a = one_layout && !first ? 0 : distance<gradus::nchw>(path, from, to);
  const double b = one_layout && first ? 0 : distance<gradus::nhwc>(path, from, to);
  return a >= b ? a : b;
}

/// Prints a line for each model. A refusal is an error of gradus; any other ends the program.
void print_results(const std::filesystem::path& folder, bool one_layout) {
  for (const auto& each : std::filesystem::directory_iterator{folder}) {
    if (each.path().extension() != ".onnx") {
      continue;
    }
    std::cout << each.path().stem().string() << '\t';
    try {
      std::cout << distance_of(each.path(), one_layout) << std::endl;
    } catch (const gradus::error& failure) {
      std::string what = failure.what();
      std::replace(what.begin(), what.end(), '\n', ' ');
      std::cout << "refused\t" << what << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  if (mode == "--results" || mode == "--one") {
    print_results(argv[2], mode == "--one");
    return 0;
  }
  int models = 0;
  int wrong = 0;
  double worst = 0;
  for (const auto& each : std::filesystem::directory_iterator{argc > 1 ? argv[1] : "."}) {
    if (each.path().extension() != ".onnx") {
      continue;
    }
    ++models;
    try {
      const double apart = distance_of(each.path());
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
