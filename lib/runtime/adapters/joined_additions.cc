#include "lib/runtime/adapters/joined_additions.h"

#include <algorithm>

namespace lumen::runtime {

bool have_same_a(const Addition& first, const Addition& second) {
  if (first.a.empty() || first.a.shape() != second.a.shape()) return false;
  return std::ranges::equal(first.a.as<float>(), second.a.as<float>());
}

JoinedAddition joined(const Addition (&parts)[2], const int64_t (&rows)[2], bool same_a) {
  const Addition& first = parts[0].a.empty() ? parts[1] : parts[0];
  const bool both = !parts[0].a.empty() && !parts[1].a.empty(), same = both && same_a;
  const bool one_scale = !both || parts[0].own.scale == parts[1].own.scale;
  const int64_t own_rank = first.a.shape()[0], in = first.a.shape()[1];
  const int64_t rank = both && !same ? own_rank + parts[1].a.shape()[0] : own_rank;
  JoinedAddition result;
  result.own = {rank, one_scale ? first.own.scale : 1};
  result.a = Array::zeros(DType::kF32, {rank, in});
  float* a = result.a.as_mutable<float>().data();
  for (const int part : {0, 1}) {
    result.b[part] = Array::zeros(DType::kF32, {rows[part], rank});
    const Addition& addition = parts[part];
    if (addition.a.empty()) continue;
    const int64_t columns = addition.a.shape()[0], column = part == 1 && !same ? rank - columns : 0;
    if (part == 0 || !same) std::ranges::copy(addition.a.as<float>(), a + column * in);
    const auto times = static_cast<float>(one_scale ? 1 : addition.own.scale);
    const auto from = addition.b.as<float>();
    float* const to = result.b[part].as_mutable<float>().data();
    for (int64_t row = 0; row < rows[part]; ++row) {
      for (int64_t k = 0; k < columns; ++k) {
        to[row * rank + column + k] = times * from[static_cast<size_t>(row * columns + k)];
      }
    }
  }
  return result;
}

}  // namespace lumen::runtime
