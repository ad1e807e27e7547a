#include "lib/kernels/convolution/conv_pack.h"

#include <algorithm>
#include <cstring>

#include "lib/base/round_up.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/convolution/conv_pack.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Float = hn::ScalableTag<float>;
inline constexpr int64_t kVector = hn::MaxLanes(Float());
static_assert(kVector <= kPackSlack);

// y[j] = x[2 j] for j in [0, count), in vectors of D and narrower ones; reads nothing behind the
// last.
template <class D>
HWY_INLINE void take_even(D d, const float* x, int64_t count, float* y) {
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
  if (count > kLanes) {
    hn::Vec<D> even, odd;
    for (int64_t j = 0; j + kLanes < count; j += kLanes) {
      hn::LoadInterleaved2(d, x + 2 * j, even, odd);
      hn::StoreU(even, d, y + j);
    }
    hn::LoadInterleaved2(d, x + 2 * (count - kLanes) - 1, even, odd);  // the last, again
    return hn::StoreU(odd, d, y + count - kLanes);
  }
  if constexpr (kLanes > 4) {
    take_even(hn::Half<D>(), x, count, y);
  } else {
    for (int64_t j = 0; j < count; ++j) y[j] = x[2 * j];
  }
}

// y[j] = x[j · step] for j in [0, count); reads nothing behind the last.
void take_strided_kernel(const float* x, int64_t count, int64_t step, float* y) {
  if (step == 2) return take_even(Float(), x, count, y);
  for (int64_t j = 0; j < count; ++j) y[j] = x[j * step];
}

void pack_patches_kernel(const Patches& patches, int64_t depth, int64_t width, float* panel) {
  const Float d;
  for (int64_t k = 0; k < depth; ++k, panel += width) {
    const float* plane = patches.plane + patches.offsets[k];
    for (const Run* run = patches.runs; run < patches.runs + patches.run_count; ++run) {
      const float* x = plane + run->source;
      float* y = panel + run->begin;
      if (patches.step == 1) {
        // Whole vectors: what is written too far is overwritten by the next run or the next k.
        for (int64_t j = 0; j < run->count; j += kVector) {
          hn::StoreU(hn::LoadU(d, x + j), d, y + j);
        }
      } else {
        take_strided_kernel(x, run->count, patches.step, y);
      }
    }
  }
}

// Four elements of four rows, kStep apart, to four columns of four. Reads whole vectors.
template <int64_t kStep>
HWY_INLINE void transpose_four(const float* const x[4], int64_t at, float* panel, int64_t width) {
  static_assert(kStep == 1 || kStep == 2);
  const hn::CappedTag<float, 4> d;
  const auto load = [&](const float* from) HWY_ATTR {
    if constexpr (kStep == 1) return hn::LoadU(d, from + at);
    return hn::ConcatEven(d, hn::LoadU(d, from + 2 * at + 4), hn::LoadU(d, from + 2 * at));
  };
  const auto r0 = load(x[0]), r1 = load(x[1]), r2 = load(x[2]), r3 = load(x[3]);
  const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
  const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, low02, low13), d, panel);
  hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, panel + width);
  hn::StoreU(hn::InterleaveLower(d, high02, high13), d, panel + 2 * width);
  hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, panel + 3 * width);
}

// The same of `count` elements of each, a multiple of four.
template <int64_t kStep>
HWY_INLINE void transpose_rows(const float* const x[4], int64_t count, float* panel,
                               int64_t width) {
  for (int64_t j = 0; j < count; j += 4) transpose_four<kStep>(x, j, panel + j * width, width);
}

void pack_patches_transposed_kernel(const Patches& patches, int64_t rows, int64_t width,
                                    float* panel) {
  for (const Run* run = patches.runs; run < patches.runs + patches.run_count; ++run) {
    float* column = panel + run->begin * width;
    const float* plane = patches.plane + run->source;
    const int64_t fours = patches.step <= 2 ? run->count / 4 * 4 : 0;
    int64_t k = 0;
    for (; k + 4 <= rows; k += 4) {
      const float* const x[4] = {plane + patches.offsets[k], plane + patches.offsets[k + 1],
                                 plane + patches.offsets[k + 2], plane + patches.offsets[k + 3]};
      if (patches.step == 1) transpose_rows<1>(x, fours, column + k, width);
      if (patches.step == 2) transpose_rows<2>(x, fours, column + k, width);
      for (int64_t j = fours; j < run->count; ++j) {
        for (int64_t i = 0; i < 4; ++i) column[j * width + k + i] = x[i][j * patches.step];
      }
    }
    for (; k < width; ++k) {
      const float* x = k < rows ? plane + patches.offsets[k] : nullptr;
      for (int64_t j = 0; j < run->count; ++j) {
        column[j * width + k] = x ? x[j * patches.step] : 0.0f;
      }
    }
  }
}

void add_strided_kernel(const float* x, int64_t count, int64_t step, float* y) {
  const Float d;
  int64_t j = 0;
  if (step == 1) {
    for (; j + kVector <= count; j += kVector) {
      hn::StoreU(hn::Add(hn::LoadU(d, y + j), hn::LoadU(d, x + j)), d, y + j);
    }
  } else if (step == 2) {  // what lies between is written as it was; behind the last nothing is
    for (; j + kVector < count; j += kVector) {
      hn::Vec<Float> even, odd;
      hn::LoadInterleaved2(d, y + 2 * j, even, odd);
      hn::StoreInterleaved2(hn::Add(even, hn::LoadU(d, x + j)), odd, d, y + 2 * j);
    }
  }
  for (; j < count; ++j) y[j * step] += x[j];
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(pack_patches_kernel);
HWY_EXPORT(pack_patches_transposed_kernel);
HWY_EXPORT(take_strided_kernel);
HWY_EXPORT(add_strided_kernel);
}  // namespace

void pack_patches(const Patches& patches, int64_t depth, int64_t width, float* panel) {
  HWY_DYNAMIC_DISPATCH(pack_patches_kernel)(patches, depth, width, panel);
}
void pack_patches_transposed(const Patches& patches, int64_t rows, int64_t width, float* panel) {
  HWY_DYNAMIC_DISPATCH(pack_patches_transposed_kernel)(patches, rows, width, panel);
}
void add_strided(const float* x, int64_t count, int64_t step, float* y) {
  HWY_DYNAMIC_DISPATCH(add_strided_kernel)(x, count, step, y);
}

void fill_padded_row(const ConvShape& s, const float* plane, int64_t y, int64_t width, float* row) {
  const bool inside = y >= 0 && y < s.in_height;
  const int64_t left = inside ? std::min(s.padding_x, width) : width;
  const int64_t count = inside ? std::min(s.in_width, width - left) : 0;
  std::fill_n(row, left, 0.0f);
  if (count > 0) std::memcpy(row + left, plane + y * s.in_width, count * sizeof(float));
  std::fill_n(row + left + count, width - left - count, 0.0f);
}

void fill_strided_rows(const ConvShape& s, const float* plane, int64_t y, int64_t width,
                       int64_t phases, int64_t stride, float* rows) {
  const auto take = HWY_DYNAMIC_DISPATCH(take_strided_kernel);
  const bool inside = y >= 0 && y < s.in_height;
  for (int64_t b = 0; b < phases; ++b, rows += stride) {
    // Columns left of the image, then up to its end.
    const int64_t left =
        std::min(width, divide_up(std::max<int64_t>(0, s.padding_x - b), s.stride_x));
    const int64_t first = b + left * s.stride_x - s.padding_x;
    const int64_t most = divide_up(std::max<int64_t>(0, s.in_width - first), s.stride_x);
    const int64_t count = inside ? std::min(most, width - left) : 0;
    std::fill_n(rows, left, 0.0f);
    if (count > 0) take(plane + y * s.in_width + first, count, s.stride_x, rows + left);
    std::fill_n(rows + left + count, width - left - count, 0.0f);
  }
}

void fill_offsets(const ConvShape& s, int64_t channels, int64_t rows, int64_t width,
                  int64_t* offsets) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t u = 0; u < s.kernel_height; ++u) {
      for (int64_t v = 0; v < s.kernel_width; ++v) {
        *offsets++ = (c * rows + u * s.dilation_y) * width + v * s.dilation_x;
      }
    }
  }
}

ConvShape input_grad_shape(const ConvShape& s) {
  ConvShape grad = s;
  grad.in_channels = s.out_channels, grad.in_height = s.out_height, grad.in_width = s.out_width;
  grad.out_channels = s.in_channels, grad.out_height = s.in_height, grad.out_width = s.in_width;
  grad.padding_y = (s.kernel_height - 1) * s.dilation_y - s.padding_y;
  grad.padding_x = (s.kernel_width - 1) * s.dilation_x - s.padding_x;
  return grad;
}

void sum_slices(ThreadPool& pool, const float* slices, int64_t slice_count, int64_t count,
                float* sum) {
  pool.parallel_for(count, 4096, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float total = slices[i];
      for (int64_t s = 1; s < slice_count; ++s) total += slices[s * count + i];
      sum[i] = total;
    }
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
