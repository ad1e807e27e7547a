// Families whose config.json calls what all have otherwise, as open_model gives it, and back.
#include <algorithm>

#include "lib/base/testing.h"
#include "lib/io/backbone_names.h"
#include "lib/io/model_files.h"
#include "lib/io/test_directories.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

ModelFiles model_of(const std::string& keys, const std::vector<std::string>& names) {
  return open_model(make_directory(str("{", keys, "}"), names));
}

TEST_CASE("a config of Falcon is completed as its class has it") {
  const auto config = [](const std::string& more) {
    return model_of(str(R"("model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2,
        "vocab_size": 4, "num_attention_heads": 4)",
                        more),
                    {"transformer.word_embeddings.weight"})
        .config;
  };
  const Json first = config("");
  CHECK(first["num_key_value_heads"] == 1);
  CHECK(first["head_dim"] == 16);
  CHECK(first["intermediate_size"] == 256);
  CHECK(first["hidden_act"] == "gelu");
  CHECK(first["rms_norm_eps"] == 1e-5);
  CHECK(first["tie_word_embeddings"] == true);
  const Json grouped =
      config(R"(, "new_decoder_architecture": true, "num_kv_heads": 2, "bias": true,
      "ffn_hidden_size": 96)");
  CHECK(grouped["num_key_value_heads"] == 2);
  CHECK(grouped["intermediate_size"] == 96);
  CHECK(grouped["attention_bias"] == true);
  CHECK(config(R"(, "multi_query": false)")["num_key_value_heads"] == 4);
  Json stored = grouped;
  restore_own_keys(stored);
  CHECK(stored["ffn_hidden_size"] == 96);
  CHECK(stored["bias"] == true);
  CHECK_FALSE(stored.contains("intermediate_size"));
}

TEST_CASE("configs of GPT-J, GPT-BigCode and OPT are completed as their classes have them") {
  const std::string sizes = R"(, "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 4)";
  const Json gptj = model_of(str(R"("model_type": "gptj", "rotary_dim": 8)", sizes),
                             {"transformer.wte.weight", "transformer.h.0.attn.bias",
                              "transformer.h.0.attn.masked_bias", "lm_head.weight"})
                        .config;
  CHECK(gptj["partial_rotary_factor"] == 0.5);
  CHECK(gptj["rope_interleaved"] == true);
  CHECK(gptj["intermediate_size"] == 256);
  CHECK(gptj["max_position_embeddings"] == 2048);
  CHECK(gptj["hidden_act"] == "gelu_new");
  CHECK(gptj["tie_word_embeddings"] == false);
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] {
                           model_of(str(R"("model_type": "gptj", "rotary_dim": 17)", sizes),
                                    {"transformer.wte.weight"});
                         }),
                 "rotary_dim"));
  const ModelFiles code =
      model_of(str(R"("model_type": "gpt_bigcode", "activation_function": "gelu")", sizes),
               {"transformer.wte.weight", "transformer.wpe.weight"});
  CHECK(code.config["num_key_value_heads"] == 1);
  CHECK(code.config["hidden_act"] == "gelu");
  CHECK(code.config["attn_pdrop"] == 0.1);
  CHECK(code.config["layer_norm_epsilon"] == 1e-5);
  CHECK(code.tensors.contains("model.wpe.weight"));
  Json stored = code.config;
  restore_own_keys(stored);
  CHECK(stored["n_inner"] == 256);
  CHECK(stored["activation_function"] == "gelu");
  for (const char* key : {"hidden_size", "hidden_act", "num_key_value_heads", "rope_theta"}) {
    CHECK_FALSE(stored.contains(key));
  }
  const Json all =
      model_of(str(R"("model_type": "gpt_bigcode", "multi_query": false)", sizes), {"wte.weight"})
          .config;
  CHECK(all["num_key_value_heads"] == 4);
  const ModelFiles opt =
      model_of(R"("model_type": "opt", "hidden_size": 64, "ffn_dim": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 4)",
               {"decoder.embed_tokens.weight", "decoder.embed_positions.weight",
                "decoder.final_layer_norm.weight", "decoder.layers.1.final_layer_norm.weight"});
  CHECK(opt.config["intermediate_size"] == 96);
  CHECK(opt.config["hidden_act"] == "relu");
  CHECK(opt.config["rms_norm_eps"] == 1e-5);
  CHECK(opt.config["dropout"] == 0.1);
  CHECK(opt.tensors.contains("model.norm.weight"));
  CHECK(opt.tensors.contains("model.layers.1.final_layer_norm.weight"));
}

TEST_CASE(
    "configs of EXAONE 3, InternLM3, OLMo and MiniCPM are completed as their classes have them") {
  const ModelFiles exaone = model_of(
      R"("model_type": "exaone", "hidden_size": 64, "num_layers": 2, "num_attention_heads": 8,
         "intermediate_size": 96, "vocab_size": 4, "layer_norm_epsilon": 1e-6,
         "activation_function": "silu")",
      {"transformer.wte.weight", "transformer.h.0.attn.attention.q_proj.weight"});
  CHECK(exaone.config["num_hidden_layers"] == 2);
  CHECK(exaone.config["num_key_value_heads"] == 8);
  CHECK(exaone.config["rope_theta"] == 500000);
  CHECK(exaone.config["rms_norm_eps"] == 1e-6);
  CHECK(exaone.tensors.contains("model.layers.0.self_attn.q_proj.weight"));
  const auto internlm = [](const std::string& more) {
    return model_of(str(R"("model_type": "internlm3", )", kSizes, more),
                    {"model.embed_tokens.weight"})
        .config;
  };
  CHECK(internlm("")["num_key_value_heads"] == 2);
  CHECK(internlm("")["head_dim"] == 128);
  CHECK(internlm("")["rms_norm_eps"] == 1e-5);
  const Json biased = internlm(R"(, "bias": true, "qkv_bias": true)");
  CHECK(biased["attention_bias"] == true);
  CHECK(biased["mlp_bias"] == true);
  CHECK(contains(
      refusal(ErrorKind::kUnsupported, [&] { internlm(R"(, "bias": true, "qkv_bias": false)"); }),
      "qkv_bias false with bias true is not supported"));
  const Json olmo = model_of(str(R"("model_type": "olmo", "rms_norm_eps": 0.5, )", kSizes),
                             {"model.embed_tokens.weight"})
                        .config;
  CHECK(olmo["rms_norm_eps"] == 1e-5);
  CHECK(olmo["tie_word_embeddings"] == false);
  const Json minicpm = model_of(str(R"("model_type": "minicpm", "rms_norm_eps": 1e-5, )", kSizes),
                                {"model.embed_tokens.weight"})
                           .config;
  CHECK(minicpm["scale_emb"] == 1);
  CHECK(minicpm["dim_model_base"] == 1);
}

TEST_CASE("configs of Llamas by other names are completed as their classes have them") {
  const auto config = [](const std::string& keys) {
    return model_of(
               str("\"model_type\": ", keys, ", \"hidden_size\": 64, \"intermediate_size\": 8, ",
                   "\"num_hidden_layers\": 2, \"num_attention_heads\": 40, \"vocab_size\": 4"),
               {"model.embed_tokens.weight", "lm_head.weight"})
        .config;
  };
  const Json cwm = config(R"("cwm", "sliding_window": 9)");
  REQUIRE(cwm["layer_types"].size() == cwm["num_hidden_layers"]);
  CHECK(cwm["layer_types"][0] == "full_attention");
  CHECK(cwm["layer_types"][1] == "sliding_attention");
  CHECK(cwm["sliding_window"] == 9);
  CHECK(cwm["rope_scaling"]["factor"] == 16);
  CHECK_FALSE(io::find_value(config(R"("cwm", "rope_parameters": {"rope_type": "default"})"),
                             "rope_scaling"));
  const Json helium = config(R"("helium")");
  CHECK(helium["rope_interleaved"] == true);
  CHECK(helium["rms_norm_eps"] == 1e-8);
  CHECK(config(R"("iquestcoder")")["num_key_value_heads"] == 8);
  for (const char* more : {R"("clip_qkv": 3)", R"("use_sliding_window": true)"}) {
    CHECK(
        contains(refusal(ErrorKind::kUnsupported, [&] { config(str(R"("iquestcoder", )", more)); }),
                 "are not supported for model_type 'iquestcoder'"));
  }
  CHECK(config(R"("hyperclovax", "head_dim": 16)")["attention_multiplier"] == 0.25);
}

TEST_CASE("configs of Llama 4 and AFMoE are completed as their classes have them") {
  const auto config = [](const std::string& keys) {
    return model_of(str("\"hidden_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": "
                        "8, \"vocab_size\": 4, \"model_type\": ",
                        keys),
                    {"model.embed_tokens.weight", "lm_head.weight"})
        .config;
  };
  const Json scout = config(R"("llama4_text", "no_rope_layers": [], "layer_types": ["x"])");
  CHECK(scout["mlp_only_layers"] == Json::array());
  CHECK(scout["rope_interleaved"] == true);
  CHECK(scout["attention_chunk_size"] == 8192);
  CHECK(scout["intermediate_size_mlp"] == 16384);
  CHECK_FALSE(scout.contains("no_rope_layers"));
  CHECK(config(R"("llama4_text", "interleave_moe_layer_step": 2)")["mlp_only_layers"] ==
        Json({0, 2}));
  CHECK(config(R"("llama4_text", "moe_layers": [3, 0])")["mlp_only_layers"] == Json({1, 2}));
  CHECK(contains(
      refusal(ErrorKind::kMalformed, [&] { config(R"("llama4_text", "moe_layers": [4])"); }),
      "moe_layers"));
  const Json trinity = config(R"("afmoe", "num_dense_layers": 2, "route_scale": 2.5)");
  CHECK(trinity["mlp_only_layers"] == Json({0, 1}));
  CHECK(trinity["layer_types"][3] == "full_attention");
  CHECK(trinity["layer_types"][2] == "sliding_attention");
  CHECK(trinity["n_shared_experts"] == 2);
  CHECK(trinity["routed_scaling_factor"] == 2.5);
}

TEST_CASE("layers of older families have their names in files, and those of Llama here") {
  const Json exaone = {{"model_type", "exaone"}};
  for (const auto& [stored, own] :
       {std::pair("transformer.wte.weight", "model.embed_tokens.weight"),
        {"transformer.ln_f.weight", "model.norm.weight"},
        {"transformer.h.3.ln_1.weight", "model.layers.3.input_layernorm.weight"},
        {"transformer.h.3.attn.attention.q_proj.weight", "model.layers.3.self_attn.q_proj.weight"},
        {"transformer.h.3.attn.attention.out_proj.weight",
         "model.layers.3.self_attn.o_proj.weight"},
        {"transformer.h.3.mlp.c_fc_1.weight", "model.layers.3.mlp.up_proj.weight"},
        {"lm_head.weight", "lm_head.weight"}}) {
    CHECK(usual_name(exaone, stored) == own);
    CHECK(stored_name(exaone, own) == stored);
  }
  // Adapters name the modules of transformers, which are Llama's; older ones those of the files.
  const std::string addition = "model.layers.3.mlp.up_proj.lora_A.weight";
  CHECK(stored_name(exaone, addition) == addition);
  CHECK(usual_name(exaone, "transformer.h.3.mlp.c_fc_1.lora_A.weight") == addition);

  const std::string norm = "model.layers.0.input_layernorm.weight";
  Json falcon = {{"model_type", "falcon"}};
  CHECK(stored_name(falcon, norm) == "transformer.h.0.input_layernorm.weight");
  falcon["new_decoder_architecture"] = true;
  CHECK(stored_name(falcon, norm) == "transformer.h.0.ln_mlp.weight");
  CHECK(usual_name(falcon, "transformer.h.0.ln_mlp.weight") == norm);
  CHECK(stored_name(falcon, "model.layers.0.self_attention.dense.lora_A.weight") ==
        "transformer.h.0.self_attention.dense.lora_A.weight");
  falcon["num_ln_in_parallel_attn"] = 1;
  CHECK(stored_name(falcon, norm) == "transformer.h.0.input_layernorm.weight");

  const Json opt = {{"model_type", "opt"}};
  CHECK(stored_name(opt, "model.layers.0.final_layer_norm.bias") ==
        "model.decoder.layers.0.final_layer_norm.bias");
  CHECK(stored_name(opt, "model.norm.bias") == "model.decoder.final_layer_norm.bias");
}

}  // namespace
TEST_CASE("configs of newer families are completed as their classes have them") {
  const auto config = [](const std::string& type, const std::string& keys = "") {
    return model_of(str("\"model_type\": \"", type, "\", \"hidden_size\": 64, ",
                        "\"intermediate_size\": 8, \"num_hidden_layers\": 4, ",
                        "\"num_attention_heads\": 40, \"vocab_size\": 4", keys),
                    {"model.embed_tokens.weight", "lm_head.weight"})
        .config;
  };
  CHECK(config("nanochat")["final_logit_softcapping"] == 15);
  CHECK(config("nanochat", R"(, "final_logit_softcapping": null)")["final_logit_softcapping"]
            .is_null());
  CHECK(config("nanochat")["hidden_act"] == "relu2");
  CHECK(config("bitnet")["num_key_value_heads"] == 5);
  CHECK(config("bitnet")["rope_theta"] == 500000);
  CHECK(config("jais2")["rms_norm_eps"] == 1e-5);
  CHECK(config("jais2")["mlp_bias"] == true);
  const Json ministral = config("ministral");
  CHECK(ministral["sliding_window"] == 4096);
  CHECK(ministral["layer_types"][3] == "sliding_attention");
  CHECK(config("ministral", R"(, "sliding_window": null)")["layer_types"][0] == "full_attention");
  const Json vault = config("vaultgemma", R"(, "attn_logit_softcapping": null)");
  CHECK(vault["sliding_window"] == 4096);
  CHECK(vault["attn_logit_softcapping"].is_null());
  CHECK(vault["final_logit_softcapping"] == 30);
  const Json lfm = config("lfm3", R"(, "norm_eps": 1e-4)");
  CHECK(lfm["layer_types"] == Json({"conv", "conv", "full_attention", "conv"}));
  CHECK(lfm["rope_scaling"]["rope_type"] == "proportional");
  CHECK(lfm["rms_norm_eps"] == 1e-4);
  const Json swash = config("granite_swa");
  CHECK(swash["layer_types"][0] == "full_attention");
  CHECK(swash["sliding_window"] == 128);
  const Json minicpm = config("minicpm3");
  CHECK(minicpm["v_head_dim"] == 1);
  CHECK(minicpm["head_dim"] == 32);
  CHECK(minicpm["scale_depth"] == 1.4);
  CHECK(config("minicpm3", R"(, "scale_depth": null)")["scale_depth"] == 2);
  CHECK(config("minicpm3", R"(, "dim_model_base": null)")["dim_model_base"] == 64);
  const Json youtu = config("youtu");
  CHECK(youtu["rope_interleaved"] == true);
  CHECK(youtu["q_lora_rank"] == 1536);
  CHECK(youtu["num_key_value_heads"] == 40);
  const Json solar = config("solar_open", R"(, "num_key_value_heads": 8)");
  CHECK(solar["partial_rotary_factor"] == 1);
  CHECK(solar["mlp_only_layers"] == Json::array());
  const Json mellum = config("mellum", R"(, "num_local_experts": 6, "num_key_value_heads": 8,
      "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"])");
  CHECK(mellum["num_experts"] == 6);
  CHECK(mellum["mlp_only_layers"] == Json({1}));
  CHECK(mellum["rope_local_base_freq"] == 1e4);
}

TEST_CASE("configs of BLOOM and MPT are read by the names that they have") {
  const Json bloom = model_of(R"("model_type": "bloom", "n_embed": 64, "n_layer": 3, "n_head": 4,
      "seq_length": 512, "vocab_size": 4, "layer_norm_epsilon": 1e-4)",
                              {"word_embeddings.weight", "h.0.input_layernorm.weight"})
                         .config;
  CHECK(bloom["hidden_size"] == 64);
  CHECK(bloom["intermediate_size"] == 256);
  CHECK(bloom["num_key_value_heads"] == 4);
  CHECK(bloom["max_position_embeddings"] == 512);
  CHECK(bloom["rms_norm_eps"] == 1e-4);
  const auto mpt = [](const std::string& more) {
    return model_of(str(R"("model_type": "mpt", "d_model": 64, "n_layers": 3, "n_heads": 4,
        "max_seq_len": 512, "vocab_size": 4)",
                        more),
                    {"transformer.wte.weight", "transformer.blocks.0.norm_1.weight"});
  };
  const ModelFiles plain = mpt("");
  CHECK(plain.config["num_hidden_layers"] == 3);
  CHECK(plain.config["max_position_embeddings"] == 512);
  CHECK(plain.tensors.contains("model.layers.0.norm_1.weight"));
  CHECK(mpt(R"(, "attn_config": {"attn_pdrop": 0.5})").config["attn_pdrop"] == 0.5);
  CHECK(contains(refusal(ErrorKind::kUnsupported, [&] { mpt(R"(, "expansion_ratio": 2)"); }),
                 "expansion_ratio 2 is not supported"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { mpt(R"(, "attn_config": [])"); }),
                 "attn_config"));
}

}  // namespace lumen::io
