#include "lib/io/internlm2.h"

#include "lib/base/testing.h"
#include "lib/io/model_files.h"
#include "lib/io/test_directories.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

// One number per row.
Array rows(int64_t count) {
  Array array = Array::zeros(DType::kF32, {count, 1});
  float next = 0;
  for (float& number : array.as_mutable<float>()) number = next++;
  return array;
}

std::vector<float> numbers(const Array& array) {
  return {array.as<float>().begin(), array.as<float>().end()};
}

TEST_CASE("an InternLM2 is read as the Llama that it is") {
  const ModelFiles model = open_model(make_directory(
      str(R"({"model_type": "internlm2", "bias": false, "auto_map": {"AutoConfig": "x.y"},
              "architectures": ["InternLM2ForCausalLM"], )",
          kSizes, "}"),
      {"model.tok_embeddings.weight", "model.norm.weight", "output.weight",
       "model.layers.0.attention_norm.weight", "model.layers.0.ffn_norm.weight",
       "model.layers.0.attention.wo.weight", "model.layers.0.feed_forward.w1.weight",
       "model.layers.0.feed_forward.w2.weight", "model.layers.0.feed_forward.w3.weight"}));
  CHECK(model.config["model_type"] == "llama");
  CHECK(model.config["attention_bias"] == false);
  CHECK(model.config["tie_word_embeddings"] == false);
  CHECK_FALSE(model.config.contains("auto_map"));
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"}) {
    INFO(name);
    CHECK(model.tensors.contains(name));
  }
}

TEST_CASE("an InternLM2's queries, keys and values are taken apart") {
  const Json config = {{"num_attention_heads", 4}, {"num_key_value_heads", 2}};
  const std::string layer = "model.layers.7.", whole = layer + "attention.wqkv.weight";
  const NamedArrays apart = internlm2_as_llama(config, {{whole, rows(16)}});  // heads of 2 numbers
  REQUIRE(apart.size() == 3);
  const auto part = [&](const char* name) {
    return numbers(apart.at(str(layer, "self_attn.", name, "_proj.weight")));
  };
  CHECK(part("q") == std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(part("k") == std::vector<float>{4, 5, 12, 13});
  CHECK(part("v") == std::vector<float>{6, 7, 14, 15});
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] {
                           internlm2_as_llama(config, {{whole, rows(12)}});
                         }),
                 "has shape [12, 1], expected the rows of 4 queries and of 2 keys and values"));
  const NamedArrays twice = {{whole, rows(16)}, {layer + "self_attn.q_proj.weight", rows(2)}};
  CHECK(refusal(ErrorKind::kMalformed, [&] { internlm2_as_llama(config, twice); }) ==
        "tensor 'model.layers.7.self_attn.q_proj.weight' is there twice");
}

TEST_CASE("an adapter to an InternLM2 is read as one to the Llama that it is") {
  const Json config = {{"num_attention_heads", 4}, {"num_key_value_heads", 2}};
  const std::string layer = "model.layers.7.", own = layer + "attention.wqkv.";
  const NamedArrays apart = internlm2_as_llama(config, {{own + "lora_A.weight", rows(3)},
                                                        {own + "lora_B.weight", rows(8)},
                                                        {own + "lora_magnitude_vector", rows(8)},
                                                        {"output.lora_A.weight", rows(3)}});
  REQUIRE(apart.size() == 10);
  CHECK(apart.contains("lm_head.lora_A.weight"));
  const std::vector<float> of_heads[] = {{0, 1, 4, 5}, {2, 6}, {3, 7}};
  for (size_t i = 0; i < 3; ++i) {
    const std::string part = str(layer, "self_attn.", "qkv"[i], "_proj.");
    CHECK(numbers(apart.at(part + "lora_A.weight")) == std::vector<float>{0, 1, 2});
    CHECK(numbers(apart.at(part + "lora_B.weight")) == of_heads[i]);
    CHECK(numbers(apart.at(part + "lora_magnitude_vector")) == of_heads[i]);
    CHECK(internlm2_names_as_llama(own)[i] == part);
  }
  CHECK(internlm2_names_as_llama("model.layers.7.mlp.up_proj.") ==
        std::vector<std::string>{"model.layers.7.mlp.up_proj."});
}

}  // namespace
}  // namespace lumen::io
