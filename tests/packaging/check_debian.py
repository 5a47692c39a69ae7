#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The Debian packages: made by CPack, installed into an empty root, used by CMake and pkg-config, and removed."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("programs", nargs=3, type=pathlib.Path, help="gradus_bench, gradus_report, gradus_run as built")
    arguments = parser.parse_args()
    cpack = pathlib.Path(arguments.cmake).with_name("cpack")
    if None in (shutil.which("dpkg"), shutil.which("pkg-config")) or not cpack.is_file() or os.geteuid() != 0:
        print("skipped: it needs dpkg, pkg-config, cpack and root")
        return SKIPPED
    work, build, root = arguments.work, arguments.work / "build", arguments.work / "root"
    shutil.rmtree(work, ignore_errors=True)
    complaints = []

    def expect(condition, complaint):
        if not condition:
            complaints.append(complaint)

    def run(*words, **options):
        answer = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, **options)
        if answer.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: {answer.stdout}")
        return answer.stdout

    run(arguments.cmake, "-G", "Ninja", "-S", arguments.source, "-B", build, "-DGRADUS_BUILD_TESTS=OFF",
        "-DGRADUS_BUILD_EXAMPLES=OFF", "-DGRADUS_INSTALL_PROGRAMS=ON", f"-DCMAKE_CXX_COMPILER={arguments.compiler}")
    # The programs are those of the tests: the build would compile them again, with other optimization.
    for program, folder in zip(arguments.programs, ("driver", "report", "run")):
        shutil.copy2(program, build / "bench" / folder / program.name)
    run(cpack, "-G", "DEB", cwd=build)
    packages = sorted(build.glob("*.deb"))
    names = [path.name.split("_")[0] for path in packages]
    expect(names == ["gradus-tools", "libgradus-dev"], f"packages: {names}")
    fields = {}
    for package, name in zip(packages, names):
        fields[name] = dict(re.findall(r"^(\S+): (.*)$", run("dpkg-deb", "--field", package), re.MULTILINE))
        expect(fields[name]["Version"] == f"{arguments.version}-1", f"{name}: version {fields[name]['Version']}")
        for entry in run("dpkg-deb", "--contents", package).splitlines():
            expect(entry.split()[1] == "root/root" and entry.split()[5].startswith("./usr/") or entry.endswith(("./", "./usr")),
                   f"{name}: {entry}")
    expect(fields["libgradus-dev"]["Architecture"] == "all", "libgradus-dev depends on the architecture")
    expect(fields["gradus-tools"]["Architecture"] != "all", "gradus-tools has programs for every architecture")
    expect("libeigen3-dev" in fields["libgradus-dev"]["Depends"], f"Depends: {fields['libgradus-dev']['Depends']}")
    for library in ("libc6", "libstdc++6"):
        expect(library in fields["gradus-tools"]["Depends"], f"Depends: {fields['gradus-tools']['Depends']}")

    # A root of nothing but dpkg's own folders; what the packages depend on is the machine's.
    admin = root / "var/lib/dpkg"
    for folder in ("info", "updates", "triggers"):
        (admin / folder).mkdir(parents=True)
    (admin / "status").touch()
    run("dpkg", f"--root={root}", "--force-depends,script-chrootless", "--install", *packages)
    listed = run("dpkg", f"--root={root}", "--listfiles", "libgradus-dev").splitlines()
    headers = [path for path in listed if "/include/gradus/" in path and path.endswith((".hpp", ".cuh"))]
    in_tree = [path for path in (arguments.source / "include").rglob("*") if path.suffix in (".hpp", ".cuh")]
    expect(len(headers) == len(in_tree), f"{len(headers)} headers are installed, {len(in_tree)} are in the tree")
    for program in arguments.programs:
        expect("Usage" in run(root / "usr/bin" / program.name, "--help"), f"{program.name} --help")

    # A program by pkg-config, then by CMake.
    environment = dict(os.environ, PKG_CONFIG_PATH=str(root / "usr/share/pkgconfig"))
    words = run("pkg-config", "--cflags", "--libs", "gradus", "gradus-gzip", "gradus-png", env=environment).split()
    version = run("pkg-config", "--modversion", "gradus", env=environment).strip()
    expect(version == arguments.version, f"pkg-config --modversion: {version}")
    expect({"-lz", "-lpng16"} <= set(words), f"pkg-config: {words}")
    main_file = arguments.source / "examples/consumer/main.cpp"
    program = work / "main"
    run(arguments.compiler, "-std=c++20", "-O0", "-g0", main_file, "-o", program, *words)
    expect(f"gradus {arguments.version}" in run(program), "the program that pkg-config has compiled")
    consumer = work / "consumer"
    run(arguments.cmake, "-G", "Ninja", "-S", arguments.source / "examples/consumer", "-B", consumer,
        f"-DCMAKE_PREFIX_PATH={root / 'usr'}", "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_COMPILER={arguments.compiler}")
    found = re.search(r"gradus_DIR:PATH=(.*)", (consumer / "CMakeCache.txt").read_text()).group(1)
    expect(found == str(root / "usr/share/cmake/gradus"), f"CMake has found {found}")

    run("dpkg", f"--root={root}", "--force-script-chrootless", "--purge", "gradus-tools", "libgradus-dev")
    left = [path for path in root.rglob("*") if admin.parent not in path.parents and path not in admin.parents]
    left = [path for path in left if not str(path).startswith(str(root / "var"))]
    expect(not left, f"left after the removal: {left[:5]}")
    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
