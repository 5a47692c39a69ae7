// SPDX-License-Identifier: BSL-1.0
//
// Runs the correlations of a pass, for all kinds of tiles: first tasks that pack the weights, then tasks for blocks of
// results.
#pragma once

#include <algorithm>  // std::max
#include <cstddef>    // std::byte, std::size_t
#include <utility>    // std::exchange

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/conv2d.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/simd/panels.hpp"

namespace gradus::kernels::detail {

/// The correlations of a pass over a batch. A base class instead of a template parameter, so that the loops over
/// phases, groups and tasks are compiled once for all kinds of tiles.
template <class Element>
class correlations {
 public:
  using real = computed<Element>;  // of weights, sums and the inputs of tiles

  [[nodiscard]] std::size_t workspace_bytes() const {
    return packed_bytes() + static_cast<std::size_t>(threads_) * worker_bytes();
  }

  /// The workspace of prepare, and of run_packed: that of the workers.
  [[nodiscard]] std::size_t workers_bytes() const { return static_cast<std::size_t>(threads_) * worker_bytes(); }
  /// Bytes of the packed weights. They depend neither on the number of threads nor on the batch.
  [[nodiscard]] std::size_t packed_bytes() const {
    const auto elements = static_cast<std::size_t>(count(&correlations::group_weights));
    return (elements * sizeof(real) + 63) / 64 * 64;
  }

  /// @param x  the source: (batch, source channels, ...)
  void run(cpu& device, const Element* x, const real* w, const tile_output<Element>& output,
           std::byte* workspace) const {
    if (batch_ == 0) {
      return;
    }
    auto* const packed = reinterpret_cast<real*>(workspace);
    std::byte* const workers = workspace + packed_bytes();
    prepare(device, w, packed, workers);
    run_packed(device, x, packed, output, workers);
  }

  /// Writes the weights as run_packed reads them.
  /// @param packed   packed_bytes()
  /// @param workers  workers_bytes()
  GRADUS_COLD void prepare(cpu& device, const real* w, real* packed, std::byte* workers) const {
    const std::size_t worker_size = worker_bytes();
    for_each_task(device, count(&correlations::pack_tasks), [&, this](index_t worker, index_t task) {
      const group_task p = locate(task, &correlations::pack_tasks);
      pack(p.c, p.group, p.task, w, packed + p.weights,
           scratch{workers + static_cast<std::size_t>(worker) * worker_size});
    });
  }

  /// As run, with the weights of prepare. @pre the batch is not empty
  void run_packed(cpu& device, const Element* x, const real* packed, const tile_output<Element>& output,
                  std::byte* workers) const {
    const std::size_t worker_size = worker_bytes();
    for_each_task(device, count(&correlations::block_tasks), [&, this](index_t worker, index_t task) {
      const group_task p = locate(task, &correlations::block_tasks);
      run_block(p.c, p.group, p.task, x, packed + p.weights, output,
                scratch{workers + static_cast<std::size_t>(worker) * worker_size});
    });
  }

 protected:
  /// @param whole  all groups are computed at once, as one group with all channels
  correlations(const tile_kernels<real>& kernels, const conv2d_geometry& g, channel_order order, pass which,
               index_t threads, index_t batch, bool whole = false)
      : kernels_{kernels},
        geometry_{g},
        order_{order},
        which_{which},
        threads_{threads},
        batch_{batch},
        whole_{whole},
        phases_{phase_count(g, order, which)} {}
  correlations(const correlations&) = delete;
  correlations& operator=(const correlations&) = delete;
  ~correlations() = default;

  [[nodiscard]] GRADUS_COLD correlation at(index_t phase) const {
    correlation c = correlation_of(geometry_, order_, which_, phase);
    if (whole_) {
      c.terms = c.channels *= c.groups;
      c.results *= std::exchange(c.groups, 1);
    } else {
      c.terms = units_of<Element>(kernels_, c.channels);
    }
    return c;
  }

  // The following functions concern one group of one correlation.
  [[nodiscard]] virtual index_t pack_tasks(const correlation& c) const = 0;
  [[nodiscard]] virtual index_t block_tasks(const correlation& c) const = 0;
  [[nodiscard]] virtual index_t group_weights(const correlation& c) const = 0;     ///< packed, in elements
  [[nodiscard]] virtual std::size_t memory_bytes(const correlation& c) const = 0;  ///< of a worker
  /// @param to  memory for the weights of the group
  virtual void pack(const correlation& c, index_t group, index_t task, const real* w, real* to,
                    scratch memory) const = 0;
  /// @param packed  the packed weights of the group
  virtual void run_block(const correlation& c, index_t group, index_t task, const Element* x, const real* packed,
                         const tile_output<Element>& output, scratch memory) const = 0;

  const tile_kernels<real>& kernels_;
  conv2d_geometry geometry_;
  channel_order order_;
  pass which_;
  index_t threads_;
  index_t batch_;
  bool whole_;
  index_t phases_;

 private:
  using count_of_group = index_t (correlations::*)(const correlation&) const;

  /// A task of one of the correlations.
  struct group_task {
    correlation c;
    index_t group;
    index_t task;     ///< index in the group
    index_t weights;  ///< offset of the group's weights
  };

  [[nodiscard]] index_t count(count_of_group of) const {
    index_t tasks = 0;
    for (index_t phase = 0; phase < phases_; ++phase) {
      const correlation c = at(phase);
      tasks += c.groups * (this->*of)(c);
    }
    return tasks;
  }
  [[nodiscard]] group_task locate(index_t task, count_of_group of) const {
    if (const index_t tasks = count(of); whole_ && tasks % phases_ == 0) {
      // Phases take turns, while the rows of the source that all of them read are in the cache.
      task = task % phases_ * (tasks / phases_) + task / phases_;
    }
    index_t weights = 0;
    for (index_t phase = 0;; ++phase) {
      const correlation c = at(phase);
      const index_t tasks = (this->*of)(c);
      if (task < c.groups * tasks) {
        const index_t group = task / tasks;
        return {c, group, task % tasks, weights + group * group_weights(c)};
      }
      task -= c.groups * tasks;
      weights += c.groups * group_weights(c);
    }
  }
  [[nodiscard]] std::size_t worker_bytes() const {
    std::size_t bytes = 0;
    for (index_t phase = 0; phase < phases_; ++phase) {
      bytes = std::max(bytes, memory_bytes(at(phase)));
    }
    return bytes;
  }
};

}  // namespace gradus::kernels::detail
