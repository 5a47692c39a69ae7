# SPDX-License-Identifier: BSL-1.0
"""check_links.py ROOT: relative links and pictures of the documents lead to files, and to headings of them.

Also holds README.md to its length: it is the first page, the rest is in docs.
"""

import pathlib
import re
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
MOST_LINES = 150


def anchors(path):
    """The anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)}


def main():
    root = pathlib.Path(sys.argv[1])
    documents = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "bench" / "results").glob("*.md")]
    failures, links = [], 0
    for document in documents:
        text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for found in LINK.finditer(text):
            target = found[1] or found[2]
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            file, _, anchor = target.partition("#")
            path = document.parent / file if file else document
            if not path.exists():
                failures.append(f"{document}: expected a file at '{target}', found none")
            elif anchor and anchor not in anchors(path):
                failures.append(f"{document}: expected a heading for '{target}', found none")
    lines = (root / "README.md").read_text(encoding="utf-8").count("\n")
    if lines > MOST_LINES:
        failures.append(f"README.md: expected at most {MOST_LINES} lines, got {lines}. Move details to docs.")
    print("\n".join(failures + [f"{len(documents)} documents, {links} links, {len(failures)} failures"]))
    return 1 if failures or links < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
