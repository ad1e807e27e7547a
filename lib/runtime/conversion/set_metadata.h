// Metadata of GGUF files that the user sets: lumen-convert --set.
#pragma once

#include <string>
#include <vector>

#include "lib/io/write_gguf.h"

namespace lumen::runtime {

// Sets "KEY=VALUE" of each of `settings` in `writer`, which has all other metadata. A value has the
// type that the key has already; of a new key it is true or false, a whole number, a number or a
// text. Throws Error(kUsage) naming the key: for a setting of another form, a value of another
// type, a list, and a key that must match the tensors or the vocabulary, or that the writer
// decides.
void set_metadata(const std::vector<std::string>& settings, io::GgufWriter& writer);

}  // namespace lumen::runtime
