#include "lib/text/grammar/json_values.h"

#include <algorithm>
#include <bit>

#include "lib/base/strings.h"
#include "lib/text/grammar/schema_numbers.h"

namespace lumen::text::grammar {
namespace {

// Characters that stand for themselves in a string.
const CharSet kPlain = {{' ', '!'}, {'#', '['}, {']', '~'}, {0x80, 0x10FFFF}};

// Other names differ from those of the schema in these first bytes, so that recursion is bounded.
constexpr size_t kComparedBytes = 256;

}  // namespace

JsonValues::JsonValues(RuleSet& rules) : rules_(rules) {
  const ExpressionId indentation = rules_.repeat(rules_.chars({{' ', ' '}, {'\t', '\t'}}), 0, 20);
  gap_ =
      rules_.named("space", rules_.choice({rules_.literal(""), rules_.literal(" "),
                                           rules_.sequence({rules_.literal("\n"), indentation})}));
}

ExpressionId JsonValues::boolean() {
  return rules_.choice({rules_.literal("true"), rules_.literal("false")});
}

ExpressionId JsonValues::character() {
  if (character_) return rules_.reference(*character_);
  const auto hex = [&](uint32_t count) {
    return rules_.repeat(rules_.chars({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}), count, count);
  };
  const CharSet d = {{'d', 'd'}, {'D', 'D'}};
  const ExpressionId plain = rules_.chars(kPlain);
  const ExpressionId shortened = rules_.chars({{'"', '"'},
                                               {'\\', '\\'},
                                               {'/', '/'},
                                               {'b', 'b'},
                                               {'f', 'f'},
                                               {'n', 'n'},
                                               {'r', 'r'},
                                               {'t', 't'}});
  const ExpressionId low = rules_.sequence({rules_.chars(d), rules_.chars({{'0', '7'}}), hex(2)});
  const ExpressionId other = rules_.sequence(
      {rules_.chars({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}), hex(3)});
  const ExpressionId pair = rules_.sequence(
      {rules_.chars(d), rules_.chars({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hex(2),
       rules_.literal("\\u"), rules_.chars(d), rules_.chars({{'c', 'f'}, {'C', 'F'}}), hex(2)});
  const ExpressionId code =
      rules_.sequence({rules_.literal("u"), rules_.choice({low, other, pair})});
  const ExpressionId escape =
      rules_.sequence({rules_.literal("\\"), rules_.choice({shortened, code})});
  character_ = rules_.declare("character");
  rules_.define(*character_, rules_.choice({plain, escape}));
  return rules_.reference(*character_);
}

ExpressionId JsonValues::quoted_text(ExpressionId content) {
  return rules_.sequence({rules_.literal("\""), content, rules_.literal("\"")});
}

ExpressionId JsonValues::any_string() {
  if (!string_) {
    const ExpressionId content = rules_.repeat(character(), 0, kUnbounded);
    string_ = rules_.declare("string");
    rules_.define(*string_, quoted_text(content));
  }
  return rules_.reference(*string_);
}

// `[0-9]` so many times.
ExpressionId JsonValues::digits(uint32_t least, uint32_t most) {
  return rules_.repeat(rules_.chars({{'0', '9'}}), least, most);
}

ExpressionId JsonValues::any_number(bool is_integer) {
  std::optional<RuleId>& rule = is_integer ? integer_ : number_;
  if (rule) return rules_.reference(*rule);
  const ExpressionId sign = rules_.optional(rules_.literal("-"));
  const ExpressionId whole =
      rules_.choice({rules_.literal("0"),
                     rules_.sequence({rules_.chars({{'1', '9'}}), digits(0, kMostDigits - 1)})});
  std::vector<ExpressionId> parts = {sign, whole};
  if (!is_integer) {
    parts.push_back(
        rules_.optional(rules_.sequence({rules_.literal("."), digits(1, kMostDigits)})));
    parts.push_back(rules_.optional(
        rules_.sequence({rules_.chars({{'e', 'e'}, {'E', 'E'}}),
                         rules_.optional(rules_.chars({{'+', '+'}, {'-', '-'}})), digits(1, 2)})));
  }
  rule = rules_.declare(is_integer ? "integer" : "number");
  rules_.define(*rule, rules_.sequence(std::move(parts)));
  return rules_.reference(*rule);
}

ExpressionId JsonValues::bracketed(char open, ExpressionId elements, char close) {
  return rules_.sequence(
      {rules_.literal({&open, 1}), gap_, elements, gap_, rules_.literal({&close, 1})});
}

ExpressionId JsonValues::after_comma(ExpressionId element) {
  return rules_.sequence({rules_.literal(","), gap_, element});
}

// A rule for each set of values that may have been before.
ExpressionId JsonValues::different(const std::vector<ExpressionId>& values, uint32_t least,
                                   uint32_t most) {
  const uint32_t all = (1u << values.size()) - 1;
  std::vector<ExpressionId> after(all + 1);  // by set; a larger one has a larger number
  for (uint32_t taken = all + 1; taken-- > 0;) {
    const auto count = static_cast<uint32_t>(std::popcount(taken));
    std::vector<ExpressionId> ways;
    if (count >= least) ways.push_back(rules_.literal(""));
    for (uint32_t i = 0; count < most && i < values.size(); ++i) {
      if ((taken >> i & 1) != 0) continue;
      const ExpressionId value = count == 0 ? values[i] : after_comma(values[i]);
      ways.push_back(rules_.sequence({value, after[taken | 1u << i]}));
    }
    after[taken] = rules_.named("items", rules_.choice(std::move(ways)));
  }
  return after[0];
}

// A rule for each number of elements and of those counted that may have been before; what is beyond
// a limit that is none is like the limit.
ExpressionId JsonValues::counted_elements(ExpressionId one, ExpressionId other,
                                          std::pair<uint32_t, uint32_t> length,
                                          std::pair<uint32_t, uint32_t> count) {
  const bool is_long = length.second == kUnbounded, is_many = count.second == kUnbounded;
  const uint32_t last = is_long ? std::max(length.first, 1u) : length.second;
  const uint32_t most = is_many ? count.first : count.second;
  // With one more of either: the expressions for this number of elements, and for one more.
  std::vector<ExpressionId> after(most + 1), here(most + 1);
  for (uint32_t n = last + 1; n-- > 0;) {
    const auto with_comma = [&](ExpressionId element) {
      return n == 0 ? element : after_comma(element);
    };
    for (uint32_t c = most + 1; c-- > 0;) {
      const bool may_go_on = n < last || is_long;
      std::vector<ExpressionId> ways;
      if (n >= length.first && c >= count.first) ways.push_back(rules_.literal(""));
      const std::vector<ExpressionId>& next = n < last ? after : here;
      if (may_go_on && c < most) ways.push_back(rules_.sequence({with_comma(one), next[c + 1]}));
      if (may_go_on && n < last) ways.push_back(rules_.sequence({with_comma(other), next[c]}));
      ExpressionId rest = rules_.choice(std::move(ways));
      if (may_go_on && n == last) {
        rest = rules_.sequence({rules_.repeat(after_comma(other), 0, kUnbounded), rest});
      }
      here[c] = rules_.named("items", rest);
    }
    after = here;
  }
  return after[0];
}

ExpressionId JsonValues::shallow(ExpressionId expression, const std::string& name) {
  constexpr uint32_t kDeep = 64;
  return rules_[expression].depth < kDeep ? expression : rules_.named(name, expression);
}

ExpressionId JsonValues::member(ExpressionId name, ExpressionId content) {
  return rules_.sequence(
      {name, rules_.literal(":"), rules_.optional(rules_.literal(" ")), content});
}

ExpressionId JsonValues::other_name(std::span<const std::string> names) {
  if (names.empty()) return any_string();
  return quoted_text(differing(names, 0));
}

// Texts that are none of `names`, which are sorted and agree in their first `at` bytes.
ExpressionId JsonValues::differing(std::span<const std::string> names, size_t at) {
  const ExpressionId rest = rules_.repeat(rules_.chars(kPlain), 0, kUnbounded);
  std::vector<ExpressionId> ways;
  CharSet taken = complement(kPlain);
  const bool may_end = names[0].size() > at;
  if (may_end) ways.push_back(rules_.literal(""));
  for (size_t i = may_end ? 0 : 1; i < names.size();) {
    size_t next = at;
    const uint32_t c = next_code_point(names[i], next);
    size_t end = i + 1;
    while (end < names.size() && names[end].compare(at, next - at, names[i], at, next - at) == 0) {
      ++end;
    }
    taken.push_back({c, c});
    if (next < kComparedBytes) {
      const ExpressionId deeper = shallow(differing(names.subspan(i, end - i), next), "name");
      ways.push_back(rules_.sequence({rules_.chars({{c, c}}), deeper}));
    }
    i = end;
  }
  ways.push_back(rules_.sequence({rules_.chars(complement(taken)), rest}));
  return rules_.choice(std::move(ways));
}

ExpressionId JsonValues::members(const std::vector<Property>& all,
                                 std::optional<ExpressionId> other, bool may_be_none,
                                 const std::string& name) {
  const ExpressionId others =
      other ? rules_.repeat(after_comma(*other), 0, kUnbounded) : rules_.literal("");
  const auto later = [&](const Property& p) {
    const ExpressionId here = after_comma(p.member);
    return p.is_required ? here : rules_.optional(here);
  };
  // Whichever comes first has no comma: one of the optional ones, or the first required one.
  const auto first_required = static_cast<size_t>(
      std::find_if(all.begin(), all.end(), [](const Property& p) { return p.is_required; }) -
      all.begin());
  std::vector<ExpressionId> parts;
  for (size_t i = first_required + 1; i < all.size(); ++i) parts.push_back(later(all[i]));
  parts.push_back(others);
  ExpressionId rest = rules_.sequence(std::move(parts));
  std::vector<ExpressionId> ways;
  if (first_required < all.size()) {
    if (first_required > 0) rest = rules_.named(name, rest);
    ways.push_back(rules_.sequence({all[first_required].member, rest}));
    rest = rules_.sequence({later(all[first_required]), rest});
  } else {
    if (may_be_none) ways.push_back(rules_.literal(""));
    if (other) ways.push_back(rules_.sequence({*other, others}));
  }
  for (size_t i = first_required; i-- > 0;) {
    rest = rules_.named(name, rest);
    ways.push_back(rules_.sequence({all[i].member, rest}));
    rest = rules_.sequence({later(all[i]), rest});
  }
  return rules_.choice(std::move(ways));
}

ExpressionId JsonValues::any() {
  if (any_) return rules_.reference(*any_);
  any_ = rules_.declare("value");
  const ExpressionId self = rules_.reference(*any_);
  const ExpressionId pair = member(any_string(), self);
  const auto list = [&](ExpressionId element) {
    return rules_.optional(
        rules_.sequence({element, rules_.repeat(after_comma(element), 0, kUnbounded)}));
  };
  rules_.define(*any_,
                rules_.choice({rules_.named("object", bracketed('{', list(pair), '}')),
                               rules_.named("array", bracketed('[', list(self), ']')), any_string(),
                               any_number(false), boolean(), rules_.literal("null")}));
  return rules_.reference(*any_);
}

}  // namespace lumen::text::grammar
