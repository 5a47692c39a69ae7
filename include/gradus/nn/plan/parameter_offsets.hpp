// SPDX-License-Identifier: BSL-1.0
//
// The offsets of the parameters of all layers in flat buffers, and which of them have gradients.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <vector>   // std::vector

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/nn/plan/stage_cuts.hpp"

namespace gradus::nn {

/// What becomes of the gradients of a layer's parameters: they are trained, or its layer is frozen and writes them
/// nevertheless, or it does not.
enum class parameter_gradients : unsigned char { trained, written, none };

/// What becomes of the gradients of a layer's parameters.
[[nodiscard]] inline parameter_gradients gradients_of(const graph_node& n) {
  return !n.frozen                                     ? parameter_gradients::trained
         : n.layer->traits().skips_parameter_gradients ? parameter_gradients::none
                                                       : parameter_gradients::written;
}

/// The elements that a parameter takes in a flat buffer.
[[nodiscard]] inline index_t padded_elements(const parameter_description& p, std::size_t element_bytes) {
  const auto unit = static_cast<index_t>(memory_plan::alignment / element_bytes);
  return (p.shape.size() + unit - 1) / unit * unit;
}

/// The elements of flat buffers that layers take; those of several layers are sums.
struct parameter_counts {
  index_t elements = 0;   ///< as graph::parameter_elements
  index_t trained = 0;    ///< as graph::trained_elements
  index_t gradients = 0;  ///< as graph::gradient_elements
  index_t buffers = 0;    ///< as graph::buffer_elements

  /// Adds those of another layer.
  parameter_counts& operator+=(const parameter_counts& other) noexcept;
};

/// What a layer takes of the flat buffers on the rank that runs it.
[[nodiscard]] parameter_counts parameter_counts_of(const graph_node& n, std::size_t element_bytes);

/// The order of all parameters in a flat buffer: those of the last layer first, as backward completes their gradients.
/// Parameters of frozen layers come after all others, without gradients. Buffers of layers have a flat buffer, too.
class parameter_offsets {
 public:
  /// Gives each parameter its offset, a multiple of memory_plan::alignment, and each buffer its name. Replaces what an
  /// earlier call has assigned.
  /// @param nodes   outlive this object and keep their addresses
  /// @param stages  those of a rank that runs some layers only: the others get no offsets; null: all layers run
  void assign(std::span<graph_node> nodes, std::size_t element_bytes, const stage_cuts* stages = nullptr);

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
  /// The elements of a flat buffer with those of another parameter or buffer.
  /// @throws configuration_error when their bytes, and those of several copies, do not fit index_t
  [[nodiscard]] static index_t sum_of(const graph_node& n, index_t before, index_t added);

  /// Gives the parameters of some layers their offsets, those of the last layer first.
  void place_parameters(std::span<graph_node> nodes, std::size_t element_bytes, parameter_gradients which,
                        const stage_cuts* stages);

  dynamic_array<const parameter_description*> parameters_;
  index_t elements_ = 0;
  std::size_t trained_parameters_ = 0;
  index_t trained_elements_ = 0;
  index_t gradient_elements_ = 0;
  index_t buffer_elements_ = 0;
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn {

GRADUS_INLINE parameter_counts& parameter_counts::operator+=(const parameter_counts& other) noexcept {
  elements += other.elements;
  trained += other.trained;
  gradients += other.gradients;
  buffers += other.buffers;
  return *this;
}

GRADUS_INLINE parameter_counts parameter_counts_of(const graph_node& n, std::size_t element_bytes) {
  parameter_counts counts;
  for (const parameter_description& p : n.parameters) {
    counts.elements += padded_elements(p, element_bytes);
  }
  const parameter_gradients which = gradients_of(n);
  counts.trained = which == parameter_gradients::trained ? counts.elements : 0;
  counts.gradients = which != parameter_gradients::none ? counts.elements : 0;
  for (const buffer_description& b : n.layer->buffers()) {
    counts.buffers += b.size;
  }
  return counts;
}

GRADUS_INLINE void parameter_offsets::assign(std::span<graph_node> nodes, std::size_t element_bytes,
                                             const stage_cuts* stages) {
  *this = {};
  // Gradients end behind those that are trained and those that a frozen layer writes nevertheless.
  for (const parameter_gradients which :
       {parameter_gradients::trained, parameter_gradients::written, parameter_gradients::none}) {
    place_parameters(nodes, element_bytes, which, stages);
    if (which == parameter_gradients::trained) {
      trained_parameters_ = parameters_.size();
      trained_elements_ = elements_;
    }
    if (which != parameter_gradients::none) {
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
      buffer_elements_ = sum_of(n, buffer_elements_, b.size);
    }
  }
}

GRADUS_INLINE index_t parameter_offsets::sum_of(const graph_node& n, index_t before, index_t added) {
  constexpr index_t most = index_t{1} << 55U;
  if (added < 0 || added > most - before) {
    raise<configuration_error>({"layer '", n.name, "' (", n.layer->kind(), ")"},
                               {"parameters and buffers of 0 to ", most, " elements in all layers"},
                               {before, " and ", added});
  }
  return before + added;
}

GRADUS_INLINE void parameter_offsets::place_parameters(std::span<graph_node> nodes, std::size_t element_bytes,
                                                       parameter_gradients which, const stage_cuts* stages) {
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (gradients_of(nodes[i]) != which || (stages != nullptr && !stages->owns(i))) {
      continue;
    }
    nodes[i].first_parameter = parameters_.size();
    for (parameter_description& p : nodes[i].parameters) {
      p.offset = elements_;
      elements_ = sum_of(nodes[i], elements_, padded_elements(p, element_bytes));
      parameters_.push_back(&p);
    }
  }
}

}  // namespace gradus::nn
#endif
