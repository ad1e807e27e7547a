#include "lib/text/grammar/schema_numbers.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/strings.h"

namespace lumen::text::grammar {
namespace {

// -most without overflow for the least of all integers.
uint64_t magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

// Of all numbers those that are multiples of `divisor`. What digits have to add to the ones before
// them is a residue modulo it.
class Digits {
 public:
  explicit Digits(RuleSet& rules, uint64_t divisor = 1) : rules_(rules), divisor_(divisor) {}

  // Whole numbers [least, most] without a sign.
  ExpressionId range(uint64_t least, uint64_t most) {
    std::vector<ExpressionId> lengths;
    std::string low = str(least);
    const std::string high = str(most);
    while (low.size() < high.size()) {
      lengths.push_back(same_length(low, std::string(low.size(), '9'), 0));
      low = "1" + std::string(low.size(), '0');
    }
    lengths.push_back(same_length(low, high, 0));
    return rules_.choice(std::move(lengths));
  }

 private:
  // Digits of this value before `count` others leave them what of `residue`?
  uint64_t left(uint64_t residue, uint64_t value, size_t count) const {
    uint64_t weight = value % divisor_;
    for (size_t i = 0; i < count; ++i) weight = weight * 10 % divisor_;
    return (residue + divisor_ - weight) % divisor_;
  }

  // One digit of [first, last], then any `count`.
  ExpressionId then_any(char first, char last, size_t count, uint64_t residue) {
    std::map<uint64_t, CharSet> digits;  // by what they leave
    for (char c = first; c <= last; ++c) {
      const auto code = static_cast<uint8_t>(c);
      digits[left(residue, static_cast<uint64_t>(c - '0'), count)].push_back({code, code});
    }
    std::vector<ExpressionId> ways;
    for (auto& [rest, set] : digits) {
      ways.push_back(rules_.sequence({rules_.chars(std::move(set)), any(count, rest)}));
    }
    return rules_.choice(std::move(ways));
  }

  ExpressionId any(size_t count, uint64_t residue) {
    if (divisor_ == 1) {
      const auto times = static_cast<uint32_t>(count);
      return rules_.repeat(rules_.chars({{'0', '9'}}), times, times);
    }
    if (count == 0) return residue == 0 ? rules_.literal("") : rules_.choice({});
    const auto [found, is_new] = any_.try_emplace({count, residue}, 0);
    if (is_new) {
      found->second = rules_.named("multiple", then_any('0', '9', count - 1, residue));
    }
    return any_.at({count, residue});
  }

  // Of as many digits, not below `low` and not above `high`.
  ExpressionId same_length(std::string_view low, std::string_view high, uint64_t residue) {
    const auto differ = std::mismatch(low.begin(), low.end(), high.begin()).first - low.begin();
    const auto common = static_cast<size_t>(differ);
    const ExpressionId prefix = rules_.literal(low.substr(0, common));
    for (size_t i = 0; i < common; ++i) {
      residue = left(residue, static_cast<uint64_t>(low[i] - '0'), low.size() - i - 1);
    }
    if (common == low.size()) return residue == 0 ? prefix : rules_.choice({});
    low.remove_prefix(common);
    high.remove_prefix(common);
    const size_t rest = low.size() - 1;
    std::vector<ExpressionId> ways;
    char first = low[0], last = high[0];
    // The edges, where the other digits are not free.
    const auto add_edge = [&](char digit, std::string_view from, std::string_view to) {
      const uint64_t others = left(residue, static_cast<uint64_t>(digit - '0'), rest);
      ways.push_back(rules_.sequence({rules_.literal({&digit, 1}), same_length(from, to, others)}));
    };
    if (low.find_first_not_of('0', 1) != low.npos) {
      add_edge(first++, low.substr(1), std::string(rest, '9'));
    }
    if (high.find_first_not_of('9', 1) != high.npos) {
      add_edge(last--, std::string(rest, '0'), high.substr(1));
    }
    if (first <= last) ways.push_back(then_any(first, last, rest, residue));
    return rules_.sequence({prefix, rules_.choice(std::move(ways))});
  }

  RuleSet& rules_;
  const uint64_t divisor_;
  std::map<std::pair<size_t, uint64_t>, ExpressionId> any_;  // by count and residue
};

// What follows the digits before the point of numbers in a range: nothing, or the point and digits.
class Fractions {
 public:
  Fractions(RuleSet& rules, const NumberStep& step) : rules_(rules), step_(step) {}

  // After digits that are those of `low` or of `high` (null: neither, so that there is no bound).
  ExpressionId between(const DecimalBound* low, const DecimalBound* high) {
    std::vector<ExpressionId> ways;
    if (may_end(0, low, high)) ways.push_back(rules_.literal(""));
    const ExpressionId digits = step_.numerator == 1 ? more(0, low, high) : listed(low, high);
    ways.push_back(rules_.sequence({rules_.literal("."), digits}));
    return rules_.choice(std::move(ways));
  }

 private:
  static char digit_of(const DecimalBound& bound, size_t i) {
    return i < bound.fraction.size() ? bound.fraction[i] : '0';
  }

  // Whether the first `count` digits of the bounds are a fraction between them.
  static bool may_end(size_t count, const DecimalBound* low, const DecimalBound* high) {
    if (low && (low->is_open || low->fraction.size() > count)) return false;
    return !high || !high->is_open || high->fraction.size() > count;
  }

  ExpressionId digit(char first, char last) {
    return rules_.chars({{static_cast<uint8_t>(first), static_cast<uint8_t>(last)}});
  }

  // One digit or more after `count` that are those of the bounds.
  ExpressionId more(uint32_t count, const DecimalBound* low, const DecimalBound* high) {
    if (count >= step_.decimals) return rules_.choice({});
    if (!low && !high) return rules_.repeat(digit('0', '9'), 1, step_.decimals - count);
    std::vector<ExpressionId> ways;
    const auto add = [&](char first, char last, const DecimalBound* from, const DecimalBound* to) {
      if (first > last) return;
      const ExpressionId others = more(count + 1, from, to), here = digit(first, last);
      if (may_end(count + 1, from, to)) ways.push_back(here);
      ways.push_back(rules_.sequence({here, others}));
    };
    char first = low ? digit_of(*low, count) : '0', last = high ? digit_of(*high, count) : '9';
    if (low && high && first == last) {
      add(first, last, low, high);
    } else {
      if (low && first <= last) add(first, first, low, nullptr), ++first;
      if (high && first <= last) add(last, last, nullptr, high), --last;
      add(first, last, nullptr, nullptr);
    }
    return rules_.choice(std::move(ways));
  }

  // The fractions that are multiples of the step, one by one.
  ExpressionId listed(const DecimalBound* low, const DecimalBound* high) {
    uint64_t one = 1;
    for (uint32_t i = 0; i < step_.decimals; ++i) one *= 10;
    std::vector<ExpressionId> ways;
    for (uint64_t value = 0; value < one; value += step_.numerator) {
      std::string text = str(value);
      text.insert(0, step_.decimals - text.size(), '0');
      while (text.ends_with('0')) text.pop_back();
      // Digits are compared as texts are: without zeros at the end the shorter one is less.
      const bool above = !low || text > low->fraction || (text == low->fraction && !low->is_open);
      const bool below =
          !high || text < high->fraction || (text == high->fraction && !high->is_open);
      if (!above || !below) continue;
      const auto zeros = static_cast<uint32_t>(step_.decimals - text.size());
      ways.push_back(rules_.sequence(
          {rules_.literal(text), rules_.repeat(digit('0', '0'), text.empty() ? 1 : 0, zeros)}));
    }
    return rules_.choice(std::move(ways));
  }

  RuleSet& rules_;
  const NumberStep step_;
};

}  // namespace

ExpressionId integers(RuleSet& rules, const IntegerRange& range, uint64_t divisor) {
  Digits digits(rules, divisor);
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

ExpressionId decimals(RuleSet& rules, const DecimalBound& least, const DecimalBound& most,
                      const NumberStep& step) {
  Digits digits(rules);
  Fractions fractions(rules, step);
  std::vector<ExpressionId> ways;
  // Numbers of one sign whose size is from `low` to `high`.
  const auto add = [&](std::string_view sign, const DecimalBound& low, const DecimalBound& high) {
    const auto way = [&](ExpressionId whole, ExpressionId fraction) {
      ways.push_back(rules.sequence({rules.literal(sign), whole, fraction}));
    };
    if (low.whole == high.whole) {
      return way(digits.range(low.whole, low.whole), fractions.between(&low, &high));
    }
    const bool is_whole = low.fraction.empty() && !low.is_open;
    if (!is_whole) way(digits.range(low.whole, low.whole), fractions.between(&low, nullptr));
    const uint64_t first = low.whole + (is_whole ? 0 : 1);
    if (first < high.whole) {
      way(digits.range(first, high.whole - 1), fractions.between(nullptr, nullptr));
    }
    way(digits.range(high.whole, high.whole), fractions.between(nullptr, &high));
  };
  if (!most.is_negative) add("", least.is_negative ? DecimalBound() : least, most);
  // Without -0, which is 0.
  if (least.is_negative) {
    add("-", most.is_negative ? most : DecimalBound{.is_open = true}, least);
  }
  return rules.choice(std::move(ways));
}

}  // namespace lumen::text::grammar
