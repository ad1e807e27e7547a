// Statements.
#include "lib/text/jinja/interpreter.h"

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/macro.h"
#include "lib/text/jinja/operators.h"

namespace lumen::text::jinja {

const Value* Scope::find(Symbol symbol) const {
  for (const Scope* scope = this; scope; scope = scope->parent_.get()) {
    heap().step(scope->variables_.size() / 16);
    for (const auto& [name, value] : scope->variables_) {
      if (name == symbol) return &value;
    }
  }
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  before_change();
  heap().step(variables_.size() / 16);
  for (auto& [name, current] : variables_) {
    if (name == symbol) {
      current = std::move(value);
      return;
    }
  }
  variables_.emplace_back(symbol, std::move(value));
}

void Scope::forget() {
  parent_ = {};
  variables_.clear();
}

Loop::Loop(Heap& heap, const ForStatement& for_statement, Ref<Scope> outer_scope, Values all,
           int64_t depth)
    : Object(heap, sizeof(Loop)),
      statement(for_statement),
      outer(std::move(outer_scope)),
      items(std::move(all)),
      depth0(depth) {}

void Loop::forget() {
  outer = {};
  items.clear();
  changed_value_ = {};
}

int64_t Loop::size() const {
  if (horizon != nullptr) {
    if (horizon->trial && trial) return *trial;
    horizon->see_all();
  }
  return static_cast<int64_t>(items.size());
}

bool Loop::is_last() const {
  const bool last = index0 + 1 == static_cast<int64_t>(items.size());
  if (horizon == nullptr || horizon->trial || last) return index0 + 1 == size();
  horizon->looks_ahead = true;
  horizon->see(skipped + index0 + 2);
  return false;
}

std::string Loop::description() const {
  return str("<LoopContext ", index0 + 1, "/", size(), ">");
}

Value Loop::attribute(Interpreter& interpreter, std::string_view name) const {
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "revindex") return Value::integer(size() - index0);
  if (name == "revindex0") return Value::integer(size() - index0 - 1);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(is_last());
  if (name == "length") return Value::integer(size());
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "previtem") {
    if (index0 == 0) return interpreter.undefined("there is no previous item");
    return items[static_cast<size_t>(index0 - 1)];
  }
  if (name == "nextitem") {
    if (is_last()) return interpreter.undefined("there is no next item");
    return items[static_cast<size_t>(index0 + 1)];
  }
  return {};
}

Interpreter::Capture::Capture(Interpreter& interpreter)
    : interpreter_(interpreter),
      buffer_(interpreter.heap_),
      before_(std::exchange(interpreter.output_, &buffer_)) {
  ++interpreter.captures_;
}

Interpreter::Capture::~Capture() {
  interpreter_.output_ = before_;
  --interpreter_.captures_;
}

Value Interpreter::Capture::take() {
  interpreter_.output_ = before_;
  return Value::text(interpreter_.heap_, buffer_.take());
}

Interpreter::Interpreter(const Template& parsed, const Json& variables,
                         const ChatTemplate::Options& options)
    : template_(parsed), variables_(variables), options_(options), main_output_(heap_) {}

std::string Interpreter::render() {
  try {
    execute(template_.body, heap_.make<Scope>(Ref<Scope>()));
  } catch (const Failure& failure) {
    fail(ErrorKind::kMalformed, template_.name, ":", line_, ": ", failure.what());
  }
  return main_output_.take();
}

std::string Interpreter::render_beginnings(const std::string& list,
                                           RenderedBeginnings& beginnings) {
  const auto given = variables_.find(list);
  LUMEN_CHECK(given != variables_.end() && given->is_array());
  beginnings.assign(given->size() + 1, std::nullopt);
  beginnings_ = &beginnings;
  list_ = list;
  std::string text = render();
  for (auto i = static_cast<size_t>(horizon_.needed); i < beginnings.size(); ++i) {
    if (!beginnings[i]) beginnings[i] = {text.size(), ""};
  }
  return text;
}

void Interpreter::print(const Value& value) {
  append_str(*output_, value);
  if (output_->size() > limits::kTemplateOutputBytes) {
    refuse("the rendered text exceeds ", limits::kTemplateOutputBytes, " bytes");
  }
}

Interpreter::Flow Interpreter::execute(const Block& block, const Ref<Scope>& scope) {
  const bool is_rest = beginnings_ != nullptr && captures_ == 0;
  if (is_rest) rest_.push_back({&block, 0, &scope});
  Flow flow = Flow::kNormal;
  for (size_t i = 0; i < block.size() && flow == Flow::kNormal; ++i) {
    if (is_rest) rest_.back().next = i + 1;
    flow = execute(*block[i], scope);
  }
  if (is_rest) rest_.pop_back();
  return flow;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, const Ref<Scope>& scope) {
  const Deeper deeper(*this);
  line_ = statement.line;
  heap_.step();
  switch (statement.kind) {
    case StatementKind::kData:
      output_->append(static_cast<const DataStatement&>(statement).text);
      return Flow::kNormal;
    case StatementKind::kOutput:
      print(evaluate(*static_cast<const OutputStatement&>(statement).value, scope));
      return Flow::kNormal;
    case StatementKind::kIf:
      return run_if(static_cast<const IfStatement&>(statement), scope);
    case StatementKind::kFor: {
      const auto& loop = static_cast<const ForStatement&>(statement);
      const Value items = evaluate(*loop.iterable, scope);
      if (loop.recursive) {  // jinja2 collects the output of a recursive loop first
        Capture capture(*this);
        run_for(loop, items, scope, 0);
        const Value text = capture.take();
        print(text);
      } else {
        run_for(loop, items, scope, 0);
      }
      return Flow::kNormal;
    }
    case StatementKind::kSet:
      run_set(static_cast<const SetStatement&>(statement), scope);
      return Flow::kNormal;
    case StatementKind::kSetBlock:
      return run_set_block(static_cast<const SetBlockStatement&>(statement), scope);
    case StatementKind::kMacro: {
      const auto& macro = static_cast<const MacroStatement&>(statement);
      scope->set(macro.symbol, Value::object(heap_.make<Macro>(macro.macro, scope)));
      return Flow::kNormal;
    }
    case StatementKind::kCallBlock:
      run_call_block(static_cast<const CallBlockStatement&>(statement), scope);
      return Flow::kNormal;
    case StatementKind::kFilterBlock:
      return run_filter_block(static_cast<const FilterBlockStatement&>(statement), scope);
    case StatementKind::kWith:
      return run_with(static_cast<const WithStatement&>(statement), scope);
    case StatementKind::kGeneration:
      run_generation(static_cast<const BodyStatement&>(statement), scope);
      return Flow::kNormal;
    case StatementKind::kScope:
      return execute(static_cast<const BodyStatement&>(statement).body, inner(scope));
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_if(const IfStatement& statement, const Ref<Scope>& scope) {
  for (const auto& [condition, body] : statement.branches) {
    if (truth(evaluate(*condition, scope))) return execute(body, scope);
  }
  return execute(statement.otherwise, scope);
}

Values Interpreter::filtered(const ForStatement& statement, Values items, const Ref<Scope>& scope) {
  Values out;
  for (Value& item : items) {
    const Ref<Scope> tested = inner(scope);
    assign(statement.target, item, tested);
    if (truth(evaluate(*statement.condition, tested))) out.push_back(std::move(item));
  }
  return out;
}

void Interpreter::run_for(const ForStatement& statement, const Value& iterated,
                          const Ref<Scope>& scope, int64_t depth0) {
  const bool watched = is_watched(statement, iterated);
  Values items = watched ? iterated.sequence().unseen_items() : iterate(heap_, iterated);
  if (statement.condition) items = filtered(statement, std::move(items), scope);
  const Ref<Loop> loop = heap_.make<Loop>(statement, scope, std::move(items), depth0);
  if (watched) {
    heap_.step(loop->items.size() / 4);
    loop->horizon = &horizon_;
    loop->skipped = iterated.sequence().skipped();
  }
  bool finished_one = false;  // jinja2 runs `else` if no iteration came to its end
  for (; loop->index0 < static_cast<int64_t>(loop->items.size()); ++loop->index0) {
    const Flow flow = watched ? run_watched(loop, finished_one) : run_once(loop);
    if (flow == Flow::kBreak) break;
    finished_one |= flow == Flow::kNormal;
  }
  if (!finished_one) execute(statement.otherwise, inner(scope));
}

Interpreter::Flow Interpreter::run_once(const Ref<Loop>& loop) {
  heap_.step();
  const Ref<Scope> body = inner(loop->outer);
  body->set(template_.special.loop, Value::object(loop));
  assign(loop->statement.target, loop->items[static_cast<size_t>(loop->index0)], body);
  ++captures_;  // an exception ends the rendering, or a trial, which restores it
  const Flow flow = execute(loop->statement.body, body);
  --captures_;
  return flow;
}

Value Interpreter::recurse(const Loop& loop, const Value& items) {
  if (!loop.statement.recursive) {
    refuse("the loop must have the 'recursive' marker to be called recursively");
  }
  const Deeper deeper(*this);
  const int line = line_;
  Capture capture(*this);
  run_for(loop.statement, items, loop.outer, loop.depth0 + 1);
  line_ = line;
  return capture.take();
}

void Interpreter::check_targets(const Target& target, const Ref<Scope>& scope) {
  if (target.type == Target::Type::kAttribute &&
      !variable(target.symbol, scope).is(Kind::kNamespace)) {
    refuse("cannot assign attribute on non-namespace object");
  }
  for (const Target& item : target.row) check_targets(item, scope);
}

void Interpreter::run_set(const SetStatement& statement, const Ref<Scope>& scope) {
  check_targets(statement.target, scope);
  assign(statement.target, evaluate(*statement.value, scope), scope);
}

Interpreter::Flow Interpreter::run_set_block(const SetBlockStatement& statement,
                                             const Ref<Scope>& scope) {
  check_targets(statement.target, scope);
  const Ref<Scope> body = inner(scope);
  Capture capture(*this);
  const Flow flow = execute(statement.body, body);
  Value text = capture.take();
  if (flow != Flow::kNormal) return flow;
  if (statement.filter) {
    text = filter_chain(*statement.filter, body, text);
  }
  assign(statement.target, text, scope);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_filter_block(const FilterBlockStatement& statement,
                                                const Ref<Scope>& scope) {
  const Ref<Scope> body = inner(scope);
  Capture capture(*this);
  const Flow flow = execute(statement.body, body);
  const Value text = capture.take();
  if (flow != Flow::kNormal) return flow;
  print(filter_chain(*statement.filter, body, text));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_with(const WithStatement& statement, const Ref<Scope>& scope) {
  const Ref<Scope> body = inner(scope);
  for (const auto& [target, value] : statement.bindings) {
    assign(target, evaluate(*value, scope), body);
  }
  return execute(statement.body, body);
}

void Interpreter::run_call_block(const CallBlockStatement& statement, const Ref<Scope>& scope) {
  const Value caller = Value::object(heap_.make<Macro>(statement.caller, scope));
  print(call(static_cast<const CallExpression&>(*statement.call), scope, caller));
}

void Interpreter::run_generation(const BodyStatement& statement, const Ref<Scope>& scope) {
  Capture capture(*this);
  execute(statement.body, inner(scope));
  const Value text = capture.take();
  if (options_.generation) {
    const size_t begin = main_output_.size();
    options_.generation->push_back({begin, begin + text.view().size()});
  }
  print(text);
}

Value Interpreter::run_body(const Block& body, const Ref<Scope>& scope) {
  const int line = line_;
  Capture capture(*this);
  execute(body, scope);
  line_ = line;
  return capture.take();
}

void Interpreter::assign(const Target& target, const Value& value, const Ref<Scope>& scope) {
  switch (target.type) {
    case Target::Type::kName:
      scope->set(target.symbol, value);
      return;
    case Target::Type::kAttribute: {
      const Value object = variable(target.symbol, scope);
      if (!object.is(Kind::kNamespace)) refuse("cannot assign attribute on non-namespace object");
      object.as<Namespace>().set(text(target.attribute), value);
      return;
    }
    case Target::Type::kRow: {
      const Values items = iterate(heap_, value);
      if (items.size() != target.row.size()) {
        refuse(items.size() < target.row.size() ? "not enough" : "too many",
               " values to unpack: expected ", target.row.size(), ", got ", items.size());
      }
      for (size_t i = 0; i < items.size(); ++i) assign(target.row[i], items[i], scope);
      return;
    }
  }
}

Value Interpreter::evaluate(const Expression& expression, const Ref<Scope>& scope) {
  const Deeper deeper(*this);
  line_ = expression.line;
  heap_.step();
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return constant(static_cast<const ConstantExpression&>(expression));
    case ExpressionKind::kName:
      return variable(static_cast<const NameExpression&>(expression).symbol, scope);
    case ExpressionKind::kList:
      return make_list(heap_, values(static_cast<const RowExpression&>(expression).items, scope));
    case ExpressionKind::kTuple:
      return make_tuple(heap_, values(static_cast<const RowExpression&>(expression).items, scope));
    case ExpressionKind::kDict:
      return dict(static_cast<const DictExpression&>(expression), scope);
    case ExpressionKind::kUnary:
      return unary(static_cast<const UnaryExpression&>(expression), scope);
    case ExpressionKind::kBinary:
    case ExpressionKind::kLogic:
      return binary(static_cast<const BinaryExpression&>(expression), scope);
    case ExpressionKind::kCompare:
      return compare(static_cast<const CompareExpression&>(expression), scope);
    case ExpressionKind::kConcatenate:
      return concatenate(static_cast<const ConcatenateExpression&>(expression), scope);
    case ExpressionKind::kConditional:
      return conditional(static_cast<const ConditionalExpression&>(expression), scope);
    case ExpressionKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpression&>(expression);
      return get_attribute(evaluate(*attribute.object, scope), attribute.name);
    }
    case ExpressionKind::kItem:
      return item(static_cast<const ItemExpression&>(expression), scope);
    case ExpressionKind::kCall:
      return call(static_cast<const CallExpression&>(expression), scope, {});
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest: {
      const auto& applied = static_cast<const ApplyExpression&>(expression);
      const Value subject = evaluate(*applied.operand, scope);
      return apply(applied, scope, subject);
    }
    case ExpressionKind::kSlice:
      break;
  }
  refuse("a slice outside of a subscript");
}

}  // namespace lumen::text::jinja
