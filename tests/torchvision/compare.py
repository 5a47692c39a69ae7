#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares the scores of models with torchvision's: compare.py LOGITS [MODEL...]

The weights are random: nothing is downloaded. The scores of two images must agree to 1e-4 of the largest one in both
layouts. It needs PyTorch, torchvision 0.29 and safetensors. Exit code 77: this Python does not have them.
"""

import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77

try:
    import numpy as np
    import torch
    import torchvision
    from safetensors.torch import save_file
except ImportError as failure:
    print(f"skipped: {failure}")
    sys.exit(SKIPPED)

MODELS = ("resnet18", "resnet50", "vgg11", "vgg16_bn", "alexnet", "mobilenet_v2")


def random_model(name):
    """Weights of PyTorch's initialization, with biases and statistics that are not 0 and 1."""
    torch.manual_seed(1)
    model = getattr(torchvision.models, name)(weights=None)
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if key.endswith("running_var"):
                tensor.uniform_(0.5, 2)
            elif key.endswith("running_mean") or key.endswith("bias"):
                tensor.normal_(0, 0.1)
            elif tensor.dim() == 1:
                tensor.uniform_(0.5, 1.5)
    return model.eval()


def main():
    program = sys.argv[1]
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(2))
        np.save(folder / "images.npy", images.numpy())
        for model_name in sys.argv[2:] or MODELS:
            model = random_model(model_name)
            with torch.no_grad():
                expected = model(images).numpy()
            save_file(model.state_dict(), folder / "weights.safetensors")
            for layout in ("nchw", "nhwc"):
                subprocess.run([program, model_name, layout, folder / "weights.safetensors", folder / "images.npy",
                                folder / "scores.npy"], check=True)
                found = np.load(folder / "scores.npy")
                difference = float(np.abs(found - expected).max() / np.abs(expected).max())
                worst = max(worst, difference)
                print(f"{model_name} {layout}: {difference:.1e} of {np.abs(expected).max():.3g}", flush=True)
    print(f"largest difference: {worst:.1e}")
    sys.exit(0 if worst < 1e-4 else 1)


if __name__ == "__main__":
    main()
