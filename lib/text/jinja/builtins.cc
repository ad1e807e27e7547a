#include "lib/text/jinja/builtins.h"

#include <algorithm>

#include "lib/base/strings.h"

namespace lumen::text::jinja {

const Builtin* find_filter(std::string_view name) {
  for (const std::span<const Builtin> family :
       {text_filters(), sequence_filters(), conversion_filters(), wrapping_filters()}) {
    const auto found = std::find_if(family.begin(), family.end(),
                                    [&](const Builtin& filter) { return filter.name == name; });
    if (found != family.end()) return &*found;
  }
  return nullptr;
}

void parameters(std::string_view function, Arguments& arguments,
                std::span<const std::string_view> names, size_t required, std::span<Value> out) {
  if (arguments.positional.size() > names.size()) {
    refuse(function, " takes at most ", names.size(), " arguments, ", arguments.positional.size(),
           " were given");
  }
  std::move(arguments.positional.begin(), arguments.positional.end(), out.begin());
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      refuse(function, " got an unexpected keyword argument ", lumen::quoted(name));
    }
    Value& slot = out[static_cast<size_t>(found - names.begin())];
    if (slot.given()) refuse(function, " got multiple values for argument ", lumen::quoted(name));
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (!out[i].given()) refuse(function, " misses the argument '", names[i], "'");
  }
}

void no_parameters(std::string_view function, const Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.named.empty()) {
    refuse(function, " takes no arguments");
  }
}

}  // namespace lumen::text::jinja
