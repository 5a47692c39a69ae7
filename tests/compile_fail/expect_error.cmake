# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=... -DSOURCE=... -DDIRECTORIES=... [-DCASE=... [-DTWIN=OFF]] [-DPRECOMPILED=...] -P expect_error.cmake
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/flags.cmake")
set(mark "// EXPECT_ERROR: ")
if(CASE)
  set(mark "// EXPECT_ERROR(${CASE}): ")
  string(TOUPPER "-DGRADUS_TEST_CASE_${CASE}" define)
endif()
string(REGEX REPLACE "([()])" "\\\\\\1" pattern "${mark}")
file(STRINGS "${SOURCE}" expected REGEX "^${pattern}" LIMIT_COUNT 1)
if(NOT expected)
  message(FATAL_ERROR "${SOURCE} has no line \"${mark}text\"")
endif()
string(REPLACE "${mark}" "" expected "${expected}")
list(APPEND flags -fsyntax-only)
if(PRECOMPILED)
  list(APPEND flags -include "${PRECOMPILED}")
endif()

if(NOT DEFINED TWIN OR TWIN)
  execute_process(COMMAND "${COMPILER}" ${flags} -DGRADUS_TEST_GOOD_TWIN "${SOURCE}"
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "The good twin of ${SOURCE} does not compile:\n${output}")
  endif()
endif()

execute_process(COMMAND "${COMPILER}" ${flags} ${define} "${SOURCE}"
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, but the error \"${expected}\" was expected")
endif()

# Whoever reads the first lines reads what to write.
set(most_lines 15)
string(REPLACE "EXPECT_ERROR" "EXPECT_ERROR_LATER" pattern "${pattern}")
file(STRINGS "${SOURCE}" later REGEX "^${pattern}." LIMIT_COUNT 1)  # says why the compiler cannot
string(FIND "${output}" "${expected}" place)
if(NOT place EQUAL -1)
  string(SUBSTRING "${output}" 0 ${place} before)
elseif(output MATCHES "${expected}")
  string(FIND "${output}" "${CMAKE_MATCH_0}" place)
  string(SUBSTRING "${output}" 0 ${place} before)
else()
  message(FATAL_ERROR "${SOURCE} fails without the expected error \"${expected}\":\n${output}")
endif()
string(REGEX REPLACE "[^\n]" "" before "${before}")
string(LENGTH "${before}" line)
math(EXPR line "${line} + 1")
if(line GREATER most_lines AND NOT later)
  message(FATAL_ERROR "${SOURCE}: the expected error \"${expected}\" is on line ${line} of the output, "
                      "behind the first ${most_lines}:\n${output}")
endif()
