#include "lib/io/model_files.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/backbone_names.h"
#include "lib/io/layer_windows.h"
#include "lib/io/mapped_file.h"
#include "lib/io/test_directories.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;

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

// While it lives, the process may map `bytes` more than it does.
class AddressSpaceScope {
 public:
  explicit AddressSpaceScope(uint64_t bytes) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    ::getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceScope() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

TEST_CASE("a model file may take most of the address space that is left") {
  constexpr uint64_t kMany = uint64_t{1} << 30;
  const std::string path = testing::temporary_directory() + "/large.gguf";
  std::filesystem::copy_file(testing::source_path("testdata/models/random-spm.gguf"), path);
  std::filesystem::resize_file(path, kMany);  // with a hole
  const auto open_with = [&](uint64_t bytes, ErrorKind kind) {
    const AddressSpaceScope scope(bytes);
    return testing::refusal(kind, [&] { open_model(path); });
  };
  // It is mapped, and its end is not that of its tensors.
  CHECK(contains(open_with(kMany / 2 * 3, ErrorKind::kMalformed), "the data end at"));
  CHECK(open_with(kMany / 2, ErrorKind::kResource) ==
        path +
            ": the file's 1.0 GiB do not fit into the address space that is left to the process "
            "(ulimit -v)");
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
  for (const char* type : {"iq4_xs", "q3_k_m", "q4_0", "q4_k_m", "q6_k", "q8_0"}) {
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

TEST_CASE("of a model that sees images the language model's tensors are there") {
  const std::string config = str(R"({"model_type": "mistral3", "tie_word_embeddings": false,
      "text_config": {"model_type": "mistral", )",
                                 kSizes, "}}");
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"language_model.model.embed_tokens.weight",
                                 "language_model.lm_head.weight", "vision_tower.ln_pre.weight"},
        {"model.language_model.embed_tokens.weight", "lm_head.weight",
         "model.multi_modal_projector.linear_1.weight"}}) {
    const ModelFiles model = open_model(make_directory(config, names));
    CHECK(model.config["model_type"] == "mistral");
    REQUIRE(model.tensors.size() == 2);
    CHECK(model.tensors.contains("model.embed_tokens.weight"));
    CHECK(model.tensors.contains("lm_head.weight"));
  }
}

TEST_CASE("the language model of Qwen-VL is told by its config, flat or nested, and its names") {
  const std::string flat = str(R"({"model_type": "qwen2_5_vl", "vision_config": {"depth": 1},
      "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
      "num_key_value_heads": 2, )",
                               kSizes, "}");
  const std::string nested = str(R"({"model_type": "qwen2_5_vl", "tie_word_embeddings": false,
      "text_config": {"tie_word_embeddings": true, "rope_parameters": {"rope_type": "default",
      "rope_theta": 1e5, "mrope_section": [2, 3, 3]}, "num_key_value_heads": 2, )",
                                 kSizes, "}}");
  for (const std::string& config : {flat, nested}) {
    for (const std::vector<std::string>& names :
         {std::vector<std::string>{"model.embed_tokens.weight", "visual.merger.ln_q.weight"},
          {"model.language_model.embed_tokens.weight", "model.visual.merger.ln_q.weight"},
          {"model.embed_tokens.weight", "model.visual.merger.ln_q.weight"}}) {
      const ModelFiles model = open_model(make_directory(config, names));
      CHECK(model.config["model_type"] == "qwen2_5_vl_text");
      REQUIRE(model.tensors.size() == 1);
      CHECK(model.tensors.contains("model.embed_tokens.weight"));
      CHECK(model.config["rope_scaling"].is_null());
      CHECK(model.config["mrope_section"] == Json::array({2, 3, 3}));
      CHECK(model.config["rope_theta"] == (config == flat ? 1e6 : 1e5));
      CHECK(model.config["max_window_layers"] == 80);
      CHECK(model.config["tie_word_embeddings"] == true);
      CHECK(model.config["sliding_window"].is_null());
    }
  }
  const Json third = open_model(make_directory(str(R"({"model_type": "qwen3_vl_moe",
      "vision_config": {"deepstack_visual_indexes": [5, 11]}, "text_config": {
      "sliding_window": 3, "use_sliding_window": true, "n_deepstack_layers": 9, )",
                                                   kSizes, "}}"),
                                               {"model.language_model.embed_tokens.weight"}))
                         .config;
  CHECK(third["model_type"] == "qwen3_vl_moe_text");
  CHECK(third["n_deepstack_layers"] == 2);
  CHECK(third["num_experts"] == 60);
  CHECK(third["norm_topk_prob"] == true);
  CHECK(third["rope_theta"] == 5e5);
  CHECK_FALSE(third.contains("sliding_window"));
}

// As Exaone4Config says which layers have the window.
TEST_CASE("an output layer of its own is not tied, whatever the config says") {
  const std::string directory = make_directory(
      str("{\"model_type\": \"llama\", \"tie_word_embeddings\": true, ", kSizes, "}"),
      {"embed_tokens.weight", "lm_head.weight"});
  CHECK(open_model(directory).config["tie_word_embeddings"] == true);
  const std::string weights = directory + "/model.safetensors";
  std::string bytes = read_file(weights, 1000);
  ++bytes.back();
  std::ofstream(weights, std::ios::binary) << bytes;
  CHECK(open_model(directory).config["tie_word_embeddings"] == false);
}

TEST_CASE("a base model's tensors get their prefix") {
  const std::string config = str("{\"model_type\": \"llama\", ", kSizes, "}");
  const ModelFiles model = open_model(make_directory(
      config, {"embed_tokens.weight", "layers.0.mlp.up_proj.weight", "lm_head.weight"}));
  CHECK(model.tensors.contains("model.embed_tokens.weight"));
  CHECK(model.tensors.contains("model.layers.0.mlp.up_proj.weight"));
  CHECK(model.tensors.contains("lm_head.weight"));
  CHECK(model.config["tie_word_embeddings"] == false);
  const ModelFiles gpt2 = open_model(make_directory(config, {"wte.weight", "h.0.ln_1.weight"}));
  CHECK(gpt2.tensors.contains("transformer.wte.weight"));
  CHECK(gpt2.tensors.contains("transformer.h.0.ln_1.weight"));
}

TEST_CASE("chat templates and end tokens come from the file that wins") {
  const std::string config = str("{\"model_type\": \"llama\", \"eos_token_id\": 7, ", kSizes, "}");
  const std::vector<std::string> tensors = {"lm_head.weight"};
  const ModelFiles one = open_model(make_directory(
      config, tensors, {{"tokenizer_config.json", R"({"chat_template": "from config"})"}}));
  CHECK(one.chat_templates.at("default") == "from config");
  REQUIRE(one.end_tokens.size() == 1);
  CHECK(one.end_tokens[0].id == 7);
  CHECK(one.end_tokens[0].source == "config.json eos_token_id");
  CHECK(one.tokenizer_file.empty());
  const ModelFiles two =
      open_model(make_directory(config, tensors,
                                {{"chat_template.jinja", "from file"},
                                 {"tokenizer_config.json", R"({"chat_template": "from config"})"},
                                 {"generation_config.json", R"({"eos_token_id": [3, 4, 3]})"},
                                 {"tokenizer.model", "x"}}));
  CHECK(two.chat_templates.at("default") == "from file");
  REQUIRE(two.end_tokens.size() == 2);
  CHECK(two.end_tokens[1].id == 4);
  CHECK(two.tokenizer_file.ends_with("/tokenizer.model"));
  const ModelFiles named = open_model(make_directory(
      config, tensors,
      {{"tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "a"},
                                     {"name": "tool_use", "template": "b"}]})"}}));
  CHECK(named.chat_templates.size() == 2);
  CHECK(named.chat_templates.at("tool_use") == "b");
}

TEST_CASE("a directory without a model says what it holds") {
  const std::string directory = lumen::testing::temporary_directory();
  const auto error = [&](ErrorKind kind) {
    return lumen::testing::refusal(kind, [&] { open_model(directory); });
  };
  CHECK(contains(error(ErrorKind::kMissing), "no config.json and no single .gguf file"));
  std::filesystem::create_directory(directory + "/checkpoints");
  CHECK(contains(error(ErrorKind::kMissing), "a training run that is not finished"));
  std::ofstream(directory + "/adapter_config.json")
      << "{\"base_model_name_or_path\": \"some/base\"}";
  CHECK(contains(error(ErrorKind::kUnsupported),
                 "is a LoRA adapter, not a whole model: open its base model 'some/base' and name "
                 "this directory with --lora"));
}

TEST_CASE("symbolic links of a model that lead nowhere are told") {
  const std::string directory =
      make_directory(str("{\"model_type\": \"llama\", ", kSizes, "}"), {"a"});
  const auto refused_without = [&](const std::string& name) {
    std::filesystem::rename(directory + "/" + name, directory + "/kept");
    std::filesystem::create_symlink("../blobs/0123", directory + "/" + name);
    const std::string message =
        lumen::testing::refusal(ErrorKind::kMissing, [&] { open_model(directory); });
    std::filesystem::rename(directory + "/kept", directory + "/" + name);
    return contains(message, name + ": a symbolic link to '../blobs/0123', which is not there");
  };
  CHECK(refused_without("config.json"));
  CHECK(refused_without("model.safetensors"));
}

TEST_CASE("a safetensors model whose last part is zero was not downloaded to its end") {
  LUMEN_SHARED_DATA(original, "models/hf/stories260K");
  const std::string directory = testing::temporary_directory();
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(original + "/" + name, directory + "/" + name);
  }
  const std::string path = directory + "/model.safetensors";
  std::string bytes = read_file(path, 1 << 24);
  std::filesystem::remove(path);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), bytes.end(), '\0');
  std::ofstream(path, std::ios::binary) << bytes;
  CHECK(contains(testing::refusal(ErrorKind::kMalformed, [&] { open_model(directory); }),
                 "tensor 'model.norm.weight', the last of the file, is zero: an interrupted "
                 "download? Get the file again"));
}

TEST_CASE("weights in several files without their index are told") {
  const std::string directory =
      make_directory(str("{\"model_type\": \"llama\", ", kSizes, "}"), {"a"});
  std::filesystem::rename(directory + "/model.safetensors",
                          directory + "/model-00001-of-00002.safetensors");
  CHECK(contains(testing::refusal(ErrorKind::kMissing, [&] { open_model(directory); }),
                 "several files ('model-00001-of-00002.safetensors') without their index; download "
                 "model.safetensors.index.json too"));
}

TEST_CASE("a directory with one GGUF file opens as that file") {
  const std::string directory = testing::temporary_directory();
  std::ofstream(directory + "/m.gguf", std::ios::binary) << tiny_llama_gguf().finish();
  CHECK(open_model(directory).format == ModelFormat::kGguf);
  std::ofstream(directory + "/n.gguf", std::ios::binary) << tiny_llama_gguf().finish();
  CHECK(contains(
      testing::refusal(ErrorKind::kUnsupported, [&] { open_model(directory); }),
      str("has 2 GGUF models; name the one to open, for example '", directory, "/m.gguf'")));
}

TEST_CASE("GGUF keys become the config of Hugging Face") {
  const auto open = [](const GgufBuilder& builder) {
    const std::string path = testing::temporary_directory() + "/m.gguf";
    std::ofstream(path, std::ios::binary) << builder.finish();
    return open_model(path);
  };
  GgufBuilder builder;
  builder.key("general.architecture", "qwen3")
      .u32("qwen3.context_length", 16)
      .u32("qwen3.embedding_length", 32)
      .u32("qwen3.block_count", 1)
      .u32("qwen3.feed_forward_length", 64)
      .u32("qwen3.attention.head_count", 2)
      .u32("qwen3.attention.head_count_kv", 1)
      .u32("qwen3.attention.key_length", 64)
      .u32("qwen3.attention.value_length", 64)
      .key<float>("qwen3.attention.layer_norm_rms_epsilon", 6, 1e-6f)
      .key<float>("qwen3.rope.freq_base", 6, 1e6f)
      .key("qwen3.rope.scaling.type", "yarn")
      .key<float>("qwen3.rope.scaling.factor", 6, 4.0f)
      .u32("qwen3.rope.scaling.original_context_length", 8)
      .u32("tokenizer.ggml.eos_token_id", 1)
      .u32("tokenizer.ggml.eot_token_id", 2)
      .key("tokenizer.chat_template", "a")
      .key("tokenizer.chat_template.tool_use", "b")
      .tensor("token_embd.weight", {32, 3}, 0, 384)
      .tensor("blk.0.attn_q_norm.weight", {64}, 0, 256)
      .tensor("blk.0.attn_q.bias", {64}, 0, 256);
  const ModelFiles model = open(builder);
  CHECK(model.config["model_type"] == "qwen3");
  CHECK(model.config["rope_interleaved"] == false);
  CHECK(model.config["head_dim"] == 64);
  CHECK(model.config["rope_theta"] == 1e6);
  CHECK(model.config["rope_scaling"]["rope_type"] == "yarn");
  CHECK(model.config["rope_scaling"]["factor"] == 4.0);
  CHECK(model.config["rope_scaling"]["original_max_position_embeddings"] == 8);
  CHECK(model.config["vocab_size"] == 3);
  CHECK(model.config["attention_bias"] == true);
  CHECK(model.tensors.contains("model.layers.0.self_attn.q_norm.weight"));
  CHECK(model.tensors.contains("model.layers.0.self_attn.q_proj.bias"));
  CHECK(model.chat_templates.at("tool_use") == "b");
  REQUIRE(model.end_tokens.size() == 2);
  CHECK(model.end_tokens[1].source == "tokenizer.ggml.eot_token_id");
  GgufBuilder other;
  other.key("general.architecture", "rwkv6");
  try {
    open(other);
    FAIL("accepted");
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(error.kind() == ErrorKind::kUnsupported);
    CHECK(message.find("'rwkv6' is not supported; supported are llama, qwen2, qwen3") !=
          std::string::npos);
  }
}

TEST_CASE("extents of 1 that a GGUF file has more or fewer of change no shape") {
  const std::string path = testing::temporary_directory() + "/ones.gguf";
  GgufBuilder builder = tiny_llama_gguf();
  builder.tensor("blk.0.attn_norm.weight", {32, 1}, 0, 128)
      .tensor("blk.0.attn_q.bias", {32, 1, 1}, 0, 128)
      .tensor("blk.0.attn_q.weight", {32, 2, 1}, 0, 256)
      .tensor("blk.0.attn_k.weight", {32}, 0, 128)
      .tensor("blk.0.attn_v.weight", {32, 2, 2}, 0, 512)
      .tensor("blk.0.ffn_norm.weight", {16, 2}, 0, 128)
      .tensor("output_norm.weight", {32, 1, 1, 1}, 0, 128);
  std::ofstream(path, std::ios::binary) << builder.finish();
  const ModelFiles model = open_model(path);
  const auto shape = [&](const std::string& name) { return model.tensors.at(name).shape(); };
  const std::string layer = "model.layers.0.";
  CHECK(shape("model.embed_tokens.weight") == Shape{3, 32});
  CHECK(shape(layer + "input_layernorm.weight") == Shape{32});
  CHECK(shape(layer + "self_attn.q_proj.bias") == Shape{32});
  CHECK(shape(layer + "self_attn.q_proj.weight") == Shape{2, 32});
  CHECK(shape(layer + "self_attn.k_proj.weight") == Shape{1, 32});
  CHECK(shape(layer + "self_attn.v_proj.weight") == Shape{2, 2, 32});
  CHECK(shape(layer + "post_attention_layernorm.weight") == Shape{2, 16});
  CHECK(shape("model.norm.weight") == Shape{32});
}

TEST_CASE("a GGUF model's experts get names of their own, as many as it says") {
  const auto open = [](uint32_t count, uint32_t used) {
    const std::string path = testing::temporary_directory() + "/experts.gguf";
    GgufBuilder builder = tiny_llama_gguf();
    builder.u32("llama.expert_count", count)
        .u32("llama.expert_used_count", used)
        .tensor("blk.0.ffn_gate_inp.weight", {32, 3}, 0, 384)
        .tensor("blk.0.ffn_down_exps.weight", {64, 32, 3}, 0, 64 * 32 * 3 * 4);
    std::ofstream(path, std::ios::binary) << builder.finish();
    return open_model(path);
  };
  const ModelFiles model = open(3, 2);
  CHECK(model.config["model_type"] == "mixtral");
  CHECK(model.config["num_local_experts"] == 3);
  CHECK(model.config["num_experts_per_tok"] == 2);
  const std::string layer = "model.layers.0.block_sparse_moe.";
  CHECK(model.tensors.at(layer + "gate.weight").shape() == Shape{3, 32});
  const Array first = model.tensors.at(layer + "experts.0.w2.weight");
  const Array last = model.tensors.at(layer + "experts.2.w2.weight");
  CHECK((first.shape() == Shape{32, 64} && last.shape() == Shape{32, 64}));
  CHECK(last.data() == first.data() + 2 * first.bytes());
  const auto refused = [&](uint32_t count, uint32_t used) {
    return testing::refusal(ErrorKind::kMalformed, [&] { open(count, used); });
  };
  CHECK(contains(refused(4, 2), "'blk.0.ffn_down_exps.weight' has shape [3, 32, 64], expected [4"));
  CHECK(contains(refused(3, 4), "llama.expert_used_count': found 4, expected"));
  CHECK(contains(refused(3, 0), "llama.expert_used_count': found 0, expected"));
  CHECK(contains(refused(0, 2), "'blk.0.ffn_down_exps.weight'"));
}

TEST_CASE("a GGUF model before April 2024 has a tensor for each expert") {
  const auto open = [](const std::vector<std::string>& names) {
    const std::string path = testing::temporary_directory() + "/parted.gguf";
    GgufBuilder builder = tiny_llama_gguf();
    builder.u32("llama.expert_count", 2).u32("llama.expert_used_count", 1);
    for (const std::string& name : names) builder.tensor(name, {64, 32}, 0, 64 * 32 * 4);
    if (names.size() == 1) builder.tensor("blk.0.ffn_down_exps.weight", {64, 32, 2}, 0, 16384);
    std::ofstream(path, std::ios::binary) << builder.finish();
    return open_model(path);
  };
  const ModelFiles model = open({"blk.0.ffn_down.1.weight", "blk.0.ffn_down.0.weight",
                                 "blk.0.ffn_down.01.weight", "blk.0.attn_q.1.weight"});
  const std::string experts = "model.layers.0.block_sparse_moe.experts.";
  CHECK(model.tensors.at(experts + "0.w2.weight").shape() == Shape{32, 64});
  CHECK(model.tensors.contains(experts + "1.w2.weight"));
  // Other names stay as they are, and are then no part of the model.
  CHECK(model.tensors.contains("blk.0.ffn_down.01.weight"));
  CHECK(model.tensors.contains("blk.0.attn_q.1.weight"));
  CHECK(contains(
      testing::refusal(ErrorKind::kMalformed, [&] { open({"blk.0.ffn_down.1.weight"}); }),
      "'blk.0.ffn_down_exps.weight' is there twice, once as 'model.layers.0.block_sparse_moe"));
}

}  // namespace
}  // namespace lumen::io
