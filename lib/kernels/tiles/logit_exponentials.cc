#include "lib/kernels/tiles/logit_exponentials.h"

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/tiles/logit_exponentials.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/math-inl.h"
#include "lib/kernels/tiles/bf16_parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Exponentials are finite: they stay below e^80 = 5.5e34.
constexpr float kLargestPower = 80;

using RowsTag = hn::CappedTag<float, kTileRows>;

// e^min(x, kLargestPower): so far both functions go, whose scale is a normal number. `coarse`, for
// sums and gradients of bfloat16 products, has an error of 2.6e-6.
template <bool kCoarse>
HWY_INLINE hn::Vec<RowsTag> exp_of_logit(hn::Vec<RowsTag> x) {
  const RowsTag d;
  const auto power = hn::Min(x, hn::Set(d, kLargestPower));
  return kCoarse ? exp2_coarse(d, hn::Mul(power, hn::Set(d, kLog2E))) : exp_nonpositive(d, power);
}

// Two classes and two vectors of rows at a time: what is stored is a whole number of panels' rows.
template <bool kTwoParts, bool kCapped>
class ExponentialWriter {
 public:
  ExponentialWriter(const float* logits, int64_t classes, const ExponentialPanels& to)
      : logits_(logits), classes_(classes), to_(to) {}

  void write(const float* reference, float* sum) const {
    for (int64_t i = 0; i < kLogitRows; i += 2 * kLanes) {
      RowsVector total[2][2] = {{hn::Zero(d_), hn::Zero(d_)}, {hn::Zero(d_), hn::Zero(d_)}};
      for (int64_t c = 0; c < to_.classes; c += 2) {
        RowsVector x[2][2];
        for (int64_t k = 0; k < 2; ++k) {
          for (int64_t j = 0; j < 2; ++j) {
            x[k][j] = exponential(c + k, i + j * kLanes, reference);
            total[k][j] = hn::Add(total[k][j], x[k][j]);
            if constexpr (kCapped) x[k][j] = hn::Mul(x[k][j], slope(c + k, i + j * kLanes));
          }
        }
        store(c, i, x);
      }
      for (int64_t j = 0; j < 2; ++j) {
        hn::StoreU(hn::Add(total[0][j], total[1][j]), d_, sum + i + j * kLanes);
      }
    }
  }

 private:
  using RowsVector = hn::Vec<RowsTag>;
  static constexpr int64_t kLanes = hn::MaxLanes(RowsTag());

  HWY_INLINE RowsVector exponential(int64_t c, int64_t i, const float* reference) const {
    if (c >= classes_) return hn::Zero(d_);
    const auto logit = hn::Load(d_, logits_ + c * kLogitRows + i);
    return exp_of_logit<!kTwoParts>(hn::Sub(logit, hn::LoadU(d_, reference + i)));
  }

  // Of the cap at a logit.
  HWY_INLINE RowsVector slope(int64_t c, int64_t i) const {
    const auto one = hn::Set(d_, 1.0f);
    if (c >= classes_) return one;
    const auto logit = hn::Load(d_, logits_ + c * kLogitRows + i);
    const auto part = hn::Mul(logit, hn::Set(d_, to_.inverse_cap));
    return hn::Sub(one, hn::Min(one, hn::Mul(part, part)));
  }

  HWY_INLINE void store(int64_t c, int64_t i, const RowsVector (&x)[2][2]) const {
    for (int64_t j = 0; j < 2 && to_.pairs.high; ++j) {
      const int64_t at = to_.place_in_pairs(c, i + j * kLanes);
      store_pair_of<kTwoParts>(x[0][j], x[1][j], to_.pairs.high, to_.pairs.low, at);
    }
    for (int64_t k = 0; k < 2 && to_.rows.high; ++k) {
      const int64_t at = to_.place_in_rows(c + k, i);
      store_row_of<kTwoParts>(x[k][0], x[k][1], to_.rows.high, to_.rows.low, at);
    }
  }

  RowsTag d_;
  const float* logits_;
  int64_t classes_;
  const ExponentialPanels& to_;
};

template <bool kCapped>
void write_exponentials_of(const float* logits, int64_t classes, const float* reference,
                           const ExponentialPanels& to, float* sum) {
  if (to.two_parts) {
    return ExponentialWriter<true, kCapped>(logits, classes, to).write(reference, sum);
  }
  ExponentialWriter<false, kCapped>(logits, classes, to).write(reference, sum);
}

void write_exponentials_kernel(const float* logits, int64_t classes, const float* reference,
                               const ExponentialPanels& to, float* sum) {
  if (to.inverse_cap != 0) {
    return write_exponentials_of<true>(logits, classes, reference, to, sum);
  }
  write_exponentials_of<false>(logits, classes, reference, to, sum);
}

float dot_kernel(const float* x, const float* y, int64_t n) {
  const RowsTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes), sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

void add_multiple_kernel(const float* x, float factor, int64_t n, bool add, float* y) {
  const RowsTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto before = add ? hn::LoadU(d, y + i) : hn::Zero(d);
    hn::StoreU(hn::MulAdd(f, hn::LoadU(d, x + i), before), d, y + i);
  }
  for (; i < n; ++i) y[i] = (add ? y[i] : 0) + factor * x[i];
}

void scale_columns_kernel(const float* scale, int64_t rows, float* x) {
  const RowsTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < kLogitRows; j += lanes) {
    const auto factor = hn::LoadU(d, scale + j);
    for (int64_t i = j; i < rows * kLogitRows; i += kLogitRows) {
      hn::Store(hn::Mul(hn::Load(d, x + i), factor), d, x + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(write_exponentials_kernel);
HWY_EXPORT(dot_kernel);
HWY_EXPORT(add_multiple_kernel);
HWY_EXPORT(scale_columns_kernel);
}  // namespace

void write_exponentials(const float* logits, int64_t classes, const float* reference,
                        const ExponentialPanels& to, float* sum) {
  HWY_DYNAMIC_DISPATCH(write_exponentials_kernel)(logits, classes, reference, to, sum);
}

float dot(const float* x, const float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(dot_kernel)(x, y, n);
}

void add_multiple(const float* x, float factor, int64_t n, bool add, float* y) {
  HWY_DYNAMIC_DISPATCH(add_multiple_kernel)(x, factor, n, add, y);
}

void scale_columns(const float* scale, int64_t rows, float* x) {
  HWY_DYNAMIC_DISPATCH(scale_columns_kernel)(scale, rows, x);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
