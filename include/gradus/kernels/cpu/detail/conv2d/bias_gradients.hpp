// SPDX-License-Identifier: BSL-1.0
//
// Sums over all pixels of each channel: the gradient of a bias.
#pragma once

#include <algorithm>  // std::clamp, std::copy_n, std::fill_n, std::min
#include <cstddef>    // std::byte, std::size_t

#include "gradus/core/element.hpp"
#include "gradus/core/extents.hpp"
#include "gradus/core/index.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/conv2d/correlation.hpp"
#include "gradus/kernels/cpu/detail/simd/storage.hpp"
#include "gradus/kernels/cpu/detail/simd/tile.hpp"

namespace gradus::kernels::detail {

/// Sums the elements of each channel. Chunks of pixels are summed apart and then added in order. Only the shape sets
/// the chunks, so the sums do not depend on the number of threads.
template <class Element>
class bias_gradients {
  using real = parameter_element_t<Element>;

 public:
  bias_gradients(const image_extents& images, channel_order order) : images_{images}, order_{order} {
    const index_t pixels = images.n * images.h * images.w;
    chunks_ = order == channel_order::last ? std::clamp<index_t>(pixels / least_pixels, 1, most_chunks) : 1;
  }

  [[nodiscard]] std::size_t workspace_bytes() const noexcept {
    // A smaller batch has fewer chunks.
    return static_cast<std::size_t>(chunks_ * images_.c) * sizeof(real);
  }

  /// @param sums  one for each channel; overwritten
  void run(cpu& device, const Element* from, real* sums, std::byte* workspace) const {
    const index_t channels = images_.c;
    const index_t plane = images_.h * images_.w;
    const tile_kernels<real>& kernels = current_tile_kernels<real>();
    if (order_ == channel_order::first) {
      device.parallel_for(channels, 1, [&, this](index_t begin, index_t end) {
        for (index_t c = begin; c < end; ++c) {
          real sum = 0;
          for (index_t n = 0; n < images_.n; ++n) {
            sum += sum_of(kernels, from + (n * channels + c) * plane, plane);
          }
          sums[c] = sum;
        }
      });
      return;
    }
    auto* const of_chunks = reinterpret_cast<real*>(workspace);
    const index_t pixels = images_.n * plane;
    device.parallel_for(chunks_, 1, [&, this](index_t begin, index_t end) {
      for (index_t chunk = begin; chunk < end; ++chunk) {
        real* const to = of_chunks + chunk * channels;
        std::fill_n(to, channels, real{});
        for (index_t p = part_begin(pixels, chunks_, chunk); p < part_begin(pixels, chunks_, chunk + 1); ++p) {
          add_run(kernels, from + p * channels, channels, to);
        }
      }
    });
    std::copy_n(of_chunks, channels, sums);
    for (index_t chunk = 1; chunk < chunks_; ++chunk) {
      for (index_t c = 0; c < channels; ++c) {
        sums[c] += of_chunks[chunk * channels + c];
      }
    }
  }

 private:
  static constexpr index_t least_pixels = 256;  // of a chunk
  static constexpr index_t most_chunks = 32;

  [[nodiscard]] static real sum_of(const tile_kernels<real>& kernels, const Element* from, index_t count) {
    constexpr index_t width = 64;
    real sums[width] = {};
    for (index_t i = 0; i < count; i += width) {
      add_run(kernels, from + i, std::min(width, count - i), sums);
    }
    real sum = 0;
    for (const real each : sums) {
      sum += each;
    }
    return sum;
  }

  image_extents images_;
  channel_order order_;
  index_t chunks_;
};

}  // namespace gradus::kernels::detail
