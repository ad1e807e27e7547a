#include "lib/runtime/fused_inputs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "lib/base/error.h"
#include "lib/nn/fused_layers.h"
#include "lib/runtime/lora.h"

namespace lumen::runtime {
namespace {

constexpr int kBothParts[] = {0, 1};

// The tensor of this name, taken out of `tensors`; empty if there is none.
Array take_tensor(NamedArrays& tensors, const std::string& name) {
  auto found = tensors.extract(name);
  return found.empty() ? Array() : std::move(found.mapped());
}

bool same_numbers(const Array& a, const Array& b) {
  const auto x = a.as<float>(), y = b.as<float>();
  return a.shape() == b.shape() && std::equal(x.begin(), x.end(), y.begin());
}

// Throws unless both are there and can be multiplied.
void require_pair(const std::string& place, const Array& a, const Array& b) {
  const bool fits = !a.empty() && !b.empty() && a.shape().rank() == 2 && b.shape().rank() == 2 &&
                    a.shape()[0] == b.shape()[1];
  if (fits) return;
  fail(ErrorKind::kMalformed, "the addition to ", quoted(place + "weight"), " has shapes ",
       to_string(a.shape()), " and ", to_string(b.shape()),
       ", expected [rank, in] and [out, rank]");
}

struct InputAddition {
  Array a, b;
  nn::LoraOptions::Own own{};
};

// The addition of both, of which one may be empty.
InputAddition joined(const io::Json& config, InputAddition (&parts)[2]) {
  const InputAddition& first = parts[0].a.empty() ? parts[1] : parts[0];
  const bool both = !parts[0].a.empty() && !parts[1].a.empty();
  const bool same = both && same_numbers(parts[0].a, parts[1].a);
  const bool one_scale = !both || parts[0].own.scale == parts[1].own.scale;
  const int64_t own_rank = first.a.shape()[0], in = first.a.shape()[1];
  const int64_t rank = both && !same ? own_rank + parts[1].a.shape()[0] : own_rank;
  InputAddition result;
  result.own = {rank, one_scale ? first.own.scale : 1};
  result.a = Array::zeros(DType::kF32, {rank, in});
  float* a = result.a.as_mutable<float>().data();
  Array blocks[2];
  for (const int part : kBothParts) {
    const int64_t rows = nn::input_rows(config, part);
    blocks[part] = Array::zeros(DType::kF32, {rows, rank});
    const InputAddition& addition = parts[part];
    if (addition.a.empty()) continue;
    const int64_t columns = addition.a.shape()[0], column = part == 1 && !same ? rank - columns : 0;
    if (part == 0 || !same) {
      std::ranges::copy(addition.a.as<float>(), a + column * in);
    }
    const auto times = static_cast<float>(one_scale ? 1 : addition.own.scale);
    const auto from = addition.b.as<float>();
    float* const to = blocks[part].as_mutable<float>().data();
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < columns; ++k) {
        to[row * rank + column + k] = times * from[static_cast<size_t>(row * columns + k)];
      }
    }
  }
  result.b = nn::fused_inputs(blocks[0], blocks[1], config);
  return result;
}

void require_rows(const io::Json& config, int part, const std::string& name, const Array& array) {
  const int64_t rows = nn::input_rows(config, part);
  if (array.shape().rank() > 0 && array.shape()[0] == rows) return;
  fail(ErrorKind::kMismatch, "tensor ", quoted(name), " has shape ", to_string(array.shape()),
       ", expected ", rows, " rows as the model's config says");
}

// Weights of the layers of a model, of one type, as the tensor called `fused`.
void join_weights(const io::Json& config, const std::string& fused, NamedArrays& tensors) {
  Array parts[2];
  for (const int part : kBothParts) {
    const std::string name = nn::input_part_name(fused, part);
    parts[part] = take_tensor(tensors, name);
    require_rows(config, part, name, parts[part]);
  }
  if (parts[0].dtype() != parts[1].dtype()) {
    for (Array& part : parts) part = nn::float32_copy(part);
  }
  tensors[fused] = nn::fused_inputs(parts[0], parts[1], config);
}

// Additions as one to the layer of this place, such as "….in_proj_qkvz.".
void join_additions(const io::Json& config, const std::string& place, NamedArrays& tensors,
                    nn::LoraOptions* options) {
  InputAddition parts[2];
  for (const int part : kBothParts) {
    const std::string own = nn::input_part_name(place, part);
    InputAddition& addition = parts[part];
    addition.a = take_tensor(tensors, own + std::string(kLoraA));
    addition.b = take_tensor(tensors, own + std::string(kLoraB));
    if (addition.a.empty() && addition.b.empty()) continue;
    require_pair(own, addition.a, addition.b);
    require_rows(config, part, own + std::string(kLoraB), addition.b);
    if (options != nullptr) addition.own = options->of(own);
  }
  const Array& first = parts[0].a.empty() ? parts[1].a : parts[0].a;
  if (!parts[1].a.empty() && first.shape()[1] != parts[1].a.shape()[1]) {
    fail(ErrorKind::kMismatch, "the additions to both parts of ", quoted(place),
         " are for layers of different widths");
  }
  InputAddition both = joined(config, parts);
  tensors[place + std::string(kLoraA)] = std::move(both.a);
  tensors[place + std::string(kLoraB)] = std::move(both.b);
  if (options == nullptr) return;
  for (const int part : kBothParts) options->own.erase(nn::input_part_name(place, part));
  const bool usual = both.own.rank == options->rank && both.own.scale == options->scale;
  if (!usual) options->own[place] = both.own;
}

// Parts of names of a Granite 4.0 without experts, and of the Granite that it is in GGUF.
constexpr std::pair<std::string_view, std::string_view> kGraniteNames[] = {
    {".shared_mlp.gate_linear.", ".mlp.gate_proj."},
    {".shared_mlp.up_linear.", ".mlp.up_proj."},
    {".shared_mlp.output_linear.", ".mlp.down_proj."}};

std::string renamed(std::string name, bool to_granite) {
  for (const auto& [hybrid, granite] : kGraniteNames) {
    const std::string_view from = to_granite ? hybrid : granite, to = to_granite ? granite : hybrid;
    if (const size_t at = name.find(from); at != name.npos)
      return name.replace(at, from.size(), to);
  }
  return name;
}

void rename_all(NamedArrays& tensors, nn::LoraOptions& options, bool to_granite) {
  NamedArrays named;
  for (auto& [name, array] : tensors) named[renamed(name, to_granite)] = std::move(array);
  tensors = std::move(named);
  std::map<std::string, nn::LoraOptions::Own> own;
  for (const auto& [place, rank] : options.own) own[renamed(place, to_granite)] = rank;
  options.own = std::move(own);
}

}  // namespace

void name_as_granite(const io::Json& config, NamedArrays& tensors, nn::LoraOptions& options) {
  if (io::get_string(config, "model_type", "") != "granite") return;
  const io::Json hybrid = {{"model_type", "granitemoehybrid"},
                           {"num_local_experts", 0},
                           {"shared_intermediate_size", config["intermediate_size"]}};
  part_inputs(hybrid, tensors, &options);
  rename_all(tensors, options, true);
}

void name_as_granite_hybrid(const io::Json& config, NamedArrays& tensors,
                            nn::LoraOptions& options) {
  const bool is_hybrid = io::get_string(config, "model_type", "") == "granitemoehybrid";
  if (is_hybrid && nn::has_fused_inputs(config)) rename_all(tensors, options, false);
}

void part_inputs(const io::Json& config, NamedArrays& tensors, nn::LoraOptions* options) {
  NamedArrays parts;
  std::erase_if(tensors, [&](const auto& tensor) {
    const auto& [name, array] = tensor;
    if (nn::input_part_name(name, 0).empty()) return false;
    for (const int part : kBothParts) {
      const int64_t rows = nn::input_rows(config, 0) + nn::input_rows(config, 1);
      const bool fits = array.shape().rank() > 0 && array.shape()[0] == rows;
      // Those that do not fit are told of with the shape that they should have.
      const bool whole = name.ends_with(kLoraA) || !fits;
      parts[nn::input_part_name(name, part)] = whole ? array : nn::input_part(array, config, part);
    }
    return true;
  });
  tensors.merge(parts);
  if (options == nullptr) return;
  std::map<std::string, nn::LoraOptions::Own> own;
  for (const auto& [place, rank] : options->own) {
    const bool is_fused = !nn::input_part_name(place, 0).empty();
    for (const int part : kBothParts) {
      own[is_fused ? nn::input_part_name(place, part) : place] = rank;
    }
  }
  options->own = std::move(own);
}

void join_inputs(const io::Json& config, NamedArrays& tensors, nn::LoraOptions* options) {
  std::set<std::string> places;  // of such layers, and names of tensors that are no additions
  for (const auto& [name, array] : tensors) {
    const bool is_addition = name.ends_with(kLoraA) || name.ends_with(kLoraB);
    const std::string of = is_addition ? name.substr(0, name.size() - kLoraA.size()) : name;
    const std::string fused = nn::fused_input_name(of);
    if (!fused.empty()) places.insert(fused);
  }
  for (const std::string& place : places) {
    if (place.ends_with('.')) {
      join_additions(config, place, tensors, options);
    } else {
      join_weights(config, place, tensors);
    }
  }
}

}  // namespace lumen::runtime
