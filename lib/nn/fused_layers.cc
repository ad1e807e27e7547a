#include "lib/nn/fused_layers.h"

#include <algorithm>

#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/layer_windows.h"

namespace lumen::nn {
namespace {

struct FusedLayer {
  std::string_view place, fused, parts[2];
};
constexpr FusedLayer kFusedLayers[] = {
    {".linear_attn.", "in_proj_qkvz.", {"in_proj_qkv.", "in_proj_z."}},
    {".shared_mlp.", "input_linear.", {"gate_linear.", "up_linear."}},
};

// `name` with `to` in place of `from`, where that follows `place`.
std::string with_layer(std::string_view name, std::string_view place, std::string_view from,
                       std::string_view to) {
  const size_t at = name.find(place);
  if (at == name.npos) return "";
  const std::string_view part = name.substr(at + place.size());
  if (!part.starts_with(from)) return "";
  return str(name.substr(0, name.size() - part.size()), to, part.substr(from.size()));
}

bool is_dense_granite(const io::Json& config) {
  return io::get_string(config, "model_type", "") == "granitemoehybrid" &&
         io::expert_count(config) == 0;
}

struct InputSizes {
  int64_t key_heads, key_dim, values;  // values of a key head
};

InputSizes input_sizes(const io::Json& config) {
  const auto size = [&](const char* key) { return io::get_int(config, key, 1, limits::kDim); };
  const int64_t key_heads = size("linear_num_key_heads");
  return {key_heads, size("linear_key_head_dim"),
          size("linear_num_value_heads") / key_heads * size("linear_value_head_dim")};
}

// Calls visit(part, row, fused row, count) for all runs of rows of a part that follow each other in
// the whole layer, too: all of each, or of each key head those of q, k, v and z.
template <typename Visit>
void for_input_rows(const io::Json& config, Visit&& visit) {
  if (is_dense_granite(config)) {
    const int64_t rows = input_rows(config, 0);
    visit(0, 0, 0, rows);
    visit(1, 0, rows, rows);
    return;
  }
  const InputSizes s = input_sizes(config);
  const int64_t keys = s.key_heads * s.key_dim;
  for (int64_t head = 0; head < s.key_heads; ++head) {
    int64_t fused = head * 2 * (s.key_dim + s.values);
    const auto run = [&](int part, int64_t first, int64_t count) {
      visit(part, first + head * count, fused, count);
      fused += count;
    };
    run(0, 0, s.key_dim);
    run(0, keys, s.key_dim);
    run(0, 2 * keys, s.values);
    run(1, 0, s.values);
  }
}

Shape with_rows(const Shape& shape, int64_t rows) {
  Shape result = {rows};
  for (int axis = 1; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
  return result;
}

}  // namespace

bool has_fused_inputs(const io::Json& config) {
  return io::get_string(config, "model_type", "") == "qwen3_next" || is_dense_granite(config);
}

bool has_inputs_apart(const io::Json& config) {
  return has_fused_inputs(config) && io::get_bool(config, "linear_inputs_apart", false);
}

std::string input_part_name(std::string_view fused, int part) {
  for (const FusedLayer& layer : kFusedLayers) {
    std::string name = with_layer(fused, layer.place, layer.fused, layer.parts[part]);
    if (!name.empty()) return name;
  }
  return "";
}

std::string fused_input_name(std::string_view part) {
  for (const FusedLayer& layer : kFusedLayers) {
    for (const std::string_view own : layer.parts) {
      std::string name = with_layer(part, layer.place, own, layer.fused);
      if (!name.empty()) return name;
    }
  }
  return "";
}

int64_t input_rows(const io::Json& config, int part) {
  if (is_dense_granite(config)) {
    return io::get_int(config, "shared_intermediate_size", 1, limits::kDim);
  }
  const InputSizes s = input_sizes(config);
  return s.key_heads * ((part == 0 ? 2 * s.key_dim : 0) + s.values);
}

Array input_part(const Array& fused, const io::Json& config, int part) {
  const int64_t rows = input_rows(config, part),
                bytes = static_cast<int64_t>(fused.bytes()) / fused.shape()[0];
  Array result = Array::zeros(fused.dtype(), with_rows(fused.shape(), rows));
  for_input_rows(config, [&](int of, int64_t row, int64_t from, int64_t count) {
    if (of != part) return;
    std::copy_n(fused.data() + from * bytes, count * bytes, result.mutable_data() + row * bytes);
  });
  return result;
}

Array fused_inputs(const Array& first, const Array& second, const io::Json& config) {
  const int64_t rows = input_rows(config, 0) + input_rows(config, 1);
  const int64_t bytes = static_cast<int64_t>(first.bytes()) / first.shape()[0];
  Array result = Array::zeros(first.dtype(), with_rows(first.shape(), rows));
  for_input_rows(config, [&](int of, int64_t row, int64_t to, int64_t count) {
    const Array& from = of == 0 ? first : second;
    std::copy_n(from.data() + row * bytes, count * bytes, result.mutable_data() + to * bytes);
  });
  return result;
}

}  // namespace lumen::nn
