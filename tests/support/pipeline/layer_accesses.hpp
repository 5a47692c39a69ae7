// SPDX-License-Identifier: BSL-1.0
//
// What the passes of a network read and write, and what one process that runs them in order finds there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gradus/nn/plan/execution_plan.hpp"

namespace gradus_test {

/// Memory that passes use: the value of a slot, the gradient memory of a slot, or the state of a layer.
struct memory_name {
  enum class kind : unsigned char { value, gradient, state };
  kind what = kind::value;
  std::size_t of = 0;

  friend auto operator<=>(const memory_name&, const memory_name&) = default;
};

/// A read or a write of all of a memory. Each write of a step has a version of its own; 0 is the memory before.
struct memory_access {
  memory_name memory;
  bool writes = false;
  std::uint32_t version = 0;  ///< what is written, or what a read finds in one process
};

/// What a layer, or the network behind it, does at once: all reads, and then all writes.
using access_group = std::vector<memory_access>;

/// The passes over one micro-batch, as a plan of the whole network says and nn::layer describes them.
class network_accesses {
  using plan_type = gradus::nn::execution_plan;
  using duty = plan_type::duty;
  using kind = memory_name::kind;

 public:
  network_accesses(const gradus::nn::graph_description& graph, const plan_type& whole)
      : graph_{graph}, plan_{whole}, forward_(whole.nodes.size()), backward_(whole.nodes.size()) {
    for (std::size_t i = 0; i < whole.nodes.size(); ++i) {
      if (whole.nodes[i].forward) {
        forward_[i].push_back(forward_of(i));
        find_versions(forward_[i]);
      }
    }
    make_loss();
    find_versions(loss_);
    for (std::size_t i = whole.nodes.size(); i-- > 0;) {
      if (whole.nodes[i].backward) {
        make_backward(i);
        find_versions(backward_[i]);
      }
    }
  }

  [[nodiscard]] const std::vector<access_group>& forward(std::size_t layer) const { return forward_[layer]; }
  [[nodiscard]] const std::vector<access_group>& loss() const { return loss_; }
  /// The first group is the layer's, the others are the network's.
  [[nodiscard]] const std::vector<access_group>& backward(std::size_t layer) const { return backward_[layer]; }
  /// The second part of backward, which computes the gradients of parameters: the reads of the layer.
  [[nodiscard]] access_group weights(std::size_t layer) const {
    access_group reads;
    for (const memory_access& each : backward_[layer].front()) {
      const bool of_layer = each.memory.what == kind::state || each.memory == gradient(layer + 1) ||
                            (each.memory.what == kind::value && reads_value(layer, each.memory.of));
      if (!each.writes && of_layer) {
        reads.push_back(each);
      }
    }
    return reads;
  }

 private:
  [[nodiscard]] memory_name value(std::size_t v) const { return {kind::value, plan_.slot_of_value[v]}; }
  [[nodiscard]] memory_name gradient(std::size_t v) const {
    return {kind::gradient, plan_.slots[plan_.slot_of_value[v]].gradient_of};
  }

  [[nodiscard]] bool reads_value(std::size_t layer, std::size_t slot) const {
    const auto& node = graph_.nodes[layer];
    bool any = node.traits.backward_reads_output && plan_.slot_of_value[layer + 1] == slot;
    for (const std::size_t input : node.inputs) {
      any = any || (node.traits.backward_reads_inputs && plan_.slot_of_value[input] == slot);
    }
    return any;
  }

  void read(access_group& group, const memory_name& memory) { group.push_back({memory, false, 0}); }
  void write(access_group& group, const memory_name& memory) { group.push_back({memory, true, ++versions_}); }

  [[nodiscard]] access_group forward_of(std::size_t i) {
    access_group group;
    for (const std::size_t input : graph_.nodes[i].inputs) {
      read(group, value(input));
    }
    if (plan_.nodes[i].residual != plan_type::none) {
      read(group, value(plan_.nodes[i].residual));
    }
    write(group, value(i + 1));
    if (graph_.nodes[i].state_bytes != 0) {
      write(group, {kind::state, i});
    }
    return group;
  }

  /// A gradient that the layer or the loss writes or adds to.
  void contribute(access_group& group, const plan_type::gradient_target& target, std::size_t v) {
    if (target.write == duty::layer) {
      bool written = false;  // an input that is there twice
      for (const memory_access& each : group) {
        written = written || (each.writes && each.memory == gradient(v));
      }
      if (target.accumulate && !written) {
        read(group, gradient(v));
      }
      write(group, gradient(v));
    }
    if (target.mask == duty::layer) {
      read(group, value(v));
    }
  }
  /// The network masks a gradient.
  void mask(std::vector<access_group>& groups, const plan_type::gradient_target& target, std::size_t v) {
    if (target.mask == duty::network) {
      access_group& group = groups.emplace_back();
      read(group, gradient(v));
      read(group, value(v));
      write(group, gradient(v));
    }
  }

  void make_loss() {
    access_group& group = loss_.emplace_back();
    read(group, value(graph_.scores));
    contribute(group, plan_.loss_target, graph_.scores);
    mask(loss_, plan_.loss_target, graph_.scores);
  }

  void make_backward(std::size_t i) {
    const auto& node = graph_.nodes[i];
    const auto& planned = plan_.nodes[i];
    access_group group;
    read(group, gradient(i + 1));
    if (node.traits.backward_reads_output) {
      read(group, value(i + 1));
    }
    for (const std::size_t input : node.inputs) {
      if (node.traits.backward_reads_inputs) {
        read(group, value(input));
      }
    }
    if (node.state_bytes != 0) {
      read(group, {kind::state, i});
    }
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      contribute(group, planned.targets[k], node.inputs[k]);
    }
    if (planned.residual != plan_type::none) {
      contribute(group, planned.residual_target, planned.residual);
    }
    std::vector<access_group>& groups = backward_[i];
    groups.push_back(std::move(group));
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      mask(groups, planned.targets[k], node.inputs[k]);
    }
    if (planned.residual != plan_type::none) {
      if (planned.residual_target.write == duty::network) {
        access_group& copied = groups.emplace_back();
        read(copied, gradient(i + 1));
        if (planned.residual_target.accumulate) {
          read(copied, gradient(planned.residual));
        }
        write(copied, gradient(planned.residual));
      }
      mask(groups, planned.residual_target, planned.residual);
    }
  }

  /// One process: each memory has what was written to it last.
  void find_versions(std::vector<access_group>& groups) {
    for (access_group& group : groups) {
      for (memory_access& each : group) {
        each.version = each.writes ? each.version : current_[each.memory];
      }
      for (const memory_access& each : group) {
        if (each.writes) {
          current_[each.memory] = each.version;
        }
      }
    }
  }

  const gradus::nn::graph_description& graph_;
  const plan_type& plan_;
  std::uint32_t versions_ = 0;
  std::map<memory_name, std::uint32_t> current_;
  std::vector<std::vector<access_group>> forward_;
  std::vector<access_group> loss_;
  std::vector<std::vector<access_group>> backward_;
};

}  // namespace gradus_test
