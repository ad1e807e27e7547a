#include "lib/runtime/adapters/lora.h"

#include <filesystem>

#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/multipliers.h"
#include "lib/nn/rope.h"
#include "lib/ops/ops.h"
#include "lib/runtime/adapters/apply_adapter.h"
#include "lib/runtime/adapters/combine_adapters.h"
#include "lib/runtime/adapters/fused_inputs.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

Array counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Array::from<float>(values, shape);
}

std::vector<float> values(const Array& array) {
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

TEST_CASE("rows that rotate are those of q and k, of weights, biases and B matrices") {
  const std::string layer = "model.layers.0.self_attn.";
  for (const char* name : {"q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias",
                           "q_proj.lora_B.weight", "k_proj.lora_B.weight"}) {
    CHECK(nn::has_rotary_rows(layer + name));
  }
  for (const char* name : {"v_proj.weight", "v_proj.bias", "o_proj.weight", "q_proj.lora_A.weight",
                           "q_norm.weight", "v_proj.lora_B.weight"}) {
    CHECK_FALSE(nn::has_rotary_rows(layer + name));
  }
}

TEST_CASE("weights and biases of q and k go to the other order together, and back") {
  const io::Json config = {{"rope_interleaved", true}, {"head_dim", 4}};
  const std::string q = "model.layers.0.self_attn.q_proj.";
  const NamedArrays before = {{q + "weight", counting({8, 2})}, {q + "bias", counting({8})}};
  NamedArrays tensors = before;
  reorder_heads_and_rows(tensors, config, true);
  CHECK(values(tensors.at(q + "bias")) == std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(values(tensors.at(q + "weight"))[2] == 4);
  reorder_heads_and_rows(tensors, config, false);
  for (const auto& [name, array] : before) CHECK(values(tensors.at(name)) == values(array));
  reorder_heads_and_rows(tensors, {{"rope_interleaved", false}}, true);
  CHECK(values(tensors.at(q + "bias")) == values(before.at(q + "bias")));
}

TEST_CASE("magnitudes go to the other order of heads as the rows of weights do") {
  io::Json config = {{"linear_heads_tiled", true},     {"linear_num_key_heads", 2},
                     {"linear_num_value_heads", 4},    {"linear_key_head_dim", 2},
                     {"linear_value_head_dim", 3},     {"model_type", "falcon_h1"},
                     {"attention_in_multiplier", 2.0}, {"key_multiplier", 3.0}};
  const std::string layer = "model.layers.0.linear_attn.";
  const std::string z = layer + "in_proj_z.", out = layer + "out_proj.";
  const NamedArrays before = {{z + "weight", counting({12, 1})},
                              {z + "lora_magnitude_vector", counting({12})},
                              {out + "lora_magnitude_vector", counting({12})}};
  NamedArrays tensors = before;
  reorder_heads_and_rows(tensors, config, true);
  CHECK(values(tensors.at(z + "weight")) != values(before.at(z + "weight")));
  CHECK(values(tensors.at(z + "lora_magnitude_vector")) == values(tensors.at(z + "weight")));
  CHECK(values(tensors.at(out + "lora_magnitude_vector")) ==
        values(before.at(out + "lora_magnitude_vector")));
  const std::string k = "model.layers.0.self_attn.k_proj.";
  CHECK(nn::row_multipliers(config, k + "lora_magnitude_vector") ==
        nn::row_multipliers(config, k + "lora_B.weight"));
}

TEST_CASE("additions to the inputs of Qwen3-Next's layers are parted, and joined as they compute") {
  const io::Json config = {{"model_type", "qwen3_next"}, {"linear_inputs_apart", true},
                           {"linear_num_key_heads", 2},  {"linear_num_value_heads", 4},
                           {"linear_key_head_dim", 2},   {"linear_value_head_dim", 3}};
  const std::string layer = "model.layers.0.linear_attn.", fused = layer + "in_proj_qkvz.";
  const std::string qkv = layer + "in_proj_qkv.", z = layer + "in_proj_z.";
  const std::string a = "lora_A.weight", b = "lora_B.weight";
  const auto product = [](const NamedArrays& tensors, const std::string& place) {
    return ops::matmul(graph::constant(tensors.at(place + "lora_B.weight")),
                       graph::constant(tensors.at(place + "lora_A.weight")))
        .eval();
  };
  nn::LoraOptions options;
  options.rank = 3;
  options.own = {{fused, {2, 5.0}}, {"other.", {7, 1.0}}};
  const NamedArrays before = {{fused + a, counting({2, 5})},
                              {fused + b, counting({32, 2})},
                              {"model.norm.weight", counting({3})}};
  NamedArrays tensors = before;
  part_inputs(config, tensors, &options);
  CHECK(tensors.size() == 5);
  CHECK(tensors.at(qkv + b).shape() == Shape{20, 2});
  CHECK(tensors.at(z + b).shape() == Shape{12, 2});
  // Of each key head 2 rows of q, 2 of k, 6 of v and 6 of z: the second's first v.
  CHECK(values(tensors.at(qkv + b))[2 * 14] == 2 * 20);
  CHECK(values(tensors.at(z + b))[2 * 6] == 2 * 26);
  CHECK(options.own.size() == 3);
  CHECK(options.of(z).rank == 2);
  join_inputs(config, tensors, &options);
  CHECK(tensors.size() == 3);
  for (const auto& [name, array] : before) CHECK(values(tensors.at(name)) == values(array));
  CHECK(options.own.size() == 2);
  CHECK(options.of(fused).scale == 5);

  // Two that were trained apart, with scales of their own, have the sum of the ranks.
  NamedArrays apart = {{qkv + a, counting({1, 5})},
                       {qkv + b, counting({20, 1})},
                       {z + a, counting({2, 5})},
                       {z + b, counting({12, 2})}};
  nn::LoraOptions own;
  own.own = {{qkv, {1, 4.0}}, {z, {2, 0.5}}};
  const auto of_qkv = values(product(apart, qkv)), of_z = values(product(apart, z));
  join_inputs(config, apart, &own);
  REQUIRE(apart.at(fused + a).shape() == Shape{3, 5});
  CHECK(own.of(fused).rank == 3);
  const Array whole = product(apart, fused);
  for (size_t column = 0; column < 5; ++column) {
    CHECK(values(whole)[5 * 20 + column] == Approx(4.0 * of_qkv[5 * 14 + column]));
    CHECK(values(whole)[5 * 26 + column] == Approx(0.5 * of_z[5 * 6 + column]));
  }

  // One alone adds nothing to the rows of the other.
  NamedArrays alone = {{z + a, counting({1, 5})}, {z + b, counting({12, 1})}};
  join_inputs(config, alone, nullptr);
  CHECK(values(alone.at(fused + b))[9] == 0);
  CHECK(values(alone.at(fused + b))[11] == 1);

  NamedArrays half = {{z + a, counting({1, 5})}};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { join_inputs(config, half, nullptr); }),
                 "the addition to 'model.layers.0.linear_attn.in_proj_z.weight' has shapes"));
  NamedArrays wrong = {{z + a, counting({1, 5})}, {z + b, counting({11, 1})}};
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { join_inputs(config, wrong, nullptr); }),
                 "has shape [11, 1], expected 12 rows as the model's config says"));
}

TEST_CASE("an adapter to an InternLM2 is read under the names of the Llama that it is") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string base = "base_model.model.model.layers.3.", all = base + "attention.wqkv.";
  io::write_safetensors(place + "/adapter_model.safetensors",
                        {{all + "lora_A.weight", counting({2, 8})},
                         {all + "lora_B.weight", counting({8, 2})},
                         {base + "attention.wo.lora_A.weight", counting({4, 8})},
                         {base + "feed_forward.w1.lora_A.weight", counting({4, 8})}});
  const io::Json config = {{"peft_type", "LORA"},
                           {"r", 4},
                           {"lora_alpha", 8},
                           {"rank_pattern", {{"layers.3.attention.wqkv", 2}}}};
  io::write_file_atomically(place + "/adapter_config.json", config.dump());
  const LoraAdapter adapter = read_adapter(
      place, {{"model_type", "llama"}, {"num_attention_heads", 4}, {"num_key_value_heads", 2}});
  const std::string layer = "model.layers.3.";
  REQUIRE(adapter.tensors.size() == 8);
  CHECK(adapter.tensors.contains(layer + "self_attn.o_proj.lora_A.weight"));
  CHECK(adapter.tensors.contains(layer + "mlp.gate_proj.lora_A.weight"));
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    const std::string own = str(layer, "self_attn.", part, ".");
    CHECK(values(adapter.tensors.at(own + "lora_A.weight")) == values(counting({2, 8})));
    CHECK(adapter.options.own.at(own).rank == 2);
  }
  // Of each of two heads of keys the rows of two queries, the key and the value.
  CHECK(values(adapter.tensors.at(layer + "self_attn.k_proj.lora_B.weight")) ==
        std::vector<float>{4, 5, 12, 13});
}

TEST_CASE("an adapter is read under the names of the model, its scale from alpha and rank") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string b = "model.layers.3.self_attn.v_proj.lora_B.weight";
  io::write_safetensors(place + "/adapter_model.safetensors",
                        {{"base_model.model." + b, counting({4, 4})}});
  io::Json config = {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"use_rslora", true}};
  auto read = [&] {
    io::write_file_atomically(place + "/adapter_config.json", config.dump());
    return read_adapter(place, io::Json::object());
  };
  const LoraAdapter adapter = read();
  CHECK(adapter.options.scale == 4);
  CHECK(values(adapter.tensors.at(b)) == values(counting({4, 4})));
  const std::string q = "model.layers.3.self_attn.q_proj.";
  const std::string base = "base_model.model.";
  io::write_safetensors(place + "/adapter_model.safetensors",
                        {{base + q + "lora_A.weight", counting({2, 4})},
                         {base + q + "lora_B.weight", counting({4, 2})},
                         {base + "model.layers.2.self_attn.q_proj.lora_A.weight", counting({4, 4})},
                         {base + "lm_head.weight", counting({5, 4})}});
  config["alpha_pattern"] = {{"layers.3.*q_proj", 32}, {"proj", 1}};
  config["rank_pattern"] = {{"3.self_attn.q_proj", 2}};
  config["use_rslora"] = false;
  const LoraAdapter patterned = read();
  REQUIRE(patterned.options.own.size() == 1);
  CHECK(patterned.options.own.at(q).rank == 2);
  CHECK(patterned.options.own.at(q).scale == 16);
  CHECK(patterned.options.scale == 2);
  CHECK(patterned.tensors.size() == 3);

  NamedArrays tensors = {{"lm_head.weight", counting({5, 4})}, {"other", counting({1})}};
  tensors["lm_head.weight"].as_mutable<float>()[0] = 7;
  replace_tensors(patterned.replaced, tensors);
  CHECK(values(tensors["lm_head.weight"]) == values(counting({5, 4})));
  tensors["lm_head.weight"] = counting({6, 4});
  CHECK(
      contains(refusal(ErrorKind::kMismatch, [&] { replace_tensors(patterned.replaced, tensors); }),
               "'lm_head.weight' has shape [5, 4], the model's [6, 4]"));
  tensors.erase("lm_head.weight");
  CHECK(
      contains(refusal(ErrorKind::kMismatch, [&] { replace_tensors(patterned.replaced, tensors); }),
               "the model has no such tensor"));
  for (const char* key :
       {"use_qalora", "lora_bias", "alora_invocation_tokens", "layer_replication"}) {
    io::Json& value = config[key];
    value = *key == 'a' || key[1] == 'a' ? io::Json({3}) : io::Json(true);
    CHECK(contains(refusal(ErrorKind::kUnsupported, read), str(key, ": ")));
    value = value.is_boolean() ? io::Json(false) : io::Json();
    read();
  }
  for (const char* init : {"pissa", "pissa_niter_4", "olora", "loftq"}) {
    config["init_lora_weights"] = init;
    CHECK(contains(refusal(ErrorKind::kUnsupported, read), "changes the model's own weights"));
  }
  for (const char* init : {"gaussian", "mica"}) {
    config["init_lora_weights"] = init;
    read();
  }
  std::filesystem::rename(place + "/adapter_model.safetensors", place + "/adapter_model.bin");
  read();  // an older name, of a file that is told by its content
  io::write_file_atomically(place + "/adapter_model.bin", "\x80\x02}q.");
  CHECK(contains(refusal(ErrorKind::kMalformed, read), "Python pickle"));
}

TEST_CASE("an adapter of mlx-lm is the one that PEFT would have saved") {
  const std::string ours = lumen::testing::temporary_directory(), theirs = ours + "/mlx";
  std::filesystem::create_directory(theirs);
  const std::string q = "model.layers.1.self_attn.q_proj.", embedding = "model.embed_tokens.";
  const Array qa = counting({2, 4}), qb = counting({6, 2}), ea = counting({2, 9}),
              eb = counting({4, 2}), magnitude = counting({6});
  io::write_file_atomically(ours + "/adapter_config.json",
                            R"({"r": 2, "lora_alpha": 6, "use_dora": true})");
  io::write_safetensors(ours + "/adapter_model.safetensors",
                        {{"base_model.model." + q + "lora_A.weight", qa},
                         {"base_model.model." + q + "lora_B.weight", qb},
                         {"base_model.model." + q + "lora_magnitude_vector.weight", magnitude},
                         {"base_model.model." + embedding + "lora_embedding_A", ea},
                         {"base_model.model." + embedding + "lora_embedding_B", eb}});
  io::Json config = {{"fine_tune_type", "dora"},
                     {"model", "some/model"},
                     {"num_layers", 1},
                     {"lora_parameters", {{"rank", 2}, {"scale", 3.0}, {"dropout", 0.0}}}};
  NamedArrays tensors = {{q + "lora_a", nn::turned(qa)},
                         {q + "lora_b", nn::turned(qb)},
                         {q + "m", magnitude},
                         {embedding + "lora_a", nn::turned(ea)},
                         {embedding + "lora_b", nn::turned(eb)}};
  const auto read = [&](const io::Json& model = io::Json::object()) {
    io::write_file_atomically(theirs + "/adapter_config.json", config.dump());
    io::write_safetensors(theirs + "/adapters.safetensors", tensors);
    return read_adapter(theirs, model);
  };
  const LoraAdapter expected = read_adapter(ours, io::Json::object()), adapter = read();
  CHECK(adapter.options.rank == 2);
  CHECK(adapter.options.scale == 3);
  CHECK(adapter.options.scale == expected.options.scale);
  REQUIRE(adapter.tensors.size() == 5);
  for (const auto& [name, array] : expected.tensors) {
    INFO(name);
    CHECK(adapter.tensors.at(name).shape() == array.shape());
    CHECK(values(adapter.tensors.at(name)) == values(array));
  }
  CHECK(io::base_of_adapter(theirs) == "some/model");

  const std::string up = "model.layers.1.mlp.switch_mlp.up_proj.";
  tensors[up + "lora_a"] = counting({3, 2, 4});
  tensors[up + "lora_b"] = counting({3, 5, 2});
  const LoraAdapter to_experts = read();
  CHECK(to_experts.tensors.size() == 11);
  CHECK(values(to_experts.tensors.at("model.layers.1.mlp.experts.1.up_proj.lora_B.weight"))[0] ==
        10);
  tensors[up + "lora_a"] = counting({6, 4});  // as older versions have it
  const LoraAdapter older = read({{"model_type", "qwen3_moe"}, {"num_experts", 3}});
  CHECK(values(older.tensors.at("model.layers.1.mlp.experts.1.up_proj.lora_A.weight")) ==
        values(to_experts.tensors.at("model.layers.1.mlp.experts.1.up_proj.lora_A.weight")));
  tensors[up + "lora_a"] = counting({3, 2, 4});
  tensors[up + "lora_b"] = counting({6, 5});
  CHECK(
      contains(refusal(ErrorKind::kMalformed, read),
               "is of f32 [6, 5], expected [experts, rank, in] or [experts, out, rank] of floats"));
  tensors.erase(up + "lora_a");
  tensors.erase(up + "lora_b");
  tensors[q + "lora_a"] = counting({4});
  CHECK(contains(refusal(ErrorKind::kMalformed, read), "is of f32 [4], expected a matrix"));
  config["lora_parameters"].erase("rank");
  CHECK(contains(refusal(ErrorKind::kMalformed, read), "rank"));
  config.erase("lora_parameters");
  CHECK(contains(refusal(ErrorKind::kMalformed, read),
                 "lora_parameters is nothing, expected an object with \"rank\" and \"scale\""));
  config["fine_tune_type"] = "full";
  const std::string norm = "model.layers.1.input_layernorm.weight";
  tensors = {{norm, counting({4})}};
  CHECK(values(read().replaced.at(norm)) == values(counting({4})));
  tensors[norm] = Array::zeros(DType::kI32, {4});
  CHECK(contains(refusal(ErrorKind::kMalformed, read), "is of i32 [4], expected a tensor of"));
  CHECK(contains(refusal(ErrorKind::kUnsupported,
                         [&] {
                           read({{"model_type", "falcon_h1"}});
                         }),
                 "an adapter of mlx-lm to a Falcon-H1"));
  config["fine_tune_type"] = "other";
  CHECK(contains(refusal(ErrorKind::kUnsupported, read), "mlx_lm.fuse"));
}

TEST_CASE("layers with an addition and more are found under the model's names") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string head = "base_model.model.lm_head.",
                    q = "base_model.model.model.layers.0.self_attn.q_proj.";
  NamedArrays saved = {{head + "lora_A.weight", counting({2, 4})},
                       {head + "lora_B.weight", counting({5, 2})},
                       {head + "base_layer.weight", counting({5, 4})},
                       {q + "base_layer.bias", counting({4})}};
  const io::Json config = {{"r", 2}, {"lora_alpha", 2}, {"bias", "lora_only"}};
  io::write_file_atomically(place + "/adapter_config.json", config.dump());
  const auto read = [&] {
    io::write_safetensors(place + "/adapter_model.safetensors", saved);
    return read_adapter(place, io::Json::object());
  };
  const LoraAdapter adapter = read();
  CHECK(adapter.tensors.contains("lm_head.lora_B.weight"));
  CHECK(adapter.replaced.contains("lm_head.weight"));
  CHECK(adapter.replaced.contains("model.layers.0.self_attn.q_proj.bias"));
  saved["base_model.model.model.embed_tokens.lora_embedding_A"] = counting({2, 5});
  CHECK(read().tensors.contains("model.embed_tokens.lora_A.weight"));
}

TEST_CASE("an adapter to a model that sees images is read under the names of its language model") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string layer = "base_model.model.model.language_model.layers.1.mlp.up_proj.";
  io::write_safetensors(
      place + "/adapter_model.safetensors",
      {{layer + "lora_A.weight", counting({3, 4})}, {layer + "lora_B.weight", counting({5, 3})}});
  const std::string path = "model.language_model.layers.1.mlp.up_proj";
  const io::Json config = {
      {"r", 2}, {"lora_alpha", 2}, {"rank_pattern", {{path, 3}}}, {"alpha_pattern", {{path, 6}}}};
  io::write_file_atomically(place + "/adapter_config.json", config.dump());
  const LoraAdapter adapter = read_adapter(place, {{"model_type", "qwen3_vl_text"}});
  CHECK(adapter.tensors.contains("model.layers.1.mlp.up_proj.lora_B.weight"));
  const nn::LoraOptions::Own own = adapter.options.of("model.layers.1.mlp.up_proj.");
  CHECK(own.rank == 3);
  CHECK(own.scale == 2);
}

TEST_CASE("an adapter with an embedding or a head parts the two where they were one") {
  const auto adapter = [](const NamedArrays& tensors, const NamedArrays& replaced) {
    LoraAdapter result;
    result.tensors = tensors;
    result.replaced = replaced;
    return result;
  };
  for (const char* embedding : {"model.embed_tokens.weight", "transformer.wte.weight"}) {
    const auto parts = [&](const LoraAdapter& given) {
      NamedArrays tensors = {{embedding, counting({5, 4})}};
      io::Json config = {{"tie_word_embeddings", true}};
      untie_head(given, config, tensors);
      CHECK(tensors.contains("lm_head.weight") == (config["tie_word_embeddings"] == false));
      return tensors.contains("lm_head.weight") &&
             values(tensors["lm_head.weight"]) == values(tensors[embedding]);
    };
    CHECK(parts(adapter({}, {{embedding, counting({5, 4})}})));
    CHECK(parts(adapter({}, {{"lm_head.weight", counting({5, 4})}})));
    CHECK(parts(adapter({{"lm_head.lora_A.weight", counting({1, 4})}}, {})));
    CHECK_FALSE(parts(adapter({}, {{"model.norm.weight", counting({4})}})));
  }
  io::Json untied = {{"tie_word_embeddings", false}};
  NamedArrays none;
  untie_head(adapter({}, {{"lm_head.weight", counting({5, 4})}}), untied, none);
  CHECK(none.empty());
}

// The models and tokens that goldens of adapters are for, and the adapters of some.
class AdapterGoldens {
 public:
  // `name` is that of the files with the adapters.
  explicit AdapterGoldens(const char* name)
      : goldens_(io::read_json(path(name, "json"))),
        arrays_(read(name)),
        models_(read("adapters")) {
    const io::Json models = io::read_json(path("adapters", "json"))["models"];
    for (const auto& [model, config] : models.items()) {
      places_[model] =
          write(models_, model + "/weight/", "model.safetensors", "config.json", config);
    }
  }

  const io::Json& cases() const { return goldens_["cases"]; }
  std::string model(const std::string& name) const {
    return places_.at(cases()[name]["model"].get<std::string>());
  }
  std::string adapter(const std::string& name, const char* weights) const {
    return write(arrays_, name + "/adapter/", weights, "adapter_config.json",
                 cases()[name]["config"]);
  }
  // Of the logits of the model in `place` with an adapter, or of one alone.
  double error_of(const std::string& name, const std::string& place, const std::string& lora = "",
                  const std::vector<std::string>& more = {}) const {
    LoadOptions options;
    options.kv_type = DType::kF32;
    if (!lora.empty()) options.lora = {lora};
    options.lora.insert(options.lora.end(), more.begin(), more.end());
    const Array logits = LanguageModel::load(io::open_model(place), options)
                             ->logits(models_.at("tokens").as<int32_t>());
    return lumen::testing::relative_error(logits.as<float>(),
                                          arrays_.at(name + "/logits").as<float>());
  }

 private:
  static std::string path(const char* name, const char* end) {
    return lumen::testing::source_path(str("testdata/goldens/", name, ".", end));
  }
  static NamedArrays read(const char* name) {
    return io::read_safetensors(path(name, "safetensors"))->arrays();
  }
  // Writes the arrays below `prefix`, and the config, as `files` are called.
  static std::string write(const NamedArrays& arrays, const std::string& prefix,
                           const char* weights, const char* file, const io::Json& config) {
    const std::string place = lumen::testing::temporary_directory();
    NamedArrays below;
    for (const auto& [name, array] : arrays) {
      if (name.starts_with(prefix)) below[name.substr(prefix.size())] = array;
    }
    REQUIRE_FALSE(below.empty());
    io::write_safetensors(str(place, "/", weights), below);
    io::write_file_atomically(str(place, "/", file), config.dump());
    return place;
  }

  io::Json goldens_;
  NamedArrays arrays_, models_;
  std::map<std::string, std::string> places_;
};

std::string converted(const std::string& model, const std::string& output,
                      const std::optional<std::string>& lora,
                      const std::optional<std::string>& base) {
  ConvertOptions options;
  options.model = model;
  options.output = lumen::testing::temporary_directory() + output;
  options.type = "f32";
  options.lora = lora;
  options.base = base;
  CHECK(convert(options) == 0);
  return *options.output;
}

// Adapters with embeddings, heads, biases, magnitudes, experts, …, written by PEFT; those to
// experts in GGUF, too.
TEST_CASE("logits with PEFT's adapters are PEFT's, and of models that they are worked into too") {
  const AdapterGoldens goldens("adapters");
  for (const auto& [name, golden] : goldens.cases().items()) {
    INFO(name);
    const std::string model = goldens.model(name);
    CHECK(goldens.error_of(name, model) > 0.05);
    const std::string lora = goldens.adapter(name, "adapter_model.safetensors");
    CHECK(goldens.error_of(name, model, lora) < 5e-6);
    CHECK(goldens.error_of(name, converted(model, "/merged", lora, {})) < 5e-6);
    if (!name.ends_with("-experts") && name != "embedding-untied") continue;
    const std::string gguf = converted(lora, "/adapter.gguf", {}, model);
    CHECK(goldens.error_of(name, model, gguf) < 5e-6);
    CHECK(goldens.error_of(name, model, converted(gguf, "/peft", {}, model)) < 5e-6);
  }
}

TEST_CASE("adapters add up, each with its factor") {
  const AdapterGoldens goldens("adapters");
  int added = 0, refused = 0;
  for (const auto& [name, golden] : goldens.cases().items()) {
    INFO(name);
    const std::string model = goldens.model(name);
    const std::string lora = goldens.adapter(name, "adapter_model.safetensors");
    try {
      const double two = goldens.error_of(name, model, lora + "=0.25", {lora + "=0.75"});
      const double three =
          goldens.error_of(name, model, lora + "=2", {lora + "=-0.5", lora + "=-0.5"});
      const double none = goldens.error_of(name, model, lora + "=0");
      CHECK(two < 1e-5);
      CHECK(three < 1e-5);
      CHECK(none == Approx(goldens.error_of(name, model)).epsilon(1e-3));
      ++added;
    } catch (const Error& error) {  // magnitudes, and tensors that are replaced
      CHECK(error.kind() == ErrorKind::kUnsupported);
      CHECK(contains(error.what(), "cannot be added to other adapters"));
      ++refused;
    }
  }
  CHECK(added >= 3);
  CHECK(refused >= 2);
}

TEST_CASE("the name of an adapter may end with a factor, unless it is there") {
  CHECK(parse_adapter_name("a/b=0.5").path == "a/b");
  CHECK(parse_adapter_name("a/b=-2").scale == -2);
  CHECK(parse_adapter_name("a/b").scale == 1);
  const std::string place = lumen::testing::temporary_directory() + "/lr=3";
  std::filesystem::create_directory(place);
  CHECK(parse_adapter_name(place).path == place);
  CHECK(parse_adapter_name(place + "=4").path == place);
  for (const char* wrong : {"a=", "a=x", "a=1e9", "a=nan"}) {
    CHECK(
        contains(refusal(ErrorKind::kUsage, [&] { parse_adapter_name(wrong); }), "ADAPTER=SCALE"));
  }
}

TEST_CASE("logits with mlx-lm's adapters, also to experts and of whole weights, are mlx-lm's") {
  const AdapterGoldens goldens("mlx_adapters");
  for (const auto& [name, golden] : goldens.cases().items()) {
    INFO(name);
    const std::string model = goldens.model(name);
    CHECK(goldens.error_of(name, model) > 0.05);
    const std::string lora = goldens.adapter(name, "adapters.safetensors");
    CHECK(goldens.error_of(name, model, lora) < 2e-5);
    CHECK(goldens.error_of(name, converted(model, "/merged", lora, {})) < 2e-5);
    if (name.starts_with("full-")) continue;
    CHECK(goldens.error_of(name, model, converted(lora, "/adapter.gguf", {}, model)) < 2e-5);
  }
}

TEST_CASE("an adapter of integers is refused by file and tensor") {
  const std::string place = lumen::testing::temporary_directory();
  io::write_file_atomically(place + "/adapter_config.json", R"({"r": 4, "lora_alpha": 8})");
  io::write_safetensors(
      place + "/adapter_model.safetensors",
      {{"model.layers.0.mlp.up_proj.lora_A.weight", Array::zeros(DType::kI32, {4, 2})}});
  const std::string why =
      refusal(ErrorKind::kMalformed, [&] { read_adapter(place, io::Json::object()); });
  CHECK(contains(why, "adapter_model.safetensors: tensor 'model.layers.0.mlp.up_proj.lora_A"));
  CHECK(contains(why, "has type i32, expected a float type"));
  CHECK(contains(
      refusal(ErrorKind::kUsage,
              [&] { read_adapter(place + "/adapter_model.safetensors", io::Json::object()); }),
      "name its directory"));
  const auto outcome = testing::run_tool_process(
      "lumen-run", {"-p", "a", "--lora", place + "/adapter_model.safetensors"});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "error: " + place));  // not that of the model
  CHECK(contains(outcome.err, "name its directory"));
}

TEST_CASE("additions to experts that do not fit the model or the config are refused") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string experts = "base_model.model.model.layers.0.mlp.experts.";
  const io::Json model = {{"model_type", "qwen3_moe"}, {"num_experts", 3}};
  io::Json config = {{"r", 2}, {"lora_alpha", 2}, {"target_parameters", {"experts.gate_up_proj"}}};
  NamedArrays tensors = {{experts + "lora_A.weight", counting({6, 4})},
                         {experts + "lora_B.weight", counting({10, 6})}};
  const auto read = [&] {
    io::write_file_atomically(place + "/adapter_config.json", config.dump());
    io::write_safetensors(place + "/adapter_model.safetensors", tensors);
    return read_adapter(place, model);
  };
  // Column 2 · rank + expert of B, and of its rows the second half for up.
  const LoraAdapter adapter = read();
  const std::string up = "model.layers.0.mlp.experts.1.up_proj.";
  CHECK(adapter.tensors.size() == 12);
  CHECK(values(adapter.tensors.at(up + "lora_A.weight")) ==
        std::vector<float>{8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(values(adapter.tensors.at(up + "lora_B.weight")) ==
        std::vector<float>{31, 34, 37, 40, 43, 46, 49, 52, 55, 58});
  CHECK(places_in_weights(adapter).size() == 6);
  config["target_parameters"] = {"experts.gate_up_proj", "experts.down_proj"};
  CHECK(contains(refusal(ErrorKind::kMalformed, read),
                 "has additions to one of the parameters of 'model.layers.0.mlp.experts', but "
                 "target_parameters of adapter_config.json names 2"));
  config["target_parameters"] = {"experts.down_proj"};
  tensors[experts + "lora_A.weight"] = counting({4, 4});
  CHECK(contains(refusal(ErrorKind::kMismatch, read),
                 "'model.layers.0.mlp.experts.down_proj' has shapes [4, 4] and [10, 6], expected"));
  tensors[experts + "lora_A.weight"] = Array::zeros(DType::kI32, {6, 4});
  CHECK(contains(refusal(ErrorKind::kMalformed, read), "has type i32, expected a float type"));
}

TEST_CASE("an adapter with layers that the model lacks is refused by the names of both") {
  const std::string place = lumen::testing::temporary_directory();
  io::write_file_atomically(place + "/adapter_config.json", R"({"r": 4, "lora_alpha": 8})");
  io::write_safetensors(place + "/adapter_model.safetensors",
                        {{"model.layers.77.mlp.up_proj.lora_A.weight", counting({4, 64})},
                         {"model.layers.77.mlp.up_proj.lora_B.weight", counting({128, 4})}});
  const std::string model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  LoadOptions options;
  options.lora = {place};
  const std::string why =
      refusal(ErrorKind::kMismatch, [&] { LanguageModel::load(io::open_model(model), options); });
  CHECK(contains(why, "random-spm.gguf: adapter " + place +
                          "/adapter_model.safetensors: tensor "
                          "'model.layers.77.mlp.up_proj.lora_A.weight' and 1 more are not part"));
}

TEST_CASE("an adapter without what its config names is refused") {
  LoraAdapter adapter;
  const NamedArrays model = {{"model.layers.0.mlp.up_proj.weight", counting({4, 2})},
                             {"model.layers.1.mlp.up_proj.weight", counting({4, 2})},
                             {"model.layers.1.mlp.up_proj.bias", counting({4})},
                             {"lm_head.weight", counting({5, 2})}};
  auto refused = [&] {
    return refusal(ErrorKind::kMalformed, [&] { check_complete(adapter, model); });
  };
  CHECK(contains(refused(), "has no tensors"));
  adapter.tensors = {{"model.layers.0.mlp.up_proj.lora_A.weight", counting({1, 2})}};
  check_complete(adapter, model);  // a config that does not list them
  adapter.targets = {"up_proj"};
  CHECK(contains(refused(), "'model.layers.1.mlp.up_proj.lora_A.weight', but target_modules of "));
  adapter.targets = {"model.layers.0.mlp.up_proj", "down_proj", "lm_head"};
  CHECK(contains(refused(), "'lm_head.lora_A.weight', but target_modules of "));
  // A layer that modules_to_save names too is saved whole (PEFT 0.21.2).
  adapter.replaced = {{"lm_head.weight", counting({5, 2})}};
  check_complete(adapter, model);
  const NamedArrays wider = {{"model.layers.0.mlp.up_proj.weight", counting({6, 3})},
                             {"model.layers.1.mlp.up_proj.weight", counting({6, 3})}};
  adapter.targets = {"up_proj"};
  CHECK(refusal(ErrorKind::kMismatch, [&] { check_complete(adapter, wider); }) ==
        "the adapter is of another model: 'model.layers.0.mlp.up_proj.lora_A.weight' has shape "
        "[1, 2], the layer's weight [6, 3]");
  adapter.targets = {"c_attn"};
  CHECK(contains(
      refusal(ErrorKind::kMalformed,
              [&] {
                check_complete(adapter, {{"transformer.h.0.attn.c_attn.weight", counting({2})}});
              }),
      "'transformer.h.0.attn.c_attn.lora_A.weight'"));
}

TEST_CASE("a model with an adapter is told from the same with another scale or other weights") {
  const auto files = io::open_model(lumen::testing::source_path("testdata/models/random-spm.gguf"));
  const std::string place = lumen::testing::temporary_directory();
  const std::string name = "model.layers.0.self_attn.v_proj.";
  const Shape shape = files.tensors.at(name + "weight").shape();
  auto fingerprint = [&](double alpha, float weight, bool nonfinite_is_fine = false) {
    Array a = counting({2, shape[1]});
    a.as_mutable<float>()[1] = weight;
    io::write_safetensors(
        place + "/adapter_model.safetensors",
        {{"base_model.model." + name + "lora_A.weight", a},
         {"base_model.model." + name + "lora_B.weight", counting({shape[0], 2})}});
    const io::Json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", alpha}};
    io::write_file_atomically(place + "/adapter_config.json", config.dump());
    LoadOptions options;
    options.lora = {place};
    options.allow_nonfinite = nonfinite_is_fine;
    return LanguageModel::load(files, options)->fingerprint();
  };
  const std::string first = fingerprint(8, 1);
  CHECK(fingerprint(8, 1) == first);
  CHECK(fingerprint(16, 1) != first);
  CHECK(fingerprint(8, 2) != first);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { fingerprint(8, NAN); }), place));
  CHECK(fingerprint(8, NAN, true) != first);
}

}  // namespace
}  // namespace lumen::runtime
