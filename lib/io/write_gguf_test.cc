#include "lib/io/write_gguf.h"

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/gguf.h"

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
