#include "lib/io/write_gguf.h"

#include <cmath>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/io/model_formats.h"

namespace lumen::io {
namespace {

TEST_CASE("what GgufWriter writes is read back") {
  GgufWriter writer;
  writer.set("general.architecture", std::string("llama"));
  writer.set("count", uint32_t{7});
  writer.set("ratio", 0.5f);
  writer.set("flag", true);
  writer.set("words", std::vector<std::string>{"a", "", "ccc"});
  writer.set("numbers", std::vector<int32_t>{-1, 2});
  const Array matrix = Array::from<float>(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Array blocks = Array::zeros(DType::kQ8_0, {3, 64});
  writer.add("q.weight", blocks);
  writer.add("m.weight", matrix);
  const std::string path = testing::temporary_directory() + "/written.gguf";
  writer.write(path);

  const auto file = read_gguf(path);
  CHECK(file->metadata.get_string("general.architecture") == "llama");
  CHECK(file->metadata.get_int("count", 0, 10) == 7);
  CHECK(file->metadata.get_number("ratio") == 0.5);
  CHECK(file->metadata.find("words")->size() == 3);
  CHECK(file->metadata.find("numbers")->int_at(0) == -1);
  REQUIRE(file->tensors.size() == 2);
  const Array m = file->array(*file->find_tensor("m.weight"));
  CHECK(m.shape() == matrix.shape());
  CHECK(std::equal(matrix.data(), matrix.data() + matrix.bytes(), m.data()));
  const Array q = file->array(*file->find_tensor("q.weight"));
  CHECK(q.dtype() == DType::kQ8_0);
  CHECK(q.shape() == blocks.shape());
}

TEST_CASE("rope scaling goes to GGUF and back") {
  const std::string path = testing::temporary_directory() + "/scaled.gguf";
  const auto read_back = [&](const Json& scaling) {
    GgufWriter writer;
    set_gguf_config({{"model_type", "llama"},
                     {"hidden_size", 8},
                     {"intermediate_size", 16},
                     {"num_hidden_layers", 1},
                     {"num_attention_heads", 2},
                     {"num_key_value_heads", 1},
                     {"head_dim", 4},
                     {"rms_norm_eps", 1e-5},
                     {"rope_theta", 10000.0},
                     {"vocab_size", 3},
                     {"max_position_embeddings", 64},
                     {"rope_scaling", scaling}},
                    writer);
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
                                             read_back({{"rope_type", "longrope"}});
                                           }),
                          "longrope"));
}

TEST_CASE("windows of single layers have no place in GGUF") {
  Json config = {{"model_type", "qwen2"},
                 {"hidden_size", 8},
                 {"intermediate_size", 16},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"head_dim", 4},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 10000.0},
                 {"vocab_size", 3},
                 {"max_position_embeddings", 64},
                 {"sliding_window", 16},
                 {"max_window_layers", 2}};
  const auto write = [&] {
    GgufWriter writer;
    set_gguf_config(config, writer);
  };
  write();  // no layer has it
  config["max_window_layers"] = 1;
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported, write),
                          "layer 1 has a sliding window of 16 tokens"));
}

// llama.cpp multiplies what the factor alone would give, 0.1 ln 4 + 1.
TEST_CASE("the attention factor of yarn is a multiple of the usual one in GGUF") {
  GgufWriter writer;
  writer.set("general.architecture", std::string("llama"));
  set_gguf_rope_scaling({{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 1.0}},
                        "llama", writer);
  const std::string path = testing::temporary_directory() + "/keys.gguf";
  writer.write(path);
  CHECK(read_gguf(path)->metadata.get_number("llama.rope.scaling.attn_factor") ==
        Approx(1 / (0.1 * std::log(4.0) + 1)));
}

TEST_CASE("names go to GGUF and back") {
  CHECK(gguf_tensor_name("model.embed_tokens.weight") == "token_embd.weight");
  CHECK(gguf_tensor_name("model.layers.12.mlp.gate_proj.weight") == "blk.12.ffn_gate.weight");
  CHECK(gguf_tensor_name("model.layers.0.self_attn.q_proj.bias") == "blk.0.attn_q.bias");
  CHECK(gguf_tensor_name("transformer.wte.weight").empty());
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported,
                                           [] {
                                             gguf_architecture({{"model_type", "gpt2"}});
                                           }),
                          "gpt2"));
}

}  // namespace
}  // namespace lumen::io
