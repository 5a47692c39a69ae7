// SPDX-License-Identifier: BSL-1.0
//
// Padding of images by its definition, over random shapes: every mode, element type and layout, and the epilogue of
// the gradients.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/kernels/cpu/pad2d.hpp"
#include "run_image_layer.hpp"

namespace {

using gradus::index_t;
using gradus::kernels::pad2d_geometry;
using gradus::kernels::padding_mode;

/// The position of x that a position of a padded row shows, by the periods of the modes; -1 for a constant.
index_t shown(padding_mode mode, index_t position, index_t size) {
  if (position >= 0 && position < size) {
    return position;
  }
  if (mode == padding_mode::replicate) {
    return position < 0 ? 0 : size - 1;
  }
  if (mode == padding_mode::circular) {
    return (position % size + size) % size;
  }
  if (mode == padding_mode::reflect) {
    const index_t period = 2 * (size - 1);
    const index_t phase = (position % period + period) % period;
    return phase < size ? phase : period - phase;
  }
  return -1;
}

/// Small numbers, whose sums are exact in every element type.
std::vector<double> small_numbers(const gradus::image_extents& e, std::uint64_t seed) {
  const gradus::random_stream stream{seed, "padding"};
  std::vector<double> values(static_cast<std::size_t>(e.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(stream.below(9, i)) - 4.0;
  }
  return values;
}

template <class Element, class Layout>
std::vector<Element> stored_padding(const std::vector<double>& values, const gradus::image_extents& e) {
  std::vector<Element> memory(values.size());
  gradus_test::for_each_logical<Layout>(e, [&](std::size_t index, std::size_t offset) {
    memory[offset] = static_cast<Element>(static_cast<gradus::parameter_element_t<Element>>(values[index]));
  });
  return memory;
}

template <class Element, class Layout>
void check_padding(const pad2d_geometry& g, index_t batch, std::uint64_t seed) {
  const gradus::image_extents in = g.input(batch);
  const gradus::image_extents out = g.output(batch);
  const auto x = small_numbers(in, seed);
  const auto dy = small_numbers(out, seed + 1);
  const auto old = small_numbers(in, seed + 2);
  const auto mask = small_numbers(in, seed + 3);
  std::vector<double> y(dy.size());
  std::vector<double> dx(x.size());
  for (index_t i = 0; i < out.size(); ++i) {
    const index_t plane = i / (out.h * out.w);
    const index_t h = shown(g.mode, i / out.w % out.h - g.top, g.height);
    const index_t w = shown(g.mode, i % out.w - g.left, g.width);
    const auto from = static_cast<std::size_t>((plane * g.height + h) * g.width + w);
    const bool constant = h < 0 || w < 0;
    y[static_cast<std::size_t>(i)] = constant ? g.value : x[from];
    if (!constant) {
      dx[from] += dy[static_cast<std::size_t>(i)];
    }
  }
  const auto nan = static_cast<Element>(NAN);
  std::vector<Element> first;
  for (const int threads : {1, 3}) {
    gradus::cpu device{{.intra_op_threads = threads}};
    const auto source = stored_padding<Element, Layout>(x, in);
    std::vector<Element> padded(dy.size(), nan);
    using view = gradus::image_view<Element, Layout>;
    using const_view = gradus::image_view<const Element, Layout>;
    pad2d_forward(device, g, const_view{device, source.data(), in}, view{device, padded.data(), out});
    BOOST_TEST((gradus_test::in_logical_order<Layout>(padded, out) == y));
    const auto slopes = stored_padding<Element, Layout>(dy, out);
    std::vector<Element> plain(x.size(), nan);
    pad2d_backward(device, g, const_view{device, slopes.data(), out}, view{device, plain.data(), in},
                   gradus::kernels::backward_epilogue<Element>{});
    BOOST_TEST((gradus_test::in_logical_order<Layout>(plain, in) == dx));
    const auto masks = stored_padding<Element, Layout>(mask, in);
    using gradus::kernels::activation;
    for (const activation& act : {activation::relu, activation::leaky_relu(2), activation{.slope = 0, .cap = 0.5}}) {
      auto fused = stored_padding<Element, Layout>(old, in);
      pad2d_backward(
          device, g, const_view{device, slopes.data(), out}, view{device, fused.data(), in},
          gradus::kernels::backward_epilogue<Element>{.accumulate = true, .relu_output = masks.data(), .mask = act});
      auto expected = dx;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = (expected[i] + old[i]) * (mask[i] > 0 ? (mask[i] < act.cap ? 1.0 : 0.0) : act.slope);
      }
      BOOST_TEST((gradus_test::in_logical_order<Layout>(fused, in) == expected));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_geometry_padding)

using padding_elements = std::tuple<double, float, gradus::bfloat16, gradus::float16>;

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_definition, Element, padding_elements) {
  const gradus::random_stream stream{3, "shapes"};
  std::uint64_t draw = 0;
  const auto in = [&](index_t least, index_t most) {
    return least + static_cast<index_t>(stream.below(static_cast<std::uint64_t>(most - least + 1), draw++));
  };
  for (std::uint64_t i = 0; i < 120; ++i) {
    for (const padding_mode mode :
         {padding_mode::zeros, padding_mode::reflect, padding_mode::replicate, padding_mode::circular}) {
      pad2d_geometry g{.channels = i % 7 == 0 ? in(60, 300) : in(1, 9), .height = in(1, 8), .width = in(1, 40)};
      g.mode = mode;
      g.value = mode == padding_mode::zeros && i % 2 == 0 ? 0.5 : 0;
      const auto most = [&](index_t extent) {
        return mode == padding_mode::reflect ? extent - 1 : mode == padding_mode::circular ? extent : index_t{5};
      };
      g.top = in(0, most(g.height));
      g.bottom = in(0, most(g.height));
      g.left = in(0, most(g.width));
      g.right = in(0, most(g.width));
      const index_t batch = in(0, 3);
      BOOST_TEST_CONTEXT("mode " << static_cast<int>(mode) << ", " << batch << " images " << g.channels << "x"
                                 << g.height << "x" << g.width << ", padding " << g.top << " " << g.bottom << " "
                                 << g.left << " " << g.right) {
        check_padding<Element, gradus::nchw>(g, batch, i);
        check_padding<Element, gradus::nhwc>(g, batch, i);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
