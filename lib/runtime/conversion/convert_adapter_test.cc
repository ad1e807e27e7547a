// lumen-convert and adapters: worked into a model's weights, to GGUF and back.
#include <algorithm>
#include <cmath>

#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/gguf.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_gguf.h"
#include "lib/io/write_safetensors.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/conversion/inspect.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/runtime/tool/tool_process.h"
#include "lib/text/train/train_tokenizer.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::relative_error;

Array waves(const Shape& shape, float start) {
  Array array = Array::zeros(DType::kF32, shape);
  float x = start;
  for (float& value : array.as_mutable<float>()) value = 0.3f * std::sin(x += 1);
  return array;
}

// A PEFT adapter of rank 2 and with `more` in its config to these layers of the model, whose ranks
// are 3 where `own_rank` names them.
std::string adapter_directory(const std::string& model, const std::vector<std::string>& layers,
                              const io::Json& more = io::Json::object(),
                              const std::string& own_rank = "", const NamedArrays& replaced = {}) {
  const std::string directory = lumen::testing::temporary_directory();
  const auto files = io::open_model(model);
  NamedArrays tensors;
  for (const std::string& layer : layers) {
    const Shape shape = files.tensors.at(layer + ".weight").shape();
    const int64_t rank = layer == own_rank ? 3 : 2;
    tensors["base_model.model." + layer + ".lora_A.weight"] = waves({rank, shape[1]}, 1);
    tensors["base_model.model." + layer + ".lora_B.weight"] = waves({shape[0], rank}, 2);
  }
  for (const auto& [name, array] : replaced) tensors["base_model.model." + name] = array;
  io::write_safetensors(directory + "/adapter_model.safetensors", tensors);
  io::Json peft = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 8}};
  peft["base_model_name_or_path"] = model;
  peft.update(more);
  io::write_file_atomically(directory + "/adapter_config.json", peft.dump());
  io::write_file_atomically(directory + "/chat_template.jinja", "{{ messages[0].content }}!");
  return directory;
}

}  // namespace

TEST_CASE("a model and an adapter in one file compute as the two do together") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "llama"}});
  for (const io::Json& config : def.tiny_configs()) {
    if (is_unknown_to_gguf(config["model_type"].get<std::string>())) continue;
    INFO(config.dump());
    const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
    // Rows of q_proj also change their order; an output layer of its own parts from the embedding.
    const auto model = io::open_model(directory);
    const std::string adapter = adapter_directory(
        directory, {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"},
        io::Json::object(), "",
        {{"lm_head.weight", waves(model.tensors.at("model.embed_tokens.weight").shape(), 3)}});

    ConvertOptions options;
    options.model = directory;
    options.output = directory + "/merged.gguf";
    options.type = "f32";
    options.lora = adapter;
    REQUIRE(convert(options) == 0);
    const std::vector<float> merged = logits(*options.output);
    CHECK(relative_error(merged, logits(directory, adapter)) < 1e-5);
    CHECK(relative_error(merged, logits(directory)) > 1e-2);
    CHECK(PromptFormat::load(io::open_model(*options.output), "").render({{"user", "a"}}) == "a!");

    // The model as a GGUF file, whose rows of q and k lie in another order.
    options.model = converted(directory);
    for (const char* name : {"/again.gguf", "/again"}) {
      options.output = directory + name;
      REQUIRE(convert(options) == 0);
      CHECK(relative_error(logits(*options.output), merged) < 1e-5);
      CHECK(PromptFormat::load(io::open_model(*options.output), "").render({{"user", "a"}}) ==
            "a!");
    }
  }
}

TEST_CASE("an adapter changes the matrices of a quantised file that it is about, and no others") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "llama"}});
  io::Json config = def.tiny_configs()[0];
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::string layer = "model.layers.0.mlp.up_proj";
  const std::string adapter = adapter_directory(directory, {layer});
  const std::string place = lumen::testing::temporary_directory();
  ConvertOptions options;
  options.model = directory;
  options.output = place + "/q8.gguf";
  options.type = "q8_0";
  REQUIRE(convert(options) == 0);
  options.model = options.output;
  options.output = place + "/merged.gguf";
  options.lora = adapter;
  options.type = "";
  REQUIRE(convert(options) == 0);
  const auto before = io::open_model(*options.model), after = io::open_model(*options.output);
  REQUIRE(after.tensors.size() == before.tensors.size());
  for (const auto& [name, array] : before.tensors) {
    INFO(name);
    const Array& now = after.tensors.at(name);
    REQUIRE(now.dtype() == array.dtype());
    CHECK(std::equal(array.data(), array.data() + array.bytes(), now.data()) ==
          (name != layer + ".weight"));
  }
  CHECK(after.gguf->metadata.get_int("general.file_type", 0, 99) == 7);
  CHECK(after.chat_templates.at("default") == "{{ messages[0].content }}!");
  CHECK(relative_error(logits(*options.output), logits(*options.model, adapter)) < 0.02);
  options.output = place + "/other.gguf";
  options.type = "q4_0";
  CHECK(contains(lumen::testing::refusal(ErrorKind::kUsage, [&] { convert(options); }),
                 "is q8_0 already"));
  options.allow_requantize = true;
  CHECK(convert(options) == 0);
}

TEST_CASE("a matrix in blocks that an adapter changes is rounded to its type again") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "llama"}});
  io::Json config = def.tiny_configs()[0];
  config["hidden_size"] = 64;
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::string adapter = adapter_directory(directory, {"model.layers.0.mlp.up_proj"});
  const auto plain = io::read_gguf(converted(directory));
  for (const DType dtype : {DType::kQ4_1, DType::kIQ4_NL}) {
    INFO(name(dtype));
    const std::string place = lumen::testing::temporary_directory();
    io::GgufWriter writer;
    for (size_t i = 0; i < plain->metadata.size(); ++i) writer.copy(plain->metadata[i]);
    for (const io::GgufTensor& tensor : plain->tensors) {
      const Array array = nn::float32_copy(plain->array(tensor));
      const bool is_up = tensor.name == "blk.0.ffn_up.weight";
      writer.add(tensor.name, is_up ? nn::stored_as(array, dtype) : array);
    }
    writer.write(place + "/model.gguf");
    ConvertOptions options;
    options.model = place + "/model.gguf";
    options.output = place + "/merged.gguf";
    options.lora = adapter;
    const std::vector<float> wanted = logits(*options.model, adapter);
    REQUIRE(convert(options) == 0);
    CHECK(io::read_gguf(*options.output)->find_tensor("blk.0.ffn_up.weight")->dtype == dtype);
    CHECK(relative_error(logits(*options.output), wanted) < 0.1);
    CHECK(relative_error(logits(*options.model), wanted) > 0.2);
  }
}

TEST_CASE("an adapter whose base model is not here asks for its place") {
  const std::string place = lumen::testing::temporary_directory();
  io::write_file_atomically(place + "/adapter_config.json",
                            R"({"r": 4, "lora_alpha": 8, "base_model_name_or_path": "/no/where"})");
  ConvertOptions options;
  options.model = place;
  options.output = place + "/adapter.gguf";
  const std::string why = lumen::testing::refusal(ErrorKind::kMissing, [&] { convert(options); });
  CHECK(contains(why, "whose place --base MODEL can name: /no/where: no such file"));
}

TEST_CASE("an adapter to the built-in model is converted, and its base opened, by its name") {
  const std::string model = lumen::testing::source_path("testdata/builtin/lumen-tiny.gguf");
  const std::string adapter =
      adapter_directory(model, {"model.layers.0.self_attn.q_proj"},
                        {{"base_model_name_or_path", "builtin:lumen-tiny"}});
  const std::string gguf = adapter + "/adapter.gguf";
  const auto converted = testing::run_tool_process("lumen-convert", {adapter, gguf});
  INFO(converted.err);
  REQUIRE(converted.exit_code == 0);
  const std::vector<std::string> prompt = {"-p", "What is Lumen?", "-n", "8", "--lora"};
  const auto answer = [&](std::vector<std::string> arguments, const std::string& lora) {
    arguments.insert(arguments.end(), prompt.begin(), prompt.end());
    arguments.push_back(lora);
    const auto outcome = testing::run_tool_process("lumen-run", arguments);
    CHECK(outcome.exit_code == 0);
    return outcome.out;
  };
  CHECK(answer({}, adapter) == answer({"builtin:lumen-tiny"}, gguf));
}

TEST_CASE("an adapter of Granite 4.0 fits the Granite that it is in GGUF, and back") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "granitemoehybrid"}});
  io::Json config = tiny_config("granitemoehybrid");
  config.update({{"num_local_experts", 0},
                 {"layer_types", {"attention", "attention"}},
                 {"position_embedding_type", "rope"}});
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::string gguf = converted(directory), layer = "model.layers.0.";
  REQUIRE(io::open_model(gguf).config["model_type"] == "granite");
  const std::string peft = adapter_directory(
      directory,
      {layer + "self_attn.q_proj", layer + "shared_mlp.input_linear",
       layer + "shared_mlp.output_linear"},
      {{"rank_pattern", {{"input_linear", 3}}}}, layer + "shared_mlp.input_linear");
  const std::vector<float> wanted = logits(directory, peft);
  CHECK(relative_error(wanted, logits(directory)) > 1e-2);
  CHECK(relative_error(logits(gguf, peft), wanted) < 1e-5);
  for (const std::string& base : {directory, gguf}) {
    INFO(base);
    ConvertOptions options;
    options.model = peft;
    options.output = lumen::testing::temporary_directory() + "/adapter.gguf";
    options.type = "f32";
    options.base = base;
    REQUIRE(convert(options) == 0);
    CHECK(relative_error(logits(gguf, *options.output), wanted) < 1e-5);
    CHECK(relative_error(logits(directory, *options.output), wanted) < 1e-5);
    options.model = options.output;
    options.output = lumen::testing::temporary_directory() + "/peft";
    REQUIRE(convert(options) == 0);
    CHECK(relative_error(logits(base, *options.output), wanted) < 1e-5);
  }
}

TEST_CASE("an adapter goes to GGUF and back, and computes the same with every form of its model") {
  // Rows of q and k that rotate are reordered for GGUF, as they are, and pairs in both forms.
  for (const auto& [type, down] : {std::pair("llama", "mlp.down_proj"),
                                   {"qwen2", "mlp.down_proj"},
                                   {"qwen2_moe", "mlp.shared_expert.down_proj"},
                                   {"qwen3_5_moe_text", "linear_attn.in_proj_qkv"},
                                   {"qwen3_next", "linear_attn.in_proj_qkvz"},
                                   {"granitemoehybrid", "mamba.in_proj"},
                                   {"granitemoehybrid", "shared_mlp.input_linear"},
                                   {"glm4", "mlp.gate_up_proj"},
                                   {"starcoder2", "mlp.c_proj"},
                                   {"phi", "self_attn.dense"}}) {
    // The second layer of the two with Gated DeltaNet or Mamba-2 has attention.
    const bool has_mamba = type == std::string_view("granitemoehybrid");
    const bool is_hybrid = std::string_view(down).starts_with("linear_attn.") || has_mamba;
    const std::string attention = str("model.layers.", is_hybrid ? 1 : 0, ".self_attn.");
    const std::vector<std::string> layers = {attention + "q_proj", attention + "k_proj",
                                             str("model.layers.0.", down)};
    const std::string last = layers[2].substr(layers[2].rfind('.') + 1);
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    io::Json config = tiny_config(type);
    if (has_mamba) config["num_local_experts"] = 0;
    if (is_hybrid) make_sayable(config);
    const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
    const std::string gguf = converted(directory);
    const std::string_view part = down;  // two layers there:
    const size_t in_two = part.ends_with("qkvz") || part.ends_with("input_linear") ? 1 : 0;
    for (const io::Json& more :
         {io::Json::object(), io::Json({{"use_rslora", true}}),
          io::Json({{"alpha_pattern", {{"q_proj", 3}}}, {"rank_pattern", {{last, 3}}}})}) {
      INFO(type << more.dump());
      const bool has_own = more.contains("rank_pattern");
      const std::string peft = adapter_directory(directory, layers, more, has_own ? layers[2] : "");
      const std::vector<float> wanted = logits(directory, peft);
      CHECK(relative_error(wanted, logits(directory)) > 1e-2);
      const std::string place = lumen::testing::temporary_directory();
      ConvertOptions options;
      options.model = peft;
      options.output = place + "/adapter.gguf";
      options.type = "f32";
      REQUIRE(convert(options) == 0);
      const io::Json in_gguf = inspect_adapter(*options.output, io::read_if_gguf(*options.output));
      const io::Json in_peft = inspect_adapter(peft, nullptr);
      CHECK(in_gguf["format"] == "LoRA adapter, GGUF");
      CHECK(in_gguf["tensors"].size() == 2 * (layers.size() + in_two));
      CHECK(contains(inspection_text(in_gguf), "adapter.lora.alpha"));
      CHECK(in_peft["config"]["r"] == 2);
      CHECK(contains(inspection_text(in_peft), layers[0] + ".lora_A.weight  f32 [2,"));
      CHECK(relative_error(logits(directory, *options.output), wanted) < 1e-5);
      CHECK(relative_error(logits(gguf, *options.output), wanted) < 1e-5);
      CHECK(relative_error(logits(gguf, peft), wanted) < 1e-5);
      CHECK(io::read_chat_templates(*options.output) == io::read_chat_templates(peft));
      options.model = options.output;
      options.output = place + "/peft";
      options.base = gguf;
      REQUIRE(convert(options) == 0);
      CHECK(relative_error(logits(directory, *options.output), wanted) < 1e-5);
      CHECK(io::read_chat_templates(*options.output) == io::read_chat_templates(peft));
      const auto back = io::read_safetensors(place + "/peft/adapter_model.safetensors")->arrays();
      CHECK(back.size() == 2 * layers.size());
      const std::string a = str("base_model.model.", layers[2], ".lora_A.weight");
      CHECK(back.at(a).shape()[0] == (has_own ? 3 : 2));
      options = {};
      options.model = directory;
      options.output = place + "/merged.gguf";
      options.type = "f32";
      options.lora = place + "/adapter.gguf";
      REQUIRE(convert(options) == 0);
      CHECK(relative_error(logits(*options.output), wanted) < 1e-5);
    }
  }
}

TEST_CASE("additions to experts are worked into a GGUF file's tensor of all, too") {
  io::Json config = tiny_config("mixtral");
  make_sayable(config);
  const models::ModelDef& def = models::find_model_def(config);
  const std::string model = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::string peft =
      adapter_directory(model, {"model.layers.0.block_sparse_moe.experts.1.w2"});
  ConvertOptions options;
  options.model = converted(model);
  options.output = lumen::testing::temporary_directory() + "/merged.gguf";
  options.type = "f32";
  options.lora = peft;
  REQUIRE(convert(options) == 0);
  const std::vector<float> wanted = logits(model, peft);
  CHECK(relative_error(wanted, logits(model)) > 1e-3);
  CHECK(relative_error(logits(*options.output), wanted) < 1e-5);
}

TEST_CASE("an adapter of Gemma 3n runs with its directory and GGUF file, and is worked into both") {
  io::Json config = tiny_config("gemma3n_text");
  make_sayable(config);
  const models::ModelDef& def = models::find_model_def(config);
  const std::string model = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::string gguf = converted(model), layer = "model.layers.0.";
  const std::vector<std::string> layers = {
      layer + "self_attn.q_proj", layer + "altup.modality_router", layer + "laurel.linear_left",
      "model.per_layer_model_projection"};
  std::vector<std::string> all = layers;
  all.push_back("model.altup_projections.1");
  for (const std::vector<std::string>& these : {layers, all}) {
    const std::string peft = adapter_directory(model, these);
    const std::vector<float> wanted = logits(model, peft);
    CHECK(relative_error(wanted, logits(model)) > 1e-3);
    CHECK(relative_error(logits(gguf, peft), wanted) < 1e-5);
    for (const std::string& from : {model, gguf}) {
      ConvertOptions options;
      options.model = from;
      options.output = lumen::testing::temporary_directory() + "/merged.gguf";
      options.type = "f32";
      options.lora = peft;
      REQUIRE(convert(options) == 0);
      CHECK(relative_error(logits(*options.output), wanted) < 1e-5);
    }
    ConvertOptions options;
    options.model = peft;
    options.output = lumen::testing::temporary_directory() + "/adapter.gguf";
    if (these == layers) {
      options.type = "f32";
      REQUIRE(convert(options) == 0);
      CHECK(relative_error(logits(gguf, *options.output), wanted) < 1e-5);
      continue;
    }
    CHECK(contains(
        lumen::testing::refusal(ErrorKind::kUnsupported, [&] { convert(options); }),
        "an addition to 'model.altup_projections.1.weight' that can only be in the weight itself"));
  }
}

// Magnitudes and whole matrices follow the weights, which lie [in, out] in one and [out, in] in the
// other; c_proj is square.
TEST_CASE("an adapter of GPT-2 computes the same with its directory and with its GGUF file") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "gpt2"}});
  io::Json config = def.tiny_configs()[0];
  make_sayable(config);
  const int64_t dim = config["hidden_size"];
  const std::string model = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::string gguf = converted(model), layer = "transformer.h.1.";
  CHECK(relative_error(logits(gguf), logits(model)) < 1e-6);
  const auto adapter = [&](const io::Json& more, const NamedArrays& tensors) {
    return adapter_directory(model, {}, more, "", tensors);
  };
  const NamedArrays additions = {{layer + "attn.c_attn.lora_A.weight", waves({2, dim}, 1)},
                                 {layer + "attn.c_attn.lora_B.weight", waves({3 * dim, 2}, 2)},
                                 {layer + "attn.c_proj.lora_A.weight", waves({2, dim}, 3)},
                                 {layer + "attn.c_proj.lora_B.weight", waves({dim, 2}, 4)}};
  const io::Json none = io::Json::object();
  NamedArrays with_magnitudes = additions;
  with_magnitudes[layer + "attn.c_attn.lora_magnitude_vector"] = waves({3 * dim}, 5);
  with_magnitudes[layer + "attn.c_proj.lora_magnitude_vector"] = waves({dim}, 6);
  NamedArrays with_matrix = {{layer + "attn.c_attn.lora_A.weight", waves({2, dim}, 1)},
                             {layer + "attn.c_attn.lora_B.weight", waves({3 * dim, 2}, 2)},
                             {layer + "attn.c_proj.weight", waves({dim, dim}, 3)}};
  for (const std::string& place :
       {adapter(none, additions), adapter({{"use_dora", true}}, with_magnitudes),
        adapter({{"modules_to_save", {"c_proj"}}}, with_matrix)}) {
    const std::vector<float> expected = logits(model, place);
    CHECK(relative_error(expected, logits(model)) > 1e-2);
    CHECK(relative_error(logits(gguf, place), expected) < 1e-5);
  }
  ConvertOptions options;
  options.model = adapter(none, additions);
  options.output = model + "/adapter.gguf";
  options.type = "f32";
  REQUIRE(convert(options) == 0);
  const std::vector<float> expected = logits(model, *options.model);
  CHECK(relative_error(logits(model, *options.output), expected) < 1e-6);
  CHECK(relative_error(logits(gguf, *options.output), expected) < 1e-5);
  options.model = options.output;
  options.output = model + "/adapter";
  options.base = gguf;
  REQUIRE(convert(options) == 0);
  CHECK(relative_error(logits(model, *options.output), expected) < 1e-6);
  CHECK(io::read_json(*options.output + "/adapter_config.json")["fan_in_fan_out"] == true);
}

TEST_CASE("adapters to layers with names of their own go to GGUF and back") {
  for (const auto& [type, layers] :
       {std::pair("nemotron_h",
                  std::vector<std::string>{"0.mixer.in_proj", "1.mixer.up_proj", "2.mixer.k_proj"}),
        {"mamba2", {"0.mixer.in_proj"}},
        {"gpt_neox", {"0.attention.query_key_value", "1.attention.dense", "1.mlp.dense_4h_to_h"}},
        {"falcon", {"0.self_attention.query_key_value", "1.self_attention.dense"}},
        {"bloom", {"0.self_attention.query_key_value", "1.mlp.dense_4h_to_h"}},
        {"mpt", {"0.attn.Wqkv", "1.ffn.down_proj"}},
        {"gpt_bigcode", {"0.attn.c_attn", "1.attn.c_proj", "1.mlp.c_fc"}},
        {"exaone", {"0.self_attn.q_proj", "1.mlp.down_proj"}},
        {"falcon_h1", {"0.mamba.in_proj", "0.self_attn.k_proj", "1.feed_forward.down_proj"}}}) {
    INFO(type);
    const bool has_multipliers = type == std::string_view("falcon_h1");
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    const std::string directory =
        model_directory(def, tiny_config(type), text::TokenizerKind::kByteLevelBpe);
    const std::string gguf = converted(directory), place = lumen::testing::temporary_directory();
    std::vector<std::string> paths;
    for (const std::string& layer : layers) paths.push_back("model.layers." + layer);
    const std::string last = layers[0].substr(layers[0].rfind('.') + 1);
    const std::string peft =
        adapter_directory(directory, paths, {{"rank_pattern", {{last, 3}}}}, paths[0]);
    const std::vector<float> wanted = logits(directory, peft);
    CHECK(relative_error(wanted, logits(directory)) > 1e-2);
    ConvertOptions options;
    options.model = peft;
    options.output = place + "/adapter.gguf";
    options.type = "f32";
    options.base = directory;
    REQUIRE(convert(options) == 0);
    CHECK(relative_error(logits(gguf, *options.output), wanted) < 1e-5);
    CHECK(relative_error(logits(directory, *options.output), wanted) < 1e-5);
    if (has_multipliers) {  // which the file does not tell
      CHECK(contains(
          lumen::testing::refusal(ErrorKind::kUnsupported, [&] { logits(gguf, peft); }),
          "the multipliers of a Falcon-H1, by which adapters in GGUF and in directories differ"));
    } else {
      CHECK(relative_error(logits(gguf, peft), wanted) < 1e-5);
    }
    options.model = options.output;
    options.output = place + "/peft";
    REQUIRE(convert(options) == 0);
    CHECK(relative_error(logits(directory, *options.output), wanted) < 1e-5);
    const auto back = io::read_safetensors(place + "/peft/adapter_model.safetensors")->arrays();
    const bool older = type == std::string_view("falcon") || type == std::string_view("bloom") ||
                       type == std::string_view("gpt_bigcode");
    const char* const module = type == std::string_view("mamba2")     ? "backbone.layers."
                               : type == std::string_view("gpt_neox") ? "gpt_neox.layers."
                               : type == std::string_view("mpt")      ? "transformer.blocks."
                               : older                                ? "transformer.h."
                                                                      : "model.layers.";
    CHECK(back.contains(str("base_model.model.", module, layers[0], ".lora_A.weight")));
    options = {};
    options.model = directory;
    options.output = place + "/merged.gguf";
    options.type = "f32";
    options.lora = peft;
    REQUIRE(convert(options) == 0);
    CHECK(relative_error(logits(*options.output), wanted) < 1e-5);
  }
}

TEST_CASE("an adapter that GGUF cannot say, or for another model, is refused") {
  const models::ModelDef& llama = models::find_model_def({{"model_type", "llama"}});
  const models::ModelDef& qwen = models::find_model_def({{"model_type", "qwen2"}});
  const auto kind = text::TokenizerKind::kByteLevelBpe;
  const std::string directory = model_directory(llama, llama.tiny_configs()[0], kind);
  const std::string other = model_directory(qwen, qwen.tiny_configs()[0], kind);
  const std::vector<std::string> layers = {"model.layers.0.mlp.up_proj"};
  const auto refused = [&](ErrorKind error, const ConvertOptions& options) {
    return lumen::testing::refusal(error, [&] { convert(options); });
  };
  const std::string place = lumen::testing::temporary_directory();
  ConvertOptions options;
  options.model = adapter_directory(directory, layers);
  options.output = place + "/a.gguf";
  options.type = "q4_0";
  CHECK(contains(refused(ErrorKind::kUsage, options), "an adapter takes f32, f16 or bf16"));
  options.type = "";
  REQUIRE(convert(options) == 0);
  CHECK(contains(refused(ErrorKind::kCannotCreate, options), "--force replaces it"));
  CHECK(contains(
      lumen::testing::refusal(ErrorKind::kMismatch, [&] { logits(other, place + "/a.gguf"); }),
      "of the architecture 'llama', this one is 'qwen2'"));
  options.model = place + "/a.gguf";
  options.output = place + "/b.gguf";
  CHECK(contains(refused(ErrorKind::kUsage, options), "in GGUF, of which a PEFT directory"));
  options.output = place + "/b";
  CHECK(contains(refused(ErrorKind::kUsage, options), "name that with --base MODEL"));
  options.base = directory;
  options.output = directory;
  options.force = true;
  CHECK(contains(refused(ErrorKind::kCannotCreate, options), "is the model itself"));
  options.model = adapter_directory(
      directory, layers, io::Json::object(), "",
      {{"model.norm.weight",
        waves(io::open_model(directory).tensors.at("model.norm.weight").shape(), 1)}});
  options.output = place + "/c.gguf";
  CHECK(contains(refused(ErrorKind::kUnsupported, options), "'model.norm.weight' in the place of"));
  io::Json tied = llama.tiny_configs()[0];
  tied["tie_word_embeddings"] = true;
  options.base = model_directory(llama, tied, kind);
  const std::string embedding = "model.embed_tokens";
  const int64_t dim = tied["hidden_size"];
  options.model = adapter_directory(*options.base, {}, io::Json::object(), "",
                                    {{embedding + ".lora_embedding_A", waves({2, 320}, 1)},
                                     {embedding + ".lora_embedding_B", waves({dim, 2}, 1)}});
  options.output = place + "/d.gguf";  // whose head is the embedding
  CHECK(contains(refused(ErrorKind::kUnsupported, options),
                 "an addition to 'model.embed_tokens.weight' that can only be in the weight"));
}

}  // namespace lumen::runtime
