#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Starts a program of MPI as launchers do that its MPI library does not find: check_launchers.py PROGRAM MPIEXEC...

PROGRAM is tests/run/launched.cpp, MPIEXEC the words that start one rank. A process that a launcher has started as one of
several, and that is alone in its world, ends within a second with what was found and what to do. No other process does.
"""

import os
import subprocess
import sys
import time
import unittest

PROGRAM, MPIEXEC = sys.argv[1], sys.argv[2:]
sys.argv[1:] = []
TASK = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "WORLD_SIZE": "2"}
CLEAN = {name: text for name, text in os.environ.items()
         if not name.startswith(("SLURM_", "PMI", "OMPI_COMM_", "MPI_", "MV2_", "GRADUS_")) and name not in TORCHRUN}


class Launchers(unittest.TestCase):
    def start(self, *words, **variables):
        begin = time.monotonic()
        done = subprocess.run(words or [PROGRAM], env=CLEAN | variables, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr, time.monotonic() - begin

    def assert_refused(self, expected, *words, **variables):
        status, output, said, seconds = self.start(*words, **variables)
        self.assertEqual((status, output), (1, ""), said)
        self.assertRegex(said, expected)
        self.assertIn("GRADUS_ACCEPT_SINGLETONS=1", said)
        return seconds

    def assert_starts(self, *words, **variables):
        status, output, said, _ = self.start(*words, **variables)
        self.assertEqual(status, 0, said)
        self.assertIn("1 known", output)

    def test_one_of_several_that_is_alone_ends_with_the_cure(self):
        for mode in ("", "guest"):
            self.assert_refused(r"expected 2 processes in MPI_COMM_WORLD, which srun has started "
                                r"\(SLURM_STEP_NUM_TASKS=2\), got 1.* srun --mpi=pm", PROGRAM, mode, **TASK)
        self.assert_refused("which torchrun has started.*mpiexec -n 2", **TORCHRUN)

    def test_it_ends_within_a_second(self):
        # The shortest of several: the machine may be busy. Open MPI may take a second to begin.
        begin = min(self.start()[3] for _ in range(3))
        self.assertLess(min(self.assert_refused("srun", **TASK) for _ in range(3)), begin + 1)

    def test_a_launcher_of_another_library_is_named(self):
        # The variable of the other library: this one does not read it.
        words = MPIEXEC[:MPIEXEC.index("-n")] if "-n" in MPIEXEC else MPIEXEC[:1]
        version = subprocess.run([*words, "--version"], env=CLEAN, capture_output=True, text=True, check=False).stdout
        open_mpi = any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE"))
        if open_mpi:
            self.assert_refused("started .PMI_SIZE=3.*mpiexec of Open MPI", PMI_SIZE="3")
        else:
            self.assert_refused("mpiexec of Open MPI has started .OMPI_COMM_WORLD_SIZE=3.*mpiexec of MPICH",
                                OMPI_COMM_WORLD_SIZE="3")

    def test_a_process_that_is_meant_to_be_alone_starts(self):
        self.assert_starts()
        # In the script of a job of Slurm.
        self.assert_starts(SLURM_JOB_ID="1", SLURM_NTASKS="2", SLURM_PROCID="0", SLURM_TASKS_PER_NODE="2")
        self.assert_starts(WORLD_SIZE="2")
        # mpiexec of one rank within a step.
        self.assert_starts(*MPIEXEC, PROGRAM, **TASK)

    def test_the_environment_accepts_it(self):
        self.assert_starts(**TASK, GRADUS_ACCEPT_SINGLETONS="1")
        self.assert_refused("srun", **TASK, GRADUS_ACCEPT_SINGLETONS="0")

    def test_tasks_that_are_not_bound_share_the_processors(self):
        all_processors = len(os.sched_getaffinity(0))
        if all_processors != os.cpu_count():
            self.skipTest("this process is bound")
        local = {**TASK, "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "1,2", "GRADUS_ACCEPT_SINGLETONS": "1"}
        _, output, said, _ = self.start(**local)
        self.assertIn(f"{max(1, all_processors // 2)} processors, not bound: 2 processes of this machine share", output, said)
        _, output, said, _ = self.start(**local, SLURM_CPUS_ON_NODE="1")
        self.assertIn("1 known, 1 processors, not bound: 2 processes of this machine share 1 processor ", output, said)


if __name__ == "__main__":
    unittest.main()
