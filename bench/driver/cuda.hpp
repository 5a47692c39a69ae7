// SPDX-License-Identifier: BSL-1.0
//
// Measurements on GPUs: what the rest of the program calls where it is built with gradus::cuda.
#pragma once

#include <functional>
#include <memory>

#include "gradus/device/cuda.cuh"
#include "settings.hpp"
#include "training.hpp"
#include "update.hpp"

namespace driver {

/// @throws std::invalid_argument for what GPUs are not used for
void require_supported_on_cuda(const settings& chosen);

/// The cards that this process sees; 0 without a driver.
[[nodiscard]] int cuda_devices();

/// The card of a rank, by its number on its machine, with the options that were asked for.
/// @throws gradus::device_error when there is none
[[nodiscard]] gradus::cuda make_cuda_device(const settings& chosen, int local_rank);

/// The card that a rank computes with. It must outlive the result.
[[nodiscard]] std::unique_ptr<rank_device> make_gpu(gradus::cuda& device);

/// Calls use with a training on the first card.
void with_cuda_training(const settings& chosen, const input_set& input, const batches& plan,
                        const std::function<void(training&)>& use);

}  // namespace driver
