#include "lib/nn/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>

#include "lib/base/error.h"
#include "lib/io/model_files.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;
constexpr double kMaxFactor = 1e6;

double factor_of(const io::Json& scaling) {
  return io::get_number(scaling, "factor", 1e-6, kMaxFactor);
}

void scale_linear(const io::Json& scaling, std::vector<double>& theta) {
  for (double& t : theta) t /= factor_of(scaling);
}

// How many of `count` frequencies turn.
int64_t turning(const io::Json& scaling, int64_t count) {
  const double part = io::get_number(scaling, "partial_rotary_factor", 0, 1, 1);
  return static_cast<int64_t>(part * static_cast<double>(count) + 1e-6);
}

void scale_proportional(const io::Json& scaling, std::vector<double>& theta) {
  const double factor = io::get_number(scaling, "factor", 1e-6, kMaxFactor, 1);
  const int64_t turn = turning(scaling, std::ssize(theta));
  for (int64_t i = 0; i < std::ssize(theta); ++i) theta[i] = i < turn ? theta[i] / factor : 0;
}

double rope_theta(const io::Json& config) {
  return io::get_number(config, "rope_theta", 1e-3, 1e12, 10000);
}

std::vector<double> unscaled(const io::Json& config, int64_t head_dim) {
  const double base = io::rope_base(config, head_dim);
  std::vector<double> theta(head_dim / 2);
  for (size_t i = 0; i < theta.size(); ++i) {
    theta[i] = std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(head_dim));
  }
  return theta;
}

// What each θ is divided by: wavelengths above original/low by factor, below original/high by 1;
// between, the weight of what is kept rises linearly with original/wavelength.
std::vector<double> llama3_divisors(const io::Json& scaling, const std::vector<double>& theta) {
  const double factor = factor_of(scaling);
  const double low = io::get_number(scaling, "low_freq_factor", 1e-6, kMaxFactor);
  const double high = io::get_number(scaling, "high_freq_factor", 1e-6, kMaxFactor);
  const double original =
      io::get_number(scaling, "original_max_position_embeddings", 1, limits::kContext);
  if (high < low) {
    fail(ErrorKind::kMalformed, "rope_scaling: high_freq_factor ", high,
         " must not be below low_freq_factor ", low);
  }
  std::vector<double> divisors;
  for (const double t : theta) {
    const double turns = original * t / kTwoPi;  // original / wavelength
    const double ramp = high > low ? (turns - low) / (high - low) : turns > low ? 1 : 0;
    const double kept = std::clamp(ramp, 0.0, 1.0);
    divisors.push_back(1 / ((1 - kept) / factor + kept));
  }
  return divisors;
}

std::string type_of(const io::Json& scaling) {
  return io::get_string(scaling, "rope_type", "default");
}

// Dimensions that turn more than beta_fast times within the original length are kept, those that
// turn less than beta_slow times are divided by factor, with a linear ramp between, from one whole
// dimension to another unless truncate is false.
double scale_yarn(const io::Json& config, const io::Json& scaling, std::vector<double>& theta) {
  const double base = rope_theta(config);
  const double factor = factor_of(scaling);
  const double original =
      io::get_number(scaling, "original_max_position_embeddings", 1, limits::kContext,
                     io::get_number(config, "max_position_embeddings", 1, limits::kContext, 2048));
  const double dim = 2 * static_cast<double>(theta.size());
  auto dimension_of = [&](double turns) {
    return dim * std::log(original / (turns * kTwoPi)) / (2 * std::log(base));
  };
  double low = dimension_of(io::get_number(scaling, "beta_fast", 1e-6, kMaxFactor, 32));
  double high = dimension_of(io::get_number(scaling, "beta_slow", 1e-6, kMaxFactor, 1));
  if (io::get_bool(scaling, "truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (high <= low) high = low + 0.001;
  for (size_t i = 0; i < theta.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    theta[i] = theta[i] / factor * divided + theta[i] * (1 - divided);
  }
  const double automatic = factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
  return io::get_number(scaling, "attention_factor", 1e-6, kMaxFactor, automatic);
}

// A list of rope_scaling with a factor per frequency; undefined if there is none.
Tensor factors_of(const io::Json& scaling, const char* key, int64_t count) {
  const io::Json* list = io::find_value(scaling, key);
  if (list == nullptr) return {};
  std::vector<float> factors;
  if (list->is_array()) {
    for (const io::Json& factor : *list) {
      if (factor.is_number()) factors.push_back(factor.get<float>());
    }
  }
  const bool positive =
      std::all_of(factors.begin(), factors.end(), [](float f) { return f > 0 && f < kMaxFactor; });
  if (std::ssize(factors) != count || list->size() != factors.size() || !positive) {
    fail(ErrorKind::kMalformed, "rope_scaling: ", key, ": found ", io::describe(list),
         ", expected an array of ", count, " positive numbers, one per pair that rotates");
  }
  return graph::constant(factors, {count});
}

}  // namespace

Rope::Rope(const io::Json& config, int64_t head_dim) {
  std::vector<double> theta = unscaled(config, head_dim);
  Tensor short_factors, long_factors;
  if (const io::Json* scaling = io::find_value(config, "rope_scaling")) {
    const std::string type = type_of(*scaling);
    if (type == "linear") {
      scale_linear(*scaling, theta);
    } else if (type == "llama3") {
      const std::vector<double> divisors = llama3_divisors(*scaling, theta);
      for (size_t i = 0; i < theta.size(); ++i) theta[i] /= divisors[i];
    } else if (type == "yarn") {
      attention_factor = scale_yarn(config, *scaling, theta);
    } else if (type == "proportional") {
      scale_proportional(*scaling, theta);
    } else if (type == "longrope") {
      original_ = io::get_int(*scaling, "original_max_position_embeddings", 1, limits::kContext);
      attention_factor = io::get_number(*scaling, "attention_factor", 1e-6, kMaxFactor, 1);
      short_factors = factors_of(*scaling, "short_factor", head_dim / 2);
      long_factors = factors_of(*scaling, "long_factor", head_dim / 2);
    } else if (type != "default" && type != "dynamic") {
      fail(ErrorKind::kUnsupported, "rope_scaling type ", quoted(type),
           " is not supported; known: default, linear, dynamic, llama3, longrope, proportional, "
           "yarn");
    }
    temperature.beta = io::get_number(*scaling, "llama_4_scaling_beta", 0, kMaxFactor, 0);
    if (temperature.beta > 0) {
      temperature.length =
          io::get_int(*scaling, "original_max_position_embeddings", 1, limits::kContext);
    }
  }
  std::vector<float> values(theta.begin(), theta.end());
  if (io::get_bool(config, "rope_backward", false)) {
    std::transform(values.begin(), values.end(), values.begin(), std::negate<float>());
  }
  frequencies = graph::constant(values, {head_dim / 2});
  interleaved = io::get_bool(config, "rope_interleaved", false);
  if (short_factors.defined() && long_factors.defined()) set_factors(short_factors, long_factors);
}

void Rope::set_factors(const Tensor& short_factors, const Tensor& long_factors) {
  const Tensor unscaled = frequencies;
  short_frequencies_ = graph::constant(ops::div(unscaled, short_factors).eval());
  long_frequencies_ = graph::constant(ops::div(unscaled, long_factors).eval());
  frequencies = short_frequencies_;
}

bool Rope::set_context(int64_t context) {
  if (!short_frequencies_.defined()) return false;
  const bool is_long = context > original_;
  frequencies = is_long ? long_frequencies_ : short_frequencies_;
  return is_long;
}

void Rope::divide(const Tensor& divisors) {
  frequencies = graph::constant(ops::div(frequencies, divisors).eval());
}

// What stands for a frequency of 0 in place of its divisor.
constexpr float kNoTurn = 1e30f;

namespace {

std::vector<float> proportional_divisors(const io::Json& scaling, int64_t head_dim) {
  const int64_t count = head_dim / 2, turn = turning(scaling, count);
  std::vector<float> divisors(static_cast<size_t>(count), kNoTurn);
  const double factor = io::get_number(scaling, "factor", 1e-6, kMaxFactor, 1);
  std::fill_n(divisors.begin(), turn, static_cast<float>(factor));
  return divisors;
}

// The rope_scaling "proportional" that has these divisors; null if there is none.
io::Json proportional_scaling(std::span<const float> divisors) {
  const auto first = std::find_if(divisors.begin(), divisors.end(),
                                  [](float divisor) { return divisor >= kNoTurn; });
  if (first == divisors.begin() || first == divisors.end()) return nullptr;
  io::Json scaling = {{"rope_type", "proportional"},
                      {"partial_rotary_factor", static_cast<double>(first - divisors.begin()) /
                                                    static_cast<double>(divisors.size())}};
  if (divisors[0] != 1) scaling["factor"] = static_cast<double>(divisors[0]);
  const auto again = proportional_divisors(scaling, 2 * std::ssize(divisors));
  return std::equal(divisors.begin(), divisors.end(), again.begin()) ? scaling : io::Json();
}

}  // namespace

std::vector<float> rope_divisors(const io::Json& config, int64_t head_dim) {
  const io::Json* scaling = io::find_value(config, "rope_scaling");
  if (scaling == nullptr) return {};
  if (type_of(*scaling) == "proportional") {
    return proportional_divisors(*scaling,
                                 io::get_int(config, "global_head_dim", 2, limits::kDim, head_dim));
  }
  if (type_of(*scaling) != "llama3") return {};
  const std::vector<double> divisors = llama3_divisors(*scaling, unscaled(config, head_dim));
  return {divisors.begin(), divisors.end()};
}

io::Json llama3_scaling(const io::Json& config, std::span<const float> divisors) {
  constexpr double kLow = 1, kHigh = 4;
  const std::vector<double> theta = unscaled(config, 2 * std::ssize(divisors));
  const double factor = divisors.empty() ? 1 : *std::max_element(divisors.begin(), divisors.end());
  if (!(factor > 1 && factor <= kMaxFactor)) return nullptr;
  // Where a wavelength is on the ramp it tells the original length; else a length will do above
  // which no wavelength is kept.
  double original = 1, on_ramp = 0;
  for (size_t i = 0; i < theta.size(); ++i) {
    const double kept = (1 / static_cast<double>(divisors[i]) - 1 / factor) / (1 - 1 / factor);
    const double ramp = std::min(kept, 1 - kept);
    if (ramp < 1e-3 && (divisors[i] != 1 || on_ramp > 0)) continue;
    if (ramp >= 1e-3 && ramp < on_ramp) continue;
    original = std::ceil((kLow + kept * (kHigh - kLow)) * kTwoPi / theta[i] - 0.01);
    on_ramp = ramp;
  }
  if (!(original >= 1 && original <= static_cast<double>(limits::kContext))) return nullptr;
  const io::Json scaling = {{"rope_type", "llama3"},
                            {"factor", factor},
                            {"low_freq_factor", kLow},
                            {"high_freq_factor", kHigh},
                            {"original_max_position_embeddings", static_cast<int64_t>(original)}};
  const std::vector<double> again = llama3_divisors(scaling, theta);
  for (size_t i = 0; i < again.size(); ++i) {
    if (!(std::fabs(again[i] / static_cast<double>(divisors[i]) - 1) < 1e-4)) return nullptr;
  }
  return scaling;
}

namespace {

constexpr const char *kDivisors = "rope_freqs.weight", *kShort = "rope_factors_short.weight",
                     *kLong = "rope_factors_long.weight";

// The longrope of a config, the factors of which are tensors, as configs say it. Older transformers
// want no keys in it but these; the attention factor follows from the lengths outside, or is an
// addition.
void set_longrope(const Array& short_factors, const Array& long_factors, io::Json& config) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const io::Json scaling = config.at("rope_scaling");
  const auto list = [](const Array& array) {
    const Array numbers = float32_copy(array);
    return io::Json(std::vector<float>(numbers.as<float>().begin(), numbers.as<float>().end()));
  };
  const int64_t original = io::get_int(scaling, kOriginal, 1, limits::kContext);
  io::Json said = {{"rope_type", "longrope"},
                   {"type", "longrope"},
                   {"short_factor", list(short_factors)},
                   {"long_factor", list(long_factors)}};
  const double times = io::get_number(config, "max_position_embeddings", 1, limits::kContext) /
                       static_cast<double>(original);
  const double automatic = io::longrope_attention(original, times);
  const double attention = io::get_number(scaling, "attention_factor", 1e-6, kMaxFactor, 1);
  if (std::fabs(attention / automatic - 1) > 1e-4) said["attention_factor"] = attention;
  config[kOriginal] = original;
  config["rope_scaling"] = std::move(said);
}

}  // namespace

bool is_rope_tensor(std::string_view name) {
  return name == kDivisors || name == kShort || name == kLong;
}

std::map<std::string, std::vector<float>> rope_tensors(const io::Json& config, int64_t head_dim) {
  std::map<std::string, std::vector<float>> tensors;
  if (auto divisors = rope_divisors(config, head_dim); !divisors.empty()) {
    tensors[kDivisors] = std::move(divisors);
  }
  const io::Json* scaling = io::find_value(config, "rope_scaling");
  if (scaling == nullptr || type_of(*scaling) != "longrope") return tensors;
  for (const auto& [name, key] : {std::pair(kShort, "short_factor"), {kLong, "long_factor"}}) {
    const Tensor factors = factors_of(*scaling, key, head_dim / 2);
    if (!factors.defined()) continue;
    const auto numbers = factors.node()->value.as<float>();
    tensors[name].assign(numbers.begin(), numbers.end());
  }
  return tensors;
}

bool set_rope_scaling(const NamedArrays& tensors, io::Json& config) {
  if (const auto found = tensors.find(kDivisors); found != tensors.end()) {
    const Array divisors = float32_copy(found->second);
    io::Json scaling = proportional_scaling(divisors.as<float>());
    if (scaling.is_null()) scaling = llama3_scaling(config, divisors.as<float>());
    if (scaling.is_null()) return false;
    config["rope_scaling"] = std::move(scaling);
  }
  const auto near = tensors.find(kShort), far = tensors.find(kLong);
  if (near != tensors.end() && far != tensors.end()) {
    set_longrope(near->second, far->second, config);
  }
  return true;
}

Tensor Rope::table(const Tensor& position, int64_t tokens) const {
  return ops::rope_table(position, frequencies, tokens, attention_factor);
}

Tensor QueryTemperature::of(const Tensor& first, int64_t tokens, const Tensor& own,
                            int64_t positions) const {
  if (beta == 0 || positions + (from_one ? 1 : 0) <= length) return {};
  Tensor at = graph::contiguous(own.defined() ? own : first, DType::kF32);
  if (!own.defined()) {
    at = ops::add(graph::reshape(at, {first.dim(0), 1}),
                  ops::arange(0.0, static_cast<double>(tokens)));
  }
  const auto number = [](double x) { return graph::scalar(static_cast<float>(x)); };
  if (from_one) at = ops::add(at, number(1));
  const Tensor lengths =
      ops::log(ops::add(ops::floor(ops::div(at, number(static_cast<double>(length)))), number(1)));
  return ops::add(ops::mul(lengths, number(beta)), number(1));
}

Tensor Rope::query_table(const Tensor& table, const Tensor& position, const Tensor& own,
                         int64_t positions) const {
  const int64_t half = table.dim(-1), rows = own.defined() ? own.dim(0) : position.dim(0);
  const int64_t tokens = own.defined() ? own.dim(1) : table.dim(0) / rows;
  const Tensor scale = temperature.of(position, tokens, own, positions);
  if (!scale.defined()) return table;
  const Tensor scaled = ops::mul(graph::reshape(table, {-1, tokens, 2 * half}),
                                 graph::reshape(scale, {rows, tokens, 1}));
  return graph::reshape(scaled, {rows * tokens, 2, half});
}

bool has_rotary_rows(std::string_view name) {
  const bool projects = name.find(".q_proj.") != std::string_view::npos ||
                        name.find(".k_proj.") != std::string_view::npos;
  return projects && !name.ends_with(".lora_A.weight");
}

bool has_reordered_rows(const io::Json& config) {
  return io::get_bool(config, "rope_interleaved", false) &&
         !io::rotates_pairs(io::get_string(config, "model_type", ""));
}

Array reorder_rotary_rows(const Array& weight, int64_t head_dim, bool to_interleaved) {
  const int64_t rows = weight.shape()[0];
  const size_t bytes = weight.bytes() / static_cast<size_t>(rows);
  Array moved = Array::zeros(weight.dtype(), weight.shape());
  const std::byte* from = weight.data();
  std::byte* to = moved.mutable_data();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row % head_dim, half = head_dim / 2;
    const int64_t pair = row - at + at % half * 2 + at / half;
    const int64_t source = to_interleaved ? row : pair, target = to_interleaved ? pair : row;
    std::memcpy(to + target * bytes, from + source * bytes, bytes);
  }
  return moved;
}

}  // namespace lumen::nn
