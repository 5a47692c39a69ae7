// SPDX-License-Identifier: BSL-1.0
//
// The layer normalize in a model: what is read again computes the same.
#include <boost/test/unit_test.hpp>

#include <cmath>    // std::abs
#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "../../support/idx_files.hpp"
#include "../../support/network_checks.hpp"
#include "gradus/nn/layers/normalize.hpp"
#include "gradus/onnx/export.hpp"
#include "gradus/onnx/import.hpp"

BOOST_AUTO_TEST_SUITE(onnx_normalize)

BOOST_AUTO_TEST_CASE(an_exported_model_computes_the_same) {
  const idx_files::folder folder;
  const std::string file = (folder.path() / "model.onnx").string();
  const gradus::nn::normalize numbers{.mean = {0.485, -3, 7.1}, .deviation = {0.229, 2, 0.1}};
  gradus::cpu device;
  for (const bool vector : {false, true}) {
    gradus::nn::network<float, gradus::nhwc> net{device, {3, 6, 5}};
    gradus::nn::value x = net.input();
    if (vector) {
      x = net.add("before", gradus::nn::dense{.out_features = 3}, x);
    }
    net.add("scores", gradus::nn::dense{.out_features = 2}, net.add("normalize", numbers, x));
    net.compile({.max_batch_size = 2, .seed = 4});
    gradus::io::save_onnx(net, file);
    gradus::io::onnx_model model{file};
    gradus::nn::network<float, gradus::nhwc> again{device, model.input()};
    (void)model.add_to(again, again.input());
    again.compile({.max_batch_size = 2});
    model.assign_weights(again);
    const gradus_test::random_batch<float, gradus::nhwc> batch{device, {2, 3, 6, 5}, 3};
    const auto one = net.forward(batch.images);
    const std::vector<float> expected(one.data(), one.data() + one.size());
    const auto two = again.forward(batch.images);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      BOOST_TEST(std::abs(two.data()[i] - expected[i]) < 1e-4F * (1 + std::abs(expected[i])));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
