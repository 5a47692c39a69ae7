// SPDX-License-Identifier: BSL-1.0
//
// The arrays of a training's state: what there is, which rank has which part, and where it is on this rank.
#pragma once

#include <algorithm>         // std::max
#include <array>             // std::array
#include <cstddef>           // std::byte, std::size_t
#include <cstdint>           // std::uint64_t
#include <initializer_list>  // std::initializer_list
#include <memory>            // std::addressof
#include <span>              // std::span
#include <string>            // std::string
#include <string_view>       // std::string_view
#include <type_traits>       // std::remove_reference_t
#include <utility>           // std::move

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/exact_sum.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/layout/layouts.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/parameter.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/optim/parameter_update.hpp"
#include "gradus/parallel/strategy.hpp"
#include "gradus/train/detail/reproducible/worker_epoch.hpp"
#include "gradus/train/detail/state/access.hpp"
#include "gradus/train/detail/trainer/loop.hpp"
#include "gradus/train/detail/trainer/trainer_base.hpp"
#include "gradus/train/optimizer_step.hpp"
#include "gradus/train/training_state.hpp"

namespace gradus::train::detail {

/// Makes the arrays of a training_state.
struct state_access {
  /// The shape of a tensor in memory.
  struct form {
    std::initializer_list<index_t> shape;  // in files
    extents<4> axes{1, 1, 1, 1};
    std::array<index_t, 4> strides{};
  };

  static void start(training_state& state, int rank, int ranks) {
    state.rank_ = rank;
    state.ranks_ = ranks;
    state.divided_bytes_ = 0;
    state.arrays_.clear();
    dynamic_array<state_property> properties;  // of another training only those of the program
    for (state_property& each : state.properties_) {
      if (!each.name.starts_with("callback ") && each.name != "loss scale" && each.name != "virtual workers") {
        properties.push_back(std::move(each));
      }
    }
    state.properties_ = std::move(properties);
  }

  static void add(training_state& state, std::string name, std::string_view element, index_t element_bytes,
                  const form& form, const array_origin& origin) {
    stored_array& one = state.arrays_.emplace_back();
    one.name = std::move(name);
    one.element = element;
    one.element_bytes = element_bytes;
    for (const index_t each : form.shape) {
      one.shape.push_back(each);
    }
    one.axes = form.axes;
    one.strides = form.strides;
    const std::array<index_t, 4> in_order = dense_strides<row_major, 4>(form.axes);
    one.in_order = true;
    for (int axis = 0; axis < 4; ++axis) {
      const auto k = static_cast<std::size_t>(axis);
      one.in_order = one.in_order && (form.axes[axis] == 1 || form.strides[k] == in_order[k]);
    }
    // Where o is the slowest axis in memory too, rows are consecutive in both orders.
    const index_t elements = form.axes.size();
    const bool rows = elements > 0 && form.strides[0] == in_order[0];
    one.origin = origin;
    one.origin.rows = rows ? form.axes[0] : 1;
    one.origin.row = rows ? elements / form.axes[0] : elements;
    if (origin.owner < 0) {
      one.origin.first_byte = state.divided_bytes_;
      state.divided_bytes_ += elements * element_bytes;
    }
  }

  /// Numbers in a row.
  static void add(training_state& state, std::string name, std::string_view element, index_t element_bytes,
                  index_t count, const array_origin& origin) {
    add(state, std::move(name), element, element_bytes,
        form{.shape = {count}, .axes = {count, 1, 1, 1}, .strides = {1, 1, 1, 1}}, origin);
  }

  /// Takes memory for what this rank has. @param flat_bytes  of each flat buffer of servers, or 0
  static void finish(training_state& state, std::size_t flat_bytes) {
    std::size_t words = words_of(flat_bytes) * flat_buffers(state, flat_bytes);
    for (std::size_t i = 0; i < state.arrays_.size(); ++i) {
      state.arrays_[i].held = state.range_of(i, state.rank_);
      words += is_flat(state, i, flat_bytes) ? 0 : words_of(held_bytes(state, i));
    }
    state.memory_ = dynamic_array<std::uint64_t>(words);
    std::size_t next = words_of(flat_bytes) * flat_buffers(state, flat_bytes);
    for (std::size_t i = 0; i < state.arrays_.size(); ++i) {
      stored_array& one = state.arrays_[i];
      if (is_flat(state, i, flat_bytes)) {
        one.data = flat(state, one.origin.buffer, flat_bytes) + one.origin.offset * one.element_bytes;
      } else {
        one.data = reinterpret_cast<const std::byte*>(state.memory_.data() + next);
        next += words_of(held_bytes(state, i));
      }
      if (one.origin.rows == one.axes[0]) {
        one.axes = {(one.held.end - one.held.begin) / one.origin.row, one.axes[1], one.axes[2], one.axes[3]};
      }
    }
  }

  /// A flat buffer of the servers in the memory of the state.
  [[nodiscard]] static std::byte* flat(training_state& state, std::size_t buffer, std::size_t flat_bytes) noexcept {
    return reinterpret_cast<std::byte*>(state.memory_.data() + words_of(flat_bytes) * buffer);
  }
  [[nodiscard]] static std::size_t flat_buffers(const training_state& state, std::size_t flat_bytes) noexcept {
    std::size_t count = 0;
    for (std::size_t i = 0; i < state.arrays_.size(); ++i) {
      if (is_flat(state, i, flat_bytes) && state.arrays_[i].origin.buffer >= count) {
        count = state.arrays_[i].origin.buffer + 1;
      }
    }
    return count;
  }
  /// Whether an array is a part of a flat buffer of the servers.
  [[nodiscard]] static bool is_flat(const training_state& state, std::size_t i, std::size_t flat_bytes) noexcept {
    const array_origin& origin = state.arrays_[i].origin;
    return flat_bytes != 0 && (origin.kind == state_kind::value || origin.kind == state_kind::rule) &&
           origin.owner == state.rank_;
  }
  [[nodiscard]] static std::size_t held_bytes(const training_state& state, std::size_t i) noexcept {
    const stored_array& one = state.arrays_[i];
    return static_cast<std::size_t>((one.held.end - one.held.begin) * one.element_bytes);
  }
  [[nodiscard]] static std::size_t words_of(std::size_t bytes) noexcept { return (bytes + 7) / 8; }

  [[nodiscard]] static dynamic_array<double>& sums_of(training_state& state) noexcept { return state.sums_; }
  [[nodiscard]] static std::uint64_t& made_for(training_state& state) noexcept { return state.made_for_; }
};

/// The name that an array has of another rank.
[[nodiscard]] inline std::string name_of_copy(std::string_view name, int rank) {
  return rank == 0 ? std::string{name} : gradus::join({"trainer.rank", rank, ".", name});
}

/// The beginning of the names of what a strategy keeps.
inline constexpr std::string_view strategy_prefix = "strategy.";
/// The name that such an array has of a rank: "trainer.strategy.residual", "trainer.rank1.strategy.residual".
[[nodiscard]] inline std::string name_of_strategy_copy(std::string_view name, int rank) {
  return rank == 0 ? gradus::join({"trainer.", name}) : name_of_copy(name, rank);
}

/// The tensors of a parameter.
template <class Layout>
void add_parameter(training_state& state, std::string name, const nn::parameter_description& described,
                   std::string_view element, index_t element_bytes, const array_origin& origin) {
  const extents<4> axes = described.shape;
  const std::array<index_t, 4> strides = dense_strides<Layout, 4>(axes);
  const index_t o = axes[0];
  const index_t rest = axes[1] * axes[2] * axes[3];
  if (described.rank == 1) {
    state_access::add(state, std::move(name), element, element_bytes,
                      {.shape = {o * rest}, .axes = axes, .strides = strides}, origin);
  } else if (described.rank == 2) {
    state_access::add(state, std::move(name), element, element_bytes,
                      {.shape = {o, rest}, .axes = axes, .strides = strides}, origin);
  } else {
    state_access::add(state, std::move(name), element, element_bytes,
                      {.shape = {o, axes[1], axes[2], axes[3]}, .axes = axes, .strides = strides}, origin);
  }
}

/// A parameter of a network, on all ranks.
struct state_parameter {
  const nn::parameter_description* description = nullptr;
  bool trained = true;
  bool here = true;  ///< this rank has it
  int stage = -1;    ///< of a network in stages: the first rank that has it
};

/// All parameters of a network; of one in stages also those of other ranks.
template <class Element>
[[nodiscard]] dynamic_array<state_parameter> parameters_of_state(const nn::graph& graph,
                                                                 const parallel::strategy<Element>& strategy) {
  dynamic_array<state_parameter> all;
  if (!graph.in_stages()) {
    for (std::size_t k = 0; k < graph.parameters().size(); ++k) {
      all.push_back({.description = graph.parameters()[k], .trained = k < graph.trained_parameters().size()});
    }
    return all;
  }
  for (std::size_t i = graph.nodes().size(); i-- > 0;) {
    const nn::graph::node& n = graph.nodes()[i];
    for (const nn::parameter_description& p : n.parameters) {
      all.push_back({.description = &p,
                     .trained = !n.frozen,
                     .here = n.here,
                     .stage = strategy.rank_of_stage(graph.stages().stage_of(i))});
    }
  }
  return all;
}

/// The arrays of the update rule for one rank's copy.
template <class Network>
void plan_rule(const training_parts<Network>& training, training_state& state,
               const dynamic_array<std::string>& of_parameters, int copy_of, int owner) {
  using element = typename training_parts<Network>::element;
  const bool on_servers = training.on_servers();
  const dynamic_array<state_parameter> all =
      parameters_of_state(training.network->structure(), training.end->strategy());
  const auto trained = [&](std::string_view name, std::string_view type, index_t element_bytes, std::byte* memory,
                           std::size_t number) {
    for (const state_parameter& each : all) {
      if (!each.trained) {
        continue;
      }
      const nn::parameter_description& p = *each.description;
      add_parameter<typename Network::layout_type>(
          state, name_of_copy(gradus::join({"optimizer.", name, ".", p.name}), copy_of), p, type, element_bytes,
          {.kind = state_kind::rule,
           .copy_of = copy_of,
           .memory = memory == nullptr || !each.here ? nullptr : memory + p.offset * element_bytes,
           .buffer = number,
           .offset = p.offset,
           .owner = each.stage >= 0 ? each.stage : owner});
    }
  };
  if (on_servers) {
    for (std::size_t k = 0; k < of_parameters.size(); ++k) {
      trained(of_parameters[k], element_name<element>, sizeof(element), nullptr, k + 1);
    }
    return;
  }
  for (const optim::state_buffer& each : training.end->rule().buffers()) {
    if (each.elements == 0 && !training.network->structure().in_stages()) {
      continue;
    }
    // A stage without parameters knows those of others.
    const auto element_bytes =
        each.elements == 0 ? index_t{sizeof(element)} : static_cast<index_t>(each.bytes.size()) / each.elements;
    const std::string_view type =
        each.element.empty() && element_bytes == sizeof(element) ? element_name<element> : each.element;
    if (type.empty()) {
      raise<configuration_error>("train::capture",
                                 {"elements of a known type in the buffer '", each.name, "' of the rule"},
                                 {element_bytes, " bytes each"}, "set state_buffer::element");
    }
    bool of_each = false;  // parameter
    for (const std::string& name : of_parameters) {
      of_each = of_each || name == each.name;
    }
    if (of_each) {
      trained(each.name, type, element_bytes, each.bytes.data(), 0);
    } else {
      state_access::add(
          state, name_of_copy(gradus::join({"optimizer.", each.name}), copy_of), type, element_bytes, each.elements,
          {.kind = state_kind::rule_number, .copy_of = copy_of, .memory = each.bytes.data(), .owner = owner});
    }
  }
}

/// What the strategy keeps. Names begin with "trainer.": a training with another strategy needs none of it.
template <class Network>
void plan_strategy(const training_parts<Network>& training, training_state& state) {
  auto& strategy = training.end->strategy();
  const std::span<const parallel::strategy_buffer> buffers = strategy.buffers();
  for (std::size_t number = 0; number < buffers.size(); ++number) {
    const parallel::strategy_buffer& each = buffers[number];
    const optim::state_buffer& memory = each.memory;
    const index_t element_bytes = static_cast<index_t>(memory.bytes.size()) / std::max<index_t>(memory.elements, 1);
    for (int copy = 0; copy < (each.of_rank ? training.group->size() : 1); ++copy) {
      const auto name = [&](std::string_view of) {
        return name_of_strategy_copy(gradus::join({strategy_prefix, memory.name, of.empty() ? "" : ".", of}), copy);
      };
      const array_origin origin{.kind = state_kind::strategy,
                                .copy_of = copy,
                                .memory = memory.bytes.data(),
                                .buffer = number,
                                .owner = each.of_rank ? copy : -1};
      if (!each.of_parameters) {
        state_access::add(state, name({}), memory.element, element_bytes, memory.elements, origin);
        continue;
      }
      for (const nn::parameter_description* const p : training.network->structure().trained_parameters()) {
        array_origin of_this = origin;
        of_this.memory += p->offset * element_bytes;
        of_this.offset = p->offset;
        add_parameter<typename Network::layout_type>(state, name(p->name), *p, memory.element, element_bytes, of_this);
      }
    }
  }
}

/// The buffers of layers: those of the first rank that has them by their names, and all of each other rank.
template <class Network>
void plan_buffers(const training_parts<Network>& training, training_state& state) {
  using element = typename training_parts<Network>::element;
  constexpr std::string_view type = element_name<element>;
  constexpr index_t element_bytes = sizeof(element);
  Network& network = *training.network;
  const nn::graph& graph = network.structure();
  const auto& strategy = training.end->strategy();
  const int ranks = training.group->size();
  auto own = network.buffers().begin();
  dynamic_array<index_t> elements(static_cast<std::size_t>(ranks));  // of each rank
  int ranks_of_network = 1;                                          // ranks 0 to this one have each layer once
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const nn::graph::node& n = graph.nodes()[i];
    const int owner = graph.in_stages() ? strategy.rank_of_stage(graph.stages().stage_of(i)) : 0;
    ranks_of_network = owner < ranks_of_network ? ranks_of_network : owner + 1;
    for (const nn::buffer_description& each : n.layer->buffers()) {
      state_access::add(
          state, gradus::join({n.name, ".", each.name}), type, element_bytes, each.size,
          {.kind = state_kind::buffer,
           .memory = n.here ? reinterpret_cast<std::byte*>(std::addressof(*own->elements.data())) : nullptr,
           .owner = owner});
      own += n.here ? 1 : 0;
      elements[static_cast<std::size_t>(owner)] += each.size;
    }
  }
  for (int copy = ranks_of_network; copy < ranks; ++copy) {
    if (const index_t count = elements[static_cast<std::size_t>(copy % ranks_of_network)]; count != 0) {
      state_access::add(state, name_of_copy("buffers", copy), type, element_bytes, count,
                        {.kind = state_kind::buffers_of_rank,
                         .copy_of = copy,
                         .memory = reinterpret_cast<std::byte*>(network.buffer_values().data()),
                         .owner = copy});
    }
  }
}

/// Lists all arrays. The same on all ranks.
template <class Network>
void plan_state(const training_parts<Network>& training, training_state& state) {
  using element = typename training_parts<Network>::element;
  using layout = typename Network::layout_type;
  constexpr std::string_view type = element_name<element>;
  constexpr index_t element_bytes = sizeof(element);
  Network& network = *training.network;
  const nn::graph& graph = network.structure();
  const int ranks = training.group->size();
  const bool differ = training.end->strategy().ranks_differ() && ranks > 1;
  const bool on_servers = training.on_servers();
  const dynamic_array<std::string> of_parameters = optim::buffers_of_parameters(training.end->rule());
  state_access::start(state, training.group->rank(), ranks);
  auto* const values = reinterpret_cast<std::byte*>(network.values().data());
  for (int copy = 0; copy < (differ ? ranks : 1); ++copy) {
    const int owner = differ ? copy : -1;
    for (const state_parameter& each : parameters_of_state(graph, training.end->strategy())) {
      const nn::parameter_description& p = *each.description;
      if (copy == 0 || each.trained) {
        add_parameter<layout>(state, name_of_copy(p.name, copy), p, type, element_bytes,
                              {.kind = state_kind::value,
                               .copy_of = copy,
                               .memory = each.here ? values + p.offset * element_bytes : nullptr,
                               .offset = p.offset,
                               .owner = each.stage >= 0 ? each.stage
                                        : !each.trained ? -1
                                        : on_servers    ? 0
                                                        : owner});
      }
    }
    plan_rule(training, state, of_parameters, copy, on_servers ? 0 : owner);
  }
  plan_strategy(training, state);
  plan_buffers(training, state);
  dynamic_array<double>& sums = state_access::sums_of(state);
  const std::size_t numbers =
      training.workers == nullptr ? 0 : exact_sum::numbers + static_cast<std::size_t>(training.workers->all);
  sums = dynamic_array<double>(static_cast<std::size_t>(ranks) * 4 + numbers);
  state_access::add(state, "trainer.sums", element_name<double>, sizeof(double),
                    {.shape = {ranks, 4}, .axes = {ranks, 4, 1, 1}, .strides = {4, 1, 1, 1}},
                    {.kind = state_kind::sums, .memory = reinterpret_cast<std::byte*>(sums.data()), .owner = 0});
  if (training.workers == nullptr) {
    return;
  }
  state_access::add(state, "trainer.workers", element_name<double>, sizeof(double), static_cast<index_t>(numbers),
                    {.kind = state_kind::worker_numbers,
                     .memory = reinterpret_cast<std::byte*>(sums.data() + ranks * 4),
                     .owner = 0});
  for (int worker = 0; worker < training.workers->all && graph.buffer_elements() != 0; ++worker) {
    state_access::add(
        state, gradus::join({"trainer.worker", worker, ".buffers"}), type, element_bytes, graph.buffer_elements(),
        {.kind = state_kind::worker_buffers, .copy_of = worker, .owner = worker / training.workers_of_rank()});
  }
}

}  // namespace gradus::train::detail
