# SPDX-License-Identifier: BSL-1.0
#
# Files for pkg-config, in share/: gradus.pc, and gradus-COMPONENT.pc for the components whose library pkg-config can
# name. They find the prefix by their own place, so the tree can be moved.

# gradus_install_pkg_config(<name> <description> <requires> <compiler flags> <linker flags> [<variables>])
function(gradus_install_pkg_config name description requires flags libraries)
  file(RELATIVE_PATH to_prefix "/prefix/${CMAKE_INSTALL_DATADIR}/pkgconfig" "/prefix")
  string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
  set(text "prefix=\${pcfiledir}/${to_prefix}\nincludedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}\n${ARGN}\n")
  string(APPEND text "Name: ${name}\nDescription: ${description}\nVersion: ${PROJECT_VERSION}\n")
  foreach(field "Requires: ${requires}" "Cflags: ${flags}" "Libs: ${libraries}")
    if(NOT field MATCHES ": $")
      string(APPEND text "${field}\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc" CONTENT "${text}" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig"
          COMPONENT development)
endfunction()

gradus_install_pkg_config(gradus "${PROJECT_DESCRIPTION}; compile with -std=c++20 and -O2" "eigen3 >= 3.4"
                          "-I\${includedir} -pthread" "-pthread"
                          "sources=\${prefix}/${CMAKE_INSTALL_DATADIR}/gradus\nc_source=\${sources}/c/gradus_c.cpp\nfortran_sources=\${sources}/fortran/gradus_c_interface.f90 \${sources}/fortran/gradus.f90\n")
gradus_install_pkg_config(gradus-gzip "gradus with compressed data sets and traces" "gradus, zlib" "" "")
gradus_install_pkg_config(gradus-jpeg "gradus with photographs" "gradus, libturbojpeg" "" "")
gradus_install_pkg_config(gradus-mpi "gradus with MPI; compile with the mpicxx of your MPI" "gradus"
                          "-DMPICH_SKIP_MPICXX -DOMPI_SKIP_MPICXX" "")
gradus_install_pkg_config(gradus-onnx "gradus with ONNX files; needs the headers of protozero" "gradus" "" "")
gradus_install_pkg_config(gradus-png "gradus with PNG images" "gradus, libpng" "" "")
