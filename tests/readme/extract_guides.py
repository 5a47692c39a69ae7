# SPDX-License-Identifier: BSL-1.0
"""extract_guides.py OUTPUT ABSENT GUIDE...: the whole programs of guides as one source file.

A block that begins with ```cpp program is a program that compiles; one that begins with ```cpp run also returns 0. Each
becomes a namespace, so that all are compiled together; their includes come first. Blocks that include a header which
contains a word of ABSENT (a list separated by commas) are left out.
"""

import os
import re
import sys

BLOCK = re.compile(r"^```cpp (program|run)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^#include ([<\"][^>\"]+[>\"]).*\n", flags=re.MULTILINE)


def main():
    output, absent, *guides = sys.argv[1:]
    absent = [word for word in absent.split(",") if word]
    includes, programs, runs = set(), [], []
    for path in guides:
        with open(path, encoding="utf-8") as text:
            guide = text.read()
        stem = os.path.splitext(os.path.basename(path))[0]
        for number, block in enumerate(BLOCK.finditer(guide)):
            kind, code = block.groups()
            own = INCLUDE.findall(code)
            if any(word in header for header in own for word in absent):
                continue
            includes.update(own)
            name = f"{stem}_{number}"
            line = guide[:block.start(2)].count("\n") + 1
            if kind == "run":
                if not (re.search(r"^int main\(\) {$", code, flags=re.MULTILINE) and code.endswith("\n}\n")):
                    sys.exit(f"extract_guides.py: {path}:{line}: expected a program that ends with the function int main()")
                code = code[:-2] + "return 0; }\n"  # only a function main of the global namespace returns 0 by itself
            # Includes become empty lines: a message of the compiler has the line of the guide.
            programs.append(f'namespace {name} {{\n#line {line} "{path}"\n' + INCLUDE.sub("\n", code) + "}  // namespace\n")
            if kind == "run":
                runs.append(f'    {{"{path}:{line}", &{name}::main}},\n')
    if not programs:
        sys.exit(f"extract_guides.py: expected programs in {', '.join(guides)}, got none")
    with open(output, "w", encoding="utf-8") as out:
        out.write("".join(f"#include {each}\n" for each in sorted(includes)))
        out.write('#pragma GCC diagnostic ignored "-Wunused-variable"\n')
        out.write("\n".join(programs))
        out.write('struct guide_program {\n  const char* location;\n  int (*run)();\n};\n')
        out.write("extern const guide_program programs_of_guides[];\nextern const int number_of_programs;\n")
        out.write("const guide_program programs_of_guides[] = {\n" + "".join(runs) + "};\n")
        out.write(f"const int number_of_programs = {len(runs)};\n")


if __name__ == "__main__":
    main()
