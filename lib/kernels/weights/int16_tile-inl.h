// The int16 tile (int16_tile.h): a text of word_targets-inl.h. No guard, no includes of its own.

// Columns k and k + 1 of a block, a row per lane.
struct ColumnPair {
  FloatVector first, second;
};

// Of the rows from `place` on, of sixteen.
template <DType kType>
HWY_INLINE ColumnPair load_columns(const uint16_t* panel, int place, int k) {
  const TileFloats d;
  const uint16_t* p = panel + k * kPanelRows;
  if constexpr (kType == DType::kF16) {
    return {load_half(d, p + place), load_half(d, p + kPanelRows + place)};
  } else {
    const TileInts di;
    const auto pairs = hn::LoadU(di, reinterpret_cast<const int32_t*>(p + 2 * place));
    return {hn::BitCast(d, hn::ShiftLeft<16>(pairs)),
            hn::BitCast(d, hn::And(pairs, hn::Set(di, ~0xFFFF)))};
  }
}

// 2^(e − 1) of a group whose largest magnitude, given its bits, is in [2^e, 2^(e + 1)), and the
// inverse. Both are zero where the scale would not be a normal number or the group is not finite.
struct Binade {
  FloatVector power, inverse;
  IntVector finite;  // not 0
};

HWY_INLINE Binade binade_of(IntVector largest) {
  const TileFloats d;
  const TileInts di;
  const auto infinity = hn::Set(di, 0x7F800000);
  const auto exponent = hn::And(largest, infinity);
  const auto finite = hn::Lt(exponent, infinity);
  const auto good = hn::And(hn::Gt(exponent, hn::Set(di, 14 << 23)), finite);
  const auto power = hn::Sub(exponent, hn::Set(di, 1 << 23));
  const auto inverse = hn::Sub(hn::Set(di, 254 << 23), power);
  return {hn::BitCast(d, hn::IfThenElseZero(good, power)),
          hn::BitCast(d, hn::IfThenElseZero(good, inverse)), hn::VecFromMask(di, finite)};
}

// 2^s by Σ u² (int16_tile.h), and its inverse.
struct CodeScale {
  FloatVector up, down;
};

HWY_INLINE CodeScale code_scale(FloatVector squares) {
  const TileFloats d;
  const TileInts di;
  const auto bits = hn::BitCast(di, hn::Mul(squares, hn::Set(d, 1 + 0x1p-10f)));
  const auto most = hn::Sub(hn::Set(di, 2 * kInt16NormBits - 1 + 127), hn::ShiftRight<23>(bits));
  const auto shift = hn::ShiftLeft<23>(hn::ShiftRight<1>(most)), one = hn::Set(di, 127 << 23);
  return {hn::BitCast(d, hn::Add(one, shift)), hn::BitCast(d, hn::Sub(one, shift))};
}

// A group of `cols` columns of the rows from `place` on.
template <DType kType>
HWY_INLINE void expand_group(const uint16_t* panel, int place, int64_t cols, int16_t* codes,
                             float* scale) {
  const TileFloats d;
  const TileInts di;
  const Words d16;
  auto largest = hn::Zero(di);
  for (int k = 0; k < cols; k += 2) {
    const ColumnPair pair = load_columns<kType>(panel, place, k);
    largest = hn::Max(largest, hn::Max(magnitude_bits(pair.first), magnitude_bits(pair.second)));
  }
  const Binade binade = binade_of(largest);
  auto squares = hn::Zero(d);
  for (int k = 0; k < cols; k += 2) {
    const ColumnPair pair = load_columns<kType>(panel, place, k);
    const auto first = hn::Mul(pair.first, binade.inverse);
    const auto second = hn::Mul(pair.second, binade.inverse);
    squares = hn::MulAdd(second, second, hn::MulAdd(first, first, squares));
  }
  const CodeScale power = code_scale(squares);
  // Codes of what is not finite mean nothing.
  const auto finite = hn::RebindMask(d, hn::MaskFromVec(binade.finite));
  const auto stored = hn::IfThenElse(finite, hn::Mul(binade.power, power.down), hn::NaN(d));
  for (int64_t block = 0; block < cols / 32; ++block) {
    hn::Store(stored, d, scale + block * kPanelRows + place);
  }
  const auto up = hn::Mul(binade.inverse, power.up);
  for (int k = 0; k < cols; k += 2) {
    const ColumnPair pair = load_columns<kType>(panel, place, k);
    const auto first = hn::NearestInt(hn::Mul(pair.first, up));
    const auto second = hn::NearestInt(hn::Mul(pair.second, up));
    hn::Store(pair_words(first, second), d16, codes + k * kPanelRows + 2 * place);
  }
}

template <DType kType>
void expand(const Weight& w, int64_t row, int64_t k, int64_t cols, const Int16Panel& to) {
  const auto* panel = static_cast<const uint16_t*>(w.data) + row * w.cols + k * kPanelRows;
  for (int64_t at = 0; at < cols; at += kInt16Group) {
    for (int place = 0; place < kPanelRows; place += kTileLanes) {
      expand_group<kType>(panel + at * kPanelRows, place, HWY_MIN(kInt16Group, cols - at),
                          to.codes + at * kPanelRows, to.scale + at / 32 * kPanelRows);
    }
  }
}

void expand_of_width(const Weight& w, int64_t row, int64_t k, int64_t cols, const Int16Panel& to) {
  w.dtype == DType::kF16 ? expand<DType::kF16>(w, row, k, cols, to)
                         : expand<DType::kBF16>(w, row, k, cols, to);
}

// The products with two vectors of weight rows, from row `first` of the 32 on. kRows × 2 sums of
// integers and as many of floats: 24 of 32 registers with 512 bits; with 256 bits 12 of 16 for the
// integers, and the floats go to L1.
template <int kRows>
HWY_INLINE void multiply_columns(const Int16Panel (&w)[2], int first, const Int16Strip& x,
                                 int64_t blocks, bool add, float* y, int64_t y_stride,
                                 int64_t cols) {
  const TileFloats d;
  const TileInts di;
  const Words d16;
  const Int16Panel& panel0 = w[first / kPanelRows];
  const Int16Panel& panel1 = w[(first + kTileLanes) / kPanelRows];
  const int place0 = first % kPanelRows, place1 = (first + kTileLanes) % kPanelRows;
  const int16_t *codes0 = panel0.codes + 2 * place0, *codes1 = panel1.codes + 2 * place1;
  const float *scale0 = panel0.scale + place0, *scale1 = panel1.scale + place1;
  const std::byte* xp = x.blocks;
  FloatVector sum[kRows][2];
  load_sums(add, y + first, y_stride, cols - first, sum);
  for (int64_t block = 0; block < blocks;) {
    IntVector dot[kRows][2];
    for (int r = 0; r < kRows; ++r) dot[r][0] = dot[r][1] = hn::Zero(di);
    for (const int64_t end = HWY_MIN(block + x.group, blocks); block < end; ++block) {
      // Strips come from L2 one after another, four blocks ahead of their use.
      for (int line = 0; line < kRows * kInt16StripBytes; line += 64) {
        hwy::Prefetch(xp + 4 * kRows * kInt16StripBytes + line);
      }
      // Unrolled, because sums in a loop would be copied from register to register each time.
      HWY_UNROLL(16)
      for (int step = 0; step < 16; ++step) {
        const auto c0 = hn::BitCast(di, hn::Load(d16, codes0 + 32 * step));
        const auto c1 = hn::BitCast(di, hn::Load(d16, codes1 + 32 * step));
        for (int r = 0; r < kRows; ++r) {
          const auto pair = repeat_word(xp + 64 * r + 4 * step);
          dot[r][0] = add_word_products(dot[r][0], c0, pair);
          dot[r][1] = add_word_products(dot[r][1], c1, pair);
        }
      }
      xp += kInt16StripBytes * kRows;
      codes0 += 32 * kPanelRows;
      codes1 += 32 * kPanelRows;
    }
    const int64_t scales = (block - 1) * kPanelRows;
    const auto s0 = hn::Load(d, scale0 + scales), s1 = hn::Load(d, scale1 + scales);
    for (int r = 0; r < kRows; ++r) {
      const auto xs = repeat_float(xp - 4 * (kRows - r));
      sum[r][0] = hn::MulAdd(hn::ConvertTo(d, dot[r][0]), hn::Mul(xs, s0), sum[r][0]);
      sum[r][1] = hn::MulAdd(hn::ConvertTo(d, dot[r][1]), hn::Mul(xs, s1), sum[r][1]);
    }
  }
  store_sums(sum, y + first, y_stride, cols - first);
}

template <int kRows>
void multiply(const Int16Panel (&w)[2], const Int16Strip& x, int64_t blocks, bool add, float* y,
              int64_t y_stride, int64_t cols) {
  for (int first = 0; first < cols; first += 2 * kTileLanes) {
    multiply_columns<kRows>(w, first, x, blocks, add, y, y_stride, cols);
  }
}

void multiply_of_width(const Int16Panel (&w)[2], const Int16Strip& x, int64_t blocks, bool add,
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
    case 5:
      return multiply<5>(w, x, blocks, add, y, y_stride, cols);
    default:
      return multiply<6>(w, x, blocks, add, y, y_stride, cols);
  }
}
