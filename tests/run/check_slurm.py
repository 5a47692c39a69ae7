#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs trainings in a real Slurm: check_slurm.py --run GRADUS_RUN --program LAUNCHED --training TRAIN_MNIST --data FOLDER

The daemons run on this machine for the test. Two tasks that do not find each other end with the cure. A training of two
tasks is queued by gradus_run, gets the signal that comes before a time limit, saves, is queued again, goes on, is canceled,
is queued once more and finished: its last checkpoint has the bytes of that of an undisturbed job. Exits with 77 where
Slurm's packages or root are missing.
"""

import argparse
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from daemons import LIMIT, Slurm, require_tools, skip, wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "checkpoint"))
from interrupted_jobs import checkpoints, tensors  # noqa: E402


def processes():
    """(process, words) of all processes."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                found.append((int(entry.name), (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")))
    return found


def main():
    parser = argparse.ArgumentParser()
    for name in ("--run", "--program", "--training", "--data"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    for name, value in vars(given).items():
        setattr(given, name, str(pathlib.Path(value).resolve()))
    require_tools(("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"))
    with tempfile.TemporaryDirectory() as folder, Slurm(folder) as slurm:
        work = pathlib.Path(folder) / "it's a job"
        work.mkdir()

        def call(*words, status=0):
            done = subprocess.run(words, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                                  timeout=LIMIT)
            if done.returncode != status:
                sys.exit(f"{words}: status {done.returncode}, expected {status}: {done.stdout}{done.stderr}{slurm.log()}")
            return done.stdout, done.stderr

        # Tasks that do not find each other, and tasks that do.
        begin = time.monotonic()
        _, said = call("srun", "-n", "2", "--mpi=none", given.program, status=1)
        print(f"two tasks end after {time.monotonic() - begin:.2f} s")
        if len(re.findall(r"srun has started \(SLURM_STEP_NUM_TASKS=2\), got 1\. Hint: .* srun --mpi=pm", said)) != 2:
            sys.exit(f"expected the cure from both tasks: {said}")
        kind = re.search(r"srun (--mpi=pm\w+)", said)[1]
        if kind[6:] not in "".join(call("srun", "--mpi=list")):
            skip(f"this Slurm has no {kind}")
        output, _ = call("srun", "-n", "2", kind, given.program)
        if output.count("2 known") != 2 or "2 processes of this machine share" not in output:
            sys.exit(f"{kind}: {output}")
        # A program of the script, and mpiexec in it, are no tasks.
        script = f"#!/bin/sh\n'{given.program}' && mpiexec -n 1 '{given.program}'"
        (work / "script").write_text(script)
        call("sbatch", "--wait", "-n", "2", "-o", "script.out", "script")
        if (work / "script.out").read_text().count("1 known") != 2:
            sys.exit(f"in a script: {(work / 'script.out').read_text()}")

        # What does not fit the nodes is not queued.
        for options in (("--nodes", "2"), ("--nodes", "1", "--ranks-per-node", "4096")):
            _, said = call(given.run, "--slurm", *options, "--", given.training, status=2)
            if "expected" not in said or "got 1 node of " not in said:
                sys.exit(f"{options}: {said}")

        def queue(saved):
            """A training in Slurm. Returns its job."""
            output, _ = call(given.run, "--slurm", "--nodes", "1", "--ranks-per-node", "2", "--threads", "1", "--time", "10",
                             "--bind", "core", "--checkpoints", saved, "--pause", "0.1", "--grace", "20", "--output",
                             f"{saved}.out", "--", given.training, "--data", given.data, "--epochs", "2", "--batch-size",
                             "32", "--checkpoint-every", "5", "--threads", "{threads}", "--time-limit", "20",
                             "--checkpoint-dir", saved, "--resume")
            return re.fullmatch(r"Submitted batch job (\d+)\n", output)[1]

        def text_of(saved):
            path = work / f"{saved}.out"
            return path.read_text(errors="replace") if path.exists() else ""

        def wait_for(condition, what, job, saved, pause=0.1):
            def over():
                if condition():
                    return True
                if slurm.job(job).get("JobState") in ("FAILED", "TIMEOUT", "NODE_FAIL"):
                    sys.exit(f"{what}: {slurm.job(job)} {text_of(saved)} {slurm.log()}")
                return False
            try:
                wait_until(over, f"job {job}: {what}", limit=120, pause=pause)
            except SystemExit:
                print(slurm.job(job), text_of(saved), slurm.log())
                raise

        def state(job, *names):
            return slurm.job(job).get("JobState") in names

        def newest(saved):
            return max((each.name for each in checkpoints(work / saved)), default="")

        def stop_after(name, job, saved):
            """Stops the ranks when there is a later checkpoint: the training would be over before a signal comes."""
            wait_for(lambda: newest(saved) > name, "no checkpoint", job, saved, pause=0.005)
            ranks = [pid for pid, words in processes() if words[0] == given.training and saved in words]
            for pid in ranks:
                os.kill(pid, signal.SIGSTOP)
            if len(ranks) != 2:
                sys.exit(f"the training is too short for the test: {text_of(saved)}")
            return ranks

        def go_on(ranks):
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        def finish(saved, job):
            wait_for(lambda: state(job, "COMPLETED"), "it does not end", job, saved)
            last = checkpoints(work / saved)[-1]
            return last.name, tensors(last)

        expected_name, expected = finish("undisturbed", queue("undisturbed"))
        if not re.search(r"rank [01] on \S+: (not )?bound", text_of("undisturbed")):
            sys.exit(f"no line says what the binding is: {text_of('undisturbed')}")

        saved = "disturbed"
        job = queue(saved)
        ranks = stop_after("", job, saved)
        call("scancel", "--signal=USR1", "--batch", job)  # as --signal=B:USR1@120 of the script says
        wait_until(lambda: "SIGUSR1 has come" in text_of(saved), "the script passes no signal on")
        go_on(ranks)
        wait_for(lambda: state(job, "PENDING"), "it is not queued again", job, saved)
        first = newest(saved)
        if first == expected_name or "exit status 75" not in text_of(saved):
            sys.exit(f"it has not saved because of the signal: {text_of(saved)}")
        call("scontrol", "update", f"JobId={job}", "StartTime=now+2")  # it would wait for two minutes
        wait_for(lambda: "the newest valid checkpoint is" in text_of(saved), "it does not go on", job, saved)
        stop_after(first, job, saved)
        call("scancel", job)
        wait_for(lambda: state(job, "CANCELLED"), "it is not canceled", job, saved)
        time.sleep(0.5)
        if not state(job, "CANCELLED"):
            sys.exit(f"a canceled job goes on: {slurm.job(job)}")
        second = newest(saved)
        name, found = finish(saved, queue(saved))
        different = [each for each in expected if found.get(each) != expected[each]]
        if name != expected_name or different or len(found) != len(expected):
            sys.exit(f"{name}, expected {expected_name}: other bytes in {different}")
        print(f"queued again after {first}, canceled after {second}, finished with the bytes of an undisturbed job")


if __name__ == "__main__":
    main()
