#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes losses.txt: what PyTorch's losses and their gradients are, for tests/unit/nn/losses_golden.cpp.

    python3 tests/golden/losses.py

It needs PyTorch; losses.txt was written with torch 2.15.0 of PyPI. Each line is a case, an element type, the loss and
the gradient by the scores in the order (n, c, h, w). Scores and targets are fractions that float and double store
exactly. The loss of an example is the mean over its elements or pixels; losses are summed over the examples.
"""

import pathlib

import torch
import torch.nn.functional as F

SHAPES = {"vector": (3, 5, 1, 1), "image": (2, 4, 3, 2)}  # n, c, h, w
TYPES = {"double": torch.float64, "float": torch.float32}


def scores(count):
    return [((37 * i + 11) % 64 - 31) / 16 for i in range(count)]


def targets(count):
    return [((23 * i + 5) % 32) / 32 for i in range(count)]


def labels(count, classes):
    """Every fourth label is 255: it is ignored where the case says so, and else class 0."""
    return [255 if i % 4 == 1 else (3 * i + 1) % classes for i in range(count)]


def weights(count):
    return [0.5 + i % 3 for i in range(count)]


def class_weights(count):
    return [0.5 + 0.25 * i for i in range(count)]


def per_example(values):
    """(n, ...) to the mean of each example."""
    return values.flatten(1).mean(1)


def cross_entropy(smoothing=0.0, weighted=False, ignores=False):
    def run(y, dtype):
        n, c, h, w = y.shape
        classes = torch.tensor(labels(n * h * w, c)).reshape(n, h, w)
        if not ignores:
            classes[classes == 255] = 0
        values = F.cross_entropy(y, classes, reduction="none", label_smoothing=smoothing, ignore_index=255,
                                 weight=torch.tensor(class_weights(c), dtype=dtype) if weighted else None)
        return per_example(values)
    return run


def valid_mean(weighted=False):
    """PyTorch's "mean" over the valid labels, as a part of each example times the examples and pixels."""
    def run(y, dtype):
        n, c, h, w = y.shape
        classes = torch.tensor(labels(n * h * w, c)).reshape(n, h, w)
        weight = torch.tensor(class_weights(c), dtype=dtype) if weighted else None
        values = F.cross_entropy(y, classes, reduction="none", label_smoothing=0.125, ignore_index=255, weight=weight)
        mean = F.cross_entropy(y, classes, label_smoothing=0.125, ignore_index=255, weight=weight)
        return values.flatten(1).sum(1) * (mean / values.sum()).detach() * n
    return run


def soft(y, dtype):
    t = torch.tensor(targets(y.numel()), dtype=dtype).reshape(y.shape)
    return per_example(F.cross_entropy(y, t, reduction="none"))


def real(function):
    def run(y, dtype):
        t = torch.tensor(targets(y.numel()), dtype=dtype).reshape(y.shape)
        return per_example(function(y, t))
    return run


def cosine(zeros=None):
    def run(y, dtype):
        t = torch.tensor(targets(y.numel()), dtype=dtype).reshape(y.shape)
        t = t - 0.25
        if zeros == "targets":
            t[0] = 0
        return per_example(1 - F.cosine_similarity(y, t, dim=1))
    return run


def small_scores(y):
    """The first example is smaller than the epsilon of the cosine."""
    y = y.clone()
    y[0] = y[0] * 2.0 ** -30
    return y


def zero_scores(y):
    y = y.clone()
    y[0] = 0
    return y


CASES = {
    "cross_entropy": cross_entropy(),
    "cross_entropy_smoothing": cross_entropy(smoothing=0.125),
    "cross_entropy_weights": cross_entropy(weighted=True),
    "cross_entropy_ignored": cross_entropy(ignores=True),
    "cross_entropy_all": cross_entropy(smoothing=0.125, weighted=True, ignores=True),
    "binary_cross_entropy": real(lambda y, t: F.binary_cross_entropy_with_logits(y, t, reduction="none")),
    "binary_cross_entropy_positive": real(lambda y, t: F.binary_cross_entropy_with_logits(
        y, t, reduction="none", pos_weight=torch.tensor(2.5, dtype=y.dtype))),
    "mean_squared_error": real(lambda y, t: F.mse_loss(y, t, reduction="none")),
    "mean_absolute_error": real(lambda y, t: F.l1_loss(y, t, reduction="none")),
    "huber": real(lambda y, t: F.huber_loss(y, t, reduction="none", delta=0.75)),
    "cross_entropy_valid": valid_mean(),
    "cross_entropy_valid_weights": valid_mean(weighted=True),
    "soft_cross_entropy": soft,
    "cosine_similarity": cosine(),
    "cosine_similarity_zero_targets": cosine(zeros="targets"),
}
CHANGED = {"cosine_similarity_zero_scores": (cosine(), zero_scores),
           "cosine_similarity_small_scores": (cosine(), small_scores)}


def lines():
    cases = {name: (run, lambda y: y) for name, run in CASES.items()} | CHANGED
    for name, (run, change) in cases.items():
        for shape_name, shape in SHAPES.items():
            for with_weights in (False, True):
                for type_name, dtype in TYPES.items():
                    count = shape[0] * shape[1] * shape[2] * shape[3]
                    y = change(torch.tensor(scores(count), dtype=dtype).reshape(shape)).requires_grad_()
                    values = run(y, dtype)
                    if with_weights:
                        values = values * torch.tensor(weights(shape[0]), dtype=dtype)
                    loss = values.sum()
                    loss.backward()
                    digits = 17 if type_name == "double" else 9
                    numbers = [loss.item()] + y.grad.flatten().tolist()
                    yield " ".join([name, shape_name, "weighted" if with_weights else "plain", type_name] +
                                   [f"{number:.{digits}g}" for number in numbers])


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_suffix(".txt")
    path.write_text(f"# Written by losses.py with PyTorch {torch.__version__.split('+')[0]}.\n" +
                    "\n".join(lines()) + "\n")
