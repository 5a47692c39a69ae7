// SPDX-License-Identifier: BSL-1.0
//
// A model of ONNX operators as layers of a network.
#pragma once

#include <algorithm>    // std::any_of, std::find, std::none_of
#include <set>          // std::set
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/io/detail/onnx/import_functions.hpp"
#include "gradus/io/detail/onnx/model_reader.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::io::detail {

/// Adds the layers of a model to a network.
class onnx_importer : public onnx_function_operators {
 public:
  using onnx_function_operators::onnx_function_operators;

  /// @throws configuration_error for what the layers of the library cannot compute; it names the operator
  nn::value run(nn::value input) {
    const onnx_value& images = model_.inputs.front();
    require_numbers(images);
    values_[images.name] = {input, static_cast<int>(images.dims.size())};
    used_ = needed_values();
    for (const onnx_operator& each : model_.operators) {
      op_ = &each;
      if (std::none_of(each.outputs.begin(), each.outputs.end(),
                       [&, this](const std::string& name) { return used_.contains(name); })) {
        continue;
      }
      if (!each.domain.empty() && each.domain != "ai.onnx") {
        refuse({"operators of ONNX"}, {"one of the domain ", each.domain});
      }
      read_.clear();
      translate();
      refuse_unread_attributes();
    }
    imported* const scores = find(model_.outputs.front().name);
    if (scores == nullptr || !scores->extents.empty()) {
      raise<configuration_error>("io::onnx_model", "an output that depends on the input",
                                 {"'", model_.outputs.front().name, "'"});
    }
    return laid_out(*scores);
  }

 private:
  /// Layers compute with floating-point numbers; integers of an image are converted by a Cast.
  void require_numbers(const onnx_value& images) const {
    const index_t type = images.element_type;
    if (type == 0 || type == 1 || type == 9 || type == 10 || type == 11 || type == 16) {
      return;
    }
    for (const onnx_operator& each : model_.operators) {
      if (each.op_type != "Cast" &&
          std::find(each.inputs.begin(), each.inputs.end(), images.name) != each.inputs.end()) {
        raise<configuration_error>("io::onnx_model",
                                   "an input of floating-point numbers, or one that Cast converts to them",
                                   {"element type ", type, ", which ", each.op_type, " reads"});
      }
    }
  }

  /// The names that the first output depends on.
  [[nodiscard]] std::set<std::string_view> needed_values() const {
    std::set<std::string_view> used{model_.outputs.front().name};
    for (auto each = model_.operators.rbegin(); each != model_.operators.rend(); ++each) {
      if (std::any_of(each->outputs.begin(), each->outputs.end(),
                      [&](const std::string& name) { return used.contains(name); })) {
        used.insert(each->inputs.begin(), each->inputs.end());
      }
    }
    return used;
  }

  void translate() {
    if (!translate_constants() && !translate_weights() && !translate_shapes() && !translate_activations()) {
      translate_arithmetic();
    }
  }
};

}  // namespace gradus::io::detail
