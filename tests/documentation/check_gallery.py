# SPDX-License-Identifier: BSL-1.0
"""check_gallery.py ROOT: docs/gallery.md has an entry with a picture for each program in examples/."""

import pathlib
import re
import sys

LARGEST = 256 * 1024  # bytes of a picture


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    entries = re.split(r"^## ", (root / "docs/gallery.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    errors = []
    shown = set()
    for entry in entries:
        title = entry.splitlines()[0]
        programs = set(re.findall(r"\]\(\.\./(examples/[\w./]+\.(?:cpp|c|f90))\)", entry))
        pictures = re.findall(r"(?:!\[[^\]]+\]\(|<img src=\")(pictures/[\w.]+)", entry)
        shown |= programs
        if not programs:
            errors.append(f"'{title}' links to no program")
        if not pictures and not all("consumer" in program for program in programs):
            errors.append(f"'{title}' has no picture")
        for picture in pictures:
            path = root / "docs" / picture
            if not path.is_file() or path.stat().st_size > LARGEST:
                errors.append(f"'{title}': expected docs/{picture} of at most {LARGEST} bytes, "
                              f"got {path.stat().st_size if path.is_file() else 'none'}")
    programs = {path.relative_to(root).as_posix() for path in (root / "examples").rglob("*")
                if path.suffix in (".cpp", ".c", ".f90")}
    errors += [f"docs/gallery.md has no entry for {program}: draw its picture (scripts/draw_gallery)"
               for program in sorted(programs - shown)]
    errors += [f"docs/gallery.md names {program}, which is not there" for program in sorted(shown - programs)]
    print("\n".join(errors))
    print(f"{len(entries)} entries, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
