// Adapters that add to experts and to what is beside them: trained, run, worked into models, to
// GGUF and back.
#include <map>

#include "lib/base/relative_error.h"
#include "lib/io/layer_windows.h"
#include "lib/io/safetensors.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/training/text_recipes.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using lumen::testing::relative_error;
using testing::trained;

// A config of each family that has experts.
std::map<std::string, io::Json> mixtures() {
  std::map<std::string, io::Json> configs;
  for (const models::ModelDef* def : models::model_list()) {
    for (const io::Json& config : def->tiny_configs()) {
      if (io::expert_count(config) > 0) configs.emplace(config["model_type"], config);
    }
  }
  return configs;
}

std::string random_directory(const io::Json& config) {
  return model_directory(models::find_model_def(config), config,
                         text::TokenizerKind::kByteLevelBpe);
}

NamedArrays adapter_tensors(const std::string& place) {
  return io::read_safetensors(place + "/adapter_model.safetensors")->arrays();
}

std::string converted_adapter(const std::string& adapter, const std::string& base,
                              const char* name) {
  ConvertOptions options;
  options.model = adapter;
  options.output = str(lumen::testing::temporary_directory(), "/", name);
  options.type = "f32";
  options.base = base;
  REQUIRE(convert(options) == 0);
  return *options.output;
}

std::string merged(const std::string& model, const std::string& adapter, const char* name) {
  ConvertOptions options;
  options.model = model;
  options.output = str(lumen::testing::temporary_directory(), "/", name);
  options.type = "f32";
  options.lora = adapter;
  REQUIRE(convert(options) == 0);
  return *options.output;
}

TEST_CASE("additions to the experts of every family are trained, run, merged, to GGUF and back") {
  for (auto [type, config] : mixtures()) {
    INFO(type);
    make_sayable(config);
    const std::string base = random_directory(config);
    const bool has_gates = type != "nemotron_h";
    const std::string targets = has_gates ? R"("experts.gate_up_proj", "experts.down_proj")"
                                          : R"("experts.up_proj", "experts.down_proj")";
    const std::string place = trained(base, targets);
    const std::vector<float> wanted = logits(trained(base, targets, true));
    CHECK(relative_error(wanted, logits(base)) > 1e-3);
    CHECK(relative_error(logits(base, place), wanted) < 1e-5);
    // Of two that are trained apart PEFT's parameter has the ranks of both.
    const io::Json peft = io::read_json(place + "/adapter_config.json");
    const bool alone = peft["target_modules"].size() > 0;  // by the names of their matrices
    CHECK(peft.contains("target_parameters") != alone);
    CHECK(peft.contains("rank_pattern") == (!alone && has_gates));
    if (peft.contains("rank_pattern")) {
      CHECK(peft["rank_pattern"] == io::Json({{"experts.gate_up_proj", 4}}));
      CHECK(peft["alpha_pattern"] == io::Json({{"experts.gate_up_proj", 16}}));
    }

    if (is_unknown_to_gguf(type)) continue;
    const std::string gguf = converted(base);
    CHECK(relative_error(logits(gguf, place), wanted) < 1e-5);
    const std::string in_gguf = converted_adapter(place, base, "adapter.gguf");
    CHECK(relative_error(logits(gguf, in_gguf), wanted) < 1e-5);
    CHECK(relative_error(logits(base, in_gguf), wanted) < 1e-5);
    for (const std::string& of : {base, gguf}) {
      const std::string back = converted_adapter(in_gguf, of, "peft");
      CHECK(relative_error(logits(base, back), wanted) < 1e-5);
      // What is trained is the adapter of the Qwen3-MoE that Qwen3-VL's language model is for text.
      if (type == "qwen3_vl_moe_text") continue;
      CHECK(adapter_tensors(back).size() == adapter_tensors(place).size());
    }
    CHECK(relative_error(logits(merged(base, in_gguf, "model")), wanted) < 1e-5);
    CHECK(relative_error(logits(merged(gguf, place, "model.gguf")), wanted) < 1e-5);
  }
}

TEST_CASE("a part of the layers that are called alike is trained by the ends of their names") {
  io::Json config = mixtures().at("deepseek_v2");
  const std::string base = random_directory(config);
  const std::string place = trained(base, R"("shared_experts.up_proj", "experts.down_proj")");
  const NamedArrays tensors = adapter_tensors(place);
  CHECK(tensors.size() == 4);
  const std::string layer = "base_model.model.model.layers.1.mlp.";
  CHECK(tensors.contains(layer + "shared_experts.up_proj.lora_A.weight"));
  CHECK(tensors.at(layer + "experts.lora_B.weight").shape() == Shape{24, 6});
  const io::Json peft = io::read_json(place + "/adapter_config.json");
  CHECK(peft["target_modules"] == io::Json::array());
  CHECK(peft["target_parameters"] == io::Json({"model.layers.1.mlp.shared_experts.up_proj.weight",
                                               "model.layers.1.mlp.experts.down_proj"}));
  CHECK(relative_error(logits(base, place), logits(base)) > 1e-4);
  const std::string some = trained(base, R"("self_attn.o_proj", "layers.0.mlp.up_proj")");
  CHECK(io::read_json(some + "/adapter_config.json")["target_modules"] ==
        io::Json({"model.layers.0.self_attn.o_proj", "model.layers.1.self_attn.o_proj"}));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { trained(base, "\"experts.up_proj\""); }),
                 "is called 'experts.up_proj'; there are down_proj, experts.down_proj, "
                 "experts.gate_up_proj, "));
}

TEST_CASE("experts in a model that sees images are parameters of its language model for PEFT") {
  io::Json config = mixtures().at("qwen3_vl_moe_text");
  const std::string base = random_directory(config);
  io::Json own = io::read_json(base + "/config.json");
  own["vocab_size"] = 320;
  io::write_file_atomically(
      base + "/config.json",
      io::Json({{"model_type", "qwen3_vl_moe"}, {"text_config", own}}).dump());
  const std::string place = trained(base, R"("experts.down_proj", "gate")");
  const std::string layer = "model.language_model.layers.0.mlp.";
  const NamedArrays tensors = adapter_tensors(place);
  CHECK(tensors.contains(str("base_model.model.", layer, "experts.lora_A.weight")));
  const io::Json peft = io::read_json(place + "/adapter_config.json");
  CHECK(peft["target_modules"].empty());
  CHECK(peft["target_parameters"][0] == layer + "gate.weight");
  CHECK(relative_error(logits(base, place), logits(base)) > 1e-4);
}

TEST_CASE("routers are trained under the names of PEFT's parameters, and run") {
  for (const auto& [type, router, path] :
       {std::tuple("granitemoe", "router.layer", "block_sparse_moe.router.weight"),
        {"lfm2_moe", "gate", "feed_forward.gate.weight"},
        {"phimoe", "gate", "mlp.router.weight"},
        {"gemma4_text", "router.proj", ""},
        {"nemotron_h", "gate", "mixer.gate.weight"}}) {
    INFO(type);
    io::Json config = mixtures().at(type);
    make_sayable(config);
    const std::string base = random_directory(config), gguf = converted(base);
    const std::string targets = str('"', router, '"'), place = trained(base, targets);
    const io::Json peft = io::read_json(place + "/adapter_config.json");
    const std::string_view end = path;
    CHECK(peft.contains("target_parameters") == !end.empty());
    if (!end.empty()) {
      const auto first = peft["target_parameters"][0].get<std::string>();
      CHECK(first.ends_with(end));
      CHECK(adapter_tensors(place).contains(
          str("base_model.model.", first.substr(0, first.rfind('.')), ".lora_A.weight")));
      CHECK(peft["target_modules"].empty());
    }
    const std::vector<float> wanted = logits(trained(base, targets, true));
    CHECK(relative_error(logits(base, place), wanted) < 1e-5);
    const std::string in_gguf = converted_adapter(place, base, "adapter.gguf");
    CHECK(relative_error(logits(gguf, in_gguf), wanted) < 1e-5);
    const std::string back = converted_adapter(in_gguf, base, "peft");
    CHECK(relative_error(logits(base, back), wanted) < 1e-5);
    CHECK(io::read_json(back + "/adapter_config.json").value("target_parameters", io::Json()) ==
          peft.value("target_parameters", io::Json()));
  }
}

TEST_CASE("what is beside Granite's experts is trained and converted as the one layer it is") {
  io::Json config = mixtures().at("granitemoe");
  config.update({{"model_type", "granitemoeshared"}, {"shared_intermediate_size", 20}});
  make_sayable(config);
  const std::string base = random_directory(config), gguf = converted(base);
  const std::string targets = R"("gate_proj", "up_proj", "down_proj")";
  const std::string place = trained(base, targets);
  const NamedArrays tensors = adapter_tensors(place);
  const std::string layer = "base_model.model.model.layers.0.shared_mlp.";
  CHECK(tensors.at(layer + "input_linear.lora_B.weight").shape() == Shape{40, 4});
  CHECK(tensors.contains(layer + "output_linear.lora_A.weight"));
  CHECK(io::read_json(place + "/adapter_config.json")["rank_pattern"]["input_linear"] == 4);
  const std::vector<float> wanted = logits(trained(base, targets, true));
  CHECK(relative_error(logits(base, place), wanted) < 1e-5);
  const std::string in_gguf = converted_adapter(place, base, "adapter.gguf");
  CHECK(relative_error(logits(gguf, in_gguf), wanted) < 1e-5);
  for (const std::string& of : {base, gguf}) {
    const std::string back = converted_adapter(in_gguf, of, "peft");
    CHECK(relative_error(logits(base, back), wanted) < 1e-5);
    CHECK(io::read_json(back + "/adapter_config.json")["target_modules"] ==
          io::Json({"input_linear", "output_linear"}));
  }
}

}  // namespace
}  // namespace lumen::runtime
