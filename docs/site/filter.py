# SPDX-License-Identifier: BSL-1.0
"""Doxygen's INPUT_FILTER: prints a header in which indented lines of docstrings (formulas, programs) are verbatim.

Doxygen takes lines for a program that begin four spaces to the right; ours begin two."""

import re
import sys

COMMENT = re.compile(r"^(\s*///)( ?)( *)(.*)$")
LIST_MARK = re.compile(r"(\d+\.|[*-]|@)\s?")


def filtered(text):
    lines, blank, inside, code = [], True, False, False
    for line in text.splitlines():
        found = COMMENT.match(line)
        if not found:
            if inside:
                lines.append("/// @endverbatim")
            lines.append(line)
            blank, inside, code = True, False, False
            continue
        mark, _, indent, rest = found.groups()
        code = (code or rest.startswith("@code")) and not rest.startswith("@endcode")
        indented = len(indent) >= 2 and rest != "" and not code
        if inside and not indented and rest != "":
            lines.append(f"{mark} @endverbatim")
            inside = False
        if not inside and indented and blank and not LIST_MARK.match(rest):
            lines.append(f"{mark} @verbatim")
            inside = True
        lines.append(line)
        blank = rest == ""
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.stdout.write(filtered(file.read()))
