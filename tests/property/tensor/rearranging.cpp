// SPDX-License-Identifier: BSL-1.0
//
// permute, swap_axes, reshape, slice, split, concat and stack against their definitions, over random shapes.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradus/tensor/allclose.hpp"
#include "gradus/tensor/concat.hpp"
#include "gradus/tensor/permute.hpp"
#include "gradus/tensor/reshape.hpp"
#include "gradus/tensor/slice.hpp"
#include "random_shapes.hpp"
#include "support.hpp"

using namespace tensor_tests;
using gradus::axis;
using gradus::extents;
using gradus::index_t;

BOOST_AUTO_TEST_SUITE(rearranging)

namespace {

constexpr int rounds = 60;

/// The message of the shape_error that action() throws.
template <class Action>
std::string mistake(const Action& action) {
  try {
    action();
  } catch (const gradus::shape_error& failure) {
    return failure.what();
  }
  return "no error";
}

bool is_mistake_here(const std::string& text, const std::string& beginning) {
  return text.starts_with(beginning) && text.find("[rearranging.cpp:") != std::string::npos;
}

template <class X, class Tensor>
bool shares_memory(const X& x, const Tensor& tensor) {
  return x.data() >= tensor.data() && x.data() < tensor.data() + tensor.size();
}

}  // namespace

using layouts = std::tuple<gradus::nchw, gradus::nhwc>;

BOOST_AUTO_TEST_CASE_TEMPLATE(axes_of_images, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  draws draw{1};
  for (int round = 0; round < rounds; ++round) {
    const auto shape = draw.shape<4>();
    const auto x = random_tensor<float, 4, Layout>(device, shape, "x");
    BOOST_TEST_CONTEXT(shape) {
      BOOST_TEST(holds(permute<0, 2, 3, 1>(x), extents<4>{shape[0], shape[2], shape[3], shape[1]}, [&](const auto& at) {
        return element_at(x, std::array{at[0], at[3], at[1], at[2]});
      }));
      BOOST_TEST(holds(permute<3, 0, axis::h, axis::c>(x), extents<4>{shape[3], shape[0], shape[2], shape[1]},
                       [&](const auto& at) {
                         return element_at(x, std::array{at[1], at[3], at[2], at[0]});
                       }));
      BOOST_TEST(holds(swap_axes<1, 3>(x + x), extents<4>{shape[0], shape[3], shape[2], shape[1]}, [&](const auto& at) {
        return 2 * element_at(x, std::array{at[0], at[3], at[2], at[1]});
      }));
      BOOST_TEST(holds(permute<0, 1, 2, 3>(x), shape, [&](const auto& at) { return element_at(x, at); }));
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(other_element_types_and_ranks, Element,
                              decltype(std::tuple<bool, std::int64_t, double>{})) {
  gradus::cpu device{{.intra_op_threads = 1}};
  draws draw{2};
  for (int round = 0; round < rounds; ++round) {
    const auto shape = draw.shape<3>();
    const auto x = random_tensor<Element, 3>(device, shape, "x", -3, 3);
    BOOST_TEST(holds(permute<2, 0, 1>(x), extents<3>{shape[2], shape[0], shape[1]}, [&](const auto& at) {
      return element_at(x, std::array{at[1], at[2], at[0]});
    }));
    const auto y = random_tensor<Element, 1>(device, {shape[0]}, "y", -3, 3);
    BOOST_TEST(holds(permute<0>(y), extents<1>{shape[0]}, [&](const auto& at) { return element_at(y, at); }));
    BOOST_TEST(holds(slice<2>(x, {.begin = shape[2] / 2, .step = 2}),
                     extents<3>{shape[0], shape[1], (shape[2] - shape[2] / 2 + 1) / 2}, [&](const auto& at) {
                       return element_at(x, std::array{at[0], at[1], shape[2] / 2 + 2 * at[2]});
                     }));
    BOOST_TEST(holds(concat<1>(x, x), extents<3>{shape[0], 2 * shape[1], shape[2]}, [&](const auto& at) {
      return element_at(x, std::array{at[0], at[1] % shape[1], at[2]});
    }));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(other_extents, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  draws draw{3};
  for (int round = 0; round < rounds; ++round) {
    const auto shape = draw.shape<4>();
    const auto x = random_tensor<float, 4, Layout>(device, shape, "x");
    const index_t pixels = shape[2] * shape[3];
    const auto number = [&](index_t i) {  // the element with the row-major index i
      return element_at(
          x, std::array{i / (shape[1] * pixels), i / pixels % shape[1], i / shape[3] % shape[2], i % shape[3]});
    };
    BOOST_TEST_CONTEXT(shape) {
      BOOST_TEST(
          holds(reshape(x, {shape.size()}), extents<1>{shape.size()}, [&](const auto& at) { return number(at[0]); }));
      BOOST_TEST(holds(reshape(x - 1, {shape[0] * shape[1], pixels}), extents<2>{shape[0] * shape[1], pixels},
                       [&](const auto& at) { return number(at[0] * pixels + at[1]) - 1; }));
      const extents<4> other{shape[3], shape[0], shape[2], shape[1]};
      const auto images = gradus::reshape<gradus::nhwc>(x, other);
      static_assert(std::is_same_v<typename decltype(images)::layout_type, gradus::nhwc>);
      BOOST_TEST(holds(images, other, [&](const auto& at) {
        return number(((at[0] * other[1] + at[1]) * other[2] + at[2]) * other[3] + at[3]);
      }));
      if (pixels > 0 && shape[0] > 0) {
        BOOST_TEST(holds(reshape(x, {shape[0], -1, pixels}), extents<3>{shape[0], shape[1], pixels},
                         [&](const auto& at) { return number((at[0] * shape[1] + at[1]) * pixels + at[2]); }));
      }
      // Back to the same images.
      BOOST_TEST(holds(gradus::reshape<Layout>(reshape(x, {-1}), shape), shape,
                       [&](const auto& at) { return element_at(x, at); }) == true);
    }
  }
}

BOOST_AUTO_TEST_CASE(mistakes_in_extents) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const gradus::tensor<float, 2> x{device, {3, 4}};
  BOOST_TEST(is_mistake_here(mistake([&] {
                               (void)reshape(x, {3, 5});
                             }),
                             "reshape: expected 12 elements as in (3, 4), got (3, 5), which has 15."));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)reshape(x, extents<1>{11}); }), "reshape: expected 12 elements"));
  BOOST_TEST(is_mistake_here(mistake([&] {
                               (void)reshape(x, {-1, 5});
                             }),
                             "reshape: expected extents whose product divides the 12 elements of (3, 4), got a"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)reshape(x, {-1, 0}); }), "reshape: expected extents whose product"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)reshape(x, {-1, -1}); }), "reshape: expected extents of at least 0"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)reshape(x, {-2, 6}); }), "reshape: expected extents of at least 0"));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ranges_of_every_axis, Layout, layouts) {
  gradus::cpu device{{.intra_op_threads = 2}};
  draws draw{4};
  const auto check = [&]<int Axis>(std::integral_constant<int, Axis>) {
    for (int round = 0; round < rounds; ++round) {
      const auto shape = draw.shape<4>();
      const auto x = random_tensor<float, 4, Layout>(device, shape, "x");
      const index_t extent = shape[Axis];
      const index_t begin = draw.below(extent + 1);
      const index_t end = begin + draw.below(extent - begin + 1);
      const index_t step = 1 + draw.below(3);
      const auto expected = [&](auto at) {
        at[Axis] = begin + at[Axis] * step;
        return element_at(x, at);
      };
      std::array<index_t, 4> values = shape.values();
      values[Axis] = 0;
      for (index_t i = begin; i < end; i += step) {
        ++values[Axis];
      }
      BOOST_TEST_CONTEXT(shape << " axis " << Axis << ": " << begin << " to " << end << " by " << step) {
        BOOST_TEST(holds(slice<Axis>(x, {.begin = begin, .end = end, .step = step}), extents<4>{values}, expected));
        if (begin < extent && end < extent) {  // counted from the end
          BOOST_TEST(holds(slice<Axis>(x, {.begin = begin - extent, .end = end - extent, .step = step}),
                           extents<4>{values}, expected));
        }
        const auto parts = split<Axis>(x, {begin, end - begin, extent - end});
        BOOST_TEST(parts.size() == 3);
        values[Axis] = end - begin;
        BOOST_TEST(holds(parts[1], extents<4>{values}, [&](auto at) {
          at[Axis] += begin;
          return element_at(x, at);
        }));
        BOOST_TEST(holds(concat<Axis>(parts), shape, [&](const auto& at) { return element_at(x, at); }));
        BOOST_TEST(holds(concat<Axis>(parts[0], parts[1] * 2, x), extents<4>{[&] {
                           values[Axis] = end + extent;
                           return values;
                         }()},
                         [&](auto at) {
                           const index_t i = at[Axis];
                           at[Axis] = i < end ? i : i - end;
                           return (i >= begin && i < end ? 2.0F : 1.0F) * element_at(x, at);
                         }));
      }
    }
  };
  check(std::integral_constant<int, 0>{});
  check(std::integral_constant<int, 1>{});
  check(std::integral_constant<int, 2>{});
  check(std::integral_constant<int, 3>{});
}

BOOST_AUTO_TEST_CASE(new_axes) {
  gradus::cpu device{{.intra_op_threads = 2}};
  draws draw{5};
  const auto check = [&]<int Axis>(std::integral_constant<int, Axis>) {
    for (int round = 0; round < rounds; ++round) {
      const auto shape = draw.shape<2>();
      const auto a = random_tensor<float, 2>(device, shape, "a");
      const auto b = random_tensor<float, 2>(device, shape, "b");
      std::array<index_t, 3> values{};
      for (int i = 0, from = 0; i < 3; ++i) {
        values[static_cast<std::size_t>(i)] = i == Axis ? 3 : shape[from++];
      }
      const auto expected = [&](const auto& at) {
        std::array<index_t, 2> old{};
        for (int i = 0, to = 0; i < 3; ++i) {
          if (i != Axis) {
            old[static_cast<std::size_t>(to++)] = at[static_cast<std::size_t>(i)];
          }
        }
        const index_t which = at[Axis];
        return which == 0 ? element_at(a, old) : which == 1 ? element_at(b, old) : -element_at(a, old);
      };
      BOOST_TEST(holds(stack<Axis>(a, b.view(), -a), extents<3>{values}, expected), shape << " axis " << Axis);
      const std::vector<gradus::tensor<float, 2>> list{a, b, -a};
      BOOST_TEST(holds(stack<Axis>(list), extents<3>{values}, expected));
    }
  };
  check(std::integral_constant<int, 0>{});
  check(std::integral_constant<int, 1>{});
  check(std::integral_constant<int, 2>{});
  const auto images = random_tensor<float, 4, gradus::nhwc>(device, {2, 3, 4, 5}, "x");
  BOOST_TEST(holds(stack<4>(images, images * 2), extents<5>{2, 3, 4, 5, 2}, [&](const auto& at) {
    return static_cast<float>(at[4] + 1) * element_at(images, std::array{at[0], at[1], at[2], at[3]});
  }));
  const gradus::tensor<float, 0> number{device, {}};
  BOOST_TEST((stack<0>(number, number).extents() == extents<1>{2}));
  BOOST_TEST((concat<0>(images, images, images, images).extents() == extents<4>{8, 3, 4, 5}));
  BOOST_TEST((stack<0>(number, number, number, number).extents() == extents<1>{4}));
}

BOOST_AUTO_TEST_CASE(mistakes_in_ranges_and_lists) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const gradus::tensor<float, 2> x{device, {3, 4}};
  const gradus::tensor<float, 2> y{device, {3, 5}};
  const std::string range = "slice: expected 0 <= begin <= end <= 4 along axis 1 of (3, 4), and a step of at least 1, ";
  BOOST_TEST(is_mistake_here(mistake([&] { (void)slice<1>(x, {.begin = 5}); }), range + "got begin 5, end to_end"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)slice<1>(x, {.begin = -5}); }), range));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)slice<1>(x, {.end = 5}); }), range));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)slice<1>(x, {.begin = 3, .end = 2}); }), range));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)slice<1>(x, {.step = 0}); }), range));
  BOOST_TEST(is_mistake_here(mistake([&] {
                               (void)split<1>(x, {1, 2});
                             }),
                             "split: expected sizes of at least 0 with the sum 4, the extent of axis 1 of (3, 4), got "
                             "(1, 2)."));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)split<1>(x, {-1, 5}); }), "split: expected sizes"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)split<1>(x, {3, 3}); }), "split: expected sizes"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)split<1>(x, 3); }), "split: expected a number of parts that divides"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)split<1>(x, 0); }), "split: expected a number of parts that divides"));
  BOOST_TEST(split<1>(x, 2).size() == 2);
  BOOST_TEST(is_mistake_here(mistake([&] { (void)concat<0>(x, y); }),
                             "concat: expected tensors of the shape (3, 4) except along axis 0, got (3, 5)."));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)concat<0>(x, x, y); }), "concat: expected tensors"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)stack<0>(x, y); }), "stack: expected tensors of the shape (1, 3, 4)"));
  BOOST_TEST(is_mistake_here(mistake([&] { (void)concat<0>(std::vector<gradus::tensor<float, 2>>{}); }),
                             "concat: expected at least one tensor, got an empty std::vector."));
}

BOOST_AUTO_TEST_CASE(memory_is_shared_where_the_docstrings_say_so) {
  gradus::cpu device{{.intra_op_threads = 1}};
  const gradus::tensor<float, 3> x{device, {3, 4, 5}};
  const gradus::tensor<float, 3> one{device, {1, 4, 5}};
  const gradus::image_tensor<float, gradus::nhwc> nhwc{device, {2, 3, 4, 5}};
  const gradus::image_tensor<float, gradus::nchw> nchw{device, {2, 3, 4, 5}};
  BOOST_TEST(shares_memory(reshape(x, {-1}), x));
  BOOST_TEST(shares_memory(reshape(nchw, {-1}), nchw));
  BOOST_TEST(shares_memory(gradus::reshape<gradus::nchw>(x, extents<4>{3, 4, 5, 1}), x));
  BOOST_TEST(!shares_memory(reshape(nhwc, {-1}), nhwc));
  BOOST_TEST(shares_memory(permute<0, 2, 3, 1>(nhwc), nhwc));
  BOOST_TEST(!shares_memory(permute<0, 2, 3, 1>(nchw), nchw));
  BOOST_TEST(shares_memory(slice<0>(x, {.begin = 1}), x));
  BOOST_TEST(!shares_memory(slice<0>(x, {.step = 2}), x));
  BOOST_TEST(!shares_memory(slice<1>(x, {.begin = 1}), x));
  BOOST_TEST(shares_memory(slice<1>(x, {.begin = -4}), x));
  BOOST_TEST(shares_memory(slice<1>(one, {.begin = 1, .end = 3}), one));
  BOOST_TEST(shares_memory(split<0>(x, 3)[2], x));
  // A temporary tensor lives in the expression.
  const auto tail =
      slice<0>(reshape(gradus::tensor<float, 2>{x.view().reshape(extents<2>{12, 5}) + 7}, {-1}), {.begin = 59});
  BOOST_TEST(tail.view()(0) == 7.0F);
}

BOOST_AUTO_TEST_CASE(a_tensor_may_be_assigned_from_its_parts) {
  gradus::cpu device{{.intra_op_threads = 1}};
  auto x = random_tensor<float, 2>(device, {4, 4}, "x");
  const gradus::tensor<float, 2> before = x;
  x = permute<1, 0>(x);
  BOOST_TEST(gradus::max_difference(x, transpose(before)) == 0);
  x = before;
  x.view().slice(1, 3).assign(slice<0>(x, {.end = 3}));
  BOOST_TEST(gradus::max_difference(slice<0>(x, {.begin = 1}), slice<0>(before, {.end = 3})) == 0);
}

// The derivative of sum(w * f(x)) by x is the adjoint of f at w: f only moves elements, so each x gets the w of its
// places.
BOOST_AUTO_TEST_CASE(derivatives) {
  using Layout = gradus::nhwc;
  gradus::cpu device{{.intra_op_threads = 1}};
  draws draw{6};
  const auto check = [&](const char* name, const auto& x, const auto& f) {
    const auto weights =
        random_tensor<double, std::remove_cvref_t<decltype(f(x))>::rank,
                      typename std::remove_cvref_t<decltype(f(x))>::layout_type>(device, f(x).extents(), "w");
    const auto [gradient] = gradients(sum(weights * f(x)), x);
    auto probe = x;
    for (index_t i = 0; i < x.size(); ++i) {
      probe = 0 * x;
      probe.data()[i] = 1;
      BOOST_TEST(std::abs(scalar_of(sum(weights * f(probe))) - gradient.data()[i]) < 1e-12, name);
    }
  };
  for (int round = 0; round < 8; ++round) {
    const auto shape = draw.shape<4>();
    const auto x = random_tensor<double, 4, Layout>(device, shape, "x");
    const index_t begin = draw.below(shape[2] + 1);
    check("permute", x, [](const auto& a) { return permute<2, 0, 3, 1>(a); });
    check("permute without a copy", x, [](const auto& a) { return permute<0, 2, 3, 1>(a); });
    check("reshape", x, [](const auto& a) {
      return reshape(a, {a.extent(0) * a.extent(1), a.extent(2) * a.extent(3)});
    });
    check("slice", x, [&](const auto& a) { return slice<2>(a, {.begin = begin}); });
    check("slice of the slowest", x, [](const auto& a) { return slice<0>(a, {.end = a.extent(0) / 2}); });
    check("slice with a step", x, [&](const auto& a) { return slice<1>(a, {.begin = shape[1] / 3, .step = 2}); });
    check("concat", x, [](const auto& a) { return concat<2>(a, a * 2, a); });
    check("concat of parts", x, [&](const auto& a) {
      return concat<2>(split<2>(a, {begin, shape[2] - begin})[0], a * 2);
    });
    check("stack", x, [](const auto& a) { return stack<1>(a, -a); });
  }
}

BOOST_AUTO_TEST_SUITE_END()
