// Functions every template can call.
#include <algorithm>

#include "lib/base/strings.h"
#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/macro.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/strftime.h"

namespace lumen::text::jinja {

namespace {

constexpr int64_t kMaxRange = 100'000;  // MAX_RANGE of jinja2's sandbox

Value range(Interpreter& in, const Value&, Arguments& arguments) {
  const auto [first, second, third] = parameters("range", arguments, {"start", "stop", "step"}, 1);
  const int64_t start = second.given() ? to_index(first, "range") : 0;
  const int64_t stop = to_index(second.given() ? second : first, "range");
  const int64_t step = third.given() ? to_index(third, "range") : 1;
  if (step == 0) refuse("range() step must not be zero");
  Values items;
  using Wide = __int128;
  const Wide distance = step > 0 ? Wide{stop} - start : Wide{start} - stop;
  const Wide stride = step > 0 ? Wide{step} : -Wide{step};
  const Wide count = distance > 0 ? (distance + stride - 1) / stride : 0;
  if (count > kMaxRange) {
    refuse("range too big: the sandbox blocks ranges larger than ", kMaxRange, " items");
  }
  in.heap().step(static_cast<uint64_t>(count) / 4);
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    items.push_back(Value::integer(start + i * step));
  }
  const Ref<Sequence> out = in.heap().make<Sequence>(Sequence::Flavour::kRange, std::move(items));
  out->bounds = {start, stop, step};
  return Value::object(out);
}

// dict(mapping or pairs, name=value, …)
Ref<Dict> make_dict(Interpreter& in, Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    refuse("dict expected at most 1 argument, got ", arguments.positional.size());
  }
  const Ref<Dict> out = in.heap().make<Dict>();
  for (const Value& source : arguments.positional) {
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().items()) out->set(key, value);
      continue;
    }
    for (const Value& pair : iterate(in.heap(), source)) {
      const Values parts = iterate(in.heap(), pair);
      if (parts.size() != 2) {
        refuse("dict needs pairs of key and value; one has ", parts.size(), " elements");
      }
      out->set(parts[0], parts[1]);
    }
  }
  for (auto& [name, value] : arguments.named) out->set(in.text(name), value);
  return out;
}

Value dict(Interpreter& in, const Value&, Arguments& arguments) {
  return Value::object(make_dict(in, arguments));
}

Value make_namespace(Interpreter& in, const Value&, Arguments& arguments) {
  return Value::object(in.heap().make<Namespace>(make_dict(in, arguments)));
}

Value cycler(Interpreter& in, const Value&, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    refuse("cycler needs at least one item");
  }
  return Value::object(in.heap().make<Cycler>(std::move(arguments.positional)));
}

Value joiner(Interpreter& in, const Value&, Arguments& arguments) {
  const auto [separator] = parameters("joiner", arguments, {"sep"});
  return Value::object(in.heap().make<Joiner>(separator.given() ? separator : in.text(", ")));
}

Value raise_exception(Interpreter& in, const Value&, Arguments& arguments) {
  const auto [message] = parameters("raise_exception", arguments, {"message"}, 1);
  // The text may come from the conversation: lumen::quoted() keeps it on one printable line.
  refuse("the template refuses this conversation: ",
         lumen::quoted(to_str(in.heap(), message), 400));
}

Value strftime_now(Interpreter& in, const Value&, Arguments& arguments) {
  const auto [format] = parameters("strftime_now", arguments, {"format"}, 1);
  if (!format.is_string()) refuse("strftime_now needs a string, not ", type_name(format));
  return Value::text(in.heap(), format_time(in.heap(), format.view(), in.now()));
}

constexpr Builtin kGlobals[] = {
    {"cycler", cycler},
    {"dict", dict},
    {"joiner", joiner},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now},
};

}  // namespace

Value find_global(Interpreter& interpreter, std::string_view name) {
  const auto found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                  [&](const Builtin& global) { return global.name == name; });
  if (found == std::end(kGlobals)) return {};
  return Value::object(interpreter.heap().make<BoundBuiltin>(*found, Value()));
}

}  // namespace lumen::text::jinja
