# SPDX-License-Identifier: BSL-1.0
"""Conan 2 recipe. `conan create . -s compiler.cppstd=20`; for the Eigen of the system, also `-o "&:system_eigen=True"`."""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm

required_conan_version = ">=2.0"


class GradusConan(ConanFile):
    name = "gradus"
    license = "BSL-1.0"
    description = "Header-only C++20 library that trains convolutional networks on one core, one node or a cluster"
    topics = ("deep-learning", "convolutional-networks", "mpi", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "with_gzip": [True, False],  # adds what gradus::gzip needs
        "with_jpeg": [True, False],  # adds what gradus::jpeg needs
        "with_onnx": [True, False],  # adds what gradus::onnx needs
        "with_png": [True, False],  # adds what gradus::png needs
        "system_eigen": [True, False],  # Eigen from the system, not from Conan
    }
    default_options = {"with_gzip": False, "with_jpeg": False, "with_onnx": False, "with_png": False,
                       "system_eigen": False}
    # The components checkpoint, conformance, parameter_server, pipeline and sim need nothing more. gradus::mpi takes the MPI of the machine: a cluster has its own.
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "interfaces/*"
    no_copy_source = True

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "include", "gradus", "core", "version.hpp"))
        self.version = ".".join(
            re.search(rf"define GRADUS_VERSION_{part} (\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH"))

    def requirements(self):
        if not self.options.system_eigen:
            self.requires("eigen/3.4.0", transitive_headers=True)
        if self.options.with_gzip:
            self.requires("zlib/[>=1.2.11 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.with_jpeg:
            self.requires("libjpeg-turbo/[>=2.1 <4]", transitive_headers=True, transitive_libs=True)
        if self.options.with_onnx:
            self.requires("protozero/[>=1.7.1 <2]", transitive_headers=True)
        if self.options.with_png:
            self.requires("libpng/[>=1.6.34 <2]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"GRADUS_BUILD_{part}"] = False
        toolchain.cache_variables["GRADUS_INSTALL"] = True
        toolchain.cache_variables["GRADUS_COMPONENTS"] = ""
        toolchain.generate()
        if not self.options.system_eigen:
            from conan.tools.cmake import CMakeDeps

            CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        # CMake finds the package's own configuration, which makes gradus::gradus and the optional components.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.set_property("cmake_file_name", "gradus")
        self.cpp_info.set_property("cmake_target_name", "gradus::gradus")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "gradus")]
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
