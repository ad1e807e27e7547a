// The same as family_defaults_test.cc, of mixtures of experts of 2026.
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/backbone_names.h"
#include "lib/io/family_defaults.h"
#include "lib/io/layer_windows.h"
#include "lib/io/model_files.h"
#include "lib/io/test_directories.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;

Json config_of(const char* type, const std::string& keys) {
  return open_model(make_directory(str(R"({"model_type": ")", type,
                                       R"(", "vocab_size": 4, "hidden_size": 40, )", keys,
                                       R"("num_attention_heads": 8, "num_hidden_layers": 3})"),
                                   {"model.embed_tokens.weight"}))
      .config;
}

TEST_CASE("a config of Mistral 4 scales positions and queries unless it says otherwise") {
  const Json usual = config_of("mistral4", "");
  CHECK(usual["rope_scaling"]["rope_type"] == "yarn");
  CHECK(usual["rope_scaling"]["factor"] == 128);
  CHECK(usual["rope_scaling"]["llama_4_scaling_beta"] == 0.1);
  CHECK(usual["head_dim"] == 64);  // what rotates of a head
  CHECK(usual["q_lora_rank"] == 1024);
  CHECK(sparse_layers(usual) == std::vector<bool>(3, true));
  const Json said = config_of("mistral4", R"("q_lora_rank": null, "first_k_dense_replace": 1,
      "rope_parameters": {"rope_type": "default", "rope_theta": 5e5,
                          "partial_rotary_factor": 0.5}, )");
  CHECK(said["rope_scaling"].is_null());
  CHECK(said["rope_theta"] == 5e5);
  CHECK_FALSE(said.contains("partial_rotary_factor"));
  CHECK(said["q_lora_rank"].is_null());
  CHECK(sparse_layers(said) == std::vector<bool>{false, true, true});
}

TEST_CASE("a config of Command A+ has norms of one kind, and windows of its first layers") {
  const Json layer = config_of("cohere2_moe", R"("first_k_dense_replace": 1, )");
  CHECK(layer["has_layer_norms"] == true);
  CHECK(layer["rms_norm_eps"] == 1e-5);
  CHECK(layer["layer_types"] ==
        Json::array({"full_attention", "sliding_attention", "sliding_attention"}));
  CHECK(sparse_layers(layer) == std::vector<bool>{false, true, true});
  CHECK(layer["sliding_window"] == 4096);
  const Json rms = config_of("cohere2_moe", R"("rms_norm_eps": 1e-6, )");
  CHECK(rms["has_layer_norms"] == false);
  CHECK(rms["rms_norm_eps"] == 1e-6);
  Json stored = layer;
  restore_own_keys(stored);
  CHECK(stored["rms_norm_eps"].is_null());
  CHECK_FALSE(stored.contains("has_layer_norms"));
}

TEST_CASE("configs of Hy3, Laguna and Granite with windows are completed as their classes") {
  const Json hy = config_of("hy_v3", R"("num_shared_experts": 2, "router_scaling_factor": 1.5, )");
  CHECK(sparse_layers(hy) == std::vector<bool>{false, true, true});
  CHECK(hy["n_shared_experts"] == 2);
  CHECK(hy["routed_scaling_factor"] == 1.5);
  CHECK(hy["rope_theta"] == 11158840.0);
  const Json laguna = config_of("laguna", R"("num_key_value_heads": 2,
      "num_attention_heads_per_layer": [8, 4, 2], "layer_types": ["full_attention",
      "sliding_attention", "sliding_attention"], "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 7e5,
                           "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3,
                              "partial_rotary_factor": 0.5}}, )");
  CHECK(heads_of_layers(laguna) == std::vector<int64_t>{8, 4, 2});
  CHECK(laguna["partial_rotary_factor"] == 0.25);
  CHECK(laguna["local_rotary_factor"] == 0.5);
  CHECK(laguna["rope_local_base_freq"] == 5e3);
  CHECK(laguna["rope_scaling"]["factor"] == 4);
  CHECK(sparse_layers(laguna) == std::vector<bool>{false, true, true});
  for (const char* heads : {"[8, 4]", "[8, 4, 3]", "[8, 4, 0]"}) {
    Json wrong = laguna;
    wrong["num_attention_heads_per_layer"] = Json::parse(heads);
    CHECK(contains(lumen::testing::refusal(ErrorKind::kMalformed, [&] { heads_of_layers(wrong); }),
                   "num_attention_heads_per_layer"));
  }
  CHECK(contains(lumen::testing::refusal(ErrorKind::kUnsupported,
                                         [] {
                                           config_of("laguna", R"("rope_parameters": {
        "full_attention": {"rope_type": "default"},
        "sliding_attention": {"rope_type": "yarn"}}, )");
                                         }),
                 "rope_type 'yarn' of sliding_attention is not supported"));
  const Json granite = config_of("granitemoe_swa", "");
  CHECK(granite["sliding_window"] == 128);
  CHECK(granite["layer_types"][0] == "full_attention");
  CHECK(granite["layer_types"][2] == "sliding_attention");
}

TEST_CASE("adapters to LFM3, Hy3 and Laguna name what transformers calls their layers") {
  constexpr std::string_view kPlace = "model.layers.0.", kAddition = ".lora_A.weight";
  for (const auto& [type, own, module] :
       {std::tuple("lfm3", "self_attn.gate_proj", "self_attn.g_proj"),
        {"hy_v3", "mlp.shared_mlp.up_proj", "mlp.shared_experts.up_proj"},
        {"hy_v3", "mlp.router.gate", "mlp.gate"},
        {"laguna", "mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"},
        {"laguna", "self_attn.g_proj", "self_attn.g_proj"}}) {
    const Json config = {{"model_type", type}};
    const std::string here = str(kPlace, own, kAddition), there = str(kPlace, module, kAddition);
    CHECK(stored_name(config, here) == there);
    CHECK(usual_name(config, there) == here);
    const std::string weight = str(kPlace, own, ".weight");  // as files have it
    CHECK(stored_name(config, weight) == weight);
  }
}

}  // namespace
}  // namespace lumen::io
