#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares the scores of models with those of torchvision and timm: compare.py LOGITS [--all | MODEL...]

The weights are random: nothing is downloaded. For each model and both layouts

  * the scores of a network with the model's weights must agree to 1e-4 of the largest one,
  * the file that the network saves must have all weights of the model, to the bit, and the model must load it,
  * the weights of auxiliary classifiers, and no others, must be ignored.

MODEL is "resnet50" of torchvision, or "timm/resnet50". Without models it compares the smaller ones of each kind; with
--all every model that has a map. It needs PyTorch, torchvision 0.29 and safetensors. Exit code 77: this Python does not
have them. Models of timm (1.0) are left out where it is not installed.
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77

try:
    import numpy as np
    import torch
    import torchvision
    from safetensors.torch import load_file, save_file
except ImportError as failure:
    print(f"skipped: {failure}")
    sys.exit(SKIPPED)

MODELS = ("resnet18", "resnet50", "vgg11", "vgg16_bn", "alexnet", "mobilenet_v2", "googlenet", "inception_v3",
          "timm/resnet18", "timm/mobilenetv2_100", "timm/inception_v3")
ALL_MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg16", "vgg19", "vgg11_bn",
              "vgg16_bn", "vgg19_bn", "alexnet", "mobilenet_v2", "googlenet", "inception_v3",
              "timm/resnet18", "timm/resnet34", "timm/resnet50", "timm/resnet101", "timm/resnet152", "timm/vgg11",
              "timm/vgg16", "timm/vgg19", "timm/vgg11_bn", "timm/vgg16_bn", "timm/vgg19_bn", "timm/inception_v3",
              "timm/mobilenetv2_035", "timm/mobilenetv2_050", "timm/mobilenetv2_075", "timm/mobilenetv2_100",
              "timm/mobilenetv2_140")
# Rows and columns of images; less than 224 where the network allows it, to save time. The second size of googlenet has
# odd extents before poolings of stride 2.
SIZES = {"googlenet": ((224, 224), (199, 231)), "inception_v3": ((299, 299),), "resnet50": ((224, 224),),
         "resnet": ((96, 128),), "mobilenet_v2": ((224, 224),), "mobilenet": ((96, 128),), "": ((224, 224),)}
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
# Channels of normalized images, and of those with which googlenet and inception_v3 were trained.
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


def make_model(name, auxiliary):
    """The model without memory for its weights."""
    with torch.device("meta"):
        if name.startswith("timm/"):
            import timm
            options = {"aux_logits": False} if name == "timm/inception_v3" else {}
            return timm.create_model(name[5:], **options).eval()
        options = {}
        if name in ("googlenet", "inception_v3"):
            options = {"aux_logits": auxiliary, "init_weights": False, "transform_input": True}
        return getattr(torchvision.models, name)(weights=None, **options).eval()


def sizes_of(name):
    """The sizes of the longest entry with which the model's name begins."""
    entries = [each for each in SIZES if name.removeprefix("timm/").startswith(each)]
    return SIZES[max(entries, key=len)]


def random_model(name, images):
    """Random weights and biases. Running statistics are those of the images times or plus random numbers, so that scores
    depend on every weight and statistic."""
    torch.manual_seed(1)
    model = make_model(name, auxiliary=True).to_empty(device="cpu")
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if key.endswith("num_batches_tracked"):
                tensor.fill_(7)
            elif key.endswith("running_var"):
                tensor.uniform_(0.5, 2)
            elif key.endswith("running_mean") or key.endswith("bias"):
                tensor.normal_(0, 0.1)
            elif tensor.dim() == 1:
                tensor.uniform_(0.5, 1.5)
            else:
                tensor.normal_(0, (2 / tensor[0].numel()) ** 0.5)
        norms = [each for each in model.modules() if isinstance(each, torch.nn.BatchNorm2d)]
        for each in norms:
            each.train()
            each.momentum = 1.0
        model(images)
        for each in norms:
            each.eval()
            each.num_batches_tracked.fill_(7)
            each.running_mean.add_(each.running_var.sqrt() * 0.3 * torch.randn_like(each.running_mean))
            each.running_var.mul_(torch.empty_like(each.running_var).uniform_(0.5, 2))
    return model


def weights_for_file(name, model):
    """The weights as docs/weights.md says that they are saved."""
    weights = model.state_dict()
    if name.startswith("timm/vgg"):
        weights = {key: each.flatten(1) if key.startswith("pre_logits") and each.dim() == 4 else each
                   for key, each in weights.items()}
    return weights


def differences_of_saved(name, model, path):
    """What the file of the network has otherwise than the model. The model has to load the file."""
    saved = load_file(path)
    weights = weights_for_file(name, model)
    lines = []
    for key in sorted(weights.keys() | saved.keys()):
        if key.endswith("num_batches_tracked") or key.startswith(AUXILIARY):
            if key in saved:
                lines.append(f"{key} is saved")
        elif key not in saved or key not in weights:
            lines.append(f"{key} is only in {'the model' if key in weights else 'the file'}")
        elif not torch.equal(saved[key], weights[key]):
            lines.append(f"{key} differs")
    shapes = {key: each.shape for key, each in model.state_dict().items()}
    saved = {key: each.view(shapes[key]) for key, each in saved.items() if key in shapes}
    make_model(name, auxiliary=False).to_empty(device="cpu").load_state_dict(saved, strict=True)
    return lines


def compare(program, folder, name, size):
    """The largest relative difference of scores in both layouts, or infinity if names or weights differ."""
    raw = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(2))
    images = (raw - MEAN) / DEVIATION
    model = random_model(name, images)
    with torch.no_grad():
        expected = model(images).numpy()
    transforms = name in ("googlenet", "inception_v3")
    np.save(folder / "images.npy", ((raw - 0.5) / 0.5 if transforms else images).numpy())
    weights = weights_for_file(name, model)
    save_file(weights, folder / "weights.safetensors")
    ignored = sorted(key for key in weights if key.startswith(AUXILIARY))
    worst = 0.0
    for layout in ("nchw", "nhwc"):
        run = subprocess.run([program, name, layout, folder / "weights.safetensors", folder / "images.npy",
                              folder / "scores.npy", folder / "saved.safetensors"], stdout=subprocess.PIPE, text=True)
        if run.returncode != 0:
            print(f"{name} {layout}: {program} failed", flush=True)
            return float("inf")
        found = np.load(folder / "scores.npy")
        difference = float(np.abs(found - expected).max() / np.abs(expected).max())
        worst = max(worst, difference)
        print(f"{name} {size[0]} x {size[1]} {layout}: {difference:.1e} of {np.abs(expected).max():.3g}", flush=True)
        wrong = differences_of_saved(name, model, folder / "saved.safetensors")
        if sorted(run.stdout.split()) != ignored:
            wrong.append(f"ignored are {run.stdout.split()} instead of {ignored}")
        for line in wrong:
            print(f"{name} {layout}: {line}", flush=True)
            worst = float("inf")
    return worst


def main():
    program = sys.argv[1]
    names = sys.argv[2:] or MODELS
    if names == ["--all"]:
        names = ALL_MODELS
    worst = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if name.startswith("timm/") and importlib.util.find_spec("timm") is None:
                print(f"{name} is left out: timm is not installed")
                continue
            for size in sizes_of(name):
                worst[name] = max(worst.get(name, 0.0), compare(program, pathlib.Path(folder), name, size))
    largest = max(worst.values(), default=0.0)
    print(f"largest difference: {largest:.1e}")
    failed = [name for name, each in worst.items() if not each < 1e-4]
    if failed:
        print(f"failed: {', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
