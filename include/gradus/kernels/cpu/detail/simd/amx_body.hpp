// SPDX-License-Identifier: BSL-1.0
//
// Tiles of pairs in the registers of AMX: 2 x 2 squares of 16 x 16 sums. The file is included several times, each time
// into another namespace.

// No `#pragma once`. GRADUS_AMX_NAMESPACE is the namespace; GRADUS_AMX_INSTRUCTION says that the instructions exist;
// both are undefined at the end. Nothing is included here: the includer's function target would apply to it.
#if defined(GRADUS_AMX_NAMESPACE)

namespace gradus::kernels::detail::GRADUS_AMX_NAMESPACE {

inline constexpr index_t lines = 16;  // of a register; each has 16 sums or up to 16 pairs of terms
inline constexpr index_t line_bytes = 64;

#if defined(GRADUS_AMX_INSTRUCTION)

/// The registers 0 to 3 hold sums, 4 and 5 lines of pairs of a, 6 and 7 lines of b.
struct registers {
  /// @param depth  pairs of terms of a product: the columns of registers 4 and 5, the lines of registers 6 and 7
  static void configure(index_t depth) noexcept {
    struct alignas(64) {
      std::uint8_t palette = 1;
      std::uint8_t start = 0;
      std::uint8_t reserved[14] = {};
      std::uint16_t column_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } shapes;
    static_assert(sizeof(shapes) == 64);
    for (int i = 0; i < 8; ++i) {
      shapes.column_bytes[i] = static_cast<std::uint16_t>(i == 4 || i == 5 ? 4 * depth : line_bytes);
      shapes.rows[i] = static_cast<std::uint8_t>(i >= 6 ? depth : lines);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
  }
  static void release() noexcept { __asm__ volatile("tilerelease" : :); }
  template <int Register>
  static void zero() noexcept {
    __asm__ volatile("{tilezero %%tmm%c0|tilezero tmm%c0}" : : "i"(Register));
  }
  template <int Register>
  static void load(const void* from, index_t step_bytes) noexcept {
    __asm__ volatile("{tileloadd (%1,%2,1), %%tmm%c0|tileloadd tmm%c0, [%1+%2*1]}"
                     :
                     : "i"(Register), "r"(from), "r"(step_bytes)
                     : "memory");
  }
  template <int Register>
  static void store(void* to, index_t step_bytes) noexcept {
    __asm__ volatile("{tilestored %%tmm%c0, (%1,%2,1)|tilestored [%1+%2*1], tmm%c0}"
                     :
                     : "i"(Register), "r"(to), "r"(step_bytes)
                     : "memory");
  }
  template <class Stored, int Sums, int Rows, int Columns>
  static void multiply() noexcept {
    if constexpr (std::is_same_v<Stored, bfloat16>) {
      __asm__ volatile("{tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0|tdpbf16ps tmm%c0, tmm%c1, tmm%c2}"
                       :
                       : "i"(Sums), "i"(Rows), "i"(Columns));
    } else {  // tdpfp16ps, which assemblers know since binutils 2.40
      __asm__ volatile(".byte 0xC4, 0xE2, %c0, 0x5C, %c1"
                       :
                       : "i"((15 - Columns) << 3 | 3), "i"(0xC0 | Sums << 3 | Rows));
    }
  }
};

#else

template <class Number>
using square = std::array<std::array<Number, lines>, lines>;
struct register_file {
  index_t depth = 0;  ///< 0: not configured
  std::array<square<float>, 4> sums{};
  std::array<square<std::uint32_t>, 4> pairs{};  ///< of registers 4 to 7
};

/// The same registers in memory, with the arithmetic of the instructions as Intel describes it.
struct registers {
  static void configure(index_t depth) noexcept { file.depth = depth; }
  static void release() noexcept { file.depth = 0; }
  template <int Register>
  static void zero() noexcept {
    file.sums[Register] = {};
  }
  template <int Register>
  static void load(const void* from, index_t step_bytes) noexcept {
    const bool rows = Register == 4 || Register == 5;
    const index_t count = Register >= 6 ? file.depth : lines;
    for (index_t i = 0; i < count; ++i) {
      void* to = nullptr;
      if constexpr (Register < 4) {
        to = file.sums[Register][static_cast<std::size_t>(i)].data();
      } else {
        to = file.pairs[Register - 4][static_cast<std::size_t>(i)].data();
      }
      std::memcpy(to, static_cast<const std::byte*>(from) + i * step_bytes,
                  static_cast<std::size_t>(rows ? 4 * file.depth : line_bytes));
    }
  }
  template <int Register>
  static void store(void* to, index_t step_bytes) noexcept {
    for (index_t i = 0; i < lines; ++i) {
      std::memcpy(static_cast<std::byte*>(to) + i * step_bytes, file.sums[Register][static_cast<std::size_t>(i)].data(),
                  line_bytes);
    }
  }
  /// Lower and upper halves of pairs have sums of their own, in the order of the pairs, each term fused; then both are
  /// added to each other and to the sums. Subnormal floats become 0 before and after each operation. Subnormal numbers
  /// of float16 are normal floats.
  template <class Stored, int Sums, int Rows, int Columns>
  static void multiply() noexcept {
    register_file& all = file;
    const auto depth = static_cast<std::size_t>(all.depth);
    row b[lines][2] = {};
    for (std::size_t k = 0; k < depth; ++k) {
      for (int j = 0; j < lines; ++j) {
        for (unsigned h = 0; h < 2; ++h) {
          b[k][h][j] = half_of<Stored>(all.pairs[Columns - 4][k][static_cast<std::size_t>(j)], h);
        }
      }
    }
    for (std::size_t m = 0; m < lines; ++m) {
      row halves[2] = {};
      for (std::size_t k = 0; k < depth; ++k) {
        for (unsigned h = 0; h < 2; ++h) {
          add_products<Stored>(half_of<Stored>(all.pairs[Rows - 4][m][k], h), b[k][h], halves[h]);
        }
      }
      halves[0] += halves[1];
      flush(halves[0]);
      row sum;
      std::memcpy(&sum, all.sums[Sums][m].data(), sizeof(sum));
      flush(sum);
      sum += halves[0];
      flush(sum);
      std::memcpy(all.sums[Sums][m].data(), &sum, sizeof(sum));
    }
  }

 private:
  typedef float row __attribute__((vector_size(64)));
  typedef std::uint32_t words __attribute__((vector_size(64)));

  /// The lower or the upper half of a pair.
  template <class Stored>
  static float half_of(std::uint32_t pair, unsigned half) noexcept {
    const float value = Stored::from_bits(static_cast<std::uint16_t>(pair >> 16U * half));
    return std::abs(value) < least ? std::copysign(0.0F, value) : value;
  }
  /// Subnormal numbers become 0.
  GRADUS_ALWAYS_INLINE static void flush(row& value) noexcept {
    const words bits = reinterpret_cast<words>(value);
    value = reinterpret_cast<row>((bits & 0x7F800000U) == 0 ? bits & 0x80000000U : bits);
  }
  /// The product of two halves is exact unless it leaves the range of floats, as those of bfloat16 may.
  template <class Stored>
  GRADUS_ALWAYS_INLINE static void add_products(float a, const row& b, row& sum) noexcept {
    const row product = a * b;
    if constexpr (std::is_same_v<Stored, bfloat16>) {
      const words exponent = reinterpret_cast<words>(product) & 0x7F800000U;
      const auto beyond = ((exponent == 0) | (exponent == 0x7F800000U)) & (b != 0.0F);
      constexpr decltype(beyond) none{};
      if (a != 0 && std::memcmp(&beyond, &none, sizeof(none)) != 0) {
        for (int j = 0; j < lines; ++j) {
          sum[j] = fused(a, b[j], sum[j]);
        }
        return;
      }
    }
    sum += product;
    flush(sum);
  }
  static float fused(float a, float b, float sum) noexcept {
    const float result = std::fma(a, b, sum);
    if (std::abs(result) > least || result == 0 || result != result) {
      return result;
    }
    // Tiny or not is decided after rounding to the precision of normal numbers.
    constexpr float scale = 0x1p64F;
    (std::abs(a) < std::abs(b) ? a : b) *= scale;
    const float scaled = std::fma(a, b, sum * scale);
    return std::abs(scaled) < least * scale ? std::copysign(0.0F, result) : result;
  }

  static constexpr float least = std::numeric_limits<float>::min();
  static inline thread_local register_file file;
};

#endif

/// The pairs of terms of a product in registers, for segments of a number of pairs. Segments are divided evenly if that
/// costs few products. Otherwise the last product has zeros behind its terms.
[[nodiscard]] constexpr index_t depth_of(index_t pairs) noexcept {
  constexpr index_t most = 16;
  constexpr index_t least = 9;
  if (pairs <= most) {
    return pairs < 1 ? 1 : pairs;
  }
  for (index_t depth = most; depth >= least; --depth) {
    if (pairs % depth == 0) {
      return depth;
    }
  }
  return most;
}

inline void begin(index_t segment_length) {
  registers::configure(depth_of(segment_length));
}
inline void end() {
  registers::release();
}

/// Places rows in the lines of a register, the 16 lines from `line` on, which are line_step apart in memory.
GRADUS_ALWAYS_INLINE void place_lines(const index_t* a_row, index_t rows, index_t line_step, index_t line,
                                      placed_rows& to) noexcept {
  for (const index_t end = line + lines; line < end && to.count < rows;) {
    const index_t row = to.count++;
    to.line[static_cast<std::size_t>(row)] = static_cast<std::uint8_t>(line);
    const index_t distance = row + 1 < rows ? a_row[row + 1] - a_row[row] : 0;
    if (distance == line_step) {
      ++line;
    } else if (distance > 0 && distance % line_step == 0) {
      line += distance / line_step;
    } else {
      return;
    }
  }
}

/// Implements tile_kernels::place_rows.
inline void place_rows(const index_t* a_row, index_t rows, index_t line_step, placed_rows& to) {
  to.count = 0;
  place_lines(a_row, rows, line_step, 0, to);
  to.first = to.count;
  place_lines(a_row, rows, line_step, lines, to);
}

/// Rows of a tile whose lines are in one register, from line `line` of the tile on.
struct rows_of_register {
  const std::uint8_t* lines_of_rows;
  index_t count;
  index_t line;

  [[nodiscard]] bool all() const noexcept { return count == lines; }
  [[nodiscard]] index_t operator[](index_t row) const noexcept { return lines_of_rows[row] - line; }
};

/// Loads the initial sums of some rows, `step` apart, in a register for each vector of columns.
template <int First, int Vectors>
GRADUS_ALWAYS_INLINE void load_sums(const float* from, index_t step, const rows_of_register& rows) {
  if (from == nullptr) {
    registers::zero<First>();
    if constexpr (Vectors == 2) {
      registers::zero<First + 1>();
    }
    return;
  }
  alignas(64) float spare[std::size_t{lines * Vectors * lines}];
  if (!rows.all()) {
    std::memset(spare, 0, sizeof(spare));
    for (index_t m = 0; m < rows.count; ++m) {
      std::memcpy(spare + rows[m] * Vectors * lines, from + m * step, Vectors * line_bytes);
    }
    from = spare;
    step = Vectors * lines;
  }
  registers::load<First>(from, 4 * step);
  if constexpr (Vectors == 2) {
    registers::load<First + 1>(from + lines, 4 * step);
  }
}

template <int First, int Vectors>
GRADUS_ALWAYS_INLINE void store_lines(float* to, index_t step) {
  registers::store<First>(to, 4 * step);
  if constexpr (Vectors == 2) {
    registers::store<First + 1>(to + lines, 4 * step);
  }
}

template <int First, int Vectors>
GRADUS_ALWAYS_INLINE void store_sums(float* to, index_t step, const rows_of_register& rows) {
  if (rows.all()) {
    store_lines<First, Vectors>(to, step);
    return;
  }
  alignas(64) float spare[std::size_t{lines * Vectors * lines}];
  store_lines<First, Vectors>(spare, Vectors * lines);
  for (index_t m = 0; m < rows.count; ++m) {
    std::memcpy(to + m * step, spare + rows[m] * Vectors * lines, Vectors * line_bytes);
  }
}

/// Adds the products of some pairs to the sums.
template <class Stored, int Vectors, bool Both>
GRADUS_ALWAYS_INLINE void add_products(const float* top, const float* bottom, index_t line_step, const float* b,
                                       index_t b_step) noexcept {
  registers::load<6>(b, 4 * b_step);
  registers::load<4>(top, 4 * line_step);
  registers::multiply<Stored, 0, 4, 6>();
  if constexpr (Vectors == 2) {
    registers::load<7>(b + lines, 4 * b_step);
    registers::multiply<Stored, 1, 4, 7>();
  }
  if constexpr (Both) {
    registers::load<5>(bottom, 4 * line_step);
    registers::multiply<Stored, 2, 5, 6>();
    if constexpr (Vectors == 2) {
      registers::multiply<Stored, 3, 5, 7>();
    }
  }
}

/// The last pairs of a segment that depth_of() does not divide, with zeros behind them.
template <class Stored, int Vectors, bool Both>
void add_rest(const float* top, const float* bottom, index_t line_step, const float* b, index_t b_step, index_t rest) {
  alignas(64) float rows[2][std::size_t{lines * lines}];
  alignas(64) float columns[std::size_t{lines * Vectors * lines}];
  std::memset(rows, 0, sizeof(rows));
  std::memset(columns, 0, sizeof(columns));
  const auto bytes = static_cast<std::size_t>(4 * rest);
  for (index_t i = 0; i < lines; ++i) {
    std::memcpy(rows[0] + i * lines, top + i * line_step, bytes);
    if (Both) {
      std::memcpy(rows[1] + i * lines, bottom + i * line_step, bytes);
    }
  }
  for (index_t k = 0; k < rest; ++k) {
    std::memcpy(columns + k * Vectors * lines, b + k * b_step, Vectors * line_bytes);
  }
  add_products<Stored, Vectors, Both>(rows[0], rows[1], lines, columns, Vectors * lines);
}

template <class Stored, int Vectors, bool Both>
void multiply_lines(const tile_call<float>& call) {
  const placed_rows& placed = *call.placed;
  const rows_of_register top{placed.line.data(), placed.first, 0};
  const rows_of_register bottom{placed.line.data() + placed.first, placed.count - placed.first, lines};
  const index_t depth = depth_of(call.segment_length);
  const index_t rest = call.segment_length % depth;
  const index_t line_step = call.line_step;
  const float* const a_top = call.a + call.a_row[0];
  const float* const a_bottom = Both ? call.a + call.a_row[top.count] : nullptr;
  const float* b = call.b;
  for (index_t column = 0; column != call.panels * Vectors * lines; column += Vectors * lines) {
    const float* const initial = call.initial == nullptr ? nullptr : call.initial + column;
    load_sums<0, Vectors>(initial, call.sums_step, top);
    if constexpr (Both) {
      load_sums<2, Vectors>(initial == nullptr ? nullptr : initial + top.count * call.sums_step, call.sums_step,
                            bottom);
    }
    for (index_t s = 0; s < call.segment_count; ++s) {
      index_t at = call.segments[s];
      for (index_t k = call.segment_length / depth; k > 0; --k) {
        add_products<Stored, Vectors, Both>(a_top + at, a_bottom + at, line_step, b, call.b_step);
        at += depth;
        b += depth * call.b_step;
      }
      if (rest != 0) {
        add_rest<Stored, Vectors, Both>(a_top + at, a_bottom + at, line_step, b, call.b_step, rest);
        b += rest * call.b_step;
      }
    }
    b += call.b_skip;
    float* const sums = call.partial + column;
    if (call.whole_lines) {
      store_lines<0, Vectors>(sums, call.sums_step);
      if constexpr (Both) {
        store_lines<2, Vectors>(sums + lines * call.sums_step, call.sums_step);
      }
    } else {
      store_sums<0, Vectors>(sums, call.sums_step, top);
      if constexpr (Both) {
        store_sums<2, Vectors>(sums + top.count * call.sums_step, call.sums_step, bottom);
      }
    }
  }
}

/// As multiply_pairs, for any number of rows that place_rows() gives.
template <class Stored, int Vectors>
void multiply_tiles(const tile_call<float>& call) {
  if (call.placed->count > call.placed->first) {
    multiply_lines<Stored, Vectors, true>(call);
  } else {
    multiply_lines<Stored, Vectors, false>(call);
  }
}

template <class Stored, int Vectors>
constexpr tile_table<float> tiles_of_lines() {
  tile_table<float> by_rows{};
  for (index_t rows = 1; rows <= 2 * lines; ++rows) {
    by_rows[static_cast<std::size_t>(rows)] = &multiply_tiles<Stored, Vectors>;
  }
  return by_rows;
}

/// The kernels of an instruction set, with tiles of pairs of Stored: bfloat16 or float16.
template <class Stored>
[[nodiscard]] constexpr tile_kernels<float> with_amx_tiles(tile_kernels<float> kernels, instruction_set set) {
  kernels.set = set;
  kernels.lanes = lines;
  kernels.rows = 2 * lines;
  kernels.width = 2 * lines;
  kernels.wide = tiles_of_lines<Stored, 2>();
  kernels.narrow = tiles_of_lines<Stored, 1>();
  kernels.group = 2;
  kernels.begin = &begin;
  kernels.end = &end;
  kernels.place_rows = &place_rows;
  return kernels;
}

}  // namespace gradus::kernels::detail::GRADUS_AMX_NAMESPACE

#undef GRADUS_AMX_NAMESPACE
#undef GRADUS_AMX_INSTRUCTION
#endif
