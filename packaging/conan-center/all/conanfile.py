import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, get
from conan.tools.layout import basic_layout
from conan.tools.scm import Version

required_conan_version = ">=2.0.9"


class GradusConan(ConanFile):
    name = "gradus"
    description = "Header-only library that trains convolutional networks on one core, one node or a cluster"
    license = "BSL-1.0"
    url = "https://github.com/conan-io/conan-center-index"
    homepage = "@HOMEPAGE@"
    topics = ("deep-learning", "convolutional-networks", "mpi", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "with_gzip": [True, False],
        "with_jpeg": [True, False],
        "with_mpi": [True, False],
        "with_onnx": [True, False],
        "with_png": [True, False],
    }
    default_options = {
        "with_gzip": False,
        "with_jpeg": False,
        "with_mpi": False,
        "with_onnx": False,
        "with_png": False,
    }
    no_copy_source = True

    def layout(self):
        basic_layout(self, src_folder="src")

    def requirements(self):
        self.requires("eigen/3.4.0", transitive_headers=True)
        if self.options.with_gzip:
            self.requires("zlib/[>=1.2.11 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.with_jpeg:
            self.requires("libjpeg-turbo/3.0.2", transitive_headers=True, transitive_libs=True)
        if self.options.with_mpi:
            self.requires("openmpi/4.1.6", transitive_headers=True, transitive_libs=True)
        if self.options.with_onnx:
            self.requires("protozero/1.7.1", transitive_headers=True)
        if self.options.with_png:
            self.requires("libpng/1.6.43", transitive_headers=True, transitive_libs=True)

    def package_id(self):
        self.info.clear()

    def validate(self):
        check_min_cppstd(self, 20)
        oldest = {"gcc": "11", "clang": "15"}
        compiler = str(self.settings.compiler)
        if compiler not in oldest:
            raise ConanInvalidConfiguration(f"{self.ref} needs gcc or clang: it uses their vectors")
        if Version(self.settings.compiler.version) < oldest[compiler]:
            raise ConanInvalidConfiguration(f"{self.ref} needs {compiler} {oldest[compiler]} or newer")
        if self.settings.os not in ("Linux", "FreeBSD"):
            raise ConanInvalidConfiguration(f"{self.ref} is for Linux and FreeBSD")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for pattern in ("gradus/*.hpp", "gradus/*.cuh"):
            copy(self, pattern, os.path.join(self.source_folder, "include"),
                 os.path.join(self.package_folder, "include"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "gradus")
        self.cpp_info.set_property("pkg_config_name", "gradus-all")

        core = self._component("gradus", ["eigen::eigen"])
        core.system_libs = ["pthread"]
        for option, requirement in (
            ("gzip", "zlib::zlib"),
            ("jpeg", "libjpeg-turbo::turbojpeg"),
            ("mpi", "openmpi::ompi-c"),
            ("onnx", "protozero::protozero"),
            ("png", "libpng::libpng"),
        ):
            if self.options.get_safe(f"with_{option}"):
                self._component(option, ["gradus", requirement])
        for component in ("checkpoint", "conformance", "parameter_server", "pipeline", "sim"):
            self._component(component, ["gradus"])
        if self.options.with_mpi:
            self.cpp_info.components["mpi"].defines = ["MPICH_SKIP_MPICXX", "OMPI_SKIP_MPICXX"]

    def _component(self, name, requires):
        component = self.cpp_info.components[name]
        component.set_property("cmake_target_name", f"gradus::{name}")
        component.set_property("pkg_config_name", "gradus" if name == "gradus" else f"gradus-{name}")
        component.bindirs = []
        component.libdirs = []
        component.requires = requires
        return component
