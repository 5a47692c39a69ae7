// SPDX-License-Identifier: BSL-1.0
//
// The options of a training.
#pragma once

#include <limits>  // std::numeric_limits

#include "gradus/core/error.hpp"
#include "gradus/optim/schedule.hpp"

namespace gradus::train {

/// How long and how fast to train.
struct fit_options {
  int epochs = 1;                        ///< passes over the training set, at least 0
  optim::schedule learning_rate = 0.01;  ///< of the number of passes over the training set done so far
  /// The line that messages of fit name: the one that writes the options in braces, as a call of fit does. (Options
  /// that are declared without braces have no line of the program.)
  error_location where = error_location::current();
};

/// The same for a training that goes on step by step: trainer.start.
struct stepwise_options {
  int epochs =
      std::numeric_limits<int>::max();   ///< passes over the training set, at least 0; as many as there are calls
  optim::schedule learning_rate = 0.01;  ///< of the number of passes over the training set done so far
  error_location where = error_location::current();  ///< as fit_options::where
};

}  // namespace gradus::train
