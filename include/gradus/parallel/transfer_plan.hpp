// SPDX-License-Identifier: BSL-1.0
//
// The transfers of a step of parallel::all_reduce, as data: its buckets, and their parts in the order in which they
// travel.
#pragma once

#include <span>     // std::span
#include <utility>  // std::move

#include "gradus/core/index.hpp"
#include "gradus/optim/segment.hpp"
#include "gradus/parallel/all_reduce.hpp"
#include "gradus/parallel/bucket.hpp"

namespace gradus::parallel {

/// What the ranks of an all-reduce send in a step, and in which order.
struct transfer_plan {
  bucket_list buckets;  ///< in the order in which backward completes their gradients
  part_list parts;      ///< of all buckets, in the order in which they begin to travel
};

/// The plan that a training with these options follows.
/// @param segments       of the flat buffers, in the order in which backward completes their gradients
/// @param elements       of the flat buffers
/// @param element_bytes  of a gradient
/// @throws configuration_error when options make no sense
[[nodiscard]] inline transfer_plan plan_transfers(const all_reduce& options, std::span<const optim::segment> segments,
                                                  index_t elements, index_t element_bytes) {
  transfer_plan plan{.buckets = detail::buckets_of(options, segments, elements, element_bytes), .parts = {}};
  const std::span<const bucket> buckets{plan.buckets.data(), plan.buckets.size()};
  plan.parts = detail::in_order(detail::parts_of(options, buckets, element_bytes), options.order);
  return plan;
}

}  // namespace gradus::parallel
