# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=... -DSTANDARD=... -DDIRECTORIES=... -DEXPECTED=... -P old.cmake
#
# A compiler, or its standard, that is too old for gradus: one error says so, whichever header comes first, and the
# output is short enough to be read.
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/flags.cmake")
foreach(header gradus/gradus.hpp gradus/tensor/tensor.hpp gradus/train/progress.hpp gradus/core/version.hpp)
  execute_process(COMMAND "${COMPILER}" ${STANDARD} -fsyntax-only ${includes} "-DHEADER=<${header}>"
                          "${CMAKE_CURRENT_LIST_DIR}/too_old.cpp"
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(result EQUAL 0)
    message(FATAL_ERROR "<${header}> compiles with ${COMPILER} ${STANDARD}")
  endif()
  string(REGEX MATCHALL "\n" lines "${output}")
  list(LENGTH lines lines)
  if(NOT output MATCHES "${EXPECTED}" OR lines GREATER 20)
    message(FATAL_ERROR "expected '${EXPECTED}' and at most 20 lines, got ${lines} with <${header}>:\n${output}")
  endif()
endforeach()
