#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Training steps a second in PyTorch, for comparison with training_step.cu: pytorch_step.py [CASE [SECONDS]]

Channels last, cudnn.benchmark on, torch.compile off, one batch that stays on the card. Cases: resnet50_tf32,
resnet50_bfloat16 (autocast), resnet50_float16 (autocast and GradScaler), mnist. A line of JSON for each round of each
case. Ends with code 77 where there is no GPU or no PyTorch.
"""

import json
import sys
import time

try:
    import torch
except ImportError:
    print("skipped: there is no PyTorch")
    sys.exit(77)
from torch import nn

ROUNDS = 3


class Bottleneck(nn.Module):
    """He et al. 2016, with the stride at the 3 x 3 convolution (v1.5), as models::resnet has it by default."""

    def __init__(self, channels, depth, stride):
        super().__init__()
        out = 4 * depth
        self.conv1 = nn.Conv2d(channels, depth, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(depth)
        self.conv2 = nn.Conv2d(depth, depth, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(depth)
        self.conv3 = nn.Conv2d(depth, out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        shortcut = x if self.shortcut is None else self.shortcut(x)
        x = self.relu(self.norm1(self.conv1(x)))
        x = self.relu(self.norm2(self.conv2(x)))
        return self.relu(self.norm3(self.conv3(x)) + shortcut)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for depth, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, depth, stride if block == 0 else 1))
            channels = 4 * depth
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def mnist():
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(64 * 7 * 7, 1024), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(1024, 10))


def run(name, model, image, batch, classes, element, seconds):
    device = torch.device("cuda")
    model = model.to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    loss_of = nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler("cuda", enabled=element == torch.float16)
    images = (torch.rand(batch, *image, device=device) - 0.5).to(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=device) % classes

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", element, enabled=element != torch.float32):
            loss = loss_of(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    for _ in range(5):
        step()
    for round_number in range(ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        steps = 0
        while time.perf_counter() - began < seconds / ROUNDS:
            loss = step().item()  # as a training loop that shows its loss: gradus waits for it too
            steps += 1
        torch.cuda.synchronize()
        took = time.perf_counter() - began
        print(json.dumps({"case": name, "library": f"PyTorch {torch.__version__}", "round": round_number,
                          "steps_per_second": round(steps / took, 2), "images_per_second": round(batch * steps / took),
                          "loss": round(loss, 4)}), flush=True)


def main():
    if not torch.cuda.is_available():
        print("skipped: there is no CUDA device")
        return 77
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 12.0
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    photo = (3, 224, 224)
    cases = {"resnet50_tf32": (resnet50, photo, 256, 1000, torch.float32),
             "resnet50_bfloat16": (resnet50, photo, 256, 1000, torch.bfloat16),
             "resnet50_float16": (resnet50, photo, 256, 1000, torch.float16),
             "mnist": (mnist, (1, 28, 28), 64, 10, torch.float32)}
    for name, (make, image, batch, classes, element) in cases.items():
        if only in ("", name):
            run(name, make(), image, batch, classes, element, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
