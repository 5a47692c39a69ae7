// SPDX-License-Identifier: BSL-1.0
//
// The offsets of the parameters of all layers in flat buffers, and which of them have gradients.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <vector>   // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"

namespace gradus::nn {

/// The order of all parameters in a flat buffer: those of the last layer first, as backward completes their gradients.
/// Those of frozen layers come after all others, without gradients. Buffers of layers have a flat buffer, too.
class parameter_offsets {
 public:
  /// Gives each parameter its offset, a multiple of memory_plan::alignment, and each buffer its name. Replaces what an
  /// earlier call has assigned.
  /// @param nodes   outlive this object and keep their addresses
  /// @param stages  those of a rank that runs some layers only: the others get no place; null: all layers run
  void assign(std::span<graph_node> nodes, std::size_t element_bytes, const stage_cuts* stages = nullptr) {
    *this = {};
    const auto unit = static_cast<index_t>(memory_plan::alignment / element_bytes);
    // Gradients end behind those that are trained and those that a frozen layer writes nevertheless.
    for (const gradients which : {gradients::trained, gradients::written, gradients::none}) {
      place_parameters(nodes, unit, which, stages);
      if (which == gradients::trained) {
        trained_parameters_ = parameters_.size();
        trained_elements_ = elements_;
      }
      if (which != gradients::none) {
        gradient_elements_ = elements_;
      }
    }
    std::size_t buffers = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      graph_node& n = nodes[i];
      n.here = stages == nullptr || stages->owns(i);
      n.first_parameter = n.here ? n.first_parameter : 0;
      n.buffers = n.here ? n.layer->buffers() : std::vector<buffer_description>{};
      n.first_buffer = buffers;
      buffers += n.buffers.size();
      for (buffer_description& b : n.buffers) {
        b.name = gradus::join({n.name, ".", b.name});
        buffer_elements_ += b.size;
      }
    }
  }

  /// As graph::parameters.
  [[nodiscard]] std::span<const parameter_description* const> parameters() const noexcept { return parameters_; }
  /// As graph::trained_parameters.
  [[nodiscard]] std::span<const parameter_description* const> trained_parameters() const noexcept {
    return parameters().first(trained_parameters_);
  }
  /// As graph::parameter_elements.
  [[nodiscard]] index_t elements() const noexcept { return elements_; }
  /// As graph::trained_elements.
  [[nodiscard]] index_t trained_elements() const noexcept { return trained_elements_; }
  /// As graph::gradient_elements.
  [[nodiscard]] index_t gradient_elements() const noexcept { return gradient_elements_; }
  /// As graph::buffer_elements.
  [[nodiscard]] index_t buffer_elements() const noexcept { return buffer_elements_; }

 private:
  /// What becomes of the gradients of a layer's parameters.
  enum class gradients : unsigned char { trained, written, none };

  /// Gives the parameters of some layers their offsets, those of the last layer first.
  void place_parameters(std::span<graph_node> nodes, index_t unit, gradients which, const stage_cuts* stages) {
    for (std::size_t i = nodes.size(); i-- > 0;) {
      const gradients of_layer = !nodes[i].frozen                                     ? gradients::trained
                                 : nodes[i].layer->traits().skips_parameter_gradients ? gradients::none
                                                                                      : gradients::written;
      if (of_layer != which || (stages != nullptr && !stages->owns(i))) {
        continue;
      }
      nodes[i].first_parameter = parameters_.size();
      for (parameter_description& p : nodes[i].parameters) {
        p.offset = elements_;
        elements_ += (p.shape.size() + unit - 1) / unit * unit;
        parameters_.push_back(&p);
      }
    }
  }

  dynamic_array<const parameter_description*> parameters_;
  index_t elements_ = 0;
  std::size_t trained_parameters_ = 0;
  index_t trained_elements_ = 0;
  index_t gradient_elements_ = 0;
  index_t buffer_elements_ = 0;
};

}  // namespace gradus::nn
