#!/usr/bin/env python3
"""Writes lib/text/unicode_data.cc: the Unicode properties and mappings that tokenizers need.

Each table is of the Unicode version that the tokenizers library of Hugging Face (0.23.3) has for
it, because models were trained on its tokens: general categories of unicodedata2, which those of
that library's patterns are found equal to, the rest asked of that library itself. Its normal forms
are of Unicode 12.0: a character that is younger than that stays as it is, and has combining class
0. What it splits off as punctuation is of Unicode 8.0, as digits of 17.0, its scripts of 9.0. To be
run by Python 3.11, whose own tables are those of the oldest PCRE2 that is in use: of Unicode 14.0.
Usage: pip install unicodedata2==16.0.0 tokenizers==0.23.3
       scripts/make_unicode_tables.py > lib/text/unicode_data.cc
"""

import sys
import unicodedata

import tokenizers
import unicodedata2

CATEGORIES = ("Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So "
              "Zl Zp Zs").split()
CODE_POINTS = range(0x110000)
HANGUL_SYLLABLES = range(0xAC00, 0xAC00 + 11172)  # decomposed by formula


def runs(value_of):
    """(first code point, value) of every maximal run of equal values."""
    result = []
    for c in CODE_POINTS:
        value = value_of(chr(c))
        if not result or result[-1][1] != value:
            result.append((c, value))
    return result


def mappings(map_char):
    """(code point, mapped text) for every code point that `map_char` changes."""
    for c in CODE_POINTS:
        if c in HANGUL_SYLLABLES or 0xD800 <= c < 0xE000:
            continue
        mapped = map_char(chr(c))
        if mapped != chr(c):
            yield c, mapped


class Pool:
    """Strings of code points, overlapping where one contains another."""

    def __init__(self):
        self.text = ""

    def offset(self, text):
        at = self.text.find(text)
        if at < 0:
            at = len(self.text)
            self.text += text
        return at


def combining_classes(decomposed, canonical):
    """The canonical combining class of every code point whose class is not 0 and which canonical
    decomposition keeps, asked by the order that NFD gives two marks."""
    def moves(a, b):  # whether 0 < class(b) < class(a)
        return a != b and decomposed(a + b) == b + a

    first, last = "\u0334", "\u0345"  # of the least and the largest class: 1 and 240
    samples = {1: first}  # class: a mark that has it in the library, too
    for c in CODE_POINTS:
        mark_class = unicodedata2.combining(chr(c))
        if mark_class != 0 and c not in canonical and moves(chr(c), first):
            samples.setdefault(mark_class, chr(c))

    classes = {}
    for c in CODE_POINTS:
        mark = chr(c)
        if c in canonical or 0xD800 <= c < 0xE000 or c in HANGUL_SYLLABLES:
            continue
        if moves(mark, first) or moves(last, mark):
            below = [k for k, sample in samples.items() if moves(mark, sample)]
            above = [k for k, sample in samples.items() if moves(sample, mark)]
            classes[c], = set(samples) - set(below) - set(above)
    return classes


def is_split_off(pre_tokenizer):
    """Whether a pre-tokenizer makes a piece of a character between two letters."""
    def is_piece(character):
        is_text = not 0xD800 <= ord(character) < 0xE000
        return is_text and len(pre_tokenizer.pre_tokenize_str(f"a{character}b")) == 3
    return is_piece


def scripts():
    """A function: the number of a character's script for UnicodeScripts, which makes one piece of
    two characters of one script; 0: of any, so that it is no piece by itself."""
    split = tokenizers.pre_tokenizers.UnicodeScripts().pre_tokenize_str
    samples = []  # one character of each script

    def number(character):
        if 0xD800 <= ord(character) < 0xE000:
            return number("\uE000")
        if not split(character):
            return 0
        for i in [*recent, *range(len(samples))]:
            if len(split(samples[i] + character)) == 1:
                recent[:] = [i]
                return i + 1
        samples.append(character)
        return len(samples)

    recent = []
    return number


def young_ranges():
    """first, last, category of the characters that Unicode 14 does not have."""
    ranges = []
    for c in CODE_POINTS:
        category = unicodedata2.category(chr(c))
        if category == "Cn" or unicodedata.category(chr(c)) != "Cn":
            continue
        if ranges and ranges[-1][1:] == [c - 1, category]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, category])
    return [v for first, last, category in ranges
            for v in (first, last, CATEGORIES.index(category))]


def emit(declaration, values, per_line=10):
    print(f"const {declaration} = {{")
    for i in range(0, len(values), per_line):
        print("    " + " ".join(f"0x{v:x}," for v in values[i:i + per_line]))
    print("};")


def main():
    assert unicodedata.unidata_version == "14.0.0"
    forms = {name: getattr(tokenizers.normalizers, name)().normalize_str
             for name in ("NFC", "NFD", "NFKD", "Lowercase")}
    nfd = dict(mappings(forms["NFD"]))
    nfkd = dict(mappings(forms["NFKD"]))
    lower = dict(mappings(forms["Lowercase"]))
    classes = combining_classes(forms["NFD"], nfd)
    pool = Pool()
    for text in sorted(set(nfd.values()) | set(nfkd.values()), key=lambda t: (-len(t), t)):
        pool.offset(text)

    def entries(table):
        flat = []
        for c, text in sorted(table.items()):
            flat += [c, pool.offset(text) << 5 | len(text)]
        return flat

    compositions = []
    for c, text in nfd.items():
        if len(text) == 1 or forms["NFC"](chr(c)) != chr(c):  # excluded from composition
            continue
        head = forms["NFC"](text[:-1])
        assert len(head) == 1 and forms["NFC"](head + text[-1]) == chr(c), hex(c)
        compositions.append([ord(head), ord(text[-1]), c])
    compositions = [value for triple in sorted(compositions) for value in triple]

    print("// Made by scripts/make_unicode_tables.py: do not edit.")
    print(f"// Categories of Unicode {unicodedata2.unidata_version}, the rest of tokenizers "
          f"{tokenizers.__version__}.\n")
    print("// clang-format off")
    print('#include "lib/text/unicode_data.h"\n')
    print("namespace lumen::text::unicode_data {\n")
    emit("uint32_t category_runs[]",
         [c << 5 | CATEGORIES.index(v) for c, v in runs(unicodedata2.category)])
    emit("uint32_t combining_runs[]", [c << 8 | v for c, v in runs(lambda c: classes.get(ord(c), 0))])
    for name, pre_tokenizer in (("punctuation", tokenizers.pre_tokenizers.Punctuation()),
                                ("number", tokenizers.pre_tokenizers.Digits())):
        emit(f"uint32_t {name}_runs[]",
             [c << 1 | v for c, v in runs(is_split_off(pre_tokenizer))])
    emit("uint32_t script_runs[]", [c << 8 | v for c, v in runs(scripts())])
    emit("uint32_t young[]", young_ranges(), per_line=12)
    emit("uint32_t canonical[]", entries(nfd))
    emit("uint32_t compatibility[]",
         entries({c: text for c, text in nfkd.items() if nfd.get(c) != text}))
    emit("uint32_t pool[]", [ord(c) for c in pool.text])
    emit("uint32_t compositions[]", compositions, per_line=12)
    emit("uint32_t lower[]",
         [v for c, text in sorted(lower.items()) if len(text) == 1 for v in (c, ord(text))])
    for name in ("category_runs", "combining_runs", "punctuation_runs", "number_runs", "script_runs",
                 "young", "canonical", "compatibility", "compositions", "lower"):
        print(f"const size_t {name}_size = sizeof {name} / sizeof *{name};")
    print("\n}  // namespace lumen::text::unicode_data")
    odd = [hex(c) for c, text in lower.items() if len(text) != 1]
    assert odd == ["0x130"], odd  # handled in unicode.cc
    assert max(map(len, nfkd.values())) < 32


if __name__ == "__main__":
    sys.exit(main())
