// SPDX-License-Identifier: BSL-1.0
//
// --eval: how many labels of a data set the network of a checkpoint finds, and how fast.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "../program/output_file.hpp"
#include "gradus/comm/link.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/device_policy.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/nn/metric.hpp"
#include "gradus/nn/metrics.hpp"
#include "gradus/nn/network/image_batch.hpp"
#include "gradus/nn/score_observer.hpp"
#include "gradus/nn/targets.hpp"
#include "input.hpp"
#include "result.hpp"
#include "settings.hpp"

namespace driver {

class ranks;
class training;

/// Compares scores with labels.
class score_counts {
 public:
  explicit score_counts(const gradus::metrics::example_shape& shape);

  void update(const gradus::metrics::batch& examples);
  /// The sum of the losses of some examples.
  void add(double loss, index_t examples) noexcept {
    examples_[0] += loss;
    examples_[1] += static_cast<double>(examples);
  }
  /// Gives every rank the sums of all. Called by all ranks.
  void combine(gradus::comm::link& group);
  /// All but the checkpoint.
  [[nodiscard]] evaluation_result compute() const;

 private:
  double examples_[2] = {};  // the sum of their losses, and their number
  gradus::metrics::accuracy::state first_;
  std::optional<gradus::metrics::top_k::state> among_five_;                 // of more than five classes
  std::optional<gradus::metrics::intersection_over_union::state> overlap_;  // of labels for each pixel
};

/// Gives the scores of an evaluation to score_counts, in parts that stay in cache.
template <class Element, class Layout, class Device>
class counting_observer final : public gradus::nn::score_observer<Element, Device> {
 public:
  explicit counting_observer(score_counts& counts) noexcept : counts_{&counts} {}

  void scored(const gradus::nn::image_batch<const Element, Device>& scores,
              const gradus::nn::targets<Element, Device>& labels) override {
    constexpr index_t elements = index_t{1} << 16U;
    const index_t one = std::max(index_t{1}, scores.extent(1) * scores.extent(2) * scores.extent(3));
    const index_t most = std::max(index_t{1}, elements / one);
    for (index_t first = 0; first < scores.examples(); first += most) {
      part_.assign(scores, gradus::dense_strides<Layout, 4>(scores.extents()), labels, first,
                   std::min(most, scores.examples() - first));
      counts_->update(part_);
    }
  }

 private:
  score_counts* counts_;
  gradus::metrics::batch part_;
};

/// The options with the number of batches of an evaluation, and their size.
/// @param examples  of the set
/// @param ranks     that share each batch
[[nodiscard]] settings with_evaluated_batches(settings chosen, index_t examples, int ranks);

/// Evaluates the newest checkpoint, and with an interval those after it until the program is ended. Called by all
/// ranks.
result measure_evaluation(const settings& chosen, ranks& all, training& trained, const input_set& input,
                          program::output_file& json);

}  // namespace driver
