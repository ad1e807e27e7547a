#!/usr/bin/env python3
"""Writes testdata/goldens/layers.safetensors: layers with their options as PyTorch computes them.

Usage: make_layer_goldens.py   (needs torch and safetensors; the versions go into the file)

Conventions as in make_op_goldens.py; lib/ops/layer_golden_builders_test.cc has what the names mean.
"""
import pathlib

import safetensors
import safetensors.torch
import torch
import torch.nn.functional as F

from make_op_goldens import case, floats, integers, names, tensors, values


def convolutions():
    case("conv2d_groups.plain", lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2), (1, 2), 3), floats([2, 6, 9, 8]),
         floats([6, 2, 3, 3]), floats([6]))
    case("conv2d_depthwise.plain", lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 5), floats([2, 5, 6, 7]),
         floats([5, 1, 3, 3]), floats([5]))
    case("conv2d_pointwise.plain", F.conv2d, floats([2, 5, 4, 3]), floats([7, 5, 1, 1]), floats([7]))
    case("conv2d_lenet.plain", lambda x, w, b: F.conv2d(x, w, b, 1, 2), floats([2, 1, 12, 12], -1, 1),
         floats([6, 1, 5, 5], -0.2, 0.2), floats([6]))
    case("conv1d_options.plain", lambda x, w, b: F.conv1d(x, w, b, 2, 2, 2, 2), floats([2, 4, 11]), floats([6, 2, 3]),
         floats([6]))
    case("conv_transpose2d_options.plain",
         lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 0), (1, 2), 2, (2, 1)),
         floats([2, 4, 3, 4]), floats([4, 3, 3, 2]), floats([6]))
    case("conv_transpose1d.plain", lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1), floats([2, 3, 5]),
         floats([3, 2, 4]), floats([2]))


def typed(builder, function, *shapes, low=-2, high=2):
    """Cases of a builder in float64, float16 and bfloat16."""
    for dtype in ("f64", "f16", "bf16"):
        case(f"{builder}.{dtype}", function, *[floats(shape, low, high, dtype) for shape in shapes])


def types_of_convolutions():
    options = ((2, 1), (1, 2), (1, 2), 3)
    for batch, label in (([2], None), ([], "single")):
        groups = lambda x, w, b: F.conv2d(x, w, b, *options)
        signals = lambda x, w, b: F.conv1d(x, w, b, 2, 2, 2, 2)
        transposed = lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 0), (1, 2), 2, (2, 1))
        transposed_signals = lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1)
        for builder, function, x, w, b in (
                ("conv2d_groups", groups, batch + [6, 9, 8], [6, 2, 3, 3], [6]),
                ("conv1d_options", signals, batch + [4, 11], [6, 2, 3], [6]),
                ("conv_transpose2d_options", transposed, batch + [4, 3, 4], [4, 3, 3, 2], [6]),
                ("conv_transpose1d", transposed_signals, batch + [3, 5], [3, 2, 4], [2])):
            if label:
                case(f"{builder}.{label}", function, floats(x), floats(w), floats(b))
            else:
                typed(builder, function, x, w, b)


def types_of_pooling():
    """The functions of pooling() in other types, without a batch, and with ceil_mode and divisors."""
    functions = {
        "max_pool2d_ties": lambda x: F.max_pool2d(x, 3, 2, 1),
        "max_pool2d_ceil": lambda x: F.max_pool2d(x, (3, 4), (2, 3), (1, 2), ceil_mode=True),
        "max_pool2d_ceil_halves": lambda x: F.max_pool2d(x, 2, ceil_mode=True),
        "max_pool2d_indices": lambda x: F.max_pool2d(x, (3, 2), 2, 1, (1, 2), True, return_indices=True),
        "avg_pool2d_uncounted": lambda x: F.avg_pool2d(x, (3, 2), (2, 1), 1, count_include_pad=False),
        "avg_pool2d_ceil": lambda x: F.avg_pool2d(x, (3, 4), (2, 3), (1, 2), True),
        "avg_pool2d_ceil_uncounted": lambda x: F.avg_pool2d(x, (3, 4), (2, 3), (1, 2), True, False),
        "avg_pool2d_divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, True, divisor_override=7),
        "adaptive_avg_pool2d_odd": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
        "global_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 1)}
    for builder, function in functions.items():
        typed(builder, function, [2, 3, 6, 8])
        case(f"{builder}.single", function, floats([3, 7, 6]))
        case(f"{builder}.odd", function, floats([1, 2, 7, 9]))
    for builder in ("max_pool2d_ceil", "avg_pool2d_ceil", "avg_pool2d_ceil_uncounted"):
        case(f"{builder}.larger", functions[builder], floats([1, 2, 2, 3]))
        case(f"{builder}.larger_than_padded", functions[builder], floats([2, 1, 1, 1]))
    signals = {"max_pool1d": lambda x: F.max_pool1d(x, 3, 2, 1), "avg_pool1d": lambda x: F.avg_pool1d(x, 3, 2, 1),
               "max_pool1d_ceil": lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True),
               "avg_pool1d_ceil": lambda x: F.avg_pool1d(x, 3, 2, 1, True),
               "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 4)}
    for builder, function in signals.items():
        typed(builder, function, [2, 3, 10])
        case(f"{builder}.single", function, floats([3, 10]))


def class_losses():
    """Logits, class weights and targets, of which one is ignored, in every type."""
    targets = values([3, 0, 4, 2, 2, 1], "i64")
    losses = {
        "cross_entropy_mean": lambda x, w, t: F.cross_entropy(x, t, w, ignore_index=2, label_smoothing=0.1),
        "cross_entropy_rows": lambda x, w, t: F.cross_entropy(x, t, w, ignore_index=2, reduction="none"),
        "nll_mean": lambda x, w, t: F.nll_loss(x, t, w, ignore_index=2),
        "nll_sum": lambda x, w, t: F.nll_loss(x, t, w, ignore_index=2, reduction="sum")}
    for builder, function in losses.items():
        for dtype in ("f32", "f64", "f16", "bf16"):
            detached = lambda x, w, t: function(x, w.detach(), t)
            case(f"{builder}.{dtype}", detached, floats([6, 5], dtype=dtype), floats([5], 0.2, 2, dtype), targets)
    for label, shape in {"images": [2, 4, 3, 2], "signals": [2, 4, 3], "single": [4], "empty": [0, 4, 3]}.items():
        for dtype in ("f32", "f64"):
            inputs = floats(shape, dtype=dtype), integers(shape[:1] * (len(shape) > 1) + shape[2:], 0, 4, "i64")
            case(f"cross_entropy_images.{label}_{dtype}", lambda x, t: [
                F.cross_entropy(x, t, reduction="none"),
                F.cross_entropy(x, t, ignore_index=0, label_smoothing=0.2)], *inputs)
            case(f"nll_images.{label}_{dtype}", lambda x, t: [F.nll_loss(x, t, reduction="none"), F.nll_loss(x, t)],
                 *inputs)
    for dtype in ("f64", "f16", "bf16"):
        case(f"cross_entropy_probabilities.{dtype}",
             lambda x, t: F.cross_entropy(x, t, label_smoothing=0.2), floats([6, 5], dtype=dtype),
             floats([6, 5], 0, 1, dtype))


def pooling():
    case("max_pool2d_halves.plain", lambda x: F.max_pool2d(x, 2), floats([2, 3, 7, 6]))
    case("max_pool2d_ties.plain", lambda x: F.max_pool2d(x, 3, 2, 1), values([[[[1.0, 1, 0, 1], [1, 1, 0, 2],
                                                                               [2, 2, 2, 2], [0, 2, 0, 2]]]]))
    case("max_pool1d.plain", lambda x: F.max_pool1d(x, 3, 2, 1), floats([2, 3, 9]))
    case("avg_pool2d_uncounted.plain", lambda x: F.avg_pool2d(x, (3, 2), (2, 1), 1, count_include_pad=False),
         floats([1, 2, 6, 5]))
    case("avg_pool1d.plain", lambda x: F.avg_pool1d(x, 3, 2, 1), floats([2, 3, 9]))
    case("adaptive_avg_pool1d.plain", lambda x: F.adaptive_avg_pool1d(x, 4), floats([2, 3, 9]))
    case("global_avg_pool2d.plain", lambda x: F.adaptive_avg_pool2d(x, 1), floats([2, 3, 4, 5]))


def normalisation():
    case("batch_norm_images.plain", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5),
         floats([3, 2, 4, 5]), floats([2]), floats([2]))
    case("batch_norm_features.plain", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-3),
         floats([6, 5]), floats([5]), floats([5]))
    case("batch_norm_bare.plain", lambda x: F.batch_norm(x, None, None, None, None, True, 0.1, 1e-5), floats([4, 3, 2]))
    case("group_norm.plain", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5), floats([3, 6, 4]), floats([6]), floats([6]))
    case("group_norm.pixels", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5), floats([2, 6, 20]), floats([6]), floats([6]))


def types_of_normalisation():
    typed("batch_norm_images", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), [3, 2, 4, 5], [2], [2])
    typed("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5), [3, 6, 4], [6], [6])
    for dtype in ("f64", "f16", "bf16"):
        x, w, b = floats([2, 3, 5], dtype=dtype), floats([5], dtype=dtype), floats([5], dtype=dtype)
        case(f"layer_norm_rows.{dtype}", lambda x, w, b: F.layer_norm(x, [5], w, b, 1e-5), x, w, b)
        case(f"rms_norm_rows.{dtype}", lambda x, w: F.rms_norm(x, [5], w, 1e-5), x, w)


def attended(mask, cap=None):
    """q [batch, tokens, heads, dim], k and v [batch, kv_heads, tokens, dim] under a mask [.., tokens, tokens]."""
    def run(q, k, v, *_):
        groups = q.shape[2] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = q.transpose(1, 2) @ k.transpose(2, 3) * 0.4
        if cap:
            scores = cap * torch.tanh(scores / cap)
        scores = scores.masked_fill(~mask, -torch.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2)
    return run


def attention():
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    q, k = floats([2, 9, 6, 4]), floats([2, 2, 9, 4])
    case("attention_groups.plain", attended(causal), q, k, k)
    case("attention_window.plain", attended(causal.triu(-3 + 1)), q, k, k)
    case("attention_cap.plain", attended(causal, cap=1.5), q, k, k)
    case("attention_cap.inference", attended(causal, cap=1.5), q, k, k, grad=False)
    ids = [[4, 4, 4, 5, 5, 5, 5, 5, 1], [0, 1, 1, 1, 1, 1, 2, 2, 2]]
    same = torch.tensor(ids)[:, :, None] == torch.tensor(ids)[:, None, :]
    case("attention_segments.plain", attended((same & causal)[:, None]), q, k, k, values(ids, "i32"))
    case("attention_segments_full.plain", attended(same[:, None]), q, k, k, values(ids, "i32"))


def recurrent(kind, reverse, lengths, **options):
    """x, weight_ih, weight_hh, bias_ih, bias_hh, h0, c0 (LSTM), lengths or not → out, last states."""
    lstm = kind is torch.nn.LSTM

    def run(x, wi, wh, bi, bh, h0, *rest):
        features, hidden = x.shape[2], h0.shape[1]
        layer = kind(features, hidden, batch_first=True, bidirectional=reverse, **options).to(x.dtype)
        suffix = "_l0_reverse" if reverse else "_l0"
        weights = {f"weight_ih{suffix}": wi, f"weight_hh{suffix}": wh, f"bias_ih{suffix}": bi, f"bias_hh{suffix}": bh}
        for name, parameter in layer.named_parameters():
            weights.setdefault(name, parameter.detach())
        ways = 2 if reverse else 1
        first = h0.expand(ways, *h0.shape)
        if lstm:
            first = (first, rest[0].expand(ways, *h0.shape))
        steps = x.shape[1]
        if lengths:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, rest[-1].long(), True, False)
        out, last = torch.func.functional_call(layer, weights, (x, first))
        if lengths:
            out = torch.nn.utils.rnn.pad_packed_sequence(out, True, total_length=steps)[0]
        last = [s[-1] for s in (last if lstm else (last,))]
        return [out[..., -hidden:], *last]
    return run


def delta_rule(tiled):
    """The gated delta rule: q, k, v, decay, beta → out, the last states."""
    def run(q, k, v, decay, beta):
        group = v.shape[2] // q.shape[2]
        q, k = (x.repeat(1, 1, group, 1) if tiled else x.repeat_interleave(group, 2) for x in (q, k))
        state = torch.zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3])
        out = []
        for t in range(v.shape[1]):
            state = state * (decay[:, t, ..., None] if decay.ndim == 4 else decay[:, t, :, None, None])
            error = v[:, t] - torch.einsum("bhij,bhi->bhj", state, k[:, t])
            state = state + torch.einsum("bhi,bhj->bhij", k[:, t], error * beta[:, t, :, None])
            out.append(torch.einsum("bhij,bhi->bhj", state, q[:, t]))
        return [torch.stack(out, 1), state]
    return run


def linear_attention():
    for name, tiled in (("delta_rule", False), ("delta_rule_tiled", True)):
        keys, heads, gates = floats([2, 5, 2, 4], -0.7, 0.7), floats([2, 5, 4, 3]), floats([2, 5, 4], 0, 1)
        case(f"{name}.plain", delta_rule(tiled), keys, keys, heads, gates, gates)


def selective_scan(u, time, rates, b, c):
    """The recurrence of Mamba → out, the last states."""
    state, out = torch.zeros(u.shape[0], *rates.shape), []
    for t in range(u.shape[1]):
        state = torch.exp(time[:, t, None] * rates) * state + u[:, t, None] * b[:, t, :, None]
        out.append((state * c[:, t, :, None]).sum(1))
    return [torch.stack(out, 1), state[:, None]]


def state_spaces():
    keys, heads = floats([2, 5, 2, 4], -0.7, 0.7), floats([2, 5, 4, 3])
    case("delta_rule_by_rows.plain", delta_rule(False), keys, keys, heads, floats([2, 5, 4, 4], 0, 1),
         floats([2, 5, 4], 0, 1))
    numbers = floats([2, 5, 3])
    case("selective_scan.plain", selective_scan, floats([2, 5, 6]), floats([2, 5, 6], 0, 1),
         floats([3, 6], -1.5, 0), numbers, numbers)


def in_double(x):
    return x.double() if x.is_floating_point() else x


def recurrence():
    kinds = {"lstm": (torch.nn.LSTM, 4, {}), "gru": (torch.nn.GRU, 3, {}), "rnn_tanh": (torch.nn.RNN, 1, {}),
             "rnn_relu": (torch.nn.RNN, 1, {"nonlinearity": "relu"})}
    for name, (kind, gates, options) in kinds.items():
        for reverse in (False, True):
            for lengths in (False, True):
                label = name + ("_reverse" if reverse else "") + ("_lengths" if lengths else "")
                inputs = [floats([3, 5, 4]), floats([gates * 6, 4], -0.5, 0.5), floats([gates * 6, 6], -0.5, 0.5),
                          floats([gates * 6], -0.5, 0.5), floats([gates * 6], -0.5, 0.5), floats([3, 6], -1, 1)]
                if name == "lstm":
                    inputs.append(floats([3, 6], -1, 1))
                if lengths:
                    inputs.append(values([3, 5, 1], "i32"))
                case(f"{label}.plain", recurrent(kind, reverse, lengths, **options), *inputs)
                wide = [lambda g, draw=draw: in_double(draw(g)) for draw in inputs]
                case(f"{label}.f64", recurrent(kind, reverse, lengths, **options), *wide)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    convolutions()
    types_of_convolutions()
    pooling()
    types_of_pooling()
    class_losses()
    normalisation()
    types_of_normalisation()
    attention()
    linear_attention()
    recurrence()
    state_spaces()
    path = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "goldens" / "layers.safetensors"
    metadata = {"command": "scripts/make_layer_goldens.py", "torch": torch.__version__,
                "safetensors": safetensors.__version__}
    safetensors.torch.save_file(tensors, path, metadata)
    print(f"{path}: {len(names)} cases, {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
