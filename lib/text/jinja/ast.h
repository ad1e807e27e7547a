// The parsed form of a template. Immutable after parsing; shared between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lumen::text::jinja {

// Names of variables, numbered, so that scopes compare integers.
using Symbol = uint32_t;

class SymbolTable {
 public:
  Symbol intern(const std::string& name) {
    const auto [entry, added] = ids_.emplace(name, static_cast<Symbol>(names_.size()));
    if (added) names_.push_back(name);
    return entry->second;
  }
  size_t size() const { return names_.size(); }
  const std::string& name(Symbol symbol) const { return names_[symbol]; }

 private:
  std::unordered_map<std::string, Symbol> ids_;
  std::vector<std::string> names_;
};

enum class ExpressionKind : uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,
  kUnary,
  kBinary,
  kLogic,
  kCompare,
  kConcatenate,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expression {
  Expression(ExpressionKind k, int l) : kind(k), line(l) {}
  virtual ~Expression() = default;
  const ExpressionKind kind;
  const int line;
  int depth = 1;  // levels of expressions below and including this one
};
using ExpressionPtr = std::unique_ptr<Expression>;
using Expressions = std::vector<ExpressionPtr>;

struct ConstantExpression : Expression {
  explicit ConstantExpression(int l) : Expression(ExpressionKind::kConstant, l) {}
  enum class Type : uint8_t { kNone, kBool, kInt, kFloat, kString } type = Type::kNone;
  int64_t integer = 0;  // bool and int
  double real = 0;
  std::string text;
};

struct NameExpression : Expression {
  NameExpression(int l, Symbol s) : Expression(ExpressionKind::kName, l), symbol(s) {}
  Symbol symbol;
};

// kList and kTuple.
struct RowExpression : Expression {
  using Expression::Expression;
  Expressions items;
};

struct DictExpression : Expression {
  explicit DictExpression(int l) : Expression(ExpressionKind::kDict, l) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegate,
  kPlus,
  kNot,
  kAnd,
  kOr,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct UnaryExpression : Expression {
  explicit UnaryExpression(int l) : Expression(ExpressionKind::kUnary, l) {}
  Operator op = Operator::kNot;
  ExpressionPtr operand;
};

// kBinary (arithmetic) and kLogic (and, or).
struct BinaryExpression : Expression {
  using Expression::Expression;
  Operator op = Operator::kAdd;
  ExpressionPtr left, right;
};

// a < b <= c …
struct CompareExpression : Expression {
  explicit CompareExpression(int l) : Expression(ExpressionKind::kCompare, l) {}
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};

// a ~ b ~ c …
struct ConcatenateExpression : Expression {
  explicit ConcatenateExpression(int l) : Expression(ExpressionKind::kConcatenate, l) {}
  Expressions parts;
};

struct ConditionalExpression : Expression {
  explicit ConditionalExpression(int l) : Expression(ExpressionKind::kConditional, l) {}
  ExpressionPtr condition, yes, no;  // no may be absent
};

struct AttributeExpression : Expression {
  explicit AttributeExpression(int l) : Expression(ExpressionKind::kAttribute, l) {}
  ExpressionPtr object;
  std::string name;
};

struct ItemExpression : Expression {
  explicit ItemExpression(int l) : Expression(ExpressionKind::kItem, l) {}
  ExpressionPtr object, key;  // key may be a SliceExpression
};

struct SliceExpression : Expression {
  explicit SliceExpression(int l) : Expression(ExpressionKind::kSlice, l) {}
  ExpressionPtr start, stop, step;  // any may be absent
};

struct CallArguments {
  Expressions positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;  // *args, **kwargs
};

struct CallExpression : Expression {
  explicit CallExpression(int l) : Expression(ExpressionKind::kCall, l) {}
  ExpressionPtr callee;
  CallArguments arguments;
};

struct Builtin;  // a filter or a test; builtins.h

// kFilter and kTest. `builtin` is absent for an unknown name on a branch that may never run.
struct ApplyExpression : Expression {
  using Expression::Expression;
  ExpressionPtr operand;  // absent in a filter block: the block's output
  std::string name;
  const Builtin* builtin = nullptr;
  CallArguments arguments;
};

enum class StatementKind : uint8_t {
  kData,
  kOutput,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kScope,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind k, int l) : kind(k), line(l) {}
  virtual ~Statement() = default;
  const StatementKind kind;
  const int line;
};
using Block = std::vector<std::unique_ptr<Statement>>;

struct DataStatement : Statement {
  explicit DataStatement(int l) : Statement(StatementKind::kData, l) {}
  std::string text;
};

struct OutputStatement : Statement {
  explicit OutputStatement(int l) : Statement(StatementKind::kOutput, l) {}
  ExpressionPtr value;
};

// What is assigned to: a name, namespace.attribute, or a row of targets.
struct Target {
  enum class Type : uint8_t { kName, kAttribute, kRow } type = Type::kName;
  int line = 0;
  Symbol symbol = 0;
  std::string attribute;
  std::vector<Target> row;
};

struct ForStatement : Statement {
  explicit ForStatement(int l) : Statement(StatementKind::kFor, l) {}
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // may be absent
  bool recursive = false;
  Block body, otherwise;
};

struct IfStatement : Statement {
  explicit IfStatement(int l) : Statement(StatementKind::kIf, l) {}
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};

struct SetStatement : Statement {
  explicit SetStatement(int l) : Statement(StatementKind::kSet, l) {}
  Target target;
  ExpressionPtr value;
};

struct SetBlockStatement : Statement {
  explicit SetBlockStatement(int l) : Statement(StatementKind::kSetBlock, l) {}
  Target target;
  ExpressionPtr filter;  // may be absent
  Block body;
};

// A macro, or the body of a call block.
struct MacroDefinition {
  std::string name;
  std::vector<Symbol> parameters;
  Expressions defaults;  // of the last parameters
  Block body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct MacroStatement : Statement {
  explicit MacroStatement(int l) : Statement(StatementKind::kMacro, l) {}
  Symbol symbol = 0;
  MacroDefinition macro;
};

struct CallBlockStatement : Statement {
  explicit CallBlockStatement(int l) : Statement(StatementKind::kCallBlock, l) {}
  ExpressionPtr call;  // a CallExpression
  MacroDefinition caller;
};

struct FilterBlockStatement : Statement {
  explicit FilterBlockStatement(int l) : Statement(StatementKind::kFilterBlock, l) {}
  ExpressionPtr filter;
  Block body;
};

struct WithStatement : Statement {
  explicit WithStatement(int l) : Statement(StatementKind::kWith, l) {}
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Block body;
};

// kGeneration and kScope ({% block %}).
struct BodyStatement : Statement {
  using Statement::Statement;
  Block body;
};

// kBreak and kContinue.
struct JumpStatement : Statement {
  using Statement::Statement;
};

// Symbols the language itself gives a meaning.
struct SpecialSymbols {
  Symbol loop, caller, varargs, kwargs;
};

struct Template {
  std::string name, source;
  SymbolTable symbols;
  SpecialSymbols special{};
  Block body;
};

}  // namespace lumen::text::jinja
