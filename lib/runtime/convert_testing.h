// What the tests of lumen-convert share: models to convert, and what comes out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/model_files.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/language_model.h"
#include "lib/text/train/train_tokenizer.h"
#include "models/model.h"

namespace lumen::runtime {

inline constexpr std::string_view kTrainingText =
    "The cat and the dog and the bird. What does the cat say to the other 12 birds?\n"
    "The story of the beginning, the end and the other end: the birds say what the cats say.\n";
inline constexpr const char* kTurnTemplate =
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// A Hugging Face directory with random weights and a tokenizer trained on kTrainingText.
inline std::string model_directory(const models::ModelDef& def, io::Json config,
                                   text::TokenizerKind kind) {
  const std::string directory = lumen::testing::temporary_directory();
  text::TokenizerTraining options;
  options.kind = kind;
  options.vocab_size = 300;
  options.special_tokens = {"<|im_start|>", "<|im_end|>"};
  options.bos = "<|im_start|>";
  options.eos = "<|im_end|>";
  options.chat_template = kTurnTemplate;
  text::train_tokenizer({kTrainingText}, options, directory);
  config["vocab_size"] = 320;
  config["rope_interleaved"] = false;
  const auto parameters = nn::Parameters::random(3);
  const auto model = def.make(config, parameters);
  io::write_safetensors(directory + "/model.safetensors", parameters.state_dict());
  io::write_file_atomically(directory + "/config.json", config.dump());
  return directory;
}

// A model directory as a GGUF file of float32.
inline std::string converted(const std::string& directory) {
  ConvertOptions options;
  options.model = directory;
  options.output = lumen::testing::temporary_directory() + "/model.gguf";
  options.type = "f32";
  REQUIRE(convert(options) == 0);
  return *options.output;
}

// Of the last of 40 tokens, with an adapter or without.
inline std::vector<float> logits(const std::string& path, const std::string& adapter = "") {
  LoadOptions options;
  options.lora = adapter;
  options.kv_type = DType::kF32;
  options.threads = 1;
  const auto model = LanguageModel::load(io::open_model(path), options);
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * i % 300);
  const Array array = model->logits(ids);
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

// `model` converted with `options` into a new directory.
inline std::string converted_directory(
    const std::string& model, const std::string& type,
    const std::optional<std::string>& shard_size = std::nullopt) {
  ConvertOptions options;
  options.model = model;
  options.output = lumen::testing::temporary_directory() + "/hf";
  options.type = type;
  options.shard_size = shard_size;
  REQUIRE(convert(options) == 0);
  return *options.output;
}

}  // namespace lumen::runtime
