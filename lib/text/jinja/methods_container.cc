// Methods of dict, list, tuple, loop and cycler.
#include <algorithm>

#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/methods.h"
#include "lib/text/jinja/operators.h"

namespace lumen::text::jinja {

namespace {

Value view(Heap& heap, Sequence::Flavour flavour, Values items) {
  return Value::object(heap.make<Sequence>(flavour, std::move(items)));
}

Value dict_items(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("items", arguments);
  Values out;
  for (const auto& [key, value] : subject.dict().items()) {
    out.push_back(make_tuple(in.heap(), {key, value}));
  }
  return view(in.heap(), Sequence::Flavour::kItems, std::move(out));
}

Value dict_keys(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("keys", arguments);
  return view(in.heap(), Sequence::Flavour::kKeys, iterate(in.heap(), subject));
}

Value dict_values(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("values", arguments);
  in.heap().step(subject.dict().size());
  Values out;
  for (const auto& [key, value] : subject.dict().items()) out.push_back(value);
  return view(in.heap(), Sequence::Flavour::kValues, std::move(out));
}

Value dict_get(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto [key, fallback] = parameters("get", arguments, {"key", "default"}, 1);
  if (const Value* value = subject.dict().find(key)) return *value;
  return fallback.given() ? fallback : Value::none();
}

Value dict_copy(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("copy", arguments);
  const Ref<Dict> out = in.heap().make<Dict>();
  for (const auto& [key, value] : subject.dict().items()) out->set(key, value);
  return Value::object(out);
}

Value dict_from_keys(Interpreter& in, const Value&, Arguments& arguments) {
  const auto [keys, value] = parameters("fromkeys", arguments, {"iterable", "value"}, 1);
  const Ref<Dict> out = in.heap().make<Dict>();
  for (const Value& key : iterate(in.heap(), keys)) {
    out->set(key, value.given() ? value : Value::none());
  }
  return Value::object(out);
}

Value index_of(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [wanted, start, stop] = parameters("index", arguments, {"value", "start", "stop"}, 1);
  const Values& items = subject.sequence().items();
  const auto size = static_cast<int64_t>(items.size());
  const auto position = [&](const Value& value, int64_t absent) {
    if (!value.given()) return absent;
    const int64_t at = to_index(value, "a position");
    return at < 0 ? std::max<int64_t>(at + size, 0) : std::min(at, size);
  };
  for (int64_t i = position(start, 0); i < position(stop, size); ++i) {
    if (equals(in.heap(), items[static_cast<size_t>(i)], wanted)) return Value::integer(i);
  }
  refuse(to_repr(in.heap(), wanted), " is not in ", type_name(subject));
}

Value count_equal(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [wanted] = parameters("count", arguments, {"value"}, 1);
  int64_t times = 0;
  for (const Value& item : subject.sequence().items()) times += equals(in.heap(), item, wanted);
  return Value::integer(times);
}

Value list_copy(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("copy", arguments);
  return make_list(in.heap(), iterate(in.heap(), subject));
}

// The one change of a list that jinja2's sandbox lets through; templates use it.
Value list_pop(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto [index] = parameters("pop", arguments, {"index"});
  Sequence& list = subject.sequence();
  const auto size = static_cast<int64_t>(list.items().size());
  int64_t at = index.given() ? to_index(index, "index") : -1;
  if (at < 0) at += size;
  if (size == 0) refuse("pop from empty list");
  if (at < 0 || at >= size) refuse("pop index out of range");
  return list.remove(static_cast<size_t>(at));
}

Value loop_cycle(Interpreter&, const Value& subject, Arguments& arguments) {
  if (!arguments.named.empty()) refuse("cycle takes no keyword arguments");
  if (arguments.positional.empty()) refuse("no items for cycling given");
  const auto index = static_cast<size_t>(subject.as<Loop>().index0);
  return arguments.positional[index % arguments.positional.size()];
}

Value loop_changed(Interpreter& in, const Value& subject, Arguments& arguments) {
  if (!arguments.named.empty()) refuse("changed takes no keyword arguments");
  Loop& loop = subject.as<Loop>();
  const Value now = make_tuple(in.heap(), arguments.positional);
  const bool changed =
      !loop.changed_value().given() || !equals(in.heap(), loop.changed_value(), now);
  if (changed) loop.change_value(now);
  return Value::boolean(changed);
}

Value cycler_next(Interpreter&, const Value& subject, Arguments& arguments) {
  no_parameters("next", arguments);
  Cycler& cycler = subject.as<Cycler>();
  cycler.before_change();
  const size_t position = cycler.position;
  cycler.position = (position + 1) % cycler.items.size();
  return cycler.items[position];
}

Value cycler_reset(Interpreter&, const Value& subject, Arguments& arguments) {
  no_parameters("reset", arguments);
  subject.as<Cycler>().before_change();
  subject.as<Cycler>().position = 0;
  return Value::none();
}

constexpr Builtin kDict[] = {
    {"copy", dict_copy},   {"fromkeys", dict_from_keys}, {"get", dict_get},
    {"items", dict_items}, {"keys", dict_keys},          {"values", dict_values},
};
constexpr Builtin kList[] = {
    {"copy", list_copy}, {"count", count_equal}, {"index", index_of}, {"pop", list_pop}};
constexpr Builtin kRow[] = {{"count", count_equal}, {"index", index_of}};
constexpr Builtin kLoop[] = {{"changed", loop_changed}, {"cycle", loop_cycle}};
constexpr Builtin kCycler[] = {{"next", cycler_next}, {"reset", cycler_reset}};

std::span<const Builtin> methods_of(const Value& object) {
  switch (object.kind()) {
    case Kind::kString:
      return string_methods();
    case Kind::kDict:
      return kDict;
    case Kind::kSequence:
      if (object.sequence().is_list()) return kList;
      return object.sequence().indexable() ? std::span<const Builtin>(kRow)
                                           : std::span<const Builtin>();
    case Kind::kLoop:
      return kLoop;
    case Kind::kCycler:
      return kCycler;
    default:
      return {};
  }
}

}  // namespace

const Builtin* find_method(const Value& object, std::string_view name) {
  const std::span<const Builtin> methods = methods_of(object);
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const Builtin& method) { return method.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

}  // namespace lumen::text::jinja
