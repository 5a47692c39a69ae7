// SPDX-License-Identifier: BSL-1.0
//
// Arguments of network::add and network::compile.
#pragma once

#include <cstdint>           // std::uint64_t
#include <initializer_list>  // std::initializer_list
#include <utility>           // std::move
#include <vector>            // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/micro_batches.hpp"
#include "gradus/nn/plan/recompute.hpp"
#include "gradus/nn/plan/streams.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn {

/// The values that a layer reads: one value, or a list in braces.
class input_list {
 public:
  /// One value.
  input_list(value single) : values_{single} {}
  /// Several values, as in add("sum", nn::add{}, {left, right}).
  input_list(std::initializer_list<value> several) : values_{several} {}
  /// Several values, where their number is known only at run time.
  input_list(std::vector<value> several) : values_{std::move(several)} {}

  /// The values, in the order in which the layer reads them.
  [[nodiscard]] const std::vector<value>& values() const noexcept { return values_; }

 private:
  std::vector<value> values_;
};

/// Options of network::compile.
struct compile_options {
  index_t max_batch_size = 0;  ///< the largest number of examples of one step, on this rank
  std::uint64_t seed = 0;      ///< seed of initial values and of layers such as dropout
  /// Larger batches are computed in micro-batches of this size, whose gradients are added, in the memory of one
  /// micro-batch; 0: the whole batch at once. Layers with statistics of the batch, such as batch normalization, use
  /// those of each micro-batch.
  micro_batches micro_batch_size = {};
  recomputation recompute = {};               ///< true: less memory; cheap layers run twice in a training step
  branch_parallelism parallel_branches = {};  ///< true: branches run in parallel on the streams of the device
  plan_optimizations optimizations = {};      ///< all are on by default
  /// Algorithm of convolutions that do not choose one themselves (nn::conv2d::algorithm).
  kernels::convolution_algorithm convolution_algorithm = kernels::convolution_algorithm::automatic;
};

}  // namespace gradus::nn
