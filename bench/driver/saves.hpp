// SPDX-License-Identifier: BSL-1.0
//
// The checkpoints of a measurement, and what they cost.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "gradus/checkpoint/checkpoints.hpp"
#include "settings.hpp"

namespace driver {

/// The folder of a rank. Independent ranks are trainings of their own: each has one.
[[nodiscard]] inline std::string checkpoint_folder(const settings& chosen, int rank, int ranks) {
  const bool own = chosen.update == variable_update::independent && ranks > 1 && !chosen.checkpoint_dir.empty();
  return own ? chosen.checkpoint_dir + "/rank" + std::to_string(rank) : chosen.checkpoint_dir;
}

/// The callback of a rank that saves; without a folder it does nothing. A signal ends the program without a save:
/// ranks compare nothing after a step.
class saves_of_rank {
 public:
  saves_of_rank(const settings& chosen, std::string folder)
      : folder_{std::move(folder)},
        resumes_{chosen.resume},
        callback_{folder_, {.every = chosen.checkpoint_every, .signals = false, .on_save = [this](const auto& cost) {
                              costs_.push_back(cost);
                            }}} {}
  saves_of_rank(const saves_of_rank&) = delete;
  saves_of_rank& operator=(const saves_of_rank&) = delete;

  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  [[nodiscard]] bool resumes() const noexcept { return resumes_; }
  [[nodiscard]] gradus::train::checkpoints& callback() noexcept { return callback_; }
  /// Of the saves that have ended.
  [[nodiscard]] const std::vector<gradus::train::checkpoint_cost>& costs() const noexcept { return costs_; }
  /// Waits for the save that is under way.
  void wait() { callback_.on_finish(); }

 private:
  std::string folder_;
  bool resumes_;
  std::vector<gradus::train::checkpoint_cost> costs_;
  gradus::train::checkpoints callback_;  // ends before the costs, to which it adds
};

}  // namespace driver
