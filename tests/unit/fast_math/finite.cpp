// SPDX-License-Identifier: BSL-1.0
//
// Compiled with -ffast-math, with which compilers take every number to be finite: what is not finite is found all the
// same.
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/core/finite.hpp"
#include "gradus/gradus.hpp"
#include "gradus/optim/loss_scaling.hpp"

namespace nn = gradus::nn;

namespace {

#if !defined(__FAST_MATH__)
#error "this file is a test of -ffast-math"
#endif

// By their bits: the compiler does not know what they are.
float infinity() {
  return std::bit_cast<float>(std::uint32_t{0x7f80'0000});
}
float not_a_number() {
  return std::bit_cast<float>(std::uint32_t{0x7fc0'0001});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fast_math)

BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite_are_found) {
  for (const float number : {infinity(), -infinity(), not_a_number()}) {
    BOOST_TEST(!gradus::is_finite(number));
    for (std::size_t size = 1; size < 40; ++size) {
      for (std::size_t at = 0; at < size; ++at) {
        std::vector<float> numbers(size, 1.0F);
        BOOST_TEST(!gradus::optim::detail::any_not_finite(static_cast<gradus::index_t>(size), numbers.data()));
        numbers[at] = number;
        BOOST_TEST(gradus::optim::detail::any_not_finite(static_cast<gradus::index_t>(size), numbers.data()));
      }
    }
  }
  BOOST_TEST(gradus::is_finite(3.4e38F));
  BOOST_TEST(gradus::is_finite(1e-45F));
  BOOST_TEST(!gradus::is_finite(std::bit_cast<double>(std::uint64_t{0x7ff0'0000'0000'0000})));
}

BOOST_AUTO_TEST_CASE(a_training_whose_loss_is_not_finite_ends) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const auto images = gradus::data::make_synthetic({.examples = 32, .height = 4, .width = 4});
  gradus::data::loader<float, gradus::nhwc> loader{device, images, {.global_batch_size = 8}};
  nn::network<float, gradus::nhwc> net{device, {1, 4, 4}};
  net.loss(nn::softmax_cross_entropy{}, net.add("scores", nn::dense{.out_features = 10}, net.input()));
  net.compile({.max_batch_size = 8});
  net.values()[0] = not_a_number();
  gradus::comm::self alone;
  gradus::train::trainer trainer{net, gradus::optim::sgd{}, alone};
  BOOST_CHECK_EXCEPTION(trainer.fit(loader, {.epochs = 1}), gradus::numeric_error, [](const gradus::numeric_error& e) {
    return std::string{e.what()}.find("first not finite: parameter scores.") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
