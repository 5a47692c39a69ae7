// SPDX-License-Identifier: BSL-1.0
//
// Pooling against plain loops in double precision, over shapes, layouts and threads.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "gradus/kernels/cpu/pool2d.hpp"
#include "support.hpp"

namespace {

using namespace pointwise;
using gradus::kernels::pool2d_geometry;
using gradus_test::chwn;

struct pool_case {
  index_t images;
  pool2d_geometry shape;
};

pool_case make_case(index_t images, index_t channels, index_t height, index_t width, index_t kernel_height,
                    index_t kernel_width, index_t stride_height, index_t stride_width, index_t pad) {
  const auto outputs = [&](index_t extent, index_t kernel, index_t stride) {
    index_t count = (extent + 2 * pad - kernel + stride) / stride;
    while (count > 1 && (count - 1) * stride - pad >= extent) {
      --count;  // every window begins inside the image
    }
    return count;
  };
  return {images,
          {.channels = channels,
           .in_height = height,
           .in_width = width,
           .out_height = outputs(height, kernel_height, stride_height),
           .out_width = outputs(width, kernel_width, stride_width),
           .kernel_height = kernel_height,
           .kernel_width = kernel_width,
           .stride_height = stride_height,
           .stride_width = stride_width,
           .pad_top = pad,
           .pad_left = pad}};
}

const std::vector<pool_case> pool_cases{
    make_case(1, 1, 1, 1, 1, 1, 1, 1, 0),        // one pixel
    make_case(0, 3, 4, 4, 2, 2, 2, 2, 0),        // no images
    make_case(3, 32, 8, 8, 2, 2, 2, 2, 0),       // halves
    make_case(2, 5, 24, 24, 2, 2, 2, 2, 0),      // halves, odd channels
    make_case(2, 3, 7, 9, 2, 2, 2, 2, 0),        // halves that leave a row and a column over
    make_case(2, 3, 7, 9, 3, 3, 2, 2, 1),        // odd extents, overlap, padding
    make_case(1, 17, 13, 13, 3, 3, 2, 2, 0),     // overlap
    make_case(2, 4, 9, 35, 3, 3, 1, 1, 1),       // stride 1
    make_case(1, 7, 11, 10, 2, 3, 3, 4, 0),      // stride over kernel
    make_case(1, 3, 10, 100, 5, 2, 3, 1, 1),     // tall kernels, wide image
    make_case(2, 6, 7, 7, 7, 7, 1, 1, 0),        // the whole image
    make_case(2, 3, 6, 6, 4, 4, 4, 4, 2),        // windows that are half outside
    make_case(1, 2, 5, 150, 3, 3, 2, 2, 1),      // rows longer than a block
    make_case(1, 1, 40, 40, 16, 16, 11, 13, 0),  // the largest kernel
    make_case(2, 40, 3, 5, 3, 1, 1, 1, 0),       // one column
    make_case(1, 1, 2, 9000, 2, 2, 2, 2, 0),     // halves of long rows
    make_case(1, 3, 3, 2100, 3, 3, 1, 1, 1),     // rows longer than the buffers
    make_case(1, 21, 60, 41, 3, 3, 1, 1, 1),     // several bands of two groups of channels, the second of 4 and 1
    make_case(2, 6, 95, 50, 3, 2, 2, 3, 0),      // bands that begin in windows of the ones before
    make_case(1, 2, 70, 50, 60, 3, 7, 1, 1),     // windows higher than the buffers
    make_case(1, 24, 6, 5, 3, 3, 1, 1, 1),       // channels of a block and two packets
};

using pool_types = std::tuple<test_case<float, nchw>, test_case<float, nhwc>, test_case<double, nchw>,
                              test_case<double, nhwc>, test_case<float, chwn>>;

bool inside(const pool2d_geometry& g, index_t h, index_t w) {
  return h >= 0 && w >= 0 && h < g.in_height && w < g.in_width;
}

template <class Body>
void for_each_entry(const pool2d_geometry& g, index_t p, index_t q, const Body& body) {
  for (index_t r = 0; r < g.kernel_height; ++r) {
    for (index_t s = 0; s < g.kernel_width; ++s) {
      const index_t h = p * g.stride_height - g.pad_top + r;
      const index_t w = q * g.stride_width - g.pad_left + s;
      if (inside(g, h, w)) {
        body(h, w, r * g.kernel_width + s);
      }
    }
  }
}

template <class Element, class Layout>
struct max_result {
  std::vector<Element> y;
  std::vector<std::uint8_t> choice;
};

template <class Element, class Layout>
max_result<Element, Layout> run_max(int threads, const pool_case& test, const std::vector<Element>& x) {
  cpu device{{.intra_op_threads = threads}};
  const auto out = test.shape.output(test.images);
  max_result<Element, Layout> result{std::vector<Element>(elements_of(out)),
                                     std::vector<std::uint8_t>(elements_of(out))};
  max_pool2d_forward(device, test.shape,
                     image_view<const Element, Layout>{device, x.data(), test.shape.input(test.images)},
                     image_view<Element, Layout>{device, result.y.data(), out}, result.choice.data());
  std::vector<Element> without(elements_of(out));
  max_pool2d_forward(device, test.shape,
                     image_view<const Element, Layout>{device, x.data(), test.shape.input(test.images)},
                     image_view<Element, Layout>{device, without.data(), out}, nullptr);
  BOOST_TEST(same_bits(without, result.y));
  return result;
}

/// Checks y and choice against the definition.
template <class Element, class Layout>
void check_max(const pool_case& test, const plain_images& x) {
  const auto memory = stored<Element, Layout>(x);
  const auto result = run_max<Element, Layout>(1, test, memory);
  const auto three = run_max<Element, Layout>(3, test, memory);
  BOOST_TEST(same_bits(three.y, result.y));
  BOOST_TEST((three.choice == result.choice));
  const auto out = test.shape.output(test.images);
  const gradus::dense_mapping<Layout> at{out};
  index_t wrong = 0;
  for_each_coordinate(out, [&](index_t n, index_t c, index_t p, index_t q) {
    double best = 0;
    index_t chosen = -1;
    for_each_entry(test.shape, p, q, [&](index_t h, index_t w, index_t entry) {
      const double value = x(n, c, h, w);
      if (chosen < 0 || value > best || (std::isnan(value) && !std::isnan(best))) {
        best = value;
        chosen = entry;
      }
    });
    const auto i = static_cast<std::size_t>(at(n, c, p, q));
    const auto y = static_cast<double>(result.y[i]);
    wrong += !(y == best || (std::isnan(y) && std::isnan(best)));
    wrong += result.choice[i] != chosen;
  });
  BOOST_TEST(wrong == 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pool2d)

BOOST_AUTO_TEST_CASE_TEMPLATE(max_pool2d_forward_is_its_definition, Case, pool_types) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  for (const pool_case& test : pool_cases) {
    BOOST_TEST_CONTEXT("input " << test.shape.input(test.images) << " output " << test.shape.output(test.images)) {
      plain_images x{test.shape.input(test.images), "x"};
      check_max<element, layout>(test, x);
      for (double& value : x.values) {
        value = std::round(value);  // many equal entries: the first one counts
      }
      check_max<element, layout>(test, x);
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        x.values[i] = i % 5 == 3 ? std::numeric_limits<double>::quiet_NaN() : x.values[i];
      }
      check_max<element, layout>(test, x);
      for (double& value : x.values) {
        value = -std::numeric_limits<double>::infinity();
      }
      check_max<element, layout>(test, x);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(max_pool2d_backward_gives_to_the_chosen, Case, pool_types) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  for (const pool_case& test : pool_cases) {
    const auto in = test.shape.input(test.images);
    const auto out = test.shape.output(test.images);
    const plain_images x{in, "x"};
    const plain_images dy{out, "dy"};
    const plain_images before{in, "before"};
    const plain_images relu{in, "relu"};
    const auto choice = run_max<element, layout>(1, test, stored<element, layout>(x)).choice;
    const auto slopes = stored<element, layout>(dy);
    const auto mask = stored<element, layout>(relu);
    const gradus::dense_mapping<layout> at{out};
    for (const bool accumulate : {false, true}) {
      for (const bool masked : {false, true}) {
        BOOST_TEST_CONTEXT("input " << in << " output " << out << " accumulate " << accumulate << " mask " << masked) {
          plain_images expected{in};
          if (accumulate) {
            expected = before;
          }
          for_each_coordinate(out, [&](index_t n, index_t c, index_t p, index_t q) {
            const index_t chosen = choice[static_cast<std::size_t>(at(n, c, p, q))];
            for_each_entry(test.shape, p, q, [&](index_t h, index_t w, index_t entry) {
              expected(n, c, h, w) += entry == chosen ? dy(n, c, p, q) : 0.0;
            });
          });
          for (std::size_t i = 0; i < expected.values.size(); ++i) {
            expected.values[i] = masked && !(relu.values[i] > 0) ? 0.0 : expected.values[i];
          }
          std::vector<element> results[2];
          for (const int threads : {1, 3}) {
            cpu device{{.intra_op_threads = threads}};
            auto& dx = results[threads / 2] = stored<element, layout>(before);
            max_pool2d_backward(device, test.shape, image_view<const element, layout>{device, slopes.data(), out},
                                choice.data(), image_view<element, layout>{device, dx.data(), in},
                                {.accumulate = accumulate, .relu_output = masked ? mask.data() : nullptr});
          }
          BOOST_TEST(same_bits(results[0], results[1]));
          BOOST_TEST(difference(plain<layout>(in, results[0]).values, expected.values) <= tolerance<element>(1e-6));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(average_pool2d_is_its_definition, Case, pool_types) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  for (const pool_case& test : pool_cases) {
    const auto in = test.shape.input(test.images);
    const auto out = test.shape.output(test.images);
    const plain_images x{in, "x"};
    const plain_images dy{out, "dy"};
    const plain_images before{in, "before"};
    const plain_images relu{in, "relu"};
    const auto input = stored<element, layout>(x);
    const auto slopes = stored<element, layout>(dy);
    const auto mask = stored<element, layout>(relu);
    for (const bool count_padding : {false, true}) {
      for (const bool epilogue : {false, true}) {
        BOOST_TEST_CONTEXT("input " << in << " output " << out << " padding " << count_padding << epilogue) {
          plain_images y{out};
          plain_images expected{in};
          if (epilogue) {
            expected = before;
          }
          for_each_coordinate(out, [&](index_t n, index_t c, index_t p, index_t q) {
            index_t entries = 0;
            for_each_entry(test.shape, p, q, [&](index_t h, index_t w, index_t) {
              y(n, c, p, q) += x(n, c, h, w);
              ++entries;
            });
            entries = count_padding ? test.shape.kernel_height * test.shape.kernel_width : entries;
            y(n, c, p, q) /= static_cast<double>(entries);
            for_each_entry(test.shape, p, q, [&](index_t h, index_t w, index_t) {
              expected(n, c, h, w) += dy(n, c, p, q) / static_cast<double>(entries);
            });
          });
          for (std::size_t i = 0; i < expected.values.size(); ++i) {
            expected.values[i] = epilogue && !(relu.values[i] > 0) ? 0.0 : expected.values[i];
          }
          std::vector<element> outputs[2];
          std::vector<element> results[2];
          for (const int threads : {1, 3}) {
            cpu device{{.intra_op_threads = threads}};
            auto& result = outputs[threads / 2] = std::vector<element>(elements_of(out));
            average_pool2d_forward(device, test.shape, image_view<const element, layout>{device, input.data(), in},
                                   image_view<element, layout>{device, result.data(), out}, count_padding);
            auto& dx = results[threads / 2] = stored<element, layout>(before);
            average_pool2d_backward(device, test.shape, image_view<const element, layout>{device, slopes.data(), out},
                                    image_view<element, layout>{device, dx.data(), in}, count_padding,
                                    {.accumulate = epilogue, .relu_output = epilogue ? mask.data() : nullptr});
          }
          BOOST_TEST(same_bits(outputs[0], outputs[1]));
          BOOST_TEST(same_bits(results[0], results[1]));
          BOOST_TEST(difference(plain<layout>(out, outputs[0]).values, y.values) <= tolerance<element>(2e-6));
          BOOST_TEST(difference(plain<layout>(in, results[0]).values, expected.values) <= tolerance<element>(2e-6));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
