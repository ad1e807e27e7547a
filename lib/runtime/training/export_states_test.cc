// The same as export_families_test.cc, of models whose layers keep states.
#include "lib/runtime/training/trained_families.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::check_training_on;
using testing::mixture_config;
using testing::random_base;

TEST_CASE("Granite 4.0 H is trained, whole and by additions, also where gate and up are apart") {
  for (const int experts : {4, 0}) {
    io::Json config = mixture_config("granitemoehybrid");
    config.update({{"num_local_experts", experts},
                   {"shared_intermediate_size", 20},
                   {"layer_types", {"mamba", "attention"}},
                   {"mamba_n_heads", 4},
                   {"mamba_d_head", 16},
                   {"mamba_n_groups", 2},
                   {"mamba_d_state", 8},
                   {"mamba_d_conv", 4}});
    for (const char* key :
         {"mlp_only_layers", "sliding_window", "num_experts", "moe_intermediate_size"}) {
      config.erase(key);
    }
    INFO(experts);
    check_training_on(
        random_base(config),
        {.adapter =
             [&](const NamedArrays& adapter, const std::string&, bool from_gguf) {
               const std::string layer = "base_model.model.model.layers.0.";
               CHECK(adapter.contains(layer + "mamba.in_proj.lora_A.weight"));
               CHECK(adapter.contains(layer + "mamba.out_proj.lora_B.weight"));
               const std::string inputs = layer + "shared_mlp.input_linear.lora_A.weight";
               REQUIRE(adapter.contains(inputs));
               const bool apart = from_gguf || experts > 0;  // two that become one
               CHECK(adapter.at(inputs).shape()[0] == (apart ? 4 : 2));
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string&) {
               CHECK(tensors.contains("model.layers.0.mamba.A_log"));
               CHECK(tensors.contains("model.layers.0.shared_mlp.input_linear.weight"));
               CHECK(tensors.contains("model.layers.0.block_sparse_moe.input_linear.weight") ==
                     (experts > 0));
             }});
  }
}

TEST_CASE("Nemotron-H, Mamba-2 and Falcon-H1 are trained, whole and by additions") {
  for (const auto& [type, index, last] :
       {std::tuple("nemotron_h", size_t{0}, "1.mixer.up_proj"),
        {"nemotron_h", size_t{2}, "1.mixer.shared_experts.up_proj"},
        {"mamba2", size_t{0}, "1.mixer.in_proj"},
        {"falcon_h1", size_t{0}, "1.self_attn.k_proj"}}) {
    io::Json config = models::find_model_def({{"model_type", type}}).tiny_configs()[index];
    config["vocab_size"] = 300;
    config["initializer_range"] = 0.1;
    INFO(type << index);
    const bool beside = type == std::string("falcon_h1"), alone = type == std::string("mamba2");
    const std::string mixer = beside ? "mamba" : "mixer";
    check_training_on(
        random_base(config),
        {.adapter =
             [&, name = std::string(last)](const NamedArrays& adapter, const std::string&, bool) {
               const std::string layers =
                   str("base_model.model.", alone ? "backbone" : "model", ".layers.");
               CHECK(adapter.contains(str(layers, "0.", mixer, ".in_proj.lora_A.weight")));
               CHECK(adapter.contains(str(layers, name, ".lora_B.weight")));
               for (const auto& [one, array] : adapter) {
                 CHECK(one.find(".experts.") == one.npos);
                 CHECK(one.find(".out_proj.") == one.npos);  // which PEFT would refuse
               }
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string& place) {
               const std::string model = beside ? "model." : "backbone.";
               CHECK(tensors.contains(str(model, "layers.0.", mixer, ".A_log")));
               CHECK(
                   tensors.contains(model + (beside ? "final_layernorm.weight" : "norm_f.weight")));
               CHECK_FALSE(
                   io::read_json(place + "/config.json").contains("multipliers_in_weights"));
             },
         .fits_both = !beside});
  }
}

TEST_CASE("Kimi Linear, Mamba and Jamba are trained, whole and by additions") {
  for (const auto& [type, layer, module, last, whole] :
       {std::tuple("kimi_linear", "model.layers.", "0.self_attn.forget_gate.f_a_proj",
                   "1.mlp.shared_experts.up_proj", "model.layers.0.self_attn.A_log"),
        {"mamba", "backbone.layers.", "0.mixer.in_proj", "1.mixer.x_proj",
         "backbone.layers.1.mixer.A_log"},
        {"jamba", "model.layers.", "0.mamba.in_proj", "1.self_attn.k_proj",
         "model.layers.2.mamba.dt_layernorm.weight"}}) {
    io::Json config = models::find_model_def({{"model_type", type}}).tiny_configs()[0];
    config["vocab_size"] = 300;
    config["initializer_range"] = 0.1;
    INFO(type);
    check_training_on(random_base(config),
                      {.adapter =
                           [&, names = std::array{std::string(module), std::string(last)},
                            place = str("base_model.model.", layer)](const NamedArrays& adapter,
                                                                     const std::string&, bool) {
                             for (const std::string& name : names) {
                               CHECK(adapter.contains(str(place, name, ".lora_B.weight")));
                             }
                             for (const auto& [one, array] : adapter)
                               CHECK(one.find(".experts.") == one.npos);
                           },
                       .whole = [&, name = std::string(whole)](
                                    const NamedArrays& tensors,
                                    const std::string&) { CHECK(tensors.contains(name)); }});
  }
}

}  // namespace
}  // namespace lumen::runtime
