// SPDX-License-Identifier: BSL-1.0
//
// Macros that name many instances at a time, of the element types and layouts that a program compiles once
// (gradus/compiled.hpp). Without separate compilation they are empty.
#pragma once

#include "gradus/core/compiled.hpp"

#ifdef GRADUS_HAS_INSTANCES
namespace gradus {
class cpu;
struct nchw;
struct nhwc;
class bfloat16;
class float16;
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
// A class template of an element type of parameters.
#define GRADUS_COMPILED_CLASS_OF_PARAMETERS(name) GRADUS_EACH_PARAMETER_ELEMENT(GRADUS_DETAIL_CLASS_OF_PARAMETERS, name)
#define GRADUS_DETAIL_CLASS_OF_PARAMETERS(element, name) GRADUS_INSTANCE(class name<element>)
// A class template of an element type of values.
#define GRADUS_COMPILED_CLASS_OF_ELEMENT(name) GRADUS_EACH_ELEMENT(GRADUS_DETAIL_CLASS_OF_PARAMETERS, name)
#else
#define GRADUS_COMPILED_CLASS(name)
#define GRADUS_COMPILED_CLASS_OF_LAYOUT(name)
#define GRADUS_COMPILED_CLASS_OF_PARAMETERS(name)
#define GRADUS_COMPILED_CLASS_OF_ELEMENT(name)
#endif
