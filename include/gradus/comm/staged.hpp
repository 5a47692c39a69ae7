// SPDX-License-Identifier: BSL-1.0
//
// A communicator for device memory that copies through host buffers.
#pragma once

#include <array>            // std::array
#include <concepts>         // std::convertible_to, std::copyable, std::same_as
#include <cstddef>          // std::byte, std::size_t
#include <memory>           // std::make_unique, std::unique_ptr
#include <source_location>  // std::source_location
#include <span>             // std::span
#include <string_view>      // std::string_view
#include <utility>          // std::exchange, std::move
#include <vector>           // std::vector

#include "gradus/comm/communicator.hpp"
#include "gradus/comm/forwarding.hpp"
#include "gradus/comm/subset.hpp"
#include "gradus/comm/transfer.hpp"
#include "gradus/core/config.hpp"
#include "gradus/core/dynamic_array.hpp"

namespace gradus::comm {

/// Copies between device memory and the host. A type Staging models `staging` if, for a `Staging& staging`,
///   1. `staging.on_device(pointer)` is true if the memory is the device's, and false if it is the host's;
///   2. `staging.allocate(bytes)` returns host memory that the device copies from and to, or throws;
///      `staging.deallocate(pointer, bytes)` frees it and does not throw;
///   3. `staging.to_host(host, device, bytes)` returns when the bytes are on the host, and
///      `staging.to_device(device, host, bytes)` when they are on the device; both copy after all earlier work of the
///      device.
/// It is copied with the communicator, and several threads use copies at the same time.
template <class Staging>
concept staging = std::copyable<Staging> && requires(Staging& memory, void* device, void* host, std::size_t bytes) {
  { memory.on_device(device) } -> std::convertible_to<bool>;
  { memory.allocate(bytes) } -> std::same_as<void*>;
  { memory.deallocate(host, bytes) }
  noexcept;
  memory.to_host(host, device, bytes);
  memory.to_device(device, host, bytes);
};

namespace detail {

/// A growing buffer of a staging's host memory.
template <class Staging>
class staged_memory {
 public:
  explicit staged_memory(Staging& staging) noexcept : staging_{&staging} {}
  staged_memory(const staged_memory&) = delete;
  staged_memory& operator=(const staged_memory&) = delete;
  ~staged_memory() { free(); }

  /// Returns at least `bytes` bytes. @throws the exception of the staging if there is not enough memory
  [[nodiscard]] void* reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      free();
      memory_ = staging_->allocate(bytes);
      bytes_ = bytes;
    }
    return memory_;
  }

 private:
  void free() noexcept {
    if (memory_ != nullptr) {
      staging_->deallocate(std::exchange(memory_, nullptr), std::exchange(bytes_, 0));
    }
  }

  Staging* staging_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The operations of a staged communicator. If an idle operation has enough memory, nothing is allocated.
template <class Staging>
class staged_channel {
 public:
  class one final : public operation {
   public:
    explicit one(staged_channel& channel)
        : channel_{&channel},
          memory_{staged_memory<Staging>{channel.staging()}, staged_memory<Staging>{channel.staging()}} {}

    /// Returns a host buffer for device memory; host memory is returned unchanged.
    [[nodiscard]] void* lend(std::size_t slot, void* device, std::size_t bytes, bool read, bool written) {
      back_[slot] = {};
      if (bytes == 0 || !channel_->staging().on_device(device)) {
        return device;
      }
      void* const host = memory_[slot].reserve(bytes);
      if (read) {
        channel_->staging().to_host(host, device, bytes);
      }
      if (written) {
        back_[slot] = {device, host, bytes};
      }
      return host;
    }

    void open() noexcept { back_ = {}; }
    void begun(request inner) { inner_ = std::move(inner); }

    bool test(const std::source_location& where) override {
      if (!inner_.test(where)) {
        return false;
      }
      copy_back();
      return true;
    }
    void wait(const std::source_location& where) override {
      inner_.wait(where);
      copy_back();
    }
    void abandon(bool unwinding) noexcept override {
      if (unwinding) {
        inner_.cancel();
        return;
      }
      try {
        wait(std::source_location::current());
      } catch (...) {  // the next operation of the communicator reports it
      }
    }
    void release() noexcept override { channel_->give_back(*this); }

   private:
    struct way_back {
      void* device = nullptr;
      const void* host = nullptr;
      std::size_t bytes = 0;
    };

    void copy_back() {
      for (way_back& each : back_) {
        if (each.bytes != 0) {
          channel_->staging().to_device(each.device, each.host, each.bytes);
          each = {};
        }
      }
    }

    staged_channel* channel_;
    std::array<staged_memory<Staging>, 2> memory_;
    std::array<way_back, 2> back_{};
    request inner_;
  };

  explicit staged_channel(Staging staging) : staging_{std::move(staging)} {}
  staged_channel(const staged_channel&) = delete;
  staged_channel& operator=(const staged_channel&) = delete;

  [[nodiscard]] Staging& staging() noexcept { return staging_; }

  [[nodiscard]] one& fresh() {
    if (idle_.empty()) {
      idle_.reserve(all_.size() + 1);  // so that give_back cannot fail
      all_.push_back(std::make_unique<one>(*this));
      idle_.push_back(all_.back().get());
    }
    one& operation = *idle_.back();
    idle_.pop_back();
    operation.open();
    return operation;
  }
  void give_back(one& operation) noexcept { idle_.push_back(&operation); }

 private:
  Staging staging_;
  dynamic_array<std::unique_ptr<one>> all_;
  dynamic_array<one*> idle_;
};

}  // namespace detail

/// A communicator for device memory: it copies spans of device memory to the host, communicates with another
/// communicator, and copies the results back. For communicators that cannot read device memory, such as MPI without
/// GPU-direct. Host memory is passed through.
///
/// A communication begins with the copy to the host and so waits for earlier work of the device. It ends when the copy
/// back is done.
template <class Communicator, staging Staging>
class staged : public forwarding<staged<Communicator, Staging>> {
  static_assert(explain_communicator<Communicator>());

 public:
  /// The name of the communicator in messages.
  static constexpr std::string_view name = Communicator::name;
  /// True if elements of this type can be sent and reduced.
  template <class Element>
  static constexpr bool supports = Communicator::template supports<Element>;
  /// As those of the underlying communicator.
  static constexpr bool matches_tags = comm::matches_tags<Communicator>;

  /// Takes over a communicator; pass a duplicate if the original is still used.
  staged(Communicator hosts, Staging memory)
      : channel_{std::make_unique<detail::staged_channel<Staging>>(std::move(memory))}, hosts_{std::move(hosts)} {}

  /// Refuses a copy at compile time: a communicator is moved or duplicated.
  template <class Argument>
  requires std::same_as<Argument, staged&> staged(Argument&& world) : staged{std::move(world)} {
    static_assert(detail::explain_not_copied<Argument>());
  }

  /// The underlying communicator of host memory.
  [[nodiscard]] Communicator& hosts() noexcept { return hosts_; }

  /// Begins a transfer; see `transfer`.
  [[nodiscard]] request begin(const transfer& one) {
    auto& operation = channel_->fresh();
    try {
      operation.begun(comm::begin(hosts_, on_hosts(operation, one)));
    } catch (...) {
      channel_->give_back(operation);
      throw;
    }
    return request{operation};
  }

  /// A communicator of the same ranks with separate messages. Called by all ranks.
  [[nodiscard]] staged duplicate() {
    Communicator hosts = hosts_.duplicate();
    return {std::move(hosts), channel_->staging()};
  }

  /// A communicator of some ranks; see comm::split. Called by all ranks.
  [[nodiscard]] staged<split_of<Communicator>, Staging> split(std::vector<int> ranks) {
    return {comm::split(hosts_, std::move(ranks)), channel_->staging()};
  }

 private:
  friend class forwarding<staged>;

  [[nodiscard]] Communicator& inner() noexcept { return hosts_; }
  [[nodiscard]] const Communicator& inner() const noexcept { return hosts_; }

  /// The transfer with arrays of the host, the input copied to it.
  template <class Operation>
  [[nodiscard]] transfer on_hosts(Operation& operation, const transfer& one) {
    transfer hosts = one;
    const std::size_t read = one.bytes(one.input_count(hosts_.size()));
    const std::size_t written = one.bytes(one.output_count(hosts_.size()));
    if (one.input == one.output && read == written) {  // in place; rank 0's block begins where all of them do
      const bool broadcast = one.what.kind == call_kind::broadcast;
      const bool is_root = hosts_.rank() == one.what.peer;
      hosts.output = operation.lend(0, one.output, written, !broadcast || is_root, !broadcast || !is_root);
      hosts.input = hosts.output;
    } else {
      hosts.input = operation.lend(0, const_cast<void*>(one.input), read, true, false);
      hosts.output = operation.lend(1, one.output, written, false, true);
    }
    return hosts;
  }

  std::unique_ptr<detail::staged_channel<Staging>> channel_;  // outlives the requests of hosts_
  Communicator hosts_;
};

}  // namespace gradus::comm
