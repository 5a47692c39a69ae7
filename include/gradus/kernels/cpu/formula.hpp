// SPDX-License-Identifier: BSL-1.0
//
// Formulas on the CPU: one pass over memory, in packets, on all threads.
#pragma once

#include <algorithm>    // std::fill_n, std::max, std::min
#include <array>        // std::array
#include <bit>          // std::bit_cast
#include <cstddef>      // std::byte, std::size_t
#include <span>         // std::span
#include <type_traits>  // std::bool_constant, std::false_type, std::integral_constant, std::is_same_v, std::true_type

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/floating_point.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/elementwise/packet.hpp"
#include "gradus/kernels/formula.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/tensor/formula.hpp"

namespace gradus::kernels {

namespace detail {

/// Elements of one task.
inline constexpr index_t formula_grain = index_t{1} << 14U;
/// The most tasks whose sums are added up in order. Only the shape sets their number, and so the bits of the sums.
inline constexpr index_t formula_blocks = 64;

/// Loads and stores packets of elements; the arithmetic is in float or double.
template <class Element>
struct formula_memory {
  using real = computed<Element>;
  using value = formula_packet<real>;
  static constexpr index_t lanes = formula_packet_lanes<real>;
  using storage = packet<Element, static_cast<int>(lanes)>;
  using elements = std::array<Element, static_cast<std::size_t>(lanes)>;

  GRADUS_ALWAYS_INLINE static value load(const Element* from) noexcept {
    return std::bit_cast<value>(storage::load(from));
  }
  GRADUS_ALWAYS_INLINE static void store(Element* to, value result) noexcept {
    storage::store(to, std::bit_cast<typename storage::type>(result));
  }
  GRADUS_ALWAYS_INLINE static void add(Element* to, value result) noexcept {
    storage::store(to, storage::load(to) + std::bit_cast<typename storage::type>(result));
  }
  GRADUS_ALWAYS_INLINE static value broadcast(real number) noexcept {
    return std::bit_cast<value>(packet<real, static_cast<int>(lanes)>::broadcast(number));
  }

  /// `count` elements, fewer than a packet; the other SIMD lanes repeat the first.
  static elements first_lanes(const Element* from, index_t count) noexcept {
    elements result;
    for (index_t lane = 0; lane < lanes; ++lane) {
      result[static_cast<std::size_t>(lane)] = from[lane < count ? lane : 0];
    }
    return result;
  }
};

/// A run of a formula over [begin, end) of a row. `Whole` packets are loaded and stored directly, the rest through
/// copies.
template <class Element, bool Whole>
struct formula_access {
  using memory = formula_memory<Element>;
  using value = typename memory::value;
  index_t count;  // elements, fewer than a packet unless Whole

  GRADUS_ALWAYS_INLINE value load(const Element* from) const noexcept {
    if constexpr (Whole) {
      return memory::load(from);
    } else {
      return memory::load(memory::first_lanes(from, count).data());
    }
  }
  GRADUS_ALWAYS_INLINE void write(Element* to, value result, bool accumulate) const noexcept {
    if constexpr (Whole) {
      if (accumulate) {
        memory::add(to, result);
      } else {
        memory::store(to, result);
      }
    } else {
      typename memory::elements lanes = memory::first_lanes(to, count);
      if (accumulate) {
        memory::add(lanes.data(), result);
      } else {
        memory::store(lanes.data(), result);
      }
      for (index_t lane = 0; lane < count; ++lane) {
        to[lane] = lanes[static_cast<std::size_t>(lane)];
      }
    }
  }
  /// sums[lane] += result[lane]
  GRADUS_ALWAYS_INLINE void add_up(double* sums, value result) const noexcept {
    using real = typename memory::real;
    using lanes = packet<real, static_cast<int>(memory::lanes)>;
    const auto terms = std::bit_cast<typename lanes::type>(result);
    if constexpr (Whole) {
      lanes::add_to(sums, terms);
    } else {
      for (index_t lane = 0; lane < count; ++lane) {
        sums[lane] += static_cast<double>(terms[lane]);
      }
    }
  }
};

/// Calls body(access, i) for all packets of [begin, end), and once for the elements after them.
template <class Element, class Body>
GRADUS_ALWAYS_INLINE void for_each_formula_packet(index_t begin, index_t end, const Body& body) {
  constexpr index_t lanes = formula_memory<Element>::lanes;
  index_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    body(formula_access<Element, true>{lanes}, i);
  }
  if (i < end) {
    body(formula_access<Element, false>{end - i}, i);
  }
}

/// Parameter p for the elements of a channel, or from channel `channel` on if channels are adjacent.
template <bool Adjacent, class Element, int Inputs, int Parameters, class Access>
GRADUS_ALWAYS_INLINE typename formula_memory<Element>::value load_parameter(
    const formula_arguments<Element, Inputs, Parameters>& arguments, std::size_t p, index_t channel,
    [[maybe_unused]] const Access& access) noexcept {
  using real = computed<Element>;
  const real* const values = arguments.parameters[p];
  if (!arguments.per_channel[p]) {
    return formula_memory<Element>::broadcast(*values);
  }
  if constexpr (Adjacent) {
    if constexpr (std::is_same_v<Access, formula_access<Element, true>>) {
      return formula_memory<real>::load(values + channel);
    } else {
      return formula_memory<real>::load(formula_memory<real>::first_lanes(values + channel, access.count).data());
    }
  } else {
    return formula_memory<Element>::broadcast(values[channel]);
  }
}

/// A function that loads variable k of a formula at element i.
template <bool Adjacent, class Element, int Inputs, int Parameters, class Access>
struct formula_load {
  const formula_arguments<Element, Inputs, Parameters>& arguments;
  const Element* dy;
  const Element* y;
  index_t i;
  index_t channel;
  Access access;

  template <int Index>
  GRADUS_ALWAYS_INLINE auto operator()(std::integral_constant<int, Index>) const noexcept {
    if constexpr (Index < Inputs) {
      return access.load(arguments.inputs[static_cast<std::size_t>(Index)] + i);
    } else if constexpr (Index < Inputs + Parameters) {
      return load_parameter<Adjacent>(arguments, static_cast<std::size_t>(Index - Inputs), channel, access);
    } else if constexpr (Index == Inputs + Parameters) {
      return access.load(dy + i);
    } else {
      return access.load(y + i);
    }
  }
};

template <bool Adjacent, class Element, int Inputs, int Parameters, class Access>
GRADUS_ALWAYS_INLINE formula_load<Adjacent, Element, Inputs, Parameters, Access> make_formula_load(
    const formula_arguments<Element, Inputs, Parameters>& arguments, const Element* dy, const Element* y, index_t i,
    index_t channel, const Access& access) noexcept {
  return {arguments, dy, y, i, channel, access};
}

/// Writes results of a formula at element i to the gradients of the inputs. `Overwrite` if all are needed and none is
/// added: the loop then has no conditions.
template <bool Overwrite, class Element, int Inputs, int Parameters, class Access>
struct formula_store {
  const formula_gradients<Element, Inputs, Parameters>& to;
  index_t i;
  Access access;

  template <int Result>
  GRADUS_ALWAYS_INLINE void operator()(std::integral_constant<int, Result>,
                                       typename formula_memory<Element>::value result) const noexcept {
    constexpr auto k = static_cast<std::size_t>(Result);
    if constexpr (Overwrite) {
      access.write(to.inputs[k] + i, result, false);
    } else if constexpr (Inputs == 1 && Parameters == 0) {
      access.write(to.inputs[k] + i, result, true);
    } else if (to.inputs[k] != nullptr) {
      access.write(to.inputs[k] + i, result, to.accumulate[k]);
    }
  }
};

template <bool Overwrite, class Element, int Inputs, int Parameters, class Access>
GRADUS_ALWAYS_INLINE formula_store<Overwrite, Element, Inputs, Parameters, Access> make_formula_store(
    const formula_gradients<Element, Inputs, Parameters>& to, index_t i, const Access& access) noexcept {
  return {to, i, access};
}

template <class Element, int Inputs, int Parameters>
[[nodiscard]] bool overwrites_all(const formula_gradients<Element, Inputs, Parameters>& gradients) noexcept {
  for (std::size_t k = 0; k < static_cast<std::size_t>(Inputs); ++k) {
    if (gradients.inputs[k] == nullptr || gradients.accumulate[k]) {
      return false;
    }
  }
  return true;
}

template <class Element, int Inputs, int Parameters>
[[nodiscard]] bool needs_any(const formula_gradients<Element, Inputs, Parameters>& gradients) noexcept {
  for (const Element* const dx : gradients.inputs) {
    if (dx != nullptr) {
      return true;
    }
  }
  return false;
}

/// The outer rows of one sum.
[[nodiscard]] inline index_t formula_rows_of_block(const formula_shape& shape) noexcept {
  return std::max(index_t{1}, (shape.outer + formula_blocks - 1) / formula_blocks);
}
[[nodiscard]] inline index_t formula_block_count(const formula_shape& shape) noexcept {
  const index_t rows = formula_rows_of_block(shape);
  return (shape.outer + rows - 1) / rows;
}

/// The backward pass of a formula with parameters. Sums of a block of outer rows are in `partial`, as (block,
/// parameter, channel).
template <bool Adjacent, class Element, int Inputs, int Parameters, class Evaluator>
void formula_backward_with_parameters(cpu& device, const formula_shape& shape, const Evaluator& evaluator,
                                      const formula_arguments<Element, Inputs, Parameters>& arguments,
                                      const Element* dy, const Element* y,
                                      const formula_gradients<Element, Inputs, Parameters>& gradients,
                                      double* partial) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using value = typename formula_memory<Element>::value;
  constexpr index_t lanes = formula_memory<Element>::lanes;
  const index_t rows = formula_rows_of_block(shape);
  const index_t blocks = formula_block_count(shape);
  const index_t channels = shape.channels;
  const index_t tasks = Adjacent ? blocks : blocks * channels;
  const index_t length = Adjacent ? channels : shape.inner;
  const auto run_row = [&](const auto& evaluate, index_t offset, index_t channel, const auto& add_up) {
    const auto from = arguments;
    const auto to = gradients;
    for_each_formula_packet<Element>(0, length, [&](const auto& access, index_t i) {
      evaluate(make_formula_load<Adjacent>(from, dy, y, offset + i, Adjacent ? i : channel, access),
               [&]<int Result>(std::integral_constant<int, Result>, value result) {
                 if constexpr (Result < Inputs) {
                   make_formula_store<false>(to, offset + i, access)(std::integral_constant<int, Result>{}, result);
                 } else {
                   add_up(access, Result - Inputs, i, result);
                 }
               });
    });
  };
  device.parallel_for(tasks, std::max(index_t{1}, formula_grain / std::max(index_t{1}, rows * length)),
                      [&](index_t begin, index_t end) {
                        const auto evaluate = evaluator;
                        for (index_t task = begin; task < end; ++task) {
                          const index_t block = Adjacent ? task : task / channels;
                          const index_t last = std::min(shape.outer, (block + 1) * rows);
                          double* const mine = partial + block * Parameters * channels;
                          if constexpr (Adjacent) {
                            std::fill_n(mine, Parameters * channels, 0.0);
                            for (index_t row = block * rows; row < last; ++row) {
                              run_row(evaluate, row * channels, 0,
                                      [&](const auto& access, int p, index_t i, value result) {
                                        access.add_up(mine + p * channels + i, result);
                                      });
                            }
                          } else {
                            const index_t channel = task % channels;
                            std::array<double, static_cast<std::size_t>(Parameters * lanes)> sums{};
                            for (index_t row = block * rows; row < last; ++row) {
                              run_row(evaluate, (row * channels + channel) * length, channel,
                                      [&](const auto& access, int p, index_t, value result) {
                                        access.add_up(sums.data() + p * lanes, result);
                                      });
                            }
                            for (int p = 0; p < Parameters; ++p) {
                              double sum = 0;
                              for (index_t lane = 0; lane < lanes; ++lane) {
                                sum += sums[static_cast<std::size_t>(p * lanes + lane)];
                              }
                              mine[p * channels + channel] = sum;
                            }
                          }
                        }
                      });
  for (int p = 0; p < Parameters; ++p) {
    const auto k = static_cast<std::size_t>(p);
    double all = 0;
    for (index_t channel = 0; channel < channels; ++channel) {
      double sum = 0;
      for (index_t block = 0; block < blocks; ++block) {
        sum += partial[(block * Parameters + p) * channels + channel];
      }
      all += sum;
      if (arguments.per_channel[k]) {
        gradients.parameters[k][channel] = static_cast<computed<Element>>(sum);
      }
    }
    if (!arguments.per_channel[k]) {
      *gradients.parameters[k] = static_cast<computed<Element>>(all);
    }
  }
}

}  // namespace detail

/// See has_formula.
template <class Node, int Variables, network_element Element, int Inputs, int Parameters>
void formula_forward(cpu& device, const formula_shape& shape, const formula<Node, Variables>& function,
                     const formula_arguments<Element, Inputs, Parameters>& arguments, Element* y) {
  static_assert(Variables == Inputs + Parameters);
  using value = typename detail::formula_memory<Element>::value;
  const auto evaluator = function.template value_of_packets<detail::computed<Element>>();
  // Copies of what is read in every step: a store of elements could change what is not local.
  const auto run = [&]<bool Adjacent>(std::bool_constant<Adjacent>, index_t begin, index_t end, index_t channel) {
    const auto evaluate = evaluator;
    const auto from = arguments;
    Element* const to = y;
    detail::for_each_formula_packet<Element>(begin, end, [&](const auto& access, index_t i) {
      evaluate(detail::make_formula_load<Adjacent>(from, static_cast<const Element*>(nullptr),
                                                   static_cast<const Element*>(nullptr), i,
                                                   Adjacent ? i - begin : channel, access),
               [&](std::integral_constant<int, 0>, value result) { access.write(to + i, result, false); });
    });
  };
  if constexpr (Parameters == 0) {
    device.parallel_for(shape.count(), detail::formula_grain,
                        [&](index_t begin, index_t end) { run(std::false_type{}, begin, end, 0); });
  } else {
    const bool adjacent = shape.inner == 1;
    const index_t length = adjacent ? shape.channels : shape.inner;
    const index_t rows = adjacent ? shape.outer : shape.outer * shape.channels;
    device.parallel_for(rows, std::max(index_t{1}, detail::formula_grain / std::max(index_t{1}, length)),
                        [&](index_t begin, index_t end) {
                          for (index_t row = begin; row < end; ++row) {
                            if (adjacent) {
                              run(std::true_type{}, row * length, (row + 1) * length, 0);
                            } else {
                              run(std::false_type{}, row * length, (row + 1) * length, row % shape.channels);
                            }
                          }
                        });
  }
}

/// See has_formula. Enough for a smaller batch, too, which may have more blocks: 75 rows are 38 blocks, and 50 rows 50.
[[nodiscard]] inline std::size_t formula_workspace_bytes(cpu& /*device*/, const formula_shape& shape, int parameters) {
  const index_t blocks = std::min(shape.outer, detail::formula_blocks);
  return static_cast<std::size_t>(blocks * parameters * shape.channels) * sizeof(double);
}

/// See has_formula.
template <class Node, int Variables, network_element Element, int Inputs, int Parameters>
void formula_backward(cpu& device, const formula_shape& shape, const formula<Node, Variables>& function,
                      const formula_arguments<Element, Inputs, Parameters>& arguments, const Element* dy,
                      const Element* y, const formula_gradients<Element, Inputs, Parameters>& gradients,
                      [[maybe_unused]] std::span<std::byte> workspace) {
  static_assert(Variables == Inputs + Parameters);
  const auto evaluator = function.template gradient_of_packets<detail::computed<Element>>();
  if constexpr (Parameters == 0) {
    if (!detail::needs_any(gradients)) {
      return;
    }
    const auto run = [&]<bool Overwrite>(std::bool_constant<Overwrite>) {
      device.parallel_for(shape.count(), detail::formula_grain, [&](index_t begin, index_t end) {
        const auto evaluate = evaluator;
        const auto from = arguments;
        const auto to = gradients;
        detail::for_each_formula_packet<Element>(begin, end, [&](const auto& access, index_t i) {
          evaluate(detail::make_formula_load<false>(from, dy, y, i, 0, access),
                   detail::make_formula_store<Overwrite>(to, i, access));
        });
      });
    };
    if (detail::overwrites_all(gradients)) {
      run(std::true_type{});
    } else {
      run(std::false_type{});
    }
  } else {
    auto* const partial = reinterpret_cast<double*>(workspace.data());
    if (shape.inner == 1) {
      detail::formula_backward_with_parameters<true>(device, shape, evaluator, arguments, dy, y, gradients, partial);
    } else {
      detail::formula_backward_with_parameters<false>(device, shape, evaluator, arguments, dy, y, gradients, partial);
    }
  }
}

/// See has_formula_loss. One pass; the same bits for any number of threads.
template <class Node, bool Mean, network_element Element>
[[nodiscard]] loss_sums formula_loss(cpu& device, index_t examples, index_t per_example,
                                     const loss_formula<Node, Mean>& loss, const Element* scores,
                                     const parameter_element_t<Element>* targets,
                                     const parameter_element_t<Element>* weights, double scale, Element* gradient) {
  const floating_point_scope arithmetic{device.flush_denormals()};
  using real = detail::computed<Element>;
  using memory = detail::formula_memory<Element>;
  using value = typename memory::value;
  const auto evaluator = loss.template terms_of_packets<real>();
  const double part = Mean ? 1.0 / static_cast<double>(per_example) : 1.0;
  // Rows of one example, or all elements as one row; tasks of `size` elements of a row.
  const index_t rows = weights == nullptr ? 1 : examples;
  const index_t length = weights == nullptr ? examples * per_example : per_example;
  const index_t pieces = weights == nullptr ? std::min(detail::formula_blocks, length / detail::formula_grain + 1) : 1;
  const index_t size = (length + pieces - 1) / pieces;
  const index_t rows_of_block = std::max(index_t{1}, (rows + detail::formula_blocks - 1) / detail::formula_blocks);
  const index_t row_blocks = (rows + rows_of_block - 1) / rows_of_block;
  std::array<double, static_cast<std::size_t>(detail::formula_blocks)> sums{};
  const auto run = [&](index_t begin, index_t end, double weight) {
    const auto evaluate = evaluator;
    const value factor = memory::broadcast(static_cast<real>(scale * part * weight));
    std::array<double, static_cast<std::size_t>(memory::lanes)> terms{};
    detail::for_each_formula_packet<Element>(
        begin, end, [&]<bool Whole>(const detail::formula_access<Element, Whole>& access, index_t i) {
          evaluate(
              [&]<int Index>(std::integral_constant<int, Index>) {
                if constexpr (Index == 0) {
                  return access.load(scores + i);
                } else if constexpr (Index == 1) {
                  return detail::formula_access<real, Whole>{access.count}.load(targets + i);
                } else {
                  return factor;
                }
              },
              [&]<int Result>(std::integral_constant<int, Result>, value result) {
                if constexpr (Result == 1) {
                  access.add_up(terms.data(), result);
                } else if (gradient != nullptr) {
                  access.write(gradient + i, result, false);
                }
              });
        });
    double sum = 0;
    for (const double term : terms) {
      sum += term;
    }
    return part * weight * sum;
  };
  device.parallel_for(row_blocks * pieces, 1, [&](index_t first, index_t last) {
    for (index_t task = first; task < last; ++task) {
      double sum = 0;
      if (weights == nullptr) {
        sum = run(std::min(length, task * size), std::min(length, (task + 1) * size), 1.0);
      } else {
        for (index_t row = task * rows_of_block; row < std::min(rows, (task + 1) * rows_of_block); ++row) {
          sum += run(row * length, (row + 1) * length, static_cast<double>(weights[row]));
        }
      }
      sums[static_cast<std::size_t>(task)] = sum;
    }
  });
  double total = 0;
  for (const double sum : sums) {
    total += sum;
  }
  return {.loss = total};
}

}  // namespace gradus::kernels
