// Expressions of the interpreter.
#include <algorithm>

#include "lib/base/strings.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/macro.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"

namespace lumen::text::jinja {

Value Interpreter::variable(Symbol symbol, const Ref<Scope>& scope) {
  if (const Value* found = scope->find(symbol)) return *found;
  if (symbol >= context_.size()) context_.resize(template_.symbols.size());
  Value& cached = context_[symbol];
  if (cached.given()) return cached;
  const std::string& name = template_.symbols.name(symbol);
  const auto given = variables_.find(name);
  if (given != variables_.end()) {
    cached = from_json(heap_, *given);
    if (beginnings_ != nullptr && name == list_ && cached.is_sequence()) {
      horizon_.size = static_cast<int64_t>(cached.sequence().items().size());
      cached.sequence().watch(horizon_, 0);
    }
  } else {
    cached = find_global(*this, name);
    if (!cached.given()) cached = undefined(lumen::quoted(name) + " is undefined");
  }
  return cached;
}

Value Interpreter::constant(const ConstantExpression& expression) {
  switch (expression.type) {
    case ConstantExpression::Type::kNone:
      return Value::none();
    case ConstantExpression::Type::kBool:
      return Value::boolean(expression.integer != 0);
    case ConstantExpression::Type::kInt:
      return Value::integer(expression.integer);
    case ConstantExpression::Type::kFloat:
      return Value::real(expression.real);
    case ConstantExpression::Type::kString:
      break;
  }
  heap_.check(expression.text.size());
  heap_.touch(expression.text.size());
  return Value::text(heap_, expression.text);
}

Values Interpreter::values(const Expressions& expressions, const Ref<Scope>& scope) {
  Values out;
  out.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) out.push_back(evaluate(*expression, scope));
  return out;
}

Value Interpreter::dict(const DictExpression& expression, const Ref<Scope>& scope) {
  const Ref<Dict> out = heap_.make<Dict>();
  for (const auto& [key, value] : expression.items) {
    const Value evaluated = evaluate(*key, scope);
    out->set(evaluated, evaluate(*value, scope));
  }
  return Value::object(out);
}

Value Interpreter::unary(const UnaryExpression& expression, const Ref<Scope>& scope) {
  const Value operand = evaluate(*expression.operand, scope);
  if (expression.op == Operator::kNot) return Value::boolean(!truth(operand));
  return expression.op == Operator::kNegate ? negate(operand) : plus(operand);
}

Value Interpreter::binary(const BinaryExpression& expression, const Ref<Scope>& scope) {
  const Value left = evaluate(*expression.left, scope);
  if (expression.op == Operator::kAnd) {
    return truth(left) ? evaluate(*expression.right, scope) : left;
  }
  if (expression.op == Operator::kOr) {
    return truth(left) ? left : evaluate(*expression.right, scope);
  }
  const Value right = evaluate(*expression.right, scope);
  switch (expression.op) {
    case Operator::kAdd:
      return add(heap_, left, right);
    case Operator::kSubtract:
      return subtract(left, right);
    case Operator::kMultiply:
      return multiply(heap_, left, right);
    case Operator::kDivide:
      return divide(left, right);
    case Operator::kFloorDivide:
      return floor_divide(left, right);
    case Operator::kModulo:
      return modulo(heap_, left, right);
    default:
      return power(left, right);
  }
}

bool Interpreter::relate(Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::kEqual:
      return equals(heap_, left, right);
    case Operator::kNotEqual:
      return !equals(heap_, left, right);
    case Operator::kLess:
      return ordered(heap_, left, right, Relation::kLess);
    case Operator::kLessEqual:
      return ordered(heap_, left, right, Relation::kLessEqual);
    case Operator::kGreater:
      return ordered(heap_, left, right, Relation::kGreater);
    case Operator::kGreaterEqual:
      return ordered(heap_, left, right, Relation::kGreaterEqual);
    case Operator::kIn:
      return contains(heap_, right, left);
    default:
      return !contains(heap_, right, left);
  }
}

Value Interpreter::compare(const CompareExpression& expression, const Ref<Scope>& scope) {
  Value left = evaluate(*expression.first, scope);
  for (const auto& [op, operand] : expression.rest) {
    Value right = evaluate(*operand, scope);
    if (!relate(op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::concatenate(const ConcatenateExpression& expression, const Ref<Scope>& scope) {
  TextBuilder out(heap_);
  for (const ExpressionPtr& part : expression.parts) append_str(out, evaluate(*part, scope));
  return Value::text(heap_, out.take());
}

Value Interpreter::conditional(const ConditionalExpression& expression, const Ref<Scope>& scope) {
  if (truth(evaluate(*expression.condition, scope))) return evaluate(*expression.yes, scope);
  if (expression.no) return evaluate(*expression.no, scope);
  return undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Interpreter::item(const ItemExpression& expression, const Ref<Scope>& scope) {
  const Value object = evaluate(*expression.object, scope);
  if (expression.key->kind == ExpressionKind::kSlice) {
    return slice(object, static_cast<const SliceExpression&>(*expression.key), scope);
  }
  return get_item(object, evaluate(*expression.key, scope));
}

namespace {

// Positions a slice selects of `size` elements: Python's slice.indices.
struct SliceRange {
  int64_t start, stop, step, count;
};

SliceRange slice_range(int64_t size, const Value& start, const Value& stop, const Value& step) {
  const int64_t by = step.is_none() ? 1 : step.as_int();
  if (by == 0) refuse("slice step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto clamp = [&](const Value& value, int64_t absent) {
    if (value.is_none()) return absent;
    int64_t position = value.as_int();
    if (position < 0) position += size;  // size ≥ 0: cannot overflow
    return std::clamp(position, low, high);
  };
  const int64_t first = clamp(start, by < 0 ? high : low);
  const int64_t end = clamp(stop, by < 0 ? low : high);
  int64_t count = 0;
  if (by > 0 && first < end) {
    count = (end - first - 1) / by + 1;
  } else if (by < 0 && end < first) {
    // -(by + 1) avoids negating INT64_MIN.
    count = by == INT64_MIN ? 1 : (first - end - 1) / -by + 1;
  }
  return {first, end, by, count};
}

}  // namespace

Value Interpreter::slice(const Value& object, const SliceExpression& expression,
                         const Ref<Scope>& scope) {
  const auto part = [&](const ExpressionPtr& e) { return e ? evaluate(*e, scope) : Value::none(); };
  const Value start = part(expression.start), stop = part(expression.stop),
              step = part(expression.step);
  if (object.is_undefined()) refuse_undefined(object);
  const auto check_index = [](const Value& value) {
    if (!value.is_none() && !value.is_integral()) {
      refuse("slice indices must be integers or none, not ", type_name(value));
    }
  };
  for (const Value& index : {start, stop, step}) check_index(index);
  const bool sliceable =
      object.is_string() || (object.is_sequence() && object.sequence().indexable());
  if (!sliceable) refuse("'", type_name(object), "' object cannot be sliced");
  // What is left of a list without its first items ends where the list does.
  const bool to_end = object.is_sequence() && object.sequence().is_list() && stop.is_none() &&
                      (step.is_none() || step.as_int() == 1) &&
                      (start.is_none() || start.as_int() >= 0);
  Horizon* const horizon = to_end ? object.sequence().horizon() : nullptr;
  const bool shared = horizon != nullptr && !horizon->trial;
  const int64_t whole_size =
      shared ? static_cast<int64_t>(object.sequence().unseen_items().size()) : *length(object);
  const SliceRange range = slice_range(whole_size, start, stop, step);
  if (object.is_string()) {
    const String& whole = object.string();
    const std::string_view bytes = whole.text();
    const bool ascii = whole.length() == static_cast<int64_t>(bytes.size());
    heap_.touch(bytes.size());
    if (range.step == 1 || range.count == 0) {
      const size_t begin = ascii ? static_cast<size_t>(range.start) : offset_of(bytes, range.start);
      const size_t size =
          ascii ? static_cast<size_t>(range.count) : offset_of(bytes.substr(begin), range.count);
      const std::string_view cut = range.count == 0 ? "" : bytes.substr(begin, size);
      heap_.check(cut.size());
      return Value::object(heap_.make<String>(std::string(cut), whole.markup()));
    }
    TextBuilder out(heap_);
    if (!ascii) heap_.check(bytes.size() * sizeof(std::string_view));
    const Pieces characters = ascii ? Pieces() : code_points(bytes);
    for (int64_t i = 0; i < range.count; ++i) {
      const auto position = static_cast<size_t>(range.start + i * range.step);
      out.append(ascii ? bytes.substr(position, 1) : characters[position]);
    }
    return Value::object(heap_.make<String>(out.take(), whole.markup()));
  }
  const Sequence& sequence = object.sequence();
  heap_.check(static_cast<size_t>(range.count) * sizeof(Value));
  heap_.step(static_cast<uint64_t>(range.count) / 4);
  Values out;
  out.reserve(static_cast<size_t>(range.count));
  const Values& items = shared ? sequence.unseen_items() : sequence.items();
  for (int64_t i = 0; i < range.count; ++i) {
    out.push_back(items[static_cast<size_t>(range.start + i * range.step)]);
  }
  if (shared) {
    const int64_t skipped = start.is_none() ? 0 : start.as_int();
    Value rest = make_list(heap_, std::move(out));
    if (skipped <= whole_size) rest.sequence().watch(*horizon, sequence.skipped() + skipped);
    return rest;
  }
  if (!sequence.is_range()) {
    return sequence.is_list() ? make_list(heap_, std::move(out))
                              : make_tuple(heap_, std::move(out));
  }
  const Sequence::Bounds& whole = sequence.bounds;
  const Ref<Sequence> part_range = heap_.make<Sequence>(Sequence::Flavour::kRange, std::move(out));
  const int64_t first = whole.start + range.start * whole.step;
  const int64_t by = whole.step * range.step;
  part_range->bounds = {first, whole.start + range.stop * whole.step, by};
  return Value::object(part_range);
}

Arguments Interpreter::arguments(const CallArguments& expressions, const Ref<Scope>& scope) {
  Arguments out;
  out.positional = values(expressions.positional, scope);
  const auto add_named = [&](const std::string& name, Value value) {
    heap_.step(out.named.size() / 8);
    for (const auto& [known, old] : out.named) {
      if (known == name) refuse("got multiple values for keyword argument ", lumen::quoted(name));
    }
    out.named.emplace_back(name, std::move(value));
  };
  for (const auto& [name, value] : expressions.named) add_named(name, evaluate(*value, scope));
  if (expressions.more_positional) {
    const Values more = iterate(heap_, evaluate(*expressions.more_positional, scope));
    out.positional.insert(out.positional.end(), more.begin(), more.end());
  }
  if (expressions.more_named) {
    const Value more = evaluate(*expressions.more_named, scope);
    if (!more.is_dict()) refuse("argument after ** must be a mapping, not ", type_name(more));
    for (const auto& [key, value] : more.dict().items()) {
      if (!key.is_string()) refuse("keywords must be strings");
      add_named(key.string().text(), value);
    }
  }
  return out;
}

Value Interpreter::call(const CallExpression& expression, const Ref<Scope>& scope,
                        const Value& caller) {
  const Value callee = evaluate(*expression.callee, scope);
  Arguments passed = arguments(expression.arguments, scope);
  if (caller.given()) passed.named.emplace_back("caller", caller);
  line_ = expression.line;
  return call(callee, passed);
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  const Deeper deeper(*this);
  heap_.step();
  switch (callee.kind()) {
    case Kind::kCallable:
      return callee.as<Callable>().call(*this, arguments);
    case Kind::kUndefined:
      refuse_undefined(callee);
    case Kind::kLoop: {
      const auto [items] = parameters("loop", arguments, {"iterable"}, 1);
      return recurse(callee.as<Loop>(), items);
    }
    case Kind::kJoiner: {
      no_parameters("joiner", arguments);
      Joiner& joiner = callee.as<Joiner>();
      joiner.before_change();
      return std::exchange(joiner.used, true) ? joiner.separator : text("");
    }
    default:
      refuse("'", type_name(callee), "' object is not callable");
  }
}

Value Interpreter::apply(const ApplyExpression& expression, const Ref<Scope>& scope,
                         const Value& subject) {
  if (!expression.builtin) {
    refuse(expression.kind == ExpressionKind::kFilter ? "no filter named " : "no test named ",
           lumen::quoted(expression.name));
  }
  Arguments passed = arguments(expression.arguments, scope);
  line_ = expression.line;
  return apply(*expression.builtin, subject, passed);
}

Value Interpreter::filter_chain(const Expression& chain, const Ref<Scope>& scope,
                                const Value& text) {
  const auto& filter = static_cast<const ApplyExpression&>(chain);
  return apply(filter, scope, filter.operand ? filter_chain(*filter.operand, scope, text) : text);
}

Value Interpreter::apply(const Builtin& builtin, const Value& subject, Arguments& arguments) {
  heap_.step();
  return builtin.run(*this, subject, arguments);
}

}  // namespace lumen::text::jinja
