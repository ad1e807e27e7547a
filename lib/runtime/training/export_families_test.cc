// What training leaves behind of mixtures of experts and of models with states: adapters that
// PEFT, and whole models that transformers would read.
#include <algorithm>
#include <functional>

#include "lib/io/atomic_file.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/training/export_model.h"
#include "lib/runtime/training/text_recipes.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::kLlama;
using testing::lora_recipe;
using testing::losses;
using testing::text_recipe;
using testing::whole_recipe;

// A directory with a small byte-level tokenizer and random weights for a model of this config.
std::string random_base(const io::Json& config) {
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
io::Json mixture_config(const char* type) {
  return {{"model_type", type},          {"hidden_size", 32},      {"intermediate_size", 24},
          {"moe_intermediate_size", 16}, {"num_experts", 3},       {"num_local_experts", 3},
          {"num_experts_per_tok", 2},    {"num_hidden_layers", 2}, {"num_attention_heads", 2},
          {"num_key_value_heads", 1},    {"head_dim", 16},         {"vocab_size", 300},
          {"mlp_only_layers", {0}},      {"sliding_window", 8},    {"max_position_embeddings", 64},
          {"tie_word_embeddings", false}};
}

// Of some tokens, by a model, with an adapter if one is named.
std::vector<float> exported_logits(const std::string& model, const std::string& lora = "") {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
  LoadOptions options;
  options.kv_type = DType::kF32;
  options.lora = lora;
  const Array all = LanguageModel::load(io::open_model(model), options)->logits(ids);
  return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
}

void check_same_logits(const std::vector<float>& a, const std::vector<float>& b) {
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
void check_training_on(const std::string& base, const TrainedOn& checks) {
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
        CHECK(contains(refusal(ErrorKind::kUnsupported, [&] { make_task(recipe, {.threads = 1}); }),
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
      options.lora = lora;
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
    options.lora = place;
    const std::vector<int32_t> ids = {3, 1, 4};
    CHECK_NOTHROW(LanguageModel::load(io::open_model(base), options)->logits(ids));
  }
}

TEST_CASE(
    "mixtures with Gated DeltaNets are trained from directories and GGUF, whole and in part") {
  for (const char* type : {"qwen3_5_moe_text", "qwen3_next"}) {
    io::Json config = mixture_config(type);
    for (const char* key : {"mlp_only_layers", "sliding_window", "num_local_experts"}) {
      config.erase(key);
    }
    config.update({{"shared_expert_intermediate_size", 20},
                   {"layer_types", {"linear_attention", "full_attention"}},
                   {"linear_key_head_dim", 8},
                   {"linear_value_head_dim", 8},
                   {"linear_num_key_heads", 2},
                   {"linear_num_value_heads", 4}});
    INFO(type);
    const bool fused = type == std::string("qwen3_next");
    check_training_on(
        random_base(config),
        {.settings = {"train.router_aux_loss_coef=0.1"},
         .adapter =
             [&](const NamedArrays& adapter, const std::string& place, bool from_gguf) {
               const bool doubled = fused && from_gguf;
               const std::string layer = "base_model.model.model.layers.0.linear_attn.";
               const char* const inputs = fused ? "in_proj_qkvz" : "in_proj_qkv";
               CHECK(adapter.at(layer + inputs + ".lora_A.weight").shape()[0] == (doubled ? 4 : 2));
               CHECK(adapter.contains(layer + "in_proj_z.lora_A.weight") != fused);
               const io::Json peft = io::read_json(place + "/adapter_config.json");
               CHECK(peft.contains("rank_pattern") == doubled);
               // By these names PEFT takes experts of Qwen3-Next for meant.
               CHECK(peft.contains("target_parameters") == fused);
               if (fused) {
                 CHECK(peft["target_parameters"][0] ==
                       "model.layers.0.mlp.shared_expert.down_proj.weight");
               }
               if (doubled) {
                 CHECK(peft["alpha_pattern"]["in_proj_qkvz"] == 16);
               }
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string&) {
               CHECK(tensors.contains(str("model.layers.0.mlp.experts.",
                                          fused ? "2.up_proj.weight" : "gate_up_proj")));
               CHECK(tensors.contains("model.layers.0.linear_attn.A_log"));
               CHECK(tensors.contains("model.layers.0.linear_attn.in_proj_qkvz.weight") == fused);
             }});
  }
}

TEST_CASE("families that GGUF does not have are trained, and written as transformers has them") {
  struct Family {
    const char *type, *module, *tensor, *key;  // of an adapter; of a whole model and its config
    io::Json more;
  };
  const Family families[] = {
      {"gptj",
       "transformer.h.1.mlp.fc_in",
       "transformer.h.1.attn.out_proj.weight",
       "rotary_dim",
       {{"n_embd", 32},
        {"n_layer", 2},
        {"n_head", 4},
        {"n_positions", 64},
        {"n_inner", 24},
        {"rotary_dim", 4},
        {"layer_norm_epsilon", 1e-5}}},
      {"opt",
       "model.decoder.layers.1.fc1",
       "model.decoder.embed_positions.weight",
       "do_layer_norm_before",
       {{"ffn_dim", 24},
        {"do_layer_norm_before", true},
        {"word_embed_proj_dim", 32},
        {"activation_function", "relu"}}},
      {"helium",
       "model.layers.1.mlp.up_proj",
       "model.layers.1.mlp.up_proj.weight",
       "rms_norm_eps",
       {{"num_key_value_heads", 2}, {"head_dim", 8}, {"rms_norm_eps", 1e-8}}},
      {"cwm",
       "model.layers.1.mlp.up_proj",
       "model.layers.1.mlp.up_proj.weight",
       "layer_types",
       {{"num_key_value_heads", 2},
        {"head_dim", 8},
        {"sliding_window", 8},
        {"layer_types", {"sliding_attention", "full_attention"}}}},
      {"hyperclovax",
       "model.layers.1.mlp.up_proj",
       "model.layers.1.post_norm1.weight",
       "logits_scaling",
       {{"num_key_value_heads", 2},
        {"use_post_norm", true},
        {"attention_multiplier", 0.3},
        {"residual_multiplier", 0.5},
        {"embedding_multiplier", 2.0},
        {"logits_scaling", 0.5}}}};
  for (const Family& family : families) {
    INFO(family.type);
    io::Json config = {{"model_type", family.type},    {"hidden_size", 32},
                       {"intermediate_size", 24},      {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},     {"vocab_size", 300},
                       {"max_position_embeddings", 64}};
    config.update(family.more);
    check_training_on(
        random_base(config),
        {.adapter =
             [&](const NamedArrays& adapter, const std::string&, bool) {
               CHECK(adapter.contains(str("base_model.model.", family.module, ".lora_A.weight")));
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string& place) {
               CHECK(tensors.contains(family.tensor));
               const io::Json written = io::read_json(place + "/config.json");
               CHECK(written["model_type"] == family.type);
               CHECK(written[family.key] == family.more[family.key]);
             },
         .in_gguf = false});
  }
}

// In GGUF, and beside experts also here, two layers are in the place of one in PEFT.
TEST_CASE("magnitudes of layers that become one are those of its rows") {
  io::Json delta = mixture_config("qwen3_next"), granite = mixture_config("granitemoehybrid");
  for (const char* key : {"mlp_only_layers", "sliding_window"}) {
    delta.erase(key);
    granite.erase(key);
  }
  delta.update({{"shared_expert_intermediate_size", 20},
                {"layer_types", {"linear_attention", "full_attention"}},
                {"linear_key_head_dim", 8},
                {"linear_value_head_dim", 8},
                {"linear_num_key_heads", 2},
                {"linear_num_value_heads", 4}});
  granite.update({{"shared_intermediate_size", 20},
                  {"layer_types", {"attention", "attention"}},
                  {"mamba_n_heads", 4},
                  {"mamba_d_head", 16}});
  const auto check = [](const io::Json& config, const std::string& exclude,
                        const std::string& layer) {
    const std::string base = random_base(config), gguf = base + "/model.gguf";
    ConvertOptions options;
    options.model = base;
    options.output = gguf;
    options.type = "f32";
    REQUIRE(convert(options) == 0);
    const auto recipe = [&](std::vector<std::string> settings) {
      settings.insert(settings.end(), {"lora.dora=true", "data.on_too_long=split"});
      return read_recipe({"l.toml", text_recipe(kLlama).directory, lora_recipe(gguf, exclude)},
                         settings);
    };
    const auto task = make_task(recipe({}), {.threads = 1});
    losses(*task, 3);
    const std::string adapter = lumen::testing::temporary_directory(),
                      merged = lumen::testing::temporary_directory();
    task->export_model(adapter);
    const auto whole = make_task(recipe({"export.merge_lora=true"}), {.threads = 1});
    whole->restore(task->state());
    whole->export_model(merged);
    const NamedArrays tensors =
        io::read_safetensors(adapter + "/adapter_model.safetensors")->arrays();
    const std::string place = str("base_model.model.model.layers.0.", layer);
    CHECK(tensors.at(place + ".lora_magnitude_vector").shape()[0] ==
          tensors.at(place + ".lora_B.weight").shape()[0]);
    check_same_logits(exported_logits(base, adapter), exported_logits(merged));
    check_same_logits(exported_logits(gguf, adapter), exported_logits(merged));
  };
  check(delta, "exclude = [\"gate_proj\", \"up_proj\", \"down_proj\"]\n",
        "linear_attn.in_proj_qkvz");
  check(granite, "", "shared_mlp.input_linear");
  granite["num_local_experts"] = 0;
  check(granite, "", "shared_mlp.input_linear");
  const auto half = [&] { check(granite, "exclude = [\"up_linear\"]\n", ""); };
  CHECK(contains(refusal(ErrorKind::kUsage, half),
                 "one layer in PEFT, is several here, of which some have no addition"));
}

TEST_CASE("families with names of their own are trained from directories and GGUF") {
  const io::Json sizes = {{"hidden_size", 32},
                          {"intermediate_size", 24},
                          {"num_hidden_layers", 2},
                          {"num_attention_heads", 4},
                          {"num_key_value_heads", 2},
                          {"vocab_size", 300},
                          {"max_position_embeddings", 64}};
  struct Family {
    const char *type, *module, *tensor;  // of an adapter, of a whole model
    io::Json more;
  };
  const Family families[] = {{"falcon",
                              "transformer.h.1.self_attention.query_key_value",
                              "transformer.h.1.ln_mlp.weight",
                              {{"new_decoder_architecture", true}, {"num_kv_heads", 2}}},
                             {"gpt_bigcode",
                              "transformer.h.1.attn.c_attn",
                              "transformer.wpe.weight",
                              {{"attn_pdrop", 0}, {"embd_pdrop", 0}, {"resid_pdrop", 0}}},
                             {"exaone",
                              "model.layers.1.self_attn.o_proj",
                              "transformer.h.1.attn.attention.out_proj.weight",
                              {{"tie_word_embeddings", true}}},
                             {"minicpm",
                              "model.layers.1.mlp.up_proj",
                              "model.layers.1.mlp.up_proj.weight",
                              {{"scale_emb", 2}, {"scale_depth", 1.4}, {"dim_model_base", 16}}},
                             {"bloom",
                              "transformer.h.1.self_attention.dense",
                              "transformer.word_embeddings_layernorm.bias",
                              {{"n_layer", 2}, {"n_head", 4}}},
                             {"mpt",
                              "transformer.blocks.1.attn.Wqkv",
                              "transformer.blocks.1.norm_2.weight",
                              {{"d_model", 32}, {"n_layers", 2}, {"n_heads", 4}}},
                             {"bitnet",
                              "model.layers.1.mlp.up_proj",
                              "model.layers.1.self_attn.attn_sub_norm.weight",
                              {{"hidden_act", "silu"}, {"tie_word_embeddings", true}}},
                             {"jais2",
                              "model.layers.1.mlp.up_proj",
                              "model.layers.1.mlp.up_proj.bias",
                              {{"layer_norm_eps", 1e-5}}},
                             {"olmo",
                              "model.layers.1.mlp.up_proj",
                              "model.layers.1.mlp.up_proj.weight",
                              {{"clip_qkv", 4}}}};
  for (const Family& family : families) {
    INFO(family.type);
    io::Json config = sizes;
    config["model_type"] = family.type;
    config.update(family.more);
    check_training_on(
        random_base(config),
        {.adapter =
             [&](const NamedArrays& adapter, const std::string&, bool) {
               CHECK(adapter.contains(str("base_model.model.", family.module, ".lora_A.weight")));
             },
         .whole = [&](const NamedArrays& tensors,
                      const std::string&) { CHECK(tensors.contains(family.tensor)); }});
  }
}

TEST_CASE("Granite 4.0 H is trained, whole and by additions, also where gate and up are apart") {
  for (const int experts : {4, 0}) {
    io::Json config = mixture_config("granitemoehybrid");
    config.update({{"num_local_experts", experts},
                   {"shared_intermediate_size", 20},
                   {"layer_types", {"mamba", "attention"}},
                   {"mamba_n_heads", 4},
                   {"mamba_d_head", 16},
                   {"mamba_n_groups", 2},
                   {"mamba_d_state", 8},
                   {"mamba_d_conv", 4}});
    for (const char* key :
         {"mlp_only_layers", "sliding_window", "num_experts", "moe_intermediate_size"}) {
      config.erase(key);
    }
    INFO(experts);
    check_training_on(
        random_base(config),
        {.adapter =
             [&](const NamedArrays& adapter, const std::string&, bool from_gguf) {
               const std::string layer = "base_model.model.model.layers.0.";
               CHECK(adapter.contains(layer + "mamba.in_proj.lora_A.weight"));
               CHECK(adapter.contains(layer + "mamba.out_proj.lora_B.weight"));
               const std::string inputs = layer + "shared_mlp.input_linear.lora_A.weight";
               REQUIRE(adapter.contains(inputs));
               const bool apart = from_gguf || experts > 0;  // two that become one
               CHECK(adapter.at(inputs).shape()[0] == (apart ? 4 : 2));
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string&) {
               CHECK(tensors.contains("model.layers.0.mamba.A_log"));
               CHECK(tensors.contains("model.layers.0.shared_mlp.input_linear.weight"));
               CHECK(tensors.contains("model.layers.0.block_sparse_moe.input_linear.weight") ==
                     (experts > 0));
             }});
  }
}

TEST_CASE("Nemotron-H, Mamba-2 and Falcon-H1 are trained, whole and by additions") {
  for (const auto& [type, index, last] :
       {std::tuple("nemotron_h", size_t{0}, "1.mixer.up_proj"),
        {"nemotron_h", size_t{2}, "1.mixer.shared_experts.up_proj"},
        {"mamba2", size_t{0}, "1.mixer.in_proj"},
        {"falcon_h1", size_t{0}, "1.self_attn.k_proj"}}) {
    io::Json config = models::find_model_def({{"model_type", type}}).tiny_configs()[index];
    config["vocab_size"] = 300;
    config["initializer_range"] = 0.1;
    INFO(type << index);
    const bool beside = type == std::string("falcon_h1"), alone = type == std::string("mamba2");
    const std::string mixer = beside ? "mamba" : "mixer";
    check_training_on(
        random_base(config),
        {.adapter =
             [&, name = std::string(last)](const NamedArrays& adapter, const std::string&, bool) {
               const std::string layers =
                   str("base_model.model.", alone ? "backbone" : "model", ".layers.");
               CHECK(adapter.contains(str(layers, "0.", mixer, ".in_proj.lora_A.weight")));
               CHECK(adapter.contains(str(layers, name, ".lora_B.weight")));
               for (const auto& [one, array] : adapter) {
                 CHECK(one.find(".experts.") == one.npos);
                 CHECK(one.find(".out_proj.") == one.npos);  // which PEFT would refuse
               }
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string& place) {
               const std::string model = beside ? "model." : "backbone.";
               CHECK(tensors.contains(str(model, "layers.0.", mixer, ".A_log")));
               CHECK(
                   tensors.contains(model + (beside ? "final_layernorm.weight" : "norm_f.weight")));
               CHECK_FALSE(
                   io::read_json(place + "/config.json").contains("multipliers_in_weights"));
             },
         .fits_both = !beside});
  }
}

TEST_CASE("Kimi Linear, Mamba and Jamba are trained, whole and by additions") {
  for (const auto& [type, layer, module, last, whole] :
       {std::tuple("kimi_linear", "model.layers.", "0.self_attn.forget_gate.f_a_proj",
                   "1.mlp.shared_experts.up_proj", "model.layers.0.self_attn.A_log"),
        {"mamba", "backbone.layers.", "0.mixer.in_proj", "1.mixer.x_proj",
         "backbone.layers.1.mixer.A_log"},
        {"jamba", "model.layers.", "0.mamba.in_proj", "1.self_attn.k_proj",
         "model.layers.2.mamba.dt_layernorm.weight"}}) {
    io::Json config = models::find_model_def({{"model_type", type}}).tiny_configs()[0];
    config["vocab_size"] = 300;
    config["initializer_range"] = 0.1;
    INFO(type);
    check_training_on(random_base(config),
                      {.adapter =
                           [&, names = std::array{std::string(module), std::string(last)},
                            place = str("base_model.model.", layer)](const NamedArrays& adapter,
                                                                     const std::string&, bool) {
                             for (const std::string& name : names) {
                               CHECK(adapter.contains(str(place, name, ".lora_B.weight")));
                             }
                             for (const auto& [one, array] : adapter)
                               CHECK(one.find(".experts.") == one.npos);
                           },
                       .whole = [&, name = std::string(whole)](
                                    const NamedArrays& tensors,
                                    const std::string&) { CHECK(tensors.contains(name)); }});
  }
}

TEST_CASE("GPT-2 is trained, whole and by additions, from directories and GGUF") {
  const io::Json config = {{"model_type", "gpt2"}, {"n_embd", 32},  {"n_layer", 2},
                           {"n_head", 2},          {"n_inner", 48}, {"n_positions", 64},
                           {"vocab_size", 300}};
  check_training_on(
      random_base(config),
      {.adapter =
           [&](const NamedArrays& adapter, const std::string& place, bool) {
             const std::string layer = "base_model.model.transformer.h.1.";
             CHECK(adapter.at(layer + "attn.c_attn.lora_B.weight").shape()[0] == 96);
             CHECK(adapter.at(layer + "mlp.c_proj.lora_A.weight").shape()[1] == 48);
             CHECK(io::read_json(place + "/adapter_config.json")["fan_in_fan_out"] == true);
           },
       .whole =
           [&](const NamedArrays& tensors, const std::string& place) {
             CHECK(tensors.at("transformer.h.0.attn.c_attn.weight").shape() == Shape{32, 96});
             CHECK(tensors.at("transformer.h.1.mlp.c_proj.weight").shape() == Shape{48, 32});
             const io::Json result = io::read_json(place + "/config.json");
             CHECK(result["n_inner"] == 48);
             CHECK(result["n_positions"] == 64);
             for (const char* key : {"hidden_size", "intermediate_size", "conv1d_out_in",
                                     "rms_norm_eps", "rope_theta"}) {
               CHECK_FALSE(result.contains(key));
             }
           }});
}

TEST_CASE("Gemma 4 is trained, whole and by additions, from directories and GGUF") {
  for (const bool has_experts : {false, true}) {
    io::Json config = mixture_config("gemma4_text");
    config.update({{"global_head_dim", 32},
                   {"num_hidden_layers", 3},
                   {"layer_types", {"sliding_attention", "full_attention", "full_attention"}},
                   {"hidden_size_per_layer_input", has_experts ? 0 : 8},
                   {"vocab_size_per_layer_input", 300},
                   {"num_kv_shared_layers", has_experts ? 0 : 1},
                   {"attention_k_eq_v", has_experts},
                   {"enable_moe_block", has_experts},
                   {"top_k_experts", 2},
                   {"final_logit_softcapping", 30},
                   {"tie_word_embeddings", true}});
    for (const char* key : {"num_local_experts", "mlp_only_layers", "num_experts_per_tok"}) {
      config.erase(key);
    }
    if (!has_experts) config.erase("num_experts");
    INFO(has_experts);
    check_training_on(
        random_base(config),
        {.adapter =
             [&](const NamedArrays& adapter, const std::string&, bool) {
               const std::string layer = "base_model.model.model.layers.0.";
               CHECK(adapter.contains(layer + "self_attn.k_proj.lora_A.weight"));
               CHECK(adapter.contains(layer + "per_layer_input_gate.lora_A.weight") != has_experts);
               for (const auto& [name, array] : adapter) CHECK(name.find(".experts.") == name.npos);
             },
         .whole =
             [&](const NamedArrays& tensors, const std::string& place) {
               CHECK(tensors.contains("model.layers.0.layer_scalar"));
               CHECK(tensors.contains("model.layers.1.experts.gate_up_proj") == has_experts);
               CHECK(tensors.contains("model.layers.2.self_attn.k_proj.weight") == has_experts);
               const io::Json result = io::read_json(place + "/config.json");
               CHECK(result["rope_parameters"]["full_attention"]["rope_type"] == "proportional");
               CHECK_FALSE(result.contains("rope_scaling"));
             }});
  }
}

TEST_CASE("Gemma 3n is trained, whole and by additions, from directories and GGUF") {
  io::Json config = mixture_config("gemma3n_text");
  config.update({{"num_hidden_layers", 3},
                 {"layer_types", std::vector<std::string>(3, "sliding_attention")},
                 {"hidden_size_per_layer_input", 8},
                 {"vocab_size_per_layer_input", 300},
                 {"num_kv_shared_layers", 0},
                 {"laurel_rank", 4},
                 {"activation_sparsity_pattern", {0.95, 0.95, 0.95}},
                 {"tie_word_embeddings", true}});
  for (const char* key : {"num_local_experts", "mlp_only_layers", "num_experts_per_tok",
                          "num_experts", "moe_intermediate_size"}) {
    config.erase(key);
  }
  check_training_on(
      random_base(config),
      {.adapter =
           [&](const NamedArrays& adapter, const std::string& place, bool) {
             const std::string layer = "base_model.model.model.layers.0.";
             CHECK(adapter.contains(layer + "self_attn.k_proj.lora_A.weight"));
             CHECK(adapter.contains(layer + "laurel.linear_left.lora_A.weight"));
             for (const auto& [name, array] : adapter) {
               CHECK(name.find(".altup_projections.") == name.npos);
             }
             const io::Json said = io::read_json(place + "/adapter_config.json");
             for (const io::Json& target : said["target_modules"]) CHECK(target != "0");
           },
       .whole =
           [&](const NamedArrays& tensors, const std::string& place) {
             CHECK(tensors.contains("model.altup_unembed_projections.2.weight"));
             CHECK(tensors.at("model.layers.1.altup.correct_output_scale").shape() == Shape{32});
             const io::Json result = io::read_json(place + "/config.json");
             CHECK(result["activation_sparsity_pattern"] == io::Json({0.95, 0.95, 0.95}));
             CHECK(result["altup_num_inputs"] == 4);
           }});
}

TEST_CASE(
    "DeepSeek-V3 is trained, whole and by additions, also where rows of kv_b_proj are apart") {
  io::Json config = mixture_config("deepseek_v3");
  config.update({{"num_key_value_heads", 2},
                 {"q_lora_rank", 12},
                 {"kv_lora_rank", 24},
                 {"qk_nope_head_dim", 8},
                 {"qk_rope_head_dim", 16},
                 {"v_head_dim", 10},
                 {"n_routed_experts", 4},
                 {"n_shared_experts", 1},
                 {"num_experts_per_tok", 2},
                 {"n_group", 2},
                 {"topk_group", 1},
                 {"first_k_dense_replace", 1}});
  for (const char* key :
       {"num_experts", "num_local_experts", "mlp_only_layers", "sliding_window"}) {
    config.erase(key);
  }
  const std::string base = random_base(config), place = lumen::testing::temporary_directory(),
                    whole = lumen::testing::temporary_directory();
  const auto recipe = read_recipe({"l.toml", text_recipe(kLlama).directory,
                                   lora_recipe(base, "targets = [\"kv_b_proj\", \"up_proj\"]\n")},
                                  {"data.on_too_long=split"});
  const auto task = make_task(recipe, {.threads = 1});
  losses(*task, 2);
  task->export_model(place);
  const io::Json peft = io::read_json(place + "/adapter_config.json");
  CHECK(peft["target_modules"] == io::Json::array({"kv_b_proj"}));
  // By this name PEFT takes experts for meant.
  CHECK(peft["target_parameters"] ==
        io::Json::array({"model.layers.0.mlp.up_proj.weight",
                         "model.layers.1.mlp.shared_experts.up_proj.weight"}));
  const auto trained = make_task(whole_recipe(base, {"train.batch_size=4"}), {.threads = 1});
  const auto before = losses(*trained, 8);
  CHECK(before.back() < before.front());
  trained->export_model(whole);
  const auto tensors = io::read_safetensors(whole + "/model.safetensors")->arrays();
  CHECK(tensors.contains("model.layers.1.mlp.gate.e_score_correction_bias"));
  CHECK(tensors.contains("model.layers.1.mlp.experts.3.up_proj.weight"));
  CHECK(tensors.contains("model.layers.1.self_attn.kv_b_proj.weight"));
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
