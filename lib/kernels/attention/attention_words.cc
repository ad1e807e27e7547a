#include "lib/kernels/attention/attention_words.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/attention/attention_words.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/math-inl.h"
#include "lib/kernels/weights/native_dot-inl.h"

#undef LUMEN_WORDS_TEXT
#define LUMEN_WORDS_TEXT "lib/kernels/attention/attention_words-inl.h"
#include "lib/kernels/weights/word_targets-inl.h"

#if HWY_ONCE

namespace lumen::kernels::attention_words {

bool available() {
  return uses_vnni() || (uses_avx2() && fast_word_pairs());
}

int64_t columns() {
  int64_t count = 0;
  LUMEN_WORDS_CALL(set_columns, count);
  return count;
}

void encode_keys(const float* rows, int64_t count, const Keys& to) {
  LUMEN_WORDS_CALL(encode_keys, rows, count, to);
}

void encode_values(const float* rows, int64_t count, const Keys& to) {
  LUMEN_WORDS_CALL(encode_values, rows, count, to);
}

void encode_queries(const float* q, const Queries& to) {
  LUMEN_WORDS_CALL(encode_queries, q, to);
}

void attend(const Queries& queries, const Keys& keys, int64_t begin, int64_t count, bool masked) {
  LUMEN_WORDS_CALL(attend, queries, keys, begin, count, masked);
}

}  // namespace lumen::kernels::attention_words
#endif  // HWY_ONCE
