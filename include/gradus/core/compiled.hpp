// SPDX-License-Identifier: BSL-1.0
//
// Macros for what a program can compile once: see gradus/compiled.hpp.
#pragma once

#include "gradus/core/config.hpp"

// GRADUS_INSTANCE(...) stands at the end of a header, at global scope: an explicit instantiation, which the file that
// includes gradus/compiled.hpp defines and the others declare only. What it calls is then compiled there, too. Without
// separate compilation it is empty. gradus/tensor/instances.hpp has lists of element types and layouts. Where a library
// has a file for each element type, the one that is meant here is float's.
#if defined(GRADUS_COMPILES_LIBRARY)
#define GRADUS_INSTANCE(...) template __VA_ARGS__;
#elif defined(GRADUS_SEPARATE_COMPILATION)
#define GRADUS_INSTANCE(...) extern template __VA_ARGS__;
#endif

// A function that is no template is declared where its docstring stands, and defined at the end of its header, as
//
//   #ifdef GRADUS_HAS_DEFINITIONS
//   namespace gradus {
//   GRADUS_INLINE void function(int argument) { ... }
//   }  // namespace gradus
//   #endif
//
// Without separate compilation it is inline there. With it, only the file that includes gradus/compiled.hpp reads the
// block, and emits the function; the headers that only the block needs are included in such a block, too. Constructors
// and destructors have a macro of their own: clang emits of one that is inline only the variant for base classes. The
// linker takes one of the functions where several libraries have them. Virtual functions stay in their class, because a
// vtable is emitted with the first of them that is not inline.
#if defined(GRADUS_COMPILES_LIBRARY)
#define GRADUS_HAS_DEFINITIONS
#define GRADUS_INLINE [[gnu::used]] inline
#define GRADUS_INLINE_CONSTRUCTOR [[gnu::weak]]
#elif !defined(GRADUS_SEPARATE_COMPILATION)
#define GRADUS_HAS_DEFINITIONS
#define GRADUS_INLINE inline
#define GRADUS_INLINE_CONSTRUCTOR inline
#endif

#ifdef GRADUS_INSTANCE
#define GRADUS_HAS_INSTANCES
namespace gradus {
// What the linker misses first in a program without that file.
#ifdef GRADUS_COMPILES_LIBRARY
[[gnu::weak]] extern const char one_source_file_must_include_gradus_compiled_hpp;  // weak: two libraries may have it
const char one_source_file_must_include_gradus_compiled_hpp = 0;
#else
extern const char one_source_file_must_include_gradus_compiled_hpp;
[[gnu::used]] static const char* const compiled_once = &one_source_file_must_include_gradus_compiled_hpp;
#endif
}  // namespace gradus
#else
#define GRADUS_INSTANCE(...)
#endif
