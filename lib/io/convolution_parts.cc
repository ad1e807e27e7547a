#include "lib/io/convolution_parts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/strings.h"

namespace lumen::io {
namespace {

constexpr std::string_view kFirst = "q_conv1d.weight";

// Those of the layer at `place` as its projections have rows.
void part_layer(std::string_view place, NamedArrays& tensors) {
  std::array<Array*, 3> convolutions;
  std::array<int64_t, 3> rows;
  int64_t found = 0, wanted = 0;
  for (size_t i = 0; i < 3; ++i) {
    const char letter = "qkv"[i];
    const auto convolution = tensors.find(str(place, letter, "_conv1d.weight"));
    const auto projection = tensors.find(str(place, letter, "_proj.weight"));
    if (convolution == tensors.end() || projection == tensors.end()) return;
    convolutions[i] = &convolution->second;
    if (convolutions[i]->shape().rank() != 3 || projection->second.shape().rank() != 2) return;
    rows[i] = projection->second.shape()[0];
    found += convolutions[i]->shape()[0];
    wanted += rows[i];
  }
  const Shape& first = convolutions[0]->shape();
  const auto is_alike = [&](const Array* array) {
    return array->dtype() == convolutions[0]->dtype() && array->shape()[1] == first[1] &&
           array->shape()[2] == first[2];
  };
  if (found != wanted || !std::ranges::all_of(convolutions, is_alike)) return;
  if (convolutions[0]->shape()[0] == rows[0] && convolutions[1]->shape()[0] == rows[1]) return;
  Array all = Array::zeros(convolutions[0]->dtype(), {found, first[1], first[2]});
  std::byte* to = all.mutable_data();
  for (const Array* part : convolutions) to = std::copy_n(part->data(), part->bytes(), to);
  int64_t begin = 0;
  for (size_t i = 0; i < 3; ++i) {
    *convolutions[i] = all.parts(begin, rows[i]);
    begin += rows[i];
  }
}

}  // namespace

void part_convolutions(NamedArrays& tensors) {
  std::vector<std::string> places;
  for (const auto& [name, array] : tensors) {
    if (name.ends_with(kFirst)) places.push_back(name.substr(0, name.size() - kFirst.size()));
  }
  for (const std::string& place : places) part_layer(place, tensors);
}

}  // namespace lumen::io
