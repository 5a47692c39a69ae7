# SPDX-License-Identifier: BSL-1.0
#
# Installs into a prefix that was empty, and looks at what is there.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND ${CMAKE_COMMAND} --install "${GRADUS_BINARY}" --prefix "${PREFIX}" --config "${CONFIG}"
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "cmake --install failed:\n${output}")
endif()

# Every header, and nothing else, is there, the same as in the source tree.
file(GLOB_RECURSE expected RELATIVE "${GRADUS_SOURCE}/include" "${GRADUS_SOURCE}/include/*")
file(GLOB_RECURSE installed RELATIVE "${PREFIX}/include" "${PREFIX}/include/*")
if(NOT "${expected}" STREQUAL "${installed}")
  message(FATAL_ERROR "in the source: ${expected}\ninstalled: ${installed}")
endif()
file(GLOB_RECURSE others RELATIVE "${PREFIX}" "${PREFIX}/*")
list(FILTER others EXCLUDE REGEX "^include/")
set(expected share/cmake/gradus/FindNCCL.cmake share/cmake/gradus/FindcuDNN.cmake
    share/cmake/gradus/gradus-config-version.cmake share/cmake/gradus/gradus-config.cmake
    share/cmake/gradus/gradus-targets.cmake share/cmake/gradus/gradus_compiled.cmake share/cmake/gradus/gradus_components.cmake
    share/cmake/gradus/gradus_interfaces.cmake)
file(GLOB_RECURSE sources RELATIVE "${GRADUS_SOURCE}/interfaces" "${GRADUS_SOURCE}/interfaces/*.[cfh][p9]*")
list(TRANSFORM sources PREPEND share/gradus/)
list(APPEND expected ${sources} share/licenses/gradus/LICENSE
     share/pkgconfig/gradus-gzip.pc share/pkgconfig/gradus-jpeg.pc share/pkgconfig/gradus-mpi.pc
     share/pkgconfig/gradus-onnx.pc share/pkgconfig/gradus-png.pc share/pkgconfig/gradus.pc)
if(NOT "${expected}" STREQUAL "${others}")
  message(FATAL_ERROR "beside the headers expected: ${expected}\ninstalled: ${others}")
endif()

# Nothing points back to the tree it was built in, and no flags are forced on a consumer.
foreach(file IN LISTS others)
  file(READ "${PREFIX}/${file}" text)
  foreach(place "${GRADUS_SOURCE}" "${GRADUS_BINARY}")
    string(FIND "${text}" "${place}/" found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${file} names ${place}")
    endif()
  endforeach()
  if(text MATCHES "INTERFACE_COMPILE_OPTIONS|-Wall|-march")
    message(FATAL_ERROR "${file} carries compiler flags")
  endif()
endforeach()
