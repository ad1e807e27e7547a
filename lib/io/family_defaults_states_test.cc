// The same as family_defaults_test.cc, of families whose layers keep states.
#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/backbone_names.h"
#include "lib/io/convolution_parts.h"
#include "lib/io/family_defaults.h"
#include "lib/io/layer_windows.h"
#include "lib/io/model_files.h"
#include "lib/io/test_directories.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;

TEST_CASE("a config of LFM2 says which layers have attention, and how wide the others are") {
  const auto config = [](const std::string& more) {
    return open_model(make_directory(str(R"({"model_type": "lfm2", "num_key_value_heads": 2, )",
                                         more, kSizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json all = config(R"("block_ff_dim": 1000,)");
  CHECK(all["layer_types"] == Json::array({"full_attention"}));
  CHECK(all["intermediate_size"] == 768);  // 666, rounded up to a multiple of 256
  CHECK(all["block_auto_adjust_ff_dim"] == false);
  CHECK(config(R"("full_attn_idxs": [],)")["layer_types"] == Json::array({"conv"}));
  CHECK(config(R"("block_auto_adjust_ff_dim": false,)")["intermediate_size"] == 8);
  for (const char* layers : {"[1]", "[-1]", R"("0")", R"(["0"])", R"({"0": 0})"}) {
    const std::string message = lumen::testing::refusal(
        ErrorKind::kMalformed, [&] { config(str(R"("full_attn_idxs": )", layers, ",")); });
    CHECK(lumen::testing::contains(message, "full_attn_idxs: found "));
  }
}

TEST_CASE("configs of mixtures with Gated DeltaNets are completed as their classes have them") {
  const Json newer = open_model(make_directory(R"({"model_type": "qwen3_5_moe", "text_config": {
      "hidden_size": 64, "num_hidden_layers": 5, "vocab_size": 10, "moe_intermediate_size": 24,
      "norm_topk_prob": false, "mlp_only_layers": [0], "linear_inputs_apart": true,
      "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.5, "mrope_section": [1]}}})",
                                               {"language_model.model.embed_tokens.weight"}))
                         .config;
  CHECK(newer["model_type"] == "qwen3_5_moe_text");
  CHECK(newer["num_experts"] == 256);
  CHECK(newer["num_experts_per_tok"] == 8);
  CHECK(newer["intermediate_size"] == 24);  // which no layer has
  CHECK(newer["norm_topk_prob"] == true);   // whatever the file says
  CHECK(sparse_layers(newer) == std::vector<bool>(5, true));
  CHECK(linear_attention_layers(newer) == std::vector<bool>{true, true, true, false, true});
  CHECK(newer["partial_rotary_factor"] == 0.5);
  CHECK(newer["rope_theta"] == 1e7);
  CHECK_FALSE(newer.contains("linear_inputs_apart"));  // Hugging Face has no such key
  const Json next = open_model(make_directory(str(R"({"model_type": "qwen3_next", )", kSizes,
                                                  R"(, "mlp_only_layers": [0]})"),
                                              {"model.embed_tokens.weight"}))
                        .config;
  CHECK(next["num_experts"] == 512);
  CHECK(next["num_experts_per_tok"] == 10);
  CHECK(next["head_dim"] == 256);
  CHECK(next["norm_topk_prob"] == true);
  CHECK(next["partial_rotary_factor"] == 0.25);
  CHECK(next["linear_num_value_heads"] == 32);
  CHECK_FALSE(sparse_layers(next)[0]);
}

TEST_CASE("a config of Nemotron-H is completed as its class has it") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": "nemotron_h", "hidden_size": 8, )",
                                         R"("vocab_size": 4, "num_attention_heads": 8)", keys, "}"),
                                     {"backbone.embeddings.weight"}))
        .config;
  };
  const Json published =
      config(R"(, "hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5, "mamba_n_groups": 2,
                "time_step_limit": [0.0, Infinity], "n_routed_experts": 8, "head_dim": 4)");
  using enum SingleLayer;
  CHECK(single_layers(published) == std::vector{kMamba, kMlp, kMamba, kAttention, kMlp});
  CHECK(published["layers_block_type"] == Json{"mamba", "mlp", "mamba", "attention", "mlp"});
  CHECK(published["time_step_limit"][1] == Json{{"__float__", "Infinity"}});
  CHECK(published["n_groups"] == 2);
  CHECK(published["hidden_act"] == "relu2");
  CHECK(published["num_key_value_heads"] == 8);
  CHECK(published["rms_norm_eps"] == 1e-5);
  CHECK(expert_count(published) == 0);  // no layer has any
  const Json newer = config(R"(, "layers_block_type": ["linear_attention", "moe"], "head_dim": 4)");
  CHECK(single_layers(newer) == std::vector{kMamba, kExperts});
  CHECK(newer["num_hidden_layers"] == 2);
  CHECK(expert_count(newer) == 8);
  for (const auto& [keys, why] :
       {std::pair(R"(, "hybrid_override_pattern": "M-X")", "hybrid_override_pattern: found 'M-X'"),
        {R"(, "hybrid_override_pattern": "M-", "num_hidden_layers": 3)",
         "layers_block_type: found an array of 2, expected an array of 3 names"},
        {R"(, "hybrid_override_pattern": "")", "expected a letter for each layer"},
        {R"(, "hybrid_override_pattern": "E", "n_routed_experts": 0)", "n_routed_experts"},
        {R"(, "layers_block_type": "M-", "num_hidden_layers": 2)",
         "layers_block_type: found the string 'M-'"}}) {
    CAPTURE(keys);
    CHECK(testing::contains(
        testing::refusal(ErrorKind::kMalformed, [&, more = std::string(keys)] { config(more); }),
        why));
  }
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported,
                                           [&] { config(R"(, "layers_block_type": ["conv"])"); }),
                          "layer 0 is the string 'conv'; known: mamba, attention, mlp, moe"));
}

TEST_CASE("names of the backbone of Nemotron-H are those of other models, and back") {
  const Json config = {{"model_type", "nemotron_h"}};
  for (const auto& [stored, own] :
       {std::pair("backbone.embeddings.weight", "model.embed_tokens.weight"),
        {"backbone.norm_f.weight", "model.norm.weight"},
        {"backbone.layers.3.norm.weight", "model.layers.3.norm.weight"},
        {"backbone.layers.0.mixer.A_log", "model.layers.0.mixer.A_log"},
        {"lm_head.weight", "lm_head.weight"}}) {
    CHECK(usual_name(config, stored) == own);
    CHECK(stored_name(config, own) == stored);
  }
  CHECK(usual_name(config, "model.embeddings.weight") == "model.embed_tokens.weight");
  CHECK(stored_name({{"model_type", "llama"}}, "model.norm.weight") == "model.norm.weight");
  // Adapters name modules.
  CHECK(stored_name(config, "model.layers.0.mixer.in_proj.lora_A.weight") ==
        "model.layers.0.mixer.in_proj.lora_A.weight");
}

TEST_CASE("a config of Mamba-2, which has no attention, is completed as its class has it") {
  const Json all = open_model(make_directory(R"({"model_type": "mamba2", "hidden_size": 32,
                                                 "num_heads": 8, "head_dim": 8, "vocab_size": 4,
                                                 "time_step_limit": [0.0, Infinity]})",
                                             {"backbone.embeddings.weight"}))
                       .config;
  CHECK(all["num_hidden_layers"] == 64);
  CHECK(all["intermediate_size"] == 64);
  CHECK(all["n_groups"] == 8);
  CHECK(all["rms_norm_eps"] == 1e-5);
  CHECK(all["max_position_embeddings"] == 1 << 20);
  CHECK(all["tie_word_embeddings"] == false);
}

TEST_CASE("configs of Mamba, Falcon-Mamba and Jamba are completed as their classes have them") {
  const auto config = [](const char* type, const std::string& keys, const char* tensor) {
    return open_model(
               make_directory(str(R"({"model_type": ")", type, "\", \"vocab_size\": 4", keys, "}"),
                              {tensor}))
        .config;
  };
  constexpr const char* kEmbedding = "backbone.embeddings.weight";
  const Json mamba =
      config("mamba", R"(, "hidden_size": 40, "time_step_rank": "auto")", kEmbedding);
  CHECK(mamba["intermediate_size"] == 80);
  CHECK(mamba["time_step_rank"] == 3);
  CHECK(mamba["state_size"] == 16);
  CHECK(mamba["rms_norm_eps"] == 1e-5);
  CHECK(mamba["max_position_embeddings"] == 1 << 20);
  CHECK(mamba["tie_word_embeddings"] == true);
  const Json falcon =
      config("falcon_mamba", R"(, "intermediate_size": 60, "time_step_rank": 7)", kEmbedding);
  CHECK(falcon["intermediate_size"] == 60);
  CHECK(falcon["time_step_rank"] == 7);
  const auto jamba = [&](const std::string& keys) {
    return config("jamba", keys + R"(, "hidden_size": 40, "num_attention_heads": 8)",
                  "model.embed_tokens.weight");
  };
  const Json all = jamba(R"(, "num_hidden_layers": 4)");
  CHECK(all["mlp_only_layers"] == Json({0, 2}));
  CHECK(all["mamba_dt_rank"] == 3);
  CHECK(all["num_key_value_heads"] == 8);
  CHECK(all["attn_layer_offset"] == 4);
  const Json dense = jamba(R"(, "num_hidden_layers": 2, "num_experts": 1)");
  CHECK(dense["num_experts"] == 0);
  CHECK(dense["mlp_only_layers"] == Json({0, 1}));
}

TEST_CASE(
    "configs of OLMo Hybrid, Kimi Linear and Bamba are completed as their classes have them") {
  const auto config = [](const char* type, const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": ")", type, "\", ", kSizes, keys, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json olmo = config("olmo_hybrid", R"(, "rope_parameters": {"rope_theta": null})");
  CHECK(olmo["rope_parameters"]["rope_theta"].is_null());
  CHECK(olmo["linear_value_head_dim"] == 2 * olmo["linear_key_head_dim"].get<int64_t>());
  CHECK(olmo["layer_types"] == Json({"full_attention"}));
  CHECK_FALSE(config("olmo_hybrid", "").contains("rope_parameters"));
  CHECK(config("olmo_hybrid", R"(, "rope_theta": null)").contains("rope_parameters"));
  const auto kimi = [&](const std::string& keys) {
    return config("kimi_linear", R"(, "num_experts": 4, "num_experts_per_token": 2)" + keys);
  };
  const Json linear = kimi(R"(, "linear_attn_config": {"head_dim": 6, "num_heads": 3,
      "short_conv_kernel_size": 3, "full_attn_layers": [1]}, "model_max_length": 77)");
  CHECK(linear["layer_types"] == Json({"full_attention"}));
  CHECK(linear["linear_head_dim"] == 6);
  CHECK(linear["linear_num_heads"] == 3);
  CHECK(linear["linear_conv_kernel_dim"] == 3);
  CHECK(linear["max_position_embeddings"] == 77);
  CHECK(linear["num_experts_per_tok"] == 2);
  CHECK(linear["mlp_only_layers"] == Json::array({0}));
  CHECK(kimi("")["layer_types"] == Json({"linear_attention"}));
  for (const char* wrong : {"[0]", "[99]", "[\"1\"]"}) {
    const std::string message = lumen::testing::refusal(ErrorKind::kMalformed, [&] {
      kimi(str(R"(, "linear_attn_config": {"full_attn_layers": )", wrong, "}"));
    });
    CHECK(lumen::testing::contains(message, "linear_attn_config.full_attn_layers: found "));
  }
  for (const char* other :
       {R"(, "mla_use_nope": false)", R"(, "moe_router_activation_func": "softmax")"}) {
    const std::string message =
        lumen::testing::refusal(ErrorKind::kUnsupported, [&] { kimi(other); });
    CHECK(lumen::testing::contains(message, "is not supported in kimi_linear"));
  }
  const Json bamba =
      config("bamba", R"(, "num_key_value_heads": 2, "mamba_n_heads": 2, "mamba_expand": 3)");
  CHECK(bamba["partial_rotary_factor"] == 0.5);
  CHECK(bamba["mamba_d_head"] == 3 * bamba["hidden_size"].get<int64_t>() / 2);
}

TEST_CASE("convolutions of OLMo Hybrid in equal parts are parted as their channels are") {
  constexpr const char* kPlace = "model.layers.0.linear_attn.";
  const auto numbers = [](int64_t first, int64_t rows) {
    std::vector<float> values(static_cast<size_t>(rows * 2));
    std::iota(values.begin(), values.end(), static_cast<float>(first * 2));
    return Array::from<float>(values, {rows, 1, 2});
  };
  const auto in_parts = [&](int64_t q, int64_t k, int64_t v) {
    NamedArrays tensors;
    for (const auto& [letter, first, rows, wanted] :
         {std::tuple("q", int64_t{0}, q, int64_t{2}), {"k", q, k, 2}, {"v", q + k, v, 5}}) {
      tensors[str(kPlace, letter, "_conv1d.weight")] = numbers(first, rows);
      tensors[str(kPlace, letter, "_proj.weight")] = Array::zeros(DType::kF32, {wanted, 3});
    }
    part_convolutions(tensors);
    return tensors;
  };
  for (const NamedArrays& tensors : {in_parts(3, 3, 3), in_parts(2, 2, 5)}) {
    for (const auto& [letter, first, rows] : {std::tuple("q", 0, 2), {"k", 2, 2}, {"v", 4, 5}}) {
      const Array& found = tensors.at(str(kPlace, letter, "_conv1d.weight"));
      const Array wanted = numbers(first, rows);
      CHECK(found.shape() == wanted.shape());
      CHECK(std::ranges::equal(found.as<float>(), wanted.as<float>()));
    }
  }
  CHECK(in_parts(3, 3, 4).at(str(kPlace, "q_conv1d.weight")).shape() == Shape{3, 1, 2});
}

TEST_CASE("a config of Falcon-H1 is completed as its class has it") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": "falcon_h1", )", kSizes, keys,
                                         ", \"multipliers_in_weights\": true}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json all = config(R"(, "num_key_value_heads": null)");
  CHECK(all["num_key_value_heads"] == 4);
  CHECK(all["mamba_d_ssm"] == 1024);
  CHECK(all["mamba_d_head"] == 8);
  CHECK(all["mamba_d_state"] == 256);
  CHECK(all["embedding_multiplier"] == 1.0);
  CHECK_FALSE(all.contains("multipliers_in_weights"));  // Hugging Face has no such key
  const Json expanded = config(
      R"(, "num_key_value_heads": 2, "mamba_d_ssm": null, "mamba_n_heads": 2, "mamba_expand": 3)");
  const auto hidden = expanded["hidden_size"].get<int64_t>();
  CHECK(expanded["mamba_d_ssm"] == 3 * hidden);
  CHECK(expanded["mamba_d_head"] == 3 * hidden / 2);
}

TEST_CASE("a config of Granite 4.0 is completed as its class has it") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": "granitemoehybrid", )", kSizes, keys,
                                         ", \"linear_inputs_apart\": true}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json all = config("");
  const auto layers = all["num_hidden_layers"].get<size_t>();
  CHECK(mamba_layers(all) == std::vector<bool>(layers, true));
  CHECK(all["mamba_n_heads"] == 128);
  CHECK(all["mamba_d_state"] == 256);
  CHECK(all["shared_intermediate_size"] == 1024);
  CHECK(all["num_local_experts"] == 8);
  CHECK(all["intermediate_size"] != 1024);
  CHECK_FALSE(all.contains("linear_inputs_apart"));  // Hugging Face has no such key
  Json types = Json::array();
  for (size_t i = 0; i < layers; ++i) types.push_back(i == 0 ? "linear_attention" : "attention");
  const Json dense = config(str(R"(, "mamba_n_heads": 2, "mamba_d_head": "auto", "mamba_expand": 3,
      "num_local_experts": 0, "layers_block_type": )",
                                types.dump()));
  std::vector<bool> expected(layers, false);
  expected[0] = true;
  CHECK(mamba_layers(dense) == expected);
  CHECK(dense["mamba_d_head"] == dense["hidden_size"].get<int64_t>() * 3 / 2);
  CHECK(dense["intermediate_size"] == 1024);
  types[0] = "conv";
  CHECK(testing::contains(
      testing::refusal(ErrorKind::kUnsupported,
                       [&] { mamba_layers(config(str(R"(, "layer_types": )", types.dump()))); }),
      "layer_types: layer 0 is the string 'conv'; known: attention, mamba"));
}

TEST_CASE("configs of RecurrentGemma and Zamba2 are completed as their classes have them") {
  const auto config = [](const char* type, const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": ")", type, "\", \"vocab_size\": 4, ",
                                         keys, R"("hidden_size": 40, "num_attention_heads": 4})"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json griffin = config("recurrent_gemma", R"("num_hidden_layers": 4,
      "attention_window_size": 7, "num_key_value_heads": 1,)");
  CHECK(linear_attention_layers(griffin) == std::vector<bool>{true, true, false, true});
  CHECK(griffin["sliding_window"] == 7);
  CHECK(griffin["lru_width"] == 40);
  CHECK(griffin["head_dim"] == 10);
  CHECK(griffin["partial_rotary_factor"] == 0.5);
  CHECK(griffin["hidden_act"] == "gelu_pytorch_tanh");
  CHECK(contains(
      lumen::testing::refusal(ErrorKind::kMalformed,
                              [&] { config("recurrent_gemma", R"("block_types": ["conv"],)"); }),
      "block_types: found an array of 1, expected an array of recurrent and attention"));
  const Json zamba = config("zamba2", R"("num_hidden_layers": 3, "time_step_limit": [0.5, 1],
      "layers_block_type": ["mamba", "hybrid", "linear_attention"],)");
  CHECK(hybrid_layers(zamba) == std::vector<bool>{false, true, false});
  CHECK(zamba["head_dim"] == 20);  // of twice the hidden size
  CHECK(zamba["mamba_headdim"] == 10);
  CHECK(zamba["num_key_value_heads"] == 4);
  CHECK(zamba["intermediate_size"] == 160);
  CHECK_FALSE(zamba.contains("time_step_limit"));
  const std::vector<bool> all = hybrid_layers(config("zamba2", ""));
  CHECK(std::accumulate(all.begin(), all.end(), 0) == 9);
  CHECK((all[6] && all[42] && all[47] && all[51] && !all[48]));
  CHECK(contains(lumen::testing::refusal(ErrorKind::kMalformed,
                                         [&] { config("zamba2", R"("n_mamba_heads": 3,)"); }),
                 "mamba_expand · hidden_size = 80 is not a multiple of n_mamba_heads 3"));
}

}  // namespace
}  // namespace lumen::io
