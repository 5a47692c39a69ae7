# SPDX-License-Identifier: BSL-1.0
#
# Configures, builds and runs examples/consumer, without a network, as -DWAY=... says; with -DLAUNCH=..., its program of
# two ranks, too.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
# The project is copied away: it must not find anything by lying inside the source tree.
file(COPY "${GRADUS_SOURCE}/examples/consumer" DESTINATION "${WORK}")

set(options -DGET_GRADUS=${WAY})
if(WAY STREQUAL "find_package")
  list(APPEND options "-DCMAKE_PREFIX_PATH=${PREFIX}")
elseif(WAY STREQUAL "add_subdirectory")
  list(APPEND options "-DGRADUS_SOURCE=${GRADUS_SOURCE}")
else()
  # The files that a consumer needs, as an archive. Tests and examples are not among them.
  execute_process(COMMAND ${CMAKE_COMMAND} -E tar czf "${WORK}/gradus.tar.gz" CMakeLists.txt LICENSE cmake include interfaces
                  WORKING_DIRECTORY "${GRADUS_SOURCE}" COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND options "-DGRADUS_URL=${WORK}/gradus.tar.gz")
endif()

# No network: in a network namespace of its own where that is allowed, with dead proxies otherwise.
set(offline ${CMAKE_COMMAND} -E env http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9)
execute_process(COMMAND unshare -rn true RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
if(result EQUAL 0)
  set(offline unshare -rn)
endif()

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message(STATUS "${output}")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGN}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

list(APPEND options ${OPTIONS})
run(${offline} ${CMAKE_COMMAND} -S "${WORK}/consumer" -B "${WORK}/build" -G "${GENERATOR}"
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Debug
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "-DCMAKE_CXX_FLAGS_DEBUG=-O0" ${options})
run(${CMAKE_COMMAND} --build "${WORK}/build" --config Debug)

# A subproject stays out of the way: no tests, examples or install rules of gradus.
if(NOT WAY STREQUAL "find_package")
  file(STRINGS "${WORK}/build/CMakeCache.txt" switched_on REGEX "^GRADUS_(BUILD_.*|INSTALL):BOOL=ON")
  if(switched_on)
    message(FATAL_ERROR "on in a subproject: ${switched_on}")
  endif()
endif()
# The headers used are those that were asked for.
if(NOT WAY STREQUAL "add_subdirectory" AND EXISTS "${WORK}/build/compile_commands.json")
  file(READ "${WORK}/build/compile_commands.json" commands)
  string(FIND "${commands}" "${GRADUS_SOURCE}/include" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "compiled with the headers of the source tree:\n${commands}")
  endif()
endif()

find_program(consumer consumer PATHS "${WORK}/build" "${WORK}/build/Debug" NO_DEFAULT_PATH REQUIRED)
run("${consumer}")
if(NOT output MATCHES "gradus ${GRADUS_VERSION}")
  message(FATAL_ERROR "the program should say 'gradus ${GRADUS_VERSION}'")
endif()
if(LAUNCH)
  find_program(ranks ranks PATHS "${WORK}/build" "${WORK}/build/Debug" NO_DEFAULT_PATH REQUIRED)
  run(${LAUNCH} "${ranks}")
  if(NOT output MATCHES "ranks: 2, loss: [0-9]")
    message(FATAL_ERROR "the program should say 'ranks: 2, loss: ...'")
  endif()
endif()
