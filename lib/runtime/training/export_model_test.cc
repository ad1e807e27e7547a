// The result of a run is a model that opens, as its recipe and its base say.
#include "lib/runtime/training/export_model.h"

#include <filesystem>
#include <fstream>

#include "lib/io/atomic_file.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/parameters.h"
#include "lib/nn/rope.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/tool_process.h"
#include "lib/runtime/training/text_recipes.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::kGpt2;
using testing::kLlama;
using testing::lora_recipe;
using testing::losses;
using testing::text_recipe;
using testing::whole_recipe;

TEST_CASE("a GPT-2 with an output layer of its own trains and is opened") {
  const std::string place = lumen::testing::temporary_directory();
  const auto task = make_task(text_recipe(kGpt2, {"model.tie_embeddings=false"}), {.threads = 1});
  losses(*task, 3);
  const NamedArrays trained = task->state().weights;
  const auto* head = trained.at("lm_head.weight").as<float>().data();
  CHECK(head[0] != trained.at("transformer.wte.weight").as<float>()[0]);
  task->export_model(place);
  CHECK(io::read_json(place + "/config.json")["tie_word_embeddings"] == false);
  const std::vector<int32_t> ids = {3, 1, 4};
  LoadOptions options;
  options.kv_type = DType::kF32;
  const auto logits = [&] {
    const Array all = LanguageModel::load(io::open_model(place), options)->logits(ids);
    return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
  };
  const std::vector<float> before = logits();
  NamedArrays changed = io::read_safetensors(place + "/model.safetensors")->arrays();
  changed["lm_head.weight"] = nn::float32_copy(changed["transformer.wte.weight"]);
  for (auto& [name, array] : changed) array = nn::float32_copy(array);
  io::write_safetensors(place + "/model.safetensors", changed);
  CHECK(logits() != before);
}

TEST_CASE("start and end tokens are as the recipe says, in the result too") {
  const auto exported = [](const std::vector<std::string>& overrides) {
    const std::string place = lumen::testing::temporary_directory();
    make_task(text_recipe(kLlama, overrides), {.threads = 1})->export_model(place);
    return place;
  };
  const auto config = [](const std::string& place) {
    return io::read_json(place + "/tokenizer_config.json");
  };
  const std::string with = exported({"tokenizer.add_bos=true", "tokenizer.add_eos=false"});
  CHECK(config(with)["add_bos_token"] == true);
  CHECK(config(with)["add_eos_token"] == false);
  CHECK(text::load_tokenizer(with)->adds_bos());
  // What is not said would be Llama's own 1, 2 for transformers.
  for (const char* file : {"/config.json", "/generation_config.json"}) {
    const io::Json ids = io::read_json(exported({}) + file);
    CHECK(ids["bos_token_id"].is_null());
    CHECK(ids.contains("bos_token_id"));
    CHECK(io::read_json(with + file)["bos_token_id"].is_number());
  }
  // A tokenizer of others, with what it says itself and with the opposite.
  const auto fixed = [&](const std::string& from, const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {"tokenizer.path=" + from};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return exported(overrides);
  };
  CHECK(text::load_tokenizer(fixed(with, {}))->adds_bos());
  const std::string without = fixed(with, {"tokenizer.add_bos=false"});
  CHECK_FALSE(text::load_tokenizer(without)->adds_bos());
  CHECK(config(without)["add_bos_token"] == false);
  const auto again = text::load_tokenizer(fixed(without, {"tokenizer.add_bos=true"}));
  CHECK(again->adds_bos());
  CHECK(again->encode("cat").size() == 4);
  CHECK(
      contains(refusal(ErrorKind::kUsage, [&] { fixed(exported({}), {"tokenizer.add_bos=true"}); }),
               "names no bos_token"));
}

TEST_CASE("a tokenizer in a file of any name stands in the result under the name it is found by") {
  const std::string place = lumen::testing::temporary_directory();
  const auto exported = [](const std::vector<std::string>& overrides) {
    const std::string result = lumen::testing::temporary_directory();
    make_task(text_recipe(kLlama, overrides), {.threads = 1})->export_model(result);
    return result;
  };
  const std::string own = exported({"tokenizer.type=bpe", "tokenizer.vocab_size=300"});
  const std::string others = exported({"tokenizer.type=char"});
  // Beside others' files, which are not meant.
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy(others + "/" + name, place + "/" + name);
  }
  for (const auto& [from, to] :
       {std::pair("tokenizer.json", "words.json"), std::pair("tokenizer.model", "tok300.model")}) {
    CAPTURE(to);
    std::filesystem::copy(str(own, "/", from), place + "/" + to);
    const std::string path = place + "/" + to, result = exported({"tokenizer.path=" + path});
    const auto ids = text::load_tokenizer(path)->encode("the cat sat");
    CHECK(ids.size() < 6);  // no characters
    CHECK(text::load_tokenizer(result)->encode("the cat sat") == ids);
    CHECK(std::filesystem::exists(result + "/tokenizer.json") ==
          (std::string(from) == "tokenizer.json"));
  }
  // Token ids take that of a GGUF base along, too.
  std::string ids;
  for (int i = 0; i < 60; ++i) ids += std::string(1, static_cast<char>(3 + i)) + '\0';
  std::ofstream(place + "/ids.bin") << ids;
  const Recipe recipe = read_recipe(
      {"r.toml", place + "/",
       "[model]\npath = \"" + testing::random_model() +
           "\"\n[[data.train]]\npath = \"ids.bin\"\n[data]\nmax_length = 8\n[train]\nsteps = "
           "1\nbatch_size = 2\n"});
  make_task(recipe, {.threads = 1})->export_model(place);
  CHECK(text::load_tokenizer(place)->vocab_size() ==
        text::load_tokenizer(testing::random_model())->vocab_size());
}

TEST_CASE("LoRA in the last layers only: the adapter says in which, and is complete") {
  const std::string base = lumen::testing::temporary_directory(),
                    adapter = lumen::testing::temporary_directory();
  const Recipe first =
      text_recipe("[model]\ntype = \"llama\"\nlayers = 3\ndim = 32\nheads = 2\ncontext = 32\n");
  make_task(first, {.threads = 1})->export_model(base);
  const Recipe recipe =
      read_recipe({"l.toml", first.directory, lora_recipe(base, "")}, {"lora.layers=2"});
  make_task(recipe, {.threads = 1})->export_model(adapter);
  io::Json config = io::read_json(adapter + "/adapter_config.json");
  CHECK(config["layers_to_transform"] == io::Json::array({1, 2}));
  CHECK(config["base_model_name_or_path"] == base);
  LoadOptions options;
  options.lora = {adapter};
  CHECK(LanguageModel::load(io::open_model(base), options)->vocab() > 0);
  // A run goes on with the base that it began with.
  const auto base_of = [&] { return make_task(recipe, {.threads = 1})->summary().base_sha256; };
  const std::string original = base_of();
  CHECK(base_of() == original);
  const std::string second = lumen::testing::temporary_directory();
  make_task(read_recipe({"o.toml", first.directory, to_toml(first)}, {"seed=7"}), {.threads = 1})
      ->export_model(second);
  std::filesystem::copy_file(second + "/model.safetensors", base + "/model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(base_of() != original);
  // A base beside the recipe is named so that it is found from elsewhere.
  const std::string beside = first.directory + "lora-base";
  std::filesystem::create_directory(beside);
  make_task(first, {.threads = 1})->export_model(beside);
  const std::string other = lumen::testing::temporary_directory();
  make_task(read_recipe({"l.toml", first.directory, lora_recipe("lora-base")}), {.threads = 1})
      ->export_model(other);
  CHECK(io::read_json(other + "/adapter_config.json")["base_model_name_or_path"] == beside);
  config.erase("layers_to_transform");
  io::write_file_atomically(adapter + "/adapter_config.json", config.dump());
  const std::string error = lumen::testing::refusal(
      ErrorKind::kMalformed, [&] { LanguageModel::load(io::open_model(base), options); });
  CHECK(lumen::testing::contains(error, "has no 'model.layers.0."));
}

TEST_CASE(
    "LoRA on GPT-2, whose weights lie [in, out]: adapter, merged model and bare names agree") {
  const std::string base = lumen::testing::temporary_directory();
  const Recipe first = text_recipe(kGpt2);
  make_task(first, {.threads = 1})->export_model(base);
  const auto read = [&](const std::string& more, const std::vector<std::string>& overrides) {
    return read_recipe({"l.toml", first.directory, lora_recipe(base, more)}, overrides);
  };
  const auto logits = [](const std::string& model, const std::string& lora) {
    LoadOptions options;
    if (!lora.empty()) options.lora = {lora};
    options.kv_type = DType::kF32;
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
    const Array all = LanguageModel::load(io::open_model(model), options)->logits(ids);
    return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
  };
  const std::string adapter = lumen::testing::temporary_directory(),
                    merged = lumen::testing::temporary_directory();
  for (const bool merge : {false, true}) {
    const auto task = make_task(read("", merge ? std::vector<std::string>{"export.merge_lora=true"}
                                               : std::vector<std::string>{}),
                                {.threads = 1});
    losses(*task, 4);
    task->export_model(merge ? merged : adapter);
  }
  const io::Json config = io::read_json(adapter + "/adapter_config.json");
  CHECK(config["target_modules"] == io::Json({"c_attn", "c_fc", "c_proj"}));
  CHECK(config["fan_in_fan_out"] == true);
  CHECK_FALSE(config.contains("layers_to_transform"));
  const std::vector<float> with_adapter = logits(base, adapter), of_merged = logits(merged, ""),
                           before = logits(base, "");
  for (size_t i = 0; i < before.size(); ++i) CHECK(with_adapter[i] == Approx(of_merged[i]));
  CHECK_FALSE(with_adapter[0] == Approx(before[0]));

  RunOptions run;
  run.model = base;
  run.lora = {adapter};
  const std::string own = "{{ messages[0]['content'] }}:";
  std::ofstream(adapter + "/chat_template.jinja") << own;
  CHECK(load_session(run).format.chat_template()->source() == own);
  run.lora.clear();
  CHECK(load_session(run).format.chat_template()->source() != own);

  NamedArrays bare;
  const std::string file = base + "/model.safetensors";
  for (const auto& [name, array] : io::read_safetensors(file)->arrays()) {
    bare[name.substr(std::string("transformer.").size())] = nn::float32_copy(array);
  }
  bare["h.0.attn.bias"] = Array::zeros(DType::kF32, {1, 1, 32, 32});  // a causal mask
  io::write_safetensors(file, bare);
  CHECK(logits(base, adapter) == with_adapter);

  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] { make_task(read("targets = [\"q_proj\"]\n", {}), {.threads = 1}); }),
                 "called 'q_proj'; there are c_attn, c_fc, c_proj"));
  const auto task = [&](const std::string& targets) {
    const std::string place = lumen::testing::temporary_directory();
    make_task(read(targets, {}), {.threads = 1})->export_model(place);
    return io::read_json(place + "/adapter_config.json")["target_modules"];
  };
  CHECK(task("targets = \"all-linear\"\n") == task(""));
  CHECK(contains(
      refusal(ErrorKind::kMalformed, [&] { read("targets = [\"all-linear\", \"c_fc\"]\n", {}); }),
      "lora.targets: all-linear, which means all of them, stands alone"));
}

TEST_CASE("a model that is trained on keeps its end tokens and settings, and says its own type") {
  const std::string base = lumen::testing::temporary_directory(),
                    place = lumen::testing::temporary_directory();
  make_task(text_recipe(kLlama), {.threads = 1})->export_model(base);
  io::Json config = io::read_json(base + "/config.json");
  config["dtype"] = "bfloat16";
  config["torch_dtype"] = nullptr;
  config["eos_token_id"] = {5, 6};
  config["bos_token_id"] = 4;
  io::write_file_atomically(base + "/config.json", config.dump());
  const io::Json generation = {{"_from_model_config", true},
                               {"temperature", 0.5},
                               {"top_k", 3},
                               {"bos_token_id", 4},
                               {"eos_token_id", {5, 6}}};
  io::write_file_atomically(base + "/generation_config.json", generation.dump());
  const auto own = text::load_tokenizer(base)->special_ids().eos;
  REQUIRE(own);
  for (const char* dtype : {"f32", "f16"}) {
    make_task(whole_recipe(base, {str("export.dtype=", dtype)}), {.threads = 1})
        ->export_model(place);
    const io::Json result = io::read_json(place + "/config.json");
    CHECK(result["dtype"] == (std::string(dtype) == "f32" ? "float32" : "float16"));
    CHECK(result["torch_dtype"] == result["dtype"]);
    CHECK(result["eos_token_id"] == io::Json({5, 6}));
    const io::Json kept = io::read_json(place + "/generation_config.json");
    CHECK(kept["temperature"] == 0.5);
    CHECK(kept["top_k"] == 3);
    CHECK(kept["bos_token_id"] == 4);
    CHECK(kept["eos_token_id"] == io::Json({5, 6, *own}));
    CHECK_FALSE(kept.contains("_from_model_config"));
  }
  // With another tokenizer they would be other tokens.
  make_task(whole_recipe(base, {"tokenizer.path=" + base + "/tokenizer.json"}), {.threads = 1})
      ->export_model(place);
  CHECK(io::read_json(place + "/config.json")["eos_token_id"] == *own);
  CHECK_FALSE(io::read_json(place + "/generation_config.json").contains("top_k"));
}

TEST_CASE("a GGUF vocabulary that the result cannot have as files is told of") {
  LUMEN_SHARED_DATA(base, "models/gguf-derived/babyllama-tok105-q8_0.gguf");
  const auto notices = [&](const Recipe& recipe) {
    return make_task(recipe, {.threads = 1})->summary().notices;
  };
  const auto merged = [&](bool merge) {
    return read_recipe({"l.toml", text_recipe(kLlama).directory, lora_recipe(base, "")},
                       {str("export.merge_lora=", merge), "data.on_too_long=split"});
  };
  for (const Recipe& recipe : {whole_recipe(base), merged(true)}) {
    const auto told = notices(recipe);
    REQUIRE(told.size() == 1);
    CHECK(contains(told[0], "lumen-run will need --tokenizer "));
    CHECK(told[0].ends_with("/gguf-derived/babyllama-tok105-q8_0.gguf"));
  }
  CHECK(notices(merged(false)).empty());  // the base has it
}

TEST_CASE("what only GGUF says of positions and windows stands in config.json of the result") {
  const std::string base = lumen::testing::temporary_directory(),
                    place = lumen::testing::temporary_directory();
  make_task(text_recipe(kLlama, {"tokenizer.type=byte_bpe", "tokenizer.vocab_size=300"}),
            {.threads = 1})
      ->export_model(base);
  io::Json config = io::read_json(base + "/config.json");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 16}};
  config["model_type"] = "mistral";
  config["sliding_window"] = 3;
  io::write_file_atomically(base + "/config.json", config.dump());
  ConvertOptions convert_options;
  convert_options.model = base;
  convert_options.output = base + "/model.gguf";
  convert_options.type = "f32";
  REQUIRE(convert(convert_options) == 0);
  const auto logits = [](const std::string& model) {
    LoadOptions options;
    options.kv_type = DType::kF32;
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
    const Array all = LanguageModel::load(io::open_model(model), options)->logits(ids);
    return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
  };
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](float x, float y) { return x == Approx(y).margin(1e-4); });
  };
  CHECK(same(logits(base + "/model.gguf"), logits(base)));
  for (const bool merge : {false, true}) {
    const auto task =
        make_task(merge ? read_recipe({"l.toml", text_recipe(kLlama).directory,
                                       lora_recipe(base + "/model.gguf", "")},
                                      {"export.merge_lora=true", "data.on_too_long=split"})
                        : whole_recipe(base + "/model.gguf"),
                  {.threads = 1});
    losses(*task, 3);
    task->export_model(place);
    const io::Json result = io::read_json(place + "/config.json");
    CHECK(result["rope_scaling"] == config["rope_scaling"]);
    CHECK(result["model_type"] == "mistral");
    CHECK(result["sliding_window"] == 3);
    const NamedArrays tensors = io::read_safetensors(place + "/model.safetensors")->arrays();
    CHECK_FALSE(tensors.contains("rope_freqs.weight"));
    // The tensor itself is not trained, nor made smaller by the weight decay.
    const auto weights = task->state().weights;
    if (const auto divisors = weights.find("rope_freqs.weight"); divisors != weights.end()) {
      CHECK(divisors->second.as<float>()[0] == nn::rope_divisors(config, 16)[0]);
    }
  }
}

}  // namespace
}  // namespace lumen::runtime
