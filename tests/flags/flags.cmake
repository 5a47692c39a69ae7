# SPDX-License-Identifier: BSL-1.0
#
# includes: the options for DIRECTORIES, those of gradus as AS says (-I or -isystem, which is usual), others -isystem.
set(ENV{LC_ALL} C)
set(includes "")
foreach(directory IN LISTS DIRECTORIES)
  if(AS AND EXISTS "${directory}/gradus/gradus.hpp")
    list(APPEND includes ${AS} "${directory}")
  elseif(NOT directory STREQUAL "/usr/include")  # is searched in any case, and must stay behind the compiler's own
    list(APPEND includes -isystem "${directory}")
  endif()
endforeach()
