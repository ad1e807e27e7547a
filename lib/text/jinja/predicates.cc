// The language's tests: `x is defined`.
#include <algorithm>

#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"

namespace lumen::text::jinja {

namespace {

// A test of the subject alone.
template <bool (*holds)(const Value&)>
Value simple(Interpreter&, const Value& subject, Arguments& arguments) {
  no_parameters("the test", arguments);
  return Value::boolean(holds(subject));
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is(Kind::kBool);
}
bool is_true(const Value& value) {
  return value.is(Kind::kBool) && value.as_bool();
}
bool is_false(const Value& value) {
  return value.is(Kind::kBool) && !value.as_bool();
}
bool is_integer(const Value& value) {
  return value.is(Kind::kInt);
}
bool is_float(const Value& value) {
  return value.is(Kind::kFloat);
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is_string();
}
bool is_mapping(const Value& value) {
  return value.is_dict();
}
bool is_iterable(const Value& value) {
  return iterable(value) || value.is(Kind::kLoop);
}
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() ||
         (value.is_sequence() && value.sequence().indexable());
}
bool is_callable(const Value& value) {
  return value.is(Kind::kCallable) || value.is(Kind::kLoop) || value.is(Kind::kJoiner) ||
         value.is_undefined();
}
bool is_escaped(const Value& value) {
  return value.is_string() && value.string().markup();
}

// islower, isupper: has cased characters and all of them are so.
bool all_cased(std::string_view text, std::span<const Range> wanted) {
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_code_point(text, pos);
    if (has_property(wanted, c)) {
      any = true;
    } else if (has_property(kProperties.lowercase, c) || has_property(kProperties.uppercase, c) ||
               is_titlecase(c)) {
      return false;
    }
  }
  return any;
}

Value is_lower(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("lower", arguments);
  return Value::boolean(all_cased(to_str(in.heap(), subject), kProperties.lowercase));
}

Value is_upper(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("upper", arguments);
  return Value::boolean(all_cased(to_str(in.heap(), subject), kProperties.uppercase));
}

template <int remainder>
Value parity(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters(remainder ? "odd" : "even", arguments);
  if (subject.is_undefined()) refuse_undefined(subject);
  const Value rest = modulo(in.heap(), subject, Value::integer(2));
  return Value::boolean(equals(in.heap(), rest, Value::integer(remainder)));
}

Value divisible_by(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [number] = parameters("divisibleby", arguments, {"num"}, 1);
  const Value rest = modulo(in.heap(), subject, number);
  return Value::boolean(equals(in.heap(), rest, Value::integer(0)));
}

Value same_as(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto [other] = parameters("sameas", arguments, {"other"}, 1);
  return Value::boolean(subject.same(other));
}

Value is_in(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [container] = parameters("in", arguments, {"seq"}, 1);
  return Value::boolean(contains(in.heap(), container, subject));
}

template <bool equal>
Value equality(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [other] = parameters("eq", arguments, {"other"}, 1);
  return Value::boolean(equals(in.heap(), subject, other) == equal);
}

template <Relation relation>
Value relation_test(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [other] = parameters("comparison", arguments, {"other"}, 1);
  return Value::boolean(ordered(in.heap(), subject, other, relation));
}

Value names_filter(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("filter", arguments);
  hash_value(in.heap(), subject);  // refuses what cannot be a key
  return Value::boolean(subject.is_string() && find_filter(subject.view()) != nullptr);
}

Value names_test(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("test", arguments);
  hash_value(in.heap(), subject);
  return Value::boolean(subject.is_string() && find_test(subject.view()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", equality<false>},
    {"<", relation_test<Relation::kLess>},
    {"<=", relation_test<Relation::kLessEqual>},
    {"==", equality<true>},
    {">", relation_test<Relation::kGreater>},
    {">=", relation_test<Relation::kGreaterEqual>},
    {"boolean", simple<is_boolean>},
    {"callable", simple<is_callable>},
    {"defined", simple<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", equality<true>},
    {"equalto", equality<true>},
    {"escaped", simple<is_escaped>},
    {"even", parity<0>},
    {"false", simple<is_false>},
    {"filter", names_filter},
    {"float", simple<is_float>},
    {"ge", relation_test<Relation::kGreaterEqual>},
    {"greaterthan", relation_test<Relation::kGreater>},
    {"gt", relation_test<Relation::kGreater>},
    {"in", is_in},
    {"integer", simple<is_integer>},
    {"iterable", simple<is_iterable>},
    {"le", relation_test<Relation::kLessEqual>},
    {"lessthan", relation_test<Relation::kLess>},
    {"lower", is_lower},
    {"lt", relation_test<Relation::kLess>},
    {"mapping", simple<is_mapping>},
    {"ne", equality<false>},
    {"none", simple<is_none>},
    {"number", simple<is_number>},
    {"odd", parity<1>},
    {"sameas", same_as},
    {"sequence", simple<is_sequence>},
    {"string", simple<is_string>},
    {"test", names_test},
    {"true", simple<is_true>},
    {"undefined", simple<is_undefined>},
    {"upper", is_upper},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests),
                                  [&](const Builtin& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : &*found;
}

}  // namespace lumen::text::jinja
