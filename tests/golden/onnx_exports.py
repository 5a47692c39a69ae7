#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Exports small networks of PyTorch as ONNX files with images and scores: onnx_exports.py FOLDER [--torchvision]

NAME_dynamo.onnx and NAME_script.onnx (the two exporters of torch.onnx), with NAME_....input.npy and .output.npy. What
the library reads of them is compared by tests/onnx/read_models.cpp. It needs torch, onnx and onnxscript. With
--torchvision the networks are ResNet-50, VGG-16 and MobileNetV2 of torchvision with random weights, 700 MB.
"""

import pathlib
import sys

import numpy
import torch
from torch import nn


def random_statistics(model):
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    return model.eval()


def double_convolution(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, channels=4, depth=3):
        super().__init__()
        self.depth = depth
        self.down = nn.ModuleList([double_convolution(1 if k == 0 else channels * 2**(k - 1), channels * 2**k)
                                   for k in range(depth)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(channels * 2**(k + 1), channels * 2**k, 2, stride=2)
                                 for k in range(depth - 1)])
        self.merge = nn.ModuleList([double_convolution(channels * 2**(k + 1), channels * 2**k)
                                    for k in range(depth - 1)])
        self.scores = nn.Conv2d(channels, 2, 1)

    def forward(self, x):
        skips = []
        for k in range(self.depth):
            x = self.down[k](x)
            if k + 1 < self.depth:
                skips.append(x)
                x = nn.functional.max_pool2d(x, 2)
        for k in reversed(range(self.depth - 1)):
            x = self.merge[k](torch.cat([skips[k], self.up[k](x)], 1))
        return self.scores(x)


class Residual(nn.Module):
    """A residual network with squeeze-and-excitation, pooling with ceil_mode, and two dense layers."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU6())
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
                                  nn.Conv2d(8, 8, 1))
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.SiLU(), nn.Conv2d(2, 8, 1),
                                     nn.Sigmoid())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 4 * 4, 10), nn.Dropout(0.5), nn.PReLU(), nn.Linear(10, 5))

    def forward(self, x):
        x = self.pool(self.stem(x))
        y = self.body(x)
        return nn.functional.log_softmax(self.head(x + y * self.squeeze(y)), dim=1)


class Shapes(nn.Module):
    """Normalizations, paddings, resizing, shuffles and arithmetic."""

    def __init__(self):
        super().__init__()
        self.circular = nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular")
        self.reflect = nn.Conv2d(8, 8, 3, padding=2, dilation=2, padding_mode="reflect")
        self.group = nn.GroupNorm(4, 8)
        self.instance = nn.InstanceNorm2d(8, affine=True)
        self.layer = nn.LayerNorm([8, 6, 6])
        self.channels = nn.LayerNorm(8)
        self.upsample = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.nearest = nn.Upsample(size=(12, 18), mode="nearest")
        for norm in (self.group, self.instance, self.layer, self.channels):
            nn.init.normal_(norm.weight, 1, 0.2)
            nn.init.normal_(norm.bias, 0, 0.2)

    def forward(self, x):
        x = nn.functional.elu(self.group(self.circular(x)))
        x = nn.functional.gelu(self.instance(self.reflect(x)))
        x = self.layer(x) - 0.5 * torch.tanh(x)
        x = self.channels(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = nn.functional.leaky_relu(self.upsample(nn.functional.pixel_shuffle(x, 2)), 0.2)  # (2, 24, 24)
        y = nn.functional.softplus(self.nearest(x))[:, :, 2:11, 1:-3]
        z = nn.functional.pad(x[:, :, :9, :14], (0, 0, 0, 0), value=1.5)
        w = torch.where(y > z, torch.maximum(y, z) / (1 + y * y), 3 - z)
        return torch.softmax(torch.exp(torch.clamp(w, -1, 2)) + torch.sqrt(torch.abs(z)), dim=1)


def export(folder, name, model, shape):
    images = torch.randn(*shape)
    with torch.no_grad():
        scores = model(images)
    for exporter in ("dynamo", "script"):
        path = folder / f"{name}_{exporter}.onnx"
        if exporter == "dynamo":
            torch.onnx.export(model, (images,), str(path), dynamo=True, external_data=False,
                              dynamic_shapes=({0: torch.export.Dim("N")},))
            strip(path)
        else:
            torch.onnx.export(model, (images,), str(path), dynamo=False, dynamic_axes={"input": {0: "N"}},
                              input_names=["input"])
        numpy.save(path.with_suffix(".input.npy"), images.numpy())
        numpy.save(path.with_suffix(".output.npy"), scores.numpy())


def strip(path):
    """Leaves out the texts that name the program that exported."""
    import onnx
    model = onnx.load(str(path))
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
        del value.metadata_props[:]
    del model.graph.value_info[:]
    del model.metadata_props[:]
    onnx.save(model, str(path))


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(3)
    if "--torchvision" in sys.argv:
        import torchvision
        for name in ("resnet50", "vgg16", "mobilenet_v2"):
            export(folder, name, random_statistics(getattr(torchvision.models, name)()), (2, 3, 224, 224))
        return
    export(folder, "unet", random_statistics(UNet()), (2, 1, 16, 24))
    export(folder, "residual", random_statistics(Residual()), (2, 3, 16, 16))
    export(folder, "shapes", random_statistics(Shapes()), (2, 3, 6, 6))


if __name__ == "__main__":
    main()
