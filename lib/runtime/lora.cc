#include "lib/runtime/lora.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

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
  const double alpha = io::get_number(config, "lora_alpha", 0, 1e9);
  const auto rank = static_cast<double>(options.rank);
  options.scale = alpha / (io::get_bool(config, "use_rslora", false) ? std::sqrt(rank) : rank);
  return options;
}

// Which layers have an addition is told by the tensors, whatever pattern the config names.
void collect_targets(const NamedArrays& tensors, nn::LoraOptions& options) {
  std::vector<std::string>& targets = options.targets;
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& entry : tensors) {
    const std::string& name = entry.first;
    const size_t end = name.rfind(".lora_");
    if (end == std::string::npos) continue;
    const size_t begin = name.rfind('.', end - 1) + 1;
    const std::string target = name.substr(begin, end - begin);
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
      targets.push_back(target);
    }
    if (const size_t at = name.find("layers."); at != std::string::npos) {
      int64_t number = 0;
      std::from_chars(name.data() + at + 7, name.data() + name.size(), number);
      first = std::min(first, number);
    }
  }
  options.first_layer = first == std::numeric_limits<int64_t>::max() ? 0 : first;
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
  for (const io::SafetensorsTensor& tensor : file->tensors) {
    std::string name = tensor.name;
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    adapter.tensors[name] = nn::float32_copy(file->array(tensor));
  }
  collect_targets(adapter.tensors, adapter.options);
  reorder_rotary_rows(adapter.tensors, model_config, true);
  return adapter;
}

void reorder_rotary_rows(NamedArrays& tensors, const io::Json& model_config, bool to_interleaved) {
  if (!io::get_bool(model_config, "rope_interleaved", false)) return;
  const int64_t head_dim = io::get_int(model_config, "head_dim", 2, limits::kDim);
  for (auto& [name, array] : tensors) {
    const bool rotated = name.ends_with("q_proj.lora_B.weight") ||
                         name.ends_with("k_proj.lora_B.weight") ||
                         name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
    if (!rotated) continue;
    // A shape that does not fit is named by Parameters::check.
    if (array.shape()[0] % head_dim == 0) {
      array = nn::reorder_rotary_rows(nn::float32_copy(array), head_dim, to_interleaved);
    }
  }
}

}  // namespace lumen::runtime
