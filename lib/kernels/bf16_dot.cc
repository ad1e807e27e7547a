// The products of amx.h in vectors, with the dot products of bfloat16 pairs of AVX512-BF16.
#include "lib/base/check.h"
#include "lib/kernels/amx.h"
#include "lib/kernels/x86_intrinsics.h"

#if HWY_ARCH_X86_64

#include <cstring>

// Everything up to HWY_POP_ATTRIBUTES is compiled for this instruction set and reached only through
// native_dot_unit.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bf16")

namespace lumen::kernels {
namespace {

// Rows of sums in registers: with two panels of B 16 sums, of which 12 hide the latency (6 cycles,
// two start in each); two vectors of B and the broadcast take three registers more.
constexpr int kRows = 8;
constexpr int64_t kTile = kTileRows * kTileDepth;  // numbers in a panel per step

__m512i repeat_pair(const uint16_t* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof bits);
  return _mm512_set1_epi32(bits);
}

// c[kRows][32] (+)= a · b for rows of one panel of A, whose first is at `a`, and kCols panels of B.
template <int kCols>
void multiply_rows(const uint16_t* a, const uint16_t* b, int64_t b_pitch, int64_t steps, float* c,
                   bool add) {
  constexpr int64_t kPitch = 2 * kTileRows;  // of c
  __m512 sum[kRows][kCols];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int j = 0; j < kCols; ++j) {
      sum[r][j] = add ? _mm512_loadu_ps(c + r * kPitch + j * kTileRows) : _mm512_setzero_ps();
    }
  }
  for (int64_t step = 0; step < steps; ++step, a += kTile) {
    HWY_UNROLL(2)
    for (int pair = 0; pair < kTileDepth / 2; ++pair, b += 2 * kTileRows) {
      __m512i column[kCols];
      HWY_UNROLL(2)
      for (int j = 0; j < kCols; ++j) column[j] = _mm512_loadu_si512(b + j * b_pitch);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        const __m512i row = repeat_pair(a + r * kTileDepth + 2 * pair);
        HWY_UNROLL(2)
        for (int j = 0; j < kCols; ++j) {
          sum[r][j] = _mm512_dpbf16_ps(sum[r][j], (__m512bh)row, (__m512bh)column[j]);
        }
      }
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int j = 0; j < kCols; ++j) _mm512_storeu_ps(c + r * kPitch + j * kTileRows, sum[r][j]);
  }
}

void multiply(const TileStrips& s) {
  LUMEN_CHECK(s.a_low == nullptr && s.b_low == nullptr);
  const auto rows = s.col_panels == 2 ? multiply_rows<2> : multiply_rows<1>;
  for (int panel = 0; panel < s.row_panels; ++panel) {
    for (int64_t r = 0; r < kTileRows; r += kRows) {
      rows(s.a_high + panel * s.a_pitch + r * kTileDepth, s.b_high, s.b_pitch, s.steps,
           s.c + (panel * kTileRows + r) * 2 * kTileRows, s.add);
    }
  }
}

constexpr TileUnit kUnit = {[] {}, [] {}, multiply};

}  // namespace

const TileUnit* native_dot_unit() {
  return &kUnit;
}

}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#else  // not x86-64

namespace lumen::kernels {

const TileUnit* native_dot_unit() {
  return nullptr;
}

}  // namespace lumen::kernels

#endif  // HWY_ARCH_X86_64
