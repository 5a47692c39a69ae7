// SPDX-License-Identifier: BSL-1.0
//
// The state of a training as a value: named arrays in host memory and texts, for checkpoints.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint16_t, std::uint32_t, std::uint64_t
#include <cstring>      // std::memcpy
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view

#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"

namespace gradus::train {

/// Elements [begin, end) of an array, in its logical order.
struct element_range {
  index_t begin = 0;  ///< the first element
  index_t end = 0;    ///< behind the last one

  /// True if all members are equal.
  friend bool operator==(const element_range&, const element_range&) noexcept = default;
};

/// What an array of a state is called and made of.
struct state_entry {
  std::string name;              ///< "conv1.weight", "optimizer.velocity.conv1.weight", "trainer.sums"
  std::string_view element;      ///< "float32", "float64", ...: an element_name
  index_t element_bytes = 0;     ///< bytes of an element
  dynamic_array<index_t> shape;  ///< logical, (o, i, r, s) of a convolution; its last index is the fastest

  /// The number of elements.
  [[nodiscard]] index_t elements() const noexcept {
    index_t product = 1;
    for (const index_t each : shape) {
      product *= each;
    }
    return product;
  }
};

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
  /// One of them. @pre i < entries()
  [[nodiscard]] virtual const state_entry& entry(std::size_t i) const noexcept = 0;
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

/// Calls body(logical, memory) for elements [first, first + count) of a dense tensor in the logical order (o, i, r, s):
/// the index among them, and the offset in the memory order that the strides describe, both in elements.
template <class Body>
void for_each_in_order(const extents<4>& shape, const std::array<index_t, 4>& strides, index_t first, index_t count,
                       const Body& body) {
  std::array<index_t, 4> at{};
  for (int axis = 3; axis >= 0; --axis) {
    at[static_cast<std::size_t>(axis)] = axis == 0 ? first : first % shape[axis];
    first /= shape[axis];
  }
  for (index_t done = 0; done < count; ++at[2], at[3] = 0) {
    for (int axis = 2; axis > 0 && at[static_cast<std::size_t>(axis)] == shape[axis]; --axis) {
      at[static_cast<std::size_t>(axis)] = 0;
      ++at[static_cast<std::size_t>(axis) - 1];
    }
    index_t memory = at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
    for (const index_t end = std::min(count, done + shape[3] - at[3]); done < end; ++done, memory += strides[3]) {
      body(done, memory);
    }
  }
}

/// Copies elements from the memory order to the logical one, or back.
/// @param back  `memory` is written
template <class Word>
void copy_in_order(const extents<4>& shape, const std::array<index_t, 4>& strides, index_t first, index_t count,
                   std::byte* logical, std::byte* memory, bool back) {
  for_each_in_order(shape, strides, first, count, [&](index_t i, index_t k) {
    std::byte* const in_order = logical + static_cast<std::size_t>(i) * sizeof(Word);
    std::byte* const in_memory = memory + static_cast<std::size_t>(k) * sizeof(Word);
    std::memcpy(back ? in_memory : in_order, back ? in_order : in_memory, sizeof(Word));
  });
}

/// The same for elements of any size. @pre 8, 4 or 2 bytes
inline void copy_in_order(const extents<4>& shape, const std::array<index_t, 4>& strides, index_t element_bytes,
                          index_t first, index_t count, std::byte* logical, std::byte* memory, bool back) {
  if (element_bytes == 8) {
    copy_in_order<std::uint64_t>(shape, strides, first, count, logical, memory, back);
  } else if (element_bytes == 4) {
    copy_in_order<std::uint32_t>(shape, strides, first, count, logical, memory, back);
  } else {
    copy_in_order<std::uint16_t>(shape, strides, first, count, logical, memory, back);
  }
}

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

/// Where an array of a state comes from on this rank, and how ranks share it.
struct array_origin {
  state_kind kind = state_kind::value;
  int copy_of = 0;              ///< the rank, where ranks differ; of worker_buffers the virtual worker
  std::byte* memory = nullptr;  ///< all of the array, in the memory of the device (of sums: in the host's)
  std::size_t buffer = 0;       ///< of servers: 0 the values, then the buffers of the rule; of a strategy its own
  index_t offset = 0;           ///< in the flat buffers, in elements
  int owner = -1;               ///< the rank that has all of it; -1: all ranks have it, and answer for some rows each
  index_t rows = 1;             ///< a part is some rows
  index_t row = 1;              ///< elements of a row
  index_t first_byte = 0;       ///< among the arrays that are divided
};

}  // namespace detail

/// An array of a training_state: what it is, where its memory is, and which part of it this rank has.
struct stored_array : state_entry {
  element_range held;                ///< what this rank has
  const std::byte* data = nullptr;   ///< of `held`, in the memory order of the network
  bool in_order = true;              ///< that is the logical order: `data` may be used as it is
  extents<4> axes{1, 1, 1, 1};       ///< of `held`, in the logical order
  std::array<index_t, 4> strides{};  ///< of `data`, in elements
  detail::array_origin origin;       ///< in the training
};

/// The whole state of a training on one rank, as of one moment between two steps: what train::capture makes and
/// train::restore takes.
///
/// The ranks share the work: an array is cut into ranges, and each rank has the ones that it answers for. All ranks
/// know the same list of arrays, properties and ranges, so that they can write a file together without a message. What
/// is the same on all ranks is divided by bytes; what only one rank has is that rank's. Arrays are
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
  /// All arrays, the same list on all ranks.
  [[nodiscard]] std::span<const stored_array> arrays() const noexcept { return {arrays_.data(), arrays_.size()}; }
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
  /// What a rank has of array i. Ranges of all ranks together are the array, each element once.
  /// @pre i < arrays().size(), 0 <= rank < ranks()
  [[nodiscard]] element_range range_of(std::size_t i, int rank) const noexcept {
    const detail::array_origin& from = arrays_[i].origin;
    const index_t all = from.row * from.rows;
    if (from.owner >= 0) {
      return from.owner == rank ? element_range{0, all} : element_range{all, all};
    }
    const auto first_row = [&, this](int before) {  // of the rank behind them
      const index_t bytes = gradus::detail::part_bound<index_t>(divided_bytes_, ranks_, before) - from.first_byte;
      const index_t row_bytes = from.row * arrays_[i].element_bytes;
      return bytes <= 0 ? index_t{0} : std::min((bytes + row_bytes - 1) / row_bytes, from.rows);
    };
    return {first_row(rank) * from.row, first_row(rank + 1) * from.row};
  }
  /// Bytes that this rank has.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size() * sizeof(std::uint64_t); }

  [[nodiscard]] std::size_t entries() const noexcept override { return arrays_.size(); }
  [[nodiscard]] const state_entry& entry(std::size_t i) const noexcept override { return arrays_[i]; }
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
    const stored_array& one = arrays_[i];
    const index_t count = static_cast<index_t>(to.size()) / one.element_bytes;
    if (count == 0) {
      return;
    }
    if (first < one.held.begin || first + count > one.held.end) {
      raise<configuration_error>("training_state.read",
                                 {"elements ", one.held.begin, " to ", one.held.end, " of ", one.name, ", which rank ",
                                  rank_, " of ", ranks_, " has"},
                                 {first, " to ", first + count},
                                 "train::state_parts joins the states of all ranks in one process; a file has all");
    }
    first -= one.held.begin;
    if (one.in_order) {
      std::memcpy(to.data(), one.data + first * one.element_bytes, to.size());
    } else {
      detail::copy_in_order(one.axes, one.strides, one.element_bytes, first, count, to.data(),
                            const_cast<std::byte*>(one.data), false);
    }
  }

 private:
  friend struct detail::state_access;

  int rank_ = 0;
  int ranks_ = 1;
  index_t divided_bytes_ = 0;
  dynamic_array<stored_array> arrays_;
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
  [[nodiscard]] const state_entry& entry(std::size_t i) const noexcept override { return parts_[0]->entry(i); }
  [[nodiscard]] const std::string* property(std::string_view name) const noexcept override {
    return parts_[0]->property(name);
  }
  [[nodiscard]] dynamic_array<std::string> properties_with(std::string_view prefix) const override {
    return parts_[0]->properties_with(prefix);
  }
  void read(std::size_t i, index_t first, std::span<std::byte> to) const override {
    const index_t element_bytes = entry(i).element_bytes;
    const index_t end = first + static_cast<index_t>(to.size()) / element_bytes;
    for (const training_state* const each : parts_) {
      const element_range held = each->arrays()[i].held;
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
