#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""How much faster pipelines of two ranks train than one rank: speed.py GRADUS_BENCH [options]

    speed.py build/bench/bench/driver/gradus_bench --mpiexec mpiexec --json pipelines.json

Each rank has one thread. The one rank has the same batch and the same micro-batches. All runs of a comparison are
interleaved, several rounds; a ratio is that of the medians. A pipeline of two ranks with M micro-batches cannot be more
than 2 * M / (M + 1) times as fast, if its stages take equally long (GPipe, Huang et al., 2019, section 2.3).

The curves have micro-batches of the same size: more micro-batches make the batch larger.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

# By model: images of a micro-batch, numbers of micro-batches of the curve, and steps that are measured.
MODELS = {"resnet110": (8, (1, 2, 4, 8, 16), 4), "vgg19": (2, (8,), 1)}
COMPARED = 8  # micro-batches with which processes and other schedules are compared


def measure(command, folder):
    file = pathlib.Path(folder) / "result.json"
    done = subprocess.run([*map(str, command), "--json", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"speed.py: {' '.join(map(str, command))}:\n{done.stdout[-2000:]}")
    found = json.loads(file.read_text())
    return found["images_per_second"], found.get("pipeline", {})


def variants(chosen, micro_batches):
    """(name, launcher, options) of what is compared."""
    two = ["--stages", 2]
    found = [("one rank", [], ["--ranks", 1]), ("threads one_f_one_b", [], ["--ranks", 2, *two])]
    if micro_batches == COMPARED:
        found.append(("threads zero_bubble", [], ["--ranks", 2, *two, "--schedule", "zero_bubble"]))
        if chosen.mpiexec:
            found.append(("MPI one_f_one_b", [*chosen.mpiexec.split(), "-n", 2], two))
    return found


def compare(chosen, model, micro_batches, folder):
    size, _, steps = MODELS[model]
    common = ["--model", model, "--batch-size", size * micro_batches, "--micro-batches", micro_batches, "--threads", 1,
              "--data-format", "NHWC", "--num-warmup-batches", 1, "--num-batches", steps, "--display-every", steps]
    runs, bubbles = {}, {}
    for round_number in range(chosen.rounds):
        for name, launcher, options in variants(chosen, micro_batches):
            rate, pipeline = measure([*launcher, chosen.program, *common, *options], folder)
            runs.setdefault(name, []).append(rate)
            if pipeline:
                bubbles.setdefault(name, []).append((pipeline["bubble"], pipeline["measured_bubble"]))
            print(f"{model} {micro_batches} x {size}, round {round_number + 1}, {name}: {rate:.2f} images/s", flush=True)
    rows = []
    one = runs.pop("one rank")
    for name, rates in runs.items():
        ranks, schedule = name.split()
        rows.append({"model": model, "images": size, "micro_batches": micro_batches, "ranks": ranks, "schedule": schedule,
                     "images_per_second": statistics.median(rates), "one_rank": statistics.median(one),
                     "ratio": statistics.median(rates) / statistics.median(one), "best": max(rates) / max(one),
                     "ideal": 2 * micro_batches / (micro_batches + 1),
                     "predicted_bubble": statistics.median(each[0] for each in bubbles[name]),
                     "measured_bubble": statistics.median(each[1] for each in bubbles[name])})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="gradus_bench")
    parser.add_argument("--mpiexec", default="", help="also measures two processes, started by this command")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--micro-batches", nargs="+", type=int, help="instead of those of the curve")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="also writes the results to this file")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in chosen.models:
            for micro_batches in chosen.micro_batches or MODELS[model][1]:
                rows += compare(chosen, model, micro_batches, folder)
    print(f"{'model':10} {'M':>3} {'ranks':8} {'schedule':12} {'times one rank':>14} {'best':>6} {'ideal':>6} "
          f"{'of ideal':>8} {'bubble':>7} {'predicted':>9}")
    for row in rows:
        print(f"{row['model']:10} {row['micro_batches']:3} {row['ranks']:8} {row['schedule']:12} {row['ratio']:14.2f} "
              f"{row['best']:6.2f} {row['ideal']:6.2f} {row['ratio'] / row['ideal']:8.2f} {row['measured_bubble']:7.1%} "
              f"{row['predicted_bubble']:9.1%}")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
