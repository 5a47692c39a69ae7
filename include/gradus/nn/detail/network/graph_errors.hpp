// SPDX-License-Identifier: BSL-1.0
//
// Errors of graphs that are built wrongly, and of images that they do not take. Compiled once for all networks.
#pragma once

#include <cstddef>      // std::size_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph_node.hpp"
#include "gradus/nn/plan/memory_plan.hpp"
#include "gradus/nn/plan/parameter_checks.hpp"
#include "gradus/nn/value.hpp"

namespace gradus::nn::detail {

/// Raises configuration_error: a layer has the name of an earlier one of this kind.
[[noreturn]] inline void raise_name_again(std::string_view name, std::string_view kind, error_location where) {
  raise<configuration_error>(
      "network.add", "a new name for the layer", {"'", name, "' again, the name of a ", kind},
      "parameters are named after their layer; nn::sequential (gradus/nn/sequential.hpp) makes names", where);
}

/// @throws shape_error unless the output of a layer has 1 to most_elements elements
inline void require_extents(std::string_view kind, const value_shape& shape) {
  if (shape.channels < 1 || shape.height < 1 || shape.width < 1 || !has_few_elements(shape.batch(1))) {
    raise<shape_error>(kind, {"an output of 1 to ", most_elements, " elements"}, to_string(shape.batch(1)));
  }
}

/// @throws configuration_error when the values of a batch have so many elements that bytes of all of them, their
/// gradients and copies do not fit index_t
void require_memory_of(std::string_view asked_by, std::span<const value_shape> values, index_t batch);

/// @param memory  of each layer
/// @throws configuration_error when bytes of all of them do not fit index_t
void require_layer_memory(std::span<const graph_node> nodes, std::span<const layer_memory> memory, std::size_t streams);

/// @param nodes  all layers; the last one is new, and has the names of its parameters
/// @param added  the new layer
/// @throws configuration_error when a parameter has the name of one of another layer, or the layer would draw the same
///         random numbers as an earlier one
void require_new_names(std::span<const graph_node> nodes, const layer_base& added);

/// "layer 'conv1' on (1, 28, 28)"
[[nodiscard]] std::string layer_on(std::string_view name, std::span<const value_shape> inputs);

/// @param scores  the value that the loss reads
/// @throws configuration_error when no layer reads the output of one
void require_all_used(std::string_view asked_by, std::span<const graph_node> nodes, std::size_t scores);

/// Raises shape_error: images that a network does not take.
/// @param input     of the network
/// @param most      the largest number of images of this call
/// @param compiled  compile_options::max_batch_size
[[noreturn]] void raise_other_images(std::string_view operation, const value_shape& input, const image_extents& images,
                                     index_t most, index_t compiled);

}  // namespace gradus::nn::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE void require_memory_of(std::string_view asked_by, std::span<const value_shape> values, index_t batch) {
  constexpr index_t most = index_t{1} << 55U;
  index_t all = 0;
  for (const value_shape& each : values) {
    if (!has_few_elements(each.batch(batch), most - all)) {
      raise<configuration_error>(asked_by, {"values of at most ", most, " elements in all layers"},
                                 {all, " and ", to_string(each.batch(batch))}, "compile for a smaller max_batch_size");
    }
    all += each.batch(batch).size();
  }
}

GRADUS_INLINE void require_layer_memory(std::span<const graph_node> nodes, std::span<const layer_memory> memory,
                                        std::size_t streams) {
  std::size_t states = 0;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const std::size_t state = memory[i].state;
    if (state > most_bytes - states || memory[i].workspace > most_bytes / streams) {
      raise<configuration_error>(
          {"layer '", nodes[i].name, "' (", nodes[i].layer->kind(), ")"},
          {"states of all layers and a workspace for each of ", streams, " streams of at most ", most_bytes, " bytes"},
          {states, " and ", state, " bytes of state, ", memory[i].workspace, " of workspace"},
          "compile for a smaller max_batch_size");
    }
    states += state;
  }
}

GRADUS_INLINE void require_new_names(std::span<const graph_node> nodes, const layer_base& added) {
  const std::span<const graph_node> earlier = nodes.first(nodes.size() - 1);
  const std::span<const parameter_description> made{nodes.back().parameters};
  const auto require_other = [&](std::string_view name, std::span<const parameter_description> others) {
    for (const parameter_description& other : others) {
      if (other.name == name) {
        raise<configuration_error>(added.kind(), "a name of its own for each parameter", {"'", name, "' again"},
                                   "initial values, files of weights and find_parameter go by the name");
      }
    }
  };
  for (const parameter_description& p : made) {
    for (const graph_node& n : earlier) {
      require_other(p.name, n.parameters);
    }
  }
  for (const graph_node& n : earlier) {
    if (!added.random_name().empty() && n.layer->random_name() == added.random_name()) {
      raise<configuration_error>(added.kind(), "random numbers of its own",
                                 {"those named '", added.random_name(), "' again, which layer '", n.name, "' draws"},
                                 "leave the name of the random numbers out, which is then that of the layer, or give "
                                 "each layer another one");
    }
  }
}

GRADUS_INLINE std::string layer_on(std::string_view name, std::span<const value_shape> inputs) {
  std::string text = gradus::join({"layer '", name, inputs.empty() ? "' on no input" : "' on "});
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    append_text(text, {k == 0 ? "" : ", ", to_string(inputs[k])});
  }
  return text;
}

GRADUS_INLINE void require_all_used(std::string_view asked_by, std::span<const graph_node> nodes, std::size_t scores) {
  for (std::size_t v = 1; v <= nodes.size(); ++v) {
    bool used = v == scores;
    for (std::size_t i = v; i < nodes.size() && !used; ++i) {
      for (const std::size_t input : nodes[i].inputs) {
        used = used || input == v;
      }
    }
    if (!used) {
      raise<configuration_error>(asked_by, "every layer's output to be read by a layer or the loss",
                                 {"the output of layer '", nodes[v - 1].name, "' unused"},
                                 "keep what net.add returns, as in x = net.add(...), and pass it on");
    }
  }
}

GRADUS_INLINE void raise_other_images(std::string_view operation, const value_shape& input, const image_extents& images,
                                      index_t most, index_t compiled) {
  std::string hint;
  if (images != input.batch(images.n)) {
    append_text(hint, {"the second argument of the network's constructor is the shape of an example: {.channels = ",
                       images.c, ", .height = ", images.h, ", .width = ", images.w, "} for these images"});
  } else if (images.n > compiled) {
    append_text(hint, {"compile for batches of this size, net.compile({.max_batch_size = ", images.n,
                       "}), or use nn::predict, which takes any number of images"});
  } else {
    append_text(
        hint, {"the network was compiled with micro_batch_size = ", most, ": nn::predict takes any number of images"});
  }
  raise<shape_error>(
      operation, {"images of (n, ", input.channels, ", ", input.height, ", ", input.width, ") with n at most ", most},
      to_string(images), hint);
}

}  // namespace gradus::nn::detail
#endif
