#!/usr/bin/env python3
"""Makes testdata/goldens/modules.safetensors: layers forward and backward as torch.nn has them.

Usage: make_module_goldens.py OUTPUT_DIRECTORY     (needs torch, safetensors, numpy)

Per case, in float64 and stored as float32: "CASE/parameter/NAME", "CASE/input/NAME", the output
"CASE/output", the gradient that the output is given, "CASE/seed", and the gradients of parameters
and inputs, "CASE/gradient/NAME"; "CASE/after/NAME": buffers after the forward pass.
"""
import pathlib
import sys

import numpy as np
import safetensors.numpy
import torch
from torch import nn

arrays = {}


def store(name, tensor):
    value = tensor.detach().numpy()
    value = value.astype(np.float32) if value.dtype == np.float64 else value
    arrays[name] = np.array(value, order="C")  # safetensors writes memory as it lies


def case(label, module, inputs, call=None, train=True):
    """`inputs`: name → tensor; floating ones get gradients. `call(module, **inputs)` → output."""
    module = module.double().train(train)
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            if parameter.ndim < 2:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            parameter.copy_(parameter.float().double())
        store(f"{label}/parameter/{name}", parameter)
    for name, buffer in module.named_buffers():
        if buffer.is_floating_point():
            buffer.copy_((buffer + torch.rand_like(buffer)).float().double())
        store(f"{label}/parameter/{name}", buffer)
    leaves = {}
    for name, value in inputs.items():
        if value.is_floating_point():
            value = value.float().double().requires_grad_()
            leaves[name] = value
        else:
            value = value if value.dtype == torch.bool else value.to(torch.int32)
        inputs[name] = value
        store(f"{label}/input/{name}", value)
    output = call(module, **inputs) if call else module(*inputs.values())
    seed = torch.randn_like(output).float().double()
    store(f"{label}/output", output)
    store(f"{label}/seed", seed)
    for name, buffer in module.named_buffers():
        if buffer.is_floating_point():
            store(f"{label}/after/{name}", buffer)
    wanted = dict(module.named_parameters()) | leaves
    gradients = torch.autograd.grad(output, list(wanted.values()), seed)
    for name, gradient in zip(wanted, gradients):
        store(f"{label}/gradient/{name}", gradient)


def x(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def packed(module, x, lengths, state=None):
    """Output and last states in one row per sample."""
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths.long(), batch_first=True,
                                                 enforce_sorted=False)
    output, last = module(sequence) if state is None else module(sequence, state)
    output = nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0]
    last = torch.cat(last) if isinstance(last, tuple) else last
    return torch.cat([output.flatten(), last.flatten()])


def whole(module, x):
    output, last = module(x)
    last = torch.cat(last) if isinstance(last, tuple) else last
    return torch.cat([output.flatten(), last.flatten()])


def main():
    torch.manual_seed(31)
    case("linear", nn.Linear(5, 4), {"x": x(2, 3, 5)})
    case("embedding", nn.Embedding(7, 4), {"x": torch.tensor([[1, 6, 1], [0, 2, 6]])},
         lambda m, x: m(x.long()))
    case("layer_norm", nn.LayerNorm(6), {"x": x(2, 3, 6)})
    case("rms_norm", nn.RMSNorm(6, eps=1e-5), {"x": x(2, 3, 6)})
    case("group_norm", nn.GroupNorm(2, 6), {"x": x(3, 6, 2, 2)})
    case("conv1d", nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), {"x": x(2, 4, 7)})
    case("conv2d", nn.Conv2d(3, 4, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1)),
         {"x": x(2, 3, 6, 5)})
    case("conv2d_groups", nn.Conv2d(4, 4, 3, groups=4, bias=False), {"x": x(2, 4, 5, 5)})
    case("conv_transpose2d",
         nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
         {"x": x(2, 4, 3, 4)})
    case("max_pool2d", nn.MaxPool2d(3, stride=2, padding=1), {"x": x(2, 2, 7, 6)})
    case("avg_pool2d", nn.AvgPool2d(2), {"x": x(2, 2, 6, 5)})
    case("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((3, 2)), {"x": x(2, 2, 7, 5)})
    case("max_pool1d", nn.MaxPool1d(2), {"x": x(2, 3, 7)})
    case("avg_pool1d", nn.AvgPool1d(3, stride=1), {"x": x(2, 3, 7)})
    case("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(3), {"x": x(2, 3, 7)})
    case("flatten", nn.Flatten(1, 2), {"x": x(2, 3, 2, 2)})
    case("batch_norm1d", nn.BatchNorm1d(4), {"x": x(5, 4)})
    case("batch_norm1d_signal", nn.BatchNorm1d(3, momentum=0.3), {"x": x(2, 3, 4)})
    case("batch_norm2d", nn.BatchNorm2d(3), {"x": x(4, 3, 3, 2)})
    case("batch_norm2d_eval", nn.BatchNorm2d(3), {"x": x(4, 3, 3, 2)}, train=False)
    case("batch_norm2d_plain", nn.BatchNorm2d(3, affine=False, track_running_stats=False),
         {"x": x(4, 3, 3, 2)})
    case("rnn_cell", nn.RNNCell(3, 4), {"x": x(2, 3), "h": x(2, 4)})
    case("lstm_cell", nn.LSTMCell(3, 4), {"x": x(2, 3), "h": x(2, 4), "c": x(2, 4)},
         lambda m, x, h, c: torch.cat(m(x, (h, c))))
    case("gru_cell", nn.GRUCell(3, 4, bias=False), {"x": x(2, 3), "h": x(2, 4)})
    lengths = torch.tensor([5, 2, 4])
    case("rnn", nn.RNN(3, 4, batch_first=True), {"x": x(2, 6, 3)}, whole)
    case("rnn_relu", nn.RNN(3, 4, 2, nonlinearity="relu", batch_first=True, bidirectional=True),
         {"x": x(3, 5, 3), "lengths": lengths}, packed)
    case("lstm", nn.LSTM(3, 4, 2, batch_first=True), {"x": x(2, 6, 3)}, whole)
    case("lstm_packed", nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
         {"x": x(3, 5, 3), "lengths": lengths, "h": x(4, 3, 4), "c": x(4, 3, 4)},
         lambda m, x, lengths, h, c: packed(m, x, lengths, (h, c)))
    case("gru", nn.GRU(3, 4, 2, batch_first=True), {"x": x(2, 6, 3)}, whole)
    case("gru_packed", nn.GRU(3, 4, batch_first=True, bidirectional=True, bias=False),
         {"x": x(3, 5, 3), "lengths": lengths, "h": x(2, 3, 4)},
         lambda m, x, lengths, h: packed(m, x, lengths, h))
    attention = nn.MultiheadAttention(6, 2, batch_first=True)
    case("attention", attention, {"x": x(2, 4, 6)}, lambda m, x: m(x, x, x)[0])
    case("attention_causal", nn.MultiheadAttention(6, 3, batch_first=True), {"x": x(2, 4, 6)},
         lambda m, x: m(x, x, x, is_causal=True, attn_mask=nn.Transformer
                        .generate_square_subsequent_mask(4, dtype=torch.float64))[0])
    case("attention_cross", nn.MultiheadAttention(6, 2, batch_first=True, bias=False),
         {"query": x(2, 3, 6), "key": x(2, 5, 6), "value": x(2, 5, 6), "mask": x(3, 5)},
         lambda m, query, key, value, mask: m(query, key, value, attn_mask=mask)[0])
    case("attention_padding", nn.MultiheadAttention(6, 2, batch_first=True),
         {"query": x(2, 3, 6), "key": x(2, 5, 6), "value": x(2, 5, 6),
          "mask": torch.arange(5) >= torch.tensor([5, 2]).reshape(2, 1, 1, 1)},
         lambda m, query, key, value, mask: m(query, key, value,
                                              key_padding_mask=mask.reshape(2, 5))[0])
    cumulative = nn.BatchNorm1d(4, momentum=None)
    cumulative.num_batches_tracked.fill_(3)
    case("batch_norm1d_cumulative", cumulative, {"x": x(5, 4)})
    embedding = nn.Embedding(7, 4, padding_idx=-6)  # whose row keeps its value, which is not 0
    nn.init.normal_(embedding.weight)
    case("embedding_padding", embedding, {"x": torch.tensor([[1, 6, 1], [0, 2, 6]])},
         lambda m, x: m(x.long()))
    directory = pathlib.Path(sys.argv[1])
    made = {"command": "scripts/make_module_goldens.py testdata/goldens",
            "torch": torch.__version__, "numpy": np.__version__}
    safetensors.numpy.save_file(arrays, directory / "modules.safetensors", made)


main()
