// The functions of attention_words.h: a text of word_targets-inl.h. No guard, no includes of its
// own.

// A tile is kWide vectors of columns × kTile positions or output elements.
inline constexpr int64_t kWide = kTileLanes == 16 ? 2 : 3;
inline constexpr int64_t kTile = kTileLanes == 16 ? 8 : 4;
inline constexpr int64_t kColumns = 2 * kWide * kTileLanes;
static_assert(kColumns <= attention_words::kMaxColumns);

// The largest weight: kPositions products with the largest code of a value fit int32, as do
// head_dim products of a key and a query.
inline constexpr int kLargestWeight = 8191, kLargestValue = 4095;
static_assert(int64_t{kLargestWeight} * kLargestValue * attention_words::kPositions < 1ll << 31);

inline float largest_key_code(int64_t head_dim) {
  return std::floor(std::sqrt(2147483647.0f / static_cast<float>(head_dim + 1)));
}

// What codes up to `largest` of a row with this largest magnitude are worth, and its inverse.
struct RowScale {
  float scale, inverse;
};

inline RowScale row_scale(const float* row, int64_t pitch, float largest) {
  const TileFloats d;
  const TileInts di;
  auto most = hn::Zero(di);
  for (int64_t i = 0; i < pitch; i += kTileLanes) {
    most = hn::Max(most, magnitude_bits(hn::LoadU(d, row + i)));
  }
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(di, most));
  float magnitude;
  std::memcpy(&magnitude, &bits, sizeof magnitude);
  if (!(magnitude < std::numeric_limits<float>::infinity())) {
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  // Rows that are next to nothing keep a scale whose inverse is finite.
  const float scale = std::max(magnitude / largest, 0x1p-64f);
  return {scale, 1 / scale};
}

// Integers whose low 16 bits are the code nearest to x · inverse, |x · inverse| < 2^15: the last
// bit of the shifted product is worth 1. Nothing that is used for a NaN.
HWY_INLINE IntVector code_of(FloatVector x, FloatVector inverse) {
  return hn::BitCast(TileInts(), hn::MulAdd(x, inverse, hn::Set(TileFloats(), 0x1.8p23f)));
}

void encode_keys(const float* rows, int64_t count, const attention_words::Keys& to) {
  const TileFloats d;
  const hn::RebindToUnsigned<TileInts> unsigned_ints;
  const hn::Rebind<uint16_t, TileInts> half;
  const float largest = largest_key_code(to.head_dim);
  for (int64_t p = 0; p < count; ++p) {
    const float* row = rows + p * to.pitch;
    const RowScale scale = row_scale(row, to.pitch, largest);
    const auto inverse = hn::Set(d, scale.inverse);
    to.k_scale[p] = scale.scale;
    auto* codes = reinterpret_cast<uint16_t*>(to.k + p * to.pitch);
    for (int64_t i = 0; i < to.pitch; i += kTileLanes) {
      hn::StoreU(
          hn::TruncateTo(half, hn::BitCast(unsigned_ints, code_of(hn::LoadU(d, row + i), inverse))),
          half, codes + i);
    }
  }
  const int64_t end = attention_words::padded(count);
  std::fill(to.k_scale + count, to.k_scale + end, 0.0f);
  std::fill(to.k + count * to.pitch, to.k + end * to.pitch, int16_t{0});
}

void encode_values(const float* rows, int64_t count, const attention_words::Keys& to) {
  const TileFloats d;
  const TileInts di;
  const Words d16;
  const int64_t end = attention_words::padded(count);
  for (int64_t p = 0; p < end; p += 2) {
    FloatVector inverse[2];
    for (int64_t j = p; j < p + 2; ++j) {
      // No weight: 2^−inf, and nothing to the sum.
      RowScale scale{0, 0};
      if (j < count) scale = row_scale(rows + j * to.pitch, to.pitch, kLargestValue);
      to.v_log[j] = scale.scale;
      to.v_inverse[j] = scale.inverse;
      if (std::isnan(scale.scale)) to.v_inverse[j] = scale.scale;
      inverse[j - p] = hn::Set(d, scale.inverse);
    }
    for (int64_t i = 0; i < to.pitch; i += kTileLanes) {
      auto first = hn::Zero(di), second = first;
      if (p < count) first = code_of(hn::LoadU(d, rows + p * to.pitch + i), inverse[0]);
      if (p + 1 < count) second = code_of(hn::LoadU(d, rows + (p + 1) * to.pitch + i), inverse[1]);
      hn::StoreU(pair_words(first, second), d16, to.v + p * to.pitch + 2 * i);
    }
  }
  for (int64_t p = 0; p < end; p += kTileLanes) {
    hn::StoreU(log2_vector(d, hn::LoadU(d, to.v_log + p)), d, to.v_log + p);
  }
}

void encode_queries(const float* q, const attention_words::Queries& to) {
  const TileFloats d;
  const TileInts di;
  const Words d16;
  const auto largest = hn::Set(d, largest_key_code(to.head_dim));
  for (int64_t column = 0; column < kColumns; column += kTileLanes) {
    auto most = hn::Zero(di);
    for (int64_t i = 0; i < to.head_dim; ++i) {
      most = hn::Max(most, magnitude_bits(hn::LoadU(d, q + i * kColumns + column)));
    }
    const auto magnitude = hn::BitCast(d, most);
    const auto finite = hn::Lt(most, hn::Set(di, 0x7F800000));
    const auto scale = hn::Max(hn::Div(magnitude, largest), hn::Set(d, 0x1p-64f));
    const auto inverse =
        hn::IfThenElseZero(hn::RebindMask(d, finite), hn::Div(hn::Set(d, 1.0f), scale));
    const auto nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
    hn::StoreU(hn::IfThenElse(hn::RebindMask(d, finite), scale, nan), d, to.q_scale + column);
    for (int64_t i = 0; i < to.pitch; i += 2) {
      const auto first = code_of(hn::LoadU(d, q + i * kColumns + column), inverse);
      const auto second = code_of(hn::LoadU(d, q + (i + 1) * kColumns + column), inverse);
      hn::StoreU(pair_words(first, second), d16, to.q + i * kColumns + 2 * column);
    }
  }
}

// Steps of two elements of depth that are unrolled: sums in a loop would be copied from register to
// register each time.
inline constexpr int64_t kUnrolled = attention_words::kPadding / 2;

// sums[j][w] += the pairs of vector w of `columns` · the pair at rows + j · stride.
HWY_INLINE void add_tile(const int16_t* columns, const int16_t* rows, int64_t stride,
                         IntVector (&sums)[kTile][kWide]) {
  const Words d16;
  IntVector pairs[kWide];
  for (int64_t w = 0; w < kWide; ++w) {
    pairs[w] = hn::BitCast(TileInts(), hn::LoadU(d16, columns + 2 * w * kTileLanes));
  }
  for (int64_t j = 0; j < kTile; ++j) {
    const auto pair = repeat_word(rows + j * stride);
    for (int64_t w = 0; w < kWide; ++w) {
      sums[j][w] = add_word_products(sums[j][w], pairs[w], pair);
    }
  }
}

// scores = q · k, capped or not, + v_log of one group of columns, for whole tiles of positions; the
// largest of each column in `top`.
template <bool kCapped>
inline void score(const attention_words::Queries& queries, const attention_words::Keys& keys,
                  int64_t column, int64_t count, FloatVector (&top)[kWide]) {
  const TileFloats d;
  const TileInts di;
  FloatVector q_scale[kWide];
  for (int64_t w = 0; w < kWide; ++w) {
    q_scale[w] = hn::LoadU(d, queries.q_scale + column + w * kTileLanes);
    if (kCapped) q_scale[w] = hn::Mul(q_scale[w], hn::Set(d, 2 * kLog2E / queries.cap));
    top[w] = hn::Set(d, -kInf);
  }
  for (int64_t p = 0; p < count; p += kTile) {
    IntVector sums[kTile][kWide];
    for (auto& position : sums) {
      for (auto& sum : position) sum = hn::Zero(di);
    }
    const int16_t* key = keys.k + p * keys.pitch;
    const int16_t* query = queries.q + 2 * column;
    for (int64_t i = 0; i < keys.pitch; i += 2 * kUnrolled, query += 2 * kUnrolled * kColumns) {
      HWY_UNROLL(8)
      for (int64_t step = 0; step < kUnrolled; ++step) {
        add_tile(query + 2 * step * kColumns, key + i + 2 * step, keys.pitch, sums);
      }
    }
    for (int64_t j = 0; j < kTile; ++j) {
      const auto k_scale = hn::Set(d, keys.k_scale[p + j]), v_log = hn::Set(d, keys.v_log[p + j]);
      for (int64_t w = 0; w < kWide; ++w) {
        const auto sum = hn::ConvertTo(d, sums[j][w]), scale = hn::Mul(k_scale, q_scale[w]);
        const auto scaled =
            kCapped ? hn::Add(capped_coarse(d, hn::Mul(sum, scale), hn::Set(d, queries.cap)), v_log)
                    : hn::MulAdd(sum, scale, v_log);
        top[w] = hn::Max(scaled, top[w]);
        hn::StoreU(scaled, d, queries.scores + (p + j) * kColumns + column + w * kTileLanes);
      }
    }
  }
}

// Takes the positions that they do not see from one vector of columns; the largest score left.
inline FloatVector mask_scores(const attention_words::Queries& queries, int64_t column,
                               int64_t begin, int64_t count) {
  const TileFloats d;
  const auto first = hn::LoadU(d, queries.first + column);
  const auto last = hn::LoadU(d, queries.last + column);
  const auto hidden = hn::Set(d, -kInf);
  auto top = hidden;
  for (int64_t p = 0; p < count; ++p) {
    const auto position = hn::Set(d, static_cast<float>(begin + p));
    const auto seen = hn::And(hn::Ge(position, first), hn::Lt(position, last));
    float* at = queries.scores + p * kColumns + column;
    const auto left = hn::IfThenElse(seen, hn::LoadU(d, at), hidden);
    top = hn::Max(left, top);
    hn::StoreU(left, d, at);
  }
  return top;
}

// What the output so far and the block's integer sums are multiplied by.
struct Factors {
  FloatVector before, block;
};

// Scores of one vector of columns, the largest of each in `top` → codes of 2^(score − top); maximum
// and sum are brought up to date.
HWY_INLINE Factors weigh(const attention_words::Queries& queries, const attention_words::Keys& keys,
                         int64_t column, int64_t count, FloatVector top) {
  const TileFloats d;
  const Words d16;
  const auto hidden = hn::Set(d, -kInf), one = hn::Set(d, static_cast<float>(kLargestWeight));
  const float* scores = queries.scores + column;
  // A column that has seen only −inf must not subtract −inf from it.
  const auto shift = hn::IfThenZeroElse(hn::Eq(top, hidden), top);
  auto sum0 = hn::Zero(d), sum1 = sum0;
  for (int64_t p = 0; p < count; p += 2) {
    const auto e0 = exp2_coarse(d, hn::Sub(hn::LoadU(d, scores + p * kColumns), shift));
    const auto e1 = exp2_coarse(d, hn::Sub(hn::LoadU(d, scores + (p + 1) * kColumns), shift));
    sum0 = hn::MulAdd(e0, hn::Set(d, keys.v_inverse[p]), sum0);
    sum1 = hn::MulAdd(e1, hn::Set(d, keys.v_inverse[p + 1]), sum1);
    hn::StoreU(pair_words(code_of(e0, one), code_of(e1, one)), d16,
               queries.weights + p * kColumns + 2 * column);
  }
  const auto before = hn::LoadU(d, queries.maximum + column);
  const auto maximum = hn::Max(before, top);
  const auto base = hn::IfThenZeroElse(hn::Eq(maximum, hidden), maximum);
  const auto old_factor = exp2_nonpositive(d, hn::Sub(before, base));
  const auto block_factor = exp2_nonpositive(d, hn::Sub(top, base));
  const auto sum = hn::Mul(hn::LoadU(d, queries.sum + column), old_factor);
  hn::StoreU(hn::MulAdd(hn::Add(sum0, sum1), block_factor, sum), d, queries.sum + column);
  hn::StoreU(maximum, d, queries.maximum + column);
  return {old_factor, hn::Mul(block_factor, hn::Set(d, 1.0f / kLargestWeight))};
}

// output = output · before + weights · v · block, for one group of columns.
inline void accumulate(const attention_words::Queries& queries, const attention_words::Keys& keys,
                       int64_t column, int64_t count, const Factors (&factors)[kWide]) {
  const TileFloats d;
  const TileInts di;
  for (int64_t i = 0; i < keys.pitch; i += kTile) {
    IntVector sums[kTile][kWide];
    for (auto& element : sums) {
      for (auto& sum : element) sum = hn::Zero(di);
    }
    const int16_t* weight = queries.weights + 2 * column;
    for (int64_t p = 0; p < count; p += 2 * kUnrolled, weight += 2 * kUnrolled * kColumns) {
      const int16_t* value = keys.v + p * keys.pitch + 2 * i;
      HWY_UNROLL(8)
      for (int64_t step = 0; step < kUnrolled; ++step) {
        add_tile(weight + 2 * step * kColumns, value + 2 * step * keys.pitch, 2, sums);
      }
    }
    for (int64_t j = 0; j < kTile; ++j) {
      for (int64_t w = 0; w < kWide; ++w) {
        float* at = queries.output + (i + j) * kColumns + column + w * kTileLanes;
        const auto before = hn::Mul(hn::LoadU(d, at), factors[w].before);
        hn::StoreU(hn::MulAdd(hn::ConvertTo(d, sums[j][w]), factors[w].block, before), d, at);
      }
    }
  }
}

void attend(const attention_words::Queries& queries, const attention_words::Keys& keys,
            int64_t begin, int64_t count, bool masked) {
  const int64_t padded = attention_words::padded(count);
  for (int64_t column = 0; column < kColumns; column += kWide * kTileLanes) {
    FloatVector top[kWide];
    if (queries.cap == 0) {
      score<false>(queries, keys, column, padded, top);
    } else {
      score<true>(queries, keys, column, padded, top);
    }
    Factors factors[kWide];
    for (int64_t w = 0; w < kWide; ++w) {
      const int64_t at = column + w * kTileLanes;
      if (masked) top[w] = mask_scores(queries, at, begin, count);
      factors[w] = weigh(queries, keys, at, padded, top[w]);
    }
    accumulate(queries, keys, column, padded, factors);
  }
}

void set_columns(int64_t& count) {
  count = kColumns;
}
