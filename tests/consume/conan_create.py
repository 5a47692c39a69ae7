#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""`conan create` of the source tree with its test_package, in a Conan home of its own.

Conan 2 comes from the path, or from PyPI into a virtual environment in the working folder. ConanCenter is not asked:
the package is made with the system's Eigen, and a second time with a package "eigen" that is made here from it.
Exit code 77: there is no Conan 2 to be had.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77

EIGEN = '''# The system's Eigen as a Conan package: a stand-in for the one of ConanCenter.
import os
from conan import ConanFile
from conan.tools.files import copy


class EigenConan(ConanFile):
    name = "eigen"
    version = "3.4.0"
    package_type = "header-library"

    def package(self):
        copy(self, "*", "@INCLUDE@", os.path.join(self.package_folder, "include", "eigen3"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "Eigen3")
        self.cpp_info.set_property("cmake_target_name", "Eigen3::Eigen")
        self.cpp_info.includedirs = [os.path.join("include", "eigen3")]
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
'''


REQUIREMENTS = pathlib.Path(__file__).with_name("conan_requirements.txt")


def is_conan_2(program):
    answer = subprocess.run([program, "--version"], capture_output=True, text=True)
    return answer.returncode == 0 and "Conan version 2." in answer.stdout


def find_conan(work):
    found = shutil.which("conan")
    if found and is_conan_2(found):
        return found
    environment = work / "venv"
    conan = environment / "bin" / "conan"
    installed = environment / REQUIREMENTS.name  # what is in the environment
    wanted = REQUIREMENTS.read_text()
    if not (installed.exists() and installed.read_text() == wanted and is_conan_2(str(conan))):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        pins = {"PIP_CONSTRAINT": str(REQUIREMENTS), "PIP_BUILD_CONSTRAINT": str(REQUIREMENTS)}  # of what builds, too
        pip = subprocess.run([str(environment / "bin" / "pip"), "install", "--quiet", "--requirement",
                              str(REQUIREMENTS)], env={**os.environ, **pins})
        if pip.returncode != 0:
            print("skipped: Conan 2 is not on the path and pip cannot install it from PyPI")
            sys.exit(SKIPPED)
        installed.write_text(wanted)
    return str(conan)


def eigen_include():
    for folder in ("/usr/include/eigen3", "/usr/local/include/eigen3"):
        if os.path.isdir(folder):
            return folder
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--release", type=pathlib.Path, required=True, help="what scripts/release has written")
    arguments = parser.parse_args()
    work = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    conan = find_conan(work)
    home = work / "home"
    shutil.rmtree(home, ignore_errors=True)
    environment = dict(os.environ, CONAN_HOME=str(home))

    def run(*words, source=None):
        print("conan", *words, flush=True)
        answer = subprocess.run(
            [conan, *words], env=environment, cwd=source or work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        print(answer.stdout, flush=True)
        if answer.returncode != 0:
            sys.exit(f"conan {words[0]} failed")
        return answer.stdout

    # The recipe, and the sources it exports, are used from a copy: conan writes into the folder of test_package.
    tree = work / "source"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    for name in ("CMakeLists.txt", "LICENSE", "conanfile.py"):
        shutil.copy(arguments.source / name, tree)
    for name in ("cmake", "include", "test_package"):
        shutil.copytree(arguments.source / name, tree / name)
    shutil.copytree(arguments.source / "examples" / "consumer", tree / "examples" / "consumer")

    run("profile", "detect")
    run("remote", "disable", "*")
    # The generator of our presets: a machine with it need not have make.
    with open(home / "global.conf", "a", encoding="utf-8") as settings:
        settings.write("\ntools.cmake.cmaketoolchain:generator=Ninja\n")
    ways = [["-o", "&:system_eigen=True"]]
    include = eigen_include()
    if include:
        recipe = work / "eigen"
        recipe.mkdir(exist_ok=True)
        (recipe / "conanfile.py").write_text(EIGEN.replace("@INCLUDE@", include))
        run("create", str(recipe))
        ways.append([])
    for way in ways:
        output = run("create", ".", *way, "-s", "compiler.cppstd=20", "-s", "build_type=Debug", source=tree)
        if f"gradus {arguments.version}" not in output:
            sys.exit("the program of test_package did not run")
        if not re.search(rf"gradus/{re.escape(arguments.version)}\b", output):
            sys.exit(f"the recipe does not have the version {arguments.version}")
    # A compiler that is set to an older standard is refused, with the reason.
    words = ["create", ".", "-o", "&:system_eigen=True", "-s", "compiler.cppstd=17"]
    answer = subprocess.run([conan, *words], env=environment, cwd=tree, capture_output=True, text=True)
    if answer.returncode == 0 or "C++ standard" not in answer.stdout + answer.stderr:
        sys.exit(f"C++17 should be refused: {answer.stdout}{answer.stderr}")

    # The recipe for Conan Center, with the archive of the release from its folder.
    if not arguments.release.is_dir():
        return 0  # the sources are no git repository: there is no release of them
    recipe = work / "conan-center"
    shutil.rmtree(recipe, ignore_errors=True)
    shutil.copytree(arguments.release / "conan-center", recipe)
    if f'"{arguments.version}":\n    folder: all' not in (recipe / "config.yml").read_text():
        sys.exit("config.yml does not have the version")
    data = recipe / "all" / "conandata.yml"
    archive = arguments.release / f"gradus-{arguments.version}.tar.gz"
    data.write_text(re.sub(r'url: "[^"]+"', f'url: "{archive.as_uri()}"', data.read_text()))
    run("remove", "gradus", "-c")
    if not include:
        return 0  # the recipe asks for Conan's Eigen
    standard = ["--version", arguments.version, "-s", "compiler.cppstd=20"]
    output = run("create", "all", *standard, source=recipe)
    if f"gradus {arguments.version}: 2 + 1 is 3" not in output:
        sys.exit("the program of Conan Center's test_package did not run")
    packages = [path.parent for path in (home / "p").rglob("licenses") if "eigen" not in str(path)]
    for package in packages:
        there = sorted(path.name for path in package.iterdir() if not path.name.startswith("conan"))
        if there != ["include", "licenses"]:
            sys.exit(f"the package of Conan Center has {there}: expected headers and the license only")
    if len(packages) != 1:
        sys.exit(f"the packages of Conan Center: {packages}")
    for words, reason in ((["-s", "compiler.cppstd=17"], "C++ standard"),
                          (["-s", "compiler=gcc", "-s", "compiler.version=10", "-s", "compiler.cppstd=20"],
                           "gcc 11 or newer"), (["-s", "os=Windows", "-s", "compiler.cppstd=20"], "for Linux")):
        answer = subprocess.run([conan, "create", "all", "--version", arguments.version, *words], env=environment,
                                cwd=recipe, capture_output=True, text=True)
        if answer.returncode == 0 or reason not in answer.stdout + answer.stderr:
            sys.exit(f"{words} should be refused ({reason}): {answer.stdout}{answer.stderr}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
