// SPDX-License-Identifier: BSL-1.0
//
// Formulas on CUDA: one launch for the value, one for the gradients of the inputs, two for each parameter.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint32_t
#include <limits>       // std::numeric_limits
#include <span>         // std::span
#include <type_traits>  // std::integral_constant, std::remove_const_t
#include <utility>      // std::index_sequence, std::make_index_sequence

#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/kernels/cuda/detail/launch/launch.cuh"
#include "gradus/kernels/cuda/detail/norm/channel_sums.cuh"
#include "gradus/kernels/cuda/softmax.cuh"
#include "gradus/kernels/formula.hpp"
#include "gradus/tensor/formula.hpp"

namespace gradus::kernels {

namespace detail {

/// Operations of the longest formula that is computed in packets. Longer ones are limited by arithmetic, and each
/// element of a packet adds code.
inline constexpr int longest_packed_formula = 16;

/// Variables of a formula in device memory.
template <class Element, int Inputs, int Parameters>
struct device_formula {
  formula_arguments<Element, Inputs, Parameters> arguments;
  const Element* dy;
  const Element* y;
  formula_shape shape;

  [[nodiscard]] __device__ index_t channel_of(index_t i) const {
    if (shape.count() <= static_cast<index_t>(std::numeric_limits<std::uint32_t>::max())) {
      return static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(shape.inner) %
             static_cast<std::uint32_t>(shape.channels);
    }
    return i / shape.inner % shape.channels;
  }

  template <int Index>
  [[nodiscard]] __device__ device_real<Element> parameter(index_t i) const {
    return arguments.parameters[Index][arguments.per_channel[Index] ? channel_of(i) : 0];
  }
  /// Where variable Index is stored, if it is an element of images.
  template <int Index>
  [[nodiscard]] __device__ const Element* image() const {
    if constexpr (Index < Inputs) {
      return arguments.inputs[Index];
    } else {
      return Index == Inputs + Parameters ? dy : y;
    }
  }
  template <int Index>
  static constexpr bool is_parameter = Inputs <= Index&& Index < Inputs + Parameters;

  /// Calls store(k, r, value) with the results of Width elements from i on.
  template <int Width, class Evaluator, class Store>
  __device__ void run(const Evaluator& evaluate, index_t i, const Store& store) const {
    run<Width>(evaluate, i, store, std::make_index_sequence<Inputs + Parameters + 2>{});
  }

 private:
  template <int Width>
  struct no_packet {};

  template <int Width, class Evaluator, int Index>
  [[nodiscard]] __device__ auto load_image(index_t i) const {
    if constexpr (Evaluator::template reads<Index> && !is_parameter<Index>) {
      return load_packet<Width>(image<Index>() + i);
    } else {
      return no_packet<Width>{};
    }
  }
  template <class First, class... Rest>
  [[nodiscard]] static __device__ const First& at(std::integral_constant<int, 0>, const First& first, const Rest&...) {
    return first;
  }
  template <int Index, class First, class... Rest>
  [[nodiscard]] static __device__ const auto& at(std::integral_constant<int, Index>, const First&,
                                                 const Rest&... rest) {
    return at(std::integral_constant<int, Index - 1>{}, rest...);
  }
  template <int Width, class Evaluator, class Store, std::size_t... Index>
  __device__ void run(const Evaluator& evaluate, index_t i, const Store& store, std::index_sequence<Index...>) const {
    run_loaded<Width>(evaluate, i, store, load_image<Width, Evaluator, static_cast<int>(Index)>(i)...);
  }
  template <int Width, class Evaluator, class Store, class... Loaded>
  __device__ void run_loaded(const Evaluator& evaluate, index_t i, const Store& store, const Loaded&... loaded) const {
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      evaluate(
          [&](auto variable) {
            constexpr int number = decltype(variable)::value;
            if constexpr (is_parameter<number>) {
              return this->template parameter<number - Inputs>(i + k);
            } else {
              return widen(at(variable, loaded...).values[k]);
            }
          },
          [&](auto result, device_real<Element> value) { store(k, result, value); });
    }
  }
};

/// y = f(...)
template <int Width, class Element, class Evaluator, int Inputs, int Parameters>
__global__ void formula_forward_kernel(device_formula<Element, Inputs, Parameters> function, Evaluator evaluate,
                                       index_t count, Element* y) {
  const index_t whole = count / Width * Width;
  for (index_t i = thread_index() * Width; i < whole; i += thread_count() * Width) {
    device_packet<Element, Width> packet;
    function.template run<Width>(
        evaluate, i, [&](int k, auto, device_real<Element> value) { packet.values[k] = narrow<Element>(value); });
    store_packet<Width>(y + i, packet);
  }
  for (index_t i = whole + thread_index(); i < count; i += thread_count()) {
    function.template run<1>(evaluate, i,
                             [&](int, auto, device_real<Element> value) { y[i] = narrow<Element>(value); });
  }
}

/// Writes or adds the results of a packet to the gradients of the inputs.
template <int Width, class Element, int Inputs, int Parameters>
struct device_gradients {
  formula_gradients<Element, Inputs, Parameters> to;
  device_real<Element> values[Inputs][Width];

  template <int Result>
  __device__ void take(int k, std::integral_constant<int, Result>, device_real<Element> value) {
    if constexpr (Result < Inputs) {
      values[Result][k] = value;
    }
  }
  __device__ void store(index_t i) const {
#pragma unroll
    for (int r = 0; r < Inputs; ++r) {
      Element* const dx = to.inputs[r];
      if (dx != nullptr) {
        device_packet<Element, Width> packet;
        if (to.accumulate[r]) {
          packet = load_packet<Width>(static_cast<const Element*>(dx) + i);
        }
#pragma unroll
        for (int k = 0; k < Width; ++k) {
          packet.values[k] = narrow<Element>(to.accumulate[r] ? widen(packet.values[k]) + values[r][k] : values[r][k]);
        }
        store_packet<Width>(dx + i, packet);
      }
    }
  }
};

template <int Width, class Element, class Evaluator, int Inputs, int Parameters>
__global__ void formula_backward_kernel(device_formula<Element, Inputs, Parameters> function, Evaluator evaluate,
                                        index_t count, formula_gradients<Element, Inputs, Parameters> gradients) {
  const index_t whole = count / Width * Width;
  for (index_t i = thread_index() * Width; i < whole; i += thread_count() * Width) {
    device_gradients<Width, Element, Inputs, Parameters> results{gradients, {}};
    function.template run<Width>(
        evaluate, i, [&](int k, auto result, device_real<Element> value) { results.take(k, result, value); });
    results.store(i);
  }
  for (index_t i = whole + thread_index(); i < count; i += thread_count()) {
    device_gradients<1, Element, Inputs, Parameters> results{gradients, {}};
    function.template run<1>(evaluate, i,
                             [&](int k, auto result, device_real<Element> value) { results.take(k, result, value); });
    results.store(i);
  }
}

/// The terms of the gradient of one parameter.
template <int Result, class Element, class Evaluator, int Inputs, int Parameters>
struct formula_terms {
  device_formula<Element, Inputs, Parameters> function;
  Evaluator evaluate;

  template <int Width, bool Across>
  __device__ void add(index_t offset, index_t, double (&a)[Width], double (&)[Width]) const {
    function.template run<Width>(evaluate, offset, [&](int k, auto result, device_real<Element> value) {
      if constexpr (decltype(result)::value == Result) {
        a[k] += static_cast<double>(value);
      }
    });
  }
};

/// The batch for the sum of a parameter of each channel, or of one for all.
[[nodiscard]] inline channel_view formula_view(const formula_shape& shape, bool per_channel) noexcept {
  if (per_channel) {
    return {shape.outer, shape.channels, shape.inner};
  }
  return shape.inner == 1 ? channel_view{shape.outer, 1, shape.channels}
                          : channel_view{shape.outer * shape.channels, 1, shape.inner};
}

/// The elements of a packet for an evaluator, if all pointers allow it.
template <class Element, class Evaluator>
inline constexpr int formula_width = Evaluator::operation_count <= longest_packed_formula ? packet_width<Element> : 1;

}  // namespace detail

/// Implements has_formula on a GPU.
template <class Node, int Variables, network_element Element, int Inputs, int Parameters>
void formula_forward(cuda& device, const formula_shape& shape, const formula<Node, Variables>& function,
                     const formula_arguments<Element, Inputs, Parameters>& arguments, Element* y) {
  static_assert(Variables == Inputs + Parameters);
  const index_t count = shape.count();
  if (count == 0) {
    return;
  }
  const auto evaluator = function.template value_of_elements<parameter_element_t<Element>>();
  using evaluator_type = std::remove_const_t<decltype(evaluator)>;
  const detail::device_formula<Element, Inputs, Parameters> variables{arguments, nullptr, nullptr, shape};
  constexpr int width = detail::formula_width<Element, evaluator_type>;
  bool packets = detail::on_packets(y);
  for (const Element* const input : arguments.inputs) {
    packets = packets && detail::on_packets(input);
  }
  if (packets) {
    detail::launch(device, "formula_forward", detail::blocks_for((count + width - 1) / width), detail::block_threads,
                   &detail::formula_forward_kernel<width, Element, evaluator_type, Inputs, Parameters>, variables,
                   evaluator, count, y);
  } else {
    detail::launch(device, "formula_forward", detail::blocks_for(count), detail::block_threads,
                   &detail::formula_forward_kernel<1, Element, evaluator_type, Inputs, Parameters>, variables,
                   evaluator, count, y);
  }
}

/// Implements has_formula on a GPU.
[[nodiscard]] inline std::size_t formula_workspace_bytes(cuda& /*device*/, const formula_shape& shape, int parameters) {
  return parameters == 0 ? 0
                         : std::max(detail::channel_sums_bytes(detail::formula_view(shape, true)),
                                    detail::channel_sums_bytes(detail::formula_view(shape, false)));
}

/// Implements has_formula on a GPU.
template <class Node, int Variables, network_element Element, int Inputs, int Parameters>
void formula_backward(cuda& device, const formula_shape& shape, const formula<Node, Variables>& function,
                      const formula_arguments<Element, Inputs, Parameters>& arguments, const Element* dy,
                      const Element* y, const formula_gradients<Element, Inputs, Parameters>& gradients,
                      [[maybe_unused]] std::span<std::byte> workspace) {
  static_assert(Variables == Inputs + Parameters);
  using real = parameter_element_t<Element>;
  const index_t count = shape.count();
  const auto evaluator = function.template gradient_of_elements<real>();
  using evaluator_type = std::remove_const_t<decltype(evaluator)>;
  using formula_type = formula<Node, Variables>;
  const detail::device_formula<Element, Inputs, Parameters> variables{arguments, dy, y, shape};
  constexpr int width = detail::formula_width<Element, evaluator_type>;
  bool packets = detail::on_packets(dy) && (!formula_type::gradient_reads_value || detail::on_packets(y));
  bool needed = false;
  for (std::size_t k = 0; k < static_cast<std::size_t>(Inputs); ++k) {
    packets = packets && (!formula_type::gradient_reads_inputs || detail::on_packets(arguments.inputs[k])) &&
              detail::on_packets(gradients.inputs[k]);
    needed = needed || gradients.inputs[k] != nullptr;
  }
  if (needed && count > 0) {
    if (packets) {
      detail::launch(device, "formula_backward", detail::blocks_for((count + width - 1) / width), detail::block_threads,
                     &detail::formula_backward_kernel<width, Element, evaluator_type, Inputs, Parameters>, variables,
                     evaluator, count, gradients);
    } else {
      detail::launch(device, "formula_backward", detail::blocks_for(count), detail::block_threads,
                     &detail::formula_backward_kernel<1, Element, evaluator_type, Inputs, Parameters>, variables,
                     evaluator, count, gradients);
    }
  }
  if constexpr (Parameters > 0) {
    auto* const partial = reinterpret_cast<double*>(workspace.data());
    const auto sum = [&]<std::size_t Index>(std::integral_constant<std::size_t, Index>) {
      using terms =
          detail::formula_terms<Inputs + static_cast<int>(Index), Element, evaluator_type, Inputs, Parameters>;
      detail::channel_sums(device, "formula_backward", detail::formula_view(shape, arguments.per_channel[Index]),
                           detail::on_packets(dy) && packets, terms{variables, evaluator},
                           detail::store_sum<real>{gradients.parameters[Index]}, partial);
    };
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      (sum(std::integral_constant<std::size_t, Index>{}), ...);
    }
    (std::make_index_sequence<static_cast<std::size_t>(Parameters)>{});
  }
}

namespace detail {

/// The sums of a loss by a formula, one for each block, and its gradient.
template <class Element, class Evaluator>
__global__ void formula_loss_kernel(Evaluator evaluate, index_t count, index_t per_example, const Element* scores,
                                    const device_real<Element>* targets, const device_real<Element>* weights,
                                    double part, double scale, const double* loss_scale, Element* gradient,
                                    loss_sums* block_sums) {
  using real = device_real<Element>;
  if (loss_scale != nullptr) {
    scale *= *loss_scale;
  }
  loss_sums own;
  for (index_t i = thread_index(); i < count; i += thread_count()) {
    const double weight = part * (weights == nullptr ? 1.0 : static_cast<double>(weights[i / per_example]));
    const real factor = static_cast<real>(scale * weight);
    evaluate(
        [&](auto variable) -> real {
          constexpr int number = decltype(variable)::value;
          if constexpr (number == 0) {
            return widen(scores[i]);
          } else if constexpr (number == 1) {
            return targets[i];
          } else {
            return factor;
          }
        },
        [&](auto result, real value) {
          if constexpr (decltype(result)::value == 1) {
            own.loss += weight * static_cast<double>(value);
          } else if (gradient != nullptr) {
            gradient[i] = narrow<Element>(value);
          }
        });
  }
  own = combine_in_block(own, [](loss_sums& a, const loss_sums& b) { a += b; });
  if (threadIdx.x == 0) {
    block_sums[blockIdx.x] = own;
  }
}

}  // namespace detail

/// See has_formula_loss. Does not wait: take_loss_sums returns the sum.
/// @note A call with more elements than before may allocate memory.
template <class Node, bool Mean, network_element Element>
[[nodiscard]] loss_sums formula_loss(cuda& device, index_t examples, index_t per_example,
                                     const loss_formula<Node, Mean>& loss, const Element* scores,
                                     const parameter_element_t<Element>* targets,
                                     const parameter_element_t<Element>* weights, double scale, Element* gradient) {
  using real = detail::device_real<Element>;
  auto& memory = device.context<detail::loss_memory>();
  const double* const loss_scale = memory.take_scale();
  const index_t count = examples * per_example;
  if (count == 0) {
    return {};
  }
  const step_numbers* const recorded = device.context<captured_numbers>().for_kernels();
  constexpr index_t threads = detail::softmax_threads;
  const index_t blocks = std::min<index_t>(1024, (count + threads - 1) / threads);
  memory.reserve(device, blocks);
  const auto evaluate = loss.template terms_of_elements<real>();
  launch(device, "formula_loss", static_cast<unsigned>(blocks), detail::softmax_threads,
         &detail::formula_loss_kernel<Element, std::remove_const_t<decltype(evaluate)>>, evaluate, count, per_example,
         scores, targets, weights, Mean ? 1.0 / static_cast<double>(per_example) : 1.0, scale, loss_scale, gradient,
         memory.row_sums());
  launch(device, "formula_loss", 1, detail::softmax_threads, &detail::sum_losses_kernel<>, blocks,
         static_cast<const loss_sums*>(memory.row_sums()), recorded, memory.sums());
  if (recorded == nullptr) {
    memory.mark();
  }
  return {};
}

}  // namespace gradus::kernels
