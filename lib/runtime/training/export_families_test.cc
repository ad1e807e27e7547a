// What training leaves behind of families of models: adapters that PEFT, and whole models that
// transformers would read.
#include "lib/io/safetensors.h"
#include "lib/runtime/training/trained_families.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::check_same_logits;
using testing::check_training_on;
using testing::exported_logits;
using testing::kLlama;
using testing::lora_recipe;
using testing::losses;
using testing::mixture_config;
using testing::random_base;
using testing::text_recipe;
using testing::whole_recipe;

TEST_CASE(
    "mixtures with Gated DeltaNets are trained from directories and GGUF, whole and in part") {
  for (const char* type : {"qwen3_5_moe_text", "qwen3_next"}) {
    io::Json config = mixture_config(type);
    for (const char* key : {"mlp_only_layers", "sliding_window", "num_local_experts"}) {
      config.erase(key);
    }
    config.update({{"shared_expert_intermediate_size", 20},
                   {"layer_types", {"linear_attention", "full_attention"}},
                   {"linear_key_head_dim", 8},
                   {"linear_value_head_dim", 8},
                   {"linear_num_key_heads", 2},
                   {"linear_num_value_heads", 4}});
    INFO(type);
    const bool fused = type == std::string("qwen3_next");
    check_training_on(
        random_base(config),
        {.settings = {"train.router_aux_loss_coef=0.1"},
         .adapter =
             [&](const NamedArrays& adapter, const std::string& place, bool from_gguf) {
               const bool doubled = fused && from_gguf;
               const std::string layer = "base_model.model.model.layers.0.linear_attn.";
               const char* const inputs = fused ? "in_proj_qkvz" : "in_proj_qkv";
               CHECK(adapter.at(layer + inputs + ".lora_A.weight").shape()[0] == (doubled ? 4 : 2));
               CHECK(adapter.contains(layer + "in_proj_z.lora_A.weight") != fused);
               const io::Json peft = io::read_json(place + "/adapter_config.json");
               CHECK(peft.contains("rank_pattern") == doubled);
               // By these names PEFT takes experts of Qwen3-Next for meant.
               CHECK(peft.contains("target_parameters") == fused);
               if (fused) {
                 CHECK(peft["target_parameters"][0] ==
                       "model.layers.0.mlp.shared_expert.down_proj.weight");
               }
               if (doubled) {
                 CHECK(peft["alpha_pattern"]["in_proj_qkvz"] == 16);
               }
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string&) {
               CHECK(tensors.contains(str("model.layers.0.mlp.experts.",
                                          fused ? "2.up_proj.weight" : "gate_up_proj")));
               CHECK(tensors.contains("model.layers.0.linear_attn.A_log"));
               CHECK(tensors.contains("model.layers.0.linear_attn.in_proj_qkvz.weight") == fused);
             }});
  }
}

TEST_CASE("families that GGUF does not have are trained, and written as transformers has them") {
  struct Family {
    const char *type, *module, *tensor, *key;  // of an adapter; of a whole model and its config
    io::Json more;
  };
  const Family families[] = {
      {"gptj",
       "transformer.h.1.mlp.fc_in",
       "transformer.h.1.attn.out_proj.weight",
       "rotary_dim",
       {{"n_embd", 32},
        {"n_layer", 2},
        {"n_head", 4},
        {"n_positions", 64},
        {"n_inner", 24},
        {"rotary_dim", 4},
        {"layer_norm_epsilon", 1e-5}}},
      {"opt",
       "model.decoder.layers.1.fc1",
       "model.decoder.embed_positions.weight",
       "do_layer_norm_before",
       {{"ffn_dim", 24},
        {"do_layer_norm_before", true},
        {"word_embed_proj_dim", 32},
        {"activation_function", "relu"}}},
      {"helium",
       "model.layers.1.mlp.up_proj",
       "model.layers.1.mlp.up_proj.weight",
       "rms_norm_eps",
       {{"num_key_value_heads", 2}, {"head_dim", 8}, {"rms_norm_eps", 1e-8}}},
      {"cwm",
       "model.layers.1.mlp.up_proj",
       "model.layers.1.mlp.up_proj.weight",
       "layer_types",
       {{"num_key_value_heads", 2},
        {"head_dim", 8},
        {"sliding_window", 8},
        {"layer_types", {"sliding_attention", "full_attention"}}}},
      {"hyperclovax",
       "model.layers.1.mlp.up_proj",
       "model.layers.1.post_norm1.weight",
       "logits_scaling",
       {{"num_key_value_heads", 2},
        {"use_post_norm", true},
        {"attention_multiplier", 0.3},
        {"residual_multiplier", 0.5},
        {"embedding_multiplier", 2.0},
        {"logits_scaling", 0.5}}}};
  for (const Family& family : families) {
    INFO(family.type);
    io::Json config = {{"model_type", family.type},    {"hidden_size", 32},
                       {"intermediate_size", 24},      {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},     {"vocab_size", 300},
                       {"max_position_embeddings", 64}};
    config.update(family.more);
    check_training_on(
        random_base(config),
        {.adapter =
             [&](const NamedArrays& adapter, const std::string&, bool) {
               CHECK(adapter.contains(str("base_model.model.", family.module, ".lora_A.weight")));
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string& place) {
               CHECK(tensors.contains(family.tensor));
               const io::Json written = io::read_json(place + "/config.json");
               CHECK(written["model_type"] == family.type);
               CHECK(written[family.key] == family.more[family.key]);
             },
         .in_gguf = false});
  }
}

// In GGUF, and beside experts also here, two layers are in the place of one in PEFT.
TEST_CASE("magnitudes of layers that become one are those of its rows") {
  io::Json delta = mixture_config("qwen3_next"), granite = mixture_config("granitemoehybrid");
  for (const char* key : {"mlp_only_layers", "sliding_window"}) {
    delta.erase(key);
    granite.erase(key);
  }
  delta.update({{"shared_expert_intermediate_size", 20},
                {"layer_types", {"linear_attention", "full_attention"}},
                {"linear_key_head_dim", 8},
                {"linear_value_head_dim", 8},
                {"linear_num_key_heads", 2},
                {"linear_num_value_heads", 4}});
  granite.update({{"shared_intermediate_size", 20},
                  {"layer_types", {"attention", "attention"}},
                  {"mamba_n_heads", 4},
                  {"mamba_d_head", 16}});
  const auto check = [](const io::Json& config, const std::string& exclude,
                        const std::string& layer) {
    const std::string base = random_base(config), gguf = base + "/model.gguf";
    ConvertOptions options;
    options.model = base;
    options.output = gguf;
    options.type = "f32";
    REQUIRE(convert(options) == 0);
    const auto recipe = [&](std::vector<std::string> settings) {
      settings.insert(settings.end(), {"lora.dora=true", "data.on_too_long=split"});
      return read_recipe({"l.toml", text_recipe(kLlama).directory, lora_recipe(gguf, exclude)},
                         settings);
    };
    const auto task = make_task(recipe({}), {.threads = 1});
    losses(*task, 3);
    const std::string adapter = lumen::testing::temporary_directory(),
                      merged = lumen::testing::temporary_directory();
    task->export_model(adapter);
    const auto whole = make_task(recipe({"export.merge_lora=true"}), {.threads = 1});
    whole->restore(task->state());
    whole->export_model(merged);
    const NamedArrays tensors =
        io::read_safetensors(adapter + "/adapter_model.safetensors")->arrays();
    const std::string place = str("base_model.model.model.layers.0.", layer);
    CHECK(tensors.at(place + ".lora_magnitude_vector").shape()[0] ==
          tensors.at(place + ".lora_B.weight").shape()[0]);
    check_same_logits(exported_logits(base, adapter), exported_logits(merged));
    check_same_logits(exported_logits(gguf, adapter), exported_logits(merged));
  };
  check(delta, "exclude = [\"gate_proj\", \"up_proj\", \"down_proj\"]\n",
        "linear_attn.in_proj_qkvz");
  check(granite, "", "shared_mlp.input_linear");
  granite["num_local_experts"] = 0;
  check(granite, "", "shared_mlp.input_linear");
  const auto half = [&] { check(granite, "exclude = [\"up_linear\"]\n", ""); };
  CHECK(contains(refusal(ErrorKind::kUsage, half),
                 "one layer in PEFT, is several here, of which some have no addition"));
}

TEST_CASE("families with names of their own are trained from directories and GGUF") {
  const io::Json sizes = {{"hidden_size", 32},
                          {"intermediate_size", 24},
                          {"num_hidden_layers", 2},
                          {"num_attention_heads", 4},
                          {"num_key_value_heads", 2},
                          {"vocab_size", 300},
                          {"max_position_embeddings", 64}};
  struct Family {
    const char *type, *module, *tensor;  // of an adapter, of a whole model
    io::Json more;
  };
  const Family families[] = {{"falcon",
                              "transformer.h.1.self_attention.query_key_value",
                              "transformer.h.1.ln_mlp.weight",
                              {{"new_decoder_architecture", true}, {"num_kv_heads", 2}}},
                             {"gpt_bigcode",
                              "transformer.h.1.attn.c_attn",
                              "transformer.wpe.weight",
                              {{"attn_pdrop", 0}, {"embd_pdrop", 0}, {"resid_pdrop", 0}}},
                             {"exaone",
                              "model.layers.1.self_attn.o_proj",
                              "transformer.h.1.attn.attention.out_proj.weight",
                              {{"tie_word_embeddings", true}}},
                             {"minicpm",
                              "model.layers.1.mlp.up_proj",
                              "model.layers.1.mlp.up_proj.weight",
                              {{"scale_emb", 2}, {"scale_depth", 1.4}, {"dim_model_base", 16}}},
                             {"bloom",
                              "transformer.h.1.self_attention.dense",
                              "transformer.word_embeddings_layernorm.bias",
                              {{"n_layer", 2}, {"n_head", 4}}},
                             {"mpt",
                              "transformer.blocks.1.attn.Wqkv",
                              "transformer.blocks.1.norm_2.weight",
                              {{"d_model", 32}, {"n_layers", 2}, {"n_heads", 4}}},
                             {"bitnet",
                              "model.layers.1.mlp.up_proj",
                              "model.layers.1.self_attn.attn_sub_norm.weight",
                              {{"hidden_act", "silu"}, {"tie_word_embeddings", true}}},
                             {"jais2",
                              "model.layers.1.mlp.up_proj",
                              "model.layers.1.mlp.up_proj.bias",
                              {{"layer_norm_eps", 1e-5}}},
                             {"olmo",
                              "model.layers.1.mlp.up_proj",
                              "model.layers.1.mlp.up_proj.weight",
                              {{"clip_qkv", 4}}}};
  for (const Family& family : families) {
    INFO(family.type);
    io::Json config = sizes;
    config["model_type"] = family.type;
    config.update(family.more);
    check_training_on(
        random_base(config),
        {.adapter =
             [&](const NamedArrays& adapter, const std::string&, bool) {
               CHECK(adapter.contains(str("base_model.model.", family.module, ".lora_A.weight")));
             },
         .whole = [&](const NamedArrays& tensors,
                      const std::string&) { CHECK(tensors.contains(family.tensor)); }});
  }
}

TEST_CASE("GPT-2 is trained, whole and by additions, from directories and GGUF") {
  const io::Json config = {{"model_type", "gpt2"}, {"n_embd", 32},  {"n_layer", 2},
                           {"n_head", 2},          {"n_inner", 48}, {"n_positions", 64},
                           {"vocab_size", 300}};
  check_training_on(
      random_base(config),
      {.adapter =
           [&](const NamedArrays& adapter, const std::string& place, bool) {
             const std::string layer = "base_model.model.transformer.h.1.";
             CHECK(adapter.at(layer + "attn.c_attn.lora_B.weight").shape()[0] == 96);
             CHECK(adapter.at(layer + "mlp.c_proj.lora_A.weight").shape()[1] == 48);
             CHECK(io::read_json(place + "/adapter_config.json")["fan_in_fan_out"] == true);
           },
       .whole =
           [&](const NamedArrays& tensors, const std::string& place) {
             CHECK(tensors.at("transformer.h.0.attn.c_attn.weight").shape() == Shape{32, 96});
             CHECK(tensors.at("transformer.h.1.mlp.c_proj.weight").shape() == Shape{48, 32});
             const io::Json result = io::read_json(place + "/config.json");
             CHECK(result["n_inner"] == 48);
             CHECK(result["n_positions"] == 64);
             for (const char* key : {"hidden_size", "intermediate_size", "conv1d_out_in",
                                     "rms_norm_eps", "rope_theta"}) {
               CHECK_FALSE(result.contains(key));
             }
           }});
}

TEST_CASE("Gemma 4 is trained, whole and by additions, from directories and GGUF") {
  for (const bool has_experts : {false, true}) {
    io::Json config = mixture_config("gemma4_text");
    config.update({{"global_head_dim", 32},
                   {"num_hidden_layers", 3},
                   {"layer_types", {"sliding_attention", "full_attention", "full_attention"}},
                   {"hidden_size_per_layer_input", has_experts ? 0 : 8},
                   {"vocab_size_per_layer_input", 300},
                   {"num_kv_shared_layers", has_experts ? 0 : 1},
                   {"attention_k_eq_v", has_experts},
                   {"enable_moe_block", has_experts},
                   {"top_k_experts", 2},
                   {"final_logit_softcapping", 30},
                   {"tie_word_embeddings", true}});
    for (const char* key : {"num_local_experts", "mlp_only_layers", "num_experts_per_tok"}) {
      config.erase(key);
    }
    if (!has_experts) config.erase("num_experts");
    INFO(has_experts);
    check_training_on(
        random_base(config),
        {.adapter =
             [&](const NamedArrays& adapter, const std::string&, bool) {
               const std::string layer = "base_model.model.model.layers.0.";
               CHECK(adapter.contains(layer + "self_attn.k_proj.lora_A.weight"));
               CHECK(adapter.contains(layer + "per_layer_input_gate.lora_A.weight") != has_experts);
               for (const auto& [name, array] : adapter) CHECK(name.find(".experts.") == name.npos);
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string& place) {
               CHECK(tensors.contains("model.layers.0.layer_scalar"));
               CHECK(tensors.contains("model.layers.1.experts.gate_up_proj") == has_experts);
               CHECK(tensors.contains("model.layers.2.self_attn.k_proj.weight") == has_experts);
               const io::Json result = io::read_json(place + "/config.json");
               CHECK(result["rope_parameters"]["full_attention"]["rope_type"] == "proportional");
               CHECK_FALSE(result.contains("rope_scaling"));
             }});
  }
}

TEST_CASE("Gemma 3n is trained, whole and by additions, from directories and GGUF") {
  io::Json config = mixture_config("gemma3n_text");
  config.update({{"num_hidden_layers", 3},
                 {"layer_types", std::vector<std::string>(3, "sliding_attention")},
                 {"hidden_size_per_layer_input", 8},
                 {"vocab_size_per_layer_input", 300},
                 {"num_kv_shared_layers", 0},
                 {"laurel_rank", 4},
                 {"activation_sparsity_pattern", {0.95, 0.95, 0.95}},
                 {"tie_word_embeddings", true}});
  for (const char* key : {"num_local_experts", "mlp_only_layers", "num_experts_per_tok",
                          "num_experts", "moe_intermediate_size"}) {
    config.erase(key);
  }
  check_training_on(
      random_base(config),
      {.adapter =
           [&](const NamedArrays& adapter, const std::string& place, bool) {
             const std::string layer = "base_model.model.model.layers.0.";
             CHECK(adapter.contains(layer + "self_attn.k_proj.lora_A.weight"));
             CHECK(adapter.contains(layer + "laurel.linear_left.lora_A.weight"));
             for (const auto& [name, array] : adapter) {
               CHECK(name.find(".altup_projections.") == name.npos);
             }
             const io::Json said = io::read_json(place + "/adapter_config.json");
             for (const io::Json& target : said["target_modules"]) CHECK(target != "0");
           },
       .whole =
           [&](const NamedArrays& tensors, const std::string& place) {
             CHECK(tensors.contains("model.altup_unembed_projections.2.weight"));
             CHECK(tensors.at("model.layers.1.altup.correct_output_scale").shape() == Shape{32});
             const io::Json result = io::read_json(place + "/config.json");
             CHECK(result["activation_sparsity_pattern"] == io::Json({0.95, 0.95, 0.95}));
             CHECK(result["altup_num_inputs"] == 4);
           }});
}

TEST_CASE(
    "DeepSeek-V3 is trained, whole and by additions, also where rows of kv_b_proj are apart") {
  io::Json config = mixture_config("deepseek_v3");
  config.update({{"num_key_value_heads", 2},
                 {"q_lora_rank", 12},
                 {"kv_lora_rank", 24},
                 {"qk_nope_head_dim", 8},
                 {"qk_rope_head_dim", 16},
                 {"v_head_dim", 10},
                 {"n_routed_experts", 4},
                 {"n_shared_experts", 1},
                 {"num_experts_per_tok", 2},
                 {"n_group", 2},
                 {"topk_group", 1},
                 {"first_k_dense_replace", 1}});
  for (const char* key :
       {"num_experts", "num_local_experts", "mlp_only_layers", "sliding_window"}) {
    config.erase(key);
  }
  const std::string base = random_base(config), place = lumen::testing::temporary_directory(),
                    whole = lumen::testing::temporary_directory();
  const auto recipe = read_recipe({"l.toml", text_recipe(kLlama).directory,
                                   lora_recipe(base, "targets = [\"kv_b_proj\", \"up_proj\"]\n")},
                                  {"data.on_too_long=split"});
  const auto task = make_task(recipe, {.threads = 1});
  losses(*task, 2);
  task->export_model(place);
  const io::Json peft = io::read_json(place + "/adapter_config.json");
  CHECK(peft["target_modules"] == io::Json::array({"kv_b_proj"}));
  // By this name PEFT takes experts for meant.
  CHECK(peft["target_parameters"] ==
        io::Json::array({"model.layers.0.mlp.up_proj.weight",
                         "model.layers.1.mlp.shared_experts.up_proj.weight"}));
  const auto trained = make_task(whole_recipe(base, {"train.batch_size=4"}), {.threads = 1});
  const auto before = losses(*trained, 8);
  CHECK(before.back() < before.front());
  trained->export_model(whole);
  const auto tensors = io::read_safetensors(whole + "/model.safetensors")->arrays();
  CHECK(tensors.contains("model.layers.1.mlp.gate.e_score_correction_bias"));
  CHECK(tensors.contains("model.layers.1.mlp.experts.3.up_proj.weight"));
  CHECK(tensors.contains("model.layers.1.self_attn.kv_b_proj.weight"));
}

}  // namespace
}  // namespace lumen::runtime
