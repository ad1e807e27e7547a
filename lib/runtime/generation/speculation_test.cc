#include "lib/runtime/generation/speculation.h"

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::ByteTokenizer;
using testing::FakeModel;

std::vector<int32_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string guess(std::string_view text, int64_t most, int kind) {
  const auto ids = bytes(text);
  PromptLookup lookup;
  REQUIRE(lookup.look(ids) == kind);
  if (kind < 0) return "";
  const auto draft = lookup.draft(most);
  return {draft.begin(), draft.end()};
}

TEST_CASE("prompt lookup finds the longest of the last matches") {
  REQUIRE(guess("the cat and the c", 4, 2) == "at a");
  REQUIRE(guess("1abX 2abY 3ab", 2, 0) == "Y ");  // the later of two equals
  REQUIRE(guess("1abcX 2bcY abc", 1, 1) == "X");  // the longer before the later
  REQUIRE(guess("abcabc", 7, 1) == "abcabca");    // goes on repeating
  REQUIRE(guess("aaaa", 3, 1) == "aaa");          // a match may overlap the end
  for (const char* text : {"a", "ab", "abcd", "xb ab"}) guess(text, 4, -1);
}

TEST_CASE("a draft is as long as pays") {
  const auto cheap = [](int64_t tokens) { return 1 + 0.05 * static_cast<double>(tokens); };
  DraftLength length(7);
  REQUIRE(length.choose(0, 100) == 0);  // nothing was measured yet
  for (const int64_t tokens : {1, 2, 3, 4, 6, 8}) length.record_pass(tokens, cheap(tokens));
  for (int i = 0; i < 20; ++i) length.record(0, 5, false);
  REQUIRE(length.choose(0, 100) == 7);
  REQUIRE(length.choose(0, 4) == 3);  // never more than wanted, and of a prepared length
  REQUIRE(length.choose(0, 0) == 0);
  for (int i = 0; i < 60; ++i) length.record(1, 0, true);  // kinds are judged apart
  REQUIRE(length.choose(1, 100) == 0);
  REQUIRE(length.choose(0, 100) == 7);

  DraftLength short_ones(2);
  short_ones.record_pass(1, 1);
  REQUIRE(short_ones.choose(0, 100) <= 2);
}

TEST_CASE("drafts that do not pay rest ever longer, and are tried again") {
  DraftLength length(7);
  for (const int64_t tokens : {1, 2, 3, 4, 6, 8}) {
    length.record_pass(tokens, static_cast<double>(tokens));
  }
  std::vector<int> tries;
  for (int i = 0; i < 200; ++i) {
    const int64_t count = length.choose(0, 100);
    if (count == 0) continue;
    REQUIRE(count == 1);
    tries.push_back(i);
    length.record(0, 0, true);
  }
  REQUIRE(tries == std::vector<int>{16, 48, 112});
  // Now it pays: the next try shows it.
  for (int i = 0; i < 40; ++i) length.record(0, 3, false);
  for (int i = 0; i < 10; ++i) length.record_pass(2, 1);
  int64_t rest = 0;
  while (length.choose(0, 100) == 0) REQUIRE(++rest < 200);
  REQUIRE(length.choose(0, 100) == 1);
}

struct Told {
  GenerationResult result;
  size_t passes = 0;  // with drafts
  std::vector<int32_t> cached;
};

// What a model says that says `script`, by greedy decoding.
Told tell(const std::string& script, std::unique_ptr<Drafter> drafter,
          std::vector<std::string> stop = {}, std::optional<int64_t> max_tokens = {},
          const SamplingSettings& settings = {.temperature = 0}) {
  auto tokenizer = std::make_shared<ByteTokenizer>();
  FakeModel model(3000, {script});
  Generator generator(model, tokenizer, std::move(drafter));
  Sampler sampler(settings, model.vocab(), tokenizer);
  const GenerationOptions options{max_tokens, std::move(stop), {ByteTokenizer::kEos}};
  const auto prompt = tokenizer->encode("say it", {});
  Told told{generator.generate(prompt, sampler, options, false, [](std::string_view) {}), 0, {}};
  told.passes = model.verified.size();
  told.cached.assign(generator.cached().begin(), generator.cached().end());
  REQUIRE(told.cached == model.tokens);
  return told;
}

std::string poem() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += str("line ", i % 7 * i, " of a poem that goes on\n");
  return text;
}

TEST_CASE("drafts change neither text nor cache") {
  for (const std::optional<int64_t>& most :
       {std::optional<int64_t>(), std::optional<int64_t>(1), std::optional<int64_t>(301)}) {
    for (const char* stop : {"never", "line 36", "on\nline 5"}) {
      CAPTURE(stop, most.value_or(-1));
      const Told plain = tell(poem(), nullptr, {stop}, most);
      const Told drafted = tell(poem(), std::make_unique<PromptLookup>(), {stop}, most);
      REQUIRE(drafted.result.text == plain.result.text);
      REQUIRE(drafted.result.token_ids == plain.result.token_ids);
      REQUIRE(drafted.result.stop_reason == plain.result.stop_reason);
      REQUIRE(drafted.cached == plain.cached);
      REQUIRE(plain.passes == 0);
      REQUIRE(plain.result.drafted_tokens == 0);
      REQUIRE(drafted.result.accepted_tokens <= drafted.result.drafted_tokens);
    }
  }
  const Told drafted = tell(poem(), std::make_unique<PromptLookup>());
  REQUIRE(drafted.passes > 0);
  REQUIRE(drafted.result.accepted_tokens > 0);
}

TEST_CASE("drafts do not change what penalties and XTC make of a text") {
  // What a penalty depends on grows with each token of a draft that is right.
  const std::vector<std::pair<const char*, SamplingSettings>> cases = {
      {"presence", {.temperature = 0.7, .seed = 3, .presence_penalty = 0.5}},
      {"frequency, until the text breaks", {.temperature = 0, .frequency_penalty = 0.3}},
      {"frequency", {.temperature = 1.5, .seed = 3, .frequency_penalty = 0.1}},
      {"DRY",
       {.temperature = 0.7, .seed = 3, .dry = {.multiplier = 0.02, .base = 1.2, .last_n = 400}}},
      {"DRY, until the text breaks", {.temperature = 0, .dry = {.multiplier = 1, .last_n = 400}}},
      {"Mirostat", {.temperature = 0.7, .seed = 3, .mirostat = 2, .mirostat_ent = 0.5}},
      {"XTC", {.temperature = 3, .top_k = 3, .xtc_probability = 0.3, .xtc_threshold = 1e-9}}};
  for (const auto& [name, settings] : cases) {
    CAPTURE(name);
    const Told plain = tell(poem(), nullptr, {}, 600, settings);
    const Told drafted = tell(poem(), std::make_unique<PromptLookup>(), {}, 600, settings);
    REQUIRE(drafted.result.token_ids == plain.result.token_ids);
    REQUIRE(drafted.cached == plain.cached);
    REQUIRE(drafted.result.accepted_tokens > 0);
  }
}

TEST_CASE("a draft model is asked for what it would say") {
  const std::string script = poem();
  FakeModel draft(3000, {script});
  const Told drafted = tell(script, std::make_unique<DraftModel>(draft, ByteTokenizer::kSize));
  REQUIRE(drafted.result.text == script);
  REQUIRE(drafted.result.accepted_tokens > 0);
  FakeModel wrong(3000, {std::string(2000, 'z')});
  const Told misled = tell(script, std::make_unique<DraftModel>(wrong, ByteTokenizer::kSize));
  REQUIRE(misled.result.text == script);
  REQUIRE(misled.result.drafted_tokens > 0);
  REQUIRE(misled.result.accepted_tokens < 20);
}

TEST_CASE("a draft model has no guess for texts with tokens that it lacks") {
  FakeModel draft(100, {"text"});
  DraftModel drafter(draft, ByteTokenizer::kSize + 3);
  const auto last = static_cast<int32_t>(draft.vocab() - 1);
  for (const std::vector<int32_t>& text : {std::vector<int32_t>{'a', last}, {last, 'a'}}) {
    REQUIRE(drafter.look(text) == 0);
  }
  for (const std::vector<int32_t>& text : {std::vector<int32_t>{'a', last + 1}, {last + 1, 'a'}}) {
    REQUIRE(drafter.look(text) < 0);
  }
}

TEST_CASE("a draft model with another vocabulary is refused") {
  class Renamed : public ByteTokenizer {
   public:
    std::string_view token_text(int32_t id) const override {
      return id == kTurn ? "<end>" : ByteTokenizer::token_text(id);
    }
  };
  check_draft_vocabulary(ByteTokenizer(), ByteTokenizer());
  const std::string message = lumen::testing::refusal(
      ErrorKind::kMismatch, [] { check_draft_vocabulary(Renamed(), ByteTokenizer()); });
  REQUIRE(contains(message, "token 258 is '<end>', the model's '<turn>'"));
}

TEST_CASE("a real model says the same with drafts, greedily and with a seed") {
  RunOptions options;
  options.model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  options.max_tokens = 120;
  for (const double penalty : {0.0, 0.0, 0.1}) {
    const double temperature = options.sampling.temperature ? 0.9 : 0;
    CAPTURE(temperature, penalty);
    options.sampling.temperature = temperature;
    options.sampling.seed = 5;
    options.sampling.presence_penalty = options.sampling.dry_multiplier = penalty;
    std::vector<std::vector<int32_t>> answers;
    for (const int64_t lookup : {0, 7}) {
      options.lookup = lookup;
      Session session = load_session(options);
      Generator generator = make_generator(options, session);
      Sampler sampler = make_sampler(sampling_settings(options.sampling, session), session);
      const auto prompt = session.format.encode("one two three one two three one two");
      const GenerationOptions generation = {options.max_tokens, {}, {}};
      const auto result =
          generator.generate(prompt, sampler, generation, true, [](std::string_view) {});
      answers.push_back(result.token_ids);
    }
    REQUIRE(answers[0] == answers[1]);
  }
}

}  // namespace
}  // namespace lumen::runtime
