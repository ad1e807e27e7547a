#include "lib/nn/kv_cache.h"

#include "lib/base/error.h"
#include "lib/tensor/allocator.h"

namespace lumen::nn {
namespace {

uint64_t recurrent_bytes(const KvCacheShape& shape) {
  const KvCacheShape::Recurrent& kept = shape.recurrent;
  const int64_t numbers =
      kept.past_inputs * kept.channels + kept.heads * kept.key_dim * kept.value_dim;
  return static_cast<uint64_t>(kept.layers * shape.batch * numbers) * sizeof(float);
}

}  // namespace

uint64_t KvCache::bytes(const KvCacheShape& shape, DType dtype) {
  int64_t position = 0;  // of k, or of v
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto [kv_heads, head_dim] = shape.heads(layer);
    position += kv_heads * row_bytes(dtype, head_dim);
  }
  const int64_t positions = shape.batch * shape.context * (shape.has_values ? 2 : 1);
  return static_cast<uint64_t>(positions * position) + recurrent_bytes(shape);
}

KvCache::KvCache(const KvCacheShape& shape, DType dtype) : shape_(shape) {
  for (int64_t layer = 0; is_quantized(dtype) && layer < shape.layers; ++layer) {
    const int64_t head_dim = shape.heads(layer).head_dim;
    if (head_dim % info(dtype).block_elements == 0) continue;
    fail(ErrorKind::kUnsupported, "a ", name(dtype), " KV cache needs a head_dim divisible by ",
         info(dtype).block_elements, ", this model has ", head_dim, "; use --kv f16");
  }
  // Not cleared: pages are touched as positions are filled, and no unfilled position is read.
  auto buffer = std::make_shared<Buffer>(allocate(bytes(shape, dtype)));
  size_t offset = 0;
  auto next = [&](const char* what, int64_t layer, DType type, const Shape& one) {
    Array array = Array::view(buffer, offset, type, one);
    offset += array.bytes();
    return graph::state(std::move(array), str(what, ".", layer));
  };
  const KvCacheShape::Recurrent& kept = shape.recurrent;
  for (int64_t layer = 0; layer < kept.layers; ++layer) {
    past_inputs_.push_back(
        next("past_inputs", layer, DType::kF32, {shape.batch, 1, kept.past_inputs, kept.channels}));
    if (kept.heads == 0) continue;
    matrices_.push_back(next("matrices", layer, DType::kF32,
                             {shape.batch, kept.heads, kept.key_dim, kept.value_dim}));
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto [kv_heads, head_dim] = shape.heads(layer);
    const Shape one = {shape.batch, kv_heads, shape.context, head_dim};
    k_.push_back(next("k", layer, dtype, one));
    if (shape.has_values) v_.push_back(next("v", layer, dtype, one));
  }
}

void KvCache::for_each_piece(int64_t slot, int64_t positions,
                             FunctionRef<void(std::span<std::byte>)> visit) const {
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const auto [kv_heads, head_dim] = shape_.heads(layer);
    for (const std::vector<graph::Tensor>* states : {&k_, &v_}) {
      if (states->empty()) continue;
      Array memory = (*states)[layer].node()->value;
      const int64_t row = row_bytes(memory.dtype(), head_dim);
      for (int64_t head = 0; head < kv_heads; ++head) {
        const int64_t first = (slot * kv_heads + head) * shape_.context;
        visit({memory.mutable_data() + first * row, static_cast<size_t>(positions * row)});
      }
    }
  }
}

KvCache KvCache::with_slots(graph::Tensor slots) const {
  KvCache chosen = *this;
  chosen.slots_ = std::move(slots);
  return chosen;
}

}  // namespace lumen::nn
