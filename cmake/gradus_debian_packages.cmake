# SPDX-License-Identifier: BSL-1.0
#
# Debian packages by `cpack -G DEB`: libgradus-dev with the headers, and gradus-tools with the programs where they are
# built (GRADUS_INSTALL_PROGRAMS). In the build folder of an install to /usr.
set(CPACK_PACKAGE_NAME gradus)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_VENDOR gradus)
set(CPACK_PACKAGE_CONTACT "gradus developers <gradus@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_COMPONENTS_ALL development)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libgradus-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libeigen3-dev (>= 3.4)")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "g++ (>= 4:11) | clang (>= 1:15)")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS
    "libmpich-dev | libopenmpi-dev, zlib1g-dev, libturbojpeg0-dev, libpng-dev, libprotozero-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${PROJECT_DESCRIPTION}
The headers, and the files for CMake and pkg-config. A program includes
<gradus/gradus.hpp>; there is no library to link.")

if(GRADUS_INSTALL_PROGRAMS)
  list(APPEND CPACK_COMPONENTS_ALL programs)
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME gradus-tools)
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_DEPENDS "libc6")  # what the programs need is added to it
  set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "Programs of gradus, which trains convolutional networks
gradus_bench measures training on one machine or a cluster, gradus_report shows
where the time of a trace goes, gradus_run starts a job again when it dies.")
endif()
include(CPack)
