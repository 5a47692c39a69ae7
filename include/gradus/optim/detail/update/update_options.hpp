// SPDX-License-Identifier: BSL-1.0
//
// What is done around an update rule, without the rule: checked, and as text.
#pragma once

#include <limits>    // std::numeric_limits
#include <optional>  // std::optional
#include <string>    // std::string

#include "gradus/core/error.hpp"
#include "gradus/optim/detail/rule/describe.hpp"
#include "gradus/optim/loss_scaling.hpp"
#include "gradus/optim/update_rule.hpp"

namespace gradus::optim::detail {

/// The members of optim::update, except the rule.
struct update_options {
  std::optional<double> max_norm{};
  std::optional<double> clip_value{};
  optim::loss_scaling loss_scaling{.enabled = false};
  std::optional<double> average{};

  /// @throws configuration_error if a value is invalid
  void check() const {
    if (max_norm && !(*max_norm >= std::numeric_limits<double>::min())) {
      raise<configuration_error>("optim::update", "a max_norm above 0", {"max_norm = ", *max_norm},
                                 "1 is usual; an infinite one never clips, and reports the norm");
    }
    if (clip_value) {
      require_in_range("optim::update", "clip_value", *clip_value,
                       static_cast<double>(std::numeric_limits<float>::min()), std::numeric_limits<double>::infinity(),
                       "a finite clip_value above 0", "0.5 and 1 are usual");
    }
    if (average) {
      require_in_range("optim::update", "average", *average, 0.0, 1.0, "an average in [0, 1)",
                       "0.999 and 0.9999 are usual, for thousands of steps");
    }
    if (loss_scaling.enabled) {
      optim::check(loss_scaling);
    }
  }

  /// Appended to the description of the rule; empty if nothing is done.
  [[nodiscard]] std::string description() const {
    std::string text;
    const auto add = [&](const std::string& part) { text.append(" with ").append(part); };
    if (loss_scaling.enabled) {
      const optim::loss_scaling& s = loss_scaling;
      add(describe("loss_scaling", {s.initial, s.dynamic ? 1.0 : 0.0, s.growth, s.backoff,
                                    static_cast<double>(s.growth_interval), s.smallest, s.largest}));
    }
    if (max_norm) {
      add(describe("max_norm", {*max_norm}));
    }
    if (clip_value) {
      add(describe("clip_value", {*clip_value}));
    }
    if (average) {
      add(describe("average", {*average}));
    }
    return text;
  }
};

}  // namespace gradus::optim::detail
