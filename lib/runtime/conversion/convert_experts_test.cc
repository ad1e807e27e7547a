// lumen-convert: mixtures of experts, whose matrices are one tensor in GGUF.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "lib/base/random.h"
#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/gguf.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_gguf.h"
#include "lib/io/write_safetensors.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/convert.h"
#include "models/model.h"

namespace lumen::runtime {

using lumen::testing::relative_error;

TEST_CASE("experts are quantised together, their router is not") {
  for (const char* type : {"mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "qwen3_5_moe_text",
                           "qwen3_next", "lfm2_moe", "ernie4_5_moe", "glm4_moe", "minimax_m2",
                           "dots1", "bailing_moe_v2", "hunyuan_v1_moe", "exaone_moe"}) {
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    io::Json config = tiny_config(type);
    make_sayable(config);
    config.update({{"hidden_size", 256},
                   {"intermediate_size", 256},
                   {"moe_intermediate_size", 512},
                   {"head_dim", 64}});
    if (config.contains("moe_topk")) config.erase("moe_intermediate_size");
    // What is rounded must not choose others: behind states errors are larger than elsewhere.
    if (config.contains("linear_num_key_heads")) config["num_experts_per_tok"] = 3;
    for (const char* key : {"num_dense_layers", "moe_layer_start_index", "first_k_dense_replace"}) {
      if (!config.contains(key)) continue;
      config[key] = 0;
      config["mlp_only_layers"] = io::Json::array();
      config["num_experts_per_tok"] = io::Json(config["num_experts"]);
      if (config.contains("moe_k")) config["moe_k"] = io::Json(config["num_experts"]);
    }
    const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
    const std::vector<float> want = logits(directory);
    const std::string floats = converted(directory);
    for (const auto& [name, error, expected] : {std::tuple("q8_0", 0.1, DType::kQ8_0),
                                                {"q4_k_m", 0.6, DType::kQ4_K},
                                                {"mxfp4_moe", 0.6, DType::kMXFP4}}) {
      INFO(type << " " << name);
      ConvertOptions options;
      options.model = directory;
      options.output = lumen::testing::temporary_directory() + "/model.gguf";
      options.type = name;
      REQUIRE(convert(options) == 0);
      CHECK(relative_error(logits(*options.output), want) < error);
      const auto file = io::read_gguf(*options.output);
      CHECK(file->find_tensor("blk.0.ffn_gate_inp.weight")->dtype == DType::kF32);
      const io::GgufTensor& gate = *file->find_tensor("blk.0.ffn_gate_exps.weight");
      CHECK(gate.dtype == expected);
      CHECK(gate.shape.rank() == 3);
      // By way of a GGUF file in float32 the same bits.
      ConvertOptions again = options;
      again.model = floats;
      again.output = lumen::testing::temporary_directory() + "/again.gguf";
      REQUIRE(convert(again) == 0);
      const auto copy = io::read_gguf(*again.output);
      const Array a = file->array(gate), b = copy->array(*copy->find_tensor(gate.name));
      CHECK(std::equal(a.data(), a.data() + a.bytes(), b.data(), b.data() + b.bytes()));
    }
  }
}

namespace {

// A GGUF file with the tensors of all experts parted into one for each, as before April 2024.
std::string with_parted_experts(const std::string& path) {
  const auto file = io::read_gguf(path);
  io::GgufWriter writer;
  for (size_t i = 0; i < file->metadata.size(); ++i) writer.copy(file->metadata[i]);
  for (const io::GgufTensor& tensor : file->tensors) {
    const Array array = file->array(tensor);
    const size_t end = tensor.name.find("_exps.weight");
    if (end == std::string::npos) {
      writer.add(tensor.name, array);
      continue;
    }
    for (int64_t e = tensor.shape[0] - 1; e >= 0; --e) {  // the order does not matter
      writer.add(str(tensor.name.substr(0, end), ".", e, ".weight"), array.part(e));
    }
  }
  const std::string parted = lumen::testing::temporary_directory() + "/parted.gguf";
  writer.write(parted);
  return parted;
}

}  // namespace

TEST_CASE("old files of Mixtral, with a tensor per expert, are read and written as new ones") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "mixtral"}});
  io::Json config = def.tiny_configs()[0];
  make_sayable(config);
  const std::string whole =
      converted(model_directory(def, config, text::TokenizerKind::kByteLevelBpe));
  const std::string parted = with_parted_experts(whole);
  CHECK(io::read_gguf(parted)->find_tensor("blk.0.ffn_gate.2.weight") != nullptr);
  CHECK(logits(parted) == logits(whole));
  const auto convert_to = [](const std::string& from, const std::string& type) {
    ConvertOptions options;
    options.model = from;
    options.output = lumen::testing::temporary_directory() + "/model.gguf";
    options.type = type;
    REQUIRE(convert(options) == 0);
    return io::read_gguf(*options.output);
  };
  for (const char* type : {"", "q8_0"}) {
    INFO(type);
    check_same_data(*convert_to(parted, type), *convert_to(whole, type));
  }
  CHECK(logits(converted_directory(parted, "f32")) == logits(converted_directory(whole, "f32")));
}

TEST_CASE("experts of Qwen3.5 are one tensor in directories, and read alone and together") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "qwen3_5_moe_text"}});
  io::Json config = tiny_config("qwen3_5_moe_text");
  make_sayable(config);
  const std::string alone = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::vector<float> want = logits(alone);
  const std::string experts = "model.layers.1.mlp.experts.";
  // Layers that guess further tokens are not read, nor written but into a directory.
  const std::string guessing = "mtp.layers.0.mlp.experts.gate_up_proj";
  NamedArrays more = io::read_safetensors(alone + "/model.safetensors")->arrays();
  for (auto& [name, array] : more) array = nn::float32_copy(array);
  more[guessing] = Array::zeros(DType::kF32, {3, 32, 24});
  io::write_safetensors(alone + "/model.safetensors", more);
  for (const std::string& from : {alone, converted(alone)}) {
    INFO(from);
    const std::string together = converted_directory(from, "f32");
    CHECK(relative_error(logits(together), want) < 1e-5);
    const auto file = io::read_safetensors(together + "/model.safetensors");
    const auto single = io::read_safetensors(alone + "/model.safetensors")->arrays();
    const Array fused = file->arrays().at(experts + "gate_up_proj");
    CHECK(file->arrays().at(experts + "down_proj").shape() == Shape{3, 24, 16});
    REQUIRE(fused.shape() == Shape{3, 32, 24});
    const Array up = single.at(experts + "2.up_proj.weight");
    CHECK(
        std::ranges::equal(fused.as<float>().subspan((2 * 32 + 16) * 24, 16 * 24), up.as<float>()));
    CHECK_FALSE(file->arrays().contains(experts + "2.up_proj.weight"));
    CHECK(file->arrays().contains(guessing) == (from == alone));
  }
}

TEST_CASE("inputs of Qwen3-Next's Gated DeltaNets are one tensor in directories, two in GGUF") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "qwen3_next"}});
  io::Json config = def.tiny_configs()[0];
  make_sayable(config);
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::string gguf = converted(directory);
  const auto file = io::read_gguf(gguf);
  CHECK(file->find_tensor("blk.0.attn_qkv.weight")->shape == Shape{2 * 12 + 24, 24});
  CHECK(file->find_tensor("blk.0.attn_gate.weight")->shape == Shape{24, 24});
  CHECK(file->find_tensor("blk.0.ssm_ba.weight")->shape == Shape{8, 24});
  const std::string layer = "model.layers.0.linear_attn.";
  const auto before = io::read_safetensors(directory + "/model.safetensors")->arrays();
  const Array fused = before.at(layer + "in_proj_qkvz.weight");
  const auto rows = fused.as<float>();
  const auto is_row = [&](const char* name, int64_t row, int64_t of) {
    const Array array = file->array(*file->find_tensor(name));
    return std::ranges::equal(array.as<float>().subspan(static_cast<size_t>(row * 24), 24),
                              rows.subspan(static_cast<size_t>(of * 24), 24));
  };
  // Of each of two key heads 6 rows of q, 6 of k, 2 · 6 of v and 2 · 6 of z follow each other.
  CHECK(is_row("blk.0.attn_qkv.weight", 6, 36));             // the second head's first q
  CHECK(is_row("blk.0.attn_qkv.weight", 12 + 5, 11));        // the first head's last k
  CHECK(is_row("blk.0.attn_qkv.weight", 24 + 12, 36 + 12));  // the second head's first v
  CHECK(is_row("blk.0.attn_gate.weight", 12, 36 + 24));
  const std::string again = converted_directory(gguf, "f32");
  const auto after = io::read_safetensors(again + "/model.safetensors")->arrays();
  CHECK(after.size() == before.size());
  for (const auto& [name, array] : before) {
    INFO(name);
    const auto got = after.at(name).as<float>(), want = array.as<float>();
    CHECK(after.at(name).shape() == array.shape());
    for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(1e-6));
  }

  // Older files have them as directories do, and none the size of feed-forward layers.
  io::GgufWriter writer;
  for (size_t i = 0; i < file->metadata.size(); ++i) {
    if (file->metadata[i].key() != "qwen3next.feed_forward_length") writer.copy(file->metadata[i]);
  }
  for (const io::GgufTensor& tensor : file->tensors) {
    if (tensor.name == "blk.0.attn_gate.weight") continue;
    const bool is_qkv = tensor.name == "blk.0.attn_qkv.weight";
    writer.add(is_qkv ? "blk.0.ssm_in.weight" : tensor.name, is_qkv ? fused : file->array(tensor));
  }
  const std::string older = lumen::testing::temporary_directory() + "/older.gguf";
  writer.write(older);
  CHECK(relative_error(logits(older), logits(directory)) < 1e-5);
  CHECK(relative_error(logits(converted_directory(older, "f32")), logits(directory)) < 1e-5);
}

TEST_CASE("a type for experts is refused for a model without") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "llama"}});
  ConvertOptions options;
  options.model = model_directory(def, def.tiny_configs()[0], text::TokenizerKind::kByteLevelBpe);
  options.output = lumen::testing::temporary_directory() + "/model.gguf";
  options.type = "mxfp4_moe";
  CHECK(lumen::testing::contains(
      lumen::testing::refusal(ErrorKind::kUsage, [&] { convert(options); }),
      "--type mxfp4_moe is for mixtures of experts"));
}

TEST_CASE("gpt-oss with experts in MXFP4 is computed with as it is stored, and keeps it in GGUF") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "gpt_oss"}});
  io::Json config = def.tiny_configs()[0];
  make_sayable(config);
  // All experts are used: what is rounded must not choose others.
  config.update({{"hidden_size", 64}, {"intermediate_size", 96}, {"num_experts_per_tok", 4}});
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  NamedArrays tensors;
  for (const auto& [name, array] :
       io::read_safetensors(directory + "/model.safetensors")->arrays()) {
    if (!io::number_in_stack(name)) tensors.emplace(name, array);
  }
  Philox random(8);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string place = str("model.layers.", layer, ".mlp.experts.");
    for (const auto& [name, rows, blocks] :
         {std::tuple("gate_up_proj", 192, 2), {"down_proj", 64, 3}}) {
      Array numbers = Array::zeros(DType::kU8, {4, rows, blocks, 16});
      Array scales = Array::zeros(DType::kU8, {4, rows, blocks});
      for (uint8_t& byte : numbers.as_mutable<uint8_t>()) byte = uint8_t(random.next_u32());
      for (uint8_t& scale : scales.as_mutable<uint8_t>()) scale = 120 + random.next_u32() % 4;
      tensors.emplace(place + name + "_blocks", numbers);
      tensors.emplace(place + name + "_scales", scales);
    }
  }
  io::write_safetensors(directory + "/model.safetensors", tensors);
  io::Json said = io::read_json(directory + "/config.json");
  said["quantization_config"] = {{"quant_method", "mxfp4"}};
  io::write_file_atomically(directory + "/config.json", said.dump());
  const std::vector<float> want = logits(directory);

  ConvertOptions options;
  options.model = directory;
  options.output = lumen::testing::temporary_directory() + "/model.gguf";
  REQUIRE(convert(options) == 0);
  const auto file = io::read_gguf(*options.output);
  CHECK(file->find_tensor("blk.0.ffn_gate_exps.weight")->dtype == DType::kMXFP4);
  CHECK(file->find_tensor("blk.0.ffn_down_exps.bias")->dtype == DType::kF32);
  // The other matrices are f16: what experts are given is rounded to 8 bits otherwise here and
  // there.
  CHECK(relative_error(logits(*options.output), want) < 2e-2);

  // In floats, each expert's numbers are the definition's.
  const std::string floats = converted_directory(directory, "f32");
  CHECK(relative_error(logits(floats), want) < 5e-2);
  const io::ModelFiles model = io::open_model(floats);
  const std::string fused = "model.layers.1.mlp.experts.gate_up_proj";
  const Array& numbers = tensors.at(fused + "_blocks");
  const Array& exponents = tensors.at(fused + "_scales");
  const auto bytes = numbers.as<uint8_t>(), scales = exponents.as<uint8_t>();
  constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (const auto& [name, part] : {std::pair("gate_proj", 0), {"up_proj", 1}}) {
    const Array up = model.tensors.at(str("model.layers.1.mlp.experts.2.", name, ".weight"));
    REQUIRE(up.shape() == Shape{96, 64});
    for (size_t row = 0; row < 96; ++row) {
      for (size_t column = 0; column < 64; ++column) {
        const size_t block = ((2 * 192 + 2 * row + size_t(part)) * 2) + column / 32;
        const int bits = bytes[block * 16 + column % 32 / 2] >> (column % 2 * 4) & 15;
        const float number = std::ldexp(kNumbers[bits % 8], scales[block] - 127);
        REQUIRE(up.as<float>()[row * 64 + column] == (bits < 8 ? number : -number));
      }
    }
  }
}

namespace {

// A directory of the first small config of this type, whose corrections of scores are not 0, with
// `more` tensors.
std::string corrected_directory(const char* type, const std::vector<std::string>& more) {
  const models::ModelDef& def = models::find_model_def({{"model_type", type}});
  io::Json config = tiny_config(type);
  make_sayable(config);
  const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  const std::string weights = directory + "/model.safetensors";
  NamedArrays tensors = io::read_safetensors(weights)->arrays();
  for (auto& [name, array] : tensors) {
    array = nn::float32_copy(array);
    if (!name.ends_with("expert_bias") && !name.ends_with("e_score_correction_bias")) continue;
    for (size_t i = 0; float& number : array.as_mutable<float>()) number = i++ % 2 ? 0.9f : 0.01f;
  }
  for (const std::string& name : more) tensors[name] = Array::zeros(DType::kF32, {2, 2});
  io::write_safetensors(weights, tensors);
  return directory;
}

}  // namespace

TEST_CASE("corrections of scores are kept in float32, layers that guess tokens are left out") {
  struct Case {
    const char *type, *correction;
    Shape shape;  // in a directory
    std::vector<std::string> guessing;
  };
  const Case cases[] = {
      {"lfm2_moe", "feed_forward.expert_bias", {4}, {}},
      {"ernie4_5_moe",
       "mlp.moe_statics.e_score_correction_bias",
       {1, 8},
       {"model.mtp_block.0.mlp.up_proj.weight", "model.mtp_linear_proj.0.weight"}},
      {"glm4_moe",
       "mlp.gate.e_score_correction_bias",
       {4},
       {"model.layers.2.eh_proj.weight", "model.layers.2.mlp.experts.0.up_proj.weight"}},
      {"dots1", "mlp.gate.e_score_correction_bias", {4}, {}},
      {"bailing_moe_v2", "mlp.gate.expert_bias", {4}, {}},
      {"exaone_moe",
       "mlp.e_score_correction_bias",
       {4},
       {"mtp.layers.0.mlp.up_proj.weight", "mtp.fc.weight"}},
      {"minimax_m2", "block_sparse_moe.e_score_correction_bias", {4}, {}}};
  for (const Case& one : cases) {
    INFO(one.type);
    const std::string directory = corrected_directory(one.type, {});
    const std::vector<float> want = logits(directory);
    CHECK(logits(corrected_directory(one.type, one.guessing)) == want);
    const std::string gguf = converted(corrected_directory(one.type, one.guessing));
    CHECK(relative_error(logits(gguf), want) < 1e-6);
    const auto file = io::read_gguf(gguf);
    CHECK(file->find_tensor("blk.1.exp_probs_b.bias")->shape == Shape{one.shape.elements()});
    const bool all_sparse = one.type == std::string("minimax_m2");
    CHECK((file->find_tensor("blk.0.exp_probs_b.bias") != nullptr) == all_sparse);
    for (const io::GgufTensor& tensor : file->tensors) {
      CHECK((tensor.name.find("mtp") == std::string::npos && !tensor.name.starts_with("blk.2.eh")));
    }
    for (const std::string& from : {directory, gguf}) {
      const std::string half = converted_directory(from, "bf16");
      const Array correction = io::read_safetensors(half + "/model.safetensors")
                                   ->arrays()
                                   .at(str("model.layers.1.", one.correction));
      CHECK(correction.dtype() == DType::kF32);
      CHECK(correction.shape() == one.shape);
      CHECK(correction.as<float>()[1] == 0.9f);
      CHECK(logits(half).size() == want.size());
    }
  }
}

TEST_CASE("files of GLM-4.5 with a layer that guesses tokens, and without what they may not say") {
  const std::string gguf = converted(corrected_directory("glm4_moe", {}));
  const auto file = io::read_gguf(gguf);
  const auto changed = [&](std::optional<uint32_t> gating) {
    io::GgufWriter writer;
    for (size_t i = 0; i < file->metadata.size(); ++i) {
      const std::string_view key = file->metadata[i].key();
      if (!key.ends_with("gating_func") && !key.ends_with("block_count") &&
          !key.ends_with("group_count")) {
        writer.copy(file->metadata[i]);
      }
    }
    writer.set("glm4moe.block_count", uint32_t{3});
    writer.set("glm4moe.leading_dense_block_count", uint32_t{1});
    writer.set("glm4moe.nextn_predict_layers", uint32_t{1});
    if (gating) writer.set("glm4moe.expert_gating_func", *gating);
    for (const io::GgufTensor& tensor : file->tensors) {
      writer.add(tensor.name, file->array(tensor));
      if (!tensor.name.starts_with("blk.1.")) continue;
      writer.add("blk.2." + tensor.name.substr(6), file->array(tensor));
    }
    writer.add("blk.2.nextn.eh_proj.weight", Array::zeros(DType::kF32, {32, 64}));
    const std::string path = lumen::testing::temporary_directory() + "/guessing.gguf";
    writer.write(path);
    return path;
  };
  CHECK(logits(changed(std::nullopt)) == logits(gguf));
  for (const uint32_t gating : {1u, 3u}) {
    CHECK(lumen::testing::contains(
        lumen::testing::refusal(ErrorKind::kUnsupported, [&] { logits(changed(gating)); }),
        str("glm4moe.expert_gating_func ", gating, " is not supported; known is 2 (sigmoid)")));
  }
}

}  // namespace lumen::runtime
