# SPDX-License-Identifier: BSL-1.0
#
# gradus_add_compiled refuses what it does not know, with what it expected.
#   cmake -DSOURCE=... -P arguments.cmake
cmake_minimum_required(VERSION 3.22)
if(DEFINED CALL)
  include("${SOURCE}/cmake/gradus_compiled.cmake")
  gradus_add_compiled(${CALL})
  return()
endif()

# refused(<pattern> <arguments>...)
function(refused pattern)
  execute_process(COMMAND ${CMAKE_COMMAND} "-DSOURCE=${SOURCE}" "-DCALL=${ARGN}" -P "${CMAKE_CURRENT_LIST_FILE}"
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(result EQUAL 0 OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "expected a failure with '${pattern}', got ${result} from ${ARGN}\n${output}")
  endif()
endfunction()

refused("\\(mine\\): expected ELEMENTS of float, double, bfloat16, float16, got half" mine ELEMENTS float half)
refused("\\(mine\\): expected LAYOUTS of nchw, nhwc, got NCHW" mine LAYOUTS NCHW)
refused("\\(mine\\): expected DEVICES of cpu, got cuda" mine DEVICES cuda)
refused("\\(mine\\): expected COMPONENTS of mpi, got nccl" mine COMPONENTS mpi nccl)
refused("\\(mine\\): expected ELEMENTS, LAYOUTS, DEVICES or COMPONENTS, got float" mine float)
