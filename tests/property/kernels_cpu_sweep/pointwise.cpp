// SPDX-License-Identifier: BSL-1.0
//
// Element-wise passes, copies of channels, dropout, softmax and local response normalization against their definitions.
// See tests/support/sweep.hpp.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gradus/kernels/cpu/concat.hpp"
#include "gradus/kernels/cpu/dropout.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/cpu/local_response_norm.hpp"
#include "gradus/kernels/cpu/softmax.hpp"
#include "support.hpp"

namespace {

using namespace kernel_sweep;
using gradus::kernels::activation;

/// As many as a few vectors, or around what one task or two take.
index_t draw_count(sweep_case& test) {
  return test.note("count", test.once_in(100) ? 16384 * (1 + test.below(2)) - 4 + test.below(9) : test.below(70));
}

image_extents draw_images(sweep_case& test) {
  index_t height = 1 + test.below(9);
  index_t width = 1 + test.below(9);
  if (test.once_in(6)) {
    height = width = 1;
  } else if (test.once_in(6)) {  // around the 124 pixels of a tile of dropout, the 64 of one of responses
    (test.once_in(2) ? height : width) = 1;
    (height == 1 ? width : height) = test.once_in(2) ? 60 + test.below(9) : 120 + test.below(10);
  }
  return {test.note("n", test.once_in(100) ? 0 : 1 + test.below(3)),
          test.note("c", test.once_in(3) ? 14 + test.below(30) : 1 + test.below(9)), test.note("h", height),
          test.note("w", width)};
}

template <class Element>
std::vector<double> rounded(std::vector<double> values) {
  for (double& value : values) {
    value = static_cast<double>(stored<Element>(value));
  }
  return values;
}
template <class Element>
void check_elementwise(sweep_case& test) {
  cpu& device = device_of(test);
  const index_t count = draw_count(test);
  const index_t special = test.once_in(4) ? 9 : 0;
  const auto a = filled<Element>(test, count, special);
  const auto b = filled<Element>(test, count, special);
  const bool accumulate = test.flip("accumulate");
  const bool over = test.flip("in place", 3);
  auto y = over || accumulate ? filled<Element>(test, count, special) : test.array<Element>(count);
  const std::vector<double> before = doubles(y);
  const index_t which = test.between("pass", 0, 4);
  const activation act = draw_activation(test, "activation", false);
  std::vector<double> expected(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto x = over ? before[i] : static_cast<double>(a[i]);
    const auto other = static_cast<double>(b[i]);
    const double old = accumulate ? before[i] : 0.0;
    switch (which) {
      case 0:
        expected[i] = activated(act, x);
        break;
      case 1:
        expected[i] = times_derivative(act, other, x) + old;
        break;
      case 2:
        expected[i] = activated(act, x + other);
        break;
      case 3:
        expected[i] = x + other;
        break;
      default:
        expected[i] = x + old;
    }
  }
  const Element* const x = over ? y.data() : a.data();
  switch (which) {
    case 0:
      relu_forward(device, count, x, y.data(), act);
      break;
    case 1:
      relu_backward(device, count, x, b.data(), y.data(), accumulate, act);
      break;
    case 2:
      add_forward(device, count, x, b.data(), y.data(), act);
      break;
    case 3:
      add_forward(device, count, x, b.data(), y.data(), activation::identity);
      break;
    default:
      copy_or_add(device, count, x, y.data(), accumulate);
  }
  all_equal(test, "y", y, rounded<Element>(expected));
}

template <class Element, class Layout>
void check_copy_channels(sweep_case& test) {
  cpu& device = device_of(test);
  const image_extents from = draw_images(test);
  const index_t channels = test.between("channels", 0, from.c);
  const index_t first = test.between("first", 0, from.c - channels);
  const image_extents to{from.n, test.note("into", channels + test.below(9)), from.h, from.w};
  const index_t to_first = test.between("at", 0, to.c - channels);
  const bool accumulate = test.flip("accumulate");
  const auto source = filled<Element>(test, from.size(), test.once_in(4) ? 9 : 0);
  auto destination = accumulate ? filled<Element>(test, to.size()) : test.array<Element>(to.size());
  std::vector<double> expected = doubles(destination);
  const gradus::dense_mapping<Layout> in{from};
  const gradus::dense_mapping<Layout> out{to};
  for_each_coordinate({from.n, channels, from.h, from.w}, [&](index_t n, index_t c, index_t h, index_t w) {
    double& value = expected[static_cast<std::size_t>(out(n, to_first + c, h, w))];
    value = static_cast<double>(source[static_cast<std::size_t>(in(n, first + c, h, w))]) + (accumulate ? value : 0.0);
  });
  gradus::kernels::copy_channels<Element, Layout>(
      device, image_view<const Element, Layout>{device, source.data(), from}, first,
      image_view<Element, Layout>{device, destination.data(), to}, to_first, channels, accumulate);
  all_equal(test, "destination", destination, rounded<Element>(expected));
}

template <class Element, class Layout>
void check_dropout(sweep_case& test) {
  using real = parameter_element_t<Element>;
  cpu& device = device_of(test);
  image_extents shape = draw_images(test);
  if (test.flip("long", 60)) {  // several chunks of 2048 elements of an example
    shape = {shape.n, shape.c, shape.h, 1 + 2200 / (shape.h * shape.c)};
    test.note("w", shape.w);
  }
  const index_t size = shape.size();
  const double rate = static_cast<double>(test.between("rate/8", 0, 7)) / 8;
  const std::uint64_t step = test.bits() >> (test.once_in(2) ? 60U : 1U);
  // Four blocks of the stream are made at once unless the lower half of their number is about to overflow, which no
  // index inside an example reaches: examples are counted in the upper half.
  const std::uint64_t example = test.bits() >> (test.once_in(2) ? 60U : 33U);
  const gradus::random_stream stream{test.bits(), "sweep"};
  const bool over = test.flip("in place", 3);
  const bool masks = !test.flip("no mask", 4);
  const auto x = filled<Element>(test, size);
  if (size > 0 && test.once_in(4)) {
    x[static_cast<std::size_t>(test.below(size))] = stored<Element>(std::nan(""));
  }
  auto y = test.array<Element>(size);
  if (over) {
    std::copy(x.elements().begin(), x.elements().end(), y.data());
  }
  auto mask = test.array<std::uint8_t>(size);
  dropout_forward(device, image_view<const Element, Layout>{device, over ? y.data() : x.data(), shape},
                  image_view<Element, Layout>{device, y.data(), shape}, rate, stream, step, example,
                  masks ? mask.data() : nullptr);
  const std::uint32_t threshold = gradus::kernels::dropout_threshold(rate);
  const gradus::dense_mapping<Layout> at{shape};
  std::vector<double> expected(x.size());
  std::vector<double> kept(x.size());
  const auto scale = static_cast<real>(1 / (1 - rate));
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const auto i = static_cast<std::size_t>(at(n, c, h, w));
    kept[i] = gradus::kernels::dropout_keeps(stream, step, example + static_cast<std::uint64_t>(n),
                                             (c * shape.h + h) * shape.w + w, threshold)
                  ? 1.0
                  : 0.0;
    const auto value = static_cast<real>(static_cast<double>(x[i]) * kept[i]);
    expected[i] = static_cast<double>(static_cast<Element>(value * scale));
  });
  all_equal(test, "y", y, expected);
  all_equal(test, "mask", mask, masks ? kept : std::vector<double>(kept.size(), 255.0));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    mask[i] = static_cast<std::uint8_t>(kept[i]);
  }
  const bool accumulate = test.flip("accumulate");
  auto dx = accumulate ? filled<Element>(test, size) : test.array<Element>(size);
  const bool over_slopes = !accumulate && test.flip("dx over dy", 3);
  const auto dy = filled<Element>(test, size);
  if (over_slopes) {
    std::copy(dy.elements().begin(), dy.elements().end(), dx.data());
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto product = static_cast<real>(static_cast<double>(dy[i]) * kept[i]) * real{1.25};
    expected[i] = static_cast<double>(static_cast<Element>(accumulate ? static_cast<real>(dx[i]) + product : product));
  }
  dropout_backward(device, size, over_slopes ? dx.data() : dy.data(), mask.data(), 1.25, dx.data(), accumulate);
  all_equal(test, "dx", dx, expected);
}

template <class Element>
void check_softmax(sweep_case& test) {
  using real = parameter_element_t<Element>;
  cpu& device = device_of(test);
  index_t rows = test.once_in(100) ? 0 : 1 + test.below(9);
  index_t classes = 1 + test.below(20);
  if (test.once_in(40)) {  // several tasks, each of some 4096 elements
    rows = 60 + test.below(80);
    classes = 60 + test.below(80);
  }
  test.note("rows", rows);
  test.note("classes", classes);
  const double spread = static_cast<double>(test.one_of("spread", {0, 1, 10}));  // 80 is too far for e^x in float
  const bool excludes = test.flip("minus infinity", 8);
  auto logits = test.array<Element>(rows * classes);
  auto labels = test.array<std::int32_t>(rows);
  for (Element& logit : logits.elements()) {
    logit =
        stored<Element>(excludes && test.once_in(5) ? -std::numeric_limits<double>::infinity() : spread * test.value());
  }
  for (std::int32_t& label : labels.elements()) {
    label = static_cast<std::int32_t>(test.below(classes));
  }
  const double scale = test.flip("scaled") ? 1024.0 / 7 : 1.0;
  const bool wants_gradient = !test.flip("no gradient", 4);
  const bool over = test.flip("in place", 3);
  std::vector<double> probabilities(logits.size());
  std::vector<double> slopes(logits.size());
  std::vector<double> allowed(logits.size());
  double loss = 0;
  double loss_size = 0;
  index_t correct = 0;
  for (index_t row = 0; row < rows; ++row) {
    const auto first = static_cast<std::size_t>(row * classes);
    const auto label = static_cast<std::size_t>(labels[static_cast<std::size_t>(row)]);
    const auto logit = [&](std::size_t c) { return static_cast<double>(logits[first + c]); };
    std::size_t best = 0;
    for (std::size_t c = 1; c < static_cast<std::size_t>(classes); ++c) {
      best = logit(c) > logit(best) ? c : best;
    }
    double total = 0;
    for (std::size_t c = 0; c < static_cast<std::size_t>(classes); ++c) {
      total += std::exp(logit(c) - logit(best));
    }
    for (std::size_t c = 0; c < static_cast<std::size_t>(classes); ++c) {
      const double probability = std::exp(logit(c) - logit(best)) / total;
      probabilities[first + c] = probability;
      slopes[first + c] = scale * (probability - (c == label ? 1.0 : 0.0));
      // Where e^x is no normal number it is 0.
      allowed[first + c] =
          (16 + static_cast<double>(classes)) * rounding<real> * probability + (sizeof(real) == 4 ? 1.2e-38 : 0.0);
    }
    loss += std::log(total) - (logit(label) - logit(best));
    loss_size += 1 + std::abs(logit(label) - logit(best)) + std::log(total);
    correct += best == label ? 1 : 0;
  }
  auto result = test.array<Element>(rows * classes);
  const auto use_logits = [&] { std::copy(logits.elements().begin(), logits.elements().end(), result.data()); };
  if (over) {
    use_logits();
  }
  const gradus::kernels::loss_sums sums =
      softmax_cross_entropy_loss(device, rows, classes, over && wants_gradient ? result.data() : logits.data(),
                                 labels.data(), scale, wants_gradient ? result.data() : nullptr);
  agrees(test, "loss", 0, sums.loss, loss, (24 + static_cast<double>(classes)) * rounding<real> * loss_size);
  agrees(test, "correct", 0, static_cast<double>(sums.correct), static_cast<double>(correct));
  if (wants_gradient) {
    all_agree(test, "dlogits", result, slopes,
              [&](std::size_t i) { return scale * (allowed[i] + 4 * rounding<real>)+rounding_of<Element>(slopes[i]); });
  }
  auto y = test.array<Element>(rows * classes);
  if (over) {
    std::copy(logits.elements().begin(), logits.elements().end(), y.data());
  }
  softmax(device, rows, classes, over ? y.data() : logits.data(), y.data());
  all_agree(test, "probabilities", y, probabilities,
            [&](std::size_t i) { return allowed[i] + rounding_of<Element>(probabilities[i]); });
}

template <class Element, class Layout>
void check_responses(sweep_case& test) {
  using real = parameter_element_t<Element>;
  cpu& device = device_of(test);
  image_extents shape = draw_images(test);
  // With a radius of 32 and more, a tile of pixels is smaller than 64, so that 2 * radius + 1 channels fit a buffer.
  const bool wide = test.flip("wide", 24);
  if (wide) {
    shape = {1, 60 + test.below(30), 1, 50 + test.below(80)};
    test.note("c", shape.c);
    test.note("w", shape.w);
  }
  const gradus::kernels::local_response_norm_parameters rule{
      .radius = wide              ? 28 + test.below(16)
                : test.once_in(8) ? test.below(70)
                                  : test.below(6),
      .alpha = static_cast<double>(test.one_of("alpha/64", {0, 1, 16})) / 64,
      .beta = static_cast<double>(test.one_of("beta/4", {3, 3, 2, 4})) / 4,
      .k = static_cast<double>(test.between("k", 1, 2))};
  test.note("radius", rule.radius);
  const index_t size = shape.size();
  const auto x = filled<Element>(test, size);
  const auto dy = filled<Element>(test, size);
  auto y = test.array<Element>(size);
  local_response_norm_forward(device, image_view<const Element, Layout>{device, x.data(), shape},
                              image_view<Element, Layout>{device, y.data(), shape}, rule);
  const gradus::dense_mapping<Layout> at{shape};
  std::vector<double> divisor(x.size());
  std::vector<double> expected(x.size());
  const auto first_of = [&](index_t c) { return std::max<index_t>(0, c - rule.radius); };
  const auto last_of = [&](index_t c) { return std::min(shape.c - 1, c + rule.radius); };
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    double sum = 0;
    for (index_t j = first_of(c); j <= last_of(c); ++j) {
      const auto value = static_cast<double>(x[static_cast<std::size_t>(at(n, j, h, w))]);
      sum += value * value;
    }
    const auto i = static_cast<std::size_t>(at(n, c, h, w));
    divisor[i] = rule.k + rule.alpha * sum;
    expected[i] = static_cast<double>(x[i]) / std::pow(divisor[i], rule.beta);
  });
  constexpr double inexact = 16 * rounding<real>;
  all_agree(test, "y", y, expected,
            [&](std::size_t i) { return inexact * std::abs(expected[i]) + rounding_of<Element>(expected[i]); });
  const bool accumulate = test.flip("accumulate");
  const bool masks = test.flip("mask");
  const auto mask = filled<Element>(test, masks ? size : 0, test.once_in(4) ? 9 : 0);
  auto dx = accumulate ? filled<Element>(test, size) : test.array<Element>(size);
  std::vector<double> allowed(x.size());
  const std::vector<double> before = doubles(dx);
  for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
    const auto i = static_cast<std::size_t>(at(n, c, h, w));
    double sum = 0;
    double size_of_sum = 0;
    for (index_t j = first_of(c); j <= last_of(c); ++j) {
      const auto offset = static_cast<std::size_t>(at(n, j, h, w));
      const double term =
          static_cast<double>(dy[offset]) * static_cast<double>(x[offset]) * std::pow(divisor[offset], -rule.beta - 1);
      sum += term;
      size_of_sum += std::abs(term);
    }
    const double direct = static_cast<double>(dy[i]) * std::pow(divisor[i], -rule.beta);
    const double factor = 2 * rule.alpha * rule.beta * static_cast<double>(x[i]);
    const double value = direct - factor * sum + (accumulate ? before[i] : 0.0);
    const bool masked = masks && !(static_cast<double>(mask[i]) > 0);
    expected[i] = masked ? 0.0 : value;
    const double windows = 2 * static_cast<double>(std::min(rule.radius, shape.c));
    allowed[i] = masked ? 0.0
                        : (inexact + windows * rounding<real>)*(std::abs(direct) + std::abs(factor) * size_of_sum) +
                              (accumulate ? rounding<real> * std::abs(before[i]) : 0.0) + rounding_of<Element>(value);
  });
  local_response_norm_backward(device, image_view<const Element, Layout>{device, x.data(), shape},
                               image_view<const Element, Layout>{device, dy.data(), shape},
                               image_view<Element, Layout>{device, dx.data(), shape}, rule,
                               {.accumulate = accumulate, .relu_output = masks ? mask.data() : nullptr});
  all_agree(test, "dx", dx, expected, [&](std::size_t i) { return allowed[i]; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sweeps)

BOOST_AUTO_TEST_CASE(elementwise) {
  gradus_test::sweep("elementwise", 3000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) { check_elementwise<Element>(test); });
  });
}

BOOST_AUTO_TEST_CASE(copy_channels) {
  gradus_test::sweep("copy_channels", 2000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) {
      with_layout<nchw, nhwc, chwn>(test, [&]<class Layout>(Layout) { check_copy_channels<Element, Layout>(test); });
    });
  });
}

BOOST_AUTO_TEST_CASE(dropout) {
  gradus_test::sweep("dropout", 1500, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) {
      with_layout<nchw, nhwc, chwn>(test, [&]<class Layout>(Layout) { check_dropout<Element, Layout>(test); });
    });
  });
}

BOOST_AUTO_TEST_CASE(softmax_and_loss) {
  gradus_test::sweep("softmax_and_loss", 2000, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) { check_softmax<Element>(test); });
  });
}

BOOST_AUTO_TEST_CASE(local_response_norm) {
  gradus_test::sweep("local_response_norm", 1500, [](sweep_case& test) {
    with_element(test, [&]<class Element>(Element) {
      with_layout<nchw, nhwc>(test, [&]<class Layout>(Layout) { check_responses<Element, Layout>(test); });
    });
  });
}

BOOST_AUTO_TEST_SUITE_END()
