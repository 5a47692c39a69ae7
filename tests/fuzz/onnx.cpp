// SPDX-License-Identifier: BSL-1.0
//
// The reader of ONNX models: its messages, and the layers that they become.
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t
#include <string_view>  // std::string_view

#include "gradus/core/error.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/io/onnx_import.hpp"
#include "gradus/nn/network.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    auto model = gradus::io::onnx_model::from_bytes(std::string_view{reinterpret_cast<const char*>(data), size});
    static gradus::cpu device;
    gradus::nn::network<float> net{device, model.input()};
    (void)model.add_to(net, net.input());
    if (model.input().size() < 1000 && net.describe().size() < 4000) {
      net.compile({.max_batch_size = 1});
      model.assign_weights(net);
    }
  } catch (const gradus::error&) {
  }
  return 0;
}
