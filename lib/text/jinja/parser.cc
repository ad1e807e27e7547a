#include "lib/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "lib/base/strings.h"
#include "lib/text/jinja/expression_parser.h"

namespace lumen::text::jinja {

namespace {

// Statements; expressions are the base's.
class Parser : private ExpressionParser {
 public:
  Parser(Template& out, const ChatTemplate::Syntax& syntax)
      : ExpressionParser(tokenize(out.source, syntax), out.symbols), out_(out) {}

  void run() {
    out_.special = {out_.symbols.intern("loop"), out_.symbols.intern("caller"),
                    out_.symbols.intern("varargs"), out_.symbols.intern("kwargs")};
    watch(out_.special);
    out_.body = block({}, "", 1);
    check_unknown();
  }

 private:
  // Statements up to a tag named in `ends`, whose name is the current token afterwards; with no
  // `ends`, up to the end of the template.
  Block block(std::initializer_list<std::string_view> ends, std::string_view opened,
              int opened_at) {
    const Nested nested(*this);
    Block out;
    for (;;) {
      const Token& token = current();
      switch (token.kind) {
        case TokenKind::kData: {
          auto data = std::make_unique<DataStatement>(token.line);
          data->text = token.text;
          out.push_back(std::move(data));
          advance();
          break;
        }
        case TokenKind::kVariableBegin: {
          auto output = std::make_unique<OutputStatement>(token.line);
          advance();
          output->value = tuple();
          expect(TokenKind::kVariableEnd, "'}}'");
          out.push_back(std::move(output));
          break;
        }
        case TokenKind::kBlockBegin:
          advance();
          if (std::any_of(ends.begin(), ends.end(),
                          [&](std::string_view end) { return current().is_name(end); })) {
            return out;
          }
          statement(out);
          expect(TokenKind::kBlockEnd, "'%}'");
          break;
        default:
          if (ends.size() == 0) return out;
          fail_at(opened_at, str("'", opened, "' is not closed: the template ends before '",
                                 *(ends.end() - 1), "'"));
      }
    }
  }

  // The body of a statement: the rest of its tag, the block, and its closing tag's name.
  Block body(std::initializer_list<std::string_view> ends, std::string_view opened) {
    const int opened_at = current().line;
    expect(TokenKind::kBlockEnd, "'%}'");
    return block(ends, opened, opened_at);
  }

  void statement(Block& out) {
    const Token& token = current();
    if (!token.is(TokenKind::kName)) fail_here("a statement's name is expected");
    const std::string name = token.text;
    const int line = token.line;
    advance();
    if (name == "for") return out.push_back(for_statement(line));
    if (name == "if") return out.push_back(if_statement(line));
    if (name == "set") return out.push_back(set_statement(line));
    if (name == "macro") return out.push_back(macro_statement(line));
    if (name == "call") return out.push_back(call_statement(line));
    if (name == "filter") return out.push_back(filter_statement(line));
    if (name == "with") return out.push_back(with_statement(line));
    if (name == "generation") return out.push_back(generation_statement(line));
    if (name == "block") return out.push_back(block_statement(line));
    if (name == "print") return print_statement(out, line);
    if (name == "break" || name == "continue") return out.push_back(jump_statement(name, line));
    if (name == "include" || name == "import" || name == "from" || name == "extends") {
      fail_at(line, str("'", name, "' needs other templates, which a chat template cannot use"));
    }
    if (name.starts_with("end") || name == "else" || name == "elif") {
      fail_at(line, str("'", name, "' without its opening tag"));
    }
    fail_at(line, "unknown statement " + lumen::quoted(name));
  }

  std::unique_ptr<Statement> for_statement(int line) {
    auto node = std::make_unique<ForStatement>(line);
    node->target = target(false, "in");
    check_loop_target(node->target);
    if (!skip_name("in")) fail_here("'in' is expected");
    node->iterable = tuple(false, "recursive");
    const NotSoft hard(*this);
    if (skip_name("if")) node->condition = expression();
    node->recursive = skip_name("recursive");
    ++loops_;
    node->body = body({"else", "endfor"}, "for");
    --loops_;
    if (skip_name("else")) node->otherwise = body({"endfor"}, "for");
    advance();
    return node;
  }

  void check_loop_target(const Target& t) const {
    if (t.type == Target::Type::kName && t.symbol == out_.special.loop) {
      fail_at(t.line, "the special variable 'loop' cannot be a loop's target");
    }
    for (const Target& item : t.row) check_loop_target(item);
  }

  std::unique_ptr<Statement> if_statement(int line) {
    auto node = std::make_unique<IfStatement>(line);
    const Soft soft(*this);
    do {
      ExpressionPtr condition = tuple(false);
      node->branches.emplace_back(std::move(condition), body({"elif", "else", "endif"}, "if"));
    } while (skip_name("elif"));
    if (skip_name("else")) node->otherwise = body({"endif"}, "if");
    advance();
    return node;
  }

  std::unique_ptr<Statement> set_statement(int line) {
    Target assigned = target(true);
    if (skip_operator("=")) {
      auto node = std::make_unique<SetStatement>(line);
      node->target = std::move(assigned);
      node->value = tuple();
      return node;
    }
    auto node = std::make_unique<SetBlockStatement>(line);
    const NotSoft hard(*this);
    node->target = std::move(assigned);
    if (current().is_operator("|")) node->filter = filters(nullptr, false);
    node->body = body({"endset"}, "set");
    advance();
    return node;
  }

  // (a, b=1, …)
  void signature(MacroDefinition& macro) {
    expect_operator("(");
    while (!current().is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      macro.parameters.push_back(target_name());
      if (skip_operator("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail_here("a parameter without default follows one with a default");
      }
    }
    advance();
  }

  void macro_body(MacroDefinition& macro, std::string_view end, std::string_view opened) {
    const NotSoft hard(*this);
    const int loops = std::exchange(loops_, 0);
    const Watching watching(*this, macro);
    macro.body = body({end}, opened);
    advance();
    loops_ = loops;
    check_caller(macro);
  }

  void check_caller(MacroDefinition& macro) {
    const auto position =
        std::find(macro.parameters.begin(), macro.parameters.end(), out_.special.caller);
    if (position != macro.parameters.end() && macro.uses_caller) {
      const auto after = static_cast<size_t>(macro.parameters.end() - position);
      if (after > macro.defaults.size()) {
        fail_here("the parameter 'caller' must have a default");
      }
      macro.uses_caller = false;  // an ordinary parameter then
    }
    const auto declared = [&](Symbol symbol) {
      return std::find(macro.parameters.begin(), macro.parameters.end(), symbol) !=
             macro.parameters.end();
    };
    macro.uses_varargs = macro.uses_varargs && !declared(out_.special.varargs);
    macro.uses_kwargs = macro.uses_kwargs && !declared(out_.special.kwargs);
  }

  std::unique_ptr<Statement> macro_statement(int line) {
    auto node = std::make_unique<MacroStatement>(line);
    node->symbol = target_name();
    node->macro.name = out_.symbols.name(node->symbol);
    signature(node->macro);
    macro_body(node->macro, "endmacro", "macro");
    return node;
  }

  std::unique_ptr<Statement> call_statement(int line) {
    auto node = std::make_unique<CallBlockStatement>(line);
    node->caller.name = "caller";
    if (current().is_operator("(")) signature(node->caller);
    node->call = expression();
    if (node->call->kind != ExpressionKind::kCall) fail_at(line, "a call is expected");
    macro_body(node->caller, "endcall", "call");
    return node;
  }

  std::unique_ptr<Statement> filter_statement(int line) {
    auto node = std::make_unique<FilterBlockStatement>(line);
    const NotSoft hard(*this);
    node->filter = filters(nullptr, true);
    node->body = body({"endfilter"}, "filter");
    advance();
    return node;
  }

  std::unique_ptr<Statement> with_statement(int line) {
    auto node = std::make_unique<WithStatement>(line);
    const NotSoft hard(*this);
    while (!current().is(TokenKind::kBlockEnd)) {
      if (!node->bindings.empty()) expect_operator(",");
      Target bound = target(false);
      expect_operator("=");
      node->bindings.emplace_back(std::move(bound), expression());
    }
    node->body = body({"endwith"}, "with");
    advance();
    return node;
  }

  std::unique_ptr<Statement> generation_statement(int line) {
    auto node = std::make_unique<BodyStatement>(StatementKind::kGeneration, line);
    const NotSoft hard(*this);
    const int loops = std::exchange(loops_, 0);
    node->body = body({"endgeneration"}, "generation");
    advance();
    loops_ = loops;
    return node;
  }

  std::unique_ptr<Statement> block_statement(int line) {
    auto node = std::make_unique<BodyStatement>(StatementKind::kScope, line);
    const NotSoft hard(*this);
    target_name();
    while (skip_name("scoped") || skip_name("required")) {
    }
    const int loops = std::exchange(loops_, 0);
    node->body = body({"endblock"}, "block");
    loops_ = loops;
    advance();
    if (current().is(TokenKind::kName)) advance();  // endblock NAME
    return node;
  }

  void print_statement(Block& out, int line) {
    bool first = true;
    while (!current().is(TokenKind::kBlockEnd)) {
      if (!first) expect_operator(",");
      first = false;
      auto output = std::make_unique<OutputStatement>(line);
      output->value = expression();
      out.push_back(std::move(output));
    }
  }

  std::unique_ptr<Statement> jump_statement(const std::string& name, int line) {
    if (loops_ == 0) fail_at(line, str("'", name, "' outside of a loop"));
    return std::make_unique<JumpStatement>(
        name == "break" ? StatementKind::kBreak : StatementKind::kContinue, line);
  }

  Template& out_;
  int loops_ = 0;  // loops around the current statement within the same macro
};

}  // namespace

Template parse_template(std::string name, std::string source, const ChatTemplate::Syntax& syntax) {
  Template out;
  out.name = std::move(name);
  out.source = std::move(source);
  Parser(out, syntax).run();
  return out;
}

}  // namespace lumen::text::jinja
