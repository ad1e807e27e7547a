#include "lib/runtime/mlx_adapter.h"

#include <string>
#include <string_view>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/nn/conv1d.h"

namespace lumen::runtime {
namespace {

constexpr const char* kKind = "fine_tune_type";
constexpr std::string_view kMlxExperts = ".switch_mlp.";
constexpr const char* kFuse = "; work it into the model with mlx_lm.fuse, and open that";

Array transposed(const std::string& name, const Array& factor) {
  if (factor.shape().rank() != 2 || !is_float(factor.dtype())) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(name), " is of ", lumen::name(factor.dtype()),
         " ", to_string(factor.shape()), ", expected a matrix of floats");
  }
  return nn::turned(factor);
}

}  // namespace

bool is_mlx_adapter(const io::Json& config) {
  return io::find(config, kKind) != nullptr;
}

io::Json peft_config(const io::Json& mlx_config) {
  const std::string kind = io::get_string(mlx_config, kKind);
  if (kind != "lora" && kind != "dora") {
    fail(ErrorKind::kUnsupported, kKind, " is ", quoted(kind), ", known: lora, dora", kFuse);
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

NamedArrays peft_tensors(const NamedArrays& mlx_tensors) {
  constexpr std::string_view kA = ".lora_a", kB = ".lora_b", kMagnitude = ".m";
  NamedArrays tensors;
  for (const auto& [name, array] : mlx_tensors) {
    if (name.find(kMlxExperts) != name.npos) {
      fail(ErrorKind::kUnsupported, quoted(name), ": an addition to experts", kFuse);
    }
    const auto layer = [&, n = name](std::string_view end) {
      return n.substr(0, n.size() - end.size());
    };
    if (name.ends_with(kA)) {
      tensors[layer(kA) + ".lora_A.weight"] = transposed(name, array);
    } else if (name.ends_with(kB)) {
      tensors[layer(kB) + ".lora_B.weight"] = transposed(name, array);
    } else if (name.ends_with(kMagnitude)) {
      tensors[layer(kMagnitude) + ".lora_magnitude_vector"] = array;
    } else {
      fail(ErrorKind::kUnsupported, quoted(name), " is no part of an addition", kFuse);
    }
  }
  return tensors;
}

}  // namespace lumen::runtime
