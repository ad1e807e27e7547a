// lumen-convert: what GGUF files of single families have otherwise than their directories.
#include <algorithm>
#include <optional>
#include <tuple>

#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_gguf.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/adapters/stored_layout.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/training/text_recipes.h"
#include "models/model.h"

namespace lumen::runtime {

using lumen::testing::contains;
using lumen::testing::relative_error;

TEST_CASE("Mamba-2 has the shapes of GGUF's, and Granite 4.0 without it is GGUF's Granite") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "granitemoehybrid"}});
  io::Json config = tiny_config("granitemoehybrid");
  config["mamba_n_groups"] = 2;
  config["position_embedding_type"] = "rope";
  const auto directory_of = [&] {
    return model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  };
  const auto file = io::read_gguf(converted(directory_of()));
  const io::GgufMetadata& metadata = file->metadata;
  CHECK(metadata.get_string("general.architecture") == "granitehybrid");
  CHECK(metadata.get_bool("granitehybrid.rope.scaling.finetuned", false));
  for (const auto& [key, value] : {std::pair("inner_size", 64),
                                   {"time_step_rank", 4},
                                   {"group_count", 2},
                                   {"state_size", 6},
                                   {"conv_kernel", 4}}) {
    INFO(key);
    CHECK(metadata.get_int(str("granitehybrid.ssm.", key), 0, 99) == value);
  }
  const auto heads = metadata.find("granitehybrid.attention.head_count_kv");
  CHECK((heads && heads->int_at(0) == 0 && heads->int_at(1) == 2));
  for (const auto& [name, shape] : {std::pair("ssm_in.weight", Shape{64 + 64 + 24 + 4, 32}),
                                    {"ssm_conv1d.weight", {64 + 24, 4}},
                                    {"ssm_conv1d.bias", {64 + 24}},
                                    {"ssm_a", {4, 1}},
                                    {"ssm_d", {4, 1}},
                                    {"ssm_dt.bias", {4}},
                                    {"ssm_norm.weight", {2, 32}},
                                    {"ssm_out.weight", {32, 64}},
                                    {"ffn_gate_shexp.weight", {20, 32}},
                                    {"ffn_gate_exps.weight", {3, 16, 32}}}) {
    INFO(name);
    REQUIRE(file->find_tensor(str("blk.0.", name)) != nullptr);
    CHECK(file->find_tensor(str("blk.0.", name))->shape == shape);
  }

  config["layer_types"] = {"attention", "attention"};
  for (const int experts : {3, 0}) {
    INFO(experts);
    config["num_local_experts"] = experts;
    const std::string directory = directory_of(), gguf = converted(directory);
    CHECK(io::read_gguf(gguf)->metadata.get_string("general.architecture") ==
          (experts == 0 ? "granite" : "granitemoe"));
    const std::vector<float> want = logits(directory);
    CHECK(relative_error(logits(gguf), want) < 1e-5);
    CHECK(relative_error(logits(converted_directory(gguf, "f32")), want) < 1e-5);
  }
  // What does not rotate is no Granite there.
  config["position_embedding_type"] = nullptr;
  const std::string directory = directory_of(), gguf = converted(directory);
  CHECK(io::read_gguf(gguf)->metadata.get_string("general.architecture") == "granitehybrid");
  CHECK(relative_error(logits(gguf), logits(directory)) < 1e-5);
}

TEST_CASE("an InternLM2 computes as the Llama that it is, and becomes one") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "llama"}});
  io::Json config = tiny_config("llama");
  config.update({{"attention_bias", false}, {"tie_word_embeddings", false}});
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::vector<float> want = logits(directory);
  NamedArrays tensors;
  const auto stored = io::read_safetensors(directory + "/model.safetensors")->arrays();
  const int64_t heads = 4, groups = 2, dim = 8, hidden = 32;
  for (const auto& [name, array] : stored) {
    std::string own = name;
    for (const auto& [llama, other] :
         {std::pair<std::string, std::string>("embed_tokens", "tok_embeddings"),
          {"lm_head", "output"},
          {"self_attn.o_proj", "attention.wo"},
          {"input_layernorm", "attention_norm"},
          {"post_attention_layernorm", "ffn_norm"},
          {"mlp.gate_proj", "feed_forward.w1"},
          {"mlp.down_proj", "feed_forward.w2"},
          {"mlp.up_proj", "feed_forward.w3"},
          {"self_attn.q_proj", "attention.wqkv"}}) {
      if (const size_t at = own.find(llama); at != own.npos) own.replace(at, llama.size(), other);
    }
    if (own.find("self_attn.") != own.npos) continue;
    if (own.find("wqkv") == own.npos) {
      tensors[own] = nn::float32_copy(array);
      continue;
    }
    Array all = Array::zeros(DType::kF32, {(heads + 2 * groups) * dim, hidden});
    float* to = all.as_mutable<float>().data();
    const auto place = name.find("q_proj");
    for (int64_t group = 0; group < groups; ++group) {
      for (const auto& [part, count] :
           {std::pair("q_proj", heads / groups), {"k_proj", int64_t{1}}, {"v_proj", int64_t{1}}}) {
        const Array own_part =
            nn::float32_copy(stored.at(std::string(name).replace(place, 6, part)));
        const float* const from = own_part.as<float>().data() + group * count * dim * hidden;
        to = std::copy_n(from, count * dim * hidden, to);
      }
    }
    tensors[own] = all;
  }
  io::write_safetensors(directory + "/model.safetensors", tensors);
  config.update({{"model_type", "internlm2"}, {"bias", false}, {"vocab_size", 320}});
  config.erase("attention_bias");
  io::write_file_atomically(directory + "/config.json", config.dump());
  CHECK(logits(directory) == want);
  const std::string gguf = converted(directory), again = converted_directory(directory, "f32");
  CHECK(relative_error(logits(gguf), want) < 1e-5);
  CHECK(logits(again) == want);
  const io::Json written = io::read_json(again + "/config.json");
  CHECK(written["model_type"] == "llama");
  CHECK(written["architectures"] == io::Json::array({"LlamaForCausalLM"}));
  CHECK_FALSE(written.contains("bias"));
  // And is trained as one.
  const std::string targets = R"("q_proj", "down_proj")";
  const std::string adapter = testing::trained(directory, targets);
  const std::vector<float> merged = logits(testing::trained(directory, targets, true));
  CHECK(relative_error(merged, want) > 1e-3);
  for (const std::string& model : {directory, gguf, again}) {
    CHECK(relative_error(logits(model, adapter), merged) < 1e-5);
  }
}

TEST_CASE("numbers of Apertus's activations are keys in GGUF, one for all layers or one for each") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "apertus"}});
  io::Json config = tiny_config("apertus");
  make_sayable(config);
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  NamedArrays tensors = io::read_safetensors(directory + "/model.safetensors")->arrays();
  for (auto& [name, array] : tensors) array = nn::float32_copy(array);
  const std::string last = "model.layers.1.mlp.act_fn.";
  for (const auto& [name, number] :
       {std::pair("alpha_p", 1.5f), {"alpha_n", -0.5f}, {"beta", 0.25f}, {"eps", -0.125f}}) {
    tensors.at(last + name).as_mutable<float>()[0] = number;
  }
  io::write_safetensors(directory + "/model.safetensors", tensors);
  const std::string gguf = converted(directory);
  const auto file = io::read_gguf(gguf);
  const auto alphas = file->metadata.find("xielu.alpha_n");
  REQUIRE((alphas && alphas->size() == 2));
  CHECK(alphas->number_at(1) == -0.5);
  CHECK(file->metadata.find("xielu.eps")->number_at(1) == -0.125);
  CHECK(relative_error(logits(gguf), logits(directory)) < 1e-6);
  const auto again =
      io::read_safetensors(converted_directory(gguf, "bf16") + "/model.safetensors")->arrays();
  CHECK(again.at(last + "alpha_p").shape() == Shape{1});
  CHECK(again.at(last + "eps").shape() == Shape{});
  CHECK(again.at(last + "beta").as<float>()[0] == 0.25f);

  const auto changed = [&](const std::optional<io::GgufWriter::Value>& eps) {
    io::GgufWriter writer;
    for (size_t i = 0; i < file->metadata.size(); ++i) {
      if (file->metadata[i].key() != "xielu.eps") writer.copy(file->metadata[i]);
    }
    if (eps) writer.set("xielu.eps", *eps);
    for (const io::GgufTensor& tensor : file->tensors) writer.add(tensor.name, file->array(tensor));
    const std::string path = lumen::testing::temporary_directory() + "/changed.gguf";
    writer.write(path);
    return path;
  };
  const float eps = -0.125f;
  CHECK(io::open_model(changed(eps)).tensors.at("model.layers.0.mlp.act_fn.eps").as<float>()[0] ==
        eps);
  using Value = io::GgufWriter::Value;
  for (const std::optional<Value>& wrong :
       {std::optional<Value>(), std::optional<Value>(std::vector<float>{eps})}) {
    CHECK(contains(
        lumen::testing::refusal(ErrorKind::kMalformed, [&] { io::open_model(changed(wrong)); }),
        "key 'xielu.eps': "));
  }
}

TEST_CASE("what a layer of Nemotron-H is is told in GGUF by two lists, and read from them") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "nemotron_h"}});
  const auto file_of = [&](size_t index) {
    io::Json config = def.tiny_configs()[index];
    make_sayable(config);
    return io::read_gguf(
        converted(model_directory(def, config, text::TokenizerKind::kByteLevelBpe)));
  };
  const auto list = [](const io::GgufFile& file, const std::string& key) {
    const auto found = file.metadata.find(key);
    std::vector<int64_t> all;
    for (size_t i = 0; i < found->size(); ++i) all.push_back(found->int_at(i));
    return all;
  };
  const auto dense = file_of(0), sparse = file_of(2);
  CHECK(dense->metadata.get_string("general.architecture") == "nemotron_h");
  CHECK(list(*dense, "nemotron_h.feed_forward_length") == std::vector<int64_t>{0, 48, 0, 48});
  CHECK(list(*dense, "nemotron_h.attention.head_count_kv") == std::vector<int64_t>{0, 0, 2, 0});
  for (const char* norm : {"rms", "epsilon"}) {  // llama.cpp looks for both
    const std::string key =
        str("nemotron_h.attention.layer_norm_", norm, norm[0] == 'r' ? "_epsilon" : "");
    CHECK(dense->metadata.get_number(key) == Approx(1e-5));
  }
  CHECK_FALSE(dense->metadata.get_bool("nemotron_h.rope.scaling.finetuned", true));
  CHECK(dense->metadata.get_int("nemotron_h.ssm.inner_size", 0, 99) == 24);
  CHECK(sparse->metadata.get_string("general.architecture") == "nemotron_h_moe");
  CHECK(list(*sparse, "nemotron_h_moe.feed_forward_length") == std::vector<int64_t>{0, 16, 0, 16});
  CHECK(sparse->metadata.get_int("nemotron_h_moe.expert_shared_feed_forward_length", 0, 99) == 20);
  CHECK(sparse->metadata.get_number("nemotron_h_moe.expert_weights_scale") == 2.5);
  for (const auto& [file, name, shape] : {std::tuple(dense, "blk.0.ssm_norm.weight", Shape{2, 12}),
                                          {dense, "blk.0.ssm_a", {4, 1}},
                                          {dense, "blk.2.attn_k.weight", {24, 32}},
                                          {dense, "blk.3.ffn_up.weight", {48, 32}},
                                          {sparse, "blk.1.ffn_up_exps.weight", {4, 16, 32}},
                                          {sparse, "blk.1.exp_probs_b.bias", {4}},
                                          {sparse, "blk.1.ffn_down_shexp.weight", {32, 20}}}) {
    INFO(name);
    REQUIRE(file->find_tensor(name) != nullptr);
    CHECK(file->find_tensor(name)->shape == shape);
  }
}

TEST_CASE("of Qwen-VL the language model is converted, with the positions of what it sees") {
  for (const auto& [type, architecture, text] : {std::tuple("qwen2_vl", "qwen2vl", "qwen2"),
                                                 {"qwen3_vl", "qwen3vl", "qwen3"},
                                                 {"qwen3_vl_moe", "qwen3vlmoe", "qwen3_moe"}}) {
    INFO(type);
    io::Json config = tiny_config(str(type, "_text"));
    const models::ModelDef& def = models::find_model_def(config);
    const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
    const std::vector<float> want = logits(directory);
    NamedArrays tensors;
    for (auto& [name, array] : io::read_safetensors(directory + "/model.safetensors")->arrays()) {
      const bool is_inside = name.starts_with("model.");
      tensors[is_inside ? "model.language_model." + name.substr(6) : name] =
          nn::float32_copy(array);
    }
    tensors["model.visual.merger.norm.weight"] = Array::zeros(DType::kF32, {3});
    io::write_safetensors(directory + "/model.safetensors", tensors);
    config["vocab_size"] = 320;
    const int pairs = type == std::string("qwen2_vl") ? 2 : 8;
    const io::Json sections = {1, pairs - 1, 0};
    const auto write_config = [&, type = type](const io::Json& these) {
      config["rope_parameters"] = {
          {"rope_type", "default"}, {"rope_theta", 1e6}, {"mrope_section", these}};
      const io::Json whole = {{"model_type", type},
                              {"architectures", {"Whole"}},
                              {"tie_word_embeddings", config.value("tie_word_embeddings", false)},
                              {"vision_config", {{"deepstack_visual_indexes", {5, 11, 17}}}},
                              {"text_config", config}};
      io::write_file_atomically(directory + "/config.json", whole.dump());
    };
    write_config(sections);
    CHECK(relative_error(logits(directory), want) < 1e-6);
    const std::string gguf = converted(directory);
    const auto file = io::read_gguf(gguf);
    CHECK(file->metadata.get_string("general.architecture") == architecture);
    const auto written = file->metadata.find(str(architecture, ".rope.dimension_sections"));
    REQUIRE((written && written->size() == 4));
    for (size_t i = 0; i < 3; ++i) CHECK(written->int_at(i) == sections[i]);
    CHECK(written->int_at(3) == 0);
    const std::string deepstack = str(architecture, ".n_deepstack_layers");
    if (text != std::string("qwen2")) CHECK(file->metadata.get_int(deepstack, 0, 9) == 3);
    CHECK(io::open_model(gguf).config["mrope_section"] == sections);
    CHECK(relative_error(logits(gguf), want) < 1e-6);
    // transformers has no class of the language model alone, but it is another model's.
    for (const std::string& from : {directory, gguf}) {
      const std::string alone = converted_directory(from, "f32");
      const io::Json said = io::read_json(alone + "/config.json");
      CHECK(said["model_type"] == text);
      CHECK(contains(said["architectures"][0].get<std::string>(), "ForCausalLM"));
      for (const char* key : {"text_config", "mrope_section", "rope_parameters",
                              "language_model_part", "n_deepstack_layers"}) {
        INFO(key);
        CHECK_FALSE(said.contains(key));
      }
      CHECK(relative_error(logits(alone), want) < 1e-6);
    }
    for (const io::Json& wrong : {io::Json({1, 2}), io::Json({1, pairs, 0}), io::Json("1")}) {
      write_config(wrong);
      ConvertOptions options;
      options.model = directory;
      options.output = lumen::testing::temporary_directory() + "/model.gguf";
      CHECK(contains(lumen::testing::refusal(ErrorKind::kMalformed, [&] { convert(options); }),
                     "mrope_section: found "));
    }
    io::GgufWriter writer;
    for (size_t i = 0; i < file->metadata.size(); ++i) {
      if (!file->metadata[i].key().ends_with("_sections")) writer.copy(file->metadata[i]);
    }
    writer.set(str(architecture, ".rope.dimension_sections"), std::vector<int32_t>{1, 1, 1, 1});
    for (const io::GgufTensor& tensor : file->tensors) writer.add(tensor.name, file->array(tensor));
    const std::string changed = lumen::testing::temporary_directory() + "/changed.gguf";
    writer.write(changed);
    CHECK(contains(
        lumen::testing::refusal(ErrorKind::kUnsupported, [&] { io::open_model(changed); }),
        str(architecture, ".rope.dimension_sections: a fourth section, 1, is not supported")));
  }
}

TEST_CASE(
    "of Gemma 3n the language model is converted, its last layers with keys of earlier ones") {
  io::Json config = tiny_config("gemma3n_text");
  config.update({{"num_hidden_layers", 22}, {"hidden_size", 16}, {"intermediate_size", 16}});
  config.erase("activation_sparsity_pattern");
  make_sayable(config);
  for (int i = 10; i < 22; ++i) config["activation_sparsity_pattern"][i] = 0;
  const models::ModelDef& def = models::find_model_def(config);
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  // The whole model's files, where tokens beyond 250 have the first one's embedding per layer.
  config.update({{"vocab_size", 320}, {"vocab_size_per_layer_input", 250}});
  NamedArrays tensors;
  for (const auto& [name, array] :
       io::read_safetensors(directory + "/model.safetensors")->arrays()) {
    const bool is_table = name.ends_with("embed_tokens_per_layer.weight");
    tensors["model.language_model." + name.substr(6)] =
        nn::float32_copy(is_table ? array.parts(0, 250) : array);
  }
  for (const char* other :
       {"model.vision_tower.timm_model.conv_stem.conv.weight",
        "model.audio_tower.conformer.0.norm.weight", "model.embed_vision.embedding.weight"}) {
    tensors[other] = Array::zeros(DType::kF32, {3});
  }
  io::write_safetensors(directory + "/model.safetensors", tensors);
  const io::Json whole = {{"model_type", "gemma3n"},
                          {"architectures", {"Gemma3nForConditionalGeneration"}},
                          {"vision_config", io::Json::object()},
                          {"audio_config", io::Json::object()},
                          {"text_config", config}};
  io::write_file_atomically(directory + "/config.json", whole.dump());
  const std::vector<float> want = logits(directory);

  const std::string gguf = converted(directory);
  const auto file = io::read_gguf(gguf);
  CHECK(file->metadata.get_int("gemma3n.attention.shared_kv_layers", 0, 99) == 2);
  const auto cutoffs = file->metadata.find("gemma3n.activation_sparsity_scale");
  REQUIRE((cutoffs && cutoffs->size() == 22));
  CHECK((cutoffs->number_at(9) > 1.64 && std::isinf(cutoffs->number_at(10))));
  for (const auto& [name, shape] : {std::pair("altup_proj.weight", Shape{3, 16, 16}),
                                    {"altup_unembd_proj.weight", {3, 16, 16}},
                                    {"per_layer_token_embd.weight", {320, 22 * 6}},
                                    {"blk.3.altup_correct_scale.weight", {16}},
                                    {"blk.3.altup_predict_coef.weight", {16, 4}}}) {
    INFO(name);
    REQUIRE(file->find_tensor(name) != nullptr);
    CHECK(file->find_tensor(name)->shape == shape);
  }
  CHECK(file->find_tensor("blk.19.attn_k.weight") != nullptr);
  // Which readers look for, and do not use.
  const auto data = [&](const char* name) {
    const Array array = file->array(*file->find_tensor(name));
    return std::vector<float>(array.as<float>().begin(), array.as<float>().end());
  };
  CHECK(data("blk.21.attn_v.weight") == data("blk.18.attn_v.weight"));
  CHECK(data("blk.20.attn_k_norm.weight") == data("blk.18.attn_k_norm.weight"));
  CHECK(relative_error(logits(gguf), want) < 1e-5);
  const io::Json read = io::open_model(gguf).config;
  CHECK(read["activation_sparsity_pattern"] == config["activation_sparsity_pattern"]);
  CHECK(read["laurel_rank"] == 5);
  for (const std::string& from : {directory, gguf}) {
    const std::string alone = converted_directory(from, "f32");
    const io::Json said = io::read_json(alone + "/config.json");
    CHECK(said["model_type"] == "gemma3n_text");
    CHECK(said["architectures"][0] == "Gemma3nForCausalLM");
    CHECK(said["hidden_activation"] == "gelu_pytorch_tanh");
    CHECK_FALSE(said.contains("audio_config"));
    CHECK(relative_error(logits(alone), want) < 1e-5);
  }
  ConvertOptions options;
  options.model = gguf;
  options.output = lumen::testing::temporary_directory() + "/model.gguf";
  REQUIRE(convert(options) == 0);
  check_same_data(*io::read_gguf(*options.output), *file);

  const auto refused = [&](const char* key, const io::GgufWriter::Value& value) {
    io::GgufWriter writer;
    for (size_t i = 0; i < file->metadata.size(); ++i) {
      if (file->metadata[i].key() != key) writer.copy(file->metadata[i]);
    }
    writer.set(key, value);
    for (const io::GgufTensor& tensor : file->tensors) writer.add(tensor.name, file->array(tensor));
    const std::string path = lumen::testing::temporary_directory() + "/changed.gguf";
    writer.write(path);
    return lumen::testing::refusal(ErrorKind::kMalformed, [&] { logits(path); });
  };
  CHECK(
      contains(refused("gemma3n.altup.num_inputs", uint32_t{3}),
               "expected [2, rows, columns]: as many matrices as altup.num_inputs, less 1, says"));
  CHECK(contains(refused("gemma3n.activation_sparsity_scale", std::vector<float>{1}),
                 "key 'gemma3n.activation_sparsity_scale': expected an array of 22 numbers"));
  CHECK(contains(refused("gemma3n.activation_sparsity_scale", std::vector<float>(22, 9)),
                 "activation_sparsity_pattern: found "));
}

TEST_CASE("queries, keys and values of GPT-NeoX are in order of heads, in GGUF of kinds") {
  io::Json config = tiny_config("gpt_neox");
  config["use_parallel_residual"] = GENERATE(true, false);
  const models::ModelDef& def = models::find_model_def(config);
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const auto stored = io::read_safetensors(directory + "/model.safetensors")->arrays();
  const std::string gguf = converted(directory);
  const auto file = io::read_gguf(gguf);
  CHECK(file->metadata.get_bool("gptneox.use_parallel_residual", false) ==
        config["use_parallel_residual"]);
  CHECK(file->metadata.get_int("gptneox.rope.dimension_count", 0, 99) == 4);
  const Array by_head = stored.at("model.layers.1.attention.query_key_value.weight");
  const Array by_kind = file->array(*file->find_tensor("blk.1.attn_qkv.weight"));
  const auto from = by_head.as<float>(), to = by_kind.as<float>();
  // The second row of the key of head 3: 8 rows of each kind for each of 4 heads, 32 columns.
  CHECK(to[((1 * 4 + 3) * 8 + 1) * 32] == from[((3 * 3 + 1) * 8 + 1) * 32]);
  const std::vector<float> want = logits(directory);
  CHECK(relative_error(logits(gguf), want) < 1e-6);
  const std::string again = converted_directory(gguf, "f32");
  CHECK(relative_error(logits(again), want) < 1e-6);
  const auto named = io::read_safetensors(again + "/model.safetensors")->arrays();
  const Array back = named.at("gpt_neox.layers.1.attention.query_key_value.weight");
  CHECK(std::ranges::equal(back.as<float>(), from));
  CHECK(named.contains("embed_out.weight"));
  const io::Json said = io::read_json(again + "/config.json");
  CHECK(said["rotary_pct"] == 0.5);
  CHECK(said["rotary_emb_base"] == 10000);
  for (const char* key : {"rope_theta", "partial_rotary_factor", "linear_heads_tiled"}) {
    CHECK_FALSE(said.contains(key));
  }
}

TEST_CASE("norms of StableLM's heads are one tensor of float32 in GGUF") {
  io::Json config = models::find_model_def({{"model_type", "stablelm"}}).tiny_configs()[1];
  make_sayable(config);
  const models::ModelDef& def = models::find_model_def(config);
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::vector<float> want = logits(directory);
  for (const char* type : {"f32", "f16"}) {
    ConvertOptions options;
    options.model = directory;
    options.output = lumen::testing::temporary_directory() + "/model.gguf";
    options.type = type;
    REQUIRE(convert(options) == 0);
    const auto file = io::read_gguf(*options.output);
    CHECK(file->metadata.get_bool("stablelm.use_parallel_residual", false));
    CHECK(file->find_tensor("blk.0.ffn_norm.weight") == nullptr);
    const io::GgufTensor* const norm = file->find_tensor("blk.0.attn_q_norm.weight");
    REQUIRE(norm != nullptr);
    CHECK(norm->shape == Shape{4, 8});
    CHECK(norm->dtype == DType::kF32);
    CHECK(relative_error(logits(*options.output), want) <
          (type == std::string("f32") ? 1e-6 : 1e-2));
    const std::string again = converted_directory(*options.output, "f32");
    CHECK(relative_error(logits(again), want) < (type == std::string("f32") ? 1e-6 : 1e-2));
    const auto named = io::read_safetensors(again + "/model.safetensors")->arrays();
    CHECK(named.at("model.layers.1.self_attn.k_layernorm.norms.1.weight").shape() == Shape{8});
    CHECK_FALSE(named.contains("model.layers.1.self_attn.k_layernorm.weight"));
  }
}

TEST_CASE("GGUF files of LFM2 call the epsilon of its norms as llama.cpp does") {
  for (const char* type : {"lfm2", "lfm2_moe"}) {
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    const auto file = io::read_gguf(
        converted(model_directory(def, tiny_config(type), text::TokenizerKind::kByteLevelBpe)));
    const auto architecture = file->metadata.get_string("general.architecture");
    CHECK(file->metadata.find(str(architecture, ".attention.layer_norm_rms_epsilon")).has_value());
  }
}

TEST_CASE("families keep logits and rotations in directories") {
  for (const char* type :
       {"nanochat", "lfm3", "vaultgemma", "mellum", "granite_swa", "granitemoe_swa", "laguna",
        "hy_v3", "cohere2_moe", "mistral4", "zamba2", "recurrent_gemma"}) {
    INFO(type);
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    const std::string directory =
        model_directory(def, tiny_config(type), text::TokenizerKind::kByteLevelBpe);
    const std::string again = converted_directory(directory, "f32");
    CHECK(relative_error(logits(again), logits(directory)) < 1e-6);
    io::Json config = tiny_config(type);
    erase_added_keys(config);
    const std::string_view name = type;
    const bool by_type = name == "lfm3" || name == "mellum" || name == "laguna";
    REQUIRE(config.contains("rope_parameters") == by_type);
    if (!by_type) continue;
    CHECK(config["rope_parameters"]["full_attention"]["rope_theta"] == 1e6);
    CHECK(config["rope_parameters"]["sliding_attention"]["rope_theta"] == 1e4);
    CHECK_FALSE(config.contains("rope_local_base_freq"));
  }
}

TEST_CASE("GGUF files of Mamba-2 have no heads of attention and no feed-forward length") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "mamba2"}});
  const auto file = io::read_gguf(
      converted(model_directory(def, def.tiny_configs()[0], text::TokenizerKind::kByteLevelBpe)));
  for (const auto& [key, value] : {std::pair("attention.head_count", 0),
                                   {"feed_forward_length", 0},
                                   {"ssm.time_step_rank", 8},
                                   {"ssm.inner_size", 64},
                                   {"ssm.group_count", 2}}) {
    INFO(key);
    CHECK(file->metadata.get_int(str("mamba2.", key), 0, 99) == value);
  }
  CHECK_FALSE(file->metadata.find("mamba2.rope.freq_base").has_value());
  CHECK(file->find_tensor("blk.1.ssm_norm.weight")->shape == Shape{2, 32});
  CHECK(file->find_tensor("blk.1.ssm_a")->shape == Shape{8, 1});
}

TEST_CASE("GGUF files of Kimi Linear have keys and values of caches, and rows of both apart") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "kimi_linear"}});
  const auto file = io::read_gguf(
      converted(model_directory(def, def.tiny_configs()[0], text::TokenizerKind::kByteLevelBpe)));
  const auto heads = file->metadata.find("kimi-linear.attention.head_count_kv");
  REQUIRE((heads && heads->size() == 3));
  for (const size_t i : {0, 1, 2}) CHECK(heads->int_at(i) == (i == 1 ? 1 : 0));
  for (const auto& [key, value] : {std::pair("attention.key_length", 28),
                                   {"attention.value_length", 24},
                                   {"attention.key_length_mla", 12},
                                   {"attention.value_length_mla", 10},
                                   {"kda.head_dim", 6},
                                   {"ssm.conv_kernel", 4},
                                   {"leading_dense_block_count", 1}}) {
    INFO(key);
    CHECK(file->metadata.get_int(str("kimi-linear.", key), 0, 99) == value);
  }
  CHECK(file->find_tensor("blk.1.attn_kv_b.weight") == nullptr);
  CHECK(file->find_tensor("blk.1.attn_k_b.weight")->shape == Shape{4, 24, 8});
  CHECK(file->find_tensor("blk.1.attn_v_b.weight")->shape == Shape{4, 10, 24});
  CHECK(file->find_tensor("blk.0.ssm_a")->shape == Shape{1, 1, 4, 1});
  CHECK(file->find_tensor("blk.0.ssm_conv1d_q.weight")->dtype == DType::kF32);
}

TEST_CASE("the multipliers of Falcon-H1 are in the weights in GGUF") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "falcon_h1"}});
  io::Json config = def.tiny_configs()[0];
  const auto kind = text::TokenizerKind::kByteLevelBpe;
  const std::string directory = model_directory(def, config, kind), gguf = converted(directory);
  const auto file = io::read_gguf(gguf);
  const NamedArrays own = io::open_model(directory).tensors;
  const auto ratio = [&](const char* there, const char* name, size_t at) {
    const io::GgufTensor* tensor = file->find_tensor(there);
    REQUIRE(tensor != nullptr);
    const Array array = file->array(*tensor);
    return Approx(array.as<float>()[at] / own.at(name).as<float>()[at]);
  };
  const std::string layer = "model.layers.1.";
  CHECK(5.6 == ratio("token_embd.weight", "model.embed_tokens.weight", 7));
  CHECK(0.2 == ratio("output.weight", "lm_head.weight", 7));
  CHECK(1.2 == ratio("blk.1.attn_q.weight", (layer + "self_attn.q_proj.weight").c_str(), 3));
  CHECK(1.2 * 0.6 == ratio("blk.1.attn_k.weight", (layer + "self_attn.k_proj.weight").c_str(), 3));
  CHECK(0.9 == ratio("blk.1.attn_output.weight", (layer + "self_attn.o_proj.weight").c_str(), 3));
  CHECK(0.8 ==
        ratio("blk.1.ffn_gate.weight", (layer + "feed_forward.gate_proj.weight").c_str(), 3));
  CHECK(0.6 ==
        ratio("blk.1.ffn_down.weight", (layer + "feed_forward.down_proj.weight").c_str(), 3));
  CHECK(0.7 == ratio("blk.1.ssm_out.weight", (layer + "mamba.out_proj.weight").c_str(), 3));
  // Of z, x, B, C and dt, whose rows are 24, 24, 6, 6 and 4.
  const std::string in = layer + "mamba.in_proj.weight";
  for (const auto& [row, part] :
       {std::pair(23, 0.7), {24, 0.8}, {47, 0.8}, {48, 0.9}, {54, 1.1}, {60, 1.2}, {63, 1.2}}) {
    INFO(row);
    CHECK(1.3 * part == ratio("blk.1.ssm_in.weight", in.c_str(), static_cast<size_t>(row) * 32));
  }
  CHECK(file->find_tensor("blk.1.ffn_norm")->shape == Shape{32});
  CHECK(relative_error(logits(gguf), logits(directory)) < 1e-5);

  // A tied output has another multiplier than the embedding: it is a tensor of its own.
  config["tie_word_embeddings"] = true;
  const std::string tied = model_directory(def, config, kind), from_tied = converted(tied);
  CHECK(io::read_gguf(from_tied)->find_tensor("output.weight") != nullptr);
  const std::vector<float> want = logits(tied);
  CHECK(relative_error(logits(from_tied), want) < 1e-5);
  CHECK(relative_error(logits(converted_directory(from_tied, "f32")), want) < 1e-5);
  config["lm_head_multiplier"] = config["embedding_multiplier"];
  const std::string same = converted(model_directory(def, config, kind));
  CHECK(io::read_gguf(same)->find_tensor("output.weight") == nullptr);
}
}  // namespace lumen::runtime
