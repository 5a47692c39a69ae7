// SPDX-License-Identifier: BSL-1.0
//
// What a program chooses for groups of parameters and for layers that are not trained.
#pragma once

#include <optional>  // std::optional

#include "gradus/core/config.hpp"

namespace gradus::nn {

/// Hyper-parameters of the parameters in a group: see network::group. What is not set stays as it is.
struct parameter_options {
  /// The learning rate of these parameters is this factor times that of the schedule; above 0. By default 1.
  std::optional<double> learning_rate_factor = {};
  /// Whether weight decay applies to these parameters. By default to weights of products, and not to biases and
  /// normalization.
  std::optional<bool> weight_decay = {};
};

/// How layers that are not trained run: see network::freeze.
struct freeze_options {
  /// In a training step the layers run as in network::evaluate: normalization uses running statistics and does not
  /// change them, and dropout passes all on. By default only the parameters stand still: batch normalization goes on to
  /// use the batch's statistics and to update the running ones, as in PyTorch with requires_grad = False.
  bool evaluates = false;
};

}  // namespace gradus::nn
