#include "lib/io/model_files.h"

#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"

namespace lumen::io {
namespace {

// What every form of stories260K has in common.
void check_stories(const ModelFiles& model) {
  CHECK(model.config["model_type"] == "llama");
  CHECK(model.config["hidden_size"] == 64);
  CHECK(model.config["intermediate_size"] == 172);
  CHECK(model.config["num_hidden_layers"] == 5);
  CHECK(model.config["num_attention_heads"] == 8);
  CHECK(model.config["num_key_value_heads"] == 4);
  CHECK(model.config["head_dim"] == 8);
  CHECK(model.config["vocab_size"] == 512);
  CHECK(model.config["max_position_embeddings"] == 512);
  CHECK(model.config["rope_theta"] == 10000.0);
  CHECK(model.config["rms_norm_eps"].get<double>() == Approx(1e-5));
  CHECK(model.config["tie_word_embeddings"] == true);
  CHECK(model.tensors.size() == 47);
  REQUIRE(model.tensors.contains("model.embed_tokens.weight"));
  REQUIRE(model.tensors.contains("model.norm.weight"));
  for (int layer = 0; layer < 5; ++layer) {
    const auto shape = [&](const std::string& name) {
      const auto found = model.tensors.find(str("model.layers.", layer, ".", name, ".weight"));
      REQUIRE(found != model.tensors.end());
      return found->second.shape();
    };
    CHECK(shape("input_layernorm") == Shape{64});
    CHECK(shape("post_attention_layernorm") == Shape{64});
    CHECK(shape("self_attn.q_proj") == Shape{64, 64});
    CHECK(shape("self_attn.k_proj") == Shape{32, 64});
    CHECK(shape("self_attn.v_proj") == Shape{32, 64});
    CHECK(shape("self_attn.o_proj") == Shape{64, 64});
    CHECK(shape("mlp.gate_proj") == Shape{172, 64});
    CHECK(shape("mlp.up_proj") == Shape{172, 64});
    CHECK(shape("mlp.down_proj") == Shape{64, 172});
  }
  CHECK(model.tensors.at("model.embed_tokens.weight").shape() == Shape{512, 64});
}

// Largest difference between the same float32 tensor of two models.
float difference(const ModelFiles& a, const ModelFiles& b, const std::string& name) {
  const auto x = a.tensors.at(name).as<float>(), y = b.tensors.at(name).as<float>();
  REQUIRE(x.size() == y.size());
  float largest = 0;
  for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

TEST_CASE("every form of stories260K opens as the same model") {
  LUMEN_SHARED_DATA(models, "models");
  const ModelFiles hf = open_model(models + "/hf/stories260K");
  const ModelFiles gguf = open_model(models + "/gguf-derived/stories260K-f32.gguf");
  const ModelFiles v0 = open_model(models + "/llama2c/stories260K/stories260K.bin");
  const ModelFiles v1 = open_model(models + "/llama2c/stories260K/checkpoint_v1.bin");
  for (const ModelFiles* model : {&hf, &gguf, &v0, &v1}) check_stories(*model);
  CHECK(hf.format == ModelFormat::kHuggingFace);
  CHECK(gguf.format == ModelFormat::kGguf);
  CHECK(v0.format == ModelFormat::kLlama2c);
  CHECK(hf.config["rope_interleaved"] == false);
  CHECK(gguf.config["rope_interleaved"] == true);
  CHECK(v0.config["rope_interleaved"] == true);
  // The same weights; only q and k differ in row order between the two rotary layouts.
  for (const auto& [name, array] : hf.tensors) {
    CAPTURE(name);
    CHECK(difference(v0, v1, name) == 0);
    CHECK(difference(v0, gguf, name) == 0);
    const bool rotary =
        name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos;
    if (!rotary) CHECK(difference(v0, hf, name) == 0);
  }
  CHECK(gguf.gguf != nullptr);
  CHECK(gguf.chat_templates.contains("default"));
  REQUIRE(gguf.end_tokens.size() == 1);
  CHECK(gguf.end_tokens[0].id == 2);
  CHECK(gguf.end_tokens[0].source == "tokenizer.ggml.eos_token_id");
  REQUIRE(hf.end_tokens.size() == 1);
  CHECK(hf.end_tokens[0].source == "generation_config.json eos_token_id");
  CHECK(hf.tokenizer_file == models + "/hf/stories260K/tokenizer.json");
}

TEST_CASE("sharded, quantised and other shared models open") {
  LUMEN_SHARED_DATA(models, "models");
  const ModelFiles sharded = open_model(models + "/hf/stories260K-bf16-sharded");
  check_stories(sharded);
  CHECK(sharded.tensors.at("model.norm.weight").dtype() == DType::kBF16);
  for (const char* type : {"bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"}) {
    check_stories(open_model(str(models, "/gguf-derived/stories260K-", type, ".gguf")));
  }
  for (const char* type : {"q3_k_m", "q4_0", "q4_k_m", "q6_k", "q8_0"}) {
    const auto model = open_model(str(models, "/synthetic/llama-256/model-", type, ".gguf"));
    CHECK(model.tensors.size() == 20);
  }
  CHECK(open_model(models + "/synthetic/llama-256").tensors.size() == 20);
  for (const char* name : {"babyllama-tok105", "babyllama-tok105-f16"}) {
    CHECK(open_model(str(models, "/hf/", name)).config["vocab_size"] == 105);
  }
  const auto baby = open_model(models + "/llama2c/babyllama-tok105/model5000.bin");
  CHECK(baby.config["vocab_size"] == 105);
  const auto tiny = open_model(models + "/gguf/llama-2-tiny-random.gguf");
  CHECK(tiny.config["tie_word_embeddings"] == false);
  CHECK(tiny.config["vocab_size"] == 32000);
}

TEST_CASE("rope scaling of Llama 3 arrives from both formats") {
  LUMEN_SHARED_DATA(directory, "models/synthetic/llama3-rope");
  const ModelFiles hf = open_model(directory);
  CHECK(hf.config["rope_scaling"]["rope_type"] == "llama3");
  CHECK(hf.tensors.contains("lm_head.weight"));
  const ModelFiles gguf = open_model(directory + "/model-f32.gguf");
  CHECK(gguf.config["rope_scaling"].is_null());
  CHECK(gguf.tensors.at("rope_freqs.weight").shape() == Shape{16});
  CHECK(gguf.config["tie_word_embeddings"] == false);
}

TEST_CASE("tensor types Lumen lacks are named") {
  LUMEN_SHARED_DATA(path, "models/synthetic/llama-256/model-iq4_xs.gguf");
  try {
    open_model(path);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kUnsupported);
    CHECK(std::string(error.what()).find("IQ4_XS") != std::string::npos);
  }
}

}  // namespace
}  // namespace lumen::io
