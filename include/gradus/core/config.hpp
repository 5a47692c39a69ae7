// SPDX-License-Identifier: BSL-1.0
//
// Compiler differences and the assertion macro. The only header that defines macros.
// Module: core. Depends on: std.
#pragma once

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
