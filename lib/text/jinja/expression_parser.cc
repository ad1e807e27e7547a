#include "lib/text/jinja/expression_parser.h"

#include <algorithm>

#include "lib/base/limits.h"
#include "lib/base/strings.h"

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

ExpressionPtr ExpressionParser::finish(ExpressionPtr node,
                                       std::initializer_list<const Expression*> parts) {
  for (const Expression* part : parts) {
    if (part) node->depth = std::max(node->depth, part->depth + 1);
  }
  if (node->depth > kMaxChain) {
    fail_at(node->line, str("an expression of more than ", kMaxChain, " chained operations"));
  }
  return node;
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
