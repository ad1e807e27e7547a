#include "lib/runtime/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/runtime/generation/fake_model.h"

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
  for (int i = 0; i < settings.repeat_last_n; ++i) sampler.accept(2);
  REQUIRE(sampler.sample(std::vector<float>{4, 3, 1}) == 0);  // 0 has left the window
  sampler.begin(std::vector<int32_t>{0});
  REQUIRE(sampler.sample(std::vector<float>{4, 3, 1}) == 1);
}

// Random logits like a model's: most small, some large; `masked` of them −∞.
std::vector<float> random_logits(Philox& random, size_t count, size_t masked = 0) {
  std::vector<float> logits;
  for (size_t i = 0; i < count; ++i) logits.push_back(static_cast<float>(2 * random.normal()));
  for (size_t i = 0; i < masked; ++i) {
    logits[random.below(count)] = -std::numeric_limits<float>::infinity();
  }
  return logits;
}

// The tokens that the filters leave: the temperature that comes after them makes all about equal.
std::set<int32_t> kept(SamplingSettings settings, const std::vector<float>& logits) {
  settings.temperature = 100;
  Sampler sampler(settings, static_cast<int64_t>(logits.size()));
  std::set<int32_t> ids;
  for (const auto& [id, count] : draw(sampler, logits, 40 * static_cast<int>(logits.size()))) {
    ids.insert(id);
  }
  return ids;
}

std::vector<double> softmax(const std::vector<float>& logits) {
  std::vector<double> p;
  double total = 0;
  for (const float logit : logits) p.push_back(std::exp(logit)), total += p.back();
  for (double& value : p) value /= total;
  return p;
}

// All ids, those with the smallest keys first.
template <typename Key>
std::vector<int32_t> ids_by(size_t count, Key key) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(i);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
  return ids;
}

TEST_CASE("typical-p keeps the tokens nearest to the expected surprise") {
  Philox random(1);
  for (int round = 0; round < 40; ++round) {
    // More tokens than are sorted at first, in some rounds.
    const auto logits = random_logits(random, round % 4 == 0 ? 300 : 30, round % 3);
    SamplingSettings settings = plain();
    settings.typical_p = 0.05 + 0.9 * random.uniform();
    const auto p = softmax(logits);
    double entropy = 0;
    for (const double value : p) entropy -= value > 0 ? value * std::log(value) : 0;
    const auto surprise = [&](int32_t id) { return std::abs(-std::log(p[id]) - entropy); };
    std::set<int32_t> expected;
    double sum = 0;
    for (const int32_t id : ids_by(logits.size(), surprise)) {
      if (sum >= settings.typical_p) break;
      expected.insert(id);
      sum += p[id];
    }
    CAPTURE(round, settings.typical_p);
    REQUIRE(kept(settings, logits) == expected);
  }
  // The likeliest token may be too likely to be typical.
  SamplingSettings settings = plain();
  settings.typical_p = 0.3;
  const auto logits = log_of({0.4, 0.12, 0.12, 0.12, 0.12, 0.12});
  REQUIRE(kept(settings, logits) == std::set<int32_t>{1, 2, 3});
  settings.top_k = 1;  // comes first
  REQUIRE(kept(settings, logits) == std::set<int32_t>{0});
}

TEST_CASE("top-n-sigma keeps what is within n standard deviations of the largest logit") {
  Philox random(2);
  for (int round = 0; round < 40; ++round) {
    const auto logits = random_logits(random, 30, round % 3);
    SamplingSettings settings = plain();
    settings.top_n_sigma = 0.1 + 2 * random.uniform();
    std::vector<float> finite;
    std::copy_if(logits.begin(), logits.end(), std::back_inserter(finite),
                 [](float logit) { return std::isfinite(logit); });
    double mean = 0, variance = 0;
    for (const float logit : finite) mean += logit / double(finite.size());
    for (const float logit : finite) {
      variance += (logit - mean) * (logit - mean) / double(finite.size());
    }
    const float largest = *std::max_element(logits.begin(), logits.end());
    std::set<int32_t> expected;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (logits[id] >= largest - settings.top_n_sigma * std::sqrt(variance)) {
        expected.insert(static_cast<int32_t>(id));
      }
    }
    CAPTURE(round, settings.top_n_sigma);
    REQUIRE(kept(settings, logits) == expected);
    settings.top_k = 3;  // has fewer to choose from
    REQUIRE(kept(settings, logits).size() == std::min<size_t>(3, expected.size()));
  }
  SamplingSettings settings = plain();
  settings.top_n_sigma = 1;
  REQUIRE(kept(settings, {1, 1, 1}).size() == 3);
  // A token that is lowered far does not widen what counts as near the largest, but what is near it
  // is measured without that token.
  const std::vector<float> logits = {9, 8.5f, 1, 0, 1, 0, 1, 0};
  REQUIRE(kept(settings, logits) == std::set<int32_t>{0, 1});
  settings.logit_bias = {{0, -1000}, {3, -1000}};
  REQUIRE(kept(settings, logits) == std::set<int32_t>{1});
}

TEST_CASE("XTC leaves only the least likely of the likely tokens") {
  Philox random(4);
  for (int round = 0; round < 40; ++round) {
    const auto logits = random_logits(random, 20, round % 3);
    SamplingSettings settings = plain();
    settings.xtc_probability = 1;
    settings.xtc_threshold = 0.3 * random.uniform() * (round % 5 > 0 ? 1 : 0);
    const auto p = softmax(logits);
    std::set<int32_t> expected;
    for (size_t id = 0; id < p.size(); ++id) {
      if (p[id] > 0) expected.insert(static_cast<int32_t>(id));
    }
    const auto sorted = ids_by(p.size(), [&](int32_t id) { return -p[id]; });
    for (size_t i = 0; i + 1 < sorted.size(); ++i) {
      const double next = p[sorted[i + 1]];
      if (next > 0 && next >= settings.xtc_threshold) expected.erase(sorted[i]);
    }
    CAPTURE(round, settings.xtc_threshold);
    REQUIRE(kept(settings, logits) == expected);
  }
  SamplingSettings settings = plain();
  settings.xtc_probability = 1;
  REQUIRE(kept(settings, log_of({0.3, 0.3, 0.3, 0.05, 0.05})) == std::set<int32_t>{2, 3, 4});
  settings.top_k = 2;  // comes first
  REQUIRE(kept(settings, log_of({0.3, 0.3, 0.3, 0.05, 0.05})) == std::set<int32_t>{1});
}

TEST_CASE("XTC happens as often as asked and takes no random numbers from the draws") {
  const std::vector<float> logits = log_of({0.5, 0.3, 0.2});
  SamplingSettings settings = plain();
  Sampler without(settings, 3);
  settings.xtc_probability = 0.25;
  Sampler with(settings, 3);
  const int n = 20'000;
  int excluded = 0;
  for (int i = 0; i < n; ++i) {
    const int32_t usual = without.sample(logits), token = with.sample(logits);
    REQUIRE((token == usual || token == 2));
    excluded += token != usual;
  }
  REQUIRE(excluded / double(n) == Approx(0.25 * 0.8).margin(0.015));
}

TEST_CASE("repeat-last-n says how far back the repeat penalty looks") {
  SamplingSettings settings = plain(0);
  settings.repeat_penalty = 2;
  const auto next = [&](int64_t last_n) {
    settings.repeat_last_n = last_n;
    Sampler sampler(settings, 3);
    sampler.begin(std::vector<int32_t>{0, 2, 2});
    sampler.accept(2);
    return sampler.sample(std::vector<float>{4, 3, 1});
  };
  REQUIRE(next(0) == 0);
  REQUIRE(next(3) == 0);
  REQUIRE(next(4) == 1);
  REQUIRE(next(100) == 1);
  SamplingOptions options;
  options.repeat_last_n = -1;
  REQUIRE(resolve_sampling(options, io::Json::object()).repeat_last_n == limits::kContext);
  REQUIRE(resolve_sampling({}, io::Json::object()).repeat_last_n == 64);
}

TEST_CASE("dynamic temperature is low where one token is likely and high where all are") {
  const int n = 40'000;
  for (const auto& p : {std::vector<double>{0.5, 0.5}, {0.9, 0.1}, {0.5, 0.25, 0.15, 0.1}}) {
    for (const double exponent : {1.0, 2.5}) {
      SamplingSettings settings = plain(1);
      settings.dynatemp_range = 0.6;
      settings.dynatemp_exp = exponent;
      double entropy = 0;
      for (const double value : p) entropy -= value * std::log(value);
      const double share = entropy / std::log(static_cast<double>(p.size()));
      const double temperature = 0.4 + 1.2 * std::pow(share, exponent);
      double total = 0;
      for (const double value : p) total += std::pow(value, 1 / temperature);
      const double expected = std::pow(p[0], 1 / temperature) / total;
      Sampler sampler(settings, static_cast<int64_t>(p.size()));
      CAPTURE(p, exponent);
      REQUIRE(draw(sampler, log_of(p), n)[0] / double(n) == Approx(expected).margin(0.015));
    }
  }
  SamplingSettings settings = plain(1);
  settings.dynatemp_range = 5;  // from 0 on
  Sampler wide(settings, 3);
  const float none = -std::numeric_limits<float>::infinity();
  REQUIRE(draw(wide, {1, none, none}, 100).size() == 1);
  REQUIRE(draw(wide, {90, 1, 2}, 100) == std::map<int32_t, int>{{0, 100}});
  settings.temperature = 0;
  Sampler greedy(settings, 3);
  REQUIRE(draw(greedy, {1, 1.1f, 1}, 100) == std::map<int32_t, int>{{1, 100}});
}

// What a sampler whose steps are done one after the other, as they are written down, leaves.
std::set<int32_t> left_by(const SamplingSettings& settings, const std::vector<float>& logits) {
  std::map<int32_t, double> left;
  for (size_t i = 0; i < logits.size(); ++i) left[static_cast<int32_t>(i)] = logits[i];
  double mean = 0, variance = 0, divisor = 1;
  for (const float logit : logits) mean += logit / double(logits.size());
  for (const float logit : logits) {
    variance += (logit - mean) * (logit - mean) / double(logits.size());
  }
  for (const SamplingStep step : settings.steps) {
    double total = 0, entropy = 0, most = -1e9;
    for (const auto& [id, logit] : left) total += std::exp(logit), most = std::max(most, logit);
    const auto p = [&](int32_t id) { return std::exp(left.at(id)) / total; };
    std::vector<int32_t> ids;
    for (const auto& [id, logit] : left) ids.push_back(id), entropy -= p(id) * std::log(p(id));
    const auto sort_by = [&](auto key) {
      std::stable_sort(ids.begin(), ids.end(),
                       [&](int32_t a, int32_t b) { return key(a) < key(b); });
    };
    sort_by([&](int32_t id) { return -p(id); });
    const auto keep_share = [&](double share) {
      size_t count = 0;
      for (double sum = 0; count < ids.size() && sum < share; ++count) sum += p(ids[count]);
      ids.resize(count);
    };
    if (step == SamplingStep::kTopK && settings.top_k < static_cast<int64_t>(ids.size())) {
      ids.resize(static_cast<size_t>(settings.top_k));
    } else if (step == SamplingStep::kTopP) {
      keep_share(settings.top_p);
    } else if (step == SamplingStep::kTypical) {
      sort_by([&](int32_t id) { return std::abs(-std::log(p(id)) - entropy); });
      keep_share(settings.typical_p);
    } else if (step == SamplingStep::kMinP) {
      const double largest = p(ids[0]);
      std::erase_if(ids, [&](int32_t id) { return p(id) < settings.min_p * largest; });
    } else if (step == SamplingStep::kXtc) {
      while (ids.size() > 1 && p(ids[1]) >= settings.xtc_threshold) ids.erase(ids.begin());
    } else if (step == SamplingStep::kTopNSigma) {
      std::erase_if(ids, [&](int32_t id) {
        return left.at(id) < most - settings.top_n_sigma * std::sqrt(variance) / divisor;
      });
    } else if (step == SamplingStep::kTemperature) {
      divisor *= settings.temperature;
      for (auto& [id, logit] : left) logit /= settings.temperature;
    } else if (step == SamplingStep::kPenalties) {  // of the token 0, once
      if (left.count(0)) left[0] -= settings.presence_penalty;
    }
    std::map<int32_t, double> next;
    for (const int32_t id : ids) next[id] = left.at(id);
    left = next;
  }
  std::set<int32_t> ids;
  for (const auto& [id, logit] : left) ids.insert(id);
  return ids;
}

TEST_CASE("the steps come in the order that is asked for") {
  Philox random(8);
  int differ = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits;
    for (int i = 0; i < 9; ++i) logits.push_back(static_cast<float>(0.5 * random.normal()));
    SamplingSettings settings = plain(0.7 + random.uniform());
    settings.top_n_sigma = 1 + random.uniform();
    settings.top_k = static_cast<int64_t>(4 + random.below(5));
    settings.typical_p = 0.6 + 0.4 * random.uniform();
    settings.top_p = 0.6 + 0.4 * random.uniform();
    settings.min_p = 0.2 * random.uniform();
    settings.xtc_probability = 1;
    settings.xtc_threshold = 0.1 + 0.2 * random.uniform();
    settings.presence_penalty = 0.7;
    const auto usual = left_by(settings, logits);
    auto& steps = settings.steps;
    for (size_t i = steps.size() - 1; i > 0; --i) std::swap(steps[i], steps[random.below(i + 1)]);
    steps.resize(1 + random.below(steps.size()));
    Sampler sampler(settings, 9);
    sampler.accept(0);
    std::set<int32_t> drawn;
    for (const auto& [id, count] : draw(sampler, logits, 3000)) drawn.insert(id);
    CAPTURE(round, names(steps), logits);
    const auto expected = left_by(settings, logits);
    REQUIRE(drawn == expected);
    differ += expected != usual;
  }
  REQUIRE(differ > 100);
}

TEST_CASE("a temperature before other steps changes what these see") {
  SamplingSettings settings = plain(3);
  settings.min_p = 0.5;
  const auto logits = log_of({0.6, 0.2, 0.15, 0.05});
  const auto kept_in = [&](std::vector<SamplingStep> steps) {
    settings.steps = std::move(steps);
    Sampler sampler(settings, 4);
    return draw(sampler, logits, 2000).size();
  };
  REQUIRE(kept_in({SamplingStep::kMinP, SamplingStep::kTemperature}) == 1);
  REQUIRE(kept_in({SamplingStep::kTemperature, SamplingStep::kMinP}) == 3);
  REQUIRE(kept_in({}) == 4);
  // However cold, the likelier of two stays the likelier.
  settings.temperature = 1e-30;
  REQUIRE(kept_in({SamplingStep::kTemperature, SamplingStep::kMinP}) == 1);
  settings.temperature = 0;
  REQUIRE(kept_in({}) == 1);
}

TEST_CASE("presence and frequency penalties count the answer, not the prompt") {
  SamplingSettings settings = plain(0);
  settings.presence_penalty = 1;
  settings.frequency_penalty = 0.25;
  Sampler sampler(settings, 4);
  const auto next = [&](const std::vector<float>& logits) { return sampler.sample(logits); };
  sampler.begin(std::vector<int32_t>{0, 0, 0, 0});
  REQUIRE(next({3, 2.9f, 0, 0}) == 0);
  sampler.accept(0);
  REQUIRE(next({3, 1.74f, 0, 0}) == 0);  // 3 − 1 − 0.25
  REQUIRE(next({3, 1.76f, 0, 0}) == 1);
  for (int i = 1; i < 1000; ++i) sampler.accept(0);  // all of the answer counts
  REQUIRE(next({0, -250.9f, -260, -260}) == 1);
  REQUIRE(next({0, -251.1f, -260, -260}) == 0);
  sampler.begin(std::vector<int32_t>{0});
  REQUIRE(next({3, 2.9f, 0, 0}) == 0);
  sampler.accept(0);
  REQUIRE(next({3, 1.74f, 0, 0}) == 0);
  REQUIRE(next({3, 1.76f, 0, 0}) == 1);
  settings.presence_penalty = settings.frequency_penalty = -1;  // asks for repetition
  Sampler repeating(settings, 4);
  repeating.accept(2);
  REQUIRE(repeating.sample(std::vector<float>{1, 1, 0, 0}) == 2);
}

TEST_CASE("biases and penalties matter to greedy decoding too, in their order; XTC does not") {
  SamplingSettings settings = plain(0);
  settings.xtc_probability = 1;
  settings.xtc_threshold = 0;
  settings.typical_p = 0;
  const std::vector<float> logits = {2, 3, 1};
  REQUIRE(Sampler(settings, 3).sample(logits) == 1);
  settings.logit_bias = {{1, -std::numeric_limits<double>::infinity()}, {2, 1.5}};
  REQUIRE(Sampler(settings, 3).sample(logits) == 2);
  // The repeat penalty sees the biased logit: −1 · 2, not 1 / 2 − 2.
  settings.logit_bias = {{2, -2}};
  settings.repeat_penalty = 2;
  Sampler repeating(settings, 3);
  repeating.accept(2);
  REQUIRE(repeating.sample(std::vector<float>{-1.9f, -9, 1}) == 0);
  settings = plain(0);
  settings.dry.multiplier = 5;
  settings.dry.last_n = 10;
  settings.dry.breakers = {};
  Sampler dry(settings, 3);
  dry.begin(std::vector<int32_t>{0, 0, 1, 2});
  for (const int32_t token : {0, 0}) dry.accept(token);
  REQUIRE(dry.sample(logits) == 0);
}

TEST_CASE("biases that forbid everything are told") {
  SamplingSettings settings = plain();
  settings.logit_bias = {{0, -std::numeric_limits<double>::infinity()}};
  const float none = -std::numeric_limits<float>::infinity();
  REQUIRE(Sampler(settings, 2).sample(std::vector<float>{9, 1}) == 1);
  REQUIRE(lumen::testing::contains(
      lumen::testing::refusal(ErrorKind::kMalformed,
                              [&] {
                                Sampler(settings, 2).sample(std::vector<float>{9, none});
                              }),
      "forbids every token"));
}

// scripts/make_sampling_goldens.py has what the cases hold. Presence and frequency penalties count
// what the answer has, there the whole text: here that is all answer.
TEST_CASE("logits become what llama.cpp's samplers make of them") {
  const auto document =
      io::read_json(lumen::testing::source_path("testdata/goldens/sampling.json"), {});
  int filters = 0, penalties = 0;
  for (const io::Json& item : document["cases"]) {
    SamplingOptions options;
    options.temperature = 0;
    options.top_k = 0;
    options.top_p = 1;
    options.min_p = 0;
    options.dry_sequence_breakers.emplace();
    auto fields = options.fields();
    for (const auto& [key, value] : item.items()) {
      if (value.is_number()) find_field(fields, key).set(value.dump());
    }
    CAPTURE(item.dump());
    SamplingSettings settings = resolve_sampling(options, io::Json::object());
    const auto logits = item["logits"].get<std::vector<float>>();
    if (item.contains("kept")) {
      REQUIRE(kept(settings, logits) == item["kept"].get<std::set<int32_t>>());
      ++filters;
      continue;
    }
    settings.dry.last_n = std::min<int64_t>(settings.dry.last_n, 1000);
    const auto result = item["result"].get<std::vector<float>>();
    // A token that is not in the text stands beside each in turn: which of the two is larger?
    for (size_t id = 0; id < logits.size(); ++id) {
      for (const float more : {-1e-4f, 1e-4f}) {
        std::vector<float> pair(logits.size() + 1, -1e6f);
        pair[id] = logits[id];
        pair.back() = result[id] + more * std::max(1.0f, std::abs(result[id]));
        Sampler sampler(settings, static_cast<int64_t>(pair.size()));
        for (const io::Json& token : item["tokens"]) sampler.accept(token.get<int32_t>());
        CAPTURE(id, more);
        REQUIRE(sampler.sample(pair) == static_cast<int32_t>(more < 0 ? id : logits.size()));
      }
    }
    ++penalties;
  }
  REQUIRE(filters == 36);
  REQUIRE(penalties == 36);
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

}  // namespace
}  // namespace lumen::runtime
