// SPDX-License-Identifier: BSL-1.0
//
// The state of a training as a checkpoint, and back.
#pragma once

#include <cstddef>      // std::byte, std::size_t
#include <cstdint>      // std::uint64_t
#include <cstring>      // std::memcpy
#include <functional>   // std::less
#include <map>          // std::map
#include <span>         // std::as_writable_bytes, std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move
#include <vector>       // std::vector

#include "gradus/checkpoint/content.hpp"
#include "gradus/checkpoint/reader.hpp"
#include "gradus/checkpoint/shared_checkpoint.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/io/safetensors.hpp"
#include "gradus/io/stored_array.hpp"
#include "gradus/train/training_state.hpp"

namespace gradus::train::detail {

/// Properties of a state are metadata of a file under this prefix.
inline constexpr std::string_view property_prefix = "state.";

/// A captured state as the content of a checkpoint.
class state_content {
 public:
  /// @param state  its memory is read until the save has ended
  /// @param group  the ranks of the state: all call it
  void describe(const training_state& state, comm::link& group, bool best) {
    content_.arrays.assign(state.arrays().begin(), state.arrays().end());
    for (io::stored_array& each : content_.arrays) {
      each.replicated = false;  // each rank has captured its share
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

  [[nodiscard]] io::checkpoint_content& content() noexcept { return content_; }

 private:
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

  io::checkpoint_content content_;
};

/// A checkpoint as what restore reads.
class state_of_checkpoint final : public state_source {
 public:
  /// Called by all ranks. @pre file.found(); it outlives this object
  explicit state_of_checkpoint(const io::shared_checkpoint& file) : header_{&file.header()} {
    for (const io::safetensors_entry& each : header_->tensors) {
      entries_.push_back({.name = each.name, .type = each.type, .shape = each.shape});
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
  [[nodiscard]] const io::stored_array& entry(std::size_t i) const noexcept override { return entries_[i]; }
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
    const auto begin = static_cast<std::uint64_t>(first * entries_[i].element_bytes());
    if (reader_ != nullptr) {
      reader_->read(header_->tensors[i], begin, to);
    } else {
      std::memcpy(to.data(), content_[i].data() + begin, to.size());
    }
  }

 private:
  const io::safetensors_header* header_;
  std::vector<io::stored_array> entries_;
  std::map<std::string, std::string, std::less<>> properties_;
  const io::checkpoint_reader* reader_ = nullptr;
  std::vector<std::vector<std::byte>> content_;  // of each tensor, without a reader
};

}  // namespace gradus::train::detail
