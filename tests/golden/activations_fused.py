#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes activations_fused.txt: what PyTorch computes for networks in which a ReLU6 or a leaky ReLU follows a
convolution, a batch normalization, a sum or a dense layer, for tests/property/nn_elementwise/fused.cpp.

    python3 tests/golden/activations_fused.py

It needs PyTorch; activations_fused.txt was written with torch 2.15.0 of PyPI. Each line is a case, "loss" or the name of
a parameter, and numbers in the logical order: the mean loss, or the gradient of the parameter.
"""

import pathlib

import torch
from torch.nn import functional as F

SHAPE = (2, 3, 5, 4)
ACTIVATIONS = {
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.125),
}


def values(shape, first, divisor):
    count = 1
    for extent in shape:
        count *= extent
    numbers = [((37 * i * i + 101 * i + first) % 257 - 128) / divisor for i in range(count)]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def parameters(shapes):
    """Fractions that float and double store exactly, never 0; those of a normalization are larger, to reach the cap."""
    return {
        name: (values(shape, sum(name.encode()), 8 if "norm" in name else 128) + 1 / 512).requires_grad_()
        for name, shape in shapes.items()
    }


def conv(p, name, x, padding):
    return F.conv2d(x, p[name + ".weight"], p[name + ".bias"], padding=padding)


def images(x, p, producer, act):
    y = conv(p, "first", x, 0)
    if producer == "conv":
        y = act(y)
    elif producer == "norm":
        y = act(F.batch_norm(y, None, None, p["norm.weight"], p["norm.bias"], training=True))
    else:
        y = act(conv(p, "second", y, 1) + y)
    return conv(p, "last", y, 1)


def main():
    lines = ["# written by activations_fused.py"]
    four = {"weight": (4, 3, 1, 1), "bias": (4,)}
    of = {
        "conv": {},
        "norm": {"norm.weight": (4,), "norm.bias": (4,)},
        "sum": {"second.weight": (4, 4, 3, 3), "second.bias": (4,)},
    }
    tail = {"last.weight": (3, 4, 3, 3), "last.bias": (3,), "scores.weight": (3, 60), "scores.bias": (3,)}
    x = values(SHAPE, 5, 8)
    labels = torch.tensor([2, 0])
    for activation, act in ACTIVATIONS.items():
        for producer, own in of.items():
            p = parameters({**{"first." + key: shape for key, shape in four.items()}, **own, **tail})
            y = images(x, p, producer, act).flatten(1)
            report(lines, activation + "_" + producer, F.linear(y, p["scores.weight"], p["scores.bias"]), labels, p)
        p = parameters({"first.weight": (7, 60), "first.bias": (7,), "scores.weight": (3, 7), "scores.bias": (3,)})
        y = act(F.linear(x.flatten(1), p["first.weight"], p["first.bias"]))
        report(lines, activation + "_dense", F.linear(y, p["scores.weight"], p["scores.bias"]), labels, p)
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


def report(lines, case, scores, labels, p):
    loss = F.cross_entropy(scores, labels)
    loss.backward()
    for which, numbers in [("loss", loss)] + [(name, each.grad) for name, each in p.items()]:
        lines.append(" ".join([case, which] + [repr(float(v)) for v in numbers.detach().reshape(-1)]))


if __name__ == "__main__":
    main()
