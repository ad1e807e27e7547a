#include "lib/kernels/selective_scan.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/row_blocks.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/selective_scan.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/math-inl.h"

#ifndef LUMEN_SCAN_STRIP
#define LUMEN_SCAN_STRIP
namespace lumen::kernels {

// A strip of channels, and what all tokens bring to it.
struct ScanStrip {
  int64_t tokens, state;
  int64_t columns;  // of the strip that exist; the others are zeros
  ScanRows u, time, b, c;
  const float* rates;  // [state, strip]
  float* out;
  int64_t out_stride;
  float* kept;  // [state, strip]
  float* rows;  // [3, strip]: of u, time and out where the strip is not whole
};

}  // namespace lumen::kernels
#endif  // LUMEN_SCAN_STRIP

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Channels of a strip: two vectors.
int64_t scan_strip_columns() {
  return 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

void scan_strip(const ScanStrip& s) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), strip = 2 * lanes;
  const bool whole = s.columns == strip;
  std::fill_n(s.rows, 3 * strip, 0.0f);
  // Below, what decays is 0, also where a product is −inf.
  const auto least = hn::Set(d, -100.0f);
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float *u = s.u.at(0, t), *time = s.time.at(0, t);
    const float *b = s.b.at(0, t), *c = s.c.at(0, t);
    if (!whole) {
      std::copy_n(u, s.columns, s.rows);
      std::copy_n(time, s.columns, s.rows + strip);
      u = s.rows;
      time = s.rows + strip;
    }
    const auto u0 = hn::LoadU(d, u), u1 = hn::LoadU(d, u + lanes);
    const auto time0 = hn::LoadU(d, time), time1 = hn::LoadU(d, time + lanes);
    auto o0 = hn::Zero(d), o1 = o0;
    for (int64_t n = 0; n < s.state; ++n) {
      float* const kept = s.kept + n * strip;
      const float* const rates = s.rates + n * strip;
      const auto by0 = hn::Max(hn::Mul(time0, hn::Load(d, rates)), least);
      const auto by1 = hn::Max(hn::Mul(time1, hn::Load(d, rates + lanes)), least);
      const auto in = hn::Set(d, b[n]), read = hn::Set(d, c[n]);
      const auto s0 = hn::MulAdd(exp_nonpositive(d, by0), hn::Load(d, kept), hn::Mul(u0, in));
      const auto s1 =
          hn::MulAdd(exp_nonpositive(d, by1), hn::Load(d, kept + lanes), hn::Mul(u1, in));
      hn::Store(s0, d, kept);
      hn::Store(s1, d, kept + lanes);
      o0 = hn::MulAdd(read, s0, o0);
      o1 = hn::MulAdd(read, s1, o1);
    }
    float* const out = s.out + t * s.out_stride;
    float* const result = whole ? out : s.rows + 2 * strip;
    hn::StoreU(o0, d, result);
    hn::StoreU(o1, d, result + lanes);
    if (!whole) std::copy_n(result, s.columns, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(scan_strip_columns);
HWY_EXPORT(scan_strip);

namespace {

// The widest strip of any target: two vectors of AVX-512.
constexpr int64_t kMostScanColumns = 32;

// Of a thread: strips of the states and rates, and three rows.
int64_t scan_thread_floats(int64_t state) {
  return (2 * state + 3) * kMostScanColumns;
}

}  // namespace

size_t selective_scan_workspace_bytes(int64_t state, int threads) {
  return static_cast<size_t>(threads * scan_thread_floats(state)) * sizeof(float);
}

void selective_scan(ThreadPool& pool, const SelectiveScanArgs& a) {
  const auto run = HWY_DYNAMIC_DISPATCH(scan_strip);
  const int64_t strip = HWY_DYNAMIC_DISPATCH(scan_strip_columns)();
  const int64_t strips = divide_up(a.channels, strip), matrix = a.state * a.channels;
  // A few exponentials are not worth waking a thread for.
  const int64_t work = std::max<int64_t>(1, (a.tokens + 1) * a.state * strip);
  const int64_t grain = std::max<int64_t>(1, 4096 / work);
  pool.parallel_pieces(a.batch * strips, grain, grain, [&](int64_t begin, int64_t end, int thread) {
    float* const kept =
        reinterpret_cast<float*>(a.workspace) + thread * scan_thread_floats(a.state);
    float* const rates = kept + a.state * strip;
    for (int64_t at = begin; at < end; ++at) {
      const int64_t first = at % strips * strip, b = at / strips;
      const int64_t columns = std::min(strip, a.channels - first);
      const bool begins = a.before == nullptr || a.position[b * a.position_stride] == 0;
      std::fill_n(kept, 2 * a.state * strip, 0.0f);
      copy_rows(a.rates + first, a.channels, a.state, columns, rates, strip);
      if (!begins) {
        const int64_t row = a.slots ? a.slots[b] : b;
        copy_rows(a.before + row * matrix + first, a.channels, a.state, columns, kept, strip);
      }
      const auto rows_of = [&](const ScanRows& x, int64_t offset) {
        return ScanRows{x.at(b, 0) + offset, 0, x.token_stride};
      };
      run({.tokens = a.tokens,
           .state = a.state,
           .columns = columns,
           .u = rows_of(a.u, first),
           .time = rows_of(a.time, first),
           .b = rows_of(a.b, 0),
           .c = rows_of(a.c, 0),
           .rates = rates,
           .out = a.out + b * a.tokens * a.channels + first,
           .out_stride = a.channels,
           .kept = kept,
           .rows = rates + a.state * strip});
      copy_rows(kept, strip, a.state, columns, a.after + b * matrix + first, a.channels);
    }
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
