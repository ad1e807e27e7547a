#include "lib/kernels/convolution/winograd_transform.h"

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/convolution/winograd_transform.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Float = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Float>;
inline constexpr int64_t kLanes = hn::MaxLanes(Float());

// y = M x for each of the five matrices.
struct Input {
  static constexpr int kIn = 4, kOut = 4;
  static HWY_INLINE void apply(const FloatVector* x, FloatVector* y) {
    y[0] = hn::Sub(x[0], x[2]);
    y[1] = hn::Add(x[1], x[2]);
    y[2] = hn::Sub(x[2], x[1]);
    y[3] = hn::Sub(x[1], x[3]);
  }
};
struct Filter {
  static constexpr int kIn = 3, kOut = 4;
  static HWY_INLINE void apply(const FloatVector* x, FloatVector* y) {
    const auto half = hn::Set(Float(), 0.5f);
    const auto sum = hn::Add(x[0], x[2]);
    y[0] = x[0];
    y[1] = hn::Mul(half, hn::Add(sum, x[1]));
    y[2] = hn::Mul(half, hn::Sub(sum, x[1]));
    y[3] = x[2];
  }
};
struct Output {
  static constexpr int kIn = 4, kOut = 2;
  static HWY_INLINE void apply(const FloatVector* x, FloatVector* y) {
    y[0] = hn::Add(x[0], hn::Add(x[1], x[2]));
    y[1] = hn::Sub(hn::Sub(x[1], x[2]), x[3]);
  }
};
struct OutputGrad {
  static constexpr int kIn = 2, kOut = 4;
  static HWY_INLINE void apply(const FloatVector* x, FloatVector* y) {
    y[0] = x[0];
    y[1] = hn::Add(x[0], x[1]);
    y[2] = hn::Sub(x[0], x[1]);
    y[3] = hn::Neg(x[1]);
  }
};
struct FilterGrad {
  static constexpr int kIn = 4, kOut = 3;
  static HWY_INLINE void apply(const FloatVector* x, FloatVector* y) {
    const auto half = hn::Set(Float(), 0.5f);
    const auto even = hn::Mul(half, hn::Add(x[1], x[2]));
    y[0] = hn::Add(x[0], even);
    y[1] = hn::Mul(half, hn::Sub(x[1], x[2]));
    y[2] = hn::Add(even, x[3]);
  }
};

// M x Mᵀ.
template <class Map>
HWY_INLINE void transform(const float* x, const MatrixPlaces& from, float* y,
                          const MatrixPlaces& to, int64_t count, int64_t width) {
  const Float d;
  constexpr int kIn = Map::kIn, kOut = Map::kOut;
  for (int64_t t = 0; t < count; ++t, x += from.next, y += to.next) {
    for (int64_t c = 0; c < width; c += kLanes) {
      FloatVector half[kOut][kIn];
      for (int j = 0; j < kIn; ++j) {
        FloatVector in[kIn], out[kOut];
        for (int i = 0; i < kIn; ++i) {
          in[i] = hn::LoadU(d, x + i * from.row + j * from.column + c);
        }
        Map::apply(in, out);
        for (int i = 0; i < kOut; ++i) half[i][j] = out[i];
      }
      for (int i = 0; i < kOut; ++i) {
        FloatVector out[kOut];
        Map::apply(half[i], out);
        for (int j = 0; j < kOut; ++j) {
          float* place = y + i * to.row + j * to.column + c;
          if (width - c >= kLanes) {
            hn::StoreU(out[j], d, place);
          } else {
            hn::BlendedStore(out[j], hn::FirstN(d, static_cast<size_t>(width - c)), d, place);
          }
        }
      }
    }
  }
}

void transform_kernel(WinogradMap map, const float* x, const MatrixPlaces& from, float* y,
                      const MatrixPlaces& to, int64_t count, int64_t width) {
  switch (map) {
    case WinogradMap::kInput:
      return transform<Input>(x, from, y, to, count, width);
    case WinogradMap::kFilter:
      return transform<Filter>(x, from, y, to, count, width);
    case WinogradMap::kOutput:
      return transform<Output>(x, from, y, to, count, width);
    case WinogradMap::kOutputGrad:
      return transform<OutputGrad>(x, from, y, to, count, width);
    case WinogradMap::kFilterGrad:
      return transform<FilterGrad>(x, from, y, to, count, width);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(transform_kernel);
}  // namespace

void winograd_transform(WinogradMap map, const float* x, const MatrixPlaces& from, float* y,
                        const MatrixPlaces& to, int64_t count, int64_t width) {
  HWY_DYNAMIC_DISPATCH(transform_kernel)(map, x, from, y, to, count, width);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
