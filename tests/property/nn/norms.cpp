// SPDX-License-Identifier: BSL-1.0
//
// Group, instance and layer normalization as layers: against PyTorch (tests/golden/layers_norms.txt), against their
// traits and finite differences, and in networks.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/image_coordinates.hpp"
#include "../../support/network_checks.hpp"
#include "gradus/conformance/layer.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/kernels/cpu/group_norm.hpp"
#include "gradus/nn/layers/layer_norm.hpp"
#include "source_directory.hpp"

namespace {

namespace norms {

namespace nn = gradus::nn;
using gradus::index_t;

/// Numbers by "case which".
const std::map<std::string, std::vector<double>>& golden() {
  static const auto result = [] {
    std::ifstream file{path_in_tests("golden/layers_norms.txt")};
    BOOST_REQUIRE_MESSAGE(file.good(), "tests/golden/layers_norms.txt is missing");
    std::map<std::string, std::vector<double>> cases;
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words{line};
      std::string name;
      std::string which;
      if (words >> name >> which && name != "#") {
        for (double number = 0; words >> number;) {
          cases[name + " " + which].push_back(number);
        }
      }
    }
    return cases;
  }();
  return result;
}

/// As values() of layers_norms.py, plus an offset.
double golden_value(index_t i, index_t first, double offset) {
  return static_cast<double>((37 * i * i + 101 * i + first) % 257 - 128) / 64 + offset;
}

template <class Element, class Layout>
std::vector<Element> golden_values(const gradus::image_extents& shape, index_t first, double offset) {
  const gradus::dense_mapping<Layout> at{shape};
  std::vector<Element> result(static_cast<std::size_t>(shape.size()));
  index_t i = 0;
  gradus_test::for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    result[static_cast<std::size_t>(at(n, c, h, w))] = static_cast<Element>(golden_value(i++, first, offset));
  });
  return result;
}

template <class Layout, class Element>
void agrees(const std::string& name, const gradus::image_extents& shape, const std::vector<Element>& have) {
  const auto found = golden().find(name);
  BOOST_REQUIRE_MESSAGE(found != golden().end(), name << " is missing in layers_norms.txt");
  BOOST_REQUIRE_EQUAL(found->second.size(), have.size());
  const gradus::dense_mapping<Layout> at{shape};
  double worst = 0;
  std::size_t i = 0;
  gradus_test::for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const double want = found->second[i++];
    const double difference = std::abs(static_cast<double>(have[static_cast<std::size_t>(at(n, c, h, w))]) - want);
    worst = std::max(worst, std::isnan(difference) ? 1e300 : difference / std::max(1.0, std::abs(want)));
  });
  BOOST_TEST(worst <= (sizeof(Element) == 4 ? 2e-5 : 1e-12), name << " " << Layout::name << ": " << worst);
}

template <class Element, class Layout, class Options>
void check_golden(const std::string& name, const Options& options) {
  gradus::cpu device{{.intra_op_threads = 2}};
  const nn::value_shape image{6, 2, 3};
  const gradus::image_extents shape = image.batch(2);
  typename Options::template layer<Element, Layout, gradus::cpu> layer{options};
  layer.infer(std::vector<nn::value_shape>{image});
  const auto x = golden_values<Element, Layout>(shape, 5, 3);
  const auto dy = golden_values<Element, Layout>(shape, 77, 0);
  auto dx = x;
  auto y = x;
  std::vector<std::vector<Element>> values;
  std::vector<std::vector<Element>> gradients;
  std::vector<nn::parameter_memory<Element>> memory;
  index_t first = 11;
  for (const auto& each : layer.parameters()) {
    values.push_back(golden_values<Element, Layout>(each.shape, first++, 1.0 / 128));
    gradients.push_back(values.back());
  }
  for (std::size_t k = 0; k < values.size(); ++k) {
    memory.push_back({values[k].data(), gradients[k].data()});
  }
  const auto bytes = layer.memory(device, 2);
  std::vector<std::byte> state(bytes.state);
  std::vector<std::byte> workspace(bytes.workspace);
  const nn::step_context context{};
  const std::vector<nn::image_batch<const Element, gradus::cpu>> inputs{{device, x.data(), shape}};
  const std::vector<nn::input_gradient<Element, gradus::cpu>> targets{{{device, dx.data(), shape}, {}}};
  layer.forward({device, inputs, {device, y.data(), shape}, nullptr, memory, {}, state, workspace, context});
  layer.backward({device,
                  inputs,
                  {device, y.data(), shape},
                  {device, dy.data(), shape},
                  targets,
                  {},
                  memory,
                  {},
                  state,
                  workspace,
                  context});
  agrees<Layout>(name + " y", shape, y);
  agrees<Layout>(name + " dx", shape, dx);
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    agrees<Layout>(name + (k == 0 ? " dweight" : " dbias"), layer.parameters()[k].shape, gradients[k]);
  }
}

template <class Element, class Layout>
struct norm_kind {
  using element = Element;
  using layout = Layout;
};
using exact_kinds = std::tuple<norm_kind<double, gradus::nchw>, norm_kind<double, gradus::nhwc>,
                               norm_kind<float, gradus::nchw>, norm_kind<float, gradus::nhwc>>;
using all_kinds = std::tuple<norm_kind<double, gradus::nchw>, norm_kind<double, gradus::nhwc>,
                             norm_kind<float, gradus::nchw>, norm_kind<float, gradus::nhwc>,
                             norm_kind<gradus::bfloat16, gradus::nchw>, norm_kind<gradus::bfloat16, gradus::nhwc>,
                             norm_kind<gradus::float16, gradus::nchw>, norm_kind<gradus::float16, gradus::nhwc>>;

/// Calls body(name, options) for every kind of layer that fits the channels, and that trains on images of one pixel.
template <class Body>
void for_each_norm(index_t channels, bool one_pixel, const Body& body) {
  body("group norm of all channels", nn::group_norm{.groups = 1});
  if (channels % 2 == 0) {
    body("group norm", nn::group_norm{.groups = 2});
    body("group norm without shift", nn::group_norm{.groups = 2, .shift = false});
  }
  if (!one_pixel) {
    body("instance norm", nn::instance_norm{});
    body("instance norm with scale and shift", nn::instance_norm{.scale = true, .shift = true});
  }
  body("layer norm", nn::layer_norm{});
  body("layer norm without scale", nn::layer_norm{.scale = false});
  body("layer norm of channels", nn::layer_norm{.axes = nn::norm_axes::channels});
}

}  // namespace norms

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_norms)

BOOST_AUTO_TEST_CASE_TEMPLATE(norms_are_those_of_pytorch, Kind, norms::exact_kinds) {
  const auto check = [](const char* name, const auto& options) {
    norms::check_golden<typename Kind::element, typename Kind::layout>(name, options);
  };
  namespace nn = gradus::nn;
  check("group_norm", nn::group_norm{.groups = 3});
  check("group_norm_1", nn::group_norm{.groups = 1, .epsilon = 0.01});
  check("instance_norm", nn::instance_norm{});
  check("instance_norm_affine", nn::instance_norm{.scale = true, .shift = true});
  check("layer_norm", nn::layer_norm{});
  check("layer_norm_2d", nn::layer_norm{.axes = nn::norm_axes::channels, .epsilon = 1e-6});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(norms_keep_their_contract, Kind, norms::all_kinds) {
  using element = typename Kind::element;
  gradus::cpu device{{.intra_op_threads = 2}};
  for (const gradus::nn::value_shape& image :
       {gradus::nn::value_shape{4, 5, 7}, {19, 1, 1}, {1, 1, 2}, {1, 6, 4}, {36, 3, 3}}) {
    norms::for_each_norm(image.channels, image.height * image.width == 1, [&](const char* name, const auto& options) {
      for (const gradus::index_t batch : {1, 3}) {
        gradus::conformance::contract_check<element, typename Kind::layout, gradus::cpu> check{
            device, options, {image}, batch};
        BOOST_TEST_CONTEXT(name << " " << describe(image) << " batch " << batch) {
          BOOST_CHECK_NO_THROW(check.run());
          if constexpr (sizeof(element) == 8) {
            BOOST_CHECK_NO_THROW(check.check_gradients());
          }
        }
      }
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(norms_train_in_networks, Kind, norms::exact_kinds) {
  namespace nn = gradus::nn;
  using element = typename Kind::element;
  norms::for_each_norm(4, false, [&](const char* name, const auto& options) {
    gradus::cpu device{{.intra_op_threads = 2}};
    nn::network<element, typename Kind::layout> net{device, {3, 5, 7}};
    nn::value x = net.add("before", nn::conv2d{.out_channels = 4, .kernel = {3, 3}}, net.input());
    const nn::value shortcut = x;
    x = net.add("norm", options, x);
    x = net.add("relu", nn::relu{}, x);
    x = net.add("next", options, x);
    x = net.add("sum", nn::add{}, {x, shortcut});
    x = net.add("relu2", nn::relu{}, x);
    x = net.add("scores", nn::dense{.out_features = 3}, x);
    net.loss(nn::softmax_cross_entropy{}, x);
    net.compile({.max_batch_size = 4, .seed = 5});
    const gradus_test::random_batch<element, typename Kind::layout> batch{device, {3, 3, 5, 7}, 3};
    BOOST_TEST_CONTEXT(name << " " << Kind::layout::name << "\n" << net.describe()) {
      // Statistics are those of the example in training and outside.
      const double trained = net.train_step(batch.images, batch.labels).loss;
      BOOST_TEST(net.evaluate(batch.images, batch.labels).loss == trained);
      BOOST_TEST((net.describe().find("norm") != std::string::npos));
      if constexpr (sizeof(element) == 8) {
        const auto worst = gradus_test::check_gradients(net, batch, 12);
        BOOST_TEST(worst.relative < 1e-5, "relative difference " << worst.relative << " at " << worst.where);
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(norms_refuse_what_they_cannot_do) {
  namespace nn = gradus::nn;
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto add = [&](const auto& options, bool flat) {
    nn::network<float, gradus::nchw> net{device, {6, 4, 4}};
    const nn::value x = flat ? net.add("flat", nn::flatten{}, net.input()) : net.input();
    net.add("norm", options, x);
  };
  add(nn::group_norm{.groups = 3}, false);
  BOOST_CHECK_THROW(add(nn::group_norm{.groups = 4}, false), gradus::shape_error);
  BOOST_CHECK_THROW(add(nn::group_norm{.groups = 0}, false), gradus::configuration_error);
  BOOST_CHECK_THROW(add(nn::group_norm{.groups = 2, .epsilon = 0}, false), gradus::configuration_error);
  BOOST_CHECK_THROW(add(nn::instance_norm{.epsilon = -1}, false), gradus::configuration_error);
  BOOST_CHECK_THROW(add(nn::layer_norm{}, true), gradus::shape_error);
}

BOOST_AUTO_TEST_SUITE_END()
