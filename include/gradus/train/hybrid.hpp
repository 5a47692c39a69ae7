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

/// The stages of a network for a step_trainer, whose strategy is a parallel::hybrid with the same options. A trainer
/// makes them by itself.
///
/// @code
///   auto ranks = std::make_unique<parallel::pipeline_ranks_of<float, comm::threads>>(options, world);
///   train::pipeline stages{options};
///   stages.prepare_with(net, std::move(ranks));  // cuts and compiles it
///   // ... parameters, rule, strategy and end, as step_trainer says
///   train::step_trainer trainer{net, end, end.group(), std::move(stages)};
/// @endcode
using pipeline = detail::pipeline_parts;

/// The stages that a trainer by parallel::hybrid has cut its network into: a table for people, with the layers, memory
/// and time of each stage and the bytes at each cut. The same on all ranks.
template <class Trainer>
[[nodiscard]] std::string stages_of(const Trainer& trainer) {
  return trainer.parts().cut().text;
}

}  // namespace gradus::train
