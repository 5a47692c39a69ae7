// SPDX-License-Identifier: BSL-1.0
//
// Operators of ONNX models that functions of the program translate.
#pragma once

#include <cstddef>      // std::size_t
#include <functional>   // std::function, std::less
#include <map>          // std::map
#include <set>          // std::set
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/model/content.hpp"

namespace gradus::io {

namespace detail {
class onnx_importer;
}  // namespace detail

/// An operator of a model, for a function of the program that adds the layer which computes it.
class custom_operator {
 public:
  /// A name for the layer, which no other layer of the model has: that of the operator, or of its output.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// "Rotate"
  [[nodiscard]] const std::string& op_type() const noexcept { return op_->op_type; }
  /// "company"; empty or "ai.onnx" for ONNX's own.
  [[nodiscard]] const std::string& domain() const noexcept { return op_->domain; }

  /// The values of the network that it reads, in the order of its inputs; those with numbers of the file are left out.
  /// A vector (N, C) has the shape (C, 1, 1).
  [[nodiscard]] std::span<const nn::value> inputs() const noexcept { return inputs_; }
  /// The number of axes that such a value has in the model, with the batch. @pre k < inputs().size()
  [[nodiscard]] int axes(std::size_t k) const noexcept { return axes_[k]; }

  /// How many inputs have numbers of the file: weights, sizes. The function reads or assigns each of them. Of an
  /// operator that io::save_onnx wrote: the parameters of the layer in their order, then its buffers.
  [[nodiscard]] std::size_t constants() const noexcept { return constants_.size(); }
  /// The extents of such an input, in their order. @pre k < constants()
  [[nodiscard]] std::span<const index_t> constant_extents(std::size_t k) const noexcept {
    return constants_[k].value->dims;
  }
  /// Its floating-point numbers; empty if it has integers. @pre k < constants()
  [[nodiscard]] std::span<const float> constant_numbers(std::size_t k) const noexcept {
    return constants_[k].read().numbers;
  }
  /// Its integers; empty if it has floating-point numbers. @pre k < constants()
  [[nodiscard]] std::span<const index_t> constant_integers(std::size_t k) const noexcept {
    return constants_[k].read().integers;
  }

  /// True if the file gives this attribute.
  [[nodiscard]] bool has_attribute(std::string_view attribute) const { return find(attribute) != nullptr; }
  /// An attribute, or a value where the file does not give it. Those that are not asked for are refused: they might
  /// change the result.
  [[nodiscard]] index_t integer(std::string_view attribute, index_t otherwise) const {
    const detail::onnx_attribute* const found = find(attribute);
    return found == nullptr ? otherwise : found->integer;
  }
  /// As integer().
  [[nodiscard]] double real(std::string_view attribute, double otherwise) const {
    const detail::onnx_attribute* const found = find(attribute);
    return found == nullptr ? otherwise : found->real;
  }
  /// As integer().
  [[nodiscard]] std::string text(std::string_view attribute, std::string_view otherwise) const {
    const detail::onnx_attribute* const found = find(attribute);
    return std::string{found == nullptr ? otherwise : std::string_view{found->text}};
  }
  /// As integer().
  [[nodiscard]] std::vector<index_t> integers(std::string_view attribute, std::vector<index_t> otherwise) const {
    const detail::onnx_attribute* const found = find(attribute);
    return found == nullptr ? std::move(otherwise) : found->integers;
  }

  /// Lets onnx_model::assign_weights give the numbers of a constant to a parameter or buffer of the layer name(). A
  /// function that adds layers assigns all their parameters and buffers (but fixed ones), or calls
  /// keep_initial_values().
  /// @param parameter  "weight", "bias", ..., as the layer calls it
  /// @throws configuration_error unless there is such a constant, of floating-point numbers
  void assign(std::string_view parameter, std::size_t constant, error_location where = error_location::current()) {
    if (constant >= constants_.size() ||
        (constants_[constant].value->numbers.empty() && constants_[constant].value->size() != 0)) {
      raise<configuration_error>({"ONNX operator ", op_->op_type, " '", op_->name, "'"},
                                 {"a constant of floating-point numbers for '", parameter, "'"},
                                 {"constant ", constant, " of ", constants_.size()}, {}, where);
    }
    (void)constants_[constant].read();
    assigned_.push_back({std::string{parameter}, constant});
  }

  /// Lets parameters and buffers that nothing assigns keep their initial values: the file has no numbers for them.
  void keep_initial_values() noexcept { keeps_initial_values_ = true; }

 private:
  friend class detail::onnx_importer;

  /// An input with numbers of the file.
  struct constant_input {
    const detail::onnx_constant* value;
    std::string_view name;      // in the model
    mutable bool used = false;  // by the function

    const detail::onnx_constant& read() const noexcept {
      used = true;
      return *value;
    }
  };

  struct assignment {
    std::string parameter;
    std::size_t constant;
  };

  custom_operator(std::string name, const detail::onnx_operator& op, std::set<std::string_view>& read)
      : name_{std::move(name)}, op_{&op}, read_{&read} {}

  [[nodiscard]] const detail::onnx_attribute* find(std::string_view attribute) const {
    const auto found = op_->attributes.find(attribute);
    if (found == op_->attributes.end()) {
      return nullptr;
    }
    read_->insert(found->first);
    return &found->second;
  }

  std::string name_;
  const detail::onnx_operator* op_;
  std::set<std::string_view>* read_;  // attributes
  std::vector<nn::value> inputs_;
  std::vector<int> axes_;
  std::vector<constant_input> constants_;
  std::vector<assignment> assigned_;
  bool keeps_initial_values_ = false;
};

/// What a function makes of an operator.
struct custom_result {
  /// The value of the operator's first output: no other one may be used.
  /// @param axes_of_result  how many axes it has in the model, with the batch; 0: as the first input
  custom_result(nn::value made, int axes_of_result = 0) noexcept : value{made}, axes{axes_of_result} {}

  nn::value value;  ///< of the network
  int axes;         ///< in the model
};

/// Functions that translate operators, by the domain and the type of the operator: "company::Rotate"; only by the type
/// for ONNX's own, where a function goes before what the library makes of it. A function is called for each operator of
/// its name; one for an operator that the model does not have is not called.
///
///   const auto rotate = [](auto& net, io::custom_operator& op) {
///     return net.add(op.name(), rotation{.turns = op.integer("turns", 1)}, op.inputs()[0]);
///   };  // of a layer with parameters: op.assign("weight", 0);
///   auto net = io::load_onnx<float>(device, "model.onnx", {.max_batch_size = 16}, {}, {{"company::Rotate", rotate}});
template <class Network>
using custom_operators = std::map<std::string, std::function<custom_result(Network&, custom_operator&)>, std::less<>>;

}  // namespace gradus::io
