// Additions to experts as PEFT has them for transformers 5, where the experts of a layer are one
// parameter for gates and ups, or of experts without gates for ups, and one for downs
// (target_parameters): each with an A [experts · rank, in] and a B [out, rank · experts]. Of two
// targets the first is "experts.base_layer", the other, or a single one, "experts".
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {

class FusedAdditions {
 public:
  FusedAdditions(const io::Json& adapter_config, const io::Json& model_config)
      : adapter_config_(adapter_config), model_config_(model_config) {}

  // Takes the tensor of the file if it is of such an addition and of floats.
  bool take(std::string_view name, const Array& array);
  // Whether any was.
  bool has_any() const { return !layers_.empty(); }

  // Puts additions to each expert's own matrices into `tensors`, and into `paths` what PEFT calls
  // the parameters that they are of. Throws Error: kMalformed (parameters that target_parameters
  // does not name), kMismatch (factors of other shapes).
  void split(NamedArrays& tensors, std::map<std::string, std::string>& paths) const;

 private:
  struct Pair {
    Array a, b;
  };

  struct Layer {
    std::string path;           // in PEFT, "model.layers.0.mlp"
    std::array<Pair, 2> pairs;  // inner, outer
  };

  // One to the parameter of this path, which has these matrices of each expert of the layer `own`.
  void split(const std::string& own, const std::string& path,
             const std::vector<std::string>& matrices, const Pair& pair,
             NamedArrays& tensors) const;

  const io::Json &adapter_config_, &model_config_;
  std::map<std::string, Layer> layers_;  // by their names here
};

// The other way round.
struct FusedParameter {
  std::string path;  // "model.layers.0.mlp.experts.gate_up_proj"
  nn::LoraOptions::Own own;
};
struct FusedExperts {
  NamedArrays tensors;  // without PEFT's prefix
  std::vector<FusedParameter> parameters;
};
// Takes the additions to experts out of `tensors`, unless PEFT knows them by the names of their own
// matrices, as of Mixtral. Those to gates and ups become one (joined_additions.h). Throws Error:
// kUnsupported for additions to some experts of a layer alone, of different ranks, or with
// magnitudes.
FusedExperts fuse_additions(const io::Json& model_config, const nn::LoraOptions& options,
                            NamedArrays& tensors);

// GGUF has them by each matrix of all experts, A [experts, rank, in] and B [experts, out, rank],
// called as an expert's with "*" in place of its number; so has mlx-lm. Brings those in `tensors`
// to each expert's own. Of files with gates and ups in one tensor, "blk.N.ffn_gate_up_exps", B has
// the rows of both, too. Throws Error(kMalformed) for other shapes.
void unstack_additions(const io::Json& model_config, NamedArrays& tensors);
// The other way round, for files of this architecture; gates and ups in one are called as gates.
// `options` get their ranks and scales. Throws as fuse_additions.
void stack_additions(const io::Json& model_config, std::string_view architecture,
                     nn::LoraOptions& options, NamedArrays& tensors);

// Beside the experts of Granite is a layer whose gate and up are one in transformers,
// shared_mlp.input_linear, and its down output_linear: brings additions to it from there to the
// layers here, and the other way round. Does nothing for other models.
void part_shared_layers(const io::Json& model_config, NamedArrays& tensors,
                        nn::LoraOptions& options);
void join_shared_layers(const io::Json& model_config, NamedArrays& tensors,
                        nn::LoraOptions& options);
// What transformers calls the layer of the tensor `name` there; "" of others.
std::string shared_layer_name(const io::Json& model_config, std::string_view name);

}  // namespace lumen::runtime
