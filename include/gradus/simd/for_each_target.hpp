// SPDX-License-Identifier: BSL-1.0
//
// Compiles the file GRADUS_TARGET_BODY once for every instruction set, so that it needs to name none.

// No `#pragma once`. In the file,
//   GRADUS_TARGET        is the namespace of the instruction set;
//   GRADUS_TARGET_BYTES  is the size of its vectors.
// GCC lowers vector types before it inlines, so the target attribute must be on the code that uses them: the file is
// included once for every instruction set. It includes nothing, because the attribute would apply to that too, and it
// passes vectors only to functions of its own namespace: others use other registers for them.
//
// With GRADUS_TARGET_FUSES, a * b + c may become one instruction. Otherwise each result is rounded as written, so that
// all instruction sets have the same bits.
#if defined(GRADUS_TARGET_BODY)

#if defined(__clang__)
#pragma float_control(push)
#endif
#if defined(__clang__) && !defined(GRADUS_TARGET_FUSES)
#pragma clang fp contract(off)
#elif !defined(GRADUS_TARGET_FUSES)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

#define GRADUS_TARGET portable
#define GRADUS_TARGET_BYTES 16
#include GRADUS_TARGET_BODY
#undef GRADUS_TARGET
#undef GRADUS_TARGET_BYTES

#if defined(GRADUS_X86_KERNELS)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#define GRADUS_TARGET avx2
#define GRADUS_TARGET_BYTES 32
#include GRADUS_TARGET_BODY
#undef GRADUS_TARGET
#undef GRADUS_TARGET_BYTES
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif
#define GRADUS_TARGET avx512
#define GRADUS_TARGET_BYTES 64
#include GRADUS_TARGET_BODY
#undef GRADUS_TARGET
#undef GRADUS_TARGET_BYTES
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#if defined(__clang__)
#pragma float_control(pop)
#elif !defined(GRADUS_TARGET_FUSES)
#pragma GCC pop_options
#endif

#undef GRADUS_TARGET_BODY
#undef GRADUS_TARGET_FUSES
#endif
