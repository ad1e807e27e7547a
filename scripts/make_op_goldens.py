#!/usr/bin/env python3
"""Writes testdata/goldens/ops.safetensors: every operation of lib/ops as PyTorch computes it.

Usage: make_op_goldens.py   (needs torch and safetensors; the versions go into the file)

A case is called BUILDER.VARIANT; lib/ops/golden_builders_test.cc has what BUILDER means in Lumen. Tensors of
a case: i0, i1 … inputs; o0, o1 … results; s0 … gradients of the results (random); g0 … gradients of
the inputs. Inputs are drawn from generators seeded by the case's name.
"""
import math
import pathlib
import zlib

import safetensors
import safetensors.torch
import torch
import torch.nn.functional as F

INF, NAN = math.inf, math.nan
FLOATS = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
INTEGERS = {"i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64}
TYPES = {**FLOATS, **INTEGERS, "bool": torch.bool}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.0, INF, -INF, NAN, 1e-38, 2.0**-140, 30.0,
           -30.0, 1e10, -1e10]

tensors = {}
names = set()


def generator(name):
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def floats(shape, low=-2.0, high=2.0, dtype="f32"):
    """A recipe for an input: drawn when the case has a name."""
    def draw(g):
        return (torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low).to(TYPES[dtype])
    return draw


def integers(shape, low=-5, high=6, dtype="i32"):
    def draw(g):
        return torch.randint(low, high, tuple(shape), generator=g).to(TYPES[dtype])
    return draw


def values(data, dtype="f32"):
    return lambda g: torch.tensor(data, dtype=TYPES[dtype])


def experts(x, logits, matrices, normalize, biases=None, scales=None):
    """Each token through two experts, or the only one: gates, then ups, then downs. With biases gated as gpt-oss
    does it, alpha 1.7, limit 0.6; with scales of the probabilities by GELU."""
    count = len(matrices) // 3
    gate, up, down = matrices[:count], matrices[count:2 * count], matrices[2 * count:]
    probability, chosen = torch.topk(F.softmax(logits, -1), min(2, count), -1)
    if normalize:
        probability = probability / probability.sum(-1, keepdim=True)
    if scales is not None:
        probability = probability * scales[chosen]

    def expert(x, e):
        if biases is None:
            g = F.linear(x, gate[e])
            activated = F.silu(g) if scales is None else F.gelu(g, approximate="tanh")
            return F.linear(activated * F.linear(x, up[e]), down[e])
        g, u = F.linear(x, gate[e], biases[0][e]), F.linear(x, up[e], biases[1][e])
        g, u = g.clamp(max=0.6), u.clamp(-0.6, 0.6)
        return F.linear((u + 1) * g * torch.sigmoid(1.7 * g), down[e], biases[2][e])

    return torch.stack([sum(p * expert(x[t], e) for p, e in zip(probability[t], chosen[t].tolist()))
                        for t in range(x.shape[0])])


def case(name, function, *inputs, grad=True):
    assert name not in names, name
    names.add(name)
    g = generator(name)
    args = [i(g) for i in inputs]
    for k, x in enumerate(args):
        tensors[f"{name}.i{k}"] = x.clone().contiguous()
    leaves = [x.clone().requires_grad_(grad and x.dtype in (torch.float32, torch.float64)) for x in args]
    outputs = function(*leaves)
    if isinstance(outputs, torch.Tensor):
        outputs = [outputs]
    outputs = list(outputs)
    seeds = []
    for k, y in enumerate(outputs):
        if y.dtype == torch.int16:
            y = y.to(torch.int32)  # Lumen has no int16
        tensors[f"{name}.o{k}"] = y.detach().clone().contiguous()
        if y.requires_grad:
            seed = torch.randn(y.shape, generator=g, dtype=torch.float64).to(y.dtype)
            tensors[f"{name}.s{k}"] = seed.contiguous()
            seeds.append((y, seed))
    wanted = [k for k, x in enumerate(leaves) if x.requires_grad]
    if not seeds or not wanted:
        return
    found = torch.autograd.grad([y for y, _ in seeds], [leaves[k] for k in wanted], [s for _, s in seeds],
                                allow_unused=True)
    for k, gradient in zip(wanted, found):
        if gradient is None:
            gradient = torch.zeros_like(leaves[k])
        tensors[f"{name}.g{k}"] = gradient.detach().clone().contiguous()


# --- Element-wise ------------------------------------------------------------------------------

def unary(name, function, low=-2.0, high=2.0, integer=True, special=True):
    case(f"{name}.plain", function, floats([3, 7], low, high))
    case(f"{name}.scalar", function, floats([], low, high))
    case(f"{name}.empty", function, floats([0, 3], low, high))
    # PyTorch's gradient of hard_sigmoid has a factor that is rounded to float32.
    case(f"{name}.f64", function, floats([2, 5], low, high, "f64"), grad=not name.startswith("hard_"))
    for dtype in ("f16", "bf16"):
        case(f"{name}.{dtype}", function, floats([2, 5], low, high, dtype), grad=False)
    if special:
        case(f"{name}.special", function, values(SPECIAL), grad=False)
    if integer:
        case(f"{name}.i32", function, integers([9], max(-5, math.ceil(low)), max(6, math.ceil(low) + 4)))


def soft_cap(x):
    """Narrow types are rounded once."""
    wide = x if x.dtype == torch.float64 else x.float()
    return (3 * torch.tanh(wide / 3)).to(x.dtype)


def elementwise_unary():
    unary("abs", torch.abs)
    case("abs.ties", torch.abs, values([0.0, -0.0, 1.0]))
    case("abs.i8", torch.abs, values([-128, -1, 0, 127], "i8"))
    unary("neg", torch.neg)
    case("neg.u8", torch.neg, values([0, 1, 255], "u8"))
    for name, function in [("floor", torch.floor), ("ceil", torch.ceil), ("trunc", torch.trunc), ("sign", torch.sign)]:
        unary(name, function, -3, 3)
    unary("round", torch.round, -3, 3)
    case("round.halves", torch.round, values([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 8388609.0]))
    unary("square", torch.square)
    case("square.bool", torch.square, values([True, False], "bool"))
    unary("exp2", torch.exp2)
    unary("log2", torch.log2, 0.1, 9)
    unary("exp", torch.exp)
    case("exp.range", torch.exp, values([88.7, 88.8, -87.0, -104.0, 100.0]), grad=False)
    unary("log", torch.log, 0.1, 9)
    unary("expm1", torch.expm1)
    case("expm1.small", torch.expm1, values([1e-8, -1e-8, 1e-4]))
    unary("log1p", torch.log1p, -0.9, 9)
    case("log1p.small", torch.log1p, values([1e-8, -1e-8, 1e-4]))
    unary("sin", torch.sin)
    unary("cos", torch.cos)
    case("cos.large", torch.cos, values([100.0, 1e4, 1e5, -3e6]))
    unary("sqrt", torch.sqrt, 0.1, 9)
    unary("rsqrt", torch.rsqrt, 0.1, 9)
    unary("recip", torch.reciprocal, 0.2, 3)
    unary("erf", torch.erf, -3.5, 3.5)
    unary("tanh", torch.tanh)
    unary("sigmoid", torch.sigmoid, -5, 5)
    unary("relu", torch.relu)
    case("relu.ties", torch.relu, values([0.0, -0.0, 1.0]))
    for name, function in [("silu", F.silu), ("gelu", F.gelu), ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
                           ("elu", lambda x: F.elu(x, 0.7)), ("leaky_relu", lambda x: F.leaky_relu(x, 0.2)),
                           ("softplus", F.softplus), ("softplus_beta", lambda x: F.softplus(x, 2.0, 3.0)),
                           ("hard_swish", F.hardswish), ("hard_sigmoid", F.hardsigmoid), ("mish", F.mish)]:
        unary(name, function, -4, 4, integer=False, special=name not in ("mish", "gelu", "gelu_tanh", "hard_swish"))
        case(f"{name}.limits", function, values([-100.0, -20.0, -1e-3, 0.0, 1e-3, 20.0, 100.0]))
    unary("soft_cap", soft_cap, -9, 9, integer=False)
    unary("isnan", torch.isnan)
    unary("isinf", torch.isinf)
    unary("isfinite", torch.isfinite)
    unary("logical_not", torch.logical_not)
    case("logical_not.bool", torch.logical_not, values([True, False], "bool"))


def grid(dtype="f32"):
    """All pairs of special values, as two inputs that broadcast."""
    data = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, INF, -INF, NAN, 1e-38, 7.0]
    return values([[x] for x in data], dtype), values(data, dtype)


def binary(name, function, low=-2.0, high=2.0, integer=True, boolean=False, special=True, low_b=None):
    b = low if low_b is None else low_b
    case(f"{name}.plain", function, floats([3, 7], low, high), floats([3, 7], b, high))
    case(f"{name}.broadcast", function, floats([3, 1, 4], low, high), floats([5, 1], b, high))
    case(f"{name}.scalar", function, floats([], low, high), floats([2, 3], b, high))
    case(f"{name}.empty", function, floats([0, 3], low, high), floats([1, 3], b, high))
    case(f"{name}.f64", function, floats([2, 5], low, high, "f64"), floats([2, 5], b, high, "f64"))
    case(f"{name}.f64_f32", function, floats([2, 5], low, high, "f64"), floats([5], b, high))
    for dtype in ("f16", "bf16"):
        case(f"{name}.{dtype}", function, floats([2, 5], low, high, dtype), floats([5], b, high, dtype), grad=False)
    case(f"{name}.f16_scalar", function, floats([5], low, high, "f16"), floats([], b, high), grad=False)
    if special:
        case(f"{name}.special", function, *grid(), grad=False)
        case(f"{name}.special_f64", function, *grid("f64"), grad=False)
    if integer:
        for dtype in INTEGERS:
            small = 0 if dtype == "u8" else -9
            case(f"{name}.{dtype}", function, integers([4, 6], small, 10, dtype), integers([6], 1, 9, dtype))
        case(f"{name}.i32_f32", function, integers([4]), floats([4], max(b, 0.3), high))
        case(f"{name}.i64_f64_scalar", function, integers([4], dtype="i64"), floats([], max(b, 0.3), high, "f64"))
        if name != "pow":  # PyTorch wraps at 16 bits
            case(f"{name}.u8_i8", function, integers([4], 0, 200, "u8"), integers([4], 1, 5, "i8"))
        if boolean:
            case(f"{name}.bool", function, values([True, True, False, False], "bool"),
                 values([True, False, True, False], "bool"))
            case(f"{name}.bool_i32", function, values([True, False], "bool"), values([3, 4], "i32"))


def floor_divide(a, b):
    return torch.floor_divide(a.detach(), b.detach())  # PyTorch has no gradient of it


def elementwise_binary():
    binary("add", torch.add, boolean=True)
    case("add.wrap", torch.add, values([127, -128, 100], "i8"), values([1, -1, 100], "i8"))
    case("add.wrap_i64", torch.add, values([2**63 - 1, -2**63], "i64"), values([1, -1], "i64"))
    binary("sub", torch.sub)
    binary("mul", torch.mul, boolean=True)
    case("mul.wrap", torch.mul, values([2**31 - 1, 65536], "i32"), values([2, 65536], "i32"))
    binary("div", torch.div, low_b=0.3)
    binary("mod", torch.fmod, low_b=0.3)
    binary("remainder", torch.remainder, low_b=0.3)
    case("remainder.signs", torch.remainder, values([7.0, -7.0, 7.0, -7.0, 6.0]), values([3.0, 3.0, -3.0, -3.0, -3.0]))
    case("remainder.int_signs", torch.remainder, values([7, -7, 7, -7, 6], "i32"), values([3, 3, -3, -3, -3], "i32"))
    case("mod.int_signs", torch.fmod, values([7, -7, 7, -7], "i32"), values([3, 3, -3, -3], "i32"))
    binary("floor_divide", floor_divide, low_b=0.3)
    case("floor_divide.signs", floor_divide, values([7.0, -7.0, 7.0, -7.0]), values([3.0, 3.0, -3.0, -3.0]))
    case("floor_divide.int_signs", floor_divide, values([7, -7, 7, -7, 6], "i32"),
         values([3, 3, -3, -3, -3], "i32"))
    binary("maximum", torch.maximum, boolean=True)
    case("maximum.ties", torch.maximum, values([1.0, 0.0, -0.0, 2.0]), values([1.0, -0.0, 0.0, 3.0]))
    binary("minimum", torch.minimum, boolean=True)
    case("minimum.ties", torch.minimum, values([1.0, 0.0, -0.0, 2.0]), values([1.0, -0.0, 0.0, 1.0]))
    binary("pow", torch.pow, 0.3, 2.5)
    case("pow.negative_base", torch.pow, values([-2.0, -2.0, -2.0, 0.0, 0.0, -0.0]),
         values([3.0, 2.0, 0.5, 0.0, 2.0, 3.0]), grad=False)
    case("pow.zero", torch.pow, values([0.0, 0.0, 3.0]), values([2.0, 0.0, 0.0]))
    for name, function in [("lt", torch.lt), ("le", torch.le), ("gt", torch.gt), ("ge", torch.ge), ("eq", torch.eq),
                           ("ne", torch.ne)]:
        binary(name, function, boolean=True)
        case(f"{name}.ties", function, values([1.0, 2.0, 3.0]), values([1.0, 3.0, 2.0]))
        case(f"{name}.large", function, values([2**53 + 1, 2**53], "i64"), values([2**53, 2**53 + 1], "i64"))
    for name in ("logical_and", "logical_or", "logical_xor"):
        binary(name, getattr(torch, name), boolean=True)


def elementwise_other():
    for name, function in [("add_number", lambda x: x + 1.5), ("sub_number", lambda x: 2 - x),
                           ("mul_number", lambda x: x * 3), ("div_number", lambda x: x / 3),
                           ("mod_number", lambda x: torch.fmod(x, 2)), ("remainder_real", lambda x: x % 1.5),
                           ("pow_2_real", lambda x: x**2.0), ("pow_3_real", lambda x: x**3.0),
                           ("pow_half", lambda x: x**0.5),
                           ("rdiv_number", lambda x: 2.0 / x), ("pow_2", lambda x: x**2), ("pow_3", lambda x: x**3),
                           ("pow_number", lambda x: x**2.5), ("pow_minus_1", lambda x: x**-1.0),
                           ("rpow_number", lambda x: 2.0**x), ("floor_divide_number", lambda x: x.detach() // 2),
                           ("remainder_number", lambda x: x % 3), ("gt_number", lambda x: x > 1),
                           ("eq_number", lambda x: x == 1.5), ("maximum_number", lambda x: torch.clamp(x, min=2))]:
        case(f"{name}.f32", function, floats([2, 5], 0.5, 3))
        case(f"{name}.scalar", function, floats([], 0.5, 3))
        for dtype in ("f16", "f64"):
            case(f"{name}.{dtype}", function, floats([5], 0.5, 3, dtype), grad=dtype == "f64")
        case(f"{name}.f16_0d", function, floats([], 0.5, 3, "f16"), grad=False)
        for dtype in ("i32", "u8"):
            case(f"{name}.{dtype}", function, integers([5], 1, 9, dtype))
        if name != "sub_number":
            case(f"{name}.bool", function, values([True, False, True], "bool"))

    def where(c, a, b):
        return torch.where(c, a, b)
    case("where.plain", where, values([[True], [False]], "bool"), floats([2, 3]), floats([3]))
    case("where.nan", where, values([True, False], "bool"), values([1.0, NAN]), values([NAN, 2.0]))
    case("where.i64", where, values([True, False], "bool"), values([1, 2], "i64"), values([3, 4], "i32"))
    case("where.f64", where, values([True, False], "bool"), values([1.5, 2.5], "f64"), values([3.5, 4.5], "f64"))
    case("where_lt.plain", lambda a, b: torch.where(a < b, a * 2, b), floats([4, 5]), floats([5]))
    case("masked_fill.plain", lambda x, m: x.masked_fill(m, -INF), floats([2, 3]),
         values([True, False, True], "bool"))
    case("masked_fill_7.i32", lambda x, m: x.masked_fill(m, 7), integers([2, 3]), values([True, False, True], "bool"))
    bounds = [-1.0, -0.5, 0.0, 0.5, 1.0, NAN, INF, -INF]
    case("clamp_both.plain", lambda x: torch.clamp(x, -0.5, 0.5), values(bounds))
    case("clamp_low.plain", lambda x: torch.clamp(x, min=-0.5), values(bounds))
    case("clamp_high.plain", lambda x: torch.clamp(x, max=0.5), values(bounds))
    case("clamp_swapped.plain", lambda x: torch.clamp(x, 0.5, -0.5), values(bounds))
    case("clamp_int.i32", lambda x: torch.clamp(x, -2, 3), integers([9]))
    case("clamp_both.i32", lambda x: torch.clamp(x, -0.5, 0.5), integers([9]))
    case("clamp_tensors.plain", torch.clamp, floats([3, 4]), floats([4], -1, 0), floats([4], 0, 1))
    case("clamp_tensors.ties", torch.clamp, values([-1.0, 0.0, 1.0]), values([-1.0, -1.0, -1.0]),
         values([1.0, 1.0, 1.0]))


def promotion():
    """torch.result_type for all pairs, tensors with and without axes, and numbers, as a sum."""
    for a in TYPES:
        for b in TYPES:
            x, y = values([1, 0], a), values([1, 1], b)
            case(f"add.{a}+{b}", torch.add, x, y, grad=False)
            case(f"add.{a}+{b}_0d", torch.add, x, values(1, b), grad=False)
            case(f"add.{a}_0d+{b}_0d", torch.add, values(1, a), values(1, b), grad=False)
        case(f"plus_true.{a}", lambda t: t + True, values([1, 0], a), grad=False)
        case(f"plus_2.{a}", lambda t: t + 2, values([1, 0], a), grad=False)
        case(f"plus_half.{a}", lambda t: t + 0.5, values([1, 0], a), grad=False)
        case(f"plus_half.{a}_0d", lambda t: t + 0.5, values(1, a), grad=False)
        case(f"div.self_{a}", torch.div, values([1, 0], a), values([1, 1], a), grad=False)


def narrow_operands():
    """What float16 and bfloat16 cannot hold is rounded to them before it takes part."""
    for dtype, big in [("f16", 2049), ("bf16", 257)]:
        x = values([big - 1.0, 1.0, big + 3.0], dtype)
        for name, function in [("sub", torch.sub), ("mod", torch.fmod), ("remainder", torch.remainder), ("eq", torch.eq),
                               ("ne", torch.ne), ("lt", torch.lt), ("ge", torch.ge), ("mul", torch.mul)]:
            for label, y in [("i32", values([big, big, big], "i32")), ("i64_0d", values(big, "i64")),
                             ("f32_0d", values(float(big)))]:
                case(f"{name}.{dtype}_{label}_rounded", function, x, y, grad=False)
                case(f"{name}.{label}_{dtype}_rounded", function, y, x, grad=False)


def casts():
    data = {"f32": [0.0, -0.5, 0.5, 1.5, 2.5, -1.5, -2.9, 100.7, 3.0], "bool": [True, False],
            "u8": [0, 1, 127, 200, 255], "i8": [0, 1, -1, 127, -128], "i32": [0, 1, -1, 300, -70000, 2**31 - 1],
            "i64": [0, 1, -1, 2**40 + 3, 2**53 + 1, -300]}
    for dtype in ("f64", "f16", "bf16"):
        data[dtype] = data["f32"]
    for a in TYPES:
        for b in TYPES:
            numbers = data[a]
            if b == "u8" and a in FLOATS:
                numbers = [abs(x) for x in numbers]
            case(f"to_{b}.{a}", lambda x, b=b: x.to(TYPES[b]), values(numbers, a), grad=False)
    case("to_f64.grad", lambda x: x.to(torch.float64), floats([3]))
    case("to_bool.special", lambda x: x.to(torch.bool), values([0.0, -0.0, NAN, INF, 0.1]), grad=False)


# --- Views, joining, rows ----------------------------------------------------------------------

def views():
    case("reshape.plain", lambda x: x.reshape(4, -1), floats([2, 3, 4]))
    case("flatten_last.plain", lambda x: x.flatten(-1), floats([2, 3, 4]))  # Flatten(-1) of the predecessor
    case("flatten.plain", lambda x: x.flatten(1), floats([2, 3, 4]))
    case("flatten.empty", lambda x: x.flatten(1), floats([2, 0, 4]))
    case("flatten_all.scalar", lambda x: x.flatten(), floats([]))
    case("permute.plain", lambda x: x.permute(2, 0, -2), floats([2, 3, 4]))
    case("transpose.plain", lambda x: x.transpose(-1, 0), floats([2, 3, 4]))
    case("expand.plain", lambda x: x.expand(2, 3, 4), floats([3, 1]))
    case("slice.plain", lambda x: x[:, 1:3], floats([2, 5, 3]))
    case("slice_none.plain", lambda x: x[:, 2:2], floats([2, 5, 3]))
    case("pad.plain", lambda x: F.pad(x, (0, 0, 2, 1)), floats([2, 3, 2]))
    case("pad.i64", lambda x: F.pad(x, (0, 0, 2, 1)), integers([2, 3, 2], dtype="i64"))
    case("squeeze.plain", lambda x: x.squeeze(), floats([1, 3, 1, 2]))
    case("squeeze_axis.plain", lambda x: x.squeeze(-2), floats([1, 3, 1, 2]))
    case("unsqueeze.plain", lambda x: x.unsqueeze(-1).unsqueeze(0), floats([3]))
    case("movedim.plain", lambda x: x.movedim(0, -1), floats([2, 3, 4]))
    case("flip.plain", lambda x: x.flip(0, -1), floats([2, 3, 4]))
    case("flip.i64", lambda x: x.flip(0, -1), integers([2, 3, 4], dtype="i64"))
    case("roll.plain", lambda x: x.roll(2, 1), floats([2, 5]))
    case("roll_back.plain", lambda x: x.roll(-7, 1), floats([2, 5]))
    case("repeat_interleave.plain", lambda x: x.repeat_interleave(3, -1), floats([2, 3]))
    case("tile.plain", lambda x: x.repeat(2, 3, 1), floats([2, 4]))
    case("tile_many.plain", lambda x: x.repeat(2, 1, 3, 2, 1, 2, 1, 2), floats([2, 1, 3, 2, 2]))
    case("expand_kept.plain", lambda x: x.expand(2, -1, 4, -1), floats([3, 1, 2]))
    case("chunk.plain", lambda x: x.chunk(3, 1), floats([2, 7]))
    case("split.plain", lambda x: x.split([2, 0, 5], 1), floats([2, 7]))
    case("split_even.plain", lambda x: x.split(3, -1), floats([2, 7]))
    for k in (-2, 0, 1):
        label = f"minus_{-k}" if k < 0 else str(k)
        case(f"tril_{label}.plain", lambda x, k=k: x.tril(k), floats([2, 3, 4]))
        case(f"triu_{label}.plain", lambda x, k=k: x.triu(k), values([[NAN, 1.0, INF], [2.0, NAN, 3.0]]))
    case("tril_0.i32", lambda x: x.tril(), integers([3, 3]))
    case("tril_0.f64", lambda x: x.tril(), floats([3, 3], dtype="f64"))


def joining():
    case("concat_1.plain", lambda a, b, c: torch.cat([a, b, c], 1), floats([2, 3]), floats([2, 1]), floats([2, 0]))
    case("concat_last.types", lambda a, b: torch.cat([a, b], -1), integers([2, 3]), floats([2, 1]))
    case("concat_1.legacy", lambda a, b, c: torch.cat([a, b, c], 1), floats([0]), floats([2, 1]), floats([2, 2]))
    case("concat_1.legacy_alone", lambda a, b: torch.cat([a, b], 1), floats([0], dtype="f64"), floats([2, 3]))
    case("concat_1.legacy_only", lambda a, b: torch.cat([a, b], 1), floats([0]), integers([0]))
    case("concat_0.i64", lambda a, b: torch.cat([a, b], 0), integers([2, 3], dtype="i64"), integers([1, 3]))
    case("stack.plain", lambda a, b: torch.stack([a, b], -1), floats([2, 3]), floats([2, 3]))
    case("embedding.plain", lambda t, i: F.embedding(i.long(), t), floats([5, 4]), values([[1, 4, 1], [0, 1, 1]], "i32"))
    case("embedding.i64", lambda t, i: F.embedding(i, t), floats([5, 4]), values([[1, 4, 1], [0, 1, 1]], "i64"))
    case("embedding.f64", lambda t, i: F.embedding(i, t), floats([5, 4], dtype="f64"), values([[1, 4], [0, 1]], "i64"))
    case("embedding.empty", lambda t, i: F.embedding(i.long(), t), floats([5, 4]), integers([0], 0, 5))


def creation():
    case("full.plain", lambda: torch.full([2, 3], 1.5))
    case("zeros_ones.plain", lambda: [torch.zeros(2, 3), torch.ones(3, dtype=torch.int64)])
    case("like.plain", lambda x: [torch.full_like(x, 7), torch.zeros_like(x), torch.ones_like(x)], integers([2, 3]))
    case("arange.plain", lambda: [torch.arange(5), torch.arange(7, 1, -2), torch.arange(0.5, 2.6, 0.25),
                                  torch.arange(3, 3)])
    case("linspace.plain", lambda: [torch.linspace(-1, 2, 7), torch.linspace(3, 1, 1), torch.linspace(0, 1, 0)])
    case("eye.plain", lambda: [torch.eye(3), torch.eye(2, 4)])


# --- Reductions --------------------------------------------------------------------------------

def reduction(name, function, integer=True, empty=True, special=True):
    variants = {"axis_1": dict(dim=1), "keep": dict(dim=-1, keepdim=True), "axes": dict(dim=(0, -1)),
                "axes_keep": dict(dim=(2, 0), keepdim=True), "all": dict(dim=(0, 1, 2))}
    for key, options in variants.items():
        case(f"{name}_{key}.plain", lambda x, o=options: function(x, **o), floats([3, 4, 5]))
    case(f"{name}_axis_1.f64", lambda x: function(x, dim=1), floats([3, 4], dtype="f64"))
    for dtype in ("f16", "bf16"):
        case(f"{name}_axis_1.{dtype}", lambda x: function(x, dim=1), floats([3, 40], dtype=dtype), grad=False)
    if special:
        rows = [[1.0, NAN, 2.0], [INF, -INF, 1.0], [INF, INF, 1.0], [-INF, -INF, -INF], [0.0, -0.0, 0.0]]
        case(f"{name}_axis_1.special", lambda x: function(x, dim=1), values(rows), grad=False)
    if empty:
        case(f"{name}_axis_1.empty", lambda x: function(x, dim=1), floats([3, 0]))
    case(f"{name}_axis_1.no_rows", lambda x: function(x, dim=1), floats([0, 3]))
    if integer:
        for dtype in (*INTEGERS, "bool"):
            case(f"{name}_axis_1.{dtype}", lambda x: function(x, dim=1), integers([3, 4], 0, 9, dtype))


def reductions():
    reduction("sum", torch.sum)
    reduction("mean", torch.mean, integer=False)
    reduction("amax", torch.amax, empty=False)
    reduction("amin", torch.amin, empty=False)
    ties = values([[1.0, 3.0, 3.0, 3.0], [0.0, -0.0, 0.0, -1.0]])
    case("amax_axis_1.ties", lambda x: x.amax(1), ties)
    case("amin_axis_1.ties", lambda x: x.amin(1), ties)
    case("amax_axes.ties", lambda x: x.amax((0, 2)), integers_as_floats([3, 2, 4]))
    reduction("var", torch.var, integer=False, special=False)
    reduction("std", torch.std, integer=False, empty=False, special=False)
    flat = values([[1.0, 1.0, 1.0], [-0.3, -0.3, -0.3], [1.0, 2.0, 4.0]])
    case("std_axis_1.equal", lambda x: torch.std(x, dim=1), flat)
    case("std_population.equal", lambda x: torch.std(x, dim=1, correction=0), flat)
    case("std_population.one", lambda x: torch.std(x, dim=1, correction=0), floats([3, 1]))
    case("std_axis_1.one", lambda x: torch.std(x, dim=1), floats([3, 1]))
    case("var_axis_1.equal", lambda x: torch.var(x, dim=1), flat)
    case("var_population.plain", lambda x: torch.var(x, dim=1, correction=0), floats([3, 4]))
    case("var_one.plain", lambda x: torch.var(x, dim=1), floats([3, 1]), grad=False)
    reduction("logsumexp", torch.logsumexp, integer=False)
    case("logsumexp_axis_1.large", lambda x: torch.logsumexp(x, 1), values([[1e4, 1e4, -1e4], [-1e4, -1e4, -2e4]]),
         grad=False)
    for p, label in [(2, "2"), (1, "1"), (3, "3"), (1.5, "1_5"), (0.5, "0_5"), (-1, "minus_1"), (INF, "inf"),
                     (-INF, "minus_inf"), (0, "0")]:
        def norm(x, p=p):
            return torch.linalg.vector_norm(x, p, dim=(0, 2))
        case(f"norm_{label}.plain", norm, floats([3, 4, 5]))
        case(f"norm_{label}.zero", norm, values([[[0.0, 0.0], [0.0, -2.0], [-0.0, 1.0]]]))
        case(f"norm_{label}.f64", norm, values([[[0.0, 0.0], [0.0, -2.0], [0.5, 1.0]]], "f64"))
    for key, options in {"axis_1": dict(dim=1), "keep": dict(dim=-1, keepdim=True)}.items():
        case(f"prod_{key}.plain", lambda x, o=options: torch.prod(x, **o), floats([3, 4, 5]))
    case("prod_axis_1.zeros", lambda x: torch.prod(x, 1), values([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0], [2.0, 3.0, 4.0]]))
    case("prod_axis_1.empty", lambda x: torch.prod(x, 1), floats([3, 0]))
    case("prod_axis_1.i32", lambda x: torch.prod(x, 1), integers([3, 4]))
    case("prod_axis_1.f64", lambda x: torch.prod(x, 1), floats([3, 4], dtype="f64"))
    flags = values([[[0.0, 0.0]], [[NAN, 0.0]], [[1.0, 2.0]]])
    for name in ("any", "all"):
        function = getattr(torch, name)
        case(f"{name}_last.plain", lambda x, f=function: f(x, dim=-1), flags)
        case(f"{name}_keep.plain", lambda x, f=function: f(x, dim=0, keepdim=True), flags)
        case(f"{name}_everything.plain", lambda x, f=function: f(x), flags)
        case(f"{name}_everything.empty", lambda x, f=function: f(x), floats([0]))
        case(f"{name}_keep.u8", lambda x, f=function: f(x, dim=0, keepdim=True), values([[0, 3], [0, 1]], "u8"))
        case(f"{name}_everything.u8", lambda x, f=function: f(x), values([0, 3], "u8"))
        case(f"{name}_last.bool", lambda x, f=function: f(x, dim=-1), values([[True, False], [True, True]], "bool"))
        case(f"{name}_last.i64", lambda x, f=function: f(x, dim=-1), values([[2**40, 0], [0, 0]], "i64"))
    for name in ("cumsum", "cumprod"):
        function = getattr(torch, name)
        case(f"{name}_1.plain", lambda x, f=function: f(x, 1), floats([3, 4, 5]))
        case(f"{name}_1.f64", lambda x, f=function: f(x, 1), floats([3, 6], dtype="f64"))
        case(f"{name}_1.f16", lambda x, f=function: f(x, 1), floats([3, 6], dtype="f16"), grad=False)
        case(f"{name}_1.i32", lambda x, f=function: f(x, 1), integers([3, 6]))
        case(f"{name}_1.bool", lambda x, f=function: f(x, 1), integers([3, 6], 0, 2, "bool"))
        case(f"{name}_1.empty", lambda x, f=function: f(x, 1), floats([3, 0]))
        case(f"{name}_last.plain", lambda x, f=function: f(x, -1), floats([2, 300], 0.9, 1.1))
        case(f"{name}_last.special", lambda x, f=function: f(x, -1), values([[1.0, INF, -INF, 2.0], [1.0, NAN, 2.0, 3.0]]),
             grad=False)
        case(f"{name}_last.zeros", lambda x, f=function: f(x, -1), values([[2.0, 0.0, 3.0, 0.0, 4.0]]))


def integers_as_floats(shape):
    return lambda g: torch.randint(0, 3, tuple(shape), generator=g).float()


# --- Products ----------------------------------------------------------------------------------

def products():
    shapes = {"mm": ([3, 4], [4, 5]), "vv": ([4], [4]), "mv": ([3, 4], [4]), "vm": ([4], [4, 5]),
              "bmm": ([2, 3, 4], [2, 4, 5]), "broadcast": ([2, 1, 3, 4], [5, 4, 2]), "bv": ([2, 3, 4], [4]),
              "vb": ([4], [2, 4, 3]), "empty": ([3, 0], [0, 2]), "no_rows": ([0, 4], [4, 2])}
    for label, (a, b) in shapes.items():
        case(f"matmul.{label}", torch.matmul, floats(a), floats(b))
    case("matmul.f64", torch.matmul, floats([2, 3, 4], dtype="f64"), floats([4, 2], dtype="f64"))
    case("matmul.f16", torch.matmul, floats([3, 4], dtype="f16"), floats([4, 2], dtype="f16"), grad=False)
    case("matmul.bf16", torch.matmul, floats([3, 4], dtype="bf16"), floats([4, 2], dtype="bf16"), grad=False)
    case("matmul.i64", torch.matmul, integers([3, 4], dtype="i64"), integers([4, 2], dtype="i64"))
    case("dot.plain", torch.dot, floats([7]), floats([7]))
    case("outer.plain", torch.outer, floats([3]), floats([4]))
    case("linear.plain", F.linear, floats([2, 3, 8]), floats([5, 8]))
    case("linear.vector", F.linear, floats([8]), floats([5, 8]))
    for dtype in ("f64", "f16", "bf16"):
        case(f"linear.{dtype}", F.linear, floats([3, 8], dtype=dtype), floats([5, 8], dtype=dtype), grad=dtype == "f64")
        case(f"linear_bias.{dtype}", F.linear, floats([2, 3, 8], dtype=dtype), floats([5, 8], dtype=dtype),
             floats([5], dtype=dtype), grad=dtype == "f64")
    for label, count, tokens in [("one", 1, 5), ("few", 3, 5), ("many", 3, 12)]:
        matrices = [floats(shape, -0.5, 0.5) for shape in 2 * count * [[6, 8]] + count * [[8, 6]]]
        for name, normalize in [("experts", False), ("experts_normalized", True)]:
            case(f"{name}.{label}", lambda x, logits, *w, n=normalize: experts(x, logits, w, n),
                 floats([tokens, 8]), floats([tokens, count]), *matrices)
            case(f"{name}_frozen.{label}",
                 lambda x, logits, *w, n=normalize: experts(x, logits, [m.detach() for m in w], n),
                 floats([tokens, 8]), floats([tokens, count]), *matrices)
        biased = matrices + [floats(shape, -0.5, 0.5) for shape in ([count, 6], [count, 6], [count, 8])]
        case(f"experts_clamped.{label}", lambda x, logits, *w: experts(x, logits, w[:-3], True, w[-3:]),
             floats([tokens, 8]), floats([tokens, count]), *biased)
        case(f"experts_clamped_frozen.{label}",
             lambda x, logits, *w: experts(x, logits, [m.detach() for m in w[:-3]], True, [b.detach() for b in w[-3:]]),
             floats([tokens, 8]), floats([tokens, count]), *biased)
        scaled = matrices + [floats([count])]
        case(f"experts_scaled.{label}", lambda x, logits, *w: experts(x, logits, w[:-1], True, scales=w[-1]),
             floats([tokens, 8]), floats([tokens, count]), *scaled)
        case(f"experts_scaled_frozen.{label}",
             lambda x, logits, *w: experts(x, logits, [m.detach() for m in w[:-1]], True, scales=w[-1].detach()),
             floats([tokens, 8]), floats([tokens, count]), *scaled)
    case("linear_bias.plain", F.linear, floats([2, 3, 8]), floats([5, 8]), floats([5]))


# --- By index ----------------------------------------------------------------------------------

def indexed():
    index = values([[0, 2, 2], [1, 0, 3]], "i64")
    for dtype in ("f32", "f64", "i64", "u8", "bool"):
        draw = floats([2, 4], dtype=dtype) if dtype in FLOATS else integers([2, 4], 0, 2 if dtype == "bool" else 9, dtype)
        case(f"take_along_1.{dtype}", lambda x, i: torch.gather(x, 1, i), draw, index)
    case("take_along_1.i32_index", lambda x, i: torch.gather(x, 1, i.long()), floats([2, 4]),
         values([[0, 2, 2], [1, 0, 3]], "i32"))
    case("take_along_0.smaller", lambda x, i: torch.gather(x, 0, i), floats([3, 4, 2]), integers([2, 3, 1], 0, 3, "i64"))
    case("take_along_0.empty", lambda x, i: torch.gather(x, 0, i), floats([3, 2]), integers([0, 2], 0, 3, "i64"))
    target, src = floats([2, 4]), floats([2, 3])
    distinct = values([[0, 2, 3], [1, 0, 3]], "i64")
    case("scatter_1.plain", lambda x, i, s: torch.scatter(x, 1, i, s), target, distinct, src)
    case("scatter_1.i32", lambda x, i, s: torch.scatter(x, 1, i, s), integers([2, 4]), distinct, integers([2, 3]))
    case("scatter_0.smaller", lambda x, i, s: torch.scatter(x, 0, i, s), floats([3, 4]),
         values([[0, 1], [2, 0]], "i64"), floats([2, 2]))
    case("scatter_0.larger", lambda x, i, s: torch.scatter(x, 0, i, s), floats([3, 4]),
         values([[0, 1], [2, 0]], "i64"), floats([3, 3]), grad=False)
    case("scatter_add_1.plain", lambda x, i, s: torch.scatter_add(x, 1, i, s), target, index, src)
    case("scatter_add_1.f64", lambda x, i, s: torch.scatter_add(x, 1, i, s), floats([2, 4], dtype="f64"), index,
         floats([2, 3], dtype="f64"))
    case("scatter_add_1.i64", lambda x, i, s: torch.scatter_add(x, 1, i, s), integers([2, 4], dtype="i64"), index,
         integers([2, 3], dtype="i64"))
    case("scatter_add_0.smaller", lambda x, i, s: torch.scatter_add(x, 0, i, s), floats([3, 4]),
         values([[0, 1], [0, 0]], "i64"), floats([2, 2]))
    case("scatter_add_0.larger", lambda x, i, s: torch.scatter_add(x, 0, i, s), floats([3, 4]),
         values([[0, 1], [0, 0]], "i64"), floats([3, 3]), grad=False)
    case("index_select_1.plain", lambda x, i: torch.index_select(x, 1, i), floats([2, 4, 3]),
         values([3, 0, 0], "i64"))
    case("index_select_1.empty", lambda x, i: torch.index_select(x, 1, i), floats([2, 4, 3]), integers([0], 0, 4, "i64"))
    case("one_hot_5.plain", lambda i: F.one_hot(i, 5), values([[0, 4], [2, 2]], "i64"))


def python_indexing():
    from itertools import product
    bounds = [None, 0, 2, 7, -1, -3, -9]
    steps = [1, 2, 3, 9]
    case("strided_slice_up.plain", lambda x: torch.cat([x[:, b:e:s] for b, e, s in product(bounds, bounds, steps)], 1),
         floats([2, 5, 2]))
    # PyTorch has no negative steps: NumPy.
    case("strided_slice_down.plain",
         lambda x: torch.cat([torch.from_numpy(x.numpy()[:, b:e:s].copy())
                              for b, e, s in product(bounds, bounds, [-1, -2, -9])], 1), floats([2, 5]), grad=False)
    for dtype in ("f32", "f64", "i64"):
        x = floats([3, 4, 2], dtype=dtype) if dtype in FLOATS else integers([3, 4, 2], dtype=dtype)
        v = floats([2, 2], dtype=dtype) if dtype in FLOATS else integers([2, 2], dtype=dtype)
        i, j = values([[0], [-1]], "i64"), values([1, -4], "i64")
        case(f"index_1.{dtype}", lambda x, i: x[i], x, i)
        case(f"index_2.{dtype}", lambda x, i, j: x[i, j], x, i, j)
        case(f"index_put.{dtype}", lambda x, i, j, v: torch.index_put(x, (i, j), v), x, i, j, v)
        case(f"index_add.{dtype}", lambda x, i, j, v: torch.index_put(x, (i, j), v, accumulate=True), x,
             values([[2], [2]], "i64"), j, v)
        case(f"masked_select.{dtype}", lambda x, m: torch.masked_select(x, m), x, values([[True], [False], [True], [True]], "bool"))
    case("index_2.scalars", lambda x, i, j: x[i, j], floats([3, 4, 2]), values(-2, "i64"), values(3, "i64"))
    case("index_1.empty", lambda x, i: x[i], floats([3, 2]), integers([0, 2], 0, 3, "i64"))
    case("masked_select.none", lambda x, m: torch.masked_select(x, m), floats([2, 2]), values([False, False], "bool"))


def ordered():
    ties = values([[3.0, 1.0, 3.0, 2.0, 1.0], [0.0, -0.0, NAN, INF, -INF]])
    draws = {"plain": floats([3, 7]), "ties": ties, "f64": floats([3, 7], dtype="f64"), "i32": integers([3, 9]),
             "u8": integers([3, 9], 0, 4, "u8"), "f16": floats([3, 7], dtype="f16"), "bool": integers([2, 5], 0, 2, "bool"),
             "long": floats([2, 400])}
    for label, draw in draws.items():
        grad = label != "f16"
        case(f"argsort.{label}", lambda x: torch.argsort(x, dim=-1, stable=True), draw, grad=False)
        case(f"sort.{label}", lambda x: torch.sort(x, dim=-1, stable=True), draw, grad=grad)
        case(f"sort_down.{label}", lambda x: torch.sort(x, dim=-1, descending=True, stable=True), draw, grad=grad)
        if label not in ("ties", "bool", "i32", "u8"):
            case(f"topk_3.{label}", lambda x: torch.topk(x, 3, dim=-1), draw, grad=grad)
            case(f"topk_small.{label}", lambda x: torch.topk(x, 2, dim=-1, largest=False), draw, grad=grad)
        if label != "bool":
            case(f"argmax.{label}", lambda x: torch.argmax(x, -1), draw, grad=False)
            case(f"argmin.{label}", lambda x: torch.argmin(x, -1), draw, grad=False)
    case("sort_0.plain", lambda x: torch.sort(x, dim=0, stable=True), floats([5, 3]))
    case("argmax_keep.plain", lambda x: torch.argmax(x, 0, keepdim=True), floats([4, 3]), grad=False)
    case("max_with_index.plain", lambda x: torch.max(x, 1), floats([3, 5]))
    case("max_with_index.ties", lambda x: torch.max(x, 1), values([[1.0, 3.0, 3.0], [NAN, 1.0, NAN]]))
    case("min_with_index.keep", lambda x: torch.min(x, 0, keepdim=True), floats([3, 5]))
    case("nonzero.plain", torch.nonzero, values([[0.0, 1.0, NAN], [-0.0, 2.0, 0.0]]), grad=False)
    case("nonzero.scalar", torch.nonzero, values(3.0), grad=False)
    case("nonzero.bool", torch.nonzero, integers([2, 3, 2], 0, 2, "bool"), grad=False)
    case("bincount.plain", torch.bincount, values([1, 3, 1, 5], "i64"))
    case("bincount_8.plain", lambda x: torch.bincount(x, minlength=8), values([1, 3, 1, 5], "i32"))
    case("bincount.empty", torch.bincount, values([], "i64"))


# --- Layers: one small case of what make_layer_goldens.py and make_loss_goldens.py go into --------

def rotated(x, table, interleaved):
    """The rotation of Su et al. by a table [tokens, 2, half] of cosines and sines."""
    half = table.shape[-1]
    cos, sin = (table[:, k].unsqueeze(-2) for k in (0, 1))
    turned, rest = x[..., :2 * half], x[..., 2 * half:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned[..., :half], turned[..., half:]
    u, v = a * cos - b * sin, b * cos + a * sin
    joined = torch.stack([u, v], -1).flatten(-2) if interleaved else torch.cat([u, v], -1)
    return torch.cat([joined, rest], -1)


def attend(q, k, v, **options):
    q, k, v = (t.transpose(1, 2) if i == 0 else t for i, t in enumerate((q, k, v)))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options).transpose(1, 2)


def layers():
    case("softmax.plain", lambda x: F.softmax(x, -1), floats([3, 5]))
    case("softmax.masked", lambda x: F.softmax(x, -1), values([[0.0, -INF, 1e4], [-1e4, 1e4, 1e4]]))
    case("softmax_0.plain", lambda x: F.softmax(x, 0), floats([3, 5]))
    case("log_softmax.plain", lambda x: F.log_softmax(x, -1), floats([3, 5]))
    case("log_softmax_1.plain", lambda x: F.log_softmax(x, 1), floats([2, 3, 5]))
    for name, function in [("softmax", lambda x: F.softmax(x, -1)), ("softmax_0", lambda x: F.softmax(x, 0)),
                           ("log_softmax", lambda x: F.log_softmax(x, -1))]:
        case(f"{name}.f64", function, floats([3, 5], dtype="f64"))
        case(f"{name}.large_f64", function, values([[800.0, -INF, 801.0], [-800.0, -900.0, -801.0]], "f64"))
        for dtype in ("f16", "bf16"):
            case(f"{name}.{dtype}", function, floats([3, 5], dtype=dtype), grad=False)
    case("rms_norm.plain", lambda x, w: F.rms_norm(x, [6], w, 1e-5), floats([3, 6]), floats([6]))
    case("layer_norm.plain", lambda x, w, b: F.layer_norm(x, [6], w, b, 1e-5), floats([3, 6]), floats([6]), floats([6]))
    case("conv2d.plain", F.conv2d, floats([2, 3, 5, 6]), floats([4, 3, 3, 2]), floats([4]))
    case("conv2d_options.plain", lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 2), (1, 2), 2), floats([1, 4, 6, 7]),
         floats([6, 2, 3, 3]))
    case("conv_transpose2d.plain", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1), floats([1, 3, 4, 3]),
         floats([3, 2, 3, 3]))
    case("max_pool2d.overlap", lambda x: F.max_pool2d(x, 3, 1, 1), floats([1, 2, 5, 4]))
    case("max_pool2d_dilated.plain", lambda x: F.max_pool2d(x, 2, 1, 0, 2), floats([1, 2, 5, 6]))
    case("avg_pool2d.overlap", lambda x: F.avg_pool2d(x, 3, 2, 1), floats([1, 2, 5, 6]))
    case("adaptive_avg_pool2d.plain", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), floats([1, 2, 5, 7]))
    case("batch_norm_training.plain", lambda x, w, b: [F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5),
                                                       x.mean((0, 2)), x.var((0, 2), correction=0)],
         floats([4, 3, 5]), floats([3]), floats([3]))
    case("batch_norm.plain", lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b, False, 0.1, 1e-5),
         floats([4, 3, 5]), floats([3]), floats([3], 0.5, 2), floats([3]), floats([3]), grad=False)
    case("lerp_state.plain", lambda a, b: torch.lerp(a, b, 0.25), floats([7]), floats([7]), grad=False)
    case("add_state.plain", torch.add, values([3, -7, 2**40], "i64"), values([1, 2, 3], "i64"))
    case("cross_entropy.plain", lambda x, y: F.cross_entropy(x, y.long()), floats([4, 5]), integers([4], 0, 5))
    case("cross_entropy.i64", F.cross_entropy, floats([4, 5]), integers([4], 0, 5, "i64"))
    case("nll.i64", F.nll_loss, floats([4, 5]), integers([4], 0, 5, "i64"))
    case("nll.plain", lambda x, y: F.nll_loss(x, y.long()), floats([4, 5]), integers([4], 0, 5))
    case("linear_cross_entropy.plain",
         lambda h, w, y, t: (F.cross_entropy(h @ w.T, y.long(), reduction="none") * t.detach()).sum(),
         floats([4, 3]), floats([5, 3]), integers([4], 0, 5), floats([4], 0, 1, "f32"))
    case("linear_cross_entropy.inference",
         lambda h, w, y, t: (F.cross_entropy(h @ w.T, y.long(), reduction="none") * t).sum(),
         floats([4, 3]), floats([5, 3]), integers([4], 0, 5), floats([4], 0, 1), grad=False)
    case("linear_cross_entropy_cap.plain",
         lambda h, w, y, t: (F.cross_entropy(2 * torch.tanh(h @ w.T / 2), y.long(), reduction="none")
                             * t.detach()).sum(),
         floats([4, 3]), floats([5, 3]), integers([4], 0, 5), floats([4], 0, 1, "f32"))
    case("log_sigmoid.plain", F.logsigmoid, floats([3, 4], -9, 9))
    case("log_sigmoid.f64", F.logsigmoid, values([-800.0, -9.5, -1e-9, 0.0, 0.3, 40.0], "f64"))
    for dtype in ("f16", "bf16"):
        case(f"log_sigmoid.{dtype}", F.logsigmoid, floats([3, 4], -9, 9, dtype), grad=False)
    # PyTorch's gradient at 0 and 1 has a limit that is rounded to float32.
    for label, p, grad in [("f64", [1e-9, 0.3, 0.75], True), ("limits_f64", [0.0, 1.0, 0.0], False)]:
        case(f"bce.{label}", lambda p, t: F.binary_cross_entropy(p, t.detach()), values(p, "f64"),
             values([0.25, 1.0, 0.0], "f64"), grad=grad)
    for name, function in [("huber", F.huber_loss), ("smooth_l1", F.smooth_l1_loss)]:
        key = "delta" if name == "huber" else "beta"
        for dtype in ("f32", "f64"):
            case(f"{name}_0_3.{dtype}", lambda x, y, f=function, k=key: f(x, y, **{k: 0.3}),
                 floats([3, 4], dtype=dtype), floats([3, 4], dtype=dtype))
    case("bce.plain", lambda p, t: F.binary_cross_entropy(p, t.detach()), floats([3, 4], 0.1, 0.9), floats([3, 4], 0, 1))
    case("rope_table.plain", lambda p, f: torch.stack([torch.cos((p + torch.arange(4)).unsqueeze(1) * f),
                                                       torch.sin((p + torch.arange(4)).unsqueeze(1) * f)], 1),
         values([3], "i32"), values([1.0, 0.1, 0.01]), grad=False)
    table = values([[[math.cos(t * f) for f in (1, 0.1)], [math.sin(t * f) for f in (1, 0.1)]] for t in range(3)])
    case("rope_half.plain", lambda x, t: rotated(x, t.detach(), False), floats([2, 3, 2, 6]), table)
    case("rope_pairs.plain", lambda x, t: rotated(x, t.detach(), True), floats([2, 3, 2, 6]), table)
    q, k, v = floats([2, 5, 4, 8]), floats([2, 2, 5, 8]), floats([2, 2, 5, 8])
    case("attention_causal.plain", lambda q, k, v: attend(q, k, v, is_causal=True, scale=0.4), q, k, v)
    case("attention_full.plain", lambda q, k, v: attend(q, k, v, scale=0.4), q, k, v)
    case("attention_full.inference", lambda q, k, v: attend(q, k, v, scale=0.4), q, k, v, grad=False)

    def append(cache, x, position):
        cache = cache.clone()
        cache[:, :, int(position):int(position) + x.shape[1]] = x.transpose(1, 2)
        return cache
    case("kv_append.plain", append, floats([1, 2, 6, 4]), floats([1, 3, 2, 4]), values([2], "i32"), grad=False)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    elementwise_unary()
    elementwise_binary()
    elementwise_other()
    promotion()
    narrow_operands()
    casts()
    views()
    joining()
    creation()
    reductions()
    products()
    indexed()
    python_indexing()
    ordered()
    layers()
    path = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "goldens" / "ops.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"command": "scripts/make_op_goldens.py", "torch": torch.__version__,
                "safetensors": safetensors.__version__}
    safetensors.torch.save_file(tensors, path, metadata)
    print(f"{path}: {len(names)} cases, {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
