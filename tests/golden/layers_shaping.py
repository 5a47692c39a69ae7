#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes layers_shaping.txt: what PyTorch computes where gradus has the layers of nn/layers/shaping.hpp, for
tests/property/nn_shaping/golden.cpp.

    python3 tests/golden/layers_shaping.py

It needs PyTorch. Each line is a case, an array and its extents (n, c, h, w), then its elements in that order, in double
precision. x and, with two inputs, b are inputs, y is the output, g the gradient of the output, dx and db are the
gradients of the inputs. Inputs and g are fractions that float stores exactly.
"""

import pathlib

import torch
import torch.nn.functional as F


def fractions(shape, seed):
    count = 1
    for extent in shape:
        count *= extent
    return torch.tensor([((7919 * i + 1047 * seed + 31 * i * seed) % 255 - 127) / 64 for i in range(count)],
                        dtype=torch.float64).reshape(shape)


def resize(**options):
    return lambda x: F.interpolate(x, **options)


CASES = {
    "nearest_2": (resize(scale_factor=2, mode="nearest"), [(2, 3, 3, 4)]),
    "nearest_3_1": (resize(scale_factor=(3, 1), mode="nearest"), [(1, 2, 3, 5)]),
    "nearest_larger": (resize(size=(7, 9), mode="nearest"), [(1, 3, 5, 4)]),
    "nearest_smaller": (resize(size=(3, 2), mode="nearest"), [(2, 2, 7, 5)]),
    "bilinear_2": (resize(scale_factor=2, mode="bilinear"), [(2, 3, 3, 4)]),
    "bilinear_4_3": (resize(scale_factor=(4, 3), mode="bilinear"), [(1, 2, 2, 3)]),
    "bilinear_larger": (resize(size=(7, 9), mode="bilinear"), [(1, 3, 5, 4)]),
    "bilinear_smaller": (resize(size=(3, 2), mode="bilinear"), [(2, 2, 7, 5)]),
    "bilinear_of_one": (resize(size=(3, 4), mode="bilinear"), [(1, 2, 1, 1)]),
    "corners_2": (resize(scale_factor=2, mode="bilinear", align_corners=True), [(2, 3, 3, 4)]),
    "corners_larger": (resize(size=(7, 9), mode="bilinear", align_corners=True), [(1, 3, 5, 4)]),
    "corners_smaller": (resize(size=(3, 2), mode="bilinear", align_corners=True), [(1, 2, 7, 5)]),
    "corners_to_one": (resize(size=(1, 1), mode="bilinear", align_corners=True), [(1, 2, 4, 3)]),
    "pixel_shuffle_2": (lambda x: F.pixel_shuffle(x, 2), [(2, 12, 2, 3)]),
    "pixel_shuffle_3": (lambda x: F.pixel_shuffle(x, 3), [(1, 18, 2, 2)]),
    "pixel_unshuffle_2": (lambda x: F.pixel_unshuffle(x, 2), [(2, 3, 4, 6)]),
    "pixel_unshuffle_3": (lambda x: F.pixel_unshuffle(x, 3), [(1, 2, 3, 6)]),
    "crop": (lambda x: x[:, :, 1:4, 2:6], [(2, 3, 5, 7)]),
    "slice": (lambda x: x[:, 1:3, :, 3:5], [(2, 4, 3, 5)]),
    "permute": (lambda x: x.permute(0, 3, 1, 2), [(2, 3, 4, 5)]),
    "reshape": (lambda x: x.reshape(x.shape[0], 6, 2, 5), [(2, 3, 4, 5)]),
    "reshape_unrefined": (lambda x: x.reshape(x.shape[0], 6, 2, 5), [(2, 4, 5, 3)]),
    "multiply": (lambda x, b: x * b, [(2, 3, 3, 4), (2, 3, 3, 4)]),
    "multiply_channels": (lambda x, b: x * b, [(2, 3, 3, 4), (2, 3, 1, 1)]),
    "softmax": (lambda x: F.softmax(x, dim=1), [(2, 5, 3, 3)]),
    "softmax_vector": (lambda x: F.softmax(x, dim=1), [(3, 11, 1, 1)]),
    "log_softmax": (lambda x: F.log_softmax(x, dim=1), [(2, 5, 3, 3)]),
    "log_softmax_vector": (lambda x: F.log_softmax(x, dim=1), [(3, 11, 1, 1)]),
}


def main():
    lines = [f"# Written by layers_shaping.py with PyTorch {torch.__version__.split('+')[0]}."]
    for number, (name, (function, shapes)) in enumerate(CASES.items()):
        inputs = [fractions(shape, 3 * number + k).requires_grad_() for k, shape in enumerate(shapes)]
        output = function(*inputs)
        gradient = fractions(tuple(output.shape), 3 * number + 2)
        output.backward(gradient)
        arrays = dict(zip("xb", inputs))
        arrays.update({"y": output, "g": gradient})
        arrays.update({f"d{key}": value.grad for key, value in zip("xb", inputs)})
        for what, values in arrays.items():
            lines.append(" ".join([name, what] + [str(extent) for extent in values.shape] +
                                  [format(float(value), ".17g") for value in values.detach().reshape(-1)]))
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
