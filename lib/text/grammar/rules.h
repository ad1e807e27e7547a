// Context-free grammars as trees of expressions: what GBNF and JSON Schema are turned into.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::text::grammar {

// Code points [first, last].
struct CharRange {
  uint32_t first, last;
  friend bool operator==(const CharRange&, const CharRange&) = default;
};
using CharSet = std::vector<CharRange>;

// The set in order, without overlaps and without surrogates, which no UTF-8 text has.
CharSet normalized(CharSet set);
// Every other character.
CharSet complement(const CharSet& set);

// An expression or a rule of one RuleSet.
using ExpressionId = uint32_t;
using RuleId = uint32_t;

enum class ExpressionKind : uint8_t { kLiteral, kChars, kSequence, kChoice, kRepeat, kReference };

struct Expression {
  ExpressionKind kind;
  uint32_t depth;                        // 1 + that of the deepest part
  std::string literal = {};              // kLiteral: bytes; "" matches the empty text
  CharSet chars = {};                    // kChars: one character of these, normalized
  std::vector<ExpressionId> parts = {};  // kSequence, kChoice; kRepeat: one
  uint32_t least = 0, most = 0;          // kRepeat: so many times; most = kUnbounded: no limit
  RuleId rule = 0;                       // kReference
};
inline constexpr uint32_t kUnbounded = ~uint32_t{0};

// Rules with names, and expressions that they and each other are made of. The rule that texts are
// derived from is the one that make_program() is told. Every maker throws Error(kMalformed) beyond
// a limit of base/limits.h (kGrammar*). Not thread-safe while it is filled.
class RuleSet {
 public:
  ExpressionId literal(std::string_view bytes);
  ExpressionId chars(CharSet set);  // none: matches no text
  ExpressionId sequence(std::vector<ExpressionId> parts);
  ExpressionId choice(std::vector<ExpressionId> parts);  // none: matches no text
  ExpressionId repeat(ExpressionId part, uint32_t least, uint32_t most);
  ExpressionId optional(ExpressionId part) { return repeat(part, 0, 1); }
  ExpressionId reference(RuleId rule);

  // A rule to be defined later, once. Names are for messages only.
  RuleId declare(std::string name);
  void define(RuleId rule, ExpressionId body) { rules_[rule].body = body; }
  // A rule of this body, and a reference to it.
  ExpressionId named(std::string name, ExpressionId body);

  size_t size() const { return rules_.size(); }
  const std::string& name(RuleId rule) const { return rules_[rule].name; }
  ExpressionId body(RuleId rule) const { return rules_[rule].body; }
  const Expression& operator[](ExpressionId id) const { return expressions_[id]; }

 private:
  struct Rule {
    std::string name;
    ExpressionId body = 0;
  };
  ExpressionId add(Expression expression);

  std::vector<Rule> rules_;
  std::vector<Expression> expressions_;
};

}  // namespace lumen::text::grammar
