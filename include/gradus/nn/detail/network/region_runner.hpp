// SPDX-License-Identifier: BSL-1.0
//
// The interface between a pass over the layers and the code that runs the branches of a region.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/nn/plan/execution_plan.hpp"

namespace gradus::nn::detail {

/// The operations of a pass over the layers.
class pass_steps {
 public:
  pass_steps() = default;
  pass_steps(const pass_steps&) = delete;
  pass_steps& operator=(const pass_steps&) = delete;

  static constexpr std::size_t alone = execution_plan::none;

  /// Runs one layer on a stream; `alone`: on the device itself.
  virtual void run(std::size_t layer, std::size_t stream) = 0;
  /// Calls body(object, i) once for each stream i, in parallel if there are enough threads.
  virtual void on_all_streams(void (*body)(void* object, std::size_t stream), void* object) = 0;

 protected:
  ~pass_steps() = default;
};

/// Runs the branches of a region in parallel. It holds a function pointer instead of a virtual function: compilers
/// inline the only implementation that they see into every call, even in programs that never use it.
class region_runner {
 public:
  region_runner(const region_runner&) = delete;
  region_runner& operator=(const region_runner&) = delete;

  /// @throws the exception of the first layer that fails, after all streams have stopped
  void run(const stream_schedule::region& region, pass_steps& steps) { run_(*this, region, steps); }

 protected:
  using function = void (*)(region_runner& self, const stream_schedule::region& region, pass_steps& steps);

  explicit region_runner(function body) noexcept : run_{body} {}
  ~region_runner() = default;

 private:
  function run_;
};

}  // namespace gradus::nn::detail
