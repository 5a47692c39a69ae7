# SPDX-License-Identifier: BSL-1.0
#
# The source tree where there is no MPI: the examples that use it build. Where there is no zlib and no CLI11 either, it configures
# and says what it leaves out.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${WORK}")

# configure(<message that must be there> <option>...)
function(configure pattern)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S "${GRADUS_SOURCE}" -B "${WORK}" -G "${GENERATOR}"
            "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Debug
            -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DGRADUS_BUILD_TESTS=OFF -DGRADUS_BUILD_EXAMPLES=ON ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message(STATUS "${output}")
  if(NOT result EQUAL 0 OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "status ${result}; it should configure and say '${pattern}'")
  endif()
endfunction()

configure("gradus::mpi: left out: no MPI" -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
# The others do not ask for MPI.
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK}" --config Debug --target train_mnist parameter_server
                RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "the examples do not build without MPI")
endif()
configure("gradus::gzip: left out: no zlib.*train_mnist is left out" -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON
          -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON)
