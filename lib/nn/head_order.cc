#include "lib/nn/head_order.h"

#include <algorithm>

#include "lib/base/limits.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/parameters.h"

namespace lumen::nn {
namespace {

constexpr std::string_view kDeltaNet = ".linear_attn.", kFused = "query_key_value.";

// What is behind ".linear_attn." in a name, or "query_key_value.…"; "" of other tensors.
std::string_view part_of(std::string_view name) {
  if (const size_t at = name.find(kFused); at != name.npos) return name.substr(at);
  const size_t at = name.find(kDeltaNet);
  return at == name.npos ? "" : name.substr(at + kDeltaNet.size());
}

enum class HeadAxis { kNone, kRows, kLastRows, kColumns };

HeadAxis head_axis(std::string_view part) {
  const bool is_first = part.ends_with(".lora_A.weight");  // [rank, in]
  if (part.starts_with("out_proj.")) {
    const bool is_of_outputs =
        part.ends_with(".lora_B.weight") || part.ends_with(".lora_magnitude_vector");
    return is_of_outputs ? HeadAxis::kNone : HeadAxis::kColumns;
  }
  if (part.starts_with("conv1d.")) return HeadAxis::kLastRows;
  if (part.starts_with("in_proj_qkv.")) return is_first ? HeadAxis::kNone : HeadAxis::kLastRows;
  if (part.starts_with("in_proj_") || part.starts_with(kFused)) {
    return is_first ? HeadAxis::kNone : HeadAxis::kRows;
  }
  return part == "A" || part == "A_log" || part == "dt_bias" ? HeadAxis::kRows : HeadAxis::kNone;
}

// Where in the other order a head is: one of `group` in each of `groups`, of which, where there are
// some, the `queries` of all come first.
int64_t tiled_place(int64_t head, int64_t group, int64_t groups, int64_t queries) {
  const int64_t own = head / group, member = head % group, of_queries = queries / groups;
  if (member < of_queries) return own * of_queries + member;
  return queries + (member - of_queries) * groups + own;
}

}  // namespace

bool has_tiled_heads(const io::Json& config) {
  return io::get_bool(config, "linear_heads_tiled", false);
}

bool may_tile_heads(const io::Json& config) {
  return !has_fused_inputs(config) && io::get_string(config, "model_type", "") != "bailing_moe_v2";
}

bool has_grouped_heads(std::string_view name) {
  return head_axis(part_of(name)) != HeadAxis::kNone;
}

Array reorder_heads(const Array& tensor, std::string_view name, const io::Json& config,
                    bool to_tiled) {
  const auto size = [&](const char* key) { return io::get_int(config, key, 1, limits::kDim); };
  const std::string_view part = part_of(name);
  const bool fused = part.starts_with(kFused);
  const int64_t groups = size(fused ? "num_key_value_heads" : "linear_num_key_heads");
  const int64_t queries = fused ? size("num_attention_heads") : 0;
  const int64_t heads = fused ? queries + 2 * groups : size("linear_num_value_heads");
  const int64_t group = heads / groups;
  // What does not fit is named by the model and by Parameters::check.
  if (group == 1 || heads % groups != 0 || tensor.elements() == 0) return tensor;
  const HeadAxis axis = head_axis(part);
  const bool by_columns = axis == HeadAxis::kColumns;
  const int64_t rows = tensor.shape()[0], columns = tensor.elements() / rows;
  const int64_t key_rows =
      axis == HeadAxis::kLastRows ? 2 * groups * size("linear_key_head_dim") : 0;
  const int64_t each = ((by_columns ? columns : rows) - key_rows) / heads;  // of a head
  if (each * heads + key_rows != (by_columns ? columns : rows)) return tensor;
  if (by_columns && each % info(tensor.dtype()).block_elements != 0) {
    return reorder_heads(float32_copy(tensor), name, config, to_tiled);
  }
  Array moved = Array::zeros(tensor.dtype(), tensor.shape());
  const auto row = static_cast<int64_t>(tensor.bytes()) / rows;
  const int64_t piece = by_columns ? row / heads : each * row, first = key_rows * row;
  std::copy_n(tensor.data(), first, moved.mutable_data());
  for (int64_t line = 0; line < (by_columns ? rows : 1); ++line) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t tiled = tiled_place(head, group, groups, queries);
      const int64_t from = to_tiled ? head : tiled, to = to_tiled ? tiled : head;
      const int64_t start = first + line * row;
      std::copy_n(tensor.data() + start + from * piece, piece,
                  moved.mutable_data() + start + to * piece);
    }
  }
  return moved;
}

}  // namespace lumen::nn
