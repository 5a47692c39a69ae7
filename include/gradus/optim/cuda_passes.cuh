// SPDX-License-Identifier: BSL-1.0
//
// Kernels of update rules over parameters, gradients and velocities on CUDA devices.
#pragma once

#include <cuda_runtime_api.h>  // cudaMalloc

#include <algorithm>  // std::min
#include <cmath>      // std::sqrt
#include <cstddef>    // std::size_t
#include <memory>     // std::unique_ptr
#include <span>       // std::span
#include <utility>    // std::index_sequence, std::make_index_sequence, std::move

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/loss_scale.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/device/cuda_launch.cuh"
#include "gradus/device/cuda_memory.cuh"
#include "gradus/device/cuda_step.cuh"
#include "gradus/optim/cpu_passes.hpp"
#include "gradus/optim/detail/cuda_passes/segment_tables.cuh"
#include "gradus/optim/detail/update/step_decision.hpp"
#include "gradus/optim/elementwise_pass.hpp"
#include "gradus/optim/lamb_pass.hpp"
#include "gradus/optim/loss_scaling.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/optim/update_step.hpp"

namespace gradus::optim {

namespace detail {

/// The coefficients of a momentum_pass in the element type.
template <class Element>
struct momentum_numbers {
  double learning_rate;
  Element momentum, decay, scale;
  bool nesterov;
};

inline constexpr int scale_index = gradus::detail::index_of(loss_scale_number::scale);
inline constexpr int skipped_index = gradus::detail::index_of(loss_scale_number::skipped_steps);
inline constexpr int not_finite_index = gradus::detail::index_of(loss_scale_number::not_finite);

template <class Element>
__global__ void momentum_kernel(const segment_piece* pieces, momentum_numbers<Element> numbers,
                                const step_numbers* recorded, const double* loss_scale, Element* values,
                                const Element* gradients, Element* velocities) {
  if (loss_scale != nullptr) {
    if (loss_scale[not_finite_index] != 0) {
      return;  // the step is skipped
    }
    numbers.scale = static_cast<Element>(numbers.scale / loss_scale[scale_index]);
  }
  const segment_piece piece = pieces[blockIdx.x];
  const double learning_rate = recorded == nullptr ? numbers.learning_rate : recorded->learning_rate;
  const auto rate = static_cast<Element>(learning_rate * piece.learning_rate_factor);
  const Element decay = piece.decay != 0 ? numbers.decay : Element{0};
  Element* const p = values + piece.offset;
  const Element* const g = gradients + piece.offset;
  Element* const v = velocities == nullptr ? nullptr : velocities + piece.offset;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    const Element gradient = numbers.scale * g[i] + decay * p[i];
    Element step = gradient;
    if (v != nullptr) {
      const Element velocity = numbers.momentum * v[i] + gradient;
      v[i] = velocity;
      step = numbers.nesterov ? gradient + numbers.momentum * velocity : velocity;
    }
    p[i] -= rate * step;
  }
}

/// Each thread block tests one piece.
template <class Element>
__global__ void not_finite_kernel(const segment_piece* pieces, const Element* gradients, double* found) {
  const segment_piece piece = pieces[blockIdx.x];
  const Element* const g = gradients + piece.offset;
  int any = 0;
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    any |= g[i] - g[i] == Element{0} ? 0 : 1;
  }
  if (__syncthreads_or(any) != 0 && threadIdx.x == 0) {
    *found = 1;
  }
}

/// The numbers of a step in a kernel: those of a captured step, and of a loss scale in device memory.
__device__ inline pass_point point_on_device(pass_point point, const step_numbers* recorded, const double* loss_scale) {
  if (recorded != nullptr) {
    point.learning_rate = recorded->learning_rate;
    point.updates = recorded->step;
  }
  if (loss_scale != nullptr) {
    point.gradient_scale /= loss_scale[scale_index];
    point.updates = updates_before(point.updates, loss_scale[skipped_index]);
  }
  return point;
}

/// The formula of a pass for one piece, with its learning rate. One thread computes it for its block, because powers in
/// double precision are slow on many GPUs. All threads of the block call it.
template <class Element, class Pass>
__device__ typename Pass::template step<Element> step_for_block(const Pass& pass, const pass_point& point,
                                                                const step_numbers* recorded, const double* loss_scale,
                                                                const segment_piece& piece) {
  __shared__ typename Pass::template step<Element> shared;
  if (threadIdx.x == 0) {
    pass_point own = point_on_device(point, recorded, loss_scale);
    own.learning_rate *= piece.learning_rate_factor;
    shared = pass.template at<Element>(own, piece.decay != 0);
  }
  __syncthreads();
  return shared;
}

/// Calls step(written..., read...) with the elements at index i.
template <class Element, std::size_t Outputs, std::size_t Inputs, class Step, std::size_t... Out, std::size_t... In>
__device__ void step_element(const Step& step, const pass_arrays<Element, Outputs>& written,
                             const pass_arrays<const Element, Inputs>& read, int i, std::index_sequence<Out...>,
                             std::index_sequence<In...>) {
  Element values[] = {written.data[Out][i]...};
  step(values[Out]..., Element{read.data[In][i]}...);
  ((written.data[Out][i] = values[Out]), ...);
}

/// Each thread block runs the step of one piece.
template <class Pass, class Element, std::size_t Outputs, std::size_t Inputs>
__global__ void pass_kernel(const segment_piece* pieces, Pass pass, pass_point point, const step_numbers* recorded,
                            const double* loss_scale, pass_arrays<Element, Outputs> written,
                            pass_arrays<const Element, Inputs> read) {
  if (loss_scale != nullptr && loss_scale[not_finite_index] != 0) {
    return;  // the step is skipped
  }
  const segment_piece piece = pieces[blockIdx.x];
  const auto step = step_for_block<Element>(pass, point, recorded, loss_scale, piece);
  const auto own = written.from(piece.offset);
  const auto others = read.from(piece.offset);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    step_element(step, own, others, i, std::make_index_sequence<Outputs>{}, std::make_index_sequence<Inputs>{});
  }
}

inline constexpr int lamb_threads = 256;

/// The sums of two numbers over the threads of the block, in an order that does not change, in thread 0. All threads of
/// the block call it.
__device__ inline void add_over_block(double& one, double& other) {
  __shared__ double sums[2][lamb_threads];
  sums[0][threadIdx.x] = one;
  sums[1][threadIdx.x] = other;
  __syncthreads();
  for (unsigned half = lamb_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
      sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
    }
    __syncthreads();
  }
  one = sums[0][0];
  other = sums[1][0];
}

/// Each thread block updates the moments of one piece, and writes the sums of squares of its values and directions to
/// sums[2 * block] and sums[2 * block + 1]. Without decay it also makes the step.
template <class Element>
__global__ void lamb_moments_kernel(const segment_piece* pieces, lamb_pass pass, pass_point point,
                                    const step_numbers* recorded, const double* loss_scale, Element* values,
                                    const Element* gradients, Element* first, Element* second, double* sums) {
  if (loss_scale != nullptr && loss_scale[not_finite_index] != 0) {
    return;  // the step is skipped
  }
  const segment_piece piece = pieces[blockIdx.x];
  const auto step = step_for_block<Element>(pass, point, recorded, loss_scale, piece);
  double value_squares = 0;
  double direction_squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    const index_t at = piece.offset + i;
    Element m = first[at];
    Element v = second[at];
    const Element value = values[at];
    step.moments(m, v, gradients[at]);
    first[at] = m;
    second[at] = v;
    const Element direction = step.direction(value, m, v);
    if (piece.decay == 0) {
      values[at] = value - step.rate * direction;
    }
    value_squares += static_cast<double>(value) * static_cast<double>(value);
    direction_squares += static_cast<double>(direction) * static_cast<double>(direction);
  }
  add_over_block(value_squares, direction_squares);
  if (threadIdx.x == 0) {
    sums[2 * blockIdx.x] = value_squares;
    sums[2 * blockIdx.x + 1] = direction_squares;
  }
}

/// The thread block of the first piece of a segment writes the trust ratio of the segment to ratios[block].
template <class Unused = void>
__global__ void lamb_ratio_kernel(const segment_piece* pieces, const double* loss_scale, const double* sums,
                                  double* ratios) {
  const segment_piece piece = pieces[blockIdx.x];
  if (piece.decay == 0 || piece.first != static_cast<int>(blockIdx.x) ||
      (loss_scale != nullptr && loss_scale[not_finite_index] != 0)) {
    return;
  }
  double value_squares = 0;
  double direction_squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < piece.pieces; i += static_cast<int>(blockDim.x)) {
    value_squares += sums[2 * (piece.first + i)];
    direction_squares += sums[2 * (piece.first + i) + 1];
  }
  add_over_block(value_squares, direction_squares);
  if (threadIdx.x == 0) {
    ratios[blockIdx.x] = trust_ratio(value_squares, direction_squares);
  }
}

/// Each thread block makes the step of one piece that has weight decay.
template <class Element>
__global__ void lamb_step_kernel(const segment_piece* pieces, lamb_pass pass, pass_point point,
                                 const step_numbers* recorded, const double* loss_scale, Element* values,
                                 const Element* first, const Element* second, const double* ratios) {
  const segment_piece piece = pieces[blockIdx.x];
  if (piece.decay == 0 || (loss_scale != nullptr && loss_scale[not_finite_index] != 0)) {
    return;
  }
  const auto step = step_for_block<Element>(pass, point, recorded, loss_scale, piece);
  const double learning_rate = recorded == nullptr ? point.learning_rate : recorded->learning_rate;
  const auto rate = static_cast<Element>(learning_rate * piece.learning_rate_factor * ratios[piece.first]);
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    const index_t at = piece.offset + i;
    values[at] -= rate * step.direction(values[at], first[at], second[at]);
  }
}

/// Each thread block writes the sum of squares of one piece to sums[block].
template <class Element>
__global__ void piece_squares_kernel(const segment_piece* pieces, const Element* gradients, double* sums) {
  const segment_piece piece = pieces[blockIdx.x];
  const Element* const g = gradients + piece.offset;
  double sum = 0;
  double unused = 0;
  for (int i = static_cast<int>(threadIdx.x); i < piece.size; i += static_cast<int>(blockDim.x)) {
    const auto value = static_cast<double>(g[i]);
    sum += value * value;
  }
  add_over_block(sum, unused);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
  }
}

/// One thread block adds the sums of all pieces to *total.
template <class Unused = void>
__global__ void add_pieces_kernel(index_t pieces, const double* sums, double* total) {
  double sum = 0;
  double unused = 0;
  for (index_t i = threadIdx.x; i < pieces; i += static_cast<index_t>(blockDim.x)) {
    sum += sums[i];
  }
  add_over_block(sum, unused);
  if (threadIdx.x == 0) {
    *total += sum;
  }
}

/// One thread decides.
template <class Unused = void>
__global__ void decide_step_kernel(double max_norm, loss_scaling scaling, double* numbers) {
  decide_step(max_norm, scaling, numbers);
}

inline constexpr int fill_blocks = 256;

template <class Element>
__global__ void fill_kernel(index_t count, Element value, Element* elements) {
  for (index_t i = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<index_t>(fill_blocks) * blockDim.x) {
    elements[i] = value;
  }
}

inline constexpr int norm_blocks = 64;
inline constexpr int norm_threads = 256;

/// Thread block b writes the sum of squares of its share of the elements to partial[b], in double precision.
template <class Element>
__global__ void squares_kernel(index_t count, const Element* x, double* partial) {
  __shared__ double sums[norm_threads];
  double sum = 0;
  for (index_t i = static_cast<index_t>(blockIdx.x) * norm_threads + threadIdx.x; i < count;
       i += norm_blocks * norm_threads) {
    const auto value = static_cast<double>(x[i]);
    sum += value * value;
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = norm_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sums[0];
  }
}

/// Page-locked memory to which squares_kernel writes.
class norm_memory {
 public:
  explicit norm_memory(const cuda&) : memory_{norm_blocks * sizeof(double)} {}
  [[nodiscard]] double* data() const noexcept { return static_cast<double*>(memory_.data()); }

 private:
  pinned_memory memory_;
};

}  // namespace detail

/// Runs one step for the parameters of `segments` in one launch; see momentum_pass. Segment offsets index all buffers.
/// The first call with a list of segments copies the list to the device.
template <class Element>
void apply_momentum(cuda& device, std::span<const segment> segments, const momentum_pass& pass, Element* values,
                    const Element* gradients, Element* velocities) {
  const detail::segment_tables::table& table = device.context<detail::segment_tables>().of(segments);
  if (table.pieces == 0) {
    return;
  }
  launch(device, "apply_momentum", static_cast<unsigned>(table.pieces), 256, &detail::momentum_kernel<Element>,
         table.on_device,
         {.learning_rate = pass.learning_rate,
          .momentum = static_cast<Element>(pass.momentum),
          .decay = static_cast<Element>(pass.gradient_scale * pass.weight_decay),
          .scale = static_cast<Element>(pass.gradient_scale / pass.loss_scale.factor),
          .nesterov = pass.nesterov},
         device.context<captured_numbers>().for_kernels(), pass.loss_scale.numbers, values, gradients, velocities);
}

/// Runs one step of an elementwise formula in one launch; see apply_pass in elementwise_pass.hpp. The first call with a
/// list of segments copies the list to the device.
template <class Pass, class Element, std::size_t Outputs, std::size_t Inputs>
void apply_pass(cuda& device, std::span<const segment> segments, const Pass& pass, const update_step& step,
                const loss_scale& scale, const pass_arrays<Element, Outputs>& written,
                const pass_arrays<const Element, Inputs>& read) {
  const detail::segment_tables::table& table = device.context<detail::segment_tables>().of(segments);
  if (table.pieces == 0) {
    return;
  }
  launch(device, "apply_pass", static_cast<unsigned>(table.pieces), 256,
         &detail::pass_kernel<Pass, Element, Outputs, Inputs>, table.on_device, pass,
         {step.learning_rate, step.number, 1.0 / scale.factor}, device.context<captured_numbers>().for_kernels(),
         scale.numbers, written, read);
}

/// Runs one step of LAMB in three launches; see lamb_pass.hpp. Does not wait. The first call with a list of segments
/// copies the list to the device.
template <class Element>
void apply_lamb(cuda& device, std::span<const segment> segments, const detail::lamb_pass& pass, const update_step& step,
                const loss_scale& scale, Element* values, const Element* gradients, Element* first, Element* second) {
  auto& tables = device.context<detail::segment_tables>();
  const detail::segment_tables::table& table = tables.of(segments);
  if (table.pieces == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(table.pieces);
  const pass_point point{step.learning_rate, step.number, 1.0 / scale.factor};
  const step_numbers* const recorded = device.context<captured_numbers>().for_kernels();
  double* const sums = tables.sums_of(table);
  double* const ratios = sums + 2 * table.pieces;
  launch(device, "apply_lamb", blocks, detail::lamb_threads, &detail::lamb_moments_kernel<Element>, table.on_device,
         pass, point, recorded, scale.numbers, values, gradients, first, second, sums);
  launch(device, "apply_lamb", blocks, detail::lamb_threads, &detail::lamb_ratio_kernel<>, table.on_device,
         scale.numbers, sums, ratios);
  launch(device, "apply_lamb", blocks, detail::lamb_threads, &detail::lamb_step_kernel<Element>, table.on_device, pass,
         point, recorded, scale.numbers, values, first, second, ratios);
}

/// Sets *found, in device memory, to 1 if a gradient of `segments` is infinite or NaN; otherwise leaves it unchanged.
/// One launch; does not wait.
template <class Element>
void note_not_finite(cuda& device, std::span<const segment> segments, const Element* gradients, double* found) {
  const detail::segment_tables::table& table = device.context<detail::segment_tables>().of(segments);
  if (table.pieces == 0) {
    return;
  }
  launch(device, "note_not_finite", static_cast<unsigned>(table.pieces), 256, &detail::not_finite_kernel<Element>,
         table.on_device, gradients, found);
}

/// Adds the squares of the gradients of `segments` to *sum, in device memory. Two launches; does not wait. The first
/// call with a list of segments copies the list to the device.
template <class Element>
void add_squares(cuda& device, std::span<const segment> segments, const Element* gradients, double* sum) {
  auto& tables = device.context<detail::segment_tables>();
  const detail::segment_tables::table& table = tables.of(segments);
  if (table.pieces == 0) {
    return;
  }
  double* const sums = tables.sums_of(table);
  launch(device, "add_squares", static_cast<unsigned>(table.pieces), detail::lamb_threads,
         &detail::piece_squares_kernel<Element>, table.on_device, gradients, sums);
  launch(device, "add_squares", 1, detail::lamb_threads, &detail::add_pieces_kernel<>, table.pieces, sums, sum);
}

/// Runs detail::decide_step on the device. Does not wait.
inline void decide_step_on(cuda& device, double max_norm, const loss_scaling& scaling, double* numbers) {
  launch(device, "decide_step", 1, 1, &detail::decide_step_kernel<>, max_norm, scaling, numbers);
}

}  // namespace gradus::optim

namespace gradus::kernels {

/// The factor by which gradients have been multiplied; found by lookup on the device. Waits if it is
/// stored there.
[[nodiscard]] inline double factor_of(cuda& device, const loss_scale& scale) {
  double number = 1;
  if (scale.numbers != nullptr) {
    device.copy_to_host(&number, scale.numbers + optim::detail::scale_index, sizeof(number));
  }
  return scale.factor * number;
}

/// Sets `count` elements to `value`; found by lookup on the device.
template <class Element>
void fill_elements(cuda& device, index_t count, Element value, Element* elements) {
  if (count > 0) {
    launch(device, "fill_elements", optim::detail::fill_blocks, 256, &optim::detail::fill_kernel<Element>, count, value,
           elements);
  }
}

/// The Euclidean norm of `count` elements; found by lookup on the device. Sums are in double precision. Waits.
template <class Element>
[[nodiscard]] double norm(cuda& device, index_t count, const Element* x) {
  double* const partial = device.context<optim::detail::norm_memory>().data();
  launch(device, "norm", optim::detail::norm_blocks, optim::detail::norm_threads,
         &optim::detail::squares_kernel<Element>, count, x, partial);
  device.synchronize();
  double sum = 0;
  for (int block = 0; block < optim::detail::norm_blocks; ++block) {
    sum += partial[block];
  }
  return std::sqrt(sum);
}

}  // namespace gradus::kernels
