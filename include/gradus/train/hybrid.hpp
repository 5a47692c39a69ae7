// SPDX-License-Identifier: BSL-1.0
//
// A trainer whose network is cut into stages on several ranks: parallel::hybrid.
#pragma once

#include <string>  // std::string

#include "gradus/parallel/hybrid.hpp"
#include "gradus/train/detail/hybrid/pipeline_parts.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"

namespace gradus::train {

namespace detail {

template <>
struct parts_of_strategy<parallel::hybrid> {
  using type = pipeline_parts;
  [[nodiscard]] static type make(const parallel::hybrid& options) { return type{options}; }
};

}  // namespace detail

/// The stages that a trainer by parallel::hybrid has cut its network into: a table for people, with the layers, memory
/// and time of each stage and the bytes at each cut. The same on all ranks.
template <class Trainer>
[[nodiscard]] std::string stages_of(const Trainer& trainer) {
  return trainer.parts().text();
}

}  // namespace gradus::train
