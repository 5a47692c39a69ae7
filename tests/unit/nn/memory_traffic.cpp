// SPDX-License-Identifier: BSL-1.0
//
// The bytes of a training step, compared with counts by hand.
#include <boost/test/unit_test.hpp>

#include <gradus/core/bfloat16.hpp>
#include <gradus/layout/layouts.hpp>
#include <gradus/models/resnet.hpp>
#include <gradus/models/unet.hpp>
#include <gradus/nn/layers.hpp>
#include <gradus/nn/losses.hpp>
#include <gradus/nn/network.hpp>
#include <gradus/nn/plan/memory_traffic.hpp>
#include <gradus/nn/plan/recompute.hpp>

#include <cstddef>
#include <string>
#include <tuple>

namespace {

namespace nn = gradus::nn;
using gradus::index_t;

/// float and bfloat16 in both layouts.
template <class Element, class Layout>
using traffic_network = nn::network<Element, Layout, gradus::cpu>;
using traffic_networks =
    std::tuple<traffic_network<float, gradus::nchw>, traffic_network<float, gradus::nhwc>,
               traffic_network<gradus::bfloat16, gradus::nchw>, traffic_network<gradus::bfloat16, gradus::nhwc>>;

constexpr index_t images_of_traffic_step = 3;

template <class Network>
constexpr std::size_t traffic_element_bytes = sizeof(typename Network::element_type);

/// Of a step, with what SGD with momentum reads and writes.
template <class Network>
nn::memory_traffic traffic_of(Network& net, nn::compile_options options) {
  const nn::memory_forecast planned = net.forecast(options);
  return nn::count_traffic(net.structure(), planned.plan, planned.layers,
                           {.examples = options.max_batch_size,
                            .element_bytes = traffic_element_bytes<Network>,
                            .target_bytes = 4 * static_cast<std::size_t>(options.max_batch_size),
                            .update_read_bytes = 12,
                            .update_written_bytes = 8});
}

/// A residual block, as in a ResNet: the activations and the sum are fused into the normalizations.
template <class Network>
void add_traffic_block(Network& net) {
  const nn::conv2d convolution{.out_channels = 4, .kernel = {3, 3}, .padding = nn::padding::same(), .bias = false};
  nn::value x = net.add("conv1", convolution, net.input());
  x = net.add("bn1", nn::batch_norm{}, x);
  const nn::value shortcut = net.add("relu1", nn::relu{}, x);
  x = net.add("conv2", convolution, shortcut);
  x = net.add("bn2", nn::batch_norm{}, x);
  x = net.add("sum", nn::add{}, {x, shortcut});
  x = net.add("relu2", nn::relu{}, x);
  x = net.add("pool", nn::max_pool2d{.kernel = {2, 2}, .stride = {2, 2}}, x);
  x = net.add("flat", nn::flatten{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, x));
}

void check_traffic_bytes(const std::string& what, const nn::byte_count& found, std::size_t read, std::size_t written) {
  BOOST_TEST(found.read == read, what << " reads " << found.read << " bytes, expected " << read);
  BOOST_TEST(found.written == written, what << " writes " << found.written << " bytes, expected " << written);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_memory_traffic)

// The numbers follow from the shapes: an input of 2 x 6 x 6, 4 channels, 3 images. A trailing e is a number of bytes of
// values, p one of bytes of parameters.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_residual_block_moves_the_bytes_of_its_definition, Network, traffic_networks) {
  gradus::cpu device{{.intra_op_threads = 1}};
  Network net{device, {.channels = 2, .height = 6, .width = 6}};
  add_traffic_block(net);
  const nn::memory_traffic step = traffic_of(net, {.max_batch_size = images_of_traffic_step});
  BOOST_TEST_REQUIRE(step.layers.size() == 10U);

  constexpr std::size_t e = traffic_element_bytes<Network>;
  constexpr std::size_t p = sizeof(float);
  constexpr std::size_t x = 2 * 36 * 3 * e;  // the input
  constexpr std::size_t a = 4 * 36 * 3 * e;  // each value of 4 channels
  constexpr std::size_t pooled = 4 * 9 * 3 * e;
  constexpr std::size_t choices = 4 * 9 * 3;  // a byte for each maximum
  constexpr std::size_t scores = 5 * 3 * e;
  constexpr std::size_t mask = 4 * 36 * 3 / 8;                                    // bits
  constexpr std::size_t w1 = 4 * 2 * 9 * p, w2 = 4 * 4 * 9 * p, w3 = 5 * 37 * p;  // weights, the last with bias
  constexpr std::size_t affine = 8 * p, running = 8 * p, saved = 16 * p;          // of a normalization
  const auto forward = [&](std::size_t i) { return step.layers[i].forward; };
  const auto backward = [&](std::size_t i) { return step.layers[i].backward; };

  check_traffic_bytes("conv1 forward", forward(0).run, x + w1, a);
  check_traffic_bytes("bn1 forward", forward(1).run, 2 * a + affine + running, a + running + saved);
  check_traffic_bytes("relu1 forward", forward(2).run, 0, 0);
  check_traffic_bytes("conv2 forward", forward(3).run, a + w2, a);
  check_traffic_bytes("bn2 forward", forward(4).run, 2 * a + a + affine + running, a + running + saved);
  check_traffic_bytes("sum forward", forward(5).run, 0, 0);
  check_traffic_bytes("relu2 forward", forward(6).run, 0, 0);
  check_traffic_bytes("pool forward", forward(7).run, a, pooled + choices);
  check_traffic_bytes("flat forward", forward(8).run, 0, 0);
  check_traffic_bytes("scores forward", forward(9).run, pooled + w3, scores);
  check_traffic_bytes("the loss", step.loss.run, scores + 4 * 3, scores);
  // The gradient of the weights, that of the bias and that of the input each read dy.
  check_traffic_bytes("scores backward", backward(9).run, 3 * scores + pooled + w3, pooled + w3);
  check_traffic_bytes("pool backward", backward(7).run, pooled + choices + a, a);  // with the values that mask
  // The gradient of the shortcut begins as that of the sum.
  check_traffic_bytes("bn2 backward", backward(4).run, 2 * a + 2 * a + affine + saved, a + affine);
  // dy twice, x, the values that mask, and the part of the gradient that is there.
  check_traffic_bytes("conv2 backward", backward(3).run, 2 * a + a + a + a + w2, a + w2);
  check_traffic_bytes("bn1 backward", backward(1).run, 2 * a + 2 * a + affine + saved, a + affine);
  check_traffic_bytes("conv1 backward", backward(0).run, a + x, w1);
  for (const std::size_t fused : {2U, 5U, 6U, 8U}) {
    check_traffic_bytes("a fused layer", backward(fused).run, 0, 0);
    check_traffic_bytes("the bound of a fused layer", step.layers[fused].total().least, 0, 0);
  }
  check_traffic_bytes("the update of conv2", step.layers[3].update.run, 12 * w2 / p, 8 * w2 / p);

  check_traffic_bytes("the bound of bn1 forward", forward(1).least, a + affine + running, a + running + saved);
  check_traffic_bytes("the bound of bn2 forward", forward(4).least, 2 * a + affine + running, a + running + saved);
  check_traffic_bytes("the bound of scores backward", backward(9).least, scores + pooled + w3, pooled + w3);
  check_traffic_bytes("the bound of pool backward", backward(7).least, pooled + choices + mask, a);
  check_traffic_bytes("the bound of bn2 backward", backward(4).least, 2 * a + affine + saved, a + affine);
  check_traffic_bytes("the bound of conv2 backward", backward(3).least, 2 * a + w2, w2);
  check_traffic_bytes("the bound of conv1 backward", backward(0).least, a + x, w1);
}

// What runs by itself passes over memory by itself.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_plan_without_fusion_moves_more, Network, traffic_networks) {
  gradus::cpu device{{.intra_op_threads = 1}};
  Network net{device, {.channels = 2, .height = 6, .width = 6}};
  add_traffic_block(net);
  const nn::memory_traffic fused = traffic_of(net, {.max_batch_size = images_of_traffic_step});
  const nn::memory_traffic apart =
      traffic_of(net, {.max_batch_size = images_of_traffic_step, .optimizations = nn::plan_optimizations::none()});
  constexpr std::size_t a = 4 * 36 * 3 * traffic_element_bytes<Network>;
  check_traffic_bytes("relu1", apart.layers[2].forward.run, a, a);
  check_traffic_bytes("the sum", apart.layers[5].forward.run, 2 * a, a);
  check_traffic_bytes("the sum backward", apart.layers[5].backward.run, 2 * a, 2 * a);  // a copy for each term
  check_traffic_bytes("relu2 backward", apart.layers[6].backward.run, 2 * a, a);
  BOOST_TEST(apart.total().run.total() > fused.total().run.total() + 8 * a);

  const nn::memory_traffic again = traffic_of(net, {.max_batch_size = images_of_traffic_step, .recompute = true});
  BOOST_TEST(again.total().run.total() > fused.total().run.total());
  BOOST_TEST(again.total().least.total() == fused.total().least.total());
}

namespace {

std::size_t parts_of_traffic(const nn::memory_traffic& step, const nn::byte_count nn::pass_bytes::*count) {
  std::size_t sum = (step.loss.*count).total();
  for (const nn::layer_bytes& each : step.layers) {
    for (const nn::pass_bytes& pass : {each.forward, each.backward, each.update}) {
      sum += (pass.*count).total();
    }
  }
  return sum;
}

template <class Network, class Build>
void check_traffic_totals(const nn::value_shape& input, const Build& build) {
  gradus::cpu device{{.intra_op_threads = 1}};
  Network net{device, input};
  build(net);
  const nn::memory_traffic one = traffic_of(net, {.max_batch_size = 8});
  const nn::memory_traffic two = traffic_of(net, {.max_batch_size = 16});
  const nn::memory_traffic three = traffic_of(net, {.max_batch_size = 24});
  BOOST_TEST(one.total().run.total() == parts_of_traffic(one, &nn::pass_bytes::run));
  BOOST_TEST(one.total().least.total() == parts_of_traffic(one, &nn::pass_bytes::least));
  // Parameters count once a step, everything else once an image.
  BOOST_TEST(three.total().run.total() - two.total().run.total() == two.total().run.total() - one.total().run.total());
  BOOST_TEST(three.total().least.total() - two.total().least.total() ==
             two.total().least.total() - one.total().least.total());
  for (std::size_t i = 0; i < one.layers.size(); ++i) {
    const nn::pass_bytes& forward = one.layers[i].forward;
    const nn::pass_bytes& backward = one.layers[i].backward;
    BOOST_TEST(forward.run.read >= forward.least.read);
    BOOST_TEST(forward.run.written >= forward.least.written);
    BOOST_TEST(backward.run.read >= backward.least.read);
    BOOST_TEST(backward.run.written >= backward.least.written);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(totals_are_the_sums_of_layers, Network, traffic_networks) {
  check_traffic_totals<Network>({.channels = 3, .height = 32, .width = 32},
                                [](auto& net) { gradus::models::cifar_resnet(net, 20, {.classes = 10}); });
  check_traffic_totals<Network>({.channels = 1, .height = 32, .width = 32}, [](auto& net) {
    net.loss(nn::softmax_cross_entropy{},
             gradus::models::unet(net, {.out_channels = 2, .base_channels = 8, .depth = 2}));
  });
}

BOOST_AUTO_TEST_SUITE_END()
