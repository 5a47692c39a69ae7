// SPDX-License-Identifier: BSL-1.0
//
// A trainer whose network is cut into stages on several ranks: parallel::hybrid.
#pragma once

#include "gradus/parallel/hybrid.hpp"
#include "gradus/train/detail/hybrid/pipeline_parts.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"

namespace gradus::train::detail {

template <>
struct parts_of_strategy<parallel::hybrid> {
  using type = pipeline_parts;
  [[nodiscard]] static type make(const parallel::hybrid& options) { return type{options}; }
};

}  // namespace gradus::train::detail
