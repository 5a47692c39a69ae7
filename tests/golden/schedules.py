#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes schedules.txt: the learning rates of PyTorch's schedules, step by step, for tests/property/optim/schedules.cpp.

    python3 tests/golden/schedules.py

It needs PyTorch; schedules.txt was written with torch 2.15.0 of PyPI.

A line is a case: its name, the steps of an epoch, a number of steps that the schedule is made with, and the rates.
"""

import pathlib

import torch

SCHEDULERS = torch.optim.lr_scheduler
STEPS_PER_EPOCH = [1, 3, 7, 10, 11, 30, 49]
STAIRS = [1, 2, 3, 7, 10]
CYCLES = [4, 5, 10, 21, 33, 51, 101]


def rates(make, steps):
    """The learning rates of a schedule, one for each step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    schedule = make(optimizer)
    result = []
    for step in range(steps):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step + 1 < steps:
            schedule.step()
    return result


def cases():
    """Name, steps of an epoch, the number of steps, and rates."""
    for epoch in STEPS_PER_EPOCH:
        total = 3 * epoch + 5
        for every in STAIRS:
            yield "step_lr", epoch, every, rates(lambda rule: SCHEDULERS.StepLR(rule, every, gamma=0.9), total)
        for first in STAIRS:
            milestones = [first, first + epoch, 2 * epoch + first + 1]
            yield "multi_step_lr", epoch, first, rates(lambda rule: SCHEDULERS.MultiStepLR(rule, milestones), total)
        yield "exponential_lr", epoch, epoch, rates(lambda rule: SCHEDULERS.ExponentialLR(rule, 0.9), total)
        for length in (epoch + 2, total):
            yield "cosine_lr", epoch, length, rates(
                lambda rule: SCHEDULERS.CosineAnnealingLR(rule, length, eta_min=0.01), length + 1)
            yield "polynomial_lr", epoch, length, rates(
                lambda rule: SCHEDULERS.PolynomialLR(rule, length, power=2.0), total)
            yield "linear_lr", epoch, length, rates(
                lambda rule: SCHEDULERS.LinearLR(rule, start_factor=0.25, total_iters=length), total)
    for epoch in (1, 3, 7, 10):
        for total in CYCLES:
            for name, options in {"one_cycle": {}, "one_cycle_linear": {"anneal_strategy": "linear", "pct_start": 0.4},
                                  "one_cycle_three_phase": {"three_phase": True}}.items():
                yield name, epoch, total, rates(
                    lambda rule: SCHEDULERS.OneCycleLR(rule, max_lr=0.4, total_steps=total, cycle_momentum=False,
                                                       **options), total)


def main():
    lines = [f"# Written by schedules.py with PyTorch {torch.__version__.split('+')[0]}."]
    for name, epoch, steps, numbers in cases():
        lines.append(" ".join([name, str(epoch), str(steps)] + [format(x, ".17g") for x in numbers]))
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
