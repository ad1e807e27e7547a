// Models of which some layers keep a state of fixed size in place of keys and values, or beside
// them (Qwen3.5, Granite 4.0, Nemotron-H, Falcon-H1): what the runtime does with the cache of a
// text comes to the same there.
#include <algorithm>
#include <numeric>

#include "lib/base/relative_error.h"
#include "lib/base/strings.h"
#include "lib/base/testing.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/generation/prompt_cache.h"
#include "lib/runtime/generation/session.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::relative_error;

// A directory of a model with both kinds of layers, twice as many value heads as key heads.
std::string hybrid_directory(const char* type = "qwen3_5_text") {
  const models::ModelDef& def = models::find_model_def({{"model_type", type}});
  io::Json config = tiny_config(type);
  // Whole blocks of q8_0.
  if (config.contains("kv_lora_rank")) {
    config["kv_lora_rank"] = 28;
  } else if (config["num_attention_heads"] > 1) {
    config["head_dim"] = 32;
  }
  config["max_position_embeddings"] = 256;
  if (type == std::string_view("granitemoehybrid")) {
    config["num_local_experts"] = 0;
    config["mamba_n_groups"] = 2;
  }
  return model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
}

std::vector<int32_t> some_tokens(size_t count) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * i * 7 + i + 3) % 300);
  return ids;
}

std::vector<float> copied(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

// The answer of `model` without sampling to a prompt of `tokens`.
std::vector<int32_t> answer(Generator& generator, const Session& session,
                            std::span<const int32_t> tokens, int64_t* cached = nullptr) {
  SamplingOptions greedy;
  greedy.temperature = 0;
  Sampler sampler = make_sampler(sampling_settings(greedy, session), session);
  GenerationOptions options;
  options.max_tokens = 24;
  const auto result = generator.generate(tokens, sampler, options, false, [](std::string_view) {});
  if (cached) *cached = result.cached_tokens;
  return result.token_ids;
}

TEST_CASE("a hybrid model's tokens fed alone, in pieces and together give the same logits") {
  const char* const type = GENERATE(
      "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "granitemoehybrid", "nemotron_h", "mamba2",
      "falcon_h1", "olmo_hybrid", "kimi_linear", "bamba", "mamba", "falcon_mamba", "jamba");
  CAPTURE(type);
  const std::string directory = hybrid_directory(type);
  const std::vector<int32_t> ids = some_tokens(40);
  for (const DType kv : {DType::kF32, DType::kQ8_0}) {
    LoadOptions options;
    options.kv_type = kv;
    options.threads = 1;
    const auto model = LanguageModel::load(io::open_model(directory), options);
    LoadOptions two = options;
    two.threads = 2;
    const auto threaded = LanguageModel::load(io::open_model(directory), two);
    const double tolerance = kv == DType::kF32 ? 1e-5 : 2e-2;
    const std::vector<float> want = copied(model->feed(ids));
    CHECK(copied(threaded->feed(ids)) == want);
    // Shorter pieces than the convolution has taps, from a state that another text has left.
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{39}}) {
      CAPTURE(piece);
      model->rewind(0);
      std::vector<float> got;
      for (size_t at = 0; at < ids.size(); at += piece) {
        const size_t count = std::min(piece, ids.size() - at);
        got = copied(model->feed(std::span(ids).subspan(at, count)));
      }
      CHECK(relative_error(got, want) < tolerance);
    }
    CHECK_FALSE(model->keeps_positions());
    model->rewind(39);
    CHECK(model->position() == 0);
    CHECK(copied(model->feed(ids)) == want);
  }
}

TEST_CASE("texts of a hybrid model in slots of their own do not disturb each other") {
  const std::string directory = hybrid_directory(
      GENERATE("qwen3_5_text", "granitemoehybrid", "falcon_h1", "kimi_linear", "jamba"));
  constexpr size_t kSlots = 5;
  LoadOptions options;
  options.threads = 2;
  LoadOptions several = options;
  several.slots = kSlots;
  const auto model = LanguageModel::load(io::open_model(directory), several);
  const auto alone = LanguageModel::load(io::open_model(directory), options);
  const std::vector<int32_t> ids = some_tokens(60);
  std::vector<int32_t> slots = {3, 0, 4, 1, 2};
  for (const int round : {0, 1}) {  // the second begins in slots that have been used
    for (const int32_t slot : slots) {
      model->select(slot);
      model->rewind(0);
      model->feed(std::span(ids).first(static_cast<size_t>(1 + round + 2 * slot)));
    }
    for (const size_t active : {kSlots, size_t{3}, size_t{1}}) {
      const auto logits =
          model->step(std::span(slots).first(active), std::span(ids).subspan(30, active));
      const auto vocab = static_cast<size_t>(model->vocab());
      for (size_t i = 0; i < active; ++i) {
        CAPTURE(round, active, i);
        model->select(slots[i]);
        alone->rewind(0);
        alone->feed(std::span(ids).first(static_cast<size_t>(1 + round + 2 * slots[i])));
        std::span<const float> want;
        while (alone->position() < model->position()) {
          want = alone->feed(std::span(ids).subspan(30 + i, 1));
        }
        CHECK(copied(logits.subspan(i * vocab, vocab)) == copied(want));
      }
    }
  }
}

TEST_CASE("answers of a hybrid model are the same after other texts and with guesses asked for") {
  RunOptions options;
  options.model = hybrid_directory(
      GENERATE("qwen3_5_text", "granitemoehybrid", "falcon_h1", "kimi_linear", "jamba"));
  options.threads = 2;
  Session session = load_session(options);
  const std::vector<int32_t> first = some_tokens(30), other = {5, 9, 2};
  Generator generator = make_generator(options, session);
  const std::vector<int32_t> want = answer(generator, session, first);
  CHECK(want.size() == 24);
  // A text that goes on is not read again; one that parts from it is, from its beginning.
  std::vector<int32_t> longer = first;
  longer.insert(longer.end(), want.begin(), want.end());
  longer.push_back(17);
  int64_t cached = 0;
  const std::vector<int32_t> after = answer(generator, session, longer, &cached);
  CHECK(cached > static_cast<int64_t>(first.size()));
  answer(generator, session, other, &cached);
  CHECK(cached == 0);
  CHECK(answer(generator, session, first, &cached) == want);
  CHECK(cached == 0);
  CHECK(answer(generator, session, longer) == after);

  CHECK_FALSE(contains(join(session.notices, "; "), "is not used"));
  RunOptions guessing = options;
  guessing.lookup = 7;
  CHECK(contains(join(load_session(guessing).notices, "; "), "--lookup is not used: a recurrent"));
  Generator lookup = make_generator(guessing, session);
  session.model->rewind(0);
  CHECK(answer(lookup, session, first) == want);
  guessing.draft = options.model;
  Session with_draft = load_session(guessing);
  CHECK(with_draft.draft == nullptr);
  CHECK(contains(join(with_draft.notices, "; "), "--draft is not used: a recurrent model"));
  Generator drafting = make_generator(guessing, with_draft);
  CHECK(answer(drafting, with_draft, first) == want);

  const std::string file = lumen::testing::temporary_directory() + "/cache";
  save_prompt_cache(file, generator);
  CHECK_FALSE(io::is_regular_file(file));
  CHECK(contains(load_prompt_cache(file, generator), "--prompt-cache is not used"));
}

TEST_CASE("the states of a hybrid model count as part of its cache") {
  const std::string directory = hybrid_directory();
  LoadOptions options;
  options.context = 64;
  const auto bytes = [&](int64_t slots) {
    options.slots = slots;
    return LanguageModel::load(io::open_model(directory), options)->memory().kv_bytes;
  };
  // One layer with keys and values, 2 · 2 heads of 32 in f16; one with 3 past inputs of 2 · 2 · 6 +
  // 4 · 10 channels and 4 matrices of 6 × 10.
  CHECK(bytes(1) == 64 * 2 * 2 * 32 * 2 + 4 * (3 * 64 + 4 * 60));
  CHECK(bytes(3) == 3 * bytes(1));
}

}  // namespace
}  // namespace lumen::runtime
