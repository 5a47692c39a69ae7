// SPDX-License-Identifier: BSL-1.0
//
// What the messages of a network advise: names that are meant, options to set, and what is frozen in the summary.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/nn/layers.hpp"
#include "gradus/nn/layers/activations.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/crop2d.hpp"
#include "gradus/nn/layers/group_norm.hpp"
#include "gradus/nn/layers/multiply.hpp"
#include "gradus/nn/loss.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network.hpp"
#include "gradus/tensor/tensor.hpp"

namespace {

namespace nn = gradus::nn;
using hinting_network = nn::network<float, gradus::nhwc>;

/// The action throws an error whose message has all parts.
template <class Action>
void expect_advice(const Action& action, std::initializer_list<std::string_view> parts) {
  std::string message = "no error";
  try {
    action();
  } catch (const gradus::error& failure) {
    message = failure.what();
  }
  for (const std::string_view part : parts) {
    BOOST_TEST(message.find(part) != std::string::npos, "'" << part << "' is not in: " << message);
  }
}

/// An encoder of a convolution and a ReLU, and a head of 3 classes, on images of 1 x 6 x 6.
hinting_network make_encoder_and_head(gradus::cpu& device) {
  hinting_network net{device, {1, 6, 6}};
  nn::value x = net.add("encoder.conv1", nn::conv2d{.out_channels = 2, .kernel = {3, 3}}, net.input());
  x = net.add("encoder.relu1", nn::relu{}, x);
  net.loss(nn::softmax_cross_entropy{}, net.add("head", nn::dense{.out_features = 3}, x));
  return net;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(hints)

BOOST_AUTO_TEST_CASE(names_of_the_other_kind_and_near_names) {
  gradus::cpu device{{.intra_op_threads = 1}};
  hinting_network net = make_encoder_and_head(device);
  expect_advice(
      [&] { net.freeze("encoder.conv1.weight"); },
      {"a pattern of layers, which are encoder.conv1, encoder.relu1, head, got 'encoder.conv1.weight'",
       "Hint: 'encoder.conv1.weight' is a parameter, and freeze takes whole layers: is it 'encoder.conv1'? ["});
  expect_advice([&] { net.freeze("*.bias"); },
                {"'encoder.conv1.bias' is a parameter, and freeze takes whole layers: is it 'encoder.conv1'?"});
  expect_advice([&] { net.freeze("encoder"); }, {"Hint: is it 'encoder.*'? ["});
  expect_advice([&] { net.freeze("haed"); }, {"Hint: is it 'head'? ["});
  expect_advice([&] { net.freeze("decoder.up.*"); }, {"Hint: * stands for any characters"});
  expect_advice([&] { net.group("head", {.weight_decay = false}); },
                {"a pattern of parameters, which are encoder.conv1.weight, encoder.conv1.bias, head.weight, head.bias",
                 "Hint: 'head' is a layer; its parameters are 'head.*'. ["});
  expect_advice([&] { net.group("encoder.relu1", {.weight_decay = false}); },
                {"Hint: 'encoder.relu1' is a layer without parameters. ["});
  expect_advice([&] { net.group("head.wieght", {.weight_decay = false}); }, {"Hint: is it 'head.weight'? ["});
  expect_advice([&] { net.group("norm*", {.weight_decay = false}); }, {"Hint: a parameter is named \"layer.weight\""});
  net.compile({.max_batch_size = 2});
  expect_advice(
      [&] { (void)net.find_parameter("head.biases"); },
      {"expected one of encoder.conv1.weight, encoder.conv1.bias, head.weight, head.bias", "is it 'head.bias'?"});
  expect_advice([&] { (void)net.find_parameter("head"); }, {"'head' is a layer; its parameters are 'head.*'"});
}

BOOST_AUTO_TEST_CASE(the_names_of_a_large_network_are_the_nearest) {
  gradus::cpu device{{.intra_op_threads = 1}};
  hinting_network net{device, {1, 6, 6}};
  nn::value x = net.input();
  for (int i = 0; i < 40; ++i) {
    x = net.add("stage" + std::to_string(i / 10) + ".relu" + std::to_string(i % 10), nn::relu{}, x);
  }
  expect_advice([&] { net.freeze("stage2.rleu5"); },
                {"stage2.relu4, stage2.relu5, ", "... (40 in all), got 'stage2.rleu5'", "is it 'stage2.relu5'?"});
}

BOOST_AUTO_TEST_CASE(the_summary_shows_what_is_frozen) {
  gradus::cpu device{{.intra_op_threads = 1}};
  hinting_network net = make_encoder_and_head(device);
  const auto lines = [&] {
    const std::string text = net.summary();
    std::vector<std::string> result;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      result.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return result;
  };
  BOOST_TEST(net.summary().find("frozen") == std::string::npos);
  net.freeze("encoder.conv1");
  net.freeze("encoder.relu1", {.evaluates = true});
  const std::vector<std::string> building = lines();
  BOOST_TEST(building[3].ends_with("  frozen"), building[3]);
  BOOST_TEST(building[4].ends_with("  frozen, evaluates"), building[4]);
  BOOST_TEST(building[5].find("frozen") == std::string::npos, building[5]);
  BOOST_TEST(building.back() == "parameters: 99 trained, 20 frozen");
  net.compile({.max_batch_size = 2});
  const std::vector<std::string> compiled = lines();
  BOOST_TEST(compiled[3].ends_with("B  frozen"), compiled[3]);
  BOOST_TEST(compiled[compiled.size() - 2] == "parameters: 99 trained, 20 frozen");
}

BOOST_AUTO_TEST_CASE(options_that_are_missing_or_do_not_fit) {
  gradus::cpu device{{.intra_op_threads = 1}};
  hinting_network net{device, {3, 8, 8}};
  const nn::value image = net.input();
  const nn::value x = net.add("conv", nn::conv2d{.out_channels = 6, .kernel = {3, 3}}, image);
  expect_advice([&] { net.add("conv", nn::relu{}, x); },
                {"got 'conv' again, the name of a conv2d", "nn::sequential (gradus/nn/sequential.hpp) makes names"});
  expect_advice([&] { net.add("d", nn::dense{}, x); },
                {"say how many numbers it makes", "nn::dense{.out_features = 10}"});
  expect_advice([&] { net.add("d", nn::conv2d{}, x); }, {"nn::conv2d{.out_channels = 16, .kernel = 3}"});
  expect_advice([&] { net.add("d", nn::conv_transpose2d{}, x); }, {"nn::conv_transpose2d{.out_channels = 16"});
  expect_advice([&] { net.add("d", nn::group_norm{}, x); },
                {"groups that divide 6 channels, got 32", "with one of 1, 2, 3, 6; without .groups it has 32"});
  expect_advice([&] { net.add("d", nn::group_norm{.groups = 0}, x); },
                {"groups of at least 1, got 0. Hint: nn::instance_norm has one channel in each group"});
  expect_advice([&] { net.add("d", nn::group_norm{.groups = -1}, x); }, {"groups of at least 1, got -1"});
  expect_advice(
      [&] {
        net.add("d", nn::concat{}, {image, x});
      },
      {"images of 8 x 8 pixels, as the first input has, got the image (6, 6, 6)",
       "nn::crop2d{} of {larger, smaller} (gradus/nn/layers/crop2d.hpp), nn::pad2d"});
  expect_advice([&] { net.add("d", nn::concat{}, x); }, {"net.add(\"joined\", nn::concat{}, {x, y})"});
  expect_advice([&] { net.add("d", nn::add{}, {image, x}); }, {"project the shortcut with a 1 x 1 convolution"});
  const nn::value small = net.add("small", nn::conv2d{.out_channels = 6, .kernel = {5, 5}}, image);
  expect_advice([&] { net.add("d", nn::add{}, {small, x}); }, {"the branches need one size: padding::same()"});
  expect_advice([&] { net.add("d", nn::add{}, {net.add("flat", nn::flatten{}, x), x}); }, {"before nn::flatten"});
  const double none = std::numeric_limits<double>::quiet_NaN();
  expect_advice([&] { net.add("d", nn::elu{.alpha = none}, x); }, {"elu: expected a finite alpha, got nan"});
  expect_advice([&] { net.add("d", nn::softplus{.beta = 0}, x); }, {"a beta that is not 0"});
  expect_advice([&] { net.add("d", nn::softplus{.threshold = none}, x); }, {"and a threshold, got 1 and nan"});
  expect_advice([&] { net.add("d", nn::local_response_norm{.alpha = -5}, x); }, {"a finite alpha of at least 0"});
  expect_advice(
      [&] {
        net.add("d", nn::multiply{}, {image, x});
      },
      {"end its branch with nn::global_average_pool2d{} or nn::dense{.out_features = C}"});
  expect_advice([&] { net.add("d", nn::crop2d{}, x); }, {"give .size, or a second input whose size the crop has"});
  expect_advice(
      [&] {
        net.add("d", nn::crop2d{}, {x, image});
      },
      {"the first input is cropped to the size of the second: write {larger, smaller}"});
  expect_advice([&] { net.loss(nn::softmax_cross_entropy{}, image); },
                {"the output of a layer of this network, got its input", "the last net.add(...) returned"});
  expect_advice(
      [&] {
        net.loss(nn::softmax_cross_entropy{.class_weights = {1, 2}}, x);
      },
      {"a weight for each of 6 classes, or none, got 2 weights", "class_weights has the order of the scores"});
  expect_advice([&] { net.compile({.max_batch_size = 1}); },
                {"unused", "keep what net.add returns, as in x = net.add"});
  const gradus::metrics::example_shape shape{{3}, {.labels = 1, .classes = 3}};
  expect_advice(
      [&] {
        gradus::metrics::top_k::state{{.k = 5}, shape};
      },
      {"a k from 1 to 3, the number of classes, got 5", "take a smaller k"});
  expect_advice([&] { gradus::metrics::top_k::state{{.k = 0}, shape}; }, {"got 0", "write metrics::top_k{5}"});
}

BOOST_AUTO_TEST_CASE(batches_and_labels_that_do_not_fit) {
  gradus::cpu device{{.intra_op_threads = 1}};
  hinting_network net = make_encoder_and_head(device);
  net.compile({.max_batch_size = 4, .micro_batch_size = 2});
  const gradus::image_tensor<float, gradus::nhwc> five{device, {5, 1, 6, 6}};
  const gradus::image_tensor<float, gradus::nhwc> four{device, {4, 1, 6, 6}};
  const gradus::image_tensor<float, gradus::nhwc> wide{device, {4, 1, 6, 7}};
  std::vector<std::int32_t> labels(5, 1);
  expect_advice([&] { net.train_step(five.view(), labels); },
                {"with n at most 4, got (5, 1, 6, 6)", "net.compile({.max_batch_size = 5})"});
  expect_advice([&] { net.forward(five.view()); }, {"with n at most 2", "net.compile({.max_batch_size = 5})"});
  expect_advice([&] { net.forward(four.view()); },
                {"with n at most 2", "compiled with micro_batch_size = 2: nn::predict takes any number of images"});
  expect_advice([&] { net.forward(wide.view()); },
                {"images of (n, 1, 6, 6)", "{.channels = 1, .height = 6, .width = 7} for these images"});
  labels.resize(4);
  labels[2] = 255;
  expect_advice([&] { net.train_step(four.view(), labels); },
                {"labels in [0, 3), got 255. Hint: the last layer needs one score for each class",
                 "if 255 is no class, write nn::softmax_cross_entropy{.ignored_label = 255}"});
  labels[2] = -1;
  expect_advice(
      [&] { net.evaluate(four.view(), labels); },
      {"labels in [0, 3), got -1. Hint: if -1 is no class, write nn::softmax_cross_entropy{.ignored_label = -1}"});
  hinting_network ignoring{device, {1, 6, 6}};
  ignoring.loss(nn::softmax_cross_entropy{.ignored_label = 255},
                ignoring.add("head", nn::dense{.out_features = 3}, ignoring.input()));
  ignoring.compile({.max_batch_size = 4});
  expect_advice([&] { ignoring.train_step(four.view(), labels); },
                {"labels in [0, 3) or the ignored_label 255, got -1"});
}

BOOST_AUTO_TEST_SUITE_END()
