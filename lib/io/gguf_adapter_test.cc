#include "lib/io/gguf_adapter.h"

#include <cmath>

#include "lib/base/error.h"
#include "lib/base/testing.h"

namespace lumen::io {
namespace {

using testing::contains;
using testing::refusal;

TEST_CASE("an adapter in GGUF is read under Hugging Face's names") {
  const std::string path = testing::temporary_directory() + "/a.gguf";
  GgufWriter writer;
  set_gguf_adapter({"llama", 12, {}, {{"default", "a"}, {"tool_use", "b"}}}, writer);
  for (const char* name : {"blk.3.attn_q.weight.lora_a", "blk.3.attn_q.weight.lora_b",
                           "output.weight.lora_a", "output_norm.weight", "other.lora_a"}) {
    writer.add(name, Array::from<float>(std::vector<float>(8, 1), {2, 4}));
  }
  writer.write(path);
  CHECK(is_adapter(*read_if_gguf(path)));
  const GgufAdapter adapter = read_gguf_adapter(path);
  CHECK(adapter.architecture == "llama");
  CHECK(adapter.alpha == 12);
  CHECK(adapter.chat_templates == ChatTemplates{{"default", "a"}, {"tool_use", "b"}});
  CHECK(read_chat_templates(path) == adapter.chat_templates);
  REQUIRE(adapter.tensors.size() == 5);
  for (const char* name : {"model.layers.3.self_attn.q_proj.lora_A.weight",
                           "model.layers.3.self_attn.q_proj.lora_B.weight", "lm_head.lora_A.weight",
                           "model.norm.weight", "other.lora_a"}) {
    INFO(name);
    CHECK(adapter.tensors.contains(name));
  }
  CHECK(contains(refusal(ErrorKind::kUnsupported, [&] { open_model(path); }),
                 "this is a LoRA adapter, not a whole model"));
}

TEST_CASE("an adapter in GGUF to an InternLM2 is one to the Llama that it is") {
  const std::string path = testing::temporary_directory() + "/a.gguf";
  GgufWriter writer;
  set_gguf_adapter({"internlm2", 12, {}, {}}, writer);
  writer.add("blk.3.attn_q.weight.lora_a", Array::from<float>(std::vector<float>(8, 1), {2, 4}));
  writer.write(path);
  const GgufAdapter adapter = read_gguf_adapter(path);
  CHECK(adapter.architecture == "llama");
  CHECK(adapter.tensors.contains("model.layers.3.self_attn.q_proj.lora_A.weight"));
}

TEST_CASE("an adapter whose alpha is no number is damaged") {
  const std::string path = testing::temporary_directory() + "/a.gguf";
  for (const float alpha : {INFINITY, NAN}) {
    GgufWriter writer;
    set_gguf_adapter({"llama", alpha, {}, {}}, writer);
    writer.write(path);
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { read_gguf_adapter(path); }),
                   "adapter.lora.alpha is"));
  }
}

TEST_CASE("tensors of adapters have the names that llama.cpp looks for") {
  CHECK(gguf_adapter_tensor_name("model.layers.11.mlp.down_proj.lora_B.weight", "llama") ==
        "blk.11.ffn_down.weight.lora_b");
  CHECK(gguf_adapter_tensor_name("lm_head.lora_A.weight", "llama") == "output.weight.lora_a");
  CHECK(gguf_adapter_tensor_name("transformer.h.0.attn.c_attn.lora_A.weight", "llama").empty());
  CHECK(gguf_adapter_tensor_name("model.norm.weight", "llama").empty());
}

TEST_CASE("what is no LoRA adapter in GGUF is refused by what it is") {
  const std::string path = testing::temporary_directory() + "/a.gguf";
  const auto refused = [&](const std::string& type, const std::string& kind, bool is_activated) {
    GgufWriter writer;
    writer.set("general.architecture", std::string("llama"));
    writer.set("general.type", type);
    if (!kind.empty()) writer.set("adapter.type", kind);
    if (is_activated) writer.set("adapter.alora.invocation_tokens", std::vector<int32_t>{1});
    writer.write(path);
    return refusal(ErrorKind::kUnsupported, [&] { read_gguf_adapter(path); });
  };
  CHECK(contains(refused("model", "", false), "general.type is 'model', expected 'adapter'"));
  CHECK_FALSE(is_adapter(*read_if_gguf(path)));
  CHECK(contains(refused("adapter", "", false), "adapter.type is '', expected 'lora'"));
  CHECK(contains(refused("adapter", "control_vector", false), "'control_vector'"));
  CHECK(contains(refused("adapter", "lora", true), "activated adapters"));
  CHECK(read_if_gguf(testing::source_path("testdata/models/README.md")) == nullptr);
  CHECK(read_if_gguf(testing::source_path("testdata/models")) == nullptr);
}

}  // namespace
}  // namespace lumen::io
