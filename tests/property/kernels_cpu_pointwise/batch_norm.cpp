// SPDX-License-Identifier: BSL-1.0
//
// Batch normalization against its formulas in double precision and finite differences.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

#include "gradus/kernels/cpu/batch_norm.hpp"
#include "support.hpp"

namespace {

using namespace pointwise;
using gradus::kernels::activation;

const std::vector<image_extents> batch_norm_shapes{{1, 1, 1, 1},   {0, 3, 2, 2},   {2, 1, 1, 1},     {7, 3, 1, 1},
                                                   {2, 3, 5, 7},   {3, 17, 3, 3},  {4, 32, 4, 4},    {70, 5, 6, 5},
                                                   {2, 70, 13, 9}, {1, 2, 64, 65}, {130, 130, 1, 1}, {5, 2053, 2, 2}};

struct options {
  bool affine = true;
  bool residual = false;
  bool relu = false;
};
const std::vector<options> variants{
    {true, false, false}, {false, false, true}, {true, true, false}, {true, true, true}};

struct expected_forward {
  plain_images y;
  std::vector<double> mean;
  std::vector<double> inverse;
  std::vector<double> unbiased;
};

constexpr double epsilon = 1e-3;

expected_forward reference(const plain_images& x, const std::vector<double>& gamma, const std::vector<double>& beta,
                           const plain_images& residual, const options& variant) {
  const auto& shape = x.shape;
  const auto channels = static_cast<std::size_t>(shape.c);
  expected_forward out{plain_images{shape}, std::vector<double>(channels), std::vector<double>(channels),
                       std::vector<double>(channels)};
  const auto count = static_cast<double>(shape.n * shape.h * shape.w);
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    out.mean[static_cast<std::size_t>(c)] += x(n, c, h, w) / count;
  });
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const double d = x(n, c, h, w) - out.mean[static_cast<std::size_t>(c)];
    out.unbiased[static_cast<std::size_t>(c)] += d * d;
  });
  for (std::size_t c = 0; c < channels; ++c) {
    out.inverse[c] = 1 / std::sqrt(out.unbiased[c] / count + epsilon);
    out.unbiased[c] /= count > 1 ? count - 1 : count;
  }
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const auto i = static_cast<std::size_t>(c);
    double value = (x(n, c, h, w) - out.mean[i]) * out.inverse[i];
    value = variant.affine ? value * gamma[i] + beta[i] : value;
    value += variant.residual ? residual(n, c, h, w) : 0.0;
    out.y(n, c, h, w) = variant.relu && value < 0 ? 0.0 : value;
  });
  return out;
}

std::vector<double> channel_values(index_t channels, std::string_view name, double offset) {
  return plain_images{{1, channels, 1, 1}, name, 0.5, offset}.values;
}

/// Everything that forward and backward write.
template <class Element>
struct results {
  std::vector<Element> y, inference, running_mean, running_variance, mean, inverse, dgamma, dbeta, dx, dresidual;

  bool operator==(const results& other) const {
    return same_bits(y, other.y) && same_bits(inference, other.inference) &&
           same_bits(running_mean, other.running_mean) && same_bits(running_variance, other.running_variance) &&
           same_bits(mean, other.mean) && same_bits(inverse, other.inverse) && same_bits(dgamma, other.dgamma) &&
           same_bits(dbeta, other.dbeta) && same_bits(dx, other.dx) && same_bits(dresidual, other.dresidual);
  }
};

template <class Element, class Layout>
results<Element> run(int threads, const plain_images& x, const plain_images& dy, const std::vector<double>& gamma,
                     const std::vector<double>& beta, const plain_images& residual, const options& variant,
                     bool accumulate, const plain_images* relu_output) {
  cpu device{{.intra_op_threads = threads}};
  const auto shape = x.shape;
  const auto channels = static_cast<std::size_t>(shape.c);
  const auto input = stored<Element, Layout>(x);
  const auto slope = stored<Element, Layout>(dy);
  const auto added = stored<Element, Layout>(residual);
  const auto scale = converted<Element>(gamma);
  const auto shift = converted<Element>(beta);
  std::vector<std::byte> workspace(gradus::kernels::batch_norm_workspace_bytes<Element, Layout>(device, shape));
  results<Element> r;
  r.y.resize(input.size());
  r.inference.resize(input.size());
  r.running_mean.assign(channels, Element{1});
  r.running_variance.assign(channels, Element{2});
  r.mean.resize(channels);
  r.inverse.resize(channels);
  r.dgamma.resize(channels);
  r.dbeta.resize(channels);
  r.dx = stored<Element, Layout>(residual);
  r.dresidual = stored<Element, Layout>(x);
  const gradus::kernels::batch_norm_affine<Element> affine{variant.affine ? scale.data() : nullptr,
                                                           variant.affine ? shift.data() : nullptr};
  const gradus::kernels::batch_norm_running<Element> running{r.running_mean.data(), r.running_variance.data(), 0.25};
  const gradus::kernels::batch_norm_saved<Element> saved{r.mean.data(), r.inverse.data()};
  const auto act = variant.relu ? activation::relu : activation::identity;
  const gradus::kernels::batch_norm_epilogue<Element> epilogue{variant.residual ? added.data() : nullptr, act};
  using in = image_view<const Element, Layout>;
  using out = image_view<Element, Layout>;
  batch_norm_forward_training(device, in{device, input.data(), shape}, out{device, r.y.data(), shape}, affine, epsilon,
                              running, saved, epilogue, workspace);
  batch_norm_forward_inference(device, in{device, input.data(), shape}, out{device, r.inference.data(), shape}, affine,
                               epsilon, running, epilogue, workspace);
  const auto mask = relu_output == nullptr ? std::vector<Element>{} : stored<Element, Layout>(*relu_output);
  batch_norm_backward(device, in{device, input.data(), shape}, in{device, r.y.data(), shape},
                      in{device, slope.data(), shape}, out{device, r.dx.data(), shape}, affine, saved, act,
                      {.gamma = r.dgamma.data(),
                       .beta = r.dbeta.data(),
                       .residual = variant.residual ? r.dresidual.data() : nullptr,
                       .accumulate_residual = accumulate},
                      {.accumulate = accumulate, .relu_output = relu_output == nullptr ? nullptr : mask.data()},
                      workspace);
  return r;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(batch_norm)

BOOST_AUTO_TEST_CASE_TEMPLATE(batch_norm_agrees_with_its_formulas, Case, float_and_double_cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  const double allowed = tolerance<element>(2e-5);
  for (const image_extents& shape : batch_norm_shapes) {
    const plain_images x{shape, "x", 1, 3};
    const plain_images dy{shape, "dy"};
    const plain_images residual{shape, "residual"};
    const plain_images relu_output{shape, "relu"};
    const auto gamma = channel_values(shape.c, "gamma", 1);
    const auto beta = channel_values(shape.c, "beta", 0);
    for (const options& variant : variants) {
      for (const bool epilogue : {false, true}) {
        BOOST_TEST_CONTEXT("shape " << shape << " affine " << variant.affine << " residual " << variant.residual
                                    << " relu " << variant.relu << " epilogue " << epilogue) {
          const plain_images* const mask = epilogue ? &relu_output : nullptr;
          const auto r = run<element, layout>(1, x, dy, gamma, beta, residual, variant, epilogue, mask);
          BOOST_TEST((run<element, layout>(3, x, dy, gamma, beta, residual, variant, epilogue, mask) == r));
          if (shape.n == 0) {
            BOOST_TEST(r.running_mean.front() == element{1});
            BOOST_TEST(r.dgamma.front() == element{0});
            continue;
          }
          const auto expected = reference(x, gamma, beta, residual, variant);
          BOOST_TEST(difference(plain<layout>(shape, r.y).values, expected.y.values) <= allowed);
          BOOST_TEST(difference(doubles(r.mean), expected.mean) <= allowed);
          BOOST_TEST(difference(doubles(r.inverse), expected.inverse) <= allowed);
          const auto count = static_cast<double>(shape.n * shape.h * shape.w);
          const auto channels = static_cast<std::size_t>(shape.c);
          std::vector<double> mean(channels), variance(channels), dbeta(channels), dgamma(channels);
          for (std::size_t c = 0; c < channels; ++c) {
            mean[c] = 0.75 + 0.25 * expected.mean[c];
            variance[c] = 1.5 + 0.25 * expected.unbiased[c];
          }
          BOOST_TEST(difference(doubles(r.running_mean), mean) <= allowed);
          BOOST_TEST(difference(doubles(r.running_variance), variance) <= allowed);

          // Near 0 the ReLU of the library and of the reference may differ by rounding: take the library's.
          const auto y = plain<layout>(shape, r.y);
          plain_images g{shape};
          plain_images inference{shape};
          plain_images dx{shape};
          plain_images dresidual{shape};
          for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
            const auto i = static_cast<std::size_t>(c);
            g(n, c, h, w) = variant.relu && !(y(n, c, h, w) > 0) ? 0.0 : dy(n, c, h, w);
            dbeta[i] += g(n, c, h, w);
            dgamma[i] += g(n, c, h, w) * (x(n, c, h, w) - expected.mean[i]) * expected.inverse[i];
          });
          for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
            const auto i = static_cast<std::size_t>(c);
            const double scale = variant.affine ? gamma[i] : 1.0;
            double value = (x(n, c, h, w) - mean[i]) / std::sqrt(variance[i] + epsilon) * scale;
            value += (variant.affine ? beta[i] : 0.0) + (variant.residual ? residual(n, c, h, w) : 0.0);
            inference(n, c, h, w) = variant.relu && value < 0 ? 0.0 : value;
            const double xhat = (x(n, c, h, w) - expected.mean[i]) * expected.inverse[i];
            value = scale * expected.inverse[i] * (g(n, c, h, w) - dbeta[i] / count - xhat * dgamma[i] / count);
            value += epilogue ? residual(n, c, h, w) : 0.0;
            dx(n, c, h, w) = epilogue && !(relu_output(n, c, h, w) > 0) ? 0.0 : value;
            dresidual(n, c, h, w) = g(n, c, h, w) + (epilogue ? x(n, c, h, w) : 0.0);
          });
          BOOST_TEST(difference(plain<layout>(shape, r.inference).values, inference.values) <= allowed);
          BOOST_TEST(difference(doubles(r.dbeta), dbeta) <= allowed);
          BOOST_TEST(difference(doubles(r.dgamma), dgamma) <= allowed);
          BOOST_TEST(difference(plain<layout>(shape, r.dx).values, dx.values) <= allowed);
          if (variant.residual) {
            BOOST_TEST(difference(plain<layout>(shape, r.dresidual).values, dresidual.values) <= allowed);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(batch_norm_gradients_are_those_of_its_forward_pass, Case, double_cases) {
  using layout = typename Case::layout;
  const image_extents shape{3, 5, 2, 3};
  plain_images x{shape, "x", 1, 1};
  const plain_images dy{shape, "dy"};
  const plain_images residual{shape, "residual", 3};
  auto gamma = channel_values(shape.c, "gamma", 1);
  auto beta = channel_values(shape.c, "beta", 0);
  for (const options& variant : {options{true, false, false}, options{true, true, true}}) {
    const auto loss = [&] {
      const auto r = run<double, layout>(1, x, dy, gamma, beta, residual, variant, false, nullptr);
      return dot(plain<layout>(shape, r.y).values, dy.values);
    };
    const auto r = run<double, layout>(1, x, dy, gamma, beta, residual, variant, false, nullptr);
    const auto dx = finite_differences(x.values, loss);
    const auto dgamma = finite_differences(gamma, loss);
    const auto dbeta = finite_differences(beta, loss);
    BOOST_TEST(difference(plain<layout>(shape, r.dx).values, dx) <= 1e-7);
    BOOST_TEST(difference(r.dgamma, dgamma) <= 1e-7);
    BOOST_TEST(difference(r.dbeta, dbeta) <= 1e-7);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(statistics_keep_their_digits_far_from_zero, Case, float_and_double_cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  // A deviation of 1 at a mean of 10000: sums of squares in single precision would lose it.
  const image_extents shape{16, 4, 16, 16};
  const plain_images x{shape, "x", 1, 10000};
  const auto ones = std::vector<double>(4, 1.0);
  const auto zeros = std::vector<double>(4, 0.0);
  const options plain_variant{};
  const auto r = run<element, layout>(1, x, x, ones, zeros, x, plain_variant, false, nullptr);
  const auto expected = reference(x, ones, zeros, x, plain_variant);
  BOOST_TEST(difference(doubles(r.inverse), expected.inverse) <= tolerance<element>(5e-6));
  BOOST_TEST(difference(plain<layout>(shape, r.y).values, expected.y.values) <= tolerance<element>(2e-5));
}

BOOST_AUTO_TEST_CASE(a_nan_stays_visible) {
  const image_extents shape{2, 3, 4, 4};
  plain_images x{shape, "x"};
  x(1, 1, 2, 3) = std::nan("");
  const auto ones = std::vector<double>(3, 1.0);
  const auto r = run<float, nchw>(1, x, x, ones, ones, x, {true, false, true}, false, nullptr);
  const auto y = plain<nchw>(shape, r.y);
  for_each_coordinate(
      shape, [&](index_t n, index_t c, index_t h, index_t w) { BOOST_TEST(std::isnan(y(n, c, h, w)) == (c == 1)); });
  BOOST_TEST(std::isnan(r.running_mean[1]));
  BOOST_TEST(std::isnan(r.running_variance[1]));
}

BOOST_AUTO_TEST_CASE(a_short_workspace_is_refused) {
  cpu device{{.intra_op_threads = 1}};
  std::vector<float> x(12), y(12), statistics(3, 1.0F);
  std::vector<std::byte> workspace(8);
  BOOST_CHECK_THROW(
      batch_norm_forward_training(device, image_view<const float, nchw>{device, x.data(), image_extents{1, 3, 2, 2}},
                                  image_view<float, nchw>{device, y.data(), image_extents{1, 3, 2, 2}}, {}, 1e-3, {},
                                  {}, {}, workspace),
      gradus::shape_error);
}

BOOST_AUTO_TEST_SUITE_END()
