# SPDX-License-Identifier: BSL-1.0
#
# Networks and trainers compiled once, as a library of the project. This file is read by the source tree and by the
# installed package.

# gradus_add_compiled(<target> [ELEMENTS float double bfloat16 float16] [LAYOUTS nchw nhwc] [DEVICES cpu]
#                     [COMPONENTS mpi])
#
# A static library of what programs of gradus share: layers, losses, networks, trainers, update rules and strategies.
# Targets that link it declare them and do not compile them: see <gradus/compiled.hpp>. Without ELEMENTS it is float,
# which the others include, without LAYOUTS both. Each element type is a source file, and so is mpi, so that they are
# compiled in parallel. The project has the language CXX.
function(gradus_add_compiled target)
  cmake_parse_arguments(PARSE_ARGV 1 chosen "" "" "ELEMENTS;LAYOUTS;DEVICES;COMPONENTS")
  set(known_ELEMENTS float double bfloat16 float16)
  set(known_LAYOUTS nchw nhwc)
  set(known_DEVICES cpu)
  set(known_COMPONENTS mpi)
  set(wrong "${chosen_UNPARSED_ARGUMENTS}")
  foreach(list ELEMENTS LAYOUTS DEVICES COMPONENTS)
    foreach(each IN LISTS chosen_${list})
      if(NOT each IN_LIST known_${list})
        string(REPLACE ";" ", " expected "${known_${list}}")
        message(FATAL_ERROR "gradus_add_compiled(${target}): expected ${list} of ${expected}, got ${each}")
      endif()
    endforeach()
  endforeach()
  if(wrong)
    message(FATAL_ERROR "gradus_add_compiled(${target}): expected ELEMENTS, LAYOUTS, DEVICES or COMPONENTS, got ${wrong}")
  endif()

  set(elements float ${chosen_ELEMENTS})
  list(REMOVE_DUPLICATES elements)
  set(sources "")
  foreach(each IN LISTS elements)
    string(TOUPPER "${each}" macro)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/gradus_compiled/${target}/${each}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#define GRADUS_COMPILES_${macro}\n#include <gradus/compiled.hpp>\n")
    list(APPEND sources "${source}")
  endforeach()
  add_library(${target} STATIC ${sources})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
  target_link_libraries(${target} PUBLIC gradus::gradus)
  target_compile_definitions(${target} PUBLIC GRADUS_SEPARATE_COMPILATION)
  list(REMOVE_ITEM elements float)
  foreach(each IN LISTS elements)
    string(TOUPPER "${each}" macro)
    target_compile_definitions(${target} PUBLIC GRADUS_COMPILED_${macro})
  endforeach()
  list(REMOVE_DUPLICATES chosen_LAYOUTS)
  list(LENGTH chosen_LAYOUTS layouts)
  if(layouts EQUAL 1)
    string(TOUPPER "${chosen_LAYOUTS}" macro)
    target_compile_definitions(${target} PUBLIC GRADUS_COMPILED_${macro}_ONLY)
  endif()
  if("mpi" IN_LIST chosen_COMPONENTS)
    gradus_add_component(mpi GLOBAL)
    if(NOT gradus_mpi_FOUND)
      message(FATAL_ERROR "gradus_add_compiled(${target}): mpi cannot be had: ${gradus_mpi_REASON}")
    endif()
    set(source "${CMAKE_CURRENT_BINARY_DIR}/gradus_compiled/${target}/mpi.cpp")  # programs without MPI do not take it
    file(CONFIGURE OUTPUT "${source}" CONTENT "#define GRADUS_COMPILES_MPI\n#include <gradus/comm/mpi.hpp>\n")
    target_sources(${target} PRIVATE "${source}")
    target_link_libraries(${target} PUBLIC gradus::mpi)
    target_compile_definitions(${target} PUBLIC GRADUS_COMPILED_MPI)
  endif()
endfunction()
