#include <cstring>

#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/weights/dot_rows.h"
#include "lib/kernels/weights/dot_rows_vnni.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/dot_rows_quantized.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/weights/quant_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// As in dot_rows_float.cc.
inline constexpr int64_t kPrefetchBytes = 3072;

// Rows of x that share the unpacking. One on targets of old machines, for the sake of the time to
// compile this file.
inline constexpr int kMostRows = HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4 ? 1 : 4;

// Sums that run side by side, against the latency of the multiply-add.
inline constexpr int kSums = 2;

// How kGroup codes with a scale per kSub are multiplied: pairs of int16 products to int32, then
// floats. A group is a sub-block, or two where a vector of int16 holds 32.
template <int kSub>
struct Group {
  using Words = hn::CappedTag<int16_t, HWY_TARGET == HWY_AVX3 ? 32 : kSub>;
  using Bytes = hn::Rebind<int8_t, Words>;
  using Ints = hn::RepartitionToWide<Words>;
  using Floats = hn::RebindToFloat<Ints>;
  using Vector = hn::VFromD<Floats>;
  static constexpr int kGroup = HWY_TARGET == HWY_AVX3 ? 32 : kSub;

  // The products of kGroup codes, summed within the lanes of a vector.
  static HWY_INLINE Vector products(const int8_t* w, const int8_t* x) {
    const Words words;
    const Bytes bytes;
    const Ints ints;
    auto sum = hn::Zero(ints), other = hn::Zero(ints);
    for (size_t i = 0; i < kGroup; i += hn::Lanes(words)) {
      sum =
          hn::ReorderWidenMulAccumulate(ints, hn::PromoteTo(words, hn::LoadU(bytes, w + i)),
                                        hn::PromoteTo(words, hn::LoadU(bytes, x + i)), sum, other);
    }
    return hn::ConvertTo(Floats(), hn::Add(sum, other));
  }

  // What the products of group `group` of a block are multiplied by: factors[sub] in every lane of
  // sub-block `sub`.
  static HWY_INLINE Vector factor(const float* factors, int group) {
    const Floats d;
    if constexpr (kGroup == kSub) {
      return hn::Set(d, factors[group]);
    } else {
      // Here lanes 0 to 7 hold the sums of the first sub-block.
      const hn::Half<Floats> half;
      return hn::Combine(d, hn::Set(half, factors[2 * group + 1]),
                         hn::Set(half, factors[2 * group]));
    }
  }
};

// out[r] = Σ_k w[k] · x[r][k] for kRows consecutive rows of x from `row`, formats of 32 elements.
template <class Format, int kRows>
void dot_row_32(const uint8_t* w, const QuantizedRows& x, int64_t row, float* out) {
  using G = Group<32>;
  const typename G::Floats d;
  typename G::Vector sum[kRows][kSums];
  float min_sum[kRows][kSums] = {};
  for (auto& each : sum) {
    for (auto& s : each) s = hn::Zero(d);
  }
  const int64_t blocks = x.cols / 32;
  const int8_t* codes = x.codes + row * x.cols;
  const float* x_scale = x.scale_32 + row * blocks;
  const float* x_sum = x.sum_32 + row * blocks;
  auto add_block = [&](int64_t block, int s) HWY_ATTR {
    HWY_ALIGN int8_t q[32];
    float scale, min;
    const uint8_t* p = w + block * kBytesOf<Format>;
    hwy::Prefetch(p + kPrefetchBytes);
    Format::unpack(p, q, &scale, &min);
    for (int r = 0; r < kRows; ++r) {
      const float factor = scale * x_scale[r * blocks + block];
      const auto products = G::products(q, codes + r * x.cols + 32 * block);
      sum[r][s] = hn::MulAdd(products, hn::Set(d, factor), sum[r][s]);
      if constexpr (Format::kHasMin) min_sum[r][s] += min * x_sum[r * blocks + block];
    }
  };
  int64_t block = 0;
  for (; block + kSums <= blocks; block += kSums) {
    for (int s = 0; s < kSums; ++s) add_block(block + s, s);
  }
  for (; block < blocks; ++block) add_block(block, 0);
  for (int r = 0; r < kRows; ++r) {
    out[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[r][0], sum[r][1])));
    if constexpr (Format::kHasMin) out[r] += min_sum[r][0] + min_sum[r][1];
  }
}

// The same for formats of 256 elements.
template <class Format, int kRows>
void dot_row_256(const uint8_t* w, const QuantizedRows& x, int64_t row, float* out) {
  constexpr int kSubs = 256 / Format::kSub;
  using G = Group<Format::kSub>;
  const typename G::Floats d;
  const hn::CappedTag<float, 8> d8;  // for the sub-blocks' scales and mins
  typename G::Vector sum[kRows][kSums];
  hn::VFromD<decltype(d8)> min_sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    for (auto& s : sum[r]) s = hn::Zero(d);
    min_sum[r] = hn::Zero(d8);
  }
  const int64_t subs = x.cols / Format::kSub;
  const int8_t* codes = x.codes + row * x.cols;
  const float* x_scale = (Format::kSub == 16 ? x.scale_16 : x.scale_32) + row * subs;
  const float* x_sum = (Format::kSub == 16 ? x.sum_16 : x.sum_32) + row * subs;
  HWY_ALIGN int8_t q[256];
  HWY_ALIGN float scale[kSubs], min[kSubs], factors[kRows][kSubs];
  for (int64_t k = 0; k < x.cols; k += 256, w += kBytesOf<Format>) {
    for (int line = 0; line < kBytesOf<Format>; line += 64) {
      hwy::Prefetch(w + kPrefetchBytes + line);
    }
    Format::unpack(w, q, scale, min);
    for (int r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < kSubs; i += hn::Lanes(d8)) {
        const int64_t at = r * subs + k / Format::kSub + static_cast<int64_t>(i);
        const auto f = hn::Mul(hn::Load(d8, scale + i), hn::LoadU(d8, x_scale + at));
        hn::Store(f, d8, factors[r] + i);
        if constexpr (Format::kHasMin) {
          min_sum[r] = hn::MulAdd(hn::Load(d8, min + i), hn::LoadU(d8, x_sum + at), min_sum[r]);
        }
      }
    }
    for (int group = 0; group < 256 / G::kGroup; ++group) {
      for (int r = 0; r < kRows; ++r) {
        const int at = group * G::kGroup;
        const auto products = G::products(q + at, codes + r * x.cols + k + at);
        auto& s = sum[r][group % kSums];
        s = hn::MulAdd(products, G::factor(factors[r], group), s);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    out[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[r][0], sum[r][1])));
    if constexpr (Format::kHasMin) out[r] += hn::GetLane(hn::SumOfLanes(d8, min_sum[r]));
  }
}

template <class Format, int kRows>
void dot_row(const uint8_t* w, const QuantizedRows& x, int64_t row, float* out) {
  if constexpr (kBlockOf<Format> == 32) {
    dot_row_32<Format, kRows>(w, x, row, out);
  } else {
    dot_row_256<Format, kRows>(w, x, row, out);
  }
}

template <class Format>
void dot_rows(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t m,
              float* y, int64_t y_stride) {
  const int64_t bytes = row_bytes(Format::kType, w.cols);
  const auto* row = static_cast<const uint8_t*>(w.data) + begin * bytes;
  // The most rows of x at a time, or one: two would add a third to the size of this file's code.
  for (int64_t j = 0; j < end - begin; ++j, row += bytes) {
    for (int64_t r = 0; r < m;) {
      float out[kMostRows];
      const int64_t count = m - r >= kMostRows ? kMostRows : 1;
      if (count == kMostRows) {
        dot_row<Format, kMostRows>(row, x, r, out);
      } else {
        dot_row<Format, 1>(row, x, r, out);
      }
      for (int64_t i = 0; i < count; ++i) y[(r + i) * y_stride + j] = out[i];
      r += count;
    }
  }
}

void dot_rows_portable_kernel(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
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
HWY_EXPORT(dot_rows_portable_kernel);
}  // namespace

void dot_rows_quantized(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                        int64_t m, float* y, int64_t y_stride) {
  if (vnni_bits() == 512) {
    dot_rows_vnni(w, begin, end, x, m, y, y_stride);
  } else {
    dot_rows_portable(w, begin, end, x, m, y, y_stride);
  }
}

void dot_rows_portable(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                       int64_t m, float* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(dot_rows_portable_kernel)(w, begin, end, x, m, y, y_stride);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
