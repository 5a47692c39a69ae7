// SPDX-License-Identifier: BSL-1.0
//
// Saves the weights of a network to a .safetensors file and loads them.
#pragma once

#include <algorithm>    // std::mismatch
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
#include "gradus/core/file_system.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/detail/elements/convert.hpp"
#include "gradus/io/detail/weights/match.hpp"
#include "gradus/io/element_type.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/safetensors_file.hpp"
#include "gradus/io/weight_names.hpp"
#include "gradus/io/weights_report.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph.hpp"

namespace gradus::io {

/// Options of save_weights.
struct save_weights_options {
  /// The type of the numbers in the file: F16, BF16, F32 or F64. Without it, that of the parameters: float for
  /// networks of 16 bits, which train in float. As in PyTorch, a number beyond the range of the type becomes infinite:
  /// one above 65504 in F16.
  std::optional<element_type> type = {};
  /// Entries of "__metadata__". "format" is "pt" unless it is given: names and shapes are those of PyTorch.
  std::map<std::string, std::string, std::less<>> metadata = {};
  /// Gives the tensors of the file other names than the network has: the map with which load_weights reads the file.
  name_map rename = {};
  /// The names of the classes in the order of the labels, such as data::class_folders::class_names(). They become the
  /// entry "class_names" of "__metadata__", one a line.
  std::vector<std::string> class_names = {};
};

/// Options of load_weights.
struct load_weights_options {
  bool strict = true;       ///< false: loads what fits, and reports the rest
  name_patterns only = {};  ///< loads only what has such a name in the network, as in .only = "backbone.*"
  name_map rename = {};     ///< gives tensors of the file the names that the network has
  /// The names of the classes of this program, in the order of the labels: must be those of the file, if it has any.
  std::vector<std::string> class_names = {};
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

/// The same of the layers that other ranks run, where the network is cut into stages.
[[nodiscard]] inline std::vector<weight_slot> weight_slots_elsewhere(const nn::graph& graph) {
  std::vector<weight_slot> slots;
  for (const nn::graph::node& n : graph.nodes()) {
    if (!graph.in_stages() || n.here) {
      continue;
    }
    for (const nn::parameter_description& each : n.parameters) {
      slots.push_back({each.name, shape_in_files(each)});
    }
    for (const nn::buffer_description& each : n.layer->buffers()) {
      slots.push_back({join({n.name, ".", each.name}), {each.size}});
    }
  }
  return slots;
}

/// The names of classes, one a line.
[[nodiscard]] inline std::string class_names_text(const std::vector<std::string>& names, error_location where) {
  std::string text;
  for (const std::string& name : names) {
    if (name.empty() || name.find('\n') != std::string::npos) {
      raise<configuration_error>("save_weights", "names of classes of one line each", {"'", name, "'"}, {}, where);
    }
    append_text(text, {text.empty() ? "" : "\n", name});
  }
  return text;
}

/// The inverse of class_names_text.
[[nodiscard]] inline std::vector<std::string> class_names_of(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    names.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return names;
}

/// @throws format_error if a program has other classes than a file
inline void require_same_classes(std::string_view operation, const std::vector<std::string>& in_file,
                                 const std::vector<std::string>& given) {
  if (in_file.empty() || given.empty() || in_file == given) {
    return;
  }
  if (in_file.size() != given.size()) {
    raise<format_error>(operation, {"weights of ", given.size(), " classes"}, {in_file.size(), " classes"},
                        "give data::class_folders the classes of the training: {.classes = report.class_names}");
  }
  const std::size_t first =
      static_cast<std::size_t>(std::mismatch(in_file.begin(), in_file.end(), given.begin()).first - in_file.begin());
  raise<format_error>(operation, {"weights whose label ", first, " means '", given[first], "'"},
                      {"'", in_file[first], "'"},
                      "give data::class_folders the classes of the training: {.classes = report.class_names}");
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

namespace detail {

/// The name in the file with PyTorch's "running_var" in place of "running_variance", unless load_weights with the same
/// map would not find it.
[[nodiscard]] inline std::string name_of_pytorch(std::string in_file, std::string_view in_network,
                                                 const name_map& rename) {
  constexpr std::string_view ours{".running_variance"};
  constexpr std::size_t more = std::string_view{"iance"}.size();
  if (in_file.ends_with(ours) && in_network.ends_with(ours)) {
    std::string theirs = in_file.substr(0, in_file.size() - more);
    if (const std::string back = rename(theirs);
        back == in_network || back == in_network.substr(0, in_network.size() - more)) {
      return theirs;
    }
  }
  return in_file;
}

}  // namespace detail

/// The weights of a network as save_weights writes them, for programs that get the values of some from elsewhere. Of a
/// network in stages it has those of all ranks.
template <class Network>
class weights_in_file {
 public:
  /// The element type of the parameters.
  using element = typename Network::parameter_element_type;

  /// @param net  compiled; it outlives this object
  /// @throws configuration_error as save_weights does
  weights_in_file(const Network& net, const save_weights_options& options,
                  error_location where = error_location::current())
      : net_{&net}, type_{options.type.value_or(element_type_of<element>())} {
    detail::require_real(type_, where);
    slots_ = detail::weight_slots(net, "save_weights", where);
    own_ = slots_.size();
    for (detail::weight_slot& each : detail::weight_slots_elsewhere(net.structure())) {
      slots_.push_back(std::move(each));
    }
    std::vector<safetensors_entry> tensors;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      std::string name =
          detail::name_of_pytorch(options.rename.name_in_file(slots_[i].name, where), slots_[i].name, options.rename);
      numbers_.emplace(name, i);
      tensors.push_back({.name = std::move(name), .type = type_, .shape = slots_[i].shape});
    }
    auto metadata = options.metadata;
    metadata.emplace("format", "pt");
    if (!options.class_names.empty()) {
      metadata["class_names"] = detail::class_names_text(options.class_names, where);
    }
    header_ = lay_out_safetensors(std::move(tensors), std::move(metadata), where);
  }

  /// The tensors of the file; the same on all ranks.
  [[nodiscard]] const safetensors_header& header() const noexcept { return header_; }
  /// The name in the network of a tensor.
  [[nodiscard]] const std::string& name_of(const safetensors_entry& tensor) const {
    return slots_[number_of(tensor)].name;
  }
  /// Whether all weights are this rank's.
  [[nodiscard]] bool complete() const noexcept { return own_ == slots_.size(); }

  /// Copies the values of a tensor to the host, if it is one of this rank; otherwise they become zeros.
  void copy(const safetensors_entry& tensor, std::vector<element>& values) const {
    const std::size_t i = number_of(tensor);
    const auto parameters = net_->parameters();
    if (i < parameters.size()) {
      values = parameters[i].copy_values();
      return;
    }
    index_t count = 1;
    for (const index_t extent : slots_[i].shape) {
      count *= extent;
    }
    values.assign(static_cast<std::size_t>(count), element{});
    if (i < own_) {
      const auto& view = net_->buffers()[i - parameters.size()].elements;
      view.device().copy_to_host(values.data(), view.data(), values.size() * sizeof(element));
    }
  }

  /// Writes the file. A file of that name is replaced when the new one is complete.
  /// @param read  read(tensor, values) gives the values of a tensor, in the order of header().tensors
  /// @throws format_error if the file cannot be written
  template <class Read>
  void write(const std::string& path, const Read& read, file_system& files = operating_system(),
             error_location where = error_location::current()) const {
    std::vector<element> values;
    std::vector<std::byte> bytes;
    const auto fill = [&, this](const safetensors_entry& tensor) {
      read(tensor, values);
      bytes = detail::bytes_as(type_, values);
      return std::span<const std::byte>{bytes};
    };
    detail::write_safetensors(path, header_, fill, files, where);
  }

 private:
  [[nodiscard]] std::size_t number_of(const safetensors_entry& tensor) const {
    return numbers_.find(tensor.name)->second;
  }

  const Network* net_;
  element_type type_;
  std::vector<detail::weight_slot> slots_;  // of parameters, then of buffers, then those of other ranks
  std::size_t own_ = 0;
  std::map<std::string, std::size_t, std::less<>> numbers_;  // of slots, by the names in the file
  safetensors_header header_;
};

/// Saves the parameters and the buffers (running statistics) of a compiled network to a .safetensors file, which
/// Python's safetensors and load_weights read. A file of that name is replaced when the new one is complete.
///
///   io::save_weights(net, "model.safetensors");
///
/// Names are those of the network: "conv1.weight", "bn1.running_mean", and "bn1.running_var" for "running_variance", as
/// load_state_dict of PyTorch has it. Shapes do not depend on the layout: (o, i, r, s)
/// of convolutions, (o, i) of dense layers, (o) of biases. The network may be on any device. It copies one tensor at a
/// time to the host. In distributed training call it on one rank, as all have the same parameters, or call
/// train::save_weights on all.
///
/// @throws configuration_error if the network is not compiled or other ranks have some of its layers, options.type is
/// not one of real numbers, or options.rename is a function or does not lead back to a name
/// @throws format_error if the file cannot be written
template <class Network>
void save_weights(const Network& net, const std::string& path, const save_weights_options& options = {},
                  file_system& files = operating_system(), error_location where = error_location::current()) {
  const weights_in_file<Network> file{net, options, where};
  if (!file.complete()) {
    raise<configuration_error>("save_weights", "a network whose layers are all on this rank",
                               {"one in ", net.structure().stages().stages(), " stages, of which this rank has ",
                                net.structure().stages().own.size()},
                               "call train::save_weights(trainer, path) on all ranks", where);
  }
  file.write(
      path, [&](const safetensors_entry& tensor, auto& values) { file.copy(tensor, values); }, files, where);
}

/// Loads parameters and buffers of a compiled network from a .safetensors file: one of save_weights, or one of PyTorch
/// with the same names. Real numbers of other types are converted; as in PyTorch, those beyond the range of the
/// parameters become infinite (1e300 of F64 in float).
///
///   io::load_weights(net, "model.safetensors");                                  // all, or an error
///   io::load_weights(net, "model.safetensors", {.only = "backbone.*"});          // a part
///   const auto report = io::load_weights(net, "model.safetensors", {.strict = false});
///   std::cout << report.differences() << '\n';
///
/// Of a checkpoint of train::checkpoints it reads the parameters and buffers; the state of the trainer and of the
/// update rule is left out.
///
/// Of PyTorch's names, "running_var" is read as "running_variance", and "num_batches_tracked" is ignored: running
/// statistics here have a constant momentum. A shape may lack extents of 1 at its begin. All is checked first: a call
/// that throws changes nothing in the network. In distributed training call it on all ranks, or on rank 0 before the
/// trainer is made, which gives every rank the parameters of rank 0 but not its buffers. A rank of a pipeline takes the
/// weights of its layers; those of layers on other ranks are left out, and out of the report.
///
/// Labels mean the same as in the training if the names of the classes are compared:
///
///   io::save_weights(net, "model.safetensors", {.class_names = train.class_names()});
///   io::load_weights(net, "model.safetensors", {.class_names = test.class_names()});
///
/// @return which weights were loaded, and which differ
/// @throws format_error if the file cannot be read or has other names of classes than options; with options.strict
/// also, with all names, if the file lacks a weight, has one that the network does not have, or has one of another
/// shape; without it, if nothing fits
/// @throws configuration_error if the network is not compiled, options.only fits no name, or options.rename gives two
/// tensors the same name
template <class Network>
load_weights_report load_weights(Network& net, const std::string& path, const load_weights_options& options = {},
                                 error_location where = error_location::current()) {
  return at_call(where, [&] {
    using element = typename Network::parameter_element_type;
    const std::vector<detail::weight_slot> slots = detail::weight_slots(net, "load_weights", where);
    const std::vector<detail::weight_slot> elsewhere = detail::weight_slots_elsewhere(net.structure());
    const safetensors_file file{path};
    const std::string operation = join({"load_weights '", path, "'"});
    detail::weight_matches matches =
        detail::match_weights(operation, slots, file.tensors(), options.only, options.rename, elsewhere,
                              file.metadata(checkpoint_key) != nullptr);
    detail::require_loaded(operation, matches.report, options.strict, !elsewhere.empty());
    if (const std::string* const names = file.metadata("class_names")) {
      matches.report.class_names = detail::class_names_of(*names);
      detail::require_same_classes(operation, matches.report.class_names, options.class_names);
    }
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
