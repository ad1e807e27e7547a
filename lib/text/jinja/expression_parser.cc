#include "lib/text/jinja/expression_parser.h"

#include <algorithm>

#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/text/jinja/builtins.h"

namespace lumen::text::jinja {

namespace {

// Longest chain of operators without parentheses: `a + b + …`, `x.a.b…`, `x|f|g…`. The evaluator
// descends it.
constexpr int kMaxChain = 400;

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kString:
      return "the string " + lumen::quoted(token.text, 40);
    default:
      return lumen::quoted(token.text, 40);
  }
}

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > limits::kTemplateDepth) {
    --parser_.depth_;
    fail_at(parser_.current().line, str("nested deeper than ", limits::kTemplateDepth, " levels"));
  }
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  advance();
  return true;
}

bool ExpressionParser::skip_operator(std::string_view symbol) {
  if (!current().is_operator(symbol)) return false;
  advance();
  return true;
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (!current().is(kind)) fail_here(str(what, " is expected"));
  advance();
}

void ExpressionParser::expect_operator(std::string_view symbol) {
  if (!skip_operator(symbol)) fail_here(str("'", symbol, "' is expected"));
}

void ExpressionParser::fail_here(std::string message) const {
  fail_at(current().line, message + ", found " + describe(current()));
}

template <typename Node>
ExpressionPtr ExpressionParser::finish(std::unique_ptr<Node> node,
                                       std::initializer_list<const Expression*> parts) {
  for (const Expression* part : parts) {
    if (part) node->depth = std::max(node->depth, part->depth + 1);
  }
  if (node->depth > kMaxChain) {
    fail_at(node->line, str("an expression of more than ", kMaxChain, " chained operations"));
  }
  return node;
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

ExpressionPtr ExpressionParser::expression() {
  const Nested nested(*this);
  const size_t unknown = unknown_.size();
  ExpressionPtr value = disjunction();
  while (current().is_name("if")) {
    unknown_.resize(unknown, {});  // what was parsed is on a branch that may never run
    auto node = std::make_unique<ConditionalExpression>(current().line);
    advance();
    const Soft soft(*this);
    node->condition = disjunction();
    if (skip_name("else")) node->no = expression();
    node->yes = std::move(value);
    const Expression* condition = node->condition.get();
    const Expression* yes = node->yes.get();
    const Expression* no = node->no.get();
    value = finish(std::move(node), {condition, yes, no});
  }
  return value;
}

ExpressionPtr ExpressionParser::logic(std::string_view word, Operator op, Level operand) {
  ExpressionPtr left = (this->*operand)();
  while (current().is_name(word)) {
    auto node = std::make_unique<BinaryExpression>(ExpressionKind::kLogic, current().line);
    advance();
    node->op = op;
    node->left = std::move(left);
    node->right = (this->*operand)();
    const Expression* l = node->left.get();
    const Expression* r = node->right.get();
    left = finish(std::move(node), {l, r});
  }
  return left;
}

ExpressionPtr ExpressionParser::disjunction() {
  return logic("or", Operator::kOr, &ExpressionParser::conjunction);
}

ExpressionPtr ExpressionParser::conjunction() {
  return logic("and", Operator::kAnd, &ExpressionParser::negation);
}

ExpressionPtr ExpressionParser::negation() {
  if (!current().is_name("not")) return comparison();
  const Nested nested(*this);
  auto node = std::make_unique<UnaryExpression>(current().line);
  advance();
  node->op = Operator::kNot;
  node->operand = negation();
  const Expression* operand = node->operand.get();
  return finish(std::move(node), {operand});
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, Operator> kSymbols[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  ExpressionPtr first = sum();
  std::unique_ptr<CompareExpression> node;
  for (;;) {
    const int line = current().line;
    const auto symbol =
        std::find_if(std::begin(kSymbols), std::end(kSymbols),
                     [&](const auto& candidate) { return current().is_operator(candidate.first); });
    Operator op;
    if (symbol != std::end(kSymbols)) {
      op = symbol->second;
    } else if (current().is_name("in")) {
      op = Operator::kIn;
    } else if (current().is_name("not") && ahead().is_name("in")) {
      op = Operator::kNotIn;
      advance();
    } else {
      break;
    }
    advance();
    if (!node) {
      node = std::make_unique<CompareExpression>(line);
      node->depth = first->depth + 1;
      node->first = std::move(first);
    }
    node->rest.emplace_back(op, sum());
    node->depth = std::max(node->depth, node->rest.back().second->depth + 1);
  }
  if (!node) return first;
  return finish(std::move(node), {});
}

ExpressionPtr ExpressionParser::binary(
    std::initializer_list<std::pair<std::string_view, Operator>> symbols, Level operand) {
  ExpressionPtr left = (this->*operand)();
  for (;;) {
    const auto symbol = std::find_if(symbols.begin(), symbols.end(), [&](const auto& candidate) {
      return current().is_operator(candidate.first);
    });
    if (symbol == symbols.end()) return left;
    auto node = std::make_unique<BinaryExpression>(ExpressionKind::kBinary, current().line);
    advance();
    node->op = symbol->second;
    node->left = std::move(left);
    node->right = (this->*operand)();
    const Expression* l = node->left.get();
    const Expression* r = node->right.get();
    left = finish(std::move(node), {l, r});
  }
}

ExpressionPtr ExpressionParser::sum() {
  return binary({{"+", Operator::kAdd}, {"-", Operator::kSubtract}},
                &ExpressionParser::concatenation);
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr first = product();
  if (!current().is_operator("~")) return first;
  auto node = std::make_unique<ConcatenateExpression>(current().line);
  node->depth = first->depth + 1;
  node->parts.push_back(std::move(first));
  while (skip_operator("~")) {
    node->parts.push_back(product());
    node->depth = std::max(node->depth, node->parts.back()->depth + 1);
  }
  return finish(std::move(node), {});
}

ExpressionPtr ExpressionParser::product() {
  return binary({{"*", Operator::kMultiply},
                 {"/", Operator::kDivide},
                 {"//", Operator::kFloorDivide},
                 {"%", Operator::kModulo}},
                &ExpressionParser::power);
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (current().is_operator("**")) {
    auto node = std::make_unique<BinaryExpression>(ExpressionKind::kBinary, current().line);
    advance();
    node->op = Operator::kPower;
    node->left = std::move(left);
    node->right = unary();
    const Expression* l = node->left.get();
    const Expression* r = node->right.get();
    left = finish(std::move(node), {l, r});
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr value;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Nested nested(*this);
    auto node = std::make_unique<UnaryExpression>(current().line);
    node->op = current().is_operator("-") ? Operator::kNegate : Operator::kPlus;
    advance();
    node->operand = unary(false);
    const Expression* operand = node->operand.get();
    value = finish(std::move(node), {operand});
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? applied(std::move(value)) : std::move(value);
}

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

bool ExpressionParser::at_tuple_end(std::string_view end) const {
  return current().is(TokenKind::kVariableEnd) || current().is(TokenKind::kBlockEnd) ||
         current().is_operator(")") || (!end.empty() && current().is_name(end));
}

ExpressionPtr ExpressionParser::tuple(bool conditional, std::string_view end) {
  const Nested nested(*this);
  const int line = current().line;
  const bool parenthesized = end == ")";
  auto row = std::make_unique<RowExpression>(ExpressionKind::kTuple, line);
  bool comma = false;
  while (!at_tuple_end(end)) {
    row->items.push_back(conditional ? expression() : disjunction());
    row->depth = std::max(row->depth, row->items.back()->depth + 1);
    if (!skip_operator(",")) break;
    comma = true;
  }
  if (!comma && row->items.size() == 1) return std::move(row->items.front());
  if (row->items.empty() && !parenthesized) fail_here("an expression is expected");
  return finish(std::move(row), {});
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

Symbol ExpressionParser::target_name() {
  if (!current().is(TokenKind::kName)) fail_here("a name is expected");
  const std::string name = current().text;
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
    fail_here("a constant cannot be assigned to");
  }
  advance();
  return symbols_.intern(name);
}

Target ExpressionParser::target(bool attributes, std::string_view end) {
  const Nested nested(*this);
  const int line = current().line;
  std::vector<Target> row;
  bool comma = false;
  while (!at_tuple_end(end)) {
    Target item;
    item.line = current().line;
    if (skip_operator("(")) {
      item = target(attributes);
      expect_operator(")");
    } else {
      item.symbol = target_name();
      if (attributes && skip_operator(".")) {
        if (!current().is(TokenKind::kName)) fail_here("an attribute's name is expected");
        item.type = Target::Type::kAttribute;
        item.attribute = current().text;
        advance();
      }
    }
    row.push_back(std::move(item));
    if (!skip_operator(",")) break;
    comma = true;
  }
  if (row.empty()) fail_here("a name to assign to is expected");
  if (!comma) return std::move(row.front());
  Target out;
  out.type = Target::Type::kRow;
  out.line = line;
  out.row = std::move(row);
  return out;
}

}  // namespace lumen::text::jinja
