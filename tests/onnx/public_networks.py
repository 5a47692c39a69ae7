#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Networks of torchvision as ONNX files: public_networks.py --reader PROGRAM --work FOLDER [MODEL...]

Both exporters of PyTorch write each network, with random weights, and read_models computes from its images the scores of
onnxruntime: to 1e-4 of the largest score. The older exporter leaves batch, rows and columns open, the newer one those of
the table below: it takes twice as long for it. Running statistics are those of the images, plus or times random numbers, and scores differ between two images: else
they would say little of the layers before.

The packages come from PyPI, in the versions of torch_requirements.txt, into an environment in the work folder (5 GB: the
PyTorch of PyPI brings libraries of CUDA, which it needs to start). The program ends with 77 where they cannot be
installed.
"""

import argparse
import logging
import pathlib
import shutil
import subprocess
import sys
import warnings

import check_models

TOLERANCE = 1e-4  # of the largest score
LEAST_DIFFERENCE = 1e-2  # of the scores of two images, of the largest score
# Rows and columns of images, few to save time, and the axes that the newer exporter leaves open.
NETWORKS = {"resnet50": (64, ()), "squeezenet1_1": (64, (0, 2, 3)), "densenet121": (64, ()),
            "shufflenet_v2_x1_0": (64, (0,)), "inception_v3": (96, ()), "mobilenet_v3_small": (64, ()),
            "convnext_tiny": (64, (0,)), "efficientnet_b0": (64, ())}
EXAMPLES = 2


def random_model(name, images):
    import torch
    import torchvision

    options = {"init_weights": False, "aux_logits": False, "transform_input": True} if name == "inception_v3" else {}
    model = getattr(torchvision.models, name)(weights=None, **options)
    norms = [each for each in model.modules() if isinstance(each, torch.nn.BatchNorm2d)]
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            if key.endswith("layer_scale"):  # of ConvNeXt; 1e-6 at first
                tensor.uniform_(0.2, 0.6)
            elif tensor.dim() == 1:
                tensor.uniform_(0.5, 1.5) if key.endswith("weight") else tensor.normal_(0, 0.1)
        for each in norms:
            each.momentum = 1.0
            each.bias.uniform_(0.5, 1.5)  # where half of the numbers are below 0, small differences grow in deep networks
        model.train()
        for each in model.modules():
            if isinstance(each, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
                each.eval()
        model(images)
        model.eval()
        for each in norms:
            each.running_mean.add_(each.running_var.sqrt() * 0.1 * torch.randn_like(each.running_mean))
            each.running_var.mul_(torch.empty_like(each.running_var).uniform_(0.8, 1.25))
    return model


def export(name, model, images, open_axes, folder):
    """Writes the files NAME_script.onnx and NAME_dynamo.onnx."""
    import torch

    torch.onnx.export(model, (images,), str(folder / f"{name}_script.onnx"), dynamo=False, input_names=["images"],
                      dynamic_axes={"images": {0: "N", 2: "H", 3: "W"}})
    shapes = {k: torch.export.Dim.DYNAMIC for k in open_axes}
    torch.onnx.export(model, (images,), str(folder / f"{name}_dynamo.onnx"), dynamo=True, verbose=False,
                      input_names=["images"], dynamic_shapes=(shapes,) if shapes else None)


def run(path, images):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reader", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("models", nargs="*", default=list(NETWORKS))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    check_models.enter_environment(arguments.work / "torch", "torch")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)

    import numpy
    import torch

    torch.set_num_threads(1)
    folder = arguments.work / "networks"
    wrong = []
    for name in arguments.models:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        torch.manual_seed(3)
        size, open_axes = NETWORKS[name]
        many = torch.randn(8, 3, size, size)  # statistics of few images make scores that small differences change
        images = many[:EXAMPLES].clone()
        export(name, random_model(name, many), images, open_axes, folder)
        for path in sorted(folder.glob("*.onnx")):
            scores = run(path, images.numpy())
            difference = float(numpy.abs(scores[0] - scores[1]).max() / numpy.abs(scores).max())
            if not difference >= LEAST_DIFFERENCE:
                wrong.append(f"{path.stem}: scores of two images differ by {difference:.1e} of the largest")
            numpy.save(path.with_suffix(".input.npy"), images.numpy())
            numpy.save(path.with_suffix(".output.npy"), scores)
        read = subprocess.run([str(arguments.reader.resolve()), "--one", str(folder)], check=True,
                              stdout=subprocess.PIPE, text=True)
        for line in sorted(read.stdout.splitlines()):
            print(line, flush=True)
            key, result = line.split("\t", 1)
            if result.startswith("refused") or not float(result) <= TOLERANCE:
                wrong.append(f"{key}: {result}")
        if len(read.stdout.splitlines()) != 2:
            wrong.append(f"{name}: expected two results, got {read.stdout!r}")
    shutil.rmtree(folder, ignore_errors=True)
    if wrong:
        sys.exit("failed:\n  " + "\n  ".join(wrong))


if __name__ == "__main__":
    main()
