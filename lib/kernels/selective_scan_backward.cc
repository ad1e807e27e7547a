#include "lib/kernels/selective_scan_backward.h"

#include <algorithm>
#include <cmath>

#include "lib/base/round_up.h"
#include "lib/kernels/memory_pieces.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/selective_scan_backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/math-inl.h"

#ifndef LUMEN_SCAN_TOKEN
#define LUMEN_SCAN_TOKEN
namespace lumen::kernels {

// A strip of channels of one token.
struct ScanToken {
  int64_t state;
  const float *u, *time;  // [strip]
  const float *b, *c;     // [state]
  const float* rates;     // [state, strip]
  const float* before;    // the states before the token [state, strip]
  float* after;           // after it
};

struct ScanTokenGradients {
  const float* dout;  // [strip]
  float* gradient;    // of the states after the token → of those before it [state, strip]
  float *du, *dtime;  // [strip]
  float *db, *dc;     // [state], added to
  float* drates;      // [state, strip], added to
};

}  // namespace lumen::kernels
#endif  // LUMEN_SCAN_TOKEN

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using ScanVector = hn::Vec<hn::ScalableTag<float>>;

// Channels of a strip of gradients: a vector.
int64_t scan_gradient_columns() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

// exp(x) of what decays; 0 also of −inf.
HWY_INLINE ScanVector scan_decay(ScanVector x) {
  const hn::ScalableTag<float> d;
  return exp_nonpositive(d, hn::Max(x, hn::Set(d, -100.0f)));
}

// The states after a token.
void scan_next(const ScanToken& t) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto u = hn::Load(d, t.u), time = hn::Load(d, t.time);
  for (int64_t n = 0; n < t.state; ++n) {
    const int64_t at = n * lanes;
    const auto decay = scan_decay(hn::Mul(time, hn::Load(d, t.rates + at)));
    const auto in = hn::Mul(u, hn::Set(d, t.b[n]));
    hn::Store(hn::MulAdd(decay, hn::Load(d, t.before + at), in), d, t.after + at);
  }
}

// One token backwards.
void scan_token_backward(const ScanToken& t, const ScanTokenGradients& g) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto u = hn::Load(d, t.u), time = hn::Load(d, t.time), dout = hn::Load(d, g.dout);
  auto du = hn::Zero(d), dtime = du;
  for (int64_t n = 0; n < t.state; ++n) {
    const int64_t at = n * lanes;
    const auto rate = hn::Load(d, t.rates + at);
    const auto own = hn::MulAdd(hn::Set(d, t.c[n]), dout, hn::Load(d, g.gradient + at));
    g.dc[n] += hn::GetLane(hn::SumOfLanes(d, hn::Mul(dout, hn::Load(d, t.after + at))));
    g.db[n] += hn::GetLane(hn::SumOfLanes(d, hn::Mul(own, u)));
    du = hn::MulAdd(own, hn::Set(d, t.b[n]), du);
    const auto passed = hn::Mul(own, scan_decay(hn::Mul(time, rate)));
    const auto dpower = hn::Mul(passed, hn::Load(d, t.before + at));
    dtime = hn::MulAdd(dpower, rate, dtime);
    hn::Store(hn::MulAdd(dpower, time, hn::Load(d, g.drates + at)), d, g.drates + at);
    hn::Store(passed, d, g.gradient + at);
  }
  hn::Store(du, d, g.du);
  hn::Store(dtime, d, g.dtime);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(scan_gradient_columns);
HWY_EXPORT(scan_next);
HWY_EXPORT(scan_token_backward);

namespace {

constexpr int64_t kMostScanStrip = 16;  // a vector of AVX-512
constexpr int64_t kScanGroup = 128;     // channels of which a thread adds up what db and dc get

struct ScanSizes {
  int64_t tokens, state, strip;
  int64_t states() const { return state * strip; }
  int64_t block() const {
    return std::max<int64_t>(1, static_cast<int64_t>(std::sqrt(static_cast<double>(tokens))));
  }
  int64_t blocks() const { return divide_up(tokens, block()); }
};

// What a thread works in: rows of a strip, and states: those before blocks and those in one.
struct ScanMemory {
  ScanMemory(MemoryPieces& pieces, const ScanSizes& s)
      : sizes(s),
        u(pieces.take(s.strip)),
        time(pieces.take(s.strip)),
        dout(pieces.take(s.strip)),
        du(pieces.take(s.strip)),
        dtime(pieces.take(s.strip)),
        rates(pieces.take(s.states())),
        drates(pieces.take(s.states())),
        gradient(pieces.take(s.states())),
        before_blocks(pieces.take(s.blocks() * s.states())),
        in_block(pieces.take((s.block() + 1) * s.states())) {}
  ScanSizes sizes;
  float *u, *time, *dout, *du, *dtime, *rates, *drates, *gradient, *before_blocks, *in_block;
};

// A strip of channels from `first` on; db and dc are those of its group, [batch, tokens, state].
class ScanStripBackward {
 public:
  ScanStripBackward(const SelectiveScanBackwardArgs& args, int64_t first, float* db, float* dc,
                    const ScanMemory& memory)
      : a_(args),
        f_(args.forward),
        first_(first),
        columns_(std::min(memory.sizes.strip, args.forward.channels - first)),
        db_(db),
        dc_(dc),
        m_(memory),
        s_(memory.sizes) {}

  void run() {
    for (float* row : {m_.u, m_.time, m_.dout}) std::fill_n(row, s_.strip, 0.0f);
    for (float* states : {m_.rates, m_.drates}) std::fill_n(states, s_.states(), 0.0f);
    copy_in(f_.rates + first_, m_.rates);
    for (b_ = 0; b_ < f_.batch; ++b_) run_row();
    for (int64_t n = 0; n < s_.state; ++n) {
      std::copy_n(m_.drates + n * s_.strip, columns_, a_.drates + n * f_.channels + first_);
    }
  }

 private:
  void run_row() {
    std::fill_n(m_.before_blocks, s_.states(), 0.0f);
    const int64_t last = s_.blocks() - 1;
    for (int64_t i = 0; i <= last; ++i) {
      forward(i);
      if (i == last) break;
      std::copy_n(m_.in_block + s_.block() * s_.states(), s_.states(),
                  m_.before_blocks + (i + 1) * s_.states());
    }
    std::fill_n(m_.gradient, s_.states(), 0.0f);
    copy_in(a_.dafter + b_ * s_.state * f_.channels + first_, m_.gradient);
    for (int64_t i = last; i >= 0; --i) {
      if (i < last) forward(i);
      for (int64_t t = end_of(i); t-- > i * s_.block();) backward(t, t - i * s_.block());
    }
  }

  int64_t end_of(int64_t block) const { return std::min(f_.tokens, (block + 1) * s_.block()); }

  // [state, channels] as a strip has it.
  void copy_in(const float* from, float* to) const {
    for (int64_t n = 0; n < s_.state; ++n) {
      std::copy_n(from + n * f_.channels, columns_, to + n * s_.strip);
    }
  }

  ScanToken token(int64_t t, float* before) const {
    std::copy_n(f_.u.at(b_, t) + first_, columns_, m_.u);
    std::copy_n(f_.time.at(b_, t) + first_, columns_, m_.time);
    return {.state = s_.state,
            .u = m_.u,
            .time = m_.time,
            .b = f_.b.at(b_, t),
            .c = f_.c.at(b_, t),
            .rates = m_.rates,
            .before = before,
            .after = before + s_.states()};
  }

  // The states in a block, of which the first is that before it.
  void forward(int64_t block) const {
    std::copy_n(m_.before_blocks + block * s_.states(), s_.states(), m_.in_block);
    for (int64_t t = block * s_.block(); t < end_of(block); ++t) {
      HWY_DYNAMIC_DISPATCH(scan_next)
      (token(t, m_.in_block + (t - block * s_.block()) * s_.states()));
    }
  }

  void backward(int64_t t, int64_t in_block) const {
    const int64_t row = b_ * f_.tokens + t, at = row * f_.channels + first_;
    std::copy_n(a_.dout + at, columns_, m_.dout);
    HWY_DYNAMIC_DISPATCH(scan_token_backward)
    (token(t, m_.in_block + in_block * s_.states()), {.dout = m_.dout,
                                                      .gradient = m_.gradient,
                                                      .du = m_.du,
                                                      .dtime = m_.dtime,
                                                      .db = db_ + row * s_.state,
                                                      .dc = dc_ + row * s_.state,
                                                      .drates = m_.drates});
    std::copy_n(m_.du, columns_, a_.du + at);
    std::copy_n(m_.dtime, columns_, a_.dtime + at);
  }

  const SelectiveScanBackwardArgs& a_;
  const SelectiveScanArgs& f_;
  int64_t first_, columns_, b_ = 0;
  float *db_, *dc_;
  const ScanMemory& m_;
  const ScanSizes& s_;
};

int64_t scan_memory_floats(int64_t tokens, int64_t state) {
  return floats_of<ScanMemory>(ScanSizes{tokens, state, kMostScanStrip});
}

}  // namespace

size_t selective_scan_backward_workspace_bytes(int64_t batch, int64_t tokens, int64_t channels,
                                               int64_t state, int threads) {
  const int64_t groups = divide_up(channels, kScanGroup);
  const int64_t of_groups = 2 * groups * batch * tokens * state;
  return static_cast<size_t>(threads * scan_memory_floats(tokens, state) + of_groups) *
         sizeof(float);
}

void selective_scan_backward(ThreadPool& pool, const SelectiveScanBackwardArgs& a) {
  const SelectiveScanArgs& f = a.forward;
  const int64_t groups = divide_up(f.channels, kScanGroup);
  const int64_t numbers = f.batch * f.tokens * f.state, own = scan_memory_floats(f.tokens, f.state);
  const ScanSizes sizes{f.tokens, f.state, HWY_DYNAMIC_DISPATCH(scan_gradient_columns)()};
  float* const all = reinterpret_cast<float*>(a.workspace);
  float* const of_groups = all + pool.threads() * own;
  std::fill_n(of_groups, 2 * groups * numbers, 0.0f);
  pool.parallel_for(groups, 1, [&](int64_t begin, int64_t end, int thread) {
    MemoryPieces pieces(all + thread * own);
    const ScanMemory memory(pieces, sizes);
    for (int64_t group = begin; group < end; ++group) {
      float* const db = of_groups + 2 * group * numbers;
      const int64_t last = std::min(f.channels, (group + 1) * kScanGroup);
      for (int64_t first = group * kScanGroup; first < last; first += sizes.strip) {
        ScanStripBackward(a, first, db, db + numbers, memory).run();
      }
    }
  });
  std::fill_n(a.db, numbers, 0.0f);
  std::fill_n(a.dc, numbers, 0.0f);
  for (int64_t group = 0; group < groups; ++group) {
    const float* const db = of_groups + 2 * group * numbers;
    for (int64_t i = 0; i < numbers; ++i) {
      a.db[i] += db[i];
      a.dc[i] += db[numbers + i];
    }
  }
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
