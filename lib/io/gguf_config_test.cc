// Configs and names of tensors go to GGUF and back.
#include <cmath>
#include <fstream>
#include <optional>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/io/layer_windows.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_formats.h"
#include "lib/io/test_files.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {
namespace {

Json tiny_config(const char* model_type, int layers) {
  return {{"model_type", model_type},
          {"hidden_size", 8},
          {"intermediate_size", 16},
          {"num_hidden_layers", layers},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 4},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"vocab_size", 3},
          {"max_position_embeddings", 64}};
}

TEST_CASE("rope scaling goes to GGUF and back") {
  const std::string path = testing::temporary_directory() + "/scaled.gguf";
  const auto read_back = [&](const Json& scaling) {
    GgufWriter writer;
    Json config = tiny_config("llama", 1);
    config["rope_scaling"] = scaling;
    set_gguf_config(config, writer);
    writer.add("token_embd.weight", Array::from<float>(std::vector<float>(24, 1), {3, 8}));
    writer.write(path);
    return open_model(path).config["rope_scaling"];
  };
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  CHECK(read_back(linear) == linear);
  Json yarn = {{"rope_type", "yarn"},
               {"factor", 4.0},
               {"original_max_position_embeddings", 16},
               {"beta_fast", 16.0},
               {"beta_slow", 2.0}};
  CHECK(read_back(yarn) == yarn);
  yarn["attention_factor"] = 1.5;
  CHECK(read_back(yarn)["attention_factor"].get<double>() == Approx(1.5));
  yarn["truncate"] = false;
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported, [&] { read_back(yarn); }),
                          "truncate false"));
  CHECK(read_back(nullptr).is_null());
  CHECK(read_back({{"rope_type", "llama3"}}).is_null());  // a tensor says it
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported,
                                           [&] {
                                             read_back({{"rope_type", "ntk"}});
                                           }),
                          "ntk"));
}

TEST_CASE("windows of single layers have no place in GGUF") {
  Json config = tiny_config("qwen2", 2);
  config["sliding_window"] = 16;
  config["max_window_layers"] = 2;
  const auto write = [&] {
    GgufWriter writer;
    set_gguf_config(config, writer);
  };
  write();  // no layer has it
  config["max_window_layers"] = 1;
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported, write),
                          "layer 1 has a sliding window of 16 tokens"));
}

TEST_CASE("which layers have a window is read from flags or a period, if a file has either") {
  const std::string path = testing::temporary_directory() + "/windows.gguf";
  const std::string key = "attention.sliding_window_pattern";
  const Json others = {"full_attention", "sliding_attention", "full_attention"};
  for (const auto& [type, usual] :
       {std::pair("olmo3", 4), {"gemma3_text", 6}, {"gpt_oss", 2}, {"cohere2", 4}}) {
    INFO(type);
    Json config = tiny_config(type, 3);
    config.update({{"sliding_window", 7},
                   {"logit_scale", 1},
                   {"num_local_experts", 4},
                   {"num_experts_per_tok", 2},
                   {"layer_types", periodic_layer_types(3, usual)}});
    const std::string place = gguf_architecture(config) + ".";
    const auto opened = [&](const GgufWriter::Value* pattern) {
      GgufWriter writer;
      set_gguf_config(config, writer);
      if (pattern != nullptr) writer.set(place + key, *pattern);
      writer.add("token_embd.weight", Array::from<float>(std::vector<float>(24, 1), {3, 8}));
      writer.write(path);
      return open_model(path).config["layer_types"];
    };
    CHECK(opened(nullptr) == config["layer_types"]);
    const Json usually = config["layer_types"];
    for (const int64_t period : {1, 2, 4}) {  // of none, some and all
      config["layer_types"] = periodic_layer_types(3, period);
      CHECK(opened(nullptr) == config["layer_types"]);
    }
    config["layer_types"] = others;
    CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported, [&] { opened(nullptr); }),
                            "which cannot be written as GGUF"));
    config["layer_types"] = usually;
    const GgufWriter::Value flags = std::vector<bool>{false, true, false}, period = 1u;
    CHECK(opened(&flags) == others);
    CHECK(opened(&period) == periodic_layer_types(3, 1));
  }
}

TEST_CASE("a base of rotation of OLMo 3's layers with a window goes to GGUF and back") {
  const std::string path = testing::temporary_directory() + "/olmo3.gguf";
  Json config = tiny_config("olmo3", 4);
  config.update({{"sliding_window", 7},
                 {"layer_types", periodic_layer_types(4, 4)},
                 {"rope_theta", 1e4},
                 {"rope_local_base_freq", 5e5}});
  GgufWriter writer;
  set_gguf_config(config, writer);
  writer.add("token_embd.weight", Array::from<float>(std::vector<float>(24, 1), {3, 8}));
  writer.write(path);
  const Json back = open_model(path).config;
  CHECK(back["rope_theta"] == 1e4);
  CHECK(back["rope_local_base_freq"] == 5e5);
}

TEST_CASE("Nemotron-H may name the epsilon of its norms as that of layer norms alone") {
  const std::string path = testing::temporary_directory() + "/nemotron.gguf";
  GgufBuilder builder;
  builder.key("general.architecture", "nemotron_h")
      .u32("nemotron_h.context_length", 16)
      .u32("nemotron_h.embedding_length", 8)
      .u32("nemotron_h.block_count", 1)
      .u32("nemotron_h.feed_forward_length", 12)
      .u32("nemotron_h.attention.head_count", 2)
      .u32("nemotron_h.attention.head_count_kv", 0)
      .u32("nemotron_h.ssm.conv_kernel", 4)
      .u32("nemotron_h.ssm.inner_size", 16)
      .u32("nemotron_h.ssm.state_size", 4)
      .u32("nemotron_h.ssm.time_step_rank", 2)
      .u32("nemotron_h.ssm.group_count", 1)
      .key<float>("nemotron_h.attention.layer_norm_epsilon", 6, 0x1p-17f)
      .tensor("token_embd.weight", {8, 3}, 0, 96);
  std::ofstream(path, std::ios::binary) << builder.finish();
  CHECK(open_model(path).config["layer_norm_epsilon"] == 0x1p-17);
}

TEST_CASE("the caps of Gemma 2 go to GGUF and back, and have defaults") {
  const std::string path = testing::temporary_directory() + "/capped.gguf";
  const Json config = {{"model_type", "gemma2"},
                       {"hidden_size", 8},
                       {"intermediate_size", 8},
                       {"num_hidden_layers", 3},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 1},
                       {"head_dim", 4},
                       {"vocab_size", 3},
                       {"max_position_embeddings", 16},
                       {"rms_norm_eps", 0x1p-20},
                       {"rope_theta", 10000},
                       {"hidden_act", "gelu_pytorch_tanh"},
                       {"sliding_window", 6},
                       {"layer_types", periodic_layer_types(3, 2)},
                       {"query_pre_attn_scalar", 4},
                       {"attn_logit_softcapping", 40.0},
                       {"final_logit_softcapping", 20.5}};
  GgufWriter writer;
  set_gguf_config(config, writer);
  writer.add("token_embd.weight", Array::from<float>(std::vector<float>(24, 1), {3, 8}));
  writer.write(path);
  const Json read_back = open_model(path).config;
  for (const auto& [key, value] : read_back.items()) {
    INFO(key);
    if (config.contains(key)) CHECK(value == config[key]);
  }

  const auto opened_with = [&](std::optional<float> cap,
                               std::optional<uint32_t> window = std::nullopt) {
    GgufWriter bare;
    bare.set("general.architecture", "gemma2");
    for (const char* key : {"context_length", "embedding_length", "block_count",
                            "feed_forward_length", "attention.head_count"}) {
      bare.set(str("gemma2.", key), uint32_t{8});
    }
    bare.set("gemma2.attention.layer_norm_rms_epsilon", 1e-6f);
    if (cap) bare.set("gemma2.attn_logit_softcapping", *cap);
    if (window) bare.set("gemma2.attention.sliding_window", *window);
    bare.add("token_embd.weight", Array::from<float>(std::vector<float>(24, 1), {3, 8}));
    bare.write(path);
    return open_model(path).config;
  };
  const Json usual = opened_with(std::nullopt);
  CHECK(usual["attn_logit_softcapping"] == 50);
  CHECK(usual["final_logit_softcapping"] == 30);
  CHECK(layer_windows(usual)[0] == 4096);
  CHECK(layer_windows(usual)[1] == 0);
  CHECK(usual["query_pre_attn_scalar"] == 1);  // head_dim
  CHECK(opened_with(std::nullopt, 0)["sliding_window"].is_null());
  for (const float cap : {0.0f, -50.0f, NAN, INFINITY}) {
    const auto open = [&] { opened_with(cap); };
    CHECK(
        testing::contains(testing::refusal(ErrorKind::kMalformed, open), "attn_logit_softcapping"));
  }
}

// llama.cpp multiplies what the factor alone would give, 0.1 ln 4 + 1.
TEST_CASE("the attention factor of yarn is a multiple of the usual one in GGUF") {
  Json config = tiny_config("llama", 2);
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 1.0}};
  GgufWriter writer;
  set_gguf_config(config, writer);
  const std::string path = testing::temporary_directory() + "/keys.gguf";
  writer.write(path);
  CHECK(read_gguf(path)->metadata.get_number("llama.rope.scaling.attn_factor") ==
        Approx(1 / (0.1 * std::log(4.0) + 1)));
}

// As llama.cpp's converter does.
TEST_CASE("an alpha of dynamic scaling is in the base of rotation in GGUF") {
  Json config = tiny_config("hunyuan_v1_dense", 2);
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}};
  GgufWriter writer;
  set_gguf_config(config, writer);
  const std::string path = testing::temporary_directory() + "/keys.gguf";
  writer.write(path);
  const auto file = read_gguf(path);
  CHECK(file->metadata.get_number("hunyuan-dense.rope.freq_base") == 1e10);  // head_dim is 4
  CHECK_FALSE(file->metadata.find("hunyuan-dense.rope.scaling.type").has_value());
  CHECK(rope_base(config, 4) == Approx(1e10));
  CHECK(rope_base(config, 128) == Approx(1e4 * std::pow(1000.0, 128.0 / 126)));
  CHECK(testing::contains(
      testing::refusal(ErrorKind::kMalformed, [&] { rope_base(config, 2); }),
      "alpha 1000 makes rope_theta 10000 inf for 2 numbers that rotate, expected a base from"));
  config["rope_scaling"]["alpha"] = -1;
  CHECK(testing::contains(testing::refusal(ErrorKind::kMalformed, [&] { rope_base(config, 4); }),
                          "alpha"));
}

// The keys that llama.cpp looks for.
TEST_CASE("families have keys of their own in GGUF") {
  const std::string path = testing::temporary_directory() + "/family.gguf";
  const auto written = [&](const char* type, const Json& more) {
    Json config = tiny_config(type, 2);
    config.update(more);
    GgufWriter writer;
    set_gguf_config(config, writer);
    writer.add("token_embd.weight", Array::from<float>(std::vector<float>(24, 1), {3, 8}));
    writer.write(path);
    const Json back = open_model(path).config;
    for (const auto& [key, value] : more.items()) {
      INFO(type << " " << key);
      CHECK(back[key] == value);
    }
    return read_gguf(path);
  };
  const Json moe = {{"num_experts", 4},
                    {"num_experts_per_tok", 2},
                    {"moe_intermediate_size", 6},
                    {"shared_expert_intermediate_size", 20}};
  const auto qwen = written("qwen2_moe", moe);
  CHECK(qwen->metadata.get_int("qwen2moe.expert_feed_forward_length", 0, 99) == 6);
  CHECK(qwen->metadata.get_int("qwen2moe.expert_shared_feed_forward_length", 0, 99) == 20);
  Json next = moe;
  next.update({{"norm_topk_prob", true},
               {"layer_types", {"linear_attention", "full_attention"}},
               {"linear_conv_kernel_dim", 3},
               {"linear_key_head_dim", 8},
               {"linear_value_head_dim", 8},
               {"linear_num_key_heads", 2},
               {"linear_num_value_heads", 6}});
  for (const char* type : {"qwen3_5_moe_text", "qwen3_next"}) {
    const auto file = written(type, next);
    const std::string place = str(gguf_architecture({{"model_type", type}}), ".");
    CHECK(file->metadata.get_int(place + "ssm.inner_size", 0, 99) == 48);
    CHECK(file->metadata.get_int(place + "expert_shared_feed_forward_length", 0, 99) == 20);
    CHECK(file->metadata.get_int(place + "full_attention_interval", 0, 99) == 2);
    CHECK(file->metadata.find(place + "rope.dimension_sections").has_value() ==
          (type == std::string_view("qwen3_5_moe_text")));
  }
  const Json granite = {{"num_local_experts", 4},
                        {"num_experts_per_tok", 2},
                        {"residual_multiplier", 0.25},
                        {"rope_interleaved", true}};
  CHECK_FALSE(written("granitemoe", granite)
                  ->metadata.find("granitemoe.expert_shared_feed_forward_length")
                  .has_value());
  Json shared = granite;
  shared["shared_intermediate_size"] = 20;
  shared["model_type"] = "granitemoeshared";
  const auto with_shared = written("granitemoeshared", shared);
  CHECK(with_shared->metadata.get_int("granitemoe.expert_shared_feed_forward_length", 0, 99) == 20);
  CHECK(with_shared->metadata.get_int("granitemoe.expert_count", 0, 99) == 4);
  Json mamba = shared;
  mamba.update({{"model_type", "granitemoehybrid"},
                {"layer_types", {"mamba", "attention"}},
                {"position_embedding_type", "nope"},
                {"mamba_n_heads", 4},
                {"mamba_d_head", 4},
                {"mamba_n_groups", 2},
                {"mamba_d_state", 3},
                {"mamba_d_conv", 5},
                {"mamba_expand", 2},
                {"mamba_proj_bias", false}});
  CHECK(
      written("granitemoehybrid", mamba)->metadata.get_int("granitehybrid.ssm.inner_size", 0, 99) ==
      16);
  mamba["mamba_d_head"] = 3;
  mamba["mamba_expand"] = 1.5;
  mamba["num_local_experts"] = 0;
  mamba["num_experts_per_tok"] = 0;
  mamba["intermediate_size"] = 20;
  CHECK_FALSE(written("granitemoehybrid", mamba)
                  ->metadata.get_bool("granitehybrid.rope.scaling.finetuned", true));
  Json gemma = {{"layer_types", {"sliding_attention", "full_attention"}},
                {"sliding_window", 3},
                {"global_head_dim", 8},
                {"num_kv_shared_layers", 0},
                {"rope_local_base_freq", 1e4},
                {"hidden_act", "gelu_pytorch_tanh"},
                {"final_logit_softcapping", 20},
                {"tie_word_embeddings", true},
                {"attention_bias", false}};
  const auto gemma4 = written("gemma4_text", gemma);
  const auto number = [&](const char* key) { return gemma4->metadata.get_int(key, 0, 99); };
  CHECK(number("gemma4.attention.key_length") == 8);
  CHECK(number("gemma4.rope.dimension_count") == 8);
  CHECK(number("gemma4.attention.key_length_swa") == 4);
  CHECK(number("gemma4.attention.sliding_window") == 3);
  CHECK(gemma4->metadata.get_number("gemma4.final_logit_softcapping") == 20);
  const auto pattern = gemma4->metadata.find("gemma4.attention.sliding_window_pattern");
  REQUIRE((pattern && pattern->size() == 2 && pattern->element_type() == GgufType::kBool));
  CHECK((pattern->bool_at(0) && !pattern->bool_at(1)));
  CHECK(gguf_holding_tensor("blk.1.ffn_up_exps.weight", "gemma4") ==
        "blk.1.ffn_gate_up_exps.weight");
  CHECK(gguf_holding_tensor("blk.1.ffn_up_exps.weight", "qwen3moe") == "blk.1.ffn_up_exps.weight");
  Json third = {{"layer_types", {"sliding_attention", "sliding_attention"}},
                {"sliding_window", 3},
                {"num_kv_shared_layers", 0},
                {"rope_local_base_freq", 1e4},
                {"hidden_act", "gelu_pytorch_tanh"},
                {"hidden_size_per_layer_input", 6},
                {"vocab_size_per_layer_input", 3},
                {"altup_num_inputs", 3},
                {"altup_active_idx", 0},
                {"activation_sparsity_pattern", {0.95, 0.95}},
                {"final_logit_softcapping", 30},
                {"attention_bias", false}};
  const auto gemma3n = written("gemma3n_text", third);
  CHECK(gemma3n->metadata.get_int("gemma3n.altup.num_inputs", 0, 99) == 3);
  CHECK(gemma3n->metadata.get_int("gemma3n.altup.active_idx", 0, 99) == 0);
  CHECK(gemma3n->metadata.get_int("gemma3n.attention.shared_kv_layers", 0, 99) == 0);
  CHECK(gemma3n->metadata.get_int("gemma3n.embedding_length_per_layer_input", 0, 99) == 6);
  CHECK(gemma3n->metadata.get_number("gemma3n.final_logit_softcapping") == 30);
  const auto cutoffs = gemma3n->metadata.find("gemma3n.activation_sparsity_scale");
  REQUIRE((cutoffs && cutoffs->size() == 2));
  CHECK(cutoffs->number_at(1) == Approx(1.6448536).epsilon(1e-6));  // torch's is 1.6448535
  const auto glm = written("glm4", {{"partial_rotary_factor", 0.5}, {"rope_interleaved", true}});
  CHECK(glm->metadata.get_int("glm4.rope.dimension_count", 0, 99) == 2);
  written("glm4", {{"partial_rotary_factor", 1.0}});  // which Hugging Face takes for a half
  const auto command = written(
      "cohere", {{"logit_scale", 0.25}, {"layer_norm_eps", 0x1p-20}, {"rms_norm_eps", 0x1p-20}});
  CHECK(command->metadata.get_number("command-r.logit_scale") == 0.25);
  CHECK(command->metadata.find("command-r.attention.layer_norm_epsilon").has_value());
  CHECK_FALSE(command->metadata.find("command-r.attention.layer_norm_rms_epsilon").has_value());
  const auto second = written(
      "cohere2",
      {{"logit_scale", 0.25}, {"sliding_window", 7}, {"layer_types", periodic_layer_types(2, 4)}});
  CHECK(second->metadata.get_int("cohere2.attention.sliding_window", 0, 99) == 7);
  const auto hybrid = written("exaone4", {{"num_hidden_layers", 64},
                                          {"sliding_window", 7},
                                          {"layer_types", periodic_layer_types(64, 4)}});
  CHECK(hybrid->metadata.get_int("exaone4.attention.sliding_window", 0, 99) == 7);
  written("exaone4", {{"sliding_window", nullptr}, {"layer_types", periodic_layer_types(2, 1)}});
  const Json star = {{"sliding_window", 5}, {"hidden_act", "gelu_pytorch_tanh"}};
  CHECK(
      written("starcoder2", star)->metadata.get_int("starcoder2.attention.sliding_window", 0, 99) ==
      5);
  written("nemotron", {{"hidden_act", "relu2"}, {"partial_rotary_factor", 0.5}});
  written("phi", {{"hidden_act", "gelu_new"}, {"partial_rotary_factor", 0.5}});
}

TEST_CASE("names go to GGUF and back") {
  CHECK(gguf_tensor_name("model.embed_tokens.weight", "llama") == "token_embd.weight");
  CHECK(gguf_tensor_name("model.layers.12.mlp.gate_proj.weight", "llama") ==
        "blk.12.ffn_gate.weight");
  CHECK(gguf_tensor_name("model.layers.0.self_attn.q_proj.bias", "llama") == "blk.0.attn_q.bias");
  CHECK(gguf_tensor_name("transformer.wte.weight", "llama").empty());
  const std::string w1 = "model.layers.2.block_sparse_moe.experts.11.w1.weight";
  CHECK(gguf_tensor_name(w1, "llama") == "blk.2.ffn_gate_exps.weight");
  CHECK(number_in_stack(w1) == 11);
  const std::string all = hugging_face_name("blk.2.ffn_gate_exps.weight", "llama");
  CHECK((is_stack(all) && !number_in_stack(all)));
  CHECK(name_in_stack(all, 11) == w1);
  for (const auto& [own, gguf] :
       {std::pair("model.altup_projections.2.weight", "altup_proj.weight"),
        {"model.altup_unembed_projections.2.weight", "altup_unembd_proj.weight"}}) {
    CHECK(gguf_tensor_name(own, "gemma3n") == gguf);
    CHECK(number_in_stack(own) == 2);
    const std::string stack = hugging_face_name(gguf, "gemma3n");
    CHECK((is_stack(stack) && name_in_stack(stack, 2) == own));
    CHECK(stack_size(stack, {{"altup_num_inputs", 4}}).count == 3);
  }
  CHECK(stack_size(all, {{"num_experts", 5}}).count == 5);
  CHECK_FALSE(is_stack("model.norm.weight"));
  CHECK(gguf_tensor_name("model.layers.0.mlp.experts.3.down_proj.weight", "qwen3moe") ==
        "blk.0.ffn_down_exps.weight");
  CHECK(gguf_tensor_name("model.layers.0.mlp.gate.weight", "qwen3moe") ==
        "blk.0.ffn_gate_inp.weight");
  for (const auto& [own, gguf] :
       {std::pair("self_attn.sinks", "attn_sinks.weight"),
        {"mlp.router.bias", "ffn_gate_inp.bias"},
        {"mlp.experts.up_proj.bias", "ffn_up_exps.bias"},
        {"post_attention_layernorm.weight", "post_attention_norm.weight"}}) {
    const std::string name = str("model.layers.3.", own), there = str("blk.3.", gguf);
    CHECK(gguf_tensor_name(name, "gpt-oss") == there);
    CHECK(hugging_face_name(there, "gpt-oss") == name);
  }
  constexpr const char* kOwn[][3] = {
      {"qwen2moe", "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
      {"qwen2moe", "mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
      {"olmoe", "mlp.gate.weight", "ffn_gate_inp.weight"},
      {"minimax-m2", "block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
      {"minimax-m2", "block_sparse_moe.gate.weight", "ffn_gate_inp.weight"},
      {"bailingmoe2", "attention.query_key_value.weight", "attn_qkv.weight"},
      {"bailingmoe2", "attention.dense.weight", "attn_output.weight"},
      {"bailingmoe2", "attention.query_layernorm.weight", "attn_q_norm.weight"},
      {"bailingmoe2", "mlp.gate.expert_bias", "exp_probs_b.bias"},
      {"bailingmoe2", "mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
      {"dots1", "mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
      {"exaone-moe", "mlp.e_score_correction_bias", "exp_probs_b.bias"},
      {"exaone-moe", "post_attention_layernorm.weight", "ffn_norm.weight"},
      {"hunyuan-moe", "self_attn.query_layernorm.weight", "attn_q_norm.weight"},
      {"hunyuan-moe", "mlp.gate.wg.weight", "ffn_gate_inp.weight"},
      {"hunyuan-moe", "mlp.shared_mlp.up_proj.weight", "ffn_up_shexp.weight"},
      {"glm4", "post_self_attn_layernorm.weight", "post_attention_norm.weight"},
      {"glm4", "post_attention_layernorm.weight", "ffn_norm.weight"},
      {"glm4", "mlp.gate_up_proj.weight", "ffn_up.weight"},
      {"gemma3n", "altup.correction_coefs.weight", "altup_correct_coef.weight"},
      {"gemma3n", "altup.correct_output_scale", "altup_correct_scale.weight"},
      {"gemma3n", "altup.prediction_coefs.weight", "altup_predict_coef.weight"},
      {"gemma3n", "altup.modality_router.weight", "altup_router.weight"},
      {"gemma3n", "altup.router_norm.weight", "altup_router_norm.weight"},
      {"gemma3n", "laurel.linear_left.weight", "laurel_l.weight"},
      {"gemma3n", "laurel.linear_right.weight", "laurel_r.weight"},
      {"gemma3n", "laurel.post_laurel_norm.weight", "laurel_post_norm.weight"},
      {"gemma3n", "per_layer_input_gate.weight", "inp_gate.weight"},
      {"gemma3n", "per_layer_projection.weight", "proj.weight"},
      {"gemma3n", "post_per_layer_input_norm.weight", "post_norm.weight"},
      {"gemma3n", "pre_feedforward_layernorm.weight", "ffn_norm.weight"},
      {"gemma4", "layer_scalar", "layer_output_scale.weight"},
      {"gemma4", "per_layer_input_gate.weight", "inp_gate.weight"},
      {"gemma4", "per_layer_projection.weight", "proj.weight"},
      {"gemma4", "post_per_layer_input_norm.weight", "post_norm.weight"},
      {"gemma4", "pre_feedforward_layernorm.weight", "ffn_norm.weight"},
      {"gemma4", "pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
      {"gemma4", "router.proj.weight", "ffn_gate_inp.weight"},
      {"gemma4", "router.scale", "ffn_gate_inp.scale"},
      {"gemma4", "router.per_expert_scale", "ffn_down_exps.scale"},
      {"seed_oss", "post_attention_layernorm.weight", "post_attention_norm.weight"},
      {"granitemoe", "block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
      {"granitemoe", "shared_mlp.up_proj.weight", "ffn_up_shexp.weight"},
      {"granite", "mlp.up_proj.weight", "ffn_up.weight"},
      {"granitehybrid", "mamba.in_proj.weight", "ssm_in.weight"},
      {"granitehybrid", "mamba.conv1d.bias", "ssm_conv1d.bias"},
      {"granitehybrid", "mamba.A", "ssm_a"},
      {"granitehybrid", "mamba.D", "ssm_d"},
      {"granitehybrid", "mamba.dt_bias", "ssm_dt.bias"},
      {"granitehybrid", "mamba.norm.weight", "ssm_norm.weight"},
      {"granitehybrid", "shared_mlp.gate_linear.weight", "ffn_gate.weight"},
      {"granitehybrid", "shared_mlp.output_linear.weight", "ffn_down.weight"},
      {"granitehybrid", "shared_mlp.down_proj.weight", "ffn_down_shexp.weight"},
      {"granitehybrid", "block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
      {"nemotron_h", "norm.weight", "attn_norm.weight"},
      {"nemotron_h", "mixer.q_proj.weight", "attn_q.weight"},
      {"nemotron_h", "mixer.o_proj.bias", "attn_output.bias"},
      {"nemotron_h", "mixer.up_proj.weight", "ffn_up.weight"},
      {"nemotron_h", "mixer.A", "ssm_a"},
      {"nemotron_h", "mixer.norm.weight", "ssm_norm.weight"},
      {"nemotron_h_moe", "mixer.in_proj.weight", "ssm_in.weight"},
      {"nemotron_h_moe", "mixer.gate.weight", "ffn_gate_inp.weight"},
      {"nemotron_h_moe", "mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
      {"nemotron_h_moe", "mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
      {"nemotron_h_moe", "mixer.fc1_latent_proj.weight", "ffn_latent_down.weight"},
      {"nemotron_h_moe", "mixer.fc2_latent_proj.weight", "ffn_latent_up.weight"},
      {"mamba2", "norm.weight", "attn_norm.weight"},
      {"mamba2", "mixer.out_proj.weight", "ssm_out.weight"},
      {"falcon-h1", "pre_ff_layernorm.weight", "ffn_norm"},
      {"falcon-h1", "input_layernorm.weight", "attn_norm.weight"},
      {"falcon-h1", "feed_forward.gate_proj.weight", "ffn_gate.weight"},
      {"falcon-h1", "mamba.out_proj.weight", "ssm_out.weight"},
      {"hunyuan-dense", "self_attn.key_layernorm.weight", "attn_k_norm.weight"},
      {"exaone4", "self_attn.k_norm.weight", "attn_k_norm.weight"},
      {"exaone4", "post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
      {"starcoder2", "input_layernorm.bias", "attn_norm.bias"},
      {"starcoder2", "mlp.c_fc.bias", "ffn_up.bias"},
      {"command-r", "self_attn.q_norm.weight", "attn_q_norm.weight"},
      {"phimoe", "block_sparse_moe.gate.weight", "ffn_gate_inp.weight"},
      {"phimoe", "self_attn.o_proj.bias", "attn_output.bias"},
      {"chatglm", "mlp.gate_up_proj.weight", "ffn_up.weight"},
      {"chatglm", "post_attention_layernorm.weight", "ffn_norm.weight"},
      {"gptneox", "attention.query_key_value.weight", "attn_qkv.weight"},
      {"gptneox", "attention.dense.bias", "attn_output.bias"},
      {"gptneox", "post_attention_layernorm.bias", "ffn_norm.bias"},
      {"gptneox", "mlp.dense_4h_to_h.weight", "ffn_down.weight"},
      {"falcon", "self_attention.query_key_value.weight", "attn_qkv.weight"},
      {"falcon", "ln_attn.bias", "attn_norm_2.bias"},
      {"falcon", "input_layernorm.weight", "attn_norm.weight"},
      {"bitnet", "self_attn.attn_sub_norm.weight", "attn_sub_norm.weight"},
      {"bitnet", "mlp.ffn_sub_norm.weight", "ffn_sub_norm.weight"},
      {"bloom", "self_attention.query_key_value.bias", "attn_qkv.bias"},
      {"bloom", "mlp.dense_4h_to_h.weight", "ffn_down.weight"},
      {"mpt", "norm_1.weight", "attn_norm.weight"},
      {"mpt", "attn.Wqkv.weight", "attn_qkv.weight"},
      {"mpt", "ffn.down_proj.weight", "ffn_down.weight"},
      {"minicpm3", "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
      {"minicpm3", "self_attn.kv_b_proj.weight", "attn_kv_b.weight"},
      {"minicpm3", "mlp.down_proj.weight", "ffn_down.weight"},
      {"jais2", "mlp.up_proj.bias", "ffn_up.bias"},
      {"starcoder", "attn.c_attn.bias", "attn_qkv.bias"},
      {"starcoder", "mlp.c_proj.weight", "ffn_down.weight"},
      {"llama4", "feed_forward.router.weight", "ffn_gate_inp.weight"},
      {"llama4", "feed_forward.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
      {"llama4", "feed_forward.up_proj.weight", "ffn_up.weight"},
      {"afmoe", "self_attn.gate_proj.weight", "attn_gate.weight"},
      {"afmoe", "mlp.gate_proj.weight", "ffn_gate.weight"},
      {"afmoe", "mlp.expert_bias", "exp_probs_b.bias"},
      {"stablelm", "self_attn.q_proj.bias", "attn_q.bias"},
      {"stablelm", "post_attention_layernorm.bias", "ffn_norm.bias"},
      {"phi2", "self_attn.dense.bias", "attn_output.bias"},
      {"phi2", "mlp.fc2.weight", "ffn_down.weight"},
      {"qwen35", "post_attention_layernorm.weight", "post_attention_norm.weight"},
      {"qwen35", "linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
      {"qwen35", "linear_attn.in_proj_z.weight", "attn_gate.weight"},
      {"qwen35", "linear_attn.A", "ssm_a"},
      {"qwen35", "linear_attn.dt_bias", "ssm_dt.bias"},
      {"qwen35", "linear_attn.out_proj.weight", "ssm_out.weight"},
      {"qwen35moe", "linear_attn.in_proj_b.weight", "ssm_beta.weight"},
      {"qwen35moe", "post_attention_layernorm.weight", "post_attention_norm.weight"},
      {"qwen35moe", "mlp.gate.weight", "ffn_gate_inp.weight"},
      {"qwen35moe", "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
      {"qwen3next", "linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
      {"qwen3next", "linear_attn.in_proj_qkvz.weight", "ssm_in.weight"},
      {"qwen3next", "linear_attn.in_proj_ba.weight", "ssm_ba.weight"},
      {"qwen3next", "mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
      {"apertus", "attention_layernorm.weight", "attn_norm.weight"},
      {"apertus", "feedforward_layernorm.weight", "ffn_norm.weight"},
      {"arcee", "mlp.up_proj.weight", "ffn_up.weight"},
      {"nemotron", "mlp.up_proj.weight", "ffn_up.weight"}};
  for (const auto& [architecture, own, gguf] : kOwn) {
    INFO(architecture);
    CHECK(gguf_tensor_name(str("model.layers.3.", own), architecture) == str("blk.3.", gguf));
    CHECK(hugging_face_name(str("blk.3.", gguf), architecture) == str("model.layers.3.", own));
  }
  CHECK(gguf_tensor_name("model.layers.3.linear_attn.A_log", "qwen35") == "blk.3.ssm_a");
  CHECK(gguf_tensor_name("model.layers.3.mamba.A_log", "granitehybrid") == "blk.3.ssm_a");
  CHECK(gguf_tensor_name("model.layers.3.mixer.experts.1.up_proj.weight", "nemotron_h_moe") ==
        "blk.3.ffn_up_exps.weight");
  CHECK(hugging_face_name("blk.3.ffn_norm.weight", "falcon-h1") ==
        "model.layers.3.pre_ff_layernorm.weight");
  CHECK(hugging_face_name("output_norm.weight", "falcon-h1") == "model.final_layernorm.weight");
  CHECK(gguf_tensor_name("model.layers.3.shared_mlp.up_linear.weight", "granite") ==
        "blk.3.ffn_up.weight");
  CHECK(gguf_tensor_name("model.norm.bias", "starcoder2") == "output_norm.bias");
  CHECK(gguf_tensor_name("model.word_embeddings_layernorm.bias", "bloom") ==
        "token_embd_norm.bias");
  CHECK(gguf_tensor_name("model.final_layernorm.bias", "phi2") == "output_norm.bias");
  CHECK(hugging_face_name("output_norm.weight", "phi2") == "model.final_layernorm.weight");
  CHECK(hugging_face_name("output.bias", "phi2") == "lm_head.bias");
  CHECK(hugging_face_name("output.bias", "phimoe") == "lm_head.bias");
  CHECK(hugging_face_name("output_norm.bias", "phimoe") == "model.norm.bias");
  CHECK(gguf_tensor_name("transformer.h.3.attn.c_attn.weight", "gpt2") == "blk.3.attn_qkv.weight");
  CHECK(hugging_face_name("blk.3.ffn_norm.bias", "gpt2") == "transformer.h.3.ln_2.bias");
  CHECK(hugging_face_name("position_embd.weight", "gpt2") == "transformer.wpe.weight");
  CHECK(hugging_face_name("token_embd.weight", "gpt2") == "transformer.wte.weight");
  CHECK(gguf_tensor_name("model.layers.3.self_attn.q_proj.weight", "gpt2").empty());
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported,
                                           [] {
                                             gguf_architecture({{"model_type", "lstm"}});
                                           }),
                          "lstm"));
}

}  // namespace
}  // namespace lumen::io
