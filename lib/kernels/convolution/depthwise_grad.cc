#include "lib/kernels/convolution/depthwise_grad.h"

#include <algorithm>
#include <cstring>

#include "lib/base/round_up.h"
#include "lib/kernels/convolution/patch_conv.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/convolution/depthwise_grad.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/first_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// y[j] += w · x[j], each rounded.
HWY_INLINE void add_scaled(const float* x, float w, int64_t count, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, w);
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, y + j), hn::Mul(factor, hn::LoadU(d, x + j))), d, y + j);
  }
  if (j == count) return;
  const int64_t rest = count - j;
  const auto sum = hn::Add(load_first(d, y + j, rest), hn::Mul(factor, load_first(d, x + j, rest)));
  store_first(sum, d, y + j, rest);
}

// y [width]: columns of two phases in turn. Up to `most` floats from y on may be written.
HWY_INLINE void interleave(const float* even, const float* odd, int64_t width, int64_t most,
                           float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; 2 * j < width && 2 * (j + lanes) <= most; j += lanes) {
    hn::StoreInterleaved2(hn::LoadU(d, even + j), hn::LoadU(d, odd + j), d, y + 2 * j);
  }
  for (int64_t x = 2 * j; x < width; ++x) y[x] = (x % 2 == 0 ? even : odd)[x / 2];
}

// One channel of one sample: the sums of patch_input_grad in its order, tile by tile of output
// pixels and within each by weights. `phases`: [in_height][stride_x][phase_width], column x of a
// row is element x / stride_x of phase x % stride_x.
void input_grad_of_plane(const ConvShape& s, int64_t phase_width, const float* dy, const float* w,
                         float* phases, float* dx) {
  const int64_t row_floats = s.stride_x * phase_width, pixels = s.out_height * s.out_width;
  std::fill_n(phases, s.in_height * row_floats, 0.0f);
  for (int64_t tile = 0; tile < pixels; tile += kPatchTileColumns) {
    const int64_t end = std::min(pixels, tile + kPatchTileColumns);
    const float* weight = w;
    for (int64_t u = 0; u < s.kernel_height; ++u) {
      const int64_t below = u * s.dilation_y - s.padding_y;
      for (int64_t v = 0; v < s.kernel_width; ++v) {
        const int64_t right = v * s.dilation_x - s.padding_x;
        const int64_t to_phase = (right % s.stride_x + s.stride_x) % s.stride_x;
        const int64_t shift = (right - to_phase) / s.stride_x;  // of columns within the phase
        // Columns of dy that lie inside x.
        const int64_t left = right < 0 ? divide_up(-right, s.stride_x) : 0;
        const int64_t inside = s.in_width - right;
        const int64_t stop = inside > 0 ? divide_up(inside, s.stride_x) : 0;
        const float factor = *weight++;
        for (int64_t i = tile / s.out_width; i * s.out_width < end; ++i) {
          const int64_t y = i * s.stride_y + below, row = i * s.out_width;
          if (y < 0 || y >= s.in_height) continue;
          const int64_t first = std::max(left, tile - row);
          const int64_t last = std::min({s.out_width, stop, end - row});
          if (first >= last) continue;
          add_scaled(dy + row + first, factor, last - first,
                     phases + y * row_floats + to_phase * phase_width + first + shift);
        }
      }
    }
  }
  const int64_t plane = s.in_height * s.in_width;
  for (int64_t y = 0; y < s.in_height; ++y, phases += row_floats) {
    float* const to = dx + y * s.in_width;
    if (s.stride_x == 1) {
      std::memcpy(to, phases, static_cast<size_t>(s.in_width) * sizeof(float));
    } else if (s.stride_x == 2) {
      interleave(phases, phases + phase_width, s.in_width, plane - y * s.in_width, to);
    } else {
      for (int64_t x = 0; x < s.in_width; ++x) {
        to[x] = phases[x % s.stride_x * phase_width + x / s.stride_x];
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {

HWY_EXPORT(input_grad_of_plane);

// Whole vectors of a phase can be read.
int64_t phase_width_of(const ConvShape& s) {
  constexpr int64_t kVector = 16;
  return round_up(divide_up(s.in_width, s.stride_x), kVector);
}
int64_t thread_floats(const ConvShape& s) {
  return s.in_height * s.stride_x * phase_width_of(s);
}

}  // namespace

bool depthwise_input_grad_pays(const ConvShape& s) {
  constexpr int64_t kMostFloats = 131072;  // of a plane, which stays in L2
  const bool is_strided = s.stride_y > 1 || s.stride_x > 1;
  return is_strided && s.in_channels == s.groups && s.out_channels == s.groups &&
         thread_floats(s) <= kMostFloats;
}

size_t depthwise_input_grad_workspace_bytes(const ConvShape& s, int threads) {
  return static_cast<size_t>(thread_floats(s) * threads) * sizeof(float);
}

void depthwise_input_grad(ThreadPool& pool, const ConvShape& s, const float* dy, const float* w,
                          float* dx, std::byte* workspace) {
  const int64_t plane = s.in_height * s.in_width, pixels = s.out_height * s.out_width;
  const int64_t taps = s.kernel_height * s.kernel_width;
  auto* const memory = reinterpret_cast<float*>(workspace);
  pool.parallel_for(s.batch * s.groups, std::max<int64_t>(1, 4096 / plane),
                    [&](int64_t begin, int64_t end, int thread) {
                      for (int64_t i = begin; i < end; ++i) {
                        HWY_DYNAMIC_DISPATCH(input_grad_of_plane)
                        (s, phase_width_of(s), dy + i * pixels, w + i % s.groups * taps,
                         memory + thread * thread_floats(s), dx + i * plane);
                      }
                    });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
