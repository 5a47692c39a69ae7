#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Interrupts trainings of train_mnist and lets them go on: interrupted_jobs.py --program PROGRAM --data FOLDER --work
FOLDER [--launch WORDS...]

A job that gets SIGTERM or SIGUSR1 (one of its ranks does) saves and ends with status 75. A job that is killed goes on
from its last checkpoint. In each case the last checkpoint of the job that went on has the bytes of that of an
undisturbed job.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

INTERRUPTED = 75
LIMIT = 120  # seconds


def tensors(path):
    """The tensors of a file of safetensors: name to (type, shape, bytes). Without what is of a moment."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__")
    buffer = content[8 + size:]
    return {name: (entry["dtype"], entry["shape"], buffer[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def checkpoints(folder):
    return sorted(folder.glob("step-*.safetensors"))


class Job:
    def __init__(self, words, folder):
        self.folder = folder
        self.process = subprocess.Popen([*words, "--checkpoint-dir", str(folder)], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def ranks(self):
        """The processes that train."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if (entry.name.isdigit() and str(self.folder).encode() in words and words[0].endswith(b"train_mnist")):
                    found.append(int(entry.name))
            except OSError:
                pass
        return sorted(found)

    def wait_for_checkpoint(self, files=2, folder=None):
        """In its folder, or in another one."""
        begin = time.monotonic()
        while len(checkpoints(folder or self.folder)) < files:
            if time.monotonic() - begin > LIMIT or self.process.poll() is not None:
                sys.exit(f"no checkpoint of {self.folder.name}: {self.process.communicate()[0]}")
            time.sleep(0.01)

    def end(self):
        try:
            text, _ = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            sys.exit(f"{self.folder.name} hangs: {self.process.communicate()[0]}")
        return self.process.returncode, text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", default="1")
    parser.add_argument("--launch", nargs=argparse.REMAINDER, default=[])
    arguments = parser.parse_args()
    words = [*arguments.launch, arguments.program, "--data", arguments.data, "--epochs", "12", "--batch-size", "32",
             "--checkpoint-every", "5", "--ranks", arguments.ranks, "--threads", "1", "--time-limit", "20"]
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)

    whole = Job(words, arguments.work / "undisturbed")
    status, text = whole.end()
    if status != 0:
        sys.exit(f"the undisturbed job ends with {status}: {text}")
    expected = tensors(checkpoints(whole.folder)[-1])
    last_name = checkpoints(whole.folder)[-1].name

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL):
        folder = arguments.work / number.name
        job = Job(words, folder)
        job.wait_for_checkpoint()
        os.kill(job.ranks()[-1], number)
        status, text = job.end()
        if number != signal.SIGKILL and status != INTERRUPTED:
            sys.exit(f"{number.name}: the status is {status}, expected {INTERRUPTED}: {text}")
        if number == signal.SIGKILL and status == 0:
            sys.exit(f"the killed job ends with 0: {text}")
        saved = checkpoints(folder)[-1].name
        again = Job([*words, "--resume"], folder)
        status, text = again.end()
        if status != 0 or "the newest valid checkpoint is" not in text:
            sys.exit(f"{number.name}: the job that goes on ends with {status}: {text}")
        last = checkpoints(folder)[-1]
        if last.name != last_name:
            sys.exit(f"{number.name}: the last checkpoint is {last.name}, expected {last_name}")
        found = tensors(last)
        different = [name for name in expected if found.get(name) != expected[name]]
        if different or len(found) != len(expected):
            sys.exit(f"{number.name}, which went on from {saved}: other bytes in {different}")
        print(f"{number.name}: went on from {saved} to the same bytes")


if __name__ == "__main__":
    main()
