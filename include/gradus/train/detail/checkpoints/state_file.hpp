// SPDX-License-Identifier: BSL-1.0
//
// The state of a training as a checkpoint, and back.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::int64_t, std::uint64_t
#include <cstring>      // std::memcpy
#include <functional>   // std::less
#include <map>          // std::map
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/checkpoint_content.hpp"
#include "gradus/io/checkpoint_reader.hpp"
#include "gradus/io/element_type.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/shared_checkpoint.hpp"
#include "gradus/train/training_state.hpp"

namespace gradus::train::detail {

/// Properties of a state are metadata of a file under this prefix.
inline constexpr std::string_view property_prefix = "state.";

struct named_element {
  std::string_view name;  // an element_name
  io::element_type type;
};
inline constexpr named_element element_names[] = {
    {"float32", io::element_type::f32}, {"float64", io::element_type::f64}, {"bfloat16", io::element_type::bf16},
    {"float16", io::element_type::f16}, {"int32", io::element_type::i32},   {"int64", io::element_type::i64},
    {"uint8", io::element_type::u8},    {"uint64", io::element_type::u64},  {"bool", io::element_type::boolean},
};

/// A captured state as the content of a checkpoint. What is not in the logical order is brought into it by `fill`.
class state_content {
 public:
  /// @param group  the ranks of the state: all call it
  void describe(const training_state& state, comm::link& group, bool best) {
    state_ = &state;
    content_.tensors.resize(state.arrays().size());
    std::size_t staged = 0;
    for (const stored_array& each : state.arrays()) {
      staged += each.in_order ? 0 : bytes_of(each);
    }
    if (staged_.size() * sizeof(std::uint64_t) < staged) {
      staged_ = dynamic_array<std::uint64_t>((staged + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    }
    auto* to = reinterpret_cast<std::byte*>(staged_.data());
    for (std::size_t i = 0; i < content_.tensors.size(); ++i) {
      const stored_array& from = state.arrays()[i];
      io::checkpoint_tensor& tensor = content_.tensors[i];
      tensor.name = from.name;
      tensor.type = type_of(from);
      tensor.shape.assign(from.shape.begin(), from.shape.end());
      tensor.parts.clear();
      const std::size_t bytes = bytes_of(from);
      if (bytes != 0) {
        tensor.parts.push_back({.begin = static_cast<std::uint64_t>(from.held.begin * from.element_bytes),
                                .bytes = {from.in_order ? from.data : to, bytes}});
        to += from.in_order ? 0 : bytes;
      }
    }
    content_.best = best;
    content_.metadata.clear();
    std::string properties = packed_properties(state);  // the time that an epoch takes differs between ranks
    double size = static_cast<double>(properties.size());
    group.broadcast(std::as_writable_bytes(std::span{&size, 1}), 0);
    properties.resize(static_cast<std::size_t>(size));
    group.broadcast(std::as_writable_bytes(std::span{properties}), 0);
    unpack(properties);
  }

  /// Brings arrays into the logical order, in memory that the content refers to.
  void fill() {
    for (std::size_t i = 0; i < content_.tensors.size(); ++i) {
      const stored_array& from = state_->arrays()[i];
      if (!from.in_order && bytes_of(from) != 0) {
        const std::span<const std::byte> bytes = content_.tensors[i].parts[0].bytes;
        state_->read(i, from.held.begin, {const_cast<std::byte*>(bytes.data()), bytes.size()});
      }
    }
  }

  [[nodiscard]] io::checkpoint_content& content() noexcept { return content_; }

 private:
  [[nodiscard]] static std::size_t bytes_of(const stored_array& array) noexcept {
    return static_cast<std::size_t>((array.held.end - array.held.begin) * array.element_bytes);
  }
  [[nodiscard]] static io::element_type type_of(const state_entry& entry) {
    for (const named_element& each : element_names) {
      if (each.name == entry.element) {
        return each.type;
      }
    }
    raise<configuration_error>("checkpoints", {"an element type of safetensors for ", entry.name}, entry.element);
  }

  [[nodiscard]] static std::string packed_properties(const training_state& state) {
    std::string packed;
    for (const state_property& each : state.properties()) {
      packed.append(each.name).append(1, '\0').append(each.value).append(1, '\0');
    }
    return packed;
  }
  void unpack(std::string_view packed) {
    while (!packed.empty()) {
      const std::size_t name = packed.find('\0');
      const std::size_t value = packed.find('\0', name + 1);
      content_.metadata[gradus::join({property_prefix, packed.substr(0, name)})] =
          packed.substr(name + 1, value - name - 1);
      packed.remove_prefix(value + 1);
    }
  }

  const training_state* state_ = nullptr;
  io::checkpoint_content content_;
  dynamic_array<std::uint64_t> staged_;
};

/// A checkpoint as what restore reads.
class state_of_checkpoint final : public state_source {
 public:
  /// Called by all ranks. @pre file.found(); it outlives this object
  explicit state_of_checkpoint(const io::shared_checkpoint& file) : header_{&file.header()} {
    for (const io::safetensors_entry& each : header_->tensors) {
      state_entry& made = entries_.emplace_back();
      made.name = each.name;
      made.element_bytes = static_cast<index_t>(io::size_of(each.type));
      for (const named_element& name : element_names) {
        if (name.type == each.type) {
          made.element = name.name;
        }
      }
      for (const auto extent : each.shape) {
        made.shape.push_back(static_cast<index_t>(extent));
      }
    }
    for (const auto& [key, text] : header_->metadata) {
      if (std::string_view{key}.starts_with(property_prefix)) {
        properties_.emplace(std::string_view{key}.substr(property_prefix.size()), text);
      }
    }
    if (file.all_ranks_read()) {
      reader_ = &file.file();
      return;
    }
    // Where not all ranks have a valid file, every rank gets all of it.
    std::vector<io::checkpoint_fetch> all;
    for (const io::safetensors_entry& each : header_->tensors) {
      std::vector<std::byte>& memory = content_.emplace_back(each.end - each.begin);
      all.push_back({.tensor = each.name, .begin = 0, .into = memory});
    }
    file.fetch(all);
  }

  [[nodiscard]] std::size_t entries() const noexcept override { return entries_.size(); }
  [[nodiscard]] const state_entry& entry(std::size_t i) const noexcept override { return entries_[i]; }
  [[nodiscard]] const std::string* property(std::string_view name) const noexcept override {
    const auto found = properties_.find(name);
    return found == properties_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] dynamic_array<std::string> properties_with(std::string_view prefix) const override {
    dynamic_array<std::string> names;
    for (const auto& [name, text] : properties_) {
      if (std::string_view{name}.starts_with(prefix)) {
        names.push_back(name);
      }
    }
    return names;
  }
  void read(std::size_t i, index_t first, std::span<std::byte> to) const override {
    const auto begin = static_cast<std::uint64_t>(first * entries_[i].element_bytes);
    if (reader_ != nullptr) {
      reader_->read(header_->tensors[i], begin, to);
    } else {
      std::memcpy(to.data(), content_[i].data() + begin, to.size());
    }
  }

 private:
  const io::safetensors_header* header_;
  std::vector<state_entry> entries_;
  std::map<std::string, std::string, std::less<>> properties_;
  const io::checkpoint_reader* reader_ = nullptr;
  std::vector<std::vector<std::byte>> content_;  // of each tensor, without a reader
};

}  // namespace gradus::train::detail
