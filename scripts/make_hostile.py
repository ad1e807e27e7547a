#!/usr/bin/env python3
"""Makes the hostile corpus: small valid model files and thousands of damaged ones.

Usage: make_hostile.py DIRECTORY

Each writer notes where its length, count, type and offset fields are; every such field is then set
to each of a list of edge values, the file is cut at every field boundary, and each kind of attack
known from public reports is made once. The same bytes come out every time.

The name of a file or directory says what a reader must do with it:
  accept-…        opens
  reject-…        is refused as a file: exit code 65, 66 or 69
  reject_model-…  may open as a file but must be refused before inference
  any-…           either opens or is refused; never a crash, a hang or unbounded memory
"""
import json
import pathlib
import struct
import sys
import zlib

EDGES_8 = [0, 1, 2, 7, 31, 32, 33, 255, 256, 65535, 65536, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1,
           2**32, 2**32 + 1, 2**40, 2**61, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]
EDGES_4 = sorted({value & 0xFFFFFFFF for value in EDGES_8})
ALL_TYPES = list(range(16)) + [23, 30, 31, 39, 41, 2**31 - 1, 2**31, 2**32 - 1]  # and some more
GGUF_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}


class Bytes:
    """Bytes in the making, with the places of the fields worth attacking."""

    def __init__(self):
        self.data = bytearray()
        self.fields = []  # (offset, size, name)

    def field(self, name, form, value):
        self.fields.append((len(self.data), struct.calcsize(form), name))
        self.data += struct.pack(form, value)

    def text(self, name, value):
        self.field(name + "_length", "<Q", len(value))
        self.data += value


def weights(count):
    """A few plausible numbers, as float32."""
    return struct.pack(f"<{count}f", *(((i * 37) % 101 - 50) / 500 for i in range(count)))


# A tiny Llama: dimension 8, 2 heads, 1 key-value head, hidden 16, 1 layer.
DIM, HIDDEN, HEADS, KV_HEADS, CONTEXT = 8, 16, 2, 1, 32
PIECES = [b"<unk>", b"<s>", b"</s>", b"\xe2\x96\x81", b"a", b"b", b"\xe2\x96\x81a", b"ab"]
VOCAB = len(PIECES)
KV_DIM = DIM // HEADS * KV_HEADS
# name in GGUF, name in Hugging Face, rows (0: a vector), columns
TENSORS = [
    ("token_embd.weight", "model.embed_tokens.weight", VOCAB, DIM),
    ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight", 0, DIM),
    ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", DIM, DIM),
    ("blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", KV_DIM, DIM),
    ("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", KV_DIM, DIM),
    ("blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight", DIM, DIM),
    ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight", 0, DIM),
    ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight", HIDDEN, DIM),
    ("blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight", HIDDEN, DIM),
    ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight", DIM, HIDDEN),
    ("output_norm.weight", "model.norm.weight", 0, DIM),
]
GGUF_KEYS = [
    ("general.architecture", 8, b"llama"),
    ("general.name", 8, b"hostile corpus"),
    ("general.alignment", 4, 32),
    ("llama.context_length", 4, CONTEXT),
    ("llama.embedding_length", 4, DIM),
    ("llama.block_count", 4, 1),
    ("llama.feed_forward_length", 4, HIDDEN),
    ("llama.attention.head_count", 4, HEADS),
    ("llama.attention.head_count_kv", 4, KV_HEADS),
    ("llama.attention.layer_norm_rms_epsilon", 6, 1e-5),
    ("llama.rope.freq_base", 6, 10000.0),
    ("llama.vocab_size", 10, VOCAB),
    ("tokenizer.ggml.model", 8, b"llama"),
    ("tokenizer.ggml.tokens", 9, (8, PIECES)),
    ("tokenizer.ggml.scores", 9, (6, [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0])),
    ("tokenizer.ggml.token_type", 9, (5, [2, 3, 3, 1, 1, 1, 1, 1])),
    ("tokenizer.ggml.bos_token_id", 4, 1),
    ("tokenizer.ggml.eos_token_id", 4, 2),
    ("tokenizer.ggml.add_bos_token", 7, 1),
    ("tokenizer.chat_template", 8, b"{% for m in messages %}{{ m.content }}{% endfor %}"),
]


def gguf_tensors():
    """(name, dimensions innermost first, type, data)"""
    return [(name, [columns, rows] if rows else [columns], 0, weights(max(rows, 1) * columns))
            for name, _, rows, columns in TENSORS]


def make_gguf(keys=GGUF_KEYS, tensors=None, version=3):
    tensors = gguf_tensors() if tensors is None else tensors
    alignment = 32
    out = Bytes()
    out.data += b"GGUF"
    out.field("version", "<I", version)
    out.field("tensor_count", "<Q", len(tensors))
    out.field("key_count", "<Q", len(keys))
    for key, kind, value in keys:
        out.text("key", key.encode())
        out.field("type", "<I", kind)
        if kind == 8:
            out.text("string", value)
        elif kind == 9:
            element, values = value
            out.field("element_type", "<I", element)
            out.field("array_count", "<Q", len(values))
            for i, item in enumerate(values):
                if element == 8:
                    out.text("element", item)
                elif i == 0:
                    out.field("element", GGUF_FORMATS[element], item)
                else:
                    out.data += struct.pack(GGUF_FORMATS[element], item)
        else:
            out.field("value_" + key.rsplit(".", 1)[-1], GGUF_FORMATS[kind], value)
    offset = 0
    for name, dims, kind, data in tensors:
        out.text("tensor_name", name.encode())
        out.field("dims", "<I", len(dims))
        for dim in dims:
            out.field("extent", "<Q", dim)
        out.field("tensor_type", "<I", kind)
        out.field("offset", "<Q", offset)
        offset += -(-len(data) // alignment) * alignment
    out.data += bytes(-len(out.data) % alignment)
    for _, _, _, data in tensors:
        out.data += data + bytes(-len(data) % alignment)
    return out


def make_llama2c(version):
    out = Bytes()
    numbers = [("dim", DIM), ("hidden_dim", HIDDEN), ("n_layers", 1), ("n_heads", HEADS), ("n_kv_heads", KV_HEADS),
               ("vocab_size", VOCAB), ("max_seq_len", CONTEXT)]
    if version > 0:
        out.data += b"24ka"
        out.field("version", "<i", version)
    for name, value in numbers:
        out.field(name, "<i", value)
    elements = sum(max(rows, 1) * columns for _, _, rows, columns in TENSORS)
    if version > 0:
        out.field("shared_classifier", "<B", 1)
        out.data += bytes(256 - len(out.data))
    else:
        elements += CONTEXT * DIM // HEADS
    out.data += weights(elements)
    return out


def safetensors_header(tensors=None):
    header, offset = {}, 0
    for _, name, rows, columns in tensors or TENSORS:
        size = max(rows, 1) * columns * 4
        header[name] = {"dtype": "F32", "shape": [rows, columns] if rows else [columns],
                        "data_offsets": [offset, offset + size]}
        offset += size
    return header, offset


def make_safetensors(header=None, size=None, text=None):
    default, default_size = safetensors_header()
    text = text if text is not None else json.dumps(default if header is None else header)
    body = text.encode() if isinstance(text, str) else text
    body += b" " * (-len(body) % 8)
    size = default_size if size is None else size
    return struct.pack("<Q", len(body)) + body + weights(-(-size // 4))[:size]


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": DIM, "intermediate_size": HIDDEN,
          "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
          "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": VOCAB,
          "tie_word_embeddings": True, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2}
LFS_POINTER = (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4294967296\n")
HTML = b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>\n"


# What torch.save writes: a pickle of protocol 2 and one stored zip entry per storage.


def pickle_text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def pickle_int(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -2**31 <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True) if abs(value) >= 2**63 else (
        b"\x8a\x08" + struct.pack("<q", value))


def pickle_ints(values):
    return b"(" + b"".join(map(pickle_int, values)) + b"t"


def pickle_tensor(storage, size, **change):
    """A call of _rebuild_tensor_v2; `change` replaces what it is made of."""
    strides = [size[1], 1] if len(size) == 2 else [1]
    elements = size[0] * (size[1] if len(size) == 2 else 1)
    part = {"function": b"ctorch._utils\n_rebuild_tensor_v2\n", "word": pickle_text("storage"),
            "type": b"ctorch\nFloatStorage\n", "key": pickle_text(storage), "place": pickle_text("cpu"),
            "elements": pickle_int(elements), "offset": pickle_int(0), "shape": pickle_ints(size),
            "strides": pickle_ints(strides), "gradient": b"\x89", "hooks": b"ccollections\nOrderedDict\n)R", **change}
    return (part["function"] + b"((" + part["word"] + part["type"] + part["key"] + part["place"] + part["elements"] +
            b"tQ" + part["offset"] + part["shape"] + part["strides"] + part["gradient"] + part["hooks"] + b"tR")


def torch_pickle(changes=None, extra=b""):
    body = b"\x80\x02ccollections\nOrderedDict\n)R("
    for i, (_, name, rows, columns) in enumerate(TENSORS):
        shape = [rows, columns] if rows else [columns]
        body += pickle_text(name) + pickle_tensor(str(i), shape, **(changes or {}).get(name, {}))
    return body + extra + b"u."


def make_zip(entries, method=0, flags=0):
    """Stored entries (name, data), with the places of the fields worth attacking."""
    out, directory = Bytes(), []
    for name, data in entries:
        start = len(out.data)
        out.data += b"PK\x03\x04" + struct.pack("<H", 0)
        out.field("local_flags", "<H", flags)
        out.field("local_method", "<H", method)
        out.data += struct.pack("<I", 0)
        for what, size in (("crc", zlib.crc32(data)), ("packed", len(data)), ("bytes", len(data))):
            out.field("local_" + what, "<I", size)
        out.field("local_name", "<H", len(name))
        padding = -(len(out.data) + 2 + len(name) + 4) % 64 + 4
        out.field("local_extra", "<H", padding)
        out.data += name.encode() + struct.pack("<HH", 0x4246, padding - 4) + b"Z" * (padding - 4) + data
        directory.append((name, start, zlib.crc32(data), len(data)))
    begin = len(out.data)
    for name, start, crc, size in directory:
        out.data += b"PK\x01\x02" + struct.pack("<HH", 0, 0)
        out.field("flags", "<H", flags)
        out.field("method", "<H", method)
        out.data += struct.pack("<I", 0)
        out.field("crc", "<I", crc)
        out.field("packed", "<I", size)
        out.field("bytes", "<I", size)
        for what, value in (("name", len(name)), ("extra", 0), ("comment", 0), ("disk", 0)):
            out.field("length_" + what, "<H", value)
        out.data += bytes(6)
        out.field("place", "<I", start)
        out.data += name.encode()
    size = len(out.data) - begin
    out.data += b"PK\x05\x06" + bytes(4)
    out.field("entries_here", "<H", len(entries))
    out.field("entries", "<H", len(entries))
    out.field("directory_bytes", "<I", size)
    out.field("directory_place", "<I", begin)
    out.field("comment", "<H", 0)
    return out


def torch_entries(pickle=None):
    storages = [(f"archive/data/{i}", weights(max(rows, 1) * columns)) for i, (_, _, rows, columns) in enumerate(TENSORS)]
    return [("archive/data.pkl", torch_pickle() if pickle is None else pickle), ("archive/byteorder", b"little"),
            *storages, ("archive/version", b"3\n")]


class Corpus:
    def __init__(self, directory):
        self.root = pathlib.Path(directory)
        self.root.mkdir(parents=True, exist_ok=True)
        self.count = 0

    def file(self, name, data):
        (self.root / name).write_bytes(bytes(data))
        self.count += 1

    def model(self, name, files):
        """A Hugging Face directory: `files` replace or, if None, remove those of a valid one."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        content = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": make_safetensors(), **files}
        for file, data in content.items():
            if data is not None:
                (folder / file).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        self.count += 1

    def mutations(self, name, out, suffix):
        """Every field with every edge value, and cuts at every field's begin and middle."""
        for number, (offset, size, field) in enumerate(out.fields):
            edges = ALL_TYPES if field.endswith("type") else EDGES_8 if size == 8 else EDGES_4
            for value in edges:
                data = bytearray(out.data)
                data[offset:offset + size] = (value % 256**size).to_bytes(size, "little")
                if data != out.data:
                    self.file(f"any-{name}-{number:03}-{field}-{value:x}{suffix}", data)
            for cut in (offset, offset + 1):
                self.file(f"reject-{name}-cut-{cut:05}{suffix}", out.data[:cut])
        for cut in (len(out.data) - 1, len(out.data) - 33, len(out.data) // 2):
            self.file(f"reject-{name}-cut-{cut:05}{suffix}", out.data[:cut])


def gguf_attacks(corpus):
    corpus.file("accept-llama.gguf", make_gguf().data)
    corpus.file("accept-version2.gguf", make_gguf(version=2).data)
    corpus.mutations("gguf", make_gguf(), ".gguf")

    def with_key(name, kind, value):
        keys = [(name, kind, value) if key[0] == name else key for key in GGUF_KEYS]
        return keys if (name, kind, value) in keys else keys + [(name, kind, value)]

    def key_case(case, name, kind, value, expect="reject"):
        corpus.file(f"{expect}-gguf-{case}.gguf", make_gguf(with_key(name, kind, value)).data)

    def tensor_case(case, change, expect="reject"):
        tensors = gguf_tensors()
        change(tensors)
        corpus.file(f"{expect}-gguf-{case}.gguf", make_gguf(tensors=tensors).data)

    key_case("architecture-unknown", "general.architecture", 8, b"\x1b[31mevil")
    key_case("architecture-number", "general.architecture", 4, 1)
    key_case("alignment-string", "general.alignment", 8, b"32")
    key_case("heads-string", "llama.attention.head_count", 8, b"2")
    key_case("heads-zero", "llama.attention.head_count", 4, 0)
    key_case("heads-per-layer-differ", "llama.attention.head_count", 9, (4, [2, 1]))
    key_case("heads-empty-array", "llama.attention.head_count", 9, (4, []))
    key_case("layers-huge", "llama.block_count", 4, 4097)
    key_case("layers-more-than-tensors", "llama.block_count", 4, 2, "reject_model")
    key_case("epsilon-nan", "llama.attention.layer_norm_rms_epsilon", 6, float("nan"))
    key_case("theta-infinite", "llama.rope.freq_base", 6, float("inf"))
    key_case("theta-negative", "llama.rope.freq_base", 6, -1.0)
    key_case("experts", "llama.expert_count", 4, 8)
    key_case("vocab-too-large", "llama.vocab_size", 10, VOCAB + 1, "reject_model")
    key_case("tokens-too-few", "tokenizer.ggml.tokens", 9, (8, PIECES[:-1]), "reject_model")
    key_case("tokens-numbers", "tokenizer.ggml.tokens", 9, (4, list(range(VOCAB))), "reject_model")
    key_case("scores-wrong-type", "tokenizer.ggml.scores", 9, (0, [0] * VOCAB), "any")
    key_case("scores-too-few", "tokenizer.ggml.scores", 9, (6, [0.0] * 3), "reject_model")
    key_case("bos-outside", "tokenizer.ggml.bos_token_id", 4, 4_000_000_000, "any")
    key_case("eos-outside", "tokenizer.ggml.eos_token_id", 4, 4_000_000_000)
    key_case("eos-next-to-vocab", "tokenizer.ggml.eos_token_id", 4, VOCAB, "any")
    key_case("byte-token-negative", "tokenizer.ggml.tokens", 9, (8, PIECES[:-1] + [b"<0x-1>"]), "any")
    key_case("token-not-utf8", "tokenizer.ggml.tokens", 9, (8, PIECES[:-1] + [b"\xff\xfe"]), "any")
    key_case("template-bomb", "tokenizer.chat_template", 8,
             b"{% for a in range(1000000000) %}{% for b in range(1000000000) %}x{% endfor %}{% endfor %}", "any")
    key_case("split-without-name", "split.count", 2, 3)
    missing = [key for key in GGUF_KEYS if key[0] != "llama.block_count"]
    corpus.file("reject-gguf-no-block-count.gguf", make_gguf(missing).data)
    corpus.file("reject-gguf-key-twice.gguf", make_gguf(GGUF_KEYS + GGUF_KEYS[:1]).data)
    corpus.file("reject-gguf-empty-key.gguf", make_gguf(GGUF_KEYS + [("", 4, 1)]).data)
    corpus.file("reject-gguf-trailing-zip.gguf", make_gguf().data + b"PK\x03\x04" + bytes(100))
    corpus.file("reject-gguf-big-endian.gguf", b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    corpus.file("reject-gguf-array-bomb.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" +
                struct.pack("<IIQ", 9, 8, 2**29))

    nested = struct.pack("<IQ", 9, 1) * 20000
    corpus.file("reject-gguf-nesting-bomb.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" +
                struct.pack("<I", 9) + nested + struct.pack("<IQ", 0, 0))

    def set_tensor(index, **change):
        def apply(tensors):
            name, dims, kind, data = tensors[index]
            tensors[index] = (change.get("name", name), change.get("dims", dims), change.get("kind", kind),
                              change.get("data", data))
        return apply

    for i, dims in enumerate([[2**32, 2**32], [2**16] * 4, [2**21, 2**21, 2**21, 2], [2**33, 2**31, 1], [2**62 - 1], [2**63],
                              [0, 8], [8, 0], [], [1] * 5, [2**40]]):
        tensor_case(f"dims-{i}", set_tensor(2, dims=dims))
    tensor_case("name-twice", set_tensor(1, name="token_embd.weight"))
    tensor_case("name-empty", set_tensor(1, name=""))
    tensor_case("name-long", set_tensor(1, name="x" * 300))
    tensor_case("name-alias", set_tensor(1, name="model.embed_tokens.weight"))
    tensor_case("overlap", set_tensor(2, dims=[8, 9]))
    tensor_case("gap", set_tensor(2, data=weights(8 * 64)), "accept")
    tensor_case("row-misaligned", set_tensor(2, kind=8))
    tensor_case("type-lacking", set_tensor(2, kind=25, data=bytes(128)))
    tensor_case("missing", lambda tensors: tensors.pop(2), "reject_model")
    tensor_case("transposed", set_tensor(7, dims=[16, 8]), "reject_model")
    tensor_case("not-a-number", set_tensor(1, data=struct.pack("<8f", *([float("nan")] * 8))), "reject_model")


def quantized_attacks(corpus):
    """A model of rows of 32, so that every block type of 32 fits, with bad scales in each."""
    blocks = {"q4_0": (2, 18, 1), "q4_1": (3, 20, 2), "q5_0": (6, 22, 1), "q5_1": (7, 24, 2), "q8_0": (8, 34, 1)}
    sizes = {"embedding_length": 32, "feed_forward_length": 32}
    keys = [(key, kind, sizes.get(key.rsplit(".", 1)[1], value)) for key, kind, value in GGUF_KEYS]
    for name, (kind, block_bytes, scales) in blocks.items():
        for scale, expect in ((b"\x00\x1c", "accept"), (b"\x00\x7e", "reject_model"), (b"\x00\x7c", "reject_model")):
            tensors = []
            for tensor, _, rows, columns in TENSORS:
                rows = {DIM: 32, KV_DIM: 16, HIDDEN: 32}.get(rows, rows) if tensor != "token_embd.weight" else rows
                if rows == 0:
                    tensors.append((tensor, [32], 0, weights(32)))
                    continue
                good, bad = b"\x00\x1c" * scales, scale * scales
                rest = bytes((i * 29) % 256 for i in range(block_bytes - 2 * scales))
                data = (good + rest) * (rows - 1) + bad + rest
                tensors.append((tensor, [32, rows], kind, data))
            label = {b"\x00\x1c": "good", b"\x00\x7e": "nan", b"\x00\x7c": "infinite"}[scale]
            corpus.file(f"{expect}-{name}-{label}-scale.gguf", make_gguf(keys, tensors).data)


def llama2c_attacks(corpus):
    for version in (0, 1):
        out = make_llama2c(version)
        corpus.file(f"accept-llama2c-v{version}.bin", out.data)
        corpus.mutations(f"llama2c-v{version}", out, ".bin")
        corpus.file(f"reject-llama2c-v{version}-longer.bin", out.data + bytes(4))
        nan = bytearray(out.data)
        nan[-4 * DIM:] = struct.pack(f"<{DIM}f", *([float("nan")] * DIM))
        corpus.file(f"any-llama2c-v{version}-nan.bin", nan)
    corpus.file("reject-llama2c-v2.bin", make_llama2c(2).data)


def safetensors_attacks(corpus):
    header, size = safetensors_header()
    good = make_safetensors()
    length = struct.unpack_from("<Q", good)[0]
    name = "model.norm.weight"

    def case(label, data, expect="reject"):
        corpus.model(f"{expect}-safetensors-{label}", {"model.safetensors": data})

    case("valid", good, "accept")
    for value in EDGES_8 + [length - 1, length + 1, len(good)]:
        if value != length:
            case(f"header-length-{value:x}", struct.pack("<Q", value) + good[8:])
    for cut in [0, 1, 7, 8, 9, 8 + length // 2, 8 + length, 9 + length, len(good) - 1]:
        case(f"cut-{cut}", good[:cut])
    case("longer", good + b"\0")

    def entry_case(label, **change):
        entry = {**header[name], **change}
        case(label, make_safetensors({**header, name: {k: v for k, v in entry.items() if v is not None}}, size))

    begin, end = header[name]["data_offsets"]
    numbers = [-1, 1.5, 1e3, 2**31, 2**32, 2**61, 2**62, 2**63, 2**64 - 1, 2**64, 10**30, "8", None, True, [8]]
    for i, value in enumerate(numbers):
        entry_case(f"shape-{i}", shape=[value])
        entry_case(f"shape-twice-{i}", shape=[value, value])
        entry_case(f"begin-{i}", data_offsets=[value, end])
        entry_case(f"end-{i}", data_offsets=[begin, value])
    for i, value in enumerate(["F31", "f32", "", 1, None, "F64", "U8"]):
        entry_case(f"dtype-{i}", dtype=value)
    entry_case("offsets-three", data_offsets=[begin, end, end])
    entry_case("offsets-swapped", data_offsets=[end, begin])
    entry_case("no-offsets", data_offsets=None)
    entry_case("dims-nine", shape=[1] * 8 + [8])
    texts = {"not-json": "hello", "array": "[]", "deep": "[" * 20000, "deep-object": '{"a":' * 20000, "empty": "",
             "not-utf8": b'{"\xff": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}', "nan": '{"a": NaN}',
             "metadata-number": '{"__metadata__": {"a": 1}}', "metadata-array": '{"__metadata__": []}',
             "unclosed": '{"a": {"dtype": "U8"', "twice": '{"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}, '
             '"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}'}
    for label, text in texts.items():
        case(label, make_safetensors(text=text, size=0))
    missing = {key: value for key, value in header.items() if key != name}
    case("hole-at-end", make_safetensors(missing, size))
    first = dict(list(header.items())[1:])
    case("hole-at-start", make_safetensors(first, size))


def torch_attacks(corpus):
    def case(label, data, expect="reject"):
        corpus.model(f"{expect}-torch-{label}", {"model.safetensors": None, "pytorch_model.bin": bytes(data)})

    def pickle_case(label, pickle, expect="reject"):
        case(label, make_zip(torch_entries(pickle)).data, expect)

    def tensor_case(label, expect="reject", **change):
        pickle_case(f"tensor-{label}", torch_pickle({"model.norm.weight": change}), expect)

    good = make_zip(torch_entries())
    case("valid", good.data, "accept")
    for number, (offset, size, field) in enumerate(good.fields):
        for value in sorted({value % 256**size for value in EDGES_8}):
            data = bytearray(good.data)
            data[offset:offset + size] = value.to_bytes(size, "little")
            if data != good.data:
                case(f"{number:03}-{field}-{value:x}", data, "any")
    for cut in [0, 1, 4, 29, 30, 63, 64, 100, *range(200, len(good.data), 397), len(good.data) - 1]:
        case(f"cut-{cut:05}", good.data[:cut])
    case("longer", good.data + b"\0")
    case("prefix", b"PK\x03\x04" + good.data)
    case("compressed", make_zip(torch_entries(), method=8).data)
    case("encrypted", make_zip(torch_entries(), flags=1).data)
    for label, entries in {
            "no-pickle": torch_entries()[1:], "two-pickles": torch_entries() + [("other/data.pkl", torch_pickle())],
            "entry-twice": torch_entries() + torch_entries()[:1], "big-endian": torch_entries()[:1] + [
                ("archive/byteorder", b"big")] + torch_entries()[2:], "storage-missing": torch_entries()[:-3],
            "up": [("../" + name, data) for name, data in torch_entries()]}.items():
        case(label, make_zip(entries).data)
    case("empty", b"PK\x05\x06" + bytes(18))
    case("legacy", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    case("bare-pickle", torch_pickle())

    # Calls, by every opcode that can make one, of what does harm and of what seems not to.
    for i, name in enumerate(["os\nsystem", "posix\nsystem", "nt\nsystem", "subprocess\nPopen", "__builtin__\neval",
                              "builtins\nexec", "torch.hub\nload", "torch\nload", "torch.jit\nload", "collections\nCounter",
                              "torch._utils\n_rebuild_tensor", "torch._utils\n_rebuild_tensor_v2.__globals__",
                              "torch\nFloatStorage.from_file", "torch\n\x1b[2J", "\u202e\nx", "\n", "numpy.core.multiarray\n_reconstruct"]):
        call = b"c" + name.encode() + b"\n(" + pickle_text("true") + b"tR"
        pickle_case(f"call-{i:02}", b"\x80\x02" + call + b".")
        tensor_case(f"call-{i:02}", hooks=call)
        pickle_case(f"name-{i:02}", torch_pickle(extra=pickle_text("x") + b"c" + name.encode() + b"\n"))
    text = pickle_text("os") + pickle_text("system")
    for label, body in {
            "inst": b"(" + pickle_text("true") + b"ios\nsystem\n.", "obj": b"(cos\nsystem\n" + pickle_text("true") + b"o.",
            "newobj": b"cos\nsystem\n)\x81.", "newobj-ex": b"cos\nsystem\n)}\x92.", "stack-global": text + b"\x93)R.",
            "ext1": b"\x82\x01)R.", "ext4": b"\x84\x01\0\0\0)R.", "persistent-text": b"Pos.system\n.",
            "buffer": b"\x97.", "frame": b"\x95" + struct.pack("<Q", 2**63) + b"N.", "call-storage": b"ctorch\nFloatStorage\n)R.",
            "call-none": b"N)R.", "build-none": b"NNb.", "build-list": b"]}b.", "ordered-dict-filled": b"ccollections\nOrderedDict\n(N"
            b"tR.", "memo-unset": b"h\0.", "memo-far": b"Nr\xff\xff\xff\x7f.", "mark-deep": b"(" * 4000 + b".", "tuple-deep": b")" +
            b"\x85" * 100000 + b".", "list-itself": b"]q\0h\0a.", "dict-itself": b"}q\0" + pickle_text("model") + b"h\0s.",
            "dict-itself-tensor": b"}q\0" + pickle_text("a") + b"h\0s.", "many-none": b"N" * 100000 + b".", "many-lists": b"]" *
            100000 + b".", "many-tuples": b")" * 100000 + b".", "text-long": b"X\xff\xff\xff\xff.", "text-not-utf8":
            b"}X\1\0\0\0\xffNs.", "long-long": b"\x8a\xff" + b"\xff" * 255 + b".", "odd-items": b"}(Nu.", "key-number":
            b"}K\1" + pickle_tensor("10", [DIM]) + b"s.", "list": b"].", "none": b"N.", "two": b"}}.", "no-stop": b"}",
            "behind": b"}.}", "text-state-dict": b"}" + pickle_text("state_dict") + pickle_text("x") + b"s.", "empty": b""}.items():
        pickle_case(f"pickle-{label}", b"\x80\x02" + body)
    pickle_case("pickle-protocol-4", b"\x80\x04}.")
    pickle_case("pickle-nothing", b"")
    pickle_case("pickle-memo-bomb", b"\x80\x02" + b"".join(b"Nr" + struct.pack("<I", 6 * i) for i in range(1000)) + b".")
    base = torch_pickle()
    for cut in range(2, len(base), 23):
        pickle_case(f"pickle-cut-{cut:05}", base[:cut])
    pickle_case("name-twice", torch_pickle(extra=pickle_text("model.norm.weight") + pickle_tensor("10", [DIM])))
    pickle_case("name-long", torch_pickle(extra=pickle_text("x" * 2000) + pickle_tensor("10", [DIM])))
    many = pickle_text("0") + pickle_tensor("0", [DIM, VOCAB], strides=pickle_ints([1, DIM])) + b"q\1"
    many += b"".join(pickle_text(str(i)) + b"h\1" for i in range(1, 1000))
    pickle_case("copies", torch_pickle(extra=many))

    numbers = [-1, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, 2**63, -2**63, DIM + 1]
    for i, value in enumerate(numbers):
        tensor_case(f"shape-{i}", shape=pickle_ints([value]))
        tensor_case(f"shape-twice-{i}", shape=pickle_ints([value, value]), strides=pickle_ints([value, 1]))
        tensor_case(f"shape-empty-{i}", "any", shape=pickle_ints([value, 0]), strides=pickle_ints([value, value]))
        tensor_case(f"stride-{i}", strides=pickle_ints([value]))
        tensor_case(f"offset-{i}", offset=pickle_int(value))
        tensor_case(f"elements-{i}", elements=pickle_int(value))
    for part in ("word", "type", "key", "place", "elements", "offset", "shape", "strides"):
        for label, value in {"none": b"N", "text": pickle_text("x"), "dict": b"}", "self": b"]q\0h\0a", "float": b"G" + bytes(8),
                             "other": b"ctorch\nLongStorage\n"}.items():
            tensor_case(f"{part}-{label}", "any" if part == "place" else "reject", **{part: value})
    tensor_case("key-up", key=pickle_text("../0"))
    tensor_case("expanded", shape=pickle_ints([1000000, DIM]), strides=pickle_ints([0, 1]))
    tensor_case("expanded-huge", shape=pickle_ints([2**40, DIM]), strides=pickle_ints([0, 1]))
    tensor_case("dims-nine", shape=pickle_ints([1] * 8 + [DIM]), strides=pickle_ints([1] * 9))
    tensor_case("conjugated", hooks=b"ccollections\nOrderedDict\n)R}" + pickle_text("conj") + b"\x88s")
    tensor_case("parameter-of-none", function=b"ctorch._utils\n_rebuild_parameter\n")
    half = len(TENSORS) // 2
    names = [name for _, name, _, _ in TENSORS]
    def index_case(label, shard, expect="reject"):
        weight_map = {name: "pytorch_model.bin" for name in names[half:]}
        weight_map.update({name: shard for name in names[:half]})
        corpus.model(f"{expect}-torch-index-{label}", {
            "model.safetensors": None, "pytorch_model.bin.index.json": {"weight_map": weight_map}, "shard.bin": bytes(good.data)})
    for i, shard in enumerate(["shard.bin", "../accept-torch-valid/pytorch_model.bin", "/etc/passwd", "config.json", "", 1]):
        index_case(i, shard)


def directory_attacks(corpus):
    def config(label, expect="reject", **change):
        changed = {key: value for key, value in {**CONFIG, **change}.items() if value != "absent"}
        corpus.model(f"{expect}-config-{label}", {"config.json": changed})

    for key in ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        config(f"no-{key}", **{key: "absent"})
        for i, value in enumerate([0, -1, 1.5, 2**31, 2**63, 2**64, 1e300, [8], {}, None, True]):
            config(f"{key}-{i}", **{key: value})
    config("kv-heads-do-not-divide", num_key_value_heads=3)
    config("theta-zero", rope_theta=0)
    config("scaling-array", rope_scaling=[1])
    config("scaling-without-type", rope_scaling={"factor": 8.0})
    config("eos-string", eos_token_id="2")
    config("eos-negative", eos_token_id=[2, -1])
    config("eos-huge", eos_token_id=2**40)
    config("heads-uneven", num_attention_heads=3, num_key_value_heads=3, expect="reject_model")
    config("vocab-too-large", vocab_size=VOCAB + 1, expect="reject_model")
    config("vocab-too-small", vocab_size=VOCAB - 1, expect="reject_model")
    config("layers-too-many", num_hidden_layers=2, expect="reject_model")
    config("type-unknown", model_type="no-such-model", expect="reject_model")
    for label, data in {"lfs": LFS_POINTER, "html": HTML, "empty": b"", "deep": b'{"a":' * 10000, "array": b"[]",
                        "twice": b'{"model_type": "llama", "model_type": "llama"}', "text": b"hello"}.items():
        corpus.model(f"reject-config-{label}", {"config.json": data})
        corpus.model(f"reject-tokenizer-config-{label}", {"tokenizer_config.json": b"[" if label == "array" else data})
    corpus.model("reject-template-number", {"tokenizer_config.json": {"chat_template": 1}})
    corpus.model("reject-template-list", {"tokenizer_config.json": {"chat_template": [{"name": "default"}]}})
    corpus.model("reject-template-huge", {"chat_template.jinja": b"x" * (2**20 + 1)})
    for label, data in {"lfs": LFS_POINTER, "html": HTML, "gguf": bytes(make_gguf().data), "zip": b"PK\x03\x04" + bytes(64),
                        "zeros": bytes(4096)}.items():
        corpus.model(f"reject-weights-{label}", {"model.safetensors": data})
    corpus.model("reject-only-pickle", {"model.safetensors": None, "pytorch_model.bin": b"\x80\x02}q\x00."})
    corpus.model("reject-adapter", {"model.safetensors": None, "adapter_model.safetensors": make_safetensors()})
    corpus.model("reject-no-weights", {"model.safetensors": None})
    corpus.model("reject-no-config", {"config.json": None})
    index_attacks(corpus)


def index_attacks(corpus):
    half = len(TENSORS) // 2
    shards = {}
    for i, part in enumerate((TENSORS[:half], TENSORS[half:])):
        header, size = safetensors_header(part)
        shards[f"model-{i + 1:05}-of-00002.safetensors"] = (make_safetensors(header, size), list(header))
    good_map = {tensor: shard for shard, (_, tensors) in shards.items() for tensor in tensors}
    index_name = "model.safetensors.index.json"

    def case(label, index, expect="reject", **more):
        files = {name: data for name, (data, _) in shards.items()}
        corpus.model(f"{expect}-index-{label}", {"model.safetensors": None, **files, index_name: index, **more})

    def changed(name, shard):
        return {"weight_map": {**good_map, name: shard}}

    some, first = "model.norm.weight", "model-00001-of-00002.safetensors"
    case("valid", {"metadata": {"total_size": 0}, "weight_map": good_map}, "accept")
    shard_names = ["../accept-safetensors-valid/model.safetensors", "/etc/passwd", "..", ".", "", "a/b", "x\0y",
                   "absent.safetensors", index_name, "config.json", first, 1, None, ["a"], "\u202e.safetensors"]
    for i, shard in enumerate(shard_names):
        case(f"shard-{i}", changed(some, shard))
    case("extra-tensor", changed("model.extra.weight", first))
    case("missing-tensor", {"weight_map": {k: v for k, v in good_map.items() if k != some}})
    case("no-map", {"metadata": {}})
    case("map-array", {"weight_map": []})
    case("not-json", b"hello")
    case("lfs", LFS_POINTER)
    case("shard-lfs", {"weight_map": good_map}, **{first: LFS_POINTER})


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    corpus = Corpus(sys.argv[1])
    gguf_attacks(corpus)
    quantized_attacks(corpus)
    llama2c_attacks(corpus)
    safetensors_attacks(corpus)
    torch_attacks(corpus)
    directory_attacks(corpus)
    for label, data in {"lfs": LFS_POINTER, "html": HTML, "empty": b"", "zeros": bytes(4096), "ones": b"\xff" * 4096,
                        "zip": b"PK\x03\x04" + bytes(64), "pickle": b"\x80\x02}q\x00.", "safetensors": make_safetensors(),
                        "text": b"Once upon a time\n" * 100}.items():
        corpus.file(f"reject-file-{label}.bin", data)
    print(f"{corpus.count} models in {corpus.root}")


if __name__ == "__main__":
    main()
