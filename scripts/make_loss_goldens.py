#!/usr/bin/env python3
"""Writes testdata/goldens/losses.safetensors: the losses of torch.nn.functional with all options,
values and gradients, computed in float64 from float32 inputs.

Usage: make_loss_goldens.py OUTPUT        (needs torch, numpy and safetensors)

A case is named LOSS/OPTION=VALUE/…; lib/ops/loss_test.cc walks the same options. For each case the
file holds NAME:value and NAME:grad.INPUT, the gradient of Σ value · probe where probe is 1, 2, 3, …
"""
import itertools
import sys

import numpy as np
import safetensors
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

ROWS, CLASSES = 6, 7
REDUCTIONS = ("none", "mean", "sum")
tensors = {}


def save(name, value):
    tensors[name] = value.detach().to(torch.float32).numpy().copy()


def case(name, function, **inputs):
    """Stores function(**inputs) and the gradients of the inputs."""
    leaves = {key: value.double().clone().requires_grad_(True) for key, value in inputs.items()}
    value = function(**leaves)
    probe = torch.arange(1, value.numel() + 1, dtype=torch.float64).reshape(value.shape)
    (value * probe).sum().backward()
    save(f"{name}:value", value)
    for key, leaf in leaves.items():
        if leaf.grad is not None:
            save(f"{name}:grad.{key}", leaf.grad)


def make_inputs():
    random = np.random.default_rng(20261121)

    def normal(*shape):
        return torch.from_numpy(random.normal(size=shape).astype(np.float32))

    inputs = {
        "logits": 2 * normal(ROWS, CLASSES),
        # Infinitely sure, right and wrong.
        "extreme": 1e4 * normal(ROWS, CLASSES).sign() * (1 + normal(ROWS, CLASSES).abs()),
        "probabilities": F.softmax(normal(ROWS, CLASSES), -1),
        "class_weight": torch.from_numpy(random.uniform(0, 2, CLASSES).astype(np.float32)),
        "x": 2 * normal(ROWS, CLASSES),
        "y": 2 * normal(ROWS, CLASSES),
        "unit": torch.from_numpy(random.uniform(0, 1, (ROWS, CLASSES)).astype(np.float32)),
        "label": torch.from_numpy(random.integers(0, 2, (ROWS, CLASSES)).astype(np.float32)),
        "element_weight": torch.from_numpy(random.uniform(0, 2, CLASSES).astype(np.float32)),
    }
    inputs["unit"][0, :2] = torch.tensor([0.0, 1.0])
    inputs["y"][1, :3] = inputs["x"][1, :3]  # no difference at all
    inputs["probabilities"][2, 0] = 0
    targets = torch.tensor([3, 0, 6, 2, 2, 5], dtype=torch.int32)
    for name, value in inputs.items():
        save(name, value)
    tensors["targets"] = targets.numpy()
    return inputs, targets.long()


def class_losses(inputs, targets):
    weights = {0: None, 1: inputs["class_weight"].double()}
    for logits, weight, smoothing, ignore, reduction in itertools.product(
            ("logits", "extreme"), weights, ("0", "0.1"), (-100, 2), REDUCTIONS):
        options = f"{logits}/weight={weight}/smoothing={smoothing}/reduction={reduction}"
        case(f"cross_entropy/{options}/ignore={ignore}",
             lambda x: F.cross_entropy(x, targets, weights[weight], ignore_index=ignore,
                                       reduction=reduction, label_smoothing=float(smoothing)),
             x=inputs[logits])
        if ignore == -100:
            case(f"probabilities/{options}",
                 lambda x, t: F.cross_entropy(x, t, weights[weight], reduction=reduction,
                                              label_smoothing=float(smoothing)),
                 x=inputs[logits], t=inputs["probabilities"])
        if smoothing == "0" and logits == "logits":
            case(f"nll/weight={weight}/reduction={reduction}/ignore={ignore}",
                 lambda x: F.nll_loss(x, targets, weights[weight], ignore_index=ignore,
                                      reduction=reduction),
                 x=inputs["logits"])
    nothing = torch.full((ROWS,), -100)
    for reduction in REDUCTIONS:
        case(f"nothing_counts/reduction={reduction}",
             lambda x: F.cross_entropy(x, nothing, reduction=reduction), x=inputs["logits"])


def element_losses(inputs):
    x, y, weight = inputs["x"], inputs["y"], inputs["element_weight"].double()
    for reduction in REDUCTIONS:
        case(f"mse/reduction={reduction}", lambda x, y: F.mse_loss(x, y, reduction=reduction),
             x=x, y=y)
        case(f"l1/reduction={reduction}", lambda x, y: F.l1_loss(x, y, reduction=reduction),
             x=x, y=y)
        for width in ("0.5", "1", "2"):
            case(f"huber/delta={width}/reduction={reduction}",
                 lambda x, y: F.huber_loss(x, y, reduction=reduction, delta=float(width)), x=x, y=y)
            case(f"smooth_l1/beta={width}/reduction={reduction}",
                 lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=float(width)),
                 x=x, y=y)
        for weighted in (0, 1):
            case(f"bce/weight={weighted}/reduction={reduction}",
                 lambda p: F.binary_cross_entropy(p, inputs["label"].double(),
                                                  weight if weighted else None,
                                                  reduction=reduction), p=inputs["unit"])
            for logits, positive in itertools.product(("x", "extreme"), (0, 1)):
                case(f"bce_with_logits/{logits}/weight={weighted}/positive={positive}"
                     f"/reduction={reduction}",
                     lambda x: F.binary_cross_entropy_with_logits(
                         x, inputs["label"].double(), weight if weighted else None,
                         reduction=reduction,
                         pos_weight=inputs["class_weight"].double() if positive else None),
                     x=inputs[logits])
    for reduction in REDUCTIONS + ("batchmean",):
        case(f"kl_div/log_target=0/reduction={reduction}",
             lambda x: F.kl_div(x, inputs["probabilities"].double(), reduction=reduction),
             x=F.log_softmax(inputs["logits"], -1))
        case(f"kl_div/log_target=1/reduction={reduction}",
             lambda x, t: F.kl_div(x, t, reduction=reduction, log_target=True),
             x=F.log_softmax(inputs["logits"], -1), t=F.log_softmax(inputs["y"], -1))
    save("log_p", F.log_softmax(inputs["logits"], -1))
    save("log_q", F.log_softmax(inputs["y"], -1))
    case("log_sigmoid/x", lambda x: F.logsigmoid(x), x=x)
    case("log_sigmoid/extreme", lambda x: F.logsigmoid(x), x=inputs["extreme"])


def main():
    inputs, targets = make_inputs()
    class_losses(inputs, targets)
    element_losses(inputs)
    save_file(tensors, sys.argv[1], metadata={
        "command": "scripts/make_loss_goldens.py testdata/goldens/losses.safetensors",
        "versions": f"torch {torch.__version__}, numpy {np.__version__}, "
                    f"safetensors {safetensors.__version__}",
    })


if __name__ == "__main__":
    main()
