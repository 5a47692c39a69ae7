# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=<clang-query> -DDIRECTORIES=... -DEVERY_HEADER=... -DMATCHER=... -P closures.cmake
#
# No lambda of a header captures `this` without naming it. A program may hold objects of nvcc and of g++, and the linker
# takes each inline function from one of them. nvcc writes `this->` before every member, so it captures `this` where g++
# captures the arguments of the call first: the two closures have the same name and another layout. `[&, this]` has one.
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/flags.cmake")
execute_process(COMMAND "${COMPILER}" -c "set output diag" -c "match ${MATCHER}" "${CMAKE_CURRENT_LIST_DIR}/train.cpp" --
                        -std=c++20 ${includes} "-DEVERY_HEADER=\"${EVERY_HEADER}\""
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX MATCHALL "[^\n]*gradus/[^\n]*binds here[^\n]*" places "${output}")
list(JOIN places "\n" places)
if(NOT result EQUAL 0 OR output MATCHES "error: " OR NOT output MATCHES "(^|\n)0 matches")
  if(places)
    message(FATAL_ERROR "name this in the captures, as in [&, this]:\n${places}")
  endif()
  message(FATAL_ERROR "${COMPILER}, status ${result}:\n${output}")
endif()
