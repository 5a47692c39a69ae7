#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs scripts/install_packages against stand-ins for dpkg-query, apt-get, apt-cache, sudo and
id, and reads the other scripts."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

STAND_INS = {
    # INSTALLED: the names that count as installed, or "all"
    "dpkg-query": '[[ $INSTALLED == all || " $INSTALLED " == *" ${@: -1} "* ]] && echo -n installed',
    # the first call of "install" fails when LISTS=old, until "update" was called
    "apt-get": 'echo "$*" >>"$LOG"; if [[ $1 == update ]]; then touch "$LOG.updated"; '
    'elif [[ $LISTS == old && ! -e $LOG.updated ]]; then exit 100; fi',
    # KNOWN: the packages that the system has
    "apt-cache": '[[ " $KNOWN " == *" $2 "* ]]',
    "sudo": 'echo sudo >>"$LOG"; exec "$@"',
    "id": "echo $USER_ID",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    source = parser.parse_args().source
    complaints = []

    def expect(condition, complaint):
        if not condition:
            complaints.append(complaint)

    lines = [line.split() for line in (source / "scripts/packages.txt").read_text().splitlines()
             if line.strip() and not line.startswith("#")]
    packages = [words[0] for words in lines if words[1:2] != ["?"]]
    optional = [words[0] for words in lines if words[1:2] == ["?"]]
    expect(optional == ["gfortran", "g++-11", "clang-15", "clang-19", "libclang-rt-19-dev", "clang-14", "clang-tools-15", "chromium", "doxygen",
                        "pkg-config", "ccache", "slurmctld", "slurmd", "slurm-client", "libpmi2-0",
                        "openssh-server", "openssh-client"],
           f"packages.txt: optional {optional}")
    expect(len(packages) == len(set(packages)) >= 10, f"packages.txt: {packages}")
    for package in packages + optional:
        expect(re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", package), f"packages.txt: {package!r} is no name of a package")

    for name in ("scripts/install_packages", "scripts/demo", "scripts/test", ".ci/run"):
        expect(os.access(source / name, os.X_OK), f"{name} is not executable")
        expect(subprocess.run(["bash", "-n", str(source / name)]).returncode == 0, f"{name}: syntax")
    expect("scripts/test" in (source / ".ci/run").read_text(), ".ci/run does not call scripts/test")

    # What comes from PyPI has a version, and what that needs too: the same today and in a year.
    pins = [line.split("#")[0].strip() for line in
            (source / "tests/consume/conan_requirements.txt").read_text().splitlines()]
    pins = [line for line in pins if line]
    expect("conan==2." in " ".join(pins), "conan_requirements.txt: no Conan 2")
    for line in pins:
        expect(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line), f"conan_requirements.txt: {line!r} is no pin")
    scripts = [path for folder in ("scripts", "tests", "bench", "examples", ".ci") for path in (source / folder).rglob("*")
               if path.is_file() and (path.suffix in (".py", ".sh", ".txt", ".cmake") or not path.suffix)]
    for path in scripts:
        text = path.read_text(errors="replace")
        for found in re.finditer(r"""pip3?["'\])]*,? +["']?install\b""", text):
            call = text[found.start():text.find(")", found.end())]
            expect("REQUIREMENTS" in call, f"{path.relative_to(source)}: pip installs what has no version: {call}")

    def run(installed, *options, lists="new", user=0, sudo=True, known=""):
        """The exit status, what was printed, and the calls of apt-get."""
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder)
            for name, body in STAND_INS.items():
                if name != "sudo" or sudo:
                    (tools / name).write_text(f"#!/bin/bash\n{body}\n")
                    (tools / name).chmod(0o755)
            for name in ("bash", "dirname", "env", "touch"):
                (tools / name).symlink_to(f"/usr/bin/{name}")
            log = tools / "log"
            answer = subprocess.run(
                ["/bin/bash", str(source / "scripts/install_packages"), *options], capture_output=True, text=True,
                env={"PATH": folder, "LOG": str(log), "INSTALLED": installed, "LISTS": lists, "USER_ID": str(user),
                     "KNOWN": known})
            calls = log.read_text().splitlines() if log.exists() else []
            return answer.returncode, answer.stdout + answer.stderr, calls

    expect(run("all") == (0, "", []), f"with all packages installed: {run('all')}")
    but_two = " ".join(package for package in packages if package not in ("mpich", "ninja-build"))
    status, output, calls = run(but_two)
    expect(status == 0 and "Installing: ninja-build mpich" in output, f"two missing: {output}")
    expect(calls == ["install -y --no-install-recommends ninja-build mpich"], f"two missing: {calls}")
    status, output, calls = run("", lists="old")
    expect(status == 0 and [call.split()[0] for call in calls] == ["install", "update", "install"],
           f"old lists: {status} {calls}")
    expect(calls and calls[-1].split()[3:] == packages, f"nothing installed: {calls}")
    status, output, calls = run(but_two, user=1000)
    expect(status == 0 and calls[:2] == ["sudo", "install -y --no-install-recommends ninja-build mpich"],
           f"through sudo: {calls}")
    status, output, calls = run(but_two, user=1000, sudo=False)
    expect(status == 1 and calls == [] and "takes root or sudo: apt-get install ninja-build mpich" in output,
           f"without sudo: {status} {output}")

    # What is optional is left alone, unless it is asked for and the system has it.
    required = " ".join(packages)
    expect(run(required) == (0, "", []), f"optional packages, not asked for: {run(required)}")
    status, output, calls = run(required, "--optional", known="chromium")
    expect(status == 0 and calls == ["install -y --no-install-recommends chromium"], f"optional packages: {calls}")
    status, output, calls = run(required, "--optional")
    expect(status == 0 and calls == [] and "the system has no such package: chromium" in output, f"unknown: {output}")
    status, output, calls = run(required, "--optional", user=1000, sudo=False, known="chromium")
    expect(status == 0 and calls == [] and f"without root or sudo: {' '.join(optional)}" in output,
           f"optional, no rights: {output}")

    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
