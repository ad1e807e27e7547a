#include "lib/kernels/recurrent/recurrent_cell.h"

#include <algorithm>

#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/tiles/bf16_panels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/recurrent/recurrent_cell.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using CellFloat = hn::ScalableTag<float>;
using CellVector = hn::Vec<CellFloat>;

// A whole vector, or the first few lanes of one, at offset `at` of whatever is read and written.
class Lanes {
 public:
  Lanes(int64_t at, int64_t units) : at_(at), count_(units - at) {}
  int64_t at() const { return at_; }
  HWY_INLINE CellVector load(const float* p) const {
    const CellFloat d;
    return whole() ? hn::LoadU(d, p + at_) : load_first(d, p + at_, count_);
  }
  HWY_INLINE CellVector load(const Numbers& x) const {
    if (!x.bf16) return load(x.first);
    const CellFloat d;
    const uint16_t* const from = bf16_numbers(x.first) + at_;
    return whole() ? load_bfloat(d, from) : load_first(d, from, count_);
  }
  HWY_INLINE void store(CellVector v, float* p) const {
    const CellFloat d;
    if (whole()) {
      hn::StoreU(v, d, p + at_);
    } else {
      store_first(v, d, p + at_, count_);
    }
  }

 private:
  bool whole() const { return count_ >= static_cast<int64_t>(hn::MaxLanes(CellFloat())); }
  int64_t at_, count_;
};

// Fetches what lies at these lanes of `count` arrays, one per gate, of the next sample.
template <class Row>
HWY_INLINE void fetch_next(const Row& row, const Lanes& lanes, const Numbers& x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    __builtin_prefetch(x.at(lanes.at() + count * row.next + i * row.hidden).first);
  }
}

template <class F>
HWY_INLINE void for_lanes(int64_t units, const F& f) {
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(CellFloat()));
  for (int64_t at = 0; at < units; at += kLanes) f(Lanes(at, units));
}

void lstm_forward(const recurrent_cell::Forward& row) {
  const CellFloat d;
  for_lanes(row.units, [&](const Lanes& lanes) HWY_ATTR {
    fetch_next(row, lanes, row.projected, 4);
    fetch_next(row, lanes, row.results, 5);
    auto gate = [&](int64_t g) HWY_ATTR {
      const int64_t at = g * row.hidden;
      return hn::Add(
          hn::Add(lanes.load(row.product + at), lanes.load(row.projected.at(g * row.hidden))),
          lanes.load(row.b + at));
    };
    const auto i = sigmoid_vector(d, gate(0)), f = sigmoid_vector(d, gate(1));
    const auto g = tanh_vector(d, gate(2)), o = sigmoid_vector(d, gate(3));
    const auto c = hn::MulAdd(f, lanes.load(row.c), hn::Mul(i, g));
    const CellVector saved[] = {i, f, g, o, c};
    for (int64_t s = 0; s < 5; ++s) lanes.store(saved[s], row.saved + s * row.hidden);
    lanes.store(c, row.c);
  });
  // Apart: one after the other, both long chains of dependences would keep the processor waiting.
  for_lanes(row.units, [&](const Lanes& lanes) HWY_ATTR {
    const auto h =
        hn::Mul(lanes.load(row.saved + 3 * row.hidden), tanh_vector(d, lanes.load(row.c)));
    lanes.store(h, row.h);
    lanes.store(h, row.out);
  });
}

void gru_forward(const recurrent_cell::Forward& row) {
  const CellFloat d;
  const int64_t n = row.hidden;
  for_lanes(row.units, [&](const Lanes& lanes) HWY_ATTR {
    auto product = [&](int64_t g) HWY_ATTR {
      return hn::Add(lanes.load(row.product + g * n), lanes.load(row.b + g * n));
    };
    auto projected = [&](int64_t g) HWY_ATTR { return lanes.load(row.projected.at(g * n)); };
    const auto r = sigmoid_vector(d, hn::Add(product(0), projected(0)));
    const auto z = sigmoid_vector(d, hn::Add(product(1), projected(1)));
    const auto inner = product(2);
    const auto candidate = tanh_vector(d, hn::MulAdd(r, inner, projected(2)));
    const auto h = hn::MulAdd(z, hn::Sub(lanes.load(row.h), candidate), candidate);
    const CellVector saved[] = {r, z, candidate, inner};
    for (int64_t s = 0; s < 4; ++s) lanes.store(saved[s], row.saved + s * n);
    lanes.store(h, row.h);
    lanes.store(h, row.out);
  });
}

template <bool kRelu>
void elman_forward(const recurrent_cell::Forward& row) {
  const CellFloat d;
  for_lanes(row.units, [&](const Lanes& lanes) HWY_ATTR {
    const auto a =
        hn::Add(hn::Add(lanes.load(row.product), lanes.load(row.projected)), lanes.load(row.b));
    // NaN stays NaN.
    const auto h = kRelu ? hn::IfThenZeroElse(hn::Lt(a, hn::Zero(d)), a) : tanh_vector(d, a);
    lanes.store(h, row.h);
    lanes.store(h, row.out);
  });
}

// x · y · (1 − y), and x · (1 − y²): through the logistic function and the hyperbolic tangent.
HWY_INLINE CellVector through_sigmoid(CellVector x, CellVector y) {
  return hn::Mul(x, hn::NegMulAdd(y, y, y));
}
HWY_INLINE CellVector through_tanh(CellVector x, CellVector y) {
  return hn::NegMulAdd(hn::Mul(x, y), y, x);
}

void lstm_backward(const recurrent_cell::Backward& row) {
  const CellFloat d;
  const int64_t n = row.hidden;
  for_lanes(row.units, [&](const Lanes& lanes) HWY_ATTR {
    fetch_next(row, lanes, row.saved, 5);
    fetch_next(row, lanes, row.results, 4);
    auto saved = [&](int64_t s) HWY_ATTR { return lanes.load(row.saved.at(s * n)); };
    const auto i = saved(0), f = saved(1), g = saved(2), o = saved(3);
    const auto tanh_c = tanh_vector(d, saved(4));
    const auto dh = hn::Add(lanes.load(row.dh), lanes.load(row.dout));
    const auto dc = hn::Add(lanes.load(row.dc), through_tanh(hn::Mul(dh, o), tanh_c));
    const CellVector gates[] = {
        through_sigmoid(hn::Mul(dc, g), i), through_sigmoid(hn::Mul(dc, lanes.load(row.c)), f),
        through_tanh(hn::Mul(dc, i), g), through_sigmoid(hn::Mul(dh, tanh_c), o)};
    for (int64_t s = 0; s < 4; ++s) lanes.store(gates[s], row.dprojected + s * n);
    lanes.store(hn::Mul(dc, f), row.dc);
    lanes.store(hn::Zero(d), row.dh);
  });
}

void gru_backward(const recurrent_cell::Backward& row) {
  const int64_t n = row.hidden;
  for_lanes(row.units, [&](const Lanes& lanes) HWY_ATTR {
    auto saved = [&](int64_t s) HWY_ATTR { return lanes.load(row.saved.at(s * n)); };
    const auto r = saved(0), z = saved(1), candidate = saved(2), inner = saved(3);
    const auto dh = hn::Add(lanes.load(row.dh), lanes.load(row.dout));
    const auto dn = through_tanh(hn::NegMulAdd(dh, z, dh), candidate);
    const auto dr = through_sigmoid(hn::Mul(dn, inner), r);
    const auto dz = through_sigmoid(hn::Mul(dh, hn::Sub(lanes.load(row.h), candidate)), z);
    lanes.store(dr, row.dprojected);
    lanes.store(dz, row.dprojected + n);
    lanes.store(dn, row.dprojected + 2 * n);
    lanes.store(dr, row.dr);
    lanes.store(dz, row.dr + n);
    lanes.store(hn::Mul(dn, r), row.dr + 2 * n);
    lanes.store(hn::Mul(dh, z), row.dh);
  });
}

template <bool kRelu>
void elman_backward(const recurrent_cell::Backward& row) {
  const CellFloat d;
  for_lanes(row.units, [&](const Lanes& lanes) HWY_ATTR {
    const auto dh = hn::Add(lanes.load(row.dh), lanes.load(row.dout));
    const auto h = lanes.load(row.out);
    const auto da = kRelu ? hn::IfThenElseZero(hn::Gt(h, hn::Zero(d)), dh) : through_tanh(dh, h);
    lanes.store(da, row.dprojected);
    lanes.store(hn::Zero(d), row.dh);
  });
}

void forward_kernel(Cell cell, const recurrent_cell::Forward& row) {
  switch (cell) {
    case Cell::kLstm:
      return lstm_forward(row);
    case Cell::kGru:
      return gru_forward(row);
    case Cell::kTanh:
      return elman_forward<false>(row);
    case Cell::kRelu:
      return elman_forward<true>(row);
  }
}

void backward_kernel(Cell cell, const recurrent_cell::Backward& row) {
  switch (cell) {
    case Cell::kLstm:
      return lstm_backward(row);
    case Cell::kGru:
      return gru_backward(row);
    case Cell::kTanh:
      return elman_backward<false>(row);
    case Cell::kRelu:
      return elman_backward<true>(row);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
HWY_EXPORT(forward_kernel);
HWY_EXPORT(backward_kernel);

namespace recurrent_cell {

void forward(Cell cell, const Forward& row) {
  HWY_DYNAMIC_DISPATCH(forward_kernel)(cell, row);
}
void backward(Cell cell, const Backward& row) {
  HWY_DYNAMIC_DISPATCH(backward_kernel)(cell, row);
}

}  // namespace recurrent_cell
}  // namespace lumen::kernels
#endif  // HWY_ONCE
