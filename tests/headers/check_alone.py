#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Every header alone: it must compile when nothing else was included before it.

    check_alone.py --work FOLDER --include include --compiler g++ [--clang clang++-19] [--directory D]... [--option=O]...
                   HEADER...

With a clang that is given, all headers are submodules of one module, and each of them sees what it includes and nothing
else ("-fmodules-local-submodule-visibility"). So each header is read once, and a name that comes from a header that was
not included is an error. What is not ours (the standard library, Eigen, MPI, ...) is one module that all see: the test of
the layers looks at what headers include of the standard library. Without such a clang each header is compiled on its own,
which takes twenty times as long.

A header without "#pragma once" is a part of others, which include it several times; it is read with them.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

OF_X86 = {"immintrin.h", "emmintrin.h", "x86intrin.h"}


def arguments_of_command_line():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--include", type=pathlib.Path, required=True, help="the folder that has gradus/")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--clang", default="", help="a clang++ 15 or newer; empty: one compilation a header")
    parser.add_argument("--directory", action="append", default=[], help="headers of others")
    parser.add_argument("--own-directory", action="append", default=[], help="searched first, before --include")
    parser.add_argument("--option", action="append", default=[], help="a word for the compiler")
    parser.add_argument("--other", action="append", default=[], help="a header of others that no header names")
    parser.add_argument("headers", nargs="+", help="relative to --include")
    return parser.parse_args()


def place_of(arguments, header):
    """The file that an include of the header finds."""
    for folder in [*arguments.own_directory, arguments.include]:
        path = pathlib.Path(folder) / header
        if path.exists():
            return path
    sys.exit(f"There is no header {header}.")


def includes_of_others(arguments):
    names = set(arguments.other)
    for header in arguments.headers:
        for line in place_of(arguments, header).read_text().splitlines():
            found = re.match(r"\s*#\s*include\s*<([^ >]+)>", line)
            if found and not found[1].startswith("gradus/"):
                names.add(found[1])
    return sorted(names)


def include_all(names):
    lines = []
    for name in names:
        line = f"#include <{name}>"
        lines.append(f"#if defined(__x86_64__)\n{line}\n#endif" if name in OF_X86 else line)
    return "\n".join(lines) + "\n"


def is_part(path):
    return not any(line.startswith("#pragma once") for line in path.read_text().splitlines())


def run(command, where):
    result = subprocess.run(command, cwd=where, capture_output=True, text=True)
    if result.returncode != 0 or "error: " in result.stderr:
        sys.stdout.write(result.stdout + result.stderr)
        return False
    return True


def check_modules(arguments, flags):
    """One module of all headers, each with its own view."""
    work = arguments.work
    names = includes_of_others(arguments)
    (work / "others.hpp").write_text(include_all(names))
    (work / "others.modulemap").write_text(f'module others {{ header "{work}/others.hpp" export * }}\n')
    for name in names:  # what a header includes of others is that module, whichever of its headers it names
        stand_in = work / "stand_ins" / name
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text(f'#include "{work}/others.hpp"\n')
    lines = ["module gradus {"]
    for header in arguments.headers:
        path = place_of(arguments, header)
        kind = "textual header" if is_part(path) else "header"
        lines.append(f'  module {re.sub("[^A-Za-z0-9]", "_", header)} {{ {kind} "{path}" export * }}')
    (work / "gradus.modulemap").write_text("\n".join(lines + ["}"]) + "\n")

    modules = ["-c", "-fmodules", "-fno-implicit-modules", "-fno-implicit-module-maps", "-Xclang",
               "-fmodules-local-submodule-visibility", "-Xclang", "-emit-module", "-x", "c++"]
    of_others = [word for each in arguments.directory for word in ("-isystem", each)]
    own = [word for each in arguments.own_directory for word in ("-I", each)]
    return run([arguments.clang, *flags, *modules, *own, *of_others, "-fmodule-name=others", "others.modulemap", "-o",
                "others.pcm"], work) and run(
                    [arguments.clang, *flags, *modules, "-I", str(work / "stand_ins"), *own, "-I", str(arguments.include),
                     *of_others, "-fmodule-map-file=others.modulemap", "-fmodule-file=others=others.pcm",
                     "-fmodule-name=gradus", "gradus.modulemap", "-o", "gradus.pcm"], work)


def check_one_by_one(arguments, flags):
    """One compilation a header, behind a precompiled header of what is not ours."""
    work = arguments.work
    directories = [word for each in arguments.own_directory for word in ("-I", each)]
    directories += ["-I", str(arguments.include)]
    directories += [word for each in arguments.directory for word in ("-isystem", each)]
    (work / "others.hpp").write_text(include_all(includes_of_others(arguments)))
    command = [arguments.compiler, *flags, *directories]
    if not run([*command, "-x", "c++-header", "others.hpp", "-o", "others.hpp.gch"], work):
        return False

    def check(header):
        source = work / (re.sub("[^A-Za-z0-9]", "_", header) + ".cpp")
        source.write_text(f"#include <{header}>\n#include <{header}>\n")
        return run([*command, "-include", "others.hpp", "-fsyntax-only", str(source)], work)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        return all(list(workers.map(check, [h for h in arguments.headers if not is_part(place_of(arguments, h))])))


def main():
    arguments = arguments_of_command_line()
    arguments.work = arguments.work.resolve()
    arguments.include = arguments.include.resolve()
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)
    flags = ["-std=c++20", "-w", "-ferror-limit=100" if arguments.clang else "-fmax-errors=100", *arguments.option]
    check = check_modules if arguments.clang else check_one_by_one
    well = check(arguments, flags)
    shutil.rmtree(arguments.work, ignore_errors=True)
    if not well:
        sys.exit("A header above does not include what it uses: expected it to compile alone.")
    print(f"{len(arguments.headers)} headers compile alone")


if __name__ == "__main__":
    main()
