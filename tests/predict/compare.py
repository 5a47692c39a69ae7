#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares the example `predict` with other programs: compare.py PREDICT MAKE

MAKE writes weights of a ResNet-18, a photograph, and the scores that the network has of it as it trains, without folded
normalizations. The classes and probabilities that PREDICT prints must be those. Where this Python has PyTorch,
torchvision, Pillow and safetensors, they must be those of torchvision's resnet18 behind its own transforms too.
"""

import math
import pathlib
import subprocess
import sys
import tempfile

MOST = 1e-3  # difference of a probability from PyTorch's; 1e-4 from the network's as it trains


def five_best(scores):
    """[(probability, class)] of a list of scores, the most probable first."""
    largest = max(scores)
    exponentials = [math.exp(score - largest) for score in scores]
    probabilities = [each / sum(exponentials) for each in exponentials]
    return sorted(((each, number) for number, each in enumerate(probabilities)), reverse=True)[:5]


def scores_of_torchvision(folder):
    """The scores of PyTorch, or None where it is missing."""
    try:
        import torch
        import torchvision
        from PIL import Image
        from safetensors.torch import load_file
    except ImportError as failure:
        print(f"not compared with PyTorch: {failure}")
        return None
    transforms = torchvision.transforms
    model = torchvision.models.resnet18(weights=None, num_classes=10)
    missing, unexpected = model.load_state_dict(load_file(folder / "weights.safetensors"), strict=False)
    if unexpected or any(not name.endswith("num_batches_tracked") for name in missing):
        sys.exit(f"missing {missing}, unexpected {unexpected}")
    prepare = transforms.Compose([
        transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(),
        transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])])
    with torch.no_grad():
        image = prepare(Image.open(folder / "photograph.jpg").convert("RGB"))
        return model.eval()(image[None])[0].tolist()


def compare(what, printed, expected, most):
    """Ends the program unless the classes are the same and the probabilities agree."""
    difference = max(abs(have[0] - want[0]) for have, want in zip(printed, expected))
    print(f"{what}: largest difference of a probability {difference:.1e}")
    if [have[1] for have in printed] != [want[1] for want in expected] or difference > most:
        sys.exit(f"{what}: expected {expected}, got {printed}")


def main():
    program, make = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([make, folder], check=True)
        expected = five_best([float(line) for line in (folder / "expected.txt").read_text().split()])
        if min(one[0] - next_one[0] for one, next_one in zip(expected, expected[1:])) < 1e-4:
            sys.exit(f"the probabilities are too close to be compared: {expected}")
        (folder / "labels.txt").write_text("".join(f"kind {i}\n" for i in range(10)))
        for weights, labels in (("weights", None), ("own", "labels.txt")):
            command = [program, "--model", "resnet18", "--weights", folder / f"{weights}.safetensors"]
            command += ["--labels", folder / labels] if labels else []
            lines = subprocess.run(command + [folder / "photograph.jpg"], check=True, stdout=subprocess.PIPE,
                                   text=True).stdout.splitlines()
            words = [line.split() for line in lines[1:]]
            if lines[0] != str(folder / "photograph.jpg") or len(words) != 5:
                sys.exit(f"expected the name of the file and five classes, got {lines}")
            if any(each[2:] != (["kind", each[1]] if labels else []) for each in words):
                sys.exit(f"expected the names of classes where there are labels, got {lines}")
            printed = [(float(each[0]), int(each[1])) for each in words]
            compare(f"{weights}, the network as it trains", printed, expected, 1e-4)
            scores = scores_of_torchvision(folder)
            if scores is not None:
                compare(f"{weights}, PyTorch", printed, five_best(scores), MOST)


if __name__ == "__main__":
    main()
