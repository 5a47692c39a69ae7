// SPDX-License-Identifier: BSL-1.0
//
// Dropout on the CPU.
#pragma once

#include <algorithm>    // std::max, std::min
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <cstdint>      // std::uint8_t, std::uint32_t, std::uint64_t
#include <type_traits>  // std::is_same_v, std::type_identity_t

#include "gradus/core/config.hpp"
#include "gradus/core/element.hpp"
#include "gradus/core/index.hpp"
#include "gradus/core/random.hpp"
#include "gradus/device/cpu.hpp"
#include "gradus/kernels/cpu/detail/simd/packets.hpp"
#include "gradus/kernels/cpu/elementwise.hpp"
#include "gradus/kernels/dropout.hpp"
#include "gradus/layout/layout_policy.hpp"
#include "gradus/layout/mapping.hpp"
#include "gradus/tensor/tensor_view.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>  // SSE2: part of every x86-64, and a tenth of what all intrinsics cost the compiler
#endif

namespace gradus::kernels {

namespace detail {

/// y = kept * scale * x
template <class Element>
void drop_run(index_t count, const Element* x, const std::uint8_t* kept, computed<Element> scale, Element* y) {
  on_target([=](auto target) { keep(target, index_t{0}, count, x, kept, scale, y, false); });
}

/// keep[0 .. 4 * blocks) = dropout_keeps of consecutive elements, starting at block `index` of the stream.
inline void dropout_blocks(const random_stream& stream, std::uint64_t index, std::uint64_t sequence,
                           std::uint32_t threshold, index_t blocks, std::uint8_t* keep) noexcept {
  for (index_t b = 0; b < blocks; ++b) {
    const auto words = stream.block(index + static_cast<std::uint64_t>(b), sequence);
    for (const std::uint32_t word : words) {
      *keep++ = word >= threshold ? 1 : 0;
    }
  }
}

#if defined(__SSE2__)
/// The same for 4 blocks at a time. A 32-bit word of each of two blocks is in the lower half of a 64-bit SIMD lane. The
/// upper halves do not matter: the product reads only the lower ones.
inline void dropout_blocks_sse2(const random_stream& stream, std::uint64_t index, std::uint64_t sequence,
                                std::uint32_t threshold, index_t blocks, std::uint8_t* keep) noexcept {
  const auto all = [](std::uint64_t value) {
    return _mm_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(value)));
  };
  constexpr int rounds = 10;
  __m128i keys[rounds][2];
  for (std::uint32_t round = 0; round < rounds; ++round) {
    keys[round][0] = all(stream.key() + std::uint64_t{0x9E3779B9U} * round);
    keys[round][1] = all((stream.key() >> 32U) + std::uint64_t{0xBB67AE85U} * round);
  }
  const __m128i multipliers[] = {all(0xD2511F53U), all(0xCD9E8D57U)};
  const __m128i sign = all(0x80000000U);  // SSE2 has only signed comparisons
  const __m128i limit = _mm_xor_si128(all(threshold), sign);
  for (; blocks >= 4 && (index & 0xFFFFFFFFU) <= 0xFFFFFFFFU - 4; blocks -= 4, index += 4, keep += 16) {
    __m128i words[2][4];  // of two pairs of blocks
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      words[pair][0] = _mm_add_epi32(all(index), _mm_setr_epi32(2 * pair, 0, 2 * pair + 1, 0));
      words[pair][1] = all(index >> 32U);
      words[pair][2] = all(sequence);
      words[pair][3] = all(sequence >> 32U);
    }
    for (const auto& key : keys) {
#pragma GCC unroll 2
      for (int pair = 0; pair < 2; ++pair) {
        __m128i(&word)[4] = words[pair];
        const __m128i product0 = _mm_mul_epu32(word[0], multipliers[0]);
        const __m128i product1 = _mm_mul_epu32(word[2], multipliers[1]);
        word[0] = _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(product1, 32), word[1]), key[0]);
        word[1] = product1;
        word[2] = _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(product0, 32), word[3]), key[1]);
        word[3] = product0;
      }
    }
    // The words of a block become adjacent, and word >= threshold becomes 1 in a byte.
    __m128i below[2];
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      const __m128i low_half = _mm_set_epi32(0, -1, 0, -1);
      const __m128i(&word)[4] = words[pair];
      const __m128i front = _mm_or_si128(_mm_and_si128(word[0], low_half), _mm_slli_epi64(word[1], 32));
      const __m128i back = _mm_or_si128(_mm_and_si128(word[2], low_half), _mm_slli_epi64(word[3], 32));
      const __m128i first = _mm_cmpgt_epi32(limit, _mm_xor_si128(_mm_unpacklo_epi64(front, back), sign));
      const __m128i second = _mm_cmpgt_epi32(limit, _mm_xor_si128(_mm_unpackhi_epi64(front, back), sign));
      below[pair] = _mm_packs_epi32(first, second);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(keep),
                     _mm_add_epi8(_mm_packs_epi16(below[0], below[1]), _mm_set1_epi8(1)));
  }
  dropout_blocks(stream, index, sequence, threshold, blocks, keep);
}
#endif

/// keep[0 .. count) for `count` <= dropout_chunk elements of one example, starting at `first`; keep has 32 bytes more.
inline constexpr index_t dropout_chunk = 2048;
using dropout_keep = std::array<std::uint8_t, static_cast<std::size_t>(dropout_chunk) + 32>;

/// Fills keep and returns a pointer to the entry of element `first`.
inline const std::uint8_t* dropout_range(const random_stream& stream, std::uint64_t step, std::uint64_t example,
                                         index_t first, index_t count, std::uint32_t threshold, dropout_keep& keep) {
  const index_t block = first / 4;
  const index_t blocks = (first + count + 3) / 4 - block;
  const std::uint64_t index = (example << 32U) + static_cast<std::uint64_t>(block);
#if defined(__SSE2__)
  dropout_blocks_sse2(stream, index, step, threshold, (blocks + 3) / 4 * 4, keep.data());
#else
  dropout_blocks(stream, index, step, threshold, blocks, keep.data());
#endif
  return keep.data() + first % 4;
}

/// Inputs and outputs of a forward pass. `keep` may be null.
template <class Element>
struct dropout_pass {
  image_extents shape;
  const Element* x;
  Element* y;
  std::uint8_t* keep;
  std::uint32_t threshold;
  computed<Element> scale;
  random_stream stream;
  std::uint64_t step;
  std::uint64_t first_example;
};

/// For layouts whose memory order is the logical order: works on chunks of examples.
template <class Element>
void drop_in_order(cpu& device, const dropout_pass<Element>& pass) {
  const index_t example_size = pass.shape.c * pass.shape.h * pass.shape.w;
  const index_t chunks = (example_size + dropout_chunk - 1) / dropout_chunk;
  const index_t grain = std::max(index_t{1}, 8192 / std::max(index_t{1}, std::min(example_size, dropout_chunk)));
  device.parallel_for(pass.shape.n * chunks, grain, [&pass, chunks, example_size](index_t begin, index_t end) {
    dropout_keep keep;
    for (index_t chunk = begin; chunk < end; ++chunk) {
      const index_t n = chunk / chunks;
      const index_t first = chunk % chunks * dropout_chunk;
      const index_t count = std::min(dropout_chunk, example_size - first);
      const std::uint8_t* const kept =
          dropout_range(pass.stream, pass.step, pass.first_example + static_cast<std::uint64_t>(n), first, count,
                        pass.threshold, keep);
      const index_t offset = n * example_size + first;
      drop_run(count, pass.x + offset, kept, pass.scale, pass.y + offset);
      if (pass.keep != nullptr) {
        std::copy(kept, kept + count, pass.keep + offset);
      }
    }
  });
}

/// Works on tiles of pixels and channels. A channel's part of a tile is a run of logical neighbors.
/// @param strides  of (n, c, h, w), in elements
template <class Element>
void drop_in_tiles(cpu& device, const dropout_pass<Element>& pass, const std::array<index_t, 4>& strides) {
  constexpr index_t tile_pixels = 124;  // at most 32 blocks of the stream, wherever the tile begins
  constexpr index_t tile_channels = 32;
  const image_extents& shape = pass.shape;
  const index_t pixels = shape.h * shape.w;
  const index_t tiles = (pixels + tile_pixels - 1) / tile_pixels;
  device.parallel_for(shape.n * tiles, 1, [&](index_t begin, index_t end) {
    dropout_keep keep;
    std::array<std::uint8_t, static_cast<std::size_t>(tile_pixels * tile_channels)> transposed;  // (pixel, channel)
    const index_t stride = strides[1];
    for (index_t tile = begin; tile < end; ++tile) {
      const index_t n = tile / tiles;
      const index_t first = tile % tiles * tile_pixels;
      const index_t count = std::min(tile_pixels, pixels - first);
      for (index_t c0 = 0; c0 < shape.c; c0 += tile_channels) {
        const index_t width = std::min(tile_channels, shape.c - c0);
        for (index_t c = 0; c < width; ++c) {
          const std::uint8_t* const kept =
              dropout_range(pass.stream, pass.step, pass.first_example + static_cast<std::uint64_t>(n),
                            (c0 + c) * pixels + first, count, pass.threshold, keep);
          for (index_t i = 0; i < count; ++i) {
            transposed[static_cast<std::size_t>(i * tile_channels + c)] = kept[i];
          }
        }
        for (index_t i = 0; i < count; ++i) {
          const index_t offset =
              n * strides[0] + c0 * stride + (first + i) / shape.w * strides[2] + (first + i) % shape.w * strides[3];
          const std::uint8_t* const kept = transposed.data() + i * tile_channels;
          if (stride == 1) {
            drop_run(width, pass.x + offset, kept, pass.scale, pass.y + offset);
          } else {
            for (index_t c = 0; c < width; ++c) {
              pass.y[offset + c * stride] =
                  static_cast<Element>(pass.x[offset + c * stride] * (kept[c] != 0 ? pass.scale : pass.scale * 0));
            }
          }
          if (pass.keep != nullptr && stride == 1) {
            std::copy(kept, kept + width, pass.keep + offset);
          } else if (pass.keep != nullptr) {
            for (index_t c = 0; c < width; ++c) {
              pass.keep[offset + c * stride] = kept[c];
            }
          }
        }
      }
    }
  });
}

}  // namespace detail

/// Implements has_dropout_forward on the CPU.
template <network_element Element, layout_policy Layout>
void dropout_forward(cpu& device, std::type_identity_t<image_view<const Element, Layout, cpu>> x,
                     image_view<Element, Layout, cpu> y, double rate, const random_stream& stream, std::uint64_t step,
                     std::uint64_t first_example, std::uint8_t* mask) {
  const image_extents shape{y.extents()};
  const detail::dropout_pass<Element> pass{.shape = shape,
                                           .x = x.data(),
                                           .y = y.data(),
                                           .keep = mask,
                                           .threshold = dropout_threshold(rate),
                                           .scale = static_cast<detail::computed<Element>>(1.0 / (1.0 - rate)),
                                           .stream = stream,
                                           .step = step,
                                           .first_example = first_example};
  // Images of one pixel have their channels in order in every layout whose slowest axis is n.
  if (Layout::order == std::array{axis::n, axis::c, axis::h, axis::w} ||
      (Layout::order[0] == axis::n && shape.h * shape.w == 1)) {
    detail::drop_in_order(device, pass);
  } else {
    detail::drop_in_tiles(device, pass, dense_strides<Layout, 4>(shape));
  }
}

/// Implements has_dropout_backward on the CPU.
template <network_element Element>
GRADUS_NEVER_INLINE void dropout_backward(cpu& device, index_t count, const Element* dy, const std::uint8_t* mask,
                                          double scale, Element* dx, bool accumulate) {
  const auto factor = static_cast<detail::computed<Element>>(scale);
  detail::for_each_range(device, count, [=](auto target, index_t begin, index_t end) {
    keep(target, begin, end, dy, mask, factor, dx, accumulate);
  });
}

}  // namespace gradus::kernels
