// SPDX-License-Identifier: BSL-1.0
//
// What one rank computes and exchanges in a step: the times of layers and the parameters whose gradients travel.
#pragma once

#include <algorithm>  // std::clamp, std::max, std::min, std::sort
#include <cstddef>    // std::size_t
#include <cstdint>    // std::uint64_t
#include <span>       // std::span
#include <string>     // std::string
#include <vector>     // std::vector

#include "gradus/core/error.hpp"
#include "gradus/core/finite.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::sim {

/// The passes of a layer for the batch of one rank.
struct layer_times {
  std::string name;     ///< as the network calls it
  double forward = 0;   ///< seconds
  double backward = 0;  ///< seconds
};

/// A step of one rank without any communication.
struct workload {
  std::string model;                ///< for messages
  index_t batch_size_per_rank = 1;  ///< images
  std::vector<layer_times> layers;  ///< in the order of forward
  /// Parameters in the order in which backward completes their gradients, as in optim::flat_parameters.
  std::vector<optim::segment> segments;
  std::vector<std::size_t> layer_of_segment;  ///< the index in `layers` of each segment
  index_t elements = 0;                       ///< of the flat buffers, with padding
  index_t element_bytes = 4;                  ///< of a gradient and of a value
  double update = 0;                          ///< seconds of the update rule for all parameters
  double other = 0;                           ///< seconds of a step that belong to no layer: loss, input, callbacks
  /// Measured computing times of single steps over their median, for example 0.98, 1.00, 1.05; empty: no variation.
  std::vector<double> variation;

  /// Seconds of a step of one rank without communication.
  [[nodiscard]] double seconds() const noexcept {
    double sum = update + other;
    for (const layer_times& each : layers) {
      sum += each.forward + each.backward;
    }
    return sum;
  }
  /// Bytes of all gradients.
  [[nodiscard]] double bytes() const noexcept {
    return static_cast<double>(elements) * static_cast<double>(element_bytes);
  }

  /// @throws configuration_error for times and sizes that make no sense
  void check() const {
    const auto refuse = [&, this](const char* expected, double got) {
      raise<configuration_error>({"sim::workload of '", model, "'"}, expected, {got});
    };
    for (const layer_times& each : layers) {
      if (!is_finite(each.forward) || !is_finite(each.backward) || each.forward < 0 || each.backward < 0) {
        raise<configuration_error>({"sim::workload of '", model, "', layer '", each.name, "'"},
                                   "times of at least 0 seconds", {each.forward, " and ", each.backward});
      }
    }
    if (!is_finite(update) || !is_finite(other) || update < 0 || other < 0) {
      refuse("update and other times of at least 0 seconds", update + other);
    }
    if (!(seconds() > 0)) {
      refuse("a step that takes more than 0 seconds", seconds());
    }
    if (batch_size_per_rank < 1 || element_bytes < 1) {
      refuse("a batch size and element_bytes of at least 1",
             static_cast<double>(std::min(batch_size_per_rank, element_bytes)));
    }
    if (segments.size() != layer_of_segment.size()) {
      refuse("a layer for each segment", static_cast<double>(layer_of_segment.size()));
    }
    index_t end = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].size < 0 || segments[i].offset < end || layer_of_segment[i] >= layers.size() ||
          (i > 0 && layer_of_segment[i] > layer_of_segment[i - 1])) {
        raise<configuration_error>(
            {"sim::workload of '", model, "', parameter '", segments[i].name, "'"},
            "segments that follow each other, of layers from the last to the first",
            {"offset ", segments[i].offset, ", size ", segments[i].size, ", layer ", layer_of_segment[i]});
      }
      end = segments[i].offset + segments[i].size;
    }
    if (elements < end) {
      refuse("a flat buffer that holds all segments", static_cast<double>(elements));
    }
    for (const double each : variation) {
      if (!is_finite(each) || each <= 0) {
        refuse("variations above 0", each);
      }
    }
  }
};

/// The factor by which a rank computes longer than the median in a step: one of the measured ones, by a random number
/// that depends on seed, rank and step only.
class compute_variation {
 public:
  /// @param measured  workload::variation
  compute_variation(std::span<const double> measured, std::uint64_t seed)
      : sorted_(measured.begin(), measured.end()), random_{seed, "sim::compute_variation"} {
    std::sort(sorted_.begin(), sorted_.end());
  }

  /// The factor of a rank in a step.
  [[nodiscard]] double of(int rank, int step) const noexcept {
    if (sorted_.empty()) {
      return 1;
    }
    const auto bits = random_.block(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(step))[0];
    const double position = static_cast<double>(bits) / 4294967296.0 * static_cast<double>(sorted_.size()) - 0.5;
    const double inside = std::clamp(position, 0.0, static_cast<double>(sorted_.size() - 1));
    const auto low = static_cast<std::size_t>(inside);
    const std::size_t high = std::min(low + 1, sorted_.size() - 1);
    return sorted_[low] + (inside - static_cast<double>(low)) * (sorted_[high] - sorted_[low]);
  }

  /// The largest factor of `ranks` ranks in a step: what a step waits for where all ranks meet.
  [[nodiscard]] double largest(int ranks, int step) const noexcept {
    double most = of(0, step);
    for (int rank = 1; rank < ranks && !sorted_.empty(); ++rank) {
      most = std::max(most, of(rank, step));
    }
    return most;
  }

 private:
  std::vector<double> sorted_;
  random_stream random_;
};

}  // namespace gradus::sim
