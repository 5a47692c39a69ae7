// SPDX-License-Identifier: BSL-1.0
//
// Element-wise kernels have the same bits with every instruction set: at every offset and length, with NaN, infinities,
// subnormal numbers and zeros of both signs.
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gradus/core/bfloat16.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/float16.hpp"
#include "gradus/core/random.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/batch_norm.hpp"
#include "gradus/kernels/cpu/channel_softmax.hpp"
#include "gradus/kernels/cpu/concat.hpp"
#include "gradus/kernels/cpu/detail/simd/storage.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/cpu/formula.hpp"
#include "gradus/kernels/cpu/pad2d.hpp"
#include "gradus/kernels/cpu/pool2d.hpp"
#include "gradus/kernels/cpu/resize2d.hpp"
#include "gradus/kernels/cpu/scale_channels.hpp"
#include "gradus/kernels/cpu/softmax.hpp"
#include "gradus/kernels/cpu/strided_copy.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/optim/adam.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/lamb_pass.hpp"
#include "gradus/tensor/expressions.hpp"
#include "gradus/tensor/formula.hpp"
#include "gradus/tensor/tensor_view.hpp"
#include "guarded_array.hpp"
#include "instruction_sets.hpp"

namespace {

using gradus::bfloat16;
using gradus::cpu;
using gradus::float16;
using gradus::index_t;
using gradus::nchw;
using gradus::nhwc;
using gradus::kernels::activation;

using stored_elements = std::tuple<float, double, bfloat16, float16>;
using sixteen_bits = std::tuple<bfloat16, float16>;

/// Numbers of every kind; without `special`, of ordinary size.
template <class Element>
std::vector<Element> numbers(index_t count, std::uint64_t seed, bool special = true) {
  using real = gradus::parameter_element_t<Element>;
  using limits = std::numeric_limits<real>;
  // Half a unit in the last place of 1, in bfloat16 and in float16, and what rounds up or down because of one bit more.
  const real kinds[] = {0,
                        -real{0},
                        limits::infinity(),
                        -limits::infinity(),
                        limits::quiet_NaN(),
                        -limits::quiet_NaN(),
                        limits::denorm_min(),
                        -limits::denorm_min(),
                        limits::min() / 3,
                        limits::min(),
                        limits::max(),
                        limits::lowest(),
                        real(65504),
                        real(65520),
                        real(1e-7),
                        real(-6e-5),
                        real(1 + 1.0 / 256),
                        real(1 + 3.0 / 256),
                        real(1 + 1.0 / 2048),
                        real(6)};
  const gradus::random_stream stream{seed, "numbers"};
  std::vector<Element> result;
  for (index_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const auto number = static_cast<real>(4 * stream.normal(at));
    const auto which = static_cast<std::size_t>(stream.uniform(at + 100000) * 60);
    result.push_back(static_cast<Element>(special && which < std::size(kinds) ? kinds[which] : number));
  }
  return result;
}

/// The bits of an element; all NaN are the same.
template <class Element>
std::uint64_t bits_of(Element value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  const auto number = static_cast<double>(static_cast<gradus::parameter_element_t<Element>>(value));
  return std::isnan(number) ? 0x7FF8000000000000U : bits;
}

/// An array that ends at a guarded page, so its alignment follows from its length.
template <class Element>
class copied : public gradus_test::guarded_array<Element> {
 public:
  explicit copied(std::span<const Element> from) : gradus_test::guarded_array<Element>(from.size()) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      (*this)[i] = from[i];
    }
  }
};

/// Compares pass(results) of every instruction set with the portable one; `results` begins as a copy of `initial`.
template <class Element>
void check_same_bits(const std::string& name, const std::vector<Element>& initial,
                     const std::function<void(Element*)>& pass) {
  std::vector<std::uint64_t> expected;
  for_each_instruction_set([&](gradus::kernels::instruction_set set) {
    BOOST_TEST_CONTEXT(name << " of " << initial.size() << " with " << gradus::kernels::name_of(set)) {
      copied<Element> results{std::span<const Element>{initial}};
      pass(results.data());
      std::vector<std::uint64_t> bits;
      for (std::size_t i = 0; i < initial.size(); ++i) {
        bits.push_back(bits_of(results[i]));
      }
      if (set == gradus::kernels::instruction_set::portable) {
        expected = bits;
      }
      BOOST_TEST((bits == expected));
    }
  });
}

BOOST_AUTO_TEST_SUITE(instruction_sets)

BOOST_AUTO_TEST_CASE_TEMPLATE(elementwise_kernels_have_the_same_bits, Element, stored_elements) {
  cpu device{{.intra_op_threads = 1}};
  const activation activations[] = {activation::identity, activation::relu, {0.25, 6.0}, {0.0, 6.0}};
  for (index_t count = 0; count < 75; ++count) {
    const std::vector<Element> x = numbers<Element>(count, 1);
    const std::vector<Element> y = numbers<Element>(count, 2);
    const std::vector<Element> z = numbers<Element>(count, 3);
    const copied<Element> a{std::span<const Element>{x}};
    const copied<Element> b{std::span<const Element>{y}};
    for (const activation& act : activations) {
      check_same_bits<Element>("add_forward", z,
                               [&](Element* to) { add_forward(device, count, a.data(), b.data(), to, act); });
      check_same_bits<Element>("relu_forward", z, [&](Element* to) { relu_forward(device, count, a.data(), to, act); });
      if (act != activation::identity) {
        for (const bool accumulate : {false, true}) {
          check_same_bits<Element>("relu_backward", z, [&](Element* to) {
            relu_backward(device, count, a.data(), b.data(), to, accumulate, act);
          });
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(relu_keeps_numbers_and_nan, Element, stored_elements) {
  cpu device{{.intra_op_threads = 1}};
  const std::vector<Element> x = numbers<Element>(1000, 4);
  for_each_instruction_set([&](gradus::kernels::instruction_set) {
    std::vector<Element> y(x.size());
    relu_forward(device, static_cast<index_t>(x.size()), x.data(), y.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto number = static_cast<double>(static_cast<gradus::parameter_element_t<Element>>(x[i]));
      wrong += bits_of(y[i]) != (number < 0 ? 0 : bits_of(x[i])) ? 1 : 0;
    }
    BOOST_TEST(wrong == 0U);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(batch_norm_has_the_same_bits, Element, stored_elements) {
  using real = gradus::parameter_element_t<Element>;
  cpu device{{.intra_op_threads = 1}};
  const auto check = [&]<class Layout>(Layout, const gradus::image_extents& shape, bool special) {
    const std::vector<Element> x = numbers<Element>(shape.size(), 5, special);
    const std::vector<Element> y = numbers<Element>(shape.size(), 6, special);
    const std::vector<Element> z = numbers<Element>(shape.size(), 7);
    std::vector<std::byte> work(gradus::kernels::batch_norm_workspace_bytes<Element, Layout>(device, shape));
    std::vector<real> mean(static_cast<std::size_t>(shape.c), real{0.25});
    std::vector<real> deviation(static_cast<std::size_t>(shape.c), real{1.5});
    const gradus::image_view<const Element, Layout> in{device, x.data(), shape};
    const gradus::image_view<const Element, Layout> gradient{device, y.data(), shape};
    check_same_bits<Element>("forward", z, [&](Element* to) {
      batch_norm_forward_training(device, in, gradus::image_view<Element, Layout>{device, to, shape}, {}, 1e-5, {}, {},
                                  {y.data(), activation::relu}, work);
    });
    check_same_bits<Element>("backward", z, [&](Element* to) {
      batch_norm_backward(device, in, gradient, gradient, gradus::image_view<Element, Layout>{device, to, shape}, {},
                          {mean.data(), deviation.data()}, activation::relu, {}, {.accumulate = true}, work);
    });
  };
  for (const bool special : {false, true}) {
    for (const index_t channels : {1, 3, 16, 24, 37, 64, 600}) {
      check(nhwc{}, {3, channels, 2, 5}, special);
    }
    for (const gradus::image_extents& shape : {gradus::image_extents{3, 5, 1, 9}, {40, 2, 7, 7}, {2, 3, 33, 71}}) {
      check(nchw{}, shape, special);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(softmax_has_the_same_bits, Element, stored_elements) {
  using real = gradus::parameter_element_t<Element>;
  cpu device{{.intra_op_threads = 1}};
  for (const bool special : {false, true}) {
    for (index_t classes = 1; classes < 90; ++classes) {
      constexpr index_t rows = 3;
      const std::vector<Element> x = numbers<Element>(rows * classes, 21, special);
      const std::vector<Element> y = numbers<Element>(rows * classes, 22, special);
      const copied<Element> a{std::span<const Element>{x}};
      const copied<Element> b{std::span<const Element>{y}};
      const std::vector<std::int32_t> labels{0, static_cast<std::int32_t>(classes - 1),
                                             static_cast<std::int32_t>(classes / 2)};
      check_same_bits<Element>("softmax", y, [&](Element* to) { softmax(device, rows, classes, a.data(), to); });
      check_same_bits<Element>("cross-entropy", y, [&](Element* to) {
        const auto sums = softmax_cross_entropy_loss(device, rows, classes, a.data(), labels.data(), 0.5, to);
        to[0] = static_cast<Element>(static_cast<real>(sums.loss + static_cast<double>(sums.correct)));
      });
      for (const bool logarithm : {false, true}) {
        for (const bool adjacent : {false, true}) {
          const gradus::kernels::channel_softmax_shape shape{.outer = adjacent ? rows : 1,
                                                             .channels = adjacent ? classes : rows,
                                                             .inner = adjacent ? 1 : classes,
                                                             .logarithm = logarithm};
          check_same_bits<Element>("channels", y,
                                   [&](Element* to) { channel_softmax_forward(device, shape, a.data(), to); });
          check_same_bits<Element>("gradients", y, [&](Element* to) {
            channel_softmax_backward(device, shape, a.data(), b.data(), to, adjacent);
          });
        }
      }
      const std::vector<std::int32_t> pixels(static_cast<std::size_t>(classes), 1);
      for (const bool channels_last : {false, true}) {
        check_same_bits<Element>("pixels", y, [&](Element* to) {
          const auto sums = pixel_cross_entropy_loss(device,
                                                     {.examples = 1,
                                                      .classes = rows,
                                                      .pixels = classes,
                                                      .channels_last = channels_last,
                                                      .label_smoothing = 0.1},
                                                     a.data(), pixels.data(), 0.5, to);
          to[0] = static_cast<Element>(static_cast<real>(sums.loss + static_cast<double>(sums.correct)));
        });
      }
    }
  }
}

using real_elements = std::tuple<float, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(updates_have_the_same_bits, Element, real_elements) {
  namespace optim = gradus::optim;
  cpu device{{.intra_op_threads = 1}};
  for (index_t count = 1; count < 75; ++count) {
    const std::vector<Element> start = numbers<Element>(4 * count, 11);
    const std::vector<Element> gradients = numbers<Element>(count, 12);
    const copied<Element> g{std::span<const Element>{gradients}};
    const optim::segment whole{"p", 0, count, true};
    const std::span<const optim::segment> all{&whole, 1};
    const optim::pass_arrays<const Element, 1> read{g.data()};
    for (const bool nesterov : {false, true}) {
      const optim::momentum_pass pass{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = nesterov};
      check_same_bits<Element>("momentum", start, [&](Element* to) {
        apply_momentum(device, all, pass, to, g.data(), to + count);
        apply_momentum(device, all, pass, to + 2 * count, g.data(), static_cast<Element*>(nullptr));
        to[3 * count] = static_cast<Element>(optim::norm(device, count, g.data()));
      });
    }
    check_same_bits<Element>("adam", start, [&](Element* to) {
      const optim::detail::adam_pass<true> pass{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .gradient_decay = 0.1};
      const optim::pass_arrays<Element, 4> written{to, to + count, to + 2 * count, to + 3 * count};
      apply_pass(device, all, pass, optim::update_step{0.1, 3}, gradus::loss_scale{}, written, read);
    });
    check_same_bits<Element>("lamb", start, [&](Element* to) {
      const optim::detail::lamb_pass pass{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1};
      apply_lamb(device, all, pass, optim::update_step{0.1, 3}, gradus::loss_scale{}, to, g.data(), to + count,
                 to + 2 * count);
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(pooling_has_the_same_bits, Element, stored_elements) {
  cpu device{{.intra_op_threads = 1}};
  using gradus::kernels::pool2d_geometry;
  const auto check = [&]<class Layout>(Layout, const pool2d_geometry& shape) {
    const std::vector<Element> x = numbers<Element>(shape.input(2).size(), 8);
    const std::vector<Element> dy = numbers<Element>(shape.output(2).size(), 9);
    const gradus::image_view<const Element, Layout> in{device, x.data(), shape.input(2)};
    const gradus::image_view<const Element, Layout> gradient{device, dy.data(), shape.output(2)};
    std::vector<std::uint8_t> choice(dy.size());
    std::vector<std::uint8_t> first;
    check_same_bits<Element>("max", dy, [&](Element* to) {
      max_pool2d_forward(device, shape, in, gradus::image_view<Element, Layout>{device, to, shape.output(2)},
                         choice.data());
      first = first.empty() ? choice : first;
      BOOST_TEST((choice == first));
    });
    check_same_bits<Element>("max backward", x, [&](Element* to) {
      max_pool2d_backward(device, shape, gradient, choice.data(),
                          gradus::image_view<Element, Layout>{device, to, shape.input(2)},
                          {.accumulate = true, .relu_output = x.data()});
    });
    check_same_bits<Element>("average", dy, [&](Element* to) {
      average_pool2d_forward(device, shape, in, gradus::image_view<Element, Layout>{device, to, shape.output(2)},
                             false);
    });
    check_same_bits<Element>("average backward", x, [&](Element* to) {
      average_pool2d_backward(device, shape, gradient, gradus::image_view<Element, Layout>{device, to, shape.input(2)},
                              true, {});
    });
  };
  for (const index_t channels : {1, 3, 8, 19, 64, 75}) {
    const pool2d_geometry shape{.channels = channels,
                                .in_height = 7,
                                .in_width = 5,
                                .out_height = 4,
                                .out_width = 3,
                                .kernel_height = 3,
                                .kernel_width = 3,
                                .stride_height = 2,
                                .stride_width = 2,
                                .pad_top = 1,
                                .pad_left = 1};
    check(nhwc{}, shape);
    check(nchw{}, shape);
  }
  for (index_t width = 2; width < 73; ++width) {
    check(nchw{}, pool2d_geometry{.channels = 1,
                                  .in_height = 3,
                                  .in_width = width,
                                  .out_height = 1,
                                  .out_width = width / 2,
                                  .kernel_height = 2,
                                  .kernel_width = 2,
                                  .stride_height = 2,
                                  .stride_width = 2});
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(moved_images_have_the_same_bits, Element, stored_elements) {
  namespace kernels = gradus::kernels;
  cpu device{{.intra_op_threads = 1}};
  for (const index_t run : {1, 3, 16, 19, 75}) {
    for (const index_t out : {4, 11, 23}) {
      const kernels::resize2d_geometry g{.planes = 2,
                                         .run = run,
                                         .in_height = 5,
                                         .in_width = 9,
                                         .out_height = out,
                                         .out_width = 2 * out,
                                         .mode = kernels::interpolation::bilinear};
      const std::vector<Element> x = numbers<Element>(2 * 45 * run, 31);
      const std::vector<Element> y = numbers<Element>(4 * out * out * run, 32);
      check_same_bits<Element>("resize", y, [&](Element* to) { resize2d_forward(device, g, x.data(), to); });
      check_same_bits<Element>("resize backward", x, [&](Element* to) {
        resize2d_backward(device, g, y.data(), to, {.accumulate = true, .relu_output = x.data()});
      });
    }
    const gradus::image_extents shape{2, run, 4, 6};
    const kernels::pad2d_geometry pad{.channels = run,
                                      .height = 4,
                                      .width = 6,
                                      .top = 2,
                                      .bottom = 3,
                                      .left = 3,
                                      .right = 1,
                                      .mode = kernels::padding_mode::reflect};
    const std::vector<Element> x = numbers<Element>(shape.size(), 33);
    const std::vector<Element> y = numbers<Element>(pad.output(2).size(), 34);
    const gradus::image_view<const Element, nhwc> padded{device, y.data(), pad.output(2)};
    check_same_bits<Element>("pad backward", x, [&](Element* to) {
      pad2d_backward(device, pad, padded, gradus::image_view<Element, nhwc>{device, to, shape},
                     {.accumulate = true, .relu_output = x.data(), .mask = {0.25, 6.0}});
    });
    check_same_bits<Element>("copy of channels", x, [&](Element* to) {
      copy_channels(device, gradus::image_view<const Element, nhwc>{device, y.data(), shape}, 0,
                    gradus::image_view<Element, nhwc>{device, to, shape}, 0, run, true);
    });
    kernels::strided_copy_shape turned;
    turned.axes[0] = {24, 1, run};
    turned.axes[1] = {run, 24, 1};
    check_same_bits<Element>("strided copy", x, [&](Element* to) { strided_copy(device, turned, y.data(), to, true); });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(scaled_channels_have_the_same_bits, Element, stored_elements) {
  using real = gradus::parameter_element_t<Element>;
  cpu device{{.intra_op_threads = 1}};
  for (const index_t channels : {1, 3, 8, 19, 64, 75}) {
    for (const index_t pixels : {1, 2, 7, 16, 33, 300}) {
      for (const bool channels_last : {false, true}) {
        const gradus::kernels::scale_channels_shape shape{2, channels, pixels, channels_last};
        const index_t count = 2 * channels * pixels;
        const copied<Element> x{std::span<const Element>{numbers<Element>(count, 31)}};
        std::vector<Element> ordinary = numbers<Element>(count, 32);  // a NaN would hide the others of its sum
        for (Element& each : ordinary) {
          each = std::abs(static_cast<double>(static_cast<real>(each))) < 100 ? each : Element{};
        }
        const copied<Element> dy{std::span<const Element>{ordinary}};
        const copied<Element> factors{std::span<const Element>{numbers<Element>(2 * channels, 33)}};
        const std::vector<Element> before = numbers<Element>(count + 2 * channels, 34);
        check_same_bits<Element>("products", before, [&](Element* to) {
          scale_channels_forward(device, shape, x.data(), factors.data(), to);
        });
        for (const bool add : {false, true}) {
          check_same_bits<Element>("gradients", before, [&](Element* to) {
            scale_channels_backward(device, shape, dy.data(), factors.data(), dy.data(),
                                    gradus::kernels::scale_channels_gradients<Element>{to, add, to + count, add});
          });
        }
      }
    }
  }
}

/// Every operation of formulas: b chooses one for each element, so that a NaN hides no other.
BOOST_AUTO_TEST_CASE_TEMPLATE(formulas_have_the_same_bits, Element, real_elements) {
  namespace kernels = gradus::kernels;
  using real = gradus::parameter_element_t<Element>;
  cpu device{{.intra_op_threads = 1}};
  const auto all = gradus::formula_of<4>([](auto a, auto b, auto slope, auto shift) {
    const auto low = where(b < -6, exp(a), where(b < -4, log(a), where(b < -2, sqrt(a), tanh(a))));
    const auto middle = where(b < 1, sigmoid(a), where(b < 2, erf(a), where(b <= 3, softplus(a), pow(a, 1.5))));
    const auto high = where(b > 8 && !(a == b), square(a) / b, where(b > 6 || a != a, min(a, b), abs(max(a, -b))));
    return slope * where(b < 0, low, where(b < 4, middle, where(b > 5, high, gradus::relu(-a) - clamp(a, -1, b)))) +
           shift;
  });
  const auto loss = gradus::loss_formula_of([](auto y, auto t) { return mean(where(y < t, square(y - t), exp(-t))); });
  for (const auto& shape : {kernels::formula_shape{3, 37, 1}, {70, 3, 1}, {2, 3, 75}, {70, 2, 9}, {1, 1, 1}}) {
    const auto count = static_cast<index_t>(shape.count());
    const copied<Element> a{std::span<const Element>{numbers<Element>(count, 41)}};
    const copied<Element> b{std::span<const Element>{numbers<Element>(count, 42)}};
    const copied<Element> dy{std::span<const Element>{numbers<Element>(count, 43)}};
    const copied<real> slope{std::span<const real>{numbers<real>(shape.channels, 44)}};
    const copied<real> targets{std::span<const real>{numbers<real>(count, 45)}};
    const real shift{0.5};
    const kernels::formula_arguments<Element, 2, 2> from{{a.data(), b.data()}, {slope.data(), &shift}, {true, false}};
    const std::vector<Element> before = numbers<Element>(2 * count + 1, 46);
    check_same_bits<Element>("formula", before,
                             [&](Element* to) { kernels::formula_forward(device, shape, all, from, to); });
    std::vector<std::uint64_t> first;
    check_same_bits<Element>("derivatives", before, [&](Element* to) {
      std::vector<std::byte> work(kernels::formula_workspace_bytes(device, shape, 2));
      std::vector<real> sums(static_cast<std::size_t>(shape.channels) + 1);
      kernels::formula_backward(
          device, shape, all, from, dy.data(), a.data(),
          kernels::formula_gradients<Element, 2, 2>{{to, to + count}, {true, false}, {sums.data(), &sums.back()}},
          work);
      std::vector<std::uint64_t> bits;
      for (const real sum : sums) {
        bits.push_back(bits_of(sum));
      }
      first = first.empty() ? bits : first;
      BOOST_TEST((bits == first));
    });
    check_same_bits<Element>("loss", before, [&](Element* to) {
      const auto sum = kernels::formula_loss(device, 1, count, loss, a.data(), targets.data(),
                                             static_cast<const real*>(nullptr), 0.5, to);
      to[count] = static_cast<Element>(static_cast<real>(sum.loss));
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(conversions_of_sixteen_bits_are_those_of_the_types, Element, sixteen_bits) {
  namespace detail = gradus::kernels::detail;
  // Every number of 16 bits, then floats around the middle of two of them.
  std::vector<Element> all;
  std::vector<float> floats;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    all.push_back(std::bit_cast<Element>(static_cast<std::uint16_t>(bits)));
    const auto exact = std::bit_cast<std::uint32_t>(static_cast<float>(all.back()));
    for (const std::uint32_t more : {0U, 0x0FFFU, 0x1000U, 0x1001U, 0x7FFFU, 0x8000U, 0x8001U}) {
      floats.push_back(std::bit_cast<float>(exact + more));
    }
  }
  for_each_instruction_set([&](gradus::kernels::instruction_set) {
    std::size_t wrong = 0;
    std::vector<float> wide(all.size());
    detail::read_run(all.data(), static_cast<index_t>(all.size()), wide.data());
    for (std::size_t i = 0; i < all.size(); ++i) {
      wrong += bits_of(wide[i]) != bits_of(static_cast<float>(all[i])) ? 1 : 0;
    }
    std::vector<float> rounded = floats;
    detail::round_run<Element>(static_cast<index_t>(rounded.size()), rounded.data());
    for (std::size_t i = 0; i < floats.size(); ++i) {
      wrong += bits_of(rounded[i]) != bits_of(static_cast<float>(Element{floats[i]})) ? 1 : 0;
    }
    BOOST_TEST(wrong == 0U);
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
