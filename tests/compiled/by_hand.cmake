# SPDX-License-Identifier: BSL-1.0
#
# Compiles examples/consumer against networks that are compiled once, by the compiler's command line: in one file, which
# has one layout only, and with LIBRARY, which CMake has made of a file for each element type.
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
file(WRITE "${WORK}/library.cpp" "#include <gradus/compiled.hpp>\n")
compile(0 "" -c library.cpp -DGRADUS_COMPILED_NHWC_ONLY -o library.o)
compile(0 "" main.o library.o -o with -pthread)
execute_process(COMMAND "${WORK}/with" COMMAND_ERROR_IS_FATAL ANY)
foreach(order "main.o;library.o;${LIBRARY}" "main.o;${LIBRARY};library.o")
  compile(0 "" -Wl,--whole-archive ${order} -Wl,--no-whole-archive -o two_libraries -pthread)
  execute_process(COMMAND "${WORK}/two_libraries" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(WRITE "${WORK}/not_alone.cpp" "#include <gradus/gradus.hpp>\n#include <gradus/compiled.hpp>\n")
compile(1 "includes nothing of gradus before it" -fsyntax-only not_alone.cpp)
