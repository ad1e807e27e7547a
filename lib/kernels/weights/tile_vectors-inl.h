// The vectors of a tile of products of codes, and how sums of y come and go. Included inside a
// namespace in HWY_NAMESPACE and under its attributes, after highway.h; no guard, no includes of
// its own.

namespace hn = hwy::HWY_NAMESPACE;

using TileFloats = hn::ScalableTag<float>;
using TileInts = hn::RebindToSigned<TileFloats>;
using FloatVector = hn::VFromD<TileFloats>;
using IntVector = hn::VFromD<TileInts>;
inline constexpr int kTileLanes = hn::MaxLanes(TileFloats());

// The four bytes at p, which need not be aligned, in every lane.
HWY_INLINE IntVector repeat_word(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof word);
  return hn::Set(TileInts(), word);
}

HWY_INLINE FloatVector repeat_float(const void* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return hn::Set(TileFloats(), value);
}

using Words = hn::Repartition<int16_t, TileInts>;

// The low halves of two vectors as pairs of int16.
HWY_INLINE hn::VFromD<Words> pair_words(IntVector first, IntVector second) {
  const Words d16;
  return hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(second)), hn::BitCast(d16, first));
}

// The bits without the sign, which order like an integer, infinity and NaNs last.
HWY_INLINE IntVector magnitude_bits(FloatVector v) {
  const TileInts di;
  return hn::And(hn::BitCast(di, v), hn::Set(di, 0x7FFFFFFF));
}

// The first `cols` of two vectors of each of kRows rows of y, the rest and, unless `add`, all of
// them 0.
template <int kRows>
HWY_INLINE void load_sums(bool add, const float* y, int64_t y_stride, int64_t cols,
                          FloatVector (&sum)[kRows][2]) {
  const TileFloats d;
  if (add && cols >= 2 * kTileLanes) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < 2; ++v) sum[r][v] = hn::LoadU(d, y + r * y_stride + v * kTileLanes);
    }
    return;
  }
  for (int v = 0; v < 2; ++v) {
    const int64_t count = cols - v * kTileLanes;
    const auto valid = hn::FirstN(d, count > 0 ? count : 0);
    for (int r = 0; r < kRows; ++r) {
      sum[r][v] = add ? hn::MaskedLoad(valid, d, y + r * y_stride + v * kTileLanes) : hn::Zero(d);
    }
  }
}

template <int kRows>
HWY_INLINE void store_sums(const FloatVector (&sum)[kRows][2], float* y, int64_t y_stride,
                           int64_t cols) {
  const TileFloats d;
  if (cols >= 2 * kTileLanes) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < 2; ++v) hn::StoreU(sum[r][v], d, y + r * y_stride + v * kTileLanes);
    }
    return;
  }
  for (int v = 0; v < 2; ++v) {
    const int64_t count = cols - v * kTileLanes;
    const auto valid = hn::FirstN(d, count > 0 ? count : 0);
    for (int r = 0; r < kRows; ++r) {
      hn::BlendedStore(sum[r][v], valid, d, y + r * y_stride + v * kTileLanes);
    }
  }
}
