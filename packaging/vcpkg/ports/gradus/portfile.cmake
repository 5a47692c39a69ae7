# SPDX-License-Identifier: BSL-1.0
#
# Overlay port of the source tree that contains it: vcpkg install gradus --overlay-ports=packaging/vcpkg/ports
set(VCPKG_BUILD_TYPE release) # header-only
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

# Features only add dependencies: the components are made by the consumer's find_package.
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DGRADUS_BUILD_TESTS=OFF
        -DGRADUS_BUILD_EXAMPLES=OFF
        -DGRADUS_BUILD_BENCH=OFF
        -DGRADUS_INSTALL=ON
        -DGRADUS_COMPONENTS=
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME gradus CONFIG_PATH share/cmake/gradus)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib" "${CURRENT_PACKAGES_DIR}/share/licenses")

file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
