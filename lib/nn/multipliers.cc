#include "lib/nn/multipliers.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/nn/parameters.h"

namespace lumen::nn {

double multiplier(const io::Json& config, const char* key) {
  return io::get_number(config, key, -1e9, 1e9, 1);
}

std::vector<double> multipliers(const io::Json& config, const char* key, size_t count) {
  std::vector<double> all(count, 1);
  const io::Json* found = io::find_value(config, key);
  if (found == nullptr) return all;
  bool fits = found->is_array() && found->size() == count;
  for (size_t i = 0; fits && i < count; ++i) {
    fits = (*found)[i].is_number();
    if (fits) all[i] = (*found)[i].get<double>();
  }
  if (fits) return all;
  fail(ErrorKind::kMalformed, key, ": found ", io::describe(found), ", expected an array of ",
       count, " numbers");
}

namespace {

// Of the rows z, x, B, C and dt.
std::vector<double> of_in_proj(const io::Json& config, double whole) {
  const auto size = [&](const char* key) { return io::get_int(config, key, 1, limits::kDim); };
  const int64_t heads = size("mamba_n_heads"), inner = heads * size("mamba_d_head");
  const int64_t state = size("mamba_n_groups") * size("mamba_d_state");
  const int64_t widths[] = {inner, inner, state, state, heads};
  const std::vector<double> parts = multipliers(config, "ssm_multipliers", std::size(widths));
  std::vector<double> rows;
  for (size_t i = 0; i < std::size(widths); ++i) {
    rows.insert(rows.end(), static_cast<size_t>(widths[i]), whole * parts[i]);
  }
  return rows;
}

// A bias is not of what a layer is given.
std::vector<double> of_layer(const io::Json& config, std::string_view layer, bool is_bias) {
  const double attention_in = is_bias ? 1 : multiplier(config, "attention_in_multiplier");
  if (layer == "embed_tokens") return {multiplier(config, "embedding_multiplier")};
  if (layer == "lm_head") return {multiplier(config, "lm_head_multiplier")};
  if (layer == "q_proj" || layer == "v_proj") return {attention_in};
  if (layer == "k_proj") return {attention_in * multiplier(config, "key_multiplier")};
  if (layer == "o_proj") return {multiplier(config, "attention_out_multiplier")};
  if (layer == "gate_proj") return {multipliers(config, "mlp_multipliers", 2)[0]};
  if (layer == "down_proj") return {multipliers(config, "mlp_multipliers", 2)[1]};
  if (layer == "out_proj") return {multiplier(config, "ssm_out_multiplier")};
  if (layer == "in_proj") {
    return of_in_proj(config, is_bias ? 1 : multiplier(config, "ssm_in_multiplier"));
  }
  return {};
}

}  // namespace

bool has_multiplied_weights(const io::Json& config) {
  return io::get_bool(config, "multipliers_in_weights", false);
}

std::vector<double> row_multipliers(const io::Json& config, std::string_view name) {
  if (io::get_string(config, "model_type", "") != "falcon_h1") return {};
  const bool is_bias = name.ends_with(".bias");
  for (const std::string_view end :
       {".lora_B.weight", ".lora_magnitude_vector", ".weight", ".bias"}) {
    if (!name.ends_with(end)) continue;
    name.remove_suffix(end.size());
    break;
  }
  std::vector<double> rows = of_layer(config, name.substr(name.rfind('.') + 1), is_bias);
  const bool same = std::ranges::all_of(rows, [](double factor) { return factor == 1; });
  return same ? std::vector<double>() : rows;
}

Array with_multipliers(const Array& array, const std::vector<double>& factors, bool divide) {
  // What does not fit is told of with the shape that it should have.
  const auto count = static_cast<int64_t>(factors.size());
  if (count == 0 || array.elements() % count != 0) return array;
  Array result = float32_copy(array);
  const auto values = result.as_mutable<float>();
  const size_t columns = values.size() / factors.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const double factor = factors[i / columns];
    values[i] = static_cast<float>(divide ? values[i] / factor : values[i] * factor);
  }
  return result;
}

}  // namespace lumen::nn
