#!/usr/bin/env python3
"""Makes testdata/packed: linear layers packed by the programs whose files Lumen unpacks.

Usage: make_packed_goldens.py OUTPUT_DIRECTORY
(needs torch, transformers, safetensors, mlx, compressed-tensors, bitsandbytes; auto-gptq and autoawq, of which
only the files that pack are loaded: pip install --no-deps)

Each file has one layer, "x", as its method stores it; in "x.expected" what the method's own program
unpacks, in float32; and in its metadata, under "config", the keys that config.json would have.
"""
import importlib
import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import types

import bitsandbytes.functional as bnb
import mlx.core as mx
import numpy as np
import safetensors.torch
import torch
import transformers.integrations.bitnet as ternary
import transformers.pytorch_utils  # noqa: F401, which auto_gptq expects to be loaded
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

OUT, IN, GROUP = 32, 64, 32


def load_without_init(package, module):
    """A module of a package whose __init__ needs what is not installed."""
    if f"{package}.{module}" in sys.modules:
        return sys.modules[f"{package}.{module}"]
    path = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
    names = module.split(".")
    for count in range(len(names)):
        name = ".".join([package, *names[:count]])
        empty = types.ModuleType(name)
        empty.__path__ = [str(path.joinpath(*names[:count]))]
        sys.modules[name] = empty
    return importlib.import_module(f"{package}.{module}")


def weights():
    generator = torch.Generator().manual_seed(11)
    return torch.randn(OUT, IN, generator=generator) * 0.1 + 0.01


def rounded(weight, bits, group, symmetric):
    """Codes from 0, [out, in], and scales and zero points, [out, groups]."""
    grouped = weight.reshape(weight.shape[0], -1, group)
    most = 2**bits - 1
    if symmetric:
        scale = (grouped.abs().amax(-1) * 2 / most).half().float()
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
        scale = ((high - low) / most).half().float()
        zero = torch.round(-low / scale).clamp(0, most)
    codes = (torch.round(grouped / scale[..., None]) + zero[..., None]).clamp(0, most)
    return codes.reshape(weight.shape).int(), scale, zero.int()


def plain(codes, scale, zero, group):
    grouped = codes.reshape(codes.shape[0], -1, group) - zero[..., None]
    return (grouped * scale[..., None]).reshape(codes.shape)


def gptq(bits, group, symmetric, act_order=False):
    columns = IN if group < 0 else group
    codes, scale, zero = rounded(weights(), bits, columns, symmetric)
    expected = plain(codes, scale, zero, columns)
    linear = torch.nn.Linear(IN, OUT, bias=False)
    linear.weight.data = expected.clone()
    layer = load_without_init("auto_gptq", "nn_modules.qlinear.qlinear_cuda_old").QuantLinear(bits, group, IN, OUT,
                                                                                             False)
    layer.pack(linear, scale.clone(), zero.float(), None)
    tensors = {"x.qweight": layer.qweight, "x.qzeros": layer.qzeros, "x.scales": layer.scales.half(),
               "x.g_idx": layer.g_idx, "x.bias": torch.zeros(OUT).half()}
    if act_order:
        # Columns were rounded in another order: a group's are anywhere.
        order = torch.arange(IN) * 37 % IN
        per_word = 32 // bits
        shifts = torch.arange(per_word) * bits
        unpacked = (layer.qweight[:, None, :] >> shifts[None, :, None] & 2**bits - 1).reshape(IN, OUT)[order]
        words = (unpacked.reshape(-1, per_word, OUT).long() << shifts[None, :, None]).sum(1)
        tensors["x.qweight"] = words.to(torch.uint32).view(torch.int32)
        tensors["x.g_idx"] = layer.g_idx[order]
        expected = expected[:, order]
    packing = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": act_order}
    return tensors, expected, {"quantization_config": packing}


def awq():
    utils = load_without_init("awq", "utils.packing_utils")
    codes, scale, zero = rounded(weights(), 4, GROUP, False)

    def pack(numbers):  # [n, out] to [n, out / 8]
        eight = numbers.reshape(numbers.shape[0], -1, 8)[:, :, utils.AWQ_ORDER].long()
        return (eight << torch.arange(8) * 4).sum(-1).to(torch.uint32).view(torch.int32)

    tensors = {"x.qweight": pack(codes.T), "x.qzeros": pack(zero.T), "x.scales": scale.T.half()}
    # dequantize_gemm itself, but with the scales in float32.
    expected = utils.dequantize_gemm(tensors["x.qweight"], tensors["x.qzeros"], scale.T, 4, GROUP).T
    packing = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
    return tensors, expected, {"quantization_config": packing}


def mlx(bits, dtype):
    array = mx.array(weights().numpy()).astype(dtype)
    codes, scales, biases = mx.quantize(array, group_size=GROUP, bits=bits)
    half = torch.bfloat16 if dtype == mx.bfloat16 else torch.float16
    scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    tensors = {"x.weight": torch.from_numpy(np.array(codes)), "x.scales": torch.from_numpy(np.array(scales)).to(half),
               "x.biases": torch.from_numpy(np.array(biases)).to(half)}
    expected = mx.dequantize(codes, scales, biases, group_size=GROUP, bits=bits)
    return tensors, torch.from_numpy(np.array(expected)), {"quantization": {"group_size": GROUP, "bits": bits}}


def compressed_config(arguments, packing):
    group = {"weights": json.loads(arguments.model_dump_json()), "targets": ["Linear"]}
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": packing,
                                    "config_groups": {"group_0": group}}}


def compressed_packed(bits, group, symmetric):
    arguments = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric,
                                 strategy="group" if group else "channel", group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    _, scale, zero = rounded(weights(), bits, group or IN, symmetric)
    state = {"weight": weights().bfloat16(), "weight_scale": scale.bfloat16()}
    if not symmetric:
        state["weight_zero_point"] = (zero - 2 ** (bits - 1)).to(torch.int8)
    tensors = PackedQuantizationCompressor.compress(state, scheme)
    as_float = dict(tensors, weight_scale=tensors["weight_scale"].float())
    expected = PackedQuantizationCompressor.decompress(as_float, scheme)["weight"]
    return ({"x." + name: tensor for name, tensor in tensors.items()}, expected,
            compressed_config(arguments, "pack-quantized"))


def compressed_int8():
    scale = (weights().abs().amax(-1, keepdim=True) / 127).bfloat16()
    codes = torch.round(weights() / scale.float()).clamp(-128, 127).to(torch.int8)
    arguments = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="channel")
    return ({"x.weight": codes, "x.weight_scale": scale}, codes.float() * scale.float(),
            compressed_config(arguments, "int-quantized"))


def compressed_float8():
    scale = (weights().abs().amax(-1, keepdim=True) / 448).bfloat16()
    values = (weights() / scale.float()).to(torch.float8_e4m3fn)
    arguments = QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="channel")
    tensors = {"x.weight": values, "x.weight_scale": scale, "x.k_scale": torch.ones(1)}
    return tensors, values.float() * scale.float(), compressed_config(arguments, "float-quantized")


def fp8():
    rows, cols = 24, 48  # blocks, the last of which are not whole
    padded = torch.zeros(48, 96)
    padded[:OUT, :IN] = weights()
    blocks = padded.reshape(2, rows, 2, cols)
    scale = blocks.abs().amax((1, 3)) / 448
    values = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    expected = (values.float() * scale[:, None, :, None]).reshape(48, 96)[:OUT, :IN]
    tensors = {"x.weight": values.reshape(48, 96)[:OUT, :IN], "x.weight_scale_inv": scale}
    packing = {"quant_method": "fp8", "weight_block_size": [rows, cols]}
    return tensors, expected, {"quantization_config": packing}


def bitsandbytes_4bit(quant_type, nested):
    codes, state = bnb.quantize_4bit(weights(), blocksize=GROUP * 2, compress_statistics=nested, quant_type=quant_type)
    tensors = {"x.weight." + name: tensor for name, tensor in state.as_dict(packed=True).items()}
    tensors["x.weight"] = codes
    packing = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": quant_type}
    return tensors, bnb.dequantize_4bit(codes, state), {"quantization_config": packing}


def bitsandbytes_int8():
    codes, largest, _ = bnb.int8_vectorwise_quant(weights().half())
    tensors = {"x.weight": codes, "x.SCB": largest, "x.weight_format": torch.tensor(0, dtype=torch.uint8)}
    packing = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    return tensors, bnb.int8_vectorwise_dequant(codes, largest), {"quantization_config": packing}


def bitnet(linear_class, mode="offline", columns=IN, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(5)
    weight = (torch.randn(OUT * IN // columns, columns, generator=generator) * 0.1).to(dtype)
    packing = {"quant_method": "bitnet", "linear_class": linear_class, "quantization_mode": mode}
    config = {"quantization_config": packing}
    if mode == "online":
        return {"x.weight": weight}, ternary.WeightQuant.apply(weight), config
    scale = weight.float().abs().mean()
    codes = (weight.float() / scale).round().clamp(-1, 1)
    stored = (1 / scale if linear_class == "bitlinear" else scale).to(dtype).reshape(1)
    expected = codes / stored.float() if linear_class == "bitlinear" else codes * stored.float()
    tensors = {"x.weight": ternary.pack_weights(codes.clone()), "x.weight_scale": stored}
    return tensors, expected, config


CASES = {
    "gptq-4": lambda: gptq(4, GROUP, False),
    "gptq-4-symmetric": lambda: gptq(4, GROUP, True),
    "gptq-4-act-order": lambda: gptq(4, GROUP, True, act_order=True),
    "gptq-3-whole-rows": lambda: gptq(3, -1, False),
    "gptq-8": lambda: gptq(8, GROUP, True),
    "awq": awq,
    "mlx-4": lambda: mlx(4, mx.float16),
    "mlx-3": lambda: mlx(3, mx.bfloat16),
    "mlx-8": lambda: mlx(8, mx.float16),
    "compressed-4": lambda: compressed_packed(4, GROUP, False),
    "compressed-8": lambda: compressed_packed(8, None, True),
    "compressed-int8": compressed_int8,
    "compressed-float8": compressed_float8,
    "fp8": fp8,
    "bitsandbytes-nf4": lambda: bitsandbytes_4bit("nf4", True),
    "bitsandbytes-fp4": lambda: bitsandbytes_4bit("fp4", False),
    "bitsandbytes-int8": bitsandbytes_int8,
    "bitnet": lambda: bitnet("autobitlinear"),
    "bitnet-wide": lambda: bitnet("autobitlinear", columns=256),
    "bitnet-divided": lambda: bitnet("bitlinear"),
    "bitnet-divided-wide": lambda: bitnet("bitlinear", columns=256),
    "bitnet-online": lambda: bitnet("autobitlinear", "online"),
    "bitnet-online-float": lambda: bitnet("autobitlinear", "online", 256, torch.float32),
}


def main():
    output = pathlib.Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        tensors, expected, config = case()
        tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
        tensors["x.expected"] = expected.float().contiguous()
        safetensors.torch.save_file(tensors, output / f"{name}.safetensors", {"config": json.dumps(config)})
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in
                         ("torch", "transformers", "safetensors", "mlx", "compressed-tensors", "bitsandbytes", "auto-gptq", "autoawq"))
    (output / "README.md").write_text(f"Written by `scripts/make_packed_goldens.py testdata/packed` with {versions}.\n")


if __name__ == "__main__":
    main()
