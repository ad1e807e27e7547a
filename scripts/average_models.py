#!/usr/bin/env python3
"""Averages models of one shape: each weight is the mean of theirs (Wortsman et al. 2022, "Model soups").

Usage: average_models.py OUTPUT_DIRECTORY MODEL_DIRECTORY…     (needs safetensors, numpy)

The models are Hugging Face directories with one model.safetensors each, which went on from the same
weights; everything else in the output is the last one's. OUTPUT_DIRECTORY must not exist.
Made part of testdata/builtin/lumen-tiny.gguf (see recipes/lumen-tiny.toml) with numpy 2.4,
safetensors 0.8.
"""
import pathlib
import shutil
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

WEIGHTS = "model.safetensors"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    output, *models = map(pathlib.Path, sys.argv[1:])
    tensors = [load_file(model / WEIGHTS) for model in models]
    shapes = [{name: array.shape for name, array in each.items()} for each in tensors]
    if any(each != shapes[0] for each in shapes):
        sys.exit("the models have other tensors or shapes than each other")
    shutil.copytree(models[-1], output, ignore=shutil.ignore_patterns("checkpoints"))
    mean = {name: np.mean([each[name] for each in tensors], axis=0, dtype=np.float32)
            for name in tensors[0]}
    save_file(mean, output / WEIGHTS, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
