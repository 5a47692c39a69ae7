#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Installs into an empty prefix and builds the programs of docs/c_and_fortran.md there, as a stranger would: by a CMake
project with a shared library, and by hand with pkg-config and the compilers. Ends with 77 (skipped) without gfortran
or pkg-config."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(stranger LANGUAGES C CXX Fortran)
find_package(gradus REQUIRED)
gradus_add_c_library(networks SHARED NO_DOUBLE)
gradus_add_fortran_library(networks_fortran networks)
add_executable(in_c decay.c)
target_link_libraries(in_c PRIVATE networks m)
add_executable(in_fortran decay.f90)
target_link_libraries(in_fortran PRIVATE networks_fortran)
"""


def main():
    parser = argparse.ArgumentParser()
    for name in ("source", "build", "work"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    arguments = parser.parse_args()
    for tool in ("gfortran", "pkg-config", "cc"):
        if shutil.which(tool) is None:
            print(f"check_installed.py: skipped: there is no {tool}")
            return 77
    work, prefix = arguments.work, arguments.work / "prefix"
    shutil.rmtree(work, ignore_errors=True)
    (work / "by_hand").mkdir(parents=True)
    (work / "project").mkdir()
    environment = os.environ | {"PKG_CONFIG_PATH": str(prefix / "share" / "pkgconfig")}

    def run(*command, where=work):
        print("+", *map(str, command), flush=True)
        return subprocess.run([str(each) for each in command], cwd=where, env=environment, check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    run("cmake", "--install", arguments.build, "--prefix", prefix)
    guide = (arguments.source / "docs" / "c_and_fortran.md").read_text(encoding="utf-8")
    for name, language, first in (("decay.c", "c", "#include"), ("decay.f90", "fortran", "program")):
        program = re.search(rf"^```{language}\n({first}.*?)^```", guide, flags=re.MULTILINE | re.DOTALL).group(1)
        for folder in ("project", "by_hand"):
            (work / folder / name).write_text(program, encoding="utf-8")

    # The library is compiled once, by the project. By hand, the programs are linked with it.
    (work / "project" / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
    run("cmake", "-S", work / "project", "-B", work / "built", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug",
        f"-DCMAKE_CXX_COMPILER={arguments.compiler}")
    run("cmake", "--build", work / "built")
    flags = run("pkg-config", "--cflags", "gradus").split()
    source = pathlib.Path(run("pkg-config", "--variable=c_source", "gradus").strip())
    modules = run("pkg-config", "--variable=fortran_sources", "gradus").split()
    here = work / "by_hand"
    library = [work / "built" / "libnetworks.so", f"-Wl,-rpath,{work / 'built'}", "-lm"]
    run(arguments.compiler, "-std=c++20", "-M", *flags, source, where=here)  # it finds all that it includes
    run("cc", *flags, "decay.c", *library, "-o", "in_c", where=here)
    run("gfortran", *modules, "decay.f90", *library, "-o", "in_fortran", where=here)
    for folder in (here, work / "built"):
        for program in ("in_c", "in_fortran"):
            output = run(folder / program)
            if "largest error" not in output:
                print(f"{folder / program} said:\n{output}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
