// SPDX-License-Identifier: BSL-1.0
//
// What save_onnx says where it cannot write a network; tests/onnx runs the files that it writes.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gradus/core/error.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/io/onnx_export.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers.hpp"
#include "gradus/nn/network.hpp"

namespace {

namespace nn = gradus::nn;

/// A layer that the export does not know.
struct doubled {
  template <class Element, class Layout, class Device>
  class layer final : public nn::layer<Element, Layout, Device> {
    using base = nn::layer<Element, Layout, Device>;

   public:
    explicit layer(const doubled& /*options*/) {}
    [[nodiscard]] std::string_view kind() const noexcept override { return "doubled"; }
    nn::value_shape infer(std::span<const nn::value_shape> inputs) override { return inputs[0]; }
    void forward(const typename base::forward_call& /*call*/) override {}
    void backward(const typename base::backward_call& /*call*/) override {}
  };
};

struct onnx_folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "gradus_test_onnx";
  gradus::cpu device;

  onnx_folder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directory(path);
  }
  ~onnx_folder() { std::filesystem::remove_all(path); }
};

[[nodiscard]] std::string content_of(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

template <class Layout>
void save_pooled_convolution(gradus::cpu& device, const std::filesystem::path& path) {
  nn::network<float, Layout> net{device, {3, 9, 9}};
  nn::value x = net.add("conv", nn::conv2d{.out_channels = 4, .kernel = {3, 3}}, net.input());
  x = net.add("pool", nn::max_pool2d{}, x);
  net.add("scores", nn::dense{.out_features = 2}, x);
  net.compile({.max_batch_size = 1, .seed = 5});
  gradus::io::save_onnx(net, path);
}

[[nodiscard]] auto says(std::string expected) {
  return [text = std::move(expected)](const gradus::error& failure) {
    BOOST_TEST_MESSAGE(failure.what());
    const std::string what = failure.what();
    return what.find(text) != std::string::npos && what.find("onnx_export.cpp") != std::string::npos;
  };
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(onnx_export, onnx_folder)

BOOST_AUTO_TEST_CASE(both_layouts_make_the_same_file) {
  save_pooled_convolution<gradus::nchw>(device, path / "model.onnx");
  const std::string first = content_of(path / "model.onnx");
  save_pooled_convolution<gradus::nhwc>(device, path / "model.onnx");
  BOOST_TEST(first.size() > 1000U);
  BOOST_TEST((first == content_of(path / "model.onnx")));
}

BOOST_AUTO_TEST_CASE(a_layer_without_operators_is_named) {
  nn::network<float> net{device, {3, 9, 9}};
  net.add("twice", doubled{}, net.input());
  net.compile({.max_batch_size = 1});
  BOOST_CHECK_EXCEPTION(gradus::io::save_onnx(net, path / "model.onnx"), gradus::configuration_error,
                        says("layer 'twice'"));
  BOOST_TEST(!std::filesystem::exists(path / "model.onnx"));
}

BOOST_AUTO_TEST_CASE(a_network_is_compiled_before) {
  nn::network<float> net{device, {3, 9, 9}};
  net.add("relu", nn::relu{}, net.input());
  BOOST_CHECK_EXCEPTION(gradus::io::save_onnx(net, path / "model.onnx"), gradus::configuration_error, says("compile"));
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_missing_is_named) {
  nn::network<float> net{device, {3, 9, 9}};
  net.add("relu", nn::relu{}, net.input());
  net.compile({.max_batch_size = 1});
  BOOST_CHECK_EXCEPTION(gradus::io::save_onnx(net, path / "missing" / "model.onnx"), gradus::format_error,
                        says("missing/model.onnx"));
}

BOOST_AUTO_TEST_SUITE_END()
