#include "lib/runtime/adapters/fused_inputs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "lib/base/error.h"
#include "lib/nn/fused_layers.h"
#include "lib/runtime/adapters/joined_additions.h"
#include "lib/runtime/adapters/lora.h"

namespace lumen::runtime {
namespace {

constexpr int kBothParts[] = {0, 1};

// The tensor of this name, taken out of `tensors`; empty if there is none.
Array take_tensor(NamedArrays& tensors, const std::string& name) {
  auto found = tensors.extract(name);
  return found.empty() ? Array() : std::move(found.mapped());
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
  Addition parts[2];
  for (const int part : kBothParts) {
    const std::string own = nn::input_part_name(place, part);
    Addition& addition = parts[part];
    addition.a = take_tensor(tensors, own + std::string(kLoraA));
    addition.b = take_tensor(tensors, own + std::string(kLoraB));
    addition.m = take_tensor(tensors, own + std::string(kMagnitude));
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
  const int64_t rows[2] = {nn::input_rows(config, 0), nn::input_rows(config, 1)};
  const JoinedAddition both = joined(parts, rows, have_same_a(parts[0], parts[1]));
  tensors[place + std::string(kLoraA)] = both.a;
  tensors[place + std::string(kLoraB)] = nn::fused_inputs(both.b[0], both.b[1], config);
  if (!parts[0].m.empty() && !parts[1].m.empty()) {
    tensors[place + std::string(kMagnitude)] = nn::fused_inputs(parts[0].m, parts[1].m, config);
  }
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
    const size_t addition = name.find("lora_");
    const std::string of = name.substr(0, addition);
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
