# SPDX-License-Identifier: BSL-1.0
#
# What tests, examples and benchmarks share. Never part of the exported target.

set(CMAKE_CXX_EXTENSIONS OFF)

# Warnings for our own sources. What GCC's optimizer guesses about the insides of the standard library stays a warning, and
# clang is silent about what libstdc++ uses itself, lengths that the standard only recommends, and signs, as GCC is.
option(GRADUS_WARNINGS_AS_ERRORS "Warnings in tests and examples are errors" ON)
function(gradus_enable_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                         $<$<BOOL:${GRADUS_WARNINGS_AS_ERRORS}>:-Werror>
                         $<$<CXX_COMPILER_ID:GNU>:-fconcepts-diagnostics-depth=3 -Wno-error=stringop-overflow
                         -Wno-error=stringop-overread -Wno-error=array-bounds -Wno-error=restrict
                         -Wno-error=maybe-uninitialized>
                         $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations -Wno-overlength-strings
                         -Wno-sign-conversion>)
endfunction()

set(GRADUS_TEST_OPTIMIZATION "" CACHE STRING
    "Optimization of test programs that compute little, which are most; empty: that of the build")
set(GRADUS_PROGRAM_OPTIMIZATION "" CACHE STRING
    "Optimization of other programs that are built for the tests; empty: that of the build")

# Whether the programs of bench are there for the tests alone: benchmarks are not built and nothing is installed.
set(programs_for_tests_alone ON)
if(GRADUS_BUILD_BENCH OR GRADUS_INSTALL_PROGRAMS)
  set(programs_for_tests_alone OFF)
endif()

# gradus_optimize_for_tests(<target>): such a program is optimized as those of the tests are.
function(gradus_optimize_for_tests target)
  if(programs_for_tests_alone)
    target_compile_options(${target} PRIVATE ${GRADUS_PROGRAM_OPTIMIZATION})
  endif()
endfunction()

# What examples and programs of the tests compile once, where one of them is built. Tests have networks of all types.
if(GRADUS_BUILD_TESTS OR GRADUS_BUILD_EXAMPLES)
  set(programs_elements float)
  if(GRADUS_BUILD_TESTS)
    list(APPEND programs_elements double bfloat16 float16)
  endif()
  gradus_add_compiled(programs_compiled ELEMENTS ${programs_elements})
  set_target_properties(programs_compiled PROPERTIES EXCLUDE_FROM_ALL ON)
  gradus_enable_warnings(programs_compiled)
endif()

# gradus_mpi_command(<variable> <ranks>): the words that start a program on <ranks> ranks, here and as root too.
function(gradus_mpi_command variable ranks)
  set(${variable}
      ${CMAKE_COMMAND} -E env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
      OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
      ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
      PARENT_SCOPE)
endfunction()

# gradus_enable_cuda(): the language CUDA for this folder, for Hopper if the project names no CMAKE_CUDA_ARCHITECTURES;
# without nvcc CMAKE_CUDA_COMPILER is false afterwards. A macro: languages belong to folders.
macro(gradus_enable_cuda)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS "${CUDAToolkit_BIN_DIR}")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90-real)
    endif()
    enable_language(CUDA)
  endif()
endmacro()

# gradus_enable_interfaces(): the languages C and Fortran for this folder, where they can be had, and the libraries gradus_c
# and gradus_fortran, which tests and examples share. A macro: languages belong to folders.
macro(gradus_enable_interfaces)
  include(CheckLanguage)
  foreach(language C Fortran)
    if(NOT CMAKE_${language}_COMPILER)
      check_language(${language})
    endif()
    if(CMAKE_${language}_COMPILER)
      enable_language(${language})
    endif()
  endforeach()
  if(NOT TARGET gradus_c)
    set(features "")
    if(GRADUS_TEST_FILTER)
      set(features NO_DOUBLE)  # sanitizers take the compiler long enough
    else()
      if(TARGET gradus::mpi)
        list(APPEND features MPI)
      endif()
      if(TARGET gradus::onnx)
        list(APPEND features ONNX)
      endif()
    endif()
    gradus_add_c_library(gradus_c STATIC ${features})
    gradus_enable_warnings(gradus_c)
    target_link_libraries(gradus_c PRIVATE programs_compiled)
    target_compile_options(gradus_c PRIVATE ${GRADUS_TEST_OPTIMIZATION})
    if(CMAKE_Fortran_COMPILER AND NOT GRADUS_TEST_FILTER)
      gradus_add_fortran_library(gradus_fortran gradus_c)
    endif()
  endif()
endmacro()
