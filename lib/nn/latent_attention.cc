#include "lib/nn/latent_attention.h"

#include <algorithm>

#include "lib/nn/decoder.h"
#include "lib/nn/head_products.h"
#include "lib/nn/training_scope.h"

namespace lumen::nn {
namespace {

Tensor turned(const Tensor& matrices) {
  return graph::permute(matrices, {0, 2, 1});
}

// x, computed now if nothing of what it is made of can change.
Tensor computed_once(const Tensor& x, std::initializer_list<Tensor> of) {
  const bool fixed =
      std::ranges::all_of(of, [](const Tensor& part) { return graph::is_constant(*part.node()); });
  return fixed ? graph::constant(x.eval()) : x;
}

// A weight of which a part is multiplied by itself, its addition worked in: float32, or what is
// stored in fewer bits, in 16.
Tensor whole(const Tensor& weight, const std::optional<LowRank>& addition) {
  const graph::AutocastScope precision(DType::kF32);
  const DType type = is_quantized(weight.dtype()) ? DType::kF16
                     : addition                   ? DType::kF32
                                                  : weight.dtype();
  const Tensor sum = graph::contiguous(worked_in(weight, addition), type);
  return addition ? computed_once(sum, {weight, addition->a, addition->b})
                  : computed_once(sum, {weight});
}

Tensor with_columns(const Tensor& x, int64_t columns) {
  const int64_t missing = columns - x.dim(-1);
  return missing > 0 ? graph::pad(x, x.shape().rank() - 1, 0, missing) : x;
}

// What rotates is first; nothing does without a rotation (Kimi Linear).
Tensor rotated(const Tensor& x, const Tensor& table, const Pass& pass) {
  return pass.rope == nullptr ? x : ops::rope(x, table, pass.rope->interleaved);
}

// The name of key rows with `part` in place of "k_b".
std::string with_part(std::string_view key_rows, std::string_view part) {
  constexpr std::string_view kKeyRows = ".k_b_proj.weight";
  if (!key_rows.ends_with(kKeyRows)) return "";
  return str(key_rows.substr(0, key_rows.size() - kKeyRows.size()), ".", part, "_proj.weight");
}

}  // namespace

LatentAttention::LatentAttention(const Parameters& parameters, const LatentAttentionShape& s)
    : shape_(s),
      q_(parameters / (s.query_rank > 0 ? "q_b_proj" : "q_proj"),
         s.query_rank > 0 ? s.query_rank : s.hidden, s.heads * s.query_dim(), false),
      kv_a_(parameters / "kv_a_proj_with_mqa", s.hidden, s.rank + s.rotary_dim, s.bias),
      kv_norm_(parameters / "kv_a_layernorm", s.rank, s.eps),
      o_proj_(parameters / "o_proj", s.heads * s.value_dim, s.hidden, s.bias) {
  if (s.query_rank > 0) {
    q_a_.emplace(parameters / "q_a_proj", s.hidden, s.query_rank, s.bias);
    q_norm_.emplace(parameters / "q_a_layernorm", s.query_rank, s.eps);
  }
  const int64_t rows = s.key_dim + s.value_dim, all = s.heads * rows;
  const Parameters place = parameters / "kv_b_proj";
  Tensor weight;
  std::optional<LowRank> addition;
  if (!place.has("weight") && parameters.has("k_b_proj.weight")) {
    const Tensor keys = (parameters / "k_b_proj").get("weight", {s.heads, s.rank, s.key_dim});
    const Tensor values = (parameters / "v_b_proj").get("weight", {s.heads, s.value_dim, s.rank});
    const DType type = is_quantized(keys.dtype()) || is_quantized(values.dtype())
                           ? DType::kF16
                           : promote(keys.dtype(), values.dtype());
    const Tensor parts[] = {turned(graph::contiguous(keys, type)), graph::contiguous(values, type)};
    weight = computed_once(graph::reshape(ops::concat(parts, 1), {all, s.rank}), {keys, values});
    addition = place.low_rank(weight);
  } else {
    kv_b_.emplace(place, s.rank, all, false);
    for (const char* part : {"k_b_proj", "v_b_proj"}) parameters.leave_out(part);  // has them, too
    weight = kv_b_->weight;
    addition = kv_b_->addition;
  }
  const Tensor joined = graph::reshape(whole(weight, addition), {s.heads, rows, s.rank});
  keys_ = graph::slice(joined, 1, 0, s.key_dim);
  values_ = graph::slice(joined, 1, s.key_dim, rows);
}

Tensor LatentAttention::queries(const Tensor& x) const {
  const Tensor given = q_a_ ? (*q_norm_)((*q_a_)(x)) : x;
  const int64_t dim = shape_.query_dim();
  const Tensor q = graph::reshape(q_(given), {x.dim(0), x.dim(1), shape_.heads, dim});
  const Tensor parts[] = {graph::slice(q, 3, shape_.key_dim, dim),
                          graph::slice(q, 3, 0, shape_.key_dim)};
  return ops::concat(parts, 3);
}

Tensor LatentAttention::weighed(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Pass& pass) const {
  return ops::attention(q, k, v, pass.query_position(),
                        {.scale = shape_.scale,
                         .causal = true,
                         .segments = pass.segments,
                         .slots = pass.slots(),
                         .dropout = attention_dropout(shape_.dropout),
                         .bf16 = rounds_activations(o_proj_.weight.dtype())});
}

Tensor LatentAttention::attend_to_cache(const Tensor& q, const Tensor& r, const Tensor& latents,
                                        const Pass& pass, int64_t layer) const {
  const int64_t rotary = shape_.rotary_dim, batch = r.dim(0), tokens = r.dim(1);
  const Tensor met[] = {graph::slice(q, 3, 0, rotary),
                        by_heads(graph::slice(q, 3, rotary, shape_.query_dim()), keys_)};
  const Tensor row[] = {r, latents};
  const Tensor rows = graph::reshape(ops::concat(row, 2), {batch, tokens, 1, shape_.cached()});
  const Tensor cache = ops::kv_append(pass.cache->k(layer), rotated(rows, pass.rope_table, pass),
                                      pass.position, pass.slots());
  const Tensor out =
      weighed(rotated(ops::concat(met, 3), pass.query_table, pass), cache, cache, pass);
  return by_heads(graph::slice(out, 3, rotary, shape_.cached()), turned(values_));
}

Tensor LatentAttention::attend(const Tensor& q, const Tensor& r, const Tensor& latents,
                               const Pass& pass) const {
  const int64_t rotary = shape_.rotary_dim, batch = r.dim(0), tokens = r.dim(1);
  const int64_t key = shape_.key_dim, value = shape_.value_dim;
  Tensor k, v;
  if (kv_b_) {
    const Tensor both =
        graph::reshape((*kv_b_)(latents), {batch, tokens, shape_.heads, key + value});
    k = graph::slice(both, 3, 0, key);
    v = graph::slice(both, 3, key, key + value);
  } else {
    const Tensor of_all = graph::reshape(latents, {batch, tokens, 1, shape_.rank});
    k = by_heads(of_all, turned(keys_));
    v = by_heads(of_all, turned(values_));
  }
  const Tensor shared =
      rotated(graph::reshape(r, {batch, tokens, 1, rotary}), pass.rope_table, pass);
  const Tensor whole_key[] = {graph::expand(shared, {batch, tokens, shape_.heads, rotary}), k};
  // Attention is of keys and values of one size.
  const int64_t dim = std::max(shape_.query_dim(), value);
  const auto in_heads = [&](const Tensor& x) {
    return graph::permute(with_columns(x, dim), {0, 2, 1, 3});
  };
  const Tensor q_rows = with_columns(rotated(q, pass.query_table, pass), dim);
  const Tensor out = weighed(q_rows, in_heads(ops::concat(whole_key, 3)), in_heads(v), pass);
  return graph::slice(out, 3, 0, value);
}

Tensor LatentAttention::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const int64_t batch = x.dim(0), asked = pass.going_on(x);
  const Tensor kv = kv_a_(x);
  const Tensor latents = kv_norm_(graph::slice(kv, 2, 0, shape_.rank));
  const Tensor r = graph::slice(kv, 2, shape_.rank, shape_.rank + shape_.rotary_dim);
  Tensor q = queries(last_tokens(x, asked));
  if (pass.query_scale.defined()) {
    q = ops::mul(q, graph::reshape(pass.query_scale, {-1, asked, 1, 1}));
  }
  const Tensor out =
      pass.cache ? attend_to_cache(q, r, latents, pass, layer) : attend(q, r, latents, pass);
  return o_proj_(graph::reshape(out, {batch, asked, shape_.heads * shape_.value_dim}));
}

std::string joined_rows_name(std::string_view key_rows) {
  return with_part(key_rows, "kv_b");
}

std::string value_rows_name(std::string_view key_rows) {
  return with_part(key_rows, "v_b");
}

Array joined_rows(const Array& key_rows, const Array& value_rows) {
  const Tensor keys = turned(graph::constant(float32_copy(key_rows)));
  const Tensor parts[] = {keys, graph::constant(float32_copy(value_rows))};
  return graph::reshape(ops::concat(parts, 1), {-1, keys.dim(2)}).eval();
}

void join_latent_rows(NamedArrays& tensors) {
  NamedArrays joined;
  for (const auto& [name, array] : tensors) {
    const auto values = tensors.find(value_rows_name(name));
    if (values == tensors.end()) continue;
    const std::string whole = joined_rows_name(name);
    if (!tensors.contains(whole)) joined.emplace(whole, joined_rows(array, values->second));
  }
  std::erase_if(tensors, [](const auto& tensor) {
    return tensor.first.ends_with(".k_b_proj.weight") || tensor.first.ends_with(".v_b_proj.weight");
  });
  tensors.merge(joined);
}

}  // namespace lumen::nn
