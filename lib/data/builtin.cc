#include "lib/data/builtin.h"

#include "lib/base/error.h"

namespace lumen::data {

bool is_builtin(std::string_view path) {
  return path.starts_with("builtin:");
}

std::string builtin_text(std::string_view path) {
  if (path == "builtin:stories") return make_stories();
  if (path == "builtin:names") return make_names();
  if (path == "builtin:chat") return make_chat();
  if (path == "builtin:lumen-tiny") return make_lumen_tiny();
  fail(ErrorKind::kMissing, quoted(path),
       " is not built in; there are builtin:stories, builtin:names, builtin:chat and ",
       "builtin:lumen-tiny");
}

}  // namespace lumen::data
