#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes optimizers.txt: what PyTorch's optimizers and schedules compute, for tests/property/optim/golden.cpp.

    python3 tests/golden/optimizers.py

It needs PyTorch and NumPy; optimizers.txt was written with torch 2.15.0 of PyPI.

LAMB and TensorFlow's RMSProp, which PyTorch lacks, are computed here by their definitions. Each line is a case, an
element type and the numbers. Starts and gradients are fractions that float and double store exactly.
"""

import pathlib

import numpy
import torch

STEPS = 200
PARAMETERS = [(1, False), (7, True), (13, True), (3, False)]  # elements, weight decay
FACTORS = [10, 1, 0.25, 0.5]  # of the learning rates, in the cases with groups
TYPES = {"double": (torch.float64, numpy.float64), "float": (torch.float32, numpy.float32)}


def starts():
    """The values before the first step, of all parameters."""
    return [((37 * i + 11) % 64 - 31) / 32 for i in range(sum(size for size, _ in PARAMETERS))]


def gradients(step):
    """Element 3 has no gradient; the others have magnitudes from 2^-9 to 1."""
    count = sum(size for size, _ in PARAMETERS)
    return [0.0 if i == 3 else ((7919 * i + 1047 * step + 31 * i * step) % 2001 - 990) / 1024 / 4 ** (i % 4)
            for i in range(count)]


def rate(step):
    """The learning rate falls once."""
    return 0.02 if step < 120 else 0.005


def split(numbers):
    result = []
    first = 0
    for size, _ in PARAMETERS:
        result.append(numbers[first:first + size])
        first += size
    return result


def train(make, dtype, after_step=None, factors=(1, 1, 1, 1), before_step=None):
    """The parameters after all steps of make(groups). A group is a parameter, with a factor of the learning rate.
    before_step(tensors) changes gradients."""
    tensors = [torch.nn.Parameter(torch.tensor(each, dtype=dtype)) for each in split(starts())]
    rule = make([{"params": [tensor], **({} if decay else {"weight_decay": 0.0})}
                 for tensor, (_, decay) in zip(tensors, PARAMETERS)])
    for step in range(STEPS):
        for tensor, gradient in zip(tensors, split(gradients(step))):
            tensor.grad = torch.tensor(gradient, dtype=dtype)
        for group, factor in zip(rule.param_groups, factors):
            group["lr"] = rate(step) * factor
        if before_step:
            before_step(tensors)
        rule.step()
        if after_step:
            after_step(tensors)
    return [float(x) for tensor in tensors for x in tensor.detach()]


def averaged(decay):
    """The exponential moving average of the weights of plain gradient descent."""
    def run(dtype, _):
        model = None

        def after_step(tensors):
            nonlocal model
            if model is None:
                module = torch.nn.ParameterList(tensors)
                average = torch.optim.swa_utils.get_ema_multi_avg_fn(decay)
                model = (module, torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=average))
            model[1].update_parameters(model[0])

        train(lambda groups: torch.optim.SGD(groups, lr=1.0, momentum=0.9), dtype, after_step)
        return [float(x) for tensor in model[1].module for x in tensor.detach()]
    return run


def lamb(beta1=0.9, beta2=0.999, epsilon=1e-6, weight_decay=0.01):
    """Algorithm 2 of You et al. 2020, with phi(x) = x. Without weight decay the trust ratio is 1."""
    def run(_, kind):
        values = [numpy.array(each, dtype=kind) for each in split(starts())]
        m = [numpy.zeros_like(each) for each in values]
        v = [numpy.zeros_like(each) for each in values]
        for step in range(STEPS):
            for i, gradient in enumerate(split(gradients(step))):
                g = numpy.array(gradient, dtype=kind)
                m[i] = kind(beta1) * m[i] + kind(1 - beta1) * g
                v[i] = kind(beta2) * v[i] + kind(1 - beta2) * g * g
                ratio = (m[i] / kind(1 - beta1 ** (step + 1))) / (
                    numpy.sqrt(v[i] / kind(1 - beta2 ** (step + 1))) + kind(epsilon))
                trust = 1.0
                if PARAMETERS[i][1]:
                    ratio = ratio + kind(weight_decay) * values[i]
                    norms = [float(numpy.linalg.norm(x.astype(numpy.float64))) for x in (values[i], ratio)]
                    trust = norms[0] / norms[1] if norms[0] > 0 and norms[1] > 0 else 1.0
                values[i] = values[i] - kind(rate(step) * trust) * ratio
        return [float(x) for each in values for x in each]
    return run


def tensorflow_rms_prop(rho=0.9, momentum=0.0, epsilon=1e-10, weight_decay=0.0, centered=False):
    """tf.compat.v1.train.RMSPropOptimizer, as the documentation of its kernels defines it: the mean square starts at
    1, epsilon is inside the square root, and the learning rate is inside the momentum."""
    def run(_, kind):
        values = [numpy.array(each, dtype=kind) for each in split(starts())]
        square = [numpy.ones_like(each) for each in values]
        mean = [numpy.zeros_like(each) for each in values]
        velocity = [numpy.zeros_like(each) for each in values]
        for step in range(STEPS):
            for i, gradient in enumerate(split(gradients(step))):
                g = numpy.array(gradient, dtype=kind)
                if PARAMETERS[i][1]:
                    g = g + kind(weight_decay) * values[i]
                square[i] = kind(rho) * square[i] + kind(1 - rho) * g * g
                variance = square[i]
                if centered:
                    mean[i] = kind(rho) * mean[i] + kind(1 - rho) * g
                    variance = square[i] - mean[i] * mean[i]
                velocity[i] = kind(momentum) * velocity[i] + kind(rate(step)) * g / numpy.sqrt(variance + kind(epsilon))
                values[i] = values[i] - velocity[i]
        return [float(x) for each in values for x in each]
    return run


def by_torch(kind, factors=(1, 1, 1, 1), **options):
    return lambda dtype, _: train(lambda groups: kind(groups, lr=1.0, foreach=False, **options), dtype, None, factors)


def clipped(kind, max_norm=None, limit=None, **options):
    """Gradients clipped by their global norm, or by value. 165 of the 200 norms are above 1.25."""
    def before_step(tensors):
        if limit:
            torch.nn.utils.clip_grad_value_(tensors, limit)
        if max_norm:
            torch.nn.utils.clip_grad_norm_(tensors, max_norm)
    return lambda dtype, _: train(lambda groups: kind(groups, lr=1.0, foreach=False, **options), dtype,
                                  before_step=before_step)


ADAM, ADAM_W, RMS, ADAGRAD = (torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad)
RULES = {
    "adam": by_torch(ADAM),
    "adam_decay": by_torch(ADAM, weight_decay=0.1),
    "adam_betas": by_torch(ADAM, betas=(0.8, 0.95), eps=1e-3),
    "adam_amsgrad": by_torch(ADAM, betas=(0.9, 0.9), weight_decay=0.1, amsgrad=True),
    "adam_w": by_torch(ADAM_W),
    "adam_w_amsgrad": by_torch(ADAM_W, betas=(0.9, 0.9), weight_decay=0.5, amsgrad=True),
    "rms_prop": by_torch(RMS),
    "rms_prop_decay": by_torch(RMS, alpha=0.9, eps=1e-3, weight_decay=0.1),
    "rms_prop_centered": by_torch(RMS, centered=True),
    "rms_prop_momentum": by_torch(RMS, momentum=0.9),
    "rms_prop_centered_momentum": by_torch(RMS, centered=True, momentum=0.9, weight_decay=0.1),
    "rms_prop_tensorflow": tensorflow_rms_prop(epsilon=1e-3, weight_decay=0.1),
    "rms_prop_tensorflow_centered": tensorflow_rms_prop(epsilon=1e-3, centered=True),
    "rms_prop_inception": tensorflow_rms_prop(momentum=0.9, epsilon=1.0),
    "rms_prop_tensorflow_all": tensorflow_rms_prop(momentum=0.5, epsilon=0.1, weight_decay=0.1, centered=True),
    "adagrad": by_torch(ADAGRAD),
    "adagrad_all": by_torch(ADAGRAD, lr_decay=0.01, initial_accumulator_value=0.1, weight_decay=0.1, eps=1e-3),
    "lamb": lamb(),
    "lamb_betas": lamb(beta1=0.8, beta2=0.95, epsilon=1e-3, weight_decay=0.1),
    "averaged_weights": averaged(0.97),
    "groups_sgd": by_torch(torch.optim.SGD, FACTORS, momentum=0.9, weight_decay=0.1),
    "groups_adam": by_torch(ADAM, FACTORS, weight_decay=0.1),
    "groups_adam_w": by_torch(ADAM_W, FACTORS, weight_decay=0.5),
    "groups_rms_prop": by_torch(RMS, FACTORS, centered=True, momentum=0.9, weight_decay=0.1),
    "clipped_norm_sgd": clipped(torch.optim.SGD, max_norm=1.25, momentum=0.9, weight_decay=0.1),
    "clipped_norm_adam": clipped(ADAM, max_norm=0.05),
    "clipped_value_sgd": clipped(torch.optim.SGD, limit=0.25, momentum=0.9, weight_decay=0.1),
}


def rates(make, metrics=None, steps=50):
    """The learning rates of a schedule, one for each step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    schedule = make(optimizer)
    result = []
    for step in range(steps):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if metrics:
            schedule.step(metrics[step])
        elif step + 1 < steps:
            schedule.step()
    return result


def scheduled(kind, **options):
    return lambda: rates(lambda rule: kind(rule, **options))


def one_cycle(**options):
    return lambda: rates(lambda rule: torch.optim.lr_scheduler.OneCycleLR(
        rule, max_lr=0.4, total_steps=50, cycle_momentum=False, **options))


def plateau_metrics():
    """Falls, rises and stays, and falls again."""
    return [((step * 13) % 7) / 8 + 64 / (step + 1) if step < 30 else 1.5 - 1 / 1024 * (step - 30) for step in range(60)]


def plateau(**options):
    return lambda: rates(lambda rule: torch.optim.lr_scheduler.ReduceLROnPlateau(rule, **options), plateau_metrics(), 60)


SCHEDULERS = torch.optim.lr_scheduler
SCHEDULES = {
    "step_lr": scheduled(SCHEDULERS.StepLR, step_size=7, gamma=0.5),
    "multi_step_lr": scheduled(SCHEDULERS.MultiStepLR, milestones=[5, 12, 30], gamma=0.1),
    "exponential_lr": scheduled(SCHEDULERS.ExponentialLR, gamma=0.9),
    "cosine_lr": scheduled(SCHEDULERS.CosineAnnealingLR, T_max=49, eta_min=0.01),
    "polynomial_lr": scheduled(SCHEDULERS.PolynomialLR, total_iters=40, power=2.0),
    "linear_lr": scheduled(SCHEDULERS.LinearLR, start_factor=0.25, total_iters=10),
    "one_cycle": one_cycle(),
    "one_cycle_linear": one_cycle(anneal_strategy="linear", pct_start=0.4, div_factor=10, final_div_factor=100),
    "one_cycle_three_phase": one_cycle(three_phase=True),
    "one_cycle_three_phase_linear": one_cycle(three_phase=True, anneal_strategy="linear"),
    "reduce_on_plateau": plateau(patience=3),
    "reduce_on_plateau_all": plateau(factor=0.5, patience=2, threshold=0.01, threshold_mode="abs", cooldown=3,
                                     min_lr=0.02),
    "reduce_on_plateau_max": plateau(mode="max", patience=4, factor=0.5),
}


def main():
    lines = [f"# Written by optimizers.py with PyTorch {torch.__version__.split('+')[0]} and NumPy {numpy.__version__}."]
    for name, run in RULES.items():
        for kind, (dtype, number) in TYPES.items():
            digits = ".17g" if kind == "double" else ".9g"
            lines.append(" ".join([name, kind] + [format(x, digits) for x in run(dtype, number)]))
    for name, run in SCHEDULES.items():
        lines.append(" ".join([name, "double"] + [format(x, ".17g") for x in run()]))
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
