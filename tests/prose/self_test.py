#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""check_prose.py must go red: every bad sample of phrases.py is found, in each kind of file, and no good one is."""

import contextlib
import io
import pathlib
import sys
import tempfile

import check_prose
import phrases

# How a sentence stands in each kind of file: path, text before, text after, and how a new line begins.
PLACES = (
    ("docs/page.md", "", "\n", "\n"),
    ("docs/list.md", "# Title\n\n* ", "\n", "\n  "),
    ("docs/table.md", "| a | b |\n|---|---|\n| 1 | ", " |\n", " "),
    ("include/gradus/core/x.hpp", "int a;  // ", "\nint b;\n", "\n// "),
    ("include/gradus/core/y.hpp", "/// ", "\nint b;\n", "\n/// "),
    ("include/gradus/core/z.hpp", "/* ", " */ int b;\n", "\n   "),
    ("include/gradus/core/message.hpp", 'auto m = text("', '");\n', '"\n         "'),
    ("bench/driver/message.cpp", 'auto c = \'"\'; auto n = 1\'000; say("', '");\n', " "),
    ("include/gradus/kernels/x.cuh", "__global__ void f();  // ", "\n", "\n// "),
    ("tests/prose/CMakeLists.txt", 'set(a "#")  # ', "\n", "\n# "),
    ("scripts/x", '#!/usr/bin/env bash\na="#"; b=${#a}  # ', "\n", "\n# "),
    ("tests/x.py", "a = '#'  # ", "\n", "\n# "),
    ("tests/y.py", '"""', '"""\n', "\n"),
    ("bench/report/page/x.js", "let a = 1;  // ", "\n", "\n// "),
)

# Text that is not prose, or is the prose of others.
CLEAN = (
    ("docs/code.md", "Call `lies alone` or ```\nthis lies here\n```\n"),
    ("docs/fence.md", "```cpp\n// where it lies\n```\n"),
    ("docs/two_lines.md", "The option `as\never` is code.\n"),
    ("include/gradus/core/code.hpp", "/// @code\n///   where it lies\n/// @endcode\nint lies; // `nobody`\n"),
    ("include/gradus/core/duty.hpp", "enum class duty { none, layer };\n"),
    ("tests/unit/core/data.cpp", 'auto text = "where it lies";\n'),
    ("include/gradus/core/raw.hpp", 'auto raw = R"(" // lies )";\nint b = 1;\n'),
)


def offenders(path, text):
    return [(line, phrase.name) for line, phrase, _ in check_prose.check_text(path, text)]


def samples():
    """(failures, number of samples): each sample in each kind of file, on one line and broken over two."""
    failures, count = 0, 0
    for phrase in phrases.PHRASES:
        for kind, sentences in (("bad", phrase.bad), ("good", phrase.good)):
            for sentence in sentences:
                words = sentence.split()
                for path, before, after, new_line in PLACES:
                    for cut in (0, len(words) // 2):
                        broken = new_line.join(filter(None, (" ".join(words[:cut]), " ".join(words[cut:]))))
                        found = {name for _, name in offenders(path, before + broken + after)}
                        count += 1
                        if (phrase.name in found) != (kind == "bad") or kind == "good" and found:
                            print(f"{kind} sample of '{phrase.name}' in {path}: {broken!r}: found {sorted(found)}")
                            failures += 1
    return failures, count


def tree_of_files():
    """The checker as it is called: exit codes, lines, names of tests, folders."""
    failures = 0

    def expect(what, condition):
        nonlocal failures
        if not condition:
            print(f"the tree: {what}")
            failures += 1

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        files = {
            "docs/a.md": "One line.\n\nA buffer that\nlies here.\n",
            "tests/unit/core/x.cpp": "BOOST_AUTO_TEST_CASE(nobody_waits) {\n}\n",
            "tests/compile_fail/rank_that_is_told_twice.cpp": "int x;\n",
            "CHANGELOG.md": "Plain.\n",
            "CONTRIBUTING.md": "Plain.\n",
            "tests/prose/phrases.py": "# Plain.\n",
            "bench/driver/data.bin": "",
        }
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        enforced = (pathlib.Path(__file__).resolve().parent / "enforced.txt").read_text().splitlines()
        for path in (root / line.strip() for line in enforced if line.strip() and not line.startswith("#")):
            if not path.exists():  # every path of the list must exist
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("Plain.\n") if path.suffix else path.mkdir()
        (root / "bench/driver/data.bin").write_bytes(b"\xff\xfelies alone")

        # The tree is independent of what enforced.txt lists now.
        check_prose.enforced_paths = lambda: ["CHANGELOG.md", "CONTRIBUTING.md", "docs", "tests/prose"]

        def run(*arguments):
            out = io.StringIO()
            sys.argv = ["check_prose.py", *arguments]
            with contextlib.redirect_stdout(out):
                status = check_prose.main()
            return status, out.getvalue()

        status, out = run(str(root))
        expect(f"an enforced file with a phrase ends with 1, not {status}", status == 1)
        expect(f"the line of the phrase is 4: {out}", "docs/a.md:4: lies: 'lies': write is stored" in out)
        expect(f"only enforced files are read: {out}", "tests/unit" not in out)
        status, out = run("--all", str(root))
        expect(f"--all ends with 0, not {status}", status == 0)
        expect(f"--all finds names of tests: {out}", "tests/unit/core/x.cpp:1: nobody, somebody" in out)
        expect(f"--all finds names of files: {out}", "rank_that_is_told_twice.cpp:1: is told, hears of" in out)
        expect(f"--all counts by folder: {out}", "    1 tests/unit\n" in out)
        expect(f"--all counts all: {out}", "3 phrases to rewrite in 3 files" in out)
        status, out = run("--all", str(root), "tests")
        expect(f"a path narrows --all: {out}", "docs" not in out and "2 phrases" in out)
        (root / "docs/a.md").write_text("Plain.\n")
        status, out = run(str(root))
        expect(f"a clean tree ends with 0, not {status}: {out}", status == 0)
        (root / "CHANGELOG.md").unlink()
        try:
            run(str(root))
            expect("an enforced path that does not exist ends the program", False)
        except SystemExit as end:
            expect(f"the message names the path: {end}", "CHANGELOG.md does not exist" in str(end))
    return failures


def main():
    failures, count = samples()
    for phrase in phrases.PHRASES:
        if not phrase.bad or not phrase.write:
            print(f"'{phrase.name}' has no bad sample or no advice")
            failures += 1
    for path, text in CLEAN:
        found = offenders(path, text)
        if found:
            print(f"{path}: {text!r} has no prose to rewrite, but found {found}")
            failures += 1
    failures += tree_of_files()
    print(f"{count} samples, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
