#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Forward passes of ResNet-50 (224 x 224) in gradus, PyTorch and ONNX Runtime, interleaved in one run.

    inference.py PROGRAM [--batch N] [--threads N] [--rounds N] [--passes N]

PROGRAM is bench_peers_inference. All sides have the same weights and images, and their scores must agree before anything
is timed. A round runs some passes of each side, with a pause before them in which the threads of the side before go to
sleep; the first pass of each side in a round is not counted. Prints one JSON object: for each side the median
milliseconds of a pass, and the ratio of the best peer to gradus.

Needs torch, torchvision and numpy; onnxruntime and onnx for that side, which is left out without them.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--passes", type=int, default=5)
    return parser.parse_args()


def random_model(torch, torchvision):
    """ResNet-50 v1.5 with running statistics that are not trivial."""
    torch.manual_seed(1)
    model = torchvision.models.resnet50(weights=None, num_classes=1000)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.0)
            module.bias.data.normal_(0, 0.1)
    return model.eval()


def layers_in_order(model):
    """Convolutions, normalizations and the last layer in the order in which gradus adds them."""
    yield from (model.conv1, model.bn1)
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        for block in stage:
            if block.downsample is not None:
                yield from block.downsample
            yield from (block.conv1, block.bn1, block.conv2, block.bn2, block.conv3, block.bn3)
    yield model.fc


def write_weights(model, path):
    with open(path, "wb") as file:
        for layer in layers_in_order(model):
            tensors = [layer.weight, layer.bias]
            if hasattr(layer, "running_mean"):
                tensors += [layer.running_mean, layer.running_var]
            for tensor in tensors:
                if tensor is not None:
                    file.write(tensor.detach().numpy().tobytes())


class Gradus:
    def __init__(self, program, layout, options, weights, images):
        command = [program, layout, str(options.batch), str(options.threads), weights, images]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("the program ended")
        return [float(word) for word in answer.split()]

    def scores(self):
        return self.ask("scores")

    def run(self, passes):
        return self.ask(f"run {passes}")


class Peer:
    """A side in this process: `forward` computes the scores of all images."""

    def __init__(self, forward):
        self.forward = forward

    def scores(self):
        return [float(score) for score in self.forward()[0]]

    def run(self, passes):
        times = []
        for _ in range(passes):
            begin = time.perf_counter()
            self.forward()
            times.append(time.perf_counter() - begin)
        return times


def torch_side(torch, model, images, memory_format):
    model = model.to(memory_format=memory_format)
    images = images.to(memory_format=memory_format)

    def forward():
        with torch.inference_mode():
            return model(images)

    return Peer(forward)


def onnx_side(torch, model, images, folder, threads):
    try:
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError:
        return None
    path = os.path.join(folder, "resnet50.onnx")
    torch.onnx.export(model, (images,), path, input_names=["images"], output_names=["scores"], dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    array = images.numpy()
    return Peer(lambda: session.run(None, {"images": array})[0])


def agree(scores, expected):
    scale = max(abs(score) for score in expected)
    return max(abs(a - b) for a, b in zip(scores, expected)) <= 1e-3 * scale


def main():
    options = parse()
    import torch
    import torchvision

    torch.set_num_threads(options.threads)
    model = random_model(torch, torchvision)
    images = torch.randn(options.batch, 3, 224, 224)
    with tempfile.TemporaryDirectory() as folder:
        weights, pixels = os.path.join(folder, "weights"), os.path.join(folder, "images")
        write_weights(model, weights)
        pathlib.Path(pixels).write_bytes(images.numpy().tobytes())
        sides = {
            "gradus_nchw": Gradus(options.program, "nchw", options, weights, pixels),
            "gradus_nhwc": Gradus(options.program, "nhwc", options, weights, pixels),
            "pytorch_contiguous": torch_side(torch, random_model(torch, torchvision), images, torch.contiguous_format),
            "pytorch_channels_last": torch_side(torch, random_model(torch, torchvision), images, torch.channels_last),
        }
        runtime = onnx_side(torch, model, images, folder, options.threads)
        if runtime is not None:
            sides["onnxruntime"] = runtime

        # gradus pads the first pooling at the end, as TensorFlow does. The same work, other numbers: the scores are
        # compared with a model that pads as it does, and the peers are timed as they are.
        expected = random_model(torch, torchvision)
        expected.maxpool = torch.nn.Sequential(
            torch.nn.ConstantPad2d((0, 1, 0, 1), -float("inf")), torch.nn.MaxPool2d(3, 2)
        )
        with torch.inference_mode():
            reference = [float(score) for score in expected(images)[0]]
            plain = [float(score) for score in model(images)[0]]
        for name, side in sides.items():
            if not agree(side.scores(), reference if name.startswith("gradus") else plain):
                sys.exit(f"the scores of {name} differ")

        times = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, side in sides.items():
                time.sleep(0.1)
                times[name] += side.run(options.passes + 1)[1:]
    medians = {name: statistics.median(values) * 1000 for name, values in times.items()}
    ours = min(value for name, value in medians.items() if name.startswith("gradus"))
    peers = min(value for name, value in medians.items() if not name.startswith("gradus"))
    result = {
        "network": "resnet50",
        "batch": options.batch,
        "threads": options.threads,
        "torch": torch.__version__,
        "milliseconds": {name: round(value, 2) for name, value in medians.items()},
        "fastest": {name: round(min(values) * 1000, 2) for name, values in times.items()},
        "ratio": round(peers / ours, 3),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
