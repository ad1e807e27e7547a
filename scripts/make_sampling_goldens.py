#!/usr/bin/env python3
"""Makes testdata/goldens/sampling.json: what llama.cpp's samplers leave of logits.

Usage: make_sampling_goldens.py LIBLLAMA.SO VERSION > testdata/goldens/sampling.json

LIBLLAMA.SO is ik_llama.cpp's, a fork with llama.cpp's samplers, whose functions need no model;
VERSION, its commit, goes into the file. Made with 8337e4cd3, built with GCC 12.

Each case has settings by their flags' names; "logits"; the "tokens" of the text so far, if they
matter; and the resulting logits ("result") or the ids that stay ("kept").
"""
import ctypes
import json
import random
import sys


class TokenData(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float)]


class TokenDataArray(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(TokenData)), ("size", ctypes.c_size_t),
                ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool)]


class Candidates:
    def __init__(self, logits):
        self.count = len(logits)
        self.memory = (TokenData * self.count)(*[TokenData(i, x, 0) for i, x in enumerate(logits)])
        self.array = TokenDataArray(self.memory, self.count, -1, False)

    def left(self):
        return {self.array.data[i].id: self.array.data[i].logit for i in range(self.array.size)}

    def result(self):
        left = self.left()
        return [left[i] for i in range(self.count)]

    def kept(self):
        return sorted(self.left())


def some_logits(count):
    return [round(random.gauss(0, 2), 4) for _ in range(count)]


def some_text(count, vocab):
    tokens = []
    while len(tokens) < count:
        distance = random.randint(1, 12)
        repeats = distance <= len(tokens) and random.random() < 0.6
        tokens.append(tokens[-distance] if repeats else random.randrange(vocab))
    return tokens


def main():
    library = ctypes.CDLL(sys.argv[1])
    pointer, number = ctypes.c_void_p, ctypes.c_float
    random.seed(1)
    cases = []

    def filter_case(function, settings, arguments, logits):
        candidates = Candidates(logits)
        function(*arguments, ctypes.byref(candidates.array))
        cases.append({**settings, "logits": logits, "kept": candidates.kept()})

    sampling = ctypes.create_string_buffer(1 << 16)  # its counters of time; nothing else is read
    for _ in range(12):
        logits = some_logits(24)
        p = round(random.uniform(0.1, 0.95), 3)
        filter_case(lambda c: library.llama_sample_typical(None, c, number(p), ctypes.c_size_t(1)),
                    {"typical-p": p}, [], logits)
        n = round(random.uniform(0.2, 2), 3)
        filter_case(lambda c: library.llama_sample_top_n_sigma(None, c, number(n)), {"top-n-sigma": n}, [], logits)
        threshold = round(random.uniform(0.01, 0.2), 3)
        xtc = library._Z21llama_sample_xtc_implP14llama_samplingP22llama_token_data_arrayffm
        filter_case(lambda c: xtc(ctypes.byref(sampling), c, number(1), number(threshold), ctypes.c_size_t(0)),
                    {"xtc-probability": 1, "xtc-threshold": threshold}, [], logits)

    for _ in range(12):
        logits, tokens = some_logits(12), some_text(random.randint(1, 40), 12)
        repeat, frequency, presence = [round(random.uniform(lo, hi), 3) for lo, hi in ((1, 2), (-1, 1), (-1, 1))]
        candidates = Candidates(logits)
        library.llama_sample_repetition_penalties(
            None, ctypes.byref(candidates.array), (ctypes.c_int32 * len(tokens))(*tokens),
            ctypes.c_size_t(len(tokens)), number(repeat), number(frequency), number(presence))
        cases.append({"repeat-penalty": repeat, "frequency-penalty": frequency, "presence-penalty": presence,
                      "tokens": tokens, "logits": logits, "result": candidates.result()})

    make = library._Z27llama_sampler_init_dry_implRK11llama_vocabiffiiPPKcm
    make.restype = pointer
    for _ in range(24):
        vocab = random.randint(2, 5)
        logits, tokens = some_logits(vocab), some_text(random.randint(2, 80), vocab)
        multiplier, base = round(random.uniform(0.2, 2), 3), round(random.uniform(1, 2), 3)
        allowed, last_n = random.randint(1, 4), random.choice([20, 50, 100])
        dry = pointer(make(ctypes.byref(sampling), 4096, number(multiplier), number(base), allowed, last_n, None,
                           ctypes.c_size_t(0)))
        for token in tokens:
            library.llama_sampler_dry_accept(dry, token)
        candidates = Candidates(logits)
        library.llama_sample_dry(None, dry, ctypes.byref(candidates.array))
        cases.append({"dry-multiplier": multiplier, "dry-base": base, "dry-allowed-length": allowed,
                      "dry-penalty-last-n": last_n, "tokens": tokens, "logits": logits,
                      "result": candidates.result()})

    print(json.dumps({"made by": f"make_sampling_goldens.py, ik_llama.cpp {sys.argv[2]}", "cases": cases},
                     separators=(",", ":")).replace('{"', '\n{"', 1).replace(',{"', ',\n{"'))


if __name__ == "__main__":
    main()
