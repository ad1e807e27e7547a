#!/usr/bin/env python3
"""Writes a tiny Llama with random weights as a GGUF file: what the tests run.

Usage: make_random_model.py OUTPUT.gguf

Only the standard library is used and the random numbers are fixed, so every run gives the same
bytes.

The first coordinate of the residual stream is a constant; the head turns it into a bias per token,
so that the text is made of syllables and ends after a while, instead of random bytes.
"""
import array
import math
import random
import struct
import sys

DIM, HEADS, LAYERS, HIDDEN, CONTEXT = 64, 2, 2, 128, 512
NOTICE = "this model is a random one and answers with random syllables"
TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ message['role'] }}: "
            "{{ message['content'] }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")
UNKNOWN, CONTROL, BYTE, NORMAL = 2, 3, 6, 1  # token types of GGUF
SPACE = "\u2581"
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def vocabulary():
    """(text, score, type) of every token: control, bytes, characters, syllables, words."""
    tokens = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    tokens += [(f"<0x{b:02X}>", 0.0, BYTE) for b in range(256)]
    pieces = [SPACE] + [chr(c) for c in range(33, 127)]
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    pieces += syllables + [SPACE + s for s in syllables]
    tokens += [(piece, -float(i), NORMAL) for i, piece in enumerate(pieces)]
    return tokens


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    if kind == STRING:
        data = string(value)
    elif kind == ARRAY:
        element, values = value
        pack = {STRING: string, F32: lambda v: struct.pack("<f", v),
                I32: lambda v: struct.pack("<i", v)}[element]
        data = struct.pack("<IQ", element, len(values)) + b"".join(map(pack, values))
    else:
        data = struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)
    return string(key) + struct.pack("<I", kind) + data


def metadata(tokens):
    return [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "random"),
        ("general.license", STRING, "Apache-2.0"),
        ("lumen.notice", STRING, NOTICE),
        ("llama.context_length", U32, CONTEXT),
        ("llama.embedding_length", U32, DIM),
        ("llama.block_count", U32, LAYERS),
        ("llama.feed_forward_length", U32, HIDDEN),
        ("llama.attention.head_count", U32, HEADS),
        ("llama.attention.head_count_kv", U32, HEADS),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("llama.rope.dimension_count", U32, DIM // HEADS),
        ("llama.rope.freq_base", F32, 10000.0),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, [t[0] for t in tokens])),
        ("tokenizer.ggml.scores", ARRAY, (F32, [t[1] for t in tokens])),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [t[2] for t in tokens])),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
        ("tokenizer.ggml.add_bos_token", BOOL, True),
        ("tokenizer.ggml.add_eos_token", BOOL, False),
        ("tokenizer.chat_template", STRING, TEMPLATE),
    ]


def token_bias(text, kind):
    """Logarithm of how likely a token is, before the random part."""
    if text == "</s>":
        return 1.5
    if kind != NORMAL or text == SPACE:
        return -20.0
    if text in ".,":
        return 2.0
    return 0.0 if len(text.lstrip(SPACE)) == 2 else -20.0


def tensors(tokens):
    """(name, rows, columns, float32 values); columns 0 is a vector."""
    generator = random.Random(20250710)

    def normal(count, scale):
        return array.array("f", (generator.gauss(0, scale) for _ in range(count)))

    embedding = normal(len(tokens) * DIM, 0.3)
    head = normal(len(tokens) * DIM, 0.15)
    for row, (text, _, kind) in enumerate(tokens):
        embedding[row * DIM] = 4.0
        head[row * DIM] = token_bias(text, kind) / 4.0
    yield "token_embd.weight", len(tokens), DIM, embedding
    yield "output.weight", len(tokens), DIM, head
    yield "output_norm.weight", DIM, 0, array.array("f", [1.0] * DIM)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        yield prefix + "attn_norm.weight", DIM, 0, array.array("f", [1.0] * DIM)
        yield prefix + "ffn_norm.weight", DIM, 0, array.array("f", [1.0] * DIM)
        for name, rows, columns in (("attn_q", DIM, DIM), ("attn_k", DIM, DIM),
                                    ("attn_v", DIM, DIM), ("attn_output", DIM, DIM),
                                    ("ffn_gate", HIDDEN, DIM), ("ffn_up", HIDDEN, DIM),
                                    ("ffn_down", DIM, HIDDEN)):
            values = normal(rows * columns, 1 / math.sqrt(columns))
            if name in ("attn_output", "ffn_down"):  # keep the constant coordinate constant
                values[:columns] = array.array("f", [0.0] * columns)
            yield prefix + name + ".weight", rows, columns, values


def main():
    tokens = vocabulary()
    keys = metadata(tokens)
    infos, data = [], b""
    for name, rows, columns, values in tensors(tokens):
        extents = [columns, rows] if columns else [rows]  # GGUF lists the innermost first
        infos.append(string(name) + struct.pack("<I", len(extents)) +
                     struct.pack(f"<{len(extents)}Q", *extents) + struct.pack("<IQ", 0, len(data)))
        if sys.byteorder == "big":
            values.byteswap()
        data += values.tobytes()
        data += b"\0" * (-len(data) % 32)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys))
    header += b"".join(entry(*key) for key in keys) + b"".join(infos)
    header += b"\0" * (-len(header) % 32)
    with open(sys.argv[1], "wb") as file:
        file.write(header + data)


if __name__ == "__main__":
    main()
