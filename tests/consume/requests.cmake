# SPDX-License-Identifier: BSL-1.0
#
# Which requests to find_package(gradus ...) an installed gradus accepts, and what it says when it refuses.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${WORK}")

# request(<text> <regular expression on the output>...): configures tests/consume/requests.
function(request text)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S "${PROJECT}" -B "${WORK}" -G "${GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
            "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DREQUEST=${text}"
            ${hidden}
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  foreach(pattern IN LISTS ARGN)
    if(NOT output MATCHES "${pattern}")
      message(SEND_ERROR "find_package(gradus ${text}): nothing matches '${pattern}' in:\n${output}")
    endif()
  endforeach()
endfunction()

string(REGEX MATCH "^([0-9]+)\\.([0-9]+)\\.([0-9]+)$" version "${GRADUS_VERSION}")
set(major ${CMAKE_MATCH_1})
set(minor ${CMAKE_MATCH_2})
set(patch ${CMAKE_MATCH_3})
math(EXPR next_minor "${minor} + 1")
math(EXPR next_major "${major} + 1")
math(EXPR next_patch "${patch} + 1")

request("" "found: (TRUE|1) ${version}" "target: gradus::gradus" "Generating done")
request("${major}.${minor}" "found: (TRUE|1) ${version}")
request("${version} EXACT" "found: (TRUE|1) ${version}")
request("${major}.${minor}.${next_patch}" "found: (FALSE|0)" "considered[ \n]+but[ \n]+not[ \n]+accepted")
request("${major}.${next_minor}" "found: (FALSE|0)")
request("${next_major}.0" "found: (FALSE|0)")
if(major EQUAL 0 AND minor GREATER 0)  # before 1.0 a minor version may change the interface
  math(EXPR previous_minor "${minor} - 1")
  request("${major}.${previous_minor}" "found: (FALSE|0)")
endif()

foreach(component IN LISTS COMPONENTS)
  request("${major}.${minor} REQUIRED COMPONENTS ${component}" "target: gradus::${component}" "Generating done")
endforeach()
# A component is made only when it is asked for.
execute_process(COMMAND ${CMAKE_COMMAND} "-DREQUEST=" "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(output MATCHES "target: gradus::(checkpoint|conformance|mpi|gzip|jpeg|onnx|parameter_server|pipeline|png|sim|cuda|nccl)")
  message(SEND_ERROR "a component came without being asked for:\n${output}")
endif()
request("COMPONENTS telepathy" "found: (FALSE|0)" "component[ \n]+telepathy" "no[ \n]+component[ \n]+of[ \n]+that[ \n]+name")
request("OPTIONAL_COMPONENTS telepathy" "found: (TRUE|1)")
# A library that is missing is named.
foreach(case "gzip ZLIB zlib1g-dev" "mpi MPI libmpich-dev" "cuda CUDAToolkit toolkit" "nccl CUDAToolkit toolkit")
  string(REPLACE " " ";" case "${case}")
  list(GET case 0 component)
  list(GET case 1 library)
  list(GET case 2 package)
  set(hidden -DCMAKE_DISABLE_FIND_PACKAGE_${library}=ON)
  request("COMPONENTS ${component}" "found: (FALSE|0)" "component[ \n]+${component}" "${package}")
  set(hidden "")
endforeach()
