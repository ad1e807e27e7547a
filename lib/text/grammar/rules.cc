#include "lib/text/grammar/rules.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"

namespace lumen::text::grammar {
namespace {

constexpr uint32_t kLastCharacter = 0x10FFFF;
constexpr CharRange kSurrogates = {0xD800, 0xDFFF};

}  // namespace

CharSet normalized(CharSet set) {
  CharSet cut;
  for (const CharRange& range : set) {
    if (range.first < kSurrogates.first) {
      cut.push_back({range.first, std::min(range.last, kSurrogates.first - 1)});
    }
    if (range.last > kSurrogates.last) {
      cut.push_back({std::max(range.first, kSurrogates.last + 1), range.last});
    }
  }
  std::sort(cut.begin(), cut.end(),
            [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
  CharSet merged;
  for (const CharRange& range : cut) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

CharSet complement(const CharSet& set) {
  CharSet rest;
  uint32_t next = 0;
  for (const CharRange& range : normalized(set)) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) rest.push_back({next, kLastCharacter});
  return normalized(std::move(rest));
}

ExpressionId RuleSet::add(Expression expression) {
  expression.depth = 1;
  for (const ExpressionId part : expression.parts) {
    expression.depth = std::max(expression.depth, expressions_[part].depth + 1);
  }
  if (expression.depth > limits::kGrammarDepth) {
    fail(ErrorKind::kMalformed, "groups are nested more than ", limits::kGrammarDepth,
         " deep; make some of them rules of their own");
  }
  if (expressions_.size() >= limits::kGrammarPositions) {
    fail(ErrorKind::kMalformed, "the grammar has more than ", limits::kGrammarPositions,
         " parts, the limit");
  }
  expressions_.push_back(std::move(expression));
  return static_cast<ExpressionId>(expressions_.size() - 1);
}

ExpressionId RuleSet::literal(std::string_view bytes) {
  return add({.kind = ExpressionKind::kLiteral, .depth = 1, .literal = std::string(bytes)});
}

ExpressionId RuleSet::chars(CharSet set) {
  return add({.kind = ExpressionKind::kChars, .depth = 1, .chars = normalized(std::move(set))});
}

ExpressionId RuleSet::sequence(std::vector<ExpressionId> parts) {
  if (parts.size() == 1) return parts[0];
  return add({.kind = ExpressionKind::kSequence, .depth = 1, .parts = std::move(parts)});
}

ExpressionId RuleSet::choice(std::vector<ExpressionId> parts) {
  if (parts.size() == 1) return parts[0];
  return add({.kind = ExpressionKind::kChoice, .depth = 1, .parts = std::move(parts)});
}

ExpressionId RuleSet::repeat(ExpressionId part, uint32_t least, uint32_t most) {
  return add(
      {.kind = ExpressionKind::kRepeat, .depth = 1, .parts = {part}, .least = least, .most = most});
}

ExpressionId RuleSet::reference(RuleId rule) {
  return add({.kind = ExpressionKind::kReference, .depth = 1, .rule = rule});
}

RuleId RuleSet::declare(std::string name) {
  if (rules_.size() >= limits::kGrammarRules) {
    fail(ErrorKind::kMalformed, "the grammar has more than ", limits::kGrammarRules,
         " rules, the limit");
  }
  rules_.push_back({std::move(name), 0});
  return static_cast<RuleId>(rules_.size() - 1);
}

ExpressionId RuleSet::named(std::string name, ExpressionId body) {
  const RuleId rule = declare(std::move(name));
  define(rule, body);
  return reference(rule);
}

}  // namespace lumen::text::grammar
