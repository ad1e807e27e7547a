#include "lib/text/grammar/schema_scalars.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/text/grammar/schema_numbers.h"
#include "lib/text/grammar/schema_pattern.h"

namespace lumen::text::grammar {
namespace {

using io::Json;

// Formats as patterns: dates without the 29th of February, so that all exist.
constexpr std::string_view kDate =
    "([1-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
    "02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kUuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";

// One name of a host, without its dots.
constexpr std::string_view kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr std::string_view kIpv4 =
    "((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}"
    "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
constexpr std::string_view kBase64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
constexpr std::string_view kPart = "[A-Za-z0-9_+-]{1,32}";  // of an address of mail

// Formats of whole numbers, as schemas of Rust and of OpenAPI have them.
struct IntegerFormat {
  std::string_view name;
  std::optional<int64_t> least, most;
};
constexpr IntegerFormat kIntegerFormats[] = {{"int8", INT8_MIN, INT8_MAX},
                                             {"int16", INT16_MIN, INT16_MAX},
                                             {"int32", INT32_MIN, INT32_MAX},
                                             {"int64", {}, {}},
                                             {"int", {}, {}},
                                             {"uint8", 0, UINT8_MAX},
                                             {"uint16", 0, UINT16_MAX},
                                             {"uint32", 0, UINT32_MAX},
                                             {"uint64", 0, {}},
                                             {"uint", 0, {}}};

// "" for a format that is not known, ".*" for one that says nothing about characters.
std::string pattern_of_format(std::string_view format) {
  const std::string host = str("(", kLabel, "\\.){1,4}[A-Za-z]{2,24}");
  const std::pair<std::string_view, std::string> kPatterns[] = {
      {"date", std::string(kDate)},
      {"time", std::string(kTime)},
      {"date-time", str(kDate, "T", kTime)},
      {"duration",
       "P([1-9][0-9]{0,3}W|[1-9][0-9]{0,3}D(T[1-9][0-9]{0,3}[HMS])?|"
       "T([1-9][0-9]{0,3}H)?([1-9][0-9]{0,3}M)?[0-9]{1,4}S)"},
      {"uuid", std::string(kUuid)},
      {"uuid4", str("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")},
      {"email", str(kPart, "(\\.", kPart, "){0,2}@", host)},
      {"hostname", host},
      {"ipv4", std::string(kIpv4)},
      {"ipv6", "[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}"},
      {"uri", str("https?://", host, "(:[1-9][0-9]{1,3})?(/[A-Za-z0-9._~-]{0,64}){0,8}",
                  "(\\?[A-Za-z0-9._~=&-]{1,256})?(#[A-Za-z0-9._~-]{1,64})?")},
      {"regex", "[A-Za-z0-9 _-]*"},
      {"byte", std::string(kBase64)},
      {"base64", std::string(kBase64)},
      {"ipvanyaddress", std::string(kIpv4)},
  };
  for (const auto& [name, pattern] : kPatterns) {
    if (name == format) return str("^(", pattern, ")$");
  }
  for (const char* plain : {"password", "binary", "path", "file-path", "directory-path"}) {
    if (format == plain) return ".*";
  }
  return "";
}

// Patterns that programs write and that json_pattern cannot say, as others that allow less.
std::string expressible(std::string pattern) {
  if (pattern == R"(^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$)") return R"(^[+-]?\d+(\.\d*)?$)";  // Pydantic
  constexpr std::string_view kZodEmail = R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@)"
                                         R"(([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)";
  return pattern == kZodEmail ? pattern_of_format("email") : pattern;
}

std::string_view type_of(const Json& value) {
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_null()) return "null";
  const auto number = value.get<double>();
  return std::trunc(number) == number ? "integer" : "number";
}

// One bound of a number as the schema has it, which is itself allowed or not.
struct Bound {
  const Json* value;
  bool is_open;
};

std::optional<Bound> given_bound(const Json& schema, bool is_lower, Place place) {
  const char* key = is_lower ? "minimum" : "maximum";
  const char* open_key = is_lower ? "exclusiveMinimum" : "exclusiveMaximum";
  const Json* given = io::find(schema, key);
  const Json* open = io::find(schema, open_key);
  bool is_open = false;
  if (open && open->is_boolean()) {  // as up to draft 4
    is_open = *open == true;
    open = nullptr;
  }
  if (given && open) {
    unsupported(place, key, " beside ", open_key, " is not supported; leave the weaker one out");
  }
  if (open) given = open, is_open = true;
  if (!given) return std::nullopt;
  if (!given->is_number()) {
    malformed(place, is_open ? open_key : key, ": expected a number, found ", io::describe(given));
  }
  const auto number = given->get<double>();
  if (std::abs(number) >= 0x1p63 && is_lower == (number < 0)) return std::nullopt;  // beyond all
  constexpr double kLargest = 0x1p62;
  if (std::abs(number) > kLargest) {
    unsupported(place, io::describe(given), " as a bound is not supported: it is too large");
  }
  return Bound{given, is_open};
}

// The nearest whole number that is allowed.
std::optional<int64_t> whole_bound(const Json& schema, bool is_lower, Place place) {
  const auto bound = given_bound(schema, is_lower, place);
  if (!bound) return std::nullopt;
  const double number = bound->value->get<double>();
  if (std::trunc(number) != number) {
    return static_cast<int64_t>(is_lower ? std::ceil(number) : std::floor(number));
  }
  const int64_t exact = bound->value->is_number_integer() ? bound->value->get<int64_t>()
                                                          : static_cast<int64_t>(number);
  return exact + (!bound->is_open ? 0 : is_lower ? 1 : -1);
}

// By the digits that the number needs; without one the largest number of kMostDigits digits.
DecimalBound decimal_bound(const std::optional<Bound>& bound, bool is_lower, Place place) {
  if (!bound) return {is_lower, 9'999'999'999'999'999};
  std::array<char, 512> text;  // the smallest number has some 340 digits
  const double number = bound->value->get<double>();
  const auto end = std::to_chars(text.data(), text.data() + text.size(), std::abs(number),
                                 std::chars_format::fixed);
  const std::string_view digits(text.data(), static_cast<size_t>(end.ptr - text.data()));
  const size_t point = std::min(digits.find('.'), digits.size());
  DecimalBound result = {number < 0, 0, "", bound->is_open};
  if (bound->value->is_number_integer()) {
    const auto exact = bound->value->get<int64_t>();
    result.whole = static_cast<uint64_t>(exact < 0 ? -exact : exact);
  } else {
    result.whole = static_cast<uint64_t>(std::abs(number));
  }
  result.fraction = digits.substr(std::min(point + 1, digits.size()));
  while (result.fraction.ends_with('0')) result.fraction.pop_back();
  if (result.fraction.size() > kMostDigits) {
    unsupported(place, io::describe(bound->value), " as a bound is not supported: more than ",
                kMostDigits, " digits after the point");
  }
  return result;
}

// multipleOf, of numbers that are not whole only steps that whole numbers are multiples of.
std::optional<NumberStep> number_step(const Json& schema, bool is_integer, Place place) {
  constexpr uint32_t kMostDecimals = 4;
  constexpr double kMostNumerator = 1000;
  const Json* given = io::find(schema, "multipleOf");
  if (!given) return std::nullopt;
  if (!given->is_number() || given->get<double>() <= 0) {
    malformed(place, "multipleOf: expected a number above 0, found ", io::describe(given));
  }
  uint64_t power = 1;
  for (NumberStep step{0, 0}; step.decimals <= kMostDecimals; ++step.decimals, power *= 10) {
    const double number = given->get<double>() * static_cast<double>(power);
    if (number > kMostNumerator) break;
    step.numerator = static_cast<uint64_t>(std::round(number));
    if (step.numerator == 0 || std::abs(number - std::round(number)) > 1e-9 * number) continue;
    // Of a fraction in lowest terms whole multiples are those of its numerator.
    if (is_integer) return NumberStep{step.numerator / std::gcd(step.numerator, power), 0};
    if (step.decimals == 0 || power % step.numerator == 0) return step;
  }
  unsupported(place, "multipleOf: found ", io::describe(given), ", supported are whole numbers ",
              "up to 1000 and, where the value need not be whole, 0.5, 0.25, 0.1, 0.05, 0.01 and ",
              "the like");
}

}  // namespace

bool keeps_bounds(const Json& value, const Json& schema, Place place) {
  Json type_only = Json::object();
  for (const char* key : {"type", "nullable"}) {
    if (const Json* given = io::find(schema, key)) type_only[key] = *given;
  }
  const std::vector<std::string> types = types_of(type_only, place);
  const bool is_of_type =
      types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& name) {
        return name == type_of(value) || (name == "number" && type_of(value) == "integer");
      });
  if (!is_of_type) return false;
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const auto length = static_cast<uint64_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
    return length >= count_member(schema, "minLength", place).value_or(0) &&
           length <= count_member(schema, "maxLength", place).value_or(kUnbounded);
  }
  if (!value.is_number()) return true;
  const auto number = value.get<double>();
  for (const bool is_lower : {true, false}) {
    const std::optional<Bound> bound = given_bound(schema, is_lower, place);
    if (!bound) continue;
    const auto limit = bound->value->get<double>();
    if (number == limit ? bound->is_open : (number < limit) == is_lower) return false;
  }
  return true;
}

std::vector<Json> listed_values(const Json& schema, Place place) {
  if (!says_only(schema, {"enum", "const", "type", "nullable"})) {
    unsupported(place, "enum and const go together only with type; leave the other keywords out");
  }
  Json values = Json::array();
  const Json* constant = io::find(schema, "const");
  if (constant) values.push_back(*constant);
  if (const Json* list = array_member(schema, "enum", place)) {
    if (!constant) {
      values = *list;
    } else if (std::find(list->begin(), list->end(), *constant) == list->end()) {
      malformed(place, "const is none of the values of enum, so no value is allowed");
    }
  }
  std::vector<Json> listed;
  std::set<std::string> seen;
  for (const Json& one : values) {
    if (keeps_bounds(one, schema, place) && seen.insert(one.dump()).second) listed.push_back(one);
  }
  if (is_nullable(schema, place) && seen.insert("null").second) listed.push_back(nullptr);
  if (listed.empty()) malformed(place, "no value of enum or const has the type");
  return listed;
}

ExpressionId string_values(JsonValues& json, const Json& schema, Place place) {
  const auto least = count_member(schema, "minLength", place);
  const auto most = count_member(schema, "maxLength", place);
  const Json* pattern = io::find(schema, "pattern");
  const Json* format = io::find(schema, "format");
  if (most && *most < least.value_or(0)) {
    malformed(place, "minLength ", *least, " is more than maxLength ", *most);
  }
  const LengthRange length = {least.value_or(0), most.value_or(kUnbounded)};
  std::string wanted = ".*";
  if (format) {
    const std::string name = text_of(*format, place + "/format");
    wanted = pattern_of_format(name);
    if (wanted.empty()) {
      unsupported(place, "the format ", quoted(name),
                  " is not supported for texts; there are date, time, date-time, duration, uuid, ",
                  "email, hostname, ipv4, ipv6, uri, regex, byte, password, binary and path");
    }
  }
  // Beside a pattern, which says it better, a format is an annotation, as by default it always is.
  if (pattern) wanted = expressible(text_of(*pattern, place + "/pattern"));
  if (pattern || wanted != ".*") {
    return with_context(str(place, "/", pattern ? "pattern" : "format"), [&] {
      return json.quoted_text(json_pattern(json.rules(), wanted, length));
    });
  }
  if (!least && !most) return json.any_string();
  return json.quoted_text(json.rules().repeat(json.character(), length.least, length.most));
}

namespace {

ExpressionId whole_values(JsonValues& json, const Json& schema, Place place, uint64_t divisor) {
  std::optional<int64_t> least = whole_bound(schema, true, place);
  std::optional<int64_t> most = whole_bound(schema, false, place);
  const Json* format = io::find(schema, "format");
  for (const IntegerFormat& one : kIntegerFormats) {
    if (!format || *format != one.name) continue;
    if (one.least) least = std::max(least.value_or(*one.least), *one.least);
    if (one.most) most = std::min(most.value_or(*one.most), *one.most);
  }
  if (!least && !most && divisor == 1) return json.any_number(true);
  IntegerRange range;
  if (least) range.least = *least;
  if (most) range.most = *most;
  if (!most && range.least > range.most) range.most = INT64_MAX;
  if (!least && range.most < range.least) range.least = INT64_MIN + 1;
  if (range.least > range.most) {
    malformed(place, "no number is from ", range.least, " to ", range.most);
  }
  return integers(json.rules(), range, divisor);
}

}  // namespace

ExpressionId number_values(JsonValues& json, const Json& schema, Place place, bool is_integer) {
  if (const Json* format = io::find(schema, "format")) {
    const std::string name = text_of(*format, place + "/format");
    const bool is_of_integers =
        std::any_of(std::begin(kIntegerFormats), std::end(kIntegerFormats),
                    [&](const IntegerFormat& one) { return one.name == name; });
    const bool is_known =
        (is_of_integers && is_integer) || name == "int64" || name == "float" || name == "double";
    if (!is_known) {
      unsupported(place, "the format ", quoted(name),
                  " is not supported for numbers; there are int8 to int64, uint8 to uint64, float ",
                  "and double");
    }
  }
  const std::optional<NumberStep> step = number_step(schema, is_integer, place);
  if (is_integer || (step && step->decimals == 0)) {
    return whole_values(json, schema, place, step ? step->numerator : 1);
  }
  const std::optional<Bound> least = given_bound(schema, true, place);
  const std::optional<Bound> most = given_bound(schema, false, place);
  if (!least && !most && !step) return json.any_number(false);
  if (least && most) {
    const double low = least->value->get<double>(), high = most->value->get<double>();
    if (low > high || (low == high && (least->is_open || most->is_open))) {
      malformed(place, "no number is from ", least->value->dump(), " to ", most->value->dump());
    }
  }
  return decimals(json.rules(), decimal_bound(least, true, place),
                  decimal_bound(most, false, place), step.value_or(NumberStep{}));
}

}  // namespace lumen::text::grammar
