# SPDX-License-Identifier: BSL-1.0
#
# Configures without what is usual: the project itself with Makefiles, and a consumer without a build type.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
file(COPY "${GRADUS_SOURCE}/examples/consumer" DESTINATION "${WORK}")

function(configure)
  execute_process(COMMAND ${CMAKE_COMMAND} "-DCMAKE_CXX_COMPILER=${COMPILER}" ${ARGN} RESULT_VARIABLE result
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): cmake ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

find_program(make make)
if(make)
  configure(-S "${GRADUS_SOURCE}" -B "${WORK}/makefiles" -G "Unix Makefiles" "-DCMAKE_MAKE_PROGRAM=${make}")
endif()

set(consumer -S "${WORK}/consumer" -G "${GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" -DGET_GRADUS=find_package
    "-DCMAKE_PREFIX_PATH=${PREFIX}")
set(note "gradus: the build type is empty")
configure(${consumer} -B "${WORK}/none")
if(NOT output MATCHES "${note}")
  message(FATAL_ERROR "expected '${note}', got\n${output}")
endif()
foreach(option -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-O2)
  string(MAKE_C_IDENTIFIER "${option}" folder)
  configure(${consumer} -B "${WORK}/${folder}" ${option})
  if(output MATCHES "${note}")
    message(FATAL_ERROR "expected no note with ${option}, got\n${output}")
  endif()
endforeach()
