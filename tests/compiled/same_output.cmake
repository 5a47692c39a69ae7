# SPDX-License-Identifier: BSL-1.0
#
# Runs the program of headers only and the one that was compiled once: their outputs are the same, byte by byte.
cmake_minimum_required(VERSION 3.22)
foreach(way HEADERS COMPILED)
  execute_process(COMMAND "${${way}}" "${WORK}/checkpoints_${way}" RESULT_VARIABLE result OUTPUT_VARIABLE output_${way}
                  ERROR_VARIABLE errors)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${way}: ended by ${result}\n${output_${way}}${errors}")
  endif()
endforeach()
message(STATUS "${output_HEADERS}")
if(NOT output_HEADERS STREQUAL output_COMPILED)
  message(FATAL_ERROR "compiled once it prints\n${output_COMPILED}")
endif()
foreach(expected "sharded_update nhwc: loss [0-9a-f]+, " "\ndouble: loss [0-9a-f]+, " "\nbfloat16: loss [0-9a-f]+, "
        "\nfloat16: loss [0-9a-f]+, " "resumed: yes\nepoch 1: 0x" "a layer: [^\n]*\\[first.cpp:[0-9]+\\]"
        "a rule: [^\n]*\\[first.cpp:[0-9]+\\]" "a loss: [^\n]*\\[first.cpp:[0-9]+\\]")
  if(NOT output_HEADERS MATCHES "${expected}")
    message(FATAL_ERROR "the output does not match: ${expected}")
  endif()
endforeach()
