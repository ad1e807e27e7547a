// Attribute and item lookup, as jinja2's immutable sandbox does it.
#include <algorithm>

#include "lib/base/strings.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/macro.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"

namespace lumen::text::jinja {

namespace {

// Methods that change a list or dict in place; the sandbox hides them.
bool is_hidden_method(const Value& object, std::string_view name) {
  static constexpr std::string_view kList[] = {"append",  "extend", "insert", "remove",
                                               "reverse", "sort",   "clear"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto among = [&](auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (object.is_dict()) return among(kDict);
  return object.is_sequence() && object.sequence().is_list() && among(kList);
}

std::string owner_name(const Value& object) {
  return object.is_none() ? "None" : std::string(type_name(object)) + " object";
}

// What Python's getattr gives; missing if there is no such attribute.
Value own_attribute(Interpreter& interpreter, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* value = object.as<Namespace>().attributes().find(name);
      return value ? *value : Value();
    }
    case Kind::kLoop:
      if (Value value = object.as<Loop>().attribute(interpreter, name); value.given()) {
        return value;
      }
      break;
    case Kind::kCallable:
      return object.as<Callable>().attribute(interpreter, name);
    case Kind::kCycler:
      if (name == "current") {
        const Cycler& cycler = object.as<Cycler>();
        return cycler.items[cycler.position];
      }
      break;
    case Kind::kSequence:
      if (object.sequence().flavour() == Sequence::Flavour::kGroup) {
        if (name == "grouper") return object.sequence().items()[0];
        if (name == "list") return object.sequence().items()[1];
      }
      break;
    default:
      break;
  }
  if (is_hidden_method(object, name)) {
    return interpreter.undefined(str("access to attribute '", name, "' of '", type_name(object),
                                     "' object is unsafe: templates may not change values"));
  }
  if (const Builtin* method = find_method(object, name)) {
    return Value::object(interpreter.heap().make<BoundBuiltin>(*method, object));
  }
  return {};
}

// What Python's object[key] gives; missing where it raises TypeError or LookupError.
Value own_item(Interpreter& interpreter, const Value& object, const Value& key) {
  if (object.is_dict()) {
    const bool hashable = !key.is_dict() && !(key.is_sequence() && key.sequence().is_list());
    const Value* value = hashable ? object.dict().find(key) : nullptr;
    return value ? *value : Value();
  }
  const bool row = object.is_sequence() && object.sequence().indexable();
  if (!key.is_integral() || (!row && !object.is_string())) return {};
  if (row) {
    const Value* value = object.sequence().element(key.as_int());
    return value ? *value : Value();
  }
  const int64_t size = *length(object);
  int64_t index = key.as_int();
  if (index < 0) index += size;
  if (index < 0 || index >= size) return {};
  const std::string_view text = object.view();
  interpreter.heap().touch(text.size());
  const bool ascii = size == static_cast<int64_t>(text.size());
  const size_t begin = ascii ? static_cast<size_t>(index) : offset_of(text, index);
  const size_t bytes = ascii ? 1 : offset_of(text.substr(begin), 1);
  return Value::object(interpreter.heap().make<String>(std::string(text.substr(begin, bytes)),
                                                       object.string().markup()));
}

}  // namespace

Value Interpreter::get_attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) refuse_undefined(object);
  if (Value value = own_attribute(*this, object, name); value.given()) return value;
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return undefined(str("'", owner_name(object), "' has no attribute ", lumen::quoted(name)));
}

Value Interpreter::get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) refuse_undefined(object);
  if (Value value = own_item(*this, object, key); value.given()) return value;
  if (key.is_string()) {
    if (Value value = own_attribute(*this, object, key.view()); value.given()) return value;
    return undefined(
        str("'", owner_name(object), "' has no attribute ", lumen::quoted(key.view())));
  }
  return undefined(str(owner_name(object), " has no element ", lumen::quoted(to_repr(heap_, key))));
}

}  // namespace lumen::text::jinja
