// lumen-convert: what is quantised, or was.
#include <cmath>
#include <cstring>
#include <filesystem>

#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/gguf.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/runtime/tool/tool_process.h"
#include "models/model.h"

namespace lumen::runtime {

using lumen::testing::contains;
using lumen::testing::relative_error;

namespace {

std::string quantized_file(const std::string& from, const std::string& type, int64_t threads = 2,
                           bool again = false) {
  ConvertOptions options;
  options.model = from;
  options.output = lumen::testing::temporary_directory() + "/quantized.gguf";
  options.type = type;
  options.threads = threads;
  options.allow_requantize = again;
  const int exit_code = convert(options);
  REQUIRE(exit_code == 0);
  return *options.output;
}

}  // namespace

TEST_CASE("matrices of GGUF files get the types that the field gives them") {
  const GgufModelKind model = {.layers = 22, .heads_per_kv_head = 8};
  const Shape wide = {8, 2048};
  const auto type_of = [&](std::string_view file, std::string_view name, const Shape& shape) {
    return gguf_matrix_type(gguf_file_type(file), model, name, shape);
  };
  const auto layers_with = [&](std::string_view file, std::string_view part, DType dtype) {
    std::vector<int> layers;
    for (int i = 0; i < 22; ++i) {
      if (type_of(file, str("blk.", i, ".", part, ".weight"), wide) == dtype) layers.push_back(i);
    }
    return layers;
  };
  // As llama-quantize's log says for TinyLlama, 22 layers whose heads share keys and values by 8.
  const std::vector<int> more = {0, 1, 4, 7, 10, 13, 16, 19, 20, 21};
  CHECK(layers_with("q4_k_m", "ffn_down", DType::kQ6_K) == more);
  CHECK(layers_with("q4_k_m", "ffn_down", DType::kQ4_K).size() == 12);
  CHECK(layers_with("q4_k_m", "attn_v", DType::kQ6_K) == more);
  CHECK(layers_with("q4_k_m", "attn_v", DType::kQ5_K).size() == 12);
  CHECK(layers_with("q4_k_m", "attn_k", DType::kQ4_K).size() == 22);
  CHECK(layers_with("q5_k_m", "ffn_down", DType::kQ6_K) == more);
  CHECK(layers_with("q5_k_m", "attn_v", DType::kQ6_K).size() == 22);
  CHECK(layers_with("q4_0", "ffn_down", DType::kQ4_0).size() == 22);
  CHECK(layers_with("q6_k", "ffn_up", DType::kQ6_K).size() == 22);
  CHECK(layers_with("q8_0", "attn_v", DType::kQ8_0).size() == 22);
  const std::vector<int> first_2 = {0, 1}, first_4 = {0, 1, 2, 3};
  CHECK(layers_with("q4_k_s", "attn_v", DType::kQ5_K) == first_4);
  CHECK(layers_with("q4_k_s", "ffn_down", DType::kQ5_K) == first_2);
  CHECK(layers_with("q5_k_s", "ffn_down", DType::kQ5_K).size() == 22);
  CHECK(layers_with("q3_k_s", "ffn_down", DType::kQ3_K).size() == 22);
  CHECK(layers_with("q3_k_m", "attn_v", DType::kQ5_K) == first_2);
  CHECK(layers_with("q3_k_m", "attn_v", DType::kQ4_K).size() == 20);
  CHECK(layers_with("q3_k_m", "ffn_down", DType::kQ5_K) == std::vector{0});
  CHECK(layers_with("q3_k_m", "ffn_down", DType::kQ4_K).size() == 21);
  CHECK(layers_with("q3_k_m", "attn_output", DType::kQ4_K).size() == 22);
  CHECK(layers_with("q3_k_m", "attn_q", DType::kQ3_K).size() == 22);
  for (const char* part : {"attn_v", "ffn_down", "attn_output"}) {
    CHECK(layers_with("q3_k_l", part, DType::kQ5_K).size() == 22);
  }
  CHECK(layers_with("q2_k", "attn_v", DType::kQ4_K).size() == 22);
  CHECK(layers_with("q2_k", "ffn_down", DType::kQ3_K).size() == 22);
  CHECK(layers_with("q2_k", "attn_output", DType::kQ3_K).size() == 22);
  CHECK(layers_with("q2_k_s", "ffn_down", DType::kQ4_K) == first_2);
  CHECK(layers_with("q2_k_s", "attn_output", DType::kQ2_K).size() == 22);
  for (const std::string_view file : {"iq4_nl", "iq4_xs"}) {
    CHECK(layers_with(file, "attn_v", DType::kQ5_K).size() == 22);
    CHECK(layers_with(file, "ffn_down", DType::kQ5_K) == first_2);
  }
  GgufModelKind unshared = model;
  unshared.heads_per_kv_head = 1;
  for (const auto& [file, dtype] : {std::pair{"q4_k_m", DType::kQ4_K},
                                    {"q2_k", DType::kQ3_K},
                                    {"q2_k_s", DType::kQ2_K},
                                    {"iq4_xs", DType::kIQ4_XS}}) {
    CHECK(gguf_matrix_type(gguf_file_type(file), unshared, "blk.2.attn_v.weight", wide) == dtype);
  }
  for (const std::string_view file : {"q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k_m", "q4_k_m",
                                      "q5_k_m", "q6_k", "iq4_nl", "iq4_xs"}) {
    CHECK(type_of(file, "output.weight", wide) == DType::kQ6_K);
    CHECK(type_of(file, "output.weight", {8, 96}) == DType::kQ8_0);
    CHECK(type_of(file, "output.weight", {8, 100}) == DType::kF16);
  }
  CHECK(type_of("q4_k_m", "token_embd.weight", wide) == DType::kQ4_K);
  GgufModelKind tied = model;
  tied.has_output = false;
  CHECK(gguf_matrix_type(gguf_file_type("q4_k_m"), tied, "token_embd.weight", wide) ==
        DType::kQ6_K);
  CHECK(type_of("q4_k_m", "blk.5.ffn_up.weight", {8, 896}) == DType::kQ5_0);
  CHECK(type_of("q5_k_m", "blk.5.ffn_up.weight", {8, 896}) == DType::kQ5_1);
  CHECK(type_of("q6_k", "blk.5.ffn_up.weight", {8, 896}) == DType::kQ8_0);
  for (const std::string_view file : {"q2_k", "q3_k_l", "iq4_xs"}) {
    CHECK(type_of(file, "blk.5.ffn_up.weight", {8, 896}) == DType::kIQ4_NL);
  }
  CHECK(type_of("q4_0", "blk.5.ffn_up.weight", {8, 40}) == DType::kF16);
  CHECK(type_of("bf16", "blk.5.ffn_up.weight", {8, 40}) == DType::kBF16);
  // As llama-quantize's MXFP4_MOE.
  CHECK(type_of("mxfp4_moe", "blk.5.ffn_up_exps.weight", {4, 8, 96}) == DType::kMXFP4);
  CHECK(type_of("mxfp4_moe", "blk.5.ffn_up_exps.weight", {4, 8, 40}) == DType::kF16);
  CHECK(type_of("mxfp4_moe", "blk.5.ffn_gate_inp.weight", wide) == DType::kF32);
  for (const char* name : {"blk.5.attn_v.weight", "output.weight", "token_embd.weight"}) {
    CHECK(type_of("mxfp4_moe", name, wide) == DType::kQ8_0);
  }
  for (const char* name :
       {"blk.5.altup_router.weight", "altup_unembd_proj.weight", "blk.5.laurel_l.weight"}) {
    CHECK(type_of("q8_0", name, wide) == DType::kF16);
    CHECK(type_of("bf16", name, wide) == DType::kBF16);
  }
  CHECK(type_of("q4_k_m", "per_layer_token_embd.weight", wide) == DType::kQ4_K);
  for (const char* name : {"blk.5.ffn_gate_inp_shexp.weight", "blk.5.attn_q_norm.weight",
                           "blk.5.altup_predict_coef.weight"}) {
    CHECK(type_of("q4_k_m", name, wide) == DType::kF32);
  }
  CHECK(layers_with("q4_k_m", "ffn_down_shexp", DType::kQ6_K) == more);
}

TEST_CASE("quantised files compute nearly the same, from a directory and from GGUF") {
  LUMEN_SHARED_DATA(directory, "models/synthetic/llama-256");
  const std::vector<float> want = logits(directory);
  const std::string wide = quantized_file(directory, "f32");
  struct Case {
    const char* type;
    int number;
    double error;  // of the logits of random weights, which nothing averages
  };
  for (const Case& test :
       {Case{"q8_0", 7, 0.04}, Case{"q6_k", 18, 0.095}, Case{"q5_k_m", 17, 0.16},
        Case{"q5_1", 9, 0.17}, Case{"q4_k_m", 15, 0.31}, Case{"q4_k_s", 14, 0.29},
        Case{"q4_0", 2, 0.36}, Case{"iq4_xs", 30, 0.34}, Case{"iq4_nl", 25, 0.34},
        Case{"q3_k_m", 12, 0.46}, Case{"q2_k", 10, 0.78}}) {
    INFO(test.type);
    const std::string gguf = quantized_file(directory, test.type);
    CHECK(relative_error(logits(gguf), want) < test.error);
    const auto file = io::read_gguf(gguf);
    CHECK(file->metadata.get_int("general.file_type", 0, 100) == test.number);
    CHECK(file->metadata.get_int("general.quantization_version", 0, 100) == 2);
    // The same tensors with one thread, and by way of a GGUF file in float32.
    const auto one = io::read_gguf(quantized_file(directory, test.type, 1));
    const auto copy = io::read_gguf(quantized_file(wide, test.type, 3));
    CHECK(copy->metadata.size() == file->metadata.size());
    check_same_data(*one, *file);
    check_same_data(*copy, *file);
  }
}

TEST_CASE("a quantised file becomes a directory of the numbers it stands for") {
  LUMEN_SHARED_DATA(models, "models/gguf-derived");
  const std::string source = models + "/stories260K-q8_0.gguf";
  const std::string wide = converted_directory(source, "f32");
  CHECK(relative_error(logits(wide), logits(source)) < 0.03);  // which rounds activations
  CHECK(relative_error(logits(converted_directory(source, "f16")), logits(wide)) < 2e-3);
  CHECK(io::read_json(wide + "/config.json")["architectures"][0] == "LlamaForCausalLM");
  CHECK(io::read_json(wide + "/config.json")["rms_norm_eps"] == 1e-5);
  check_same_text(PromptFormat::load(io::open_model(source), ""),
                  PromptFormat::load(io::open_model(wide), ""));
}

TEST_CASE("a directory that another program packed becomes one of plain numbers") {
  const models::ModelDef& llama = models::find_model_def({{"model_type", "llama"}});
  const std::string directory =
      model_directory(llama, llama.tiny_configs()[0], text::TokenizerKind::kByteLevelBpe);
  NamedArrays tensors = io::read_safetensors(directory + "/model.safetensors")->arrays();
  const float scale = 0.01f;
  const std::string up = "model.layers.0.mlp.up_proj", query = "model.layers.0.self_attn.q_proj";
  NamedArrays codes;
  for (const std::string& layer : {up, query}) {
    const Array plain = tensors.at(layer + ".weight");
    const auto values = plain.as<float>();
    Array rounded = Array::zeros(DType::kI8, plain.shape());
    for (int64_t i = 0; i < plain.elements(); ++i) {
      rounded.as_mutable<int8_t>()[i] = static_cast<int8_t>(std::lround(values[i] / scale));
    }
    codes[layer] = tensors[layer + ".weight"] = rounded;
    tensors[layer + ".weight_scale"] = Array::from(std::span<const float>(&scale, 1), {1});
  }
  io::write_safetensors(directory + "/model.safetensors", tensors);
  io::Json config = io::read_json(directory + "/config.json");
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "int-quantized"},
      {"config_groups", {{"group_0", {{"weights", {{"num_bits", 8}}}}}}}};
  io::write_file_atomically(directory + "/config.json", config.dump());

  const std::string output = converted_directory(directory, "f32");
  CHECK(!io::read_json(output + "/config.json").contains("quantization_config"));
  const Array got =
      io::read_safetensors(output + "/model.safetensors")->arrays().at(up + ".weight");
  const float stored = to_float(to_f16(scale));
  for (int64_t i = 0; i < got.elements(); ++i) {
    REQUIRE(got.as<float>()[i] == stored * static_cast<float>(codes.at(up).as<int8_t>()[i]));
  }
  // In GGUF, if no type is asked for, the codes stay.
  ConvertOptions options;
  options.model = directory;
  options.output = directory + "/model.gguf";
  REQUIRE(convert(options) == 0);
  const auto gguf = io::read_gguf(*options.output);
  const auto type = [&](const char* tensor) { return *gguf->find_tensor(tensor)->dtype; };
  CHECK(type("blk.0.ffn_up.weight") == DType::kQ8_0);
  CHECK(type("blk.0.ffn_down.weight") == DType::kF16);
  // Row 1 of the interleaved order is the first of the second halves.
  const Array rows = gguf->array(*gguf->find_tensor("blk.0.attn_q.weight"));
  REQUIRE(rows.dtype() == DType::kQ8_0);
  const int64_t columns = rows.shape()[1];
  const int64_t half = io::get_int(io::open_model(directory).config, "head_dim", 1, 1024) / 2;
  CHECK(std::memcmp(rows.data() + row_bytes(DType::kQ8_0, columns) + 2,
                    codes.at(query).data() + half * columns, 32) == 0);
  CHECK(gguf->metadata.find("general.quantization_version")->as_int() == 2);
  CHECK(!gguf->metadata.find("general.file_type").has_value());
  CHECK(relative_error(logits(*options.output), logits(directory)) < 2e-3);
}

TEST_CASE("what is quantised is not quantised again unless asked for") {
  LUMEN_SHARED_DATA(models, "models/gguf-derived");
  const std::string source = models + "/stories260K-q8_0.gguf";
  const std::string message =
      lumen::testing::refusal(ErrorKind::kUsage, [&] { quantized_file(source, "q4_0"); });
  CHECK(contains(message, "is q8_0 already"));
  CHECK(contains(message, "--allow-requantize"));
  const std::string smaller = quantized_file(source, "q4_0", 2, true);
  CHECK(relative_error(logits(smaller), logits(source)) < 0.5);
  // Nothing is rounded where every number becomes a float32.
  CHECK(relative_error(logits(quantized_file(source, "f32")),
                       logits(converted_directory(source, "f32"))) < 1e-5);
  // Its own type is a copy: the same logits, tokens and end tokens.
  const std::string original = models + "/stories260K-f32.gguf";
  const std::string q8 = quantized_file(original, "q8_0"), copy = quantized_file(q8, "q8_0");
  CHECK(logits(copy) == logits(q8));
  const PromptFormat a = PromptFormat::load(io::open_model(original), "");
  const PromptFormat b = PromptFormat::load(io::open_model(copy), "");
  CHECK(b.encode("Once upon a time, 12 cats") == a.encode("Once upon a time, 12 cats"));
  CHECK(b.end_token_ids() == a.end_token_ids());
}

TEST_CASE("rows that fill no blocks are told") {
  LUMEN_SHARED_DATA(directory, "models/hf/stories260K");
  const std::string place = lumen::testing::temporary_directory();
  const auto outcome = testing::run_tool_process(
      "lumen-convert", {directory, place + "/a.gguf", "--type", "q4_k_m", "-t", "2"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.empty());
  // 1 + 5 · 6 matrices with rows of 64, and five with rows of 172.
  CHECK(contains(outcome.err,
                 "note: the rows of 31 of 36 matrices do not fill blocks of 256: they "
                 "are written as q5_0, q5_1 or q8_0\n"));
  CHECK(contains(outcome.err,
                 "note: the rows of 5 of 36 matrices do not fill blocks of 32: they "
                 "are written as f16\n"));
  CHECK(relative_error(logits(place + "/a.gguf"), logits(directory)) < 0.1);
  const auto again = testing::run_tool_process("lumen-convert",
                                               {directory, place + "/a.gguf", "--type", "q4_k_m"});
  CHECK(again.exit_code == 73);
  CHECK(contains(again.err, "--force"));
  const std::string other = place + "/other.gguf";
  const auto dry = testing::run_tool_process("lumen-convert",
                                             {directory, other, "--type", "q4_k_m", "--dry-run"});
  CHECK(dry.exit_code == 0);
  const auto size = std::filesystem::file_size(place + "/a.gguf");
  CHECK(dry.out.starts_with(str(other, ": ", human_bytes(size), ", 47 tensors: ")));
  CHECK(contains(dry.out, "5 in f16, 11 in f32, "));
  CHECK_FALSE(io::is_regular_file(other));
  const auto itself = testing::run_tool_process(
      "lumen-convert", {place + "/a.gguf", place + "/./a.gguf", "--force"});
  CHECK(itself.exit_code == 73);
  CHECK(contains(itself.err, "is the model itself"));
  const auto unknown =
      testing::run_tool_process("lumen-convert", {directory, place + "/b.gguf", "--type", "q4_k"});
  CHECK(unknown.exit_code == 2);
  CHECK_FALSE(io::is_regular_file(place + "/b.gguf"));
}

}  // namespace lumen::runtime
