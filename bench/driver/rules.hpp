// SPDX-License-Identifier: BSL-1.0
//
// The update rules of gradus_bench.
#pragma once

#include <memory>

#include "gradus/core/index.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "settings.hpp"

namespace driver {

using rule = gradus::optim::parameter_update<float>;

/// The update rule that was asked for; on a GPU it scales the loss of a training in float16. Defined in rules_on.hpp.
/// @throws gradus::configuration_error when a hyperparameter makes no sense
template <class Device>
[[nodiscard]] std::unique_ptr<rule> make_rule(const settings& chosen, Device& device, index_t elements);

}  // namespace driver
