// SPDX-License-Identifier: BSL-1.0
//
// Saves the weights of a network to a .safetensors file and loads them.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <cstring>      // std::memcpy
#include <functional>   // std::less
#include <map>          // std::map
#include <optional>     // std::optional
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/detail/elements/convert.hpp"
#include "gradus/io/detail/weights/match.hpp"
#include "gradus/io/element_type.hpp"
#include "gradus/io/file_system.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "gradus/io/weight_names.hpp"
#include "gradus/io/weights_report.hpp"
#include "gradus/nn/plan/graph.hpp"

namespace gradus::io {

/// Options of save_weights.
struct save_weights_options {
  /// The type of the numbers in the file: F16, BF16, F32 or F64. Without it, that of the parameters: float for
  /// networks of 16 bits, which train in float.
  std::optional<element_type> type = {};
  /// Entries of "__metadata__". "format" is "pt" unless it is given: names and shapes are those of PyTorch.
  std::map<std::string, std::string, std::less<>> metadata = {};
  /// Gives the tensors of the file other names than the network has: the map with which load_weights reads the file.
  name_map rename = {};
};

/// Options of load_weights.
struct load_weights_options {
  bool strict = true;       ///< false: loads what fits, and reports the rest
  name_patterns only = {};  ///< loads only what has such a name in the network, as in .only = "backbone.*"
  name_map rename = {};     ///< gives tensors of the file the names that the network has
};

namespace detail {

/// The names and shapes of a network's parameters, and of its buffers behind them.
template <class Network>
[[nodiscard]] std::vector<weight_slot> weight_slots(const Network& net, std::string_view asked_by,
                                                    error_location where) {
  if (!net.compiled()) {
    nn::graph::raise_not_compiled(asked_by, where);
  }
  std::vector<weight_slot> slots;
  for (const auto& each : net.parameters()) {
    slots.push_back({each.name(), shape_in_files(each.description())});
  }
  for (const auto& each : net.buffers()) {
    slots.push_back({each.name, {each.elements.size()}});
  }
  return slots;
}

inline void require_real(element_type type, error_location where) {
  if (type != element_type::f16 && type != element_type::bf16 && type != element_type::f32 &&
      type != element_type::f64) {
    raise<configuration_error>("save_weights", "the type F16, BF16, F32 or F64", name_of(type), {}, where);
  }
}

/// The numbers as bytes of another type.
template <class Element>
[[nodiscard]] std::vector<std::byte> bytes_as(element_type type, const std::vector<Element>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * size_of(type));
  with_element_type(type, [&](auto stored) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      stored = rounded_to<decltype(stored)>(numbers[i]);
      std::memcpy(bytes.data() + i * sizeof(stored), &stored, sizeof(stored));
    }
  });
  return bytes;
}

}  // namespace detail

/// Saves the parameters and the buffers (running statistics) of a compiled network to a .safetensors file, which
/// Python's safetensors and load_weights read. A file of that name is replaced when the new one is complete.
///
///   io::save_weights(net, "model.safetensors");
///
/// Names are those of the network: "conv1.weight", "bn1.running_mean". Shapes do not depend on the layout: (o, i, r, s)
/// of convolutions, (o, i) of dense layers, (o) of biases. The network may be on any device. It copies one tensor at a
/// time to the host. In distributed training call it on one rank: all have the same parameters.
///
/// @throws configuration_error if the network is not compiled, options.type is not one of real numbers, or
/// options.rename is a function or does not lead back to a name
/// @throws format_error if the file cannot be written
template <class Network>
void save_weights(const Network& net, const std::string& path, const save_weights_options& options = {},
                  file_system& files = operating_system(), error_location where = error_location::current()) {
  using element = typename Network::parameter_element_type;
  const element_type type = options.type.value_or(element_type_of<element>());
  detail::require_real(type, where);
  std::vector<detail::weight_slot> slots = detail::weight_slots(net, "save_weights", where);
  std::map<std::string, std::size_t, std::less<>> numbers;  // of slots
  std::vector<safetensors_entry> tensors;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    std::string name = options.rename.name_in_file(slots[i].name, where);
    numbers.emplace(name, i);
    tensors.push_back({.name = std::move(name), .type = type, .shape = std::move(slots[i].shape)});
  }
  auto metadata = options.metadata;
  metadata.emplace("format", "pt");
  const safetensors_header header = lay_out_safetensors(std::move(tensors), std::move(metadata), where);
  const auto parameters = net.parameters();
  const auto buffers = net.buffers();
  std::vector<std::byte> bytes;
  const auto fill = [&](const safetensors_entry& tensor) {
    const std::size_t i = numbers.find(tensor.name)->second;
    std::vector<element> values;
    if (i < parameters.size()) {
      values = parameters[i].copy_values();
    } else {
      const auto& view = buffers[i - parameters.size()].elements;
      values.resize(static_cast<std::size_t>(view.size()));
      view.device().copy_to_host(values.data(), view.data(), values.size() * sizeof(element));
    }
    bytes = detail::bytes_as(type, values);
    return std::span<const std::byte>{bytes};
  };
  detail::write_safetensors(path, header, fill, files, where);
}

/// Loads parameters and buffers of a compiled network from a .safetensors file: one of save_weights, or one of PyTorch
/// with the same names. Real numbers of other types are converted.
///
///   io::load_weights(net, "model.safetensors");                                  // all, or an error
///   io::load_weights(net, "model.safetensors", {.only = "backbone.*"});          // a part
///   const auto report = io::load_weights(net, "model.safetensors", {.strict = false});
///   std::cout << report.differences() << '\n';
///
/// Of PyTorch's names, "running_var" is read as "running_variance", and "num_batches_tracked" is ignored: running
/// statistics here have a constant momentum. A shape may lack extents of 1 at its begin. All is checked first: a call
/// that throws changes nothing in the network. In distributed training call it on all ranks, or on rank 0 before the
/// trainer is made, which gives every rank the parameters of rank 0 but not its buffers.
///
/// @return which weights were loaded, and which differ
/// @throws format_error if the file cannot be read; with options.strict also, with all names, if the file lacks a
/// weight, has one that the network does not have, or has one of another shape; without it, if nothing fits
/// @throws configuration_error if the network is not compiled, options.only fits no name, or options.rename gives two
/// tensors the same name
template <class Network>
load_weights_report load_weights(Network& net, const std::string& path, const load_weights_options& options = {},
                                 error_location where = error_location::current()) {
  return at_call(where, [&] {
    using element = typename Network::parameter_element_type;
    const std::vector<detail::weight_slot> slots = detail::weight_slots(net, "load_weights", where);
    const safetensors_file file{path};
    const std::string operation = join({"load_weights '", path, "'"});
    detail::weight_matches matches =
        detail::match_weights(operation, slots, file.tensors(), options.only, options.rename);
    detail::require_loaded(operation, matches.report, options.strict);
    const auto parameters = net.parameters();
    const auto buffers = net.buffers();
    std::vector<element> values;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (matches.tensors[i] == nullptr) {
        continue;
      }
      values.resize(safetensors_file::elements_of(*matches.tensors[i]));
      file.read(*matches.tensors[i], std::span<element>{values});
      if (i < parameters.size()) {
        parameters[i].assign_values(values);
      } else {
        const auto& view = buffers[i - parameters.size()].elements;
        view.device().copy_from_host(view.data(), values.data(), values.size() * sizeof(element));
      }
    }
    return std::move(matches.report);
  });
}

}  // namespace gradus::io
