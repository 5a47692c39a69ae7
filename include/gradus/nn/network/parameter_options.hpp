// SPDX-License-Identifier: BSL-1.0
//
// What a program chooses for groups of parameters and for layers that are not trained.
#pragma once

#include <cstddef>   // std::size_t
#include <optional>  // std::optional
#include <span>      // std::span
#include <string>    // std::string

#include "gradus/core/compiled.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/parameter.hpp"

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

namespace detail {

/// Appends a line for each parameter of a layer that network::group has changed: "head.bias: learning rate * 10, no
/// weight decay".
void append_groups(std::string& text, std::span<const parameter_description> before,
                   std::span<const parameter_description> now);

}  // namespace detail
}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE void append_groups(std::string& text, std::span<const parameter_description> before,
                                 std::span<const parameter_description> now) {
  for (std::size_t k = 0; k < now.size(); ++k) {
    const bool scaled = now[k].learning_rate_factor != before[k].learning_rate_factor;
    const bool decides = now[k].decay != before[k].decay;
    if (!scaled && !decides) {
      continue;
    }
    append_text(text, {now[k].name, ": "});
    if (scaled) {
      append_text(text, {"learning rate * ", now[k].learning_rate_factor});
    }
    if (decides) {
      append_text(text, {scaled ? ", " : "", now[k].decay ? "weight decay" : "no weight decay"});
    }
    text += '\n';
  }
}

}  // namespace gradus::nn::detail
#endif
