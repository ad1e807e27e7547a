#include <cmath>
#include <numbers>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/nn/decoder.h"

using namespace lumen;

namespace {

std::vector<float> frequencies(const io::Json& config, int64_t head_dim) {
  const Array array = nn::Rope(config, head_dim).frequencies.eval();
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

}  // namespace

TEST_CASE("rotary frequencies: default, linear and theta") {
  const auto plain = frequencies({{"rope_theta", 10000.0}}, 8);
  REQUIRE(plain.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(plain[i] == Approx(std::pow(10000.0, -i / 4.0)));
  const auto linear = frequencies(
      {{"rope_theta", 10000.0}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}, 8);
  for (int i = 0; i < 4; ++i) CHECK(linear[i] == Approx(plain[i] / 4));
}

TEST_CASE("llama3 scaling keeps short wavelengths and divides long ones") {
  const io::Json config = {{"rope_theta", 500000.0},
                           {"rope_scaling",
                            {{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8192}}}};
  const auto plain = frequencies({{"rope_theta", 500000.0}}, 128);
  const auto scaled = frequencies(config, 128);
  int ramped = 0;
  for (int i = 0; i < 64; ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 2048) {
      CHECK(scaled[i] == Approx(plain[i]));
    } else if (wavelength > 8192) {
      CHECK(scaled[i] == Approx(plain[i] / 8));
    } else {
      ++ramped;
      CHECK(scaled[i] < plain[i]);
      CHECK(scaled[i] > plain[i] / 8);
    }
  }
  CHECK(ramped > 2);
  const std::vector<float> divisors = nn::rope_divisors(config, 128);
  REQUIRE(divisors.size() == 64);
  for (size_t i = 0; i < 64; ++i) CHECK(plain[i] / divisors[i] == Approx(scaled[i]));
  CHECK(divisors.front() == 1);
  CHECK(divisors.back() == 8);
  CHECK(nn::rope_divisors({{"rope_theta", 500000.0}}, 128).empty());
  for (const int64_t dim : {128, 64, 32, 16, 4}) {
    for (const double factor : {8.0, 32.0}) {
      io::Json any = config;
      any["rope_scaling"]["factor"] = factor;
      const std::vector<float> wanted = nn::rope_divisors(any, dim);
      const io::Json found = nn::llama3_scaling({{"rope_theta", 500000.0}}, wanted);
      if (dim > 16) CHECK(found == any["rope_scaling"]);
      const std::vector<float> again =
          nn::rope_divisors({{"rope_theta", 500000.0}, {"rope_scaling", found}}, dim);
      REQUIRE(again.size() == wanted.size());
      for (size_t i = 0; i < again.size(); ++i) CHECK(again[i] == Approx(wanted[i]));
    }
  }
  for (const std::vector<float>& other :
       {std::vector<float>{}, {1, 1, 1}, {8, 1, 8}, {1, 2, 3}, {1, NAN}, {1, 0}}) {
    CHECK(nn::llama3_scaling(config, other).is_null());
  }
}

TEST_CASE("yarn keeps fast dimensions, divides slow ones and scales attention") {
  const io::Json config = {
      {"rope_theta", 1e6},
      {"max_position_embeddings", 131072},
      {"rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}}};
  const auto plain = frequencies({{"rope_theta", 1e6}}, 64);
  const auto scaled = frequencies(config, 64);
  CHECK(scaled.front() == Approx(plain.front()));
  CHECK(scaled.back() == Approx(plain.back() / 4));
  CHECK(nn::Rope(config, 64).attention_factor == Approx(0.1 * std::log(4.0) + 1));
}

// The ramp from dimension 10.1 to 20.0 of 32 (where 32 turns and 1 turn fill the original length),
// as transformers computes it; whole dimensions would be 10 and 21.
TEST_CASE("yarn's ramp need not begin and end at whole dimensions") {
  io::Json config = {
      {"rope_theta", 1e6},
      {"rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}}};
  const double first = 32 * std::log(32768 / (64 * std::numbers::pi)) / std::log(1e6);
  const double last = 32 * std::log(32768 / (2 * std::numbers::pi)) / std::log(1e6);
  const auto plain = frequencies({{"rope_theta", 1e6}}, 64);
  const auto expected = [&](double low, double high) {
    return plain[15] * (1 - 0.75 * (15 - low) / (high - low));
  };
  CHECK(frequencies(config, 64)[15] == Approx(expected(std::floor(first), std::ceil(last))));
  config["rope_scaling"]["truncate"] = false;
  CHECK(frequencies(config, 64)[15] == Approx(expected(first, last)));
}

TEST_CASE("an unknown rope type or contradictory heads are errors") {
  auto kind = [](auto&& body) {
    try {
      body();
    } catch (const Error& error) {
      return static_cast<int>(error.kind());
    }
    return 0;
  };
  CHECK(kind([] { frequencies({{"rope_scaling", {{"rope_type", "magic"}}}}, 8); }) == 69);
  const io::Json base = {{"hidden_size", 32},      {"intermediate_size", 48},
                         {"num_hidden_layers", 2}, {"num_attention_heads", 4},
                         {"vocab_size", 37},       {"rms_norm_eps", 1e-5}};
  CHECK(kind([&] { nn::DecoderConfig config(base); }) == 0);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, io::Json>>{{"num_key_value_heads", 3},
                                                     {"num_attention_heads", 0},
                                                     {"hidden_size", -1},
                                                     {"vocab_size", "many"},
                                                     {"num_hidden_layers", 1e9},
                                                     {"head_dim", 7}}) {
    io::Json bad = base;
    bad[key] = value;
    INFO(key);
    CHECK(kind([&] { nn::DecoderConfig config(bad); }) == 65);
  }
  io::Json gelu = base;
  gelu["hidden_act"] = "gelu";
  CHECK(kind([&] { nn::DecoderConfig config(gelu); }) == 0);
  gelu["hidden_act"] = "tanh";
  CHECK(kind([&] { nn::DecoderConfig config(gelu); }) == 69);
}

TEST_CASE("keys and values of all layers lie in one block") {
  const nn::KvCacheShape shape = {3, 2, 4, 10, 32};
  const nn::KvCache cache(shape, DType::kF16);
  const std::byte* begin = cache.k(0).node()->value.data();
  const std::byte* end = begin + nn::KvCache::bytes(shape, DType::kF16);
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (const auto* state : {&cache.k(layer), &cache.v(layer)}) {
      const Array& array = state->node()->value;
      CHECK(array.data() >= begin);
      CHECK(array.data() + array.bytes() <= end);
    }
  }
  CHECK_THROWS_AS(nn::KvCache({1, 1, 1, 4, 40}, DType::kQ8_0), Error);
}
