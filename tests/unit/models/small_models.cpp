// SPDX-License-Identifier: BSL-1.0
//
// MobileNetV2, the multilayer perceptron, the autoencoder and the residual networks for regression: their sizes, their
// shapes, and a training step in both layouts.
#include <boost/test/unit_test.hpp>

#include <gradus/models/alexnet.hpp>
#include <gradus/models/autoencoder.hpp>
#include <gradus/models/densenet.hpp>
#include <gradus/models/mlp.hpp>
#include <gradus/models/mobilenet_v2.hpp>
#include <gradus/models/resnet_regression.hpp>
#include <gradus/nn/layers/activations.hpp>
#include <gradus/nn/losses.hpp>
#include <gradus/nn/network.hpp>
#include <gradus/tensor/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace models = gradus::models;
namespace nn = gradus::nn;
using gradus::index_t;

template <class Layout>
using small_network = nn::network<float, Layout>;

template <class Build>
small_network<gradus::nhwc> small_model(const nn::value_shape& input, const Build& build) {
  static gradus::cpu device{{.intra_op_threads = 1}};
  small_network<gradus::nhwc> net{device, input};
  build(net);
  return net;
}

/// The sum of losses of the first step and of the second, after a small step against the gradient.
struct two_losses {
  double first;
  double second;
};

template <class Layout>
two_losses train_two_steps(gradus::cpu& device, small_network<Layout>& net) {
  const nn::value_shape input = net.input_shape();
  net.compile({.max_batch_size = 3, .seed = 5});
  const auto fill = [](auto&& view) {
    const auto shape = view.extents();
    for (index_t n = 0; n < shape[0]; ++n) {
      for (index_t c = 0; c < shape[1]; ++c) {
        for (index_t h = 0; h < shape[2]; ++h) {
          for (index_t w = 0; w < shape[3]; ++w) {
            view(n, c, h, w) = static_cast<float>(std::sin(1.7 * static_cast<double>(n + 5 * c + 3 * h + 7 * w)));
          }
        }
      }
    }
  };
  gradus::image_tensor<float, Layout> images{device, input.batch(3)};
  fill(images.view());
  const auto reads = net.target_description();
  const bool labels = reads.labels > 0;
  gradus::image_tensor<float, Layout> values{device, labels ? gradus::image_extents{} : reads.values.batch(3)};
  fill(values.view());
  const std::vector<std::int32_t> classes{0, 1, 2};
  const auto step = [&] {
    return labels ? net.train_step(images, classes).loss : net.train_step(images, values.view()).loss;
  };
  const double first = step();
  double square = 0;
  for (const float each : net.gradients()) {
    square += static_cast<double>(each) * static_cast<double>(each);
  }
  BOOST_TEST_REQUIRE((std::isfinite(square) && square > 0));
  const double rate = 0.003 * first / square;  // of the mean loss: by 1 %
  for (std::size_t i = 0; i < net.values().size(); ++i) {
    net.values()[i] -= static_cast<float>(rate) * net.gradients()[i];
  }
  return {first, step()};
}

/// The loss falls, and is the same in both layouts.
template <class Build>
void require_training(const nn::value_shape& input, const Build& build) {
  gradus::cpu device{{.intra_op_threads = 2}};
  small_network<gradus::nhwc> channels_last{device, input};
  small_network<gradus::nchw> channels_first{device, input};
  build(channels_last);
  build(channels_first);
  const two_losses last = train_two_steps(device, channels_last);
  const two_losses first = train_two_steps(device, channels_first);
  BOOST_TEST(last.second < last.first);
  BOOST_TEST(last.first == first.first, boost::test_tools::tolerance(1e-4));
  BOOST_TEST(last.second == first.second, boost::test_tools::tolerance(1e-3));
}

/// The shape of a layer's result; empty if there is no such layer.
nn::value_shape shape_behind(const small_network<gradus::nhwc>& net, const std::string& layer) {
  for (std::size_t i = 0; i < net.layers(); ++i) {
    if (net.layer_name(i) == layer) {
      return net.structure().shape(i + 1);
    }
  }
  return {};
}

template <class Build>
std::string small_model_error(const Build& build) {
  try {
    (void)small_model({3, 8, 8}, build);
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(models_small)

BOOST_AUTO_TEST_CASE(mobilenet_v2_has_the_published_sizes) {
  const auto made = [](double width, index_t classes = 1000) {
    return small_model({3, 224, 224},
                       [&](auto& net) { models::mobilenet_v2(net, {.classes = classes, .width = width}); });
  };
  const auto whole = made(1.0);
  BOOST_TEST(whole.parameter_count() == 3504872);      // torchvision.models.mobilenet_v2
  BOOST_TEST(whole.multiply_adds() == 300774272);      // 300 million in the paper
  BOOST_TEST(made(1.4).parameter_count() == 6108776);  // timm: mobilenetv2_140 6.11, mobilenetv2_050 1.97 million
  BOOST_TEST(made(0.5).parameter_count() == 1968680);
  BOOST_TEST(made(0.35).parameter_count() == 1677128);
  BOOST_TEST(made(1.0, 10).parameter_count() == 3504872 - 990 * 1281);
  const auto shape_of = [&](const std::string& name) { return shape_behind(whole, name); };
  BOOST_TEST((shape_of("stem_relu6") == nn::value_shape{32, 112, 112}));  // the column "input" of table 2
  BOOST_TEST((shape_of("block1_project_norm") == nn::value_shape{16, 112, 112}));
  BOOST_TEST((shape_of("block3_add") == nn::value_shape{24, 56, 56}));
  BOOST_TEST((shape_of("block6_add") == nn::value_shape{32, 28, 28}));
  BOOST_TEST((shape_of("block10_add") == nn::value_shape{64, 14, 14}));
  BOOST_TEST((shape_of("block13_add") == nn::value_shape{96, 14, 14}));
  BOOST_TEST((shape_of("block16_add") == nn::value_shape{160, 7, 7}));
  BOOST_TEST((shape_of("block17_project_norm") == nn::value_shape{320, 7, 7}));
  BOOST_TEST((shape_of("head_relu6") == nn::value_shape{1280, 7, 7}));
  require_training({3, 33, 32},
                   [](auto& net) { models::mobilenet_v2(net, {.classes = 3, .width = 0.25, .dropout_rate = 0}); });
  const std::string message = small_model_error([](auto& net) { models::mobilenet_v2(net, {.width = 0}); });
  BOOST_TEST(message.find("expected a width above 0, at most 100, got 0. [small_models.cpp:") != std::string::npos,
             message);
}

BOOST_AUTO_TEST_CASE(densenet_concatenates_what_its_layers_add) {
  const auto whole = small_model({3, 224, 224}, [](auto& net) { models::densenet(net, 121); });
  const auto shape_of = [&](const std::string& name) { return shape_behind(whole, name); };
  BOOST_TEST((shape_of("stem_max_pool") == nn::value_shape{64, 56, 56}));  // the column "output size" of table 1
  BOOST_TEST((shape_of("block1_layer1_1_conv") == nn::value_shape{128, 56, 56}));
  BOOST_TEST((shape_of("block1_layer6_concat") == nn::value_shape{256, 56, 56}));
  BOOST_TEST((shape_of("transition1_average_pool") == nn::value_shape{128, 28, 28}));
  BOOST_TEST((shape_of("block2_layer12_concat") == nn::value_shape{512, 28, 28}));
  BOOST_TEST((shape_of("transition2_average_pool") == nn::value_shape{256, 14, 14}));
  BOOST_TEST((shape_of("transition3_average_pool") == nn::value_shape{512, 7, 7}));
  BOOST_TEST((shape_of("block4_layer16_concat") == nn::value_shape{1024, 7, 7}));
  require_training({3, 33, 32}, [](auto& net) {
    models::densenet(net, {.classes = 3, .growth_rate = 5, .layers = {2, 1}, .stem_channels = 7, .compression = 0.6});
  });
  require_training({3, 16, 12}, [](auto& net) { models::cifar_densenet(net, 10, 3, 3); });
  require_training({3, 16, 12}, [](auto& net) { models::cifar_alexnet(net, 3); });
  const auto message_of = [](const models::densenet_options& options) {
    return small_model_error([&](auto& net) { models::densenet(net, options); });
  };
  for (const auto& [options, expected] : std::vector<std::pair<models::densenet_options, std::string>>{
           {{.layers = {}}, "expected at least 1 dense block, got 0. [small_models.cpp:"},
           {{.layers = {3, 0}}, "expected at least 1 layer in each dense block, got 0. ["},
           {{.growth_rate = 0}, "expected a growth_rate of at least 1, got 0. ["},
           {{.stem_channels = 0}, "expected at least 1 stem_channels, got 0. ["},
           {{.compression = 1.5}, "expected a compression above 0, at most 1, got 1.5. ["}}) {
    const std::string message = message_of(options);
    BOOST_TEST(message.find(expected) != std::string::npos, message);
  }
  const std::string depth = small_model_error([](auto& net) { models::densenet(net, 122); });
  BOOST_TEST(depth.find("a depth of 121, 161, 169 or 201, got 122. [small_models.cpp:") != std::string::npos, depth);
  const std::string of_cifar = small_model_error([](auto& net) { models::cifar_densenet(net, 41, 12); });
  BOOST_TEST(of_cifar.find("a depth of 3 n + 4 such as 40 or 100, got 41. [") != std::string::npos, of_cifar);
}

BOOST_AUTO_TEST_CASE(relu6_is_between_0_and_6) {
  auto net = small_model({5}, [](auto& made) { (void)made.add("relu6", nn::relu6{}, made.input()); });
  net.compile({.max_batch_size = 1});
  gradus::image_tensor<float, gradus::nhwc> x{net.device(), {1, 5, 1, 1}};
  const std::vector<float> from{-1, 0, 3, 6, 7};
  std::copy(from.begin(), from.end(), x.data());
  const auto y = net.forward(x);
  BOOST_TEST(std::vector<float>(y.data(), y.data() + 5) == (std::vector<float>{0, 0, 3, 6, 6}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(multilayer_perceptrons) {
  const auto net = small_model({2, 3, 4}, [](auto& made) {
    const nn::value y = models::mlp(made, {.hidden = {7, 5}, .outputs = 2, .dropout_rate = 0.5});
    made.loss(nn::mean_squared_error{}, y);
  });
  BOOST_TEST(net.parameter_count() == 25 * 7 + 8 * 5 + 6 * 2);
  BOOST_TEST((net.output_shape() == nn::value_shape{2}));
  BOOST_TEST(net.layers() == 7U);
  BOOST_TEST(net.layer_name(3) == "hidden2");
  require_training({2, 3, 4}, [](auto& made) {
    const models::mlp_options<nn::tanh> options{.hidden = {7, 5}, .outputs = 2};
    made.loss(nn::mean_squared_error{}, models::mlp(made, options));
  });
  const auto linear = small_model({3}, [](auto& made) { (void)models::mlp(made, {.outputs = 4}); });
  BOOST_TEST(linear.parameter_count() == 16);
  const std::string message = small_model_error([](auto& made) { (void)models::mlp(made, {.hidden = {0}}); });
  BOOST_TEST(
      message.find("layer 'hidden1' on (3, 8, 8): dense: expected out_features of at least 1, got 0. "
                   "Hint: say how many numbers it makes: nn::dense{.out_features = 10}. [small_models.cpp:") == 0U,
      message);
}

BOOST_AUTO_TEST_CASE(autoencoders) {
  const auto net = small_model({1, 28, 28}, [](auto& made) {
    const auto values = models::autoencoder(made, {.hidden = {128, 64}, .code = 16});
    BOOST_TEST((made.shape(values.code) == nn::value_shape{16}));
    made.loss(nn::mean_squared_error{}, values.reconstruction);
  });
  BOOST_TEST(net.parameter_count() == 785 * 128 + 129 * 64 + 65 * 16 + 17 * 64 + 65 * 128 + 129 * 784);
  BOOST_TEST((net.output_shape() == nn::value_shape{784}));
  require_training({2, 3, 4}, [](auto& made) {
    const models::autoencoder_options<nn::sigmoid> options{.hidden = {9}, .code = 4};
    made.loss(nn::mean_squared_error{}, models::autoencoder(made, options).reconstruction);
  });
}

BOOST_AUTO_TEST_CASE(residual_networks_for_regression) {
  const auto numbers = small_model(
      {3, 32, 32}, [](auto& net) { (void)models::resnet_regression(net, {.outputs = 2, .blocks = 1, .channels = 8}); });
  // Convolutions without bias, each with 2 parameters a channel: stem 3 -> 8; 8 -> 8 twice; 8 -> 16 -> 16 and 1 x 1;
  // 16 -> 32 -> 32 and 1 x 1; the dense layer.
  const index_t stem = 9 * 3 * 8 + 16;
  const index_t first = 2 * (9 * 8 * 8 + 16);
  const index_t second = 9 * 8 * 16 + 32 + 9 * 16 * 16 + 32 + 8 * 16 + 32;
  const index_t third = 9 * 16 * 32 + 64 + 9 * 32 * 32 + 64 + 16 * 32 + 64;
  BOOST_TEST(numbers.parameter_count() == stem + first + second + third + 33 * 2);
  const auto image = small_model({2, 9, 12}, [](auto& net) {
    const nn::value y = models::resnet_regression(net, {.output = models::regression_output::image,
                                                        .outputs = 3,
                                                        .blocks = 2,
                                                        .channels = 8,
                                                        .kernel = 5,
                                                        .normalize = false});
    BOOST_TEST((net.shape(y) == nn::value_shape{3, 9, 12}));
  });
  BOOST_TEST(image.parameter_count() == 25 * 2 * 8 + 8 + 4 * (25 * 8 * 8 + 8) + 25 * 8 * 3 + 3);
  require_training({2, 9, 12}, [](auto& net) {
    net.loss(nn::mean_squared_error{}, models::resnet_regression(net, {.outputs = 2, .blocks = 1, .channels = 4}));
  });
  require_training({2, 7, 5}, [](auto& net) {
    net.loss(nn::mean_squared_error{},
             models::resnet_regression(net, {.output = models::regression_output::image, .blocks = 2, .channels = 4}));
  });
  BOOST_TEST(small_model_error([](auto& net) {
               (void)models::resnet_regression(net, {.kernel = 4});
             }).find("expected an odd kernel, got 4. [small_models.cpp:") != std::string::npos);
  BOOST_TEST(small_model_error([](auto& net) {
               (void)models::resnet_regression(net, {.blocks = 0});
             }).find("expected at least 1 block, got 0") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
