// JSON values as expressions: what json_schema.cc puts schemas together from.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/text/grammar/rules.h"

namespace lumen::text::grammar {

// A member of an object, with its name.
struct Property {
  ExpressionId member;
  bool is_required;
};

// Makes expressions of `rules`, which must outlive it. White space between the parts of a value is
// nothing, one space, or a newline with an indentation of up to 20 characters: a model cannot go on
// with spaces for ever.
class JsonValues {
 public:
  explicit JsonValues(RuleSet& rules);

  RuleSet& rules() { return rules_; }

  // Of any kind; a text; a number, which with `is_integer` has no point and no exponent. Numbers
  // have up to kMostDigits digits before and after the point and an exponent below 100.
  ExpressionId any();
  ExpressionId any_string();
  ExpressionId any_number(bool is_integer);
  ExpressionId boolean();

  // One character of a string in every spelling of JSON. Halves of surrogate pairs come in pairs.
  ExpressionId character();
  // A string of this content.
  ExpressionId quoted_text(ExpressionId content);

  // `elements`, which have their commas, between brackets.
  ExpressionId bracketed(char open, ExpressionId elements, char close);
  ExpressionId after_comma(ExpressionId element);

  // `least` to `most` elements that are all different, with their commas, each one of `values`.
  ExpressionId different(const std::vector<ExpressionId>& values, uint32_t least, uint32_t most);

  // As many elements as `length` says, with their commas, `count` of which are `one` and the rest
  // `other`; both first and last numbers count, kUnbounded is no limit. With a limit to `count` no
  // text may be both.
  ExpressionId counted_elements(ExpressionId one, ExpressionId other,
                                std::pair<uint32_t, uint32_t> length,
                                std::pair<uint32_t, uint32_t> count);

  // A name, which is a string, then its value.
  ExpressionId member(ExpressionId name, ExpressionId content);
  // Names in their plain spelling that are none of `names`, which are sorted and differ.
  ExpressionId other_name(std::span<const std::string> names);
  // Members with their commas: those required, of the others any, or one at least, in their order,
  // then any number of `other`, if given. Rules that it makes are named `name`.
  ExpressionId members(const std::vector<Property>& all, std::optional<ExpressionId> other,
                       bool may_be_none, const std::string& name);

  // The expression, as a rule of its own if it has become deep.
  ExpressionId shallow(ExpressionId expression, const std::string& name);

 private:
  ExpressionId digits(uint32_t least, uint32_t most);
  ExpressionId differing(std::span<const std::string> names, size_t at);

  RuleSet& rules_;
  ExpressionId gap_;
  std::optional<RuleId> any_, string_, character_, number_, integer_;
};

}  // namespace lumen::text::grammar
