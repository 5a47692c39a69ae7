// SPDX-License-Identifier: BSL-1.0
//
// Times of a device that works while the host goes on.
#pragma once

#include <array>
#include <cstddef>

namespace driver {

/// Places in a step.
enum class step_mark { first_layer, last_layer, update, end };

/// Notes when a device comes to positions of a step, in the order of the work that it is given.
class device_marks {
 public:
  device_marks() = default;
  device_marks(const device_marks&) = delete;
  device_marks& operator=(const device_marks&) = delete;
  virtual ~device_marks() = default;

  /// The work so far is what comes before this position of this step.
  virtual void set(std::size_t step, step_mark which) = 0;
  /// The same for the begin of a pass of a stage, and for its end. A step with passes has no mark of its layers.
  virtual void begin_pass(std::size_t step, bool forward) = 0;
  virtual void end_pass(std::size_t step) = 0;
  /// The seconds between the marks of a step, which is one of the last two: forward, backward and update. Waits for the
  /// end of the step.
  [[nodiscard]] virtual std::array<double, 3> seconds(std::size_t step) = 0;
};

}  // namespace driver
