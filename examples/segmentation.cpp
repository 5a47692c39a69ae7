// SPDX-License-Identifier: BSL-1.0
//
// A U-Net finds discs and rings in noisy fields: a class for each pixel.
//
//   segmentation [PICTURE.svg [EXAMPLES]]
//
// The picture shows fields that the network has not seen, its prediction and the truth.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "field_pictures.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/random.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/models/unet.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/train/metrics.hpp"
#include "gradus/train/progress.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;

constexpr int side = 48;  // pixels
constexpr int classes = 3;

/// A data set whose examples are computed when they are read: noise with two discs (class 1) and two rings (class 2).
class fields {
 public:
  fields(index_t examples, std::uint64_t seed) : examples_{examples}, seed_{seed} {}

  [[nodiscard]] index_t size() const { return examples_; }
  [[nodiscard]] gradus::image_extents example() const { return {1, 1, side, side}; }
  [[nodiscard]] gradus::image_extents label_map() const { return {1, 1, side, side}; }
  [[nodiscard]] int classes() const { return ::classes; }
  [[nodiscard]] std::uint64_t hash() const { return seed_ + static_cast<std::uint64_t>(examples_); }

  template <class Element>
  void read(index_t i, Element* pixels) const {
    const gradus::random_stream noise{seed_, "noise " + std::to_string(i)};
    for_each_pixel(i, [&](int pixel, std::int32_t label) {
      const double value = (label == 0 ? 0.0 : 1.0) + 0.7 * noise.normal(static_cast<std::uint64_t>(pixel));
      pixels[pixel] = static_cast<Element>(value);
    });
  }
  void read_labels(index_t i, std::int32_t* labels) const {
    for_each_pixel(i, [&](int pixel, std::int32_t label) { labels[pixel] = label; });
  }

 private:
  template <class Body>
  void for_each_pixel(index_t i, const Body& body) const {
    const gradus::random_stream random{seed_, "shapes " + std::to_string(i)};
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        std::int32_t label = 0;
        for (std::uint64_t shape = 0; shape < 4; ++shape) {
          const double radius = 5 + 5 * random.uniform(3 * shape);
          const double distance =
              std::hypot(x - side * random.uniform(3 * shape + 1), y - side * random.uniform(3 * shape + 2));
          if (distance <= radius && (shape < 2 || distance >= 0.6 * radius)) {
            label = shape < 2 ? 1 : 2;
          }
        }
        body(y * side + x, label);
      }
    }
  }

  index_t examples_;
  std::uint64_t seed_;
};

/// The picture of three examples.
template <class Network>
void draw(const std::string& path, Network& net, gradus::cpu& device, const fields& set) {
  constexpr index_t examples = 3;
  constexpr auto pixels = static_cast<std::size_t>(side * side);
  gradus::image_tensor<float, gradus::nhwc> images{device, {examples, 1, side, side}};
  std::vector<std::int32_t> labels(examples * pixels);
  for (index_t i = 0; i < examples; ++i) {  // one channel: pixels are row after row
    set.read(i, images.data() + static_cast<std::size_t>(i) * pixels);
    set.read_labels(i, labels.data() + static_cast<std::size_t>(i) * pixels);
  }
  const std::vector<std::int32_t> predicted = nn::predicted_labels(nn::predict(net, images));
  const auto picture = [&](const char* title, std::size_t example, const auto& value) {
    field_picture result{title, side, side, {}};
    for (std::size_t pixel = example * pixels; pixel < (example + 1) * pixels; ++pixel) {
      result.values.push_back(value(pixel));
    }
    return result;
  };
  std::vector<std::vector<field_picture>> rows;
  for (std::size_t i = 0; i < examples; ++i) {
    rows.push_back({picture("field", i, [&](std::size_t k) { return 0.25F + 0.35F * images.data()[k]; }),
                    picture("prediction", i, [&](std::size_t k) { return 0.5F * static_cast<float>(predicted[k]); }),
                    picture("truth", i, [&](std::size_t k) { return 0.5F * static_cast<float>(labels[k]); })});
  }
  write_pictures(path, rows);
}

int run(const std::string& picture, index_t examples) {
  gradus::cpu device;
  const fields training{examples, 1};
  const fields test{examples / 4, 2};

  nn::network<float, gradus::nhwc> net{device, {.channels = 1, .height = side, .width = side}};
  const nn::value scores = gradus::models::unet(net, {.out_channels = classes, .base_channels = 8, .depth = 3});
  // Most pixels are background: the classes of the others weigh more.
  net.loss(nn::softmax_cross_entropy{.class_weights = {1, 2, 2}}, scores);
  net.compile({.max_batch_size = 16, .seed = 1});

  gradus::data::loader<float, gradus::nhwc> loader{device, training, {.global_batch_size = 16, .seed = 2}};
  gradus::data::loader<float, gradus::nhwc> test_loader{device, test, {.global_batch_size = 16, .shuffle = false}};
  gradus::train::trainer trainer{net, gradus::optim::adam{}};
  trainer.fit(loader, {.epochs = 4, .learning_rate = 0.003}, gradus::train::progress{});

  const auto [report, overlaps] = trainer.evaluate(test_loader, gradus::metrics::intersection_over_union{});
  std::printf("pixels that are right: %.4f, intersection over union: background %.2f, discs %.2f, rings %.2f\n",
              report.accuracy, overlaps.per_class[0], overlaps.per_class[1], overlaps.per_class[2]);
  if (!picture.empty()) {
    draw(picture, net, device, test);
    std::printf("picture: %s\n", picture.c_str());
  }
  return gradus::close_output("segmentation", report.accuracy > 0.9 ? 0 : 1);
}

}  // namespace

int main(int arguments, char** argument) {
  try {
    return run(arguments > 1 ? argument[1] : "", arguments > 2 ? std::atoll(argument[2]) : 512);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "segmentation: %s\n", gradus::printable(failure.what()).c_str());
    return 1;
  }
}
