// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators on constants and shapes.
#pragma once

#include <algorithm>  // std::adjacent_find, std::clamp, std::max, std::sort
#include <cstddef>    // std::size_t
#include <cstdint>    // std::int32_t
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/context.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

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
    if (type == "Identity") {
      computed(from);
    } else if (type == "Cast") {
      cast(from);
    } else if (type == "Squeeze" || type == "Unsqueeze") {
      squeezed_list(from, type == "Squeeze");
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
    } else if ((type == "Add" || type == "Sub" || type == "Mul" || type == "Div") && op_->inputs.size() == 2) {
      arithmetic(from, needed(1, "input"));
    } else {
      return false;
    }
    return true;
  }

 private:
  void computed(onnx_constant made) {
    computed_.insert_or_assign(op_->outputs.empty() ? std::string{} : op_->outputs.front(), std::move(made));
  }

  void require_known(const onnx_constant& list) const {
    for (const index_t each : list.integers) {
      if (each == any_batch) {
        refuse("numbers that the model fixes", "the number of images");
      }
    }
  }

  /// Conversion of a constant. Numbers of 16 bits are not rounded to them.
  void cast(onnx_constant from) {
    ignore({"saturate"});
    const index_t to = integer("to", 0);
    if (to == 1 || to == 10 || to == 11 || to == 16) {
      require_known(from);
      for (const index_t each : from.integers) {
        from.numbers.push_back(static_cast<float>(each));
      }
      from.integers.clear();
    } else if (to == 6 || to == 7 || to == 9) {
      for (const float each : from.numbers) {
        if (to != 9 && !(each > -2147483648.0F && each < 2147483648.0F)) {
          refuse("a number of 32 bits", {each});
        }
        from.integers.push_back(to == 9 ? index_t{each != 0} : static_cast<index_t>(each));
      }
      from.numbers.clear();
      if (to == 9) {
        require_known(from);
      }
      for (index_t& each : from.integers) {
        if (to == 6 && each != any_batch && each != static_cast<std::int32_t>(each)) {
          refuse("a number of 32 bits", {each});
        }
        each = to == 9 ? index_t{each != 0} : each;
      }
    } else {
      refuse("numbers, integers of 32 or 64 bits or conditions", {"element type ", to});
    }
    computed(std::move(from));
  }

  void squeezed_list(onnx_constant list, bool squeeze) {
    std::vector<index_t> axes = integers(1, "axes");
    const auto rank = static_cast<int>(list.dims.size());
    const auto count = static_cast<int>(axes.size());
    if (count > 64) {
      refuse("at most 64 axes", {count});
    }
    for (index_t& each : axes) {
      each = axis_of(each, squeeze ? rank : rank + count);
    }
    if (squeeze && axes.empty()) {
      for (int k = 0; k < rank; ++k) {
        if (list.dims[static_cast<std::size_t>(k)] == 1) {
          axes.push_back(k);
        }
      }
    }
    std::sort(axes.begin(), axes.end());
    if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
      refuse("different axes", "one twice");
    }
    if (squeeze) {
      for (auto each = axes.rbegin(); each != axes.rend(); ++each) {
        if (list.dims[static_cast<std::size_t>(*each)] != 1) {
          refuse("axes of extent 1", {"axis ", *each, " of extent ", list.dims[static_cast<std::size_t>(*each)]});
        }
        list.dims.erase(list.dims.begin() + *each);
      }
    } else {
      for (const index_t each : axes) {
        list.dims.insert(list.dims.begin() + each, 1);
      }
    }
    computed(std::move(list));
  }

  /// a + b, a - b, a * b or a / b. Axes are aligned at the last one, and those of extent 1 are repeated.
  void arithmetic(const onnx_constant& a, const onnx_constant& b) {
    const bool reals = a.integers.empty() && b.integers.empty();
    if (!reals && !(a.numbers.empty() && b.numbers.empty())) {
      refuse("two constants of one type", "integers and numbers");
    }
    require_known(a);
    require_known(b);
    const std::size_t rank = std::max(a.dims.size(), b.dims.size());
    onnx_constant result{.dims = std::vector<index_t>(rank, 1)};
    const auto extent = [&](const onnx_constant& of, std::size_t k) {
      return k + of.dims.size() < rank ? index_t{1} : of.dims[k + of.dims.size() - rank];
    };
    std::size_t elements = 1;
    for (std::size_t k = 0; k < rank; ++k) {
      const index_t ours = extent(a, k);
      const index_t theirs = extent(b, k);
      if (ours != theirs && ours != 1 && theirs != 1) {
        refuse("constants of one shape, or that can be repeated", {ours, " and ", theirs});
      }
      result.dims[k] = ours == 1 ? theirs : ours;
      elements *= static_cast<std::size_t>(result.dims[k]);
      if (elements > std::max({a.size(), b.size(), std::size_t{4096}})) {
        refuse("a constant as large as one of the two", "a larger one");
      }
    }
    std::vector<std::size_t> at(rank, 0);
    for (std::size_t done = 0; done < elements; ++done) {
      std::size_t i = 0;
      std::size_t j = 0;
      for (std::size_t k = 0; k < rank; ++k) {
        i = i * static_cast<std::size_t>(extent(a, k)) + (extent(a, k) == 1 ? 0 : at[k]);
        j = j * static_cast<std::size_t>(extent(b, k)) + (extent(b, k) == 1 ? 0 : at[k]);
      }
      if (reals) {
        result.numbers.push_back(computed_number(a.numbers[i], b.numbers[j]));
      } else {
        result.integers.push_back(computed_integer(a.integers[i], b.integers[j]));
      }
      for (std::size_t k = rank; k > 0 && ++at[k - 1] == static_cast<std::size_t>(result.dims[k - 1]); --k) {
        at[k - 1] = 0;
      }
    }
    computed(std::move(result));
  }
  [[nodiscard]] float computed_number(float a, float b) const {
    const std::string& type = op_->op_type;
    return type == "Add" ? a + b : type == "Sub" ? a - b : type == "Mul" ? a * b : a / b;
  }
  [[nodiscard]] index_t computed_integer(index_t a, index_t b) const {
    constexpr index_t most = index_t{1} << 31;
    const std::string& type = op_->op_type;
    if (a < -most || a > most || b < -most || b > most || (type == "Div" && b == 0)) {
      refuse("integers of 32 bits, and no division by 0", {a, " and ", b});
    }
    return type == "Add" ? a + b : type == "Sub" ? a - b : type == "Mul" ? a * b : a / b;
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
    } else if (const onnx_attribute* const reals = attribute("value_floats")) {
      computed({.dims = {static_cast<index_t>(reals->tensor.numbers.size())}, .numbers = reals->tensor.numbers});
    } else {
      refuse("a tensor or numbers", "another constant");
    }
  }

  void shape_operator() {
    if (const onnx_constant* const of = constant(0)) {
      computed({.dims = {static_cast<index_t>(of->dims.size())}, .integers = of->dims});
      return;
    }
    std::vector<index_t> all{any_batch};
    imported& of = kept();
    (void)laid_out(of);
    const std::vector<index_t> extents = extents_of(of);
    all.insert(all.end(), extents.begin(), extents.end());
    const auto count = static_cast<index_t>(all.size());
    const auto clamped = [&](index_t k) { return std::clamp<index_t>(k < 0 ? k + count : k, 0, count); };
    const index_t begin = clamped(integer("start", 0));
    const index_t end = std::max(begin, clamped(integer("end", count)));
    computed({.dims = {end - begin}, .integers = {all.begin() + begin, all.begin() + end}});
  }

  void gather(const onnx_constant& from) {
    if (from.dims.size() != 1 || from.integers.size() != static_cast<std::size_t>(from.dims[0]) ||
        (integer("axis", 0) != 0 && integer("axis", 0) != -1)) {
      refuse("a list of integers", "another constant");
    }
    onnx_constant result{.dims = needed(1, "indices").dims};
    const auto count = static_cast<index_t>(from.integers.size());
    for (const index_t each : needed(1, "indices").integers) {
      const index_t k = each < 0 ? each + count : each;
      if (k < 0 || k >= count) {
        refuse({"an index of ", count, " integers"}, {each});
      }
      result.integers.push_back(from.integers[static_cast<std::size_t>(k)]);
    }
    computed(std::move(result));
  }

  void list_of_lists() {
    onnx_constant result;
    for (std::size_t k = 0; k < op_->inputs.size(); ++k) {
      const onnx_constant& list = needed(k, "input");
      const std::vector<index_t>& part = list.integers;
      const index_t which = integer("axis", 0);
      if (list.dims.size() != 1 || !list.numbers.empty() || (which != 0 && which != -1)) {
        refuse("lists of integers", "other constants");
      }
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
    const std::vector<index_t> before = list.dims;
    list.dims = needed(1, "shape").integers;
    const auto elements = static_cast<index_t>(list.size());
    const bool keeps = integer("allowzero", 0) == 0;
    index_t known = 1;
    index_t* open = nullptr;
    for (std::size_t k = 0; k < list.dims.size(); ++k) {
      index_t& each = list.dims[k];
      each = each == 0 && keeps && k < before.size() ? before[k] : each;
      if (each == -1 && open == nullptr) {
        open = &each;
        continue;
      }
      if (each < 1 || each > elements / known) {
        refuse({"a shape of ", elements, " elements"}, listed(needed(1, "shape").integers));
      }
      known *= each;
    }
    if (open != nullptr) {
      *open = elements / known;
      known *= *open;
    }
    if (known != elements) {
      refuse({"a shape of ", elements, " elements"}, listed(needed(1, "shape").integers));
    }
    computed(std::move(list));
  }

  void transposed_list(const onnx_constant& from) {
    if (attribute_integers("perm", {1, 0}) != std::vector<index_t>{1, 0}) {
      refuse("the permutation (1, 0)", listed(attribute_integers("perm", {})));
    }
    onnx_constant result{.dims = {from.dims[1], from.dims[0]}};
    const auto turn = [&](const auto& list, auto& to) {
      for (index_t k = 0; k < from.dims[1] && !list.empty(); ++k) {
        for (index_t i = 0; i < from.dims[0]; ++i) {
          to.push_back(list[static_cast<std::size_t>(i * from.dims[1] + k)]);
        }
      }
    };
    turn(from.integers, result.integers);
    turn(from.numbers, result.numbers);
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
    const auto clamped = [&](index_t k) {
      const index_t from_begin = k >= 0 ? k : k < -rows ? index_t{-1} : k + rows;
      return back ? std::clamp<index_t>(from_begin, -1, rows - 1) : std::clamp<index_t>(from_begin, 0, rows);
    };
    onnx_constant result{.dims = from.dims};
    result.dims[0] = 0;
    const index_t last = clamped(end[0]);
    for (index_t k = clamped(begin[0]); back ? k > last : k < last; k += steps[0]) {
      const auto first = from.integers.begin() + k * columns;
      result.integers.insert(result.integers.end(), first, first + columns);
      ++result.dims[0];
    }
    computed(std::move(result));
  }
};

}  // namespace gradus::io::detail
