// lumen-convert: what comes out computes and talks as what went in.
#include "lib/runtime/convert.h"

#include <algorithm>
#include <cmath>

#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/gguf.h"
#include "lib/io/layer_windows.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_gguf.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/runtime/generation/sampling_options.h"
#include "lib/runtime/tool/tool_process.h"
#include "lib/text/train/train_tokenizer.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::relative_error;

void check_same_tensors(const NamedArrays& got, const NamedArrays& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, array] : want) {
    INFO(name);
    REQUIRE(got.contains(name));
    const Array a = nn::float32_copy(got.at(name)), b = nn::float32_copy(array);
    REQUIRE(a.shape() == b.shape());
    if (name.ends_with(".A_log")) {  // of which GGUF has −e^x
      for (int64_t i = 0; i < a.elements(); ++i) {
        CHECK(a.as<float>()[i] == Approx(b.as<float>()[i]).margin(1e-6));
      }
      continue;
    }
    CHECK(std::equal(a.data(), a.data() + a.bytes(), b.data()));
  }
}

// To GGUF, and from there back to a directory.
void check_same(const std::string& directory) {
  const std::string gguf = converted(directory), again = converted_directory(gguf, "f32");
  const std::vector<float> want = logits(directory);
  CHECK(relative_error(logits(gguf), want) < 1e-5);
  CHECK(relative_error(logits(again), want) < 1e-5);
  const io::ModelFiles first = io::open_model(directory), last = io::open_model(again);
  NamedArrays tensors = first.tensors;
  if (io::get_bool(first.config, "tie_word_embeddings")) tensors.erase("lm_head.weight");
  check_same_tensors(last.tensors, tensors);
  for (const auto& [key, value] : last.config.items()) {
    // What transformers do not read where there is no window.
    if (key == "max_window_layers" && !io::find_value(last.config, "sliding_window")) continue;
    if (!first.config.contains(key) || key.ends_with("_token_id")) continue;
    INFO(key);
    if (key == "rope_scaling" && value.is_object()) {
      for (const auto& [part, number] : value.items()) {
        if (!first.config[key].contains(part)) continue;
        const io::Json& before = first.config[key][part];
        const bool is_list = number.is_array();
        REQUIRE((number == before || number.size() == before.size()));
        for (size_t i = 0; number != before && i < number.size(); ++i) {
          // Numbers of GGUF have 24 bits.
          CHECK((is_list ? number[i] : number).get<double>() ==
                Approx((is_list ? before[i] : before).get<double>()).epsilon(1e-6));
        }
      }
    } else if (key == "model_type" &&
               (first.config[key] == "internlm3" || first.config[key] == "iquestcoder")) {
      CHECK(value == "llama");
    } else if (key == "model_type" && first.config[key] == "ministral") {
      CHECK(value == "mistral");
    } else if (key == "model_type" && first.config[key] == "solar_open") {
      CHECK(value == "glm4_moe");
    } else if (key == "model_type" && value == "deepseek_v3") {
      CHECK(io::gguf_architecture(first.config) == "deepseek2");  // GLM-4.7-Flash's is the same
    } else if (key == "model_type" &&
               io::find_value(first.config, key)->get<std::string>().find("_vl_") !=
                   std::string::npos) {
      CHECK(contains(value.get<std::string>(), "qwen"));  // what that is for text
    } else if (key == "rope_theta") {  // GGUF's has an alpha of rope_scaling in it
      const double base = io::rope_base(first.config, io::get_int(first.config, "head_dim", 1, 99));
      CHECK(value.get<double>() == Approx(base).epsilon(1e-6));
    } else if (key != "torch_dtype") {
      CHECK(value == first.config[key]);
    }
  }
  const PromptFormat format = PromptFormat::load(first, "");
  check_same_text(format, PromptFormat::load(io::open_model(gguf), ""));
  check_same_text(format, PromptFormat::load(last, ""));
}

}  // namespace

TEST_CASE("layers in an order that GGUF's architecture does not have are refused") {
  const auto refused = [](const char* type, const io::Json& keys) {
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    io::Json config = tiny_config(type);
    make_sayable(config);
    config.update(keys);
    ConvertOptions options;
    options.model = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
    options.output = *options.model + "/model.gguf";
    return lumen::testing::refusal(ErrorKind::kUnsupported, [&] { convert(options); });
  };
  CHECK(contains(
      refused("gemma3_text",
              {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}}),
      "layer 0 has no sliding window, which cannot be written as GGUF for gemma3"));
  CHECK(contains(refused("gemma3_text", {{"query_pre_attn_scalar", 20}}),
                 "query_pre_attn_scalar 20 cannot be written as GGUF, where it is 16"));
  CHECK(contains(refused("gemma2", {{"layer_types",
                                     {"full_attention", "sliding_attention", "full_attention"}}}),
                 "layer 0 has no sliding window, which cannot be written as GGUF for gemma2"));
  CHECK(
      contains(refused("gemma2", {{"attn_logit_softcapping", nullptr}}),
               "attn_logit_softcapping null cannot be written as GGUF for gemma2, where it is 50"));
  CHECK(contains(refused("gemma3_text", {{"final_logit_softcapping", 30}}),
                 "final_logit_softcapping cannot be written as GGUF for gemma3"));
  for (const auto& [key, value] : {std::pair<const char*, io::Json>("use_bias", true),
                                   {"use_qkv_bias", true},
                                   {"use_qk_norm", false},
                                   {"n_shared_experts", 0},
                                   {"tie_word_embeddings", true}}) {
    CHECK(contains(
        refused("bailing_moe_v2", {{key, value}, {"num_shared_experts", key[0] == 'n' ? 0 : 1}}),
        "cannot be written as GGUF for bailingmoe2"));
  }
  for (const auto& [key, value, why] :
       {std::tuple<const char*, io::Json, const char*>("final_logit_softcapping", 20,
                                                       "final_logit_softcapping 20"),
        {"final_logit_softcapping", nullptr, "final_logit_softcapping null"},
        {"altup_active_idx", 1, "altup_active_idx 1"},
        {"altup_correct_scale", false, "altup_correct_scale false"},
        {"num_kv_shared_layers", 1, "num_kv_shared_layers 1"},
        {"intermediate_sizes", {40, 24, 40, 40}, "intermediate_size 24 in layer 1"},
        {"activation_sparsity_pattern",
         {0.95, 0.95, 0, 0.95},
         "activation_sparsity_pattern 0 in layer 2"},
        {"attention_bias", true, "attention_bias true"}}) {
    CHECK(contains(refused("gemma3n_text", {{key, value}}),
                   str(why, " cannot be written as GGUF for gemma3n, whose readers ")));
  }
  CHECK(contains(refused("gemma4_text", {{"final_logit_softcapping", nullptr}}),
                 "final_logit_softcapping null cannot be written as GGUF for gemma4"));
  CHECK(contains(refused("gemma4_text", {{"attention_bias", true}}),
                 "attention_bias true cannot be written as GGUF for gemma4"));
  CHECK(contains(refused("gemma4_text", {{"tie_word_embeddings", false}}),
                 "tie_word_embeddings false cannot be written as GGUF for gemma4"));
  CHECK(contains(refused("smollm3", {{"no_rope_layer_interval", 3}}),
                 "than every 4th cannot be written"));
  CHECK(contains(refused("llama", {{"hidden_act", "gelu"}}), "where it is silu"));
  CHECK(contains(
      refused("qwen3_moe", {{"decoder_sparse_step", 2}}),
      "layers without experts cannot be written as GGUF for qwen3moe, whose readers look"));
  CHECK(
      contains(refused("qwen3_moe", {{"norm_topk_prob", false}}),
               "norm_topk_prob false cannot be written as GGUF for qwen3moe, whose readers make"));
  CHECK(contains(refused("qwen2_moe", {{"norm_topk_prob", true}}),
                 "norm_topk_prob true cannot be written as GGUF for qwen2moe, whose readers take"));
  CHECK(contains(
      refused("qwen3_next", {{"mlp_only_layers", {1}}}),
      "layers without experts cannot be written as GGUF for qwen3next, whose readers look"));
  CHECK(
      contains(refused("qwen3_next", {{"norm_topk_prob", false}}),
               "norm_topk_prob false cannot be written as GGUF for qwen3next, whose readers make"));
  CHECK(contains(refused("qwen3_5_moe_text", {{"linear_value_head_dim", 8}}),
                 "another linear_value_head_dim than linear_key_head_dim cannot be written as GGUF "
                 "for qwen35moe"));
  CHECK(contains(refused("qwen3_next", {{"layer_types", {"full_attention", "linear_attention"}}}),
                 "layer_types without a period cannot be written as GGUF for qwen3next"));
  CHECK(contains(refused("olmoe", {{"attention_bias", true}}), "attention_bias true cannot be"));
  CHECK(contains(refused("olmoe", {{"num_key_value_heads", 2}}),
                 "another num_key_value_heads than num_attention_heads cannot be written as GGUF"));
  CHECK(contains(refused("seed_oss", {{"mlp_bias", true}}),
                 "mlp_bias true cannot be written as GGUF for seed_oss"));
  CHECK(contains(refused("ernie4_5", {{"use_bias", true}}), "use_bias true cannot be written"));
  CHECK(contains(refused("starcoder2", {{"use_bias", false}}), "use_bias false cannot be written"));
  CHECK(contains(refused("starcoder2", {{"hidden_act", "gelu"}}), "where it is gelu_pytorch_tanh"));
  CHECK(contains(refused("cohere", {{"use_qk_norm", true}}),
                 "use_qk_norm true cannot be written as GGUF for command-r, whose readers look"));
  CHECK(contains(refused("cohere", {{"tie_word_embeddings", false}}),
                 "tie_word_embeddings false cannot be written as GGUF for command-r"));
  CHECK(contains(refused("cohere2", {{"layer_types", {"full_attention", "sliding_attention"}}}),
                 "layer 0 has no sliding window, which cannot be written as GGUF for cohere2"));
  CHECK(contains(
      refused("exaone4",
              {{"sliding_window", 3}, {"layer_types", {"sliding_attention", "full_attention"}}}),
      "layer 0 has a sliding window of 3 tokens, which cannot be written as GGUF for exaone4"));
  CHECK(contains(refused("exaone4", {{"sliding_window", 3},
                                     {"layer_types", {"full_attention", "full_attention"}}}),
                 "layers without rotation cannot be written as GGUF for exaone4"));
  CHECK(contains(refused("exaone_moe", {{"sliding_window", nullptr},
                                        {"layer_types", io::periodic_layer_types(4, 1)}}),
                 "layer 0 has no sliding window, which cannot be written as GGUF for exaone-moe"));
  CHECK(contains(refused("exaone_moe", {{"num_shared_experts", 0}, {"n_shared_experts", 0}}),
                 "num_shared_experts 0 cannot be written as GGUF for exaone-moe, whose readers"));
  CHECK(contains(refused("hunyuan_v1_dense", {{"attention_bias", true}}),
                 "attention_bias true cannot be written as GGUF for hunyuan-dense"));
  CHECK(contains(refused("hunyuan_v1_moe", {{"attention_bias", true}}),
                 "attention_bias true cannot be written as GGUF for hunyuan-moe"));
  for (const auto& [type, keys] : {std::pair("nemotron", io::Json{{"head_dim", 24}}),
                                   {"exaone4", {{"head_dim", 24}}},
                                   {"glm", {{"head_dim", 24}}},
                                   {"bailing_moe_v2", {{"head_dim", 24}}}}) {
    CHECK(contains(refused(type, keys), " heads of 24 numbers cannot be written as GGUF for "));
  }
  for (const char* type : {"qwen3", "qwen3_moe", "falcon_h1", "olmo2", "smollm3", "gemma"}) {
    CHECK(contains(refused(type, {{"attention_bias", true}}),
                   "attention_bias true cannot be written as GGUF for "));
  }
  CHECK(contains(refused("smollm3", {{"mlp_bias", true}}),
                 "mlp_bias true cannot be written as GGUF for smollm3, whose readers add no such "
                 "biases; a Hugging Face directory keeps it"));
  CHECK(contains(refused("gpt_oss", {{"attention_bias", false}}),
                 "attention_bias false cannot be written as GGUF for gpt-oss"));
  CHECK(contains(refused("dots1", {{"num_key_value_heads", 1}}),
                 "another num_key_value_heads than num_attention_heads cannot be written"));
  CHECK(contains(refused("deepseek_v3", {{"q_lora_rank", nullptr}}),
                 "q_lora_rank null cannot be written as GGUF for deepseek2"));
  CHECK(contains(refused("nemotron", {{"tie_word_embeddings", true}}),
                 "tie_word_embeddings true cannot be written as GGUF for nemotron"));
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    for (const char* type : {"arcee", "exaone"}) {
      CHECK(contains(refused(type, {{key, true}}),
                     str(key, " true cannot be written as GGUF for ", type)));
    }
  }
  for (const auto& [type, key, value] : {std::tuple("falcon", "attention_bias", true),
                                         {"falcon", "parallel_attn", false},
                                         {"olmo", "attention_bias", true},
                                         {"minicpm", "attention_bias", true},
                                         {"minicpm3", "attention_bias", true},
                                         {"bitnet", "attention_bias", true},
                                         {"bitnet", "tie_word_embeddings", false},
                                         {"jais2", "attention_bias", false},
                                         {"jais2", "mlp_bias", false},
                                         {"afmoe", "attention_bias", true},
                                         {"afmoe", "mup_enabled", false},
                                         {"gpt_bigcode", "scale_attn_weights", false}}) {
    CHECK(contains(refused(type, {{key, value}}),
                   str(key, value ? " true" : " false", " cannot be written as GGUF for ")));
  }
  CHECK(contains(refused("gpt_bigcode", {{"multi_query", false}, {"num_key_value_heads", 4}}),
                 "multi_query false cannot be written as GGUF for starcoder"));
  for (const io::Json& keys :
       {io::Json{{"floor_scale", 64}}, io::Json{{"attention_chunk_size", 64}},
        io::Json{{"attention_chunk_size", nullptr}}, io::Json{{"attn_scale", 0.2}},
        io::Json{{"attn_temperature_tuning", false}}, io::Json{{"use_qk_norm", false}},
        io::Json{{"no_rope_layers", {1, 0}}}, io::Json{{"attention_bias", true}},
        io::Json{{"moe_layers", {0}}, {"mlp_only_layers", {1}}}}) {
    INFO(keys.dump());
    CHECK(contains(refused("llama4_text", keys), "cannot be written as GGUF for llama4"));
  }
  CHECK(contains(refused("afmoe", {{"layer_types", io::periodic_layer_types(4, 2)}}),
                 "layer 1 has no sliding window, which cannot be written as GGUF for afmoe"));
  CHECK(contains(refused("olmoe", {{"clip_qkv", 8}}),
                 "clip_qkv cannot be written as GGUF for olmoe, whose readers clip nothing"));
  for (const char* type : {"gptj", "opt", "helium", "cwm", "hyperclovax", "nanochat", "lfm3",
                           "vaultgemma", "zamba2", "recurrent_gemma", "olmo_hybrid", "bamba"}) {
    CHECK(contains(refused(type, io::Json::object()),
                   "has no architecture of GGUF that Lumen knows"));
  }
  for (const auto& [type, keys, what] :
       {std::tuple("mellum", io::Json{{"rope_local_base_freq", 5e5}},
                   "another rope_theta of layers with a window"),
        {"mellum",
         io::Json{{"mlp_only_layers", {0}}, {"mlp_layer_types", {"dense", "sparse", "sparse"}}},
         "layers without experts"},
        {"mellum", io::Json{{"norm_topk_prob", false}}, "norm_topk_prob false"},
        {"granite_swa", io::Json{{"layer_rope_theta", {0, 1e4, 5e5}}},
         "layer_rope_theta with other bases than rope_theta"},
        {"laguna",
         io::Json{{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}},
         "other layers that see all than the first and every n-th behind it"},
        {"granitemoe_swa", io::Json{{"shared_intermediate_size", 20}},
         "what all tokens go through beside the experts"},
        {"laguna", io::Json{{"moe_router_logit_softcapping", 2.0}}, "moe_router_logit_softcapping"},
        {"hy_v3", io::Json{{"mlp_bias", true}}, "mlp_bias true"},
        {"cohere2_moe", io::Json{{"shared_expert_combination_strategy", "sum"}},
         "shared_expert_combination_strategy sum"},
        {"cohere2_moe",
         io::Json{{"prefix_dense_sliding_window_pattern", 2},
                  {"layer_types", {"full_attention", "sliding_attention", "full_attention"}}},
         "layers without experts, window and rotation"},
        {"mistral4", io::Json{{"rope_interleaved", false}, {"rope_interleave", false}},
         "rope_interleave false"}}) {
    INFO(type << " " << keys.dump());
    CHECK(contains(refused(type, keys), str(what, " cannot be written as GGUF for ")));
  }
  for (const char* key : {"attention_bias", "lm_head_bias"}) {
    CHECK(contains(refused("phimoe", {{key, false}}),
                   str(key, " false cannot be written as GGUF for phimoe, whose readers look")));
  }
  CHECK(contains(refused("phimoe", {{"router_jitter_noise", 0.1}}), "phimoe, where it is 0.01"));
  CHECK(contains(refused("gpt_neox", {{"attention_bias", false}}),
                 "attention_bias false cannot be written as GGUF for gptneox, whose readers look"));
  CHECK(contains(refused("gpt_neox", {{"hidden_act", "gelu_fast"}}), "where it is gelu"));
  for (const char* type : {"gpt_neox", "stablelm"}) {
    CHECK(contains(refused(type, {{"tie_word_embeddings", true}}),
                   "tie_word_embeddings true cannot be written as GGUF for "));
  }
  CHECK(contains(refused("kimi_linear", {{"linear_num_heads", 3}}),
                 "another linear_num_heads than num_attention_heads cannot be written as GGUF"));
  CHECK(contains(refused("kimi_linear", {{"norm_topk_prob", false}}),
                 "norm_topk_prob false cannot be written as GGUF for kimi-linear"));
  CHECK(contains(refused("kimi_linear", {{"attention_bias", true}}),
                 "attention_bias true cannot be written as GGUF for kimi-linear"));
  CHECK(contains(refused("mamba", {{"use_bias", true}}),
                 "use_bias true cannot be written as GGUF for mamba"));
  CHECK(contains(refused("mamba", {{"use_conv_bias", false}}),
                 "use_conv_bias false cannot be written as GGUF for mamba, whose readers look"));
  CHECK(contains(refused("falcon_mamba", {{"mixer_rms_eps", 1e-4}}),
                 "another mixer_rms_eps than 1e-6 cannot be written as GGUF for mamba"));
  CHECK(contains(refused("mamba", {{"intermediate_size", 96}}),
                 "another expand than 2 cannot be written as GGUF for mamba, whose readers look"));
  CHECK(contains(refused("jamba", {{"mamba_expand", 3}}),
                 "another mamba_expand than 2 cannot be written as GGUF for jamba"));
  CHECK(contains(refused("jamba", {{"mamba_conv_bias", false}}),
                 "mamba_conv_bias false cannot be written as GGUF for jamba, whose readers look"));
  CHECK(contains(refused("arcee", {{"hidden_act", "silu"}}), "where it is relu2"));
  CHECK(contains(refused("bitnet", {{"hidden_act", "relu2"}}), "where it is silu"));
  CHECK(contains(refused("mpt", {{"attn_config", {{"softmax_scale", 0.3}}}}),
                 "softmax_scale cannot be written as GGUF for mpt"));
  CHECK(contains(refused("ministral", {{"layer_types", {"sliding_attention", "full_attention"}}}),
                 "layer 1 has no sliding window, which cannot be written as GGUF for llama"));
  for (const auto& [key, value] :
       {std::pair("scale_emb", 1.0), {"scale_depth", 2.0}, {"dim_model_base", 128.0}}) {
    CHECK(contains(refused("minicpm3", {{key, value}}), "cannot be written as GGUF for minicpm3"));
  }
  CHECK(contains(refused("minicpm3", {{"v_head_dim", 8}}),
                 "v_head_dim 8 cannot be written as GGUF for minicpm3"));
  CHECK(contains(refused("apertus", {{"hidden_act", "silu"}}), "where it is xielu"));
  CHECK(contains(refused("apertus", {{"attention_bias", true}}),
                 "attention_bias true cannot be written as GGUF for apertus"));
  CHECK(contains(refused("apertus", {{"tie_word_embeddings", true}}),
                 "tie_word_embeddings true cannot be written as GGUF for apertus"));
  CHECK(contains(refused("lfm2", {{"conv_bias", true}}),
                 "conv_bias true cannot be written as GGUF for lfm2"));
  CHECK(contains(refused("lfm2_moe", {{"norm_topk_prob", false}}),
                 "norm_topk_prob false cannot be written as GGUF for lfm2moe, whose readers make"));
  CHECK(
      contains(refused("lfm2_moe", {{"use_expert_bias", false}}),
               "use_expert_bias false cannot be written as GGUF for lfm2moe, whose readers look"));
  CHECK(contains(refused("lfm2_moe", {{"routed_scaling_factor", 2.5}}),
                 "routed_scaling_factor 2.5 cannot be written as GGUF for lfm2moe"));
  CHECK(contains(refused("ernie4_5_moe", {{"use_bias", true}}),
                 "use_bias true cannot be written as GGUF for ernie4_5-moe"));
  CHECK(contains(refused("ernie4_5_moe", {{"moe_norm_min", 0.5}}),
                 "moe_norm_min 0.5 cannot be written as GGUF for ernie4_5-moe"));
  CHECK(contains(
      refused("ernie4_5_moe",
              {{"moe_layer_start_index", 0}, {"moe_layer_end_index", 0}, {"mlp_only_layers", {1}}}),
      "layers without experts behind those with some cannot be written as GGUF for "
      "ernie4_5-moe, whose readers look for them in front"));
  CHECK(contains(refused("minimax_m2", {{"tie_word_embeddings", true}}),
                 "tie_word_embeddings true cannot be written as GGUF for minimax-m2"));
  CHECK(contains(
      refused("dots1", {{"sliding_window", 3}, {"max_window_layers", 1}}),
      "layer 1 has a sliding window of 3 tokens, which cannot be written as GGUF for dots1"));
  CHECK(contains(refused("dots1", {{"attention_bias", true}}),
                 "attention_bias true cannot be written as GGUF for dots1"));
  CHECK(contains(refused("dots1", {{"n_shared_experts", 0}}),
                 "n_shared_experts 0 cannot be written as GGUF for dots1, whose readers look"));
  CHECK(contains(refused("dots1", {{"tie_word_embeddings", true}}),
                 "tie_word_embeddings true cannot be written as GGUF for dots1"));
  CHECK(contains(refused("granitemoehybrid", {{"mamba_proj_bias", true}}),
                 "mamba_proj_bias true cannot be written as GGUF for granitehybrid"));
  CHECK(contains(refused("granitemoehybrid", {{"time_step_limit", {0.1, 1.5}}}),
                 "cannot be written as GGUF for granitehybrid, whose readers take all time steps"));
  CHECK(contains(refused("nemotron_h", {{"use_bias", true}}),
                 "use_bias true cannot be written as GGUF for nemotron_h"));
  CHECK(contains(refused("nemotron_h", {{"time_step_limit", {0.1, 1.5}}}),
                 "cannot be written as GGUF for nemotron_h, whose readers take all time steps"));
  CHECK(contains(refused("nemotron_h", {{"layers_block_type", {"mlp", "moe", "mamba", "attention"}},
                                        {"num_experts", 3},
                                        {"n_routed_experts", 3},
                                        {"num_experts_per_tok", 2},
                                        {"moe_intermediate_size", 8},
                                        {"moe_shared_expert_intermediate_size", 8}}),
                 "layers of type mlp beside those with experts cannot be written as GGUF for "
                 "nemotron_h_moe"));
  CHECK(
      contains(refused("gpt2", {{"activation_function", "gelu"}}),
               "activation_function 'gelu' cannot be written as GGUF for gpt2, where it is gelu_"));
  CHECK(contains(refused("gpt2", {{"scale_attn_weights", false}}),
                 "scale_attn_weights false cannot be written as GGUF for gpt2, whose readers"));
  CHECK(contains(refused("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}),
                 "scale_attn_by_inverse_layer_idx true cannot be written as GGUF for gpt2"));
  CHECK(contains(refused("falcon_h1", {{"mamba_rms_norm", true}}),
                 "mamba_norm_before_gate true cannot be written as GGUF for falcon-h1"));
  CHECK(contains(refused("falcon_h1", {{"projectors_bias", true}}),
                 "projectors_bias true cannot be written as GGUF for falcon-h1"));
  CHECK(contains(refused("deepseek_v3", {{"rope_interleave", false}}),
                 "rope_interleave false cannot be written as GGUF for deepseek2, whose readers"));
  CHECK(contains(refused("deepseek_v2", {{"attention_bias", true}}),
                 "attention_bias true cannot be written as GGUF for deepseek2"));
  CHECK(contains(
      refused("deepseek_v2", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}),
      "rope_scaling yarn with another mscale than mscale_all_dim cannot be written as GGUF"));
  CHECK(contains(refused("glm4_moe_lite", {{"rope_interleave", true},
                                           {"mlp_only_layers", {1}},
                                           {"mlp_layer_types", {"sparse", "dense"}}}),
                 "layers without experts behind those with some cannot be written as GGUF"));
  CHECK(contains(refused("gpt_oss", {{"swiglu_limit", 6}}),
                 "swiglu_limit 6 cannot be written as GGUF for gpt-oss, where it is 7"));
  CHECK(contains(refused("gpt_oss", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}),
                 "truncate true cannot be written as GGUF for gpt-oss"));
}

TEST_CASE("models keep their logits, tokens and templates in GGUF") {
  size_t converted_models = 0;
  for (const models::ModelDef* def : models::model_list()) {
    // Without an architecture of GGUF.
    if (def->name == "recurrent") continue;
    for (io::Json config : def->tiny_configs()) {
      const std::string type = config["model_type"];
      if (is_unknown_to_gguf(type)) continue;
      make_sayable(config);
      INFO(config.dump());
      const bool pieces = ++converted_models % 2 == 0;
      check_same(model_directory(
          *def, config,
          pieces ? text::TokenizerKind::kSentencePieceBpe : text::TokenizerKind::kByteLevelBpe));
      for (const io::Json& scaling : {io::Json({{"rope_type", "linear"}, {"factor", 2.0}}),
                                      io::Json({{"rope_type", "yarn"},
                                                {"factor", 4.0},
                                                {"attention_factor", 1.25},
                                                {"original_max_position_embeddings", 16}})}) {
        io::Json scaled = config;
        if (scaled.contains("rope_scaling") && scaled["rope_scaling"]["rope_type"] == "longrope") {
          continue;
        }
        scaled["rope_scaling"] = scaling;
        if (def->name == "gptoss" && scaling["rope_type"] == "yarn") {
          scaled["rope_scaling"]["truncate"] = false;
        }
        const bool has_scaled_scores = def->name == "deepseek" && type != "minicpm3";
        if (has_scaled_scores && scaling["rope_type"] == "yarn") {  // as files say it
          for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"}) {
            scaled["rope_scaling"][key] = 1.0;
          }
        }
        check_same(model_directory(*def, scaled, text::TokenizerKind::kByteLevelBpe));
      }
    }
  }
  CHECK(converted_models > 15);
}

TEST_CASE("norms of the heads of Command R+ keep their shapes in GGUF") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "cohere"}});
  io::Json config = def.tiny_configs()[0];
  config.update({{"num_hidden_layers", 64},
                 {"hidden_size", 16},
                 {"intermediate_size", 16},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"use_qk_norm", true}});
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  check_same(directory);
  const auto file = io::read_gguf(converted(directory));
  CHECK(file->find_tensor("blk.63.attn_q_norm.weight")->shape == Shape{2, 8});
  CHECK(file->find_tensor("blk.63.attn_k_norm.weight")->shape == Shape{1, 8});
}

TEST_CASE("EXAONE of 64 layers keeps its windows in GGUF") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "exaone4"}});
  io::Json config = def.tiny_configs()[1];
  config.update({{"num_hidden_layers", 64},
                 {"layer_types", io::periodic_layer_types(64, 4)},
                 {"hidden_size", 16},
                 {"intermediate_size", 16},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1}});
  check_same(model_directory(def, config, text::TokenizerKind::kByteLevelBpe));
}

TEST_CASE("what lumen-run would refuse is not converted") {
  const models::ModelDef& llama = models::find_model_def(io::Json({{"model_type", "llama"}}));
  const std::string directory =
      model_directory(llama, llama.tiny_configs()[0], text::TokenizerKind::kByteLevelBpe);
  const std::string weights = directory + "/model.safetensors";
  const NamedArrays good = io::read_safetensors(weights)->arrays();
  const std::string output = directory + "/model.gguf";
  const auto refused = [&](const NamedArrays& tensors, ErrorKind kind, const std::string& type) {
    io::write_safetensors(weights, tensors);
    ConvertOptions options;
    options.model = directory;
    options.output = output;
    options.type = type;
    const std::string message = lumen::testing::refusal(kind, [&] { convert(options); });
    CHECK_FALSE(io::is_regular_file(output));
    return message;
  };
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const auto with_number = [&](float number) {
    NamedArrays tensors = good;
    Array& array = tensors.at(name);
    array = nn::float32_copy(array);
    array.as_mutable<float>()[5] = number;
    return tensors;
  };
  CHECK(contains(refused(with_number(1e6f), ErrorKind::kMalformed, "f16"),
                 name + "' has numbers too large for f16: use --type bf16 or f32"));
  CHECK(contains(refused(with_number(NAN), ErrorKind::kMalformed, "bf16"), "NaN or infinite"));
  NamedArrays fewer = good;
  fewer.erase(name);
  CHECK(contains(refused(fewer, ErrorKind::kMalformed, "f32"), name + "' is missing"));

  io::Json config = io::read_json(directory + "/config.json");
  config["hidden_act"] = "gelu";
  io::write_file_atomically(directory + "/config.json", config.dump());
  CHECK(contains(refused(good, ErrorKind::kUnsupported, "f32"), "hidden_act 'gelu'"));
}

TEST_CASE("a model of the shared data keeps its logits in GGUF") {
  LUMEN_SHARED_DATA(models, "models");
  for (const char* name : {"/hf/stories260K", "/synthetic/llama3-rope"}) {
    INFO(name);
    const std::string gguf = lumen::testing::temporary_directory() + "/model.gguf";
    ConvertOptions options;
    options.model = models + name;
    options.output = gguf;
    options.type = "f32";
    REQUIRE(convert(options) == 0);
    const std::vector<float> want = logits(models + name), got = logits(gguf);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) < 2e-4);
  }
}

TEST_CASE("position scaling of Llama 3 goes through GGUF and back") {
  LUMEN_SHARED_DATA(directory, "models/synthetic/llama3-rope");
  check_same(directory);
}

TEST_CASE("what a model proposes for sampling goes through GGUF and back") {
  const std::string directory =
      model_directory(models::find_model_def({{"model_type", "llama"}}), tiny_config("llama"),
                      text::TokenizerKind::kByteLevelBpe);
  const auto with = [&](const io::Json& generation) {
    io::write_file_atomically(directory + "/generation_config.json", generation.dump());
    return converted(directory);
  };
  const auto back = [](const std::string& path) {
    return io::read_json(converted_directory(path, "f32") + "/generation_config.json");
  };
  const io::Json proposed = {{"do_sample", true}, {"temperature", 0.6},
                             {"top_k", 20},       {"top_p", 0.95},
                             {"min_p", 0.05},     {"repetition_penalty", 1.05}};
  const std::string path = with(proposed);
  const auto file = io::read_gguf(path);
  const io::GgufMetadata& metadata = file->metadata;
  CHECK(metadata.get_number("general.sampling.temp") == 0.6F);
  CHECK(metadata.get_int("general.sampling.top_k", 0, 100) == 20);
  CHECK(metadata.get_number("general.sampling.penalty_repeat") == 1.05F);
  const io::Json directory_again = back(path);
  for (const auto& [key, value] : proposed.items()) CHECK(directory_again.at(key) == value);
  SamplingSettings settings = resolve_sampling({}, io::open_model(path).generation_config);
  CHECK(settings.temperature == 0.6F);
  CHECK(settings.top_k == 20);
  CHECK(settings.min_p == 0.05F);

  const std::string greedy = with({{"do_sample", false}, {"temperature", 0.6}});
  CHECK(io::read_gguf(greedy)->metadata.get_number("general.sampling.temp") == 0);
  CHECK(resolve_sampling({}, io::open_model(greedy).generation_config).temperature == 0);
  CHECK(back(greedy).at("do_sample") == false);
  CHECK_FALSE(back(greedy).contains("temperature"));

  const std::string silent = with({{"eos_token_id", 1}});
  CHECK(io::open_model(silent).generation_config.empty());
  CHECK_FALSE(back(silent).contains("do_sample"));

  io::write_file_atomically(directory + "/generation_config.json", "{\"top_k\": -3}");
  ConvertOptions options;
  options.model = directory;
  options.output = directory + "/out.gguf";
  CHECK(contains(lumen::testing::refusal(ErrorKind::kMalformed, [&] { convert(options); }),
                 "generation_config.json: key 'top_k': found the number -3, expected an integer"));
}

TEST_CASE("PyTorch checkpoints become safetensors, in shards if they are large") {
  const std::string golden = lumen::testing::source_path("testdata/torch/sharded");
  const NamedArrays want = io::read_safetensors(golden + ".safetensors")->arrays();
  check_same_tensors(io::open_model(converted_directory(golden, "f32")).tensors, want);
  const std::string shards = converted_directory(golden, "f32", "1KB");
  CHECK_FALSE(io::is_regular_file(shards + "/model.safetensors"));
  CHECK(io::is_regular_file(shards + "/model.safetensors.index.json"));
  check_same_tensors(io::open_model(shards).tensors, want);
}

}  // namespace lumen::runtime
