#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs gradus_bench with the command lines of the studies, and with the options that came with them: inference, epochs,
schedules, strategies: check_study.py GRADUS_BENCH SOURCE_FOLDER
"""

import argparse
import array
import gzip
import json
import math
import operator
import os
import pathlib
import re
import shutil
import signal
import struct
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


def tensors_of(path):
    """The real numbers of a .safetensors file, by name."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    result = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            result[name] = array.array("f", data[begin:end])
    return result


class Evaluation(unittest.TestCase):
    """A perceptron learns 640 images, and is evaluated on 512 others."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        script = pathlib.Path(__file__).resolve().parent.parent / "support" / "make_small_images.py"
        subprocess.run([sys.executable, "-B", script, cls.folder / "images"], check=True)
        cls.options = ["--model=mlp", "--data-dir", cls.folder / "images", "--batch-size=32", "--threads=1",
                       "--checkpoint-dir", cls.folder / "saves"]
        run(*cls.options, "--num-warmup-batches=0", "--num-batches=6", "--learning-rate=0.005", "--checkpoint-every=3")

    def evaluate(self, *options):
        """The result of the JSON, and the output."""
        file = self.folder / "result.json"
        text = run(*self.options, "--eval", *options, "--json", file)
        found = json.loads(file.read_text())
        self.assertEqual(found["mode"], "evaluation")
        self.assertIn("Mode:        evaluation\n", text)
        return found, text

    def test_it_finds_what_the_weights_say(self):
        found, text = self.evaluate()
        result = found["evaluation"]
        self.assertEqual((result["examples"], result["step"]), (512, 6))
        said = re.search(r"^Accuracy @ 1 = ([\d.]+) Accuracy @ 5 = ([\d.]+) \[512 examples\]$", text, re.M)
        self.assertAlmostEqual(float(said[1]), result["top_1_accuracy"], delta=1e-4)
        self.assertAlmostEqual(float(said[2]), result["top_5_accuracy"], delta=1e-4)
        self.assertAlmostEqual(float(re.search(r"^total images/sec: ([\d.]+)$", text, re.M)[1]),
                               found["images_per_second"], delta=0.01)
        self.assertTrue(0.2 < result["top_1_accuracy"] < 0.99, "or the comparison below says little")
        # The first 64 images by the definition.
        count = 64
        found, _ = self.evaluate("--num-eval-batches=2")
        self.assertEqual(found["evaluation"]["examples"], count)
        weights = tensors_of(self.folder / "saves" / "step-000000006.safetensors")
        layers = sorted({name.rsplit(".", 1)[0] for name in weights if name.endswith(".weight")
                         and not name.startswith(("optimizer.", "trainer."))})
        sizes = {784: layers[0], 100: layers[1]} if len(weights[layers[0] + ".weight"]) == 78400 else \
            {784: layers[1], 100: layers[0]}
        with gzip.open(self.folder / "images" / "t10k-images-idx3-ubyte.gz") as file:
            pixels = file.read()[16:16 + 784 * count]
        with gzip.open(self.folder / "images" / "t10k-labels-idx1-ubyte.gz") as file:
            labels = file.read()[8:8 + count]
        first = among = loss = 0
        for k in range(count):
            values = [byte / 255 for byte in pixels[784 * k:784 * (k + 1)]]
            for inputs, layer in sizes.items():
                rows, bias = weights[layer + ".weight"], weights[layer + ".bias"]
                values = [sum(map(operator.mul, rows[inputs * i:inputs * (i + 1)], values)) + bias[i]
                          for i in range(len(bias))]
                if inputs == 784:
                    values = [max(value, 0) for value in values]
            ranked = sorted(range(10), key=lambda i: -values[i])
            first += ranked[0] == labels[k]
            among += labels[k] in ranked[:5]
            loss += math.log(sum(map(math.exp, values))) - values[labels[k]]
        self.assertEqual(found["evaluation"]["top_1_accuracy"], first / count)
        self.assertEqual(found["evaluation"]["top_5_accuracy"], among / count)
        self.assertAlmostEqual(found["evaluation"]["loss"], loss / count, delta=1e-4)

    def test_ranks_layouts_and_precisions_agree(self):
        expected = self.evaluate()[0]["evaluation"]
        for options in (["--ranks=3"], ["--ranks=2", "--variable-update=parameter_server", "--servers=1"],
                        ["--data-format=NHWC"], ["--eval-batch-size=100"], ["--num-eval-epochs=2"],
                        ["--stages=2", "--ranks=2"], ["--num-epochs=1"]):
            found = self.evaluate(*options)[0]["evaluation"]
            for name in ("top_1_accuracy", "top_5_accuracy"):
                self.assertEqual(found[name], expected[name], options)
            self.assertAlmostEqual(found["loss"], expected["loss"], delta=1e-5)
            self.assertEqual(found["examples"], 1024 if options == ["--num-eval-epochs=2"] else 512)
        found = self.evaluate("--precision=bf16")[0]["evaluation"]
        self.assertAlmostEqual(found["top_1_accuracy"], expected["top_1_accuracy"], delta=0.02)

    def test_a_line_of_tf_cnn_benchmarks(self):
        text = run("--model=mlp", f"--data_dir={self.folder}/images", "--data_name=mnist", "--batch_size=32",
                   f"--train_dir={self.folder}/saves", "--eval", "--device=cpu", "--num_gpus=1", "--display_every=2",
                   "--variable_update=parameter_server", "--num_batches=4", f"--eval_dir={self.folder}")
        self.assertRegex(text, r"(?m)^2\t[\d.]+ examples/sec\n4\t[\d.]+ examples/sec\nAccuracy @ 1 = ")
        self.assertIn(" [128 examples]\n", text)
        self.assertIn("No effect:   --eval_dir: ", text)
        self.assertIn("No effect:   --eval_batch_size: nothing is evaluated without --eval\n",
                      run(*SMALL, "--eval_batch_size=3", "--noeval"))

    def test_newer_checkpoints_are_awaited(self):
        saves = self.folder / "awaited"
        words = [ARGUMENTS.program, *map(str, self.options[:-1]), saves, "--eval", "--eval-interval-secs=0.05",
                 "--num-eval-batches=1"]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            try:
                steps = []
                for line in process.stdout:
                    if line.startswith("Checkpoint not found in ") and not saves.exists():
                        saves.mkdir()
                        shutil.copy(self.folder / "saves" / "step-000000003.safetensors", saves)
                    elif line.startswith("Checkpoint:  "):
                        steps.append(int(line.split()[-1]))
                    elif line.startswith("total images/sec") and len(steps) == 1:
                        os.link(self.folder / "saves" / "step-000000006.safetensors",
                                saves / "step-000000006.safetensors")
                    elif line.startswith("total images/sec"):
                        break
                self.assertEqual(steps, [3, 6])
            finally:
                process.terminate()
        self.assertEqual(process.returncode, -signal.SIGTERM)

    def test_synthetic_images_are_those_of_a_training(self):
        saves = self.folder / "synthetic"
        options = ["--model=lenet", "--batch-size=4", "--threads=1", "--checkpoint-dir", saves]
        run(*options, "--num-warmup-batches=0", "--num-batches=40", "--optimizer=adam", "--learning-rate=0.002")
        file = self.folder / "synthetic.json"
        run(*options, "--eval", "--num-eval-batches=3", "--json", file)
        found = json.loads(file.read_text())
        self.assertEqual(found["evaluation"]["top_1_accuracy"], 1)
        self.assertEqual(found["evaluation"]["examples"], 12)

    def test_what_makes_no_sense_is_refused(self):
        for options, named in ((["--forward-only"], "--forward-only"), (["--resume"], "--resume"),
                               (["--trace-file=x"], "--trace-file"), (["--dry-run"], "--dry-run")):
            self.assertIn(f"--eval: an evaluation of checkpoints, without {named}",
                          run(*self.options, "--eval", *options, status=2))
        self.assertIn("--eval: expected --checkpoint-dir", run(*SMALL, "--eval", status=2))
        self.assertIn("there is no valid checkpoint", run(*SMALL, "--eval", "--checkpoint-dir=/nothing", status=1))
        self.assertIn("conv", run(*SMALL, "--eval", "--checkpoint-dir", self.folder / "saves", status=1))
        self.assertIn("gradus_bench --eval --checkpoint-dir DIR --eval-interval-secs 10",
                      run(*SMALL, "--eval_during_training_every_n_steps=5", status=2))


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
                             "unet": 31036546, "deeplab_v3_plus": 40352181, "densenet121": 7978856 + 1025, "densenet40_k12": 1020171, "alexnet_cifar": 1756619,
                             "mlp": 785 * 100 + 101 * 10}.items():
            text = run("--model", model, "--dry-run")
            self.assertEqual(int(re.search(r"^parameters:  (\d+) in", text, re.M)[1]), count, model)

    def test_a_class_for_each_pixel(self):
        # Networks of 31 and 40 million parameters: few runs of one step.
        steps = ["--num-warmup-batches=0", "--num-batches=1", "--display-every=1", "--threads=1"]
        unet = ["--model=unet", "--image-size=32", "--batch-size=2"]
        deeplab = ["--model=deeplab_v3_plus", "--image-size=17", "--batch-size=2"]

        def loss(*options):
            return float(re.search(r"^1\timages/sec: .*\t([\d.]+)$", run(*options, *steps), re.M)[1])

        with tempfile.TemporaryDirectory() as folder:
            saves = ["--checkpoint-dir", folder]
            self.assertTrue(0.7 * math.log(2) < loss(*unet, *saves) < 3 * math.log(2))
            text = run(*unet, "--threads=1", *saves, "--eval", "--num-eval-batches=1")
            self.assertRegex(text, r"Accuracy @ 1 = 0\.\d+ Mean IoU = 0\.\d+ \[2 examples\]")
        of_ranks = loss(*deeplab, "--data-format=NHWC", "--precision=bf16", "--ranks=2")
        self.assertTrue(0.7 * math.log(21) < of_ranks < 3 * math.log(21), of_ranks)
        self.assertRegex(run(*deeplab, "--dry-run", "--stages=2", "--ranks=2"), r"micro-batches of 2 images")
        self.assertRegex(run(*unet, "--dry-run", "--stages=2", "--ranks=2"), r"(?m)^ +1 +1 .*, scores$")
        self.assertIn("memory traffic", run(*unet, "--memory-traffic", "--dry-run"))
        self.assertIn("computes", run("predict", *unet, "--ranks=2,4", "--network=10Gbit/s 25us"))
        self.assertIn("multiples of 16", run("--model=unet", "--image-size=40", "--dry-run", status=1))
        self.assertIn("a class for each pixel", run(*unet, "--data-dir=/", status=1))


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
