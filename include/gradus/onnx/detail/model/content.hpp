// SPDX-License-Identifier: BSL-1.0
//
// What an ONNX file holds: operators, constants, inputs and outputs.
#pragma once

#include <cstddef>     // std::size_t
#include <functional>  // std::less
#include <map>         // std::map
#include <memory>      // std::shared_ptr
#include <string>      // std::string
#include <vector>      // std::vector

#include "gradus/core/index.hpp"

namespace gradus::io::detail {

/// A constant of a model. Integers and numbers are both converted, whatever its element type is.
struct onnx_constant {
  std::vector<index_t> dims = {};
  std::vector<float> numbers = {};     // of float, double, float16 and bfloat16
  std::vector<index_t> integers = {};  // of 32 and 64 bits, and bool

  [[nodiscard]] std::size_t size() const noexcept { return numbers.size() + integers.size(); }
};

struct onnx_content;

/// An attribute; which member counts depends on the operator.
struct onnx_attribute {
  double real = 0;
  index_t integer = 0;
  std::string text = {};
  std::vector<index_t> integers = {};
  onnx_constant tensor = {};
  std::shared_ptr<const onnx_content> graph = {};  // a branch of If
};

/// One operator of a model.
struct onnx_operator {
  std::string name;
  std::string op_type;
  std::string domain;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, onnx_attribute, std::less<>> attributes;
};

/// An input or output of a model. Extents that have a name, or none, are 0.
struct onnx_value {
  std::string name;
  std::vector<index_t> dims;
  index_t element_type = 0;  // of onnx.proto
};

/// A model as it is in the file.
struct onnx_content {
  index_t opset = 0;
  std::vector<onnx_operator> operators;
  std::map<std::string, onnx_constant, std::less<>> constants;
  std::vector<onnx_value> inputs;  // without those that are constants
  std::vector<onnx_value> outputs;
};

}  // namespace gradus::io::detail
