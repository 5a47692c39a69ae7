// SPDX-License-Identifier: BSL-1.0
//
// Building, compiling and running a network: what it promises beside right gradients.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/half_squares.hpp"
#include "../../support/network_checks.hpp"

namespace nn = gradus::nn;
using gradus_test::random_batch;
using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

namespace {

template <class Network>
void build_small(Network& net, double dropout_rate = 0.25) {
  nn::value x = net.input();
  x = net.add("conv1", nn::conv2d{.out_channels = 8, .kernel = {5, 5}, .padding = nn::padding::same()}, x);
  x = net.add("relu1", nn::relu{}, x);
  x = net.add("pool1", nn::max_pool2d{}, x);
  x = net.add("conv2", nn::conv2d{.out_channels = 6, .kernel = {3, 3}, .padding = nn::padding::same()}, x);
  x = net.add("relu2", nn::relu{}, x);
  x = net.add("pool2", nn::max_pool2d{}, x);
  x = net.add("flatten", nn::flatten{}, x);
  x = net.add("dense1", nn::dense{.out_features = 20}, x);
  x = net.add("relu3", nn::relu{}, x);
  x = net.add("dropout", nn::dropout{.rate = dropout_rate}, x);
  x = net.add("scores", nn::dense{.out_features = 5}, x);
  net.loss(nn::softmax_cross_entropy{}, x);
}

/// A layer of a program of its own: twice its input. Without a base of its own.
struct doubled {
  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const doubled& /*options*/) {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "doubled"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    void forward(const typename base::forward_call& call) override {
      for (gradus::index_t i = 0; i < call.output.size(); ++i) {
        call.output.data()[i] = 2 * call.inputs[0].data()[i];
      }
    }
    void backward(const typename base::backward_call& call) override {
      for (gradus::index_t i = 0; i < call.output.size(); ++i) {
        call.input_gradients[0].images.data()[i] = 2 * call.output_gradient.data()[i];
      }
    }
  };
};

/// A layer whose infer forgets to store the channels: its parameter has no elements.
struct forgetful {
  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const forgetful& /*options*/) {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "forgetful"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    [[nodiscard]] std::vector<nn::parameter_description> parameters() const override {
      return {{"weight", {channels_, 1, 1, 1}, 1, nn::zeros(), {}}};
    }
    void forward(const typename base::forward_call& /*call*/) override {}
    void backward(const typename base::backward_call& /*call*/) override {}

   private:
    gradus::index_t channels_ = 0;
  };
};

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

void require_text(const std::string& message, const std::string& part) {
  BOOST_TEST(message.find(part) != std::string::npos, "'" << part << "' is not in: " << message);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_network)

BOOST_AUTO_TEST_CASE(parameter_without_elements_is_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {.channels = 3, .height = 2, .width = 2}};
  const std::string message = message_of([&] { net.add("s", forgetful{}, net.input()); });
  require_text(message, "forgetful: expected a parameter 'weight' of at least 1 element, got (0, 1, 1, 1)");
  require_text(message, "layer 's'");
}

BOOST_AUTO_TEST_CASE(layouts_agree_on_everything) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<double, gradus::nchw> planes{device, {3, 12, 9}};
  nn::network<double, gradus::nhwc> pixels{device, {3, 12, 9}};
  build_small(planes);
  build_small(pixels);
  planes.compile({.max_batch_size = 7, .seed = 42});
  pixels.compile({.max_batch_size = 7, .seed = 42});
  const random_batch<double, gradus::nchw> batch_planes{device, {7, 3, 12, 9}, 5};
  const random_batch<double, gradus::nhwc> batch_pixels{device, {7, 3, 12, 9}, 5};
  const nn::step_options options{.step = 9, .first_example = 100, .global_examples = 0};
  const auto a = planes.train_step(batch_planes.images, batch_planes.labels, options);
  const auto b = pixels.train_step(batch_pixels.images, batch_pixels.labels, options);
  BOOST_TEST(a.loss == b.loss, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(a.correct == b.correct);
  for (std::size_t k = 0; k < planes.parameters().size(); ++k) {
    const auto& p = planes.parameters()[k];
    BOOST_TEST(p.name() == pixels.parameters()[k].name());
    BOOST_TEST(p.copy_values() == pixels.parameters()[k].copy_values());  // the same bits
    const auto ga = p.copy_gradient();
    const auto gb = pixels.parameters()[k].copy_gradient();
    for (std::size_t i = 0; i < ga.size(); ++i) {
      BOOST_TEST(std::abs(ga[i] - gb[i]) <= 1e-12, p.name() << "[" << i << "] " << ga[i] << " " << gb[i]);
    }
  }
  // Weights move between layouts by name.
  for (const auto& p : planes.parameters()) {
    pixels.find_parameter(p.name()).assign_values(p.copy_gradient());
    BOOST_TEST(pixels.find_parameter(p.name()).copy_values() == p.copy_gradient());
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(threads_do_not_change_a_bit, Layout, layouts) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    gradus::cpu device{{.intra_op_threads = threads}};
    nn::network<float, Layout> net{device, {1, 28, 28}};
    build_small(net);
    net.compile({.max_batch_size = 13, .seed = 1});
    const random_batch<float, Layout> batch{device, {13, 1, 28, 28}, 5};
    (void)net.train_step(batch.images, batch.labels, {.step = 1});
    results.emplace_back(net.gradients().begin(), net.gradients().end());
  }
  BOOST_TEST((results[0] == results[1]));
  BOOST_TEST((results[0] == results[2]));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(parts_of_a_batch_add_up, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<double, Layout> net{device, {2, 8, 8}};
  build_small(net);
  net.compile({.max_batch_size = 10, .seed = 3});
  const random_batch<double, Layout> batch{device, {10, 2, 8, 8}, 5};
  (void)net.train_step(batch.images, batch.labels, {.step = 4, .first_example = 50});
  const std::vector<double> whole(net.gradients().begin(), net.gradients().end());
  std::vector<double> sum(whole.size(), 0.0);
  for (const auto& [begin, count] : {std::pair{0, 4}, std::pair{4, 0}, std::pair{4, 6}}) {
    (void)net.train_step(
        batch.images.view().slice(begin, count),
        std::span{batch.labels}.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        {.step = 4, .first_example = static_cast<std::uint64_t>(50 + begin), .global_examples = 10});
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += net.gradients()[i];
    }
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    BOOST_TEST(std::abs(sum[i] - whole[i]) <= 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(activations_are_fused_and_share_memory) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {1, 28, 28}};
  build_small(net);
  net.compile({.max_batch_size = 64});
  const auto& plan = net.plan();
  BOOST_TEST(!plan.nodes[1].forward);  // relu1 runs inside conv1
  BOOST_TEST((plan.nodes[0].activation == gradus::kernels::activation::relu));
  BOOST_TEST(plan.slot_of_value[1] == plan.slot_of_value[2]);
  BOOST_TEST((plan.nodes[2].targets[0].mask == nn::execution_plan::duty::layer));  // pool1 masks what it passes back
  BOOST_TEST(plan.arena_bytes * 10 < plan.unshared_bytes * 9);
}

BOOST_AUTO_TEST_CASE(sums_are_fused_and_share_gradients) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {4, 6, 6}};
  const nn::value x = net.add("x", nn::conv2d{.out_channels = 4}, net.input());
  nn::value y = net.add("conv", nn::conv2d{.out_channels = 4}, x);
  y = net.add("norm", nn::batch_norm{}, y);
  y = net.add("add", nn::add{}, {y, x});
  y = net.add("relu", nn::relu{}, y);
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, y));
  net.compile({.max_batch_size = 2});
  const auto& plan = net.plan();
  BOOST_TEST(!plan.nodes[3].forward);
  BOOST_TEST(plan.nodes[2].residual == 1U);
  BOOST_TEST((plan.nodes[2].activation == gradus::kernels::activation::relu));
  BOOST_TEST(plan.slot_of_value[3] == plan.slot_of_value[5]);
  const auto& sum = plan.slots[plan.slot_of_value[4]];
  const auto& shortcut = plan.slots[plan.slot_of_value[1]];
  BOOST_TEST(sum.gradient_offset == shortcut.gradient_offset);
  BOOST_TEST((plan.nodes[2].residual_target.write == nn::execution_plan::duty::none));
  BOOST_TEST(plan.nodes[1].targets[0].accumulate);
}

BOOST_AUTO_TEST_CASE(forward_does_not_depend_on_training_state) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nchw> net{device, {1, 9, 9}};
  build_small(net, 0.9);
  net.compile({.max_batch_size = 4, .seed = 2});
  const random_batch<float, gradus::nchw> batch{device, {4, 1, 9, 9}, 5};
  const auto first = net.evaluate(batch.images, batch.labels);
  (void)net.train_step(batch.images, batch.labels, {.step = 5});
  const auto second = net.evaluate(batch.images, batch.labels);
  BOOST_TEST(first.loss == second.loss);
  BOOST_TEST(net.train_step(batch.images, batch.labels, {.step = 5}).loss != first.loss);  // dropout is on
  BOOST_TEST(net.train_step(batch.images, batch.labels, {.step = 5}).loss !=
             net.train_step(batch.images, batch.labels, {.step = 6}).loss);
}

// Winograd, which 3x3 kernels on 32 channels take, gives other bits than adding up the terms.
BOOST_AUTO_TEST_CASE_TEMPLATE(convolutions_are_direct_where_layer_or_network_say_so, Layout, layouts) {
  using nn::convolution_algorithm;
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, Layout> batch{device, {2, 32, 12, 12}, 5};
  const auto outputs = [&](convolution_algorithm of_layer, convolution_algorithm of_network) {
    nn::network<float, Layout> net{device, {32, 12, 12}};
    (void)net.add(
        "conv", nn::conv2d{.out_channels = 32, .kernel = {3, 3}, .padding = nn::padding::same(), .algorithm = of_layer},
        net.input());
    net.compile({.max_batch_size = 2, .seed = 1, .convolution_algorithm = of_network});
    const auto scores = net.forward(batch.images);
    return std::vector<float>(scores.data(), scores.data() + scores.size());
  };
  const auto automatic = outputs(convolution_algorithm::automatic, convolution_algorithm::automatic);
  const auto direct = outputs(convolution_algorithm::automatic, convolution_algorithm::direct);
  BOOST_TEST((automatic != direct));
  for (std::size_t i = 0; i < direct.size(); ++i) {
    BOOST_TEST(std::abs(automatic[i] - direct[i]) < 1e-4F);
  }
  BOOST_TEST((outputs(convolution_algorithm::direct, convolution_algorithm::automatic) == direct));
  BOOST_TEST((outputs(convolution_algorithm::direct, convolution_algorithm::direct) == direct));
}

BOOST_AUTO_TEST_CASE(hooks_receive_every_parameter_once_last_layer_first) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nchw> net{device, {1, 9, 9}};
  build_small(net);
  net.compile({.max_batch_size = 4});
  const random_batch<float, gradus::nchw> batch{device, {4, 1, 9, 9}, 5};
  struct listener final : nn::step_hooks {
    std::size_t next = 0;
    std::vector<std::size_t> forward;
    std::vector<std::size_t> backward;
    std::optional<std::size_t> running;

    void before_layer(std::size_t layer, gradus::nn::phase which) override {
      BOOST_TEST(!running.has_value());
      running = layer;
      (which == gradus::nn::phase::forward ? forward : backward).push_back(layer);
    }
    void after_layer(std::size_t layer, gradus::nn::phase /*which*/) override {
      BOOST_TEST((running == layer));
      running.reset();
    }
    void gradients_ready(std::size_t first, std::size_t count) override {
      BOOST_TEST(!running.has_value());
      BOOST_TEST(first == next);
      next += count;
    }
  };
  for (const gradus::index_t examples : {4, 0}) {
    listener heard;
    (void)net.train_step(batch.images.view().slice(0, examples),
                         std::span{batch.labels}.first(static_cast<std::size_t>(examples)), {}, &heard);
    BOOST_TEST(heard.next == net.parameters().size());
    BOOST_TEST(!heard.forward.empty());  // without examples too: late updates are completed before a layer
    BOOST_TEST(std::is_sorted(heard.forward.begin(), heard.forward.end()));
    BOOST_TEST(heard.backward.empty() == (examples == 0));
    BOOST_TEST(std::is_sorted(heard.backward.rbegin(), heard.backward.rend()));
  }
  BOOST_TEST(net.parameters().front().name() == "scores.weight");
  BOOST_TEST(net.parameters().back().name() == "conv1.bias");
}

BOOST_AUTO_TEST_CASE(initial_values_depend_only_on_seed_and_name) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto values = [&](std::uint64_t seed, const char* name, bool another_first) {
    nn::network<float, gradus::nhwc> net{device, {2, 4, 4}};
    nn::value x = net.input();
    if (another_first) {
      x = net.add("another", nn::conv2d{.out_channels = 2}, x);
    }
    net.add(name, nn::conv2d{.out_channels = 3, .kernel = {3, 3}}, x);
    net.compile({.max_batch_size = 1, .seed = seed});
    return net.find_parameter(std::string{name} + ".weight").copy_values();
  };
  BOOST_TEST((values(1, "a", false) == values(1, "a", true)));
  BOOST_TEST((values(1, "a", false) != values(2, "a", false)));
  BOOST_TEST((values(1, "a", false) != values(1, "b", false)));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_program_adds_layers_of_its_own, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<double, Layout> batch{device, {3, 2, 4, 5}, 5};
  const auto scores_of = [&](bool with_layer) {
    nn::network<double, Layout> net{device, {2, 4, 5}};
    nn::value x = net.add("conv", nn::conv2d{.out_channels = 3, .kernel = {2, 2}}, net.input());
    x = with_layer ? net.add("doubled", doubled{}, x) : x;
    net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 5}, x));
    net.compile({.max_batch_size = 3, .seed = 1});
    (void)net.train_step(batch.images, batch.labels);
    const auto scores = net.forward(batch.images);
    return std::pair{std::vector<double>(scores.data(), scores.data() + scores.size()),
                     net.find_parameter("conv.bias").copy_gradient()};
  };
  const auto [plain, plain_gradient] = scores_of(false);
  const auto [twice, twice_gradient] = scores_of(true);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    BOOST_TEST(twice[i] == 2 * plain[i], boost::test_tools::tolerance(1e-12));
  }
  BOOST_TEST((plain_gradient != twice_gradient));
}

// By expressions, in steps in parts too; the labels of the batch are no classes of it.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_loss_of_a_program_may_end_a_network, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  const random_batch<double, Layout> batch{device, {5, 3, 6, 5}, 100};
  nn::network<double, Layout> net{device, {3, 6, 5}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 3}}, net.input());
  x = net.add("relu", nn::relu{}, x);
  net.loss(gradus_test::half_squares{}, net.add("conv2", nn::conv2d{.out_channels = 2, .kernel = {2, 2}}, x));
  net.compile({.max_batch_size = 5, .seed = 3, .micro_batch_size = 2});
  const auto worst = gradus_test::check_gradients(net, batch);
  BOOST_TEST(worst.relative < 1e-5, worst.where);
  const double trained = net.train_step(batch.images, batch.labels).loss;
  BOOST_TEST(trained > 0);
  BOOST_TEST(net.evaluate(batch.images, batch.labels).loss == trained, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(a_network_without_memory_can_be_frozen_smaller) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const random_batch<float, gradus::nhwc> batch{device, {2, 1, 28, 28}, 10};
  nn::network<float, gradus::nhwc> net{device, {1, 28, 28}};
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 10}, net.input()));
  BOOST_CHECK_THROW(net.compile({.max_batch_size = gradus::index_t{1} << 44U, .seed = 1}), gradus::device_error);
  BOOST_TEST(!net.compiled());
  require_text(message_of([&] { (void)net.forward(batch.images); }), "expected a compiled network");
  net.compile({.max_batch_size = 2, .seed = 1});
  BOOST_TEST(net.parameters().size() == 2U);
  BOOST_TEST(net.values().size() >= 7850U);
  BOOST_TEST(net.values().size() < 7850U + 32U);
  BOOST_TEST(net.train_step(batch.images, batch.labels).loss > 0);
}

BOOST_AUTO_TEST_CASE(messages_name_the_layer) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nchw> net{device, {1, 4, 4}};
  const nn::value x = net.input();
  std::string text = message_of([&] { net.add("deep", nn::conv2d{.out_channels = 2, .kernel = {7, 7}}, x); });
  require_text(text, "layer 'deep' on (1, 4, 4): conv2d: expected a padded input of at least 7");
  require_text(text, "network.cpp:");
  require_text(message_of([&] { net.add("none", nn::conv2d{}, x); }),
               "layer 'none' on (1, 4, 4): conv2d: expected out_channels of at least 1, got 0");
  require_text(message_of([&] { net.add("many", nn::conv2d{.out_channels = -3}, x); }), "got -3");
  require_text(message_of([&] {
                 net.add("s", nn::conv2d{.out_channels = 1, .stride = {0, 1}}, x);
               }),
               "a stride of at least 1 x 1, got 0 x 1");
  require_text(message_of([&] { net.add("g", nn::conv2d{.out_channels = 3, .groups = 2}, x); }),
               "groups that divide 1 input and 3 output channels, got 2");
  require_text(message_of([&] { net.add("d", nn::dropout{.rate = 1.0}, x); }), "a rate in [0, 1), got 1.");
  require_text(message_of([&] { net.add("d", nn::dropout{.rate = std::numeric_limits<double>::quiet_NaN()}, x); }),
               "a rate in [0, 1), got nan");
  require_text(message_of([&] { net.add("a", nn::add{}, {x}); }), "expected 2 input value(s), got 1");
  require_text(message_of([&] {
                 net.add("p", nn::max_pool2d{.kernel = {2, 2}, .padding = nn::padding::explicit_padding(2)}, x);
               }),
               "at least one element of the image");
  const nn::value conv = net.add("conv", nn::conv2d{.out_channels = 2}, x);
  require_text(message_of([&] { net.add("conv", nn::relu{}, x); }), "'conv' again");
  require_text(message_of([&] {
                 net.add("a", nn::add{}, {x, conv});
               }),
               "expected two values of one shape, got the image (1, 4, 4) and the image (2, 4, 4)");
  require_text(message_of([&] { net.add("f", nn::relu{}, nn::value{99}); }), "a value that it did not make");
  const nn::value flat = net.add("flat", nn::flatten{}, conv);
  require_text(message_of([&] { net.add("c", nn::conv2d{.out_channels = 1}, flat); }),
               "expected an image, got the flattened image (2, 4, 4)");
  // Of as many elements, and still not the same shape.
  const nn::value vector = net.add("vector", nn::dense{.out_features = 32}, flat);
  require_text(message_of([&] {
                 net.add("a", nn::add{}, {flat, vector});
               }),
               "expected two values of one shape, got the flattened image (2, 4, 4) and the vector (32)");
  require_text(
      message_of([&] { net.loss(nn::softmax_cross_entropy{}, flat); }),
      "expected a vector of scores, one for each class, or an image of them, got the flattened image (2, 4, 4)");
  require_text(message_of([&] { net.add("b", nn::batch_norm{}, flat); }),
               "expected an image, or a vector made by a dense layer, got the flattened image (2, 4, 4)");
  require_text(message_of([&] {
                 net.add("c", nn::concat{}, {conv, flat});
               }),
               "expected images, got the flattened image (2, 4, 4)");
  require_text(message_of([&] {
                 net.add("c", nn::concat{}, {conv, vector});
               }),
               "expected images of 4 x 4 pixels, as the first input has, got the vector (32)");
  require_text(message_of([&] {
                 nn::network<float>{device, {3, 1, 0}};
               }),
               "expected an input of at least 1 channel, row and column, got 3 channels, 1 rows and 0 columns");
  require_text(message_of([&] { net.compile({.max_batch_size = 0}); }), "a max_batch_size of at least 1, got 0");
  require_text(
      message_of([&] {
        net.forward(gradus::image_view<float, gradus::nchw>{device, nullptr, gradus::image_extents{1, 1, 4, 4}});
      }),
      "call compile");
  net.add("unread", nn::relu{}, conv);
  const nn::value scores = net.add("scores", nn::dense{.out_features = 3}, vector);
  net.loss(nn::softmax_cross_entropy{}, scores);
  require_text(message_of([&] { net.compile({.max_batch_size = 2}); }), "the output of layer 'unread' unused");
}

BOOST_AUTO_TEST_CASE(wrong_batches_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {1, 4, 4}};
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 3}, net.input()));
  net.compile({.max_batch_size = 2});
  const random_batch<float, gradus::nhwc> good{device, {2, 1, 4, 4}, 3};
  const random_batch<float, gradus::nhwc> large{device, {3, 1, 4, 4}, 3};
  const random_batch<float, gradus::nhwc> wide{device, {2, 1, 4, 5}, 3};
  require_text(message_of([&] { (void)net.train_step(large.images, large.labels); }),
               "with n at most 2, got (3, 1, 4, 4)");
  require_text(message_of([&] { (void)net.train_step(wide.images, wide.labels); }), "got (2, 1, 4, 5)");
  require_text(message_of([&] { (void)net.train_step(good.images, large.labels); }),
               "expected a label for each of 2 images, got 3 labels");
  const std::vector<std::int32_t> labels{0, 3};
  require_text(message_of([&] { (void)net.train_step(good.images, labels); }), "labels in [0, 3), got 3");
  const std::vector<std::int32_t> negative{-1, 0};
  require_text(message_of([&] { (void)net.evaluate(good.images, negative); }), "got -1");
}

BOOST_AUTO_TEST_CASE(the_first_value_that_is_not_finite_is_found) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {1, 8, 8}};
  build_small(net);
  net.compile({.max_batch_size = 2, .seed = 2});
  const random_batch<float, gradus::nhwc> batch{device, {2, 1, 8, 8}, 5};
  BOOST_TEST(net.find_non_finite(batch.images, {}).where.empty());
  const auto& weight = net.find_parameter("conv2.weight");
  const auto kept = weight.copy_values();
  auto changed = kept;
  changed[0] = std::numeric_limits<float>::infinity();
  weight.assign_values(changed);
  BOOST_TEST(net.find_non_finite(batch.images, {}).where == "parameter conv2.weight");
  changed.assign(kept.size(), 3e38F);
  weight.assign_values(changed);
  BOOST_TEST(net.find_non_finite(batch.images, {}).where == "layer 'conv2' (conv2d)");
  weight.assign_values(kept);
  random_batch<float, gradus::nhwc> broken{device, {2, 1, 8, 8}, 5};
  broken.images(1, 0, 3, 3) = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(net.find_non_finite(broken.images, {}).where == "the input");
}

BOOST_AUTO_TEST_CASE(values_of_other_networks_and_a_second_loss_are_refused) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> other{device, {2, 4, 4}};
  const nn::value foreign = other.add("conv", nn::conv2d{.out_channels = 3}, other.input());
  nn::network<float, gradus::nhwc> net{device, {2, 4, 4}};
  const nn::value x = net.add("conv", nn::conv2d{.out_channels = 3}, net.input());
  const std::string refused = "a value that it did not make";
  require_text(message_of([&] { net.add("a", nn::relu{}, foreign); }), refused);
  require_text(message_of([&] { net.add("b", nn::relu{}, other.input()); }), refused);
  require_text(message_of([&] { net.add("c", nn::relu{}, nn::value{}); }), refused);
  require_text(message_of([&] { net.add("d", nn::add{}, {x, foreign}); }), refused);
  require_text(message_of([&] { (void)net.shape(foreign); }), refused);
  require_text(message_of([&] { net.loss(nn::softmax_cross_entropy{}, foreign); }), "another value");
  const nn::value scores = net.add("scores", nn::dense{.out_features = 3}, x);
  net.loss(nn::softmax_cross_entropy{}, scores);
  const std::string second = message_of([&] { net.loss(nn::softmax_cross_entropy{}, scores); });
  require_text(second, "expected one loss, got a second one. Hint: a sum of losses of one value is one expression");
  require_text(second, "nn::concat");
  nn::network<float, gradus::nhwc> moved = std::move(net);
  moved.compile({.max_batch_size = 1});
  BOOST_TEST(moved.shape(scores).channels == 3);
}

BOOST_AUTO_TEST_CASE(calls_that_need_a_compiled_network_say_so) {
  gradus::cpu device{{.intra_op_threads = 1}};
  nn::network<float, gradus::nhwc> net{device, {1, 9, 9}};
  build_small(net);
  const random_batch<float, gradus::nhwc> batch{device, {2, 1, 9, 9}, 5};
  const auto check = [&](auto& asked) {
    const std::string compiled = "expected a compiled network";
    BOOST_TEST(!asked.compiled());
    require_text(message_of([&] { (void)asked.values(); }), compiled);
    require_text(message_of([&] { (void)asked.gradients(); }), compiled);
    require_text(message_of([&] { (void)asked.buffers(); }), compiled);
    require_text(message_of([&] { (void)asked.buffer_values(); }), compiled);
    require_text(message_of([&] { (void)asked.memory_bytes(); }), compiled);
    require_text(message_of([&] { (void)asked.plan(); }), compiled);
    require_text(message_of([&] { (void)asked.find_parameter("conv1.weight"); }), compiled);
    require_text(message_of([&] { (void)asked.train_step(batch.images, batch.labels); }), compiled);
    require_text(message_of([&] { (void)asked.forward(batch.images); }), compiled);
    require_text(message_of([&] { (void)asked.evaluate(batch.images, batch.labels); }), compiled);
    require_text(message_of([&] { (void)asked.find_non_finite(batch.images, {}); }), compiled);
  };
  check(net);
  net.compile({.max_batch_size = 2});
  const float loss = static_cast<float>(net.evaluate(batch.images, batch.labels).loss);
  nn::network<float, gradus::nhwc> taken = std::move(net);
  check(net);
  BOOST_TEST(static_cast<float>(taken.evaluate(batch.images, batch.labels).loss) == loss);
  net = std::move(taken);
  check(taken);
  BOOST_TEST(static_cast<float>(net.evaluate(batch.images, batch.labels).loss) == loss);
}

BOOST_AUTO_TEST_CASE(a_device_that_was_moved_from_says_so) {
  gradus::cpu device{{.intra_op_threads = 2}};
  const gradus::cpu taken = std::move(device);
  BOOST_TEST(taken.threads() == 2);
  require_text(message_of([&] { (void)device.threads(); }), "a device that was moved from");
  require_text(message_of([&] { device.parallel_for(100, 1, [](gradus::index_t, gradus::index_t) {}); }),
               "a device that was moved from");
  require_text(message_of([&] { device.parallel_tasks(3, [](gradus::index_t) {}); }), "a device that was moved from");
}

BOOST_AUTO_TEST_SUITE_END()
