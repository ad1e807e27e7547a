#include "models/mamba2_layers.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"

namespace lumen::models {
namespace {

void set_step_limits(const io::Json& json, nn::Mamba2Shape& shape) {
  const io::Json* limit = io::find_value(json, "time_step_limit");
  if (limit == nullptr) return;
  const bool fits = limit->is_array() && limit->size() == 2 && (*limit)[0].is_number();
  if (fits) {
    const io::Json& most = (*limit)[1];
    const io::Json* special = io::special_number(most);
    const bool endless = most.is_null() || (special != nullptr && *special == "Infinity");
    shape.least_step = (*limit)[0].get<double>();
    if (!endless) shape.most_step = most.is_number() ? most.get<double>() : -1;
  }
  if (fits && shape.least_step >= 0 && shape.least_step <= shape.most_step) return;
  fail(ErrorKind::kMalformed, "time_step_limit: found ", io::describe(limit),
       ", expected two numbers from 0, the second not below the first");
}

}  // namespace

nn::Mamba2Shape mamba2_of(const io::Json& json, const nn::DecoderConfig& config,
                          const Mamba2Keys& keys) {
  const std::string activation = io::get_string(json, keys.activation, "silu");
  if (activation != "silu" && activation != "swish") {
    fail(ErrorKind::kUnsupported, keys.activation, " ", quoted(activation),
         " is not supported in Mamba-2; known: silu, swish");
  }
  const auto size = [&](const char* key, int64_t least, int64_t most) {
    return io::get_int(json, key, least, most);
  };
  nn::Mamba2Shape shape = {.hidden = config.hidden_size,
                           .heads = size(keys.heads, 1, limits::kHeads),
                           .head_dim = size(keys.head_dim, 1, limits::kDim),
                           .groups = size(keys.groups, 1, limits::kHeads),
                           .state = size(keys.state, 1, limits::kDim),
                           .kernel = size(keys.kernel, 2, io::kMostConvTaps),
                           .eps = config.rms_norm_eps,
                           .conv_bias = io::get_bool(json, keys.conv_bias, true)};
  if (shape.heads % shape.groups != 0) {
    fail(ErrorKind::kMalformed, keys.heads, " ", shape.heads, " is not a multiple of ", keys.groups,
         " ", shape.groups);
  }
  set_step_limits(json, shape);
  return shape;
}

}  // namespace lumen::models
