// SPDX-License-Identifier: BSL-1.0
//
// Cases of the sweep over convolutions: drawn by seed and index, or walked through; written as C++; made smaller.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

#include "gradus/kernels/conv2d.hpp"
#include "gradus/simd/isa.hpp"
#include "shape.hpp"

namespace conv {

enum class element : unsigned char { float32, float64, bfloat16, float16 };

/// The code that runs: of an instruction set, or the tiles of pairs that any processor has.
enum class code : unsigned char {
  portable,
  avx2,
  avx512,
  avx512_bf16,
  amx_bf16,
  amx_fp16,
  emulated_amx,
  emulated_pairs
};
static_assert(static_cast<std::size_t>(code::emulated_amx) ==
                      std::size(gradus::kernels::detail::all_instruction_sets) &&
                  static_cast<int>(code::amx_fp16) == static_cast<int>(gradus::kernels::instruction_set::amx_fp16),
              "the instruction sets come first, in the order of gradus/simd/isa.hpp");

/// One call of one pass.
struct sweep_case {
  conv::shape shape;
  gradus::kernels::pass which = gradus::kernels::pass::forward;
  conv::element element = element::float32;
  bool channels_last = false;
  conv::code code = code::portable;
  int threads = 1;
  index_t planned = 0;                 ///< images that the workspace is planned for beyond the batch
  bool own_workspace = false;          ///< as large as this code needs it, not the largest of all instruction sets
  bool bias = false;                   ///< forward epilogue: there is one; weights: its gradient is asked for
  bool residual = false;               ///< forward epilogue
  bool relu = false;                   ///< forward epilogue: act; backward epilogue: relu_output
  unsigned activation_parameters = 0;  ///< with relu: 0 for ReLU, 1 for a leaky ReLU, 2 for one with a cap
  bool accumulate = false;             ///< backward epilogue
  bool winograd = true;                ///< allowed
  bool transposed = false;             ///< a pass of the transposed convolution whose terms are those of `which`
  unsigned fronts = 0;                 ///< bit i: array i begins at a guarded page, and does not end at one
  std::uint32_t numbers = 1;           ///< seed of the values
};

/// The activation of the epilogue.
[[nodiscard]] inline gradus::kernels::activation activation_of(const sweep_case& c) {
  using gradus::kernels::activation;
  return !c.relu                        ? activation::identity
         : c.activation_parameters == 1 ? activation::leaky_relu(0.125)
         : c.activation_parameters == 2 ? activation{.slope = 0, .cap = 1}
                                        : activation::relu;
}

/// True if a case computes y, with a bias, a residual and an activation; false for gradients.
[[nodiscard]] inline bool has_forward_epilogue(const sweep_case& c) {
  return c.which == (c.transposed ? gradus::kernels::pass::backward_data : gradus::kernels::pass::forward);
}

/// Numbers that depend only on the seed and the index of a case.
class draws {
 public:
  draws(std::uint64_t seed, std::uint64_t index) : state_{mixed(mixed(seed) + index)} {}

  std::uint64_t next() { return mixed(state_ += 0x9E3779B97F4A7C15U); }
  /// From first to last.
  index_t in(index_t first, index_t last) {
    return first + static_cast<index_t>(next() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool one_of(index_t count) { return in(1, count) == 1; }
  index_t of(std::initializer_list<index_t> values) {
    return values.begin()[in(0, static_cast<index_t>(values.size()) - 1)];
  }

 private:
  [[nodiscard]] static std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }

  std::uint64_t state_;
};

/// Multiply-adds of a call, at least 1 for every number that it reads or writes.
[[nodiscard]] inline index_t cost(const shape& s) {
  const conv2d_geometry g = s.geometry();
  return std::max<index_t>(1, s.batch) * (g.multiply_adds() + g.input(1).size() + g.output(1).size());
}

/// Whether a layer accepts it.
[[nodiscard]] inline bool valid(const shape& s) {
  return s.batch >= 0 &&
         std::min({s.in, s.height, s.width, s.out, s.kernel_height, s.kernel_width, s.stride_height, s.stride_width,
                   s.groups, s.dilation_height, s.dilation_width}) >= 1 &&
         std::min({s.pad_top, s.pad_left, s.pad_bottom, s.pad_right}) >= 0 && s.in % s.groups == 0 &&
         s.out % s.groups == 0 && s.height + s.pad_top + s.pad_bottom >= s.reach_height() &&
         s.width + s.pad_left + s.pad_right >= s.reach_width();
}

/// Padding of a kernel: mostly less than the kernel, sometimes more.
inline index_t draw_padding(draws& d, index_t kernel) {
  return d.one_of(3) ? 0 : d.one_of(12) ? d.in(kernel, kernel + 3) : d.in(0, kernel - 1);
}

inline void draw_window(draws& d, shape& s) {
  const auto stride = [&] { return d.one_of(2) ? 1 : d.one_of(10) ? d.in(4, 40) : d.in(1, 3); };
  s.stride_height = stride();
  s.stride_width = d.one_of(2) ? s.stride_height : stride();
  if (d.one_of(4)) {
    const auto dilation = [&] { return d.one_of(3) ? 1 : d.one_of(8) ? d.in(5, 20) : d.in(2, 4); };
    s.dilation_height = dilation();
    s.dilation_width = d.one_of(2) ? s.dilation_height : dilation();
  }
  s.pad_top = draw_padding(d, s.reach_height());
  s.pad_left = draw_padding(d, s.reach_width());
  s.pad_bottom = d.one_of(2) ? s.pad_top : draw_padding(d, s.reach_height());
  s.pad_right = d.one_of(2) ? s.pad_left : draw_padding(d, s.reach_width());
  s.pad_bottom = std::max(s.pad_bottom, s.reach_height() - s.height - s.pad_top);
  s.pad_right = std::max(s.pad_right, s.reach_width() - s.width - s.pad_left);
}

inline index_t draw_channels(draws& d) {
  return d.of({1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 66, 96, 97});
}
inline index_t draw_extent(draws& d) {
  return d.one_of(2)   ? d.in(1, 9)
         : d.one_of(2) ? d.in(10, 18)
         : d.one_of(2) ? d.in(27, 37)
                       : d.of({47, 48, 49, 63, 64, 65, 79, 80, 81, 95, 96, 97, 127, 128, 129});
}
inline index_t draw_kernel(draws& d) {
  return d.one_of(4) ? 1 : d.one_of(3) ? 3 : d.one_of(30) ? d.in(8, 12) : d.in(1, 7);
}

inline void draw_groups(draws& d, shape& s, index_t most) {
  switch (d.in(0, 3)) {
    case 0:
      s.groups = d.in(1, most);  // depthwise, with multipliers
      s.in = s.groups;
      s.out = s.groups * (d.one_of(2) ? 1 : d.in(1, 4));
      break;
    case 1:
      s.groups = 2;
      s.in = 2 * ((s.in + 1) / 2);
      s.out = 2 * ((s.out + 1) / 2);
      break;
    case 2:
      s.groups = d.in(2, std::max<index_t>(2, most / 4));
      s.in = s.groups * d.of({1, 2, 3, 4, 5, 8, 16});
      s.out = d.one_of(2) ? s.in : s.groups * d.in(1, 9);
      break;
    default:
      s.groups = d.in(2, std::max<index_t>(2, most / 4));  // narrower than a vector
      s.in = s.out = s.groups * d.of({2, 4, 8});
  }
}

/// Makes a shape smaller until a call costs at most so much.
inline void limit_cost(shape& s, index_t most) {
  const auto halve = [](index_t& value, index_t unit) { value = std::max(unit, value / 2 / unit * unit); };
  while (cost(s) > most) {
    const shape before = s;
    if (s.batch > 1) {
      --s.batch;
    } else if (std::min(s.height, s.width) > 8) {
      halve(s.height > s.width ? s.height : s.width, 1);
    } else if (std::max(s.in, s.out) / s.groups > 4) {
      halve(s.in > s.out ? s.in : s.out, s.groups);
    } else if (std::max(s.height, s.width) > 8) {
      halve(s.height > s.width ? s.height : s.width, 1);
    } else if (s.groups > 1) {
      const index_t groups = s.groups / 2;
      s.in = s.in / s.groups * groups;
      s.out = s.out / s.groups * groups;
      s.groups = groups;
    } else {
      halve(s.kernel_height > s.kernel_width ? s.kernel_height : s.kernel_width, 1);
    }
    if (!valid(s)) {
      s.pad_bottom = std::max(s.pad_bottom, s.reach_height() - s.height - s.pad_top);
      s.pad_right = std::max(s.pad_right, s.reach_width() - s.width - s.pad_left);
    }
    if (s == before) {
      return;
    }
  }
}

/// A shape by chance: of all kinds that have loops of their own.
inline shape draw_shape(draws& d) {
  constexpr index_t most_cost = 60 * 1000;
  shape s;
  s.batch = d.one_of(60) ? 0 : d.one_of(2) ? 1 : d.in(1, 3);
  s.in = draw_channels(d);
  s.out = draw_channels(d);
  s.kernel_height = draw_kernel(d);
  s.kernel_width = d.one_of(2) ? s.kernel_height : draw_kernel(d);
  s.height = d.in(1, 9);
  s.width = d.in(1, 9);
  switch (d.in(0, 19)) {
    case 0:
    case 1:
    case 2:
    case 3: {  // one column or one row, or few
      const index_t length = d.one_of(3) ? d.in(1, 140) : d.of({12, 15, 16, 17,  31,  32,  33,  63,  64,  65,  70,
                                                                95, 96, 97, 127, 128, 129, 192, 255, 256, 257, 513});
      s.height = length;
      s.width = d.one_of(2) ? 1 : d.in(1, 3);
      s.kernel_height = d.one_of(2) ? 1 : d.in(1, 7);
      s.kernel_width = d.one_of(2) ? 1 : d.in(1, 3);
      if (d.one_of(4)) {
        std::swap(s.height, s.width);
        std::swap(s.kernel_height, s.kernel_width);
      }
      break;
    }
    case 4:
    case 5:
    case 6:  // tiles along rows, or of many rows
      s.height = draw_extent(d);
      s.width = draw_extent(d);
      break;
    case 7:
    case 8: {  // many channels
      s.in = d.of({s.in, 64, 127, 128, 129, 160, 200, 256, 257, 272, 300, 512, 1024});
      s.out = d.of({s.out, 16, 33, 64, 65, 128, 150, 256, 257});
      if (d.one_of(2)) {
        std::swap(s.in, s.out);
      }
      draw_window(d, s);
      limit_cost(s, 10 * most_cost);
      return s;
    }
    case 9:
    case 10:
    case 11:
      draw_groups(d, s, d.one_of(2) ? 10 : 70);
      break;
    case 12: {  // tiles of Winograd's filtering
      const index_t taps = d.of({3, 3, 5, 7});
      const index_t line = taps == 7 || (taps == 3 && d.one_of(3)) ? d.in(1, 2) : 0;
      s.kernel_height = line == 1 ? 1 : taps;
      s.kernel_width = line == 2 ? 1 : taps;
      s.height = d.in(4, 20);
      s.width = d.in(4, 20);
      s.in = d.of({32, 32, 32, 48, 64});
      s.out = d.of({32, 32, 32, 48, 80});
      if (d.one_of(30)) {
        (d.one_of(2) ? s.in : s.out) = 272;
      }
      draw_window(d, s);
      s.stride_height = s.stride_width = 1;
      limit_cost(s, 60 * most_cost);
      return s;
    }
    default:
      break;
  }
  draw_window(d, s);
  limit_cost(s, d.one_of(8) ? 5 * most_cost : most_cost);
  return s;
}

/// Removes the parts of the epilogue that the pass does not have.
inline void keep_what_fits(sweep_case& c) {
  const bool weights = c.which == gradus::kernels::pass::backward_weights;
  c.residual = c.residual && !weights && has_forward_epilogue(c);
  c.relu = c.relu && !weights;
  c.activation_parameters = c.relu ? c.activation_parameters : 0;
  c.accumulate = c.accumulate && !weights && !has_forward_epilogue(c);
}

/// The rest of a case: what is not its shape.
inline sweep_case draw_call(draws& d, const shape& s) {
  using gradus::kernels::pass;
  sweep_case c;
  c.shape = s;
  c.which =
      std::array{pass::forward, pass::backward_data, pass::backward_weights}[static_cast<std::size_t>(d.in(0, 2))];
  c.element = static_cast<element>(d.in(0, 3));
  c.channels_last = d.one_of(2);
  c.transposed = d.one_of(4);
  do {
    code last = code::amx_fp16;
    if (c.element >= element::bfloat16 && !c.transposed && s.dilation_height * s.dilation_width == 1) {
      last = c.element == element::bfloat16 ? code::emulated_pairs : code::emulated_amx;
    }
    c.code = static_cast<code>(d.in(0, static_cast<index_t>(last)));
  } while (c.code < code::emulated_amx &&
           !gradus::kernels::is_available(static_cast<gradus::kernels::instruction_set>(c.code)));
  c.threads = static_cast<int>(d.in(1, 3));
  c.planned = d.one_of(2) ? 0 : d.in(1, 3);
  c.own_workspace = c.planned == 0 && d.one_of(2);
  c.bias = d.one_of(2);
  c.residual = d.one_of(2);
  c.relu = d.one_of(2);
  c.activation_parameters = d.one_of(2) ? static_cast<unsigned>(d.in(1, 2)) : 0;
  c.accumulate = d.one_of(2);
  keep_what_fits(c);
  c.winograd = !d.one_of(4);
  c.fronts = static_cast<unsigned>(d.next() % 256);
  c.numbers = static_cast<std::uint32_t>(d.next());
  return c;
}

/// All small shapes, and with them all passes, elements, layouts and codes: the case `index` of a walk.
/// @return nothing beyond the last, or where the case makes no sense
class walk {
 public:
  [[nodiscard]] static constexpr std::uint64_t size() {
    std::uint64_t product = channels.size();
    for (const std::uint64_t count : counts) {
      product *= count;
    }
    return product;
  }
  [[nodiscard]] static std::optional<sweep_case> at(std::uint64_t index) {
    std::array<index_t, counts.size()> digit{};
    std::uint64_t rest = index;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      digit[i] = static_cast<index_t>(rest % counts[i]);
      rest /= counts[i];
    }
    draws d{0, index};
    shape s = channels[static_cast<std::size_t>(rest % channels.size())];
    s.batch = d.in(1, 2);
    s.height = 1 + digit[3];
    s.width = 1 + digit[4];
    s.kernel_height = 1 + digit[5];
    s.kernel_width = 1 + digit[6];
    s.stride_height = 1 + digit[7];
    s.stride_width = 1 + digit[8];
    s.pad_top = digit[9];
    s.pad_left = digit[10];
    s.pad_bottom = digit[11] / 2;
    s.pad_right = digit[11] % 2;
    s.dilation_height = d.of({1, 1, 1, 2, 3});
    s.dilation_width = d.of({1, 1, 1, 2, 3});
    sweep_case c = draw_call(d, s);
    c.which = static_cast<gradus::kernels::pass>(digit[0]);
    c.element = static_cast<element>(digit[1] / 2);
    c.channels_last = digit[1] % 2 != 0;
    c.code = static_cast<code>(digit[2]);
    c.accumulate = d.one_of(2);
    keep_what_fits(c);
    if (rest >= channels.size() || !valid(s) ||
        !gradus::kernels::is_available(static_cast<gradus::kernels::instruction_set>(c.code))) {
      return {};
    }
    return c;
  }

 private:
  // Passes, elements and layouts, codes, height, width, kernel, stride, padding before, padding behind.
  static constexpr std::array<std::uint64_t, 12> counts{3, 8, 5, 5, 5, 3, 3, 3, 3, 3, 3, 4};
  static constexpr std::array<shape, 4> channels{shape{.in = 3, .out = 5}, shape{.in = 17, .out = 34},
                                                 shape{.in = 5, .out = 5, .groups = 5},
                                                 shape{.in = 12, .out = 12, .groups = 3}};
};

/// The case of a seed, from 1 on; those of seed 0 are the walk.
[[nodiscard]] inline std::optional<sweep_case> case_of(std::uint64_t seed, std::uint64_t index) {
  if (seed == 0) {
    return walk::at(index);
  }
  draws d{seed, index};
  const shape s = draw_shape(d);
  return draw_call(d, s);
}

/// As C++, what is not as it is by itself.
[[nodiscard]] inline std::string text_of(const sweep_case& c) {
  std::ostringstream text;
  const shape& s = c.shape;
  text << "{.shape = {.batch = " << s.batch;
  const auto number = [&](const char* name, index_t value, index_t usual) {
    if (value != usual) {
      text << ", ." << name << " = " << value;
    }
  };
  number("in", s.in, 1);
  number("height", s.height, 1);
  number("width", s.width, 1);
  number("out", s.out, 1);
  number("kernel_height", s.kernel_height, 1);
  number("kernel_width", s.kernel_width, 1);
  number("stride_height", s.stride_height, 1);
  number("stride_width", s.stride_width, 1);
  number("pad_top", s.pad_top, 0);
  number("pad_left", s.pad_left, 0);
  number("pad_bottom", s.pad_bottom, 0);
  number("pad_right", s.pad_right, 0);
  number("groups", s.groups, 1);
  number("dilation_height", s.dilation_height, 1);
  number("dilation_width", s.dilation_width, 1);
  constexpr std::array passes{"forward", "backward_data", "backward_weights"};
  constexpr std::array elements{"float32", "float64", "bfloat16", "float16"};
  constexpr std::array codes{"portable", "avx2",     "avx512",       "avx512_bf16",
                             "amx_bf16", "amx_fp16", "emulated_amx", "emulated_pairs"};
  text << "}, .which = pass::" << passes[static_cast<std::size_t>(c.which)]
       << ", .element = element::" << elements[static_cast<std::size_t>(c.element)];
  const auto flag = [&](const char* name, bool value, bool usual) {
    if (value != usual) {
      text << ", ." << name << " = " << (value ? "true" : "false");
    }
  };
  flag("channels_last", c.channels_last, false);
  text << ", .code = code::" << codes[static_cast<std::size_t>(c.code)];
  number("threads", c.threads, 1);
  number("planned", c.planned, 0);
  flag("own_workspace", c.own_workspace, false);
  flag("bias", c.bias, false);
  flag("residual", c.residual, false);
  flag("relu", c.relu, false);
  number("activation_parameters", c.activation_parameters, 0);
  flag("accumulate", c.accumulate, false);
  flag("winograd", c.winograd, true);
  flag("transposed", c.transposed, false);
  number("fronts", c.fronts, 0);
  number("numbers", c.numbers, 1);
  text << '}';
  return text.str();
}

/// The smallest case that it finds from `c` on for which fails(case) holds.
template <class Fails>
[[nodiscard]] sweep_case shrunk(sweep_case c, const Fails& fails) {
  const auto keep_if_it_fails = [&](const sweep_case& smaller) {
    if (!valid(smaller.shape) || !fails(smaller)) {
      return false;
    }
    c = smaller;
    return true;
  };
  constexpr std::array extents{&shape::batch,         &shape::height,        &shape::width,
                               &shape::kernel_height, &shape::kernel_width,  &shape::in,
                               &shape::out,           &shape::stride_height, &shape::stride_width,
                               &shape::pad_top,       &shape::pad_left,      &shape::pad_bottom,
                               &shape::pad_right,     &shape::groups,        &shape::dilation_height,
                               &shape::dilation_width};
  constexpr std::array flags{&sweep_case::own_workspace, &sweep_case::bias, &sweep_case::residual, &sweep_case::relu,
                             &sweep_case::accumulate};
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const auto extent : extents) {
      const index_t value = c.shape.*extent;
      for (const index_t less : {value > 1 ? index_t{1} : index_t{0}, value / 2, value - value / 4, value - 1}) {
        sweep_case other = c;
        other.shape.*extent = less;
        if (less < value && keep_if_it_fails(other)) {
          smaller = true;
          break;
        }
      }
    }
    for (const index_t of_group : {1, 2, 4, 8}) {  // fewer groups of the same channels
      sweep_case other = c;
      other.shape.groups = c.shape.groups / 2;
      other.shape.in = other.shape.out = other.shape.groups * of_group;
      smaller = (c.shape.groups > 1 && keep_if_it_fails(other)) || smaller;
    }
    for (const auto flag : flags) {
      sweep_case other = c;
      other.*flag = false;
      smaller = (c.*flag && keep_if_it_fails(other)) || smaller;
    }
    sweep_case other = c;
    other.threads = 1;
    smaller = (c.threads > 1 && keep_if_it_fails(other)) || smaller;
    other = c;
    other.planned = 0;
    smaller = (c.planned > 0 && keep_if_it_fails(other)) || smaller;
    other = c;
    other.fronts = 0;
    smaller = (c.fronts != 0 && keep_if_it_fails(other)) || smaller;
  }
  return c;
}

}  // namespace conv
