# SPDX-License-Identifier: BSL-1.0
#
# flags: those that a precompiled header and its users share. From DIRECTORIES.
set(ENV{LC_ALL} C)
set(flags -std=c++20)
foreach(directory IN LISTS DIRECTORIES)
  if(NOT directory STREQUAL "/usr/include")  # is searched in any case, and must stay behind the compiler's own
    list(APPEND flags -isystem "${directory}")
  endif()
endforeach()
