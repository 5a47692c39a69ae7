# SPDX-License-Identifier: BSL-1.0
"""check.py ROOT COMPILER DIRECTORIES SUBJECT [--update]: what a program with gradus costs the compiler, against
tests/budgets/budgets.json.

DIRECTORIES are the include directories of others, separated by semicolons. SUBJECT is "headers" or a program: "readme"
(the program of README.md) or "train_mnist". --update writes what was measured into the file.

Of each header that programs include: the lines with code that are left of gradus when it is preprocessed, which are
nearly the same with every compiler, and with the file's own compiler those of all headers but MPI's.

Of a program at -O2, with the file's compiler only: the bytes of its text, and the memory that the compiler allocates,
all in all, as -ftime-report says. That is the same in every run, on every machine. It stands for the compiler's time:
callgrind, which counts instructions, takes 200 times as long as the compiler, and perf finds no counters in most virtual
machines. Where perf counts, and the file has a number of instructions, this is compared too.

A measure may exceed its number by SLACK, so that not every commit raises it.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SLACK = 0.02
FILE = pathlib.Path(__file__).resolve().with_name("budgets.json")
UNITS = {"k": 2**10, "M": 2**20, "G": 2**30, "": 1}


def run(*command):
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr[-3000:]}")
    return done


def name_of(compiler):
    """"g++ 12.2.0" or "clang++ 15.0.6"."""
    macros = run(compiler, "-x", "c++", "-dM", "-E", "/dev/null").stdout
    value = dict(re.findall(r"^#define (__GNUC\w*__|__clang_\w+__) (\d+)$", macros, flags=re.MULTILINE))
    parts = ["__clang_major__", "__clang_minor__", "__clang_patchlevel__"]
    name = "clang++ "
    if parts[0] not in value:
        parts = ["__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"]
        name = "g++ "
    return name + ".".join(value[part] for part in parts)


def lines_of_header(root, compiler, header, flags, folder):
    """Lines with code that are left of a header and what it includes: (of gradus, of all but MPI)."""
    source = folder / "header.cpp"
    source.write_text(f"#include <{header}>\n", encoding="utf-8")
    own_folder = str(root / "include" / "gradus")
    own = total = 0
    in_own = in_mpi = False
    for line in run(compiler, "-std=c++20", "-E", *flags, source).stdout.splitlines():
        if line.startswith("# "):
            file = line.split('"')[1]
            in_own = file.startswith(own_folder)
            in_mpi = re.search(r"/mpi\w*\.h$", file) is not None
        elif line.strip() and not in_mpi:
            total += 1
            own += in_own
    return own, total


def is_here(compiler, header, flags, folder):
    source = folder / "has.cpp"
    source.write_text(f"#if !__has_include(<{header}>)\nabsent\n#endif\n", encoding="utf-8")
    return "absent" not in run(compiler, "-std=c++20", "-E", *flags, source).stdout.split()


def instructions(command):
    """Instructions of the user's mode that perf counts for a command; None where it counts none."""
    try:
        done = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", *map(str, command)], capture_output=True,
                              text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    except OSError:
        return None
    found = re.search(r"^(\d+),.*instructions", done.stderr, flags=re.MULTILINE)
    return int(found[1]) if done.returncode == 0 and found else None


def measure_program(root, compiler, name, flags, folder, budget, update):
    if name == "readme":
        source = folder / "program.cpp"
        run(sys.executable, root / "tests/readme/extract.py", root / "README.md", "Thirty lines", source,
            folder / "second", folder / "third")
    else:
        source = root / "examples" / f"{name}.cpp"
    result = folder / "program.o"
    command = [compiler, "-std=c++20", "-O2", "-DNDEBUG", *flags, "-c", source, "-o", result,
               "--param", "ggc-min-expand=100", "--param", "ggc-min-heapsize=131072"]  # else they depend on the memory
    report = run(*command, "-ftime-report").stderr
    total = re.search(r"^ TOTAL .* (\d+)([kMG]?)$", report, flags=re.MULTILINE)
    text = run("size", result).stdout.splitlines()[1].split()[0]
    measured = {"bytes of text": int(text), "bytes allocated by the compiler": int(total[1]) * UNITS[total[2]]}
    if "instructions of the compiler" in budget or update:
        counted = instructions(command) if instructions(["true"]) else None
        if counted is not None:
            measured["instructions of the compiler"] = counted
    return measured


def compare(what, measured, budget, failures):
    for measure, value in measured.items():
        if measure not in budget:
            continue
        most = budget[measure]
        if value > most * (1 + SLACK):
            failures.append(f"{what}: {value:,} {measure}, {value - most:,} ({100 * (value / most - 1):.1f} %) more than "
                            f"the {most:,} of its budget")
        else:
            print(f"{what}: {value:,} {measure}; budget {most:,}")


def main():
    update = "--update" in sys.argv
    root, compiler, directories, subject = [each for each in sys.argv[1:] if each != "--update"]
    root = pathlib.Path(root).resolve()
    budgets = json.loads(FILE.read_text(encoding="utf-8"))
    compiler_name = name_of(compiler)
    own = compiler_name == budgets["compiler"]
    flags = ["-I", root / "include"]
    for directory in directories.split(";"):
        if directory not in ("", "/usr/include", str(root / "include")):
            flags += ["-isystem", directory]
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if subject == "headers":
            for header, budget in budgets["headers"].items():
                if header == "gradus/comm/mpi.hpp" and not is_here(compiler, "mpi.h", flags, folder):
                    print(f"{header} is left out: there is no <mpi.h>")
                    continue
                lines, total = lines_of_header(root, compiler, header, flags, folder)
                measured = {"lines of gradus": lines}
                if own:
                    measured["lines of all headers"] = total
                compare(header, measured, budget, failures)
                budget.update(measured)
        elif not own:
            print(f"skipped: {FILE.name} has the numbers of {budgets['compiler']}, not of {compiler_name}")
            return 0
        else:
            budget = budgets["programs"].setdefault(subject, {})
            measured = measure_program(root, compiler, subject, flags, folder, budget, update)
            compare(subject, measured, budget, failures)
            budget.update(measured)
    if update:
        if not own:
            sys.exit(f"{FILE}: expected {budgets['compiler']}, got {compiler_name}")
        FILE.write_text(json.dumps(budgets, indent=2) + "\n", encoding="utf-8")
        return 0
    if failures:
        print("\n".join(failures))
        command = " ".join(f"'{each}'" for each in sys.argv)
        print("Find what has grown, and why (docs/design/compile_time.md). A commit that means it raises the numbers in "
              f"{FILE.relative_to(root)} and says why in its message. This writes them:\n  {command} --update")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
