#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""make_c_interface.py HEADER MODULE [--check]: writes the Fortran module gradus_c_interface from gradus_c.h.

With --check it writes nothing, and ends with 1 if the module is not what the header says.
"""

import pathlib
import re
import sys

HANDLES = {"gradus_device", "gradus_comm", "gradus_network", "gradus_data", "gradus_trainer"}
CALLBACKS = {"gradus_step_callback", "gradus_schedule"}
NUMBERS = {
    "int": "integer(c_int)",
    "gradus_status": "integer(c_int)",
    "int32_t": "integer(c_int32_t)",
    "int64_t": "integer(c_int64_t)",
    "uint64_t": "integer(c_int64_t)",
    "gradus_value": "integer(c_int64_t)",
    "size_t": "integer(c_size_t)",
    "double": "real(c_double)",
}
HEAD = """! SPDX-License-Identifier: BSL-1.0
!
! The functions, structures and constants of gradus_c.h for Fortran. Written by make_c_interface.py from the header: change
! that, and run the script. Programs use the module gradus.
module gradus_c_interface
  use, intrinsic :: iso_c_binding
  implicit none
  public
"""


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def constants(text):
    for body in re.findall(r"\benum \{(.*?)\};", text, flags=re.S):
        for name, value in re.findall(r"(GRADUS_\w+)\s*=\s*(-?\d+)", body):
            yield f"  integer(c_int), parameter :: {name.lower()} = {value}"


def structures(text):
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, flags=re.S):
        lines = [f"  type, bind(c) :: {name}"]
        for member in [each.strip() for each in body.split(";") if each.strip()]:
            kind, star, called, count = re.fullmatch(
                r"(?:const )?(\w+)\s*(\*?)\s*(\w+)(?:\[(\d+)\])?", " ".join(member.split())).groups()
            if star:
                lines.append(f"    type(c_ptr) :: {called} = c_null_ptr")
            else:
                extent = f"({count})" if count else ""
                lines.append(f"    {NUMBERS[kind]} :: {called}{extent} = 0")
        yield "\n".join(lines + ["  end type"])


def argument(text):
    """The name of an argument and its declaration."""
    const, kind, stars, name, array = re.fullmatch(
        r"(const )?(\w+)\s*(\**)\s*(\w+)(\[\d*\])?", " ".join(text.split())).groups()
    if kind in CALLBACKS:
        return name, f"type(c_funptr), value :: {name}"
    if kind == "void" or (kind in HANDLES and stars == "*"):
        return name, f"type(c_ptr), value :: {name}"
    if stars == "**":
        return name, f"type(c_ptr), intent(inout) :: {name}"
    if kind == "char":
        direction = "in" if const else "out"
        return name, f"character(kind=c_char), intent({direction}), optional :: {name}(*)"
    if kind in NUMBERS:
        if array or (stars and const):
            return name, f"{NUMBERS[kind]}, intent(in), optional :: {name}(*)"
        if stars:
            return name, f"{NUMBERS[kind]}, intent(inout), optional :: {name}"
        return name, f"{NUMBERS[kind]}, value :: {name}"
    return name, f"type({kind}), intent({'in' if const else 'inout'}), optional :: {name}"


def wrapped(start, words, end):
    lines = [start]
    for i, word in enumerate(words):
        word += ", " if i + 1 < len(words) else ""
        if len(lines[-1]) + len(word) > 110:
            lines[-1] += "&"
            lines.append("        ")
        lines[-1] += word
    if len(lines[-1]) + len(end) > 126:
        lines[-1] += "&"
        lines.append("        ")
    lines[-1] += end
    return "\n".join(lines)


def functions(text):
    for result, name, arguments in re.findall(r"GRADUS_C_API ([\w ]+?\*?)\s+(gradus_\w+)\(([^)]*)\);", text):
        pairs = [] if arguments.strip() in ("", "void") else [argument(each) for each in arguments.split(",")]
        kind = "type(c_ptr)" if result.endswith("*") else NUMBERS[result.strip()]
        yield "\n".join(
            [wrapped(f"    function {name}(", [each for each, _ in pairs], f") bind(c, name='{name}') result(answer)"),
             "      import", *[f"      {declaration}" for _, declaration in pairs], f"      {kind} :: answer",
             "    end function"])


def module_of(header):
    text = without_comments(header)
    text = re.sub(r"#ifdef MPI_VERSION.*?#endif", "", text, flags=re.S)
    return "\n".join([HEAD, *constants(text), "", *structures(text), "", "  interface", *functions(text), "  end interface",
                      "end module", ""])


def main():
    header, module = map(pathlib.Path, sys.argv[1:3])
    text = module_of(header.read_text(encoding="utf-8"))
    if "--check" in sys.argv:
        if module.read_text(encoding="utf-8") != text:
            print(f"{module} is not what {header} says: run {sys.argv[0]} {header} {module}")
            return 1
        return 0
    module.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
