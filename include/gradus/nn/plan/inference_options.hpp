// SPDX-License-Identifier: BSL-1.0
//
// Arguments of network::compile_for_inference and of inference sessions.
#pragma once

#include <cstddef>  // std::byte
#include <cstdint>  // std::uint64_t
#include <span>     // std::span

#include "gradus/core/index.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/nn/plan/execution_plan.hpp"
#include "gradus/nn/plan/streams.hpp"

namespace gradus::nn {

/// Options of network::compile_for_inference.
struct inference_options {
  index_t max_batch_size = 0;  ///< the largest number of examples that forward computes
  std::uint64_t seed = 0;      ///< seed of initial values, if the network was not compiled before
  /// Batch normalization is computed by the convolution, transposed convolution or dense layer before it, whose weights
  /// are multiplied by the factors of the channels. Results differ by rounding. Not where another layer or the caller
  /// reads the value in between.
  bool fold_batch_norm = true;
  /// Convolutions keep their weights in the order of their loops, or transformed for Winograd, instead of packing them
  /// in each call. This needs memory for a second copy of the weights.
  bool prepare_weights = true;
  branch_parallelism parallel_branches = {};  ///< as in compile_options
  plan_optimizations optimizations = {};      ///< all are on by default
  /// As in compile_options.
  kernels::convolution_algorithm convolution_algorithm = kernels::convolution_algorithm::automatic;
  /// Memory for the values, on the device: memory_forecast::arena bytes of network::forecast or more, aligned to
  /// memory_plan::alignment. The network uses it as long as it exists. Empty: the network allocates it.
  std::span<std::byte> memory = {};
};

/// Options of an inference session.
struct session_options {
  /// Memory for the values of the session, as inference_options::memory.
  std::span<std::byte> memory = {};
};

}  // namespace gradus::nn
