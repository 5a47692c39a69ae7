// SPDX-License-Identifier: BSL-1.0
//
// Lists of segments in the memory of a CUDA device, split into pieces for thread blocks.
#pragma once

#include <cuda_runtime_api.h>  // cudaFree, cudaMalloc, cudaMemcpy

#include <algorithm>  // std::min
#include <cstddef>    // std::size_t
#include <memory>     // std::make_unique, std::unique_ptr
#include <span>       // std::span
#include <utility>    // std::move

#include "gradus/core/dynamic_array.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cuda.cuh"
#include "gradus/optim/segment.hpp"

namespace gradus::optim::detail {

/// The part of a segment that one thread block handles.
struct segment_piece {
  index_t offset;
  int size;
  int decay;
  int first;   ///< index of the first piece of the segment
  int pieces;  ///< of the segment
  double learning_rate_factor;
};

/// Lists of segments, split into pieces, in device memory. Each list is kept, so that later steps copy nothing.
class segment_tables {
 public:
  static constexpr index_t piece = 8192;  // elements

  explicit segment_tables(const cuda&) {}
  segment_tables(const segment_tables&) = delete;
  segment_tables& operator=(const segment_tables&) = delete;
  ~segment_tables() {
    for (const std::unique_ptr<table>& each : tables_) {
      static_cast<void>(cudaFree(each->on_device));
      static_cast<void>(cudaFree(each->sums));
    }
  }

  struct table {
    dynamic_array<segment_piece> segments;  // the list from which the pieces were made
    segment_piece* on_device = nullptr;
    double* sums = nullptr;  // see sums_of
    index_t pieces = 0;
  };

  [[nodiscard]] const table& of(std::span<const segment> segments) {
    for (const std::unique_ptr<table>& each : tables_) {
      if (same(*each, segments)) {
        return *each;
      }
    }
    return make(segments);
  }

  static constexpr index_t sums_per_piece = 3;

  /// Device memory for sums over the pieces of a list, which is allocated by the first call: sums_per_piece numbers for
  /// each piece.
  [[nodiscard]] double* sums_of(const table& of) {
    for (const std::unique_ptr<table>& each : tables_) {
      if (each.get() == &of && each->sums == nullptr) {
        check_cuda(cudaMalloc(reinterpret_cast<void**>(&each->sums),
                              static_cast<std::size_t>(of.pieces * sums_per_piece) * sizeof(double)),
                   "cudaMalloc");
      }
    }
    return of.sums;
  }

 private:
  [[nodiscard]] static bool same(const table& known, std::span<const segment> segments) noexcept {
    if (known.segments.size() != segments.size()) {
      return false;
    }
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const segment_piece& one = known.segments[i];
      if (one.offset != segments[i].offset || one.size != segments[i].size || (one.decay != 0) != segments[i].decay ||
          one.learning_rate_factor != segments[i].learning_rate_factor) {
        return false;
      }
    }
    return true;
  }

  const table& make(std::span<const segment> segments) {
    auto made = std::make_unique<table>();
    dynamic_array<segment_piece> pieces;
    for (const segment& one : segments) {
      const int first = static_cast<int>(pieces.size());
      const int count = static_cast<int>((one.size + piece - 1) / piece);
      segment_piece whole{one.offset, static_cast<int>(one.size), one.decay ? 1 : 0, first,
                          count,      one.learning_rate_factor};
      made->segments.push_back(whole);
      for (index_t begin = 0; begin < one.size; begin += piece) {
        whole.offset = one.offset + begin;
        whole.size = static_cast<int>(std::min(piece, one.size - begin));
        pieces.push_back(whole);
      }
    }
    made->pieces = static_cast<index_t>(pieces.size());
    if (!pieces.empty()) {
      const std::size_t bytes = pieces.size() * sizeof(segment_piece);
      check_cuda(cudaMalloc(reinterpret_cast<void**>(&made->on_device), bytes), "cudaMalloc");
      tables_.push_back(std::move(made));  // tables_ frees its memory from now on
      check_cuda(cudaMemcpy(tables_.back()->on_device, pieces.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    } else {
      tables_.push_back(std::move(made));
    }
    return *tables_.back();
  }

  dynamic_array<std::unique_ptr<table>> tables_;
};

}  // namespace gradus::optim::detail
