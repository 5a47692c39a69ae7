// SPDX-License-Identifier: BSL-1.0
//
// Layers that move, resize and combine images, and softmax, against PyTorch (tests/golden/layers_shaping.txt): outputs
// and gradients, both layouts, float and double.
#include <boost/test/unit_test.hpp>

#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers/shaping.hpp"
#include "run.hpp"
#include "source_directory.hpp"

namespace {

namespace nn = gradus::nn;
using pointwise::plain_images;

using arrays_of_case = std::map<std::string, plain_images>;

std::map<std::string, arrays_of_case> golden_layers() {
  std::ifstream file{path_in_tests("golden/layers_shaping.txt")};
  BOOST_REQUIRE_MESSAGE(file.good(), "tests/golden/layers_shaping.txt is missing");
  std::map<std::string, arrays_of_case> cases;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words{line};
    std::string name;
    std::string what;
    gradus::image_extents shape;
    if (words >> name >> what && name != "#" && words >> shape.n >> shape.c >> shape.h >> shape.w) {
      plain_images images{shape};
      for (double& value : images.values) {
        BOOST_REQUIRE(words >> value);
      }
      cases[name].emplace(what, images);
    }
  }
  return cases;
}

template <class Element, class Layout, class Options>
void check_golden(const std::string& name, const Options& options, const arrays_of_case& golden) {
  std::vector<plain_images> inputs{golden.at("x")};
  if (golden.contains("b")) {
    inputs.push_back(golden.at("b"));
  }
  const shaping::outcome got = shaping::run<Element, Layout>(options, inputs, golden.at("g"));
  const auto compare = [&](const plain_images& have, const char* what) {
    const plain_images& want = golden.at(what);
    BOOST_TEST((have.shape == want.shape), name << ' ' << what);
    const double worst = pointwise::difference(have.values, want.values);
    BOOST_TEST(worst <= 8 * shaping::precision<Element>, name << ' ' << what << ' ' << Layout::name << ": " << worst);
  };
  compare(got.output, "y");
  compare(got.gradients[0], "dx");
  if (inputs.size() == 2) {
    compare(got.gradients[1], "db");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_shaping)

BOOST_AUTO_TEST_CASE(layers_compute_what_pytorch_computes) {
  const std::map<std::string, arrays_of_case> golden = golden_layers();
  std::size_t checked = 0;
  const auto check = [&](const std::string& name, const auto& options) {
    const auto found = golden.find(name);
    BOOST_REQUIRE_MESSAGE(found != golden.end(), name << " is missing in layers_shaping.txt");
    check_golden<double, gradus::nchw>(name, options, found->second);
    check_golden<double, gradus::nhwc>(name, options, found->second);
    check_golden<float, gradus::nchw>(name, options, found->second);
    check_golden<float, gradus::nhwc>(name, options, found->second);
    ++checked;
  };
  constexpr auto bilinear = nn::interpolation::bilinear;
  check("nearest_2", nn::upsample2d{});
  check("nearest_3_1", nn::upsample2d{.scale = {3, 1}});
  check("nearest_larger", nn::upsample2d{.size = {7, 9}});
  check("nearest_smaller", nn::upsample2d{.size = {3, 2}});
  check("bilinear_2", nn::upsample2d{.mode = bilinear});
  check("bilinear_4_3", nn::upsample2d{.scale = {4, 3}, .mode = bilinear});
  check("bilinear_larger", nn::upsample2d{.size = {7, 9}, .mode = bilinear});
  check("bilinear_smaller", nn::upsample2d{.size = {3, 2}, .mode = bilinear});
  check("bilinear_of_one", nn::upsample2d{.size = {3, 4}, .mode = bilinear});
  check("corners_2", nn::upsample2d{.mode = bilinear, .align_corners = true});
  check("corners_larger", nn::upsample2d{.size = {7, 9}, .mode = bilinear, .align_corners = true});
  check("corners_smaller", nn::upsample2d{.size = {3, 2}, .mode = bilinear, .align_corners = true});
  check("corners_to_one", nn::upsample2d{.size = {1, 1}, .mode = bilinear, .align_corners = true});
  check("pixel_shuffle_2", nn::pixel_shuffle{});
  check("pixel_shuffle_3", nn::pixel_shuffle{.factor = 3});
  check("pixel_unshuffle_2", nn::pixel_unshuffle{});
  check("pixel_unshuffle_3", nn::pixel_unshuffle{.factor = 3});
  check("crop", nn::crop2d{.top = 1, .left = 2, .size = {3, 4}});
  check("slice", nn::slice{.channels = {1, 3}, .columns = {3, -1}});
  check("permute", nn::permute{.axes = {gradus::axis::w, gradus::axis::c, gradus::axis::h}});
  check("reshape", nn::reshape{.channels = 6, .height = 2, .width = 5});
  check("reshape_unrefined", nn::reshape{.channels = 6, .height = -1, .width = 5});
  check("multiply", nn::multiply{});
  check("multiply_channels", nn::multiply{});
  check("softmax", nn::softmax{});
  check("softmax_vector", nn::softmax{});
  check("log_softmax", nn::log_softmax{});
  check("log_softmax_vector", nn::log_softmax{});
  BOOST_TEST(checked == golden.size());
}

BOOST_AUTO_TEST_SUITE_END()
