# SPDX-License-Identifier: BSL-1.0
#
# The optional components of gradus. A component is an imported target for headers that few programs read; most add a
# third-party library to gradus::gradus. The headers are installed in any case. The consumer decides: this file is read
# by the source tree and by the installed package.

# Modules for find_package that CMake does not have are in the folder of this file.
set(gradus_find_modules "${CMAKE_CURRENT_LIST_DIR}")

# gradus_add_component(<name> [GLOBAL])
#
# Looks for what the component needs and makes the target gradus::<name>. Sets gradus_<name>_FOUND, and
# gradus_<name>_REASON when it is false.
macro(gradus_add_component name)
  set(gradus_${name}_FOUND FALSE)
  set(gradus_${name}_REASON "")
  if(TARGET gradus::${name})
    set(gradus_${name}_FOUND TRUE)
  elseif("${name}" STREQUAL "mpi")  # gradus/comm/mpi*.hpp
    # The C interface of MPI, found through the C++ compiler: the project need not enable the language C.
    find_package(MPI QUIET COMPONENTS CXX)
    if(TARGET MPI::MPI_CXX)
      add_library(gradus::mpi INTERFACE IMPORTED ${ARGN})
      target_link_libraries(gradus::mpi INTERFACE gradus::gradus MPI::MPI_CXX)
      target_compile_definitions(gradus::mpi INTERFACE MPICH_SKIP_MPICXX OMPI_SKIP_MPICXX)
      set(gradus_mpi_FOUND TRUE)
    else()
      set(gradus_mpi_REASON "no MPI for C++ (Debian: mpich and libmpich-dev)")
    endif()
  elseif("${name}" STREQUAL "gzip")  # gradus/data/gzip*.hpp, gradus/data/record_file.hpp, gradus/trace/gzip.hpp
    find_package(ZLIB QUIET)
    if(TARGET ZLIB::ZLIB)
      add_library(gradus::gzip INTERFACE IMPORTED ${ARGN})
      target_link_libraries(gradus::gzip INTERFACE gradus::gradus ZLIB::ZLIB)
      set(gradus_gzip_FOUND TRUE)
    else()
      set(gradus_gzip_REASON "no zlib (Debian: zlib1g-dev)")
    endif()
  elseif("${name}" STREQUAL "jpeg")  # gradus/data/jpeg*.hpp
    # libjpeg-turbo's own package file comes with Debian 12 and newer; the header and the library do everywhere.
    find_path(GRADUS_TURBOJPEG_INCLUDE_DIR turbojpeg.h)
    find_library(GRADUS_TURBOJPEG_LIBRARY turbojpeg)
    mark_as_advanced(GRADUS_TURBOJPEG_INCLUDE_DIR GRADUS_TURBOJPEG_LIBRARY)
    if(GRADUS_TURBOJPEG_INCLUDE_DIR AND GRADUS_TURBOJPEG_LIBRARY)
      add_library(gradus::jpeg INTERFACE IMPORTED ${ARGN})
      target_include_directories(gradus::jpeg INTERFACE "${GRADUS_TURBOJPEG_INCLUDE_DIR}")
      target_link_libraries(gradus::jpeg INTERFACE gradus::gradus "${GRADUS_TURBOJPEG_LIBRARY}")
      set(gradus_jpeg_FOUND TRUE)
    else()
      set(gradus_jpeg_REASON "no libjpeg-turbo with its TurboJPEG interface (Debian: libturbojpeg0-dev)")
    endif()
  elseif("${name}" STREQUAL "png")  # gradus/data/png*.hpp
    find_package(PNG QUIET)
    if(TARGET PNG::PNG)
      add_library(gradus::png INTERFACE IMPORTED ${ARGN})
      target_link_libraries(gradus::png INTERFACE gradus::gradus PNG::PNG)
      set(gradus_png_FOUND TRUE)
    else()
      set(gradus_png_REASON "no libpng (Debian: libpng-dev and zlib1g-dev)")
    endif()
  elseif("${name}" STREQUAL "onnx")  # gradus/onnx.hpp, gradus/onnx/*.hpp
    find_path(GRADUS_PROTOZERO_INCLUDE_DIR protozero/pbf_writer.hpp)
    mark_as_advanced(GRADUS_PROTOZERO_INCLUDE_DIR)
    if(GRADUS_PROTOZERO_INCLUDE_DIR)
      add_library(gradus::onnx INTERFACE IMPORTED ${ARGN})
      target_link_libraries(gradus::onnx INTERFACE gradus::gradus)
      target_include_directories(gradus::onnx SYSTEM INTERFACE "${GRADUS_PROTOZERO_INCLUDE_DIR}")
      set(gradus_onnx_FOUND TRUE)
    else()
      set(gradus_onnx_REASON "no protozero (Debian: libprotozero-dev)")
    endif()
  elseif("${name}" STREQUAL "nvtx")  # gradus/trace/nvtx.hpp
    # Headers alone; they come with the CUDA toolkit.
    find_path(GRADUS_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h PATHS ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda
              PATH_SUFFIXES include)
    if(GRADUS_NVTX_INCLUDE_DIR)
      add_library(gradus::nvtx INTERFACE IMPORTED ${ARGN})
      target_link_libraries(gradus::nvtx INTERFACE gradus::gradus ${CMAKE_DL_LIBS})
      target_include_directories(gradus::nvtx SYSTEM INTERFACE "${GRADUS_NVTX_INCLUDE_DIR}")
      set(gradus_nvtx_FOUND TRUE)
    else()
      set(gradus_nvtx_REASON "no nvtx3/nvToolsExt.h (it comes with the CUDA toolkit)")
    endif()
  elseif("${name}" MATCHES "^(checkpoint|conformance|parameter_server|pipeline|sim)$")  # gradus/NAME.hpp, gradus/NAME/*.hpp
    # They need no other library.
    add_library(gradus::${name} INTERFACE IMPORTED ${ARGN})
    target_link_libraries(gradus::${name} INTERFACE gradus::gradus)
    set(gradus_${name}_FOUND TRUE)
  elseif("${name}" MATCHES "^(cuda|nccl)$")  # gradus/**/*.cuh and gradus/kernels/cuda*; gradus/comm/nccl*
    set(gradus_module_path "${CMAKE_MODULE_PATH}")
    list(APPEND CMAKE_MODULE_PATH "${gradus_find_modules}")
    find_package(CUDAToolkit 12 QUIET)
    if("${name}" STREQUAL "cuda")
      find_package(cuDNN 9 QUIET MODULE)
      set(gradus_library cuDNN::cudnn)
      set(gradus_library_name "cuDNN 9")
    else()
      find_package(NCCL QUIET MODULE)
      set(gradus_library NCCL::nccl)
      set(gradus_library_name "NCCL")
    endif()
    set(CMAKE_MODULE_PATH "${gradus_module_path}")
    if(NOT TARGET CUDA::cudart)
      set(gradus_${name}_REASON "no CUDA toolkit 12 or newer")
    elseif(NOT TARGET ${gradus_library})
      set(gradus_${name}_REASON "no ${gradus_library_name}")
    else()
      add_library(gradus::${name} INTERFACE IMPORTED ${ARGN})
      target_link_libraries(gradus::${name} INTERFACE gradus::gradus CUDA::cudart ${gradus_library})
      set(gradus_${name}_FOUND TRUE)
    endif()
    if("${name}" STREQUAL "cuda" AND gradus_cuda_FOUND)
      # The standard as an option: CMake before 3.26 has no C++20 for nvcc, and asks no feature of C++ of it.
      # Eigen must be the same in files that nvcc compiles and in others: what it does on GPUs is not used.
      target_link_libraries(gradus::cuda INTERFACE CUDA::cublas)
      target_compile_definitions(gradus::cuda INTERFACE EIGEN_NO_CUDA)
      target_compile_options(gradus::cuda INTERFACE
        "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20;--expt-relaxed-constexpr;--extended-lambda;-diag-suppress=20012,20014,1675,2810>")
    endif()
  else()
    set(gradus_${name}_REASON "gradus has no component of that name (it has checkpoint, conformance, cuda, gzip, jpeg, mpi, nccl, nvtx, onnx, parameter_server, pipeline, png and sim)")
  endif()
endmacro()
