// Finding out what kind of vocabulary a path holds.
#include <utility>

#include "lib/base/error.h"
#include "lib/io/gguf.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/tokenizer.h"
#include "lib/text/tokenizer_json.h"

namespace lumen::text {
namespace {

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

io::Json read_optional(const std::string& path) {
  return io::is_regular_file(path) ? io::read_json(path) : io::Json();
}

TokenizerConfig read_config(const std::string& directory) {
  return {read_optional(directory + "/tokenizer_config.json"),
          read_optional(directory + "/special_tokens_map.json"),
          read_optional(directory + "/added_tokens.json")};
}

std::shared_ptr<const Tokenizer> load_json(const std::string& path) {
  const TokenizerConfig config = read_config(directory_of(path));
  const io::Json json = io::read_json(path);
  return with_context(path, [&] { return parse_tokenizer_json(json, config); });
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  return load_json(path);
}

}  // namespace lumen::text
