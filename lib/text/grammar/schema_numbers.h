// Decimal numbers in a range, digit by digit.
#pragma once

#include <cstdint>
#include <string>

#include "lib/text/grammar/rules.h"

namespace lumen::text::grammar {

// Digits of a number that has no bound, before the point and after it: enough for any double.
inline constexpr uint32_t kMostDigits = 16;

// What minimum and maximum of a schema come to.
struct IntegerRange {
  int64_t least = -9'999'999'999'999'999, most = 9'999'999'999'999'999;
};

// A bound of numbers that need not be whole, which is itself allowed or not: sign, digits before
// the point, and those after it without zeros at the end.
struct DecimalBound {
  bool is_negative = false;  // not of 0
  uint64_t whole = 0;
  std::string fraction = {};
  bool is_open = false;
};

// What multipleOf comes to: numerator / 10^decimals, neither with a factor of 10 in common.
struct NumberStep {
  uint64_t numerator = 1;
  uint32_t decimals = kMostDigits;
};

// The integers of `range`, which is not empty, without leading zeros; only multiples of `divisor`.
// If there are none, the expression matches no text.
ExpressionId integers(RuleSet& rules, const IntegerRange& range, uint64_t divisor = 1);

// Numbers from `least` to `most`, without exponent. Multiples of `step`, whose numerator divides
// 10^decimals. If there are none, the expression matches no text.
ExpressionId decimals(RuleSet& rules, const DecimalBound& least, const DecimalBound& most,
                      const NumberStep& step = {});

}  // namespace lumen::text::grammar
