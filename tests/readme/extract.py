# SPDX-License-Identifier: BSL-1.0
"""extract.py README SECTION FILE...: writes the blocks of C++ of a section to files, as many as there are."""

import re
import sys


def main():
    readme, section, *files = sys.argv[1:]
    with open(readme, encoding="utf-8") as text:
        sections = re.split(r"^## ", text.read(), flags=re.MULTILINE)
    found = [each for each in sections if each.startswith(section + "\n")]
    if len(found) != 1:
        sys.exit(f"extract.py: expected one section '{section}' in {readme}, got {len(found)}")
    blocks = re.findall(r"^```cpp\n(.*?)^```$", found[0], flags=re.MULTILINE | re.DOTALL)
    if len(blocks) != len(files):
        sys.exit(f"extract.py: expected {len(files)} blocks of C++ in '{section}', got {len(blocks)}")
    for file, block in zip(files, blocks):
        with open(file, "w", encoding="utf-8") as out:
            out.write(block)


if __name__ == "__main__":
    main()
