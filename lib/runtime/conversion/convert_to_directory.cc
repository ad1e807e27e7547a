// lumen-convert MODEL DIRECTORY: GGUF files and Hugging Face directories to a Hugging Face
// directory.
#include <algorithm>
#include <map>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/backbone_names.h"
#include "lib/io/fused_experts.h"
#include "lib/io/head_norms.h"
#include "lib/io/internlm2.h"
#include "lib/io/mapped_file.h"
#include "lib/io/packed_weights.h"
#include "lib/io/write_gguf.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/head_order.h"
#include "lib/nn/latent_attention.h"
#include "lib/nn/rope.h"
#include "lib/runtime/adapters/stored_layout.h"
#include "lib/runtime/conversion/conversion.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/runtime/tool/output_directory.h"
#include "lib/runtime/training/export_model.h"
#include "lib/text/gguf_files.h"
#include "lib/text/vocabulary_files.h"

namespace lumen::runtime {
namespace {

constexpr uint64_t kDefaultShardBytes = 5'000'000'000;  // as transformers and huggingface_hub

// The files of a directory beside its weights, by name.
using Files = std::vector<text::TokenizerFile>;

std::string json_text(const io::Json& json) {
  return json.dump(2) + "\n";
}

// Numbers that a file had as float32, in the digits that say as much: 1e-05.
void shorten_numbers(io::Json& json) {
  if (json.is_object()) {
    for (auto& [key, value] : json.items()) shorten_numbers(value);
  } else if (json.is_number_float()) {
    const auto number = json.get<double>();
    double shorter = number;
    if (static_cast<double>(static_cast<float>(number)) == number &&
        parse_number(str(static_cast<float>(number)), shorter)) {
      json = shorter;
    }
  }
}

std::string_view architecture_class(const std::string& model_type) {
  constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
      {"llama", "LlamaForCausalLM"},
      {"mistral", "MistralForCausalLM"},
      {"llama4_text", "Llama4ForCausalLM"},
      {"ministral3", "Ministral3ForCausalLM"},
      {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"},
      {"deepseek_v2", "DeepseekV2ForCausalLM"},
      {"deepseek_v3", "DeepseekV3ForCausalLM"},
      {"glm4_moe_lite", "Glm4MoeLiteForCausalLM"},
      {"glm4_moe", "Glm4MoeForCausalLM"},
      {"bailing_moe_v2", "BailingMoeV2ForCausalLM"},
      {"dots1", "Dots1ForCausalLM"},
      {"lfm2", "Lfm2ForCausalLM"},
      {"lfm2_moe", "Lfm2MoeForCausalLM"},
      {"gpt2", "GPT2LMHeadModel"},
      {"gemma", "GemmaForCausalLM"},
      {"gemma2", "Gemma2ForCausalLM"},
      {"gemma3_text", "Gemma3ForCausalLM"},
      {"gemma3n_text", "Gemma3nForCausalLM"},
      {"gemma4_text", "Gemma4ForCausalLM"},
      {"gemma4_unified_text", "Gemma4UnifiedForCausalLM"},
      {"granite", "GraniteForCausalLM"},
      {"granitemoe", "GraniteMoeForCausalLM"},
      {"granitemoehybrid", "GraniteMoeHybridForCausalLM"},
      {"granitemoeshared", "GraniteMoeSharedForCausalLM"},
      {"granite_swa", "GraniteSWAForCausalLM"},
      {"granitemoe_swa", "GraniteMoeSWAForCausalLM"},
      {"hy_v3", "HYV3ForCausalLM"},
      {"laguna", "LagunaForCausalLM"},
      {"mellum", "MellumForCausalLM"},
      {"mistral4", "Mistral4ForCausalLM"},
      {"olmo2", "Olmo2ForCausalLM"},
      {"olmo3", "Olmo3ForCausalLM"},
      {"phi3", "Phi3ForCausalLM"},
      {"phimoe", "PhimoeForCausalLM"},
      {"mixtral", "MixtralForCausalLM"},
      {"minimax_m2", "MiniMaxM2ForCausalLM"},
      {"qwen3_moe", "Qwen3MoeForCausalLM"},
      {"smollm3", "SmolLM3ForCausalLM"},
      {"gpt_oss", "GptOssForCausalLM"},
      {"gpt_neox", "GPTNeoXForCausalLM"},
      {"stablelm", "StableLmForCausalLM"},
      {"qwen2_moe", "Qwen2MoeForCausalLM"},
      {"olmoe", "OlmoeForCausalLM"},
      {"qwen3_5_text", "Qwen3_5ForCausalLM"},
      {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"},
      {"qwen3_next", "Qwen3NextForCausalLM"},
      {"seed_oss", "SeedOssForCausalLM"},
      {"glm", "GlmForCausalLM"},
      {"glm4", "Glm4ForCausalLM"},
      {"ernie4_5", "Ernie4_5ForCausalLM"},
      {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"},
      {"exaone4", "Exaone4ForCausalLM"},
      {"exaone_moe", "ExaoneMoeForCausalLM"},
      {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"},
      {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"},
      {"afmoe", "AfmoeForCausalLM"},
      {"apertus", "ApertusForCausalLM"},
      {"bitnet", "BitNetForCausalLM"},
      {"bloom", "BloomForCausalLM"},
      {"jais2", "Jais2ForCausalLM"},
      {"minicpm3", "MiniCPM3ForCausalLM"},
      {"youtu", "YoutuForCausalLM"},
      {"mpt", "MptForCausalLM"},
      {"exaone", "ExaoneForCausalLM"},
      {"falcon", "FalconForCausalLM"},
      {"gpt_bigcode", "GPTBigCodeForCausalLM"},
      {"minicpm", "MiniCPMForCausalLM"},
      {"olmo", "OlmoForCausalLM"},
      {"arcee", "ArceeForCausalLM"},
      {"cohere", "CohereForCausalLM"},
      {"cohere2", "Cohere2ForCausalLM"},
      {"cohere2_moe", "Cohere2MoeForCausalLM"},
      {"nemotron", "NemotronForCausalLM"},
      {"nemotron_h", "NemotronHForCausalLM"},
      {"falcon_h1", "FalconH1ForCausalLM"},
      {"mamba", "MambaForCausalLM"},
      {"falcon_mamba", "FalconMambaForCausalLM"},
      {"mamba2", "Mamba2ForCausalLM"},
      {"jamba", "JambaForCausalLM"},
      {"kimi_linear", "KimiLinearForCausalLM"},
      {"phi", "PhiForCausalLM"},
      {"starcoder2", "Starcoder2ForCausalLM"}};
  for (const auto& [type, name] : kClasses) {
    if (type == model_type) return name;
  }
  fail(ErrorKind::kUnsupported, "model_type ", quoted(model_type),
       " has no class of transformers that Lumen knows");
}

// What a config.json calls the activation of the gate.
const char* activation_key(const std::string& model_type) {
  const bool own = model_type != "gemma" && model_type.starts_with("gemma");
  return own ? "hidden_activation" : "hidden_act";
}

// config.json of a model that has none, or none of its own.
io::Json new_config(const io::ModelFiles& files) {
  io::Json config = files.config;
  if (!nn::set_rope_scaling(files.tensors, config)) {
    fail(ErrorKind::kUnsupported, quoted(files.path), ": the position scaling of ",
         "'rope_freqs.weight' is not Llama 3's, and has no name in config.json");
  }
  erase_added_keys(config);
  config["architectures"] = {architecture_class(io::get_string(config, "model_type"))};
  if (!nn::has_conv1d(config)) {  // whose activation has its own name already
    if (io::find_value(config, "hidden_act") == nullptr) config["hidden_act"] = "silu";
    config[activation_key(io::get_string(config, "model_type"))] = io::Json(config["hidden_act"]);
  }
  if (io::find_value(config, "rope_scaling") == nullptr) config.erase("rope_scaling");
  shorten_numbers(config);
  return config;
}

// What a GGUF file says, or a model of llama2.c with the vocabulary at `tokenizer`, as the files of
// a directory. Throws unless the vocabulary can be said.
Files files_of_one(const io::ModelFiles& files, const std::string& tokenizer, io::Json& config) {
  const PromptFormat format = PromptFormat::load(files, tokenizer);
  if (files.gguf == nullptr) {
    format.check_vocabulary(io::get_int(files.config, "vocab_size", 1, limits::kVocab), true,
                            tokenizer);
  }
  Files result = files.gguf != nullptr ? text::tokenizer_files(*files.gguf)
                                       : text::vocabulary_files(tokenizer);
  if (result.empty()) {
    fail(ErrorKind::kUnsupported, quoted(files.gguf != nullptr ? files.path : tokenizer),
         ": its vocabulary (", format.tokenizer()->kind(),
         ") has no form as tokenizer.json that gives the same tokens");
  }
  config = new_config(files);
  io::Json generation = files.generation_config;
  shorten_numbers(generation);
  const text::SpecialIds& special = format.tokenizer()->special_ids();
  // null where there is none, or transformers would take the numbers of another vocabulary.
  for (const auto& [key, id] :
       {std::pair("bos_token_id", special.bos), std::pair("eos_token_id", special.eos),
        std::pair("pad_token_id", special.pad)}) {
    config[key] = generation[key] = id ? io::Json(*id) : io::Json();
  }
  if (const auto ends = format.end_token_ids(); !ends.empty()) generation["eos_token_id"] = ends;
  result.push_back({"generation_config.json", json_text(generation)});
  return result;
}

// The same of a directory, as they are; of a model that reads more than text those of its language
// model.
Files files_of_directory(const io::ModelFiles& files, io::Json& config) {
  config = io::read_config(files.path + "/config.json");
  const bool reads_more = io::reads_more_than_text(config);
  if (reads_more || io::is_internlm2(config)) config = new_config(files);
  io::erase_packing(config);
  if (io::get_bool(config, "tie_word_embeddings", false)) {  // an adapter may have parted the two
    config["tie_word_embeddings"] = io::get_bool(files.config, "tie_word_embeddings", true);
  }
  Files result;
  for (const std::string& name : exported_names()) {
    const std::string path = files.path + "/" + name;
    if (name == "config.json" || name.starts_with("adapter_") || name.ends_with(".safetensors") ||
        name == "chat_template.jinja" || (reads_more && name == "preprocessor_config.json") ||
        !io::is_regular_file(path)) {
      continue;
    }
    result.push_back({name, io::read_file(path, limits::kJsonBytes)});
  }
  return result;
}

// The tensors of experts as files have them, of all experts of a layer one (io/fused_experts.h), in
// place of those of each.
std::vector<SourceTensor> with_fused_experts(std::vector<SourceTensor> tensors,
                                             const Source& source) {
  const io::Json& config = source.files.config;
  const io::ExpertsForm form = io::experts_form(config);
  const bool in_turn = form == io::ExpertsForm::kInTurn;
  const bool turned = in_turn || form == io::ExpertsForm::kTurned;
  std::vector<SourceTensor> result;
  std::map<std::string, size_t> fused;  // places in `result`
  for (SourceTensor& tensor : tensors) {
    const std::string target = io::fused_name(config, tensor.name);
    if (target.empty()) {
      result.push_back(std::move(tensor));
      continue;
    }
    const bool is_down = tensor.name.find(".down_proj.") != tensor.name.npos;
    const bool is_up = tensor.name.find(".up_proj.") != tensor.name.npos;
    const auto expert = io::number_in_stack(tensor.name);
    const auto [found, is_new] = fused.emplace(target, result.size());
    if (is_new) {
      SourceTensor& all = result.emplace_back(SourceTensor{tensor.name, target, tensor.array});
      (turned ? all.in_turn : all.stacked) = is_down ? 1 : 2;
      all.halves = !in_turn;
      all.is_bias = in_turn && !expert;
      all.alone = !in_turn && !expert;
    }
    SourceTensor& all = result[found->second];
    const int64_t of_each = is_down ? 1 : 2;
    const size_t part = static_cast<size_t>(expert.value_or(0) * of_each + (is_up ? 1 : 0));
    if (all.parts.size() <= part) all.parts.resize(part + 1);
    all.parts[part] = tensor.has_addition ? source.parameters->merged(tensor.name) : tensor.array;
  }
  return result;
}

}  // namespace

std::vector<SourceTensor> directory_tensors(const Source& source) {
  const io::ModelFiles& files = source.files;
  const bool tied = io::get_bool(files.config, "tie_word_embeddings", false);
  const bool rotate = nn::has_reordered_rows(files.config);
  const bool tiled = nn::has_tiled_heads(files.config), apart = nn::has_inputs_apart(files.config);
  const bool turns = nn::conv1d_order(files.config) == nn::WeightOrder::kOutIn;
  std::vector<SourceTensor> tensors;
  for (const auto& [name, array] : files.tensors) {
    const bool is_used = !nn::is_rope_tensor(name) && !name.starts_with("mtp.blk.");
    if ((tied && name == "lm_head.weight") || !is_used) continue;
    const RowOrder order =
        rotate && nn::has_rotary_rows(name) ? RowOrder::kHalves : RowOrder::kAsTheyAre;
    const std::string fused = apart ? nn::fused_input_name(name) : "";
    if (!fused.empty() && nn::input_part_name(fused, 0) != name) continue;  // with the other part
    if (name.ends_with(".v_b_proj.weight")) continue;                       // with the keys' rows
    const std::string joined = nn::joined_rows_name(name);
    if (files.tensors.contains(joined)) continue;  // has what is in this, too
    if (!io::head_norm_name(name, array, 0).empty()) {
      for (int64_t head = 0; head < array.shape()[0]; ++head) {
        tensors.push_back({name, io::head_norm_name(name, array, head), array.part(head)});
      }
      continue;
    }
    SourceTensor& tensor = tensors.emplace_back(SourceTensor{name, name, array, order});
    if (!fused.empty()) {
      tensor.target = fused;
      tensor.has_fused_inputs = true;
      tensor.parts = {array, files.tensors.at(nn::input_part_name(fused, 1))};
      continue;
    }
    if (!joined.empty()) {
      tensor.target = joined;
      tensor.has_latent_rows = true;
      tensor.parts = {array, files.tensors.at(nn::value_rows_name(name))};
      continue;
    }
    tensor.has_addition = source.parameters && source.parameters->has_addition(name);
    tensor.shift = norm_shift(files.config, name, 1);
    if (tiled && nn::has_grouped_heads(name)) tensor.to_tiled = false;
    tensor.rate = rate_form(name, false);
    tensor.is_turned = turns && nn::is_conv1d_weight(files.config, name, array);
    if (tensor.rate != RateForm::kAsItIs) tensor.target = other_rate_name(name);
    tensor.target = io::stored_name(files.config, std::move(tensor.target));
  }
  const bool fuses = io::experts_form(files.config) != io::ExpertsForm::kEachItsOwn;
  return fuses ? with_fused_experts(std::move(tensors), source) : tensors;
}

void set_templates(const io::ChatTemplates& templates, std::vector<text::TokenizerFile>& files) {
  const bool is_one = templates.size() == 1 && templates.contains("default");
  auto found = std::find_if(files.begin(), files.end(), [](const text::TokenizerFile& file) {
    return file.name == "tokenizer_config.json";
  });
  if (is_one) files.push_back({"chat_template.jinja", templates.at("default")});
  if (found == files.end() && (is_one || templates.empty())) return;
  // push_back may have moved the files.
  found = std::find_if(files.begin(), files.end(), [](const text::TokenizerFile& file) {
    return file.name == "tokenizer_config.json";
  });
  io::Json config =
      found == files.end() ? io::Json::object() : io::parse_json(found->content, found->name);
  config.erase("chat_template");
  if (!is_one && !templates.empty()) {
    io::Json list = io::Json::array();
    for (const auto& [name, source] : templates) {
      if (!is_valid_utf8(name) || !is_valid_utf8(source)) {  // as JSON is
        fail(ErrorKind::kMalformed, "chat template ", quoted(name), ": the ",
             is_valid_utf8(name) ? "template" : "name", " is not valid UTF-8");
      }
      list.push_back({{"name", name}, {"template", source}});
    }
    config["chat_template"] = std::move(list);
  }
  if (found == files.end()) {
    files.push_back({"tokenizer_config.json", json_text(config)});
  } else {
    found->content = json_text(config);
  }
}

int write_directory(const Source& source, const ConvertOptions& options) {
  const io::ModelFiles& files = source.files;
  const uint64_t most = shard_bytes(options).value_or(kDefaultShardBytes);
  if (!source.parameters) checked_parameters(files, nullptr);
  const GgufFileType& type = requested_type(options);
  io::Json config;
  Files texts = files.format == io::ModelFormat::kHuggingFace
                    ? files_of_directory(files, config)
                    : files_of_one(files, options.tokenizer.value_or(""), config);
  with_context(io::place_of(files.path), [&] { set_templates(files.chat_templates, texts); });
  set_dtype(std::string(type.name), config);
  const std::vector<SourceTensor> tensors = directory_tensors(source);
  TensorConversion conversion(source, tensors, options);
  io::SafetensorsWriter writer(io::SafetensorsWriter::Metadata{{"format", "pt"}});
  std::vector<DType> dtypes;
  for (const SourceTensor& tensor : tensors) {
    dtypes.push_back(fixed_type(tensor).value_or(type.matrices));
    writer.add(tensor.target, dtypes.back(), tensor.shape(),
               conversion.maker(tensor, dtypes.back()));
  }
  if (options.dry_run) {
    tell_dry_run(options, writer.bytes(), dtypes, writer.shards(most));
    return 0;
  }
  OutputDirectory output(*options.output, options.force);
  return conversion.run([&] {
    output.publish([&](const std::string& directory) {
      writer.write_model(directory, most);
      for (const text::TokenizerFile& file : texts) {
        io::write_file_atomically(directory + "/" + file.name, file.content);
      }
      io::write_file_atomically(directory + "/config.json", json_text(config));
    });
  });
}

}  // namespace lumen::runtime
