# SPDX-License-Identifier: BSL-1.0
"""check_results.py ROOT: scripts/bench keeps the newest run of each kind and one line of history for each run.

Runs no benchmark: the results of bench/results are handed to it as if they were new ones.
"""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import shutil
import sys
import tempfile

failures = []


def expect(holds, message):
    if not holds:
        failures.append(message)
        print(f"FAILED: {message}")


def load(path):
    loader = importlib.machinery.SourceFileLoader("bench", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
    loader.exec_module(module)
    return module


def history(folder):
    return [line for line in (folder / "README.md").read_text().splitlines() if re.match(r"\| \d{4}-", line)]


def main():
    root = pathlib.Path(sys.argv[1])
    bench = load(root / "scripts" / "bench")
    results = root / "bench" / "results"
    dated = [each.name for each in results.iterdir() if re.match(r"\d{4}-", each.name)]
    expect(not dated, f"expected files named by their kind in bench/results, got {dated}")
    rows = history(results)
    expect(rows == sorted(rows, key=lambda row: row[2:12]), "the history in bench/results/README.md is not sorted by date")
    expect(all(row.count("|") == 6 for row in rows), "a line of the history has not five columns")
    members = {}
    for kind in ("kernels", "steps", "memory", "compile_time", "pointwise"):
        members.update(json.loads((results / f"{kind}.json").read_text())["results"])
    report = {**json.loads((results / "steps.json").read_text()), "results": members, "commit": "feed123", "quick": False}
    for kind in bench.ONLY_BY_NAME:  # measured on days of their own
        if (results / f"{kind}.json").exists():
            made = bench.table(json.loads((results / f"{kind}.json").read_text())).rstrip() + "\n"
            expect((results / f"{kind}.md").read_text() == made, f"{kind}.md is not the table of {kind}.json")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        shutil.copy(results / "README.md", folder)
        bench.keep(report, folder, with_torch_dir=False)
        made = {each.name for each in folder.iterdir()} - {"README.md"}
        kinds = ("kernels", "pointwise", "steps", "memory", "compile_time")
        expect(made == {f"{kind}.{end}" for kind in kinds for end in ("md", "json")}, f"files of each kind: {made}")
        for kind in kinds:
            expect((folder / f"{kind}.md").read_text() == (results / f"{kind}.md").read_text().replace(
                json.loads((results / f"{kind}.json").read_text())["commit"], "feed123"), f"{kind}.md is not the table of {kind}.json")
        added = history(folder)[len(rows):]
        expect(history(folder)[:len(rows)] == rows, "older lines of the history have changed")
        expect(len(added) == len(kinds), f"one line for each kind, got {added}")
        steps = [line for line in added if "| steps |" in line]
        ratio = members["training_steps"][2]["ratio_median"]
        expect(len(steps) == 1 and "feed123" in steps[0] and f"mnist {ratio:.2f}" in steps[0], f"line of steps: {steps}")
        bench.keep({**report, "quick": True}, folder, with_torch_dir=True)
        expect((folder / "steps_pytorch.json").exists() and (folder / "memory_pytorch.md").exists(),
               "with Torch_DIR: files of their own")
        expect(any("| steps_pytorch, few rounds |" in line for line in history(folder)), "a quick run says so")
    print(f"{len(rows)} lines of history, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
