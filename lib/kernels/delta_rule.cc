#include "lib/kernels/delta_rule.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/row_blocks.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/delta_rule.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef LUMEN_DELTA_RULE_STRIP
#define LUMEN_DELTA_RULE_STRIP
namespace lumen::kernels {

// A strip of columns of one head's state, and what all tokens bring to it.
struct DeltaStrip {
  int64_t tokens, key_dim;
  int64_t known;    // key_dim if what the state gives for k is taken off v, else 0
  int64_t columns;  // of the strip that exist; the others are zeros
  bool by_rows;
  DeltaRows q, k, v, decay, beta;
  float* out;
  int64_t out_stride;
  float* state;  // [key_dim, strip]
  float* row;    // [strip]
};

}  // namespace lumen::kernels
#endif  // LUMEN_DELTA_RULE_STRIP

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Columns of a strip: four vectors.
int64_t strip_columns() {
  return 4 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

template <bool kByRows>
void run_strip_with(const DeltaStrip& s) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), strip = 4 * lanes;
  const bool whole = s.columns == strip;
  std::fill_n(s.row, strip, 0.0f);
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float *q = s.q.at(0, t, 0), *k = s.k.at(0, t, 0), *v = s.v.at(0, t, 0);
    float* out = s.out + t * s.out_stride;
    const float* const decays = s.decay.at(0, t, 0);
    const auto decay = hn::Set(d, kByRows ? 1.0f : *decays), beta = hn::Set(d, *s.beta.at(0, t, 0));
    const auto met = [&](int64_t row) HWY_ATTR { return kByRows ? k[row] * decays[row] : k[row]; };

    // Sᵀ k, by rows Pᵀ k, of even and of odd rows; zeros if it is not taken off.
    auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    int64_t i = 0;
    const float* state = s.state;
    for (; i + 2 <= s.known; i += 2, state += 2 * strip) {
      const auto even = hn::Set(d, met(i)), odd = hn::Set(d, met(i + 1));
      a0 = hn::MulAdd(even, hn::Load(d, state), a0);
      a1 = hn::MulAdd(even, hn::Load(d, state + lanes), a1);
      a2 = hn::MulAdd(even, hn::Load(d, state + 2 * lanes), a2);
      a3 = hn::MulAdd(even, hn::Load(d, state + 3 * lanes), a3);
      b0 = hn::MulAdd(odd, hn::Load(d, state + strip), b0);
      b1 = hn::MulAdd(odd, hn::Load(d, state + strip + lanes), b1);
      b2 = hn::MulAdd(odd, hn::Load(d, state + strip + 2 * lanes), b2);
      b3 = hn::MulAdd(odd, hn::Load(d, state + strip + 3 * lanes), b3);
    }
    if (i < s.known) {
      const auto last = hn::Set(d, met(i));
      a0 = hn::MulAdd(last, hn::Load(d, state), a0);
      a1 = hn::MulAdd(last, hn::Load(d, state + lanes), a1);
      a2 = hn::MulAdd(last, hn::Load(d, state + 2 * lanes), a2);
      a3 = hn::MulAdd(last, hn::Load(d, state + 3 * lanes), a3);
    }

    if (!whole) {
      std::copy_n(v, s.columns, s.row);
      v = s.row;
    }
    const auto u0 = hn::Mul(beta, hn::NegMulAdd(decay, hn::Add(a0, b0), hn::LoadU(d, v)));
    const auto u1 = hn::Mul(beta, hn::NegMulAdd(decay, hn::Add(a1, b1), hn::LoadU(d, v + lanes)));
    const auto u2 =
        hn::Mul(beta, hn::NegMulAdd(decay, hn::Add(a2, b2), hn::LoadU(d, v + 2 * lanes)));
    const auto u3 =
        hn::Mul(beta, hn::NegMulAdd(decay, hn::Add(a3, b3), hn::LoadU(d, v + 3 * lanes)));

    auto o0 = hn::Zero(d), o1 = o0, o2 = o0, o3 = o0;
    float* to = s.state;
    for (i = 0; i < s.key_dim; ++i, to += strip) {
      const auto key = hn::Set(d, k[i]), query = hn::Set(d, q[i]);
      const auto by = kByRows ? hn::Set(d, decays[i]) : decay;
      const auto s0 = hn::MulAdd(key, u0, hn::Mul(by, hn::Load(d, to)));
      const auto s1 = hn::MulAdd(key, u1, hn::Mul(by, hn::Load(d, to + lanes)));
      const auto s2 = hn::MulAdd(key, u2, hn::Mul(by, hn::Load(d, to + 2 * lanes)));
      const auto s3 = hn::MulAdd(key, u3, hn::Mul(by, hn::Load(d, to + 3 * lanes)));
      hn::Store(s0, d, to);
      hn::Store(s1, d, to + lanes);
      hn::Store(s2, d, to + 2 * lanes);
      hn::Store(s3, d, to + 3 * lanes);
      o0 = hn::MulAdd(query, s0, o0);
      o1 = hn::MulAdd(query, s1, o1);
      o2 = hn::MulAdd(query, s2, o2);
      o3 = hn::MulAdd(query, s3, o3);
    }
    float* const result = whole ? out : s.row;
    hn::StoreU(o0, d, result);
    hn::StoreU(o1, d, result + lanes);
    hn::StoreU(o2, d, result + 2 * lanes);
    hn::StoreU(o3, d, result + 3 * lanes);
    if (!whole) std::copy_n(s.row, s.columns, out);
  }
}

void run_strip(const DeltaStrip& s) {
  s.by_rows ? run_strip_with<true>(s) : run_strip_with<false>(s);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(strip_columns);
HWY_EXPORT(run_strip);

namespace {

// The widest strip of any target: four vectors of AVX-512.
constexpr int64_t kMostColumns = 64;

// Of a thread: a strip of the state and a row.
int64_t thread_floats(int64_t key_dim) {
  return (key_dim + 1) * kMostColumns;
}

}  // namespace

size_t delta_rule_workspace_bytes(int64_t key_dim, int threads) {
  return static_cast<size_t>(threads * thread_floats(key_dim)) * sizeof(float);
}

void delta_rule(ThreadPool& pool, const DeltaRuleArgs& a) {
  const auto run = HWY_DYNAMIC_DISPATCH(run_strip);
  const int64_t strip = HWY_DYNAMIC_DISPATCH(strip_columns)();
  const int64_t strips = divide_up(a.value_dim, strip), matrix = a.key_dim * a.value_dim;
  // A few rows are not worth waking a thread for.
  const int64_t work = std::max<int64_t>(1, (a.tokens + 1) * a.key_dim * strip);
  const int64_t grain = std::max<int64_t>(1, 16384 / work);
  const int64_t jobs = a.batch * a.heads * strips;
  pool.parallel_pieces(jobs, grain, grain, [&](int64_t begin, int64_t end, int thread) {
    float* const state = reinterpret_cast<float*>(a.workspace) + thread * thread_floats(a.key_dim);
    for (int64_t at = begin; at < end; ++at) {
      const int64_t column = at % strips * strip, h = at / strips % a.heads;
      const int64_t b = at / strips / a.heads;
      const int64_t columns = std::min(strip, a.value_dim - column);
      const bool begins = a.before == nullptr || a.position[b * a.position_stride] == 0;
      if (begins || columns < strip) std::fill_n(state, a.key_dim * strip, 0.0f);
      if (!begins) {
        const int64_t row = a.slots ? a.slots[b] : b;
        copy_rows(a.before + (row * a.heads + h) * matrix + column, a.value_dim, a.key_dim, columns,
                  state, strip);
      }
      const auto rows_of = [&](const DeltaRows& x, int64_t head, int64_t first) {
        return DeltaRows{x.at(b, 0, head) + first, 0, x.token_stride, 0};
      };
      run({.tokens = a.tokens,
           .key_dim = a.key_dim,
           .known = a.corrects ? a.key_dim : 0,
           .columns = columns,
           .by_rows = a.by_rows,
           .q = rows_of(a.q, key_head_of(a, h), 0),
           .k = rows_of(a.k, key_head_of(a, h), 0),
           .v = rows_of(a.v, h, column),
           .decay = rows_of(a.decay, h, 0),
           .beta = rows_of(a.beta, h, 0),
           .out = a.out + (b * a.tokens * a.heads + h) * a.value_dim + column,
           .out_stride = a.heads * a.value_dim,
           .state = state,
           .row = state + a.key_dim * strip});
      copy_rows(state, strip, a.key_dim, columns, a.after + (b * a.heads + h) * matrix + column,
                a.value_dim);
    }
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
