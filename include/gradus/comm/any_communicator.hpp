// SPDX-License-Identifier: BSL-1.0
//
// A type-erased communicator, for code that rarely runs and is compiled once for all communicators.
#pragma once

#include <cstddef>          // std::byte
#include <cstdint>          // std::uint8_t
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view

#include "gradus/comm/communicator.hpp"
#include "gradus/core/config.hpp"

namespace gradus::comm {

/// The ranks of a communicator, for checks and for sums of a few numbers. Every call blocks.
class any_communicator {
 public:
  /// For derived classes: `rank` and `size` of the communicator.
  any_communicator(int rank, int size) noexcept : rank_{rank}, size_{size} {}
  any_communicator(const any_communicator&) = delete;
  any_communicator& operator=(const any_communicator&) = delete;

  /// This rank, counted from 0.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The number of ranks.
  [[nodiscard]] int size() const noexcept { return size_; }

  /// As comm::all_gather. @throws communication_error if a rank fails or does not call it in time
  virtual void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                          std::source_location where = std::source_location::current()) = 0;
  /// Copies the bytes of rank `root` to all ranks. @throws communication_error if a rank fails or does not call it in
  /// time
  virtual void broadcast(std::span<std::byte> bytes, int root,
                         std::source_location where = std::source_location::current()) = 0;
  /// Sums over the ranks; every rank gets the sums. @throws communication_error if a rank fails or does not call it in
  /// time
  virtual void sum(std::span<double> values, std::source_location where = std::source_location::current()) = 0;
  /// Reports to the other ranks that this one has failed; without other ranks it may do nothing.
  virtual void fail(std::string_view reason) noexcept = 0;

 protected:
  ~any_communicator() = default;

 private:
  int rank_;
  int size_;
};

/// The type-erased form of a communicator, which must outlive it.
template <class Communicator>
class any_communicator_of final : public any_communicator {
  static_assert(explain_communicator<Communicator>());

 public:
  /// Refers to `communicator`.
  explicit any_communicator_of(Communicator& communicator) noexcept
      : any_communicator{communicator.rank(), communicator.size()}, communicator_{&communicator} {}

  void all_gather(std::span<const std::uint8_t> input, std::span<std::uint8_t> output,
                  std::source_location where) override {
    comm::all_gather(*communicator_, input, output, where).wait(where);
  }
  void broadcast(std::span<std::byte> bytes, int root, std::source_location where) override {
    const std::span data{reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
    comm::broadcast(*communicator_, data, root, where).wait(where);
  }
  void sum(std::span<double> values, std::source_location where) override {
    comm::all_reduce(*communicator_, values, reduction::sum, where).wait(where);
  }
  /// With one rank nothing waits, and the communicator goes on working: a corrected call succeeds.
  void fail(std::string_view reason) noexcept override {
    if (size() > 1) {
      communicator_->fail(reason);
    }
  }

 private:
  Communicator* communicator_;
};

}  // namespace gradus::comm
