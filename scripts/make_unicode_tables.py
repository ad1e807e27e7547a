#!/usr/bin/env python3
"""Writes lib/text/unicode_data.cc: the Unicode properties and mappings that tokenizers need.

Each table is of the Unicode version that the tokenizers library of Hugging Face (0.23.3) has for it
or, of normal forms, whose tables there are older, of Python's: general categories of unicodedata2,
lower case asked of that library, normal forms of unicodedata. The versions are written into the file.
Usage: pip install unicodedata2==16.0.0 tokenizers==0.23.3
       scripts/make_unicode_tables.py > lib/text/unicode_data.cc   # with Python 3.11
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


def emit(declaration, values, per_line=10):
    print(f"const {declaration} = {{")
    for i in range(0, len(values), per_line):
        print("    " + " ".join(f"0x{v:x}," for v in values[i:i + per_line]))
    print("};")


def main():
    nfd = dict(mappings(lambda c: unicodedata.normalize("NFD", c)))
    nfkd = dict(mappings(lambda c: unicodedata.normalize("NFKD", c)))
    lower = dict(mappings(tokenizers.normalizers.Lowercase().normalize_str))
    pool = Pool()
    for text in sorted(set(nfd.values()) | set(nfkd.values()), key=len, reverse=True):
        pool.offset(text)

    def entries(table):
        flat = []
        for c, text in sorted(table.items()):
            flat += [c, pool.offset(text) << 5 | len(text)]
        return flat

    compositions = []
    for c in CODE_POINTS:
        if c in HANGUL_SYLLABLES or 0xD800 <= c < 0xE000:
            continue
        decomposition = unicodedata.decomposition(chr(c)).split()
        if len(decomposition) != 2 or decomposition[0].startswith("<"):
            continue
        if unicodedata.normalize("NFC", chr(c)) == chr(c):
            compositions.append([int(d, 16) for d in decomposition] + [c])
    compositions = [value for triple in sorted(compositions) for value in triple]

    print("// Made by scripts/make_unicode_tables.py: do not edit.")
    print(f"// Categories of Unicode {unicodedata2.unidata_version}, normal forms of "
          f"{unicodedata.unidata_version}, lower case of tokenizers {tokenizers.__version__}.\n")
    print("// clang-format off")
    print('#include "lib/text/unicode_data.h"\n')
    print("namespace lumen::text::unicode_data {\n")
    emit("uint32_t category_runs[]",
         [c << 5 | CATEGORIES.index(v) for c, v in runs(unicodedata2.category)])
    emit("uint32_t combining_runs[]", [c << 8 | v for c, v in runs(unicodedata.combining)])
    emit("uint32_t canonical[]", entries(nfd))
    emit("uint32_t compatibility[]",
         entries({c: text for c, text in nfkd.items() if nfd.get(c) != text}))
    emit("uint32_t pool[]", [ord(c) for c in pool.text])
    emit("uint32_t compositions[]", compositions, per_line=12)
    emit("uint32_t lower[]",
         [v for c, text in sorted(lower.items()) if len(text) == 1 for v in (c, ord(text))])
    for name in ("category_runs", "combining_runs", "canonical", "compatibility", "compositions",
                 "lower"):
        print(f"const size_t {name}_size = sizeof {name} / sizeof *{name};")
    print("\n}  // namespace lumen::text::unicode_data")
    odd = [hex(c) for c, text in lower.items() if len(text) != 1]
    assert odd == ["0x130"], odd  # handled in unicode.cc
    assert max(map(len, nfkd.values())) < 32


if __name__ == "__main__":
    sys.exit(main())
