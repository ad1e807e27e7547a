// Experts that are in one tensor per layer.
#pragma once

#include <string_view>

#include "lib/io/json.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::io {

// How published files have the experts of a model.
enum class ExpertsForm {
  kEachItsOwn,  // matrices of its own for each
  kHalves,      // one tensor of all, of gate and up the one's rows behind the other's (Qwen3.5,
                // Granite, Gemma 4, Mistral 4)
  kInTurn,      // one tensor of all, with gate and up in turn (gpt-oss)
  kTurned,      // one tensor of all, halves, with what others have as rows as columns (Llama 4)
};
// Of a model with this config.
ExpertsForm experts_form(const Json& config);

// What files of a model with this config call the tensor that the one of this name is a part of:
// of expert 3's up_proj "model.….mlp.experts.gate_up_proj"; "" if they have it alone, as those of
// layers that guess further tokens ("mtp.…"). Granite's, whose files have the names of ordinary
// layers, are "….block_sparse_moe.input_linear.weight" and output_linear, and of what all tokens go
// through likewise "….shared_mlp.input_linear.weight"; of
// experts of Granite with windows "….block_sparse_moe.experts.gate_up_proj".
std::string fused_name(const Json& config, std::string_view name);

// Gives each expert matrices of its own, as SparseMlp (nn/sparse_mlp.h) has them: with P beginning
// with "model." and ending in ".mlp.experts" or, of Gemma 4, "model.layers.N.experts", of
// ExpertsForm::kInTurn
//   P.gate_up_proj [experts, hidden, 2 · intermediate] of floats, gate and up in turn, becomes
//     P.N.gate_proj.weight and P.N.up_proj.weight [intermediate, hidden] of expert N,
//   P.down_proj [experts, intermediate, hidden] becomes P.N.down_proj.weight, likewise turned,
//   P.gate_up_proj_blocks u8 [experts, 2 · intermediate, hidden / 32, 16], the nibbles of MXFP4 in
//     order, with P.gate_up_proj_scales u8 [experts, 2 · intermediate, hidden / 32] become the same
//     matrices as DType::kMXFP4, and those of down_proj likewise,
//   P.gate_up_proj_bias [experts, 2 · intermediate] becomes P.gate_proj.bias and P.up_proj.bias
//     [experts, intermediate], and P.down_proj_bias P.down_proj.bias;
// these numbers are copied into memory of their own on several threads, tensor by tensor, and the
// pages of a file that they were read from are given back. Of the other forms, of which files may
// have either whatever the published ones have,
//   P.gate_up_proj [experts, 2 · intermediate, hidden] and P.down_proj [experts, hidden,
//     intermediate] of floats become the same matrices, which are parts of them; where P ends in
//     ".feed_forward.experts" (LFM2) these are P.N.w1.weight, w3 and w2;
//   of Llama 4 and Qwen3-VL, P.gate_up_proj [experts, hidden, 2 · intermediate] and P.down_proj
//   [experts,
//     intermediate, hidden], unless that is the shape above, are turned and copied;
// of Granite, with S "model.….block_sparse_moe" and T "model.….shared_mlp",
//   S.input_linear.weight and S.output_linear.weight, of these shapes, likewise become
//     S.experts.N.gate_proj.weight, up_proj and down_proj,
//   T.input_linear.weight [2 · intermediate, hidden] becomes T.gate_proj.weight and
//     T.up_proj.weight, and T.output_linear.weight T.down_proj.weight,
//   but of Granite with windows only S.experts.gate_up_proj and S.experts.down_proj.
// Other tensors stay as they are. `config` as ModelFiles::config, of a model with experts. Throws
// Error(kMalformed) for other shapes and types, and for blocks without scales.
void split_experts(const Json& config, NamedArrays& tensors);

// The other way round, of float32 and into the form that experts_form says: in place of the
// experts' own matrices and biases the tensors of floats above. Places whose names are not those
// are left alone.
void join_experts(const Json& config, NamedArrays& tensors);

}  // namespace lumen::io
