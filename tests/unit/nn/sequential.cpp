// SPDX-License-Identifier: BSL-1.0
//
// Layers one after another with generated names, and the table of a network.
#include "gradus/nn/sequential.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include <gradus/nn/layers.hpp>
#include <gradus/nn/network.hpp>
#include <gradus/tensor/tensor.hpp>

namespace {

namespace nn = gradus::nn;

using sequential_network = nn::network<float, gradus::nhwc>;

std::vector<std::string> names_of(const sequential_network& net) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < net.layers(); ++i) {
    names.push_back(net.layer_name(i));
  }
  return names;
}

template <class Action>
std::string sequential_message(const Action& action) {
  try {
    action();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

/// Two dropout layers after a dense one.
nn::value add_dropouts(sequential_network& net) {
  return nn::sequential(net, nn::dense{.out_features = 64}, nn::dropout{}, nn::dropout{}, nn::dense{.out_features = 3});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_sequential)

BOOST_AUTO_TEST_CASE(names_are_kinds_and_numbers) {
  gradus::cpu device{{.intra_op_threads = 1}};
  sequential_network net{device, {2, 6, 6}};
  (void)net.add("relu1", nn::relu{}, net.input());
  nn::value x = nn::sequential(net, nn::value{1, net.input().network}, nn::conv2d{.out_channels = 3, .kernel = {3, 3}},
                               nn::relu{}, nn::relu{});
  BOOST_TEST((net.shape(x) == nn::value_shape{3, 4, 4}));
  x = nn::sequential(net, "head_", x, nn::flatten{}, nn::dense{.out_features = 5}, nn::relu{});
  BOOST_TEST(names_of(net) == (std::vector<std::string>{"relu1", "conv2d1", "relu2", "relu3", "head_flatten1",
                                                        "head_dense1", "head_relu1"}),
             boost::test_tools::per_element());
  BOOST_TEST((net.shape(x) == nn::value_shape{5}));
  const nn::value same = nn::sequential(net, x);
  BOOST_TEST(same.index == x.index);
}

BOOST_AUTO_TEST_CASE(is_the_network_of_single_calls) {
  gradus::cpu device{{.intra_op_threads = 1}};
  sequential_network short_form{device, {2, 6, 6}};
  short_form.loss(nn::softmax_cross_entropy{},
                  nn::sequential(short_form, nn::conv2d{.out_channels = 3, .kernel = {3, 3}}, nn::relu{}, nn::flatten{},
                                 nn::dense{.out_features = 5}));
  sequential_network long_form{device, {2, 6, 6}};
  nn::value x = long_form.add("conv2d1", nn::conv2d{.out_channels = 3, .kernel = {3, 3}}, long_form.input());
  x = long_form.add("relu1", nn::relu{}, x);
  x = long_form.add("flatten1", nn::flatten{}, x);
  x = long_form.add("dense1", nn::dense{.out_features = 5}, x);
  long_form.loss(nn::softmax_cross_entropy{}, x);
  BOOST_TEST(short_form.describe() == long_form.describe());
  const gradus::nn::compile_options options{.max_batch_size = 2, .seed = 3};
  short_form.compile(options);
  long_form.compile(options);
  gradus::image_tensor<float, gradus::nhwc> images{device, {2, 2, 6, 6}};
  for (gradus::index_t i = 0; i < images.size(); ++i) {
    images.data()[i] = static_cast<float>(i % 7) - 3;
  }
  const std::vector<std::int32_t> labels{1, 4};
  BOOST_TEST(short_form.train_step(images, labels).loss == long_form.train_step(images, labels).loss);
}

BOOST_AUTO_TEST_CASE(dropout_layers_have_random_numbers_of_their_own) {
  gradus::cpu device{{.intra_op_threads = 1}};
  sequential_network net{device, {4}};
  net.loss(nn::softmax_cross_entropy{}, add_dropouts(net));
  sequential_network same_key{device, {4}};
  same_key.loss(nn::softmax_cross_entropy{},
                nn::sequential(same_key, nn::dense{.out_features = 64}, nn::dropout{.name = "dropout1"},
                               nn::dropout{.name = "dropout1"}, nn::dense{.out_features = 3}));
  sequential_network own_keys{device, {4}};
  own_keys.loss(nn::softmax_cross_entropy{},
                nn::sequential(own_keys, nn::dense{.out_features = 64}, nn::dropout{.name = "dropout1"},
                               nn::dropout{.name = "dropout2"}, nn::dense{.out_features = 3}));
  gradus::image_tensor<float, gradus::nhwc> images{device, {1, 4, 1, 1}};
  for (gradus::index_t i = 0; i < 4; ++i) {
    images.data()[i] = static_cast<float>(i) - 1.5F;
  }
  const std::vector<std::int32_t> labels{1};
  const auto loss_of = [&](sequential_network& each) {
    each.compile({.max_batch_size = 1, .seed = 3});
    return each.train_step(images, labels).loss;
  };
  const double loss = loss_of(net);
  BOOST_TEST(loss == loss_of(own_keys));
  BOOST_TEST(loss != loss_of(same_key));
}

BOOST_AUTO_TEST_CASE(messages_name_the_generated_layer_and_the_line_of_the_call) {
  gradus::cpu device{{.intra_op_threads = 1}};
  sequential_network net{device, {2, 6, 6}};
  const std::string message = sequential_message([&] {
    (void)nn::sequential(net, "encoder_", nn::conv2d{.out_channels = 3, .kernel = {3, 3}}, nn::relu{},
                         nn::conv2d{.out_channels = 3, .kernel = {5, 5}});
  });
  BOOST_TEST(message.find("layer 'encoder_conv2d2' on (3, 4, 4): conv2d: expected") == 0U, message);
  BOOST_TEST(message.find("[sequential.cpp:") != std::string::npos, message);
  BOOST_TEST(names_of(net) == (std::vector<std::string>{"encoder_conv2d1", "encoder_relu1"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_summary_is_a_table) {
  gradus::cpu device{{.intra_op_threads = 1}};
  sequential_network net{device, {1, 28, 28}};
  net.loss(nn::softmax_cross_entropy{},
           nn::sequential(net, nn::conv2d{.out_channels = 8, .kernel = {3, 3}}, nn::relu{}, nn::max_pool2d{},
                          nn::flatten{}, nn::dense{.out_features = 1000}, nn::dense{.out_features = 10}));
  BOOST_TEST("\n" + net.summary() == R"(
layer        kind        output       parameters  multiply-adds
---------------------------------------------------------------
input                    (1, 28, 28)
conv2d1      conv2d      (8, 26, 26)          80         48,672
relu1        relu        (8, 26, 26)           0              0
max_pool2d1  max_pool2d  (8, 13, 13)           0              0
flatten1     flatten     (1352)                0              0
dense1       dense       (1000)        1,353,000      1,352,000
dense2       dense       (10)             10,010         10,000
---------------------------------------------------------------
total                                  1,363,090      1,410,672
)");
  net.compile({.max_batch_size = 100});
  const std::string compiled = net.summary();
  const std::string before = compiled.substr(0, compiled.find("memory for batches"));
  BOOST_TEST("\n" + before == R"(
layer        kind        output       parameters  multiply-adds    memory
-------------------------------------------------------------------------
input                    (1, 28, 28)
conv2d1      conv2d      (8, 26, 26)          80         48,672    2.2 MB
relu1        relu        (8, 26, 26)           0              0    shared
max_pool2d1  max_pool2d  (8, 13, 13)           0              0  540.8 kB
flatten1     flatten     (1352)                0              0    shared
dense1       dense       (1000)        1,353,000      1,352,000  400.0 kB
dense2       dense       (10)             10,010         10,000    4.0 kB
-------------------------------------------------------------------------
total                                  1,363,090      1,410,672    3.1 MB
)");
  BOOST_TEST(compiled.find("memory for batches of 100: " + nn::detail::bytes_as_text(net.memory_bytes()) +
                           " (values and their gradients " + nn::detail::bytes_as_text(net.plan().arena_bytes) +
                           ")\n") == before.size(),
             compiled);
}

BOOST_AUTO_TEST_CASE(numbers_of_the_summary) {
  BOOST_TEST(nn::detail::with_commas(0) == "0");
  BOOST_TEST(nn::detail::with_commas(999) == "999");
  BOOST_TEST(nn::detail::with_commas(1000) == "1,000");
  BOOST_TEST(nn::detail::with_commas(1234567890) == "1,234,567,890");
  BOOST_TEST(nn::detail::bytes_as_text(999) == "999 B");
  BOOST_TEST(nn::detail::bytes_as_text(1000) == "1.0 kB");
  BOOST_TEST(nn::detail::bytes_as_text(999960) == "1.0 MB");
  BOOST_TEST(nn::detail::bytes_as_text(std::size_t{5} << 40U) == "5.5 TB");
}

BOOST_AUTO_TEST_SUITE_END()
