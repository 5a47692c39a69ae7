// SPDX-License-Identifier: BSL-1.0
//
// Weights of networks on a GPU are saved and loaded, from one layout and type to another.
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/kernels/cuda.cuh"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/tensor/cuda.cuh"
#include "idx_files.hpp"

namespace {

/// A convolution, a normalization and a dense layer.
template <class Network>
void build_weighted(Network& net, unsigned seed) {
  gradus::nn::value x = net.input();
  gradus::nn::conv2d convolution;
  convolution.out_channels = 4;
  convolution.kernel = {3, 2};
  x = net.add("conv", convolution, x);
  x = net.add("norm", gradus::nn::batch_norm{}, x);
  gradus::nn::dense dense;
  dense.out_features = 5;
  x = net.add("dense", dense, x);
  net.loss(gradus::nn::softmax_cross_entropy{}, x);
  gradus::nn::compile_options options;
  options.max_batch_size = 2;
  options.seed = seed;
  net.compile(options);
}

/// All parameters, and then all buffers, in the logical order.
template <class Network>
std::vector<float> weights_of(const Network& net) {
  std::vector<float> all;
  for (const auto& each : net.parameters()) {
    const std::vector<float> values = each.copy_values();
    all.insert(all.end(), values.begin(), values.end());
  }
  for (const auto& each : net.buffers()) {
    std::vector<float> values(static_cast<std::size_t>(each.elements.size()));
    each.elements.device().copy_to_host(values.data(), each.elements.data(), values.size() * sizeof(float));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(weights_on_a_gpu)

BOOST_AUTO_TEST_CASE(weights_move_between_networks_on_a_gpu) {
  const idx_files::folder folder;
  const std::string path = (folder.path() / "w.safetensors").string();
  const gradus::nn::value_shape shape{3, 5, 4};
  gradus::cuda device;
  gradus::nn::network<float, gradus::nchw, gradus::cuda> saved{device, shape};
  build_weighted(saved, 1);
  std::vector<float> statistics(saved.buffer_values().size());
  for (std::size_t i = 0; i < statistics.size(); ++i) {
    statistics[i] = static_cast<float>(i) / 4;
  }
  device.copy_from_host(saved.buffer_values().data(), statistics.data(), statistics.size() * sizeof(float));
  gradus::nn::network<gradus::bfloat16, gradus::nhwc, gradus::cuda> other{device, shape};
  build_weighted(other, 2);
  BOOST_TEST((weights_of(other) != weights_of(saved)));
  gradus::io::save_weights(saved, path);
  BOOST_TEST(gradus::io::load_weights(other, path).complete());
  BOOST_TEST((weights_of(other) == weights_of(saved)));
}

BOOST_AUTO_TEST_SUITE_END()
