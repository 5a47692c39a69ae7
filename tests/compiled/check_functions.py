# SPDX-License-Identifier: BSL-1.0
"""check_functions.py ROOT NM LIBRARY: every function that headers define with GRADUS_INLINE is a weak symbol of the
library that was compiled once, and a constructor or destructor with GRADUS_INLINE_CONSTRUCTOR is there in both variants,
for complete objects and for bases. Otherwise programs that only declare them would not link."""

import collections
import pathlib
import re
import subprocess
import sys

DEFINITION = re.compile(r"\b(GRADUS_INLINE(?:_CONSTRUCTOR)?)\b([^;{]*?)((?:\b\w+::)*~?(?:operator\s*[^\w\s(]+|operator\s*\(\)|\w+))\s*\(",
                        re.DOTALL)


def defined(headers):
    """{function with its namespace: how many symbols it has at least}"""
    functions = collections.Counter()
    for path in sorted(headers.rglob("*.hpp")):
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        namespace = ""
        for part in re.finditer(rf"^namespace ([\w:]+) \{{$|{DEFINITION.pattern}", text, re.DOTALL | re.MULTILINE):
            if part[1]:
                namespace = part[1]
            elif not text[text.rfind("\n", 0, part.start()) + 1 :].startswith("#"):
                functions[f"{namespace}::{part[4]}"] += 2 if part[2] == "GRADUS_INLINE_CONSTRUCTOR" else 1
    return functions


def main():
    root, nm, library = sys.argv[1:]
    expected = defined(pathlib.Path(root) / "include" / "gradus")
    lines = subprocess.run([nm, "-C", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    found = collections.Counter()
    for line in lines.splitlines():
        symbol = re.match(r"[0-9a-f]+ W ((?:\w+::)*(?:operator\(\)|operator[^\w\s(]+|~?\w+))(?:\[abi:cxx11\])?\(", line)
        if symbol and ")::" not in line:  # a lambda's symbol begins with the name of its function
            found[symbol[1]] += 1
    missing = [f"{name}: expected {count} weak symbols, got {found[name]}" for name, count in sorted(expected.items())
               if found[name] < count]
    print("\n".join(missing))
    print(f"{len(expected)} functions, {len(missing)} missing from {library}")
    if not expected or missing:
        print("gradus/compiled.hpp includes the header of each, and the macro of the definition is the right one "
              "(gradus/core/compiled.hpp)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
