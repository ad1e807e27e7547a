#!/usr/bin/env python3
"""Makes testdata/goldens/lora_training.{json,safetensors}: some steps of training adapters with PEFT.

Usage: make_lora_training_goldens.py OUTPUT_DIRECTORY   (needs torch, transformers, peft, safetensors, numpy)

lora_training.json: the versions, per model its config.json, and per case its model, its
adapter_config.json and the losses of its steps. lora_training.safetensors: "MODEL/weight/NAME";
per case "CASE/start/NAME" and "CASE/end/NAME", the adapter as save_pretrained writes it before and
after the steps (before, random numbers are added, but to what init_lora_weights has made), and "CASE/gradient/NAME", the gradients of the first step under the names of the
adapter; "tokens" int32 [batch, tokens + 1]. Steps are AdamW's (learning rate 1e-2, weight decay
0.01) of the mean loss, computed in float64 and stored as float32.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import peft
import safetensors.numpy
import torch
import transformers
from make_adapter_goldens import files_of, model_of

STEPS = 4
QUD = ["q_proj", "up_proj", "down_proj"]
# Name → model, and the keys of the LoraConfig.
CASES = {
    "lora": ("qwen2", {"target_modules": QUD}),
    "dora": ("qwen2", {"target_modules": QUD, "use_dora": True}),
    "dora-rslora": ("llama", {"target_modules": "all-linear", "use_dora": True, "use_rslora": True,
                              "exclude_modules": ["k_proj"],
                              "rank_pattern": {"down_proj": 3},
                              "alpha_pattern": {"down_proj": 5}}),
    "dora-conv1d": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True,
                             "use_dora": True}),
    "saved": ("llama", {"target_modules": ["v_proj"], "modules_to_save": ["lm_head", "model.norm"]}),
    "biases": ("gpt2", {"target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "all"}),
    "own-biases": ("qwen2", {"target_modules": ["q_proj", "o_proj"], "bias": "lora_only"}),
    "pissa": ("qwen2", {"target_modules": QUD, "init_lora_weights": "pissa"}),
    "pissa-conv1d": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True,
                              "init_lora_weights": "pissa", "use_rslora": True}),
    "olora": ("qwen2", {"target_modules": QUD, "init_lora_weights": "olora"}),
}


def adapter_of(model):
    with tempfile.TemporaryDirectory() as place:
        model.save_pretrained(place)
        config = json.loads((pathlib.Path(place) / "adapter_config.json").read_text())
        return config, files_of(place, "adapter_model.safetensors")


def name_in_file(name):
    return (name.replace(".default.weight", ".weight").replace("modules_to_save.", "")
            .replace("lora_magnitude_vector.weight", "lora_magnitude_vector"))


def main():
    directory = pathlib.Path(sys.argv[1])
    tokens = torch.randint(3, 13, (3, 10), generator=torch.Generator().manual_seed(4))
    configs, cases, arrays = {}, {}, {"tokens": tokens.int().numpy()}
    for name in sorted({base for base, _ in CASES.values()}):
        with tempfile.TemporaryDirectory() as place:
            model_of(name).save_pretrained(place)
            configs[name] = json.loads((pathlib.Path(place) / "config.json").read_text())
            weights = files_of(place, "model.safetensors")
        # Steps are without the dropout of GPT-2.
        configs[name] |= {key: 0.0 for key in configs[name] if key.endswith("_pdrop")}
        arrays |= {f"{name}/weight/{key}": value for key, value in weights.items()}
    for name, (base, keys) in CASES.items():
        config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=3, **keys)
        model = peft.get_peft_model(model_of(base), config).double()
        trained = {key: p for key, p in model.named_parameters() if p.requires_grad}
        with torch.no_grad():
            is_given = "init_lora_weights" in keys
            for parameter in trained.values() if not is_given else []:
                parameter.add_(torch.randn_like(parameter) * 0.1)
                parameter.copy_(parameter.float())
        config, start = adapter_of(model)
        arrays |= {f"{name}/start/{key}": v.astype(np.float32) for key, v in start.items()}
        optimizer = torch.optim.AdamW(trained.values(), lr=1e-2, weight_decay=0.01)
        losses = []
        for step in range(STEPS):
            optimizer.zero_grad()
            logits = model(tokens[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            if step == 0:
                for key, p in trained.items():
                    gradient = p.grad.numpy().astype(np.float32)
                    arrays[f"{name}/gradient/{name_in_file(key)}"] = gradient
            optimizer.step()
            losses.append(loss.item())
        names = {k.split("/")[2] for k in arrays if k.startswith(f"{name}/gradient/")}
        assert names == set(start), names ^ set(start)
        _, end = adapter_of(model)
        arrays |= {f"{name}/end/{key}": v.astype(np.float32) for key, v in end.items()}
        cases[name] = {"model": base, "config": config, "losses": losses}
    made = {"command": "scripts/make_lora_training_goldens.py testdata/goldens",
            "torch": torch.__version__, "transformers": transformers.__version__,
            "peft": peft.__version__}
    text = json.dumps({"made": made, "models": configs, "cases": cases}, indent=1, sort_keys=True)
    (directory / "lora_training.json").write_text(text + "\n")
    safetensors.numpy.save_file(arrays, directory / "lora_training.safetensors")


if __name__ == "__main__":
    main()
