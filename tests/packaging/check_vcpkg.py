#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Checks the vcpkg manifest and the overlay port against the source tree and an install of it. vcpkg itself is not run."""

import argparse
import json
import pathlib
import re
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    port = arguments.source / "packaging" / "vcpkg" / "ports" / "gradus"
    complaints = []

    def expect(condition, complaint):
        if not condition:
            complaints.append(complaint)

    manifests = {path: json.loads(path.read_text()) for path in (arguments.source / "vcpkg.json", port / "vcpkg.json")}
    branches = re.findall(r'if\("\$\{name\}" (?:STREQUAL|MATCHES) "\^?\(?([\w|]+)\)?\$?"\)',
                          (arguments.source / "cmake/gradus_components.cmake").read_text())
    components = {component for branch in branches for component in branch.split("|")}
    expect(components >= {"mpi", "gzip"}, f"components found: {components}")
    features = {component.replace("_", "-") for component in components}  # names in vcpkg have no underscores
    for path, manifest in manifests.items():
        expect(manifest["name"] == "gradus", f"{path}: the name is {manifest['name']}")
        expect(manifest["version-semver"] == arguments.version,
               f"{path}: version {manifest['version-semver']}, the library has {arguments.version}")
        expect(manifest["license"] == "BSL-1.0", f"{path}: license {manifest['license']}")
        expect("eigen3" in manifest["dependencies"], f"{path}: no dependency on eigen3")
        expect(set(manifest["features"]) - {"tests"} == features,
               f"{path}: features {sorted(manifest['features'])}, expected {sorted(features)}")

    portfile = (port / "portfile.cmake").read_text()
    climb = re.search(r'"\$\{CMAKE_CURRENT_LIST_DIR\}/((?:\.\./?)+)"', portfile)
    expect(climb and (port / climb.group(1)).resolve() == arguments.source.resolve(),
           "portfile: SOURCE_PATH is not the source tree")
    for option, value in re.findall(r"-D(\w+)=(\w*)", portfile):
        text = (arguments.source / "CMakeLists.txt").read_text()
        expect(re.search(rf"(option|set)\({option}\b", text), f"portfile: CMakeLists.txt has no option {option}")
    config = re.search(r"vcpkg_cmake_config_fixup\(PACKAGE_NAME gradus CONFIG_PATH ([\w/]+)\)", portfile)
    expect(config and (arguments.prefix / config.group(1) / "gradus-config.cmake").is_file(),
           "portfile: gradus-config.cmake is not installed where CONFIG_PATH says")
    licenses = re.search(r'FILE_LIST "\$\{SOURCE_PATH\}/(\w+)"', portfile)
    expect(licenses and (arguments.source / licenses.group(1)).is_file(), "portfile: the license file is missing")
    # vcpkg refuses empty folders and files in share/ that are not in a folder of the port or of a package.
    removed = set(re.findall(r"\$\{CURRENT_PACKAGES_DIR\}/([\w/]+)\"", portfile))
    for path in arguments.prefix.rglob("*"):
        name = path.relative_to(arguments.prefix).as_posix()
        known = ("include/gradus", "include/gradus_c.h", "share/cmake/gradus", "share/gradus", "share/pkgconfig", *removed)
        expect(path.is_dir() or name.startswith(known), f"portfile: what is done with {name}?")

    usage = (port / "usage").read_text()
    for component in re.search(r"COMPONENTS ([\w ]+)\)", usage).group(1).split():
        expect(component in components, f"usage: no component {component}")
    targets = set(re.findall(r"gradus::(\w+)", usage))
    expect(targets == components | {"gradus"}, f"usage: targets {sorted(targets)}")

    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
