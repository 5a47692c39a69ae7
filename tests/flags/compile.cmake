# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=... -DFLAGS=... -DDIRECTORIES=... -DAS=... [-DPROGRAM=... [-DNOTES=...]] -P compile.cmake
# cmake -DCOMPILER=... -DFLAGS=... -DDIRECTORIES=... -DAS=... -DARCHITECTURE=... -P compile.cmake
#
# Compiles train.cpp with all warnings that others' projects may ask for, as errors, and nothing may be printed. With
# PROGRAM it is linked and run, and notes NOTES times that it was compiled without optimization. Without, it includes
# EVERY_HEADER. With ARCHITECTURE it is packets.cpp that is compiled, for these processors, if the compiler knows them.
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/flags.cmake")
separate_arguments(FLAGS)
set(warnings -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Werror)
if(NOT COMPILER MATCHES "clang")
  list(APPEND warnings -Wuseless-cast)
endif()
set(source train.cpp)
if(ARCHITECTURE)
  set(source packets.cpp)
  list(APPEND FLAGS "-march=${ARCHITECTURE}")
  execute_process(COMMAND "${COMPILER}" ${FLAGS} -x c++ -fsyntax-only /dev/null RESULT_VARIABLE result ERROR_QUIET)
  if(NOT result EQUAL 0)
    message("skipped: ${COMPILER} does not know -march=${ARCHITECTURE}")
    return()
  endif()
  set(result_of -c -o /dev/null)
elseif(PROGRAM)
  set(result_of -o "${PROGRAM}")
elseif(FLAGS MATCHES "-fsyntax-only")
  set(result_of "-DEVERY_HEADER=\"${EVERY_HEADER}\"")
else()
  set(result_of -c "-DEVERY_HEADER=\"${EVERY_HEADER}\"" -o /dev/null)
endif()
execute_process(COMMAND "${COMPILER}" -std=c++20 ${FLAGS} ${warnings} ${includes}
                        "${CMAKE_CURRENT_LIST_DIR}/${source}" ${result_of}
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0 OR NOT output STREQUAL "")
  message(FATAL_ERROR "${COMPILER} ${FLAGS} ${AS}, status ${result}:\n${output}")
endif()
if(PROGRAM)
  execute_process(COMMAND "${PROGRAM}" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX MATCHALL "compiled without optimization" notes "${output}")
  list(LENGTH notes notes)
  if(NOT result EQUAL 0 OR NOT notes EQUAL NOTES)
    message(FATAL_ERROR "status ${result}; ${notes} notes of missing optimization instead of ${NOTES}:\n${output}")
  endif()
endif()
