#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs gradus_bench on tiny trainings and reads what it prints, writes and refuses.

    check_driver.py GRADUS_BENCH [--images] [--cuda] [--mpiexec WORD...]

--images: it was built with libjpeg-turbo and zlib. --cuda: it was built with gradus::cuda. --mpiexec: the words that
start it on two ranks.
"""

import argparse
import contextlib
import csv
import gzip
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

ARGUMENTS = argparse.Namespace()
SMALL = ["--model", "lenet", "--batch-size", "2", "--num-warmup-batches", "1", "--num-batches", "4", "--threads", "1"]
PHASES = {"forward", "backward", "update", "communicate", "wait", "input", "copy"}

def run(*options, status=0, launcher=(), **environment):
    """The output of gradus_bench, messages included; it must exit with this status, or with None in a failure."""
    words = [*launcher, ARGUMENTS.program, *map(str, options)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False,
                          env={**os.environ, **environment})
    if (done.returncode == 0) if status is None else (done.returncode != status):
        raise AssertionError(f"{words} ended with {done.returncode}, expected {status}:\n{done.stdout}")
    return done.stdout


def start_apart(first, second):
    """Starts two ranks of one job, each with a command of its own."""
    one = [*ARGUMENTS.mpiexec]
    one[len(one) - 1 - one[::-1].index("2")] = "1"
    count = one[len(one) - 1 - one[::-1].index("1") - 1]  # the option that says how many
    words = [*one, *map(str, first), ":", count, "1", *map(str, second)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_apart(first, second):
    """The exit status and the output of two ranks of one job, each with options of its own."""
    with start_apart([ARGUMENTS.program, *first], [ARGUMENTS.program, *second]) as process:
        try:
            said = process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            process.terminate()
            raise
        return process.returncode, said


# A rank: FILE SIGNAL "signalled" COMMAND... becomes the command, and gets the signal as soon as the command handles it;
# FILE SIGNAL "other" COMMAND... begins when that has come.
SIGNALLED_RANK = """
import os, pathlib, sys, time
came, number, role = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if role == "other":
    while not came.exists():
        time.sleep(0.001)
    time.sleep(0.3)  # the launcher has seen the end of the other
elif os.fork() == 0:
    rank = os.getppid()
    for other in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), other)
    status = f"/proc/{rank}/status"
    while True:
        text = pathlib.Path(status).read_text()
        caught = int(text.split("SigCgt:")[1].split()[0], 16)
        if text.startswith("Name:\tgradus_bench") and caught >> (number - 1) & 1:
            break
    os.kill(rank, number)
    came.touch()
    os._exit(0)
os.execv(sys.argv[4], sys.argv[4:])
"""


class RanksWithCommandLinesOfTheirOwn(unittest.TestCase):
    """A rank that ends at once is no reason for the others to wait in MPI_Init for ever."""

    def setUp(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("built without MPI")

    def test_the_lowest_rank_that_ends_says_why_and_all_end(self):
        for options, expected in ((["--help"], "--batch-size"), (["--threads", "x"], "gradus_bench: --threads: "),
                                  (["--num-batches", 0], "gradus_bench: --num-batches: "),
                                  (["scale", "--ranks", "1"], "scale: expected one process"),
                                  (["pack", "--output", "x"], "pack: expected one process")):
            for rank in (0, 1):
                status, said = run_apart(*((SMALL, SMALL + options) if rank == 1 else (SMALL + options, SMALL)))
                self.assertNotEqual(status, 0)
                self.assertIn(expected, said)
                self.assertIn(f"Rank {rank} ends because of its command line, and with it all ranks; rank {1 - rank} ",
                              said)

    def test_what_is_done_once_is_not_done_once_a_rank(self):
        with tempfile.TemporaryDirectory() as name:
            for options in (["scale", "--ranks", "1"], ["tune"], ["pack", "--data-dir", name, "--output", name + "/a"]):
                said = run(*options, *SMALL, status=2, launcher=ARGUMENTS.mpiexec)
                self.assertEqual(said.count(f"gradus_bench: {options[0]}: expected one process, got ranks of mpiexec"), 1)
        said = run(*SMALL, "--ranks", 2, status=2, launcher=ARGUMENTS.mpiexec)
        self.assertEqual(said.count("--ranks: under mpiexec, mpiexec starts the ranks"), 1)
        self.assertEqual(run("--help", launcher=ARGUMENTS.mpiexec).count("--batch-size-per-rank"), 1)

    def test_a_failure_says_whose_it_is(self):
        status, said = run_apart([*SMALL, "--data-dir", "/nowhere"], SMALL)
        self.assertNotEqual(status, 0)
        self.assertRegex(said, "(?m)^gradus_bench: rank 0: --data-dir: there is no '/nowhere'")

    def test_another_seed_is_called_so(self):
        status, said = run_apart(SMALL, [*SMALL, "--seed", 5])
        self.assertNotEqual(status, 0)
        self.assertIn("expected the same seed on all ranks, got 1234 on rank 0; 5 on rank 1", said)

    def test_what_changes_the_work_of_the_others_is_compared(self):
        servers = [*SMALL, "--variable-update", "parameter_server"]
        for first, second, expected in (
                (SMALL, [*SMALL, "--dry-run"], "the same dry run on all ranks, got 0 on rank 0; 1 on rank 1"),
                ([*SMALL, "--dry-run"], SMALL, "the same dry run on all ranks, got 1 on rank 0; 0 on rank 1"),
                (servers, [*servers, "--colocate-servers"], "the same colocated servers on all ranks, got 0 on rank 0; 1"),
                (SMALL, [*SMALL, "--display-every", 3], "the same steps between lines on all ranks, got 10 on rank 0; 3"),
                (SMALL, [*SMALL, "--learning-rate", 1], "the same learning rate on all ranks, got 0.005 on rank 0; 1")):
            status, said = run_apart(first, second)
            self.assertNotEqual(status, 0)
            self.assertIn(expected, said)


    def test_a_signal_before_mpi_begins_ends_the_job(self):
        with tempfile.TemporaryDirectory() as name:
            script, came = pathlib.Path(name) / "rank.py", pathlib.Path(name) / "came"
            script.write_text(SIGNALLED_RANK)
            for which in (signal.SIGTERM, signal.SIGINT):  # a library of MPI may handle SIGHUP before main
                came.unlink(missing_ok=True)
                rank = [sys.executable, script, came, int(which)]
                process = start_apart([*rank, "signalled", ARGUMENTS.program, *SMALL],
                                      [*rank, "other", ARGUMENTS.program, *SMALL])
                self.addCleanup(process.terminate)  # with its ranks
                said = process.communicate(timeout=60)[0]
                self.assertNotEqual(process.returncode, 0, said)
                self.assertIn(f"gradus_bench: ended by {which.name}", said)


class Measurement(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def measure(self, *options, launcher=()):
        """The text and the JSON of a measurement."""
        file = self.path / "result.json"
        text = run(*SMALL, *options, "--json", file, launcher=launcher)
        return text, json.loads(file.read_text())

    def test_text_is_that_of_tf_cnn_benchmarks(self):
        text, result = self.measure("--display-every", 2)
        for line in ("Model:       lenet", "Dataset:     imagenet (synthetic)", "Mode:        training",
                     "SingleSess:  False", "Batch size:  2 global", "             2 per device", "Num batches: 4",
                     "Num epochs:  0.00", "Devices:     ['/cpu:0']", "NUMA bind:   False", "Data format: NCHW",
                     "Optimizer:   sgd", "Variables:   all_reduce", "==========", "Running warm up", "Done warm up",
                     "Step\tImg/sec\ttotal_loss", "-" * 64):
            self.assertIn(line + "\n", text)
        self.assertRegex(text, r"\nProcessors:  (not bound: \d+ processors?|bound to \d+ of \d+ processors) \([\d,-]+\)\n")
        steps = re.findall(r"^(\d+)\timages/sec: ([\d.]+) \+/- ([\d.]+) \(jitter = ([\d.]+)\)\t([\d.]+)$", text, re.M)
        self.assertEqual([step[0] for step in steps], ["1", "2", "4"])
        self.assertEqual(steps[0][2:4], ("0.0", "0.0"))  # one step has no spread
        total = float(re.search(r"^total images/sec: ([\d.]+)$", text, re.M)[1])
        self.assertAlmostEqual(total, result["images_per_second"], delta=0.01)
        self.assertAlmostEqual(float(steps[-1][4]), result["loss"], delta=0.001)

    def test_json_has_what_was_measured(self):
        _, result = self.measure("--data-format", "NHWC", "--optimizer", "momentum")
        self.assertEqual((result["model"], result["batch_size"], result["ranks"], result["threads"]), ("lenet", 2, 1, 1))
        self.assertEqual((result["data_format"], result["variable_update"]), ("NHWC", "all_reduce"))
        self.assertTrue(0 < result["loss"] < 100 and math.isfinite(result["loss"]))
        step = result["step_ms"]
        self.assertTrue(0 < step["p5"] <= step["median"] <= step["p95"] and step["jitter"] >= 0)
        phases = result["breakdown_ms"]
        self.assertEqual(set(phases), PHASES)
        for phase in ("forward", "backward", "update", "input"):
            self.assertGreater(phases[phase], 0, phase)
        self.assertEqual((phases["wait"], phases["copy"]), (0, 0))  # one rank on a CPU
        self.assertLessEqual(sum(phases.values()), 1.001 * step["mean"])
        self.assertGreater(sum(phases.values()), 0.8 * step["mean"])
        self.assertGreater(result["peak_memory_bytes"], 2 * 4 * 2173353)  # parameters and gradients
        # Images a second and the time of a step are two measurements of the same thing.
        self.assertLess(abs(2e3 / result["images_per_second"] / step["mean"] - 1), 0.5)

    def test_convolutions_add_up_terms_on_request(self):
        _, filtered = self.measure()  # lenet has a convolution of 5 x 5 on 32 channels
        _, added = self.measure("--winograd_nonfused=false")
        self.assertEqual((filtered["winograd"], added["winograd"]), (True, False))
        self.assertNotEqual(filtered["loss"], added["loss"])
        self.assertAlmostEqual(filtered["loss"], added["loss"], delta=1e-3)

    def test_denormals_are_flushed_on_request(self):
        _, kept = self.measure()
        _, flushed = self.measure("--flush-denormals")
        self.assertEqual((kept["flush_denormals"], flushed["flush_denormals"]), (False, True))
        self.assertAlmostEqual(kept["loss"], flushed["loss"], delta=1e-3)

    def test_values_between_layers_in_16_bits(self):
        for layout in ("NCHW", "NHWC"):
            _, whole = self.measure("--data-format", layout, "--batch-size", 16)
            _, rounded = self.measure("--data-format", layout, "--batch-size", 16, "--precision", "bf16")
            self.assertEqual((whole["precision"], rounded["precision"]), ("fp32", "bf16"))
            self.assertNotEqual(whole["loss"], rounded["loss"])
            self.assertAlmostEqual(whole["loss"], rounded["loss"], delta=0.05)

    def test_every_way_of_updating_trains(self):
        losses = {}
        for mode in ("independent", "replicated", "all_reduce", "horovod"):
            text, result = self.measure("--variable-update", mode, "--ranks", 2, "--optimizer", "nesterov")
            self.assertIn("Batch size:  4 global\n             2 per device\n", text)
            self.assertEqual(result["ranks"], 2)
            losses[mode] = result["loss"]
        self.assertEqual(losses["replicated"], losses["all_reduce"])
        self.assertNotEqual(losses["independent"], losses["all_reduce"])
        _, sharded = self.measure("--variable-update=sharded_update", "--ranks=2", "--optimizer=nesterov")
        self.assertEqual(sharded["loss"], losses["all_reduce"])
        # Servers make the same update, wherever they stand; averaging does not.
        for ranks, options in ((3, ["--variable-update=parameter_server", "--servers=1", "--placement=greedy"]),
                               (2, ["--variable-update=parameter_server", "--servers=2", "--colocate-servers"]),
                               (3, ["--variable-update=distributed_replicated", "--servers=1"])):
            text, result = self.measure("--ranks", ranks, "--optimizer=nesterov", *options)
            self.assertEqual(result["ranks"], 2)  # those that train
            self.assertIn("Batch size:  4 global\n", text)
            self.assertAlmostEqual(result["loss"], losses["all_reduce"], delta=1e-4)
            if ranks == 3:
                self.assertRegex(text, r"server on rank 2: \d+ bytes .*; pushes of parts by staleness: 0: \d+\n")
        _, averaged = self.measure("--ranks=2", "--optimizer=nesterov", "--variable-update=model_averaging",
                                   "--average-every=2")
        self.assertNotAlmostEqual(averaged["loss"], losses["all_reduce"], delta=1e-4)
        outer = {name: self.measure("--ranks=2", "--optimizer=nesterov", "--variable-update=model_averaging",
                                    "--average-every=2", "--outer-optimizer", name, *options)[1]["loss"]
                 for name, options in (("sgd", ["--outer-learning-rate=1"]), ("nesterov", []), ("momentum", []),
                                       ("adam", ["--outer-learning-rate=0.001"]))}
        self.assertAlmostEqual(outer.pop("sgd"), averaged["loss"], delta=1e-4)
        self.assertEqual(len({averaged["loss"], *outer.values()}), 4, outer)

    def test_update_rules_train(self):
        losses = {}
        for rule in ("sgd", "momentum", "nesterov", "lars", "adam", "adam_w", "rms_prop", "rms_prop_torch", "adagrad",
                     "lamb"):
            text, result = self.measure("--optimizer", rule, "--learning-rate=0.001")
            self.assertIn(f"Optimizer:   {rule}\n", text)
            self.assertEqual(result["optimizer"], rule)
            self.assertNotIn("gradient_norm", result)
            losses[rule] = result["loss"]
            self.assertTrue(math.isfinite(result["loss"]))
        self.assertEqual(len(set(losses.values())), len(losses), losses)  # each is a rule of its own
        _, alias = self.measure("--optimizer=rmsprop", "--learning-rate=0.001", "--rmsprop_decay=0.9",
                                "--rmsprop_momentum=0.9", "--rmsprop_epsilon=1")
        self.assertEqual((alias["optimizer"], alias["loss"]), ("rms_prop", losses["rms_prop"]))
        for rule, options in (("adam", ["--adam-beta1=0.5"]), ("lamb", ["--adam_epsilon=0.1"]),
                              ("rms_prop", ["--rms-prop-epsilon=0.1"]), ("rms_prop_torch", ["--rms-prop-momentum=0.9"])):
            _, other = self.measure("--optimizer", rule, "--learning-rate=0.001", *options)
            self.assertNotEqual(other["loss"], losses[rule], options)

    def test_gradients_are_clipped(self):
        _, plain = self.measure("--optimizer=momentum")
        text, by_norm = self.measure("--optimizer=momentum", "--gradient-clip-norm=0.5")
        self.assertIn("Clipping:    by norm, 0.5\n", text)
        self.assertRegex(text, "gradient norm: mean [0-9.]+, largest [0-9.]+, 5 of 5 steps clipped")
        norm = by_norm["gradient_norm"]
        self.assertEqual((norm["clipped_steps"], norm["steps"]), (5, 5))
        self.assertGreaterEqual(norm["largest"], norm["mean"])
        self.assertNotEqual(by_norm["loss"], plain["loss"])
        _, far = self.measure("--optimizer=momentum", "--gradient-clip-norm=1e9")
        self.assertEqual((far["loss"], far["gradient_norm"]["clipped_steps"]), (plain["loss"], 0))
        text, by_value = self.measure("--optimizer=momentum", "--gradient_clip=0.01")
        self.assertIn("Clipping:    by value, 0.01\n", text)
        self.assertNotIn("gradient_norm", by_value)
        self.assertNotIn(by_value["loss"], (plain["loss"], by_norm["loss"]))
        for options in ([], ["--variable-update=sharded_update"], ["--variable-update=parameter_server"],
                        ["--variable-update=model_averaging"]):
            ranks = 3 if "parameter_server" in "".join(options) else 2
            text, result = self.measure("--ranks", ranks, "--gradient-clip-norm=0.5", *options)
            self.assertEqual("gradient_norm" in result, ranks == 2, options)

    def test_learning_rates_follow_a_schedule(self):
        losses = set()
        for schedule in ("constant", "linear", "polynomial", "cosine", "one_cycle"):
            text, result = self.measure("--learning-rate-schedule", schedule, "--learning-rate=0.01")
            self.assertEqual(f"Schedule:    {schedule}\n" in text, schedule != "constant")
            losses.add(result["loss"])
        self.assertEqual(len(losses), 5)

    def test_trace_has_the_measured_steps_of_all_ranks(self):
        file = self.path / "trace.json"
        alone, _ = self.measure("--ranks", 1, "--trace-file", file)
        self.assertNotIn("overlap:", alone)  # nothing goes to another rank
        text, _ = self.measure("--ranks", 2, "--trace-file", file)
        efficiency, least, speed_up = map(float, re.search(
            r"overlap: E (-?[0-9.]+); .* at least ([0-9.]+) ms, .* \(S ([0-9.]+)\)", text).groups())
        self.assertLess(efficiency, 1.01)
        self.assertGreater(least, 0)
        self.assertTrue(0 <= speed_up <= 1)
        events = json.loads(file.read_text())["traceEvents"]
        steps = [event for event in events if event.get("ph") == "X" and event.get("name") == "step"]
        self.assertEqual({event["pid"] for event in steps}, {0, 1})
        self.assertEqual(len(steps), 2 * 4)  # not the one of the warm-up
        self.measure("--ranks", 2, "--trace-file", file, "--all-reduce-spec", "halving_doubling")
        parts = [event["args"].get("bucket") for event in json.loads(file.read_text())["traceEvents"]
                 if event.get("ph") == "X" and event["name"].startswith("send")]
        self.assertIn("gradients 0", parts)  # messages are of parts of buckets

    def test_workers_wait_for_servers_in_the_trace(self):
        file = self.path / "trace.json"
        self.measure("--ranks=3", "--variable-update=parameter_server", "--trace-file", file)
        spans = [event for event in json.loads(file.read_text())["traceEvents"] if event.get("ph") == "X"]
        for rank in (0, 1):
            waits = [event for event in spans if event["pid"] == rank and event["name"] == "wait servers"]
            self.assertEqual(len(waits), 4)
        self.assertNotIn("update", {event["cat"] for event in spans if event["pid"] != 2})
        for rank in (0, 1, 2):  # parameters have their names at both ends of a message
            for operation in ("send", "receive"):
                names = {event["args"].get("bucket") for event in spans if event["pid"] == rank and
                         event["args"].get("operation") == operation and event["args"].get("bytes", 0) > 100}
                self.assertIn("layer1_conv.weight", names)
        first = min(event["ts"] for event in spans if event["name"] == "step")
        served = [event for event in spans if event["pid"] == 2]
        self.assertGreater(len(served), 2 * 4)
        self.assertTrue(all(event["ts"] + event["dur"] >= first for event in served))  # not those of the warm-up

    def test_spec_and_orders_change_how_gradients_travel_and_not_what_is_learnt(self):
        _, plain = self.measure("--ranks", 2)
        for options in (["--all-reduce-spec", "recursive_doubling:4K:ring"], ["--order", "tac"], ["--order", "tic"],
                        ["--order=random", "--bucket-kilobytes=64"]):
            _, other = self.measure("--ranks", 2, *options)
            self.assertAlmostEqual(other["loss"], plain["loss"], delta=1e-5)

    def test_names_may_have_underscores(self):
        file = self.path / "result.json"
        text = run("--model=lenet", "--batch_size", 3, "--num_warmup_batches=0", "--num_batches=2", "--display_every", 1,
                   "--data_format=NHWC", "--variable_update=replicated", "--threads", 1, "--json", file)
        self.assertIn("             3 per device\n", text)
        self.assertEqual(json.loads(file.read_text())["data_format"], "NHWC")

    def test_repeats(self):
        text, result = self.measure("--repeats", 3)
        self.assertEqual(text.count("total images/sec:"), 3)
        self.assertEqual(len(result["repeats"]), 3)
        self.assertEqual(result["images_per_second"], sorted(result["repeats"])[1])

    def test_processes_under_mpiexec(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("built without MPI")
        file = self.path / "trace.json"
        text, result = self.measure("--variable-update", "all_reduce", "--trace-file", file, launcher=ARGUMENTS.mpiexec)
        spans = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
        for rank in (0, 1):
            names = [span["name"] for span in spans if span["pid"] == rank]
            self.assertEqual((names.count("step"), names.count("all_reduce gradients 0")), (4, 4))
        self.assertEqual(result["ranks"], 2)
        self.assertEqual(text.count("total images/sec:"), 1)
        _, threads = self.measure("--ranks", 2)
        self.assertAlmostEqual(result["loss"], threads["loss"], delta=1e-5)
        for mode in ("all_reduce", "sharded_update"):  # through the memory of this machine
            text, shared = self.measure("--all-reduce-spec=hierarchical", "--variable-update", mode, "--trace-file", file,
                                        launcher=ARGUMENTS.mpiexec)
            self.assertIn("AllReduce:   hierarchical\n", text)
            self.assertEqual(shared["loss"], threads["loss"])
            names = [event["name"] for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
            self.assertEqual("all_reduce gradients 0" in names, mode == "all_reduce")
        self.measure("--all-reduce-spec=hierarchical")  # one rank
        said = run("--num-batches", 0, status=2, launcher=ARGUMENTS.mpiexec)
        self.assertEqual(said.count("--num-batches"), 1)  # not once a rank

    def test_wrong_options_are_named(self):
        for options, expected in (
                (["--batch-size", -1], r"--batch-size-per-rank: Value -1 not in range"),
                (["--model", "resnet"], r"--model: .*resnet not in .*vgg16.*resnet50"),
                (["--batches", 2], r"--batches"),
                (["--num-batches", "two"], r"--num-batches"),
                (["--variable-update", "gossip"], r"--variable-update: .*gossip.*model_averaging"),
                (["--device", "tpu"], r"--device: .*tpu.*cuda"),
                (["--precision", "tf32"], r"--precision: expected fp32 or bf16 with --device cpu, got tf32"),
                (["--precision", "fp16"], r"--precision: expected fp32 or bf16 with --device cpu, got fp16"),
                (["--capture-step"], r"--capture-step: expected --device cuda, got --device cpu"),
                (["--optimizer=lars", "--variable-update=parameter_server"], r"--placement: lars needs whole"),
                (["--optimizer=lars", "--variable-update=sharded_update"], r"--optimizer: lars needs whole parameters"),
                (["--optimizer=lamb", "--variable-update=sharded_update"], r"--optimizer: lamb needs whole parameters"),
                (["--optimizer=adagrd"], r"--optimizer: adagrd not in \{adagrad,"),
                (["--gradient-clip-norm=1", "--gradient-clip-value=1"], r"--gradient-clip-norm excludes"),
                (["--gradient-clip-norm=1", "--variable-update=parameter_server", "--server-mode=asynchronous"],
                 r"--gradient-clip-norm: servers that are not synchronous"),
                (["--order=tic", "--variable-update=sharded_update"], r"--order: .* blocks of gradients"),
                (["--order=tac", "--variable-update=independent"], r"--order: with --variable-update independent no"),
                (["--all-reduce-spec=ring", "--variable-update=sharded_update"], r"--all-reduce-spec: .* blocks of"),
                (["--all-reduce-spec=hierarchical", "--ranks=2"], r"--all-reduce-spec: hierarchical is for processes"),
                (["--all-reduce-spec=ring", "--variable-update=model_averaging"], r"--all-reduce-spec: .* no gradients"),
                (["--all-reduce-spec=ring", "--variable-update=parameter_server"], r"--all-reduce-spec: servers"),
                (["scale"], r"--ranks is required"),
                (["scale", "--ranks", "1,0"], r"--ranks: .*0 not in range")):
            said = run(*options, status=2)
            self.assertRegex(said, "^gradus_bench: ")
            self.assertRegex(said, expected)
            self.assertTrue(said.endswith("Try --help.\n"))
        for options, expected in ((["--all-reduce-spec", "ring:4Q:ring", "--ranks", 2], "'4Q'"),
                                  (["--data-dir", self.path / "nothing"], "there is no '"),
                                  (["--json", self.path / "no" / "where"], "--json: cannot write"),
                                  (["--variable-update", "parameter_server"], "expected 1 to 0 servers for 1 ranks"),
                                  (["--gradient-clip-norm", 0], "a max_norm above 0"),
                                  (["--gradient-clip-value", -1], "a finite clip_value above 0"),
                                  (["--adam-beta2", 1, "--optimizer", "adam"], "a decay rate in \\[0, 1\\)"),
                                  (["--momentum", 2, "--optimizer", "momentum"], "momentum in \\[0, 1\\)")):
            self.assertRegex(run(*SMALL, *options, status=1), expected)
        self.assertIn("--time-limit", run("--time-limit", 0, status=2))
        # In 1000 steps, one of the ranks waits for the other for more than a millisecond.
        said = run(*SMALL, "--ranks=2", "--num-batches=1000", "--time-limit=0.001", status=1)
        self.assertRegex(said, "rank [01].* within 0.001 s")
        said = run("--help")
        groups = re.split(r"(?m)^(?=\S.*:$)", said.split("\n\n", 1)[1])
        names = {group.split("\n", 1)[0]: set(re.findall(r"(?m)^ +(--[a-z-]+)", group)) for group in groups}
        self.assertNotIn("Options:", {name for name, options in names.items() if len(options) > 2})  # help alone
        self.assertEqual(sum("--servers" in options for options in names.values()), 1)
        self.assertEqual(names["Checkpoints:"], {"--checkpoint-dir", "--checkpoint-every", "--resume"})
        self.assertLess(max(map(len, names.values())), 14)
        for explained in ("NUMA bind", "SingleSess", "E is 1 if", "S is the share"):
            self.assertIn(explained, said)
        self.assertIn("--batch-size", said)
        self.assertIn("--launcher", run("scale", "--help"))


class Gpu(unittest.TestCase):
    """--device cuda: refused by a program without it, and by a machine without a card."""

    def test_without_the_component_the_refusal_says_what_to_build_with(self):
        if ARGUMENTS.cuda:
            self.skipTest("built with gradus::cuda")
        said = run("--device", "cuda", status=2)
        self.assertRegex(said, "^gradus_bench: --device: .*CPU only, got 'cuda'.* CUDA toolkit .*gradus::cuda")

    def test_what_gpus_are_not_used_for_is_refused(self):
        if not ARGUMENTS.cuda:
            self.skipTest("built without gradus::cuda")
        for options, expected in (
                (["--variable-update", "parameter_server"], "--variable-update: expected independent, .*parameter_server"),
                (["--variable-update", "sharded_update", "--precision", "fp16"], "--precision: fp16 .*sharded_update"),
                (["--order", "tac"], "--order: expected none .*'tac'"),
                (["--all-reduce-spec", "ring"], "--all-reduce-spec: expected n.*'ring'")):
            self.assertRegex(run("--device=cuda", *options, status=2), expected)
        self.assertIn("leave out --device cuda", run("tune", "--device=cuda", status=2))

    def test_without_a_card_a_dry_run_plans_and_a_measurement_says_what_is_missing(self):
        if not ARGUMENTS.cuda or ARGUMENTS.cards:
            self.skipTest("built without gradus::cuda, or there is a card")
        for options in ([], ["--ranks", 2], ["--capture-step", "--precision=bf16"], ["--variable-update=independent"]):
            said = run(*SMALL, "--device", "cuda", *options, status=1)
            self.assertRegex(said, "gradus_bench: .*cuda: no CUDA device was found: expected an NVIDIA GPU")
        if ARGUMENTS.mpiexec:
            words = [*ARGUMENTS.mpiexec, ARGUMENTS.program, *SMALL, "--device", "cuda"]
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400,
                                  check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("no CUDA device was found", done.stdout)
        text = run("--model", "resnet50", "--device", "gpu", "--dry-run", "--ranks", 4, "--data-format", "NHWC")
        self.assertRegex(text, r"(?m)^parameters:  25559081 in \d+ tensors$")
        self.assertRegex(text, r"(?m)^memory:      [\d.]+ MiB a rank")
        self.assertRegex(text, r"(?m)^device:      there is no CUDA device here")

    def test_a_card_trains_as_a_cpu_does(self):
        if not ARGUMENTS.cards:
            self.skipTest("there is no card")
        with tempfile.TemporaryDirectory() as name:
            file = pathlib.Path(name) / "result.json"
            results = []
            for options in (["--device=cpu"], ["--device=cuda"], ["--device=cuda", "--capture-step"],
                            ["--device=cuda", "--data-format=NHWC", "--precision=bf16"],
                            ["--device=cuda", "--precision=fp16"],
                            ["--device=cuda", "--precision=fp16", "--capture-step", "--data-format=NHWC"],
                            ["--device=cuda", "--data-format=NHWC", "--all-reduce-spec=nccl"]):
                text = run(*SMALL, "--learning-rate=0.001", *options, "--json", file)
                results.append(json.loads(file.read_text()))
                self.assertIn("Devices:     ['/gpu:0']" if len(results) > 1 else "Devices:     ['/cpu:0']", text)
            for result in results[1:]:
                self.assertAlmostEqual(result["loss"], results[0]["loss"],
                                       delta=1e-2 if result["precision"] == "fp32" else 2e-2)
                self.assertEqual("loss_scale" in result, result["precision"] == "fp16")
                self.assertGreater(result["peak_device_memory_bytes"], 2 * 4 * 2173353)
                self.assertGreater(result["breakdown_ms"]["forward"], 0)
            self.assertEqual(results[0]["peak_device_memory_bytes"], 0)

    def test_two_cards_train_as_two_cpus_do(self):
        if not ARGUMENTS.emulated:
            self.skipTest("there may be one card")
        with tempfile.TemporaryDirectory() as name:
            file = pathlib.Path(name) / "result.json"
            results = []
            for options in (["--device=cpu"], ["--device=cuda"], ["--device=cuda", "--all-reduce-spec=nccl"],
                            ["--device=cuda", "--all-reduce-spec=nccl", "--capture-step"],
                            ["--device=cuda", "--all-reduce-spec=nccl", "--precision=fp16"],
                            ["--device=cuda", "--variable-update=sharded_update"],
                            ["--device=cuda", "--variable-update=sharded_update", "--all-reduce-spec=nccl"]):
                text = run(*SMALL, "--learning-rate=0.001", "--ranks", 2, *options, "--json", file)
                results.append(json.loads(file.read_text()))
                self.assertIn("['/gpu:0', '/gpu:1']" if len(results) > 1 else "['/cpu:0', '/cpu:1']", text)
            for result in results[1:]:
                self.assertAlmostEqual(result["loss"], results[0]["loss"], delta=1e-2)

    def test_two_cards_train_stages_as_two_cpus_do(self):
        if not ARGUMENTS.emulated:
            self.skipTest("there may be one card")
        with tempfile.TemporaryDirectory() as name:
            file, trace = pathlib.Path(name) / "result.json", pathlib.Path(name) / "trace.json"
            results = []
            for options in (["--device=cpu"], ["--device=cuda"], ["--device=cuda", "--all-reduce-spec=nccl"],
                            ["--device=cuda", "--all-reduce-spec=nccl", "--schedule=zero_bubble"],
                            ["--device=cuda", "--all-reduce-spec=nccl", "--stages-per-rank=2"],
                            ["--device=cuda", "--all-reduce-spec=nccl", "--precision=fp16", "--gradient-clip-norm=100"]):
                text = run(*SMALL, "--learning-rate=0.001", "--ranks", 2, "--stages", 2, *options, "--json", file,
                           "--trace-file", trace)
                results.append(json.loads(file.read_text()))
                self.assertIn("['/gpu:0', '/gpu:1']" if len(results) > 1 else "['/cpu:0', '/cpu:1']", text)
                passes = [event for event in json.loads(trace.read_text())["traceEvents"]
                          if "micro_batch" in event.get("args", {})]
                self.assertEqual({event["pid"] for event in passes}, {0, 1})
            for result in results[1:]:
                self.assertAlmostEqual(result["loss"], results[0]["loss"],
                                       delta=1e-2 if result["precision"] == "fp32" else 2e-2)
                for part in ("forward", "backward"):
                    self.assertGreater(result["breakdown_ms"][part], 0)
            said = run(*SMALL, "--ranks", 2, "--stages", 2, "--device=cuda", "--capture-step", status=2)
            self.assertIn("--capture-step: a step in stages waits for other ranks", said)


class DryRun(unittest.TestCase):
    def test_every_model_is_planned(self):
        models = re.search(r"--model TEXT:\{([^}]*)\}", run("--help"))[1].split(",")
        self.assertGreater(len(models), 20)
        parameters = {}
        for model in models:
            text = run("--model", model, "--dry-run", "--ranks", 4)
            parameters[model] = int(re.search(r"^parameters:  (\d+) in \d+ tensors$", text, re.M)[1])
            self.assertRegex(text, r"(?m)^memory:      [\d.]+ MiB a rank")
            bytes_sent = int(re.search(r"receives (\d+) a step \(a ring\), in \d+ buckets$", text, re.M)[1])
            self.assertGreaterEqual(bytes_sent, 1.5 * 4 * parameters[model])
            self.assertLess(bytes_sent, 1.5 * 4 * 1.1 * parameters[model])
            self.assertRegex(text, r"(?m)^bounds: .* at most [\d.]+ images/sec on all ranks")
        for model, count in {"trivial": 4263877, "lenet": 2173353, "mnist": 3274634, "vgg16": 138361641,
                             "overfeat": 145924969, "inception3": 23819401, "resnet50": 25559081,
                             "resnet50_v2": 25551529, "resnet101": 44551209, "resnet110": 1728027, "resnet164_v2": 1703547,
                             "resnet1001_v2": 10327995, "resnet5000_v2": 51502779}.items():
            self.assertEqual(parameters[model], count, model)

    def test_servers_are_planned(self):
        text = run("--model", "inception3", "--dry-run", "--ranks", 8, "--variable-update", "parameter_server",
                   "--servers", 4, "--placement", "round_robin")
        self.assertRegex(text, r"server 3: \d+ bytes\nbusiest: \d+ bytes.*\nservers:     [1-8] for 8 workers, ")


class MemoryTraffic(unittest.TestCase):
    """--memory-traffic: the bytes of each pass of each layer, and their rates."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.json = pathlib.Path(self.folder.name) / "traffic.json"

    def rows(self, *options):
        text = run("--model", "mnist", "--batch-size", 4, "--threads", 1, "--memory-traffic", "--json", self.json, *options)
        found = json.loads(self.json.read_text())
        return text, found, {(row["layer"], row["pass"]): row for row in found["memory_traffic"]}

    def test_bytes_follow_from_the_shapes(self):
        for precision, element in (("fp32", 4), ("bf16", 2)):
            for layout in ("NCHW", "NHWC"):
                text, found, rows = self.rows("--dry-run", "--precision", precision, "--data-format", layout,
                                              "--optimizer", "momentum")
                # 4 images of 28 x 28, a kernel of 5 x 5 and a bias; 32 channels, a ReLU that is fused
                parameters = 4 * 32 * 26
                self.assertEqual(rows["conv1", "forward"]["read_bytes"], 4 * 28 * 28 * element + parameters)
                self.assertEqual(rows["conv1", "forward"]["written_bytes"], 32 * 4 * 28 * 28 * element)
                # value, gradient and velocity; value and velocity
                self.assertEqual(rows["conv1", "update"]["read_bytes"], 3 * parameters)
                self.assertEqual(rows["conv1", "update"]["written_bytes"], 2 * parameters)
                self.assertEqual([row["layer"] for row in rows.values() if row["kind"] == "relu"], [])
                for key in ("read_bytes", "written_bytes", "least_read_bytes", "least_written_bytes"):
                    self.assertEqual(sum(row[key] for row in rows.values()), found["step"][key], key)
                step = found["step"]
                self.assertEqual(4 * found["bytes_per_image"], step["read_bytes"] + step["written_bytes"])
                self.assertRegex(text, r"(?m)^step +all +all +[\d.]+ +[\d.]+ +[\d.]+ +1\.\d\d +[\d.]+$")
                self.assertNotIn("copy_bytes_per_second", found)

    def test_rates_are_bytes_over_time(self):
        text, found, rows = self.rows()
        self.assertRegex(text, r"(?m)^copy:        [\d.]+ GB/s read and written$")
        self.assertGreater(found["copy_bytes_per_second"], 1e8)
        for key, row in rows.items():
            if key[1] != "loss":
                rate = (row["read_bytes"] + row["written_bytes"]) / row["ms"] * 1e3
                self.assertAlmostEqual(row["bytes_per_second"] / rate, 1, 6)

    def test_other_measurements_are_refused(self):
        for options, expected in ((["--ranks", 2], "one rank without stages"), (["--micro-batches", 2], "one rank without"),
                                  (["--optimizer", "lamb"], "an update rule of single elements"),
                                  (["tune"], "no sub-command, got tune")):
            said = run(*options, "--model", "mnist", "--batch-size", 4, "--memory-traffic", status=None)
            self.assertIn(f"--memory-traffic: expected {expected}", said)


class Pipelines(unittest.TestCase):
    """--stages: networks in stages, and what a dry run says of them."""

    BATCH = ["--batch-size", 4, "--micro-batches", 2, "--optimizer", "momentum"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def measure(self, *options, launcher=()):
        """The text and the JSON of a measurement."""
        file = self.path / "result.json"
        text = run(*SMALL, *self.BATCH, *options, "--json", file, launcher=launcher)
        return text, json.loads(file.read_text())

    def test_stages_train_as_one_process_does(self):
        for options in ([], ["--model", "resnet20", "--data-format", "NHWC", "--gradient-clip-norm", 1],
                        ["--precision", "bf16"]):
            _, alone = self.measure(*options)
            self.assertEqual((alone["micro_batches"], "pipeline" in alone), (2, False))
            if "resnet20" in options:  # statistics are those of a micro-batch
                self.assertNotEqual(alone["loss"], self.measure(*options, "--micro-batches", 1)[1]["loss"])
            for more in (["--schedule", "gpipe"], ["--schedule", "zero_bubble"], []):
                text, found = self.measure("--ranks", 2, "--stages", 2, *options, *more)
                self.assertEqual(found["loss"], alone["loss"], options + more)
                self.assertEqual(found["variable_update"], "hybrid")
                self.assertEqual(found["pipeline"]["schedule"], more[1] if more else "one_f_one_b")
                self.assertIn("Batch size:  4 global\n             4 per replica\n", text)
                shown = re.findall(r"(?m)^\d+\timages/sec: .*\t([\d.]+)$", text)
                self.assertNotEqual(float(shown[0]), 0)  # rank 0 has no loss
        _, found = self.measure("--ranks", 2, "--stages", 2, "--stages-per-rank", 2)
        self.assertEqual(found["loss"], self.measure()[1]["loss"])

    def test_what_is_recorded(self):
        text, found = self.measure("--ranks", 2, "--stages", 2)
        pipeline = found["pipeline"]
        self.assertEqual((pipeline["stages"], pipeline["stages_per_rank"], pipeline["micro_batches"]), (2, 1, 2))
        for name in ("bubble", "measured_bubble"):
            self.assertTrue(0 < pipeline[name] < 1, pipeline)
        self.assertRegex(text, r"(?m)^Pipeline:    2 ranks of 1 stage, 2 micro-batches, one_f_one_b, predicted bubble "
                               r"[\d.]+ %$")
        self.assertRegex(text, r"(?m)^bubble: [\d.]+ % of a step, the mean over all ranks; predicted [\d.]+ %$")

    def test_replicas_train_as_ranks_with_whole_networks_do(self):
        _, whole = self.measure("--ranks", 2)
        _, found = self.measure("--ranks", 4, "--stages", 2)
        self.assertEqual((found["ranks"], found["batch_size"]), (4, 4))
        self.assertAlmostEqual(found["loss"], whole["loss"], delta=1e-4)
        # Images count once a replica.
        self.assertLess(abs(8e3 / found["images_per_second"] / found["step_ms"]["mean"] - 1), 0.6)

    def test_cuts_by_name(self):
        names = re.findall(r"(?m)^ +\d+ .* (\S+), \S+$", run(*SMALL, "--stages", 3, "--dry-run"))
        self.assertEqual(len(names), 3)
        _, chosen = self.measure("--ranks", 3, "--stages", 3, "--layer-times", "estimated")
        _, named = self.measure("--ranks", 3, "--stages", 3, "--stage-cuts", ",".join(names[1:]))
        self.assertEqual(named["pipeline"]["bubble"], chosen["pipeline"]["bubble"])
        self.assertEqual(named["loss"], chosen["loss"])
        said = run(*SMALL, "--ranks", 2, "--stages", 2, "--stage-cuts", "nothing", status=1)
        self.assertRegex(said, "names of layers.*'nothing'")

    def test_processes_under_mpiexec(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("built without MPI")
        _, alone = self.measure()
        for options in ([], ["--all-reduce-spec", "hierarchical"], ["--schedule", "zero_bubble"]):
            _, found = self.measure("--stages", 2, *options, launcher=ARGUMENTS.mpiexec)
            self.assertEqual(found["loss"], alone["loss"], options)
            self.assertEqual(found["ranks"], 2)
        text = run(*SMALL, "--stages", 2, "--dry-run", launcher=ARGUMENTS.mpiexec)
        self.assertEqual(text.count("pipeline:    2 stages on 2 ranks"), 1)
        said = run(*SMALL, "--stages", 3, status=None, launcher=ARGUMENTS.mpiexec)
        self.assertIn("--stages: expected a divisor of the number of ranks, 2, got 3", said)

    def test_checkpoints_and_traces(self):
        options = ["--ranks", 2, "--stages", 2, "--learning-rate", "0.001"]
        saves = self.path / "saves"
        _, whole = self.measure(*options)
        self.measure(*options, "--checkpoint-dir", saves, "--checkpoint-every", 3)
        _, rest = self.measure(*options, "--checkpoint-dir", saves, "--resume")
        self.assertEqual(rest["loss"], whole["loss"])
        self.measure(*options, "--trace-file", self.path / "trace.json")
        trace = json.loads((self.path / "trace.json").read_text())
        self.assertGreater(len(trace["traceEvents"]), 0)

    def test_sweeps_pass_the_options_on(self):
        text = run("scale", "--ranks", "2,4", *SMALL, *self.BATCH, "--stages", 2, "--csv", self.path / "a.csv", "--json",
                   self.path / "a.json")
        self.assertRegex(text, r"(?m)^ +4 ")
        rows = list(csv.DictReader((self.path / "a.csv").read_text().splitlines()))
        self.assertEqual([(row["stages"], row["schedule"]) for row in rows], [("2", "one_f_one_b")] * 2)
        self.assertEqual(json.loads((self.path / "a.json").read_text())["rows"][0]["pipeline"]["micro_batches"], 2)
        said = run("scale", "--ranks", "2,3", *SMALL, "--stages", 2, status=1)
        self.assertIn("--stages: expected a divisor of the number of ranks, 3, got 2", said)
        run("tune", *SMALL, "--micro-batches", 2, "--stages", 2, "--processors", 2, "--effective-batch", 4, "--json",
            self.path / "b.json")
        found = json.loads((self.path / "b.json").read_text())
        self.assertEqual((found["best"]["processes"], found["best"]["batch_size"]), (2, 4))

    def test_a_dry_run_shows_the_stages(self):
        text = run("--model", "resnet50", "--batch-size", 8, "--stages", 4, "--ranks", 8, "--dry-run")
        self.assertIn("pipeline:    4 stages on 4 ranks, 8 micro-batches of 1 images, one_f_one_b; 2 replicas\n", text)
        rows = re.findall(r"(?m)^ +(\d+) +(\d+) +(\d+) +(\d+) +([\d.]+) +(\d+) +([\d.]+) +([\d.]+)  \S+, \S+$", text)
        self.assertEqual([row[:2] for row in rows], [(str(s), str(s)) for s in range(4)])
        self.assertEqual(sum(int(row[3]) for row in rows), 25559081)
        self.assertEqual([row[5] for row in rows], ["4", "3", "2", "1"])
        self.assertEqual(float(rows[-1][6]), 0)  # the last stage sends nothing
        fullest = float(re.search(r"(?m)^memory:      ([\d.]+) MiB on the fullest rank", text)[1])
        self.assertEqual(fullest, max(float(row[4]) for row in rows))
        self.assertRegex(text, r"(?m)^step:        [\d.]+ ms, of which ranks wait [\d.]+ %")
        self.assertRegex(text, r"(?m)^gradients:   a rank sends and receives at most \d+ bytes")

    def test_a_dry_run_finds_the_fewest_stages_that_fit(self):
        options = ["--model", "resnet1001_v2", "--image-size", 224, "--batch-size", 8, "--dry-run"]
        began = time.monotonic()
        text = run(*options, "--memory-limit", "2GB")
        self.assertLess(time.monotonic() - began, 60)
        found = re.search(r"(?m)^stages:      (\d+) are the fewest .*: (--stages .*)$", text)
        stages = int(found[1])
        self.assertGreater(stages, 1)
        text = run(*options, "--stages", stages, "--micro-batches", 8, "--memory-limit", "2GB")
        memory = float(re.search(r"(?m)^memory:      ([\d.]+) MiB on the fullest rank", text)[1])
        self.assertLess(memory * 2**20, 1.05 * 2e9)  # what a rank takes between its passes is not in the limit
        self.assertIn("choose more stages", run(*options, "--stages", 2, "--memory-limit", "2GB", status=1))
        self.assertRegex(run(*SMALL, "--dry-run", "--memory-limit", "1KiB"), "(?m)^stages:      no ")

    def test_what_makes_no_sense_is_refused(self):
        for options, expected in (
                (["--stages", 0], r"--stages: "),
                (["--micro-batches", 0], r"--micro-batches: "),
                (["--batch-size", 2, "--micro-batches", 3], r"--micro-batches: expected at most --batch-size-per-rank, 2"),
                (["--schedule", "gossip"], r"--schedule: .*gossip.*one_f_one_b"),
                (["--schedule", "gpipe"], r"--schedule: expected --stages, got none"),
                (["--stages-per-rank", 2], r"--stages-per-rank: expected --stages, got none"),
                (["--stage-cuts", "a"], r"--stage-cuts: expected --stages, got none"),
                (["--layer-times", "measured"], r"--layer-times: expected --stages, got none"),
                (["--stages", 2, "--layer-times", "guessed"], r"--layer-times: "),
                (["--memory-limit", "1GB"], r"--memory-limit: expected --stages, .*--dry-run"),
                (["--memory-limit", "much"], r"--memory-limit: "),
                (["--variable-update", "hybrid"], r"--variable-update: hybrid .*--stages"),
                (["--variable-update", "sharded_update", "--stages", 2],
                 r"--stages: --variable-update sharded_update trains whole networks"),
                (["--stages", 2, "--order", "tic"], r"--order: with --stages"),
                (["--stages", 2, "--all-reduce-spec", "ring"], r"--all-reduce-spec: with --stages expected hierarchical"),
                (["--stages", 2, "--stages-per-rank", 2, "--schedule", "gpipe"],
                 r"--stages-per-rank: only --schedule one_f_one_b"),
                (["--stages", 3, "--stage-cuts", "a"], r"--stage-cuts: expected 2 layers, .*got 1"),
                (["--image-size", 0], r"--image-size: ")):
            self.assertRegex(run(*options, status=2), expected)
        for options, expected in ((["--stages", 2], "--stages: expected a divisor of the number of ranks, 1, got 2"),
                                  (["--stages", 2, "--ranks", 3], "--stages: expected a divisor of .*, 3, got 2"),
                                  (["--stages", 500, "--ranks", 500, "--dry-run"], "choose fewer stages")):
            self.assertRegex(run(*SMALL, *options, status=1), expected)


class Checkpoints(unittest.TestCase):
    """--checkpoint-dir: what is saved is what a training goes on from, and what it costs is measured."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.saves = self.path / "saves"

    def measure(self, *options, launcher=()):
        """The text and the JSON of a measurement."""
        file = self.path / "result.json"
        text = run(*SMALL, "--optimizer", "momentum", *options, "--json", file, launcher=launcher)
        return text, json.loads(file.read_text())

    def names(self):
        return sorted(each.name for each in self.saves.iterdir())

    def test_files_and_costs_are_named(self):
        text, result = self.measure("--checkpoint-dir", self.saves, "--checkpoint-every", 2)
        self.assertEqual(self.names(), ["step-000000002.safetensors", "step-000000004.safetensors"])
        size = (self.saves / "step-000000004.safetensors").stat().st_size
        self.assertIn(f"Checkpoints: '{self.saves}', every 2 steps\n", text)
        self.assertRegex(text, rf"(?m)^checkpoints: 2 in '{self.saves}', 0 failed, {size} bytes each; a step waited "
                               r"[\d.]+ ms for the copy and [\d.]+ ms for the save before, a save took [\d.]+ ms")
        found = result["checkpoints"]
        self.assertEqual((found["saves"], found["failed"]), (2, 0))
        self.assertLess(abs(found["bytes"] - size), 64)  # the header has the time of the epoch
        self.assertGreater(found["snapshot_ms"], 0)
        self.assertGreater(found["save_ms"], 0)
        self.assertNotIn("checkpoints", self.measure()[1])

    def test_a_save_counts_to_its_end(self):
        _, result = self.measure("--checkpoint-dir", self.saves)  # after the last step
        seconds = 4 * 2 / result["images_per_second"]
        self.assertGreater(1e3 * seconds, 4 * result["step_ms"]["mean"] + 0.9 * result["checkpoints"]["save_ms"])

    def test_an_interrupted_measurement_goes_on(self):
        _, whole = self.measure()
        self.measure("--checkpoint-dir", self.saves, "--checkpoint-every", 3)
        self.assertEqual(self.names(), ["step-000000003.safetensors"])
        text, rest = self.measure("--checkpoint-dir", self.saves, "--checkpoint-every", 3, "--resume")
        self.assertRegex(text, r"(?m)^Resumed:     .*step-000000003\.safetensors")
        self.assertEqual(rest["loss"], whole["loss"])
        self.assertEqual(len(re.findall(r"(?m)^\d+\timages/sec", text)), 1)  # of two steps one is a warm-up
        self.assertGreater(rest["images_per_second"], 0.05 * whole["images_per_second"])
        self.assertLess(rest["images_per_second"], 3 * whole["images_per_second"])

    def test_a_rank_that_stops_in_a_save_ends_the_job_within_the_time_limit(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("built without MPI")
        for mode in ([], ["--variable-update", "parameter_server", "--server-mode", "asynchronous", "--colocate-servers"]):
            with self.subTest(mode):
                self.stop_in_a_save(mode)

    def stop_in_a_save(self, mode):
        known = self.path / "rank1"
        saves = self.path / ("saved " + " ".join(mode))
        becomes = [sys.executable, "-c", "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); "
                   "os.execv(sys.argv[2], sys.argv[2:])"]
        # Nearly all of the time goes to saves, for which the ranks wait.
        command = [ARGUMENTS.program, *SMALL, "--num-warmup-batches", 0, "--num-batches", 1, "--repeats", 1000,
                   "--checkpoint-dir", saves, "--time-limit", 3, *mode]
        process = start_apart(command, [*becomes, known, *command])
        self.addCleanup(process.terminate)  # with its ranks
        deadline = time.monotonic() + 100
        while not list(saves.glob("step-*.safetensors")) or not list(saves.glob("*.partial")):
            self.assertLess(time.monotonic(), deadline, "no save")
            self.assertIsNone(process.poll(), "ended before a save")
        rank = int(known.read_text())
        os.kill(rank, signal.SIGSTOP)
        try:
            said = process.communicate(timeout=60)[0]
        finally:
            with contextlib.suppress(ProcessLookupError):  # mpiexec has killed it
                os.kill(rank, signal.SIGKILL)
        self.assertNotEqual(process.returncode, 0, said)
        self.assertRegex(said, r"not complete within 3 s; no answer from rank 1")

    def test_after_the_last_step_another_repeat_is_measured(self):
        _, two = self.measure("--repeats", 2)
        for every in (0, 5):  # after the repeat; after its last step
            shutil.rmtree(self.saves, ignore_errors=True)
            self.measure("--checkpoint-dir", self.saves, "--checkpoint-every", every)
            self.assertEqual(self.names(), ["step-000000005.safetensors"])
            _, found = self.measure("--checkpoint-dir", self.saves, "--checkpoint-every", every, "--resume")
            self.assertEqual(len(found["repeats"]), 1)
            self.assertEqual(found["loss"], two["loss"])
            self.assertEqual(self.names(), ["step-000000005.safetensors", "step-000000010.safetensors"])

    def test_all_modes_save_and_go_on(self):
        modes = [(["--ranks", 2], ()), (["--ranks", 2, "--variable-update", "sharded_update"], ()),
                 (["--ranks", 2, "--all-reduce-spec", "ring"], ()),
                 (["--ranks", 2, "--variable-update", "model_averaging", "--average-every", 2], ()),
                 (["--ranks", 2, "--variable-update", "model_averaging", "--average-every", 2, "--outer-optimizer",
                   "nesterov"], ()),
                 (["--ranks", 2, "--variable-update", "compressed_all_reduce", "--compression", "int8"], ()),
                 (["--ranks", 3, "--variable-update", "parameter_server"], ()),
                 (["--ranks", 2, "--variable-update", "distributed_replicated", "--colocate-servers"], ()),
                 (["--ranks", 2, "--variable-update", "independent"], ()), (["--precision", "bf16"], ()),
                 (["--trace-file", self.path / "trace.json"], ())]
        if ARGUMENTS.mpiexec:
            modes += [([], ARGUMENTS.mpiexec), (["--all-reduce-spec", "hierarchical"], ARGUMENTS.mpiexec),
                      (["--variable-update", "parameter_server"], ARGUMENTS.mpiexec)]
        for options, launcher in modes:
            shutil.rmtree(self.saves, ignore_errors=True)
            options = ["--learning-rate", "0.001", *options]
            _, whole = self.measure(*options, launcher=launcher)
            self.measure(*options, "--checkpoint-dir", self.saves, "--checkpoint-every", 3, launcher=launcher)
            folders = ["rank0", "rank1"] if "independent" in options else ["."]
            for each in folders:
                self.assertEqual(os.listdir(self.saves / each), ["step-000000003.safetensors"], options)
            text, rest = self.measure(*options, "--checkpoint-dir", self.saves, "--resume", launcher=launcher)
            self.assertIn("step-000000003.safetensors", text)
            self.assertAlmostEqual(rest["loss"], whole["loss"], delta=1e-5, msg=str(options))
            self.assertEqual(rest["checkpoints"]["failed"], 0)

    def test_a_dry_run_names_the_bytes(self):
        options = ["--checkpoint-dir", self.saves, "--checkpoint-every", 2]
        for more in ([], ["--optimizer", "adam"], ["--model", "resnet20", "--ranks", 2],
                     ["--ranks", 2, "--variable-update", "model_averaging"],
                     ["--ranks", 2, "--variable-update", "model_averaging", "--outer-optimizer", "nesterov"],
                     ["--ranks", 2, "--variable-update", "compressed_all_reduce", "--compression", "int8"]):
            shutil.rmtree(self.saves, ignore_errors=True)
            text = run(*SMALL, *more, *options, "--dry-run")
            self.assertFalse(self.saves.exists())
            planned = int(re.search(r"(?m)^checkpoint:  (\d+) bytes: ", text)[1])
            self.assertIn(f"             2 in '{self.saves}', of which the newest 3 are kept\n", text)
            run(*SMALL, *more, *options)
            size = (self.saves / "step-000000004.safetensors").stat().st_size
            self.assertTrue(0 <= size - planned < 65536, (more, planned, size))
            self.assertLess(size - planned, 40 * 1024, more)
        self.assertRegex(run(*SMALL, "--dry-run"), r"(?m)^checkpoint:  \d+ bytes: ")

    def test_what_makes_no_sense_is_refused(self):
        for options, expected in (
                (["--resume"], "--resume.*--checkpoint-dir"),
                (["--checkpoint-every", 5], "--checkpoint-every.*--checkpoint-dir"),
                (["--checkpoint-dir", ""], "--checkpoint-dir: expected a folder, got ''"),
                (["--checkpoint-dir", self.saves, "--checkpoint-every", "x"], "--checkpoint-every"),
                (["--checkpoint-dir", self.saves, "--checkpoint-every", -1], "--checkpoint-every"),
                (["scale", "--ranks", "1", "--checkpoint-dir", self.saves],
                 "--checkpoint-dir: expected one measurement, got scale, .*: leave it out"),
                (["tune", "--checkpoint-dir", self.saves], "--checkpoint-dir: expected one measurement, got tune"),
                (["pack", "--output", "x", "--checkpoint-dir", self.saves],
                 "--checkpoint-dir: expected one measurement, got pack: leave it out")):
            self.assertRegex(run(*options, status=2), expected)
        self.assertFalse(self.saves.exists())
        file = self.path / "file"
        file.write_text("")
        self.assertRegex(run(*SMALL, "--checkpoint-dir", file / "saves", status=1), "a folder that can be written: '")
        self.measure("--checkpoint-dir", self.saves)
        said = run(*SMALL, "--optimizer", "adam", "--checkpoint-dir", self.saves, "--resume", status=1)
        self.assertIn("train::restore", said)
        said = run(*SMALL, "--optimizer", "momentum", "--num-batches", 7, "--checkpoint-dir", self.saves, "--resume",
                   status=1)
        self.assertRegex(said, "expected the loader of the training that goes on")

    def test_ranks_with_other_folders_are_told_so(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("built without MPI")
        status, said = run_apart([*SMALL, "--checkpoint-dir", self.saves], SMALL)
        self.assertNotEqual(status, 0)
        self.assertRegex(said, "expected the same checkpoint folder on all ranks")


class Sweeps(unittest.TestCase):
    def test_scale_on_threads(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            text = run("scale", "--ranks", "1,2", *SMALL, "--csv", folder / "a.csv", "--json", folder / "a.json", "--svg",
                       folder / "a.svg")
            self.assertRegex(text, r"(?m)^ +1 +[\d.]+ +[\d.]+ +100\.0%\n +2 +[\d.]+ +[\d.]+ +[\d.]+%$")
            rows = list(csv.DictReader((folder / "a.csv").read_text().splitlines()))
            self.assertEqual([row["ranks"] for row in rows], ["1", "2"])
            again = json.loads((folder / "a.json").read_text())["rows"]
            one, two = (row["images_per_second"] for row in again)
            self.assertAlmostEqual(again[1]["efficiency"], two / 2 / one, delta=1e-6)
            drawing = xml.etree.ElementTree.parse(folder / "a.svg").getroot()
            paths = {path.get("id") for path in drawing.iter("{http://www.w3.org/2000/svg}path")}
            self.assertTrue({"ideal", "measured"} <= paths)
            self.assertEqual(len(list(drawing.iter("{http://www.w3.org/2000/svg}circle"))), 2)
        said = run("scale", "--ranks", "2", *SMALL, "--all-reduce-spec", "gossip", status=1)
        self.assertRegex(said, r"the measurement on 2 ranks ended with status 1:\n(.*\n)*.*'gossip'")

    def test_tune_keeps_the_effective_batch(self):
        with tempfile.TemporaryDirectory() as name:
            file, drawing = pathlib.Path(name) / "a.json", pathlib.Path(name) / "a.svg"
            text = run("tune", *SMALL, "--effective-batch", 4, "--processors", 2, "--json", file, "--svg", drawing)
            found = json.loads(file.read_text())
            bars = xml.etree.ElementTree.parse(drawing).getroot().iter("{http://www.w3.org/2000/svg}rect")
            self.assertEqual(sum(bar.get("class") == "bar" for bar in bars), len(found["rows"]))
            self.assertEqual({row["processes"] * row["batch_size"] for row in found["rows"]}, {4})
            self.assertEqual({(row["processes"], row["threads"]) for row in found["rows"]}, {(1, 2), (1, 1), (2, 1)})
            best = found["best"]
            self.assertEqual(best["images_per_second"], max(row["images_per_second"] for row in found["rows"]))
            self.assertIn(f"-n {best['processes']} gradus_bench", found["mpiexec"])
            self.assertIn(f"--batch-size {best['batch_size']} --threads {best['threads']}", found["mpiexec"])
            self.assertIn(f"srun --nodes=1 --ntasks-per-node={best['processes']}", text)


class Files(unittest.TestCase):
    """What is written: opened before the work, whole or as it was after it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def names(self):
        return sorted(each.name for each in self.path.iterdir())

    def test_a_file_that_cannot_be_written_is_named_before_the_work(self):
        for option in ("--json", "--csv", "--svg"):
            said = run("scale", "--ranks", 1, *SMALL, option, self.path / "no" / "where", status=1)
            self.assertRegex(said, rf"(?m)^gradus_bench: {option}: cannot write '.*/no/where': No such file or directory$")
            self.assertNotIn("images/s", said)
        said = run(*SMALL, "--trace-file", self.path / "no" / "where.gz", status=1)
        self.assertRegex(said, r"--trace-file: cannot write '.*/no/where.gz': No such file or directory")
        self.assertNotIn("Running warm up", said)
        self.assertIn("'/dev/full': No space left on device", run(*SMALL, "--json", "/dev/full", status=1))
        self.assertRegex(run(*SMALL, "--json", self.path, status=1), "--json: cannot write '.*': Is a directory")
        same = self.path / "a"
        self.assertIn("--json: ", run(*SMALL, "--json", same, "--trace-file", same, status=1))
        self.assertEqual(self.names(), [])

    def test_what_was_there_stays_until_there_is_something_new(self):
        kept = self.path / "a.json"
        kept.write_text("kept")
        link = self.path / "b.json"
        link.symlink_to(kept)
        run(*SMALL, "--data-dir", self.path / "nothing", "--json", kept, status=1)
        run("scale", "--ranks", 2, *SMALL, "--all-reduce-spec", "gossip", "--json", kept, status=1)
        self.assertEqual((kept.read_text(), self.names()), ("kept", ["a.json", "b.json"]))
        kept.chmod(0o640)
        run(*SMALL, "--json", link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(json.loads(kept.read_text())["model"], "lenet")
        self.assertEqual(kept.stat().st_mode & 0o777, 0o640)
        self.assertEqual(self.names(), ["a.json", "b.json"])

    def test_pipes_get_the_results(self):
        for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            self.assertIn('"model": "lenet"', run(*SMALL, "--json", path))
        words = [ARGUMENTS.program, *SMALL, "--json", "/dev/stdout"]
        with open(self.path / "all", "wb") as everything:  # a file: nothing of the text is lost
            subprocess.run(words, stdout=everything, check=True, timeout=200)
        said = (self.path / "all").read_text()
        self.assertIn("total images/sec", said)
        self.assertIn('"model": "lenet"', said)
        (self.path / "all").unlink()
        for option in ("--json", "--trace-file"):
            pipe = self.path / option[2:]
            os.mkfifo(pipe)
            reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
            self.addCleanup(reader.stdout.close)
            self.addCleanup(reader.wait)
            self.addCleanup(reader.kill)
            run(*SMALL, option, pipe, TMPDIR=str(self.path))
            json.loads(reader.communicate(timeout=100)[0])
            self.assertTrue(pipe.is_fifo())
        self.assertEqual(self.names(), ["json", "trace-file"])
        said = run(*SMALL, "--json", self.path / "json", status=1)
        self.assertRegex(said, "gradus_bench: --json: cannot write '.*/json': no program reads the pipe: start it first")
        self.assertNotIn("Running warm up", said)

    def test_a_link_that_leads_to_no_file_yet_is_followed(self):
        link = self.path / "link"
        link.symlink_to("made")
        run(*SMALL, "--json", link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(json.loads((self.path / "made").read_text())["model"], "lenet")

    def test_a_full_device_is_a_failure(self):
        for options in (["--help"], ["--dry-run", *SMALL], SMALL, ["scale", "--ranks", "1", *SMALL]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([ARGUMENTS.program, *options], stdout=full, stderr=subprocess.PIPE, text=True,
                                      check=False)
            self.assertEqual(done.returncode, 1, options)
            self.assertIn("gradus_bench: not all of the output could be written", done.stderr)


class Signals(unittest.TestCase):
    """Nothing is left of a program that is ended: no child, no folder, no half-written file."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.files = self.path / "results"
        self.files.mkdir()
        self.temporary = self.path / "temporary"
        self.temporary.mkdir()

    def start(self, *options):
        process = subprocess.Popen([ARGUMENTS.program, *map(str, options)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": self.temporary})
        self.addCleanup(process.kill)
        return process

    def wait_until(self, holds, what):
        deadline = time.monotonic() + 200
        while not holds():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    def children(self):
        """Processes that write into the temporary folder."""
        found = []
        for each in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.temporary).encode() in each.read_bytes():
                    found.append(each.parent.name)
            except OSError:
                pass  # it has ended
        return found

    def test_sweeps_end_what_they_have_started_and_say_what_they_have_saved(self):
        for which, sweep, launcher in ((signal.SIGINT, ["scale", "--ranks", "1,2"], "threads"),
                                       (signal.SIGTERM, ["tune", "--processors", 1], "mpiexec")):
            if launcher == "mpiexec" and not ARGUMENTS.mpiexec:
                continue
            process = self.start(*sweep, *SMALL, "--num-batches", 1 << 24, "--launcher", launcher, "--json",
                                 self.files / "a.json")
            self.wait_until(lambda: any("Done warm up" in file.read_text() for file in
                                        self.temporary.glob("gradus_bench.*/output")), "a measurement")
            self.assertNotEqual(self.children(), [])
            process.send_signal(which)
            said = process.communicate(timeout=100)[0]
            self.assertEqual(process.returncode, -which, said)
            self.assertIn(f"gradus_bench: ended by {which.name}", said)
            self.assertIn("the sweep ended early; nothing was measured, nothing is written", said)
            self.assertEqual((self.children(), list(self.temporary.iterdir()), list(self.files.iterdir())), ([], [], []))

    def test_a_sweep_saves_what_it_has_measured(self):
        launcher_script = self.path / "launcher_script"  # in the place of mpiexec: two ranks take for ever
        launcher_script.write_text('[ "$2" = 1 ] || exec sleep 1000\nshift 2\nexec "$@"\n')
        os.environ["MPIEXEC"] = f"sh '{launcher_script}'"
        self.addCleanup(os.environ.pop, "MPIEXEC")
        process = self.start("scale", "--ranks", "1,2", *SMALL, "--launcher", "mpiexec", "--json", self.files / "a.json",
                             "--csv", self.files / "a.csv")
        said = ""
        while not re.search(r"100\.0%\n$", said):
            line = process.stdout.readline()
            self.assertNotEqual(line, "", said)
            said += line
        process.send_signal(signal.SIGTERM)
        said += process.communicate(timeout=100)[0]
        self.assertEqual(process.returncode, -signal.SIGTERM, said)
        self.assertRegex(said, r"the sweep ended early; written: '.*a\.csv', '.*a\.json'\n")
        saved = json.loads((self.files / "a.json").read_text())
        self.assertEqual(([row["ranks"] for row in saved["rows"]], saved["ended_early"]), ([1], True))
        self.assertEqual(sorted(each.name for each in self.files.iterdir()), ["a.csv", "a.json"])
        self.assertEqual((self.children(), list(self.temporary.iterdir())), ([], []))

    def test_a_measurement_leaves_no_file(self):
        process = self.start(*SMALL, "--num-batches", 1 << 24, "--json", self.files / "a.json", "--trace-file",
                             self.files / "b.json")
        for line in process.stdout:
            if "Done warm up" in line:
                break
        self.assertEqual(len(list(self.files.iterdir())), 2)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=100)[0]
        self.assertEqual(process.returncode, -signal.SIGTERM, said)
        self.assertRegex(said, r"gradus_bench: ended by SIGTERM; not written: '.*b\.json', '.*a\.json'\n")
        self.assertEqual(list(self.files.iterdir()), [])


class Arguments(unittest.TestCase):
    def test_no_terminal_obeys_an_argument(self):
        evil = "\x1b[2J"
        for options in (["--model", evil], ["--" + evil], [evil], ["--json", f"/{evil}/x", *SMALL],
                        ["--data-dir", f"/{evil}", *SMALL]):
            done = subprocess.run([ARGUMENTS.program, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False, timeout=100)
            self.assertNotEqual(done.returncode, 0)
            self.assertNotIn(b"\x1b", done.stdout)
            self.assertIn(b"\\x1b[2J", done.stdout)


class Network(unittest.TestCase):
    def test_thread_ranks_open_no_socket(self):
        process = subprocess.Popen([ARGUMENTS.program, *SMALL, "--ranks", "2", "--num-batches", str(1 << 24)],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = ""
        for line in process.stdout:
            said += line
            if "Done warm up" in line:
                break
        self.assertIn("Done warm up", said)
        files = []
        for each in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                files.append(os.readlink(each))
        self.assertGreater(len(files), 2)
        self.assertEqual([each for each in files if each.startswith("socket:")], [])


class Messages(unittest.TestCase):
    """What goes wrong outside of the program is said with what a user can do about it."""

    def test_limits_of_the_system(self):
        # Stacks as large as this: threads run out long before the memory that libraries need does.
        shell = ["sh", "-c", 'ulimit -s 1000000; ulimit -v 8000000; exec "$@"', "sh"]
        said = run(*SMALL, "--threads", 4096, status=1, launcher=shell)
        self.assertRegex(said, r"the thread 'gradus pool': expected another thread from the system, got Resource temp.*"
                               r"Hint: use fewer threads or ranks, or raise a limit: .*ulimit -v .* is 8000000")
        shell[2] = 'ulimit -v 8000000; exec "$@"'
        said = run(*SMALL, "--num-batches", 1 << 24, "--repeats", 1000, status=1, launcher=shell)
        self.assertRegex(said, r"out of memory: the process holds \d+ MiB and has mapped \d+ MiB of the 7812 MiB that "
                               r"ulimit -v allows")

    def test_sweeps_say_what_happened_to_what_they_start(self):
        said = run("scale", "--ranks", 1, *SMALL, status=1, TMPDIR="/no/where")
        self.assertRegex(said, "cannot make a folder '/no/where/gradus_bench.*': No such file or directory; TMPDIR says")
        said = run("scale", "--ranks", 1, *SMALL, "--launcher", "mpiexec", status=1, MPIEXEC="sh -c 'kill -9 $$'")
        self.assertIn("the measurement on 1 ranks ended with signal 9 (Killed)", said)

    def test_tune_goes_on_when_a_candidate_fails(self):
        with tempfile.TemporaryDirectory() as name:
            launcher_script, file = pathlib.Path(name) / "launcher_script", pathlib.Path(name) / "a.json"
            launcher_script.write_text('[ "$2" = 1 ] || { echo "no room"; exit 3; }\nshift 2\nexec "$@"\n')
            options = ["tune", *SMALL, "--effective-batch", 4, "--processors", 2, "--launcher", "mpiexec"]
            said = run(*options, "--json", file, MPIEXEC=f"sh {launcher_script}")
            self.assertRegex(said, r"(?m)^ +2 +1 +2 \(default\) +failed$")
            self.assertRegex(said, "the measurement on 2 ranks ended with status 3:\nno room")
            found = json.loads(file.read_text())
            self.assertEqual(found["best"]["processes"], 1)
            self.assertEqual([row.get("failed", False) for row in found["rows"]], [False, False, True])
            launcher_script.write_text("echo 'no room'\nexit 3\n")
            said = run(*options, status=1, MPIEXEC=f"sh {launcher_script}")
            self.assertRegex(said, "tune: every measurement failed, the first because:\n.*ended with status 3:\nno room")


class Images(unittest.TestCase):
    """Real input of ImageNet's shape: two classes of some photographs, made here."""

    def setUp(self):
        if not ARGUMENTS.images:
            self.skipTest("built without libjpeg-turbo or zlib")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "images"
        script = pathlib.Path(__file__).parents[1] / "support" / "make_photographs.py"
        subprocess.run([sys.executable, "-B", script, self.path, "--images", "6", "--classes", "2"], check=True)

    def test_a_folder_of_class_folders_and_its_packed_form(self):
        packed = pathlib.Path(self.folder.name) / "packed.gradus"
        self.assertIn("packed 6 images", run("pack", "--data-dir", self.path, "--output", packed))
        self.assertIn("Dataset:     imagenet\n", run(*SMALL, "--data-dir", self.path, "--reader-threads", 2))
        self.assertIn("Dataset:     records\n", run(*SMALL, "--data-dir", packed, "--ranks", 2))
        large = ["--model", "trivial", "--batch-size", 2, "--num-warmup-batches", 0, "--num-batches", 3, "--threads", 1]
        losses = [re.search(r"\n1\timages/sec.*\t([\d.]+)\n", run(*large, "--data-dir", each))[1]
                  for each in (self.path, packed)]  # crops of 227 x 227 pixels
        self.assertEqual(*losses)
        text = run("scale", "--ranks", "1", *SMALL, "--data-dir", self.path)
        self.assertRegex(text, r"synthetic  input overhead\n +1 .* [\d.]+ +-?[\d.]+%\n")

    def test_tune_and_trace_show_what_input_costs(self):
        file, table = self.path.parent / "a.json", self.path.parent / "a.csv"
        folder = self.path.rename(self.path.parent / "photo graphs")  # a name that a shell needs in quotes
        text = run("tune", *SMALL, "--effective-batch", 2, "--processors", 1, "--data-dir", folder, "--json", file,
                   "--csv", table)
        best = json.loads(file.read_text())["best"]
        self.assertGreater(best["synthetic_images_per_second"], 0)
        self.assertLess(best["input_overhead"], 1)
        overhead = re.search(r"(?m)^input: [\d.]+ images/s from .*, measured in turn: overhead (-?[\d.]+)%$", text)[1]
        self.assertAlmostEqual(float(overhead), 100 * best["input_overhead"], delta=0.06)
        self.assertIn(f"--data-dir '{folder}' --batch-size 2", text)
        rows = list(csv.DictReader(table.read_text().splitlines()))
        self.assertEqual([row["input_overhead"] != "" for row in rows], [True])
        trace = self.path.parent / "trace.json.gz"
        run(*SMALL, "--data-dir", folder, "--ranks", 2, "--reader-threads", 2, "--trace-file", trace)
        spans = [event for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
                 if event["ph"] == "X" and event["tid"] % 8 == 3]
        for rank in (0, 1):
            self.assertTrue({"batch", "read"} <= {span["name"] for span in spans if span["pid"] == rank})

    def test_packing_never_harms_its_images(self):
        packed, linked = self.path.parent / "packed.gradus", self.path.parent / "linked"
        image = self.path / "class0000" / "image000000.JPEG"
        whole = image.read_bytes()
        os.link(image, linked)
        for output in (image, linked):
            said = run("pack", "--data-dir", self.path, "--output", output, status=1)
            self.assertRegex(said, "--output: '.*' is .*, which would be overwritten")
            self.assertEqual(image.read_bytes(), whole)
        linked.unlink()
        (self.path / "class0001" / "lost.jpg").symlink_to(self.path / "nowhere")
        packed.write_text("kept")
        run("pack", "--data-dir", self.path, "--output", packed, status=1)
        self.assertEqual(packed.read_text(), "kept")
        packed.unlink()
        run("pack", "--data-dir", self.path, "--output", packed, status=1)
        self.assertEqual([each.name for each in self.path.parent.iterdir()], [self.path.name])
        said = run(*SMALL, "--data-dir", self.path, "--json", image, status=1)
        self.assertRegex(said, "--json: '.*' is a file of --data-dir, which would be overwritten")
        self.assertEqual(image.read_bytes(), whole)

    def test_ranks_with_other_images_are_told_so(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("built without MPI")
        other = self.path.parent / "other"
        shutil.copytree(self.path, other / "images")
        (other / "images" / "class0001").rename(other / "images" / "class0002")
        shutil.copytree(other / "images" / "class0000", other / "images" / "class0001")
        status, said = run_apart([*SMALL, "--data-dir", self.path], [*SMALL, "--data-dir", other / "images"])
        self.assertNotEqual(status, 0)
        self.assertRegex(said, "gradus_bench: expected the same network on all ranks")

    def test_corrupt_images_are_named(self):
        kind = self.path / "class0000"
        whole = (kind / "image000000.JPEG").read_bytes()
        for name, content in {"cut.jpg": whole[:-60], "empty.jpg": b"", "text.jpg": b"no photograph"}.items():
            (kind / name).write_bytes(content)
        said = run(*SMALL, "--data-dir", self.path, "--num-batches", 20, status=1)
        self.assertRegex(said, r"decode '.*/class0000/(cut|empty|text)\.jpg'")
        said = run(*SMALL, "--data-dir", self.path, "--num-batches", 20, "--ranks", 3, "--skip-corrupt-images")
        for name in ("cut", "empty", "text"):
            self.assertRegex(said, rf"skipped: .*/class0000/{name}\.jpg'")


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("program")
    PARSER.add_argument("--images", action="store_true")
    PARSER.add_argument("--cuda", action="store_true")
    PARSER.add_argument("--emulated", action="store_true", help="the host plays 2 cards: only tests of cards are run")
    PARSER.add_argument("--mpiexec", nargs=argparse.REMAINDER, default=[])
    PARSER.parse_args(namespace=ARGUMENTS)
    ARGUMENTS.cards = ARGUMENTS.emulated or ARGUMENTS.cuda and shutil.which("nvidia-smi") is not None and subprocess.run(
        ["nvidia-smi", "-L"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    unittest.main(argv=sys.argv[:1] + (["Gpu"] if ARGUMENTS.emulated else []))
