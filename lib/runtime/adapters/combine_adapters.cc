#include "lib/runtime/adapters/combine_adapters.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"

namespace lumen::runtime {
namespace {

// The factors of the additions to a layer, those of one adapter beside those of the next: with
// A = [A₁; A₂] and B = [s₁ B₁, s₂ B₂] B A is Σ sᵢ Bᵢ Aᵢ.
struct Factors {
  int64_t rank = 0, in = 0, out = 0;
  std::vector<float> a;               // [rank, in]
  std::vector<std::vector<float>> b;  // columns of B, [rank][out]
};

[[noreturn]] void fail_combined(const LoraAdapter& adapter, std::string_view what) {
  fail(ErrorKind::kUnsupported, adapter.place, ": ", what,
       ", which cannot be added to other adapters or scaled: apply it alone, or work it into the "
       "model first (lumen-convert --lora)");
}

void add_factors(const LoraAdapter& adapter, double scale, std::map<std::string, Factors>& all) {
  for (const auto& [name, a] : adapter.tensors) {
    if (name.ends_with(kMagnitude)) fail_combined(adapter, "has lengths of rows (DoRA)");
    if (!name.ends_with(kLoraA) && !name.ends_with(kLoraB)) {
      fail_combined(adapter, str("has ", quoted(name)));
    }
    if (!name.ends_with(kLoraA)) continue;
    const std::string place = name.substr(0, name.size() - kLoraA.size());
    const auto found = adapter.tensors.find(place + std::string(kLoraB));
    if (found == adapter.tensors.end()) {
      fail(ErrorKind::kMalformed, adapter.place, ": has ", quoted(name), " without its lora_B");
    }
    const Array& b = found->second;
    if (a.shape().rank() != 2 || b.shape().rank() != 2 || a.shape()[0] != b.shape()[1]) {
      fail(ErrorKind::kMalformed, adapter.place, ": ", quoted(name), " has shape ",
           to_string(a.shape()), ", its lora_B ", to_string(b.shape()));
    }
    const int64_t rank = a.shape()[0], in = a.shape()[1], out = b.shape()[0];
    Factors& factors = all[place];
    if (factors.rank > 0 && (factors.in != in || factors.out != out)) {
      fail(ErrorKind::kMismatch, adapter.place, ": ", quoted(name), " has shape ",
           to_string(a.shape()), ", that of another adapter [", factors.rank, ", ", factors.in,
           "]: they are of different models");
    }
    factors.in = in, factors.out = out, factors.rank += rank;
    const auto values = a.as<float>(), columns = b.as<float>();
    factors.a.insert(factors.a.end(), values.begin(), values.end());
    const double own = scale * adapter.options.of(place).scale;
    for (int64_t r = 0; r < rank; ++r) {
      std::vector<float>& column = factors.b.emplace_back();
      for (int64_t i = 0; i < out; ++i) {
        column.push_back(static_cast<float>(own * columns[static_cast<size_t>(i * rank + r)]));
      }
    }
  }
}

void put(const std::string& place, const Factors& factors, LoraAdapter& result) {
  std::vector<float> b(static_cast<size_t>(factors.out * factors.rank));
  for (int64_t r = 0; r < factors.rank; ++r) {
    for (int64_t i = 0; i < factors.out; ++i) {
      b[static_cast<size_t>(i * factors.rank + r)] =
          factors.b[static_cast<size_t>(r)][static_cast<size_t>(i)];
    }
  }
  result.tensors[place + std::string(kLoraA)] =
      Array::from<float>(factors.a, {factors.rank, factors.in});
  result.tensors[place + std::string(kLoraB)] = Array::from<float>(b, {factors.out, factors.rank});
  result.options.own[place] = {factors.rank, 1.0};
}

}  // namespace

NamedAdapter parse_adapter_name(const std::string& text) {
  std::error_code ignored;
  const size_t equals = text.rfind('=');
  if (equals == text.npos || std::filesystem::exists(text, ignored)) return {text};
  NamedAdapter adapter = {text.substr(0, equals)};
  constexpr double kMost = 1000;
  if (!parse_number(std::string_view(text).substr(equals + 1), adapter.scale) ||
      !(adapter.scale >= -kMost && adapter.scale <= kMost)) {
    fail(ErrorKind::kUsage, "lora: ", quoted(text), ": expected ADAPTER=SCALE with a number from ",
         -kMost, " to ", kMost);
  }
  return adapter;
}

LoraAdapter read_adapters(const std::vector<std::string>& names, const io::Json& model_config) {
  std::vector<NamedAdapter> named;
  for (const std::string& name : names) named.push_back(parse_adapter_name(name));
  if (named.size() == 1 && named[0].scale == 1) return read_adapter(named[0].path, model_config);
  LoraAdapter result;
  std::map<std::string, Factors> factors;
  for (const NamedAdapter& one : named) {
    LoraAdapter adapter = read_adapter(one.path, model_config);
    add_factors(adapter, one.scale, factors);
    if (!adapter.replaced.empty() && one.scale != 1) {
      fail_combined(adapter, str("replaces ", quoted(adapter.replaced.begin()->first)));
    }
    for (auto& [name, array] : adapter.replaced) {
      if (!result.replaced.emplace(name, array).second) {
        fail_combined(adapter, str("replaces ", quoted(name), " as another does"));
      }
    }
    result.place += str(result.place.empty() ? "" : ", ", adapter.place);
    result.experts_are_layers = result.experts_are_layers && adapter.experts_are_layers;
  }
  for (const auto& [place, sums] : factors) put(place, sums, result);
  return result;
}

}  // namespace lumen::runtime
