#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Kills trainings of train_mnist under gradus_run: resumed_jobs.py --run GRADUS_RUN --program PROGRAM --data FOLDER
--work FOLDER [--launch WORDS...]

One rank gets SIGKILL in the middle. gradus_run starts the job again, and its last checkpoint has the bytes of that of an
undisturbed job: on as many ranks, from the file system and from memory. On fewer ranks the sums over the examples of a
batch have another order, so the parameters are equal to rounding only.
"""

import argparse
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "checkpoint"))
from interrupted_jobs import LIMIT, Job, checkpoints, tensors  # noqa: E402

RANKS, FEWER = 2, 1
# Of two trainings of 40 steps in float. A sum of 32 examples is wrong by some 2^-24 of its terms, and the parameters are
# about 1: 6e-8 was found on 1 rank after 2. Five steps less differ by 0.01.
TOLERANCE = 1e-5


def largest_difference(left, right):
    """Of the float tensors of two checkpoints, element by element: parameters and momentum. Others depend on the ranks."""
    largest = 0.0
    for name, (kind, shape, content) in left.items():
        if kind == "F32":
            if right[name][:2] != (kind, shape):
                sys.exit(f"{name}: {right[name][:2]}, expected {(kind, shape)}")
            count = len(content) // 4
            pairs = zip(struct.unpack(f"<{count}f", content), struct.unpack(f"<{count}f", right[name][2]))
            largest = max([largest, *(abs(a - b) for a, b in pairs)])
    return largest


class Supervised(Job):
    def __init__(self, arguments, folder, options, words):
        self.arguments = arguments
        super().__init__([arguments.run, "--pause", "0.1", "--checkpoints", str(folder), *options, "--", *words], folder)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--run", "--program", "--data"):
        parser.add_argument(name, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--launch", nargs=argparse.REMAINDER, default=[])
    arguments = parser.parse_args()
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)

    def command(every, *more):
        ranks = [] if arguments.launch else ["--ranks", "{ranks}"]
        return [*arguments.launch, arguments.program, "--data", arguments.data, "--epochs", "2", "--batch-size", "32",
                "--checkpoint-every", str(every), *ranks, "--threads", "1", "--time-limit", "20", *more]

    words = [each.replace("{ranks}", str(RANKS)) for each in command(5)]
    whole = Job(words, arguments.work / "undisturbed")
    status, text = whole.end()
    if status != 0:
        sys.exit(f"the undisturbed job ends with {status}: {text}")
    last_name = checkpoints(whole.folder)[-1].name
    expected = tensors(checkpoints(whole.folder)[-1])

    def kill_one(name, options, words, watched):
        """Kills one rank when `watched` has checkpoints. Returns what was said, and the tensors in the end."""
        job = Supervised(arguments, arguments.work / name, options, words)
        job.wait_for_checkpoint(folder=watched)
        os.kill(job.ranks()[-1], signal.SIGKILL)
        status, text = job.end()
        if status != 0 or "end after 1 start," in text or "the newest valid checkpoint is" not in text:
            sys.exit(f"{name}: gradus_run ends with {status}: {text}")
        files = checkpoints(job.folder)
        if not files or files[-1].name != last_name:
            sys.exit(f"{name}: the checkpoints are {[each.name for each in files]}, expected {last_name} last: {text}")
        return text, tensors(files[-1])

    def expect_the_same(name, found):
        different = [each for each in expected if found.get(each) != expected[each]]
        if different or len(found) != len(expected):
            sys.exit(f"{name}: other bytes in {different}")
        print(f"{name}: the same bytes")

    _, found = kill_one("killed", ["--ranks", str(RANKS)], command(5, "--resume"), None)
    expect_the_same("killed", found)

    # On the file system only the last step is saved, so the job goes on from memory.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared, prefix="gradus_test_") as memory:
        options = ["--ranks", str(RANKS), "--checkpoints", memory]
        text, found = kill_one("memory", options, command(40, "--resume", "--checkpoint-memory", memory,
                                                          "--checkpoint-memory-every", "5"), pathlib.Path(memory))
        names = [each.name for each in checkpoints(arguments.work / "memory")]
        if f"the newest valid checkpoint is '{memory}/step-" not in text or names != [last_name]:
            sys.exit(f"memory: the file system has {names}: {text}")
        expect_the_same("memory", found)

    # The job cannot start on as many ranks any more, as if a machine were gone.
    mark = arguments.work / "fewer_started"
    once = ["sh", "-c", f'if [ "$0" = {RANKS} ] && [ -e {mark} ]; then exit 1; fi; : > {mark}; exec "$@"', "{ranks}"]
    text, found = kill_one("fewer", ["--ranks", str(RANKS), "--fewer", str(FEWER)], [*once, *command(5, "--resume")], None)
    if f"start 3 on {FEWER} ranks" not in text:
        sys.exit(f"fewer: expected start 3 on {FEWER} ranks: {text}")
    largest = largest_difference(expected, found)
    print(f"fewer: the largest difference is {largest:.3g}")
    if not 0 <= largest < TOLERANCE:
        sys.exit(f"fewer: the largest difference is {largest}, expected less than {TOLERANCE}")


if __name__ == "__main__":
    main()
