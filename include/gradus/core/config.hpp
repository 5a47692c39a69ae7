// SPDX-License-Identifier: BSL-1.0
//
// Compiler differences and the assertion macro. The only header that defines macros.
// Module: core. Depends on: std.
#pragma once

// Every header of gradus includes another one first, and so this one before it declares anything: an old compiler says
// what is missing instead of thousands of consequences. #error does not end a compilation; a missing file does.
#if (defined(__clang__) && !defined(__apple_build_version__) && __clang_major__ < 15) || \
    (defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 11)
#error "gradus needs g++ 11, clang 15 or a newer compiler: choose it with CXX=g++-12 or -DCMAKE_CXX_COMPILER=g++-12"
#include <the error above ends the compilation>
#elif __cplusplus < 202002L
#error "gradus needs C++20: compile with -std=c++20, or with CMake link gradus::gradus, which asks for it"
#include <the error above ends the compilation>
#elif !__has_include(<source_location>)
#error "gradus needs <source_location>: a C++ library as new as that of g++ 11 or LLVM 16"
#include <the error above ends the compilation>
#endif

#include <cassert>  // assert

/// Checks a precondition of an unchecked access in debug builds; costs nothing with NDEBUG.
#define GRADUS_ASSERT(condition) assert(condition)

#if defined(__GNUC__) || defined(__clang__)
#define GRADUS_ALWAYS_INLINE [[gnu::always_inline]] inline
#define GRADUS_NEVER_INLINE [[gnu::noinline]]
#define GRADUS_COLD [[gnu::cold, gnu::noinline]]  // what runs at most once a layer: small code, not fast code
#define GRADUS_RESTRICT __restrict__
#else
#define GRADUS_ALWAYS_INLINE inline
#define GRADUS_NEVER_INLINE
#define GRADUS_COLD
#define GRADUS_RESTRICT
#endif

#if defined(__CUDACC__)
#define GRADUS_HOST_DEVICE __host__ __device__  // what expressions on a GPU call for each element
#else
#define GRADUS_HOST_DEVICE
#endif
#if defined(__CUDA_ARCH__)
#define GRADUS_KEEP_LOOP _Pragma("unroll 1")  // a loop that is rare: small code instead of fast code
#else
#define GRADUS_KEEP_LOOP
#endif

/// Lanes of two vectors by their numbers, like __builtin_shufflevector, which g++ 11 does not have: those of `a` come
/// first, then those of `b`. The numbers are constants.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#define GRADUS_SHUFFLE(a, b, ...) ::gradus::detail::shuffle<__VA_ARGS__>(a, b)

namespace gradus::detail {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // inlined always, so that how a vector is returned does not matter
template <int... Lane, class Vector>
GRADUS_ALWAYS_INLINE auto shuffle(const Vector& a, const Vector& b) noexcept {
  constexpr int lanes = sizeof(a) / sizeof(a[0]);
  const auto lane = a[0];
  typedef decltype(lane) shuffled __attribute__((vector_size(sizeof...(Lane) * sizeof(lane))));
  return shuffled{(Lane < lanes ? a[Lane % lanes] : b[Lane % lanes])...};
}
#pragma GCC diagnostic pop

}  // namespace gradus::detail
#else
#define GRADUS_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
