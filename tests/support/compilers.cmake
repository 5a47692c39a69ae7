# SPDX-License-Identifier: BSL-1.0
#
# The compilers of this machine by their major version: lists `gnu` and `clang` of those that gradus takes, the oldest
# first, and `too_old`.
set(gnu "")
set(clang "")
set(too_old "")
foreach(version RANGE 9 22)
  find_program(GRADUS_GNU_${version} g++-${version})
  find_program(GRADUS_CLANG_${version} clang++-${version})
  mark_as_advanced(GRADUS_GNU_${version} GRADUS_CLANG_${version})
  if(GRADUS_GNU_${version} AND version LESS 11)
    list(APPEND too_old ${GRADUS_GNU_${version}})
  elseif(GRADUS_GNU_${version})
    list(APPEND gnu ${GRADUS_GNU_${version}})
  endif()
  if(GRADUS_CLANG_${version} AND version LESS 15)
    list(APPEND too_old ${GRADUS_CLANG_${version}})
  elseif(GRADUS_CLANG_${version})
    list(APPEND clang ${GRADUS_CLANG_${version}})
  endif()
endforeach()
