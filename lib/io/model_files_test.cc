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

// A directory with config.json, a safetensors file with `tensors` (each [2] of U8), and `files`.
std::string make_directory(const std::string& config, const std::vector<std::string>& tensors,
                           const std::map<std::string, std::string>& files = {}) {
  const std::string directory = testing::temporary_directory();
  const auto write = [&](const std::string& name, const std::string& content) {
    std::ofstream(directory + "/" + name, std::ios::binary) << content;
  };
  std::string header = "{";
  for (size_t i = 0; i < tensors.size(); ++i) {
    header += str(i > 0 ? "," : "", "\"", tensors[i], "\":{\"dtype\":\"U8\",\"shape\":[2],",
                  "\"data_offsets\":[", 2 * i, ",", 2 * i + 2, "]}");
  }
  write("model.safetensors", safetensors_file(header + "}", 2 * tensors.size()));
  write("config.json", config);
  for (const auto& [name, content] : files) write(name, content);
  return directory;
}

const std::string kSizes =
    R"("hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1,
       "num_attention_heads": 4, "vocab_size": 10)";

TEST_CASE("newer and older spellings of a config become the classic one") {
  const auto config = [](const std::string& more) {
    return open_model(make_directory(str("{\"model_type\": ", more, ", ", kSizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json plain = config(R"("llama")");
  CHECK(plain["num_key_value_heads"] == 4);
  CHECK(plain["head_dim"] == 16);
  CHECK(plain["rope_theta"] == 10000.0);
  CHECK(plain["tie_word_embeddings"] == true);
  CHECK(plain["rope_interleaved"] == false);
  CHECK(config(R"("qwen3")")["head_dim"] == 128);
  const Json newer = config(R"("llama", "dtype": "bfloat16", "rope_parameters": {"rope_theta": 5e5,
      "rope_type": "llama3", "factor": 8.0})");
  CHECK(newer["torch_dtype"] == "bfloat16");
  CHECK(newer["rope_theta"] == 5e5);
  CHECK(newer["rope_scaling"]["rope_type"] == "llama3");
  CHECK(newer["rope_scaling"]["factor"] == 8.0);
  CHECK_FALSE(newer["rope_scaling"].contains("rope_theta"));
  const Json normal =
      config(R"("llama", "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"})");
  CHECK(normal["rope_theta"] == 1e6);
  CHECK(normal["rope_scaling"].is_null());
  const Json untyped =
      config(R"("llama", "rope_theta": 1, "rope_parameters": {"rope_theta": 1e6})");
  CHECK(untyped["rope_theta"] == 1e6);
  CHECK(untyped["rope_scaling"].is_null());
  const Json older = config(R"("llama", "rope_scaling": {"type": "linear", "factor": 2.0})");
  CHECK(older["rope_scaling"]["rope_type"] == "linear");
  const Json yarn = config(R"("llama", "rope_scaling": {"type": "yarn", "factor": 8.0,
      "mscale": 0.7, "mscale_all_dim": 0.4})");
  CHECK(yarn["rope_scaling"]["attention_factor"].get<double>() ==
        Approx((0.07 * std::log(8.0) + 1) / (0.04 * std::log(8.0) + 1)));
  CHECK(config(R"("qwen3")")["max_window_layers"] == 28);
  CHECK(config(R"("mistral", "sliding_window": 4096)")["sliding_window"] == 4096);
  CHECK(config(R"("mistral")")["sliding_window"] == 4096);
  CHECK(config(R"("mistral", "sliding_window": null)")["sliding_window"].is_null());
  CHECK(config(R"("qwen2", "sliding_window": 4096)")["sliding_window"].is_null());
  CHECK(config(R"("qwen3", "use_sliding_window": true)")["sliding_window"] == 4096);
  CHECK(
      config(R"("qwen2", "sliding_window": 4096, "use_sliding_window": true)")["sliding_window"] ==
      4096);
}

TEST_CASE("a config of DeepSeek says which layers have experts and what rotates") {
  std::string sizes = kSizes;
  sizes.replace(sizes.find("layers\": 1"), 10, "layers\": 2");
  const auto config = [&](const std::string& more) {
    return open_model(make_directory(str("{\"model_type\": ", more, ", ", sizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json v2 = config(R"("deepseek_v2", "first_k_dense_replace": 1, "q_lora_rank": null)");
  CHECK(v2["mlp_only_layers"] == Json::array({0}));
  CHECK(v2["head_dim"] == 64);
  CHECK(v2["q_lora_rank"].is_null());
  CHECK(v2["num_experts"] == 64);
  CHECK(v2["rope_interleaved"] == true);
  CHECK(config(R"("deepseek_v2")")["q_lora_rank"] == 1536);
  const Json v3 = config(R"("deepseek_v3", "first_k_dense_replace": 0, "moe_layer_freq": 2,
      "rope_interleave": false, "topk_method": "greedy")");
  CHECK(v3["mlp_only_layers"] == Json::array({1}));
  CHECK(v3["rope_interleaved"] == false);
  CHECK(v3["topk_method"] == "noaux_tc");
  const Json glm = config(R"("glm4_moe_lite", "mlp_layer_types": ["sparse", "dense"])");
  CHECK(glm["mlp_only_layers"] == Json::array({1}));
  CHECK(glm["n_group"] == 1);
  for (const char* types : {R"(["dense"])", R"(["dense", "thin"])", R"({"dense": 1})"}) {
    const std::string message = lumen::testing::refusal(ErrorKind::kMalformed, [&] {
      config(str(R"("glm4_moe_lite", "mlp_layer_types": )", types));
    });
    CHECK(lumen::testing::contains(message, "mlp_layer_types: found "));
  }
}

TEST_CASE("a config of LFM2 says which layers have attention, and how wide the others are") {
  const auto config = [](const std::string& more) {
    return open_model(make_directory(str(R"({"model_type": "lfm2", "num_key_value_heads": 2, )",
                                         more, kSizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json all = config(R"("block_ff_dim": 1000,)");
  CHECK(all["layer_types"] == Json::array({"full_attention"}));
  CHECK(all["intermediate_size"] == 768);  // 666, rounded up to a multiple of 256
  CHECK(all["block_auto_adjust_ff_dim"] == false);
  CHECK(config(R"("full_attn_idxs": [],)")["layer_types"] == Json::array({"conv"}));
  CHECK(config(R"("block_auto_adjust_ff_dim": false,)")["intermediate_size"] == 8);
  for (const char* layers : {"[1]", "[-1]", R"("0")", R"(["0"])", R"({"0": 0})"}) {
    const std::string message = lumen::testing::refusal(
        ErrorKind::kMalformed, [&] { config(str(R"("full_attn_idxs": )", layers, ",")); });
    CHECK(lumen::testing::contains(message, "full_attn_idxs: found "));
  }
}

TEST_CASE("configs of mixtures say which layers have experts, and how many") {
  std::string sizes = kSizes;
  sizes.replace(sizes.find("layers\": 1"), 10, "layers\": 4");
  const auto config = [&](const std::string& more) {
    return open_model(make_directory(str(R"({"num_key_value_heads": 2, "model_type": )", more, ", ",
                                         sizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json lfm = config(R"("lfm2_moe", "full_attn_idxs": [2], "tie_embedding": true)");
  CHECK(lfm["layer_types"] == Json::array({"conv", "conv", "full_attention", "conv"}));
  CHECK(lfm["mlp_only_layers"] == Json::array({0, 1}));
  CHECK(lfm["num_experts"] == 32);
  CHECK(lfm["norm_topk_prob"] == true);
  const Json ernie = config(R"("ernie4_5_moe", "moe_num_experts": 5, "moe_k": 3,
      "moe_layer_interval": 2, "moe_layer_start_index": 2, "attention_dropout": 0.1)");
  CHECK(ernie["num_experts"] == 5);
  CHECK(ernie["num_experts_per_tok"] == 3);
  CHECK(sparse_layers(ernie) == std::vector<bool>{false, false, false, true});
  CHECK(ernie["rope_interleaved"] == true);
  CHECK(ernie["attention_dropout"] == 0);
  CHECK(config(R"("ernie4_5_moe", "moe_layer_start_index": 0, "moe_layer_end_index": 2)")
            ["mlp_only_layers"] == Json::array({3}));
  const Json glm = config(R"("glm4_moe", "first_k_dense_replace": 2)");
  CHECK(glm["mlp_only_layers"] == Json::array({0, 1}));
  CHECK(glm["partial_rotary_factor"] == 0.5);
  CHECK(glm["num_nextn_predict_layers"] == 1);
  CHECK(config(R"("glm4_moe", "num_mtp_layers": 0)")["num_nextn_predict_layers"] == 0);
  const Json minimax = config(R"("minimax_m2", "head_dim": 16, "rotary_dim": 8)");
  CHECK(minimax["partial_rotary_factor"] == 0.5);
  CHECK(minimax["num_local_experts"] == 256);
  CHECK(minimax["rope_theta"] == 5e6);
  const Json dots = config(R"("dots1", "n_routed_experts": 8, "first_k_dense_replace": 1)");
  CHECK(dots["num_experts"] == 8);
  CHECK(dots["mlp_only_layers"] == Json::array({0}));
  CHECK(layer_windows(dots) == std::vector<int64_t>(4));  // max_window_layers is 62
  CHECK(dots["sliding_window"] == 4096);
  const Json exaone = config(R"("exaone_moe", "first_last_k_dense_replace": 2,
      "sliding_window_pattern": "LLG", "num_shared_experts": 2)");
  CHECK(exaone["mlp_only_layers"] == Json::array({0, 1}));
  CHECK(exaone["n_shared_experts"] == 2);
  CHECK(layer_windows(exaone) == std::vector<int64_t>{4096, 4096, 0, 0});
  CHECK(config(R"("exaone_moe", "mlp_layer_types": ["dense", "sparse", "dense", "sparse"])")
            ["mlp_only_layers"] == Json::array({0, 2}));
  const Json hunyuan = config(R"("hunyuan_v1_moe", "num_experts": 8, "moe_topk": [2, 2, 2, 2],
      "moe_intermediate_size": [8, 8, 8, 8], "num_shared_expert": [1, 1, 1, 1])");
  CHECK(hunyuan["num_experts"] == 8);
  CHECK(hunyuan["num_experts_per_tok"] == 2);
  CHECK(config(R"("hunyuan_v1_moe", "num_experts": 8)")["num_experts_per_tok"] == 1);
  for (const auto& [text, why] :
       {std::pair(R"("moe_topk": [2, 2, 3, 2])",
                  "moe_topk: layer 2 has the number 3, unlike layer 0"),
        std::pair(R"("moe_intermediate_size": [16, 16])", "moe_intermediate_size 16 is not"),
        std::pair(R"("num_shared_expert": 2)", "num_shared_expert 2 is not supported")}) {
    const std::string message = lumen::testing::refusal(ErrorKind::kUnsupported, [&, text = text] {
      config(str(R"("hunyuan_v1_moe", "num_experts": 8, )", text));
    });
    CHECK(lumen::testing::contains(message, why));
  }
  for (const auto& [text, key] :
       {std::pair(R"("hunyuan_v1_moe", "moe_topk": [])", "moe_topk"),
        std::pair(R"("hunyuan_v1_moe", "num_experts": ["8"])", "num_experts"),
        std::pair(R"("dots1", "num_experts": 8)", "n_routed_experts"),
        std::pair(R"("minimax_m2", "head_dim": 16, "rotary_dim": 17)", "rotary_dim"),
        std::pair(R"("minimax_m2", "head_dim": 16, "rotary_dim": 8, "partial_rotary_factor": 1)",
                  "rotary_dim 8 is not partial_rotary_factor 1 of head_dim 16"),
        std::pair(R"("lfm2_moe", "num_dense_layers": -1)", "num_dense_layers"),
        std::pair(R"("lfm2_moe", "full_attn_idxs": [4])", "full_attn_idxs"),
        std::pair(R"("ernie4_5_moe", "moe_k": 0)", "moe_k"),
        std::pair(R"("ernie4_5_moe", "moe_num_experts": [64, 64])", "moe_num_experts"),
        std::pair(R"("glm4_moe", "n_routed_experts": 0)", "n_routed_experts"),
        std::pair(R"("ernie4_5_moe", "moe_layer_interval": 0)", "moe_layer_interval"),
        std::pair(R"("ernie4_5_moe", "moe_layer_start_index": [0])", "moe_layer_start_index"),
        std::pair(R"("ernie4_5_moe", "moe_layer_end_index": "x")", "moe_layer_end_index"),
        std::pair(R"("glm4_moe", "first_k_dense_replace": 1.5)", "first_k_dense_replace"),
        std::pair(R"("glm4_moe", "num_nextn_predict_layers": -1)", "num_nextn_predict_layers")}) {
    INFO(text);
    CHECK(lumen::testing::contains(
        lumen::testing::refusal(ErrorKind::kMalformed, [&, text = text] { config(text); }), key));
  }
}

TEST_CASE("a config of Gemma 3 is completed as its class has it") {
  const Json config = open_model(make_directory(R"({"model_type": "gemma3", "text_config": {
      "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 7, "vocab_size": 10,
      "rms_norm_offset": 0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
      "sliding_window": 1024}, "eos_token_id": [1, 9]})",
                                                {"language_model.model.embed_tokens.weight"}))
                          .config;
  CHECK(config["model_type"] == "gemma3_text");
  CHECK(config["num_attention_heads"] == 8);
  CHECK(config["num_key_value_heads"] == 4);
  CHECK(config["head_dim"] == 256);
  CHECK(config["rope_theta"] == 1e6);
  CHECK(config["rope_local_base_freq"] == 1e4);
  CHECK(config["hidden_act"] == "gelu_pytorch_tanh");
  CHECK(config["rms_norm_offset"] == 1);  // Hugging Face has no such key
  CHECK(config["tie_word_embeddings"] == true);
  CHECK(config["eos_token_id"] == Json({1, 9}));
  CHECK(layer_windows(config) == std::vector<int64_t>{1024, 1024, 1024, 1024, 1024, 0, 1024});
}

TEST_CASE("configs of mixtures with Gated DeltaNets are completed as their classes have them") {
  const Json newer = open_model(make_directory(R"({"model_type": "qwen3_5_moe", "text_config": {
      "hidden_size": 64, "num_hidden_layers": 5, "vocab_size": 10, "moe_intermediate_size": 24,
      "norm_topk_prob": false, "mlp_only_layers": [0], "linear_inputs_apart": true,
      "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.5, "mrope_section": [1]}}})",
                                               {"language_model.model.embed_tokens.weight"}))
                         .config;
  CHECK(newer["model_type"] == "qwen3_5_moe_text");
  CHECK(newer["num_experts"] == 256);
  CHECK(newer["num_experts_per_tok"] == 8);
  CHECK(newer["intermediate_size"] == 24);  // which no layer has
  CHECK(newer["norm_topk_prob"] == true);   // whatever the file says
  CHECK(sparse_layers(newer) == std::vector<bool>(5, true));
  CHECK(linear_attention_layers(newer) == std::vector<bool>{true, true, true, false, true});
  CHECK(newer["partial_rotary_factor"] == 0.5);
  CHECK(newer["rope_theta"] == 1e7);
  CHECK_FALSE(newer.contains("linear_inputs_apart"));  // Hugging Face has no such key
  const Json next = open_model(make_directory(str(R"({"model_type": "qwen3_next", )", kSizes,
                                                  R"(, "mlp_only_layers": [0]})"),
                                              {"model.embed_tokens.weight"}))
                        .config;
  CHECK(next["num_experts"] == 512);
  CHECK(next["num_experts_per_tok"] == 10);
  CHECK(next["head_dim"] == 256);
  CHECK(next["norm_topk_prob"] == true);
  CHECK(next["partial_rotary_factor"] == 0.25);
  CHECK(next["linear_num_value_heads"] == 32);
  CHECK_FALSE(sparse_layers(next)[0]);
}

TEST_CASE("a config of Nemotron-H is completed as its class has it") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": "nemotron_h", "hidden_size": 8, )",
                                         R"("vocab_size": 4, "num_attention_heads": 8)", keys, "}"),
                                     {"backbone.embeddings.weight"}))
        .config;
  };
  const Json published =
      config(R"(, "hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5, "mamba_n_groups": 2,
                "time_step_limit": [0.0, Infinity], "n_routed_experts": 8, "head_dim": 4)");
  using enum SingleLayer;
  CHECK(single_layers(published) == std::vector{kMamba, kMlp, kMamba, kAttention, kMlp});
  CHECK(published["layers_block_type"] == Json{"mamba", "mlp", "mamba", "attention", "mlp"});
  CHECK(published["time_step_limit"][1] == Json{{"__float__", "Infinity"}});
  CHECK(published["n_groups"] == 2);
  CHECK(published["hidden_act"] == "relu2");
  CHECK(published["num_key_value_heads"] == 8);
  CHECK(published["rms_norm_eps"] == 1e-5);
  CHECK(expert_count(published) == 0);  // no layer has any
  const Json newer = config(R"(, "layers_block_type": ["linear_attention", "moe"], "head_dim": 4)");
  CHECK(single_layers(newer) == std::vector{kMamba, kExperts});
  CHECK(newer["num_hidden_layers"] == 2);
  CHECK(expert_count(newer) == 8);
  for (const auto& [keys, why] :
       {std::pair(R"(, "hybrid_override_pattern": "M-X")", "hybrid_override_pattern: found 'M-X'"),
        {R"(, "hybrid_override_pattern": "M-", "num_hidden_layers": 3)",
         "layers_block_type: found an array of 2, expected an array of 3 names"},
        {R"(, "hybrid_override_pattern": "")", "expected a letter for each layer"},
        {R"(, "hybrid_override_pattern": "E", "n_routed_experts": 0)", "n_routed_experts"},
        {R"(, "layers_block_type": "M-", "num_hidden_layers": 2)",
         "layers_block_type: found the string 'M-'"}}) {
    CAPTURE(keys);
    CHECK(testing::contains(
        testing::refusal(ErrorKind::kMalformed, [&, more = std::string(keys)] { config(more); }),
        why));
  }
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported,
                                           [&] { config(R"(, "layers_block_type": ["conv"])"); }),
                          "layer 0 is the string 'conv'; known: mamba, attention, mlp, moe"));
}

TEST_CASE("names of the backbone of Nemotron-H are those of other models, and back") {
  const Json config = {{"model_type", "nemotron_h"}};
  for (const auto& [stored, own] :
       {std::pair("backbone.embeddings.weight", "model.embed_tokens.weight"),
        {"backbone.norm_f.weight", "model.norm.weight"},
        {"backbone.layers.3.norm.weight", "model.layers.3.norm.weight"},
        {"backbone.layers.0.mixer.A_log", "model.layers.0.mixer.A_log"},
        {"lm_head.weight", "lm_head.weight"}}) {
    CHECK(usual_name(stored) == own);
    CHECK(stored_name(config, own) == stored);
  }
  CHECK(usual_name("model.embeddings.weight") == "model.embed_tokens.weight");
  CHECK(stored_name({{"model_type", "llama"}}, "model.norm.weight") == "model.norm.weight");
  // Adapters name modules.
  CHECK(stored_name(config, "model.layers.0.mixer.in_proj.lora_A.weight") ==
        "model.layers.0.mixer.in_proj.lora_A.weight");
}

TEST_CASE("a config of Mamba-2, which has no attention, is completed as its class has it") {
  const Json all = open_model(make_directory(R"({"model_type": "mamba2", "hidden_size": 32,
                                                 "num_heads": 8, "head_dim": 8, "vocab_size": 4,
                                                 "time_step_limit": [0.0, Infinity]})",
                                             {"backbone.embeddings.weight"}))
                       .config;
  CHECK(all["num_hidden_layers"] == 64);
  CHECK(all["intermediate_size"] == 64);
  CHECK(all["n_groups"] == 8);
  CHECK(all["rms_norm_eps"] == 1e-5);
  CHECK(all["max_position_embeddings"] == 1 << 20);
  CHECK(all["tie_word_embeddings"] == false);
}

TEST_CASE("a config of Falcon-H1 is completed as its class has it") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": "falcon_h1", )", kSizes, keys,
                                         ", \"multipliers_in_weights\": true}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json all = config(R"(, "num_key_value_heads": null)");
  CHECK(all["num_key_value_heads"] == 4);
  CHECK(all["mamba_d_ssm"] == 1024);
  CHECK(all["mamba_d_head"] == 8);
  CHECK(all["mamba_d_state"] == 256);
  CHECK(all["embedding_multiplier"] == 1.0);
  CHECK_FALSE(all.contains("multipliers_in_weights"));  // Hugging Face has no such key
  const Json expanded = config(
      R"(, "num_key_value_heads": 2, "mamba_d_ssm": null, "mamba_n_heads": 2, "mamba_expand": 3)");
  const auto hidden = expanded["hidden_size"].get<int64_t>();
  CHECK(expanded["mamba_d_ssm"] == 3 * hidden);
  CHECK(expanded["mamba_d_head"] == 3 * hidden / 2);
}

TEST_CASE("a config of Granite 4.0 is completed as its class has it") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": "granitemoehybrid", )", kSizes, keys,
                                         ", \"linear_inputs_apart\": true}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json all = config("");
  const auto layers = all["num_hidden_layers"].get<size_t>();
  CHECK(mamba_layers(all) == std::vector<bool>(layers, true));
  CHECK(all["mamba_n_heads"] == 128);
  CHECK(all["mamba_d_state"] == 256);
  CHECK(all["shared_intermediate_size"] == 1024);
  CHECK(all["num_local_experts"] == 8);
  CHECK(all["intermediate_size"] != 1024);
  CHECK_FALSE(all.contains("linear_inputs_apart"));  // Hugging Face has no such key
  Json types = Json::array();
  for (size_t i = 0; i < layers; ++i) types.push_back(i == 0 ? "linear_attention" : "attention");
  const Json dense = config(str(R"(, "mamba_n_heads": 2, "mamba_d_head": "auto", "mamba_expand": 3,
      "num_local_experts": 0, "layers_block_type": )",
                                types.dump()));
  std::vector<bool> expected(layers, false);
  expected[0] = true;
  CHECK(mamba_layers(dense) == expected);
  CHECK(dense["mamba_d_head"] == dense["hidden_size"].get<int64_t>() * 3 / 2);
  CHECK(dense["intermediate_size"] == 1024);
  types[0] = "conv";
  CHECK(testing::contains(
      testing::refusal(ErrorKind::kUnsupported,
                       [&] { mamba_layers(config(str(R"(, "layer_types": )", types.dump()))); }),
      "layer_types: layer 0 is the string 'conv'; known: attention, mamba"));
}

TEST_CASE("a config of Gemma 4 says the sizes of both kinds of layers, in two ways") {
  std::string sizes = kSizes;
  sizes.replace(sizes.find("layers\": 1"), 10, "layers\": 2");
  const auto config = [&](const std::string& keys) {
    return open_model(make_directory(
                          str(R"({"model_type": "gemma4_text", "head_dim": 4, )", keys, sizes, "}"),
                          {"model.embed_tokens.weight"}))
        .config;
  };
  const Json all = config("");
  CHECK(all["layer_types"] == Json::array({"sliding_attention", "full_attention"}));
  CHECK(all["global_head_dim"] == 512);
  CHECK(all["num_global_key_value_heads"] == all["num_key_value_heads"]);
  CHECK(all["hidden_size_per_layer_input"] == 256);
  CHECK(all["rope_scaling"]["rope_type"] == "proportional");
  CHECK(all["rope_scaling"]["partial_rotary_factor"] == 0.25);
  CHECK(all["rope_local_base_freq"] == 1e4);
  CHECK_FALSE(all.contains("partial_rotary_factor"));
  CHECK(config(R"("attention_k_eq_v": true, "num_global_key_value_heads": 1,)")
            ["num_global_key_value_heads"] == 1);
  const Json listed = config(R"("per_layer_config": {"01": {"head_dim": 8}},)");
  CHECK(listed["global_head_dim"] == 8);
  CHECK(listed["num_global_key_value_heads"] == all["num_key_value_heads"]);
  const auto refused = [&](ErrorKind kind, const std::string& keys, const char* why) {
    const std::string message = lumen::testing::refusal(kind, [&] { config(keys); });
    CAPTURE(message);
    CHECK(lumen::testing::contains(message, why));
  };
  refused(ErrorKind::kUnsupported, R"("per_layer_config": {"0": {"head_dim": 8}},)",
          "head_dim of layer 0 is the number 8, unlike that of other layers of its type");
  for (const char* layer : {R"("2": {})", R"("x": {})", R"("0": 3)"}) {
    refused(ErrorKind::kMalformed, str(R"("per_layer_config": {)", layer, "},"),
            "expected an object by the number of a layer, below 2");
  }
}

TEST_CASE("a config of Gemma 1 and 2 is completed as its class has it") {
  const auto config = [](const std::string& keys) {
    return open_model(make_directory(str(R"({"model_type": )", keys, ", ", kSizes, "}"),
                                     {"model.embed_tokens.weight"}))
        .config;
  };
  const Json first = config(R"("gemma", "hidden_act": "gelu")");
  CHECK(first["hidden_act"] == "gelu_pytorch_tanh");
  CHECK(first["head_dim"] == 256);
  CHECK(first["rms_norm_offset"] == 1);
  CHECK(first["tie_word_embeddings"] == true);
  CHECK_FALSE(first.contains("attn_logit_softcapping"));
  const Json second = config(R"("gemma2", "final_logit_softcapping": null)");
  CHECK(second["attn_logit_softcapping"] == 50);
  CHECK(second["final_logit_softcapping"].is_null());
  CHECK(second["query_pre_attn_scalar"] == 256);
  CHECK(config(R"("gemma2", "hidden_activation": "gelu")")["hidden_act"] == "gelu");
  CHECK(second["rope_theta"] == 10000);
  CHECK(second["sliding_window"] == 4096);
  CHECK(layer_windows(second)[0] == 4096);
  CHECK(config(R"("gemma2", "sliding_window": null)")["sliding_window"].is_null());
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

// As Exaone4Config says which layers have the window.
TEST_CASE("the windows of EXAONE are those of a number or of letters") {
  const auto windows = [](const Json& pattern) {
    Json config = {{"model_type", "exaone4"}, {"num_hidden_layers", 5}, {"sliding_window", 7}};
    if (pattern != "none") config["sliding_window_pattern"] = pattern;
    return layer_windows(classic_config(config, true));
  };
  CHECK(windows("none") == std::vector<int64_t>{7, 7, 7, 0, 7});  // 4
  CHECK(windows(2) == std::vector<int64_t>{7, 0, 7, 0, 7});
  CHECK(windows("LG") == std::vector<int64_t>{7, 0, 7, 0, 0});
  CHECK(windows(nullptr) == std::vector<int64_t>(5));
  CHECK(testing::contains(testing::refusal(ErrorKind::kMalformed, [&] { windows("LX"); }),
                          "sliding_window_pattern: found 'LX', expected a number of layers"));
  const Json none = {{"model_type", "exaone4"}, {"sliding_window", nullptr}};
  CHECK(layer_windows(classic_config(none, true)) == std::vector<int64_t>(32));
}

TEST_CASE("longrope knows its lengths") {
  Json config = Json::parse(str(R"({"model_type": "phi3", "max_position_embeddings": 131072,
      "original_max_position_embeddings": 4096, "rope_scaling": {"type": "su",
      "short_factor": [1.0], "long_factor": [2.0]}, )",
                                kSizes, "}"));
  const Json scaling = classic_config(config, true)["rope_scaling"];
  CHECK(scaling["rope_type"] == "longrope");
  CHECK(scaling["original_max_position_embeddings"] == 4096);
  CHECK(scaling["attention_factor"].get<double>() ==
        Approx(std::sqrt(1 + std::log(32.0) / std::log(4096.0))));
  config["rope_scaling"]["attention_factor"] = 1.5;
  CHECK(classic_config(config, true)["rope_scaling"]["attention_factor"] == 1.5);
}

TEST_CASE("each layer of a Qwen model has its window or none") {
  using Windows = std::vector<int64_t>;
  Json config = {{"num_hidden_layers", 4}, {"sliding_window", 48}, {"max_window_layers", 3}};
  CHECK(layer_windows(config) == Windows{0, 0, 0, 48});
  config["max_window_layers"] = 28;
  CHECK(layer_windows(config) == Windows{0, 0, 0, 0});
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "sliding_attention"};
  CHECK(layer_windows(config) == Windows{48, 0, 0, 48});
  const auto refused = [&](ErrorKind kind, const char* words) {
    return testing::contains(testing::refusal(kind, [&] { layer_windows(config); }), words);
  };
  for (const Json& none : {Json(), Json(0)}) {
    config["sliding_window"] = none;
    CHECK(refused(ErrorKind::kMalformed, "layer 0 is 'sliding_attention', but"));
  }
  config["layer_types"] = {"full_attention", "full_attention", "chunked_attention",
                           "full_attention"};
  CHECK(refused(ErrorKind::kUnsupported, "layer 2 is the string 'chunked_attention'"));
  for (const Json& types : {Json({"full_attention"}), Json("full_attention")}) {
    config["layer_types"] = types;
    CHECK(refused(ErrorKind::kMalformed, "expected an array of 4 names"));
  }
}

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
  other.key("general.architecture", "mamba");
  try {
    open(other);
    FAIL("accepted");
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(error.kind() == ErrorKind::kUnsupported);
    CHECK(message.find("'mamba' is not supported; supported are llama, qwen2, qwen3") !=
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

TEST_CASE("a config of Qwen3-MoE says which layers have experts") {
  Json config = {{"num_hidden_layers", 4}};
  CHECK(sparse_layers(config) == std::vector<bool>{true, true, true, true});
  config["decoder_sparse_step"] = 2;
  CHECK(sparse_layers(config) == std::vector<bool>{false, true, false, true});
  config["mlp_only_layers"] = Json::array({3});
  CHECK(sparse_layers(config) == std::vector<bool>{false, true, false, false});
  for (const Json& bad : {Json::array({4}), Json::array({-1}), Json::array({"a"}), Json(2)}) {
    config["mlp_only_layers"] = bad;
    CHECK(contains(testing::refusal(ErrorKind::kMalformed, [&] { sparse_layers(config); }),
                   "mlp_only_layers: found"));
  }
}

}  // namespace
}  // namespace lumen::io
