// For tests of what training leaves behind of families of models.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/training/text_recipes.h"
#include "models/model.h"

namespace lumen::runtime::testing {

// A directory with a small byte-level tokenizer and random weights for a model of this config.
inline std::string random_base(const io::Json& config) {
  const std::string base = lumen::testing::temporary_directory();
  const auto small = text_recipe(kLlama, {"tokenizer.type=byte_bpe", "tokenizer.vocab_size=300"});
  make_task(small, {.threads = 1})->export_model(base);
  io::write_file_atomically(base + "/config.json", config.dump());
  const auto parameters = nn::Parameters::random(5);
  models::find_model_def(config).make(io::classic_config(config, true), parameters);
  io::write_safetensors(base + "/model.safetensors", parameters.state_dict(), {});
  return base;
}

// A mixture of experts; a layer of the Qwen3-MoE has none.
inline io::Json mixture_config(const char* type) {
  return {{"model_type", type},          {"hidden_size", 32},      {"intermediate_size", 24},
          {"moe_intermediate_size", 16}, {"num_experts", 3},       {"num_local_experts", 3},
          {"num_experts_per_tok", 2},    {"num_hidden_layers", 2}, {"num_attention_heads", 2},
          {"num_key_value_heads", 1},    {"head_dim", 16},         {"vocab_size", 300},
          {"mlp_only_layers", {0}},      {"sliding_window", 8},    {"max_position_embeddings", 64},
          {"tie_word_embeddings", false}};
}

// Of some tokens, by a model, with an adapter if one is named.
inline std::vector<float> exported_logits(const std::string& model, const std::string& lora = "") {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
  LoadOptions options;
  options.kv_type = DType::kF32;
  if (!lora.empty()) options.lora = {lora};
  const Array all = LanguageModel::load(io::open_model(model), options)->logits(ids);
  return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
}

inline void check_same_logits(const std::vector<float>& a, const std::vector<float>& b) {
  CHECK(std::ranges::equal(a, b, [](float x, float y) { return x == Approx(y).margin(1e-4); }));
}

// What a test looks for in what a model becomes that is trained on, `from_gguf` or a directory: in
// an adapter, in the directory `place`, and in a whole model's tensors.
struct TrainedOn {
  std::vector<std::string> settings = {};  // of the recipe with additions
  std::function<void(const NamedArrays& adapter, const std::string& place, bool from_gguf)> adapter;
  std::function<void(const NamedArrays& tensors, const std::string& place)> whole;
  bool fits_both = true;  // false: an adapter trained from the directory does not fit the GGUF
                          // file, and from that none can be trained
  bool in_gguf = true;    // false: there are no such files
};

// Trains the model `base` from its directory and from the GGUF file that it becomes, by additions
// and whole: adapters fit both and give what they give merged, and a whole result what it gives in
// GGUF.
inline void check_training_on(const std::string& base, const TrainedOn& checks) {
  const std::string gguf = base + "/model.gguf";
  const auto to_gguf = [](const std::string& directory) {
    ConvertOptions options;
    options.model = directory;
    options.output = directory + "/model.gguf";
    options.type = "f32";
    REQUIRE(convert(options) == 0);
  };
  if (checks.in_gguf) to_gguf(base);
  for (const std::string& from : {base, gguf}) {
    INFO(from);
    if (from == gguf && !checks.in_gguf) break;
    std::vector<float> merged;
    for (const bool merge : {true, false}) {
      const std::string place = lumen::testing::temporary_directory();
      std::vector<std::string> settings = checks.settings;
      settings.insert(settings.end(), {str("export.merge_lora=", merge), "data.on_too_long=split"});
      const auto recipe =
          read_recipe({"l.toml", text_recipe(kLlama).directory, lora_recipe(from, "")}, settings);
      if (from == gguf && !merge && !checks.fits_both) {
        CHECK(lumen::testing::contains(
            lumen::testing::refusal(ErrorKind::kUnsupported,
                                    [&] { make_task(recipe, {.threads = 1}); }),
            "name the directory as base"));
        continue;
      }
      const auto task = make_task(recipe, {.threads = 1});
      losses(*task, 3);
      task->export_model(place);
      if (merge) {
        merged = exported_logits(place);
        CHECK(merged != exported_logits(base));
        continue;
      }
      checks.adapter(io::read_safetensors(place + "/adapter_model.safetensors")->arrays(), place,
                     from == gguf);
      check_same_logits(exported_logits(base, place), merged);
      if (checks.fits_both && checks.in_gguf) {
        check_same_logits(exported_logits(gguf, place), merged);
      }
    }
    const std::string whole = lumen::testing::temporary_directory();
    const auto task = make_task(whole_recipe(from, {"train.batch_size=4"}), {.threads = 1});
    const auto before = losses(*task, 8);
    CHECK(before.back() < before.front());
    task->export_model(whole);
    checks.whole(io::read_safetensors(whole + "/model.safetensors")->arrays(), whole);
    if (!checks.in_gguf) continue;
    to_gguf(whole);
    check_same_logits(exported_logits(whole + "/model.gguf"), exported_logits(whole));
  }
}

}  // namespace lumen::runtime::testing
