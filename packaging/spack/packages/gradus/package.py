# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Gradus(CMakePackage):
    """Header-only C++20 library of tensors, and for training convolutional networks
    on one core, one node or a cluster."""

    homepage = "@HOMEPAGE@"
    url = "@ARCHIVE_URL@"

    license("BSL-1.0", checked_by="gradus developers")

    version("@VERSION@", sha256="@SHA256@")

    variant("cuda", default=False, description="Tensors and training on GPUs: gradus::cuda")
    variant("gzip", default=True, description="Compressed data sets and traces: gradus::gzip")
    variant("jpeg", default=False, description="Training on photographs: gradus::jpeg")
    variant("mpi", default=True, description="Training on many machines: gradus::mpi")
    variant("nccl", default=False, description="Training on several GPUs: gradus::nccl")
    variant("nvtx", default=False, description="Layers in Nsight Systems: gradus::nvtx")
    variant("onnx", default=False, description="Networks as ONNX files: gradus::onnx")
    variant("png", default=False, description="Training on PNG images: gradus::png")
    variant("programs", default=False, description="gradus_bench, gradus_report and gradus_run")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("eigen@3.4:3")
    depends_on("cuda@12:", when="+cuda")
    depends_on("cuda@12:", when="+nccl")
    depends_on("cuda", when="+nvtx")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl", when="+nccl")
    depends_on("zlib-api", when="+gzip")
    depends_on("libjpeg-turbo", when="+jpeg")
    depends_on("mpi", when="+mpi")
    depends_on("protozero", when="+onnx")
    depends_on("libpng", when="+png")
    depends_on("cli11", when="+programs", type="build")
    depends_on("nlohmann-json", when="+programs", type="build")

    conflicts("+nccl", when="~cuda", msg="NCCL moves gradients between GPUs: write gradus +cuda +nccl")
    conflicts("+programs", when="~mpi", msg="the programs train over MPI: write gradus +mpi +programs")
    conflicts("%gcc@:10", msg="gradus needs C++20 of g++ 11 or newer")
    conflicts("%clang@:14", msg="gradus needs C++20 of clang 15 or newer")
    conflicts("platform=windows", msg="gradus uses the vectors of gcc and clang")

    def cmake_args(self):
        return [
            self.define("GRADUS_BUILD_TESTS", False),
            self.define("GRADUS_BUILD_EXAMPLES", False),
            self.define("GRADUS_BUILD_BENCH", False),
            self.define("GRADUS_INSTALL", True),
            self.define("GRADUS_COMPONENTS", self._components()),
            self.define_from_variant("GRADUS_INSTALL_PROGRAMS", "programs"),
        ]

    def _components(self):
        # The components are made by the find_package of whoever uses them; here they are for the programs.
        if self.spec.satisfies("~programs"):
            return ""
        names = ("cuda", "gzip", "jpeg", "mpi", "nccl", "nvtx", "onnx", "png")
        return ";".join(name for name in names if self.spec.satisfies(f"+{name}"))
