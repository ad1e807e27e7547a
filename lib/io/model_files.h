// One view of a language model's files, whatever their format.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/io/gguf.h"
#include "lib/io/json.h"
#include "lib/tensor/array.h"

namespace lumen::io {

enum class ModelFormat { kGguf, kHuggingFace, kLlama2c };
// "GGUF", "Hugging Face", "llama2.c".
std::string_view name(ModelFormat format);

// A token that ends an answer, and the file and key that said so.
struct EndToken {
  int32_t id = 0;
  std::string source;  // "generation_config.json eos_token_id", "tokenizer.ggml.eot_token_id"
};

using ChatTemplates = std::map<std::string, std::string>;  // Jinja sources by name

// A model in the vocabulary of Hugging Face, from any format. Nothing is computed and no tensor
// data are read: opening costs the headers only (but layers that other programs packed are
// unpacked, packed_weights.h, and experts in one tensor taken apart, fused_experts.h, and where an
// output layer is there that the config says is the embedding, the two are compared). Whether the
// tensors fit the config is for the model code to check.
struct ModelFiles {
  std::string path;  // as opened: a file or a directory; of a PyTorch checkpoint its directory
  ModelFormat format = ModelFormat::kHuggingFace;

  // config.json with its classic keys. Always there and checked for type and range (limits.h):
  //   model_type ("llama", "qwen2", "qwen3", … as the file says; Mistral models from GGUF:
  //     "mistral" if they have a window, else "llama"), hidden_size, intermediate_size,
  //   num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, rms_norm_eps (of
  //   layer norms too, which have norm_epsilon_key() besides), rope_theta, vocab_size,
  //   max_position_embeddings, tie_word_embeddings (as the tensors tell for GGUF and llama2.c;
  //   never true beside a lm_head.weight that differs from the embedding).
  // There or absent/null: rope_scaling {rope_type: "linear" | "llama3" | "yarn" | …, factor, …},
  //   sliding_window (absent when the file switches it off), attention_bias, and all other keys.
  // Translated here: newer files' rope_parameters → rope_theta and rope_scaling, dtype →
  //   torch_dtype, rope_scaling.type → rope_type, yarn's mscale and mscale_all_dim →
  //   attention_factor, longrope's lengths → its original_max_position_embeddings and
  //   attention_factor; a text_config inside → the config.
  // Added by Lumen: "rope_interleaved": true if the q and k rows are in the order of interleaved
  //   rotary pairs (GGUF architectures llama, granite, granitemoe, smollm3; llama2.c; models that
  //   rotates_pairs() names, in any format), else false;
  //   "rms_norm_offset" of Gemma, Nemotron and those with Gated DeltaNet: 1 if the weights of norms
  //   are stored less 1, as in Hugging Face, 0 if they are not, as in GGUF;
  //   "linear_heads_tiled" and "linear_inputs_apart" of Qwen3.5, Qwen3-Next, Granite 4.0, GPT-NeoX
  //   and Falcon in GGUF: as of nn::has_tiled_heads and nn::has_inputs_apart;
  //   "conv1d_out_in" of GPT-2 in GGUF, true: see nn/conv1d.h;
  //   "mrope_section" [time, height, width]: how many pairs of a head rotate by which position of
  //   what Qwen-VL and Qwen3.5 see, those of text being equal; "n_deepstack_layers" of Qwen3-VL: to
  //   how many layers it adds something there;
  //   "intermediate_sizes" of Gemma 3n whose layers differ in width: what it calls
  //   intermediate_size, which is the first of them here;
  //   "language_model_part", true: additions have names in a model that reads more than text.
  Json config;
  // generation_config.json, or what general.sampling.* of a GGUF file says, or an empty object.
  Json generation_config;

  // Hugging Face names, e.g. model.embed_tokens.weight, model.layers.0.self_attn.q_proj.weight,
  // model.layers.0.self_attn.q_norm.weight, model.norm.weight, lm_head.weight; row-major [out, in],
  // but for those of GPT-2's layers in directories (nn/conv1d.h); mapped. GGUF's
  // "rope_freqs.weight" and "rope_factors_{short,long}.weight" (divisors of the rotary frequencies,
  // [head_dim / 2]) keep their names, as do tensors without a Hugging Face counterpart. Of models
  // that read more than text only the language model's are there.
  std::map<std::string, Array> tensors;

  std::shared_ptr<const GgufFile> gguf;  // format kGguf: metadata with the tokenizer

  // tokenizer.json, tokenizer.model, vocab.json (with merges.txt beside it) or vocab.txt of the
  // directory, in this order; "" if there is none or it is inside the GGUF file.
  std::string tokenizer_file;
  Json tokenizer_config;  // tokenizer_config.json, or an empty object
  // Jinja sources by name; "default" is the one to use unless told otherwise. From
  // chat_template.jinja, else tokenizer_config.json, else GGUF tokenizer.chat_template[.name].
  ChatTemplates chat_templates;
  // End tokens without duplicates: generation_config.json's, else config.json's; GGUF's eos, eot
  // and eom. Ids are ≥ 0; whether they are below the vocabulary's size is checked by the tokenizer.
  std::vector<EndToken> end_tokens;

  uint64_t file_bytes = 0;  // of all weight files
};

// What longrope multiplies cos and sin by unless its attention_factor says otherwise, for contexts
// `times` as long as the original length: √(1 + ln times / ln original), at least 1 (Ding et al.
// 2024).
double longrope_attention(int64_t original, double times);

// The base of the rotation of `dim` numbers: rope_theta, or, with an "alpha" beside the rope_type
// "dynamic" (Hunyuan: NTK-aware scaling with a fixed factor), rope_theta · alpha^(dim / (dim − 2)).
// Throws Error(kMalformed) where there is no such number from 0.001 to 1e12.
double rope_base(const Json& config, int64_t dim);

// Whether the q and k rows of models of this model_type are in the order of interleaved rotary
// pairs in every format (GLM-4, ERNIE 4.5, Cohere, Llama 4).
bool rotates_pairs(std::string_view model_type);

// What a config.json of this model_type calls the number that norms add to variances:
// "rms_norm_eps" if they are of RMS.
std::string norm_epsilon_key(std::string_view model_type);

// Gives the keys of such a config the names that config.json has for them, where those are others
// than the classic ones (GPT-2), and takes out those that it does not know.
void restore_own_keys(Json& config);
// Takes out the keys that Lumen adds (ModelFiles::config), of which Hugging Face has none.
void erase_lumen_keys(Json& config);

// What the vocabulary of a model's directory may be called, the first that is there being it.
inline constexpr std::string_view kVocabularyFiles[] = {"tokenizer.json", "tokenizer.model",
                                                        "vocab.json", "vocab.txt"};
// Its path; "" if there is none.
std::string find_tokenizer(const std::string& directory);

// Whether a config.json is that of a model that reads more than text: with a text_config, or of
// Qwen2-VL or Qwen2.5-VL.
bool reads_more_than_text(const Json& config);
// The config of the language model in that of a model that reads more than text (text_config); of
// any other model the same, without the keys that Lumen adds. kimi_k2 is called deepseek_v3, which
// it is another name of, and internlm2 llama (internlm2.h).
Json language_model_config(Json config);
// What is in a config.json, with the classic keys that ModelFiles::config promises. `has_head`:
// whether there is a tensor lm_head.weight. Throws Error(kMalformed).
Json classic_config(Json config, bool has_head);

// The model that the adapter_config.json of a LoRA adapter's directory says it was trained on; ""
// if it does not.
std::string base_of_adapter(const std::string& directory);
// The file with its tensors: PEFT's safetensors, or else a PyTorch file, or mlx-lm's. If none is
// there the first.
std::string adapter_weights(const std::string& directory);

// The chat templates of a model's or an adapter's directory, or of a GGUF file; empty if it has
// none. Throws Error(kMalformed) for a broken tokenizer_config.json, and as read_gguf.
ChatTemplates read_chat_templates(const std::string& path);

// The GGUF file of a directory that has one, or the first of one split model; "" otherwise. Throws
// Error(kMissing) if the directory cannot be read.
std::string only_gguf(const std::string& directory);

// Opens a GGUF file (any part of a split one), a Hugging Face directory (config.json and weights as
// safetensors, or else as PyTorch checkpoints: pytorch_model.bin, its shards, or the only .pth or
// .pt), a directory with a single GGUF file, a PyTorch checkpoint that has a config.json beside it,
// or a llama2.c .bin. The format of a file is told by its content, never by its name.
//
// Throws Error: kMissing, kMalformed as the readers; kUnsupported for an unknown architecture of a
// GGUF file (naming it and the supported ones), a tensor type Lumen does not have, or any other
// recognised but unsupported content. `gguf`: read_if_gguf(path), if that is known already.
ModelFiles open_model(const std::string& path, std::shared_ptr<const GgufFile> gguf = nullptr);

}  // namespace lumen::io
