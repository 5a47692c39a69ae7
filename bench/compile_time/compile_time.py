#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Seconds and peak memory of compiling at -O2, as JSON: compile_time.py [--compiler C] [--output FILE] [-I...] [-D...]

Every bench/compile_time/*.cpp (the umbrella header, a deep expression, the standard headers as a baseline) and
the examples train_mnist and resnet50, each --repeats times; the fastest run counts. One compiler runs at a time, on a
machine with nothing else to do. What does not compile is reported as such, with the first error.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def compile_once(command):
    """(seconds, processor seconds, peak memory in bytes) of a compiler that succeeds; (None, its first error) otherwise."""
    with tempfile.TemporaryFile("w+") as errors:
        begin = time.monotonic()
        child = subprocess.Popen(command, stderr=errors)
        # ru_maxrss of the driver's children counts too: the largest of its processes is the compiler proper.
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        complaint = next((line.strip() for line in errors if "error:" in line), "no error message")
    if child.returncode != 0:
        return None, complaint
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def processor():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-I", dest="directories", action="append", default=[])
    parser.add_argument("-D", dest="definitions", action="append", default=[])
    arguments = parser.parse_args()
    directories = arguments.directories or [str(ROOT / "include"), "/usr/include/eigen3"]
    flags = ["-std=c++20", "-O2", "-DNDEBUG", "-c", "-o", os.devnull]
    flags += [f"-D{definition}" for definition in arguments.definitions if definition]
    # /usr/include is searched in any case, and must stay behind the compiler's own folders.
    for folder in dict.fromkeys(directories):
        if folder and folder != "/usr/include":
            flags += ["-isystem", folder]

    sources = sorted(HERE.glob("*.cpp")) + [ROOT / "examples" / name for name in ("train_mnist.cpp", "resnet50.cpp")]
    results = []
    for source in sources:
        if not source.exists():
            continue
        result = {"source": source.relative_to(ROOT).as_posix()}
        runs = []
        for _ in range(arguments.repeats):
            run = compile_once([arguments.compiler, *flags, str(source)])
            if run[0] is None:
                result["error"] = run[1]
                break
            runs.append(run)
        if "error" not in result:
            result["seconds"] = round(min(run[0] for run in runs), 2)
            result["processor_seconds"] = round(min(run[1] for run in runs), 2)
            result["peak_memory_bytes"] = max(run[2] for run in runs)
            print(f"{result['source']:42} {result['seconds']:7.2f} s ({result['processor_seconds']:.2f} s of processor)"
                  f" {result['peak_memory_bytes'] / 1e6:7.0f} MB", flush=True)
        else:
            print(f"{result['source']:45} {result['error']}", flush=True)
        results.append(result)

    version = subprocess.run([arguments.compiler, "--version"], capture_output=True, text=True, check=True).stdout
    report = {
        "what": "compile time and peak memory of one translation unit at -O2",
        "date": datetime.date.today().isoformat(),
        "compiler": version.splitlines()[0],
        "flags": [flag for flag in flags if flag.startswith(("-std", "-O", "-D"))],
        "processor": processor(),
        "repeats": arguments.repeats,
        "results": results,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if any("error" in result for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
