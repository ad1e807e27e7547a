#include "lib/text/grammar/schema_numbers.h"

#include <algorithm>

#include "lib/base/strings.h"

namespace lumen::text::grammar {
namespace {

// -most without overflow for the least of all integers.
uint64_t magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

class Digits {
 public:
  explicit Digits(RuleSet& rules) : rules_(rules) {}

  // Whole numbers [least, most] without a sign.
  ExpressionId range(uint64_t least, uint64_t most) {
    std::vector<ExpressionId> lengths;
    std::string low = str(least);
    const std::string high = str(most);
    while (low.size() < high.size()) {
      lengths.push_back(same_length(low, std::string(low.size(), '9')));
      low = "1" + std::string(low.size(), '0');
    }
    lengths.push_back(same_length(low, high));
    return rules_.choice(std::move(lengths));
  }

 private:
  ExpressionId digit(char first, char last) {
    return rules_.chars({{static_cast<uint8_t>(first), static_cast<uint8_t>(last)}});
  }
  ExpressionId any(size_t count) {
    const auto times = static_cast<uint32_t>(count);
    return rules_.repeat(digit('0', '9'), times, times);
  }

  // Of as many digits, not below `low` and not above `high`.
  ExpressionId same_length(std::string_view low, std::string_view high) {
    const auto differ = std::mismatch(low.begin(), low.end(), high.begin()).first - low.begin();
    const auto common = static_cast<size_t>(differ);
    const ExpressionId prefix = rules_.literal(low.substr(0, common));
    if (common == low.size()) return prefix;
    low.remove_prefix(common);
    high.remove_prefix(common);
    const size_t rest = low.size() - 1;
    std::vector<ExpressionId> ways;
    char first = low[0], last = high[0];
    if (low.find_first_not_of('0', 1) != low.npos) {
      ways.push_back(rules_.sequence(
          {digit(first, first), same_length(low.substr(1), std::string(rest, '9'))}));
      ++first;
    }
    if (high.find_first_not_of('9', 1) != high.npos) {
      ways.push_back(rules_.sequence(
          {digit(last, last), same_length(std::string(rest, '0'), high.substr(1))}));
      --last;
    }
    if (first <= last) ways.push_back(rules_.sequence({digit(first, last), any(rest)}));
    return rules_.sequence({prefix, rules_.choice(std::move(ways))});
  }

  RuleSet& rules_;
};

}  // namespace

ExpressionId integers(RuleSet& rules, const IntegerRange& range) {
  Digits digits(rules);
  std::vector<ExpressionId> signs;
  if (range.most >= 0) {
    signs.push_back(digits.range(static_cast<uint64_t>(std::max<int64_t>(range.least, 0)),
                                 static_cast<uint64_t>(range.most)));
  }
  if (range.least < 0) {
    const uint64_t least = range.most < 0 ? magnitude(range.most) : 1;
    signs.push_back(
        rules.sequence({rules.literal("-"), digits.range(least, magnitude(range.least))}));
  }
  return rules.choice(std::move(signs));
}

ExpressionId decimals(RuleSet& rules, const IntegerRange& range, bool above, bool below) {
  Digits digits(rules);
  const ExpressionId digit = rules.chars({{'0', '9'}}), zero = rules.literal("0");
  const auto fraction = [&](ExpressionId some) {
    return rules.sequence({rules.literal("."), some});
  };
  const ExpressionId any = rules.optional(fraction(rules.repeat(digit, 1, kMostDigits)));
  const ExpressionId none = rules.optional(fraction(rules.repeat(zero, 1, kMostDigits)));
  const ExpressionId some =
      fraction(rules.sequence({rules.repeat(digit, 0, kMostDigits - 1), rules.chars({{'1', '9'}}),
                               rules.repeat(digit, 0, kMostDigits)}));
  std::vector<ExpressionId> ways;
  // Numbers of one sign whose size is in [least, most], open at an end with the flags.
  const auto add = [&](std::string_view sign, uint64_t least, uint64_t most, bool over,
                       bool under) {
    const auto way = [&](ExpressionId whole, ExpressionId rest) {
      ways.push_back(rules.sequence({rules.literal(sign), whole, rest}));
    };
    if (least < most && over) way(digits.range(least, least), some);
    const uint64_t first = least + (over ? 1 : 0);
    if (first < most) way(digits.range(first, most - 1), any);
    if (!under && (least < most || !over)) way(digits.range(most, most), none);
  };
  if (range.most >= 0 && !(range.most == 0 && below)) {
    const bool over = above && range.least >= 0;
    add("", static_cast<uint64_t>(std::max<int64_t>(range.least, 0)),
        static_cast<uint64_t>(range.most), over, below);
  }
  if (range.least < 0) {
    // Without -0, which is 0.
    const bool reaches_zero = range.most >= 0;
    add("-", reaches_zero ? 0 : magnitude(range.most), magnitude(range.least),
        reaches_zero || below, above);
  }
  return rules.choice(std::move(ways));
}

}  // namespace lumen::text::grammar
