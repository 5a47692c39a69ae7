// SPDX-License-Identifier: BSL-1.0
//
// Classifies JPEG photographs with trained weights: the most probable classes of each.
//
//   predict --model resnet50 --weights resnet50.safetensors --labels names.txt photograph.jpg
#include <getopt.h>  // getopt_long

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/core/mapped_file.hpp"
#include "gradus/core/output.hpp"
#include "gradus/core/text.hpp"
#include "gradus/data/jpeg.hpp"
#include "gradus/data/resize.hpp"
#include "gradus/io/torchvision.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/models/alexnet.hpp"
#include "gradus/models/mobilenet_v2.hpp"
#include "gradus/models/resnet.hpp"
#include "gradus/models/vgg.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/nn/predict.hpp"
#include "gradus/tensor/activations.hpp"

namespace {

using gradus::index_t;
using network = gradus::nn::network<float, gradus::nhwc>;

constexpr std::string_view models[] = {"resnet18", "resnet34", "resnet50",    "resnet101", "resnet152",
                                       "vgg11",    "vgg16",    "vgg19",       "vgg11_bn",  "vgg16_bn",
                                       "vgg19_bn", "alexnet",  "mobilenet_v2"};
constexpr index_t side = 224;             // rows and columns that the network sees
constexpr index_t resized_shorter = 256;  // of the photograph that they are the middle of

struct options {
  std::string model;
  std::string weights;
  std::string labels;
  std::vector<std::string> images;
  int top = 5;
  int threads = 0;
};

/// Adds the layers of a model of torchvision.
void build(network& net, std::string_view model, index_t classes) {
  namespace zoo = gradus::models;
  const auto number_behind = [&](std::size_t letters) { return std::atoi(std::string{model.substr(letters)}.c_str()); };
  if (model.starts_with("resnet")) {
    zoo::resnet(net, number_behind(6), {.classes = classes, .symmetric_pooling = true});
  } else if (model.starts_with("vgg")) {
    zoo::vgg(net, number_behind(3), {.classes = classes, .batch_norm = model.ends_with("_bn")});
  } else if (model == "alexnet") {
    zoo::alexnet(net, {.classes = classes, .first_padding = 2, .fourth_channels = 256});
  } else {
    zoo::mobilenet_v2(net, {.classes = classes});
  }
}

/// The rows of the last layer's weights.
index_t classes_of(const options& chosen, const gradus::io::name_map& names) {
  const gradus::io::safetensors_file file{chosen.weights};
  for (const gradus::io::safetensors_entry& each : file.tensors()) {
    if (names(each.name) == "scores.weight" && each.shape.size() == 2 && each.shape[0] > 0) {
      return each.shape[0];
    }
  }
  throw std::runtime_error{"'" + chosen.weights + "': expected the weights of " + chosen.model +
                           ", got a file without those of its last layer: is it another model's?"};
}

std::vector<std::string> read_labels(const std::string& path, index_t classes) {
  errno = 0;
  std::ifstream file{path};
  std::vector<std::string> labels;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    labels.push_back(line);
  }
  if (!file.eof()) {
    throw std::runtime_error{"--labels: '" + path + "' cannot be read: " + std::strerror(errno)};
  }
  if (static_cast<index_t>(labels.size()) != classes) {
    throw std::runtime_error{"--labels: expected " + std::to_string(classes) +
                             " lines, one for each class of the weights, got " + std::to_string(labels.size()) +
                             " in '" + path + "'"};
  }
  return labels;
}

/// Writes the middle of a photograph as torchvision prepares it: (byte / 255 - mean) / deviation.
void prepare(gradus::data::jpeg_decoder& decoder, const std::string& path,
             gradus::image_tensor<float, gradus::nhwc>& to) {
  namespace data = gradus::data;
  constexpr double mean[] = {0.485, 0.456, 0.406};
  constexpr double deviation[] = {0.229, 0.224, 0.225};
  const gradus::mapped_file file{path};
  const data::pixel_image image = decoder.decode(file.bytes(), path);
  const data::image_size size = data::with_shorter_side({image.width, image.height}, resized_shorter);
  const std::vector<std::uint8_t> pixels = data::resize_antialiased(image, size, data::middle_crop(size, side, side));
  auto byte = pixels.begin();
  for (index_t h = 0; h < side; ++h) {
    for (index_t w = 0; w < side; ++w) {
      for (index_t c = 0; c < 3; ++c) {
        to(0, c, h, w) = static_cast<float>((*byte++ / 255.0 - mean[c]) / deviation[c]);
      }
    }
  }
}

/// Prints the most probable classes of an example: probability, number and name.
void print_best(const gradus::image_tensor<float, gradus::nhwc>& probabilities, int top,
                const std::vector<std::string>& labels) {
  std::vector<index_t> classes(static_cast<std::size_t>(probabilities.extent(1)));
  std::iota(classes.begin(), classes.end(), index_t{0});
  const index_t shown = std::min<index_t>(top, probabilities.extent(1));
  std::partial_sort(classes.begin(), classes.begin() + shown, classes.end(), [&](index_t a, index_t b) {
    return std::pair{-probabilities(0, a, 0, 0), a} < std::pair{-probabilities(0, b, 0, 0), b};
  });
  for (index_t k = 0; k < shown; ++k) {
    const index_t number = classes[static_cast<std::size_t>(k)];
    std::printf("  %.5f  %4td%s%s\n", static_cast<double>(probabilities(0, number, 0, 0)), number,
                labels.empty() ? "" : "  ", labels.empty() ? "" : labels[static_cast<std::size_t>(number)].c_str());
  }
}

/// Returns the exit status: 1 if one of the images cannot be read.
int predict(const options& chosen) {
  const gradus::io::name_map names = gradus::io::torchvision_names(chosen.model);
  const index_t classes = classes_of(chosen, names);
  const std::vector<std::string> labels =
      chosen.labels.empty() ? std::vector<std::string>{} : read_labels(chosen.labels, classes);

  gradus::cpu device{{.intra_op_threads = chosen.threads > 0 ? chosen.threads : gradus::available_processors()}};
  network net{device, {.channels = 3, .height = side, .width = side}};
  build(net, chosen.model, classes);
  net.compile_for_inference({.max_batch_size = 1});
  // A file of gradus has the names of the network, which the map leaves as they are.
  const auto loaded = gradus::io::load_weights(net, chosen.weights, {.strict = false, .rename = names});
  if (!loaded.complete()) {
    constexpr std::size_t most = 400;  // of a text that may name hundreds of weights
    const std::string differences = loaded.differences();
    throw std::runtime_error{"'" + chosen.weights + "': " + differences.substr(0, most) +
                             (differences.size() > most ? "..." : "") + "\nThese weights are not those of " +
                             chosen.model + "."};
  }

  int status = 0;
  gradus::data::jpeg_decoder decoder;
  gradus::image_tensor<float, gradus::nhwc> image{device, {1, 3, side, side}};
  for (const std::string& path : chosen.images) {
    try {
      prepare(decoder, path, image);
    } catch (const gradus::format_error& failure) {
      std::fprintf(stderr, "predict: %s\n", std::string{failure.message()}.c_str());
      status = 1;
      continue;
    }
    std::printf("%s\n", path.c_str());
    print_best(evaluate(gradus::softmax<gradus::axis::c>(gradus::nn::predict(net, image))), chosen.top, labels);
  }
  return status;
}

[[noreturn]] void refuse(const std::string& name, const std::string& expected, const std::string& value) {
  throw std::invalid_argument{"--" + name + ": expected " + expected + ", got " + value};
}

std::string all_models() {
  std::string text;
  for (const std::string_view each : models) {
    text += (text.empty() ? "" : each == models[std::size(models) - 1] ? " or " : ", ") + std::string{each};
  }
  return text;
}

/// Reads the whole text as a number from `least` to 4096.
int read(const char* name, const char* text, long least) {
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || number < least || number > 4096) {
    refuse(name, "a whole number from " + std::to_string(least) + " to 4096", "'" + std::string{text} + "'");
  }
  return static_cast<int>(number);
}

/// Fills `chosen`; returns false when the help was asked for.
/// @throws std::invalid_argument that says which option is wrong, what it expects and what came
bool read_options(int argc, char** argv, options& chosen) {
  constexpr option known[] = {{"model", required_argument, nullptr, 'm'},
                              {"weights", required_argument, nullptr, 'w'},
                              {"labels", required_argument, nullptr, 'l'},
                              {"top", required_argument, nullptr, 'n'},
                              {"threads", required_argument, nullptr, 't'},
                              {"help", no_argument, nullptr, 'h'},
                              {}};
  opterr = 0;  // the messages are ours
  for (;;) {
    const char* const given = argv[optind];
    switch (getopt_long(argc, argv, "-:", known, nullptr)) {
      case -1:
        chosen.images.insert(chosen.images.end(), argv + optind, argv + argc);  // behind "--"
        if (chosen.model.empty()) {
          refuse("model", all_models(), "none");
        }
        if (chosen.weights.empty()) {
          refuse("weights", "a .safetensors file", "none");
        }
        if (chosen.images.empty()) {
          throw std::invalid_argument{"expected JPEG files behind the options, got none"};
        }
        return true;
      case 1:  // no option
        chosen.images.emplace_back(optarg);
        break;
      case 'm':
        chosen.model = optarg;
        if (std::find(std::begin(models), std::end(models), chosen.model) == std::end(models)) {
          refuse("model", all_models(), "'" + chosen.model + "'");
        }
        break;
      case 'w':
        chosen.weights = optarg;
        break;
      case 'l':
        chosen.labels = optarg;
        break;
      case 'n':
        chosen.top = read("top", optarg, 1);
        break;
      case 't':
        chosen.threads = read("threads", optarg, 0);
        break;
      case 'h':
        return false;
      case ':':
        throw std::invalid_argument{std::string{given} + ": expected a value, got none"};
      default:
        throw std::invalid_argument{"'" + std::string{given} + "' is not an option"};
    }
  }
}

constexpr const char* help = R"(Classifies JPEG photographs with trained weights.

  predict --model NAME --weights FILE [--labels FILE] [--top N] [--threads N] IMAGE.jpg...

  --model NAME      %s
  --weights FILE    .safetensors with the names of torchvision's model, or of io::save_weights
  --labels FILE     a text file with the name of each class, one a line
  --top N           classes that are shown (%d)
  --threads N       that compute; 0: all processors (%d)
  --help            this text

Each image is resized to 256 pixels on the shorter side; the network sees the middle 224 x 224.
)";

int run(int argc, char** argv) {
  options chosen;
  try {
    if (!read_options(argc, argv, chosen)) {
      std::printf(help, all_models().c_str(), chosen.top, chosen.threads);
      return 0;
    }
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "predict: %s\nTry --help.\n", gradus::printable(failure.what()).c_str());
    return 2;
  }
  try {
    return predict(chosen);
  } catch (const gradus::error& failure) {
    std::fprintf(stderr, "predict: %s\n", std::string{failure.message()}.c_str());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "predict: %s\n", gradus::printable(failure.what()).c_str());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  return gradus::close_output("predict", run(argc, argv));
}
