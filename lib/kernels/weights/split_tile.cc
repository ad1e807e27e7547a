#include "lib/kernels/weights/split_tile.h"

#include <cstring>

#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/simd/x86_intrinsics.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/split_tile.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/piece-inl.h"

#if HWY_TARGET == HWY_AVX2

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

#include "lib/kernels/weights/tile_vectors-inl.h"

using Bytes = hn::Repartition<int8_t, TileInts>;
using ByteVector = hn::VFromD<Bytes>;
using WordVector = hn::VFromD<Words>;

// Highway 1.0 has no operation for products of unsigned with signed bytes summed by pairs in int16.
LUMEN_PIECE WordVector multiply_pairs(ByteVector u, ByteVector s) {
  return WordVector{_mm256_maddubs_epi16(u.raw, s.raw)};
}
LUMEN_PIECE IntVector sum_pairs(WordVector v) {
  return IntVector{_mm256_madd_epi16(v.raw, _mm256_set1_epi16(1))};
}

LUMEN_PIECE ByteVector load_bytes(const uint8_t* p) {
  return hn::LoadU(Bytes(), reinterpret_cast<const int8_t*>(p));
}

// One block of codes in the order of a panel, at any address, to block `at` of `to`.
LUMEN_PIECE void split_block(const uint8_t* codes, int64_t at, const SplitPanel& to) {
  const Bytes d;
  for (int place = 0; place < kPanelRows; place += kTileLanes) {
    auto owed = hn::Zero(Words());
    HWY_UNROLL(8)
    for (int step = 0; step < 8; ++step) {
      const int64_t from = 64 * step + 4 * place, byte = 32 * kPanelRows * at + from;
      const auto code = load_bytes(codes + from);
      const auto sign = hn::VecFromMask(d, hn::Lt(code, hn::Zero(d)));
      const auto magnitude = hn::Abs(code);  // of −128 it is 128, unsigned
      hn::Store(magnitude, d, reinterpret_cast<int8_t*>(to.codes + byte));
      hn::Store(sign, d, reinterpret_cast<int8_t*>(to.signs + byte));
      owed = hn::Sub(owed, multiply_pairs(magnitude, sign));
    }
    hn::Store(sum_pairs(owed), TileInts(), to.owed + kPanelRows * at + place);
  }
}

void split_codes(int64_t blocks, const SplitPanel& to) {
  for (int64_t at = 0; at < blocks; ++at) split_block(to.codes + 32 * kPanelRows * at, at, to);
}

void split_q8_0(const std::byte* panel, int64_t blocks, const SplitPanel& to) {
  const TileFloats d;
  for (int64_t at = 0; at < blocks; ++at, panel += 34 * kPanelRows) {
    const auto* scales = reinterpret_cast<const uint16_t*>(panel);
    for (int place = 0; place < kPanelRows; place += kTileLanes) {
      hn::Store(load_half(d, scales + place), d, to.scale + kPanelRows * at + place);
    }
    split_block(reinterpret_cast<const uint8_t*>(panel) + 2 * kPanelRows, at, to);
  }
}

// The products with two vectors of weight rows, the halves of a panel. kRows × 2 sums of integers:
// 10 of 16 registers, with two each for the codes and the signs, and one for x and for a product.
// The sums of floats go to L1.
template <int kRows>
LUMEN_PIECE void multiply_panel(const SplitPanel& w, const CodeStrip& x, int64_t blocks, bool add,
                                float* y, int64_t y_stride, int64_t cols) {
  static_assert(2 * kTileLanes == kPanelRows);
  const TileFloats d;
  const TileInts di;
  const uint8_t *codes = w.codes, *signs = w.signs;
  const std::byte* xp = x.blocks;
  FloatVector sum[kRows][2];
  load_sums(add, y, y_stride, cols, sum);
  for (int64_t block = 0; block < blocks; ++block) {
    // Strips come from L2 one after another, four blocks ahead of their use.
    for (int line = 0; line < kRows * kStripBlockBytes; line += 64) {
      hwy::Prefetch(xp + 4 * kRows * kStripBlockBytes + line);
    }
    const int32_t* owed = w.owed + kPanelRows * block;
    const auto owed0 = hn::Load(di, owed), owed1 = hn::Load(di, owed + kTileLanes);
    IntVector dot[kRows][2];
    for (int r = 0; r < kRows; ++r) dot[r][0] = owed0, dot[r][1] = owed1;
    // Unrolled, because sums in a loop would be copied from register to register each time. Each
    // step is widened: two products of pairs may be −2 · 128 · 128.
    HWY_UNROLL(8)
    for (int step = 0; step < 8; ++step) {
      const auto c0 = load_bytes(codes + 64 * step), c1 = load_bytes(codes + 64 * step + 32);
      const auto s0 = load_bytes(signs + 64 * step), s1 = load_bytes(signs + 64 * step + 32);
      for (int r = 0; r < kRows; ++r) {
        const auto four = hn::BitCast(Bytes(), repeat_word(xp + 32 * r + 4 * step));
        dot[r][0] = hn::Add(dot[r][0], sum_pairs(multiply_pairs(c0, hn::Xor(four, s0))));
        finish(dot[r][0].raw);
        dot[r][1] = hn::Add(dot[r][1], sum_pairs(multiply_pairs(c1, hn::Xor(four, s1))));
        finish(dot[r][1].raw);
      }
    }
    const float* scale = w.scale + kPanelRows * block;
    const auto scale0 = hn::Load(d, scale), scale1 = hn::Load(d, scale + kTileLanes);
    for (int r = 0; r < kRows; ++r) {
      const auto xs = repeat_float(xp + 32 * kRows + 4 * r);
      sum[r][0] = hn::MulAdd(hn::ConvertTo(d, dot[r][0]), hn::Mul(xs, scale0), sum[r][0]);
      sum[r][1] = hn::MulAdd(hn::ConvertTo(d, dot[r][1]), hn::Mul(xs, scale1), sum[r][1]);
    }
    codes += 32 * kPanelRows;
    signs += 32 * kPanelRows;
    xp += kStripBlockBytes * kRows;
  }
  store_sums(sum, y, y_stride, cols);
}

template <int kRows>
void multiply(const SplitPanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add, float* y,
              int64_t y_stride, int64_t cols) {
  for (int first = 0; first < cols; first += kPanelRows) {
    multiply_panel<kRows>(w[first / kPanelRows], x, blocks, add, y + first, y_stride, cols - first);
  }
}

void multiply_split(const SplitPanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add,
                    float* y, int64_t y_stride, int64_t cols) {
  switch (x.rows) {
    case 1:
      return multiply<1>(w, x, blocks, add, y, y_stride, cols);
    case 2:
      return multiply<2>(w, x, blocks, add, y, y_stride, cols);
    case 3:
      return multiply<3>(w, x, blocks, add, y, y_stride, cols);
    case 4:
      return multiply<4>(w, x, blocks, add, y, y_stride, cols);
    default:
      return multiply<kSplitStripRows>(w, x, blocks, add, y, y_stride, cols);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET == HWY_AVX2

#if HWY_ONCE
namespace lumen::kernels {

bool has_split_tile() {
  return uses_avx2();
}

#if HWY_TARGETS & HWY_AVX2

void split_codes(int64_t blocks, const SplitPanel& to) {
  N_AVX2::split_codes(blocks, to);
}

void split_q8_0(const std::byte* panel, int64_t blocks, const SplitPanel& to) {
  N_AVX2::split_q8_0(panel, blocks, to);
}

void multiply_split(const SplitPanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add,
                    float* y, int64_t y_stride, int64_t cols) {
  N_AVX2::multiply_split(w, x, blocks, add, y, y_stride, cols);
}

#else

void split_codes(int64_t, const SplitPanel&) {
  LUMEN_CHECK(!"AVX2");
}

void split_q8_0(const std::byte*, int64_t, const SplitPanel&) {
  LUMEN_CHECK(!"AVX2");
}

void multiply_split(const SplitPanel (&)[2], const CodeStrip&, int64_t, bool, float*, int64_t,
                    int64_t) {
  LUMEN_CHECK(!"AVX2");
}

#endif

}  // namespace lumen::kernels
#endif  // HWY_ONCE
