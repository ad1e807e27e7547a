// The expression half of the parser: jinja2's precedence, lowest first: conditional, or, and, not,
// comparison, + -, ~, * / // %, **, unary, postfix, filters and tests. What operators stand
// between, postfix and so on is in operand_parser.cc.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/jinja/ast.h"
#include "lib/text/jinja/lexer.h"

namespace lumen::text::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, SymbolTable& symbols)
      : tokens_(std::move(tokens)), symbols_(symbols) {}

  // Tokens.
  const Token& current() const { return tokens_[pos_]; }
  const Token& ahead() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  void advance() {
    if (pos_ + 1 < tokens_.size()) ++pos_;
  }
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view symbol);
  void expect(TokenKind kind, std::string_view what);
  void expect_operator(std::string_view symbol);
  [[noreturn]] static void fail_at(int line, std::string message) {
    throw SyntaxError{line, std::move(message)};
  }
  // "…, found X".
  [[noreturn]] void fail_here(std::string message) const;

  // Expressions.
  ExpressionPtr expression();
  // One expression, or several separated by commas: a tuple. `end` is a name that may follow a
  // trailing comma.
  ExpressionPtr tuple(bool conditional = true, std::string_view end = {});
  // Filters applied to `operand`, from the current "|", or without the first "|" if `inline_first`.
  ExpressionPtr filters(ExpressionPtr operand, bool inline_first);
  // What `set`, `for` and `with` assign to.
  Target target(bool attributes, std::string_view end = {});
  Symbol target_name();

  // One more level of nesting while it lives.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // On a branch that may never run (jinja2's soft frame), an unknown filter or test is an error
  // only when it runs.
  class Soft {
   public:
    explicit Soft(ExpressionParser& parser, bool soft = true)
        : parser_(parser), before_(std::exchange(parser.soft_, soft)) {}
    ~Soft() { parser_.soft_ = before_; }
    Soft(const Soft&) = delete;
    Soft& operator=(const Soft&) = delete;

   private:
    ExpressionParser& parser_;
    bool before_;
  };
  class NotSoft : public Soft {
   public:
    explicit NotSoft(ExpressionParser& parser) : Soft(parser, false) {}
  };

  // While it lives, uses of caller, varargs and kwargs are noted in `macro`.
  class Watching {
   public:
    Watching(ExpressionParser& parser, MacroDefinition& macro) : parser_(parser) {
      parser_.macros_.push_back(&macro);
    }
    ~Watching() { parser_.macros_.pop_back(); }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

   private:
    ExpressionParser& parser_;
  };
  // Throws if a filter or test is unknown. Called once everything is parsed.
  void check_unknown() const {
    if (!unknown_.empty()) throw unknown_.front();
  }
  void watch(const SpecialSymbols& special) { special_ = special; }

 private:
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr primary();
  ExpressionPtr name();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr operand);
  ExpressionPtr applied(ExpressionPtr operand);
  ExpressionPtr test(ExpressionPtr operand);
  ExpressionPtr attribute(ExpressionPtr operand);
  ExpressionPtr subscript(ExpressionPtr operand);
  ExpressionPtr subscript_key();
  ExpressionPtr call(ExpressionPtr callee);
  CallArguments arguments();
  std::string dotted_name();
  void note_unknown(std::string_view kind, std::string_view name, int line);
  bool at_tuple_end(std::string_view end) const;

  using Level = ExpressionPtr (ExpressionParser::*)();
  ExpressionPtr binary(std::initializer_list<std::pair<std::string_view, Operator>> symbols,
                       Level operand);
  ExpressionPtr logic(std::string_view word, Operator op, Level operand);
  // Sets the depth of `node`; refuses chains that are too long to evaluate.
  static ExpressionPtr finish(ExpressionPtr node, std::initializer_list<const Expression*> parts);
  static int deepest(const CallArguments& arguments);

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  SymbolTable& symbols_;
  SpecialSymbols special_{};
  std::vector<MacroDefinition*> macros_;
  std::vector<SyntaxError> unknown_;  // filters and tests that nothing excuses so far
  int depth_ = 0;
  bool soft_ = false;
};

}  // namespace lumen::text::jinja
