// SPDX-License-Identifier: BSL-1.0
//
// Networks that predict each pixel: parameters and shapes against the papers, and a step of training.
#include <boost/test/unit_test.hpp>

#include <gradus/models/deeplab.hpp>
#include <gradus/models/unet.hpp>
#include <gradus/nn/network.hpp>
#include <gradus/tensor/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace models = gradus::models;
namespace nn = gradus::nn;

namespace {

using pixel_network = nn::network<float, gradus::nhwc>;

/// A network that is not compiled, and its scores.
struct built {
  template <class Build>
  built(nn::value_shape images, const Build& build) : net{device, images}, scores{build(net)} {}

  gradus::cpu device{{.intra_op_threads = 1}};
  pixel_network net;
  nn::value scores;
};

void check_shape(const built& have, const nn::value_shape& shape) {
  BOOST_TEST(nn::describe(have.net.shape(have.scores)) == nn::describe(shape));
}

/// The loss falls by a hundredth along the gradient, to first order.
template <class Layout, class Build>
void check_training(nn::value_shape images, std::int32_t classes, const Build& build) {
  gradus::cpu device{{.intra_op_threads = 2}};
  nn::network<float, Layout> net{device, images};
  net.loss(nn::softmax_cross_entropy{}, build(net));
  net.compile({.max_batch_size = 2, .seed = 5});
  gradus::image_tensor<float, Layout> batch{device, images.batch(2)};
  for (gradus::index_t i = 0; i < batch.size(); ++i) {
    batch.data()[i] = static_cast<float>((i * 7) % 13) * 0.1F - 0.6F;
  }
  std::vector<std::int32_t> labels;
  for (gradus::index_t i = 0; i < 2 * images.height * images.width; ++i) {
    labels.push_back(static_cast<std::int32_t>((i / 5) % classes));
  }
  const double first = net.train_step(batch, labels, {}).loss;
  double square = 0;
  for (const float each : net.gradients()) {
    square += static_cast<double>(each) * static_cast<double>(each);
  }
  BOOST_TEST_REQUIRE((std::isfinite(first) && std::isfinite(square) && square > 0));
  const double examples = 2;
  const double rate = 0.01 * first / examples / square;
  for (std::size_t i = 0; i < net.values().size(); ++i) {
    net.values()[i] -= static_cast<float>(rate) * net.gradients()[i];
  }
  const double fall = 1 - net.train_step(batch, labels, {}).loss / first;
  BOOST_TEST((fall > 0.005 && fall < 0.015), "fell by " << fall);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(models_dense_prediction)

BOOST_AUTO_TEST_CASE(unet_of_the_paper) {
  const built paper{{1, 572, 572}, [](auto& net) { return models::unet(net, {.batch_norm = false, .padded = false}); }};
  BOOST_TEST(paper.net.parameter_count() == 31030658);
  check_shape(paper, {2, 388, 388});
}

BOOST_AUTO_TEST_CASE(unet_with_normalization) {
  const built padded{{3, 64, 96}, [](auto& net) { return models::unet(net); }};
  BOOST_TEST(padded.net.parameter_count() == 31037698);
  check_shape(padded, {2, 64, 96});
}

BOOST_AUTO_TEST_CASE(unet_refuses_what_is_not_possible) {
  const auto build = [](nn::value_shape images, models::unet_options options) {
    return [=] { built{images, [&](auto& net) { return models::unet(net, options); }}; };
  };
  BOOST_CHECK_EXCEPTION(build({1, 60, 64}, {})(), gradus::shape_error, [](const gradus::shape_error& e) {
    return std::string{e.what()}.find("multiples of 16") != std::string::npos;
  });
  BOOST_CHECK_THROW(build({1, 64, 64}, {.depth = 0})(), gradus::configuration_error);
  BOOST_CHECK_THROW(build({1, 64, 64}, {.out_channels = 0})(), gradus::configuration_error);
  BOOST_CHECK_THROW(build({1, 64, 64}, {.padded = false})(), gradus::shape_error);
}

BOOST_AUTO_TEST_CASE(deeplab) {
  // The backbone has 23,508,032. The pyramid: 2048*256, three times 9*2048*256, 2048*256, and 1280*256. The decoder:
  // 256*48, 9*304*256, 9*256*256. Twice the channels for each normalization, and 256*21 + 21 for the scores.
  const built net{{3, 129, 129}, [](auto& each) { return models::deeplab_v3_plus(each); }};
  BOOST_TEST(net.net.parameter_count() == 40352181);
  check_shape(net, {21, 129, 129});
  BOOST_CHECK_THROW(
      (built{{3, 65, 65}, [](auto& each) { return models::deeplab_v3_plus(each, {.output_stride = 4}); }}),
      gradus::configuration_error);
}

BOOST_AUTO_TEST_CASE(output_stride_of_a_backbone) {
  for (const int stride : {32, 16, 8}) {
    models::resnet_stages stages{};
    const built net{{3, 128, 128}, [&](auto& each) {
                      stages = models::resnet_backbone(each, 50, {.output_stride = stride});
                      return stages.back();
                    }};
    BOOST_TEST(net.net.parameter_count() == 23508032);
    check_shape(net, {2048, 128 / stride, 128 / stride});
    BOOST_TEST(net.net.shape(stages.front()).height == 32);
  }
}

BOOST_AUTO_TEST_CASE(unet_trains) {
  const auto build = [](auto& net) { return models::unet(net, {.out_channels = 3, .base_channels = 8, .depth = 2}); };
  check_training<gradus::nhwc>({2, 12, 16}, 3, build);
  check_training<gradus::nchw>({2, 12, 16}, 3, build);
}

BOOST_AUTO_TEST_SUITE_END()
