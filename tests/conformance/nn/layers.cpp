// SPDX-License-Identifier: BSL-1.0
//
// Every layer keeps the contract with the plan: it reads, writes, adds and masks what its traits say, and nothing else.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <variant>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/device/cpu.hpp"
#include "layer_cases.hpp"
#include "source_directory.hpp"

namespace {

template <class Element, class Layout>
struct kind {
  using element = Element;
  using layout = Layout;
};
using kinds =
    std::tuple<kind<double, gradus::nchw>, kind<double, gradus::nhwc>, kind<float, gradus::nchw>,
               kind<float, gradus::nhwc>, kind<gradus::bfloat16, gradus::nchw>, kind<gradus::bfloat16, gradus::nhwc>,
               kind<gradus::float16, gradus::nchw>, kind<gradus::float16, gradus::nhwc>>;

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_layers)

BOOST_AUTO_TEST_CASE_TEMPLATE(layers_keep_their_contract, Kind, kinds) {
  gradus::cpu device{{.intra_op_threads = 2}};
  gradus_test::check_layer_contracts<typename Kind::element, typename Kind::layout>(device);
}

BOOST_AUTO_TEST_CASE(every_layer_has_a_case) {
  std::set<std::size_t> kinds_of_cases;
  for (const gradus::conformance::layer_case& each : gradus::conformance::layer_cases()) {
    kinds_of_cases.insert(each.options.index());
  }
  constexpr std::size_t layers = std::variant_size_v<gradus::conformance::layer_options>;
  BOOST_TEST(kinds_of_cases.size() == layers);
  // The library has no other layers.
  std::size_t declared = 0;
  const std::set<std::string> moving{"crop2d.hpp",  "multiply.hpp", "permute.hpp",   "pixel_shuffle.hpp",
                                     "reshape.hpp", "softmax.hpp",  "upsample2d.hpp"};
  const std::regex layer{"\n  (class layer;|using layer = )"};
  for (const auto& entry : std::filesystem::directory_iterator{path_in_tests("../include/gradus/nn/layers")}) {
    const std::string name = entry.path().filename().string();
    if (name == "activations.hpp" || name == "elementwise.hpp" || name == "normalize.hpp") {
      continue;  // need formula kernels; tests/property/nn_elementwise checks them with the same suite
    }
    if (moving.contains(name)) {
      continue;  // need kernels of their own; tests/property/nn_shaping checks them with the same suite
    }
    if (name == "conv_transpose2d.hpp" || name == "pad2d.hpp") {
      continue;  // need kernels of their own; tests/property/nn_geometry checks them with the same suite
    }
    if (name == "group_norm.hpp" || name == "layer_norm.hpp" || name == "synchronized_batch_norm.hpp") {
      continue;  // need kernels of their own; property/nn/norms.cpp and conformance/parallel check them in the same way
    }
    std::ifstream file{entry.path()};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    declared += static_cast<std::size_t>(
        std::distance(std::sregex_iterator{text.begin(), text.end(), layer}, std::sregex_iterator{}));
  }
  BOOST_TEST(declared == layers);
}

BOOST_AUTO_TEST_SUITE_END()
