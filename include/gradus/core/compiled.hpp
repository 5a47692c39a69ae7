// SPDX-License-Identifier: BSL-1.0
//
// Macros for what a program can compile once: see gradus/compiled.hpp.
#pragma once

#include "gradus/core/config.hpp"

// GRADUS_INSTANCE(...) stands at the end of a header, at global scope: an explicit instantiation, which the file that
// includes gradus/compiled.hpp defines and the others declare only. What it calls is then compiled there, too. The
// macros below name many at a time. Without separate compilation they are empty.
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
class cpu;
struct nchw;
struct nhwc;
class bfloat16;
class float16;
namespace nn {
template <class Element, class Layout, class Device>
class network;
}
namespace train {
template <class Network>
class trainer;
}
}  // namespace gradus

#ifdef GRADUS_COMPILED_DOUBLE
#define GRADUS_DETAIL_DOUBLE(macro, with) macro(double, with)
#else
#define GRADUS_DETAIL_DOUBLE(macro, with)
#endif
#ifdef GRADUS_COMPILED_BFLOAT16
#define GRADUS_DETAIL_BFLOAT16(macro, with) macro(::gradus::bfloat16, with)
#else
#define GRADUS_DETAIL_BFLOAT16(macro, with)
#endif
#ifdef GRADUS_COMPILED_FLOAT16
#define GRADUS_DETAIL_FLOAT16(macro, with) macro(::gradus::float16, with)
#else
#define GRADUS_DETAIL_FLOAT16(macro, with)
#endif
#ifdef GRADUS_COMPILED_NHWC_ONLY
#define GRADUS_DETAIL_NCHW(macro, with)
#else
#define GRADUS_DETAIL_NCHW(macro, with) macro(::gradus::nchw, with)
#endif
#ifdef GRADUS_COMPILED_NCHW_ONLY
#define GRADUS_DETAIL_NHWC(macro, with)
#else
#define GRADUS_DETAIL_NHWC(macro, with) macro(::gradus::nhwc, with)
#endif

// macro(element, with) for each type of parameters that is compiled once.
#define GRADUS_EACH_PARAMETER_ELEMENT(macro, with) macro(float, with) GRADUS_DETAIL_DOUBLE(macro, with)
// macro(element, with) for each type of values that is compiled once.
#define GRADUS_EACH_ELEMENT(macro, with) \
  GRADUS_EACH_PARAMETER_ELEMENT(macro, with) GRADUS_DETAIL_BFLOAT16(macro, with) GRADUS_DETAIL_FLOAT16(macro, with)
// macro(layout, element, with) for each layout and type of values.
#define GRADUS_EACH_LAYOUT(macro, with) GRADUS_EACH_ELEMENT(GRADUS_DETAIL_LAYOUTS, (macro, with))
#define GRADUS_DETAIL_LAYOUTS(element, pair) \
  GRADUS_DETAIL_CALL(GRADUS_DETAIL_LAYOUTS_OF, element, GRADUS_DETAIL_OPEN pair)
#define GRADUS_DETAIL_LAYOUTS_OF(element, macro, with)             \
  GRADUS_DETAIL_NCHW(GRADUS_DETAIL_LAYOUT, (macro, element, with)) \
  GRADUS_DETAIL_NHWC(GRADUS_DETAIL_LAYOUT, (macro, element, with))
#define GRADUS_DETAIL_LAYOUT(layout, triple) \
  GRADUS_DETAIL_CALL_INNER(GRADUS_DETAIL_LAYOUT_OF, layout, GRADUS_DETAIL_OPEN triple)
#define GRADUS_DETAIL_LAYOUT_OF(layout, macro, element, with) macro(layout, element, with)
#define GRADUS_DETAIL_CALL(macro, ...) macro(__VA_ARGS__)
#define GRADUS_DETAIL_CALL_INNER(macro, ...) macro(__VA_ARGS__)
#define GRADUS_DETAIL_OPEN(...) __VA_ARGS__

// A class template of <Element, cpu>, for each type of values.
#define GRADUS_COMPILED_CLASS(name) GRADUS_EACH_ELEMENT(GRADUS_DETAIL_CLASS, name)
#define GRADUS_DETAIL_CLASS(element, name) GRADUS_INSTANCE(class name<element, ::gradus::cpu>)
// A class template of <Element, Layout, cpu>.
#define GRADUS_COMPILED_CLASS_OF_LAYOUT(name) GRADUS_EACH_LAYOUT(GRADUS_DETAIL_CLASS_OF_LAYOUT, name)
#define GRADUS_DETAIL_CLASS_OF_LAYOUT(layout, element, name) GRADUS_INSTANCE(class name<element, layout, ::gradus::cpu>)
// A class template of a network.
#define GRADUS_COMPILED_CLASS_OF_NETWORK(name) GRADUS_EACH_LAYOUT(GRADUS_DETAIL_CLASS_OF_NETWORK, name)
#define GRADUS_DETAIL_CLASS_OF_NETWORK(layout, element, name) \
  GRADUS_INSTANCE(class name<::gradus::nn::network<element, layout, ::gradus::cpu>>)
// A class template of an element type of parameters.
#define GRADUS_COMPILED_CLASS_OF_PARAMETERS(name) GRADUS_EACH_PARAMETER_ELEMENT(GRADUS_DETAIL_CLASS_OF_PARAMETERS, name)
#define GRADUS_DETAIL_CLASS_OF_PARAMETERS(element, name) GRADUS_INSTANCE(class name<element>)
// A class template of an element type of values.
#define GRADUS_COMPILED_CLASS_OF_ELEMENT(name) GRADUS_EACH_ELEMENT(GRADUS_DETAIL_CLASS_OF_PARAMETERS, name)
#else
#define GRADUS_INSTANCE(...)
#define GRADUS_COMPILED_CLASS(name)
#define GRADUS_COMPILED_CLASS_OF_LAYOUT(name)
#define GRADUS_COMPILED_CLASS_OF_NETWORK(name)
#define GRADUS_COMPILED_CLASS_OF_PARAMETERS(name)
#define GRADUS_COMPILED_CLASS_OF_ELEMENT(name)
#endif
