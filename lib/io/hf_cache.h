// Finding a model by name: a path, or org/name in the Hugging Face cache.
#pragma once

#include <string>
#include <vector>

namespace lumen::io {

// Directories searched for cached models, in order: $HF_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; unset variables are left out.
std::vector<std::string> hf_cache_directories();

// The path of model `name`: `name` itself if such a file or directory exists, otherwise, if it has
// the form "org/name" or "org/name@revision", the snapshot directory of that revision (default
// "main") in the cache. Only reads. Throws Error(kMissing) that lists where it looked.
std::string find_model(const std::string& name);

}  // namespace lumen::io
