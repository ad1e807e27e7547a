#include "lib/runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "lib/base/error.h"
#include "lib/base/testing.h"

namespace lumen::runtime {
namespace {

// Everything off: the plain distribution.
SamplingSettings plain(double temperature = 1) {
  SamplingSettings settings;
  settings.temperature = temperature;
  settings.top_k = 0;
  settings.top_p = 1;
  settings.min_p = 0;
  settings.repeat_penalty = 1;
  settings.seed = 7;
  return settings;
}

std::map<int32_t, int> draw(Sampler& sampler, const std::vector<float>& logits, int times) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < times; ++i) ++counts[sampler.sample(logits)];
  return counts;
}

std::vector<float> log_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST_CASE("samples follow the probabilities") {
  const std::vector<double> p = {0.5, 0.25, 0.15, 0.1};
  Sampler sampler(plain(), 4);
  const int n = 40'000;
  auto counts = draw(sampler, log_of(p), n);
  for (int id = 0; id < 4; ++id) {
    const double sigma = std::sqrt(n * p[id] * (1 - p[id]));
    CAPTURE(id, counts[id]);
    REQUIRE(std::abs(counts[id] - n * p[id]) < 5 * sigma);
  }
}

TEST_CASE("temperature sharpens after the other filters") {
  const std::vector<double> p = {0.6, 0.4};
  Sampler sampler(plain(0.5), 2);  // p^2, normalised
  const int n = 40'000;
  const double expected = 0.36 / (0.36 + 0.16);
  REQUIRE(draw(sampler, log_of(p), n)[0] / double(n) == Approx(expected).margin(0.015));

  // min-p sees the probabilities before temperature: at 0.7 only the first would stay after it.
  SamplingSettings settings = plain(0.1);
  settings.min_p = 0.5;
  settings.seed = 1;
  Sampler filtered(settings, 3);
  const auto counts = draw(filtered, log_of({0.4, 0.39, 0.01}), 2000);
  REQUIRE(counts.count(1) == 1);
  REQUIRE(counts.count(2) == 0);
}

TEST_CASE("temperature 0 takes the largest logit, the lowest id among equals") {
  SamplingSettings settings;
  settings.temperature = 0;
  Sampler sampler(settings, 5);
  REQUIRE(sampler.sample(std::vector<float>{1, 3, 2, 3, 0}) == 1);
  const float none = -std::numeric_limits<float>::infinity();
  REQUIRE(sampler.sample(std::vector<float>{none, none, none, none, -5}) == 4);
}

TEST_CASE("top-k keeps exactly k tokens") {
  SamplingSettings settings = plain();
  settings.top_k = 2;
  Sampler sampler(settings, 4);
  const auto counts = draw(sampler, {1, 1, 1, 1}, 2000);  // ties: lower ids stay
  REQUIRE(counts.size() == 2);
  REQUIRE(counts.count(0) == 1);
  REQUIRE(counts.count(1) == 1);
  settings.top_k = 1'000'000;
  Sampler all(settings, 4);
  REQUIRE(draw(all, {1, 1, 1, 1}, 2000).size() == 4);
}

TEST_CASE("top-p keeps the fewest tokens that reach p, in a large vocabulary too") {
  SamplingSettings settings = plain();
  settings.top_p = 0.75;
  Sampler sampler(settings, 4);
  REQUIRE(draw(sampler, log_of({0.1, 0.5, 0.15, 0.25}), 2000).size() == 2);
  settings.top_p = 0;
  Sampler only_first(settings, 4);
  REQUIRE(draw(only_first, log_of({0.1, 0.5, 0.15, 0.25}), 200).size() == 1);

  // 10,000 equal tokens and p = 1/2: half of them, by id, whatever pieces were sorted.
  settings.top_p = 0.5;
  Sampler large(settings, 10'000);
  const std::vector<float> logits(10'000, 1.0f);
  int32_t highest = 0;
  for (int i = 0; i < 300; ++i) highest = std::max(highest, large.sample(logits));
  REQUIRE(highest < 5001);
  REQUIRE(highest > 4700);
}

TEST_CASE("top-p counts within what top-k left") {
  SamplingSettings settings = plain();
  settings.top_k = 2;
  settings.top_p = 0.6;  // of 0.4 and 0.3: 0.57 and 0.43, so both stay
  Sampler sampler(settings, 4);
  REQUIRE(draw(sampler, log_of({0.4, 0.3, 0.2, 0.1}), 2000).size() == 2);
}

TEST_CASE("the repeat penalty lowers positive and negative logits") {
  SamplingSettings settings = plain(0);
  settings.repeat_penalty = 2;
  Sampler sampler(settings, 3);
  sampler.accept(0);
  REQUIRE(sampler.sample(std::vector<float>{4, 3, 1}) == 1);
  REQUIRE(sampler.sample(std::vector<float>{-1, -1.5f, -9}) == 1);
  sampler.accept(0);  // twice in the window counts once: 4 / 2 > 1.9
  REQUIRE(sampler.sample(std::vector<float>{4, 1.9f, 1}) == 0);
  for (int i = 0; i < SamplingSettings::kRepeatWindow; ++i) sampler.accept(2);
  REQUIRE(sampler.sample(std::vector<float>{4, 3, 1}) == 0);  // 0 has left the window
  sampler.begin(std::vector<int32_t>{0});
  REQUIRE(sampler.sample(std::vector<float>{4, 3, 1}) == 1);
}

TEST_CASE("the same seed draws the same tokens, another seed others") {
  const std::vector<float> logits(100, 0.0f);
  auto sequence = [&](uint64_t seed) {
    SamplingSettings settings = plain();
    settings.seed = seed;
    Sampler sampler(settings, 100);
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.sample(logits));
    return ids;
  };
  REQUIRE(sequence(1) == sequence(1));
  REQUIRE(sequence(1) != sequence(2));
}

TEST_CASE("logits that are no numbers are refused") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const auto& logits : {std::vector<float>{1, nan, 2}, {1, inf, 2}, {-inf, -inf, -inf}}) {
    for (const double temperature : {0.0, 1.0}) {
      Sampler sampler(plain(temperature), 3);
      try {
        sampler.sample(logits);
        FAIL();
      } catch (const Error& error) {
        REQUIRE(error.kind() == ErrorKind::kMalformed);
      }
    }
  }
  Sampler sampler(plain(), 3);
  REQUIRE(sampler.sample(std::vector<float>{-inf, 0, -inf}) == 1);
}

TEST_CASE("settings come from flags, then the model, then the defaults") {
  const io::Json model = {{"temperature", 0.6}, {"top_k", 20}, {"repetition_penalty", 1.1}};
  SamplingOptions options;
  options.seed = 5;
  options.top_k = 3;
  const auto settings = resolve_sampling(options, model);
  REQUIRE(settings.temperature == 0.6);
  REQUIRE(settings.top_k == 3);
  REQUIRE(settings.repeat_penalty == 1.1);
  REQUIRE(settings.top_p == SamplingSettings().top_p);
  REQUIRE(settings.seed == 5);

  const io::Json greedy = {{"do_sample", false}, {"temperature", 0.6}};
  REQUIRE(resolve_sampling(options, greedy).temperature == 0);
  options.temperature = 0.9;
  REQUIRE(resolve_sampling(options, greedy).temperature == 0.9);
  CHECK(lumen::testing::contains(lumen::testing::refusal(ErrorKind::kMalformed,
                                                         [] {
                                                           resolve_sampling({}, {{"top_p", 7}});
                                                         }),
                                 "generation_config.json: key 'top_p'"));
  options.top_p = 0.5;
  REQUIRE(resolve_sampling(options, {{"top_p", 7}}).top_p == 0.5);
}

}  // namespace
}  // namespace lumen::runtime
