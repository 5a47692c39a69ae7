// SPDX-License-Identifier: BSL-1.0
//
// What is known of a measurement before its first step.
#pragma once

#include "result.hpp"
#include "settings.hpp"
#include "zoo.hpp"

namespace driver {

/// The settings with what they leave open filled in.
[[nodiscard]] settings completed(settings chosen);

/// The network, with images of the size that was asked for.
[[nodiscard]] model_properties model_of(const settings& chosen);

/// @throws std::invalid_argument for what this program cannot do, before anything has begun
void require_supported(const settings& chosen);

/// Prints the plan of one rank, its memory, bytes and bounds of a step. Trains nothing.
void dry_run(const settings& chosen, int ranks);

/// The examples of an epoch of the data; of synthetic images those of the set whose shape they have.
[[nodiscard]] double examples_of_epoch(const settings& chosen, index_t examples_of_set);

/// The lines before the first step, as tf_cnn_benchmarks prints them.
void print_header(const settings& chosen, const result& about, index_t examples_of_set);

}  // namespace driver
