// Grammars that a generated text has to follow: GBNF, the notation of llama.cpp
// (https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md). json_schema.h makes them
// from JSON Schemas, token_constraint.h tells with them which tokens may come next.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lumen::text {

namespace grammar {
struct Program;
}

// A context-free language of UTF-8 texts. Immutable; may be shared among threads.
class Grammar {
 public:
  explicit Grammar(std::shared_ptr<const grammar::Program> program)
      : program_(std::move(program)) {}

  // Whether all of `text` is of the language. Throws Error(kMalformed) if the grammar is too
  // ambiguous to tell (limits::kGrammarStateWays).
  bool matches(std::string_view text) const;

  const std::shared_ptr<const grammar::Program>& program() const { return program_; }

 private:
  std::shared_ptr<const grammar::Program> program_;
};

// The grammar in `gbnf`; texts are derived from its rule `root`. Rules `name ::= …` of literals
// with escapes, classes [a-z] and [^a-z], `.` for any character, groups, |, ?, *, +, {m}, {m,} and
// {m,n}; # begins a comment. A rule ends with its line, except in a group, after | and before a
// line that begins with |. Throws Error(kMalformed) "PLACE: line 3, column 7: …" for a syntax
// error and for names defined twice or never; without a line for left recursion, rules that match
// no finite text, and grammars over limits::kGrammar*.
Grammar parse_grammar(std::string_view gbnf, const std::string& place);

}  // namespace lumen::text
