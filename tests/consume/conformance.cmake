# SPDX-License-Identifier: BSL-1.0
#
# Builds tests/consume/conformance with the installed package. Its programs pass as they are, and with a deliberate defect
# they fail and name the case.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${WORK}")
file(COPY "${PROJECT}/" DESTINATION "${WORK}/source")  # it must not find anything by lying inside the source tree

function(run expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message(STATUS "${output}")
  if(NOT result EQUAL expected)
    message(FATAL_ERROR "ended with ${result} instead of ${expected}: ${ARGN}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(0 ${CMAKE_COMMAND} -S "${WORK}/source" -B "${WORK}/build" -G "${GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -Wall -Wextra -Werror"
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "-DCMAKE_PREFIX_PATH=${PREFIX}")
run(0 ${CMAKE_COMMAND} --build "${WORK}/build" --config Debug)
if(EXISTS "${WORK}/build/compile_commands.json")
  file(READ "${WORK}/build/compile_commands.json" commands)
  string(REGEX MATCH "${GRADUS_SOURCE}/(include|tests/support)" found "${commands}")
  if(found)
    message(FATAL_ERROR "compiled with files of the source tree:\n${commands}")
  endif()
endif()

# check(<program> <words of the failure with the defect>)
function(check program failure)
  unset(path CACHE)
  find_program(path ${program} PATHS "${WORK}/build" "${WORK}/build/Debug" NO_DEFAULT_PATH REQUIRED)
  run(0 "${path}")
  if(NOT output MATCHES "conformance: ([0-9]+) of ([0-9]+) cases passed" OR NOT CMAKE_MATCH_1 EQUAL CMAKE_MATCH_2
     OR CMAKE_MATCH_1 EQUAL 0)
    message(FATAL_ERROR "${program} should pass all cases")
  endif()
  run(1 "${path}" defective)
  if(NOT output MATCHES "${failure}")
    message(FATAL_ERROR "${program} with a defect should say '${failure}'")
  endif()
endfunction()
check(communicator "FAILED: all_reduce_reduces<float32> on 2 ranks: .*sum of 1 float32 differs at 0")
check(device "FAILED: copies_arrive_in_order: .*fill_zero did not clear all of 1 bytes")
check(layer "FAILED: square, float64, nchw: .*the gradient of input 0.0. is [^,]*, finite differences say")
