// What files of Apertus say in keys, without the name of the architecture, and Hugging Face in
// tensors: the numbers of each layer's activation (nn::Xielu).
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/gguf_families.h"
#include "lib/io/model_formats.h"

namespace lumen::io {
namespace {

constexpr std::string_view kPlace = ".mlp.act_fn.";

struct Number {
  const char *key, *name;
  int rank;  // of the tensor, which has one number
};
constexpr Number kNumbers[] = {{"xielu.alpha_p", "alpha_p", 1},
                               {"xielu.alpha_n", "alpha_n", 1},
                               {"xielu.beta", "beta", 0},
                               {"xielu.eps", "eps", 0}};

std::string tensor_name(int64_t layer, const Number& number) {
  return str("model.layers.", layer, kPlace, number.name);
}

float number_of(const std::string& name, const NamedArrays& tensors) {
  const Array& array = tensors.at(name);
  if (array.dtype() == DType::kF32) return array.as<float>()[0];
  if (array.dtype() == DType::kBF16) return to_float(array.as<bf16>()[0]);
  if (array.dtype() == DType::kF16) return to_float(array.as<f16>()[0]);
  fail(ErrorKind::kMalformed, "tensor ", quoted(name), " is ", lumen::name(array.dtype()),
       ", expected f32, f16 or bf16");
}

bool has_numbers(const Json& config) {
  return get_string(config, "model_type") == "apertus" &&
         get_string(config, "hidden_act", "xielu") == "xielu";
}

}  // namespace

bool is_gguf_number(std::string_view name) {
  return std::ranges::any_of(
      kNumbers, [&](const Number& number) { return name.ends_with(str(kPlace, number.name)); });
}

void add_gguf_numbers(const GgufMetadata& metadata, const Json& config, NamedArrays& tensors) {
  if (!has_numbers(config)) return;
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  for (const Number& number : kNumbers) {
    const auto value = metadata.find(number.key);
    const bool is_list = value && value->is_array();
    if (!value || (is_list && static_cast<int64_t>(value->size()) != layers)) {
      fail(ErrorKind::kMalformed, "key ", quoted(number.key), ": ",
           value ? str("found ", value->size(), " numbers") : std::string("missing"),
           ", expected a number, or an array of ", layers, ", one per layer");
    }
    for (int64_t i = 0; i < layers; ++i) {
      const auto x = static_cast<float>(is_list ? value->number_at(static_cast<size_t>(i))
                                                : value->as_number());
      tensors[tensor_name(i, number)] =
          Array::from<float>(std::span<const float>(&x, 1), number.rank == 1 ? Shape{1} : Shape{});
    }
  }
}

void set_gguf_numbers(const Json& config, const NamedArrays& tensors, GgufWriter& writer) {
  if (!has_numbers(config)) return;
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  for (const Number& number : kNumbers) {
    std::vector<float> numbers;
    for (int64_t i = 0; i < layers; ++i) {
      numbers.push_back(number_of(tensor_name(i, number), tensors));
    }
    writer.set(number.key, numbers);
  }
}

}  // namespace lumen::io
