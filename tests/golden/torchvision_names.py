#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes the names and shapes of models of torchvision and timm: torchvision_names.py [FILE]

tests/unit/io/torchvision.cpp reads them: a line for each model, and behind it a line for each tensor with its name and
its extents. It needs PyTorch, torchvision 0.29 and timm 1.0.
"""

import pathlib
import sys

import timm
import torch
import torchvision

MODELS = ("resnet18", "resnet34", "resnet50", "vgg11", "vgg16", "vgg16_bn", "vgg19_bn", "alexnet", "mobilenet_v2",
          "googlenet", "inception_v3", "timm/resnet18", "timm/mobilenetv2_100", "timm/mobilenetv2_035")


def tensors_of(model):
    if model.startswith("timm/"):
        return timm.create_model(model[5:]).state_dict()
    options = {"init_weights": False} if model in ("googlenet", "inception_v3") else {}
    return getattr(torchvision.models, model)(weights=None, **options).state_dict()


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_suffix(".txt")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"# Written by tests/golden/torchvision_names.py with torchvision {torchvision.__version__} "
                   f"and timm {timm.__version__}\n")
        for model in MODELS:
            with torch.device("meta"):
                tensors = tensors_of(model)
            file.write(f"model {model}\n")
            for name, tensor in tensors.items():
                file.write(" ".join([name, *map(str, tensor.shape)]) + "\n")


if __name__ == "__main__":
    main()
