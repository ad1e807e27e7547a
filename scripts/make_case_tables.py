#!/usr/bin/env python3
"""Writes lib/text/jinja/case_tables.cc: the case mappings and properties of characters that Python's
str methods use beyond general categories, asked of the running interpreter.

Usage: make_case_tables.py > lib/text/jinja/case_tables.cc   (then clang-format)
"""
import sys
import unicodedata

LAST = 0x110000
SURROGATES = range(0xD800, 0xE000)


def characters():
    return (c for c in range(LAST) if c not in SURROGATES)


def ranges(holds):
    """Inclusive ranges of the code points for which `holds(character)`."""
    out = []
    for c in characters():
        if holds(chr(c)):
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


def mapping(convert):
    """Runs (first, last, stride, delta) of simple mappings, and the mappings to several."""
    runs, several = [], []
    for c in characters():
        to = convert(chr(c))
        if len(to) > 1:
            several.append((c, [ord(x) for x in to]))
        elif ord(to) != c:
            delta = ord(to) - c
            if runs and runs[-1][3] == delta:
                first, last, stride, _ = runs[-1]
                step = c - last
                if (first == last and step <= 2) or step == stride:
                    runs[-1] = (first, c, step, delta)
                    continue
            runs.append((c, c, 1, delta))
    return runs, several


def ignorable(c):
    """Case_Ignorable, as the rule for the final sigma sees it."""
    return (("A" + c + "\u03a3").lower()[-1] == "\u03c2"
            and ("1" + c + "\u03a3").lower()[-1] == "\u03c3")


def cased(c):
    return ("1" + c + "\u03a3").lower()[-1] == "\u03c2"


def emit_ranges(name, table):
    print(f"const Range k{name}[] = {{")
    print(", ".join(f"{{{a:#x}, {b:#x}}}" for a, b in table))
    print("};\n")


def emit_mapping(name, runs, several):
    print(f"const CaseRun k{name}Runs[] = {{")
    print(", ".join(f"{{{a:#x}, {b:#x}, {s}, {d}}}" for a, b, s, d in runs))
    print("};\n")
    print(f"const CaseSequence k{name}Sequences[] = {{")
    print(", ".join("{%#x, {%s}}" % (c, ", ".join(f"{x:#x}" for x in to)) for c, to in several))
    print("};\n")


def main():
    print(f"""// Made by scripts/make_case_tables.py with Python {sys.version.split()[0]}, \
Unicode {unicodedata.unidata_version}.
#include "lib/text/jinja/case_tables.h"

namespace lumen::text::jinja {{
namespace {{
""")
    sets = {
        "Digit": str.isdigit, "Numeric": str.isnumeric, "Lowercase": str.islower,
        "Uppercase": str.isupper, "Cased": cased, "CaseIgnorable": ignorable,
    }
    maps = {"Upper": str.upper, "Title": str.title, "Fold": str.casefold}
    for name, holds in sets.items():
        emit_ranges(name, ranges(holds))
    for name, convert in maps.items():
        emit_mapping(name, *mapping(convert))
    print("}  // namespace\n")
    print("const PropertyTables kProperties = {" + ", ".join(f"k{n}" for n in sets) + "};\n")
    print("const CaseTables kCases = {"
          + ", ".join(f"{{k{n}Runs, k{n}Sequences}}" for n in maps) + "};\n")
    print("}  // namespace lumen::text::jinja")


if __name__ == "__main__":
    main()
