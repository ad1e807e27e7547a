#include "lib/kernels/attention/attention_rows.h"

#include "lib/kernels/convert.h"

namespace lumen::kernels::attention_rows {

void load_rows(const KvView& view, int64_t slot, int64_t head, int64_t begin, int64_t count,
               int64_t head_dim, float* y) {
  const std::byte* x =
      view.data + slot * view.batch_stride + head * view.head_stride + begin * view.position_stride;
  const int64_t pitch = pitch_of(head_dim);
  if (pitch == head_dim && view.position_stride == row_bytes(view.dtype, head_dim)) {
    to_float(view.dtype, x, y, count * head_dim);
  } else {
    for (int64_t p = 0; p < count; ++p) {
      to_float(view.dtype, x + p * view.position_stride, y + p * pitch, head_dim);
      std::fill(y + p * pitch + head_dim, y + (p + 1) * pitch, 0.0f);
    }
  }
  std::fill(y + count * pitch, y + round_up(count, 8) * pitch, 0.0f);
}

void QueryColumns::load_seen(float* first, float* last) const {
  for (int64_t c = 0; c < width_; ++c) {
    const KeyRange range = seen(c);
    first[c] = static_cast<float>(range.begin);
    last[c] = static_cast<float>(range.end);
  }
}

}  // namespace lumen::kernels::attention_rows
