// SPDX-License-Identifier: BSL-1.0
//
// ONNX operators that compare constants and choose between them.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/onnx/detail/import/constants.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

namespace gradus::io::detail {

/// Computes comparisons and choices while the model is read: exporters write them around shapes.
class onnx_choice_operators : public onnx_constant_operators {
 public:
  using onnx_constant_operators::onnx_constant_operators;

 protected:
  /// Equal, Not, Where, Range and ReduceProd of constants. False if the operator is another one, or one of values.
  [[nodiscard]] bool translate_choices() {
    const std::string& type = op_->op_type;
    const std::size_t count = type == "Equal" ? 2 : type == "Where" || type == "Range" ? 3 : 1;
    if (type != "Not" && type != "ReduceProd" && count == 1) {
      return false;
    }
    for (std::size_t k = 0; k < count; ++k) {
      if (constant(k) == nullptr || !constant(k)->numbers.empty()) {
        return false;
      }
    }
    const onnx_constant& first = *constant(0);
    if (type == "Equal") {
      keep_constant(combined(first, *constant(1), [this](index_t a, index_t b) { return index_t{equal(a, b)}; }));
    } else if (type == "Not") {
      keep_constant(combined(first, {.integers = {0}}, [](index_t a, index_t) { return index_t{a == 0}; }));
    } else if (type == "Where") {
      // The condition decides which of the two is 0 in a sum.
      const onnx_constant ours = combined(first, *constant(1), [](index_t t, index_t a) { return t != 0 ? a : 0; });
      const onnx_constant theirs = combined(first, *constant(2), [](index_t t, index_t b) { return t != 0 ? 0 : b; });
      keep_constant(combined(ours, theirs, [](index_t a, index_t b) { return a != 0 ? a : b; }));
    } else if (type == "Range") {
      return range(first, *constant(1), *constant(2));
    } else {
      product(first);
    }
    return true;
  }

  void keep_constant(onnx_constant made) {
    computed_.insert_or_assign(op_->outputs.empty() ? std::string{} : op_->outputs.front(), std::move(made));
  }

  /// The results of a function of two lists of integers. Axes are aligned at the last one, and those of extent 1 are
  /// repeated.
  template <class Function>
  [[nodiscard]] onnx_constant combined(const onnx_constant& a, const onnx_constant& b, const Function& of) const {
    const std::size_t rank = std::max(a.dims.size(), b.dims.size());
    const auto extent = [&](const onnx_constant& list, std::size_t k) {
      return k + list.dims.size() < rank ? index_t{1} : list.dims[k + list.dims.size() - rank];
    };
    onnx_constant result{.dims = std::vector<index_t>(rank, 1)};
    index_t elements = 1;
    for (std::size_t k = 0; k < rank; ++k) {
      const index_t ours = extent(a, k);
      const index_t theirs = extent(b, k);
      if (ours < 1 || theirs < 1 || (ours != theirs && ours != 1 && theirs != 1)) {
        refuse("constants of one shape, or that can be repeated", {ours, " and ", theirs});
      }
      result.dims[k] = std::max(ours, theirs);
      if (result.dims[k] > most_integers / elements) {
        refuse({"lists of at most ", most_integers, " integers"}, {"an extent of ", result.dims[k]});
      }
      elements *= result.dims[k];
    }
    if (a.integers.empty() || b.integers.empty()) {
      refuse("lists of integers", "others");
    }
    for (index_t at = 0; at < elements; ++at) {
      index_t i = 0;
      index_t j = 0;
      index_t behind = elements;  // elements of one index of the axes so far
      for (std::size_t k = 0; k < rank; ++k) {
        behind /= result.dims[k];
        const index_t here = at / behind % result.dims[k];
        i = i * extent(a, k) + (extent(a, k) == 1 ? 0 : here);
        j = j * extent(b, k) + (extent(b, k) == 1 ? 0 : here);
      }
      result.integers.push_back(of(a.integers[static_cast<std::size_t>(i)], b.integers[static_cast<std::size_t>(j)]));
    }
    return result;
  }

  static constexpr index_t most_integers = index_t{1} << 20;  // of a list that the model computes

 private:
  /// Of the number of images only that it is positive is known.
  [[nodiscard]] bool equal(index_t a, index_t b) const {
    if (a != b && ((a == any_batch && b > 0) || (b == any_batch && a > 0))) {
      refuse("numbers that the model fixes", "the number of images");
    }
    return a == b;
  }

  /// False if the last number is that of the images.
  [[nodiscard]] bool range(const onnx_constant& from, const onnx_constant& to, const onnx_constant& by) {
    if (from.size() != 1 || to.size() != 1 || by.size() != 1) {
      refuse("a number as start, limit and delta", "others");
    }
    const index_t begin = from.integers[0];
    const index_t end = to.integers[0];
    const index_t step = by.integers[0];
    if (end == any_batch) {
      return false;
    }
    const bool within =
        begin >= -most_integers && begin <= most_integers && end >= -most_integers && end <= most_integers;
    if (!within || step == 0) {
      refuse({"a range of at most ", most_integers, " integers"}, {begin, " to ", end, " by ", step});
    }
    onnx_constant result;
    for (index_t k = begin; step > 0 ? k < end : k > end;) {
      result.integers.push_back(k);
      if (step > most_integers * 2 || step < -most_integers * 2) {
        break;
      }
      k += step;
    }
    result.dims = {static_cast<index_t>(result.integers.size())};
    keep_constant(std::move(result));
    return true;
  }

  /// The product of a list.
  void product(const onnx_constant& list) {
    const std::vector<index_t> axes = integers(1, "axes");
    if (list.dims.size() > 1 || (!axes.empty() && axes != std::vector<index_t>{0})) {
      refuse("all numbers of a list", "others");
    }
    ignore({"noop_with_empty_axes"});
    onnx_constant result{.dims = std::vector<index_t>(integer("keepdims", 1) != 0 ? list.dims.size() : 0, 1),
                         .integers = {1}};
    for (const index_t each : list.integers) {
      index_t& all = result.integers[0];
      if (each == any_batch || each < 0 || (each > 0 && all > most_product / each)) {
        refuse({"a product of at most ", most_product}, {each == any_batch ? "the number of images" : "more"});
      }
      all *= each;
    }
    keep_constant(std::move(result));
  }

  static constexpr index_t most_product = index_t{1} << 40;
};

}  // namespace gradus::io::detail
