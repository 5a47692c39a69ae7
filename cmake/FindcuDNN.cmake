# SPDX-License-Identifier: BSL-1.0
#
# cuDNN 9 or newer: the target cuDNN::cudnn, and cuDNN_VERSION. It is looked for beside the CUDA toolkit, in the places
# of the system, and under cuDNN_ROOT.
find_package(CUDAToolkit QUIET)
find_path(cuDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(cuDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
if(cuDNN_INCLUDE_DIR)
  set(cuDNN_VERSION "")
  foreach(part MAJOR MINOR PATCHLEVEL)
    foreach(header cudnn_version_v9.h cudnn_version.h)  # Debian's cudnn_version.h is a link to the other one
      if(EXISTS "${cuDNN_INCLUDE_DIR}/${header}")
        file(STRINGS "${cuDNN_INCLUDE_DIR}/${header}" line REGEX "^#define CUDNN_${part} +[0-9]+" LIMIT_COUNT 1)
        if(line)
          break()
        endif()
      endif()
    endforeach()
    string(REGEX REPLACE "^#define [A-Z_]+ +([0-9]+).*" "\\1" line "${line}")
    string(APPEND cuDNN_VERSION "${line}.")
  endforeach()
  string(REGEX REPLACE "\\.$" "" cuDNN_VERSION "${cuDNN_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR VERSION_VAR cuDNN_VERSION)
if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cudnn PROPERTIES
    IMPORTED_LOCATION "${cuDNN_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${cuDNN_INCLUDE_DIR}")
endif()
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)
