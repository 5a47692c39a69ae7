#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes layers_geometry.txt: what PyTorch computes for dilated and transposed convolutions and for padding, for
tests/property/nn_geometry/golden.cpp.

    python3 tests/golden/layers_geometry.py

It needs PyTorch; layers_geometry.txt was written with torch 2.15.0 of PyPI.

Each line is a case, a tensor (y, dx, dw or db) and its numbers in the order n, c, h, w. Inputs, weights and gradients
of outputs are fractions that 16 bits store exactly.
"""

import pathlib

import torch
from torch.nn import functional

BATCH = 2
MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def fractions(shape, factor, offset, divisor):
    count = 1
    for extent in shape:
        count *= extent
    return torch.tensor([((factor * i + offset) % 64 - 31) / divisor for i in range(count)],
                        dtype=torch.float64).reshape(shape)


def outcomes(module, shape):
    """Forward and all gradients of a module for images of a shape (c, h, w)."""
    module = module.double()
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        if "weight" in parameters:
            parameters["weight"].copy_(fractions(parameters["weight"].shape, 29, 5, 64))
        if "bias" in parameters:
            parameters["bias"].copy_(fractions(parameters["bias"].shape, 23, 17, 32))
    x = fractions((BATCH, *shape), 37, 11, 32).requires_grad_()
    y = module(x)
    y.backward(fractions(y.shape, 41, 3, 32))
    found = {"y": y, "dx": x.grad}
    if "weight" in parameters:
        found["dw"] = parameters["weight"].grad
    if "bias" in parameters:
        found["db"] = parameters["bias"].grad
    return found


class Pad(torch.nn.Module):
    def __init__(self, left, right, top, bottom, mode, value=0):
        super().__init__()
        self.amounts = (left, right, top, bottom)
        self.mode = MODES[mode]
        self.value = value

    def forward(self, x):
        return functional.pad(x, self.amounts, self.mode, self.value if self.mode == "constant" else None)


def cases():
    conv = torch.nn.Conv2d
    transposed = torch.nn.ConvTranspose2d
    yield "dilated", conv(4, 6, 3, padding=2, dilation=2), (4, 9, 7)
    yield "dilated_uneven", conv(3, 5, (3, 2), stride=(1, 2), padding=(3, 1), dilation=(3, 2)), (3, 8, 11)
    yield "dilated_strides", conv(4, 4, 3, stride=2, padding=2, dilation=2), (4, 9, 10)
    yield "dilated_groups", conv(6, 4, 3, padding=3, dilation=3, groups=2, bias=False), (6, 7, 8)
    yield "dilated_depthwise", conv(5, 5, 3, padding=2, dilation=2, groups=5), (5, 6, 7)
    yield "dilated_far", conv(4, 3, 3, padding=6, dilation=6), (4, 5, 7)
    for mode in ("reflect", "replicate", "circular"):
        yield f"conv_{mode}", conv(3, 4, (3, 5), padding=(1, 2), padding_mode=mode), (3, 5, 6)
        yield f"conv_{mode}_dilated", conv(4, 4, 3, stride=2, padding=2, dilation=2, groups=2, padding_mode=mode), (
            4, 7, 6)
        yield f"pad_{mode}", Pad(3, 2, 1, 4, mode), (3, 5, 4)
    yield "pad_zeros", Pad(3, 0, 1, 2, "zeros"), (3, 5, 4)
    yield "pad_constant", Pad(1, 2, 3, 0, "zeros", 0.5), (3, 4, 5)
    yield "transposed", transposed(4, 3, 3), (4, 5, 4)
    yield "transposed_two", transposed(6, 4, 2, stride=2), (6, 5, 4)
    yield "transposed_four", transposed(5, 4, 4, stride=2, padding=1), (5, 4, 6)
    yield "transposed_output_padding", transposed(4, 6, 3, stride=2, padding=1, output_padding=1), (4, 5, 6)
    yield "transposed_dilated", transposed(4, 3, 3, stride=2, padding=2, output_padding=1, dilation=2), (4, 6, 5)
    yield "transposed_groups", transposed(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (4, 5, 4)
    yield "transposed_all", transposed(6, 4, (3, 2), stride=(2, 3), padding=(1, 2), output_padding=(1, 2), groups=2,
                                       dilation=(2, 1), bias=False), (6, 4, 5)
    yield "transposed_gaps", transposed(3, 4, 2, stride=3, output_padding=(2, 1)), (3, 4, 3)
    yield "transposed_point", transposed(3, 4, 1, stride=2), (3, 4, 3)
    yield "transposed_depthwise", transposed(5, 5, 3, stride=2, padding=1, groups=5), (5, 4, 3)


def main():
    lines = ["# Written by layers_geometry.py."]
    for name, module, shape in cases():
        for tensor, values in outcomes(module, shape).items():
            numbers = " ".join(repr(value) for value in values.detach().flatten().tolist())
            lines.append(f"{name} {tensor} {numbers}")
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
