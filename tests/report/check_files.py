#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs gradus_report and looks at what it writes and what it leaves alone: check_files.py PROGRAM"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop()
TRACE = pathlib.Path(__file__).with_name("make_trace.py")


def report(*words, status=0, output=subprocess.PIPE):
    done = subprocess.run([PROGRAM, *map(str, words)], stdout=output, stderr=subprocess.PIPE, text=True, timeout=300,
                          check=False)
    if done.returncode != status:
        raise AssertionError(f"{words}: {done.returncode}, expected {status}: {done.stderr}")
    return done.stderr


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as name:
            made = pathlib.Path(name) / "trace.json"
            subprocess.run([sys.executable, "-B", TRACE, made, "--ranks", "2", "--steps", "10"], check=True, timeout=300)
            cls.content = made.read_bytes()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.trace = self.path / "t.json"
        self.trace.write_bytes(self.content)

    def names(self):
        return sorted(each.name for each in self.path.iterdir())

    def test_the_trace_is_never_overwritten_by_whatever_name(self):
        (self.path / "soft.json").symlink_to(self.trace)
        os.link(self.trace, self.path / "hard.json")
        before = self.names()
        for option in ("--output", "--csv", "--json"):
            for name in (self.trace, f"{self.path}/./t.json", self.path / "soft.json", self.path / "hard.json"):
                said = report(self.trace, option, name, status=1)
                self.assertRegex(said, rf"gradus_report: {option}: '.*' is the input '.*t\.json', which would be over")
                self.assertEqual(self.trace.read_bytes(), self.content)
                self.assertEqual(self.names(), before)

    def test_nothing_is_left_of_a_failure(self):
        (self.path / "kept.html").write_text("kept")
        said = report(self.trace, "--output", self.path / "kept.html", "--csv", self.path / "no" / "where", status=1)
        self.assertRegex(said, "gradus_report: --csv: cannot write '.*/no/where': No such file or directory")
        self.trace.write_text("no trace")
        report(self.trace, "--output", self.path / "kept.html", "--json", self.path / "new.json", status=1)
        self.assertEqual((self.names(), (self.path / "kept.html").read_text()), (["kept.html", "t.json"], "kept"))

    def test_all_is_written(self):
        done = subprocess.run([PROGRAM, self.trace, "--csv", self.path / "a.csv", "--json", self.path / "a.json"],
                              stdout=subprocess.PIPE, text=True, timeout=300, check=True)
        self.assertRegex(done.stdout, "^2 ranks, 10 steps, median ")
        self.assertEqual(self.names(), ["a.csv", "a.json", "t.html", "t.json"])
        json.loads((self.path / "a.json").read_text())

    def test_no_terminal_obeys_an_argument(self):
        for words in ([self.trace, "--\x1b[2J"], [self.path / "\x1b[2J"], [self.trace, "--json", "/\x1b[2J/x"]):
            done = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                  timeout=100)
            self.assertNotEqual(done.returncode, 0)
            self.assertNotIn(b"\x1b", done.stdout)
            self.assertIn(b"\\x1b[2J", done.stdout)

    def test_only_regular_files_are_replaced(self):
        link, pipe = self.path / "link.html", self.path / "pipe"
        link.symlink_to("made.html")
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
            report(self.trace, "--output", link, "--json", pipe)
            json.loads(reader.communicate(timeout=100)[0])
        self.assertTrue(pipe.is_fifo())
        self.assertTrue(link.is_symlink())
        self.assertIn("<html", (self.path / "made.html").read_text())
        done = subprocess.run([PROGRAM, self.trace, "-q", "--output", "/dev/stdout"], stdout=subprocess.PIPE, text=True,
                              timeout=300, check=True)
        self.assertEqual(done.stdout, (self.path / "made.html").read_text())

    def test_a_full_device_is_a_failure(self):
        for words in ([self.trace], [self.trace, "--output", "-"], ["--help"]):
            with open("/dev/full", "wb") as full:
                said = report(*words, status=1, output=full)
            self.assertIn("gradus_report: not all of the output could be written", said)
        self.assertIn("'/dev/full': No space left on device", report(self.trace, "--json", "/dev/full", status=1))


if __name__ == "__main__":
    unittest.main()
