// SPDX-License-Identifier: BSL-1.0
//
// The ONNX operator Gather, and what computes its indices.
#pragma once

#include <array>       // std::array
#include <cstddef>     // std::size_t
#include <functional>  // std::less
#include <map>         // std::map
#include <string>      // std::string
#include <utility>     // std::move
#include <vector>      // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/value.hpp"
#include "gradus/onnx/detail/import/axes.hpp"
#include "gradus/onnx/detail/import/imported_layers.hpp"
#include "gradus/onnx/detail/model/model_reader.hpp"

namespace gradus::io::detail {

/// Makes layers of Gather along an axis, and of a Gather from all elements of a batch that keeps their order: as
/// PyTorch writes as_strided.
class onnx_gather_operators : public onnx_axes_operators {
 public:
  using onnx_axes_operators::onnx_axes_operators;

 protected:
  /// False if the operator neither gathers nor computes indices.
  [[nodiscard]] bool translate_gathers() {
    const std::string& type = op_->op_type;
    if (type == "Reshape") {
      return all_elements();
    }
    if (type == "Gather") {
      const auto all = has_input(0) ? all_.find(op_->inputs[0]) : all_.end();
      if (all != all_.end()) {
        in_order(all->second);
      } else {
        along_axis();
      }
      return true;
    }
    return type == "Range" ? range_of_batch() : of_indices();
  }

 private:
  /// Integers for each image: those of the first one, and what is added from one image to the next. The first axis is
  /// that of the images.
  struct indices_of_images {
    onnx_constant first;
    index_t step = 0;
  };

  /// A value as a list of the elements of all images.
  [[nodiscard]] bool all_elements() {
    const onnx_constant* const to = constant(1);
    if (to == nullptr || to->integers.size() != 1 || to->integers[0] != -1 || !has_input(0) ||
        find(op_->inputs[0]) == nullptr || op_->outputs.empty()) {
      return false;
    }
    ignore({"allowzero"});
    all_.insert_or_assign(op_->outputs.front(), laid_out(kept()));
    return true;
  }

  /// 0, 1, ... for each image.
  [[nodiscard]] bool range_of_batch() {
    const onnx_constant& begin = needed(0, "start");
    const onnx_constant& end = needed(1, "limit");
    const onnx_constant& step = needed(2, "delta");
    if (begin.integers != std::vector<index_t>{0} || end.integers != std::vector<index_t>{any_batch} ||
        step.integers != std::vector<index_t>{1}) {
      refuse("integers, or those from 0 to the number of images", "others");
    }
    keep_indices({{.dims = {1}, .integers = {0}}, 1});
    return true;
  }
  void keep_indices(indices_of_images made) {
    indices_.insert_or_assign(op_->outputs.empty() ? std::string{} : op_->outputs.front(), std::move(made));
  }

  /// Arithmetic with indices.
  [[nodiscard]] bool of_indices() {
    const std::string& type = op_->op_type;
    const std::size_t k = has_input(0) && indices_.contains(op_->inputs[0]) ? 0 : 1;
    if (!has_input(k) || !indices_.contains(op_->inputs[k])) {
      return false;
    }
    indices_of_images made = indices_.find(op_->inputs[k])->second;
    if (type == "Unsqueeze" && k == 0) {
      std::vector<index_t> behind = made.first.dims;
      behind.erase(behind.begin());
      if (behind.empty()) {  // axes of extent 1
        behind = std::vector<index_t>(integers(1, "axes").size(), 1);
        made.first.dims = behind;
        for (const index_t each : integers(1, "axes")) {
          if (axis_of(each, static_cast<int>(behind.size()) + 1) == 0) {
            refuse("the images as the first axis", "axis 0");
          }
        }
      } else {
        made.first.dims = reshaped_extents(behind, false);
      }
      made.first.dims.insert(made.first.dims.begin(), 1);
    } else if (type == "Add" || type == "Mul") {
      const onnx_constant& other = needed(1 - k, "input");
      const std::size_t rank = made.first.dims.size();
      if (other.dims.size() > rank || (other.dims.size() == rank && rank > 0 && other.dims[0] != 1)) {
        refuse("integers that are the same for each image", "others");
      }
      if (type == "Mul") {
        const index_t factor = other.integers.size() == 1 ? other.integers[0] : index_t{0};
        if (factor < 1 || factor > most_pixels || made.step > most_pixels) {
          refuse({"a factor from 1 to ", most_pixels}, {factor});
        }
        made.step *= factor;
      }
      const bool adds = type == "Add";
      made.first = combined(made.first, other, [&, this](index_t a, index_t b) {
        if (a < 0 || b < 0 || a > most_elements || b > most_elements) {
          refuse({"indices from 0 to ", most_elements}, {a, " and ", b});
        }
        return adds ? a + b : a * b;
      });
    } else {
      return false;
    }
    keep_indices(std::move(made));
    return true;
  }

  /// Gather from a list of all elements.
  void in_order(nn::value from) {
    const index_t size = net_.shape(from).size();
    const index_t batch = model_.inputs.front().dims[0];
    require_integer("axis", 0);
    const auto found = has_input(1) ? indices_.find(op_->inputs[1]) : indices_.end();
    const bool of_each = found != indices_.end();
    const onnx_constant& indices = of_each ? found->second.first : needed(1, "indices");
    bool keeps = indices.dims.size() > 1 && (of_each ? found->second.step == size : indices.dims[0] == batch) &&
                 static_cast<index_t>(indices.integers.size()) == (of_each ? size : size * batch);
    for (std::size_t k = 0; k < indices.integers.size(); ++k) {
      keeps = keeps && indices.integers[k] == static_cast<index_t>(k);
    }
    if (!keeps) {
      refuse("all elements of a batch in their order", "others");
    }
    give_extents(from, {indices.dims.begin() + 1, indices.dims.end()});
  }

  /// Gather of elements of one axis.
  void along_axis() {
    const imported from = value();
    const index_t which = axis_of(integer("axis", 0), from.rank);
    const onnx_constant& indices = needed(1, "indices");
    if (which == 0 || indices.dims.size() > 1 || indices.integers.empty() || indices.integers.size() > 4096) {
      refuse("from 1 to 4096 elements of an axis of the images", which == 0 ? "images" : "others");
    }
    const turned_axes turned = with_channels_at(0, which);
    const nn::value all = plain(turned.value);
    const index_t count = net_.shape(all).channels;
    std::vector<nn::index_range> runs;
    for (const index_t each : indices.integers) {
      const index_t at = each < 0 ? each + count : each;
      if (at < 0 || at >= count) {
        refuse({"an index of ", count, " elements"}, {each});
      }
      if (!runs.empty() && runs.back().end == at) {
        ++runs.back().end;
      } else {
        runs.push_back({at, at + 1});
      }
    }
    std::vector<nn::value> parts;
    for (const nn::index_range& each : runs) {
      parts.push_back(add(nn::slice{.channels = each}, all));
    }
    imported made =
        permuted({parts.size() == 1 ? parts[0] : add(layer_name(), nn::concat{}, parts), from.rank}, turned.back);
    if (!indices.dims.empty()) {
      give(made);
      return;
    }
    std::vector<index_t> extents = extents_of(from);
    extents.erase(extents.begin() + which - 1);
    if (extents.empty()) {
      refuse("a result with axes behind the batch", "none");
    }
    give_extents(laid_out(made), extents);
  }

  static constexpr index_t most_elements = index_t{1} << 32;

  std::map<std::string, nn::value, std::less<>> all_;
  std::map<std::string, indices_of_images, std::less<>> indices_;
};

}  // namespace gradus::io::detail
