#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs gradus_run with commands that die, hang, get signals and leave processes behind: check_run.py PROGRAM"""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop()
LIMIT = 60  # seconds
# Counts its starts in the file `starts`, and has the number in $start.
COUNT = "echo >> starts; start=$(wc -l < starts); "
# Saves a checkpoint of a later step at each start.
SAVE = COUNT + "mkdir -p saved; cp whole/step-00000000$start.safetensors saved; "


def crc32c(content):
    """CRC-32C, bit by bit."""
    total = 0xFFFFFFFF
    for byte in content:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (0x82F63B78 if total & 1 else 0)
    return total ^ 0xFFFFFFFF


def checkpoint(step):
    """The bytes of a checkpoint of one number."""
    number = struct.pack("<f", step)
    names = {"gradus.format": "1", "gradus.step": str(step), "gradus.job": "00000000000000aa", "gradus.ancestors": "",
             "gradus.crc32c.w": f"{crc32c(number):08x}", "gradus.header_crc32c": "00000000"}
    text = json.dumps({"__metadata__": names, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
                      separators=(",", ":"))
    head = struct.pack("<Q", len(text)) + text.encode()
    place = head.index(b'"gradus.header_crc32c":"') + 24
    return head[:place] + f"{crc32c(head):08x}".encode() + head[place + 8:] + number


def alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        (self.path / "whole").mkdir()
        for step in range(1, 10):
            (self.path / "whole" / f"step-{step:09}.safetensors").write_bytes(checkpoint(step))

    def start(self, *words, pause="0.05"):
        return subprocess.Popen([PROGRAM, "--pause", pause, *words], cwd=self.path, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                # Shells ignore SIGINT in what they start in the background.
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def end(self, process, status):
        try:
            output, said = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"gradus_run hangs: {process.communicate()}")
        self.assertEqual(process.returncode, status, said)
        return output, said

    def run_it(self, *words, status=0):
        return self.end(self.start(*words), status)

    def starts(self):
        return len((self.path / "starts").read_text())

    def wait_for(self, *names):
        begin = time.monotonic()
        while not all((self.path / name).exists() and (self.path / name).read_text() for name in names):
            self.assertLess(time.monotonic() - begin, LIMIT, f"there is no {names}")
            time.sleep(0.01)
        return [int((self.path / name).read_text()) for name in names]

    def assert_ended(self, processes):
        for each in processes:
            self.assertFalse(alive(each), f"process {each} is left")

    def test_a_wrong_command_line_ends_with_2_and_starts_nothing(self):
        for words in ((), ("--",), ("--ranks", "0", "--", "touch", "{ranks}"), ("--ranks", "2", "--", "touch", "made"),
                      ("--restart", "2", "--", "touch", "made"), ("touch", "made")):
            output, said = self.run_it(*words, status=2)
            self.assertRegex(said, r"\Agradus_run: .+\nTry --help\.\n\Z")
            self.assertEqual(output, "")
        self.assertFalse((self.path / "made").exists())

    def test_the_output_is_that_of_the_job_and_each_event_a_line(self):
        for option in ((), ("--silent-for", "50")):
            output, said = self.run_it("--ranks", "3", *option, "--", "sh", "-c", "printf 'a\\n%s' {ranks}; echo e >&2; cat")
            self.assertEqual(output, "a\n3")
            lines = said.splitlines()
            self.assertIn("e", lines)
            lines.remove("e")
            time_stamp = r"gradus_run: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}: "
            for line, pattern in zip(lines, (r"start 1 on 3 ranks: sh -c ",
                                             r"start 1 on 3 ranks ended after [\d.]+ s by exit status 0; next: no start: ",
                                             r"end after 1 start, [\d.]+ s, exit status 0: the job is complete$")):
                self.assertRegex(line, time_stamp + pattern)
            self.assertEqual(len(lines), 3, said)

    def test_much_output_passes_through_unchanged_while_the_job_is_watched(self):
        output, _ = self.run_it("--silent-for", "50", "--", "seq", "200000")
        self.assertEqual(output, "".join(f"{i}\n" for i in range(1, 200001)))

    def test_a_reader_that_ends_ends_the_job(self):
        process = self.start("--silent-for", "50", "--", "yes")
        process.stdout.read(10)
        process.stdout.close()
        _, said = process.communicate(timeout=LIMIT)
        self.assertNotEqual(process.returncode, 0, said)
        self.assertIn("SIGPIPE", said)

    def test_a_program_that_is_missing_is_not_retried(self):
        (self.path / "text").write_text("no program")
        for program, status in (("/nonexistent", 127), ("./text", 126)):
            _, said = self.run_it("--", program, status=status)
            self.assertIn("end after 1 start,", said)
            self.assertIn("cannot be started: ", said)

    def test_a_job_that_dies_starts_again(self):
        command = ("--checkpoints", "saved", "--", "sh", "-c", SAVE + "[ $start -lt 4 ] || exit 0; kill -KILL $$")
        _, said = self.run_it(*command)
        self.assertEqual(self.starts(), 4)
        self.assertIn("ended after ", said)
        self.assertIn("by SIGKILL, newest checkpoint: step 1; next: start 2 in 0.1 s", said)

    def test_an_interrupted_job_is_left_to_the_scheduler(self):
        self.run_it("--", "sh", "-c", COUNT + "exit 75", status=75)
        self.assertEqual(self.starts(), 1)

    def test_a_programming_error_ends_it(self):
        _, said = self.run_it("--checkpoints", "saved", "--", "sh", "-c", COUNT + "exit 3", status=3)
        self.assertEqual(self.starts(), 2)
        self.assertIn("2 starts in a row made no progress (--useless-starts 2)", said)

    def test_the_limit_of_useless_starts_is_an_option(self):
        for limit in (1, 4):
            (self.path / "starts").unlink(missing_ok=True)
            _, said = self.run_it("--useless-starts", str(limit), "--checkpoints", "saved", "--", "sh", "-c",
                                  COUNT + "exit 3", status=3)
            self.assertEqual(self.starts(), limit)
            self.assertIn(f" made no progress (--useless-starts {limit})", said)

    def test_damaged_checkpoints_are_no_progress_and_hide_none(self):
        # It damages what it saves: no start makes progress.
        broken = SAVE + "printf x >> saved/step-00000000$start.safetensors; exit 3"
        _, said = self.run_it("--checkpoints", "saved", "--", "sh", "-c", broken, status=3)
        self.assertEqual(self.starts(), 2)
        self.assertIn("a checkpoint does not count: ", said)
        # The job goes on below a damaged one of step 900.
        (self.path / "starts").unlink()
        for each in (self.path / "saved").iterdir():
            each.unlink()
        (self.path / "saved" / "step-000000900.safetensors").write_bytes(checkpoint(900)[:-1])
        _, said = self.run_it("--checkpoints", "saved", "--", "sh", "-c", SAVE + "[ $start -lt 5 ] || exit 0; exit 3")
        self.assertEqual(self.starts(), 5)
        self.assertIn("newest checkpoint: step 1; next: start 2", said)
        self.assertEqual(said.count("step-000000900.safetensors"), 1)

    def test_fewer_ranks_are_taken_without_progress(self):
        run = COUNT + "echo {ranks} >> ranks; [ {ranks} = 2 ]"
        self.run_it("--ranks", "8", "--fewer", "4,2", "--checkpoints", "saved", "--", "sh", "-c", run)
        self.assertEqual((self.path / "ranks").read_text().split(), ["8", "4", "2"])

    def test_restarts_are_limited(self):
        _, said = self.run_it("--restarts", "2", "--checkpoints", "saved", "--", "sh", "-c", SAVE + "exit 3", status=3)
        self.assertEqual(self.starts(), 3)
        self.assertIn("--restarts 2 are used up", said)

    # One that has a session of its own, as ranks of mpiexec, and one that ignores signals.
    LEAVE = "setsid sleep 1000 & echo $! > first; (trap '' TERM INT USR1; exec sleep 1000) & echo $! > second; "

    def test_nothing_of_a_job_is_left_when_it_starts_again(self):
        run = SAVE + "cat first second 2>/dev/null | xargs -r -n 1 sh -c 'grep -q State:.[RSD] /proc/$0/status && echo left'; " \
            + self.LEAVE + "[ $start -lt 3 ] && exit 3; exit 75"
        output, said = self.run_it("--checkpoints", "saved", "--", "sh", "-c", run, status=75)
        self.assertEqual(output, "")
        self.assertEqual(len(re.findall("2 processes of the job outlived it: killed", said)), 3, said)
        self.assert_ended(self.wait_for("first", "second"))

    def test_processes_that_are_not_of_the_job_live_on(self):
        words = f"sleep 1000 2>/dev/null & echo $! > other; exec {PROGRAM} -- sh -c 'exit 75'"
        done = subprocess.run(["sh", "-c", words], cwd=self.path, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        other, = self.wait_for("other")
        living = alive(other)
        os.kill(other, signal.SIGKILL)
        self.assertTrue(living)
        self.assertEqual(done.returncode, 75, done.stderr)

    # Takes longer to save than the first process of the job.
    CHILD = """
import pathlib, signal, time
def save(*_):
    time.sleep(0.5)
    pathlib.Path("saved").write_text("1")
    raise SystemExit
signal.signal(NUMBER, save)
pathlib.Path("child").write_text("1")
while True:
    time.sleep(1)
"""

    def test_signals_are_passed_on_and_no_start_follows(self):
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            for name in ("starts", "ready", "child"):
                (self.path / name).unlink(missing_ok=True)
            (self.path / "child.py").write_text(self.CHILD.replace("NUMBER", str(int(number))))
            run = COUNT + f"trap 'sleep 0.2; exit 75' {number.name[3:]}; {sys.executable} child.py & echo 1 > ready; " \
                "while :; do sleep 0.02; done"
            process = self.start("--", "sh", "-c", run)
            self.wait_for("ready", "child")
            process.send_signal(number)
            _, said = self.end(process, 75)
            self.assertIn(f"{number.name} has come: passed on", said)
            self.assertEqual(self.starts(), 1)
            # A process of the group got it too, and had the time to end by itself after the first one.
            self.assertTrue((self.path / "saved").exists(), said)
            (self.path / "saved").unlink()
            self.assertNotIn("outlived", said)

    def test_a_signal_between_two_starts_ends_it(self):
        for number, status in ((signal.SIGTERM, 75), (signal.SIGINT, 128 + signal.SIGINT)):
            process = self.start("--", "sh", "-c", "echo; exit 3", pause="1000")
            self.assertEqual(process.stdout.readline(), "\n")
            while "next: start 2" not in process.stderr.readline():
                pass
            process.send_signal(number)
            self.end(process, status)

    def test_a_job_that_is_silent_is_killed_and_starts_again(self):
        run = SAVE + "[ $start -lt 2 ] || exit 0; sleep 1000 & echo $! > child; wait"
        _, said = self.run_it("--silent-for", "0.3", "--checkpoints", "saved", "--", "sh", "-c", run)
        self.assertEqual(self.starts(), 2)
        self.assertIn("by silence", said)
        self.assert_ended(self.wait_for("child"))

    def test_output_and_checkpoints_are_signs_of_life(self):
        talk = "for i in 1 2 3 4 5 6; do sleep 0.25; echo $i; done"
        save = "mkdir saved; for i in 6 5 4 3 2 1; do sleep 0.25; cp whole/step-00000000$i.safetensors saved; done"
        for run in (talk, save):
            self.run_it("--silent-for", "1", "--checkpoints", "saved", "--", "sh", "-c", run)

    def test_the_time_limit_is_a_signal_and_then_the_end(self):
        _, said = self.run_it("--time-limit", "0.3", "--", "sh", "-c", "trap 'exit 75' TERM; while :; do sleep 0.02; done",
                              status=75)
        self.assertIn("--time-limit 0.3 s is over: SIGTERM", said)
        self.run_it("--time-limit", "0.3", "--grace", "0.3", "--", "sh", "-c",
                    "trap '' TERM; while :; do sleep 0.02; done", status=128 + signal.SIGKILL)

    def test_the_job_gets_a_signal_when_gradus_run_is_killed(self):
        process = self.start("--", "sh", "-c", "trap 'echo 1 > saved; exit 75' TERM; echo 1 > ready; while :; do sleep 0.02; done")
        self.wait_for("ready")
        process.kill()
        process.communicate()
        self.wait_for("saved")


if __name__ == "__main__":
    unittest.main()
