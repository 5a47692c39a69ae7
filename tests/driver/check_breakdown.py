#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The report of a trace tells of a step what the driver has measured from outside of it, however the ranks exchange.

    check_breakdown.py GRADUS_BENCH GRADUS_REPORT [--all] [--mpiexec WORD...]

--mpiexec: the words that start a program on two ranks. --all: every way of updating by every algorithm over every
communicator that the driver offers, not each of them once; some two minutes.

Driver and trace measure the same steps. The check compares the shares of a step, so the length of a step does not
matter. A thread may lose its processor between the clock readings of the two, so a measurement that differs is repeated
twice before it counts.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ARGUMENTS = argparse.Namespace()
SMALL = ["--model=lenet", "--batch-size=4", "--threads=1", "--num-warmup-batches=2", "--num-batches=12",
         "--display-every=1000"]
ALGORITHMS = ["ring", "halving_doubling", "binary_blocks", "recursive_doubling", "tree", "hierarchical_ring",
              "hierarchical_halving_doubling", "ring#2", "recursive_doubling:4K:ring"]
UPDATES = [["all_reduce"], ["sharded_update"], ["independent"], ["model_averaging", "--average-every=2"],
           ["parameter_server", "--servers=2", "--colocate-servers"],
           ["parameter_server", "--servers=2", "--colocate-servers", "--server-mode=asynchronous"],
           ["distributed_replicated", "--servers=1", "--colocate-servers"]]
PARTS = ("forward", "backward", "update", "input", "exchange")
TOLERANCE = 0.05  # of a step


def output_of(words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=100, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def parts_of_steps(launch, options):
    """Of a measurement: the parts of a step by the driver, and by the report."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        measured, trace, told = (folder / each for each in ("measured.json", "trace.json", "told.json"))
        output_of([*launch, ARGUMENTS.program, *SMALL, *options, "--json", measured, "--trace-file", trace])
        output_of([ARGUMENTS.report, trace, "--json", told, "--quiet"])
        driver, report = json.loads(measured.read_text()), json.loads(told.read_text())
    phases, activities = driver["breakdown_ms"], report["breakdown_ms"]
    phases["exchange"] = phases["communicate"] + phases["wait"]
    activities["exchange"] += activities["communicate"] + activities["wait"] + activities["copy"]
    return ({part: phases[part] / driver["step_ms"]["mean"] for part in PARTS},
            {part: activities[part] / report["step_ms"]["mean"] for part in PARTS})


class Breakdown(unittest.TestCase):
    def compare(self, launch, *options):
        if not launch:
            options = ("--ranks=2", *options)
        with self.subTest(" ".join([*map(str, launch[-3:]), *options])):
            for attempt in range(3):
                driver, report = parts_of_steps(launch, options)
                far = {part for part in PARTS if abs(driver[part] - report[part]) > TOLERANCE}
                if not far:
                    break
            rows = [f"{part}: driver {100 * driver[part]:.1f} %, report {100 * report[part]:.1f} %" for part in PARTS]
            self.assertEqual(far, set(), "\n" + "\n".join(rows))
            return driver["exchange"]

    def test_ways_of_updating(self):
        for update, *options in UPDATES:
            share = self.compare([], "--variable-update", update, *options)
            if share is not None:  # else the comparison has failed
                self.assertEqual(share < 0.02, update == "independent")
        if ARGUMENTS.mpiexec:
            for update, *options in UPDATES if ARGUMENTS.all else UPDATES[1:5:3]:
                self.compare(ARGUMENTS.mpiexec, "--variable-update", update, *options)

    def test_algorithms(self):
        for algorithm in ALGORITHMS if ARGUMENTS.all else ALGORITHMS[:4]:
            self.compare([], "--all-reduce-spec", algorithm)
        if ARGUMENTS.mpiexec:
            for algorithm in ["hierarchical", *(ALGORITHMS if ARGUMENTS.all else ALGORITHMS[:2])]:
                self.compare(ARGUMENTS.mpiexec, "--all-reduce-spec", algorithm)
            self.compare(ARGUMENTS.mpiexec, "--all-reduce-spec", "hierarchical", "--variable-update", "sharded_update")

    def test_stages(self):
        # 1001 classes and a small network: the loss is a large part of a step.
        for schedule in ("one_f_one_b", "zero_bubble"):
            self.compare([], "--stages=2", "--micro-batches=4", f"--schedule={schedule}", "--layer-times=estimated",
                         "--model=trivial", "--batch-size=16", "--image-size=32")

    def test_orders(self):
        for order in ("tac", "tic", "random") if ARGUMENTS.all else ("tac",):
            for launch in [[], *([ARGUMENTS.mpiexec] if ARGUMENTS.mpiexec and ARGUMENTS.all else [])]:
                for algorithm in ([], ["--all-reduce-spec=ring"]) if ARGUMENTS.all else ([],):
                    self.compare(launch, "--order", order, "--bucket-kilobytes=256", *algorithm)


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("program")
    PARSER.add_argument("report")
    PARSER.add_argument("--all", action="store_true")
    PARSER.add_argument("--mpiexec", nargs=argparse.REMAINDER, default=[])
    PARSER.parse_args(namespace=ARGUMENTS)
    unittest.main(argv=sys.argv[:1])
