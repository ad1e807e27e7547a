#include "lib/runtime/lora.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"
#include "lib/nn/rope.h"

namespace lumen::runtime {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

nn::LoraOptions read_options(const io::Json& config) {
  const std::string type = io::get_string(config, "peft_type", "LORA");
  if (type != "LORA") {
    fail(ErrorKind::kUnsupported, "peft_type ", quoted(type), " is not supported; known: LORA");
  }
  if (io::get_bool(config, "use_dora", false)) {
    fail(ErrorKind::kUnsupported, "DoRA adapters are not supported");
  }
  if (io::get_string(config, "bias", "none") != "none") {
    fail(ErrorKind::kUnsupported, "adapters with biases are not supported");
  }
  nn::LoraOptions options;
  options.rank = io::get_int(config, "r", 1, limits::kDim);
  options.scale = nn::lora_scale(io::get_number(config, "lora_alpha", 0, 1e9), options.rank,
                                 io::get_bool(config, "use_rslora", false));
  return options;
}

}  // namespace

LoraAdapter read_adapter(const std::string& directory, const io::Json& model_config) {
  const std::string config_path = directory + "/adapter_config.json";
  if (!io::is_regular_file(config_path)) {
    fail(ErrorKind::kMissing, quoted(directory), ": no adapter_config.json; a LoRA adapter is a ",
         "directory as PEFT and lumen-train write it");
  }
  LoraAdapter adapter;
  const io::Json config = io::read_json(config_path);
  with_context(config_path, [&] { adapter.options = read_options(config); });
  const auto file = io::read_safetensors(directory + "/adapter_model.safetensors");
  for (const auto& [name, array] : file->arrays()) {
    const size_t begin = name.starts_with(kPrefix) ? kPrefix.size() : 0;
    adapter.tensors[name.substr(begin)] = nn::float32_copy(array);
  }
  reorder_rotary_rows(adapter.tensors, model_config, true);
  return adapter;
}

void reorder_rotary_rows(NamedArrays& tensors, const io::Json& model_config, bool to_interleaved) {
  if (!io::get_bool(model_config, "rope_interleaved", false)) return;
  const int64_t head_dim = io::get_int(model_config, "head_dim", 2, limits::kDim);
  for (auto& [name, array] : tensors) {
    // A shape that does not fit is named by Parameters::check.
    if (nn::has_rotary_rows(name) && array.shape()[0] % head_dim == 0) {
      array = nn::reorder_rotary_rows(nn::float32_copy(array), head_dim, to_interleaved);
    }
  }
}

}  // namespace lumen::runtime
