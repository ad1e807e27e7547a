#include "lib/text/grammar/schema_merge.h"

#include <algorithm>
#include <tuple>

#include "lib/base/error.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_scalars.h"

namespace lumen::text::grammar {
namespace {

bool contains_value(const io::Json& list, const io::Json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// The types that both name: an integer is a number.
io::Json common_types(const io::Json& a, const io::Json& b) {
  const auto list = [](const io::Json& types) {
    return types.is_array() ? types : io::Json::array({types});
  };
  const io::Json left = list(a), right = list(b);
  io::Json common = io::Json::array();
  const auto add_those_in = [&](const io::Json& some, const io::Json& others) {
    for (const io::Json& type : some) {
      const bool is_in =
          contains_value(others, type) || (type == "integer" && contains_value(others, "number"));
      if (is_in && !contains_value(common, type)) common.push_back(type);
    }
  };
  add_those_in(left, right);
  add_those_in(right, left);
  return common.size() == 1 ? common[0] : common;
}

io::Json common_values(const io::Json& a, const io::Json& b) {
  io::Json common = io::Json::array();
  for (const io::Json& value : a) {
    if (contains_value(b, value)) common.push_back(value);
  }
  return common;
}

// What `part` says of properties that it does not name holds for those that another part names.
void restrict_properties(io::Json& merged, const io::Json& part, const std::string& place) {
  const io::Json* additional = io::find(part, "additionalProperties");
  const io::Json* own = io::find(part, "properties");
  if (!additional || *additional == true || !io::find(merged, "properties")) return;
  io::Json kept = io::Json::object();
  for (const auto& [name, schema] : merged["properties"].items()) {
    if (own && own->contains(name)) {
      kept[name] = schema;
    } else if (*additional != false) {
      kept[name] = {{"allOf", io::Json::array({*additional, schema})}};
    } else if (const io::Json* required = io::find(merged, "required");
               required && contains_value(*required, name)) {
      fail(ErrorKind::kUnsupported, place, ": property ", quoted(name),
           " is required here, but a schema joined with it has \"additionalProperties\": false "
           "and does not know it");
    }
  }
  merged["properties"] = std::move(kept);
}

bool closes(const io::Json& schema) {
  const io::Json* additional = io::find(schema, "additionalProperties");
  return additional && *additional == false;
}

io::Json merge_properties(const io::Json& a, const io::Json& b) {
  io::Json merged = a;
  for (const auto& [name, schema] : b.items()) {
    const io::Json* known = io::find(a, name);
    if (known && *known != schema) {
      merged[name] = {{"allOf", io::Json::array({*known, schema})}};
    } else {
      merged[name] = schema;
    }
  }
  return merged;
}

io::Json union_of(const io::Json& a, const io::Json& b) {
  io::Json all = a;
  for (const io::Json& value : b) {
    if (!contains_value(all, value)) all.push_back(value);
  }
  return all;
}

// The keyword of a choice among schemas; oneOf is taken as anyOf.
const char* choice_key(const io::Json& schema) {
  return io::find(schema, "anyOf") ? "anyOf" : io::find(schema, "oneOf") ? "oneOf" : nullptr;
}

// Every way of `a` with every way of `b`.
io::Json joined_choices(const io::Json& a, const io::Json& b, const std::string& place) {
  constexpr size_t kMostWays = 4096;
  if (!a.is_array() || !b.is_array() || a.size() * b.size() > kMostWays) {
    fail(ErrorKind::kUnsupported, place, ": choices (anyOf, oneOf, if) that are joined here have ",
         "more than ", kMostWays, " ways together");
  }
  io::Json ways = io::Json::array();
  for (const io::Json& one : a) {
    for (const io::Json& other : b) ways.push_back({{"allOf", io::Json::array({one, other})}});
  }
  return ways;
}

// Of a bound and an open one the one that says more.
void drop_weaker_bounds(io::Json& schema) {
  for (const auto& [key, open_key, sign] :
       {std::tuple("minimum", "exclusiveMinimum", 1), {"maximum", "exclusiveMaximum", -1}}) {
    const io::Json *bound = io::find(schema, key), *open = io::find(schema, open_key);
    if (!bound || !open || !bound->is_number() || !open->is_number()) continue;
    const bool is_open = sign * open->get<double>() >= sign * bound->get<double>();
    schema.erase(is_open ? key : open_key);
  }
}

// Leaves of enum and const the values that the other keywords allow, without those keywords that
// are about single values; false if there are none.
bool leave_listed_values(io::Json& schema, const std::string& place) {
  const io::Json* one = io::find(schema, "const");
  const io::Json* all = io::find(schema, "enum");
  if ((!one && !all) || (all && !all->is_array())) return true;
  io::Json left = io::Json::array();
  for (const io::Json& value : one ? io::Json::array({*one}) : *all) {
    const bool is_listed = !one || !all || contains_value(*all, value);
    if (is_listed && keeps_bounds(value, schema, place)) left.push_back(value);
  }
  for (const char* key : kBounds) schema.erase(key);
  if (!one) schema["enum"] = left;
  return !left.empty();
}

// What is neither `a` nor `b`, of lists of values a list.
io::Json union_of_excluded(const io::Json& a, const io::Json& b) {
  const auto is_list = [](const io::Json& schema) {
    return schema.is_object() && schema.size() == 1 && schema.contains("enum") &&
           schema["enum"].is_array();
  };
  if (is_list(a) && is_list(b)) return {{"enum", union_of(a["enum"], b["enum"])}};
  return {{"anyOf", io::Json::array({a, b})}};
}

}  // namespace

io::Json merge_schemas(const io::Json& a, const io::Json& b, const std::string& place) {
  if (a.is_boolean()) return a == true ? b : a;
  if (b.is_boolean()) return b == true ? a : b;
  const auto has = [](const io::Json& schema, const char* key) {
    return io::find(schema, key) != nullptr;
  };
  const bool shifts_items = has(a, "prefixItems") != has(b, "prefixItems") &&
                            (has(a, "prefixItems") ? has(b, "items") : has(a, "items"));
  if (shifts_items) {
    fail(ErrorKind::kUnsupported, place,
         ": prefixItems stands in one and items in another of the schemas that are joined here; "
         "write both into one");
  }
  const char *left_key = choice_key(a), *right_key = choice_key(b);
  const bool both_choose = left_key && right_key && a[left_key] != b[right_key];
  io::Json merged = a;
  if (both_choose) {
    merged.erase(left_key);
    merged["anyOf"] = joined_choices(a[left_key], b[right_key], place);
  }
  for (const auto& [key, value] : b.items()) {
    if (both_choose && key == right_key) continue;
    const io::Json* known = io::find(a, key);
    if (!known || is_annotation(key) || *known == value) {
      if (!known) merged[key] = value;
      continue;
    }
    const bool are_numbers = known->is_number() && value.is_number();
    if (key == "const") return false;  // two values
    if (key == "type") {
      merged[key] = common_types(*known, value);
    } else if (key == "properties" && known->is_object() && value.is_object()) {
      merged[key] = merge_properties(*known, value);
    } else if (key == "required" && known->is_array() && value.is_array()) {
      merged[key] = union_of(*known, value);
    } else if (key == "enum" && known->is_array() && value.is_array()) {
      merged[key] = common_values(*known, value);
    } else if (key == "not") {
      merged[key] = union_of_excluded(*known, value);
    } else if (key == "additionalProperties") {
      merged[key] = closes(a) || closes(b)
                        ? io::Json(false)
                        : io::Json({{"allOf", io::Json::array({*known, value})}});
    } else if (key == "items" || key == "allOf") {
      merged[key] = key == "allOf" ? union_of(*known, value)
                                   : io::Json({{"allOf", io::Json::array({*known, value})}});
    } else if (are_numbers && (key.starts_with("min") || key == "exclusiveMinimum")) {
      merged[key] = std::max(known->get<double>(), value.get<double>()) == known->get<double>()
                        ? *known
                        : value;
    } else if (are_numbers && (key.starts_with("max") || key == "exclusiveMaximum")) {
      merged[key] = std::min(known->get<double>(), value.get<double>()) == known->get<double>()
                        ? *known
                        : value;
    } else {
      fail(ErrorKind::kUnsupported, place, ": ", quoted(key),
           " stands in two schemas that are joined here (allOf, or beside $ref, anyOf or oneOf) "
           "and differs; write it once");
    }
  }
  restrict_properties(merged, a, place);
  restrict_properties(merged, b, place);
  drop_weaker_bounds(merged);
  if (!leave_listed_values(merged, place)) return false;
  for (const char* key : {"type", "enum"}) {  // nothing in common
    const io::Json* left = io::find(merged, key);
    if (left && left->is_array() && left->empty()) return false;
  }
  return merged;
}

}  // namespace lumen::text::grammar
