#!/usr/bin/env python3
"""Makes testdata/goldens/optim.{json,safetensors}: optimizers and schedules as PyTorch computes them.

Usage: make_optim_goldens.py OUTPUT_DIRECTORY     (needs torch, transformers, safetensors, numpy)

Every optimizer takes 50 steps in float64 from the same float32 start with the same float32
gradients; the values after steps 1, 2, 10 and 50 are kept. torch.optim has no Lion, which is
transcribed below from its paper; what its Muon does in bfloat16 is done in float64.
"""
import inspect
import json
import math
import pathlib
import sys

import numpy as np
import safetensors.numpy
import torch
import transformers

STEPS = 50
KEPT = (1, 2, 10, 50)
SHAPES = {"fc.weight": (8, 6), "conv.weight": (3, 2, 3, 3), "fc.bias": (9,)}
random = np.random.default_rng(20)
START = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
GRADIENTS = {name: (random.standard_normal((STEPS,) + shape) *
                    np.exp(random.standard_normal(shape))).astype(np.float32)
             for name, shape in SHAPES.items()}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def step(self):
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p.data -= lr * (torch.sign(c) + group["weight_decay"] * p.data)
                self.state[p]["m"] = beta2 * m + (1 - beta2) * p.grad


def exact_muon():
    """torch.optim.Muon, whose Newton-Schulz iteration is in float64, not in bfloat16.

    bfloat16 makes the direction of a Gaussian matrix differ by 1 to 4 % (and by 20 to 80 % where
    singular values lie a hundred times below the norm), so that goldens of it would tell nothing.
    """
    from torch.optim import _muon
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert source.count("torch.bfloat16") == 1
    exec(source.replace("torch.bfloat16", "torch.float64"), vars(_muon))
    return torch.optim.Muon


# label, torch class, its arguments, Lumen's config, base lr, gradient scale.
def optimizer_cases():
    o, muon = torch.optim, exact_muon()
    return [
        ("sgd", o.SGD, {}, {"type": "sgd"}, 0.1, 1),
        ("sgd-momentum", o.SGD, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05},
         {"type": "sgd", "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}, 0.05, 0.5),
        ("sgd-nesterov", o.SGD, {"momentum": 0.8, "nesterov": True},
         {"type": "sgd", "momentum": 0.8, "nesterov": True}, 0.05, 1),
        ("adam", o.Adam, {"weight_decay": 0.1}, {"type": "adam", "weight_decay": 0.1}, 0.01, 1),
        ("adam-amsgrad", o.Adam, {"amsgrad": True, "betas": (0.8, 0.95), "eps": 1e-6},
         {"type": "adam", "amsgrad": True, "betas": [0.8, 0.95], "eps": 1e-6}, 0.02, 0.25),
        ("adamw", o.AdamW, {"weight_decay": 0.1}, {"type": "adamw", "weight_decay": 0.1}, 0.01, 1),
        ("adamw-amsgrad", o.AdamW, {"amsgrad": True, "betas": (0.9, 0.95), "weight_decay": 0.2},
         {"type": "adamw", "amsgrad": True, "betas": [0.9, 0.95], "weight_decay": 0.2}, 0.01, 2),
        ("rmsprop", o.RMSprop, {"weight_decay": 0.1}, {"type": "rmsprop", "weight_decay": 0.1},
         0.01, 1),
        ("rmsprop-centered", o.RMSprop,
         {"alpha": 0.9, "centered": True, "momentum": 0.7, "eps": 1e-5},
         {"type": "rmsprop", "alpha": 0.9, "centered": True, "momentum": 0.7, "eps": 1e-5}, 0.01,
         0.5),
        ("adagrad", o.Adagrad,
         {"lr_decay": 0.05, "weight_decay": 0.1, "initial_accumulator_value": 0.2},
         {"type": "adagrad", "lr_decay": 0.05, "weight_decay": 0.1, "initial_accumulator": 0.2},
         0.1, 1),
        ("lion", Lion, {"betas": (0.9, 0.99), "weight_decay": 0.1},
         {"type": "lion", "weight_decay": 0.1}, 0.01, 1),
        ("adafactor", o.Adafactor, {"eps": (float(np.finfo(np.float32).eps), 1e-3)},
         {"type": "adafactor"}, 0.05, 1),
        ("adafactor-options", o.Adafactor,
         {"weight_decay": 0.1, "beta2_decay": -0.6, "d": 1.2, "eps": (1e-3, 0.01)},
         {"type": "adafactor", "weight_decay": 0.1, "beta2_decay": -0.6, "clip_threshold": 1.2,
          "eps": 1e-3, "scale_eps": 0.01}, 0.3, 0.5),
        ("muon", (muon, o.AdamW), ({"weight_decay": 0.0}, {"weight_decay": 0.0}),
         {"type": "muon"}, 0.02, 1),
        ("muon-options", (muon, o.AdamW),
         ({"momentum": 0.9, "nesterov": False, "weight_decay": 0.1, "ns_steps": 4,
           "adjust_lr_fn": "match_rms_adamw"},
          {"betas": (0.9, 0.95), "weight_decay": 0.1}),
         {"type": "muon", "momentum": 0.9, "nesterov": False, "weight_decay": 0.1,
          "newton_schulz_steps": 4, "adjust_lr": "match_rms_adamw", "betas": [0.9, 0.95]}, 0.01, 3),
        ("muon-unclamped", (muon, o.AdamW),
         ({"weight_decay": 0.0, "adjust_lr_fn": "spectral_unclamped"}, {"weight_decay": 0.0}),
         {"type": "muon", "adjust_lr": "spectral_unclamped"}, 0.03, 1),
        ("sgd-maximize", o.SGD, {"maximize": True, "momentum": 0.9, "weight_decay": 0.05},
         {"type": "sgd", "maximize": True, "momentum": 0.9, "weight_decay": 0.05}, 0.05, 0.5),
        ("adam-maximize", o.Adam, {"maximize": True, "weight_decay": 0.1},
         {"type": "adam", "maximize": True, "weight_decay": 0.1}, 0.01, 1),
        ("adamw-maximize", o.AdamW, {"maximize": True, "weight_decay": 0.1},
         {"type": "adamw", "maximize": True, "weight_decay": 0.1}, 0.01, 1),
        ("rmsprop-maximize", o.RMSprop, {"maximize": True, "weight_decay": 0.1, "centered": True},
         {"type": "rmsprop", "maximize": True, "weight_decay": 0.1, "centered": True}, 0.01, 1),
        ("adagrad-maximize", o.Adagrad, {"maximize": True, "weight_decay": 0.1},
         {"type": "adagrad", "maximize": True, "weight_decay": 0.1}, 0.1, 1),
        ("adafactor-maximize", o.Adafactor,
         {"maximize": True, "weight_decay": 0.1, "eps": (float(np.finfo(np.float32).eps), 1e-3)},
         {"type": "adafactor", "maximize": True, "weight_decay": 0.1}, 0.05, 1),
        ("groups", o.AdamW, "groups",
         {"type": "adamw", "weight_decay": 0.1, "no_decay": ["1d"],
          "groups": [{"match": "conv.*", "lr_factor": 0.5, "weight_decay": 0.3}]}, 0.01, 1),
    ]


def learning_rate(base, t):
    return base * (1 - 0.5 * t / STEPS)


def run_optimizer(cls, arguments, base, scale, arrays, label):
    values = {n: torch.nn.Parameter(torch.tensor(v, dtype=torch.float64)) for n, v in START.items()}
    matrices = {}
    if isinstance(cls, tuple):
        # Muon takes matrices [out, everything else], here views of the same memory.
        matrices = {n: torch.nn.Parameter(v.data.reshape(len(v), -1))
                    for n, v in values.items() if v.ndim > 1}
        vectors = [v for v in values.values() if v.ndim < 2]
        optimizers = [cls[0](matrices.values(), lr=base, **arguments[0]),
                      cls[1](vectors, lr=base, **arguments[1])]
    elif arguments == "groups":
        optimizers = [cls([
            {"params": [values["fc.weight"]], "weight_decay": 0.1},
            {"params": [values["conv.weight"]], "weight_decay": 0.3, "factor": 0.5},
            {"params": [values["fc.bias"]], "weight_decay": 0.0}], lr=base)]
    else:
        optimizers = [cls(values.values(), lr=base, **arguments)]
    for t in range(STEPS):
        for name, value in values.items():
            value.grad = torch.tensor(GRADIENTS[name][t], dtype=torch.float64) * scale
            if name in matrices:
                matrices[name].grad = value.grad.reshape(matrices[name].shape)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(base, t) * group.get("factor", 1)
            optimizer.step()
        if t + 1 in KEPT:
            for name, value in values.items():
                arrays[f"{label}/{t + 1}/{name}"] = value.detach().numpy().copy()


def torch_rates(make, steps, base):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))], lr=base)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def schedule_cases():
    s, h = torch.optim.lr_scheduler, transformers
    cases = []

    def case(config, make, steps=30, base=0.4):
        rates = torch_rates(make, steps, base)
        cases.append({"config": {"lr": base, **config}, "rates": rates})

    case({"type": "constant"}, h.get_constant_schedule)
    case({"type": "constant", "warmup": 7}, lambda o: h.get_constant_schedule_with_warmup(o, 7))
    case({"type": "step", "step_size": 4, "gamma": 0.3}, lambda o: s.StepLR(o, 4, 0.3))
    case({"type": "multistep", "milestones": [3, 9, 9, 20], "gamma": 0.5},
         lambda o: s.MultiStepLR(o, [3, 9, 9, 20], 0.5))
    case({"type": "exponential", "gamma": 0.9}, lambda o: s.ExponentialLR(o, 0.9))
    case({"type": "polynomial", "total_steps": 25, "warmup": 5, "power": 2.5, "min_lr": 0.01},
         lambda o: h.get_polynomial_decay_schedule_with_warmup(o, 5, 25, lr_end=0.01, power=2.5))
    case({"type": "polynomial", "total_steps": 25, "power": 0.7},
         lambda o: s.PolynomialLR(o, 25, power=0.7))
    case({"type": "linear", "total_steps": 25, "warmup": 0.2},
         lambda o: h.get_linear_schedule_with_warmup(o, 5, 25))
    case({"type": "cosine", "total_steps": 25, "warmup": 6},
         lambda o: h.get_cosine_schedule_with_warmup(o, 6, 25), steps=25)
    case({"type": "cosine", "total_steps": 30, "min_lr": 0.05},
         lambda o: s.CosineAnnealingLR(o, 30, eta_min=0.05))
    case({"type": "cosine_restarts", "period": 4, "period_factor": 2, "min_lr": 0.01},
         lambda o: s.CosineAnnealingWarmRestarts(o, 4, 2, eta_min=0.01), steps=60)
    case({"type": "cosine_restarts", "period": 7},
         lambda o: s.CosineAnnealingWarmRestarts(o, 7))
    case({"type": "cosine_restarts", "period": 8, "warmup": 6},
         lambda o: h.get_cosine_with_hard_restarts_schedule_with_warmup(o, 6, 30, num_cycles=3))
    case({"type": "inverse_sqrt", "warmup": 5}, lambda o: h.get_inverse_sqrt_schedule(o, 5))
    case({"type": "inverse_sqrt", "timescale": 9},
         lambda o: h.get_inverse_sqrt_schedule(o, 0, timescale=9))
    case({"type": "one_cycle", "total_steps": 30}, lambda o: s.OneCycleLR(o, 0.4, total_steps=30))
    case({"type": "one_cycle", "total_steps": 25, "warmup": 10, "div_factor": 10,
          "final_div_factor": 100},
         lambda o: s.OneCycleLR(o, 0.4, total_steps=25, pct_start=0.4, div_factor=10,
                                final_div_factor=100), steps=25)
    for shape in ("cosine", "linear", "1-sqrt"):
        case({"type": "wsd", "total_steps": 28, "warmup": 4, "decay_fraction": 0.25,
              "decay": shape},
             lambda o: h.get_wsd_schedule(o, 4, 7, num_training_steps=28, decay_type=shape))
    case({"type": "wsd", "total_steps": 30, "decay_fraction": 0.5, "decay": "linear",
          "min_lr": 0.1},
         lambda o: h.get_wsd_schedule(o, 0, 15, num_training_steps=30, decay_type="linear",
                                      min_lr_ratio=0.25))
    return cases


def plateau_cases():
    cases = []
    metrics = [3, 2, 2.5, 2.4, 1.99999, 2.6, 2.7, float("nan"), 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6,
               1.7, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2]
    for config, arguments in [
            ({}, {"patience": 10}),
            ({"patience": 2, "factor": 0.5, "cooldown": 2, "min_lr": 0.03},
             {"patience": 2, "factor": 0.5, "cooldown": 2, "min_lr": 0.03}),
            ({"patience": 1, "mode": "max", "threshold": 0.1},
             {"patience": 1, "mode": "max", "threshold": 0.1})]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)
        rates = []
        for metric in metrics:
            scheduler.step(metric)
            rates.append(optimizer.param_groups[0]["lr"])
        cases.append({"config": {"type": "plateau", "lr": 0.4, **config},
                      "metrics": [None if math.isnan(m) else m for m in metrics], "rates": rates})
    return cases


def norms():
    values = [torch.tensor(GRADIENTS[name][0], dtype=torch.float64) for name in SHAPES]
    return [{"p": "inf" if math.isinf(p) else p,
             "norm": float(torch.linalg.vector_norm(
                 torch.stack([torch.linalg.vector_norm(v, p) for v in values]), p))}
            for p in (1, 2, 3, 0.5, math.inf)]


def main():
    directory = pathlib.Path(sys.argv[1])
    arrays = {f"start/{n}": v for n, v in START.items()}
    arrays.update({f"gradients/{n}": v for n, v in GRADIENTS.items()})
    cases = []
    for label, cls, arguments, config, base, scale in optimizer_cases():
        run_optimizer(cls, arguments, base, scale, arrays, label)
        cases.append({"label": label, "config": config, "lr": base, "scale": scale})
    made = {"command": "scripts/make_optim_goldens.py testdata/goldens",
            "torch": torch.__version__, "transformers": transformers.__version__,
            "numpy": np.__version__}
    document = {"made": made, "steps": STEPS, "kept": KEPT, "optimizers": cases,
                "schedules": schedule_cases(), "plateaus": plateau_cases(), "norms": norms()}
    (directory / "optim.json").write_text(json.dumps(document, indent=1) + "\n")
    safetensors.numpy.save_file(arrays, directory / "optim.safetensors",
                                {k: str(v) for k, v in made.items()})


main()
