#include "lib/kernels/delta_rule_backward.h"

#include <algorithm>
#include <cmath>

#include "lib/base/round_up.h"
#include "lib/kernels/memory_pieces.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/delta_rule_backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef LUMEN_DELTA_TOKEN_BACKWARD
#define LUMEN_DELTA_TOKEN_BACKWARD
namespace lumen::kernels {

// A strip of columns of one token and head.
struct DeltaTokenBackward {
  int64_t key_dim;
  bool corrects;
  const float *q, *k;
  const float* decay;  // one, or by rows one for each row
  bool by_rows;
  float beta;
  const float *before, *after;  // states [key_dim, strip]
  const float *error, *dout;    // [strip]
  float* gradient;              // of the state after the token → of the state before it
  float *dq, *dk;               // [key_dim], added to
  float* dv;                    // [strip]
  float *ddecay, *dbeta;        // added to
};

}  // namespace lumen::kernels
#endif  // LUMEN_DELTA_TOKEN_BACKWARD

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A strip of columns of a state: two vectors.
int64_t gradient_strip_columns() {
  return 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

// The error v − decay · Sᵀ k of a strip; with a key_dim of 0 it is v. By rows the decays are in k,
// and `decay` is 1.
void delta_error(const float* state, const float* k, const float* v, float decay, int64_t key_dim,
                 float* error) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), strip = 2 * lanes;
  auto a0 = hn::Zero(d), a1 = a0;
  for (int64_t i = 0; i < key_dim; ++i) {
    const auto key = hn::Set(d, k[i]);
    a0 = hn::MulAdd(key, hn::Load(d, state + i * strip), a0);
    a1 = hn::MulAdd(key, hn::Load(d, state + i * strip + lanes), a1);
  }
  const auto by = hn::Set(d, decay);
  hn::Store(hn::NegMulAdd(by, a0, hn::Load(d, v)), d, error);
  hn::Store(hn::NegMulAdd(by, a1, hn::Load(d, v + lanes)), d, error + lanes);
}

// after = decay · before + k (beta · error)ᵀ; the next row's decay is decay_step behind.
void next_delta_state(const float* before, const float* k, const float* error, const float* decay,
                      int64_t decay_step, float beta, int64_t key_dim, float* after) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), strip = 2 * lanes;
  const auto rate = hn::Set(d, beta);
  const auto u0 = hn::Mul(rate, hn::Load(d, error));
  const auto u1 = hn::Mul(rate, hn::Load(d, error + lanes));
  for (int64_t i = 0; i < key_dim; ++i) {
    const auto key = hn::Set(d, k[i]), by = hn::Set(d, decay[i * decay_step]);
    const int64_t at = i * strip;
    hn::Store(hn::MulAdd(key, u0, hn::Mul(by, hn::Load(d, before + at))), d, after + at);
    hn::Store(hn::MulAdd(key, u1, hn::Mul(by, hn::Load(d, before + at + lanes))), d,
              after + at + lanes);
  }
}

// One token backwards. `gradient` is that of the state after it, and becomes that of the state
// before. Adds to dq, dk, ddecay and dbeta; gives dv.
void delta_token_backward(const DeltaTokenBackward& t) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), strip = 2 * lanes;
  const auto o0 = hn::Load(d, t.dout), o1 = hn::Load(d, t.dout + lanes);
  auto du0 = hn::Zero(d), du1 = du0;
  for (int64_t i = 0; i < t.key_dim; ++i) {
    const int64_t at = i * strip;
    const auto query = hn::Set(d, t.q[i]), key = hn::Set(d, t.k[i]);
    const auto g0 = hn::MulAdd(query, o0, hn::Load(d, t.gradient + at));
    const auto g1 = hn::MulAdd(query, o1, hn::Load(d, t.gradient + at + lanes));
    hn::Store(g0, d, t.gradient + at);
    hn::Store(g1, d, t.gradient + at + lanes);
    du0 = hn::MulAdd(key, g0, du0);
    du1 = hn::MulAdd(key, g1, du1);
    const auto dot =
        hn::MulAdd(o0, hn::Load(d, t.after + at), hn::Mul(o1, hn::Load(d, t.after + at + lanes)));
    t.dq[i] += hn::GetLane(hn::SumOfLanes(d, dot));
  }
  const auto e0 = hn::Load(d, t.error), e1 = hn::Load(d, t.error + lanes);
  const auto rate = hn::Set(d, t.beta);
  *t.dbeta += hn::GetLane(hn::SumOfLanes(d, hn::MulAdd(du0, e0, hn::Mul(du1, e1))));
  const auto u0 = hn::Mul(rate, e0), u1 = hn::Mul(rate, e1);
  const auto w0 = hn::Mul(rate, du0), w1 = hn::Mul(rate, du1);
  hn::Store(w0, d, t.dv);
  hn::Store(w1, d, t.dv + lanes);
  // What the error loses to the state: nothing without the correction.
  const auto c0 = t.corrects ? w0 : hn::Zero(d), c1 = t.corrects ? w1 : hn::Zero(d);
  auto decays = hn::Zero(d);
  for (int64_t i = 0; i < t.key_dim; ++i) {
    const int64_t at = i * strip;
    const auto key = hn::Set(d, t.k[i]), by = hn::Set(d, t.decay[t.by_rows ? i : 0]);
    const auto dw0 = hn::Mul(by, c0), dw1 = hn::Mul(by, c1);
    const auto g0 = hn::Load(d, t.gradient + at), g1 = hn::Load(d, t.gradient + at + lanes);
    const auto s0 = hn::Load(d, t.before + at), s1 = hn::Load(d, t.before + at + lanes);
    const auto dot =
        hn::NegMulAdd(s0, dw0, hn::NegMulAdd(s1, dw1, hn::MulAdd(g0, u0, hn::Mul(g1, u1))));
    t.dk[i] += hn::GetLane(hn::SumOfLanes(d, dot));
    const auto p0 = hn::NegMulAdd(key, c0, g0), p1 = hn::NegMulAdd(key, c1, g1);
    decays = hn::MulAdd(p0, s0, hn::MulAdd(p1, s1, decays));
    if (t.by_rows) {
      t.ddecay[i] += hn::GetLane(hn::SumOfLanes(d, decays));
      decays = hn::Zero(d);
    }
    hn::Store(hn::Mul(by, p0), d, t.gradient + at);
    hn::Store(hn::Mul(by, p1), d, t.gradient + at + lanes);
  }
  if (!t.by_rows) *t.ddecay += hn::GetLane(hn::SumOfLanes(d, decays));
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(gradient_strip_columns);
HWY_EXPORT(delta_error);
HWY_EXPORT(next_delta_state);
HWY_EXPORT(delta_token_backward);

namespace {

constexpr int64_t kMostStrip = 32;  // two vectors of AVX-512

int64_t block_tokens(int64_t tokens) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::sqrt(static_cast<double>(tokens))));
}

struct Sizes {
  int64_t tokens, key_dim, strip;
  int64_t state() const { return key_dim * strip; }
  int64_t block() const { return block_tokens(tokens); }
  int64_t blocks() const { return divide_up(tokens, block()); }
};

// What a thread works in: rows of a strip, and states: those before blocks and those in one.
struct Memory {
  Memory(MemoryPieces& pieces, const Sizes& s)
      : sizes(s),
        v(pieces.take(s.strip)),
        dout(pieces.take(s.strip)),
        dv(pieces.take(s.strip)),
        met(pieces.take(s.key_dim)),
        gradient(pieces.take(s.state())),
        before_blocks(pieces.take(s.blocks() * s.state())),
        in_block(pieces.take((s.block() + 1) * s.state())),
        errors(pieces.take(s.block() * s.strip)) {}
  Sizes sizes;
  float *v, *dout, *dv, *met, *gradient, *before_blocks, *in_block, *errors;
};

// One value head.
class HeadBackward {
 public:
  HeadBackward(const DeltaRuleBackwardArgs& args, int64_t batch, int64_t head, const Memory& memory)
      : a_(args),
        f_(args.forward),
        b_(batch),
        h_(head),
        key_head_(key_head_of(args.forward, head)),
        m_(memory),
        s_(memory.sizes) {}

  void run() {
    for (first_ = 0; first_ < f_.value_dim; first_ += s_.strip) {
      columns_ = std::min(s_.strip, f_.value_dim - first_);
      run_strip();
    }
  }

 private:
  void run_strip() {
    for (float* row : {m_.v, m_.dout}) std::fill_n(row, s_.strip, 0.0f);
    std::fill_n(m_.before_blocks, s_.state(), 0.0f);
    const int64_t last = s_.blocks() - 1;
    for (int64_t i = 0; i <= last; ++i) {
      forward(i);
      if (i == last) break;
      std::copy_n(m_.in_block + s_.block() * s_.state(), s_.state(),
                  m_.before_blocks + (i + 1) * s_.state());
    }
    begin_gradient();
    for (int64_t i = last; i >= 0; --i) {
      if (i < last) forward(i);
      for (int64_t t = end_of(i); t-- > i * s_.block();) backward(t, t - i * s_.block());
    }
  }

  int64_t end_of(int64_t block) const { return std::min(f_.tokens, (block + 1) * s_.block()); }

  // The states in a block, of which the first is that before it, and the errors of its tokens.
  void forward(int64_t block) {
    std::copy_n(m_.before_blocks + block * s_.state(), s_.state(), m_.in_block);
    float *state = m_.in_block, *error = m_.errors;
    for (int64_t t = block * s_.block(); t < end_of(block); ++t) {
      const float *const k = f_.k.at(b_, t, key_head_), *const decay = f_.decay.at(b_, t, h_);
      const float beta = *f_.beta.at(b_, t, h_);
      std::copy_n(f_.v.at(b_, t, h_) + first_, columns_, m_.v);
      const float* met = k;
      if (f_.by_rows) {
        for (int64_t i = 0; i < f_.key_dim; ++i) m_.met[i] = k[i] * decay[i];
        met = m_.met;
      }
      HWY_DYNAMIC_DISPATCH(delta_error)
      (state, met, m_.v, f_.by_rows ? 1.0f : *decay, f_.corrects ? f_.key_dim : 0, error);
      HWY_DYNAMIC_DISPATCH(next_delta_state)
      (state, k, error, decay, f_.by_rows ? 1 : 0, beta, f_.key_dim, state + s_.state());
      state += s_.state();
      error += s_.strip;
    }
  }

  void begin_gradient() {
    std::fill_n(m_.gradient, s_.state(), 0.0f);
    const float* from = a_.dafter + (b_ * f_.heads + h_) * f_.key_dim * f_.value_dim + first_;
    for (int64_t i = 0; i < f_.key_dim; ++i) {
      std::copy_n(from + i * f_.value_dim, columns_, m_.gradient + i * s_.strip);
    }
  }

  void backward(int64_t t, int64_t in_block) {
    const int64_t token = b_ * f_.tokens + t, at = token * f_.heads + h_;
    const int64_t key = (token * f_.key_heads + key_head_) * f_.key_dim;
    std::copy_n(a_.dout + at * f_.value_dim + first_, columns_, m_.dout);
    const float* const before = m_.in_block + in_block * s_.state();
    HWY_DYNAMIC_DISPATCH(delta_token_backward)
    ({.key_dim = f_.key_dim,
      .corrects = f_.corrects,
      .q = f_.q.at(b_, t, key_head_),
      .k = f_.k.at(b_, t, key_head_),
      .decay = f_.decay.at(b_, t, h_),
      .by_rows = f_.by_rows,
      .beta = *f_.beta.at(b_, t, h_),
      .before = before,
      .after = before + s_.state(),
      .error = m_.errors + in_block * s_.strip,
      .dout = m_.dout,
      .gradient = m_.gradient,
      .dq = a_.dq + key,
      .dk = a_.dk + key,
      .dv = m_.dv,
      .ddecay = a_.ddecay + at * (f_.by_rows ? f_.key_dim : 1),
      .dbeta = a_.dbeta + at});
    std::copy_n(m_.dv, columns_, a_.dv + at * f_.value_dim + first_);
  }

  const DeltaRuleBackwardArgs& a_;
  const DeltaRuleArgs& f_;
  int64_t b_, h_, key_head_;
  const Memory& m_;
  const Sizes& s_;
  int64_t first_ = 0, columns_ = 0;
};

int64_t memory_floats(int64_t tokens, int64_t key_dim) {
  return floats_of<Memory>(Sizes{tokens, key_dim, kMostStrip});
}

}  // namespace

size_t delta_rule_backward_workspace_bytes(int64_t tokens, int64_t key_dim, int threads) {
  return static_cast<size_t>(threads * memory_floats(tokens, key_dim)) * sizeof(float);
}

void delta_rule_backward(ThreadPool& pool, const DeltaRuleBackwardArgs& a) {
  const DeltaRuleArgs& f = a.forward;
  const int64_t group = f.heads / std::max<int64_t>(1, f.key_heads);
  const int64_t keys = f.batch * f.tokens * f.key_heads * f.key_dim;
  const int64_t gates = f.batch * f.tokens * f.heads;
  std::fill_n(a.dq, keys, 0.0f);
  std::fill_n(a.dk, keys, 0.0f);
  std::fill_n(a.ddecay, gates * (f.by_rows ? f.key_dim : 1), 0.0f);
  std::fill_n(a.dbeta, gates, 0.0f);
  if (f.tokens == 0) return;
  const Sizes sizes{f.tokens, f.key_dim, HWY_DYNAMIC_DISPATCH(gradient_strip_columns)()};
  pool.parallel_for(f.batch * f.key_heads, 1, [&](int64_t begin, int64_t end, int thread) {
    MemoryPieces pieces(reinterpret_cast<float*>(a.workspace) +
                        thread * memory_floats(f.tokens, f.key_dim));
    const Memory memory(pieces, sizes);
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / f.key_heads, key_head = at % f.key_heads;
      for (int64_t i = 0; i < group; ++i) {
        const int64_t head = f.tiled ? i * f.key_heads + key_head : key_head * group + i;
        HeadBackward(a, b, head, memory).run();
      }
    }
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
