// The formats of quantised weights in panels (panels.h), written once for all instruction sets.
//
// Included inside a namespace and under the target attributes of one instruction set, which defines
// before it a type Isa; no guard, no includes of its own.
//
//   kLanes               rows of a panel in a vector: 16, 8 or 4
//   Codes, Floats        vectors of 4 · kLanes bytes and kLanes float32
//   load, mask, join     bytes from memory; with the bits of `mask` only; of either
//   shift_left<n>, shift_right<n>, shift_right_by(n)  each unsigned 32-bit word; bytes receive bits
//                        of their neighbours
//   upper_nibbles        the upper four bits of each byte, shifted down
//   byte<n, offset>(v, factor<offset>(d))  (byte n of each word − offset) · d, of bytes below 128
//   look_up(table, v)    entry v of sixteen, of bytes below 16
//   halves, signed_bytes kLanes consecutive binary16 or int8 as float
//   mxfp4_scales         of kLanes consecutive exponents (mxfp4_values.h)
//   short_words          kLanes consecutive uint16 as words
//   set, mul
//   add_bytes, store_bytes  a number to each byte, modulo 256; to 4 · kLanes aligned bytes
//   kMostCode            up to which codes that stand further up in their bytes are left there
//   kSignedOffset        what is added to codes of eight bits before they are multiplied
//
// A word of codes is four columns of a row, and each row has its lane.

// A block is kGroups groups of kIndices sub-blocks, the latter unrolled.
// codes<index, quad>(p, part, group): four columns of the rows of `part`, kLanes of the sixteen;
// they are kShift<index> bits further up in their bytes, for as often as bits need not be shifted
// down, the sum of a sub-block can be, once.

struct PanelUnshifted {
  template <int kIndex>
  static constexpr int kShift = 0;
};

LUMEN_PIECE const uint8_t* vector_at(const uint8_t* p, int vector, int part) {
  return p + 64 * vector + 4 * Isa::kLanes * part;
}

// Shifts each word to the left, or to the right if kBits is negative; bytes receive bits of their
// neighbours.
template <int kBits>
LUMEN_PIECE Isa::Codes shift(Isa::Codes v) {
  if constexpr (kBits > 0) return Isa::template shift_left<kBits>(v);
  if constexpr (kBits < 0) return Isa::template shift_right<-kBits>(v);
  return v;
}

// The lower or upper nibble of each byte.
template <int kUpper>
LUMEN_PIECE Isa::Codes nibbles(Isa::Codes v) {
  return kUpper ? Isa::upper_nibbles(v) : Isa::mask(v, 15);
}

struct PanelQ8_0 : PanelUnshifted {
  static constexpr DType kType = DType::kQ8_0;
  static constexpr int kSub = 32, kGroups = 1, kMost = 0, kOffset = Isa::kSignedOffset;
  static constexpr bool kHasMin = false;
  struct Scales {
    Isa::Floats d;
    template <int kIndex>
    LUMEN_PIECE Isa::Floats scale(int) const {
      return d;
    }
  };
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    return {Isa::halves(p + 2 * Isa::kLanes * part)};
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int) {
    return Isa::load(vector_at(p + 32, kQuad, part));
  }
};

struct PanelQ4_0 : PanelUnshifted {
  static constexpr DType kType = DType::kQ4_0;
  static constexpr int kSub = 32, kGroups = 1, kMost = 15, kOffset = 8;
  static constexpr bool kHasMin = false;
  using Scales = PanelQ8_0::Scales;
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    return PanelQ8_0::scales(p, part);
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int) {
    return nibbles<(kQuad >= 4)>(Isa::load(vector_at(p + 32, kQuad % 4, part)));
  }
};

struct PanelQ4_1 : PanelUnshifted {
  static constexpr DType kType = DType::kQ4_1;
  static constexpr int kSub = 32, kGroups = 1, kMost = 15, kOffset = 0;
  static constexpr bool kHasMin = true;
  struct Scales : PanelQ8_0::Scales {
    Isa::Floats m;
    template <int kIndex>
    LUMEN_PIECE Isa::Floats min(int) const {
      return m;
    }
  };
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    return {PanelQ8_0::scales(p, part), Isa::halves(p + 32 + 2 * Isa::kLanes * part)};
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int group) {
    return PanelQ4_0::codes<kIndex, kQuad>(p + 32, part, group);
  }
};

struct PanelQ5_0 : PanelUnshifted {
  static constexpr DType kType = DType::kQ5_0;
  static constexpr int kSub = 32, kGroups = 1, kMost = 31, kOffset = 16;
  static constexpr bool kHasMin = false;
  using Scales = PanelQ8_0::Scales;
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    return PanelQ8_0::scales(p, part);
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int group) {
    const auto low = PanelQ4_0::codes<kIndex, kQuad>(p + 64, part, group);
    // Of each byte bit kQuad, to bit 4.
    const auto bits = shift<4 - kQuad>(Isa::load(vector_at(p + 32, 0, part)));
    return Isa::join(low, Isa::mask(bits, 16));
  }
};

struct PanelQ5_1 : PanelUnshifted {
  static constexpr DType kType = DType::kQ5_1;
  static constexpr int kSub = 32, kGroups = 1, kMost = 31, kOffset = 0;
  static constexpr bool kHasMin = true;
  using Scales = PanelQ4_1::Scales;
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    return PanelQ4_1::scales(p, part);
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int group) {
    return PanelQ5_0::codes<kIndex, kQuad>(p + 32, part, group);
  }
};

LUMEN_PIECE Isa::Factor panel_d(const uint8_t* p, int part) {
  return Isa::template factor<0>(Isa::halves(p + 2 * Isa::kLanes * part));
}

LUMEN_PIECE Isa::Factor panel_negative_dmin(const uint8_t* p, int part) {
  const auto dmin = Isa::halves(p + 32 + 2 * Isa::kLanes * part);
  return Isa::template factor<0>(Isa::mul(dmin, Isa::set(-1.0f)));
}

// How far up codes of at most `most` are kept that stand `up` bits above the bottom: by an even
// number of bits.
constexpr int panel_shift(int most, int up) {
  while (most << up > Isa::kMostCode) up -= 2;
  return up;
}

// Of both formats with pairs of bits: word kWord of a half's 32, of which a stored word holds four.
template <int kWord, int kShift>
LUMEN_PIECE Isa::Codes panel_pairs(const uint8_t* codes, int part, int half) {
  const auto v = Isa::load(vector_at(codes, 8 * half + kWord % 8, part));
  return Isa::mask(shift<kShift - kWord / 8 * 2>(v), 3 << kShift);
}

struct PanelQ2_K {
  static constexpr DType kType = DType::kQ2_K;
  static constexpr int kSub = 16, kGroups = 2, kMost = 3, kOffset = 0;
  static constexpr bool kHasMin = true;
  template <int kIndex>
  static constexpr int kShift = panel_shift(kMost, kIndex / 2 * 2);
  struct Scales {
    Isa::Codes scale_bytes[4], min_bytes[4];
    Isa::Factor d, negative_dmin;
    template <int kIndex>
    LUMEN_PIECE Isa::Floats scale(int group) const {
      return Isa::template byte<kIndex % 4, 0>(scale_bytes[2 * group + kIndex / 4], d);
    }
    template <int kIndex>
    LUMEN_PIECE Isa::Floats min(int group) const {
      return Isa::template byte<kIndex % 4, 0>(min_bytes[2 * group + kIndex / 4], negative_dmin);
    }
  };
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    const auto a = Isa::load(vector_at(p + 64, 0, part));
    const auto b = Isa::load(vector_at(p + 64, 1, part));
    const auto c = Isa::load(vector_at(p + 64, 2, part));
    const auto d = Isa::load(vector_at(p + 64, 3, part));
    return {{nibbles<0>(a), nibbles<0>(b), nibbles<0>(c), nibbles<0>(d)},
            {nibbles<1>(a), nibbles<1>(b), nibbles<1>(c), nibbles<1>(d)},
            panel_d(p, part),
            panel_negative_dmin(p, part)};
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int group) {
    return panel_pairs<4 * kIndex + kQuad, kShift<kIndex>>(p + 320, part, group);
  }
};

struct PanelQ3_K {
  static constexpr DType kType = DType::kQ3_K;
  static constexpr int kSub = 16, kGroups = 1, kMost = 7, kOffset = 4;
  static constexpr bool kHasMin = false;
  template <int kIndex>
  static constexpr int kShift = panel_shift(kMost, kIndex % 8 / 2 * 2);
  struct Scales {
    Isa::Codes bytes[4];  // of every sub-block
    Isa::Factor factor;
    template <int kIndex>
    LUMEN_PIECE Isa::Floats scale(int) const {
      return Isa::template byte<kIndex % 4, 32>(bytes[kIndex / 4], factor);
    }
  };
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    const auto a = Isa::load(vector_at(p + 32, 0, part));
    const auto b = Isa::load(vector_at(p + 32, 1, part));
    const auto c = Isa::load(vector_at(p + 32, 2, part));
    // Pairs of c to bits 4 and 5.
    return {{Isa::join(nibbles<0>(a), Isa::mask(shift<4>(c), 0x30)),
             Isa::join(nibbles<0>(b), Isa::mask(shift<2>(c), 0x30)),
             Isa::join(nibbles<1>(a), Isa::mask(c, 0x30)),
             Isa::join(nibbles<1>(b), Isa::mask(shift<-2>(c), 0x30))},
            Isa::template factor<32>(Isa::halves(p + 2 * Isa::kLanes * part))};
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int) {
    constexpr int kHalf = kIndex / 8, kWord = 4 * (kIndex % 8) + kQuad, kUp = kShift<kIndex>;
    const auto low = panel_pairs<kWord, kUp>(p + 736, part, kHalf);
    // Of each byte bit 4 · kHalf + kWord / 8, above the pair.
    const auto high = Isa::load(vector_at(p + 224, kWord % 8, part));
    constexpr int kFrom = 4 * kHalf + kWord / 8, kTo = kUp + 2;
    return Isa::join(low, Isa::mask(shift<kTo - kFrom>(high), 1 << kTo));
  }
};

// The scales and mins of sub-blocks 0 to 3 and 4 to 7, a byte each, as in unpack_scales_k4.
struct PanelScalesK4 {
  Isa::Codes scale_bytes[2], min_bytes[2];
  Isa::Factor d, negative_dmin;
  template <int kIndex>
  LUMEN_PIECE Isa::Floats scale(int group) const {
    return Isa::template byte<kIndex, 0>(of_group(scale_bytes, group), d);
  }
  template <int kIndex>
  LUMEN_PIECE Isa::Floats min(int group) const {
    return Isa::template byte<kIndex, 0>(of_group(min_bytes, group), negative_dmin);
  }
  // Sub-blocks 2 · group and the next, at the bottom.
  static LUMEN_PIECE Isa::Codes of_group(const Isa::Codes* bytes, int group) {
    return Isa::shift_right_by(bytes[group / 2], 16 * (group % 2));
  }
};

LUMEN_PIECE PanelScalesK4 panel_scales_k4(const uint8_t* p, int part) {
  const auto a = Isa::load(vector_at(p + 64, 0, part));
  const auto b = Isa::load(vector_at(p + 64, 1, part));
  const auto c = Isa::load(vector_at(p + 64, 2, part));
  const auto high_scales = Isa::join(Isa::mask(c, 0x0F), Isa::mask(shift<-2>(a), 0x30));
  const auto high_mins = Isa::join(Isa::mask(shift<-4>(c), 0x0F), Isa::mask(shift<-2>(b), 0x30));
  return {{Isa::mask(a, 0x3F), high_scales},
          {Isa::mask(b, 0x3F), high_mins},
          panel_d(p, part),
          panel_negative_dmin(p, part)};
}

struct PanelQ4_K {
  static constexpr DType kType = DType::kQ4_K;
  static constexpr int kSub = 32, kGroups = 4, kMost = 15, kOffset = 0;
  static constexpr bool kHasMin = true;
  template <int kIndex>
  static constexpr int kShift = panel_shift(kMost, 4 * kIndex) / 4 * 4;
  static LUMEN_PIECE PanelScalesK4 scales(const uint8_t* p, int part) {
    return panel_scales_k4(p, part);
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int group) {
    const auto v = Isa::load(vector_at(p + 256, 8 * group + kQuad, part));
    return kShift<kIndex> == 0 ? nibbles<kIndex>(v) : Isa::mask(v, 0xF0);
  }
};

struct PanelQ5_K : PanelUnshifted {
  static constexpr DType kType = DType::kQ5_K;
  static constexpr int kSub = 32, kGroups = 4, kMost = 31, kOffset = 0;
  static constexpr bool kHasMin = true;
  static LUMEN_PIECE PanelScalesK4 scales(const uint8_t* p, int part) {
    return panel_scales_k4(p, part);
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int group) {
    const auto low = nibbles<kIndex>(Isa::load(vector_at(p + 768, 8 * group + kQuad, part)));
    // Of each byte bit 2 · group + kIndex, to bit 4.
    const auto bits = Isa::shift_right_by(Isa::load(vector_at(p + 256, kQuad, part)), 2 * group);
    return Isa::join(low, Isa::mask(shift<4 - kIndex>(bits), 16));
  }
};

struct PanelQ6_K : PanelUnshifted {
  static constexpr DType kType = DType::kQ6_K;
  static constexpr int kSub = 16, kGroups = 2, kMost = 63, kOffset = 32;
  static constexpr int kGroupBytes = 1664;
  static constexpr bool kHasMin = false;
  struct Scales {
    const uint8_t* bytes;
    Isa::Floats d;
    template <int kIndex>
    LUMEN_PIECE Isa::Floats scale(int group) const {
      return Isa::mul(Isa::signed_bytes(bytes + kGroupBytes * group + 16 * kIndex), d);
    }
  };
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    return {p + 32 + Isa::kLanes * part, Isa::halves(p + 2 * Isa::kLanes * part)};
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int group) {
    constexpr int kWord = 4 * kIndex + kQuad, kPair = kWord / 8;  // of the group's 32 words
    constexpr int kNibbles = kWord % 16, kLow = kNibbles < 8 ? 2 * kNibbles : kNibbles + 8;
    const uint8_t* vectors = p + 160 + kGroupBytes * group;
    const auto low = nibbles<(kWord >= 16)>(Isa::load(vector_at(vectors, kLow, part)));
    // Pair kPair of each byte to bits 4 and 5.
    const auto high = Isa::load(vector_at(vectors, 2 * (kWord % 8) + 1, part));
    return Isa::join(low, Isa::mask(shift<4 - 2 * kPair>(high), 0x30));
  }
};

// Word kQuad of a sub-block's nibbles, which are laid out as Q4_0's from p on, looked up.
template <int kQuad>
LUMEN_PIECE Isa::Codes panel_iq4_codes(const uint8_t* p, int part,
                                       const int8_t* table = kIq4Values) {
  const auto v = Isa::load(vector_at(p, kQuad % 4, part));
  return Isa::look_up(table, nibbles<(kQuad >= 4)>(v));
}

struct PanelIQ4_NL : PanelUnshifted {
  static constexpr DType kType = DType::kIQ4_NL;
  static constexpr int kSub = 32, kGroups = 1, kMost = 0, kOffset = Isa::kSignedOffset;
  static constexpr bool kHasMin = false;
  using Scales = PanelQ8_0::Scales;
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    return PanelQ8_0::scales(p, part);
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int) {
    return panel_iq4_codes<kQuad>(p + 32, part);
  }
};

struct PanelMXFP4 : PanelUnshifted {
  static constexpr DType kType = DType::kMXFP4;
  static constexpr int kSub = 32, kGroups = 1, kMost = 31, kOffset = kMxfp4Offset;
  static constexpr bool kHasMin = false;
  using Scales = PanelQ8_0::Scales;
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    return {Isa::mxfp4_scales(p + Isa::kLanes * part)};
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int) {
    return panel_iq4_codes<kQuad>(p + 16, part, kMxfp4Codes);
  }
};

struct PanelIQ4_XS : PanelUnshifted {
  static constexpr DType kType = DType::kIQ4_XS;
  static constexpr int kSub = 32, kGroups = 1, kMost = 0, kOffset = Isa::kSignedOffset;
  static constexpr bool kHasMin = false;
  struct Scales {
    Isa::Codes bytes[4];  // of sub-blocks i and i + 4 in bytes 0 and 2
    Isa::Factor factor;
    template <int kIndex>
    LUMEN_PIECE Isa::Floats scale(int) const {
      return Isa::template byte<kIndex / 4 * 2, 32>(bytes[kIndex % 4], factor);
    }
  };
  static LUMEN_PIECE Scales scales(const uint8_t* p, int part) {
    const auto low = Isa::load(vector_at(p + 64, 0, part)), next = shift<-8>(low);
    // Pairs 0 to 3 in byte 0, 4 to 7 in byte 2.
    const auto packed = Isa::short_words(p + 32 + 2 * Isa::kLanes * part);
    const auto high = Isa::join(packed, shift<8>(packed));
    return {{Isa::join(nibbles<0>(low), Isa::mask(shift<4>(high), 0x30)),
             Isa::join(nibbles<1>(low), Isa::mask(shift<2>(high), 0x30)),
             Isa::join(nibbles<0>(next), Isa::mask(high, 0x30)),
             Isa::join(nibbles<1>(next), Isa::mask(shift<-2>(high), 0x30))},
            Isa::template factor<32>(Isa::halves(p + 2 * Isa::kLanes * part))};
  }
  template <int kIndex, int kQuad>
  static LUMEN_PIECE Isa::Codes codes(const uint8_t* p, int part, int) {
    return panel_iq4_codes<kQuad>(p + 128 + 256 * kIndex, part);
  }
};

template <class Format>
inline constexpr int kIndices = info(Format::kType).block_elements / Format::kSub / Format::kGroups;

// Fetches what lies ahead of a block, its share with every sub-block of every part: all of a large
// block at once would be more lines than the core can wait for. The first of kParts parts reads all
// lines of a block, the others find them in L1; what the first part reads last has been under way
// for so much shorter, which is made up for by the distance.
template <class Format, int kRows, int kIndex>
LUMEN_PIECE void fetch_ahead(const uint8_t* block, int part, int group) {
  constexpr int kParts = kPanelRows / Isa::kLanes;
  constexpr int kBytes = kPanelRows * info(Format::kType).block_bytes;
  constexpr int kShare = kBytes / (kParts * Format::kGroups), kLines = (kShare + 63) / 64;
  constexpr int kFirst = kLines * kIndex / kIndices<Format>,
                kEnd = kLines * (kIndex + 1) / kIndices<Format>;
  block += kBytes / kParts * (kParts - 1) + (part * Format::kGroups + group) * kShare;
  for (int line = kFirst; line < kEnd; ++line) fetch_panel_ahead<kRows>(block + 64 * line);
}

// Stores the codes of a sub-block, `added` to each modulo 256: [kSub / 4][16][4] in all parts.
template <class Format, int kIndex, int kQuad>
LUMEN_PIECE void expand_quads(const uint8_t* p, int part, int group, int added, uint8_t* codes) {
  if constexpr (kQuad < Format::kSub / 4) {
    constexpr int kShift = Format::template kShift<kIndex>;
    const auto v = shift<-kShift>(Format::template codes<kIndex, kQuad>(p, part, group));
    Isa::store_bytes(Isa::add_bytes(v, added), codes + 64 * kQuad + 4 * Isa::kLanes * part);
    expand_quads<Format, kIndex, kQuad + 1>(p, part, group, added, codes);
  }
}

// Calls Call<Format>::run(args...) for the format of `dtype`.
template <template <class> class Call, class... Args>
void for_format(DType dtype, const Args&... args) {
  switch (dtype) {
    case DType::kQ8_0:
      return Call<PanelQ8_0>::run(args...);
    case DType::kQ4_0:
      return Call<PanelQ4_0>::run(args...);
    case DType::kQ4_1:
      return Call<PanelQ4_1>::run(args...);
    case DType::kQ5_0:
      return Call<PanelQ5_0>::run(args...);
    case DType::kQ5_1:
      return Call<PanelQ5_1>::run(args...);
    case DType::kQ2_K:
      return Call<PanelQ2_K>::run(args...);
    case DType::kQ3_K:
      return Call<PanelQ3_K>::run(args...);
    case DType::kQ4_K:
      return Call<PanelQ4_K>::run(args...);
    case DType::kQ5_K:
      return Call<PanelQ5_K>::run(args...);
    case DType::kQ6_K:
      return Call<PanelQ6_K>::run(args...);
    case DType::kIQ4_NL:
      return Call<PanelIQ4_NL>::run(args...);
    case DType::kIQ4_XS:
      return Call<PanelIQ4_XS>::run(args...);
    case DType::kMXFP4:
      return Call<PanelMXFP4>::run(args...);
    default:
      LUMEN_CHECK(!"a quantised weight in panels");
  }
}
