#include "lib/autograd/autograd.h"
#include "lib/base/error.h"
#include "lib/nn/layers.h"

namespace lumen::nn {
namespace {

std::optional<int64_t> padding_row(int64_t rows, const std::optional<int64_t>& padding) {
  if (!padding) return std::nullopt;
  if (*padding < -rows || *padding >= rows) {
    fail(ErrorKind::kMalformed, "an embedding of ", rows, " rows has no row ", *padding,
         " for padding");
  }
  return *padding < 0 ? *padding + rows : *padding;
}

Init table_init(const std::optional<int64_t>& zero_row) {
  Init init = Init::normal(1);
  init.zero_row = zero_row;
  return init;
}

}  // namespace

Embedding::Embedding(const Parameters& parameters, int64_t rows, int64_t dim,
                     const std::optional<int64_t>& padding)
    : weight(parameters.get("weight", {rows, dim}, table_init(padding_row(rows, padding)))),
      padding(padding_row(rows, padding)) {}

Tensor Embedding::operator()(const Tensor& ids) const {
  const Tensor found = ops::embedding(weight, ids);
  if (!padding) return found;
  Shape beside = ids.shape();
  beside.push_back(1);
  const Tensor is_padding = graph::reshape(ops::eq(ids, *padding), beside);
  return ops::where(is_padding, autograd::detach(found), found);
}

}  // namespace lumen::nn
