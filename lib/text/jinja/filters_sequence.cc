// Filters on rows of values.
#include <algorithm>

#include "lib/base/strings.h"
#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"
#include "lib/text/jinja/string_operations.h"

namespace lumen::text::jinja {

namespace {

bool flag(const Value& value) {
  return value.given() && truth(value);
}

// The `attribute` arguments of filters: "a.b.0" is item.a.b[0].
class Getter {
 public:
  Getter(Interpreter& in, const Value& attribute, Value fallback = {}, bool ignore_case = false)
      : in_(in), fallback_(std::move(fallback)), ignore_case_(ignore_case) {
    if (!attribute.given() || attribute.is_none()) return;
    if (!attribute.is_string()) {
      parts_.push_back(attribute);
      return;
    }
    for (std::string_view part : split(in.heap(), attribute.view(), ".", -1)) {
      int64_t index = 0;
      const bool digits =
          !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(digits && parse_number(part, index) ? Value::integer(index) : in.text(part));
    }
  }

  Value operator()(Value item) const {
    for (const Value& part : parts_) {
      item = in_.get_item(item, part);
      if (item.is_undefined() && fallback_.given() && !fallback_.is_none()) item = fallback_;
    }
    if (ignore_case_ && item.is_string()) {
      in_.heap().touch(4 * item.view().size());
      item = in_.text(to_lower(item.view()));
    }
    return item;
  }

 private:
  Interpreter& in_;
  Values parts_;
  Value fallback_;
  bool ignore_case_;
};

// Indices of `keys` in ascending (or descending) order; equal keys keep their order.
std::vector<size_t> sorted_order(Heap& heap, const Values& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? ordered(heap, keys[b], keys[a], Relation::kLess)
                   : ordered(heap, keys[a], keys[b], Relation::kLess);
  });
  return order;
}

Value first(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("first", arguments);
  if (subject.is_sequence() && subject.sequence().is_generator()) {
    Values rest = subject.sequence().drain();
    if (rest.empty()) return in.undefined("No first item, sequence was empty.");
    return rest.front();
  }
  if (subject.is_string() && !subject.view().empty()) {
    return in.text(subject.view().substr(0, offset_of(subject.view(), 1)));
  }
  const Values items = iterate(in.heap(), subject);
  return items.empty() ? in.undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("last", arguments);
  if (!iterable(subject) || (subject.is_sequence() && subject.sequence().is_generator())) {
    refuse("'", type_name(subject), "' object is not reversible");
  }
  if (subject.is_string() && !subject.view().empty()) {
    return in.get_item(subject, Value::integer(-1));
  }
  const Values items = iterate(in.heap(), subject);
  return items.empty() ? in.undefined("No last item, sequence was empty.") : items.back();
}

Value list(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("list", arguments);
  return make_list(in.heap(), iterate(in.heap(), subject));
}

Value reverse(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("reverse", arguments);
  if (subject.is_string()) {
    const std::string_view text = subject.view();
    in.heap().check(text.size() * (1 + sizeof(std::string_view)));
    in.heap().touch(4 * text.size());
    std::string out;
    const Pieces characters = code_points(text);
    for (auto c = characters.rbegin(); c != characters.rend(); ++c) out += *c;
    return Value::object(in.heap().make<String>(std::move(out), subject.string().markup()));
  }
  const bool spent = subject.is_sequence() && subject.sequence().is_generator();
  Values items = iterate(in.heap(), subject);
  std::reverse(items.begin(), items.end());
  return spent ? make_list(in.heap(), std::move(items))
               : make_generator(in.heap(), std::move(items));
}

Value join(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [separator, attribute] = parameters("join", arguments, {"d", "attribute"});
  Heap& heap = in.heap();
  const std::string between = separator.given() ? to_str(heap, separator) : "";
  const Getter get(in, attribute);
  TextBuilder out(heap);
  bool is_first = true;
  for (const Value& item : iterate(heap, subject)) {
    heap.step();
    if (!is_first) out.append(between);
    is_first = false;
    append_str(out, get(item));
  }
  return Value::text(heap, out.take());
}

Value sort(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [reversed, case_sensitive, attribute] =
      parameters("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  Heap& heap = in.heap();
  // "a,b" sorts by a, then by b.
  std::vector<Getter> getters;
  if (attribute.given() && attribute.is_string()) {
    for (std::string_view part : split(heap, attribute.view(), ",", -1)) {
      getters.emplace_back(in, in.text(part), Value(), !flag(case_sensitive));
    }
  } else {
    getters.emplace_back(in, attribute, Value(), !flag(case_sensitive));
  }
  const Values items = iterate(heap, subject);
  Values keys;
  for (const Value& item : items) {
    Values key;
    for (const Getter& get : getters) key.push_back(get(item));
    keys.push_back(make_list(heap, std::move(key)));
  }
  Values out;
  for (size_t i : sorted_order(heap, keys, flag(reversed))) out.push_back(items[i]);
  return make_list(heap, std::move(out));
}

Value dict_sort(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [case_sensitive, by, reversed] =
      parameters("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (subject.is_undefined()) refuse_undefined(subject);
  if (!subject.is_dict()) refuse("dictsort needs a mapping, not ", type_name(subject));
  const std::string order = by.given() ? to_str(in.heap(), by) : "key";
  if (order != "key" && order != "value") refuse("dictsort sorts by either \"key\" or \"value\"");
  const Getter fold(in, {}, {}, !flag(case_sensitive));
  Values keys;
  for (const auto& [key, value] : subject.dict().items()) {
    keys.push_back(fold(order == "key" ? key : value));
  }
  Values out;
  for (size_t i : sorted_order(in.heap(), keys, flag(reversed))) {
    const auto& [key, value] = subject.dict().items()[i];
    out.push_back(make_tuple(in.heap(), {key, value}));
  }
  return make_list(in.heap(), std::move(out));
}

Value unique(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [case_sensitive, attribute] =
      parameters("unique", arguments, {"case_sensitive", "attribute"});
  const Getter get(in, attribute, {}, !flag(case_sensitive));
  const Ref<Dict> seen = in.heap().make<Dict>();
  Values out;
  for (const Value& item : iterate(in.heap(), subject)) {
    const Value key = get(item);
    if (seen->find(key)) continue;
    seen->set(key, Value::none());
    out.push_back(item);
  }
  return make_generator(in.heap(), std::move(out));
}

template <bool maximum>
Value extreme(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [case_sensitive, attribute] =
      parameters(maximum ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Values items = iterate(in.heap(), subject);
  if (items.empty()) return in.undefined("No aggregated item, sequence was empty.");
  const Getter get(in, attribute, {}, !flag(case_sensitive));
  Value best = items[0], best_key = get(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    const Value key = get(items[i]);
    const bool better = maximum ? ordered(in.heap(), key, best_key, Relation::kGreater)
                                : ordered(in.heap(), key, best_key, Relation::kLess);
    if (better) {
      best = items[i];
      best_key = key;
    }
  }
  return best;
}

Value sum(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [attribute, start] = parameters("sum", arguments, {"attribute", "start"});
  const Getter get(in, attribute);
  Value total = start.given() ? start : Value::integer(0);
  if (total.is_string()) refuse("sum() cannot sum strings");
  for (const Value& item : iterate(in.heap(), subject)) {
    in.heap().step();
    total = add(in.heap(), total, get(item));
  }
  return total;
}

Value items(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("items", arguments);
  if (subject.is_undefined()) return make_generator(in.heap(), {});
  if (!subject.is_dict()) refuse("Can only get item pairs from a mapping.");
  Values out;
  for (const auto& [key, value] : subject.dict().items()) {
    out.push_back(make_tuple(in.heap(), {key, value}));
  }
  return make_generator(in.heap(), std::move(out));
}

Value map(Interpreter& in, const Value& subject, Arguments& arguments) {
  if (!truth(subject)) return make_generator(in.heap(), {});
  Values out;
  if (arguments.positional.empty()) {
    const bool by_attribute =
        std::any_of(arguments.named.begin(), arguments.named.end(),
                    [](const auto& argument) { return argument.first == "attribute"; });
    if (!by_attribute) refuse("map requires a filter argument");
    const auto [attribute, fallback] = parameters("map", arguments, {"attribute", "default"});
    const Getter get(in, attribute, fallback);
    for (const Value& item : iterate(in.heap(), subject)) out.push_back(get(item));
    return make_generator(in.heap(), std::move(out));
  }
  const Value name = arguments.positional.front();
  const Builtin* filter = name.is_string() ? find_filter(name.view()) : nullptr;
  if (!filter) refuse("no filter named ", lumen::quoted(to_str(in.heap(), name)));
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& item : iterate(in.heap(), subject)) {
    Arguments copy = arguments;
    out.push_back(in.apply(*filter, item, copy));
  }
  return make_generator(in.heap(), std::move(out));
}

// select, reject, selectattr, rejectattr.
template <bool wanted, bool by_attribute>
Value choose(Interpreter& in, const Value& subject, Arguments& arguments) {
  if (!truth(subject)) return make_generator(in.heap(), {});
  Values& positional = arguments.positional;
  if (by_attribute && positional.empty()) refuse("Missing parameter for attribute name");
  const Getter get(in, by_attribute ? positional.front() : Value());
  if (by_attribute) positional.erase(positional.begin());
  const Builtin* test = nullptr;
  if (!positional.empty()) {
    const Value name = positional.front();
    test = name.is_string() ? find_test(name.view()) : nullptr;
    if (!test) refuse("no test named ", lumen::quoted(to_str(in.heap(), name)));
    positional.erase(positional.begin());
  }
  Values out;
  for (const Value& item : iterate(in.heap(), subject)) {
    in.heap().step();
    const Value value = get(item);
    Arguments copy = arguments;
    if (truth(test ? in.apply(*test, value, copy) : value) == wanted) out.push_back(item);
  }
  return make_generator(in.heap(), std::move(out));
}

Value group_by(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [attribute, fallback, case_sensitive] =
      parameters("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  Heap& heap = in.heap();
  const Getter folded(in, attribute, fallback, !flag(case_sensitive));
  const Getter exact(in, attribute, fallback);
  const Values rows = iterate(heap, subject);
  Values keys;
  for (const Value& row : rows) keys.push_back(folded(row));
  const std::vector<size_t> order = sorted_order(heap, keys, false);
  Values groups;
  for (size_t begin = 0; begin < order.size();) {
    Values members;
    size_t end = begin;
    for (; end < order.size() && equals(heap, keys[order[end]], keys[order[begin]]); ++end) {
      members.push_back(rows[order[end]]);
    }
    if (end == begin) members.push_back(rows[order[end++]]);  // NaN is a group of its own
    const Value grouper = exact(rows[order[begin]]);
    groups.push_back(Value::object(heap.make<Sequence>(
        Sequence::Flavour::kGroup, Values{grouper, make_list(heap, std::move(members))})));
    begin = end;
  }
  return make_list(heap, std::move(groups));
}

Value batch(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [count, fill] = parameters("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = to_index(count, "linecount");
  Heap& heap = in.heap();
  Values rows, row;
  const Values all = iterate(heap, subject);
  for (const Value& item : all) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(make_list(heap, std::exchange(row, {})));
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (fill.given() && !fill.is_none() && static_cast<int64_t>(row.size()) < size) {
      if (size > 1'000'000) heap.check(SIZE_MAX);
      row.resize(static_cast<size_t>(size), fill);
    }
    rows.push_back(make_list(heap, std::move(row)));
  }
  return make_generator(heap, std::move(rows));
}

Value slice(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [count, fill] = parameters("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t slices = to_index(count, "slices");
  Heap& heap = in.heap();
  const Values all = iterate(heap, subject);
  if (slices == 0) refuse("integer division or modulo by zero");
  const auto size = static_cast<int64_t>(all.size());
  const int64_t each = slices < 0 ? 0 : size / slices, longer = slices < 0 ? 0 : size % slices;
  Values out;
  auto next = all.begin();
  for (int64_t i = 0; i < slices; ++i) {
    heap.step();
    const auto end = next + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    Values part(next, end);
    next = end;
    if (fill.given() && !fill.is_none() && i >= longer) part.push_back(fill);
    out.push_back(make_list(heap, std::move(part)));
  }
  return make_generator(heap, std::move(out));
}

constexpr Builtin kSequenceFilters[] = {
    {"batch", batch},
    {"dictsort", dict_sort},
    {"first", first},
    {"groupby", group_by},
    {"items", items},
    {"join", join},
    {"last", last},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", choose<false, false>},
    {"rejectattr", choose<false, true>},
    {"reverse", reverse},
    {"select", choose<true, false>},
    {"selectattr", choose<true, true>},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const Builtin> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace lumen::text::jinja
