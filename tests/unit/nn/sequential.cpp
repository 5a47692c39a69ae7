// SPDX-License-Identifier: BSL-1.0
//
// Layers one after another with generated names, and the table of a network.
#include "gradus/nn/sequential.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gradus/core/random.hpp>
#include <gradus/nn/layer.hpp>
#include <gradus/nn/layers.hpp>
#include <gradus/nn/layers/elementwise.hpp>
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
  sequential_network single_calls{device, {4}};
  nn::value x = single_calls.add("dense1", nn::dense{.out_features = 64}, single_calls.input());
  x = single_calls.add("dropout1", nn::dropout{}, x);
  x = single_calls.add("dropout2", nn::dropout{}, x);
  single_calls.loss(nn::softmax_cross_entropy{}, single_calls.add("dense2", nn::dense{.out_features = 3}, x));
  sequential_network own_keys{device, {4}};
  own_keys.loss(nn::softmax_cross_entropy{},
                nn::sequential(own_keys, nn::dense{.out_features = 64}, nn::dropout{.name = "dropout1"},
                               nn::dropout{.name = "dropout2"}, nn::dense{.out_features = 3}));
  sequential_network other_keys{device, {4}};
  other_keys.loss(nn::softmax_cross_entropy{},
                  nn::sequential(other_keys, nn::dense{.out_features = 64}, nn::dropout{.name = "dropout3"},
                                 nn::dropout{.name = "dropout4"}, nn::dense{.out_features = 3}));
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
  BOOST_TEST(loss == loss_of(single_calls));
  BOOST_TEST(loss != loss_of(other_keys));
}

namespace {

/// A layer with noise of its own: it draws from the stream of its name.
struct noise {
  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const noise& /*options*/) {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "noise"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    void set_name(std::string_view name) override { name_ = name; }
    [[nodiscard]] std::string_view random_name() const noexcept override { return name_; }
    void forward(const typename base::forward_call& call) override {
      const gradus::random_stream stream{call.context.seed, name_};
      for (gradus::index_t i = 0; i < call.output.size(); ++i) {
        call.output.data()[i] = static_cast<Element>(stream.normal(static_cast<std::uint64_t>(i)));
      }
    }
    void backward(const typename base::backward_call& /*call*/) override {}

   private:
    std::string name_;
  };
};

/// A layer with two parameters of one name.
struct twins {
  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const twins& /*options*/) {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "twins"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    [[nodiscard]] std::vector<nn::parameter_description> parameters() const override {
      const nn::parameter_description one{"weight", {1, 1, 1, 1}, 1, nn::constant(1), {}, false};
      return {one, one};
    }
    void forward(const typename base::forward_call& /*call*/) override {}
    void backward(const typename base::backward_call& /*call*/) override {}
  };
};

/// A layer that tells these parameters and buffers.
struct telling {
  std::vector<nn::parameter_description> parameters = {};
  std::vector<nn::buffer_description> buffers = {};

  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const telling& options) : parameters_{options.parameters}, buffers_{options.buffers} {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "telling"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    [[nodiscard]] std::vector<nn::parameter_description> parameters() const override { return parameters_; }
    [[nodiscard]] std::vector<nn::buffer_description> buffers() const override { return buffers_; }
    void forward(const typename base::forward_call& /*call*/) override {}
    void backward(const typename base::backward_call& /*call*/) override {}

   private:
    std::vector<nn::parameter_description> parameters_;
    std::vector<nn::buffer_description> buffers_;
  };
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_layer_of_a_program_draws_from_the_stream_of_its_name) {
  gradus::cpu device{{.intra_op_threads = 1}};
  sequential_network net{device, {40}};
  const nn::value first = nn::sequential(net, noise{});
  const nn::value second = nn::sequential(net, noise{});
  (void)net.add("both", nn::concat{}, {first, second});
  net.compile({.max_batch_size = 1});
  const gradus::image_tensor<float, gradus::nhwc> images{device, {1, 40, 1, 1}};
  const auto scores = net.forward(images.view());
  const gradus::random_stream stream{0, "noise1"};
  BOOST_TEST(scores.data()[7] == static_cast<float>(stream.normal(7)));
  BOOST_TEST(scores.data()[47] == static_cast<float>(gradus::random_stream{0, "noise2"}.normal(7)));
}

BOOST_AUTO_TEST_CASE(a_layer_of_a_program_has_parameters_and_buffers_of_names_and_shapes) {
  gradus::cpu device{{.intra_op_threads = 1}};
  sequential_network net{device, {4}};
  const nn::value x = net.input();
  const auto require_refused = [&](const telling& options, const std::string& part) {
    const std::string message = sequential_message([&] { (void)net.add("next", options, x); });
    BOOST_TEST(message.find(part) != std::string::npos, message);
    BOOST_TEST(message.find("[sequential.cpp:") != std::string::npos, message);
  };
  const auto parameter = [](const char* name, int rank = 1, const gradus::image_extents& shape = {4, 1, 1, 1}) {
    return nn::parameter_description{name, shape, rank, nn::constant(1), {}, false};
  };
  require_refused(telling{{parameter("weight"), parameter("")}},
                  "layer 'next' on (4): telling: expected parameters and buffers with names, got parameter 1 "
                  "without one");
  require_refused(telling{{parameter("weight")}, {{.name = "", .size = 1}}}, "got buffer 1 without one");
  require_refused(telling{{}, {{.name = "mean", .size = 1}, {.name = "mean", .size = 1}}}, "a buffer 'mean' again");
  require_refused(telling{{parameter("mean")}, {{.name = "mean", .size = 1}}}, "a buffer 'mean' again");
  require_refused(telling{{parameter("slope", 1, {1, 4, 1, 1})}},
                  "layer 'next' on (4): telling: expected the shape (o, 1, 1, 1) of the parameter 'slope' of "
                  "rank 1, got (1, 4, 1, 1)");
  require_refused(telling{{parameter("slope", 3)}}, "rank 1, 2 or 4 of the parameter 'slope', got 3");
  require_refused(telling{{}, {{.name = "mean", .size = 2, .values = {1}}}},
                  "2 values of the buffer 'mean', or none, got 1");
  (void)net.add("fine", telling{{parameter("weight", 2, {1, 4, 1, 1})}, {{.name = "mean", .size = 1, .values = {1}}}},
                x);
}

BOOST_AUTO_TEST_CASE(two_layers_never_share_random_numbers_nor_two_parameters_a_name) {
  gradus::cpu device{{.intra_op_threads = 1}};
  sequential_network net{device, {4}};
  nn::value x = net.add("drop", nn::dropout{}, net.input());
  x = net.add("other", nn::dropout{.name = "mask"}, x);
  const auto require_refused = [&](const auto& options, const std::string& part) {
    const std::string message = sequential_message([&] { (void)net.add("next", options, x); });
    BOOST_TEST(message.find(part) != std::string::npos, message);
    BOOST_TEST(message.find("[sequential.cpp:") != std::string::npos, message);
  };
  require_refused(nn::dropout{.name = "mask"}, "those named 'mask' again, which layer 'other' draws");
  require_refused(nn::dropout{.name = "drop"}, "those named 'drop' again, which layer 'drop' draws");
  require_refused(twins{},
                  "twins: expected parameters and buffers with names of their own, got a parameter 'weight' again");
  require_refused(nn::elementwise([](auto a, auto b, auto c) { return a * b + c; },
                                  {nn::per_layer("scale", nn::constant(1)), nn::per_layer("scale", nn::constant(0))}),
                  "a parameter 'scale' again");
  // Where one layer's name ends as the parameter of another begins.
  (void)net.add("a.b", nn::elementwise([](auto v, auto c) { return v * c; }, {nn::per_layer("c", nn::constant(1))}), x);
  const std::string message = sequential_message([&] {
    (void)net.add("a", nn::elementwise([](auto v, auto c) { return v * c; }, {nn::per_layer("b.c", nn::constant(1))}),
                  x);
  });
  BOOST_TEST(message.find("'a.b.c' again") != std::string::npos, message);
  x = net.add("next", nn::dropout{}, x);
  BOOST_TEST(x.index == 4U);
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
