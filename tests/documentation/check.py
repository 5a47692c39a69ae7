# SPDX-License-Identifier: BSL-1.0
"""check.py ROOT [MODULE...]: the docstrings of the public headers, by Doxygen with docs/Doxyfile.

Fails on any warning about a docstring, and on a public thing without one in the modules that are named. Ends with 77
(skipped) where there is no Doxygen, and where another version than Debian 12's finds something: each has warnings of its own.

A member function that is marked `override` is not counted: the docstring of its base class says what it does, but Doxygen's
INHERIT_DOCS does not find a base class that depends on template parameters.

check.py ROOT --missing: what has no docstring, module by module, with the number of each; fails never.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = "1.9.4"
UNDOCUMENTED = re.compile(r"include/gradus/([^/:]+)[^:]*:\d+: warning: .* is not documented\.$")
# The words between the last parenthesis of the signature and `(function)` are qualifiers: const noexcept override.
OVERRIDE = re.compile(r"\)[^()]* override(?: final)? \(function\) of (?:class|struct) .+ is not documented\.$")


def warnings_of(root):
    """The lines that Doxygen writes, and how many files of documentation it made."""
    with tempfile.TemporaryDirectory() as output:
        settings = (root / "docs" / "Doxyfile").read_text(encoding="utf-8")
        settings += f"OUTPUT_DIRECTORY = {output}\nGENERATE_HTML = NO\nGENERATE_XML = YES\nWARN_IF_UNDOCUMENTED = YES\n"
        done = subprocess.run(["doxygen", "-"], input=settings, cwd=root, capture_output=True, text=True, timeout=600)
        made = len(list(pathlib.Path(output).rglob("*.xml")))
    lines = [line.replace(f"{root}/", "") for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines + ([] if done.returncode == 0 else [f"doxygen ended with status {done.returncode}"]), made


def main():
    root, *modules = sys.argv[1:]
    root = pathlib.Path(root).resolve()
    if shutil.which("doxygen") is None:
        print("check.py: skipped: there is no doxygen (Debian: doxygen)")
        return 77
    for module in modules:
        if module != "--missing" and not (root / "include" / "gradus" / module).is_dir():
            sys.exit(f"check.py: expected a module of include/gradus, got '{module}'")
    lines, made = warnings_of(root)
    by_module = collections.defaultdict(list)
    errors = []
    for line in lines:
        found = UNDOCUMENTED.search(line)
        if found and OVERRIDE.search(line):
            continue
        if found:
            by_module[found[1]].append(line)
        else:
            errors.append(line)
    if modules == ["--missing"]:
        for module, missing in sorted(by_module.items(), key=lambda each: -len(each[1])):
            print(f"== {module}: {len(missing)} without a docstring")
            print("\n".join(missing))
        return 0
    headers = sum(1 for each in (root / "include" / "gradus").rglob("*.[hc][pu][ph]") if "detail" not in each.parts)
    if made < headers:
        errors.append(f"expected Doxygen to read {headers} public headers, got {made} files from it")
    enforced = [line for module in modules for line in by_module[module]]
    print("\n".join(errors + enforced))
    print(f"{headers} public headers, {len(errors)} errors, {len(enforced)} things without a docstring in {', '.join(modules)}; "
          f"{sum(map(len, by_module.values())) - len(enforced)} in other modules")
    if not errors and not enforced:
        return 0
    version = subprocess.run(["doxygen", "--version"], capture_output=True, text=True).stdout.split()[0]
    if version != VERSION:
        print(f"check.py: skipped: this is doxygen {version}, and the docstrings are held to the warnings of {VERSION}")
        return 77
    return 1


if __name__ == "__main__":
    sys.exit(main())
