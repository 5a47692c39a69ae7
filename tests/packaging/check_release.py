#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""scripts/release as its user calls it, and each recipe that it writes, with the steps of the package manager."""

import argparse
import hashlib
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import types

HOMEPAGE = "https://example.org/gradus"

# The functions of vcpkg that the port calls, as vcpkg documents them, over real CMake.
VCPKG = r'''
cmake_minimum_required(VERSION 3.22)
set(PORT gradus)
macro(vcpkg_download_distfile variable)
  cmake_parse_arguments(distfile "" "FILENAME;SHA512" "URLS" ${ARGN})
  file(SHA512 "${RELEASE}/${distfile_FILENAME}" sum)
  if(NOT sum STREQUAL distfile_SHA512 OR NOT distfile_URLS MATCHES "/${distfile_FILENAME}$")
    message(FATAL_ERROR "${distfile_FILENAME} from ${distfile_URLS} has SHA512 ${sum}, the port ${distfile_SHA512}")
  endif()
  set(${variable} "${RELEASE}/${distfile_FILENAME}")
endmacro()
macro(vcpkg_extract_source_archive variable)
  cmake_parse_arguments(extract "" "ARCHIVE" "" ${ARGN})
  file(ARCHIVE_EXTRACT INPUT "${extract_ARCHIVE}" DESTINATION "${WORK}/src")
  file(GLOB ${variable} "${WORK}/src/*")
endmacro()
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGV}: ${output}")
  endif()
endfunction()
function(vcpkg_cmake_configure)
  cmake_parse_arguments(configure "" "SOURCE_PATH" "OPTIONS" ${ARGN})
  run(${CMAKE_COMMAND} -G Ninja -S "${configure_SOURCE_PATH}" -B "${WORK}/build" ${configure_OPTIONS}
      -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR})
endfunction()
function(vcpkg_cmake_install)
  run(${CMAKE_COMMAND} --build "${WORK}/build" --target install)
endfunction()
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(fixup "" "PACKAGE_NAME;CONFIG_PATH" "" ${ARGN})
  file(GLOB files "${CURRENT_PACKAGES_DIR}/${fixup_CONFIG_PATH}/*")
  file(COPY ${files} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${fixup_PACKAGE_NAME}")
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/cmake")
endfunction()
function(vcpkg_fixup_pkgconfig)
endfunction()
function(vcpkg_install_copyright)
  cmake_parse_arguments(copyright "" "" "FILE_LIST" ${ARGN})
  file(INSTALL ${copyright_FILE_LIST} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}" RENAME copyright)
endfunction()
include("${PORTFILE}")
'''


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--eigen", required=True)
    arguments = parser.parse_args()
    source, work, version = arguments.source, arguments.work, arguments.version
    complaints = []

    def expect(condition, complaint):
        if not condition:
            complaints.append(complaint)

    def run(*words, **options):
        answer = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, **options)
        return answer.returncode, answer.stdout

    # A release is made of a commit: the tree as it is becomes one, in a repository of its own.
    shutil.rmtree(work, ignore_errors=True)
    tree = work / "tree"
    code, files = run("git", "-C", source, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if code != 0:  # an archive of the sources is no repository
        print("skipped: the source tree is not a git repository")
        return 77
    for name in filter(None, files.split("\0")):
        if (source / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, tree / name)
    for words in (["init", "-q"], ["add", "-A"],
                  ["-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-q", "-m", "tree"]):
        code, output = run("git", "-C", tree, *words)
        expect(code == 0, f"git {words}: {output}")

    def release(folder, *words):
        return run(tree / "scripts/release", "--homepage", HOMEPAGE, "--output", work / folder, *words)

    made = work / "release"
    for folder in ("release", "again"):
        code, output = release(folder)
        expect(code == 0, f"scripts/release: {output}")
    if complaints:
        print("\n".join(complaints))
        return 1
    name = f"gradus-{version}.tar.gz"
    data = (made / name).read_bytes()
    expect(data == (work / "again" / name).read_bytes(), "two archives of one commit differ")
    sums = (made / "SHA256SUMS").read_text()
    expect(f"{hashlib.sha256(data).hexdigest()}  {name}\n" in sums, f"SHA256SUMS: {sums}")
    with tarfile.open(made / name) as archive:
        members = {member.name: member for member in archive.getmembers()}
    expect(all(member.startswith(f"gradus-{version}/") for member in members), "the archive has more than one folder")
    expect(not any(member.startswith(f"gradus-{version}/packaging/") for member in members), "the archive has the recipes with its checksum")
    expect(members[f"gradus-{version}/scripts/test"].mode == 0o755, "scripts/test is not executable in the archive")
    expect(f"gradus-{version}/include/gradus/gradus.hpp" in members, "the archive has no headers")

    # Mistakes of the user.
    for words, answer in ((["--homepage", "gradus.org"], "expected https://"), (["--set-version", "1.0"], "0.2.0")):
        code, output = release("wrong", *words)
        expect(code != 0 and answer in output, f"{words}: {output}")
    code, output = release("tagged", "--tag")
    expect(code == 0 and run("git", "-C", tree, "tag")[1] == f"v{version}\n", f"--tag: {output}")
    code, output = release("next", "--set-version", "9.8.7")
    expect(code == 0 and not (work / "next").exists(), f"--set-version: {output}")
    header = (tree / "include/gradus/core/version.hpp").read_text()
    expect('version = "9.8.7"' in header and "MINOR 8" in header, "version.hpp has no 9.8.7")
    for manifest in ("vcpkg.json", "packaging/vcpkg/ports/gradus/vcpkg.json"):
        expect(json.loads((tree / manifest).read_text())["version-semver"] == "9.8.7", f"{manifest} has no 9.8.7")
    code, output = release("dirty")
    expect(code != 0 and "not committed" in output, f"a changed tree: {output}")

    # vcpkg: the steps of the port, then what vcpkg checks.
    port = made / "vcpkg/ports/gradus"
    packages = work / "packages"
    (work / "vcpkg.cmake").write_text(VCPKG)
    code, output = run(arguments.cmake, f"-DWORK={work}", f"-DRELEASE={made}", f"-DCURRENT_PACKAGES_DIR={packages}",
                       f"-DPORTFILE={port / 'portfile.cmake'}", "-P", work / "vcpkg.cmake")
    expect(code == 0, f"vcpkg: {output}")
    manifest = json.loads((port / "vcpkg.json").read_text())
    expect(manifest["homepage"] == HOMEPAGE and manifest["version-semver"] == version, f"vcpkg.json: {manifest}")
    expect("get_filename_component" not in (port / "portfile.cmake").read_text(), "the port takes the tree around it")
    for path in ("copyright", "usage", "gradus-config.cmake", "gradus_components.cmake"):
        expect((packages / "share/gradus" / path).is_file(), f"vcpkg: no share/gradus/{path}")
    expect((packages / "include/gradus/gradus.hpp").is_file(), "vcpkg: no headers")
    expect(not any(path.is_dir() and not any(path.iterdir()) for path in packages.rglob("*")), "vcpkg: empty folders")
    expect({path.name for path in (packages / "share").iterdir()} == {"gradus", "pkgconfig"},
           f"vcpkg: share/ has {sorted(path.name for path in (packages / 'share').iterdir())}")
    for text in packages.glob("share/gradus/*.cmake"):
        expect(str(work) not in text.read_text(), f"vcpkg: {text.name} names the build folder")

    # Spack: the recipe runs with stand-ins for Spack's words, which write down what it says.
    said = {"version": [], "variant": [], "depends_on": [], "conflicts": [], "license": []}
    words = types.ModuleType("spack.package")
    for word, list_of in said.items():
        setattr(words, word, lambda *values, list_of=list_of, **options: list_of.append((values, options)))
    words.__all__ = list(said)
    build_system = types.ModuleType("spack_repo.builtin.build_systems.cmake")
    build_system.CMakePackage = type("CMakePackage", (), {
        "define": lambda self, option, value: (option, value),
        "define_from_variant": lambda self, option, variant: (option, self.spec.satisfies(f"+{variant}"))})
    stand_ins = {"spack": types.ModuleType("spack"), "spack.package": words,
                 "spack_repo.builtin.build_systems.cmake": build_system}
    stand_ins.update({name: types.ModuleType(name) for name in
                      ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems")})
    sys.modules.update(stand_ins)
    place = importlib.util.spec_from_file_location("gradus_package", made / "spack/packages/gradus/package.py")
    module = importlib.util.module_from_spec(place)
    sys.dont_write_bytecode = True
    place.loader.exec_module(module)
    expect(said["version"] == [((version,), {"sha256": hashlib.sha256(data).hexdigest()})], f"Spack: {said['version']}")
    variants = {values[0]: options["default"] for values, options in said["variant"]}
    branches = re.findall(r'if\("\$\{name\}" (?:STREQUAL|MATCHES) "\^?\(?([\w|]+)\)?\$?"\)',
                          (source / "cmake/gradus_components.cmake").read_text())
    components = {component for branch in branches for component in branch.split("|")}
    components -= {"checkpoint", "conformance", "parameter_server", "pipeline", "sim"}  # they need no other library
    expect(set(variants) == components | {"programs"}, f"Spack: variants {sorted(variants)}, components {components}")
    for values, options in said["depends_on"] + said["conflicts"]:
        named = set(re.findall(r"[+~](\w+)", " ".join([*values, options.get("when", "")])))
        expect(named <= set(variants), f"Spack: {values} {options} names {named - set(variants)}")
    needed = {options["when"][1:] for _, options in said["depends_on"] if "when" in options}
    expect(needed == set(variants), f"Spack: {set(variants) - needed} need nothing")

    class Spec:
        def __init__(self, chosen):
            self.chosen = chosen

        def satisfies(self, text):
            return (text[1:] in self.chosen) == (text[0] == "+")

    options_of_tree = (source / "CMakeLists.txt").read_text()
    for chosen in ({"gzip", "mpi"}, {"gzip", "mpi", "programs"}):
        package = module.Gradus()
        package.spec = Spec(chosen)
        configured = dict(package.cmake_args())
        for option in configured:
            expect(re.search(rf"(option|set)\({option}\b", options_of_tree), f"Spack: CMakeLists.txt has no {option}")
        expect(configured["GRADUS_INSTALL_PROGRAMS"] == ("programs" in chosen), f"Spack: {configured}")
        expect(configured["GRADUS_COMPONENTS"] == ("gzip;mpi" if "programs" in chosen else ""), f"Spack: {configured}")

    # The single header in two source files of one program, and the example of Compiler Explorer.
    program = work / "single"
    program.mkdir()
    consumer = (source / "examples/consumer/main.cpp").read_text()
    (program / "main.cpp").write_text(consumer.replace("<gradus/gradus.hpp>", '"gradus.hpp"'))
    (program / "other.cpp").write_text('#include "gradus.hpp"\n#include "gradus.hpp"\n'
                                       "std::string_view other() { return gradus::version; }\n")
    flags = ["-std=c++20", "-O0", "-g0", "-Wall", "-Wextra", "-Werror", "-isystem", arguments.eigen, "-pthread"]
    code, output = run(arguments.compiler, *flags, f"-I{made}", program / "main.cpp", program / "other.cpp", "-o",
                       program / "main")
    expect(code == 0, f"the single header: {output}")
    code, output = run(program / "main")
    expect(code == 0 and f"gradus {version}" in output, f"the program with the single header: {output}")
    code, output = run(arguments.compiler, *flags, f"-I{packages / 'include'}", made / "compiler-explorer/example.cpp",
                       "-o", program / "example")
    expect(code == 0, f"the example of Compiler Explorer: {output}")
    code, output = run(program / "example")
    expect(code == 0 and "5." in output and "float32" in output, f"the example of Compiler Explorer: {output}")
    for path in (made / "compiler-explorer").iterdir():
        expect(version in path.read_text() or path.suffix == ".cpp", f"{path.name} does not have the version")

    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
