#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs gradus_bench predict and tune --predict as people do, with inputs that are wrong too.

    check_predict.py GRADUS_BENCH GRADUS_REPORT PUBLISHED_ROWS
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

PROGRAM, REPORT, ROWS = "", "", ""
LENET = ["--model", "lenet", "--batch-size", "8"]
NETWORK = ["--network", "10Gbit/s 25us"]


def run(*options, status=0, program=None):
    """The output, messages included; it must exit with this status."""
    words = [program or PROGRAM, *map(str, options)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    if done.returncode != status:
        raise AssertionError(f"{words} ended with {done.returncode}, expected {status}:\n{done.stdout}")
    return done.stdout


class Predict(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.made.name)
        cls.profile = cls.folder / "profile.json"
        run(*LENET, "--threads", 1, "--num-warmup-batches", 2, "--num-batches", 8, "--trace-file", cls.profile)

    @classmethod
    def tearDownClass(cls):
        cls.made.cleanup()

    def predict(self, *options, status=0):
        return run("predict", *LENET, "--profile", self.profile, *options, status=status)

    def test_curves(self):
        files = {kind: self.folder / f"curves.{kind}" for kind in ("json", "csv", "svg")}
        strategies = ["ring", "halving_doubling", "hierarchical_ring", "parameter_server"]
        said = self.predict("--ranks", "4..64", *NETWORK, "--strategy", ",".join(strategies), "--servers", 2,
                            "--ranks-per-host", 2, *[word for kind, file in files.items() for word in (f"--{kind}", file)])
        for words in ("beyond the calibrated range", "narrow the interval", "profile: "):
            self.assertIn(words, said)
        rows = json.loads(files["json"].read_text())["rows"]
        self.assertEqual([(row["ranks"], row["strategy"]) for row in rows],
                         [(ranks, each) for ranks in (4, 8, 16, 32, 64) for each in strategies])
        for row in rows:
            self.assertLess(row["least"], row["images_per_second"])
            self.assertLess(row["images_per_second"], row["most"])
            self.assertLess(row["efficiency"], 1.1)
            self.assertTrue(row["uncertain"][0]["measure"])
        self.assertEqual(len(files["csv"].read_text().splitlines()), len(rows) + 1)
        drawing = xml.etree.ElementTree.parse(files["svg"]).getroot()
        self.assertEqual(sum(each.get("class") == "predicted" for each in drawing.iter()), len(strategies))

    def test_a_faster_network(self):
        def rate(network):
            file = self.folder / "rate.json"
            self.predict("--ranks", 16, "--network", network, "--strategy", "ring", "--json", file)
            return json.loads(file.read_text())["rows"][0]["images_per_second"]

        self.assertLess(rate("100Mbit/s 25us"), rate("10Gbit/s 25us"))
        self.assertLess(rate("10Gbit/s 25ms"), rate("10Gbit/s 25us"))
        described = self.folder / "network.txt"
        described.write_text("# measured\n100Mbit/s 25us\n")
        self.assertAlmostEqual(rate(described), rate("100Mbit/s 25us"))

    def test_an_order(self):
        """Values of the layers that the next forward pass needs first come first, and it waits less."""
        def step(order):
            file = self.folder / "step.json"
            run("predict", "--model", "vgg16", "--image-size", 64, "--batch-size", 8, "--ranks", 4, *NETWORK, "--strategy",
                "parameter_server", "--servers", 2, "--colocate-servers", "--order", order, "--json", file)
            return json.loads(file.read_text())["rows"][0]["step_ms"]

        none, random, tic = step("none"), step("random"), step("tic")
        self.assertLess(tic, 0.95 * random)
        self.assertLess(tic, 0.95 * none)
        said = self.predict("--ranks", 4, *NETWORK, "--stages", 2, "--order", "tic", status=2)
        self.assertIn("--order", said)

    def test_a_trace_of_a_simulated_step(self):
        for strategy, shown in ((["ring"], 4), (["parameter_server"], 4),
                                (["pipeline", "--stages", 2, "--micro-batches", 4], 2)):  # one replica for all
            trace = self.folder / "step.json"
            self.predict("--ranks", 4, *NETWORK, "--strategy", *strategy, "--predicted-trace", trace)
            figures = self.folder / "figures.json"
            run(trace, "--output", self.folder / "page.html", "--json", figures, program=REPORT)
            self.assertEqual(json.loads(figures.read_text())["ranks"], shown)

    def test_a_proposal(self):
        file = self.folder / "proposal.json"
        said = run("tune", "--predict", *LENET, "--profile", self.profile, *NETWORK, "--nodes", 8, "--json", file)
        self.assertIn("proposed for 8 nodes", said)
        self.assertIn("how sure", said)
        proposals = json.loads(file.read_text())["proposals"]
        rates = [each["images_per_second"] for each in proposals]
        self.assertEqual(rates, sorted(rates, reverse=True))

    def test_many_ranks(self):
        """128 ranks of ResNet-50 in a second, and the network has to be planned before; 4096 in half a minute."""
        for ranks, seconds in ((128, 20), (4096, 60)):
            began = time.monotonic()
            run("predict", "--model", "resnet50", "--ranks", ranks, *NETWORK, "--strategy", "ring")
            self.assertLess(time.monotonic() - began, seconds)

    def test_published_rows(self):
        file = self.folder / "rows.json"
        said = run("predict", "--model", "inception3", "--batch-size", 64, "--calibrate", ROWS, "--json", file)
        self.assertIn("the rate of a link is not determined", said)
        rows = [row for system in json.loads(file.read_text())["systems"] for row in system["rows"]]
        self.assertEqual(len(rows), 10)
        for row in rows:
            self.assertTrue(abs(row["error"]) <= 0.1 or row["least"] <= row["measured"] <= row["most"], row)
        self.assertLessEqual(statistics.median(abs(row["error"]) for row in rows), 0.03)

    def test_what_an_all_reduce_would_do(self):
        rows = self.folder / "rows.json"
        servers = [{"devices": n, "servers": 1, "images_per_second": rate} for n, rate in ((1, 1000), (4, 1500))]
        rows.write_text(json.dumps({"rows": [*servers, {"devices": 4, "strategy": "ring"}]}))
        file = self.folder / "found.json"
        said = run("predict", *LENET, "--calibrate", rows, "--json", file)
        self.assertIn("4 on 4, ring", said)
        ring = json.loads(file.read_text())["systems"][0]["rows"][2]
        self.assertEqual((ring["strategy"], ring["servers"]), ("ring", 0))
        self.assertGreater(ring["images_per_second"], 1500)
        rows.write_text(json.dumps({"rows": [*servers, {"devices": 4, "strategy": "rings"}]}))
        self.assertIn("expected a strategy such as ring", run("predict", *LENET, "--calibrate", rows, status=1))

    def test_what_is_refused(self):
        broken = self.folder / "broken.json"
        for text in ("", "{", "[]", '{"traceEvents":[]}', "\x00\xff" * 100):
            broken.write_text(text, encoding="latin-1")
            said = run("predict", *LENET, "--profile", broken, "--ranks", 4, *NETWORK, status=1)
            self.assertIn("--profile", said)
            said = run("predict", "--model", "lenet", "--calibrate", broken, status=1)
            self.assertIn("--calibrate", said)
        for rows in ('{"rows": []}', '{"rows": [1]}', '{"rows": [{"devices": 0, "servers": 1}]}',
                     '{"rows": [{"devices": 1, "servers": 1, "images_per_second": -1}]}',
                     '{"rows": [{"devices": 3, "devices_per_worker": 2, "servers": 1}]}',
                     '{"rows": [{"devices": 1, "servers": 1, "placement": "anywhere", "images_per_second": 1}]}'):
            broken.write_text(rows)
            self.assertIn("--calibrate", run("predict", "--model", "lenet", "--calibrate", broken, status=1))
        for options, words in ((["--ranks", 4], "--network"), (NETWORK, "--ranks"),
                               (["--ranks", "4..", *NETWORK], "--ranks"), (["--ranks", "0", *NETWORK], "--ranks"),
                               (["--ranks", "9999999", *NETWORK], "--ranks"), (["--ranks", "8..4", *NETWORK], "--ranks"),
                               (["--ranks", 4, "--network", "fast"], "--network"),
                               (["--ranks", 4, *NETWORK, "--strategy", "magic"], "--strategy"),
                               (["--ranks", 4, *NETWORK, "--strategy", "pipeline"], "--stages"),
                               (["--ranks", 2, *NETWORK, "--strategy", "parameter_server", "--servers", 9], "no number"),
                               (["--ranks", 4, *NETWORK, "--json", self.profile], "overwritten")):
            self.assertIn(words, self.predict(*options, status=1))
        said = run("predict", "--model", "vgg11", "--profile", self.profile, "--ranks", 4, *NETWORK, status=1)
        self.assertIn("a trace of --model vgg11", said)
        said = run("predict", "--model", "lenet", "--batch-size", 4, "--profile", self.profile, "--ranks", 4, *NETWORK,
                   status=1)
        self.assertTrue(re.search("--batch-size 8", said), said)


if __name__ == "__main__":
    PROGRAM, REPORT, ROWS = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
