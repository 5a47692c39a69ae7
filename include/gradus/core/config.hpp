// SPDX-License-Identifier: BSL-1.0
//
// Compiler differences and the assertion macro.
#pragma once

// Every header of gradus includes this one, directly or through another header, before it declares anything. So an old
// compiler reports what is missing instead of thousands of follow-up errors. #error does not end a compilation; a
// missing file does.
#if (defined(__clang__) && !defined(__apple_build_version__) && __clang_major__ < 15) || \
    (defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 11)
#error "gradus needs g++ 11, clang 15 or a newer compiler: choose it with CXX=g++-12 or -DCMAKE_CXX_COMPILER=g++-12"
#include <the error above ends the compilation>
#elif __cplusplus < 202002L
#error "gradus needs C++20: compile with -std=c++20, or with CMake link gradus::gradus, which requires it"
#include <the error above ends the compilation>
#elif !__has_include(<source_location>)
#error "gradus needs <source_location>: use the C++ library of g++ 11, LLVM 16 or newer"
#include <the error above ends the compilation>
#endif

// g++ before 13 warns about the deliberately undefined operands in its own AVX-512 functions, which Eigen calls
// (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593). The warnings are suppressed where those functions are first
// included. A program may have included them, or Eigen, before: see GRADUS_BEGIN_PACKETS.
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#define GRADUS_BEGIN_PACKETS                                                           \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wuninitialized\"") \
      _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define GRADUS_END_PACKETS _Pragma("GCC diagnostic pop")
GRADUS_BEGIN_PACKETS
#include <immintrin.h>
GRADUS_END_PACKETS
#else
/// Functions that call Eigen's packet functions stand between these two. A warning about inlined code is suppressed if
/// one of the places is that it was inlined into.
#define GRADUS_BEGIN_PACKETS
#define GRADUS_END_PACKETS
#endif

// A program, all of whose files define GRADUS_PORTABLE_KERNELS, contains the portable kernels only: it compiles in less
// time, for debugging and sanitizers, and computes more slowly.
#if defined(__x86_64__) && !defined(GRADUS_PORTABLE_KERNELS)
#define GRADUS_X86_KERNELS
#endif

#include <cassert>      // assert
#include <type_traits>  // std::remove_cvref_t

/// Checks a precondition of an unchecked access in debug builds; costs nothing with NDEBUG.
#define GRADUS_ASSERT(condition) assert(condition)

// GRADUS_NEVER_INLINE and GRADUS_COLD (small instead of fast: for code that runs at most once a layer) stand only where
// a measurement shows that they pay; tests/layering limits their number. docs/design/compile_time.md says how to
// measure.
#if defined(__GNUC__) || defined(__clang__)
#define GRADUS_ALWAYS_INLINE [[gnu::always_inline]] inline
#define GRADUS_NEVER_INLINE [[gnu::noinline]]
#define GRADUS_COLD [[gnu::cold, gnu::noinline]]
#define GRADUS_RESTRICT __restrict__
#else
#define GRADUS_ALWAYS_INLINE inline
#define GRADUS_NEVER_INLINE
#define GRADUS_COLD
#define GRADUS_RESTRICT
#endif

// What a function with the attribute `flatten` calls. GCC inlines it without another word, clang only what is called
// directly. Not always_inline with GCC: it compiles a function after what it calls, and does not follow calls by
// functions that are always_inline.
#if defined(__clang__)
#define GRADUS_FLATTENED [[gnu::always_inline]]
#else
#define GRADUS_FLATTENED
#endif

#if defined(__CUDACC__)
#define GRADUS_HOST_DEVICE __host__ __device__  // for functions that expressions on a GPU call for each element
#else
#define GRADUS_HOST_DEVICE
#endif
#if defined(__CUDA_ARCH__)
#define GRADUS_KEEP_LOOP _Pragma("unroll 1")  // for a loop that rarely runs: small code instead of fast code
#else
#define GRADUS_KEEP_LOOP
#endif

/// Selects SIMD lanes of two vectors by constant indices: first the SIMD lanes of `a`, then those of `b`.
#if defined(__clang__) || !defined(__GNUC__) || __GNUC__ >= 12
#define GRADUS_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else  // g++ 11. No function returns the vector, because g++ would warn about its calling convention.
#define GRADUS_SHUFFLE(a, b, ...)                                  \
  __extension__({                                                  \
    ::gradus::shuffled<decltype((a)[0]), __VA_ARGS__> shuffled_in; \
    shuffled_in.from(a, b);                                        \
    shuffled_in.lanes;                                             \
  })
namespace gradus {
/// The result of GRADUS_SHUFFLE with g++ 11.
template <class Element, int... Lane>
struct shuffled {
  typedef std::remove_cvref_t<Element> type __attribute__((vector_size(sizeof...(Lane) * sizeof(Element))));
  type lanes;
  template <class Vector>
  GRADUS_ALWAYS_INLINE void from(const Vector& a, const Vector& b) noexcept {
    constexpr int count = sizeof(a) / sizeof(a[0]);
    lanes = type{(Lane < count ? a[Lane % count] : b[Lane % count])...};
  }
};
}  // namespace gradus
#endif
