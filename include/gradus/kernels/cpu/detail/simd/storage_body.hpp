// SPDX-License-Identifier: BSL-1.0
//
// The conversions of storage.hpp between elements of 16 bits and floats, for one instruction set.

// No `#pragma once`: for_each_target.hpp says what to compile.
#if defined(GRADUS_TARGET)

namespace gradus::kernels::detail::GRADUS_TARGET {

template <class Element>
void read_run(target /*of*/, const Element* from, index_t count, computed<Element>* to) noexcept {
  for_each_packet<Element>(0, count, [=](packet<Element> p, index_t i) { p.store(to + i, p.load(from + i)); });
}

template <class Element>
void add_run(target /*of*/, const Element* from, index_t count, computed<Element>* to) noexcept {
  for_each_packet<Element>(0, count,
                           [=](packet<Element> p, index_t i) { p.store(to + i, p.load(to + i) + p.load(from + i)); });
}

template <class Element>
void round_run(target /*of*/, index_t count, computed<Element>* values) noexcept {
  for_each_packet<Element>(0, count, [=](packet<Element> p, index_t i) {
    Element rounded[packet<Element>::lanes];
    p.store(rounded, p.load(values + i));
    p.store(values + i, p.load(rounded));
  });
}

/// Rounds `taps` times `channels` rows of parameters and writes them as rows of pairs of channels.
template <class Element>
void pair_rows(target /*of*/, const float* from, index_t taps, index_t channels, index_t width, float* to) noexcept {
  using words = typename packet<Element>::words;
  for (index_t tap = 0; tap < taps; ++tap) {
    for (index_t c = 0; c < channels; c += 2, to += width) {
      const float* const row = from + (tap * channels + c) * width;
      const float* const later = c + 1 < channels ? row + width : nullptr;
      for_each_packet<Element>(0, width, [=](packet<Element> p, index_t j) {
        typename stored_lanes<Element, int{packet<Element>::lanes}>::type halves[2] = {};
        p.store(reinterpret_cast<Element*>(&halves[0]), p.load(row + j));
        if (later != nullptr) {
          p.store(reinterpret_cast<Element*>(&halves[1]), p.load(later + j));
        }
        const words pairs = __builtin_convertvector(halves[0], words) | __builtin_convertvector(halves[1], words)
                                                                            << 16U;
        p.store(to + j, reinterpret_cast<typename packet<Element>::type>(pairs));
      });
    }
  }
}

template <class Element>
void store_rows(target /*of*/, const computed<Element>* sums, index_t rows, index_t pitch, index_t count,
                const index_t* c_row, const tile_output<Element>& output) noexcept {
  const tile_output<Element> o = output;
  for (index_t m = 0; m < rows; ++m) {
    const computed<Element>* const row = sums + m * pitch;
    const index_t offset = c_row[m];
    for_each_packet<Element>(0, count, [=](packet<Element> p, index_t j) {
      const index_t at = offset + j;
      auto value = p.load(row + j);
      if (o.bias != nullptr) {
        value += o.bias_of_rows ? p.broadcast(o.bias[m]) : p.load(o.bias + j);
      }
      if (o.residual != nullptr) {
        value += p.load(o.residual + at);
      }
      if (o.accumulate) {
        value += p.load(o.c + at);
      }
      if (o.act.any()) {
        value = p.activated(o.act, value);
      }
      if (o.mask != nullptr) {
        value = p.times(o.derivative, p.load(o.mask + at), value);
      }
      p.store(o.c + at, value);
    });
  }
}

}  // namespace gradus::kernels::detail::GRADUS_TARGET

#endif
