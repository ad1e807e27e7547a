#include "lib/runtime/generation/dry.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"

namespace lumen::runtime {
namespace {

using testing::ByteTokenizer;

Dry make(const DrySettings& settings) {
  return Dry(settings, ByteTokenizer::kSize, std::make_shared<ByteTokenizer>());
}

std::vector<int32_t> tokens_of(const std::string& text) {
  return ByteTokenizer().encode(text, {.add_special = false});
}

// What DRY takes from the logits of the characters that may follow `text`.
std::map<char, double> penalties(const std::string& text, const DrySettings& settings) {
  Dry dry = make(settings);
  dry.begin(tokens_of(text));
  std::vector<float> logits(ByteTokenizer::kSize, 0.0f);
  dry.apply(logits);
  std::map<char, double> out;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] != 0) out[static_cast<char>(id)] = -logits[id];
  }
  return out;
}

// The definition, read literally: each earlier place that ends as the text does is followed back
// token by token, until tokens differ or the text has a breaker.
std::map<char, double> naive_penalties(std::string text, const DrySettings& settings) {
  const std::string whole = text;
  text = text.substr(text.size() - std::min(text.size(), static_cast<size_t>(settings.last_n)));
  const size_t cut = whole.size() - text.size();
  const auto is_breaker = [&](size_t at) {  // does one end with the byte there?
    return std::any_of(settings.breakers.begin(), settings.breakers.end(), [&](const auto& b) {
      return std::string_view(whole).substr(0, cut + at + 1).ends_with(b);
    });
  };
  std::map<char, int64_t> longest;
  const size_t n = text.size();
  for (size_t end = 1; end < n; ++end) {
    if (is_breaker(end)) continue;
    int64_t length = 0;
    for (size_t back = 1; back <= end; ++back, ++length) {
      if (text[end - back] != text[n - back] || is_breaker(n - back)) break;
    }
    int64_t& best = longest[text[end]];
    best = std::max(best, length);
  }
  std::map<char, double> out;
  for (const auto& [next, length] : longest) {
    if (length < settings.allowed_length) continue;
    out[next] = settings.multiplier *
                std::pow(settings.base, static_cast<double>(length - settings.allowed_length));
  }
  return out;
}

DrySettings with(double multiplier, std::vector<std::string> breakers = {}) {
  DrySettings settings;
  settings.multiplier = multiplier;
  settings.last_n = 1000;
  settings.breakers = std::move(breakers);
  return settings;
}

TEST_CASE("a token that prolongs a repetition is lowered, more so a longer one") {
  // "abc" was followed by d, and the last "bc" by e.
  const auto lowered = penalties("abcd bce abc", with(0.8));
  REQUIRE(lowered.size() == 2);
  REQUIRE(lowered.at('d') == Approx(0.8 * 1.75));
  REQUIRE(lowered.at('e') == Approx(0.8));
  REQUIRE(penalties("abcd xc", with(0.8)).empty());  // only one token is repeated
  DrySettings strict = with(0.8);
  strict.allowed_length = 1;
  REQUIRE(penalties("abcd xc", strict).at('d') == Approx(0.8));
  REQUIRE(penalties("", with(1)).empty());
  REQUIRE(penalties("a", with(1)).empty());
}

TEST_CASE("no repetition reaches beyond a breaker, however it is cut into tokens") {
  REQUIRE(penalties("ab:cd ab:c", with(1)).at('d') > 1);
  REQUIRE(penalties("ab:cd ab:c", with(1, {":"})).empty());
  REQUIRE(penalties("ab:cde ab:cd", with(1, {":"})).at('e') == Approx(1));
  REQUIRE(penalties("x--ab x--a", with(1, {"--"})).empty());
  REQUIRE(penalties("x--abc x--ab", with(1, {"--"})).at('c') == Approx(1));
  REQUIRE(penalties("x- -abc x- -ab", with(1, {"--"})).at('c') > 1);
  // What completes a breaker is not lowered.
  REQUIRE(penalties("ab: ab", with(1, {":"})).empty());
  // Control tokens are text, too.
  REQUIRE(penalties("ab<turn>cd ab<turn>c", with(1, {"<turn>"})).empty());
}

TEST_CASE("the linear search finds what the definition says, after every token") {
  Philox random(3);
  int64_t compared = 0, found = 0;
  for (int round = 0; round < 300; ++round) {
    DrySettings settings = with(0.5 + 0.5 * random.uniform());
    settings.base = 1 + random.uniform();
    settings.allowed_length = 1 + static_cast<int64_t>(random.below(4));
    settings.last_n = 1 + static_cast<int64_t>(random.below(60));
    if (random.below(2) == 0) settings.breakers.push_back("d");
    if (random.below(2) == 0) settings.breakers.push_back("ba");
    if (random.below(4) == 0) settings.breakers.push_back("bacb");
    const uint64_t letters = 1 + random.below(4);
    std::string text;
    const auto next = [&] {  // often what stood so many characters before
      const uint64_t distance = 1 + random.below(20);
      const bool repeats = distance <= text.size() && random.below(3) > 0;
      return repeats ? text[text.size() - distance]
                     : static_cast<char>('a' + random.below(letters));
    };
    for (uint64_t i = random.below(30); i > 0; --i) text += next();
    // Breakers that begin before the first token looked at are not seen: the naive search is told
    // of no more.
    const auto start = text.size() - std::min(text.size(), static_cast<size_t>(settings.last_n));
    text.erase(0, start);
    Dry dry = make(settings);
    dry.begin(tokens_of("forgotten"));
    dry.begin(tokens_of(text));
    for (int i = 0; i < 80; ++i) {
      std::vector<float> logits(ByteTokenizer::kSize, 1.0f);
      dry.apply(logits);
      const auto expected = naive_penalties(text, settings);
      CAPTURE(round, text, settings.allowed_length, settings.last_n);
      for (size_t id = 0; id < logits.size(); ++id) {
        const auto penalty = expected.find(static_cast<char>(id));
        const bool is_lowered = penalty != expected.end();
        const float logit = static_cast<float>(1 - (is_lowered ? penalty->second : 0));
        if (logits[id] != logit) REQUIRE(logits[id] == logit);
        found += is_lowered;
      }
      ++compared;
      text += next();
      dry.accept(static_cast<uint8_t>(text.back()));
    }
  }
  REQUIRE(compared == 300 * 80);
  REQUIRE(found > 10'000);
}

TEST_CASE("penalties beyond all numbers leave a finite logit") {
  DrySettings settings = with(100);
  settings.base = 100;
  Dry dry = make(settings);
  dry.begin(std::vector<int32_t>(900, 'a'));
  std::vector<float> logits(ByteTokenizer::kSize, 0.0f);
  dry.apply(logits);
  REQUIRE(std::isfinite(logits['a']));
  REQUIRE(logits['a'] < -1e29f);
}

TEST_CASE("a long text that repeats itself everywhere takes no square time") {
  constexpr int64_t kTokens = 1 << 17;
  DrySettings settings = with(1);
  settings.last_n = kTokens;
  for (const int period : {1, 2, 1000}) {
    Dry dry = make(settings);
    std::vector<int32_t> text;
    for (int i = 0; i < kTokens; ++i) text.push_back(i % period % 250);
    dry.begin(text);
    std::vector<float> logits(ByteTokenizer::kSize);
    double best = 1e9;
    for (int run = 0; run < 5; ++run) {
      const auto start = std::chrono::steady_clock::now();
      dry.apply(logits);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count());
    }
    // 1e10 comparisons would take seconds.
    CAPTURE(period, best);
    REQUIRE(best < 0.1);
  }
}

}  // namespace
}  // namespace lumen::runtime
