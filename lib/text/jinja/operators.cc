#include "lib/text/jinja/operators.h"

#include <cmath>
#include <functional>

#include "lib/base/limits.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/python_text.h"
#include "lib/text/jinja/string_operations.h"

namespace lumen::text::jinja {

namespace {

void check_depth(int depth) {
  if (depth > limits::kTemplateDepth) {
    refuse("a value is nested deeper than ", limits::kTemplateDepth, " levels");
  }
}

[[noreturn]] void refuse_operands(std::string_view symbol, const Value& a, const Value& b) {
  if (a.is_undefined()) refuse_undefined(a);
  if (b.is_undefined()) refuse_undefined(b);
  refuse("unsupported operand types for ", symbol, ": '", type_name(a), "' and '", type_name(b),
         "'");
}

[[noreturn]] void refuse_overflow() {
  refuse("integer result does not fit 64 bits");
}

bool both_integral(const Value& a, const Value& b) {
  return a.is_integral() && b.is_integral();
}
bool both_numbers(const Value& a, const Value& b) {
  return a.is_number() && b.is_number();
}

// -1, 0, 1; 2 if unordered (NaN). Exact also between int and float.
int compare_numbers(const Value& a, const Value& b) {
  if (both_integral(a, b)) {
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  }
  const long double x = a.is(Kind::kFloat) ? static_cast<long double>(a.as_double())
                                           : static_cast<long double>(a.as_int());
  const long double y = b.is(Kind::kFloat) ? static_cast<long double>(b.as_double())
                                           : static_cast<long double>(b.as_int());
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

std::string_view family(const Sequence& sequence) {
  if (sequence.is_list()) return "list";
  if (sequence.is_tuple()) return "tuple";
  if (sequence.is_range()) return "range";
  return {};
}

bool equal_sequences(Heap& heap, const Value& a, const Value& b, int depth) {
  const Sequence& x = a.sequence();
  const Sequence& y = b.sequence();
  if (family(x).empty() || family(x) != family(y)) return a.same(b);
  if (x.items().size() != y.items().size()) return false;
  for (size_t i = 0; i < x.items().size(); ++i) {
    if (!equals(heap, x.items()[i], y.items()[i], depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(Heap& heap, const Dict& x, const Dict& y, int depth) {
  if (x.size() != y.size()) return false;
  for (const auto& [key, value] : x.items()) {
    const Value* other = y.find(key);
    if (!other || !equals(heap, value, *other, depth + 1)) return false;
  }
  return true;
}

Value repeat(Heap& heap, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const auto times = static_cast<size_t>(count);
  if (value.is_string()) {
    const std::string_view unit = value.view();
    if (unit.empty()) return value;
    if (times > limits::kTemplateHeapBytes / unit.size()) heap.check(SIZE_MAX);
    heap.check(times * unit.size());
    TextBuilder out(heap);
    if (unit.size() == 1) {
      out.append(times, unit[0]);
    } else {
      for (size_t i = 0; i < times; ++i) out.append(unit);
    }
    return Value::object(heap.make<String>(out.take(), value.string().markup()));
  }
  const Values& unit = value.sequence().items();
  if (!unit.empty() && times > limits::kTemplateHeapBytes / unit.size()) heap.check(SIZE_MAX);
  heap.check(times * unit.size() * sizeof(Value));
  heap.step(times * unit.size() / 4);
  Values out;
  out.reserve(times * unit.size());
  for (size_t i = 0; i < times; ++i) out.insert(out.end(), unit.begin(), unit.end());
  return value.sequence().is_list() ? make_list(heap, std::move(out))
                                    : make_tuple(heap, std::move(out));
}

bool repeatable(const Value& value) {
  return value.is_string() ||
         (value.is_sequence() && (value.sequence().is_list() || value.sequence().is_tuple()));
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.string().markup() ? "Markup" : "str";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kSequence:
      break;
  }
  switch (value.sequence().flavour()) {
    case Sequence::Flavour::kList:
      return "list";
    case Sequence::Flavour::kTuple:
    case Sequence::Flavour::kGroup:
      return "tuple";
    case Sequence::Flavour::kRange:
      return "range";
    case Sequence::Flavour::kKeys:
      return "dict_keys";
    case Sequence::Flavour::kValues:
      return "dict_values";
    case Sequence::Flavour::kItems:
      return "dict_items";
    case Sequence::Flavour::kGenerator:
      break;
  }
  return "generator";
}

void refuse_undefined(const Value& value) {
  refuse(value.as<String>().text());
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0.0;
    case Kind::kString:
      return !value.view().empty();
    case Kind::kSequence:
      return value.sequence().is_generator() || !value.sequence().empty();
    case Kind::kDict:
      return value.dict().size() != 0;
    default:
      return true;
  }
}

bool equals(Heap& heap, const Value& a, const Value& b, int depth) {
  heap.step();
  if (both_numbers(a, b)) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      heap.touch(std::min(a.view().size(), b.view().size()));
      return a.view() == b.view();
    case Kind::kSequence:
      check_depth(depth);
      return a.same(b) || equal_sequences(heap, a, b, depth);
    case Kind::kDict:
      check_depth(depth);
      return a.same(b) || equal_dicts(heap, a.dict(), b.dict(), depth);
    default:
      return a.same(b);
  }
}

int compare(Heap& heap, const Value& a, const Value& b, std::string_view symbol, int depth) {
  heap.step();
  if (both_numbers(a, b)) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    heap.touch(std::min(a.view().size(), b.view().size()));
    const int order = a.view().compare(b.view());  // UTF-8 sorts as its code points do
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_sequence() && b.is_sequence()) {
    const Sequence& x = a.sequence();
    const Sequence& y = b.sequence();
    if ((x.is_list() && y.is_list()) || (x.is_tuple() && y.is_tuple())) {
      check_depth(depth);
      const size_t shared = std::min(x.items().size(), y.items().size());
      for (size_t i = 0; i < shared; ++i) {
        if (equals(heap, x.items()[i], y.items()[i], depth + 1)) continue;
        return compare(heap, x.items()[i], y.items()[i], symbol, depth + 1);
      }
      return x.items().size() < y.items().size() ? -1 : x.items().size() > y.items().size() ? 1 : 0;
    }
  }
  if (a.is_undefined()) refuse_undefined(a);
  if (b.is_undefined()) refuse_undefined(b);
  refuse("'", symbol, "' not supported between instances of '", type_name(a), "' and '",
         type_name(b), "'");
}

bool ordered(Heap& heap, const Value& a, const Value& b, Relation relation) {
  static constexpr std::string_view kSymbols[] = {"<", "<=", ">", ">="};
  const int order = compare(heap, a, b, kSymbols[static_cast<int>(relation)]);
  if (order == 2) return false;
  switch (relation) {
    case Relation::kLess:
      return order < 0;
    case Relation::kLessEqual:
      return order <= 0;
    case Relation::kGreater:
      return order > 0;
    case Relation::kGreaterEqual:
      return order >= 0;
  }
  return false;
}

size_t hash_value(Heap& heap, const Value& value, int depth) {
  heap.step();
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<int64_t>()(value.as_int());
    case Kind::kFloat: {
      const double real = value.as_double();
      if (real == std::floor(real) && std::fabs(real) < 9e18) {
        return std::hash<int64_t>()(static_cast<int64_t>(real));
      }
      return std::hash<double>()(real);
    }
    case Kind::kString:
      heap.touch(value.view().size());
      return std::hash<std::string_view>()(value.view());
    case Kind::kSequence:
      if (value.sequence().is_tuple()) {
        check_depth(depth);
        size_t hash = 17;
        for (const Value& item : value.sequence().items()) {
          hash = hash * 1000003 ^ hash_value(heap, item, depth + 1);
        }
        return hash;
      }
      if (value.sequence().is_range() || value.sequence().is_generator()) return 1;
      break;
    case Kind::kDict:
      break;
    default:
      return static_cast<size_t>(value.kind());
  }
  refuse("unhashable type: '", type_name(value), "'");
}

Value add(Heap& heap, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return concatenate(heap, a, b);
  if (both_integral(a, b)) {
    int64_t sum;
    if (__builtin_add_overflow(a.as_int(), b.as_int(), &sum)) refuse_overflow();
    return Value::integer(sum);
  }
  if (both_numbers(a, b)) return Value::real(a.as_double() + b.as_double());
  if (repeatable(a) && repeatable(b) && !a.is_string() && !b.is_string() &&
      a.sequence().is_list() == b.sequence().is_list()) {
    const Values& x = a.sequence().items();
    const Values& y = b.sequence().items();
    heap.check((x.size() + y.size()) * sizeof(Value));
    heap.step((x.size() + y.size()) / 4);
    Values out;
    out.reserve(x.size() + y.size());
    out.insert(out.end(), x.begin(), x.end());
    out.insert(out.end(), y.begin(), y.end());
    return a.sequence().is_list() ? make_list(heap, std::move(out))
                                  : make_tuple(heap, std::move(out));
  }
  refuse_operands("+", a, b);
}

Value subtract(const Value& a, const Value& b) {
  if (both_integral(a, b)) {
    int64_t difference;
    if (__builtin_sub_overflow(a.as_int(), b.as_int(), &difference)) refuse_overflow();
    return Value::integer(difference);
  }
  if (both_numbers(a, b)) return Value::real(a.as_double() - b.as_double());
  refuse_operands("-", a, b);
}

Value multiply(Heap& heap, const Value& a, const Value& b) {
  if (both_integral(a, b)) {
    int64_t product;
    if (__builtin_mul_overflow(a.as_int(), b.as_int(), &product)) refuse_overflow();
    return Value::integer(product);
  }
  if (both_numbers(a, b)) return Value::real(a.as_double() * b.as_double());
  if (repeatable(a) && b.is_integral()) return repeat(heap, a, b.as_int());
  if (repeatable(b) && a.is_integral()) return repeat(heap, b, a.as_int());
  refuse_operands("*", a, b);
}

Value divide(const Value& a, const Value& b) {
  if (!both_numbers(a, b)) refuse_operands("/", a, b);
  if (b.as_double() == 0) refuse("division by zero");
  return Value::real(a.as_double() / b.as_double());
}

namespace {

int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == 0) refuse("integer division or modulo by zero");
  if (a == INT64_MIN && b == -1) refuse_overflow();
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

// Python's divmod for floats: the remainder has the sign of the divisor.
std::pair<double, double> floor_divmod(double a, double b) {
  if (b == 0) refuse("float floor division or modulo by zero");
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (quotient != 0) {
    const double floored = std::floor(quotient);
    quotient = quotient - floored > 0.5 ? floored + 1 : floored;
  } else {
    quotient = std::copysign(0.0, a / b);
  }
  return {quotient, remainder};
}

}  // namespace

Value floor_divide(const Value& a, const Value& b) {
  if (both_integral(a, b)) return Value::integer(floor_quotient(a.as_int(), b.as_int()));
  if (both_numbers(a, b)) return Value::real(floor_divmod(a.as_double(), b.as_double()).first);
  refuse_operands("//", a, b);
}

Value modulo(Heap& heap, const Value& a, const Value& b) {
  if (a.is_string()) return percent_format(heap, a, b);
  if (both_integral(a, b)) {
    if (b.as_int() == -1) return Value::integer(0);
    return Value::integer(a.as_int() - floor_quotient(a.as_int(), b.as_int()) * b.as_int());
  }
  if (both_numbers(a, b)) return Value::real(floor_divmod(a.as_double(), b.as_double()).second);
  refuse_operands("%", a, b);
}

Value power(const Value& a, const Value& b) {
  if (!both_numbers(a, b)) refuse_operands("**", a, b);
  if (both_integral(a, b) && b.as_int() >= 0) {
    int64_t base = a.as_int(), result = 1;
    for (int64_t exponent = b.as_int(); exponent > 0; exponent >>= 1) {
      if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) refuse_overflow();
      if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) refuse_overflow();
    }
    return Value::integer(result);
  }
  const double base = a.as_double(), exponent = b.as_double();
  if (base == 0 && exponent < 0) refuse("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      exponent != std::floor(exponent)) {
    refuse("a negative number to a fractional power is complex, which templates do not have");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    refuse("the result of ** is too large for a float");
  }
  return Value::real(result);
}

Value negate(const Value& a) {
  if (a.is_integral()) {
    if (a.as_int() == INT64_MIN) refuse_overflow();
    return Value::integer(-a.as_int());
  }
  if (a.is_number()) return Value::real(-a.as_double());
  if (a.is_undefined()) refuse_undefined(a);
  refuse("bad operand type for unary -: '", type_name(a), "'");
}

Value plus(const Value& a) {
  if (a.is_integral()) return Value::integer(a.as_int());
  if (a.is_number()) return a;
  if (a.is_undefined()) refuse_undefined(a);
  refuse("bad operand type for unary +: '", type_name(a), "'");
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is_string()) {
        refuse("'in <string>' requires string as left operand, not ", type_name(item));
      }
      heap.touch(container.view().size());
      return find(heap, container.view(), item.view()) != std::string_view::npos;
    case Kind::kDict:
      return container.dict().find(item) != nullptr;
    case Kind::kSequence: {
      const Values spent =
          container.sequence().is_generator() ? container.sequence().drain() : Values();
      const Values& items =
          container.sequence().is_generator() ? spent : container.sequence().items();
      for (const Value& candidate : items) {
        if (candidate.same(item) || equals(heap, candidate, item)) return true;
      }
      return false;
    }
    default:
      refuse("argument of type '", type_name(container), "' is not iterable");
  }
}

std::optional<int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.string().length();
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Kind::kSequence:
      if (value.sequence().is_generator()) return std::nullopt;
      return value.sequence().size();
    default:
      return std::nullopt;
  }
}

bool iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() || value.is_sequence();
}

Values iterate(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kString: {
      heap.check(static_cast<size_t>(value.string().length()) * (sizeof(Value) + sizeof(String)));
      heap.step(static_cast<uint64_t>(value.string().length()));
      Values out;
      for (std::string_view character : code_points(value.view())) {
        out.push_back(Value::text(heap, std::string(character)));  // plain, also of Markup
      }
      return out;
    }
    case Kind::kDict: {
      heap.step(value.dict().size());
      heap.check(value.dict().size() * sizeof(Value));
      Values out;
      out.reserve(value.dict().size());
      for (const auto& [key, item] : value.dict().items()) out.push_back(key);
      return out;
    }
    case Kind::kSequence: {
      if (value.sequence().is_generator()) return value.sequence().drain();
      const Values& items = value.sequence().items();
      heap.step(items.size() / 4);
      heap.check(items.size() * sizeof(Value));
      return items;
    }
    default:
      refuse("'", type_name(value), "' object is not iterable");
  }
}

int64_t to_index(const Value& value, std::string_view what) {
  if (value.is_integral()) return value.as_int();
  if (value.is_undefined()) refuse_undefined(value);
  refuse(what, " must be an integer, not '", type_name(value), "'");
}

}  // namespace lumen::text::jinja
