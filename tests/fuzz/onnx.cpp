// SPDX-License-Identifier: BSL-1.0
//
// The reader of ONNX models: its messages, the layers that they become, and one forward pass of those that are small.
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <cstdlib>      // std::abort
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/onnx/import.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 18U;         // of values, weights and workspace
constexpr gradus::index_t most_work = gradus::index_t{1} << 22U;  // multiply-adds

/// Compiles a network of a batch of one, and runs forward on images of ones and zeros.
template <class Network>
void run(Network& net, gradus::cpu& device, gradus::io::onnx_model& model) {
  net.compile({.max_batch_size = 1});
  model.assign_weights(net);
  gradus::tensor<float, 4, typename Network::layout_type> images{device, model.input().batch(1)};
  for (gradus::index_t i = 0; i < images.size(); ++i) {
    images.data()[i] = static_cast<float>(i % 2);
  }
  const auto scores = net.forward(images.view());
  if (gradus::image_extents{scores.extents()} != net.output_shape().batch(1)) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    auto model = gradus::io::onnx_model::from_bytes(std::string_view{reinterpret_cast<const char*>(data), size});
    static gradus::cpu device{{.intra_op_threads = 1}};
    gradus::nn::network<float> net{device, model.input()};
    (void)model.add_to(net, net.input());
    if (model.input().size() < 1000 && net.layers() < 200 && net.multiply_adds() < most_work &&
        net.forecast({.max_batch_size = 1}).total() < most_bytes) {
      run(net, device, model);
    }
  } catch (const gradus::error&) {
  }
  return 0;
}
