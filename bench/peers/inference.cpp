// SPDX-License-Identifier: BSL-1.0
//
// Forward passes of ResNet-50 for inference.py, which compares them with PyTorch and ONNX Runtime. The program reads
// commands from its standard input and answers each with one line, so that its passes alternate with those of others.
//
//   bench_peers_inference LAYOUT BATCH THREADS WEIGHTS IMAGES     LAYOUT: nchw, nhwc
//
//   scores     prints the scores of the first image
//   run N      runs N passes and prints the seconds of each
//
// WEIGHTS has the parameters and running statistics of each layer in the order of the layers, and IMAGES the images
// (BATCH, 3, 224, 224), as float32 in the order (o, i, r, s).
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gradus/models/resnet.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;
using seconds = std::chrono::duration<double>;
using std::chrono::steady_clock;

std::vector<float> read_floats(std::ifstream& file, std::size_t count) {
  std::vector<float> values(count);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(float)));
  if (!file) {
    throw std::runtime_error{"a file is too short"};
  }
  return values;
}

template <class Network>
void load(Network& net, const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  for (std::size_t layer = 0; layer < net.layers(); ++layer) {
    const nn::parameter_range range = net.parameters_of(layer);
    for (const auto& parameter : net.parameters().subspan(range.first, range.count)) {
      parameter.assign_values(read_floats(file, static_cast<std::size_t>(parameter.size())));
    }
    const auto& node = net.structure().nodes()[layer];
    for (std::size_t k = 0; k < node.buffers.size(); ++k) {
      const auto elements = net.buffers()[node.first_buffer + k].elements;
      const std::vector<float> values = read_floats(file, static_cast<std::size_t>(elements.size()));
      std::copy(values.begin(), values.end(), elements.data());
    }
  }
  net.update_weights();
}

template <class Layout>
void serve(index_t batch, int threads, const std::string& weights, const std::string& images_path) {
  gradus::cpu device{{.intra_op_threads = threads}};
  nn::network<float, Layout> net{device, {.channels = 3, .height = 224, .width = 224}};
  gradus::models::resnet(net, 50, {.classes = 1000});
  net.compile_for_inference({.max_batch_size = batch});
  load(net, weights);

  std::ifstream file{images_path, std::ios::binary};
  const gradus::extents<4> shape{batch, 3, 224, 224};
  const std::vector<float> pixels = read_floats(file, static_cast<std::size_t>(shape.size()));
  gradus::tensor<float, 4, Layout> images{device, shape};
  for (index_t i = 0; i < shape.size(); ++i) {
    const index_t n = i / (3 * 224 * 224);
    const index_t c = i / (224 * 224) % 3;
    images(n, c, i / 224 % 224, i % 224) = pixels[static_cast<std::size_t>(i)];
  }

  std::string command;
  while (std::cin >> command) {
    if (command == "scores") {
      const auto scores = net.forward(images.view());
      for (index_t c = 0; c < 1000; ++c) {
        std::cout << scores.data()[c] << ' ';
      }
      std::cout << std::endl;
    } else if (command == "run") {
      int count = 0;
      std::cin >> count;
      for (int k = 0; k < count; ++k) {
        const auto begin = steady_clock::now();
        net.forward(images.view());
        std::cout << seconds{steady_clock::now() - begin}.count() << ' ';
      }
      std::cout << std::endl;
    } else {
      throw std::runtime_error{"unknown command: " + command};
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) {
    std::cerr << "usage: bench_peers_inference LAYOUT BATCH THREADS WEIGHTS IMAGES\n";
    return 2;
  }
  const std::string layout = argv[1];
  const index_t batch = std::atoi(argv[2]);
  const int threads = std::atoi(argv[3]);
  layout == "nhwc" ? serve<gradus::nhwc>(batch, threads, argv[4], argv[5])
                   : serve<gradus::nchw>(batch, threads, argv[4], argv[5]);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
