// Methods of str, for find_method (builtins.h).
#pragma once

#include <span>

#include "lib/text/jinja/builtins.h"

namespace lumen::text::jinja {

std::span<const Builtin> string_methods();

}  // namespace lumen::text::jinja
