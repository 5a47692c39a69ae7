# SPDX-License-Identifier: BSL-1.0
#
# The interfaces for C and Fortran, which a project compiles as libraries of its own. This file is read by the source tree
# and by the installed package.

# gradus_set_interfaces(<folder>): the folder of the sources, for the functions below in any folder of the project.
function(gradus_set_interfaces folder)
  set_property(GLOBAL PROPERTY GRADUS_INTERFACES "${folder}")
endfunction()

# gradus_add_c_library(<target> [STATIC | SHARED | OBJECT] [MPI] [ONNX] [NO_DOUBLE])
#
# A library with the functions of <gradus_c.h>. MPI: communicators of MPI; ONNX: files of ONNX; NO_DOUBLE: networks of
# float only, in less of the compiler's time. The project has the language CXX.
function(gradus_add_c_library target)
  cmake_parse_arguments(PARSE_ARGV 1 chosen "STATIC;SHARED;OBJECT;MPI;ONNX;NO_DOUBLE" "" "")
  if(chosen_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gradus_add_c_library(${target}): expected STATIC, SHARED, OBJECT, MPI, ONNX, NO_DOUBLE, "
                        "got ${chosen_UNPARSED_ARGUMENTS}")
  endif()
  set(type "")
  foreach(each STATIC SHARED OBJECT)
    if(chosen_${each})
      set(type ${each})
    endif()
  endforeach()
  get_property(folder GLOBAL PROPERTY GRADUS_INTERFACES)
  add_library(${target} ${type} "${folder}/c/gradus_c.cpp")
  target_link_libraries(${target} PUBLIC gradus::gradus)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                        POSITION_INDEPENDENT_CODE ON)
  foreach(component MPI ONNX)
    if(chosen_${component})
      string(TOLOWER ${component} name)
      gradus_add_component(${name} GLOBAL)
      if(NOT gradus_${name}_FOUND)
        message(FATAL_ERROR "gradus_add_c_library(${target}): ${component} cannot be had: ${gradus_${name}_REASON}")
      endif()
      target_link_libraries(${target} PRIVATE gradus::${name})
      target_compile_definitions(${target} PRIVATE GRADUS_C_${component})
    endif()
  endforeach()
  if(chosen_NO_DOUBLE)
    target_compile_definitions(${target} PRIVATE GRADUS_C_NO_DOUBLE)
  endif()
endfunction()

# gradus_add_fortran_library(<target> <C library>)
#
# A library with the Fortran module gradus over a library of gradus_add_c_library. The project has the languages CXX and
# Fortran.
function(gradus_add_fortran_library target c_library)
  get_property(folder GLOBAL PROPERTY GRADUS_INTERFACES)
  add_library(${target} STATIC "${folder}/fortran/gradus_c_interface.f90" "${folder}/fortran/gradus.f90")
  set(modules "${CMAKE_CURRENT_BINARY_DIR}/${target}_modules")
  set_target_properties(${target} PROPERTIES Fortran_MODULE_DIRECTORY "${modules}" POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PUBLIC "${modules}")
  target_link_libraries(${target} PUBLIC ${c_library})
endfunction()
