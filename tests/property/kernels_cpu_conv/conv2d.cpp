// SPDX-License-Identifier: BSL-1.0
//
// Every pass of the convolution against its definition, over shapes that reach every path.
#include <boost/test/unit_test.hpp>

#include <tuple>
#include <type_traits>
#include <vector>

#include "emulated_amx.hpp"
#include "emulated_pairs.hpp"
#include "gradus/core/bfloat16.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/kernels/cpu/conv2d.hpp"
#include "instances.hpp"
#include "instruction_sets.hpp"
#include "support.hpp"

namespace {

template <class Element, class Layout>
struct test_case {
  using element = Element;
  using layout = Layout;
};
using cases = std::tuple<test_case<float, gradus::nchw>, test_case<float, gradus::nhwc>,
                         test_case<double, gradus::nchw>, test_case<double, gradus::nhwc>,
                         test_case<gradus::bfloat16, gradus::nchw>, test_case<gradus::bfloat16, gradus::nhwc>,
                         test_case<gradus::float16, gradus::nchw>, test_case<gradus::float16, gradus::nhwc>>;

/// Sums are exact; bfloat16 rounds them to 8 bits when they are stored, float16 to 11.
template <class Element>
constexpr double tolerance = gradus::real_element<Element>              ? 1e-6
                             : std::is_same_v<Element, gradus::float16> ? 1.0 / 2048
                                                                        : 1.0 / 256;

/// Two numbers, of rows and of columns.
struct pair {
  gradus::index_t height;
  gradus::index_t width;
};

/// The shape with a kernel and the same padding on opposite sides.
conv::shape padded(conv::shape s, pair kernel, pair padding) {
  s.kernel_height = kernel.height;
  s.kernel_width = kernel.width;
  s.pad_top = s.pad_bottom = padding.height;
  s.pad_left = s.pad_right = padding.width;
  return s;
}

const std::vector<conv::shape> shapes{
    {.batch = 0, .in = 3, .height = 5, .width = 5, .out = 4, .kernel_height = 3, .kernel_width = 3},
    {.batch = 1},
    {.batch = 2, .in = 3, .height = 5, .width = 7, .out = 2},
    padded({.batch = 3, .in = 1, .height = 12, .width = 11, .out = 32}, {5, 5}, {2, 2}),
    padded({.batch = 1, .in = 5, .height = 9, .width = 8, .out = 19}, {3, 3}, {1, 1}),
    padded({.batch = 2, .in = 3, .height = 15, .width = 14, .out = 17, .stride_height = 2, .stride_width = 2}, {7, 7},
           {3, 3}),
    {.batch = 2, .in = 4, .height = 7, .width = 9, .out = 6, .stride_height = 3, .stride_width = 2},
    {.batch = 1,
     .in = 2,
     .height = 2,
     .width = 3,
     .out = 3,
     .kernel_height = 5,
     .kernel_width = 4,
     .pad_top = 2,
     .pad_left = 2,
     .pad_bottom = 3,
     .pad_right = 1},
    {.batch = 2,
     .in = 8,
     .height = 6,
     .width = 5,
     .out = 12,
     .kernel_height = 3,
     .kernel_width = 2,
     .stride_height = 2,
     .stride_width = 1,
     .pad_top = 1,
     .pad_left = 0,
     .pad_bottom = 0,
     .pad_right = 1,
     .groups = 4},
    padded({.batch = 1, .in = 6, .height = 6, .width = 6, .out = 6, .groups = 6}, {3, 3}, {1, 1}),
    padded({.batch = 2, .in = 9, .height = 4, .width = 13, .out = 10}, {1, 7}, {0, 3}),
    // Rows as long as a tile of any instruction set, and a little longer; tiles that are not full.
    {.batch = 2, .in = 7, .height = 9, .width = 11, .out = 23},
    {.batch = 1, .in = 19, .height = 37, .width = 31, .out = 45},
    {.batch = 2, .in = 5, .height = 13, .width = 67, .out = 14, .stride_height = 2, .stride_width = 2},
    // Kernels of one tap with many results for their terms, and with strides: odd and even sizes, one and many rows.
    {.batch = 2, .in = 24, .height = 16, .width = 12, .out = 50},
    {.batch = 2, .in = 50, .height = 16, .width = 13, .out = 24},
    {.batch = 2, .in = 21, .height = 19, .width = 35, .out = 66, .stride_height = 2, .stride_width = 2},
    {.batch = 3, .in = 40, .height = 14, .width = 14, .out = 33, .stride_height = 2, .stride_width = 2},
    {.batch = 1, .in = 13, .height = 35, .width = 70, .out = 90, .stride_height = 1, .stride_width = 2},
    {.batch = 1, .in = 12, .height = 35, .width = 33, .out = 30, .stride_height = 3, .stride_width = 1, .groups = 3},
    {.batch = 2, .in = 4, .height = 6, .width = 40, .out = 10, .kernel_height = 3, .kernel_width = 3, .groups = 2},
    padded({.batch = 1, .in = 3, .height = 11, .width = 69, .out = 13, .stride_height = 2, .stride_width = 2}, {3, 5},
           {1, 2}),
    {.batch = 3, .in = 300, .height = 7, .width = 7, .out = 50},
    padded({.batch = 1, .in = 160, .height = 5, .width = 6, .out = 20}, {3, 3}, {1, 1}),
    padded({.batch = 1, .in = 33, .height = 13, .width = 3, .out = 34}, {7, 1}, {3, 0}),
    // Kernels of one tap whose results are one column that differs from the stored source: strides, padding, a source
    // of two columns, results that begin or end inside the source.
    {.batch = 1, .in = 16, .height = 128, .width = 2, .out = 32, .stride_height = 1, .stride_width = 2},
    {.batch = 1, .in = 16, .height = 70, .width = 1, .out = 32, .pad_top = 1},
    {.batch = 2, .in = 40, .height = 70, .width = 1, .out = 19, .pad_bottom = 2},
    {.batch = 1, .in = 16, .height = 128, .width = 1, .out = 32, .stride_height = 2, .stride_width = 1},
    // A kernel for every channel: vectors that are full and not, strides, phases that no tap meets, several blocks of
    // rows and several chunks, padding on one side.
    {.batch = 0, .in = 5, .height = 6, .width = 6, .out = 5, .kernel_height = 3, .kernel_width = 3, .groups = 5},
    padded({.batch = 2, .in = 67, .height = 9, .width = 8, .out = 67, .groups = 67}, {3, 3}, {1, 1}),
    padded({.batch = 3,
            .in = 48,
            .height = 13,
            .width = 15,
            .out = 48,
            .stride_height = 2,
            .stride_width = 2,
            .groups = 48},
           {3, 5}, {1, 2}),
    padded({.batch = 1,
            .in = 19,
            .height = 10,
            .width = 11,
            .out = 19,
            .stride_height = 3,
            .stride_width = 4,
            .groups = 19},
           {2, 3}, {1, 0}),
    padded({.batch = 2, .in = 33, .height = 70, .width = 69, .out = 33, .groups = 33}, {1, 7}, {0, 3}),
    {.batch = 1,
     .in = 16,
     .height = 3,
     .width = 5,
     .out = 16,
     .kernel_height = 5,
     .kernel_width = 2,
     .pad_top = 4,
     .pad_left = 0,
     .pad_bottom = 2,
     .pad_right = 1,
     .groups = 16},
    // Groups narrower than a vector of some instruction set: vectors that are full and not, strides, phases that no tap
    // meets, several blocks of rows and columns, padding on one side, more padding than image.
    padded({.batch = 2, .in = 32, .height = 9, .width = 8, .out = 32, .groups = 8}, {3, 3}, {1, 1}),
    padded({.batch = 2, .in = 40, .height = 7, .width = 19, .out = 40, .groups = 5}, {3, 3}, {1, 1}),
    padded({.batch = 3,
            .in = 12,
            .height = 13,
            .width = 15,
            .out = 12,
            .stride_height = 2,
            .stride_width = 2,
            .groups = 6},
           {3, 5}, {1, 2}),
    padded({.batch = 1,
            .in = 20,
            .height = 10,
            .width = 11,
            .out = 20,
            .stride_height = 3,
            .stride_width = 4,
            .groups = 5},
           {2, 3}, {1, 0}),
    padded({.batch = 1, .in = 64, .height = 40, .width = 65, .out = 64, .groups = 8}, {3, 3}, {1, 1}),
    padded({.batch = 2, .in = 32, .height = 5, .width = 16, .out = 32, .groups = 2}, {3, 3}, {1, 1}),
    {.batch = 1,
     .in = 16,
     .height = 3,
     .width = 2,
     .out = 16,
     .kernel_height = 5,
     .kernel_width = 4,
     .pad_top = 4,
     .pad_left = 0,
     .pad_bottom = 2,
     .pad_right = 5,
     .groups = 4},
    // Pixels a power of two apart, which would meet in the same sets of the cache.
    {.batch = 2, .in = 1024, .height = 4, .width = 5, .out = 40},
    {.batch = 1, .in = 34, .height = 3, .width = 7, .out = 1024},
    padded({.batch = 1, .in = 512, .height = 8, .width = 9, .out = 20, .stride_height = 2, .stride_width = 2}, {3, 3},
           {1, 1}),
    // Dilation: alone and with strides that share a factor with it or not, beyond the image, of groups, of one pixel.
    padded({.batch = 2, .in = 5, .height = 9, .width = 8, .out = 19, .dilation_height = 2, .dilation_width = 3}, {3, 3},
           {2, 3}),
    padded({.batch = 1,
            .in = 6,
            .height = 13,
            .width = 12,
            .out = 7,
            .stride_height = 2,
            .stride_width = 3,
            .groups = 1,
            .dilation_height = 4,
            .dilation_width = 2},
           {3, 2}, {4, 1}),
    padded({.batch = 2, .in = 4, .height = 5, .width = 7, .out = 3, .dilation_height = 12, .dilation_width = 9}, {3, 3},
           {12, 9}),
    padded({.batch = 2,
            .in = 16,
            .height = 9,
            .width = 10,
            .out = 16,
            .groups = 16,
            .dilation_height = 2,
            .dilation_width = 2},
           {3, 3}, {2, 2}),
    padded({.batch = 1, .in = 3, .height = 1, .width = 1, .out = 2, .dilation_height = 5, .dilation_width = 2}, {3, 3},
           {5, 2}),
    // Several panels of results, pixels of several images, rows that meet only padding in some rows of taps.
    padded({.batch = 3, .in = 9, .height = 14, .width = 14, .out = 64}, {5, 3}, {2, 1}),
    padded({.batch = 2, .in = 70, .height = 2, .width = 7, .out = 150}, {7, 1}, {6, 0}),
    // More weights than elements of the source, whose results are divided among the tasks: in place, from a strip, with
    // several blocks of terms, with a last panel that is not full, of groups.
    {.batch = 1, .in = 300, .height = 4, .width = 5, .out = 150},
    {.batch = 2, .in = 65, .height = 3, .width = 3, .out = 257},
    padded({.batch = 2, .in = 48, .height = 7, .width = 7, .out = 161, .stride_height = 2, .stride_width = 2}, {3, 3},
           {1, 1}),
    padded({.batch = 1, .in = 160, .height = 4, .width = 4, .out = 100, .stride_height = 2, .stride_width = 2}, {3, 3},
           {1, 1}),
    padded({.batch = 1, .in = 100, .height = 4, .width = 3, .out = 180, .groups = 2}, {3, 3}, {1, 1}),
};

/// For Winograd convolutions: whole and cut tiles, many and few of them, blocks that are parts of an image and several
/// images, several panels of results and parts of them, several blocks of input channels.
const std::vector<conv::shape> filtered_shapes{
    {.batch = 0, .in = 32, .height = 8, .width = 8, .out = 32, .kernel_height = 3, .kernel_width = 3},
    padded({.batch = 3, .in = 32, .height = 16, .width = 12, .out = 48}, {3, 3}, {1, 1}),
    padded({.batch = 7, .in = 48, .height = 7, .width = 7, .out = 32}, {3, 3}, {1, 1}),
    padded({.batch = 1, .in = 32, .height = 41, .width = 53, .out = 32}, {3, 3}, {1, 1}),
    padded({.batch = 1, .in = 32, .height = 9, .width = 13, .out = 272}, {3, 3}, {0, 0}),
    padded({.batch = 1, .in = 272, .height = 8, .width = 8, .out = 48}, {3, 3}, {1, 1}),
    padded({.batch = 2, .in = 32, .height = 14, .width = 15, .out = 48}, {5, 5}, {2, 2}),
    padded({.batch = 3, .in = 32, .height = 12, .width = 12, .out = 32}, {5, 5}, {0, 0}),
    padded({.batch = 1, .in = 32, .height = 41, .width = 53, .out = 32}, {5, 5}, {2, 2}),
    padded({.batch = 2, .in = 48, .height = 17, .width = 16, .out = 32}, {1, 7}, {0, 3}),
    padded({.batch = 1, .in = 32, .height = 37, .width = 16, .out = 32}, {1, 7}, {0, 3}),
    padded({.batch = 2, .in = 32, .height = 16, .width = 14, .out = 48}, {7, 1}, {3, 0}),
    padded({.batch = 2, .in = 32, .height = 17, .width = 14, .out = 80}, {7, 1}, {3, 0}),
    padded({.batch = 2, .in = 32, .height = 9, .width = 8, .out = 48}, {1, 3}, {0, 1}),
    padded({.batch = 2, .in = 48, .height = 12, .width = 9, .out = 32}, {3, 1}, {1, 0}),
    {.batch = 2,
     .in = 32,
     .height = 14,
     .width = 15,
     .out = 64,
     .kernel_height = 3,
     .kernel_width = 3,
     .pad_top = 2,
     .pad_left = 0,
     .pad_bottom = 1,
     .pad_right = 2},
};

template <class Element>
void check_same_bits(const conv::results<Element>& a, const conv::results<Element>& b) {
  BOOST_TEST(conv::same_bits(a.y_fused, b.y_fused));
  BOOST_TEST(conv::same_bits(a.dx_fused, b.dx_fused));
  BOOST_TEST(conv::same_bits(a.dw, b.dw));
  BOOST_TEST(conv::same_bits(a.dbias, b.dbias));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernels_cpu_conv2d)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_definition, Case, cases) {
  using element = typename Case::element;
  using layout = typename Case::layout;
  gradus::cpu one{{.intra_op_threads = 1}};
  gradus::cpu three{{.intra_op_threads = 3}};
  for (const conv::shape& s : shapes) {
    const conv::problem p{s};
    for_each_instruction_set([&](gradus::kernels::instruction_set set) {
      const auto result = conv::run<element, layout>(p, one, s.batch);
      BOOST_TEST_CONTEXT(layout::name << ", " << gradus::kernels::name_of(set) << ": " << s) {
        BOOST_TEST(conv::worst<layout>(p, result) < tolerance<element>);
        const auto again = conv::run<element, layout>(p, three, s.batch + 2);
        check_same_bits(result, again);
      }
    });
  }
}

using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

// One image of this size is computed at a time, so gradients of weights and bias are added up.
BOOST_AUTO_TEST_CASE_TEMPLATE(large_dilated_images_agree_with_the_definition, Layout, layouts) {
  const conv::problem p{padded({.batch = 3, .height = 740, .width = 750, .dilation_width = 2}, {1, 2}, {0, 1})};
  const gradus::kernels::detail::dilated_convolution all{p.geometry, std::is_same_v<Layout, gradus::nhwc>,
                                                         sizeof(float)};
  BOOST_TEST(all.images_at_once(3) == 1);
  gradus::cpu device{{.intra_op_threads = 2}};
  BOOST_TEST(conv::worst<Layout>(p, conv::run<float, Layout>(p, device, 3)) < tolerance<float>);
}

// The errors of Winograd scale with its results: it subtracts terms that it has added before.
BOOST_AUTO_TEST_CASE_TEMPLATE(winograd_agrees_with_the_definition, Layout, layouts) {
  gradus::cpu one{{.intra_op_threads = 1}};
  gradus::cpu nine{{.intra_op_threads = 9}};
  for (const conv::shape& s : filtered_shapes) {
    const conv::problem p{s};
    conv::problem direct{s};
    direct.geometry.algorithm = gradus::kernels::convolution_algorithm::direct;
    BOOST_TEST(gradus::kernels::detail::gains_by_winograd(p.geometry));
    for_each_instruction_set([&](gradus::kernels::instruction_set set) {
      const auto result = conv::run<float, Layout>(p, one, s.batch);
      BOOST_TEST_CONTEXT(Layout::name << ", " << gradus::kernels::name_of(set) << ": " << s) {
        BOOST_TEST(conv::worst<Layout>(p, result, conv::measure::all) < 5e-5);
        const auto again = conv::run<float, Layout>(p, nine, s.batch + 2);
        check_same_bits(result, again);
        const auto added = conv::run<float, Layout>(direct, one, s.batch);
        BOOST_TEST(conv::worst<Layout>(direct, added) < tolerance<float>);
        BOOST_TEST((s.batch == 0 || !conv::same_bits(result.y_plain, added.y_plain)));
      }
    });
  }
}

// 1 + 3 / 512 becomes 1 + 4 / 512, as a parameter; the sum shows the difference to 1. With tiles of pairs too.
BOOST_AUTO_TEST_CASE_TEMPLATE(parameters_are_rounded_to_bfloat16, Layout, layouts) {
  using gradus::bfloat16;
  namespace detail = gradus::kernels::detail;
  conv::problem p{{.batch = 1, .in = 2, .height = 9, .width = 70, .out = 1}};
  p.w.values = {1.0 + 3.0 / 512, 1.0};
  for (std::size_t i = 0; i < p.x.values.size(); ++i) {
    p.x.values[i] = i < p.x.values.size() / 2 ? 1.0 : -1.0;
  }
  gradus::cpu device{{.intra_op_threads = 1}};
  auto y = conv::run<bfloat16, Layout>(p, device, 1).y_plain;
  const auto x = conv::stored<bfloat16, Layout>(p.x);
  const auto w = conv::stored<float, Layout>(p.w);
  const std::size_t count = y.size();
  for (const auto* const kernels : {&emulated_pair_kernels(), &emulated_amx_kernels()}) {
    std::vector<bfloat16> of_pairs(count);
    const detail::pixel_correlations<bfloat16> all{
        *kernels, p.geometry, detail::channel_order_of<Layout>, gradus::kernels::pass::forward, 1, 1};
    auto* const workspace = static_cast<std::byte*>(device.allocate(all.workspace_bytes()));
    all.run(device, x.data(), w.data(),
            detail::output_of(of_pairs.data(), gradus::kernels::forward_epilogue<bfloat16>{}), workspace);
    device.deallocate(workspace, all.workspace_bytes());
    y.insert(y.end(), of_pairs.begin(), of_pairs.end());
  }
  for (const bfloat16 value : y) {
    BOOST_TEST(static_cast<float>(value) == 4.0F / 512);
  }
}

// 1 + 3 / 4096 becomes 1 + 4 / 4096 in float16.
BOOST_AUTO_TEST_CASE_TEMPLATE(parameters_are_rounded_to_float16, Layout, layouts) {
  conv::problem p{{.batch = 1, .in = 2, .height = 9, .width = 70, .out = 1}};
  p.w.values = {1.0 + 3.0 / 4096, 1.0};
  for (std::size_t i = 0; i < p.x.values.size(); ++i) {
    p.x.values[i] = i < p.x.values.size() / 2 ? 1.0 : -1.0;
  }
  gradus::cpu device{{.intra_op_threads = 1}};
  for_each_instruction_set([&](gradus::kernels::instruction_set) {
    for (const gradus::float16 value : conv::run<gradus::float16, Layout>(p, device, 1).y_plain) {
      BOOST_TEST(static_cast<float>(value) == 4.0F / 4096);
    }
  });
}

// What AVX512-BF16 and AMX run: here with tiles that any processor has.
template <class Element, class Layout>
void check_pairs(const gradus::kernels::detail::tile_kernels<float>& kernels) {
  using gradus::kernels::pass;
  namespace detail = gradus::kernels::detail;
  constexpr detail::channel_order order = detail::channel_order_of<Layout>;
  for (const conv::shape& s : shapes) {
    const conv::problem p{s};
    if (detail::is_dilated(p.geometry)) {
      continue;  // the tiles have no dilation
    }
    const auto x = conv::stored<Element, Layout>(p.x);
    const auto w = conv::stored<float, Layout>(p.w);
    const auto dy = conv::stored<Element, Layout>(p.dy);
    const auto residual = conv::stored<Element, Layout>(p.residual);
    const auto mask = conv::stored<Element, Layout>(p.mask);
    const std::vector<float> bias(p.bias.begin(), p.bias.end());
    conv::results<Element> results[2];
    for (const int threads : {1, 3}) {
      gradus::cpu device{{.intra_op_threads = threads}};
      conv::results<Element>& r = results[threads / 2];
      r = conv::run<Element, Layout>(p, device, s.batch);
      r.y_plain.assign(r.y_plain.size(), static_cast<Element>(NAN));
      r.y_fused = r.y_plain;
      r.dx_plain.assign(r.dx_plain.size(), static_cast<Element>(NAN));
      r.dx_fused = conv::stored<Element, Layout>(p.old_dx);
      const auto run = [&](pass which, const Element* from, const auto& output) {
        const detail::pixel_correlations<Element> all{kernels, p.geometry, order, which, threads, s.batch};
        const std::size_t bytes = all.workspace_bytes();
        auto* const workspace = static_cast<std::byte*>(device.allocate(bytes));
        std::memset(workspace, 0xFF, bytes);
        all.run(device, from, w.data(), output, workspace);
        device.deallocate(workspace, bytes);
      };
      using forward = gradus::kernels::forward_epilogue<Element>;
      using backward = gradus::kernels::backward_epilogue<Element>;
      run(pass::forward, x.data(), detail::output_of(r.y_plain.data(), forward{}));
      run(pass::forward, x.data(),
          detail::output_of(
              r.y_fused.data(),
              forward{.bias = bias.data(), .residual = residual.data(), .act = gradus::kernels::activation::relu}));
      run(pass::backward_data, dy.data(), detail::output_of(r.dx_plain.data(), backward{}));
      run(pass::backward_data, dy.data(),
          detail::output_of(r.dx_fused.data(), backward{.accumulate = true, .relu_output = mask.data()}));
      r.dw.assign(r.dw.size(), NAN);
      r.dbias.assign(r.dbias.size(), NAN);
      const detail::weight_gradients<Element> all{kernels, p.geometry, order, s.batch, threads, false};
      const std::size_t bytes = all.workspace_bytes();
      auto* const workspace = static_cast<std::byte*>(device.allocate(bytes));
      std::memset(workspace, 0xFF, bytes);
      all.run(device, x.data(), dy.data(), r.dw.data(), r.dbias.data(), workspace);
      device.deallocate(workspace, bytes);
    }
    BOOST_TEST_CONTEXT(Layout::name << ": " << s) {
      BOOST_TEST((conv::worst<Layout>(p, results[0]) < tolerance<Element>));
      BOOST_TEST(conv::same_bits(results[0].y_fused, results[1].y_fused));
      BOOST_TEST(conv::same_bits(results[0].dx_fused, results[1].dx_fused));
      BOOST_TEST(conv::same_bits(results[0].dw, results[1].dw));
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(pairs_of_terms_agree_with_the_definition, Layout, layouts) {
  check_pairs<gradus::bfloat16, Layout>(emulated_pair_kernels());
}
BOOST_AUTO_TEST_CASE_TEMPLATE(lines_of_pairs_agree_with_the_definition, Layout, layouts) {
  check_pairs<gradus::bfloat16, Layout>(emulated_amx_kernels<gradus::bfloat16>());
}
BOOST_AUTO_TEST_CASE(lines_of_pairs_of_float16_agree_with_the_definition) {
  check_pairs<gradus::float16, gradus::nhwc>(emulated_amx_kernels<gradus::float16>());
}

BOOST_AUTO_TEST_SUITE_END()
