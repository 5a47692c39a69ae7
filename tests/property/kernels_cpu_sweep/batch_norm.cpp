// SPDX-License-Identifier: BSL-1.0
//
// Batch normalization against its formulas in double precision: all passes, with and without what may be left out. See
// tests/support/sweep.hpp.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "gradus/kernels/cpu/batch_norm.hpp"
#include "support.hpp"

namespace {

using namespace kernel_sweep;
using gradus::kernels::activation;

/// The sizes of a batch, and the numbers of a pass that its layout does not change.
struct batch {
  image_extents shape;
  index_t count = 0;  // values of a channel
  double epsilon = 0;
  activation act = activation::identity;
};

batch draw_batch(sweep_case& test) {
  batch result;
  index_t images = 1 + test.below(3);
  index_t channels = test.once_in(3) ? 14 + test.below(20) : 1 + test.below(9);
  index_t height = 1 + test.below(9);
  index_t width = 1 + test.below(9);
  if (test.once_in(6)) {  // planes of one pixel: channels are adjacent in every layout
    height = 1;
    width = 1;
    images = test.once_in(3) ? 1 : 1 + test.below(40);
  } else if (test.once_in(8)) {
    (test.once_in(2) ? height : width) = 1;
    (height == 1 ? width : height) = 1 + test.below(129);
  } else if (test.once_in(60)) {  // several pieces, each of some 32768 elements
    images = 3 + test.below(10);
    height = 16 + test.below(9);
    width = 24 + test.below(9);
  } else if (test.once_in(60)) {  // more channels than a strip of sums has
    channels = 2040 + test.below(20);
    height = 1;
    width = 1 + test.below(2);
  }
  images = test.once_in(100) ? 0 : images;
  result.shape = {test.note("n", images), test.note("c", channels), test.note("h", height), test.note("w", width)};
  result.count = images * height * width;
  result.epsilon = test.flip("epsilon 1e-3") ? 1e-3 : 1e-5;
  result.act = draw_activation(test, "activation");
  return result;
}

/// The error of a result in proportion to the numbers that it is made of: a few roundings, and in double those of long
/// sums, which in float are of double precision.
template <class Real>
double inexact_of(index_t count) {
  return (12 + (sizeof(Real) == 8 ? 4 * std::sqrt(static_cast<double>(count)) : 0.0)) * rounding<Real>;
}

/// x and what depends on it, by channel, in double precision.
struct statistics {
  std::vector<double> mean;
  std::vector<double> variance;
  std::vector<double> spread;  // of the values around the first one, which bounds the error of the variance
};

template <class Element, class Layout>
statistics statistics_of(const batch& test, const guarded_array<Element>& x) {
  const gradus::dense_mapping<Layout> at{test.shape};
  const auto channels = static_cast<std::size_t>(test.shape.c);
  statistics result{std::vector<double>(channels), std::vector<double>(channels), std::vector<double>(channels)};
  const auto value = [&](index_t n, index_t c, index_t h, index_t w) {
    return static_cast<double>(x[static_cast<std::size_t>(at(n, c, h, w))]);
  };
  // Sums of at most some thousand multiples of 1/8 are exact.
  const auto count = static_cast<double>(std::max<index_t>(1, test.count));
  for_each_coordinate(test.shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const auto i = static_cast<std::size_t>(c);
    const double from_first = value(n, c, h, w) - value(0, c, 0, 0);
    result.mean[i] += from_first;
    result.spread[i] += from_first * from_first;
  });
  for (index_t c = 0; c < test.shape.c && test.count > 0; ++c) {
    const auto i = static_cast<std::size_t>(c);
    const double offset = result.mean[i] / count;
    result.mean[i] = value(0, c, 0, 0) + offset;
    result.spread[i] /= count;
    result.variance[i] = result.spread[i] - offset * offset;
  }
  return result;
}

/// Numbers around a mean; some channels hold one number only, once in a while one a NaN.
template <class Element, class Layout>
guarded_array<Element> draw_input(sweep_case& test, const batch& sizes) {
  auto x = filled<Element>(test, sizes.shape.size());
  const index_t mean = sizeof(Element) >= 4 ? test.one_of("mean", {0, 3, 10000}) : test.one_of("mean", {0, 3});
  const bool has_nan = test.flip("nan", 16);
  const gradus::dense_mapping<Layout> at{sizes.shape};
  for (index_t c = 0; c < sizes.shape.c; ++c) {
    const bool constant = test.once_in(8);
    const double level = test.value();
    const bool nan = has_nan && test.once_in(4);
    for (index_t n = 0; n < sizes.shape.n; ++n) {
      for (index_t h = 0; h < sizes.shape.h; ++h) {
        for (index_t w = 0; w < sizes.shape.w; ++w) {
          Element& element = x[static_cast<std::size_t>(at(n, c, h, w))];
          const double value = static_cast<double>(mean) + (constant ? level : static_cast<double>(element));
          element = stored<Element>(nan && h == 0 && w == 0 ? std::nan("") : value);
        }
      }
    }
  }
  return x;
}

/// Numbers of the channels around `mean`, or nothing.
template <class Real>
guarded_array<Real> draw_channels(sweep_case& test, index_t channels, double mean) {
  auto values = test.array<Real>(channels);
  for (Real& value : values.elements()) {
    value = static_cast<Real>(mean + test.value() / 4);
  }
  return values;
}

/// An array that holds what another one does.
template <class Element>
guarded_array<Element> copy_of(sweep_case& test, const guarded_array<Element>& other) {
  auto copy = test.array<Element>(static_cast<index_t>(other.size()));
  std::copy(other.elements().begin(), other.elements().end(), copy.data());
  return copy;
}

template <class Element>
bool same_bits(const guarded_array<Element>& a, const guarded_array<Element>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0;
}

template <class Element, class Layout>
void check_forward(sweep_case& test) {
  using real = parameter_element_t<Element>;
  cpu& device = device_of(test);
  const batch sizes = draw_batch(test);
  const index_t channels = sizes.shape.c;
  const auto x = draw_input<Element, Layout>(test, sizes);
  const bool scales = test.flip("gamma");
  const bool shifts = test.flip("beta");
  const bool adds = test.flip("residual");
  const bool runs = !test.flip("no running", 4);
  const bool saves = !test.flip("no saved", 4);
  const bool again = test.flip("coefficients");
  const bool over = test.flip("over x", 4);
  const double momentum = test.flip("momentum 1", 8) ? 1.0 : 0.25;
  const auto gamma = draw_channels<real>(test, channels, 1);
  const auto beta = draw_channels<real>(test, channels, 0);
  const auto residual = filled<Element>(test, sizes.shape.size());
  auto running_mean = draw_channels<real>(test, channels, 0);
  auto running_variance = draw_channels<real>(test, channels, 2);
  const std::vector<double> mean_before = doubles(running_mean);
  const std::vector<double> variance_before = doubles(running_variance);
  auto saved_mean = test.array<real>(channels);
  auto saved_inverse = test.array<real>(channels);
  auto coefficients = test.array<real>(3 * channels);
  auto y = over ? copy_of(test, x) : test.array<Element>(sizes.shape.size());
  const auto bytes = gradus::kernels::batch_norm_workspace_bytes<Element, Layout>(device, sizes.shape);
  const auto workspace = test.array<std::byte>(static_cast<index_t>(bytes), 64);
  const gradus::kernels::batch_norm_affine<real> affine{scales ? gamma.data() : nullptr,
                                                        shifts ? beta.data() : nullptr};
  const gradus::kernels::batch_norm_running<real> running{runs ? running_mean.data() : nullptr,
                                                          runs ? running_variance.data() : nullptr, momentum};
  const gradus::kernels::batch_norm_saved<real> saved{saves ? saved_mean.data() : nullptr,
                                                      saves ? saved_inverse.data() : nullptr,
                                                      again ? coefficients.data() : nullptr};
  const gradus::kernels::batch_norm_epilogue<Element> epilogue{adds ? residual.data() : nullptr, sizes.act};
  using in = image_view<const Element, Layout>;
  using out = image_view<Element, Layout>;
  batch_norm_forward_training(device, in{device, over ? y.data() : x.data(), sizes.shape},
                              out{device, y.data(), sizes.shape}, affine, sizes.epsilon, running, saved, epilogue,
                              workspace.elements());
  const double inexact = inexact_of<real>(sizes.count);
  const statistics found = statistics_of<Element, Layout>(sizes, x);
  const auto unbiased = [&](std::size_t c) {
    const auto count = static_cast<double>(sizes.count);
    return sizes.count > 1 ? found.variance[c] * count / (count - 1) : found.variance[c];
  };
  const auto keeps = [&](const std::vector<double>& before, std::size_t c, double batch_value) {
    return !runs || sizes.count == 0 ? before[c] : (1 - momentum) * before[c] + momentum * batch_value;
  };
  std::vector<double> variance_error(static_cast<std::size_t>(channels));
  for (std::size_t c = 0; c < variance_error.size(); ++c) {
    variance_error[c] = inexact * (found.variance[c] + 2 * found.spread[c]);
    const double inverse = 1 / std::sqrt(found.variance[c] + sizes.epsilon);
    const double inverse_error = inverse * (inexact + variance_error[c] / (found.variance[c] + sizes.epsilon));
    agrees(test, "running mean", static_cast<index_t>(c), running_mean[c], keeps(mean_before, c, found.mean[c]),
           inexact * (std::abs(found.mean[c]) + 8));
    agrees(test, "running variance", static_cast<index_t>(c), running_variance[c],
           keeps(variance_before, c, unbiased(c)),
           inexact * std::abs(variance_before[c]) + 2 * variance_error[c] + (runs ? inexact * unbiased(c) : 0.0));
    if (saves && sizes.count > 0) {
      agrees(test, "mean", static_cast<index_t>(c), saved_mean[c], found.mean[c],
             1.01 * rounding<real> * std::abs(found.mean[c]) + inexact * std::sqrt(found.spread[c]));
      agrees(test, "inverse deviation", static_cast<index_t>(c), saved_inverse[c], inverse, inverse_error);
    }
  }
  const gradus::dense_mapping<Layout> at{sizes.shape};
  const auto check_y = [&](std::string_view what, const guarded_array<Element>& got, const auto& mean,
                           const auto& variance, const auto& error) {
    std::vector<double> expected(got.size());
    std::vector<double> allowed(got.size());
    for_each_coordinate(sizes.shape, [&](index_t n, index_t c, index_t h, index_t w) {
      const auto i = static_cast<std::size_t>(at(n, c, h, w));
      const auto channel = static_cast<std::size_t>(c);
      const double inverse = 1 / std::sqrt(variance(channel) + sizes.epsilon);
      const double normal =
          (static_cast<double>(x[i]) - mean(channel)) * inverse * (scales ? static_cast<double>(gamma[channel]) : 1.0);
      const double shift = shifts ? static_cast<double>(beta[channel]) : 0.0;
      const double more = adds ? static_cast<double>(residual[i]) : 0.0;
      const double value = normal + shift + more;
      expected[i] = activated(sizes.act, value);
      allowed[i] = inexact * (std::abs(normal) + std::abs(shift) + std::abs(more)) +
                   std::abs(normal) * error(channel) / (variance(channel) + sizes.epsilon) +
                   rounding_of<Element>(value) +
                   // x and the mean are of the same size where the mean is large: their difference is exact, but the
                   // mean is not.
                   rounding<real> * std::abs(mean(channel)) * inverse * 1e-3;
    });
    all_agree(test, what, got, expected, [&](std::size_t i) { return allowed[i]; });
  };
  check_y(
      "y", y, [&](std::size_t c) { return found.mean[c]; }, [&](std::size_t c) { return found.variance[c]; },
      [&](std::size_t c) { return variance_error[c]; });
  if (again && sizes.count > 0) {
    auto same = over ? copy_of(test, x) : test.array<Element>(sizes.shape.size());
    const gradus::kernels::batch_norm_saved<real> only{nullptr, nullptr, coefficients.data()};
    batch_norm_forward_again(device, in{device, over ? same.data() : x.data(), sizes.shape},
                             out{device, same.data(), sizes.shape}, only, epilogue);
    if (!same_bits(same, y)) {
      test.fail("the pass that is done again gives other bits");
    }
  }
  auto inference = over ? copy_of(test, x) : test.array<Element>(sizes.shape.size());
  const gradus::kernels::batch_norm_running<real> fixed{running_mean.data(), running_variance.data(), 0};
  batch_norm_forward_inference(device, in{device, over ? inference.data() : x.data(), sizes.shape},
                               out{device, inference.data(), sizes.shape}, affine, sizes.epsilon, fixed, epilogue,
                               workspace.elements());
  const auto mean_now = [&](std::size_t c) { return static_cast<double>(running_mean[c]); };
  const auto variance_now = [&](std::size_t c) { return static_cast<double>(running_variance[c]); };
  check_y("y of inference", inference, mean_now, variance_now, [](std::size_t) { return 0.0; });
  if (!running_mean.intact() || !running_variance.intact() || !saved_mean.intact() || !saved_inverse.intact() ||
      !coefficients.intact() || !workspace.intact()) {
    test.fail("something was written beside an array of channels or the workspace");
  }
}

template <class Element, class Layout>
void check_backward(sweep_case& test) {
  using real = parameter_element_t<Element>;
  cpu& device = device_of(test);
  const batch sizes = draw_batch(test);
  const index_t channels = sizes.shape.c;
  const index_t size = sizes.shape.size();
  const auto x = draw_input<Element, Layout>(test, sizes);
  const auto y = filled<Element>(test, sizes.act != activation::identity ? size : 0, test.once_in(8) ? 9 : 0);
  const bool scales = test.flip("gamma");
  const bool wants_dgamma = !test.flip("no dgamma", 4);
  const bool wants_dbeta = !test.flip("no dbeta", 4);
  const bool wants_dx = !test.flip("no dx", 6);
  const bool wants_residual = test.flip("dresidual");
  const bool accumulate = test.flip("accumulate");
  const bool accumulate_residual = test.flip("accumulate dresidual");
  const bool masks = test.flip("mask");
  const bool over = wants_dx && !accumulate && test.flip("dx over dy", 4);
  const auto gamma = draw_channels<real>(test, channels, 1);
  const activation masked_by = draw_activation(test, "activation of the mask", false);
  const auto mask = filled<Element>(test, masks ? size : 0, test.once_in(4) ? 9 : 0);
  const auto dy = filled<Element>(test, size);
  auto dx = over ? copy_of(test, dy) : accumulate ? filled<Element>(test, size) : test.array<Element>(size);
  auto dresidual = accumulate_residual ? filled<Element>(test, size) : test.array<Element>(size);
  const std::vector<double> dx_before = doubles(dx);
  const std::vector<double> dresidual_before = doubles(dresidual);
  auto dgamma = test.array<real>(channels);
  auto dbeta = test.array<real>(channels);
  // What a forward pass saves, as it rounds it: the gradients are those of the saved numbers.
  const statistics found = statistics_of<Element, Layout>(sizes, x);
  auto mean = test.array<real>(channels);
  auto inverse = test.array<real>(channels);
  for (std::size_t c = 0; c < mean.size(); ++c) {
    mean[c] = static_cast<real>(found.mean[c]);
    inverse[c] = static_cast<real>(1 / std::sqrt(found.variance[c] + sizes.epsilon));
  }
  const auto bytes = gradus::kernels::batch_norm_workspace_bytes<Element, Layout>(device, sizes.shape);
  const auto workspace = test.array<std::byte>(static_cast<index_t>(bytes), 64);
  using in = image_view<const Element, Layout>;
  batch_norm_backward(device, in{device, x.data(), sizes.shape}, in{device, y.data(), sizes.shape},
                      in{device, over ? dx.data() : dy.data(), sizes.shape},
                      image_view<Element, Layout>{device, wants_dx ? dx.data() : nullptr, sizes.shape},
                      {scales ? gamma.data() : nullptr, nullptr}, {mean.data(), inverse.data(), nullptr}, sizes.act,
                      {.gamma = wants_dgamma ? dgamma.data() : nullptr,
                       .beta = wants_dbeta ? dbeta.data() : nullptr,
                       .residual = wants_residual ? dresidual.data() : nullptr,
                       .accumulate_residual = accumulate_residual},
                      {.accumulate = accumulate, .relu_output = masks ? mask.data() : nullptr, .mask = masked_by},
                      workspace.elements());
  const gradus::dense_mapping<Layout> at{sizes.shape};
  const auto all_channels = static_cast<std::size_t>(channels);
  std::vector<double> sums(all_channels);
  std::vector<double> products(all_channels);
  std::vector<double> sizes_of_sums(all_channels);
  std::vector<double> sizes_of_products(all_channels);
  const auto slope = [&](std::size_t i) {
    return sizes.act == activation::identity
               ? static_cast<double>(dy[i])
               : times_derivative(sizes.act, static_cast<double>(y[i]), static_cast<double>(dy[i]));
  };
  for_each_coordinate(sizes.shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const auto i = static_cast<std::size_t>(at(n, c, h, w));
    const auto channel = static_cast<std::size_t>(c);
    const double product = slope(i) * (static_cast<double>(x[i]) - static_cast<double>(mean[channel]));
    sums[channel] += slope(i);
    sizes_of_sums[channel] += std::abs(slope(i));
    products[channel] += product;
    sizes_of_products[channel] += std::abs(product);
  });
  const double inexact = inexact_of<real>(sizes.count);
  for (std::size_t c = 0; c < all_channels; ++c) {
    const auto scale = static_cast<double>(inverse[c]);
    agrees(test, "dgamma", static_cast<index_t>(c), wants_dgamma ? static_cast<double>(dgamma[c]) : 0.0,
           wants_dgamma ? products[c] * scale : 0.0, inexact * sizes_of_products[c] * scale);
    agrees(test, "dbeta", static_cast<index_t>(c), wants_dbeta ? static_cast<double>(dbeta[c]) : 0.0,
           wants_dbeta ? sums[c] : 0.0, inexact * sizes_of_sums[c]);
  }
  std::vector<double> expected(static_cast<std::size_t>(size));
  std::vector<double> allowed(static_cast<std::size_t>(size));
  std::vector<double> residual(static_cast<std::size_t>(size));
  const auto count = static_cast<double>(sizes.count);
  for_each_coordinate(sizes.shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const auto i = static_cast<std::size_t>(at(n, c, h, w));
    const auto channel = static_cast<std::size_t>(c);
    const auto deviation = static_cast<double>(inverse[channel]);
    const double scale = deviation * (scales ? static_cast<double>(gamma[channel]) : 1.0);
    const double apart = static_cast<double>(x[i]) - static_cast<double>(mean[channel]);
    const double part = deviation * deviation * apart / count;
    double value = scale * (slope(i) - sums[channel] / count - part * products[channel]);
    double error = std::abs(scale) * inexact *
                   (std::abs(slope(i)) + sizes_of_sums[channel] / count + std::abs(part) * sizes_of_products[channel]);
    if (sizes.count == 1 && !std::isnan(apart)) {
      value = 0;  // x is its mean, whatever it is
      error = 0;
    }
    value += accumulate ? dx_before[i] : 0.0;
    residual[i] = slope(i) + (accumulate_residual ? dresidual_before[i] : 0.0);
    residual[i] = wants_residual ? static_cast<double>(stored<Element>(residual[i])) : dresidual_before[i];
    const double kept = masks ? times_derivative(masked_by, static_cast<double>(mask[i]), value) : value;
    const bool masked = masks && times_derivative(masked_by, static_cast<double>(mask[i]), 1) == 0;
    expected[i] = wants_dx ? kept : dx_before[i];
    allowed[i] = !wants_dx || masked ? 0.0
                                     : error + (accumulate ? 2 : 1) * rounding_of<Element>(value) +
                                           (accumulate ? rounding<real> * std::abs(dx_before[i]) : 0.0);
    if (sizes.count == 1 && wants_dx && !masked) {
      allowed[i] = 0;
    }
  });
  all_agree(test, "dx", dx, expected, [&](std::size_t i) { return allowed[i]; });
  all_equal(test, "dresidual", dresidual, residual);
  if (!dgamma.intact() || !dbeta.intact() || !workspace.intact()) {
    test.fail("something was written beside an array of channels or the workspace");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sweeps)

BOOST_AUTO_TEST_CASE(batch_norm_forward) {
  gradus_test::sweep("batch_norm_forward", 2000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) {
      with_layout<nchw, nhwc>(test, [&]<class Layout>(Layout) { check_forward<Element, Layout>(test); });
    });
  });
}

BOOST_AUTO_TEST_CASE(batch_norm_backward) {
  gradus_test::sweep("batch_norm_backward", 2000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) {
      with_layout<nchw, nhwc>(test, [&]<class Layout>(Layout) { check_backward<Element, Layout>(test); });
    });
  });
}

BOOST_AUTO_TEST_SUITE_END()
