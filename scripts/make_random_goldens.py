#!/usr/bin/env python3
"""Makes testdata/goldens/random.json: what PyTorch's CPU generator draws.

Usage: make_random_goldens.py OUTPUT_DIRECTORY     (needs torch)

Each case is a seed and the draws that follow it, in order. Floats are given by their bits.
"""
import json
import pathlib
import struct
import sys

import torch


def bits(tensor):
    code = "<f" if tensor.dtype == torch.float32 else "<d"
    kind = "<I" if tensor.dtype == torch.float32 else "<Q"
    return [struct.unpack(kind, struct.pack(code, x))[0] for x in tensor.tolist()]


def draw(kind, n, low=0, high=0):
    if kind in ("rand", "randn"):
        return bits(getattr(torch, kind)(n))
    if kind in ("rand64", "randn64"):
        return bits(getattr(torch, kind[:-2])(n, dtype=torch.float64))
    if kind == "randint":
        return torch.randint(low, high, (n,)).tolist()
    return torch.randperm(n).tolist()


def main():
    cases = []
    for seed in (0, 42, 2**40 + 5):
        torch.manual_seed(seed)
        draws = []
        for step in [("rand", 20), ("randn", 5), ("randn", 4), ("rand64", 5), ("randn", 16),
                     ("randn", 37), ("randn64", 3), ("randn64", 21), ("randint", 10, -5, 1000),
                     ("randint", 5, 0, 2**28 - 1), ("randint", 5, 0, 2**28),
                     ("randint", 5, -2**62, 2**62), ("randperm", 1), ("randperm", 30),
                     ("rand", 700), ("randn", 1)]:
            kind, n, low, high = (step + (0, 0))[:4]
            values = draw(kind, n, low, high)
            if n > 100:
                values = values[-20:]
            draws.append({"kind": kind, "n": n, "low": low, "high": high, "last": values})
        cases.append({"seed": seed, "draws": draws})
    document = {"made": {"command": "scripts/make_random_goldens.py testdata/goldens",
                         "torch": torch.__version__}, "cases": cases}
    path = pathlib.Path(sys.argv[1]) / "random.json"
    path.write_text(json.dumps(document) + "\n")


main()
