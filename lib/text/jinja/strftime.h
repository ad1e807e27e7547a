// Dates as text, in the C locale.
#pragma once

#include <string>
#include <string_view>

#include "lib/text/chat_template.h"
#include "lib/text/jinja/heap.h"

namespace lumen::text::jinja {

// datetime.strftime(format) of Python for a time without a zone. Directives C does not know stay
// as they are.
std::string format_time(Heap& heap, std::string_view format, const CivilTime& time);

}  // namespace lumen::text::jinja
