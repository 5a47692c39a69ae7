// SPDX-License-Identifier: BSL-1.0
//
// Trains an autoencoder: 784 pixels become a code of 16 numbers, and again 784 pixels.
//
//   autoencoder [FOLDER [EPOCHS [PICTURE.svg]]]
//
// FOLDER has the IDX files of Fashion-MNIST or MNIST, unpacked: train-images-idx3-ubyte, t10k-images-idx3-ubyte.
// Without it, or with -, images are made up. The picture shows images that the network has not seen, and what it makes
// of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "field_pictures.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/gradus.hpp"
#include "gradus/models/autoencoder.hpp"
#include "gradus/nn/losses.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/optim/adam.hpp"

namespace {

namespace data = gradus::data;
namespace nn = gradus::nn;
constexpr gradus::index_t pixels = 28 * 28;

/// Images of 28 x 28 pixels in [0, 1], one after another.
std::vector<float> read_images(const std::string& path) {
  const data::idx_array file = data::read_idx(path);
  if (file.extents.size() != 3 || file.extents[1] != 28 || file.extents[2] != 28) {
    throw gradus::format_error{path, "images of 28 x 28 pixels", "other extents"};
  }
  std::vector<float> images(file.values.size());
  for (std::size_t i = 0; i < images.size(); ++i) {
    images[i] = static_cast<float>(file.values[i]) / 255;
  }
  return images;
}

/// Bright spots of random positions and widths.
std::vector<float> made_up_images(std::size_t count, std::uint64_t seed) {
  const gradus::random_stream random{seed};
  std::vector<float> images;
  for (std::size_t i = 0; i < count; ++i) {
    const double row = 6 + 16 * random.uniform(3 * i);
    const double column = 6 + 16 * random.uniform(3 * i + 1);
    const double width = 2 + 3 * random.uniform(3 * i + 2);
    for (int k = 0; k < pixels; ++k) {
      const double down = k / 28 - row;
      const double right = k % 28 - column;
      images.push_back(static_cast<float>(std::exp(-(down * down + right * right) / (2 * width * width))));
    }
  }
  return images;
}

/// The mean squared error of the mean image as a reconstruction of every image.
double error_of_mean(const std::vector<float>& images) {
  const std::size_t count = images.size() / pixels;
  double sum = 0;
  for (std::size_t k = 0; k < pixels; ++k) {
    double mean = 0;
    double square = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto pixel = static_cast<double>(images[i * pixels + k]);
      mean += pixel / static_cast<double>(count);
      square += pixel * pixel / static_cast<double>(count);
    }
    sum += square - mean * mean;
  }
  return sum / pixels;
}

/// The first images above their reconstructions.
template <class Network>
void draw(const std::string& path, Network& net, gradus::cpu& device, const std::vector<float>& images) {
  constexpr std::size_t count = 4;
  gradus::image_tensor<float, gradus::nhwc> originals{device, {count, 1, 28, 28}};
  std::copy_n(images.data(), count * pixels, originals.data());
  const auto reconstructions = nn::predict(net, originals);  // (count, 784, 1, 1)
  std::vector<std::vector<field_picture>> rows(2);
  for (std::size_t i = 0; i < count; ++i) {
    const float* const image = originals.data() + i * pixels;
    const float* const made = reconstructions.data() + i * pixels;
    rows[0].push_back({"image", 28, 28, {image, image + pixels}});
    rows[1].push_back({"from 16 numbers", 28, 28, {made, made + pixels}});
  }
  write_pictures(path, rows);
}

int run(const std::string& folder, int epochs, const std::string& picture) {
  const auto training = folder.empty() ? made_up_images(4000, 1) : read_images(folder + "/train-images-idx3-ubyte");
  const auto test = folder.empty() ? made_up_images(500, 2) : read_images(folder + "/t10k-images-idx3-ubyte");
  const auto set_of = [](const std::vector<float>& images) {  // the targets are the inputs, as vectors
    return data::in_memory(data::examples_of(std::span{images}, {1, 1, 28, 28}),
                           data::examples_of(std::span{images}, {1, pixels, 1, 1}));
  };
  const auto training_set = set_of(training);
  const auto test_set = set_of(test);

  gradus::cpu device;
  nn::network<float, gradus::nhwc> net{device, {.channels = 1, .height = 28, .width = 28}};
  const auto values = gradus::models::autoencoder(net, {.hidden = {128}, .code = 16});
  net.loss(nn::mean_squared_error{}, values.reconstruction);
  net.compile({.max_batch_size = 100, .seed = 1});
  std::printf("%s\n", net.summary().c_str());

  data::loader<float, gradus::nhwc> loader{device, training_set, {.global_batch_size = 100, .seed = 1}};
  data::loader<float, gradus::nhwc> test_loader{device, test_set, {.global_batch_size = 100, .shuffle = false}};
  gradus::train::trainer trainer{net, gradus::optim::adam{}};
  const double error_before = error_of_mean(test);
  std::printf("the mean image as a reconstruction: test error %.5f\n", error_before);
  double error = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    trainer.fit(loader, {.epochs = 1, .learning_rate = 0.001});
    error = trainer.evaluate(test_loader).loss;
    std::printf("after %2d epochs: test error %.5f\n", epoch + 1, error);
  }
  if (!picture.empty()) {
    draw(picture, net, device, test);
    std::printf("picture: %s\n", picture.c_str());
  }
  return epochs < 1 || error < 0.5 * error_before ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return gradus::close_output("autoencoder", run(argc > 1 && argv[1] != std::string{"-"} ? argv[1] : "",
                                                   argc > 2 ? std::atoi(argv[2]) : 5, argc > 3 ? argv[3] : ""));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "autoencoder: %s\nusage: autoencoder [FOLDER [EPOCHS [PICTURE.svg]]]\n",
                 gradus::printable(failure.what()).c_str());
    return 1;
  }
}
