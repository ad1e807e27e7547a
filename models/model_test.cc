// One test for every architecture: walks the registry.
#include "models/model.h"

#include <algorithm>
#include <cmath>

#include "lib/autograd/autograd.h"
#include "lib/base/error.h"
#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/graph/reference_backend.h"
#include "lib/nn/training_scope.h"

using namespace lumen;
using graph::Tensor;

namespace {

using lumen::testing::relative_error;

Tensor token_ids(std::span<const int32_t> ids, int64_t batch) {
  return graph::constant(
      Array::from<int32_t>(ids, {batch, static_cast<int64_t>(ids.size()) / batch}));
}

Tensor position(int32_t at) {
  return graph::constant(Array::from<int32_t>(std::span<const int32_t>(&at, 1), {1}));
}

std::vector<float> values(const Tensor& tensor) {
  const auto span = tensor.eval().as<float>();
  return {span.begin(), span.end()};
}

// Calls body(name, config, model) for every tiny config of every architecture. Weights are larger
// than an initialisation's, so that every part shows in the logits.
template <typename Body>
void for_every_model(Body body) {
  for (const models::ModelDef* def : models::model_list()) {
    const auto configs = def->tiny_configs();
    REQUIRE(!configs.empty());
    for (size_t i = 0; i < configs.size(); ++i) {
      INFO(def->name << " tiny config " << i);
      const auto parameters = nn::Parameters::random(7 + i);
      auto model = def->make(configs[i], parameters);
      parameters.check();
      for (const auto& [name, tensor] : parameters.named()) {
        if (!name.ends_with("altup.correct_output_scale")) continue;  // starts as zeros
        Array scale = tensor.node()->value;
        std::ranges::fill(scale.as_mutable<float>(), 0.75f);
      }
      body(configs[i], *model, parameters);
    }
  }
}

constexpr int32_t kIds[] = {3, 1, 4, 1, 5, 9, 2, 6};

}  // namespace

TEST_CASE("every model equals itself on the primitive reference backend") {
  for_every_model([](const io::Json&, const models::CausalLm& model, const nn::Parameters&) {
    const auto ids = std::span(kIds).first(5);
    const Tensor logits = model.logits(model.hidden(token_ids(ids, 1), position(0), nullptr));
    const std::vector<double> want = graph::evaluate_reference(logits);
    const std::vector<float> want_floats(want.begin(), want.end());
    CHECK(relative_error(values(logits), want_floats) < 1e-5);
  });
}

TEST_CASE("cached decoding equals one pass, for every cache type") {
  for_every_model([](const io::Json& config, const models::CausalLm& model, const nn::Parameters&) {
    const auto whole = values(model.logits(model.hidden(token_ids(kIds, 1), position(0), nullptr)));
    const int64_t vocab = model.vocab_size();
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      nn::KvCache cache(model.cache_shape(1, 16), dtype);
      std::vector<float> stepped;
      auto feed = [&](int64_t first, int64_t count) {
        const auto piece =
            values(model.logits(model.hidden(token_ids(std::span(kIds).subspan(first, count), 1),
                                             position(static_cast<int32_t>(first)), &cache)));
        stepped.insert(stepped.end(), piece.begin(), piece.end());
      };
      feed(0, 3);
      for (int64_t i = 3; i < 8; ++i) feed(i, 1);
      CHECK(static_cast<int64_t>(stepped.size()) == 8 * vocab);
      CHECK(relative_error(stepped, whole) < (dtype == DType::kF32 ? 1e-5 : 2e-3));
    }
  });
}

TEST_CASE("the last tokens alone are as with the others, and leave the same in the cache") {
  for_every_model([](const io::Json&, const models::CausalLm& model, const nn::Parameters&) {
    const int64_t rows = model.keeps_several() ? 2 : 1;
    const auto starts = [&](int32_t first) {
      const std::vector<int32_t> all(static_cast<size_t>(rows), first);
      return graph::constant(Array::from<int32_t>(all, {rows}));
    };
    const auto begin = [&](bool alone, int64_t count) {
      nn::KvCache cache(model.cache_shape(rows, 16), DType::kF32);
      const Tensor first = token_ids(std::span(kIds).first(static_cast<size_t>(rows)), rows);
      values(model.hidden(first, starts(0), &cache));
      const Tensor more = token_ids(std::span(kIds).last(static_cast<size_t>(3 * rows)), rows);
      const Tensor out = alone ? model.last_hidden(more, starts(1), cache, count)
                               : nn::last_tokens(model.hidden(more, starts(1), &cache), count);
      CHECK(out.shape() == Shape{rows, count, model.normalized(out).dim(2)});
      std::vector<float> result = values(out);
      const std::vector<float> next = values(model.hidden(first, starts(4), &cache));
      result.insert(result.end(), next.begin(), next.end());
      return result;
    };
    for (const int64_t count : {1, 2, 3}) {
      CHECK(relative_error(begin(true, count), begin(false, count)) < 2e-6);
    }
  });
}

TEST_CASE("a batch of two equals two batches of one") {
  for_every_model([](const io::Json&, const models::CausalLm& model, const nn::Parameters&) {
    auto logits = [&](std::span<const int32_t> ids, int64_t batch) {
      return values(model.logits(model.hidden(token_ids(ids, batch), position(0), nullptr)));
    };
    auto both = logits(std::span(kIds).first(4), 1);
    const auto second = logits(std::span(kIds).subspan(4), 1);
    both.insert(both.end(), second.begin(), second.end());
    CHECK(relative_error(logits(kIds, 2), both) < 1e-6);
  });
}

TEST_CASE("rows with positions and cache rows of their own equal texts alone") {
  for_every_model([](const io::Json&, const models::CausalLm& model, const nn::Parameters&) {
    if (!model.keeps_several()) return;
    const nn::KvCache cache(model.cache_shape(3, 16), DType::kF32);
    auto step = [&](const std::vector<int32_t>& ids, std::vector<int32_t> at,
                    std::vector<int32_t> slots) {
      const auto rows = static_cast<int64_t>(at.size());
      auto ints = [&](const std::vector<int32_t>& list) {
        return graph::constant(Array::from<int32_t>(list, {rows}));
      };
      nn::KvCache chosen = cache.with_slots(ints(slots));
      return values(model.logits(model.hidden(token_ids(ids, rows), ints(at), &chosen)));
    };
    step({3, 1, 4, 1}, {0}, {2});
    step({5, 9}, {0}, {0});
    const auto together = step({2, 6}, {4, 2}, {2, 0});
    auto last = [&](const std::vector<int32_t>& ids) {
      const auto all = values(model.logits(model.hidden(token_ids(ids, 1), position(0), nullptr)));
      return std::vector<float>(all.end() - model.vocab_size(), all.end());
    };
    auto alone = last({3, 1, 4, 1, 2});
    const auto second = last({5, 9, 6});
    alone.insert(alone.end(), second.begin(), second.end());
    CHECK(relative_error(together, alone) < 1e-5);
  });
}

TEST_CASE("tokens that latent attention reads together get the bits that each gets alone") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "deepseek_v3"}});
  for (io::Json config : def.tiny_configs()) {
    INFO(config.dump());
    config.update({{"kv_lora_rank", 80}, {"qk_nope_head_dim", 40}, {"v_head_dim", 48}});
    for (const DType type : {DType::kF32, DType::kF16}) {
      const auto model = def.make(config, nn::Parameters::random(3, type));
      const auto read = [&](int64_t at_once) {
        nn::KvCache cache(model->cache_shape(1, 16), DType::kF16);
        std::vector<float> logits;
        for (int64_t first = 0; first < 8; first += at_once) {
          const auto ids =
              std::span(kIds).subspan(static_cast<size_t>(first), static_cast<size_t>(at_once));
          const auto piece = values(model->logits(
              model->hidden(token_ids(ids, 1), position(static_cast<int32_t>(first)), &cache)));
          logits.insert(logits.end(), piece.begin(), piece.end());
        }
        return logits;
      };
      const std::vector<float> alone = read(1);
      for (const int64_t at_once : {2, 4, 8}) CHECK(read(at_once) == alone);
    }
  }
}

TEST_CASE("documents of a packed row equal documents alone") {
  for_every_model([](const io::Json&, const models::CausalLm& model, const nn::Parameters&) {
    if (!model.keeps_several()) return;
    const auto ints = [](std::vector<int32_t> list) {
      return graph::constant(Array::from<int32_t>(list, {1, 8}));
    };
    models::Training training;
    training.segments = ints({4, 4, 7, 7, 7, 7, 7, 2});
    training.positions = ints({0, 1, 0, 1, 2, 3, 4, 0});
    const auto packed =
        values(model.logits(model.hidden(token_ids(kIds, 1), position(0), nullptr, training)));
    std::vector<float> alone;
    for (const auto& [first, count] : {std::pair(0, 2), {2, 5}, {7, 1}}) {
      const auto ids =
          std::span(kIds).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
      const auto one = values(model.logits(model.hidden(token_ids(ids, 1), position(0), nullptr)));
      alone.insert(alone.end(), one.begin(), one.end());
    }
    CHECK(relative_error(packed, alone) < 1e-5);
  });
}

TEST_CASE("attention's dropout is for training, and drawn again where layers are recomputed") {
  auto logits = [](const models::CausalLm& model, bool recompute) {
    return model.logits(model.hidden(token_ids(kIds, 1), position(0), nullptr,
                                     {.segments = {}, .positions = {}, .recompute = recompute}));
  };
  for (const models::ModelDef* def : models::model_list()) {
    INFO(def->name);
    io::Json config = def->tiny_configs()[0];
    const auto without = def->make(config, nn::Parameters::trainable(3));
    if (!without->keeps_several() || without->cache_shape(1, 1).layers == 0) continue;
    const std::vector<float> plain = values(logits(*without, false));
    config["attn_pdrop"] = config["attention_dropout"] = 0.5;
    CHECK(values(logits(*def->make(config, nn::Parameters::trainable(3)), false)) == plain);

    // The logits and the gradients of their sum.
    auto train = [&](bool recompute) {
      const auto parameters = nn::Parameters::trainable(3);
      const auto model = def->make(config, parameters);
      const int32_t key[] = {1, 2};
      Tensor y;
      {
        const nn::TrainingScope scope(graph::constant(Array::from<int32_t>(key, {2})));
        y = logits(*model, recompute);
      }
      autograd::backward(y, ops::ones(y.shape()));
      std::vector<std::vector<float>> all = {values(y)};
      for (const auto& [name, tensor] : parameters.named_parameters()) {
        all.push_back(values(autograd::grad(tensor)));
      }
      return all;
    };
    const auto kept = train(false);
    CHECK(kept[0] != plain);
    const auto again = train(true);
    if (def->name != "zamba2") {
      CHECK(again == kept);
      continue;
    }
    // Gradients of weights that layers share are added up in another order.
    CHECK(again[0] == kept[0]);
    REQUIRE(again.size() == kept.size());
    for (size_t i = 1; i < kept.size(); ++i) {
      CHECK(testing::relative_error(again[i], kept[i]) < 1e-6);
    }
  }
}

TEST_CASE("every parameter influences the logits") {
  for_every_model([](const io::Json& config, const models::CausalLm& model,
                     const nn::Parameters& parameters) {
    const auto before =
        values(model.logits(model.hidden(token_ids(kIds, 1), position(0), nullptr)));
    for (const auto& [name, tensor] : parameters.named()) {
      INFO(name);
      if (name.ends_with("act_fn.eps")) continue;  // no number is as near to 0
      Array array = tensor.node()->value;
      auto elements = array.as_mutable<float>();
      const std::vector<float> saved(elements.begin(), elements.end());
      // Not the same in every row: a softmax does not see what all logits of a router have more.
      for (size_t i = 0; i < elements.size(); ++i) elements[i] += i % 5 < 2 ? 0.5f : -0.25f;
      CHECK(values(model.logits(model.hidden(token_ids(kIds, 1), position(0), nullptr))) != before);
      std::copy(saved.begin(), saved.end(), elements.begin());
    }
  });
}

TEST_CASE("decode plans merge q, k, v and gate, up, and fuse the residual additions") {
  const models::ModelDef& def = *models::model_list()[0];
  const auto parameters = nn::Parameters::random(1);
  const auto model = def.make(def.tiny_configs()[0], parameters);
  nn::KvCache cache(model->cache_shape(1, 16), DType::kF16);
  const Tensor ids = graph::input(DType::kI32, {1, 1}, "tokens");
  const Tensor at = graph::input(DType::kI32, {1}, "position");
  const Tensor logits = model->logits(model->hidden(ids, at, &cache));
  const graph::Plan plan = graph::compile(std::span(&logits, 1), {.verified = true});
  const std::string text = plan.text();
  INFO(text);
  auto count = [&](std::string_view what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  CHECK(count("linear") == 2 * 4 + 1);  // qkv, o, gate-up, down; head
  CHECK(count("gated_linear") == 2);    // silu(gate) · up
  CHECK(count("{add") == 2 * 2);        // residuals
  CHECK(count("fused") == 0);
  CHECK(count("contiguous") == 0);
  CHECK(plan.steps() == 2 + 2 * 11 + 2);
}

TEST_CASE("missing and misshapen tensors are listed together") {
  const models::ModelDef& def = *models::model_list()[0];
  const io::Json config = def.tiny_configs()[0];
  const auto random = nn::Parameters::random(1);
  def.make(config, random);
  std::map<std::string, Array> arrays;
  for (const auto& [name, tensor] : random.named()) arrays[name] = tensor.node()->value;
  arrays.erase("model.norm.weight");
  arrays["lm_head.weight"] = Array::zeros(DType::kF32, {2, 3});
  arrays["surprise"] = Array::zeros(DType::kF32, {1});
  const auto parameters = nn::Parameters::from_checkpoint(arrays);
  def.make(config, parameters);
  try {
    parameters.check();
    FAIL();
  } catch (const Error& error) {
    const std::string what = error.what();
    CHECK(what.find("'model.norm.weight' is missing") != std::string::npos);
    CHECK(what.find("'lm_head.weight' has shape [2, 3], expected [37, 32]") != std::string::npos);
  }
}

TEST_CASE("GPT-2 has the activation that its config names") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "gpt2"}});
  io::Json config = def.tiny_configs()[0];
  const auto random = nn::Parameters::random(3);
  def.make(config, random);
  NamedArrays arrays;
  for (const auto& [name, tensor] : random.named()) {
    Array array =
        Array::from<float>(tensor.node()->value.as<float>(), tensor.node()->value.shape());
    for (float& x : array.as_mutable<float>()) x *= 20;
    arrays[name] = array;
  }
  const auto logits = [&](const char* activation) {
    config["activation_function"] = activation;
    const auto model = def.make(config, nn::Parameters::from_checkpoint(arrays));
    return values(model->logits(model->hidden(token_ids(kIds, 1), position(0), nullptr)));
  };
  const auto usual = logits("gelu_new");
  CHECK(logits("gelu_pytorch_tanh") == usual);
  CHECK(relative_error(logits("gelu"), usual) < 1e-2);
  CHECK(relative_error(logits("gelu"), usual) > 1e-6);
  for (const char* other : {"relu", "silu", "tanh"}) {
    CHECK(relative_error(logits(other), usual) > 1e-3);
  }
  REQUIRE_THROWS_AS(logits("softmax"), Error);
}

// GPT-2's attention without its usual scale, or divided by the layer's number, is that of a model
// with larger queries.
TEST_CASE("the scale of GPT-2's attention follows its config") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "gpt2"}});
  io::Json config = def.tiny_configs()[0];
  const int64_t dim = config["hidden_size"];
  const double head_dim = static_cast<double>(dim) / config["num_attention_heads"].get<double>();
  const auto random = nn::Parameters::random(3);
  def.make(config, random);
  NamedArrays arrays;
  for (const auto& [name, tensor] : random.named()) arrays[name] = tensor.node()->value;
  const auto logits = [&] {
    const auto model = def.make(config, nn::Parameters::from_checkpoint(arrays));
    return values(model->logits(model->hidden(token_ids(kIds, 1), position(0), nullptr)));
  };
  config["scale_attn_weights"] = false;
  config["scale_attn_by_inverse_layer_idx"] = true;
  const auto scaled = logits();
  config.erase("scale_attn_weights");
  config.erase("scale_attn_by_inverse_layer_idx");
  CHECK(relative_error(logits(), scaled) > 1e-3);
  for (int64_t layer = 0; layer < config["num_hidden_layers"]; ++layer) {
    const auto larger = static_cast<float>(std::sqrt(head_dim) / static_cast<double>(layer + 1));
    for (const char* part : {"weight", "bias"}) {
      Array& array = arrays.at(str("transformer.h.", layer, ".attn.c_attn.", part));
      array = Array::from<float>(array.as<float>(), array.shape());
      const std::span<float> entries = array.as_mutable<float>();
      for (size_t i = 0; i < entries.size(); ++i) {  // rows of q, k and v: the first third is q
        if (static_cast<int64_t>(i) % (3 * dim) < dim) entries[i] *= larger;
      }
    }
  }
  CHECK(relative_error(logits(), scaled) < 1e-5);
}

TEST_CASE("caps of Gemma 2 are positive numbers, and null is none") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "gemma2"}});
  const auto tiny = def.tiny_configs();
  const auto is_second = [](const io::Json& config) { return config["model_type"] == "gemma2"; };
  const io::Json config = *std::find_if(tiny.begin(), tiny.end(), is_second);
  const auto logits = [&](const char* key, const io::Json& cap) {
    io::Json changed = config;
    changed[key] = cap;
    const auto model = def.make(changed, nn::Parameters::random(3));
    return values(model->logits(model->hidden(token_ids(kIds, 1), position(0), nullptr)));
  };
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    for (const io::Json& cap : {io::Json(0), io::Json(-50), io::Json(NAN), io::Json("50")}) {
      CHECK(testing::contains(
          testing::refusal(ErrorKind::kMalformed, [&, key = key] { logits(key, cap); }), key));
    }
    CHECK(relative_error(logits(key, 1e6), logits(key, nullptr)) < 1e-5);
    CHECK(relative_error(logits(key, 0.01), logits(key, nullptr)) > 1e-3);
  }
  for (const float logit : logits("final_logit_softcapping", 0.125)) {
    CHECK(std::abs(logit) <= 0.125f);
  }
}

TEST_CASE("what a family may say and Lumen does not compute is refused by its key") {
  const auto refused_in = [](const char* type, const char* key, const io::Json& value,
                             const char* word) {
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    const auto tiny = def.tiny_configs();
    io::Json config = *std::find_if(tiny.begin(), tiny.end(),
                                    [&](const io::Json& one) { return one["model_type"] == type; });
    config[key] = value;
    const std::string message = testing::refusal(
        ErrorKind::kUnsupported, [&] { def.make(config, nn::Parameters::random(1)); });
    CHECK(testing::contains(message, word));
  };
  const auto refused = [&](const char* type, const char* key, const io::Json& value) {
    refused_in(type, key, value, key);
  };
  refused("afmoe", "score_func", "softmax");
  refused("afmoe", "route_norm", false);
  refused("afmoe", "n_group", 2);
  refused("falcon", "alibi", true);
  refused("falcon", "num_ln_in_parallel_attn", 2);
  refused("bloom", "apply_residual_connection_post_layernorm", true);
  refused("mpt", "logit_scale", "inv_sqrt_d_model");
  refused("mpt", "no_bias", false);
  for (const auto& [key, value] :
       {std::pair<const char*, io::Json>("alibi", false), {"qk_ln", true}, {"prefix_lm", true}}) {
    refused_in("mpt", "attn_config", {{key, value}}, key);
  }
  refused_in("mpt", "attn_config", {{"attn_type", "multiquery_attention"}}, "attn_type");
  refused_in("granite_swa", "layer_rope_theta", {1e4, 2e4, 3e4}, "more than two bases");
  refused("minicpm", "num_experts", 8);
  refused("opt", "do_layer_norm_before", false);
  refused("opt", "word_embed_proj_dim", 16);
  refused("bailing_moe_v2", "score_function", "softmax");
  refused("bailing_moe_v2", "norm_head", true);
  refused("phi", "qk_layernorm", true);
  refused("phi", "tie_word_embeddings", true);
  refused("qwen2_moe", "hidden_act", "gelu");
  refused("nemotron", "hidden_act", "tanh");
  refused("arcee", "hidden_act", "tanh");
  refused("llama", "hidden_act", "xielu");
  refused("deepseek_v2", "mlp_bias", true);
  refused("deepseek_v2", "norm_topk_prob", true);
  refused("minimax_m2", "scoring_func", "softmax");
  refused("minimax_m2", "use_qk_norm", false);
  refused("minimax_m2", "shared_intermediate_size", 16);
  refused("minimax_m2", "attn_type_list", {1, 0});
}

TEST_CASE("layers of Gemma 4 that share what no layer has are refused") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "gemma4_text"}});
  const auto refused = [&](const io::Json& keys, const char* why,
                           ErrorKind kind = ErrorKind::kMalformed) {
    io::Json wrong = def.tiny_configs()[0];
    wrong.update(keys);
    const std::string message =
        testing::refusal(kind, [&] { def.make(wrong, nn::Parameters::random(1)); });
    CAPTURE(message);
    CHECK(testing::contains(message, why));
  };
  refused({{"num_kv_shared_layers", 3}},
          "layer 1 shares keys and values, and no layer of its type");
  refused({{"num_kv_shared_layers", 4}}, "num_kv_shared_layers");
  refused({{"num_global_key_value_heads", 3}}, "not a multiple of num_global_key_value_heads 3");
  refused({{"global_head_dim", 15}}, "global_head_dim 15");
  refused({{"vocab_size_per_layer_input", 9}}, "vocab_size_per_layer_input 9 below vocab_size 43",
          ErrorKind::kUnsupported);
  refused({{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention",
          ErrorKind::kUnsupported);
  refused({{"enable_moe_block", true}, {"num_experts", 0}}, "num_experts");
  refused({{"enable_moe_block", true}, {"num_experts", 2}, {"hidden_act", "silu"}}, "hidden_act",
          ErrorKind::kUnsupported);
}

TEST_CASE("what layers of Gemma 3n cannot have is refused by its key") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "gemma3n_text"}});
  const auto refused = [&](const io::Json& keys, const char* why) {
    io::Json wrong = def.tiny_configs()[0];
    wrong.update(keys);
    const std::string message = testing::refusal(
        ErrorKind::kMalformed, [&] { def.make(wrong, nn::Parameters::random(1)); });
    CAPTURE(message);
    CHECK(testing::contains(message, why));
  };
  refused({{"altup_num_inputs", 0}}, "altup_num_inputs");
  refused({{"altup_active_idx", 4}}, "altup_active_idx");
  refused({{"laurel_rank", 0}}, "laurel_rank");
  refused({{"hidden_size_per_layer_input", 0}}, "hidden_size_per_layer_input");
  refused({{"num_kv_shared_layers", 3}},
          "layer 1 shares keys and values, and no layer of its type");
  refused({{"activation_sparsity_pattern", {0.95}}},
          "activation_sparsity_pattern: found an array of 1, expected an array of 4 numbers");
  refused({{"activation_sparsity_pattern", {0, 1, 0, 0}}},
          "activation_sparsity_pattern: found the number 1 for layer 1, expected a number from 0 "
          "and below 1");
  refused({{"intermediate_sizes", {8, 8, 8, 0}}},
          "intermediate_sizes: found the number 0 for layer 3");
}

TEST_CASE("configs of mixtures that say what cannot be are refused by the key") {
  const auto refused = [](const char* type, const char* key, const io::Json& value) {
    const auto all = models::find_model_def({{"model_type", type}}).tiny_configs();
    io::Json config = *std::find_if(all.begin(), all.end(),
                                    [&](const io::Json& one) { return one["model_type"] == type; });
    config[key] = value;
    INFO(type << " " << key);
    const std::string message = testing::refusal(ErrorKind::kMalformed, [&] {
      models::find_model_def(config).make(config, nn::Parameters::random(1));
    });
    CHECK(testing::contains(message, key));
  };
  refused("lfm2_moe", "num_experts", 0);
  refused("lfm2_moe", "num_experts_per_tok", 5);
  refused("lfm2_moe", "routed_scaling_factor", -1);
  refused("lfm2_moe", "use_expert_bias", 3);
  refused("lfm2_moe", "moe_intermediate_size", 0);
  refused("lfm2_moe", "layer_types", {"conv"});
  refused("ernie4_5_moe", "num_experts", 0);
  refused("ernie4_5_moe", "moe_num_shared_experts", -1);
  refused("ernie4_5_moe", "moe_norm_min", 2);
  refused("ernie4_5_moe", "mlp_only_layers", {7});
  refused("glm4_moe", "n_group", 3);
  refused("glm4_moe", "n_shared_experts", "one");
  refused("glm4_moe", "use_qk_norm", 1);
  refused("minimax_m2", "num_experts_per_tok", 5);
  refused("hunyuan_v1_moe", "num_experts_per_tok", 5);
  refused("exaone_moe", "n_group", 3);
  refused("exaone_moe", "layer_types", {"full_attention"});
  refused("dots1", "topk_group", 2);
  refused("bailing_moe_v2", "n_group", 3);
  refused("dots1", "sliding_window", -1);
}

TEST_CASE("sizes of Mamba-2 that do not fit are refused") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "granitemoehybrid"}});
  const auto all = def.tiny_configs();
  const io::Json config = *std::find_if(all.begin(), all.end(), [](const io::Json& one) {
    return one["model_type"] == "granitemoehybrid";
  });
  const auto refused = [&](const io::Json& keys, const char* why,
                           ErrorKind kind = ErrorKind::kMalformed) {
    io::Json wrong = config;
    wrong.update(keys);
    const std::string message =
        testing::refusal(kind, [&] { def.make(wrong, nn::Parameters::random(1)); });
    CAPTURE(message);
    CHECK(testing::contains(message, why));
  };
  refused({{"mamba_n_groups", 3}}, "mamba_n_heads 4 is not a multiple of mamba_n_groups 3");
  refused({{"mamba_d_head", 8}}, "4 of mamba_d_head 8 are not mamba_expand · hidden_size = 64");
  refused({{"mamba_n_heads", 1 << 30}}, "mamba_n_heads");
  refused({{"mamba_d_state", 0}}, "mamba_d_state");
  refused({{"mamba_d_conv", 1}}, "mamba_d_conv");
  refused({{"layer_types", {"mamba"}}}, "expected an array of 2 names, one per layer");
  refused({{"layer_types", {"mamba", "conv"}}}, "known: attention, mamba", ErrorKind::kUnsupported);
  refused({{"hidden_act", "gelu"}}, "hidden_act", ErrorKind::kUnsupported);
  for (const io::Json& limit : {io::Json(3), io::Json({0.1}), io::Json({1, 0.5}), io::Json({-1, 2}),
                                io::Json({0, "Infinity"})}) {
    refused({{"time_step_limit", limit}}, "time_step_limit");
  }
  io::Json unlimited = config;
  unlimited["time_step_limit"] = {0, {{"__float__", "Infinity"}}};
  CHECK_NOTHROW(def.make(unlimited, nn::Parameters::random(1)));
}

TEST_CASE("layers and multipliers of Nemotron-H and Falcon-H1 that do not fit are refused") {
  const auto refused = [](const char* type, size_t index, const io::Json& keys, const char* why,
                          ErrorKind kind = ErrorKind::kMalformed) {
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    io::Json wrong = def.tiny_configs()[index];
    wrong.update(keys);
    const std::string message =
        testing::refusal(kind, [&] { def.make(wrong, nn::Parameters::random(1)); });
    CAPTURE(message);
    CHECK(testing::contains(message, why));
  };
  const auto nemotron = [&](const auto&... rest) { refused("nemotron_h", 0, rest...); };
  nemotron(io::Json{{"n_groups", 3}}, "mamba_num_heads 4 is not a multiple of n_groups 3");
  nemotron(io::Json{{"num_hidden_layers", 3}}, "expected an array of 3 names, one per layer");
  nemotron(io::Json{{"mamba_hidden_act", "gelu"}}, "mamba_hidden_act", ErrorKind::kUnsupported);
  nemotron(io::Json{{"time_step_limit", {1, 0.5}}}, "time_step_limit");
  refused("nemotron_h", 2, {{"num_experts_per_tok", 5}}, "num_experts_per_tok");
  refused("nemotron_h", 2, {{"n_group", 3}}, "n_group 3");
  refused("nemotron_h", 2, {{"mlp_hidden_act", "silu"}}, "mlp_hidden_act", ErrorKind::kUnsupported);
  const auto falcon = [&](const auto&... rest) { refused("falcon_h1", 0, rest...); };
  falcon(io::Json{{"mamba_d_ssm", 32}}, "4 of mamba_d_head 6 are not mamba_d_ssm 32 numbers");
  falcon(io::Json{{"mlp_multipliers", {1, 2, 3}}}, "mlp_multipliers: found an array of 3");
  falcon(io::Json{{"ssm_multipliers", {1, 2, 3, 4, "5"}}}, "ssm_multipliers");
  falcon(io::Json{{"key_multiplier", "1"}}, "key_multiplier");
  falcon(io::Json{{"mamba_n_groups", 3}}, "mamba_n_heads 4 is not a multiple of mamba_n_groups 3");
}

TEST_CASE(
    "layers of OLMo Hybrid, Kimi Linear, Bamba, Mamba and Jamba that do not fit are refused") {
  const auto refused = [](const char* type, const io::Json& keys, const char* why,
                          ErrorKind kind = ErrorKind::kMalformed) {
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    io::Json wrong = def.tiny_configs()[0];
    wrong.update(keys);
    const std::string message =
        testing::refusal(kind, [&] { def.make(wrong, nn::Parameters::random(1)); });
    CAPTURE(type, message);
    CHECK(testing::contains(message, why));
  };
  refused("olmo_hybrid", {{"linear_num_value_heads", 3}},
          "linear_num_value_heads 3 is not a multiple of linear_num_key_heads 2");
  refused("olmo_hybrid", {{"layer_types", {"linear_attention", "sliding_attention"}}},
          "known: full_attention, linear_attention", ErrorKind::kUnsupported);
  refused("kimi_linear", {{"linear_conv_kernel_dim", 1}}, "linear_conv_kernel_dim");
  refused("kimi_linear", {{"n_group", 2}}, "n_group 2");
  refused("bamba", {{"mamba_d_head", 4}},
          "mamba_n_heads 8 of mamba_d_head 4 are not mamba_expand · hidden_size = 64 numbers");
  refused("bamba", {{"attn_layer_indices", {3}}}, "expected an array of layers below 3");
  refused("mamba", {{"conv_kernel", 1}}, "conv_kernel");
  refused("jamba", {{"num_experts_per_tok", 4}}, "num_experts_per_tok");
  for (const char* type : {"olmo_hybrid", "kimi_linear", "bamba", "mamba", "jamba"}) {
    refused(type, {{"hidden_act", "gelu"}}, "hidden_act 'gelu' is not supported in ",
            ErrorKind::kUnsupported);
  }
}

TEST_CASE("an unknown model_type names the nearest and the supported ones") {
  try {
    models::find_model_def({{"model_type", "qwen4"}});
    FAIL();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kUnsupported);
    CHECK(std::string(error.what()).find("nearest: qwen") != std::string::npos);
  }
}

TEST_CASE("a checkpoint with tensors that nobody asked for is refused") {
  NamedArrays arrays = {{"norm.weight", Array::zeros(DType::kF32, {2})},
                        {"lm_head.weight", Array::zeros(DType::kF32, {2})},
                        {"layers.0.rotary_emb.inv_freq", Array::zeros(DType::kF32, {2})}};
  auto check = [&] {
    const auto parameters = nn::Parameters::trainable(arrays);
    parameters.get("norm.weight", {2});
    models::check_tensors(parameters);
  };
  CHECK_NOTHROW(check());
  arrays["norm.bias"] = Array::zeros(DType::kF32, {2});
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported, check),
                          "'norm.bias' is not part of this architecture"));
}

TEST_CASE("an adapter with tensors that nobody asked for is refused by its name") {
  const auto parameters = nn::Parameters::from_checkpoint({}).with_lora(
      {.rank = 2}, {{"fc9.lora_A.weight", Array::zeros(DType::kF32, {2, 2})}}, "dir/a.gguf");
  CHECK(testing::refusal(ErrorKind::kMismatch, [&] { models::check_tensors(parameters); }) ==
        "adapter dir/a.gguf: tensor 'fc9.lora_A.weight' is not part of this architecture: results "
        "would be wrong");
}
