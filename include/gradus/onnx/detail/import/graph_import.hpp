// SPDX-License-Identifier: BSL-1.0
//
// A model of ONNX operators as layers of a network.
#pragma once

#include <algorithm>    // std::find, std::none_of
#include <cstddef>      // std::size_t
#include <optional>     // std::optional
#include <set>          // std::set
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/functions.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"
#include "gradus/onnx/operators.hpp"

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
    translate_all(model_.operators);
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
    add_needed(model_.operators, used);
    return used;
  }
  static void add_needed(const std::vector<onnx_operator>& operators, std::set<std::string_view>& used) {
    for (auto each = operators.rbegin(); each != operators.rend(); ++each) {
      if (std::none_of(each->outputs.begin(), each->outputs.end(),
                       [&](const std::string& name) { return used.contains(name); })) {
        continue;
      }
      used.insert(each->inputs.begin(), each->inputs.end());
      for (const auto& attribute : each->attributes) {
        if (const onnx_content* const graph = attribute.second.graph.get()) {
          for (const onnx_value& output : graph->outputs) {
            used.insert(output.name);
          }
          add_needed(graph->operators, used);
        }
      }
    }
  }

  /// Translates the operators that the first output depends on.
  void translate_all(const std::vector<onnx_operator>& operators) {
    for (const onnx_operator& each : operators) {
      op_ = &each;
      if (std::none_of(each.outputs.begin(), each.outputs.end(),
                       [&, this](const std::string& name) { return used_.contains(name); })) {
        continue;
      }
      read_.clear();
      const bool of_onnx = each.domain.empty() || each.domain == "ai.onnx";
      const std::string full_name = of_onnx ? each.op_type : gradus::join({each.domain, "::", each.op_type});
      if (net_.has_custom(full_name)) {
        translate_custom(full_name);
        continue;
      }
      if (!of_onnx) {
        const std::string known = net_.custom_names();
        refuse(
            {"an operator of ONNX, or one for which there is a function", known.empty() ? "" : ": ", known},
            {"'", full_name, "'"},
            {"give add_to or load_onnx a function that adds its layer: {{\"", full_name, "\", ...}} (docs/onnx.md)"});
      }
      if (each.op_type == "If") {
        branch();
        continue;
      }
      translate();
      refuse_unread_attributes();
    }
  }

  /// By a function of the program.
  void translate_custom(const std::string& full_name) {
    custom_operator call{layer_name(), *op_, read_};
    for (std::size_t k = 0; k < op_->inputs.size(); ++k) {
      if (!has_input(k)) {
        continue;
      }
      if (const onnx_constant* const numbers = constant(k)) {
        call.constants_.push_back({numbers, op_->inputs[k]});
      } else {
        const imported& read = value(k);
        call.axes_.push_back(read.rank);
        call.inputs_.push_back(read.rank == 2 ? plain(read.value) : read.value);
      }
    }
    const std::size_t first_layer = net_.layers().size();
    const custom_result made = net_.translate_custom(full_name, call);
    require_attributes_asked_for(full_name);
    const std::span<const nn::graph_node> added = net_.layers().subspan(first_layer);
    require_assigned_names(full_name, call, added);
    require_constants_used(full_name, call);
    require_all_assigned(full_name, call, added);
    for (const custom_operator::assignment& each : call.assigned_) {
      weights_.push_back(
          {gradus::join({call.name(), ".", each.parameter}), call.constants_[each.constant].value->numbers});
    }
    give(made.value, made.axes != 0 ? made.axes : call.axes_.empty() ? 4 : call.axes_.front());
  }

  /// An attribute that a function of the program did not ask for may change the result.
  void require_attributes_asked_for(std::string_view full_name) const {
    for (const auto& [name, value] : op_->attributes) {
      if (read_.contains(name)) {
        continue;
      }
      const std::string_view function = !value.text.empty()       ? "text"
                                        : !value.integers.empty() ? "integers"
                                        : value.integer != 0      ? "integer"
                                                                  : "real";
      refuse({"a function for ", full_name, " that asks for all its attributes"},
             {"the attribute '", name, "', which it did not ask for"},
             {"call op.", function, "(\"", name, "\", ...), or op.has_attribute(\"", name,
              "\") where the layer does not need it"});
    }
  }

  /// The names of the parameters and buffers of layers: "conv1.weight".
  [[nodiscard]] static std::set<std::string> numbers_of(std::span<const nn::graph_node> layers, bool with_fixed) {
    std::set<std::string> names;
    for (const nn::graph_node& each : layers) {
      for (const nn::parameter_description& parameter : each.parameters) {
        names.insert(parameter.name);
      }
      for (const nn::buffer_description& buffer : each.layer->buffers()) {
        if (with_fixed || !buffer.fixed) {
          names.insert(gradus::join({each.name, ".", buffer.name}));
        }
      }
    }
    return names;
  }
  [[nodiscard]] static std::string quoted(const std::set<std::string>& names) {
    std::string text;
    for (const std::string& each : names) {
      append_text(text, {text.empty() ? "'" : ", '", each, "'"});
    }
    return text;
  }

  /// @param added  layers, by the function of the program
  void require_assigned_names(std::string_view full_name, const custom_operator& call,
                              std::span<const nn::graph_node> added) const {
    const std::set<std::string> names = numbers_of(added, true);
    for (const custom_operator::assignment& each : call.assigned_) {
      const std::string name = gradus::join({call.name(), ".", each.parameter});
      if (names.contains(name)) {
        continue;
      }
      std::set<std::string> layers;
      for (const nn::graph_node& layer : added) {
        layers.insert(layer.name);
      }
      if (!layers.contains(call.name())) {
        refuse({"the layer '", call.name(), "', whose parameter '", each.parameter, "' the function for ", full_name,
                " assigns"},
               {layers.empty() ? "no layer" : "layers of other names: ", quoted(layers)}, "name the layer op.name()");
      }
      refuse({"the parameter '", name, "', which the function for ", full_name, " assigns"},
             {"a layer with ", names.empty() ? "none" : quoted(names)});
    }
  }

  /// Constants that a function of the program leaves out would make results wrong without an error.
  void require_constants_used(std::string_view full_name, const custom_operator& call) const {
    std::string unused;
    for (std::size_t k = 0; k < call.constants_.size(); ++k) {
      if (!call.constants_[k].used && call.constants_[k].value->size() != 0) {
        append_text(unused, {unused.empty() ? "" : ", ", k, " ('", call.constants_[k].name, "')"});
      }
    }
    if (!unused.empty()) {
      refuse({"a function for ", full_name, " that assigns or reads all ", call.constants(), " constants"},
             {"none for constant ", unused},
             "op.assign(parameter, constant) gives the numbers to the layer op.name(), op.constant_numbers(constant) "
             "reads them");
    }
  }

  /// So would parameters that get no numbers.
  /// @param added  layers, by the function of the program
  void require_all_assigned(std::string_view full_name, const custom_operator& call,
                            std::span<const nn::graph_node> added) const {
    std::set<std::string> names = numbers_of(added, false);
    for (const custom_operator::assignment& each : call.assigned_) {
      names.erase(gradus::join({call.name(), ".", each.parameter}));
    }
    if (!names.empty() && !call.keeps_initial_values_) {
      refuse({"a function for ", full_name, " that assigns all parameters and buffers of its layers"},
             {"none for ", quoted(names)},
             "call op.assign(parameter, constant), or op.keep_initial_values() where the file has no numbers for them");
    }
  }

  /// If, of a condition that the shapes of the model decide.
  void branch() {
    const onnx_operator& here = *op_;
    const std::optional<double> condition = scalar(needed(0, "condition"));
    if (!condition) {
      refuse("a condition", {needed(0, "condition").size(), " numbers"});
    }
    const onnx_attribute* const chosen = attribute(*condition != 0 ? "then_branch" : "else_branch");
    if (chosen == nullptr || chosen->graph == nullptr || chosen->graph->outputs.size() != here.outputs.size()) {
      refuse({"a graph with ", here.outputs.size(), " outputs as the branch"}, "another");
    }
    for (const auto& each : chosen->graph->constants) {
      computed_.insert_or_assign(each.first, each.second);
    }
    translate_all(chosen->graph->operators);
    op_ = &here;
    for (std::size_t k = 0; k < here.outputs.size(); ++k) {
      const std::string& made = chosen->graph->outputs[k].name;
      if (const imported* const found = find(made)) {
        values_.insert_or_assign(here.outputs[k], imported{*found});
      } else if (const onnx_constant* const number = constant_named(made)) {
        computed_.insert_or_assign(here.outputs[k], onnx_constant{*number});
      } else if (used_.contains(here.outputs[k])) {
        refuse("a branch that computes its output", {"'", made, "'"});
      }
    }
  }

  void translate() {
    if (!translate_constants() && !translate_choices() && !translate_axes() && !translate_pooling() &&
        !translate_weights() && !translate_shapes() && !translate_activations()) {
      translate_arithmetic();
    }
  }
};

}  // namespace gradus::io::detail
