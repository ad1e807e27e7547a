#include <cstring>

#include "lib/kernels/dot_rows.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/dot_rows_quantized.cc"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lib/kernels/quant_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// As in dot_rows_float.cc.
inline constexpr int64_t kPrefetchBytes = 3072;

// Kinds of sums that run side by side, against the latency of the multiply-add.
inline constexpr int kSums = 2;

// Vectors for one sub-block of kSub codes: products of int16 pairs summed to int32, then floats.
template <int kSub>
struct Dot {
  using Words = hn::CappedTag<int16_t, kSub>;
  using Bytes = hn::Rebind<int8_t, Words>;
  using Ints = hn::RepartitionToWide<Words>;
  using Floats = hn::RebindToFloat<Ints>;

  // Σ w · x over kSub codes, spread over the lanes of an int32 vector, as float.
  static HWY_INLINE hn::VFromD<Floats> products(const int8_t* w, const int8_t* x) {
    const Words words;
    const Bytes bytes;
    const Ints ints;
    auto sum = hn::Zero(ints), other = hn::Zero(ints);
    for (size_t i = 0; i < kSub; i += hn::Lanes(words)) {
      sum =
          hn::ReorderWidenMulAccumulate(ints, hn::PromoteTo(words, hn::LoadU(bytes, w + i)),
                                        hn::PromoteTo(words, hn::LoadU(bytes, x + i)), sum, other);
    }
    return hn::ConvertTo(Floats(), hn::Add(sum, other));
  }
};

// out[r] = Σ_k w[k] · x[r][k] for kRows consecutive rows of x starting at `row`.
template <class Format, int kRows>
HWY_INLINE void dot_row(const uint8_t* w, const QuantizedRows& x, int64_t row, float* out) {
  constexpr int kSub = Format::kSub;
  constexpr int kBlock = kBlockOf<Format>;
  constexpr int kBytes = kBytesOf<Format>;
  using D = Dot<kSub>;
  const typename D::Floats d;
  hn::VFromD<typename D::Floats> sum[kRows][kSums];
  float min_sum[kRows][kSums] = {};
  for (auto& each : sum) {
    for (auto& s : each) s = hn::Zero(d);
  }
  const float* x_sums = kSub == 16 ? x.sum_16 : x.sum_32;
  HWY_ALIGN int8_t q[kBlock];
  HWY_ALIGN float scale[kMaxSubBlocks];
  HWY_ALIGN float min[kMaxSubBlocks];
  for (int64_t k = 0; k < x.cols; k += kBlock, w += kBytes) {
    for (int line = 0; line < kBytes; line += 64) hwy::Prefetch(w + kPrefetchBytes + line);
    Format::unpack(w, q, scale, min);
    for (int sub = 0; sub < kBlock / kSub; ++sub) {
      const int64_t at = k + sub * kSub;
      const int s = kBlock > 32 ? sub % kSums : 0;
      for (int r = 0; r < kRows; ++r) {
        const float factor = scale[sub] * x.scale[(row + r) * (x.cols / 32) + at / 32];
        const auto products = D::products(q + sub * kSub, x.codes + (row + r) * x.cols + at);
        sum[r][s] = hn::MulAdd(products, hn::Set(d, factor), sum[r][s]);
        if constexpr (Format::kHasMin) {
          min_sum[r][s] += min[sub] * x_sums[((row + r) * x.cols + at) / kSub];
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    out[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[r][0], sum[r][1])));
    if constexpr (Format::kHasMin) out[r] += min_sum[r][0] + min_sum[r][1];
  }
}

template <class Format>
HWY_INLINE void dot_rows(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                         int64_t m, float* y, int64_t y_stride) {
  const int64_t bytes = row_bytes(Format::kType, w.cols);
  const auto* row = static_cast<const uint8_t*>(w.data) + begin * bytes;
  for (int64_t j = 0; j < end - begin; ++j, row += bytes) {
    float out[4];
    int64_t r = 0;
    auto store = [&](int64_t count) {
      for (int64_t i = 0; i < count; ++i) y[(r + i) * y_stride + j] = out[i];
      r += count;
    };
    while (r < m) {
      if (m - r >= 4) {
        dot_row<Format, 4>(row, x, r, out);
        store(4);
      } else if (m - r >= 2) {
        dot_row<Format, 2>(row, x, r, out);
        store(2);
      } else {
        dot_row<Format, 1>(row, x, r, out);
        store(1);
      }
    }
  }
}

void dot_rows_quantized_kernel(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                               int64_t m, float* y, int64_t y_stride) {
  with_format(w.dtype, [&](auto format) HWY_ATTR {
    dot_rows<decltype(format)>(w, begin, end, x, m, y, y_stride);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(dot_rows_quantized_kernel);
}  // namespace

void dot_rows_quantized(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                        int64_t m, float* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(dot_rows_quantized_kernel)(w, begin, end, x, m, y, y_stride);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
