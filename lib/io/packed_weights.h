// Hugging Face models whose linear layers other programs rounded to integers or 8-bit floats.
//
// What config.json calls them, and the tensors of a layer X of [out, in] weights:
//   gptq                X.qweight, X.qzeros, X.scales, X.g_idx
//   (https://github.com/AutoGPTQ/AutoGPTQ) awq, version gemm   X.qweight, X.qzeros, X.scales
//   (https://github.com/casper-hansen/AutoAWQ) compressed-tensors  X.weight_packed or X.weight
//   (int8, 8-bit floats), X.weight_scale, …
//                       (https://github.com/vllm-project/compressed-tensors)
//   fp8                 X.weight (8-bit floats), X.weight_scale_inv
//                       (https://huggingface.co/docs/transformers/quantization/finegrained_fp8)
//   bitsandbytes        X.weight (nibbles), X.weight.absmax, X.weight.quant_map, … or X.weight
//   (int8),
//                       X.SCB (https://github.com/bitsandbytes-foundation/bitsandbytes)
//   bitnet              X.weight (four of -1, 0 and 1 in a byte), X.weight_scale; or X.weight in
//                       floats that are yet to be rounded to these
//                       (https://huggingface.co/docs/transformers/quantization/bitnet)
//   mxfp4 (gpt-oss)     X_blocks, X_scales of all experts of a layer: fused_experts.h
//   "quantization" with group_size (MLX)  X.weight (integers), X.scales, X.biases
//                       (https://ml-explore.github.io/mlx, mlx.core.quantize)
#pragma once

#include <memory>

#include "lib/io/json.h"
#include "lib/io/safetensors.h"

namespace lumen::io {

// How the layers of a model are packed.
struct Packing;

// What `config`, a config.json, says of it; null if weights are stored as they are, or as gpt-oss's
// mxfp4. Throws Error(kUnsupported) for another method, or a variant that is not said here;
// kMalformed for keys that are missing or of a wrong type.
std::shared_ptr<const Packing> packing_of(const Json& config);

// Takes what says so out of `config`.
void erase_packing(Json& config);

// All tensors of `file` by name; of each packed layer X its weight [out, in] as X.weight, of the
// type that coded_matrix.h says. Scales of activations and of KV caches, which belong to other
// programs' arithmetic, are left out, and biases of zeros that packing added.
//
// Throws Error: kMalformed for a layer with missing tensors, or of shapes or types that do not fit;
// kUnsupported for codes that do not fill whole words; as SafetensorsFile::array for other tensors.
NamedArrays unpacked_weights(const SafetensorsFile& file, const Packing& packing);

}  // namespace lumen::io
