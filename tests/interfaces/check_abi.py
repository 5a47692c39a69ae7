#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""check_abi.py ROOT [--update | --self-test]: what programs that are compiled against gradus_c.h rely on stays.

tests/interfaces/abi_N.txt has the functions, constants, structures and types of version N of the C interface, a line each.
All of them have to be in the header, unchanged. --update adds what is new; it removes and changes nothing. The Fortran
module gradus_c_interface has to be what the header says, and fpm.toml the library's version.
"""

import pathlib
import re
import subprocess
import sys


def declarations(header):
    """The lines of a header, in its order."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"#ifdef MPI_VERSION.*?#endif", "", text, flags=re.S)
    text = re.sub(r"^\s*#.*?$", "", text, flags=re.M)

    def one_line(words):
        return re.sub(r"\s+", " ", words).strip()

    found = []
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, flags=re.S):
        found.append(f"struct {name}: {one_line(body)}")
    for body in re.findall(r"\benum \{(.*?)\};", text, flags=re.S):
        found += [f"constant {name} = {value}" for name, value in re.findall(r"(GRADUS_\w+)\s*=\s*(-?\d+)", body)]
    found += [f"function {one_line(each)}" for each in re.findall(r"GRADUS_C_API (.*?);", text, flags=re.S)]
    found += [f"type {one_line(each)}" for each in re.findall(r"typedef (?!struct \w+ \{)(.*?);", text, flags=re.S)]
    return found


def complaints_of(golden, header):
    """What is wrong with a header."""
    now = declarations(header)
    missing = [f"missing or changed: {each}" for each in golden if each not in now]
    if missing:
        missing.append("programs that were compiled before would break: add a new function or constant in its place")
    new = [each for each in now if each not in golden]
    return missing + [f"not in the list of the version, run check_abi.py ROOT --update: {each}" for each in new]


def self_test(golden, header):
    """Changes that have to be found."""
    changes = [
        ("int64_t* channels,", "int32_t* channels,"),
        ("GRADUS_BUSY = 10", "GRADUS_BUSY = 11"),
        ("double momentum;           /* of GRADUS_SGD */\n", ""),
        ("GRADUS_C_API gradus_status gradus_data_free(gradus_data* data);\n", ""),
        ("typedef int64_t gradus_value;", "typedef int32_t gradus_value;"),
        ("int gradus_abi_version(void);", "int gradus_abi_version(void);\nGRADUS_C_API int gradus_new(void);"),
    ]
    return [f"not found: {old} -> {new}" for old, new in changes
            if old not in header or not complaints_of(golden, header.replace(old, new, 1))]


def main():
    root = pathlib.Path(sys.argv[1])
    header = (root / "include" / "gradus_c.h").read_text(encoding="utf-8")
    version = re.search(r"#define GRADUS_ABI_VERSION (\d+)", header).group(1)
    path = root / "tests" / "interfaces" / f"abi_{version}.txt"
    golden = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if "--update" in sys.argv:
        path.write_text("\n".join(golden + [each for each in declarations(header) if each not in golden]) + "\n",
                        encoding="utf-8")
        return 0
    if "--self-test" in sys.argv:
        complaints = self_test(golden, header)
    else:
        complaints = complaints_of(golden, header)
        fortran = root / "interfaces" / "fortran"
        done = subprocess.run([sys.executable, "-B", fortran / "make_c_interface.py", root / "include" / "gradus_c.h",
                               fortran / "gradus_c_interface.f90", "--check"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            complaints.append(done.stdout + done.stderr)
        number = re.search(r'version = "([\d.]+)";', (root / "include/gradus/core/version.hpp").read_text(encoding="utf-8"))
        if f'version = "{number.group(1)}"' not in (root / "fpm.toml").read_text(encoding="utf-8"):
            complaints.append(f"fpm.toml has not the library's version {number.group(1)}")
    print("\n".join(complaints) or f"{len(golden)} declarations")
    return 1 if complaints or not golden else 0


if __name__ == "__main__":
    sys.exit(main())
