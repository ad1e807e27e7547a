// Philox4x32-10 (random_fill.h) on vectors of counters, included by kernel files once per Highway
// target. No result depends on the target.
#if defined(LUMEN_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_PHILOX_INL_H_
#undef LUMEN_KERNELS_PHILOX_INL_H_
#else
#define LUMEN_KERNELS_PHILOX_INL_H_
#endif

#include "lib/kernels/random_fill.h"
#include "lib/kernels/simd/piece-inl.h"
#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Word = hn::Repartition<uint32_t, Float>;
using WordVec = hn::Vec<Word>;

// Element w · kCounters + c of a group takes word w of the group's counter c.
inline constexpr int64_t kCounters = 16, kGroup = 4 * kCounters;

using Wide = hn::Repartition<uint64_t, Float>;
using WideVec = hn::Vec<Wide>;

// Ten rounds on the counters index + 0, 1, … in 64-bit lanes. Only the lower halves of the words
// mean something: the upper ones hold what products leave there, and nothing reads it.
LUMEN_PIECE void philox_rounds(const RandomKey& key, uint64_t index, WideVec (&c)[4]) {
  const Wide d;
  const Word half;
  const auto factor0 = hn::Set(half, 0xD2511F53u), factor1 = hn::Set(half, 0xCD9E8D57u);
  c[0] = hn::Add(hn::Set(d, index), hn::Iota(d, 0));
  c[1] = hn::Set(d, index >> 32);
  c[2] = hn::Set(d, key.stream);
  c[3] = hn::Set(d, key.stream >> 32);
  uint32_t k0 = key.seed, k1 = key.step;
  for (int round = 0; round < 10; ++round) {
    const auto product0 = hn::MulEven(hn::BitCast(half, c[0]), factor0);
    const auto product1 = hn::MulEven(hn::BitCast(half, c[2]), factor1);
    c[0] = hn::Xor3(hn::ShiftRight<32>(product1), c[1], hn::Set(d, uint64_t{k0}));
    c[2] = hn::Xor3(hn::ShiftRight<32>(product0), c[3], hn::Set(d, uint64_t{k1}));
    c[1] = product1;
    c[3] = product0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

// The four words of the blocks with counters `index` + 0, 1, … in the lanes.
HWY_INLINE void philox(const RandomKey& key, uint64_t index, WordVec (&words)[4]) {
  const Word d;
  WideVec first[4], second[4];
  philox_rounds(key, index, first);
  philox_rounds(key, index + hn::Lanes(Wide()), second);
  for (int w = 0; w < 4; ++w) {
    words[w] = hn::ConcatEven(d, hn::BitCast(d, second[w]), hn::BitCast(d, first[w]));
  }
}

// The upper 24 bits as float.
HWY_INLINE FloatVec bits24(WordVec word) {
  const hn::RebindToSigned<Float> di;
  return hn::ConvertTo(Float(), hn::BitCast(di, hn::ShiftRight<8>(word)));
}

// Dropout: 0 where the upper 24 bits are below `threshold`, elsewhere `scale`.
LUMEN_PIECE FloatVec dropout_factor(WordVec word, FloatVec threshold, FloatVec scale) {
  return hn::IfThenZeroElse(hn::Lt(bits24(word), threshold), scale);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // LUMEN_KERNELS_PHILOX_INL_H_
