// SPDX-License-Identifier: BSL-1.0
//
// Macros that name many instances at a time, of the element types and layouts that a program compiles once
// (gradus/compiled.hpp). Without separate compilation they are empty.
#pragma once

#include "gradus/core/compiled.hpp"
#ifdef GRADUS_COMPILED_BFLOAT16
#include "gradus/core/bfloat16.hpp"
#endif
#ifdef GRADUS_COMPILED_FLOAT16
#include "gradus/core/float16.hpp"
#endif

#ifdef GRADUS_HAS_INSTANCES
namespace gradus {
class cpu;
struct nchw;
struct nhwc;
}  // namespace gradus

// A library may have a file for each element type: it defines the instances of that type and declares the others.
#ifdef GRADUS_COMPILES_DOUBLE
#define GRADUS_DETAIL_DOUBLE_INSTANCE(...) template __VA_ARGS__;
#else
#define GRADUS_DETAIL_DOUBLE_INSTANCE(...) extern template __VA_ARGS__;
#endif
#ifdef GRADUS_COMPILES_BFLOAT16
#define GRADUS_DETAIL_BFLOAT16_INSTANCE(...) template __VA_ARGS__;
#else
#define GRADUS_DETAIL_BFLOAT16_INSTANCE(...) extern template __VA_ARGS__;
#endif
#ifdef GRADUS_COMPILES_FLOAT16
#define GRADUS_DETAIL_FLOAT16_INSTANCE(...) template __VA_ARGS__;
#else
#define GRADUS_DETAIL_FLOAT16_INSTANCE(...) extern template __VA_ARGS__;
#endif

#ifdef GRADUS_COMPILED_DOUBLE
#define GRADUS_DETAIL_DOUBLE(macro, with) macro(GRADUS_DETAIL_DOUBLE_INSTANCE, double, with)
#else
#define GRADUS_DETAIL_DOUBLE(macro, with)
#endif
#ifdef GRADUS_COMPILED_BFLOAT16
#define GRADUS_DETAIL_BFLOAT16(macro, with) macro(GRADUS_DETAIL_BFLOAT16_INSTANCE, ::gradus::bfloat16, with)
#else
#define GRADUS_DETAIL_BFLOAT16(macro, with)
#endif
#ifdef GRADUS_COMPILED_FLOAT16
#define GRADUS_DETAIL_FLOAT16(macro, with) macro(GRADUS_DETAIL_FLOAT16_INSTANCE, ::gradus::float16, with)
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

// macro(instance, element, with) for each type of parameters that is compiled once; instance(...) is
// GRADUS_INSTANCE(...) for that type. GRADUS_INSTANCE itself is for float, and for what has no element type.
#define GRADUS_EACH_PARAMETER_ELEMENT(macro, with) macro(GRADUS_INSTANCE, float, with) GRADUS_DETAIL_DOUBLE(macro, with)
// macro(instance, element, with) for each type of values that is compiled once.
#define GRADUS_EACH_ELEMENT(macro, with) \
  GRADUS_EACH_PARAMETER_ELEMENT(macro, with) GRADUS_DETAIL_BFLOAT16(macro, with) GRADUS_DETAIL_FLOAT16(macro, with)
// macro(instance, layout, element, with) for each layout and type of values.
#define GRADUS_EACH_LAYOUT(macro, with) GRADUS_EACH_ELEMENT(GRADUS_DETAIL_LAYOUTS, (macro, with))
#define GRADUS_DETAIL_LAYOUTS(instance, element, pair) \
  GRADUS_DETAIL_CALL(GRADUS_DETAIL_LAYOUTS_OF, instance, element, GRADUS_DETAIL_OPEN pair)
#define GRADUS_DETAIL_LAYOUTS_OF(instance, element, macro, with)             \
  GRADUS_DETAIL_NCHW(GRADUS_DETAIL_LAYOUT, (macro, instance, element, with)) \
  GRADUS_DETAIL_NHWC(GRADUS_DETAIL_LAYOUT, (macro, instance, element, with))
#define GRADUS_DETAIL_LAYOUT(layout, arguments) \
  GRADUS_DETAIL_CALL_INNER(GRADUS_DETAIL_LAYOUT_OF, layout, GRADUS_DETAIL_OPEN arguments)
#define GRADUS_DETAIL_LAYOUT_OF(layout, macro, instance, element, with) macro(instance, layout, element, with)
#define GRADUS_DETAIL_CALL(macro, ...) macro(__VA_ARGS__)
#define GRADUS_DETAIL_CALL_INNER(macro, ...) macro(__VA_ARGS__)
#define GRADUS_DETAIL_OPEN(...) __VA_ARGS__

// A class template of <Element, cpu>, for each type of values.
#define GRADUS_COMPILED_CLASS(name) GRADUS_EACH_ELEMENT(GRADUS_DETAIL_CLASS, name)
#define GRADUS_DETAIL_CLASS(instance, element, name) instance(class name<element, ::gradus::cpu>)
// A class template of <Element, Layout, cpu>.
#define GRADUS_COMPILED_CLASS_OF_LAYOUT(name) GRADUS_EACH_LAYOUT(GRADUS_DETAIL_CLASS_OF_LAYOUT, name)
#define GRADUS_DETAIL_CLASS_OF_LAYOUT(instance, layout, element, name) \
  instance(class name<element, layout, ::gradus::cpu>)
// A class template of an element type of parameters.
#define GRADUS_COMPILED_CLASS_OF_PARAMETERS(name) GRADUS_EACH_PARAMETER_ELEMENT(GRADUS_DETAIL_CLASS_OF_ELEMENT, name)
#define GRADUS_DETAIL_CLASS_OF_ELEMENT(instance, element, name) instance(class name<element>)
// A class template of an element type of values.
#define GRADUS_COMPILED_CLASS_OF_ELEMENT(name) GRADUS_EACH_ELEMENT(GRADUS_DETAIL_CLASS_OF_ELEMENT, name)
#else
#define GRADUS_COMPILED_CLASS(name)
#define GRADUS_COMPILED_CLASS_OF_LAYOUT(name)
#define GRADUS_COMPILED_CLASS_OF_PARAMETERS(name)
#define GRADUS_COMPILED_CLASS_OF_ELEMENT(name)
#endif
