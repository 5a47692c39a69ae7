// SPDX-License-Identifier: BSL-1.0
//
// Dropout on the CPU.
// Module: kernels. Depends on: tensor.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t, std::uint32_t, std::uint64_t
#include <type_traits>  // std::is_same_v, std::type_identity_t

#include "gradus/core/element.hpp"                    // real_element
#include "gradus/core/index.hpp"                      // index_t
#include "gradus/core/random.hpp"                     // random_stream
#include "gradus/device/cpu.hpp"                      // cpu
#include "gradus/kernels/cpu/elementwise_packet.hpp"  // packet, for_each_packet
#include "gradus/kernels/dropout.hpp"                 // dropout_threshold
#include "gradus/layout/layout_policy.hpp"            // axis, layout_policy
#include "gradus/layout/mapping.hpp"                  // dense_mapping
#include "gradus/tensor/tensor_view.hpp"              // image_view

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>  // AVX2, in one function that runs only where it exists
#endif

namespace gradus::kernels {

namespace detail {

/// 0 or `scale` for every lane.
template <class Packet, class Element>
GRADUS_ALWAYS_INLINE typename Packet::type kept_factor(const std::uint8_t* kept, Element scale) noexcept {
  return __builtin_convertvector(Packet::load_bytes(kept), typename Packet::type) * scale;
}

/// y = kept * scale * x
template <class Element>
void drop_run(index_t count, const Element* x, const std::uint8_t* kept, Element scale, Element* y) noexcept {
  for_each_packet<Element>(0, count, [=]<class Packet>(Packet, index_t i) {
    Packet::store(y + i, Packet::load(x + i) * kept_factor<Packet>(kept + i, scale));
  });
}

/// keep[0 .. 4 * blocks) = dropout_keeps of consecutive elements, from block `index` of the stream on.
inline void dropout_blocks(const random_stream& stream, std::uint64_t index, std::uint64_t sequence,
                           std::uint32_t threshold, index_t blocks, std::uint8_t* keep) noexcept {
  for (index_t b = 0; b < blocks; ++b) {
    const auto words = stream.block(index + static_cast<std::uint64_t>(b), sequence);
    for (const std::uint32_t word : words) {
      *keep++ = word >= threshold ? 1 : 0;
    }
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
/// The same with 8 blocks at once.
__attribute__((target("avx2"))) inline void dropout_blocks_avx2(const random_stream& stream, std::uint64_t index,
                                                                std::uint64_t sequence, std::uint32_t threshold,
                                                                index_t blocks, std::uint8_t* keep) noexcept {
  const __m256i multiplier0 = _mm256_set1_epi32(static_cast<int>(0xD2511F53U));
  const __m256i multiplier1 = _mm256_set1_epi32(static_cast<int>(0xCD9E8D57U));
  const __m256i limit = _mm256_set1_epi32(static_cast<int>(threshold));
  const __m256i order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (; blocks >= 8 && (index & 0xFFFFFFFFU) <= 0xFFFFFFFFU - 8; blocks -= 8, index += 8, keep += 32) {
    __m256i c0 = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(index)), order);
    __m256i c1 = _mm256_set1_epi32(static_cast<int>(index >> 32U));
    __m256i c2 = _mm256_set1_epi32(static_cast<int>(sequence));
    __m256i c3 = _mm256_set1_epi32(static_cast<int>(sequence >> 32U));
    auto key0 = static_cast<std::uint32_t>(stream.key());
    auto key1 = static_cast<std::uint32_t>(stream.key() >> 32U);
    for (int round = 0; round < 10; ++round) {
      // 32 x 32 -> 64 bits in even and in odd places, then high and low halves put together again.
      const __m256i even0 = _mm256_mul_epu32(c0, multiplier0);
      const __m256i odd0 = _mm256_mul_epu32(_mm256_srli_epi64(c0, 32), multiplier0);
      const __m256i even1 = _mm256_mul_epu32(c2, multiplier1);
      const __m256i odd1 = _mm256_mul_epu32(_mm256_srli_epi64(c2, 32), multiplier1);
      const __m256i high0 = _mm256_blend_epi32(_mm256_srli_epi64(even0, 32), odd0, 0xAA);
      const __m256i low0 = _mm256_blend_epi32(even0, _mm256_slli_epi64(odd0, 32), 0xAA);
      const __m256i high1 = _mm256_blend_epi32(_mm256_srli_epi64(even1, 32), odd1, 0xAA);
      const __m256i low1 = _mm256_blend_epi32(even1, _mm256_slli_epi64(odd1, 32), 0xAA);
      c0 = _mm256_xor_si256(_mm256_xor_si256(high1, c1), _mm256_set1_epi32(static_cast<int>(key0)));
      c1 = low1;
      c2 = _mm256_xor_si256(_mm256_xor_si256(high0, c3), _mm256_set1_epi32(static_cast<int>(key1)));
      c3 = low0;
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    // word >= threshold as all ones, then the 4 words of a block into the 4 bytes of its place.
    c0 = _mm256_cmpeq_epi32(_mm256_max_epu32(c0, limit), c0);
    c1 = _mm256_cmpeq_epi32(_mm256_max_epu32(c1, limit), c1);
    c2 = _mm256_cmpeq_epi32(_mm256_max_epu32(c2, limit), c2);
    c3 = _mm256_cmpeq_epi32(_mm256_max_epu32(c3, limit), c3);
    const __m256i bytes = _mm256_or_si256(
        _mm256_or_si256(_mm256_and_si256(c0, _mm256_set1_epi32(1)), _mm256_and_si256(c1, _mm256_set1_epi32(1 << 8))),
        _mm256_or_si256(_mm256_and_si256(c2, _mm256_set1_epi32(1 << 16)),
                        _mm256_and_si256(c3, _mm256_set1_epi32(1 << 24))));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(keep), bytes);
  }
  dropout_blocks(stream, index, sequence, threshold, blocks, keep);
}
#endif

/// keep[0 .. count) for the elements from `first` on of one example, count <= dropout_chunk; keep has 32 bytes to
/// spare.
inline constexpr index_t dropout_chunk = 2048;
using dropout_keep = std::array<std::uint8_t, static_cast<std::size_t>(dropout_chunk) + 32>;

/// Fills keep and returns the place in it of element `first`.
inline const std::uint8_t* dropout_range(const random_stream& stream, std::uint64_t step, std::uint64_t example,
                                         index_t first, index_t count, std::uint32_t threshold, dropout_keep& keep) {
  const index_t block = first / 4;
  const index_t blocks = (first + count + 3) / 4 - block;
  const std::uint64_t index = (example << 32U) + static_cast<std::uint64_t>(block);
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  if (wide) {
    dropout_blocks_avx2(stream, index, step, threshold, (blocks + 7) / 8 * 8, keep.data());
    return keep.data() + first % 4;
  }
#endif
  dropout_blocks(stream, index, step, threshold, blocks, keep.data());
  return keep.data() + first % 4;
}

}  // namespace detail

/// See kernels/dropout.hpp.
template <real_element Element, layout_policy Layout>
void dropout_forward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                     image_view<Element, Layout, cpu> y, double rate, const random_stream& stream, std::uint64_t step,
                     std::uint64_t first_example, std::uint8_t* mask) {
  const image_extents shape{y.extents()};
  const index_t pixels = shape.h * shape.w;
  const index_t example_size = shape.c * pixels;
  const std::uint32_t threshold = dropout_threshold(rate);
  const auto scale = static_cast<Element>(1.0 / (1.0 - rate));
  const Element* const from = x.data();
  Element* const to = y.data();

  if (Layout::order == std::array{axis::n, axis::c, axis::h, axis::w} || pixels == 1) {
    // Memory order is logical order: chunks of examples.
    const index_t chunks = (example_size + detail::dropout_chunk - 1) / detail::dropout_chunk;
    const index_t grain =
        std::max(index_t{1}, 8192 / std::max(index_t{1}, std::min(example_size, detail::dropout_chunk)));
    device.parallel_for(shape.n * chunks, grain, [&](index_t begin, index_t end) {
      detail::dropout_keep keep;
      for (index_t chunk = begin; chunk < end; ++chunk) {
        const index_t n = chunk / chunks;
        const index_t first = chunk % chunks * detail::dropout_chunk;
        const index_t count = std::min(detail::dropout_chunk, example_size - first);
        const std::uint8_t* const kept = detail::dropout_range(
            stream, step, first_example + static_cast<std::uint64_t>(n), first, count, threshold, keep);
        const index_t offset = n * example_size + first;
        detail::drop_run(count, from + offset, kept, scale, to + offset);
        if (mask != nullptr) {
          std::copy(kept, kept + count, mask + offset);
        }
      }
    });
    return;
  }
  // Tiles of pixels and channels; a channel's part of the tile is a run of logical neighbours.
  constexpr index_t tile_pixels = 124;  // at most 32 blocks of the stream, wherever it begins
  constexpr index_t tile_channels = 32;
  const dense_mapping<Layout> at{shape};
  const index_t tiles = (pixels + tile_pixels - 1) / tile_pixels;
  device.parallel_for(shape.n * tiles, 1, [&](index_t begin, index_t end) {
    detail::dropout_keep keep;
    std::array<std::uint8_t, static_cast<std::size_t>(tile_pixels * tile_channels)> turned;  // (pixel, channel)
    for (index_t tile = begin; tile < end; ++tile) {
      const index_t n = tile / tiles;
      const index_t first = tile % tiles * tile_pixels;
      const index_t count = std::min(tile_pixels, pixels - first);
      for (index_t c0 = 0; c0 < shape.c; c0 += tile_channels) {
        const index_t width = std::min(tile_channels, shape.c - c0);
        for (index_t c = 0; c < width; ++c) {
          const std::uint8_t* const kept =
              detail::dropout_range(stream, step, first_example + static_cast<std::uint64_t>(n),
                                    (c0 + c) * pixels + first, count, threshold, keep);
          for (index_t i = 0; i < count; ++i) {
            turned[static_cast<std::size_t>(i * tile_channels + c)] = kept[i];
          }
        }
        for (index_t i = 0; i < count; ++i) {
          const index_t offset = at(n, c0, (first + i) / shape.w, (first + i) % shape.w);
          const index_t stride = at.stride(axis::c);
          const std::uint8_t* const kept = turned.data() + i * tile_channels;
          if (stride == 1) {
            detail::drop_run(width, from + offset, kept, scale, to + offset);
          } else {
            for (index_t c = 0; c < width; ++c) {
              to[offset + c * stride] = from[offset + c * stride] * (kept[c] != 0 ? scale : Element{0});
            }
          }
          if (mask != nullptr && stride == 1) {
            std::copy(kept, kept + width, mask + offset);
          } else if (mask != nullptr) {
            for (index_t c = 0; c < width; ++c) {
              mask[offset + c * stride] = kept[c];
            }
          }
        }
      }
    }
  });
}

/// See kernels/dropout.hpp.
template <real_element Element>
void dropout_backward(cpu& device, index_t count, const Element* dy, const std::uint8_t* mask, double scale,
                      Element* dx, bool accumulate) {
  device.parallel_for(count, index_t{1} << 14U, [=](index_t begin, index_t end) {
    if (!accumulate) {
      detail::drop_run(end - begin, dy + begin, mask + begin, static_cast<Element>(scale), dx + begin);
      return;
    }
    detail::for_each_packet<Element>(begin, end, [=]<class Packet>(Packet, index_t i) {
      Packet::store(dx + i, Packet::load(dx + i) + Packet::load(dy + i) * detail::kept_factor<Packet>(
                                                                              mask + i, static_cast<Element>(scale)));
    });
  });
}

}  // namespace gradus::kernels
