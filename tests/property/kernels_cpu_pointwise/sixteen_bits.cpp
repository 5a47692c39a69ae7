// SPDX-License-Identifier: BSL-1.0
//
// Every pass on bfloat16 and on float16 against the same pass in double precision, over shapes, layouts and threads.
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/kernels/cpu/batch_norm.hpp"
#include "gradus/kernels/cpu/concat.hpp"
#include "gradus/kernels/cpu/detail/simd/pairs.hpp"
#include "gradus/kernels/cpu/detail/simd/storage.hpp"
#include "gradus/kernels/cpu/dropout.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/cpu/local_response_norm.hpp"
#include "gradus/kernels/cpu/pool2d.hpp"
#include "gradus/kernels/cpu/softmax.hpp"
#include "instruction_sets.hpp"
#include "support.hpp"

namespace {

using namespace pointwise;
using gradus::bfloat16;
using gradus::float16;
using gradus::kernels::activation;

using layouts = std::tuple<nchw, nhwc>;
using pass_outputs = std::vector<std::vector<double>>;

/// A result is rounded once, to 8 bits (float16: 11): an error of at most 2^-8 of it; what is computed in float adds
/// little.
constexpr double once = 1.01 / 256;
/// Twice, where a pass rounds before it adds to what is there.
constexpr double twice = 2.02 / 256;

/// Numbers that both can hold.
plain_images numbers(const image_extents& shape, std::string_view name, double scale = 1, double offset = 0) {
  plain_images images{shape, name, scale, offset};
  for (double& value : images.values) {
    value = static_cast<double>(float16{bfloat16{static_cast<float>(value)}});
  }
  return images;
}

template <class Element>
std::vector<Element> of_channels(const plain_images& images) {
  std::vector<Element> result;
  for (const double value : images.values) {
    result.push_back(static_cast<Element>(value));
  }
  return result;
}

/// Images of a kernel's element type in memory, and views of them.
template <class Element, class Layout>
struct images_in_memory {
  images_in_memory(cpu& where, const plain_images& from)
      : device{&where}, shape{from.shape}, memory{stored<Element, Layout>(from)} {}
  [[nodiscard]] image_view<const Element, Layout> in() const { return {*device, memory.data(), shape}; }
  [[nodiscard]] image_view<Element, Layout> out() { return {*device, memory.data(), shape}; }
  [[nodiscard]] std::vector<double> logical() const { return plain<Layout>(shape, memory).values; }

  cpu* device;
  image_extents shape;
  std::vector<Element> memory;
};

/// Compares what pass.template operator()<Element>(device) does with 1 and with 3 threads.
template <class Element, class Pass>
void check_element(double allowed, const pass_outputs& expected, const Pass& pass) {
  cpu one{{.intra_op_threads = 1}};
  cpu three{{.intra_op_threads = 3}};
  const pass_outputs result = pass.template operator()<Element>(one);
  BOOST_TEST((pass.template operator()<Element>(three) == result));
  BOOST_REQUIRE(result.size() == expected.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    BOOST_TEST(difference(result[i], expected[i]) <= allowed, gradus::element_name<Element> << ", output " << i);
  }
}

/// @param allowed  of bfloat16
template <class Pass>
void check(double allowed, const Pass& pass) {
  cpu one{{.intra_op_threads = 1}};
  const pass_outputs expected = pass.template operator()<double>(one);
  check_element<bfloat16>(allowed, expected, pass);
  check_element<float16>(allowed / 8, expected, pass);
}

const std::vector<image_extents> sixteen_bit_shapes{{1, 1, 1, 1},  {2, 3, 5, 7},    {7, 3, 1, 1},
                                                    {3, 17, 3, 3}, {2, 70, 13, 9},  {1, 32, 8, 8},
                                                    {0, 3, 2, 2},  {2, 16, 24, 24}, {64, 10, 1, 1}};

}  // namespace

BOOST_AUTO_TEST_SUITE(sixteen_bit_passes)

BOOST_AUTO_TEST_CASE(elementwise_passes) {
  for (const index_t count : {0, 1, 3, 8, 17, 16384, 16390}) {
    plain_images a = numbers({1, count, 1, 1}, "a");
    const plain_images b = numbers({1, count, 1, 1}, "b");
    for (std::size_t i = 5; i < a.values.size(); i += 13) {
      a.values[i] = i % 2 == 0 ? 0.0 : i % 3 == 0 ? INFINITY : -INFINITY;
    }
    check(once, [&]<class Element>(cpu& device) {
      const images_in_memory<Element, nchw> x{device, a};
      const images_in_memory<Element, nchw> y{device, b};
      pass_outputs results;
      const auto run = [&](const auto& pass) {
        images_in_memory<Element, nchw> z{device, b};
        pass(x.memory.data(), y.memory.data(), z.memory.data());
        results.push_back(z.logical());
      };
      run([&](const Element* from, const Element*, Element* to) { relu_forward(device, count, from, to); });
      run([&](const Element* from, const Element* mask, Element* to) {
        relu_backward(device, count, mask, from, to, false);
        relu_backward(device, count, from, mask, to, true);
      });
      run([&](const Element* from, const Element* other, Element* to) {
        add_forward(device, count, from, other, to, activation::identity);
      });
      run([&](const Element* from, const Element* other, Element* to) {
        add_forward(device, count, from, other, to, activation::relu);
      });
      run([&](const Element* from, const Element*, Element* to) { copy_or_add(device, count, from, to, true); });
      run([&](const Element* from, const Element*, Element* to) { copy_or_add(device, count, from, to, false); });
      return results;
    });
  }
}

/// Every number, and many floats between the numbers, through the conversions of an instruction set as through the
/// constructor and the conversion.
template <class Element>
void check_conversions(gradus::kernels::instruction_set which) {
  namespace detail = gradus::kernels::detail;
  constexpr index_t count = 0x10000;
  const auto& kernels = detail::current_storage_kernels<Element>();
  std::vector<Element> stored(count);
  std::vector<float> wide(count);
  for (std::uint32_t bits = 0; bits < count; ++bits) {
    stored[bits] = Element::from_bits(static_cast<std::uint16_t>(bits));
  }
  detail::read_run<Element>(kernels, stored.data(), count, wide.data());
  int different = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    different += std::bit_cast<std::uint32_t>(wide[i]) == std::bit_cast<std::uint32_t>(float{stored[i]}) ? 0 : 1;
  }
  std::uint64_t bits = 0;
  const index_t offset = 0;
  while (bits < 0x100000000U) {
    for (std::size_t i = 0; i < wide.size(); ++i, bits += 997) {
      wide[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    }
    detail::store_rows<Element>(kernels, wide.data(), 1, 0, count, &offset, {.c = stored.data()});
    for (std::size_t i = 0; i < wide.size(); ++i) {
      different += stored[i].bits() == Element{wide[i]}.bits() ? 0 : 1;
    }
  }
  BOOST_TEST(different == 0, gradus::kernels::name_of(which));
}

using sixteen_bit_elements = std::tuple<bfloat16, float16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(vectors_convert_as_numbers_do, Element, sixteen_bit_elements) {
  for_each_instruction_set([](gradus::kernels::instruction_set which) { check_conversions<Element>(which); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_nan_stays_visible_and_large_numbers_become_infinite, Element, sixteen_bit_elements) {
  cpu device{{.intra_op_threads = 1}};
  std::vector<Element> x(9, Element{std::is_same_v<Element, float16> ? 65504.0F : 3e38F});
  x[3] = Element{NAN};
  x[8] = Element{-NAN};
  std::vector<Element> y(9);
  add_forward(device, index_t{9}, x.data(), x.data(), y.data(), activation::relu);
  for (std::size_t i = 0; i < y.size(); ++i) {
    BOOST_TEST(std::isnan(static_cast<float>(y[i])) == (i == 3 || i == 8));
    BOOST_TEST(std::isinf(static_cast<float>(y[i])) == (i != 3 && i != 8));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(copies_of_channels, Layout, layouts) {
  const plain_images from = numbers({2, 13, 5, 3}, "from");
  const plain_images into = numbers({2, 20, 5, 3}, "into");
  for (const bool accumulate : {false, true}) {
    check(once, [&]<class Element>(cpu& device) {
      const images_in_memory<Element, Layout> x{device, from};
      images_in_memory<Element, Layout> y{device, into};
      copy_channels(device, x.in(), index_t{2}, y.out(), index_t{5}, index_t{10}, accumulate);
      return pass_outputs{y.logical()};
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dropout_passes, Layout, layouts) {
  for (const image_extents& shape : sixteen_bit_shapes) {
    const plain_images from = numbers(shape, "x");
    check(once, [&]<class Element>(cpu& device) {
      const images_in_memory<Element, Layout> x{device, from};
      images_in_memory<Element, Layout> y{device, from};
      images_in_memory<Element, Layout> dx{device, from};
      std::vector<std::uint8_t> mask(x.memory.size());
      dropout_forward(device, x.in(), y.out(), 0.3, gradus::random_stream{3, "drop"}, 4, 5, mask.data());
      dropout_backward(device, shape.size(), x.memory.data(), mask.data(), 1 / 0.7, dx.memory.data(), true);
      pass_outputs results{y.logical(), dx.logical()};
      dropout_backward(device, shape.size(), x.memory.data(), mask.data(), 1 / 0.7, dx.memory.data(), false);
      results.push_back(dx.logical());
      return results;
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(local_response_norm_passes, Layout, layouts) {
  for (const image_extents& shape : sixteen_bit_shapes) {
    const plain_images from = numbers(shape, "x", 3);
    const plain_images slopes = numbers(shape, "dy");
    const plain_images relu = numbers(shape, "relu");
    for (const auto& p :
         {gradus::kernels::local_response_norm_parameters{}, {.radius = 5, .alpha = 0.1, .beta = 0.5, .k = 1.5}}) {
      check(once, [&]<class Element>(cpu& device) {
        const images_in_memory<Element, Layout> x{device, from};
        const images_in_memory<Element, Layout> dy{device, slopes};
        const images_in_memory<Element, Layout> mask{device, relu};
        images_in_memory<Element, Layout> y{device, slopes};
        images_in_memory<Element, Layout> dx{device, relu};
        local_response_norm_forward(device, x.in(), y.out(), p);
        local_response_norm_backward(device, x.in(), dy.in(), dx.out(), p,
                                     {.accumulate = true, .relu_output = mask.memory.data()});
        return pass_outputs{y.logical(), dx.logical()};
      });
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(pool2d_passes, Layout, layouts) {
  struct window {
    index_t kernel;
    index_t stride;
    index_t pad;
  };
  for (const image_extents& in : sixteen_bit_shapes) {
    for (const auto& [kernel, stride, pad] : {window{2, 2, 0}, window{3, 2, 1}, window{3, 1, 1}}) {
      if (in.h + 2 * pad < kernel || in.w + 2 * pad < kernel) {
        continue;
      }
      const gradus::kernels::pool2d_geometry g{.channels = in.c,
                                               .in_height = in.h,
                                               .in_width = in.w,
                                               .out_height = (in.h + 2 * pad - kernel) / stride + 1,
                                               .out_width = (in.w + 2 * pad - kernel) / stride + 1,
                                               .kernel_height = kernel,
                                               .kernel_width = kernel,
                                               .stride_height = stride,
                                               .stride_width = stride,
                                               .pad_top = pad,
                                               .pad_left = pad};
      const plain_images from = numbers(in, "x");
      const plain_images old = numbers(in, "old");
      const plain_images slopes = numbers(g.output(in.n), "dy");
      for (const bool epilogue : {false, true}) {
        BOOST_TEST_CONTEXT("input " << in << " kernel " << kernel << " stride " << stride << " epilogue " << epilogue) {
          check(epilogue ? twice : once, [&]<class Element>(cpu& device) {
            const images_in_memory<Element, Layout> x{device, from};
            const images_in_memory<Element, Layout> dy{device, slopes};
            images_in_memory<Element, Layout> largest{device, slopes};
            images_in_memory<Element, Layout> mean{device, slopes};
            images_in_memory<Element, Layout> dx{device, old};
            images_in_memory<Element, Layout> again{device, old};
            std::vector<std::uint8_t> choice(dy.memory.size());
            const gradus::kernels::backward_epilogue<Element> after{
                .accumulate = epilogue, .relu_output = epilogue ? x.memory.data() : nullptr};
            max_pool2d_forward(device, g, x.in(), largest.out(), choice.data());
            max_pool2d_backward(device, g, dy.in(), choice.data(), dx.out(), after);
            average_pool2d_forward(device, g, x.in(), mean.out(), true);
            average_pool2d_backward(device, g, dy.in(), again.out(), false, after);
            return pass_outputs{largest.logical(), mean.logical(), dx.logical(), again.logical(),
                                std::vector<double>(choice.begin(), choice.end())};
          });
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(softmax_and_its_loss) {
  for (const auto& [rows, classes] : {std::pair<index_t, index_t>{1, 1}, {3, 7}, {64, 10}, {5, 1001}}) {
    for (const double spread : {0.5, 20.0}) {
      const plain_images from = numbers({rows, classes, 1, 1}, "logits", spread, 5);
      std::vector<std::int32_t> labels(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < labels.size(); ++i) {
        labels[i] = static_cast<std::int32_t>(i * 31 % static_cast<std::size_t>(classes));
      }
      pass_outputs slopes;
      check(once, [&]<class Element>(cpu& device) {
        const images_in_memory<Element, nchw> logits{device, from};
        images_in_memory<Element, nchw> d{device, from};
        images_in_memory<Element, nchw> probabilities{device, from};
        const auto sums = softmax_cross_entropy_loss(device, rows, classes, d.memory.data(), labels.data(), 1 / 64.0,
                                                     d.memory.data());
        const auto without = softmax_cross_entropy_loss<Element>(device, rows, classes, logits.memory.data(),
                                                                 labels.data(), 1 / 64.0, nullptr);
        BOOST_TEST(sums.loss == without.loss);
        gradus::kernels::softmax(device, rows, classes, logits.memory.data(), probabilities.memory.data());
        std::vector<double> large = d.logical();
        for (double& value : large) {
          value *= 64;  // of the size of 1
        }
        slopes.push_back(large);
        return pass_outputs{probabilities.logical(), large, {sums.loss, static_cast<double>(sums.correct)}};
      });
      // The slope of the right class has all of its digits, also where it is small.
      for (index_t row = 0; row < rows && classes > 1; ++row) {
        const auto i = static_cast<std::size_t>(row * classes + labels[static_cast<std::size_t>(row)]);
        BOOST_TEST(std::abs(slopes[1][i] - slopes[0][i]) <= 3e-7 + once * std::abs(slopes[0][i]));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(batch_norm_passes, Layout, layouts) {
  for (const image_extents& shape : sixteen_bit_shapes) {
    if (shape.n * shape.h * shape.w < 2) {
      continue;  // a deviation of 0: rounding of x would be all that is left
    }
    const plain_images from = numbers(shape, "x", 1, 3);
    const plain_images slopes = numbers(shape, "dy");
    const plain_images other = numbers(shape, "residual");
    const plain_images channels{{1, shape.c, 1, 1}, "channels", 0.5, 1};
    for (const bool relu : {false, true}) {
      BOOST_TEST_CONTEXT("shape " << shape << " relu " << relu) {
        check(once, [&]<class Element>(cpu& device) {
          using real = gradus::parameter_element_t<Element>;
          const images_in_memory<Element, Layout> x{device, from};
          const images_in_memory<Element, Layout> dy{device, slopes};
          const images_in_memory<Element, Layout> residual{device, other};
          images_in_memory<Element, Layout> y{device, from};
          images_in_memory<Element, Layout> inference{device, from};
          images_in_memory<Element, Layout> dx{device, other};
          images_in_memory<Element, Layout> dresidual{device, other};
          auto gamma = of_channels<real>(channels);
          auto beta = gamma;
          auto running_mean = gamma;
          auto running_variance = gamma;
          auto mean = gamma;
          auto inverse = gamma;
          auto dgamma = gamma;
          auto dbeta = gamma;
          std::vector<std::byte> workspace(gradus::kernels::batch_norm_workspace_bytes<Element, Layout>(device, shape));
          const gradus::kernels::batch_norm_affine<real> affine{gamma.data(), beta.data()};
          const gradus::kernels::batch_norm_running<real> running{running_mean.data(), running_variance.data(), 0.25};
          const gradus::kernels::batch_norm_saved<real> saved{mean.data(), inverse.data()};
          const auto act = relu ? activation::relu : activation::identity;
          const gradus::kernels::batch_norm_epilogue<Element> epilogue{relu ? residual.memory.data() : nullptr, act};
          batch_norm_forward_training(device, x.in(), y.out(), affine, 1e-3, running, saved, epilogue, workspace);
          batch_norm_forward_inference(device, x.in(), inference.out(), affine, 1e-3, running, epilogue, workspace);
          // Not y itself but numbers that are the same in both types, so that the same places are masked.
          batch_norm_backward(device, x.in(), residual.in(), dy.in(), dx.out(), affine, saved, act,
                              {.gamma = dgamma.data(),
                               .beta = dbeta.data(),
                               .residual = relu ? dresidual.memory.data() : nullptr,
                               .accumulate_residual = true},
                              {.accumulate = relu, .relu_output = relu ? dy.memory.data() : nullptr}, workspace);
          return pass_outputs{
              y.logical(),           inference.logical(),       dx.logical(),    dresidual.logical(), doubles(mean),
              doubles(running_mean), doubles(running_variance), doubles(dgamma), doubles(dbeta)};
        });
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
