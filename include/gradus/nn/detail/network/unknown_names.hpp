// SPDX-License-Identifier: BSL-1.0
//
// Errors of names that a network does not have. Compiled once for all networks.
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/name_pattern.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn::detail {

/// The names of a network's layers, and of their parameters.
struct network_names {
  known_names layers;
  known_names parameters;
};

/// What to write in place of a pattern that fits no name of a layer.
[[nodiscard]] std::string hint_for_layers(std::string_view pattern, const network_names& names);

/// What to write in place of a pattern or a name that fits no name of a parameter.
[[nodiscard]] std::string hint_for_parameters(std::string_view pattern, const network_names& names);

/// Raises configuration_error: a pattern fits none of the layers.
[[noreturn]] inline void raise_no_layer(std::string_view operation, std::string_view pattern,
                                        const network_names& names) {
  raise<configuration_error>(operation, {"a pattern of layers, which are ", names.layers.similar(pattern)},
                             {"'", pattern, "', which fits none of them"}, hint_for_layers(pattern, names));
}

/// Raises configuration_error: a pattern fits none of the parameters.
[[noreturn]] inline void raise_no_parameters(std::string_view operation, std::string_view pattern,
                                             const network_names& names) {
  raise<configuration_error>(operation, {"a pattern of parameters, which are ", names.parameters.similar(pattern)},
                             {"'", pattern, "', which fits none of them"}, hint_for_parameters(pattern, names));
}

/// Raises configuration_error: no parameter has the name.
[[noreturn]] inline void raise_no_parameter(std::string_view operation, std::string_view name,
                                            const network_names& names, error_location where) {
  raise<configuration_error>(operation, {"one of ", names.parameters.similar(name)}, {"'", name, "'"},
                             hint_for_parameters(name, names), where);
}

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE std::string hint_for_layers(std::string_view pattern, const network_names& names) {
  if (const std::string_view parameter = names.parameters.first_that_fits(pattern); !parameter.empty()) {
    return gradus::join({"'", parameter, "' is a parameter, and freeze takes whole layers: is it '",
                         parameter.substr(0, parameter.rfind('.')), "'?"});
  }
  if (names.layers.has_group(pattern)) {
    return gradus::join({"is it '", pattern, ".*'?"});
  }
  const std::string_view meant = names.layers.meant_by(pattern);
  return meant.empty() ? "* stands for any characters and ? for one; add the layers before"
                       : gradus::join({"is it '", meant, "'?"});
}

GRADUS_INLINE std::string hint_for_parameters(std::string_view pattern, const network_names& names) {
  if (const std::string_view meant = names.parameters.meant_by(pattern); !meant.empty()) {
    return gradus::join({"is it '", meant, "'?"});
  }
  if (const std::string_view layer = names.layers.first_that_fits(pattern); !layer.empty()) {
    return names.parameters.has_group(layer)
               ? gradus::join({"'", layer, "' is a layer; its parameters are '", layer, ".*'"})
               : gradus::join({"'", layer, "' is a layer without parameters"});
  }
  return "a parameter is named \"layer.weight\"; * stands for any characters and ? for one; add the layers before";
}

}  // namespace gradus::nn::detail
#endif
