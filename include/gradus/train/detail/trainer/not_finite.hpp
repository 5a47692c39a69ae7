// SPDX-License-Identifier: BSL-1.0
//
// What ends a training whose loss is not finite.
#pragma once

#include <cstdint>  // std::uint64_t
#include <string>   // std::string

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/format.hpp"
#include "gradus/core/text.hpp"
#include "gradus/nn/network/memory.hpp"
#include "gradus/nn/network/step_options.hpp"

namespace gradus::train::detail {

/// Reports a loss that is not finite.
/// @param first  the first value that is not finite; an example's number counts from options.first_example
/// @param ranks  that train together
/// @param epoch  counted from 0
/// @param rate   the learning rate of the step
/// @throws numeric_error always
[[noreturn]] void raise_not_finite(const nn::non_finite& first, const nn::step_options& options, int rank, int ranks,
                                   int epoch, double loss, double rate);

}  // namespace gradus::train::detail

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::train::detail {

GRADUS_INLINE void raise_not_finite(const nn::non_finite& first, const nn::step_options& options, int rank, int ranks,
                                    int epoch, double loss, double rate) {
  std::string what = first.where.empty() ? "the loss itself" : first.where;
  std::string hint;
  if (first.example >= 0) {
    append_text(what, {" of example ", first.example, " of the batch on this rank"});
    append_text(hint, {"correct the data, or leave the example out: it is at position ",
                       options.first_example + static_cast<std::uint64_t>(first.example),
                       " in the order of the epoch, both counted from 0. The learning rate is not the cause"});
  } else {
    char shown_rate[32];
    format_text(shown_rate, sizeof(shown_rate), "%g", rate);
    append_text(hint, {"a smaller learning rate than ", shown_rate, ", or a warm-up"});
    if (ranks > 1) {
      hint +=
          ". Or the batch of another rank had a number that is not finite, which comes to this rank with the "
          "gradients: the error of that rank names it";
    }
    if (!first.where.starts_with("parameter ")) {  // else the batch was not looked at
      append_text(hint, {". All inputs and targets of the batch ", ranks > 1 ? "of this rank " : "",
                         "are finite; look for very large ones"});
    }
  }
  hint += ". The network has the parameters of this step: begin again with a new one";
  raise<numeric_error>({"training step ", options.step, " (epoch ", epoch + 1, ", rank ", rank, ")"}, "a finite loss",
                       {loss, ", first not finite: ", what}, hint);
}

}  // namespace gradus::train::detail
#endif
