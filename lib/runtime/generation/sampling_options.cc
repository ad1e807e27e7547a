#include "lib/runtime/generation/sampling_options.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"

namespace lumen::runtime {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// A command line has no other way to say \n, \t, \r and, for these to be possible as they are, \\.
std::string unescaped(std::string_view text) {
  constexpr std::string_view kNames = "ntr\\", kCharacters = "\n\t\r\\";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t name =
        text[i] == '\\' && i + 1 < text.size() ? kNames.find(text[i + 1]) : kNames.npos;
    out += name == kNames.npos ? text[i] : kCharacters[name];
    if (name != kNames.npos) ++i;
  }
  return out;
}

constexpr const char* kLogitBias = "logit-bias";

Field bias_field(std::string help, std::vector<LogitBias>& variable) {
  auto set = [&variable](std::string_view text) {
    const size_t equals = text.rfind('=');
    if (equals == text.npos || equals == 0) {
      fail(ErrorKind::kUsage, kLogitBias, ": ", quoted(text),
           " has not the form ID=N or TEXT=N, e.g. '13=+2.5' or ' the=-inf'");
    }
    require_utf8(text, kLogitBias);
    variable.push_back(make_logit_bias(unescaped(text.substr(0, equals)), text.substr(equals + 1)));
  };
  auto get = [&variable] {
    std::vector<std::string> texts;
    for (const LogitBias& bias : variable) texts.push_back(str(bias.token, "=", bias.bias));
    return join(texts, " ");
  };
  return {kLogitBias, "TOKEN=N", std::move(help), std::move(set), std::move(get), true};
}

Field breakers_field(std::string name, std::string help,
                     std::optional<std::vector<std::string>>& variable) {
  auto set = [name, &variable](std::string_view text) {
    if (text.empty()) fail(ErrorKind::kUsage, name, ": the text is empty");
    require_utf8(text, name);
    if (text == "none") return void(variable.emplace());
    if (!variable) variable.emplace();
    variable->push_back(unescaped(text));
  };
  auto get = [&variable]() -> std::string {
    return !variable ? "" : variable->empty() ? "none" : join(*variable, " ");
  };
  return {std::move(name), "TEXT", std::move(help), std::move(set), std::move(get), true};
}

struct NamedStep {
  SamplingStep step;
  std::string_view names[4];  // llama.cpp's, the first is the usual one
};

// In the usual order, which is that of the enumeration.
constexpr NamedStep kSteps[] = {
    {SamplingStep::kPenalties, {"penalties"}},
    {SamplingStep::kDry, {"dry"}},
    {SamplingStep::kTopNSigma, {"top_n_sigma"}},
    {SamplingStep::kTopK, {"top_k"}},
    {SamplingStep::kTypical, {"typ_p", "typical_p", "typical", "typ"}},
    {SamplingStep::kTopP, {"top_p", "nucleus"}},
    {SamplingStep::kMinP, {"min_p"}},
    {SamplingStep::kXtc, {"xtc"}},
    {SamplingStep::kTemperature, {"temperature", "temp"}},
};

SamplingStep parse_step(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const NamedStep& step : kSteps) {
    const auto end = std::end(step.names);
    if (!name.empty() && std::find(std::begin(step.names), end, name) != end) return step.step;
  }
  std::vector<std::string> known;
  for (const NamedStep& step : kSteps) known.emplace_back(step.names[0]);
  const std::string near = nearest(name, known);
  fail(ErrorKind::kUsage, "samplers: ", quoted(text), " is no sampler",
       near.empty() ? str("; there are ", join(known, ";")) : str("; did you mean ", near, "?"));
}

Field samplers_field(std::string help, std::optional<std::vector<SamplingStep>>& variable) {
  auto set = [&variable](std::string_view text) {
    std::vector<SamplingStep> steps;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(';', begin), text.size());
      const std::string_view name = text.substr(begin, end - begin);
      begin = end + 1;
      const SamplingStep step = parse_step(name);
      if (std::find(steps.begin(), steps.end(), step) != steps.end()) {
        fail(ErrorKind::kUsage, "samplers: ", quoted(name), " stands there twice");
      }
      steps.push_back(step);
    }
    variable = std::move(steps);
  };
  auto get = [&variable] { return variable ? names(*variable) : ""; };
  return {"samplers", "NAMES", std::move(help), std::move(set), std::move(get)};
}

// Shows nothing unless it is on.
Field on_field(std::string name, std::string help, bool& variable) {
  Field field = switch_field(std::move(name), std::move(help), variable);
  field.get = [&variable] { return variable ? "true" : ""; };
  return field;
}

}  // namespace

std::vector<SamplingStep> usual_steps() {
  std::vector<SamplingStep> steps;
  for (const NamedStep& step : kSteps) steps.push_back(step.step);
  return steps;
}

std::string names(const std::vector<SamplingStep>& steps) {
  std::vector<std::string> out;
  for (const SamplingStep step : steps) {
    out.emplace_back(kSteps[static_cast<size_t>(step)].names[0]);
  }
  return join(out, ";");
}

LogitBias make_logit_bias(std::string token, std::string_view number) {
  constexpr double kMost = 1000;
  LogitBias out{std::move(token), 0};
  const std::string_view digits = number.substr(number.starts_with('+') ? 1 : 0);
  const bool is_parsed = parse_number(digits, out.bias) && !digits.starts_with('+');
  const bool is_forbidden = out.bias == -std::numeric_limits<double>::infinity();
  if (!is_parsed || !(is_forbidden || std::abs(out.bias) <= kMost)) {
    fail(ErrorKind::kUsage, kLogitBias, ": ", quoted(number), " for ", quoted(out.token),
         " is not a number from -", kMost, " to ", kMost, " or -inf");
  }
  return out;
}

std::vector<Field> SamplingOptions::usual_fields() {
  constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();
  return {
      number_field("temp", "randomness; 0 takes the likeliest token (model's own, else 0.8)",
                   temperature, 0, 100),
      number_field("top-k", "keep the N likeliest tokens; 0: all (model's own, else 40)", top_k, 0,
                   static_cast<int64_t>(limits::kVocab)),
      number_field("top-p",
                   "keep the likeliest that reach this probability (model's own, else 0.95)", top_p,
                   0, 1),
      number_field("min-p",
                   "drop tokens below this share of the likeliest (model's own, else 0.05)", min_p,
                   0, 1),
      number_field("repeat-penalty", "damp tokens seen lately; 1: off (model's own, else 1)",
                   repeat_penalty, 0.01, 100),
      number_field("seed", "the same seed gives the same text (random)", seed, 0, kMaxSeed),
  };
}

std::vector<Field> SamplingOptions::rare_fields() {
  return {
      number_field("presence-penalty",
                   "lower the logits of all tokens that the answer has so far by N; what is in the "
                   "prompt does not count (0)",
                   presence_penalty, -100, 100),
      number_field("frequency-penalty",
                   "lower the logits of tokens by N for each time that the answer has them (0)",
                   frequency_penalty, -100, 100),
      bias_field(
          "add N, -1000 to 1000 or -inf, to the logit of a token, which is an id or a text of "
          "one token: '13=-inf', ' the=+2.5', '\\n=-1' (repeatable)",
          logit_bias),
      number_field("dry-multiplier",
                   "lower the logit of a token that would prolong a repetition of L tokens by N "
                   "times dry-base to the power of L - dry-allowed-length; 0: off (0)",
                   dry_multiplier, 0, 100),
      number_field("dry-base", "see dry-multiplier (1.75)", dry_base, 1, 100),
      number_field("dry-allowed-length", "repetitions of fewer tokens are not lowered (2)",
                   dry_allowed_length, 1, limits::kContext),
      number_field("dry-penalty-last-n",
                   "tokens of prompt and answer in which repetitions are looked for; -1: all (-1)",
                   dry_penalty_last_n, -1, limits::kContext),
      breakers_field(
          "dry-sequence-breaker",
          "no repetition reaches beyond this text, \\n for a newline (repeatable); none: "
          "nothing stops them (newline, colon, double quote and asterisk)",
          dry_sequence_breakers),
      number_field(
          "top-n-sigma",
          "keep tokens whose logits are within N standard deviations of the largest; 0: all "
          "(0)",
          top_n_sigma, 0, 100),
      number_field(
          "typical-p",
          "keep the tokens nearest to the expected surprise that reach this probability; 1: "
          "all (model's own, else 1)",
          typical_p, 0, 1),
      number_field(
          "xtc-probability",
          "how often, of several likely tokens, only the least likely is kept; 0: never (0)",
          xtc_probability, 0, 1),
      number_field("xtc-threshold", "the probability from which such tokens are likely (0.1)",
                   xtc_threshold, 0, 1),
      number_field("repeat-last-n",
                   "tokens of prompt and answer that repeat-penalty looks at; -1: all (64)",
                   repeat_last_n, -1, limits::kContext),
      number_field("dynatemp-range",
                   "the temperature goes from temp - N, where the next token is sure, to temp + N, "
                   "where all that are left are as likely; 0: it is temp (0)",
                   dynatemp_range, 0, 100),
      number_field("dynatemp-exp",
                   "the power of the entropy's share with which it goes from one to the other (1)",
                   dynatemp_exp, 0, 100),
      number_field("mirostat",
                   "1 or 2: this version of Mirostat instead of all that drops unlikely tokens; 0: "
                   "off (0)",
                   mirostat, 0, 2),
      number_field("mirostat-ent", "bits of surprise per token that Mirostat aims at (5)",
                   mirostat_ent, 0, 100),
      number_field("mirostat-lr", "the share by which Mirostat corrects itself per token (0.1)",
                   mirostat_lr, 0, 1),
      samplers_field(
          "the steps from logits to a token in this order; what is not named is not done "
          "(penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)",
          samplers),
      on_field("ignore-eos",
               "go on to max-tokens: a bias of -inf for all tokens that would end the answer",
               ignore_eos),
  };
}

std::vector<Field> SamplingOptions::fields() {
  std::vector<Field> all = usual_fields();
  for (Field& field : rare_fields()) all.push_back(std::move(field));
  return all;
}

SamplingSettings resolve_sampling(const SamplingOptions& options, const io::Json& generation_config,
                                  std::string_view place) {
  SamplingSettings settings;
  // What the model proposes is read, and may be wrong, only where no option replaces it.
  auto choose = [&](const std::optional<double>& option, const char* key, double lo, double hi,
                    double& setting) {
    setting = option ? *option : io::get_number(generation_config, key, lo, hi, setting);
  };
  with_context(std::string(place), [&] {
    choose(options.temperature, "temperature", 0, 100, settings.temperature);
    if (!options.temperature && !io::get_bool(generation_config, "do_sample", true)) {
      settings.temperature = 0;
    }
    settings.top_k = options.top_k
                         ? *options.top_k
                         : io::get_int(generation_config, "top_k", 0,
                                       static_cast<int64_t>(limits::kVocab), settings.top_k);
    choose(options.top_p, "top_p", 0, 1, settings.top_p);
    choose(options.min_p, "min_p", 0, 1, settings.min_p);
    choose(options.repeat_penalty, "repetition_penalty", 0.01, 100, settings.repeat_penalty);
    choose(options.typical_p, "typical_p", 0, 1, settings.typical_p);
  });
  const auto take = [](const auto& option, auto& setting) { setting = option.value_or(setting); };
  take(options.presence_penalty, settings.presence_penalty);
  take(options.frequency_penalty, settings.frequency_penalty);
  take(options.top_n_sigma, settings.top_n_sigma);
  take(options.xtc_probability, settings.xtc_probability);
  take(options.xtc_threshold, settings.xtc_threshold);
  take(options.dry_multiplier, settings.dry.multiplier);
  take(options.dry_base, settings.dry.base);
  take(options.dry_allowed_length, settings.dry.allowed_length);
  take(options.dry_sequence_breakers, settings.dry.breakers);
  const int64_t last_n = options.dry_penalty_last_n.value_or(-1);
  if (last_n >= 0) settings.dry.last_n = last_n;
  const int64_t window = options.repeat_last_n.value_or(settings.repeat_last_n);
  settings.repeat_last_n = window < 0 ? limits::kContext : window;
  take(options.dynatemp_range, settings.dynatemp_range);
  take(options.dynatemp_exp, settings.dynatemp_exp);
  take(options.samplers, settings.steps);
  take(options.mirostat, settings.mirostat);
  take(options.mirostat_ent, settings.mirostat_ent);
  take(options.mirostat_lr, settings.mirostat_lr);
  settings.seed = options.seed ? static_cast<uint64_t>(*options.seed) : std::random_device{}();
  return settings;
}

namespace {

// The tokens of `text` where it is not the first of a text: before that some tokenizers put a
// blank.
std::vector<int32_t> tokens_inside(const text::Tokenizer& tokenizer, const std::string& text) {
  const text::EncodeOptions options{.add_special = false, .parse_special = true};
  const auto before = tokenizer.encode("\n", options);
  auto all = tokenizer.encode("\n" + text, options);
  const auto [rest, end] = std::mismatch(all.begin(), all.end(), before.begin(), before.end());
  // Otherwise the newline has become one with what follows.
  const bool is_apart = end == before.end() && rest != all.end();
  if (!is_apart) return tokenizer.encode(text, options);
  all.erase(all.begin(), rest);
  return all;
}

// Throws Error(kUsage) unless `text` is one token.
int32_t one_token(const text::Tokenizer& tokenizer, const std::string& text) {
  constexpr size_t kShown = 8;
  const auto ids = tokens_inside(tokenizer, text);
  if (ids.empty() || (ids.size() == 1 && ids[0] == tokenizer.special_ids().unk)) {
    fail(ErrorKind::kUsage, kLogitBias, ": the vocabulary has no token for ", quoted(text));
  }
  if (ids.size() == 1) return ids[0];
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(ids.size(), kShown); ++i) shown.push_back(str(ids[i]));
  if (ids.size() > kShown) shown.push_back("…");
  fail(ErrorKind::kUsage, kLogitBias, ": ", quoted(text), " is ", ids.size(), " tokens (",
       join(shown, ", "), "), but a bias is for one: name that by its text or id");
}

}  // namespace

std::map<int32_t, double> resolve_logit_bias(const std::vector<LogitBias>& biases,
                                             const text::Tokenizer& tokenizer, int64_t vocab) {
  std::map<int32_t, double> out;
  for (const LogitBias& bias : biases) {
    int64_t id = 0;
    if (!is_number(bias.token)) {
      id = one_token(tokenizer, bias.token);
    } else if (!parse_number(bias.token, id)) {
      id = vocab;  // beyond all
    }
    if (id >= vocab) {
      fail(ErrorKind::kUsage, kLogitBias, ": the token ", quoted(bias.token),
           " is not among the model's ", vocab, ", whose ids begin at 0");
    }
    out[static_cast<int32_t>(id)] = bias.bias;
  }
  return out;
}

std::string describe(const SamplingSettings& settings) {
  const SamplingSettings off;
  std::string out =
      str("temp ", settings.temperature, ", top-k ", settings.top_k, ", top-p ", settings.top_p,
          ", min-p ", settings.min_p, ", repeat-penalty ", settings.repeat_penalty);
  const auto add = [&](const char* name, double value, double usual) {
    if (value != usual) out += str(", ", name, " ", value);
  };
  add("presence-penalty", settings.presence_penalty, off.presence_penalty);
  add("frequency-penalty", settings.frequency_penalty, off.frequency_penalty);
  if (settings.dry.is_on()) {
    out += str(", dry-multiplier ", settings.dry.multiplier, ", dry-base ", settings.dry.base,
               ", dry-allowed-length ", settings.dry.allowed_length, ", dry-penalty-last-n ",
               settings.dry.last_n);
  }
  add("top-n-sigma", settings.top_n_sigma, off.top_n_sigma);
  add("typical-p", settings.typical_p, off.typical_p);
  if (settings.xtc_probability > 0) {
    out += str(", xtc-probability ", settings.xtc_probability, ", xtc-threshold ",
               settings.xtc_threshold);
  }
  if (settings.repeat_penalty != 1) {
    add("repeat-last-n", static_cast<double>(settings.repeat_last_n), -1);
  }
  if (settings.dynatemp_range > 0) {
    out +=
        str(", dynatemp-range ", settings.dynatemp_range, ", dynatemp-exp ", settings.dynatemp_exp);
  }
  if (settings.mirostat > 0) {
    out += str(", mirostat ", settings.mirostat, ", mirostat-ent ", settings.mirostat_ent,
               ", mirostat-lr ", settings.mirostat_lr);
  }
  if (settings.steps != off.steps) out += str(", samplers ", names(settings.steps));
  if (!settings.logit_bias.empty()) {
    const size_t count = settings.logit_bias.size();
    out += str(", logit-bias for ", count, count == 1 ? " token" : " tokens");
  }
  return out + str(", seed ", settings.seed);
}

}  // namespace lumen::runtime
