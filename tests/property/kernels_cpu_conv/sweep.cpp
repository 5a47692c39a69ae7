// SPDX-License-Identifier: BSL-1.0
//
// Convolutions of many shapes against plain loops, in arrays between guarded pages.
//
// By itself the test runs a part of a walk over all small shapes and some thousand cases by chance. Environment
// variables make it run others:
//
//   GRADUS_CONV_SWEEP=<cases>[:<seed>]   <cases> random cases, of a seed from 1 on
//   GRADUS_CONV_SWEEP=walk[:<step>]      every step-th case of the walk, which has 28 million, some without sense
//   GRADUS_CONV_CASE=<seed>:<index>      one case again, and smaller ones if it fails; seed 0 is the walk
//
// A failure names the seed and the index of its case, and writes the case as `edge_cases` keeps it; an access beyond
// an array ends the program, but first the case is written. With -O2 and both sanitizers a case takes half a
// millisecond.
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulated_amx.hpp"
#include "emulated_pairs.hpp"
#include "gradus/kernels/cpu/conv2d.hpp"
#include "gradus/kernels/cpu/conv_transpose2d.hpp"
#include "guarded_memory.hpp"
#include "instances.hpp"
#include "instruction_sets.hpp"
#include "sweep.hpp"
#include "sweep_case.hpp"
#include "sweep_reference.hpp"

namespace {

using conv::code;
using conv::element;
using conv::numbers;
using conv::sweep_case;
using gradus::index_t;
using gradus::kernels::pass;
using gradus_test::guarded_end;
using gradus_test::guarded_memory;

/// Cases at the edges of conditions, which random cases seldom reach. Kernels of one tap whose results are one column
/// that is no run of the source; strides so long that products cost nothing compared with the strip, and a run of one
/// pixel, of fewer than a tile; an image whose results are divided among the tasks, in memory that is planned for more
/// images, whose results are not.
constexpr std::array edge_cases{
    sweep_case{.shape = {.in = 16, .height = 128, .width = 2, .out = 32, .stride_width = 2}, .fronts = 255},
    sweep_case{.shape = {.in = 16, .height = 70, .out = 32, .pad_top = 1}},
    sweep_case{.shape = {.in = 16, .height = 128, .out = 32, .stride_height = 2}, .element = element::float16},
    sweep_case{.shape = {.height = 8, .width = 2, .stride_width = 2, .pad_right = 1},
               .which = pass::backward_data,
               .element = element::bfloat16},
    sweep_case{.shape = {.height = 1200, .width = 1200, .out = 4, .stride_height = 1200, .stride_width = 1200},
               .fronts = 255},
    sweep_case{.shape = {.in = 1000, .height = 6, .width = 6, .out = 80},
               .element = element::float64,
               .threads = 2,
               .planned = 2},
    sweep_case{.shape = {.in = 1000, .height = 6, .width = 6, .out = 80},
               .element = element::float64,
               .channels_last = true,
               .threads = 3,
               .planned = 2,
               .fronts = 255},
};

/// Devices and arrays that cases use one after another.
struct workplace {
  std::map<int, std::unique_ptr<gradus::cpu>> devices;
  std::array<guarded_memory, 7> arrays;
  guarded_memory workspace;

  gradus::cpu& device(int threads) {
    auto& device = devices[threads];
    if (device == nullptr) {
      device = std::make_unique<gradus::cpu>(gradus::cpu_options{.intra_op_threads = threads});
    }
    return *device;
  }
  [[nodiscard]] bool intact() const {
    return std::all_of(arrays.begin(), arrays.end(), [](const guarded_memory& array) { return array.intact(); }) &&
           workspace.intact();
  }
};

/// Calls body(index in the order n, c, h, w, offset in memory).
template <class Body>
void for_each_coordinate(bool channels_last, const gradus::image_extents& e, const Body& body) {
  const auto [n_all, c_all, plane] = std::array{e.n, e.c, e.h * e.w};
  std::size_t index = 0;
  for (index_t n = 0; n < n_all; ++n) {
    for (index_t c = 0; c < c_all; ++c) {
      for (index_t p = 0; p < plane; ++p, ++index) {
        body(index, channels_last ? static_cast<std::size_t>((n * plane + p) * c_all + c) : index);
      }
    }
  }
}

/// One call in guarded arrays. The results stay in the workplace.
template <class Element, class Layout>
class sweep_call {
  using real = gradus::parameter_element_t<Element>;
  static constexpr bool channels_last_ = std::is_same_v<Layout, gradus::nhwc>;

 public:
  sweep_call(const sweep_case& c, const conv::sweep_problem& p, workplace& all)
      : c_{c}, p_{p}, all_{all}, device_{all.device(c.threads)} {}

  void run() {
    namespace detail = gradus::kernels::detail;
    const auto& g = p_.geometry;
    const index_t batch = c_.shape.batch;
    const auto input = g.input(batch);
    const auto output = g.output(batch);
    if (c_.code >= code::emulated_amx) {
      if constexpr (gradus::storage_element<Element>) {
        const auto& kernels = c_.code == code::emulated_amx ? emulated_amx_kernels<Element>() : emulated_pair_kernels();
        if (c_.which == pass::backward_weights) {
          const detail::weight_gradients<Element> lines{
              kernels, g, detail::channel_order_of<Layout>, batch, device_.threads(), false};
          const auto workspace = workspace_of(lines.workspace_bytes());
          const Element* const x = placed<Element>(0, p_.x, input);
          const Element* const slope = placed<Element>(1, p_.dy, output);
          dw_ = placed<real>(6, p_.before, g.weights());
          dbias_ = c_.bias ? all_.arrays[3].template place<real>(static_cast<std::size_t>(g.out_channels), end_of(3))
                           : nullptr;
          lines.run(device_, x, slope, dw_, dbias_, workspace.data());
          return;
        }
        const detail::pixel_correlations<Element> pairs{
            kernels, g, detail::channel_order_of<Layout>, c_.which, device_.threads(), batch};
        const auto workspace = workspace_of(pairs.workspace_bytes());
        const real* const w = placed<real>(2, p_.w, g.weights());
        if (c_.which == pass::forward) {
          pairs.run(device_, placed<Element>(0, p_.x, input), w, detail::output_of(y(output), forward_epilogue(output)),
                    workspace.data());
        } else {
          pairs.run(device_, placed<Element>(1, p_.dy, output), w,
                    detail::output_of(dx(input), backward_epilogue(input)), workspace.data());
        }
      }
      return;
    }
    gradus::kernels::set_instruction_set(static_cast<gradus::kernels::instruction_set>(c_.code));
    const auto workspace = workspace_of(c_.transposed      ? transposed_bytes()
                                        : c_.own_workspace ? own_bytes()
                                                           : gradus::kernels::conv2d_workspace_bytes<Element, Layout>(
                                                                 device_, g, batch + c_.planned, c_.which));
    using const_images = gradus::image_view<const Element, Layout>;
    using images = gradus::image_view<Element, Layout>;
    const gradus::image_view<const real, Layout> w{device_, placed<real>(2, p_.w, g.weights()), g.weights()};
    const const_images x{device_, placed<Element>(0, p_.x, input), input};
    const const_images slope{device_, placed<Element>(1, p_.dy, output), output};
    if (c_.which == pass::backward_weights) {
      dw_ = placed<real>(6, p_.before, g.weights());
      const index_t biases = c_.transposed ? g.in_channels : g.out_channels;
      dbias_ = c_.bias ? all_.arrays[3].template place<real>(static_cast<std::size_t>(biases), end_of(3)) : nullptr;
      const gradus::image_view<real, Layout> dw{device_, dw_, g.weights()};
      if (c_.transposed) {
        conv_transpose2d_backward_weights(device_, g, slope, x, dw, dbias_, workspace);
      } else {
        conv2d_backward_weights(device_, g, x, slope, dw, dbias_, workspace);
      }
    } else if (c_.transposed && c_.which == pass::backward_data) {
      conv_transpose2d_forward(device_, g, slope, w, images{device_, dx(input), input}, forward_epilogue(input),
                               workspace);
    } else if (c_.transposed) {
      conv_transpose2d_backward_data(device_, g, x, w, images{device_, y(output), output}, backward_epilogue(output),
                                     workspace);
    } else if (c_.which == pass::forward) {
      conv2d_forward(device_, g, x, w, images{device_, y(output), output}, forward_epilogue(output), workspace);
    } else {
      conv2d_backward_data(device_, g, slope, w, images{device_, dx(input), input}, backward_epilogue(input),
                           workspace);
    }
  }

  /// What is wrong with the results; empty: nothing.
  [[nodiscard]] std::string fault() const {
    const auto& g = p_.geometry;
    std::string found;
    if (c_.which == pass::backward_weights) {
      found = fault_of("dw", dw_, p_.result, g.weights(), takes_winograd() ? tolerance : 0.0);
      return found.empty() && c_.bias
                 ? fault_of("dbias", dbias_, p_.dbias, {1, c_.transposed ? g.in_channels : g.out_channels, 1, 1}, 0.0)
                 : found;
    }
    const auto extents = c_.which == pass::forward ? g.output(c_.shape.batch) : g.input(c_.shape.batch);
    return fault_of(c_.which == pass::forward ? "y" : "dx", result_, p_.result, extents,
                    takes_winograd() ? tolerance : 0.0);
  }
  /// Winograd's filtering takes away again what it has added up.
  [[nodiscard]] bool takes_winograd() const {
    namespace detail = gradus::kernels::detail;
    if (c_.code >= code::emulated_amx) {
      return false;
    }
    const auto part =
        detail::dilated_convolution{p_.geometry, std::is_same_v<Layout, gradus::nhwc>, sizeof(Element)}.part();
    const auto set = static_cast<gradus::kernels::instruction_set>(c_.code);
    return detail::takes_winograd<Element>(c_.which == pass::backward_weights
                                               ? detail::weight_kernels_for<Element>(set, part)
                                               : detail::storage_kernels_for<Element>(set),
                                           part);
  }
  /// The bits of the results.
  [[nodiscard]] std::string bits() const {
    const auto count = p_.result.size();
    return c_.which == pass::backward_weights
               ? std::string{reinterpret_cast<const char*>(dw_), count * sizeof(real)}
               : std::string{reinterpret_cast<const char*>(result_), count * sizeof(Element)};
  }

 private:
  static constexpr double tolerance = 2e-4;
  /// Sums that differ a little may be rounded to the next number of 16 bits: 8 or 11 of them are significant.
  template <class Stored>
  static constexpr double last_place = gradus::real_element<Stored>               ? 0.0
                                       : std::is_same_v<Stored, gradus::bfloat16> ? 0x1p-7
                                                                                  : 0x1p-10;

  [[nodiscard]] guarded_end end_of(unsigned array) const {
    return (c_.fronts >> array & 1U) != 0 ? guarded_end::front : guarded_end::back;
  }
  [[nodiscard]] std::span<std::byte> workspace_of(std::size_t bytes) {
    return {all_.workspace.place<std::byte>(bytes, end_of(7), 64), bytes};
  }
  [[nodiscard]] std::size_t transposed_bytes() const {
    return gradus::kernels::conv_transpose2d_workspace_bytes<Element, Layout>(
        device_, p_.geometry, c_.shape.batch + c_.planned,
        c_.which == pass::forward         ? pass::backward_data
        : c_.which == pass::backward_data ? pass::forward
                                          : c_.which);
  }
  /// What the code needs by itself.
  [[nodiscard]] std::size_t own_bytes() const {
    namespace detail = gradus::kernels::detail;
    if (detail::is_dilated(p_.geometry)) {
      return gradus::kernels::conv2d_workspace_bytes<Element, Layout>(device_, p_.geometry, c_.shape.batch, c_.which);
    }
    const auto set = static_cast<gradus::kernels::instruction_set>(c_.code);
    if (c_.which == pass::backward_weights) {
      return detail::with_weight_gradients<Layout, Element>(device_, set, p_.geometry, c_.shape.batch,
                                                            [](const auto& all) { return all.workspace_bytes(); });
    }
    return detail::with_correlations<Layout, Element>(
        device_, detail::storage_kernels_for<Element>(set), p_.geometry, c_.which, c_.shape.batch,
        [](const detail::correlations<Element>& all) { return all.workspace_bytes(); });
  }
  template <class Stored>
  [[nodiscard]] Stored* placed(unsigned array, const numbers& values, const gradus::image_extents& extents) {
    auto* const to = all_.arrays[array].template place<Stored>(values.size(), end_of(array));
    if (!values.empty()) {
      for_each_coordinate(channels_last_, extents, [&](std::size_t from, std::size_t offset) {
        to[offset] = static_cast<Stored>(static_cast<gradus::parameter_element_t<Stored>>(values[from]));
      });
    }
    return to;
  }
  [[nodiscard]] Element* y(const gradus::image_extents& extents) {
    return result_ = placed<Element>(6, p_.before, extents);
  }
  [[nodiscard]] Element* dx(const gradus::image_extents& extents) {
    return result_ = placed<Element>(6, p_.before, extents);
  }
  [[nodiscard]] gradus::kernels::forward_epilogue<Element> forward_epilogue(const gradus::image_extents& extents) {
    return {.bias = c_.bias ? placed<real>(3, p_.bias, {1, extents.c, 1, 1}) : nullptr,
            .residual = c_.residual ? placed<Element>(4, p_.residual, extents) : nullptr,
            .act = activation_of(c_)};
  }
  [[nodiscard]] gradus::kernels::backward_epilogue<Element> backward_epilogue(const gradus::image_extents& extents) {
    return {.accumulate = c_.accumulate,
            .relu_output = c_.relu ? placed<Element>(5, p_.mask, extents) : nullptr,
            .mask = activation_of(c_)};
  }

  template <class Stored>
  [[nodiscard]] std::string fault_of(const char* name, const Stored* got, const numbers& expected,
                                     const gradus::image_extents& extents, double relative) const {
    std::size_t wrong = 0;
    std::ostringstream text;
    for_each_coordinate(channels_last_, extents, [&](std::size_t from, std::size_t offset) {
      const auto right =
          static_cast<double>(static_cast<Stored>(static_cast<gradus::parameter_element_t<Stored>>(expected[from])));
      const auto value = static_cast<double>(got[offset]);
      const double bound = relative == 0.0 ? 0.0 : relative * p_.size + last_place<Stored> * std::abs(right);
      if (!(std::abs(value - right) <= bound) && wrong++ == 0) {
        text << name << '[' << from << "] is " << value << ", not " << right;
      }
    });
    if (wrong > 0) {
      text << "; " << wrong << " of " << expected.size() << " are wrong";
    }
    return text.str();
  }

  const sweep_case& c_;
  const conv::sweep_problem& p_;
  workplace& all_;
  gradus::cpu& device_;
  Element* result_ = nullptr;
  real* dw_ = nullptr;
  real* dbias_ = nullptr;
};

template <class Element, class Layout>
std::string fault_of(const sweep_case& c, workplace& all) {
  conv::sweep_problem p{c};
  sweep_call<Element, Layout> call{c, p, all};
  const bool winograd = call.takes_winograd();
  if (!winograd) {
    p.spoil_what_is_not_read(c);  // what is not finite spreads over a tile of Winograd's
  }
  call.run();
  std::string fault = call.fault();
  if (fault.empty() && !all.intact()) {
    fault = "bytes beside an array were written";
  }
  if (fault.empty() && (winograd || c.numbers % 8 == 0)) {  // sums that depend on the order of their terms
    p.roughen();
    call.run();
    const std::string bits = call.bits();
    sweep_case other = c;
    other.threads = c.threads % 3 + 1;
    sweep_call<Element, Layout> again{other, p, all};
    again.run();
    fault = again.bits() == bits ? "" : "other bits with other threads";
  }
  return fault;
}

/// What is wrong with a case; empty: nothing.
std::string fault_of(const sweep_case& c, workplace& all) {
  using gradus::nchw;
  using gradus::nhwc;
  switch (c.element) {
    case element::float32:
      return c.channels_last ? fault_of<float, nhwc>(c, all) : fault_of<float, nchw>(c, all);
    case element::float64:
      return c.channels_last ? fault_of<double, nhwc>(c, all) : fault_of<double, nchw>(c, all);
    case element::bfloat16:
      return c.channels_last ? fault_of<gradus::bfloat16, nhwc>(c, all) : fault_of<gradus::bfloat16, nchw>(c, all);
    default:
      return c.channels_last ? fault_of<gradus::float16, nhwc>(c, all) : fault_of<gradus::float16, nchw>(c, all);
  }
}

/// Whether a case fails in a process of its own, by wrong results or by a signal.
bool fails_in_a_child(const sweep_case& c) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    workplace all;
    ::_exit(fault_of(c, all).empty() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/// Runs cases; counts, names and shrinks those that fail.
class sweep {
 public:
  void run(const std::string& name, const sweep_case& c) {
    gradus_test::detail::the_case.size = 0;
    gradus_test::detail::the_case.append(name + ": " + conv::text_of(c));
    ++cases_;
    const std::string fault = fault_of(c, all_);
    if (!fault.empty() && ++faults_ <= most_faults) {
      const sweep_case smaller = conv::shrunk(c, fails_in_a_child);
      BOOST_ERROR("case " + name + ": " + fault + "\n  " + conv::text_of(c) + "\n  smaller: " + conv::text_of(smaller));
    }
  }
  /// @return whether there is such a case
  bool run(std::uint64_t seed, std::uint64_t index) {
    const std::optional<sweep_case> c = conv::case_of(seed, index);
    if (c.has_value()) {
      run(std::to_string(seed) + ":" + std::to_string(index), *c);
    }
    return c.has_value();
  }
  [[nodiscard]] bool goes_on() const { return faults_ < most_faults; }
  [[nodiscard]] std::uint64_t cases() const { return cases_; }

 private:
  static constexpr int most_faults = 5;
  gradus_test::detail::case_writer writer_;
  workplace all_;
  std::uint64_t cases_ = 0;
  int faults_ = 0;
};

/// The numbers of an environment variable, separated by colons; words are 0.
std::vector<std::uint64_t> numbers_of(const char* variable) {
  std::vector<std::uint64_t> values;
  const char* const text = std::getenv(variable);
  std::istringstream words{text == nullptr ? "" : text};
  for (std::string word; std::getline(words, word, ':');) {
    values.push_back(std::strtoull(word.c_str(), nullptr, 10));
  }
  return values;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernels_cpu_conv2d_sweep)

BOOST_AUTO_TEST_CASE(agrees_with_plain_loops) {
  const auto before = gradus::kernels::current_instruction_set();
  const std::vector<std::uint64_t> one = numbers_of("GRADUS_CONV_CASE");
  const std::vector<std::uint64_t> many = numbers_of("GRADUS_CONV_SWEEP");
  sweep all;
  const auto edges = [&] {
    for (std::size_t i = 0; i < edge_cases.size(); ++i) {
      sweep_case c = edge_cases[i];
      for_each_instruction_set([&](gradus::kernels::instruction_set set) {
        c.code = static_cast<code>(set);
        all.run("edge, " + std::to_string(i), c);
      });
    }
  };
  const auto walk = [&](std::uint64_t step) {
    for (std::uint64_t index = 0; index < conv::walk::size() && all.goes_on(); index += step) {
      all.run(0, index);
    }
  };
  const auto draw = [&](std::uint64_t seed, std::uint64_t cases) {
    for (std::uint64_t index = 0; index < cases && all.goes_on(); ++index) {
      all.run(seed, index);
    }
  };
  if (one.size() == 2) {
    const std::optional<sweep_case> c = conv::case_of(one[0], one[1]);
    BOOST_REQUIRE(c.has_value());
    BOOST_TEST_MESSAGE(conv::text_of(*c));
    if (fails_in_a_child(*c)) {
      BOOST_ERROR("it fails; smaller: " + conv::text_of(conv::shrunk(*c, fails_in_a_child)));
    }
    all.run(one[0], one[1]);
  } else if (!many.empty() && many[0] != 0) {
    draw(many.size() > 1 ? many[1] : 1, many[0]);
  } else if (!many.empty()) {
    walk(many.size() > 1 ? many[1] : 1);
  } else {
    edges();
    walk(5003);
    draw(1, 6000);
  }
  BOOST_TEST(all.cases() > 0U);
  BOOST_TEST_MESSAGE(all.cases() << " cases");
  gradus::kernels::set_instruction_set(before);
}

BOOST_AUTO_TEST_SUITE_END()
