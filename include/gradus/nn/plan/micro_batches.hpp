// SPDX-License-Identifier: BSL-1.0
//
// Training steps that compute a batch in micro-batches and add their gradients.
#pragma once

#include <algorithm>  // std::min
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <span>       // std::span

#include "gradus/core/compiled.hpp"
#include "gradus/core/error.hpp"
#include "gradus/core/index.hpp"
#include "gradus/kernels/softmax.hpp"
#include "gradus/nn/network/phase.hpp"
#include "gradus/nn/network/step_hooks.hpp"
#include "gradus/nn/network/step_options.hpp"
#include "gradus/nn/parameter.hpp"

namespace gradus::nn {

namespace detail {

/// The operations of a step in micro-batches.
class partial_steps {
 public:
  partial_steps() = default;
  partial_steps(const partial_steps&) = delete;
  partial_steps& operator=(const partial_steps&) = delete;

  /// Forward, loss and backward of the examples [first, first + count) of the batch.
  virtual kernels::loss_sums train(index_t first, index_t count, const step_options& options, step_hooks* observer) = 0;
  /// For the elements [begin, end): sums = gradients, or sums += gradients if `add`.
  virtual void keep_gradients(index_t begin, index_t end, bool add) = 0;
  /// For the elements [begin, end): gradients += sums.
  virtual void complete_gradients(index_t begin, index_t end) = 0;

 protected:
  ~partial_steps() = default;
};

/// A batch, the size of its micro-batches, and all parameters.
struct batch_in_parts {
  index_t examples = 0;
  index_t at_once = 0;
  std::span<const parameter_description* const> parameters;
};

using parts_rule = kernels::loss_sums (*)(partial_steps& steps, const batch_in_parts& batch, step_options options,
                                          step_hooks* observer);

/// Forwards calls of a step in micro-batches to the step hooks: layers as they run, gradients when those of all
/// micro-batches are added.
class parts_observer final : public step_hooks {
 public:
  parts_observer(partial_steps& steps, const batch_in_parts& batch, step_hooks* observer) noexcept
      : steps_{steps}, batch_{batch}, observer_{observer} {}

  void before_layer(std::size_t layer, phase which) override {
    if (observer_ != nullptr) {
      observer_->before_layer(layer, which);
    }
  }
  void after_layer(std::size_t layer, phase which) override {
    if (observer_ != nullptr) {
      observer_->after_layer(layer, which);
    }
  }
  void gradients_ready(std::size_t first, std::size_t count) override {
    if (!last_part || count == 0) {
      return;
    }
    const parameter_description& end = *batch_.parameters[first + count - 1];
    steps_.complete_gradients(batch_.parameters[first]->offset, end.offset + end.shape.size());
    if (observer_ != nullptr) {
      observer_->gradients_ready(first, count);
    }
  }

  bool last_part = false;

 private:
  partial_steps& steps_;
  const batch_in_parts& batch_;
  step_hooks* observer_;
};

kernels::loss_sums train_in_parts(partial_steps& steps, const batch_in_parts& batch, step_options options,
                                  step_hooks* observer);

}  // namespace detail

/// The number of examples of a micro-batch; 0: the whole batch at once.
///
/// Only programs that set the option compile the code for micro-batches.
struct micro_batches {
  micro_batches() = default;
  /// @throws configuration_error when the number is negative
  micro_batches(index_t size, error_location where = error_location::current())
      : examples{size}, train{&detail::train_in_parts} {
    if (size < 0) {
      raise<configuration_error>("network.compile", "a micro_batch_size of at least 0", {size}, {}, where);
    }
  }

  /// Examples of a micro-batch; 0: the whole batch at once.
  index_t examples = 0;
  /// Runs a step in micro-batches; null: the whole batch at once.
  detail::parts_rule train = nullptr;
};

}  // namespace gradus::nn

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::nn::detail {

GRADUS_INLINE kernels::loss_sums train_in_parts(partial_steps& steps, const batch_in_parts& batch, step_options options,
                                                step_hooks* observer) {
  options.global_examples = options.global_examples > 0 ? options.global_examples : batch.examples;
  parts_observer parts{steps, batch, observer};
  kernels::loss_sums total;
  for (index_t first = 0; first < batch.examples; first += batch.at_once) {
    const index_t count = std::min(batch.at_once, batch.examples - first);
    parts.last_part = first + count == batch.examples;
    total += steps.train(first, count, options, &parts);
    if (!parts.last_part && !batch.parameters.empty()) {
      const parameter_description& last = *batch.parameters.back();
      steps.keep_gradients(0, last.offset + last.shape.size(), first > 0);
    }
    options.first_example += static_cast<std::uint64_t>(count);
  }
  return total;
}

}  // namespace gradus::nn::detail
#endif
