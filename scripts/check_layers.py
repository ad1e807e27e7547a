#!/usr/bin/env python3
"""Fails if a room includes a room of its own or a higher rank (law 3 of CONTRIBUTING.md).

Usage: check_layers.py SOURCE_DIR
"""
import pathlib
import re
import sys

RANK = {
    "lib/base": 0, "lib/tensor": 1, "lib/kernels": 2, "lib/io": 2, "lib/graph": 3, "lib/text": 3,
    "lib/ops": 4, "lib/data": 4, "lib/autograd": 5, "lib/nn": 6, "lib/optim": 6, "models": 7,
    "lib/dist": 7, "lib/runtime": 8, "tools": 9,
}
BANNED_NAMES = {"utils", "util", "common", "helpers", "misc"}
# What only one room may touch (laws 4 and 6, and the lint of the reliability rules).
RESTRICTED = [
    (re.compile(r'#include\s+[<"]hwy/'), "lib/kernels", "Highway stays inside lib/kernels"),
    (re.compile(r"\bstd::regex\b|#include\s+<regex>"), None, "std::regex overflows the stack"),
    (re.compile(r"\bsetlocale\s*\(|\bstd::sto[dfil]\w*\(|\bstrto[df]\s*\("), None,
     "locale-dependent number parsing"),
]


def room_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "lib" else parts[0]


def main():
    root = pathlib.Path(sys.argv[1])
    errors = []
    for top in ("lib", "models", "tools"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".h", ".cc"):
                continue
            relative = file.relative_to(root).as_posix()
            room = room_of(relative)
            if file.stem in BANNED_NAMES:
                errors.append(f"{relative}: a file is named after what it holds")
            if room not in RANK:
                errors.append(f"{relative}: '{room}' is not a room")
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                where = f"{relative}:{number}"
                for pattern, allowed, why in RESTRICTED:
                    if pattern.search(line) and room != allowed:
                        errors.append(f"{where}: {why}")
                include = re.match(r'#include\s+"([^"]+)"', line)
                if not include:
                    continue
                target = room_of(include.group(1))
                # A test may use whatever makes it readable: only shipped code has ranks.
                if target == room or file.stem.endswith("_test"):
                    continue
                if RANK.get(target, 99) >= RANK[room]:
                    errors.append(f"{where}: {room} (rank {RANK[room]}) includes "
                                  f"{include.group(1)} (rank {RANK.get(target, '?')})")
                if target == "lib/kernels" and include.group(1).count("/") > 2:
                    errors.append(f"{where}: {include.group(1)} is for lib/kernels alone")
                if room == "lib/kernels" and target == "lib/tensor" and \
                        include.group(1) not in ("lib/tensor/dtype.h", "lib/tensor/shape.h"):
                    errors.append(f"{where}: kernels see of tensor only dtype.h and shape.h")
    for error in errors:
        print(error)
    print(f"layers: {len(errors)} violations")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
