#include "lib/io/internlm2.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/family_defaults.h"

namespace lumen::io {
namespace {

constexpr std::pair<std::string_view, std::string_view> kParts[] = {
    {"model.tok_embeddings.", "model.embed_tokens."}, {"output.", "lm_head."},
    {".attention.wo.", ".self_attn.o_proj."},         {".attention_norm.", ".input_layernorm."},
    {".ffn_norm.", ".post_attention_layernorm."},     {".feed_forward.w1.", ".mlp.gate_proj."},
    {".feed_forward.w3.", ".mlp.up_proj."},           {".feed_forward.w2.", ".mlp.down_proj."}};
constexpr std::string_view kAll = ".attention.wqkv.", kFactorOfAll = ".lora_A.weight";
constexpr std::array<std::string_view, 3> kEach = {".self_attn.q_proj.", ".self_attn.k_proj.",
                                                   ".self_attn.v_proj."};

// Of `all` [groups · (queries + 2) · …] the rows of the heads from `first` to `end` of each group.
Array heads_of(const Array& all, int64_t groups, int64_t in_group, int64_t first, int64_t end) {
  Shape shape = all.shape();
  shape[0] = all.shape()[0] / in_group * (end - first);
  Array result = Array::zeros(all.dtype(), shape);
  const auto head = static_cast<int64_t>(all.bytes()) / (groups * in_group);
  for (int64_t group = 0; group < groups; ++group) {
    std::copy_n(all.data() + (group * in_group + first) * head, (end - first) * head,
                result.mutable_data() + group * (end - first) * head);
  }
  return result;
}

}  // namespace

bool is_internlm2(const Json& config) {
  const Json* type = find_value(config, "model_type");
  return type != nullptr && *type == "internlm2";
}

Json internlm2_as_llama(Json config) {
  config["model_type"] = "llama";
  config["attention_bias"] = get_bool(config, "bias", true);
  config["architectures"] = {"LlamaForCausalLM"};
  set_default(config, "vocab_size", 103168);
  set_default(config, "hidden_act", "silu");
  set_default(config, "tie_word_embeddings", false);
  for (const char* key : {"bias", "auto_map", "attn_implementation"}) config.erase(key);
  return config;
}

// Those of kParts that do not begin with a dot are at the beginning of a name.
std::vector<std::string> internlm2_names_as_llama(std::string_view name) {
  if (const size_t at = name.find(kAll); at != name.npos) {
    std::vector<std::string> names;
    for (const std::string_view part : kEach) {
      names.push_back(std::string(name).replace(at, kAll.size(), part));
    }
    return names;
  }
  for (const auto& [own, llama] : kParts) {
    const size_t at = name.find(own);
    if (at == name.npos || (own[0] != '.' && at != 0)) continue;
    return {std::string(name).replace(at, own.size(), llama)};
  }
  return {std::string(name)};
}

NamedArrays internlm2_as_llama(const Json& config, NamedArrays tensors) {
  const auto size = [&](const char* key, int64_t most) { return get_int(config, key, 1, most); };
  const int64_t heads = size("num_attention_heads", limits::kHeads);
  const int64_t groups = get_int(config, "num_key_value_heads", 1, limits::kHeads, heads);
  const int64_t queries = heads / groups, in_group = queries + 2;
  NamedArrays result;
  const auto add = [&](std::string name, Array array) {
    const auto [at, is_new] = result.emplace(std::move(name), std::move(array));
    if (!is_new) fail(ErrorKind::kMalformed, "tensor ", quoted(at->first), " is there twice");
  };
  for (auto& [name, array] : tensors) {
    const std::vector<std::string> names = internlm2_names_as_llama(name);
    if (names.size() == 1 || name.ends_with(kFactorOfAll)) {
      for (const std::string& own : names) add(own, array);
      continue;
    }
    const int64_t rows = array.shape().rank() == 0 ? 0 : array.shape()[0];
    if (heads % groups != 0 || rows == 0 || rows % (groups * in_group) != 0) {
      fail(ErrorKind::kMalformed, "tensor ", quoted(name), " has shape ", to_string(array.shape()),
           ", expected the rows of ", heads, " queries and of ", groups, " keys and values");
    }
    const std::pair<int64_t, int64_t> parts[] = {
        {0, queries}, {queries, queries + 1}, {queries + 1, in_group}};
    for (size_t i = 0; i < names.size(); ++i) {
      add(names[i], heads_of(array, groups, in_group, parts[i].first, parts[i].second));
    }
  }
  return result;
}

}  // namespace lumen::io
