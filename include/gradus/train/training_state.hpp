// SPDX-License-Identifier: BSL-1.0
//
// The state of a training as a value: named arrays in host memory and texts, for checkpoints.
#pragma once

#include <algorithm>    // std::max, std::min
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/io/stored_array.hpp"

namespace gradus::train {

/// A text of a state: {"rule", "sgd"}.
struct state_property {
  std::string name;   ///< differs from those of all other properties
  std::string value;  ///< the text
};

/// What train::restore reads a state from: a training_state, the states of all ranks (state_parts), or a file.
class state_source {
 public:
  state_source() = default;
  virtual ~state_source() = default;

  /// The number of arrays.
  [[nodiscard]] virtual std::size_t entries() const noexcept = 0;
  /// What one of them is; a source that is no training_state has none of its memory there. @pre i < entries()
  [[nodiscard]] virtual const io::stored_array& entry(std::size_t i) const noexcept = 0;
  /// A text, or null.
  [[nodiscard]] virtual const std::string* property(std::string_view name) const noexcept = 0;
  /// The names of the texts that begin with `prefix`, in any order that is the same on all ranks.
  [[nodiscard]] virtual dynamic_array<std::string> properties_with(std::string_view prefix) const = 0;
  /// Copies elements of array i in their logical order, from element `first` on, as many as there is room for.
  /// @throws error when they cannot be read
  virtual void read(std::size_t i, index_t first, std::span<std::byte> to) const = 0;

  /// The array of a name, or entries().
  [[nodiscard]] std::size_t find(std::string_view name) const noexcept {
    std::size_t i = 0;
    while (i < entries() && entry(i).name != name) {
      ++i;
    }
    return i;
  }

 protected:
  /// For derived classes that are copied.
  state_source(const state_source&) = default;
  /// As the constructor.
  state_source& operator=(const state_source&) = default;
};

namespace detail {
struct state_access;

/// What an array of a state is of a training.
enum class state_kind : unsigned char {
  value,            ///< a parameter
  rule,             ///< of the update rule, for the elements of a parameter
  rule_number,      ///< of the update rule, for all
  buffer,           ///< of a layer
  buffers_of_rank,  ///< all of them, of another rank
  sums,             ///< of the epoch so far
  worker_numbers,   ///< of reproducible training: the loss of the epoch so far without rounding, and who has examples
  worker_buffers,   ///< of reproducible training: all buffers of a virtual worker
  strategy          ///< what a strategy keeps; `buffer` is its index among strategy::buffers
};

/// Where an array of a state comes from on this rank, and who has it.
struct array_origin {
  state_kind kind = state_kind::value;
  int copy_of = 0;              ///< the rank, where ranks differ; of worker_buffers the virtual worker
  std::byte* memory = nullptr;  ///< all of the array, in the memory of the device (of sums: in the host's)
  std::size_t buffer = 0;       ///< of servers: 0 the values, then the buffers of the rule; of a strategy its own
  index_t offset = 0;           ///< in the flat buffers, in elements
  int owner = -1;               ///< the rank that has all of it; -1: all ranks have it, and answer for a share each
};

}  // namespace detail

/// The whole state of a training on one rank, as of one moment between two steps: what train::capture makes and
/// train::restore takes.
///
/// The ranks share the work: an array is cut into ranges, and each rank has the one that it answers for. All ranks know
/// the same list of arrays, properties and ranges. What is the same on all ranks is divided by io::shares_of; what only
/// one rank has is that rank's. Arrays are
///
///   conv1.weight, bn1.running_mean    of the network: of rank 0 where ranks differ
///   optimizer.velocity.conv1.weight   of the update rule, for each parameter that is trained
///   optimizer.loss_scale              other numbers of the rule
///   trainer.sums                      (ranks, 4): loss, right answers, examples and labels of the epoch so far
///   trainer.rank1.conv1.weight, ...   of the other ranks, where each trains by itself (model_averaging)
///   trainer.rank1.buffers             all buffers of another rank's network
///   trainer.strategy.outer.values.conv1.weight, ...   of the strategy: see parallel::strategy::buffers
///   trainer.rank1.strategy.residual.conv1.weight, ... the same of another rank, where each has its own
///   trainer.workers                   of parallel::reproducible: the exact loss of the epoch so far, then a 1 for each
///                                     virtual worker that had examples in it
///   trainer.worker3.buffers           all buffers of a virtual worker; 0 at the end of an epoch
///
/// Elements are copied in the memory order of the network, and brought into the logical order by `read`. Keep the
/// object from one capture to the next: it then copies and allocates nothing.
class training_state final : public state_source {
 public:
  training_state() = default;
  /// Arrays refer to the memory of this object.
  training_state(const training_state&) = delete;
  /// As the constructor.
  training_state& operator=(const training_state&) = delete;
  ~training_state() override = default;

  /// True before the first capture.
  [[nodiscard]] bool empty() const noexcept { return arrays_.empty(); }
  /// All arrays, the same list on all ranks. Of replicated ones, too, `held` and `memory` are this rank's share.
  [[nodiscard]] std::span<const io::stored_array> arrays() const noexcept { return arrays_; }
  /// All texts.
  [[nodiscard]] std::span<const state_property> properties() const noexcept {
    return {properties_.data(), properties_.size()};
  }
  /// Sets a text, for example of a callback that knows the best metric so far. Set it on all ranks.
  void set_property(std::string_view name, std::string_view value) {
    for (state_property& each : properties_) {
      if (each.name == name) {
        each.value.assign(value);
        return;
      }
    }
    properties_.push_back({.name = std::string{name}, .value = std::string{value}});
  }

  /// This rank, and the number of ranks that share the arrays: those that train.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The number of ranks that train.
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// What a rank has of each array. The ranges of all ranks together are the arrays, each element once.
  /// @pre 0 <= rank < ranks()
  [[nodiscard]] std::vector<io::element_range> ranges_of(int rank) const {
    std::vector<io::element_range> ranges = io::shares_of(arrays_, rank, ranks_);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (origins_[i].owner == rank) {
        ranges[i] = {0, arrays_[i].elements()};
      }
    }
    return ranges;
  }
  /// Bytes that this rank has.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size() * sizeof(std::uint64_t); }

  [[nodiscard]] std::size_t entries() const noexcept override { return arrays_.size(); }
  [[nodiscard]] const io::stored_array& entry(std::size_t i) const noexcept override { return arrays_[i]; }
  [[nodiscard]] const std::string* property(std::string_view name) const noexcept override {
    for (const state_property& each : properties_) {
      if (each.name == name) {
        return &each.value;
      }
    }
    return nullptr;
  }
  [[nodiscard]] dynamic_array<std::string> properties_with(std::string_view prefix) const override {
    dynamic_array<std::string> names;
    for (const state_property& each : properties_) {
      if (std::string_view{each.name}.starts_with(prefix)) {
        names.push_back(each.name);
      }
    }
    return names;
  }
  /// @throws configuration_error when this rank does not have all of them
  void read(std::size_t i, index_t first, std::span<std::byte> to) const override {
    const io::stored_array& one = arrays_[i];
    const index_t end = first + static_cast<index_t>(to.size()) / one.element_bytes();
    if (first == end) {
      return;
    }
    if (first < one.held.begin || end > one.held.end) {
      raise<configuration_error>("training_state.read",
                                 {"elements ", one.held.begin, " to ", one.held.end, " of ", one.name, ", which rank ",
                                  rank_, " of ", ranks_, " has"},
                                 {first, " to ", end},
                                 "train::state_parts joins the states of all ranks in one process; a file has all");
    }
    one.read(first, to);
  }

 private:
  friend struct detail::state_access;

  int rank_ = 0;
  int ranks_ = 1;
  std::vector<io::stored_array> arrays_;
  dynamic_array<detail::array_origin> origins_;  // of the arrays
  dynamic_array<state_property> properties_;
  dynamic_array<double> sums_;           // (ranks, 4)
  dynamic_array<std::uint64_t> memory_;  // of what this rank has
  std::uint64_t made_for_ = 0;           // the identity of the trainer's loop
};

/// The states of all ranks of a training, in one process, together: what thread ranks have captured. They must outlive
/// it.
class state_parts final : public state_source {
 public:
  /// @param parts  by rank
  /// @throws configuration_error unless they are the states of all ranks of one training
  explicit state_parts(std::span<const training_state* const> parts, error_location where = error_location::current())
      : parts_(parts.size()) {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      parts_[rank] = parts[rank];
      if (parts[rank]->ranks() != static_cast<int>(parts.size()) || parts[rank]->rank() != static_cast<int>(rank) ||
          parts[rank]->entries() != parts[0]->entries()) {
        raise<configuration_error>("state_parts", {"the states of all ranks of a training, by rank"},
                                   {"at ", rank, " of ", parts.size(), " the state of rank ", parts[rank]->rank(),
                                    " of ", parts[rank]->ranks()},
                                   {}, where);
      }
    }
    if (parts.empty()) {
      raise<configuration_error>("state_parts", "the states of all ranks of a training", "none", {}, where);
    }
  }

  [[nodiscard]] std::size_t entries() const noexcept override { return parts_[0]->entries(); }
  [[nodiscard]] const io::stored_array& entry(std::size_t i) const noexcept override { return parts_[0]->entry(i); }
  [[nodiscard]] const std::string* property(std::string_view name) const noexcept override {
    return parts_[0]->property(name);
  }
  [[nodiscard]] dynamic_array<std::string> properties_with(std::string_view prefix) const override {
    return parts_[0]->properties_with(prefix);
  }
  void read(std::size_t i, index_t first, std::span<std::byte> to) const override {
    const index_t element_bytes = entry(i).element_bytes();
    const index_t end = first + static_cast<index_t>(to.size()) / element_bytes;
    for (const training_state* const each : parts_) {
      const io::element_range held = each->arrays()[i].held;
      const index_t from = std::max(held.begin, first);
      const index_t until = std::min(held.end, end);
      if (from < until) {
        each->read(i, from,
                   to.subspan(static_cast<std::size_t>((from - first) * element_bytes),
                              static_cast<std::size_t>((until - from) * element_bytes)));
      }
    }
  }

 private:
  dynamic_array<const training_state*> parts_;
};

}  // namespace gradus::train
