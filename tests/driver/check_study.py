#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs gradus_bench with the command lines of the studies, and with the options that came with them: inference, epochs,
schedules, strategies: check_study.py GRADUS_BENCH SOURCE_FOLDER
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ARGUMENTS = argparse.Namespace()
SMALL = ["--model", "lenet", "--batch-size", "2", "--num-warmup-batches", "1", "--num-batches", "4", "--threads", "1"]
# "Distributed TensorFlow, a performance evaluation" (CSCS, 2017): Inception-v3, 64 images, with the flags of its scripts.
STUDY = ["--model=inception3", "--batch_size=64", "--num_batches=100", "--num_warmup_batches=10", "--data_format=NCHW",
         "--optimizer=sgd", "--display_every=10", "--variable_update=parameter_server", "--local_parameter_device=cpu"]
HOSTS = ["--ps_hosts=nid00001:2222", "--worker_hosts=nid00002:2222,nid00003:2222"]


def run(*options, status=0):
    """The output of gradus_bench, messages included."""
    words = [ARGUMENTS.program, *map(str, options)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=400, check=False)
    if done.returncode != status:
        raise AssertionError(f"{words} ended with {done.returncode}, expected {status}:\n{done.stdout}")
    return done.stdout


class Lines(unittest.TestCase):
    def test_a_line_of_one_process_is_followed(self):
        for options in (["--device=cpu", "--num_gpus=1"], ["--device=cpu", "--num_gpus=4"], []):
            text = run(*STUDY, *options, "--dry-run")
            self.assertIn("parameters:  23819401", text)

    def test_it_is_measured_with_its_flags(self):
        text = run(*SMALL, "--variable_update=parameter_server", "--local_parameter_device=cpu", "--num_gpus=1",
                   "--device=cpu", "--kmp_blocktime=0", "--mkl=True", "--nodistortions", "--server_protocol=grpc",
                   "--print_training_accuracy", "--cross_replica_sync=true", "--job_name=", "--task_index=0")
        self.assertIn("Variables:   all_reduce\n", text)
        self.assertEqual(text.count("No effect:   --"), 6)
        self.assertIn("total images/sec: ", text)

    def test_a_task_says_which_line_starts_all_tasks(self):
        for task in (["--job_name=ps", "--task_index=0"], ["--job_name=worker", "--task_index=1"]):
            said = run(*STUDY, *HOSTS, *task, "--device=cpu", "--num_gpus=1", status=2)
            self.assertIn("start, once: gradus_run --hosts nid00002,nid00003,nid00001 -- gradus_bench "
                          "--model=inception3 --batch-size=64 ", said)
            self.assertIn("--variable-update=parameter_server --device=cpu --servers 1\n", said)
            line = said.split(" -- gradus_bench ")[1].splitlines()[0].split()
            text = run(*line, "--ranks", 3, "--dry-run")  # as ranks in threads, planned: the line is followed
            self.assertIn("server 0: ", text)
            said = run(*STUDY, *HOSTS, *task, "--num_gpus=1", status=2)
            self.assertIn("servers are for CPUs", said)
            self.assertIn(" --device cuda --variable-update all_reduce\n", said)

    def test_what_cannot_be_followed_says_what_to_write(self):
        for flag, expected in (("--tfprof_file=x", "--trace-file FILE"), ("--graph_file=x", "--dry-run"),
                               ("--use_numa_affinity", "gradus_run --bind numa"),
                               ("--local_parameter_device=gpu", "expected cpu with --device cpu"),
                               ("--save_model_secs=60", "--checkpoint-every STEPS")):
            self.assertIn(expected, run(*SMALL, flag, status=2))
        run(*SMALL, "--save_model_secs=0")

    def test_the_table_of_flags_is_complete(self):
        root = pathlib.Path(ARGUMENTS.source)
        known = re.findall(r'^ +\{"([a-z0-9-]+)", fate::', (root / "bench/driver/study_flags.cpp").read_text(), re.M)
        table = (root / "docs/benchmarks.md").read_text()
        self.assertGreater(len(known), 90)
        for name in known:
            self.assertTrue(re.search(f"`(--)?{name.replace('-', '_')}[`=]", table), name)


class Inference(unittest.TestCase):
    def test_it_has_rates_and_percentiles(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "result.json"
            for ranks in (1, 2):
                text = run(*SMALL, "--forward-only", "--num-batches=20", "--ranks", ranks, "--repeats=2", "--json", file)
                found = json.loads(file.read_text())
                self.assertIn("Mode:        forward-only\n", text)
                self.assertIn(f", of {40 * ranks}\n", text)
                latency = found["latency_ms"]
                self.assertTrue(0 < latency["median"] <= latency["p90"] <= latency["p95"] <= latency["p99"]
                                <= latency["largest"])
                self.assertEqual(len(found["repeats"]), 2)
                self.assertTrue(0 < found["images_per_second"] < 2 * 1e3 * 2 * ranks / latency["median"] * 10)

    def test_it_takes_no_part_of_a_training(self):
        for options, named in ((["--trace-file=x"], "--trace-file"), (["--checkpoint-dir=x"], "--checkpoint-dir"),
                               (["--variable-update=parameter_server"], "--variable-update"),
                               (["--dry-run"], "--dry-run"), (["--micro-batches=2"], "--micro-batches")):
            said = run(*SMALL, "--forward-only", *options, status=2)
            self.assertIn(f"--forward-only: each rank computes by itself, without {named}", said)


class Epochs(unittest.TestCase):
    """640 images in batches of 32: an epoch has 20 steps. The same batch in every step shows when the rate is 0."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        script = pathlib.Path(__file__).resolve().parent.parent / "support" / "make_small_images.py"
        subprocess.run([sys.executable, "-B", script, folder.name], check=True)
        cls.options = ["--model=mlp", "--data-dir", folder.name, "--batch-size=32", "--num-warmup-batches=0",
                       "--display-every=1", "--threads=1", "--repeat-cached-sample"]

    def losses(self, *options):
        text = run(*self.options, *options)
        return [float(loss) for loss in re.findall(r"^\d+\timages/sec: .*\t([\d.]+)$", text, re.M)]

    def test_their_number_gives_that_of_steps(self):
        for epochs, steps in ((0.5, 10), (1, 20), (2, 40), (0.01, 1)):
            self.assertEqual(len(self.losses("--num-epochs", epochs)), steps)
        self.assertIn("excludes", run(*self.options, "--num-epochs=1", "--num-batches=3", status=2))

    def test_a_piecewise_schedule_changes_the_rate_at_its_epochs(self):
        losses = self.losses("--num-epochs=2", "--piecewise-learning-rate-schedule=0.01;1;0")
        self.assertEqual(len(set(losses[20:])), 1)
        self.assertGreater(losses[0], losses[10])
        self.assertGreater(losses[10], losses[20])

    def test_a_warm_up_begins_at_0(self):
        losses = self.losses("--num-epochs=1", "--learning-rate=0.01", "--num-learning-rate-warmup-epochs=1")
        self.assertEqual(losses[0], losses[1])  # the first step has the rate 0
        plain = self.losses("--num-epochs=1", "--learning-rate=0.01")
        self.assertLess(plain[10], losses[10])

    def test_a_rate_decays_after_epochs(self):
        losses = self.losses("--num-epochs=2", "--learning-rate=0.01", "--num-epochs-per-decay=1",
                             "--learning-rate-decay-factor=0")
        self.assertEqual(len(set(losses[20:])), 1)
        self.assertGreater(losses[0], losses[20])

    def test_schedules_that_make_no_sense_are_refused(self):
        for text in ("", "0.1;1", "0.1;2;0.1;1;0.1", "x", "0.1;;0.1", "-1", "nan"):
            said = run(*self.options, f"--piecewise-learning-rate-schedule={text}", status=2)
            self.assertIn("--piecewise-learning-rate-schedule: ", said)
        for options, named in ((["--piecewise-learning-rate-schedule=0.1", "--num-epochs-per-decay=1"], "expected one of"),
                               (["--minimum-learning-rate=0.1"], "--minimum-learning-rate: expected"),
                               (["--learning-rate-schedule=one_cycle", "--num-learning-rate-warmup-epochs=1"], "one_cycle")):
            self.assertIn(named, run(*self.options, *options, status=2))
        self.assertIn("--repeat-cached-sample: expected --data-dir", run(*SMALL, "--repeat-cached-sample", status=2))


class Strategies(unittest.TestCase):
    @staticmethod
    def loss(*options):
        return float(re.findall(r"\t([\d.]+)$", run(*SMALL, "--display-every=1", *options), re.M)[-1])

    def test_servers_have_all_their_modes(self):
        for options in (["--staged"], ["--staged_vars"], ["--backup-workers=1"], ["--parts-per-server=2"],
                        ["--messages-under-way=1"], ["--server-mode=bounded_staleness", "--staleness-bound=1"]):
            loss = self.loss("--ranks=3", "--variable-update=parameter_server", "--servers=1", *options)
            self.assertTrue(0 < loss < 100 and math.isfinite(loss), options)
        for options, named in ((["--staged"], "--staged: expected a --variable-update with servers"),
                               (["--variable-update=parameter_server", "--staleness-bound=1"], "bounded_staleness"),
                               (["--variable-update=parameter_server", "--backup-workers=1", "--server-mode=compat"],
                                "--backup-workers: expected --server-mode synchronous"),
                               (["--variable-update=parameter_server", "--placement=greedy", "--parts-per-server=2"],
                                "--parts-per-server: expected --placement partitioned")):
            self.assertIn(named, run(*SMALL, *options, status=2))

    def test_gradients_travel_in_fewer_bits(self):
        compressed = "--variable-update=compressed_all_reduce"
        exact = self.loss("--ranks=2")
        far = set()  # at a large rate they are not close
        for options in ([], ["--compression=float16"], ["--compression=int8"]):
            self.assertAlmostEqual(exact, self.loss("--ranks=2", compressed, *options), delta=0.02 * exact)
            far.add(self.loss("--ranks=2", compressed, "--learning-rate=0.05", *options))
        self.assertEqual(len(far), 3, far)
        bytes_of = lambda *options: int(re.search(r"sends and receives (\d+) a step", run(
            *SMALL, "--ranks=2", "--dry-run", *options))[1])
        whole = bytes_of()
        self.assertEqual(bytes_of(compressed) * 2, whole)
        self.assertAlmostEqual(bytes_of(compressed, "--compression=int8") / whole, 260 / 1024, delta=1e-3)
        for options, named in ((["--compression=int8"], "--compression: expected --variable-update compressed_all_reduce"),
                               (["--outer-optimizer=sgd"], "--outer-optimizer: expected --variable-update model_averaging")):
            self.assertIn(named, run(*SMALL, *options, status=2))
        self.assertIn("--all-reduce-spec: with --variable-update compressed_all_reduce",
                      run(*SMALL, "--variable-update=compressed_all_reduce", "--all-reduce-spec=ring", status=2))


class Models(unittest.TestCase):
    def test_their_parameters_are_those_of_the_papers(self):
        # Of torchvision with 1000 classes, and of one more.
        for model, count in {"mobilenet_v2": 3504872 + 1281, "resnet18": 11689512 + 513, "resnet34": 21797672 + 513,
                             "densenet121": 7978856 + 1025, "densenet40_k12": 1020171, "alexnet_cifar": 1756619,
                             "mlp": 785 * 100 + 101 * 10}.items():
            text = run("--model", model, "--dry-run")
            self.assertEqual(int(re.search(r"^parameters:  (\d+) in", text, re.M)[1]), count, model)


class Help(unittest.TestCase):
    def test_a_word_shows_its_group(self):
        text = run("--help", "servers")
        self.assertIn("--placement", text)
        self.assertNotIn("--model", text)
        self.assertLess(text.count("\n"), 40)
        said = run("--help", "nothing-like-it", status=2)
        self.assertIn("'Parameter servers'", said)


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("program")
    PARSER.add_argument("source")
    ARGUMENTS = PARSER.parse_args(namespace=ARGUMENTS)
    unittest.main(argv=sys.argv[:1])
