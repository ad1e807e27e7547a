// What config.json of single families leaves out or calls otherwise, as open_model gives it.
#include "lib/io/family_defaults.h"

#include <cmath>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/backbone_names.h"
#include "lib/io/head_norms.h"
#include "lib/io/layer_windows.h"
#include "lib/io/model_files.h"
#include "lib/io/test_directories.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;

TEST_CASE("newer and older spellings of a config become the classic one") {
  const auto config = [](const std::string& more) {
    return open_model(make_directory(str("{\"model_type\": ", more, ", ", kSizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json plain = config(R"("llama")");
  CHECK(plain["num_key_value_heads"] == 4);
  CHECK(plain["head_dim"] == 16);
  CHECK(plain["rope_theta"] == 10000.0);
  CHECK(plain["tie_word_embeddings"] == true);
  CHECK(plain["rope_interleaved"] == false);
  CHECK(config(R"("qwen3")")["head_dim"] == 128);
  const Json newer = config(R"("llama", "dtype": "bfloat16", "rope_parameters": {"rope_theta": 5e5,
      "rope_type": "llama3", "factor": 8.0})");
  CHECK(newer["torch_dtype"] == "bfloat16");
  CHECK(newer["rope_theta"] == 5e5);
  CHECK(newer["rope_scaling"]["rope_type"] == "llama3");
  CHECK(newer["rope_scaling"]["factor"] == 8.0);
  CHECK_FALSE(newer["rope_scaling"].contains("rope_theta"));
  const Json normal =
      config(R"("llama", "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"})");
  CHECK(normal["rope_theta"] == 1e6);
  CHECK(normal["rope_scaling"].is_null());
  const Json untyped =
      config(R"("llama", "rope_theta": 1, "rope_parameters": {"rope_theta": 1e6})");
  CHECK(untyped["rope_theta"] == 1e6);
  CHECK(untyped["rope_scaling"].is_null());
  const Json older = config(R"("llama", "rope_scaling": {"type": "linear", "factor": 2.0})");
  CHECK(older["rope_scaling"]["rope_type"] == "linear");
  const Json yarn = config(R"("llama", "rope_scaling": {"type": "yarn", "factor": 8.0,
      "mscale": 0.7, "mscale_all_dim": 0.4})");
  CHECK(yarn["rope_scaling"]["attention_factor"].get<double>() ==
        Approx((0.07 * std::log(8.0) + 1) / (0.04 * std::log(8.0) + 1)));
  CHECK(config(R"("qwen3")")["max_window_layers"] == 28);
  CHECK(config(R"("mistral", "sliding_window": 4096)")["sliding_window"] == 4096);
  CHECK(config(R"("mistral")")["sliding_window"] == 4096);
  CHECK(config(R"("mistral", "sliding_window": null)")["sliding_window"].is_null());
  CHECK(config(R"("qwen2", "sliding_window": 4096)")["sliding_window"].is_null());
  CHECK(config(R"("qwen3", "use_sliding_window": true)")["sliding_window"] == 4096);
  CHECK(
      config(R"("qwen2", "sliding_window": 4096, "use_sliding_window": true)")["sliding_window"] ==
      4096);
}

TEST_CASE("a config of DeepSeek says which layers have experts and what rotates") {
  std::string sizes = kSizes;
  sizes.replace(sizes.find("layers\": 1"), 10, "layers\": 2");
  const auto config = [&](const std::string& more) {
    return open_model(make_directory(str("{\"model_type\": ", more, ", ", sizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json v2 = config(R"("deepseek_v2", "first_k_dense_replace": 1, "q_lora_rank": null)");
  CHECK(v2["mlp_only_layers"] == Json::array({0}));
  CHECK(v2["head_dim"] == 64);
  CHECK(v2["q_lora_rank"].is_null());
  CHECK(v2["num_experts"] == 64);
  CHECK(v2["rope_interleaved"] == true);
  CHECK(config(R"("deepseek_v2")")["q_lora_rank"] == 1536);
  const Json v3 = config(R"("deepseek_v3", "first_k_dense_replace": 0, "moe_layer_freq": 2,
      "rope_interleave": false, "topk_method": "greedy")");
  CHECK(v3["mlp_only_layers"] == Json::array({1}));
  CHECK(v3["rope_interleaved"] == false);
  CHECK(v3["topk_method"] == "noaux_tc");
  const Json glm = config(R"("glm4_moe_lite", "mlp_layer_types": ["sparse", "dense"])");
  CHECK(glm["mlp_only_layers"] == Json::array({1}));
  CHECK(glm["n_group"] == 1);
  for (const char* types : {R"(["dense"])", R"(["dense", "thin"])", R"({"dense": 1})"}) {
    const std::string message = lumen::testing::refusal(ErrorKind::kMalformed, [&] {
      config(str(R"("glm4_moe_lite", "mlp_layer_types": )", types));
    });
    CHECK(lumen::testing::contains(message, "mlp_layer_types: found "));
  }
}

TEST_CASE("configs of mixtures say which layers have experts, and how many") {
  std::string sizes = kSizes;
  sizes.replace(sizes.find("layers\": 1"), 10, "layers\": 4");
  const auto config = [&](const std::string& more) {
    return open_model(make_directory(str(R"({"num_key_value_heads": 2, "model_type": )", more, ", ",
                                         sizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json lfm = config(R"("lfm2_moe", "full_attn_idxs": [2], "tie_embedding": true)");
  CHECK(lfm["layer_types"] == Json::array({"conv", "conv", "full_attention", "conv"}));
  CHECK(lfm["mlp_only_layers"] == Json::array({0, 1}));
  CHECK(lfm["num_experts"] == 32);
  CHECK(lfm["norm_topk_prob"] == true);
  const Json ernie = config(R"("ernie4_5_moe", "moe_num_experts": 5, "moe_k": 3,
      "moe_layer_interval": 2, "moe_layer_start_index": 2, "attention_dropout": 0.1)");
  CHECK(ernie["num_experts"] == 5);
  CHECK(ernie["num_experts_per_tok"] == 3);
  CHECK(sparse_layers(ernie) == std::vector<bool>{false, false, false, true});
  CHECK(ernie["rope_interleaved"] == true);
  CHECK(ernie["attention_dropout"] == 0);
  CHECK(config(R"("ernie4_5_moe", "moe_layer_start_index": 0, "moe_layer_end_index": 2)")
            ["mlp_only_layers"] == Json::array({3}));
  const Json glm = config(R"("glm4_moe", "first_k_dense_replace": 2)");
  CHECK(glm["mlp_only_layers"] == Json::array({0, 1}));
  CHECK(glm["partial_rotary_factor"] == 0.5);
  CHECK(glm["num_nextn_predict_layers"] == 1);
  CHECK(config(R"("glm4_moe", "num_mtp_layers": 0)")["num_nextn_predict_layers"] == 0);
  const Json minimax = config(R"("minimax_m2", "head_dim": 16, "rotary_dim": 8)");
  CHECK(minimax["partial_rotary_factor"] == 0.5);
  CHECK(minimax["num_local_experts"] == 256);
  CHECK(minimax["rope_theta"] == 5e6);
  const Json dots = config(R"("dots1", "n_routed_experts": 8, "first_k_dense_replace": 1)");
  CHECK(dots["num_experts"] == 8);
  CHECK(dots["mlp_only_layers"] == Json::array({0}));
  CHECK(layer_windows(dots) == std::vector<int64_t>(4));  // max_window_layers is 62
  CHECK(dots["sliding_window"] == 4096);
  const Json exaone = config(R"("exaone_moe", "first_last_k_dense_replace": 2,
      "sliding_window_pattern": "LLG", "num_shared_experts": 2)");
  CHECK(exaone["mlp_only_layers"] == Json::array({0, 1}));
  CHECK(exaone["n_shared_experts"] == 2);
  CHECK(layer_windows(exaone) == std::vector<int64_t>{4096, 4096, 0, 0});
  CHECK(config(R"("exaone_moe", "mlp_layer_types": ["dense", "sparse", "dense", "sparse"])")
            ["mlp_only_layers"] == Json::array({0, 2}));
  const Json hunyuan = config(R"("hunyuan_v1_moe", "num_experts": 8, "moe_topk": [2, 2, 2, 2],
      "moe_intermediate_size": [8, 8, 8, 8], "num_shared_expert": [1, 1, 1, 1])");
  CHECK(hunyuan["num_experts"] == 8);
  CHECK(hunyuan["num_experts_per_tok"] == 2);
  CHECK(config(R"("hunyuan_v1_moe", "num_experts": 8)")["num_experts_per_tok"] == 1);
  for (const auto& [text, why] :
       {std::pair(R"("moe_topk": [2, 2, 3, 2])",
                  "moe_topk: layer 2 has the number 3, unlike layer 0"),
        std::pair(R"("moe_intermediate_size": [16, 16])", "moe_intermediate_size 16 is not"),
        std::pair(R"("num_shared_expert": 2)", "num_shared_expert 2 is not supported")}) {
    const std::string message = lumen::testing::refusal(ErrorKind::kUnsupported, [&, text = text] {
      config(str(R"("hunyuan_v1_moe", "num_experts": 8, )", text));
    });
    CHECK(lumen::testing::contains(message, why));
  }
  for (const auto& [text, key] :
       {std::pair(R"("hunyuan_v1_moe", "moe_topk": [])", "moe_topk"),
        std::pair(R"("hunyuan_v1_moe", "num_experts": ["8"])", "num_experts"),
        std::pair(R"("dots1", "num_experts": 8)", "n_routed_experts"),
        std::pair(R"("minimax_m2", "head_dim": 16, "rotary_dim": 17)", "rotary_dim"),
        std::pair(R"("minimax_m2", "head_dim": 16, "rotary_dim": 8, "partial_rotary_factor": 1)",
                  "rotary_dim 8 is not partial_rotary_factor 1 of head_dim 16"),
        std::pair(R"("lfm2_moe", "num_dense_layers": -1)", "num_dense_layers"),
        std::pair(R"("lfm2_moe", "full_attn_idxs": [4])", "full_attn_idxs"),
        std::pair(R"("ernie4_5_moe", "moe_k": 0)", "moe_k"),
        std::pair(R"("ernie4_5_moe", "moe_num_experts": [64, 64])", "moe_num_experts"),
        std::pair(R"("glm4_moe", "n_routed_experts": 0)", "n_routed_experts"),
        std::pair(R"("ernie4_5_moe", "moe_layer_interval": 0)", "moe_layer_interval"),
        std::pair(R"("ernie4_5_moe", "moe_layer_start_index": [0])", "moe_layer_start_index"),
        std::pair(R"("ernie4_5_moe", "moe_layer_end_index": "x")", "moe_layer_end_index"),
        std::pair(R"("glm4_moe", "first_k_dense_replace": 1.5)", "first_k_dense_replace"),
        std::pair(R"("glm4_moe", "num_nextn_predict_layers": -1)", "num_nextn_predict_layers")}) {
    INFO(text);
    CHECK(lumen::testing::contains(
        lumen::testing::refusal(ErrorKind::kMalformed, [&, text = text] { config(text); }), key));
  }
}

TEST_CASE("a config of Gemma 3 is completed as its class has it") {
  const Json config = open_model(make_directory(R"({"model_type": "gemma3", "text_config": {
      "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 7, "vocab_size": 10,
      "rms_norm_offset": 0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
      "sliding_window": 1024}, "eos_token_id": [1, 9]})",
                                                {"language_model.model.embed_tokens.weight"}))
                          .config;
  CHECK(config["model_type"] == "gemma3_text");
  CHECK(config["num_attention_heads"] == 8);
  CHECK(config["num_key_value_heads"] == 4);
  CHECK(config["head_dim"] == 256);
  CHECK(config["rope_theta"] == 1e6);
  CHECK(config["rope_local_base_freq"] == 1e4);
  CHECK(config["hidden_act"] == "gelu_pytorch_tanh");
  CHECK(config["rms_norm_offset"] == 1);  // Hugging Face has no such key
  CHECK(config["tie_word_embeddings"] == true);
  CHECK(config["eos_token_id"] == Json({1, 9}));
  CHECK(layer_windows(config) == std::vector<int64_t>{1024, 1024, 1024, 1024, 1024, 0, 1024});
}

TEST_CASE("configs of GPT-NeoX and StableLM are completed as their classes have them") {
  const auto model = [](const std::string& more, const std::vector<std::string>& names) {
    return open_model(make_directory(str("{", more, ", ", kSizes, "}"), names));
  };
  const ModelFiles neox =
      model(R"("model_type": "gpt_neox", "rotary_pct": 0.5, "head_dim": 3,
      "rotary_emb_base": 500, "num_key_value_heads": 2)",
            {"gpt_neox.embed_in.weight", "gpt_neox.layers.0.attention.bias",
             "gpt_neox.layers.0.attention.masked_bias",
             "gpt_neox.layers.0.attention.rotary_emb.inv_freq", "embed_out.weight"});
  CHECK(neox.config["partial_rotary_factor"] == 0.5);
  CHECK(neox.config["rope_theta"] == 500);
  CHECK(neox.config["num_key_value_heads"] == 4);
  CHECK(neox.config["head_dim"] == 16);
  CHECK(neox.config["hidden_act"] == "gelu");
  CHECK(neox.config["rms_norm_eps"] == 1e-5);
  CHECK(neox.tensors.size() == 2);
  CHECK(neox.tensors.contains("lm_head.weight"));
  CHECK(neox.tensors.contains("model.embed_tokens.weight"));
  const Json plain = model(R"("model_type": "gpt_neox")", {"embed_in.weight"}).config;
  CHECK(plain["partial_rotary_factor"] == 0.25);
  CHECK(plain["rope_theta"] == 10000);
  const Json newer = model(R"("model_type": "gpt_neox", "rope_parameters": {"rope_theta": 300,
      "rope_type": "default", "partial_rotary_factor": 1.0})",
                           {"gpt_neox.embed_in.weight"})
                         .config;
  CHECK(newer["partial_rotary_factor"] == 1.0);
  CHECK(newer["rope_theta"] == 300);
  CHECK(contains(lumen::testing::refusal(ErrorKind::kMalformed,
                                         [&] {
                                           model(R"("model_type": "gpt_neox", "rotary_pct": "x")",
                                                 {"gpt_neox.embed_in.weight"});
                                         }),
                 "key 'rotary_pct': found the string 'x'"));
  const Json stable = model(R"("model_type": "stablelm", "use_qkv_bias": true,
      "num_key_value_heads": 2)",
                            {"model.embed_tokens.weight"})
                          .config;
  CHECK(stable["partial_rotary_factor"] == 0.25);
  CHECK(stable["attention_bias"] == true);
  CHECK(stable["layer_norm_eps"] == 1e-5);
  CHECK(stable["tie_word_embeddings"] == false);
}

TEST_CASE("norms of StableLM's heads are one tensor of all, and one for each in directories") {
  const std::string place = "model.layers.0.self_attn.k_layernorm.";
  const auto numbers = [](float first, int64_t length) {
    Array array = Array::zeros(DType::kF32, {length});
    for (float& number : array.as_mutable<float>()) number = first++;
    return array;
  };
  const NamedArrays apart = {{place + "norms.0.weight", numbers(0, 2)},
                             {place + "norms.1.weight", numbers(2, 2)},
                             {"model.norm.weight", numbers(9, 1)}};
  NamedArrays tensors = apart;
  join_head_norms(tensors);
  REQUIRE(tensors.size() == 2);
  const Array all = tensors.at(place + "weight");
  REQUIRE(all.shape() == Shape{2, 2});
  for (int i = 0; i < 4; ++i) CHECK(all.as<float>()[static_cast<size_t>(i)] == i);
  CHECK(head_norm_name(place + "weight", all, 1) == place + "norms.1.weight");
  CHECK(head_norm_name(place + "weight", numbers(0, 2), 0).empty());  // one for all heads
  split_head_norms(tensors);
  REQUIRE(tensors.size() == 3);
  CHECK(tensors.at(place + "norms.1.weight").as<float>()[0] == 2);
  for (const auto& [name, array] :
       {std::pair("norms.3.weight", numbers(0, 2)), {"norms.2.weight", numbers(0, 3)}}) {
    NamedArrays wrong = apart;
    wrong[place + name] = array;
    CHECK(contains(
        lumen::testing::refusal(ErrorKind::kMalformed, [&] { join_head_norms(wrong); }),
        "norms of heads of 'model.layers.0.self_attn.k_layernorm.weight': found 3 up to number "));
  }
}

TEST_CASE("names of GPT-NeoX are those of other models, and back") {
  const Json config = {{"model_type", "gpt_neox"}};
  for (const auto& [stored, own] :
       {std::pair("gpt_neox.embed_in.weight", "model.embed_tokens.weight"),
        {"gpt_neox.final_layer_norm.bias", "model.norm.bias"},
        {"gpt_neox.layers.3.attention.dense.bias", "model.layers.3.attention.dense.bias"},
        {"gpt_neox.layers.3.attention.dense.lora_A.weight",
         "model.layers.3.attention.dense.lora_A.weight"},
        {"embed_out.weight", "lm_head.weight"}}) {
    CHECK(usual_name(config, stored) == own);
    CHECK(stored_name(config, own) == stored);
  }
  // What transformers 5 calls the module.
  CHECK(stored_name(config, "lm_head.lora_A.weight") == "lm_head.lora_A.weight");
  CHECK(usual_name(config, "embed_out.lora_A.weight") == "lm_head.lora_A.weight");
}

TEST_CASE("an adapter to a part of a model that reads more than text names it, and is read so") {
  const Json part = {{"model_type", "qwen3_vl_text"}, {"language_model_part", true}};
  const std::string own = "model.layers.0.mlp.up_proj.lora_A.weight";
  const std::string stored = "model.language_model.layers.0.mlp.up_proj.lora_A.weight";
  CHECK(stored_name(part, own) == stored);
  CHECK(stored_name(part, "model.norm.weight") == "model.norm.weight");  // alone in its directory
  CHECK(has_own_names(part));
  CHECK_FALSE(has_own_names({{"model_type", "qwen3_vl_text"}}));
  CHECK(name_in_language_model(stored) == own);
  CHECK(name_in_language_model("language_model.model.norm.weight") == "model.norm.weight");
  CHECK(name_in_language_model("model.visual.norm.weight").empty());
  const auto config = [](const char* type) {
    return language_model_config({{"model_type", type}, {"text_config", {{"vocab_size", 3}}}});
  };
  CHECK(config("gemma3")["language_model_part"] == true);
  CHECK_FALSE(config("qwen3_5").contains("language_model_part"));
}

TEST_CASE("a config of Ling 2.0 is completed as the class beside it has it, by either name") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str("{", keys, kSizes, "}"),
                                     {"model.word_embeddings.weight", "lm_head.weight"}));
  };
  const ModelFiles ling = config(R"("model_type": "bailing_moe",
      "architectures": ["BailingMoeV2ForCausalLM"], "rotary_dim": 64, "norm_topk_prob": false,)");
  CHECK(ling.config["model_type"] == "bailing_moe_v2");
  CHECK(ling.tensors.contains("model.embed_tokens.weight"));
  CHECK(ling.config["partial_rotary_factor"] == 0.5);
  CHECK(ling.config["num_experts"] == 256);
  CHECK(ling.config["n_shared_experts"] == 1);
  CHECK(ling.config["n_group"] == 8);
  CHECK(ling.config["norm_topk_prob"] == true);  // which the class disregards
  CHECK(ling.config["mlp_only_layers"] == Json::array({0}));
  CHECK(stored_name(ling.config, "model.embed_tokens.weight") == "model.word_embeddings.weight");
  const Json other = config(R"("model_type": "bailing_moe_v2", "partial_rotary_factor": 0.25,
      "num_shared_experts": 2, "num_experts_per_tok": 1, "first_k_dense_replace": 0,)")
                         .config;
  CHECK(other["partial_rotary_factor"] == 0.25);
  CHECK(other["n_shared_experts"] == 2);
  CHECK(other["norm_topk_prob"] == false);
  CHECK(other["mlp_only_layers"].empty());
  CHECK(config(R"("model_type": "bailing_moe_v2",)").config["rope_theta"] == 600000);
}

TEST_CASE("a config of Gemma 3n is completed as its class has it, widths of layers apart") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(
                          str(R"({"model_type": "gemma3n", "vision_config": {}, "audio_config": {},
                                  "text_config": {"sliding_window": 7, )",
                              keys, R"("num_hidden_layers": 12}})"),
                          {"model.language_model.embed_tokens.weight",
                           "model.audio_tower.conformer.0.norm.weight"}))
        .config;
  };
  const Json all = config("");
  CHECK(all["model_type"] == "gemma3n_text");
  CHECK(all["vocab_size"] == 262400);
  CHECK(all["vocab_size_per_layer_input"] == 262144);
  CHECK(all["hidden_size"] == 2048);
  CHECK(all["intermediate_size"] == 16384);
  CHECK(all["num_kv_shared_layers"] == 15);
  CHECK(all["altup_num_inputs"] == 4);
  CHECK(all["laurel_rank"] == 64);
  CHECK(all["rope_theta"] == 1e6);
  CHECK(all["rope_local_base_freq"] == 1e4);
  CHECK(all["hidden_act"] == "gelu_pytorch_tanh");
  CHECK(all["final_logit_softcapping"] == 30);
  CHECK(all["layer_types"] == periodic_layer_types(12, 5));
  Json sparsities(std::vector<double>(12, 0.95));
  sparsities[10] = sparsities[11] = 0;
  CHECK(all["activation_sparsity_pattern"] == sparsities);
  CHECK(config(R"("final_logit_softcapping": null,)")["final_logit_softcapping"].is_null());
  const Json same = config(R"("intermediate_size": [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8],)");
  CHECK(same["intermediate_size"] == 8);
  CHECK_FALSE(same.contains("intermediate_sizes"));
  Json unlike = config(R"("intermediate_size": [4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8],)");
  CHECK(unlike["intermediate_size"] == 4);
  CHECK(unlike["intermediate_sizes"][1] == 8);
  restore_own_keys(unlike);
  CHECK(unlike["intermediate_size"].size() == 12);
  CHECK_FALSE(unlike.contains("intermediate_sizes"));
  for (const char* wrong : {"[8]", "[8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0]"}) {
    CHECK(lumen::testing::contains(
        lumen::testing::refusal(ErrorKind::kMalformed,
                                [&] { config(str(R"("intermediate_size": )", wrong, ",")); }),
        "intermediate_size: found "));
  }
}

TEST_CASE("a config of Gemma 4 says the sizes of both kinds of layers, in two ways") {
  std::string sizes = kSizes;
  sizes.replace(sizes.find("layers\": 1"), 10, "layers\": 2");
  const auto config = [&](const std::string& keys) {
    return open_model(make_directory(
                          str(R"({"model_type": "gemma4_text", "head_dim": 4, )", keys, sizes, "}"),
                          {"model.embed_tokens.weight"}))
        .config;
  };
  const Json all = config("");
  CHECK(all["layer_types"] == Json::array({"sliding_attention", "full_attention"}));
  CHECK(all["global_head_dim"] == 512);
  CHECK(all["num_global_key_value_heads"] == all["num_key_value_heads"]);
  CHECK(all["hidden_size_per_layer_input"] == 256);
  CHECK(all["rope_scaling"]["rope_type"] == "proportional");
  CHECK(all["rope_scaling"]["partial_rotary_factor"] == 0.25);
  CHECK(all["rope_local_base_freq"] == 1e4);
  CHECK_FALSE(all.contains("partial_rotary_factor"));
  CHECK(config(R"("attention_k_eq_v": true, "num_global_key_value_heads": 1,)")
            ["num_global_key_value_heads"] == 1);
  const Json listed = config(R"("per_layer_config": {"01": {"head_dim": 8}},)");
  CHECK(listed["global_head_dim"] == 8);
  CHECK(listed["num_global_key_value_heads"] == all["num_key_value_heads"]);
  const auto refused = [&](ErrorKind kind, const std::string& keys, const char* why) {
    const std::string message = lumen::testing::refusal(kind, [&] { config(keys); });
    CAPTURE(message);
    CHECK(lumen::testing::contains(message, why));
  };
  refused(ErrorKind::kUnsupported, R"("per_layer_config": {"0": {"head_dim": 8}},)",
          "head_dim of layer 0 is the number 8, unlike that of other layers of its type");
  for (const char* layer : {R"("2": {})", R"("x": {})", R"("0": 3)"}) {
    refused(ErrorKind::kMalformed, str(R"("per_layer_config": {)", layer, "},"),
            "expected an object by the number of a layer, below 2");
  }
}

TEST_CASE("a config of Gemma 1 and 2 is completed as its class has it") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": )", keys, ", ", kSizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json first = config(R"("gemma", "hidden_act": "gelu")");
  CHECK(first["hidden_act"] == "gelu_pytorch_tanh");
  CHECK(first["head_dim"] == 256);
  CHECK(first["rms_norm_offset"] == 1);
  CHECK(first["tie_word_embeddings"] == true);
  CHECK_FALSE(first.contains("attn_logit_softcapping"));
  const Json second = config(R"("gemma2", "final_logit_softcapping": null)");
  CHECK(second["attn_logit_softcapping"] == 50);
  CHECK(second["final_logit_softcapping"].is_null());
  CHECK(second["query_pre_attn_scalar"] == 256);
  CHECK(config(R"("gemma2", "hidden_activation": "gelu")")["hidden_act"] == "gelu");
  CHECK(second["rope_theta"] == 10000);
  CHECK(second["sliding_window"] == 4096);
  CHECK(layer_windows(second)[0] == 4096);
  CHECK(config(R"("gemma2", "sliding_window": null)")["sliding_window"].is_null());
}

TEST_CASE("the windows of EXAONE are those of a number or of letters") {
  const auto windows = [](const Json& pattern) {
    Json config = {{"model_type", "exaone4"}, {"num_hidden_layers", 5}, {"sliding_window", 7}};
    if (pattern != "none") config["sliding_window_pattern"] = pattern;
    return layer_windows(classic_config(config, true));
  };
  CHECK(windows("none") == std::vector<int64_t>{7, 7, 7, 0, 7});  // 4
  CHECK(windows(2) == std::vector<int64_t>{7, 0, 7, 0, 7});
  CHECK(windows("LG") == std::vector<int64_t>{7, 0, 7, 0, 0});
  CHECK(windows(nullptr) == std::vector<int64_t>(5));
  CHECK(testing::contains(testing::refusal(ErrorKind::kMalformed, [&] { windows("LX"); }),
                          "sliding_window_pattern: found 'LX', expected a number of layers"));
  const Json none = {{"model_type", "exaone4"}, {"sliding_window", nullptr}};
  CHECK(layer_windows(classic_config(none, true)) == std::vector<int64_t>(32));
}

TEST_CASE("longrope knows its lengths") {
  Json config = Json::parse(str(R"({"model_type": "phi3", "max_position_embeddings": 131072,
      "original_max_position_embeddings": 4096, "rope_scaling": {"type": "su",
      "short_factor": [1.0], "long_factor": [2.0]}, )",
                                kSizes, "}"));
  const Json scaling = classic_config(config, true)["rope_scaling"];
  CHECK(scaling["rope_type"] == "longrope");
  CHECK(scaling["original_max_position_embeddings"] == 4096);
  CHECK(scaling["attention_factor"].get<double>() ==
        Approx(std::sqrt(1 + std::log(32.0) / std::log(4096.0))));
  config["rope_scaling"]["attention_factor"] = 1.5;
  CHECK(classic_config(config, true)["rope_scaling"]["attention_factor"] == 1.5);
}

TEST_CASE("each layer of a Qwen model has its window or none") {
  using Windows = std::vector<int64_t>;
  Json config = {{"num_hidden_layers", 4}, {"sliding_window", 48}, {"max_window_layers", 3}};
  CHECK(layer_windows(config) == Windows{0, 0, 0, 48});
  config["max_window_layers"] = 28;
  CHECK(layer_windows(config) == Windows{0, 0, 0, 0});
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "sliding_attention"};
  CHECK(layer_windows(config) == Windows{48, 0, 0, 48});
  const auto refused = [&](ErrorKind kind, const char* words) {
    return testing::contains(testing::refusal(kind, [&] { layer_windows(config); }), words);
  };
  for (const Json& none : {Json(), Json(0)}) {
    config["sliding_window"] = none;
    CHECK(refused(ErrorKind::kMalformed, "layer 0 is 'sliding_attention', but"));
  }
  config["layer_types"] = {"full_attention", "full_attention", "chunked_attention",
                           "full_attention"};
  CHECK(refused(ErrorKind::kUnsupported, "layer 2 is the string 'chunked_attention'"));
  for (const Json& types : {Json({"full_attention"}), Json("full_attention")}) {
    config["layer_types"] = types;
    CHECK(refused(ErrorKind::kMalformed, "expected an array of 4 names"));
  }
}

TEST_CASE("a config of Qwen3-MoE says which layers have experts") {
  Json config = {{"num_hidden_layers", 4}};
  CHECK(sparse_layers(config) == std::vector<bool>{true, true, true, true});
  config["decoder_sparse_step"] = 2;
  CHECK(sparse_layers(config) == std::vector<bool>{false, true, false, true});
  config["mlp_only_layers"] = Json::array({3});
  CHECK(sparse_layers(config) == std::vector<bool>{false, true, false, false});
  for (const Json& bad : {Json::array({4}), Json::array({-1}), Json::array({"a"}), Json(2)}) {
    config["mlp_only_layers"] = bad;
    CHECK(contains(testing::refusal(ErrorKind::kMalformed, [&] { sparse_layers(config); }),
                   "mlp_only_layers: found"));
  }
}

}  // namespace
}  // namespace lumen::io
