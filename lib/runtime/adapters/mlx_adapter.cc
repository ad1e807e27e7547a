#include "lib/runtime/adapters/mlx_adapter.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/layer_windows.h"
#include "lib/io/write_gguf.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/latent_attention.h"
#include "lib/runtime/adapters/adapter_names.h"
#include "lib/runtime/adapters/stored_layout.h"

namespace lumen::runtime {
namespace {

constexpr const char *kKind = "fine_tune_type", *kWhole = "full";
constexpr std::string_view kA = ".lora_a", kB = ".lora_b", kOwnMagnitude = ".m";
constexpr const char* kFuse = "; work it into the model with mlx_lm.fuse, and open that";

// What files call the tensor `name` of a module: of experts with "*" as their number.
std::string name_in_files(const io::Json& model_config, const std::string& name) {
  constexpr std::pair<std::string_view, size_t> kMatrices[] = {
      {"gate_proj", 0}, {"up_proj", 1}, {"fc1", 1}, {"down_proj", 2}, {"fc2", 2}};
  constexpr std::string_view kBlocks[] = {".switch_mlp.", ".experts.switch_glu.", ".experts."};
  const std::vector<std::string> own = expert_matrices(model_config);
  for (const std::string_view block : kBlocks) {
    const size_t at = name.find(block);
    if (at == name.npos) continue;
    const std::string_view layer = std::string_view(name).substr(0, at);
    const std::string_view part = std::string_view(name).substr(at + block.size());
    const size_t point = std::min(part.find('.'), part.size());
    // A bias is one for all experts, too.
    const char* const number = part.substr(point) == ".bias" ? "" : "*.";
    for (const auto& [matrix, index] : kMatrices) {
      if (part.substr(0, point) != matrix) continue;
      return str(layer, ".experts.", number, own[index], part.substr(point));
    }
  }
  if (!io::get_string(model_config, "model_type", "").starts_with("lfm2")) return name;
  std::string dense = name;
  for (const auto& [matrix, index] : kMatrices) {
    constexpr const char* kNames[] = {"w1", "w3", "w2"};
    dense = renamed_part(std::move(dense), str(".feed_forward.", matrix, "."),
                         str(".feed_forward.", kNames[index], "."));
  }
  return dense;
}

void require_floats(const std::string& name, const Array& array, bool fits, const char* expected) {
  if (fits && is_float(array.dtype())) return;
  fail(ErrorKind::kMalformed, "tensor ", quoted(name), " is of ", lumen::name(array.dtype()), " ",
       to_string(array.shape()), ", expected ", expected, " of floats");
}

// A factor as PEFT has it, or of so many experts as it is. Of those older versions have lora_a as
// [experts · rank, in].
Array factor_in_peft(const std::string& name, const Array& factor, std::optional<int64_t> experts) {
  const Shape& shape = factor.shape();
  const bool is_flat = name.ends_with(kA) && experts.value_or(0) > 0 && shape.rank() == 2 &&
                       shape[0] % *experts == 0;
  require_floats(name, factor, shape.rank() == (experts ? 3 : 2) || is_flat,
                 experts ? "[experts, rank, in] or [experts, out, rank]" : "a matrix");
  if (is_flat) return factor.reshaped({*experts, shape[0] / *experts, shape[1]});
  return experts ? factor : nn::turned(factor);
}

// Whether weights of this norm are stored less 1 in files, and whole there.
bool is_whole_norm(const io::Json& model_config, std::string_view name) {
  const std::string type = io::get_string(model_config, "model_type", "");
  if (!type.starts_with("qwen3_next") && !type.starts_with("qwen3_5")) return false;
  return name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight");
}

// Weights that were trained as they are in files.
NamedArrays whole_tensors(const io::Json& model_config, const NamedArrays& mlx_tensors) {
  NamedArrays tensors;
  for (const auto& [name, array] : mlx_tensors) {
    std::string own = name_in_files(model_config, name);
    own = renamed_part(std::move(own), ".embed_q.weight", ".k_b_proj.weight");
    own = renamed_part(std::move(own), ".unembed_out.weight", ".v_b_proj.weight");
    const Shape& shape = array.shape();
    const bool of_experts = io::is_stack(own);
    require_floats(name, array, !of_experts || shape.rank() == 3,
                   of_experts ? "[experts, out, in]" : "a tensor");
    if (of_experts) {
      for (int64_t e = 0; e < shape[0]; ++e) tensors[io::name_in_stack(own, e)] = array.part(e);
    } else if (shape.rank() == 3 && shape[2] == 1) {  // the taps of a convolution
      tensors[own] = array.reshaped({shape[0], 1, shape[1]});
    } else {
      tensors[own] = is_whole_norm(model_config, own) ? shifted(array, -1) : array;
    }
  }
  nn::join_latent_rows(tensors);
  return tensors;
}

}  // namespace

bool is_mlx_adapter(const io::Json& config) {
  return io::find(config, kKind) != nullptr;
}

io::Json peft_config(const io::Json& mlx_config) {
  const std::string kind = io::get_string(mlx_config, kKind);
  if (kind == kWhole) return {{"peft_type", "LORA"}, {"r", 1}, {"lora_alpha", 1}};
  if (kind != "lora" && kind != "dora") {
    fail(ErrorKind::kUnsupported, kKind, " is ", quoted(kind), ", known: lora, dora, full", kFuse);
  }
  const io::Json* parameters = io::find(mlx_config, "lora_parameters");
  if (parameters == nullptr || !parameters->is_object()) {
    fail(ErrorKind::kMalformed, "lora_parameters is ", io::describe(parameters),
         ", expected an object with \"rank\" and \"scale\"");
  }
  const int64_t rank = io::get_int(*parameters, "rank", 1, limits::kDim);
  const double scale = io::get_number(*parameters, "scale", 0, 1e6);
  return {{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", scale * static_cast<double>(rank)}};
}

NamedArrays peft_tensors(const io::Json& mlx_config, const io::Json& model_config,
                         const NamedArrays& mlx_tensors) {
  if (io::get_string(model_config, "model_type", "") == "falcon_h1") {
    fail(ErrorKind::kUnsupported,
         "an adapter of mlx-lm to a Falcon-H1, of which mlx-lm has the multipliers in its weights",
         kFuse);
  }
  if (io::get_string(mlx_config, kKind) == kWhole) return whole_tensors(model_config, mlx_tensors);
  NamedArrays tensors;
  for (const auto& [name, array] : mlx_tensors) {
    const std::string own = name_in_files(model_config, name);
    const std::optional<int64_t> experts =
        io::is_stack(own) ? std::optional(io::expert_count(model_config)) : std::nullopt;
    const auto layer = [&, &full = own](std::string_view end) {
      return full.substr(0, full.size() - end.size());
    };
    if (name.ends_with(kA)) {
      tensors[layer(kA) + ".lora_A.weight"] = factor_in_peft(name, array, experts);
    } else if (name.ends_with(kB)) {
      tensors[layer(kB) + ".lora_B.weight"] = factor_in_peft(name, array, experts);
    } else if (name.ends_with(kOwnMagnitude)) {
      tensors[layer(kOwnMagnitude) + ".lora_magnitude_vector"] = array;
    } else {
      fail(ErrorKind::kUnsupported, quoted(name), " is no part of an addition", kFuse);
    }
  }
  return tensors;
}

}  // namespace lumen::runtime
