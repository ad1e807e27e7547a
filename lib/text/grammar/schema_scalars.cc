#include "lib/text/grammar/schema_scalars.h"

#include <algorithm>
#include <cmath>
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

std::string pattern_of_format(std::string_view format) {
  if (format == "date") return str("^", kDate, "$");
  if (format == "time") return str("^", kTime, "$");
  if (format == "date-time") return str("^", kDate, "T", kTime, "$");
  if (format == "uuid") return str("^", kUuid, "$");
  return "";
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

// One bound of a number: a whole one, which is itself allowed or not.
struct Bound {
  int64_t value;
  bool is_open;
};

std::optional<Bound> bound(const Json& schema, bool is_lower, bool is_integer, Place place) {
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
  double number = given->get<double>();
  constexpr double kLargest = 0x1p62;
  if (std::trunc(number) != number) {
    if (!is_integer) {
      unsupported(place, io::describe(given),
                  " as a bound of a number that need not be whole is "
                  "not supported; use a whole number");
    }
    number = is_lower ? std::ceil(number) : std::floor(number);
    is_open = false;
  }
  if (std::abs(number) > kLargest) {
    unsupported(place, io::describe(given), " as a bound is not supported: it is too large");
  }
  const int64_t exact =
      given->is_number_integer() ? given->get<int64_t>() : static_cast<int64_t>(number);
  if (is_integer && is_open) return Bound{exact + (is_lower ? 1 : -1), false};
  return Bound{exact, is_open};
}

}  // namespace

ExpressionId listed_values(JsonValues& json, const Json& schema, Place place) {
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
  Json type_only = Json::object();
  for (const char* key : {"type", "nullable"}) {
    if (const Json* given = io::find(schema, key)) type_only[key] = *given;
  }
  const std::vector<std::string> types = types_of(type_only, place);
  std::vector<ExpressionId> ways;
  std::set<std::string> seen;
  for (const Json& one : values) {
    const std::string_view type = type_of(one);
    const bool fits = types.empty() || std::any_of(types.begin(), types.end(), [&](auto& name) {
                        return name == type || (name == "number" && type == "integer");
                      });
    if (fits && seen.insert(one.dump()).second) ways.push_back(json.rules().literal(one.dump()));
  }
  if (is_nullable(schema, place) && seen.insert("null").second) {
    ways.push_back(json.rules().literal("null"));
  }
  if (ways.empty()) malformed(place, "no value of enum or const has the type");
  return json.rules().choice(std::move(ways));
}

ExpressionId string_values(JsonValues& json, const Json& schema, Place place) {
  const auto least = count_member(schema, "minLength", place);
  const auto most = count_member(schema, "maxLength", place);
  const Json* pattern = io::find(schema, "pattern");
  const Json* format = io::find(schema, "format");
  if ((least || most) && (pattern || format)) {
    unsupported(place,
                "minLength and maxLength beside pattern or format are not supported; write "
                "the length into the pattern");
  }
  if (pattern && format) {
    unsupported(place, "pattern beside format is not supported; leave one out");
  }
  std::string wanted;
  if (pattern) wanted = text_of(*pattern, place + "/pattern");
  if (format) {
    const std::string name = text_of(*format, place + "/format");
    wanted = pattern_of_format(name);
    if (wanted.empty()) {
      unsupported(place, "the format ", quoted(name),
                  " is not supported for texts; there are date, time, date-time and uuid");
    }
  }
  if (pattern || format) {
    return with_context(str(place, "/", pattern ? "pattern" : "format"),
                        [&] { return json.quoted_text(json_pattern(json.rules(), wanted)); });
  }
  if (!least && !most) return json.any_string();
  if (most && *most < least.value_or(0)) {
    malformed(place, "minLength ", *least, " is more than maxLength ", *most);
  }
  return json.quoted_text(
      json.rules().repeat(json.character(), least.value_or(0), most.value_or(kUnbounded)));
}

ExpressionId number_values(JsonValues& json, const Json& schema, Place place, bool is_integer) {
  if (const Json* multiple = io::find(schema, "multipleOf");
      multiple && !(is_integer && *multiple == 1)) {
    unsupported(place, "multipleOf is not supported; leave it out, and check the values yourself");
  }
  std::optional<Bound> least = bound(schema, true, is_integer, place);
  std::optional<Bound> most = bound(schema, false, is_integer, place);
  if (const Json* format = io::find(schema, "format")) {
    const std::string name = text_of(*format, place + "/format");
    if (name == "int32" && is_integer) {
      least = Bound{std::max<int64_t>(least ? least->value : INT32_MIN, INT32_MIN), false};
      most = Bound{std::min<int64_t>(most ? most->value : INT32_MAX, INT32_MAX), false};
    } else if (name != "int64" && name != "float" && name != "double") {
      unsupported(place, "the format ", quoted(name),
                  " is not supported for numbers; there are "
                  "int32, int64, float and double");
    }
  }
  if (!least && !most) return json.any_number(is_integer);
  IntegerRange range;
  if (least) range.least = least->value;
  if (most) range.most = most->value;
  if (!most && range.least > range.most) range.most = INT64_MAX;
  if (!least && range.most < range.least) range.least = INT64_MIN + 1;
  const bool above = least && least->is_open, below = most && most->is_open;
  if (range.least > range.most || (range.least == range.most && (above || below))) {
    malformed(place, "no number is from ", range.least, " to ", range.most);
  }
  return is_integer ? integers(json.rules(), range) : decimals(json.rules(), range, above, below);
}

}  // namespace lumen::text::grammar
