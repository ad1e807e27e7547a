#include "lib/runtime/sampler.h"

#include <algorithm>
#include <cmath>
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

Field mirostat_field(std::string help, std::optional<int64_t>& variable) {
  Field field = number_field("mirostat", std::move(help), variable, 0, 2);
  field.set = [parse = field.set, &variable](std::string_view text) {
    const auto before = variable;
    parse(text);
    if (variable != 1) return;
    variable = before;
    fail(ErrorKind::kUsage, "mirostat: the first version, 1, is not supported, only 2 (0: off)");
  };
  return field;
}

}  // namespace

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
      mirostat_field("2: Mirostat 2.0 instead of all that drops unlikely tokens; 0: off (0)",
                     mirostat),
      number_field("mirostat-ent", "bits of surprise per token that Mirostat aims at (5)",
                   mirostat_ent, 0, 100),
      number_field("mirostat-lr", "the share by which Mirostat corrects itself per token (0.1)",
                   mirostat_lr, 0, 1),
  };
}

std::vector<Field> SamplingOptions::fields() {
  std::vector<Field> all = usual_fields();
  for (Field& field : rare_fields()) all.push_back(std::move(field));
  return all;
}

namespace {

void check_logits(std::span<const float> logits) {
  bool any_finite = false, any_bad = false;
  for (const float logit : logits) {
    any_finite |= std::isfinite(logit);
    any_bad |= !(logit < std::numeric_limits<float>::infinity());  // NaN or +∞
  }
  if (any_bad || !any_finite) {
    fail(ErrorKind::kMalformed,
         "the model's output is not a number: its weights are damaged, or a value overflowed");
  }
}

}  // namespace

SamplingSettings resolve_sampling(const SamplingOptions& options,
                                  const io::Json& generation_config) {
  SamplingSettings settings;
  // What the model proposes is read, and may be wrong, only where no option replaces it.
  auto choose = [&](const std::optional<double>& option, const char* key, double lo, double hi,
                    double& setting) {
    setting = option ? *option : io::get_number(generation_config, key, lo, hi, setting);
  };
  with_context("generation_config.json", [&] {
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
  if (!settings.logit_bias.empty()) {
    const size_t count = settings.logit_bias.size();
    out += str(", logit-bias for ", count, count == 1 ? " token" : " tokens");
  }
  return out + str(", seed ", settings.seed);
}

Sampler::Sampler(const SamplingSettings& settings, int64_t vocab,
                 std::shared_ptr<const text::Tokenizer> tokenizer)
    : settings_(settings),
      random_(settings.seed),
      xtc_random_(settings.seed, /*stream=*/1),
      weights_(static_cast<size_t>(vocab)),
      mu_(2 * settings.mirostat_ent) {
  candidates_.reserve(weights_.size());
  if (settings.presence_penalty != 0 || settings.frequency_penalty != 0) {
    counts_.resize(weights_.size());
    said_.reserve(weights_.size());
  }
  if (settings.repeat_penalty != 1) {
    window_.resize(static_cast<size_t>(settings.repeat_last_n));
    damped_.resize(weights_.size());
  }
  if (settings.dry.is_on()) dry_.emplace(settings.dry, vocab, std::move(tokenizer));
  const bool adjusts = !settings.logit_bias.empty() || settings.repeat_penalty != 1 ||
                       !counts_.empty() || dry_.has_value();
  if (adjusts) adjusted_.resize(weights_.size());
}

void Sampler::begin(std::span<const int32_t> tokens) {
  accepted_ = 0;
  for (const int32_t id : tokens.last(std::min(tokens.size(), window_.size()))) remember(id);
  for (const int32_t id : said_) counts_[static_cast<size_t>(id)] = 0;
  said_.clear();
  mu_ = 2 * settings_.mirostat_ent;
  if (dry_) dry_->begin(tokens);
}

void Sampler::accept(int32_t token) {
  remember(token);
  if (!counts_.empty() && ++counts_[static_cast<size_t>(token)] == 1) said_.push_back(token);
  if (dry_) dry_->accept(token);
}

void Sampler::remember(int32_t token) {
  if (!window_.empty()) window_[accepted_++ % window_.size()] = token;
}

int32_t Sampler::sample(std::span<const float> model_logits) {
  LUMEN_CHECK(model_logits.size() == weights_.size());
  check_logits(model_logits);
  const auto logits = adjust(model_logits);
  if (settings_.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  if (settings_.mirostat > 0) return draw_mirostat(logits);
  keep_top_k(logits, least_logit(model_logits, logits));
  keep_typical();
  keep_top_p();
  keep_min_p();
  exclude_top_choices();
  return candidates_[draw(weigh(temperature()))].id;
}

std::span<const float> Sampler::adjust(std::span<const float> logits) {
  if (adjusted_.empty()) return logits;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const auto& [token, bias] : settings_.logit_bias) {
    adjusted_[static_cast<size_t>(token)] += static_cast<float>(bias);
  }
  const auto is_possible = [](float logit) { return std::isfinite(logit); };
  if (std::none_of(adjusted_.begin(), adjusted_.end(), is_possible)) {
    fail(ErrorKind::kMalformed, kLogitBias, ": -inf forbids every token that could follow");
  }
  apply_repeat_penalty();
  for (const int32_t token : said_) {
    const auto id = static_cast<size_t>(token);
    adjusted_[id] -=
        static_cast<float>(settings_.presence_penalty + counts_[id] * settings_.frequency_penalty);
  }
  if (dry_) dry_->apply(adjusted_);
  return adjusted_;
}

// Each token of the window counts once, however often it occurred.
void Sampler::apply_repeat_penalty() {
  const size_t count = std::min(accepted_, window_.size());
  const auto penalty = static_cast<float>(settings_.repeat_penalty);
  ++draws_;
  for (size_t i = 0; i < count; ++i) {
    const auto id = static_cast<size_t>(window_[i]);
    if (std::exchange(damped_[id], draws_) == draws_) continue;
    float& logit = adjusted_[id];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// The least logit that top-nσ keeps.
double Sampler::least_logit(std::span<const float> logits, std::span<const float> adjusted) const {
  if (settings_.top_n_sigma == 0) return -std::numeric_limits<double>::infinity();
  double count = 0, sum = 0;
  for (const float logit : logits) {
    if (std::isfinite(logit)) count += 1, sum += logit;
  }
  const double mean = sum / count;
  double squares = 0;
  for (const float logit : logits) {
    if (std::isfinite(logit)) squares += (logit - mean) * (logit - mean);
  }
  return *std::max_element(adjusted.begin(), adjusted.end()) -
         settings_.top_n_sigma * std::sqrt(squares / count);
}

// Keeps a heap with the worst of the k best on top: nearly every logit costs one comparison.
void Sampler::keep_top_k(std::span<const float> logits, double least) {
  candidates_.clear();
  const size_t k = settings_.top_k == 0 ? logits.size() : static_cast<size_t>(settings_.top_k);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < least) continue;
    const Candidate candidate{logits[i], static_cast<int32_t>(i)};
    if (k >= logits.size()) {
      candidates_.push_back(candidate);
    } else if (candidates_.size() < k) {
      candidates_.push_back(candidate);
      std::push_heap(candidates_.begin(), candidates_.end(), is_before);
    } else if (candidate.logit > candidates_.front().logit) {
      std::pop_heap(candidates_.begin(), candidates_.end(), is_before);
      candidates_.back() = candidate;
      std::push_heap(candidates_.begin(), candidates_.end(), is_before);
    }
  }
  sorted_ = 0;
  if (k >= logits.size()) return;
  std::sort_heap(candidates_.begin(), candidates_.end(), is_before);
  sorted_ = candidates_.size();
}

// Brings the first of candidates_[begin, …) to [begin, end), in order.
template <typename Order>
void Sampler::sort_prefix(size_t begin, size_t end, Order is_first) {
  const auto first = candidates_.begin();
  const auto from = first + static_cast<ptrdiff_t>(begin), to = first + static_cast<ptrdiff_t>(end);
  if (to != candidates_.end()) std::nth_element(from, to, candidates_.end(), is_first);
  std::sort(from, to, is_first);
  sorted_ = end;
}

// Keeps the fewest candidates, from the first on, that have this share of the probability. Sorts
// ever larger pieces only until the sum is reached: usually the first is enough.
template <typename Order>
void Sampler::keep_share(double share, Order is_first) {
  if (sorted_ == 0) sort_prefix(0, std::min<size_t>(64, candidates_.size()), is_first);
  const float largest = largest_logit();
  double total = 0;
  for (const Candidate& candidate : candidates_)
    total += std::exp(double{candidate.logit} - largest);
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i == sorted_) sort_prefix(i, std::min(4 * i, candidates_.size()), is_first);
    sum += std::exp(double{candidates_[i].logit} - largest);
    if (sum >= share * total) {
      candidates_.resize(i + 1);
      break;
    }
  }
}

Sampler::Sums Sampler::sums_below(double largest) const {
  Sums sums;
  for (const Candidate& candidate : candidates_) {
    const double below = candidate.logit - largest, weight = std::exp(below);
    if (weight == 0) continue;
    sums.weights += weight;
    sums.weighted += weight * below;
    sums.count += 1;
  }
  return sums;
}

// With ln p = logit − ln Z and H = −Σ p ln p, |H + ln p| = |logit − Σ p logit|.
void Sampler::keep_typical() {
  if (settings_.typical_p >= 1) return;
  const double largest = largest_logit();
  const Sums sums = sums_below(largest);
  const double expected = largest + sums.weighted / sums.weights;
  sorted_ = 0;  // another order
  keep_share(settings_.typical_p, [expected](const Candidate& a, const Candidate& b) {
    const double to_a = std::abs(a.logit - expected), to_b = std::abs(b.logit - expected);
    return to_a < to_b || (to_a == to_b && is_before(a, b));
  });
  sorted_ = 0;
}

void Sampler::keep_top_p() {
  if (settings_.top_p < 1) keep_share(settings_.top_p, is_before);
}

void Sampler::keep_min_p() {
  if (settings_.min_p == 0) return;
  // p / p_max ≥ min_p ⇔ logit ≥ logit_max + ln(min_p)
  const double threshold = largest_logit() + std::log(settings_.min_p);
  const auto end = std::remove_if(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& c) { return c.logit < threshold; });
  candidates_.resize(static_cast<size_t>(end - candidates_.begin()));
}

void Sampler::exclude_top_choices() {
  if (settings_.xtc_probability == 0) return;
  if (xtc_random_.uniform() >= settings_.xtc_probability) return;
  const double largest = largest_logit();
  double total = 0;
  for (const Candidate& candidate : candidates_) total += std::exp(candidate.logit - largest);
  const auto is_likely = [&](const Candidate& candidate) {
    const double probability = std::exp(candidate.logit - largest) / total;
    return probability > 0 && probability >= settings_.xtc_threshold;
  };
  const Candidate* least = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (is_likely(candidate) && (!least || is_before(*least, candidate))) least = &candidate;
  }
  if (!least) return;
  const int32_t kept = least->id;
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return candidate.id != kept && is_likely(candidate);
  });
}

float Sampler::largest_logit() const {
  float largest = candidates_[0].logit;
  for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.logit);
  return largest;
}

// With S = Σ exp(logit − largest), H = ln S − Σ p (logit − largest).
double Sampler::temperature() const {
  if (settings_.dynatemp_range == 0) return settings_.temperature;
  const double largest = largest_logit();
  const auto [total, sum, count] = sums_below(largest);
  const double share = count < 2 ? 0 : (std::log(total) - sum / total) / std::log(count);
  const double most = settings_.temperature + settings_.dynatemp_range;
  const double least = std::max(0.0, settings_.temperature - settings_.dynatemp_range);
  // Of a uniform distribution rounding may leave a little more than 1. Not 0: logits are divided.
  return std::max(
      least + (most - least) * std::pow(std::clamp(share, 0.0, 1.0), settings_.dynatemp_exp),
      double{std::numeric_limits<float>::min()});
}

// Fills weights_ for all candidates, the largest with 1, and returns their sum.
double Sampler::weigh(double temperature) {
  const float largest = largest_logit();
  double total = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = std::exp((double{candidates_[i].logit} - largest) / temperature);
    total += weights_[i];
  }
  return total;
}

// A candidate by the weights_, whose sum is `total`.
size_t Sampler::draw(double total) {
  double remaining = random_.uniform() * total;
  size_t chosen = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (weights_[i] == 0) continue;
    chosen = i;  // the last possible one if rounding leaves a rest
    remaining -= weights_[i];
    if (remaining < 0) break;
  }
  return chosen;
}

int32_t Sampler::draw_mirostat(std::span<const float> logits) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  }
  const double total = weigh(settings_.temperature);
  const auto likeliest = std::max_element(weights_.begin(), weights_.end()) - weights_.begin();
  double left = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const bool stays =
        static_cast<ptrdiff_t>(i) == likeliest || -std::log2(weights_[i] / total) <= mu_;
    if (!stays) weights_[i] = 0;
    left += weights_[i];
  }
  const size_t chosen = draw(left);
  mu_ -= settings_.mirostat_lr * (-std::log2(weights_[chosen] / left) - settings_.mirostat_ent);
  return candidates_[chosen].id;
}

}  // namespace lumen::runtime
