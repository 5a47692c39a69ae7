// SPDX-License-Identifier: BSL-1.0
//
// Serializes a rank's recording for the transfer to rank 0.
#pragma once

#include <cstddef>        // std::size_t
#include <cstdint>        // std::int32_t, std::int64_t, std::uint32_t, std::uint64_t, std::uint8_t
#include <cstring>        // std::memcpy, std::strlen
#include <span>           // std::span
#include <string>         // std::string
#include <type_traits>    // std::is_trivially_copyable_v
#include <unordered_map>  // std::unordered_map
#include <vector>         // std::vector

#include "gradus/core/config.hpp"
#include "gradus/core/error.hpp"
#include "gradus/trace/span.hpp"

namespace gradus::trace::detail {

/// A span with numbers in place of its names. All ranks of a job have the same byte order.
struct wire_span {
  static constexpr std::uint32_t no_name = 0xffffffffU;
  span content;  // without names
  std::uint32_t title = no_name;
  std::uint32_t subject = no_name;
};
static_assert(std::is_trivially_copyable_v<wire_span>);

class byte_writer {
 public:
  template <class Value>
  void put(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(Value));
    std::memcpy(bytes_.data() + at, &value, sizeof(Value));
  }
  void put_text(const char* text, std::size_t size) {
    put<std::uint64_t>(size);
    bytes_.insert(bytes_.end(), text, text + size);
  }
  [[nodiscard]] std::vector<std::uint8_t>& bytes() noexcept { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

class byte_reader {
 public:
  explicit byte_reader(std::span<const std::uint8_t> bytes) noexcept : bytes_{bytes} {}

  template <class Value>
  [[nodiscard]] Value get() {
    Value value;
    std::memcpy(static_cast<void*>(&value), take(sizeof(Value)), sizeof(Value));
    return value;
  }
  [[nodiscard]] std::string get_text() {
    const std::size_t size = get<std::uint64_t>();
    return {reinterpret_cast<const char*>(take(size)), size};
  }
  /// Reads the number of items of at least `bytes_each` bytes each, and checks that they are all present.
  [[nodiscard]] std::size_t get_count(std::size_t bytes_each) {
    const auto count = get<std::uint64_t>();
    require(count <= (bytes_.size() - at_) / bytes_each);
    return static_cast<std::size_t>(count);
  }

 private:
  const std::uint8_t* take(std::size_t size) {
    require(size <= bytes_.size() - at_);
    const std::uint8_t* const from = bytes_.data() + at_;
    at_ += size;
    return from;
  }
  static void require(bool holds) {
    if (!holds) {
      raise<format_error>("trace", "the recording of a rank", "something shorter",
                          "run the same version of the program on all ranks");
    }
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

/// Numbers for names, identified by the addresses of their texts.
class name_numbers {
 public:
  [[nodiscard]] std::uint32_t number(name of) {
    if (of.empty()) {
      return wire_span::no_name;
    }
    const auto [found, is_new] = numbers_.emplace(of.text(), static_cast<std::uint32_t>(texts_.size()));
    if (is_new) {
      texts_.push_back(of.text());
    }
    return found->second;
  }
  [[nodiscard]] const std::vector<const char*>& texts() const noexcept { return texts_; }

 private:
  std::unordered_map<const char*, std::uint32_t> numbers_;
  std::vector<const char*> texts_;
};

}  // namespace gradus::trace::detail
