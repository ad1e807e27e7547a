// A file with the state of a text that a model has read, so that a later run need not read it
// again.
//
// Layout, little-endian, without gaps:
//   8 bytes    "LUMENKV\n"
//   uint32     version, 1
//   uint32     0
//   uint64     n, the number of tokens
//   uint64     bytes of state per token
//   64 bytes   LanguageModel::fingerprint(): config, weights, type of the KV cache
//   int32[n]   the tokens
//   …          the state, as LanguageModel::save_state gives it
//   64 bytes   SHA-256 of all before, hexadecimal
#pragma once

#include <string>

#include "lib/runtime/generation/generation.h"

namespace lumen::runtime {

// Throws Error(kCannotCreate) if there is a file at `path` that is no prompt cache: it would be
// lost when the cache is saved.
void check_prompt_cache(const std::string& path);

// Gives the generator's model, which has read nothing yet, the state in the file at `path`, as far
// as the context reaches. Returns "" (also if there is no such file), or why the file is of no use
// and what it was found to be: one sentence. Never throws for what the file contains.
std::string load_prompt_cache(const std::string& path, Generator& generator);

// Replaces the file by the state that the generator's model has now; nobody ever sees half of it.
// Does nothing if the model has read nothing or keeps no positions. Throws as io::AtomicFile.
void save_prompt_cache(const std::string& path, Generator& generator);

}  // namespace lumen::runtime
