// SPDX-License-Identifier: BSL-1.0
//
// Layers that move, resize and combine images, and softmax, against their definitions in double precision: random
// shapes, both layouts, all element types, one thread and three.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/nn/layers/shaping.hpp"
#include "run.hpp"

namespace {

namespace nn = gradus::nn;
using gradus::image_extents;
using gradus::index_t;
using pointwise::plain_images;
using pointwise::test_case;

// networks.cpp runs the 16-bit types in both layouts.
using all_element_cases =
    std::tuple<test_case<double, gradus::nchw>, test_case<double, gradus::nhwc>, test_case<float, gradus::nchw>,
               test_case<float, gradus::nhwc>, test_case<gradus::bfloat16, gradus::nhwc>,
               test_case<gradus::float16, gradus::nchw>>;

/// Numbers that all element types hold.
plain_images numbers_for_all(const image_extents& shape, std::string_view name) {
  plain_images images{shape, name};
  for (double& value : images.values) {
    value = std::round(value * 16) / 16;
  }
  return images;
}

/// Random numbers in [low, high].
class chooser {
 public:
  explicit chooser(std::string_view name) : stream_{5, name} {}
  index_t operator()(index_t low, index_t high) {
    return low + static_cast<index_t>(stream_.below(static_cast<std::uint64_t>(high - low + 1), next_++));
  }

 private:
  gradus::random_stream stream_;
  std::uint64_t next_ = 0;
};

struct coordinates_and_weight {
  std::array<index_t, 3> coordinates;  // c, h, w
  double weight = 1;
};

/// Compares a layer with y(p) = sum of weight * x(coordinates) over sources(p), and with the gradient of that sum.
template <class Case, class Options, class Sources>
void check_linear(const std::string& what, const Options& options, const image_extents& shape, const Sources& sources) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  const plain_images x = numbers_for_all(shape, "x");
  const nn::value_shape out = shaping::shape_of(options, {x});
  const plain_images g = numbers_for_all(out.batch(shape.n), "g");
  plain_images y{g.shape};
  plain_images dx{shape};
  gradus_test::for_each_coordinate(g.shape, [&](index_t n, index_t c, index_t h, index_t w) {
    for (const coordinates_and_weight& each : sources(std::array{c, h, w})) {
      const auto [a, b, d] = each.coordinates;
      y(n, c, h, w) += each.weight * x(n, a, b, d);
      dx(n, a, b, d) += each.weight * g(n, c, h, w);
    }
  });
  const shaping::outcome got = shaping::run<element, layout>(options, {x}, g, 1);
  const shaping::outcome again = shaping::run<element, layout>(options, {x}, g, 3);
  BOOST_TEST((got.output.values == again.output.values), what << ": the same bits with more threads");
  BOOST_TEST((got.gradients[0].values == again.gradients[0].values), what << ": the same bits with more threads");
  BOOST_TEST(pointwise::difference(got.output.values, y.values) <= 4 * shaping::precision<element>,
             what << ' ' << shape);
  const double readers = static_cast<double>(g.values.size()) / static_cast<double>(x.values.size());
  BOOST_TEST(pointwise::difference(got.gradients[0].values, dx.values) <=
                 4 * shaping::precision<element> * std::max(1.0, readers / 64),
             what << " backward " << shape);
}

std::vector<coordinates_and_weight> one(index_t c, index_t h, index_t w) {
  return {{{c, h, w}, 1.0}};
}

/// The two pixels of one direction and their weights, as PyTorch defines them, in floating point.
std::array<std::pair<index_t, double>, 2> taps_of(index_t in, index_t out, bool align, index_t o) {
  const auto real = [](index_t number) { return static_cast<long double>(number); };
  long double at = 0;
  if (align) {
    at = out > 1 ? real(o) * real(in - 1) / real(out - 1) : 0.0L;
  } else {
    at = std::max(0.0L, (real(o) + 0.5L) * real(in) / real(out) - 0.5L);
  }
  const auto low = std::min(in - 1, static_cast<index_t>(std::floor(at)));
  const auto weight = static_cast<double>(at - real(low));
  return {{{low, 1 - weight}, {std::min(in - 1, low + 1), weight}}};
}

std::vector<image_extents> random_shapes(std::string_view name) {
  std::vector<image_extents> shapes{{1, 1, 1, 1}, {2, 1, 3, 1}, {1, 33, 1, 5}};
  chooser choose{name};
  for (int k = 0; k < 6; ++k) {
    shapes.push_back({choose(1, 3), choose(1, 40), choose(1, 12), choose(1, 12)});
  }
  return shapes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nn_shaping)

BOOST_AUTO_TEST_CASE_TEMPLATE(upsample_nearest_is_its_definition, Case, all_element_cases) {
  chooser choose{"nearest"};
  for (const image_extents& shape : random_shapes("nearest shapes")) {
    const nn::size2d size{choose(1, 30), choose(1, 30)};
    check_linear<Case>("nearest", nn::upsample2d{.size = size}, shape, [&](const std::array<index_t, 3>& p) {
      return one(p[0], p[1] * shape.h / size.height, p[2] * shape.w / size.width);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(upsample_bilinear_is_its_definition, Case, all_element_cases) {
  chooser choose{"bilinear"};
  const auto check = [&](const image_extents& shape, const nn::size2d& size) {
    for (const bool align : {false, true}) {
      check_linear<Case>(align ? "aligned" : "bilinear",
                         nn::upsample2d{.size = size, .mode = nn::interpolation::bilinear, .align_corners = align},
                         shape, [&](const std::array<index_t, 3>& p) {
                           std::vector<coordinates_and_weight> result;
                           for (const auto& [h, of_row] : taps_of(shape.h, size.height, align, p[1])) {
                             for (const auto& [w, of_column] : taps_of(shape.w, size.width, align, p[2])) {
                               result.push_back({{p[0], h, w}, of_row * of_column});
                             }
                           }
                           return result;
                         });
    }
  };
  for (const image_extents& shape : random_shapes("bilinear shapes")) {
    check(shape, {choose(1, 30), choose(1, 30)});
  }
  // More columns than a task keeps at a time, and pixels with more readers.
  check({1, 1, 2, 1500}, {3, 1700});
  check({1, 2, 1, 1600}, {1, 900});
  check({1, 3, 1, 2}, {2, 2300});
  check({2, 1, 2, 1}, {1, 2300});
  check({1, 1, 1, 3000}, {1, 3});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(crops_and_slices_are_their_definitions, Case, all_element_cases) {
  chooser choose{"crop"};
  for (const image_extents& shape : random_shapes("crop shapes")) {
    const auto range = [&](index_t extent) {
      const index_t begin = choose(0, extent - 1);
      return nn::index_range{begin, choose(begin + 1, extent)};
    };
    const nn::index_range channels = range(shape.c);
    const nn::index_range rows = range(shape.h);
    const nn::index_range columns = range(shape.w);
    check_linear<Case>("slice", nn::slice{.channels = channels, .rows = rows, .columns = columns}, shape,
                       [&](const std::array<index_t, 3>& p) {
                         return one(p[0] + channels.begin, p[1] + rows.begin, p[2] + columns.begin);
                       });
    check_linear<Case>(
        "crop",
        nn::crop2d{
            .top = rows.begin, .left = columns.begin, .size = {rows.end - rows.begin, columns.end - columns.begin}},
        shape, [&](const std::array<index_t, 3>& p) { return one(p[0], p[1] + rows.begin, p[2] + columns.begin); });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(shuffles_are_their_definitions, Case, all_element_cases) {
  chooser choose{"shuffle"};
  for (const image_extents& shape : random_shapes("shuffle shapes")) {
    const index_t r = choose(1, 4);
    const auto of_r = [&](index_t x) { return x / r; };
    check_linear<Case>("shuffle", nn::pixel_shuffle{.factor = r}, {shape.n, shape.c * r * r, shape.h, shape.w},
                       [&](const std::array<index_t, 3>& p) {
                         return one((p[0] * r + p[1] % r) * r + p[2] % r, of_r(p[1]), of_r(p[2]));
                       });
    check_linear<Case>("unshuffle", nn::pixel_unshuffle{.factor = r}, {shape.n, shape.c, shape.h * r, shape.w * r},
                       [&](const std::array<index_t, 3>& p) {
                         return one(p[0] / (r * r), p[1] * r + p[0] / r % r, p[2] * r + p[0] % r);
                       });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(permutations_and_reshapes_are_their_definitions, Case, all_element_cases) {
  std::vector<image_extents> shapes = random_shapes("permute shapes");
  shapes.push_back({1, 70, 66, 3});
  shapes.push_back({2, 3, 65, 67});
  for (const image_extents& shape : shapes) {
    std::array<gradus::axis, 3> axes{gradus::axis::c, gradus::axis::h, gradus::axis::w};
    do {
      check_linear<Case>("permute", nn::permute{.axes = axes}, shape, [&](const std::array<index_t, 3>& p) {
        std::array<index_t, 4> coordinates{};
        for (std::size_t k = 0; k < 3; ++k) {
          coordinates[static_cast<std::size_t>(axes[k])] = p[k];
        }
        return one(coordinates[1], coordinates[2], coordinates[3]);
      });
    } while (std::next_permutation(axes.begin(), axes.end()));
    const index_t all = shape.c * shape.h * shape.w;
    for (const nn::reshape& to :
         {nn::reshape{}, nn::reshape{1, all, 1}, nn::reshape{shape.h, shape.w, shape.c},
          nn::reshape{shape.c * shape.h, 1, shape.w}, nn::reshape{shape.c, shape.h * shape.w, 1},
          nn::reshape{shape.w, -1, shape.h}, nn::reshape{1, shape.c, shape.h * shape.w}}) {
      const index_t height = to.height == -1 ? all / to.channels / to.width : to.height;
      check_linear<Case>("reshape", to, shape, [&](const std::array<index_t, 3>& p) {
        const index_t at = (p[0] * height + p[1]) * to.width + p[2];
        return one(at / (shape.h * shape.w), at / shape.w % shape.h, at % shape.w);
      });
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(products_are_their_definition, Case, all_element_cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  std::vector<image_extents> shapes = random_shapes("multiply shapes");
  shapes.push_back({2, 67, 20, 31});  // several parts of the sums
  for (const image_extents& shape : shapes) {
    for (const image_extents& other : {shape, image_extents{shape.n, shape.c, 1, 1}}) {
      const plain_images a = numbers_for_all(shape, "a");
      const plain_images b = numbers_for_all(other, "b");
      const plain_images g = numbers_for_all(shape, "g");
      plain_images y{shape};
      plain_images da{shape};
      plain_images db{other};
      double terms = 1;  // of a sum
      gradus_test::for_each_coordinate(shape, [&](index_t n, index_t c, index_t h, index_t w) {
        const index_t row = other.h == 1 ? 0 : h;
        const index_t column = other.w == 1 ? 0 : w;
        y(n, c, h, w) = a(n, c, h, w) * b(n, c, row, column);
        da(n, c, h, w) = g(n, c, h, w) * b(n, c, row, column);
        db(n, c, row, column) += g(n, c, h, w) * a(n, c, h, w);
      });
      terms = static_cast<double>(shape.h * shape.w) / static_cast<double>(other.h * other.w);
      const shaping::outcome got = shaping::run<element, layout>(nn::multiply{}, {a, b}, g, 1);
      const shaping::outcome swapped = shaping::run<element, layout>(nn::multiply{}, {b, a}, g, 3);
      BOOST_TEST((got.output.values == swapped.output.values), "the order of the inputs does not matter");
      BOOST_TEST((got.gradients[0].values == swapped.gradients[1].values));
      BOOST_TEST((got.gradients[1].values == swapped.gradients[0].values));
      BOOST_TEST(pointwise::difference(got.output.values, y.values) <= shaping::precision<element>, shape);
      BOOST_TEST(pointwise::difference(got.gradients[0].values, da.values) <= shaping::precision<element>, shape);
      BOOST_TEST(pointwise::difference(got.gradients[1].values, db.values) <=
                     shaping::precision<element> + terms * 1e-6 * (sizeof(element) == 8 ? 1e-9 : 1),
                 shape);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(softmax_is_its_definition, Case, all_element_cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  std::vector<image_extents> shapes = random_shapes("softmax shapes");
  shapes.push_back({2, 3, 9, 15});  // more than one group of pixels
  shapes.push_back({5, 1000, 1, 1});
  for (const image_extents& shape : shapes) {
    for (const bool logarithm : {false, true}) {
      plain_images x = numbers_for_all(shape, "x");
      for (double& value : x.values) {
        value *= 4;
      }
      const plain_images g = numbers_for_all(shape, "g");
      plain_images y{shape};
      plain_images dx{shape};
      for (index_t n = 0; n < shape.n; ++n) {
        for (index_t h = 0; h < shape.h; ++h) {
          for (index_t w = 0; w < shape.w; ++w) {
            double sum = 0;
            double of_gradient = 0;
            for (index_t c = 0; c < shape.c; ++c) {
              sum += std::exp(x(n, c, h, w));
            }
            const auto probability = [&](index_t c) { return std::exp(x(n, c, h, w)) / sum; };
            for (index_t c = 0; c < shape.c; ++c) {
              of_gradient += g(n, c, h, w) * (logarithm ? 1 : probability(c));
            }
            for (index_t c = 0; c < shape.c; ++c) {
              y(n, c, h, w) = logarithm ? x(n, c, h, w) - std::log(sum) : probability(c);
              dx(n, c, h, w) = logarithm ? g(n, c, h, w) - probability(c) * of_gradient
                                         : probability(c) * (g(n, c, h, w) - of_gradient);
            }
          }
        }
      }
      const auto check = [&](const auto& options) {
        const shaping::outcome got = shaping::run<element, layout>(options, {x}, g, 1);
        const shaping::outcome again = shaping::run<element, layout>(options, {x}, g, 3);
        BOOST_TEST((got.output.values == again.output.values));
        BOOST_TEST((got.gradients[0].values == again.gradients[0].values));
        BOOST_TEST(pointwise::difference(got.output.values, y.values) <= 4 * shaping::precision<element>, shape);
        // Backward reads the rounded output. The error of a logarithm is relative to its size, that of its exponential
        // absolute, and all terms of the sum have it.
        BOOST_TEST(pointwise::difference(got.gradients[0].values, dx.values) <= 64 * shaping::precision<element>,
                   shape);
      };
      if (logarithm) {
        check(nn::log_softmax{});
      } else {
        check(nn::softmax{});
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(softmax_is_stable) {
  const auto check = [](const auto& options, const std::vector<double>& expected) {
    for (const image_extents& shape : {image_extents{1, 3, 1, 1}, image_extents{1, 3, 1, 2}}) {
      plain_images x{shape};
      for (index_t w = 0; w < shape.w; ++w) {
        x(0, 0, 0, w) = 3e38;
        x(0, 1, 0, w) = 3e38;
        x(0, 2, 0, w) = -INFINITY;
      }
      const shaping::outcome got = shaping::run<float, gradus::nchw>(options, {x}, plain_images{shape});
      for (index_t c = 0; c < 3; ++c) {
        const double want = expected[static_cast<std::size_t>(c)];
        BOOST_TEST((got.output(0, c, 0, 0) == want || std::abs(got.output(0, c, 0, 0) - want) < 1e-6));
      }
    }
  };
  check(nn::softmax{}, {0.5, 0.5, 0});
  const double infinity = std::numeric_limits<double>::infinity();
  check(nn::log_softmax{}, {-std::log(2.0), -std::log(2.0), -infinity});
}

BOOST_AUTO_TEST_SUITE_END()
