# SPDX-License-Identifier: BSL-1.0
#
# cmake -DSTATUS=0|1|2 -DPATTERN=regex -P expect_output.cmake -- command...
# Runs the command: it must succeed (STATUS 0), exit with another status (STATUS 1) or with status 2 (a signal is wrong
# in all cases), and its output must match.
cmake_minimum_required(VERSION 3.22)
set(command "")
set(seen FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(index RANGE ${last})
  if(seen)
    list(APPEND command "${CMAKE_ARGV${index}}")
  elseif(CMAKE_ARGV${index} STREQUAL "--")
    set(seen TRUE)
  endif()
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
message(STATUS "${output}")
if(NOT result MATCHES "^[0-9]+$")
  message(FATAL_ERROR "ended by: ${result}")
elseif(STATUS EQUAL 0 AND NOT result EQUAL 0)
  message(FATAL_ERROR "exit status ${result}, expected 0")
elseif(STATUS EQUAL 2 AND NOT result EQUAL 2)
  message(FATAL_ERROR "exit status ${result}, expected 2")
elseif(NOT STATUS EQUAL 0 AND result EQUAL 0)
  message(FATAL_ERROR "exit status 0, expected a failure")
elseif(NOT output MATCHES "${PATTERN}")
  message(FATAL_ERROR "the output does not match: ${PATTERN}")
endif()
