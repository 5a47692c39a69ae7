// SPDX-License-Identifier: BSL-1.0
//
// Dilated and transposed convolutions and padding against what PyTorch computes (tests/golden/layers_geometry.txt):
// outputs and all gradients, in all element types and both layouts.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/kernels/cpu.hpp"
#include "gradus/nn/layers/conv2d.hpp"
#include "gradus/nn/layers/conv_transpose2d.hpp"
#include "gradus/nn/layers/pad2d.hpp"
#include "run_image_layer.hpp"
#include "source_directory.hpp"

namespace {

namespace nn = gradus::nn;
using nn::padding_mode;
using tensors = std::map<std::string, std::vector<double>>;

const std::map<std::string, tensors>& geometry_golden() {
  static const auto result = [] {
    std::ifstream file{path_in_tests("golden/layers_geometry.txt")};
    BOOST_REQUIRE_MESSAGE(file.good(), "tests/golden/layers_geometry.txt is missing");
    std::map<std::string, tensors> cases;
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words{line};
      std::string name;
      std::string tensor;
      if (words >> name >> tensor && name != "#") {
        std::vector<double>& numbers = cases[name][tensor];
        for (double number = 0; words >> number;) {
          numbers.push_back(number);
        }
      }
    }
    return cases;
  }();
  return result;
}

/// Numbers are stored in 16 bits once; sums are exact in float.
template <class Element>
constexpr double geometry_tolerance = std::is_same_v<Element, double>            ? 1e-14
                                      : std::is_same_v<Element, float>           ? 1e-6
                                      : std::is_same_v<Element, gradus::float16> ? 1.0 / 2048
                                                                                 : 1.0 / 256;

template <class Element, class Layout>
struct golden_case {
  using element = Element;
  using layout = Layout;
};
using golden_cases =
    std::tuple<golden_case<double, gradus::nchw>, golden_case<double, gradus::nhwc>, golden_case<float, gradus::nchw>,
               golden_case<float, gradus::nhwc>, golden_case<gradus::bfloat16, gradus::nchw>,
               golden_case<gradus::bfloat16, gradus::nhwc>, golden_case<gradus::float16, gradus::nchw>,
               golden_case<gradus::float16, gradus::nhwc>>;

/// Compares layers with the golden numbers.
template <class Element, class Layout>
class golden_check {
 public:
  template <class Options>
  void operator()(const std::string& name, const Options& options, const nn::value_shape& shape) {
    ++checked_;
    const auto expected = geometry_golden().find(name);
    BOOST_REQUIRE_MESSAGE(expected != geometry_golden().end(), name << " is missing in layers_geometry.txt");
    const tensors found = gradus_test::run_image_layer<Element, Layout>(options, shape, device_);
    BOOST_TEST(found.size() == expected->second.size());
    for (const auto& [tensor, want] : expected->second) {
      BOOST_TEST_CONTEXT(name << " " << tensor) {
        const std::vector<double>& have = found.at(tensor);
        BOOST_REQUIRE_EQUAL(have.size(), want.size());
        double worst = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
          const double apart = std::abs(have[i] - want[i]) / (1 + std::abs(want[i]));
          worst = std::isnan(apart) ? INFINITY : std::max(worst, apart);
        }
        // The gradient of padded images is stored before its copies are added up.
        const bool folded = tensor == "dx" && name.starts_with("conv_");
        BOOST_TEST(worst <= (folded ? 4 : 1) * geometry_tolerance<Element>);
      }
    }
  }
  [[nodiscard]] std::size_t checked() const { return checked_; }

 private:
  gradus::cpu device_{{.intra_op_threads = 2}};
  std::size_t checked_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_geometry_golden)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_pytorch, Case, golden_cases) {
  golden_check<typename Case::element, typename Case::layout> check;
  const auto by = [](gradus::index_t all) { return nn::padding::explicit_padding(all); };
  const auto sides = [](gradus::index_t rows, gradus::index_t columns) {
    return nn::padding::explicit_padding(rows, rows, columns, columns);
  };
  const nn::size2d three{3, 3};
  const nn::size2d two{2, 2};
  check("dilated", nn::conv2d{.out_channels = 6, .kernel = three, .padding = by(2), .dilation = two}, {4, 9, 7});
  check("dilated_uneven",
        nn::conv2d{.out_channels = 5, .kernel = {3, 2}, .stride = {1, 2}, .padding = sides(3, 1), .dilation = {3, 2}},
        {3, 8, 11});
  check("dilated_strides",
        nn::conv2d{.out_channels = 4, .kernel = three, .stride = two, .padding = by(2), .dilation = two}, {4, 9, 10});
  check("dilated_groups",
        nn::conv2d{.out_channels = 4, .kernel = three, .padding = by(3), .dilation = three, .groups = 2, .bias = false},
        {6, 7, 8});
  check("dilated_depthwise",
        nn::conv2d{.out_channels = 5, .kernel = three, .padding = by(2), .dilation = two, .groups = 5}, {5, 6, 7});
  check("dilated_far", nn::conv2d{.out_channels = 3, .kernel = three, .padding = by(6), .dilation = {6, 6}}, {4, 5, 7});
  for (const auto& [name, mode] : {std::pair{std::string{"reflect"}, padding_mode::reflect},
                                   {"replicate", padding_mode::replicate},
                                   {"circular", padding_mode::circular}}) {
    check("conv_" + name, nn::conv2d{.out_channels = 4, .kernel = {3, 5}, .padding = sides(1, 2), .padding_mode = mode},
          {3, 5, 6});
    check("conv_" + name + "_dilated",
          nn::conv2d{.out_channels = 4,
                     .kernel = three,
                     .stride = two,
                     .padding = by(2),
                     .padding_mode = mode,
                     .dilation = two,
                     .groups = 2},
          {4, 7, 6});
    check("pad_" + name, nn::pad2d{.padding = nn::padding::explicit_padding(1, 4, 3, 2), .mode = mode}, {3, 5, 4});
  }
  check("pad_zeros", nn::pad2d{.padding = nn::padding::explicit_padding(1, 2, 3, 0)}, {3, 5, 4});
  check("pad_constant", nn::pad2d{.padding = nn::padding::explicit_padding(3, 0, 1, 2), .value = 0.5}, {3, 4, 5});
  using transposed = nn::conv_transpose2d;
  check("transposed", transposed{.out_channels = 3, .kernel = three}, {4, 5, 4});
  check("transposed_two", transposed{.out_channels = 4, .kernel = two, .stride = two}, {6, 5, 4});
  check("transposed_four", transposed{.out_channels = 4, .kernel = {4, 4}, .stride = two, .padding = by(1)}, {5, 4, 6});
  check("transposed_output_padding",
        transposed{.out_channels = 6, .kernel = three, .stride = two, .padding = by(1), .output_padding = {1, 1}},
        {4, 5, 6});
  check("transposed_dilated",
        transposed{.out_channels = 3,
                   .kernel = three,
                   .stride = two,
                   .padding = by(2),
                   .output_padding = {1, 1},
                   .dilation = two},
        {4, 6, 5});
  check("transposed_groups",
        transposed{
            .out_channels = 6, .kernel = three, .stride = two, .padding = by(1), .output_padding = {1, 1}, .groups = 2},
        {4, 5, 4});
  check("transposed_all",
        transposed{.out_channels = 4,
                   .kernel = {3, 2},
                   .stride = {2, 3},
                   .padding = sides(1, 2),
                   .output_padding = {1, 2},
                   .dilation = {2, 1},
                   .groups = 2,
                   .bias = false},
        {6, 4, 5});
  check("transposed_gaps", transposed{.out_channels = 4, .kernel = two, .stride = three, .output_padding = {2, 1}},
        {3, 4, 3});
  check("transposed_point", transposed{.out_channels = 4, .stride = two}, {3, 4, 3});
  check("transposed_depthwise",
        transposed{.out_channels = 5, .kernel = three, .stride = two, .padding = by(1), .groups = 5}, {5, 4, 3});
  BOOST_TEST(check.checked() == geometry_golden().size());
}

BOOST_AUTO_TEST_SUITE_END()
