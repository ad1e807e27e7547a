#include "lib/text/jinja/macro.h"

#include <algorithm>

#include "lib/base/strings.h"

namespace lumen::text::jinja {

namespace {

// Removes the named argument `name` and gives its value; missing if there is none.
Value take_named(Arguments& arguments, std::string_view name) {
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  if (found == arguments.named.end()) return {};
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

}  // namespace

void Macro::bind(Interpreter& interpreter, Arguments& arguments, const Ref<Scope>& scope) {
  Heap& heap = interpreter.heap();
  const std::vector<Symbol>& parameters = definition_.parameters;
  const size_t first_default = parameters.size() - definition_.defaults.size();
  const size_t given = std::min(arguments.positional.size(), parameters.size());
  // Values first: a default may use the parameters before it, and must not see those after it.
  Values values(arguments.positional.begin(),
                arguments.positional.begin() + static_cast<std::ptrdiff_t>(given));
  for (size_t i = given; i < parameters.size(); ++i) {
    values.push_back(take_named(arguments, interpreter.symbol_name(parameters[i])));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!values[i].given()) {
      const std::string& name = interpreter.symbol_name(parameters[i]);
      scope->set(parameters[i],
                 interpreter.undefined("parameter " + lumen::quoted(name) + " was not provided"));
      if (i >= first_default) {
        values[i] = interpreter.evaluate(*definition_.defaults[i - first_default], scope);
      } else {
        continue;
      }
    }
    scope->set(parameters[i], values[i]);
  }
  if (definition_.uses_caller) {
    const Value caller = take_named(arguments, "caller");
    scope->set(interpreter.special().caller, caller.given() && !caller.is_none()
                                                 ? caller
                                                 : interpreter.undefined("No caller defined"));
  }
  if (definition_.uses_kwargs) {
    const Ref<Dict> rest = heap.make<Dict>();
    for (auto& [name, value] : arguments.named) rest->set(interpreter.text(name), value);
    scope->set(interpreter.special().kwargs, Value::object(rest));
  } else if (!arguments.named.empty()) {
    refuse("macro ", lumen::quoted(definition_.name), " takes no keyword argument ",
           lumen::quoted(arguments.named.front().first));
  }
  if (definition_.uses_varargs) {
    Values rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                arguments.positional.end());
    scope->set(interpreter.special().varargs, make_tuple(heap, std::move(rest)));
  } else if (arguments.positional.size() > given) {
    refuse("macro ", lumen::quoted(definition_.name), " takes not more than ", parameters.size(),
           " arguments, ", arguments.positional.size(), " were given");
  }
}

Value Macro::call(Interpreter& interpreter, Arguments& arguments) {
  const Ref<Scope> scope = interpreter.heap().make<Scope>(scope_);
  bind(interpreter, arguments, scope);
  return interpreter.run_body(definition_.body, scope);
}

Value Macro::attribute(Interpreter& interpreter, std::string_view name) {
  if (name == "name") return interpreter.text(definition_.name);
  if (name == "catch_kwargs") return Value::boolean(definition_.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(definition_.uses_varargs);
  if (name == "caller") return Value::boolean(definition_.uses_caller);
  if (name == "arguments") {
    Values names;
    for (Symbol symbol : definition_.parameters) {
      names.push_back(interpreter.text(interpreter.symbol_name(symbol)));
    }
    return make_tuple(interpreter.heap(), std::move(names));
  }
  return {};
}

Value BoundBuiltin::attribute(Interpreter& interpreter, std::string_view name) {
  if (builtin_.name != "dict" || subject_.given()) return {};
  const Builtin* method = find_method(Value::object(interpreter.heap().make<Dict>()), name);
  if (!method || name != "fromkeys") return {};
  return Value::object(interpreter.heap().make<BoundBuiltin>(*method, Value()));
}

}  // namespace lumen::text::jinja
