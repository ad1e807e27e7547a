// Case mappings, and properties beyond general categories, as Python's str methods see them;
// generated.
#pragma once

#include <cstdint>
#include <span>

namespace lumen::text::jinja {

struct Range {
  uint32_t first, last;  // inclusive
};

// Code points first, first + stride, …, last map to themselves plus `delta`.
struct CaseRun {
  uint32_t first, last;
  uint32_t stride;
  int32_t delta;
};

// A code point that maps to two or three.
struct CaseSequence {
  uint32_t from;
  uint32_t to[3];  // padded with 0
};

struct CaseTable {
  std::span<const CaseRun> runs;
  std::span<const CaseSequence> sequences;
};

// All sorted by code point.
struct PropertyTables {
  std::span<const Range> digit, numeric, lowercase, uppercase, cased, case_ignorable;
};
struct CaseTables {
  CaseTable upper, title, fold;
};

extern const PropertyTables kProperties;
extern const CaseTables kCases;

}  // namespace lumen::text::jinja
