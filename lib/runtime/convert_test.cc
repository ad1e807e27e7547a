// lumen-convert: what comes out computes and talks as what went in.
#include "lib/runtime/convert.h"

#include <cmath>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/language_model.h"
#include "lib/runtime/prompt_format.h"
#include "lib/text/train/train_tokenizer.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

constexpr std::string_view kTrainingText =
    "The cat and the dog and the bird. What does the cat say to the other 12 birds?\n"
    "The story of the beginning, the end and the other end: the birds say what the cats say.\n";
constexpr const char* kTurnTemplate =
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// A Hugging Face directory with random weights and a tokenizer trained on kTrainingText.
std::string model_directory(const models::ModelDef& def, io::Json config,
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

std::string converted(const std::string& directory) {
  ConvertOptions options;
  options.model = directory;
  options.output = directory + "/model.gguf";
  options.type = "f32";
  REQUIRE(convert(options) == 0);
  return *options.output;
}

std::vector<float> logits(const std::string& path) {
  LoadOptions options;
  options.kv_type = DType::kF32;
  options.threads = 1;
  const auto model = LanguageModel::load(io::open_model(path), options);
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * i % 300);
  const Array array = model->logits(ids);
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

void check_same(const std::string& directory) {
  const std::string gguf = converted(directory);
  const std::vector<float> want = logits(directory), got = logits(gguf);
  REQUIRE(got.size() == want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(got[i] - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  CHECK(std::sqrt(difference / norm) < 1e-5);
  const PromptFormat a = PromptFormat::load(io::open_model(directory), "");
  const PromptFormat b = PromptFormat::load(io::open_model(gguf), "");
  const std::string prompt = a.render({{"user", "What does the cat say? 12"}});
  CHECK(b.render({{"user", "What does the cat say? 12"}}) == prompt);
  CHECK(b.encode(prompt) == a.encode(prompt));
  CHECK(b.end_token_ids() == a.end_token_ids());
}

}  // namespace

TEST_CASE("models keep their logits, tokens and templates in GGUF") {
  size_t converted_models = 0;
  for (const models::ModelDef* def : models::model_list()) {
    if (def->name != "llama" && def->name != "qwen2" && def->name != "qwen3") continue;
    for (const io::Json& config : def->tiny_configs()) {
      INFO(config.dump());
      const bool pieces = ++converted_models % 2 == 0;
      check_same(model_directory(
          *def, config,
          pieces ? text::TokenizerKind::kSentencePieceBpe : text::TokenizerKind::kByteLevelBpe));
      for (const io::Json& scaling : {io::Json({{"rope_type", "linear"}, {"factor", 2.0}}),
                                      io::Json({{"rope_type", "yarn"},
                                                {"factor", 4.0},
                                                {"attention_factor", 1.25},
                                                {"original_max_position_embeddings", 16}})}) {
        io::Json scaled = config;
        scaled["rope_scaling"] = scaling;
        check_same(model_directory(*def, scaled, text::TokenizerKind::kByteLevelBpe));
      }
    }
  }
  CHECK(converted_models > 5);
}

TEST_CASE("what lumen-run would refuse is not converted") {
  const models::ModelDef& llama = models::find_model_def(io::Json({{"model_type", "llama"}}));
  const std::string directory =
      model_directory(llama, llama.tiny_configs()[0], text::TokenizerKind::kByteLevelBpe);
  const std::string weights = directory + "/model.safetensors";
  const NamedArrays good = io::read_safetensors(weights)->arrays();
  const std::string output = directory + "/model.gguf";
  const auto refused = [&](const NamedArrays& tensors, ErrorKind kind, const std::string& type) {
    io::write_safetensors(weights, tensors);
    ConvertOptions options;
    options.model = directory;
    options.output = output;
    options.type = type;
    const std::string message = lumen::testing::refusal(kind, [&] { convert(options); });
    CHECK_FALSE(io::is_regular_file(output));
    return message;
  };
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const auto with_number = [&](float number) {
    NamedArrays tensors = good;
    Array& array = tensors.at(name);
    array = nn::float32_copy(array);
    array.as_mutable<float>()[5] = number;
    return tensors;
  };
  CHECK(contains(refused(with_number(1e6f), ErrorKind::kMalformed, "f16"),
                 name + "' has numbers too large for f16: use --type bf16 or f32"));
  CHECK(contains(refused(with_number(NAN), ErrorKind::kMalformed, "bf16"), "NaN or infinite"));
  NamedArrays fewer = good;
  fewer.erase(name);
  CHECK(contains(refused(fewer, ErrorKind::kMalformed, "f32"), name + "' is missing"));

  io::Json config = io::read_json(directory + "/config.json");
  config["hidden_act"] = "gelu";
  io::write_file_atomically(directory + "/config.json", config.dump());
  CHECK(contains(refused(good, ErrorKind::kUnsupported, "f32"), "hidden_act 'gelu'"));
}

TEST_CASE("a model of the shared data keeps its logits in GGUF") {
  LUMEN_SHARED_DATA(models, "models");
  for (const char* name : {"/hf/stories260K", "/synthetic/llama3-rope"}) {
    INFO(name);
    const std::string gguf = lumen::testing::temporary_directory() + "/model.gguf";
    ConvertOptions options;
    options.model = models + name;
    options.output = gguf;
    options.type = "f32";
    REQUIRE(convert(options) == 0);
    const std::vector<float> want = logits(models + name), got = logits(gguf);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) < 2e-4);
  }
}

}  // namespace lumen::runtime
