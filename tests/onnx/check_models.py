#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Checks the ONNX files that write_models writes: check_models.py --program PROGRAM --reader PROGRAM --work FOLDER [--graphs N] [--all]

Each model passes onnx.checker with shape inference, and onnxruntime computes from its images the scores of gradus: to
1e-4 of the largest score. read_models reads the files back. The packages come from PyPI, in the versions of onnx_requirements.txt, into an environment in
the work folder; the program ends with 77 where they cannot be installed. With --all also the largest networks of the
zoo, which take minutes.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77
REQUIREMENTS = {kind: pathlib.Path(__file__).with_name(f"{kind}_requirements.txt") for kind in ("onnx", "torch")}
TOLERANCE = 1e-4  # of the largest score
SMALL = ["lenet", "mlp", "resnet110", "mobilenet_v2", "unet", "googlenet", "resnet50"]
LARGE = ["deeplab", "inception3", "inception4", "vgg11", "alexnet", "vgg16", "vgg19"]


def enter_environment(work, kind="onnx"):
    """Runs this script again with the packages of the requirements, unless it does so already."""
    environment = work / "venv"
    python = environment / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == environment.resolve():
        return
    installed = environment / REQUIREMENTS[kind].name  # what is in the environment
    wanted = REQUIREMENTS[kind].read_text()
    if not (installed.exists() and installed.read_text() == wanted):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        pip = subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
                              "--requirement", str(REQUIREMENTS[kind])])
        if pip.returncode != 0:
            print(f"skipped: pip cannot install the packages of {REQUIREMENTS[kind].name} from PyPI")
            sys.exit(SKIPPED)
        installed.write_text(wanted)
    os.execv(str(python), [str(python), "-B", *sys.argv])


def check(path):
    """Returns the distance of onnxruntime's scores from those of gradus, over the largest of them."""
    import numpy
    import onnx
    import onnxruntime

    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    images = numpy.load(path.with_suffix(".input.npy"))
    expected = numpy.load(path.with_suffix(".output.npy"))
    scores = session.run(None, {"input": images})[0]
    if scores.ndim == 2:  # a vector
        scores = scores[:, :, None, None]
    if scores.shape != expected.shape:
        sys.exit(f"{path.name}: the scores have the shape {scores.shape}; expected {expected.shape}")
    declared = session.get_outputs()[0].shape[1:]
    if list(declared) != list(expected.shape[1:len(declared) + 1]):
        sys.exit(f"{path.name}: the model declares scores of {declared}; they have {expected.shape[1:]}")
    return float(numpy.abs(scores - expected).max() / max(1e-30, numpy.abs(expected).max()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--reader", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--graphs", type=int, default=60)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    enter_environment(arguments.work)

    worst = 0.0
    wrong = []
    models = 0
    runs = [["graphs", str(arguments.first), str(arguments.graphs)], ["layers"]]
    runs += [[name] for name in SMALL + (LARGE if arguments.all else [])]
    for run in runs:
        folder = arguments.work / "models"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        subprocess.run([str(arguments.program.resolve()), str(folder), *run], check=True)
        for path in sorted(folder.glob("*.onnx")):
            distance = check(path)
            models += 1
            worst = max(worst, distance)
            if not distance <= TOLERANCE:
                wrong.append(f"{path.stem}: {distance:.2e}")
                shutil.copy(path, arguments.work)
        subprocess.run([str(arguments.reader.resolve()), str(folder)], check=True)
        shutil.rmtree(folder)
    print(f"{models} models, largest relative distance {worst:.2e}")
    if wrong:
        sys.exit("too far from the scores of gradus: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
