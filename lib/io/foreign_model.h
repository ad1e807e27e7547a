// What lies where a model should: files of other programs, failed downloads. For this room only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lib/base/error.h"

namespace lumen::io {

// Throws what is wrong with the file at `path`, which could not be opened as a model: if its
// content is known to be of another kind Error(kUnsupported), or kMalformed for a failed download,
// that names it and says what to do; else `otherwise`.
[[noreturn]] void fail_foreign_file(const std::string& path, std::span<const std::byte> content,
                                    const Error& otherwise);

// What weights of other programs the directory has: a clause such as "has tf_model.h5, weights of
// Keras or TensorFlow: …"; "" if none are known by their names. Throws Error as names_in.
std::string foreign_weights(const std::string& directory);

}  // namespace lumen::io
