// SPDX-License-Identifier: BSL-1.0
//
// The layer normalize with the numbers of a data set: what it computes, and how its numbers are stored and restored.
#include "gradus/nn/layers/normalize.hpp"

#include <algorithm>  // std::max
#include <boost/test/unit_test.hpp>
#include <cmath>    // std::abs, std::sqrt
#include <cstddef>  // std::size_t
#include <limits>   // std::numeric_limits
#include <string>   // std::string
#include <tuple>    // std::tuple
#include <vector>   // std::vector

#include "../../support/idx_files.hpp"
#include "../../support/network_checks.hpp"
#include "gradus/checkpoint/checkpoints.hpp"
#include "gradus/comm/self.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/data/in_memory.hpp"
#include "gradus/data/loader.hpp"
#include "gradus/data/normalization.hpp"
#include "gradus/data/random_split.hpp"
#include "gradus/data/synthetic.hpp"
#include "gradus/io/weights.hpp"
#include "gradus/nn/inference_session.hpp"
#include "gradus/optim/sgd.hpp"
#include "gradus/parallel/reproducible.hpp"
#include "gradus/train/reproducible.hpp"
#include "gradus/train/trainer.hpp"

namespace {

namespace fixed_nn = gradus::nn;
namespace fixed_data = gradus::data;

using fixed_networks =
    std::tuple<fixed_nn::network<float, gradus::nchw>, fixed_nn::network<float, gradus::nhwc>,
               fixed_nn::network<double, gradus::nhwc>, fixed_nn::network<gradus::bfloat16, gradus::nchw>>;

/// Numbers with rounding errors, for three channels.
[[nodiscard]] fixed_nn::normalize some_numbers() {
  return {.mean = {0.485, -3, 7.1}, .deviation = {0.229, 2, 0.1}};
}

template <class Network>
void build_normalized(Network& net, const fixed_nn::normalize& options) {
  fixed_nn::value x = net.add("normalize", options, net.input());
  x = net.add("conv", fixed_nn::conv2d{.out_channels = 4, .kernel = {3, 3}}, x);
  x = net.add("scores", fixed_nn::dense{.out_features = 3}, x);
  net.loss(fixed_nn::softmax_cross_entropy{}, x);
}

template <class Network>
[[nodiscard]] std::vector<double> numbers_of(const Network& net) {
  std::vector<double> all;
  for (const auto& each : net.buffers()) {
    for (gradus::index_t i = 0; i < each.elements.size(); ++i) {
      all.push_back(static_cast<double>(each.elements.data()[i]));
    }
  }
  return all;
}

template <class Network>
[[nodiscard]] std::vector<double> rounded_numbers() {
  using real = gradus::parameter_element_t<typename Network::element_type>;
  std::vector<double> all;
  for (const auto& list : {some_numbers().mean, some_numbers().deviation}) {
    for (const double each : list) {
      all.push_back(static_cast<double>(static_cast<real>(each)));
    }
  }
  return all;
}

[[nodiscard]] std::string complaint_of(const fixed_nn::normalize& options, bool flattened = false) {
  gradus::cpu device;
  fixed_nn::network<float> net{device, {3, 2, 2}};
  try {
    fixed_nn::value x = net.input();
    x = flattened ? net.add("flatten", fixed_nn::flatten{}, x) : x;
    (void)net.add("normalize", options, x);
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return {};
}

[[nodiscard]] fixed_data::image_dataset some_images(gradus::index_t examples = 30) {
  return fixed_data::make_synthetic({.examples = examples, .channels = 3, .height = 6, .width = 5, .classes = 3});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train_normalize)

BOOST_AUTO_TEST_CASE_TEMPLATE(subtracts_the_mean_and_divides_by_the_deviation, Network, fixed_networks) {
  using element = typename Network::element_type;
  using real = gradus::parameter_element_t<element>;
  gradus::cpu device{{.intra_op_threads = 2}};
  Network net{device, {3, 5, 7}};
  (void)net.add("normalize", some_numbers(), net.input());
  net.compile({.max_batch_size = 4});
  BOOST_TEST(numbers_of(net) == rounded_numbers<Network>(), boost::test_tools::per_element());
  const gradus_test::random_batch<element, typename Network::layout_type> batch{device, {3, 3, 5, 7}, 3};
  const auto out = net.forward(batch.images);
  const std::vector<double> numbers = rounded_numbers<Network>();
  double worst = 0;
  for (gradus::index_t n = 0; n < 3; ++n) {
    for (gradus::index_t c = 0; c < 3; ++c) {
      for (gradus::index_t h = 0; h < 5; ++h) {
        for (gradus::index_t w = 0; w < 7; ++w) {
          const auto channel = static_cast<std::size_t>(c);
          const double x = static_cast<double>(static_cast<real>(batch.images(n, c, h, w)));
          const double y = static_cast<double>(static_cast<real>(out(n, c, h, w)));
          const double want = (x - numbers[channel]) / numbers[3 + channel];
          worst = std::max(worst, std::abs(y - want) / (1 + std::abs(want)));
        }
      }
    }
  }
  BOOST_TEST(worst < (sizeof(element) == 2 ? 0.005 : sizeof(element) == 4 ? 1e-6 : 1e-14));
}

BOOST_AUTO_TEST_CASE(gradients_are_divided_by_the_deviation) {
  gradus::cpu device{{.intra_op_threads = 2}};
  fixed_nn::network<double, gradus::nhwc> net{device, {2, 4, 5}};
  fixed_nn::value x = net.add("before", fixed_nn::conv2d{.out_channels = 3}, net.input());
  const fixed_nn::value y = net.add("normalize", some_numbers(), x);
  x = net.add("sum", fixed_nn::add{}, {y, x});  // the gradient of x has two terms
  net.loss(fixed_nn::softmax_cross_entropy{}, net.add("scores", fixed_nn::dense{.out_features = 3}, x));
  net.compile({.max_batch_size = 4, .seed = 5});
  const gradus_test::random_batch<double, gradus::nhwc> batch{device, {3, 2, 4, 5}, 3};
  const auto worst = gradus_test::check_gradients(net, batch);
  BOOST_TEST(worst.relative < 1e-5, worst.relative << " at " << worst.where);
  BOOST_TEST((numbers_of(net) == rounded_numbers<fixed_nn::network<double>>()));
}

BOOST_AUTO_TEST_CASE(numbers_that_make_no_sense_are_refused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto says = [](const fixed_nn::normalize& options, const std::string& text, bool flattened = false) {
    const std::string what = complaint_of(options, flattened);
    BOOST_TEST(what.find(text) != std::string::npos, what);
  };
  says({.mean = {1, 2}}, "a mean for each of 3 channels, or none");
  says({.deviation = {1, 2, 3, 4}}, "a deviation for each of 3 channels, or none");
  says({.mean = {1, nan, 2}}, "a finite mean");
  says({.deviation = {1, 1, std::numeric_limits<double>::infinity()}}, "a finite deviation");
  says({.deviation = {1, 0, 1}}, "deviations above 0");
  says({.deviation = {1, -2, 1}}, "deviations above 0");
  says({.mean = {1, 2, 3}}, "before nn::flatten", true);
  BOOST_TEST(complaint_of({}) == "");
}

BOOST_AUTO_TEST_CASE(numbers_are_saved_with_the_weights) {
  const idx_files::folder folder;
  const std::string file = (folder.path() / "w.safetensors").string();
  gradus::cpu device;
  fixed_nn::network<float, gradus::nhwc> net{device, {3, 6, 5}};
  build_normalized(net, some_numbers());
  net.compile({.max_batch_size = 2, .seed = 1});
  gradus::io::save_weights(net, file);
  for (const fixed_nn::normalize& other : {fixed_nn::normalize{}, fixed_nn::normalize{.mean = {9, 9, 9}}}) {
    fixed_nn::network<float, gradus::nchw> again{device, {3, 6, 5}};
    build_normalized(again, other);
    again.compile({.max_batch_size = 2, .seed = 2});
    gradus::io::load_weights(again, file);
    BOOST_TEST((numbers_of(again) == rounded_numbers<fixed_nn::network<float>>()));
  }
}

BOOST_AUTO_TEST_CASE(inference_folds_it_into_a_convolution_before_it) {
  gradus::cpu device;
  const gradus_test::random_batch<float, gradus::nhwc> batch{device, {2, 2, 6, 5}, 3};
  const auto build = [](auto& net) {
    const fixed_nn::value x = net.add("conv", fixed_nn::conv2d{.out_channels = 3, .kernel = {3, 3}}, net.input());
    net.add("scores", fixed_nn::dense{.out_features = 3}, net.add("normalize", some_numbers(), x));
  };
  fixed_nn::network<float, gradus::nhwc> net{device, {2, 6, 5}};
  build(net);
  net.compile({.max_batch_size = 2, .seed = 3});
  const auto plain = net.forward(batch.images);
  const std::vector<float> expected(plain.data(), plain.data() + plain.size());
  fixed_nn::network<float, gradus::nhwc> folded{device, {2, 6, 5}};
  build(folded);
  folded.compile_for_inference({.max_batch_size = 2, .seed = 3});
  fixed_nn::inference_session session{folded};
  const auto scores = session.forward(batch.images);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(std::abs(scores.data()[i] - expected[i]) < 1e-4F * (1 + std::abs(expected[i])));
  }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_has_the_numbers) {
  const idx_files::folder folder;
  const std::string files = (folder.path() / "checkpoints").string();
  gradus::cpu device;
  const auto images = some_images();
  fixed_data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 8}};
  const auto train = [&](const fixed_nn::normalize& options, int epochs) {
    fixed_nn::network<float, gradus::nhwc> net{device, {3, 6, 5}};
    build_normalized(net, options);
    net.compile({.max_batch_size = 8, .seed = 2});
    gradus::train::trainer trainer{net, gradus::optim::sgd{}};
    (void)trainer.resume(files);
    trainer.fit(loader, {.epochs = epochs, .learning_rate = 0.01},
                gradus::train::checkpoints{files, {.signals = false}});
    BOOST_TEST(trainer.steps() == 4 * epochs);
    return numbers_of(net);
  };
  BOOST_TEST((train(some_numbers(), 1) == rounded_numbers<fixed_nn::network<float>>()));
  BOOST_TEST((train({}, 2) == rounded_numbers<fixed_nn::network<float>>()));
}

// Three of four workers have examples: the mean of three equal numbers may be another number.
BOOST_AUTO_TEST_CASE(virtual_workers_leave_the_numbers) {
  gradus::cpu device;
  const auto images = some_images(9);
  fixed_data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 3}};
  const std::vector<double> many{1.9, 1.99, 1.7, 1.77, 0.93, 0.97, 0.91, 0.95, 0.83, 0.87, 0.81, 0.89};
  fixed_nn::network<float, gradus::nhwc> net{device, {3, 6, 5}};
  fixed_nn::value x = net.add("conv", fixed_nn::conv2d{.out_channels = 12}, net.input());
  x = net.add("normalize", fixed_nn::normalize{.mean = many, .deviation = many}, x);
  net.loss(fixed_nn::softmax_cross_entropy{}, net.add("scores", fixed_nn::dense{.out_features = 3}, x));
  net.compile({.max_batch_size = 3, .seed = 2});
  const std::vector<double> before = numbers_of(net);
  gradus::comm::self alone;
  gradus::train::trainer trainer{net, gradus::optim::sgd{}, alone,
                                 gradus::parallel::reproducible<>{.strategy = {}, .virtual_workers = 4}};
  trainer.fit(loader, {.epochs = 3, .learning_rate = 0.01});
  BOOST_TEST(numbers_of(net) == before, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(numbers_of_a_data_set_are_those_of_a_plain_sum) {
  const auto images = some_images();
  const fixed_data::normalization numbers = fixed_data::normalization_of(images);
  BOOST_TEST(numbers.scale == 1.0 / 255.0);
  std::vector<double> planes(3 * 30);
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0;
    double squares = 0;
    for (gradus::index_t i = 0; i < images.size(); ++i) {
      images.read(i, planes.data());
      for (std::size_t k = 0; k < 30; ++k) {
        sum += planes[c * 30 + k];
        squares += planes[c * 30 + k] * planes[c * 30 + k];
      }
    }
    const double mean = sum / 900;
    BOOST_TEST(std::abs(numbers.mean[c] - mean) < 1e-12);
    BOOST_TEST(std::abs(numbers.deviation[c] - std::sqrt(squares / 900 - mean * mean)) < 1e-12);
  }
  // The set and the layer get the same images of them.
  const auto normalized = images.with(numbers);
  gradus::cpu device;
  fixed_nn::network<double, gradus::nchw> net{device, {3, 6, 5}};
  net.add("normalize", fixed_nn::normalize{.mean = numbers.mean, .deviation = numbers.deviation}, net.input());
  net.compile({.max_batch_size = 1});
  gradus::image_tensor<double, gradus::nchw> one{device, {1, 3, 6, 5}};
  images.read(7, one.data());
  normalized.read(7, planes.data());
  const auto out = net.forward(one);
  for (std::size_t k = 0; k < planes.size(); ++k) {
    BOOST_TEST(std::abs(out.data()[k] - planes[k]) < 1e-12);
  }
  // Parts have the scale of the set, and other numbers.
  const auto parts = fixed_data::random_split(images, {0.5, 0.5});
  BOOST_TEST(fixed_data::normalization_of(parts[0]).scale == 1.0 / 255.0);
  BOOST_TEST(fixed_data::normalization_of(parts[0]).mean[0] != numbers.mean[0]);
}

BOOST_AUTO_TEST_CASE(a_large_mean_loses_no_digits_of_the_deviation) {
  const auto of = [](std::vector<double> x) {
    const std::vector<int> labels(x.size(), 0);
    return fixed_data::normalization_of(fixed_data::in_memory(x, labels, {.classes = 1}));
  };
  const fixed_data::normalization far_away = of({1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 6});
  BOOST_TEST(far_away.scale == 1.0);
  BOOST_TEST(far_away.mean[0] == 1e9 + 3);
  BOOST_TEST(std::abs(far_away.deviation[0] - std::sqrt(3.5)) < 1e-9);
  BOOST_TEST(of({4, 4, 4}).deviation[0] == 1);
  BOOST_CHECK_EXCEPTION(of({1, std::numeric_limits<double>::quiet_NaN()}), gradus::format_error, [](const auto& e) {
    return std::string{e.what()}.find("channel 0 of example 1") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(a_set_that_is_normalized_has_no_numbers_left) {
  const auto normalized = some_images().with({.mean = {0.5, 0.5, 0.5}});
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(fixed_data::normalization_of(normalized)), gradus::configuration_error,
      [](const auto& e) { return std::string{e.what()}.find("not normalized yet") != std::string::npos; });
  const fixed_data::subset none{normalized, {}};
  BOOST_CHECK_EXCEPTION(static_cast<void>(fixed_data::normalization_of(none)), gradus::configuration_error,
                        [](const auto& e) { return std::string{e.what()}.find("with examples") != std::string::npos; });
}

BOOST_AUTO_TEST_SUITE_END()
