// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench.
#pragma once

#include <memory>

#include "gradus/core/index.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "settings.hpp"

namespace gradus {
class cpu;
class cuda;
}  // namespace gradus

namespace driver {

using rule = gradus::optim::parameter_update<float>;

/// The update rule that was asked for.
/// @throws gradus::configuration_error when a hyperparameter makes no sense
[[nodiscard]] std::unique_ptr<rule> make_rule(const settings& chosen, gradus::cpu& device, index_t elements);
/// The same on a GPU, where it scales the loss of a training in float16.
[[nodiscard]] std::unique_ptr<rule> make_rule(const settings& chosen, gradus::cuda& device, index_t elements);

}  // namespace driver
