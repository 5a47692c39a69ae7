#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Finds phrases that the prose of a repository avoids: check_prose.py [--all] ROOT [PATH...]

Reads comments (C++, CUDA, CMake, Python, shell, JavaScript), docstrings of Python, Markdown, messages of the library
and its programs, and names of tests. phrases.py lists the phrases. Prints file:line: phrase: 'words': what to write.

Without --all it reads the paths in enforced.txt, which must be clean. With --all it reads the whole tree, prints a
count for each folder at the end, and ends with 0. PATH narrows either to files and folders.
"""

import collections
import pathlib
import subprocess
import sys

import phrases
import text_blocks

HERE = pathlib.Path(__file__).resolve().parent


def tracked_files(root):
    """The files of the tree, relative to the root: those that git knows and those that it does not ignore."""
    try:
        names = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ).stdout.decode()
        found = [name for name in names.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = []
    if not found:  # an archive without git, or a folder that another repository ignores
        found = [
            path.relative_to(root).as_posix()
            for path in root.rglob("*")
            if path.is_file() and not path.relative_to(root).parts[0].startswith(("build", ".git"))
        ]
    return sorted(set(found))


def in_folders(name, folders):
    return any(name == folder or name.startswith(folder.rstrip("/") + "/") for folder in folders)


def check_text(path, text):
    """[(line, phrase, the words)] of a file."""
    found = []
    for block in text_blocks.blocks(path, text):
        for phrase, pattern in phrases.COMPILED:
            for match in pattern.finditer(block.text):
                found.append((block.line_of(match.start()), phrase, match.group(0)))
    return sorted(found, key=lambda each: each[0])


def check(root, folders):
    """{file: offenders} of the files in these folders, which are all if None. Files that are not text are left out."""
    result = {}
    for name in tracked_files(root):
        if folders is not None and not in_folders(name, folders):
            continue
        try:
            text = (root / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        offenders = check_text(name, text)
        if offenders:
            result[name] = offenders
    return result


def folder_of(name):
    parts = name.split("/")[:-1]
    return "/".join(parts[: 3 if parts[:1] == ["include"] else 2]) or "."


def enforced_paths():
    lines = (HERE / "enforced.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def main():
    arguments = sys.argv[1:]
    everything = arguments[:1] == ["--all"]
    arguments = arguments[1:] if everything else arguments
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    root = pathlib.Path(arguments[0])
    narrow = arguments[1:]
    enforced = enforced_paths()
    if not everything:
        for path in enforced:
            if not (root / path).exists():
                sys.exit(f"tests/prose/enforced.txt: {path} does not exist in {root}: remove or rename the line")
    found = check(root, narrow or (None if everything else enforced))
    if narrow and not everything:
        found = {name: each for name, each in found.items() if in_folders(name, enforced)}
    counts = collections.Counter()
    by_phrase = collections.Counter()
    for name, offenders in found.items():
        for line, phrase, words in offenders:
            print(f"{name}:{line}: {phrase.name}: '{words}': write {phrase.write}")
            counts[folder_of(name)] += 1
            by_phrase[phrase.name] += 1
    total = sum(counts.values())
    if everything:
        for folder, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
            print(f"{count:5} {folder}")
        print("by phrase: " + ", ".join(f"{name} {count}" for name, count in by_phrase.most_common()))
    print(f"{total} phrases to rewrite in {len(found)} files")
    return 1 if total and not everything else 0


if __name__ == "__main__":
    sys.exit(main())
