#!/usr/bin/env python3
"""Lists the headers that `meson install` installs, relative to SOURCE_DIR.

Usage: public_headers.py SOURCE_DIR

All of lib/ and models/ but what only their own room or the tests may include.
"""
import pathlib
import sys

PRIVATE = {
    "lib/base/relative_error.h", "lib/base/testing.h", "lib/data/text_batches.h",
    "lib/io/fuzz/fuzzing.h",
    "lib/io/coded_matrix.h", "lib/io/family_completions.h", "lib/io/family_defaults.h",
    "lib/io/fused_experts.h",
    "lib/io/gguf_architecture.h", "lib/io/gguf_families.h", "lib/io/gguf_keys.h", "lib/io/internlm2.h",
    "lib/io/model_formats.h", "lib/io/packed_layer.h",
    "lib/io/test_clock.h", "lib/io/test_directories.h", "lib/io/test_files.h",
    "lib/kernels/amx_emulation.h", "lib/kernels/every_target.h",
    "lib/kernels/attention_problem.h", "lib/kernels/expert_routes.h", "lib/kernels/few_rows.h",
    "lib/kernels/mxfp4_values.h", "lib/kernels/pack_blocks.h",
    "lib/kernels/random_floats.h", "lib/kernels/random_weights.h", "lib/kernels/row_blocks.h",
    "lib/kernels/run_linear.h",
    "lib/ops/attention_inputs.h", "lib/ops/golden_builders.h", "lib/ops/matrix_rows.h",
    "lib/ops/random_key.h",
    "lib/runtime/adapter_names.h", "lib/runtime/adapter_options.h",
    "lib/runtime/joined_additions.h",
    "lib/runtime/fake_model.h", "lib/runtime/fake_task.h", "lib/runtime/text_recipes.h",
    "lib/runtime/convert_testing.h", "lib/runtime/fused_inputs.h", "lib/runtime/mlx_adapter.h", "lib/runtime/tool_process.h", "lib/runtime/train_place.h",
    "lib/runtime/train_process.h",
}


def main():
    root = pathlib.Path(sys.argv[1])
    headers = [path.relative_to(root).as_posix()
               for room in ("lib", "models") for path in sorted((root / room).rglob("*.h"))]
    for header in headers:
        if header not in PRIVATE and not header.endswith("-inl.h"):
            print(header)
    missing = PRIVATE - set(headers)
    if missing:
        sys.exit(f"public_headers.py: no such headers: {sorted(missing)}")


if __name__ == "__main__":
    main()
