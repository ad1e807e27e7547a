#include "lib/runtime/generation/sampling_options.h"

#include <cmath>
#include <limits>
#include <map>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/runtime/generation/fake_model.h"

namespace lumen::runtime {
namespace {

TEST_CASE("a bias is for one token, by id or by text") {
  SamplingOptions options;
  const auto fields = options.fields();
  const Field& field = find_field(fields, "logit-bias");
  for (const char* bias : {"5=+2.5", "b=-inf", "==1", "\\n=-1", "<turn>=-1000", "5=-3", "c=1e0"}) {
    field.set(bias);
  }
  const testing::ByteTokenizer tokenizer;
  const double forbidden = -std::numeric_limits<double>::infinity();
  const std::map<int32_t, double> expected = {{5, -3},          {'\n', -1}, {'=', 1},
                                              {'b', forbidden}, {'c', 1},   {258, -1000}};
  REQUIRE(resolve_logit_bias(options.logit_bias, tokenizer, 259) == expected);

  const auto wrong = [&](const char* bias) {
    SamplingOptions other;
    const auto others = other.fields();
    return lumen::testing::refusal(ErrorKind::kUsage, [&] {
      find_field(others, "logit-bias").set(bias);
      resolve_logit_bias(other.logit_bias, tokenizer, 259);
    });
  };
  REQUIRE(wrong("ab=1") ==
          "logit-bias: 'ab' is 2 tokens (97, 98), but a bias is for one: name that by its text or "
          "id");
  REQUIRE(lumen::testing::contains(wrong("a long text=1"), "is 11 tokens (97, 32, 108"));
  REQUIRE(lumen::testing::contains(wrong("259=1"), "'259' is not among the model's 259"));
  REQUIRE(
      lumen::testing::contains(wrong("99999999999999999999=1"), "is not among the model's 259"));
  for (const char* bias : {"a=1001", "a=-1e9", "a=inf", "a=nan", "a=", "a=x", "a=++1", "a=+-"}) {
    CAPTURE(bias);
    REQUIRE(lumen::testing::contains(wrong(bias), "is not a number from -1000 to 1000 or -inf"));
  }
  for (const char* bias : {"13", "=1", "13+1", ""}) {
    CAPTURE(bias);
    REQUIRE(lumen::testing::contains(wrong(bias), "has not the form ID=N or TEXT=N"));
  }
}

TEST_CASE("a text with a bias is the token inside a text, not the one that begins it") {
  // Its tokenizer puts a blank before a text: ',' alone is two tokens.
  const auto tokenizer =
      text::load_tokenizer(lumen::testing::source_path("testdata/models/random-spm.gguf"));
  REQUIRE(tokenizer->encode(",", {.add_special = false}).size() == 2);
  const auto biases = resolve_logit_bias({{",", 1}, {"\n", 2}, {"</s>", 3}}, *tokenizer, 1000);
  REQUIRE(biases == std::map<int32_t, double>{{2, 3}, {13, 2}, {271, 1}});
}

TEST_CASE("the first breaker that is named replaces the usual ones, none removes all") {
  SamplingOptions options;
  const auto fields = options.fields();
  const Field& field = find_field(fields, "dry-sequence-breaker");
  const auto breakers = [&] { return resolve_sampling(options, {}).dry.breakers; };
  REQUIRE(breakers() == std::vector<std::string>{"\n", ":", "\"", "*"});
  field.set("\\n");
  field.set("###");
  REQUIRE(breakers() == std::vector<std::string>{"\n", "###"});
  field.set("none");
  REQUIRE(breakers().empty());
  REQUIRE(field.get() == "none");
  field.set("a\\\\n");
  REQUIRE(breakers() == std::vector<std::string>{"a\\n"});
  lumen::testing::refusal(ErrorKind::kUsage, [&] { field.set(""); });
}

TEST_CASE("samplers are named as llama.cpp names them") {
  SamplingOptions options;
  const auto fields = options.fields();
  const Field& field = find_field(fields, "samplers");
  const auto steps = [&] { return resolve_sampling(options, {}).steps; };
  REQUIRE(steps() == usual_steps());
  REQUIRE(names(steps()) == "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature");
  REQUIRE(field.get().empty());
  field.set("top_k;typical-p;temp;nucleus");
  REQUIRE(steps() == std::vector<SamplingStep>{SamplingStep::kTopK, SamplingStep::kTypical,
                                               SamplingStep::kTemperature, SamplingStep::kTopP});
  REQUIRE(field.get() == "top_k;typ_p;temperature;top_p");
  REQUIRE(lumen::testing::contains(describe(resolve_sampling(options, {})),
                                   ", samplers top_k;typ_p;temperature;top_p, seed"));
  const auto wrong = [&](const char* text) {
    return lumen::testing::refusal(ErrorKind::kUsage, [&] { field.set(text); });
  };
  REQUIRE(wrong("top_k;topp") == "samplers: 'topp' is no sampler; did you mean top_p?");
  REQUIRE(wrong("infill") ==
          "samplers: 'infill' is no sampler; there are "
          "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature");
  REQUIRE(wrong("temp;top_k;temperature") == "samplers: 'temperature' stands there twice");
  for (const char* text : {"", ";", "top_k;", "top_k,top_p", "top_k; top_p"}) {
    CAPTURE(text);
    wrong(text);
  }
  REQUIRE(field.get() == "top_k;typ_p;temperature;top_p");
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
  REQUIRE(resolve_sampling(options, {{"typical_p", 0.4}}).typical_p == 0.4);
  options.typical_p = 0.9;
  REQUIRE(resolve_sampling(options, {{"typical_p", 0.4}}).typical_p == 0.9);
  REQUIRE(resolve_sampling({}, io::Json::object()).dry.last_n == limits::kContext);
  options.dry_penalty_last_n = 0;
  options.dry_multiplier = 1;
  REQUIRE_FALSE(resolve_sampling(options, io::Json::object()).dry.is_on());
}

}  // namespace
}  // namespace lumen::runtime
