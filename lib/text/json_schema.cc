#include "lib/text/json_schema.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/text/grammar/json_values.h"
#include "lib/text/grammar/program.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_merge.h"
#include "lib/text/grammar/schema_not.h"
#include "lib/text/grammar/schema_scalars.h"

namespace lumen::text {
namespace {

using grammar::array_member;
using grammar::check_keywords;
using grammar::count_member;
using grammar::ExpressionId;
using grammar::is_annotation;
using grammar::is_nullable;
using grammar::JsonValues;
using grammar::kUnbounded;
using grammar::malformed;
using grammar::object_member;
using grammar::Place;
using grammar::Property;
using grammar::RuleId;
using grammar::RuleSet;
using grammar::says_only;
using grammar::text_of;
using grammar::types_of;
using grammar::unsupported;
using io::Json;

// Schemas looked at, those inside joined ones each time anew.
constexpr int kMostSchemas = 100'000;
constexpr uint64_t kMostJoinedBytes = uint64_t{1} << 30;
constexpr int kMostReferences = 64;  // that lead to each other

std::string step(std::string_view key) {
  std::string out = "/";
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

// A step of a JSON pointer in a URI (RFC 6901).
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
      out += text[++i] == '0' ? '~' : '/';
    } else if (text[i] == '%' && i + 2 < text.size() &&
               std::from_chars(&text[i + 1], &text[i + 1] + 2, value, 16).ptr == &text[i + 1] + 2) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The part of the schema `root` that a $ref names.
const Json& resolve(const Json& root, const std::string& target, Place place) {
  if (target != "#" && !target.starts_with("#/")) {
    unsupported(place, "$ref ", quoted(target),
                " is not supported: only parts of this schema, like #/$defs/name");
  }
  const Json* here = &root;
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

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const Json& schema) : root_(schema), bytes_(schema.dump().size()) {}

  RuleSet compile(RuleId& root) {
    const ExpressionId whole = reference("#", "#");
    root = rules_[whole].rule;
    return std::move(rules_);
  }

 private:
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
    if (io::find(schema, "not")) return nested(grammar::without_not(schema, place), place);
    const Json* any_of = array_member(schema, "anyOf", place);
    const Json* one_of = array_member(schema, "oneOf", place);
    if (any_of && one_of) unsupported(place, "anyOf beside oneOf is not supported; join them");
    if (any_of || one_of) return alternatives(schema, any_of ? "anyOf" : "oneOf", place);
    return typed(schema, place);
  }

  // The rule of the part that `target` names, made when it is first asked for.
  ExpressionId reference(const std::string& target, Place place) {
    const auto [found, is_new] = references_.try_emplace(target, 0);
    if (is_new) {
      const Json& schema = resolve(root_, target, place);
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
      const Json flat = closed(flattened(other, where, references + 1));
      merged = grammar::merge_schemas(merged, flat, place);
    };
    if (const Json* target = io::find(schema, "$ref")) {
      const std::string name = text_of(*target, place + "/$ref");
      join(resolve(root_, name, place), name);
    }
    if (const Json* parts = array_member(schema, "allOf", place)) {
      for (size_t i = 0; i < parts->size(); ++i) join((*parts)[i], str(place, "/allOf/", i));
    }
    return grammar::merge_schemas(merged, own, place);
  }

  // unevaluatedProperties of a schema that others are not joined with any more.
  static Json closed(Json schema) {
    const Json* rest = io::find(schema, "unevaluatedProperties");
    if (!rest) return schema;
    if (!io::find(schema, "additionalProperties")) schema["additionalProperties"] = Json(*rest);
    schema.erase("unevaluatedProperties");
    return schema;
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

  ExpressionId alternatives(const Json& schema, const char* key, Place place) {
    Json rest = Json::object();
    for (const auto& [name, value] : schema.items()) {
      if (name != key && !is_annotation(name)) rest[name] = value;
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
        ways.push_back(joined(
            grammar::merge_schemas(rest, closed(flattened(all[i], where, 0)), where), where));
      }
    }
    if (allows_null) ways.push_back(rules_.literal("null"));
    return rules_.choice(std::move(ways));
  }

  ExpressionId typed(const Json& schema, Place place) {
    if (io::find(schema, "enum") || io::find(schema, "const")) {
      std::vector<ExpressionId> ways;
      for (const Json& one : grammar::listed_values(schema, place)) {
        ways.push_back(rules_.literal(one.dump()));
      }
      return rules_.choice(std::move(ways));
    }
    const std::vector<std::string> types = types_of(schema, place);
    if (types.empty()) return json_.any();
    const auto has = [&](std::string_view type) {
      return std::find(types.begin(), types.end(), type) != types.end();
    };
    std::vector<ExpressionId> ways;
    for (const std::string& type : types) {
      if (type == "object") ways.push_back(object(schema, place));
      if (type == "array") ways.push_back(array(schema, place));
      if (type == "string") ways.push_back(grammar::string_values(json_, schema, place));
      if (type == "number") ways.push_back(grammar::number_values(json_, schema, place, false));
      if (type == "integer" && !has("number"))
        ways.push_back(grammar::number_values(json_, schema, place, true));
      if (type == "boolean") ways.push_back(json_.boolean());
      if (type == "null") ways.push_back(rules_.literal("null"));
    }
    return rules_.choice(std::move(ways));
  }

  ExpressionId array(const Json& schema, Place place) {
    const uint32_t least = count_member(schema, "minItems", place).value_or(0);
    const uint32_t most = count_member(schema, "maxItems", place).value_or(kUnbounded);
    if (most < least) malformed(place, "minItems ", least, " is more than maxItems ", most);
    if (const Json* unique = io::find(schema, "uniqueItems");
        unique && *unique != false && most > 1) {
      return different_items(schema, place, least, most);
    }
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

  // An array without equal items. Only of few values it can be said which are left.
  ExpressionId different_items(const Json& schema, Place place, uint32_t least, uint32_t most) {
    constexpr size_t kMostValues = 8;
    const Json* items = io::find(schema, "items");
    const std::string where = place + "/items";
    const Json one = items ? flattened(*items, where, 0) : Json();
    std::vector<Json> values;
    if (one.is_object() && (io::find(one, "enum") || io::find(one, "const"))) {
      values = grammar::listed_values(one, where);
    } else if (one.is_object() && says_only(one, {"type"}) &&
               one.value("type", Json()) == "boolean") {
      values = {true, false};
    }
    if (values.empty() || values.size() > kMostValues || io::find(schema, "prefixItems")) {
      unsupported(place, "uniqueItems is supported only where the items are of at most ",
                  kMostValues, " values (enum); leave it out, and check the values yourself");
    }
    if (least > values.size()) {
      malformed(place, "minItems ", least, " cannot be reached: there are ", values.size(),
                " different values");
    }
    std::vector<ExpressionId> texts;
    for (const Json& value : values) {
      texts.push_back(rules_.named(where, rules_.literal(value.dump())));
    }
    return json_.bracketed('[', json_.different(texts, least, most), ']');
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

  // The schema without propertyNames that say no more than that they are texts, or list them.
  Json with_known_names(Json schema, Place place) {
    const Json* names = io::find(schema, "propertyNames");
    if (!names) return schema;
    const std::string where = place + "/propertyNames";
    const Json one = flattened(*names, where, 0);
    if (one == true || (one.is_object() && says_only(one, {"type"}) &&
                        one.value("type", Json("string")) == "string")) {
      schema.erase("propertyNames");
      return schema;
    }
    const bool lists = one.is_object() && (io::find(one, "enum") || io::find(one, "const"));
    if (!lists || io::find(schema, "properties")) {
      schema["propertyNames"] = one;
      return schema;
    }
    const Json content = schema.value("additionalProperties", Json(true));
    for (const Json& name : grammar::listed_values(one, where)) {
      schema["properties"][text_of(name, where)] = content;
    }
    schema["additionalProperties"] = false;
    schema.erase("propertyNames");
    return schema;
  }

  // The names that patternProperties or propertyNames allow, and what they are of; none if the
  // schema has neither.
  std::optional<ExpressionId> patterned_member(const Json& schema, Place place) {
    const Json* patterns = object_member(schema, "patternProperties", place);
    const Json* names = io::find(schema, "propertyNames");
    if (!patterns && !names) return std::nullopt;
    const auto has_some = [&](const char* key) {
      const Json* value = io::find(schema, key);
      return value && !value->empty();
    };
    if ((patterns && (names || patterns->size() != 1)) || has_some("properties") ||
        has_some("required")) {
      unsupported(place, "patternProperties of one pattern, or propertyNames, are supported only ",
                  "in an object without properties, required and the other of the two");
    }
    if (names) {
      const std::string where = place + "/propertyNames";
      const Json* content = io::find(schema, "additionalProperties");
      const bool is_plain =
          names->is_object() && names->value("type", Json("string")) == "string" &&
          says_only(*names, {"type", "minLength", "maxLength", "pattern", "format"});
      if (!is_plain) {
        unsupported(where,
                    "names may only have a type (string), a length, a pattern, a format or "
                    "a list of values (enum)");
      }
      return json_.member(grammar::string_values(json_, *names, where),
                          content ? part(*content, place + "/additionalProperties") : json_.any());
    }
    const auto only = patterns->begin();
    const std::string where = place + "/patternProperties" + step(only.key());
    return json_.member(grammar::string_values(json_, {{"pattern", only.key()}}, where),
                        part(*only, where));
  }

  ExpressionId object(const Json& given, Place place) {
    const Json schema = with_known_names(closed(given), place);
    const Json* listed = io::find(schema, "properties");
    const Json* additional = io::find(schema, "additionalProperties");
    const std::vector<Property> all = properties(schema, place);
    const bool is_open = additional ? *additional != false : !listed || listed->empty();
    const auto required = static_cast<uint32_t>(
        std::count_if(all.begin(), all.end(), [](const Property& p) { return p.is_required; }));
    const uint32_t least = count_member(schema, "minProperties", place).value_or(0);
    const auto most = count_member(schema, "maxProperties", place);
    if (least > std::max(required, 1u)) {
      unsupported(place,
                  "minProperties is not supported where the required properties are fewer; "
                  "name more of them in required");
    }
    if (most && !all.empty() && (is_open || *most < all.size())) {
      unsupported(place, "maxProperties is not supported beside properties; leave it out");
    }
    std::optional<ExpressionId> other = patterned_member(schema, place);
    if (other) {
      other = rules_.named(place, *other);
    } else if (is_open) {
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
    return json_.bracketed('{', json_.members(all, other, least == 0, place), '}');
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
