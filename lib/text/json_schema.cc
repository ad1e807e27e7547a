#include "lib/text/json_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/grammar/json_values.h"
#include "lib/text/grammar/program.h"
#include "lib/text/grammar/schema_merge.h"
#include "lib/text/grammar/schema_numbers.h"
#include "lib/text/grammar/schema_pattern.h"

namespace lumen::text {
namespace {

using grammar::ExpressionId;
using grammar::IntegerRange;
using grammar::JsonValues;
using grammar::kUnbounded;
using grammar::Property;
using grammar::RuleId;
using grammar::RuleSet;
using io::Json;

// Schemas looked at, those inside joined ones each time anew.
constexpr int kMostSchemas = 100'000;
constexpr uint64_t kMostJoinedBytes = uint64_t{1} << 30;
constexpr int kMostReferences = 64;  // that lead to each other

constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

// Keywords and the types of values that they are about ("": any), beside annotations.
constexpr std::pair<std::string_view, std::string_view> kKeywords[] = {
    {"type", ""},
    {"nullable", ""},
    {"enum", ""},
    {"const", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"$ref", ""},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"additionalItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", ""},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
};

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

std::string step(std::string_view key) {
  std::string out = "/";
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
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

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const Json& schema) : root_(schema), bytes_(schema.dump().size()) {}

  RuleSet compile(RuleId& root) {
    const ExpressionId whole = reference("#", "#");
    root = rules_[whole].rule;
    return std::move(rules_);
  }

 private:
  using Place = const std::string&;

  template <typename... Parts>
  [[noreturn]] static void malformed(Place place, const Parts&... parts) {
    fail(ErrorKind::kMalformed, printable(place, 200), ": ", parts...);
  }
  template <typename... Parts>
  [[noreturn]] static void unsupported(Place place, const Parts&... parts) {
    fail(ErrorKind::kUnsupported, printable(place, 200), ": ", parts...);
  }

  // A member that must be of a kind, if it is there.
  static const Json* object_member(const Json& schema, const char* key, Place place) {
    const Json* value = io::find(schema, key);
    if (value && !value->is_object()) {
      malformed(place, key, ": expected an object, found ", io::describe(value));
    }
    return value;
  }
  static const Json* array_member(const Json& schema, const char* key, Place place) {
    const Json* value = io::find(schema, key);
    if (value && (!value->is_array() || value->empty())) {
      malformed(place, key, ": expected an array that is not empty, found ", io::describe(value));
    }
    return value;
  }
  static std::optional<uint32_t> count_member(const Json& schema, const char* key, Place place) {
    const Json* value = io::find(schema, key);
    if (!value) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (number < 0 || std::trunc(number) != number) {
      malformed(place, key, ": expected a whole number from 0, found ", io::describe(value));
    }
    if (number > static_cast<double>(limits::kGrammarPositions)) {
      malformed(place, key, ": ", io::describe(value), " is more than ", limits::kGrammarPositions,
                ", the limit");
    }
    return static_cast<uint32_t>(number);
  }

  static void check_keywords(const Json& schema, Place place) {
    for (const auto& [key, value] : schema.items()) {
      if (grammar::is_annotation(key)) continue;
      const auto known = std::find_if(
          std::begin(kKeywords), std::end(kKeywords),
          [name = std::string_view(key)](const auto& one) { return one.first == name; });
      if (known != std::end(kKeywords)) continue;
      std::vector<std::string> names;
      for (const auto& one : kKeywords) names.emplace_back(one.first);
      const std::string near = nearest(key, names);
      unsupported(place, "the keyword ", quoted(key), " is not supported; ",
                  near.empty() ? "leave it out, and check the values yourself"
                               : str("did you mean ", near, "?"));
    }
  }

  // The expression of what a schema allows. Only named rules may be recursive, see reference().
  ExpressionId value(const Json& schema, Place place) {
    if (++schemas_ > kMostSchemas) {
      malformed(place, "the schema has more than ", kMostSchemas, " parts, the limit");
    }
    if (schema.is_boolean()) return schema == true ? json_.any() : rules_.choice({});
    if (!schema.is_object()) {
      malformed(place, "expected a schema, which is an object or a boolean, found ",
                io::describe(&schema));
    }
    check_keywords(schema, place);
    if (const Json* target = io::find(schema, "$ref"); target && says_only(schema, {"$ref"})) {
      return reference(text_of(*target, place + "/$ref"), place);
    }
    if (io::find(schema, "allOf") || io::find(schema, "$ref")) {
      return joined(flattened(schema, place, 0), place);
    }
    const Json* any_of = array_member(schema, "anyOf", place);
    const Json* one_of = array_member(schema, "oneOf", place);
    if (any_of && one_of) unsupported(place, "anyOf beside oneOf is not supported; join them");
    if (any_of || one_of) return alternatives(schema, any_of ? "anyOf" : "oneOf", place);
    return typed(schema, place);
  }

  // Whether beside annotations there are no keywords but these.
  static bool says_only(const Json& schema, std::initializer_list<std::string_view> keywords) {
    for (const auto& [key, value] : schema.items()) {
      const bool is_one = std::find(keywords.begin(), keywords.end(), key) != keywords.end();
      if (!is_one && !grammar::is_annotation(key)) return false;
    }
    return true;
  }

  static std::string text_of(const Json& value, Place place) {
    if (!value.is_string()) malformed(place, "expected a text, found ", io::describe(&value));
    return value.get<std::string>();
  }

  // The part of the schema that a $ref names.
  const Json& resolve(const std::string& target, Place place) const {
    if (target != "#" && !target.starts_with("#/")) {
      unsupported(place, "$ref ", quoted(target),
                  " is not supported: only parts of this schema, like #/$defs/name");
    }
    const Json* here = &root_;
    for (size_t pos = 1; pos < target.size();) {
      const size_t end = std::min(target.find('/', pos + 1), target.size());
      std::string key = unescaped(std::string_view(target).substr(pos + 1, end - pos - 1));
      const Json* next = nullptr;
      int64_t index = 0;
      if (here->is_object()) next = io::find(*here, key);
      if (here->is_array() && parse_number(key, index) && index >= 0 &&
          index < static_cast<int64_t>(here->size())) {
        next = &(*here)[static_cast<size_t>(index)];
      }
      if (!next) {
        malformed(place, "$ref ", quoted(target), ": the schema has no ",
                  quoted(target.substr(0, end)));
      }
      here = next;
      pos = end;
    }
    return *here;
  }

  // A step of a JSON pointer in a URI (RFC 6901).
  static std::string unescaped(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      unsigned value = 0;
      if (text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
        out += text[++i] == '0' ? '~' : '/';
      } else if (text[i] == '%' && i + 2 < text.size() &&
                 std::from_chars(&text[i + 1], &text[i + 1] + 2, value, 16).ptr ==
                     &text[i + 1] + 2) {
        out += static_cast<char>(value);
        i += 2;
      } else {
        out += text[i];
      }
    }
    return out;
  }

  // The rule of the part that `target` names, made when it is first asked for.
  ExpressionId reference(const std::string& target, Place place) {
    const auto [found, is_new] = references_.try_emplace(target, 0);
    if (is_new) {
      const Json& schema = resolve(target, place);
      found->second = rules_.declare(target);
      const RuleId rule = found->second;
      rules_.define(rule, nested(schema, target));
    }
    return rules_.reference(references_.at(target));
  }

  // value() on a deeper level of recursion.
  ExpressionId nested(const Json& schema, Place place) {
    if (++depth_ > kMostNested) {
      malformed(place, "schemas lie in each other more than ", kMostNested, " deep, the limit");
    }
    const ExpressionId made = value(schema, place);
    --depth_;
    return made;
  }

  // A part as a rule of its own, so that expressions stay shallow.
  ExpressionId part(const Json& schema, Place place) {
    if (schema.is_object() && says_only(schema, {"$ref"})) return nested(schema, place);
    return rules_.named(place, nested(schema, place));
  }

  // A schema without $ref and allOf: joined with what they name.
  Json flattened(const Json& schema, Place place, int references) {
    if (!schema.is_object()) return schema;
    if (references > kMostReferences) {
      malformed(place, "$ref or allOf leads back to itself, or through more than ", kMostReferences,
                " others");
    }
    // Every join may copy as much as the whole schema.
    joined_bytes_ += bytes_;
    if (joined_bytes_ > kMostJoinedBytes) {
      malformed(place, "the schema joins too many others by allOf, anyOf and $ref");
    }
    check_keywords(schema, place);
    Json merged = Json::object(), own = Json::object();
    for (const auto& [key, value] : schema.items()) {
      if (key != "$ref" && key != "allOf") own[key] = value;
    }
    const auto join = [&](const Json& other, Place where) {
      merged = grammar::merge_schemas(merged, flattened(other, where, references + 1), place);
    };
    if (const Json* target = io::find(schema, "$ref")) {
      const std::string name = text_of(*target, place + "/$ref");
      join(resolve(name, place), name);
    }
    if (const Json* parts = array_member(schema, "allOf", place)) {
      for (size_t i = 0; i < parts->size(); ++i) join((*parts)[i], str(place, "/allOf/", i));
    }
    return grammar::merge_schemas(merged, own, place);
  }

  // The rule of a schema that stands nowhere as a whole. Equal ones are one rule: so joined
  // schemas may be recursive.
  ExpressionId joined(const Json& schema, Place place) {
    const auto [found, is_new] = joined_.try_emplace(schema.dump(), 0);
    if (!is_new) return rules_.reference(found->second);
    const RuleId rule = found->second = rules_.declare(place);
    rules_.define(rule, nested(schema, place));
    return rules_.reference(rule);
  }

  static bool is_nullable(const Json& schema, Place place) {
    const Json* value = io::find(schema, "nullable");
    if (value && !value->is_boolean()) {
      malformed(place, "nullable: expected true or false, found ", io::describe(value));
    }
    return value && *value == true;
  }

  ExpressionId alternatives(const Json& schema, const char* key, Place place) {
    Json rest = Json::object();
    for (const auto& [name, value] : schema.items()) {
      if (name != key && !grammar::is_annotation(name)) rest[name] = value;
    }
    const bool allows_null = is_nullable(rest, place);
    rest.erase("nullable");
    std::vector<ExpressionId> ways;
    const Json& all = schema[key];
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string where = str(place, "/", key, "/", i);
      if (rest.empty()) {
        ways.push_back(part(all[i], where));
      } else {
        ways.push_back(
            joined(grammar::merge_schemas(rest, flattened(all[i], where, 0), where), where));
      }
    }
    if (allows_null) ways.push_back(rules_.literal("null"));
    return rules_.choice(std::move(ways));
  }

  // The types that a schema names, or whose keywords it has; none: any.
  static std::vector<std::string> types_of(const Json& schema, Place place) {
    std::vector<std::string> types;
    const auto add = [&](std::string_view type) {
      if (std::find(types.begin(), types.end(), type) == types.end()) types.emplace_back(type);
    };
    if (const Json* named = io::find(schema, "type")) {
      const Json list = named->is_array() ? *named : Json::array({*named});
      for (const Json& type : list) {
        const std::string name = text_of(type, place + "/type");
        if (std::find(kTypes.begin(), kTypes.end(), name) == kTypes.end()) {
          malformed(place, "type: expected one of ", join({kTypes.begin(), kTypes.end()}, ", "),
                    ", found ", quoted(name));
        }
        add(name);
      }
      if (types.empty()) malformed(place, "no type is allowed, so no value is");
    } else {
      for (const auto& [key, type] : kKeywords) {
        if (!type.empty() && io::find(schema, key)) add(type);
      }
      if (io::find(schema, "format") && types.empty()) add("string");
    }
    if (is_nullable(schema, place) && !types.empty()) add("null");
    return types;
  }

  ExpressionId typed(const Json& schema, Place place) {
    if (io::find(schema, "enum") || io::find(schema, "const")) return listed(schema, place);
    const std::vector<std::string> types = types_of(schema, place);
    if (types.empty()) return json_.any();
    const auto has = [&](std::string_view type) {
      return std::find(types.begin(), types.end(), type) != types.end();
    };
    std::vector<ExpressionId> ways;
    for (const std::string& type : types) {
      if (type == "object") ways.push_back(object(schema, place));
      if (type == "array") ways.push_back(array(schema, place));
      if (type == "string") ways.push_back(string(schema, place));
      if (type == "number") ways.push_back(number(schema, place, false));
      if (type == "integer" && !has("number")) ways.push_back(number(schema, place, true));
      if (type == "boolean") ways.push_back(json_.boolean());
      if (type == "null") ways.push_back(rules_.literal("null"));
    }
    return rules_.choice(std::move(ways));
  }

  ExpressionId listed(const Json& schema, Place place) {
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
      if (fits && seen.insert(one.dump()).second) ways.push_back(rules_.literal(one.dump()));
    }
    if (is_nullable(schema, place) && seen.insert("null").second) {
      ways.push_back(rules_.literal("null"));
    }
    if (ways.empty()) malformed(place, "no value of enum or const has the type");
    return rules_.choice(std::move(ways));
  }

  ExpressionId string(const Json& schema, Place place) {
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
                          [&] { return json_.quoted_text(grammar::json_pattern(rules_, wanted)); });
    }
    if (!least && !most) return json_.any_string();
    if (most && *most < least.value_or(0)) {
      malformed(place, "minLength ", *least, " is more than maxLength ", *most);
    }
    return json_.quoted_text(
        rules_.repeat(json_.character(), least.value_or(0), most.value_or(kUnbounded)));
  }

  // One bound of a number: a whole one, which is itself allowed or not.
  struct Bound {
    int64_t value;
    bool is_open;
  };

  static std::optional<Bound> bound(const Json& schema, bool is_lower, bool is_integer,
                                    Place place) {
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
      malformed(place, is_open ? open_key : key, ": expected a number, found ",
                io::describe(given));
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

  ExpressionId number(const Json& schema, Place place, bool is_integer) {
    if (const Json* multiple = io::find(schema, "multipleOf");
        multiple && !(is_integer && *multiple == 1)) {
      unsupported(place,
                  "multipleOf is not supported; leave it out, and check the values yourself");
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
    if (!least && !most) return json_.any_number(is_integer);
    IntegerRange range;
    if (least) range.least = least->value;
    if (most) range.most = most->value;
    if (!most && range.least > range.most) range.most = INT64_MAX;
    if (!least && range.most < range.least) range.least = INT64_MIN + 1;
    const bool above = least && least->is_open, below = most && most->is_open;
    if (range.least > range.most || (range.least == range.most && (above || below))) {
      malformed(place, "no number is from ", range.least, " to ", range.most);
    }
    return is_integer ? grammar::integers(rules_, range)
                      : grammar::decimals(rules_, range, above, below);
  }

  ExpressionId array(const Json& schema, Place place) {
    if (const Json* unique = io::find(schema, "uniqueItems"); unique && *unique != false) {
      unsupported(place,
                  "uniqueItems is not supported; leave it out, and check the values yourself");
    }
    const uint32_t least = count_member(schema, "minItems", place).value_or(0);
    const uint32_t most = count_member(schema, "maxItems", place).value_or(kUnbounded);
    if (most < least) malformed(place, "minItems ", least, " is more than maxItems ", most);
    // Up to draft 7 a list of items was what prefixItems is now.
    const Json* items = io::find(schema, "items");
    const bool is_old = items && items->is_array();
    const char* prefix_key = is_old ? "items" : "prefixItems";
    const char* items_key = is_old ? "additionalItems" : "items";
    if (!is_old && io::find(schema, "additionalItems")) {
      unsupported(place,
                  "additionalItems beside items, which is no list, has no effect; leave it "
                  "out");
    }
    const Json* prefix = array_member(schema, prefix_key, place);
    items = io::find(schema, items_key);
    const bool is_closed = items ? *items == false : prefix != nullptr;
    const auto fixed = static_cast<uint32_t>(prefix ? prefix->size() : 0);
    if (is_closed && least > fixed) {
      malformed(place, "minItems ", least, " cannot be reached: the array has ", fixed,
                " items and no others are allowed");
    }
    const std::string items_place = str(place, "/", items_key);
    const auto element = [&](uint32_t i) {
      return part((*prefix)[i], str(place, "/", prefix_key, "/", i));
    };
    if (most == 0) return json_.bracketed('[', rules_.literal(""), ']');
    std::optional<ExpressionId> others;
    if (!is_closed && most > fixed) others = items ? part(*items, items_place) : json_.any();
    const auto left = [&](uint32_t count, uint32_t taken) {
      return count == kUnbounded ? kUnbounded : count > taken ? count - taken : 0;
    };
    // From the back: what may follow an item, with its comma.
    const uint32_t taken = std::max(fixed, 1u);
    ExpressionId rest =
        others ? rules_.repeat(json_.after_comma(*others), left(least, taken), left(most, taken))
               : rules_.literal("");
    for (uint32_t i = std::min(fixed, most); i-- > 1;) {
      const ExpressionId here = rules_.sequence({json_.after_comma(element(i)), rest});
      rest = json_.shallow(i < least ? here : rules_.optional(here), place);
    }
    const ExpressionId first = fixed > 0 ? element(0) : others ? *others : rules_.choice({});
    const ExpressionId some = rules_.sequence({first, rest});
    return json_.bracketed('[', least == 0 ? rules_.optional(some) : some, ']');
  }

  // The members in the order of the schema, the ones that are only required last.
  std::vector<Property> properties(const Json& schema, Place place) {
    std::vector<std::string> required;
    if (const Json* list = io::find(schema, "required")) {
      if (!list->is_array()) {
        malformed(place, "required: expected an array of names, found ", io::describe(list));
      }
      for (const Json& name : *list) required.push_back(text_of(name, place + "/required"));
    }
    const Json* listed = object_member(schema, "properties", place);
    const Json* additional = io::find(schema, "additionalProperties");
    std::vector<Property> all;
    const auto add = [&](const std::string& name, ExpressionId content, bool is_required) {
      const ExpressionId key = rules_.literal(Json(name).dump());
      all.push_back({rules_.named(place + "/properties" + step(name), json_.member(key, content)),
                     is_required});
    };
    if (listed) {
      for (const auto& [name, content] : listed->items()) {
        const bool needed = std::find(required.begin(), required.end(), name) != required.end();
        if (content == false && !needed) continue;
        add(name, nested(content, place + "/properties" + step(name)), needed);
      }
    }
    std::set<std::string> seen;
    for (const std::string& name : required) {
      if ((listed && listed->contains(name)) || !seen.insert(name).second) continue;
      if (additional && *additional == false) {
        malformed(place, "required: ", quoted(name),
                  " is not among the properties, and additionalProperties is false");
      }
      add(name, additional ? part(*additional, place + "/additionalProperties") : json_.any(),
          true);
    }
    return all;
  }

  ExpressionId object(const Json& schema, Place place) {
    const Json* listed = io::find(schema, "properties");
    const Json* additional = io::find(schema, "additionalProperties");
    const std::vector<Property> all = properties(schema, place);
    const bool is_open = additional ? *additional != false : !listed || listed->empty();
    const auto required = static_cast<uint32_t>(
        std::count_if(all.begin(), all.end(), [](const Property& p) { return p.is_required; }));
    const uint32_t least = count_member(schema, "minProperties", place).value_or(0);
    const auto most = count_member(schema, "maxProperties", place);
    if (least > std::max(required, all.empty() ? 1u : 0u)) {
      unsupported(place,
                  "minProperties is not supported where the required properties are fewer; "
                  "name more of them in required");
    }
    if (most && !all.empty() && (is_open || *most < all.size())) {
      unsupported(place, "maxProperties is not supported beside properties; leave it out");
    }
    std::optional<ExpressionId> other;
    if (is_open) {
      std::vector<std::string> names;
      if (listed) {
        for (const auto& [name, content] : listed->items()) names.push_back(name);
      }
      if (const Json* list = io::find(schema, "required")) {
        for (const Json& name : *list) names.push_back(name.get<std::string>());
      }
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
      const ExpressionId content =
          additional ? part(*additional, place + "/additionalProperties") : json_.any();
      other = rules_.named(place + "/additionalProperties",
                           json_.member(json_.other_name(names), content));
    }
    if (all.empty()) {
      if (!other || most == 0u) return json_.bracketed('{', rules_.literal(""), '}');
      const uint32_t more = most ? *most - 1 : kUnbounded;
      const ExpressionId some =
          rules_.sequence({*other, rules_.repeat(json_.after_comma(*other), 0, more)});
      return json_.bracketed('{', least > 0 ? some : rules_.optional(some), '}');
    }
    return json_.bracketed('{', json_.members(all, other, place), '}');
  }

  static constexpr int kMostNested = 256;

  const Json& root_;
  const uint64_t bytes_;
  RuleSet rules_;
  JsonValues json_{rules_};
  std::map<std::string, RuleId> references_, joined_;  // by pointer; by text
  int schemas_ = 0, depth_ = 0;
  uint64_t joined_bytes_ = 0;
};

}  // namespace

Grammar json_schema_grammar(const Json& schema, const std::string& place) {
  return with_context(place, [&] {
    RuleId root = 0;
    const RuleSet rules = SchemaCompiler(schema).compile(root);
    return Grammar(std::make_shared<grammar::Program>(
        grammar::make_program(rules, root, grammar::Endless::kDrop)));
  });
}

}  // namespace lumen::text
