// The same as export_families_test.cc, of mixtures of experts.
#include "lib/io/safetensors.h"
#include "lib/runtime/training/trained_families.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::check_same_logits;
using testing::exported_logits;
using testing::kLlama;
using testing::lora_recipe;
using testing::losses;
using testing::mixture_config;
using testing::random_base;
using testing::text_recipe;
using testing::trained;
using testing::whole_recipe;

TEST_CASE("additions to experts are trained and run, and change nothing at first") {
  const std::pair<const char*, const char*> kinds[] = {
      {"mixtral", "\"w1\", \"w2\", \"w3\""},
      {"minimax_m2", "\"w1\", \"w2\", \"w3\""},
      {"qwen3_moe", "\"gate_proj\", \"up_proj\", \"down_proj\", \"q_proj\""}};
  for (const auto& kind : kinds) {
    const char *const type = kind.first, *const targets = kind.second;
    INFO(type);
    const std::string base = random_base(mixture_config(type)),
                      place = lumen::testing::temporary_directory(),
                      whole = lumen::testing::temporary_directory();
    const auto recipe = [&](const std::string& names, std::vector<std::string> overrides = {}) {
      overrides.push_back("data.on_too_long=split");
      return read_recipe({"l.toml", text_recipe(kLlama).directory,
                          lora_recipe(base, "targets = [" + names + "]\n")},
                         overrides);
    };
    const auto task = make_task(recipe(targets), {.threads = 2});
    const auto frozen = make_task(whole_recipe(base, {"train.batch_size=4"}), {.threads = 1});
    CHECK(task->step(0.02).loss == Approx(frozen->step(0.02).loss).epsilon(1e-6));
    losses(*task, 3);
    task->export_model(place);
    const NamedArrays adapter =
        io::read_safetensors(place + "/adapter_model.safetensors")->arrays();
    const bool mixtral = type != std::string("qwen3_moe");
    CHECK(adapter.contains(str("base_model.model.model.layers.1.",
                               mixtral ? "block_sparse_moe.experts.2.w3" : "mlp.experts.2.up_proj",
                               ".lora_B.weight")));
    const io::Json config = io::read_json(place + "/adapter_config.json");
    CHECK(config.contains("target_parameters") == !mixtral);  // layer 0 of Qwen3-MoE
    if (!mixtral) {
      CHECK(config["target_parameters"][0] == "model.layers.0.mlp.down_proj.weight");
      CHECK(config["target_parameters"].size() == 3);
    }
    const auto merged = make_task(recipe(targets, {"export.merge_lora=true"}), {.threads = 1});
    merged->restore(task->state());
    merged->export_model(whole);
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
    const auto logits = [&](const std::string& model, const std::string& lora) {
      LoadOptions options;
      options.kv_type = DType::kF32;
      if (!lora.empty()) options.lora = {lora};
      return LanguageModel::load(io::open_model(model), options)->logits(ids);
    };
    const Array got = logits(base, place), want = logits(whole, ""), before = logits(base, "");
    double change = 0;
    for (size_t i = 0; i < want.as<float>().size(); ++i) {
      CHECK(got.as<float>()[i] == Approx(want.as<float>()[i]).margin(1e-5));
      change = std::max<double>(change, std::abs(got.as<float>()[i] - before.as<float>()[i]));
    }
    CHECK(change > 1e-3);

    const char* const half = mixtral ? "\"w1\"" : "\"up_proj\"";
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { make_task(recipe(half), {.threads = 1}); }),
                   mixtral ? "to w1 and w3 together only; name w3 too" : "name gate_proj too"));
    CHECK(
        contains(refusal(ErrorKind::kUsage,
                         [&] { make_task(recipe(targets, {"lora.dropout=0.1"}), {.threads = 1}); }),
                 "additions to experts have no dropout"));
  }
}

TEST_CASE("by the names of its matrices the shared expert of Qwen2-MoE is meant, and no other") {
  io::Json mixture = mixture_config("qwen2_moe");
  mixture["shared_expert_intermediate_size"] = 20;
  const std::string base = random_base(mixture), place = lumen::testing::temporary_directory();
  for (const char* targets : {"", "targets = [\"gate_proj\", \"up_proj\"]\n"}) {
    const auto recipe =
        read_recipe({"l.toml", text_recipe(kLlama).directory, lora_recipe(base, targets)},
                    {"data.on_too_long=split"});
    make_task(recipe, {.threads = 1})->export_model(place);
    const NamedArrays adapter =
        io::read_safetensors(place + "/adapter_model.safetensors")->arrays();
    CHECK(adapter.contains(
        "base_model.model.model.layers.1.mlp.shared_expert.up_proj.lora_A.weight"));
    for (const auto& [name, array] : adapter) CHECK(name.find(".experts.") == name.npos);
    LoadOptions options;
    options.lora = {place};
    const std::vector<int32_t> ids = {3, 1, 4};
    CHECK_NOTHROW(LanguageModel::load(io::open_model(base), options)->logits(ids));
  }
}

TEST_CASE("mixtures with corrections of scores are trained, whole and by additions") {
  struct Case {
    const char *type, *targets, *mlp, *expert, *correction;
    io::Json keys;
  };
  const Case cases[] = {
      {"lfm2_moe",
       R"("w1", "q_proj", "in_proj")",
       "feed_forward.w1",
       "feed_forward.experts.2.w3",
       "feed_forward.expert_bias",
       {{"layer_types", {"conv", "full_attention"}}, {"num_dense_layers", 1}}},
      {"ernie4_5_moe",
       R"("up_proj", "q_proj")",
       "mlp.up_proj",
       "mlp.experts.2.up_proj",
       "mlp.moe_statics.e_score_correction_bias",
       {{"moe_num_experts", 3}, {"moe_k", 2}}},
      {"dots1",
       R"("up_proj", "q_proj")",
       "mlp.up_proj",
       "mlp.experts.2.up_proj",
       "mlp.gate.e_score_correction_bias",
       {{"n_routed_experts", 3}, {"n_shared_experts", 1}, {"first_k_dense_replace", 1}}},
      {"bailing_moe_v2",
       R"("up_proj", "query_key_value")",
       "mlp.up_proj",
       "mlp.experts.2.up_proj",
       "mlp.gate.expert_bias",
       {{"n_group", 1}, {"topk_group", 1}}},
      {"exaone_moe",
       R"("up_proj", "q_proj")",
       "mlp.up_proj",
       "mlp.experts.2.up_proj",
       "mlp.e_score_correction_bias",
       {{"first_k_dense_replace", 1}}},
      {"glm4_moe",
       R"("up_proj", "q_proj")",
       "mlp.up_proj",
       "mlp.experts.2.up_proj",
       "mlp.gate.e_score_correction_bias",
       {{"n_routed_experts", 3}}}};
  for (const Case& one : cases) {
    INFO(one.type);
    io::Json config = mixture_config(one.type);
    config.update(one.keys);
    for (const char* key : {"num_local_experts", "mlp_only_layers", "sliding_window"}) {
      config.erase(key);
    }
    // Whose experts are modules of their own.
    const bool lfm = one.type == std::string("lfm2_moe"), ling = one.type[0] == 'b';
    const std::string base = random_base(config);
    std::vector<float> merged;
    for (const bool merge : {true, false}) {
      const std::string place = lumen::testing::temporary_directory();
      const auto recipe = read_recipe({"l.toml", text_recipe(kLlama).directory,
                                       lora_recipe(base, str("targets = [", one.targets, "]\n"))},
                                      {str("export.merge_lora=", merge), "data.on_too_long=split",
                                       "train.router_aux_loss_coef=0.1"});
      const auto task = make_task(recipe, {.threads = 1});
      losses(*task, 3);
      task->export_model(place);
      if (merge) {
        merged = exported_logits(place);
        CHECK(merged != exported_logits(base));
        continue;
      }
      const NamedArrays adapter =
          io::read_safetensors(place + "/adapter_model.safetensors")->arrays();
      CHECK(adapter.contains(str("base_model.model.model.layers.0.", one.mlp, ".lora_A.weight")));
      for (const auto& [name, array] : adapter) CHECK(name.find(".experts.") == name.npos);
      const io::Json peft = io::read_json(place + "/adapter_config.json");
      CHECK(peft.contains("target_parameters") == !(lfm || ling));
      if (!lfm && !ling) {  // by this name PEFT takes experts for meant
        CHECK(peft["target_parameters"] ==
              io::Json::array({"model.layers.0.mlp.up_proj.weight",
                               "model.layers.1.mlp.shared_experts.up_proj.weight"}));
      }
      check_same_logits(exported_logits(base, place), merged);
    }
    const std::string whole = lumen::testing::temporary_directory();
    const auto trained = make_task(whole_recipe(base, {"train.batch_size=4"}), {.threads = 1});
    const auto before = losses(*trained, 8);
    CHECK(before.back() < before.front());
    trained->export_model(whole);
    const auto tensors = io::read_safetensors(whole + "/model.safetensors")->arrays();
    CHECK(tensors.contains(str("model.layers.1.", one.expert, ".weight")));
    CHECK(tensors.at(str("model.layers.1.", one.correction)).elements() == 3);
    CHECK(exported_logits(whole) != exported_logits(base));
  }
}

TEST_CASE("additions to what all tokens of Hunyuan go through are to parameters for PEFT") {
  io::Json config = mixture_config("hunyuan_v1_moe");
  for (const char* key : {"num_local_experts", "moe_intermediate_size", "sliding_window"}) {
    config.erase(key);
  }
  const std::string base = random_base(config);
  const auto trained = [&](bool merge) {
    const std::string place = lumen::testing::temporary_directory();
    const auto recipe = read_recipe({"l.toml", text_recipe(kLlama).directory,
                                     lora_recipe(base, "targets = [\"up_proj\", \"q_proj\"]\n")},
                                    {str("export.merge_lora=", merge), "data.on_too_long=split"});
    const auto task = make_task(recipe, {.threads = 1});
    losses(*task, 3);
    task->export_model(place);
    return place;
  };
  const std::string place = trained(false);
  const io::Json peft = io::read_json(place + "/adapter_config.json");
  CHECK(peft["target_modules"] == io::Json::array({"q_proj"}));
  CHECK(peft["target_parameters"] ==
        io::Json::array({"model.layers.0.mlp.shared_mlp.up_proj.weight",
                         "model.layers.1.mlp.shared_mlp.up_proj.weight"}));
  check_same_logits(exported_logits(base, place), exported_logits(trained(true)));
  CHECK(exported_logits(base, place) != exported_logits(base));
}

TEST_CASE("the router of gpt-oss is a parameter for PEFT") {
  const std::string base = random_base(mixture_config("gpt_oss")),
                    place = lumen::testing::temporary_directory();
  const std::string directory = text_recipe(kLlama).directory;
  const auto recipe = [&](const char* names) {
    return read_recipe({"l.toml", directory, lora_recipe(base, names)},
                       {"data.on_too_long=split", "lora.dropout=0.1"});
  };
  make_task(recipe("targets = [\"router\", \"q_proj\"]\n"), {.threads = 1})->export_model(place);
  const io::Json config = io::read_json(place + "/adapter_config.json");
  CHECK(config["target_modules"] == io::Json({"q_proj"}));
  CHECK(config["target_parameters"] ==
        io::Json({"model.layers.0.mlp.router.weight", "model.layers.1.mlp.router.weight"}));
  CHECK(config["lora_dropout"] == 0);
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] { make_task(recipe("targets = [\"gate_proj\"]\n"), {.threads = 1}); }),
                 "that can have an addition is called 'gate_proj'"));
}

TEST_CASE("the experts of gpt-oss are in the result as Hugging Face has them") {
  const std::string place = lumen::testing::temporary_directory();
  const io::Json config = {
      {"model_type", "gpt_oss"},     {"hidden_size", 32},        {"intermediate_size", 16},
      {"num_local_experts", 2},      {"num_experts_per_tok", 1}, {"num_hidden_layers", 1},
      {"num_attention_heads", 2},    {"num_key_value_heads", 1}, {"head_dim", 16},
      {"vocab_size", 300},           {"sliding_window", 8},      {"max_position_embeddings", 64},
      {"tie_word_embeddings", false}};
  const std::string base = random_base(config);
  const Array up = nn::float32_copy(
      io::open_model(base).tensors.at("model.layers.0.mlp.experts.1.up_proj.weight"));
  make_task(whole_recipe(base), {.threads = 1})->export_model(place);
  const NamedArrays result = io::read_safetensors(place + "/model.safetensors")->arrays();
  const Array fused = result.at("model.layers.0.mlp.experts.gate_up_proj");
  REQUIRE(fused.shape() == Shape{2, 32, 32});
  CHECK(fused.as<float>()[(32 + 3) * 32 + 2 * 7 + 1] == up.as<float>()[7 * 32 + 3]);
  CHECK(result.at("model.layers.0.mlp.experts.gate_up_proj_bias").shape() == Shape{2, 32});
  CHECK(result.at("model.layers.0.mlp.experts.down_proj").shape() == Shape{2, 16, 32});
  CHECK(result.at("model.layers.0.mlp.experts.down_proj_bias").shape() == Shape{2, 32});
  CHECK_FALSE(result.contains("model.layers.0.mlp.experts.0.down_proj.weight"));
  CHECK(io::open_model(place).tensors.contains("model.layers.0.mlp.experts.0.down_proj.weight"));
}

}  // namespace
}  // namespace lumen::runtime
