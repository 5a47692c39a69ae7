// SPDX-License-Identifier: BSL-1.0
//
// The zoo against published counts: parameters, multiply-adds, and tensors that communication sees.
#include <boost/test/unit_test.hpp>

#include <gradus/models/alexnet.hpp>
#include <gradus/models/densenet.hpp>
#include <gradus/models/googlenet.hpp>
#include <gradus/models/inception.hpp>
#include <gradus/models/lenet.hpp>
#include <gradus/models/mnist.hpp>
#include <gradus/models/resnet.hpp>
#include <gradus/models/vgg.hpp>
#include <gradus/nn/network.hpp>

#include <algorithm>

namespace models = gradus::models;
namespace nn = gradus::nn;
using network = nn::network<float, gradus::nhwc>;

namespace {

struct counts {
  gradus::index_t parameters;
  double multiply_adds;  // in thousands of millions
};

template <class Build>
counts count(gradus::index_t channels, gradus::index_t side, const Build& build) {
  static gradus::cpu device{{.intra_op_threads = 1}};
  network net{device, {channels, side, side}};
  build(net);
  return {net.parameter_count(), static_cast<double>(net.multiply_adds()) * 1e-9};
}

void check(const counts& have, gradus::index_t parameters, double multiply_adds) {
  BOOST_TEST(have.parameters == parameters);
  BOOST_TEST(std::abs(have.multiply_adds - multiply_adds) < 0.0006, "multiply-adds " << have.multiply_adds);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(models_counts)

BOOST_AUTO_TEST_CASE(small_networks) {
  BOOST_TEST(count(1, 28, [](network& net) { models::mnist(net); }).parameters == 3274634);
  check(count(3, 28, [](network& net) { models::lenet(net); }), 2173353, 0.014);
  check(count(3, 227, [](network& net) { models::trivial(net); }), 4263877, 0.004);
}

BOOST_AUTO_TEST_CASE(densenet) {
  // torchvision.models.densenet121, 161, 169, 201
  check(count(3, 224, [](network& net) { models::densenet(net, 121); }), 7978856, 2.834);
  check(count(3, 224, [](network& net) { models::densenet(net, 161); }), 28681000, 7.728);
  check(count(3, 224, [](network& net) { models::densenet(net, 169); }), 14149480, 3.360);
  check(count(3, 224, [](network& net) { models::densenet(net, 201); }), 20013928, 4.291);
  // 1.0, 7.0 and 27.2 million in table 2 of the paper
  BOOST_TEST(count(3, 32, [](network& net) { models::cifar_densenet(net, 40, 12, 10); }).parameters == 1019722);
  BOOST_TEST(count(3, 32, [](network& net) { models::cifar_densenet(net, 100, 12); }).parameters == 6980811);
  BOOST_TEST(count(3, 32, [](network& net) { models::cifar_densenet(net, 100, 24, 10); }).parameters == 27249082);
  BOOST_TEST(count(3, 32, [](network& net) { models::cifar_alexnet(net); }).parameters == 1756619);
}

BOOST_AUTO_TEST_CASE(vgg) {
  check(count(3, 224, [](network& net) { models::vgg(net, 11); }), 132867433, 7.609);
  check(count(3, 224, [](network& net) { models::vgg(net, 16); }), 138361641, 15.470);
  BOOST_TEST(count(3, 224, [](network& net) { models::vgg(net, 16, 1000); }).parameters == 138357544);
  BOOST_TEST(count(3, 224, [](network& net) { models::vgg(net, 19, 1000); }).parameters == 143667240);
  // torchvision.models.vgg16_bn
  BOOST_TEST(count(3, 224, [](network& net) {
               models::vgg(net, 16, {.classes = 1000, .batch_norm = true});
             }).parameters == 138365992);
}

BOOST_AUTO_TEST_CASE(alexnet_and_overfeat) {
  check(count(3, 231, [](network& net) { models::overfeat(net); }), 145924969, 2.801);
  // 64*363+64, 192*1600+192, 384*1728+384, 384*3456+384, 256*3456+256, 9216*4096+4096, 4096*4096+4096, 4096*1001+1001
  BOOST_TEST(count(3, 227, [](network& net) { models::alexnet(net); }).parameters == 61842345);
  // torchvision.models.alexnet
  BOOST_TEST(count(3, 224, [](network& net) {
               models::alexnet(net, {.classes = 1000, .first_padding = 2, .fourth_channels = 256});
             }).parameters == 61100840);
}

BOOST_AUTO_TEST_CASE(googlenet) {
  BOOST_TEST(count(3, 224, [](network& net) { models::googlenet(net, 1000); }).parameters == 6998552);
  // torchvision.models.googlenet without its auxiliary classifiers
  check(count(3, 224,
              [](network& net) {
                models::googlenet(net, {.classes = 1000, .version = models::googlenet_version::torchvision});
              }),
        6624904, 1.498);
}

BOOST_AUTO_TEST_CASE(inception) {
  check(count(3, 299, [](network& net) { models::inception3(net); }), 23819401, 5.713);
  // torchvision.models.inception_v3 without its auxiliary classifier
  check(count(3, 299,
              [](network& net) {
                models::inception3(net, {.classes = 1000, .version = models::inception3_version::torchvision});
              }),
        23834568, 5.713);
  // The published 42,679,816 (1000 classes) learn a scale for each of the 31,584 normalized channels; this one does
  // not.
  BOOST_TEST(count(3, 299, [](network& net) { models::inception4(net, 1000); }).parameters == 42679816 - 31584);
}

BOOST_AUTO_TEST_CASE(resnet) {
  using enum models::resnet_version;
  const auto count_resnet = [](int depth, models::resnet_options options) {
    return count(3, 224, [&](network& net) { models::resnet(net, depth, options); });
  };
  check(count_resnet(50, {.version = v1}), 25559081, 3.858);
  check(count_resnet(50, {.version = v1_5}), 25559081, 4.089);
  check(count_resnet(50, {.version = v2}), 25551529, 3.858);
  check(count_resnet(101, {.version = v1}), 44551209, 7.570);
  check(count_resnet(101, {.version = v2}), 44543657, 7.570);
  BOOST_TEST(count_resnet(50, {.classes = 1000}).parameters == 25557032);
  BOOST_TEST(count_resnet(152, {.classes = 1000}).parameters == 60192808);
  // torchvision.models.resnet18, resnet34
  BOOST_TEST(count_resnet(18, {.classes = 1000}).parameters == 11689512);
  BOOST_TEST(count_resnet(34, {.classes = 1000}).parameters == 21797672);
  // 11,166,912 of the convolutions, 7,936 of the normalizations and 513,000 of the scores.
  BOOST_TEST(count_resnet(18, {.classes = 1000, .version = v2}).parameters == 11687848);
}

BOOST_AUTO_TEST_CASE(cifar_resnet) {
  using enum models::resnet_version;
  const auto count_resnet = [](int depth, models::resnet_options options = {.classes = 11, .version = v1}) {
    return count(3, 32, [&](network& net) { models::cifar_resnet(net, depth, options); });
  };
  check(count_resnet(20), 269787, 0.041);
  check(count_resnet(32), 464219, 0.069);
  check(count_resnet(44), 658651, 0.097);
  check(count_resnet(56), 853083, 0.125);
  check(count_resnet(110), 1728027, 0.253);
  // Published for 110 and for 164 layers: 1.7 million parameters ("Identity mappings", table 4).
  check(count_resnet(56, {.classes = 10, .version = v2}), 853050, 0.125);
  check(count_resnet(110, {.classes = 10, .version = v2}), 1727994, 0.253);
  check(count_resnet(164, {.classes = 10, .version = v2}), 1703290, 0.2445);
  check(count_resnet(1001, {.classes = 10, .version = v2}), 10327738, 1.4878);
}

BOOST_AUTO_TEST_CASE(unknown_depths_are_refused) {
  BOOST_CHECK_THROW(count(3, 224, [](network& net) { models::vgg(net, 12); }), gradus::configuration_error);
  BOOST_CHECK_THROW(count(3, 224, [](network& net) { models::resnet(net, 51); }), gradus::configuration_error);
  BOOST_CHECK_THROW(count(3, 32, [](network& net) { models::cifar_resnet(net, 21); }), gradus::configuration_error);
}

BOOST_AUTO_TEST_SUITE_END()
