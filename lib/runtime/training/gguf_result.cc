#include "lib/runtime/training/gguf_result.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/io/write_gguf.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/training/run_directory.h"

namespace lumen::runtime {
bool wants_gguf(const Recipe& recipe) {
  const std::vector<std::string>& formats = recipe.exported.format;
  return std::find(formats.begin(), formats.end(), "gguf") != formats.end();
}

std::string gguf_name(const Recipe& recipe) {
  return makes_adapter(recipe) ? kGgufAdapter : kGgufModel;
}

void check_gguf_result(const Recipe& recipe) {
  if (!wants_gguf(recipe) || !recipe.model.path) return;
  const io::ModelFiles base = open_known_model(find_base_model(recipe));
  try {
    io::gguf_architecture(base.config);
  } catch (const Error& error) {
    fail_at_key(recipe, "export.format", error.what());
  }
}

int write_gguf_result(const Recipe& recipe, const std::string& directory,
                      const TrainOptions& options) {
  ConvertOptions conversion;
  conversion.model = directory;
  conversion.output = str(directory, "/", gguf_name(recipe));
  conversion.type = *recipe.exported.quant;
  conversion.force = true;  // what an earlier run left
  conversion.threads = options.threads;
  if (makes_adapter(recipe)) conversion.base = find_base_model(recipe);
  return with_context(str("the result is in ", io::place_of(directory), ", but not as GGUF"),
                      [&] { return convert(conversion); });
}

}  // namespace lumen::runtime
