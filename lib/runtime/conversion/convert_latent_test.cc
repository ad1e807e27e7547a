// Conversions of models with latent attention (DeepSeek): the forms that files have of kv_b_proj,
// and layers that guess further tokens.
#include <algorithm>
#include <cmath>

#include "lib/base/relative_error.h"
#include "lib/base/strings.h"
#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/gguf.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_gguf.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/latent_attention.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/convert.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::relative_error;

// A file with attn_k_b and attn_v_b in place of attn_kv_b, or beside it, and the keys that say so.
std::string with_parted_rows(const std::string& path, const io::Json& config, bool keeps_whole) {
  const auto file = io::read_gguf(path);
  const auto size = [&](const char* key) { return config[key].get<int64_t>(); };
  const int64_t heads = size("num_attention_heads"), rank = size("kv_lora_rank");
  const int64_t key_dim = size("qk_nope_head_dim"), value_dim = size("v_head_dim");
  const int64_t rotary = size("qk_rope_head_dim");
  io::GgufWriter writer;
  for (size_t i = 0; i < file->metadata.size(); ++i) {
    const std::string_view key = file->metadata[i].key();
    if (key.ends_with("expert_gating_func")) continue;  // as some files of GLM-4.7-Flash
    if (key.ends_with("_length") && key.find("attention.") != key.npos) continue;
    if (!key.ends_with("head_count_kv")) writer.copy(file->metadata[i]);
  }
  for (const auto& [key, value] :
       {std::pair("head_count_kv", int64_t{1}), std::pair("key_length", rank + rotary),
        std::pair("value_length", rank), std::pair("key_length_mla", key_dim + rotary),
        std::pair("value_length_mla", value_dim)}) {
    writer.set(str("deepseek2.attention.", key), static_cast<uint32_t>(value));
  }
  for (const io::GgufTensor& tensor : file->tensors) {
    const size_t at = tensor.name.find("attn_kv_b");
    const Array array = file->array(tensor);
    if (at == std::string::npos || keeps_whole) writer.add(tensor.name, array);
    if (at == std::string::npos) continue;
    const std::string place = tensor.name.substr(0, at);
    const graph::Tensor rows =
        graph::reshape(graph::constant(array), {heads, key_dim + value_dim, rank});
    const graph::Tensor keys = graph::permute(graph::slice(rows, 1, 0, key_dim), {0, 2, 1});
    writer.add(place + "attn_k_b.weight", graph::contiguous(keys, DType::kF32).eval());
    const graph::Tensor values = graph::slice(rows, 1, key_dim, key_dim + value_dim);
    writer.add(place + "attn_v_b.weight", graph::contiguous(values, DType::kF32).eval());
  }
  const std::string parted = lumen::testing::temporary_directory() + "/parted.gguf";
  writer.write(parted);
  return parted;
}

// A directory of the small config of DeepSeek-V3, without what GGUF cannot say.
std::string latent_directory(io::Json& config) {
  const models::ModelDef& def = models::find_model_def({{"model_type", "deepseek_v3"}});
  config = tiny_config("deepseek_v3");
  make_sayable(config);
  return model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
}

}  // namespace

TEST_CASE("files with the rows of kv_b_proj for keys and values apart are read as those without") {
  io::Json config;
  const std::string directory = latent_directory(config);
  const std::string whole = converted(directory);
  const std::vector<float> want = logits(directory);
  CHECK(relative_error(logits(whole), want) < 1e-6);
  const auto original = io::read_safetensors(directory + "/model.safetensors")->arrays();
  for (const bool keeps_whole : {false, true}) {
    INFO(keeps_whole);
    const std::string parted = with_parted_rows(whole, config, keeps_whole);
    CHECK(relative_error(logits(parted), want) < 1e-6);
    const std::string back = converted_directory(parted, "f32");
    const auto tensors = io::read_safetensors(back + "/model.safetensors")->arrays();
    CHECK(tensors.size() == original.size());
    const std::string name = "model.layers.1.self_attn.kv_b_proj.weight";
    CHECK(std::ranges::equal(tensors.at(name).as<float>(), original.at(name).as<float>()));
    CHECK(relative_error(logits(back), want) < 1e-6);
    CHECK(io::read_json(back + "/config.json")["n_group"] == config["n_group"]);
  }
}

TEST_CASE("Kimi K2 is a DeepSeek-V3 of another name") {
  io::Json config;
  const std::string directory = latent_directory(config);
  const std::vector<float> want = logits(directory);
  io::Json said = io::read_json(directory + "/config.json");
  said["model_type"] = "kimi_k2";
  io::write_file_atomically(directory + "/config.json", said.dump());
  CHECK(io::open_model(directory).config["model_type"] == "deepseek_v3");
  CHECK(logits(directory) == want);
  const std::string gguf = converted(directory);
  CHECK(io::read_gguf(gguf)->metadata.get_string("general.architecture") == "deepseek2");
  CHECK(relative_error(logits(gguf), want) < 1e-6);
}

TEST_CASE("adapters of kv_b_proj run where its rows are apart, and are not lost in conversions") {
  io::Json config;
  const std::string directory = latent_directory(config);
  const std::string parted = with_parted_rows(converted(directory), config, false);
  const int64_t rows = 4 * (8 + 14), rank = 24;
  std::vector<float> a(static_cast<size_t>(2 * rank)), b(static_cast<size_t>(2 * rows));
  for (size_t i = 0; i < a.size(); ++i) a[i] = 0.3f * std::sin(static_cast<float>(i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = 0.2f * std::cos(static_cast<float>(3 * i));
  const std::string adapter = lumen::testing::temporary_directory();
  NamedArrays tensors;
  for (int layer : {0, 1}) {
    const std::string place = str("base_model.model.model.layers.", layer, ".self_attn.kv_b_proj.");
    tensors[place + "lora_A.weight"] = Array::from<float>(a, {2, rank});
    tensors[place + "lora_B.weight"] = Array::from<float>(b, {rows, 2});
  }
  io::write_safetensors(adapter + "/adapter_model.safetensors", tensors);
  const io::Json peft = {
      {"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"target_modules", {"kv_b_proj"}}};
  io::write_file_atomically(adapter + "/adapter_config.json", peft.dump());
  const std::vector<float> want = logits(directory, adapter);
  CHECK(relative_error(logits(directory), want) > 1e-3);
  CHECK(relative_error(logits(parted, adapter), want) < 1e-6);
  ConvertOptions options;
  options.model = parted;
  options.output = lumen::testing::temporary_directory() + "/model.gguf";
  options.lora = adapter;
  CHECK(lumen::testing::contains(
      lumen::testing::refusal(ErrorKind::kUnsupported, [&] { convert(options); }),
      "has the rows of keys and of values apart"));
  options.model = converted_directory(parted, "f32");
  options.type = "f32";
  REQUIRE(convert(options) == 0);
  CHECK(relative_error(logits(*options.output), want) < 1e-5);
}

TEST_CASE("rows of kv_b_proj apart are joined in what training writes") {
  NamedArrays tensors;
  const std::string place = "model.layers.0.self_attn.";
  tensors[place + "k_b_proj.weight"] =
      Array::from<float>(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  tensors[place + "v_b_proj.weight"] =
      Array::from<float>(std::vector<float>{9, 10, 11, 12}, {2, 1, 2});
  nn::join_latent_rows(tensors);
  REQUIRE(tensors.size() == 1);
  const Array whole = tensors.at(place + "kv_b_proj.weight");
  CHECK(whole.shape() == Shape{6, 2});
  const float want[] = {1, 3, 2, 4, 9, 10, 5, 7, 6, 8, 11, 12};
  CHECK(std::ranges::equal(whole.as<float>(), want));
}

TEST_CASE("layers of DeepSeek-V3 that guess further tokens are left out") {
  io::Json config;
  const std::string directory = latent_directory(config);
  const std::vector<float> want = logits(directory);
  const std::string weights = directory + "/model.safetensors";
  NamedArrays tensors = io::read_safetensors(weights)->arrays();
  for (auto& [name, array] : tensors) array = nn::float32_copy(array);
  tensors["model.layers.2.eh_proj.weight"] = Array::zeros(DType::kF32, {24, 48});
  tensors["model.layers.2.mlp.experts.0.up_proj.weight"] = Array::zeros(DType::kF32, {16, 24});
  io::write_safetensors(weights, tensors);
  CHECK_THROWS_AS(logits(directory), Error);  // a layer that the config does not know
  config = io::read_json(directory + "/config.json");
  config["num_nextn_predict_layers"] = 1;
  io::write_file_atomically(directory + "/config.json", config.dump());
  CHECK(logits(directory) == want);
  CHECK(relative_error(logits(converted(directory)), want) < 1e-6);
}

}  // namespace lumen::runtime
