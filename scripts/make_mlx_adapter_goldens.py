#!/usr/bin/env python3
"""Makes testdata/goldens/mlx_adapters.{json,safetensors}: adapters as mlx-lm writes them, and what
they do to the models of testdata/goldens/adapters.

Usage: make_mlx_adapter_goldens.py GOLDENS_DIRECTORY   (needs mlx, mlx-lm, safetensors, numpy)

mlx_adapters.json: the versions, and per case its model and its adapter_config.json.
mlx_adapters.safetensors: "CASE/adapter/NAME" as in adapters.safetensors, and the logits
"CASE/logits" of the tokens there, in float32.
"""
import importlib.metadata
import json
import pathlib
import sys
import tempfile

import mlx.core as mx
import numpy as np
import safetensors.numpy
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
# Name → model, kind, layers from the end.
CASES = {
    "lora-qwen3moe": ("qwen3moe", "lora", 2),
    "lora-mixtral": ("mixtral", "lora", 1),
    "lora-gptoss": ("gptoss", "lora", 1),
    "lora-deepseek3": ("deepseek3", "lora", 2),
    "lora-qwen3next": ("qwen3next", "lora", 2),
    "lora-lfm2moe": ("lfm2moe", "lora", 2),
    "lora-phimoe": ("phimoe", "lora", 1),
    "lora-gemma4": ("gemma4", "lora", 1),
    "lora-nemotron": ("nemotron", "lora", 3),
    "full-qwen2": ("qwen2", "full", 1),
    "full-mixtral": ("mixtral", "full", 1),
    "full-gptoss": ("gptoss", "full", 1),
    "full-deepseek3": ("deepseek3", "full", 1),
    "full-qwen3next": ("qwen3next", "full", 2),
    "full-lfm2moe": ("lfm2moe", "full", 2),
    "full-gemma4": ("gemma4", "full", 1),
    "full-nemotron": ("nemotron", "full", 3),
}


def of_modules(weights):
    """Weights with gpt-oss's experts as the modules have them, which are made of MXFP4 alone."""
    result = {}
    for name, value in weights.items():
        place, _, last = name.rpartition(".")
        if place.endswith(".experts") and last.startswith(("gate_up_proj", "down_proj")):
            kind = "bias" if last.endswith("_bias") else "weight"
            value = value if kind == "bias" else value.transpose(0, 2, 1)
            parts = {"down_proj": value}
            if last.startswith("gate_up_proj"):
                parts = {"gate_proj": value[:, 0::2], "up_proj": value[:, 1::2]}
            result |= {f"{place}.{part}.{kind}": np.ascontiguousarray(half)
                       for part, half in parts.items()}
        else:
            result[name] = value
    return result


def older(config):
    """The config with the keys that transformers 5 has given other names, which mlx-lm asks for."""
    rope = config.get("rope_parameters") or {}
    experts = config.get("num_local_experts", config.get("n_routed_experts"))
    layers = config.get("per_layer_config", {}).values()
    dims = [layer["head_dim"] for layer in layers if "head_dim" in layer]
    return {"rope_theta": rope.get("rope_theta", 1e4), "num_experts": experts,
            "partial_rotary_factor": rope.get("partial_rotary_factor", 1.0),
            "global_head_dim": max(dims, default=config.get("head_dim"))} | config


def main():
    directory = pathlib.Path(sys.argv[1])
    configs = json.loads((directory / "adapters.json").read_text())["models"]
    given = safetensors.numpy.load_file(directory / "adapters.safetensors")
    cases, arrays = {}, {}
    for name, (base, kind, layers) in CASES.items():
        with tempfile.TemporaryDirectory() as place:
            weights = {key.removeprefix(f"{base}/weight/"): value for key, value in given.items()
                       if key.startswith(f"{base}/weight/")}
            weights = of_modules(weights) if base == "gptoss" else weights
            safetensors.numpy.save_file(weights, pathlib.Path(place) / "model.safetensors",
                                        {"format": "pt"})
            (pathlib.Path(place) / "config.json").write_text(json.dumps(older(configs[base])))
            model = load_model(pathlib.Path(place))[0]
        model.set_dtype(mx.float32)
        model.freeze()
        mx.random.seed(3)
        parameters = {"rank": 2, "scale": 1.5, "dropout": 0.0}
        if kind == "full":
            for layer in model.layers[-layers:]:
                layer.unfreeze()
        else:
            linear_to_lora_layers(model, layers, parameters)
        trained = dict(tree_flatten(model.trainable_parameters()))
        trained = {key: value + 0.3 * mx.random.normal(value.shape)
                   for key, value in trained.items()}
        model.update(tree_unflatten(list(trained.items())))
        cases[name] = {"model": base, "config": {
            "fine_tune_type": kind, "num_layers": layers, "model": base,
            "lora_parameters": None if kind == "full" else parameters}}
        arrays |= {f"{name}/adapter/{key}": np.array(value) for key, value in trained.items()}
        arrays[f"{name}/logits"] = np.array(model(mx.array(given["tokens"])))
        if not np.isfinite(arrays[f"{name}/logits"]).all():
            sys.exit(f"{name}: not finite")
    made = {"command": "scripts/make_mlx_adapter_goldens.py testdata/goldens"}
    made |= {package: importlib.metadata.version(package) for package in ("mlx", "mlx-lm")}
    text = json.dumps({"made": made, "cases": cases}, indent=1, sort_keys=True)
    (directory / "mlx_adapters.json").write_text(text + "\n")
    safetensors.numpy.save_file(arrays, directory / "mlx_adapters.safetensors")


if __name__ == "__main__":
    main()
