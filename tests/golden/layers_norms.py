#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes layers_norms.txt: what PyTorch's normalizations compute, for tests/property/nn/norms.cpp.

    python3 tests/golden/layers_norms.py

It needs PyTorch; layers_norms.txt was written with torch 2.15.0 of PyPI. torchvision's LayerNorm2d is written here by
its definition: the channels are moved to the end for layer_norm. Each line is a case, "y", "dx", "dweight" or "dbias", and
numbers in the order n, c, h, w. Inputs are fractions that float and double store exactly.
"""

import pathlib

import torch

SHAPE = (2, 6, 2, 3)


def values(count, first):
    return [((37 * i * i + 101 * i + first) % 257 - 128) / 64 for i in range(count)]


def tensor(shape, first):
    count = 1
    for extent in shape:
        count *= extent
    return torch.tensor(values(count, first), dtype=torch.float64).reshape(shape)


class LayerNorm2d(torch.nn.LayerNorm):
    """As torchvision.ops.misc has it."""

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = torch.nn.functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


CASES = {
    "group_norm": lambda: torch.nn.GroupNorm(3, 6),
    "group_norm_1": lambda: torch.nn.GroupNorm(1, 6, eps=0.01),
    "instance_norm": lambda: torch.nn.InstanceNorm2d(6),
    "instance_norm_affine": lambda: torch.nn.InstanceNorm2d(6, affine=True),
    "layer_norm": lambda: torch.nn.LayerNorm([6, 2, 3]),
    "layer_norm_2d": lambda: LayerNorm2d(6, eps=1e-6),
}


def main():
    lines = ["# written by layers_norms.py"]
    for name, make in CASES.items():
        layer = make().double()
        for first, parameter in enumerate(layer.parameters()):
            parameter.data = tensor(parameter.shape, 11 + first) + 1.0 / 128  # never 0
        x = (tensor(SHAPE, 5) + 3).requires_grad_()
        y = layer(x)
        y.backward(tensor(SHAPE, 77))
        results = [("y", y), ("dx", x.grad)]
        if list(layer.parameters()):
            results += [("dweight", layer.weight.grad), ("dbias", layer.bias.grad)]
        for which, numbers in results:
            lines.append(" ".join([name, which] + [repr(float(v)) for v in numbers.detach().reshape(-1)]))
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
