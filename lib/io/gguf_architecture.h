// The architectures of GGUF that Lumen knows, and what their tensors are called in Hugging Face.
// For this room only.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lumen::io {

struct Renaming {
  std::string_view gguf, hugging_face;
};

// The order of the rows of q and k: a row rotates with the one half a head away, or with the next
// one, of some models in GGUF only; or none rotates.
enum class RotaryRows { kHalves, kPairsInGguf, kPairs, kNone };

// What the keys of an architecture's files tell of its layers.
enum class LayerKeys {
  kAlike,       // all attend, with the same heads, and have the same feed-forward length
  kSome,        // some attend: those with heads of keys
  kSingle,      // a layer attends, or has a feed-forward length, or neither
  kUnlike,      // heads and lengths of layers differ; their family's functions read and write them
  kLatent,      // all have latent attention; key_length and value_length are what caches hold
  kSomeLatent,  // likewise those with heads of keys
  kQueries,     // heads of queries differ, which their family's functions read and write
  kNone,        // none attends
};

struct Architecture {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // of a config.json; Llama and OLMo 2 with windows, Llama with
                                // experts, Granite with one more, DeepSeek-V3 and GLM-4.7-Flash
                                // are called otherwise
  RotaryRows rotary = RotaryRows::kHalves;
  std::span<const Renaming> own_tensors = {};    // of a layer, before those that all have
  std::span<const Renaming> model_tensors = {};  // that are there once, likewise
  std::string_view layers = "model.layers.";     // what names of a layer's tensors begin with
  LayerKeys keys = LayerKeys::kAlike;
  bool has_layer_norms = false;  // instead of norms of RMS
};

// Null if there is none of this name.
const Architecture* architecture_or_null(std::string_view name);
// Throws Error(kUnsupported) naming the supported ones.
const Architecture& find_architecture(std::string_view name);

// Throws Error(kUnsupported) unless files of the architecture may have experts.
void require_experts_known(const Architecture& architecture);

}  // namespace lumen::io
