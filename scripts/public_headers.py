#!/usr/bin/env python3
"""Lists the headers that `meson install` installs, relative to SOURCE_DIR.

Usage: public_headers.py SOURCE_DIR

All of lib/ and models/ but what only their own room or the tests may include.
"""
import pathlib
import sys

PRIVATE = {
    "lib/base/relative_error.h", "lib/base/testing.h", "lib/data/text_batches.h",
    "lib/io/coded_matrix.h", "lib/io/family_completions.h", "lib/io/family_defaults.h",
    "lib/io/fused_experts.h", "lib/io/fuzz/fuzzing.h", "lib/io/gguf_architecture.h",
    "lib/io/gguf_families.h", "lib/io/gguf_keys.h", "lib/io/internlm2.h",
    "lib/io/model_formats.h", "lib/io/packed_layer.h", "lib/io/test_clock.h",
    "lib/io/test_directories.h", "lib/io/test_files.h", "lib/kernels/expert_routes.h",
    "lib/kernels/reference.h", "lib/kernels/reference_rows.h", "lib/kernels/row_blocks.h",
    "lib/ops/attention_inputs.h", "lib/ops/golden_builders.h", "lib/ops/matrix_rows.h",
    "lib/ops/random_key.h", "lib/runtime/adapters/adapter_names.h",
    "lib/runtime/adapters/adapter_options.h", "lib/runtime/adapters/fused_inputs.h",
    "lib/runtime/adapters/joined_additions.h", "lib/runtime/adapters/mlx_adapter.h",
    "lib/runtime/conversion/convert_testing.h", "lib/runtime/generation/fake_model.h",
    "lib/runtime/tool/tool_process.h", "lib/runtime/training/fake_task.h",
    "lib/runtime/training/text_recipes.h", "lib/runtime/training/train_place.h",
    "lib/runtime/training/trained_families.h",
    "lib/runtime/training/train_process.h",
}
# What lies in folders of the kernels is theirs, but for what their headers are declared with.
KERNELS = "lib/kernels/"
DECLARED_WITH = {"lib/kernels/products/blocked_product.h"}


def is_public(header):
    if header in PRIVATE or header.endswith("-inl.h"):
        return False
    of_kernels = header.startswith(KERNELS) and "/" in header[len(KERNELS):]
    return not of_kernels or header in DECLARED_WITH


def main():
    root = pathlib.Path(sys.argv[1])
    headers = [path.relative_to(root).as_posix()
               for room in ("lib", "models") for path in sorted((root / room).rglob("*.h"))]
    for header in headers:
        if is_public(header):
            print(header)
    missing = (PRIVATE | DECLARED_WITH) - set(headers)
    if missing:
        sys.exit(f"public_headers.py: no such headers: {sorted(missing)}")


if __name__ == "__main__":
    main()
