#!/usr/bin/env python3
"""Makes testdata/torch: checkpoints written by PyTorch, and what is in them as safetensors.

Usage: make_torch_goldens.py OUTPUT_DIRECTORY     (needs torch, safetensors, huggingface_hub)

  tensors.pth             a state dict of every type that Lumen has, of views, of tensors that share
                          a storage; tensors.safetensors holds the same in rows
  nested.pt               a training checkpoint: the state dict is its entry "model"
  refused-*.pt            what has no meaning for Lumen
  sharded/                a tiny Llama in three shards with an index, as huggingface_hub writes it;
                          sharded.safetensors holds its tensors
"""
import collections
import json
import pathlib
import sys

import huggingface_hub
import safetensors.torch
import torch


def numbers(*shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 37 % 101 - 50).reshape(shape).to(dtype)


def views():
    tensors = collections.OrderedDict()
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"):
        dtype = getattr(torch, name)
        tensors[name] = (numbers(3, 5) if name != "uint8" else numbers(3, 5).abs()).to(dtype)
        tensors[name + ".transposed"] = tensors[name].t()
    base = numbers(4, 6, 5)
    tensors["slice"] = base[1:3]
    tensors["columns"] = base[:, 1:5:2]
    tensors["permuted"] = base.permute(2, 0, 1)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["item"] = base[2, 3, 4]
    tensors["empty"] = torch.zeros(0, 3)
    tensors["one"] = numbers(1, 7).t()  # strides of extents of 1 mean nothing
    tensors["parameter"] = torch.nn.Parameter(numbers(2, 2))
    tensors["tied"] = tensors["parameter"]
    return tensors


def rows(tensors):
    return {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 12, "tie_word_embeddings": False,
          "torch_dtype": "float32"}


def llama():
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (12, 8), layer + "input_layernorm.weight": (8,),
              layer + "self_attn.q_proj.weight": (8, 8), layer + "self_attn.k_proj.weight": (4, 8),
              layer + "self_attn.v_proj.weight": (4, 8), layer + "self_attn.o_proj.weight": (8, 8),
              layer + "post_attention_layernorm.weight": (8,), layer + "mlp.gate_proj.weight": (16, 8),
              layer + "mlp.up_proj.weight": (16, 8), layer + "mlp.down_proj.weight": (8, 16),
              "model.norm.weight": (8,), "lm_head.weight": (12, 8)}
    return {name: numbers(*shape) / 100 for name, shape in shapes.items()}


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    (root / "sharded").mkdir(parents=True, exist_ok=True)
    tensors = views()
    torch.save(tensors, root / "tensors.pth")
    safetensors.torch.save_file(rows(tensors), root / "tensors.safetensors")
    torch.save({"step": 3, "lr": 1e-3, "args": {"layers": [1, 2]}, "model": {"weight": tensors["float32"]}},
               root / "nested.pt")
    refused = {"expanded": torch.ones(1).expand(4), "int16": torch.zeros(2, dtype=torch.int16),
               "float8": torch.zeros(2, dtype=torch.float8_e4m3fn),
               "conjugated": torch.zeros(2, dtype=torch.complex64).conj(),
               "sparse": torch.eye(2).to_sparse()}
    for name, tensor in refused.items():
        torch.save({"a": tensor}, root / f"refused-{name}.pt")
    torch.save(torch.nn.Linear(2, 2), root / "refused-module.pt")
    huggingface_hub.save_torch_state_dict(llama(), root / "sharded", safe_serialization=False, max_shard_size=1400)
    (root / "sharded" / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    safetensors.torch.save_file(llama(), root / "sharded.safetensors")
    (root / "README.md").write_text(
        f"Written by `scripts/make_torch_goldens.py testdata/torch` with torch {torch.__version__.split('+')[0]},\n"
        f"safetensors {safetensors.__version__}, huggingface_hub {huggingface_hub.__version__}.\n")


if __name__ == "__main__":
    main()
