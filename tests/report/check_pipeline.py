#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The report of trainings in stages that are recorded now: check_pipeline.py GRADUS_BENCH GRADUS_REPORT

How long passes take is not known here, so the check is what holds for all times: the parts of a bubble add up, no time
counts twice, and what the options say comes back from the trace.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPORT = sys.argv.pop()
BENCH = sys.argv.pop()
# By measured times of layers, a busy machine may get a stage of one layer that computes nothing: no layer is recorded.
SMALL = ["--model=lenet", "--batch-size=16", "--threads=1", "--num-warmup-batches=2", "--num-batches=6",
         "--display-every=1000", "--layer-times=estimated"]


def output_of(words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=200, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Pipelines(unittest.TestCase):
    def figures_of(self, *options):
        with tempfile.TemporaryDirectory() as name:
            trace, told = (pathlib.Path(name) / each for each in ("trace.json", "told.json"))
            output_of([BENCH, *SMALL, *options, "--trace-file", trace])
            output_of([REPORT, trace, "--json", told, "--quiet"])
            return json.loads(told.read_text())

    def check(self, figures, schedule, ranks, stages, replicas, micro_batches):
        found = figures["pipeline"]
        self.assertEqual((found["schedule"], found["ranks_of_replica"], len(found["stages"]), found["replicas"],
                          found["micro_batches"], found["steps"], found["steps_left_out"]),
                         (schedule, ranks, stages, replicas, micro_batches, 6, 0))
        self.assertAlmostEqual(figures["images_per_second"], 16 * replicas / (figures["step_ms"]["median"] / 1e3))
        for stage in found["stages"]:
            self.assertEqual(stage["ranks"], [stage["stage"] % ranks + ranks * each for each in range(replicas)])
            self.assertGreater(stage["layers"], 0)
            self.assertGreater(min(stage["forward_ms"], stage["backward_ms"]), 0)
        self.assertEqual(found["stages"][0]["first_layer"], "layer1_conv")
        for rank, its in zip(found["ranks"], figures["by_rank"]):
            bubble = rank["bubble"]
            self.assertAlmostEqual(bubble["all"], bubble["filling"] + bubble["unequal"] + bubble["rest"])
            self.assertGreaterEqual(min(bubble.values()), 0)
            self.assertLess(rank["computes"] + bubble["all"], 1)
            # All steps count, so the bubble is the waiting for stages, and other waiting comes on top of it.
            self.assertAlmostEqual(bubble["all"] * its["step_ms"], its["waits_for_stages_ms"], places=6)
            waiting = its["breakdown_ms"]["wait"] + its["breakdown_ms"]["communicate"]
            self.assertLessEqual(its["waits_for_stages_ms"] + its["waits_for_rank_ms"] + its["waits_for_data_ms"],
                                 waiting + 1e-6)
            # Likewise what it computes is forward and backward, without what the last passes exchange with replicas.
            self.assertAlmostEqual(rank["computes"] * its["step_ms"],
                                   its["breakdown_ms"]["forward"] + its["breakdown_ms"]["backward"], places=6)
        for cut in found["cuts"]:
            self.assertEqual(cut["messages"] % (2 * micro_batches), 0)
            self.assertGreater(cut["bytes"], 0)
        # Replicas may sum gradients by messages, which cross no cut.
        inside = [link["bytes"] for link in figures["links"] if link["from"] // ranks == link["to"] // ranks]
        self.assertEqual(sum(cut["bytes"] for cut in found["cuts"]) * 6 * replicas, sum(inside))
        self.assertFalse([each for each in figures["verdicts"] if each["kind"] in ("slow_rank", "busy_server")])
        self.assertFalse([each for each in figures["cautions"] if "bubbles" in each])

    def test_two_stages(self):
        figures = self.figures_of("--ranks=2", "--stages=2", "--micro-batches=8")
        self.check(figures, "one_f_one_b", 2, 2, 1, 8)
        # With one replica ranks wait in steps for nothing else.
        for its in figures["by_rank"]:
            self.assertEqual(its["waits_for_rank_ms"], 0)

    def test_other_schedules(self):
        self.check(self.figures_of("--ranks=2", "--stages=2", "--micro-batches=8", "--schedule=gpipe"), "gpipe", 2, 2, 1, 8)
        figures = self.figures_of("--ranks=2", "--stages=2", "--micro-batches=4", "--schedule=zero_bubble")
        self.check(figures, "zero_bubble", 2, 2, 1, 4)
        self.assertTrue(figures["pipeline"]["splits_backward"])

    def test_interleaved_stages(self):
        figures = self.figures_of("--ranks=2", "--stages=2", "--stages-per-rank=2", "--micro-batches=4")
        self.check(figures, "interleaved", 2, 4, 1, 4)

    def test_replicas(self):
        self.check(self.figures_of("--ranks=4", "--stages=2", "--micro-batches=4"), "one_f_one_b", 2, 2, 2, 4)


if __name__ == "__main__":
    unittest.main()
