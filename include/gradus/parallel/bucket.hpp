// SPDX-License-Identifier: BSL-1.0
//
// Buckets: runs of parameters whose gradients travel together.
#pragma once

#include <cstddef>  // std::size_t
#include <span>     // std::span
#include <string>   // std::string

#include "gradus/core/compiled.hpp"
#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/text.hpp"
#include "gradus/optim/segment.hpp"

namespace gradus::parallel {

/// Parameters that follow each other in the flat buffers, in the order in which backward completes their gradients: no
/// gradient is copied to travel with others.
struct bucket {
  std::size_t first_segment = 0;  ///< index of its first parameter in flat_parameters::segments
  std::size_t segments = 0;       ///< number of parameters
  index_t begin = 0;              ///< its first element in the flat buffers
  index_t end = 0;                ///< one past its last element; the bucket includes the padding between parameters

  /// One past the index of its last parameter.
  [[nodiscard]] std::size_t end_segment() const noexcept { return first_segment + segments; }
  /// Number of elements, with the padding between parameters.
  [[nodiscard]] index_t size() const noexcept { return end - begin; }
};

/// Buckets in the order in which backward completes their gradients.
using bucket_list = dynamic_array<bucket>;

/// Cuts the flat buffers into buckets: one is closed when it has reached its size. The first is small, so that
/// communication begins early in backward (as in PyTorch's DistributedDataParallel; S. Li et al., PyTorch distributed:
/// experiences on accelerating data parallel training, 2020, section 3.2).
/// @param elements  of the flat buffers
/// @param first     elements that close the first bucket
/// @param others    elements that close any other
[[nodiscard]] bucket_list make_buckets(std::span<const optim::segment> segments, index_t elements, index_t first,
                                       index_t others);

/// A piece of a bucket that travels by itself; what is neither cut nor fused is a parameter, a part and a bucket.
struct part {
  std::size_t bucket = 0;  ///< index of its bucket in the bucket_list
  index_t begin = 0;       ///< its first element in the flat buffers
  index_t end = 0;         ///< one past its last element

  /// Number of elements.
  [[nodiscard]] index_t size() const noexcept { return end - begin; }
};

/// Parts, bucket by bucket, in the order of their elements.
using part_list = dynamic_array<part>;

/// Cuts buckets into parts, bucket by bucket. Long transfers are cut so that urgent ones overtake them (Y. Peng et al.,
/// A generic communication scheduler for distributed DNN training acceleration, 2019: ByteScheduler).
/// @param most  elements of a part; 0: a part is a bucket
[[nodiscard]] part_list make_parts(std::span<const bucket> buckets, index_t most);

/// The rule of all_reduce::credit_bytes: whether a part may begin to travel. A single part may be longer.
/// @param bytes_under_way  of the parts that have begun and are not complete
/// @param bytes            of the part
[[nodiscard]] constexpr bool has_credit(index_t bytes_under_way, index_t bytes, index_t credit_bytes) noexcept {
  return bytes_under_way == 0 || bytes_under_way + bytes <= credit_bytes;
}

/// One line: "bucket 2: 3 parameters from conv2.weight to conv1.weight, 52096 elements".
[[nodiscard]] std::string describe(std::span<const bucket> buckets, std::size_t index,
                                   std::span<const optim::segment> segments);

}  // namespace gradus::parallel

#ifdef GRADUS_HAS_DEFINITIONS
namespace gradus::parallel {

GRADUS_INLINE bucket_list make_buckets(std::span<const optim::segment> segments, index_t elements, index_t first,
                                       index_t others) {
  bucket_list buckets;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const bool opens = buckets.empty() || buckets.back().size() >= (buckets.size() == 1 ? first : others);
    if (opens) {
      if (!buckets.empty()) {
        buckets.back().end = segments[i].offset;  // with the padding before the next parameter
      }
      buckets.push_back({.first_segment = i, .segments = 0, .begin = segments[i].offset, .end = 0});
    }
    ++buckets.back().segments;
    buckets.back().end = segments[i].offset + segments[i].size;
  }
  if (!buckets.empty()) {
    buckets.back().end = elements;
  }
  return buckets;
}

GRADUS_INLINE part_list make_parts(std::span<const bucket> buckets, index_t most) {
  part_list parts;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    index_t begin = buckets[i].begin;
    do {
      const index_t left = buckets[i].end - begin;
      const index_t end = most > 0 && left > most ? begin + most : buckets[i].end;
      parts.push_back({.bucket = i, .begin = begin, .end = end});
      begin = end;
    } while (begin < buckets[i].end);
  }
  return parts;
}

GRADUS_INLINE std::string describe(std::span<const bucket> buckets, std::size_t index,
                                   std::span<const optim::segment> segments) {
  const bucket& one = buckets[index];
  std::string text = gradus::join({"bucket ", index, ": "});
  if (one.segments == 1) {
    append_text(text, {segments[one.first_segment].name});
  } else {
    append_text(text, {one.segments, " parameters from ", segments[one.first_segment].name, " to ",
                       segments[one.end_segment() - 1].name});
  }
  append_text(text, {", ", one.size(), " elements"});
  return text;
}

}  // namespace gradus::parallel
#endif
