// SPDX-License-Identifier: BSL-1.0
//
// The arrays of a training's state: what there is, which rank has which part, and where it is on this rank.
#pragma once

#include <array>        // std::array
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <memory>       // std::addressof
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/exact_sum.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/element_type.hpp"
#include "gradus/io/stored_array.hpp"
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
  static void start(training_state& state, int rank, int ranks) {
    state.rank_ = rank;
    state.ranks_ = ranks;
    state.arrays_.clear();
    state.origins_.clear();
    dynamic_array<state_property> properties;  // of another training only those of the program
    for (state_property& each : state.properties_) {
      if (!each.name.starts_with("callback ") && each.name != "loss scale" && each.name != "virtual workers") {
        properties.push_back(std::move(each));
      }
    }
    state.properties_ = std::move(properties);
  }

  static void add(training_state& state, io::stored_array array, const array_origin& origin) {
    array.replicated = origin.owner < 0;
    state.arrays_.push_back(std::move(array));
    state.origins_.push_back(origin);
  }
  /// Numbers in a row.
  static void add(training_state& state, std::string name, io::element_type type, index_t count,
                  const array_origin& origin) {
    add(state, {.name = std::move(name), .type = type, .shape = {count}}, origin);
  }

  /// Takes memory for what this rank has. @param flat_bytes  of each flat buffer of servers, or 0
  static void finish(training_state& state, std::size_t flat_bytes) {
    const std::vector<io::element_range> own = state.ranges_of(state.rank_);
    const std::size_t flat_words = words_of(flat_bytes) * flat_buffers(state, flat_bytes);
    std::size_t words = flat_words;
    for (std::size_t i = 0; i < own.size(); ++i) {
      state.arrays_[i].held = own[i];
      words += is_flat(state, i, flat_bytes) ? 0 : words_of(covered_bytes(state.arrays_[i]));
    }
    state.memory_ = dynamic_array<std::uint64_t>(words);
    const auto* next = state.memory_.data() + flat_words;
    for (std::size_t i = 0; i < own.size(); ++i) {
      io::stored_array& one = state.arrays_[i];
      const std::size_t bytes = covered_bytes(one);
      if (is_flat(state, i, flat_bytes)) {
        const array_origin& origin = state.origins_[i];
        one.memory = {flat(state, origin.buffer, flat_bytes) + origin.offset * one.element_bytes(), bytes};
      } else {
        one.memory = {reinterpret_cast<const std::byte*>(next), bytes};
        next += words_of(bytes);
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
      if (is_flat(state, i, flat_bytes) && state.origins_[i].buffer >= count) {
        count = state.origins_[i].buffer + 1;
      }
    }
    return count;
  }
  /// Whether an array is a part of a flat buffer of the servers.
  [[nodiscard]] static bool is_flat(const training_state& state, std::size_t i, std::size_t flat_bytes) noexcept {
    const array_origin& origin = state.origins_[i];
    return flat_bytes != 0 && (origin.kind == state_kind::value || origin.kind == state_kind::rule) &&
           origin.owner == state.rank_;
  }
  [[nodiscard]] static std::size_t covered_bytes(const io::stored_array& one) noexcept {
    return static_cast<std::size_t>(one.covered().size() * one.element_bytes());
  }
  [[nodiscard]] static std::size_t words_of(std::size_t bytes) noexcept { return (bytes + 7) / 8; }

  /// Where the arrays come from.
  [[nodiscard]] static std::span<const array_origin> origins_of(const training_state& state) noexcept {
    return {state.origins_.data(), state.origins_.size()};
  }
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

/// An array with the elements of a parameter.
template <class Layout>
void add_parameter(training_state& state, std::string name, const nn::parameter_description& described,
                   io::element_type type, const array_origin& origin) {
  const extents<4> axes = described.shape;
  io::stored_array one{.name = std::move(name), .type = type};
  for (int axis = 0; axis < 4; ++axis) {
    if (axis < described.rank) {
      one.shape.push_back(axes[axis]);
    } else {
      one.shape.back() *= axes[axis];
    }
  }
  const std::array<index_t, 4> strides = dense_strides<Layout, 4>(axes);
  const std::array<index_t, 4> in_order = dense_strides<row_major, 4>(axes);
  for (int axis = 0; axis < 4; ++axis) {
    const auto k = static_cast<std::size_t>(axis);
    if (axes[axis] != 1 && strides[k] != in_order[k]) {
      one.axes = axes;
      one.strides = strides;
    }
  }
  state_access::add(state, std::move(one), origin);
}

/// The type of the elements of a buffer.
/// @param own  where the buffer does not say it
/// @throws configuration_error for a type that files do not have
[[nodiscard]] inline io::element_type type_of(const optim::state_buffer& buffer, std::string_view whose,
                                              io::element_type own) {
  // A stage without parameters knows those of others.
  const auto size = buffer.elements == 0 ? static_cast<index_t>(io::size_of(own))
                                         : static_cast<index_t>(buffer.bytes.size()) / buffer.elements;
  const auto named = io::element_type_named(buffer.element);
  const io::element_type type = named.value_or(own);
  if ((!named && !buffer.element.empty()) || static_cast<index_t>(io::size_of(type)) != size) {
    raise<configuration_error>("train::capture",
                               {"elements of a known type in the buffer '", buffer.name, "' of the ", whose},
                               {size, " bytes each, of type '", buffer.element, "'"}, "set state_buffer::element");
  }
  return type;
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
  const auto trained = [&](std::string_view name, io::element_type type, std::byte* memory, std::size_t number) {
    for (const state_parameter& each : all) {
      if (!each.trained) {
        continue;
      }
      const nn::parameter_description& p = *each.description;
      add_parameter<typename Network::layout_type>(
          state, name_of_copy(gradus::join({"optimizer.", name, ".", p.name}), copy_of), p, type,
          {.kind = state_kind::rule,
           .copy_of = copy_of,
           .memory =
               memory == nullptr || !each.here ? nullptr : memory + p.offset * static_cast<index_t>(io::size_of(type)),
           .buffer = number,
           .offset = p.offset,
           .owner = each.stage >= 0 ? each.stage : owner});
    }
  };
  if (on_servers) {
    for (std::size_t k = 0; k < of_parameters.size(); ++k) {
      trained(of_parameters[k], io::element_type_of<element>(), nullptr, k + 1);
    }
    return;
  }
  for (const optim::state_buffer& each : training.end->rule().buffers()) {
    if (each.elements == 0 && !training.network->structure().in_stages()) {
      continue;
    }
    const io::element_type type = type_of(each, "rule", io::element_type_of<element>());
    bool of_each = false;  // parameter
    for (const std::string& name : of_parameters) {
      of_each = of_each || name == each.name;
    }
    if (of_each) {
      trained(each.name, type, each.bytes.data(), 0);
    } else {
      state_access::add(
          state, name_of_copy(gradus::join({"optimizer.", each.name}), copy_of), type, each.elements,
          {.kind = state_kind::rule_number, .copy_of = copy_of, .memory = each.bytes.data(), .owner = owner});
    }
  }
}

/// What the strategy keeps. Names begin with "trainer.": a training with another strategy needs none of it.
template <class Network>
void plan_strategy(const training_parts<Network>& training, training_state& state) {
  using element = typename training_parts<Network>::element;
  auto& strategy = training.end->strategy();
  const std::span<const parallel::strategy_buffer> buffers = strategy.buffers();
  for (std::size_t number = 0; number < buffers.size(); ++number) {
    const parallel::strategy_buffer& each = buffers[number];
    const optim::state_buffer& memory = each.memory;
    const io::element_type type = type_of(memory, "strategy", io::element_type_of<element>());
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
        state_access::add(state, name({}), type, memory.elements, origin);
        continue;
      }
      for (const nn::parameter_description* const p : training.network->structure().trained_parameters()) {
        array_origin of_this = origin;
        of_this.memory += p->offset * static_cast<index_t>(io::size_of(type));
        of_this.offset = p->offset;
        add_parameter<typename Network::layout_type>(state, name(p->name), *p, type, of_this);
      }
    }
  }
}

/// The buffers of layers: those of the first rank that has them by their names, and all of each other rank.
template <class Network>
void plan_buffers(const training_parts<Network>& training, training_state& state) {
  using element = typename training_parts<Network>::element;
  constexpr io::element_type type = io::element_type_of<element>();
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
          state, gradus::join({n.name, ".", each.name}), type, each.size,
          {.kind = state_kind::buffer,
           .memory = n.here ? reinterpret_cast<std::byte*>(std::addressof(*own->elements.data())) : nullptr,
           .owner = owner});
      own += n.here ? 1 : 0;
      elements[static_cast<std::size_t>(owner)] += each.size;
    }
  }
  for (int copy = ranks_of_network; copy < ranks; ++copy) {
    if (const index_t count = elements[static_cast<std::size_t>(copy % ranks_of_network)]; count != 0) {
      state_access::add(state, name_of_copy("buffers", copy), type, count,
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
  constexpr io::element_type type = io::element_type_of<element>();
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
        add_parameter<layout>(state, name_of_copy(p.name, copy), p, type,
                              {.kind = state_kind::value,
                               .copy_of = copy,
                               .memory = each.here ? values + p.offset * index_t{sizeof(element)} : nullptr,
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
  state_access::add(state, {.name = "trainer.sums", .type = io::element_type::f64, .shape = {ranks, 4}},
                    {.kind = state_kind::sums, .memory = reinterpret_cast<std::byte*>(sums.data()), .owner = 0});
  if (training.workers == nullptr) {
    return;
  }
  state_access::add(state, "trainer.workers", io::element_type::f64, static_cast<index_t>(numbers),
                    {.kind = state_kind::worker_numbers,
                     .memory = reinterpret_cast<std::byte*>(sums.data() + ranks * 4),
                     .owner = 0});
  for (int worker = 0; worker < training.workers->all && graph.buffer_elements() != 0; ++worker) {
    state_access::add(
        state, gradus::join({"trainer.worker", worker, ".buffers"}), type, graph.buffer_elements(),
        {.kind = state_kind::worker_buffers, .copy_of = worker, .owner = worker / training.workers_of_rank()});
  }
}

}  // namespace gradus::train::detail
