// SPDX-License-Identifier: BSL-1.0
//
// Running statistics of virtual workers.
#pragma once

#include <cstddef>  // std::byte, std::size_t
#include <cstdint>  // std::uint8_t
#include <cstring>  // std::memcpy
#include <span>     // std::span

#include "gradus/comm/link.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/nn/layer.hpp"
#include "gradus/nn/plan/graph.hpp"
#include "gradus/train/detail/reproducible/worker_epoch.hpp"

namespace gradus::train::detail {

/// The network's buffers, such as running statistics, of each virtual worker of a rank: a worker's statistics are
/// those of its own examples, whoever computes them. At the end of an epoch all ranks get the mean over the workers
/// that had examples in it, added in a binary tree.
///
/// In the course of an epoch, between steps, the network has the buffers of the rank's first worker: an evaluation,
/// which takes over those of rank 0, then has those of worker 0.
template <class Number>
class worker_statistics {
 public:
  /// @param epoch  outlives it
  explicit worker_statistics(worker_epoch& epoch) noexcept : epoch_{&epoch} {}

  /// @param network  the network's buffers
  void use(std::span<Number> network) noexcept { network_ = network; }

  /// In the first step of an epoch the network's buffers become those of all workers.
  void begin_step(int workers) {
    if (network_.empty() || epoch_->began) {
      return;
    }
    epoch_->began = true;
    const auto count = static_cast<std::size_t>(workers);
    if (epoch_->trained.size() != count) {
      epoch_->trained = dynamic_array<std::uint8_t>(count);
      epoch_->statistics = dynamic_array<std::byte>(count * network_.size_bytes());
    }
    for (std::size_t worker = 0; worker < count; ++worker) {
      epoch_->trained[worker] = 0;
      copy(network_.data(), of_worker(worker));
    }
  }

  /// The network gets the buffers of a worker.
  void load(int worker, index_t examples) noexcept {
    if (examples > 0 && !network_.empty()) {  // an evaluation may have changed them
      copy(of_worker(static_cast<std::size_t>(worker)), network_.data());
    }
  }
  /// What the worker's step has made of them.
  void store(int worker, index_t examples) noexcept {
    if (examples > 0 && !network_.empty()) {
      copy(network_.data(), of_worker(static_cast<std::size_t>(worker)));
      epoch_->trained[static_cast<std::size_t>(worker)] = 1;
    }
  }
  void end_step() noexcept {
    if (!network_.empty()) {
      copy(of_worker(0), network_.data());
    }
  }

  /// Ends an epoch: called by all ranks. Nothing after an evaluation. Buffers of the network that no step changes stay
  /// as they are: the mean of equal numbers is rounded.
  void combine(comm::link& group, const nn::graph& net) {
    if (!epoch_->began) {
      return;
    }
    epoch_->began = false;
    const std::size_t elements = network_.size();
    double workers = 0;  // that had examples
    for (std::size_t worker = 0; worker < epoch_->trained.size(); ++worker) {
      if (epoch_->trained[worker] != 0) {
        ++workers;
      } else {
        for (std::size_t i = 0; i < elements; ++i) {
          of_worker(worker)[i] = 0;
        }
      }
    }
    add_pairs(of_worker(0), epoch_->trained.size());
    double sum[] = {workers};
    dynamic_array<Number> all(elements * static_cast<std::size_t>(group.size()));
    if (group.size() > 1) {
      group.sum(sum);
      const std::size_t bytes = elements * sizeof(Number);
      group.all_gather({reinterpret_cast<const std::uint8_t*>(of_worker(0)), bytes},
                       {reinterpret_cast<std::uint8_t*>(all.data()), all.size() * sizeof(Number)});
    } else {
      copy(of_worker(0), all.data());
    }
    add_pairs(all.data(), static_cast<std::size_t>(group.size()));
    if (sum[0] > 0) {
      std::size_t i = 0;
      for (const nn::graph::node& n : net.nodes()) {
        for (const nn::buffer_description& each : n.buffers) {
          for (const std::size_t end = i + static_cast<std::size_t>(each.size); i < end; ++i) {
            network_[i] = each.fixed ? network_[i] : static_cast<Number>(static_cast<double>(all[i]) / sum[0]);
          }
        }
      }
    }
  }

 private:
  [[nodiscard]] Number* of_worker(std::size_t worker) noexcept {
    return reinterpret_cast<Number*>(epoch_->statistics.data()) + worker * network_.size();
  }

  void copy(const Number* from, Number* to) noexcept {
    std::memcpy(static_cast<void*>(to), from, network_.size_bytes());
  }

  /// The first of `count` arrays becomes the sum of all, neighbors first. @pre count is a power of two
  void add_pairs(Number* arrays, std::size_t count) noexcept {
    const std::size_t elements = network_.size();
    for (std::size_t apart = 1; apart < count; apart *= 2) {
      for (std::size_t to = 0; to < count; to += 2 * apart) {
        for (std::size_t i = 0; i < elements; ++i) {
          arrays[to * elements + i] += arrays[(to + apart) * elements + i];
        }
      }
    }
  }

  worker_epoch* epoch_;
  std::span<Number> network_;
};

}  // namespace gradus::train::detail
