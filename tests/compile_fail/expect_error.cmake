# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=... -DSOURCE=... -DDIRECTORIES=... [-DOTHERS=...] -P expect_error.cmake
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/flags.cmake")
file(STRINGS "${SOURCE}" expected REGEX "^// EXPECT_ERROR: " LIMIT_COUNT 1)
if(NOT expected)
  message(FATAL_ERROR "${SOURCE} has no line \"// EXPECT_ERROR: text\"")
endif()
string(REPLACE "// EXPECT_ERROR: " "" expected "${expected}")
list(APPEND flags -fsyntax-only)
if(OTHERS)
  list(APPEND flags -include "${OTHERS}")
endif()

execute_process(COMMAND "${COMPILER}" ${flags} -DGRADUS_TEST_GOOD_TWIN "${SOURCE}"
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "The good twin of ${SOURCE} does not compile:\n${output}")
endif()

execute_process(COMMAND "${COMPILER}" ${flags} "${SOURCE}"
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, but the error \"${expected}\" was expected")
endif()
string(FIND "${output}" "${expected}" place)
if(place EQUAL -1 AND NOT output MATCHES "${expected}")
  message(FATAL_ERROR "${SOURCE} fails without the expected error \"${expected}\":\n${output}")
endif()
