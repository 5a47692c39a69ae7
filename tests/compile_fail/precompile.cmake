# SPDX-License-Identifier: BSL-1.0
#
# cmake -DCOMPILER=... -DDIRECTORIES=... -DHEADER=... -P precompile.cmake
cmake_minimum_required(VERSION 3.22)
include("${CMAKE_CURRENT_LIST_DIR}/flags.cmake")
execute_process(COMMAND "${COMPILER}" ${flags} -x c++-header "${HEADER}" -o "${HEADER}.gch" COMMAND_ERROR_IS_FATAL ANY)
