// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators on constants and shapes.
#pragma once

#include <algorithm>  // std::clamp, std::max
#include <cstddef>    // std::size_t
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/io/detail/onnx/import_context.hpp"
#include "gradus/io/detail/onnx/model_reader.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::io::detail {

/// Computes lists of integers while the model is read.
class onnx_constant_operators : public onnx_context {
 public:
  using onnx_context::onnx_context;

 protected:
  /// Operators on constants and shapes, with which models compute the arguments of Reshape and Pad. False if the
  /// operator is one of a layer.
  [[nodiscard]] bool translate_constants() {
    const std::string& type = op_->op_type;
    if (type == "Constant") {
      constant_operator();
      return true;
    }
    if (type == "Shape") {
      shape_operator();
      return true;
    }
    for (std::size_t k = 0; k < op_->inputs.size(); ++k) {
      if (has_input(k) && constant(k) == nullptr) {
        return false;
      }
    }
    if (constant(0) == nullptr) {
      return false;
    }
    const onnx_constant from = *constant(0);
    if (type == "Identity" || type == "Cast" || type == "Squeeze" || type == "Unsqueeze") {
      computed(from);  // a list of integers is one whatever its axes are
    } else if (type == "Concat") {
      list_of_lists();
    } else if (type == "ConstantOfShape") {
      filled_list(from);
    } else if (type == "Gather") {
      gather(from);
    } else if (type == "Reshape") {
      reshaped_list(from);
    } else if (type == "Transpose" && from.dims.size() == 2) {
      transposed_list(from);
    } else if (type == "Slice") {
      slice_of_list(from);
    } else {
      return false;
    }
    return true;
  }

 private:
  void computed(onnx_constant made) {
    computed_.insert_or_assign(op_->outputs.empty() ? std::string{} : op_->outputs.front(), std::move(made));
  }

  void require_small_list(const onnx_constant& list) const {
    index_t elements = 1;
    for (const index_t each : list.dims) {
      elements = each >= 0 && each <= 64 && elements <= 64 && elements >= 0 ? elements * each : index_t{-1};
    }
    if (elements < 0 || list.integers.size() != static_cast<std::size_t>(elements)) {
      refuse("a list of at most 64 integers", {list.size(), " numbers"});
    }
  }

  void constant_operator() {
    if (const onnx_attribute* const tensor = attribute("value")) {
      computed(tensor->tensor);
    } else if (const onnx_attribute* const number = attribute("value_int")) {
      computed({.integers = {number->integer}});
    } else if (const onnx_attribute* const real_number = attribute("value_float")) {
      computed({.numbers = {static_cast<float>(real_number->real)}});
    } else if (const onnx_attribute* const list = attribute("value_ints")) {
      computed({.dims = {static_cast<index_t>(list->integers.size())}, .integers = list->integers});
    } else {
      refuse("a tensor or numbers", "another constant");
    }
  }

  void shape_operator() {
    if (const onnx_constant* const of = constant(0)) {
      computed({.dims = {static_cast<index_t>(of->dims.size())}, .integers = of->dims});
      return;
    }
    const nn::value_shape& in = shape();
    std::vector<index_t> all{any_batch};
    if (value().rank == 2) {
      all.push_back(in.size());
    } else {
      all.push_back(in.channels);
      all.push_back(in.height);
      if (value().rank == 4) {
        all.push_back(in.width);
      }
    }
    const auto count = static_cast<index_t>(all.size());
    const auto place = [&](index_t k) { return std::clamp<index_t>(k < 0 ? k + count : k, 0, count); };
    const index_t begin = place(integer("start", 0));
    const index_t end = std::max(begin, place(integer("end", count)));
    computed({.dims = {end - begin}, .integers = {all.begin() + begin, all.begin() + end}});
  }

  void gather(const onnx_constant& from) {
    onnx_constant result{.dims = needed(1, "indices").dims};
    const auto count = static_cast<index_t>(from.integers.size());
    for (const index_t each : needed(1, "indices").integers) {
      const index_t k = each < 0 ? each + count : each;
      if (k < 0 || k >= count || integer("axis", 0) != 0) {
        refuse({"an index of ", count, " integers"}, {each});
      }
      result.integers.push_back(from.integers[static_cast<std::size_t>(k)]);
    }
    computed(std::move(result));
  }

  void list_of_lists() {
    onnx_constant result;
    for (std::size_t k = 0; k < op_->inputs.size(); ++k) {
      const std::vector<index_t>& part = needed(k, "input").integers;
      result.integers.insert(result.integers.end(), part.begin(), part.end());
    }
    result.dims = {static_cast<index_t>(result.integers.size())};
    computed(std::move(result));
  }

  void filled_list(const onnx_constant& shape_of_list) {
    const std::vector<index_t>& extents = shape_of_list.integers;
    const onnx_attribute* const filling = attribute("value");
    const std::vector<index_t> number = filling == nullptr ? std::vector<index_t>{0} : filling->tensor.integers;
    if (extents.size() != 1 || extents[0] < 0 || extents[0] > 64 || number.size() != 1) {
      refuse("a list of at most 64 integers of one value", "another tensor");
    }
    computed({.dims = extents, .integers = std::vector<index_t>(static_cast<std::size_t>(extents[0]), number[0])});
  }

  void reshaped_list(onnx_constant list) {
    list.dims = needed(1, "shape").integers;
    index_t known = 1;
    for (const index_t each : list.dims) {
      known = each > 0 && each <= 64 && known <= 64 ? known * each : known;
    }
    for (index_t& each : list.dims) {
      each = each == -1 ? static_cast<index_t>(list.size()) / known : each;
    }
    require_small_list(list);
    computed(std::move(list));
  }

  void transposed_list(const onnx_constant& from) {
    require_small_list(from);
    onnx_constant result{.dims = {from.dims[1], from.dims[0]}};
    for (index_t k = 0; k < from.dims[1]; ++k) {
      for (index_t i = 0; i < from.dims[0]; ++i) {
        result.integers.push_back(from.integers[static_cast<std::size_t>(i * from.dims[1] + k)]);
      }
    }
    computed(std::move(result));
  }

  /// Rows of a list, with a step that may be -1.
  void slice_of_list(const onnx_constant& from) {
    require_small_list(from);
    const std::vector<index_t> begin = integers(1, "starts");
    const std::vector<index_t> end = integers(2, "ends");
    const std::vector<index_t> steps = has_input(4) ? integers(4, "steps") : std::vector<index_t>{1};
    if (begin.size() != 1 || end.size() != 1 || steps.size() != 1 || (steps[0] != 1 && steps[0] != -1) ||
        from.dims.empty() || (has_input(3) && integers(3, "axes") != std::vector<index_t>{0})) {
      refuse("rows of a list with a step of 1 or -1", "another slice");
    }
    const index_t rows = from.dims[0];
    const index_t columns = rows == 0 ? 0 : static_cast<index_t>(from.integers.size()) / rows;
    const bool back = steps[0] < 0;
    const auto place = [&](index_t k) {
      const index_t from_begin = k >= 0 ? k : k < -rows ? index_t{-1} : k + rows;
      return back ? std::clamp<index_t>(from_begin, -1, rows - 1) : std::clamp<index_t>(from_begin, 0, rows);
    };
    onnx_constant result{.dims = from.dims};
    result.dims[0] = 0;
    const index_t last = place(end[0]);
    for (index_t k = place(begin[0]); back ? k > last : k < last; k += steps[0]) {
      const auto first = from.integers.begin() + k * columns;
      result.integers.insert(result.integers.end(), first, first + columns);
      ++result.dims[0];
    }
    computed(std::move(result));
  }
};

}  // namespace gradus::io::detail
