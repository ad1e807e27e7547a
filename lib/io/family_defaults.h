// What the configs of single families leave out or call otherwise. For this room only.
#pragma once

#include <string_view>

#include "lib/io/json.h"

namespace lumen::io {

// Renames `from` to `to` unless `to` is there.
void rename_key(Json& object, const char* from, const char* to);
// Sets `key` unless it has a value that is not null.
void set_default(Json& config, const char* key, Json value);

// Gives `config`, whose rotary settings have their classic keys, what the class of transformers for
// `model_type` has where a config leaves it out, and the classic names of what it calls otherwise.
// Throws Error(kMalformed).
void complete_family(std::string_view model_type, Json& config);

}  // namespace lumen::io
