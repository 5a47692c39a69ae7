// SPDX-License-Identifier: BSL-1.0
//
// Weights of a network on a GPU are saved and loaded as those of one on the CPU.
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

BOOST_AUTO_TEST_CASE(weights_move_between_a_gpu_and_the_cpu) {
  const idx_files::folder folder;
  const std::string path = (folder.path() / "w.safetensors").string();
  const gradus::nn::value_shape shape{3, 5, 4};
  gradus::cpu host;
  gradus::nn::network<float, gradus::nchw> on_cpu{host, shape};
  build_weighted(on_cpu, 1);
  for (std::size_t i = 0; i < on_cpu.buffer_values().size(); ++i) {
    on_cpu.buffer_values()[i] = static_cast<float>(i) / 4;
  }
  gradus::cuda device;
  gradus::nn::network<gradus::bfloat16, gradus::nhwc, gradus::cuda> on_gpu{device, shape};
  build_weighted(on_gpu, 2);
  BOOST_TEST((weights_of(on_gpu) != weights_of(on_cpu)));
  gradus::io::save_weights(on_cpu, path);
  BOOST_TEST(gradus::io::load_weights(on_gpu, path).complete());
  BOOST_TEST((weights_of(on_gpu) == weights_of(on_cpu)));

  gradus::nn::network<float, gradus::nchw> again{host, shape};
  build_weighted(again, 3);
  gradus::io::save_weights(on_gpu, path);
  (void)gradus::io::load_weights(again, path);
  BOOST_TEST((weights_of(again) == weights_of(on_cpu)));
}

BOOST_AUTO_TEST_SUITE_END()
