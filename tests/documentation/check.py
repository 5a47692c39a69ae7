# SPDX-License-Identifier: BSL-1.0
"""check.py ROOT: the docstrings of the public headers, by Doxygen with docs/Doxyfile.

Fails on a warning about a docstring, and on a public thing without one. Ends with 77 (skipped) where there is no Doxygen,
and where another version than Debian 12's finds something: each has warnings of its own.

A member function marked `override` takes its docstring from the base class. Doxygen's INHERIT_DOCS does not find it across
our templates, so the check skips such a function. It also skips explicit
specializations of variables and deduction guides, which say what their template says.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = "1.9.4"
# The words between the last parenthesis of the signature and `(function)` are qualifiers: const noexcept override.
OVERRIDE = re.compile(r"\)[^()]* override(?: final)? \(function\) of (?:class|struct) .+ is not documented\.$")
SPECIALIZATION = re.compile(r"Member \w+< .+ > \(variable\) of namespace .+ is not documented\.$")
DEDUCTION_GUIDE = re.compile(r"\) -> .+ \(function\) of namespace .+ is not documented\.$")


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
    root = pathlib.Path(sys.argv[1]).resolve()
    if shutil.which("doxygen") is None:
        print("check.py: skipped: there is no doxygen (Debian: doxygen)")
        return 77
    lines, made = warnings_of(root)
    errors = [line for line in lines if not any(each.search(line) for each in (OVERRIDE, SPECIALIZATION, DEDUCTION_GUIDE))]
    headers = sum(1 for each in (root / "include" / "gradus").rglob("*.[hc][pu][ph]") if "detail" not in each.parts)
    if made < headers:
        errors.append(f"expected Doxygen to read {headers} public headers, got {made} files from it")
    print("\n".join(errors))
    print(f"{headers} public headers, {len(errors)} errors")
    if not errors:
        return 0
    version = subprocess.run(["doxygen", "--version"], capture_output=True, text=True).stdout.split()[0]
    if version != VERSION:
        print(f"check.py: skipped: this is doxygen {version}, and the docstrings are held to the warnings of {VERSION}")
        return 77
    return 1


if __name__ == "__main__":
    sys.exit(main())
