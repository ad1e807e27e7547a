// Filters from one type of value to another.
#include <charconv>
#include <cmath>

#include "lib/base/strings.h"
#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/string_operations.h"

namespace lumen::text::jinja {

namespace {

Value absolute(Interpreter&, const Value& subject, Arguments& arguments) {
  no_parameters("abs", arguments);
  if (subject.is_undefined()) refuse_undefined(subject);
  if (!subject.is_number()) refuse("bad operand type for abs(): '", type_name(subject), "'");
  if (subject.is(Kind::kFloat)) return Value::real(std::fabs(subject.as_double()));
  return subject.as_int() < 0 ? negate(subject) : plus(subject);
}

Value attribute(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [name] = parameters("attr", arguments, {"name"}, 1);
  if (!name.is_string()) refuse("attr needs a name");
  if (subject.is_dict() && !find_method(subject, name.view())) {
    // Unlike `.`, attr does not look at a mapping's keys.
    return in.undefined(str("'dict object' has no attribute ", lumen::quoted(name.view())));
  }
  return in.get_attribute(subject, name.view());
}

Value default_value(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [fallback, boolean] = parameters("default", arguments, {"default_value", "boolean"});
  const bool also_false = boolean.given() && truth(boolean);
  if (!subject.is_undefined() && !(also_false && !truth(subject))) return subject;
  return fallback.given() ? fallback : in.text("");
}

// int(double), or nothing where Python raises OverflowError or ValueError.
bool truncate_real(double real, int64_t& out) {
  if (!std::isfinite(real)) return false;
  if (std::fabs(real) >= 9223372036854775808.0) {
    refuse("the integer of ", float_text(real), " does not fit 64 bits");
  }
  out = static_cast<int64_t>(real);
  return true;
}

Value integer(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto [fallback, base] = parameters("int", arguments, {"default", "base"});
  const Value otherwise = fallback.given() ? fallback : Value::integer(0);
  if (subject.is_undefined()) refuse_undefined(subject);
  int64_t value = 0;
  if (subject.is_integral()) return Value::integer(subject.as_int());
  if (subject.is(Kind::kFloat)) {
    if (std::isinf(subject.as_double())) refuse("cannot convert float infinity to integer");
    return truncate_real(subject.as_double(), value) ? Value::integer(value) : otherwise;
  }
  if (!subject.is_string()) return otherwise;
  const int64_t radix = base.given() ? to_index(base, "base") : 10;
  if (parse_python_int(subject.view(), radix, value)) return Value::integer(value);
  double real = 0;
  if (parse_python_float(subject.view(), real) && truncate_real(real, value)) {
    return Value::integer(value);
  }
  return otherwise;
}

Value real(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto [fallback] = parameters("float", arguments, {"default"});
  if (subject.is_undefined()) refuse_undefined(subject);
  if (subject.is_number()) return Value::real(subject.as_double());
  double value = 0;
  if (subject.is_string() && parse_python_float(subject.view(), value)) return Value::real(value);
  return fallback.given() ? fallback : Value::real(0.0);
}

// round(value, digits) of Python: half to even on the exact value.
Value round_common(const Value& subject, int64_t digits) {
  if (subject.is_integral()) {
    if (digits >= 0) return Value::integer(subject.as_int());
    if (digits < -18) return Value::integer(0);
    int64_t unit = 1;
    for (; digits < 0; ++digits) unit *= 10;
    const int64_t value = subject.as_int();
    if (value > INT64_MAX - unit || value < INT64_MIN + unit)
      refuse("integer result does not fit 64 bits");
    const int64_t rest = ((value % unit) + unit) % unit;
    const int64_t down = value - rest;
    const bool up = rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0);
    return Value::integer(down + (up ? unit : 0));
  }
  const double value = subject.as_double();
  if (!std::isfinite(value) || digits > 323) return subject;
  if (digits < -308) return Value::real(std::copysign(0.0, value));
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return Value::real(std::nearbyint(value / unit) * unit);
  }
  char buffer[700];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed,
                                 static_cast<int>(digits))
                       .ptr;
  double rounded = value;
  std::from_chars(buffer, end, rounded);
  return Value::real(rounded);
}

Value round_number(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto [precision, method] = parameters("round", arguments, {"precision", "method"});
  const std::string_view how = method.given() && method.is_string() ? method.view()
                               : method.given()                     ? "?"
                                                                    : "common";
  if (how != "common" && how != "ceil" && how != "floor") {
    refuse("round: method must be common, ceil or floor");
  }
  if (subject.is_undefined()) refuse_undefined(subject);
  if (!subject.is_number()) refuse("type ", type_name(subject), " cannot be rounded");
  const int64_t digits =
      precision.given() && !precision.is_none() ? to_index(precision, "precision") : 0;
  if (how == "common") {
    if (precision.given() && precision.is_none() && subject.is(Kind::kFloat)) {
      int64_t whole = 0;
      if (!truncate_real(std::nearbyint(subject.as_double()), whole)) {
        refuse("cannot convert float to integer");
      }
      return Value::integer(whole);
    }
    return round_common(subject, digits);
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = subject.as_double() * unit;
  if (!std::isfinite(scaled)) refuse("cannot convert float ", float_text(scaled), " to integer");
  return Value::real((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value length(Interpreter&, const Value& subject, Arguments& arguments) {
  no_parameters("length", arguments);
  const std::optional<int64_t> size = length(subject);
  if (!size) refuse("object of type '", type_name(subject), "' has no len()");
  return Value::integer(*size);
}

// tojson of transformers: json.dumps without HTML escaping.
Value to_json_text(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [ensure_ascii, indent, separators, sort_keys] =
      parameters("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = ensure_ascii.given() && truth(ensure_ascii);
  style.sort_keys = sort_keys.given() && truth(sort_keys);
  if (indent.given() && !indent.is_none()) {
    style.multiline = true;
    style.item_separator = ",";
    if (indent.is_string()) {
      style.indent = std::string(indent.view());
    } else {
      const int64_t columns = std::max<int64_t>(to_index(indent, "indent"), 0);
      in.heap().check(static_cast<size_t>(columns));
      style.indent.assign(static_cast<size_t>(columns), ' ');
    }
  }
  if (separators.given() && !separators.is_none()) {
    const Values pair = iterate(in.heap(), separators);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      refuse("tojson: separators must be two strings");
    }
    style.item_separator = std::string(pair[0].view());
    style.key_separator = std::string(pair[1].view());
  }
  return Value::text(in.heap(), to_json(in.heap(), subject, style));
}

// Not of jinja2: some models' templates read tool arguments given as JSON text.
Value from_json_text(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("from_json", arguments);
  if (!subject.is_string()) refuse("from_json needs a string, not ", type_name(subject));
  in.heap().check(8 * subject.view().size());
  in.heap().touch(8 * subject.view().size());
  return parse_json(in.heap(), subject.view());
}

constexpr Builtin kConversionFilters[] = {
    {"abs", absolute},
    {"attr", attribute},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"float", real},
    {"from_json", from_json_text},
    {"int", integer},
    {"length", length},
    {"round", round_number},
    {"tojson", to_json_text},
};

}  // namespace

std::span<const Builtin> conversion_filters() {
  return kConversionFilters;
}

}  // namespace lumen::text::jinja
