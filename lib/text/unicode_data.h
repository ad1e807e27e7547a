// The generated Unicode tables; see unicode.h for their use and scripts/make_unicode_tables.py for
// their origin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lumen::text::unicode_data {

// Runs of equal value: first code point << 5 | Category, first code point << 8 | combining class.
extern const uint32_t category_runs[], combining_runs[];
extern const size_t category_runs_size, combining_runs_size;

// Runs of first code point << 1 | whether they are: is_punctuation and is_number of unicode.h.
extern const uint32_t punctuation_runs[], number_runs[];
extern const size_t punctuation_runs_size, number_runs_size;

// Runs of first code point << 8 | script, as script() of unicode.h.
extern const uint32_t script_runs[];
extern const size_t script_runs_size;

// Triples (first, last, Category) of the characters that Unicode 14 does not have, in order.
extern const uint32_t young[];
extern const size_t young_size;

// Pairs (code point, offset << 5 | length) into `pool`: full canonical decompositions, and full
// compatibility decompositions where they differ. Hangul syllables are not listed.
extern const uint32_t canonical[], compatibility[], pool[];
extern const size_t canonical_size, compatibility_size;

// Triples (first, second, composite) in order.
extern const uint32_t compositions[];
extern const size_t compositions_size;

// Pairs (code point, lower case).
extern const uint32_t lower[];
extern const size_t lower_size;

}  // namespace lumen::text::unicode_data
