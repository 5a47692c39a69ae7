// SPDX-License-Identifier: BSL-1.0
//
// The memory that a layer asks for is enough for every smaller batch.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "gradus/conformance/layers.hpp"
#include "gradus/conformance/shaping_layers.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/elementwise.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "gradus/nn/layers/synchronized_batch_norm.hpp"
#include "gradus/nn/network/statistics_group.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::index_t;
using inputs_type = std::vector<nn::value_shape>;

/// A group without ranks: no pass runs.
class no_ranks final : public nn::statistics_group {
 public:
  [[nodiscard]] std::unique_ptr<nn::statistics_sum> make_sum() override { return nullptr; }
};

constexpr index_t largest_batch = 200;

/// Asks a layer for its memory for each batch: it never shrinks.
template <class Element, class Layout>
struct growth_check {
  gradus::cpu& device;

  template <class Options>
  void operator()(const std::string& name, const Options& options, const inputs_type& inputs) const {
    typename Options::template layer<Element, Layout, gradus::cpu> layer{options};
    static_cast<nn::layer_base&>(layer).infer(inputs);
    const nn::layer_passes<Element, gradus::cpu>& passes = layer;
    compare(name + ", training", [&](index_t batch) { return passes.memory(device, batch); });
    compare(name + ", inference", [&](index_t batch) { return passes.inference_memory(device, batch, false); });
    compare(name + ", prepared", [&](index_t batch) { return passes.inference_memory(device, batch, true); });
  }

 private:
  template <class Ask>
  void compare(const std::string& what, const Ask& ask) const {
    nn::layer_memory largest;
    for (index_t batch = 0; batch <= largest_batch; ++batch) {
      const nn::layer_memory needed = ask(batch);
      if (needed.workspace < largest.workspace || needed.state < largest.state) {
        BOOST_ERROR(what << ", " << Layout::name << ", " << device.threads() << " threads: a batch of " << batch
                         << " asks for " << needed.workspace << " and " << needed.state << " bytes, a smaller one for "
                         << largest.workspace << " and " << largest.state);
        return;
      }
      largest = needed;
    }
  }
};

template <class Element, class Layout>
void check_all_layers(int threads) {
  gradus::cpu device{{.intra_op_threads = threads}};
  const growth_check<Element, Layout> check{device};
  no_ranks group;
  for (const gradus::conformance::layer_case& each : gradus::conformance::layer_cases()) {
    std::visit([&](const auto& options) { check(each.name, options, each.inputs); }, each.options);
  }
  for (const gradus::conformance::shaping_layer_case& each : gradus::conformance::shaping_layer_cases()) {
    std::visit([&](const auto& options) { check(each.name, options, each.inputs); }, each.options);
  }
  const nn::value_shape image{4, 5, 7};
  const auto three = nn::size2d{3, 3};
  const auto gate = [](auto x, auto scale, auto shift) { return x * sigmoid(scale * x) + shift; };
  for (const nn::value_shape& shape : {image, nn::value_shape{4, 1, 1}, nn::value_shape{1, 3, 1}}) {
    check("prelu", nn::prelu{}, {shape});
    check("formula with parameters",
          nn::elementwise(gate, {nn::per_channel("scale", nn::constant(1)), nn::per_layer("shift", nn::constant(0))}),
          {shape});
  }
  check("formula", nn::elementwise([](auto a, auto b) { return a * b; }), {image, image});
  check("group norm", nn::group_norm{.groups = 2}, {image});
  check("layer norm", nn::layer_norm{}, {image});
  check("instance norm", nn::instance_norm{}, {image});
  check("synchronized batch norm", nn::synchronized_batch_norm{.group = &group}, {image});
  check("padding", nn::pad2d{}, {image});
  check("convolution with reflected edges",
        nn::conv2d{.out_channels = 3,
                   .kernel = three,
                   .padding = nn::padding::same(),
                   .padding_mode = nn::padding_mode::reflect},
        {image});
  for (const index_t channels : {3, 16, 64}) {
    for (const index_t size : {1, 7, 14}) {
      const nn::value_shape shape{channels, size, size};
      check("convolution", nn::conv2d{.out_channels = 32, .kernel = three, .padding = nn::padding::same()}, {shape});
      check("convolution of stride 2",
            nn::conv2d{.out_channels = 32, .kernel = three, .stride = {2, 2}, .padding = nn::padding::same()}, {shape});
      check("depthwise convolution",
            nn::conv2d{.out_channels = channels, .kernel = three, .padding = nn::padding::same(), .groups = channels},
            {shape});
      check("dilated convolution",
            nn::conv2d{.out_channels = 8, .kernel = three, .padding = nn::padding::same(), .dilation = {2, 2}},
            {shape});
      check("transposed convolution", nn::conv_transpose2d{.out_channels = 5, .kernel = three, .stride = {2, 2}},
            {shape});
      check("dense", nn::dense{.out_features = 100}, {shape});
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layer_memory)

BOOST_AUTO_TEST_CASE(memory_for_a_batch_is_enough_for_every_smaller_one) {
  for (const int threads : {1, 2, 7}) {
    check_all_layers<float, gradus::nchw>(threads);
    check_all_layers<float, gradus::nhwc>(threads);
  }
  check_all_layers<gradus::bfloat16, gradus::nhwc>(3);
}

BOOST_AUTO_TEST_SUITE_END()
