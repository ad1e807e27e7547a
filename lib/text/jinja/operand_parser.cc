// What operators stand between: constants, names, lists and dictionaries, and what follows them:
// attributes, subscripts, calls, filters and tests.
#include <algorithm>

#include "lib/base/strings.h"
#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/expression_parser.h"

namespace lumen::text::jinja {

ExpressionPtr ExpressionParser::primary() {
  const Token& token = current();
  const int line = token.line;
  auto constant = std::make_unique<ConstantExpression>(line);
  switch (token.kind) {
    case TokenKind::kName:
      return name();
    case TokenKind::kString:
      constant->type = ConstantExpression::Type::kString;
      for (; current().is(TokenKind::kString); advance()) constant->text += current().text;
      return constant;
    case TokenKind::kInteger:
      constant->type = ConstantExpression::Type::kInt;
      constant->integer = token.integer;
      advance();
      return constant;
    case TokenKind::kFloat:
      constant->type = ConstantExpression::Type::kFloat;
      constant->real = token.real;
      advance();
      return constant;
    case TokenKind::kOperator:
      if (token.text == "(") {
        advance();
        ExpressionPtr inner = tuple(true, ")");
        expect_operator(")");
        return inner;
      }
      if (token.text == "[") return list();
      if (token.text == "{") return dict();
      break;
    default:
      break;
  }
  fail_here("an expression is expected");
}

ExpressionPtr ExpressionParser::name() {
  const std::string text = current().text;
  const int line = current().line;
  advance();
  auto constant = std::make_unique<ConstantExpression>(line);
  if (text == "none" || text == "None") return constant;
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    constant->type = ConstantExpression::Type::kBool;
    constant->integer = text == "true" || text == "True";
    return constant;
  }
  const Symbol symbol = symbols_.intern(text);
  for (MacroDefinition* macro : macros_) {
    macro->uses_caller |= symbol == special_.caller;
    macro->uses_varargs |= symbol == special_.varargs;
    macro->uses_kwargs |= symbol == special_.kwargs;
  }
  return std::make_unique<NameExpression>(line, symbol);
}

ExpressionPtr ExpressionParser::list() {
  auto row = std::make_unique<RowExpression>(ExpressionKind::kList, current().line);
  advance();
  while (!current().is_operator("]")) {
    if (!row->items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    row->items.push_back(expression());
    row->depth = std::max(row->depth, row->items.back()->depth + 1);
  }
  advance();
  return finish(std::move(row), {});
}

ExpressionPtr ExpressionParser::dict() {
  auto node = std::make_unique<DictExpression>(current().line);
  advance();
  while (!current().is_operator("}")) {
    if (!node->items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    ExpressionPtr key = expression();
    expect_operator(":");
    ExpressionPtr value = expression();
    node->depth = std::max({node->depth, key->depth + 1, value->depth + 1});
    node->items.emplace_back(std::move(key), std::move(value));
  }
  advance();
  return finish(std::move(node), {});
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr operand) {
  for (;;) {
    if (current().is_operator(".")) {
      operand = attribute(std::move(operand));
    } else if (current().is_operator("[")) {
      operand = subscript(std::move(operand));
    } else if (current().is_operator("(")) {
      operand = call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::applied(ExpressionPtr operand) {
  for (;;) {
    if (current().is_operator("|")) {
      operand = filters(std::move(operand), false);
    } else if (current().is_name("is")) {
      operand = test(std::move(operand));
    } else if (current().is_operator("(")) {
      operand = call(std::move(operand));
    } else {
      return operand;
    }
  }
}

void ExpressionParser::note_unknown(std::string_view kind, std::string_view name, int line) {
  if (!soft_) unknown_.push_back({line, str("no ", kind, " named ", lumen::quoted(name))});
}

std::string ExpressionParser::dotted_name() {
  std::string out;
  for (;;) {
    if (!current().is(TokenKind::kName)) fail_here("a name is expected");
    out += current().text;
    advance();
    if (!skip_operator(".")) return out;
    out += '.';
  }
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr operand, bool inline_first) {
  while (inline_first || current().is_operator("|")) {
    if (!inline_first) advance();
    inline_first = false;
    auto node = std::make_unique<ApplyExpression>(ExpressionKind::kFilter, current().line);
    node->name = dotted_name();
    node->builtin = find_filter(node->name);
    if (!node->builtin) note_unknown("filter", node->name, node->line);
    if (current().is_operator("(")) node->arguments = arguments();
    node->operand = std::move(operand);
    node->depth = deepest(node->arguments) + 1;
    const Expression* inner = node->operand.get();
    operand = finish(std::move(node), {inner});
  }
  return operand;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr operand) {
  const int line = current().line;
  advance();
  const bool negated = skip_name("not");
  auto node = std::make_unique<ApplyExpression>(ExpressionKind::kTest, line);
  node->name = dotted_name();
  node->builtin = find_test(node->name);
  if (!node->builtin) note_unknown("test", node->name, line);
  const Token& token = current();
  if (token.is_operator("(")) {
    node->arguments = arguments();
  } else if (token.is_name("is")) {
    fail_here("tests cannot be chained with 'is'");
  } else if ((token.is(TokenKind::kName) && !token.is_name("else") && !token.is_name("or") &&
              !token.is_name("and")) ||
             token.is(TokenKind::kString) || token.is(TokenKind::kInteger) ||
             token.is(TokenKind::kFloat) || token.is_operator("[") || token.is_operator("{")) {
    const Nested nested(*this);
    node->arguments.positional.push_back(postfix(primary()));
  }
  node->operand = std::move(operand);
  node->depth = deepest(node->arguments) + 1;
  const Expression* inner = node->operand.get();
  ExpressionPtr result = finish(std::move(node), {inner});
  if (!negated) return result;
  auto negative = std::make_unique<UnaryExpression>(line);
  negative->op = Operator::kNot;
  negative->operand = std::move(result);
  inner = negative->operand.get();
  return finish(std::move(negative), {inner});
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr operand) {
  const int line = current().line;
  advance();
  const Token& token = current();
  const Expression* inner = operand.get();
  if (token.is(TokenKind::kName)) {
    auto node = std::make_unique<AttributeExpression>(line);
    node->object = std::move(operand);
    node->name = token.text;
    advance();
    return finish(std::move(node), {inner});
  }
  if (!token.is(TokenKind::kInteger)) fail_here("a name or number is expected after '.'");
  auto key = std::make_unique<ConstantExpression>(line);
  key->type = ConstantExpression::Type::kInt;
  key->integer = token.integer;
  auto node = std::make_unique<ItemExpression>(line);
  node->object = std::move(operand);
  node->key = std::move(key);
  advance();
  return finish(std::move(node), {inner});
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr operand) {
  auto node = std::make_unique<ItemExpression>(current().line);
  advance();
  auto row = std::make_unique<RowExpression>(ExpressionKind::kTuple, node->line);
  while (!current().is_operator("]")) {
    if (!row->items.empty()) expect_operator(",");
    row->items.push_back(subscript_key());
    row->depth = std::max(row->depth, row->items.back()->depth + 1);
  }
  advance();
  node->object = std::move(operand);
  if (row->items.size() == 1) {
    node->key = std::move(row->items.front());
  } else {
    for (const ExpressionPtr& item : row->items) {
      if (item->kind == ExpressionKind::kSlice) fail_at(node->line, "a slice within a tuple");
    }
    node->key = std::move(row);
  }
  const Expression* object = node->object.get();
  const Expression* key = node->key.get();
  return finish(std::move(node), {object, key});
}

ExpressionPtr ExpressionParser::subscript_key() {
  const int line = current().line;
  ExpressionPtr start;
  if (!current().is_operator(":")) {
    start = expression();
    if (!current().is_operator(":")) return start;
  }
  auto node = std::make_unique<SliceExpression>(line);
  node->start = std::move(start);
  const auto part = [&]() -> ExpressionPtr {
    advance();  // the colon
    if (current().is_operator(":") || current().is_operator("]") || current().is_operator(",")) {
      return nullptr;
    }
    return expression();
  };
  node->stop = part();
  if (current().is_operator(":")) node->step = part();
  const Expression* a = node->start.get();
  const Expression* b = node->stop.get();
  const Expression* c = node->step.get();
  return finish(std::move(node), {a, b, c});
}

int ExpressionParser::deepest(const CallArguments& arguments) {
  int depth = 0;
  const auto add = [&](const ExpressionPtr& part) {
    if (part) depth = std::max(depth, part->depth);
  };
  for (const ExpressionPtr& part : arguments.positional) add(part);
  for (const auto& [name, part] : arguments.named) add(part);
  add(arguments.more_positional);
  add(arguments.more_named);
  return depth;
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  auto node = std::make_unique<CallExpression>(current().line);
  node->arguments = arguments();
  node->callee = std::move(callee);
  node->depth = deepest(node->arguments) + 1;
  const Expression* inner = node->callee.get();
  return finish(std::move(node), {inner});
}

CallArguments ExpressionParser::arguments() {
  const Nested nested(*this);
  const int line = current().line;
  expect_operator("(");
  CallArguments out;
  const auto ensure = [&](bool valid) {
    if (!valid) fail_at(line, "invalid order of arguments in a call");
  };
  bool first = true;
  while (!current().is_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      ensure(!out.more_positional && !out.more_named);
      out.more_positional = expression();
    } else if (skip_operator("**")) {
      ensure(!out.more_named);
      out.more_named = expression();
    } else if (current().is(TokenKind::kName) && ahead().is_operator("=")) {
      ensure(!out.more_named);
      const std::string name = current().text;
      advance();
      advance();
      out.named.emplace_back(name, expression());
    } else {
      ensure(!out.more_positional && !out.more_named && out.named.empty());
      out.positional.push_back(expression());
    }
  }
  expect_operator(")");
  return out;
}

}  // namespace lumen::text::jinja
