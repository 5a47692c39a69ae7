# SPDX-License-Identifier: BSL-1.0
#
# Compiles examples/consumer against networks that were compiled once, by the compiler's command line.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(flags -std=c++20 -DGRADUS_SEPARATE_COMPILATION "-I${SOURCE}/include")
foreach(folder IN LISTS INCLUDES)
  list(APPEND flags -isystem "${folder}")
endforeach()

# compile(<expected status> <pattern> <arguments>...)
function(compile status pattern)
  execute_process(COMMAND "${COMPILER}" ${flags} ${ARGN} WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE result
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if((status EQUAL 0 AND NOT result EQUAL 0) OR (NOT status EQUAL 0 AND result EQUAL 0) OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "expected ${status} and '${pattern}', got ${result} from ${ARGN}\n${output}")
  endif()
endfunction()

compile(0 "" -c "${SOURCE}/examples/consumer/main.cpp" -o main.o)
compile(1 "one_source_file_must_include_gradus_compiled_hpp" main.o -o forgotten -pthread)
compile(0 "" main.o "${LIBRARY}" -o with -pthread)
execute_process(COMMAND "${WORK}/with" COMMAND_ERROR_IS_FATAL ANY)
file(COPY_FILE "${LIBRARY}" "${WORK}/libother.a")
compile(0 "" main.o -Wl,--whole-archive "${LIBRARY}" libother.a -Wl,--no-whole-archive -o twice -pthread)
execute_process(COMMAND "${WORK}/twice" COMMAND_ERROR_IS_FATAL ANY)
file(WRITE "${WORK}/not_alone.cpp" "#include <gradus/gradus.hpp>\n#include <gradus/compiled.hpp>\n")
compile(1 "includes nothing of gradus before it" -fsyntax-only not_alone.cpp)
