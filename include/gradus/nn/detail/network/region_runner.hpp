// SPDX-License-Identifier: BSL-1.0
//
// Who runs the branches of a region, as a pass sees it.
#pragma once

#include <cstddef>  // std::size_t

#include "gradus/nn/plan/execution_plan.hpp"

namespace gradus::nn::detail {

/// What a pass over the layers calls.
class pass_steps {
 public:
  pass_steps() = default;
  pass_steps(const pass_steps&) = delete;
  pass_steps& operator=(const pass_steps&) = delete;

  static constexpr std::size_t alone = execution_plan::none;

  /// Runs one layer on a stream, or `alone`.
  virtual void run(std::size_t layer, std::size_t stream) = 0;
  /// Calls body(object, i) once for each stream i, at the same time as far as there are threads.
  virtual void on_all_streams(void (*body)(void* object, std::size_t stream), void* object) = 0;

 protected:
  ~pass_steps() = default;
};

/// Runs the branches of a region side by side. A pointer and not a virtual function: compilers put the only
/// implementation that they know of into every call, also where a program never makes one.
class region_runner {
 public:
  region_runner(const region_runner&) = delete;
  region_runner& operator=(const region_runner&) = delete;

  /// @throws what the first layer that fails throws, when no stream runs any more
  void run(const stream_schedule::region& region, pass_steps& steps) { run_(*this, region, steps); }

 protected:
  using function = void (*)(region_runner& self, const stream_schedule::region& region, pass_steps& steps);

  explicit region_runner(function body) noexcept : run_{body} {}
  ~region_runner() = default;

 private:
  function run_;
};

}  // namespace gradus::nn::detail
