// SPDX-License-Identifier: BSL-1.0
//
// Data sets of arrays of the program: tensors, matrices of Eigen and spans.
#include "gradus/data/in_memory.hpp"

#include <Eigen/Core>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/data/loader.hpp"
#include "gradus/data/parallel_loader.hpp"

namespace {

namespace data = gradus::data;
using gradus::index_t;

template <class Set>
std::vector<double> in_memory_input(const Set& set, index_t i) {
  std::vector<double> planes(static_cast<std::size_t>(set.example().size()));
  set.read(i, planes.data());
  return planes;
}
template <class Set>
std::vector<double> in_memory_target(const Set& set, index_t i) {
  std::vector<double> planes(static_cast<std::size_t>(set.target().size()));
  set.read_target(i, planes.data());
  return planes;
}

template <class Call>
std::string text_of_failure(const Call& call) {
  try {
    call();
  } catch (const gradus::error& failure) {
    return failure.what();
  }
  return "no error";
}

void require_in_memory_text(const std::string& message, const std::string& part) {
  BOOST_TEST(message.find(part) != std::string::npos, message << "\ndoes not say: " << part);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_in_memory)

BOOST_AUTO_TEST_CASE(rows_of_eigen_matrices_are_examples) {
  Eigen::MatrixXf columns(3, 2);  // column-major
  columns << 1, 2, 3, 4, 5, 6;
  const Eigen::Matrix<double, 3, 2, Eigen::RowMajor> rows = columns.cast<double>();
  Eigen::VectorXd y(3);
  y << 7, 8, 9;
  const auto set = data::in_memory(columns, y);
  BOOST_TEST(set.size() == 3);
  BOOST_TEST((set.example() == gradus::image_extents{1, 2, 1, 1}));
  BOOST_TEST((set.target() == gradus::image_extents{1, 1, 1, 1}));
  BOOST_TEST(in_memory_input(set, 1) == (std::vector<double>{3, 4}), boost::test_tools::per_element());
  BOOST_TEST(in_memory_target(set, 2) == (std::vector<double>{9}), boost::test_tools::per_element());
  const auto same = data::in_memory(rows, y);
  BOOST_TEST(in_memory_input(same, 2) == (std::vector<double>{5, 6}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(tensors_of_any_layout_are_examples) {
  gradus::cpu device{{.intra_op_threads = 1}};
  gradus::image_tensor<float, gradus::nhwc> images{device, {2, 3, 2, 2}};
  for (index_t n = 0; n < 2; ++n) {
    for (index_t c = 0; c < 3; ++c) {
      for (index_t h = 0; h < 2; ++h) {
        for (index_t w = 0; w < 2; ++w) {
          images.view()(n, c, h, w) = static_cast<float>(1000 * n + 100 * c + 10 * h + w);
        }
      }
    }
  }
  const auto set = data::in_memory(images, images);
  BOOST_TEST(in_memory_input(set, 1) ==
                 (std::vector<double>{1000, 1001, 1010, 1011, 1100, 1101, 1110, 1111, 1200, 1201, 1210, 1211}),
             boost::test_tools::per_element());
  BOOST_TEST(in_memory_target(set, 1) == in_memory_input(set, 1), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(spans_with_classes_and_weights) {
  const std::vector<float> elements{0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<std::int32_t> labels{2, 0};
  const std::vector<double> weights{0.5, 2};
  const auto set = data::in_memory(data::examples_of(std::span{elements}, {1, 1, 2, 2}),
                                   data::examples_of(std::span{labels}, {1, 1, 1, 1}), {.weights = weights});
  BOOST_TEST(set.classes() == 3);
  std::int32_t label = -1;
  set.read_labels(0, &label);
  BOOST_TEST(label == 2);
  BOOST_TEST(set.weight(1) == 2.0);
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = 2, .shuffle = false}};
  loader.start_epoch(0);
  const auto* batch = loader.next();
  BOOST_TEST(batch->labels[0] == 2);
  BOOST_TEST(batch->weights[0] == 0.5F);
  BOOST_TEST(batch->weights[1] == 2.0F);
  BOOST_TEST(batch->targets.size() == 0);
}

BOOST_AUTO_TEST_CASE(spans_with_a_class_for_each_pixel) {
  const std::vector<float> elements(2 * 6);
  const std::vector<std::int32_t> labels{0, 1, 2, 255, 4, 5, 5, 4, 3, 2, 1, 0};
  const auto set = data::in_memory(data::examples_of(std::span{elements}, {1, 1, 2, 3}),
                                   data::examples_of(std::span{labels}, {1, 1, 2, 3}), {.ignored_label = 255});
  BOOST_TEST(set.classes() == 6);
  BOOST_TEST(!set.weighted());
  gradus::cpu device{{.intra_op_threads = 1}};
  data::loader<float, gradus::nhwc> loader{device, set, {.global_batch_size = 2, .shuffle = false}};
  loader.start_epoch(0);
  const auto* batch = loader.next();
  BOOST_TEST(std::vector<std::int32_t>(batch->labels.begin(), batch->labels.end()) == labels,
             boost::test_tools::per_element());
  BOOST_TEST(batch->weights.empty());
  require_in_memory_text(text_of_failure([&] {
                           static_cast<void>(data::in_memory(data::examples_of(std::span{elements}, {1, 1, 2, 3}),
                                                             data::examples_of(std::span{labels}, {1, 2, 1, 3})));
                         }),
                         "expected a class for each example, (n), or for each pixel, (n, h, w)");
}

BOOST_AUTO_TEST_CASE(loaders_give_real_targets_in_their_layout) {
  gradus::cpu device{{.intra_op_threads = 1}};
  std::vector<float> x(5 * 2);
  std::vector<float> y(5 * 2 * 3);
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = static_cast<float>(i);
  }
  const auto set =
      data::in_memory(data::examples_of(std::span{x}, {1, 2, 1, 1}), data::examples_of(std::span{y}, {1, 2, 3, 1}));
  const auto check = [&](auto& loader) {
    loader.start_epoch(0);
    index_t seen = 0;
    while (const auto* batch = loader.next()) {
      BOOST_TEST(
          (gradus::image_extents{batch->targets.extents()} == gradus::image_extents{batch->images.extent(0), 2, 3, 1}));
      for (index_t n = 0; n < batch->images.extent(0); ++n, ++seen) {
        for (index_t c = 0; c < 2; ++c) {
          for (index_t h = 0; h < 3; ++h) {
            BOOST_TEST(batch->targets(n, c, h, 0) == static_cast<float>(seen * 6 + c * 3 + h));
          }
        }
      }
    }
    BOOST_TEST(seen == 5);
  };
  data::loader<float, gradus::nhwc> last{device, set, {.global_batch_size = 2, .shuffle = false}};
  data::loader<float, gradus::nchw> first{device, set, {.global_batch_size = 3, .shuffle = false}};
  data::parallel_loader<float, gradus::nhwc> parallel{
      device, set, {.global_batch_size = 2, .shuffle = false}, {.threads = 3}};
  check(last);
  check(first);
  check(parallel);
}

BOOST_AUTO_TEST_CASE(weights_are_of_either_type_and_checked) {
  const std::vector<float> x{1, 2};
  const std::vector<float> weights{0.5F, 2};
  const auto inputs = data::examples_of(std::span{x}, {1, 1, 1, 1});
  BOOST_TEST(data::in_memory(inputs, inputs, {.weights = weights}).weight(1) == 2.0);
  BOOST_TEST(data::in_memory(inputs, inputs).weight(1) == 1.0);
  const std::vector<double> negative{1, -1};
  require_in_memory_text(
      text_of_failure([&] { static_cast<void>(data::in_memory(inputs, inputs, {.weights = negative})); }),
      "expected weights of examples that are finite and at least 0, got -1");
}

BOOST_AUTO_TEST_CASE(arrays_that_do_not_fit_are_refused) {
  const Eigen::MatrixXf x = Eigen::MatrixXf::Zero(3, 2);
  const Eigen::VectorXf y = Eigen::VectorXf::Zero(2);
  require_in_memory_text(
      text_of_failure([&] { static_cast<void>(data::in_memory(x, y)); }),
      "in_memory: expected a target for each of 3 examples, got 2 targets. Hint: the first axis counts "
      "examples");
  const Eigen::VectorXf three = Eigen::VectorXf::Zero(3);
  const std::vector<double> weights{1};
  require_in_memory_text(
      text_of_failure([&] { static_cast<void>(data::in_memory(x, three, {.weights = weights})); }),
      "expected a weight for each of 3 examples, or none, got 1 weights. Hint: in_memory_options::weights are "
      "of the examples; those of classes are nn::softmax_cross_entropy{.class_weights = ...}");
  const std::vector<float> seven(7);
  require_in_memory_text(text_of_failure([&] {
                           static_cast<void>(data::examples_of(std::span{seven}, {1, 2, 1, 1}));
                         }),
                         "expected a multiple of the 2 elements of an example of (1, 2, 1, 1), got 7 elements");
}

BOOST_AUTO_TEST_CASE(vectors_have_a_number_for_each_example) {
  const std::vector<float> x{1, 2, 3};
  const std::vector<double> y{4, 5, 6};
  const auto set = data::in_memory(x, y);
  BOOST_TEST(set.size() == 3);
  BOOST_TEST(in_memory_input(set, 1) == (std::vector<double>{2}), boost::test_tools::per_element());
  BOOST_TEST(in_memory_target(set, 2) == (std::vector<double>{6}), boost::test_tools::per_element());
  const auto planes = data::examples_of(x, {1, 3, 1, 1});
  BOOST_TEST((planes.shape == gradus::image_extents{1, 3, 1, 1}));
}

BOOST_AUTO_TEST_CASE(labels_are_integers_of_any_type) {
  const Eigen::MatrixXf x = Eigen::MatrixXf::Zero(3, 2);
  const std::vector<long> wide{2, 0, 1};
  const std::vector<unsigned char> narrow{2, 0, 1};
  const std::vector<std::int32_t> usual{2, 0, 1};
  const auto set = data::in_memory(x, wide);
  BOOST_TEST(set.classes() == 3);
  std::int32_t label = -1;
  set.read_labels(0, &label);
  BOOST_TEST(label == 2);
  BOOST_TEST(set.hash() == data::in_memory(x, usual).hash());
  BOOST_TEST(data::in_memory(x, narrow).hash() == data::in_memory(x, usual).hash());
  const std::vector<long> large{1, 1L << 40, 0};
  require_in_memory_text(text_of_failure([&] { static_cast<void>(data::in_memory(x, large)); }),
                         "expected labels of 32 bits, got 1099511627776 of example 1");
}

BOOST_AUTO_TEST_SUITE_END()
