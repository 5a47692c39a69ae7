// SPDX-License-Identifier: BSL-1.0
//
// A communicator without its type: for code that runs seldom and shall be compiled once for all communicators.
// Module: comm. Depends on: core.
#pragma once

#include <cstdint>          // std::uint8_t
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view

#include "gradus/comm/communicator.hpp"  // all_gather, all_reduce, broadcast

namespace gradus::comm::detail {

/// What agreement checks ask of a communicator. Every call waits.
class any_group {
 public:
  any_group(int rank, int size) noexcept : rank_{rank}, size_{size} {}
  any_group(const any_group&) = delete;
  any_group& operator=(const any_group&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  virtual void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                          const std::source_location& where) = 0;

 protected:
  ~any_group() = default;

 private:
  int rank_;
  int size_;
};

/// The same of a communicator that has a type.
template <class Communicator>
class group_of final : public any_group {
 public:
  explicit group_of(Communicator& communicator) noexcept
      : any_group{communicator.rank(), communicator.size()}, communicator_{&communicator} {}

  void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                  const std::source_location& where) override {
    comm::all_gather(*communicator_, input, output, where).wait(where);
  }

 private:
  Communicator* communicator_;
};

}  // namespace gradus::comm::detail
