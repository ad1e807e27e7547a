#include "lib/text/json_schema.h"

#include <algorithm>
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
#include "lib/text/grammar/schema_pointer.h"
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
using grammar::name_fits;
using grammar::object_member;
using grammar::Place;
using grammar::Property;
using grammar::RuleId;
using grammar::RuleSet;
using grammar::says_only;
using grammar::step;
using grammar::text_of;
using grammar::types_of;
using grammar::unsupported;
using io::Json;

// Schemas looked at, those inside joined ones each time anew.
constexpr int kMostSchemas = 100'000;
constexpr uint64_t kMostJoinedBytes = uint64_t{1} << 30;
constexpr int kMostReferences = 64;  // that lead to each other

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
    const Json* any_of = array_member(schema, "anyOf", place);
    const Json* one_of = array_member(schema, "oneOf", place);
    if (io::find(schema, "allOf") || io::find(schema, "$ref") || grammar::has_conditions(schema) ||
        (any_of && one_of)) {
      return joined(flattened(schema, place, 0), place);
    }
    if (const Json* excluded = io::find(schema, "not");
        excluded && !grammar::excludes_values(schema)) {
      Json rest = schema;
      rest["not"] = flattened(*excluded, place + "/not", 0);
      return nested(grammar::without_not(rest, place), place);
    }
    if (any_of || one_of) return alternatives(schema, any_of ? "anyOf" : "oneOf", place);
    return typed(schema, place);
  }

  // The rule of the part that `target` names, made when it is first asked for.
  ExpressionId reference(const std::string& target, Place place) {
    const auto [found, is_new] = references_.try_emplace(target, 0);
    if (is_new) {
      const Json& schema = grammar::resolve(root_, target, place);
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
    std::vector<Json> choices = grammar::take_conditions(own, place);
    if (io::find(own, "anyOf") && io::find(own, "oneOf")) {
      choices.push_back({{"oneOf", own["oneOf"]}});
      own.erase("oneOf");
    }
    const auto join = [&](const Json& other, Place where) {
      const Json flat = closed(flattened(other, where, references + 1));
      merged = grammar::merge_schemas(merged, flat, place);
    };
    if (const Json* target = io::find(schema, "$ref")) {
      const std::string name = text_of(*target, place + "/$ref");
      join(grammar::resolve(root_, name, place), name);
    }
    if (const Json* parts = array_member(schema, "allOf", place)) {
      for (size_t i = 0; i < parts->size(); ++i) join((*parts)[i], str(place, "/allOf/", i));
    }
    merged = grammar::merge_schemas(merged, own, place);
    for (const Json& choice : choices) merged = grammar::merge_schemas(merged, choice, place);
    return merged;
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
    if (io::find(schema, "not")) return excluding_values(schema, place);
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

  // What `schema` allows but for the values that its "not" lists.
  ExpressionId excluding_values(const Json& schema, Place place) {
    Json rest = schema;
    rest.erase("not");
    const std::string where = place + "/not";
    const Json& excluded = *array_member(schema["not"], "enum", where);
    std::vector<std::string> types = types_of(rest, place);
    if (types.empty()) types = {"object", "array", "string", "number", "boolean", "null"};
    std::vector<ExpressionId> ways;
    for (const std::string& type : types) {
      rest["type"] = type;
      rest.erase("nullable");
      if (type == "boolean" || type == "null") {
        for (const Json& value : type == "null" ? Json::array({nullptr}) : Json({true, false})) {
          const bool is_left = std::find(excluded.begin(), excluded.end(), value) == excluded.end();
          if (is_left) ways.push_back(rules_.literal(value.dump()));
        }
        continue;
      }
      std::vector<std::string> texts;
      const bool is_number = type == "number" || type == "integer";
      for (const Json& value : excluded) {
        const bool is_of_type = value.type_name() == type || (is_number && value.is_number());
        if (!is_of_type) continue;
        if (type != "string" || !says_only(rest, {"type"})) {
          unsupported(where, "single values of the type ", type, " can be excluded only from an ",
                      "enum", type == "string" ? " or all texts" : "");
        }
        texts.push_back(value.get<std::string>());
      }
      std::sort(texts.begin(), texts.end());
      texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
      ways.push_back(texts.empty() ? typed(rest, place) : json_.other_name(texts));
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
    if (io::find(schema, "contains")) return containing(schema, place, least, most);
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

  // An array of which some items are of a kind, and with maxContains the others are not.
  ExpressionId containing(const Json& schema, Place place, uint32_t least, uint32_t most) {
    constexpr uint64_t kMostCounts = 4096;
    const Json* items = io::find(schema, "items");
    if (io::find(schema, "prefixItems") || (items && items->is_array())) {
      unsupported(place, "contains beside prefixItems is not supported");
    }
    const uint32_t fewest = count_member(schema, "minContains", place).value_or(1);
    const uint32_t greatest = count_member(schema, "maxContains", place).value_or(kUnbounded);
    if (greatest < fewest) {
      malformed(place, "minContains ", fewest, " is more than maxContains ", greatest);
    }
    const uint32_t counted = greatest == kUnbounded ? fewest : greatest;
    const uint64_t length = most == kUnbounded ? std::max(least, 1u) : most;
    if ((length + 1) * (uint64_t{counted} + 1) > kMostCounts) {
      unsupported(place, "contains is not supported of so many items");
    }
    const Json base = items ? *items : Json(true);
    const auto of = [&](const Json& more) {
      const Json both = {{"allOf", Json::array({base, more})}};
      return part(both, place + "/contains");
    };
    const Json& one = schema["contains"];
    Json other = true;
    if (greatest != kUnbounded) {
      other = {
          {"anyOf", grammar::negated(flattened(one, place + "/contains", 0), place + "/contains")}};
      if (other["anyOf"].empty()) other = false;
    }
    return json_.bracketed(
        '[', json_.counted_elements(of(one), of(other), {least, most}, {fewest, greatest}), ']');
  }

  // An array without equal items. Only of few values it can be said which are left; of more they
  // come in the order of the schema.
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
    const bool counts = values.size() > kMostValues && (least > 1 || most < values.size());
    if (values.empty() || counts || io::find(schema, "prefixItems")) {
      unsupported(place, "uniqueItems is supported only where the items are of given values ",
                  "(enum), with minItems and maxItems of at most ", kMostValues,
                  "; leave it out, and check the values yourself");
    }
    if (least > values.size()) {
      malformed(place, "minItems ", least, " cannot be reached: there are ", values.size(),
                " different values");
    }
    std::vector<ExpressionId> texts;
    for (const Json& value : values) {
      texts.push_back(rules_.named(where, rules_.literal(value.dump())));
    }
    if (values.size() <= kMostValues) {
      return json_.bracketed('[', json_.different(texts, least, most), ']');
    }
    std::vector<Property> in_order;
    for (const ExpressionId text : texts) in_order.push_back({text, false});
    return json_.bracketed('[', json_.members(in_order, std::nullopt, least == 0, where), ']');
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
        add(name,
            nested(grammar::with_patterns(schema, name, content),
                   place + "/properties" + step(name)),
            needed);
      }
    }
    std::set<std::string> seen;
    for (const std::string& name : required) {
      if ((listed && listed->contains(name)) || !seen.insert(name).second) continue;
      const Json patterned = grammar::with_patterns(schema, name, true);
      if (patterned != true) {
        add(name, part(patterned, place + "/patternProperties"), true);
        continue;
      }
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

  // The names that a pattern allows, with their contents: patterns of which a name could be that of
  // a property, or fit two of different contents, allow no others.
  std::optional<ExpressionId> patterned_member(const Json& patterns, const Json& schema,
                                               Place place) {
    const Json listed = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    const bool has_names = !listed.empty() || !required.empty();
    const Json& first = patterns.begin().value();
    const bool are_alike = std::all_of(patterns.begin(), patterns.end(),
                                       [&](const Json& one) { return one == first; });
    if (!are_alike && !has_names) {
      unsupported(place,
                  "patternProperties of several patterns are supported only with one schema ",
                  "for all, or beside properties");
    }
    std::vector<ExpressionId> ways;
    for (const auto& [pattern, content] : patterns.items()) {
      bool is_taken = !are_alike;
      for (const auto& [name, unused] : listed.items()) {
        is_taken = is_taken || name_fits(pattern, name);
      }
      for (const Json& name : required) {
        is_taken = is_taken || name_fits(pattern, text_of(name, place + "/required"));
      }
      if (is_taken) continue;
      const std::string where = place + "/patternProperties" + step(pattern);
      ways.push_back(json_.member(grammar::string_values(json_, {{"pattern", pattern}}, where),
                                  part(content, where)));
    }
    if (ways.empty()) return std::nullopt;
    return rules_.choice(std::move(ways));
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
    if (names && (patterns || has_some("properties") || has_some("required"))) {
      unsupported(place, "propertyNames are supported only in an object without properties, ",
                  "required and patternProperties");
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
    return patterned_member(*patterns, schema, place);
  }

  // Whether `properties` say only what there is not: such an object may have others.
  static bool names_only_excluded(const Json& properties) {
    return std::all_of(properties.begin(), properties.end(),
                       [](const Json& content) { return content == false; });
  }

  ExpressionId object(const Json& given, Place place) {
    const Json schema = with_known_names(closed(given), place);
    const Json* listed = io::find(schema, "properties");
    const Json* additional = io::find(schema, "additionalProperties");
    const std::vector<Property> all = properties(schema, place);
    const bool has_patterns =
        io::find(schema, "patternProperties") && !schema["patternProperties"].empty();
    const bool is_open = !has_patterns && (additional ? *additional != false
                                                      : !listed || names_only_excluded(*listed));
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
      if (!other || most == 0u) {
        return least > 0 ? rules_.choice({}) : json_.bracketed('{', rules_.literal(""), '}');
      }
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
