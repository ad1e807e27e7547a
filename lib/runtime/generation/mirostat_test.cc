#include "lib/runtime/generation/mirostat.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/runtime/generation/sampler.h"

namespace lumen::runtime {
namespace {

SamplingSettings mirostat(int64_t version, double temperature, double target, double rate) {
  SamplingSettings settings;
  settings.temperature = temperature;
  settings.mirostat = version;
  settings.mirostat_ent = target;
  settings.mirostat_lr = rate;
  settings.seed = 7;
  settings.top_k = 1;  // does not count
  settings.top_n_sigma = 0.001;
  return settings;
}

// Random logits like a model's: most small, some large; `masked` of them −∞.
std::vector<float> uneven_logits(Philox& random, size_t count, size_t masked) {
  std::vector<float> logits;
  for (size_t i = 0; i < count; ++i) logits.push_back(static_cast<float>(2 * random.normal()));
  for (size_t i = 0; i < masked; ++i) {
    logits[random.below(count)] = -std::numeric_limits<float>::infinity();
  }
  return logits;
}

// The probabilities at a temperature.
std::vector<double> softmax_at(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double total = 0;
  for (const float logit : logits) p.push_back(std::exp(logit / temperature)), total += p.back();
  for (double& value : p) value /= total;
  return p;
}

TEST_CASE("Mirostat 2 keeps what surprises little enough, and learns how much that is") {
  Philox random(5);
  for (int round = 0; round < 20; ++round) {
    const auto logits = uneven_logits(random, 30, round % 3);
    const double target = 3 * random.uniform(), rate = random.uniform();
    const double temperature = 0.5 + random.uniform();
    const auto p = softmax_at(logits, temperature);
    Sampler sampler(mirostat(2, temperature, target, rate), 30);
    double mu = 2 * target;
    for (int i = 0; i < 50; ++i) {
      if (i % 10 == 0) {
        sampler.begin({});
        mu = 2 * target;
      }
      const auto id = static_cast<size_t>(sampler.sample(logits));
      const double most = *std::max_element(p.begin(), p.end());
      double left = 0;
      for (const double value : p) left += -std::log2(value) <= mu || value == most ? value : 0;
      CAPTURE(round, i, mu);
      REQUIRE((-std::log2(p[id]) <= mu + 1e-6 || p[id] == most));
      mu -= rate * (-std::log2(p[id] / left) - target);
    }
  }
}

// As llama.cpp computes it, of probabilities in falling order.
size_t kept_by_first_version(const std::vector<double>& p, double mu) {
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < std::min<size_t>(100, p.size()) && p[i + 1] > 0; ++i) {
    const double t = std::log(double(i + 2) / double(i + 1));
    products += t * std::log(p[i] / p[i + 1]);
    squares += t * t;
  }
  const double s = products / squares, epsilon = s - 1, n = double(p.size());
  const double k = std::pow(epsilon * std::pow(2, mu) / (1 - std::pow(n, -epsilon)), 1 / s);
  return static_cast<size_t>(std::clamp(k, 1.0, n));
}

TEST_CASE("Mirostat 1 draws from as many tokens as Zipf's law says, and learns how many that is") {
  Philox random(6);
  size_t least = 1000, most = 0;
  for (int round = 0; round < 40; ++round) {
    const size_t vocab = round % 4 == 0 ? 400 : 30;  // more and fewer than are looked at
    const auto logits = uneven_logits(random, vocab, round % 3);
    const double target = 4 * random.uniform(), rate = random.uniform();
    const double temperature = 0.5 + random.uniform();
    const auto p = softmax_at(logits, temperature);
    auto falling = p;
    std::sort(falling.rbegin(), falling.rend());
    Sampler sampler(mirostat(1, temperature, target, rate), static_cast<int64_t>(vocab));
    double mu = 2 * target;
    for (int i = 0; i < 60; ++i) {
      if (i % 20 == 0) {
        sampler.begin({});
        mu = 2 * target;
      }
      const size_t k = kept_by_first_version(falling, mu);
      const auto id = static_cast<size_t>(sampler.sample(logits));
      double left = 0;
      for (size_t j = 0; j < k; ++j) left += falling[j];
      CAPTURE(round, i, mu, k);
      REQUIRE(p[id] >= falling[k - 1]);
      mu -= rate * (-std::log2(p[id] / left) - target);
      least = std::min(least, k);
      most = std::max(most, k);
    }
  }
  REQUIRE(least == 1);
  REQUIRE(most == 400);
}

TEST_CASE("in the long run a token surprises by as much as was asked for") {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(static_cast<float>(-1.1 * std::log(i + 1.0)));
  for (const int64_t version : {1, 2}) {
    Sampler sampler(mirostat(version, 1, 4, 0.1), 1000);
    std::map<int32_t, int> counts;
    for (int i = 0; i < 20'000; ++i) ++counts[sampler.sample(logits)];
    double entropy = 0;
    for (const auto& [id, count] : counts) {
      const double p = count / 20'000.0;
      entropy -= p * std::log2(p);
    }
    CAPTURE(version);
    REQUIRE(entropy == Approx(4).margin(0.25));
  }
}

TEST_CASE("Mirostat 1 has an answer where its formula has none") {
  const float none = -std::numeric_limits<float>::infinity();
  const auto draws = [](const std::vector<float>& logits, double target) {
    Sampler sampler(mirostat(1, 1, target, 1), static_cast<int64_t>(logits.size()));
    std::map<int32_t, int> counts;
    for (int i = 0; i < 300; ++i) ++counts[sampler.sample(logits)];
    return counts;
  };
  REQUIRE(draws({7}, 1).size() == 1);  // ln N = 0
  REQUIRE(draws({none, 1, none}, 9) == std::map<int32_t, int>{{1, 300}});
  REQUIRE(draws({1, 1, 1, 1}, 1).size() == 4);  // s = 0, 2^μ > N − 1
  REQUIRE(draws({1, 1, 1, 1}, 0) == std::map<int32_t, int>{{0, 300}});
  REQUIRE(draws({90, 0, none}, 100) == std::map<int32_t, int>{{0, 300}});  // μ grows on and on
  std::vector<float> zipf;                                                 // s = 1
  for (int i = 0; i < 8; ++i) zipf.push_back(static_cast<float>(-std::log(i + 1.0)));
  REQUIRE(draws(zipf, 3).size() == 8);
}

}  // namespace
}  // namespace lumen::runtime
